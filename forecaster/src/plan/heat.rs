//! Heat of every file in the periods ahead.

use crate::controller::FileId;
use crate::demand::COUNT_FORECAST_MAX;

/// Most files of a plan.
pub const PLAN_FILES_MAX: usize = 1 << 26;

/// Heat of files numbered from 0, in one or more periods ahead.
#[derive(Debug, Clone, PartialEq)]
pub struct Heat {
    aheads: usize,
    rows: Vec<f32>,
    unlisted: Vec<f64>,
}

impl Heat {
    /// No heat at all, for `files` files (at most [`PLAN_FILES_MAX`]) and `aheads` periods (at least 1).
    pub fn new(files: usize, aheads: usize) -> Self {
        let aheads = aheads.max(1);
        Self { aheads, rows: vec![0.0; files.min(PLAN_FILES_MAX) * aheads], unlisted: vec![0.0; aheads] }
    }

    /// The heat of one period: what a planner sees that looks at one period only.
    pub fn of_period(counts: &[(FileId, f64)]) -> Self {
        let files = counts.iter().map(|(file, _)| file.index() + 1).max().unwrap_or(0);
        let mut heat = Self::new(files, 1);
        for (file, requests) in counts {
            heat.set(*file, 1, requests + heat.at(*file, 1));
        }
        heat
    }

    /// Files, whether they have any heat or not.
    pub fn files(&self) -> usize {
        self.rows.len() / self.aheads
    }
    /// Periods ahead.
    pub fn aheads(&self) -> usize {
        self.aheads
    }

    /// Heat of a file `ahead` periods ahead (1 = the next); beyond the last: the last. 0 for files not known.
    pub fn at(&self, file: FileId, ahead: usize) -> f64 {
        let row = self.row(file);
        row.get(ahead.clamp(1, self.aheads) - 1).map_or(0.0, |heat| f64::from(*heat))
    }

    /// Heat of a file in the periods ahead, the next one first; empty for files not known.
    pub fn row(&self, file: FileId) -> &[f32] {
        let from = file.index().saturating_mul(self.aheads);
        self.rows.get(from..from.saturating_add(self.aheads)).unwrap_or(&[])
    }

    /// Sets the heat of a file; nonsense (NaN, negative) is 0, files and periods not known are left.
    pub fn set(&mut self, file: FileId, ahead: usize, heat: f64) {
        let from = file.index().saturating_mul(self.aheads);
        if let Some(row) = self.rows.get_mut(from..from.saturating_add(self.aheads))
            && let Some(place) = row.get_mut(ahead.wrapping_sub(1))
        {
            *place = sane(heat) as f32;
        }
    }

    /// All rows, a file's periods side by side.
    pub(crate) fn rows_mut(&mut self) -> &mut [f32] {
        &mut self.rows
    }

    /// Heat of all files that are not listed, `ahead` periods ahead: it lies on the stores by their weights.
    pub fn unlisted(&self, ahead: usize) -> f64 {
        self.unlisted[ahead.clamp(1, self.aheads) - 1]
    }

    /// Sets it.
    pub fn set_unlisted(&mut self, ahead: usize, heat: f64) {
        if let Some(place) = self.unlisted.get_mut(ahead.wrapping_sub(1)) {
            *place = sane(heat);
        }
    }

    /// All heat of each period ahead.
    pub fn totals(&self) -> Vec<f64> {
        let mut totals = self.unlisted.clone();
        for row in self.rows.chunks_exact(self.aheads) {
            totals.iter_mut().zip(row).for_each(|(sum, heat)| *sum += f64::from(*heat));
        }
        totals
    }

    /// The same with room for at least so many files.
    pub(crate) fn grown_to(&self, files: usize) -> Self {
        let mut grown = self.clone();
        let rows = files.min(PLAN_FILES_MAX) * self.aheads;
        grown.rows.resize(rows.max(self.rows.len()), 0.0);
        grown
    }

    /// Replaces the next period by `heat` of each file and of what is not listed.
    pub(crate) fn with_next(mut self, heat: impl Fn(FileId, f64) -> f64, unlisted: f64) -> Self {
        for (file, row) in self.rows.chunks_exact_mut(self.aheads).enumerate() {
            let id = FileId(u32::try_from(file).unwrap_or(u32::MAX));
            row[0] = sane(heat(id, f64::from(row[0]))) as f32;
        }
        self.set_unlisted(1, unlisted);
        self
    }
}

/// A heat as a number of requests.
fn sane(heat: f64) -> f64 {
    if heat.is_nan() { 0.0 } else { heat.clamp(0.0, COUNT_FORECAST_MAX) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_totals_and_nonsense() {
        let mut heat = Heat::new(3, 2);
        heat.set(FileId(1), 1, 5.0);
        heat.set(FileId(1), 2, 7.0);
        heat.set(FileId(2), 2, f64::NAN);
        heat.set(FileId(9), 1, 4.0);
        heat.set(FileId(0), 3, 4.0);
        heat.set(FileId(0), 0, 4.0);
        heat.set_unlisted(2, 1.0);
        assert_eq!(heat.totals(), [5.0, 8.0]);
        assert_eq!((heat.at(FileId(1), 9), heat.at(FileId(9), 1)), (7.0, 0.0));
        let last = Heat::of_period(&[(FileId(4), 2.0), (FileId(4), 1.0), (FileId(0), f64::INFINITY)]);
        assert_eq!((last.files(), last.at(FileId(4), 1)), (5, 3.0));
        assert!(last.totals()[0].is_finite());
    }
}
