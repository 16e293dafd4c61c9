//! Sizes and popularity as distributions that a profile names.

use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// Largest size that a distribution may give, in bytes.
const BYTES_MAX: u64 = 1 << 40;
/// Most entries of a table.
const ENTRIES_MAX: usize = 1_000;
/// Halvings in the search for the least size of a bounded Pareto distribution: beyond this a double knows no better.
const HALVINGS: usize = 200;

/// A distribution of sizes in bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SizeDistribution {
    /// Always the same.
    Fixed(u64),
    /// Rows of (from, to, weight): a row is drawn by weight, then a size evenly between its bounds, both included.
    Table(Vec<(u64, u64, f64)>),
    /// Bounded Pareto: many small, few large. The least size is the one with which the mean comes out.
    Pareto {
        /// Exponent of the tail; smaller means heavier. Not 1.
        shape: f64,
        /// Mean in bytes.
        mean_bytes: f64,
        /// Largest size.
        max_bytes: u64,
    },
}

/// How often files are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Popularity {
    /// All alike.
    Equal,
    /// File of rank r with weight r^-exponent.
    Zipf(f64),
    /// A part of the files has a weight, the others 1.
    Hot {
        /// Which part, 0 to 1.
        part: f64,
        /// Their weight.
        weight: f64,
    },
}

/// Something drawn by weight.
#[derive(Debug, Clone)]
pub(super) struct Weighted {
    cumulative: Vec<f64>,
}

impl Weighted {
    pub(super) fn new(weights: impl IntoIterator<Item = f64>) -> Self {
        let mut sum = 0.0;
        let cumulative = weights
            .into_iter()
            .map(|weight| {
                sum += weight;
                sum
            })
            .collect();
        Self { cumulative }
    }

    /// The place of what was drawn; 0 if there is nothing to draw from.
    pub(super) fn draw(&self, rng: &mut ChaCha8Rng) -> usize {
        if self.cumulative.len() < 2 {
            return 0;
        }
        let draw = rng.random::<f64>() * self.cumulative.last().copied().unwrap_or(0.0);
        self.cumulative.partition_point(|upto| *upto <= draw).min(self.cumulative.len() - 1)
    }
}

/// Draws sizes.
#[derive(Debug, Clone)]
pub(super) enum SizeSampler {
    Fixed(u64),
    Table(Weighted, Vec<(u64, u64)>),
    Pareto { shape: f64, min: f64, max: f64 },
}

impl SizeDistribution {
    /// What is wrong with it, if anything.
    pub(super) fn fault(&self) -> Option<&'static str> {
        let size = |bytes: u64| (1..=BYTES_MAX).contains(&bytes);
        match self {
            Self::Fixed(bytes) if !size(*bytes) => Some("a size must be from 1 byte to 1 TiB"),
            Self::Table(rows) if rows.is_empty() || rows.len() > ENTRIES_MAX => {
                Some("a table must have 1 to 1000 rows")
            }
            Self::Table(rows) if !rows.iter().all(|(from, to, _)| size(*from) && from <= to && size(*to)) => {
                Some("a row of a table is [FROM, TO, WEIGHT] with FROM at most TO, from 1 byte to 1 TiB")
            }
            Self::Table(rows) if weights_fault(rows.iter().map(|row| row.2)) => {
                Some("the weights of a table must not be negative, and their sum must be more than 0")
            }
            Self::Pareto { shape, mean_bytes, max_bytes } => {
                let shape_is_right = *shape > 0.0 && *shape <= 10.0 && (*shape - 1.0).abs() > 1e-6;
                let mean_is_right = *mean_bytes >= 1.0 && *mean_bytes < *max_bytes as f64;
                if !shape_is_right {
                    Some("the shape of a Pareto distribution must be more than 0, at most 10, and not 1")
                } else if !mean_is_right || !size(*max_bytes) {
                    Some("a Pareto distribution needs 1 <= mean_bytes < max_bytes <= 1 TiB")
                } else {
                    None
                }
            }
            _ => None,
        }
    }

    pub(super) fn sampler(&self) -> SizeSampler {
        match self {
            Self::Fixed(bytes) => SizeSampler::Fixed(*bytes),
            Self::Table(rows) => SizeSampler::Table(
                Weighted::new(rows.iter().map(|row| row.2)),
                rows.iter().map(|row| (row.0, row.1)).collect(),
            ),
            Self::Pareto { shape, mean_bytes, max_bytes } => {
                let max = *max_bytes as f64;
                let (mut low, mut high) = (1e-12, *mean_bytes);
                for _ in 0..HALVINGS {
                    let middle = f64::midpoint(low, high);
                    if pareto_mean(*shape, middle, max) < *mean_bytes { low = middle } else { high = middle }
                }
                SizeSampler::Pareto { shape: *shape, min: high, max }
            }
        }
    }
}

/// The mean of a Pareto distribution with `shape` between `min` and `max`.
fn pareto_mean(shape: f64, min: f64, max: f64) -> f64 {
    let part = (min / max).powf(shape);
    shape / (1.0 - shape) * (part * max - min) / (1.0 - part)
}

fn weights_fault(weights: impl Iterator<Item = f64>) -> bool {
    let (mut sum, mut wrong) = (0.0, false);
    for weight in weights {
        sum += weight;
        wrong |= !(weight >= 0.0 && weight.is_finite());
    }
    wrong || sum <= 0.0
}

impl SizeSampler {
    pub(super) fn draw(&self, rng: &mut ChaCha8Rng) -> u64 {
        match self {
            Self::Fixed(bytes) => *bytes,
            Self::Table(weighted, bounds) => {
                let (from, to) = bounds.get(weighted.draw(rng)).copied().unwrap_or((1, 1));
                if from == to { from } else { rng.random_range(from..=to) }
            }
            Self::Pareto { shape, min, max } => {
                let uniform: f64 = rng.random();
                let part = (min / max).powf(*shape);
                let size = min / (1.0 - uniform * (1.0 - part)).powf(1.0 / shape);
                (size.min(*max).round() as u64).max(1)
            }
        }
    }
}

impl Popularity {
    pub(super) fn fault(&self) -> Option<&'static str> {
        match self {
            Self::Zipf(exponent) if !(0.0..=10.0).contains(exponent) => {
                Some("a Zipf exponent must be from 0 to 10")
            }
            Self::Hot { part, weight }
                if !((0.0..=1.0).contains(part) && *weight >= 0.0 && weight.is_finite()) =>
            {
                Some("hot files are a part from 0 to 1 with a weight that is not negative")
            }
            _ => None,
        }
    }

    /// The weights of files by rank.
    pub(super) fn weights(&self, files: usize) -> Vec<f64> {
        let hot = match self {
            Self::Hot { part, .. } => (part * files as f64).round() as usize,
            _ => 0,
        };
        (0..files)
            .map(|rank| match self {
                Self::Equal => 1.0,
                Self::Zipf(exponent) => ((rank + 1) as f64).powf(-exponent),
                Self::Hot { weight, .. } => {
                    if rank < hot {
                        *weight
                    } else {
                        1.0
                    }
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng as _;

    fn mean(distribution: &SizeDistribution, draws: u32) -> f64 {
        assert_eq!(distribution.fault(), None);
        let (sampler, mut rng) = (distribution.sampler(), ChaCha8Rng::seed_from_u64(7));
        (0..draws).map(|_| sampler.draw(&mut rng) as f64).sum::<f64>() / f64::from(draws)
    }

    #[test]
    fn means_are_those_that_were_asked_for() {
        let pareto = SizeDistribution::Pareto { shape: 0.4, mean_bytes: 10_752.0, max_bytes: 1 << 20 };
        let found = mean(&pareto, 400_000);
        assert!((found / 10_752.0 - 1.0).abs() < 0.03, "{found}");
        let steep = SizeDistribution::Pareto { shape: 2.5, mean_bytes: 5_000.0, max_bytes: 1 << 24 };
        assert!((mean(&steep, 400_000) / 5_000.0 - 1.0).abs() < 0.03);
        let table =
            SizeDistribution::Table(vec![(1, 8191, 49.0), (8192, 8192, 36.0), (16_384, 16_384, 15.0)]);
        let expected = 0.49 * 4096.0 + 0.36 * 8192.0 + 0.15 * 16_384.0;
        assert!((mean(&table, 400_000) / expected - 1.0).abs() < 0.01);
        assert_eq!(mean(&SizeDistribution::Fixed(77), 10), 77.0);
    }

    #[test]
    fn sizes_stay_within_their_bounds() {
        let pareto = SizeDistribution::Pareto { shape: 0.4, mean_bytes: 10_752.0, max_bytes: 1 << 20 };
        let (sampler, mut rng) = (pareto.sampler(), ChaCha8Rng::seed_from_u64(1));
        assert!((0..100_000).all(|_| (1..=1 << 20).contains(&sampler.draw(&mut rng))));
    }

    #[test]
    fn popularity_is_drawn_in_proportion() {
        for popularity in
            [Popularity::Equal, Popularity::Zipf(1.3), Popularity::Hot { part: 0.1, weight: 1000.0 }]
        {
            let weights = popularity.weights(50);
            let sum: f64 = weights.iter().sum();
            let (weighted, mut rng) = (Weighted::new(weights.clone()), ChaCha8Rng::seed_from_u64(3));
            let mut drawn = [0_u32; 50];
            for _ in 0..200_000 {
                drawn[weighted.draw(&mut rng)] += 1;
            }
            for (count, weight) in drawn.iter().zip(&weights) {
                let expected = weight / sum * 200_000.0;
                let deviation = expected.sqrt().max(1.0);
                assert!(
                    (f64::from(*count) - expected).abs() < 5.0 * deviation,
                    "{popularity:?}: {count} of {expected}"
                );
            }
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for wrong in [
            SizeDistribution::Fixed(0),
            SizeDistribution::Table(vec![]),
            SizeDistribution::Table(vec![(5, 4, 1.0)]),
            SizeDistribution::Table(vec![(5, 6, 0.0)]),
            SizeDistribution::Table(vec![(5, 6, f64::NAN)]),
            SizeDistribution::Pareto { shape: 1.0, mean_bytes: 10.0, max_bytes: 100 },
            SizeDistribution::Pareto { shape: 0.5, mean_bytes: 100.0, max_bytes: 100 },
        ] {
            assert!(wrong.fault().is_some(), "{wrong:?}");
        }
        assert!(Popularity::Zipf(f64::NAN).fault().is_some());
        assert!(Popularity::Hot { part: 1.5, weight: 1.0 }.fault().is_some());
    }
}
