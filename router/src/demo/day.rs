//! A day of traffic on a plex whose periods are the day's hours.

use super::plex::{DemoPlex, EXPORT};
use super::show::Progress;
use crate::heat::{FileCounts, PeriodRecord, PeriodSpan};
use crate::plex::Plex;
use anyhow::Context as _;
use clockwork_traces::workload::Workload;
use fstress_replay::plan::Mapping;
use fstress_replay::replay::{self, Prepared, ReplaySpec, Stop};
use fstress_replay::report::ReplayReport;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Between the preparations and the first hour, at the least.
pub(crate) const LEAD: Duration = Duration::from_millis(300);
/// How long a closed period is waited for, beyond its end.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is replayed.
#[derive(Clone)]
pub(crate) struct Traffic {
    pub(crate) workload: Arc<Workload>,
    /// What an hour becomes, and how long a period of the plex is.
    pub(crate) hour: Duration,
    /// Requests are this times the workload's.
    pub(crate) factor: f64,
}

impl Traffic {
    /// Traffic whose busiest of `hours` has so many NFS calls a second.
    pub(crate) fn new(
        workload: Arc<Workload>,
        hours: Range<u32>,
        hour: Duration,
        peak_calls_per_second: f64,
    ) -> anyhow::Result<Self> {
        let mapping = Mapping::default();
        let factor = mapping.factor_for_peak(&workload, hours, hour.as_secs_f64(), peak_calls_per_second)?;
        Ok(Self { workload, hour, factor })
    }

    /// Looks the files up through the plex.
    pub(crate) async fn prepare(
        &self,
        demo: &DemoPlex,
        hours: Range<u32>,
        progress: &Progress,
    ) -> anyhow::Result<Prepared> {
        let mut spec = ReplaySpec::new(demo.address(), EXPORT, Arc::clone(&self.workload));
        spec.hours = hours;
        spec.seconds_per_hour = self.hour.as_secs_f64();
        spec.rate_factor = self.factor;
        Ok(replay::prepare(spec, &progress.events()).await?)
    }
}

/// What came of a day.
pub(crate) struct Day {
    /// The periods that were the day's hours.
    pub(crate) records: Vec<PeriodRecord>,
    /// What the clients saw.
    pub(crate) replayed: ReplayReport,
    /// Number of the first period since 1970.
    pub(crate) first_period: i64,
}

/// Replays hours; the first begins with a period of the plex, at `start_unix_ms` if that is still to come.
pub(crate) async fn replay_day(
    plex: &Arc<Plex>,
    prepared: Prepared,
    start_unix_ms: Option<u64>,
    progress: &Progress,
) -> anyhow::Result<Day> {
    let hour = Duration::from_secs_f64(prepared.spec().seconds_per_hour);
    let hours = prepared.spec().hours.len();
    let (start, start_unix_ms) = match start_unix_ms {
        Some(start_unix_ms) => (moment(start_unix_ms)?, start_unix_ms),
        None => {
            let start_unix_ms = next_period_unix_ms(hour, LEAD);
            (moment(start_unix_ms)?, start_unix_ms)
        }
    };
    let stop = Stop::default();
    let on_interrupt = stop.clone();
    let interrupt = tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            on_interrupt.stop();
        }
    });
    let events = progress.events();
    let replayed = prepared.run(start, &stop, &events).await;
    interrupt.abort();
    progress.finish();
    let replayed = replayed?;
    anyhow::ensure!(!replayed.run.interrupted, "interrupted before the day was over: no report");
    let records = closed(plex, start_unix_ms, hour, hours).await?;
    let hour_ms = u64::try_from(hour.as_millis())?.max(1);
    Ok(Day { records, replayed, first_period: i64::try_from(start_unix_ms / hour_ms)? })
}

/// The first begin of a period that is at least `lead` away, in milliseconds since 1970.
pub(crate) fn next_period_unix_ms(period: Duration, lead: Duration) -> u64 {
    let period_ms = u64::try_from(period.as_millis()).unwrap_or(u64::MAX).max(1);
    let earliest = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() + lead;
    (u64::try_from(earliest.as_millis()).unwrap_or(u64::MAX) / period_ms + 1).saturating_mul(period_ms)
}

/// A moment of the wall clock on the other clock.
pub(crate) fn moment(unix_ms: u64) -> anyhow::Result<Instant> {
    let (now, since) = (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH)?);
    let wait = Duration::from_millis(unix_ms).checked_sub(since);
    Ok(now
        + wait.context("the preparations took longer than planned: this machine is too busy for the demo")?)
}

/// The periods of the day, once the last of them is closed.
async fn closed(
    plex: &Plex,
    start_unix_ms: u64,
    hour: Duration,
    hours: usize,
) -> anyhow::Result<Vec<PeriodRecord>> {
    let begin = Instant::now();
    let hour_ms = u64::try_from(hour.as_millis())?.max(1);
    let end_unix_ms = start_unix_ms + hour_ms * hours as u64;
    // A period closes when a timer wakes up, some milliseconds late: it is known by its middle.
    let middle = |record: &PeriodRecord| record.span.start_unix_ms + record.span.length_ms / 2;
    loop {
        let recent = plex.recent(2 * hours);
        let over = recent
            .last()
            .is_some_and(|last| last.span.start_unix_ms + last.span.length_ms + hour_ms / 2 > end_unix_ms);
        if over {
            let of = |number: u64| {
                let span = PeriodSpan { start_unix_ms: start_unix_ms + number * hour_ms, length_ms: hour_ms };
                let found = recent.iter().find(|record| {
                    (span.start_unix_ms..span.start_unix_ms + hour_ms).contains(&middle(record))
                });
                found.map_or_else(|| nothing(span), |record| PeriodRecord::clone(record))
            };
            return Ok((0..hours as u64).map(of).collect());
        }
        anyhow::ensure!(begin.elapsed() < hour + PATIENCE, "the day's last period was not closed");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// An hour that was not measured by itself: the machine was so busy that its period closed with the next.
fn nothing(span: PeriodSpan) -> PeriodRecord {
    PeriodRecord { span, stores: Vec::new(), files: Vec::new(), other: FileCounts::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_begins_with_a_period() {
        let unix_ms = next_period_unix_ms(Duration::from_millis(3_300), LEAD);
        assert!(unix_ms.is_multiple_of(3_300));
        let wait = moment(unix_ms).unwrap().saturating_duration_since(Instant::now());
        assert!(wait <= LEAD + Duration::from_millis(3_300), "{wait:?}");
        assert!(wait + Duration::from_millis(50) >= LEAD, "{wait:?}");
        assert!(moment(unix_ms - 10_000).is_err());
    }
}
