//! Axes: from values to places, with ticks at round numbers.

/// Maps values to places between `from` and `to` (pixels; `from` is the bottom).
#[derive(Debug, Clone)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    log: bool,
    from: f64,
    to: f64,
    /// Round values within the range.
    pub(super) ticks: Vec<f64>,
}

impl Scale {
    /// From zero to a round number at or above `high`.
    pub(super) fn linear(high: f64, from: f64, to: f64) -> Self {
        let high = if high.is_finite() && high > 0.0 { high } else { 1.0 };
        let step = round_step(high / 5.0);
        let count = (high / step - 1e-9).ceil().max(1.0);
        let ticks = (0..=count as usize).map(|tick| tick as f64 * step).collect();
        Self { low: 0.0, high: count * step, log: false, from, to, ticks }
    }

    /// Logarithmic, between round numbers around `low` and `high` (both above zero).
    pub(super) fn log(low: f64, high: f64, from: f64, to: f64) -> Self {
        if !(low > 0.0 && high.is_finite() && low <= high) {
            return Self::linear(high, from, to);
        }
        let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
        let all: Vec<f64> =
            decades.flat_map(|decade| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(decade))).collect();
        let first = all.iter().rposition(|tick| *tick <= low * 1.000_001).unwrap_or(0);
        let last = all.iter().position(|tick| *tick >= high * 0.999_999).unwrap_or(all.len() - 1);
        let ticks = all.get(first..=last.max(first + 1)).unwrap_or(&all).to_vec();
        let (low, high) = (ticks.first().copied().unwrap_or(low), ticks.last().copied().unwrap_or(high));
        Self { low, high, log: true, from, to, ticks }
    }

    /// Whether equal steps are equal ratios.
    pub(super) fn is_log(&self) -> bool {
        self.log
    }

    /// The place of a value.
    pub(super) fn at(&self, value: f64) -> f64 {
        let part = if self.log {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + (self.to - self.from) * part
    }
}

/// The next of 1, 2, 2.5 and 5 times a power of ten.
pub(super) fn round_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let digit = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|digit| digit * power >= step * 0.999_999);
    digit.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(Scale::linear(43.0, 0.0, 1.0).ticks, [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]);
        assert_eq!(Scale::linear(100.0, 0.0, 1.0).ticks.last(), Some(&100.0));
        assert_eq!(Scale::log(3.0, 70.0, 0.0, 1.0).ticks, [2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        assert_eq!(Scale::linear(0.0, 0.0, 1.0).ticks.last(), Some(&1.0));
    }

    proptest! {
        #[test]
        fn every_value_has_a_place_on_the_axis(low in 1e-6f64..1e9, factor in 1.0f64..1e6, part in 0.0f64..=1.0) {
            let high = low * factor;
            let value = low + (high - low) * part;
            for scale in [Scale::linear(high, 300.0, 20.0), Scale::log(low, high, 300.0, 20.0)] {
                let at = scale.at(value);
                prop_assert!((19.9..=300.1).contains(&at), "{} at {}", value, at);
                prop_assert!((2..60).contains(&scale.ticks.len()), "{:?}", scale.ticks);
            }
        }
    }
}
