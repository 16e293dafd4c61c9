//! A plex over a temporary folder, and its clients.

use clockwork_router::config::{
    Admin, Config, Control, ControlMode, DuplicateCache, Export, ExportPath, Health, Heat, History, Limits,
    Listen, Log, Routing, Store,
};
use clockwork_router::plex::Plex;
use clockwork_router::store::{DeviceSpec, HandleMode, Namespace, RunningStore, StoreSpec, serve};
use clockwork_router::web::PlexControl as _;
use clockwork_router::web::types::{Status, StoreStatus};
use fstress_replay::client::{Client, Options, Transport, nfs};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest wait for anything, for a machine that is busy with other things.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// Time between two probes of a store.
pub(crate) const INTERVAL: Duration = Duration::from_millis(100);

/// Time after which a probe has failed: long, so that a store on a busy machine is not taken for dead. (A dead one
/// refuses connections, which shows at once.)
const TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// A store over a namespace.
pub(crate) async fn store(name: &str, namespace: &Arc<Namespace>) -> RunningStore {
    store_at(name, namespace, loopback(0)).await
}

pub(crate) async fn store_at(name: &str, namespace: &Arc<Namespace>, listen: SocketAddr) -> RunningStore {
    let (name, export) = (name.to_owned(), "/export".to_owned());
    let spec = StoreSpec { name, listen, export, device: DeviceSpec::default(), seed: 1 };
    serve(spec, Arc::clone(namespace)).await.unwrap()
}

/// How a plex names a store that is embedded.
pub(crate) fn embedded(name: &str, address: SocketAddr) -> Store {
    Store {
        duplicate_cache: DuplicateCache::None,
        privileged_port: false,
        ..Store::new(name, address.into())
    }
}

/// A configuration with one export for loopback, two shards, quick probes, and nothing kept.
pub(crate) fn config(stores: Vec<Store>) -> Config {
    let clients = vec!["127.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()];
    Config {
        listen: Listen {
            addresses: vec![loopback(0)],
            tcp: true,
            udp: true,
            portmapper: None,
            shards: NonZeroUsize::new(2),
        },
        admin: Admin { listen: None, allow_remote: false },
        stores,
        exports: vec![Export { path: ExportPath::parse("/export").unwrap(), clients, secure: false }],
        routing: Routing::default(),
        limits: Limits::default(),
        health: Health { interval: INTERVAL, timeout: TIMEOUT, failures: 3, successes: 2 },
        heat: Heat::default(),
        history: History { path: None, ..History::default() },
        control: Control { mode: ControlMode::Off, ..Control::default() },
        log: Log::default(),
    }
}

/// A folder, stores named `a`, `b` ... over it, and a plex of them.
pub(crate) struct Site {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) namespace: Arc<Namespace>,
    pub(crate) stores: Vec<Option<RunningStore>>,
    pub(crate) plex: Plex,
}

impl Site {
    pub(crate) async fn start(stores: usize) -> Self {
        Self::with(stores, |_| {}).await
    }

    pub(crate) async fn with(stores: usize, change: impl FnOnce(&mut Config)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let namespace = Namespace::open(folder.path(), HandleMode::Path { seed: 42 }).unwrap();
        let mut running = Vec::new();
        let mut named = Vec::new();
        for name in ["a", "b", "c", "d"].into_iter().take(stores) {
            let store = store(name, &namespace).await;
            named.push(embedded(name, store.address));
            running.push(Some(store));
        }
        let mut config = config(named);
        change(&mut config);
        let plex = Plex::start(config, false).await.unwrap();
        let site = Self { folder, namespace, stores: running, plex };
        site.wait("all stores up", |status| status.stores.iter().all(|s| s.state.word() != "down")).await;
        site
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.plex.addresses()[0]
    }

    pub(crate) async fn client(&self, transport: Transport) -> Client {
        client(self.address(), transport).await
    }

    /// Waits until the status is as wanted.
    pub(crate) async fn wait(&self, what: &str, wanted: impl Fn(&Status) -> bool) -> Status {
        wait_for(&self.plex, what, wanted).await
    }

    /// Kills a store, as a crash would.
    pub(crate) async fn kill(&mut self, store: usize) {
        self.stores[store].take().unwrap().stop().await;
    }

    /// A file in the root folder that the default rule gives to this store.
    pub(crate) async fn file_of(&self, client: &Client, root: &[u8], store: &str) -> (String, nfs::Handle) {
        for number in 0..200 {
            let name = format!("{store}-{number}");
            let handle = nfs::create(client, root, &name).await.unwrap();
            if self.serves(&handle).await == store {
                return (name, handle);
            }
        }
        panic!("no file of 200 is served by {store}");
    }

    /// The store that serves a file, asked of the plex by assigning and giving back.
    async fn serves(&self, handle: &[u8]) -> String {
        use clockwork_router::web::types::{Assign, FileName};
        let file = FileName::Handle(clockwork_router::web::handle_text(handle));
        let assign =
            Assign { file: file.clone(), store: "a".into(), also: Vec::new(), reason: String::new() };
        let moved = self.plex.assign(assign).await.unwrap();
        self.plex.unassign(file).await.unwrap();
        moved.from.unwrap()
    }
}

pub(crate) async fn client(address: SocketAddr, transport: Transport) -> Client {
    let options = Options { transport, connections: 1, call_timeout: PATIENCE, ..Options::default() };
    Client::connect(address, options).await.unwrap()
}

pub(crate) async fn wait_for(plex: &Plex, what: &str, wanted: impl Fn(&Status) -> bool) -> Status {
    let begin = Instant::now();
    loop {
        let status = plex.status().await;
        if wanted(&status) {
            return status;
        }
        assert!(begin.elapsed() < PATIENCE, "waited for {what}: {status:#?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(crate) fn named<'s>(status: &'s Status, store: &str) -> &'s StoreStatus {
    status.stores.iter().find(|known| known.name == store).unwrap()
}

pub(crate) fn counter(status: &Status, name: &str) -> u64 {
    status.counters.iter().find(|counter| counter.name == name).unwrap().value
}
