//! A namespace as `nfs3_server` wants a file system to look.

use std::sync::Arc;

use nfs3_server::vfs::{NfsFileSystem, NfsReadFileSystem, ReadDirIterator, ReadDirPlusIterator};
use nfs3_types::nfs3::{
    FSF3_CANSETTIME, FSF3_HOMOGENEOUS, FSF3_SYMLINK, FSINFO3resok, Nfs3Option, createverf3, fattr3,
    filename3, nfspath3, nfsstat3, nfstime3, sattr3, stable_how,
};
use nfs3_types::xdr_codec::Opaque;

use super::files::TRANSFER_BYTES_MAX;
use super::handle::{Handle, Hints};
use super::namespace::Namespace;

/// One connection's view of the export.
#[derive(Debug, Clone)]
pub(super) struct Export(pub(super) Arc<Namespace>);

impl NfsReadFileSystem for Export {
    type Handle = Handle;

    fn root_dir(&self) -> Handle {
        Handle::new(self.0.root())
    }

    async fn lookup(&self, directory: &Handle, name: &filename3<'_>) -> Result<Handle, nfsstat3> {
        self.0.lookup(directory.id, &name.0).map(Handle::new)
    }

    async fn getattr(&self, file: &Handle) -> Result<fattr3, nfsstat3> {
        if file.hints.has(Hints::LISTING) {
            // No attributes: then the cookie verifier of a READDIR, which `nfs3_server` makes of the directory's
            // modification time and checks, is a constant.
            return Err(nfsstat3::NFS3ERR_NOTSUPP);
        }
        self.0.attributes(file.id)
    }

    async fn read(&self, file: &Handle, offset: u64, count: u32) -> Result<(Vec<u8>, bool), nfsstat3> {
        self.0.read(file.id, offset, count)
    }

    async fn readdir(&self, directory: &Handle, cookie: u64) -> Result<impl ReadDirIterator, nfsstat3> {
        self.0.list(directory.id, cookie)
    }

    async fn readdirplus(
        &self,
        directory: &Handle,
        cookie: u64,
    ) -> Result<impl ReadDirPlusIterator<Handle>, nfsstat3> {
        self.0.list(directory.id, cookie)
    }

    async fn readlink(&self, link: &Handle) -> Result<nfspath3<'_>, nfsstat3> {
        self.0.readlink(link.id).map(|target| nfspath3(Opaque::owned(target)))
    }

    async fn fsinfo(&self, root: &Handle) -> Result<FSINFO3resok, nfsstat3> {
        let attributes = self.0.attributes(root.id)?;
        Ok(FSINFO3resok {
            obj_attributes: Nfs3Option::Some(attributes),
            rtmax: TRANSFER_BYTES_MAX,
            rtpref: TRANSFER_BYTES_MAX,
            rtmult: 4096,
            wtmax: TRANSFER_BYTES_MAX,
            wtpref: TRANSFER_BYTES_MAX,
            wtmult: 4096,
            dtpref: 65_536,
            maxfilesize: i64::MAX.unsigned_abs(),
            time_delta: nfstime3 { seconds: 0, nseconds: 1 },
            properties: FSF3_SYMLINK | FSF3_HOMOGENEOUS | FSF3_CANSETTIME,
        })
    }
}

impl NfsFileSystem for Export {
    async fn setattr(&self, file: &Handle, wanted: sattr3) -> Result<fattr3, nfsstat3> {
        self.0.set_attributes(file.id, &wanted)
    }

    async fn write(
        &self,
        file: &Handle,
        offset: u64,
        data: &[u8],
        stable: stable_how,
    ) -> Result<(fattr3, stable_how), nfsstat3> {
        if matches!(stable, stable_how::UNSTABLE) {
            return self.0.write(file.id, offset, data, stable);
        }
        // A disk takes milliseconds to say that it has the data: not on a thread that serves other calls.
        let (namespace, id, data) = (Arc::clone(&self.0), file.id, data.to_vec());
        blocking(move || namespace.write(id, offset, &data, stable)).await
    }

    async fn create(
        &self,
        directory: &Handle,
        name: &filename3<'_>,
        wanted: sattr3,
    ) -> Result<(Handle, fattr3), nfsstat3> {
        let guarded = directory.hints.has(Hints::GUARDED);
        let (id, attributes) = self.0.create(directory.id, &name.0, &wanted, guarded)?;
        Ok((Handle::new(id), attributes))
    }

    async fn create_exclusive(
        &self,
        directory: &Handle,
        name: &filename3<'_>,
        verifier: createverf3,
    ) -> Result<Handle, nfsstat3> {
        self.0.create_exclusive(directory.id, &name.0, verifier).map(Handle::new)
    }

    async fn mkdir(&self, directory: &Handle, name: &filename3<'_>) -> Result<(Handle, fattr3), nfsstat3> {
        let mode = directory.hints.given_mode();
        let (id, attributes) = self.0.make_directory(directory.id, &name.0, mode)?;
        Ok((Handle::new(id), attributes))
    }

    async fn remove(&self, directory: &Handle, name: &filename3<'_>) -> Result<(), nfsstat3> {
        self.0.remove(directory.id, &name.0, directory.hints.has(Hints::RMDIR))
    }

    async fn rename<'a>(
        &self,
        from: &Handle,
        from_name: &filename3<'a>,
        to: &Handle,
        to_name: &filename3<'a>,
    ) -> Result<(), nfsstat3> {
        self.0.rename(from.id, &from_name.0, to.id, &to_name.0)
    }

    async fn symlink<'a>(
        &self,
        directory: &Handle,
        name: &filename3<'a>,
        target: &nfspath3<'a>,
        _wanted: &sattr3,
    ) -> Result<(Handle, fattr3), nfsstat3> {
        let (id, attributes) = self.0.make_symlink(directory.id, &name.0, &target.0)?;
        Ok((Handle::new(id), attributes))
    }

    async fn commit(&self, file: &Handle, _offset: u64, _count: u32) -> Result<(), nfsstat3> {
        let (namespace, id) = (Arc::clone(&self.0), file.id);
        blocking(move || namespace.commit(id)).await
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, nfsstat3> + Send + 'static,
) -> Result<T, nfsstat3> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(nfsstat3::NFS3ERR_SERVERFAULT))
}
