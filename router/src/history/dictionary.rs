//! The dictionary of handles: each file that any kept period names has a number, and its last known path.

use std::collections::HashMap;
use std::sync::Arc;

use super::codec::{Damage, Reader, put_bytes, seal, unseal};
use crate::heat::Handle;

/// A file of the dictionary.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) handle: Handle,
    pub(super) path: Option<Arc<str>>,
    /// How many kept periods name the file.
    periods: u64,
}

impl Known {
    /// Bytes of the entry on disk, its key included.
    pub(super) fn bytes(&self) -> u64 {
        let part = |len: usize| len + 1 + usize::try_from(len.max(1).ilog2() / 7).unwrap_or(0);
        let path = self.path.as_ref().map_or(0, |path| part(path.len()));
        (NUMBER_BYTES + part(self.handle.as_bytes().len()) + path + CHECKSUM_BYTES) as u64
    }
}

const NUMBER_BYTES: usize = 8;
const CHECKSUM_BYTES: usize = 4;

/// What has to be written of a file when a period that names it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Write {
    Nothing,
    New,
    /// In place of an entry of so many bytes.
    Instead {
        old_bytes: u64,
    },
}

/// Handles by number and numbers by handle, as the tree on disk has them.
#[derive(Debug, Default)]
pub(super) struct Dictionary {
    numbers: HashMap<Handle, u64>,
    files: HashMap<u64, Known>,
    next: u64,
}

impl Dictionary {
    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    pub(super) fn get(&self, number: u64) -> Option<&Known> {
        self.files.get(&number)
    }

    /// The number of a handle, and whether its entry on disk has to be written: it is new, or its path changed.
    /// A path that is not known any more does not take away the one known before.
    pub(super) fn number(&mut self, handle: &Handle, path: Option<&Arc<str>>) -> (u64, Write) {
        if let Some(&number) = self.numbers.get(handle)
            && let Some(known) = self.files.get_mut(&number)
        {
            if path.is_none() || known.path.as_ref() == path {
                return (number, Write::Nothing);
            }
            let old_bytes = known.bytes();
            known.path = path.cloned();
            return (number, Write::Instead { old_bytes });
        }
        let number = self.next;
        self.insert(number, *handle, path.cloned());
        (number, Write::New)
    }

    /// Takes an entry read from disk. A handle or a number that comes twice is damage.
    pub(super) fn load(&mut self, number: u64, entry: &[u8]) -> Result<(), Damage> {
        let (handle, path) = decode(entry)?;
        if self.numbers.contains_key(&handle) || self.files.contains_key(&number) {
            return Err(Damage::Range("a handle's number"));
        }
        self.insert(number, handle, path);
        Ok(())
    }

    fn insert(&mut self, number: u64, handle: Handle, path: Option<Arc<str>>) {
        self.numbers.insert(handle, number);
        self.files.insert(number, Known { handle, path, periods: 0 });
        self.next = self.next.max(number.saturating_add(1));
    }

    /// Notes that one more kept period names the file; `false` if there is no such number.
    pub(super) fn keep(&mut self, number: u64) -> bool {
        self.files.get_mut(&number).map(|known| known.periods += 1).is_some()
    }

    /// Notes that a period that names the file is gone; says whether it was the last one, and then forgets it.
    pub(super) fn release(&mut self, number: u64) -> bool {
        let Some(known) = self.files.get_mut(&number) else { return false };
        known.periods = known.periods.saturating_sub(1);
        let gone = known.periods == 0;
        if gone {
            self.numbers.remove(&known.handle);
            self.files.remove(&number);
        }
        gone
    }

    /// Forgets files that no period names, and says which they were.
    pub(super) fn forget_unused(&mut self) -> Vec<u64> {
        let unused: Vec<u64> =
            self.files.iter().filter(|(_, known)| known.periods == 0).map(|(number, _)| *number).collect();
        for number in &unused {
            if let Some(known) = self.files.remove(number) {
                self.numbers.remove(&known.handle);
            }
        }
        unused
    }

    /// The entry of a number as it is stored.
    pub(super) fn encode(&self, number: u64) -> Option<Vec<u8>> {
        let known = self.files.get(&number)?;
        let mut bytes = Vec::new();
        put_bytes(&mut bytes, known.handle.as_bytes());
        if let Some(path) = &known.path {
            put_bytes(&mut bytes, path.as_bytes());
        }
        Some(seal(bytes))
    }
}

fn decode(sealed: &[u8]) -> Result<(Handle, Option<Arc<str>>), Damage> {
    let mut reader = Reader::new(unseal(sealed)?);
    let handle = Handle::new(reader.bytes()?).ok_or(Damage::Range("a handle"))?;
    let path = if reader.is_empty() { None } else { Some(Arc::from(reader.text()?)) };
    reader.end()?;
    Ok((handle, path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn entries_come_back_and_their_length_is_known(
            handle in prop::collection::vec(any::<u8>(), 1..=64),
            path in prop::option::of(prop_oneof![".{0,9}", "a{120,140}", "b{16380,16390}"]),
        ) {
            let handle = Handle::new(&handle).unwrap();
            let path: Option<Arc<str>> = path.map(Arc::from);
            let mut dictionary = Dictionary::default();
            let (number, _) = dictionary.number(&handle, path.as_ref());
            let entry = dictionary.encode(number).unwrap();
            prop_assert_eq!(dictionary.get(number).unwrap().bytes(), entry.len() as u64 + 8);
            let mut other = Dictionary::default();
            other.load(number, &entry).unwrap();
            prop_assert_eq!(other.number(&handle, path.as_ref()), (number, Write::Nothing));
            prop_assert_eq!(&other.get(number).unwrap().path, &path);
        }
    }

    #[test]
    fn a_changed_path_is_written_and_a_lost_one_is_kept() {
        let mut dictionary = Dictionary::default();
        let handle = Handle::new(b"h").unwrap();
        let (old, new) = (Arc::from("/a"), Arc::from("/b/c"));
        assert_eq!(dictionary.number(&handle, Some(&old)), (0, Write::New));
        assert_eq!(dictionary.number(&handle, Some(&new)), (0, Write::Instead { old_bytes: 17 }));
        assert_eq!(dictionary.number(&handle, None), (0, Write::Nothing));
        assert_eq!(dictionary.get(0).unwrap().path.as_deref(), Some("/b/c"));
    }
}
