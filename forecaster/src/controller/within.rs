//! The open period: what the guard sees, and what it has moved.

use std::collections::HashSet;
use std::sync::Arc;

use super::Controller;
use super::decide::Loads;
use super::decision::{By, Decision, Note};
use super::forecasts::Forecasts;
use super::history::History;
use super::reports::{FileId, PartialPeriod, PlexView, StoreReport};
use super::settings::Mode;
use super::stores::{Known, predict};
use crate::guard::{Alarm, Comparison, GuardSettings, SIXTHS, Watched, reforecast};
use crate::plan::{Heat, LoadCurve, Past, Plan, PlanSettings};

/// Largest log deviation of a file's forecast.
const FILE_DEVIATION_MAX: f64 = 1.5;
/// Response times of a store follow each other: their mean is so many times less sure than if they did not.
const RESPONSE_CORRELATION: f64 = 3.0;
/// Deviation of a part of a period's mean response time from the whole's, at least.
const RESPONSE_PART_DEVIATION: f64 = 0.1;

/// The period decided about.
pub(super) struct Open {
    forecasts: Arc<Forecasts>,
    /// Files moved in it, and the stores they left.
    moved: Vec<(FileId, Arc<str>)>,
    up: Vec<Arc<str>>,
    looked: u8,
    /// Totals at the end of the sixths looked at.
    seen: Vec<(u8, f64)>,
}

impl Open {
    pub(super) fn new(forecasts: Arc<Forecasts>, planned: &Plan, view: &PlexView<'_>) -> Self {
        let mut open = Self { forecasts, moved: Vec::new(), up: up(view), looked: 0, seen: Vec::new() };
        open.take(planned, view);
        open
    }

    fn take(&mut self, planned: &Plan, view: &PlexView<'_>) {
        let made = planned.moves.iter().chain(&planned.returns);
        self.moved.extend(made.map(|m| (m.file, view.stores[m.from].name.clone())));
    }

    /// Squared coefficient of variation of the sixths of a period that is over; `None` unless all were looked at.
    pub(super) fn sixth_variance(&self, period: i64, total: f64) -> Option<f64> {
        let all = self.seen.iter().map(|s| s.0).eq(1..=5);
        if period != self.forecasts.period || !all || total <= 0.0 {
            return None;
        }
        let ends = self.seen.iter().map(|s| s.1).chain([total]);
        let mut before = 0.0;
        let sixths: Vec<f64> = ends.map(|end| (end - std::mem::replace(&mut before, end)).max(0.0)).collect();
        let mean = total / SIXTHS;
        let squares: f64 = sixths.iter().map(|s| (s - mean).powi(2)).sum();
        Some((squares / (SIXTHS - 1.0) / (mean * mean)).min(4.0))
    }
}

/// Names of the stores that are up.
fn up(view: &PlexView<'_>) -> Vec<Arc<str>> {
    (0..view.stores.len()).filter(|s| view.is_up(*s)).map(|s| view.stores[s].name.clone()).collect()
}

/// What was found in a part of a period.
#[derive(Default)]
struct Found {
    alarms: Vec<Alarm>,
    total: Option<f64>,
    /// Scale of each file by number, where it alarms.
    files: Vec<(FileId, f64)>,
    /// Log factor of the response times of stores of the view, where they alarm.
    responses: Vec<(usize, f64)>,
}

impl<H: History> Controller<H> {
    /// Looks at an open period, after each of its sixths: a decision where files are to be moved in it. `None` where there is
    /// nothing to do: all goes as forecast, or no move helps, or the period is not the one decided about, or was
    /// looked at later before, or the guard is off.
    pub fn within(&mut self, open: &PartialPeriod, view: &PlexView<'_>) -> Option<Decision> {
        let guard = self.settings.guard?;
        let state = self.open.as_mut()?;
        if self.settings.mode == Mode::Observe
            || state.forecasts.period != open.period
            || !(1..=5).contains(&open.sixths)
            || open.sixths <= state.looked
        {
            return None;
        }
        let mut seen = vec![0.0f64; state.forecasts.files()];
        let mut total = if open.unlisted > 0.0 { open.unlisted } else { 0.0 };
        for (file, requests) in open.files.iter().filter(|f| f.1 > 0.0 && f.1.is_finite()) {
            total += requests;
            if file.index() >= seen.len() && file.index() < super::HISTORY_FILES_MAX {
                seen.resize(file.index() + 1, 0.0);
            }
            if let Some(place) = seen.get_mut(file.index()) {
                *place += requests;
            }
        }
        state.looked = open.sixths;
        state.seen.push((open.sixths, total));
        let stores_changed = state.up != up(view);
        let forecasts = state.forecasts.clone();
        let found = self.compare(&guard, &forecasts, open, &seen, total, view);
        if found.alarms.is_empty() && !stores_changed {
            return None;
        }
        self.meet(&guard, &forecasts, open, &seen, found, view)
    }

    fn compare(
        &self,
        guard: &GuardSettings,
        forecasts: &Forecasts,
        open: &PartialPeriod,
        seen: &[f64],
        total: f64,
        view: &PlexView<'_>,
    ) -> Found {
        let (j, part) = (open.sixths, f64::from(open.sixths) / SIXTHS);
        let mut found = Found::default();
        let variation = self.sixth_variance.sqrt();
        let expected = forecasts.total.mean().first().copied().unwrap_or(0.0) * part;
        let of_total =
            Comparison::of_requests(total, expected, j, forecasts.total_log_deviation(1), variation);
        if of_total.alarms(guard.deviates, guard.z(1)) {
            let scale = of_total.scale();
            found.total = Some(scale);
            found.alarms.push(Alarm { watched: Watched::Total, sixths: j, seen: total, expected, scale });
        }
        self.compare_files(guard, forecasts, open, seen, total, &mut found);
        let mut reports: Vec<(usize, &StoreReport)> = Vec::new();
        for (s, store) in view.stores.iter().enumerate().filter(|(s, _)| view.is_up(*s)) {
            reports.extend(open.stores.iter().find(|r| r.name == store.name).map(|r| (s, r)));
        }
        for (store, report) in &reports {
            self.compare_response(guard, open, *store, report, reports.len(), &mut found);
        }
        found
    }

    fn compare_files(
        &self,
        guard: &GuardSettings,
        forecasts: &Forecasts,
        open: &PartialPeriod,
        seen: &[f64],
        total: f64,
        found: &mut Found,
    ) {
        let (j, part) = (open.sixths, f64::from(open.sixths) / SIXTHS);
        let expected_total = forecasts.total.mean().first().copied().unwrap_or(0.0);
        let least = self.settings.plan.heat_min * expected_total.max(total / part);
        let mean = |index: usize| forecasts.reported(FileId(index as u32), 1);
        let hot = |(index, seen): (usize, &f64)| {
            let heat = mean(index).max(seen / part);
            (heat >= least && heat > 0.0).then_some((index, heat))
        };
        let mut watched: Vec<(usize, f64)> = seen.iter().enumerate().filter_map(hot).collect();
        watched.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        watched.truncate(guard.files_max);
        let z = guard.z(watched.len());
        for (index, _) in watched {
            let (file, mean) = (FileId(index as u32), mean(index));
            let deviation = (forecasts.deviation(file) / (mean + 1.0)).min(FILE_DEVIATION_MAX);
            let variation = (self.sixth_variance + SIXTHS / mean.max(1.0)).sqrt();
            let c = Comparison::of_requests(seen[index], mean * part, j, deviation, variation);
            if c.alarms(guard.deviates, z) {
                let (seen, expected, scale) = (seen[index], mean * part, c.scale());
                found.files.push((file, scale));
                found.alarms.push(Alarm { watched: Watched::File(file), sixths: j, seen, expected, scale });
            }
        }
    }

    /// A store that answers more slowly than its model says at the load it has.
    fn compare_response(
        &self,
        guard: &GuardSettings,
        open: &PartialPeriod,
        store: usize,
        report: &StoreReport,
        watched: usize,
        found: &mut Found,
    ) {
        let Known::Model(fitted) = self.models.of(&report.name) else { return };
        let rate = report.requests * SIXTHS / f64::from(open.sixths);
        let measured =
            rate > 0.0 && rate.is_finite() && report.response_ms > 0.0 && report.response_ms.is_finite();
        if !measured {
            return;
        }
        let p = predict(fitted, rate, 0.0, self.settings.objective.response_ms);
        let spread = (report.response_variance_ms2 / report.requests).sqrt() / report.response_ms;
        let sampled = if spread.is_finite() { RESPONSE_CORRELATION * spread } else { 0.0 };
        let c = Comparison::new(
            (report.response_ms / p.median).ln(),
            p.log_deviation,
            sampled.hypot(RESPONSE_PART_DEVIATION),
        );
        if c.log_ratio > 0.0 && c.alarms(guard.deviates, guard.z(watched)) {
            let (seen, expected, scale) = (report.response_ms, p.median, c.scale());
            found.responses.push((store, scale.ln()));
            let watched = Watched::Response(report.name.clone());
            found.alarms.push(Alarm { watched, sixths: open.sixths, seen, expected, scale });
        }
    }

    /// Forecasts the rest of the period anew and plans for it.
    fn meet(
        &mut self,
        guard: &GuardSettings,
        forecasts: &Arc<Forecasts>,
        open: &PartialPeriod,
        seen: &[f64],
        found: Found,
        view: &PlexView<'_>,
    ) -> Option<Decision> {
        let heat = heat_anew(forecasts, open, seen, &found);
        let loads = Loads::of(forecasts, view, &self.reads);
        let left = (1.0 - f64::from(open.sixths) / SIXTHS).sqrt();
        let curve = |s: usize| -> Option<LoadCurve> {
            let mut deviations = loads.deviations(forecasts, s);
            deviations[0] *= left;
            let curve = self.curve(view, s, &deviations)?;
            let slower = found.responses.iter().find(|r| r.0 == s).map_or(0.0, |r| r.1);
            Some(curve.scaled(slower))
        };
        let curves: Vec<Option<LoadCurve>> = (0..view.stores.len()).map(curve).collect();
        let state = self.open.as_ref()?;
        let moves_max = self.settings.plan.moves_max.saturating_sub(state.moved.len());
        let settings = PlanSettings { moves_max, give_back: None, ..self.settings.plan };
        let past = self.past_for(guard, state, &found);
        let mut planned = self.planned((&heat, None), &curves, view, &settings, &past, By::Guard);
        for made in &mut planned.moves {
            let to = &view.stores[made.to].name;
            if state.moved.iter().any(|(file, from)| *file == made.file && from == to) {
                made.reason.by = By::GuardCancel;
            }
        }
        if planned.moves.is_empty() {
            return None;
        }
        self.remember(forecasts.period, &planned, view);
        if let Some(state) = self.open.as_mut() {
            state.take(&planned, view);
            state.up = up(view);
        }
        let mut notes: Vec<Note> = found.alarms.into_iter().map(Note::Guard).collect();
        notes.extend(planned.notes.clone());
        Some(self.decision(forecasts, view, &loads, planned, None, notes))
    }

    /// The past that the guard's plan heeds: without the moves of this period whose load does not come, so that they
    /// may be undone.
    fn past_for(&self, guard: &GuardSettings, state: &Open, found: &Found) -> Past {
        let total_low = found.total.is_some_and(|scale| scale < 1.0);
        let low: HashSet<FileId> = found.files.iter().filter(|f| f.1 < 1.0).map(|f| f.0).collect();
        if !guard.cancel || (!total_low && low.is_empty()) {
            return self.past.clone();
        }
        let period = state.forecasts.period;
        let mut past = Past::default();
        for made in self.past.moves() {
            if made.period != period || !(total_low || low.contains(&made.file)) {
                past.record(made);
            }
        }
        past
    }
}

/// Heat of the period as a whole, in the light of what was seen of it.
fn heat_anew(forecasts: &Forecasts, open: &PartialPeriod, seen: &[f64], found: &Found) -> Heat {
    let mut scales = vec![f64::NAN; forecasts.files().max(seen.len())];
    for (file, scale) in &found.files {
        scales[file.index()] = *scale;
    }
    let part = f64::from(open.sixths) / SIXTHS;
    let unlisted = match found.total {
        Some(scale) => reforecast(forecasts.planning.unlisted(1), scale, open.unlisted.max(0.0), open.sixths),
        None => forecasts.planning.unlisted(1),
    };
    forecasts.planning.grown_to(scales.len()).with_next(
        |file, planned| {
            let seen = seen.get(file.index()).copied().unwrap_or(0.0);
            let own = Some(scales[file.index()]).filter(|s| !s.is_nan());
            match own.or(found.total) {
                // A file of which no forecast was made: as it has been so far.
                Some(_) if forecasts.reported(file, 1) <= 0.0 => seen / part,
                Some(scale) => reforecast(planned, scale, seen, open.sixths),
                None => planned,
            }
        },
        unlisted,
    )
}
