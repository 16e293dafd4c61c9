//! When replicated files were last written: until they have been left alone for a while, they are read at their home.
//!
//! The stores are coherent (they are surveyed before they are let in), yet a client that has just written a file is the
//! one that must not see it as it was. Only calls on replicated files come here; nothing is locked.

use crate::time::Time;
use arc_swap::ArcSwap;
use clockwork_placement::{HandleHash, PrehashedMap, Table};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// For so long after the last WRITE, SETATTR or COMMIT of a replicated file, and from the moment it is replicated, its reads
/// go to its home: longer than clients and stores trust attributes of a file that has just changed (3 s on Linux).
pub const READ_AT_HOME: Duration = Duration::from_secs(5);

/// Not looked at yet.
const UNSEEN: u64 = 0;

/// The replicated files, as many as the exception set holds, and when each was last written.
#[derive(Debug, Default)]
pub(crate) struct Written(ArcSwap<PrehashedMap<HandleHash, Arc<AtomicU64>>>);

impl Written {
    /// Takes up the replicated files of a table that is about to be put in force. Files that are new among them count as
    /// written when they are first looked at: nobody has watched them before.
    pub(crate) fn follow(&self, table: &Table) {
        let known = self.0.load();
        let of = |hash: HandleHash| (hash, known.get(&hash).cloned().unwrap_or_default());
        let files: PrehashedMap<HandleHash, Arc<AtomicU64>> = table.replicated().map(of).collect();
        if !files.is_empty() || !known.is_empty() {
            self.0.store(Arc::new(files));
        }
    }

    /// A file is written, if it is one of them.
    pub(crate) fn mark(&self, now: Time, hash: HandleHash) {
        let files = self.0.load();
        if !files.is_empty()
            && let Some(written) = files.get(&hash)
        {
            written.fetch_max(now.0.max(UNSEEN + 1), Ordering::Relaxed);
        }
    }

    /// Whether a file has been left alone for [`READ_AT_HOME`].
    pub(crate) fn is_quiet(&self, now: Time, hash: HandleHash) -> bool {
        let files = self.0.load();
        let Some(written) = files.get(&hash) else { return false };
        match written.load(Ordering::Relaxed) {
            UNSEEN => {
                written.fetch_max(now.0.max(UNSEEN + 1), Ordering::Relaxed);
                false
            }
            at => now.since(Time(at)) >= READ_AT_HOME,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clockwork_placement::{Assignment, Replica, StoreEntry, StoreId};

    #[test]
    fn files_are_watched_while_they_are_replicated_and_rest_from_then_on() {
        let plain = Table::new(1, vec![StoreEntry::up("a", 1.0), StoreEntry::up("b", 1.0)]).unwrap();
        let replicas = [0, 1].map(|store| Replica { store: StoreId(store), share: 1.0 }).to_vec();
        let file = Assignment { handle: Box::from(b"x".as_slice()), replicas };
        let table = plain.with_assignments([file]).unwrap();
        let (hash, written) = (table.hash(b"x"), Written::default());
        let at = |seconds: u64| Time(seconds * 1_000_000);
        assert!(!written.is_quiet(at(100), hash), "not replicated");
        written.follow(&table);
        assert!(!written.is_quiet(at(100), hash) && !written.is_quiet(at(104), hash));
        assert!(written.is_quiet(at(105), hash));
        written.mark(at(200), hash);
        // Another change of the table forgets nothing.
        written.follow(&table.with_exception(b"y", StoreId(0)).unwrap());
        assert!(!written.is_quiet(at(204), hash) && written.is_quiet(at(205), hash));
        // What happens while it is not replicated is not known.
        written.follow(&plain);
        written.mark(at(300), hash);
        written.follow(&table);
        assert!(!written.is_quiet(at(301), hash) && written.is_quiet(at(306), hash));
        // A clock that stands at its origin is a time like others.
        let fresh = Written::default();
        fresh.follow(&table);
        assert!(!fresh.is_quiet(Time::ZERO, hash) && fresh.is_quiet(at(6), hash));
    }
}
