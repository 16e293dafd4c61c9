//! A connection of the guard's own to `nfs3_server`.
//!
//! `nfs3_server` only serves what its own listener accepts. So that nobody else is ever accepted, each connection
//! has a listener to itself, on an address picked at random from 127.0.0.0/8, which accepts for as long as it
//! takes to answer one NULL call, about a millisecond.

use std::io;

use clockwork_wire::{nfs3, record, rpc};
use nfs3_server::tcp::{NFSTcp, NFSTcpListener};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use super::Shared;
use super::export::Export;

/// XID of the first call; the guard counts up from 1.
const FIRST_XID: u32 = 0;

pub(super) struct Inner {
    stream: TcpStream,
    listener: NFSTcpListener<Export>,
}

impl Inner {
    pub(super) async fn connect(shared: &Shared) -> io::Result<Self> {
        let address = private_address();
        let export = Export(std::sync::Arc::clone(&shared.namespace));
        let generation = shared.namespace.generation();
        let mut listener = NFSTcpListener::bind_with_generation(&address, export, generation).await?;
        listener.with_export_name(&shared.export);
        let (ip, port) = (listener.get_listen_ip(), listener.get_listen_port());
        let stream = tokio::select! {
            ended = listener.handle_forever() => {
                ended?;
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            stream = first_call(ip, port) => stream?,
        };
        Ok(Self { stream, listener })
    }

    /// The two directions, and what has to live as long as they do.
    pub(super) fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf, NFSTcpListener<Export>) {
        let (read, write) = self.stream.into_split();
        (read, write, self.listener)
    }
}

/// An address that nobody expects; where only 127.0.0.1 exists (outside of Linux), that.
pub(super) fn private_address() -> String {
    if cfg!(target_os = "linux") {
        let [a, b, c] = rand::random::<[u8; 3]>();
        // Neither the network's address nor its broadcast address.
        format!("127.{a}.{b}.{}:0", c.clamp(1, 254))
    } else {
        "127.0.0.1:0".to_owned()
    }
}

/// Connects and waits until a NULL call is answered: then the listener has accepted this connection.
async fn first_call(ip: std::net::IpAddr, port: u16) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect((ip, port)).await?;
    stream.set_nodelay(true)?;
    let mut call = vec![0; 4];
    rpc::begin_call(&mut call, FIRST_XID, nfs3::PROGRAM, nfs3::VERSION, 0, &rpc::AUTH_NONE_CREDENTIAL);
    let mark = record::mark(call.len() - 4);
    call[..4].copy_from_slice(&mark);
    stream.write_all(&call).await?;
    // Mark, XID, REPLY, accepted, empty verifier (2 words), success.
    let mut reply = [0; 28];
    stream.read_exact(&mut reply).await?;
    if reply[..4] == record::mark(24) { Ok(stream) } else { Err(io::ErrorKind::InvalidData.into()) }
}
