//! MNT calls that wait: for a store to be in use, or for a store's answers about a path below an export.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// MNT calls that may wait at once; further ones are answered MNT3ERR_SERVERFAULT at once.
pub(crate) const MOUNTS_WAITING_MAX: usize = 1_024;

/// How many wait.
#[derive(Debug, Default)]
pub(crate) struct Mounting {
    waiting: AtomicUsize,
    refused: AtomicU64,
}

/// One that waits, until this is dropped.
#[derive(Debug)]
pub(crate) struct MountWaits(Arc<Mounting>);

impl Mounting {
    /// `None` when too many wait already.
    pub(crate) fn begin(self: &Arc<Self>) -> Option<MountWaits> {
        if self.waiting.fetch_add(1, Ordering::Relaxed) < MOUNTS_WAITING_MAX {
            return Some(MountWaits(Arc::clone(self)));
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.refused.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// How many wait now, and how many were refused.
    pub(crate) fn counts(&self) -> (usize, u64) {
        (self.waiting.load(Ordering::Relaxed).min(MOUNTS_WAITING_MAX), self.refused.load(Ordering::Relaxed))
    }
}

impl Drop for MountWaits {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_wait_and_further_ones_are_refused_until_one_has_its_answer() {
        let mounting = Arc::new(Mounting::default());
        let mut waits: Vec<MountWaits> = (0..MOUNTS_WAITING_MAX).map(|_| mounting.begin().unwrap()).collect();
        assert!(mounting.begin().is_none());
        assert_eq!(mounting.counts(), (MOUNTS_WAITING_MAX, 1));
        waits.pop();
        assert!(mounting.begin().is_some());
        drop(waits);
        assert_eq!(mounting.counts(), (0, 1));
    }
}
