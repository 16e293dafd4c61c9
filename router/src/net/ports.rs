//! Where a shard's replies go: its TCP connections, its UDP sockets, and other shards' mailboxes. What is queued here
//! during a round of events is written once, at its end.

use super::mmsg::{self, Outgoing};
use super::outbound::Outbound;
use super::{Command, Mail};
use clockwork_switch::duplicates::{ConnectionId, Origin, Peer};
use clockwork_switch::{Client, LinkId, Outlet};
use slab::Slab;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::AsFd;
use std::rc::Rc;
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::{Notify, mpsc};

/// From this size on replies that lie side by side are written from where they lie, instead of being queued.
const DIRECT_BYTES_MIN: usize = 16 << 10;

/// A client's TCP connection.
pub(crate) struct StreamPort {
    pub(crate) connection: ConnectionId,
    pub(crate) stream: Rc<TcpStream>,
    pub(crate) out: Outbound,
    /// Calls whose reply is still to come.
    pub(crate) in_flight: u32,
    /// The reader waits until there is room for more calls.
    pub(crate) room: Rc<Notify>,
    /// The writer waits until the connection takes more bytes.
    pub(crate) writable: Rc<Notify>,
    blocked: bool,
    dirty: bool,
    pub(crate) broken: bool,
}

/// A front socket for datagrams.
pub(crate) struct DatagramPort {
    pub(crate) socket: Rc<UdpSocket>,
    bytes: Vec<u8>,
    queue: Vec<(Range<usize>, SocketAddr, Option<IpAddr>)>,
}

/// What the ports have counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Replies too large for a datagram, dropped.
    pub datagrams_too_large: u64,
    /// Datagrams that the socket did not take, dropped: the client sends the call again.
    pub datagrams_dropped: u64,
    /// Replies for connections that have gone.
    pub orphaned_replies: u64,
}

/// All ways out of a shard.
pub(crate) struct Ports {
    pub(crate) streams: Slab<StreamPort>,
    pub(crate) sockets: Vec<DatagramPort>,
    dirty_streams: Vec<usize>,
    dirty_links: Vec<LinkId>,
    flush: Rc<Notify>,
    shard: u16,
    mailboxes: Rc<[mpsc::UnboundedSender<Command>]>,
    pub(crate) counters: PortCounters,
}

impl Ports {
    pub(crate) fn new(
        shard: u16,
        flush: Rc<Notify>,
        mailboxes: Rc<[mpsc::UnboundedSender<Command>]>,
    ) -> Self {
        Self {
            streams: Slab::new(),
            sockets: Vec::new(),
            dirty_streams: Vec::new(),
            dirty_links: Vec::new(),
            flush,
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
            room: Rc::new(Notify::new()),
            writable: Rc::new(Notify::new()),
            blocked: false,
            dirty: false,
            broken: false,
        })
    }

    pub(crate) fn add_socket(&mut self, socket: Rc<UdpSocket>) -> u16 {
        self.sockets.push(DatagramPort { socket, bytes: Vec::new(), queue: Vec::new() });
        u16::try_from(self.sockets.len() - 1).unwrap_or(u16::MAX)
    }

    /// A call came in; its reply, or [`Ports::no_reply`], takes it off again.
    pub(crate) fn expect_reply(&mut self, slot: usize) {
        if let Some(port) = self.streams.get_mut(slot) {
            port.in_flight += 1;
        }
    }

    /// There will be no reply to a call.
    pub(crate) fn no_reply(&mut self, slot: usize) {
        if let Some(port) = self.streams.get_mut(slot) {
            port.in_flight = port.in_flight.saturating_sub(1);
        }
    }

    fn mark_stream(&mut self, slot: usize) {
        if let Some(port) = self.streams.get_mut(slot)
            && !port.dirty
            && !port.blocked
        {
            port.dirty = true;
            self.dirty_streams.push(slot);
            self.flush.notify_one();
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
        if bytes.len() >= DIRECT_BYTES_MIN && !port.blocked {
            if port.out.write_through(&port.stream, bytes).is_err() {
                port.broken = true;
            }
        } else {
            port.out.push(bytes);
        }
        self.mark_stream(slot as usize);
    }

    fn replied_stream(&mut self, slot: u32, connection: ConnectionId, replies: u32) {
        if let Some(port) = self.streams.get_mut(slot as usize).filter(|port| port.connection == connection) {
            port.in_flight = port.in_flight.saturating_sub(replies);
            port.room.notify_one();
        }
    }

    fn queue_datagram(&mut self, peer: SocketAddr, socket: u16, local: Option<IpAddr>, record: &[u8]) {
        let message = record.get(mmsg::HEADROOM..).unwrap_or_default();
        if message.len() > mmsg::DATAGRAM_BYTES_MAX {
            self.counters.datagrams_too_large += 1;
            return;
        }
        let Some(port) = self.sockets.get_mut(usize::from(socket)) else { return };
        let start = port.bytes.len();
        port.bytes.extend_from_slice(message);
        port.queue.push((start..port.bytes.len(), peer, local));
        if port.queue.len() >= mmsg::BATCH {
            self.flush_datagrams(usize::from(socket));
        } else {
            self.flush.notify_one();
        }
    }

    /// A reply for a client of this shard that waited for another shard's call.
    pub(crate) fn deliver(&mut self, mail: &Mail) {
        if let Peer::Stream(connection) = mail.to.peer {
            let slot = u32::try_from(mail.to.client).unwrap_or(u32::MAX);
            self.queue_stream(slot, connection, &mail.record);
        }
    }

    /// Writes what is queued for clients, and takes the list of links that have bytes to write.
    pub(crate) fn flush(&mut self) -> Vec<LinkId> {
        let mut dirty = std::mem::take(&mut self.dirty_streams);
        for slot in dirty.drain(..) {
            let Some(port) = self.streams.get_mut(slot) else { continue };
            port.dirty = false;
            match port.out.flush(&port.stream) {
                Ok(()) if port.out.is_empty() => port.room.notify_one(),
                Ok(()) => {
                    port.blocked = true;
                    port.writable.notify_one();
                }
                Err(_) => port.broken = true,
            }
            if port.broken {
                // The reader sees it and closes the connection.
                port.room.notify_one();
            }
        }
        self.dirty_streams = dirty;
        for socket in 0..self.sockets.len() {
            self.flush_datagrams(socket);
        }
        std::mem::take(&mut self.dirty_links)
    }

    fn flush_datagrams(&mut self, socket: usize) {
        let port = &mut self.sockets[socket];
        let mut sent = 0;
        while sent < port.queue.len() {
            let batch: Vec<Outgoing<'_>> = port.queue[sent..]
                .iter()
                .take(mmsg::BATCH)
                .map(|(range, to, from)| Outgoing {
                    bytes: &port.bytes[range.clone()],
                    to: Some(*to),
                    from: *from,
                })
                .collect();
            match mmsg::send(port.socket.as_fd(), &batch) {
                Ok(count) if count > 0 => sent += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A full socket or a peer that is gone: as on the wire, the datagram is lost.
                _ => {
                    self.counters.datagrams_dropped += 1;
                    sent += 1;
                }
            }
        }
        port.queue.clear();
        port.bytes.clear();
        port.bytes.shrink_to(1 << 20);
    }
}

impl Outlet for Ports {
    fn reply(&mut self, client: &Client, record: &[u8]) {
        match *client {
            Client::Stream { connection, slot, .. } => {
                self.replied_stream(slot, connection, 1);
                self.queue_stream(slot, connection, record);
            }
            Client::Datagram { peer, socket, local } => self.queue_datagram(peer, socket, local, record),
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
        if self.dirty_links.last() != Some(&link) {
            self.dirty_links.push(link);
        }
        self.flush.notify_one();
    }
}

/// Replies that lie side by side in a read buffer and go to the same client.
struct Run {
    slot: u32,
    connection: ConnectionId,
    bytes: Range<usize>,
}

/// The outlet while a store's bytes are read: remembers where in the read buffer replies lie, so that neighbours for one
/// client are written together and without a copy.
pub(crate) struct Batch<'a> {
    ports: &'a mut Ports,
    /// Address of the read buffer's first byte, and its length: replies that lie in it are known by their place.
    buffer: Range<usize>,
    runs: Vec<Run>,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(ports: &'a mut Ports) -> Self {
        Self { ports, buffer: 0..0, runs: Vec::new() }
    }

    /// Says where the read buffer is. To be called before every reply that may lie in it.
    pub(crate) fn in_buffer(&mut self, buffer: &[u8]) {
        let start = buffer.as_ptr().addr();
        self.buffer = start..start + buffer.len();
    }

    /// Writes or queues the replies remembered. `buffer` is the read buffer.
    pub(crate) fn finish(&mut self, buffer: &[u8]) {
        for run in self.runs.drain(..) {
            if let Some(bytes) = buffer.get(run.bytes) {
                self.ports.queue_stream(run.slot, run.connection, bytes);
            }
        }
    }
}

impl Outlet for Batch<'_> {
    fn reply(&mut self, client: &Client, record: &[u8]) {
        let at = record.as_ptr().addr();
        let Client::Stream { connection, slot, .. } = *client else {
            return self.ports.reply(client, record);
        };
        if !self.buffer.contains(&at) {
            // Made by the router, out of turn: what was read before it goes first.
            return self.ports.reply(client, record);
        }
        self.ports.replied_stream(slot, connection, 1);
        let start = at - self.buffer.start;
        let end = start + record.len();
        match self.runs.last_mut() {
            Some(run) if run.connection == connection && run.bytes.end == start => run.bytes.end = end,
            _ => self.runs.push(Run { slot, connection, bytes: start..end }),
        }
    }

    fn mail(&mut self, waiter: &Origin, record: &[u8]) {
        self.ports.mail(waiter, record);
    }

    fn wake(&mut self, link: LinkId) {
        self.ports.wake(link);
    }
}
