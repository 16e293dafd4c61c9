//! Arguments of the NFSv3 procedures that the replay calls (RFC 1813 section 3.3), appended to a message.

use clockwork_wire::xdr::{put_bool, put_opaque, put_u32, put_u64};

/// ACCESS3_READ (RFC 1813 section 3.3.4).
pub const ACCESS_READ: u32 = 1;
/// Mode of the files that are created.
const FILE_MODE: u32 = 0o644;
/// Mode of the directories that are created.
const DIRECTORY_MODE: u32 = 0o755;

/// A handle alone: GETATTR, FSINFO.
pub fn handle(out: &mut Vec<u8>, handle: &[u8]) {
    put_opaque(out, handle);
}

/// A name in a directory: LOOKUP.
pub fn name(out: &mut Vec<u8>, directory: &[u8], name: &str) {
    put_opaque(out, directory);
    put_opaque(out, name.as_bytes());
}

/// ACCESS: may the file be read?
pub fn access(out: &mut Vec<u8>, handle: &[u8]) {
    put_opaque(out, handle);
    put_u32(out, ACCESS_READ);
}

/// READ.
pub fn read(out: &mut Vec<u8>, handle: &[u8], offset: u64, count: u32) {
    put_opaque(out, handle);
    put_u64(out, offset);
    put_u32(out, count);
}

/// WRITE, UNSTABLE.
pub fn write(out: &mut Vec<u8>, handle: &[u8], offset: u64, data: &[u8]) {
    let count = u32::try_from(data.len()).unwrap_or(u32::MAX);
    write_with(out, handle, (offset, count), UNSTABLE, |out| out.extend_from_slice(data));
}

/// Data may be lost until a COMMIT (RFC 1813 section 3.3.7).
pub const UNSTABLE: u32 = 0;
/// Data and attributes are safe before the reply.
pub const FILE_SYNC: u32 = 2;

/// WRITE of `count` bytes from `offset` on that `data` appends; `stable` says how safe they are to be before the reply.
pub fn write_with(
    out: &mut Vec<u8>,
    handle: &[u8],
    (offset, count): (u64, u32),
    stable: u32,
    data: impl FnOnce(&mut Vec<u8>),
) {
    put_opaque(out, handle);
    put_u64(out, offset);
    put_u32(out, count);
    put_u32(out, stable);
    put_u32(out, count);
    let begin = out.len();
    data(out);
    out.resize(begin + (out.len() - begin).next_multiple_of(4), 0);
}

/// COMMIT of the whole file.
pub fn commit(out: &mut Vec<u8>, handle: &[u8]) {
    put_opaque(out, handle);
    put_u64(out, 0);
    put_u32(out, 0);
}

/// CREATE, UNCHECKED: an existing file is taken and cut to nothing.
pub fn create(out: &mut Vec<u8>, directory: &[u8], file: &str) {
    const UNCHECKED: u32 = 0;
    name(out, directory, file);
    put_u32(out, UNCHECKED);
    attributes(out, FILE_MODE, Some(0));
}

/// MKDIR.
pub fn mkdir(out: &mut Vec<u8>, directory: &[u8], new: &str) {
    name(out, directory, new);
    attributes(out, DIRECTORY_MODE, None);
}

/// A sattr3 (RFC 1813 section 2.6) with mode and perhaps size.
fn attributes(out: &mut Vec<u8>, mode: u32, size: Option<u64>) {
    const DONT_CHANGE: u32 = 0;
    put_bool(out, true);
    put_u32(out, mode);
    put_bool(out, false); // owner
    put_bool(out, false); // group
    put_bool(out, size.is_some());
    if let Some(size) = size {
        put_u64(out, size);
    }
    put_u32(out, DONT_CHANGE); // time of access
    put_u32(out, DONT_CHANGE); // time of change
}

/// SETATTR of the mode alone, without guard.
pub fn set_mode(out: &mut Vec<u8>, handle: &[u8]) {
    put_opaque(out, handle);
    attributes(out, FILE_MODE, None);
    put_bool(out, false); // no guard
}

/// SYMLINK to `target`.
pub fn symlink(out: &mut Vec<u8>, directory: &[u8], new: &str, target: &str) {
    name(out, directory, new);
    attributes(out, FILE_MODE, None);
    put_opaque(out, target.as_bytes());
}

/// MKNOD of a named pipe.
pub fn mkfifo(out: &mut Vec<u8>, directory: &[u8], new: &str) {
    const NF3FIFO: u32 = 7;
    name(out, directory, new);
    put_u32(out, NF3FIFO);
    attributes(out, FILE_MODE, None);
}

/// RENAME within a directory.
pub fn rename(out: &mut Vec<u8>, directory: &[u8], from: &str, to: &str) {
    name(out, directory, from);
    name(out, directory, to);
}

/// LINK: another name for a file.
pub fn link(out: &mut Vec<u8>, file: &[u8], directory: &[u8], new: &str) {
    put_opaque(out, file);
    name(out, directory, new);
}

/// READDIR from the beginning.
pub fn readdir(out: &mut Vec<u8>, directory: &[u8], count: u32) {
    put_opaque(out, directory);
    put_u64(out, 0); // cookie
    put_u64(out, 0); // its verifier
    put_u32(out, count);
}

/// READDIRPLUS from the beginning.
pub fn readdirplus(out: &mut Vec<u8>, directory: &[u8], names_bytes: u32, count: u32) {
    put_opaque(out, directory);
    put_u64(out, 0); // cookie
    put_u64(out, 0); // its verifier
    put_u32(out, names_bytes);
    put_u32(out, count);
}
