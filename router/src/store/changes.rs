//! What changes the tree: CREATE, MKDIR, SYMLINK, REMOVE, RMDIR, RENAME, SETATTR.
//!
//! Each runs with the table locked for writing, from the check of the directory to the change of the table, so
//! that the stores of a process never see half of it.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use nfs3_types::nfs3::{
    Nfs3Option, createverf3, fattr3, nfsstat3, nfstime3, sattr3, set_atime, set_mode3, set_mtime,
};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, Statx, Uid};
use rustix::io::Errno;

use super::attributes::{file_type, identity, times};
use super::handle::FileId;
use super::namespace::{Fault, Namespace, check_name, stat_fd, stat_in};
use super::table::Table;

/// Mode of a file whose creator gave none.
const FILE_MODE: u32 = 0o644;
/// Mode of a directory whose creator gave none.
const DIRECTORY_MODE: u32 = 0o755;

impl Namespace {
    /// CREATE, unchecked or guarded (RFC 1813 section 3.3.8).
    pub(super) fn create(
        &self,
        directory: FileId,
        name: &[u8],
        wanted: &sattr3,
        guarded: bool,
    ) -> Result<(FileId, fattr3), nfsstat3> {
        check_name(name)?;
        self.change(|table| {
            let parent = self.directory(table, directory)?;
            let id = match self.create_new(table, directory, &parent, name, wanted.mode) {
                Ok(id) => {
                    self.set(table, id, &sattr3 { mode: set_mode3::None, ..wanted.clone() })?;
                    id
                }
                Err(Fault::Status(nfsstat3::NFS3ERR_EXIST)) if !guarded => {
                    let stat = stat_in(&parent, name)?;
                    if file_type(&stat) != FileType::RegularFile {
                        return Err(nfsstat3::NFS3ERR_EXIST.into());
                    }
                    let id = self.sight(table, directory, name, &stat)?;
                    // A file that was there keeps what it has, but a size that is asked for is set: the client
                    // opens with O_TRUNC.
                    self.set(table, id, &sattr3 { size: wanted.size, ..sattr3::default() })?;
                    id
                }
                Err(fault) => return Err(fault),
            };
            Ok((id, self.fattr(id, &self.located(table, id)?.1)))
        })
    }

    fn create_new(
        &self,
        table: &mut Table,
        directory: FileId,
        parent: &OwnedFd,
        name: &[u8],
        mode: set_mode3,
    ) -> Result<FileId, Fault> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let wanted = Mode::from_raw_mode(option(&mode).copied().unwrap_or(FILE_MODE) & 0o7777);
        let fd = rustix::fs::openat(parent, name, flags, wanted)?;
        // The client has applied its own umask; the store's must not narrow the mode further.
        rustix::fs::fchmod(&fd, wanted)?;
        match self.sight(table, directory, name, &stat_fd(&fd)?) {
            Ok(id) => {
                self.files.keep(id, Arc::new(File::from(fd)), true);
                Ok(id)
            }
            Err(fault) => {
                rustix::fs::unlinkat(parent, name, AtFlags::empty())?;
                Err(fault)
            }
        }
    }

    /// CREATE, exclusive (RFC 1813 section 3.3.8): the verifier is kept in the times of the file, which the
    /// client sets once it has its answer, so that a repeated call finds its own file.
    pub(super) fn create_exclusive(
        &self,
        directory: FileId,
        name: &[u8],
        verifier: createverf3,
    ) -> Result<FileId, nfsstat3> {
        check_name(name)?;
        // 31 bits each: every file system keeps those seconds.
        let [a, b, c, d, e, f, g, h] = verifier.0;
        let first = u32::from_be_bytes([a, b, c, d]) & 0x7fff_ffff;
        let second = u32::from_be_bytes([e, f, g, h]) & 0x7fff_ffff;
        let stamp = |seconds| nfstime3 { seconds, nseconds: 0 };
        let marks = sattr3 {
            atime: set_atime::SET_TO_CLIENT_TIME(stamp(first)),
            mtime: set_mtime::SET_TO_CLIENT_TIME(stamp(second)),
            ..sattr3::default()
        };
        self.change(|table| {
            let parent = self.directory(table, directory)?;
            match self.create_new(table, directory, &parent, name, set_mode3::None) {
                Ok(id) => {
                    self.set(table, id, &marks)?;
                    Ok(id)
                }
                Err(Fault::Status(nfsstat3::NFS3ERR_EXIST)) => {
                    let stat = stat_in(&parent, name)?;
                    let marked = stat.stx_atime.tv_sec == i64::from(first)
                        && stat.stx_mtime.tv_sec == i64::from(second)
                        && file_type(&stat) == FileType::RegularFile;
                    if marked {
                        self.sight(table, directory, name, &stat)
                    } else {
                        Err(nfsstat3::NFS3ERR_EXIST.into())
                    }
                }
                Err(fault) => Err(fault),
            }
        })
    }

    /// MKDIR (RFC 1813 section 3.3.9).
    pub(super) fn make_directory(
        &self,
        directory: FileId,
        name: &[u8],
        mode: Option<u32>,
    ) -> Result<(FileId, fattr3), nfsstat3> {
        check_name(name)?;
        let wanted = Mode::from_raw_mode(mode.unwrap_or(DIRECTORY_MODE));
        self.change(|table| {
            let parent = self.directory(table, directory)?;
            rustix::fs::mkdirat(&parent, name, wanted)?;
            let made = stat_in(&parent, name)?;
            if u32::from(made.stx_mode) & 0o7777 != wanted.as_raw_mode() {
                rustix::fs::chmodat(&parent, name, wanted, AtFlags::empty())?;
            }
            self.sight_made(table, directory, &parent, name, AtFlags::REMOVEDIR)
        })
    }

    /// SYMLINK (RFC 1813 section 3.3.10). A link has no mode of its own here.
    pub(super) fn make_symlink(
        &self,
        directory: FileId,
        name: &[u8],
        target: &[u8],
    ) -> Result<(FileId, fattr3), nfsstat3> {
        check_name(name)?;
        self.change(|table| {
            let parent = self.directory(table, directory)?;
            rustix::fs::symlinkat(target, &parent, name)?;
            self.sight_made(table, directory, &parent, name, AtFlags::empty())
        })
    }

    /// Makes what was just created known; where that is refused, takes it away again.
    fn sight_made(
        &self,
        table: &mut Table,
        directory: FileId,
        parent: &OwnedFd,
        name: &[u8],
        undo: AtFlags,
    ) -> Result<(FileId, fattr3), Fault> {
        let stat = stat_in(parent, name)?;
        match self.sight(table, directory, name, &stat) {
            Ok(id) => Ok((id, self.fattr(id, &stat))),
            Err(fault) => {
                rustix::fs::unlinkat(parent, name, undo)?;
                Err(fault)
            }
        }
    }

    /// REMOVE and RMDIR (RFC 1813 sections 3.3.12 and 3.3.13).
    pub(super) fn remove(&self, directory: FileId, name: &[u8], rmdir: bool) -> Result<(), nfsstat3> {
        check_name(name)?;
        let gone = self.change(|table| {
            let parent = self.directory(table, directory)?;
            let stat = stat_in(&parent, name)?;
            let flags = if rmdir { AtFlags::REMOVEDIR } else { AtFlags::empty() };
            rustix::fs::unlinkat(&parent, name, flags)?;
            Ok(self.forget_name(table, directory, name, &stat))
        })?;
        // With the table unlocked: a search, which has the other lock, takes the table's.
        gone.into_iter().for_each(|id| self.bury(id));
        Ok(())
    }

    /// Forgets the file that stood under a name that is now another's or nobody's.
    fn forget_name(&self, table: &mut Table, directory: FileId, name: &[u8], stat: &Statx) -> Option<FileId> {
        let (id, entry) = table.child(directory.key, name)?;
        // With hard links made outside of NFS it may live on under another name.
        let last_name = stat.stx_nlink <= 1 || entry.identity.directory;
        // And without a time of birth, a later file may have its id.
        let gone = last_name && entry.identity == identity(stat) && entry.identity.born_ns != 0;
        table.forget(id.key);
        self.files.close(id.key);
        gone.then_some(id)
    }

    /// RENAME (RFC 1813 section 3.3.14).
    pub(super) fn rename(
        &self,
        from: FileId,
        from_name: &[u8],
        to: FileId,
        to_name: &[u8],
    ) -> Result<(), nfsstat3> {
        check_name(from_name)?;
        check_name(to_name)?;
        let gone = self.change(|table| {
            let from_fd = self.directory(table, from)?;
            let to_fd = self.directory(table, to)?;
            let moved = stat_in(&from_fd, from_name)?;
            let id = self.sight(table, from, from_name, &moved)?;
            let replaced = match stat_in(&to_fd, to_name) {
                Ok(stat) => Some(stat),
                Err(Errno::NOENT) => None,
                Err(error) => return Err(error.into()),
            };
            // Two names of one file: nothing happens (POSIX rename).
            if replaced.as_ref().is_some_and(|stat| identity(stat) == identity(&moved)) {
                return Ok(None);
            }
            rustix::fs::renameat_with(&from_fd, from_name, &to_fd, to_name, RenameFlags::empty())?;
            let gone = replaced.and_then(|replaced| self.forget_name(table, to, to_name, &replaced));
            table.move_to(id.key, to.key, to_name);
            Ok(gone)
        })?;
        gone.into_iter().for_each(|id| self.bury(id));
        Ok(())
    }

    /// SETATTR (RFC 1813 section 3.3.2).
    pub(super) fn set_attributes(&self, id: FileId, wanted: &sattr3) -> Result<fattr3, nfsstat3> {
        self.look(|table| {
            self.set(table, id, wanted)?;
            Ok(self.fattr(id, &self.located(table, id)?.1))
        })
    }

    fn set(&self, table: &Table, id: FileId, wanted: &sattr3) -> Result<(), Fault> {
        let (path, stat) = self.located(table, id)?;
        if let Some(size) = option(&wanted.size) {
            i64::try_from(*size).map_err(|_| nfsstat3::NFS3ERR_FBIG)?;
            rustix::fs::ftruncate(self.data(table, id, true)?.as_fd(), *size)?;
        }
        let (uid, gid) = (option(&wanted.uid).copied(), option(&wanted.gid).copied());
        if uid.is_some_and(|uid| uid != stat.stx_uid) || gid.is_some_and(|gid| gid != stat.stx_gid) {
            let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
            rustix::fs::chownat(self.root_fd(), &path, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        // Linux keeps no mode for symbolic links; to set one is no error, as in other servers.
        if let Some(mode) = option(&wanted.mode)
            && file_type(&stat) != FileType::Symlink
        {
            let mode = Mode::from_raw_mode(mode & 0o7777);
            rustix::fs::chmodat(self.root_fd(), &path, mode, AtFlags::empty())?;
        }
        if let Some(times) = times(wanted.atime, wanted.mtime) {
            rustix::fs::utimensat(self.root_fd(), &path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(())
    }
}

fn option<T: nfs3_types::xdr_codec::Pack + nfs3_types::xdr_codec::Unpack>(
    value: &Nfs3Option<T>,
) -> Option<&T> {
    match value {
        Nfs3Option::Some(value) => Some(value),
        Nfs3Option::None => None,
    }
}
