//! The state of a virtual NAS between bytes in and bytes out: pending calls, duplicate requests, pins, listings.
//!
//! No socket, no clock, no task: the same code runs under the router's shards and under simulated time in the tests.
//! A shard owns one [`Switch`]; what shards share is [`Shared`]. Bytes go in through [`Switch::call`] (from clients) and
//! [`Switch::reply`] (from stores); they come out through an [`Outlet`] (to clients) and the links' send logs (to
//! stores, [`Switch::log`]).
//!
//! # Which store gets a call
//! A call goes by the file handle it carries, through the [routing table](clockwork_placement::Table). A call on a
//! directory (LOOKUP, CREATE, REMOVE, READDIR ...) goes by the directory's handle. Of the two that carry two handles,
//! RENAME goes by the directory it takes the name from and LINK by the directory it puts the name into. Three things
//! come before the table: a file with unstable writes outstanding stays with its store until COMMIT ([`pins`]); a listing
//! goes on where it began ([`listings`]); a repeat gets the first transmission's reply ([`duplicates`]).
//!
//! A file may be replicated: its entry in the table names several stores. Then its READs are spread over them, by XID, so
//! that a repeat meets the same store. Nothing else is: a WRITE, SETATTR or COMMIT must meet the writes before it, and
//! GETATTR and ACCESS are what a client asks when it opens a file, to see what others have written, so they are
//! answered where the writing was done. While the file is pinned, and for [`READ_AT_HOME`] after it was last written, it
//! is read at its home as well.

pub mod duplicates;
pub mod listings;
pub mod meter;
pub mod pins;
pub mod send_log;
pub mod time;

mod calls;
mod in_progress;
mod links;
mod moves;
mod pending;
mod replies;
mod resolve;
mod shared;
mod suspects;
mod upkeep;
mod window;
mod written;

pub use pending::LinkId;
pub use shared::{
    DATAGRAM_TRANSFER_BYTES_MAX, DuplicateCache, Shared, SharedLimits, StoreFacts, TransferSizes, Transport,
};
pub use suspects::GivenUp;
pub use written::READ_AT_HOME;

use arc_swap::{ArcSwap, Cache};
use clockwork_placement::{StoreId, Table};
use clockwork_wire::rpc;
use duplicates::{ConnectionId, Origin, Peer};
use meter::Meter;
use send_log::SendLog;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;
use std::sync::Arc;
use time::Time;

/// Where a call came from, and where its reply goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// A TCP connection.
    Stream {
        /// Unique over the router's life.
        connection: ConnectionId,
        /// The shard's own number for the connection.
        slot: u32,
        /// The client's address, in canonical form.
        address: IpAddr,
        /// Bytes that the reply may take beyond the usual few hundred: whoever keeps replies for slow readers counts them
        /// beforehand.
        reply_bytes: u32,
    },
    /// A UDP peer.
    Datagram {
        /// The client's address and port.
        peer: SocketAddr,
        /// The shard's own number for the socket.
        socket: u16,
        /// The address that the call was sent to, from which the reply must come.
        local: Option<IpAddr>,
    },
}

impl Client {
    /// The client's address.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        match self {
            Self::Stream { address, .. } => *address,
            Self::Datagram { peer, .. } => peer.ip().to_canonical(),
        }
    }

    fn origin(&self, shard: u16) -> Origin {
        match self {
            Self::Stream { connection, slot, address, .. } => {
                Origin { shard, client: u64::from(*slot), peer: Peer::Stream(*connection), address: *address }
            }
            Self::Datagram { peer, socket, .. } => Origin {
                shard,
                client: u64::from(*socket),
                peer: Peer::Datagram(*peer),
                address: peer.ip().to_canonical(),
            },
        }
    }
}

/// Where replies go. A record is a message with its 4-byte record mark in front; over UDP the mark is left out.
pub trait Outlet {
    /// A reply for a client of this shard.
    fn reply(&mut self, client: &Client, record: &[u8]);
    /// A reply for a client that sent the same call over another connection, perhaps of another shard.
    fn mail(&mut self, waiter: &Origin, record: &[u8]);
    /// The link's send log has bytes to write.
    fn wake(&mut self, link: LinkId);
}

/// What became of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It waits for a store; the reply comes through the outlet later.
    Forwarded,
    /// The reply has gone to the outlet.
    Answered,
    /// A repeat of a call in progress: the first one's reply will do.
    Absorbed,
    /// Not a call, or one that cannot be answered.
    Dropped,
    /// A call of the MOUNT program, version 1 or 3, for the caller to answer.
    Mount(rpc::Call),
}

/// Limits of one shard.
#[derive(Clone, Copy, Debug)]
pub struct SwitchLimits {
    /// Calls that wait for their reply; beyond it calls are answered NFS3ERR_JUKEBOX. One store's calls that are held
    /// may be as many as there is room left, so that a store that does not answer leaves room for the others.
    pub pending_calls_max: usize,
    /// Bytes of calls held while their store has no link or no room; beyond it calls are answered NFS3ERR_JUKEBOX. One
    /// store's may be as many as there is room left.
    pub held_bytes_max: usize,
    /// Bytes kept for one link: not yet written, or written and not answered. Up to twice as many while they are sent
    /// again.
    pub link_bytes_max: usize,
}

impl Default for SwitchLimits {
    fn default() -> Self {
        Self { pending_calls_max: 16_384, held_bytes_max: 64 << 20, link_bytes_max: 64 << 20 }
    }
}

macro_rules! counters {
    ($($(#[doc = $help:literal])+ $name:ident),* $(,)?) => {
        /// What has happened in one shard since it started.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters { $($(#[doc = $help])+ pub $name: u64),* }

        impl Counters {
            /// Name, meaning in a sentence, and value of each, for metrics.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
                [$((stringify!($name), concat!($($help),+).trim_start(), self.$name)),*].into_iter()
            }

            /// Adds another shard's counters.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counters! {
    /// Messages from clients.
    calls,
    /// Calls given to stores.
    forwarded,
    /// Replies given to clients.
    replies,
    /// Calls answered by the router itself: NULL, refusals, replays.
    answered_here,
    /// Messages that are no RPC call.
    malformed_calls,
    /// Calls whose arguments are cut short or out of bounds.
    garbage_arguments,
    /// Calls of programs, versions and procedures that are not served.
    unavailable,
    /// Calls refused for their credential or address.
    refused,
    /// Repeats of calls in progress.
    absorbed,
    /// Repeats answered from the duplicate request cache.
    replayed,
    /// Calls answered NFS3ERR_JUKEBOX because as many calls as may waited already.
    turned_away_full,
    /// Calls answered NFS3ERR_JUKEBOX because as many calls or bytes as may were held for a store without room or connection.
    turned_away_held,
    /// Calls answered NFS3ERR_JUKEBOX because no store is there to serve them.
    turned_away_no_store,
    /// Listings refused with NFS3ERR_BAD_COOKIE because the store that began them is gone.
    listings_lost,
    /// Messages from stores that are no RPC reply or cannot be read.
    malformed_replies,
    /// Replies to calls that do not wait any more.
    late_replies,
    /// Calls sent again, to the same store or to another.
    sent_again,
    /// Answers of re-sent calls that were in doubt.
    doubts,
    /// Doubts that a look settled as success.
    doubts_settled,
    /// Commits that the router made for a writer.
    commits_made,
    /// WRITE calls made FILE_SYNC because their file is to move, or because no further file can be pinned.
    writes_made_stable,
    /// Calls answered SYSTEM_ERR because connections to stores were lost under them time and again.
    given_up,
    /// READ, READDIR and WRITE calls lowered to what the store's transport carries.
    lowered,
    /// READ calls of replicated files that another store got than the file's home.
    replica_reads,
}

/// One connection to a store.
#[derive(Debug)]
struct Link {
    store: StoreId,
    up: bool,
    log: SendLog,
    /// When to look whether a call needs to be sent again: datagrams, and what was sent again already.
    due: BinaryHeap<Reverse<(Time, u32)>>,
    /// Calls that wait for this very link, where the store has several: sent over it before, they may have run, and the
    /// store's duplicate cache knows them by its port.
    held: VecDeque<u32>,
}

/// The calls of one store in this shard.
#[derive(Debug, Default)]
struct StoreQueue {
    links: Vec<LinkId>,
    outstanding: u32,
    /// Datagram stores: bytes that may be outstanding.
    window: window::Window,
    held: VecDeque<u32>,
    held_bytes: usize,
    /// Calls under which links are lost time and again.
    suspects: suspects::Suspects,
}

/// The cell that holds the routing table in force.
#[derive(Debug)]
struct TableInForce(Arc<Shared>);

impl Deref for TableInForce {
    type Target = ArcSwap<Table>;

    fn deref(&self) -> &Self::Target {
        &self.0.table
    }
}

/// One shard's switch.
#[derive(Debug)]
pub struct Switch<M: Meter> {
    shard: u16,
    shared: Arc<Shared>,
    limits: SwitchLimits,
    pending: pending::Pending<M::Token>,
    /// Idempotent calls in progress, by client and client's XID.
    in_progress: in_progress::InProgress,
    links: Vec<Link>,
    stores: Vec<StoreQueue>,
    held_bytes: usize,
    /// The table that the waiting calls have been seen against.
    table: Arc<Table>,
    /// The table in force as new calls see it: with every call this looks whether there is another, without counting
    /// references.
    routes: Cache<TableInForce, Arc<Table>>,
    meter: M,
    counters: Counters,
    /// The last one, until somebody asks.
    given_up: Option<GivenUp>,
    scratch: Vec<u8>,
}

impl<M: Meter> Switch<M> {
    /// The switch of shard number `shard`. XIDs towards the stores count from `first_xid`, which should differ from run
    /// to run: a store may remember those of the last.
    #[must_use]
    pub fn new(shard: u16, shared: Arc<Shared>, limits: SwitchLimits, first_xid: u32, meter: M) -> Self {
        let mut stores = Vec::new();
        stores.resize_with(shared.stores.len(), StoreQueue::default);
        Self {
            shard,
            table: shared.table.load_full(),
            routes: Cache::new(TableInForce(Arc::clone(&shared))),
            shared,
            limits,
            pending: pending::Pending::new(limits.pending_calls_max, first_xid),
            in_progress: in_progress::InProgress::default(),
            links: Vec::new(),
            stores,
            held_bytes: 0,
            meter,
            counters: Counters::default(),
            given_up: None,
            scratch: Vec::new(),
        }
    }

    /// Adds a link to `store`, down at first.
    pub fn add_link(&mut self, store: StoreId) -> LinkId {
        let id = LinkId(u16::try_from(self.links.len()).unwrap_or(u16::MAX));
        let log = SendLog::new(self.limits.link_bytes_max);
        self.links.push(Link { store, up: false, log, due: BinaryHeap::new(), held: VecDeque::new() });
        self.stores[store.index()].links.push(id);
        id
    }

    /// The bytes that the link has to write.
    pub fn log(&mut self, link: LinkId) -> &mut SendLog {
        &mut self.links[usize::from(link.0)].log
    }

    /// The store at the other end of a link.
    #[must_use]
    pub fn store_of(&self, link: LinkId) -> StoreId {
        self.links[usize::from(link.0)].store
    }

    /// What is shared with the other shards.
    #[must_use]
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Whoever measures.
    pub fn meter(&mut self) -> &mut M {
        &mut self.meter
    }

    /// What has happened so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Calls that wait for their reply, and how many can.
    #[must_use]
    pub fn pending_calls(&self) -> (usize, usize) {
        (self.pending.len(), self.pending.capacity())
    }

    /// Bytes of calls held because their store has no link or no room, and how many new calls may add up to. Calls taken
    /// back from a lost link count too and can exceed it, by what the links hold at most.
    #[must_use]
    pub fn held_bytes(&self) -> (usize, usize) {
        (self.held_bytes, self.limits.held_bytes_max)
    }

    /// Idempotent calls in progress that are watched for repeats; never more than calls wait.
    #[must_use]
    pub fn calls_watched(&self) -> usize {
        self.in_progress.len()
    }

    /// Calls of `store` that this shard has given to it, and calls that wait for room or a link.
    #[must_use]
    pub fn store_calls(&self, store: StoreId) -> (u32, usize) {
        self.stores.get(store.index()).map_or((0, 0), |queue| {
            let own: usize = queue.links.iter().map(|link| self.links[usize::from(link.0)].held.len()).sum();
            (queue.outstanding, queue.held.len() + queue.suspects.len() + own)
        })
    }

    /// A TCP connection is there. Repeats over other connections are other clients' while it lives.
    pub fn client_opened(&mut self, connection: ConnectionId) {
        self.shared.duplicates.opened(connection);
    }

    /// A TCP connection is gone. Its calls run on; their replies are kept for a repeat.
    pub fn client_closed(&mut self, connection: ConnectionId) {
        self.shared.duplicates.closed(connection);
    }

    /// Builds a reply in the scratch buffer, behind room for its record mark, and hands it out.
    fn answer(
        &mut self,
        client: &Client,
        out: &mut impl Outlet,
        build: impl FnOnce(&mut Vec<u8>),
    ) -> Verdict {
        self.scratch.clear();
        self.scratch.extend_from_slice(&[0; 4]);
        build(&mut self.scratch);
        let mark = clockwork_wire::record::mark(self.scratch.len() - 4);
        self.scratch[..4].copy_from_slice(&mark);
        self.counters.answered_here += 1;
        out.reply(client, &self.scratch);
        Verdict::Answered
    }

    fn progress_key(&self, client: &Client, xid: u32) -> u64 {
        let who = match client {
            Client::Stream { connection, .. } => connection.0,
            Client::Datagram { peer, .. } => {
                let ip = match peer.ip() {
                    IpAddr::V4(v4) => u128::from(v4.to_bits()),
                    IpAddr::V6(v6) => v6.to_bits(),
                };
                let (high, low) = ((ip >> 64) as u64, ip as u64);
                mix(high ^ mix(low)) ^ (u64::from(peer.port()) << 1 | 1)
            }
        };
        mix(self.shared.secret() ^ mix(who) ^ u64::from(xid).rotate_left(32))
    }
}

/// Stafford's variant 13 of the 64-bit finalizer: every bit of the input reaches every bit of the output.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
