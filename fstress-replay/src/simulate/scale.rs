//! Plexes and file sets larger than the comparison's: its pattern of stores and its sites, as often as are needed.

use super::demand::{CALLS_PER_PERIOD, DAY};
use super::plexes::{DemandKind, PlexKind};
use super::policies::PolicyKind;
use clockwork_traces::batch::BATCH_WEIGHT;
use clockwork_traces::bundled::{self, BundledError};
use clockwork_traces::site::Site;

/// Stores of the comparison's plexes, for which [`CALLS_PER_PERIOD`] is meant.
const STORES: usize = 4;
/// Copies of a site begin on different days of the week, so that not all have their peak in the same hour.
const DAYS_APART: usize = 7;
/// Policies that run where none are chosen. (Each simulates every call; `best` and with it `static` cost little.)
pub const POLICIES: [PolicyKind; 4] =
    [PolicyKind::Default, PolicyKind::Static, PolicyKind::Reactive, PolicyKind::Clockwork];

/// How large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// Stores: capacities and servers are those of the plex's kind, repeated.
    pub stores: usize,
    /// Files, at least: whole sites are added until there are as many.
    pub files: usize,
}

impl Scale {
    /// Capacities of the stores relative to the first.
    #[must_use]
    pub fn capacities(&self, kind: PlexKind) -> Vec<f64> {
        kind.capacities().iter().copied().cycle().take(self.stores).collect()
    }

    /// Calls a period: as many for each store as in the comparison.
    #[must_use]
    pub fn calls_per_period(&self) -> f64 {
        CALLS_PER_PERIOD * self.stores as f64 / STORES as f64
    }

    /// The bundled sites for a day from hour `start`, as often as makes at least `files` files. Copies have popularities and
    /// sizes of their own where these are drawn by seed, and begin on different days of the week; those that have ended by
    /// then are left out.
    ///
    /// # Errors
    /// None in practice: the bundled sites exist.
    pub fn sites(&self, kind: DemandKind, start: u32, seed: u64) -> Result<Vec<(Site, f64)>, BundledError> {
        let campus = if kind == DemandKind::FullCampus { 1.0 } else { 0.3 };
        let mut weights = vec![("campus", campus), ("space", 1.0), ("sport", 1.0), ("social", 1.0)];
        if kind == DemandKind::Batch {
            weights.push((bundled::BATCH, BATCH_WEIGHT));
        }
        let end = start as usize + DAY;
        let (mut sites, mut files, mut copy) = (Vec::new(), 0, 0);
        while files < self.files.max(1) {
            for (name, weight) in &weights {
                let site = copied(bundled::site_with_seed(name, seed.wrapping_add(copy as u64))?, copy);
                if site.hours.len() >= end {
                    files += site.files.len();
                    sites.push((site, *weight));
                }
            }
            copy += 1;
        }
        Ok(sites)
    }
}

/// A site under the name of its copy, with the hours from its own first day on.
fn copied(mut site: Site, copy: usize) -> Site {
    if copy == 0 {
        return site;
    }
    let name = format!("{}-{copy}", site.name);
    for file in &mut site.files {
        if let Some(below) = file.path.strip_prefix(&site.name) {
            file.path = format!("{name}{below}");
        }
    }
    site.name = name;
    site.hours.drain(..(copy % DAYS_APART * DAY).min(site.hours.len()));
    site
}

#[cfg(test)]
mod tests {
    use super::*;
    use clockwork_traces::workload::Workload;
    use std::collections::HashSet;

    #[test]
    fn sites_are_copied_until_there_are_enough_files_of_different_names() {
        let scale = Scale { stores: 10, files: 5_000 };
        let sites = scale.sites(DemandKind::Batch, 350, 1).unwrap();
        assert_eq!(sites[5].0.hours[0], sites[0].0.hours[24], "another day, the same time of day");
        let workload = Workload::new(sites, 1).unwrap();
        let files = workload.files().len();
        assert!((5_000..5_000 + 1_266).contains(&files), "{files}");
        let paths: HashSet<&str> = workload.files().iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths.len(), files);
        assert!(workload.rates(373).is_ok());
        let late = scale.sites(DemandKind::Plain, 600, 1).unwrap();
        assert!(late.iter().all(|(site, _)| site.hours.len() >= 624));
        assert!(late.iter().any(|(site, _)| site.name == "space"), "its first copy has not ended");
        assert!(late.iter().all(|(site, _)| site.name != "space-6"), "this one has");
    }

    #[test]
    fn stores_repeat_the_pattern_and_keep_their_share_of_calls() {
        let scale = Scale { stores: 6, files: 1 };
        assert_eq!(scale.capacities(PlexKind::Tight), [1.0, 1.2, 1.5, 2.0, 1.0, 1.2]);
        assert_eq!(scale.calls_per_period(), 150_000.0);
        assert_eq!(scale.sites(DemandKind::Plain, 350, 1).unwrap().len(), 4);
    }
}
