//! How good a day was, and many days together.

use super::day::{Day, Moved};
use serde::Serialize;

/// A period is harmed where its maximum exceeds the base's by this factor, and the objective.
const HARMED_OVER_BASE: f64 = 1.05;
/// Rank by which the objective is taken from the base's maxima: the base misses one period fewer.
const OBJECTIVE_RANK: usize = 12;
/// Periods within which a file that comes back counts as returned.
const RETURN_PERIODS: usize = 6;

/// The objective of a day in milliseconds: the base's maximum of rank twelve.
#[must_use]
pub fn objective_ms(base: &Day) -> f64 {
    let mut maxima = base.maxima();
    maxima.sort_unstable_by(|a, b| b.total_cmp(a));
    maxima.get(OBJECTIVE_RANK - 1).or(maxima.last()).copied().unwrap_or(0.0)
}

/// What a day is held against.
#[derive(Clone, Copy)]
pub struct Against<'a> {
    /// The default rule's day.
    pub base: &'a Day,
    /// The best day.
    pub best: &'a Day,
    /// The reactive policy's day.
    pub reactive: Option<&'a Day>,
    /// Objective in milliseconds.
    pub objective_ms: f64,
    /// Whether a disturbance was on, by period and sixth.
    pub disturbed: &'a dyn Fn(usize, usize) -> bool,
}

/// A day's figures.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Score {
    /// Mean over the periods of max(R, X) / max(best, X).
    pub ratio_to_best: f64,
    /// Periods of 24 in which every store met the objective.
    pub periods_met: f64,
    /// Periods over the objective and over 1.05 of the base.
    pub harmed: f64,
    /// Worst period over the base's worst.
    pub worst_over_base: f64,
    /// Worst period over the reactive policy's worst; NaN without one.
    pub worst_over_reactive: f64,
    /// Moves.
    pub moves: f64,
    /// How often the stores changed that share a file.
    pub replications: f64,
    /// How many files the default rule gave to another store.
    pub rehomed: f64,
    /// Periods with moves.
    pub periods_with_moves: f64,
    /// Moves of a file back to a store that it left less than six periods ago.
    pub returns_within_6: f64,
    /// Moves within periods while nothing disturbed, as periods that had one.
    pub false_alarms: f64,
    /// Periods in which nothing disturbed.
    pub quiet_periods: f64,
    /// Relative errors of the expected response times of unsaturated stores, and whether the 66 % interval held them.
    pub errors: Vec<(f32, bool)>,
}

impl Score {
    /// Of a day.
    #[must_use]
    pub fn of(day: &Day, against: &Against<'_>) -> Self {
        let x = against.objective_ms;
        let (maxima, base, best) = (day.maxima(), against.base.maxima(), against.best.maxima());
        let ratios: Vec<f64> = maxima.iter().zip(&best).map(|(r, best)| r.max(x) / best.max(x)).collect();
        let worst = |maxima: &[f64]| maxima.iter().copied().fold(0.0, f64::max);
        let over = |r: f64, base: f64| r > x && r > HARMED_OVER_BASE * base;
        let (false_alarms, quiet_periods) = alarms(day, against.disturbed);
        let mut moving: Vec<usize> = day.moves.iter().map(|moved| moved.period).collect();
        moving.dedup();
        Self {
            ratio_to_best: ratios.iter().sum::<f64>() / ratios.len().max(1) as f64,
            periods_met: maxima.iter().filter(|r| **r <= x).count() as f64,
            harmed: maxima.iter().zip(&base).filter(|(r, base)| over(**r, **base)).count() as f64,
            worst_over_base: worst(&maxima) / worst(&base),
            worst_over_reactive: against
                .reactive
                .map_or(f64::NAN, |day| worst(&maxima) / worst(&day.maxima())),
            moves: day.moves.len() as f64,
            replications: day.replications as f64,
            rehomed: day.rehomed as f64,
            periods_with_moves: moving.len() as f64,
            returns_within_6: returns(&day.moves) as f64,
            false_alarms,
            quiet_periods,
            errors: errors(day),
        }
    }
}

fn returns(moves: &[Moved]) -> usize {
    let back = |(index, later): (usize, &Moved)| {
        moves[..index].iter().any(|earlier| {
            earlier.file == later.file
                && earlier.from == later.to
                && later.period - earlier.period < RETURN_PERIODS
        })
    };
    moves.iter().enumerate().filter(|moved| back(*moved)).count()
}

fn alarms(day: &Day, disturbed: &dyn Fn(usize, usize) -> bool) -> (f64, f64) {
    let quiet = |period: usize| (0..super::demand::SIXTHS).all(|sixth| !disturbed(period, sixth));
    let mut alarmed: Vec<usize> =
        day.moves.iter().filter(|m| m.sixths > 0 && quiet(m.period)).map(|m| m.period).collect();
    alarmed.dedup();
    let quiet_periods = (0..day.periods.len()).filter(|period| quiet(*period)).count();
    (alarmed.len() as f64, quiet_periods as f64)
}

fn errors(day: &Day) -> Vec<(f32, bool)> {
    let mut errors = Vec::new();
    for (stores, expected) in day.periods.iter().zip(&day.expected) {
        for (store, expected) in stores.iter().zip(expected) {
            if let Some(expected) = expected
                && !store.saturated()
                && store.response_ms > 0.0
            {
                let (low, high) = expected.interval66_ms;
                let error = (expected.median_ms - store.response_ms).abs() / store.response_ms;
                errors.push((error as f32, (low..=high).contains(&store.response_ms)));
            }
        }
    }
    errors
}

/// Means over many days of one policy on one plex.
#[derive(Debug, Clone, Serialize, PartialEq)]
pub struct Summary {
    /// The policy.
    pub policy: String,
    /// The plex.
    pub plex: String,
    /// Days simulated: windows times seeds.
    pub days: usize,
    /// Mean of max(R, X) / max(best, X) over all periods.
    pub ratio_to_best: f64,
    /// Mean periods of 24 in which the objective held.
    pub periods_met: f64,
    /// Fewest periods met in a day.
    pub periods_met_min: f64,
    /// Mean periods a day over the objective and over 1.05 of the base.
    pub harmed: f64,
    /// Days with more than one harmed period, as a part of all.
    pub days_harmed_twice: f64,
    /// Mean of the day's worst period over the base's worst.
    pub worst_over_base: f64,
    /// Mean of the day's worst period over the reactive policy's worst.
    pub worst_over_reactive: Option<f64>,
    /// Mean absolute relative error of the expected response time, unsaturated store-periods.
    pub response_mape: Option<f64>,
    /// Median of the same.
    pub response_median_error: Option<f64>,
    /// Part of the actual response times within the 66 % interval.
    pub coverage66: Option<f64>,
    /// Mean moves a day.
    pub moves: f64,
    /// Mean times a day that the stores changed which share a file.
    pub replications: f64,
    /// Mean files a day that the default rule gave to another store.
    pub rehomed: f64,
    /// Mean periods a day with moves.
    pub periods_with_moves: f64,
    /// Mean moves a day of a file back to a store that it left less than six periods ago.
    pub returns_within_6: f64,
    /// Periods with moves by the guard in 48 periods in which nothing disturbed.
    pub false_alarms_in_48: f64,
}

impl Summary {
    /// Of the days of a policy on a plex.
    #[must_use]
    pub fn of(policy: &str, plex: &str, scores: &[&Score]) -> Self {
        let mean = |value: &dyn Fn(&Score) -> f64| {
            scores.iter().map(|s| value(s)).sum::<f64>() / scores.len().max(1) as f64
        };
        let sum = |value: &dyn Fn(&Score) -> f64| scores.iter().map(|s| value(s)).sum::<f64>();
        let finite = |value: f64| Some(value).filter(|value| value.is_finite());
        let mut errors: Vec<(f32, bool)> = scores.iter().flat_map(|s| s.errors.iter().copied()).collect();
        errors.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let count = errors.len() as f64;
        Self {
            policy: policy.into(),
            plex: plex.into(),
            days: scores.len(),
            ratio_to_best: mean(&|s| s.ratio_to_best),
            periods_met: mean(&|s| s.periods_met),
            periods_met_min: scores.iter().map(|s| s.periods_met).fold(f64::INFINITY, f64::min),
            harmed: mean(&|s| s.harmed),
            days_harmed_twice: mean(&|s| if s.harmed > 1.0 { 1.0 } else { 0.0 }),
            worst_over_base: mean(&|s| s.worst_over_base),
            worst_over_reactive: finite(mean(&|s| s.worst_over_reactive)),
            response_mape: finite(errors.iter().map(|e| f64::from(e.0)).sum::<f64>() / count),
            response_median_error: errors.get(errors.len() / 2).map(|e| f64::from(e.0)),
            coverage66: finite(errors.iter().filter(|e| e.1).count() as f64 / count),
            moves: mean(&|s| s.moves),
            replications: mean(&|s| s.replications),
            rehomed: mean(&|s| s.rehomed),
            periods_with_moves: mean(&|s| s.periods_with_moves),
            returns_within_6: mean(&|s| s.returns_within_6),
            false_alarms_in_48: 48.0 * sum(&|s| s.false_alarms) / sum(&|s| s.quiet_periods).max(1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::world::StorePeriod;
    use super::*;

    fn day(maxima: &[f64]) -> Day {
        let period = |ms: &f64| vec![StorePeriod { requests: 1.0, response_ms: *ms, full: 0.0 }];
        Day { periods: maxima.iter().map(period).collect(), ..Day::default() }
    }

    #[test]
    fn the_objective_lets_the_base_miss_eleven() {
        let base = day(&(1..=24).map(f64::from).collect::<Vec<_>>());
        let x = objective_ms(&base);
        assert_eq!(x, 13.0);
        let none = |_, _| false;
        let against = Against {
            base: &base,
            best: &day(&[5.0; 24]),
            reactive: None,
            objective_ms: x,
            disturbed: &none,
        };
        let score = Score::of(&base, &against);
        assert_eq!((score.periods_met, score.harmed, score.worst_over_base), (13.0, 0.0, 1.0));
        // (13 periods of 1) + (14 + ... + 24) / 13.
        assert!((score.ratio_to_best - (13.0 + 209.0 / 13.0) / 24.0).abs() < 1e-12);
        let better = Score::of(&day(&[5.0; 24]), &against);
        assert_eq!((better.periods_met, better.ratio_to_best), (24.0, 1.0));
        let mut worse = base.maxima();
        worse[19] = 22.0; // 20 under the base: over the objective, 1.1 of the base.
        worse[3] = 12.9; // 4 under the base, yet within the objective.
        assert_eq!(Score::of(&day(&worse), &against).harmed, 1.0);
    }

    #[test]
    fn returns_count_within_six_periods() {
        let moved = |period, from, to| Moved { period, sixths: 0, file: 1, from, to };
        assert_eq!(returns(&[moved(0, 0, 1), moved(5, 1, 0)]), 1);
        assert_eq!(returns(&[moved(0, 0, 1), moved(6, 1, 0)]), 0);
        assert_eq!(returns(&[moved(0, 0, 1), moved(1, 1, 2), moved(2, 2, 0)]), 1);
        assert_eq!(returns(&[moved(0, 0, 1), Moved { file: 2, ..moved(1, 1, 0) }]), 0);
    }
}
