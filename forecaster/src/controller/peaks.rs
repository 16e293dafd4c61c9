//! Peaks of the last week: the busiest period of each of its days, and the heat of every file in it. What is not forecast may
//! come all the same, and then as it came before.

use std::collections::VecDeque;

use rayon::prelude::*;

use super::history::History;
use super::reports::FileId;
use crate::plan::Heat;
use crate::series::signed;

/// Days whose busiest periods are kept.
const DAYS: usize = 7;
/// Most that the heat of a peak is scaled by towards the largest total expected: beyond, it says little.
const SCALE_MAX: f64 = 1.3;

/// The busiest periods of the last days.
#[derive(Debug, Default)]
pub(super) struct Peaks {
    /// Totals of the last days, the newest last; NaN = missing.
    totals: VecDeque<f64>,
    /// Period and heat by file.
    heats: Vec<(i64, Box<[f32]>)>,
}

impl Peaks {
    /// Takes the total of the next period.
    pub(super) fn take(&mut self, total: f64, day: usize) {
        self.totals.push_back(total);
        while self.totals.len() > DAYS * day.max(1) {
            self.totals.pop_front();
        }
    }

    /// The busiest period of each day, `last` being the newest period taken.
    fn busiest(&self, last: i64, day: usize) -> Vec<i64> {
        let periods: Vec<(i64, f64)> =
            self.totals.iter().rev().enumerate().map(|(back, t)| (last - signed(back), *t)).collect();
        let of_day = |periods: &[(i64, f64)]| {
            let known = periods.iter().filter(|p| p.1 > 0.0);
            known.max_by(|a, b| a.1.total_cmp(&b.1)).map(|p| p.0)
        };
        periods.chunks(day.max(1)).filter_map(of_day).collect()
    }

    /// Looks up the heat of `files` files in the periods that have become the busiest of their day.
    pub(super) fn update<H: History>(&mut self, history: &H, last: i64, day: usize, files: usize) {
        let wanted = self.busiest(last, day);
        self.heats.retain(|heat| wanted.contains(&heat.0));
        for period in wanted {
            if self.heats.iter().any(|heat| heat.0 == period) {
                continue;
            }
            let of = |index: usize| {
                let mut requests = [0.0];
                history.file(FileId(index as u32), period, &mut requests);
                if requests[0] > 0.0 { requests[0] as f32 } else { 0.0 }
            };
            let heat: Vec<f32> = (0..files).into_par_iter().with_min_len(4096).map(of).collect();
            self.heats.push((period, heat.into()));
        }
    }

    /// Heat of the peaks, each scaled towards the largest total of the last days or `high`, whichever is larger, and in one
    /// more column `steady`, the usual shares, at that total. `listed` is the part of the total that is of files listed.
    pub(super) fn stress(&self, high: f64, listed: f64, steady: &[f32]) -> Heat {
        let seen = self.totals.iter().copied().filter(|t| !t.is_nan()).fold(0.0, f64::max);
        let peak = seen.max(if high.is_finite() { high } else { 0.0 });
        let scale = |sum: f64| if sum > 0.0 { peak * listed / sum } else { 0.0 };
        let sum = |heat: &[f32]| heat.iter().map(|h| f64::from(*h)).sum::<f64>();
        let factors: Vec<f32> =
            self.heats.iter().map(|heat| scale(sum(&heat.1)).min(SCALE_MAX) as f32).collect();
        let of_steady = scale(sum(steady)) as f32;
        let columns = self.heats.len() + 1;
        let mut stress = Heat::new(steady.len(), columns);
        for (index, (row, share)) in stress.rows_mut().chunks_exact_mut(columns).zip(steady).enumerate() {
            row[0] = of_steady * share;
            for (place, (heat, factor)) in row[1..].iter_mut().zip(self.heats.iter().zip(&factors)) {
                *place = factor * heat.1.get(index).copied().unwrap_or(0.0);
            }
        }
        for column in 1..=columns {
            stress.set_unlisted(column, (1.0 - listed) * peak);
        }
        stress
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::MemoryHistory;
    use super::super::reports::PeriodReport;
    use super::*;

    #[test]
    fn the_busiest_period_of_each_day_is_kept_and_an_old_one_leaves() {
        let (mut history, mut peaks) = (MemoryHistory::default(), Peaks::default());
        // Days of 4 periods; the busiest is the third, the file 1 has it, file 0 is steady.
        for period in 0..40i64 {
            let busy = if period % 4 == 2 { 100.0 + period as f64 } else { 0.0 };
            let files = vec![(FileId(0), 10.0), (FileId(1), busy)];
            let report = PeriodReport { period, files, ..PeriodReport::default() };
            history.append(&report);
            peaks.take(if period == 38 { f64::NAN } else { report.total() }, 4);
        }
        peaks.update(&history, 39, 4, 2);
        let mut periods: Vec<i64> = peaks.heats.iter().map(|h| h.0).collect();
        periods.sort_unstable();
        // The last day's peak is missing: one of its quiet periods stands in.
        assert_eq!(periods.len(), DAYS);
        assert_eq!(periods[..6], [14, 18, 22, 26, 30, 34]);
        let stress = peaks.stress(50.0, 1.0, &[1.0, 1.0]);
        assert_eq!((stress.files(), stress.aheads()), (2, DAYS + 1));
        let most = 10.0 + 134.0;
        assert_eq!(stress.at(FileId(0), 1), most / 2.0);
        // All are scaled to the largest total, as far as that is not too far.
        for total in stress.totals() {
            assert!(
                total <= most + 1e-3 && (total > most - 1e-3 || total < 10.0 * SCALE_MAX + 1e-3),
                "{total}"
            );
        }
        assert_eq!(Peaks::default().stress(f64::NAN, 1.0, &[]).totals(), [0.0]);
    }
}
