//! Policies that run the router's own controller, with forecasts, with the last period's heat or with the truth.

use super::day::{Expected, Planner, Sent, Shared, Wanted};
use super::demand::{DAY, Demand, PeriodHeat, signed};
use super::plexes::SimPlex;
use super::policies::PolicyKind;
use super::world::StorePeriod;
use anyhow::Context as _;
use clockwork_forecaster::controller::{
    Controller, Decision, FileId, Forecasts, MemoryHistory, Mode, PartialPeriod, PeriodReport, Placement,
    PlexView, Settings, StoreReport, StoreState, StoreView, WeightsMode,
};
use clockwork_forecaster::objective::Objective;
use clockwork_forecaster::plan::{Heat, PlanSettings, ReadShare};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Confidence of the objective: the paper's.
const CONFIDENCE: f64 = 0.66;
/// Stores that may share a file where a policy shares files at all.
const REPLICAS_MAX: usize = 4;
/// Part of all requests from which on it is told how many of a file's requests are reads.
const READS_TOLD: f64 = 0.01;
/// Calls, and part of all calls, from which on a file is told of in a running period.
const TOLD_MIN: (f64, f64) = (8.0, 1e-4);
/// Periods kept in a policy's history: those of the day and of the one before.
const STORE_PERIODS: usize = 2 * DAY;

/// Most moves in a period: the controller's own limit for the comparison's four stores, in proportion for more.
fn moves_max(plex: &SimPlex) -> usize {
    PlanSettings::default().moves_max * plex.stores.len().max(4) / 4
}

/// The forecasts before each period of the day: they depend on demand alone, so that policies and plexes share them.
///
/// # Errors
/// None in practice: the settings are the defaults.
pub fn forecasts(demand: &Demand) -> anyhow::Result<Vec<Arc<Forecasts>>> {
    let mut controller = Controller::new(Settings::default(), MemoryHistory::default())?;
    let first = i64::from(demand.start) - signed(demand.history.len());
    for (period, heat) in (first..).zip(&demand.history) {
        if let Some(heat) = heat {
            controller.observe(&files_report(period, heat))?;
        }
    }
    let mut forecasts = Vec::with_capacity(DAY);
    for (period, heat) in (i64::from(demand.start)..).zip(&demand.day) {
        forecasts.push(controller.forecast());
        controller.observe(&files_report(period, &heat.total))?;
    }
    Ok(forecasts)
}

fn files(heat: &[f32]) -> Vec<(FileId, f64)> {
    let listed = heat.iter().enumerate().filter(|(_, n)| **n > 0.0);
    listed.map(|(file, n)| (FileId(u32::try_from(file).unwrap_or(u32::MAX)), f64::from(*n))).collect()
}

/// What is told of a running period: the files with some calls, and the calls of all others, as the router does it.
fn told(heat: &[f32]) -> (Vec<(FileId, f64)>, f64) {
    let total: f64 = heat.iter().map(|n| f64::from(*n)).sum();
    let least = (TOLD_MIN.1 * total).max(TOLD_MIN.0);
    let told: Vec<(FileId, f64)> = files(heat).into_iter().filter(|file| file.1 >= least).collect();
    let unlisted = total - told.iter().map(|file| file.1).sum::<f64>();
    (told, unlisted.max(0.0))
}

fn files_report(period: i64, heat: &[f32]) -> PeriodReport {
    PeriodReport { period, files: files(heat), ..PeriodReport::default() }
}

/// Where a policy's heat comes from.
enum Source<'a> {
    /// Forecasts.
    Forecast(&'a [Arc<Forecasts>]),
    /// The last period.
    Last(Vec<f32>),
    /// The periods to come.
    Truth(&'a [PeriodHeat]),
}

/// A policy that runs the controller.
pub struct Controlled<'a> {
    controller: Controller<MemoryHistory>,
    source: Source<'a>,
    stores: Vec<StoreView>,
    plex: &'a SimPlex,
    /// By file: its store under the default rule.
    home: Cow<'a, [u16]>,
    start: i64,
    watches: bool,
    /// The stores that share a file, as decided.
    shares: BTreeMap<FileId, Vec<ReadShare>>,
}

impl<'a> Controlled<'a> {
    /// The policy `kind` ([`PolicyKind::plans`]) after a day in which `before` was seen of the stores.
    ///
    /// # Errors
    /// An objective that cannot be.
    pub fn new(
        kind: PolicyKind,
        plex: &'a SimPlex,
        demand: &'a Demand,
        forecasts: &'a [Arc<Forecasts>],
        before: &[Vec<StorePeriod>],
        objective_ms: f64,
    ) -> anyhow::Result<Self> {
        let paper = kind == PolicyKind::Paper;
        let watches = matches!(
            kind,
            PolicyKind::Clockwork | PolicyKind::ClockworkReplicas | PolicyKind::ClockworkWeights
        );
        let defaults = Settings::default();
        let plan = if paper { PlanSettings::paper() } else { defaults.plan };
        let replicas_max =
            if kind == PolicyKind::ClockworkReplicas { REPLICAS_MAX } else { plan.replicas_max };
        let plan = PlanSettings { moves_max: moves_max(plex), replicas_max, ..plan };
        let settings = Settings {
            objective: Objective { response_ms: objective_ms, confidence: CONFIDENCE },
            mode: Mode::Control,
            plan: if kind == PolicyKind::Weights { unmoved(plan) } else { plan },
            weights: if kind.weighs() { WeightsMode::Apply } else { WeightsMode::Off },
            guard: if watches { defaults.guard } else { None },
            ..defaults
        };
        let source = match kind {
            PolicyKind::Reactive => Source::Last(
                demand.history.last().cloned().flatten().context("the period before the day is missing")?,
            ),
            PolicyKind::Oracle => Source::Truth(&demand.day),
            _ => Source::Forecast(forecasts),
        };
        let view = |store: &super::plexes::SimStore| StoreView {
            name: store.name.as_str().into(),
            state: StoreState::Up,
            weight: 1.0,
            outstanding_max: store.station.outstanding_max as f64,
        };
        let mut policy = Self {
            controller: Controller::new(settings, MemoryHistory::new(STORE_PERIODS))?,
            source,
            stores: plex.stores.iter().map(view).collect(),
            plex,
            home: Cow::Borrowed(&plex.home),
            start: i64::from(demand.start),
            watches,
            shares: BTreeMap::new(),
        };
        for (index, stores) in before.iter().enumerate() {
            let at = policy.start - signed(before.len() - index);
            policy.observe(at, &demand.learning[index].total, stores);
        }
        Ok(policy)
    }

    fn store_reports(&self, stores: &[StorePeriod]) -> Vec<StoreReport> {
        let report = |(view, store): (&StoreView, &StorePeriod)| StoreReport {
            name: view.name.clone(),
            requests: store.requests,
            response_ms: store.response_ms,
            // Exponential service, little waiting: about the square of the mean.
            response_variance_ms2: store.response_ms * store.response_ms,
            saturated: store.saturated(),
        };
        self.stores.iter().zip(stores).map(report).collect()
    }

    /// Records what the stores did; what single files did is in the shared forecasts.
    fn observe(&mut self, period: i64, heat: &[f32], stores: &[StorePeriod]) {
        let unlisted = heat.iter().map(|n| f64::from(*n)).sum();
        let hot = heat.iter().enumerate().filter(|(_, n)| f64::from(**n) >= READS_TOLD * unlisted);
        // Every request of a simulated file is a read.
        let reads = hot.map(|(file, _)| (FileId(u32::try_from(file).unwrap_or(u32::MAX)), 1.0)).collect();
        let stores = self.store_reports(stores);
        let report = PeriodReport { period, stores, unlisted, reads, ..PeriodReport::default() };
        // Refused are periods that go back, which these do not.
        let _ = self.controller.observe(&report);
    }

    /// Puts weights in force, if it is time for it; the files that follow the default rule elsewhere by that.
    fn rehome(&mut self, forecasts: &Forecasts, place: &[u16]) -> Vec<Sent> {
        let places = Places { home: &self.home, place, shares: &self.shares };
        let view = PlexView { stores: &self.stores, placement: &places };
        let Some(change) = self.controller.weigh(forecasts, &view) else { return Vec::new() };
        // What the controller gives are weights.
        let Ok(home) = self.plex.homes_by(&change.after) else { return Vec::new() };
        self.stores.iter_mut().zip(&change.after).for_each(|(store, weight)| store.weight = *weight);
        let shared = |file: usize| self.shares.contains_key(&FileId(u32::try_from(file).unwrap_or(u32::MAX)));
        let files = self.home.iter().zip(&home).zip(place).enumerate();
        let rehomed = files
            .filter(|(file, ((before, now), at))| before == at && now != at && !shared(*file))
            .map(|(file, ((_, now), _))| Sent { file, to: usize::from(*now) });
        let rehomed = rehomed.collect();
        self.home = Cow::Owned(home);
        rehomed
    }

    fn heat(&self, period: usize) -> Arc<Forecasts> {
        let at = self.start + signed(period);
        match &self.source {
            Source::Forecast(forecasts) => forecasts[period].clone(),
            Source::Last(heat) => Arc::new(Forecasts::known(at, rows(&[heat]), 0.0)),
            Source::Truth(day) => {
                let ahead = day[period..].iter().take(self.controller.settings().horizon);
                Arc::new(Forecasts::known(at, rows(&ahead.map(|heat| &heat.total).collect::<Vec<_>>()), 0.0))
            }
        }
    }
}

/// A plan that moves nothing.
fn unmoved(plan: PlanSettings) -> PlanSettings {
    PlanSettings { moves_max: 0, prepare_moves_max: 0, give_back: None, ..plan }
}

/// Heat of all files in some periods.
fn rows(periods: &[&Vec<f32>]) -> Heat {
    let count = periods.first().map_or(0, |heat| heat.len());
    let mut heat = Heat::new(count, periods.len());
    for (ahead, counts) in periods.iter().enumerate() {
        for (file, n) in counts.iter().enumerate() {
            heat.set(FileId(u32::try_from(file).unwrap_or(u32::MAX)), ahead + 1, f64::from(*n));
        }
    }
    heat
}

/// Where files are.
struct Places<'a> {
    home: &'a [u16],
    place: &'a [u16],
    shares: &'a BTreeMap<FileId, Vec<ReadShare>>,
}

impl Placement for Places<'_> {
    fn home(&self, file: FileId) -> Option<usize> {
        self.home.get(file.index()).copied().map(usize::from)
    }
    fn exception(&self, file: FileId) -> Option<usize> {
        let place = self.place.get(file.index()).copied().map(usize::from);
        place.filter(|place| Some(*place) != self.home(file))
    }
    fn pinned(&self, _: FileId) -> bool {
        false
    }
    fn replicated(&self) -> Vec<FileId> {
        self.shares.keys().copied().collect()
    }
    fn shares(&self, file: FileId) -> Vec<ReadShare> {
        self.shares.get(&file).cloned().unwrap_or_default()
    }
}

fn sent(decision: &Decision) -> Vec<Sent> {
    let moved = decision.moves.iter().chain(&decision.returns);
    moved.map(|m| Sent { file: m.file.index(), to: m.to }).collect()
}

impl Planner for Controlled<'_> {
    fn plan(&mut self, period: usize, place: &[u16]) -> Wanted {
        let forecasts = self.heat(period);
        let rehomed = self.rehome(&forecasts, place);
        let mut moved;
        let place = if rehomed.is_empty() {
            place
        } else {
            moved = place.to_vec();
            rehomed.iter().for_each(|file| moved[file.file] = u16::try_from(file.to).unwrap_or(u16::MAX));
            &moved
        };
        let places = Places { home: &self.home, place, shares: &self.shares };
        let decision =
            self.controller.decide(&forecasts, &PlexView { stores: &self.stores, placement: &places });
        let mut expected = vec![None; self.stores.len()];
        for (index, store) in &decision.stores {
            if let (Some(place), Some(after)) = (expected.get_mut(*index), &store.response_after) {
                *place = Some(Expected {
                    median_ms: after.median_ms,
                    interval66_ms: (after.low66_ms, after.high66_ms),
                });
            }
        }
        let shared = decision.replications.iter().map(|change| {
            self.shares.remove(&change.file);
            if change.stores.len() > 1 {
                self.shares.insert(change.file, change.stores.clone());
            }
            Shared { file: change.file.index(), parts: change.parts.1.clone() }
        });
        let shared = shared.collect();
        Wanted { sent: sent(&decision), shared, rehomed, expected }
    }

    fn within(
        &mut self,
        period: usize,
        sixths: usize,
        heat: &[f32],
        stores: &[StorePeriod],
        place: &[u16],
    ) -> Vec<Sent> {
        let (files, unlisted) = told(heat);
        let open = PartialPeriod {
            period: self.start + signed(period),
            sixths: u8::try_from(sixths).unwrap_or(u8::MAX),
            files,
            unlisted,
            stores: self.store_reports(stores),
        };
        let places = Places { home: &self.home, place, shares: &self.shares };
        let decision = self.controller.within(&open, &PlexView { stores: &self.stores, placement: &places });
        decision.as_ref().map(sent).unwrap_or_default()
    }

    fn learn(&mut self, period: usize, heat: &[f32], stores: &[StorePeriod]) {
        if let Source::Last(last) = &mut self.source {
            heat.clone_into(last);
        }
        self.observe(self.start + signed(period), heat, stores);
    }

    fn watches(&self) -> bool {
        self.watches
    }
}
