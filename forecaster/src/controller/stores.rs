//! Response models of the stores, by name: fitted at most once a day, or when a load was seen that the fit did not know.

use std::collections::HashMap;
use std::sync::Arc;

use super::history::History;
use super::reports::StoreView;
use crate::plan::LoadCurve;
use crate::response::{FittedResponse, LoadForecast, Observation, Prediction, ResponseModel};
use crate::series::signed;
use crate::spectrum::Workspace;

/// A load so much above the largest that a fit knew has it fitted anew.
const NEWS: f64 = 1.05;
/// Loads tabulated, as a multiple of the third largest seen.
const TABULATED: f64 = 2.5;
/// The same where the capacity of a store is looked for.
const CAPACITY_TABULATED: f64 = 10.0;
/// Fewest periods between two fits once the history is long.
const REFIT_PERIODS_MIN: usize = 3;

/// The models.
#[derive(Debug, Default)]
pub(super) struct Models {
    models: HashMap<Arc<str>, Model>,
    buffer: Vec<Observation>,
}

#[derive(Debug)]
struct Model {
    fitted: Option<FittedResponse>,
    /// Newest period taken.
    last: i64,
    /// Periods of history when it was fitted, and since.
    fitted_periods: usize,
    since: usize,
    /// Largest of the loads that the fit knew.
    known_load: f64,
    outstanding_max: f64,
    /// Whether there was anything to fit to.
    measured: bool,
}

/// What is known of a store.
pub(super) enum Known<'a> {
    /// Its model.
    Model(&'a FittedResponse),
    /// Nothing has been measured.
    Nothing,
    /// What was measured fits no model.
    Unfit,
}

impl Models {
    /// Brings the model of a store up to the history's newest period.
    pub(super) fn update<H: History>(
        &mut self,
        store: &StoreView,
        history: &H,
        periods: usize,
        day: usize,
        ws: &mut Workspace,
    ) {
        let Some(last) = history.last_period() else { return };
        let outstanding_max =
            if store.outstanding_max >= 1.0 { store.outstanding_max.min(1e6) } else { 64.0 };
        let first = last.saturating_sub(signed(periods) - 1);
        let mut buffer = std::mem::take(&mut self.buffer);
        history.store(&store.name, first, &mut buffer);
        let usable = |m: &&mut Model| {
            m.last <= last && m.outstanding_max == outstanding_max && last - m.last < signed(day)
        };
        let fit = self
            .models
            .get_mut(&store.name)
            .filter(usable)
            .is_none_or(|model| model.take(&buffer, last, day, ws));
        if fit {
            let model = Model::fit(&buffer, last, outstanding_max, ws);
            self.models.insert(store.name.clone(), model);
        }
        self.buffer = buffer;
    }

    /// What is known of a store, as of its last update.
    pub(super) fn of(&self, name: &str) -> Known<'_> {
        match self.models.get(name) {
            Some(Model { fitted: Some(fitted), .. }) => Known::Model(fitted),
            Some(Model { measured: true, .. }) => Known::Unfit,
            _ => Known::Nothing,
        }
    }

    /// Drops the models of stores that have not been updated since a period.
    pub(super) fn forget_before(&mut self, period: i64) {
        self.models.retain(|_, m| m.last >= period);
    }

    /// Drops all of them: the history has changed under them.
    pub(super) fn clear(&mut self) {
        self.models.clear();
    }
}

impl Model {
    fn fit(history: &[Observation], last: i64, outstanding_max: f64, ws: &mut Workspace) -> Self {
        let fitted = ResponseModel { outstanding_max, ..ResponseModel::default() }.fit(history, ws);
        let measured = history.iter().any(|o| o.load > 0.0 && o.response > 0.0);
        Self {
            fitted_periods: fitted.as_ref().map_or(0, FittedResponse::periods),
            known_load: history.iter().map(|o| o.load).filter(|l| l.is_finite()).fold(0.0, f64::max),
            fitted: fitted.ok(),
            last,
            since: 0,
            outstanding_max,
            measured,
        }
    }

    /// Takes what is new in `history`; whether it must be fitted anew.
    fn take(&mut self, history: &[Observation], last: i64, day: usize, ws: &mut Workspace) -> bool {
        let new = usize::try_from(last - self.last).unwrap_or(0);
        if new == 0 {
            return false;
        }
        let Some(fitted) = &mut self.fitted else { return true };
        let new = &history[history.len().saturating_sub(new)..];
        self.since += new.len();
        let every = (self.fitted_periods / 10).clamp(1, day);
        let news = new.iter().any(|o| o.load > NEWS * self.known_load && o.response > 0.0);
        if self.since >= every || (news && self.since >= REFIT_PERIODS_MIN.min(every)) {
            return true;
        }
        for observation in new {
            fitted.observe(*observation, ws);
        }
        self.last = last;
        false
    }
}

/// A store's curve at the normal quantile `z`, for each period ahead with the log deviation of its load.
pub(super) fn curve(
    fitted: &FittedResponse,
    objective_ms: f64,
    z: f64,
    load_deviations: &[f64],
) -> Option<LoadCurve> {
    LoadCurve::of_tables(TABULATED * fitted.load_max(), |loads| {
        fitted.log_quantiles(loads, load_deviations, z, Some(objective_ms))
    })
}

/// The largest load whose response time at the normal quantile `z` is within the objective if the load is known. What lies
/// above all loads seen is the envelope's word: a layout for peaks is wanted before they are seen.
pub(super) fn capacity(fitted: &FittedResponse, objective_ms: f64, z: f64) -> f64 {
    LoadCurve::of_tables(CAPACITY_TABULATED * fitted.load_max(), |loads| {
        fitted.log_quantiles(loads, &[0.0], z, None)
    })
    .map_or(0.0, |curve| curve.load_at(objective_ms.ln(), 1))
}

/// The prediction for the next period.
pub(super) fn predict(
    fitted: &FittedResponse,
    load: f64,
    log_deviation: f64,
    objective_ms: f64,
) -> Prediction {
    fitted.predict(LoadForecast { load, log_deviation, ahead: 1 }, Some(objective_ms))
}
