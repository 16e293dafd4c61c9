//! Counts per period with gaps, a period length and a start; the cycles that its periods make up.
//!
//! A period without a measurement is *missing* (NaN), which is not the same as a period with a count of zero: a
//! router that was down has seen nothing, a quiet night has seen zero requests.

use crate::error::ForecastError;

/// Most periods a series may have (over 100 years of hours, 20 years of ten minutes).
pub const SERIES_PERIODS_MAX: usize = 1 << 20;
/// Most periods that are forecast ahead in one call.
pub const HORIZON_PERIODS_MAX: usize = 1 << 14;
/// Largest absolute value taken: above it, fourth powers and sums of squares lose their meaning in doubles.
pub const VALUE_MAX: f64 = 1e18;
/// Shortest cycle that can carry the lags 1, 2, 3 and the ones around it apart from each other.
pub const CYCLE_PERIODS_MIN: usize = 6;
/// Seconds in a day, the cycle that people's work makes.
const DAY_SECONDS: u32 = 86_400;

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

fn check_length(have: usize) -> Result<(), ForecastError> {
    if have > SERIES_PERIODS_MAX {
        return Err(ForecastError::TooLong { have, most: SERIES_PERIODS_MAX });
    }
    Ok(())
}

/// The cycles in a series, in periods: a short one (a day) and a long one made of it (a week).
///
/// The forecaster's lags, profiles and history thresholds follow these numbers; 24 and 168 are the ones the method
/// was measured with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cycles {
    /// Periods in a day, or in the short cycle found; `None`: no cycle.
    pub day: Option<usize>,
    /// Periods in a week, or in the long cycle found; only ever beside a day.
    pub week: Option<usize>,
}

impl Cycles {
    /// No cycle at all.
    pub const NONE: Cycles = Cycles { day: None, week: None };
    /// Hours: 24 and 168.
    pub const HOURLY: Cycles = Cycles { day: Some(24), week: Some(168) };

    /// Cycles of `day` periods and, where given, of `week` periods.
    ///
    /// # Errors
    /// [`ForecastError::BadCycle`] where `day` is below [`CYCLE_PERIODS_MIN`] or `week` below two days.
    pub fn new(day: usize, week: Option<usize>) -> Result<Self, ForecastError> {
        if day < CYCLE_PERIODS_MIN {
            return Err(ForecastError::BadCycle { periods: day, least: CYCLE_PERIODS_MIN });
        }
        match week {
            Some(w) if w < 2 * day => Err(ForecastError::BadCycle { periods: w, least: 2 * day }),
            _ => Ok(Self { day: Some(day), week }),
        }
    }

    /// What the calendar says for a period length: a day and a week where the period divides the day into at least
    /// [`CYCLE_PERIODS_MIN`] parts; where it does not, a week as the short cycle if that has enough periods.
    pub fn calendar(period_seconds: u32) -> Cycles {
        let parts = |span: u32| {
            (period_seconds > 0 && span.is_multiple_of(period_seconds))
                .then(|| (span / period_seconds) as usize)
        };
        match (parts(DAY_SECONDS), parts(7 * DAY_SECONDS)) {
            (Some(day), Some(week)) if day >= CYCLE_PERIODS_MIN => {
                Cycles { day: Some(day), week: Some(week) }
            }
            (_, Some(week)) if week >= CYCLE_PERIODS_MIN => Cycles { day: Some(week), week: None },
            _ => Cycles::NONE,
        }
    }
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
    fn calendar_follows_the_period_length() {
        assert_eq!(Cycles::calendar(3600), Cycles::HOURLY);
        assert_eq!(Cycles::calendar(900), Cycles { day: Some(96), week: Some(672) });
        assert_eq!(Cycles::calendar(86_400), Cycles { day: Some(7), week: None });
        assert_eq!(Cycles::calendar(4 * 3600), Cycles { day: Some(6), week: Some(42) });
        assert_eq!(Cycles::calendar(7 * 86_400), Cycles::NONE);
        assert_eq!(Cycles::calendar(0), Cycles::NONE);
        assert_eq!(Cycles::calendar(3601), Cycles::NONE);
    }

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
