//! The guard: an open period against its forecast.
//!
//! After each sixth of a period but the last, four kinds of things are compared with what was forecast: all requests, the
//! requests of each hot file, those of the files that each store serves, and how fast each store is at the load that it has
//! (a factor on the time for one request); and the response time of each store with the objective. What counts is what came
//! in some last part of the period, of one sixth up to all so far ([`Part`]), so that what begins late in a period is seen as
//! clearly as what begins with it. With `d^2` = the forecast's squared deviation (relative) + that of a part of a period, both
//! as learnt ([`Spread`]), a part's score is
//!
//! `2/d (asinh(d sqrt(seen + 3/8)) - asinh(d sqrt(expected + 3/8)))`,
//!
//! about normal whether counts are small (Poisson) or large (the forecast's error). The chance of a false alarm in a period
//! is spent evenly on kinds, things of a kind, and parts looked at ([`GuardSettings::z`]).
//!
//! What is beyond its quantile is a deviation. It becomes an [`Alarm`] if files can be moved such that the slowest store is
//! expected to be clearly faster for the rest of the period, and otherwise changes nothing.

mod parts;
mod slow;
mod spread;

use std::sync::Arc;

use crate::controller::{FileId, SettingsError};
use crate::demand::normal_quantile;

pub use parts::{Part, Sureness, Telling, score, telling};
pub(crate) use slow::{slowed, slowness};
pub use spread::Spread;

/// Sixths in a period.
pub const SIXTHS: f64 = 6.0;
/// Kinds of things watched.
const KINDS: f64 = 5.0;
/// Parts of a period looked at: after sixth j there are j that end then.
const PARTS: f64 = 15.0;

/// How an open period is watched.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GuardSettings {
    /// How far the ratio of what came to what was forecast must be from 1.
    pub deviates: f64,
    /// Chance that anything deviates in a period in which all goes as forecast, over all looks and all things watched.
    pub false_alarm: f64,
    /// Coefficient of variation of a sixth's total within a period, until it has been learnt.
    pub sixth_variation: f64,
    /// Most files watched, the hottest.
    pub files_max: usize,
    /// By what share the slowest store's expected response time for the rest of the period must fall for files to be moved
    /// after the first sixth; later by more, as there is less of the period to gain it in.
    pub gain: f64,
    /// The same where nothing deviates but a store misses the objective.
    pub gain_as_forecast: f64,
    /// Whether a move of this period may be undone in it: the one exception to "no file goes back within some periods".
    pub cancel: bool,
}

impl Default for GuardSettings {
    fn default() -> Self {
        Self {
            deviates: 0.15,
            false_alarm: 0.001,
            sixth_variation: 0.15,
            files_max: 256,
            gain: 0.2,
            gain_as_forecast: 0.5,
            cancel: true,
        }
    }
}

impl GuardSettings {
    /// Checks them.
    ///
    /// # Errors
    /// [`SettingsError::OutOfRange`].
    pub fn check(&self) -> Result<(), SettingsError> {
        use crate::controller::in_range;
        in_range("guard.deviates", self.deviates, 0.0, 10.0)?;
        in_range("guard.false_alarm", self.false_alarm, 1e-9, 0.5)?;
        in_range("guard.sixth_variation", self.sixth_variation, 0.0, 10.0)?;
        in_range("guard.gain", self.gain, 0.0, 1.0)?;
        in_range("guard.gain_as_forecast", self.gain_as_forecast, 0.0, 1.0)?;
        in_range("guard.files_max", self.files_max as f64, 0.0, 1e6)
    }

    /// Normal quantile, two-sided, beyond which a part of one of `watched` things of a kind deviates.
    #[must_use]
    pub fn z(&self, watched: usize) -> f64 {
        -normal_quantile(0.5 * self.false_alarm / (KINDS * PARTS * watched.max(1) as f64))
    }
}

/// What the guard watches.
#[derive(Debug, Clone, PartialEq)]
pub enum Watched {
    /// All requests.
    Total,
    /// A hot file's requests.
    File(FileId),
    /// Requests of the files that a store serves.
    Load(Arc<str>),
    /// A store's mean response time at the load that it has.
    Response(Arc<str>),
    /// A store's mean response time against the objective.
    Objective(Arc<str>),
}

/// Something that does not go as forecast.
#[derive(Debug, Clone, PartialEq)]
pub struct Alarm {
    /// What.
    pub watched: Watched,
    /// Sixths of the period that were over, 1 to 5.
    pub sixths: u8,
    /// Of these, how many it deviates in: the last so many.
    pub over: u8,
    /// Seen in these: requests, or milliseconds.
    pub seen: f64,
    /// Forecast for these.
    pub expected: f64,
    /// What the forecast of the rest of the period is multiplied by: requests, or the time that a store takes for one
    /// request.
    pub scale: f64,
}
