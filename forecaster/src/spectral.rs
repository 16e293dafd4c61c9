//! Spectral forecasting: a stationary series is forecast from nothing but its smoothed spectrum.
//!
//! A spectral density f with `integral ln f > -inf` is that of a one-sided moving average of white noise,
//! `f(w) = s2/(2 pi) |C(e^{-iw})|^2`, `C(z) = 1 + c_1 z + ...` without a zero inside the unit circle (Kolmogorov,
//! Wiener). Taking logarithms turns the product `C(z) C(1/z)` into a sum, so the half of the cepstrum with positive
//! lags is ln C: with `d_k = (1/N) sum_j ln f_j e^{i w_j k}`,
//!
//! ```text
//! g_0 = 0, g_k = d_k (1 <= k < N/2), g_{N/2} = d_{N/2} / 2, else 0
//! C_j = exp(FFT g)_j     MA weights c = IFFT(C)     AR weights a = IFFT(1/C)     s2 = 2 pi exp(d_0)
//! ```
//!
//! `s2` is Kolmogorov's formula; for an estimate with nu degrees of freedom `E ln(f_hat/f) = psi(nu/2) - ln(nu/2)`, so it
//! is divided by the exponential of that. Innovations are `e_t = sum_k a_k u_{t-k}` with nothing before the series,
//! the forecast is `u_{T+h} = sum_{j>=h} c_j e_{T+h-j}`, its variance `s2 sum_{j<h} c_j^2`.
//!
//! Sources: Koopmans (1974) p. 235-237, and the RATS manual's pages on spectral forecasting (after J. Geweke).

use std::f64::consts::PI;

use realfft::num_complex::Complex64;

use crate::error::ForecastError;
use crate::linear::{dot, mean, variance};
use crate::spectrum::{Taper, Window, WindowShape, Workspace, circle_mean, log_bias, power_of_two};

/// Fewest values that a spectrum is estimated from.
pub const SPECTRAL_PERIODS_MIN: usize = 8;
/// Widths that the plain composition chooses from, in unpadded ordinates.
pub const PLAIN_WIDTHS: &[usize] = &[5, 9, 15, 21, 31, 45, 61, 91, 121];
/// Widths that the recommended forecaster chooses from, in unpadded ordinates.
pub const RECOMMENDED_WIDTHS: &[usize] = &[5, 15, 31, 61, 121];

/// How wide the smoothing window is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Width {
    /// .75 sqrt(N) padded ordinates, as in the RATS manual.
    Default,
    /// So many unpadded ordinates.
    Ordinates(usize),
    /// Chosen from these (unpadded ordinates) by leave-one-out Whittle; the first where the series is too short for
    /// any.
    ChosenFrom(Vec<usize>),
}

/// How a spectrum is estimated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpectralOptions {
    /// Taper of the series.
    pub taper: Taper,
    /// Shape of the smoothing window.
    pub shape: WindowShape,
    /// Width of the smoothing window.
    pub width: Width,
}

impl SpectralOptions {
    /// The RATS manual's defaults: trapezoid over a quarter at each end, flat window of the default width.
    pub fn rats() -> Self {
        Self { taper: Taper::Trapezoid { percent: 25 }, shape: WindowShape::Flat, width: Width::Default }
    }
    /// The plain composition: cosine over a tenth at each end, tent window of a chosen width.
    pub fn plain() -> Self {
        Self {
            taper: Taper::Cosine { percent: 10 },
            shape: WindowShape::Tent,
            width: Width::ChosenFrom(PLAIN_WIDTHS.to_vec()),
        }
    }
}

/// How the spectrum of an autoregression's residual is estimated: little is left in it, so its cepstrum is shrunk
/// towards that of white noise.
#[derive(Debug, Clone, PartialEq)]
pub struct ShrunkOptions {
    /// Widths to choose from, in unpadded ordinates.
    pub widths: &'static [usize],
    /// What is kept of a cepstral coefficient (0 = white noise, 1 = all).
    pub shrink: f64,
    /// Last cepstral lag kept.
    pub cut: usize,
    /// Parameters fitted before, charged to the innovation variance as `T/(T - parameters)`.
    pub parameters: usize,
}

impl ShrunkOptions {
    /// What the recommended forecaster uses: the cepstrum halved, cut after lag 40, 12 parameters charged.
    pub const RECOMMENDED: ShrunkOptions =
        ShrunkOptions { widths: RECOMMENDED_WIDTHS, shrink: 0.5, cut: 40, parameters: 12 };
}

/// A spectral density in its canonical factors.
#[derive(Debug, Clone, PartialEq)]
pub struct Factor {
    /// MA weights c_0 = 1, c_1, ... (half as many as ordinates).
    pub ma: Vec<f64>,
    /// AR weights a_0 = 1, a_1, ... (as many).
    pub ar: Vec<f64>,
    /// Innovation variance `2 pi exp(d_0)`.
    pub innovation_variance: f64,
}

impl Factor {
    /// Factors the half spectrum `density` (n/2 + 1 positive ordinates) of `n` (even) ordinates.
    ///
    /// # Errors
    /// [`ForecastError::LengthMismatch`] where `density` is not n/2 + 1 long or n is odd or below 2,
    /// [`ForecastError::NotFinite`] for an ordinate that is not positive and finite.
    pub fn of(density: &[f64], n: usize, ws: &mut Workspace) -> Result<Self, ForecastError> {
        if n < 2 || !n.is_multiple_of(2) || density.len() != n / 2 + 1 {
            let (left, right) = (density.len(), n / 2 + 1);
            return Err(ForecastError::LengthMismatch {
                what: "half spectrum and n/2 + 1 of an even n",
                left,
                right,
            });
        }
        if let Some(index) = density.iter().position(|f| !(f.is_finite() && *f > 0.0)) {
            return Err(ForecastError::NotFinite { index });
        }
        cepstrum_into_real(density, n, ws);
        let d0 = ws.real[0];
        ws.real[0] = 0.0;
        ws.real[n / 2] *= 0.5;
        ws.real[n / 2 + 1..].fill(0.0);
        let (ma, ar) = factors_of_cepstrum(n, ws);
        Ok(Self { ma, ar, innovation_variance: 2.0 * PI * d0.exp() })
    }
}

/// Cepstrum d_0..d_{n-1} of a half spectrum, into `ws.real`.
fn cepstrum_into_real(density: &[f64], n: usize, ws: &mut Workspace) {
    let mut half = std::mem::take(&mut ws.half);
    half.clear();
    half.extend(density.iter().map(|f| Complex64::new(f.ln(), 0.0)));
    ws.inverse_of(n, &mut half);
    ws.half = half;
}

/// MA and AR weights (n/2 each) from the one-sided cepstrum in `ws.real`.
fn factors_of_cepstrum(n: usize, ws: &mut Workspace) -> (Vec<f64>, Vec<f64>) {
    let (mut transfer, mut inverse) = (std::mem::take(&mut ws.half), std::mem::take(&mut ws.half_b));
    ws.forward_into(n, &mut transfer);
    inverse.clear();
    for c in &mut transfer {
        let (size, (sin, cos)) = (c.re.exp(), c.im.sin_cos());
        *c = Complex64::new(size * cos, size * sin);
        inverse.push(Complex64::new(cos / size, -sin / size));
    }
    ws.inverse_of(n, &mut transfer);
    let ma = ws.real[..n / 2].to_vec();
    ws.inverse_of(n, &mut inverse);
    let ar = ws.real[..n / 2].to_vec();
    (ws.half, ws.half_b) = (transfer, inverse);
    (ma, ar)
}

/// The fitted spectrum of a series with mean zero, ready to forecast it.
#[derive(Debug, Clone, PartialEq)]
pub struct SpectralModel {
    /// MA weights c_0 = 1, c_1, ...
    pub ma: Vec<f64>,
    /// AR weights a_0 = 1, a_1, ...
    pub ar: Vec<f64>,
    /// Variance of the innovations.
    pub innovation_variance: f64,
    /// Width of the smoothing window: padded ordinates.
    pub window_ordinates: usize,
    /// Width of the smoothing window in unpadded ordinates, where it was given or chosen so.
    pub width: Option<usize>,
    /// Degrees of freedom of the smoothed spectrum.
    pub degrees_of_freedom: f64,
    /// Ordinates after padding.
    pub padded: usize,
}

impl SpectralModel {
    /// Fits the spectrum of `y` (oldest first, mean removed, no gaps).
    ///
    /// # Errors
    /// [`ForecastError::TooShort`] below [`SPECTRAL_PERIODS_MIN`] values.
    pub fn fit(y: &[f64], options: &SpectralOptions, ws: &mut Workspace) -> Result<Self, ForecastError> {
        check_periods(y)?;
        let taper = ws.taper(options.taper, y.len());
        let width = match &options.width {
            Width::Default => None,
            Width::Ordinates(width) => Some(*width),
            Width::ChosenFrom(widths) => {
                ws.choose_width(y, widths, options.shape, &taper, 0.0).or(widths.first().copied())
            }
        };
        let n = 2 * power_of_two(y.len());
        let window = match width {
            None => Window::default_for(n),
            Some(width) => padded_window(options.shape, width, n, y.len()),
        };
        let density = smoothed_density(y, n, window, &taper, 0.0, ws);
        let factor = Factor::of(&density, n, ws)?;
        let nu = window.degrees_of_freedom(n, y.len(), &taper);
        Ok(Self {
            ma: factor.ma,
            ar: factor.ar,
            innovation_variance: factor.innovation_variance * (-log_bias(nu)).exp(),
            window_ordinates: window.width(),
            width,
            degrees_of_freedom: nu,
            padded: n,
        })
    }

    /// Fits the spectrum of an autoregression's residual `u`, shrunk towards white noise; also gives the innovations,
    /// whose mean square (with the parameters charged) is the innovation variance.
    ///
    /// # Errors
    /// [`ForecastError::TooShort`] below [`SPECTRAL_PERIODS_MIN`] values.
    pub fn fit_shrunk(
        u: &[f64],
        options: &ShrunkOptions,
        ws: &mut Workspace,
    ) -> Result<(Self, Vec<f64>), ForecastError> {
        check_periods(u)?;
        let t = u.len();
        let taper = ws.taper(Taper::Cosine { percent: 10 }, t);
        let spread = variance(u) + 1e-300;
        let shape = WindowShape::Tent;
        let width = ws.choose_width(u, options.widths, shape, &taper, 1e-12 * spread);
        let width = width.or(options.widths.first().copied()).unwrap_or(1);
        let n = 2 * power_of_two(t);
        let window = padded_window(shape, width, n, t);
        let density = smoothed_density(u, n, window, &taper, 1e-14 * spread, ws);
        cepstrum_into_real(&density, n, ws);
        let cut = options.cut.min(n / 2 - 1);
        ws.real[0] = 0.0;
        ws.real[1..=cut].iter_mut().for_each(|d| *d *= options.shrink);
        ws.real[cut + 1..].fill(0.0);
        let (ma, ar) = factors_of_cepstrum(n, ws);
        let e = innovations(&ar, u, ws);
        let charged = t.saturating_sub(options.parameters).max(1);
        let squares: Vec<f64> = e.iter().map(|e| e * e).collect();
        let model = Self {
            ma,
            ar,
            innovation_variance: mean(&squares) * t as f64 / charged as f64,
            window_ordinates: window.width(),
            width: Some(width),
            degrees_of_freedom: window.degrees_of_freedom(n, t, &taper),
            padded: n,
        };
        Ok((model, e))
    }

    /// `e_t = sum_k a_k y_{t-k}`, one for each value of `y`.
    pub fn innovations(&self, y: &[f64], ws: &mut Workspace) -> Vec<f64> {
        innovations(&self.ar, y, ws)
    }

    /// Forecasts 1..=`horizon` periods ahead, given the innovations so far: `sum_{j>=h} c_j e_{T+h-j}`.
    pub fn forecast(&self, innovations: &[f64], horizon: usize) -> Vec<f64> {
        let newest_first: Vec<f64> = innovations.iter().rev().copied().collect();
        (1..=horizon).map(|h| self.ma.get(h..).map_or(0.0, |c| dot(c, &newest_first))).collect()
    }

    /// Standard deviations of the forecast errors 1..=`horizon` periods ahead; `differences` are the lags at which
    /// the series had been differenced, whose inversion adds to them.
    pub fn deviations(&self, horizon: usize, differences: &[usize]) -> Vec<f64> {
        let mut psi = self.ma_weights(horizon);
        for &lag in differences.iter().filter(|lag| **lag > 0) {
            for k in lag..horizon {
                psi[k] += psi[k - lag];
            }
        }
        deviations(&psi, self.innovation_variance)
    }

    /// The first `horizon` MA weights, zeros where there are no more.
    pub fn ma_weights(&self, horizon: usize) -> Vec<f64> {
        let mut c: Vec<f64> = self.ma.iter().copied().take(horizon).collect();
        c.resize(horizon, 0.0);
        c
    }
}

/// `sqrt(variance sum_{j<h} psi_j^2)` for h = 1..=psi.len().
pub(crate) fn deviations(psi: &[f64], variance: f64) -> Vec<f64> {
    let mut sum = 0.0;
    psi.iter()
        .map(|p| {
            sum += p * p;
            (variance * sum).sqrt()
        })
        .collect()
}

fn check_periods(y: &[f64]) -> Result<(), ForecastError> {
    if y.len() < SPECTRAL_PERIODS_MIN {
        let (what, have, need) = ("a spectrum", y.len(), SPECTRAL_PERIODS_MIN);
        return Err(ForecastError::TooShort { what, have, need });
    }
    match y.iter().position(|v| !v.is_finite()) {
        Some(index) => Err(ForecastError::NotFinite { index }),
        None => Ok(()),
    }
}

/// A window of `width` unpadded ordinates on the padded scale.
fn padded_window(shape: WindowShape, width: usize, n: usize, t: usize) -> Window {
    Window::new(shape, (width as f64 * n as f64 / t as f64).round_ties_even() as usize)
}

/// Smoothed half spectrum; the ordinates below N/T take the next one's value before (the mean had been removed), and
/// none is below 1e-10 of the mean plus `floor`.
fn smoothed_density(
    y: &[f64],
    n: usize,
    window: Window,
    taper: &crate::spectrum::TaperWeights,
    floor: f64,
    ws: &mut Workspace,
) -> Vec<f64> {
    let mut power = ws.periodogram(y, n, taper);
    let k = (n / y.len()).max(1);
    let next = power[k];
    power[..k].fill(next);
    let mut density = Vec::with_capacity(power.len());
    ws.smooth_into(&power, n, window, false, &mut density);
    let least = (1e-10 * circle_mean(&density, n) + floor).max(1e-300);
    density.iter_mut().for_each(|f| *f = f.max(least));
    density
}

/// `e_t = sum_k a_k u_{t-k}` by transforms long enough not to wrap.
pub(crate) fn innovations(ar: &[f64], u: &[f64], ws: &mut Workspace) -> Vec<f64> {
    let n = power_of_two(2 * u.len());
    let (mut left, mut right) = (std::mem::take(&mut ws.half), std::mem::take(&mut ws.half_b));
    ws.real.clear();
    ws.real.extend_from_slice(u);
    ws.forward_into(n, &mut left);
    ws.real.clear();
    ws.real.extend_from_slice(&ar[..ar.len().min(u.len())]);
    ws.forward_into(n, &mut right);
    left.iter_mut().zip(&right).for_each(|(l, r)| *l *= r);
    ws.inverse_of(n, &mut left);
    let e = ws.real[..u.len()].to_vec();
    (ws.half, ws.half_b) = (left, right);
    e
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_each_others_inverse_and_give_the_spectrum_back() {
        let n = 512;
        let density: Vec<f64> = (0..=n / 2)
            .map(|j| 2.0 * PI * j as f64 / n as f64)
            .map(|w| 3.0 / (1.3 - w.cos()) + 0.1 * (1.0 + (3.0 * w).cos()))
            .collect();
        let mut ws = Workspace::new();
        let factor = Factor::of(&density, n, &mut ws).unwrap();
        for k in 0..n / 4 {
            let product: f64 = (0..=k).map(|j| factor.ma[j] * factor.ar[k - j]).sum();
            assert!((product - f64::from(u8::from(k == 0))).abs() < 1e-9, "lag {k}: {product}");
        }
        assert!(Factor::of(&density, n + 2, &mut ws).is_err());
        assert_eq!(Factor::of(&[1.0, 0.0], 2, &mut ws), Err(ForecastError::NotFinite { index: 1 }));
    }

    #[test]
    fn refuses_what_has_no_spectrum() {
        let mut ws = Workspace::new();
        let short = SpectralModel::fit(&[1.0; 7], &SpectralOptions::plain(), &mut ws);
        assert!(matches!(short, Err(ForecastError::TooShort { have: 7, need: 8, .. })));
        let broken = SpectralModel::fit_shrunk(&[f64::NAN; 9], &ShrunkOptions::RECOMMENDED, &mut ws);
        assert_eq!(broken.unwrap_err(), ForecastError::NotFinite { index: 0 });
        let (flat, e) = SpectralModel::fit_shrunk(&[0.0; 40], &ShrunkOptions::RECOMMENDED, &mut ws).unwrap();
        assert_eq!(flat.forecast(&e, 3), [0.0; 3]);
        assert_eq!(flat.deviations(3, &[1]), [0.0; 3]);
    }
}
