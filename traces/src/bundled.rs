//! The traces that the project carries, in `traces/data/`, in the format of [`crate::format`].
//!
//! | site | hours | what was counted | files |
//! |---|---|---|---|
//! | `campus` | 1,326 from 1994-10-24 | requests to the computer science web site, University of Calgary | 846, requests counted in each of eight weeks |
//! | `space` | 662 from 1995-07-01 | requests to the web site of the NASA Kennedy Space Center | 120 synthetic, Zipf .7, drift .25 |
//! | `sport` | 1,326 from 1998-04-30 21:00 UTC | requests to the web site of the football World Cup 1998 | 120 synthetic, Zipf .8, drift .25 |
//! | `social` | 1,326 from 2015-02-26 | posts about ten companies | 120 synthetic, Zipf .9, drift .35 |
//! | `batch` | 1,326 | nothing: a nightly job by the rule in [`crate::batch`] | 60 synthetic, Zipf .3, drift .1 |
//!
//! Hourly totals, and the files of `campus` with their sizes and popularity, are measured; everything `synthetic` follows the
//! rule in [`crate::site`].

use crate::batch::BatchJob;
use crate::format::{self, FormatError, Trace};
use crate::site::Site;

/// Names of the bundled sites.
pub const NAMES: [&str; 5] = ["campus", "space", "sport", "social", BATCH];
/// The name of the site that is no recording but a nightly job.
pub const BATCH: &str = "batch";
/// The seed of synthetic files where nothing else is asked for.
pub const SEED: u64 = 2003;

/// Why a bundled site cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BundledError {
    /// No such site.
    #[error("no bundled site is named {name:?}; there are campus, space, sport, social and batch")]
    Unknown {
        /// The name asked for.
        name: String,
    },
    /// The trace in the program is damaged, which the tests rule out.
    #[error("bundled trace {name}: {cause}")]
    Damaged {
        /// The site.
        name: String,
        /// What is wrong.
        cause: FormatError,
    },
}

/// A bundled site with synthetic files by [`SEED`].
///
/// # Errors
/// [`BundledError::Unknown`] for a name that is not in [`NAMES`].
pub fn site(name: &str) -> Result<Site, BundledError> {
    site_with_seed(name, SEED)
}

/// A bundled site whose synthetic files follow `seed`.
///
/// # Errors
/// As [`site`].
pub fn site_with_seed(name: &str, seed: u64) -> Result<Site, BundledError> {
    let trace = if name == BATCH { BatchJob::default().trace(seed) } else { trace(name)? };
    Ok(Site::from_trace(&trace, seed))
}

/// A bundled trace as it stands; that of `batch` is the one by [`SEED`].
///
/// # Errors
/// As [`site`].
pub fn trace(name: &str) -> Result<Trace, BundledError> {
    if name == BATCH {
        return Ok(BatchJob::default().trace(SEED));
    }
    let bytes = bytes(name).ok_or_else(|| BundledError::Unknown { name: name.into() })?;
    format::read(bytes).map_err(|cause| BundledError::Damaged { name: name.into(), cause })
}

fn bytes(name: &str) -> Option<&'static [u8]> {
    match name {
        "campus" => Some(include_bytes!("../data/campus.trace")),
        "space" => Some(include_bytes!("../data/space.trace")),
        "sport" => Some(include_bytes!("../data/sport.trace")),
        "social" => Some(include_bytes!("../data/social.trace")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bundled_trace_is_sound_and_in_canonical_form() {
        let mut files = 0;
        for name in NAMES {
            let trace = trace(name).unwrap();
            assert_eq!(trace.name, name);
            if name == BATCH {
                assert_eq!(format::read(format::write(&trace).as_bytes()).unwrap(), trace);
            } else {
                assert_eq!(format::write(&trace).as_bytes(), bytes(name).unwrap(), "{name}");
            }
            files += site(name).unwrap().files.len();
        }
        assert_eq!(files, 1_206 + 60);
        assert_eq!(site("nasa").unwrap_err(), BundledError::Unknown { name: "nasa".into() });
    }

    #[test]
    fn every_site_has_the_day_from_hour_622() {
        for name in NAMES {
            let site = site(name).unwrap();
            assert!((622..646).all(|hour| site.total(hour).is_some()), "{name}");
            let shares = site.shares(633);
            assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{name}");
        }
    }

    #[test]
    fn campus_counts_per_file_agree_with_its_totals() {
        let trace = trace("campus").unwrap();
        let format::TraceFiles::Counted { weeks, files } = &trace.files else { panic!("campus is counted") };
        for week in 0..*weeks {
            let counted: u64 = files.iter().map(|file| file.requests[week]).sum();
            let total: u64 = trace.hours.iter().skip(week * 168).take(168).flatten().sum();
            // Requests for files that were never sent, and the hours after the trace's end, differ a little.
            let ratio = counted as f64 / total as f64;
            assert!((0.9..1.1).contains(&ratio), "week {week}: {counted} of {total}");
        }
    }
}
