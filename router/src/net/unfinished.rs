//! Room for the records that have begun and are not whole yet. Each has its room in whole before it gets any, so that
//! those that have begun can be finished; the others wait, unread, in the kernel's buffers.
//!
//! A buffer is memory mapped for it, which goes back to the operating system when the record has passed, but for a few
//! that are kept for the next ones.

use clockwork_switch::duplicates::ConnectionId;
use clockwork_wire::record::LAST_FRAGMENT;
use clockwork_wire::xdr;
use memmap2::MmapMut;
use slab::Slab;
use std::cell::{RefCell, RefMut};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Bytes that a connection keeps of a record without asking for room.
pub(super) const FREE_BYTES: usize = 16 << 10;

/// Bytes of room of a shard.
pub(crate) const UNFINISHED_BYTES_MAX: usize = 64 << 20;

/// While others wait for room, a record of which nothing has come for so long loses its own.
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// While others wait for room, a record has to be whole after so long, however its bytes come.
const UNWHOLE_MAX: Duration = Duration::from_secs(20);

/// While others wait for room, a client that may not go on because its calls wait keeps it for so long.
const STOPPED_MAX: Duration = Duration::from_secs(60);

/// Buffers kept for the next records.
const SPARES_MAX: usize = 4;

/// Whose connection it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    pub(crate) slot: usize,
    pub(crate) connection: ConnectionId,
    pub(crate) address: IpAddr,
}

#[derive(Debug)]
struct Holder {
    owner: Owner,
    bytes: usize,
    since: Instant,
    /// When the last bytes came.
    moved: Instant,
    /// It is the router that does not read on.
    stopped: bool,
    /// It has been told to close.
    closing: bool,
}

impl Holder {
    fn is_overdue(&self, now: Instant) -> bool {
        let held = now.saturating_duration_since(self.since);
        let silent = now.saturating_duration_since(self.moved);
        if self.stopped { held >= STOPPED_MAX } else { silent >= SILENCE_MAX || held >= UNWHOLE_MAX }
    }
}

#[derive(Debug)]
struct Waiter {
    owner: Owner,
    bytes: usize,
    granted: oneshot::Sender<Held>,
}

#[derive(Debug, Default)]
struct Inner {
    held_bytes: usize,
    holders: Slab<Holder>,
    waiters: VecDeque<Waiter>,
    spares: Vec<MmapMut>,
    /// How often a record had to wait for room.
    full: u64,
}

/// The room of one shard.
#[derive(Debug)]
pub(crate) struct Room {
    bytes_max: usize,
    /// The most that one connection can need.
    one_bytes_max: usize,
    inner: RefCell<Inner>,
}

impl Room {
    /// `one_bytes_max` is the length of the shard's read buffer.
    pub(crate) fn new(bytes_max: usize, one_bytes_max: usize) -> Rc<Self> {
        Rc::new(Self { bytes_max: bytes_max.max(one_bytes_max), one_bytes_max, inner: RefCell::default() })
    }

    /// Whether there is room for whatever a read may bring, and nobody waits for it.
    pub(super) fn is_free(&self) -> bool {
        let inner = self.inner.borrow();
        inner.waiters.is_empty() && inner.held_bytes + self.one_bytes_max <= self.bytes_max
    }

    /// Room that a connection of `kept` bytes needs until the record at their end is whole.
    pub(super) fn needed(&self, kept: &[u8]) -> usize {
        let mut at = 0;
        while let Some(mark) = xdr::u32_at(kept, at) {
            if mark & LAST_FRAGMENT == 0 {
                // The lengths of its other fragments are not known.
                return self.one_bytes_max;
            }
            let end = at + 4 + (mark & !LAST_FRAGMENT) as usize;
            if end > kept.len() {
                return kept.len().max(end - at + FREE_BYTES).min(self.one_bytes_max.max(kept.len()));
            }
            at = end;
        }
        kept.len()
    }

    /// Takes room, which the caller has seen to be there.
    pub(super) fn take(self: &Rc<Self>, owner: Owner, bytes: usize) -> io::Result<Held> {
        let mut inner = self.inner.borrow_mut();
        let buffer = inner.buffer(bytes, self.one_bytes_max)?;
        Ok(self.hold(&mut inner, owner, bytes, buffer))
    }

    /// Takes a buffer that counts for nobody: stores are as many as were configured.
    pub(super) fn take_uncounted(self: &Rc<Self>, bytes: usize) -> io::Result<Held> {
        let buffer = self.inner.borrow_mut().buffer(bytes, self.one_bytes_max)?;
        Ok(Held { buffer: Some(buffer), key: None, room: Rc::clone(self) })
    }

    /// Waits for room.
    pub(super) async fn wait(self: &Rc<Self>, owner: Owner, bytes: usize) -> io::Result<Held> {
        let (granted, grant) = oneshot::channel();
        {
            let mut inner = self.inner.borrow_mut();
            inner.full += 1;
            inner.waiters.push_back(Waiter { owner, bytes, granted });
        }
        self.grant();
        // It is dropped without a word only when no memory could be had.
        grant.await.map_err(|_| io::ErrorKind::OutOfMemory.into())
    }

    fn hold(self: &Rc<Self>, inner: &mut Inner, owner: Owner, bytes: usize, buffer: MmapMut) -> Held {
        let now = Instant::now();
        let holder = Holder { owner, bytes, since: now, moved: now, stopped: false, closing: false };
        inner.held_bytes += bytes;
        Held { buffer: Some(buffer), key: Some(inner.holders.insert(holder)), room: Rc::clone(self) }
    }

    /// Gives what room there is to those that wait.
    fn grant(self: &Rc<Self>) {
        loop {
            let mut inner = self.inner.borrow_mut();
            let Some(next) = inner.next_waiter() else { return };
            let bytes = inner.waiters[next].bytes;
            // Nobody is passed over for being large.
            if inner.held_bytes + bytes > self.bytes_max {
                return;
            }
            let Some(waiter) = inner.waiters.remove(next) else { return };
            if waiter.granted.is_closed() {
                continue;
            }
            let Ok(buffer) = inner.buffer(bytes, self.one_bytes_max) else { continue };
            let held = self.hold(&mut inner, waiter.owner, bytes, buffer);
            drop(inner);
            // Who has gone meanwhile gives it back at once.
            drop(waiter.granted.send(held));
        }
    }

    /// While records wait for room: those that have had theirs for too long, the oldest first and as many as are in
    /// the way. Their connections are to be closed.
    pub(crate) fn overdue(&self, now: Instant) -> Vec<(usize, ConnectionId)> {
        let mut inner = self.inner.borrow_mut();
        inner.waiters.retain(|waiter| !waiter.granted.is_closed());
        let wanted: usize = inner.waiters.iter().map(|waiter| waiter.bytes).sum();
        if wanted == 0 {
            return Vec::new();
        }
        let closing: usize = inner.holders.iter().filter(|(_, h)| h.closing).map(|(_, h)| h.bytes).sum();
        let mut free = self.bytes_max.saturating_sub(inner.held_bytes) + closing;
        let mut late: Vec<&mut Holder> = inner
            .holders
            .iter_mut()
            .map(|(_, holder)| holder)
            .filter(|holder| !holder.closing && holder.is_overdue(now))
            .collect();
        late.sort_by_key(|holder| holder.since);
        let mut closed = Vec::new();
        for holder in late {
            if free >= wanted {
                break;
            }
            holder.closing = true;
            free += holder.bytes;
            closed.push((holder.owner.slot, holder.owner.connection));
        }
        closed
    }

    /// Bytes of room taken, and how many there are.
    pub(crate) fn bytes(&self) -> (usize, usize) {
        (self.inner.borrow().held_bytes, self.bytes_max)
    }

    /// How often a record had to wait for room.
    pub(crate) fn full(&self) -> u64 {
        self.inner.borrow().full
    }

    fn holder(&self, key: usize) -> Option<RefMut<'_, Holder>> {
        RefMut::filter_map(self.inner.borrow_mut(), |inner| inner.holders.get_mut(key)).ok()
    }
}

impl Inner {
    /// Who is next: of the clients that have the least room, who has waited longest. So none takes it from the others
    /// with many connections.
    fn next_waiter(&self) -> Option<usize> {
        if self.waiters.len() < 2 {
            return self.waiters.front().map(|_| 0);
        }
        let mut held: HashMap<IpAddr, usize> = HashMap::new();
        for (_, holder) in &self.holders {
            *held.entry(holder.owner.address).or_default() += holder.bytes;
        }
        let of = |waiter: &Waiter| held.get(&waiter.owner.address).copied().unwrap_or_default();
        self.waiters.iter().enumerate().min_by_key(|(_, waiter)| of(waiter)).map(|(number, _)| number)
    }

    fn buffer(&mut self, bytes: usize, one_bytes_max: usize) -> io::Result<MmapMut> {
        if bytes > one_bytes_max / 4
            && let Some(spare) = self.spares.pop_if(|spare| spare.len() >= bytes)
        {
            return Ok(spare);
        }
        // Pages that no byte comes to take no memory.
        let length = if bytes > one_bytes_max / 4 { one_bytes_max.max(bytes) } else { bytes };
        MmapMut::map_anon(length)
    }
}

/// A buffer and its room, which goes back when this is dropped.
#[derive(Debug)]
pub(super) struct Held {
    /// `None` only while it is dropped.
    buffer: Option<MmapMut>,
    key: Option<usize>,
    room: Rc<Room>,
}

impl Held {
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        self.buffer.as_deref_mut().unwrap_or_default()
    }

    /// More has come, or has passed; so much room is still needed. `stopped`: no more is read for now.
    pub(super) fn moved(&mut self, needed: usize, stopped: bool) {
        let Some(key) = self.key else { return };
        let given_back = {
            let Some(mut holder) = self.room.holder(key) else { return };
            if needed < holder.bytes {
                // Another record's.
                holder.since = Instant::now();
            }
            holder.moved = Instant::now();
            holder.stopped = stopped;
            let given_back = holder.bytes.saturating_sub(needed);
            holder.bytes -= given_back;
            given_back
        };
        if given_back > 0 {
            self.room.inner.borrow_mut().held_bytes -= given_back;
            self.room.grant();
        }
    }

    /// It is, or is no more, the router that does not read on; its client's time begins anew then.
    pub(super) fn pause(&self, pause: bool) {
        let Some(mut holder) = self.key.and_then(|key| self.room.holder(key)) else { return };
        holder.stopped = pause;
        if !pause {
            holder.since = Instant::now();
            holder.moved = holder.since;
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        {
            let mut inner = self.room.inner.borrow_mut();
            if let Some(holder) = self.key.and_then(|key| inner.holders.try_remove(key)) {
                inner.held_bytes = inner.held_bytes.saturating_sub(holder.bytes);
            }
            if let Some(buffer) = self.buffer.take()
                && buffer.len() >= self.room.one_bytes_max
                && inner.spares.len() < SPARES_MAX
            {
                inner.spares.push(buffer);
            }
        }
        self.room.grant();
    }
}

#[cfg(test)]
mod tests;
