//! Calls that wait for their reply: a ring indexed by a running XID, so that no lookup hashes and no XID comes back soon.
//!
//! Stores keep duplicate caches keyed by XID, and some drop a repeated XID for a minute without an answer. The XID
//! towards the stores therefore only ever counts up; a slot still busy when the count comes round is skipped. The ring
//! holds four bytes a call and says where the call is kept: the place that was left last is taken first, so that a few
//! calls in flight pass through a few places of the processor's cache, however far the count runs.

use crate::Client;
use crate::duplicates::Ticket;
use crate::pins::PinToken;
use crate::resolve::Resolution;
use crate::send_log::LogPosition;
use crate::suspects::Losses;
use crate::time::Time;
use clockwork_placement::{HandleHash, StoreId};
use clockwork_wire::nfs3::Procedure;

/// A connection to a store, as the switch numbers them within its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkId(pub u16);

/// Where the bytes of a pending call are.
#[derive(Debug)]
pub(crate) enum Place {
    /// Given to a link; kept in its send log until the reply comes. `epoch` is the store's when it was given.
    Sent { link: LinkId, at: LogPosition, epoch: u64 },
    /// Waiting for a link, or for room at its store. The call without record mark.
    Held(Box<[u8]>),
}

/// Who gets the reply.
#[derive(Debug)]
pub(crate) enum Purpose<T> {
    /// A client's call.
    Client(Client),
    /// The router looks whether a re-sent call had already run.
    Resolve(Box<Resolution<T>>),
    /// The router commits a file whose pin has grown too old, for its writer.
    Commit { handle: Box<[u8]> },
}

/// What has to be settled with the pins when the reply comes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum PinDebt {
    /// Nothing.
    #[default]
    None,
    /// A write that pinned its file.
    Write { token: PinToken, offset: u64 },
    /// A commit.
    Commit { token: PinToken, offset: u64, count: u32 },
}

/// By what the repeats of a call are known.
#[derive(Debug, Default)]
pub(crate) enum Repeats {
    /// The router's own call, which nobody repeats.
    #[default]
    None,
    /// An idempotent call: its key among those in progress.
    Progress(u64),
    /// Another one: its place in the duplicate request cache.
    Ticket(Ticket),
}

/// One call that waits.
#[derive(Debug)]
pub(crate) struct Slot<T> {
    pub(crate) xid: u32,
    pub(crate) client_xid: u32,
    pub(crate) procedure: Procedure,
    /// The call was given to a store before, and that store may have run it.
    pub(crate) maybe_ran: bool,
    pub(crate) store: StoreId,
    pub(crate) place: Place,
    pub(crate) purpose: Purpose<T>,
    pub(crate) since: Time,
    /// How often the call was sent over its link.
    pub(crate) sends: u8,
    pub(crate) losses: Losses,
    pub(crate) hash: HandleHash,
    pub(crate) repeats: Repeats,
    pub(crate) pin: PinDebt,
    /// None for the router's own calls, which are not measured.
    pub(crate) token: Option<T>,
}

/// The ring, and the calls.
#[derive(Debug)]
pub(crate) struct Pending<T> {
    /// By XID: where the call is kept, or `VACANT`.
    ring: Vec<u32>,
    slots: Vec<Option<Slot<T>>>,
    /// Places in `slots` that hold no call.
    free: Vec<u32>,
    next_xid: u32,
}

const VACANT: u32 = u32::MAX;

impl<T> Pending<T> {
    /// Room for `capacity` calls, rounded up to a power of two; XIDs count from `first_xid`.
    pub(crate) fn new(capacity: usize, first_xid: u32) -> Self {
        let capacity = capacity.clamp(16, 1 << 20).next_power_of_two();
        Self { ring: vec![VACANT; capacity], slots: Vec::new(), free: Vec::new(), next_xid: first_xid }
    }

    fn index(&self, xid: u32) -> usize {
        xid as usize & (self.ring.len() - 1)
    }

    /// Where the call of this XID is kept, or one whose XID has the same place in the ring.
    fn place(&self, xid: u32) -> usize {
        self.ring[self.index(xid)] as usize
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn capacity(&self) -> usize {
        self.ring.len()
    }

    /// The XID that the next `insert` must use, or `None` when every slot is busy.
    pub(crate) fn vacancy(&mut self) -> Option<u32> {
        if self.len() == self.ring.len() {
            return None;
        }
        loop {
            let xid = self.next_xid;
            self.next_xid = self.next_xid.wrapping_add(1);
            if self.ring[self.index(xid)] == VACANT {
                return Some(xid);
            }
        }
    }

    /// Stores a call under the XID that it carries, which `vacancy` gave.
    pub(crate) fn insert(&mut self, slot: Slot<T>) {
        let index = self.index(slot.xid);
        debug_assert!(self.ring[index] == VACANT, "a slot is taken only after vacancy named it");
        match self.free.pop() {
            Some(place) => {
                self.ring[index] = place;
                self.slots[place as usize] = Some(slot);
            }
            None => {
                // There are at most as many as the ring has entries, a million.
                self.ring[index] = u32::try_from(self.slots.len()).unwrap_or(VACANT);
                self.slots.push(Some(slot));
            }
        }
    }

    pub(crate) fn get(&self, xid: u32) -> Option<&Slot<T>> {
        self.slots.get(self.place(xid))?.as_ref().filter(|slot| slot.xid == xid)
    }

    pub(crate) fn get_mut(&mut self, xid: u32) -> Option<&mut Slot<T>> {
        let place = self.place(xid);
        self.slots.get_mut(place)?.as_mut().filter(|slot| slot.xid == xid)
    }

    pub(crate) fn remove(&mut self, xid: u32) -> Option<Slot<T>> {
        self.remove_if(xid, |_| true)
    }

    /// Removes the call if it is there and `wanted`.
    #[inline]
    pub(crate) fn remove_if(&mut self, xid: u32, wanted: impl Fn(&Slot<T>) -> bool) -> Option<Slot<T>> {
        let index = self.index(xid);
        let place = self.ring[index];
        let entry = self.slots.get_mut(place as usize)?;
        if !entry.as_ref().is_some_and(|slot| slot.xid == xid && wanted(slot)) {
            return None;
        }
        self.ring[index] = VACANT;
        self.free.push(place);
        entry.take()
    }

    /// The XIDs of all waiting calls that satisfy `wanted`, in the order in which they were made.
    pub(crate) fn select(&self, wanted: impl Fn(&Slot<T>) -> bool) -> Vec<u32> {
        let mut xids: Vec<u32> =
            self.slots.iter().flatten().filter(|slot| wanted(slot)).map(|s| s.xid).collect();
        // Age before the running count, modulo its width.
        let next = self.next_xid;
        xids.sort_unstable_by_key(|xid| std::cmp::Reverse(next.wrapping_sub(*xid)));
        xids
    }
}

/// Every call passes through its slot: what is seldom needed must not make it larger.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Slot<[u32; 2]>>() <= 208);
