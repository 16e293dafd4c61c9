//! The front's listening sockets: every shard gets its own of each address, and the kernel spreads the clients.

use super::mmsg;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::AsFd;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;
/// Receive and send buffers of the datagram sockets: some hundred large datagrams may arrive at once.
const DATAGRAM_BUFFER_BYTES: usize = 4 << 20;

/// One shard's sockets, not yet with a runtime.
#[derive(Debug, Default)]
pub struct Listeners {
    /// TCP.
    pub streams: Vec<TcpListener>,
    /// UDP.
    pub datagrams: Vec<UdpSocket>,
}

/// A socket that cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} over {transport}: {source}{}", hint(source))]
pub struct ListenError {
    /// The address.
    pub address: SocketAddr,
    /// TCP or UDP.
    pub transport: &'static str,
    /// What the kernel said.
    pub source: io::Error,
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "; another server has the port: choose another one, or stop that server",
        io::ErrorKind::PermissionDenied => "; ports below 1024 need the capability CAP_NET_BIND_SERVICE",
        io::ErrorKind::AddrNotAvailable => "; no interface of this machine has the address",
        _ => "",
    }
}

/// Opens sockets on `addresses` for each of `shards`. A port of 0 is chosen by the kernel, the same for TCP and UDP and
/// for every shard. Returns the sockets by shard, and the addresses with their ports.
///
/// # Errors
/// Names the address that cannot be had, and why.
pub fn listen(
    addresses: &[SocketAddr],
    shards: usize,
    tcp: bool,
    udp: bool,
) -> Result<(Vec<Listeners>, Vec<SocketAddr>), ListenError> {
    let mut all: Vec<Listeners> = (0..shards).map(|_| Listeners::default()).collect();
    let mut bound = Vec::new();
    for &address in addresses {
        let address = open(address, &mut all, tcp, udp)?;
        bound.push(address);
    }
    Ok((all, bound))
}

/// Tries for a port that is free for both transports.
const PORT_TRIES: usize = 32;

fn open(address: SocketAddr, all: &mut [Listeners], tcp: bool, udp: bool) -> Result<SocketAddr, ListenError> {
    let mut tries = if address.port() == 0 { PORT_TRIES } else { 1 };
    loop {
        tries -= 1;
        let mut at = address;
        let mut streams = Vec::new();
        let mut datagrams = Vec::new();
        let mut failed = None;
        for _ in 0..all.len() {
            if tcp {
                match stream(at) {
                    Ok(listener) => {
                        at = listener.local_addr().unwrap_or(at);
                        streams.push(listener);
                    }
                    Err(source) => failed = Some(ListenError { address: at, transport: "TCP", source }),
                }
            }
            if udp {
                match datagram(at) {
                    Ok(socket) => {
                        at = socket.local_addr().unwrap_or(at);
                        datagrams.push(socket);
                    }
                    Err(source) => failed = Some(ListenError { address: at, transport: "UDP", source }),
                }
            }
        }
        match failed {
            Some(_) if tries > 0 => {}
            Some(error) => return Err(error),
            None => {
                for (i, shard) in all.iter_mut().enumerate() {
                    shard.streams.extend(streams.pop());
                    shard.datagrams.extend(datagrams.pop());
                    tracing::trace!(shard = i, %at, "listening");
                }
                return Ok(at);
            }
        }
    }
}

fn socket(address: SocketAddr, kind: Type, protocol: Protocol) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), kind, Some(protocol))?;
    if address.is_ipv6() {
        // "::" serves IPv4 as well, so that one line of configuration is enough.
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

pub(super) fn stream(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket(address, Type::STREAM, Protocol::TCP)?;
    // After a restart connections of the last run linger.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

pub(super) fn datagram(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = socket(address, Type::DGRAM, Protocol::UDP)?;
    // The kernel clips these to its own limits.
    socket.set_recv_buffer_size(DATAGRAM_BUFFER_BYTES)?;
    socket.set_send_buffer_size(DATAGRAM_BUFFER_BYTES)?;
    socket.bind(&address.into())?;
    let socket: UdpSocket = socket.into();
    if address.ip().is_unspecified() {
        mmsg::want_packet_info(socket.as_fd(), address.is_ipv6())?;
        if address.is_ipv6() {
            // IPv4 clients of a dual socket.
            mmsg::want_packet_info(socket.as_fd(), false)?;
        }
    }
    Ok(socket)
}
