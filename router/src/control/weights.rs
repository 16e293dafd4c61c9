//! Other weights of the default rule: what the controller asks for, as the plex takes it and people read it.

use super::decided::{StoreWeight, WeightsChanged};
use super::view::View;
use super::words::in_words;
use clockwork_forecaster::controller::WeightsChange;

/// Digits of a weight that count: what is kept, shown and in force is the same number.
const DIGITS: i32 = 4;

/// The plex with other weights, and the change in words. `None` where no table can be made of them.
pub(super) fn reweighed(view: &View, change: WeightsChange) -> Option<(View, WeightsChanged)> {
    let after: Vec<f64> = change.after.iter().copied().map(rounded).collect();
    let then = view
        .reweighed(&after)
        .inspect_err(|error| tracing::warn!(%error, "weights that were asked for make no table"))
        .ok()?;
    let stores = view.stores.iter().enumerate().map(|(index, store)| StoreWeight {
        store: store.name.to_string(),
        before: store.weight,
        after: after[index],
        wanted: rounded(change.wanted[index]),
    });
    let stores: Vec<StoreWeight> = stores.collect();
    let files_part = view.table.default_rule_differs(&then.table);
    let reason = reason(&change, &stores, files_part);
    Some((then, WeightsChanged { stores, files_part, dropped: 0, reason }))
}

/// A number to [`DIGITS`] digits.
fn rounded(weight: f64) -> f64 {
    if !(weight > 0.0 && weight.is_finite()) {
        return 0.0;
    }
    let unit = 10_f64.powi(DIGITS - 1 - weight.log10().floor() as i32);
    (weight * unit).round() / unit
}

fn reason(change: &WeightsChange, stores: &[StoreWeight], files_part: f64) -> String {
    let one = |of: &StoreWeight| format!("{} {} -> {}", of.store, of.before, of.after);
    let weights: Vec<String> = stores.iter().map(one).collect();
    let whole = stores.iter().all(|of| of.after == of.wanted);
    format!(
        "at {:.0} requests a period the slowest store would take {} ms by the default rule, by these weights {}; objective {:.2} \
         ms: {}; {:.1} % of the files follow{}",
        change.total,
        in_words(change.highest_ms.0, change.objective_ms),
        in_words(change.highest_ms.1, change.objective_ms),
        change.objective_ms,
        weights.join(", "),
        100.0 * files_part,
        if whole { "" } else { "; a step of several" }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_have_four_digits_and_stay_weights() {
        for (weight, to) in [(0.714_285_7, 0.7143), (1234.56, 1235.0), (0.001_234_56, 0.001_235), (1.0, 1.0)]
        {
            assert_eq!(rounded(weight), to);
        }
        assert_eq!((rounded(0.0), rounded(f64::NAN)), (0.0, 0.0));
        assert!(rounded(1e-300) > 0.0);
    }
}
