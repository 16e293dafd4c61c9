//! Spikes: a value or two far from all around them, and from the same time of other days.
//!
//! What happened once is no cycle. A regression on the day and the week before does not know that: it lets a burst of an
//! hour come again a day and a week later, and takes every period for as uncertain as that one. So what has turned out to
//! be a spike is replaced before a fit by what is around it; forecasters of electric load call that cleaning. A change
//! that stays is no spike, and neither is what comes again a day or a week later.

use std::ops::Range;

use super::Cycles;

/// A spike is so many deviations of what is usual away from all around.
const DEVIATIONS: f64 = 5.0;
/// The usual deviation is taken to be at least this, log scale.
const DEVIATION_MIN: f64 = 0.05;
/// Values on either side that are looked at: spikes of two are found.
pub(crate) const SIDE: usize = 3;
/// Median absolute deviation to standard deviation.
const OF_MEDIAN: f64 = 1.4826;

/// A value that is none of its surroundings', and what these say in its place.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spike {
    /// Its place in the series.
    pub(crate) index: usize,
    /// The value to take instead.
    pub(crate) instead: f64,
}

/// The spikes in counts (NaN = missing), by index. A value is not judged before it is known what follows: three values, or
/// fewer where they say already that it is over. Without a day there are none.
pub(crate) fn spikes(counts: &[f64], cycles: Cycles) -> Vec<Spike> {
    let Some(day) = cycles.day else { return Vec::new() };
    let lags: Vec<usize> = [Some(day), cycles.week].into_iter().flatten().collect();
    let log = |count: f64| (count.clamp(0.0, f64::MAX) + 1.0).ln();
    let usual: Vec<f64> = (0..counts.len())
        .map(|t| {
            let before = lags.iter().copied().chain([2 * day]).filter_map(|lag| t.checked_sub(lag));
            let after = Some(t + day).filter(|u| *u < counts.len());
            median(before.chain(after).map(|u| log(counts[u])))
        })
        .collect();
    let over: Vec<f64> = counts.iter().zip(&usual).map(|(count, usual)| log(*count) - usual).collect();
    let changes = over.windows(2).map(|pair| (pair[1] - pair[0]).abs());
    let deviation = (OF_MEDIAN * median(changes) / std::f64::consts::SQRT_2).max(DEVIATION_MIN);
    let away: Vec<Away> = (0..counts.len()).map(|t| Away::of(&over, t)).collect();
    let sign = |t: usize| match away.get(t) {
        Some(away) if away.distance.abs() > DEVIATIONS * deviation => away.distance.signum(),
        _ => 0.0,
    };
    let comes_again = |t: usize| {
        lags.iter().flat_map(|l| [t.checked_sub(*l), Some(t + l)]).flatten().any(|u| sign(u) == sign(t))
    };
    let found = (0..counts.len()).filter(|t| sign(*t) != 0.0 && !comes_again(*t));
    found
        .map(|index| Spike { index, instead: ((usual[index] + away[index].around).exp() - 1.0).max(0.0) })
        .collect()
}

/// Where a value is among its neighbours, log scale.
#[derive(Clone, Copy)]
struct Away {
    /// How far it is above all of them (or below: negative); 0 where it is among them, or they are not known.
    distance: f64,
    /// What they say in its place.
    around: f64,
}

impl Away {
    /// Of the value `t` of `over`.
    fn of(over: &[f64], t: usize) -> Self {
        let level = |range: Range<usize>| median(over[range].iter().copied());
        let left = level(t.saturating_sub(SIDE)..t);
        let right = match over.len() - t - 1 {
            0 => f64::NAN,
            // The one that is most like it: what still goes on may stay.
            following if following < SIDE => {
                let nearer = |a: f64, b: f64| if (a - over[t]).abs() < (b - over[t]).abs() { a } else { b };
                over[t + 1..].iter().copied().reduce(nearer).unwrap_or(f64::NAN)
            }
            _ => level(t + 1..t + 1 + SIDE),
        };
        let distance = (over[t] - left.max(right)).max(0.0) + (over[t] - left.min(right)).min(0.0);
        let around = 0.5 * (left + right);
        let is_known = over[t].is_finite() && around.is_finite();
        Self { distance: if is_known { distance } else { 0.0 }, around }
    }
}

/// Counts with their spikes replaced; `None` where there are none.
pub(crate) fn without_spikes(counts: &[f64], cycles: Cycles) -> Option<Vec<f64>> {
    let found = spikes(counts, cycles);
    let mut cleaned = (!found.is_empty()).then(|| counts.to_vec())?;
    found.iter().for_each(|spike| cleaned[spike.index] = spike.instead);
    Some(cleaned)
}

/// Of what is finite; NaN of nothing.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.filter(|v| v.is_finite()).collect();
    values.sort_unstable_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => 0.5 * (values[n / 2 - 1] + values[n / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Days with a night, and a little noise.
    fn days(periods: usize) -> Vec<f64> {
        let noise = |t: usize| 1.0 + 0.05 * ((t * 7919 % 13) as f64 / 6.0 - 1.0);
        (0..periods).map(|t| noise(t) * if t % 24 < 8 { 100.0 } else { 400.0 }).collect()
    }

    fn found(counts: &[f64]) -> Vec<usize> {
        spikes(counts, Cycles::HOURLY).iter().map(|spike| spike.index).collect()
    }

    #[test]
    fn what_happened_once_is_found_and_replaced_by_what_is_around() {
        let quiet = days(500);
        assert!(found(&quiet).is_empty());
        let mut counts = quiet.clone();
        // An hour and two hours of a burst, and an hour without calls.
        for (t, count) in [(300, 9000.0), (350, 5000.0), (351, 6000.0), (400, 0.0)] {
            counts[t] = count;
        }
        assert_eq!(found(&counts), [300, 350, 351, 400]);
        let cleaned = without_spikes(&counts, Cycles::HOURLY).unwrap();
        for (t, quiet) in quiet.iter().enumerate() {
            assert!((cleaned[t] / quiet - 1.0).abs() < 0.15, "{t}: {} for {quiet}", cleaned[t]);
        }
        assert_eq!(without_spikes(&quiet, Cycles::HOURLY), None);
        assert!(spikes(&counts, Cycles::NONE).is_empty());
    }

    #[test]
    fn what_stays_and_what_comes_again_are_no_spikes() {
        let mut stays = days(500);
        stays[350..].iter_mut().for_each(|count| *count *= 5.0);
        assert!(found(&stays).is_empty());
        let mut batch = days(500);
        (250..450).filter(|t| t % 24 == 2).for_each(|t| batch[t] = 5000.0);
        assert!(found(&batch).is_empty());
        let mut weekly = days(500);
        (250..500).filter(|t| t % 168 == 100).for_each(|t| weekly[t] = 5000.0);
        assert!(found(&weekly).is_empty());
    }

    #[test]
    fn a_value_is_judged_when_it_is_known_that_it_is_over() {
        let mut counts = days(400);
        counts[397] = 9000.0;
        assert!(found(&counts[..398]).is_empty());
        assert_eq!(found(&counts[..399]), [397]);
        // Whether the second of two stays is not known yet.
        counts[398] = 9000.0;
        assert!(found(&counts[..399]).is_empty());
        assert_eq!(found(&counts), [398]);
    }

    proptest! {
        #[test]
        fn whatever_comes_counts_stay_counts(
            counts in prop::collection::vec(prop_oneof![Just(f64::NAN), Just(0.0), 0.0..1e18f64, -5.0..50.0f64], 0..120),
            day in 6usize..30,
            week in prop::option::of(60usize..80),
        ) {
            let cycles = Cycles { day: Some(day), week };
            for spike in spikes(&counts, cycles) {
                prop_assert!(spike.instead.is_finite() && spike.instead >= 0.0);
                prop_assert!(!counts[spike.index].is_nan());
            }
        }
    }
}
