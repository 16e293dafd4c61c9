//! The plexes that are simulated: stores, workload and what disturbs the day.

use super::demand::{DAY, Demand, Jump, JumpKind, SIXTHS, rng_for, signed};
use super::queue::{Curve, Station};
use clap::ValueEnum;
use clockwork_placement::{HandleHash, StoreEntry, Table, TableError};
use clockwork_traces::batch::BATCH_WEIGHT;
use clockwork_traces::bundled;
use clockwork_traces::workload::{Workload, WorkloadError};
use rand::RngExt;
use rand_distr::StandardNormal;
use serde::Serialize;

/// Calls that a store holds at most.
pub const OUTSTANDING_MAX: usize = 64;
/// Utilisation of the busiest store in the period of the day that ranks twelfth by it, under the default rule: it decides how
/// large the stores are.
pub const TWELFTH_UTILISATION: f64 = 0.92;
/// Utilisation of the whole plex that no period of the day exceeds.
pub const PLEX_UTILISATION_MAX: f64 = 0.8;
/// Mean service time of the slowest store's calls, in milliseconds.
pub const SERVICE_MS: f64 = 10.0;
/// Deviation of a store's service time from its mean, on the log scale, and how much of it a period hands on.
const SERVICE_DRIFT: (f64, f64) = (0.015, 0.9);

/// A plex of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlexKind {
    /// Stores very unlike: 1 : 1.5 : 2.2 : 4
    Loose,
    /// Stores less unlike: 1 : 1.2 : 1.5 : 2
    Tight,
    /// Tight, with a batch every night
    TightBatch,
    /// Tight, with jumps that nothing foretells: a hot file, a site, a store that slows down
    TightJumps,
    /// Tight, with one file that has a quarter of all requests
    HotFile,
    /// Tight, with `campus` at weight 1 instead of .3
    FullCampus,
    /// Tight, with one file that has half of all requests (only where asked for)
    HalfFile,
}

/// Which demand a plex has: plexes with the same one share its forecasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DemandKind {
    /// The bundled sites.
    Plain,
    /// With the nightly batch.
    Batch,
    /// With jumps.
    Jumps,
    /// With one hot file.
    HotFile,
    /// With `campus` at weight 1.
    FullCampus,
    /// With a file that is half of it.
    HalfFile,
}

/// Part of all requests that the hot file has.
const HOT_SHARE: f64 = 0.25;
/// The same where it has half of them.
const HALF_SHARE: f64 = 0.5;

impl PlexKind {
    /// All that are simulated unless some are chosen.
    pub const ALL: [Self; 6] =
        [Self::Loose, Self::Tight, Self::TightBatch, Self::TightJumps, Self::HotFile, Self::FullCampus];

    /// Capacities of its stores relative to the first.
    #[must_use]
    pub fn capacities(self) -> &'static [f64] {
        if self == Self::Loose { &[1.0, 1.5, 2.2, 4.0] } else { &[1.0, 1.2, 1.5, 2.0] }
    }

    /// Servers of its stores.
    #[must_use]
    pub fn servers(self) -> &'static [usize] {
        if self == Self::Loose { &[2, 2, 4, 4] } else { &[2, 2, 2, 2] }
    }

    /// Its demand.
    #[must_use]
    pub fn demand(self) -> DemandKind {
        match self {
            Self::Loose | Self::Tight => DemandKind::Plain,
            Self::TightBatch => DemandKind::Batch,
            Self::TightJumps => DemandKind::Jumps,
            Self::HotFile => DemandKind::HotFile,
            Self::FullCampus => DemandKind::FullCampus,
            Self::HalfFile => DemandKind::HalfFile,
        }
    }

    /// Its name on the command line and in the results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Loose => "loose",
            Self::Tight => "tight",
            Self::TightBatch => "tight-batch",
            Self::TightJumps => "tight-jumps",
            Self::HotFile => "hot-file",
            Self::FullCampus => "full-campus",
            Self::HalfFile => "half-file",
        }
    }
}

impl DemandKind {
    /// The bundled sites for a day that begins at `start`: without `space` where that has ended.
    ///
    /// # Errors
    /// None in practice: the bundled sites exist.
    pub fn workload(self, start: u32, seed: u64) -> Result<Workload, WorkloadError> {
        let campus = if self == Self::FullCampus { 1.0 } else { 0.3 };
        let mut weights = vec![("campus", campus), ("space", 1.0), ("sport", 1.0), ("social", 1.0)];
        let space_ends = bundled::site("space")?.hours.len();
        if start as usize + DAY > space_ends {
            weights.retain(|(name, _)| *name != "space");
        }
        let mut sites = Vec::new();
        for (name, weight) in weights {
            sites.push((bundled::site_with_seed(name, seed)?, weight));
        }
        if self == Self::Batch {
            sites.push((bundled::site_with_seed(bundled::BATCH, seed)?, BATCH_WEIGHT));
        }
        Workload::new(sites, seed)
    }

    /// What nothing foretells: a file, a site and a store, each once in the day for three to four hours, one after another.
    #[must_use]
    pub fn jumps(self, workload: &Workload, stores: usize, seed: u64, start: u32) -> Vec<Jump> {
        if self != Self::Jumps {
            return Vec::new();
        }
        let mut rng = rng_for(seed, "jumps", u64::from(start));
        let third = DAY * SIXTHS / 3;
        let mut at = |index: usize, what: JumpKind| {
            let length = rng.random_range(3 * SIXTHS..=4 * SIXTHS);
            let from = index * third + rng.random_range(0..third - length);
            Jump { from, until: from + length, what }
        };
        let mut lot = rng_for(seed, "jumping", u64::from(start));
        let file = lot.random_range(0..workload.files().len().max(1));
        let site = lot.random_range(0..workload.sites().len().max(1));
        let store = lot.random_range(0..stores.max(1));
        vec![
            at(0, JumpKind::HotFile { file, share: 0.15 }),
            at(1, JumpKind::Site { site, factor: 2.0 }),
            at(2, JumpKind::SlowStore { store, factor: 1.5 }),
        ]
    }

    /// The file that is hot all the time and its share: one by lot.
    #[must_use]
    pub fn hot(self, workload: &Workload, seed: u64) -> Option<(usize, f64)> {
        let file = || rng_for(seed, "hot file", 0).random_range(0..workload.files().len().max(1));
        match self {
            Self::HotFile => Some((file(), HOT_SHARE)),
            Self::HalfFile => Some((file(), HALF_SHARE)),
            _ => None,
        }
    }
}

/// A store of a simulated plex.
#[derive(Debug, Clone)]
pub struct SimStore {
    /// Its name.
    pub name: String,
    /// Servers and bound.
    pub station: Station,
    /// Calls a period that keep all its servers busy.
    pub capacity: f64,
    /// Response over service time against utilisation.
    pub curve: Curve,
    /// Factor on its service time in each period, from [`DAY`] before the day on.
    drift: Vec<f64>,
    /// Factors on its service time in single sixths of the day.
    slow: Vec<Jump>,
    /// Milliseconds that a period lasts.
    period_ms: f64,
}

impl SimStore {
    /// Mean service time in periods in a sixth, counted from the beginning of the day (negative: the day before).
    #[must_use]
    pub fn service(&self, sixth: i64) -> f64 {
        let period = usize::try_from(sixth.div_euclid(signed(SIXTHS)) + signed(DAY)).unwrap_or(0);
        let drift = self.drift.get(period).copied().unwrap_or(1.0);
        let now = usize::try_from(sixth).ok();
        let slowed = self.slow.iter().filter(|jump| now.is_some_and(|now| jump.on(now)));
        let factor: f64 = slowed
            .map(|jump| if let JumpKind::SlowStore { factor, .. } = jump.what { factor } else { 1.0 })
            .product();
        self.station.servers as f64 / self.capacity * drift * factor
    }

    /// Periods as milliseconds.
    #[must_use]
    pub fn ms(&self, periods: f64) -> f64 {
        periods * self.period_ms
    }

    /// The truth about it in a period of the day, in equilibrium: service time in milliseconds, utilisation for each
    /// request of the period, and the curve of response over service time against utilisation.
    #[must_use]
    pub fn truth(&self, period: usize) -> (f64, f64, &Curve) {
        let service = self.service(signed(period * SIXTHS + SIXTHS / 2));
        (self.ms(service), service / self.station.servers as f64, &self.curve)
    }

    /// True mean response in milliseconds at a load, requests a period, in a period of the day, in equilibrium.
    #[must_use]
    pub fn true_response(&self, load: f64, period: usize) -> f64 {
        let (unloaded_ms, per_request, curve) = self.truth(period);
        unloaded_ms * curve.at(load * per_request)
    }
}

/// A plex: stores and where the default rule puts every file.
#[derive(Debug, Clone)]
pub struct SimPlex {
    /// The stores.
    pub stores: Vec<SimStore>,
    /// By file: index of its store under the default rule.
    pub home: Vec<u16>,
    /// The table of the default rule, and by file the hash that it goes by.
    table: Table,
    hashes: Vec<HandleHash>,
    /// What disturbs the day.
    pub jumps: Vec<Jump>,
}

impl SimPlex {
    /// Stores of these relative capacities, large enough for the day: see [`TWELFTH_UTILISATION`] and
    /// [`PLEX_UTILISATION_MAX`].
    ///
    /// # Errors
    /// More stores than a table takes.
    pub fn fit(
        capacities: &[f64],
        servers: &[usize],
        workload: &Workload,
        demand: &Demand,
        seed: u64,
        jumps: Vec<Jump>,
    ) -> Result<Self, TableError> {
        let names: Vec<String> = (1..=capacities.len()).map(|n| format!("store{n}")).collect();
        let entries = names.iter().map(|name| StoreEntry::up(name.clone(), 1.0)).collect();
        let table = Table::new(seed, entries)?;
        let hashes: Vec<HandleHash> =
            workload.files().iter().map(|file| table.hash(file.path.as_bytes())).collect();
        let home = homes(&table, &hashes);
        let unit = capacity_unit(capacities, &home, demand);
        let first = (capacities.first().copied().unwrap_or(1.0), servers.first().copied().unwrap_or(1));
        let period_ms = SERVICE_MS * unit * first.0 / first.1 as f64;
        let curves: Vec<(usize, Curve)> = servers
            .iter()
            .map(|c| (*c, Curve::of(Station { servers: *c, outstanding_max: OUTSTANDING_MAX })))
            .collect();
        let store = |(index, name): (usize, String)| {
            let (servers, curve) = curves[index % curves.len()].clone();
            SimStore {
                name,
                station: Station { servers, outstanding_max: OUTSTANDING_MAX },
                capacity: unit * capacities[index],
                curve,
                drift: drift(seed, index, demand.start),
                slow: slowdowns(&jumps, index),
                period_ms,
            }
        };
        let stores = names.into_iter().enumerate().map(store).collect();
        Ok(Self { stores, home, table, hashes, jumps })
    }

    /// By file: index of its store under the default rule with these weights.
    ///
    /// # Errors
    /// What is no weight.
    pub fn homes_by(&self, weights: &[f64]) -> Result<Vec<u16>, TableError> {
        let entry = |(store, weight): (&SimStore, &f64)| StoreEntry::up(store.name.clone(), *weight);
        let table = self.table.with_stores(self.stores.iter().zip(weights).map(entry).collect())?;
        Ok(homes(&table, &self.hashes))
    }

    /// A plex of the comparison.
    ///
    /// # Errors
    /// None in practice.
    pub fn of_kind(
        kind: PlexKind,
        workload: &Workload,
        demand: &Demand,
        seed: u64,
        jumps: Vec<Jump>,
    ) -> Result<Self, TableError> {
        Self::fit(kind.capacities(), kind.servers(), workload, demand, seed, jumps)
    }

    /// Utilisation of the whole plex in its busiest period.
    #[must_use]
    pub fn utilisation(&self, demand: &Demand) -> f64 {
        let capacity: f64 = self.stores.iter().map(|store| store.capacity).sum();
        demand.day.iter().map(|heat| sum(&heat.total) / capacity).fold(0.0, f64::max)
    }
}

fn homes(table: &Table, hashes: &[HandleHash]) -> Vec<u16> {
    hashes.iter().map(|hash| table.default_route(*hash).map_or(0, |store| store.0)).collect()
}

fn sum(heat: &[f32]) -> f64 {
    heat.iter().map(|n| f64::from(*n)).sum()
}

fn slowdowns(jumps: &[Jump], store: usize) -> Vec<Jump> {
    let here = |jump: &&Jump| matches!(jump.what, JumpKind::SlowStore { store: s, .. } if s == store);
    jumps.iter().filter(here).copied().collect()
}

/// Requests a period of a store of relative capacity 1.
fn capacity_unit(capacities: &[f64], home: &[u16], demand: &Demand) -> f64 {
    let (mut busiest, mut peak): (Vec<f64>, f64) = (Vec::new(), 0.0);
    for heat in &demand.day {
        let mut loads = vec![0.0; capacities.len()];
        heat.total.iter().zip(home).for_each(|(n, store)| loads[usize::from(*store)] += f64::from(*n));
        busiest.push(loads.iter().zip(capacities).map(|(load, c)| load / c).fold(0.0, f64::max));
        peak = peak.max(loads.iter().sum());
    }
    busiest.sort_unstable_by(|a, b| b.total_cmp(a));
    let twelfth = busiest.get(11).copied().unwrap_or(1.0) / TWELFTH_UTILISATION;
    let whole = peak / capacities.iter().sum::<f64>() / PLEX_UTILISATION_MAX;
    twelfth.max(whole).max(f64::MIN_POSITIVE)
}

/// Service time factors from a day before the day on: a slow wandering around 1.
fn drift(seed: u64, store: usize, start: u32) -> Vec<f64> {
    let (deviation, kept) = SERVICE_DRIFT;
    let mut rng = rng_for(seed, "drift", (u64::from(start) << 32) + store as u64);
    let mut z: f64 = rng.sample(StandardNormal);
    let mut next = || {
        let step: f64 = rng.sample(StandardNormal);
        z = kept * z + (1.0 - kept * kept).sqrt() * step;
        (deviation * z).exp()
    };
    (0..2 * DAY).map(|_| next()).collect()
}
