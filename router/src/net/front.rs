//! Clients: their connections and datagrams on the way in.

use super::MountReply;
use super::inbound::{Flow, Inbound, InboundError, Received, RecordSink};
use super::mmsg::{HEADROOM, ReceiveBatch};
use super::ports::Ports;
use super::shard::{Inner, Shard};
use super::signal::Signal;
use super::unfinished::Owner;
use crate::heat::Recorder;
use clockwork_switch::duplicates::ConnectionId;
use clockwork_switch::time::Time;
use clockwork_switch::{Client, Outlet, Switch, Verdict};
use clockwork_wire::nfs3::{self, Procedure};
use clockwork_wire::{rpc, xdr};
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream, UdpSocket};

/// How long a client that has closed its sending side still gets the replies that it waits for.
const HALF_CLOSED_MAX: Duration = Duration::from_secs(30);

/// How long replies wait for a client that takes no byte of them; then its connection is closed.
const STALLED_MAX: Duration = Duration::from_secs(60);

/// How long a record that has begun waits for the next of its bytes; then the connection is closed: what has come of
/// it is kept.
const UNFINISHED_MAX: Duration = Duration::from_secs(60);

/// Accepts the clients of one address.
pub(crate) async fn serve_streams(shard: Rc<Shard>, listener: std::net::TcpListener) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "cannot serve a TCP socket"),
    };
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => accept(&shard, stream, peer),
            Err(error) => {
                // Out of descriptors, mostly: those that are there go on, and some will close.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

fn accept(shard: &Rc<Shard>, stream: TcpStream, peer: SocketAddr) {
    let mut inner = shard.inner.borrow_mut();
    let connections = shard.connections.fetch_add(1, Ordering::Relaxed);
    if connections >= shard.connections_max {
        shard.connections.fetch_sub(1, Ordering::Relaxed);
        inner.counters.turned_away += 1;
        return;
    }
    inner.counters.accepted += 1;
    // Without it a short reply waits for the acknowledgement of the one before.
    let _ = stream.set_nodelay(true);
    let connection = shard.next_connection();
    inner.switch.client_opened(connection);
    let stream = Rc::new(stream);
    let slot = inner.ports.add_stream(connection, Rc::clone(&stream));
    let port = &inner.ports.streams[slot];
    let (room, writable) = (Rc::clone(&port.room), Rc::clone(&port.writable));
    drop(inner);
    let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
    let client = StreamClient { shard: Rc::clone(shard), stream, slot, connection, peer, room };
    let writer = tokio::task::spawn_local(write_blocked(
        Rc::clone(shard),
        client.stream.clone(),
        slot,
        connection,
        writable,
    ));
    tokio::task::spawn_local(async move {
        client.run().await;
        writer.abort();
    });
}

/// Waits, whenever the flusher has found the connection full, until it takes bytes again.
async fn write_blocked(
    shard: Rc<Shard>,
    stream: Rc<TcpStream>,
    slot: usize,
    connection: ConnectionId,
    blocked: Rc<Signal>,
) {
    loop {
        blocked.raised().await;
        match tokio::time::timeout(STALLED_MAX, stream.writable()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return,
            // It keeps replies that others could have the room for.
            Err(_) => return shard.inner.borrow_mut().ports.give_up(slot, connection),
        }
        shard.inner.borrow_mut().ports.unblock(slot, connection);
    }
}

struct StreamClient {
    shard: Rc<Shard>,
    stream: Rc<TcpStream>,
    slot: usize,
    connection: ConnectionId,
    peer: SocketAddr,
    room: Rc<Signal>,
}

impl StreamClient {
    async fn run(self) {
        let end = self.read_calls().await;
        match end {
            Ok(()) => self.drain().await,
            Err(InboundError::Record(error)) => {
                let count = {
                    let mut inner = self.shard.inner.borrow_mut();
                    inner.counters.framing_errors += 1;
                    inner.counters.framing_errors
                };
                // The first few, then every thousandth: a scanner must not fill the log.
                if count <= 10 || count.is_multiple_of(1000) {
                    tracing::warn!(client = %self.peer, %error, count, "closed a connection that sends no RPC records");
                }
            }
            Err(error @ InboundError::Unfinished(_)) => {
                self.shard.inner.borrow_mut().counters.unfinished_records += 1;
                tracing::debug!(client = %self.peer, %error, "closed a connection");
            }
            Err(InboundError::Io(error)) => tracing::debug!(client = %self.peer, %error, "connection lost"),
        }
    }

    async fn read_calls(&self) -> Result<(), InboundError> {
        let owner = Owner { slot: self.slot, connection: self.connection, address: self.peer.ip() };
        let mut inbound = Inbound::new(self.shard.records, Rc::clone(&self.shard.room), Some(owner));
        let admitted = self.shard.desk.admits(self.peer);
        loop {
            while !self.has_room()? {
                inbound.pause(true);
                self.room.raised().await;
                inbound.pause(false);
            }
            match self.read_once(&mut inbound, admitted)? {
                Received::Closed => return Ok(()),
                Received::Drained => inbound.readable(&self.stream, UNFINISHED_MAX).await?,
                // Others get their turn between two reads.
                Received::More => tokio::task::yield_now().await,
                Received::Stopped => {}
                Received::NoRoom => inbound.take_room().await?,
            }
        }
    }

    /// Whether another call may be read; if not, `room` says when to look again.
    fn has_room(&self) -> io::Result<bool> {
        let mut inner = self.shard.inner.borrow_mut();
        // A client that does not read its replies is not read either.
        let ports = &mut inner.ports;
        let room = ports.has_room(self.slot, self.shard.client_calls_max);
        match ports.streams.get_mut(self.slot) {
            Some(port) if port.broken => Err(io::ErrorKind::BrokenPipe.into()),
            Some(port) => {
                port.reader_waits = !room;
                let bytes = !room && port.in_flight < self.shard.client_calls_max;
                ports.counters.reply_bytes_full += u64::from(bytes);
                Ok(room)
            }
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    fn read_once(&self, inbound: &mut Inbound, admitted: bool) -> Result<Received, InboundError> {
        let now = self.shard.now();
        let mut inner = self.shard.inner.borrow_mut();
        let Inner { switch, ports, buffer, .. } = &mut *inner;
        let client = Client::Stream {
            connection: self.connection,
            slot: u32::try_from(self.slot).unwrap_or(u32::MAX),
            address: self.peer.ip(),
            reply_bytes: 0,
        };
        inbound.read(&self.stream, buffer, &mut Calls { of: self, now, client, admitted, switch, ports })
    }

    /// The client will send no more, but waits for replies.
    async fn drain(&self) {
        let done = async {
            loop {
                match self.shard.inner.borrow_mut().ports.streams.get_mut(self.slot) {
                    Some(port) if !port.broken && (port.in_flight > 0 || !port.out.is_empty()) => {
                        port.reader_waits = true;
                    }
                    _ => return,
                }
                self.room.raised().await;
            }
        };
        // Whoever has not taken its replies by then is not there any more.
        let _ = tokio::time::timeout(HALF_CLOSED_MAX, done).await;
    }
}

/// Gives a client's records to the switch.
struct Calls<'a> {
    of: &'a StreamClient,
    now: Time,
    client: Client,
    admitted: bool,
    switch: &'a mut Switch<Recorder>,
    ports: &'a mut Ports,
}

impl RecordSink for Calls<'_> {
    fn record(&mut self, buffer: &mut [u8], record: Range<usize>) -> Flow {
        let message = &mut buffer[record.start + HEADROOM..record.end];
        let slot = self.of.slot;
        let bytes = reply_bytes(message).min(self.of.shard.records.record_bytes_max);
        if let Client::Stream { reply_bytes, .. } = &mut self.client {
            *reply_bytes = bytes;
        }
        self.ports.expect_reply(slot, bytes);
        match self.switch.call(self.now, &self.client, self.admitted, message, self.ports) {
            Verdict::Forwarded | Verdict::Answered => {}
            Verdict::Absorbed | Verdict::Dropped => self.ports.no_reply(slot, bytes),
            Verdict::Mount(call) => {
                answer_mount(&self.of.shard, self.ports, self.client, self.of.peer, message, &call)
            }
        }
        if self.ports.has_room(slot, self.of.shard.client_calls_max) { Flow::Continue } else { Flow::Stop }
    }
}

/// Bytes that the reply to a call may take beyond the usual few hundred: READ, READDIR and READDIRPLUS end in what the
/// client takes (RFC 1813 sections 3.3.6, 3.3.16, 3.3.17).
fn reply_bytes(message: &[u8]) -> u32 {
    const ENDS_IN_BYTES: [Procedure; 3] = [Procedure::Read, Procedure::Readdir, Procedure::Readdirplus];
    let (Some(head), Some(last)) = (message.first_chunk::<24>(), message.last_chunk::<4>()) else { return 0 };
    let word = |at: usize| xdr::u32_at(head, at);
    let ends_in_bytes = word(12) == Some(nfs3::PROGRAM)
        && ENDS_IN_BYTES.iter().any(|procedure| word(20) == Some(procedure.number()));
    if ends_in_bytes { u32::from_be_bytes(*last) } else { 0 }
}

impl Drop for StreamClient {
    fn drop(&mut self) {
        let mut inner = self.shard.inner.borrow_mut();
        inner.ports.remove_stream(self.slot);
        inner.switch.client_closed(self.connection);
        self.shard.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

fn as_record(message: &[u8]) -> Vec<u8> {
    let mut record = clockwork_wire::record::mark(message.len()).to_vec();
    record.extend_from_slice(message);
    record
}

fn answer_mount(
    shard: &Rc<Shard>,
    ports: &mut Ports,
    client: Client,
    peer: SocketAddr,
    message: &[u8],
    call: &rpc::Call,
) {
    match shard.desk.mount(peer, message, call) {
        MountReply::Now(reply) => ports.reply(&client, &as_record(&reply)),
        MountReply::Later(later) => answer_later(shard, client, later),
    }
}

fn answer_later(shard: &Rc<Shard>, client: Client, later: std::pin::Pin<Box<dyn Future<Output = Vec<u8>>>>) {
    let shard = Rc::clone(shard);
    tokio::task::spawn_local(async move {
        let reply = later.await;
        shard.inner.borrow_mut().ports.reply(&client, &as_record(&reply));
    });
}

/// Serves the datagrams of one socket.
pub(crate) async fn serve_datagrams(shard: Rc<Shard>, socket: std::net::UdpSocket) {
    let local = socket.local_addr().ok().map(|address| address.ip()).filter(|ip| !ip.is_unspecified());
    let socket = match UdpSocket::from_std(socket) {
        Ok(socket) => Rc::new(socket),
        Err(error) => return tracing::error!(%error, "cannot serve a UDP socket"),
    };
    let number = shard.inner.borrow_mut().ports.add_socket(Rc::clone(&socket));
    let mut batch = ReceiveBatch::new();
    loop {
        if let Err(error) = socket.readable().await {
            return tracing::error!(%error, "a UDP socket has failed");
        }
        let mut count = 0;
        // A batch that is not full has emptied the socket: tokio is told, which saves a call that would only say so.
        let _ = socket.try_io(Interest::READABLE, || {
            count = batch.receive(socket.as_fd())?;
            if batch.is_full() { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
        });
        route_batch(&shard, &mut batch, count, number, local.is_none());
        if batch.is_full() {
            tokio::task::yield_now().await;
        }
    }
}

/// Gives a batch's datagrams to the switch. `packet_info`: the socket serves several addresses, and a reply must come
/// from the one that its call was sent to.
fn route_batch(shard: &Rc<Shard>, batch: &mut ReceiveBatch, count: usize, socket: u16, packet_info: bool) {
    let now = shard.now();
    let mut inner = shard.inner.borrow_mut();
    let Inner { switch, ports, .. } = &mut *inner;
    for i in 0..count {
        let Some((bytes, peer, to)) = batch.datagram(i) else { continue };
        let message = &mut bytes[HEADROOM..];
        let client = Client::Datagram { peer, socket, local: to.filter(|_| packet_info) };
        let canonical = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        let admitted = shard.desk.admits(canonical);
        if let Verdict::Mount(call) = switch.call(now, &client, admitted, message, ports) {
            answer_mount(shard, ports, client, canonical, message, &call);
        }
    }
}
