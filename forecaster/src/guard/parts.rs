//! Parts of a period: what came against what was expected.

/// Deviation of a forecast of a part of a period that no learning takes away.
const DEVIATION_LEAST: f64 = 0.02;
/// From so many deviations on, the forecast's own deviation says nothing any more about how far it is off.
const BEYOND: f64 = 2.0;

/// The last so many sixths of what has passed of a period.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Part {
    /// How many sixths, 1 to 5.
    pub sixths: f64,
    /// Requests that came.
    pub seen: f64,
    /// Requests expected.
    pub expected: f64,
}

/// How sure a forecast is, Poisson chance apart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sureness {
    /// Squared relative deviation of the period's count from its forecast.
    pub forecast: f64,
    /// Squared relative deviation of a sixth's count from the period's.
    pub sixth: f64,
}

/// The part that tells most.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Telling {
    /// The part from which on it differs.
    pub part: Part,
    /// The largest score of all parts: about standard normal if all goes as forecast.
    pub score: f64,
}

impl Sureness {
    fn relative(&self, sixths: f64) -> f64 {
        let sum = self.forecast.max(0.0) + self.sixth.max(0.0) / sixths.max(1.0);
        if sum.is_finite() { sum.sqrt().max(DEVIATION_LEAST) } else { 1e3 }
    }
}

/// Score of a part: about standard normal if all goes as forecast.
#[must_use]
pub fn score(part: &Part, sure: &Sureness) -> f64 {
    let d = sure.relative(part.sixths);
    let place = |count: f64| (d * (count.clamp(0.0, 1e300) + 0.375).sqrt()).asinh();
    2.0 / d * (place(part.seen) - place(part.expected))
}

/// The largest score of these parts in size, and the part from which on what comes differs most likely from what was
/// expected (by Poisson's likelihood; of equals the first). `None` where there is none.
#[must_use]
pub fn telling(parts: impl Iterator<Item = Part>, sure: &Sureness) -> Option<Telling> {
    let (mut most, mut likeliest): (Option<f64>, Option<(f64, Part)>) = (None, None);
    for part in parts {
        let score = score(&part, sure);
        if !score.is_nan() && most.is_none_or(|most| score.abs() > most.abs()) {
            most = Some(score);
        }
        let (seen, expected) = (part.seen + 0.375, part.expected + 0.375);
        let likelihood = seen * (seen / expected).ln() - (seen - expected);
        if !likelihood.is_nan() && likeliest.is_none_or(|l| likelihood > l.0) {
            likeliest = Some((likelihood, part));
        }
    }
    Some(Telling { score: most?, part: likeliest?.1 })
}

impl Part {
    /// Requests a period at the rate of this part.
    pub(crate) fn rate(&self) -> f64 {
        self.seen * super::SIXTHS / self.sixths.max(1.0)
    }

    /// Requests a period for the rest of it, forecast anew: what was forecast and the rate seen, each as far as it is sure.
    pub(crate) fn rest(&self, forecast: f64, sure: &Sureness) -> f64 {
        let (rate, share) = (self.rate(), self.sixths.max(1.0) / super::SIXTHS);
        if !(rate.is_finite() && forecast.is_finite()) {
            return if forecast.is_finite() { forecast } else { 0.0 };
        }
        let middle = 0.5 * (rate + forecast);
        let chance = middle / share + sure.sixth / self.sixths.max(1.0) * middle * middle;
        let (own, off) = (sure.forecast.min(1e6) * middle * middle, rate - forecast);
        let jump = if off * off > BEYOND * BEYOND * (own + chance) { 0.25 * off * off } else { 0.0 };
        let own = own.max(jump);
        if own + chance > 0.0 { forecast + own / (own + chance) * off } else { forecast }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SURE: Sureness = Sureness { forecast: 0.01, sixth: 0.01 };

    #[test]
    fn scores_are_those_of_poisson_counts_and_of_forecasts_errors() {
        let at = |seen, expected, sixths| score(&Part { sixths, seen, expected }, &SURE);
        assert!(at(1000.0, 1000.0, 2.0) == 0.0);
        // Large counts: ln of the ratio over the relative deviation.
        let d = (0.01f64 + 0.005).sqrt();
        assert!((at(3e6, 2e6, 2.0) - 1.5f64.ln() / d).abs() < 0.01);
        // Small ones: the square root's.
        assert!((at(9.0, 4.0, 1.0) - 2.0 * (9.375f64.sqrt() - 4.375f64.sqrt())).abs() < 0.15);
        // A file without a past that has a store's worth of requests is beyond doubt.
        assert!(
            score(
                &Part { sixths: 1.0, seen: 2500.0, expected: 1.0 },
                &Sureness { forecast: 1.0, sixth: 0.1 }
            ) > 6.0
        );
        for wild in [f64::INFINITY, f64::NAN, -1.0] {
            let part = Part { sixths: 1.0, seen: wild, expected: 1.0 };
            assert!(!score(&part, &Sureness { forecast: wild, sixth: wild }).is_infinite());
            assert!(part.rest(1.0, &SURE).is_finite());
        }
    }

    #[test]
    fn the_telling_part_is_the_one_that_deviates() {
        let seen = [100.0, 100.0, 300.0];
        let parts = (0..3).map(|from| Part {
            sixths: (3 - from) as f64,
            seen: seen[from..].iter().sum(),
            expected: 100.0 * (3 - from) as f64,
        });
        let most = telling(parts, &SURE).unwrap();
        assert_eq!((most.part.sixths, most.part.seen), (1.0, 300.0));
        assert!(most.score > 5.0);
        // The rest is forecast to go on like that; what is within the noise is not taken up.
        assert!(most.part.rest(600.0, &SURE) > 1500.0);
        let noise = Part { sixths: 1.0, seen: 110.0, expected: 100.0 };
        assert!((noise.rest(600.0, &SURE) - 620.0).abs() < 15.0);
        // Without a forecast, what comes is all that is known.
        let new = Part { sixths: 5.0, seen: 50.0, expected: 0.0 };
        assert!((55.0..=60.0).contains(&new.rest(0.0, &Sureness { forecast: 1.0, sixth: 0.0 })));
    }
}
