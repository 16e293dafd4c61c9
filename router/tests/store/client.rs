//! The clients of these tests: `nfs3_client` for files, and bytes over a socket for what no client would send.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clockwork_router::store::{DeviceSpec, HandleMode, Namespace, RunningStore, StoreSpec, serve};
use clockwork_wire::{record, rpc};
use nfs3_client::tokio::{TokioConnector, TokioIo};
use nfs3_client::{Nfs3Connection, Nfs3ConnectionBuilder};
use nfs3_types::nfs3::*;
use nfs3_types::xdr_codec::{Opaque, Pack};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) async fn store(name: &str, namespace: &Arc<Namespace>, device: DeviceSpec) -> RunningStore {
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let (name, export) = (name.to_owned(), "/export".to_owned());
    serve(StoreSpec { name, listen, export, device, seed: 1 }, Arc::clone(namespace)).await.unwrap()
}

pub(crate) fn by_path(directory: &Path) -> Arc<Namespace> {
    Namespace::open(directory, HandleMode::Path { seed: 42 }).unwrap()
}

pub(crate) struct Client {
    pub(crate) nfs: Nfs3Connection<TokioIo<TcpStream>>,
    pub(crate) root: nfs_fh3,
}

pub(crate) fn name(name: &str) -> filename3<'_> {
    filename3(Opaque::borrowed(name.as_bytes()))
}

fn place<'a>(dir: &nfs_fh3, at: &'a str) -> diropargs3<'a> {
    diropargs3 { dir: dir.clone(), name: name(at) }
}

/// The status of a result, or what it holds.
pub(crate) fn status<T, E>(result: Nfs3Result<T, E>) -> Result<T, nfsstat3> {
    match result {
        Nfs3Result::Ok(value) => Ok(value),
        Nfs3Result::Err((status, _)) => Err(status),
    }
}

pub(crate) fn some<T: Pack + nfs3_types::xdr_codec::Unpack>(value: Nfs3Option<T>) -> T {
    match value {
        Nfs3Option::Some(value) => value,
        Nfs3Option::None => panic!("the reply leaves it out"),
    }
}

impl Client {
    pub(crate) async fn mount(store: &RunningStore) -> Self {
        let port = store.address.port();
        let nfs = Nfs3ConnectionBuilder::new(TokioConnector, store.address.ip().to_string(), "/export")
            .connect_from_privileged_port(false)
            .mount_port(port)
            .nfs3_port(port)
            .mount()
            .await
            .unwrap();
        let root = nfs.root_nfs_fh3();
        Self { nfs, root }
    }

    pub(crate) async fn create(
        &mut self,
        dir: &nfs_fh3,
        at: &str,
        how: createhow3,
    ) -> Result<nfs_fh3, nfsstat3> {
        let made = self.nfs.create(&CREATE3args { where_: place(dir, at), how }).await.unwrap();
        status(made).map(|made| some(made.obj))
    }

    pub(crate) async fn make(&mut self, dir: &nfs_fh3, at: &str) -> nfs_fh3 {
        self.create(dir, at, createhow3::UNCHECKED(sattr3::default())).await.unwrap()
    }

    pub(crate) async fn mkdir(&mut self, dir: &nfs_fh3, at: &str, mode: u32) -> Result<nfs_fh3, nfsstat3> {
        let attributes = sattr3 { mode: Nfs3Option::Some(mode), ..sattr3::default() };
        let made = self.nfs.mkdir(&MKDIR3args { where_: place(dir, at), attributes }).await.unwrap();
        status(made).map(|made| some(made.obj))
    }

    pub(crate) async fn symlink(&mut self, dir: &nfs_fh3, at: &str, target: &str) -> nfs_fh3 {
        let symlink = symlinkdata3 {
            symlink_attributes: sattr3::default(),
            symlink_data: nfspath3(Opaque::borrowed(target.as_bytes())),
        };
        let made = self.nfs.symlink(&SYMLINK3args { where_: place(dir, at), symlink }).await.unwrap();
        some(status(made).unwrap().obj)
    }

    pub(crate) async fn lookup(&mut self, dir: &nfs_fh3, at: &str) -> Result<nfs_fh3, nfsstat3> {
        let found = self.nfs.lookup(&LOOKUP3args { what: place(dir, at) }).await.unwrap();
        status(found).map(|found| found.object)
    }

    pub(crate) async fn getattr(&mut self, file: &nfs_fh3) -> Result<fattr3, nfsstat3> {
        let found = self.nfs.getattr(&GETATTR3args { object: file.clone() }).await.unwrap();
        status(found).map(|found| found.obj_attributes)
    }

    pub(crate) async fn setattr(&mut self, file: &nfs_fh3, new_attributes: sattr3) -> Result<(), nfsstat3> {
        let args = SETATTR3args { object: file.clone(), new_attributes, guard: Nfs3Option::None };
        status(self.nfs.setattr(&args).await.unwrap()).map(|_| ())
    }

    pub(crate) async fn write(
        &mut self,
        file: &nfs_fh3,
        offset: u64,
        data: &[u8],
        stable: stable_how,
    ) -> Result<WRITE3resok, nfsstat3> {
        let args = WRITE3args {
            file: file.clone(),
            offset,
            count: u32::try_from(data.len()).unwrap(),
            stable,
            data: Opaque::borrowed(data),
        };
        status(self.nfs.write(&args).await.unwrap())
    }

    pub(crate) async fn read(
        &mut self,
        file: &nfs_fh3,
        offset: u64,
        count: u32,
    ) -> Result<(Vec<u8>, bool), nfsstat3> {
        let args = READ3args { file: file.clone(), offset, count };
        status(self.nfs.read(&args).await.unwrap()).map(|read| (read.data.into_owned(), read.eof))
    }

    pub(crate) async fn remove(&mut self, dir: &nfs_fh3, at: &str) -> Result<(), nfsstat3> {
        status(self.nfs.remove(&REMOVE3args { object: place(dir, at) }).await.unwrap()).map(|_| ())
    }

    pub(crate) async fn rmdir(&mut self, dir: &nfs_fh3, at: &str) -> Result<(), nfsstat3> {
        status(self.nfs.rmdir(&RMDIR3args { object: place(dir, at) }).await.unwrap()).map(|_| ())
    }

    pub(crate) async fn rename(
        &mut self,
        from: (&nfs_fh3, &str),
        to: (&nfs_fh3, &str),
    ) -> Result<(), nfsstat3> {
        let args = RENAME3args { from: place(from.0, from.1), to: place(to.0, to.1) };
        status(self.nfs.rename(&args).await.unwrap()).map(|_| ())
    }
}

/// A connection on which any bytes can be sent.
pub(crate) struct Raw(pub(crate) TcpStream);

impl Raw {
    pub(crate) async fn connect(store: &RunningStore) -> Self {
        Self(TcpStream::connect(store.address).await.unwrap())
    }

    /// A NFSv3 call as one record.
    pub(crate) fn call(xid: u32, procedure: u32, arguments: &impl Pack) -> Vec<u8> {
        let mut call = vec![0; 4];
        rpc::begin_call(&mut call, xid, 100_003, 3, procedure, &rpc::AUTH_NONE_CREDENTIAL);
        arguments.pack(&mut call).unwrap();
        let mark = record::mark(call.len() - 4);
        call[..4].copy_from_slice(&mark);
        call
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.unwrap();
    }

    /// The next reply without its mark, or `None` where the store has closed.
    pub(crate) async fn reply(&mut self) -> Option<Vec<u8>> {
        let read = async {
            let mut mark = [0; 4];
            self.0.read_exact(&mut mark).await.ok()?;
            let length = u32::from_be_bytes(mark) & !record::LAST_FRAGMENT;
            let mut reply = vec![0; usize::try_from(length).unwrap()];
            self.0.read_exact(&mut reply).await.ok()?;
            Some(reply)
        };
        tokio::time::timeout(Duration::from_secs(20), read).await.expect("no reply within 20 s")
    }
}
