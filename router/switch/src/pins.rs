//! Pins: a file with unstable writes outstanding stays with its store until they are committed.
//!
//! The reply to a WRITE may say that the data is not on stable storage yet (RFC 1813, section 3.3.7); the client keeps it
//! until a COMMIT succeeds at the same server instance (section 3.3.21). So COMMIT, and further writes, go to the store
//! that took the first one, whatever the routing table says meanwhile, and a move of the file waits for the pin.
//!
//! A COMMIT covers the writes whose replies had come before it was sent, and no others: what is outstanding is kept by
//! age.
//!
//! # Files that are written without a pause
//! A file that always has a write in flight would never lose its pin. So where the table wants the file elsewhere
//! ([`FrozenPins::leave`]) and its pin is older than [`PinLimits::age_max`], it is *drained*: further writes go to the
//! same store as FILE_SYNC, which leave nothing outstanding, and once the last unstable one has ended, the file is
//! committed. A file that is to leave and has lost its pin, drained or by a COMMIT of its client, is *released*: its
//! writes stay FILE_SYNC, so that no new pin comes before the table has been swapped, for [`RELEASED_MAX`] at the most.
//! FILE_SYNC writes in flight hold no move up, whether the client or the drain has made them so.
//!
//! So the file is free once its pin is `age_max` old and the slowest unstable write in flight and then a COMMIT have been
//! answered. Where the COMMIT fails, writes are unstable again, and it is tried anew `age_max` later.
//!
//! The pins are spread over shards with a lock each, which only unstable writes and COMMITs touch. The routing table is
//! asked under that lock, and swapped under all of them ([`Pins::frozen`]): a table never contradicts a pin.

mod ranges;

use crate::time::Time;
use clockwork_placement::{HandleHash, PrehashedMap, StoreId};
use ranges::Ranges;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const SHARDS: usize = 64;

/// A file that is to leave and has no pin any more is released for so long at the most: the table is swapped several
/// times a second while files wait, and where that fails, writes must not be FILE_SYNC for ever.
pub const RELEASED_MAX: Duration = Duration::from_secs(5);

/// A COMMIT that could not be sent is tried again after this long.
const POSTPONED: Duration = Duration::from_secs(1);

/// Limits of the pins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinLimits {
    /// Files pinned at once. Writes to further files are not pinned (and have to be sent as FILE_SYNC), counted by
    /// [`Pins::refused`].
    pub pins_max: usize,
    /// A pin that has lasted for so long is [overdue](Pins::overdue).
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
    /// Running number of writes and commits in the pin's shard; 0: not pinned.
    serial: u64,
}

impl PinToken {
    const UNPINNED: Self = Self { serial: 0 };
}

/// Where an unstable write goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "every write is followed by `wrote`, or its pin stays"]
pub struct PinnedWrite {
    /// The store.
    pub store: StoreId,
    /// For [`Pins::wrote`].
    pub token: PinToken,
    /// False when [`PinLimits::pins_max`] is reached, or the file is to leave (see [the module](self)): make the write
    /// FILE_SYNC, since nothing remembers it.
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

/// How far a file is from leaving its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Unstable writes are let through.
    Pinned,
    /// Further writes are FILE_SYNC, until the pin is gone.
    Draining,
    /// No pin any more: it waits for the table, not beyond the time that the first look at it sets.
    Released(Option<Time>),
}

#[derive(Debug)]
struct Pin {
    handle: Box<[u8]>,
    credential: Box<[u8]>,
    store: StoreId,
    /// When it reaches its age limit.
    old_from: Time,
    /// Not [overdue](Pins::overdue) before: it has been committed since.
    overdue_from: Time,
    /// The table wants the file elsewhere.
    leaves: bool,
    stage: Stage,
    /// Serial of its first write: older tokens are of an earlier pin of the same file.
    born: u64,
    in_flight: u32,
    outstanding: Ranges,
}

impl Pin {
    fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.outstanding.is_empty()
    }

    fn is_released(&self) -> bool {
        matches!(self.stage, Stage::Released(_))
    }

    /// Whether it is to be committed now; begins to drain it if it has to leave.
    fn is_overdue(&mut self, now: Time) -> bool {
        if self.overdue_from > now || self.is_released() {
            return false;
        }
        if self.leaves {
            self.stage = Stage::Draining;
        }
        // A drained file is committed when that frees it. Another is committed as it is: what it covers is safe then.
        let waits = self.stage == Stage::Draining && self.in_flight > 0;
        !waits && !self.outstanding.is_empty()
    }

    fn set_leaves(&mut self, leaves: bool) {
        if leaves && !self.leaves {
            // Its turn to be committed may lie ahead, but that would not free it.
            self.overdue_from = self.old_from;
        }
        if !leaves && self.stage == Stage::Draining {
            self.stage = Stage::Pinned;
        }
        self.leaves = leaves;
    }

    /// Whether a released file has waited too long for the table.
    fn is_forsaken(&mut self, now: Time) -> bool {
        match &mut self.stage {
            Stage::Released(Some(until)) => *until <= now,
            Stage::Released(until) => {
                *until = Some(now + RELEASED_MAX);
                false
            }
            Stage::Pinned | Stage::Draining => false,
        }
    }
}

#[derive(Debug, Default)]
struct Shard {
    /// By hash; a second file of equal hash is not pinned (64 bits: it does not happen, but it may).
    pins: PrehashedMap<HandleHash, Pin>,
    serial: u64,
}

impl Shard {
    /// Not of a released file.
    fn pin(&self, handle: &[u8], hash: HandleHash) -> Option<&Pin> {
        self.pins.get(&hash).filter(|pin| *pin.handle == *handle && !pin.is_released())
    }

    /// Not of a released file.
    fn pin_mut(&mut self, handle: &[u8], hash: HandleHash) -> Option<&mut Pin> {
        self.pins.get_mut(&hash).filter(|pin| *pin.handle == *handle && !pin.is_released())
    }

    fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
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
        let unpinned = |store| PinnedWrite { store, token: PinToken::UNPINNED, pinned: false };
        let mut shard = self.shard(hash);
        let serial = shard.next_serial();
        let token = PinToken { serial };
        match shard.pins.get_mut(&hash) {
            None => {}
            Some(pin) if *pin.handle != *handle => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                return route().map(unpinned);
            }
            Some(Pin { stage: Stage::Released(_), .. }) => return route().map(unpinned),
            Some(Pin { stage: Stage::Draining, store, .. }) => return Some(unpinned(*store)),
            Some(pin) => {
                pin.in_flight = pin.in_flight.saturating_add(1);
                if *pin.credential != *credential {
                    pin.credential = credential.into();
                }
                return Some(PinnedWrite { store: pin.store, token, pinned: true });
            }
        }
        let store = route()?;
        if !self.reserve() {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Some(unpinned(store));
        }
        let pin = Pin {
            handle: handle.into(),
            credential: credential.into(),
            store,
            old_from: now + self.limits.age_max,
            overdue_from: now + self.limits.age_max,
            leaves: false,
            stage: Stage::Pinned,
            born: serial,
            in_flight: 1,
            outstanding: Ranges::default(),
        };
        shard.pins.insert(hash, pin);
        Some(PinnedWrite { store, token, pinned: true })
    }

    /// A write has ended. Once for every [`Pins::write`].
    pub fn wrote(&self, handle: &[u8], hash: HandleHash, token: PinToken, outcome: Wrote) {
        let mut shard = self.shard(hash);
        let serial = shard.serial;
        let Some(pin) = shard.pin_mut(handle, hash).filter(|pin| token.serial >= pin.born) else { return };
        pin.in_flight = pin.in_flight.saturating_sub(1);
        if let Wrote::Unstable { offset, count } = outcome {
            pin.outstanding.add(offset, offset.saturating_add(u64::from(count)), serial);
        }
        self.settled(&mut shard, hash);
    }

    /// A COMMIT is about to be sent: it goes to the store that the file is pinned to, else where `route` says (called
    /// under the shard's lock). `None` when `route` says so.
    pub fn commit(
        &self,
        handle: &[u8],
        hash: HandleHash,
        route: impl FnOnce() -> Option<StoreId>,
    ) -> Option<PinnedCommit> {
        let mut shard = self.shard(hash);
        match shard.pin(handle, hash).map(|pin| pin.store) {
            Some(store) => {
                let token = PinToken { serial: shard.next_serial() };
                Some(PinnedCommit { store, token, pinned: true })
            }
            None => Some(PinnedCommit { store: route()?, token: PinToken::UNPINNED, pinned: false }),
        }
    }

    /// A COMMIT has ended; `count` 0 means to the end of the file. Returns whether the file is free of its pin now.
    ///
    /// What it covers is taken off: the bytes of its range whose writes had been answered before it was sent. (A store may
    /// run a write after a COMMIT that was sent later.)
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
        if !ok {
            return false;
        }
        let end = if count == 0 { u64::MAX } else { offset.saturating_add(u64::from(count)) };
        // Whatever is outstanding now is younger than every token of an earlier pin of this file.
        pin.outstanding.remove(offset, end, token.serial);
        self.settled(&mut shard, hash)
    }

    /// The COMMIT of an [`Overdue`] file has failed, or there was no room for it. Where the store has `refused` it, the
    /// file is drained no longer.
    pub fn commit_failed(&self, now: Time, handle: &[u8], hash: HandleHash, refused: bool) {
        let mut shard = self.shard(hash);
        let Some(pin) = shard.pin_mut(handle, hash) else { return };
        if refused {
            pin.stage = Stage::Pinned;
        } else {
            pin.overdue_from = now + POSTPONED;
        }
    }

    /// Drops a pin that holds nothing any more. Returns whether it did.
    fn settled(&self, shard: &mut Shard, hash: HandleHash) -> bool {
        let Some(pin) = shard.pins.get_mut(&hash).filter(|pin| pin.is_idle()) else { return false };
        if pin.leaves {
            pin.stage = Stage::Released(None);
        } else {
            shard.pins.remove(&hash);
            self.unpinned(1);
        }
        true
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

    /// Pins older than [`PinLimits::age_max`], each at most once in that time: the router commits these files as if it
    /// were the writer, through [`Pins::commit`] and [`Pins::committed`] with the range 0, 0, and
    /// [`Pins::commit_failed`] where that fails. Files that are to leave are drained first. To be called every 50 ms or so.
    #[must_use]
    pub fn overdue(&self, now: Time) -> Vec<Overdue> {
        let mut overdue = Vec::new();
        for shard in &self.shards {
            let mut shard = lock(shard);
            let before = shard.pins.len();
            shard.pins.retain(|&hash, pin| {
                if pin.is_overdue(now) {
                    pin.overdue_from = now + self.limits.age_max;
                    let (handle, credential) = (pin.handle.clone(), pin.credential.clone());
                    overdue.push(Overdue { handle, hash, credential, store: pin.store });
                }
                !pin.is_forsaken(now)
            });
            self.unpinned(before - shard.pins.len());
        }
        overdue
    }

    /// Runs `work` while no pin can come or go: the routing table is swapped in here, so that no write can be routed by
    /// the old table and pinned after the new one looked.
    pub fn frozen<R>(&self, work: impl FnOnce(&mut FrozenPins<'_>) -> R) -> R {
        // Always in the same order, and nothing else holds two of them: no deadlock.
        work(&mut FrozenPins { pins: self, shards: self.shards.iter().map(lock).collect() })
    }

    /// Files pinned, those included that are released and wait for the table, of [`PinLimits::pins_max`].
    #[must_use]
    pub fn len(&self) -> usize {
        self.pinned.load(Ordering::Relaxed)
    }

    /// Whether no file is pinned or released.
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
    pins: &'a Pins,
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
        let pins = self.shards.iter().flat_map(|shard| &shard.pins).filter(|(_, pin)| !pin.is_released());
        pins.map(|(&hash, pin)| (&*pin.handle, hash, pin.store))
    }

    /// Says of every pin whether its file is to leave its store as soon as it can. Gives those that are: handle, store.
    pub fn leave(
        &mut self,
        leaves: impl Fn(&[u8], HandleHash, StoreId) -> bool,
    ) -> Vec<(Box<[u8]>, StoreId)> {
        let mut leaving = Vec::new();
        let pins = self.shards.iter_mut().flat_map(|shard| &mut shard.pins);
        for (&hash, pin) in pins.filter(|(_, pin)| !pin.is_released()) {
            let leaves = leaves(&pin.handle, hash, pin.store);
            if leaves {
                leaving.push((pin.handle.clone(), pin.store));
            }
            pin.set_leaves(leaves);
        }
        leaving
    }

    /// A table that gives released files to whom they are to go is in force: they may be pinned there.
    pub fn forget_released(&mut self) {
        for shard in &mut self.shards {
            let before = shard.pins.len();
            shard.pins.retain(|_, pin| !pin.is_released());
            self.pins.unpinned(before - shard.pins.len());
        }
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
