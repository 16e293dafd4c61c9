//! Counts a file and period, until they are written as blocks.

use crate::trace_file::FileCount;
use hashbrown::HashMap;
use std::collections::BTreeMap;

/// A period and a file.
type Key = (i64, u32);
/// Requests and bytes read.
type Common = (u64, u64);

/// Counts that are not written yet, of any periods, and the totals of all periods.
pub(super) struct Counts {
    /// What all requests add to, kept small for that.
    open: HashMap<Key, Common>,
    /// Writes, requests for metadata, bytes written; of files that are in `open`, too.
    other: HashMap<Key, [u64; 3]>,
    cells_max: usize,
    /// Requests in each period that had a line, counted or not.
    totals: BTreeMap<i64, u64>,
    /// The period of the last request and its total, so that the map is not asked for every one.
    last: Option<(i64, u64)>,
}

impl Counts {
    /// Counts that are to be written when there are `cells_max` of them.
    pub(super) fn new(cells_max: usize) -> Self {
        Self { open: HashMap::new(), other: HashMap::new(), cells_max, totals: BTreeMap::new(), last: None }
    }

    pub(super) fn add(&mut self, period: i64, count: FileCount) {
        let key = (period, count.file);
        let (requests, bytes_read) = self.open.entry(key).or_default();
        *requests = requests.saturating_add(count.requests);
        *bytes_read = bytes_read.saturating_add(count.bytes_read);
        if count.writes > 0 || count.metadata > 0 {
            let [writes, metadata, bytes_written] = self.other.entry(key).or_default();
            *writes = writes.saturating_add(count.writes);
            *metadata = metadata.saturating_add(count.metadata);
            *bytes_written = bytes_written.saturating_add(count.bytes_written);
        }
        self.saw(period, count.requests);
    }

    /// Notes that there was a line in a period, with so many requests.
    pub(super) fn saw(&mut self, period: i64, requests: u64) {
        match &mut self.last {
            Some((last, sum)) if *last == period => *sum = sum.saturating_add(requests),
            _ => {
                self.settle();
                self.last = Some((period, requests));
            }
        }
    }

    fn settle(&mut self) {
        if let Some((period, sum)) = self.last.take() {
            let total = self.totals.entry(period).or_default();
            *total = total.saturating_add(sum);
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.open.len() >= self.cells_max
    }

    /// The period of the line before.
    pub(super) fn last_period(&self) -> Option<i64> {
        self.last.map(|(period, _)| period)
    }

    /// Takes out what is not written yet: by period, each sorted by file.
    pub(super) fn take(&mut self) -> Vec<(i64, Vec<FileCount>)> {
        let mut counts: Vec<(Key, Common)> = self.open.drain().collect();
        counts.sort_unstable_by_key(|(key, _)| *key);
        let mut other = std::mem::take(&mut self.other);
        let mut whole = |(key, (requests, bytes_read)): &(Key, Common)| {
            let [writes, metadata, bytes_written] = other.remove(key).unwrap_or_default();
            let (file, requests, bytes_read) = (key.1, *requests, *bytes_read);
            FileCount { file, requests, writes, metadata, bytes_read, bytes_written }
        };
        let mut of_period = |part: &[(Key, Common)]| {
            let ((period, _), _) = part.first()?;
            Some((*period, part.iter().map(&mut whole).collect()))
        };
        counts.chunk_by(|((a, _), _), ((b, _), _)| a == b).filter_map(&mut of_period).collect()
    }

    /// Requests in every period that had a line.
    pub(super) fn totals(&mut self) -> &BTreeMap<i64, u64> {
        self.settle();
        &self.totals
    }
}
