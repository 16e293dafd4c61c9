//! Calls under which links are lost time and again: perhaps the call is what ends the store's connection, or the store.
//!
//! Whatever was in flight on a lost link is sent again, so a call that makes its store close the connection would
//! close it without end, and one that makes it crash would do so at the next store, too. Nobody can tell from one loss
//! which call it was. From [`LOSSES_SUSPECT`] lost links on, or [`STORES_SUSPECT`] lost stores, a call is a suspect: it
//! waits apart, for longer with every loss, and of each store's suspects one is out at a time. The others, which were
//! only there when it happened, are answered one after the other. One that has lost [`LOSSES_MAX`] links and is
//! [`GIVE_UP_AGE`] old is answered SYSTEM_ERR.
//!
//! A suspect under which stores were lost is not given to another one while it is younger than that: its store may
//! come back. Then it is, but not to a fourth.

use crate::meter::Meter;
use crate::pending::{LinkId, Place, Purpose, Slot};
use crate::replies::system_err;
use crate::shared::is_there;
use crate::time::Time;
use crate::upkeep::store_id;
use crate::{Outlet, Switch};
use clockwork_placement::StoreId;
use clockwork_wire::nfs3::Procedure;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

/// Links lost under a call from which on it waits apart.
const LOSSES_SUSPECT: u8 = 4;
/// Links lost under a call after which it is given up, once it is old enough.
const LOSSES_MAX: u8 = 8;
/// Stores lost under a call from which on it waits apart, and stays with its store.
const STORES_SUSPECT: u8 = 2;
/// Stores lost under a call after which no other gets it.
const STORES_MAX: u8 = 3;
/// Younger calls are not given up: a store that restarts, or a network that fails, may be back until then.
const GIVE_UP_AGE: Duration = Duration::from_secs(30);
/// First wait of a suspect before it is sent again; doubled with every loss, up to the last.
const WAIT_FIRST: Duration = Duration::from_millis(500);
const WAIT_LAST: Duration = Duration::from_secs(8);

/// What was lost while a call was out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Losses {
    links: u8,
    stores: u8,
    /// A link to the store that has the call now.
    here: bool,
}

impl Losses {
    pub(crate) fn link_lost(&mut self) {
        self.links = self.links.saturating_add(1);
        self.here = true;
    }

    /// The store that has the call is gone; it counts if it went while the call was out.
    pub(crate) fn store_lost(&mut self) {
        self.stores = self.stores.saturating_add(u8::from(self.here));
        self.here = false;
    }

    pub(crate) fn suspect(self) -> bool {
        self.links >= LOSSES_SUSPECT || self.stores >= STORES_SUSPECT
    }

    /// Whether the call waits for its store to come back rather than go to another.
    pub(crate) fn stays(self, age: Duration) -> bool {
        self.stores >= STORES_MAX || self.stores >= STORES_SUSPECT && age < GIVE_UP_AGE
    }

    fn hopeless(self, age: Duration) -> bool {
        age >= GIVE_UP_AGE && (self.links >= LOSSES_MAX || self.stores >= STORES_MAX)
    }

    fn wait(self) -> Duration {
        let doublings = u32::from(self.links.saturating_sub(LOSSES_SUSPECT)).min(8);
        WAIT_FIRST.saturating_mul(1 << doublings).min(WAIT_LAST)
    }
}

/// The suspects of one store.
#[derive(Debug, Default)]
pub(crate) struct Suspects {
    /// Never more than calls wait.
    waiting: VecDeque<Suspect>,
    /// The one that is out.
    out: Option<u32>,
}

#[derive(Debug)]
struct Suspect {
    xid: u32,
    /// The link that it has to go over, where the store has several and the call may run only once.
    own: Option<LinkId>,
    /// Not sent before.
    from: Time,
}

impl Suspects {
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(u32) -> bool) {
        self.waiting.retain(|suspect| keep(suspect.xid));
    }

    /// The call is out no longer.
    fn back(&mut self, xid: u32) {
        if self.out == Some(xid) {
            self.out = None;
        }
    }
}

/// A call that was answered SYSTEM_ERR because links or stores were lost under it too often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenUp {
    /// The store that had it last.
    pub store: StoreId,
    /// What it asked for.
    pub procedure: Procedure,
    /// Who asked; `None` for a call of the router's own.
    pub client: Option<IpAddr>,
    /// The handle that it goes by.
    pub handle: Box<[u8]>,
    /// Links lost under it.
    pub links_lost: u8,
    /// Stores lost under it.
    pub stores_lost: u8,
}

impl<M: Meter> Switch<M> {
    /// The last call that was given up since this was asked; all are counted in `given_up`.
    pub fn take_given_up(&mut self) -> Option<GivenUp> {
        self.given_up.take()
    }

    /// Lets a suspect, which is held, wait for its turn at the store that has it.
    pub(crate) fn set_apart(&mut self, now: Time, xid: u32, own: Option<LinkId>) {
        let Some(slot) = self.pending.get(xid) else { return };
        let suspect = Suspect { xid, own, from: now + slot.losses.wait() };
        self.stores[slot.store.index()].suspects.waiting.push_back(suspect);
    }

    /// A suspect was lost with its link, goes to another store, or is answered.
    pub(crate) fn suspect_back(&mut self, store: StoreId, xid: u32) {
        self.stores[store.index()].suspects.back(xid);
    }

    /// Lets a suspect stay with a store that is lost, out of the way of the calls to come.
    pub(crate) fn keep_suspect(&mut self, now: Time, xid: u32) {
        let Some(slot) = self.pending.get(xid) else { return };
        let queue = &self.stores[slot.store.index()];
        let waits = queue.suspects.waiting.iter().any(|suspect| suspect.xid == xid);
        if waits || matches!(slot.place, Place::Sent { .. }) {
            return;
        }
        let own =
            queue.links.iter().find(|link| self.links[usize::from(link.0)].held.contains(&xid)).copied();
        self.set_apart(now, xid, own);
    }

    /// Gives up suspects that are hopeless, and sends the next one of each store.
    pub(crate) fn turn_to_suspects(&mut self, now: Time, out: &mut impl Outlet) {
        for store in (0..self.stores.len()).map(store_id) {
            if self.stores[store.index()].suspects.len() == 0 {
                continue;
            }
            self.give_up_hopeless(now, store, out);
            self.move_aged(now, store, out);
            self.send_suspect(now, store, out);
        }
    }

    fn give_up_hopeless(&mut self, now: Time, store: StoreId, out: &mut impl Outlet) {
        let hopeless = |slot: &Slot<M::Token>| slot.losses.hopeless(now.since(slot.since));
        let Self { pending, stores, .. } = self;
        let mut given_up = Vec::new();
        stores[store.index()].suspects.retain(|xid| {
            let gives_up = pending.get(xid).is_some_and(hopeless);
            given_up.extend(gives_up.then_some(xid));
            !gives_up
        });
        for xid in given_up {
            self.give_up(now, xid, out);
        }
    }

    /// Suspects whose store has not come back go to another after all.
    fn move_aged(&mut self, now: Time, store: StoreId, out: &mut impl Outlet) {
        let stays = |suspect: &Suspect| {
            self.pending.get(suspect.xid).is_none_or(|slot| slot.losses.stays(now.since(slot.since)))
        };
        let lost = !is_there(&self.shared.table.load(), store);
        if lost && !self.stores[store.index()].suspects.waiting.iter().all(stays) {
            self.reroute(now, store, out);
        }
    }

    /// Sends the suspect that has waited longest of those that may go, if none is out.
    pub(crate) fn send_suspect(&mut self, now: Time, store: StoreId, out: &mut impl Outlet) {
        loop {
            let Suspects { waiting, out: is_out } = &self.stores[store.index()].suspects;
            let up = |link: &LinkId| self.links[usize::from(link.0)].up;
            let next =
                waiting.iter().position(|next| next.from <= now && next.own.is_none_or(|own| up(&own)));
            let (None, Some(at)) = (is_out, next) else { return };
            let Suspect { xid, own, .. } = waiting[at];
            let message = self.pending.get_mut(xid).filter(|slot| slot.store == store).and_then(|slot| {
                let sends = slot.sends;
                match &mut slot.place {
                    Place::Held(message) => Some((std::mem::take(message), sends)),
                    Place::Sent { .. } => None,
                }
            });
            let Some((message, sends)) = message else {
                self.stores[store.index()].suspects.waiting.remove(at);
                continue;
            };
            let sent = self.send((store, own), xid, &message, (sends, true), now, out);
            let Some(slot) = self.pending.get_mut(xid) else { return };
            let Some(place) = sent else {
                slot.place = Place::Held(message);
                return;
            };
            slot.place = place;
            self.unhold_bytes(store, message.len());
            self.counters.sent_again += 1;
            let suspects = &mut self.stores[store.index()].suspects;
            suspects.waiting.remove(at);
            suspects.out = Some(xid);
            return;
        }
    }

    /// Answers a held call SYSTEM_ERR: it may have run, and never will be known to have.
    fn give_up(&mut self, now: Time, xid: u32, out: &mut impl Outlet) {
        let Some(slot) = self.pending.remove(xid) else { return };
        let Place::Held(message) = &slot.place else {
            self.pending.insert(slot);
            return;
        };
        self.unhold_bytes(slot.store, message.len());
        self.counters.given_up += 1;
        let handle = crate::moves::handle_of(slot.procedure, message).unwrap_or_default();
        self.given_up = Some(GivenUp {
            store: slot.store,
            procedure: slot.procedure,
            client: if let Purpose::Client(client) = &slot.purpose { Some(client.address()) } else { None },
            handle: message[handle].into(),
            links_lost: slot.losses.links,
            stores_lost: slot.losses.stores,
        });
        let mut record = system_err(xid);
        self.refused(now, slot, &mut record, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_makes_a_suspect_only_when_it_comes_again_and_again() {
        let mut losses = Losses::default();
        for lost in 1..=u32::from(u8::MAX) + 10 {
            losses.link_lost();
            assert_eq!(losses.suspect(), lost >= 4, "{lost} links");
            assert_eq!(losses.hopeless(GIVE_UP_AGE), lost >= 8, "{lost} links");
            assert!(!losses.hopeless(Duration::from_secs(29)));
            assert!(losses.wait() <= WAIT_LAST);
        }
        assert!(!losses.stays(Duration::ZERO), "links are lost, the store is not");
    }

    #[test]
    fn a_store_counts_only_if_it_was_lost_while_it_had_the_call() {
        let mut losses = Losses::default();
        losses.store_lost();
        assert_eq!(losses, Losses::default());
        for stores in 1..=3 {
            losses.link_lost();
            losses.store_lost();
            losses.store_lost();
            assert_eq!(losses.stores, stores);
            assert_eq!(losses.suspect(), stores >= 2);
            assert_eq!(losses.stays(Duration::ZERO), stores >= 2);
            assert_eq!(losses.stays(GIVE_UP_AGE), stores >= 3);
        }
    }
}
