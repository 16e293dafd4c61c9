//! What a replay measured, as text, as JSON (through serde), and as a page.

mod run;

pub use run::RunFacts;
pub(crate) use run::{Outcome, lag_note, times_text};

use crate::measure::{HourMeasure, TimeSummary, Times};
use crate::page::chart::Along;
use crate::page::format::percent;
use crate::page::load::{LoadPage, Point, rounded};
use crate::plan::{Mapping, Model, Operation};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// One operation in a report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OperationReport {
    /// The operation.
    pub operation: Operation,
    /// Calls handed to the client.
    pub called: u64,
    /// Calls answered as they should be.
    pub good: u64,
    /// Calls answered otherwise, or given up.
    pub errors: u64,
    /// Transmissions beyond the first.
    pub retransmissions: u64,
    /// Its part of all calls, 0 to 1.
    pub share: f64,
    /// Response times from the intended send time.
    pub response: TimeSummary,
}

/// Counts and times, of an hour or of the whole replay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Seconds that it lasted, as planned.
    pub seconds: f64,
    /// Requests that the workload has, times the rate factor.
    pub requests_expected: f64,
    /// Requests that came due.
    pub requests_due: u64,
    /// How many of them write.
    #[serde(default)]
    pub writes_due: u64,
    /// How many of them concern metadata alone.
    #[serde(default)]
    pub metadata_due: u64,
    /// Requests whose first call was handed to the client.
    pub requests: u64,
    /// Requests for which the caches of the model client had everything; they needed no call.
    pub cached: u64,
    /// Calls that came due.
    pub wanted: u64,
    /// Calls handed to the client.
    pub called: u64,
    /// Calls that were not, because the limit of outstanding calls was reached.
    pub not_sent: u64,
    /// Calls answered as they should be.
    pub good: u64,
    /// Calls answered otherwise, or given up.
    pub errors: u64,
    /// Calls answered with STALE by a server whose file was replaced: the request was begun again with a LOOKUP, as clients
    /// do. Neither good nor errors.
    pub stale: u64,
    /// Requests whose data was written again because the server may have lost it before its COMMIT (another verifier), as
    /// clients do. No errors.
    #[serde(default)]
    pub written_again: u64,
    /// Calls still without an answer when the replay ended.
    pub unanswered: u64,
    /// Transmissions beyond the first.
    pub retransmissions: u64,
    /// Calls due, a second.
    pub wanted_per_s: f64,
    /// Calls handed to the client, a second.
    pub called_per_s: f64,
    /// Good answers, a second.
    pub got_per_s: f64,
    /// Response times of all operations from the intended send time.
    pub response: TimeSummary,
    /// How late calls were handed to the socket: the load generator's own error.
    pub lag: TimeSummary,
    /// Each operation.
    pub operations: Vec<OperationReport>,
    /// What the errors were.
    pub error_kinds: BTreeMap<String, u64>,
}

/// One hour of a replay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HourReport {
    /// The hour of the workload.
    pub hour: u32,
    /// Whether all its calls came due, which they did unless the replay was interrupted.
    pub complete: bool,
    /// What was measured.
    #[serde(flatten)]
    pub summary: Summary,
}

/// Load before and after what is measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Unmeasured {
    /// Seconds of warm-up.
    pub warmup_s: f64,
    /// Seconds of cooldown.
    pub cooldown_s: f64,
    /// Calls handed to the client in both.
    pub called: u64,
    /// Of those, the ones answered otherwise than they should be, given up, or without an answer at the end.
    pub errors: u64,
}

impl Unmeasured {
    pub(crate) fn of(measure: &HourMeasure, warmup: Duration, cooldown: Duration) -> Self {
        let sum = |field: fn(&crate::measure::OperationMeasure) -> u64| -> u64 {
            measure.operations.iter().map(field).sum()
        };
        Self {
            warmup_s: warmup.as_secs_f64(),
            cooldown_s: cooldown.as_secs_f64(),
            called: sum(|op| op.called),
            errors: sum(|op| op.errors) + measure.outstanding,
        }
    }
}

/// A whole replay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplayReport {
    /// The run itself.
    #[serde(flatten)]
    pub run: RunFacts,
    /// The sites of the workload.
    pub sites: Vec<String>,
    /// Files of the workload.
    pub files: usize,
    /// What an hour became, in seconds.
    pub seconds_per_hour: f64,
    /// Requests were this times the workload's.
    pub rate_factor: f64,
    /// How requests became calls.
    pub model: Model,
    /// How a request became calls, if by a fixed number.
    pub mapping: Mapping,
    /// What was not measured.
    pub warmup: Unmeasured,
    /// Names that had another handle when the model clients looked them up again.
    pub handles_replaced: u64,
    /// Names that the model clients forgot because they may remember no more.
    pub cache_entries_evicted: u64,
    /// Everything together.
    pub total: Summary,
    /// Hour by hour.
    pub hours: Vec<HourReport>,
}

impl Summary {
    /// Summarises a measure over `seconds`, in which the workload has `requests_expected`.
    #[must_use]
    pub fn of(measure: &HourMeasure, seconds: f64, requests_expected: f64) -> Self {
        let sum = |field: fn(&crate::measure::OperationMeasure) -> u64| -> u64 {
            measure.operations.iter().map(field).sum()
        };
        let (called, good) = (sum(|op| op.called), sum(|op| op.good));
        let mut times = Times::default();
        for operation in &measure.operations {
            times.add(&operation.times);
        }
        let per_s = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        let operations = Operation::ALL.iter().zip(&measure.operations);
        Self {
            seconds,
            requests_expected,
            requests_due: measure.requests_due,
            writes_due: measure.writes_due,
            metadata_due: measure.metadata_due,
            written_again: measure.written_again,
            requests: measure.requests,
            cached: measure.cached,
            stale: measure.stale,
            wanted: measure.wanted,
            called,
            not_sent: measure.not_sent,
            good,
            errors: sum(|op| op.errors),
            unanswered: measure.outstanding,
            retransmissions: sum(|op| op.retransmissions),
            wanted_per_s: per_s(measure.wanted),
            called_per_s: per_s(called),
            got_per_s: per_s(good),
            response: times.summary(),
            lag: measure.lag.summary(),
            operations: operations
                .map(|(operation, measure)| OperationReport {
                    operation: *operation,
                    called: measure.called,
                    good: measure.good,
                    errors: measure.errors,
                    retransmissions: measure.retransmissions,
                    share: if called > 0 { measure.called as f64 / called as f64 } else { 0.0 },
                    response: measure.times.summary(),
                })
                .collect(),
            error_kinds: measure.error_kinds.clone(),
        }
    }
}

impl Summary {
    /// The operations without those that write, if nothing was written.
    fn of_interest(&self) -> impl Iterator<Item = &OperationReport> {
        let writes = |op: &OperationReport| matches!(op.operation, Operation::Write | Operation::Commit);
        self.operations.iter().filter(move |op| op.called > 0 || !writes(op))
    }

    /// How far the requests that were issued are from those of the workload, as a part of those.
    #[must_use]
    pub fn off_workload(&self) -> f64 {
        let off = (self.requests as f64 - self.requests_expected).abs();
        if self.requests_expected > 0.0 { off / self.requests_expected } else { off }
    }
}

impl ReplayReport {
    /// Whether every call was sent and answered as it should be.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.total.errors == 0 && self.total.unanswered == 0 && !self.run.saturated
    }

    /// The report as one page of HTML that needs nothing else.
    #[must_use]
    pub fn page(&self) -> String {
        let mut facts = String::new();
        self.notes(&mut facts);
        let header = ["operation", "called", "good", "errors", "resent", "share"];
        let times = ["mean", "deviation", "p50", "p95", "p99", "p99.9", "p99.99"];
        let total = &self.total;
        let point = |hour: &HourReport| {
            let (summary, response) = (&hour.summary, &hour.summary.response);
            let ms = [response.mean_ms, response.p50_ms, response.p99_ms];
            Point {
                response_ms: (response.count > 0).then_some(ms),
                rates: [summary.wanted_per_s, summary.called_per_s, summary.got_per_s],
            }
        };
        LoadPage {
            title: format!("{} against {}", self.sites.join(", "), self.run.target),
            about: self.subtitle(),
            invalid: self.run.invalid_reasons.clone(),
            rates: [total.wanted_per_s, total.called_per_s, total.got_per_s],
            response: total.response,
            lag: total.lag,
            along: Along::Steps(self.hours.iter().map(|hour| u64::from(hour.hour)).collect()),
            along_axis: format!("hour of the workload, {} s each", self.seconds_per_hour),
            shaded: None,
            points: self.hours.iter().map(point).collect(),
            header: header.iter().chain(&times).map(|name| (*name).to_owned()).collect(),
            rows: total.of_interest().map(row).collect(),
            facts: facts.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect(),
        }
        .html()
    }

    fn subtitle(&self) -> String {
        format!(
            "{} over {} ({} connections, {} threads), {} files of {}; an hour is {} s, requests are {:.4} of the workload's",
            self.run.target,
            self.run.transport.name(),
            self.run.connections,
            self.run.lanes,
            self.files,
            self.sites.join(", "),
            self.seconds_per_hour,
            self.rate_factor,
        )
    }

    /// The report as text: one line an hour, one an operation, and a line for everything.
    #[must_use]
    pub fn text(&self) -> String {
        // Writing to a string cannot fail.
        let mut out = format!("{}\n\n", self.subtitle());
        out.push_str(&self.run.faults_text());
        out.push_str(
            "                      calls a second              |           response from the intended time, ms           |  send lag, ms\n  \
             hour  requests   wanted   called      got errors resent    mean     dev     p50     p95     p99   p99.9  p99.99     p50     p99\n",
        );
        for hour in &self.hours {
            let mark = if hour.complete { ' ' } else { '*' };
            let _ = writeln!(out, "{:>6}{mark} {}", hour.hour, line(&hour.summary));
        }
        let _ = writeln!(out, "   all  {}\n", line(&self.total));
        out.push_str(
            "operation    called      good errors resent  share    mean     dev     p50     p95     p99   p99.9  p99.99\n",
        );
        for op in self.total.of_interest() {
            let _ = writeln!(
                out,
                "{:<9} {:>9} {:>9} {:>6} {:>6} {:>5.1}% {}",
                op.operation.name(),
                op.called,
                op.good,
                op.errors,
                op.retransmissions,
                op.share * 100.0,
                times_text(&op.response)
            );
        }
        self.notes(&mut out);
        out
    }

    /// The complete hour whose number of requests is furthest from the workload's.
    #[must_use]
    pub fn worst_hour(&self) -> Option<&HourReport> {
        let off = |hour: &&HourReport| hour.summary.off_workload();
        self.hours.iter().filter(|hour| hour.complete).max_by(|a, b| off(a).total_cmp(&off(b)))
    }

    fn notes(&self, out: &mut String) {
        let total = &self.total;
        let _ = writeln!(
            out,
            "\nwanted {:.1} calls/s, called {:.1}, got {:.1}; mean response {:.3} ms",
            total.wanted_per_s, total.called_per_s, total.got_per_s, total.response.mean_ms
        );
        let _ = writeln!(out, "{}", lag_note(&total.lag));
        if let Some(worst) = self.worst_hour() {
            let _ = writeln!(
                out,
                "requests issued: {} of {:.1} in the workload; furthest off in hour {}, by {:.2} %",
                total.requests,
                total.requests_expected,
                worst.hour,
                worst.summary.off_workload() * 100.0
            );
        }
        if total.writes_due + total.metadata_due > 0 {
            let _ = writeln!(
                out,
                "{} of the requests write, {} concern metadata alone; {} were written again, because the server may have lost \
                 data before its COMMIT",
                total.writes_due, total.metadata_due, total.written_again
            );
        }
        if let Model::Http(clients) = self.model {
            let _ = writeln!(
                out,
                "{} model clients, {} B a READ: {:.2} calls a request; {} requests needed none; {} handles were stale, {} names \
                 replaced, {} cache entries forgotten for lack of room",
                clients.clients,
                clients.read_bytes,
                total.wanted as f64 / total.requests_due.max(1) as f64,
                total.cached,
                total.stale,
                self.handles_replaced,
                self.cache_entries_evicted
            );
        }
        let around = self.warmup;
        if around.warmup_s + around.cooldown_s > 0.0 {
            let _ = writeln!(
                out,
                "{} s of warm-up and {} s of cooldown, not measured: {} calls, {} errors",
                around.warmup_s, around.cooldown_s, around.called, around.errors
            );
        }
        for (kind, count) in &total.error_kinds {
            let _ = writeln!(out, "error: {count} x {kind}");
        }
        if total.unanswered > 0 {
            let _ = writeln!(out, "{} calls had no answer when the replay ended", total.unanswered);
        }
        if self.run.saturated {
            let _ = writeln!(
                out,
                "saturated: {} calls were not sent, because too many were outstanding; the response times are too low",
                total.not_sent
            );
        }
        if self.run.interrupted {
            out.push_str("interrupted: hours marked * are incomplete, later ones are missing\n");
        }
    }
}

fn row(op: &OperationReport) -> Vec<String> {
    let mut row = vec![op.operation.name().to_owned()];
    row.extend([op.called, op.good, op.errors, op.retransmissions].map(|count| count.to_string()));
    row.push(percent(op.share));
    row.extend(op.response.figures().map(rounded));
    row
}

fn line(summary: &Summary) -> String {
    format!(
        "{:>8} {:>8.1} {:>8.1} {:>8.1} {:>6} {:>6} {} {:>7.3} {:>7.3}",
        summary.requests,
        summary.wanted_per_s,
        summary.called_per_s,
        summary.got_per_s,
        summary.errors + summary.unanswered,
        summary.retransmissions,
        times_text(&summary.response),
        summary.lag.p50_ms,
        summary.lag.p99_ms,
    )
}
