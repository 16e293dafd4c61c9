//! Embedded stores: NFSv3 servers in this process, several over one shared directory with equal file handles.
//!
//! A [`Namespace`] is the tree; each [`serve`] adds one store over it, with an address and a
//! [device](DeviceSpec) of its own. NFS, MOUNT and a portmapper answer on the same TCP port. No privilege is
//! needed: data is read and written by path, with the rights of the user that runs the process.
//!
//! # Handles
//! 24 bytes, equal at all stores. [`HandleMode`] says where they come from, what is stable and for how long.
//! A file that was removed, also behind the stores' back, leaves a stale handle: a later file under the same path
//! or with the same inode number gets another.
//!
//! # What is ours around `nfs3_server`
//! The protocol is `nfs3_server`'s. A guard before it decodes every call first, gives calls XIDs of its
//! own, bounds what is outstanding, and mends what can be mended from outside: the mode of MKDIR, REMOVE apart
//! from RMDIR, atomic guarded CREATE, listings that go on while a directory changes, a write verifier that is
//! another at every start, FSSTAT and PATHCONF with the file system's values, an empty MOUNT DUMP.
//!
//! # Limits
//! A store takes 256 connections; one more is closed at once. A connection has at most 2,048 calls unanswered (192
//! of them with `nfs3_server`) and 32 MiB of calls and replies held; then the store reads no further until replies
//! have left. Records have at most 1,088 KiB. What is no RPC closes its connection. Files known and descriptors
//! open: [`NamespaceLimits`]. All are counted in [`StoreCounts`], or by [`Namespace::files`] and
//! [`Namespace::refused`].
//!
//! In inode mode a handle whose file is not where it was is looked for: in the directories that changed lately,
//! then by a walk of the tree, one at a time, which holds up the calls that wait for it. Searches rest for as long as
//! they took. A call waits up to five seconds for the end of a rest; only in trees whose walk takes longer than that,
//! and for files that are in none of the 64 directories that changed last, the answer can be `NFS3ERR_JUKEBOX`, upon
//! which most clients come back.
//!
//! `nfs3_server` logs ordinary NFS errors (a missing name, a full folder) as errors of its own; the filter
//! `nfs3_server=off` keeps them out of the log.
//!
//! # What is not served as a full server would
//! - LINK and MKNOD are answered `NFS3ERR_NOTSUPP`.
//! - ACCESS grants whatever is asked for, and credentials are not looked at beyond their form: all files belong
//!   to the user that runs the store, and the mode is checked by the client alone. SETATTR of an owner works
//!   where that user may.
//! - Replies to READDIR carry no attributes of the directory (READDIRPLUS and all others do).
//! - Retransmissions are not recognised: a repeated call runs again. The router in front sees to that.
//! - Metadata and data calls run on the runtime's threads, as they take microseconds on a local file system;
//!   COMMIT and stable WRITEs, which wait for the disk, and searches run on its blocking threads.

mod alarm;
mod attributes;
mod call;
mod changes;
mod device;
mod export;
mod files;
mod guard;
mod handle;
mod holding;
mod inner;
mod lateness;
mod listing;
mod namespace;
mod run;
mod scan;
mod table;
mod way;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clockwork_wire::mount::PATH_BYTES_MAX;
use clockwork_wire::nfs3::Procedure;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use self::alarm::now_ns;
use self::call::{Passed, Touch};
pub use self::device::{Device, DeviceError, DeviceSpec, Distribution, Kind};
use self::guard::{GuardError, guard};
pub use self::namespace::{HandleMode, Namespace, NamespaceLimits};
pub use self::run::{DeviceArgs, StoreArgs, run};
use self::way::Way;

/// Clients of one store at once, at the most; a further one is closed at once, and counted.
const CONNECTIONS_MAX: usize = 256;

/// One store.
#[derive(Debug, Clone)]
pub struct StoreSpec {
    /// What the store is called in logs.
    pub name: String,
    /// Where it listens; port 0 for any that is free.
    pub listen: SocketAddr,
    /// The path to mount, such as `/export`.
    pub export: String,
    /// The device in front of it.
    pub device: DeviceSpec,
    /// Decides the service times that the device draws.
    pub seed: u64,
}

/// Why a store cannot run.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The directory to export cannot be opened.
    #[error("cannot open the directory {path} for export; it must exist and be readable", path = path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The address cannot be listened on.
    #[error("store {name}: cannot listen on {listen}; is the port taken?")]
    Listen {
        /// The store.
        name: String,
        /// The address.
        listen: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The path to mount is none.
    #[error(
        "store {name}: export {export:?}: clients mount an absolute path of {max} bytes at the most, such as /export",
        max = PATH_BYTES_MAX
    )]
    Export {
        /// The store.
        name: String,
        /// What was to be the path.
        export: String,
    },
    /// The device cannot be.
    #[error("store {name}: its device cannot be")]
    Device {
        /// The store.
        name: String,
        /// What is wrong with it.
        source: DeviceError,
    },
}

/// What a store has counted since it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreCounts {
    /// Connections taken.
    pub connections: u64,
    /// Connections closed at once because `CONNECTIONS_MAX` clients were there.
    pub connections_refused: u64,
    /// Connections closed because what came was no RPC.
    pub connections_hostile: u64,
    /// Calls taken.
    pub calls: u64,
    /// Times that a client had to wait because its limit of calls or bytes was reached.
    pub waits: u64,
}

#[derive(Debug, Default)]
struct Counters {
    connections: AtomicU64,
    connections_refused: AtomicU64,
    connections_hostile: AtomicU64,
    calls: AtomicU64,
    waits: AtomicU64,
}

/// What all connections of a store share.
#[derive(Debug)]
struct Shared {
    name: String,
    port: u16,
    export: String,
    namespace: Arc<Namespace>,
    device: Mutex<Device>,
    way: Way,
    /// How long the call was here, in nanoseconds, whose reply left last after the device had worked on it.
    stay_ns: AtomicU64,
    /// Another at every start of every store.
    verifier: u64,
    counters: Counters,
    /// When a line about a closed connection may be logged again.
    log_again_ns: AtomicU64,
}

impl Shared {
    /// Of a store without a name, which nothing is known of.
    fn new(port: u16, export: String, namespace: Arc<Namespace>, device: DeviceSpec) -> Self {
        Self {
            name: String::new(),
            port,
            export,
            namespace,
            device: Mutex::new(Device::new(device, 0)),
            way: Way::default(),
            stay_ns: AtomicU64::new(0),
            verifier: 0,
            counters: Counters::default(),
            log_again_ns: AtomicU64::new(0),
        }
    }

    fn device(&self) -> MutexGuard<'_, Device> {
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn touch(&self, passed: &Passed) -> Touch {
        let wants_space = passed.procedure == Some(Procedure::Fsstat);
        Touch { verifier: self.verifier, space: if wants_space { self.namespace.space() } else { None } }
    }

    /// Counts why a connection ended, and says so once a second at the most.
    fn ended(&self, peer: SocketAddr, error: &GuardError) {
        let hostile = matches!(error, GuardError::Framing(_) | GuardError::NotACall);
        if !hostile {
            tracing::debug!(store = self.name, %peer, %error, "connection ended");
            return;
        }
        let count = self.counters.connections_hostile.fetch_add(1, Relaxed) + 1;
        let (now, again) = (now_ns(), self.log_again_ns.load(Relaxed));
        let next = now + 1_000_000_000;
        if now >= again && self.log_again_ns.compare_exchange(again, next, Relaxed, Relaxed).is_ok() {
            tracing::warn!(store = self.name, %peer, %error, count, "closed a connection that is no NFS client's");
        }
    }
}

/// A store that runs until it is stopped or dropped.
#[derive(Debug)]
pub struct RunningStore {
    /// Where it listens.
    pub address: SocketAddr,
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    accepting: tokio::task::JoinHandle<()>,
}

impl RunningStore {
    /// Closes the port and all connections, replies outstanding included, as a crash would.
    pub async fn stop(self) {
        let _ = self.stop.send(true);
        // Ends with the accept loop; an error would be a panic there, which has been reported.
        let _ = self.accepting.await;
    }

    /// What has been counted.
    pub fn counts(&self) -> StoreCounts {
        let counters = &self.shared.counters;
        StoreCounts {
            connections: counters.connections.load(Relaxed),
            connections_refused: counters.connections_refused.load(Relaxed),
            connections_hostile: counters.connections_hostile.load(Relaxed),
            calls: counters.calls.load(Relaxed),
            waits: counters.waits.load(Relaxed),
        }
    }
}

/// Starts a store over a namespace, within a tokio runtime.
///
/// # Errors
/// [`StoreError::Device`] where the device cannot be, [`StoreError::Export`] where the path to mount is none,
/// [`StoreError::Listen`] where the address is taken.
pub async fn serve(spec: StoreSpec, namespace: Arc<Namespace>) -> Result<RunningStore, StoreError> {
    let StoreSpec { name, listen, export, device, seed } = spec;
    device.check().map_err(|source| StoreError::Device { name: name.clone(), source })?;
    if !export.starts_with('/') || export.contains('\0') || export.len() > PATH_BYTES_MAX as usize {
        return Err(StoreError::Export { name, export });
    }
    let failed = |source| StoreError::Listen { name: name.clone(), listen, source };
    let listener = TcpListener::bind(listen).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let way = if device.is_none() { Way::default() } else { Way::measured(&namespace).await };
    let watched = !device.is_none();
    let shared = Arc::new(Shared {
        device: Mutex::new(Device::new(device, xxh3_64_with_seed(name.as_bytes(), seed))),
        way,
        verifier: xxh3_64_with_seed(name.as_bytes(), rand::random()),
        name,
        ..Shared::new(address.port(), export, namespace, device)
    });
    let (stop, stopped) = watch::channel(false);
    let accepting = tokio::spawn(accept(listener, Arc::clone(&shared), watched, stopped));
    Ok(RunningStore { address, shared, stop, accepting })
}

async fn accept(
    listener: TcpListener,
    shared: Arc<Shared>,
    watched: bool,
    mut stopped: watch::Receiver<bool>,
) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = tokio::task::JoinSet::new();
    if watched {
        connections.spawn(way::watch(Arc::clone(&shared)));
    }
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_ended) = connections.join_next() => continue,
            // Also when the `RunningStore` is dropped.
            _ = stopped.changed() => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, mostly: those that others close are waited for.
                tracing::warn!(store = shared.name, %error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&room).try_acquire_owned() else {
            shared.counters.connections_refused.fetch_add(1, Relaxed);
            continue;
        };
        shared.counters.connections.fetch_add(1, Relaxed);
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let _permit = permit;
            if let Err(error) = guard(stream, Arc::clone(&shared)).await {
                shared.ended(peer, &error);
            }
        });
    }
    connections.shutdown().await;
}
