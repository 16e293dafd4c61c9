//! The controller: a state machine without clock or I/O. Closed periods in, decisions out.
//!
//! Each period: [`Controller::observe`] what was measured, [`Controller::forecast`] demand, [`Controller::decide`] what to
//! move (before that, where the slow loop is on, [`Controller::weigh`] what the stores are worth); within the next one, after each sixth, [`Controller::within`] lets the guard compare. The forecasts depend on
//! demand only: several controllers that see the same demand under other placements may share one's.

mod calibration;
mod decide;
mod decision;
mod experience;
mod forecasts;
mod history;
mod join;
mod peaks;
mod reports;
mod settings;
mod stores;
mod tracker;
mod weights;
mod within;

use std::collections::HashMap;
use std::sync::Arc;

pub use decision::{By, Decision, Move, Note, PredictedResponse, Reason, StoreForecast};
pub use experience::Experience;
pub use forecasts::Forecasts;
pub use history::{HISTORY_FILES_MAX, HISTORY_PERIODS_MAX, History, MemoryHistory};
pub use reports::{
    FileId, PartialPeriod, PeriodReport, Placement, PlexView, STORES_MAX, StoreReport, StoreState, StoreView,
};
pub(crate) use settings::in_range;
pub use settings::{Mode, Settings, SettingsError, WeightsMode};
pub use weights::{WEIGHT_FACTOR_MAX, WeightsChange};

use crate::error::ForecastError;
use crate::plan::{Ledger, LoadCurve, Past, Reads};
use crate::series::{VALUE_MAX, signed};
use crate::spectrum::Workspace;
use calibration::Calibration;
use stores::{Known, Models};
use tracker::Tracker;
use within::{Carry, Learnt, Open};

/// Periods in a row that may lie before the newest one recorded until the clock is taken to have been put right, and the
/// periods recorded after the new time to be wrong.
pub const PERIODS_BACK_MAX: u32 = 3;

/// A period that was not recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ObserveError {
    /// It is not later than the newest one recorded.
    #[error(
        "period {period} is not after {last}, the newest recorded; its measurements are dropped until the clock is past that"
    )]
    WentBack {
        /// The period reported.
        period: i64,
        /// The newest one recorded.
        last: i64,
    },
}

/// The controller.
pub struct Controller<H: History> {
    settings: Settings,
    history: H,
    tracker: Option<Tracker>,
    forecasts: Option<Arc<Forecasts>>,
    models: Models,
    past: Past,
    reads: Reads,
    /// What moves have promised, and what of it came true.
    ledger: Ledger,
    /// The period decided about last.
    open: Option<Open>,
    /// How far things are from their forecasts within a period, as learnt.
    learnt: Learnt,
    /// How wide intervals have to be, as learnt.
    calibration: Calibration,
    /// What the guard leaves to the next plan.
    carry: Option<Carry>,
    /// ln of what stores take for a request over what their models say, as the guard has seen it in the period before.
    slow: HashMap<Arc<str>, f64>,
    /// When weights were last advised or changed.
    weighed: Option<i64>,
    workspace: Workspace,
    /// The last period refused, and how many in a row, each later than the one before.
    refused: Option<(i64, u32)>,
}

impl<H: History> Controller<H> {
    /// A controller over a history, which may already have periods in it.
    ///
    /// # Errors
    /// [`SettingsError`].
    pub fn new(settings: Settings, history: H) -> Result<Self, SettingsError> {
        let settings = settings.checked()?;
        let variation = settings.guard.unwrap_or_default().sixth_variation;
        Ok(Self {
            settings,
            history,
            tracker: None,
            forecasts: None,
            models: Models::default(),
            past: Past::default(),
            reads: Reads::default(),
            ledger: Ledger::default(),
            open: None,
            learnt: Learnt::new(variation),
            calibration: Calibration::default(),
            carry: None,
            slow: HashMap::new(),
            weighed: None,
            workspace: Workspace::new(),
            refused: None,
        })
    }

    /// The history.
    pub fn history(&self) -> &H {
        &self.history
    }
    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
    /// The moves that plans remember: with history and placement, all that a restart must not forget.
    pub fn past(&self) -> &Past {
        &self.past
    }
    /// Takes up the moves made before a restart.
    pub fn restore_past(&mut self, past: Past) {
        self.past = past;
    }

    /// Records a closed period. Counts that are no numbers or negative are left out, those beyond [`VALUE_MAX`] cut down
    /// to it. A period that is not later than the newest one recorded is refused; after [`PERIODS_BACK_MAX`] such
    /// periods in a row, each later than the one before, the clock is taken to have been put right, what was
    /// recorded from the reported period on is forgotten, and it is recorded.
    ///
    /// # Errors
    /// [`ObserveError::WentBack`].
    pub fn observe(&mut self, report: &PeriodReport) -> Result<(), ObserveError> {
        let period = report.period;
        if let Some(last) = self.history.last_period().filter(|last| period <= *last) {
            let before = self.refused.filter(|(refused, _)| *refused < period).map_or(0, |r| r.1);
            self.refused = Some((period, before + 1));
            if before < PERIODS_BACK_MAX {
                return Err(ObserveError::WentBack { period, last });
            }
            self.history.forget_from(period);
            (self.tracker, self.forecasts, self.open) = (None, None, None);
            self.models.clear();
        }
        self.refused = None;
        let cleaned;
        let report = if clean(report) {
            report
        } else {
            cleaned = cleaned_of(report);
            &cleaned
        };
        if let Some(open) = &self.open {
            self.learnt.take(open, period, report.total());
            for inside in open.in_intervals(report) {
                self.calibration.take(inside);
            }
        }
        self.carry_over(period);
        self.reads.take(report);
        self.history.append(report);
        Ok(())
    }

    /// Forecasts the periods after the newest one recorded. Without a history there is nothing to forecast: no files, a
    /// total of 0, and [`Note::NoHistory`].
    pub fn forecast(&mut self) -> Arc<Forecasts> {
        let Some(newest) = self.history.last_period() else {
            return Arc::new(Forecasts::none(0, self.settings.horizon, Note::NoHistory));
        };
        let next = newest.saturating_add(1);
        if let Some(forecasts) = self.forecasts.as_ref().filter(|f| f.period == next) {
            return forecasts.clone();
        }
        let forecasts = self.forecast_from(newest).unwrap_or_else(|_| {
            self.tracker = None;
            Arc::new(Forecasts::none(next, self.settings.horizon, Note::TotalUnfit))
        });
        self.forecasts = Some(forecasts.clone());
        forecasts
    }

    fn forecast_from(&mut self, newest: i64) -> Result<Arc<Forecasts>, ForecastError> {
        if let Some(tracker) = self.tracker.as_mut().filter(|t| !t.due(newest))
            && tracker.advance(&self.history).is_ok()
            && let Ok(forecasts) = tracker.forecast()
        {
            return Ok(forecasts);
        }
        let tracker = Tracker::fit(&self.history, &self.settings, &mut self.workspace)?;
        let forecasts = tracker.forecast();
        self.tracker = Some(tracker);
        forecasts
    }

    /// Response curves of the stores of a view at the quantile that plans use, for `aheads` periods whose loads have a
    /// log deviation of `load_deviation`: for planners that bring their own heat.
    pub fn curves(
        &mut self,
        view: &PlexView<'_>,
        aheads: usize,
        load_deviation: f64,
    ) -> Vec<Option<LoadCurve>> {
        self.update_models(view);
        let deviations = vec![load_deviation; aheads.max(1)];
        let z = self.settings.plan.z(&self.settings.objective);
        (0..view.stores.len()).map(|s| self.curve(view, s, z, &deviations)).collect()
    }

    /// Brings the models of the stores that are up to the newest period.
    fn update_models(&mut self, view: &PlexView<'_>) {
        let (periods, day) = (self.settings.history_periods, self.settings.day());
        for (_, store) in view.stores.iter().enumerate().filter(|(s, _)| view.is_up(*s)) {
            self.models.update(store, &self.history, periods, day, &mut self.workspace);
        }
        if let Some(last) = self.history.last_period() {
            self.models.forget_before(last.saturating_sub(signed(periods)));
        }
    }

    /// A store's curve at the normal quantile `z`; `None` where nothing is known of it.
    fn curve(&self, view: &PlexView<'_>, store: usize, z: f64, deviations: &[f64]) -> Option<LoadCurve> {
        if !view.is_up(store) {
            return None;
        }
        let objective = &self.settings.objective;
        match self.models.of(&view.stores[store].name) {
            Known::Model(fitted) => {
                let curve = stores::curve(fitted, objective.response_ms, z, deviations)?;
                let name = &view.stores[store].name;
                let slow = self.slow.get(name).copied().unwrap_or(0.0);
                crate::guard::slowed(curve, self.load_max(name), slow)
            }
            Known::Nothing | Known::Unfit => None,
        }
    }

    /// Load that a store carries within the objective at the quantile planned with, if the load is known; `None` where
    /// nothing is known of the store.
    fn capacity(&self, view: &PlexView<'_>, store: usize) -> Option<f64> {
        if !view.is_up(store) {
            return None;
        }
        match self.models.of(&view.stores[store].name) {
            Known::Model(fitted) => {
                let objective = self.settings.objective.response_ms;
                Some(stores::capacity(fitted, objective, self.settings.plan.z(&self.settings.objective)))
            }
            Known::Nothing | Known::Unfit => None,
        }
    }
}

fn is_count(x: f64) -> bool {
    (0.0..=VALUE_MAX).contains(&x)
}

/// Whether a report has nothing but counts and response times in it.
fn clean(report: &PeriodReport) -> bool {
    let response = |x: f64| x.is_nan() || is_count(x);
    report.files.iter().all(|f| is_count(f.1))
        && is_count(report.unlisted)
        && is_count(report.total())
        && report.stores.iter().all(|s| is_count(s.requests) && response(s.response_ms))
}

fn cleaned_of(report: &PeriodReport) -> PeriodReport {
    let most = VALUE_MAX / (report.files.len() + 1) as f64;
    let count = |x: f64| if x > 0.0 { x.min(most) } else { 0.0 };
    let mut cleaned = report.clone();
    cleaned.files.iter_mut().for_each(|f| f.1 = count(f.1));
    cleaned.unlisted = count(cleaned.unlisted);
    for store in &mut cleaned.stores {
        store.requests = count(store.requests);
        if !is_count(store.response_ms) {
            store.response_ms = f64::NAN;
        }
    }
    cleaned
}
