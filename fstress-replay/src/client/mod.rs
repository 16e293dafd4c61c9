//! An NFSv3 and MOUNT client over TCP or UDP.
//!
//! A [`Client`] holds a few connections, each a task of its own that owns its socket and its calls in flight. A call is
//! handed over as a whole message and never waited for by the connection, so any number of calls (up to
//! [`Options::calls_in_flight_max`]) are pipelined by those who wait for their own. Load is made over links of its own.
//!
//! - TCP: a lost connection is made again with backoff, and the calls in flight are sent again with their XIDs.
//! - UDP: a call without reply is sent again with its XID after [`Options::udp_timeout`], then after twice that, and so on.
//! - Both: after [`Options::call_timeout`] a call is given up.

pub mod message;
pub mod nfs;
mod pending;
mod port;
mod tcp;
mod udp;

use clockwork_wire::rpc;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// How calls travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// A stream with record marks.
    Tcp,
    /// One datagram a message.
    Udp,
}

/// How a client behaves.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// TCP or UDP.
    pub transport: Transport,
    /// Connections (for UDP: sockets), used in turn.
    pub connections: usize,
    /// After this time a call without reply is given up.
    pub call_timeout: Duration,
    /// UDP: the first retransmission comes after this, each further one after twice the time of the last.
    pub udp_timeout: Duration,
    /// UDP: longest time between retransmissions.
    pub udp_timeout_max: Duration,
    /// TCP: how long a lost connection is tried again before its calls are given up.
    pub reconnect_max: Duration,
    /// Calls that a connection takes at once, in flight or waiting to be sent; beyond it callers wait.
    pub calls_in_flight_max: usize,
    /// Call from a port below 1024, as servers with `secure` exports want; needs CAP_NET_BIND_SERVICE.
    pub reserved_port: bool,
    /// User number of the AUTH_SYS credential.
    pub uid: u32,
    /// Group number of the AUTH_SYS credential.
    pub gid: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            transport: Transport::Tcp,
            connections: 4,
            call_timeout: Duration::from_secs(60),
            udp_timeout: Duration::from_millis(700),
            udp_timeout_max: Duration::from_secs(10),
            reconnect_max: Duration::from_secs(30),
            calls_in_flight_max: 16_384,
            reserved_port: false,
            uid: 0,
            gid: 0,
        }
    }
}

/// Why a call has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// No connection, and none could be made.
    #[error("no connection to {target}: {reason}; is the server running, and is this its NFS or MOUNT port?")]
    Unreachable {
        /// The server.
        target: SocketAddr,
        /// What kind of failure it was.
        kind: std::io::ErrorKind,
        /// What the system said.
        reason: String,
    },
    /// No reply within the time allowed.
    #[error("no reply from {target} within {after:?} ({retransmissions} retransmissions)")]
    TimedOut {
        /// The server.
        target: SocketAddr,
        /// The time allowed.
        after: Duration,
        /// How often the call was sent again.
        retransmissions: u32,
    },
    /// The server refused the credential or the version of RPC.
    #[error("the server denied the call: it does not take this credential (AUTH_SYS) from here")]
    Denied,
    /// The server does not have the program, version or procedure, or could not decode the arguments.
    #[error(
        "the server answered with accept_stat {stat} (RFC 5531): 1 no such program, 2 version, 3 procedure, 4 bad arguments"
    )]
    NotAccepted {
        /// The accept_stat.
        stat: u32,
    },
    /// A reply that cannot be decoded.
    #[error("malformed reply: {reason}")]
    Malformed {
        /// What is wrong.
        reason: String,
    },
    /// The client was dropped while the call was in flight.
    #[error("the client was closed")]
    Closed,
}

impl Transport {
    /// `tcp` or `udp`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// A reply, and where its results begin in it.
type Reply = (Vec<u8>, usize);

/// A call on its way to a connection.
struct Submission {
    xid: u32,
    /// The message without record mark.
    message: Vec<u8>,
    answer: oneshot::Sender<Result<Reply, CallError>>,
}

/// A client of one server address.
#[derive(Debug)]
pub struct Client {
    target: SocketAddr,
    options: Options,
    connections: Vec<mpsc::Sender<Submission>>,
    next_connection: AtomicUsize,
    next_xid: AtomicU32,
    credential: Arc<[u8]>,
}

impl Client {
    /// Connects to a server; must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`CallError::Unreachable`] if no connection can be made (for UDP: no socket opened).
    pub async fn connect(target: SocketAddr, options: Options) -> Result<Self, CallError> {
        let mut credential = Vec::new();
        rpc::auth_sys(&mut credential, "fstress-replay", options.uid, options.gid);
        let mut connections = Vec::new();
        for _ in 0..options.connections.max(1) {
            let (sender, receiver) = mpsc::channel(options.calls_in_flight_max.max(1));
            let setting = pending::Setting { target, options: options.clone() };
            match options.transport {
                Transport::Tcp => {
                    let stream = tcp::connect(&setting).await.map_err(|e| unreachable(target, &e))?;
                    tokio::spawn(tcp::run(stream, receiver, setting));
                }
                Transport::Udp => {
                    let socket = udp::open(&setting).await.map_err(|e| unreachable(target, &e))?;
                    tokio::spawn(udp::run(socket, receiver, setting));
                }
            }
            connections.push(sender);
        }
        Ok(Self {
            target,
            options,
            connections,
            next_connection: AtomicUsize::new(0),
            // Servers remember XIDs for a while: two runs in a row must not use the same ones.
            next_xid: AtomicU32::new(rand::random()),
            credential: credential.into(),
        })
    }

    /// The server.
    #[must_use]
    pub fn target(&self) -> SocketAddr {
        self.target
    }

    /// How the client behaves.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Begins a message: the header of a call with a new XID, to which the caller appends the arguments.
    #[must_use]
    pub fn begin(&self, program: u32, version: u32, procedure: u32) -> Vec<u8> {
        let xid = self.next_xid.fetch_add(1, Ordering::Relaxed);
        let mut message = Vec::with_capacity(256);
        rpc::begin_call(&mut message, xid, program, version, procedure, &self.credential);
        message
    }

    /// Sends a message from [`Client::begin`] and waits for its reply: the message, and where its results begin.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn call(&self, message: Vec<u8>) -> Result<(Vec<u8>, usize), CallError> {
        let xid = rpc::xid(&message).unwrap_or_default();
        let (answer, receiver) = oneshot::channel();
        let submission = Submission { xid, message, answer };
        self.connection().send(submission).await.map_err(|_| CallError::Closed)?;
        receiver.await.unwrap_or(Err(CallError::Closed))
    }

    fn connection(&self) -> &mpsc::Sender<Submission> {
        let index = self.next_connection.fetch_add(1, Ordering::Relaxed) % self.connections.len();
        &self.connections[index]
    }
}

pub(crate) fn unreachable(target: SocketAddr, error: &std::io::Error) -> CallError {
    CallError::Unreachable { target, kind: error.kind(), reason: error.to_string() }
}

/// A connection for whoever reads and writes it without tokio; it does not block.
pub(crate) async fn tcp_stream(
    target: SocketAddr,
    options: &Options,
) -> std::io::Result<std::net::TcpStream> {
    tcp::connect(&pending::Setting { target, options: options.clone() }).await?.into_std()
}

/// A connected socket for whoever reads and writes it without tokio; it does not block.
pub(crate) async fn udp_socket(
    target: SocketAddr,
    options: &Options,
) -> std::io::Result<std::net::UdpSocket> {
    udp::open(&pending::Setting { target, options: options.clone() }).await?.into_std()
}
