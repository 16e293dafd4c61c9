//! Response times and counts, per operation and hour.
//!
//! A response time runs from the moment a call should have been sent to the moment its reply was read. The *lag* is how much
//! later than that moment the call was handed to the socket: it is the load generator's own error, and reported with every
//! hour so that nobody takes it for the server's.

use crate::plan::Operation;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Longest time that a histogram tells apart, in nanoseconds; what is longer counts as this.
const TIME_NS_MAX: u64 = 200_000_000_000;
/// Significant decimal digits of the quantiles.
const DIGITS: u8 = 3;
/// Kinds of errors kept apart in an hour; further ones count as `other`.
const ERROR_KINDS_MAX: usize = 32;

/// Times with mean, deviation and quantiles.
#[derive(Debug, Clone)]
pub struct Times {
    histogram: Option<Histogram<u64>>,
    sum_ms: f64,
    sum_squares: f64,
    max_ms: f64,
    count: u64,
}

/// A summary of times, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct TimeSummary {
    /// Times counted.
    pub count: u64,
    /// Mean.
    pub mean_ms: f64,
    /// Standard deviation.
    pub deviation_ms: f64,
    /// Median.
    pub p50_ms: f64,
    /// Quantile .95.
    pub p95_ms: f64,
    /// Quantile .99.
    pub p99_ms: f64,
    /// Quantile .999.
    pub p999_ms: f64,
    /// Quantile .9999.
    #[serde(default)]
    pub p9999_ms: f64,
    /// Largest.
    pub max_ms: f64,
}

impl TimeSummary {
    /// Mean, deviation, and the quantiles .5, .95, .99, .999 and .9999, in ms.
    #[must_use]
    pub fn figures(&self) -> [f64; 7] {
        [self.mean_ms, self.deviation_ms, self.p50_ms, self.p95_ms, self.p99_ms, self.p999_ms, self.p9999_ms]
    }
}

impl Default for Times {
    fn default() -> Self {
        // The bounds are constants that hdrhistogram takes; were they not, quantiles would read zero and the tests fail.
        let histogram = Histogram::new_with_bounds(1, TIME_NS_MAX, DIGITS).ok();
        Self { histogram, sum_ms: 0.0, sum_squares: 0.0, max_ms: 0.0, count: 0 }
    }
}

impl Times {
    /// Counts one time.
    pub fn record(&mut self, time: Duration) {
        if let Some(histogram) = &mut self.histogram {
            histogram.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(TIME_NS_MAX).max(1));
        }
        let ms = time.as_secs_f64() * 1e3;
        self.count += 1;
        self.sum_ms += ms;
        self.sum_squares += ms * ms;
        self.max_ms = self.max_ms.max(ms);
    }

    /// Adds what another has counted.
    pub fn add(&mut self, other: &Self) {
        if let (Some(mine), Some(theirs)) = (&mut self.histogram, &other.histogram) {
            // Both have the same bounds, so nothing is out of range.
            let _ = mine.add(theirs);
        }
        self.count += other.count;
        self.sum_ms += other.sum_ms;
        self.sum_squares += other.sum_squares;
        self.max_ms = self.max_ms.max(other.max_ms);
    }

    /// The summary; all zero where nothing was counted.
    #[must_use]
    pub fn summary(&self) -> TimeSummary {
        if self.count == 0 {
            return TimeSummary::default();
        }
        let count = self.count as f64;
        let mean_ms = self.sum_ms / count;
        let quantile = |p| {
            let histogram = self.histogram.as_ref();
            histogram.map_or(0.0, |histogram| histogram.value_at_quantile(p) as f64 / 1e6)
        };
        TimeSummary {
            count: self.count,
            mean_ms,
            deviation_ms: (self.sum_squares / count - mean_ms * mean_ms).max(0.0).sqrt(),
            p50_ms: quantile(0.5),
            p95_ms: quantile(0.95),
            p99_ms: quantile(0.99),
            p999_ms: quantile(0.999),
            p9999_ms: quantile(0.9999),
            max_ms: self.max_ms,
        }
    }
}

/// Counts of one operation.
#[derive(Debug, Clone, Default)]
pub struct OperationMeasure {
    /// Calls handed to the client.
    pub called: u64,
    /// Calls answered as they should be.
    pub good: u64,
    /// Calls answered otherwise, or not at all.
    pub errors: u64,
    /// Transmissions beyond the first.
    pub retransmissions: u64,
    /// Response times of all calls that were answered.
    pub times: Times,
}

impl OperationMeasure {
    /// Adds what another has counted.
    pub fn add(&mut self, other: &Self) {
        self.called += other.called;
        self.good += other.good;
        self.errors += other.errors;
        self.retransmissions += other.retransmissions;
        self.times.add(&other.times);
    }
}

/// What is measured in an hour.
#[derive(Debug, Clone, Default)]
pub struct HourMeasure {
    /// Requests of the workload that came due.
    pub requests_due: u64,
    /// Requests whose first call was handed to the client.
    pub requests: u64,
    /// Calls that came due.
    pub wanted: u64,
    /// Requests for which the model client's caches had everything, so that nothing was called.
    pub cached: u64,
    /// Requests that came due and write.
    pub writes_due: u64,
    /// Requests that came due and concern metadata alone.
    pub metadata_due: u64,
    /// Requests whose data was written again because the server may have lost it before its COMMIT.
    pub written_again: u64,
    /// Calls answered with STALE, whose requests were begun again as a client does; neither good nor errors.
    pub stale: u64,
    /// Calls that came due while the limit of outstanding calls was reached, and were not sent.
    pub not_sent: u64,
    /// Calls handed to the client that have not been answered.
    pub outstanding: u64,
    /// Per operation, in the order of [`Operation::ALL`].
    pub operations: [OperationMeasure; Operation::ALL.len()],
    /// How late calls were handed to the socket.
    pub lag: Times,
    /// What the errors were.
    pub error_kinds: BTreeMap<String, u64>,
}

impl HourMeasure {
    /// The measure of an operation.
    pub fn operation(&mut self, operation: Operation) -> &mut OperationMeasure {
        &mut self.operations[operation as usize]
    }

    /// Counts an error by kind.
    pub fn error(&mut self, kind: &str) {
        let known = self.error_kinds.len() < ERROR_KINDS_MAX || self.error_kinds.contains_key(kind);
        *self.error_kinds.entry(if known { kind } else { "other" }.to_owned()).or_default() += 1;
    }

    /// Adds what another hour has counted.
    pub fn add(&mut self, other: &Self) {
        self.requests_due += other.requests_due;
        self.requests += other.requests;
        self.cached += other.cached;
        self.stale += other.stale;
        self.writes_due += other.writes_due;
        self.metadata_due += other.metadata_due;
        self.written_again += other.written_again;
        self.wanted += other.wanted;
        self.not_sent += other.not_sent;
        self.outstanding += other.outstanding;
        for (mine, theirs) in self.operations.iter_mut().zip(&other.operations) {
            mine.add(theirs);
        }
        self.lag.add(&other.lag);
        for (kind, count) in &other.error_kinds {
            let known = self.error_kinds.len() < ERROR_KINDS_MAX || self.error_kinds.contains_key(kind);
            *self.error_kinds.entry(if known { kind } else { "other" }.to_owned()).or_default() += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_that_of_the_times() {
        let mut times = Times::default();
        for ms in 1..=1000 {
            times.record(Duration::from_millis(ms));
        }
        let summary = times.summary();
        assert_eq!(summary.count, 1000);
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 0.002;
        assert!(near(summary.mean_ms, 500.5) && near(summary.deviation_ms, 288.67), "{summary:?}");
        assert!(near(summary.p50_ms, 500.0) && near(summary.p95_ms, 950.0), "{summary:?}");
        assert!(near(summary.p99_ms, 990.0) && near(summary.p999_ms, 999.0), "{summary:?}");
        assert!(near(summary.p9999_ms, 1000.0), "{summary:?}");
        assert!(near(summary.max_ms, 1000.0));
        assert_eq!(Times::default().summary(), TimeSummary::default());
    }

    #[test]
    fn sums_of_hours_are_those_of_their_calls() {
        let (mut whole, mut one, mut two) =
            (HourMeasure::default(), HourMeasure::default(), HourMeasure::default());
        for i in 0..100 {
            let part = if i % 3 == 0 { &mut one } else { &mut two };
            for measure in [&mut whole, part] {
                measure.wanted += 1;
                measure.operation(Operation::Read).times.record(Duration::from_micros(10 + i));
                measure.error(&format!("kind {}", i % 40));
            }
        }
        let mut sum = HourMeasure::default();
        sum.add(&one);
        sum.add(&two);
        assert_eq!(sum.wanted, whole.wanted);
        let times = |measure: &HourMeasure| measure.operations[Operation::Read as usize].times.summary();
        assert_eq!(times(&sum).p95_ms, times(&whole).p95_ms);
        assert!(sum.error_kinds.len() <= ERROR_KINDS_MAX + 1);
        assert_eq!(sum.error_kinds.values().sum::<u64>(), 100);
    }

    #[test]
    fn times_beyond_all_bounds_are_counted() {
        let mut times = Times::default();
        times.record(Duration::ZERO);
        times.record(Duration::from_secs(1 << 40));
        assert_eq!(times.summary().count, 2);
    }
}
