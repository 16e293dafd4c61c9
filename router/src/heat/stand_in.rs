//! Stand-ins: what files go by that are known by their path only, as those of an imported past.

use super::handle::Handle;
use xxhash_rust::xxh3::xxh3_128;

/// What a stand-in begins with; a hash of the path follows.
const MARK: [u8; 9] = *b"imported:";
/// Length of a stand-in, bytes.
const BYTES: usize = MARK.len() + 16;

impl Handle {
    /// The stand-in of a file that is known by its path only: a mark, and the XXH3 (128 bits) of the path as
    /// [`Names::path`](super::Names::path) shows it.
    #[must_use]
    pub fn stand_in(path: &str) -> Self {
        Self::stand_in_of(xxh3_128(path.as_bytes()))
    }

    /// The stand-in with this hash.
    pub(crate) fn stand_in_of(hash: u128) -> Self {
        let mut bytes = [0; super::HANDLE_BYTES_MAX];
        let (mark, rest) = bytes.split_at_mut(MARK.len());
        mark.copy_from_slice(&MARK);
        rest.iter_mut().zip(hash.to_be_bytes()).for_each(|(to, from)| *to = from);
        Self::of_array(bytes, BYTES)
    }

    /// The hash of a stand-in; `None` if this is the handle of a store.
    pub(crate) fn stand_in_hash(&self) -> Option<u128> {
        let hash = self.as_bytes().strip_prefix(&MARK)?;
        Some(u128::from_be_bytes(hash.try_into().ok()?))
    }

    /// Whether this stands in for a handle that is not known. No store of the field gives out such handles.
    #[must_use]
    pub fn is_stand_in(&self) -> bool {
        self.stand_in_hash().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stand_ins_are_told_from_handles_and_differ_by_path() {
        let (a, b) = (Handle::stand_in("/e/a"), Handle::stand_in("/e/b"));
        assert!(a.is_stand_in() && a != b && a == Handle::stand_in("/e/a"));
        assert_eq!(Handle::stand_in_of(a.stand_in_hash().unwrap()), a);
        for other in [&b"imported:"[..], b"imported:0123456789abcde", b"imported:0123456789abcdefg", b"x"] {
            assert!(!Handle::new(other).unwrap().is_stand_in());
        }
    }
}
