//! The files of a workload with content that can be verified: made in a directory, made over NFS, found over NFS.
//!
//! Making is idempotent: a file that has its size and, at its beginning and end, its content is left alone.

use crate::client::Client;
use crate::client::nfs::{self, Handle, NfsError, Sizes};
use crate::content::Content;
use crate::plan::{Directory, Tree};
use clockwork_traces::workload::{Workload, WorkloadFile};
use std::collections::BTreeMap;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::task::JoinSet;

/// Bytes compared at the beginning and at the end of a file that is there already.
const PROBE_BYTES: u32 = 4096;
/// Bytes of a WRITE at most, also where the server takes more.
const WRITE_BYTES_MAX: u32 = 32 << 10;
/// Files worked on at once.
const FILES_AT_ONCE_MAX: usize = 16;
/// How often a file is written again because the server lost unstable data (its verifier changed).
const REWRITES_MAX: u32 = 5;

/// Why the file set cannot be made or found.
#[derive(Debug, thiserror::Error)]
pub enum FilesetError {
    /// A directory or file of the local file system.
    #[error("{path}: {cause}")]
    Local {
        /// The file.
        path: PathBuf,
        /// What the system says.
        cause: std::io::Error,
    },
    /// A call to the server.
    #[error(transparent)]
    Nfs(#[from] NfsError),
    /// A name that is missing on the server.
    #[error(
        "{path} is not on the server: make the file set first (--create), or replay the workload it was made for"
    )]
    Missing {
        /// The path below the export.
        path: String,
    },
    /// A file of another size.
    #[error(
        "{path} has {found} bytes on the server, {wanted} in the workload: make the file set again (--create)"
    )]
    Size {
        /// The path below the export.
        path: String,
        /// Its size on the server.
        found: u64,
        /// Its size in the workload.
        wanted: u64,
    },
    /// A path that is no `directory/.../file`.
    #[error("the workload has a file {path:?}, which is no path below the export")]
    Path {
        /// The path.
        path: String,
    },
    /// The server's write verifier changes all the time.
    #[error(
        "{path}: written {REWRITES_MAX} times, and every time the server said that it may have lost the data"
    )]
    Unstable {
        /// The path below the export.
        path: String,
    },
    /// A task of the client was ended, as at the end of a runtime.
    #[error("a task that made or looked up files was ended")]
    Ended,
}

/// How far a file set is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Files made, found to be there, or looked up.
    pub files: usize,
    /// All files.
    pub files_total: usize,
}

/// Which files are right as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Those that are longer than they should be, too: something was appended to them.
    pub longer_is_right: bool,
    /// What is in them matters, at least at the beginning and end.
    pub content_matters: bool,
}

impl Rule {
    /// The files of a trace: exactly as they should be.
    const EXACT: Self = Self { longer_is_right: false, content_matters: true };

    fn takes(self, found: u64, wanted: u64) -> bool {
        found == wanted || self.longer_is_right && found > wanted
    }
}

/// What is told about progress; called from several tasks.
pub type OnProgress<'a> = &'a (dyn Fn(Progress) + Send + Sync);

/// The handles of a workload's files.
#[derive(Debug, Clone)]
pub struct Handles {
    /// For each file of the workload: its handle.
    pub files: Vec<Arc<[u8]>>,
    /// For each file of the workload: the handle of its directory.
    pub directories: Vec<Arc<[u8]>>,
}

/// Directory and name of a path.
fn split(path: &str) -> Result<(&str, &str), FilesetError> {
    let wrong = || FilesetError::Path { path: path.into() };
    let (directory, name) = path.rsplit_once('/').ok_or_else(wrong)?;
    let sound = path.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
    if sound { Ok((directory, name)) } else { Err(wrong()) }
}

/// The last part of a path.
pub(crate) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Makes the files of a workload in a local directory, which is made if it is not there. Files that are there and right
/// are left alone; how many had to be written is returned.
///
/// # Errors
/// [`FilesetError::Local`] with the path and what the system says.
pub fn create_local(directory: &Path, workload: &Workload) -> Result<usize, FilesetError> {
    let mut written = 0;
    let mut buffer = Vec::new();
    let mut last_parent = "";
    for file in workload.files() {
        let (parent, _) = split(&file.path)?;
        if parent != last_parent {
            let path = directory.join(parent);
            std::fs::create_dir_all(&path).map_err(|cause| FilesetError::Local { path, cause })?;
            last_parent = parent;
        }
        let path = directory.join(&file.path);
        let local = |cause| FilesetError::Local { path: path.clone(), cause };
        if is_right(&path, file).map_err(local)? {
            continue;
        }
        buffer.clear();
        let length = usize::try_from(file.bytes).unwrap_or(usize::MAX);
        Content::of(&file.path).append(&mut buffer, 0, length);
        std::fs::File::create(&path).and_then(|mut out| out.write_all(&buffer)).map_err(local)?;
        written += 1;
    }
    Ok(written)
}

fn is_right(path: &Path, file: &WorkloadFile) -> std::io::Result<bool> {
    let mut open = match std::fs::File::open(path) {
        Ok(open) => open,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    if open.metadata()?.len() != file.bytes {
        return Ok(false);
    }
    for (offset, length) in probes(file.bytes) {
        let mut data = vec![0; length as usize];
        open.seek(SeekFrom::Start(offset))?;
        open.read_exact(&mut data)?;
        if !Content::of(&file.path).matches_any(&data, offset) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// (offset, length) of the ranges that are compared.
fn probes(bytes: u64) -> Vec<(u64, u32)> {
    let length = u32::try_from(bytes).unwrap_or(u32::MAX).min(PROBE_BYTES);
    match length {
        0 => Vec::new(),
        _ => vec![(0, length), (bytes - u64::from(length), length)],
    }
}

/// Makes the files of a workload on a server, below `root`; how many had to be written is returned.
///
/// # Errors
/// The server says no, or cannot be reached.
pub async fn create(
    client: &Arc<Client>,
    root: &[u8],
    sizes: Sizes,
    workload: &Workload,
    progress: OnProgress<'_>,
) -> Result<usize, FilesetError> {
    create_files(client, root, sizes, workload.files(), Rule::EXACT, progress).await
}

/// Makes files on a server, below `root`, where they are not right by the `rule`; how many had to be written is returned.
///
/// # Errors
/// The server says no, or cannot be reached.
pub async fn create_files(
    client: &Arc<Client>,
    root: &[u8],
    sizes: Sizes,
    files: &[WorkloadFile],
    rule: Rule,
    progress: OnProgress<'_>,
) -> Result<usize, FilesetError> {
    let directories = directories(client, root, files, true).await?;
    let write_bytes = sizes.write_bytes_max.min(WRITE_BYTES_MAX);
    let written = Arc::new(AtomicUsize::new(0));
    let make = |index: usize, file: WorkloadFile, directory: Arc<[u8]>| {
        let (client, written) = (Arc::clone(client), Arc::clone(&written));
        async move {
            if create_file(&client, &directory, &file, rule, write_bytes).await? {
                written.fetch_add(1, Ordering::Relaxed);
            }
            Ok((index, ()))
        }
    };
    at_once(files, &directories, progress, make).await?;
    Ok(written.load(Ordering::Relaxed))
}

/// Finds files on a server by LOOKUP from `root`; of the `rule`, their sizes alone are looked at.
///
/// # Errors
/// A file is missing or has another size; the server says no, or cannot be reached.
pub async fn find_files(
    client: &Arc<Client>,
    root: &[u8],
    files: &[WorkloadFile],
    rule: Rule,
    progress: OnProgress<'_>,
) -> Result<Handles, FilesetError> {
    find_all(client, root, files, rule, progress).await.map(|(handles, _)| handles)
}

/// Finds the files of a trace, and the directories of a tree by number.
pub(crate) async fn find_tree(
    client: &Arc<Client>,
    root: &[u8],
    (files, tree): (&[WorkloadFile], &Tree),
    progress: OnProgress<'_>,
) -> Result<(Handles, Vec<Arc<[u8]>>), FilesetError> {
    let (handles, by_path) = find_all(client, root, files, Rule::EXACT, progress).await?;
    let of = |directory: &Directory| {
        let missing = || FilesetError::Missing { path: directory.path.clone() };
        by_path.get(&directory.path).cloned().ok_or_else(missing)
    };
    let directories = tree.directories().iter().map(of).collect::<Result<_, _>>()?;
    Ok((handles, directories))
}

async fn find_all(
    client: &Arc<Client>,
    root: &[u8],
    files: &[WorkloadFile],
    rule: Rule,
    progress: OnProgress<'_>,
) -> Result<(Handles, BTreeMap<String, Arc<[u8]>>), FilesetError> {
    let by_path = directories(client, root, files, false).await?;
    let find = |index: usize, file: WorkloadFile, directory: Arc<[u8]>| {
        let client = Arc::clone(client);
        async move { find_file(&client, &directory, &file, rule).await.map(|handle| (index, handle)) }
    };
    let found = at_once(files, &by_path, progress, find).await?;
    let of_file = |file: &WorkloadFile| {
        let (parent, _) = split(&file.path)?;
        by_path.get(parent).cloned().ok_or_else(|| FilesetError::Missing { path: parent.into() })
    };
    let directories = files.iter().map(of_file).collect::<Result<_, _>>()?;
    Ok((Handles { files: found.into_iter().map(Arc::from).collect(), directories }, by_path))
}

/// Handles of all directories by path, made where they are missing if `make`.
async fn directories(
    client: &Client,
    root: &[u8],
    files: &[WorkloadFile],
    make: bool,
) -> Result<BTreeMap<String, Arc<[u8]>>, FilesetError> {
    let mut handles: BTreeMap<String, Arc<[u8]>> = BTreeMap::new();
    handles.insert(String::new(), root.into());
    for file in files {
        let (parent, _) = split(&file.path)?;
        if handles.contains_key(parent) {
            continue;
        }
        let mut above = String::new();
        let mut handle: Arc<[u8]> = root.into();
        for part in parent.split('/') {
            let path = if above.is_empty() { part.to_owned() } else { format!("{above}/{part}") };
            handle = match handles.get(&path) {
                Some(known) => Arc::clone(known),
                None => directory(client, &handle, part, &path, make).await?.into(),
            };
            handles.insert(path.clone(), Arc::clone(&handle));
            above = path;
        }
    }
    Ok(handles)
}

async fn directory(
    client: &Client,
    above: &[u8],
    name: &str,
    path: &str,
    make: bool,
) -> Result<Handle, FilesetError> {
    match nfs::lookup(client, above, name).await {
        Ok((handle, _)) => Ok(handle),
        Err(error) if !is_missing(&error) => Err(error.into()),
        Err(_) if make => Ok(nfs::mkdir(client, above, name).await?),
        Err(_) => Err(FilesetError::Missing { path: path.into() }),
    }
}

fn is_missing(error: &NfsError) -> bool {
    matches!(error, NfsError::Status { status: clockwork_wire::nfs3::status::NOENT, .. })
}

/// Does the same for every file, several at once; results in the order of the files.
async fn at_once<T: Send + 'static, F>(
    all: &[WorkloadFile],
    directories: &BTreeMap<String, Arc<[u8]>>,
    progress: OnProgress<'_>,
    work: impl Fn(usize, WorkloadFile, Arc<[u8]>) -> F,
) -> Result<Vec<T>, FilesetError>
where
    F: Future<Output = Result<(usize, T), FilesetError>> + Send + 'static,
{
    let files_total = all.len();
    let mut results: Vec<Option<T>> = (0..files_total).map(|_| None).collect();
    let mut tasks = JoinSet::new();
    let mut waiting = all.iter().enumerate();
    let mut files = 0;
    loop {
        while tasks.len() < FILES_AT_ONCE_MAX {
            let Some((index, file)) = waiting.next() else { break };
            let (parent, _) = split(&file.path)?;
            let directory = directories.get(parent).cloned();
            let directory = directory.ok_or_else(|| FilesetError::Missing { path: parent.into() })?;
            tasks.spawn(work(index, file.clone(), directory));
        }
        let Some(done) = tasks.join_next().await else { break };
        let (index, result) = done.map_err(|_| FilesetError::Ended)??;
        results[index] = Some(result);
        files += 1;
        progress(Progress { files, files_total });
    }
    Ok(results.into_iter().flatten().collect())
}

async fn find_file(
    client: &Client,
    directory: &[u8],
    file: &WorkloadFile,
    rule: Rule,
) -> Result<Handle, FilesetError> {
    let found = nfs::lookup(client, directory, file_name(&file.path)).await;
    let (handle, attributes) = match found {
        Err(error) if is_missing(&error) => {
            return Err(FilesetError::Missing { path: file.path.clone() });
        }
        other => other?,
    };
    let attributes = match attributes {
        Some(attributes) => attributes,
        None => nfs::getattr(client, &handle, &file.path).await?,
    };
    if rule.takes(attributes.size, file.bytes) {
        return Ok(handle);
    }
    Err(FilesetError::Size { path: file.path.clone(), found: attributes.size, wanted: file.bytes })
}

/// Whether the file had to be written.
async fn create_file(
    client: &Client,
    directory: &[u8],
    file: &WorkloadFile,
    rule: Rule,
    write_bytes: u32,
) -> Result<bool, FilesetError> {
    match find_file(client, directory, file, rule).await {
        Ok(handle) => {
            if !rule.content_matters || is_right_remote(client, &handle, file).await? {
                return Ok(false);
            }
        }
        Err(FilesetError::Missing { .. } | FilesetError::Size { .. }) => {}
        Err(error) => return Err(error),
    }
    for _ in 0..REWRITES_MAX {
        let handle = nfs::create(client, directory, file_name(&file.path)).await?;
        if write_file(client, &handle, file, write_bytes).await? {
            return Ok(true);
        }
    }
    Err(FilesetError::Unstable { path: file.path.clone() })
}

async fn is_right_remote(client: &Client, handle: &[u8], file: &WorkloadFile) -> Result<bool, FilesetError> {
    for (offset, length) in probes(file.bytes) {
        let data = nfs::read(client, handle, &file.path, offset, length).await?;
        if data.len() != length as usize || !Content::of(&file.path).matches_any(&data, offset) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Writes and commits a file; `false` if the server may have lost a part in between.
async fn write_file(
    client: &Client,
    handle: &[u8],
    file: &WorkloadFile,
    write_bytes: u32,
) -> Result<bool, FilesetError> {
    let content = Content::of(&file.path);
    let mut verifiers = Vec::new();
    let mut offset = 0;
    let mut data = Vec::new();
    while offset < file.bytes {
        let left = u32::try_from(file.bytes - offset).unwrap_or(u32::MAX);
        data.clear();
        content.append(&mut data, offset, left.min(write_bytes) as usize);
        let (taken, verifier) = nfs::write(client, handle, &file.path, offset, &data).await?;
        if taken == 0 {
            return Ok(false);
        }
        // A server may take less than it was offered.
        offset += u64::from(taken);
        if verifiers.last() != Some(&verifier) {
            verifiers.push(verifier);
        }
    }
    if verifiers.is_empty() {
        return Ok(true);
    }
    let committed = nfs::commit(client, handle, &file.path).await?;
    Ok(verifiers.iter().all(|verifier| *verifier == committed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_files_are_made_once_and_repaired() {
        let directory = tempfile::tempdir().unwrap();
        let workload = Workload::of_bundled(&[("space", 1.0)], 1).unwrap();
        assert_eq!(create_local(directory.path(), &workload).unwrap(), workload.files().len());
        assert_eq!(create_local(directory.path(), &workload).unwrap(), 0);
        for file in workload.files() {
            let data = std::fs::read(directory.path().join(&file.path)).unwrap();
            assert_eq!(data.len() as u64, file.bytes);
            assert!(Content::of(&file.path).matches(&data, 0), "{}", file.path);
        }
        let (first, second) = (&workload.files()[0].path, &workload.files()[1].path);
        std::fs::remove_file(directory.path().join(first)).unwrap();
        std::fs::write(directory.path().join(second), "another").unwrap();
        assert_eq!(create_local(directory.path(), &workload).unwrap(), 2);
    }

    #[test]
    fn a_path_out_of_the_export_is_refused() {
        for path in ["file", "/a/b", "a//b", "a/../b", "a/"] {
            assert!(matches!(split(path), Err(FilesetError::Path { .. })), "{path}");
        }
        assert_eq!(split("a/b/c").unwrap(), ("a/b", "c"));
    }
}
