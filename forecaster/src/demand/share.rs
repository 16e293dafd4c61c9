//! Sparse files: their share of the total, which many files' traffic makes forecastable where their own does not.
//!
//! A file's share is gamma distributed given the past: with its requests y_t, the total N_t and a memory delta,
//! `G <- delta G + y`, `B <- delta B + N`, the share's mean is `(G + a0)/(B + b0)` and a period's count is negative
//! binomial of size `G + a0`. b0 is two periods of mean traffic, a0 is b0 times the smoothed share of the first week. No
//! memory suits all files, so seven of them ([`MEMORIES`]) are averaged with log weights that keep .99 of themselves and
//! add the log likelihood of each count. The forecast is the averaged share times the total's forecast mean, its
//! quantiles negative binomial with variance `mu + k mu^2`, k by moments of the file's past errors (from the second week
//! on).
//!
//! What depends on the total only (B, and the logarithms of the likelihood) is worked out once in [`Total`] for all files;
//! a period without a request then costs a file one multiplication a memory.

use statrs::function::gamma::ln_gamma;

use super::FittedDemand;
use super::forecast::{DemandForecast, Shape};
use crate::error::ForecastError;
use crate::series::Cycles;

/// What a period's traffic still weighs a period later, for each memory averaged over.
pub const MEMORIES: [f64; 7] = [0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999];
/// What a log weight keeps of itself each period.
const WEIGHT_MEMORY: f64 = 0.99;
/// Periods of mean traffic that the prior share counts as.
const PRIOR_PERIODS: f64 = 2.0;
/// Requests added to each file before the share of its first week is taken.
const PRIOR_REQUESTS: f64 = 0.5;
/// Counts up to which ln Gamma(a + y) - ln Gamma(a) is a sum of logarithms.
const SUMMED_COUNT_MAX: f64 = 16.0;
/// Width of the arrays over memories: a full vector register more than there are.
const LANES: usize = 8;

/// What the shares of all files have in common in one period.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Step {
    /// Total of the period; NaN = missing.
    total: f64,
    /// What had been forecast for it (the total itself where there was no forecast).
    expected: f64,
    /// 1/(B + b0) before the period.
    inverse_exposure: [f64; LANES],
    /// ln((B + b0)/(B + b0 + N)).
    log_none: [f64; LANES],
    /// ln(N/(B + b0 + N)).
    log_some: [f64; LANES],
}

/// A total over all files, prepared for the shares of its files.
#[derive(Debug, Clone, PartialEq)]
pub struct Total {
    steps: Vec<Step>,
    exposure: [f64; LANES],
    prior_exposure: f64,
    /// Periods of the first week, and the total over them.
    first: (usize, f64),
    files: usize,
}

impl Total {
    /// Prepares `total` (requests of all files a period, NaN = missing) for the shares of `files` files; `expected` is
    /// what had been forecast for each period, where anything had (NaN and missing tails: the total itself is taken).
    ///
    /// # Errors
    /// [`ForecastError::Empty`] where no period of the total is known.
    pub fn new(total: &[f64], expected: &[f64], cycles: Cycles, files: usize) -> Result<Self, ForecastError> {
        let week = cycles.week.or(cycles.day.map(|day| 7 * day)).unwrap_or(168);
        let first = week.min(total.len());
        let known = || total[..first].iter().chain(&total[first..]).filter(|v| !v.is_nan());
        if known().next().is_none() {
            return Err(ForecastError::Empty);
        }
        let in_first: Vec<f64> = total[..first].iter().copied().filter(|v| !v.is_nan()).collect();
        // A total that is silent through its first week takes its mean over all of the history as the prior's traffic.
        let sum: f64 = in_first.iter().sum();
        let mean = if sum > 0.0 {
            sum / in_first.len() as f64
        } else {
            known().sum::<f64>() / known().count() as f64
        };
        let mut prepared = Self {
            steps: Vec::with_capacity(total.len()),
            exposure: [0.0; LANES],
            prior_exposure: (PRIOR_PERIODS * mean).max(1e-9),
            first: (first, sum),
            files,
        };
        for (t, total) in total.iter().enumerate() {
            prepared.push(*total, expected.get(t).copied().unwrap_or(f64::NAN));
        }
        Ok(prepared)
    }

    /// The total that `fitted` was fitted to, its own one-step expectations beside it.
    ///
    /// # Errors
    /// As [`Total::new`].
    pub fn of(fitted: &FittedDemand, files: usize) -> Result<Self, ForecastError> {
        Self::new(&fitted.x, &fitted.fitted_means(), fitted.cycles, files)
    }

    /// Appends a period: its total (NaN = missing) and what had been forecast for it (NaN = nothing).
    pub fn push(&mut self, total: f64, expected: f64) {
        let total = if total < 0.0 { 0.0 } else { total };
        let expected = if expected.is_nan() { total } else { expected.max(0.0) };
        let mut step = Step {
            total,
            expected,
            inverse_exposure: [0.0; LANES],
            log_none: [0.0; LANES],
            log_some: [0.0; LANES],
        };
        for (d, memory) in MEMORIES.iter().enumerate() {
            let before = self.exposure[d] + self.prior_exposure;
            step.inverse_exposure[d] = 1.0 / before;
            if total > 0.0 {
                step.log_none[d] = -(total / before).ln_1p();
                step.log_some[d] = -(before / total).ln_1p();
            }
            if !total.is_nan() {
                self.exposure[d] = memory * self.exposure[d] + total;
            }
        }
        self.steps.push(step);
    }

    /// Periods so far.
    pub fn periods(&self) -> usize {
        self.steps.len()
    }
}

/// A file's share of a total.
#[derive(Debug, Clone, PartialEq)]
pub struct Share {
    gathered: [f64; LANES],
    prior: f64,
    log_weights: [f64; LANES],
    /// Sums of (error^2 - mu) and of mu^2 over the periods from the second week on.
    moments: (f64, f64),
    periods: usize,
}

impl Share {
    /// Learns the share that the file with `counts` has of `total`: requests a period, NaN = missing, one for each
    /// period of the total (zeros before the file was first seen).
    ///
    /// # Errors
    /// [`ForecastError::LengthMismatch`] where `counts` has another number of periods than `total`.
    pub fn fit(counts: &[f64], total: &Total) -> Result<Self, ForecastError> {
        if counts.len() != total.steps.len() {
            let (left, right) = (counts.len(), total.steps.len());
            return Err(ForecastError::LengthMismatch {
                what: "a file's periods and the total's",
                left,
                right,
            });
        }
        let (first, first_total) = total.first;
        let requests: f64 = counts[..first].iter().filter(|v| **v > 0.0).sum();
        let smoothed =
            (requests + PRIOR_REQUESTS) / (first_total + PRIOR_REQUESTS * total.files.max(1) as f64);
        let mut share = Self {
            gathered: [0.0; LANES],
            prior: total.prior_exposure * smoothed.min(1.0),
            log_weights: [0.0; LANES],
            moments: (0.0, 0.0),
            periods: 0,
        };
        // The lane beyond the memories never weighs anything.
        share.log_weights[MEMORIES.len()..].fill(f64::NEG_INFINITY);
        for (count, step) in counts.iter().zip(&total.steps) {
            share.step(*count, step, first);
        }
        Ok(share)
    }

    /// Takes the count of the period that was last [pushed](Total::push) to `total`.
    ///
    /// # Errors
    /// [`ForecastError::LengthMismatch`] unless `total` is exactly one period ahead.
    pub fn observe(&mut self, count: f64, total: &Total) -> Result<(), ForecastError> {
        match total.steps.last() {
            Some(step) if total.steps.len() == self.periods + 1 => {
                self.step(count, step, total.first.0);
                Ok(())
            }
            _ => {
                let (left, right) = (self.periods + 1, total.steps.len());
                Err(ForecastError::LengthMismatch { what: "a file's periods and the total's", left, right })
            }
        }
    }

    fn step(&mut self, count: f64, step: &Step, first: usize) {
        let observed = !count.is_nan() && !step.total.is_nan();
        let count = count.max(0.0);
        if observed && self.periods >= first && step.expected.is_finite() {
            let mu = self.mean_share(&step.inverse_exposure) * step.expected;
            self.moments.0 += (count - mu).powi(2) - mu;
            self.moments.1 += mu * mu;
        }
        self.periods += 1;
        if !observed {
            return;
        }
        if step.total > 0.0 {
            for d in 0..LANES {
                let size = self.gathered[d] + self.prior;
                self.log_weights[d] = WEIGHT_MEMORY * self.log_weights[d] + size * step.log_none[d];
            }
            if count > 0.0 {
                for d in 0..MEMORIES.len() {
                    let size = self.gathered[d] + self.prior;
                    self.log_weights[d] += log_rising(size, count) + count * step.log_some[d];
                }
            }
        }
        for (gathered, memory) in self.gathered.iter_mut().zip(MEMORIES) {
            *gathered = memory * *gathered + count;
        }
    }

    /// The averaged share, given 1/(B + b0).
    fn mean_share(&self, inverse_exposure: &[f64; LANES]) -> f64 {
        let most = self.log_weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (mut sum, mut weights) = (0.0, 0.0);
        for (d, inverse) in inverse_exposure.iter().enumerate() {
            let below = self.log_weights[d] - most;
            // A memory a million times less likely than the best does not show in the average.
            if below > -14.0 {
                let weight = below.exp();
                weights += weight;
                sum += weight * (self.gathered[d] + self.prior) * inverse;
            }
        }
        if weights > 0.0 { (sum / weights).min(1.0) } else { 0.0 }
    }

    /// The share of the next periods' totals, 0 to 1.
    pub fn share(&self, total: &Total) -> f64 {
        let mut inverse = [0.0; LANES];
        for (inverse, exposure) in inverse.iter_mut().zip(&total.exposure) {
            *inverse = 1.0 / (exposure + total.prior_exposure);
        }
        self.mean_share(&inverse)
    }

    /// Over-dispersion k: a count with mean mu has variance `mu + k mu^2`.
    pub fn dispersion(&self) -> f64 {
        let (excess, squares) = self.moments;
        if excess > 0.0 && squares > 0.0 { (excess / squares).min(DISPERSION_MAX) } else { 0.0 }
    }

    /// Forecasts, given the means of the total's forecast for the periods ahead.
    pub fn forecast(&self, total: &Total, total_means: &[f64]) -> DemandForecast {
        let (share, k) = (self.share(total), self.dispersion());
        let means: Vec<f64> = total_means.iter().map(|m| share * m.max(0.0)).collect();
        let deviation = means.iter().map(|m| (m + k * m * m).sqrt()).collect();
        DemandForecast::new(means, deviation, Shape::NegativeBinomial { k })
    }
}

/// Largest over-dispersion: a file that has had a single burst.
const DISPERSION_MAX: f64 = 1e6;

/// `ln Gamma(a + y) - ln Gamma(a)`.
fn log_rising(a: f64, y: f64) -> f64 {
    if y <= SUMMED_COUNT_MAX && y == y.floor() {
        let mut product = 1.0;
        let mut i = 0.0;
        while i < y {
            product *= a + i;
            i += 1.0;
        }
        if product > 0.0 && product.is_finite() {
            return product.ln();
        }
    }
    ln_gamma(a + y) - ln_gamma(a)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(periods: usize) -> Vec<f64> {
        (0..periods).map(|t| 100.0 + 50.0 * f64::from(u8::from(t % 24 < 12))).collect()
    }

    #[test]
    fn a_steady_share_is_learnt_and_a_change_followed() {
        let n = total(600);
        let counts: Vec<f64> =
            n.iter().enumerate().map(|(t, n)| if t < 400 { 0.04 * n } else { 0.2 * n }).collect();
        let early = Total::new(&n[..400], &[], Cycles::HOURLY, 50).unwrap();
        let late = Total::new(&n, &[], Cycles::HOURLY, 50).unwrap();
        let share = Share::fit(&counts[..400], &early).unwrap().share(&early);
        assert!((share - 0.04).abs() < 0.002, "{share}");
        let share = Share::fit(&counts, &late).unwrap().share(&late);
        assert!((share - 0.2).abs() < 0.02, "{share}");
    }

    #[test]
    fn observing_is_the_same_as_fitting_to_all() {
        let n = total(300);
        let counts: Vec<f64> = (0..300).map(|t| f64::from(u8::from(t % 7 == 0))).collect();
        let mut growing = Total::new(&n[..200], &[], Cycles::HOURLY, 9).unwrap();
        let mut share = Share::fit(&counts[..200], &growing).unwrap();
        for t in 200..300 {
            growing.push(n[t], f64::NAN);
            share.observe(counts[t], &growing).unwrap();
        }
        let all = Total::new(&n, &[], Cycles::HOURLY, 9).unwrap();
        assert_eq!(share, Share::fit(&counts, &all).unwrap());
        assert!(share.observe(1.0, &growing).is_err());
        assert!(Share::fit(&counts[..299], &all).is_err());
    }

    #[test]
    fn forecasts_are_counts_whatever_came() {
        let mut n = total(400);
        n[100..150].fill(f64::NAN);
        n[200..230].fill(0.0);
        let prepared = Total::new(&n, &[], Cycles::HOURLY, 3).unwrap();
        for burst in [0.0, 1.0, 17.0, 1e15] {
            let mut counts = vec![0.0; 400];
            counts[350] = burst;
            counts[120] = f64::NAN;
            let f = Share::fit(&counts, &prepared).unwrap().forecast(&prepared, &[100.0, 0.0, 1e15]);
            for level in [0.01, 0.5, 0.99] {
                assert!(f.quantile(level).unwrap().iter().all(|q| q.is_finite() && *q >= 0.0));
            }
            assert!(f.mean().iter().all(|m| m.is_finite() && *m >= 0.0));
        }
        assert_eq!(Total::new(&[f64::NAN; 9], &[], Cycles::HOURLY, 3).unwrap_err(), ForecastError::Empty);
        let silent = Total::new(&[0.0; 300], &[], Cycles::HOURLY, 3).unwrap();
        assert_eq!(Share::fit(&[0.0; 300], &silent).unwrap().forecast(&silent, &[0.0]).mean(), [0.0]);
    }
}
