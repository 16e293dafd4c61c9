//! One site: its hourly totals, its files, and how the popularity of its files drifts.
//!
//! A file's share of the site's requests is known at the middle of each week and interpolated linearly between; before the
//! first and after the last it is held. Where a trace counts requests per file, the shares are those of the counts.
//! Where it does not (`synthetic`), the rule is:
//!
//! - share of the file of rank r: r^-exponent (Zipf), times exp(drift z), z the value of that week;
//! - z is a stationary AR(1) series over weeks with coefficient .7 and standard deviation 1, drawn by seed and file, so that
//!   popularity moves slowly, differently for every file, and equally in every run;
//! - sizes follow the SFS-like table [`SIZE_TABLE`] in exactly its proportions, dealt out by seed.
//!
//! A site made of an imported trace ([`Site::from_counts`]) knows every file's requests in every period, so there is nothing
//! to interpolate; its periods need not be hours, and stand where this crate says hour.

use crate::format::{CountedFile, Trace, TraceFiles};
use crate::trace_file::{TraceData, TracedFile};
use rand::{RngExt, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

/// Hours in a week, the distance between known shares.
pub const WEEK_HOURS: u32 = 168;
/// Files in a directory (Fstress' value).
pub const FILES_PER_DIRECTORY: usize = 5;
/// File sizes in KiB and their frequency in per cent, as in SPEC SFS; the mean is 26.7 KiB.
pub const SIZE_TABLE: [(u64, u32); 10] =
    [(1, 33), (2, 21), (4, 13), (8, 10), (16, 8), (32, 5), (64, 4), (128, 3), (256, 2), (1024, 1)];
/// Coefficient of the weekly AR(1) series of synthetic popularity.
const DRIFT_AR: f64 = 0.7;

/// A site with its files.
#[derive(Debug, Clone)]
pub struct Site {
    /// Its name, which is also the first directory of its files.
    pub name: String,
    /// What was counted, in words.
    pub about: String,
    /// When hour 0 began.
    pub starts: String,
    /// Requests in each hour; `None` where the hour is missing.
    pub hours: Vec<Option<u64>>,
    /// Its files.
    pub files: Vec<FileSpec>,
    /// Length of what is called an hour, in seconds: 3,600 except for imported traces with other periods.
    pub period_s: u32,
    /// Where they are known: the files asked for in each hour, and their requests.
    counts: Option<Vec<Vec<(u32, u64)>>>,
}

/// One file of a site.
#[derive(Debug, Clone, PartialEq)]
pub struct FileSpec {
    /// Path below the export, without a leading slash: `SITE/dNNN/fNNNN`.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Share of the site's requests at the middle of each week; never negative, each week sums to 1 over all files.
    pub popularity: Vec<f64>,
}

impl Site {
    /// A site from its trace; `seed` decides the drift and the sizes of synthetic files and nothing else.
    #[must_use]
    pub fn from_trace(trace: &Trace, seed: u64) -> Self {
        let mut files = match &trace.files {
            TraceFiles::Counted { files, .. } => counted(&trace.name, files),
            TraceFiles::Synthetic { files, exponent, drift } => {
                let weeks = trace.hours.len().div_ceil(WEEK_HOURS as usize).max(1);
                let seed = seed ^ (u64::from(crc32fast::hash(trace.name.as_bytes())) << 32);
                synthetic(&trace.name, *files, *exponent, *drift, weeks, seed)
            }
        };
        normalise(&mut files);
        Self {
            name: trace.name.clone(),
            about: trace.about.clone(),
            starts: trace.starts.clone(),
            hours: trace.hours.clone(),
            files,
            period_s: 3_600,
            counts: None,
        }
    }

    /// A site from an imported trace: every file has in every period the requests that were counted. Files get the largest
    /// size that the log shows; where it shows none, a size of [`SIZE_TABLE`], dealt out by `seed`.
    #[must_use]
    pub fn from_counts(data: &TraceData, seed: u64) -> Self {
        let mut sizes: Vec<u64> = (0..data.files.len()).map(|i| table_size(i, data.files.len())).collect();
        sizes.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
        let mut requests = vec![0_u64; data.files.len()];
        for count in data.periods.values().flatten() {
            if let Some(sum) = requests.get_mut(count.file as usize) {
                *sum = sum.saturating_add(count.requests);
            }
        }
        let spec = |(index, ((file, size), requests)): (usize, ((&TracedFile, u64), u64))| FileSpec {
            path: path(&data.head.name, index, index, data.files.len()),
            bytes: if file.bytes > 0 { file.bytes } else { size },
            popularity: vec![requests as f64],
        };
        let mut files: Vec<FileSpec> =
            data.files.iter().zip(sizes).zip(requests).enumerate().map(spec).collect();
        normalise(&mut files);
        let (first, periods) = data.span().unwrap_or((0, 0));
        let of_period = |period| {
            let counts = data.periods.get(&period).map_or(&[][..], Vec::as_slice);
            counts.iter().map(|count| (count.file, count.requests)).collect()
        };
        Self {
            name: data.head.name.clone(),
            about: data.head.about.clone(),
            starts: format!("{} s after 1970-01-01T00:00Z", data.head.period_start_s(first)),
            hours: data.totals(),
            files,
            period_s: data.head.period_s,
            counts: Some((first..first + periods.cast_signed()).map(of_period).collect()),
        }
    }

    /// The site with no request in hours that are missing: a replay goes on through them in silence, instead of being refused.
    #[must_use]
    pub fn with_missing_as_zero(mut self) -> Self {
        for hour in &mut self.hours {
            hour.get_or_insert(0);
        }
        self
    }

    /// Requests in an hour, `None` where the hour is missing or beyond the trace.
    #[must_use]
    pub fn total(&self, hour: u32) -> Option<u64> {
        self.hours.get(usize::try_from(hour).ok()?).copied().flatten()
    }

    /// Every file's share of the site's requests in an hour, in the order of `files`; the sum is 1.
    #[must_use]
    pub fn shares(&self, hour: u32) -> Vec<f64> {
        if let Some(shares) = self.counted_shares(hour) {
            return shares;
        }
        self.files.iter().map(|file| at_hour(&file.popularity, hour)).collect()
    }

    /// The shares by count; `None` where there is none.
    fn counted_shares(&self, hour: u32) -> Option<Vec<f64>> {
        let counts = self.counts.as_ref()?.get(usize::try_from(hour).ok()?)?;
        let sum: f64 = counts.iter().map(|(_, requests)| *requests as f64).sum();
        let mut shares = vec![0.0; self.files.len()];
        for (file, requests) in counts {
            if let Some(share) = shares.get_mut(*file as usize) {
                *share += *requests as f64 / sum;
            }
        }
        (sum > 0.0).then_some(shares)
    }

    /// Mean of the totals in `hours` that are there; `None` if none is.
    #[must_use]
    pub fn mean_total(&self, hours: std::ops::Range<u32>) -> Option<f64> {
        let totals: Vec<u64> = hours.filter_map(|hour| self.total(hour)).collect();
        let count = u32::try_from(totals.len()).ok().filter(|count| *count > 0)?;
        Some(totals.iter().map(|total| *total as f64).sum::<f64>() / f64::from(count))
    }
}

/// The value at the middle of an hour of a series known at the middle of each week.
fn at_hour(weekly: &[f64], hour: u32) -> f64 {
    let last = weekly.len().saturating_sub(1);
    let position = ((f64::from(hour) + 0.5) / f64::from(WEEK_HOURS) - 0.5).clamp(0.0, last as f64);
    let left = position.floor() as usize;
    let right = (left + 1).min(last);
    let part = position - left as f64;
    match (weekly.get(left), weekly.get(right)) {
        (Some(a), Some(b)) => a + (b - a) * part,
        _ => 0.0,
    }
}

/// The path of the file of index `index`: neighbours in rank lie in different directories, so that no directory is hot by
/// construction.
fn path(site: &str, index: usize, id: usize, files: usize) -> String {
    let directories = files.div_ceil(FILES_PER_DIRECTORY).max(1);
    format!("{site}/d{:03}/f{id:04}", index % directories)
}

fn counted(site: &str, files: &[CountedFile]) -> Vec<FileSpec> {
    let spec = |(index, file): (usize, &CountedFile)| FileSpec {
        path: path(site, index, file.id as usize, files.len()),
        bytes: file.bytes,
        popularity: file.requests.iter().map(|count| *count as f64).collect(),
    };
    files.iter().enumerate().map(spec).collect()
}

fn synthetic(site: &str, files: usize, exponent: f64, drift: f64, weeks: usize, seed: u64) -> Vec<FileSpec> {
    let mut sizes: Vec<u64> = (0..files).map(|index| table_size(index, files)).collect();
    sizes.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
    let spec = |(index, bytes): (usize, u64)| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed.wrapping_add(1 + index as u64));
        let base = ((index + 1) as f64).powf(-exponent);
        let mut z: f64 = rng.sample(StandardNormal);
        let mut week = || {
            let weight = base * (drift * z).exp();
            let step: f64 = rng.sample(StandardNormal);
            z = DRIFT_AR * z + (1.0 - DRIFT_AR * DRIFT_AR).sqrt() * step;
            weight
        };
        FileSpec {
            path: path(site, index, index, files),
            bytes,
            popularity: (0..weeks).map(|_| week()).collect(),
        }
    };
    sizes.into_iter().enumerate().map(spec).collect()
}

/// The size at the quantile (index + .5) / files of the size table, in bytes.
fn table_size(index: usize, files: usize) -> u64 {
    let percent = (index as f64 + 0.5) * 100.0 / files as f64;
    let mut below = 0.0;
    for (kib, share) in SIZE_TABLE {
        below += f64::from(share);
        if percent < below {
            return kib << 10;
        }
    }
    SIZE_TABLE[SIZE_TABLE.len() - 1].0 << 10
}

/// Makes every week's shares sum to 1. A week without any request gets equal shares: nothing better is known.
fn normalise(files: &mut [FileSpec]) {
    let weeks = files.iter().map(|file| file.popularity.len()).max().unwrap_or(0);
    for week in 0..weeks {
        let sum: f64 = files.iter().filter_map(|file| file.popularity.get(week)).sum();
        let equal = 1.0 / files.len() as f64;
        for share in files.iter_mut().filter_map(|file| file.popularity.get_mut(week)) {
            *share = if sum > 0.0 { *share / sum } else { equal };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn synthetic_site(seed: u64) -> Site {
        let trace = Trace {
            name: "made".into(),
            about: String::new(),
            starts: String::new(),
            hours: vec![Some(1); 1000],
            files: TraceFiles::Synthetic { files: 100, exponent: 0.8, drift: 0.3 },
        };
        Site::from_trace(&trace, seed)
    }

    #[test]
    fn shares_sum_to_one_and_follow_zipf() {
        let site = synthetic_site(1);
        for hour in [0, 83, 84, 500, 999, 5000] {
            let shares = site.shares(hour);
            assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            assert!(shares.iter().all(|share| *share > 0.0));
        }
        // The slope of log share on log rank is minus the exponent, give or take the drift.
        let shares = site.shares(500);
        let points: Vec<(f64, f64)> =
            shares.iter().enumerate().map(|(i, s)| (((i + 1) as f64).ln(), s.ln())).collect();
        let mean = |f: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(f).sum::<f64>() / points.len() as f64;
        let (x, y) = (mean(&|p| p.0), mean(&|p| p.1));
        let slope = mean(&|p| (p.0 - x) * (p.1 - y)) / mean(&|p| (p.0 - x).powi(2));
        assert!((slope + 0.8).abs() < 0.15, "{slope}");
    }

    #[test]
    fn drift_is_slow_and_follows_the_seed() {
        let (one, same, other) = (synthetic_site(1), synthetic_site(1), synthetic_site(2));
        assert_eq!(one.files, same.files);
        assert_ne!(one.shares(500), other.shares(500));
        let change = |a: u32, b: u32| -> f64 {
            one.shares(a).iter().zip(one.shares(b)).map(|(a, b)| (a / b).ln().abs()).sum::<f64>() / 100.0
        };
        assert!(change(500, 501) < 0.005, "an hour changes little: {}", change(500, 501));
        assert!(change(84, 84 + 5 * 168) > 0.1, "five weeks change something: {}", change(84, 924));
    }

    #[test]
    fn sizes_follow_the_table() {
        let site = synthetic_site(1);
        for (kib, percent) in SIZE_TABLE {
            let count = site.files.iter().filter(|file| file.bytes == kib << 10).count();
            assert_eq!(count, percent as usize, "{kib} KiB");
        }
    }

    #[test]
    fn an_imported_site_has_the_requests_of_its_trace_in_every_period() {
        use crate::import::{ImportOptions, Importer};
        let table = "file,period,count\na,0,3\nb,0,1\nb,2,5\nc,3,0\n";
        let mut importer =
            Importer::new(Vec::new(), ImportOptions { period_s: 60, ..ImportOptions::default() }).unwrap();
        importer.read("table", table.as_bytes()).unwrap();
        let data = TraceData::read(&importer.finish().unwrap().0[..]).unwrap();
        let site = Site::from_counts(&data, 1);
        assert_eq!(site.hours, [Some(4), None, Some(5), Some(0)]);
        assert_eq!((site.period_s, site.files.len()), (60, 2));
        assert_eq!(site.shares(0), [0.75, 0.25]);
        assert_eq!(site.shares(2), [0.0, 1.0]);
        assert!((site.shares(3).iter().sum::<f64>() - 1.0).abs() < 1e-12);
        assert!(site.files.iter().all(|file| file.bytes > 0));
        let workload = crate::workload::Workload::of_trace(&data, 1).unwrap();
        assert!((workload.requests(2).unwrap() - 5.0).abs() < 1e-12, "at factor 1 the trace's own requests");
        assert!(workload.requests(1).is_err());
        assert_eq!(site.with_missing_as_zero().hours[1], Some(0));
    }

    #[test]
    fn counted_shares_are_those_of_the_middle_of_the_week() {
        let file = |id, requests: [u64; 2]| CountedFile { id, bytes: 1, requests: requests.to_vec() };
        let trace = Trace {
            name: "two".into(),
            about: String::new(),
            starts: String::new(),
            hours: vec![Some(1), None],
            files: TraceFiles::Counted { weeks: 2, files: vec![file(0, [1, 3]), file(7, [3, 1])] },
        };
        let site = Site::from_trace(&trace, 0);
        assert_eq!(site.files[1].path, "two/d000/f0007");
        assert_eq!((site.total(0), site.total(1), site.total(2)), (Some(1), None, None));
        assert!((site.shares(0)[0] - 0.25).abs() < 1e-12, "held before the middle of the first week");
        assert!((site.shares(84)[0] - 0.25).abs() < 0.01);
        assert!((site.shares(168)[0] - 0.5).abs() < 0.01, "half way between");
        assert!((site.shares(400)[0] - 0.75).abs() < 1e-12, "held after the middle of the last week");
    }
}
