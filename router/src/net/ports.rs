//! Where a shard's replies go: its TCP connections, its UDP sockets, and other shards' mailboxes. What is queued here
//! during a round of events is written once, at its end.

use super::batch::{Lists, Run};
use super::datagrams::DatagramPort;
use super::mmsg;
use super::outbound::Outbound;
use super::signal::Signal;
use super::{Command, Mail};
use clockwork_switch::duplicates::{ConnectionId, Origin, Peer};
use clockwork_switch::{Client, LinkId, Outlet};
use slab::Slab;
use std::rc::Rc;
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::mpsc;

/// From this size on replies that lie side by side are written from where they lie, instead of being queued.
pub(super) const DIRECT_BYTES_MIN: usize = 16 << 10;

/// Bytes of replies that may wait for one client, those that it has asked for included, before no more calls are read
/// from it: enough for any round trip, and little for one that never reads.
const CLIENT_BYTES_MAX: usize = 16 << 20;
/// Bytes of replies that may wait for all clients of a shard, likewise. A client may take as much as is left.
const CLIENTS_BYTES_MAX: usize = 256 << 20;

/// A client's TCP connection.
pub(crate) struct StreamPort {
    pub(crate) connection: ConnectionId,
    pub(crate) stream: Rc<TcpStream>,
    pub(crate) out: Outbound,
    /// Calls whose reply is still to come.
    pub(crate) in_flight: u32,
    /// Bytes that the replies to calls in flight may take, as the calls say.
    asked_bytes: usize,
    /// What [`Ports::kept_bytes`] holds of this connection.
    counted_bytes: usize,
    /// The reader waits until there is room for more calls.
    pub(crate) room: Rc<Signal>,
    /// The writer waits until the connection takes more bytes.
    pub(crate) writable: Rc<Signal>,
    /// The reader is waiting.
    pub(crate) reader_waits: bool,
    blocked: bool,
    dirty: Option<Look>,
    pub(crate) broken: bool,
}

impl StreamPort {
    fn wake_reader(&mut self) {
        if std::mem::take(&mut self.reader_waits) {
            self.room.raise();
        }
    }

    fn answered(&mut self, bytes: u32, kept: &mut usize) {
        self.in_flight = self.in_flight.saturating_sub(1);
        // Most replies are short, and nothing is kept for them.
        if bytes > 0 {
            self.asked_bytes = self.asked_bytes.saturating_sub(bytes as usize);
            self.count(kept);
        }
    }

    /// Brings `kept`, the bytes of all connections, up to date with this one.
    fn count(&mut self, kept: &mut usize) {
        let bytes = self.asked_bytes + self.out.len();
        *kept = (*kept + bytes).saturating_sub(self.counted_bytes);
        self.counted_bytes = bytes;
    }
}

/// Counts the looks at the sockets; with bytes to write, after which look the first of them came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Look(u64);

/// What the ports have counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Replies too large for a datagram, dropped.
    pub datagrams_too_large: u64,
    /// Datagrams that the socket did not take, dropped: the client sends the call again.
    pub datagrams_dropped: u64,
    /// Replies for connections that have gone.
    pub orphaned_replies: u64,
    /// How often a client was read no further because of the bytes of replies that wait.
    pub reply_bytes_full: u64,
}

/// All ways out of a shard.
pub(crate) struct Ports {
    pub(crate) streams: Slab<StreamPort>,
    /// Bytes of replies that wait for clients or are asked for by them.
    kept_bytes: usize,
    pub(crate) sockets: Vec<DatagramPort>,
    dirty_streams: Vec<usize>,
    dirty_links: Vec<LinkId>,
    /// Those of `dirty_links` that came before the last look.
    dirty_links_before: usize,
    pub(super) look: Look,
    pub(super) gained: bool,
    flush: Rc<Signal>,
    /// The flusher has been told.
    flush_due: bool,
    /// Empty lists for the next read's replies.
    pub(super) spare: Lists,
    shard: u16,
    mailboxes: Rc<[mpsc::UnboundedSender<Command>]>,
    pub(crate) counters: PortCounters,
}

impl Ports {
    pub(crate) fn new(
        shard: u16,
        flush: Rc<Signal>,
        mailboxes: Rc<[mpsc::UnboundedSender<Command>]>,
    ) -> Self {
        Self {
            streams: Slab::new(),
            kept_bytes: 0,
            sockets: Vec::new(),
            dirty_streams: Vec::new(),
            dirty_links: Vec::new(),
            dirty_links_before: 0,
            look: Look::default(),
            gained: false,
            flush,
            flush_due: false,
            spare: Lists::default(),
            shard,
            mailboxes,
            counters: PortCounters::default(),
        }
    }

    pub(crate) fn add_stream(&mut self, connection: ConnectionId, stream: Rc<TcpStream>) -> usize {
        self.streams.insert(StreamPort {
            connection,
            stream,
            out: Outbound::default(),
            in_flight: 0,
            asked_bytes: 0,
            counted_bytes: 0,
            room: Rc::default(),
            writable: Rc::default(),
            reader_waits: false,
            blocked: false,
            dirty: None,
            broken: false,
        })
    }

    pub(crate) fn add_socket(&mut self, socket: Rc<UdpSocket>) -> u16 {
        self.sockets.push(DatagramPort::new(socket));
        u16::try_from(self.sockets.len() - 1).unwrap_or(u16::MAX)
    }

    pub(crate) fn remove_stream(&mut self, slot: usize) {
        if let Some(port) = self.streams.try_remove(slot) {
            self.kept_bytes = self.kept_bytes.saturating_sub(port.counted_bytes);
        }
    }

    /// A call came in, whose reply may take so many bytes; its reply, or [`Ports::no_reply`], takes it off again.
    pub(crate) fn expect_reply(&mut self, slot: usize, bytes: u32) {
        if let Some(port) = self.streams.get_mut(slot) {
            port.in_flight += 1;
            if bytes > 0 {
                port.asked_bytes += bytes as usize;
                port.count(&mut self.kept_bytes);
            }
        }
    }

    /// There will be no reply to a call.
    pub(crate) fn no_reply(&mut self, slot: usize, bytes: u32) {
        if let Some(port) = self.streams.get_mut(slot) {
            port.answered(bytes, &mut self.kept_bytes);
        }
    }

    /// Whether another call may be read from a client with at most `calls_max` in flight. One that keeps nothing always
    /// may, whatever the others do.
    pub(crate) fn has_room(&self, slot: usize, calls_max: u32) -> bool {
        self.streams.get(slot).is_none_or(|port| {
            let left = CLIENTS_BYTES_MAX.saturating_sub(self.kept_bytes);
            let bytes = port.counted_bytes;
            port.in_flight < calls_max && (bytes == 0 || bytes < CLIENT_BYTES_MAX.min(left))
        })
    }

    /// Bytes of replies that wait for clients or are asked for by them, and how many there may be.
    pub(crate) fn reply_bytes(&self) -> (usize, usize) {
        (self.kept_bytes, CLIENTS_BYTES_MAX)
    }

    /// A client has taken no byte for too long: its reader closes the connection.
    pub(crate) fn give_up(&mut self, slot: usize, connection: ConnectionId) {
        if let Some(port) = self.streams.get_mut(slot).filter(|port| port.connection == connection) {
            port.broken = true;
            // Also where it waits for bytes.
            let _ = socket2::SockRef::from(&*port.stream).shutdown(std::net::Shutdown::Both);
            port.wake_reader();
        }
    }

    fn mark_stream(&mut self, slot: usize) {
        let Some(port) = self.streams.get_mut(slot).filter(|port| !port.blocked) else { return };
        match port.dirty {
            Some(look) => self.gained |= look != self.look,
            None => {
                port.dirty = Some(self.look);
                self.dirty_streams.push(slot);
                self.want_flush();
            }
        }
    }

    /// The sockets are looked at once more before [`Ports::flush`].
    pub(crate) fn look(&mut self) {
        self.look.0 += 1;
        self.gained = false;
        self.dirty_links_before = self.dirty_links.len();
    }

    /// Whether since [`Ports::look`] bytes have come for connections that had some to write before, so that they can go
    /// out in the same writes.
    pub(crate) fn gained(&self) -> bool {
        self.gained
    }

    pub(super) fn want_flush(&mut self) {
        if !std::mem::replace(&mut self.flush_due, true) {
            self.flush.raise();
        }
    }

    /// The connection takes bytes again.
    pub(crate) fn unblock(&mut self, slot: usize, connection: ConnectionId) {
        if let Some(port) = self.streams.get_mut(slot).filter(|port| port.connection == connection) {
            port.blocked = false;
            self.mark_stream(slot);
        }
    }

    fn stream(&mut self, slot: u32, connection: ConnectionId) -> Option<&mut StreamPort> {
        let port = self.streams.get_mut(slot as usize).filter(|port| port.connection == connection);
        if port.is_none() {
            self.counters.orphaned_replies += 1;
        }
        port
    }

    fn queue_stream(&mut self, slot: u32, connection: ConnectionId, bytes: &[u8]) {
        let Some(port) = self.stream(slot, connection) else { return };
        port.out.push(bytes);
        self.count(slot as usize);
        self.mark_stream(slot as usize);
    }

    fn count(&mut self, slot: usize) {
        if let Some(port) = self.streams.get_mut(slot) {
            port.count(&mut self.kept_bytes);
        }
    }

    /// Writes or queues replies that lie in `buffer`.
    pub(super) fn queue_runs(&mut self, buffer: &[u8], runs: &[Run]) {
        let Some(&Run { slot, connection, .. }) = runs.first() else { return };
        let Some(port) = self.stream(slot, connection) else { return };
        let bytes = runs.iter().map(|run| buffer.get(run.bytes.clone()).unwrap_or_default());
        let total: usize = bytes.clone().map(<[u8]>::len).sum();
        if total >= DIRECT_BYTES_MIN && !port.blocked {
            if port.out.write_through(&port.stream, bytes).is_err() {
                port.broken = true;
            } else if port.out.is_empty() {
                port.wake_reader();
                return self.count(slot as usize);
            }
        } else {
            bytes.for_each(|run| port.out.push(run));
        }
        self.count(slot as usize);
        self.mark_stream(slot as usize);
    }

    pub(super) fn replied_stream(&mut self, slot: u32, connection: ConnectionId, bytes: u32) {
        if let Some(port) = self.streams.get_mut(slot as usize).filter(|port| port.connection == connection) {
            port.answered(bytes, &mut self.kept_bytes);
            port.wake_reader();
        }
    }

    /// A reply for a client of this shard that waited for another shard's call.
    pub(crate) fn deliver(&mut self, mail: &Mail) {
        if let Peer::Stream(connection) = mail.to.peer {
            let slot = u32::try_from(mail.to.client).unwrap_or(u32::MAX);
            self.queue_stream(slot, connection, &mail.record);
        }
    }

    /// Writes what is queued for clients, and hands the list of links that have bytes to write over to `links`, which is
    /// empty.
    pub(crate) fn flush(&mut self, links: &mut Vec<LinkId>) {
        self.flush_due = false;
        let mut dirty = std::mem::take(&mut self.dirty_streams);
        for slot in dirty.drain(..) {
            let Some(port) = self.streams.get_mut(slot) else { continue };
            port.dirty = None;
            let flushed = port.out.flush(&port.stream);
            port.count(&mut self.kept_bytes);
            match flushed {
                Ok(()) if port.out.is_empty() => port.wake_reader(),
                Ok(()) => {
                    port.blocked = true;
                    port.writable.raise();
                }
                Err(_) => port.broken = true,
            }
            if port.broken {
                // The reader sees it and closes the connection.
                port.wake_reader();
            }
        }
        self.dirty_streams = dirty;
        for socket in 0..self.sockets.len() {
            self.flush_datagrams(socket);
        }
        std::mem::swap(&mut self.dirty_links, links);
        self.dirty_links_before = 0;
    }
}

impl Outlet for Ports {
    fn reply(&mut self, client: &Client, record: &[u8]) {
        match *client {
            Client::Stream { connection, slot, reply_bytes, .. } => {
                self.replied_stream(slot, connection, reply_bytes);
                self.queue_stream(slot, connection, record);
            }
            Client::Datagram { peer, socket, local } => {
                let message = record.get(mmsg::HEADROOM..).unwrap_or_default();
                self.queue_datagram(peer, socket, local, message);
            }
        }
    }

    fn mail(&mut self, waiter: &Origin, record: &[u8]) {
        let mail = Mail { to: *waiter, record: record.into() };
        if waiter.shard == self.shard {
            self.deliver(&mail);
        } else if let Some(mailbox) = self.mailboxes.get(usize::from(waiter.shard)) {
            // A shard that has ended has no clients left to tell.
            let _ = mailbox.send(Command::Mail(mail));
        }
    }

    fn wake(&mut self, link: LinkId) {
        match self.dirty_links.iter().position(|dirty| *dirty == link) {
            Some(place) => self.gained |= place < self.dirty_links_before,
            None => self.dirty_links.push(link),
        }
        self.want_flush();
    }
}
