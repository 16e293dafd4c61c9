//! The duplicate request cache: a call that must not run twice is answered from here when it comes again.
//!
//! RPC over a lossy transport repeats calls, and a repeated REMOVE or CREATE that runs again gives another answer (RFC
//! 1813, section 4.5). A repeat is known by client address, XID, procedure, credential and a checksum of the arguments.
//! The port does not count once the connection that carried the first transmission has closed: a client that reconnects
//! repeats its calls from a new port. While that connection lives, an equal call from another one is another process of
//! the same client machine whose XIDs happen to be equal, and it gets an entry of its own.
//!
//! Only calls that are not idempotent come here. The entries are spread over shards with a lock each, which all of the
//! router's threads share, because a repeat may arrive at another thread.

use crate::time::Time;
use clockwork_placement::PrehashedMap;
use std::collections::{HashSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use xxhash_rust::xxh3::xxh3_128;

const SHARDS: usize = 16;

/// What an entry is counted as besides its reply, bytes: the entry, its place in the map and in the queue.
pub const ENTRY_BYTES: usize = 256;

/// Bytes at the front of the arguments that the key covers.
pub const KEYED_ARGUMENT_BYTES: usize = 256;

/// Entries that a call removes in passing once they are old enough.
const EXPIRED_PER_CALL: usize = 4;

/// A TCP connection of a client; no number comes twice in the router's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// Where a call came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// A TCP connection.
    Stream(ConnectionId),
    /// A UDP port.
    Datagram(SocketAddr),
}

/// Who sent a call and waits for its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The router's shard that the client is connected to.
    pub shard: u16,
    /// The shard's own name for the client; means nothing here.
    pub client: u64,
    /// Connection or port.
    pub peer: Peer,
    /// The client's address.
    pub address: IpAddr,
}

/// The key under which a call and its repeats are found: xxh3 of the client's address (an IPv4-mapped one as IPv4), the
/// XID, the procedure, the credential, the arguments' length and their first [`KEYED_ARGUMENT_BYTES`].
#[must_use]
pub fn key(address: IpAddr, xid: u32, procedure: u8, credential: &[u8], arguments: &[u8]) -> u128 {
    let address = match address.to_canonical() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let length = u64::try_from(arguments.len()).unwrap_or(u64::MAX);
    let front = arguments.get(..KEYED_ARGUMENT_BYTES).unwrap_or(arguments);
    let mut input = [0; 16 + 4 + 1 + 16 + 8 + KEYED_ARGUMENT_BYTES];
    let mut filled = 0;
    for part in [
        &address.octets()[..],
        &xid.to_be_bytes(),
        &[procedure],
        &xxh3_128(credential).to_be_bytes(),
        &length.to_be_bytes(),
        front,
    ] {
        // The parts add up to at most the buffer's length.
        if let Some(place) = input.get_mut(filled..filled + part.len()) {
            place.copy_from_slice(part);
            filled += part.len();
        }
    }
    xxh3_128(input.get(..filled).unwrap_or(&input))
}

/// Limits of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DuplicateLimits {
    /// Bytes of entries and replies, over all shards (each shard has an equal part). When they are reached the oldest
    /// finished entries go before their time, counted by [`Duplicates::evicted_early`]. Calls in progress are never
    /// evicted; their number is bounded by the caller's limit on pending calls.
    pub bytes_max: usize,
    /// How long a reply is kept at least otherwise; 120 s covers the clients' usual retransmission times.
    pub age_min: Duration,
    /// Connections that can wait for one call in progress besides the one that sent it first; further repeats are
    /// absorbed without being remembered (the client will repeat again), counted by [`Duplicates::waiters_refused`].
    pub waiters_max: usize,
}

impl Default for DuplicateLimits {
    /// 256 MiB, 120 s, 4 waiters.
    fn default() -> Self {
        Self { bytes_max: 256 << 20, age_min: Duration::from_secs(120), waiters_max: 4 }
    }
}

/// The right and duty to report the end of a call that was [`Seen::New`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a call that was begun is finished or abandoned, or its repeats are absorbed for ever"]
pub struct Ticket {
    key: u128,
    serial: u64,
}

/// What is known about a call that has arrived.
#[derive(Debug, PartialEq, Eq)]
pub enum Seen {
    /// The first transmission: run it.
    New(Ticket),
    /// A repeat of a call in progress: drop it. If it came from another connection, that one is now waiting too.
    InProgress,
    /// A repeat of a finished call: send this reply message, whose XID is the client's.
    Done(Arc<[u8]>),
}

#[derive(Debug)]
enum Progress {
    /// Running; these wait besides the first sender.
    Running(Vec<Origin>),
    Finished(Arc<[u8]>),
}

#[derive(Debug)]
struct Entry {
    serial: u64,
    /// Who sent it last: the first sender, or the connection that repeated it after the sender's had closed.
    owner: Peer,
    progress: Progress,
}

impl Entry {
    fn bytes(&self) -> usize {
        match &self.progress {
            Progress::Running(_) => ENTRY_BYTES,
            Progress::Finished(reply) => ENTRY_BYTES + reply.len(),
        }
    }
}

#[derive(Debug, Default)]
struct Shard {
    /// Nearly always one entry a key; more where several processes of one client use equal XIDs.
    calls: PrehashedMap<u128, Vec<Entry>>,
    /// Finished entries, oldest first: when, key, serial.
    finished: VecDeque<(Time, u128, u64)>,
    entries: usize,
    bytes: usize,
}

impl Shard {
    fn remove(&mut self, key: u128, serial: u64) -> Option<Entry> {
        let calls = self.calls.get_mut(&key)?;
        let place = calls.iter().position(|entry| entry.serial == serial)?;
        let entry = calls.swap_remove(place);
        if calls.is_empty() {
            self.calls.remove(&key);
        }
        self.entries -= 1;
        self.bytes -= entry.bytes();
        Some(entry)
    }

    /// Removes the oldest finished entry if `goes` says so of the time it finished at.
    fn remove_oldest(&mut self, goes: impl FnOnce(Time) -> bool) -> bool {
        let Some(&(at, key, serial)) = self.finished.front() else { return false };
        if !goes(at) {
            return false;
        }
        self.finished.pop_front();
        self.remove(key, serial);
        true
    }
}

/// The cache. Shared by all of the router's threads.
#[derive(Debug)]
pub struct Duplicates {
    limits: DuplicateLimits,
    shards: [Mutex<Shard>; SHARDS],
    open: [Mutex<HashSet<ConnectionId>>; SHARDS],
    serial: AtomicU64,
    evicted_early: AtomicU64,
    waiters_refused: AtomicU64,
    open_connections: AtomicUsize,
}

impl Duplicates {
    /// An empty cache.
    #[must_use]
    pub fn new(limits: DuplicateLimits) -> Self {
        Self {
            limits,
            shards: Default::default(),
            open: Default::default(),
            serial: AtomicU64::new(0),
            evicted_early: AtomicU64::new(0),
            waiters_refused: AtomicU64::new(0),
            open_connections: AtomicUsize::new(0),
        }
    }

    /// A call has arrived. `key` comes from [`key`].
    pub fn begin(&self, now: Time, key: u128, origin: Origin) -> Seen {
        let mut shard = self.shard(key);
        for _ in 0..EXPIRED_PER_CALL {
            if !shard.remove_oldest(|at| at + self.limits.age_min <= now) {
                break;
            }
        }
        if let Some(entry) = shard.calls.get_mut(&key).and_then(|calls| self.same_call(calls, origin.peer)) {
            return self.repeated(entry, origin);
        }
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        let entry = Entry { serial, owner: origin.peer, progress: Progress::Running(Vec::new()) };
        shard.entries += 1;
        shard.bytes += entry.bytes();
        // Room for one: a second process with an equal call is rare.
        shard.calls.entry(key).or_insert_with(|| Vec::with_capacity(1)).push(entry);
        self.shrink(&mut shard);
        Seen::New(Ticket { key, serial })
    }

    /// The reply to a call has come. It is copied and kept. Returns who else waits for it: connections on which the call
    /// was repeated after that of the first sender had closed.
    pub fn finish(&self, now: Time, ticket: Ticket, reply: &[u8]) -> Vec<Origin> {
        let mut shard = self.shard(ticket.key);
        let calls = shard.calls.get_mut(&ticket.key);
        let Some(entry) = calls.and_then(|calls| calls.iter_mut().find(|e| e.serial == ticket.serial)) else {
            return Vec::new();
        };
        let waiters = match std::mem::replace(&mut entry.progress, Progress::Finished(Arc::from(reply))) {
            Progress::Running(waiters) => waiters,
            Progress::Finished(_) => Vec::new(),
        };
        shard.bytes += reply.len();
        shard.finished.push_back((now, ticket.key, ticket.serial));
        self.shrink(&mut shard);
        waiters
    }

    /// The call has no reply and will have none: its next repeat runs as new. Returns who else waits.
    pub fn abandon(&self, ticket: Ticket) -> Vec<Origin> {
        match self.shard(ticket.key).remove(ticket.key, ticket.serial).map(|entry| entry.progress) {
            Some(Progress::Running(waiters)) => waiters,
            _ => Vec::new(),
        }
    }

    /// A client has connected. Calls on a connection that was not announced count as if it had closed at once.
    pub fn opened(&self, connection: ConnectionId) {
        if self.connections(connection).insert(connection) {
            self.open_connections.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A client's connection has closed: repeats of its calls are now taken from any port.
    pub fn closed(&self, connection: ConnectionId) {
        if self.connections(connection).remove(&connection) {
            self.open_connections.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Removes what is old enough; to be called now and then, so that a quiet router gives its memory back.
    pub fn expire(&self, now: Time) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            while shard.remove_oldest(|at| at + self.limits.age_min <= now) {}
        }
    }

    /// Calls known, in progress or finished.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).entries).sum()
    }

    /// Bytes held by entries and replies, of [`DuplicateLimits::bytes_max`].
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).bytes).sum()
    }

    /// Connections announced and not closed.
    #[must_use]
    pub fn open_connections(&self) -> usize {
        self.open_connections.load(Ordering::Relaxed)
    }

    /// Finished entries that went before [`DuplicateLimits::age_min`], so far.
    #[must_use]
    pub fn evicted_early(&self) -> u64 {
        self.evicted_early.load(Ordering::Relaxed)
    }

    /// Repeats that were absorbed but not remembered because of [`DuplicateLimits::waiters_max`], so far.
    #[must_use]
    pub fn waiters_refused(&self) -> u64 {
        self.waiters_refused.load(Ordering::Relaxed)
    }

    fn shard(&self, key: u128) -> MutexGuard<'_, Shard> {
        // The map below uses the low bits.
        lock(&self.shards[usize::try_from(key >> 124).unwrap_or(0) % SHARDS])
    }

    fn connections(&self, connection: ConnectionId) -> MutexGuard<'_, HashSet<ConnectionId>> {
        lock(&self.open[usize::try_from(connection.0 % 16).unwrap_or(0) % SHARDS])
    }

    fn lives(&self, peer: Peer) -> bool {
        match peer {
            Peer::Stream(connection) => self.connections(connection).contains(&connection),
            // Nothing tells that a UDP port is no longer used.
            Peer::Datagram(_) => true,
        }
    }

    /// Which of the calls under one key a transmission from `peer` repeats, if any: its own, else the one begun last
    /// whose owner is gone.
    fn same_call<'a>(&self, calls: &'a mut [Entry], peer: Peer) -> Option<&'a mut Entry> {
        let own = calls.iter().position(|entry| entry.owner == peer);
        let place = own.or_else(|| {
            let orphans = calls.iter().enumerate().filter(|(_, entry)| !self.lives(entry.owner));
            orphans.max_by_key(|(_, entry)| entry.serial).map(|(place, _)| place)
        });
        calls.get_mut(place?)
    }

    fn repeated(&self, entry: &mut Entry, origin: Origin) -> Seen {
        let moved = entry.owner != origin.peer;
        match &mut entry.progress {
            Progress::Finished(reply) => {
                entry.owner = origin.peer;
                Seen::Done(Arc::clone(reply))
            }
            Progress::Running(waiters) => {
                if moved {
                    waiters.retain(|waiter| self.lives(waiter.peer));
                    if waiters.len() < self.limits.waiters_max {
                        waiters.push(origin);
                        entry.owner = origin.peer;
                    } else {
                        self.waiters_refused.fetch_add(1, Ordering::Relaxed);
                    }
                }
                Seen::InProgress
            }
        }
    }

    /// Evicts the oldest finished entries while the shard holds more than its part.
    fn shrink(&self, shard: &mut Shard) {
        while shard.bytes > self.limits.bytes_max / SHARDS && shard.remove_oldest(|_| true) {
            self.evicted_early.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A panic elsewhere must not stop the data plane: the state under these locks is valid at every step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
