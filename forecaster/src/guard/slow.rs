//! How fast a store is against its model, at the load that it has: a factor on the time that it takes for one request.
//!
//! A store that takes f times as long for a request answers as its model says for f times the load, and f times as slowly.
//! Near saturation a few per cent on f are a multiple of the response time, so that f is what can be compared, and what
//! holds when files have moved.

use crate::plan::LoadCurve;

/// What a period keeps of ln f for the next one.
const KEPT: f64 = 0.8;
/// Largest size of ln f.
const LOG_MAX: f64 = 3.0;

/// What a store's response time says of its speed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Slowness {
    /// ln of the factor on the time for one request.
    pub(crate) log: f64,
    /// d ln (response time) / d ln f.
    pub(crate) elasticity: f64,
}

/// The factor that explains ln of a response time at a load, `log_median` being ln of the model's.
pub(crate) fn slowness(log_median: impl Fn(f64) -> f64, load: f64, log_response: f64) -> Option<Slowness> {
    let at = |log: f64| log + log_median(load * log.exp());
    if !(load > 0.0 && log_response.is_finite()) {
        return None;
    }
    let (mut low, mut high) = (-LOG_MAX, LOG_MAX);
    for _ in 0..40 {
        let middle = 0.5 * (low + high);
        if at(middle) < log_response { low = middle } else { high = middle }
    }
    let log = 0.5 * (low + high);
    // Over a tenth: models have corners.
    let elasticity = ((at(log + 0.05) - at(log - 0.05)) / 0.1).max(1.0);
    Some(Slowness { log, elasticity })
}

/// A store's curve when it takes e^`log` times as long for a request; of that, each further period ahead keeps a part.
pub(crate) fn slowed(curve: LoadCurve, load_max: f64, log: f64) -> Option<LoadCurve> {
    if log == 0.0 || !log.is_finite() {
        return Some(curve);
    }
    let table = |loads: &[f64], ahead: usize| {
        let log = log * KEPT.powi(i32::try_from(ahead - 1).unwrap_or(i32::MAX));
        loads.iter().map(|load| log + curve.log_response(load * log.exp(), ahead)).collect()
    };
    LoadCurve::of_tables(load_max, |loads| (1..=curve.aheads()).map(|ahead| table(loads, ahead)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_store_is_known_by_its_factor_at_any_load() {
        let model = |load: f64| (1.0 / (1.0 - (load / 100.0).min(0.99))).ln();
        for load in [10.0, 50.0, 60.0] {
            let truth = 1.5f64.ln() + model(1.5 * load);
            let found = slowness(model, load, truth).unwrap();
            assert!((found.log - 1.5f64.ln()).abs() < 1e-3, "{found:?}");
            assert!(found.elasticity >= 1.0);
        }
        assert!(slowness(model, 0.0, 1.0).is_none() && slowness(model, 1.0, f64::NAN).is_none());
        let curve = LoadCurve::new(150.0, 1, |load, _| model(load).exp()).unwrap();
        let slow = slowed(curve.clone(), 150.0, 1.5f64.ln()).unwrap();
        assert!((slow.log_response(40.0, 1) - 1.5f64.ln() - model(60.0)).abs() < 0.01);
        assert_eq!(slowed(curve.clone(), 150.0, 0.0), Some(curve));
    }
}
