//! How the controller decides.

use crate::demand::CycleChoice;
use crate::guard::GuardSettings;
use crate::objective::{Objective, ObjectiveError};
use crate::plan::{PlanSettings, PlanSettingsError};
use crate::series::{Cycles, HORIZON_PERIODS_MAX, SERIES_PERIODS_MAX};

/// What becomes of decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mode {
    /// Forecast only: no plan is made.
    #[default]
    Observe,
    /// Plan, and say so; the caller moves nothing.
    Advise,
    /// The caller moves the files.
    Control,
}

/// What becomes of weights for the default rule that suit the stores better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum WeightsMode {
    /// Nothing: they are not looked for.
    Off,
    /// They are said, at most once a day.
    #[default]
    Advise,
    /// In [`Mode::Control`] the caller puts them in force, step by step, at most once a day
    /// ([`Controller::weigh`](super::Controller::weigh)); in other modes they are said.
    Apply,
}

/// How the controller decides. The defaults work; [`Settings::checked`] says what does not.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// What to hold.
    pub objective: Objective,
    /// What becomes of decisions.
    pub mode: Mode,
    /// Length of a period, seconds.
    pub period_seconds: u32,
    /// Cycles of the load: the calendar's, unless a day is compressed.
    pub cycles: CycleChoice,
    /// Periods forecast and planned ahead.
    pub horizon: usize,
    /// Periods looked back on.
    pub history_periods: usize,
    /// Files forecast by their own history as well as by their share of the total.
    pub hot_files_max: usize,
    /// How files are moved.
    pub plan: PlanSettings,
    /// How an open period is watched; `None`: not at all.
    pub guard: Option<GuardSettings>,
    /// What becomes of weights for the default rule.
    pub weights: WeightsMode,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            objective: Objective::default(),
            mode: Mode::default(),
            period_seconds: 3600,
            cycles: CycleChoice::Automatic,
            horizon: 12,
            history_periods: 672,
            hot_files_max: 60,
            plan: PlanSettings::default(),
            guard: Some(GuardSettings::default()),
            weights: WeightsMode::default(),
        }
    }
}

/// Why settings were refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SettingsError {
    /// The objective.
    #[error(transparent)]
    Objective(#[from] ObjectiveError),
    /// The plan's.
    #[error(transparent)]
    Plan(#[from] PlanSettingsError),
    /// A number out of its range.
    #[error("{field} = {value} is out of range; allowed are {least} to {most}")]
    OutOfRange {
        /// The field.
        field: &'static str,
        /// What was asked for.
        value: f64,
        /// Least allowed.
        least: f64,
        /// Most allowed.
        most: f64,
    },
}

/// Refuses `value` (also NaN) outside `least..=most`.
pub(crate) fn in_range(field: &'static str, value: f64, least: f64, most: f64) -> Result<(), SettingsError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(SettingsError::OutOfRange { field, value, least, most })
}

impl Settings {
    /// Checks them.
    ///
    /// # Errors
    /// [`SettingsError`], the first that is wrong.
    pub fn checked(self) -> Result<Self, SettingsError> {
        self.objective.checked()?;
        self.plan.check()?;
        let (horizon, history) = (self.horizon as f64, self.history_periods as f64);
        in_range("period_seconds", f64::from(self.period_seconds), 1.0, 7.0 * 86_400.0)?;
        in_range("horizon", horizon, 1.0, HORIZON_PERIODS_MAX.min(1 << 10) as f64)?;
        in_range("history_periods", history, 1.0, (SERIES_PERIODS_MAX / 2) as f64)?;
        in_range("hot_files_max", self.hot_files_max as f64, 0.0, f64::from(1u32 << 20))?;
        if let Some(guard) = &self.guard {
            guard.check()?;
        }
        Ok(self)
    }

    /// Periods of a day.
    pub(crate) fn day(&self) -> usize {
        let cycles = match self.cycles {
            CycleChoice::Given(cycles) => cycles,
            CycleChoice::Automatic | CycleChoice::Found => Cycles::calendar(self.period_seconds),
        };
        cycles.day.unwrap_or(24)
    }
}
