//! How far response times scatter about the fit, by load: a store near saturation scatters more than an idle one, and a model
//! that has seen a day of overload must not call every quiet hour uncertain for it.

use crate::linear::mean;

/// Width of the kernel, in ln of the load.
const WIDTH: f64 = 0.25;
/// What all residuals together count as, in periods.
const PRIOR: f64 = 4.0;
/// Limits of the factor.
const FACTOR: (f64, f64) = (0.3, 1.5);
/// Loads tabulated.
const POINTS: usize = 33;

/// The standard deviation of residuals at a load, as a multiple of that of all.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Scatter {
    /// ln of the first load tabulated, and from one to the next.
    first: f64,
    step: f64,
    /// Empty: it is 1 at every load.
    factors: Vec<f64>,
}

impl Scatter {
    /// Of residuals (log scale) seen at loads above zero, one each.
    pub(super) fn of(residuals: &[f64], loads: &[f64]) -> Self {
        let seen: Vec<(f64, f64)> = loads
            .iter()
            .zip(residuals)
            .filter(|(load, _)| **load > 0.0)
            .map(|(l, u)| (l.ln(), u * u))
            .collect();
        let all = mean(&seen.iter().map(|s| s.1).collect::<Vec<_>>());
        let low = seen.iter().map(|s| s.0).fold(f64::INFINITY, f64::min);
        let high = seen.iter().map(|s| s.0).fold(f64::NEG_INFINITY, f64::max);
        if !(all > 0.0 && all.is_finite() && low <= high) {
            return Self::default();
        }
        let step = ((high - low) / (POINTS - 1) as f64).max(1e-6);
        let at = |place: usize| {
            let centre = low + step * place as f64;
            let (mut squares, mut weights) = (PRIOR * all, PRIOR);
            for (load, square) in &seen {
                let away = (load - centre) / WIDTH;
                let weight = (-0.5 * away * away).exp();
                squares += weight * square;
                weights += weight;
            }
            (squares / weights / all).sqrt().clamp(FACTOR.0, FACTOR.1)
        };
        Self { first: low, step, factors: (0..POINTS).map(at).collect() }
    }

    /// The factor at a load; beyond the loads seen that of the nearest.
    pub(super) fn at(&self, load: f64) -> f64 {
        let Some(last) = self.factors.len().checked_sub(1) else { return 1.0 };
        let place = (load.max(f64::MIN_POSITIVE).ln() - self.first) / self.step;
        if place.is_nan() || place <= 0.0 {
            return self.factors[0];
        }
        if place >= last as f64 {
            return self.factors[last];
        }
        let k = place as usize;
        self.factors[k] + (place - k as f64) * (self.factors[k + 1] - self.factors[k])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_scatters_at_high_loads_says_little_of_low_ones() {
        let loads: Vec<f64> = (0..200).map(|t| if t % 4 == 0 { 900.0 } else { 100.0 }).collect();
        let sign = |t: usize| if t % 8 < 4 { 1.0 } else { -1.0 };
        let residuals: Vec<f64> =
            loads.iter().enumerate().map(|(t, l)| sign(t) * if *l > 500.0 { 0.4 } else { 0.05 }).collect();
        let scatter = Scatter::of(&residuals, &loads);
        // All: sqrt(.25 .16 + .75 .0025) = .2046.
        assert!((scatter.at(100.0) * 0.2046 - 0.05).abs() < 0.02, "{}", scatter.at(100.0));
        assert_eq!(scatter.at(900.0), FACTOR.1);
        assert_eq!(scatter.at(0.0), scatter.at(100.0));
        assert_eq!(scatter.at(f64::NAN), scatter.at(100.0));
        assert_eq!(scatter.at(1e9), scatter.at(900.0));
        // Few periods, or none, or no residuals at all.
        assert!((Scatter::of(&[0.1], &[5.0]).at(5.0) - 1.0).abs() < 1e-9);
        assert_eq!(Scatter::of(&[], &[]).at(5.0), 1.0);
        assert_eq!(Scatter::of(&[0.0; 3], &[5.0; 3]).at(5.0), 1.0);
    }
}
