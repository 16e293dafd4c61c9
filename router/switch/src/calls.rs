//! Calls from clients: what is answered here, what is a repeat, and which store gets the rest.

use crate::duplicates::{self, Seen, Ticket};
use crate::listings::Untagged;
use crate::meter::Meter;
use crate::pending::{PinDebt, Place, Purpose, Repeats, Slot};
use crate::shared::is_there;
use crate::suspects::Losses;
use crate::time::Time;
use crate::{Client, DATAGRAM_TRANSFER_BYTES_MAX, Outlet, Switch, Verdict};
use clockwork_placement::{HandleHash, Routed, StoreId, read_point};
use clockwork_wire::nfs3::{self, Arguments, Procedure, status};
use clockwork_wire::{Span, answer, mount, rpc};
use std::sync::atomic::Ordering;

/// `stable_how` of a WRITE (RFC 1813 section 3.3.7).
pub(crate) const FILE_SYNC: u32 = 2;

/// Whether a call changes the file that it is routed by.
pub(crate) fn writes(procedure: Procedure) -> bool {
    matches!(procedure, Procedure::Write | Procedure::Setattr | Procedure::Commit)
}

/// An NFS call that has been read.
struct Read<'a> {
    call: &'a rpc::Call,
    procedure: Procedure,
    arguments: &'a Arguments,
    /// The handle that the call goes by.
    handle: Span,
    hash: HandleHash,
    /// Of an idempotent call: by what its repeats are known while it waits for its reply.
    progress: Option<u64>,
    /// Where the table sends the handle.
    store: Option<StoreId>,
    /// Of a READ of a replicated file: the store whose turn it is.
    reader: Option<StoreId>,
    replicated: bool,
}

/// Where a call goes.
enum Route {
    Store(StoreId, PinDebt),
    /// To no store: the NFS status to answer.
    Nowhere(u32),
}

impl<M: Meter> Switch<M> {
    /// Takes a message from a client: a call without record mark. `admitted`: the access rules let this client in.
    pub fn call(
        &mut self,
        now: Time,
        client: &Client,
        admitted: bool,
        message: &mut [u8],
        out: &mut impl Outlet,
    ) -> Verdict {
        self.counters.calls += 1;
        let call = match rpc::parse_call(message) {
            Ok(call) => call,
            Err(error) => return self.refuse_malformed(client, &error, out),
        };
        match (call.program, call.version) {
            (nfs3::PROGRAM, nfs3::VERSION) => self.nfs_call(now, client, admitted, &call, message, out),
            (mount::PROGRAM, 1 | 3) => Verdict::Mount(call),
            (nfs3::PROGRAM, _) => {
                self.counters.unavailable += 1;
                self.answer(client, out, |reply| {
                    answer::prog_mismatch(reply, call.xid, nfs3::VERSION, nfs3::VERSION)
                })
            }
            (mount::PROGRAM, _) => {
                self.counters.unavailable += 1;
                self.answer(client, out, |reply| answer::prog_mismatch(reply, call.xid, 1, 3))
            }
            _ => {
                self.counters.unavailable += 1;
                self.answer(client, out, |reply| answer::prog_unavail(reply, call.xid))
            }
        }
    }

    fn refuse_malformed(
        &mut self,
        client: &Client,
        error: &rpc::CallError,
        out: &mut impl Outlet,
    ) -> Verdict {
        self.counters.malformed_calls += 1;
        match *error {
            rpc::CallError::RpcVersion { xid, .. } => {
                self.answer(client, out, |reply| answer::rpc_mismatch(reply, xid))
            }
            rpc::CallError::Auth { xid, .. } => {
                self.answer(client, out, |reply| answer::auth_error(reply, xid, answer::AUTH_BADCRED))
            }
            _ => Verdict::Dropped,
        }
    }

    fn nfs_call(
        &mut self,
        now: Time,
        client: &Client,
        admitted: bool,
        call: &rpc::Call,
        message: &mut [u8],
        out: &mut impl Outlet,
    ) -> Verdict {
        let Some(procedure) = Procedure::from_u32(call.procedure) else {
            self.counters.unavailable += 1;
            return self.answer(client, out, |reply| answer::proc_unavail(reply, call.xid));
        };
        if let Some(stat) = call.auth_refusal() {
            self.counters.refused += 1;
            return self.answer(client, out, |reply| answer::auth_error(reply, call.xid, stat));
        }
        if procedure == Procedure::Null {
            return self.answer(client, out, |reply| answer::success(reply, call.xid));
        }
        if !admitted {
            self.counters.refused += 1;
            return self
                .answer(client, out, |reply| answer::auth_error(reply, call.xid, answer::AUTH_TOOWEAK));
        }
        let parsed = nfs3::arguments(procedure, message, call.arguments);
        let arguments = parsed.as_ref().ok();
        let Some((arguments, handle)) = arguments.and_then(|a| a.handle().map(|handle| (a, handle))) else {
            self.counters.garbage_arguments += 1;
            return self.answer(client, out, |reply| answer::garbage_args(reply, call.xid));
        };
        let table = self.routes.load();
        let hash = table.hash(&message[handle.clone()]);
        let Routed { store, replicas } = table.lookup(&message[handle.clone()], hash);
        let reader = match (procedure, replicas) {
            (Procedure::Read, Some(replicas)) => table.reader(replicas, read_point(hash, call.xid)),
            _ => None,
        };
        let replicated = replicas.is_some();
        let progress = procedure.is_idempotent().then(|| self.progress_key(client, call.xid));
        let read = Read { call, procedure, arguments, handle, hash, progress, store, reader, replicated };
        self.routable_call(now, client, &read, message, out)
    }

    fn routable_call(
        &mut self,
        now: Time,
        client: &Client,
        read: &Read<'_>,
        message: &mut [u8],
        out: &mut impl Outlet,
    ) -> Verdict {
        let ticket = match read.progress {
            Some(key) if self.is_in_progress(key, read, message) => {
                self.counters.absorbed += 1;
                return Verdict::Absorbed;
            }
            Some(_) => None,
            None => match self.first_seen(now, client, read, message) {
                Ok(ticket) => Some(ticket),
                Err(Some(reply)) => return self.replay(client, &reply, out),
                Err(None) => {
                    self.counters.absorbed += 1;
                    return Verdict::Absorbed;
                }
            },
        };
        // Only now: a repeat needs no room, and must not hear that it failed when it has run.
        if self.pending.len() == self.pending.capacity() {
            if let Some(ticket) = ticket {
                self.shared.duplicates.abandon(ticket);
            }
            self.counters.turned_away_full += 1;
            return self.fail(client, read, status::JUKEBOX, out);
        }
        if read.replicated && writes(read.procedure) {
            self.shared.written.mark(now, read.hash);
        }
        match self.route(now, read, message) {
            Route::Store(store, pin) => self.forward(now, client, read, message, (store, pin, ticket), out),
            Route::Nowhere(status) => {
                if let Some(ticket) = ticket {
                    self.shared.duplicates.abandon(ticket);
                }
                let counter = match status {
                    status::BAD_COOKIE => &mut self.counters.listings_lost,
                    _ => &mut self.counters.turned_away_no_store,
                };
                *counter += 1;
                self.fail(client, read, status, out)
            }
        }
    }

    fn fail(&mut self, client: &Client, read: &Read<'_>, status: u32, out: &mut impl Outlet) -> Verdict {
        let (xid, procedure) = (read.call.xid, read.procedure);
        self.answer(client, out, |reply| nfs3::failure(reply, xid, procedure, status))
    }

    fn replay(&mut self, client: &Client, message: &[u8], out: &mut impl Outlet) -> Verdict {
        self.counters.replayed += 1;
        self.answer(client, out, |reply| reply.extend_from_slice(message))
    }

    /// Whether the same call of the same client waits for its reply already. The call kept for the store is compared
    /// from behind the XID to the end of the handle; what comes later may have been lowered.
    #[inline]
    fn is_in_progress(&self, key: u64, read: &Read<'_>, message: &[u8]) -> bool {
        self.in_progress.get(key).is_some_and(|xid| self.is_repeat(xid, read, message))
    }

    fn is_repeat(&self, xid: u32, read: &Read<'_>, message: &[u8]) -> bool {
        let Some(slot) = self.pending.get(xid) else { return false };
        let sent = match &slot.place {
            Place::Sent { link, at, .. } => self.links[usize::from(link.0)].log.call(*at),
            Place::Held(message) => message,
        };
        let end = read.handle.end;
        slot.procedure == read.procedure
            && sent.len() == message.len()
            && sent.get(4..end) == message.get(4..end)
    }

    /// A ticket for the first transmission of a non-idempotent call; else its reply, if it is known by now.
    fn first_seen(
        &self,
        now: Time,
        client: &Client,
        read: &Read<'_>,
        message: &[u8],
    ) -> Result<Ticket, Option<std::sync::Arc<[u8]>>> {
        let credential = &message[read.call.credential.clone()];
        let arguments = &message[read.call.arguments..];
        let key =
            duplicates::key(client.address(), read.call.xid, read.procedure as u8, credential, arguments);
        match self.shared.duplicates.begin(now, key, client.origin(self.shard)) {
            Seen::New(ticket) => Ok(ticket),
            Seen::Done(reply) => Err(Some(reply)),
            Seen::InProgress => Err(None),
        }
    }

    fn route(&mut self, now: Time, read: &Read<'_>, message: &mut [u8]) -> Route {
        let span = read.handle.clone();
        let table = |handle: &[u8]| self.shared.table.load().route(handle, read.hash);
        let nowhere = Route::Nowhere(status::JUKEBOX);
        match *read.arguments {
            Arguments::Write { stable, stable_at, offset, .. } if stable != FILE_SYNC => {
                let handle = &message[span];
                let credential = &message[read.call.credential.clone()];
                let pinned = self.shared.pins.write(now, handle, read.hash, credential, || table(handle));
                let Some(write) = pinned else { return nowhere };
                if !write.pinned {
                    // No room for another pin, or the file is to move: the store writes it through at once, and nothing
                    // is outstanding.
                    self.counters.writes_made_stable += 1;
                    message[stable_at..stable_at + 4].copy_from_slice(&FILE_SYNC.to_be_bytes());
                    return Route::Store(write.store, PinDebt::None);
                }
                Route::Store(write.store, PinDebt::Write { token: write.token, offset })
            }
            Arguments::Commit { offset, count, .. } => {
                let handle = &message[span];
                match self.shared.pins.commit(handle, read.hash, || table(handle)) {
                    Some(commit) => {
                        Route::Store(commit.store, PinDebt::Commit { token: commit.token, offset, count })
                    }
                    None => nowhere,
                }
            }
            Arguments::Readdir { cookie, verifier_at, .. }
            | Arguments::Readdirplus { cookie, verifier_at, .. }
                if cookie != 0 =>
            {
                self.route_listing(read, message, verifier_at)
            }
            Arguments::Read { .. } if let Some(reader) = read.reader => {
                let replica = self.may_spread(now, &message[span], read.hash).then_some(reader);
                replica.or(read.store).map_or(nowhere, |store| Route::Store(store, PinDebt::None))
            }
            _ => read.store.map_or(nowhere, |store| Route::Store(store, PinDebt::None)),
        }
    }

    /// Whether a replicated file may be read elsewhere than at its home: nobody writes it, or has lately.
    fn may_spread(&self, now: Time, handle: &[u8], hash: HandleHash) -> bool {
        if !self.shared.pins.is_empty() && self.shared.pins.store_of(handle, hash).is_some() {
            self.shared.written.mark(now, hash);
            return false;
        }
        self.shared.written.is_quiet(now, hash)
    }

    /// A listing goes on at the store that issued its cookie; elsewhere only where the stores number cookies alike.
    fn route_listing(&self, read: &Read<'_>, message: &mut [u8], verifier_at: usize) -> Route {
        let verifier = &mut message[verifier_at..verifier_at + 8];
        let mut tagged = [0; 8];
        tagged.copy_from_slice(verifier);
        let issued_by = match self.shared.listings.untag(tagged) {
            Untagged::Ours { store, verifier: own } => {
                verifier.copy_from_slice(&own);
                Some(store)
            }
            Untagged::Foreign => None,
            Untagged::Expired => return Route::Nowhere(status::BAD_COOKIE),
        };
        let table = self.shared.table.load();
        match issued_by {
            Some(store) if is_there(&table, store) => Route::Store(store, PinDebt::None),
            Some(_) if !self.shared.cookies_alike() => Route::Nowhere(status::BAD_COOKIE),
            _ => match table.route(&message[read.handle.clone()], read.hash) {
                Some(store) => Route::Store(store, PinDebt::None),
                None => Route::Nowhere(status::JUKEBOX),
            },
        }
    }

    fn forward(
        &mut self,
        now: Time,
        client: &Client,
        read: &Read<'_>,
        message: &mut [u8],
        (store, pin, ticket): (StoreId, PinDebt, Option<Ticket>),
        out: &mut impl Outlet,
    ) -> Verdict {
        let length = self.lower(client, store, read.arguments, message);
        let message = &mut message[..length];
        let Some(xid) = self.pending.vacancy() else {
            // The caller has looked for room already.
            return Verdict::Dropped;
        };
        let client_xid = read.call.xid;
        rpc::set_xid(message, xid);
        let Some(place) = self.place(store, xid, message, now, out) else {
            self.settle_pin_failed(read, message, pin);
            if let Some(ticket) = ticket {
                self.shared.duplicates.abandon(ticket);
            }
            self.counters.turned_away_held += 1;
            return self.fail(client, read, status::JUKEBOX, out);
        };
        let handle = &message[read.handle.clone()];
        let token = self.meter.call(store, read.procedure.class(), handle, read.hash);
        let repeats = match (ticket, read.progress) {
            (Some(ticket), _) => Repeats::Ticket(ticket),
            (None, Some(key)) => {
                self.in_progress.insert(key, xid);
                Repeats::Progress(key)
            }
            (None, None) => Repeats::None,
        };
        self.pending.insert(Slot {
            xid,
            client_xid,
            procedure: read.procedure,
            maybe_ran: false,
            store,
            place,
            purpose: Purpose::Client(*client),
            since: now,
            sends: 1,
            losses: Losses::default(),
            hash: read.hash,
            repeats,
            pin,
            token: Some(token),
        });
        self.counters.forwarded += 1;
        self.counters.replica_reads += u64::from(read.reader == Some(store) && read.store != Some(store));
        Verdict::Forwarded
    }

    fn settle_pin_failed(&self, read: &Read<'_>, message: &[u8], pin: PinDebt) {
        if let PinDebt::Write { token, .. } = pin {
            let handle = &message[read.handle.clone()];
            self.shared.pins.wrote(handle, read.hash, token, crate::pins::Wrote::Failed);
        }
    }

    /// Lowers what the call asks for to what the store's transport and the client's carry. Returns the length of the
    /// message, which is shorter for a WRITE of too much: the store answers with a short count, and the client sends the
    /// rest.
    pub(crate) fn lower(
        &mut self,
        client: &Client,
        store: StoreId,
        arguments: &Arguments,
        message: &mut [u8],
    ) -> usize {
        let Some(facts) = self.shared.stores.get(store.index()) else { return message.len() };
        let client_max = match client {
            Client::Stream { .. } => u32::MAX,
            Client::Datagram { .. } => DATAGRAM_TRANSFER_BYTES_MAX,
        };
        let read_max = facts.read_bytes_max.load(Ordering::Relaxed).min(client_max);
        let write_max = facts.write_bytes_max.load(Ordering::Relaxed);
        let mut lowered = false;
        let mut cap = |message: &mut [u8], at: usize, value: u32, max: u32| {
            if value > max {
                message[at..at + 4].copy_from_slice(&max.to_be_bytes());
                lowered = true;
            }
        };
        let mut length = message.len();
        match arguments {
            Arguments::Read { count, count_at, .. } | Arguments::Readdir { count, count_at, .. } => {
                cap(message, *count_at, *count, read_max);
            }
            Arguments::Readdirplus { dircount, dircount_at, maxcount, maxcount_at, .. } => {
                cap(message, *dircount_at, *dircount, read_max);
                cap(message, *maxcount_at, *maxcount, read_max);
            }
            Arguments::Write { count, count_at, length_at, data, .. }
                if data.len() as u64 > u64::from(write_max) =>
            {
                let short = write_max & !3;
                cap(message, *count_at, *count, short);
                cap(message, *length_at, u32::MAX, short);
                length = data.start + short as usize;
            }
            _ => {}
        }
        self.counters.lowered += u64::from(lowered);
        length
    }
}
