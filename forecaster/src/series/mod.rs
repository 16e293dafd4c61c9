//! Counts per period with gaps, a period length and a start; the cycles that its periods make up.
//!
//! A period without a measurement is *missing* (NaN), which is not the same as a period with a count of zero: a
//! router that was down has seen nothing, a quiet night has seen zero requests.

mod cycles;
mod spikes;

pub use cycles::{CYCLE_PERIODS_MIN, Cycles};
pub(crate) use spikes::{SIDE, spikes, without_spikes};

use crate::error::ForecastError;

/// Most periods a series may have (over 100 years of hours, 20 years of ten minutes).
pub const SERIES_PERIODS_MAX: usize = 1 << 20;
/// Most periods that are forecast ahead in one call.
pub const HORIZON_PERIODS_MAX: usize = 1 << 14;
/// Largest absolute value taken: above it, fourth powers and sums of squares lose their meaning in doubles.
pub const VALUE_MAX: f64 = 1e18;
/// Values of consecutive periods, oldest first; NaN = missing.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    values: Vec<f64>,
    period_seconds: u32,
    start_seconds: i64,
}

impl Series {
    /// A series of `values` (oldest first, NaN = missing), one every `period_seconds`, the first period starting at
    /// `start_seconds` (since 1970-01-01 UTC).
    ///
    /// # Errors
    /// [`ForecastError::TooLong`], [`ForecastError::NotFinite`] for an infinite value, [`ForecastError::TooLarge`],
    /// [`ForecastError::BadCycle`] for a period length of zero. An empty series is fine here (there is nothing wrong
    /// with not having measured yet), only a forecast of it is not.
    pub fn new(values: Vec<f64>, period_seconds: u32, start_seconds: i64) -> Result<Self, ForecastError> {
        if period_seconds == 0 {
            return Err(ForecastError::BadCycle { periods: 0, least: 1 });
        }
        check_length(values.len())?;
        for (index, v) in values.iter().enumerate() {
            if v.is_infinite() {
                return Err(ForecastError::NotFinite { index });
            }
            if v.abs() > VALUE_MAX {
                return Err(ForecastError::TooLarge { index, most: VALUE_MAX });
            }
        }
        Ok(Self { values, period_seconds, start_seconds })
    }

    /// A series of hours, starting at the epoch: the paper's period.
    ///
    /// # Errors
    /// As [`Series::new`].
    pub fn hourly(values: Vec<f64>) -> Result<Self, ForecastError> {
        Self::new(values, 3600, 0)
    }

    /// The values, oldest first, NaN = missing.
    pub fn values(&self) -> &[f64] {
        &self.values
    }
    /// Length of a period in seconds.
    pub fn period_seconds(&self) -> u32 {
        self.period_seconds
    }
    /// Start of the first period, in seconds since 1970-01-01 UTC.
    pub fn start_seconds(&self) -> i64 {
        self.start_seconds
    }
    /// Start of period `index` (also of periods after the last), in seconds since 1970-01-01 UTC.
    pub fn start_of(&self, index: usize) -> i64 {
        let steps = i64::try_from(index).unwrap_or(i64::MAX);
        self.start_seconds.saturating_add(steps.saturating_mul(i64::from(self.period_seconds)))
    }
    /// Number of periods, missing ones included.
    pub fn len(&self) -> usize {
        self.values.len()
    }
    /// Whether there is no period.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
    /// Number of periods with a value.
    pub fn known(&self) -> usize {
        self.values.iter().filter(|v| !v.is_nan()).count()
    }

    /// Appends the next period's value (NaN = missing).
    ///
    /// # Errors
    /// As [`Series::new`]; the series is unchanged then.
    pub fn push(&mut self, value: f64) -> Result<(), ForecastError> {
        let index = self.values.len();
        check_length(index + 1)?;
        if value.is_infinite() {
            return Err(ForecastError::NotFinite { index });
        }
        if value.abs() > VALUE_MAX {
            return Err(ForecastError::TooLarge { index, most: VALUE_MAX });
        }
        self.values.push(value);
        Ok(())
    }

    /// The first `periods` periods as a series of their own (all of it where there are fewer).
    pub fn head(&self, periods: usize) -> Series {
        let end = periods.min(self.values.len());
        Series { values: self.values[..end].to_vec(), ..*self }
    }

    /// The one value that every known period has, if there is such a value.
    pub fn constant(&self) -> Option<f64> {
        let mut known = self.values.iter().copied().filter(|v| !v.is_nan());
        let first = known.next()?;
        known.all(|v| v == first).then_some(first)
    }
}

/// A number of periods as a difference of period numbers.
pub(crate) fn signed(periods: usize) -> i64 {
    i64::try_from(periods).unwrap_or(i64::MAX)
}

fn check_length(have: usize) -> Result<(), ForecastError> {
    if have > SERIES_PERIODS_MAX {
        return Err(ForecastError::TooLong { have, most: SERIES_PERIODS_MAX });
    }
    Ok(())
}

/// `values` with every missing period filled in and negatives raised to zero: the value a week, else a day, else a
/// period before; leading gaps take the first known value.
///
/// # Errors
/// [`ForecastError::Empty`] where no value is known.
pub fn fill_counts(values: &[f64], cycles: Cycles) -> Result<Vec<f64>, ForecastError> {
    let first = values.iter().position(|v| !v.is_nan()).ok_or(ForecastError::Empty)?;
    let mut x: Vec<f64> = values.iter().map(|v| if *v < 0.0 { 0.0 } else { *v }).collect();
    let known = x[first];
    x[..first].fill(known);
    for t in first..x.len() {
        if x[t].is_nan() {
            let back = [cycles.week, cycles.day].into_iter().flatten().find(|p| *p <= t).unwrap_or(1);
            x[t] = x[t - back];
        }
    }
    Ok(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_take_the_week_then_the_day_then_the_period_before() {
        let cycles = Cycles { day: Some(6), week: Some(12) };
        let mut x: Vec<f64> = (0..15).map(f64::from).collect();
        for gap in [0, 3, 7, 14] {
            x[gap] = f64::NAN;
        }
        let filled = fill_counts(&x, cycles).unwrap();
        assert_eq!((filled[0], filled[3], filled[7], filled[14]), (1.0, 2.0, 1.0, 2.0));
        assert_eq!(fill_counts(&[f64::NAN, f64::NAN], cycles), Err(ForecastError::Empty));
        assert_eq!(fill_counts(&[-3.0, 2.0], cycles).unwrap(), [0.0, 2.0]);
    }

    #[test]
    fn refuses_what_no_number_can_stand_for() {
        assert_eq!(Series::hourly(vec![1.0, f64::INFINITY]), Err(ForecastError::NotFinite { index: 1 }));
        assert_eq!(Series::hourly(vec![1e19]), Err(ForecastError::TooLarge { index: 0, most: VALUE_MAX }));
        assert!(Series::new(vec![], 0, 0).is_err());
        let mut s = Series::new(vec![f64::NAN, 2.0, 2.0], 60, 120).unwrap();
        assert_eq!((s.known(), s.len(), s.start_of(3), s.constant()), (2, 3, 300, Some(2.0)));
        assert!(s.push(f64::NEG_INFINITY).is_err());
        s.push(3.0).unwrap();
        assert_eq!((s.len(), s.constant()), (4, None));
    }
}
