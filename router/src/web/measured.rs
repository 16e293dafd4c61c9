//! From what heat counts to what the admin interface says.
use std::borrow::Borrow;
use std::collections::HashMap;

use super::types::{HotFile, HotFiles, Period, StorePeriod};
use crate::heat::{self, FilePeriod, Handle, PeriodRecord};

impl From<&PeriodRecord> for Period {
    fn from(record: &PeriodRecord) -> Self {
        Self {
            start_unix_ms: record.span.start_unix_ms,
            length_ms: record.span.length_ms,
            stores: record.stores.iter().map(StorePeriod::from).collect(),
        }
    }
}

impl From<&heat::StorePeriod> for StorePeriod {
    fn from(store: &heat::StorePeriod) -> Self {
        let counts = &store.counts;
        let ms = |us: f64| us / 1_000.0;
        Self {
            name: store.name.clone(),
            requests: counts.requests.total(),
            reads: counts.requests.reads,
            writes: counts.requests.writes,
            metadata: counts.requests.metadata,
            failed: counts.failed,
            bytes_read: counts.bytes_read,
            bytes_written: counts.bytes_written,
            mean_response_ms: counts.response.mean_us().map(ms),
            deviation_response_ms: counts.response.variance_us2().map(|variance| ms(variance.sqrt())),
            median_response_ms: counts.response.quantile_us(0.5).map(ms),
            p99_response_ms: counts.response.quantile_us(0.99).map(ms),
        }
    }
}

impl HotFiles {
    /// The at most `limit` files with the most requests in these periods (the oldest first) together; with `store`,
    /// only requests of periods in which that store served the file. Ties are in the order of the handles.
    #[must_use]
    pub fn hottest<R: Borrow<PeriodRecord>>(records: &[R], limit: usize, store: Option<&str>) -> Self {
        let mut files: HashMap<Handle, HotFile> = HashMap::new();
        let (mut requests, mut length_ms) = (0_u64, 0_u64);
        for record in records.iter().map(Borrow::borrow) {
            let wanted = |name: &str| store.is_none_or(|store| store == name);
            let served = record.stores.iter().filter(|store| wanted(&store.name));
            requests = served.fold(requests, |sum, store| sum.saturating_add(store.counts.requests.total()));
            length_ms = length_ms.saturating_add(record.span.length_ms);
            for file in &record.files {
                let name = record.stores.get(usize::from(file.store)).map_or("", |store| store.name.as_str());
                if wanted(name) {
                    let hot = files.entry(file.handle).or_insert_with(|| unused(file.handle));
                    add(hot, file, name);
                }
            }
        }
        let mut files: Vec<HotFile> = files.into_values().collect();
        files.sort_unstable_by(|a, b| b.requests.cmp(&a.requests).then_with(|| a.handle.cmp(&b.handle)));
        files.truncate(limit);
        let start_unix_ms = records.first().map(|record| record.borrow().span.start_unix_ms);
        Self { start_unix_ms, length_ms, requests, files }
    }
}

fn unused(handle: Handle) -> HotFile {
    HotFile {
        handle: handle.to_hex(),
        path: None,
        store: String::new(),
        requests: 0,
        reads: 0,
        writes: 0,
        metadata: 0,
        bytes_read: 0,
        bytes_written: 0,
    }
}

/// Adds a later period to a file's sums; its latest store and path are the ones to show.
fn add(hot: &mut HotFile, file: &FilePeriod, store: &str) {
    let counts = &file.counts;
    for (sum, more) in [
        (&mut hot.requests, counts.calls.total()),
        (&mut hot.reads, counts.calls.reads),
        (&mut hot.writes, counts.calls.writes),
        (&mut hot.metadata, counts.calls.metadata),
        (&mut hot.bytes_read, counts.bytes_read),
        (&mut hot.bytes_written, counts.bytes_written),
    ] {
        *sum = sum.saturating_add(more);
    }
    store.clone_into(&mut hot.store);
    if let Some(path) = &file.path {
        hot.path = Some(path.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heat::{ClassCounts, FileCounts, PeriodSpan, StoreCounts};

    fn file(handle: u8, store: u16, reads: u64, path: Option<&str>) -> FilePeriod {
        let calls = ClassCounts { reads, writes: 1, metadata: 0 };
        let counts = FileCounts { calls, bytes_read: 10 * reads, bytes_written: 5 };
        FilePeriod { handle: Handle::new(&[handle]).unwrap(), store, path: path.map(Into::into), counts }
    }

    fn record(start_unix_ms: u64, files: Vec<FilePeriod>) -> PeriodRecord {
        let store = |number: u16| {
            let mut counts = StoreCounts::default();
            let own = files.iter().filter(|file| file.store == number);
            own.for_each(|file| counts.requests.add(&file.counts.calls));
            heat::StorePeriod { name: ["fast", "slow"][usize::from(number)].to_owned(), counts }
        };
        let stores = vec![store(0), store(1)];
        let span = PeriodSpan { start_unix_ms, length_ms: 1_000 };
        PeriodRecord { span, stores, files, other: FileCounts::default() }
    }

    #[test]
    fn the_hottest_files_of_several_periods_are_added_up() {
        let records = [
            record(1_000, vec![file(1, 0, 5, Some("/e/old")), file(2, 1, 9, None)]),
            record(2_000, vec![file(1, 1, 6, Some("/e/new")), file(3, 0, 1, None)]),
        ];
        let hot = HotFiles::hottest(&records, 2, None);
        assert_eq!((hot.start_unix_ms, hot.length_ms, hot.requests), (Some(1_000), 2_000, 25));
        assert_eq!(hot.files.len(), 2);
        let first = &hot.files[0];
        assert_eq!(
            (first.handle.as_str(), first.path.as_deref(), first.store.as_str()),
            ("01", Some("/e/new"), "slow")
        );
        assert_eq!((first.requests, first.reads, first.writes, first.bytes_read), (13, 11, 2, 110));
        assert_eq!(hot.files[1].handle, "02");

        let fast = HotFiles::hottest(&records, 10, Some("fast"));
        let handles: Vec<(&str, u64)> = fast.files.iter().map(|f| (f.handle.as_str(), f.requests)).collect();
        assert_eq!(handles, [("01", 6), ("03", 2)]);
        assert_eq!(fast.requests, 8);
        assert!(HotFiles::hottest(&records, 10, Some("none")).files.is_empty());
        assert_eq!(HotFiles::hottest::<PeriodRecord>(&[], 10, None).start_unix_ms, None);
    }

    #[test]
    fn response_times_are_in_milliseconds() {
        let mut one = record(1_000, Vec::new());
        one.stores[0].counts.response.record(2_000);
        one.stores[0].counts.response.record(4_000);
        let period = Period::from(&one);
        assert_eq!(period.stores[0].mean_response_ms, Some(3.0));
        let deviation = period.stores[0].deviation_response_ms.unwrap();
        assert!((deviation - 2.0_f64.sqrt()).abs() < 1e-12, "{deviation}");
        let p99 = period.stores[0].p99_response_ms.unwrap();
        assert!((3.5..=4.0).contains(&p99), "{p99}");
        assert_eq!(period.stores[1].mean_response_ms, None);
    }
}
