//! The paper's plain method: one transform, one seasonal autoregression, the full spectral stage on its residual.
//!
//! w(x) is ln x, ln(1+x) or sqrt(x + 3/8); r = w - mean; r_t is regressed on its lags 1, 2, 3, d-1, d, d+1, 2d, v-1, v,
//! v+1 (d = day, v = week: 1, 2, 3, 23, 24, 25, 48, 167, 168, 169 for hours) with ridge 1e-3 n var(r) and no intercept;
//! the residual u is forecast by [`crate::spectral`] and the recursion continued over it,
//! `r_{T+h} = sum phi_k r_{T+h-k} + u_{T+h}`. The variance at h is `s2 sum_{j<h} psi_j^2`, `psi = c / phi(z)`, by the same
//! recursion started at rest: the combined MA weights are never cut off.

use super::forecast::{DemandForecast, Shape};
use crate::arima::{RegressionOptions, SeasonalAr, SeasonalSpec};
use crate::error::ForecastError;
use crate::linear::{dot, mean};
use crate::series::{Cycles, HORIZON_PERIODS_MAX};
use crate::spectral::{SpectralModel, SpectralOptions, deviations};
use crate::spectrum::Workspace;

/// What makes the spread of counts about the same at every level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transform {
    /// ln x, for values above zero.
    Log,
    /// ln(1 + x).
    LogOnePlus,
    /// sqrt(x + 3/8), negative values taken as zero.
    Sqrt,
}

impl Transform {
    /// w(x).
    pub fn apply(self, x: f64) -> f64 {
        match self {
            Transform::Log => x.ln(),
            Transform::LogOnePlus => x.ln_1p(),
            Transform::Sqrt => (x.max(0.0) + 0.375).sqrt(),
        }
    }
    /// x(w); below zero only where the transform itself goes there.
    pub fn invert(self, w: f64) -> f64 {
        match self {
            Transform::Log => w.exp(),
            Transform::LogOnePlus => w.exp_m1(),
            Transform::Sqrt => w.max(0.0).powi(2) - 0.375,
        }
    }
    /// Mean of x where w is normal with this centre and deviation.
    pub fn mean(self, centre: f64, deviation: f64) -> f64 {
        let variance = deviation * deviation;
        match self {
            Transform::Log => (centre + 0.5 * variance).exp(),
            Transform::LogOnePlus => (centre + 0.5 * variance).exp() - 1.0,
            Transform::Sqrt => centre * centre + variance - 0.375,
        }
    }
    /// Logarithm where all values are above zero, else ln(1 + x): what the reference takes for totals.
    pub fn for_values(x: &[f64]) -> Self {
        if x.iter().all(|v| *v > 0.0) { Transform::Log } else { Transform::LogOnePlus }
    }
}

/// The plain method fitted to a series.
#[derive(Debug, Clone, PartialEq)]
pub struct PlainDemand {
    /// The transform used.
    pub transform: Transform,
    /// Mean on the transformed scale.
    pub mean: f64,
    /// The seasonal autoregression.
    pub ar: SeasonalAr,
    /// The spectrum of its residual.
    pub spectrum: SpectralModel,
    innovations: Vec<f64>,
    u: Vec<f64>,
    r: Vec<f64>,
}

impl PlainDemand {
    /// Fits the plain method to `x` (counts without gaps, oldest first) with the cycles given.
    ///
    /// # Errors
    /// [`ForecastError::TooShort`] where fewer than [`crate::spectral::SPECTRAL_PERIODS_MIN`] values are left after
    /// the longest lag, [`ForecastError::NotFinite`] where the transform has no value,
    /// [`ForecastError::Collinear`] for a constant.
    pub fn fit(
        x: &[f64],
        transform: Transform,
        cycles: Cycles,
        ws: &mut Workspace,
    ) -> Result<Self, ForecastError> {
        let mut r: Vec<f64> = x.iter().map(|x| transform.apply(*x)).collect();
        if let Some(index) = r.iter().position(|w| !w.is_finite()) {
            return Err(ForecastError::NotFinite { index });
        }
        let mean = mean(&r);
        r.iter_mut().for_each(|w| *w -= mean);
        let spec = SeasonalSpec::new(0, plain_lags(cycles), Vec::new(), cycles);
        let (ar, u) = SeasonalAr::fit(&r, spec, RegressionOptions::PLAIN)?;
        let spectrum = SpectralModel::fit(&u, &SpectralOptions::plain(), ws)?;
        let innovations = spectrum.innovations(&u, ws);
        Ok(Self { transform, mean, ar, spectrum, innovations, u, r })
    }

    /// Forecast counts 1..=`horizon` periods ahead.
    ///
    /// # Errors
    /// [`ForecastError::HorizonTooLong`].
    pub fn forecast(&self, horizon: usize) -> Result<DemandForecast, ForecastError> {
        let (centre, deviation) = self.forecast_transformed(horizon)?;
        Ok(DemandForecast::new(centre, deviation, Shape::Plain(self.transform)))
    }

    /// Takes the next count; parameters stay as fitted.
    pub(super) fn observe(&mut self, x: f64) {
        let r = self.transform.apply(x.max(0.0)) - self.mean;
        // The logarithm of a zero count has no place in a series that had none: as if it had been one half.
        let r = if r.is_finite() { r } else { self.transform.apply(0.5) - self.mean };
        let expected = self.ar.run(&self.r, &[0.0]);
        self.r.push(r);
        self.u.push(r - expected[0]);
        let newest_first: Vec<f64> = self.u.iter().rev().copied().collect();
        self.innovations.push(dot(&self.spectrum.ar, &newest_first));
    }

    /// Forecasts and their standard deviations on the transformed scale, 1..=`horizon` periods ahead.
    ///
    /// # Errors
    /// [`ForecastError::HorizonTooLong`].
    pub fn forecast_transformed(&self, horizon: usize) -> Result<(Vec<f64>, Vec<f64>), ForecastError> {
        if horizon > HORIZON_PERIODS_MAX {
            return Err(ForecastError::HorizonTooLong { have: horizon, most: HORIZON_PERIODS_MAX });
        }
        let u = self.spectrum.forecast(&self.innovations, horizon);
        let mut f = self.ar.run(&self.r, &u);
        f.iter_mut().for_each(|f| *f += self.mean);
        let psi = self.ar.run(&[], &self.spectrum.ma_weights(horizon));
        Ok((f, deviations(&psi, self.spectrum.innovation_variance)))
    }
}

/// The plain method's lags for the cycles there are.
fn plain_lags(cycles: Cycles) -> Vec<usize> {
    let mut lags = vec![1, 2, 3];
    if let Some(day) = cycles.day {
        lags.extend([day - 1, day, day + 1, 2 * day]);
    }
    if let Some(week) = cycles.week {
        lags.extend([week - 1, week, week + 1]);
    }
    lags.sort_unstable();
    lags.dedup();
    lags
}
