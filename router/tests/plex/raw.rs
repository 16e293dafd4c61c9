//! Clients that send any bytes.

use super::site::PATIENCE;
use clockwork_wire::{record, rpc, xdr};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

pub(crate) const NFS: u32 = 100_003;
pub(crate) const MOUNT: u32 = 100_005;
pub(crate) const NLM: u32 = 100_021;
pub(crate) const NFSACL: u32 = 100_227;

/// A call as a message, without a mark.
pub(crate) fn call(xid: u32, (program, version, procedure): (u32, u32, u32), arguments: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    let mut credential = Vec::new();
    rpc::auth_sys(&mut credential, "test", 0, 0);
    rpc::begin_call(&mut message, xid, program, version, procedure, &credential);
    message.extend_from_slice(arguments);
    message
}

/// An opaque as XDR: a handle, a path, a name.
pub(crate) fn opaque(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    xdr::put_opaque(&mut out, bytes);
    out
}

pub(crate) fn getattr(xid: u32, handle: &[u8]) -> Vec<u8> {
    call(xid, (NFS, 3, 1), &opaque(handle))
}

/// As one record of one fragment.
pub(crate) fn marked(message: &[u8]) -> Vec<u8> {
    [&record::mark(message.len())[..], message].concat()
}

/// The words of a message.
pub(crate) fn words(message: &[u8]) -> Vec<u32> {
    message.chunks_exact(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect()
}

/// A TCP connection.
pub(crate) struct Raw(pub(crate) TcpStream);

impl Raw {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.unwrap();
    }

    /// The next reply without its mark, or `None` where the other side has closed.
    pub(crate) async fn reply(&mut self) -> Option<Vec<u8>> {
        let read = async {
            let mut mark = [0; 4];
            self.0.read_exact(&mut mark).await.ok()?;
            let word = u32::from_be_bytes(mark);
            assert!(word & record::LAST_FRAGMENT != 0, "a reply in several fragments");
            let mut reply = vec![0; usize::try_from(word & !record::LAST_FRAGMENT).unwrap()];
            self.0.read_exact(&mut reply).await.ok()?;
            Some(reply)
        };
        tokio::time::timeout(PATIENCE, read).await.expect("no reply in time")
    }

    pub(crate) async fn ask(&mut self, message: &[u8]) -> Vec<u8> {
        self.send(&marked(message)).await;
        self.reply().await.expect("the connection was closed")
    }
}

/// Asks over UDP; sends again, as clients do, since datagrams may be lost.
pub(crate) async fn ask_udp(socket: &UdpSocket, message: &[u8]) -> Vec<u8> {
    let mut buffer = vec![0; 65_536];
    for _ in 0..40 {
        socket.send(message).await.unwrap();
        let wait = tokio::time::timeout(Duration::from_millis(500), socket.recv(&mut buffer));
        // An error is a refusal of an earlier datagram.
        if let Ok(Ok(length)) = wait.await
            && buffer[..4] == message[..4]
        {
            return buffer[..length].to_vec();
        }
    }
    panic!("no reply to a datagram in 20 s");
}

pub(crate) async fn udp(address: SocketAddr) -> UdpSocket {
    let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).await.unwrap();
    socket.connect(address).await.unwrap();
    socket
}

/// Asks over both transports; both must say the same.
pub(crate) async fn ask_both(address: SocketAddr, message: &[u8]) -> Vec<u8> {
    let over_tcp = Raw::connect(address).await.ask(message).await;
    let over_udp = ask_udp(&udp(address).await, message).await;
    assert_eq!(over_tcp, over_udp, "TCP and UDP differ");
    over_tcp
}
