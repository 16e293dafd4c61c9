//! How wide intervals of response times have to be, as learnt from those reported before.
//!
//! What a model says of its own scatter, and forecasts of theirs, is right in the mean over many plexes and need not be on
//! one. So it is watched how often response times fell into the interval reported: with every one outside, the next are
//! reported a little wider, with every one inside a little narrower, such that as many are inside as the interval claims
//! (adaptive conformal inference, Gibbs and Candès 2021, on the log of the width). It needs no assumption about the
//! distribution, and forgets what is long ago. Plans use the widths as they were: what is safe is not settled by how
//! often the last hours were.

/// Part of response times that the interval claims.
const CLAIMED: f64 = 0.66;
/// How much the log of the width changes with one that is wholly unexpected.
const STEP: f64 = 0.03;
/// Limits of the log of the width.
const LOG_WIDTH: (f64, f64) = (-0.7, 0.7);

/// What the widths of intervals are multiplied by.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Calibration {
    log_width: f64,
}

impl Calibration {
    /// With this width; what cannot be one is 1.
    pub(super) fn of(width: f64) -> Self {
        let log_width = if width > 0.0 && width.is_finite() { width.ln() } else { 0.0 };
        Self { log_width: log_width.clamp(LOG_WIDTH.0, LOG_WIDTH.1) }
    }

    /// Takes whether a response time was in the interval reported for it.
    pub(super) fn take(&mut self, inside: bool) {
        let off = if inside { CLAIMED - 1.0 } else { CLAIMED };
        self.log_width = (self.log_width + STEP * off).clamp(LOG_WIDTH.0, LOG_WIDTH.1);
    }

    pub(super) fn width(&self) -> f64 {
        self.log_width.exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;
    use rand_distr::{Distribution, StandardNormal};

    /// Part inside of the last half of so many scores, whose deviation is `deviation` of what is claimed.
    fn inside(calibration: &mut Calibration, deviation: f64, scores: usize) -> f64 {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let mut counted = 0.0;
        for n in 0..scores {
            let normal: f64 = StandardNormal.sample(&mut rng);
            let inside = (deviation * normal).abs() <= 0.954 * calibration.width();
            calibration.take(inside);
            counted += f64::from(u8::from(inside && 2 * n >= scores));
        }
        counted / (scores as f64 / 2.0)
    }

    #[test]
    fn as_many_are_inside_as_is_claimed_whatever_the_model_says() {
        let mut calibration = Calibration::default();
        for deviation in [1.0, 0.7, 1.5, 1.0] {
            let part = inside(&mut calibration, deviation, 1_000);
            assert!((part - CLAIMED).abs() < 0.04, "{deviation}: {part}");
            assert!((calibration.width() / deviation - 1.0).abs() < 0.25, "{deviation}: {calibration:?}");
        }
    }

    #[test]
    fn the_width_has_limits() {
        let mut calibration = Calibration::default();
        (0..10_000).for_each(|_| calibration.take(true));
        assert!((0.49..0.51).contains(&calibration.width()));
        (0..10_000).for_each(|_| calibration.take(false));
        assert!((1.9..2.1).contains(&calibration.width()));
    }
}
