//! What every report says of its run, whatever the load was: how it was made, and whether its figures can be trusted.

use crate::RunSpec;
use crate::client::Transport;
use crate::measure::TimeSummary;
use crate::page::load::rounded;
use serde::{Deserialize, Serialize};

/// Calls that may be missing before a replay is invalid, as a part of those that were due.
const MISSING_PART_MAX: f64 = 0.005;

/// Why an interrupted run is invalid.
const INTERRUPTED: &str = "interrupted before its end";

/// How a run was made, and whether its figures can be trusted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunFacts {
    /// The server.
    pub target: String,
    /// TCP or UDP.
    pub transport: Transport,
    /// Connections or sockets.
    pub connections: usize,
    /// Threads.
    pub lanes: usize,
    /// Whether the data was checked.
    pub verified: bool,
    /// Calls were left out because the server was slower than the load: response times are too low then.
    pub saturated: bool,
    /// The run was stopped before its end.
    pub interrupted: bool,
    /// Whether the figures can be trusted as those of the load that was asked for.
    pub valid: bool,
    /// If not: why.
    pub invalid_reasons: Vec<String>,
    /// Send lag, quantile .99, beyond which a run is invalid.
    pub lag_ms_max: f64,
}

/// What came of the calls of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outcome<'a> {
    /// Whether calls had times of their own, so that they could be late.
    pub(crate) is_open_loop: bool,
    pub(crate) lag: &'a TimeSummary,
    pub(crate) called: u64,
    pub(crate) wanted: u64,
    pub(crate) not_sent: u64,
    pub(crate) interrupted: bool,
}

impl RunFacts {
    /// Judges a run: whether its load was the one that was asked for.
    pub(crate) fn of(run: &RunSpec, outcome: Outcome<'_>) -> Self {
        let lag_ms_max = run.lag_max.as_secs_f64() * 1e3;
        let calls = (outcome.called, outcome.wanted);
        let mut invalid_reasons = match outcome.is_open_loop {
            true => faults((outcome.lag, lag_ms_max), calls, run.outstanding_max),
            false => Vec::new(),
        };
        invalid_reasons.extend(outcome.interrupted.then(|| INTERRUPTED.to_owned()));
        Self {
            target: run.target.to_string(),
            transport: run.client.transport,
            connections: run.client.connections,
            lanes: run.lanes(),
            verified: run.verify,
            saturated: outcome.not_sent > 0,
            interrupted: outcome.interrupted,
            valid: invalid_reasons.is_empty(),
            invalid_reasons,
            lag_ms_max,
        }
    }

    /// The faults at the beginning of a report's text; nothing for a valid run.
    pub(crate) fn faults_text(&self) -> String {
        let faults = &self.invalid_reasons;
        if faults.is_empty() { String::new() } else { format!("INVALID:\n  {}\n\n", faults.join("\n  ")) }
    }
}

/// Why a run is not what was asked for, if it is not: calls were late, or were not made, or it was interrupted.
fn faults(
    (lag, lag_ms_max): (&TimeSummary, f64),
    (called, wanted): (u64, u64),
    outstanding_max: usize,
) -> Vec<String> {
    let mut faults = Vec::new();
    if lag.p99_ms > lag_ms_max {
        faults.push(format!(
            "send lag: 1 % of the calls were handed to the socket {} ms or more after they were due, {} ms are allowed; \
             this generator (or a connection that the server did not read) could not keep up",
            rounded(lag.p99_ms),
            rounded(lag_ms_max)
        ));
    }
    if (called as f64) < wanted as f64 * (1.0 - MISSING_PART_MAX) {
        faults.push(format!(
            "{called} of {wanted} calls were made: the others came due while {outstanding_max} calls without an answer \
             were on their way"
        ));
    }
    faults
}

/// The send lag in words.
pub(crate) fn lag_note(lag: &TimeSummary) -> String {
    format!(
        "send lag p50 {} ms, p99 {} ms, p99.9 {} ms, max {} ms",
        rounded(lag.p50_ms),
        rounded(lag.p99_ms),
        rounded(lag.p999_ms),
        rounded(lag.max_ms)
    )
}

/// The figures of a summary in columns.
pub(crate) fn times_text(times: &TimeSummary) -> String {
    times.figures().map(|ms| if ms < 1000.0 { format!("{ms:>7.3}") } else { format!("{ms:>7.0}") }).join(" ")
}
