//! The past of the demo's plex: what was asked for in the hours before, known from the workload without replaying them.

use crate::heat::{ClassCounts, FileCounts, FilePeriod, Handle, PeriodRecord, PeriodSpan};
use clockwork_traces::workload::{Workload, WorkloadError};
use fstress_replay::fileset::Handles;
use fstress_replay::plan::Mapping;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

/// How much more than the others a store has in its turn, for each time that it is as fast as the slowest, less one.
const LEARNING_LOAD: f64 = 1.3;

/// NFS calls on each handle, files and directories, that an hour of a workload makes.
struct CallsByHandle<'a> {
    workload: &'a Workload,
    handles: &'a Handles,
    mapping: Mapping,
    factor: f64,
}

impl CallsByHandle<'_> {
    /// Calls on each handle in an hour: reads, others.
    fn of(&self, hour: u32) -> Result<BTreeMap<&[u8], (f64, f64)>, WorkloadError> {
        let part = |every: u32| if every == 0 { 0.0 } else { 1.0 / f64::from(every) };
        let mut calls: BTreeMap<&[u8], (f64, f64)> = BTreeMap::new();
        for (index, rate) in self.workload.rates(hour)?.into_iter().enumerate() {
            let requests = rate * self.factor;
            let bytes = self.workload.files()[index].bytes;
            let file = calls.entry(&self.handles.files[index]).or_default();
            file.0 += requests * part(self.mapping.read_every) * f64::from(self.mapping.reads(bytes));
            file.1 += requests * (1.0 + part(self.mapping.access_every));
            let directory = calls.entry(&self.handles.directories[index]).or_default();
            directory.1 += requests * part(self.mapping.lookup_every);
        }
        Ok(calls)
    }
}

/// Periods of hours that were not replayed, as if they had been measured: what each file was asked for, and nothing of any
/// store. The period after the last of them begins at `end_unix_ms`. Hours that a site does not have are left out: they
/// are missing, not zero.
pub(crate) fn imported(
    workload: &Workload,
    handles: &Handles,
    factor: f64,
    hours: Range<u32>,
    hour: Duration,
    end_unix_ms: u64,
) -> Vec<PeriodRecord> {
    let calls = CallsByHandle { workload, handles, mapping: Mapping::default(), factor };
    let hour_ms = u64::try_from(hour.as_millis()).unwrap_or(u64::MAX);
    let mut carried: BTreeMap<&[u8], (f64, f64)> = BTreeMap::new();
    let mut records = Vec::new();
    for number in hours.clone() {
        let Ok(wanted) = calls.of(number) else { continue };
        let before_end = u64::from(hours.end - number) * hour_ms;
        let span = PeriodSpan { start_unix_ms: end_unix_ms.saturating_sub(before_end), length_ms: hour_ms };
        records.push(record(span, &wanted, &mut carried));
    }
    records
}

/// The record of one hour. What is less than a call is carried to the next hour, so that rare files are not lost.
fn record<'a>(
    span: PeriodSpan,
    wanted: &BTreeMap<&'a [u8], (f64, f64)>,
    carried: &mut BTreeMap<&'a [u8], (f64, f64)>,
) -> PeriodRecord {
    let mut whole = |handle: &'a [u8], (reads, others): (f64, f64)| {
        let left = carried.entry(handle).or_default();
        *left = (left.0 + reads, left.1 + others);
        let counts = (left.0.floor(), left.1.floor());
        *left = (left.0 - counts.0, left.1 - counts.1);
        ClassCounts { reads: counts.0 as u64, writes: 0, metadata: counts.1 as u64 }
    };
    let files = wanted.iter().filter_map(|(handle, calls)| {
        let calls = whole(handle, *calls);
        let counts = FileCounts { calls, ..FileCounts::default() };
        (calls.total() > 0).then_some(())?;
        Some(FilePeriod { handle: Handle::new(handle)?, store: 0, path: None, counts })
    });
    let files = files.collect();
    let mut record = PeriodRecord { span, stores: Vec::new(), files, other: FileCounts::default() };
    record.sort_files();
    record
}

/// The same periods, moved in time so that the first begins at `start_unix_ms`.
pub(crate) fn moved_to(records: &[PeriodRecord], start_unix_ms: u64, hour: Duration) -> Vec<PeriodRecord> {
    let hour_ms = u64::try_from(hour.as_millis()).unwrap_or(u64::MAX);
    let at = |number: usize| start_unix_ms.saturating_add(hour_ms.saturating_mul(number as u64));
    let moved = |(number, record): (usize, &PeriodRecord)| PeriodRecord {
        span: PeriodSpan { start_unix_ms: at(number), length_ms: hour_ms },
        ..record.clone()
    };
    records.iter().enumerate().map(moved).collect()
}

/// Heat of every handle over the last periods: what a static assignment is made from.
pub(crate) fn heat(records: &[PeriodRecord]) -> BTreeMap<Handle, f64> {
    let mut heat = BTreeMap::new();
    for file in records.iter().flat_map(|record| &record.files) {
        *heat.entry(file.handle).or_insert(0.0) += file.counts.calls.total() as f64;
    }
    heat
}

/// Shares of the stores in an hour of the day from which their response is learnt: in turn one of the faster ones has as
/// much as it will have when files are moved to it, since nobody can know how a store answers at loads that it never had.
/// Every fourth hour all have the same, as under the default rule.
pub(crate) fn learning_shares(hour: u32, stores: &[(&'static str, f64)]) -> Vec<(&'static str, f64)> {
    let turn = hour as usize % stores.len().max(1);
    let slowest = stores.iter().map(|(_, speed)| *speed).fold(f64::INFINITY, f64::min);
    let share = |(number, (name, speed)): (usize, &(&'static str, f64))| {
        (*name, if number == turn { LEARNING_LOAD * speed / slowest - LEARNING_LOAD + 1.0 } else { 1.0 })
    };
    stores.iter().enumerate().map(share).collect()
}

/// The static rival: every file assigned once, by somebody who knows how fast the stores are and what was asked for in the
/// past. In descending heat each goes to the store that is least loaded, for its speed, with it.
pub(crate) fn static_assignment(
    heat: &BTreeMap<Handle, f64>,
    stores: &[(&'static str, f64)],
) -> Vec<(Handle, &'static str)> {
    let mut files: Vec<(Handle, f64)> = heat.iter().map(|(handle, heat)| (*handle, *heat)).collect();
    files.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let mut loads = vec![0.0; stores.len()];
    let assign = |(handle, heat): (Handle, f64)| {
        let with = |store: &usize| (loads[*store] + heat) / stores[*store].1;
        let best = (0..stores.len()).min_by(|a, b| with(a).total_cmp(&with(b)))?;
        loads[best] += heat;
        Some((handle, stores[best].0))
    };
    files.into_iter().filter_map(assign).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clockwork_traces::workload::DEFAULT_WEIGHTS;
    use std::sync::Arc;

    fn handles(workload: &Workload) -> Handles {
        let file = |number: usize| Arc::from(number.to_be_bytes());
        let directory = |file: &clockwork_traces::workload::WorkloadFile| {
            Arc::from(file.path.rsplit_once('/').map_or("", |(directory, _)| directory).as_bytes())
        };
        Handles {
            files: (0..workload.files().len()).map(file).collect(),
            directories: workload.files().iter().map(directory).collect(),
        }
    }

    #[test]
    fn an_imported_past_has_the_calls_of_the_workload_hour_by_hour() {
        let workload = Workload::of_bundled(&DEFAULT_WEIGHTS, 1).unwrap();
        let handles = handles(&workload);
        let hour = Duration::from_millis(3_300);
        let records = imported(&workload, &handles, 0.05, 590..622, hour, 3_300 * 1_000);
        assert_eq!(records.len(), 32);
        assert_eq!(records.last().unwrap().span.start_unix_ms, 3_300 * 999);
        for (record, number) in records.iter().zip(590..) {
            let calls: u64 = record.files.iter().map(|file| file.counts.calls.total()).sum();
            let wanted = Mapping::default().calls(&workload, number).unwrap() * 0.05;
            // Carried remainders of some hundred handles.
            assert!((calls as f64 / wanted - 1.0).abs() < 0.1, "hour {number}: {calls} of {wanted}");
        }
        let all: u64 = records.iter().flat_map(|r| &r.files).map(|file| file.counts.calls.total()).sum();
        let wanted: f64 =
            (590..622).map(|hour| Mapping::default().calls(&workload, hour).unwrap() * 0.05).sum();
        assert!((all as f64 / wanted - 1.0).abs() < 0.01, "{all} of {wanted}");
        let moved = moved_to(&records, 66_000, hour);
        assert_eq!(moved[1].span.start_unix_ms, 69_300);
        assert_eq!(moved[1].files, records[1].files);
    }

    #[test]
    fn a_static_assignment_loads_stores_by_their_speeds() {
        let heat: BTreeMap<Handle, f64> =
            (1..=300_u32).map(|n| (Handle::new(&n.to_be_bytes()).unwrap(), 1000.0 / f64::from(n))).collect();
        let stores = [("a", 1.0), ("b", 2.0), ("c", 4.0)];
        let assigned = static_assignment(&heat, &stores);
        assert_eq!(assigned.len(), heat.len());
        for (name, speed) in stores {
            let load: f64 = assigned.iter().filter(|(_, store)| *store == name).map(|(h, _)| heat[h]).sum();
            let wanted = heat.values().sum::<f64>() * speed / 7.0;
            assert!((load / wanted - 1.0).abs() < 0.02, "{name}: {load} of {wanted}");
        }
    }
}
