//! What a run measured, as text, as JSON (through serde), and as a page.

use super::account::{Account, Bin, StressMeasure};
use super::files::Target;
use super::operation::StressOperation;
use super::profile::Profile;
use super::{Loop, StressSpec};
use crate::client::Transport;
use crate::client::nfs::Sizes;
use crate::measure::{TimeSummary, Times};
use crate::page::chart::{Along, Shaded};
use crate::page::format::percent;
use crate::page::load::{LoadPage, Point, rounded};
use crate::report::{INTERRUPTED, faults, faults_text, lag_note, times_text};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;
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
    /// The server.
    pub target: String,
    /// TCP or UDP.
    pub transport: Transport,
    /// Connections or sockets.
    pub connections: usize,
    /// Threads.
    pub lanes: usize,
    /// Calls on their way, if the loop was closed; response times mean little then.
    pub closed_outstanding: Option<usize>,
    /// Seconds of warm-up, of what is measured, and of cooldown.
    pub phases_s: [f64; 3],
    /// Whether the figures can be trusted as those of the load that was asked for.
    pub valid: bool,
    /// If not: why.
    pub invalid_reasons: Vec<String>,
    /// Send lag, quantile .99, from which on a run is invalid.
    pub lag_ms_max: f64,
    /// Calls were left out because the server was slower than the load.
    pub saturated: bool,
    /// The run was stopped before its end.
    pub interrupted: bool,
    /// Whether the data was checked.
    pub verified: bool,
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
        let mut report = Self {
            target: spec.run.target.to_string(),
            transport: spec.run.client.transport,
            connections: spec.run.client.connections,
            lanes: spec.run.lanes(),
            closed_outstanding: match spec.source {
                Loop::Open { .. } => None,
                Loop::Closed { outstanding } => Some(outstanding),
            },
            phases_s: [spec.run.warmup, spec.length, spec.run.cooldown].map(|phase| phase.as_secs_f64()),
            valid: true,
            invalid_reasons: Vec::new(),
            lag_ms_max: spec.run.lag_max.as_secs_f64() * 1e3,
            saturated: account.not_sent > 0,
            interrupted: extras.interrupted,
            verified: spec.run.verify,
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
            lag: account.lag.summary(),
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
        };
        report.judge(spec);
        report
    }

    /// Says whether the load was the one that was asked for.
    fn judge(&mut self, spec: &StressSpec) {
        if self.closed_outstanding.is_none() {
            let calls = (self.called, self.wanted);
            self.invalid_reasons = faults((&self.lag, self.lag_ms_max), calls, spec.run.outstanding_max);
        }
        if self.interrupted {
            self.invalid_reasons.push(INTERRUPTED.into());
        }
        self.valid = self.invalid_reasons.is_empty();
    }

    /// Whether every call was answered as it should be; calls that the server does not support are no errors.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.errors == 0 && self.unanswered == 0 && self.not_sent == 0
    }

    /// The report as text.
    #[must_use]
    pub fn text(&self) -> String {
        // Writing to a string cannot fail.
        let mut out = format!("{}\n{}\n\n", self.title(), self.subtitle());
        out.push_str(&faults_text(&self.invalid_reasons));
        out.push_str(
            "operation       called      good errors unsupp resent  share wanted    mean     dev     p50     p95     p99   p99.9  p99.99  ms\n",
        );
        for op in &self.operations {
            let _ = writeln!(
                out,
                "{:<12} {:>9} {:>9} {:>6} {:>6} {:>6} {:>5.1}% {:>5.1}% {}",
                op.operation.name(),
                op.called,
                op.good,
                op.errors + op.unanswered,
                op.unsupported,
                op.retransmissions,
                op.share * 100.0,
                op.share_wanted * 100.0,
                times_text(&op.response)
            );
        }
        let _ = writeln!(
            out,
            "{:<12} {:>9} {:>9} {:>6} {:>6} {:>6} {:>5.1}%        {}\n",
            "all",
            self.called,
            self.good,
            self.errors + self.unanswered,
            self.unsupported,
            self.retransmissions,
            100.0,
            times_text(&self.response)
        );
        if self.workloads.len() > 1 {
            for load in &self.workloads {
                let _ = writeln!(
                    out,
                    "{:<12} {:>9} called, {:.1} got a second, mean {} ms, p99 {} ms",
                    load.name,
                    load.called,
                    load.got_per_s,
                    rounded(load.response.mean_ms),
                    rounded(load.response.p99_ms)
                );
            }
            out.push('\n');
        }
        for line in self.notes() {
            let _ = writeln!(out, "{line}");
        }
        out
    }

    fn title(&self) -> String {
        let names: Vec<&str> = self.workloads.iter().map(|load| load.name.as_str()).collect();
        format!("{} against {}", names.join(", "), self.target)
    }

    fn subtitle(&self) -> String {
        let loop_text = match self.closed_outstanding {
            Some(outstanding) => format!("closed loop, {outstanding} calls on their way"),
            None => "open loop".into(),
        };
        format!(
            "{loop_text}, {} connections over {}, {} threads; {} s after {} s of warm-up; data {}",
            self.connections,
            self.transport.name(),
            self.lanes,
            self.phases_s[1],
            self.phases_s[0],
            if self.verified { "checked" } else { "not checked" },
        )
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = vec![
            format!(
                "wanted {:.1} calls/s, called {:.1}, got {:.1}; mean response {} ms; read {:.2} MB/s, written {:.2} MB/s",
                self.wanted_per_s,
                self.called_per_s,
                self.got_per_s,
                rounded(self.response.mean_ms),
                self.read_bytes_per_s / 1e6,
                self.written_bytes_per_s / 1e6
            ),
            lag_note(&self.lag),
        ];
        for load in &self.workloads {
            notes.push(format!(
                "{}: {} files, {:.1} MB, {} written before the run",
                load.name,
                load.files,
                load.file_bytes as f64 / 1e6,
                load.files_written
            ));
        }
        notes.extend(self.absent.iter().map(|what| format!("absent: {what}")));
        notes.extend(self.error_kinds.iter().map(|(kind, count)| format!("error: {count} x {kind}")));
        if self.unanswered > 0 {
            notes.push(format!("{} calls had no answer at the end", self.unanswered));
        }
        if self.not_sent > 0 {
            notes.push(format!(
                "saturated: {} calls were not sent, because too many were on their way",
                self.not_sent
            ));
        }
        if self.substituted > 0 {
            notes.push(format!(
                "{} calls became others because there was nothing they could be done to (such as REMOVE before any CREATE)",
                self.substituted
            ));
        }
        if self.names_left > 0 {
            notes.push(format!("{} names made by this run could not be removed", self.names_left));
        }
        notes
    }

    /// The report as one page of HTML that needs nothing else.
    #[must_use]
    pub fn page(&self) -> String {
        let mut facts = self.notes();
        facts.insert(
            0,
            format!(
                "largest READ {} bytes, largest WRITE {} bytes",
                self.data_bytes_max[0], self.data_bytes_max[1]
            ),
        );
        let point = |moment: &Moment| Point {
            response_ms: (moment.mean_ms.zip(moment.p50_ms).zip(moment.p99_ms))
                .map(|((mean, median), p99)| [mean, median, p99]),
            rates: [moment.wanted_per_s, moment.called_per_s, moment.got_per_s],
        };
        let middle = |moment: &Moment| moment.at_s + self.moment_s / 2.0;
        let measured = (self.phases_s[0], self.phases_s[0] + self.phases_s[1]);
        LoadPage {
            title: self.title(),
            about: self.subtitle(),
            invalid: self.invalid_reasons.clone(),
            rates: [self.wanted_per_s, self.called_per_s, self.got_per_s],
            response: self.response,
            lag: self.lag,
            along: Along::Points(self.timeline.iter().map(middle).collect()),
            along_axis: "seconds since the start".into(),
            shaded: Some(Shaded { range: measured, name: "measured" }),
            points: self.timeline.iter().map(point).collect(),
            header: [
                "operation",
                "called",
                "good",
                "errors",
                "unsupported",
                "resent",
                "share",
                "share wanted",
                "mean",
                "deviation",
                "p50",
                "p95",
                "p99",
                "p99.9",
                "p99.99",
            ]
            .map(String::from)
            .to_vec(),
            rows: self.operations.iter().map(row).collect(),
            facts,
        }
        .html()
    }
}

fn row(op: &StressOperationReport) -> Vec<String> {
    let mut row = vec![op.operation.name().to_owned()];
    row.extend(
        [op.called, op.good, op.errors + op.unanswered, op.unsupported, op.retransmissions]
            .map(|n| n.to_string()),
    );
    row.extend([percent(op.share), percent(op.share_wanted)]);
    row.extend(op.response.figures().map(rounded));
    row
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
