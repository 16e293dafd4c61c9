//! The one tree that all stores of a process export: ids for files, files for ids, and what the file system says.
//!
//! Every answer is the file system's own of this moment: the table says only where a file was last seen, and a
//! file that is not what it was (another inode or birth) is not served under the old handle. Directories are
//! opened and checked before anything is done in them, so that a path cannot be led out of the export by a
//! symbolic link put in its way.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use nfs3_types::nfs3::{fattr3, nfsstat3};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Statx, StatxFlags};
use rustix::io::Errno;
use tokio::runtime::{Handle, RuntimeFlavor};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::StoreError;
use super::attributes::{attributes, device, file_type, identity, status};
use super::files::OpenFiles;
use super::handle::FileId;
use super::scan::Scans;
use super::table::{Table, TableFull};

/// Where file handles come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandleMode {
    /// From the seed and the path under which the file was first seen: the same in every run that makes the same
    /// files in the same way. For stores in one process, which share a [`Namespace`]: each sees at once what was
    /// changed through another. After a restart of the process a file has its handle again unless it was renamed
    /// (then the old one is stale, or finds the file that now has the old path).
    Path {
        /// Of the hash.
        seed: u64,
    },
    /// From the inode number and the time of birth: the same for every process and after every restart, also of
    /// renamed files. For stores in several processes, or over a directory that others change too.
    Inode,
}

/// What a namespace may use.
#[derive(Debug, Clone, Copy)]
pub struct NamespaceLimits {
    /// Files and directories whose place is known, about 200 bytes each. At the limit a call that would need one
    /// more is answered `NFS3ERR_SERVERFAULT` and counted.
    pub files_max: usize,
    /// Descriptors kept open between calls. At the limit the least recently used is closed.
    pub open_files_max: usize,
}

impl Default for NamespaceLimits {
    fn default() -> Self {
        Self { files_max: 2_000_000, open_files_max: 256 }
    }
}

/// One directory tree, exported by any number of stores with equal file handles.
#[derive(Debug)]
pub struct Namespace {
    root: OwnedFd,
    pub(super) mode: HandleMode,
    device: u64,
    generation: u64,
    table: RwLock<Table>,
    pub(super) files: OpenFiles,
    pub(super) scans: Scans,
    refused: AtomicU64,
}

/// Why an operation did not work.
#[derive(Debug)]
pub(super) enum Fault {
    /// This is the answer.
    Status(nfsstat3),
    /// The file is not where the table says, or the table does not know it.
    Lost(FileId),
}

impl From<nfsstat3> for Fault {
    fn from(status: nfsstat3) -> Self {
        Self::Status(status)
    }
}

impl From<Errno> for Fault {
    fn from(error: Errno) -> Self {
        Self::Status(status(error))
    }
}

const STAT_FLAGS: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

/// A call may name two handles (RENAME), and each may have to be looked for once.
const ATTEMPTS: usize = 3;

impl Namespace {
    /// Opens a directory for export with the default limits.
    ///
    /// # Errors
    /// [`StoreError::Directory`] where it cannot be opened.
    pub fn open(directory: &Path, mode: HandleMode) -> Result<Arc<Self>, StoreError> {
        Self::with_limits(directory, mode, NamespaceLimits::default())
    }

    /// Opens a directory for export.
    ///
    /// # Errors
    /// [`StoreError::Directory`] where it cannot be opened.
    pub fn with_limits(
        directory: &Path,
        mode: HandleMode,
        limits: NamespaceLimits,
    ) -> Result<Arc<Self>, StoreError> {
        let failed =
            |error: Errno| StoreError::Directory { path: directory.to_owned(), source: error.into() };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(directory, flags, Mode::empty()).map_err(failed)?;
        let stat = stat_fd(&root).map_err(failed)?;
        let (id, generation) = match mode {
            HandleMode::Path { seed } => {
                (Table::path_id(seed, b"", 0), xxh3_64_with_seed(b"clockwork store, by path", seed))
            }
            // Handles of one exported directory must not open files of another.
            HandleMode::Inode => {
                (inode_id(&stat), xxh3_64_with_seed(b"clockwork store, by inode", stat.stx_ino))
            }
        };
        Ok(Arc::new(Self {
            root,
            mode,
            device: device(&stat),
            generation,
            table: RwLock::new(Table::new(id, identity(&stat), limits.files_max)),
            files: OpenFiles::new(limits.open_files_max),
            scans: Scans::default(),
            refused: AtomicU64::new(0),
        }))
    }

    /// The first 8 bytes of every handle, the same for all stores of this export; also what NFS calls `fsid`.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Files and directories whose place is known now.
    pub fn files(&self) -> usize {
        self.read_table().files()
    }

    /// Calls that were refused because [`NamespaceLimits::files_max`] was reached.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub(super) fn root(&self) -> FileId {
        self.read_table().root()
    }

    pub(super) fn root_fd(&self) -> &OwnedFd {
        &self.root
    }

    // A panic while the lock was held leaves a table that is checked against the file system at every use.
    pub(super) fn read_table(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write_table(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs an operation that leaves the table as it is. A file that is not in its place is looked for.
    pub(super) fn look<T>(&self, op: impl Fn(&Table) -> Result<T, Fault>) -> Result<T, nfsstat3> {
        self.attempt(|| op(&self.read_table()))
    }

    /// Runs an operation that changes the tree; nothing else in this process sees the steps in between.
    pub(super) fn change<T>(&self, op: impl Fn(&mut Table) -> Result<T, Fault>) -> Result<T, nfsstat3> {
        self.attempt(|| op(&mut self.write_table()))
    }

    fn attempt<T>(&self, op: impl Fn() -> Result<T, Fault>) -> Result<T, nfsstat3> {
        for _ in 1..ATTEMPTS {
            match op() {
                Ok(value) => return Ok(value),
                Err(Fault::Status(status)) => return Err(status),
                Err(Fault::Lost(id)) => apart(|| self.find(id))?,
            }
        }
        op().map_err(|fault| match fault {
            Fault::Status(status) => status,
            Fault::Lost(_) => nfsstat3::NFS3ERR_STALE,
        })
    }

    /// The path of a file that is verified to be there, and what the file system says of it.
    pub(super) fn located(&self, table: &Table, id: FileId) -> Result<(Vec<u8>, Statx), Fault> {
        let entry = table.entry(id).ok_or(Fault::Lost(id))?;
        let mut path = table.path(id).ok_or(Fault::Lost(id))?;
        if path.is_empty() {
            path.push(b'.');
        }
        match stat_in(&self.root, &path) {
            Ok(stat) if identity(&stat) == entry.identity => Ok((path, stat)),
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Err(Fault::Lost(id)),
            Err(error) => Err(error.into()),
        }
    }

    /// A descriptor on a directory, verified to be the one that the id means.
    pub(super) fn directory(&self, table: &Table, id: FileId) -> Result<OwnedFd, Fault> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        self.open_verified(table, id, flags)
    }

    /// A descriptor on a file, verified to be the one that the id means.
    pub(super) fn open_verified(&self, table: &Table, id: FileId, flags: OFlags) -> Result<OwnedFd, Fault> {
        let entry = table.entry(id).ok_or(Fault::Lost(id))?;
        let mut path = table.path(id).ok_or(Fault::Lost(id))?;
        if path.is_empty() {
            path.push(b'.');
        }
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.root, path, flags, Mode::empty()) {
            Ok(fd) if identity(&stat_fd(&fd)?) == entry.identity => Ok(fd),
            Ok(_) | Err(Errno::NOENT) => Err(Fault::Lost(id)),
            // Not a directory: either the file is none, or one on the way to it is none any more.
            Err(error @ (Errno::NOTDIR | Errno::LOOP)) => {
                self.located(table, id)?;
                let directory = flags.contains(OFlags::DIRECTORY);
                Err(if directory { nfsstat3::NFS3ERR_NOTDIR.into() } else { error.into() })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The id of the file that the file system just showed under this name, if the table has it there.
    pub(super) fn known(
        &self,
        table: &Table,
        directory: FileId,
        name: &[u8],
        stat: &Statx,
    ) -> Option<FileId> {
        let (id, entry) = table.child(directory.key, name)?;
        (entry.identity == identity(stat)).then_some(id)
    }

    /// The id of the file that the file system just showed under this name. The table lock must have been held
    /// while the file system was asked, or a file could be given the id of one that replaced it.
    pub(super) fn sight(
        &self,
        table: &mut Table,
        directory: FileId,
        name: &[u8],
        stat: &Statx,
    ) -> Result<FileId, Fault> {
        if let Some(id) = self.known(table, directory, name, stat) {
            return Ok(id);
        }
        table.entry(directory).ok_or(Fault::Lost(directory))?;
        let sighted = match self.mode {
            HandleMode::Path { seed } => table.sight_path(seed, directory, name, identity(stat)),
            // Inode numbers are unique on one device only.
            HandleMode::Inode if device(stat) != self.device => return Err(nfsstat3::NFS3ERR_ACCES.into()),
            HandleMode::Inode => table.sight_inode(inode_id(stat), directory, name, identity(stat)),
        };
        sighted.map_err(|TableFull| {
            if self.refused.fetch_add(1, Ordering::Relaxed) == 0 {
                tracing::warn!(files = table.files(), "files_max reached: files not yet known are refused");
            }
            nfsstat3::NFS3ERR_SERVERFAULT.into()
        })
    }

    /// LOOKUP (RFC 1813 section 3.3.3), `.` and `..` included.
    pub(super) fn lookup(&self, directory: FileId, name: &[u8]) -> Result<FileId, nfsstat3> {
        if name == b"." || name == b".." {
            return self.look(|table| {
                self.directory(table, directory)?;
                if name == b"." { Some(directory) } else { table.parent(directory) }
                    .ok_or(Fault::Lost(directory))
            });
        }
        check_name(name)?;
        let known = self.look(|table| {
            let stat = stat_in(self.directory(table, directory)?, name)?;
            Ok(self.known(table, directory, name, &stat))
        })?;
        if let Some(id) = known {
            return Ok(id);
        }
        self.change(|table| {
            let stat = stat_in(self.directory(table, directory)?, name)?;
            self.sight(table, directory, name, &stat)
        })
    }

    /// GETATTR (RFC 1813 section 3.3.1).
    pub(super) fn attributes(&self, id: FileId) -> Result<fattr3, nfsstat3> {
        self.look(|table| Ok(self.fattr(id, &self.located(table, id)?.1)))
    }

    pub(super) fn fattr(&self, id: FileId, stat: &Statx) -> fattr3 {
        attributes(stat, self.generation, id.key)
    }

    /// Bytes in all, free, free to users; files in all, free, free to users (RFC 1813 section 3.3.18).
    pub(super) fn space(&self) -> Option<[u64; 6]> {
        let space = rustix::fs::fstatvfs(&self.root).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(space.f_frsize);
        Some([
            bytes(space.f_blocks),
            bytes(space.f_bfree),
            bytes(space.f_bavail),
            space.f_files,
            space.f_ffree,
            space.f_favail,
        ])
    }

    /// READLINK (RFC 1813 section 3.3.5).
    pub(super) fn readlink(&self, id: FileId) -> Result<Vec<u8>, nfsstat3> {
        self.look(|table| {
            let (path, stat) = self.located(table, id)?;
            if file_type(&stat) != FileType::Symlink {
                return Err(nfsstat3::NFS3ERR_INVAL.into());
            }
            Ok(rustix::fs::readlinkat(&self.root, path, Vec::new())?.into_bytes())
        })
    }
}

/// Runs what may take long and waits, so that the other calls of the runtime's thread go on meanwhile.
fn apart<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current() {
        Ok(runtime) if runtime.runtime_flavor() == RuntimeFlavor::MultiThread => {
            tokio::task::block_in_place(work)
        }
        _ => work(),
    }
}

/// The id of a file by inode number and birth.
pub(super) fn inode_id(stat: &Statx) -> FileId {
    let born = identity(stat).born_ns.to_le_bytes();
    let check = xxh3_64_with_seed(&born, stat.stx_ino).to_le_bytes();
    let check = u32::from_le_bytes([check[0], check[1], check[2], check[3]]);
    FileId { key: stat.stx_ino.max(1), check }
}

pub(super) fn stat_in(directory: impl AsFd, name: &[u8]) -> Result<Statx, Errno> {
    rustix::fs::statx(directory, name, AtFlags::SYMLINK_NOFOLLOW, STAT_FLAGS)
}

pub(super) fn stat_fd(fd: impl AsFd) -> Result<Statx, Errno> {
    rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, STAT_FLAGS)
}

/// A name that may stand in a directory; `.` and `..` may not be made, removed or renamed.
pub(super) fn check_name(name: &[u8]) -> Result<(), nfsstat3> {
    match name {
        b"" | b"." | b".." => Err(nfsstat3::NFS3ERR_INVAL),
        _ if name.len() > 255 => Err(nfsstat3::NFS3ERR_NAMETOOLONG),
        _ if name.iter().any(|byte| matches!(byte, b'/' | 0)) => Err(nfsstat3::NFS3ERR_INVAL),
        _ => Ok(()),
    }
}
