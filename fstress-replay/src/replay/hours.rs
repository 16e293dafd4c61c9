//! Hours put together from the parts of the lanes, and the report of them all.

use super::ReplaySpec;
use super::work::{ClosedPart, TraceWork};
use crate::measure::HourMeasure;
use crate::report::{HourReport, Outcome, ReplayReport, RunFacts, Summary, Unmeasured};
use std::collections::BTreeMap;
use std::time::Duration;

/// The hours of a replay as they are closed: their histograms are summed up and dropped.
pub(super) struct Hours<'a> {
    spec: &'a ReplaySpec,
    lanes: usize,
    /// Parts that have come, and their sum.
    open: BTreeMap<u32, (usize, HourMeasure)>,
    closed: BTreeMap<u32, HourReport>,
    total: HourMeasure,
}

impl<'a> Hours<'a> {
    pub(super) fn new(spec: &'a ReplaySpec, lanes: usize) -> Self {
        Self { spec, lanes, open: BTreeMap::new(), closed: BTreeMap::new(), total: HourMeasure::default() }
    }

    /// When an hour begins, from the start.
    pub(super) fn begin(&self, hour: u32) -> Duration {
        let before = hour.saturating_sub(self.spec.hours.start);
        self.spec.run.warmup + self.spec.pace().hour_length.saturating_mul(before)
    }

    /// A lane's part of an hour has come. With the last one the hour is over.
    pub(super) fn add(&mut self, (hour, part): ClosedPart) {
        let (parts, sum) = self.open.entry(hour).or_default();
        *parts += 1;
        if let Some(part) = part {
            sum.add(&part);
        }
        if *parts >= self.lanes {
            self.close(hour, 1.0);
        }
    }

    /// Closes an hour of which a `part` was replayed, 1 for all of it.
    fn close(&mut self, hour: u32, part: f64) {
        let (_, measure) = self.open.remove(&hour).unwrap_or_default();
        self.total.add(&measure);
        let spec = self.spec;
        let expected = spec.workload.requests(hour).unwrap_or(0.0) * spec.rate_factor;
        let summary = Summary::of(&measure, spec.seconds_per_hour * part, expected * part);
        self.closed.insert(hour, HourReport { hour, complete: part >= 1.0, summary });
    }

    /// The report, with what the lanes have left.
    pub(super) fn finish(mut self, lanes: Vec<TraceWork>, stopped_after: Option<Duration>) -> ReplayReport {
        let spec = self.spec;
        let (mut outside, mut replaced, mut evicted) = (HourMeasure::default(), 0, 0);
        for mut lane in lanes {
            for (hour, measure) in lane.left() {
                self.open.entry(hour).or_default().1.add(&measure);
            }
            outside.add(&lane.outside);
            replaced += lane.replaced;
            evicted += lane.evicted();
        }
        for hour in spec.hours.clone().filter(|hour| !self.closed.contains_key(hour)).collect::<Vec<_>>() {
            let gone = |after: Duration| {
                let since = after.saturating_sub(self.begin(hour)).as_secs_f64();
                (since / spec.seconds_per_hour).min(1.0)
            };
            let part = stopped_after.map_or(1.0, gone);
            if part > 0.0 || self.open.contains_key(&hour) {
                self.close(hour, part);
            }
        }
        let hours: Vec<HourReport> = self.closed.into_values().collect();
        let sum = |field: fn(&Summary) -> f64| hours.iter().map(|hour| field(&hour.summary)).sum();
        let total = Summary::of(&self.total, sum(|s| s.seconds), sum(|s| s.requests_expected));
        let outcome = Outcome {
            is_open_loop: true,
            lag: &total.lag,
            called: total.called,
            wanted: total.wanted,
            not_sent: total.not_sent,
            interrupted: stopped_after.is_some(),
        };
        ReplayReport {
            run: RunFacts::of(&spec.run, outcome),
            sites: spec.workload.sites().iter().map(|site| site.name.clone()).collect(),
            files: spec.workload.files().len(),
            seconds_per_hour: spec.seconds_per_hour,
            rate_factor: spec.rate_factor,
            model: spec.model,
            mapping: spec.mapping,
            warmup: Unmeasured::of(&outside, spec.run.warmup, spec.run.cooldown),
            handles_replaced: replaced,
            cache_entries_evicted: evicted,
            total,
            hours,
        }
    }
}
