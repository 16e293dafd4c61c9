//! Links to stores: calls placed on them, held for them, and sent again when one is lost.

use crate::meter::Meter;
use crate::pending::{LinkId, Place, Repeats};
use crate::time::Time;
use crate::{DuplicateCache, Outlet, Switch, Transport};
use clockwork_placement::StoreId;
use clockwork_wire::rpc;
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::time::Duration;

/// First wait for the reply to a datagram, or to a call sent again; doubled with every sending, up to the last.
pub(crate) const RETRANSMIT_FIRST: Duration = Duration::from_millis(500);
const RETRANSMIT_LAST: Duration = Duration::from_secs(8);

impl<M: Meter> Switch<M> {
    /// The link can carry bytes. Calls held for its store go out.
    pub fn link_up(&mut self, now: Time, link: LinkId, out: &mut impl Outlet) {
        let entry = &mut self.links[usize::from(link.0)];
        entry.up = true;
        let store = entry.store;
        self.pump(now, store, out);
    }

    /// The link is lost. What was sent over it may have run, and what the store acknowledged as unstable may be gone:
    /// its epoch is raised, and the calls are held to be sent again.
    pub fn link_down(&mut self, now: Time, link: LinkId, out: &mut impl Outlet) {
        let entry = &mut self.links[usize::from(link.0)];
        let (store, was_up) = (entry.store, entry.up);
        entry.up = false;
        entry.log.discard_unsent();
        entry.due.clear();
        if !was_up {
            return;
        }
        self.shared.suspect_restart(store);
        let lost =
            self.pending.select(|slot| matches!(slot.place, Place::Sent { link: sent, .. } if sent == link));
        let renumber = self.shared.stores[store.index()].duplicate_cache == DuplicateCache::None;
        // In the order in which they were made, so that new numbers keep it.
        let taken: Vec<u32> = lost
            .into_iter()
            .map(|xid| {
                self.take_back(xid);
                self.suspect_back(store, xid);
                if let Some(slot) = self.pending.get_mut(xid) {
                    slot.losses.link_lost();
                }
                if renumber { self.renumber(xid) } else { xid }
            })
            .collect();
        // They were made before whatever is held already, so they go in front. What may run only once waits for the port
        // that the store knows it by; the rest may go over another link at once.
        let bound = !renumber && self.stores[store.index()].links.len() > 1;
        let mut suspects = Vec::new();
        for xid in taken.into_iter().rev() {
            let Some(slot) = self.pending.get(xid) else { continue };
            let own = (bound && !slot.procedure.is_idempotent()).then_some(link);
            if slot.losses.suspect() {
                suspects.push((xid, own));
            } else {
                self.held(store, own).push_front(xid);
            }
        }
        for (xid, own) in suspects.into_iter().rev() {
            self.set_apart(now, xid, own);
        }
        self.pump(now, store, out);
    }

    /// Takes a call back from its link: its bytes are held, and it counts as perhaps run.
    pub(crate) fn take_back(&mut self, xid: u32) {
        let Some(slot) = self.pending.get_mut(xid) else { return };
        let Place::Sent { link, at, .. } = slot.place else { return };
        let log = &mut self.links[usize::from(link.0)].log;
        let message: Box<[u8]> = log.call(at).into();
        log.release(at);
        let (store, bytes) = (slot.store, message.len());
        slot.place = Place::Held(message);
        slot.maybe_ran = true;
        self.hold_bytes(store, bytes);
        let queue = &mut self.stores[store.index()];
        queue.outstanding = queue.outstanding.saturating_sub(1);
        queue.window.taken_back(at.length());
    }

    pub(crate) fn hold_bytes(&mut self, store: StoreId, bytes: usize) {
        self.held_bytes += bytes;
        self.stores[store.index()].held_bytes += bytes;
    }

    pub(crate) fn unhold_bytes(&mut self, store: StoreId, bytes: usize) {
        self.held_bytes = self.held_bytes.saturating_sub(bytes);
        let queue = &mut self.stores[store.index()];
        queue.held_bytes = queue.held_bytes.saturating_sub(bytes);
    }

    /// Whether one more call of so many bytes may be held for a store. A store may hold as much as is left: one that does
    /// not answer takes half of the room, two take two thirds, and there is always some for the others.
    fn may_hold(&self, store: StoreId, bytes: usize) -> bool {
        let queue = &self.stores[store.index()];
        let calls_left = self.pending.capacity() - self.pending.len();
        let bytes_left = self.limits.held_bytes_max.saturating_sub(self.held_bytes);
        queue.held.len() < calls_left && queue.held_bytes + bytes <= bytes_left
    }

    /// Gives a held call a new XID, for a store that would drop the old one.
    pub(crate) fn renumber(&mut self, xid: u32) -> u32 {
        let Some(mut slot) = self.pending.remove(xid) else { return xid };
        // Its own place is free now, so there is a number; and the old one has passed.
        let new = self.pending.vacancy().unwrap_or(xid);
        slot.xid = new;
        if let Place::Held(message) = &mut slot.place {
            rpc::set_xid(message, new);
        }
        if let Repeats::Progress(key) = slot.repeats {
            self.in_progress.insert(key, new);
        }
        self.pending.insert(slot);
        new
    }

    /// Puts a new call on a link of its store, or holds it; `None` when there is no room for either.
    pub(crate) fn place(
        &mut self,
        store: StoreId,
        xid: u32,
        message: &[u8],
        now: Time,
        out: &mut impl Outlet,
    ) -> Option<Place> {
        if self.stores[store.index()].held.is_empty()
            && let Some(place) = self.send((store, None), xid, message, (1, false), now, out)
        {
            return Some(place);
        }
        if !self.may_hold(store, message.len()) {
            return None;
        }
        self.hold_bytes(store, message.len());
        self.stores[store.index()].held.push_back(xid);
        Some(Place::Held(message.into()))
    }

    /// Gives a call to a link that is up, or to its own link, while the store takes more.
    pub(crate) fn send(
        &mut self,
        (store, own): (StoreId, Option<LinkId>),
        xid: u32,
        message: &[u8],
        (sends, again): (u8, bool),
        now: Time,
        out: &mut impl Outlet,
    ) -> Option<Place> {
        let facts = &self.shared.stores[store.index()];
        let queue = &mut self.stores[store.index()];
        let datagrams = facts.transport == Transport::Datagram;
        if queue.outstanding >= facts.calls_max || datagrams && !queue.window.admits(message.len()) {
            return None;
        }
        // Several links share the calls by their XID, which only ever counts up.
        let (before, from) = match &queue.links[..] {
            one @ [_] => (&[][..], one),
            several => several.split_at(xid as usize % several.len().max(1)),
        };
        let mut links = from.iter().chain(before);
        let link =
            *links.find(|link| self.links[usize::from(link.0)].up && own.is_none_or(|own| own == **link))?;
        let entry = &mut self.links[usize::from(link.0)];
        let at = entry.log.push_call(message).ok()?;
        queue.outstanding += 1;
        queue.window.sent(message.len());
        // A duplicate cache drops a repeat of what still runs, and the reply then goes to the connection that is lost: a
        // call that was sent again over a stream is sent again until it is answered, as over datagrams.
        let dropped = again && facts.duplicate_cache == DuplicateCache::Address;
        if datagrams || dropped {
            entry.due.push(Reverse((now + wait(sends), xid)));
        }
        out.wake(link);
        Some(Place::Sent { link, at, epoch: facts.epoch() })
    }

    /// The queue of calls that wait for a store's own link, or for any.
    pub(crate) fn held(&mut self, store: StoreId, own: Option<LinkId>) -> &mut VecDeque<u32> {
        match own {
            Some(link) => &mut self.links[usize::from(link.0)].held,
            None => &mut self.stores[store.index()].held,
        }
    }

    /// Sends held calls of `store` while it has a link and room: first those that wait for a certain link.
    #[inline]
    pub(crate) fn pump(&mut self, now: Time, store: StoreId, out: &mut impl Outlet) {
        let queue = &self.stores[store.index()];
        let own = |link: &LinkId| !self.links[usize::from(link.0)].held.is_empty();
        // After every reply, and mostly there is nothing.
        if !queue.held.is_empty() || queue.links.iter().any(own) {
            self.pump_held(now, store, out);
        }
    }

    fn pump_held(&mut self, now: Time, store: StoreId, out: &mut impl Outlet) {
        for i in 0..self.stores[store.index()].links.len() {
            let link = self.stores[store.index()].links[i];
            self.pump_queue(now, (store, Some(link)), out);
        }
        self.pump_queue(now, (store, None), out);
    }

    fn pump_queue(&mut self, now: Time, (store, own): (StoreId, Option<LinkId>), out: &mut impl Outlet) {
        while let Some(&xid) = self.held(store, own).front() {
            let held = self.pending.get_mut(xid).filter(|slot| slot.store == store).and_then(|slot| {
                let sends = slot.sends;
                match &mut slot.place {
                    Place::Held(message) => Some((std::mem::take(message), slot.maybe_ran, sends)),
                    Place::Sent { .. } => None,
                }
            });
            let Some((message, again, sends)) = held else {
                self.held(store, own).pop_front();
                continue;
            };
            let sent = self.send((store, own), xid, &message, (sends, again), now, out);
            let Some(slot) = self.pending.get_mut(xid) else { continue };
            match sent {
                Some(place) => {
                    slot.place = place;
                    self.unhold_bytes(store, message.len());
                    self.counters.sent_again += u64::from(again);
                    self.held(store, own).pop_front();
                }
                None => {
                    slot.place = Place::Held(message);
                    return;
                }
            }
        }
    }
}

pub(crate) fn wait(sends: u8) -> Duration {
    RETRANSMIT_FIRST.saturating_mul(1 << u32::from(sends.saturating_sub(1).min(8))).min(RETRANSMIT_LAST)
}
