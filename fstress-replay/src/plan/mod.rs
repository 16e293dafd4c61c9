//! Which calls are due when: the requests of a workload as NFS calls with absolute deadlines.
//!
//! - [`Mapping`]: a fixed number of calls for each request, so that rates of calls follow from rates of requests.
//! - [`http`]: what web servers on NFS clients with caches would call.
//! - [`Schedule`]: the calls of a stretch of hours, with those of a warm-up before and a cooldown after it.
//!
//! In a [`Mapping`] one request looks the name up, asks for access, revalidates the attributes, and reads the file by
//! `read_bytes`. Caches are modelled by what they let through in the mean: every `lookup_every`-th request of a file goes to
//! the directory, every `access_every`-th asks for access, every `read_every`-th reads, and every request revalidates.
//! A request that writes, as some of an imported trace do, writes instead of reading; its calls follow the replies to those
//! before them. Over the day from hour 622 of the bundled workload the default values give GETATTR 51, READ 33, LOOKUP 13 and
//! ACCESS 3 % of the calls; Fstress' web server has 55, 28, 14 and 1, and 2 of others.

mod chain;
mod expand;
pub mod http;
mod kinds;
mod rate;
mod recent;
mod schedule;
mod tree;

pub use expand::Committed;
pub use http::{AttributeTimes, HttpClients, Node, WriteSync};
pub use kinds::{Kinds, RequestKinds};
pub use rate::Rate;
pub use schedule::{Part, Schedule};
pub use tree::{Directory, Tree};

use clockwork_traces::workload::{Workload, WorkloadError};
use clockwork_wire::nfs3::Class;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// An NFS operation that the replay issues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// The name in its directory.
    Lookup,
    /// May the file be read?
    Access,
    /// Revalidation of the attributes.
    Getattr,
    /// One piece of the file.
    Read,
    /// One piece of the file is written.
    Write,
    /// What was written is made safe.
    Commit,
}

impl Operation {
    /// All operations, in the order in which a request issues them.
    pub const ALL: [Self; 6] =
        [Self::Lookup, Self::Access, Self::Getattr, Self::Read, Self::Write, Self::Commit];

    /// The name as RFC 1813 writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Lookup => "LOOKUP",
            Self::Access => "ACCESS",
            Self::Getattr => "GETATTR",
            Self::Read => "READ",
            Self::Write => "WRITE",
            Self::Commit => "COMMIT",
        }
    }
}

/// A fixed number of calls for each request.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Mapping {
    /// A file's name is looked up at every so many of its requests; 0: never.
    pub lookup_every: u32,
    /// Access to a file is asked for at every so many of its requests; 0: never.
    pub access_every: u32,
    /// A file is read at every so many of its requests that read; 0: never.
    pub read_every: u32,
    /// Bytes of a READ; less if the server takes less.
    pub read_bytes: u32,
    /// Most READs of a request: what is longer is read to there only.
    pub reads_max: u32,
    /// Bytes of a WRITE; less if the server takes less.
    #[serde(default)]
    pub write_bytes: u32,
    /// Most WRITEs of a request: what is longer is written to there only.
    #[serde(default)]
    pub writes_max: u32,
    /// What makes written data safe.
    #[serde(default)]
    pub write_sync: WriteSync,
    /// Time between the calls of one request that reads, in ms; a request that writes makes each when the one before it is
    /// answered.
    pub call_gap_ms: u32,
}

impl Default for Mapping {
    fn default() -> Self {
        Self {
            lookup_every: 4,
            access_every: 16,
            read_every: 2,
            read_bytes: 32 << 10,
            reads_max: 8,
            write_bytes: 32 << 10,
            writes_max: 8,
            write_sync: WriteSync::Linux,
            call_gap_ms: 4,
        }
    }
}

impl Mapping {
    /// Time between the calls of one request.
    #[must_use]
    pub fn call_gap(&self) -> Duration {
        Duration::from_millis(u64::from(self.call_gap_ms))
    }

    /// READs of a request that reads a file of `bytes`.
    #[must_use]
    pub fn reads(&self, bytes: u64) -> u32 {
        let pieces = bytes.div_ceil(u64::from(self.read_bytes.max(1)));
        u32::try_from(pieces).unwrap_or(u32::MAX).min(self.reads_max)
    }

    /// Calls that a request for a file of `bytes` makes in the mean, if it reads.
    #[must_use]
    pub fn calls_per_request(&self, bytes: u64) -> f64 {
        let every = |n: u32| if n == 0 { 0.0 } else { 1.0 / f64::from(n) };
        1.0 + every(self.lookup_every)
            + every(self.access_every)
            + every(self.read_every) * f64::from(self.reads(bytes))
    }

    /// NFS calls expected in an hour of the workload at factor 1, if all requests read.
    ///
    /// # Errors
    /// The workload lacks the hour.
    pub fn calls(&self, workload: &Workload, hour: u32) -> Result<f64, WorkloadError> {
        let rates = workload.rates(hour)?;
        Ok(rates
            .iter()
            .zip(workload.files())
            .map(|(rate, file)| rate * self.calls_per_request(file.bytes))
            .sum())
    }

    /// The rate factor with which the *mean* over `hours`, each lasting `seconds_per_hour`, is `calls_per_s`.
    ///
    /// # Errors
    /// The workload lacks an hour.
    pub fn factor_for_mean(
        &self,
        workload: &Workload,
        hours: Range<u32>,
        seconds_per_hour: f64,
        calls_per_s: f64,
    ) -> Result<f64, WorkloadError> {
        let count = hours.len() as f64;
        let calls: f64 = hours.map(|hour| self.calls(workload, hour)).sum::<Result<f64, _>>()?;
        Ok(ratio(calls_per_s * seconds_per_hour * count, calls))
    }

    /// The rate factor with which the *busiest* of `hours`, each lasting `seconds_per_hour`, has `calls_per_s`.
    ///
    /// # Errors
    /// The workload lacks an hour.
    pub fn factor_for_peak(
        &self,
        workload: &Workload,
        hours: Range<u32>,
        seconds_per_hour: f64,
        calls_per_s: f64,
    ) -> Result<f64, WorkloadError> {
        let calls: Vec<f64> = hours.map(|hour| self.calls(workload, hour)).collect::<Result<_, _>>()?;
        Ok(ratio(calls_per_s * seconds_per_hour, calls.into_iter().fold(0.0, f64::max)))
    }
}

fn ratio(wanted: f64, calls: f64) -> f64 {
    if calls > 0.0 { wanted / calls } else { 0.0 }
}

/// How requests become calls.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Model {
    /// As the [`Mapping`] says, from connections in turn.
    #[default]
    Calls,
    /// As web servers on NFS clients with caches would call.
    Http(HttpClients),
    /// One call each, of the class of the request: for traces of captures, whose requests are calls. Sizes of READ and WRITE
    /// are those of the trace in the mean, up to those of the [`Mapping`].
    Nfs,
}

/// A part of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Load before what is measured.
    Warmup,
    /// What is measured.
    Run,
    /// Load after it, so that its last calls meet the same load.
    Cooldown,
}

/// One call and when it is due, or a request that needs none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedCall {
    /// When it should be sent, from the start of the replay.
    pub due: Duration,
    /// The hour of the workload that its request belongs to.
    pub hour: u32,
    /// Whether that hour is measured.
    pub phase: Phase,
    /// What it asks; `None`: the client's caches hold all that the request needs.
    pub operation: Option<Operation>,
    /// Index in the workload of the file that is requested.
    pub file: u32,
    /// What the call is about: that file, or a directory above it.
    pub node: Node,
    /// Whether it is the first of its request.
    pub first: bool,
    /// First byte of a READ or WRITE.
    pub offset: u64,
    /// Bytes of a READ or WRITE.
    pub count: u32,
    /// Whether a WRITE is to be safe before its reply.
    pub is_stable: bool,
    /// Whether further calls of its request wait for its reply; then [`Schedule::answered`] must be told of it.
    pub follows: bool,
    /// The client of [`Model::Http`] that calls; 0 in other models.
    pub client: u32,
    /// What its request is for.
    pub class: Class,
    /// Number of its request.
    pub request: u64,
    /// How often its request was begun again, because a handle was stale.
    pub again: u8,
}

/// What is replayed, and how fast.
#[derive(Debug, Clone, PartialEq)]
pub struct Pace {
    /// The hours of the workload that are measured.
    pub hours: Range<u32>,
    /// What an hour becomes.
    pub hour_length: Duration,
    /// Requests are this times the workload's.
    pub factor: f64,
    /// How a request becomes calls, for [`Model::Calls`].
    pub mapping: Mapping,
    /// How a request becomes calls.
    pub model: Model,
    /// Load before the hours that are measured: as much of the hours before them as fits in this time. Where the workload
    /// lacks one, the first measured hour stands for it.
    pub warmup: Duration,
    /// Load after them, in the same way.
    pub cooldown: Duration,
    /// What requests do, where it is known; otherwise they read the whole file.
    pub kinds: Option<Arc<RequestKinds>>,
}

impl Pace {
    /// The time of the measured hours.
    #[must_use]
    pub fn run(&self) -> Duration {
        self.hour_length * u32::try_from(self.hours.len()).unwrap_or(u32::MAX)
    }

    /// The time of all phases.
    #[must_use]
    pub fn whole(&self) -> Duration {
        self.warmup + self.run() + self.cooldown
    }

    /// The longest that a call of [`Model::Calls`] can be due after its request, if that reads; calls that follow replies may be
    /// due later.
    #[must_use]
    pub fn tail(&self) -> Duration {
        self.mapping.call_gap() * self.mapping.reads_max.saturating_add(3)
    }
}

#[cfg(test)]
mod tests;
