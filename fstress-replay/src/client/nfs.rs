//! The calls that prepare a replay, each waited for: MOUNT, FSINFO, LOOKUP, and what creates files.

use super::message;
use super::{CallError, Client};
use clockwork_wire::mount::{self, MntResults};
use clockwork_wire::nfs3::{self, Attributes, Procedure, Results, status};
use clockwork_wire::xdr::{Reader, Span, XdrError, put_opaque, u32_at, u64_at};
use std::time::Duration;

/// How often a call is tried again that the server answers with JUKEBOX ("not now").
const JUKEBOX_RETRIES_MAX: u32 = 20;
/// Pause before it is tried again.
const JUKEBOX_PAUSE: Duration = Duration::from_millis(250);

/// A file handle as the server gave it.
pub type Handle = Box<[u8]>;

/// Why a call has no result, in the server's words where it has any.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NfsError {
    /// The call did not get through.
    #[error("{procedure} {path:?}: {cause}")]
    Call {
        /// The procedure.
        procedure: &'static str,
        /// What it was about.
        path: String,
        /// What went wrong.
        cause: CallError,
    },
    /// The server says no.
    #[error("{procedure} {path:?}: the server answers {name} ({status})")]
    Status {
        /// The procedure.
        procedure: &'static str,
        /// What it was about.
        path: String,
        /// The nfsstat3 or mountstat3.
        status: u32,
        /// Its name in RFC 1813.
        name: &'static str,
    },
}

/// Sizes that the server takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Largest READ in bytes.
    pub read_bytes_max: u32,
    /// Largest WRITE in bytes.
    pub write_bytes_max: u32,
}

/// The verifier of WRITE and COMMIT replies: equal while no unstable data can have been lost.
pub type Verifier = u64;

/// Asks a MOUNT server for the root of an export.
///
/// # Errors
/// The call fails, or the server refuses the path.
pub async fn mount(client: &Client, path: &str) -> Result<Handle, NfsError> {
    const PROCEDURE: &str = "MNT";
    let failed = |cause| NfsError::Call { procedure: PROCEDURE, path: path.into(), cause };
    let mut call = client.begin(mount::PROGRAM, mount::VERSION, mount::Procedure::Mnt.number());
    put_opaque(&mut call, path.as_bytes());
    let (message, results) = client.call(call).await.map_err(failed)?;
    match mount::mnt_results(&message, results) {
        Ok(MntResults::Ok { handle, .. }) => Ok(message[handle].into()),
        Ok(MntResults::Failed { status }) => {
            let (procedure, path) = (PROCEDURE, path.into());
            Err(NfsError::Status { procedure, path, status, name: status::name(status) })
        }
        Err(error) => Err(failed(CallError::Malformed { reason: error.to_string() })),
    }
}

/// The server's sizes.
///
/// # Errors
/// See [`NfsError`].
pub async fn fsinfo(client: &Client, root: &[u8]) -> Result<Sizes, NfsError> {
    let Done { message, results, .. } =
        call(client, Procedure::Fsinfo, "/", |out| message::handle(out, root)).await?;
    match results {
        Results::Fsinfo { sizes_at } => Ok(Sizes {
            read_bytes_max: u32_at(&message, sizes_at).unwrap_or(0).max(512),
            write_bytes_max: u32_at(&message, sizes_at + 12).unwrap_or(0).max(512),
        }),
        other => Err(unexpected(Procedure::Fsinfo, "/", &other)),
    }
}

/// The handle of a name and the attributes that came with it.
///
/// # Errors
/// See [`NfsError`].
pub async fn lookup(
    client: &Client,
    directory: &[u8],
    name: &str,
) -> Result<(Handle, Option<Attributes>), NfsError> {
    let Done { message, results, .. } =
        call(client, Procedure::Lookup, name, |out| message::name(out, directory, name)).await?;
    match results {
        Results::Lookup { handle, attributes_at } => {
            let attributes = attributes_at.and_then(|at| nfs3::attributes(&message, at));
            Ok((message[handle].into(), attributes))
        }
        other => Err(unexpected(Procedure::Lookup, name, &other)),
    }
}

/// A file's attributes.
///
/// # Errors
/// See [`NfsError`].
pub async fn getattr(client: &Client, handle: &[u8], path: &str) -> Result<Attributes, NfsError> {
    let Done { message, results, .. } =
        call(client, Procedure::Getattr, path, |out| message::handle(out, handle)).await?;
    match results {
        Results::Getattr { attributes_at } => nfs3::attributes(&message, attributes_at)
            .ok_or_else(|| unexpected(Procedure::Getattr, path, &results)),
        other => Err(unexpected(Procedure::Getattr, path, &other)),
    }
}

/// A piece of a file.
///
/// # Errors
/// See [`NfsError`].
pub async fn read(
    client: &Client,
    handle: &[u8],
    path: &str,
    offset: u64,
    count: u32,
) -> Result<Vec<u8>, NfsError> {
    let arguments = |out: &mut Vec<u8>| message::read(out, handle, offset, count);
    let done = call(client, Procedure::Read, path, arguments).await?;
    match read_data(&done.message, done.at) {
        Ok(data) => Ok(done.message[data].to_vec()),
        Err(error) => {
            let (procedure, path) = (Procedure::Read.name(), path.into());
            let cause = CallError::Malformed { reason: error.to_string() };
            Err(NfsError::Call { procedure, path, cause })
        }
    }
}

/// The new or emptied file's handle.
///
/// # Errors
/// See [`NfsError`].
pub async fn create(client: &Client, directory: &[u8], name: &str) -> Result<Handle, NfsError> {
    let arguments = |out: &mut Vec<u8>| message::create(out, directory, name);
    let Done { message, results, .. } = call(client, Procedure::Create, name, arguments).await?;
    made(client, directory, name, &message, results).await
}

/// The handle of a directory that is there or has been made.
///
/// # Errors
/// See [`NfsError`].
pub async fn mkdir(client: &Client, directory: &[u8], name: &str) -> Result<Handle, NfsError> {
    let arguments = |out: &mut Vec<u8>| message::mkdir(out, directory, name);
    match call(client, Procedure::Mkdir, name, arguments).await {
        Ok(Done { message, results, .. }) => made(client, directory, name, &message, results).await,
        Err(NfsError::Status { status: status::EXIST, .. }) => {
            lookup(client, directory, name).await.map(|(handle, _)| handle)
        }
        Err(error) => Err(error),
    }
}

async fn made(
    client: &Client,
    directory: &[u8],
    name: &str,
    message: &[u8],
    results: Results,
) -> Result<Handle, NfsError> {
    match results {
        Results::Made { handle: Some(handle), .. } => Ok(message[handle].into()),
        // A server need not give the handle.
        _ => lookup(client, directory, name).await.map(|(handle, _)| handle),
    }
}

/// Writes without waiting for stable storage; the bytes taken and the verifier.
///
/// # Errors
/// See [`NfsError`].
pub async fn write(
    client: &Client,
    handle: &[u8],
    path: &str,
    offset: u64,
    data: &[u8],
) -> Result<(u32, Verifier), NfsError> {
    let arguments = |out: &mut Vec<u8>| message::write(out, handle, offset, data);
    let Done { message, results, .. } = call(client, Procedure::Write, path, arguments).await?;
    match results {
        Results::Write { count, verifier_at, .. } => Ok((count, u64_at(&message, verifier_at).unwrap_or(0))),
        other => Err(unexpected(Procedure::Write, path, &other)),
    }
}

/// Commits what was written; the verifier, which differs from that of a WRITE if its data may be lost.
///
/// # Errors
/// See [`NfsError`].
pub async fn commit(client: &Client, handle: &[u8], path: &str) -> Result<Verifier, NfsError> {
    let Done { message, results, .. } =
        call(client, Procedure::Commit, path, |out| message::commit(out, handle)).await?;
    match results {
        Results::Commit { verifier_at } => Ok(u64_at(&message, verifier_at).unwrap_or(0)),
        other => Err(unexpected(Procedure::Commit, path, &other)),
    }
}

/// Where the data of a READ reply lies, and whether the reply reaches the end of the file.
///
/// # Errors
/// A reply that is malformed or whose count is not the length of its data; an error status reads as truncated.
pub fn read_data(message: &[u8], results: usize) -> Result<Span, XdrError> {
    let mut reader = Reader::new(message, results);
    reader.u32()?;
    if reader.bool()? {
        reader.skip(nfs3::ATTRIBUTES_BYTES)?;
    }
    let at = reader.at();
    let count = reader.u32()?;
    reader.bool()?;
    let data = reader.opaque(0, u32::MAX)?;
    if usize::try_from(count).is_ok_and(|count| count == data.len()) {
        return Ok(data);
    }
    let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
    Err(XdrError::Length { at, length: count, length_min: length, length_max: length })
}

/// A successful reply.
struct Done {
    message: Vec<u8>,
    /// Where the results begin.
    at: usize,
    results: Results,
}

async fn call(
    client: &Client,
    procedure: Procedure,
    path: &str,
    arguments: impl Fn(&mut Vec<u8>),
) -> Result<Done, NfsError> {
    let failed = |cause| NfsError::Call { procedure: procedure.name(), path: path.into(), cause };
    let mut retries = 0;
    loop {
        let mut call = client.begin(nfs3::PROGRAM, nfs3::VERSION, procedure.number());
        arguments(&mut call);
        let (message, at) = client.call(call).await.map_err(failed)?;
        let malformed =
            |error: nfs3::ResultsError| failed(CallError::Malformed { reason: error.to_string() });
        match nfs3::results(procedure, &message, at).map_err(malformed)? {
            Results::Failed { status: status::JUKEBOX } if retries < JUKEBOX_RETRIES_MAX => {
                retries += 1;
                tokio::time::sleep(JUKEBOX_PAUSE).await;
            }
            Results::Failed { status } => {
                let (procedure, path) = (procedure.name(), path.into());
                return Err(NfsError::Status { procedure, path, status, name: status::name(status) });
            }
            results => return Ok(Done { message, at, results }),
        }
    }
}

fn unexpected(procedure: Procedure, path: &str, results: &Results) -> NfsError {
    let cause = CallError::Malformed { reason: format!("results of another procedure: {results:?}") };
    NfsError::Call { procedure: procedure.name(), path: path.into(), cause }
}

/// The handle of a new symbolic link.
///
/// # Errors
/// See [`NfsError`].
pub async fn symlink(
    client: &Client,
    directory: &[u8],
    name: &str,
    target: &str,
) -> Result<Handle, NfsError> {
    let arguments = |out: &mut Vec<u8>| message::symlink(out, directory, name, target);
    let Done { message, results, .. } = call(client, Procedure::Symlink, name, arguments).await?;
    made(client, directory, name, &message, results).await
}

/// Removes a name that is not a directory's, or one that is.
///
/// # Errors
/// See [`NfsError`].
pub async fn remove(
    client: &Client,
    directory: &[u8],
    name: &str,
    is_directory: bool,
) -> Result<(), NfsError> {
    let procedure = if is_directory { Procedure::Rmdir } else { Procedure::Remove };
    call(client, procedure, name, |out| message::name(out, directory, name)).await.map(drop)
}
