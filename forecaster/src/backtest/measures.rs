//! Measures of forecasts against what happened.
//!
//! sMAPE, MASE, MSIS and OWA are those of the M4 competition (Makridakis, Spiliotis, Assimakopoulos 2020); coverage is
//! the share of outcomes within two-sided limits, bias the mean of forecast minus outcome.

/// Periods with an outcome and a forecast.
fn pairs<'a>(actual: &'a [f64], forecast: &'a [f64]) -> impl Iterator<Item = (f64, f64)> + 'a {
    actual.iter().copied().zip(forecast.iter().copied()).filter(|(y, f)| !y.is_nan() && !f.is_nan())
}

fn mean_of(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, n) = values.fold((0.0, 0.0), |(sum, n), v| (sum + v, n + 1.0));
    sum / n
}

/// Symmetric mean absolute percentage error, per cent: mean of `200 |y - f| / (|y| + |f|)`, 0 where both are 0.
pub fn smape(actual: &[f64], forecast: &[f64]) -> f64 {
    mean_of(pairs(actual, forecast).map(|(y, f)| {
        let size = y.abs() + f.abs();
        if size > 0.0 { 200.0 * (y - f).abs() / size } else { 0.0 }
    }))
}

/// Mean absolute error.
pub fn mae(actual: &[f64], forecast: &[f64]) -> f64 {
    mean_of(pairs(actual, forecast).map(|(y, f)| (y - f).abs()))
}

/// Root of the mean squared error.
pub fn rmse(actual: &[f64], forecast: &[f64]) -> f64 {
    mean_of(pairs(actual, forecast).map(|(y, f)| (y - f).powi(2))).sqrt()
}

/// Mean of forecast minus outcome.
pub fn bias(actual: &[f64], forecast: &[f64]) -> f64 {
    mean_of(pairs(actual, forecast).map(|(y, f)| f - y))
}

/// What absolute errors are scaled by: the mean absolute difference at lag `season` within `history` (at lag 1 where
/// the history is not longer than that). NaN where there is no such difference or it is 0.
pub fn scale(history: &[f64], season: usize) -> f64 {
    let lag = if season > 0 && history.len() > season { season } else { 1 };
    let differences = history.iter().skip(lag).zip(history).filter(|(a, b)| !a.is_nan() && !b.is_nan());
    let scale = mean_of(differences.map(|(now, before)| (now - before).abs()));
    if scale > 0.0 { scale } else { f64::NAN }
}

/// Mean absolute scaled error; `scale` as [`scale`] gives it.
pub fn mase(actual: &[f64], forecast: &[f64], scale: f64) -> f64 {
    mae(actual, forecast) / scale
}

/// Overall weighted average: the mean of sMAPE and MASE, each relative to Naive2's.
pub fn owa(smape: f64, mase: f64, naive2_smape: f64, naive2_mase: f64) -> f64 {
    0.5 * (smape / naive2_smape + mase / naive2_mase)
}

/// Share of the outcomes within the limits.
pub fn coverage(actual: &[f64], lower: &[f64], upper: &[f64]) -> f64 {
    let inside = |((y, l), u): ((&f64, &f64), &f64)| if y >= l && y <= u { 1.0 } else { 0.0 };
    mean_of(actual.iter().zip(lower).zip(upper).filter(|((y, _), _)| !y.is_nan()).map(inside))
}

/// Mean scaled interval score for limits meant to hold a share `level` of the outcomes.
pub fn msis(actual: &[f64], lower: &[f64], upper: &[f64], level: f64, scale: f64) -> f64 {
    let penalty = 2.0 / (1.0 - level);
    let score = |((y, l), u): ((&f64, &f64), &f64)| u - l + penalty * ((l - y).max(0.0) + (y - u).max(0.0));
    mean_of(actual.iter().zip(lower).zip(upper).filter(|((y, _), _)| !y.is_nan()).map(score)) / scale
}

/// Pinball loss of a quantile forecast: `level` times what the outcome lies above it, `1 - level` times what below.
pub fn pinball(actual: &[f64], quantile: &[f64], level: f64) -> f64 {
    mean_of(
        pairs(actual, quantile).map(|(y, q)| if y >= q { level * (y - q) } else { (1.0 - level) * (q - y) }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_follow_their_definitions() {
        let (y, f) = ([2.0, 4.0, f64::NAN], [4.0, 4.0, 9.0]);
        assert!((smape(&y, &f) - 100.0 / 3.0).abs() < 1e-12);
        assert_eq!((mae(&y, &f), bias(&y, &f), rmse(&y, &f)), (1.0, 1.0, 2.0f64.sqrt()));
        assert_eq!(scale(&[1.0, 2.0, 3.0, 5.0], 2), 2.5);
        assert_eq!(scale(&[1.0, 3.0], 24), 2.0);
        assert!(scale(&[1.0, 1.0], 1).is_nan() && scale(&[], 1).is_nan());
        assert_eq!(owa(5.0, 2.0, 10.0, 4.0), 0.5);
        assert_eq!(coverage(&y, &[0.0, 5.0, 0.0], &[2.0, 6.0, 0.0]), 0.5);
        assert!((msis(&[4.0], &[5.0], &[6.0], 0.95, 2.0) - 20.5).abs() < 1e-9);
        assert_eq!(pinball(&[2.0, 0.0], &[1.0, 1.0], 0.75), 0.5);
        assert_eq!(smape(&[0.0], &[0.0]), 0.0);
    }
}
