//! The clock of the plex: closes a period, names its files, keeps it.

use super::state::State;
use crate::heat::{Names, PeriodRecord, PeriodSpan, merge};
use crate::history::History;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Periods kept in memory, for whoever looks at the last few.
const RECENT_MAX: usize = 48;

/// What the plex has measured.
pub(crate) struct Measured {
    names: Mutex<Names>,
    recent: Mutex<VecDeque<Arc<PeriodRecord>>>,
    history: Option<Arc<History>>,
    began: Mutex<SystemTime>,
}

pub(crate) fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Measured {
    pub(crate) fn new(names_max: usize, history: Option<Arc<History>>) -> Self {
        Self {
            names: Mutex::new(Names::new(names_max)),
            recent: Mutex::new(VecDeque::new()),
            history,
            began: Mutex::new(SystemTime::now()),
        }
    }

    pub(crate) fn history(&self) -> Option<&Arc<History>> {
        self.history.as_ref()
    }

    /// The last periods, oldest first.
    pub(crate) fn recent(&self, count: usize) -> Vec<Arc<PeriodRecord>> {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.iter().skip(recent.len().saturating_sub(count)).cloned().collect()
    }

    /// Path of a handle, where it has been learnt.
    pub(crate) fn path(&self, handle: &[u8]) -> Option<String> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).path(handle)
    }

    /// Names the roots, from which paths are counted.
    pub(crate) fn name_roots(&self, state: &State) {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let mounts = state.mounts.load();
        for (export, config) in state.config.exports.iter().enumerate() {
            if let Some(root) = mounts.root(export) {
                names.root(&root.handle, config.path.as_str());
            }
        }
    }

    /// Closes the period on all shards and keeps it.
    pub(crate) async fn close(&self, state: &State) -> Arc<PeriodRecord> {
        self.name_roots(state);
        let mut shards = Vec::new();
        for shard in state.shards.get().into_iter().flatten() {
            shards.extend(shard.close_period().await);
        }
        let now = SystemTime::now();
        let began = std::mem::replace(&mut *self.began.lock().unwrap_or_else(PoisonError::into_inner), now);
        let start_unix_ms = unix_ms(began);
        let span = PeriodSpan { start_unix_ms, length_ms: unix_ms(now).saturating_sub(start_unix_ms) };
        let store_names: Vec<String> = state.config.stores.iter().map(|store| store.name.clone()).collect();
        let record = {
            let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::new(merge(shards, span, &store_names, &mut names))
        };
        if let Some(history) = self.history.clone() {
            let record = Arc::clone(&record);
            // The disk may be slow; the shards do not wait for it, and neither does the clock.
            let kept = tokio::task::spawn_blocking(move || history.append(&record)).await;
            match kept {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => tracing::error!(%error, "a period could not be kept in the history"),
                Err(error) => tracing::error!(%error, "a period could not be kept in the history"),
            }
        }
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.push_back(Arc::clone(&record));
        if recent.len() > RECENT_MAX {
            recent.pop_front();
        }
        record
    }

    /// Closes periods on the clock for ever. They end at whole multiples of their length since 1970, so that hours are
    /// hours.
    pub(crate) async fn run(self: Arc<Self>, state: Arc<State>) {
        let period_ms = u64::try_from(state.config.heat.period.as_millis()).unwrap_or(u64::MAX).max(1);
        loop {
            let now = unix_ms(SystemTime::now());
            tokio::time::sleep(Duration::from_millis(period_ms - now % period_ms)).await;
            let record = self.close(&state).await;
            tracing::debug!(requests = record.requests(), files = record.files.len(), "closed a period");
        }
    }
}
