//! Replies from stores: whose call it was, which fields the router owns, what is learnt on the way.

use crate::meter::{Answered, Meter};
use crate::pending::{LinkId, PinDebt, Place, Purpose, Repeats, Slot};
use crate::pins::Wrote;
use crate::resolve::{self, Doubt, Outcome, Resolution};
use crate::time::Time;
use crate::{Client, Outlet, StoreFacts, Switch};
use clockwork_wire::nfs3::{self, Arguments, Procedure, Results, status};
use clockwork_wire::{Span, rpc};

/// Bytes of a record mark.
const MARK: usize = 4;

/// A reply as far as it has been read.
struct ReadReply {
    /// None where the RPC layer refused the call, or the results cannot be read.
    results: Option<Results>,
}

impl ReadReply {
    fn status(&self) -> Option<u32> {
        match self.results {
            Some(Results::Failed { status }) => Some(status),
            Some(_) => Some(status::OK),
            None => None,
        }
    }

    /// Whether it shows the handle of a name.
    fn shows_names(&self) -> bool {
        matches!(
            self.results,
            Some(
                Results::Lookup { .. } | Results::Made { handle: Some(_), .. } | Results::Readdirplus { .. }
            )
        )
    }
}

impl<M: Meter> Switch<M> {
    /// Takes a message from a store: `record` is the reply with its record mark in front (for a datagram, four bytes of
    /// room that hold the mark of its length).
    pub fn reply(&mut self, now: Time, link: LinkId, record: &mut [u8], out: &mut impl Outlet) {
        let Some(message) = record.get(MARK..) else { return };
        let (xid, body) = match rpc::parse_reply(message) {
            Ok(reply) => (reply.xid, Some(reply.body)),
            Err(error) => {
                self.counters.malformed_replies += 1;
                match (error, rpc::xid(message)) {
                    // Something else than a reply answers nothing; a broken reply is all that the store will say.
                    (rpc::ReplyError::Malformed(_), Some(xid)) => (xid, None),
                    _ => return,
                }
            }
        };
        let waits =
            |slot: &Slot<M::Token>| matches!(slot.place, Place::Sent { link: sent, .. } if sent == link);
        let Some(mut slot) = self.pending.remove_if(xid, waits) else {
            self.counters.late_replies += u64::from(body.is_some());
            return;
        };
        let mut error;
        let (record, results) = match body {
            Some(rpc::ReplyBody::Accepted { stat: 0, results }) => {
                let results = nfs3::results(slot.procedure, record, MARK + results).ok();
                self.counters.malformed_replies += u64::from(results.is_none());
                (record, results)
            }
            Some(_) => (record, None),
            None => {
                error = system_err(xid);
                (&mut error[..], None)
            }
        };
        let store = slot.store;
        let queue = &mut self.stores[store.index()];
        queue.outstanding = queue.outstanding.saturating_sub(1);
        let place = match slot.place {
            Place::Sent { link, at, .. } => Some((link, at)),
            Place::Held(_) => None,
        };
        if let Some((_, at)) = place {
            queue.window.answered(now, at.length());
        }
        let suspect = slot.losses.suspect();
        self.replied(now, &mut slot, &ReadReply { results }, record, out);
        if let Some((link, at)) = place {
            self.links[usize::from(link.0)].log.release(at);
        }
        self.pump(now, store, out);
        if suspect {
            self.suspect_back(store, xid);
            self.send_suspect(now, store, out);
        }
    }

    /// Answers a call in a store's stead: `record` is an error of the RPC layer with its mark.
    pub(crate) fn refused(
        &mut self,
        now: Time,
        mut slot: Slot<M::Token>,
        record: &mut [u8],
        out: &mut impl Outlet,
    ) {
        self.replied(now, &mut slot, &ReadReply { results: None }, record, out);
    }

    fn replied(
        &mut self,
        now: Time,
        slot: &mut Slot<M::Token>,
        read: &ReadReply,
        record: &mut [u8],
        out: &mut impl Outlet,
    ) {
        let client = match &slot.purpose {
            Purpose::Client(client) => *client,
            Purpose::Resolve(_) | Purpose::Commit { .. } => {
                return self.replied_to_router(now, slot, read, record, out);
            }
        };
        if slot.maybe_ran && self.in_doubt(now, slot, &client, read, record, out) {
            return;
        }
        self.finish(now, slot, &client, read, record, out);
    }

    /// Takes the reply to a call that the router has made itself.
    fn replied_to_router(
        &mut self,
        now: Time,
        slot: &mut Slot<M::Token>,
        read: &ReadReply,
        record: &mut [u8],
        out: &mut impl Outlet,
    ) {
        match std::mem::replace(&mut slot.purpose, Purpose::Commit { handle: Box::default() }) {
            Purpose::Client(_) => {}
            Purpose::Resolve(resolution) => self.looked(now, slot, *resolution, record, out),
            Purpose::Commit { handle } => {
                if let PinDebt::Commit { token, offset, count } = slot.pin {
                    let ok = read.status() == Some(status::OK);
                    self.shared.pins.committed(&handle, slot.hash, token, offset, count, ok);
                    if !ok {
                        self.shared.pins.commit_failed(now, &handle, slot.hash, true);
                    }
                    self.shared.written.mark(now, slot.hash);
                }
            }
        }
    }

    /// Gives a client its reply, after everything that has to be settled with it.
    fn finish(
        &mut self,
        now: Time,
        slot: &mut Slot<M::Token>,
        client: &Client,
        read: &ReadReply,
        record: &mut [u8],
        out: &mut impl Outlet,
    ) {
        if !matches!(slot.pin, PinDebt::None) {
            self.settle_pin(slot, read);
        }
        if crate::calls::writes(slot.procedure) {
            self.shared.written.mark(now, slot.hash);
        }
        if read.shows_names() {
            self.learn(slot, read, record);
        }
        self.own_fields(slot, read, record);
        rpc::set_xid(&mut record[MARK..], slot.client_xid);
        let (bytes_read, bytes_written) = match read.results {
            Some(Results::Read { count, .. }) => (count, 0),
            Some(Results::Write { count, .. }) => (0, count),
            _ => (0, 0),
        };
        let answered = Answered {
            store: slot.store,
            class: slot.procedure.class(),
            response_us: now.micros_since(slot.since),
            failed: read.results.is_none(),
            bytes_read,
            bytes_written,
        };
        if let Some(token) = slot.token {
            self.meter.reply(token, answered);
        }
        match std::mem::take(&mut slot.repeats) {
            Repeats::Ticket(ticket) => {
                for waiter in self.shared.duplicates.finish(now, ticket, &record[MARK..]) {
                    out.mail(&waiter, record);
                }
            }
            Repeats::Progress(key) => self.in_progress.remove(key, slot.xid),
            Repeats::None => {}
        }
        self.counters.replies += 1;
        out.reply(client, record);
    }

    fn settle_pin(&self, slot: &Slot<M::Token>, read: &ReadReply) {
        let Some((call, handle)) = self.call_and_handle(slot) else { return };
        let handle = &call[handle];
        match slot.pin {
            PinDebt::None => {}
            PinDebt::Write { token, offset } => {
                let outcome = match read.results {
                    Some(Results::Write { committed: crate::calls::FILE_SYNC, .. }) => Wrote::Stable,
                    Some(Results::Write { count, .. }) => Wrote::Unstable { offset, count },
                    _ => Wrote::Failed,
                };
                self.shared.pins.wrote(handle, slot.hash, token, outcome);
            }
            PinDebt::Commit { token, offset, count } => {
                let ok = read.status() == Some(status::OK);
                self.shared.pins.committed(handle, slot.hash, token, offset, count, ok);
            }
        }
    }

    /// The call that a slot waits for, and where its handle is; only for calls that leave a debt with the pins.
    fn call_and_handle<'a>(&'a self, slot: &'a Slot<M::Token>) -> Option<(&'a [u8], Span)> {
        if matches!(slot.pin, PinDebt::None) {
            return None;
        }
        let call = self.call_of(&slot.place);
        let header = rpc::parse_call(call).ok()?;
        let handle = nfs3::arguments(slot.procedure, call, header.arguments).ok()?.handle()?;
        Some((call, handle))
    }

    pub(crate) fn call_of<'a>(&'a self, place: &'a Place) -> &'a [u8] {
        match place {
            Place::Sent { link, at, .. } => self.links[usize::from(link.0)].log.call(*at),
            Place::Held(message) => message,
        }
    }

    /// Learns the names of handles from a reply that shows them.
    fn learn(&mut self, slot: &Slot<M::Token>, read: &ReadReply, record: &[u8]) {
        let Place::Sent { link, at, .. } = slot.place else { return };
        let Self { links, meter, .. } = self;
        let call = links[usize::from(link.0)].log.call(at);
        let Ok(header) = rpc::parse_call(call) else { return };
        let Ok(arguments) = nfs3::arguments(slot.procedure, call, header.arguments) else { return };
        let mut name = |directory: &Span, name: &[u8], handle: &[u8]| {
            if name != b"." && name != b".." {
                meter.name(&call[directory.clone()], name, handle);
            }
        };
        match (&arguments, read.results.as_ref()) {
            (
                Arguments::Name { dir, name: entry } | Arguments::Make { dir, name: entry, .. },
                Some(Results::Lookup { handle, .. } | Results::Made { handle: Some(handle), .. }),
            ) => name(dir, &call[entry.clone()], &record[handle.clone()]),
            (Arguments::Readdirplus { dir, .. }, Some(Results::Readdirplus { entries_at, .. })) => {
                for entry in nfs3::entries_plus(record, *entries_at) {
                    if let Some(handle) = entry.handle {
                        name(dir, &record[entry.name], &record[handle]);
                    }
                }
            }
            _ => {}
        }
    }

    /// Rewrites the fields that a virtual NAS must own.
    fn own_fields(&self, slot: &Slot<M::Token>, read: &ReadReply, record: &mut [u8]) {
        let store = slot.store;
        let epoch_now = || self.shared.stores.get(store.index()).map_or(0, StoreFacts::epoch);
        match read.results {
            Some(Results::Write { verifier_at, .. }) => {
                let sent = if let Place::Sent { epoch, .. } = slot.place { epoch } else { epoch_now() };
                rewrite_verifier(record, verifier_at, |own| self.shared.write_verifier(store, sent, own));
            }
            Some(Results::Commit { verifier_at }) => {
                rewrite_verifier(record, verifier_at, |own| {
                    self.shared.write_verifier(store, epoch_now(), own)
                });
            }
            Some(Results::Readdir { verifier_at, .. } | Results::Readdirplus { verifier_at, .. }) => {
                rewrite_verifier(record, verifier_at, |own| self.shared.listings.tag(store, own));
            }
            Some(Results::Fsinfo { sizes_at }) => {
                let sizes = self.shared.transfer_sizes();
                // rtmax, rtpref, rtmult, wtmax, wtpref, wtmult, dtpref (RFC 1813 section 3.3.19). The multiples are the
                // same everywhere, so that answers do not differ by the store that gives them.
                let words = [
                    sizes.read_max,
                    sizes.read_max,
                    TRANSFER_MULTIPLE_BYTES,
                    sizes.write_max,
                    sizes.write_max,
                    TRANSFER_MULTIPLE_BYTES,
                    sizes.readdir,
                ];
                if let Some(field) = record.get_mut(sizes_at..sizes_at + 4 * words.len()) {
                    for (bytes, word) in field.chunks_exact_mut(4).zip(words) {
                        bytes.copy_from_slice(&word.to_be_bytes());
                    }
                }
            }
            _ => {}
        }
    }

    /// Starts to look where an answer is in doubt. True when the client has to wait.
    fn in_doubt(
        &mut self,
        now: Time,
        slot: &mut Slot<M::Token>,
        client: &Client,
        read: &ReadReply,
        record: &[u8],
        out: &mut impl Outlet,
    ) -> bool {
        let Some(answer) = read.status().filter(|answer| *answer != status::OK) else { return false };
        let call: Box<[u8]> = self.call_of(&slot.place).into();
        match resolve::doubt(slot.procedure, &call, answer) {
            Doubt::None => false,
            Doubt::Done => {
                self.counters.doubts += 1;
                self.counters.doubts_settled += 1;
                let mut success = resolve::success(slot.procedure, slot.client_xid, None);
                self.finish(
                    now,
                    slot,
                    client,
                    &ReadReply { results: Some(Results::Other) },
                    &mut success,
                    out,
                );
                true
            }
            Doubt::Look(procedure, arguments) => {
                self.counters.doubts += 1;
                let held = Slot {
                    xid: slot.xid,
                    client_xid: slot.client_xid,
                    procedure: slot.procedure,
                    maybe_ran: true,
                    store: slot.store,
                    place: Place::Held(Box::default()),
                    purpose: Purpose::Client(*client),
                    since: slot.since,
                    sends: slot.sends,
                    losses: slot.losses,
                    hash: slot.hash,
                    repeats: std::mem::take(&mut slot.repeats),
                    pin: PinDebt::None,
                    token: slot.token,
                };
                let resolution = Resolution { slot: held, call, record: record.into(), found: None };
                self.look(now, resolution, procedure, &arguments, out);
                true
            }
        }
    }

    /// Sends a look; where there is no room for it the first answer stands.
    fn look(
        &mut self,
        now: Time,
        resolution: Resolution<M::Token>,
        procedure: Procedure,
        arguments: &[u8],
        out: &mut impl Outlet,
    ) {
        let Ok(header) = rpc::parse_call(&resolution.call) else { return };
        let credential = resolution.call[header.credential].to_vec();
        let (store, hash) = (resolution.slot.store, resolution.slot.hash);
        let purpose = Purpose::Resolve(Box::new(resolution));
        if let Err(Purpose::Resolve(resolution)) = self.own_call(
            now,
            (store, hash),
            procedure,
            (&credential, arguments),
            (purpose, PinDebt::None),
            out,
        ) {
            self.stands(now, *resolution, out);
        }
    }

    fn looked(
        &mut self,
        now: Time,
        slot: &Slot<M::Token>,
        mut resolution: Resolution<M::Token>,
        record: &[u8],
        out: &mut impl Outlet,
    ) {
        match resolution.settle(slot.procedure, &record[MARK..]) {
            Outcome::Stands => self.stands(now, resolution, out),
            Outcome::Look(procedure, arguments) => self.look(now, resolution, procedure, &arguments, out),
            Outcome::Done(mut success) => {
                self.counters.doubts_settled += 1;
                if let Purpose::Client(client) = resolution.slot.purpose {
                    let read = ReadReply { results: Some(Results::Other) };
                    self.finish(now, &mut resolution.slot, &client, &read, &mut success, out);
                }
            }
        }
    }

    /// The store's first answer goes to the client after all.
    fn stands(&mut self, now: Time, mut resolution: Resolution<M::Token>, out: &mut impl Outlet) {
        if let Purpose::Client(client) = resolution.slot.purpose {
            let status = nfs3_status(&resolution.record);
            let read = ReadReply { results: Some(Results::Failed { status }) };
            self.finish(now, &mut resolution.slot, &client, &read, &mut resolution.record, out);
        }
    }
}

/// SYSTEM_ERR for a call, with its record mark.
pub(crate) fn system_err(xid: u32) -> Vec<u8> {
    let mut record = vec![0; MARK];
    clockwork_wire::answer::system_err(&mut record, xid);
    let mark = clockwork_wire::record::mark(record.len() - MARK);
    record[..MARK].copy_from_slice(&mark);
    record
}

/// Transfers are multiples of this many bytes, whichever store answers.
const TRANSFER_MULTIPLE_BYTES: u32 = 4096;

fn rewrite_verifier(record: &mut [u8], at: usize, new: impl FnOnce([u8; 8]) -> [u8; 8]) {
    if let Some(field) = record.get_mut(at..at + 8) {
        let mut own = [0; 8];
        own.copy_from_slice(field);
        field.copy_from_slice(&new(own));
    }
}

fn nfs3_status(record: &[u8]) -> u32 {
    match rpc::parse_reply(&record[MARK..]).map(|reply| reply.body) {
        Ok(rpc::ReplyBody::Accepted { stat: 0, results }) => record
            .get(MARK + results..MARK + results + 4)
            .map_or(status::SERVERFAULT, |word| u32::from_be_bytes([word[0], word[1], word[2], word[3]])),
        _ => status::SERVERFAULT,
    }
}
