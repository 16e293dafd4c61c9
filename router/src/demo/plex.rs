//! The demo's plex: four embedded stores over one directory, and a router in front.

use crate::config::{
    Admin, Config, Control, DuplicateCache, Export, ExportPath, Health, Heat, History, Limits, Listen, Log,
    Routing, Store,
};
use crate::plex::Plex;
use crate::store::{self, DeviceSpec, Distribution, Namespace, RunningStore, StoreSpec};
use crate::web;
use anyhow::Context as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// What clients mount.
pub(crate) const EXPORT: &str = "/export";
/// Where the demo listens if nobody else does; otherwise on a port of the kernel's choice.
const PORT: u16 = 12_049;

/// Speeds of the stores: unlike, and tight. As a whole they can carry the day, but a quarter of it is more than the slowest
/// can bear well.
pub(crate) const STORES: [(&str, f64); 4] = [("slow", 1.0), ("steady", 1.2), ("brisk", 1.5), ("fast", 2.0)];
/// Calls that a store's device works on at once.
pub(crate) const SERVERS: u32 = 2;
/// Mean service time of a call at speed 1, in microseconds; a READ's data comes on top.
pub(crate) const SERVICE_US: f64 = 3_000.0;
const READ_US_PER_KIB: f64 = 12.0;
/// How service times spread: coefficient of variation.
pub(crate) const SERVICE_CV: f64 = 0.5;
/// With a quarter of all calls the slowest store is this busy in the peak hour.
const PEAK_UTILISATION: f64 = 0.92;

/// NFS calls a second of the whole day's peak hour.
pub(crate) fn peak_calls_per_second() -> f64 {
    STORES.len() as f64 * PEAK_UTILISATION * capacity_calls_per_second(1.0)
}

/// Calls without data that a store of this speed can answer in a second.
pub(crate) fn capacity_calls_per_second(speed: f64) -> f64 {
    f64::from(SERVERS) * 1e6 / SERVICE_US * speed
}

/// The device of a store of this speed.
fn device(speed: f64) -> DeviceSpec {
    DeviceSpec {
        servers: SERVERS,
        metadata_us: SERVICE_US / speed,
        read_us: SERVICE_US / speed,
        read_us_per_kib: READ_US_PER_KIB / speed,
        write_us: SERVICE_US / speed,
        write_us_per_kib: READ_US_PER_KIB / speed,
        distribution: Distribution::Lognormal { cv: SERVICE_CV },
    }
}

/// What a plex of the demo is like.
pub(crate) struct DemoSpec<'a> {
    /// Folder of its history.
    pub(crate) history: &'a Path,
    /// Length of its periods, which close on the clock.
    pub(crate) period: Duration,
    /// What its controller may do.
    pub(crate) control: Control,
    /// Key of the default rule and of the devices.
    pub(crate) seed: u64,
}

/// A running demo.
pub(crate) struct DemoPlex {
    plex: Arc<Plex>,
    stores: Vec<RunningStore>,
}

impl DemoPlex {
    /// Starts the stores over `namespace`, and the router.
    pub(crate) async fn start(spec: &DemoSpec<'_>, namespace: &Arc<Namespace>) -> anyhow::Result<Self> {
        let mut stores = Vec::new();
        for (name, speed) in STORES {
            let spec = StoreSpec {
                name: name.into(),
                listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
                export: EXPORT.into(),
                device: device(speed),
                seed: spec.seed,
            };
            stores.push(store::serve(spec, Arc::clone(namespace)).await?);
        }
        let addresses: Vec<SocketAddr> = stores.iter().map(|store| store.address).collect();
        let plex = Plex::start(config(spec, &addresses, free_port())?, true).await;
        let plex = Arc::new(plex.context("the demo's router cannot start")?);
        for (name, health) in plex.stores() {
            anyhow::ensure!(
                health == crate::plex::Health::Up,
                "the demo's store {name} is not in use: {health:?}"
            );
        }
        Ok(Self { plex, stores })
    }

    pub(crate) fn plex(&self) -> &Arc<Plex> {
        &self.plex
    }

    /// Where clients reach it.
    pub(crate) fn address(&self) -> SocketAddr {
        self.plex
            .addresses()
            .first()
            .copied()
            .unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)))
    }

    /// How a Linux machine mounts it.
    pub(crate) fn mount_command(&self) -> String {
        let (ip, port) = (self.address().ip(), self.address().port());
        format!(
            "mount -t nfs -o vers=3,proto=tcp,port={port},mountport={port},mountproto=tcp,nolock {ip}:{EXPORT} /mnt"
        )
    }

    /// Leaves the plex up, with its admin interface, until an interrupt.
    pub(crate) async fn keep_running(&self) -> anyhow::Result<()> {
        // The port may be another plex's.
        let listener = match self.plex.config().admin.listen {
            Some(address) => tokio::net::TcpListener::bind(address).await.ok(),
            None => None,
        };
        super::show::keep_running(self, listener.as_ref().and_then(|listener| listener.local_addr().ok()));
        if let Some(listener) = listener {
            tokio::spawn(web::serve(listener, Arc::clone(&self.plex), std::future::pending()));
        }
        tokio::signal::ctrl_c().await?;
        Ok(())
    }

    pub(crate) async fn stop(self) {
        self.plex.stop();
        for store in self.stores {
            store.stop().await;
        }
    }
}

/// The demo's port, if nobody else listens there. The router's own listeners would share it with another demo's, and each
/// would get some of the other's calls.
fn free_port() -> u16 {
    let free = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, PORT)).is_ok();
    if free { PORT } else { 0 }
}

fn config(spec: &DemoSpec<'_>, stores: &[SocketAddr], port: u16) -> anyhow::Result<Config> {
    let path = ExportPath::parse(EXPORT).context("the demo's export path")?;
    let store = |((name, _), address): ((&str, f64), &SocketAddr)| Store {
        duplicate_cache: DuplicateCache::None,
        privileged_port: false,
        ..Store::new(name, (*address).into())
    };
    Ok(Config {
        listen: Listen {
            addresses: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port))],
            ..Listen::default()
        },
        admin: Admin::default(),
        stores: STORES.into_iter().zip(stores).map(store).collect(),
        exports: vec![Export { path, clients: vec!["127.0.0.0/8".parse()?], secure: false }],
        routing: Routing { seed: spec.seed },
        limits: Limits::default(),
        health: Health::default(),
        heat: Heat { period: spec.period },
        history: History { path: Some(spec.history.to_owned()), ..History::default() },
        control: Control { day_periods: Some(24), ..spec.control.clone() },
        log: Log::default(),
    })
}
