//! Calls whose store is lost: to which store they go instead, and what becomes of those that can go nowhere.

use crate::meter::{Answered, Meter};
use crate::pending::{PinDebt, Place, Purpose, Repeats, Slot};
use crate::shared::is_there;
use crate::time::Time;
use crate::upkeep::store_id;
use crate::{DuplicateCache, Outlet, Switch};
use clockwork_placement::{HandleHash, StoreId};
use clockwork_wire::nfs3::{self, Arguments, Procedure, status};
use clockwork_wire::{Span, rpc};
use std::sync::Arc;

impl<M: Meter> Switch<M> {
    /// Calls whose store was lost when nobody else served wait for it. When the table changes they may go elsewhere.
    pub(crate) fn follow_table(&mut self, now: Time, out: &mut impl Outlet) {
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

    /// A store was taken out of the table. Its calls go where the table now sends them; where it names the same store,
    /// or none, they wait on.
    pub fn store_lost(&mut self, now: Time, store: StoreId, out: &mut impl Outlet) {
        self.shared.suspect_restart(store);
        self.reroute(now, store, out);
    }

    /// Sends the calls of a store that is lost where the table now sends them.
    pub(crate) fn reroute(&mut self, now: Time, store: StoreId, out: &mut impl Outlet) {
        let table = self.shared.table.load_full();
        for xid in self.pending.select(|slot| slot.store == store) {
            let Some(slot) = self.pending.get(xid) else { continue };
            let message = self.call_of(&slot.place);
            let Some(moved) = new_route(slot, message, |handle, hash| table.route(handle, hash)) else {
                continue;
            };
            match moved {
                Moved::To(new) if new == store => {}
                _ if self.stays_when_lost(now, xid) => self.keep_suspect(now, xid),
                Moved::To(new) => self.move_call(now, xid, (store, new), out),
                Moved::Listing(new) if self.shared.cookies_alike() => {
                    self.move_call(now, xid, (store, new), out);
                }
                Moved::Listing(_) => self.lose_listing(now, xid, out),
            }
        }
        // Whatever has left must not stand in the way of calls to come.
        let Self { pending, stores, links, .. } = self;
        let queue = &mut stores[store.index()];
        let in_turn =
            |xid: &u32| pending.get(*xid).is_some_and(|slot| slot.store == store && !slot.losses.suspect());
        queue.held.retain(in_turn);
        queue.suspects.retain(|xid| pending.get(xid).is_some_and(|slot| slot.store == store));
        for link in &queue.links {
            links[usize::from(link.0)].held.retain(in_turn);
        }
        self.pump(now, store, out);
    }

    /// Notes that the store which has a call is lost; whether the call waits for it all the same.
    fn stays_when_lost(&mut self, now: Time, xid: u32) -> bool {
        let Some(slot) = self.pending.get_mut(xid) else { return false };
        slot.losses.store_lost();
        slot.losses.stays(now.since(slot.since))
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
        self.suspect_back(from, xid);
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
        if slot.losses.suspect() {
            self.set_apart(now, xid, None);
            return;
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
            response_us: now.micros_since(slot.since),
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
        self.suspect_back(slot.store, xid);
        if let Place::Held(message) = &slot.place {
            self.unhold_bytes(slot.store, message.len());
        }
        self.counters.listings_lost += 1;
        if let Purpose::Client(client) = slot.purpose {
            if let Repeats::Progress(key) = slot.repeats {
                self.in_progress.remove(key, xid);
            }
            let (client_xid, procedure) = (slot.client_xid, slot.procedure);
            self.answer(&client, out, |reply| {
                nfs3::failure(reply, client_xid, procedure, status::BAD_COOKIE)
            });
        }
    }
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

pub(crate) fn handle_of(procedure: Procedure, message: &[u8]) -> Option<Span> {
    arguments_of(procedure, message)?.handle()
}
