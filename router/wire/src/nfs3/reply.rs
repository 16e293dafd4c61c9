//! Results of the procedures (RFC 1813 section 3.3), as far as a router reads or rewrites them.

use super::attributes::{before_and_after, optional};
use super::{ATTRIBUTES_BYTES, HANDLE_BYTES_MAX, Procedure, VERIFIER_BYTES, status};
use crate::xdr::{Reader, Span, XdrError};

/// The results of one call. Spans, and offsets named `..._at`, count from the first byte of the message.
#[expect(
    missing_docs,
    reason = "fields bear the RFC's names; offsets and units are described on the variants"
)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Results {
    /// The store ran the call and says no: an nfsstat3 other than 0, see [`status`].
    Failed { status: u32 },
    /// LOOKUP: the handle of the name and, if given, its attributes.
    Lookup { handle: Span, attributes_at: Option<usize> },
    /// CREATE, MKDIR, SYMLINK and MKNOD: the new file's handle and attributes, if the store gives them.
    Made { handle: Option<Span>, attributes_at: Option<usize> },
    /// READ: bytes read, and whether they reach the end of the file.
    Read { count: u32, eof: bool },
    /// WRITE: bytes written and how safely (0 UNSTABLE, 1 DATA_SYNC, 2 FILE_SYNC); eight verifier bytes.
    Write { count: u32, count_at: usize, committed: u32, verifier_at: usize },
    /// COMMIT: eight verifier bytes.
    Commit { verifier_at: usize },
    /// READDIR: eight cookie verifier bytes; the list for [`super::entries`].
    Readdir { verifier_at: usize, entries_at: usize },
    /// READDIRPLUS: eight cookie verifier bytes; the list for [`super::entries_plus`].
    Readdirplus { verifier_at: usize, entries_at: usize },
    /// FSINFO: seven words in bytes each: rtmax, rtpref, rtmult, wtmax, wtpref, wtmult, dtpref.
    Fsinfo { sizes_at: usize },
    /// GETATTR: attributes for [`super::attributes`].
    Getattr { attributes_at: usize },
    /// READLINK: what the link points to.
    Readlink { target: Span },
    /// Success of a procedure whose results a router passes on unread: NULL, SETATTR, ACCESS, REMOVE, RMDIR, RENAME,
    /// LINK, FSSTAT and PATHCONF.
    Other,
}

/// The results cannot be decoded; the store is to blame. Pass the reply on as it is and count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed results of {procedure} from a store: {cause}")]
pub struct ResultsError {
    /// The procedure that was called.
    pub procedure: Procedure,
    /// What is wrong, and where in the message.
    pub cause: XdrError,
}

/// Reads the results that begin at byte `at` of an accepted, successful reply
/// (see [`crate::rpc::ReplyBody::Accepted`]). Entries of directories are left to their iterators, and results that
/// a router passes on unread are not checked.
///
/// # Errors
/// See [`ResultsError`].
#[inline]
pub fn results(procedure: Procedure, message: &[u8], at: usize) -> Result<Results, ResultsError> {
    parse(procedure, Reader::new(message, at)).map_err(|cause| ResultsError { procedure, cause })
}

#[inline]
fn parse(procedure: Procedure, mut reader: Reader<'_>) -> Result<Results, XdrError> {
    let reader = &mut reader;
    if procedure == Procedure::Null {
        return Ok(Results::Other);
    }
    let status = reader.u32()?;
    if status != status::OK {
        return Ok(Results::Failed { status });
    }
    match procedure {
        Procedure::Getattr => Ok(Results::Getattr { attributes_at: reader.skip(ATTRIBUTES_BYTES)?.start }),
        Procedure::Lookup => {
            let handle = reader.opaque(1, HANDLE_BYTES_MAX)?;
            let attributes_at = optional(reader)?;
            optional(reader)?; // the directory's
            Ok(Results::Lookup { handle, attributes_at })
        }
        Procedure::Readlink => {
            optional(reader)?;
            Ok(Results::Readlink { target: reader.opaque(0, u32::MAX)? })
        }
        Procedure::Read => {
            optional(reader)?;
            let (count, eof) = (reader.u32()?, reader.bool()?);
            reader.opaque(0, u32::MAX)?;
            Ok(Results::Read { count, eof })
        }
        Procedure::Write => write(reader),
        Procedure::Create | Procedure::Mkdir | Procedure::Symlink | Procedure::Mknod => {
            let handle = if reader.bool()? { Some(reader.opaque(1, HANDLE_BYTES_MAX)?) } else { None };
            let attributes_at = optional(reader)?;
            before_and_after(reader)?; // the directory's
            Ok(Results::Made { handle, attributes_at })
        }
        Procedure::Readdir => {
            let (verifier_at, entries_at) = listing(reader)?;
            Ok(Results::Readdir { verifier_at, entries_at })
        }
        Procedure::Readdirplus => {
            let (verifier_at, entries_at) = listing(reader)?;
            Ok(Results::Readdirplus { verifier_at, entries_at })
        }
        Procedure::Fsinfo => fsinfo(reader),
        Procedure::Commit => {
            before_and_after(reader)?;
            Ok(Results::Commit { verifier_at: reader.skip(VERIFIER_BYTES)?.start })
        }
        Procedure::Null
        | Procedure::Setattr
        | Procedure::Access
        | Procedure::Remove
        | Procedure::Rmdir
        | Procedure::Rename
        | Procedure::Link
        | Procedure::Fsstat
        | Procedure::Pathconf => Ok(Results::Other),
    }
}

#[inline]
fn write(reader: &mut Reader<'_>) -> Result<Results, XdrError> {
    const FILE_SYNC: u32 = 2;
    before_and_after(reader)?;
    let count_at = reader.at();
    let count = reader.u32()?;
    let committed = reader.choice(FILE_SYNC)?;
    Ok(Results::Write { count, count_at, committed, verifier_at: reader.skip(VERIFIER_BYTES)?.start })
}

/// What READDIR and READDIRPLUS results begin with: where the cookie verifier and the list of entries lie.
fn listing(reader: &mut Reader<'_>) -> Result<(usize, usize), XdrError> {
    optional(reader)?;
    let verifier_at = reader.skip(VERIFIER_BYTES)?.start;
    let entries_at = reader.at();
    reader.bool()?; // whether there is an entry at all
    Ok((verifier_at, entries_at))
}

fn fsinfo(reader: &mut Reader<'_>) -> Result<Results, XdrError> {
    optional(reader)?;
    let sizes_at = reader.skip(7 * 4)?.start;
    reader.skip(8 + 8 + 4)?; // largest file, time granularity, properties
    Ok(Results::Fsinfo { sizes_at })
}
