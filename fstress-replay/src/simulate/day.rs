//! A day of a plex under a policy: what was planned, what was moved, what the stores did.

use super::demand::{DAY, Demand, SIXTHS, signed};
use super::world::{StorePeriod, World};

/// A file sent to a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// Index of the file.
    pub file: usize,
    /// Index of the store.
    pub to: usize,
}

/// A file whose reads several stores share from now on; one store: it is read there alone again. All requests of simulated
/// files are reads.
#[derive(Debug, Clone, PartialEq)]
pub struct Shared {
    /// Index of the file.
    pub file: usize,
    /// Index of each store, its home first, and the part of the requests that it gets.
    pub parts: Vec<(usize, f64)>,
}

/// A store's response time as a policy expected it for the period to come, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Expected {
    /// Median.
    pub median_ms: f64,
    /// Limits of the 66 % interval.
    pub interval66_ms: (f64, f64),
}

/// What a policy wants.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Wanted {
    /// Files to move, in this order.
    pub sent: Vec<Sent>,
    /// Files that other stores share from now on.
    pub shared: Vec<Shared>,
    /// Files that the default rule gives to another store from now on, before any are moved.
    pub rehomed: Vec<Sent>,
    /// By store, what is expected of the period to come with the files as wanted; empty where a policy expects nothing.
    pub expected: Vec<Option<Expected>>,
}

/// A policy that moves files. Periods count from the beginning of the day.
pub trait Planner {
    /// Before a period: `place` is the store of every file.
    fn plan(&mut self, period: usize, place: &[u16]) -> Wanted;
    /// After `sixths` sixths of a period: what the files and stores did so far.
    fn within(
        &mut self,
        period: usize,
        sixths: usize,
        files: &[f32],
        stores: &[StorePeriod],
        place: &[u16],
    ) -> Vec<Sent>;
    /// After a period.
    fn learn(&mut self, period: usize, files: &[f32], stores: &[StorePeriod]);
    /// Whether it wants to be asked within periods.
    fn watches(&self) -> bool {
        false
    }
}

/// A file moved from one store to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// Period of the day.
    pub period: usize,
    /// Sixths of it that had passed.
    pub sixths: usize,
    /// Index of the file.
    pub file: usize,
    /// Where it was.
    pub from: usize,
    /// Where it went.
    pub to: usize,
}

/// What a day was like.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Day {
    /// By period, then by store.
    pub periods: Vec<Vec<StorePeriod>>,
    /// By period, then by store; empty where nothing was expected.
    pub expected: Vec<Vec<Option<Expected>>>,
    /// Every move.
    pub moves: Vec<Moved>,
    /// How often the stores changed that share a file.
    pub replications: usize,
    /// How many files the default rule gave to another store.
    pub rehomed: usize,
}

impl Day {
    /// Highest mean response of the stores in each period, in milliseconds.
    #[must_use]
    pub fn maxima(&self) -> Vec<f64> {
        let highest = |stores: &Vec<StorePeriod>| stores.iter().map(|s| s.response_ms).fold(0.0, f64::max);
        self.periods.iter().map(highest).collect()
    }
}

/// Lets the day before pass without moving anything: what the stores have taught when the day begins.
#[must_use]
pub fn learn(demand: &Demand, world: &mut World<'_>) -> Vec<Vec<StorePeriod>> {
    let mut before = Vec::with_capacity(DAY);
    for (period, heat) in demand.learning.iter().enumerate() {
        for sixth in 0..SIXTHS {
            world.pass(heat, signed(period * SIXTHS + sixth) - signed(DAY * SIXTHS));
        }
        before.push(world.take());
    }
    before
}

/// Lets the day pass under a policy.
pub fn pass(demand: &Demand, world: &mut World<'_>, mut planner: Option<&mut dyn Planner>) -> Day {
    let mut day = Day::default();
    for (period, heat) in demand.day.iter().enumerate() {
        if let Some(planner) = planner.as_deref_mut() {
            let wanted = planner.plan(period, world.place());
            wanted.rehomed.iter().for_each(|sent| world.move_file(sent.file, sent.to));
            day.rehomed += wanted.rehomed.len();
            apply(world, &wanted.sent, (period, 0), &mut day.moves);
            wanted.shared.iter().for_each(|shared| world.share_file(shared.file, &shared.parts));
            day.replications += wanted.shared.len();
            day.expected.push(wanted.expected);
        }
        let mut seen: Vec<f32> = vec![0.0; heat.total.len()];
        for sixth in 0..SIXTHS {
            world.pass(heat, signed(period * SIXTHS + sixth));
            let Some(planner) = planner.as_deref_mut().filter(|planner| planner.watches()) else { continue };
            seen.iter_mut().zip(&heat.sixths[sixth]).for_each(|(seen, n)| *seen += n);
            if sixth + 1 < SIXTHS {
                let sent = planner.within(period, sixth + 1, &seen, &world.measured(), world.place());
                apply(world, &sent, (period, sixth + 1), &mut day.moves);
            }
        }
        let stores = world.take();
        if let Some(planner) = planner.as_deref_mut() {
            planner.learn(period, &heat.total, &stores);
        }
        day.periods.push(stores);
    }
    day
}

fn apply(world: &mut World<'_>, sent: &[Sent], (period, sixths): (usize, usize), moves: &mut Vec<Moved>) {
    for Sent { file, to } in sent {
        let from = world.place().get(*file).copied().map(usize::from);
        if let Some(from) = from.filter(|from| from != to) {
            world.move_file(*file, *to);
            moves.push(Moved { period, sixths, file: *file, from, to: *to });
        }
    }
}
