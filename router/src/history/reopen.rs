//! After a write that failed: sled keeps its first error for good, so the database is closed and opened again before the
//! next write. When there is room again, the history heals by that.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::compact::recover;
use super::database::{History, State};
use super::error::HistoryError;
use super::open::load;

/// Least time from a failure to the next attempt.
pub(super) const AGAIN: Duration = Duration::from_secs(5);
/// An attempt that took long, since opening reads everything once, is followed by a pause so many times as long.
const PAUSE_PARTS: u32 = 10;

/// The open database, and what has befallen it.
pub(super) struct Slot {
    /// None where it could not be opened again.
    state: Option<State>,
    failed: Option<Failed>,
    /// How long the last opening after a failure took.
    took: Duration,
}

struct Failed {
    why: String,
    at: Instant,
}

impl Failed {
    fn of(error: &HistoryError) -> Self {
        Self { why: error.to_string(), at: Instant::now() }
    }
}

impl Slot {
    pub(super) fn new(state: State) -> Self {
        Self { state: Some(state), failed: None, took: Duration::ZERO }
    }
}

impl History {
    /// Reads. What a write that failed has left in memory is seen as well: whoever has to know what is on disk writes.
    pub(super) fn reading<T>(
        &self,
        work: impl FnOnce(&State) -> Result<T, HistoryError>,
    ) -> Result<T, HistoryError> {
        let slot = self.slot();
        match &slot.state {
            Some(state) => work(state),
            None => Err(closed(&slot)),
        }
    }

    /// A figure of the database; 0 while it is closed.
    pub(super) fn figure<N: Default>(&self, of: impl FnOnce(&State) -> N) -> N {
        self.slot().state.as_ref().map_or_else(N::default, of)
    }

    /// Writes; after a failure on a database that was opened again.
    pub(super) fn writing<T>(
        &self,
        work: impl FnOnce(&mut State) -> Result<T, HistoryError>,
    ) -> Result<T, HistoryError> {
        let mut slot = self.slot();
        if let Some(failed) = &slot.failed {
            if failed.at.elapsed() < self.again.max(slot.took * PAUSE_PARTS) {
                return Err(closed(&slot));
            }
            let began = Instant::now();
            let opened = self.open_again(&mut slot);
            slot.took = began.elapsed();
            if let Err(error) = opened {
                slot.failed = Some(Failed::of(&error));
                return Err(error);
            }
        }
        let Some(state) = &mut slot.state else { return Err(closed(&slot)) };
        let done = work(state);
        slot.failed = done.as_ref().err().map(Failed::of);
        done
    }

    fn open_again(&self, slot: &mut Slot) -> Result<(), HistoryError> {
        // sled's lock goes with the old handles. It writes once more then, and may give up as in `guarded`.
        let old = slot.state.take();
        let _ = catch_unwind(AssertUnwindSafe(|| drop(old)));
        recover(&self.path)?;
        slot.state = Some(load(&self.path)?);
        tracing::info!(path = %self.path.display(), "the history was opened again after a write that failed");
        Ok(())
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn closed(slot: &Slot) -> HistoryError {
    let why = slot.failed.as_ref().map_or("the history is closed", |failed| &failed.why);
    HistoryError::Failed { why: why.to_owned() }
}
