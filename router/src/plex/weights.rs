//! Weights of the default rule that are in force: the configuration's, or what the controller has made of them.
//!
//! What the controller has learnt counts as long as the operator has not said otherwise: with another `weight` of any store in
//! the configuration, without `control.weights = "apply"`, or when it is reset, the configuration's weights are in force.

use super::kept::Keeper;
use super::periods::unix_ms;
use super::state::{By, Health, State, Wanted};
use crate::config::{Config, ControlWeights, Store};
use crate::control::WeightsChanged;
use clockwork_placement::{TableError, WEIGHT_MAX};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::SystemTime;

/// Least weight that is taken up from what was kept: the least of a configuration over the most.
const WEIGHT_MIN: f64 = 1e-9;

/// Weights as the controller has set them, kept in the history.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct LearntWeights {
    /// By the store's name.
    stores: BTreeMap<String, LearntWeight>,
    /// When they were last changed or reset, milliseconds since 1970.
    changed_unix_ms: Option<u64>,
    /// Why.
    reason: String,
}

/// One store's weight.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct LearntWeight {
    /// As it was configured when the controller began to learn.
    configured: f64,
    /// As it is in force.
    in_force: f64,
}

impl LearntWeights {
    /// The weight of a store that is in force.
    pub(crate) fn of(&self, store: &Store) -> f64 {
        self.stores.get(&store.name).map_or(store.weight, |learnt| learnt.in_force)
    }

    /// When they were last changed or reset, milliseconds since 1970.
    pub(crate) fn changed_unix_ms(&self) -> Option<u64> {
        self.changed_unix_ms
    }

    /// Why they are as they are; empty before the first change.
    pub(crate) fn reason(&self) -> &str {
        &self.reason
    }

    /// Whether any differs from the configuration's.
    pub(crate) fn are_learnt(&self) -> bool {
        !self.stores.is_empty()
    }

    /// What of it holds for a configuration, and what an operator should know of it.
    pub(super) fn for_config(mut self, config: &Config) -> (Self, Option<String>) {
        if config.control.weights != ControlWeights::Apply {
            let why = format!("control.weights is \"{}\"", config.control.weights.word());
            return self.forgotten(&why);
        }
        let changed = config.stores.iter().find(|store| {
            self.stores.get(&store.name).is_some_and(|learnt| learnt.configured != store.weight)
        });
        if let Some(store) = changed {
            return self.forgotten(&format!("store {} has another weight in the configuration", store.name));
        }
        let usable = |name: &String, learnt: &LearntWeight| {
            (WEIGHT_MIN..=WEIGHT_MAX).contains(&learnt.in_force)
                && config.stores.iter().any(|store| store.name == *name && store.weight > 0.0)
        };
        self.stores.retain(|name, learnt| usable(name, learnt));
        (self, None)
    }

    fn forgotten(self, why: &str) -> (Self, Option<String>) {
        let told = self.are_learnt().then(|| {
            format!("{why}: the weights that the controller had learnt are forgotten, the configuration's are in force")
        });
        (Self { changed_unix_ms: self.changed_unix_ms, ..Self::default() }, told)
    }

    /// The same after a change.
    fn changed(&self, config: &Config, change: &WeightsChanged, now_unix_ms: u64) -> Self {
        let stores = change.stores.iter().filter_map(|changed| {
            let store = config.stores.iter().find(|store| store.name == changed.store)?;
            let learnt = LearntWeight { configured: store.weight, in_force: changed.after };
            (store.weight > 0.0).then(|| (store.name.clone(), learnt))
        });
        Self { stores: stores.collect(), changed_unix_ms: Some(now_unix_ms), reason: change.reason.clone() }
    }
}

/// Puts other weights into what is wanted, and takes files out of the exception set that the default rule gives to their
/// stores now. `false`, and nothing is changed, where it was decided about another plex: a store is not in service, or
/// weights have been changed since.
pub(super) fn reweigh(state: &State, wanted: &mut Wanted, change: &WeightsChanged, now_unix_ms: u64) -> bool {
    let config = &state.config;
    let stores = config.stores.iter().zip(&wanted.stores);
    let mut in_service = stores.filter(|(store, _)| store.weight > 0.0);
    let of_now = |store: &Store| {
        let told = change.stores.iter().find(|changed| changed.store == store.name);
        told.is_some_and(|told| told.before == wanted.weights.of(store))
    };
    if !in_service.all(|(store, mark)| mark.health == Health::Up && !mark.drained && of_now(store)) {
        return false;
    }
    wanted.weights = wanted.weights.changed(config, change, now_unix_ms);
    true
}

/// The files of the controller that the default rule of a table gives to their stores anyway.
pub(super) fn superfluous(state: &State, wanted: &Wanted) -> Result<Vec<Box<[u8]>>, TableError> {
    let table = state.table(wanted)?;
    let home = |handle: &[u8]| table.default_route(table.hash(handle));
    let own = wanted.exceptions.iter().filter(|(_, of)| of.by == By::Controller && of.replicas.is_empty());
    let same = own.filter(|(handle, of)| {
        home(handle)
            .and_then(|store| state.config.stores.get(store.index()))
            .is_some_and(|s| s.name == of.store)
    });
    Ok(same.map(|(handle, _)| handle.clone()).collect())
}

/// Puts the configuration's weights in force again; whether they were not. The controller changes them again at the earliest a
/// day later.
///
/// # Errors
/// No table can be made of it; then nothing has changed.
pub(crate) async fn reset(state: &State, keeper: &Keeper) -> Result<bool, TableError> {
    {
        let mut wanted = state.wanted();
        let reset = LearntWeights {
            changed_unix_ms: Some(unix_ms(SystemTime::now())),
            reason: "reset by the operator".to_owned(),
            ..LearntWeights::default()
        };
        let before = std::mem::replace(&mut wanted.weights, reset);
        if !before.are_learnt() {
            wanted.weights = before;
            return Ok(false);
        }
        if let Err(error) = state.apply(&mut wanted) {
            wanted.weights = before;
            return Err(error);
        }
    }
    tracing::info!("the configuration's weights are in force again, by the operator's word");
    keeper.save(state).await;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::StoreWeight;
    use std::path::Path;

    fn config(weights: &[(&str, f64)], control: &str) -> Config {
        let stores: String = weights
            .iter()
            .enumerate()
            .map(|(n, (name, weight))| {
                let address = format!("127.0.0.1:{}", n + 1);
                format!("[[store]]\nname = \"{name}\"\naddress = \"{address}\"\nweight = {weight}\n")
            })
            .collect();
        let export = "[[export]]\npath = \"/e\"\nclients = [\"127.0.0.1\"]\n";
        Config::parse(&format!("{stores}{export}[control]\n{control}\n"), Path::new("test.toml")).unwrap()
    }

    fn change(stores: &[(&str, f64, f64)]) -> WeightsChanged {
        let one = |(store, before, after): &(&str, f64, f64)| StoreWeight {
            store: (*store).to_owned(),
            before: *before,
            after: *after,
            wanted: *after,
        };
        let stores = stores.iter().map(one).collect();
        WeightsChanged { stores, reason: "why".into(), ..WeightsChanged::default() }
    }

    fn in_force(learnt: &LearntWeights, config: &Config) -> Vec<f64> {
        config.stores.iter().map(|store| learnt.of(store)).collect()
    }

    const APPLY: &str = "weights = \"apply\"";

    #[test]
    fn learnt_weights_hold_until_the_operator_says_otherwise() {
        let before = config(&[("a", 1.0), ("b", 1.0), ("c", 0.0)], APPLY);
        let told = change(&[("a", 1.0, 0.8), ("b", 1.0, 1.2), ("c", 0.0, 0.0)]);
        let learnt = LearntWeights::default().changed(&before, &told, 7);
        assert_eq!(in_force(&learnt, &before), [0.8, 1.2, 0.0]);
        let json = serde_json::to_vec(&learnt).unwrap();
        let kept = || serde_json::from_slice::<LearntWeights>(&json).unwrap();
        assert_eq!(kept(), learnt);
        let restarted = |config: &Config| {
            let (learnt, told) = kept().for_config(config);
            assert_eq!(learnt.changed_unix_ms(), Some(7), "a day has still to go");
            (in_force(&learnt, config), told.is_some())
        };
        assert_eq!(restarted(&before), (vec![0.8, 1.2, 0.0], false));
        // A store that comes has its own weight, one that goes takes its own with it.
        assert_eq!(restarted(&config(&[("a", 1.0), ("d", 1.0)], APPLY)), (vec![0.8, 1.0], false));
        // Another weight for one of them is another beginning for all.
        assert_eq!(restarted(&config(&[("a", 1.0), ("b", 2.0)], APPLY)), (vec![1.0, 2.0], true));
        for control in ["weights = \"advise\"", "weights = \"off\"", ""] {
            assert_eq!(restarted(&config(&[("a", 1.0), ("b", 1.0)], control)), (vec![1.0, 1.0], true));
        }
        // Mode aside: what was learnt stays when control pauses.
        let paused = config(&[("a", 1.0), ("b", 1.0)], "mode = \"off\"\nweights = \"apply\"");
        assert_eq!(restarted(&paused).0, [0.8, 1.2]);
    }

    #[test]
    fn kept_weights_that_are_no_weights_are_left_out() {
        let config = config(&[("a", 1.0), ("b", 1.0)], APPLY);
        for wrong in [-1.0, 0.0, 1e300] {
            let told = change(&[("a", 1.0, wrong), ("b", 1.0, 1.2)]);
            let learnt = LearntWeights::default().changed(&config, &told, 7).for_config(&config).0;
            assert_eq!(in_force(&learnt, &config), [1.0, 1.2], "{wrong}");
        }
    }
}
