//! The plex as a whole: stores surveyed and watched, shards running, periods closed and kept.

mod coherence;
mod control;
mod desk;
mod health;
mod kept;
mod mounting;
mod moves;
mod periods;
mod state;
mod status;
mod survey;
mod weights;

pub use moves::{Applied, Change};
pub use state::{By, Exception, Health, ReadShare};
pub use survey::SurveyError;

use crate::config::{Config, ControlMode, DuplicateCache, Store, StoreAddress, Transport};
use crate::control as control_loop;
use crate::exports::{Exports, MountList, MountService};
use crate::heat::{HeatLimits, PeriodRecord, Recorder};
use crate::history::{History, HistoryError, HistoryLimits};
use crate::net::{self, LinkSpec, ListenError, PortmapCounts, ShardHandle, ShardSpec, ShardStatus};
use arc_swap::ArcSwap;
use clockwork_placement::{StoreEntry, StoreState, Table, TableError};
use clockwork_switch::duplicates::DuplicateLimits;
use clockwork_switch::pins::PinLimits;
use clockwork_switch::{Shared, SharedLimits, StoreFacts, SwitchLimits};
use clockwork_wire::record::RecordLimits;
use desk::PlexDesk;
pub(crate) use kept::Keeper;
pub(crate) use moves::move_files;
pub(crate) use periods::{Measured, unix_ms};
pub(crate) use state::State;
use state::{StoreMark, Wanted, id};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant, SystemTime};
use tokio::task::JoinHandle;

/// How long the start waits for the stores' first answers.
const STORES_WAIT: Duration = Duration::from_secs(10);
/// How often files are tried again that could not be moved because they were pinned.
const SETTLE: Duration = Duration::from_millis(200);

/// Why a plex cannot start.
#[derive(Debug, thiserror::Error)]
pub enum PlexError {
    /// A socket cannot be had.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A store's host name means nothing.
    #[error("store `{store}`: its address {address} cannot be resolved: {source}")]
    Resolve {
        /// The store.
        store: String,
        /// Its address as configured.
        address: StoreAddress,
        /// What the resolver said.
        source: std::io::Error,
    },
    /// The stores make no table.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The history cannot be opened.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// A thread cannot be started.
    #[error("cannot start a shard: {0}")]
    Shard(std::io::Error),
}

/// A running plex.
pub struct Plex {
    state: Arc<State>,
    measured: Arc<Measured>,
    addresses: Vec<SocketAddr>,
    tasks: Vec<JoinHandle<()>>,
    connections: Arc<AtomicUsize>,
    started: (SystemTime, Instant),
    /// What an operator should know of the start as long as the plex runs.
    start_alarms: Vec<String>,
    keeper: Arc<Keeper>,
    control: Arc<control_loop::Desk>,
    portmap: Arc<PortmapCounts>,
}

impl Plex {
    /// Starts a plex; returns when its stores have answered, or have had the time to. `clocked`: periods close on the
    /// clock; otherwise only [`Plex::close_period`] closes them.
    ///
    /// # Errors
    /// When it cannot listen or resolve, or another process has its history open. A store that does not answer is no error: it
    /// is let in when it does. A history that the system does not let it use is none either: it serves without one, an alarm
    /// says so, and the controller moves nothing.
    pub async fn start(mut config: Config, clocked: bool) -> Result<Self, PlexError> {
        let mut start_alarms: Vec<String> = warn_of_ports(&config).into_iter().collect();
        let shards = config.shards().get();
        let listen = &config.listen;
        let (listeners, addresses) = net::listen(&listen.addresses, shards, listen.tcp, listen.udp)?;
        let (history, why_none) = match config.history.path.clone() {
            Some(path) => open_or_go_without(&path, &mut config, &mut start_alarms)?,
            None => (None, None),
        };
        if let Some(history) = &history {
            start_alarms.extend(warn_of_imports(history, &config)?);
        }
        let state = Arc::new(make_state(config).await?);
        if let Some(history) = &history {
            start_alarms.extend(kept::restore(history, &state.config, &mut state.wanted())?);
        }
        let keeper = Arc::new(Keeper::new(history.clone(), why_none));
        let measured = Arc::new(Measured::new(state.config.limits.names_max, history));
        let control =
            Arc::new(control_loop::Desk::new(Arc::clone(&state), Arc::clone(&measured), Arc::clone(&keeper)));
        let connections = Arc::new(AtomicUsize::new(0));
        let specs = shard_specs(&state, listeners, &connections);
        let running = net::spawn(specs).map_err(PlexError::Shard)?;
        // Set once, here.
        let _ = state.shards.set(running);
        let mut plex = Self {
            state,
            measured,
            addresses,
            tasks: Vec::new(),
            connections,
            started: (SystemTime::now(), Instant::now()),
            start_alarms,
            keeper,
            control,
            portmap: Arc::default(),
        };
        plex.serve_portmapper()?;
        plex.watch_stores().await;
        let state = Arc::clone(&plex.state);
        plex.tasks.push(tokio::spawn(async move {
            loop {
                tokio::time::sleep(SETTLE).await;
                state.settle();
            }
        }));
        let keeper = Arc::clone(&plex.keeper);
        plex.tasks.push(tokio::spawn(keeper.keep_trying(Arc::clone(&plex.state))));
        if plex.state.config.control.mode != ControlMode::Off {
            plex.tasks
                .push(tokio::spawn(control_loop::run(Arc::clone(&plex.control), plex.measured.subscribe())));
        }
        if clocked {
            plex.tasks.push(tokio::spawn(Arc::clone(&plex.measured).run(Arc::clone(&plex.state))));
        }
        Ok(plex)
    }

    /// Starts the portmapper, if there is to be one.
    fn serve_portmapper(&mut self) -> Result<(), ListenError> {
        let listen = &self.state.config.listen;
        let Some(address) = listen.portmapper else { return Ok(()) };
        let sockets = net::bind_portmapper(address)?;
        let mappings = net::served(&self.addresses, listen.tcp, listen.udp, sockets.address);
        let state = Arc::clone(&self.state);
        let knows = move |peer| state.mounts.load().exports().knows(peer);
        self.tasks.push(tokio::spawn(net::serve_portmapper(
            sockets,
            mappings,
            knows,
            Arc::clone(&self.portmap),
        )));
        Ok(())
    }

    async fn watch_stores(&mut self) {
        let (decided, mut count) = tokio::sync::watch::channel(0);
        let stores = self.state.config.stores.len();
        for store in 0..stores {
            let watching = health::watch_store(Arc::clone(&self.state), store, decided.clone());
            self.tasks.push(tokio::spawn(watching));
        }
        // Those that are late are let in later.
        let _ = tokio::time::timeout(STORES_WAIT, count.wait_for(|count| *count == stores)).await;
    }

    /// Where clients reach the plex.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Its configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.state.config
    }

    /// What is known of each store.
    #[must_use]
    pub fn stores(&self) -> Vec<(String, Health)> {
        let wanted = self.state.wanted();
        wanted
            .stores
            .iter()
            .zip(&self.state.config.stores)
            .map(|(m, s)| (s.name.clone(), m.health.clone()))
            .collect()
    }

    /// Closes the period and returns what was measured in it.
    pub async fn close_period(&self) -> Arc<PeriodRecord> {
        self.measured.close(&self.state).await
    }

    /// The last closed periods, at most so many, the oldest first; from memory, which has 48 of them.
    #[must_use]
    pub fn recent(&self, count: usize) -> Vec<Arc<PeriodRecord>> {
        self.measured.recent(count)
    }

    /// What the controller does and has decided last.
    #[must_use]
    pub fn control_state(&self) -> control_loop::ControlState {
        self.control.state()
    }

    /// The controller's last decisions, at most so many, the oldest first.
    #[must_use]
    pub fn decisions(&self, count: usize) -> Vec<Arc<control_loop::Decided>> {
        self.control.decisions(count)
    }

    /// The shards' states.
    pub async fn shards(&self) -> Vec<ShardStatus> {
        let mut all = Vec::new();
        for shard in self.state.shards.get().into_iter().flatten() {
            all.extend(shard.status().await);
        }
        all
    }

    /// Ends the plex and keeps the open period.
    pub async fn finish(&self) {
        {
            // The clock must not be stopped in the middle of a period that is being kept.
            let _quiet = self.measured.quiet().await;
            for task in &self.tasks {
                task.abort();
            }
        }
        self.close_period().await;
        self.stop();
    }

    /// Ends the plex: no more calls are taken.
    pub fn stop(&self) {
        for task in &self.tasks {
            task.abort();
        }
        for shard in self.state.shards.get().into_iter().flatten() {
            ShardHandle::stop(shard);
        }
    }
}

impl Drop for Plex {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Serving files does not depend on the history: where the system does not let it be used, as on a disk that is full or read-only,
/// there is none until the next start, and what it has is left as it is. The text says why there is none.
fn open_or_go_without(
    path: &std::path::Path,
    config: &mut Config,
    alarms: &mut Vec<String>,
) -> Result<(Option<Arc<History>>, Option<String>), HistoryError> {
    let error = match open_history(path, config, alarms) {
        Ok(history) => return Ok((Some(history), None)),
        Err(error @ (HistoryError::InUse { .. } | HistoryError::NotAHistory { .. })) => return Err(error),
        Err(error) => error,
    };
    let mut alarm = format!(
        "{error}. Files are served without a history: those that were assigned follow the default rule, stores that were \
         drained serve again, learnt weights are not in force, and nothing from now on outlives a restart. "
    );
    if config.control.mode == ControlMode::Control {
        // It would not know which files are its own to move.
        config.control.mode = ControlMode::Advise;
        alarm.push_str("The controller advises and moves nothing. ");
    }
    alarm.push_str("What the history has is left as it is: mend this and restart the router");
    tracing::error!("{alarm}");
    alarms.push(alarm);
    Ok((None, Some(error.to_string())))
}

fn open_history(
    path: &std::path::Path,
    config: &Config,
    alarms: &mut Vec<String>,
) -> Result<Arc<History>, HistoryError> {
    let limits =
        HistoryLimits { periods_max: config.history.periods_max, bytes_max: config.history.bytes_max };
    let opened = History::open(path, limits)?;
    if let Some(moved) = &opened.moved_aside {
        tracing::error!("{moved}");
        alarms.push(moved.to_string());
    }
    Ok(Arc::new(opened.history))
}

/// Where there is a controller, it has no use for imported periods that are longer than its own.
fn warn_of_imports(history: &History, config: &Config) -> Result<Option<String>, HistoryError> {
    if config.control.mode == ControlMode::Off {
        return Ok(None);
    }
    let period_ms = u64::try_from(config.heat.period.as_millis()).unwrap_or(u64::MAX).max(1);
    let warning = control_loop::unused_imports(&history.imported()?, period_ms);
    if let Some(warning) = &warning {
        tracing::warn!("{warning}");
    }
    Ok(warning)
}

/// Stores that export with `secure` want calls from a port below 1024.
fn warn_of_ports(config: &Config) -> Option<String> {
    let wanted: Vec<&str> =
        config.stores.iter().filter(|store| store.privileged_port).map(|store| store.name.as_str()).collect();
    if wanted.is_empty() || net::may_bind_reserved_port() {
        return None;
    }
    let warning = format!(
        "this process may not use ports below 1024 (capability CAP_NET_BIND_SERVICE): stores that export with `secure` \
         refuse its calls; give it the capability, or set `privileged_port = false` for {} where a store takes any port",
        wanted.join(", ")
    );
    tracing::warn!("{warning}");
    Some(warning)
}

async fn make_state(config: Config) -> Result<State, PlexError> {
    let mut addresses = Vec::new();
    for store in &config.stores {
        addresses.push(resolve(store).await?);
    }
    // Nothing is known of the stores yet, so nothing is routed to them.
    let entries = config.stores.iter().map(|store| StoreEntry {
        name: store.name.clone(),
        weight: store.weight,
        state: StoreState::Drained,
    });
    let table = Table::new(config.routing.seed, entries.collect())?;
    let limits = &config.limits;
    let shared_limits = SharedLimits {
        duplicates: DuplicateLimits {
            bytes_max: limits.duplicate_bytes_max,
            age_min: limits.duplicate_age,
            ..DuplicateLimits::default()
        },
        pins: PinLimits { pins_max: limits.pins_max, age_max: limits.pin_age },
        listing_verifiers_max: limits.listing_verifiers_max,
    };
    let shards = config.shards().get();
    let facts = config.stores.iter().map(|store| store_facts(store, shards)).collect();
    let shared = Shared::new(table, facts, shared_limits, rand::random());
    let exports = Arc::new(Exports::new(&config.exports));
    let mounts = MountService::new(exports, Vec::new(), Arc::new(MountList::new(limits.mounts_max)));
    let wanted = Wanted { stores: vec![StoreMark::default(); config.stores.len()], ..Wanted::default() };
    Ok(State {
        addresses,
        shared: Arc::new(shared),
        mounts: ArcSwap::from_pointee(mounts),
        mounting: Arc::default(),
        shards: OnceLock::new(),
        wanted: Mutex::new(wanted),
        admission: tokio::sync::Mutex::new(()),
        config,
    })
}

fn store_facts(store: &Store, shards: usize) -> StoreFacts {
    let transport = match store.transport {
        Transport::Tcp => clockwork_switch::Transport::Stream,
        Transport::Udp => clockwork_switch::Transport::Datagram,
    };
    let duplicate_cache = match store.duplicate_cache {
        DuplicateCache::Address => clockwork_switch::DuplicateCache::Address,
        DuplicateCache::None => clockwork_switch::DuplicateCache::None,
    };
    let calls_max = u32::try_from(store.calls_max / shards).unwrap_or(u32::MAX).max(1);
    StoreFacts::new(&store.name, transport, duplicate_cache, calls_max)
}

async fn resolve(store: &Store) -> Result<SocketAddr, PlexError> {
    let failed =
        |source| PlexError::Resolve { store: store.name.clone(), address: store.address.clone(), source };
    let mut found =
        tokio::net::lookup_host((store.address.host(), store.address.port())).await.map_err(failed)?;
    found.next().ok_or_else(|| failed(std::io::ErrorKind::NotFound.into()))
}

fn shard_specs(
    state: &Arc<State>,
    listeners: Vec<net::Listeners>,
    connections: &Arc<AtomicUsize>,
) -> Vec<ShardSpec> {
    let config = &state.config;
    let shards = listeners.len();
    let limits = SwitchLimits {
        pending_calls_max: (config.limits.pending_calls_max / shards).max(1),
        ..SwitchLimits::default()
    };
    let records = RecordLimits {
        record_bytes_max: u32::try_from(config.limits.record_bytes_max).unwrap_or(u32::MAX),
        fragments_max: u32::try_from(config.limits.fragments_max).unwrap_or(u32::MAX),
    };
    let heat = HeatLimits { files_max: config.limits.heat_files_max / shards, ..HeatLimits::default() };
    let origin = Instant::now();
    let connection_ids = Arc::new(AtomicU64::new(1));
    let spec = |listeners| ShardSpec {
        shared: Arc::clone(&state.shared),
        desk: Arc::new(PlexDesk(Arc::clone(state))),
        listeners,
        links: links(state),
        limits,
        records,
        client_calls_max: u32::try_from(config.limits.client_calls_max).unwrap_or(u32::MAX),
        connections_max: config.limits.connections_max,
        connections: Arc::clone(connections),
        connection_ids: Arc::clone(&connection_ids),
        origin,
        first_xid: rand::random(),
        recorder: Recorder::new(heat, config.stores.len()),
    };
    listeners.into_iter().map(spec).collect()
}

/// One shard's links.
fn links(state: &State) -> Vec<LinkSpec> {
    let mut links = Vec::new();
    for (number, store) in state.config.stores.iter().enumerate() {
        let facts = &state.shared.stores[number];
        for _ in 0..store.connections_per_core {
            links.push(LinkSpec {
                store: id(number),
                name: store.name.clone(),
                address: state.addresses[number],
                transport: facts.transport,
                keep_port: facts.duplicate_cache == clockwork_switch::DuplicateCache::Address,
                reserved_port: store.privileged_port,
            });
        }
    }
    links
}
