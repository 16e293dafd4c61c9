//! Response time of a store against its load, as the plan looks it up: a table on the log scale.

/// Loads in a table.
const POINTS: usize = 160;
/// Response times below this are taken as this, milliseconds.
const RESPONSE_MS_MIN: f64 = 1e-9;
/// Response times above this are taken as this, milliseconds.
const RESPONSE_MS_MAX: f64 = 1e12;

/// From so many times the unloaded response time on, it grows at least with the power [`SATURATED_SLOPE`] of the load.
const SATURATED: f64 = 4.0;
/// A model's response time ends at a cap, and a fast store's cap lies below a slow one's: to a plan that takes them as they
/// are, drowning the fast store would be the lesser evil. Beyond saturation it is the overload that counts.
const SATURATED_SLOPE: f64 = 8.0;

/// Response time of a store against its load in each period ahead: never falling, and above the last load of the table
/// rising with a power of the load.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadCurve {
    step: f64,
    /// ln of milliseconds at `k * step`, one table a period ahead.
    log: Vec<Vec<f64>>,
}

impl LoadCurve {
    /// Tabulates `response_ms(load, ahead)` (ahead from 1) over loads from 0 to `load_max` requests, for `aheads` periods
    /// ahead. Where it falls with the load, the higher value before holds; where it is no number, the cap.
    /// `None` unless `load_max` is above zero and finite.
    pub fn new(load_max: f64, aheads: usize, response_ms: impl Fn(f64, usize) -> f64) -> Option<Self> {
        Self::of_tables(load_max, |loads| {
            let ln = |load: &f64, ahead| {
                let ms: f64 = response_ms(*load, ahead);
                if ms < RESPONSE_MS_MIN { RESPONSE_MS_MIN.ln() } else { ms.ln() }
            };
            (1..=aheads.max(1)).map(|ahead| loads.iter().map(|load| ln(load, ahead)).collect()).collect()
        })
    }

    /// The same from ln of milliseconds at the loads given to `tables`, one table a period ahead.
    pub(crate) fn of_tables(load_max: f64, tables: impl FnOnce(&[f64]) -> Vec<Vec<f64>>) -> Option<Self> {
        if !(load_max > 0.0 && load_max.is_finite()) {
            return None;
        }
        let step = load_max / (POINTS - 1) as f64;
        let loads: Vec<f64> = (0..POINTS).map(|k| k as f64 * step).collect();
        let mut log = tables(&loads);
        let (floor, cap) = (RESPONSE_MS_MIN.ln(), RESPONSE_MS_MAX.ln());
        for table in &mut log {
            table.resize(POINTS, cap);
            let mut most = floor;
            let mut slow = f64::INFINITY;
            for (k, v) in table.iter_mut().enumerate() {
                let value = if v.is_nan() { cap } else { v.min(cap) };
                let least =
                    if most > slow { SATURATED_SLOPE * (k as f64 / (k as f64 - 1.0)).ln() } else { 0.0 };
                most = (most + least).max(value);
                if k == 0 {
                    slow = most + SATURATED.ln();
                }
                *v = most;
            }
        }
        (!log.is_empty()).then_some(Self { step, log })
    }

    /// ln of the response time in milliseconds at `load`, `ahead` periods ahead (beyond the last: the last).
    pub fn log_response(&self, load: f64, ahead: usize) -> f64 {
        let table = &self.log[ahead.clamp(1, self.log.len()) - 1];
        let place = load / self.step;
        if place.is_nan() || place <= 0.0 {
            return table[0];
        }
        let last = POINTS - 1;
        if place >= last as f64 {
            return table[last] + SATURATED_SLOPE * (place / last as f64).ln();
        }
        let k = place as usize;
        table[k] + (place - k as f64) * (table[k + 1] - table[k])
    }

    /// The largest load whose response time is at most e^`log_ms`; 0 where none is.
    pub fn load_at(&self, log_ms: f64, ahead: usize) -> f64 {
        let (mut low, mut high) = (0.0, self.step * (POINTS - 1) as f64);
        while self.log_response(high, ahead) <= log_ms && high < f64::MAX / 4.0 {
            (low, high) = (high, 2.0 * high);
        }
        for _ in 0..60 {
            let middle = 0.5 * (low + high);
            if self.log_response(middle, ahead) <= log_ms { low = middle } else { high = middle }
        }
        low
    }

    /// The same store slower or faster: all response times times e^`log_factor`.
    pub fn scaled(mut self, log_factor: f64) -> Self {
        if log_factor.is_finite() {
            self.log.iter_mut().flatten().for_each(|v| *v += log_factor);
        }
        self
    }

    /// Periods ahead.
    pub fn aheads(&self) -> usize {
        self.log.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_follows_its_function_and_goes_on_rising() {
        let curve = LoadCurve::new(159.0, 2, |load, ahead| ahead as f64 / (1.0 - load / 200.0)).unwrap();
        assert!((curve.log_response(100.5, 1).exp() - 1.0 / (1.0 - 100.5 / 200.0)).abs() < 1e-3);
        assert!(
            (curve.log_response(318.0, 2) - curve.log_response(159.0, 2) - SATURATED_SLOPE * 2f64.ln()).abs()
                < 1e-12
        );
        assert!((curve.load_at(2f64.ln(), 1) - 100.0).abs() < 0.1);
        assert_eq!(curve.load_at(0.5f64.ln(), 1), 0.0);
        assert!(LoadCurve::new(f64::NAN, 1, |_, _| 1.0).is_none());
        let wild = LoadCurve::new(10.0, 1, |load, _| if load > 5.0 { f64::NAN } else { -load }).unwrap();
        assert!((0..40).map(|k| wild.log_response(f64::from(k), 1)).is_sorted());
        assert!(wild.log_response(f64::NAN, 9).is_finite());
    }
}
