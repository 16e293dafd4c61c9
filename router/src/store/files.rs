//! The data of files: READ, WRITE and COMMIT on descriptors that stay open between calls.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nfs3_types::nfs3::{fattr3, nfsstat3, stable_how};
use rustix::fs::{FileType, Mode, OFlags, Statx};
use rustix::io::Errno;

use super::attributes::file_type;
use super::handle::FileId;
use super::namespace::{Fault, Namespace, stat_fd};
use super::table::Table;

/// Bytes that one READ gives and one WRITE takes at the most; FSINFO says so.
pub(super) const TRANSFER_BYTES_MAX: u32 = 1 << 20;

/// Open descriptors by file key.
#[derive(Debug)]
pub(super) struct OpenFiles {
    open: Mutex<Open>,
    open_files_max: usize,
}

#[derive(Debug, Default)]
struct Open {
    files: HashMap<u64, OpenFile>,
    /// Counts uses, to tell which was used last.
    uses: u64,
}

#[derive(Debug)]
struct OpenFile {
    file: Arc<File>,
    check: u32,
    writable: bool,
    used: u64,
}

impl OpenFiles {
    pub(super) fn new(open_files_max: usize) -> Self {
        Self { open: Mutex::default(), open_files_max: open_files_max.max(1) }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, id: FileId, write: bool) -> Option<Arc<File>> {
        let mut open = self.lock();
        open.uses += 1;
        let uses = open.uses;
        let found = open.files.get_mut(&id.key)?;
        if found.check != id.check || (write && !found.writable) {
            return None;
        }
        found.used = uses;
        Some(Arc::clone(&found.file))
    }

    /// Keeps a descriptor for later calls.
    pub(super) fn keep(&self, id: FileId, file: Arc<File>, writable: bool) {
        let mut open = self.lock();
        if open.files.len() >= self.open_files_max && !open.files.contains_key(&id.key) {
            let oldest = open.files.iter().min_by_key(|(_, file)| file.used).map(|(key, _)| *key);
            if let Some(key) = oldest {
                open.files.remove(&key);
            }
        }
        open.uses += 1;
        let used = open.uses;
        open.files.insert(id.key, OpenFile { file, check: id.check, writable, used });
    }

    /// Closes a descriptor: its file was removed.
    pub(super) fn close(&self, key: u64) {
        self.lock().files.remove(&key);
    }
}

impl Namespace {
    /// A descriptor on the data of a file that the table knows.
    pub(super) fn data(&self, table: &Table, id: FileId, write: bool) -> Result<Arc<File>, Fault> {
        table.entry(id).ok_or(Fault::Lost(id))?;
        if let Some(file) = self.files.get(id, write) {
            return Ok(file);
        }
        let (path, stat) = self.located(table, id)?;
        match file_type(&stat) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(nfsstat3::NFS3ERR_ISDIR.into()),
            // Opening a device or a pipe could do anything: the client does that, on its own machine.
            _ => return Err(nfsstat3::NFS3ERR_INVAL.into()),
        }
        let (file, writable) = match self.open_verified(table, id, OFlags::RDWR) {
            Ok(fd) => (fd, true),
            Err(Fault::Status(nfsstat3::NFS3ERR_ROFS)) if !write => {
                (self.open_verified(table, id, OFlags::RDONLY)?, false)
            }
            Err(Fault::Status(nfsstat3::NFS3ERR_ACCES)) => {
                self.open_refused(table, id, write, &path, &stat)?
            }
            Err(fault) => return Err(fault),
        };
        let file = Arc::new(File::from(file));
        self.files.keep(id, Arc::clone(&file), writable);
        Ok(file)
    }

    /// Opens a file whose mode forbids it. Only the client knows with what rights the file was opened there, so
    /// a server lets the owner read and write whatever the mode says (RFC 1813 section 4.4); here the owner is
    /// the user that runs the store.
    fn open_refused(
        &self,
        table: &Table,
        id: FileId,
        write: bool,
        path: &[u8],
        stat: &Statx,
    ) -> Result<(std::os::fd::OwnedFd, bool), Fault> {
        if !write && let Ok(fd) = self.open_verified(table, id, OFlags::RDONLY) {
            return Ok((fd, false));
        }
        if stat.stx_uid != rustix::process::geteuid().as_raw() {
            return Err(nfsstat3::NFS3ERR_ACCES.into());
        }
        let mode = Mode::from_raw_mode(u32::from(stat.stx_mode) & 0o7777);
        let at = rustix::fs::AtFlags::empty();
        rustix::fs::chmodat(self.root_fd(), path, mode | Mode::RUSR | Mode::WUSR, at)?;
        let opened = self.open_verified(table, id, OFlags::RDWR);
        rustix::fs::chmodat(self.root_fd(), path, mode, at)?;
        Ok((opened?, true))
    }

    /// The attributes of an open file; one without a name is stale, whoever removed it.
    fn still_there(&self, id: FileId, file: &File) -> Result<Statx, nfsstat3> {
        let stat = stat_fd(file).map_err(super::attributes::status)?;
        if stat.stx_nlink == 0 {
            self.files.close(id.key);
            return Err(nfsstat3::NFS3ERR_STALE);
        }
        Ok(stat)
    }

    /// READ (RFC 1813 section 3.3.6): the bytes, and whether they reach the end of the file.
    pub(super) fn read(&self, id: FileId, offset: u64, count: u32) -> Result<(Vec<u8>, bool), nfsstat3> {
        let file = self.look(|table| self.data(table, id, false))?;
        let size = self.still_there(id, &file)?.stx_size;
        let wanted = u64::from(count.min(TRANSFER_BYTES_MAX)).min(size.saturating_sub(offset));
        let mut bytes = vec![0; usize::try_from(wanted).map_err(|_| nfsstat3::NFS3ERR_INVAL)?];
        let mut filled = 0;
        while filled < bytes.len() {
            match file.read_at(&mut bytes[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(io_status(&error)),
            }
        }
        let cut_short = filled < bytes.len();
        bytes.truncate(filled);
        Ok((bytes, cut_short || offset.saturating_add(filled as u64) >= size))
    }

    /// WRITE (RFC 1813 section 3.3.7): what is asked to be stable is on the disk before the reply.
    pub(super) fn write(
        &self,
        id: FileId,
        offset: u64,
        data: &[u8],
        stable: stable_how,
    ) -> Result<(fattr3, stable_how), nfsstat3> {
        let end = offset.checked_add(data.len() as u64).ok_or(nfsstat3::NFS3ERR_FBIG)?;
        i64::try_from(end).map_err(|_| nfsstat3::NFS3ERR_FBIG)?;
        let file = self.look(|table| self.data(table, id, true))?;
        self.still_there(id, &file)?;
        file.write_all_at(data, offset).map_err(|error| io_status(&error))?;
        let stable = match stable {
            stable_how::UNSTABLE => stable_how::UNSTABLE,
            stable_how::DATA_SYNC => {
                file.sync_data().map(|()| stable_how::DATA_SYNC).map_err(|e| io_status(&e))?
            }
            stable_how::FILE_SYNC => {
                file.sync_all().map(|()| stable_how::FILE_SYNC).map_err(|e| io_status(&e))?
            }
        };
        Ok((self.fattr(id, &self.still_there(id, &file)?), stable))
    }

    /// COMMIT (RFC 1813 section 3.3.21): the whole file, whatever the range.
    pub(super) fn commit(&self, id: FileId) -> Result<(), nfsstat3> {
        let file = match self.look(|table| self.data(table, id, false)) {
            Ok(file) => file,
            // Directories are kept by the file system; there is nothing of ours to write.
            Err(nfsstat3::NFS3ERR_ISDIR) => return Ok(()),
            Err(status) => return Err(status),
        };
        file.sync_all().map_err(|error| io_status(&error))
    }
}

/// What `std` says of a failed read or write, as NFS says it.
fn io_status(error: &std::io::Error) -> nfsstat3 {
    Errno::from_io_error(error).map_or(nfsstat3::NFS3ERR_IO, super::attributes::status)
}
