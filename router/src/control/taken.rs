//! Which handles took which imported pasts, kept in the history, so that a restart after a rename knows it too.

use crate::heat::{HANDLE_BYTES_MAX, Handle};
use crate::history::{History, HistoryError};
use std::collections::BTreeMap;

/// Name of the list in the history.
const NAME: &str = "imported.taken";
/// Bytes of a hash in the list.
const HASH_BYTES: usize = 16;
/// Most handles kept in the list, of at most 81 bytes each, in a value of at most 32 MiB. Further ones are found again by
/// their paths after a restart.
pub(super) const TAKEN_KEPT_MAX: usize = 400_000;

/// Keeps the list: hash of a stand-in, length of the handle, handle.
pub(super) fn keep(history: &History, taken: &BTreeMap<u128, Handle>) -> Result<(), HistoryError> {
    let mut bytes =
        Vec::with_capacity(taken.len().min(TAKEN_KEPT_MAX) * (HASH_BYTES + 1 + HANDLE_BYTES_MAX / 2));
    for (hash, handle) in taken.iter().take(TAKEN_KEPT_MAX) {
        bytes.extend(hash.to_be_bytes());
        bytes.extend(u8::try_from(handle.as_bytes().len()));
        bytes.extend(handle.as_bytes());
    }
    history.put(NAME, &bytes)
}

/// The list; what cannot be understood of it is left out.
pub(super) fn kept(history: &History) -> Result<Vec<(u128, Handle)>, HistoryError> {
    let bytes = history.get(NAME)?.unwrap_or_default();
    let mut rest = bytes.as_slice();
    let one = || {
        let (hash, tail) = rest.split_first_chunk::<HASH_BYTES>()?;
        let (length, tail) = tail.split_first()?;
        let (handle, tail) = tail.split_at_checked(usize::from(*length))?;
        rest = tail;
        Some((u128::from_be_bytes(*hash), Handle::new(handle)?))
    };
    Ok(std::iter::from_fn(one).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::HistoryLimits;

    #[test]
    fn the_list_comes_back_and_a_damaged_one_as_far_as_it_goes() {
        let folder = tempfile::tempdir().unwrap();
        let history = History::open(folder.path().join("h"), HistoryLimits::default()).unwrap().history;
        assert_eq!(kept(&history).unwrap(), []);
        let handle = |byte: u8, length: usize| Handle::new(&vec![byte; length]).unwrap();
        let taken = BTreeMap::from([(3, handle(1, 64)), (u128::MAX, handle(2, 1))]);
        keep(&history, &taken).unwrap();
        assert_eq!(kept(&history).unwrap(), taken.into_iter().collect::<Vec<_>>());
        let bytes = history.get(NAME).unwrap().unwrap();
        history.put(NAME, &bytes[..bytes.len() - 1]).unwrap();
        assert_eq!(kept(&history).unwrap(), [(3, handle(1, 64))]);
    }
}
