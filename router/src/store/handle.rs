//! What an embedded store's file handle is made of.
//!
//! On the wire a handle is 24 bytes: 8 of generation (put in front by `nfs3_server`, equal at all stores of an
//! export), then the 16 laid out here: 8 of key, 4 of check, 4 of hints. A client only ever sees hints of zero.
//! The hints are the way in which the [guard](mod@super::guard) tells the file system what `nfs3_server` does not
//! pass on (the mode of a MKDIR, whether a CREATE is guarded): it writes them into a call's first handle.

use nfs3_server::vfs::FileHandle;

/// Bytes of a handle after the generation.
pub(super) const HANDLE_BYTES: usize = 16;
/// Bytes of a handle on the wire: generation, key, check, hints.
pub(super) const WIRE_HANDLE_BYTES: usize = 8 + HANDLE_BYTES;

/// Which file: the key is what NFS calls `fileid`, the check tells a reused key from the file it once named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FileId {
    pub(super) key: u64,
    pub(super) check: u32,
}

/// What the guard knows about a call and `nfs3_server` does not pass on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Hints(u32);

impl Hints {
    /// A READDIR: its attributes are left out, so that its cookie verifier is constant.
    pub(super) const LISTING: Self = Self(1 << 16);
    /// A CREATE that must not find the file there.
    pub(super) const GUARDED: Self = Self(1 << 17);
    /// A RMDIR; without it `remove` is a REMOVE.
    pub(super) const RMDIR: Self = Self(1 << 18);
    const MODE_GIVEN: u32 = 1 << 19;

    /// A MKDIR with this mode (its low 12 bits count).
    pub(super) const fn mode(mode: u32) -> Self {
        Self(Self::MODE_GIVEN | (mode & 0o7777))
    }

    pub(super) const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(super) const fn given_mode(self) -> Option<u32> {
        if self.0 & Self::MODE_GIVEN == 0 { None } else { Some(self.0 & 0o7777) }
    }

    pub(super) const fn to_bytes(self) -> [u8; 4] {
        self.0.to_le_bytes()
    }
}

/// A handle as `nfs3_server` hands it to the file system: the file, and the hints of the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Handle {
    pub(super) id: FileId,
    pub(super) hints: Hints,
    bytes: [u8; HANDLE_BYTES],
}

impl Handle {
    pub(super) fn new(id: FileId) -> Self {
        Self::with_hints(id, Hints::default())
    }

    fn with_hints(id: FileId, hints: Hints) -> Self {
        let mut bytes = [0; HANDLE_BYTES];
        bytes[..8].copy_from_slice(&id.key.to_le_bytes());
        bytes[8..12].copy_from_slice(&id.check.to_le_bytes());
        bytes[12..].copy_from_slice(&hints.to_bytes());
        Self { id, hints, bytes }
    }
}

impl FileHandle for Handle {
    fn len(&self) -> usize {
        HANDLE_BYTES
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (key, rest) = bytes.split_first_chunk::<8>()?;
        let (check, rest) = rest.split_first_chunk::<4>()?;
        let hints = <[u8; 4]>::try_from(rest).ok()?;
        let id = FileId { key: u64::from_le_bytes(*key), check: u32::from_le_bytes(*check) };
        Some(Self::with_hints(id, Hints(u32::from_le_bytes(hints))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_survives_its_bytes() {
        let id = FileId { key: 0x0123_4567_89ab_cdef, check: 77 };
        let handle = Handle::with_hints(id, Hints::mode(0o2750));
        let read = Handle::from_bytes(handle.as_bytes()).unwrap();
        assert_eq!(read, handle);
        assert_eq!(read.hints.given_mode(), Some(0o2750));
        assert!(!read.hints.has(Hints::LISTING));
        assert_eq!(Handle::new(id).as_bytes()[12..], [0; 4]);
    }

    #[test]
    fn other_lengths_are_no_handles() {
        for length in (0..40).filter(|length| *length != HANDLE_BYTES) {
            assert_eq!(Handle::from_bytes(&vec![1; length]), None, "{length} bytes");
        }
    }
}
