//! `batch`: a scheduled job that runs every night over a part of the files.
//!
//! It is made by rule, not measured. What it stands for is a load that a calendar knows and that no smooth extrapolation sees
//! coming: from one hour to the next a set of files that lay still is read by a backup, an index or a report, and after an hour
//! or two it lies still again. The files of the job are a site of their own (`batch/...`), so in a workload of several sites
//! they are the part of all files that the job runs over.

use crate::format::{Trace, TraceFiles};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

/// A nightly job.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BatchJob {
    /// Hour of the day at which it starts, 0 to 23. Hour 0 of a workload is midnight.
    pub first_hour: u32,
    /// How many hours it lasts, 1 to 23.
    pub hours: u32,
    /// Files that it reads, at least 1.
    pub files: usize,
    /// Requests in each of its hours, before the workload's weights.
    pub requests: f64,
    /// Standard deviation of the requests of a night, on the log scale: nights differ a little in what there is to do.
    pub nights_differ: f64,
    /// Requests in an hour without the job, as a part of those in an hour with it: somebody looks at the results.
    pub idle: f64,
}

impl Default for BatchJob {
    /// From 02:00 to 04:00 over 60 files. At its weight of [`BATCH_WEIGHT`] beside the default sites it about doubles the load
    /// of those two hours.
    fn default() -> Self {
        Self { first_hour: 2, hours: 2, files: 60, requests: 12_000.0, nights_differ: 0.05, idle: 0.002 }
    }
}

/// The weight at which the job matters beside the default sites: it brings a twelfth of all requests, in a twelfth of the
/// hours.
pub const BATCH_WEIGHT: f64 = 0.3;
/// Hours that the job's trace has: as many as the longest recorded ones.
const HOURS: u32 = 1_326;

impl BatchJob {
    /// Whether the job runs in an hour of the workload.
    #[must_use]
    pub fn runs(&self, hour: u32) -> bool {
        (hour % 24 + 24 - self.first_hour % 24) % 24 < self.hours
    }

    /// The trace of the job over 1,326 hours, the same for equal seeds.
    #[must_use]
    pub fn trace(&self, seed: u64) -> Trace {
        let hours = (0..HOURS).map(|hour| Some(self.total(hour, seed))).collect();
        Trace {
            name: "batch".into(),
            about: format!(
                "A scheduled job, made by rule: {} h from {:02}:00 every night over {} files",
                self.hours, self.first_hour, self.files
            ),
            starts: "midnight".into(),
            hours,
            files: TraceFiles::Synthetic { files: self.files.max(1), exponent: 0.3, drift: 0.1 },
        }
    }

    fn total(&self, hour: u32, seed: u64) -> u64 {
        if !self.runs(hour) {
            return (self.requests * self.idle).round() as u64;
        }
        // All hours of one run belong to the night in which it began.
        let night = u64::from((hour + 24 - self.first_hour % 24) / 24);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(night);
        let z: f64 = rng.sample(StandardNormal);
        (self.requests * (self.nights_differ * z).exp()).round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundled;
    use crate::workload::{DEFAULT_WEIGHTS, Workload};

    #[test]
    fn it_runs_at_its_hours_of_every_night() {
        let job = BatchJob::default();
        let trace = job.trace(1);
        for (hour, total) in trace.hours.iter().enumerate() {
            let busy = total.unwrap() > 6_000;
            assert_eq!(busy, matches!(hour % 24, 2 | 3), "hour {hour}: {total:?}");
        }
        let late = BatchJob { first_hour: 23, hours: 3, ..job };
        let running: Vec<u32> = (0..24).filter(|hour| late.runs(*hour)).collect();
        assert_eq!(running, [0, 1, 23]);
        // The two hours of one night have the same amount of work, two nights have not.
        assert_eq!(trace.hours[26], trace.hours[27]);
        assert_ne!(trace.hours[26], trace.hours[50]);
    }

    #[test]
    fn equal_seeds_give_equal_nights_and_others_do_not() {
        let job = BatchJob::default();
        assert_eq!(job.trace(1), job.trace(1));
        assert_ne!(job.trace(1), job.trace(2));
    }

    #[test]
    fn at_its_weight_it_about_doubles_the_load_of_its_hours() {
        let weights: Vec<(&str, f64)> =
            DEFAULT_WEIGHTS.into_iter().chain([("batch", BATCH_WEIGHT)]).collect();
        let workload = Workload::of_bundled(&weights, bundled::SEED).unwrap();
        let index = weights.len() - 1;
        for hour in 622..646 {
            let sites = workload.site_requests(hour).unwrap();
            let (batch, all) = (sites[index], sites.iter().sum::<f64>());
            let part = batch / all;
            if BatchJob::default().runs(hour) {
                assert!((0.4..0.7).contains(&part), "hour {hour}: {part}");
            } else {
                assert!(part < 0.01, "hour {hour}: {part}");
            }
        }
    }
}
