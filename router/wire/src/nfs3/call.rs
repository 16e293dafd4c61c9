//! Arguments of the procedures (RFC 1813 section 3.3).

use super::{HANDLE_BYTES_MAX, NAME_BYTES_MAX, Procedure, VERIFIER_BYTES};
use crate::xdr::{Reader, Span, XdrError};

/// How CREATE and its kin make a new name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum How {
    /// CREATE, an existing file is taken and its attributes set.
    Unchecked,
    /// CREATE, an existing file is an error.
    Guarded,
    /// CREATE, at most once by the client's verifier.
    Exclusive,
    /// MKDIR.
    Directory,
    /// SYMLINK.
    Symlink,
    /// MKNOD.
    Node,
}

/// The arguments of one call. Spans, and offsets named `..._at`, count from the first byte of the message; an
/// offset points at the big-endian word (or the eight verifier bytes) that a router may overwrite in place.
#[expect(
    missing_docs,
    reason = "fields bear the RFC's names; offsets and units are described on the variants"
)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arguments {
    /// NULL.
    Null,
    /// GETATTR, ACCESS, READLINK, FSSTAT, FSINFO and PATHCONF.
    Handle { handle: Span },
    /// SETATTR; `guarded`: only if the change time matches.
    Setattr { handle: Span, guarded: bool },
    /// LOOKUP, REMOVE and RMDIR: a name within a directory.
    Name { dir: Span, name: Span },
    /// CREATE, MKDIR, SYMLINK and MKNOD: a new name within a directory.
    Make { dir: Span, name: Span, how: How },
    /// READ of `count` bytes from byte `offset` on.
    Read { handle: Span, offset: u64, count: u32, count_at: usize },
    /// WRITE of `count` bytes from byte `offset` on; `stable`: 0 UNSTABLE, 1 DATA_SYNC, 2 FILE_SYNC. `length_at` is
    /// the length word of `data`, whose padding is not within the span. `count` and the length of `data` are not
    /// compared here.
    Write {
        handle: Span,
        offset: u64,
        count: u32,
        stable: u32,
        count_at: usize,
        stable_at: usize,
        length_at: usize,
        data: Span,
    },
    /// RENAME.
    Rename { from_dir: Span, from_name: Span, to_dir: Span, to_name: Span },
    /// LINK: `name` in `dir` becomes another name of `handle`.
    Link { handle: Span, dir: Span, name: Span },
    /// READDIR from `cookie` on (0 from the start), at most `count` bytes of results.
    Readdir { dir: Span, cookie: u64, verifier_at: usize, count: u32, count_at: usize },
    /// READDIRPLUS; `dircount` bytes of names and `maxcount` bytes of results at most.
    Readdirplus {
        dir: Span,
        cookie: u64,
        verifier_at: usize,
        dircount: u32,
        dircount_at: usize,
        maxcount: u32,
        maxcount_at: usize,
    },
    /// COMMIT of `count` bytes (0 for all) from byte `offset` on.
    Commit { handle: Span, offset: u64, count: u32 },
}

/// The arguments cannot be decoded; the client is to blame. Answer with GARBAGE_ARGS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed arguments of {procedure}: {cause}; answer with GARBAGE_ARGS")]
pub struct ArgumentsError {
    /// The procedure called.
    pub procedure: Procedure,
    /// What is wrong, and where in the message.
    pub cause: XdrError,
}

impl Arguments {
    /// The handle that the call is routed by: the first one; for LINK the directory, which is what changes. `None`
    /// for NULL.
    #[inline]
    #[must_use]
    pub fn handle(&self) -> Option<Span> {
        match self {
            Self::Null => None,
            Self::Handle { handle }
            | Self::Setattr { handle, .. }
            | Self::Read { handle, .. }
            | Self::Write { handle, .. }
            | Self::Commit { handle, .. } => Some(handle.clone()),
            Self::Name { dir, .. }
            | Self::Make { dir, .. }
            | Self::Rename { from_dir: dir, .. }
            | Self::Link { dir, .. }
            | Self::Readdir { dir, .. }
            | Self::Readdirplus { dir, .. } => Some(dir.clone()),
        }
    }
}

/// Reads the arguments that begin at byte `at` of a call (see [`crate::rpc::Call::arguments`]), all of them, so
/// that what a store is sent is well formed. Handles have 1 to 64 bytes and names at most [`NAME_BYTES_MAX`]. Bytes
/// behind the arguments are tolerated, as servers do.
///
/// # Errors
/// See [`ArgumentsError`].
#[inline]
pub fn arguments(procedure: Procedure, message: &[u8], at: usize) -> Result<Arguments, ArgumentsError> {
    // The frequent calls are built in place, field by field: to convert the error of a whole result would copy the
    // result, which costs as much as reading it.
    let bad = |cause| ArgumentsError { procedure, cause };
    let reader = &mut Reader::new(message, at);
    match procedure {
        Procedure::Null => Ok(Arguments::Null),
        Procedure::Getattr
        | Procedure::Readlink
        | Procedure::Fsstat
        | Procedure::Fsinfo
        | Procedure::Pathconf => Ok(Arguments::Handle { handle: handle(reader).map_err(bad)? }),
        Procedure::Access => {
            let handle = handle(reader).map_err(bad)?;
            reader.u32().map_err(bad)?;
            Ok(Arguments::Handle { handle })
        }
        Procedure::Lookup | Procedure::Remove | Procedure::Rmdir => {
            let dir = handle(reader).map_err(bad)?;
            Ok(Arguments::Name { dir, name: name(reader).map_err(bad)? })
        }
        Procedure::Read => {
            let handle = handle(reader).map_err(bad)?;
            let offset = reader.u64().map_err(bad)?;
            let count_at = reader.at();
            let count = reader.u32().map_err(bad)?;
            Ok(Arguments::Read { handle, offset, count, count_at })
        }
        Procedure::Write => {
            const FILE_SYNC: u32 = 2;
            let handle = handle(reader).map_err(bad)?;
            let offset = reader.u64().map_err(bad)?;
            let count_at = reader.at();
            let count = reader.u32().map_err(bad)?;
            let stable_at = reader.at();
            let stable = reader.choice(FILE_SYNC).map_err(bad)?;
            let length_at = reader.at();
            let data = reader.opaque(0, u32::MAX).map_err(bad)?;
            Ok(Arguments::Write { handle, offset, count, stable, count_at, stable_at, length_at, data })
        }
        Procedure::Setattr
        | Procedure::Create
        | Procedure::Mkdir
        | Procedure::Symlink
        | Procedure::Mknod
        | Procedure::Rename
        | Procedure::Link
        | Procedure::Readdir
        | Procedure::Readdirplus
        | Procedure::Commit => infrequent(procedure, reader).map_err(bad),
    }
}

fn infrequent(procedure: Procedure, reader: &mut Reader<'_>) -> Result<Arguments, XdrError> {
    match procedure {
        Procedure::Setattr => setattr(reader),
        Procedure::Rename => Ok(Arguments::Rename {
            from_dir: handle(reader)?,
            from_name: name(reader)?,
            to_dir: handle(reader)?,
            to_name: name(reader)?,
        }),
        Procedure::Link => {
            Ok(Arguments::Link { handle: handle(reader)?, dir: handle(reader)?, name: name(reader)? })
        }
        Procedure::Readdir => {
            let (dir, cookie, verifier_at) = listing(reader)?;
            let count_at = reader.at();
            Ok(Arguments::Readdir { dir, cookie, verifier_at, count: reader.u32()?, count_at })
        }
        Procedure::Readdirplus => readdirplus(reader),
        Procedure::Commit => {
            Ok(Arguments::Commit { handle: handle(reader)?, offset: reader.u64()?, count: reader.u32()? })
        }
        _ => make(procedure, reader), // of what comes here, CREATE and its kin are left
    }
}

#[inline]
fn handle(reader: &mut Reader<'_>) -> Result<Span, XdrError> {
    reader.opaque(1, HANDLE_BYTES_MAX)
}

#[inline]
fn name(reader: &mut Reader<'_>) -> Result<Span, XdrError> {
    reader.opaque(0, NAME_BYTES_MAX)
}

/// sattr3 (RFC 1813 section 2.6): six optional values.
fn new_attributes(reader: &mut Reader<'_>) -> Result<(), XdrError> {
    const SET_TO_SERVER_TIME: u32 = 1;
    const SET_TO_CLIENT_TIME: u32 = 2;
    for value_bytes in [4, 4, 4, 8] {
        // mode, user, group, size
        if reader.bool()? {
            reader.skip(value_bytes)?;
        }
    }
    for _ in ["access time", "modification time"] {
        if reader.choice(SET_TO_CLIENT_TIME)? > SET_TO_SERVER_TIME {
            reader.skip(8)?;
        }
    }
    Ok(())
}

fn setattr(reader: &mut Reader<'_>) -> Result<Arguments, XdrError> {
    let handle = handle(reader)?;
    new_attributes(reader)?;
    let guarded = reader.bool()?;
    if guarded {
        reader.skip(8)?; // the change time expected
    }
    Ok(Arguments::Setattr { handle, guarded })
}

fn make(procedure: Procedure, reader: &mut Reader<'_>) -> Result<Arguments, XdrError> {
    let dir = handle(reader)?;
    let name = name(reader)?;
    let how = match procedure {
        Procedure::Mkdir => {
            new_attributes(reader)?;
            How::Directory
        }
        Procedure::Symlink => {
            new_attributes(reader)?;
            reader.opaque(0, u32::MAX)?; // the target: how long it may be is the store's to say
            How::Symlink
        }
        Procedure::Mknod => {
            node(reader)?;
            How::Node
        }
        _ => create(reader)?,
    };
    Ok(Arguments::Make { dir, name, how })
}

/// createhow3.
fn create(reader: &mut Reader<'_>) -> Result<How, XdrError> {
    const EXCLUSIVE: u32 = 2;
    Ok(match reader.choice(EXCLUSIVE)? {
        EXCLUSIVE => {
            reader.skip(VERIFIER_BYTES)?;
            How::Exclusive
        }
        mode => {
            new_attributes(reader)?;
            if mode == 0 { How::Unchecked } else { How::Guarded }
        }
    })
}

/// mknoddata3: what follows depends on the type; a type that is no special file has nothing behind it.
fn node(reader: &mut Reader<'_>) -> Result<(), XdrError> {
    const BLOCK: u32 = 3;
    const CHARACTER: u32 = 4;
    const SOCKET: u32 = 6;
    const FIFO: u32 = 7;
    match reader.choice(FIFO)? {
        BLOCK | CHARACTER => {
            new_attributes(reader)?;
            reader.skip(8)?; // device numbers
        }
        SOCKET | FIFO => new_attributes(reader)?,
        _ => {}
    }
    Ok(())
}

/// What READDIR and READDIRPLUS begin with: directory, cookie, where the cookie verifier lies.
fn listing(reader: &mut Reader<'_>) -> Result<(Span, u64, usize), XdrError> {
    let dir = handle(reader)?;
    let cookie = reader.u64()?;
    let verifier = reader.skip(VERIFIER_BYTES)?;
    Ok((dir, cookie, verifier.start))
}

fn readdirplus(reader: &mut Reader<'_>) -> Result<Arguments, XdrError> {
    let (dir, cookie, verifier_at) = listing(reader)?;
    let dircount_at = reader.at();
    let dircount = reader.u32()?;
    let maxcount_at = reader.at();
    let maxcount = reader.u32()?;
    Ok(Arguments::Readdirplus { dir, cookie, verifier_at, dircount, dircount_at, maxcount, maxcount_at })
}
