//! ARMA(p, q) with differencing chosen by the data, for series without cycles.
//!
//! Hannan and Rissanen (1982): a long autoregression (order by AIC, Levinson-Durbin) estimates the innovations, then
//! `z_t` is regressed on p of its own lags and q lags of those; p, q <= 3 by BIC. Differences are taken, at most twice,
//! while the KPSS statistic rejects a stable level at 1 % (Kwiatkowski, Phillips, Schmidt, Shin 1992; long-run variance
//! with Bartlett weights over `12 (n/100)^(1/4)` lags). Coefficients whose polynomial has a zero inside the unit circle (the
//! step-down recursion tells) are pulled outwards, `phi_k *= .97^k`, until it has not.

use ndarray::{Array1, Array2};

use crate::error::ForecastError;
use crate::linear::{cholesky, cholesky_solve, dot, mean, variance};
use crate::series::HORIZON_PERIODS_MAX;
use crate::spectral::deviations;

/// Most AR and most MA coefficients tried.
const ORDER_MAX: usize = 3;
/// Most differences taken.
const DIFFERENCES_MAX: usize = 2;
/// KPSS statistic (stable level) above which another difference is taken: the 1 % point.
const KPSS_LIMIT: f64 = 0.739;
/// Fewest values an ARMA model is fitted to.
pub const ARMA_VALUES_MIN: usize = 20;

/// A fitted ARIMA(p, d, q) without drift; with a mean where d = 0.
#[derive(Debug, Clone, PartialEq)]
pub struct Arma {
    /// AR coefficients phi_1, phi_2, ...
    pub ar: Vec<f64>,
    /// MA coefficients theta_1, theta_2, ... (`z_t = sum phi z + e_t + sum theta e`).
    pub ma: Vec<f64>,
    /// Differences taken.
    pub differences: usize,
    /// Mean of the differenced series (0 where differences were taken).
    pub mean: f64,
    /// Variance of the innovations.
    pub innovation_variance: f64,
    /// The last values of the series and of each of its differences, lowest order first.
    ends: Vec<f64>,
    /// The latest centred values of the differenced series, oldest first.
    z: Vec<f64>,
    /// The latest innovations, oldest first.
    e: Vec<f64>,
}

impl Arma {
    /// Fits orders and coefficients to `y` (oldest first, no gaps).
    ///
    /// # Errors
    /// [`ForecastError::TooShort`] below [`ARMA_VALUES_MIN`] values, [`ForecastError::NotFinite`].
    pub fn fit(y: &[f64]) -> Result<Self, ForecastError> {
        if y.len() < ARMA_VALUES_MIN {
            let (what, have, need) = ("an ARMA model", y.len(), ARMA_VALUES_MIN);
            return Err(ForecastError::TooShort { what, have, need });
        }
        if let Some(index) = y.iter().position(|v| !v.is_finite()) {
            return Err(ForecastError::NotFinite { index });
        }
        let mut ends = Vec::new();
        let mut z = y.to_vec();
        while ends.len() < DIFFERENCES_MAX && kpss(&z) > KPSS_LIMIT {
            ends.extend(z.last());
            z = z.windows(2).map(|w| w[1] - w[0]).collect();
        }
        let mean = if ends.is_empty() { mean(&z) } else { 0.0 };
        z.iter_mut().for_each(|v| *v -= mean);
        let (ar, ma) = hannan_rissanen(&z);
        let (ar, ma) = (pulled_outwards(ar, 1.0), pulled_outwards(ma, -1.0));
        let mut model = Self {
            differences: ends.len(),
            ar,
            ma,
            mean,
            innovation_variance: 0.0,
            ends,
            z: Vec::new(),
            e: Vec::new(),
        };
        let mut squares = 0.0;
        for &value in &z {
            let e = model.step(value);
            squares += e * e;
        }
        let charged = z.len().saturating_sub(model.ar.len() + model.ma.len() + 1).max(1);
        model.innovation_variance = squares / charged as f64;
        Ok(model)
    }

    /// Takes the next centred value of the differenced series; gives its innovation.
    fn step(&mut self, value: f64) -> f64 {
        let e = value - self.expected();
        for (kept, new) in [(&mut self.z, value), (&mut self.e, e)] {
            if kept.len() == ORDER_MAX {
                kept.rotate_left(1);
                kept.pop();
            }
            kept.push(new);
        }
        e
    }

    fn expected(&self) -> f64 {
        let past = |coefficients: &[f64], values: &[f64]| -> f64 {
            coefficients.iter().zip(values.iter().rev()).map(|(c, v)| c * v).sum()
        };
        past(&self.ar, &self.z) + past(&self.ma, &self.e)
    }

    /// Takes the next value of the series; parameters stay.
    pub fn observe(&mut self, y: f64) {
        let mut value = y;
        for end in &mut self.ends {
            let difference = value - *end;
            *end = value;
            value = difference;
        }
        self.step(value - self.mean);
    }

    /// Forecasts and their standard deviations 1..=`horizon` periods ahead.
    ///
    /// # Errors
    /// [`ForecastError::HorizonTooLong`].
    pub fn forecast(&self, horizon: usize) -> Result<(Vec<f64>, Vec<f64>), ForecastError> {
        if horizon > HORIZON_PERIODS_MAX {
            return Err(ForecastError::HorizonTooLong { have: horizon, most: HORIZON_PERIODS_MAX });
        }
        let mut ahead = self.clone();
        let mut f = Vec::with_capacity(horizon);
        let mut psi = vec![0.0; horizon];
        for h in 0..horizon {
            let expected = ahead.expected();
            ahead.step(expected);
            f.push(expected + self.mean);
            let own = if h == 0 { 1.0 } else { self.ma.get(h - 1).copied().unwrap_or(0.0) };
            let past: f64 =
                self.ar.iter().enumerate().filter(|(k, _)| *k < h).map(|(k, c)| c * psi[h - 1 - k]).sum();
            psi[h] = own + past;
        }
        for &end in self.ends.iter().rev() {
            let (mut level, mut weight) = (end, 0.0);
            for (f, psi) in f.iter_mut().zip(&mut psi) {
                level += *f;
                *f = level;
                weight += *psi;
                *psi = weight;
            }
        }
        Ok((f, deviations(&psi, self.innovation_variance)))
    }
}

/// The KPSS statistic for a stable level.
fn kpss(y: &[f64]) -> f64 {
    let n = y.len() as f64;
    let m = mean(y);
    let x: Vec<f64> = y.iter().map(|v| v - m).collect();
    let lags = (12.0 * (n / 100.0).powf(0.25)) as usize;
    let mut long_run = dot(&x, &x);
    for k in 1..=lags.min(y.len().saturating_sub(1)) {
        long_run += 2.0 * (1.0 - k as f64 / (lags as f64 + 1.0)) * dot(&x[k..], &x);
    }
    let (mut sum, mut squares) = (0.0, 0.0);
    for v in &x {
        sum += v;
        squares += sum * sum;
    }
    if long_run > 0.0 { squares / (n * long_run) } else { 0.0 }
}

/// The coefficients of the long autoregression, order by AIC.
fn long_autoregression(z: &[f64]) -> Vec<f64> {
    let n = z.len();
    let most = ((10.0 * (n as f64).log10()) as usize).min(n / 4);
    let covariance: Vec<f64> = (0..=most).map(|k| dot(&z[k..], z) / n as f64).collect();
    let mut phi: Vec<f64> = Vec::new();
    let mut error = covariance[0];
    let mut best = (n as f64 * error.max(1e-300).ln(), Vec::new());
    for order in 1..=most {
        if error <= 1e-12 * covariance[0] {
            break;
        }
        let past: f64 = phi.iter().enumerate().map(|(k, c)| c * covariance[order - 1 - k]).sum();
        let reflection = (covariance[order] - past) / error;
        let mirrored: Vec<f64> = phi.iter().rev().copied().collect();
        phi.iter_mut().zip(&mirrored).for_each(|(c, m)| *c -= reflection * m);
        phi.push(reflection);
        error *= 1.0 - reflection * reflection;
        let aic = n as f64 * error.max(1e-300).ln() + 2.0 * order as f64;
        if aic < best.0 {
            best = (aic, phi.clone());
        }
    }
    best.1
}

/// AR and MA coefficients of the order with the least BIC.
fn hannan_rissanen(z: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let long = long_autoregression(z);
    let from = long.len() + ORDER_MAX;
    if z.len() < from + 2 * ORDER_MAX + 4 || variance(z) <= 0.0 {
        return (Vec::new(), Vec::new());
    }
    let mut e = vec![0.0; z.len()];
    for t in long.len()..z.len() {
        let past: f64 = long.iter().enumerate().map(|(k, c)| c * z[t - 1 - k]).sum();
        e[t] = z[t] - past;
    }
    let lagged = |x: &'_ [f64], k: usize| x[from - k..x.len() - k].to_vec();
    let y = &z[from..];
    let all: Vec<Vec<f64>> =
        (1..=ORDER_MAX).map(|k| lagged(z, k)).chain((1..=ORDER_MAX).map(|k| lagged(&e, k))).collect();
    let n = y.len() as f64;
    let mut best = (f64::INFINITY, Vec::new(), Vec::new());
    for p in 0..=ORDER_MAX {
        for q in 0..=ORDER_MAX {
            let columns: Vec<&[f64]> =
                all[..p].iter().chain(&all[ORDER_MAX..ORDER_MAX + q]).map(Vec::as_slice).collect();
            let Some((c, residual)) = regress(&columns, y) else { continue };
            let bic = n * (residual / n).max(1e-300).ln() + (p + q) as f64 * n.ln();
            if bic < best.0 {
                best = (bic, c[..p].to_vec(), c[p..].to_vec());
            }
        }
    }
    (best.1, best.2)
}

/// Least squares: coefficients and the residual sum of squares; `None` where the columns depend on each other.
fn regress(columns: &[&[f64]], y: &[f64]) -> Option<(Vec<f64>, f64)> {
    let p = columns.len();
    let normal = Array2::from_shape_fn((p, p), |(i, j)| dot(columns[i], columns[j]));
    let right = Array1::from_shape_fn(p, |i| dot(columns[i], y));
    let c = cholesky_solve(&cholesky(&normal).ok()?, &right);
    let residual = dot(y, y) - dot(&c.to_vec(), &right.to_vec());
    Some((c.to_vec(), residual.max(0.0)))
}

/// Coefficients of `1 - sign sum c_k z^k` with every zero outside the unit circle.
fn pulled_outwards(mut c: Vec<f64>, sign: f64) -> Vec<f64> {
    for _ in 0..1024 {
        if zeros_outside(&c, sign) {
            return c;
        }
        let mut pull = 1.0;
        for c in &mut c {
            pull *= 0.97;
            *c *= pull;
        }
    }
    vec![0.0; c.len()]
}

/// The step-down recursion: all reflection coefficients below .995 in size.
fn zeros_outside(c: &[f64], sign: f64) -> bool {
    let mut phi: Vec<f64> = c.iter().map(|c| sign * c).collect();
    while let Some(reflection) = phi.pop() {
        if reflection.is_nan() || reflection.abs() >= 0.995 {
            return false;
        }
        let mirrored: Vec<f64> = phi.iter().rev().copied().collect();
        let scale = 1.0 / (1.0 - reflection * reflection);
        phi.iter_mut().zip(&mirrored).for_each(|(a, m)| *a = (*a + reflection * m) * scale);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Normal-like noise without a generator to depend on: sums of a linear congruential sequence.
    fn noise(n: usize) -> Vec<f64> {
        let mut state = 20_030_101u64;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        (0..n).map(|_| (0..12).map(|_| uniform()).sum::<f64>() - 6.0).collect()
    }

    #[test]
    fn finds_an_arma_process_and_its_variance() {
        let e = noise(6000);
        let mut z = vec![0.0; 6000];
        for t in 1..6000 {
            z[t] = 0.7 * z[t - 1] + e[t] + 0.4 * e[t - 1];
        }
        let y: Vec<f64> = z.iter().map(|z| 10.0 + z).collect();
        let m = Arma::fit(&y).unwrap();
        assert_eq!(m.differences, 0);
        let (_, sd) = m.forecast(200).unwrap();
        assert!((sd[0] - 1.0).abs() < 0.04, "innovation deviation {}", sd[0]);
        // Var z = (1 + 2 phi theta + theta^2)/(1 - phi^2) = 3.373
        assert!((sd[199] / 3.373f64.sqrt() - 1.0).abs() < 0.08, "deviation of the series {}", sd[199]);
    }

    #[test]
    fn differences_a_random_walk_and_continues_from_its_end() {
        let mut level = 0.0;
        let mut y: Vec<f64> = noise(800)
            .iter()
            .map(|e| {
                level += e;
                level
            })
            .collect();
        let mut m = Arma::fit(&y).unwrap();
        assert_eq!(m.differences, 1);
        let (f, sd) = m.forecast(100).unwrap();
        assert!((f[99] - y[799]).abs() < 1.5, "{} from {}", f[99], y[799]);
        assert!((sd[99] / 10.0 - 1.0).abs() < 0.25, "{}", sd[99]);
        y.push(y[799] + 2.0);
        m.observe(y[800]);
        let (f, _) = m.forecast(1).unwrap();
        assert!((f[0] - y[800]).abs() < 1.0);
    }

    #[test]
    fn refuses_and_survives() {
        assert!(matches!(Arma::fit(&[1.0; 19]), Err(ForecastError::TooShort { .. })));
        assert_eq!(Arma::fit(&[f64::NAN; 30]), Err(ForecastError::NotFinite { index: 0 }));
        let (f, sd) = Arma::fit(&[4.0; 30]).unwrap().forecast(3).unwrap();
        assert_eq!((f, sd), (vec![4.0; 3], vec![0.0; 3]));
        let line: Vec<f64> = (0..60).map(f64::from).collect();
        let (f, sd) = Arma::fit(&line).unwrap().forecast(3).unwrap();
        assert!(f.iter().chain(&sd).all(|v| v.is_finite()));
    }
}
