//! The slow loop: what the stores are worth under the default rule, a step a day.
//!
//! Demand changes by the hour and is met by moving files; what stores can do hardly changes, and is met once by weights
//! under which the default rule alone gives each store about what it carries. A change of weights moves a share of all files at
//! once, whose caches are cold then: so it is made at most once a day, only if it brings something, and not on suspicion.

use super::Controller;
use super::decide::OBJECTIVE_MS_MIN;
use super::forecasts::Forecasts;
use super::history::History;
use super::reports::PlexView;
use super::settings::{Mode, WeightsMode};
use super::stores::{Known, predict};
use crate::plan::{Heat, LoadCurve, carrying_weights, step_towards};
use crate::response::ResponseSource;
use crate::series::signed;

/// Largest factor by which a change multiplies or divides a store's weight.
pub const WEIGHT_FACTOR_MAX: f64 = 1.5;
/// Log deviation of the load that stores are weighed for: a total is taken as given, and what it leaves open is no
/// property of the stores.
const KNOWN: [f64; 1] = [0.0];
/// Steps that are tried, the largest first, until the models vouch for the loads that they bring.
const FACTORS: [f64; 3] = [WEIGHT_FACTOR_MAX, 1.3, 1.15];
/// Nothing is changed where no weight differs by this part from what is wanted.
const DIFFER: f64 = 0.1;
/// A change has to bring the highest response time at the largest total down to this part.
const GAIN: f64 = 0.95;

/// A change of the default rule's weights. All lists have one entry a store of the view; a store of weight 0 takes no part
/// and keeps it.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightsChange {
    /// The period that it was decided in.
    pub period: i64,
    /// Weights in force.
    pub before: Vec<f64>,
    /// Weights to put in force: with the same sum, none 0 that was not, none changed by more than [`WEIGHT_FACTOR_MAX`].
    pub after: Vec<f64>,
    /// Weights under which all stores would answer alike; with the same sum.
    pub wanted: Vec<f64>,
    /// The total weighed for, requests a period: the largest forecast or of the last week's busiest periods, but no more
    /// than the stores have seen.
    pub total: f64,
    /// Highest response time of the stores at that total, before and after, if every file were as hot as every other, at the quantile
    /// planned with, milliseconds.
    pub highest_ms: (f64, f64),
    /// The objective, milliseconds.
    pub objective_ms: f64,
}

impl<H: History> Controller<H> {
    /// Whether the caller is to put weights in force.
    pub(super) fn weighs(&self) -> bool {
        self.settings.weights == WeightsMode::Apply && self.settings.mode == Mode::Control
    }

    /// Whether a day has gone since weights were advised or changed. (A clock put back counts as one.)
    pub(super) fn weights_due(&self, period: i64) -> bool {
        let since = self.weighed.map(|at| period.saturating_sub(at));
        !since.is_some_and(|since| (0..signed(self.settings.day())).contains(&since))
    }

    /// Takes up when weights were last changed before a restart, or by an operator.
    pub fn restore_weighed(&mut self, period: i64) {
        self.weighed = Some(period);
    }

    /// Weights to put in force before the period is decided about: what follows ([`Controller::decide`]) is to be told of the
    /// plex as it is with them. `None` unless [`WeightsMode::Apply`] and [`Mode::Control`] are set, a day has gone, and
    ///
    /// - every store of a weight above 0 is up, with a model of a day of periods at least, in which the load that it would
    ///   have is not beyond what the model is trusted with (smaller steps are tried for that);
    /// - at the largest total a store with its share of it would be above `margin` of the objective, and the highest
    ///   response time falls by a twentieth;
    /// - some weight differs by a tenth from what is wanted.
    pub fn weigh(&mut self, forecasts: &Forecasts, view: &PlexView<'_>) -> Option<WeightsChange> {
        if !self.weighs() || !self.weights_due(forecasts.period) {
            return None;
        }
        let change = self.weights_change(forecasts, view)?;
        self.weighed = Some(forecasts.period);
        // What moves promised they promised with the files as they were.
        self.ledger.forget_open();
        Some(change)
    }

    /// Weights to advise, where the caller does not put them in force: what the steps of [`Controller::weigh`] would come to,
    /// said when the first would be made.
    pub(super) fn advised_weights(&mut self, forecasts: &Forecasts, view: &PlexView<'_>) -> Option<Vec<f64>> {
        let said = self.settings.weights != WeightsMode::Off && !self.weighs();
        if !said || !self.weights_due(forecasts.period) {
            return None;
        }
        let change = self.weights_change(forecasts, view)?;
        self.weighed = Some(forecasts.period);
        Some(change.wanted)
    }

    /// The largest step that is worth making and whose loads the models vouch for.
    fn weights_change(&mut self, forecasts: &Forecasts, view: &PlexView<'_>) -> Option<WeightsChange> {
        let of: Vec<usize> = (0..view.stores.len()).filter(|s| view.stores[*s].weight > 0.0).collect();
        if of.iter().any(|s| !view.is_up(*s)) {
            return None;
        }
        self.update_models(view);
        let z = self.settings.plan.z(&self.settings.objective);
        let curves: Vec<Option<LoadCurve>> =
            (0..view.stores.len()).map(|s| self.curve(view, s, z, &KNOWN)).collect();
        let peaks = forecasts.stress.as_ref().map(Heat::totals).unwrap_or_default();
        let highest = forecasts.planning.totals().into_iter().chain(peaks).fold(0.0, f64::max);
        // What lies beyond what the stores have seen is a matter of caution, which says little of what they are worth.
        let total = highest.min(self.seen(view, &of)?);
        let trusted = |change: &WeightsChange| {
            let shares = shares(&change.after);
            of.iter().all(|s| self.trusted(view, *s, change.total * shares[*s]))
        };
        let mut steps = FACTORS
            .iter()
            .filter_map(|factor| self.weights_step(forecasts.period, (total, *factor), view, &curves, &of));
        steps.find(trusted)
    }

    /// The step of at most this factor that is worth making for this total, if every model is right.
    fn weights_step(
        &self,
        period: i64,
        (total, factor): (f64, f64),
        view: &PlexView<'_>,
        curves: &[Option<LoadCurve>],
        of: &[usize],
    ) -> Option<WeightsChange> {
        let objective_ms = self.settings.objective.response_ms;
        let limit = (self.settings.plan.margin * objective_ms).max(OBJECTIVE_MS_MIN).ln();
        let before: Vec<f64> = view.stores.iter().map(|store| store.weight.max(0.0)).collect();
        let sum: f64 = before.iter().sum();
        let mut wanted = carrying_weights(total, limit, curves, of)?;
        wanted.iter_mut().for_each(|weight| *weight *= sum / of.len() as f64);
        let differs = |s: &usize| (wanted[*s] - before[*s]).abs() > DIFFER * before[*s];
        if !sum.is_finite() || !of.iter().any(differs) {
            return None;
        }
        let after = step_towards(&before, &wanted, factor);
        let highest = |weights: &[f64]| {
            let shares = shares(weights);
            let log_ms = |s: &usize| curves[*s].as_ref().map(|c| c.log_response(total * shares[*s], 1));
            of.iter().filter_map(log_ms).fold(f64::NEG_INFINITY, f64::max)
        };
        let highest = (highest(&before), highest(&after));
        if highest.0 <= limit || highest.1 > highest.0 + GAIN.ln() {
            return None;
        }
        let highest_ms = (highest.0.exp(), highest.1.exp());
        Some(WeightsChange { period, before, after, wanted, total, highest_ms, objective_ms })
    }

    /// The largest load that all stores together have seen, each for itself (the third largest of two weeks); `None` where one has no
    /// model.
    fn seen(&self, view: &PlexView<'_>, of: &[usize]) -> Option<f64> {
        let one = |store: &usize| match self.models.of(&view.stores[*store].name) {
            Known::Model(fitted) => Some(fitted.load_max()),
            Known::Nothing | Known::Unfit => None,
        };
        of.iter().map(one).sum()
    }

    /// Whether a store's model says something about this load that rests on a day of measurements, and not on caution alone.
    fn trusted(&self, view: &PlexView<'_>, store: usize, load: f64) -> bool {
        let Known::Model(fitted) = self.models.of(&view.stores[store].name) else { return false };
        let source = predict(fitted, load, 0.0, self.settings.objective.response_ms).source;
        fitted.periods() >= self.settings.day()
            && matches!(source, ResponseSource::BestFit | ResponseSource::Envelope)
    }
}

/// Parts of the whole that weights give.
fn shares(weights: &[f64]) -> Vec<f64> {
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}
