//! The exception set: files that a decision has placed elsewhere than the default rule would.

use crate::replicas::Replicas;
use crate::{HandleHash, StoreId};
use std::sync::Arc;

/// One file and its store, as it is put into a set.
#[derive(Clone, Debug)]
pub(crate) struct Exception {
    pub(crate) hash: HandleHash,
    /// Shared between a table and its successors, so that a change copies pointers, not handles.
    pub(crate) handle: Arc<[u8]>,
    pub(crate) store: StoreId,
    /// Where several stores serve its reads; `store` is the first of them.
    pub(crate) replicas: Option<Arc<Replicas>>,
}

/// One file in a set. Replicas are rare: a file without costs nothing for them (the number fits beside the store's).
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    hash: HandleHash,
    pub(crate) handle: Arc<[u8]>,
    pub(crate) store: StoreId,
    /// Place of its replicas in the set's list, plus 1; 0 where it has none.
    replicas: u32,
}

/// An immutable open-addressed table over the handles' hashes, which are computed once a call and never again here.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exceptions {
    entries: Vec<Entry>,
    replicas: Vec<Arc<Replicas>>,
    /// Entry number plus 1, 0 where empty; a power of two, at most half full; empty when there is no entry.
    slots: Vec<u32>,
}

impl Exceptions {
    /// The set of these files; where a handle occurs twice, the last one counts.
    pub(crate) fn new(files: impl IntoIterator<Item = Exception>) -> Self {
        let files: Vec<Exception> = files.into_iter().collect();
        if files.is_empty() {
            return Self::default();
        }
        let mut set = Self {
            entries: Vec::with_capacity(files.len()),
            replicas: Vec::new(),
            slots: vec![0; (files.len() * 2).next_power_of_two()],
        };
        for file in files {
            set.insert(file);
        }
        set
    }

    fn insert(&mut self, file: Exception) {
        let Exception { hash, handle, store, replicas } = file;
        let mut file = Entry { hash, handle, store, replicas: 0 };
        if let Some(replicas) = replicas {
            self.replicas.push(replicas);
            file.replicas = u32::try_from(self.replicas.len()).unwrap_or(0);
        }
        let slot = self.slot(&file.handle, file.hash);
        let number = usize::try_from(self.slots.get(slot).copied().unwrap_or(0)).unwrap_or(0);
        if let Some(known) = number.checked_sub(1).and_then(|index| self.entries.get_mut(index)) {
            *known = file;
        } else if let (Some(place), Ok(number)) =
            (self.slots.get_mut(slot), u32::try_from(self.entries.len() + 1))
        {
            *place = number;
            self.entries.push(file);
        }
    }

    /// The slot that holds this handle, or the empty one where it would go.
    fn slot(&self, handle: &[u8], hash: HandleHash) -> usize {
        // The slots are a power of two and half empty: the mask is right and the search ends.
        let mask = self.slots.len() - 1;
        let mut slot = low_bits(hash) & mask;
        while let Some(entry) = self.entry_at(slot) {
            if entry.hash == hash && *entry.handle == *handle {
                break;
            }
            slot = (slot + 1) & mask;
        }
        slot
    }

    fn entry_at(&self, slot: usize) -> Option<&Entry> {
        let number = usize::try_from(*self.slots.get(slot)?).ok()?;
        self.entries.get(number.checked_sub(1)?)
    }

    /// This file, if it is in the set.
    #[inline]
    pub(crate) fn get(&self, handle: &[u8], hash: HandleHash) -> Option<&Entry> {
        if self.slots.is_empty() {
            return None;
        }
        self.entry_at(self.slot(handle, hash))
    }

    /// The replicas of a file of the set, if it has any.
    #[inline]
    pub(crate) fn replicas_of(&self, file: &Entry) -> Option<&Arc<Replicas>> {
        self.replicas.get(usize::try_from(file.replicas).ok()?.checked_sub(1)?)
    }

    pub(crate) fn entries(&self) -> std::slice::Iter<'_, Entry> {
        self.entries.iter()
    }

    /// Whether no file has replicas.
    pub(crate) fn is_plain(&self) -> bool {
        self.replicas.is_empty()
    }

    /// The files as they were put in.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Exception> {
        self.entries.iter().map(|entry| Exception {
            hash: entry.hash,
            handle: Arc::clone(&entry.handle),
            store: entry.store,
            replicas: self.replicas_of(entry).cloned(),
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}

/// The low 32 bits of the hash: the top ones choose the bucket of the default rule.
fn low_bits(hash: HandleHash) -> usize {
    usize::try_from(hash.0 & 0xffff_ffff).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    #[test]
    fn a_plain_file_takes_no_more_room_for_there_being_replicas() {
        assert_eq!(size_of::<Entry>(), 32);
    }

    proptest! {
        /// Few handles and few hashes, so that equal hashes of unlike handles and repeats are common.
        #[test]
        fn the_set_answers_as_a_map_of_exact_bytes_does(
            files in proptest::collection::vec((0u8..20, 0u16..9), 0..60),
        ) {
            let hash = |name: u8| HandleHash(u64::from(name % 3));
            let set = Exceptions::new(files.iter().map(|&(name, store)| Exception {
                hash: hash(name), handle: Arc::from([name]), store: StoreId(store), replicas: None,
            }));
            let model: HashMap<u8, u16> = files.iter().copied().collect();
            prop_assert_eq!(set.len(), model.len());
            prop_assert_eq!(set.iter().count(), model.len());
            for name in 0u8..25 {
                prop_assert_eq!(set.get(&[name], hash(name)).map(|file| file.store), model.get(&name).map(|&store| StoreId(store)));
            }
        }
    }
}
