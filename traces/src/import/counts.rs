//! Counts a file and period, until they are written as blocks.

use crate::trace_file::FileCount;
use hashbrown::HashMap;
use std::collections::BTreeMap;

/// Counts that are not written yet, of any periods, and the totals of all periods.
pub(super) struct Counts {
    open: HashMap<(i64, u32), FileCount>,
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
        let open = self.open.entry((period, count.file));
        open.or_insert(FileCount { file: count.file, ..FileCount::default() }).add(&count);
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
        let mut counts: Vec<((i64, u32), FileCount)> = self.open.drain().collect();
        counts.sort_unstable_by_key(|(key, _)| *key);
        let of_period = |part: &[((i64, u32), FileCount)]| {
            let ((period, _), _) = part.first()?;
            Some((*period, part.iter().map(|(_, count)| *count).collect()))
        };
        counts.chunk_by(|((a, _), _), ((b, _), _)| a == b).filter_map(of_period).collect()
    }

    /// Requests in every period that had a line.
    pub(super) fn totals(&mut self) -> &BTreeMap<i64, u64> {
        self.settle();
        &self.totals
    }
}
