//! Probes: each store is asked at intervals whether it is there; one that is new, or was away, is surveyed before it is
//! let in.

use super::coherence::{Coherence, try_coherence};
use super::state::{Health, State};
use super::survey::{Asker, Survey, SurveyError, compare, survey};
use clockwork_wire::nfs3::{self, Procedure};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How long a store that was refused is left alone.
const REFUSED_PAUSE: Duration = Duration::from_secs(30);

/// Watches one store for ever. `decided` counts the stores whose first probe has ended.
pub(crate) async fn watch_store(state: Arc<State>, store: usize, decided: watch::Sender<usize>) {
    let mut first = true;
    let mut successes = 0;
    loop {
        let health = state.wanted().stores[store].health.clone();
        let outcome = match health {
            Health::Up => probe(&state, store).await,
            Health::Unknown | Health::Refused { .. } => admit(&state, store).await,
            Health::Down { .. } => {
                // It has to show first that it stays.
                let probed = probe(&state, store).await;
                successes = if probed.is_ok() { successes + 1 } else { 0 };
                if successes >= state.config.health.successes { admit(&state, store).await } else { probed }
            }
        };
        if outcome.is_ok() && state.wanted().stores[store].health == Health::Up {
            successes = 0;
        }
        note(&state, store, outcome);
        if std::mem::take(&mut first) {
            decided.send_modify(|count| *count += 1);
        }
        let refused = matches!(state.wanted().stores[store].health, Health::Refused { .. });
        let pause = if refused { REFUSED_PAUSE } else { state.config.health.interval };
        tokio::time::sleep(pause).await;
    }
}

/// A full RPC NULL and a GETATTR of the root, over a connection of its own that is closed cleanly.
async fn probe(state: &State, store: usize) -> Result<(), SurveyError> {
    let config = &state.config.stores[store];
    let timeout = state.config.health.timeout;
    let asker = Asker::connect(config, state.addresses[store], timeout).await?;
    let call = asker.nfs().begin(nfs3::PROGRAM, nfs3::VERSION, Procedure::Null.number());
    let failed = |source| SurveyError::Call { what: "NULL".into(), source };
    asker.nfs().call(call).await.map_err(failed)?;
    let root = state.wanted().stores[store].survey.as_ref().map(|s| s.roots[0].clone());
    if let Some(root) = root {
        asker.ask(Procedure::Getattr, &root.path, &root.handle, |_| {}).await?;
    }
    Ok(())
}

/// Surveys a store, compares it with those in use, and lets it in.
async fn admit(state: &Arc<State>, store: usize) -> Result<(), SurveyError> {
    let config = &state.config.stores[store];
    let timeout = state.config.health.timeout;
    let asker = Asker::connect(config, state.addresses[store], timeout).await?;
    let found = survey(&state.config, config, &asker).await?;
    let _one_at_a_time = state.admission.lock().await;
    if let Some((other, reference)) = reference(state, store) {
        let name = state.config.stores[other].name.clone();
        compare(&name, &reference, &found)?;
        let there = Asker::connect(&state.config.stores[other], state.addresses[other], timeout).await?;
        for root in &found.roots {
            let file = format!(".clockwork-looks-{:08x}", rand::random::<u32>());
            let tried = try_coherence(&name, &there, &asker, &root.path, &root.handle, &file).await?;
            if tried == Coherence::NotTried {
                tracing::warn!(
                    store = config.name,
                    path = root.path,
                    "could not try whether the store shows changes made at {name} at once: the router may not write there"
                );
            }
        }
    }
    let mut wanted = state.wanted();
    let mark = &mut wanted.stores[store];
    mark.health = Health::Up;
    mark.failures = 0;
    mark.last_error = None;
    mark.survey = Some(found);
    tracing::info!(store = config.name, address = %state.addresses[store], "the store is in use");
    if let Err(error) = state.apply(&mut wanted) {
        tracing::error!(%error, store = config.name, "cannot route to the store");
    }
    state.use_surveys(&wanted);
    Ok(())
}

/// The store that others are compared with: the first one in use.
fn reference(state: &State, except: usize) -> Option<(usize, Survey)> {
    let wanted = state.wanted();
    wanted.stores.iter().enumerate().find_map(|(i, mark)| {
        (i != except && mark.health == Health::Up)
            .then(|| mark.survey.clone().map(|survey| (i, survey)))
            .flatten()
    })
}

/// Takes the outcome of a probe into account.
fn note(state: &State, store: usize, outcome: Result<(), SurveyError>) {
    let name = &state.config.stores[store].name;
    let mut wanted = state.wanted();
    let mark = &mut wanted.stores[store];
    let error = match outcome {
        Ok(()) => {
            mark.failures = 0;
            mark.last_error = None;
            return;
        }
        Err(error) => error,
    };
    mark.failures += 1;
    let reason = error.to_string();
    mark.last_error = Some(reason.clone());
    match (&mark.health, &error) {
        // One failure may be a busy moment, unless nobody listens there any more.
        (Health::Up, error) if mark.failures < state.config.health.failures && !error.is_refused() => return,
        (Health::Up, _) => {
            tracing::error!(store = name, %error, "the store does not answer; its files are served elsewhere");
            mark.health = Health::Down { reason };
        }
        (Health::Refused { reason: known }, _) if *known == reason => return,
        (_, SurveyError::Disagrees { .. } | SurveyError::Incoherent { .. }) => {
            tracing::error!(store = name, %error, "the store is refused");
            mark.health = Health::Refused { reason };
        }
        (Health::Unknown, _) => {
            if mark.failures == 1 {
                tracing::warn!(store = name, %error, "the store is not there yet");
            }
            return;
        }
        _ => return,
    }
    let nobody = !wanted.stores.iter().any(|mark| mark.health == Health::Up);
    if nobody {
        tracing::error!("no store answers: calls wait at the stores that served last");
    }
    if let Err(error) = state.apply(&mut wanted) {
        tracing::error!(%error, "cannot route around the store");
    }
    drop(wanted);
    state.tell_store_lost(store);
}
