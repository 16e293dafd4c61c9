//! Which members a history can carry: the rungs from the full forecaster down to the mean.
//!
//! For hours (day 24, week 168) the thresholds are those of the reference: 300, 225, 120 and 72 periods. For other
//! cycles they scale with the day but always leave each member the rows it has there.

use super::member::{Regressors, specification};
use crate::arima::SeasonalSpec;
use crate::series::Cycles;

/// Prior weight of the member on levels (A).
const PRIOR_LEVEL: f64 = 2.0;
/// Prior weight of the member on day differences (D).
const PRIOR_DIFFERENCE: f64 = 1.0;

/// What made a forecast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rung {
    /// Every known value was the same.
    Constant,
    /// Both members with the weekly profile at five shifts.
    FullWeek,
    /// Both members with the weekly profile as it stands: between one and two weeks of history.
    ShortWeek,
    /// Both members with the daily profile: five days and more, or no week in the data.
    Day,
    /// Day differences and the last three periods: three days and more.
    DayDifference,
    /// The same period of the day before, with the spread of day differences.
    DayBefore,
    /// No cycle: ARMA(p, q) with differencing chosen by the data.
    Arma,
    /// The mean, with the spread of the history.
    Mean,
    /// The plain method, where it was asked for and the history carries it.
    Plain,
}

impl Rung {
    /// What takes over where the regressions of this rung have no solution.
    pub(super) fn below(self) -> Option<Rung> {
        match self {
            Rung::FullWeek => Some(Rung::ShortWeek),
            Rung::ShortWeek => Some(Rung::Day),
            Rung::Day => Some(Rung::DayDifference),
            Rung::DayDifference => Some(Rung::DayBefore),
            Rung::DayBefore | Rung::Arma | Rung::Plain => Some(Rung::Mean),
            Rung::Mean | Rung::Constant => None,
        }
    }

    /// The rung that `periods` of history reach.
    pub fn of(periods: usize, cycles: Cycles) -> Rung {
        let Some(day) = cycles.day else {
            return if periods >= ARMA_PERIODS_MIN { Rung::Arma } else { Rung::Mean };
        };
        let n = periods;
        match cycles.week {
            Some(week) if n >= (week + 11 * day / 2).max(week + day + 108) => Rung::FullWeek,
            Some(week) if n >= (week + 19 * day / 8).max(week + day + 33) => Rung::ShortWeek,
            _ if n >= (5 * day).max(2 * day + 72) => Rung::Day,
            _ if n >= (3 * day).max(day + 48) => Rung::DayDifference,
            _ if n >= day => Rung::DayBefore,
            _ => Rung::Mean,
        }
    }
}

/// Shortest history that an ARMA model is fitted to.
pub const ARMA_PERIODS_MIN: usize = 30;

/// The members of a rung with their prior weights; none for the rungs that have no regression.
pub(super) fn members(rung: Rung, cycles: Cycles) -> Vec<(SeasonalSpec, f64)> {
    let Some(day) = cycles.day else { return Vec::new() };
    let both = |regressors| {
        vec![
            (specification(0, regressors, day, cycles), PRIOR_LEVEL),
            (specification(day, regressors, day, cycles), PRIOR_DIFFERENCE),
        ]
    };
    match rung {
        Rung::FullWeek => both(Regressors::FullWeek),
        Rung::ShortWeek => both(Regressors::ShortWeek),
        Rung::Day => both(Regressors::Day),
        Rung::DayDifference => vec![(specification(day, Regressors::Recent, day, cycles), PRIOR_DIFFERENCE)],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_have_the_thresholds_of_the_reference() {
        let rungs = [
            (0, Rung::Mean),
            (23, Rung::Mean),
            (24, Rung::DayBefore),
            (71, Rung::DayBefore),
            (72, Rung::DayDifference),
            (119, Rung::DayDifference),
            (120, Rung::Day),
            (224, Rung::Day),
            (225, Rung::ShortWeek),
            (299, Rung::ShortWeek),
            (300, Rung::FullWeek),
        ];
        for (periods, rung) in rungs {
            assert_eq!(Rung::of(periods, Cycles::HOURLY), rung, "{periods}");
        }
        assert_eq!(Rung::of(1000, Cycles { day: Some(24), week: None }), Rung::Day);
        assert_eq!(Rung::of(1000, Cycles::NONE), Rung::Arma);
    }

    #[test]
    fn every_rung_leaves_rows_for_a_spectrum() {
        for (day, week) in [(6, 12), (6, 42), (24, 168), (48, 336), (96, 672), (288, 2016), (7, 14)] {
            let cycles = Cycles::new(day, Some(week)).unwrap();
            for n in 0..week * 3 + 200 {
                for (spec, _) in members(Rung::of(n, cycles), cycles) {
                    let rows = n.saturating_sub(spec.difference + spec.burn_in());
                    assert!(rows >= 30, "{n} periods, day {day}, week {week}: {rows} rows");
                }
            }
        }
    }
}
