//! The recommended forecaster: two members on the fourth-root scale, combined by their precision.
//!
//! 1. w = (x + 3/8)^(1/4).
//! 2. Member A regresses w - mean, member D the day difference, on recent lags and smoothed profiles
//!    ([`crate::arima`]); the residual of each goes through the spectral stage with its cepstrum halved
//!    ([`crate::spectral::ShrunkOptions`]).
//! 3. Weights `k_m` proportional to `prior_m / s_m^8` (priors 2 and 1); `f = sum k f_m`, `sd = 1 / sum(k / sd_m)`.
//! 4. Quantile p on the w scale: `f + z sd`, `z = b t4(p) + (1-b) normal(p)`, t4 scaled to the normal at .975, and
//!    `b = clip((.954165 - rho)/.19012, 0, 1)`, rho = the .66 quantile of the combined errors over their deviation:
//!    as much of the heavy-tailed t as puts the 66 % limits where the errors had them.
//! 5. Back: median `f^4 - 3/8`, mean `f^4 + 6 f^2 sd^2 + 3 sd^4 - 3/8`, never below zero.

use super::forecast::{DemandForecast, Shape, fourth_root};
use super::ladder::{Rung, members};
use super::member::Member;
use crate::error::ForecastError;
use crate::linear::{mean, quantile, variance};
use crate::series::Cycles;
use crate::spectral::ShrunkOptions;
use crate::spectrum::Workspace;

/// Power of the innovation deviation in the weights of the members.
const POWER: i32 = 8;
/// Half-life of the regression weights, in weeks (336 hours).
const HALF_LIFE_WEEKS: f64 = 2.0;
/// Normal quantile of a two-sided 66 % interval.
const Z66: f64 = 0.954_165;
/// What the scaled t4 has there.
const T66: f64 = 0.764_045;
/// Keeps ratios of deviations defined.
const TINY: f64 = 1e-12;

/// The recommended forecaster fitted to a history without gaps.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Recommended {
    pub(super) members: Vec<Member>,
    pub(super) weights: Vec<f64>,
    pub(super) t_weight: f64,
    deviation: f64,
    /// Period of the naive rung; `None`: the mean.
    naive: Option<usize>,
    w: Vec<f64>,
}

impl Recommended {
    /// Fits the members that `rung` has to `x` (counts without gaps).
    pub(super) fn fit(
        x: &[f64],
        rung: Rung,
        cycles: Cycles,
        ws: &mut Workspace,
    ) -> Result<Self, ForecastError> {
        let w: Vec<f64> = x.iter().map(|x| fourth_root(*x)).collect();
        let week = cycles.week.or(cycles.day.map(|day| 7 * day)).unwrap_or(168);
        let half_life = HALF_LIFE_WEEKS * week as f64;
        let (mut fitted, mut priors) = (Vec::new(), Vec::new());
        for (spec, prior) in members(rung, cycles) {
            fitted.push(Member::fit(&w, spec, half_life, ws)?);
            priors.push(prior);
        }
        let naive = if rung == Rung::DayBefore { cycles.day.filter(|day| *day <= w.len()) } else { None };
        let mut model = Self { members: fitted, weights: priors, t_weight: 0.0, deviation: 0.0, naive, w };
        if !model.members.is_empty() {
            model.weigh();
        }
        Ok(model)
    }

    /// Weights of the members, and how heavy the tails of their combined errors are.
    fn weigh(&mut self) {
        for (weight, member) in self.weights.iter_mut().zip(&self.members) {
            *weight /= (member.spectrum.innovation_variance + TINY).powi(POWER / 2);
        }
        let sum: f64 = self.weights.iter().sum();
        self.weights.iter_mut().for_each(|k| *k /= sum);
        let shortest = self.members.iter().map(|m| m.innovations().len()).min().unwrap_or(0);
        let mut errors = vec![0.0; shortest];
        self.deviation = 0.0;
        for (k, member) in self.weights.iter().zip(&self.members) {
            let e = member.innovations();
            errors.iter_mut().zip(&e[e.len() - shortest..]).for_each(|(sum, e)| *sum += k * e);
            self.deviation += k * member.innovation_deviation();
        }
        errors.iter_mut().for_each(|e| *e = e.abs());
        let charged = shortest.saturating_sub(ShrunkOptions::RECOMMENDED.parameters).max(1);
        let scale = (shortest as f64 / charged as f64).sqrt() / (self.deviation + TINY);
        let ratio = quantile(&mut errors, 0.66) * scale / Z66;
        self.t_weight = ((1.0 - ratio) * Z66 / (Z66 - T66)).clamp(0.0, 1.0);
    }

    pub(super) fn observe(&mut self, x: f64) {
        self.w.push(fourth_root(x));
        for member in &mut self.members {
            member.observe(&self.w);
        }
    }

    pub(super) fn forecast(&self, horizon: usize) -> DemandForecast {
        if self.members.is_empty() {
            return self.without_members(horizon);
        }
        let (mut centre, mut precision) = (vec![0.0; horizon], vec![0.0; horizon]);
        for (k, member) in self.weights.iter().zip(&self.members) {
            let (f, sd) = member.forecast(&self.w, horizon);
            for h in 0..horizon {
                centre[h] += k * f[h];
                precision[h] += k / (sd[h] + TINY);
            }
        }
        let deviation = precision.iter().map(|p| 1.0 / p).collect();
        DemandForecast::new(centre, deviation, Shape::FourthRoot { t_weight: self.t_weight })
    }

    /// The day before, or the mean.
    fn without_members(&self, horizon: usize) -> DemandForecast {
        let (w, n) = (&self.w, self.w.len());
        let (centre, day) = match self.naive {
            Some(day) => ((0..horizon).map(|h| w[n - day + h % day]).collect(), day),
            None => (vec![mean(w); horizon], n),
        };
        let spread = if n > day + 3 {
            let differences: Vec<f64> = w[day..].iter().zip(w).map(|(now, before)| now - before).collect();
            variance(&differences).sqrt()
        } else {
            variance(w).sqrt() + 0.5
        };
        DemandForecast::new(centre, vec![spread; horizon], Shape::FourthRoot { t_weight: 0.0 })
    }

    /// Means of one-step forecasts within the history; NaN where a member had not begun.
    pub(super) fn fitted_means(&self) -> Vec<f64> {
        let n = self.w.len();
        let shortest = self.members.iter().map(|m| m.innovations().len()).min().unwrap_or(0);
        let mut centre = self.w[n - shortest..].to_vec();
        for (k, member) in self.weights.iter().zip(&self.members) {
            let e = member.innovations();
            centre.iter_mut().zip(&e[e.len() - shortest..]).for_each(|(f, e)| *f -= k * e);
        }
        let deviation = vec![self.deviation; shortest];
        let forecast = DemandForecast::new(centre, deviation, Shape::FourthRoot { t_weight: self.t_weight });
        let mut means = vec![f64::NAN; n - shortest];
        means.extend_from_slice(forecast.mean());
        means
    }

    /// One-step forecasts of `x[from..]` (the history fitted on, continued), parameters kept.
    pub(super) fn one_step(&self, x: &[f64], from: usize, ws: &mut Workspace) -> DemandForecast {
        let w: Vec<f64> = x.iter().map(|x| fourth_root(*x)).collect();
        let mut centre = vec![0.0; x.len() - from];
        for (k, member) in self.weights.iter().zip(&self.members) {
            let f = member.one_step(&w, from, ws);
            centre.iter_mut().zip(&f).for_each(|(sum, f)| *sum += k * f);
        }
        let deviation = vec![self.deviation; centre.len()];
        DemandForecast::new(centre, deviation, Shape::FourthRoot { t_weight: self.t_weight })
    }
}
