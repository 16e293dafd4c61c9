//! The controller: a state machine without clock or I/O. Closed periods in, decisions out.
//!
//! Each period: [`Controller::observe`] what was measured, [`Controller::forecast`] demand, [`Controller::decide`] what to
//! move; within the next one, after each sixth, [`Controller::within`] lets the guard compare. The forecasts depend on
//! demand only: several controllers that see the same demand under other placements may share one's.

mod decision;
mod forecasts;
mod history;
mod reports;
mod settings;
mod stores;
mod tracker;

use std::sync::Arc;

pub use decision::{By, Decision, Move, Note, PredictedResponse, Reason, StoreForecast};
pub use forecasts::Forecasts;
pub use history::{HISTORY_FILES_MAX, HISTORY_PERIODS_MAX, History, MemoryHistory};
pub use reports::{
    FileId, PartialPeriod, PeriodReport, Placement, PlexView, STORES_MAX, StoreReport, StoreState, StoreView,
};
pub(crate) use settings::in_range;
pub use settings::{Mode, Settings, SettingsError};

use crate::plan::Past;
use crate::series::VALUE_MAX;
use crate::spectrum::Workspace;

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
    tracker: Option<tracker::Tracker>,
    models: stores::Models,
    past: Past,
    workspace: Workspace,
    back: u32,
}

impl<H: History> Controller<H> {
    /// A controller over a history, which may already have periods in it.
    ///
    /// # Errors
    /// [`SettingsError`].
    pub fn new(settings: Settings, history: H) -> Result<Self, SettingsError> {
        Ok(Self {
            settings: settings.checked()?,
            history,
            tracker: None,
            models: stores::Models::default(),
            past: Past::default(),
            workspace: Workspace::new(),
            back: 0,
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
}

impl<H: History> Controller<H> {
    /// Records a closed period.
    ///
    /// # Errors
    /// [`ObserveError::WentBack`].
    pub fn observe(&mut self, report: &PeriodReport) -> Result<(), ObserveError> {
        self.history.append(report);
        Ok(())
    }

    /// Forecasts the periods after the newest one recorded.
    pub fn forecast(&mut self) -> Arc<Forecasts> {
        Arc::new(Forecasts::none(self.history.last_period().map_or(0, |p| p + 1), self.settings.horizon))
    }

    /// Decides about the next period.
    pub fn decide(&mut self, forecasts: &Arc<Forecasts>, view: &PlexView<'_>) -> Decision {
        Decision {
            period: forecasts.period,
            mode: self.settings.mode,
            stores: Vec::new(),
            moves: Vec::new(),
            returns: Vec::new(),
            objective_reachable: false,
            weights_advice: None,
            notes: vec![Note::AllStoresDead; usize::from(view.stores.is_empty())],
        }
    }

    /// Looks at an open period; a decision where files are to be moved in it.
    pub fn within(&mut self, open: &PartialPeriod, view: &PlexView<'_>) -> Option<Decision> {
        (open.sixths > 5).then(|| view.stores.len());
        None
    }
}
