//! The clock of the plex: closes a period, names its files, keeps it.

use super::state::State;
use crate::heat::{Names, PeriodRecord, PeriodSpan, ShardPeriod, merge};
use crate::history::{Appended, History};
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
    /// Held while a period is closed: there is one at a time.
    closing: tokio::sync::Mutex<()>,
    kept: Mutex<Kept>,
    /// Closed periods, for whoever works with them.
    closed: tokio::sync::broadcast::Sender<Arc<PeriodRecord>>,
}

/// How the keeping of periods goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    /// Old periods that went because of the history's limits.
    pub(crate) dropped: u64,
    /// Periods that could not be kept.
    pub(crate) failed: u64,
    /// What went wrong with the last period, if anything did.
    pub(crate) last_error: Option<String>,
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
            closing: tokio::sync::Mutex::new(()),
            kept: Mutex::new(Kept::default()),
            closed: tokio::sync::broadcast::Sender::new(RECENT_MAX),
        }
    }

    pub(crate) fn history(&self) -> Option<&Arc<History>> {
        self.history.as_ref()
    }

    /// How the keeping of periods goes.
    pub(crate) fn kept(&self) -> Kept {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Names known, and names that went because there were too many.
    pub(crate) fn names(&self) -> (usize, u64) {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        (names.len(), names.evicted())
    }

    /// The last periods, oldest first; from the history where it has more than memory.
    pub(crate) async fn last(&self, count: usize) -> Result<Vec<Arc<PeriodRecord>>, String> {
        let recent = self.recent(count);
        let Some(history) = self.history.clone().filter(|_| recent.len() < count) else { return Ok(recent) };
        let read = move || history.periods(..).rev().take(count).collect::<Result<Vec<_>, _>>();
        let kept = tokio::task::spawn_blocking(read).await.map_err(|error| error.to_string())?;
        let kept = kept.map_err(|error| error.to_string())?;
        // Those that could not be kept are in memory only.
        if kept.len() < recent.len() {
            return Ok(recent);
        }
        Ok(kept.into_iter().rev().map(Arc::new).collect())
    }

    /// The last periods in memory, oldest first.
    pub(crate) fn recent(&self, count: usize) -> Vec<Arc<PeriodRecord>> {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.iter().skip(recent.len().saturating_sub(count)).cloned().collect()
    }

    /// Path of a handle, where it has been learnt.
    pub(crate) fn path(&self, handle: &[u8]) -> Option<String> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).path(handle)
    }

    /// Takes note of a name that the router has looked up itself.
    pub(crate) fn learn(&self, directory: &[u8], name: &[u8], handle: &[u8]) {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).learn(directory, name, handle);
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

    /// Periods that close from now on. Who lags behind by more than 48 misses the oldest.
    pub(crate) fn subscribe(&self) -> tokio::sync::broadcast::Receiver<Arc<PeriodRecord>> {
        self.closed.subscribe()
    }

    /// When the running period began, milliseconds since 1970.
    pub(crate) fn began_unix_ms(&self) -> u64 {
        unix_ms(*self.began.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What the shards have counted in the running period.
    pub(crate) async fn running(&self, state: &State) -> Vec<ShardPeriod> {
        let mut shards = Vec::new();
        for shard in state.shards.get().into_iter().flatten() {
            shards.extend(shard.running_period().await);
        }
        shards
    }

    /// Closes the period on all shards and keeps it.
    pub(crate) async fn close(&self, state: &State) -> Arc<PeriodRecord> {
        let _one_at_a_time = self.closing.lock().await;
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
            self.note(
                kept.map_err(|error| error.to_string()).and_then(|kept| kept.map_err(|e| e.to_string())),
            );
        }
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.push_back(Arc::clone(&record));
        if recent.len() > RECENT_MAX {
            recent.pop_front();
        }
        drop(recent);
        // Nobody may be listening.
        let _ = self.closed.send(Arc::clone(&record));
        record
    }

    fn note(&self, outcome: Result<Appended, String>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        match outcome {
            Ok(appended) => {
                kept.dropped += appended.periods_dropped as u64;
                kept.last_error = None;
            }
            Err(error) => {
                tracing::error!(error, "a period could not be kept in the history");
                kept.failed += 1;
                kept.last_error = Some(error);
            }
        }
    }

    /// Waits until no period is being closed, and lets none begin.
    pub(crate) async fn quiet(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.closing.lock().await
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
