//! Links: the connections to the stores, kept up.

use super::batch::Batch;
use super::inbound::{Flow, Inbound, InboundError, Received, RecordSink};
use super::mmsg::{BATCH, HEADROOM, Outgoing, ReceiveBatch, Sender};
use super::seldom::Seldom;
use super::shard::{Inner, Shard};
use super::signal::Signal;
use crate::heat::Recorder;
use clockwork_placement::StoreId;
use clockwork_switch::send_log::SendLog;
use clockwork_switch::time::Time;
use clockwork_switch::{LinkId, Switch, Transport};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::net::{TcpSocket, TcpStream, UdpSocket};

const BACKOFF_FIRST: Duration = Duration::from_millis(50);
const BACKOFF_LAST: Duration = Duration::from_secs(2);
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Buffers towards the stores: a reply of 1 MiB must not stop the others behind it.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;

/// A connection to a store that is to be kept up.
#[derive(Clone, Debug)]
pub struct LinkSpec {
    /// The store.
    pub store: StoreId,
    /// Its name, for messages.
    pub name: String,
    /// Where it serves NFS.
    pub address: SocketAddr,
    /// How it is spoken to.
    pub transport: Transport,
    /// Reconnect from the same local port: the store's duplicate cache knows the router by it.
    pub keep_port: bool,
    /// Use a local port below 1024, which stores that export with `secure` want.
    pub reserved_port: bool,
}

enum LinkSocket {
    Stream(Rc<TcpStream>),
    Datagram(Rc<UdpSocket>),
}

/// The way out to a store.
#[derive(Default)]
pub(crate) struct LinkPort {
    socket: Option<LinkSocket>,
    sender: Sender,
    blocked: bool,
    writable: Rc<Signal>,
    /// The connection is to be given up.
    cut: Rc<Signal>,
    /// Something has come from the store over this connection.
    heard: bool,
}

impl LinkPort {
    /// Whether there is a connection.
    pub(crate) fn is_up(&self) -> bool {
        self.socket.is_some()
    }

    /// Gives the connection up, and with it what the kernel has not sent yet: a store whose calls have gone elsewhere
    /// must not get them when it wakes up.
    pub(crate) fn cut(&mut self) {
        if let Some(LinkSocket::Stream(stream)) = &self.socket {
            // Without lingering, a close resets the connection. If that fails the bytes may still arrive, as they might
            // have before.
            let _ = socket2::SockRef::from(&**stream).set_linger(Some(Duration::ZERO));
        }
        if self.socket.take().is_some() {
            self.cut.raise();
        }
    }

    pub(crate) fn unblock(&mut self) {
        self.blocked = false;
    }

    /// Writes what the log has, without waiting. An error shows at the reading side, which ends the link.
    pub(crate) fn flush(&mut self, log: &mut SendLog) {
        if self.blocked {
            return;
        }
        let done = match &self.socket {
            Some(LinkSocket::Stream(stream)) => flush_stream(stream, log),
            Some(LinkSocket::Datagram(socket)) => flush_datagrams(socket, &mut self.sender, log),
            None => return,
        };
        if !done {
            self.blocked = true;
            self.writable.raise();
        }
    }
}

/// True when all is written or never will be.
fn flush_stream(stream: &TcpStream, log: &mut SendLog) -> bool {
    while log.has_unsent() {
        let result = {
            let mut slices = Vec::with_capacity(8);
            log.unsent(&mut slices);
            match slices.as_slice() {
                [all] => stream.try_write(all),
                several => stream.try_write_vectored(several),
            }
        };
        match result {
            Ok(count) => log.sent(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            Err(_) => return true,
        }
    }
    true
}

fn flush_datagrams(socket: &UdpSocket, sender: &mut Sender, log: &mut SendLog) -> bool {
    while log.has_unsent() {
        let result = {
            let mut batch = [Outgoing::EMPTY; BATCH];
            let mut count = 0;
            for (datagram, bytes) in batch.iter_mut().zip(log.datagrams()) {
                datagram.bytes = bytes;
                count += 1;
            }
            sender.send(socket.as_fd(), &batch[..count])
        };
        let sent = match result {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            // A refusal (the store's port is closed) belongs to an earlier datagram; the switch sends again in time.
            Err(_) => 1,
            Ok(count) => count.max(1),
        };
        for _ in 0..sent {
            log.datagram_sent();
        }
    }
    true
}

/// Keeps one link up for ever.
pub(crate) async fn run_link(shard: Rc<Shard>, link: LinkId, spec: LinkSpec) {
    let mut backoff = BACKOFF_FIRST;
    let mut port = None;
    let mut losses = Seldom::default();
    loop {
        let attempt = match spec.transport {
            Transport::Stream => connect_stream(&spec, port).await.map(|s| LinkSocket::Stream(Rc::new(s))),
            Transport::Datagram => connect_datagram(&spec, port).map(|s| LinkSocket::Datagram(Rc::new(s))),
        };
        match attempt {
            Ok(socket) => {
                if spec.keep_port {
                    port = socket.local_port().or(port);
                }
                let error = socket.run(&shard, link).await;
                let mut inner = shard.inner.borrow_mut();
                inner.counters.links_lost += 1;
                // A store that takes connections and says nothing (a datagram socket always connects) is not tried
                // again at once: every loss makes its writers write again.
                if std::mem::take(&mut inner.links[usize::from(link.0)].heard) {
                    backoff = BACKOFF_FIRST;
                }
                // What a store ends connections for may come again and again.
                if let Some(unsaid) = losses.turn(Instant::now()) {
                    let (store, address) = (&spec.name, &spec.address);
                    tracing::warn!(%store, %address, %error, unsaid, "lost the connection to a store");
                }
            }
            Err(error) => {
                shard.inner.borrow_mut().counters.link_failures += 1;
                tracing::debug!(store = %spec.name, address = %spec.address, %error, "cannot connect to a store");
            }
        }
        tokio::time::sleep(backoff).await;
        backoff = (backoff * 2).min(BACKOFF_LAST);
    }
}

impl LinkSocket {
    fn local_port(&self) -> Option<u16> {
        let address = match self {
            Self::Stream(stream) => stream.local_addr(),
            Self::Datagram(socket) => socket.local_addr(),
        };
        address.ok().map(|address| address.port())
    }

    /// Reads until the link is lost; says why.
    async fn run(self, shard: &Rc<Shard>, link: LinkId) -> InboundError {
        let (writer, reader) = match self {
            Self::Stream(stream) => (Self::Stream(Rc::clone(&stream)), Self::Stream(stream)),
            Self::Datagram(socket) => (Self::Datagram(Rc::clone(&socket)), Self::Datagram(socket)),
        };
        let (blocked, cut) = {
            let now = shard.now();
            let mut inner = shard.inner.borrow_mut();
            let Inner { switch, ports, links, .. } = &mut *inner;
            let port = &mut links[usize::from(link.0)];
            port.socket = Some(writer);
            port.sender = Sender::default();
            port.blocked = false;
            switch.link_up(now, link, ports);
            (Rc::clone(&port.writable), Rc::clone(&port.cut))
        };
        let given_up = async || {
            cut.raised().await;
            InboundError::from(io::Error::from(io::ErrorKind::ConnectionAborted))
        };
        let error = match &reader {
            // In this order, since one of three is mostly the one that is meant.
            Self::Stream(stream) => tokio::select! {
                biased;
                error = read_stream(shard, link, stream) => error,
                error = given_up() => error,
                error = write_blocked(shard, link, &blocked, || stream.writable()) => error,
            },
            Self::Datagram(socket) => tokio::select! {
                biased;
                error = read_datagrams(shard, link, socket) => error,
                error = given_up() => error,
                error = write_blocked(shard, link, &blocked, || socket.writable()) => error,
            },
        };
        let now = shard.now();
        let mut inner = shard.inner.borrow_mut();
        let Inner { switch, ports, links, .. } = &mut *inner;
        links[usize::from(link.0)].socket = None;
        switch.link_down(now, link, ports);
        error
    }
}

async fn write_blocked<F: Future<Output = io::Result<()>>>(
    shard: &Rc<Shard>,
    link: LinkId,
    blocked: &Signal,
    writable: impl Fn() -> F,
) -> InboundError {
    loop {
        blocked.raised().await;
        if let Err(error) = writable().await {
            return error.into();
        }
        shard.unblock_link(link);
    }
}

/// Gives a store's records to the switch.
struct Replies<'a> {
    now: Time,
    link: LinkId,
    switch: &'a mut Switch<Recorder>,
    heard: &'a mut bool,
    batch: Batch<'a>,
}

impl RecordSink for Replies<'_> {
    fn record(&mut self, buffer: &mut [u8], record: Range<usize>) -> Flow {
        *self.heard = true;
        self.batch.lies_in(buffer);
        self.switch.reply(self.now, self.link, &mut buffer[record], &mut self.batch);
        Flow::Continue
    }

    fn end(&mut self, buffer: &[u8]) {
        self.batch.finish(buffer);
    }
}

async fn read_stream(shard: &Rc<Shard>, link: LinkId, stream: &TcpStream) -> InboundError {
    let mut inbound = Inbound::new(shard.records, Rc::clone(&shard.room), None);
    loop {
        let received = {
            let now = shard.now();
            let mut inner = shard.inner.borrow_mut();
            let Inner { switch, ports, links, buffer, .. } = &mut *inner;
            let heard = &mut links[usize::from(link.0)].heard;
            inbound.read(stream, buffer, &mut Replies { now, link, switch, heard, batch: Batch::new(ports) })
        };
        match received {
            Ok(Received::Closed) => return io::Error::from(io::ErrorKind::ConnectionReset).into(),
            Ok(Received::Drained) => {
                if let Err(error) = inbound.readable_whole(stream).await {
                    return error.into();
                }
            }
            Ok(Received::More | Received::Stopped | Received::NoRoom) => tokio::task::yield_now().await,
            Err(error) => return error,
        }
    }
}

async fn read_datagrams(shard: &Rc<Shard>, link: LinkId, socket: &UdpSocket) -> InboundError {
    let mut batch = ReceiveBatch::new();
    loop {
        if let Err(error) = socket.readable().await {
            return error.into();
        }
        let mut count = 0;
        let received = socket.try_io(Interest::READABLE, || {
            count = batch.receive(socket.as_fd())?;
            if batch.is_full() { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
        });
        if let Err(error) = received
            && error.kind() != io::ErrorKind::WouldBlock
        {
            return error.into();
        }
        let now = shard.now();
        let mut inner = shard.inner.borrow_mut();
        let Inner { switch, ports, links, .. } = &mut *inner;
        links[usize::from(link.0)].heard |= count > 0;
        let mut replies = Batch::new(ports);
        replies.lies_in(batch.bytes());
        for i in 0..count {
            let Some(bytes) = batch.connected_datagram(i) else { continue };
            let mark = clockwork_wire::record::mark(bytes.len() - HEADROOM);
            bytes[..HEADROOM].copy_from_slice(&mark);
            switch.reply(now, link, bytes, &mut replies);
        }
        replies.finish(batch.bytes());
    }
}

/// Local ports below 1024 are tried from here down, as kernels' clients do.
const RESERVED_PORTS: std::ops::RangeInclusive<u16> = 665..=1023;

/// Whether this process may use ports below 1024.
#[must_use]
pub fn may_bind_reserved_port() -> bool {
    RESERVED_PORTS.rev().any(|port| std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok())
}

fn any(address: SocketAddr) -> IpAddr {
    if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

/// Binds the local end: to the port it had before, else to a reserved one where wanted and allowed, else to any.
fn bind_local(socket: &Socket, spec: &LinkSpec, port: Option<u16>) -> io::Result<()> {
    let any = any(spec.address);
    let bind = |address: SocketAddr| socket.bind(&address.into());
    if let Some(port) = port {
        // The connection that is lost may linger on the port. (With a new port this must stay off: two links could
        // then take the same one, and the second could not connect.)
        socket.set_reuse_address(true)?;
        if bind(SocketAddr::new(any, port)).is_ok() {
            return Ok(());
        }
        socket.set_reuse_address(false)?;
    }
    if spec.reserved_port {
        for port in RESERVED_PORTS.rev() {
            match bind(SocketAddr::new(any, port)) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(_) => break,
            }
        }
    }
    Ok(())
}

async fn connect_stream(spec: &LinkSpec, port: Option<u16>) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(spec.address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    // The kernel clips these to its own limits.
    socket.set_send_buffer_size(SOCKET_BUFFER_BYTES)?;
    socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES)?;
    bind_local(&socket, spec, port)?;
    let socket = TcpSocket::from_std_stream(socket.into());
    let stream = match tokio::time::timeout(CONNECT_MAX, socket.connect(spec.address)).await {
        Ok(connected) => connected?,
        Err(_) => return Err(io::ErrorKind::TimedOut.into()),
    };
    stream.set_nodelay(true)?;
    socket2::SockRef::from(&stream).set_keepalive(true)?;
    Ok(stream)
}

fn connect_datagram(spec: &LinkSpec, port: Option<u16>) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(spec.address), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES)?;
    socket.set_send_buffer_size(SOCKET_BUFFER_BYTES)?;
    bind_local(&socket, spec, port)?;
    socket.connect(&spec.address.into())?;
    UdpSocket::from_std(socket.into())
}
