//! Idempotent calls in progress, by client and client's XID: every call is looked up, entered and taken out again, so
//! this is a table of nothing but keys that are hashes already and XIDs, in which a call costs three probes.
//!
//! Open addressing with linear probing, at most half full; what is taken out leaves no mark behind. It grows with the
//! calls that wait, which are bounded.

const ENTRIES_MIN: usize = 64;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// Odd; 0 where there is none.
    key: u64,
    xid: u32,
}

/// XIDs towards the stores by keys.
#[derive(Debug)]
pub(crate) struct InProgress {
    /// As many as a power of two.
    entries: Vec<Entry>,
    len: usize,
}

impl Default for InProgress {
    fn default() -> Self {
        Self { entries: vec![Entry::default(); ENTRIES_MIN], len: 0 }
    }
}

impl InProgress {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn mask(&self) -> usize {
        self.entries.len() - 1
    }

    /// Where the search for a key begins. Its lowest bit says nothing.
    fn home(&self, key: u64) -> usize {
        (key >> 1) as usize & self.mask()
    }

    /// The place of a key, or the vacant one where it would go.
    #[inline]
    fn find(&self, key: u64) -> usize {
        let mut at = self.home(key);
        while self.entries[at].key != key && self.entries[at].key != 0 {
            at = (at + 1) & self.mask();
        }
        at
    }

    #[inline]
    pub(crate) fn get(&self, key: u64) -> Option<u32> {
        let entry = self.entries[self.find(key | 1)];
        (entry.key != 0).then_some(entry.xid)
    }

    /// Enters a call; of two with one key the later one counts.
    #[inline]
    pub(crate) fn insert(&mut self, key: u64, xid: u32) {
        if 2 * (self.len + 1) > self.entries.len() {
            self.grow();
        }
        let at = self.find(key | 1);
        self.len += usize::from(self.entries[at].key == 0);
        self.entries[at] = Entry { key: key | 1, xid };
    }

    /// Takes a call out, unless a later one has its key.
    #[inline]
    pub(crate) fn remove(&mut self, key: u64, xid: u32) {
        let mut vacant = self.find(key | 1);
        if self.entries[vacant].key == 0 || self.entries[vacant].xid != xid {
            return;
        }
        self.len -= 1;
        // Those behind it that were pushed away from where their search begins move up.
        let mut at = vacant;
        loop {
            at = (at + 1) & self.mask();
            let entry = self.entries[at];
            if entry.key == 0 {
                break;
            }
            let pushed = at.wrapping_sub(self.home(entry.key)) & self.mask();
            if pushed >= at.wrapping_sub(vacant) & self.mask() {
                self.entries[vacant] = entry;
                vacant = at;
            }
        }
        self.entries[vacant] = Entry::default();
    }

    #[cold]
    fn grow(&mut self) {
        let larger = vec![Entry::default(); self.entries.len() * 2];
        for entry in std::mem::replace(&mut self.entries, larger) {
            if entry.key != 0 {
                let at = self.find(entry.key);
                self.entries[at] = entry;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        /// Few keys, many of which begin their search in one place or at the end of the table.
        #[test]
        fn it_holds_what_a_map_holds(steps in prop::collection::vec((0u64..80, 0u32..3, any::<bool>()), 0..600)) {
            let (mut calls, mut map) = (InProgress::default(), HashMap::new());
            for (key, xid, enters) in steps {
                let key = if key % 3 == 0 { key << 40 | 0x7e } else { key << 1 };
                if enters {
                    calls.insert(key, xid);
                    map.insert(key, xid);
                } else {
                    calls.remove(key, xid);
                    if map.get(&key) == Some(&xid) {
                        map.remove(&key);
                    }
                }
                prop_assert_eq!(calls.len(), map.len());
                prop_assert!(2 * calls.len() <= calls.entries.len());
            }
            for key in (0..80u64).flat_map(|key| [key << 40 | 0x7e, key << 1]) {
                prop_assert_eq!(calls.get(key), map.get(&key).copied());
            }
        }
    }
}
