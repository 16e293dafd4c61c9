//! Links to stores: calls placed on them, held for them, and sent again when one is lost.

use crate::meter::{Answered, Meter};
use crate::pending::{LinkId, PinDebt, Place, Purpose, Slot};
use crate::shared::is_there;
use crate::time::Time;
use crate::{DuplicateCache, Outlet, Switch, Transport};
use clockwork_placement::{HandleHash, StoreId};
use clockwork_wire::nfs3::{self, Arguments, Procedure, status};
use clockwork_wire::{Span, rpc};
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// First wait for the reply to a datagram, or to a call sent again; doubled with every sending, up to the last.
const RETRANSMIT_FIRST: Duration = Duration::from_millis(500);
const RETRANSMIT_LAST: Duration = Duration::from_secs(8);

/// From this age on calls are set apart in a send log that is half full.
const SET_APART_AGE: Duration = Duration::from_secs(1);

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
                if renumber { self.renumber(xid) } else { xid }
            })
            .collect();
        // They were made before whatever is held already, so they go in front. What may run only once waits for the port
        // that the store knows it by; the rest may go over another link at once.
        let bound = !renumber && self.stores[store.index()].links.len() > 1;
        for xid in taken.into_iter().rev() {
            let once = self.pending.get(xid).is_some_and(|slot| !slot.procedure.is_idempotent());
            self.held(store, (bound && once).then_some(link)).push_front(xid);
        }
        self.pump(now, store, out);
    }

    /// Takes a call back from its link: its bytes are held, and it counts as perhaps run.
    fn take_back(&mut self, xid: u32) {
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

    fn hold_bytes(&mut self, store: StoreId, bytes: usize) {
        self.held_bytes += bytes;
        self.stores[store.index()].held_bytes += bytes;
    }

    fn unhold_bytes(&mut self, store: StoreId, bytes: usize) {
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
    fn renumber(&mut self, xid: u32) -> u32 {
        let Some(mut slot) = self.pending.remove(xid) else { return xid };
        // Its own place is free now, so there is a number; and the old one has passed.
        let new = self.pending.vacancy().unwrap_or(xid);
        slot.xid = new;
        if let Place::Held(message) = &mut slot.place {
            rpc::set_xid(message, new);
        }
        if let (Purpose::Client(client), None) = (&slot.purpose, &slot.ticket) {
            let key = self.progress_key(client, slot.client_xid);
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
    fn send(
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
        let turn = xid as usize;
        let count = queue.links.len();
        let link = (0..count)
            .map(|i| queue.links[(turn + i) % count])
            .find(|link| self.links[usize::from(link.0)].up && own.is_none_or(|own| own == *link))?;
        let entry = &mut self.links[usize::from(link.0)];
        let at = entry.log.push(&[message]).ok()?;
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
    fn held(&mut self, store: StoreId, own: Option<LinkId>) -> &mut VecDeque<u32> {
        match own {
            Some(link) => &mut self.links[usize::from(link.0)].held,
            None => &mut self.stores[store.index()].held,
        }
    }

    /// Sends held calls of `store` while it has a link and room: first those that wait for a certain link.
    pub(crate) fn pump(&mut self, now: Time, store: StoreId, out: &mut impl Outlet) {
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

    /// A store was taken out of the table. Its calls go where the table now sends them; where it names the same store,
    /// or none, they wait on.
    pub fn store_lost(&mut self, now: Time, store: StoreId, out: &mut impl Outlet) {
        self.shared.suspect_restart(store);
        let table = self.shared.table.load_full();
        for xid in self.pending.select(|slot| slot.store == store) {
            let Some(slot) = self.pending.get(xid) else { continue };
            let message = self.call_of(&slot.place);
            let Some(moved) = new_route(slot, message, |handle, hash| table.route(handle, hash)) else {
                continue;
            };
            match moved {
                Moved::To(new) if new == store => {}
                Moved::To(new) => self.move_call(now, xid, (store, new), out),
                Moved::Listing(new) if self.shared.cookies_alike() => {
                    self.move_call(now, xid, (store, new), out);
                }
                Moved::Listing(_) => self.lose_listing(now, xid, out),
            }
        }
        // Whatever has left must not stand in the way of calls to come.
        let Self { pending, stores, links, .. } = self;
        let waits = |xid: &u32| pending.get(*xid).is_some_and(|slot| slot.store == store);
        let queue = &mut stores[store.index()];
        queue.held.retain(waits);
        for link in &queue.links {
            links[usize::from(link.0)].held.retain(waits);
        }
        self.pump(now, store, out);
    }

    /// A client's call as another store's transport can carry it.
    fn lowered_for(&mut self, xid: u32, to: StoreId, message: Box<[u8]>) -> Box<[u8]> {
        let Some(slot) = self.pending.get(xid) else { return message };
        let (Purpose::Client(client), Some(arguments)) =
            (&slot.purpose, arguments_of(slot.procedure, &message))
        else {
            return message;
        };
        let (client, mut message) = (*client, message.into_vec());
        let length = self.lower(&client, to, &arguments, &mut message);
        message.truncate(length);
        message.into_boxed_slice()
    }

    fn move_call(&mut self, now: Time, xid: u32, (from, to): (StoreId, StoreId), out: &mut impl Outlet) {
        self.take_back(xid);
        self.give_up_measured(now, xid);
        // Who drops repeats may have had the call under this number before it went elsewhere and came back.
        let drops = self.shared.stores[to.index()].duplicate_cache == DuplicateCache::None;
        let xid = if drops { self.renumber(xid) } else { xid };
        let Some(message) = self.pending.get_mut(xid).and_then(|slot| match &mut slot.place {
            Place::Held(message) => Some(std::mem::take(message)),
            Place::Sent { .. } => None,
        }) else {
            return;
        };
        self.unhold_bytes(from, message.len());
        let message = self.lowered_for(xid, to, message);
        self.hold_bytes(to, message.len());
        let Self { pending, meter, .. } = self;
        let Some(slot) = pending.get_mut(xid) else { return };
        slot.place = Place::Held(message);
        slot.store = to;
        // The pins of the lost store are gone, and what was written there is answered for by the new verifier.
        slot.pin = PinDebt::None;
        if let (Place::Held(message), Some(_)) = (&slot.place, slot.token) {
            let handle = handle_of(slot.procedure, message).unwrap_or_default();
            slot.token = Some(meter.call(to, slot.procedure.class(), &message[handle], slot.hash));
        }
        self.stores[to.index()].held.push_back(xid);
        self.pump(now, to, out);
    }

    /// Tells the meter that a client's call has ended at its store without an answer.
    fn give_up_measured(&mut self, now: Time, xid: u32) {
        let Self { pending, meter, .. } = self;
        let Some(slot) = pending.get(xid) else { return };
        let Some(token) = slot.token else { return };
        let answered = Answered {
            store: slot.store,
            class: slot.procedure.class(),
            response: now.since(slot.since),
            failed: true,
            bytes_read: 0,
            bytes_written: 0,
        };
        meter.reply(token, answered);
    }

    fn lose_listing(&mut self, now: Time, xid: u32, out: &mut impl Outlet) {
        self.take_back(xid);
        self.give_up_measured(now, xid);
        let Some(slot) = self.pending.remove(xid) else { return };
        if let Place::Held(message) = &slot.place {
            self.unhold_bytes(slot.store, message.len());
        }
        self.counters.listings_lost += 1;
        if let Purpose::Client(client) = slot.purpose {
            let key = self.progress_key(&client, slot.client_xid);
            if self.in_progress.get(&key) == Some(&xid) {
                self.in_progress.remove(&key);
            }
            let (client_xid, procedure) = (slot.client_xid, slot.procedure);
            self.answer(&client, out, |reply| {
                nfs3::failure(reply, client_xid, procedure, status::BAD_COOKIE)
            });
        }
    }

    /// A call that the router itself makes. Gives the purpose back where there is no room.
    pub(crate) fn own_call(
        &mut self,
        now: Time,
        (store, hash): (StoreId, HandleHash),
        procedure: Procedure,
        (credential, arguments): (&[u8], &[u8]),
        (purpose, pin): (Purpose<M::Token>, PinDebt),
        out: &mut impl Outlet,
    ) -> Result<(), Purpose<M::Token>> {
        let Some(xid) = self.pending.vacancy() else { return Err(purpose) };
        let mut message = Vec::with_capacity(64 + credential.len() + arguments.len());
        rpc::begin_call(&mut message, xid, nfs3::PROGRAM, nfs3::VERSION, procedure as u32, credential);
        message.extend_from_slice(arguments);
        let Some(place) = self.place(store, xid, &message, now, out) else { return Err(purpose) };
        self.pending.insert(Slot {
            xid,
            client_xid: xid,
            procedure,
            maybe_ran: false,
            store,
            place,
            purpose,
            since: now,
            sends: 1,
            hash,
            ticket: None,
            pin,
            token: None,
        });
        Ok(())
    }

    /// Does what is due: sends calls again that may be lost, gives calls that wait for a store which is gone to one that has come
    /// since, and, in the first shard, commits files whose pins have grown old and lets old duplicates go. To be called
    /// every 50 ms or so.
    pub fn tick(&mut self, now: Time, out: &mut impl Outlet) {
        for link in 0..self.links.len() {
            self.retransmit(now, link, out);
            self.set_old_calls_apart(now, link);
        }
        self.follow_table(now, out);
        for store in (0..self.stores.len()).map(store_id) {
            // A log may have room again without a reply having come.
            self.pump(now, store, out);
        }
        if self.shard == 0 {
            self.shared.duplicates.expire(now);
            self.commit_overdue(now, out);
        }
    }

    /// Calls whose store was lost when nobody else served wait for it. When the table changes they may go elsewhere.
    fn follow_table(&mut self, now: Time, out: &mut impl Outlet) {
        let table = self.shared.table.load_full();
        if Arc::ptr_eq(&table, &self.table) {
            return;
        }
        for store in (0..self.stores.len()).map(store_id) {
            if self.store_calls(store) != (0, 0) && !is_there(&table, store) {
                self.store_lost(now, store, out);
            }
        }
        self.table = table;
    }

    /// A call that waits long keeps the bytes of all its neighbours in the send log. Where the log is getting full of
    /// that, such calls are set apart: what a store does not answer must not keep the rest from it.
    fn set_old_calls_apart(&mut self, now: Time, link: usize) {
        if self.links[link].log.bytes() <= self.limits.link_bytes_max / 2 {
            return;
        }
        let old = self.pending.select(|slot| {
            slot.since + SET_APART_AGE <= now
                && matches!(slot.place, Place::Sent { link: sent, .. } if usize::from(sent.0) == link)
        });
        for xid in old {
            if let Some(slot) = self.pending.get_mut(xid)
                && let Place::Sent { at, .. } = &mut slot.place
            {
                *at = self.links[link].log.relocate(*at);
            }
        }
    }

    fn retransmit(&mut self, now: Time, link: usize, out: &mut impl Outlet) {
        let id = LinkId(u16::try_from(link).unwrap_or(u16::MAX));
        while let Some(&Reverse((due, xid))) = self.links[link].due.peek() {
            if due > now {
                return;
            }
            self.links[link].due.pop();
            let Some(slot) = self.pending.get_mut(xid) else { continue };
            let Place::Sent { link: sent, at, epoch } = slot.place else { continue };
            if sent != id {
                continue;
            }
            let Ok(again) = self.links[link].log.requeue(at) else {
                self.links[link].due.push(Reverse((now + RETRANSMIT_FIRST, xid)));
                return;
            };
            slot.place = Place::Sent { link: id, at: again, epoch };
            slot.sends = slot.sends.saturating_add(1);
            slot.maybe_ran = true;
            self.stores[slot.store.index()].window.lost(now);
            let next = now + wait(slot.sends);
            self.links[link].due.push(Reverse((next, xid)));
            self.counters.sent_again += 1;
            out.wake(id);
        }
    }

    fn commit_overdue(&mut self, now: Time, out: &mut impl Outlet) {
        for overdue in self.shared.pins.overdue(now) {
            let Some(commit) = self.shared.pins.commit(&overdue.handle, overdue.hash, || Some(overdue.store))
            else {
                continue;
            };
            let mut arguments = Vec::with_capacity(84);
            clockwork_wire::xdr::put_opaque(&mut arguments, &overdue.handle);
            clockwork_wire::xdr::put_u64(&mut arguments, 0);
            clockwork_wire::xdr::put_u32(&mut arguments, 0);
            let purpose = Purpose::Commit { handle: overdue.handle.clone() };
            let pin = PinDebt::Commit { token: commit.token, offset: 0, count: 0 };
            let target = (commit.store, overdue.hash);
            let call = (&overdue.credential[..], &arguments[..]);
            if self.own_call(now, target, Procedure::Commit, call, (purpose, pin), out).is_ok() {
                self.counters.commits_made += 1;
            }
        }
    }
}

fn wait(sends: u8) -> Duration {
    RETRANSMIT_FIRST.saturating_mul(1 << u32::from(sends.saturating_sub(1).min(8))).min(RETRANSMIT_LAST)
}

fn store_id(index: usize) -> StoreId {
    StoreId(u16::try_from(index).unwrap_or(u16::MAX))
}

enum Moved {
    To(StoreId),
    /// A listing in progress, which has to stay where it began unless the stores number cookies alike.
    Listing(StoreId),
}

/// Where a call goes now that its store is lost; `None` when it can go nowhere yet.
fn new_route<T>(
    slot: &Slot<T>,
    message: &[u8],
    route: impl Fn(&[u8], HandleHash) -> Option<StoreId>,
) -> Option<Moved> {
    let arguments = arguments_of(slot.procedure, message)?;
    let to = route(&message[arguments.handle()?], slot.hash)?;
    match arguments {
        Arguments::Readdir { cookie, .. } | Arguments::Readdirplus { cookie, .. } if cookie != 0 => {
            Some(Moved::Listing(to))
        }
        _ => Some(Moved::To(to)),
    }
}

fn arguments_of(procedure: Procedure, message: &[u8]) -> Option<Arguments> {
    let header = rpc::parse_call(message).ok()?;
    nfs3::arguments(procedure, message, header.arguments).ok()
}

fn handle_of(procedure: Procedure, message: &[u8]) -> Option<Span> {
    arguments_of(procedure, message)?.handle()
}
