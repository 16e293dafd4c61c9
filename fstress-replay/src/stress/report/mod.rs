//! What a run measured, as text, as JSON (through serde), and as a page.

mod show;

use super::account::{Account, Bin, StressMeasure};
use super::files::Target;
use super::operation::StressOperation;
use super::profile::Profile;
use super::{Loop, StressSpec};
use crate::client::nfs::Sizes;
use crate::measure::{TimeSummary, Times};
use crate::report::{Outcome, RunFacts};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// One operation of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StressOperationReport {
    /// The operation.
    pub operation: StressOperation,
    /// Calls handed to a connection.
    pub called: u64,
    /// Calls answered as they should be.
    pub good: u64,
    /// Calls answered otherwise, or given up.
    pub errors: u64,
    /// Calls that the server says it does not support.
    pub unsupported: u64,
    /// Calls without an answer at the end.
    pub unanswered: u64,
    /// Transmissions beyond the first.
    pub retransmissions: u64,
    /// Its part of all calls, 0 to 1.
    pub share: f64,
    /// The part that the profiles ask for, 0 to 1.
    pub share_wanted: f64,
    /// Response times from the intended send time.
    pub response: TimeSummary,
}

/// One workload of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadReport {
    /// Its name.
    pub name: String,
    /// Its part of the calls that was asked for, 0 to 1.
    pub share_wanted: f64,
    /// Its files.
    pub files: usize,
    /// Their bytes together.
    pub file_bytes: u64,
    /// Files that had to be written before the run.
    pub files_written: usize,
    /// Calls handed to a connection.
    pub called: u64,
    /// Calls answered as they should be.
    pub good: u64,
    /// Good answers, a second.
    pub got_per_s: f64,
    /// Response times from the intended send time.
    pub response: TimeSummary,
    /// What it did.
    pub profile: Profile,
}

/// A short time of a run, from `at_s` on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// Seconds since the start.
    pub at_s: f64,
    /// Whether it belongs to what is measured, and not to warm-up or cooldown.
    pub measured: bool,
    /// Calls that were due, a second.
    pub wanted_per_s: f64,
    /// Of those, the ones handed to a connection, a second.
    pub called_per_s: f64,
    /// Calls answered well, a second.
    pub got_per_s: f64,
    /// Calls answered otherwise.
    pub errors: u64,
    /// Response time of calls due then: mean; `None` if there were none.
    pub mean_ms: Option<f64>,
    /// Their median.
    pub p50_ms: Option<f64>,
    /// Their quantile .99.
    pub p99_ms: Option<f64>,
}

/// A whole run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StressReport {
    /// The run itself.
    #[serde(flatten)]
    pub run: RunFacts,
    /// Calls on their way, if the loop was closed; response times mean little then.
    pub closed_outstanding: Option<usize>,
    /// Seconds of warm-up, of what is measured, and of cooldown.
    pub phases_s: [f64; 3],
    /// Calls that came due.
    pub wanted: u64,
    /// Calls handed to a connection.
    pub called: u64,
    /// Calls that were not.
    pub not_sent: u64,
    /// Calls answered as they should be.
    pub good: u64,
    /// Calls answered otherwise, or given up.
    pub errors: u64,
    /// Calls that the server says it does not support.
    pub unsupported: u64,
    /// Calls without an answer at the end.
    pub unanswered: u64,
    /// Transmissions beyond the first.
    pub retransmissions: u64,
    /// Calls made into others because there was nothing they could be done to (a REMOVE before any CREATE), in all phases.
    pub substituted: u64,
    /// Names that the run made and could not remove.
    pub names_left: u64,
    /// Calls due, a second.
    pub wanted_per_s: f64,
    /// Calls handed to a connection, a second.
    pub called_per_s: f64,
    /// Good answers, a second.
    pub got_per_s: f64,
    /// Data read, bytes a second.
    pub read_bytes_per_s: f64,
    /// Data written, bytes a second.
    pub written_bytes_per_s: f64,
    /// Largest READ and WRITE of this server and transport; larger ones were made smaller.
    pub data_bytes_max: [u32; 2],
    /// Response times of all operations from the intended send time.
    pub response: TimeSummary,
    /// How late calls were handed to the socket: the load generator's own error.
    pub lag: TimeSummary,
    /// Each operation.
    pub operations: Vec<StressOperationReport>,
    /// Each workload.
    pub workloads: Vec<LoadReport>,
    /// What the errors were.
    pub error_kinds: BTreeMap<String, u64>,
    /// What the server lacks.
    pub absent: Vec<String>,
    /// How it went over time.
    pub timeline: Vec<Moment>,
    /// Length of a moment of the timeline in seconds.
    pub moment_s: f64,
}

/// What is known only after the run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extras {
    pub(super) substituted: u64,
    pub(super) left: u64,
    pub(super) interrupted: bool,
}

impl StressReport {
    pub(super) fn of(
        spec: &StressSpec,
        targets: &[Target],
        limits: Sizes,
        account: Account,
        extras: Extras,
    ) -> Self {
        let seconds = spec.length.as_secs_f64();
        let sum = |field: fn(&StressMeasure) -> u64| account.operations.values().map(field).sum::<u64>();
        let called = sum(|measure| measure.counts.called);
        let good = sum(|measure| measure.counts.good);
        let per_s = |count: u64| count as f64 / seconds;
        let weights: f64 = spec.loads.iter().map(|load| load.weight).sum();
        let mut times = Times::default();
        account.operations.values().for_each(|measure| times.add(&measure.counts.times));
        let operations = operations(spec, &account, called);
        let mut absent: Vec<String> = targets.iter().flat_map(|target| target.absent.clone()).collect();
        absent.extend(operations.iter().filter(|op| op.unsupported > 0).map(|op| {
            format!("{}: {} calls answered \"not supported\"", op.operation.name(), op.unsupported)
        }));
        let lag = account.lag.summary();
        let outcome = Outcome {
            is_open_loop: matches!(spec.source, Loop::Open { .. }),
            lag: &lag,
            called,
            wanted: account.wanted,
            not_sent: account.not_sent,
            interrupted: extras.interrupted,
        };
        Self {
            run: RunFacts::of(&spec.run, outcome),
            closed_outstanding: match spec.source {
                Loop::Open { .. } => None,
                Loop::Closed { outstanding } => Some(outstanding),
            },
            phases_s: [spec.run.warmup, spec.length, spec.run.cooldown].map(|phase| phase.as_secs_f64()),
            wanted: account.wanted,
            called,
            not_sent: account.not_sent,
            good,
            errors: sum(|measure| measure.counts.errors),
            unsupported: sum(|measure| measure.unsupported),
            unanswered: sum(|measure| measure.unanswered),
            retransmissions: sum(|measure| measure.counts.retransmissions),
            substituted: extras.substituted,
            names_left: extras.left,
            wanted_per_s: per_s(account.wanted),
            called_per_s: per_s(called),
            got_per_s: per_s(good),
            read_bytes_per_s: per_s(account.bytes_read),
            written_bytes_per_s: per_s(account.bytes_written),
            data_bytes_max: [limits.read_bytes_max, limits.write_bytes_max],
            response: times.summary(),
            lag,
            operations,
            workloads: (targets.iter().enumerate())
                .map(|(place, target)| load(target, place, &account, weights, seconds))
                .collect(),
            error_kinds: (account.errors.iter())
                .map(|((operation, kind), count)| (format!("{} {kind}", operation.name()), *count))
                .collect(),
            absent,
            timeline: timeline(spec, &account.bins),
            moment_s: spec.phases().bin().as_secs_f64(),
        }
    }

    /// Whether every call was answered as it should be; calls that the server does not support are no errors.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.errors == 0 && self.unanswered == 0 && self.not_sent == 0
    }
}

fn operations(spec: &StressSpec, account: &Account, called_all: u64) -> Vec<StressOperationReport> {
    let weights: f64 = spec.loads.iter().map(|load| load.weight).sum();
    let share_wanted = |operation: StressOperation| -> f64 {
        let of = |profile: &Profile| profile.weight(operation) / profile.operations.values().sum::<f64>();
        spec.loads.iter().map(|load| load.weight / weights * of(&load.profile)).sum()
    };
    let mut reports = Vec::new();
    for operation in StressOperation::ALL {
        let mut sum = StressMeasure::default();
        let measures = account.operations.iter().filter(|((_, other), _)| *other == operation);
        for (_, measure) in measures {
            sum.counts.add(&measure.counts);
            sum.unsupported += measure.unsupported;
            sum.unanswered += measure.unanswered;
        }
        let called = sum.counts.called;
        let share_wanted = share_wanted(operation);
        if called > 0 || share_wanted > 0.0 {
            reports.push(StressOperationReport {
                operation,
                called,
                good: sum.counts.good,
                errors: sum.counts.errors,
                unsupported: sum.unsupported,
                unanswered: sum.unanswered,
                retransmissions: sum.counts.retransmissions,
                share: if called_all > 0 { called as f64 / called_all as f64 } else { 0.0 },
                share_wanted,
                response: sum.counts.times.summary(),
            });
        }
    }
    reports
}

fn load(target: &Target, place: usize, account: &Account, weights: f64, seconds: f64) -> LoadReport {
    let (mut called, mut good, mut times) = (0, 0, Times::default());
    for (_, measure) in account.operations.iter().filter(|((load, _), _)| *load == place) {
        called += measure.counts.called;
        good += measure.counts.good;
        times.add(&measure.counts.times);
    }
    LoadReport {
        name: target.name.clone(),
        share_wanted: target.weight / weights,
        files: target.files.len(),
        file_bytes: target.files.iter().map(|file| file.bytes).sum(),
        files_written: target.written,
        called,
        good,
        got_per_s: good as f64 / seconds,
        response: times.summary(),
        profile: target.profile.clone(),
    }
}

fn timeline(spec: &StressSpec, bins: &[Bin]) -> Vec<Moment> {
    let phases = spec.phases();
    let length = phases.bin();
    let moment = |(place, bin): (usize, &Bin)| {
        let at = length * u32::try_from(place).unwrap_or(u32::MAX);
        // The last one may be cut short by the end.
        let seconds =
            length.min(phases.whole().saturating_sub(at)).max(Duration::from_micros(1)).as_secs_f64();
        let time = |value: f64| (bin.count > 0).then_some(value);
        Moment {
            at_s: at.as_secs_f64(),
            measured: phases.counts(at),
            wanted_per_s: bin.wanted as f64 / seconds,
            called_per_s: bin.called as f64 / seconds,
            got_per_s: bin.good as f64 / seconds,
            errors: bin.errors,
            mean_ms: time(bin.sum_ms / bin.count.max(1) as f64),
            p50_ms: time(bin.quantile_ms(0.5)),
            p99_ms: time(bin.quantile_ms(0.99)),
        }
    };
    bins.iter().enumerate().map(moment).collect()
}
