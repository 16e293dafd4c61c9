//! Attributes of a file (fattr3, RFC 1813 section 2.6) and the optional ones around results.

use crate::xdr::{Reader, XdrError};

/// Bytes of a fattr3.
pub const ATTRIBUTES_BYTES: usize = 84;

/// Bytes of a wcc_attr: size, modification and change time before the call.
const WCC_BEFORE_BYTES: usize = 24;

/// Attributes of a file. Times are seconds since 1970 and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// ftype3: 1 regular, 2 directory, 3 block, 4 character, 5 symbolic link, 6 socket, 7 FIFO.
    pub file_type: u32,
    /// Permission bits.
    pub mode: u32,
    /// Hard links.
    pub nlink: u32,
    /// The owner's number.
    pub uid: u32,
    /// The group's number.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Disk space used, in bytes.
    pub used: u64,
    /// The file system's number.
    pub fsid: u64,
    /// The file's number within its file system.
    pub fileid: u64,
    /// Time of the last access.
    pub atime: (u32, u32),
    /// Time of the last change of the data.
    pub mtime: (u32, u32),
    /// Time of the last change of the attributes.
    pub ctime: (u32, u32),
}

/// Reads the attributes at byte `at` of a reply, or `None` if the message ends before they do.
#[must_use]
pub fn attributes(message: &[u8], at: usize) -> Option<Attributes> {
    read(&mut Reader::new(message, at)).ok()
}

fn read(reader: &mut Reader<'_>) -> Result<Attributes, XdrError> {
    let file_type = reader.u32()?;
    let mode = reader.u32()?;
    let nlink = reader.u32()?;
    let uid = reader.u32()?;
    let gid = reader.u32()?;
    let size = reader.u64()?;
    let used = reader.u64()?;
    reader.skip(8)?; // device numbers
    let fsid = reader.u64()?;
    let fileid = reader.u64()?;
    let mut time = || Ok((reader.u32()?, reader.u32()?));
    let (atime, mtime, ctime) = (time()?, time()?, time()?);
    Ok(Attributes { file_type, mode, nlink, uid, gid, size, used, fsid, fileid, atime, mtime, ctime })
}

/// Steps over a post_op_attr; where its attributes lie, if there are any.
#[inline]
pub(super) fn optional(reader: &mut Reader<'_>) -> Result<Option<usize>, XdrError> {
    if reader.bool()? { Ok(Some(reader.skip(ATTRIBUTES_BYTES)?.start)) } else { Ok(None) }
}

/// Steps over a wcc_data: attributes before and after a change.
#[inline]
pub(super) fn before_and_after(reader: &mut Reader<'_>) -> Result<(), XdrError> {
    if reader.bool()? {
        reader.skip(WCC_BEFORE_BYTES)?;
    }
    optional(reader)?;
    Ok(())
}
