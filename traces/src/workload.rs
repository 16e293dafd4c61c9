//! Sites combined into one file set, with the rate of requests in every hour and their arrivals.
//!
//! Sites differ a thousandfold in traffic, so each is scaled: a site of weight w brings, in the mean over the hours that all
//! sites have, w / (sum of weights) of [`REQUESTS_PER_HOUR_MEAN`] requests an hour. What is kept is the course of its hours.
//! The heat of a file in an hour is the site's scaled total of that hour times the file's share of it.

use crate::bundled::{self, BundledError};
use crate::site::Site;
use crate::trace_file::TraceData;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::ops::Range;
use std::time::Duration;

/// Mean requests an hour of a workload at factor 1, over the hours that all its sites have.
pub const REQUESTS_PER_HOUR_MEAN: f64 = 100_000.0;
/// Most requests in one hour that [`Workload::arrivals`] gives.
pub const ARRIVALS_MAX: f64 = 1e12;
/// Requests in an hour below which their number is rounded by lot.
pub const ROUNDED_BY_LOT: f64 = 50.0;
/// The sites of the default workload and their weights. `campus` weighs less: its hours are few and noisy.
pub const DEFAULT_WEIGHTS: [(&str, f64); 4] =
    [("campus", 0.3), ("space", 1.0), ("sport", 1.0), ("social", 1.0)];

/// Why there is no workload, or no rate.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum WorkloadError {
    /// No site was given.
    #[error("a workload needs at least one site")]
    NoSite,
    /// A site was given twice: its files would be the same.
    #[error("site {name} was given twice")]
    Twice {
        /// The site.
        name: String,
    },
    /// A weight that is not a positive number.
    #[error("weight {weight} of site {name} is not a positive number")]
    Weight {
        /// The site.
        name: String,
        /// Its weight.
        weight: f64,
    },
    /// No hour in which all sites have a value and one has requests.
    #[error("site {name} has no requests in the hours that all sites have")]
    Empty {
        /// The site.
        name: String,
    },
    /// An hour that a site does not have.
    #[error("site {name} has no value for hour {hour}; the workload has hours {first} to {last}")]
    Hour {
        /// The hour asked for.
        hour: u32,
        /// The site that lacks it.
        name: String,
        /// First hour of the workload.
        first: u32,
        /// Last hour of the workload.
        last: u32,
    },
    /// A factor or length that is not positive, or too many requests.
    #[error("hour {hour}: factor {factor} over {seconds} s gives no sensible number of requests")]
    Factor {
        /// The hour asked for.
        hour: u32,
        /// The factor.
        factor: f64,
        /// The length given to the hour, in seconds.
        seconds: f64,
    },
    /// A bundled site could not be had.
    #[error(transparent)]
    Bundled(#[from] BundledError),
}

/// One file of a workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadFile {
    /// Path below the export, without a leading slash.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Index of its site.
    pub site: usize,
}

/// Sites with their weights, as one file set.
#[derive(Debug, Clone)]
pub struct Workload {
    sites: Vec<Site>,
    /// What a site's total is multiplied by.
    scales: Vec<f64>,
    files: Vec<WorkloadFile>,
    hours: Range<u32>,
    seed: u64,
}

/// One request of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// When it is due, from the beginning of the hour as replayed.
    pub offset: Duration,
    /// Index of its file in [`Workload::files`].
    pub file: u32,
}

impl Workload {
    /// The default workload: [`DEFAULT_WEIGHTS`], seed [`bundled::SEED`].
    ///
    /// # Errors
    /// None in practice: the tests build it.
    pub fn bundled() -> Result<Self, WorkloadError> {
        Self::of_bundled(&DEFAULT_WEIGHTS, bundled::SEED)
    }

    /// A workload of bundled sites with weights; `seed` decides drift, sizes and arrivals.
    ///
    /// # Errors
    /// An unknown site, one given twice, a weight that is not positive.
    pub fn of_bundled(weights: &[(&str, f64)], seed: u64) -> Result<Self, WorkloadError> {
        let sites = weights
            .iter()
            .map(|(name, weight)| Ok((bundled::site_with_seed(name, seed)?, *weight)))
            .collect::<Result<_, BundledError>>()?;
        Self::new(sites, seed)
    }

    /// The workload of an imported trace as it is: at factor 1, an hour of the workload has the requests of a period of the
    /// trace, however long that is. Missing periods are refused as missing hours are.
    ///
    /// # Errors
    /// A trace without requests.
    pub fn of_trace(data: &TraceData, seed: u64) -> Result<Self, WorkloadError> {
        Self::of_site(Site::from_counts(data, seed), seed)
    }

    /// The workload of one site as it is: at factor 1, an hour has the site's own requests.
    ///
    /// # Errors
    /// A site without requests.
    pub fn of_site(site: Site, seed: u64) -> Result<Self, WorkloadError> {
        let mut workload = Self::new(vec![(site, 1.0)], seed)?;
        workload.scales = vec![1.0];
        Ok(workload)
    }

    /// A workload of sites with weights; `seed` decides the arrivals.
    ///
    /// # Errors
    /// No site, one given twice, a weight that is not positive, a site without requests.
    pub fn new(sites: Vec<(Site, f64)>, seed: u64) -> Result<Self, WorkloadError> {
        for (index, (site, weight)) in sites.iter().enumerate() {
            if sites[..index].iter().any(|(other, _)| other.name == site.name) {
                return Err(WorkloadError::Twice { name: site.name.clone() });
            }
            if !(weight.is_finite() && *weight > 0.0) {
                return Err(WorkloadError::Weight { name: site.name.clone(), weight: *weight });
            }
        }
        let shortest = sites.iter().map(|(site, _)| site.hours.len()).min().ok_or(WorkloadError::NoSite)?;
        let hours = 0..u32::try_from(shortest).unwrap_or(u32::MAX);
        let weights: f64 = sites.iter().map(|(_, weight)| weight).sum();
        let scale = |(site, weight): &(Site, f64)| match site.mean_total(hours.clone()) {
            Some(mean) if mean > 0.0 && !site.files.is_empty() => {
                Ok(weight / weights * REQUESTS_PER_HOUR_MEAN / mean)
            }
            _ => Err(WorkloadError::Empty { name: site.name.clone() }),
        };
        let scales = sites.iter().map(scale).collect::<Result<_, _>>()?;
        let sites: Vec<Site> = sites.into_iter().map(|(site, _)| site).collect();
        let files = sites
            .iter()
            .enumerate()
            .flat_map(|(index, site)| {
                site.files.iter().map(move |file| WorkloadFile {
                    path: file.path.clone(),
                    bytes: file.bytes,
                    site: index,
                })
            })
            .collect();
        Ok(Self { sites, scales, files, hours, seed })
    }

    /// The files of all sites; arrivals name them by index.
    #[must_use]
    pub fn files(&self) -> &[WorkloadFile] {
        &self.files
    }

    /// The sites in the order given.
    #[must_use]
    pub fn sites(&self) -> &[Site] {
        &self.sites
    }

    /// The hours that all sites reach; single ones may be missing in a trace.
    #[must_use]
    pub fn hours(&self) -> Range<u32> {
        self.hours.clone()
    }

    /// The seed of the arrivals.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Requests expected in an hour from each site, at factor 1.
    ///
    /// # Errors
    /// [`WorkloadError::Hour`] where a site has no value.
    pub fn site_requests(&self, hour: u32) -> Result<Vec<f64>, WorkloadError> {
        let scaled = |(site, scale): (&Site, &f64)| match site.total(hour) {
            Some(total) => Ok(total as f64 * scale),
            None => Err(WorkloadError::Hour {
                hour,
                name: site.name.clone(),
                first: self.hours.start,
                last: self.hours.end.saturating_sub(1),
            }),
        };
        self.sites.iter().zip(&self.scales).map(scaled).collect()
    }

    /// Requests expected in an hour over all files, at factor 1.
    ///
    /// # Errors
    /// As [`Workload::site_requests`].
    pub fn requests(&self, hour: u32) -> Result<f64, WorkloadError> {
        Ok(self.site_requests(hour)?.iter().sum())
    }

    /// Requests expected in an hour for each file, in the order of [`Workload::files`], at factor 1.
    ///
    /// # Errors
    /// As [`Workload::site_requests`].
    pub fn rates(&self, hour: u32) -> Result<Vec<f64>, WorkloadError> {
        let totals = self.site_requests(hour)?;
        let of_site = |(site, total): (&Site, f64)| -> Vec<f64> {
            site.shares(hour).into_iter().map(|share| share * total).collect()
        };
        Ok(self.sites.iter().zip(totals).flat_map(of_site).collect())
    }

    /// The requests of an hour, played in `length`, at `factor` times the workload's number: in the order of time, the same in
    /// every run.
    ///
    /// Their number is the expected one, rounded to the nearest; below [`ROUNDED_BY_LOT`] it is rounded up or down by lot, so
    /// that rates of less than one are not lost. Their times are those of a Poisson process that has this number (independent and uniform); their files are drawn by rate. So what is
    /// issued can be held against the workload hour by hour, while the gaps stay as irregular as real ones.
    ///
    /// # Errors
    /// As [`Workload::site_requests`]; [`WorkloadError::Factor`] for a factor that is negative or not a number, a length of
    /// zero, or more than [`ARRIVALS_MAX`] requests.
    pub fn arrivals(&self, hour: u32, length: Duration, factor: f64) -> Result<Arrivals, WorkloadError> {
        let mut cumulative = self.rates(hour)?;
        let mut sum = 0.0;
        for rate in &mut cumulative {
            sum += *rate;
            *rate = sum;
        }
        let expected = sum * factor;
        if !(0.0..=ARRIVALS_MAX).contains(&expected) || length.is_zero() {
            return Err(WorkloadError::Factor { hour, factor, seconds: length.as_secs_f64() });
        }
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(u64::from(hour) + 1);
        let lot = rng.random::<f64>();
        let left = (expected + if expected < ROUNDED_BY_LOT { lot } else { 0.5 }).floor() as u64;
        Ok(Arrivals { rng, cumulative, seconds: length.as_secs_f64(), position: 0.0, left })
    }
}

/// The requests of one hour; see [`Workload::arrivals`]. It needs no memory per request.
#[derive(Debug, Clone)]
pub struct Arrivals {
    rng: ChaCha8Rng,
    /// Sums of the rates up to each file.
    cumulative: Vec<f64>,
    seconds: f64,
    /// Part of the hour that is gone, 0 to 1.
    position: f64,
    left: u64,
}

impl Iterator for Arrivals {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        if self.left == 0 {
            return None;
        }
        // The smallest of n uniform numbers over what is left of the hour: sorted times without storing them.
        let uniform: f64 = self.rng.random();
        let gap = 1.0 - (1.0 - uniform).powf(1.0 / self.left as f64);
        self.position = (self.position + (1.0 - self.position) * gap).min(1.0);
        self.left -= 1;
        let sum = self.cumulative.last().copied().unwrap_or(0.0);
        let draw = self.rng.random::<f64>() * sum;
        let last = self.cumulative.len().saturating_sub(1);
        let file = self.cumulative.partition_point(|upto| *upto <= draw).min(last);
        let offset = Duration::from_secs_f64(self.position * self.seconds);
        Some(Arrival { offset, file: u32::try_from(file).unwrap_or(u32::MAX) })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.left);
        (left.unwrap_or(usize::MAX), left.ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundled() -> Workload {
        Workload::bundled().unwrap()
    }

    #[test]
    fn sites_contribute_by_weight() {
        let workload = bundled();
        assert_eq!(workload.hours(), 0..662);
        let mut sums = [0.0; 4];
        for hour in workload.hours() {
            for (sum, requests) in sums.iter_mut().zip(workload.site_requests(hour).unwrap()) {
                *sum += requests / 662.0;
            }
        }
        for (sum, (name, weight)) in sums.iter().zip(DEFAULT_WEIGHTS) {
            let wanted = weight / 3.3 * REQUESTS_PER_HOUR_MEAN;
            assert!((sum / wanted - 1.0).abs() < 1e-9, "{name}: {sum} of {wanted}");
        }
    }

    #[test]
    fn arrivals_are_ordered_equal_in_every_run_and_as_many_as_the_workload_says() {
        let workload = bundled();
        let length = Duration::from_secs(7);
        for hour in 622..646 {
            let expected = workload.requests(hour).unwrap() * 0.02;
            let arrivals: Vec<Arrival> = workload.arrivals(hour, length, 0.02).unwrap().collect();
            assert!((arrivals.len() as f64 - expected).abs() <= 0.5, "hour {hour}");
            assert!((arrivals.len() as f64 / expected - 1.0).abs() < 0.005, "hour {hour}");
            assert!(arrivals.windows(2).all(|pair| pair[0].offset <= pair[1].offset));
            assert!(arrivals.iter().all(|a| a.offset <= length));
            let again: Vec<Arrival> = workload.arrivals(hour, length, 0.02).unwrap().collect();
            assert_eq!(arrivals, again);
        }
    }

    #[test]
    fn small_rates_are_kept_in_the_mean() {
        let workload = bundled();
        let factor = 3e-6; // about a third of a request an hour
        let (mut expected, mut issued) = (0.0, 0);
        for hour in workload.hours() {
            expected += workload.requests(hour).unwrap() * factor;
            issued += workload.arrivals(hour, Duration::from_secs(1), factor).unwrap().count();
        }
        assert!((issued as f64 - expected).abs() < 4.0 * expected.sqrt(), "{issued} of {expected}");
    }

    #[test]
    fn arrivals_spread_over_files_and_time_as_the_rates_say() {
        let workload = bundled();
        let rates = workload.rates(633).unwrap();
        let total: f64 = rates.iter().sum();
        let arrivals: Vec<Arrival> = workload.arrivals(633, Duration::from_secs(10), 1.0).unwrap().collect();
        let mut counts = vec![0_u32; rates.len()];
        let mut tenths = [0_u32; 10];
        for arrival in &arrivals {
            counts[arrival.file as usize] += 1;
            tenths[(arrival.offset.as_secs_f64() as usize).min(9)] += 1;
        }
        let chi: f64 = counts
            .iter()
            .zip(&rates)
            .filter(|(_, rate)| **rate >= 5.0)
            .map(|(count, rate)| (f64::from(*count) - rate).powi(2) / rate)
            .sum();
        let cells = rates.iter().filter(|rate| **rate >= 5.0).count() as f64;
        assert!((chi - cells).abs() < 5.0 * (2.0 * cells).sqrt(), "chi squared {chi} over {cells} files");
        let mean = total / 10.0;
        assert!(
            tenths.iter().all(|count| (f64::from(*count) - mean).abs() < 5.0 * mean.sqrt()),
            "{tenths:?}"
        );
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let workload = bundled();
        let second = Duration::from_secs(1);
        assert!(matches!(workload.requests(662), Err(WorkloadError::Hour { hour: 662, .. })));
        for factor in [-1.0, f64::NAN, f64::INFINITY, 1e300] {
            assert!(matches!(workload.arrivals(0, second, factor), Err(WorkloadError::Factor { .. })));
        }
        assert!(workload.arrivals(0, Duration::ZERO, 1.0).is_err());
        assert_eq!(workload.arrivals(0, second, 0.0).unwrap().count(), 0);
        let refused = |weights: &[(&str, f64)]| Workload::of_bundled(weights, 1).unwrap_err();
        assert_eq!(refused(&[]), WorkloadError::NoSite);
        assert!(matches!(refused(&[("space", 1.0), ("space", 1.0)]), WorkloadError::Twice { .. }));
        assert!(matches!(refused(&[("space", 0.0)]), WorkloadError::Weight { .. }));
        assert!(matches!(refused(&[("moon", 1.0)]), WorkloadError::Bundled(_)));
    }
}
