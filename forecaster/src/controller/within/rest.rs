//! The rest of the period: forecast anew, and planned for.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::super::Controller;
use super::super::decide::Loads;
use super::super::decision::{By, Decision, Note};
use super::super::history::History;
use super::super::reports::{FileId, PartialPeriod, PlexView};
use super::super::stores::{Known, predict};
use super::compare::Found;
use super::open::Open;
use crate::guard::{GuardSettings, Part, SIXTHS, slowed};
use crate::plan::{Heat, LoadCurve, Past, PastMove, Plan, PlanSettings};

/// What is forecast of the rest of the period is scaled by a group of files at most so far.
const GROUP_MAX: f64 = 10.0;

impl<H: History> Controller<H> {
    /// Forecasts the rest of the period anew and plans for it; files are moved where that makes the slowest store clearly
    /// faster.
    pub(super) fn meet(
        &mut self,
        guard: &GuardSettings,
        open: &PartialPeriod,
        found: Found,
        stores_changed: bool,
        view: &PlexView<'_>,
    ) -> Option<Decision> {
        let heat = self.rest(open, &found, view);
        if let Some(state) = &mut self.open {
            state.rest = Some((0..heat.files()).map(|f| heat.at(FileId(f as u32), 1) as f32).collect());
        }
        let state = self.open.as_ref()?;
        let forecasts = state.forecasts.clone();
        let loads = Loads::of(&forecasts, view, &self.reads);
        let left = (1.0 - state.sixths() / SIXTHS).sqrt();
        let z = self.settings.plan.z(&self.settings.objective);
        let curve = |s: usize| -> Option<LoadCurve> {
            let mut deviations = loads.deviations(&forecasts, s);
            deviations[0] *= left;
            let name = &view.stores[s].name;
            let known = self.slow.get(name).copied().unwrap_or(0.0);
            let slow = found.slow.get(name).map_or(0.0, |slow| slow.log - known);
            slowed(self.curve(view, s, z, &deviations)?, self.load_max(name), slow)
        };
        let curves: Vec<Option<LoadCurve>> = (0..view.stores.len()).map(curve).collect();
        let moves_max = self.settings.plan.moves_max.saturating_sub(state.moved_within);
        let settings = PlanSettings { moves_max, give_back: None, ..self.settings.plan };
        let past = self.past_for(guard, state, &found);
        let mut planned = self.planned((&heat, None, None), &curves, view, &settings, &past, By::Guard);
        for made in &mut planned.moves {
            let to = &view.stores[made.to].name;
            if state.moved.iter().any(|(file, from)| *file == made.file && from == to) {
                made.reason.by = By::GuardCancel;
            }
        }
        if planned.moves.is_empty() || !(stores_changed || self.pays(guard, &planned, &found, view)) {
            return None;
        }
        self.remember(forecasts.period, &planned, view);
        let mut notes: Vec<Note> = found.alarms.into_iter().map(Note::Guard).collect();
        notes.extend(planned.notes.clone());
        let decision = self.decision(&forecasts, view, &loads, planned, None, notes);
        if let Some(state) = self.open.as_mut() {
            state.take(&decision, view);
            state.moved_within += decision.moves.len();
        }
        Some(decision)
    }

    /// Largest load tabulated for a store.
    pub(in super::super) fn load_max(&self, name: &str) -> f64 {
        match self.models.of(name) {
            Known::Model(fitted) => 2.5 * fitted.load_max(),
            Known::Nothing | Known::Unfit => 0.0,
        }
    }

    /// Whether a store is expected to miss the objective for the rest of the period, and the slowest one to be clearly faster
    /// with a plan than without.
    fn pays(&self, guard: &GuardSettings, planned: &Plan, found: &Found, view: &PlexView<'_>) -> bool {
        let slowest = |loads: &[Vec<f64>]| {
            let of = |s: usize| {
                let name = &view.stores[s].name;
                let Known::Model(fitted) = self.models.of(name) else { return 0.0 };
                let slow = found.slow.get(name).map(|slow| slow.log);
                let slow = slow.or(self.slow.get(name).copied()).unwrap_or(0.0).exp();
                slow * predict(fitted, slow * loads[s][0], 0.0, f64::NAN).median
            };
            (0..view.stores.len()).filter(|s| view.is_up(*s)).map(of).fold(0.0, f64::max)
        };
        let (before, after) = (slowest(&planned.loads_before), slowest(&planned.loads_after));
        let gain = if found.deviates() { guard.gain } else { guard.gain_as_forecast };
        let left = self.open.as_ref().map_or(1.0, |open| (SIXTHS - open.sixths()) / (SIXTHS - 1.0));
        before > self.settings.objective.response_ms && after < (1.0 - gain / left.sqrt()) * before
    }

    /// Heat of a period at the rate that is expected of its rest.
    fn rest(&self, open: &PartialPeriod, found: &Found, view: &PlexView<'_>) -> Heat {
        let Some(state) = &self.open else { return Heat::new(0, 1) };
        let forecasts = &state.forecasts;
        let group = self.groups(state, found, view);
        let mut seen: HashMap<FileId, f64> = HashMap::with_capacity(open.files.len());
        for (file, requests) in open.files.iter().filter(|f| f.1 > 0.0 && f.1.is_finite()) {
            if file.index() < super::super::HISTORY_FILES_MAX {
                *seen.entry(*file).or_default() += requests;
            }
        }
        let files = seen.keys().map(|file| file.index() + 1).max().unwrap_or(0).max(forecasts.files());
        let all_listed = open.unlisted.is_nan() || open.unlisted <= 0.0;
        let rest_of = |file: FileId| {
            let mean = forecasts.reported(file, 1);
            let sure = self.learnt.file(forecasts, file);
            if let Some(told) = found.files.get(&file) {
                return told.part.rest(mean, &sure);
            }
            let count = seen.get(&file).copied();
            if count.is_none() && (mean <= 0.0 || !all_listed) {
                return group.scale(view, file) * mean;
            }
            let whole = Part {
                sixths: state.sixths(),
                seen: count.unwrap_or(0.0),
                expected: mean * state.sixths() / SIXTHS,
            };
            let (scale, late) = (group.scale(view, file), group.part(view, file));
            match late.filter(|sixths| *sixths < whole.sixths) {
                // Its group has changed since: what it was before says nothing.
                Some(sixths) => state
                    .parts_of_file(file)
                    .find(|part| part.sixths == sixths && part.seen > 0.0)
                    .map_or(scale * mean, |part| part.rest(scale * mean, &sure)),
                None => whole.rest(scale * mean, &sure),
            }
        };
        let unlisted = group.all.map_or(1.0, |g| g.0) * forecasts.reported_heat().unlisted(1);
        let heat = forecasts.planning.grown_to(files);
        heat.with_next(|file, _| rest_of(file), unlisted)
    }

    /// How groups of files deviate: all, and those of a store, files that deviate by themselves apart.
    fn groups(&self, state: &Open, found: &Found, view: &PlexView<'_>) -> Groups {
        let apart = |part: &Part, files: &mut dyn Iterator<Item = FileId>| {
            let mut rest = *part;
            for file in files {
                if let Some(own) = state.parts_of_file(file).find(|own| own.sixths == part.sixths) {
                    rest.seen = (rest.seen - own.seen).max(0.0);
                    rest.expected = (rest.expected - own.expected).max(0.0);
                }
            }
            rest
        };
        let scale = |part: Part, sure| {
            let forecast = part.expected * SIXTHS / part.sixths;
            let scale = (part.rest(forecast, &sure) + 1.0) / (forecast + 1.0);
            (scale.clamp(1.0 / GROUP_MAX, GROUP_MAX), part.sixths)
        };
        let all = found.total.map(|told| {
            let part = apart(&told.part, &mut found.files.keys().copied());
            scale(part, self.learnt.total(&state.forecasts))
        });
        let of_store = |(s, store): (usize, &super::super::reports::StoreView)| {
            let told = found.loads.get(&store.name)?;
            let here = found.files.keys().copied().filter(|file| view.serving(*file) == Some(s));
            let part = apart(&told.part, &mut here.into_iter());
            let expected = state.expected().iter().find(|e| e.name == store.name)?;
            Some(scale(part, self.learnt.load(expected)))
        };
        Groups { all, stores: view.stores.iter().enumerate().map(of_store).collect() }
    }

    /// The past that the guard's plan heeds: without the moves of this period for load that does not come (the file's, or
    /// that of the store that it left), so that they may be undone.
    fn past_for(&self, guard: &GuardSettings, state: &Open, found: &Found) -> Past {
        let low = |told: &crate::guard::Telling| told.part.seen < told.part.expected;
        let total_low = found.total.as_ref().is_some_and(low);
        let files: HashSet<FileId> = found.files.iter().filter(|f| low(f.1)).map(|f| *f.0).collect();
        let stores: HashSet<&Arc<str>> = found.loads.iter().filter(|s| low(s.1)).map(|s| s.0).collect();
        if !guard.cancel || (!total_low && files.is_empty() && stores.is_empty()) {
            return self.past.clone();
        }
        let undone = |made: &PastMove| total_low || files.contains(&made.file) || stores.contains(&made.from);
        let period = state.forecasts.period;
        let mut past = Past::default();
        for made in self.past.moves() {
            if made.period != period || !undone(&made) {
                past.record(made);
            }
        }
        past
    }
}

/// How groups of files deviate: scale of their forecast, and the sixths since.
struct Groups {
    all: Option<(f64, f64)>,
    /// By store of the view.
    stores: Vec<Option<(f64, f64)>>,
}

impl Groups {
    fn of(&self, view: &PlexView<'_>, file: FileId) -> Option<(f64, f64)> {
        if self.stores.iter().all(Option::is_none) {
            return self.all;
        }
        view.serving(file).and_then(|store| self.stores.get(store).copied().flatten()).or(self.all)
    }

    fn scale(&self, view: &PlexView<'_>, file: FileId) -> f64 {
        self.of(view, file).map_or(1.0, |g| g.0)
    }

    fn part(&self, view: &PlexView<'_>, file: FileId) -> Option<f64> {
        self.of(view, file).map(|g| g.1)
    }
}
