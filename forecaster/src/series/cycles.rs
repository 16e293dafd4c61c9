//! The cycles that periods make up: the calendar's, or found in the data.

use crate::error::ForecastError;
use crate::linear::mean;
use crate::spectrum::{Workspace, power_of_two};

/// Shortest cycle that can carry the lags 1, 2, 3 and the ones around it apart from each other.
pub const CYCLE_PERIODS_MIN: usize = 6;
/// Seconds in a day, the cycle that people's work makes.
const DAY_SECONDS: u32 = 86_400;

/// Autocorrelation at a cycle, below which there is none.
const CORRELATION_MIN: f64 = 0.3;
/// How far the autocorrelation must dip before a cycle, so that a slow trend is not taken for one.
const DIP_MIN: f64 = 0.25;
/// Share of the highest peak's autocorrelation from which a shorter cycle is preferred.
const SHORTER_PREFERRED: f64 = 0.85;
/// By how much the autocorrelation a long cycle back must exceed the mean of the short cycles before it.
const LONG_CYCLE_GAIN: f64 = 0.05;
/// Most short cycles in a long one.
const LONG_CYCLE_MULTIPLE_MAX: usize = 14;

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

    /// The cycles that the data show, whatever the calendar says: the shortest lag whose autocorrelation stands out
    /// (a local peak of at least .3 behind a dip), at least three times in the series; then the multiple of it, up to 14,
    /// that stands out above the ones before. `values` has no gaps. Too short or nothing found: [`Cycles::NONE`].
    pub fn found_in(values: &[f64], ws: &mut Workspace) -> Cycles {
        let furthest = values.len() / 3;
        if furthest < CYCLE_PERIODS_MIN {
            return Cycles::NONE;
        }
        let correlation = autocorrelation(&detrended(values), furthest, ws);
        let peaks: Vec<usize> =
            (CYCLE_PERIODS_MIN..=furthest).filter(|p| is_peak(&correlation, *p)).collect();
        let highest = peaks.iter().map(|p| correlation[*p]).fold(0.0, f64::max);
        let Some(day) = peaks.into_iter().find(|p| correlation[*p] >= SHORTER_PREFERRED * highest) else {
            return Cycles::NONE;
        };
        let day = sharpened(&correlation, day);
        let multiples: Vec<f64> =
            (1..=LONG_CYCLE_MULTIPLE_MAX).map_while(|k| correlation.get(k * day)).copied().collect();
        let stands_out = |k: &usize| {
            let before = &multiples[..*k];
            multiples[*k] > before.iter().copied().fold(0.0, f64::max)
                && multiples.get(k + 1).is_none_or(|next| *next <= multiples[*k])
                && multiples[*k] - mean(before) > LONG_CYCLE_GAIN
        };
        let week = (1..multiples.len()).find(stands_out).map(|k| (k + 1) * day);
        Cycles { day: Some(day), week }
    }
}

/// The values on a scale where a burst does not drown the rest, without their straight line.
fn detrended(values: &[f64]) -> Vec<f64> {
    let x: Vec<f64> = values.iter().map(|v| v.abs().sqrt().sqrt()).collect();
    let middle = (x.len() as f64 - 1.0) / 2.0;
    let level = mean(&x);
    let (mut products, mut squares) = (0.0, 0.0);
    for (t, v) in x.iter().enumerate() {
        let t = t as f64 - middle;
        products += t * (v - level);
        squares += t * t;
    }
    let slope = if squares > 0.0 { products / squares } else { 0.0 };
    x.iter().enumerate().map(|(t, v)| v - level - slope * (t as f64 - middle)).collect()
}

/// Autocorrelations at lags 0..=`furthest`, each over the pairs there are; zeros for a series without variance.
fn autocorrelation(x: &[f64], furthest: usize, ws: &mut Workspace) -> Vec<f64> {
    let n = power_of_two(2 * x.len());
    ws.real.clear();
    ws.real.extend_from_slice(x);
    let mut half = std::mem::take(&mut ws.half);
    ws.forward_into(n, &mut half);
    half.iter_mut().for_each(|c| *c = c.norm_sqr().into());
    ws.inverse_of(n, &mut half);
    ws.half = half;
    let variance = ws.real[0] / x.len() as f64;
    let at = |k: usize| ws.real[k] / (x.len() - k) as f64 / variance;
    if variance > 1e-12 { (0..=furthest).map(at).collect() } else { vec![0.0; furthest + 1] }
}

/// The lag within a sixteenth of `p` whose multiples have the highest mean autocorrelation: the further back, the
/// sharper.
fn sharpened(correlation: &[f64], p: usize) -> usize {
    let reach = (p / 16).max(1);
    let mean_at = |q: &usize| mean(&correlation.iter().skip(*q).step_by(*q).copied().collect::<Vec<_>>());
    let around = (p - reach).max(CYCLE_PERIODS_MIN)..=(p + reach).min(correlation.len() - 1);
    around.max_by(|a, b| mean_at(a).total_cmp(&mean_at(b))).unwrap_or(p)
}

/// Whether lag `p` is the highest around, high enough, and behind a dip.
fn is_peak(correlation: &[f64], p: usize) -> bool {
    let reach = (p / 8).max(1);
    let around = &correlation[p - reach..=(p + reach).min(correlation.len() - 1)];
    let lowest_before = correlation[1..p].iter().copied().fold(f64::INFINITY, f64::min);
    let value = correlation[p];
    value >= CORRELATION_MIN && value - lowest_before >= DIP_MIN && around.iter().all(|c| *c <= value)
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

    fn counts(cycle: usize, long: Option<usize>, n: usize) -> Vec<f64> {
        let mut state = 11u64;
        let turn = |t: usize, p: usize| (2.0 * std::f64::consts::PI * (t % p) as f64 / p as f64).sin();
        (0..n)
            .map(|t| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let noise = (state >> 11) as f64 / (1u64 << 53) as f64;
                let cycles = 1.0 + 0.5 * turn(t, cycle) + long.map_or(0.0, |p| 0.25 * turn(t, p));
                (100.0 * cycles * (0.8 + 0.4 * noise)).round()
            })
            .collect()
    }

    #[test]
    fn finds_cycles_of_any_length_and_none_where_there_is_none() {
        let mut ws = Workspace::new();
        let mut found = |x: &[f64]| Cycles::found_in(x, &mut ws);
        assert_eq!(found(&counts(24, Some(168), 800)), Cycles::HOURLY);
        assert_eq!(found(&counts(24, None, 800)).day, Some(24));
        assert_eq!(found(&counts(50, Some(250), 1500)), Cycles { day: Some(50), week: Some(250) });
        assert_eq!(found(&counts(7, None, 100)).day, Some(7));
        let flat: Vec<f64> = counts(24, None, 800)
            .iter()
            .enumerate()
            .map(|(t, v)| if t % 2 == 0 { *v } else { 90.0 })
            .collect();
        assert_eq!(found(&flat[..17]), Cycles::NONE);
        assert_eq!(found(&[5.0; 300]), Cycles::NONE);
        let mut walk = 1000.0;
        let walk: Vec<f64> = counts(24, None, 4800)
            .iter()
            .skip(5)
            .step_by(24)
            .map(|v| {
                walk += v - 90.0;
                walk
            })
            .collect();
        assert_eq!(found(&walk), Cycles::NONE);
    }
}
