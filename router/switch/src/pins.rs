//! Pins: a file with unstable writes outstanding stays with its store until they are committed.
//!
//! The reply to a WRITE may say that the data is not on stable storage yet (RFC 1813, section 3.3.7); the client keeps it
//! until a COMMIT succeeds at the same server instance (section 3.3.21). So COMMIT, and further writes, go to the store
//! that took the first one, whatever the routing table says meanwhile, and a move of the file waits for the pin.
//!
//! The pins are spread over shards with a lock each, which only unstable writes and COMMITs touch. The routing table is
//! asked under that lock, and swapped under all of them ([`Pins::frozen`]): a table never contradicts a pin.

use crate::time::Time;
use clockwork_placement::{HandleHash, PrehashedMap, StoreId};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const SHARDS: usize = 64;

/// Separate ranges remembered for a file; beyond that the two nearest are taken as one, which can only make a pin last
/// longer.
const RANGES_MAX: usize = 16;

/// Limits of the pins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinLimits {
    /// Files pinned at once. Writes to further files are not pinned (and have to be sent as FILE_SYNC), counted by
    /// [`Pins::refused`].
    pub pins_max: usize,
    /// After this long without a COMMIT a pin is [overdue](Pins::overdue).
    pub age_max: Duration,
}

impl Default for PinLimits {
    /// 65,536 files, 60 s.
    fn default() -> Self {
        Self { pins_max: 65_536, age_max: Duration::from_secs(60) }
    }
}

/// Names one write or commit of a pinned file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinToken {
    /// Running number of writes in the pin's shard; 0: not pinned.
    serial: u64,
    /// Of a commit: no write was in flight when it was sent.
    quiet: bool,
}

impl PinToken {
    const UNPINNED: Self = Self { serial: 0, quiet: false };
}

/// Where an unstable write goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "every write is followed by `wrote`, or its pin stays"]
pub struct PinnedWrite {
    /// The store.
    pub store: StoreId,
    /// For [`Pins::wrote`].
    pub token: PinToken,
    /// False when [`PinLimits::pins_max`] is reached: make the write FILE_SYNC, since nothing remembers it.
    pub pinned: bool,
}

/// Where a COMMIT goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinnedCommit {
    /// The store.
    pub store: StoreId,
    /// For [`Pins::committed`].
    pub token: PinToken,
    /// Whether the file is pinned to that store; otherwise it came from the routing table.
    pub pinned: bool,
}

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrote {
    /// The store has the data, but not on stable storage: UNSTABLE, or DATA_SYNC (a COMMIT is still to come).
    Unstable {
        /// First byte.
        offset: u64,
        /// Bytes written, as the reply says.
        count: u32,
    },
    /// The store has it on stable storage (FILE_SYNC).
    Stable,
    /// An error, or no reply: nothing to commit.
    Failed,
}

/// A pin that is older than [`PinLimits::age_max`]: commit the file at its store with this credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overdue {
    /// The file handle.
    pub handle: Box<[u8]>,
    /// Its hash.
    pub hash: HandleHash,
    /// Credential of the latest writer, as it was on the wire.
    pub credential: Box<[u8]>,
    /// The store.
    pub store: StoreId,
}

#[derive(Debug)]
struct Pin {
    handle: Box<[u8]>,
    credential: Box<[u8]>,
    store: StoreId,
    since: Time,
    reported: Option<Time>,
    /// Serial of its first write: older tokens are of an earlier pin of the same file.
    born: u64,
    /// Serial of its latest write.
    latest: u64,
    in_flight: u32,
    outstanding: Ranges,
}

impl Pin {
    fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.outstanding.0.is_empty()
    }

    fn is_overdue(&self, now: Time, age_max: Duration) -> bool {
        let old = |since: Time| since + age_max <= now;
        old(self.since) && self.reported.is_none_or(old)
    }
}

/// Disjoint byte ranges, first and one past the last, sorted.
#[derive(Debug, Default, PartialEq)]
struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    fn add(&mut self, mut start: u64, mut end: u64) {
        if start >= end {
            return;
        }
        // Those that overlap or touch become one with the new one.
        let first = self.0.partition_point(|range| range.1 < start);
        let after = self.0.partition_point(|range| range.0 <= end);
        if let Some(touched) = self.0.get(first..after)
            && let (Some(low), Some(high)) = (touched.first(), touched.last())
        {
            start = start.min(low.0);
            end = end.max(high.1);
        }
        self.0.splice(first..after, [(start, end)]);
        self.bound();
    }

    fn bound(&mut self) {
        while self.0.len() > RANGES_MAX {
            self.join_nearest();
        }
    }

    fn join_nearest(&mut self) {
        let gaps = self.0.windows(2).enumerate().filter_map(|(place, pair)| match pair {
            [left, right] => Some((right.0 - left.1, place, right.1)),
            _ => None,
        });
        if let Some((_, place, end)) = gaps.min() {
            self.0.remove(place + 1);
            if let Some(joined) = self.0.get_mut(place) {
                joined.1 = end;
            }
        }
    }

    fn remove(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let parts = self.0.iter().flat_map(|&(a, b)| [(a, b.min(start)), (a.max(end), b)]);
        self.0 = parts.filter(|(a, b)| a < b).collect();
        // Taking a piece out of the middle leaves one range more.
        self.bound();
    }
}

#[derive(Debug, Default)]
struct Shard {
    /// By hash; a second file of equal hash is not pinned (64 bits: it does not happen, but it may).
    pins: PrehashedMap<HandleHash, Pin>,
    serial: u64,
}

impl Shard {
    fn pin(&self, handle: &[u8], hash: HandleHash) -> Option<&Pin> {
        self.pins.get(&hash).filter(|pin| *pin.handle == *handle)
    }

    fn pin_mut(&mut self, handle: &[u8], hash: HandleHash) -> Option<&mut Pin> {
        self.pins.get_mut(&hash).filter(|pin| *pin.handle == *handle)
    }
}

/// The pinned files. Shared by all of the router's threads.
#[derive(Debug)]
pub struct Pins {
    limits: PinLimits,
    shards: Box<[Mutex<Shard>]>,
    pinned: AtomicUsize,
    refused: AtomicU64,
}

impl Pins {
    /// No pins yet.
    #[must_use]
    pub fn new(limits: PinLimits) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { limits, shards, pinned: AtomicUsize::new(0), refused: AtomicU64::new(0) }
    }

    /// A write that asks for UNSTABLE or DATA_SYNC is about to be sent: it goes to the store that the file is pinned to,
    /// else where `route` says, and pins it there. `None` when `route` says so. `route` is called under the shard's lock:
    /// it must not come back here.
    pub fn write(
        &self,
        now: Time,
        handle: &[u8],
        hash: HandleHash,
        credential: &[u8],
        route: impl FnOnce() -> Option<StoreId>,
    ) -> Option<PinnedWrite> {
        let mut shard = self.shard(hash);
        let serial = shard.serial + 1;
        let token = PinToken { serial, quiet: false };
        if let Some(pin) = shard.pin_mut(handle, hash) {
            pin.latest = serial;
            pin.in_flight = pin.in_flight.saturating_add(1);
            if *pin.credential != *credential {
                pin.credential = credential.into();
            }
            let store = pin.store;
            shard.serial = serial;
            return Some(PinnedWrite { store, token, pinned: true });
        }
        let store = route()?;
        if shard.pins.contains_key(&hash) || !self.reserve() {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Some(PinnedWrite { store, token: PinToken::UNPINNED, pinned: false });
        }
        shard.serial = serial;
        let pin = Pin {
            handle: handle.into(),
            credential: credential.into(),
            store,
            since: now,
            reported: None,
            born: serial,
            latest: serial,
            in_flight: 1,
            outstanding: Ranges::default(),
        };
        shard.pins.insert(hash, pin);
        Some(PinnedWrite { store, token, pinned: true })
    }

    /// A write has ended. Once for every [`Pins::write`].
    pub fn wrote(&self, handle: &[u8], hash: HandleHash, token: PinToken, outcome: Wrote) {
        let mut shard = self.shard(hash);
        let Some(pin) = shard.pin_mut(handle, hash).filter(|pin| token.serial >= pin.born) else { return };
        pin.in_flight = pin.in_flight.saturating_sub(1);
        if let Wrote::Unstable { offset, count } = outcome {
            pin.outstanding.add(offset, offset.saturating_add(u64::from(count)));
        }
        if pin.is_idle() {
            shard.pins.remove(&hash);
            self.unpinned(1);
        }
    }

    /// A COMMIT is about to be sent: it goes to the store that the file is pinned to, else where `route` says (called
    /// under the shard's lock). `None` when `route` says so.
    pub fn commit(
        &self,
        handle: &[u8],
        hash: HandleHash,
        route: impl FnOnce() -> Option<StoreId>,
    ) -> Option<PinnedCommit> {
        let shard = self.shard(hash);
        match shard.pin(handle, hash) {
            Some(pin) => {
                let token = PinToken { serial: pin.latest, quiet: pin.in_flight == 0 };
                Some(PinnedCommit { store: pin.store, token, pinned: true })
            }
            None => Some(PinnedCommit { store: route()?, token: PinToken::UNPINNED, pinned: false }),
        }
    }

    /// A COMMIT has ended; `count` 0 means to the end of the file. Returns whether the file is free of its pin now.
    ///
    /// A COMMIT covers what was written before it: it counts only if no write was in flight when it was sent and none has
    /// been sent since. One that covers only part of what is outstanding takes that part off.
    pub fn committed(
        &self,
        handle: &[u8],
        hash: HandleHash,
        token: PinToken,
        offset: u64,
        count: u32,
        ok: bool,
    ) -> bool {
        let mut shard = self.shard(hash);
        let Some(pin) = shard.pin_mut(handle, hash) else { return true };
        if !ok || !token.quiet || token.serial != pin.latest {
            return false;
        }
        let end = if count == 0 { u64::MAX } else { offset.saturating_add(u64::from(count)) };
        pin.outstanding.remove(offset, end);
        let idle = pin.is_idle();
        if idle {
            shard.pins.remove(&hash);
            self.unpinned(1);
        }
        idle
    }

    /// The store that this file is pinned to.
    #[must_use]
    pub fn store_of(&self, handle: &[u8], hash: HandleHash) -> Option<StoreId> {
        self.shard(hash).pin(handle, hash).map(|pin| pin.store)
    }

    /// The store has restarted or is lost: drops its pins. What it had not committed is gone; the client learns it from
    /// the changed write verifier and writes again.
    pub fn store_restarted(&self, store: StoreId) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            let before = shard.pins.len();
            shard.pins.retain(|_, pin| pin.store != store);
            self.unpinned(before - shard.pins.len());
        }
    }

    /// Pins older than [`PinLimits::age_max`], each at most once in that time. The router commits these files as if it
    /// were the writer, through [`Pins::commit`] and [`Pins::committed`] with the range 0, 0.
    #[must_use]
    pub fn overdue(&self, now: Time) -> Vec<Overdue> {
        let mut overdue = Vec::new();
        for shard in &self.shards {
            for (&hash, pin) in &mut lock(shard).pins {
                if pin.is_overdue(now, self.limits.age_max) {
                    pin.reported = Some(now);
                    let (handle, credential) = (pin.handle.clone(), pin.credential.clone());
                    overdue.push(Overdue { handle, hash, credential, store: pin.store });
                }
            }
        }
        overdue
    }

    /// Runs `work` while no pin can come or go: the routing table is swapped in here, so that no write can be routed by
    /// the old table and pinned after the new one looked.
    pub fn frozen<R>(&self, work: impl FnOnce(&FrozenPins<'_>) -> R) -> R {
        // Always in the same order, and nothing else holds two of them: no deadlock.
        work(&FrozenPins { shards: self.shards.iter().map(lock).collect() })
    }

    /// Files pinned, of [`PinLimits::pins_max`].
    #[must_use]
    pub fn len(&self) -> usize {
        self.pinned.load(Ordering::Relaxed)
    }

    /// Whether no file is pinned.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes that were not pinned because of [`PinLimits::pins_max`], so far.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    fn shard(&self, hash: HandleHash) -> MutexGuard<'_, Shard> {
        lock(&self.shards[shard_of(hash)])
    }

    /// Counts one pin more, if there may be one.
    fn reserve(&self) -> bool {
        let more = |pinned| (pinned < self.limits.pins_max).then_some(pinned + 1);
        self.pinned.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn unpinned(&self, pins: usize) {
        self.pinned.fetch_sub(pins, Ordering::Relaxed);
    }
}

/// All pins, standing still. See [`Pins::frozen`].
#[derive(Debug)]
pub struct FrozenPins<'a> {
    shards: Vec<MutexGuard<'a, Shard>>,
}

impl FrozenPins<'_> {
    /// The store that this file is pinned to.
    #[must_use]
    pub fn store_of(&self, handle: &[u8], hash: HandleHash) -> Option<StoreId> {
        self.shards.get(shard_of(hash))?.pin(handle, hash).map(|pin| pin.store)
    }

    /// Every pin: handle, hash, store.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], HandleHash, StoreId)> {
        let pins = self.shards.iter().flat_map(|shard| &shard.pins);
        pins.map(|(&hash, pin)| (&*pin.handle, hash, pin.store))
    }
}

/// Bits 20 to 25 of the hash: the default rule uses the top 16, the shards' maps the lowest and the top 7.
fn shard_of(hash: HandleHash) -> usize {
    usize::try_from(hash.0 >> 20 & 63).unwrap_or(0) % SHARDS
}

/// A panic elsewhere must not stop the data plane: the state under these locks is valid at every step.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
