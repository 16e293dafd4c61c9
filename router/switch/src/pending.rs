//! Calls that wait for their reply: a ring indexed by a running XID, so that no lookup hashes and no XID comes back soon.
//!
//! Stores keep duplicate caches keyed by XID, and some drop a repeated XID for a minute without an answer. The XID
//! towards the stores therefore only ever counts up; a slot still busy when the count comes round is skipped.

use crate::Client;
use crate::duplicates::Ticket;
use crate::pins::PinToken;
use crate::resolve::Resolution;
use crate::send_log::LogPosition;
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
    pub(crate) hash: HandleHash,
    pub(crate) ticket: Option<Ticket>,
    pub(crate) pin: PinDebt,
    /// None for the router's own calls, which are not measured.
    pub(crate) token: Option<T>,
}

/// The ring.
#[derive(Debug)]
pub(crate) struct Pending<T> {
    slots: Vec<Option<Slot<T>>>,
    next_xid: u32,
    len: usize,
}

impl<T> Pending<T> {
    /// Room for `capacity` calls, rounded up to a power of two; XIDs count from `first_xid`.
    pub(crate) fn new(capacity: usize, first_xid: u32) -> Self {
        let capacity = capacity.clamp(16, 1 << 20).next_power_of_two();
        let mut slots = Vec::new();
        slots.resize_with(capacity, || None);
        Self { slots, next_xid: first_xid, len: 0 }
    }

    fn index(&self, xid: u32) -> usize {
        xid as usize & (self.slots.len() - 1)
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// The XID that the next `insert` must use, or `None` when every slot is busy.
    pub(crate) fn vacancy(&mut self) -> Option<u32> {
        if self.len == self.slots.len() {
            return None;
        }
        loop {
            let xid = self.next_xid;
            self.next_xid = self.next_xid.wrapping_add(1);
            let index = self.index(xid);
            if self.slots[index].is_none() {
                return Some(xid);
            }
        }
    }

    /// Stores a call under the XID that it carries, which `vacancy` gave.
    pub(crate) fn insert(&mut self, slot: Slot<T>) {
        let index = self.index(slot.xid);
        debug_assert!(self.slots[index].is_none(), "a slot is taken only after vacancy named it");
        self.len += usize::from(self.slots[index].is_none());
        self.slots[index] = Some(slot);
    }

    pub(crate) fn get(&self, xid: u32) -> Option<&Slot<T>> {
        self.slots[self.index(xid)].as_ref().filter(|slot| slot.xid == xid)
    }

    pub(crate) fn get_mut(&mut self, xid: u32) -> Option<&mut Slot<T>> {
        let index = self.index(xid);
        self.slots[index].as_mut().filter(|slot| slot.xid == xid)
    }

    pub(crate) fn remove(&mut self, xid: u32) -> Option<Slot<T>> {
        let index = self.index(xid);
        if self.slots[index].as_ref()?.xid != xid {
            return None;
        }
        self.len -= 1;
        self.slots[index].take()
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
