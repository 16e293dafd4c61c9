//! The data plane's sockets, on tokio: one shard a core, each a thread with its own listeners (`SO_REUSEPORT`), its own
//! connections to every store and its own [`Switch`](clockwork_switch::Switch). What the bytes mean is the switch's
//! business; here they are moved.
//!
//! A round of a shard: every readable connection is read once into the shard's buffer and its records go through the
//! switch; then tokio polls once more without waiting; then the *flusher* writes what has been queued, once per
//! connection. Calls are copied once, into the send log of their store's link, where they stay until the reply has come.
//! Replies that lie side by side in the read buffer go out from there without a copy.

mod batch;
mod datagrams;
mod front;
mod inbound;
mod link;
mod listen;
mod meter;
mod mmsg;
mod outbound;
mod portmap;
mod ports;
mod seldom;
mod shard;
mod signal;
mod unfinished;

pub use link::{LinkSpec, may_bind_reserved_port};
pub use listen::{ListenError, Listeners, listen};
pub use portmap::{PortmapCounts, PortmapSockets, bind_portmapper, serve_portmapper, served};
pub use ports::PortCounters;
pub use shard::{NetCounters, ShardHandle, ShardSpec, ShardStatus, StoreInShard, spawn};

use clockwork_placement::StoreId;
use clockwork_switch::duplicates::Origin;
use clockwork_wire::rpc;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use tokio::sync::oneshot;

/// A reply for a client of another shard.
#[derive(Debug)]
pub(crate) struct Mail {
    pub(crate) to: Origin,
    pub(crate) record: Box<[u8]>,
}

/// What a shard is told from outside. The queue has no limit of its own: mail comes only for calls that wait, which are
/// bounded, and the rest once a period or at an operator's word.
#[derive(Debug)]
pub(crate) enum Command {
    Mail(Mail),
    /// The routing table sends this store's calls elsewhere.
    StoreLost(StoreId),
    ClosePeriod(oneshot::Sender<crate::heat::ShardPeriod>),
    RunningPeriod(oneshot::Sender<crate::heat::ShardPeriod>),
    Status(oneshot::Sender<ShardStatus>),
    Stop,
}

/// Answers to a MOUNT call.
pub enum MountReply {
    /// The whole reply message.
    Now(Vec<u8>),
    /// It has to be asked of a store first.
    Later(Pin<Box<dyn Future<Output = Vec<u8>>>>),
}

/// Who may come in, and what is exported: asked by every shard.
pub trait Desk: Send + Sync {
    /// Whether calls of this client are served at all.
    fn admits(&self, client: SocketAddr) -> bool;
    /// Answers a call of the MOUNT program, version 1 or 3.
    fn mount(&self, client: SocketAddr, message: &[u8], call: &rpc::Call) -> MountReply;
}
