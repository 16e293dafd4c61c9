//! A file handle as a value: opaque bytes of a stated length, kept in place.

use std::fmt;
use std::hash::{Hash, Hasher};

/// Longest NFSv3 file handle, bytes (`NFS3_FHSIZE`, RFC 1813 section 2.4).
pub const HANDLE_BYTES_MAX: usize = 64;

/// The exact bytes of a file handle. Handles of different lengths are different files, whatever their bytes.
#[derive(Clone, Copy)]
pub struct Handle {
    len: u8,
    bytes: [u8; HANDLE_BYTES_MAX],
}

impl Handle {
    /// The handle with these bytes; `None` if there are none or more than [`HANDLE_BYTES_MAX`].
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let len = u8::try_from(bytes.len()).ok().filter(|&len| len > 0)?;
        let mut kept = [0; HANDLE_BYTES_MAX];
        kept.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Self { len, bytes: kept })
    }

    /// The first bytes of an array; `len` is 1 to [`HANDLE_BYTES_MAX`], and what is behind it is zero.
    pub(super) const fn of_array(bytes: [u8; HANDLE_BYTES_MAX], len: usize) -> Self {
        Self { len: len as u8, bytes }
    }

    /// The bytes of the handle, 1 to [`HANDLE_BYTES_MAX`] of them.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or(&self.bytes)
    }

    /// The bytes in hexadecimal, for people and for JSON.
    pub fn to_hex(&self) -> String {
        self.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl PartialEq for Handle {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Handle {}

impl PartialOrd for Handle {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Handle {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl Hash for Handle {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({})", self.to_hex())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_have_1_to_64_bytes_and_compare_by_exact_bytes() {
        assert!(Handle::new(&[]).is_none());
        assert!(Handle::new(&[1; 65]).is_none());
        let full = Handle::new(&[7; 64]).unwrap();
        assert_eq!(full.as_bytes(), &[7; 64]);
        assert_ne!(Handle::new(&[1, 0]), Handle::new(&[1]));
        assert_eq!(Handle::new(&[0xab, 0x01]).unwrap().to_hex(), "ab01");
    }
}
