//! What the shards of one router share: the routing table, swapped in one step, and the sharded maps that only the
//! calls that need them touch.

use crate::duplicates::{DuplicateLimits, Duplicates};
use crate::listings::Listings;
use crate::pins::{PinLimits, Pins};
use crate::written::Written;
use arc_swap::ArcSwap;
use clockwork_placement::{Assignment, StoreId, StoreState, Table, TableError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// How the router speaks to a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Records over a few long-lived connections.
    Stream,
    /// Datagrams, with retransmission by the router.
    Datagram,
}

/// What a store does with a call that it has seen before, and so what a reconnection must keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DuplicateCache {
    /// It answers a repeat from its cache when XID and client address are the same (knfsd, NFS-Ganesha):
    /// calls are sent again with their XIDs, from the same local port.
    Address,
    /// It has none, or drops repeats: calls are sent again with new XIDs.
    None,
}

/// What the shards know of one store.
#[derive(Debug)]
pub struct StoreFacts {
    /// The store's name, as configured.
    pub name: String,
    /// How it is spoken to.
    pub transport: Transport,
    /// What it does with repeats.
    pub duplicate_cache: DuplicateCache,
    /// Most calls outstanding at the store, for one shard.
    pub calls_max: u32,
    /// Most bytes of a READ, READDIR or READDIRPLUS that the store answers over its transport.
    pub read_bytes_max: AtomicU32,
    /// Most bytes of a WRITE that the store takes over its transport.
    pub write_bytes_max: AtomicU32,
    /// Raised whenever a restart of the store cannot be ruled out; part of every write verifier.
    epoch: AtomicU64,
}

impl StoreFacts {
    /// A store of which nothing has been measured yet.
    #[must_use]
    pub fn new(name: &str, transport: Transport, duplicate_cache: DuplicateCache, calls_max: u32) -> Self {
        let bytes_max = match transport {
            Transport::Stream => 1 << 20,
            Transport::Datagram => DATAGRAM_TRANSFER_BYTES_MAX,
        };
        Self {
            name: name.to_owned(),
            transport,
            duplicate_cache,
            calls_max,
            read_bytes_max: AtomicU32::new(bytes_max),
            write_bytes_max: AtomicU32::new(bytes_max),
            epoch: AtomicU64::new(1),
        }
    }

    /// How often a restart could not be ruled out, and one.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }
}

/// Most bytes that fit a datagram beside the headers: NFS-Ganesha answers a READ of 65,000 bytes over UDP and never one
/// of 65,536; 32 KiB is what every client and store takes.
pub const DATAGRAM_TRANSFER_BYTES_MAX: u32 = 32 << 10;

/// The words of FSINFO that every store's answer is lowered to (RFC 1813 section 3.3.19), in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferSizes {
    /// Most bytes of a READ.
    pub read_max: u32,
    /// Most bytes of a WRITE.
    pub write_max: u32,
    /// Preferred bytes of a READDIR.
    pub readdir: u32,
}

/// Limits of what the shards share.
#[derive(Clone, Copy, Debug)]
pub struct SharedLimits {
    /// Duplicate request cache.
    pub duplicates: DuplicateLimits,
    /// Pinned files.
    pub pins: PinLimits,
    /// Cookie verifiers that do not fit into their tag.
    pub listing_verifiers_max: usize,
}

/// State shared by the shards.
#[derive(Debug)]
pub struct Shared {
    /// The routing table in force.
    pub table: ArcSwap<Table>,
    /// Replies of non-idempotent calls.
    pub duplicates: Duplicates,
    /// Files with unstable writes outstanding.
    pub pins: Pins,
    /// Who issued a cookie verifier.
    pub listings: Listings,
    /// By `StoreId`.
    pub stores: Vec<StoreFacts>,
    /// When replicated files were last written.
    pub(crate) written: Written,
    secret: u64,
    read_max: AtomicU32,
    write_max: AtomicU32,
    readdir: AtomicU32,
    cookies_alike: AtomicBool,
}

impl Shared {
    /// State of a router that has just started. `secret` must be fresh: write verifiers of an earlier run must not
    /// come back, since what the stores did in between is unknown.
    #[must_use]
    pub fn new(table: Table, stores: Vec<StoreFacts>, limits: SharedLimits, secret: u64) -> Self {
        // The same in every run of the same plex: listings begun before a restart of the router go on where they began.
        let listings_key = table.hash(b"cookie verifiers").0;
        let written = Written::default();
        written.follow(&table);
        Self {
            table: ArcSwap::from_pointee(table),
            duplicates: Duplicates::new(limits.duplicates),
            pins: Pins::new(limits.pins),
            listings: Listings::new(listings_key, limits.listing_verifiers_max),
            stores,
            written,
            secret,
            read_max: AtomicU32::new(DATAGRAM_TRANSFER_BYTES_MAX),
            write_max: AtomicU32::new(DATAGRAM_TRANSFER_BYTES_MAX),
            readdir: AtomicU32::new(DATAGRAM_TRANSFER_BYTES_MAX),
            cookies_alike: AtomicBool::new(false),
        }
    }

    /// A key that this run of the router shares with nobody.
    #[must_use]
    pub(crate) fn secret(&self) -> u64 {
        self.secret
    }

    /// The transfer sizes that FSINFO answers carry.
    #[must_use]
    pub fn transfer_sizes(&self) -> TransferSizes {
        TransferSizes {
            read_max: self.read_max.load(Ordering::Relaxed),
            write_max: self.write_max.load(Ordering::Relaxed),
            readdir: self.readdir.load(Ordering::Relaxed),
        }
    }

    /// Sets the transfer sizes: the minimum over all stores and transports.
    pub fn set_transfer_sizes(&self, sizes: TransferSizes) {
        self.read_max.store(sizes.read_max, Ordering::Relaxed);
        self.write_max.store(sizes.write_max, Ordering::Relaxed);
        self.readdir.store(sizes.readdir, Ordering::Relaxed);
    }

    /// Whether the stores number the entries of a directory alike, so that a listing can go on elsewhere.
    #[must_use]
    pub fn cookies_alike(&self) -> bool {
        self.cookies_alike.load(Ordering::Relaxed)
    }

    /// Sets what the probe of the stores' cookies has shown.
    pub fn set_cookies_alike(&self, alike: bool) {
        self.cookies_alike.store(alike, Ordering::Relaxed);
    }

    /// A restart of `store` cannot be ruled out: what it acknowledged as unstable may be gone. Its write verifiers
    /// change, so that clients write again, and its pins have no meaning any more.
    pub fn suspect_restart(&self, store: StoreId) {
        if let Some(facts) = self.stores.get(store.index()) {
            facts.epoch.fetch_add(1, Ordering::AcqRel);
        }
        self.pins.store_restarted(store);
    }

    /// The verifier that clients see for `verifier` of `store`: different for every store, epoch and run of the router.
    ///
    /// Of a WRITE the epoch counts in which it was sent, of a COMMIT that in which its reply is read: when they are equal
    /// no restart can lie between the two. (One shard may read what a store acknowledged before its restart after another
    /// shard has noticed the restart.)
    #[must_use]
    pub fn write_verifier(&self, store: StoreId, epoch: u64, verifier: [u8; 8]) -> [u8; 8] {
        let mut input = [0; 18];
        input[..8].copy_from_slice(&verifier);
        input[8..10].copy_from_slice(&store.0.to_be_bytes());
        input[10..].copy_from_slice(&epoch.to_be_bytes());
        xxh3_64_with_seed(&input, self.secret).to_be_bytes()
    }

    /// Puts `wanted` in force in one step. A file that is pinned to another store than `wanted` gives stays where it is,
    /// by an exception of its own, so that the table never contradicts a pin. Returns how many files stayed: while there
    /// are any, call this again with the same table, more often than every [`pins::RELEASED_MAX`](crate::pins::RELEASED_MAX).
    ///
    /// # Errors
    /// When no table can be made of it; the table in force is then unchanged.
    pub fn place(&self, wanted: &Table) -> Result<usize, TableError> {
        self.pins.frozen(|pins| {
            let leaves = |handle: &[u8], hash, store| {
                is_there(wanted, store) && wanted.route(handle, hash) != Some(store)
            };
            let stay = pins.leave(leaves);
            let stayed = stay.len();
            let table = if stay.is_empty() {
                wanted.clone()
            } else {
                // Room for them beside the others: the limit is the operator's, and must not stop a store's failover.
                let room = wanted.exception_files_max().saturating_add(stayed);
                let stay = stay.into_iter().map(|(handle, store)| Assignment::to_one(handle, store));
                wanted.with_exception_files_max(room)?.with_assignments(wanted.assignments().chain(stay))?
            };
            self.written.follow(&table);
            self.table.store(Arc::new(table));
            pins.forget_released();
            Ok(stayed)
        })
    }
}

/// Whether a store can be asked about what it has begun: it is up, drained, or down like all the others.
pub(crate) fn is_there(table: &Table, store: StoreId) -> bool {
    let state = table.stores().get(store.index()).map(|entry| entry.state);
    state.is_some_and(|state| state != StoreState::Down) || table.serves(store)
}
