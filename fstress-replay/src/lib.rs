//! NFSv3 load against a live server: replays of traces and workloads by profile, open loop.
//!
//! - [`plan`]: which calls are due when: requests of a workload become NFS calls with absolute deadlines.
//! - [`client`]: an NFSv3 and MOUNT client over TCP (pipelined, several connections) or UDP (with retransmission).
//! - [`fileset`]: the workload's files with content that can be verified, made in a directory or over NFS.
//! - [`replay`]: sends the calls of a trace at their deadlines, whatever the server does, and keeps account of them.
//! - [`measure`]: response times from the *intended* send time, per operation and hour.
//! - [`report`]: the same as text and JSON.
//! - [`stress`]: the workloads of Fstress and SPEC SFS2008 at a rate, and how fast a server is at all.
//! - [`page`]: reports as one page of HTML.
//! - [`simulate`]: a plex in discrete events, and policies side by side on it.
//!
//! Response times are measured from the moment a call should have been sent, not from when it was: a server that stalls is
//! charged for every call that would have come in the meantime, which is what its users would have felt.

pub mod client;
pub mod content;
mod engine;
pub mod fileset;
pub mod measure;
pub mod page;
pub mod plan;
pub mod replay;
pub mod report;
pub mod simulate;
pub mod stress;

pub use engine::{RunError, RunSpec, Stop};
