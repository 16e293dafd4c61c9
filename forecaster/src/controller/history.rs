//! What was measured in past periods.

use std::collections::HashMap;
use std::sync::Arc;

use super::reports::{FileId, PeriodReport};
use crate::response::Observation;
use crate::series::signed;

/// Most files that a [`MemoryHistory`] lists; requests of others are unlisted.
pub const HISTORY_FILES_MAX: usize = 1 << 24;
/// Most periods that a [`MemoryHistory`] keeps.
pub const HISTORY_PERIODS_MAX: usize = 1 << 20;

/// What was measured in past periods. Periods are numbered as in [`PeriodReport::period`].
pub trait History: Sync {
    /// The newest period recorded.
    fn last_period(&self) -> Option<i64>;
    /// Records a period later than all others.
    fn append(&mut self, report: &PeriodReport);
    /// Forgets a period and all after it: the clock went wrong.
    fn forget_from(&mut self, period: i64);
    /// One more than the largest number of a file recorded.
    fn files(&self) -> usize;
    /// All requests of the periods from `first` on, into `out`; NaN where there is no measurement.
    fn totals(&self, first: i64, out: &mut [f64]);
    /// The requests of a file in the periods from `first` on, into `out`; NaN where there is no measurement.
    fn file(&self, file: FileId, first: i64, out: &mut [f64]);
    /// What was measured of a store in each period from `first` to the newest, oldest first; periods in which it was not
    /// measured have a load of 0 and a response of NaN.
    fn store(&self, name: &str, first: i64, out: &mut Vec<Observation>);
}

/// A history in memory.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryHistory {
    periods_max: usize,
    /// Periods recorded and their totals, oldest first.
    totals: Vec<(i64, f64)>,
    /// Requests of each file in the periods in which it had any: period (less the first one ever), count.
    files: Vec<Vec<(u32, f32)>>,
    stores: HashMap<Arc<str>, Vec<(i64, Observation)>>,
    /// What period numbers in `files` count from.
    origin: i64,
    /// Periods recorded since the last time old ones were dropped.
    since_pruned: usize,
}

impl Default for MemoryHistory {
    fn default() -> Self {
        Self::new(1344)
    }
}

impl MemoryHistory {
    /// An empty history that keeps `periods_max` periods (1 to [`HISTORY_PERIODS_MAX`]) and up to a quarter more, since old
    /// ones are dropped many at a time.
    pub fn new(periods_max: usize) -> Self {
        Self {
            periods_max: periods_max.clamp(1, HISTORY_PERIODS_MAX),
            totals: Vec::new(),
            files: Vec::new(),
            stores: HashMap::new(),
            origin: 0,
            since_pruned: 0,
        }
    }

    /// Periods recorded.
    pub fn periods(&self) -> usize {
        self.totals.len()
    }

    fn offset(&self, period: i64) -> Option<u32> {
        u32::try_from(period.checked_sub(self.origin)?).ok()
    }

    /// Drops what is older than `periods_max` periods.
    fn prune(&mut self) {
        let Some(last) = self.last_period() else { return };
        let first = last.saturating_sub(signed(self.periods_max) - 1);
        self.totals.retain(|(period, _)| *period >= first);
        let kept = self.offset(first).unwrap_or(0);
        for counts in &mut self.files {
            let old = counts.partition_point(|c| c.0 < kept);
            counts.drain(..old);
        }
        for observed in self.stores.values_mut() {
            observed.retain(|(period, _)| *period >= first);
        }
        self.stores.retain(|_, observed| !observed.is_empty());
        self.since_pruned = 0;
    }

    /// Makes what was counted of one file another's past, adding up where both were counted in a period. The first has
    /// none then.
    pub(super) fn join(&mut self, from: FileId, into: FileId) {
        if from == into || into.index() >= HISTORY_FILES_MAX {
            return;
        }
        let Some(counts) = self.files.get_mut(from.index()).map(std::mem::take) else { return };
        if into.index() >= self.files.len() {
            self.files.resize_with(into.index() + 1, Vec::new);
        }
        let joined = &mut self.files[into.index()];
        joined.extend(counts);
        joined.sort_by_key(|count| count.0);
        joined.dedup_by(|later, kept| {
            let same = later.0 == kept.0;
            kept.1 += if same { later.1 } else { 0.0 };
            same
        });
    }

    /// Counts all file entries anew from `origin`: after a jump of the clock that 32 bits do not span.
    fn restart(&mut self, origin: i64) {
        self.totals.clear();
        self.stores.clear();
        self.files.iter_mut().for_each(Vec::clear);
        self.origin = origin;
    }
}

impl History for MemoryHistory {
    fn last_period(&self) -> Option<i64> {
        self.totals.last().map(|t| t.0)
    }

    fn append(&mut self, report: &PeriodReport) {
        if self.last_period().is_some_and(|last| report.period <= last) {
            return;
        }
        if self.totals.is_empty() {
            self.restart(report.period);
        }
        let offset = match self.offset(report.period) {
            Some(offset) => offset,
            None => {
                self.restart(report.period);
                0
            }
        };
        self.totals.push((report.period, report.total()));
        for (file, requests) in report.files.iter().filter(|f| f.1 > 0.0) {
            if file.index() >= HISTORY_FILES_MAX {
                continue;
            }
            if file.index() >= self.files.len() {
                self.files.resize_with(file.index() + 1, Vec::new);
            }
            let counts = &mut self.files[file.index()];
            match counts.last_mut() {
                Some(last) if last.0 == offset => last.1 += *requests as f32,
                _ => counts.push((offset, *requests as f32)),
            }
        }
        for store in &report.stores {
            let observation =
                Observation { load: store.requests, response: store.response_ms, saturated: store.saturated };
            match self.stores.get_mut(&store.name) {
                Some(observed) => observed.push((report.period, observation)),
                None => {
                    self.stores.insert(store.name.clone(), vec![(report.period, observation)]);
                }
            }
        }
        self.since_pruned += 1;
        if self.since_pruned > self.periods_max / 4 && self.totals.len() > self.periods_max {
            self.prune();
        }
    }

    fn forget_from(&mut self, period: i64) {
        self.totals.retain(|t| t.0 < period);
        let from = self.offset(period).unwrap_or(0);
        for counts in &mut self.files {
            let kept = counts.partition_point(|c| c.0 < from);
            counts.truncate(kept);
        }
        for observed in self.stores.values_mut() {
            observed.retain(|o| o.0 < period);
        }
    }

    fn files(&self) -> usize {
        self.files.len()
    }

    fn totals(&self, first: i64, out: &mut [f64]) {
        out.fill(f64::NAN);
        let from = self.totals.partition_point(|t| t.0 < first);
        for (period, total) in &self.totals[from..] {
            if let Some(place) = place(out, period.saturating_sub(first)) {
                *place = *total;
            }
        }
    }

    fn file(&self, file: FileId, first: i64, out: &mut [f64]) {
        self.totals(first, out);
        out.iter_mut().filter(|v| !v.is_nan()).for_each(|v| *v = 0.0);
        let Some(counts) = self.files.get(file.index()) else { return };
        let from = self.offset(first).map_or(0, |first| counts.partition_point(|c| c.0 < first));
        for (offset, count) in &counts[from..] {
            let after = self.origin.saturating_add(i64::from(*offset)).saturating_sub(first);
            if let Some(place) = place(out, after) {
                *place = f64::from(*count);
            }
        }
    }

    fn store(&self, name: &str, first: i64, out: &mut Vec<Observation>) {
        out.clear();
        let Some(observed) = self.stores.get(name) else { return };
        let from = observed.partition_point(|o| o.0 < first);
        let Some(last) = self.last_period() else { return };
        let nothing = Observation { load: 0.0, response: f64::NAN, saturated: false };
        let mut next = observed.get(from).map_or(first, |o| o.0);
        for (period, observation) in &observed[from..] {
            let gap = usize::try_from(period.saturating_sub(next)).unwrap_or(0);
            out.extend(std::iter::repeat_n(nothing, gap.min(HISTORY_PERIODS_MAX)));
            out.push(*observation);
            next = period.saturating_add(1);
        }
        let gap = usize::try_from(last.saturating_add(1).saturating_sub(next)).unwrap_or(0);
        out.extend(std::iter::repeat_n(nothing, gap.min(HISTORY_PERIODS_MAX)));
    }
}

fn place(out: &mut [f64], index: i64) -> Option<&mut f64> {
    out.get_mut(usize::try_from(index).ok()?)
}
