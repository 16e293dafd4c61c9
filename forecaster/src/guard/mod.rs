//! The guard: an open period against its forecast.
//!
//! After sixth j of a period, for everything watched (the total, hot files, the response times of stores) with
//! `l = ln((seen + 1)/(expected + 1))`, the forecast's deviation s and the spread of a part within a period tau:
//! `k = s^2/(s^2 + tau^2)`, `scale = exp(k l)`. Where the scale is further than `deviates` from 1 and `|l|` is beyond
//! `z sqrt(s^2 + tau^2)`, that is an [`Alarm`]: the rest of the period is forecast anew,
//! `h = (4 h scale + 6 seen)/(4 + j)`, and planned for again. z grows with the number of things watched, so that a quiet
//! period stays quiet.

use std::sync::Arc;

use crate::controller::{FileId, SettingsError};
use crate::demand::normal_quantile;

/// Sixths in a period.
pub const SIXTHS: f64 = 6.0;

/// How an open period is watched.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GuardSettings {
    /// How far a scale must be from 1.
    pub deviates: f64,
    /// Chance of a false alarm at one look at one kind of thing (total, files, stores).
    pub false_alarm: f64,
    /// Coefficient of variation of a sixth's total within a period, until it has been learnt.
    pub sixth_variation: f64,
    /// Most files watched, the hottest.
    pub files_max: usize,
    /// Whether a move of this period may be undone in it: the one exception to "no file goes back within some periods".
    pub cancel: bool,
}

impl Default for GuardSettings {
    fn default() -> Self {
        Self { deviates: 0.15, false_alarm: 0.0005, sixth_variation: 0.15, files_max: 256, cancel: true }
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
        in_range("guard.files_max", self.files_max as f64, 0.0, 1e6)
    }

    /// Normal quantile, two-sided, at which one of `watched` things of a kind is out of the ordinary.
    pub(crate) fn z(&self, watched: usize) -> f64 {
        -normal_quantile(0.5 * self.false_alarm / watched.max(1) as f64)
    }
}

/// What the guard watches.
#[derive(Debug, Clone, PartialEq)]
pub enum Watched {
    /// All requests.
    Total,
    /// A hot file's requests.
    File(FileId),
    /// A store's mean response time at the load that it has.
    Response(Arc<str>),
}

/// Something that does not go as forecast.
#[derive(Debug, Clone, PartialEq)]
pub struct Alarm {
    /// What.
    pub watched: Watched,
    /// Sixths of the period that were over, 1 to 5.
    pub sixths: u8,
    /// Seen so far: requests, or milliseconds.
    pub seen: f64,
    /// Forecast for that part of the period.
    pub expected: f64,
    /// What the forecast of the whole period is multiplied by.
    pub scale: f64,
}

/// How a part of a period compares with its forecast.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// ln((seen + 1)/(expected + 1)), or of response times.
    pub log_ratio: f64,
    /// Share of it that is believed.
    pub believed: f64,
    /// Deviation that it would have if all went as forecast.
    pub deviation: f64,
}

impl Comparison {
    /// Compares requests: `seen` after `sixths`, `expected` by then, forecast deviation `deviation` (log scale), and the
    /// coefficient of variation of a sixth's count within a period.
    pub fn of_requests(seen: f64, expected: f64, sixths: u8, deviation: f64, sixth_variation: f64) -> Self {
        let j = f64::from(sixths).clamp(1.0, SIXTHS);
        let tau = 1.3 * sixth_variation * ((1.0 - j / SIXTHS) / j).sqrt() + 0.02;
        Self::new(((seen.max(0.0) + 1.0) / (expected.max(0.0) + 1.0)).ln(), deviation, tau)
    }

    /// Compares a log ratio with the deviations of its forecast and of the measurement.
    pub fn new(log_ratio: f64, deviation: f64, tau: f64) -> Self {
        let (s, t) = (deviation * deviation, (tau * tau).max(1e-12));
        let deviation = (s + t).sqrt();
        let jump = if log_ratio.abs() > 2.0 * deviation { 0.25 * log_ratio * log_ratio } else { 0.0 };
        let s = s.max(jump);
        let believed = if s.is_finite() { s / (s + t) } else { 1.0 };
        Self { log_ratio, believed, deviation }
    }

    /// What the forecast is to be multiplied by. What lies beyond two deviations is no longer measured by the forecast's
    /// own: the jump itself then says how far it may be off.
    pub fn scale(&self) -> f64 {
        (self.believed * self.log_ratio).exp().clamp(1e-6, 1e6)
    }

    /// Whether it is out of the ordinary: far enough to matter, and beyond the quantile.
    pub fn alarms(&self, deviates: f64, z: f64) -> bool {
        (self.scale() - 1.0).abs() > deviates && self.log_ratio.abs() > z * self.deviation
    }
}

/// The heat of a whole period, forecast anew after `sixths` of it: forecast, scale and what was seen.
pub fn reforecast(forecast: f64, scale: f64, seen: f64, sixths: u8) -> f64 {
    let j = f64::from(sixths).clamp(1.0, SIXTHS);
    (4.0 * forecast * scale + SIXTHS * seen) / (4.0 + j)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_as_forecast_is_quiet_and_a_jump_is_not() {
        let quiet = Comparison::of_requests(1050.0, 1000.0, 2, 0.15, 0.1);
        assert!(!quiet.alarms(0.15, 2.0));
        let jump = Comparison::of_requests(2500.0, 1000.0, 2, 0.15, 0.1);
        assert!(jump.alarms(0.15, 2.0) && jump.scale() > 1.5);
        // What cannot be told from the forecast's own noise is not believed.
        let noisy = Comparison::of_requests(2.0, 1.0, 1, 0.1, 1.0);
        assert!(noisy.scale() < 1.05);
        assert_eq!(reforecast(600.0, 2.0, 1000.0, 5), (4.0 * 1200.0 + 6000.0) / 9.0);
        for x in [f64::INFINITY, 0.0, 1e300] {
            assert!(Comparison::of_requests(x, 0.0, 9, f64::INFINITY, 0.1).scale().is_finite());
        }
        assert!(GuardSettings::default().z(1) > 3.0 && GuardSettings::default().z(100) > 4.0);
    }
}
