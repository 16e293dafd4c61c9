//! Spectra: taper, periodogram, smoothing window, choice of its width, and the plans and buffers they reuse.
//!
//! Conventions. `X_j = sum_t x_t exp(-i w_j t)`, `w_j = 2 pi j / N`. The periodogram of T values under a taper w,
//! zero-padded to N, is `I_j = |sum_t w_t x_t exp(-i w_j t)|^2 / (2 pi sum w^2)`; it is even in j, so only the ordinates
//! 0..=N/2 are kept (a *half* spectrum). Sources: Koopmans, *The Spectral Analysis of Time Series* (1974), p. 235-237;
//! the width by cross-validated Whittle likelihood is Hurvich (1985) in the form of Beltrao and Bloomfield (1987).

use std::collections::HashMap;
use std::f64::consts::PI;
use std::sync::Arc;

use realfft::num_complex::Complex64;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};

/// Transform lengths whose plans are kept at the same time; when one more is asked for, all are dropped and planned
/// anew as needed (a plan costs some tens of microseconds).
pub const FFT_PLANS_MAX: usize = 256;
/// Tapers kept at the same time, dropped alike.
pub const TAPERS_MAX: usize = 64;
/// What no smoothed ordinate may fall below: logarithms follow.
const ORDINATE_MIN: f64 = 1e-300;

/// Plans and buffers for everything that transforms; one for each thread, kept between series.
///
/// A fresh one gives the same numbers as a used one, only slower.
pub struct Workspace {
    planner: RealFftPlanner<f64>,
    plans: HashMap<usize, Plan>,
    tapers: HashMap<(usize, Taper), Arc<TaperWeights>>,
    scratch: Vec<Complex64>,
    pub(crate) real: Vec<f64>,
    pub(crate) half: Vec<Complex64>,
    pub(crate) half_b: Vec<Complex64>,
    extended: Vec<f64>,
}

#[derive(Clone)]
struct Plan {
    forward: Arc<dyn RealToComplex<f64>>,
    inverse: Arc<dyn ComplexToReal<f64>>,
}

impl Default for Workspace {
    fn default() -> Self {
        Self::new()
    }
}

impl Workspace {
    /// An empty workspace.
    pub fn new() -> Self {
        Self {
            planner: RealFftPlanner::new(),
            plans: HashMap::new(),
            tapers: HashMap::new(),
            scratch: Vec::new(),
            real: Vec::new(),
            half: Vec::new(),
            half_b: Vec::new(),
            extended: Vec::new(),
        }
    }

    fn plan(&mut self, n: usize) -> Plan {
        if let Some(plan) = self.plans.get(&n) {
            return plan.clone();
        }
        if self.plans.len() >= FFT_PLANS_MAX {
            self.plans.clear();
            self.planner = RealFftPlanner::new();
        }
        let plan =
            Plan { forward: self.planner.plan_fft_forward(n), inverse: self.planner.plan_fft_inverse(n) };
        self.plans.insert(n, plan.clone());
        plan
    }

    /// The half spectrum (n/2 + 1 ordinates) of `self.real[..n]`, which it destroys, into `out`.
    pub(crate) fn forward_into(&mut self, n: usize, out: &mut Vec<Complex64>) {
        let plan = self.plan(n);
        self.real.resize(n, 0.0);
        out.resize(n / 2 + 1, Complex64::default());
        let need = plan.forward.get_scratch_len();
        if self.scratch.len() < need {
            self.scratch.resize(need, Complex64::default());
        }
        // The lengths agree by construction, which is the only thing the transform can object to.
        let done = plan.forward.process_with_scratch(&mut self.real, out, &mut self.scratch[..need]);
        debug_assert!(done.is_ok(), "forward transform of {n}");
    }

    /// The n real values whose half spectrum is `spectrum` (destroyed), into `self.real`, divided by n.
    pub(crate) fn inverse_of(&mut self, n: usize, spectrum: &mut Vec<Complex64>) {
        let plan = self.plan(n);
        self.real.resize(n, 0.0);
        spectrum.resize(n / 2 + 1, Complex64::default());
        spectrum[0].im = 0.0;
        if n.is_multiple_of(2) {
            spectrum[n / 2].im = 0.0;
        }
        let need = plan.inverse.get_scratch_len();
        if self.scratch.len() < need {
            self.scratch.resize(need, Complex64::default());
        }
        let done = plan.inverse.process_with_scratch(spectrum, &mut self.real, &mut self.scratch[..need]);
        debug_assert!(done.is_ok(), "inverse transform of {n}");
        let scale = 1.0 / n as f64;
        self.real.iter_mut().for_each(|v| *v *= scale);
    }

    /// The taper of `kind` for `periods` values, made once.
    pub fn taper(&mut self, kind: Taper, periods: usize) -> Arc<TaperWeights> {
        if let Some(taper) = self.tapers.get(&(periods, kind)) {
            return taper.clone();
        }
        if self.tapers.len() >= TAPERS_MAX {
            self.tapers.clear();
        }
        let taper = Arc::new(TaperWeights::new(kind.weights(periods)));
        self.tapers.insert((periods, kind), taper.clone());
        taper
    }

    /// Half periodogram (n/2 + 1 ordinates) of `y` under `taper` (same length), padded with zeros to `n >= y.len()`.
    pub fn periodogram(&mut self, y: &[f64], n: usize, taper: &TaperWeights) -> Vec<f64> {
        let n = n.max(y.len()).max(1);
        self.real.clear();
        self.real.extend(y.iter().zip(&taper.weights).map(|(y, w)| y * w));
        self.real.resize(n, 0.0);
        let mut half = std::mem::take(&mut self.half);
        self.forward_into(n, &mut half);
        let scale = 1.0 / (2.0 * PI * taper.sum_of_squares);
        let power = half.iter().map(|c| c.norm_sqr() * scale).collect();
        self.half = half;
        power
    }

    /// Circular smoothing of the half spectrum `power` of `n` ordinates by `window`, into `out` (again a half
    /// spectrum); the centre of the window is left out, and the rest scaled up, where `leave_centre_out`.
    pub fn smooth_into(
        &mut self,
        power: &[f64],
        n: usize,
        window: Window,
        leave_centre_out: bool,
        out: &mut Vec<f64>,
    ) {
        let half_width = window.half_width().min(n.saturating_sub(1) / 2);
        let kept = power.len();
        // The circle laid out straight: half_width + 1 ordinates before ordinate 0 and after the last kept one.
        let pad = half_width + 1;
        let ext = &mut self.extended;
        ext.clear();
        ext.extend((0..pad).rev().map(|k| power[mirror(n, n - (k + 1) % n)]));
        ext.extend_from_slice(power);
        ext.extend((0..pad).map(|k| power[mirror(n, kept + k)]));
        out.clear();
        window.shape.convolve(ext, pad, half_width, kept, out);
        let centre = if leave_centre_out { window.shape.height(0, half_width) } else { 0.0 };
        let scale = 1.0 / (window.shape.total(half_width) - centre);
        for (f, p) in out.iter_mut().zip(power) {
            *f = ((*f - centre * p) * scale).max(ORDINATE_MIN);
        }
    }

    /// The width out of `widths` (in unpadded ordinates, odd) with the least leave-one-out Whittle criterion
    /// `sum_{1<=j<T/2} [ln f_{-j} + I_j / f_{-j}]`, `f_{-j}` = the smoothed periodogram without its own ordinate.
    /// Widths above T/4 are passed over; `None` where all are. `floor` is added to what no ordinate falls below
    /// (1e-12 of the mean ordinate).
    pub fn choose_width(
        &mut self,
        y: &[f64],
        widths: &[usize],
        shape: WindowShape,
        taper: &TaperWeights,
        floor: f64,
    ) -> Option<usize> {
        let t = y.len();
        if !widths.iter().any(|w| *w <= t / 4 && *w > 1) {
            return None;
        }
        let mut power = self.periodogram(y, t, taper);
        power[0] = power[1]; // the mean was removed: ordinate 0 carries no information
        let least = 1e-12 * circle_mean(&power, t) + floor;
        power.iter_mut().for_each(|p| *p = p.max(least));
        let mut smoothed = Vec::with_capacity(power.len());
        let mut best: Option<(f64, usize)> = None;
        for &width in widths.iter().filter(|w| **w <= t / 4 && **w > 1) {
            self.smooth_into(&power, t, Window::new(shape, width), true, &mut smoothed);
            let q = whittle(&smoothed[1..t / 2], &power[1..t / 2]);
            if best.is_none_or(|(least, _)| q < least) {
                best = Some((q, width));
            }
        }
        best.map(|(_, width)| width)
    }
}

/// `sum_j [ln f_j + I_j / f_j]`; products of ordinates share a logarithm as long as they stay in range.
fn whittle(f: &[f64], power: &[f64]) -> f64 {
    let ratios: f64 = f.iter().zip(power).map(|(f, p)| p / f).sum();
    let mut logs = 0.0;
    let mut product = 1.0f64;
    for &f in f {
        let next = product * f;
        if (1e-200..1e200).contains(&next) {
            product = next;
        } else {
            logs += product.ln() + f.ln();
            product = 1.0;
        }
    }
    logs + product.ln() + ratios
}

/// Position in a half spectrum of circular ordinate `j` of `n`.
fn mirror(n: usize, j: usize) -> usize {
    let j = j % n;
    j.min(n - j)
}

/// Mean over the full circle of a half spectrum of `n` ordinates.
pub fn circle_mean(half: &[f64], n: usize) -> f64 {
    let sum: f64 = half.iter().sum();
    let ends = if n.is_multiple_of(2) { half[0] + half[half.len() - 1] } else { half[0] };
    (2.0 * sum - ends) / n as f64
}

/// The least power of two that is not below `n`.
pub fn power_of_two(n: usize) -> usize {
    n.max(1).next_power_of_two()
}

/// Weights that let a series rise and fall gently at its ends, so that strong cycles leak less into their neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Taper {
    /// All ones.
    None,
    /// Straight lines over `percent` % of the series at each end.
    Trapezoid {
        /// Share of the series at each end, per cent.
        percent: u8,
    },
    /// Cosine bells over `percent` % of the series at each end.
    Cosine {
        /// Share of the series at each end, per cent.
        percent: u8,
    },
}

impl Taper {
    /// The weights for `periods` values.
    pub fn weights(self, periods: usize) -> Vec<f64> {
        let mut w = vec![1.0; periods];
        let percent = match self {
            Taper::None => return w,
            Taper::Trapezoid { percent } | Taper::Cosine { percent } => f64::from(percent.min(50)),
        };
        // At least one value at each end, never more than half of them.
        let m = ((percent / 100.0 * periods as f64).round_ties_even() as usize).max(1).min(periods / 2);
        for k in 0..m {
            let x = (k as f64 + 0.5) / m as f64;
            let rise = if matches!(self, Taper::Cosine { .. }) { 0.5 * (1.0 - (PI * x).cos()) } else { x };
            w[k] = rise;
            w[periods - 1 - k] = rise;
        }
        w
    }
}

/// A taper's weights with the sums that scale by it.
#[derive(Debug, Clone, PartialEq)]
pub struct TaperWeights {
    weights: Vec<f64>,
    sum_of_squares: f64,
    kappa: f64,
}

impl TaperWeights {
    fn new(weights: Vec<f64>) -> Self {
        let squares: f64 = weights.iter().map(|w| w * w).sum();
        let fourths: f64 = weights.iter().map(|w| w.powi(4)).sum();
        let kappa = weights.len() as f64 * fourths / (squares * squares).max(ORDINATE_MIN);
        Self { weights, sum_of_squares: squares.max(ORDINATE_MIN), kappa }
    }

    /// The weights, one a period.
    pub fn weights(&self) -> &[f64] {
        &self.weights
    }
    /// `T sum w^4 / (sum w^2)^2`: by how much tapering thins the degrees of freedom.
    pub fn kappa(&self) -> f64 {
        self.kappa
    }
}

/// Shape of a smoothing window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WindowShape {
    /// Equal weights.
    Flat,
    /// Weights falling in straight lines from the centre.
    Tent,
    /// `1 - (k/(h+1))^2`.
    Quadratic,
}

impl WindowShape {
    /// Weight, before scaling, `k` ordinates off the centre of a window of 2 `half_width` + 1 ordinates.
    fn height(self, k: usize, half_width: usize) -> f64 {
        let (k, full) = (k as f64, half_width as f64 + 1.0);
        match self {
            WindowShape::Flat => 1.0,
            WindowShape::Tent => full - k,
            WindowShape::Quadratic => 1.0 - (k / full).powi(2),
        }
    }

    fn total(self, half_width: usize) -> f64 {
        let full = half_width as f64 + 1.0;
        match self {
            WindowShape::Flat => 2.0 * full - 1.0,
            WindowShape::Tent => full * full,
            WindowShape::Quadratic => {
                1.0 + 2.0 * (1..=half_width).map(|k| self.height(k, half_width)).sum::<f64>()
            }
        }
    }

    /// Unscaled sums over the window around the `kept` ordinates of `ext` that begin at `pad`.
    ///
    /// Flat and tent windows run as sliding sums (the tent is a flat window slid over itself), so their cost does not
    /// depend on the width.
    fn convolve(self, ext: &[f64], pad: usize, h: usize, kept: usize, out: &mut Vec<f64>) {
        match self {
            WindowShape::Flat => {
                let mut sum: f64 = ext[pad - h..=pad + h].iter().sum();
                for j in pad..pad + kept {
                    out.push(sum);
                    sum += ext.get(j + h + 1).copied().unwrap_or(0.0) - ext[j - h];
                }
            }
            WindowShape::Tent => {
                let mut sum = 0.0;
                for k in 0..=h {
                    let pair = if k == 0 { ext[pad] } else { ext[pad - k] + ext[pad + k] };
                    sum += self.height(k, h) * pair;
                }
                // Moving one ordinate on adds the right-hand run of h+1 ordinates and drops the left-hand one.
                let mut right: f64 = ext[pad + 1..=pad + h + 1].iter().sum();
                let mut left: f64 = ext[pad - h..=pad].iter().sum();
                for j in pad..pad + kept {
                    out.push(sum);
                    sum += right - left;
                    right +=
                        ext.get(j + h + 2).copied().unwrap_or(0.0) - ext.get(j + 1).copied().unwrap_or(0.0);
                    left += ext.get(j + 1).copied().unwrap_or(0.0) - ext[j - h];
                }
            }
            WindowShape::Quadratic => {
                let weights: Vec<f64> = (0..=h).map(|k| self.height(k, h)).collect();
                for j in pad..pad + kept {
                    let sides: f64 = (1..=h).map(|k| weights[k] * (ext[j - k] + ext[j + k])).sum();
                    out.push(ext[j] + sides);
                }
            }
        }
    }
}

/// A smoothing window: a shape and an odd width in ordinates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Window {
    shape: WindowShape,
    width: usize,
}

impl Window {
    /// A window of `width` ordinates, made odd by adding one where it is even.
    pub fn new(shape: WindowShape, width: usize) -> Self {
        Self { shape, width: width | 1 }
    }
    /// The flat window of the RATS manual: .75 sqrt(N) ordinates, rounded up to odd.
    pub fn default_for(n: usize) -> Self {
        Self::new(WindowShape::Flat, (0.75 * (n as f64).sqrt()).ceil() as usize)
    }
    /// Ordinates in the window (odd).
    pub fn width(self) -> usize {
        self.width
    }
    fn half_width(self) -> usize {
        self.width / 2
    }
    /// The weights, scaled to sum 1.
    pub fn weights(self) -> Vec<f64> {
        let h = self.half_width();
        let total = self.shape.total(h);
        (0..self.width).map(|k| self.shape.height(k.abs_diff(h), h) / total).collect()
    }
    /// Equivalent degrees of freedom of a periodogram of `periods` tapered values, padded to `n`, smoothed by this
    /// window: `nu = 2/(sum v^2) (T/N) / kappa`, at least 2.
    pub fn degrees_of_freedom(self, n: usize, periods: usize, taper: &TaperWeights) -> f64 {
        let squares: f64 = self.weights().iter().map(|v| v * v).sum();
        (2.0 / squares * periods as f64 / n as f64 / taper.kappa).max(2.0)
    }
}

/// `E ln(f_hat / f) = psi(nu/2) - ln(nu/2)`: by how much the logarithm of an estimate with `nu` degrees of freedom
/// falls short.
pub fn log_bias(nu: f64) -> f64 {
    statrs::function::gamma::digamma(nu / 2.0) - (nu / 2.0).ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The window laid around every ordinate of the full circle, term by term.
    fn directly(power: &[f64], n: usize, window: Window, leave_centre_out: bool) -> Vec<f64> {
        let h = window.half_width();
        let mut weights = window.weights();
        if leave_centre_out {
            weights[h] = 0.0;
        }
        let total: f64 = weights.iter().sum();
        let at = |j: usize| power[mirror(n, j)];
        (0..power.len())
            .map(|j| weights.iter().enumerate().map(|(k, v)| v * at(j + n - h + k)).sum::<f64>() / total)
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn sliding_sums_smooth_like_the_window_term_by_term(
            power in prop::collection::vec(0.0..1e3f64, 4..200),
            odd in any::<bool>(),
            half_width in 1usize..60,
            shape in prop::sample::select(vec![WindowShape::Flat, WindowShape::Tent, WindowShape::Quadratic]),
            leave_centre_out in any::<bool>(),
        ) {
            let n = 2 * (power.len() - 1) + usize::from(odd);
            let window = Window::new(shape, 2 * half_width.min((n - 1) / 2).max(1) + 1);
            let mut out = Vec::new();
            Workspace::new().smooth_into(&power, n, window, leave_centre_out, &mut out);
            for (ours, direct) in out.iter().zip(directly(&power, n, window, leave_centre_out)) {
                prop_assert!((ours - direct).abs() <= 1e-9 * 1e3, "{ours} {direct}");
            }
        }
    }

    #[test]
    fn plans_and_tapers_are_bounded() {
        let mut ws = Workspace::new();
        for n in 8..FFT_PLANS_MAX + TAPERS_MAX + 40 {
            let taper = ws.taper(Taper::Cosine { percent: 10 }, n);
            ws.periodogram(&vec![1.0; n], n, &taper);
        }
        assert!(ws.plans.len() <= FFT_PLANS_MAX && ws.tapers.len() <= TAPERS_MAX);
        assert_eq!(Taper::Cosine { percent: 10 }.weights(0), Vec::<f64>::new());
        assert_eq!(Taper::Trapezoid { percent: 200 }.weights(3), [0.5, 1.0, 0.5]);
    }

    #[test]
    fn a_cycle_chooses_a_narrow_window_and_noise_a_wide_one() {
        let mut ws = Workspace::new();
        let widths = [5, 15, 31, 61];
        let turn = |t: usize| (2.0 * PI * t as f64 / 24.0).sin();
        let noise = |t: usize| ((t * t * 7919 + t * 104_729) % 1009) as f64 / 1009.0 - 0.5;
        let taper = ws.taper(Taper::Cosine { percent: 10 }, 600);
        let mut choose = |y: &[f64]| ws.choose_width(y, &widths, WindowShape::Tent, &taper, 0.0);
        assert_eq!(choose(&(0..600).map(|t| 20.0 * turn(t) + noise(t)).collect::<Vec<_>>()), Some(5));
        assert!(choose(&(0..600).map(noise).collect::<Vec<_>>()) >= Some(31));
        assert_eq!(choose(&[1.0; 19]), None);
    }
}
