//! Links to stores: calls placed on them, held for them, and sent again when one is lost.

use crate::meter::{Answered, Meter};
use crate::pending::{LinkId, PinDebt, Place, Purpose, Slot};
use crate::time::Time;
use crate::{DuplicateCache, Outlet, Switch, Transport};
use clockwork_placement::{HandleHash, StoreId};
use clockwork_wire::nfs3::{self, Arguments, Procedure, status};
use clockwork_wire::{Span, rpc};
use std::cmp::Reverse;
use std::time::Duration;

/// First wait for a datagram store's reply; doubled with every sending, up to the last.
const RETRANSMIT_FIRST: Duration = Duration::from_millis(500);
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
        // They were made before whatever is held already, so they go in front, the oldest first.
        for xid in lost.into_iter().rev() {
            self.take_back(xid);
            let xid = if renumber { self.renumber(xid) } else { xid };
            self.stores[store.index()].held.push_front(xid);
        }
        self.pump(now, store, out);
    }

    /// Takes a call back from its link: its bytes are held, and it counts as perhaps run.
    fn take_back(&mut self, xid: u32) {
        let Some(slot) = self.pending.get_mut(xid) else { return };
        let Place::Sent { link, at } = slot.place else { return };
        let log = &mut self.links[usize::from(link.0)].log;
        let message: Box<[u8]> = log.call(at).into();
        log.release(at);
        self.held_bytes += message.len();
        slot.place = Place::Held(message);
        slot.maybe_ran = true;
        let queue = &mut self.stores[slot.store.index()];
        queue.outstanding = queue.outstanding.saturating_sub(1);
    }

    /// Gives a held call a new XID, for a store that would drop the old one.
    fn renumber(&mut self, xid: u32) -> u32 {
        let Some(new) = self.pending.vacancy() else { return xid };
        let Some(mut slot) = self.pending.remove(xid) else { return xid };
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
            && let Some(place) = self.send(store, xid, message, 1, now, out)
        {
            return Some(place);
        }
        if self.held_bytes + message.len() > self.limits.held_bytes_max {
            return None;
        }
        self.held_bytes += message.len();
        self.stores[store.index()].held.push_back(xid);
        Some(Place::Held(message.into()))
    }

    /// Gives a call to a link that is up, while the store takes more.
    fn send(
        &mut self,
        store: StoreId,
        xid: u32,
        message: &[u8],
        sends: u8,
        now: Time,
        out: &mut impl Outlet,
    ) -> Option<Place> {
        let facts = &self.shared.stores[store.index()];
        let queue = &mut self.stores[store.index()];
        if queue.outstanding >= facts.calls_max {
            return None;
        }
        // Several links share the calls by their XID, which only ever counts up.
        let turn = xid as usize;
        let count = queue.links.len();
        let link =
            (0..count).map(|i| queue.links[(turn + i) % count]).find(|l| self.links[usize::from(l.0)].up)?;
        let entry = &mut self.links[usize::from(link.0)];
        let at = entry.log.push(&[message]).ok()?;
        queue.outstanding += 1;
        if facts.transport == Transport::Datagram {
            entry.due.push(Reverse((now + wait(sends), xid)));
        }
        out.wake(link);
        Some(Place::Sent { link, at })
    }

    /// Sends held calls of `store` while it has a link and room.
    pub(crate) fn pump(&mut self, now: Time, store: StoreId, out: &mut impl Outlet) {
        while let Some(&xid) = self.stores[store.index()].held.front() {
            let held = self.pending.get_mut(xid).filter(|slot| slot.store == store).and_then(|slot| {
                let sends = slot.sends;
                match &mut slot.place {
                    Place::Held(message) => Some((std::mem::take(message), slot.maybe_ran, sends)),
                    Place::Sent { .. } => None,
                }
            });
            let Some((message, again, sends)) = held else {
                self.stores[store.index()].held.pop_front();
                continue;
            };
            let sent = self.send(store, xid, &message, sends, now, out);
            let Some(slot) = self.pending.get_mut(xid) else { continue };
            match sent {
                Some(place) => {
                    slot.place = place;
                    self.held_bytes = self.held_bytes.saturating_sub(message.len());
                    self.counters.sent_again += u64::from(again);
                    self.stores[store.index()].held.pop_front();
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
                Moved::To(new) => self.move_call(now, xid, new, out),
                Moved::Listing(new) if self.shared.cookies_alike() => self.move_call(now, xid, new, out),
                Moved::Listing(_) => self.lose_listing(now, xid, out),
            }
        }
    }

    fn move_call(&mut self, now: Time, xid: u32, to: StoreId, out: &mut impl Outlet) {
        self.take_back(xid);
        self.give_up_measured(now, xid);
        let Self { pending, meter, .. } = self;
        let Some(slot) = pending.get_mut(xid) else { return };
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
            self.held_bytes = self.held_bytes.saturating_sub(message.len());
        }
        self.counters.listings_lost += 1;
        if let Purpose::Client(client) = slot.purpose {
            let key = self.progress_key(&client, slot.client_xid);
            self.in_progress.remove(&key);
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

    /// Does what is due: sends datagrams again, and, in the first shard, commits files whose pins have grown old and
    /// lets old duplicates go. To be called every 50 ms or so.
    pub fn tick(&mut self, now: Time, out: &mut impl Outlet) {
        for link in 0..self.links.len() {
            self.retransmit(now, link, out);
        }
        if self.shard == 0 {
            self.shared.duplicates.expire(now);
            self.commit_overdue(now, out);
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
            let Place::Sent { link: sent, at } = slot.place else { continue };
            if sent != id {
                continue;
            }
            let Ok(again) = self.links[link].log.requeue(at) else { return };
            slot.place = Place::Sent { link: id, at: again };
            slot.sends = slot.sends.saturating_add(1);
            slot.maybe_ran = true;
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
