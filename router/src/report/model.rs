//! The figures of a report.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::heat::{ClassCounts, FileCounts, Handle, PeriodRecord, StoreCounts};

/// Most files in the list of the hottest.
pub const HOT_FILES_MAX: usize = 50;

/// A line of a report that was not measured: what was run, on what, with which settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// What it is about.
    pub name: String,
    /// What it is.
    pub value: String,
}

/// What a report says besides what was measured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// The heading.
    pub title: String,
    /// One sentence below it.
    pub subtitle: String,
    /// When the report was made, milliseconds since 1970 UTC.
    pub created_unix_ms: u64,
    /// Number of the first period's hour, as in the trace that was replayed.
    pub first_hour: u64,
    /// Workload, stores, settings.
    pub facts: Vec<Fact>,
    /// Commands that mount the plex.
    pub mount: Vec<String>,
}

/// A report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The heading.
    pub title: String,
    /// One sentence below it.
    pub subtitle: String,
    /// When it was made, milliseconds since 1970 UTC.
    pub created_unix_ms: u64,
    /// Calls of all periods and stores.
    pub requests: u64,
    /// What the figures come to; absent if nothing was measured.
    pub findings: Option<Findings>,
    /// The periods, in order.
    pub periods: Vec<PeriodReport>,
    /// The stores over all periods.
    pub stores: Vec<StoreReport>,
    /// The files with most calls, at most [`HOT_FILES_MAX`].
    pub hot_files: Vec<HotFile>,
    /// Workload, stores, settings.
    pub facts: Vec<Fact>,
    /// Commands that mount the plex.
    pub mount: Vec<String>,
}

/// One period.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PeriodReport {
    /// Its number, counted on from [`Facts::first_hour`].
    pub hour: u64,
    /// Begin, milliseconds since 1970 UTC.
    pub start_unix_ms: u64,
    /// Length as measured (an hour may have been replayed in seconds), milliseconds.
    pub length_ms: u64,
    /// Calls of all stores.
    pub requests: u64,
    /// The longest of the stores' mean response times, milliseconds; absent if none answered anything.
    pub max_mean_response_ms: Option<f64>,
    /// The stores, in the order of [`Report::stores`].
    pub stores: Vec<StorePeriodReport>,
}

/// One store in one period, or over all of them.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct StorePeriodReport {
    /// Name of the store.
    pub name: String,
    /// Calls sent to it.
    pub requests: u64,
    /// READ calls among them.
    pub reads: u64,
    /// WRITE and COMMIT calls.
    pub writes: u64,
    /// All other calls.
    pub metadata: u64,
    /// Calls without a usable answer.
    pub failed: u64,
    /// Its share of all calls (0 to 1).
    pub share: f64,
    /// Mean response time, milliseconds; absent if it answered nothing.
    pub mean_response_ms: Option<f64>,
    /// Sample variance of the response time, milliseconds squared; absent below two answers.
    pub variance_ms2: Option<f64>,
    /// Half of the answers took at most so long, milliseconds (from a histogram, to within 1/16).
    pub median_ms: Option<f64>,
    /// 95 of 100 answers took at most so long, milliseconds (from a histogram, to within 1/16).
    pub p95_ms: Option<f64>,
    /// The longest, milliseconds.
    pub max_ms: Option<f64>,
    /// Bytes of file data that it sent.
    pub bytes_read: u64,
    /// Bytes of file data that it took.
    pub bytes_written: u64,
}

/// A store's load and response time in one period.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Moment {
    /// The period's number.
    pub hour: u64,
    /// Calls sent to the store.
    pub requests: u64,
    /// Mean response time, milliseconds.
    pub mean_response_ms: f64,
}

/// A store over all periods.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StoreReport {
    /// Its figures over all periods.
    #[serde(flatten)]
    pub total: StorePeriodReport,
    /// The period in which it had fewest calls (and answered any).
    pub quietest: Option<Moment>,
    /// The period in which the whole plex had most calls.
    pub peak: Option<Moment>,
}

/// A file and what it was asked for over all periods.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HotFile {
    /// Its path, or its handle where the path is not known.
    pub path: String,
    /// Its handle, in hexadecimal.
    pub handle: String,
    /// The store that served it last.
    pub store: String,
    /// Calls on it.
    pub requests: u64,
    /// Its share of all calls (0 to 1).
    pub share: f64,
    /// READ calls.
    pub reads: u64,
    /// WRITE and COMMIT calls.
    pub writes: u64,
    /// All other calls.
    pub metadata: u64,
    /// Bytes of file data read.
    pub bytes_read: u64,
    /// Bytes of file data written.
    pub bytes_written: u64,
}

/// What the figures come to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Findings {
    /// The store with most calls.
    pub busiest_store: String,
    /// Its share of all calls (0 to 1).
    pub busiest_share: f64,
    /// The period with most calls.
    pub peak_hour: u64,
    /// Calls in it.
    pub peak_requests: u64,
    /// The store with the longest mean response time in it.
    pub slowest_store: String,
    /// That mean, milliseconds.
    pub slowest_peak_ms: f64,
    /// The slowest store's mean in its own quietest period, milliseconds.
    pub slowest_quiet_ms: f64,
    /// The store with the shortest mean response time in the peak period.
    pub fastest_store: String,
    /// That mean, milliseconds.
    pub fastest_peak_ms: f64,
    /// The fastest store's mean in its own quietest period, milliseconds.
    pub fastest_quiet_ms: f64,
}

impl Report {
    /// Works the figures of these periods out. Stores are told apart by name; a period in which one is missing
    /// shows it without calls.
    pub fn new(facts: Facts, records: &[PeriodRecord]) -> Self {
        let names = store_names(records);
        let requests = records.iter().map(PeriodRecord::requests).sum();
        let periods: Vec<PeriodReport> = records
            .iter()
            .zip(facts.first_hour..)
            .map(|(record, hour)| PeriodReport::new(record, hour, &names))
            .collect();
        let peak = periods.iter().max_by_key(|period| (period.requests, std::cmp::Reverse(period.hour)));
        let stores: Vec<StoreReport> = (names.iter().enumerate())
            .map(|(index, name)| StoreReport::new(index, name, requests, records, &periods, peak))
            .collect();
        Self {
            findings: peak.and_then(|peak| Findings::new(&stores, peak)),
            hot_files: hot_files(records, requests),
            title: facts.title,
            subtitle: facts.subtitle,
            created_unix_ms: facts.created_unix_ms,
            requests,
            periods,
            stores,
            facts: facts.facts,
            mount: facts.mount,
        }
    }

    /// A report on what a plex has measured, for its operator.
    pub fn of_plex(records: &[PeriodRecord]) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let facts = Facts {
            title: "What the plex did".into(),
            subtitle: format!("The last {} closed periods, numbered from the oldest.", records.len()),
            created_unix_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
            ..Facts::default()
        };
        Self::new(facts, records)
    }

    /// The report as indented JSON. All numbers in it are finite.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self)
    }
}

fn store_names(records: &[PeriodRecord]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for store in records.iter().flat_map(|record| &record.stores) {
        if !names.contains(&store.name) {
            names.push(store.name.clone());
        }
    }
    names
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

impl PeriodReport {
    fn new(record: &PeriodRecord, hour: u64, names: &[String]) -> Self {
        let requests = record.requests();
        let stores = names.iter().map(|name| {
            let counts = record.stores.iter().find(|store| store.name == *name).map(|store| &store.counts);
            StorePeriodReport::new(name, counts.unwrap_or(&StoreCounts::default()), requests)
        });
        Self {
            hour,
            start_unix_ms: record.span.start_unix_ms,
            length_ms: record.span.length_ms,
            requests,
            max_mean_response_ms: super::comparison::maximum_ms(record),
            stores: stores.collect(),
        }
    }
}

impl StorePeriodReport {
    fn new(name: &str, counts: &StoreCounts, all_requests: u64) -> Self {
        let ClassCounts { reads, writes, metadata } = counts.requests;
        let requests = counts.requests.total();
        let response = &counts.response;
        let ms = |us: f64| us / 1_000.0;
        Self {
            name: name.to_owned(),
            requests,
            reads,
            writes,
            metadata,
            failed: counts.failed,
            share: share(requests, all_requests),
            mean_response_ms: response.mean_us().map(ms),
            variance_ms2: response.variance_us2().map(|variance| variance / 1e6),
            median_ms: response.quantile_us(0.5).map(ms),
            p95_ms: response.quantile_us(0.95).map(ms),
            max_ms: (response.count() > 0).then(|| ms(response.max_us() as f64)),
            bytes_read: counts.bytes_read,
            bytes_written: counts.bytes_written,
        }
    }

    fn moment(&self, hour: u64) -> Option<Moment> {
        let mean_response_ms = self.mean_response_ms?;
        Some(Moment { hour, requests: self.requests, mean_response_ms })
    }
}

impl StoreReport {
    fn new(
        index: usize,
        name: &str,
        all_requests: u64,
        records: &[PeriodRecord],
        periods: &[PeriodReport],
        peak: Option<&PeriodReport>,
    ) -> Self {
        let mut counts = StoreCounts::default();
        for store in records.iter().flat_map(|record| &record.stores).filter(|store| store.name == name) {
            counts.add(&store.counts);
        }
        let moment = |period: &PeriodReport| period.stores.get(index).and_then(|s| s.moment(period.hour));
        Self {
            total: StorePeriodReport::new(name, &counts, all_requests),
            quietest: periods.iter().filter_map(moment).min_by_key(|moment| moment.requests),
            peak: peak.and_then(moment),
        }
    }
}

impl Findings {
    fn new(stores: &[StoreReport], peak: &PeriodReport) -> Option<Self> {
        let busiest = stores.iter().max_by_key(|store| store.total.requests)?;
        let by_peak = |a: &&(&StoreReport, Moment, Moment), b: &&(&StoreReport, Moment, Moment)| {
            a.1.mean_response_ms.total_cmp(&b.1.mean_response_ms)
        };
        let answered: Vec<_> =
            stores.iter().filter_map(|store| Some((store, store.peak?, store.quietest?))).collect();
        let (slowest, fastest) = (answered.iter().max_by(by_peak)?, answered.iter().min_by(by_peak)?);
        Some(Self {
            busiest_store: busiest.total.name.clone(),
            busiest_share: busiest.total.share,
            peak_hour: peak.hour,
            peak_requests: peak.requests,
            slowest_store: slowest.0.total.name.clone(),
            slowest_peak_ms: slowest.1.mean_response_ms,
            slowest_quiet_ms: slowest.2.mean_response_ms,
            fastest_store: fastest.0.total.name.clone(),
            fastest_peak_ms: fastest.1.mean_response_ms,
            fastest_quiet_ms: fastest.2.mean_response_ms,
        })
    }
}

struct Summed<'a> {
    counts: FileCounts,
    path: Option<&'a Arc<str>>,
    store: &'a str,
}

fn hot_files(records: &[PeriodRecord], all_requests: u64) -> Vec<HotFile> {
    let mut files: HashMap<&Handle, Summed<'_>> = HashMap::new();
    for record in records {
        for file in &record.files {
            let store = record.stores.get(usize::from(file.store)).map_or("", |store| store.name.as_str());
            let summed = files.entry(&file.handle).or_insert(Summed {
                counts: FileCounts::default(),
                path: None,
                store,
            });
            summed.counts.add(&file.counts);
            summed.path = file.path.as_ref().or(summed.path);
            summed.store = store;
        }
    }
    let mut files: Vec<_> = files.into_iter().collect();
    files.sort_unstable_by_key(|(handle, file)| (std::cmp::Reverse(file.counts.calls.total()), *handle));
    files.truncate(HOT_FILES_MAX);
    files.into_iter().map(|(handle, file)| HotFile::new(handle, &file, all_requests)).collect()
}

impl HotFile {
    fn new(handle: &Handle, file: &Summed<'_>, all_requests: u64) -> Self {
        let ClassCounts { reads, writes, metadata } = file.counts.calls;
        let requests = file.counts.calls.total();
        let handle = handle.to_hex();
        Self {
            path: file.path.map_or_else(|| format!("handle {handle}"), |path| path.to_string()),
            handle,
            store: file.store.to_owned(),
            requests,
            share: share(requests, all_requests),
            reads,
            writes,
            metadata,
            bytes_read: file.counts.bytes_read,
            bytes_written: file.counts.bytes_written,
        }
    }
}
