//! A plex at work: calls routed by file or one by one, sixth by sixth, with caches that are cold after a move.

use super::demand::{PeriodHeat, SIXTHS, rng_for, signed};
use super::plexes::SimPlex;
use super::queue::{Served, Station};
use rand::{Rng, rngs::SmallRng};
use std::collections::BTreeMap;

/// Bytes of a file that one read brings into a store's cache.
const BLOCK_BYTES: u64 = 8 << 10;
/// Service time of a call that finds its block cold, as a multiple of a warm one's.
pub const COLD_FACTOR: f64 = 5.0;

/// How calls find their store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Routing {
    /// By file.
    Files,
    /// Each call to the next store in turn. Caches are taken to be warm everywhere, which flatters.
    RoundRobin,
    /// Each call to the store that holds fewest. Caches are taken to be warm everywhere, which flatters.
    LeastOutstanding,
}

/// What one store did in a period.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StorePeriod {
    /// Calls that came.
    pub requests: f64,
    /// Mean response time in milliseconds; NaN where none came.
    pub response_ms: f64,
    /// Part of the time during which the store was full.
    pub full: f64,
}

impl StorePeriod {
    /// Whether the store was full for more than a hundredth of the time.
    #[must_use]
    pub fn saturated(&self) -> bool {
        self.full > 0.01
    }
}

/// A store that shares a file.
#[derive(Debug, Clone, Copy)]
struct Replica {
    store: usize,
    /// Part of the file's requests.
    part: f32,
    /// Reads that still find cold blocks here.
    cold: f32,
}

/// A plex with the files where a policy has put them.
#[derive(Debug, Clone)]
pub struct World<'a> {
    plex: &'a SimPlex,
    routing: Routing,
    seed: u64,
    /// By file: its store.
    place: Vec<u16>,
    /// By file: reads that still find cold blocks.
    cold: Vec<f32>,
    /// By file: its blocks.
    blocks: Vec<f32>,
    /// The stores of files that several share.
    shared: BTreeMap<usize, Vec<Replica>>,
    /// By store: calls held now.
    held: Vec<usize>,
    /// Store whose turn it is.
    turn: usize,
    served: Vec<Served>,
}

impl<'a> World<'a> {
    /// A plex with every file at home and all caches warm. `bytes` are the files' sizes.
    pub fn new(plex: &'a SimPlex, routing: Routing, bytes: impl Iterator<Item = u64>, seed: u64) -> Self {
        let blocks: Vec<f32> = bytes.map(|bytes| bytes.div_ceil(BLOCK_BYTES).max(1) as f32).collect();
        let stores = plex.stores.len();
        Self {
            plex,
            routing,
            seed,
            place: plex.home.clone(),
            cold: vec![0.0; blocks.len()],
            blocks,
            shared: BTreeMap::new(),
            held: vec![0; stores],
            turn: 0,
            served: vec![Served::default(); stores],
        }
    }

    /// By file: its store.
    #[must_use]
    pub fn place(&self) -> &[u16] {
        &self.place
    }

    /// Moves a file; its reads find a cold cache first.
    pub fn move_file(&mut self, file: usize, store: usize) {
        let store = u16::try_from(store).unwrap_or(u16::MAX);
        if let (Some(place), Some(cold)) = (self.place.get_mut(file), self.cold.get_mut(file))
            && *place != store
        {
            *place = store;
            *cold = self.blocks[file];
        }
    }

    /// Lets several stores share a file, the first of them its home; caches are cold where it is new. One store: it is
    /// there alone.
    pub fn share_file(&mut self, file: usize, parts: &[(usize, f64)]) {
        let (Some(place), Some((home, _))) = (self.place.get_mut(file), parts.first()) else { return };
        let before = match self.shared.remove(&file) {
            Some(replicas) => replicas,
            None => vec![Replica { store: usize::from(*place), part: 1.0, cold: self.cold[file] }],
        };
        let cold = |store: usize| {
            before.iter().find(|known| known.store == store).map_or(self.blocks[file], |known| known.cold)
        };
        *place = u16::try_from(*home).unwrap_or(u16::MAX);
        self.cold[file] = cold(*home);
        if parts.len() > 1 {
            let replica = |(store, part): &(usize, f64)| Replica {
                store: *store,
                part: *part as f32,
                cold: cold(*store),
            };
            let replicas = parts.iter().map(replica).collect();
            self.shared.insert(file, replicas);
        }
    }

    /// Puts every file where it is said to be, with warm caches.
    pub fn place_warm(&mut self, place: &[u16]) {
        self.place.copy_from_slice(place);
        self.cold.fill(0.0);
    }

    /// Lets a sixth pass. `sixth` counts from the beginning of the day (negative: the day before).
    pub fn pass(&mut self, heat: &PeriodHeat, sixth: i64) {
        let part = &heat.sixths[usize::try_from(sixth.rem_euclid(signed(SIXTHS))).unwrap_or(0)];
        let stores = self.plex.stores.len();
        let mut services: Vec<f64> =
            self.plex.stores.iter().map(|store| store.service(sixth) * SIXTHS as f64).collect();
        if self.routing == Routing::Files {
            let (mut loads, mut cold) = (vec![0.0; stores], vec![0.0; stores]);
            for (file, n) in part.iter().enumerate() {
                if let Some(replicas) = self.shared.get_mut(&file) {
                    for replica in replicas {
                        let reads = n * replica.part;
                        let missed = replica.cold.min(reads);
                        replica.cold -= missed;
                        loads[replica.store] += f64::from(reads);
                        cold[replica.store] += f64::from(missed);
                    }
                    continue;
                }
                let store = usize::from(self.place[file]);
                loads[store] += f64::from(*n);
                if self.cold[file] > 0.0 {
                    let reads = self.cold[file].min(*n);
                    self.cold[file] -= reads;
                    cold[store] += f64::from(reads);
                }
            }
            for store in 0..stores {
                if loads[store] > 0.0 {
                    services[store] *= 1.0 + (COLD_FACTOR - 1.0) * cold[store] / loads[store];
                }
                // The same load at the same store at the same time meets the same chances under every policy.
                let purpose = format!("store {store}");
                let mut rng = rng_for(self.seed, &purpose, sixth.unsigned_abs() << 1 | u64::from(sixth < 0));
                let station = self.plex.stores[store].station;
                let served = station.simulate(&mut self.held[store], loads[store], services[store], &mut rng);
                self.served[store].add(&served);
            }
        } else {
            let calls = part.iter().map(|n| f64::from(*n)).sum();
            let stations: Vec<Station> = self.plex.stores.iter().map(|store| store.station).collect();
            let mut rng = rng_for(self.seed, "any store", sixth.unsigned_abs() << 1 | u64::from(sixth < 0));
            self.pass_call_by_call(&stations, &services, calls, &mut rng);
        }
    }

    /// All stores in one chain of events: the store of each call depends on the others.
    fn pass_call_by_call(&mut self, stations: &[Station], services: &[f64], calls: f64, rng: &mut SmallRng) {
        let stores = stations.len();
        let rate_of = |held: usize, store: usize| held.min(stations[store].servers) as f64 / services[store];
        let mut busy: Vec<f64> = (0..stores).map(|store| rate_of(self.held[store], store)).collect();
        let mut departures: f64 = busy.iter().sum();
        // When each store's number of calls last changed: what it holds over time is added up then.
        let mut since = vec![0.0; stores];
        let mut time = 0.0;
        loop {
            let rate = calls + departures;
            time += 1.0 / rate;
            if calls <= 0.0 || time >= 1.0 {
                break;
            }
            let draw = f64::from(rng.next_u32()) / 4_294_967_296.0 * rate;
            let arrival = draw < calls;
            let store = if arrival { self.next_store() } else { leaving(&busy, draw - calls) };
            let (held, served) = (self.held[store], &mut self.served[store]);
            let refused = arrival && held >= stations[store].outstanding_max;
            served.arrived += f64::from(u8::from(arrival));
            served.refused += f64::from(u8::from(refused));
            served.held += held as f64 * (time - since[store]);
            served.full += if refused { 1.0 / rate } else { 0.0 };
            since[store] = time;
            let held = if arrival { held + usize::from(!refused) } else { held.saturating_sub(1) };
            self.held[store] = held;
            let now = rate_of(held, store);
            departures += now - busy[store];
            busy[store] = now;
        }
        for (store, served) in self.served.iter_mut().enumerate() {
            served.held += self.held[store] as f64 * (1.0 - since[store]);
            served.elapsed += 1.0;
        }
    }

    fn next_store(&mut self) -> usize {
        let stores = self.held.len();
        self.turn = if self.turn + 1 < stores { self.turn + 1 } else { 0 };
        if self.routing == Routing::RoundRobin {
            return self.turn;
        }
        // Among equals the first from the one whose turn it is.
        let (mut best, mut least) = (0, usize::MAX);
        for store in (self.turn..stores).chain(0..self.turn) {
            if self.held[store] < least {
                (best, least) = (store, self.held[store]);
            }
        }
        best
    }

    /// What the stores have done since this was last asked.
    pub fn take(&mut self) -> Vec<StorePeriod> {
        let measured = self.measured();
        self.served.fill(Served::default());
        measured
    }

    /// The same without beginning anew.
    #[must_use]
    pub fn measured(&self) -> Vec<StorePeriod> {
        let one = |(served, store): (&Served, &super::plexes::SimStore)| StorePeriod {
            requests: served.arrived,
            // Times are in sixths of a period here.
            response_ms: store.ms(served.response() / SIXTHS as f64),
            full: if served.elapsed > 0.0 { served.full / served.elapsed } else { 0.0 },
        };
        self.served.iter().zip(&self.plex.stores).map(one).collect()
    }
}

/// The store whose call ends, `draw` into the sum of the stores' rates.
fn leaving(busy: &[f64], draw: f64) -> usize {
    let mut left = draw;
    let found = busy.iter().position(|rate| {
        left -= rate;
        left < 0.0
    });
    // Rounding may leave a little over.
    found.or_else(|| busy.iter().rposition(|rate| *rate > 0.0)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::day::{learn, pass};
    use super::super::demand::{DAY, Demand};
    use super::super::plexes::{PLEX_UTILISATION_MAX, PlexKind};
    use super::super::score::objective_ms;
    use super::*;

    fn made(kind: PlexKind, seed: u64) -> (SimPlex, Demand, Vec<u64>) {
        let workload = kind.demand().workload(500, seed).unwrap();
        let jumps = kind.demand().jumps(&workload, 4, seed, 500);
        let hot = kind.demand().hot(&workload, seed);
        let demand = Demand::draw(&workload, 500, seed, hot, &jumps).unwrap();
        let plex = SimPlex::of_kind(kind, &workload, &demand, seed, jumps).unwrap();
        (plex, demand, workload.files().iter().map(|file| file.bytes).collect())
    }

    #[test]
    fn the_base_misses_eleven_periods_of_every_plex_and_the_plex_could_carry_all() {
        for kind in PlexKind::ALL.into_iter().chain([PlexKind::HalfFile]) {
            let (plex, demand, bytes) = made(kind, 5);
            assert!(plex.utilisation(&demand) <= PLEX_UTILISATION_MAX + 1e-9);
            let mut world = World::new(&plex, Routing::Files, bytes.into_iter(), 5);
            let before = learn(&demand, &mut world);
            assert_eq!(before.len(), DAY);
            let base = pass(&demand, &mut world, None);
            let x = objective_ms(&base);
            assert_eq!(base.maxima().iter().filter(|r| **r > x).count(), 11, "{kind:?}");
        }
    }

    #[test]
    fn days_follow_their_seed() {
        let day = |seed| {
            let (plex, demand, bytes) = made(PlexKind::TightJumps, seed);
            pass(&demand, &mut World::new(&plex, Routing::Files, bytes.into_iter(), seed), None)
        };
        assert_eq!(day(1), day(1));
        assert_ne!(day(1), day(2));
    }

    #[test]
    fn a_moved_file_is_cold_once_for_each_of_its_blocks() {
        let (mut plex, demand, bytes) = made(PlexKind::Tight, 1);
        plex.home.fill(0);
        let files = bytes.len();
        let mut heat = demand.day[0].clone();
        heat.sixths.iter_mut().for_each(|part| part.fill(0.0));
        heat.sixths[0][3] = 400.0;
        let run = |moved: bool, blocks: u64| {
            let mut world = World::new(&plex, Routing::Files, std::iter::repeat_n(blocks * 8192, files), 1);
            if moved {
                world.move_file(3, 1);
                assert_eq!(world.place()[3], 1);
            }
            world.pass(&heat, 0);
            world.take()[usize::from(moved)].response_ms
        };
        let unloaded = |store: usize| plex.stores[store].truth(0).0;
        assert!((run(false, 100) / unloaded(0) - 1.0).abs() < 0.2, "little load, no cold blocks");
        // A quarter of the reads find a cold block: the mean service time doubles.
        assert!((run(true, 100) / unloaded(1) / 2.0 - 1.0).abs() < 0.25);
        assert!((run(true, 1) / unloaded(1) - 1.0).abs() < 0.2);
    }

    #[test]
    fn a_shared_file_loads_its_stores_by_parts_and_is_cold_where_it_is_new() {
        let (mut plex, demand, bytes) = made(PlexKind::Tight, 1);
        plex.home.fill(0);
        let mut heat = demand.day[0].clone();
        heat.sixths.iter_mut().for_each(|part| part.fill(0.0));
        heat.sixths.iter_mut().for_each(|part| part[3] = 400.0);
        let mut world = World::new(&plex, Routing::Files, std::iter::repeat_n(100 * 8192, bytes.len()), 1);
        let requests = |world: &mut World<'_>| {
            (0..6).for_each(|sixth| world.pass(&heat, sixth));
            world.take().iter().map(|store| store.requests).collect::<Vec<_>>()
        };
        world.share_file(3, &[(0, 0.75), (2, 0.25)]);
        world.pass(&heat, 0);
        let first = world.take();
        assert!((first[0].response_ms / plex.stores[0].truth(0).0 - 1.0).abs() < 0.2, "warm at its home");
        // Each of a hundred reads finds a cold block: five times the service time.
        assert!(first[2].response_ms / plex.stores[2].truth(0).0 > 3.5, "cold where it is new");
        let shared = requests(&mut world);
        assert!(
            (shared[0] / 1800.0 - 1.0).abs() < 0.1 && (shared[2] / 600.0 - 1.0).abs() < 0.15,
            "{shared:?}"
        );
        world.share_file(3, &[(2, 1.0)]);
        assert_eq!(world.place()[3], 2);
        let alone = requests(&mut world);
        assert!(alone[0] == 0.0 && (alone[2] / 2400.0 - 1.0).abs() < 0.1, "{alone:?}");
    }

    #[test]
    fn call_by_call_routing_loses_no_call_and_agrees_with_a_single_queue() {
        let (mut plex, demand, bytes) = made(PlexKind::Tight, 1);
        plex.stores.truncate(1);
        plex.home.fill(0);
        let heat = &demand.day[0];
        let world = |routing| {
            let mut world = World::new(&plex, routing, bytes.iter().copied(), 1);
            let mut part = heat.clone();
            part.sixths.iter_mut().flatten().for_each(|n| *n *= 0.2);
            (0..6).for_each(|sixth| world.pass(&part, sixth));
            world.take()[0]
        };
        let (one, turn, least) =
            (world(Routing::Files), world(Routing::RoundRobin), world(Routing::LeastOutstanding));
        for other in [turn, least] {
            assert!((other.requests / one.requests - 1.0).abs() < 0.03);
            assert!((other.response_ms / one.response_ms - 1.0).abs() < 0.2, "{other:?} {one:?}");
        }
    }
}
