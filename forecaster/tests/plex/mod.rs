//! A plex without time: periods of Poisson traffic over files, stores as queues in closed form.
#![allow(dead_code, reason = "each test uses some of it")]
#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use clockwork_forecaster::controller::{
    Controller, Decision, FileId, History, MemoryHistory, Mode, PartialPeriod, PeriodReport, Placement,
    PlexView, Settings, StoreReport, StoreState, StoreView,
};
use clockwork_forecaster::plan::ReadShare;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Poisson, StandardNormal};

/// Response time of an M/M/c store, milliseconds.
pub(crate) fn response(load: f64, capacity: f64, servers: f64, unloaded: f64) -> f64 {
    let rho = (load / capacity).min(1.0);
    let g = 1.0 + rho.powf((2.0 * (servers + 1.0)).sqrt() - 1.0) / (servers * (1.0 - rho).max(1e-9));
    unloaded * g.min(64.0 / servers)
}

#[derive(Default)]
pub(crate) struct Places {
    pub homes: Vec<usize>,
    pub exceptions: HashMap<FileId, usize>,
    pub pinned: HashSet<FileId>,
    pub shares: HashMap<FileId, Vec<ReadShare>>,
    pub up: Vec<usize>,
}

impl Placement for Places {
    fn home(&self, file: FileId) -> Option<usize> {
        let home = *self.homes.get(file.index())?;
        if self.up.contains(&home) {
            return Some(home);
        }
        (!self.up.is_empty()).then(|| self.up[file.index() % self.up.len()])
    }
    fn exception(&self, file: FileId) -> Option<usize> {
        self.exceptions.get(&file).copied()
    }
    fn pinned(&self, file: FileId) -> bool {
        self.pinned.contains(&file)
    }
    fn replicated(&self) -> Vec<FileId> {
        self.shares.keys().copied().collect()
    }
    fn shares(&self, file: FileId) -> Vec<ReadShare> {
        self.shares.get(&file).cloned().unwrap_or_default()
    }
}

pub(crate) struct Plex {
    pub stores: Vec<StoreView>,
    pub capacities: Vec<f64>,
    pub places: Places,
    pub rng: ChaCha8Rng,
    pub noise: f64,
    pub slower: Vec<f64>,
}

impl Plex {
    pub(crate) fn new(capacities: &[f64], files: usize, seed: u64) -> Self {
        let store = |s: usize| StoreView {
            name: Arc::from(format!("store{s}")),
            state: StoreState::Up,
            weight: 1.0,
            outstanding_max: 64.0,
        };
        let homes = (0..files).map(|f| (f.wrapping_mul(2_654_435_761) >> 7) % capacities.len()).collect();
        Self {
            stores: (0..capacities.len()).map(store).collect(),
            places: Places { homes, up: (0..capacities.len()).collect(), ..Places::default() },
            slower: vec![1.0; capacities.len()],
            capacities: capacities.to_vec(),
            rng: ChaCha8Rng::seed_from_u64(seed),
            noise: 0.05,
        }
    }

    pub(crate) fn set_state(&mut self, store: usize, state: StoreState) {
        self.stores[store].state = state;
        self.places.up = (0..self.stores.len()).filter(|s| self.stores[*s].state == StoreState::Up).collect();
    }

    pub(crate) fn view(&self) -> PlexView<'_> {
        PlexView { stores: &self.stores, placement: &self.places }
    }

    /// Counts of a period with these means.
    pub(crate) fn counts(&mut self, means: &[f64]) -> Vec<f64> {
        let mut count =
            |mean: f64| if mean > 0.0 { Poisson::new(mean).unwrap().sample(&mut self.rng) } else { 0.0 };
        means.iter().map(|m| count(*m)).collect()
    }

    pub(crate) fn loads(&self, counts: &[f64]) -> Vec<f64> {
        let mut loads = vec![0.0; self.stores.len()];
        for (file, count) in counts.iter().enumerate() {
            let file = FileId(file as u32);
            let shares = self.places.shares(file);
            let sum: f64 = shares.iter().map(|share| share.part).sum();
            if sum > 0.0 {
                shares.iter().for_each(|share| loads[share.store] += count * share.part / sum);
            } else if let Some(store) = self.view().serving(file) {
                loads[store] += count;
            }
        }
        loads
    }

    pub(crate) fn report(&mut self, period: i64, counts: &[f64]) -> PeriodReport {
        let loads = self.loads(counts);
        self.report_loads(period, counts, &loads)
    }

    pub(crate) fn report_loads(&mut self, period: i64, counts: &[f64], loads: &[f64]) -> PeriodReport {
        let files = counts.iter().enumerate().filter(|c| *c.1 > 0.0);
        PeriodReport {
            period,
            stores: (0..self.stores.len()).map(|s| self.store_report(s, loads[s], 1.0)).collect(),
            files: files.map(|(f, count)| (FileId(f as u32), *count)).collect(),
            ..PeriodReport::default()
        }
    }

    fn store_report(&mut self, s: usize, load: f64, part: f64) -> StoreReport {
        let normal: f64 = StandardNormal.sample(&mut self.rng);
        let ms = response(load / part, self.capacities[s], 1.0, 1.0)
            * self.slower[s]
            * (self.noise * normal).exp();
        StoreReport {
            name: self.stores[s].name.clone(),
            requests: load,
            response_ms: if load > 0.0 { ms } else { f64::NAN },
            response_variance_ms2: ms * ms,
            saturated: false,
        }
    }

    pub(crate) fn partial(&mut self, period: i64, sixths: u8, counts: &[f64]) -> PartialPeriod {
        let loads = self.loads(counts);
        let part = f64::from(sixths) / 6.0;
        let files = counts.iter().enumerate().filter(|c| *c.1 > 0.0);
        PartialPeriod {
            period,
            sixths,
            files: files.map(|(f, count)| (FileId(f as u32), *count)).collect(),
            unlisted: 0.0,
            stores: (0..self.stores.len()).map(|s| self.store_report(s, loads[s], part)).collect(),
        }
    }

    pub(crate) fn apply(&mut self, decision: &Decision) {
        for made in &decision.moves {
            self.places.exceptions.insert(made.file, made.to);
        }
        for made in &decision.returns {
            self.places.exceptions.remove(&made.file);
        }
        for made in &decision.replications {
            self.places.exceptions.insert(made.file, made.stores[0].store);
            self.places.shares.remove(&made.file);
            if made.stores.len() > 1 {
                self.places.shares.insert(made.file, made.stores.clone());
            }
        }
    }

    pub(crate) fn worst_ms(&self, loads: &[f64]) -> f64 {
        let ms = |s: usize| response(loads[s], self.capacities[s], 1.0, 1.0) * self.slower[s];
        (0..loads.len()).map(ms).fold(0.0, f64::max)
    }
}

/// Zipf-like shares of files, which sum to 1.
pub(crate) fn zipf(files: usize, exponent: f64) -> Vec<f64> {
    let raw: Vec<f64> = (0..files).map(|f| (f as f64 + 3.0).powf(-exponent)).collect();
    let sum: f64 = raw.iter().sum();
    raw.iter().map(|r| r / sum).collect()
}

/// A day between .5 and 1.5.
pub(crate) fn day(period: i64) -> f64 {
    1.0 - 0.5 * (2.0 * std::f64::consts::PI * (period as f64 + 2.0) / 24.0).cos()
}

pub(crate) fn controller(mode: Mode, objective_ms: f64) -> Controller<MemoryHistory> {
    controller_with(mode, objective_ms, 1)
}

pub(crate) fn controller_with(
    mode: Mode,
    objective_ms: f64,
    replicas_max: usize,
) -> Controller<MemoryHistory> {
    let mut settings = Settings { mode, ..Settings::default() };
    settings.objective.response_ms = objective_ms;
    settings.plan.replicas_max = replicas_max;
    Controller::new(settings, MemoryHistory::default()).unwrap()
}

/// What must hold of every decision.
pub(crate) fn check<H: History>(decision: &Decision, controller: &Controller<H>, view: &PlexView<'_>) {
    let most = controller.settings().plan.moves_max;
    assert!(decision.moves.len() + decision.returns.len() <= most);
    for made in decision.moves.iter().chain(&decision.returns) {
        assert!(view.is_up(made.to), "{made:?}");
        assert!(!view.placement.pinned(made.file), "{made:?}");
        let r = &made.reason;
        assert!(
            r.heat.is_finite() && r.from_load.is_finite() && !r.to_response_ms.1.is_infinite(),
            "{made:?}"
        );
    }
    for made in &decision.moves {
        assert_ne!(view.serving(made.file), Some(made.to), "{made:?}");
    }
    for made in &decision.replications {
        assert!(made.stores.iter().all(|share| view.is_up(share.store) && share.part > 0.0), "{made:?}");
        assert!(made.stores.len() <= controller.settings().plan.replicas_max && made.reason.heat.is_finite());
    }
    for (_, s) in &decision.stores {
        assert!(s.requests.is_finite() && s.requests >= 0.0 && s.requests_after.is_finite(), "{s:?}");
        assert!(
            s.requests_quantiles.iter().all(|q| q.is_finite()) && s.requests_quantiles.is_sorted(),
            "{s:?}"
        );
        for r in [s.response_before, s.response_after].into_iter().flatten() {
            assert!(r.low66_ms.is_finite() && r.high66_ms.is_finite() && r.quantile_ms.is_finite(), "{s:?}");
            assert!(r.low66_ms <= r.median_ms && r.median_ms <= r.high66_ms, "{s:?}");
        }
    }
    if let Some(weights) = &decision.weights_advice {
        assert!(weights.iter().all(|w| w.is_finite() && *w >= 0.0));
    }
}
