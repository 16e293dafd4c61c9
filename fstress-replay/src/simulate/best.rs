//! The near-optimal assignment for loads and response curves that are known: what no policy can know.
//!
//! First the loads that make all response times equal, were files divisible (a bound: no assignment has a lower maximum);
//! then files in descending heat to the store with most room below that; then moves and exchanges at the worst store as long
//! as they lower the maximum.

use super::plexes::SimPlex;
use super::queue::Curve;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Moves and exchanges at most, times stores over four: a step looks at every pair with the worst store, and among many stores
/// the beginning is near its bound already.
const STEPS_MAX: usize = 400;
/// Files of the worst store, hottest first, that are tried.
const TRIED_MAX: usize = 32;

/// An assignment and how good it is.
#[derive(Debug, Clone)]
pub struct Best {
    /// By file: index of its store.
    pub place: Vec<u16>,
    /// Highest mean response time over the stores, in milliseconds.
    pub response_ms: f64,
    /// The same, were files divisible: no assignment is better.
    pub bound_ms: f64,
}

/// The best assignment found for files of this heat in a period of the day. `from` are assignments at which the search begins
/// besides its own beginning: it is never worse than they are.
#[must_use]
pub fn best(plex: &SimPlex, heat: &[f32], period: usize, from: &[&[u16]]) -> Best {
    let stores = plex.stores.len();
    let curves: Vec<(f64, f64, &Curve)> = plex.stores.iter().map(|store| store.truth(period)).collect();
    let response = |store: usize, load: f64| {
        let (unloaded_ms, per_request, curve) = curves[store];
        // A store that gets nothing has no response time.
        if load < 0.5 {
            return 0.0;
        }
        unloaded_ms * curve.at(load * per_request)
    };
    let total: f64 = heat.iter().map(|n| f64::from(*n)).sum();
    let (bound_ms, targets) = level(stores, total, &response);
    let mut order: Vec<usize> = (0..heat.len()).collect();
    order.sort_by(|a, b| heat[*b].total_cmp(&heat[*a]).then(a.cmp(b)));
    let mut search =
        Search { heat, response: &response, place: greedy(&order, heat, &targets), loads: Vec::new() };
    search.improve(&order, stores);
    let mut found = (search.place.clone(), search.worst().1);
    for from in from {
        search.place = from.to_vec();
        search.improve(&order, stores);
        let worst = search.worst().1;
        if worst < found.1 {
            found = (search.place, worst);
        }
    }
    Best { place: found.0, response_ms: found.1, bound_ms }
}

/// The response time that all stores have when `total` is divided so that they are equal, and their loads.
fn level(stores: usize, total: f64, response: &dyn Fn(usize, f64) -> f64) -> (f64, Vec<f64>) {
    let load_at = |store: usize, ms: f64| {
        let (mut low, mut high) = (0.0, 2.0 * total);
        for _ in 0..50 {
            let middle = 0.5 * (low + high);
            if response(store, middle) <= ms { low = middle } else { high = middle }
        }
        low
    };
    let least = (0..stores).map(|store| response(store, 0.0)).fold(f64::INFINITY, f64::min);
    let most = (0..stores).map(|store| response(store, total)).fold(0.0, f64::max);
    let (mut low, mut high) = (least, most.max(least));
    for _ in 0..50 {
        let middle = 0.5 * (low + high);
        let carried: f64 = (0..stores).map(|store| load_at(store, middle)).sum();
        if carried >= total { high = middle } else { low = middle }
    }
    (high, (0..stores).map(|store| load_at(store, high)).collect())
}

fn greedy(order: &[usize], heat: &[f32], targets: &[f64]) -> Vec<u16> {
    let mut rooms: BinaryHeap<Room> =
        targets.iter().enumerate().map(|(store, room)| Room { room: *room, store }).collect();
    let mut place = vec![0; heat.len()];
    for file in order {
        let Some(mut roomiest) = rooms.peek_mut() else { break };
        roomiest.room -= f64::from(heat[*file]);
        place[*file] = u16::try_from(roomiest.store).unwrap_or(0);
    }
    place
}

/// What a store may still get. The roomiest is the greatest; of equal ones the last.
#[derive(PartialEq)]
struct Room {
    room: f64,
    store: usize,
}

impl Eq for Room {}

impl Ord for Room {
    fn cmp(&self, other: &Self) -> Ordering {
        self.room.total_cmp(&other.room).then(self.store.cmp(&other.store))
    }
}

impl PartialOrd for Room {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

struct Search<'a> {
    heat: &'a [f32],
    response: &'a dyn Fn(usize, f64) -> f64,
    place: Vec<u16>,
    loads: Vec<f64>,
}

impl Search<'_> {
    /// The worst store and its response time.
    fn worst(&self) -> (usize, f64) {
        let responses =
            self.loads.iter().enumerate().map(|(store, load)| (store, (self.response)(store, *load)));
        responses.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((0, 0.0))
    }

    fn improve(&mut self, order: &[usize], stores: usize) {
        self.loads = vec![0.0; stores];
        for (file, store) in self.place.iter().enumerate() {
            self.loads[usize::from(*store)] += f64::from(self.heat[file]);
        }
        for _ in 0..(STEPS_MAX * 4 / stores.max(4)).max(1) {
            if !self.step(order) {
                break;
            }
        }
    }

    /// The move or exchange at the worst store after which the two stores' maximum is lowest; false where none lowers it.
    fn step(&mut self, order: &[usize]) -> bool {
        let (worst, now) = self.worst();
        let place = &self.place;
        let of = |store: usize| order.iter().copied().filter(move |file| usize::from(place[*file]) == store);
        let candidates: Vec<usize> =
            of(worst).filter(|file| self.heat[*file] > 0.0).take(TRIED_MAX).collect();
        let mut found: Option<(f64, usize, usize, Option<usize>)> = None;
        for to in (0..self.loads.len()).filter(|to| *to != worst) {
            let theirs: Vec<usize> = of(to).take(TRIED_MAX).collect();
            for file in &candidates {
                let others = std::iter::once(None).chain(theirs.iter().copied().map(Some));
                for other in others {
                    let moved = f64::from(self.heat[*file]) - other.map_or(0.0, |o| f64::from(self.heat[o]));
                    if moved <= 0.0 {
                        continue;
                    }
                    let after = (self.response)(worst, self.loads[worst] - moved)
                        .max((self.response)(to, self.loads[to] + moved));
                    if after < now * (1.0 - 1e-6) && found.is_none_or(|(least, ..)| after < least) {
                        found = Some((after, *file, to, other));
                    }
                }
            }
        }
        let Some((_, file, to, other)) = found else { return false };
        let mut put = |file: usize, from: usize, to: usize| {
            self.loads[from] -= f64::from(self.heat[file]);
            self.loads[to] += f64::from(self.heat[file]);
            self.place[file] = u16::try_from(to).unwrap_or(0);
        };
        put(file, worst, to);
        if let Some(other) = other {
            put(other, to, worst);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::demand::Demand;
    use super::super::plexes::{DemandKind, PlexKind};
    use super::super::policies::static_place;
    use super::*;

    fn plex(kind: PlexKind, seed: u64) -> (SimPlex, Demand) {
        let workload = DemandKind::Plain.workload(400, seed).unwrap();
        let demand = Demand::draw(&workload, 400, seed, None, &[]).unwrap();
        (SimPlex::of_kind(kind, &workload, &demand, seed, Vec::new()).unwrap(), demand)
    }

    fn worst(plex: &SimPlex, heat: &[f32], place: &[u16], period: usize) -> f64 {
        let mut loads = vec![0.0; plex.stores.len()];
        heat.iter().zip(place).for_each(|(n, store)| loads[usize::from(*store)] += f64::from(*n));
        let each = plex
            .stores
            .iter()
            .zip(&loads)
            .map(|(store, load)| if *load < 0.5 { 0.0 } else { store.true_response(*load, period) });
        each.fold(0.0, f64::max)
    }

    #[test]
    fn nothing_is_better_than_best_and_best_is_near_its_bound() {
        for (kind, seed) in [(PlexKind::Loose, 1), (PlexKind::Tight, 2)] {
            let (plex, demand) = plex(kind, seed);
            let statically = static_place(&plex, &demand);
            for period in (0..24).step_by(5) {
                let heat = &demand.day[period].total;
                let found = best(&plex, heat, period, &[&statically, &plex.home]);
                assert!((worst(&plex, heat, &found.place, period) - found.response_ms).abs() < 1e-6);
                for other in [&statically, &plex.home] {
                    assert!(found.response_ms <= worst(&plex, heat, other, period) + 1e-9);
                }
                assert!(found.response_ms >= found.bound_ms * (1.0 - 1e-6));
                // A slow store that should get nothing still gets some cold file.
                let unloaded = plex.stores.iter().map(|store| store.truth(period).0).fold(0.0, f64::max);
                assert!(
                    found.response_ms < found.bound_ms.max(unloaded) * 1.01,
                    "{kind:?} {period}: {} over {}",
                    found.response_ms,
                    found.bound_ms
                );
            }
        }
    }

    #[test]
    fn one_file_with_everything_goes_to_the_best_store() {
        let (plex, demand) = plex(PlexKind::Tight, 3);
        let mut heat = vec![0.0; demand.day[0].total.len()];
        heat[17] = 20_000.0;
        let found = best(&plex, &heat, 0, &[]);
        let least =
            (0..4).map(|store| plex.stores[store].true_response(20_000.0, 0)).fold(f64::INFINITY, f64::min);
        assert!((found.response_ms - least).abs() < 1e-9);
    }
}
