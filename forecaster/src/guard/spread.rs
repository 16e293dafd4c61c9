//! How far things are from their forecasts, as learnt.

/// What the newest period weighs.
const NEWEST: f64 = 0.1;
/// Squared scores above this count as this: a jump is not to make the guard blind.
const SQUARE_MAX: f64 = 16.0;

/// Mean squared score of a kind of things over past periods: 1 where forecasts are as sure as they say, more where they are
/// not. Never less than 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread(f64);

impl Default for Spread {
    fn default() -> Self {
        Self(1.0)
    }
}

impl Spread {
    /// Takes the scores of a period that is over.
    pub fn take(&mut self, scores: impl Iterator<Item = f64>) {
        let squares = scores.filter(|score| !score.is_nan()).map(|score| (score * score).min(SQUARE_MAX));
        let (count, sum) = squares.fold((0.0, 0.0), |(count, sum), square| (count + 1.0, sum + square));
        if count > 0.0 {
            self.0 += NEWEST * (sum / count - self.0);
        }
    }

    /// What squared deviations are multiplied by.
    #[must_use]
    pub fn factor(&self) -> f64 {
        self.0.max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_less_sure_than_it_says_is_learnt_and_one_jump_is_not() {
        let mut spread = Spread::default();
        (0..50).for_each(|i| spread.take([0.5, -1.5, 1.0 + 0.01 * f64::from(i)].into_iter()));
        assert!((1.0..1.6).contains(&spread.factor()), "{spread:?}");
        spread.take(std::iter::once(1e9));
        assert!(spread.factor() < 3.2);
        (0..60).for_each(|_| spread.take([3.0, -3.0, f64::NAN].into_iter()));
        assert!((8.0..9.1).contains(&spread.factor()));
        spread.take(std::iter::empty());
        assert!(spread.factor() > 8.0);
    }
}
