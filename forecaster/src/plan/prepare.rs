//! Preparing for peaks: in quiet periods nothing is over the objective, nothing is planned, and files come to lie as it
//! happens; the surge that no forecast knew then meets one store. So, once what is forecast is planned for, a few files
//! are moved until every store stands the peaks of the last week, or all stand them equally well.
//!
//! Peaks are judged by load over capacity alone, capacity being the load that a store carries within the objective: a
//! response time that far above what is forecast would be a guess. No store is lifted above its target in the periods
//! forecast, and a plan begins at a limit that is above the one it stops at, so that noise moves nothing to and fro.

use super::heat::Heat;
use super::search::{NOWHERE, Search, add};
use crate::controller::FileId;

/// Part of its capacity that a store may carry in a peak before anything is moved, and that is then gone for.
const CARRIED: (f64, f64) = (1.1, 0.9);
/// The same as multiples of what all stores would carry if they carried equal parts.
const OVER_EQUAL: (f64, f64) = (1.15, 1.03);
/// By how much the higher of two stores' parts must fall for a move to count.
const LEAST_GAIN: f64 = 0.002;
/// Parts nearer to each other than this are equal.
const EQUAL: f64 = 1e-3;

/// Peaks that the layout is to stand.
#[derive(Debug, Clone)]
pub struct Stress<'a> {
    /// Heat of every file, one peak a column.
    pub heat: &'a Heat,
    /// Load in requests a period that each store of the view carries within the objective; `None`: not known.
    pub capacities: Vec<Option<f64>>,
}

impl Stress<'_> {
    fn capacity(&self, store: usize) -> Option<f64> {
        self.capacities.get(store).copied().flatten().filter(|c| *c > 0.0 && c.is_finite())
    }
}

/// Loads of the peaks on the stores, as parts of their capacities.
struct Strained<'a> {
    stress: &'a Stress<'a>,
    /// Stores up whose capacity is known.
    known: Vec<(usize, f64)>,
    /// `[store][peak]`.
    parts: Vec<Vec<f64>>,
}

impl Strained<'_> {
    fn worst(&self, store: usize) -> f64 {
        self.parts[store].iter().copied().fold(0.0, f64::max)
    }

    /// The worst with a file's heat added (`sign` 1) or taken away (-1).
    fn worst_with(&self, (store, capacity): (usize, f64), row: &[f32], sign: f64) -> f64 {
        let with = self.parts[store].iter().zip(row);
        with.map(|(part, heat)| part + sign * f64::from(*heat) / capacity).fold(0.0, f64::max)
    }

    /// The part that all stores would carry in the worst peak, were files divisible.
    fn equal(&self) -> f64 {
        let capacity: f64 = self.known.iter().map(|k| k.1).sum();
        let load = |peak: usize| self.known.iter().map(|(s, c)| self.parts[*s][peak] * c).sum::<f64>();
        (0..self.stress.heat.aheads()).map(|peak| load(peak) / capacity).fold(0.0, f64::max)
    }

    /// The store that carries the largest part, of those that may still be relieved.
    fn highest(&self, stuck: &[bool]) -> Option<((usize, f64), f64)> {
        let open = self.known.iter().filter(|k| !stuck[k.0]).map(|k| (*k, self.worst(k.0)));
        open.max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.0.cmp(&a.0.0)))
    }
}

impl Search<'_> {
    /// Prepares for the peaks of the problem.
    pub(super) fn prepare(&mut self) {
        let Some(stress) = self.p.stress else { return };
        let mut strained = self.strained(stress);
        if strained.known.len() < 2 {
            return;
        }
        let equal = strained.equal();
        let begin = CARRIED.0.max(OVER_EQUAL.0 * equal);
        let target = CARRIED.1.max(OVER_EQUAL.1 * equal);
        let mut stuck = vec![false; self.loads.len()];
        if strained.highest(&stuck).is_none_or(|(_, worst)| worst <= begin) {
            return;
        }
        let mut left = self.p.settings.prepare_moves_max;
        while let Some((from, worst)) = strained.highest(&stuck) {
            if worst <= target || left == 0 || !self.budget_left() {
                return;
            }
            let Some((file, to)) = self.prepared(&strained, from, worst, target) else {
                stuck[from.0] = true;
                continue;
            };
            let row = stress.heat.row(file);
            add(&mut strained.parts[from.0], row, -1.0 / from.1);
            add(&mut strained.parts[to.0], row, 1.0 / to.1);
            self.put(file, to.0);
            let heat = f64::from(row.iter().copied().fold(0.0, f32::max));
            self.preparing.insert(file, (heat, worst * from.1));
            left -= 1;
        }
    }

    /// The peaks on the stores; files that are on none are left out.
    fn strained<'s>(&self, stress: &'s Stress<'s>) -> Strained<'s> {
        let known: Vec<(usize, f64)> =
            self.up.iter().filter_map(|store| Some((*store, stress.capacity(*store)?))).collect();
        let mut parts = vec![vec![0.0; stress.heat.aheads()]; self.loads.len()];
        for (index, store) in self.at.iter().enumerate().filter(|a| *a.1 != NOWHERE) {
            if let Some(capacity) = stress.capacity(*store as usize) {
                let row = stress.heat.row(FileId(index as u32));
                add(&mut parts[*store as usize], row, 1.0 / capacity);
            }
        }
        let unlisted: Vec<f32> = (1..=stress.heat.aheads()).map(|a| stress.heat.unlisted(a) as f32).collect();
        for (store, share) in self.shares() {
            if let Some(capacity) = stress.capacity(store) {
                add(&mut parts[store], &unlisted, share / capacity);
            }
        }
        Strained { stress, known, parts }
    }

    /// The move that leaves the higher of both stores lowest, and of equals the coldest file's.
    fn prepared(
        &self,
        strained: &Strained<'_>,
        from: (usize, f64),
        worst: f64,
        target: f64,
    ) -> Option<(FileId, (usize, f64))> {
        let near = self.target();
        let mut best: Option<(f64, f64, FileId, (usize, f64))> = None;
        for file in self.on(from.0) {
            let row = strained.stress.heat.row(file);
            let left = strained.worst_with(from, row, -1.0);
            let heat = f64::from(row.iter().copied().fold(0.0, f32::max));
            if left >= worst || best.is_some_and(|b| left > b.0 + EQUAL) {
                continue;
            }
            for &to in strained.known.iter().filter(|to| to.0 != from.0) {
                let score = left.max(strained.worst_with(to, row, 1.0)).max(target);
                let better = best.is_none_or(|b| {
                    score < b.0 - EQUAL || (score < b.0 + EQUAL && heat < b.1 && score <= b.0)
                });
                let calm = || self.worst_with(to.0, self.p.heat.row(file), 1.0).is_some_and(|w| w <= near);
                if score < worst - LEAST_GAIN && better && self.settled(file, to.0) && calm() {
                    best = Some((score, heat, file, to));
                }
            }
        }
        best.map(|b| (b.2, b.3))
    }
}
