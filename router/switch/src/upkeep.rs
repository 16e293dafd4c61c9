//! What is due by the clock: calls sent again, old calls set apart, commits for writers that have made none.

use crate::links::{RETRANSMIT_FIRST, wait};
use crate::meter::Meter;
use crate::pending::{LinkId, PinDebt, Place, Purpose, Repeats, Slot};
use crate::suspects::Losses;
use crate::time::Time;
use crate::{Outlet, Switch};
use clockwork_placement::{HandleHash, StoreId};
use clockwork_wire::nfs3::{self, Procedure};
use clockwork_wire::rpc;
use std::cmp::Reverse;
use std::time::Duration;

/// From this age on calls are set apart in a send log that is half full.
const SET_APART_AGE: Duration = Duration::from_secs(1);

impl<M: Meter> Switch<M> {
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
        self.turn_to_suspects(now, out);
        if self.shard == 0 {
            self.shared.duplicates.expire(now);
            self.commit_overdue(now, out);
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
            losses: Losses::default(),
            hash,
            repeats: Repeats::None,
            pin,
            token: None,
        });
        Ok(())
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
            match self.own_call(now, target, Procedure::Commit, call, (purpose, pin), out) {
                Ok(()) => self.counters.commits_made += 1,
                Err(_) => self.shared.pins.commit_failed(now, &overdue.handle, overdue.hash, false),
            }
        }
    }
}

pub(crate) fn store_id(index: usize) -> StoreId {
    StoreId(u16::try_from(index).unwrap_or(u16::MAX))
}
