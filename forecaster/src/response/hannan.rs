//! Hannan's efficient estimator: regression when the errors are stationary with an unknown spectrum.
//!
//! For `y = X beta + u`, generalised least squares needs the covariance of u; in the frequency domain that is its spectral
//! density, which the residuals of ordinary least squares estimate well enough (Hannan 1963: asymptotically as good as
//! knowing it). Steps, as in the RATS example HANNAN:
//!
//! 1. ordinary least squares, residuals u;
//! 2. N = 2 * pow2(T), zero-padded, no taper; periodogram of u; flat window of `.75 sqrt(N)` ordinates, odd;
//! 3. `g_j = 1/sqrt(f_j)`, real, scaled so that its lag-0 weight is 1;
//! 4. y and every column of X are filtered: transform, times g, back, the first T values kept;
//! 5. ordinary least squares on those; `V = s2 (X*'X*)^{-1}`, `s2 = RSS*/(T - p)`.
//!
//! A second pass, from the residuals of the first, helps where the errors are strongly cyclic.

use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis};

use crate::error::ForecastError;
use crate::linear::{cholesky, cholesky_inverse, cholesky_solve, dot};
use crate::spectrum::{Taper, Window, WindowShape, Workspace, circle_mean, power_of_two};

/// How the estimator works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HannanOptions {
    /// Times that the spectrum of the residuals is estimated and used, at least 1.
    pub passes: usize,
    /// Width of the flat window in unpadded ordinates; `None`: `.75 sqrt(N)` padded ones.
    pub width: Option<usize>,
}

impl Default for HannanOptions {
    fn default() -> Self {
        Self { passes: 1, width: None }
    }
}

/// The estimates of a regression.
#[derive(Debug, Clone, PartialEq)]
pub struct HannanFit {
    /// Coefficients, one a column of X.
    pub coefficients: Array1<f64>,
    /// Their covariance.
    pub covariance: Array2<f64>,
    /// Variance of the whitened residuals.
    pub variance: f64,
    /// Ordinary least squares' coefficients, to compare.
    pub least_squares: Array1<f64>,
    /// Residuals `y - X beta`, not whitened.
    pub residuals: Vec<f64>,
    /// Whitened residuals.
    pub whitened: Vec<f64>,
}

/// Regresses `y` (T values, oldest first) on the columns of `x` (T by p, a constant included if wanted).
///
/// # Errors
/// [`ForecastError::LengthMismatch`] where `x` has not T rows, [`ForecastError::TooShort`] unless T > p and T >= 4,
/// [`ForecastError::NotFinite`], [`ForecastError::Collinear`].
pub fn hannan(
    y: ArrayView1<'_, f64>,
    x: ArrayView2<'_, f64>,
    options: HannanOptions,
    ws: &mut Workspace,
) -> Result<HannanFit, ForecastError> {
    let (t, p) = x.dim();
    if y.len() != t {
        return Err(ForecastError::LengthMismatch {
            what: "responses and rows of regressors",
            left: y.len(),
            right: t,
        });
    }
    if t <= p || t < 4 {
        let need = (p + 1).max(4);
        return Err(ForecastError::TooShort { what: "Hannan's estimator", have: t, need });
    }
    let finite = |index: usize| y[index].is_finite() && x.row(index).iter().all(|v| v.is_finite());
    if let Some(index) = (0..t).find(|index| !finite(*index)) {
        return Err(ForecastError::NotFinite { index });
    }
    let y = y.to_vec();
    let columns: Vec<Vec<f64>> = x.axis_iter(Axis(1)).map(|c| c.to_vec()).collect();
    let (least_squares, _) = least_squares(&columns, &y)?;
    let mut residuals = residuals_of(&columns, &y, &least_squares);
    let mut last = None;
    for _ in 0..options.passes.max(1) {
        let filter = Whitening::of(&residuals, options.width, ws);
        let ys = filter.apply(&y, ws);
        let xs: Vec<Vec<f64>> = columns.iter().map(|c| filter.apply(c, ws)).collect();
        let (coefficients, inverse) = self::least_squares(&xs, &ys)?;
        let whitened = residuals_of(&xs, &ys, &coefficients);
        residuals = residuals_of(&columns, &y, &coefficients);
        last = Some((coefficients, inverse, whitened));
    }
    // The loop has run at least once.
    let (coefficients, inverse, whitened) =
        last.ok_or(ForecastError::TooShort { what: "Hannan's estimator", have: t, need: t })?;
    let variance = dot(&whitened, &whitened) / (t - p) as f64;
    Ok(HannanFit {
        covariance: inverse * variance,
        coefficients,
        variance,
        least_squares,
        residuals,
        whitened,
    })
}

/// The filter that makes residuals of a given spectrum white: real, symmetric in time, lag-0 weight 1.
pub(crate) struct Whitening {
    padded: usize,
    gain: Vec<f64>,
}

impl Whitening {
    /// From the spectrum of residuals `u`.
    pub(crate) fn of(u: &[f64], width: Option<usize>, ws: &mut Workspace) -> Self {
        let t = u.len();
        let padded = 2 * power_of_two(t);
        let taper = ws.taper(Taper::None, t);
        let power = ws.periodogram(u, padded, &taper);
        let window = match width {
            None => Window::default_for(padded),
            Some(width) => Window::new(
                WindowShape::Flat,
                (width as f64 * padded as f64 / t as f64).round_ties_even() as usize,
            ),
        };
        let mut density = Vec::new();
        ws.smooth_into(&power, padded, window, false, &mut density);
        let least = (1e-10 * circle_mean(&density, padded)).max(1e-300);
        let mut gain: Vec<f64> = density.iter().map(|f| 1.0 / f.max(least).sqrt()).collect();
        let scale = 1.0 / circle_mean(&gain, padded);
        gain.iter_mut().for_each(|g| *g *= scale);
        Self { padded, gain }
    }

    /// `z` (as long as the residuals) filtered.
    pub(crate) fn apply(&self, z: &[f64], ws: &mut Workspace) -> Vec<f64> {
        ws.real.clear();
        ws.real.extend_from_slice(z);
        let mut half = std::mem::take(&mut ws.half);
        ws.forward_into(self.padded, &mut half);
        half.iter_mut().zip(&self.gain).for_each(|(z, g)| *z *= *g);
        ws.inverse_of(self.padded, &mut half);
        ws.half = half;
        ws.real[..z.len()].to_vec()
    }
}

/// Coefficients, and the inverse of X'X; columns are brought to one size first.
fn least_squares(columns: &[Vec<f64>], y: &[f64]) -> Result<(Array1<f64>, Array2<f64>), ForecastError> {
    let p = columns.len();
    let size: Vec<f64> = columns.iter().map(|c| dot(c, c).sqrt()).collect();
    if let Some(column) = size.iter().position(|s| *s <= 0.0) {
        return Err(ForecastError::Collinear { column });
    }
    let normal = Array2::from_shape_fn((p, p), |(i, j)| dot(&columns[i], &columns[j]) / (size[i] * size[j]));
    let right = Array1::from_shape_fn(p, |i| dot(&columns[i], y) / size[i]);
    let factor = cholesky(&normal).map_err(|column| ForecastError::Collinear { column })?;
    let mut coefficients = cholesky_solve(&factor, &right);
    let mut inverse = cholesky_inverse(&factor);
    for i in 0..p {
        coefficients[i] /= size[i];
        for j in 0..p {
            inverse[[i, j]] /= size[i] * size[j];
        }
    }
    Ok((coefficients, inverse))
}

fn residuals_of(columns: &[Vec<f64>], y: &[f64], coefficients: &Array1<f64>) -> Vec<f64> {
    let mut u = y.to_vec();
    for (column, c) in columns.iter().zip(coefficients) {
        u.iter_mut().zip(column).for_each(|(u, x)| *u -= c * x);
    }
    u
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    #[test]
    fn an_exact_line_is_found_and_nonsense_refused() {
        let mut ws = Workspace::new();
        let x = Array2::from_shape_fn((40, 2), |(t, j)| if j == 0 { 1.0 } else { ((t * 7) % 11) as f64 });
        let y = x.dot(&array![2.0, -3.0]);
        let fit = hannan(y.view(), x.view(), HannanOptions::default(), &mut ws).unwrap();
        assert!((fit.coefficients - array![2.0, -3.0]).iter().all(|e| e.abs() < 1e-9));
        let twice = Array2::from_elem((40, 2), 1.0);
        let collinear = hannan(y.view(), twice.view(), HannanOptions::default(), &mut ws);
        assert_eq!(collinear.unwrap_err(), ForecastError::Collinear { column: 1 });
        assert!(hannan(y.view(), x.slice(ndarray::s![..30, ..]), HannanOptions::default(), &mut ws).is_err());
        let short =
            hannan(array![1.0, 2.0].view(), array![[1.0], [1.0]].view(), HannanOptions::default(), &mut ws);
        assert!(matches!(short, Err(ForecastError::TooShort { .. })));
    }
}
