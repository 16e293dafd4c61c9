//! Measured periods as the controller wants them: numbered, whole, files as numbers.

use super::files::Files;
use crate::config::Config;
use crate::heat::{PeriodRecord, PeriodSpan, StoreCounts};
use clockwork_forecaster::controller::{FileId, PeriodReport, StoreReport};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Part of a period that has to have been measured for it to count; what is missing is made up in proportion.
const MEASURED_MIN: f64 = 0.5;
/// A record this many periods long belongs to none: the router was stopped meanwhile, and nobody knows when its calls came.
const LENGTH_MAX: f64 = 1.25;

/// Files of a period whose part of READs is reported: the hottest, of which replication may be an issue.
const READS_FILES_MAX: usize = 256;

/// The clock that periods are counted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Clock {
    /// Length of a period, milliseconds.
    pub(crate) period_ms: u64,
}

impl Clock {
    /// The period that a moment is in.
    pub(crate) fn period_at(self, unix_ms: u64) -> i64 {
        i64::try_from(unix_ms / self.period_ms.max(1)).unwrap_or(i64::MAX)
    }

    /// When a period begins, milliseconds since 1970.
    pub(crate) fn start_unix_ms(self, period: i64) -> u64 {
        u64::try_from(period).unwrap_or(0).saturating_mul(self.period_ms)
    }

    /// The period of a record: the one in which its middle lies. Timers are some milliseconds late, so its begin may not.
    fn period_of(self, span: PeriodSpan) -> i64 {
        self.period_at(span.start_unix_ms.saturating_add(span.length_ms / 2))
    }

    /// How much of a period a record covers.
    fn part(self, span: PeriodSpan) -> f64 {
        span.length_ms as f64 / self.period_ms.max(1) as f64
    }
}

/// Calls on a file.
#[derive(Debug, Clone, Copy, Default)]
struct Calls {
    all: f64,
    reads: f64,
}

/// What an operator should know of imported periods that are too long for the plex: how many there are of each length,
/// milliseconds.
pub(crate) fn unused_imports(imported: &BTreeMap<u64, usize>, period_ms: u64) -> Option<String> {
    let span = |length_ms| PeriodSpan { start_unix_ms: 0, length_ms };
    let too_long =
        imported.iter().filter(|(length, _)| Clock { period_ms }.part(span(**length)) > LENGTH_MAX);
    let (lengths, counts): (Vec<u64>, Vec<usize>) = too_long.unzip();
    let seconds = |ms: u64| ms as f64 / 1e3;
    let (least, greatest) = (seconds(*lengths.first()?), seconds(*lengths.last()?));
    let lengths = if least < greatest { format!("{least} to {greatest}") } else { least.to_string() };
    Some(format!(
        "{} imported periods of {lengths} s are not used: this plex has periods of {} s; import again with --period {} --replace",
        counts.iter().sum::<usize>(),
        seconds(period_ms),
        (period_ms / 1_000).max(1)
    ))
}

/// What was measured of one period, in one or more parts: a restart cuts a period in two.
#[derive(Debug, Default)]
pub(crate) struct Row {
    /// Its number.
    pub(crate) period: i64,
    /// How much of it was measured, 0 to about 1.
    part: f64,
    stores: BTreeMap<String, StoreCounts>,
    files: HashMap<FileId, Calls>,
    unlisted: f64,
}

impl Row {
    /// Takes up a part. The answer says whether it belongs to this period, as all do that are not too long.
    pub(crate) fn add(&mut self, record: &PeriodRecord, clock: Clock, files: &mut Files) {
        self.part += clock.part(record.span);
        for store in &record.stores {
            self.stores.entry(store.name.clone()).or_default().add(&store.counts);
        }
        for file in &record.files {
            let calls = file.counts.calls.total() as f64;
            let open = |number| self.files.contains_key(&number);
            match files.number_at(&file.handle, file.path.as_ref(), open) {
                Some(number) => {
                    let known = self.files.entry(number).or_default();
                    known.all += calls;
                    known.reads += file.counts.calls.reads as f64;
                }
                None => self.unlisted += calls,
            }
        }
        self.unlisted += record.other.calls.total() as f64;
    }

    /// The report of the period, if enough of it was measured.
    pub(crate) fn report(&self, config: &Config) -> Option<PeriodReport> {
        let scale = if self.part >= MEASURED_MIN { 1.0 / self.part.min(1.0) } else { return None };
        let stores = self.stores.iter().map(|(name, counts)| store_report(name, counts, scale, config));
        let mut files: Vec<(FileId, f64)> =
            self.files.iter().map(|(file, calls)| (*file, calls.all * scale)).collect();
        files.sort_unstable_by_key(|(file, _)| *file);
        let mut hottest = files.clone();
        let by_heat = |a: &(FileId, f64), b: &(FileId, f64)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        if hottest.len() > READS_FILES_MAX {
            hottest.select_nth_unstable_by(READS_FILES_MAX, by_heat);
            hottest.truncate(READS_FILES_MAX);
        }
        let part = |file: &FileId| self.files.get(file).map(|calls| calls.reads / calls.all.max(1.0));
        let reads = hottest.iter().filter_map(|(file, _)| Some((*file, part(file)?))).collect();
        Some(PeriodReport {
            period: self.period,
            stores: stores.collect(),
            files,
            unlisted: self.unlisted * scale,
            reads,
        })
    }
}

/// What a store did, for the controller; requests times `scale`.
pub(crate) fn store_report(name: &str, counts: &StoreCounts, scale: f64, config: &Config) -> StoreReport {
    let calls_max = config.stores.iter().find(|store| store.name == name).map(|store| store.calls_max);
    StoreReport {
        name: Arc::from(name),
        requests: counts.requests.total() as f64 * scale,
        response_ms: counts.response.mean_us().map_or(f64::NAN, |us| us / 1e3),
        response_variance_ms2: counts.response.variance_us2().map_or(f64::NAN, |us2| us2 / 1e6),
        saturated: calls_max.is_some_and(|max| counts.outstanding_max >= max as u64),
    }
}

/// Puts records together to periods, as they come.
#[derive(Debug)]
pub(crate) struct Rows {
    clock: Clock,
    open: Option<Row>,
}

/// What a record came to.
#[derive(Debug, PartialEq)]
pub(crate) enum Closed {
    /// A period as it is to be reported.
    Period(PeriodReport),
    /// Too little of its period was measured so far.
    Part,
    /// It is too long for a period.
    TooLong,
}

impl Rows {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, open: None }
    }

    /// Takes up a record. Those of one period have to follow each other.
    pub(crate) fn add(&mut self, record: &PeriodRecord, files: &mut Files, config: &Config) -> Closed {
        if self.clock.part(record.span) > LENGTH_MAX {
            self.open = None;
            return Closed::TooLong;
        }
        let period = self.clock.period_of(record.span);
        let row = match &mut self.open {
            Some(row) if row.period == period => row,
            open => open.insert(Row { period, ..Row::default() }),
        };
        row.add(record, self.clock, files);
        row.report(config).map_or(Closed::Part, Closed::Period)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heat::{ClassCounts, FileCounts, FilePeriod, Handle};
    use std::path::Path;

    fn config() -> Config {
        let text = "[[store]]\nname = \"a\"\naddress = \"127.0.0.1:1\"\n[[export]]\npath = \"/e\"\nclients = \
                    [\"127.0.0.1\"]\n";
        Config::parse(text, Path::new("test.toml")).unwrap()
    }

    fn record(start_unix_ms: u64, length_ms: u64, calls: u64) -> PeriodRecord {
        let counts =
            FileCounts { calls: ClassCounts { reads: calls, ..Default::default() }, ..Default::default() };
        let file = FilePeriod { handle: Handle::new(b"h").unwrap(), store: 0, path: None, counts };
        PeriodRecord {
            span: PeriodSpan { start_unix_ms, length_ms },
            stores: Vec::new(),
            files: vec![file],
            other: FileCounts {
                calls: ClassCounts { metadata: 2, ..Default::default() },
                ..Default::default()
            },
        }
    }

    #[test]
    fn imports_of_longer_periods_are_told() {
        let told = |lengths: &[(u64, usize)]| unused_imports(&lengths.iter().copied().collect(), 5_000);
        assert_eq!(told(&[]), None);
        assert_eq!(told(&[(1_000, 9), (5_000, 7), (6_000, 3)]), None, "they add up, or do as they are");
        assert_eq!(
            told(&[(5_000, 7), (3_600_000, 24)]).as_deref(),
            Some(
                "24 imported periods of 3600 s are not used: this plex has periods of 5 s; import again with --period 5 \
                 --replace"
            )
        );
        let several = told(&[(10_000, 1), (60_000, 2), (3_600_000, 3)]).unwrap();
        assert!(several.starts_with("6 imported periods of 10 to 3600 s are not used"), "{several}");
    }

    #[test]
    fn late_timers_restarts_and_pauses() {
        let (mut rows, mut files, config) =
            (Rows::new(Clock { period_ms: 1000 }), Files::new(9, []), config());
        let mut add =
            |start, length, calls| match rows.add(&record(start, length, calls), &mut files, &config) {
                Closed::Period(report) => Some((report.period, report.total().round())),
                Closed::Part | Closed::TooLong => None,
            };
        assert_eq!(add(5_003, 999, 10), Some((5, 12.0)), "begun and ended late");
        assert_eq!(add(6_002, 400, 4), None, "cut by a restart");
        assert_eq!(add(6_500, 500, 4), Some((6, 13.0)), "both parts, for the tenth that is missing too");
        assert_eq!(add(7_000, 3_000, 90), None, "a pause");
        assert_eq!(add(10_000, 1_000, 1), Some((10, 3.0)));
        assert_eq!(add(11_600, 400, 4), None, "the router started late in the period");
    }
}
