//! What came against what was forecast.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::super::Controller;
use super::super::history::History;
use super::super::reports::{FileId, PlexView};
use super::super::stores::{Known, predict};
use super::open::{Answered, Open};
use crate::guard::{Alarm, GuardSettings, SIXTHS, Sureness, Telling, Watched, slowness, telling};

/// Deviation (log scale) of what a store takes for a request that no learning takes away.
const SLOWNESS_DEVIATION: f64 = 0.03;
/// The same of a model above the loads that it has seen.
const BEYOND_SEEN: f64 = 0.15;
/// Deviation (log scale) of what stores take for a request from period to period, where nothing else is known.
const SLOWNESS_KNOWN: f64 = 0.05;

/// What was found in a part of a period.
#[derive(Debug, Clone, Default)]
pub(super) struct Found {
    pub(super) alarms: Vec<Alarm>,
    /// The telling part of all requests.
    pub(super) total: Option<Telling>,
    /// That of each file that deviates.
    pub(super) files: BTreeMap<FileId, Telling>,
    /// That of each store that deviates, by name.
    pub(super) loads: BTreeMap<Arc<str>, Telling>,
    /// ln of what each store takes for a request, over its model's.
    pub(super) slow: BTreeMap<Arc<str>, Slow>,
}

/// What was seen of how slow a store is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    /// ln of the factor on the time for a request.
    pub(super) log: f64,
    /// Its deviation by what was measured alone, and with the model's.
    pub(super) measured: f64,
    deviation: f64,
}

/// How slow a store is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slow {
    /// ln of the factor that is believed.
    pub(super) log: f64,
    /// Whether it deviates.
    pub(super) deviates: bool,
    /// The last so many looks that it was seen by.
    pub(super) looks: usize,
}

impl Found {
    pub(super) fn any(&self) -> bool {
        !self.alarms.is_empty()
    }

    /// Whether anything does not go as forecast.
    pub(super) fn deviates(&self) -> bool {
        self.alarms.iter().any(|alarm| !matches!(alarm.watched, Watched::Objective(_)))
    }
}

/// Whether a part is beyond the quantile and far enough from its forecast to matter.
fn deviates(guard: &GuardSettings, told: &Telling, z: f64) -> bool {
    let ratio = (told.part.seen + 1.0) / (told.part.expected + 1.0);
    told.score.abs() > z && (ratio - 1.0).abs() > guard.deviates
}

fn alarm(watched: Watched, sixths: u8, told: &Telling, sure: &Sureness) -> Alarm {
    let forecast = told.part.expected * SIXTHS / told.part.sixths.max(1.0);
    let scale = (told.part.rest(forecast, sure) + 1.0) / (forecast + 1.0);
    let over = told.part.sixths as u8;
    Alarm { watched, sixths, over, seen: told.part.seen, expected: told.part.expected, scale }
}

impl<H: History> Controller<H> {
    /// Compares the last look at the open period with what was forecast of it, and keeps what was found there.
    pub(super) fn compare(&mut self, guard: &GuardSettings, view: &PlexView<'_>) -> Found {
        let Some(open) = &self.open else { return Found::default() };
        let mut found = Found::default();
        let j = open.looked();
        let sure = self.learnt.total(&open.forecasts);
        if let Some(told) = telling(open.parts_of_total(), &sure).filter(|t| deviates(guard, t, guard.z(1))) {
            found.alarms.push(alarm(Watched::Total, j, &told, &sure));
            found.total = Some(told);
        }
        let watched = self.watched(guard, open);
        self.compare_files(guard, open, &watched, &mut found);
        self.compare_loads(guard, open, &mut found);
        let scores = self.compare_responses(guard, open, view, &mut found);
        self.compare_objective(guard, open, view, &mut found);
        if let Some(open) = &mut self.open {
            (open.found, open.watched, open.response_scores) = (found.clone(), watched, scores);
        }
        found
    }

    /// The hottest files, by forecast or by what came so far.
    fn watched(&self, guard: &GuardSettings, open: &Open) -> Vec<FileId> {
        let part = open.sixths() / SIXTHS;
        let expected_total = open.forecasts.total.mean().first().copied().unwrap_or(0.0);
        let least = self.settings.plan.heat_min * expected_total.max(open.total() / part);
        let mut hot: HashMap<FileId, f64> = open.files().map(|(file, n)| (file, n / part)).collect();
        for index in 0..open.forecasts.files() {
            let file = FileId(index as u32);
            let mean = open.forecasts.reported(file, 1);
            if mean >= least && mean > 0.0 {
                let heat = hot.entry(file).or_default();
                *heat = heat.max(mean);
            }
        }
        let mut watched: Vec<(FileId, f64)> = hot.into_iter().filter(|f| f.1 >= least).collect();
        watched.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        watched.truncate(guard.files_max);
        watched.into_iter().map(|f| f.0).collect()
    }

    fn compare_files(&self, guard: &GuardSettings, open: &Open, watched: &[FileId], found: &mut Found) {
        let z = guard.z(watched.len());
        for file in watched {
            let sure = self.learnt.file(&open.forecasts, *file);
            let told = telling(open.parts_of_file(*file), &sure).filter(|t| deviates(guard, t, z));
            if let Some(told) = told {
                found.alarms.push(alarm(Watched::File(*file), open.looked(), &told, &sure));
                found.files.insert(*file, told);
            }
        }
    }

    fn compare_loads(&self, guard: &GuardSettings, open: &Open, found: &mut Found) {
        let z = guard.z(open.expected().len());
        for store in open.expected() {
            let sure = self.learnt.load(store);
            let told = telling(open.parts_of_store(&store.name), &sure).filter(|t| deviates(guard, t, z));
            if let Some(told) = told {
                found.alarms.push(alarm(Watched::Load(store.name.clone()), open.looked(), &told, &sure));
                found.loads.insert(store.name.clone(), told);
            }
        }
    }

    /// Stores that take longer for a request than their models say. The scores are those of the whole period so far.
    fn compare_responses(
        &self,
        guard: &GuardSettings,
        open: &Open,
        view: &PlexView<'_>,
        found: &mut Found,
    ) -> Vec<f64> {
        let stores: Vec<Arc<str>> =
            (0..view.stores.len()).filter(|s| view.is_up(*s)).map(|s| view.stores[s].name.clone()).collect();
        let z = guard.z(stores.len());
        let mut scores = Vec::new();
        for name in &stores {
            let known = self.slow.get(name).copied().unwrap_or(0.0);
            let answered = open.answered(name);
            let mut most: Option<(f64, Slow)> = None;
            for looks in (1..=answered.len()).rev() {
                let Some(seen) = self.slowness(name, &answered[answered.len() - looks..]) else { continue };
                let off = seen.log - known;
                if looks == answered.len() {
                    scores.push(off / seen.deviation);
                }
                let deviation = seen.deviation * self.learnt.of_responses.factor().sqrt();
                let score = off / deviation;
                if most.as_ref().is_none_or(|m| score.abs() > m.0.abs()) {
                    let jump = if score.abs() > 2.0 { 0.25 * off * off } else { 0.0 };
                    let own = (SLOWNESS_KNOWN * SLOWNESS_KNOWN).max(jump);
                    let believed = known + own / (own + deviation * deviation) * off;
                    // Faster than thought is good to know, and no alarm.
                    let deviates = score > z && off.exp() - 1.0 > guard.deviates;
                    most = Some((score, Slow { log: believed, deviates, looks }));
                }
            }
            let Some((_, slow)) = most else { continue };
            if slow.deviates {
                let part = Answered::together(&answered[answered.len() - slow.looks..]);
                found.alarms.extend(part.map(|part| self.response_alarm(name, open, &slow, &part, known)));
            }
            found.slow.insert(name.clone(), slow);
        }
        scores
    }

    /// Stores that miss the objective, whatever was forecast.
    fn compare_objective(&self, guard: &GuardSettings, open: &Open, view: &PlexView<'_>, found: &mut Found) {
        let objective = self.settings.objective.response_ms;
        let stores: Vec<&Arc<str>> =
            (0..view.stores.len()).filter(|s| view.is_up(*s)).map(|s| &view.stores[s].name).collect();
        let z = guard.z(stores.len());
        for name in stores {
            let answered = open.answered(name);
            let Some(whole) = Answered::together(&answered) else { continue };
            let Some(last) = answered.last() else { continue };
            let misses = |answered: &Answered, z: f64| {
                let over = (answered.response_ms() / objective).ln();
                over > z * answered.deviation() && over > 0.0
            };
            if misses(&whole, z) && misses(last, 1.0) {
                found.alarms.push(Alarm {
                    watched: Watched::Objective(name.clone()),
                    sixths: open.looked(),
                    over: open.looked(),
                    seen: whole.response_ms(),
                    expected: objective,
                    scale: 1.0,
                });
            }
        }
    }

    /// What a store takes for a request over its model's (log scale), by what it answered in some looks, each for itself: where
    /// the load was uneven, the mean response time is not that of the mean load.
    pub(super) fn slowness(&self, name: &str, answered: &[Answered]) -> Option<Seen> {
        let Known::Model(fitted) = self.models.of(name) else { return None };
        let at = |load: f64| predict(fitted, load, 0.0, f64::NAN);
        let (mut weights, mut sum, mut of_model) = (0.0, 0.0, 0.0);
        for part in answered {
            let one = slowness(|load| at(load).median.ln(), part.rate(), part.response_ms().ln())?;
            let weight = (one.elasticity / part.deviation().max(1e-3)).powi(2);
            weights += weight;
            sum += weight * one.log;
            // Above the loads that it was fitted to, a model is off by more than it says.
            let beyond = if part.rate() > fitted.load_max() { BEYOND_SEEN } else { 0.0 };
            of_model += weight * (at(part.rate()).log_deviation / one.elasticity).hypot(beyond);
        }
        let (log, of_model) = (sum / weights, of_model / weights);
        let measured = weights.recip().sqrt();
        let deviation = measured.hypot(of_model).hypot(SLOWNESS_DEVIATION);
        (log.is_finite() && deviation.is_finite()).then_some(Seen { log, measured, deviation })
    }

    fn response_alarm(
        &self,
        name: &Arc<str>,
        open: &Open,
        slow: &Slow,
        part: &Answered,
        known: f64,
    ) -> Alarm {
        let expected = match self.models.of(name) {
            Known::Model(fitted) => {
                known.exp() * predict(fitted, part.rate() * known.exp(), 0.0, f64::NAN).median
            }
            Known::Nothing | Known::Unfit => f64::NAN,
        };
        Alarm {
            watched: Watched::Response(name.clone()),
            sixths: open.looked(),
            over: part.sixths as u8,
            seen: part.response_ms(),
            expected,
            scale: (slow.log - known).exp(),
        }
    }
}
