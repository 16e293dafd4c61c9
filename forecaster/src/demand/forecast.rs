//! A forecast of counts: median, mean and quantiles, all finite and at least zero.

use statrs::distribution::{ContinuousCDF, Gamma, Normal};

use super::plain::Transform;
use crate::error::ForecastError;
use crate::series::VALUE_MAX;

/// Largest count that is forecast: a little above the largest value taken.
pub const COUNT_FORECAST_MAX: f64 = 4.0 * VALUE_MAX;
/// Mean up to which the quantiles of a negative binomial are found count by count.
const NEGATIVE_BINOMIAL_STEPPED_MEAN_MAX: f64 = 2000.0;
/// Counts stepped through at most.
const NEGATIVE_BINOMIAL_STEPS_MAX: f64 = 1e6;

/// What is added to a count before its fourth root is taken.
pub(super) const OFFSET: f64 = 0.375;

/// The fourth root that makes the spread of counts about even: `(x + 3/8)^(1/4)`.
pub(super) fn fourth_root(x: f64) -> f64 {
    (x + OFFSET).sqrt().sqrt()
}

/// What the quantiles of a forecast follow.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Shape {
    /// Symmetric on the fourth-root scale: part Student's t with 4 degrees of freedom, the rest normal.
    FourthRoot { t_weight: f64 },
    /// Normal on the plain method's scale.
    Plain(Transform),
    /// Exactly the centre, on the scale of the counts.
    Exact,
    /// Negative binomial with the centre as its mean, and variance `mu + k mu^2`.
    NegativeBinomial { k: f64 },
    /// The average of two forecasts, quantile by quantile.
    Average(Box<(DemandForecast, DemandForecast)>),
}

/// Forecasts for consecutive periods, the first one ahead first.
#[derive(Debug, Clone, PartialEq)]
pub struct DemandForecast {
    centre: Vec<f64>,
    deviation: Vec<f64>,
    shape: Shape,
    median: Vec<f64>,
    mean: Vec<f64>,
}

impl DemandForecast {
    pub(super) fn new(centre: Vec<f64>, deviation: Vec<f64>, shape: Shape) -> Self {
        let mut forecast = Self { centre, deviation, shape, median: Vec::new(), mean: Vec::new() };
        forecast.median = forecast.quantile_unchecked(0.5);
        forecast.mean = forecast.mean_of_shape();
        forecast
    }

    /// A forecast that is certain.
    pub(crate) fn exact(value: f64, horizon: usize) -> Self {
        Self::new(vec![value; horizon], vec![0.0; horizon], Shape::Exact)
    }

    /// The average of two forecasts for the same periods (the shorter's), quantile by quantile.
    pub fn average(a: DemandForecast, b: DemandForecast) -> Self {
        let centre = halves(&a.mean, &b.mean);
        let deviation = halves(&a.deviation, &b.deviation);
        Self::new(centre, deviation, Shape::Average(Box::new((a, b))))
    }

    /// Forecasts for single periods joined to one; the shape of the first holds for all, except exact ones, which
    /// keep a deviation of zero on the fourth-root scale.
    pub(crate) fn joined(steps: &[DemandForecast]) -> Self {
        let shape =
            steps.iter().map(|s| &s.shape).find(|s| **s != Shape::Exact).unwrap_or(&Shape::Exact).clone();
        let exact_among_others = |s: &DemandForecast| s.shape == Shape::Exact && shape != Shape::Exact;
        let centre = |s: &DemandForecast| {
            if exact_among_others(s) { fourth_root(s.centre[0]) } else { s.centre[0] }
        };
        let mut joined = Self {
            centre: steps.iter().map(centre).collect(),
            deviation: steps.iter().map(|s| s.deviation[0]).collect(),
            median: steps.iter().map(|s| s.median[0]).collect(),
            mean: steps.iter().map(|s| s.mean[0]).collect(),
            shape: Shape::Exact,
        };
        joined.shape = shape;
        joined
    }

    /// Periods ahead.
    pub fn horizon(&self) -> usize {
        self.median.len()
    }
    /// Medians: the point forecast, counts a period.
    pub fn median(&self) -> &[f64] {
        &self.median
    }
    /// Means, counts a period: what adds up over files and periods.
    pub fn mean(&self) -> &[f64] {
        &self.mean
    }
    /// Centres on the scale that the forecaster works on.
    pub fn centre(&self) -> &[f64] {
        &self.centre
    }
    /// Standard deviations on the scale that the forecaster works on.
    pub fn deviation(&self) -> &[f64] {
        &self.deviation
    }
    /// Weight of Student's t against the normal in the quantiles, 0 to 1 (0 for forecasts of another shape).
    pub fn t_weight(&self) -> f64 {
        if let Shape::FourthRoot { t_weight } = self.shape { t_weight } else { 0.0 }
    }

    /// The quantile `level` of each period.
    ///
    /// # Errors
    /// [`ForecastError::LevelOutOfRange`] unless `0 < level < 1`.
    pub fn quantile(&self, level: f64) -> Result<Vec<f64>, ForecastError> {
        if !(level > 0.0 && level < 1.0) {
            return Err(ForecastError::LevelOutOfRange { level });
        }
        Ok(self.quantile_unchecked(level))
    }

    /// Lower and upper limits that hold a share `coverage` of the outcomes, the same share outside on both sides.
    ///
    /// # Errors
    /// [`ForecastError::LevelOutOfRange`] unless `0 < coverage < 1`.
    pub fn interval(&self, coverage: f64) -> Result<(Vec<f64>, Vec<f64>), ForecastError> {
        if !(coverage > 0.0 && coverage < 1.0) {
            return Err(ForecastError::LevelOutOfRange { level: coverage });
        }
        Ok((self.quantile(0.5 - 0.5 * coverage)?, self.quantile(0.5 + 0.5 * coverage)?))
    }

    fn quantile_unchecked(&self, level: f64) -> Vec<f64> {
        let scaled = self.centre.iter().zip(&self.deviation);
        match &self.shape {
            Shape::FourthRoot { t_weight } => {
                let z = mixed_quantile(level, *t_weight);
                scaled.map(|(f, sd)| fourth_root_inverse(f + z * sd)).collect()
            }
            Shape::Plain(transform) => {
                let z = normal_quantile(level);
                scaled.map(|(f, sd)| as_count(transform.invert(f + z * sd))).collect()
            }
            Shape::Exact => self.centre.clone(),
            Shape::NegativeBinomial { k } => self
                .centre
                .iter()
                .map(|mean| as_count(negative_binomial_quantile(*mean, *k, level)))
                .collect(),
            Shape::Average(both) => {
                halves(&both.0.quantile_unchecked(level), &both.1.quantile_unchecked(level))
            }
        }
    }

    fn mean_of_shape(&self) -> Vec<f64> {
        let scaled = self.centre.iter().zip(&self.deviation);
        match &self.shape {
            // E (f + sd z)^4 = f^4 + 6 f^2 sd^2 + 3 sd^4.
            Shape::FourthRoot { .. } => scaled
                .map(|(f, sd)| {
                    let v = sd * sd;
                    as_count(f.max(0.0).powi(4) + 6.0 * f * f * v + 3.0 * v * v - OFFSET)
                })
                .collect(),
            Shape::Plain(transform) => scaled.map(|(f, sd)| as_count(transform.mean(*f, *sd))).collect(),
            Shape::Exact | Shape::NegativeBinomial { .. } => self.centre.clone(),
            Shape::Average(both) => halves(&both.0.mean, &both.1.mean),
        }
    }

    /// Standard deviation on the log scale, for planners that add uncertainties as ratios: half the logarithm of the
    /// ratio between the quantiles one normal deviation up and down, each plus 1.
    pub fn log_deviation(&self) -> Vec<f64> {
        let (low, high) = (self.quantile_unchecked(0.158_655), self.quantile_unchecked(0.841_345));
        low.iter().zip(&high).map(|(low, high)| 0.5 * ((high + 1.0) / (low + 1.0)).ln()).collect()
    }
}

fn halves(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| 0.5 * a + 0.5 * b).collect()
}

/// A value as a count: at least zero, and finite whatever happened before.
fn as_count(x: f64) -> f64 {
    if x.is_nan() { 0.0 } else { x.clamp(0.0, COUNT_FORECAST_MAX) }
}

/// The count whose fourth root is `f`.
fn fourth_root_inverse(f: f64) -> f64 {
    as_count(f.max(0.0).powi(4) - OFFSET)
}

/// Standard normal quantile.
pub(crate) fn normal_quantile(level: f64) -> f64 {
    if level == 0.5 { 0.0 } else { Normal::standard().inverse_cdf(level) }
}

/// Quantile of Student's t with 4 degrees of freedom, scaled to the normal's at .975. Exact: with
/// `alpha = sqrt(4 p (1-p))`, `t = sign(p - 1/2) 2 sqrt(cos(arccos(alpha)/3)/alpha - 1)`.
pub(crate) fn t4_quantile(level: f64) -> f64 {
    let alpha = (4.0 * level * (1.0 - level)).sqrt();
    let size = ((alpha.acos() / 3.0).cos() / alpha - 1.0).max(0.0).sqrt();
    if level == 0.5 { 0.0 } else { (level - 0.5).signum() * 2.0 * size * 1.959_964 / 2.776_445_1 }
}

/// Part Student's t, part normal.
fn mixed_quantile(level: f64, t_weight: f64) -> f64 {
    t_weight * t4_quantile(level) + (1.0 - t_weight) * normal_quantile(level)
}

/// The least count whose distribution function reaches `level`, for a mean and a variance of `mean + k mean^2`
/// (`k = 0`: Poisson); by the recursion through the probabilities up to means of
/// [`NEGATIVE_BINOMIAL_STEPPED_MEAN_MAX`], above it the gamma distribution with these two moments.
pub(crate) fn negative_binomial_quantile(mean: f64, k: f64, level: f64) -> f64 {
    if mean.is_nan() || mean <= 0.0 {
        return 0.0;
    }
    let log_none = if k * mean > 1e-9 { -(k * mean).ln_1p() / k } else { -mean };
    if mean > NEGATIVE_BINOMIAL_STEPPED_MEAN_MAX || log_none < -600.0 {
        return gamma_quantile(mean, k, level);
    }
    let step = mean / (1.0 + k * mean);
    let (mut probability, mut below, mut count) = (log_none.exp(), 0.0, 0.0);
    while count < NEGATIVE_BINOMIAL_STEPS_MAX {
        below += probability;
        if below >= level {
            return count;
        }
        probability *= (1.0 + k * count) * step / (count + 1.0);
        count += 1.0;
    }
    count
}

fn gamma_quantile(mean: f64, k: f64, level: f64) -> f64 {
    let shape = mean / (1.0 + k * mean);
    if shape < 20.0
        && let Ok(gamma) = Gamma::new(shape, shape / mean)
    {
        return gamma.inverse_cdf(level);
    }
    // Wilson and Hilferty: the cube root of a gamma variable is close to normal.
    let ninth = 1.0 / (9.0 * shape);
    mean * (1.0 - ninth + normal_quantile(level) * ninth.sqrt()).max(0.0).powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_the_two_symmetric_parts_agree_at_their_scale() {
        assert!((t4_quantile(0.975) - 1.959_964).abs() < 1e-6);
        assert!((normal_quantile(0.975) - 1.959_964).abs() < 1e-6);
        assert_eq!((t4_quantile(0.5), normal_quantile(0.5)), (0.0, 0.0));
        assert!((t4_quantile(0.17) + t4_quantile(0.83)).abs() < 1e-12);
    }

    #[test]
    fn negative_binomial_quantiles_step_and_continue() {
        // Poisson with mean 1: P(0) = .368, P(<=1) = .736, P(<=2) = .920.
        let poisson = |p| negative_binomial_quantile(1.0, 0.0, p);
        assert_eq!((poisson(0.3), poisson(0.5), poisson(0.9), poisson(0.95)), (0.0, 1.0, 2.0, 3.0));
        // Geometric with mean 1 (k = 1): P(0) = 1/2, P(<=1) = 3/4, P(<=2) = 7/8.
        let geometric = |p| negative_binomial_quantile(1.0, 1.0, p);
        assert_eq!((geometric(0.49), geometric(0.7), geometric(0.8)), (0.0, 1.0, 2.0));
        for k in [0.0, 0.02, 0.5] {
            let (below, above) = (0.999, 1.001);
            let step = negative_binomial_quantile(NEGATIVE_BINOMIAL_STEPPED_MEAN_MAX * below, k, 0.8);
            let smooth = negative_binomial_quantile(NEGATIVE_BINOMIAL_STEPPED_MEAN_MAX * above, k, 0.8);
            assert!((smooth / step - 1.0).abs() < 0.01, "k {k}: {step} then {smooth}");
        }
        assert_eq!(negative_binomial_quantile(f64::NAN, 0.1, 0.5), 0.0);
    }

    #[test]
    fn nothing_leaves_the_range_of_counts() {
        let wild = DemandForecast::new(
            vec![-5.0, 1e90, 3.0],
            vec![1.0, 1e80, 0.0],
            Shape::FourthRoot { t_weight: 0.5 },
        );
        for p in [1e-12, 0.5, 1.0 - 1e-12] {
            assert!(wild.quantile(p).unwrap().iter().all(|q| (0.0..=COUNT_FORECAST_MAX).contains(q)));
        }
        assert!(wild.mean().iter().all(|m| m.is_finite() && *m >= 0.0));
        assert_eq!(wild.quantile(1.0), Err(ForecastError::LevelOutOfRange { level: 1.0 }));
        assert!(wild.interval(f64::NAN).is_err());
    }
}
