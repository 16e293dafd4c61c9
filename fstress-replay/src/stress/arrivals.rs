//! When the calls of a stress run are due.

use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How calls are spread over a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spread {
    /// At the times of a Poisson process with that number of calls.
    Poisson,
    /// At equal distances.
    Even,
}

/// One lane's part of the calls, in order. Over all lanes every second has the rate's number of calls, to a whole call.
#[derive(Debug, Clone)]
pub(super) struct Arrivals {
    rng: ChaCha8Rng,
    spread: Spread,
    per_s: f64,
    lane: u64,
    lanes: u64,
    second: u64,
    end: Duration,
    /// Calls of this second: all, and those to come.
    all: u64,
    left: u64,
    /// Part of the second that is gone, 0 to 1.
    position: f64,
}

impl Arrivals {
    pub(super) fn new(
        rng: ChaCha8Rng,
        spread: Spread,
        per_s: f64,
        place: (usize, usize),
        end: Duration,
    ) -> Self {
        let (lane, lanes) = (place.0 as u64, place.1.max(1) as u64);
        let mut arrivals =
            Self { rng, spread, per_s, lane, lanes, second: 0, end, all: 0, left: 0, position: 0.0 };
        arrivals.begin_second();
        arrivals
    }

    fn begin_second(&mut self) {
        let upto = |second: u64| (second as f64 * self.per_s).round() as u64;
        let (first, after) = (upto(self.second), upto(self.second + 1));
        // Call n goes to lane n modulo lanes, so that also slow rates are spread over them.
        let of_lane = |calls: u64| (calls + self.lanes - 1 - self.lane) / self.lanes;
        self.all = of_lane(after) - of_lane(first);
        (self.left, self.position) = (self.all, 0.0);
    }
}

impl Iterator for Arrivals {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        while self.left == 0 {
            self.second += 1;
            if Duration::from_secs(self.second) >= self.end {
                return None;
            }
            self.begin_second();
        }
        match self.spread {
            Spread::Poisson => {
                // The smallest of n uniform numbers over what is left of the second: sorted times without storing them.
                let uniform: f64 = self.rng.random();
                let gap = 1.0 - (1.0 - uniform).powf(1.0 / self.left as f64);
                self.position = (self.position + (1.0 - self.position) * gap).min(1.0);
            }
            Spread::Even => {
                let within = (self.lane as f64 + 0.5) / self.lanes as f64;
                self.position = ((self.all - self.left) as f64 + within) / self.all as f64;
            }
        }
        self.left -= 1;
        let due = Duration::from_secs(self.second) + Duration::from_secs_f64(self.position);
        (due < self.end).then_some(due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng as _;

    fn times(spread: Spread, per_s: f64, lanes: usize, seconds: f64) -> Vec<Vec<Duration>> {
        let end = Duration::from_secs_f64(seconds);
        let rng = |lane| ChaCha8Rng::seed_from_u64(lane);
        (0..lanes)
            .map(|lane| Arrivals::new(rng(lane as u64), spread, per_s, (lane, lanes), end).collect())
            .collect()
    }

    #[test]
    fn every_second_has_the_number_of_calls_of_the_rate() {
        for (spread, per_s, lanes) in [
            (Spread::Poisson, 2000.0, 2),
            (Spread::Even, 333.3, 3),
            (Spread::Poisson, 0.4, 4),
            (Spread::Even, 7.0, 1),
        ] {
            let lanes = times(spread, per_s, lanes, 20.0);
            assert!(lanes.iter().all(|lane| lane.is_sorted()));
            let mut seconds = [0_u32; 20];
            for due in lanes.iter().flatten() {
                seconds[usize::try_from(due.as_secs()).unwrap()] += 1;
            }
            assert!(seconds.iter().all(|count| (f64::from(*count) - per_s).abs() <= 1.0), "{seconds:?}");
            let sum = f64::from(seconds.iter().sum::<u32>());
            assert!((sum - per_s * 20.0).abs() <= 1.0, "{sum}");
        }
    }

    #[test]
    fn poisson_gaps_are_exponential() {
        let due = &times(Spread::Poisson, 5000.0, 1, 20.0)[0];
        let gaps: Vec<f64> = due.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        // The deviation of an exponential time is its mean.
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.03, "{} {mean}", variance.sqrt());
    }

    #[test]
    fn a_part_of_a_second_has_its_part_of_the_calls() {
        let due = &times(Spread::Even, 1000.0, 1, 1.5)[0];
        assert!((1499..=1501).contains(&due.len()), "{}", due.len());
    }
}
