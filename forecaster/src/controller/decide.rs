//! The decision about a period: loads, predictions, plan.

use std::sync::Arc;

use super::Controller;
use super::decision::{By, Decision, Note, PredictedResponse, StoreForecast};
use super::forecasts::{Forecasts, Z66};
use super::history::History;
use super::reports::{FileId, PlexView};
use super::settings::Mode;
use super::stores::{Known, predict};
use super::within::Open;
use crate::plan::{
    Heat, LoadCurve, NODES, Outlook, Past, PastMove, Plan, PlanSettings, Problem, Reads, Stress, in_force,
    planned, shift,
};
use crate::response::LoadForecast;
use crate::series::signed;

/// Largest log deviation of a load.
const LOAD_DEVIATION_MAX: f64 = 2.0;
/// Below it an objective cannot be met, and every response time exceeds it by as much.
pub(super) const OBJECTIVE_MS_MIN: f64 = 1e-6;
/// Plans that keep less than this part of what they promise are told of.
const TRUST_NOTED: f64 = 0.2;

/// Reported loads of the stores of a view.
pub(super) struct Loads {
    /// Mean requests, `[store][ahead - 1]`.
    pub(super) means: Vec<Vec<f64>>,
    /// Sum of the variances of the files' next counts were the total known.
    pub(super) variances: Vec<f64>,
}

impl Loads {
    /// Lays the reported heat on the stores that serve it; what is on none, by weights on those that are up.
    pub(super) fn of(forecasts: &Forecasts, view: &PlexView<'_>, reads: &Reads) -> Self {
        let replicated = in_force(view, reads);
        let heat = &forecasts.reported;
        let stores = view.stores.len();
        let mut loads = Self { means: vec![vec![0.0; heat.aheads()]; stores], variances: vec![0.0; stores] };
        let mut nowhere: Vec<f64> = (1..=heat.aheads()).map(|a| heat.unlisted(a)).collect();
        for index in 0..heat.files() {
            let file = FileId(index as u32);
            let row = heat.row(file);
            // A file that has jumped has any dispersion; more than all of its heat is not at stake.
            let most = f64::from(row[0]).max(forecasts.planning_heat(file, 1));
            let own = f64::from(forecasts.variance[index]).min(most * most);
            if let Some(parts) = replicated.get(&file) {
                for (store, part) in parts {
                    loads.variances[*store] += part * part * own;
                    let sums = loads.means[*store].iter_mut();
                    sums.zip(row).for_each(|(sum, heat)| *sum += part * f64::from(*heat));
                }
                continue;
            }
            let sums = match view.serving(file) {
                Some(store) => {
                    // The part of a file's variance that is the total's is counted with the total.
                    let mean = f64::from(row[0]);
                    let of_total = (mean * forecasts.total_log_deviation(1)).powi(2);
                    loads.variances[store] += (own - of_total).max(mean);
                    &mut loads.means[store]
                }
                None => &mut nowhere,
            };
            sums.iter_mut().zip(row).for_each(|(sum, heat)| *sum += f64::from(*heat));
        }
        let up: Vec<usize> = (0..stores).filter(|s| view.is_up(*s)).collect();
        let weights: f64 = up.iter().map(|s| view.stores[*s].weight.max(0.0)).sum();
        for store in &up {
            let share = if weights > 0.0 {
                view.stores[*store].weight.max(0.0) / weights
            } else {
                1.0 / up.len() as f64
            };
            loads.means[*store].iter_mut().zip(&nowhere).for_each(|(load, more)| *load += share * more);
        }
        loads
    }

    /// Log deviation of a store's load, `ahead` periods ahead: the total's, and that of its files.
    pub(super) fn deviation(&self, forecasts: &Forecasts, store: usize, ahead: usize) -> f64 {
        let mean = self.means[store][0];
        let own = if mean > 0.0 { self.variances[store] / (mean * mean) } else { 0.0 };
        let total = forecasts.total_log_deviation(ahead);
        (total * total + own).sqrt().min(LOAD_DEVIATION_MAX)
    }

    pub(super) fn deviations(&self, forecasts: &Forecasts, store: usize) -> Vec<f64> {
        (1..=self.means[store].len()).map(|ahead| self.deviation(forecasts, store, ahead)).collect()
    }
}

impl<H: History> Controller<H> {
    /// Decides about the period that the forecasts begin with: predicts every store that is up, and plans.
    pub fn decide(&mut self, forecasts: &Arc<Forecasts>, view: &PlexView<'_>) -> Decision {
        self.update_models(view);
        self.carried_slow(forecasts.period);
        let settle = signed(self.settings.plan.settle_periods.max(self.settings.plan.keep_periods));
        self.past.forget_before(forecasts.period.saturating_sub(settle + 1));
        let loads = Loads::of(forecasts, view, &self.reads);
        let z = self.settings.plan.z(&self.settings.objective);
        let curves: Vec<Option<LoadCurve>> =
            (0..view.stores.len()).map(|s| self.curve(view, s, z, &loads.deviations(forecasts, s))).collect();
        let mut notes = forecasts.notes.clone();
        self.note_stores(view, &mut notes);
        self.settle_promises(forecasts, &loads, view, &mut notes);
        let planned = if self.settings.mode == Mode::Observe {
            Plan::default()
        } else {
            let settings = self.settings.plan;
            let stress = forecasts.stress.as_ref().map(|heat| Stress {
                heat,
                capacities: (0..view.stores.len()).map(|s| self.capacity(view, s)).collect(),
            });
            let carried = self.carried_heat(forecasts);
            // What the guard has seen is expected, too.
            let expected = carried.as_ref().unwrap_or(&forecasts.reported);
            let outlook = self.outlook(expected, forecasts, &loads, view);
            let demand = (carried.as_ref().unwrap_or(&forecasts.planning), stress.as_ref(), Some(&outlook));
            self.planned(demand, &curves, view, &settings, &self.past, By::Plan)
        };
        self.ledger.note(&planned.proposals, view);
        notes.extend(planned.notes.iter().filter(|n| !notes.contains(n)).cloned().collect::<Vec<_>>());
        let weights_advice = self.advised_weights(forecasts, view);
        self.remember(forecasts.period, &planned, view);
        let decision = self.decision(forecasts, view, &loads, planned, weights_advice, notes);
        self.open = Some(Open::new(forecasts.clone(), &decision, view));
        decision
    }

    /// What is expected of the stores.
    fn outlook<'f>(
        &self,
        heat: &'f Heat,
        forecasts: &Forecasts,
        loads: &Loads,
        view: &PlexView<'_>,
    ) -> Outlook<'f> {
        let curves = |store: usize| {
            let deviation = [loads.deviation(forecasts, store, 1)];
            NODES.iter().map(|(z, _)| self.curve(view, store, *z, &deviation)).collect()
        };
        Outlook {
            heat,
            curves: (0..view.stores.len()).map(curves).collect(),
            log_objective: self.settings.objective.response_ms.max(OBJECTIVE_MS_MIN).ln(),
            trust: self.ledger.trust(),
        }
    }

    /// Holds what earlier moves promised against what came.
    fn settle_promises(
        &mut self,
        forecasts: &Forecasts,
        loads: &Loads,
        view: &PlexView<'_>,
        notes: &mut Vec<Note>,
    ) {
        if forecasts.last.is_empty() {
            return;
        }
        let mut ledger = std::mem::take(&mut self.ledger);
        let outlook = self.outlook(&forecasts.reported, forecasts, loads, view);
        ledger.settle(&outlook, &forecasts.last, view);
        self.ledger = ledger;
        if self.ledger.is_known() && self.ledger.trust() < TRUST_NOTED {
            notes.push(Note::PlansPayLittle { kept: self.ledger.trust() });
        }
    }

    /// Notes what is not known of the stores that are up.
    fn note_stores(&self, view: &PlexView<'_>, notes: &mut Vec<Note>) {
        let mut any = false;
        for (_, store) in view.stores.iter().enumerate().filter(|(s, _)| view.is_up(*s)) {
            any = true;
            match self.models.of(&store.name) {
                Known::Model(_) => {}
                Known::Nothing => notes.push(Note::StoreUnknown(store.name.clone())),
                Known::Unfit => notes.push(Note::StoreUnfit(store.name.clone())),
            }
        }
        if !any {
            notes.push(Note::AllStoresDead);
        }
    }

    pub(super) fn planned(
        &self,
        (heat, stress, outlook): (&Heat, Option<&Stress<'_>>, Option<&Outlook<'_>>),
        curves: &[Option<LoadCurve>],
        view: &PlexView<'_>,
        settings: &PlanSettings,
        past: &Past,
        by: By,
    ) -> Plan {
        let problem = Problem {
            heat,
            curves,
            view: *view,
            objective: self.settings.objective,
            settings,
            fixed: &[],
            past,
            period: self.history.last_period().unwrap_or(0).saturating_add(1),
            by,
            stress,
            outlook,
        };
        planned(&problem, &self.reads)
    }

    /// Remembers moves that the caller makes.
    pub(super) fn remember(&mut self, period: i64, planned: &Plan, view: &PlexView<'_>) {
        if self.settings.mode != Mode::Control {
            return;
        }
        for made in planned.moves.iter().chain(&planned.returns) {
            let from = view.stores[made.from].name.clone();
            self.past.record(PastMove { period, file: made.file, from });
        }
        for made in &planned.replications {
            let from = view.stores[made.from].name.clone();
            self.past.record(PastMove { period, file: made.file, from });
        }
    }

    /// The decision that a plan makes, with what is reported of every store.
    pub(super) fn decision(
        &self,
        forecasts: &Forecasts,
        view: &PlexView<'_>,
        loads: &Loads,
        planned: Plan,
        weights_advice: Option<Vec<f64>>,
        notes: Vec<Note>,
    ) -> Decision {
        let mut after: Vec<f64> = loads.means.iter().map(|l| l[0]).collect();
        for made in planned.moves.iter().chain(&planned.returns) {
            let heat = forecasts.reported(made.file, 1);
            after[made.from] = (after[made.from] - heat).max(0.0);
            after[made.to] += heat;
        }
        for made in &planned.replications {
            shift(&mut after, forecasts.reported(made.file, 1), made);
        }
        let up = (0..view.stores.len()).filter(|s| view.is_up(*s));
        let stores: Vec<(usize, StoreForecast)> =
            up.map(|s| (s, self.store_forecast(forecasts, view, loads, s, after[s]))).collect();
        let objective = self.settings.objective.response_ms;
        let meets = |s: &StoreForecast| s.response_after.is_none_or(|r| r.quantile_ms <= objective);
        Decision {
            period: forecasts.period,
            mode: self.settings.mode,
            objective_reachable: (stores.iter().any(|s| s.1.response_after.is_some()))
                .then(|| stores.iter().all(|s| meets(&s.1))),
            stores,
            moves: planned.moves,
            returns: planned.returns,
            replications: planned.replications,
            weights_advice,
            experience: self.experience(),
            notes,
        }
    }

    fn store_forecast(
        &self,
        forecasts: &Forecasts,
        view: &PlexView<'_>,
        loads: &Loads,
        store: usize,
        after: f64,
    ) -> StoreForecast {
        let deviation = loads.deviation(forecasts, store, 1);
        let requests = loads.means[store][0];
        // A lognormal load has its median below its mean, and where the curve is steep that tells.
        let of_mean = (-0.5 * deviation * deviation).exp();
        let median = requests * of_mean;
        let spread = (Z66 * deviation).exp();
        let name = &view.stores[store].name;
        // What the guard has seen of it is expected to last, as it is in plans.
        let slow = self.slow.get(name).copied().unwrap_or(0.0).exp();
        let response = |load: f64| match self.models.of(name) {
            Known::Model(fitted) => {
                let x = self.settings.objective.response_ms / slow;
                let at = LoadForecast { load: slow * load * of_mean, log_deviation: deviation, ahead: 1 };
                let p = predict(fitted, at.load, deviation, x);
                let width = self.calibration.width();
                let quantile = |z: f64| slow * fitted.log_quantile(at, width * z, Some(x)).exp();
                Some(PredictedResponse {
                    median_ms: slow * p.median,
                    low66_ms: quantile(-Z66),
                    high66_ms: quantile(Z66),
                    quantile_ms: quantile(self.settings.objective.z()),
                    source: p.source,
                })
            }
            Known::Nothing | Known::Unfit => None,
        };
        StoreForecast {
            name: name.clone(),
            requests,
            requests_quantiles: [median / spread, median, median * spread],
            requests_after: after,
            response_before: response(requests),
            response_after: response(after),
        }
    }
}
