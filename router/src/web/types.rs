//! What the admin interface says, as JSON. The command line reads the same types.
use std::borrow::Cow;

use serde::{Deserialize, Serialize};

pub use crate::control::{
    ControlState, Decided, MovedFile, ReplicatedFile, ResponseOutlook, StoreOutlook, StoreWeight,
    WeightsChanged,
};
pub use crate::plex::ReadShare;

/// A name that the router writes from a constant and a client reads into memory.
pub type Text = Cow<'static, str>;

/// `GET /v1/status`: the plex now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Version of the router.
    pub version: Text,
    /// When it was started, in seconds since 1970.
    pub started_unix_seconds: u64,
    /// For how long it has been running, in seconds.
    pub uptime_seconds: u64,
    /// Addresses on which it serves NFS.
    pub listen: Vec<String>,
    /// Number of the routing table in force; raised by every change.
    pub table_version: u64,
    /// The stores, in the order of the configuration.
    pub stores: Vec<StoreStatus>,
    /// How full everything is that has a limit.
    pub limits: Vec<LimitFill>,
    /// What has been counted since the start.
    pub counters: Vec<Counter>,
    /// What an operator should look at now; empty when all is well.
    pub alarms: Vec<String>,
    /// What the controller does.
    #[serde(default)]
    pub control: ControlStatus,
    /// Files whose reads several stores share, at most 20; `GET /v1/exceptions` has all.
    #[serde(default)]
    pub replicated: Vec<Exception>,
}

/// The controller at a glance; `GET /v1/control` has all of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ControlStatus {
    /// `off`, `observe`, `advise` or `control`.
    pub mode: String,
    /// The objective: mean response time of each store in a period, in ms.
    pub objective_ms: f64,
    /// In this part of the periods.
    pub confidence: f64,
    /// Whether every store was within the objective in the last closed period; none before the first, and where none of them
    /// had anything to answer.
    pub objective_met: Option<bool>,
    /// Whether every store is predicted to be within the objective in the period decided about last; none where nothing is
    /// predicted.
    pub objective_reachable: Option<bool>,
    /// Periods that the controller has taken note of since the start.
    #[serde(default)]
    pub periods_observed: u64,
    /// Files that are where the controller has moved them.
    pub files_moved: u64,
    /// Files moved by the last decision.
    pub moved_last: u64,
    /// What becomes of weights that would suit the stores better: `off`, `advise` or `apply`.
    #[serde(default)]
    pub weights: String,
    /// Whether weights are in force that the controller has learnt.
    #[serde(default)]
    pub weights_learnt: bool,
}

/// `GET /v1/weights`: weights of the default rule; `DELETE` puts those of the configuration in force again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Weights {
    /// What becomes of weights that would suit the stores better: `off`, `advise` or `apply`.
    pub mode: String,
    /// Whether weights are in force that the controller has learnt.
    pub learnt: bool,
    /// When they were last changed or reset, milliseconds since 1970; none if they never were.
    pub changed_unix_ms: Option<u64>,
    /// Why; empty if they never were.
    pub reason: String,
    /// The stores, in the order of the configuration.
    pub stores: Vec<Weight>,
    /// Number of the routing table in force.
    pub table_version: u64,
    /// Of a reset: why it is in force, but would not outlive a restart; none where it is kept, or nothing is to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_kept: Option<String>,
}

/// One store's weight.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Weight {
    /// The store.
    pub store: String,
    /// In the configuration.
    pub configured: f64,
    /// In force.
    pub in_force: f64,
}

/// `GET /v1/decisions?last=N`: what the controller decided, the oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decisions {
    /// The decisions.
    pub decisions: Vec<Decided>,
}

/// Whether a store is given calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StoreState {
    /// It is.
    Up,
    /// The operator has taken it out, or its weight is 0.
    Drained,
    /// The health checks have taken it out.
    Down,
    /// It was never let in: its handles or files differ from the other stores'.
    Refused,
}

impl StoreState {
    /// The state in one word, as in JSON.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Drained => "drained",
            Self::Down => "down",
            Self::Refused => "refused",
        }
    }
}

/// One store now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoreStatus {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub address: String,
    /// Whether it is given calls.
    pub state: StoreState,
    /// Why it is not up, if the router knows.
    pub reason: Option<String>,
    /// Its weight under the default rule, as it is in force.
    pub weight: f64,
    /// Its weight in the configuration; the controller may have changed it.
    #[serde(default)]
    pub configured_weight: f64,
    /// Raised whenever a restart of the store cannot be ruled out.
    pub epoch: u64,
    /// Open connections.
    pub connections: u64,
    /// Calls in flight.
    pub in_flight: u64,
    /// Most calls in flight.
    pub calls_max: u64,
    /// Calls that wait in the router.
    pub waiting: u64,
    /// Calls sent since the start.
    pub requests: u64,
    /// Calls that ended without a reply since the start.
    pub failed: u64,
    /// Mean response time in the open period, in milliseconds; none without replies.
    pub mean_response_ms: Option<f64>,
}

/// How full something is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitFill {
    /// The limit's name in the configuration, such as `pending_calls_max`.
    pub name: Text,
    /// How much there is, in the limit's unit.
    pub used: u64,
    /// How much there may be.
    pub max: u64,
    /// How many times it has been reached since the start.
    pub reached: u64,
}

/// Something counted since the start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    /// What is counted, in lower case with underscores, without a prefix or `_total`: `retransmissions_absorbed`.
    pub name: Text,
    /// One sentence on what it means.
    pub help: Text,
    /// What tells counters of one name apart, such as (`reason`, `record_too_long`).
    pub label: Option<(Text, Text)>,
    /// How many.
    pub value: u64,
}

/// A file, as an operator names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileName {
    /// Its path, beginning with that of an export.
    Path(String),
    /// Its handle, in hexadecimal.
    Handle(String),
}

/// `GET /v1/exceptions?after=HANDLE&limit=N`: files that are not where the default rule puts them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExceptionPage {
    /// How many there are in all.
    pub total: u64,
    /// Some of them, in the order of their handles.
    pub exceptions: Vec<Exception>,
    /// Where to go on (`after`), if there are more.
    pub next: Option<String>,
}

/// One file that is not where the default rule puts it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exception {
    /// Its handle, in hexadecimal.
    pub handle: String,
    /// Its path, if the router has seen it.
    pub path: Option<String>,
    /// The store that serves it.
    pub store: String,
    /// The stores that share its reads, that one the first of them; none where it is not replicated.
    #[serde(default)]
    pub replicas: Vec<ReadShare>,
    /// The store that would.
    pub default_store: Option<String>,
    /// Why, in the words of whoever assigned it.
    pub reason: String,
    /// `operator` or `controller`.
    #[serde(default)]
    pub by: Text,
    /// When it was assigned, milliseconds since 1970.
    #[serde(default)]
    pub since_unix_ms: u64,
}

/// `PUT /v1/exceptions`: gives a file to a store, and its reads to others as well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assign {
    /// The file.
    pub file: FileName,
    /// The store that is to serve it.
    pub store: String,
    /// Further stores that are to share its reads, each as its weight says.
    #[serde(default)]
    pub also: Vec<String>,
    /// Why; at most [`REASON_BYTES_MAX`](super::REASON_BYTES_MAX).
    #[serde(default)]
    pub reason: String,
}

/// What became of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// Its handle, in hexadecimal.
    pub handle: String,
    /// Its path, if known.
    pub path: Option<String>,
    /// The store that served it before.
    pub from: Option<String>,
    /// The store that serves it now, or will.
    pub to: Option<String>,
    /// The stores that share its reads, if several do.
    #[serde(default)]
    pub replicas: Vec<ReadShare>,
    /// Whether the move waits until unstable writes have been committed.
    pub waiting: bool,
    /// Number of the routing table with the change.
    pub table_version: u64,
    /// Why the change is in force, but would not outlive a restart; none where it is kept, or nothing is to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_kept: Option<String>,
}

/// What became of a store that was drained or undrained.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Drained {
    /// The store.
    pub store: String,
    /// Its state before.
    pub before: StoreState,
    /// Its state now.
    pub now: StoreState,
    /// Calls still in flight there.
    pub in_flight: u64,
    /// Number of the routing table with the change.
    pub table_version: u64,
    /// Why the change is in force, but would not outlive a restart; none where it is kept, or nothing is to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_kept: Option<String>,
}

/// `GET /v1/periods?last=N`: closed periods, the oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Periods {
    /// The periods.
    pub periods: Vec<Period>,
}

/// What the stores did in one period.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Period {
    /// When it began, in milliseconds since 1970.
    pub start_unix_ms: u64,
    /// How long it was.
    pub length_ms: u64,
    /// The stores, in the order of the configuration at the time.
    pub stores: Vec<StorePeriod>,
}

/// What one store did in one period.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StorePeriod {
    /// The store.
    pub name: String,
    /// Calls sent.
    pub requests: u64,
    /// Of these, READs.
    pub reads: u64,
    /// Of these, WRITEs and COMMITs.
    pub writes: u64,
    /// Of these, all others.
    pub metadata: u64,
    /// Calls that ended without a reply.
    pub failed: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Mean response time in milliseconds; none without replies.
    pub mean_response_ms: Option<f64>,
    /// Standard deviation of the response time in milliseconds; none with fewer than two replies.
    pub deviation_response_ms: Option<f64>,
    /// Half of the replies came within this many milliseconds.
    pub median_response_ms: Option<f64>,
    /// 99 of 100 replies came within this many milliseconds.
    pub p99_response_ms: Option<f64>,
}

/// `GET /v1/hot?last=N&limit=N&store=NAME`: the files with the most requests, the hottest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HotFiles {
    /// When the first of the periods began, in milliseconds since 1970; none if no period is closed yet.
    pub start_unix_ms: Option<u64>,
    /// Length of all of them together.
    pub length_ms: u64,
    /// Requests for all files in that time.
    pub requests: u64,
    /// The files.
    pub files: Vec<HotFile>,
}

/// One file's requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotFile {
    /// Its handle, in hexadecimal.
    pub handle: String,
    /// Its path, if the router has seen it.
    pub path: Option<String>,
    /// The store that served it last.
    pub store: String,
    /// All requests.
    pub requests: u64,
    /// READs.
    pub reads: u64,
    /// WRITEs and COMMITs.
    pub writes: u64,
    /// All others.
    pub metadata: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
}

/// Every answer that is not a success.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The kind of error, for programs: `unknown_store`.
    pub error: Text,
    /// What is wrong and what to do, for people.
    pub message: String,
}
