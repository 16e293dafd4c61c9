//! Counts a file and period, until they are written as blocks.

use crate::trace_file::FileCount;
use hashbrown::HashMap;
use std::collections::BTreeMap;

/// What is counted of one file in one period.
#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    requests: u64,
    writes: u64,
    bytes: u64,
}

/// Counts that are not written yet, of any periods, and the totals of all periods.
pub(super) struct Counts {
    open: HashMap<(i64, u32), Cell>,
    cells_max: usize,
    /// Requests in each period that had a line, counted or not.
    totals: BTreeMap<i64, u64>,
    /// The period of the last request and its total, so that the map is not asked for every one.
    last: Option<(i64, u64)>,
}

impl Counts {
    /// Counts that are to be written when there are `cells_max` of them.
    pub(super) fn new(cells_max: usize) -> Self {
        Self { open: HashMap::new(), cells_max, totals: BTreeMap::new(), last: None }
    }

    pub(super) fn add(&mut self, period: i64, count: FileCount) {
        let cell = self.open.entry((period, count.file)).or_default();
        cell.requests = cell.requests.saturating_add(count.requests);
        cell.writes = cell.writes.saturating_add(count.writes);
        cell.bytes = cell.bytes.saturating_add(count.bytes);
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
        let mut cells: Vec<((i64, u32), Cell)> = self.open.drain().collect();
        cells.sort_unstable_by_key(|(key, _)| *key);
        let of_period = |part: &[((i64, u32), Cell)]| {
            let count = |((_, file), cell): &((i64, u32), Cell)| FileCount {
                file: *file,
                requests: cell.requests,
                writes: cell.writes,
                bytes: cell.bytes,
            };
            part.first().map(|((period, _), _)| (*period, part.iter().map(count).collect()))
        };
        cells.chunk_by(|((a, _), _), ((b, _), _)| a == b).filter_map(of_period).collect()
    }

    /// Requests in every period that had a line.
    pub(super) fn totals(&mut self) -> &BTreeMap<i64, u64> {
        self.settle();
        &self.totals
    }
}
