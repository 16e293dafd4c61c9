//! Files that turn out to be one.

use super::Controller;
use super::history::MemoryHistory;
use super::reports::FileId;
use crate::plan::{Past, PastMove};

impl Controller<MemoryHistory> {
    /// Joins files that were numbered apart and are one, as where the past of a file was imported before it was known under
    /// what number it is measured: for each pair, all that was recorded of the first is the second's from now on, and the
    /// first has no requests. The next forecast fits anew, which takes as long as after a start.
    pub fn join_files(&mut self, pairs: &[(FileId, FileId)]) {
        let mut past = Past::default();
        for &(from, into) in pairs {
            self.history.join(from, into);
        }
        for made in self.past.moves() {
            let joined =
                pairs.iter().find(|(from, _)| *from == made.file).map_or(made.file, |(_, into)| *into);
            past.record(PastMove { file: joined, ..made });
        }
        self.past = past;
        (self.tracker, self.forecasts) = (None, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::{History as _, PeriodReport, Settings};

    #[test]
    fn a_joined_file_is_forecast_as_if_it_had_been_one_from_the_beginning() {
        let day = |hour: i64| 200.0 + 150.0 * (hour as f64 / 24.0 * std::f64::consts::TAU).sin().round();
        let controller = || Controller::new(Settings::default(), MemoryHistory::default()).unwrap();
        let (mut apart, mut one) = (controller(), controller());
        for period in 0..400_i64 {
            let report = |own: u32| PeriodReport {
                period,
                files: vec![(FileId(own), day(period)), (FileId(1), 50.0)],
                ..PeriodReport::default()
            };
            apart.observe(&report(if period < 390 { 0 } else { 2 })).unwrap();
            one.observe(&report(2)).unwrap();
            apart.forecast();
        }
        apart.past.record(PastMove { period: 9, file: FileId(0), from: "a".into() });
        apart.join_files(&[(FileId(0), FileId(2))]);
        let (forecasts, wanted) = (apart.forecast(), one.forecast());
        for ahead in 1..=forecasts.total.horizon().min(6) {
            for file in [0, 1, 2].map(FileId) {
                let (got, wanted) = (forecasts.reported(file, ahead), wanted.reported(file, ahead));
                assert!((got - wanted).abs() <= 1e-6 * wanted.max(1.0), "{file:?} {ahead}: {got} {wanted}");
            }
        }
        assert_eq!(apart.past().last(FileId(2)), Some(9));
        let mut counts = [0.0; 400];
        apart.history().file(FileId(0), 0, &mut counts);
        assert!(counts.iter().all(|count| *count == 0.0));
        apart.join_files(&[(FileId(7), FileId(2)), (FileId(2), FileId(2))]);
        assert_eq!(apart.history().files(), 3, "of what was never counted nothing is joined");
    }
}
