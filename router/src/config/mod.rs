//! The configuration of a plex: a TOML file read into [`Config`], or everything that is wrong with it.
//!
//! `docs/clockwork.example.toml` shows every field with its default.
mod check;
mod control;
mod fault;
mod parts;
mod read;
mod section;
mod summary;
mod values;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clockwork_placement::EXCEPTION_FILES_MAX;
use clockwork_switch::duplicates::DuplicateLimits;
use clockwork_switch::pins::PinLimits;
use clockwork_wire::record::RecordLimits;

pub use control::{Control, ControlMode, ControlRule, ControlWeights};
pub use fault::{ConfigError, Fault, Faults, Problem};
pub use summary::Summary;
pub use values::{ExportPath, StoreAddress, canonical_ip};

/// The longest file that is read, in bytes: some ten thousand stores.
pub const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// A plex as its operator described it: complete, and checked for contradictions.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Where clients reach the plex.
    pub listen: Listen,
    /// Where its operator reaches it.
    pub admin: Admin,
    /// The servers that do the work; at least one, at least one of them with a weight above 0.
    pub stores: Vec<Store>,
    /// What clients may mount; at least one.
    pub exports: Vec<Export>,
    /// The default rule.
    pub routing: Routing,
    /// A limit on everything that can grow.
    pub limits: Limits,
    /// When a store counts as failed, and when as well again.
    pub health: Health,
    /// What is measured.
    pub heat: Heat,
    /// Where measurements are kept.
    pub history: History,
    /// Whether files are moved before load arrives.
    pub control: Control,
    /// What is logged.
    pub log: Log,
}

/// Where clients reach the plex.
#[derive(Debug, Clone, PartialEq)]
pub struct Listen {
    /// Addresses for NFS and MOUNT, both on the same port. Never empty.
    pub addresses: Vec<SocketAddr>,
    /// Whether TCP is served.
    pub tcp: bool,
    /// Whether UDP is served.
    pub udp: bool,
    /// Address of the portmapper, if one is to be served.
    pub portmapper: Option<SocketAddr>,
    /// Threads that move calls; `None` for one per core.
    pub shards: Option<NonZeroUsize>,
}

/// Where the operator reaches the plex.
#[derive(Debug, Clone, PartialEq)]
pub struct Admin {
    /// Address of the HTTP interface, `None` if it is off.
    pub listen: Option<SocketAddr>,
    /// Whether an address other than loopback was allowed on purpose.
    pub allow_remote: bool,
}

/// How calls travel to a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// A few long-lived connections.
    Tcp,
    /// Datagrams.
    Udp,
}

/// How a store recognises a call that it has had before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DuplicateCache {
    /// By XID and the address and port of the caller (Linux knfsd, NFS-Ganesha): a call is repeated with the same
    /// XID from the same port, also after a reconnection.
    Address,
    /// Not at all, or by dropping repeats (unfs3, embedded stores): a call is repeated with a new XID.
    None,
}

/// One server.
#[derive(Debug, Clone, PartialEq)]
pub struct Store {
    /// Its name in messages, metrics and commands.
    pub name: String,
    /// Where it serves NFS.
    pub address: StoreAddress,
    /// Where it serves MOUNT.
    pub mount_port: u16,
    /// How calls travel to it.
    pub transport: Transport,
    /// Its share under the default rule, relative to the other stores; 0 gives it no files.
    pub weight: f64,
    /// What is mounted there, if not the plex's own path.
    pub export: Option<ExportPath>,
    /// Connections per shard (TCP), or sockets (UDP).
    pub connections_per_core: usize,
    /// Calls in flight at the store; further calls wait in the router.
    pub calls_max: usize,
    /// How it recognises repeated calls.
    pub duplicate_cache: DuplicateCache,
    /// Whether to call from a port below 1024 where the process may bind one.
    pub privileged_port: bool,
}

/// One directory tree that clients may mount.
#[derive(Debug, Clone, PartialEq)]
pub struct Export {
    /// The path clients mount.
    pub path: ExportPath,
    /// Networks of the clients that may; never empty, IPv4-mapped networks turned into IPv4.
    pub clients: Vec<ipnet::IpNet>,
    /// Whether the client's port must be below 1024.
    pub secure: bool,
}

/// The default rule.
#[derive(Debug, Clone, PartialEq)]
pub struct Routing {
    /// Key of the hash of file handles.
    pub seed: u64,
}

/// A limit on everything that can grow. What happens at each is written beside it in the example file.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Longest RPC record, in bytes.
    pub record_bytes_max: usize,
    /// Most fragments of one record.
    pub fragments_max: usize,
    /// Calls in flight in the whole router.
    pub pending_calls_max: usize,
    /// Calls in flight of one client connection.
    pub client_calls_max: usize,
    /// Open client connections.
    pub connections_max: usize,
    /// Files assigned to a store other than the default rule's.
    pub exception_files_max: usize,
    /// Replies kept for retransmissions, in bytes.
    pub duplicate_bytes_max: usize,
    /// How long such a reply is kept.
    pub duplicate_age: Duration,
    /// Files with unstable writes outstanding.
    pub pins_max: usize,
    /// Age at which the router commits such writes itself.
    pub pin_age: Duration,
    /// Directory listings in progress whose cookie verifier leaves no room for the store's number.
    pub listing_verifiers_max: usize,
    /// Files counted one by one in a period.
    pub heat_files_max: usize,
    /// Handles whose names are remembered.
    pub names_max: usize,
    /// Largest READ and WRITE announced to clients, in bytes.
    pub transfer_bytes_max: usize,
    /// Mounts remembered for `showmount`.
    pub mounts_max: usize,
}

/// When a store counts as failed, and when as well again.
#[derive(Debug, Clone, PartialEq)]
pub struct Health {
    /// Time between two probes of a store.
    pub interval: Duration,
    /// Time after which a probe has failed; at most the interval.
    pub timeout: Duration,
    /// Failures in a row that take a store out.
    pub failures: u32,
    /// Successes in a row that take it back.
    pub successes: u32,
}

/// What is measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Heat {
    /// Length of a measuring period.
    pub period: Duration,
}

/// Where measurements are kept.
#[derive(Debug, Clone, PartialEq)]
pub struct History {
    /// Folder of the database; `None` keeps nothing over a restart. Relative paths count from the file's folder.
    pub path: Option<PathBuf>,
    /// Periods kept.
    pub periods_max: usize,
    /// Size of the database in bytes at which the oldest periods go.
    pub bytes_max: u64,
}

/// What is logged.
#[derive(Debug, Clone, PartialEq)]
pub struct Log {
    /// Which messages are written to standard error: a level, or levels by module as in `info,clockwork_router=debug`.
    pub filter: String,
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// The file cannot be read, is far too long, or is wrong; in the last case all faults are given.
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        let unreadable = |cause| ConfigError::Unreadable { file: file.to_owned(), cause };
        let found_bytes = std::fs::metadata(file).map_err(unreadable)?.len();
        if found_bytes > CONFIG_BYTES_MAX {
            return Err(ConfigError::TooLong {
                file: file.to_owned(),
                found_bytes,
                allowed_bytes: CONFIG_BYTES_MAX,
            });
        }
        let text = std::fs::read_to_string(file).map_err(unreadable)?;
        Ok(Self::parse(&text, file)?)
    }

    /// Reads and checks a text; `file` is named in the faults, and its folder is where relative paths count from.
    ///
    /// # Errors
    /// All that is wrong.
    pub fn parse(text: &str, file: &Path) -> Result<Self, Faults> {
        read::config(text, file).map_err(|faults| Faults { file: file.to_owned(), faults })
    }

    /// The path that is mounted at a store for an export of the plex.
    #[must_use]
    pub fn store_path<'c>(&self, store: &'c Store, export: &'c Export) -> &'c ExportPath {
        store.export.as_ref().unwrap_or(&export.path)
    }

    /// Threads that move calls: as configured, else one per core.
    #[must_use]
    pub fn shards(&self) -> NonZeroUsize {
        let cores = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        self.listen.shards.unwrap_or_else(cores)
    }
}

impl Default for Listen {
    fn default() -> Self {
        let any = SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, 2049));
        Self { addresses: vec![any], tcp: true, udp: true, portmapper: None, shards: None }
    }
}

impl Default for Admin {
    fn default() -> Self {
        let loopback = SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, 8049));
        Self { listen: Some(loopback), allow_remote: false }
    }
}

impl Store {
    /// A store with the default of every field that has one.
    #[must_use]
    pub fn new(name: impl Into<String>, address: StoreAddress) -> Self {
        Self {
            name: name.into(),
            mount_port: address.port(),
            address,
            transport: Transport::Tcp,
            weight: 1.0,
            export: None,
            connections_per_core: 1,
            // nfs3_server refuses what exceeds 256; at 1 ms a call this is far more than any store here can do.
            calls_max: 240,
            duplicate_cache: DuplicateCache::Address,
            privileged_port: true,
        }
    }
}

// Not derived: a key of 0 is as good as any other, but it is a decision, not an accident.
#[expect(clippy::derivable_impls, reason = "each default is written where it can be read")]
impl Default for Routing {
    fn default() -> Self {
        Self { seed: 0 }
    }
}

impl Default for Limits {
    fn default() -> Self {
        let (record, duplicates, pins) =
            (RecordLimits::default(), DuplicateLimits::default(), PinLimits::default());
        let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        Self {
            record_bytes_max: count(record.record_bytes_max),
            fragments_max: count(record.fragments_max),
            pending_calls_max: 65_536,
            client_calls_max: 256,
            connections_max: 4_096,
            exception_files_max: EXCEPTION_FILES_MAX,
            duplicate_bytes_max: duplicates.bytes_max,
            duplicate_age: duplicates.age_min,
            pins_max: pins.pins_max,
            pin_age: pins.age_max,
            listing_verifiers_max: 65_536,
            heat_files_max: 1_000_000,
            names_max: 1_000_000,
            transfer_bytes_max: 1 << 20,
            mounts_max: 4_096,
        }
    }
}

impl Default for Health {
    fn default() -> Self {
        Self { interval: Duration::from_secs(2), timeout: Duration::from_secs(1), failures: 3, successes: 2 }
    }
}

impl Default for Heat {
    fn default() -> Self {
        Self { period: Duration::from_secs(3_600) }
    }
}

impl Default for History {
    fn default() -> Self {
        Self {
            path: Some(PathBuf::from("/var/lib/clockwork/history")),
            periods_max: 10_000,
            bytes_max: 4 << 30,
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { filter: "info".to_owned() }
    }
}
