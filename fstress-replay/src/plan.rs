//! Which calls are due when: the requests of a workload as NFS calls with absolute deadlines.
//!
//! One request is what a web server does to answer it from an NFS mount: it looks the name up, asks for access, revalidates
//! the attributes, and reads the file by `read_bytes`, where its caches do not have these already. The caches of such a client
//! are modelled by what they let through: every `lookup_every`-th request of a file goes to the directory, every
//! `access_every`-th asks for access, every `read_every`-th reads, and every request revalidates (close-to-open consistency).
//! Over the day from hour 622 of the bundled workload the default values give GETATTR 51, READ 33, LOOKUP 13 and ACCESS 3 %
//! of the calls; Fstress' web server has 55, 28, 14 and 1, and 2 of others.

use clockwork_traces::workload::{Arrivals, Workload, WorkloadError};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
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
}

impl Operation {
    /// All operations, in the order in which a request issues them.
    pub const ALL: [Self; 4] = [Self::Lookup, Self::Access, Self::Getattr, Self::Read];

    /// The name as RFC 1813 writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Lookup => "LOOKUP",
            Self::Access => "ACCESS",
            Self::Getattr => "GETATTR",
            Self::Read => "READ",
        }
    }
}

/// How one request becomes NFS calls.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Mapping {
    /// A file's name is looked up at every so many of its requests; 0: never.
    pub lookup_every: u32,
    /// Access to a file is asked for at every so many of its requests; 0: never.
    pub access_every: u32,
    /// A file is read at every so many of its requests; 0: never.
    pub read_every: u32,
    /// Bytes of a READ; less if the server takes less.
    pub read_bytes: u32,
    /// Most READs of a request: what is longer is read to there only.
    pub reads_max: u32,
    /// Time between the calls of one request, in ms.
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

    /// Calls that a request for a file of `bytes` makes in the mean.
    #[must_use]
    pub fn calls_per_request(&self, bytes: u64) -> f64 {
        let every = |n: u32| if n == 0 { 0.0 } else { 1.0 / f64::from(n) };
        1.0 + every(self.lookup_every)
            + every(self.access_every)
            + every(self.read_every) * f64::from(self.reads(bytes))
    }

    /// NFS calls expected in an hour of the workload at factor 1.
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

/// One call and when it is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedCall {
    /// When it should be sent, from the start of the replay.
    pub due: Duration,
    /// The hour of the workload that its request belongs to.
    pub hour: u32,
    /// What it asks.
    pub operation: Operation,
    /// Index of the file in the workload.
    pub file: u32,
    /// Whether it is the first call of its request.
    pub first: bool,
    /// First byte to read, for a READ.
    pub offset: u64,
    /// Bytes to read, for a READ.
    pub count: u32,
}

/// What is replayed, and how fast.
#[derive(Debug, Clone, PartialEq)]
pub struct Pace {
    /// The hours of the workload.
    pub hours: Range<u32>,
    /// What an hour becomes.
    pub hour_length: Duration,
    /// Requests are this times the workload's.
    pub factor: f64,
    /// How a request becomes calls.
    pub mapping: Mapping,
}

/// The calls of several hours in the order in which they are due, the same in every run.
#[derive(Debug)]
pub struct Schedule<'a> {
    workload: &'a Workload,
    pace: Pace,
    hour: u32,
    arrivals: Option<Arrivals>,
    /// Requests so far of each file: decides which of them go to the directory. Starts at a phase of its own for each file, as
    /// the caches of a client that has been running for long.
    requests: Vec<u32>,
    /// Calls of requests that have arrived; a request has few, so this stays small.
    upcoming: BinaryHeap<Reverse<Upcoming>>,
    /// The next request, known but not yet turned into calls.
    next: Option<(Duration, u32, u32)>,
    sequence: u64,
}

#[derive(Debug)]
struct Upcoming {
    sequence: u64,
    call: PlannedCall,
}

impl PartialEq for Upcoming {
    fn eq(&self, other: &Self) -> bool {
        self.sequence == other.sequence
    }
}

impl Eq for Upcoming {}

impl PartialOrd for Upcoming {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Upcoming {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.call.due, self.sequence).cmp(&(other.call.due, other.sequence))
    }
}

impl<'a> Schedule<'a> {
    /// The schedule of a workload. All hours are looked at first, so that nothing can go wrong later.
    ///
    /// # Errors
    /// An hour that the workload lacks, or a factor or length that makes no sense.
    pub fn new(workload: &'a Workload, pace: Pace) -> Result<Self, WorkloadError> {
        for hour in pace.hours.clone() {
            workload.arrivals(hour, pace.hour_length, pace.factor)?;
        }
        let phase = |file: usize| {
            let bytes = (file as u64 ^ workload.seed()).to_le_bytes();
            u32::try_from(xxhash_rust::xxh3::xxh3_64(&bytes) >> 40).unwrap_or(0)
        };
        let mut schedule = Self {
            workload,
            hour: pace.hours.start,
            pace,
            arrivals: None,
            requests: (0..workload.files().len()).map(phase).collect(),
            upcoming: BinaryHeap::new(),
            next: None,
            sequence: 0,
        };
        schedule.next = schedule.next_request();
        Ok(schedule)
    }

    /// The next request: when, in which hour, for which file.
    fn next_request(&mut self) -> Option<(Duration, u32, u32)> {
        loop {
            if let Some(arrival) = self.arrivals.as_mut().and_then(Iterator::next) {
                // `hour` is already the one after that of the arrivals.
                let hour = self.hour - 1;
                let start = self.pace.hour_length * (hour - self.pace.hours.start);
                return Some((start + arrival.offset, hour, arrival.file));
            }
            if self.hour >= self.pace.hours.end {
                return None;
            }
            // `new` has tried every hour.
            self.arrivals = self.workload.arrivals(self.hour, self.pace.hour_length, self.pace.factor).ok();
            self.hour += 1;
        }
    }

    fn expand(&mut self, (at, hour, file): (Duration, u32, u32)) {
        let index = file as usize;
        let (Some(spec), Some(number)) = (self.workload.files().get(index), self.requests.get_mut(index))
        else {
            return;
        };
        let mapping = self.pace.mapping;
        let due_now = |every: u32| every != 0 && number.is_multiple_of(every);
        let mut calls: Vec<(Operation, u64, u32)> = Vec::with_capacity(4);
        if due_now(mapping.lookup_every) {
            calls.push((Operation::Lookup, 0, 0));
        }
        if due_now(mapping.access_every) {
            calls.push((Operation::Access, 0, 0));
        }
        calls.push((Operation::Getattr, 0, 0));
        let reads = if due_now(mapping.read_every) { mapping.reads(spec.bytes) } else { 0 };
        for piece in 0..reads {
            let offset = u64::from(piece) * u64::from(mapping.read_bytes);
            let left = spec.bytes - offset;
            let count = u32::try_from(left).unwrap_or(u32::MAX).min(mapping.read_bytes);
            calls.push((Operation::Read, offset, count));
        }
        *number = number.wrapping_add(1);
        let mut due = at;
        for (index, (operation, offset, count)) in calls.into_iter().enumerate() {
            let call = PlannedCall { due, hour, operation, file, first: index == 0, offset, count };
            self.upcoming.push(Reverse(Upcoming { sequence: self.sequence, call }));
            self.sequence += 1;
            due += mapping.call_gap();
        }
    }
}

impl Iterator for Schedule<'_> {
    type Item = PlannedCall;

    fn next(&mut self) -> Option<PlannedCall> {
        // A call may be given out only when no request that is still to be expanded can come before it.
        while let Some(request) = self.next {
            if self.upcoming.peek().is_some_and(|Reverse(first)| first.call.due <= request.0) {
                break;
            }
            self.expand(request);
            self.next = self.next_request();
        }
        self.upcoming.pop().map(|Reverse(upcoming)| upcoming.call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(factor: f64) -> Pace {
        Pace { hours: 622..646, hour_length: Duration::from_secs(7), factor, mapping: Mapping::default() }
    }

    #[test]
    fn calls_are_in_order_and_complete() {
        let workload = Workload::bundled().unwrap();
        let calls: Vec<PlannedCall> = Schedule::new(&workload, pace(0.02)).unwrap().collect();
        assert!(calls.windows(2).all(|pair| pair[0].due <= pair[1].due));
        for hour in 622..646 {
            let requests = calls.iter().filter(|call| call.hour == hour && call.first).count();
            let expected = workload.requests(hour).unwrap() * 0.02;
            assert!((requests as f64 - expected).abs() <= 0.5, "hour {hour}: {requests} of {expected}");
        }
        // Every piece of every file lies within it.
        for call in calls.iter().filter(|call| call.operation == Operation::Read) {
            let bytes = workload.files()[call.file as usize].bytes;
            assert!(call.count > 0 && call.offset + u64::from(call.count) <= bytes);
        }
    }

    #[test]
    fn the_factor_gives_the_rate_that_was_asked_for() {
        let workload = Workload::bundled().unwrap();
        let mapping = Mapping::default();
        let factor = mapping.factor_for_mean(&workload, 622..646, 7.0, 500.0).unwrap();
        let calls = Schedule::new(&workload, pace(factor)).unwrap().count() as f64;
        let rate = calls / (24.0 * 7.0);
        assert!((rate / 500.0 - 1.0).abs() < 0.02, "{rate}");
        let factor = mapping.factor_for_peak(&workload, 622..646, 7.0, 500.0).unwrap();
        let mut hours = [0.0; 24];
        for call in Schedule::new(&workload, pace(factor)).unwrap() {
            hours[(call.hour - 622) as usize] += 1.0 / 7.0;
        }
        let peak = hours.iter().fold(0.0_f64, |a, b| a.max(*b));
        assert!((peak / 500.0 - 1.0).abs() < 0.04, "{hours:?}");
    }

    #[test]
    fn shares_of_operations_are_those_of_the_mapping() {
        let workload = Workload::bundled().unwrap();
        let calls: Vec<PlannedCall> = Schedule::new(&workload, pace(0.1)).unwrap().collect();
        let count = |op| calls.iter().filter(|call| call.operation == op).count() as f64;
        let percent = |op| (count(op) * 100.0 / calls.len() as f64).round();
        // As the documentation of this module says.
        assert_eq!(Operation::ALL.map(percent), [13.0, 3.0, 51.0, 33.0]);
        let requests = count(Operation::Getattr);
        assert!((count(Operation::Lookup) / requests - 0.25).abs() < 0.01);
        assert!((count(Operation::Access) / requests - 0.0625).abs() < 0.01);
    }

    #[test]
    fn an_hour_that_is_missing_is_refused_at_the_start() {
        let workload = Workload::bundled().unwrap();
        let late = Pace { hours: 650..670, ..pace(1.0) };
        assert!(matches!(Schedule::new(&workload, late), Err(WorkloadError::Hour { hour: 662, .. })));
    }
}
