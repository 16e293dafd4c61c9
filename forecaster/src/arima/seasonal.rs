//! Sparse seasonal autoregression on chosen lags and smoothed profiles.
//!
//! With r the series (its mean removed, or differenced),
//!
//! ```text
//! r_t = sum_k phi_k r_{t-lag_k} + sum_i beta_i S^(i)_{t-shift_i} + u_t
//! ```
//!
//! fitted by ridge least squares, `(X'WX + R I) phi = X'W y`, `R = ridge n var(r)`: weights W that halve with age, then
//! once more with every weight cut down where the residual is beyond 1.5 robust deviations (Huber). A stability guard
//! shrinks phi by .97 until the response to a shock has died down: below 1.5 over the 24 steps before step 400 (hours;
//! scaled with the cycle otherwise). The residual u is not white; what is left in it is the spectral stage's.

use ndarray::{Array1, Array2};

use super::profile::{Profile, smoothed_profile};
use crate::error::ForecastError;
use crate::linear::{cholesky, cholesky_solve, dot, mean, median, variance};
use crate::series::Cycles;

/// Largest response to a unit shock that the stability guard lets pass.
const RESPONSE_MAX: f64 = 1.5;
/// Shrinking steps after which the guard gives up on the coefficients (.97^1024 is nothing).
const SHRINK_STEPS_MAX: usize = 1024;

/// Which regressors an autoregression has.
#[derive(Debug, Clone, PartialEq)]
pub struct SeasonalSpec {
    /// Lag of the difference taken first (0: none, the mean is subtracted instead).
    pub difference: usize,
    /// Lags of the series itself, each at least 1.
    pub lags: Vec<usize>,
    /// Smoothed profiles.
    pub profiles: Vec<Profile>,
    /// Steps of the shock response over which the stability guard looks: (up to, how many before).
    pub guard: (usize, usize),
}

impl SeasonalSpec {
    /// Regressors for a series with `cycles`; the guard looks at a day around two and a third weeks on (hours: steps
    /// 376..400), or 400/24 days on where there is no week.
    pub fn new(difference: usize, lags: Vec<usize>, profiles: Vec<Profile>, cycles: Cycles) -> Self {
        let day = cycles.day.unwrap_or(24);
        let upto = cycles.week.map_or(day * 400 / 24, |week| week * 400 / 168).max(day + 1);
        Self { difference, lags, profiles, guard: (upto, day) }
    }

    /// Values of the (differenced) series before the first regression row.
    pub fn burn_in(&self) -> usize {
        let profiles = self.profiles.iter().map(|p| p.cycle + p.shift.max(0).unsigned_abs());
        self.lags.iter().copied().chain(profiles).max().unwrap_or(0)
    }

    /// Number of coefficients.
    pub fn parameters(&self) -> usize {
        self.lags.len() + self.profiles.len()
    }

    /// The series that is regressed: `w_t - w_{t-difference}`, or `w - level`.
    pub fn stationary(&self, w: &[f64], level: f64) -> Vec<f64> {
        if self.difference == 0 {
            return w.iter().map(|v| v - level).collect();
        }
        w.iter().skip(self.difference).zip(w).map(|(now, before)| now - before).collect()
    }
}

/// How the regression weighs its rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RegressionOptions {
    /// Ridge: R = `ridge` n var(r) + `ridge_floor`.
    pub ridge: f64,
    /// Part of the ridge that does not depend on the series.
    pub ridge_floor: f64,
    /// Periods in which a row's weight halves; `None`: equal weights.
    pub half_life: Option<f64>,
    /// Robust deviations beyond which a residual's weight is cut in a second pass; `None`: one pass.
    pub huber: Option<f64>,
}

impl RegressionOptions {
    /// The plain composition: ridge 1e-3, equal weights.
    pub const PLAIN: RegressionOptions =
        RegressionOptions { ridge: 1e-3, ridge_floor: 0.0, half_life: None, huber: None };

    /// The recommended forecaster: ridge 5e-4, weights halving in `half_life` periods, Huber at 1.5.
    pub fn recommended(half_life: f64) -> Self {
        Self { ridge: 5e-4, ridge_floor: 1e-12, half_life: Some(half_life), huber: Some(1.5) }
    }
}

/// A fitted seasonal autoregression.
#[derive(Debug, Clone, PartialEq)]
pub struct SeasonalAr {
    /// Its regressors.
    pub spec: SeasonalSpec,
    /// Coefficients: lags first, then profiles.
    pub coefficients: Vec<f64>,
}

impl SeasonalAr {
    /// Fits `spec` to the stationary series `r` (see [`SeasonalSpec::stationary`]); gives the model and its residuals,
    /// one for each value of `r` after the burn-in.
    ///
    /// # Errors
    /// [`ForecastError::TooShort`] where no row is left after the burn-in; [`ForecastError::Collinear`] where even the
    /// ridge leaves the system singular (all regressors zero and no ridge floor).
    pub fn fit(
        r: &[f64],
        spec: SeasonalSpec,
        options: RegressionOptions,
    ) -> Result<(Self, Vec<f64>), ForecastError> {
        let burn_in = spec.burn_in();
        if r.len() <= burn_in {
            let (what, have, need) = ("a seasonal autoregression", r.len(), burn_in + 1);
            return Err(ForecastError::TooShort { what, have, need });
        }
        let curves = Curves::of(&spec, r);
        let columns = curves.columns(&spec, r);
        let y = &r[burn_in..];
        let n = y.len();
        let ridge = options.ridge * n as f64 * variance(r) + options.ridge_floor;
        let age = age_weights(n, options.half_life);
        let mut coefficients = weighted_ridge(&columns, y, &age, ridge)?;
        if let Some(clip) = options.huber {
            let weights = huber_weights(&columns, y, &coefficients, &age, clip);
            coefficients = weighted_ridge(&columns, y, &weights, ridge)?;
        }
        let mut model = Self { spec, coefficients };
        model.stabilise();
        let residuals = residuals(&columns, y, &model.coefficients);
        Ok((model, residuals))
    }

    /// `u_t`, one for each value of the stationary series `r` after the burn-in.
    pub fn residuals(&self, r: &[f64]) -> Vec<f64> {
        let burn_in = self.spec.burn_in();
        if r.len() <= burn_in {
            return Vec::new();
        }
        let curves = Curves::of(&self.spec, r);
        residuals(&curves.columns(&self.spec, r), &r[burn_in..], &self.coefficients)
    }

    /// Shrinks the coefficients until the response to a unit shock has died down.
    fn stabilise(&mut self) {
        let (upto, looked_at) = self.spec.guard;
        let mut shock = vec![0.0; upto];
        shock[0] = 1.0;
        for _ in 0..SHRINK_STEPS_MAX {
            let response = self.run(&[], &shock);
            if response[upto.saturating_sub(looked_at)..].iter().all(|v| v.abs() < RESPONSE_MAX) {
                return;
            }
            self.coefficients.iter_mut().for_each(|c| *c *= 0.97);
        }
        self.coefficients.fill(0.0);
    }

    /// The recursion continued behind `past` (the stationary series; empty: rest) over the disturbances `u`: one value
    /// for each of them.
    pub fn run(&self, past: &[f64], u: &[f64]) -> Vec<f64> {
        let pad = self.spec.burn_in() + 2;
        let rest = past.len() < pad;
        let n = if rest { pad + past.len() } else { past.len() };
        let mut q = vec![0.0; n + u.len()];
        q[n - past.len()..n].copy_from_slice(past);
        let mut curves: Vec<(Profile, Vec<f64>)> = Vec::new();
        let mut curve_of = Vec::with_capacity(self.spec.profiles.len());
        for profile in &self.spec.profiles {
            let found = curves.iter().position(|(p, _)| p.same_curve(profile));
            curve_of.push(found.unwrap_or_else(|| {
                let mut s =
                    if rest { Vec::new() } else { smoothed_profile(past, profile.cycle, profile.weight) };
                s.resize(n + profile.cycle + u.len(), 0.0);
                curves.push((*profile, s));
                curves.len() - 1
            }));
        }
        let (phi, beta) = self.coefficients.split_at(self.spec.lags.len());
        for t in n..n + u.len() {
            let mut value = u[t - n];
            for (lag, phi) in self.spec.lags.iter().zip(phi) {
                value += phi * q[t - lag];
            }
            for ((profile, curve), beta) in self.spec.profiles.iter().zip(&curve_of).zip(beta) {
                value += beta * curves[*curve].1[t.saturating_add_signed(-profile.shift)];
            }
            q[t] = value;
            for (profile, s) in &mut curves {
                s[t + profile.cycle] = profile.weight * value + (1.0 - profile.weight) * s[t];
            }
        }
        q.split_off(n)
    }
}

/// The distinct profile curves of a specification over a series.
struct Curves(Vec<(Profile, Vec<f64>)>);

impl Curves {
    fn of(spec: &SeasonalSpec, r: &[f64]) -> Self {
        let mut curves: Vec<(Profile, Vec<f64>)> = Vec::new();
        for profile in &spec.profiles {
            if !curves.iter().any(|(p, _)| p.same_curve(profile)) {
                curves.push((*profile, smoothed_profile(r, profile.cycle, profile.weight)));
            }
        }
        Self(curves)
    }

    /// The regressors, each a slice of the series or of a curve: row 0 belongs to value `burn_in` of the series.
    fn columns<'a>(&'a self, spec: &SeasonalSpec, r: &'a [f64]) -> Vec<&'a [f64]> {
        let (m, n) = (spec.burn_in(), r.len());
        let mut columns: Vec<&[f64]> = spec.lags.iter().map(|k| &r[m - k..n - k]).collect();
        for profile in &spec.profiles {
            let curve = self.0.iter().find(|(p, _)| p.same_curve(profile)).map_or(&[][..], |(_, s)| s);
            let at = m.saturating_add_signed(-profile.shift);
            columns.push(&curve[at..at + n - m]);
        }
        columns
    }
}

/// `.5^(age / half_life)`, scaled to mean 1; newest last.
fn age_weights(n: usize, half_life: Option<f64>) -> Vec<f64> {
    let Some(half_life) = half_life else { return vec![1.0; n] };
    let step = (-(1.0 / half_life)).exp2();
    let mut weight = 1.0;
    let mut weights: Vec<f64> = (0..n)
        .map(|_| {
            let now = weight;
            weight *= step;
            now
        })
        .collect();
    weights.reverse();
    let scale = 1.0 / mean(&weights).max(1e-300);
    weights.iter_mut().for_each(|w| *w *= scale);
    weights
}

/// `(X'WX + ridge I)^{-1} X'W y`.
fn weighted_ridge(
    columns: &[&[f64]],
    y: &[f64],
    weights: &[f64],
    ridge: f64,
) -> Result<Vec<f64>, ForecastError> {
    let p = columns.len();
    let mut normal = Array2::<f64>::zeros((p, p));
    let mut right = Array1::<f64>::zeros(p);
    let mut weighted = vec![0.0; y.len()];
    for i in 0..p {
        for ((out, x), w) in weighted.iter_mut().zip(columns[i]).zip(weights) {
            *out = x * w;
        }
        right[i] = dot(&weighted, y);
        for j in 0..=i {
            let v = dot(&weighted, columns[j]);
            normal[[i, j]] = v;
            normal[[j, i]] = v;
        }
        normal[[i, i]] += ridge;
    }
    let factor = cholesky(&normal).map_err(|column| ForecastError::Collinear { column })?;
    Ok(cholesky_solve(&factor, &right).to_vec())
}

fn residuals(columns: &[&[f64]], y: &[f64], coefficients: &[f64]) -> Vec<f64> {
    let mut u = y.to_vec();
    for (column, c) in columns.iter().zip(coefficients) {
        for (u, x) in u.iter_mut().zip(*column) {
            *u -= c * x;
        }
    }
    u
}

/// `weight min(1, clip 1.4826 median|e| / |e|)`.
fn huber_weights(
    columns: &[&[f64]],
    y: &[f64],
    coefficients: &[f64],
    weights: &[f64],
    clip: f64,
) -> Vec<f64> {
    let sizes: Vec<f64> = residuals(columns, y, coefficients).iter().map(|e| e.abs()).collect();
    let limit = clip * (1.4826 * median(&mut sizes.clone()) + 1e-12);
    sizes.iter().zip(weights).map(|(e, w)| w * (limit / e.max(1e-12)).min(1.0)).collect()
}
