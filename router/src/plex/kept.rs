//! What has been decided, kept with the history: assigned files, drained stores and learnt weights outlive a restart.

use super::state::{Exception, State, Wanted};
use super::survey::hex;
use super::weights::LearntWeights;
use crate::config::Config;
use crate::history::{History, HistoryError};
use crate::web::handle_bytes;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often it is tried again to keep what could not be kept. The history itself tries no oftener than every 5 seconds.
const AGAIN: Duration = Duration::from_secs(6);

/// Name of the assigned files in the history.
const EXCEPTIONS: &str = "exceptions";
/// Name of the drained stores in the history.
const DRAINED: &str = "drained";
/// Name of the weights in the history.
const WEIGHTS: &str = "weights";

/// One assigned file, as JSON.
#[derive(Debug, Serialize, Deserialize)]
struct KeptException {
    /// In hexadecimal.
    handle: String,
    #[serde(flatten)]
    exception: Exception,
}

/// What is to be kept, as it was at one moment.
#[derive(Debug)]
pub(crate) struct Decisions {
    exceptions: Vec<KeptException>,
    drained: Vec<String>,
    /// A list of one, as the others are lists.
    weights: [LearntWeights; 1],
}

impl Decisions {
    pub(crate) fn of(config: &Config, wanted: &Wanted) -> Self {
        let stores = wanted.stores.iter().zip(&config.stores);
        Self {
            exceptions: wanted
                .exceptions
                .iter()
                .map(|(handle, exception)| KeptException {
                    handle: hex(handle),
                    exception: exception.clone(),
                })
                .collect(),
            drained: stores.filter(|(mark, _)| mark.drained).map(|(_, store)| store.name.clone()).collect(),
            weights: [wanted.weights.clone()],
        }
    }

    /// Writes them to disk.
    pub(crate) fn save(&self, history: &History) -> Result<(), String> {
        let put = |name, json: serde_json::Result<Vec<u8>>| {
            let bytes = json.map_err(|error| error.to_string())?;
            history.put(name, &bytes).map_err(|error| error.to_string())
        };
        put(EXCEPTIONS, serde_json::to_vec(&self.exceptions))?;
        put(DRAINED, serde_json::to_vec(&self.drained))?;
        put(WEIGHTS, serde_json::to_vec(&self.weights))
    }
}

/// Keeps what outlives a restart, one change after the other.
#[derive(Default)]
pub(crate) struct Keeper {
    history: Option<Arc<History>>,
    saving: tokio::sync::Mutex<()>,
    /// What went wrong with the last change.
    unsaved: Mutex<Option<String>>,
    /// Why there is no history where there should be one.
    why_none: Option<String>,
}

impl Keeper {
    /// Without a history nothing is kept; `why_none` says why there is none where there should be one.
    pub(crate) fn new(history: Option<Arc<History>>, why_none: Option<String>) -> Self {
        Self { history, why_none, ..Self::default() }
    }

    /// Keeps what was decided. It is in force also where it cannot be kept; the status says so then.
    pub(crate) async fn save(&self, state: &State) {
        let Some(history) = self.history.clone() else { return };
        let _in_order = self.saving.lock().await;
        let decisions = Decisions::of(&state.config, &state.wanted());
        let saved = tokio::task::spawn_blocking(move || decisions.save(&history)).await;
        let error = match saved {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error),
            Err(error) => Some(error.to_string()),
        };
        let mut unsaved = self.unsaved.lock().unwrap_or_else(PoisonError::into_inner);
        match (&error, &*unsaved) {
            (Some(error), before) if before.as_ref() != Some(error) => {
                tracing::error!(error, "assignments, drained stores and weights could not be kept");
            }
            (None, Some(_)) => tracing::info!("assignments, drained stores and weights are kept again"),
            _ => {}
        }
        *unsaved = error;
    }

    /// Tries for ever to keep what could not be kept: all of it, as it is by then.
    pub(crate) async fn keep_trying(self: Arc<Self>, state: Arc<State>) {
        loop {
            tokio::time::sleep(AGAIN).await;
            if self.unsaved().is_some() {
                self.save(&state).await;
            }
        }
    }

    /// Why the last change would not outlive a restart, if it should.
    pub(crate) fn not_kept(&self) -> Option<String> {
        self.unsaved().or_else(|| self.why_none.clone())
    }

    /// What went wrong with the last change, if anything did.
    pub(crate) fn unsaved(&self) -> Option<String> {
        self.unsaved.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Takes up what was kept. Returns what an operator should know of it.
pub(crate) fn restore(
    history: &History,
    config: &Config,
    wanted: &mut Wanted,
) -> Result<Vec<String>, HistoryError> {
    let mut alarms = Vec::new();
    let exceptions: Vec<KeptException> = read(history, EXCEPTIONS, &mut alarms)?;
    for KeptException { handle, exception } in exceptions {
        match handle_bytes(&handle) {
            Some(handle) => drop(wanted.exceptions.insert(handle.into(), exception)),
            None => tracing::error!(handle, "an assigned file has no handle; it is left out"),
        }
    }
    let drained: Vec<String> = read(history, DRAINED, &mut alarms)?;
    for name in drained {
        match config.stores.iter().position(|store| store.name == name) {
            Some(store) => {
                tracing::warn!(store = name, "the store is drained, as it was before the restart");
                wanted.stores[store].drained = true;
            }
            None => tracing::info!(store = name, "a drained store is not configured any more"),
        }
    }
    let weights: Vec<LearntWeights> = read(history, WEIGHTS, &mut alarms)?;
    if let Some(weights) = weights.into_iter().next() {
        let (weights, told) = weights.for_config(config);
        if let Some(told) = told {
            tracing::warn!("{told}");
        }
        wanted.weights = weights;
    }
    if !wanted.exceptions.is_empty() {
        tracing::info!(files = wanted.exceptions.len(), "assigned files of the last run are in force again");
    }
    for alarm in unknown_stores(config, &wanted.exceptions) {
        tracing::warn!("{alarm}");
    }
    Ok(alarms)
}

/// Reads a list; one that cannot be understood is put aside, not overwritten.
fn read<T: serde::de::DeserializeOwned>(
    history: &History,
    name: &str,
    alarms: &mut Vec<String>,
) -> Result<Vec<T>, HistoryError> {
    let Some(bytes) = history.get(name)? else { return Ok(Vec::new()) };
    serde_json::from_slice(&bytes).or_else(|error| {
        let aside = format!("{name}.unreadable");
        history.put(&aside, &bytes)?;
        let alarm =
            format!("what the history has as `{name}` cannot be read ({error}); it was kept as `{aside}`");
        tracing::error!("{alarm}");
        alarms.push(alarm);
        Ok(Vec::new())
    })
}

/// Says for each store that is not configured how many files are assigned to it: these follow the default rule, and the
/// store again when it is back.
pub(crate) fn unknown_stores(config: &Config, exceptions: &BTreeMap<Box<[u8]>, Exception>) -> Vec<String> {
    let known: BTreeSet<&str> = config.stores.iter().map(|store| store.name.as_str()).collect();
    let mut unknown: BTreeMap<&str, usize> = BTreeMap::new();
    let gone = |exception: &&Exception| {
        let replicas = exception.replicas.iter().map(|of| of.store.as_str());
        !std::iter::once(exception.store.as_str()).chain(replicas).any(|store| known.contains(store))
    };
    for exception in exceptions.values().filter(gone) {
        *unknown.entry(&exception.store).or_default() += 1;
    }
    let alarm = |(store, files)| {
        format!(
            "{files} files are assigned to the store {store}, which is not configured: they follow the default rule; \
             unassign them, or configure the store"
        )
    };
    unknown.into_iter().map(alarm).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::HistoryLimits;
    use crate::plex::By;
    use std::path::Path;

    fn config() -> Config {
        let text = "[[store]]\nname = \"a\"\naddress = \"127.0.0.1:1\"\n[[store]]\nname = \"b\"\naddress = \
                    \"127.0.0.1:2\"\n[[export]]\npath = \"/e\"\nclients = [\"127.0.0.1\"]\n";
        Config::parse(text, Path::new("test.toml")).unwrap()
    }

    fn wanted() -> Wanted {
        Wanted { stores: vec![Default::default(); 2], ..Wanted::default() }
    }

    #[test]
    fn decisions_outlive_a_restart_and_unknown_stores_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let history = History::open(folder.path().join("h"), HistoryLimits::default()).unwrap().history;
        let config = config();
        let mut before = wanted();
        before.stores[1].drained = true;
        for (handle, store) in [(1_u8, "a"), (2, "gone"), (3, "gone")] {
            let exception = Exception {
                store: store.into(),
                replicas: Vec::new(),
                reason: "why".into(),
                since_unix_ms: 7,
                by: By::Controller,
            };
            before.exceptions.insert(vec![handle].into(), exception);
        }
        Decisions::of(&config, &before).save(&history).unwrap();

        let mut after = wanted();
        assert_eq!(restore(&history, &config, &mut after).unwrap(), Vec::<String>::new());
        assert_eq!(after.exceptions, before.exceptions);
        assert!(after.stores[1].drained && !after.stores[0].drained);
        let told = unknown_stores(&config, &after.exceptions);
        assert!(told.len() == 1 && told[0].starts_with("2 files") && told[0].contains("gone"), "{told:?}");
    }

    #[test]
    fn what_cannot_be_read_is_put_aside() {
        let folder = tempfile::tempdir().unwrap();
        let history = History::open(folder.path().join("h"), HistoryLimits::default()).unwrap().history;
        history.put(EXCEPTIONS, b"{not json").unwrap();
        let mut after = wanted();
        let alarms = restore(&history, &config(), &mut after).unwrap();
        assert!(alarms[0].contains("exceptions.unreadable"), "{alarms:?}");
        assert!(after.exceptions.is_empty());
        assert_eq!(history.get("exceptions.unreadable").unwrap().unwrap(), b"{not json");
    }
}
