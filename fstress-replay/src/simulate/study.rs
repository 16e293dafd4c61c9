//! Many days: windows, seeds, plexes and policies, on as many threads as there are cores.

use super::best::best;
use super::controlled::{Controlled, forecasts};
use super::day::{self, Day};
use super::demand::{CALLS_PER_PERIOD, Demand, Jump, SIXTHS, signed};
use super::plexes::{DemandKind, PlexKind, SimPlex};
use super::policies::{PolicyKind, static_place};
use super::scale::Scale;
use super::score::{Against, Score, Summary, objective_ms};
use super::world::{Routing, World};
use anyhow::Context as _;
use clap::ValueEnum;
use clockwork_forecaster::controller::Forecasts;
use clockwork_traces::site::Site;
use clockwork_traces::workload::Workload;
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// First hours of the days, every second of which was looked at while parameters were chosen.
const WINDOWS: (u32, u32, u32) = (300, 1250, 50);

/// Which windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Windows {
    /// Those kept aside: hours 350, 450, .. 1250. No parameter was chosen by them
    Kept,
    /// Those on which parameters were chosen: hours 300, 400, .. 1200
    Tuning,
    /// More to choose parameters on, which share no hour with the others: 325, 375, .. 1225
    Between,
}

impl Windows {
    /// First hours of the days.
    #[must_use]
    pub fn starts(self) -> Vec<u32> {
        let (first, last, step) = WINDOWS;
        let (skip, every) = match self {
            Self::Tuning => (0, 2 * step),
            Self::Kept => (step, 2 * step),
            Self::Between => (step / 2, step),
        };
        (first + skip..=last).step_by(every as usize).collect()
    }
}

/// What to simulate.
#[derive(Debug, Clone)]
pub struct Study {
    /// First hours of the days.
    pub starts: Vec<u32>,
    /// Seeds.
    pub seeds: Vec<u64>,
    /// Plexes.
    pub plexes: Vec<PlexKind>,
    /// Policies reported; those that they are held against run in any case.
    pub policies: Vec<PolicyKind>,
    /// Sites with their weights instead of the bundled ones.
    pub sites: Option<Vec<(Site, f64)>>,
    /// More stores and files than the comparison's.
    pub scale: Option<Scale>,
}

/// `count` of these, spread evenly.
#[must_use]
pub fn spread(starts: &[u32], count: usize) -> Vec<u32> {
    let count = count.min(starts.len());
    (0..count).map(|index| starts[index * starts.len() / count]).collect()
}

/// One demand: what plexes with the same demand share.
struct Shared {
    workload: Workload,
    demand: Demand,
    jumps: Vec<Jump>,
    forecasts: Vec<Arc<Forecasts>>,
    seed: u64,
    scale: Option<Scale>,
}

impl Shared {
    fn new(study: &Study, kind: DemandKind, start: u32, seed: u64) -> anyhow::Result<Self> {
        let workload = match (&study.sites, &study.scale) {
            (Some(sites), _) => Workload::new(sites.clone(), seed)?,
            (None, Some(scale)) => Workload::new(scale.sites(kind, start, seed)?, seed)?,
            (None, None) => kind.workload(start, seed)?,
        };
        let calls = study.scale.map_or(CALLS_PER_PERIOD, |scale| scale.calls_per_period());
        let jumps = kind.jumps(&workload, PlexKind::Tight.capacities().len(), seed, start);
        let hot = kind.hot(&workload, seed);
        let demand =
            Demand::draw_scaled(&workload, (start, calls), seed, hot, &jumps).with_context(|| {
                format!("the workload lacks hours of the day from hour {start}, or of the day before")
            })?;
        let forecasts =
            if study.policies.iter().any(|policy| policy.plans()) { forecasts(&demand)? } else { Vec::new() };
        Ok(Self { workload, demand, jumps, forecasts, seed, scale: study.scale })
    }

    fn world<'a>(&self, plex: &'a SimPlex, routing: Routing) -> World<'a> {
        World::new(plex, routing, self.workload.files().iter().map(|file| file.bytes), self.seed)
    }

    fn plex(&self, kind: PlexKind) -> anyhow::Result<SimPlex> {
        let (workload, demand, jumps) = (&self.workload, &self.demand, self.jumps.clone());
        Ok(match &self.scale {
            None => SimPlex::of_kind(kind, workload, demand, self.seed, jumps)?,
            Some(scale) => {
                SimPlex::fit(&scale.capacities(kind), kind.servers(), workload, demand, self.seed, jumps)?
            }
        })
    }

    /// All policies' days on one plex.
    fn run(&self, kind: PlexKind, policies: &[PolicyKind]) -> anyhow::Result<Vec<(PolicyKind, Score)>> {
        let plex = self.plex(kind)?;
        let mut world = self.world(&plex, Routing::Files);
        let before = day::learn(&self.demand, &mut world);
        let base = day::pass(&self.demand, &mut world.clone(), None);
        let x = objective_ms(&base);
        let statically = static_place(&plex, &self.demand);
        let best_day = self.best_day(&plex, &world, &statically);
        let run = |policy: PolicyKind| -> anyhow::Result<Day> {
            match policy {
                PolicyKind::Default => Ok(base.clone()),
                PolicyKind::Best => Ok(best_day.clone()),
                PolicyKind::Static => {
                    let mut world = world.clone();
                    world.place_warm(&statically);
                    Ok(day::pass(&self.demand, &mut world, None))
                }
                PolicyKind::RoundRobin | PolicyKind::LeastOutstanding => {
                    Ok(day::pass(&self.demand, &mut self.world(&plex, policy.routing()), None))
                }
                _ => {
                    let mut planner =
                        Controlled::new(policy, &plex, &self.demand, &self.forecasts, &before, x)?;
                    Ok(day::pass(&self.demand, &mut world.clone(), Some(&mut planner)))
                }
            }
        };
        let held_against_reactive = policies.iter().any(|policy| policy.plans());
        let reactive = held_against_reactive.then(|| run(PolicyKind::Reactive)).transpose()?;
        let disturbed =
            |period: usize, sixth: usize| self.jumps.iter().any(|jump| jump.on(period * SIXTHS + sixth));
        let against = Against {
            base: &base,
            best: &best_day,
            reactive: reactive.as_ref(),
            objective_ms: x,
            disturbed: &disturbed,
        };
        let scored = |policy: &PolicyKind| {
            let day = match (&reactive, policy) {
                (Some(day), PolicyKind::Reactive) => day.clone(),
                _ => run(*policy)?,
            };
            Ok((*policy, Score::of(&day, &against)))
        };
        policies.iter().map(scored).collect()
    }

    fn best_day(&self, plex: &SimPlex, world: &World<'_>, statically: &[u16]) -> Day {
        let mut world = world.clone();
        let mut all = Day::default();
        let mut last: Vec<u16> = statically.to_vec();
        for (period, heat) in self.demand.day.iter().enumerate() {
            let found = best(plex, &heat.total, period, &[&last, statically, &plex.home]);
            world.place_warm(&found.place);
            for sixth in 0..SIXTHS {
                world.pass(heat, signed(period * SIXTHS + sixth));
            }
            all.periods.push(world.take());
            last = found.place;
        }
        all
    }
}

impl Study {
    /// Runs it; `step` is called after each day of one demand, with how many there are.
    ///
    /// # Errors
    /// Hours that a workload does not have.
    pub fn run(&self, step: &(dyn Fn(usize) + Sync)) -> anyhow::Result<Vec<Summary>> {
        let mut kinds: Vec<DemandKind> = Vec::new();
        for kind in self.plexes.iter().map(|plex| plex.demand()) {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        let tasks: Vec<(DemandKind, u32, u64)> = self
            .seeds
            .iter()
            .flat_map(|seed| self.starts.iter().map(move |start| (*start, *seed)))
            .flat_map(|(start, seed)| kinds.iter().map(move |kind| (*kind, start, seed)))
            .collect();
        let count = tasks.len();
        let one = |(kind, start, seed): &(DemandKind, u32, u64)| {
            let shared = Shared::new(self, *kind, *start, *seed)?;
            let mut scores = Vec::new();
            for plex in self.plexes.iter().filter(|plex| plex.demand() == *kind) {
                scores.extend(
                    shared
                        .run(*plex, &self.policies)?
                        .into_iter()
                        .map(|(policy, score)| ((*plex, policy), score)),
                );
            }
            step(count);
            Ok(scores)
        };
        let all: Vec<Vec<((PlexKind, PolicyKind), Score)>> =
            tasks.par_iter().map(one).collect::<anyhow::Result<_>>()?;
        let mut grouped: BTreeMap<(PlexKind, PolicyKind), Vec<&Score>> = BTreeMap::new();
        for (key, score) in all.iter().flatten() {
            grouped.entry(*key).or_default().push(score);
        }
        Ok(grouped
            .into_iter()
            .map(|((plex, policy), scores)| Summary::of(policy.name(), plex.name(), &scores))
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn study(policies: &[PolicyKind]) -> Study {
        Study {
            starts: vec![400],
            seeds: vec![1],
            plexes: vec![PlexKind::Tight, PlexKind::TightBatch, PlexKind::Loose],
            policies: policies.to_vec(),
            sites: None,
            scale: None,
        }
    }

    #[test]
    fn windows_for_choosing_and_those_kept_aside_have_none_in_common() {
        let (kept, tuning) = (Windows::Kept.starts(), Windows::Tuning.starts());
        assert_eq!((kept.len(), tuning.len()), (10, 10));
        let between = Windows::Between.starts();
        assert_eq!(between.len(), 19);
        let mut hours: Vec<u32> =
            [&kept, &tuning, &between].into_iter().flatten().flat_map(|start| *start..start + 24).collect();
        hours.sort_unstable();
        assert!(hours.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(spread(&kept, 8), [350, 450, 550, 650, 850, 950, 1050, 1150]);
        assert_eq!(spread(&kept, 99), kept);
    }

    #[test]
    fn a_study_is_the_same_every_time_and_what_it_leaves_out_changes_nothing() {
        let all =
            study(&[PolicyKind::Default, PolicyKind::Clockwork, PolicyKind::Best]).run(&|_| ()).unwrap();
        let again = study(&[PolicyKind::Clockwork]).run(&|_| ()).unwrap();
        assert_eq!((all.len(), again.len()), (9, 3));
        for summary in &again {
            assert_eq!(summary.days, 1);
            assert!(all.contains(summary), "{summary:?}");
        }
        for summary in &all {
            match summary.policy.as_str() {
                "default" => assert_eq!((summary.periods_met, summary.harmed), (13.0, 0.0)),
                "best" => assert_eq!(summary.ratio_to_best, 1.0),
                _ => assert!(summary.moves > 0.0 && summary.ratio_to_best > 0.95),
            }
        }
    }

    #[test]
    fn learnt_weights_help_unlike_stores_without_moving_a_file_by_itself() {
        let policies = [PolicyKind::Default, PolicyKind::Weights, PolicyKind::ClockworkWeights];
        let all = study(&policies).run(&|_| ()).unwrap();
        let of = |plex: &str, policy: &str| {
            all.iter().find(|summary| summary.plex == plex && summary.policy == policy).unwrap()
        };
        let sum = |policy: &str, of_one: fn(&Summary) -> f64| {
            ["loose", "tight", "tight-batch"].iter().map(|plex| of_one(of(plex, policy))).sum::<f64>()
        };
        assert_eq!(sum("default", |s| s.rehomed), 0.0);
        assert_eq!(sum("weights", |s| s.moves), 0.0);
        assert!(sum("clockwork-weights", |s| s.moves) > 0.0);
        let rehomed = sum("weights", |s| s.rehomed);
        assert!((60.0..1_200.0).contains(&rehomed), "{rehomed} files in three days");
        assert_eq!(
            rehomed,
            sum("clockwork-weights", |s| s.rehomed),
            "the same weights, whatever else is done"
        );
        let ratio = |policy| sum(policy, |s| s.ratio_to_best);
        assert!(ratio("weights") < 0.98 * ratio("default"), "{} {}", ratio("weights"), ratio("default"));
    }
}
