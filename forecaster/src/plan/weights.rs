//! Weights of the default rule: what the stores are worth, by their response curves.

use super::curve::LoadCurve;

/// Weights of the stores `of`, in proportion to what each carries at one and the same response time if every file is as
/// hot as every other: that at which they carry `total` requests a period together, but at least e^`log_ms_min`
/// milliseconds. A plex that is idle even at its largest total would otherwise give its slower stores nothing. They sum to
/// the number of these stores; all others have 0. `None` where a curve is unknown.
pub fn carrying_weights(
    total: f64,
    log_ms_min: f64,
    curves: &[Option<LoadCurve>],
    of: &[usize],
) -> Option<Vec<f64>> {
    let open: Vec<&LoadCurve> =
        of.iter().map(|s| curves.get(*s).and_then(Option::as_ref)).collect::<Option<_>>()?;
    if open.is_empty() || !(total > 0.0 && total.is_finite()) {
        return None;
    }
    let carried = |log_ms: f64| -> f64 { open.iter().map(|c| c.load_at(log_ms, 1)).sum() };
    let unloaded = open.iter().map(|c| c.log_response(0.0, 1)).fold(f64::INFINITY, f64::min);
    let alone = open.iter().map(|c| c.log_response(total, 1)).fold(f64::NEG_INFINITY, f64::max);
    let (mut low, mut high) = (unloaded, alone);
    for _ in 0..50 {
        let middle = 0.5 * (low + high);
        if carried(middle) < total { low = middle } else { high = middle }
    }
    let level = high.max(log_ms_min);
    let loads: Vec<f64> = open.iter().map(|c| c.load_at(level, 1)).collect();
    let sum: f64 = loads.iter().sum();
    if !(sum > 0.0 && sum.is_finite()) {
        return None;
    }
    let mut weights = vec![0.0; curves.len()];
    for (store, load) in of.iter().zip(&loads) {
        weights[*store] = load / sum * of.len() as f64;
    }
    Some(weights)
}

/// One step from the weights in force to those wanted: the whole way, or as far as no weight is multiplied or divided by more
/// than `factor`. Both are above 0 respectively at least 0, and have the same sum, which the step keeps. A weight above 0 stays
/// above 0.
pub(crate) fn step_towards(now: &[f64], wanted: &[f64], factor: f64) -> Vec<f64> {
    let part = |(now, wanted): (&f64, &f64)| {
        let room = if wanted > now { (factor - 1.0) * now } else { (1.0 - factor.recip()) * now };
        let way = (wanted - now).abs();
        if way > room { room / way } else { 1.0 }
    };
    let part = now.iter().zip(wanted).map(part).fold(1.0, f64::min);
    now.iter().zip(wanted).map(|(now, wanted)| now + part * (wanted - now)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_step_goes_the_whole_way_or_as_far_as_its_factor() {
        let near = step_towards(&[1.0, 1.0], &[0.8, 1.2], 1.5);
        assert_eq!(near, [0.8, 1.2]);
        let far = step_towards(&[1.0, 1.0], &[0.1, 1.9], 1.5);
        assert!((far[0] - 2.0 / 3.0).abs() < 1e-12 && (far[1] - 4.0 / 3.0).abs() < 1e-12, "{far:?}");
        let up = step_towards(&[0.1, 1.9], &[1.0, 1.0], 1.5);
        assert!((up[0] - 0.15).abs() < 1e-12 && (up[1] - 1.85).abs() < 1e-12, "{up:?}");
    }

    proptest! {
        #[test]
        fn steps_keep_the_sum_and_the_bounds_and_arrive(
            pairs in proptest::collection::vec((0.01..100.0_f64, 0.0..100.0_f64), 1..9),
            factor in 1.05..4.0_f64,
        ) {
            let sum: f64 = pairs.iter().map(|p| p.0).sum();
            let other: f64 = pairs.iter().map(|p| p.1).sum();
            prop_assume!(other > 0.0);
            let now: Vec<f64> = pairs.iter().map(|p| p.0).collect();
            let wanted: Vec<f64> = pairs.iter().map(|p| p.1 * sum / other).collect();
            let mut at = now.clone();
            for _ in 0..3 {
                let next = step_towards(&at, &wanted, factor);
                prop_assert!((next.iter().sum::<f64>() / sum - 1.0).abs() < 1e-9);
                for ((next, at), wanted) in next.iter().zip(&at).zip(&wanted) {
                    prop_assert!(*next > 0.0 && next / at <= factor * 1.000_001 && at / next <= factor * 1.000_001);
                    prop_assert!((next - wanted).abs() <= (at - wanted).abs() * 1.000_001 + 1e-12);
                }
                at = next;
            }
        }
    }
}
