//! The portmapper's sockets: tells clients that ask on port 111 where NFS and MOUNT are. What is answered is
//! [`clockwork_wire::portmap`]'s business.
//!
//! Only clients that an export names, and this machine, are answered: a portmapper that answers everybody over UDP is
//! what amplifies other people's attacks.

use super::listen::{ListenError, Port, datagram, stream};
use super::mmsg::{self, HEADROOM, Outgoing, ReceiveBatch};
use clockwork_wire::portmap::{self, Handled, Mapping};
use clockwork_wire::record::{self, Progress, RecordLimits, RecordReader};
use clockwork_wire::{mount, nfs3};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;

/// Connections at once; a further one is closed at once, and counted.
const CONNECTIONS_MAX: usize = 64;
/// A connection that has sent no call for so long, or does not take its replies, is closed.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// A call with the largest credential and verifier (400 bytes each) and the longest arguments fits.
const RECORD_LIMITS: RecordLimits = RecordLimits { record_bytes_max: 1024, fragments_max: 32 };
/// A record and the marks of its fragments, with room to read on.
const BUFFER_BYTES: usize = 4096;

/// What the portmapper has counted.
#[derive(Debug, Default)]
pub struct PortmapCounts {
    /// Calls that ran.
    pub answered: AtomicU64,
    /// Calls answered with an error: other programs, versions and procedures, or garbage.
    pub refused: AtomicU64,
    /// Messages that are no call, connections whose bytes are no records, and what came from strangers.
    pub dropped: AtomicU64,
    /// Connections closed because there were too many.
    pub turned_away: AtomicU64,
}

/// The portmapper's sockets, both on one port.
#[derive(Debug)]
pub struct PortmapSockets {
    stream: TcpListener,
    datagram: UdpSocket,
    /// Where they are.
    pub address: SocketAddr,
}

/// Opens the portmapper's sockets, within a tokio runtime.
///
/// # Errors
/// Names the address and the reason.
pub fn bind_portmapper(address: SocketAddr) -> Result<PortmapSockets, ListenError> {
    let failed = |transport| move |source| ListenError { address, transport, source };
    let listener = stream(address, Port::Own).and_then(TcpListener::from_std).map_err(failed("TCP"))?;
    let at = listener.local_addr().map_err(failed("TCP"))?;
    let datagram = datagram(at, Port::Own).and_then(UdpSocket::from_std).map_err(failed("UDP"))?;
    Ok(PortmapSockets { stream: listener, datagram, address: at })
}

/// The table of what is served: NFS and MOUNT on the first of `addresses`, over the transports that are on, and the
/// portmapper itself.
#[must_use]
pub fn served(addresses: &[SocketAddr], tcp: bool, udp: bool, portmapper: SocketAddr) -> Vec<Mapping> {
    let programs = [
        (nfs3::PROGRAM, nfs3::VERSION),
        (mount::PROGRAM, mount::VERSION_1),
        (mount::PROGRAM, mount::VERSION),
    ];
    let mut mappings = Vec::new();
    for protocol in [portmap::TCP, portmap::UDP] {
        let port = u32::from(portmapper.port());
        mappings.push(Mapping { program: portmap::PROGRAM, version: portmap::VERSION, protocol, port });
    }
    for (protocol, on) in [(portmap::TCP, tcp), (portmap::UDP, udp)] {
        let Some(port) = addresses.first().map(|address| u32::from(address.port())).filter(|_| on) else {
            continue;
        };
        mappings.extend(programs.map(|(program, version)| Mapping { program, version, protocol, port }));
    }
    mappings
}

/// What all connections share.
struct Portmapper<K> {
    mappings: Vec<Mapping>,
    /// Whether an address is that of a client.
    knows: K,
    counts: Arc<PortmapCounts>,
}

/// Answers for ever.
pub async fn serve_portmapper(
    sockets: PortmapSockets,
    mappings: Vec<Mapping>,
    knows: impl Fn(SocketAddr) -> bool + Send + Sync + 'static,
    counts: Arc<PortmapCounts>,
) {
    let shared = Arc::new(Portmapper { mappings, knows, counts });
    tokio::join!(
        serve_streams(Arc::clone(&shared), sockets.stream),
        serve_datagrams(&shared, &sockets.datagram)
    );
}

impl<K: Fn(SocketAddr) -> bool> Portmapper<K> {
    fn admits(&self, peer: SocketAddr) -> bool {
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        let admitted = peer.ip().is_loopback() || (self.knows)(peer);
        if !admitted {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
        admitted
    }

    /// Appends the reply to a message, if it has one.
    fn answer(&self, message: &[u8], reply: &mut Vec<u8>) -> bool {
        let handled = portmap::answer(message, &self.mappings, reply);
        let count = match handled {
            Handled::Answered => &self.counts.answered,
            Handled::Refused => &self.counts.refused,
            Handled::Dropped => &self.counts.dropped,
        };
        count.fetch_add(1, Ordering::Relaxed);
        handled != Handled::Dropped
    }
}

async fn serve_streams<K>(shared: Arc<Portmapper<K>>, listener: TcpListener)
where
    K: Fn(SocketAddr) -> bool + Send + Sync + 'static,
{
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    // Its connections end with it.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "the portmapper cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        if !shared.admits(peer) {
            continue;
        }
        let Ok(permit) = Arc::clone(&room).try_acquire_owned() else {
            shared.counts.turned_away.fetch_add(1, Ordering::Relaxed);
            continue;
        };
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let _permit = permit;
            if let Err(error) = serve_stream(&shared, stream).await {
                shared.counts.dropped.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(%peer, %error, "a connection to the portmapper ended");
            }
        });
    }
}

async fn serve_stream<K>(shared: &Portmapper<K>, mut stream: TcpStream) -> io::Result<()>
where
    K: Fn(SocketAddr) -> bool,
{
    let mut reader = RecordReader::new(RECORD_LIMITS);
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut filled = 0;
    loop {
        let read = tokio::time::timeout(SILENCE_MAX, stream.read(&mut buffer[filled..])).await;
        let count = read.map_err(|_| io::ErrorKind::TimedOut)??;
        if count == 0 {
            return Ok(());
        }
        filled += count;
        let mut replies = Vec::new();
        let mut start = 0;
        while let Progress::Record { end, consumed } =
            reader.next(&mut buffer[start..filled]).map_err(io::Error::other)?
        {
            let mut reply = Vec::new();
            if shared.answer(&buffer[start + HEADROOM..start + end], &mut reply) {
                replies.extend_from_slice(&record::mark(reply.len()));
                replies.append(&mut reply);
            }
            start += consumed;
        }
        buffer.copy_within(start..filled, 0);
        filled -= start;
        let written = tokio::time::timeout(SILENCE_MAX, stream.write_all(&replies)).await;
        written.map_err(|_| io::ErrorKind::TimedOut)??;
    }
}

async fn serve_datagrams<K: Fn(SocketAddr) -> bool>(shared: &Portmapper<K>, socket: &UdpSocket) {
    let any = socket.local_addr().is_ok_and(|address| address.ip().is_unspecified());
    let mut batch = ReceiveBatch::new();
    let mut reply = Vec::new();
    loop {
        if let Err(error) = socket.readable().await {
            return tracing::error!(%error, "the portmapper's UDP socket has failed");
        }
        let mut count = 0;
        let _ = socket.try_io(Interest::READABLE, || {
            count = batch.receive(socket.as_fd())?;
            if batch.is_full() { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
        });
        for i in 0..count {
            let Some((bytes, peer, to)) = batch.datagram(i) else { continue };
            reply.clear();
            if shared.admits(peer) && shared.answer(&bytes[HEADROOM..], &mut reply) {
                let from = to.filter(|_| any);
                // As on the wire, a datagram that the socket does not take is lost.
                let _ = mmsg::Sender::default()
                    .send(socket.as_fd(), &[Outgoing { bytes: &reply, to: Some(peer), from }]);
            }
        }
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn there_is_one_portmapper_on_a_port() {
        let first = bind_portmapper(SocketAddr::from(([127, 91, 0, 3], 0))).unwrap();
        let error = bind_portmapper(first.address).unwrap_err();
        assert_eq!((error.transport, error.source.kind()), ("TCP", io::ErrorKind::AddrInUse));
        let at = first.address;
        drop(first);
        bind_portmapper(at).unwrap();
    }

    #[test]
    fn a04_what_is_off_is_not_listed() {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let both = served(&[address(2049), address(2050)], true, true, address(111));
        assert_eq!(both.len(), 8);
        assert!(both.iter().all(|m| m.port == if m.program == portmap::PROGRAM { 111 } else { 2049 }));
        let tcp = served(&[address(2049)], true, false, address(111));
        let over_udp: Vec<u32> =
            tcp.iter().filter(|m| m.protocol == portmap::UDP).map(|m| m.program).collect();
        assert_eq!(over_udp, [portmap::PROGRAM]);
        assert_eq!(tcp.len(), 5);
    }
}
