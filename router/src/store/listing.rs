//! READDIR and READDIRPLUS.
//!
//! The cookies are the kernel's own positions (`d_off`): on ext4, xfs, btrfs and tmpfs they stay valid while the
//! directory changes, and they are the same at all stores and after a restart.

use std::sync::Arc;

use nfs3_server::vfs::{DirEntry, DirEntryPlus, NextResult, ReadDirIterator, ReadDirPlusIterator};
use nfs3_types::nfs3::{fattr3, filename3, nfsstat3};
use nfs3_types::xdr_codec::Opaque;
use rustix::fs::{Dir, OFlags, Statx};

use super::attributes::status;
use super::handle::{FileId, Handle};
use super::namespace::{Fault, Namespace, stat_in};

/// A listing in progress, of one call.
pub(super) struct Listing {
    namespace: Arc<Namespace>,
    directory: FileId,
    entries: Dir,
}

struct Listed {
    name: Vec<u8>,
    cookie: u64,
    id: FileId,
    attributes: fattr3,
}

impl Namespace {
    /// Begins a listing after the entry that had this cookie; 0 is the beginning.
    pub(super) fn list(self: &Arc<Self>, directory: FileId, cookie: u64) -> Result<Listing, nfsstat3> {
        let position = i64::try_from(cookie).map_err(|_| nfsstat3::NFS3ERR_BAD_COOKIE)?;
        let fd =
            self.look(|table| self.open_verified(table, directory, OFlags::RDONLY | OFlags::DIRECTORY))?;
        let mut entries = Dir::new(fd).map_err(status)?;
        if position != 0 {
            entries.seek(position).map_err(|_| nfsstat3::NFS3ERR_BAD_COOKIE)?;
        }
        Ok(Listing { namespace: Arc::clone(self), directory, entries })
    }
}

impl Listing {
    /// The next entry; a file that is gone before it could be looked at is left out.
    fn advance(&mut self) -> Option<Result<Listed, nfsstat3>> {
        loop {
            let entry = match self.entries.read()? {
                Ok(entry) => entry,
                Err(error) => return Some(Err(status(error))),
            };
            let name = entry.file_name().to_bytes();
            // The position of the last entry may be the largest there is, which some clients take for an error.
            let cookie = u64::try_from(entry.offset()).unwrap_or(u64::MAX);
            match self.sighted(name) {
                Ok(Some((id, stat))) => {
                    let attributes = self.namespace.fattr(id, &stat);
                    return Some(Ok(Listed { name: name.to_vec(), cookie, id, attributes }));
                }
                Ok(None) => {}
                Err(status) => return Some(Err(status)),
            }
        }
    }

    fn sighted(&self, name: &[u8]) -> Result<Option<(FileId, Statx)>, nfsstat3> {
        let namespace = &self.namespace;
        if name == b"." || name == b".." {
            let id = namespace.lookup(self.directory, name)?;
            let stat = namespace.look(|table| Ok(namespace.located(table, id)?.1))?;
            return Ok(Some((id, stat)));
        }
        let fd = self.entries.fd().map_err(status)?;
        let Ok(stat) = stat_in(fd, name) else { return Ok(None) };
        if let Some(id) = namespace.known(&namespace.read_table(), self.directory, name, &stat) {
            return Ok(Some((id, stat)));
        }
        let mut table = namespace.write_table();
        let Ok(stat) = stat_in(fd, name) else { return Ok(None) };
        match namespace.sight(&mut table, self.directory, name, &stat) {
            Ok(id) => Ok(Some((id, stat))),
            // On another device: not exported.
            Err(Fault::Status(nfsstat3::NFS3ERR_ACCES)) => Ok(None),
            Err(Fault::Status(status)) => Err(status),
            Err(Fault::Lost(_)) => Err(nfsstat3::NFS3ERR_STALE),
        }
    }
}

impl ReadDirIterator for Listing {
    async fn next(&mut self) -> NextResult<DirEntry> {
        match self.advance() {
            Some(Ok(listed)) => NextResult::Ok(DirEntry {
                fileid: listed.id.key,
                name: filename3(Opaque::owned(listed.name)),
                cookie: listed.cookie,
            }),
            Some(Err(status)) => NextResult::Err(status),
            None => NextResult::Eof,
        }
    }
}

impl ReadDirPlusIterator<Handle> for Listing {
    async fn next(&mut self) -> NextResult<DirEntryPlus<Handle>> {
        match self.advance() {
            Some(Ok(listed)) => NextResult::Ok(DirEntryPlus {
                fileid: listed.id.key,
                name: filename3(Opaque::owned(listed.name)),
                cookie: listed.cookie,
                name_attributes: Some(listed.attributes),
                name_handle: Some(Handle::new(listed.id)),
            }),
            Some(Err(status)) => NextResult::Err(status),
            None => NextResult::Eof,
        }
    }
}
