//! What was decided, in the form in which it is kept, served and reported.

use crate::plex::ReadShare;
use serde::{Deserialize, Serialize};

/// `GET /v1/control`: what the controller does and what it decided last.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ControlState {
    /// `off`, `observe`, `advise` or `control`.
    pub mode: String,
    /// `margin` or `paper`.
    pub rule: String,
    /// The objective: mean response time of each store in a period, in ms.
    pub objective_ms: f64,
    /// In this part of the periods.
    pub confidence: f64,
    /// Whether the running period is watched.
    pub guard: bool,
    /// Periods that the controller knows.
    pub periods_known: u64,
    /// Whether every store was within the objective in the last closed period; none before the first, and where none of them
    /// had anything to answer.
    pub objective_met: Option<bool>,
    /// Periods observed since the start, and those of them in which every store was within the objective.
    pub periods_observed: u64,
    /// See `periods_observed`.
    pub periods_met: u64,
    /// Decisions made since the start.
    pub decisions: u64,
    /// Files moved since the start.
    pub moved: u64,
    /// Files given back to the default rule since the start.
    pub returned: u64,
    /// Changes of which stores share a file's reads since the start.
    #[serde(default)]
    pub replicated: u64,
    /// Changes of the default rule's weights since the start.
    #[serde(default)]
    pub reweighed: u64,
    /// Decisions that came after their deadline.
    pub late: u64,
    /// Decisions that came when their period was over, and were dropped.
    pub dropped: u64,
    /// Periods that were refused because the clock went back, or that were too long for one. Those of which a start left less than
    /// half are not counted.
    pub periods_refused: u64,
    /// The last decision of a plan.
    pub last: Option<Decided>,
    /// What the guard did in the same period.
    pub guard_last: Vec<Decided>,
    /// Files of an imported past that no handle is known of yet.
    #[serde(default)]
    pub imported_waiting: u64,
    /// Files of an imported past whose handle is known.
    #[serde(default)]
    pub imported_taken: u64,
    /// What an operator should know of the controller; empty when all is well.
    pub trouble: Option<String>,
}

/// A response time as predicted, ms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResponseOutlook {
    /// Median.
    pub median_ms: f64,
    /// Lower end of the 66 % interval.
    pub low66_ms: f64,
    /// Upper end of the 66 % interval.
    pub high66_ms: f64,
    /// What is not exceeded at the objective's confidence.
    pub quantile_ms: f64,
    /// What the prediction rests on: `fit`, `envelope`, `limit of trust` or `few periods`.
    pub source: String,
}

/// A store in the period decided about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoreOutlook {
    /// Its name.
    pub store: String,
    /// Requests forecast if nothing is moved.
    pub requests_before: f64,
    /// Requests forecast after the moves.
    pub requests: f64,
    /// Response time if nothing is moved; none where nothing was measured of the store.
    pub before: Option<ResponseOutlook>,
    /// Response time after the moves.
    pub after: Option<ResponseOutlook>,
}

/// A file that is moved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MovedFile {
    /// Its handle, in hexadecimal.
    pub handle: String,
    /// Its path, if the router has seen it.
    pub path: Option<String>,
    /// The store that served it.
    pub from: String,
    /// The store that is to serve it.
    pub to: String,
    /// Why.
    pub reason: String,
}

/// A file whose reads several stores are to share, or one store no more than the rest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplicatedFile {
    /// Its handle, in hexadecimal.
    pub handle: String,
    /// Its path, if the router has seen it.
    pub path: Option<String>,
    /// The store that served it.
    pub from: String,
    /// The stores that are to share its reads, the first of them for all else too; one: it is not replicated any more.
    pub stores: Vec<ReadShare>,
    /// Why.
    pub reason: String,
}

/// A store's weight under the default rule, in a change of weights.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoreWeight {
    /// The store.
    pub store: String,
    /// As it was.
    pub before: f64,
    /// As it is to be.
    pub after: f64,
    /// What it is on its way to: a weight changes by at most a factor of 1.5 at a time.
    pub wanted: f64,
}

/// A change of the default rule's weights.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WeightsChanged {
    /// The stores, in the order of the configuration.
    pub stores: Vec<StoreWeight>,
    /// Part of all files that the default rule gives to another store by it, 0 to 1. Those assigned to a store stay there.
    pub files_part: f64,
    /// Files that the controller had moved, and which the default rule now gives to the same store: they follow it again.
    pub dropped: u64,
    /// Why.
    pub reason: String,
}

/// What the controller has learnt of itself, as of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Learnt {
    /// Part of what moves promise that is believed, 0 to 1.
    pub trust: f64,
    /// What moves have promised lately: by how much they were to lower the stores' excess over the objective, on the log scale.
    pub promised: f64,
    /// What of it came.
    pub kept: f64,
    /// What the widths of the intervals of response times are multiplied by.
    pub interval_width: f64,
}

/// One decision.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Decided {
    /// Number of the period decided about: its start over the length of a period.
    pub period: i64,
    /// When that begins, milliseconds since 1970.
    pub start_unix_ms: u64,
    /// When it was decided.
    pub decided_unix_ms: u64,
    /// How long that took, ms.
    pub took_ms: u64,
    /// `plan` or `guard`.
    pub by: String,
    /// Sixths of the period that were over when the guard decided; 0 of a plan.
    pub sixths: u8,
    /// Whether every store is predicted to meet the objective; none where no response time is predicted, as long as nothing was
    /// measured.
    pub objective_reachable: Option<bool>,
    /// The stores that are up.
    pub stores: Vec<StoreOutlook>,
    /// Files to be moved.
    pub moves: Vec<MovedFile>,
    /// Files to be given back to the default rule.
    pub returns: Vec<MovedFile>,
    /// Files whose reads several stores are to share, or one alone again.
    #[serde(default)]
    pub replications: Vec<ReplicatedFile>,
    /// Whether it was put in force (mode `control`, and in time).
    pub applied: bool,
    /// Whether it came after its deadline.
    pub late: bool,
    /// Weights of the default rule that would suit the stores better, by name; advice, which is not followed by itself.
    pub weights_advice: Option<Vec<(String, f64)>>,
    /// Other weights of the default rule, put in force before the moves (`applied` says whether).
    #[serde(default)]
    pub weights: Option<WeightsChanged>,
    /// What the controller has learnt of itself.
    #[serde(default)]
    pub learnt: Option<Learnt>,
    /// What else is worth knowing.
    pub notes: Vec<String>,
}
