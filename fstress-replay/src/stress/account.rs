//! What a lane counts: by operation for the run, and over time for all phases.

use super::call::Verdict;
use super::operation::StressOperation;
use crate::measure::{OperationMeasure, Times};
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::time::Duration;

/// Longest time that the histogram of a bin tells apart, in microseconds.
const BIN_US_MAX: u64 = 200_000_000;
/// Significant decimal digits of the quantiles of a bin.
const BIN_DIGITS: u8 = 2;
/// Most bins of a run.
const BINS_MAX: f64 = 240.0;
/// Lengths of bins in seconds, of which the first is taken with which there are no more than [`BINS_MAX`].
const BIN_SECONDS: [f64; 11] = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0];

/// The phases of a run. What is measured is measured in the middle one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Phases {
    pub(super) warmup: Duration,
    pub(super) run: Duration,
    pub(super) cooldown: Duration,
}

impl Phases {
    pub(super) fn whole(&self) -> Duration {
        self.warmup + self.run + self.cooldown
    }

    /// Whether a call that is due then counts.
    pub(super) fn counts(&self, due: Duration) -> bool {
        due >= self.warmup && due < self.warmup + self.run
    }

    /// The length of a bin.
    pub(super) fn bin(&self) -> Duration {
        let whole = self.whole().as_secs_f64();
        let seconds = BIN_SECONDS.into_iter().find(|seconds| whole / seconds <= BINS_MAX);
        Duration::from_secs_f64(seconds.unwrap_or(whole / BINS_MAX))
    }
}

/// A short time within a run.
#[derive(Debug, Clone, Default)]
pub(super) struct Bin {
    /// Calls that were due in it.
    pub(super) wanted: u64,
    /// Of those, the ones that were handed to a connection.
    pub(super) called: u64,
    /// Calls answered well in it, whenever they were due.
    pub(super) good: u64,
    /// Calls answered otherwise in it.
    pub(super) errors: u64,
    /// Response times of calls that were due in it.
    pub(super) times: Option<Histogram<u32>>,
    pub(super) sum_ms: f64,
    pub(super) count: u64,
}

impl Bin {
    fn record(&mut self, response: Duration) {
        if self.times.is_none() {
            self.times = Histogram::new_with_bounds(1, BIN_US_MAX, BIN_DIGITS).ok();
        }
        if let Some(times) = &mut self.times {
            times.saturating_record(u64::try_from(response.as_micros()).unwrap_or(BIN_US_MAX).max(1));
        }
        self.sum_ms += response.as_secs_f64() * 1e3;
        self.count += 1;
    }

    fn add(&mut self, other: Self) {
        self.wanted += other.wanted;
        self.called += other.called;
        self.good += other.good;
        self.errors += other.errors;
        self.sum_ms += other.sum_ms;
        self.count += other.count;
        match (&mut self.times, other.times) {
            (Some(mine), Some(theirs)) => {
                // Both have the same bounds, so nothing is out of range.
                let _ = mine.add(&theirs);
            }
            (mine @ None, theirs) => *mine = theirs,
            (Some(_), None) => {}
        }
    }

    pub(super) fn quantile_ms(&self, quantile: f64) -> f64 {
        self.times.as_ref().map_or(0.0, |times| times.value_at_quantile(quantile) as f64 / 1e3)
    }
}

/// Counts of one operation of one profile.
#[derive(Debug, Clone, Default)]
pub(super) struct StressMeasure {
    pub(super) counts: OperationMeasure,
    /// Answered with "not supported".
    pub(super) unsupported: u64,
    /// Handed to a connection and never answered.
    pub(super) unanswered: u64,
}

/// A call that was answered, or given up.
pub(super) struct Outcome {
    pub(super) target: usize,
    pub(super) operation: StressOperation,
    pub(super) due: Duration,
    pub(super) answered: Duration,
    pub(super) retransmissions: u32,
    pub(super) verdict: Verdict,
    /// Bytes of data read and written.
    pub(super) bytes: (u64, u64),
}

/// All that is counted.
#[derive(Debug)]
pub(super) struct Account {
    phases: Phases,
    bin: Duration,
    pub(super) bins: Vec<Bin>,
    /// By profile and operation.
    pub(super) operations: BTreeMap<(usize, StressOperation), StressMeasure>,
    pub(super) lag: Times,
    pub(super) wanted: u64,
    /// Due while too many calls, or too many bytes, were on their way.
    pub(super) not_sent: u64,
    pub(super) bytes_read: u64,
    pub(super) bytes_written: u64,
    pub(super) errors: BTreeMap<(StressOperation, &'static str), u64>,
}

impl Account {
    pub(super) fn new(phases: Phases) -> Self {
        let bin = phases.bin();
        let bins = (phases.whole().as_secs_f64() / bin.as_secs_f64()).ceil().max(1.0) as usize;
        Self {
            phases,
            bin,
            bins: vec![Bin::default(); bins],
            operations: BTreeMap::new(),
            lag: Times::default(),
            wanted: 0,
            not_sent: 0,
            bytes_read: 0,
            bytes_written: 0,
            errors: BTreeMap::new(),
        }
    }

    fn bin_at(&mut self, at: Duration) -> Option<&mut Bin> {
        let place = (at.as_nanos() / self.bin.as_nanos().max(1)) as usize;
        self.bins.get_mut(place)
    }

    /// A call came due, and was handed to a connection or not.
    pub(super) fn due(&mut self, due: Duration, called: bool) {
        if let Some(bin) = self.bin_at(due) {
            bin.wanted += 1;
            bin.called += u64::from(called);
        }
        if self.phases.counts(due) {
            self.wanted += 1;
            self.not_sent += u64::from(!called);
        }
    }

    /// What was called; comes with every [`Account::due`] that says so.
    pub(super) fn called(&mut self, target: usize, operation: StressOperation, due: Duration) {
        if self.phases.counts(due) {
            self.operations.entry((target, operation)).or_default().counts.called += 1;
        }
    }

    /// A call was handed to the socket for the first time.
    pub(super) fn sent(&mut self, due: Duration, sent: Duration) {
        if self.phases.counts(due) {
            self.lag.record(sent.saturating_sub(due));
        }
    }

    pub(super) fn answered(&mut self, outcome: &Outcome) {
        let response = outcome.answered.saturating_sub(outcome.due);
        if let Some(bin) = self.bin_at(outcome.due) {
            bin.record(response);
        }
        if let Some(bin) = self.bin_at(outcome.answered) {
            match outcome.verdict {
                Verdict::Good => bin.good += 1,
                Verdict::Wrong(_) => bin.errors += 1,
                Verdict::Unsupported => {}
            }
        }
        if !self.phases.counts(outcome.due) {
            return;
        }
        let measure = self.operations.entry((outcome.target, outcome.operation)).or_default();
        measure.counts.retransmissions += u64::from(outcome.retransmissions);
        measure.counts.times.record(response);
        match outcome.verdict {
            Verdict::Good => {
                measure.counts.good += 1;
                self.bytes_read += outcome.bytes.0;
                self.bytes_written += outcome.bytes.1;
            }
            Verdict::Unsupported => measure.unsupported += 1,
            Verdict::Wrong(kind) => {
                measure.counts.errors += 1;
                *self.errors.entry((outcome.operation, kind)).or_default() += 1;
            }
        }
    }

    /// A call had no answer at the end.
    pub(super) fn unanswered(&mut self, target: usize, operation: StressOperation, due: Duration) {
        if self.phases.counts(due) {
            self.operations.entry((target, operation)).or_default().unanswered += 1;
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        for (mine, theirs) in self.bins.iter_mut().zip(other.bins) {
            mine.add(theirs);
        }
        for (key, theirs) in other.operations {
            let mine = self.operations.entry(key).or_default();
            mine.counts.add(&theirs.counts);
            mine.unsupported += theirs.unsupported;
            mine.unanswered += theirs.unanswered;
        }
        self.lag.add(&other.lag);
        self.wanted += other.wanted;
        self.not_sent += other.not_sent;
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
        for (kind, count) in other.errors {
            *self.errors.entry(kind).or_default() += count;
        }
    }
}
