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
/// The shards share their ports (`SO_REUSEPORT`), and the kernel would let another router of the same user in as well, and
/// spread the clients over both. So every address is tried without sharing first; all of them before the first is taken, so
/// that `0.0.0.0` beside `[::]` is no stranger. Of two routers that start within the same moment both may get through.
///
/// # Errors
/// Names the address that cannot be had, and why.
pub fn listen(
    addresses: &[SocketAddr],
    shards: usize,
    tcp: bool,
    udp: bool,
) -> Result<(Vec<Listeners>, Vec<SocketAddr>), ListenError> {
    for &address in addresses.iter().filter(|address| address.port() != 0) {
        let failed = |transport| move |source| ListenError { address, transport, source };
        if tcp {
            free_stream(address).map_err(failed("TCP"))?;
        }
        if udp {
            free_datagram(address).map_err(failed("UDP"))?;
        }
    }
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
                match stream(at, Port::OfAllShards) {
                    Ok(listener) => {
                        at = listener.local_addr().unwrap_or(at);
                        streams.push(listener);
                    }
                    Err(source) => failed = Some(ListenError { address: at, transport: "TCP", source }),
                }
            }
            if udp {
                match datagram(at, Port::OfAllShards) {
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

/// Whose a port is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Port {
    /// One socket's.
    Own,
    /// Of one socket a shard.
    OfAllShards,
}

fn socket(address: SocketAddr, kind: Type, protocol: Protocol, port: Port) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), kind, Some(protocol))?;
    if address.is_ipv6() {
        // "::" serves IPv4 as well, so that one line of configuration is enough.
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_port(port == Port::OfAllShards)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn bound_stream(address: SocketAddr, port: Port) -> io::Result<Socket> {
    let socket = socket(address, Type::STREAM, Protocol::TCP, port)?;
    // After a restart connections of the last run linger. On Linux this lets nobody in beside a socket that listens.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Fails where another process listens, or this one.
fn free_stream(address: SocketAddr) -> io::Result<()> {
    bound_stream(address, Port::Own).map(drop)
}

/// The same for UDP.
fn free_datagram(address: SocketAddr) -> io::Result<()> {
    socket(address, Type::DGRAM, Protocol::UDP, Port::Own)?.bind(&address.into())
}

pub(super) fn stream(address: SocketAddr, port: Port) -> io::Result<TcpListener> {
    let socket = bound_stream(address, port)?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

pub(super) fn datagram(address: SocketAddr, port: Port) -> io::Result<UdpSocket> {
    let socket = socket(address, Type::DGRAM, Protocol::UDP, port)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::net::TcpStream;

    /// An address of this test alone, so that no other test gets its port meanwhile.
    fn at(address: &str) -> SocketAddr {
        address.parse().unwrap()
    }

    fn taken(result: Result<(Vec<Listeners>, Vec<SocketAddr>), ListenError>) -> &'static str {
        let error = result.unwrap_err();
        assert_eq!(error.source.kind(), io::ErrorKind::AddrInUse, "{error}");
        assert!(error.to_string().contains("another server has the port"), "{error}");
        error.transport
    }

    #[test]
    fn shards_share_a_port_and_a_second_router_gets_none_of_it() {
        let (first, bound) = listen(&[at("127.91.0.1:0")], 3, true, true).unwrap();
        assert!(first.iter().all(|shard| (shard.streams.len(), shard.datagrams.len()) == (1, 1)));
        assert_eq!(taken(listen(&bound, 3, true, true)), "TCP");
        assert_eq!(taken(listen(&bound, 1, false, true)), "UDP");
        let any = SocketAddr::from(([0, 0, 0, 0], bound[0].port()));
        assert_eq!(taken(listen(&[any], 1, true, false)), "TCP");
        drop(first);
        let (again, same) = listen(&bound, 3, true, true).unwrap();
        assert_eq!((again.len(), same), (3, bound));
    }

    #[test]
    fn connections_of_the_last_run_keep_no_port() {
        let (listeners, bound) = listen(&[at("127.91.0.2:0")], 1, true, true).unwrap();
        listeners[0].streams[0].set_nonblocking(false).unwrap();
        let mut clients: Vec<TcpStream> = (0..2).map(|_| TcpStream::connect(bound[0]).unwrap()).collect();
        for _ in 0..2 {
            drop(listeners[0].streams[0].accept().unwrap());
        }
        // One connection is closed on both sides, the other one on the router's alone.
        assert_eq!(clients[0].read(&mut [0]).unwrap(), 0);
        clients.remove(0);
        drop(listeners);
        listen(&bound, 1, true, true).unwrap();
    }

    #[test]
    fn both_wildcards_of_one_router_are_no_strangers() {
        let Ok((first, bound)) = listen(&[at("[::]:0")], 1, true, true) else { return };
        let pair = [bound[0], SocketAddr::from(([0, 0, 0, 0], bound[0].port()))];
        assert_eq!(taken(listen(&pair, 2, true, true)), "TCP");
        drop(first);
        let (_both, same) = listen(&pair, 2, true, true).unwrap();
        assert_eq!(same, pair);
        assert_eq!(taken(listen(&pair[1..], 1, true, true)), "TCP");
    }
}
