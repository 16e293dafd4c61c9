//! The policies that stand side by side.

use super::best::best;
use super::demand::Demand;
use super::plexes::SimPlex;
use super::world::Routing;
use clap::ValueEnum;
use serde::Serialize;

/// Periods whose mean heat the static assignment is made for.
const STATIC_PERIODS: usize = 168;
/// Rank among the totals of these periods, from the top, of the total that it is made for: the upper tenth.
const STATIC_TOTAL_RANK: usize = 17;

/// A policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyKind {
    /// The plain hash: the base of the comparison
    Default,
    /// One assignment at the beginning, made with the stores' true capacities and the last week's heat
    Static,
    /// Each call to the next store in turn
    RoundRobin,
    /// Each call to the store that holds fewest
    LeastOutstanding,
    /// Clockwork's planner on the last period's heat
    Reactive,
    /// The paper's rule as printed
    Paper,
    /// Clockwork
    Clockwork,
    /// Clockwork without the guard
    ClockworkNoGuard,
    /// Clockwork, which may let two to four stores share a file that no single one carries (only where asked for)
    ClockworkReplicas,
    /// Clockwork, which also puts the weights in force that it learns, at most once a day (only where asked for)
    ClockworkWeights,
    /// These weights alone: no file is moved by itself (only where asked for)
    Weights,
    /// Clockwork's planner on the true heat of the period to come
    Oracle,
    /// A near-optimal assignment for each period, with true heat and true response curves, and moves for nothing
    Best,
}

impl PolicyKind {
    /// All that run unless some are chosen.
    pub const ALL: [Self; 10] = [
        Self::Default,
        Self::Static,
        Self::RoundRobin,
        Self::LeastOutstanding,
        Self::Reactive,
        Self::Paper,
        Self::Clockwork,
        Self::ClockworkNoGuard,
        Self::Oracle,
        Self::Best,
    ];

    /// Its name on the command line and in the results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Static => "static",
            Self::RoundRobin => "round-robin",
            Self::LeastOutstanding => "least-outstanding",
            Self::Reactive => "reactive",
            Self::Paper => "paper",
            Self::Clockwork => "clockwork",
            Self::ClockworkNoGuard => "clockwork-no-guard",
            Self::ClockworkReplicas => "clockwork-replicas",
            Self::ClockworkWeights => "clockwork-weights",
            Self::Weights => "weights",
            Self::Oracle => "oracle",
            Self::Best => "best",
        }
    }

    /// How its calls find their store.
    #[must_use]
    pub fn routing(self) -> Routing {
        match self {
            Self::RoundRobin => Routing::RoundRobin,
            Self::LeastOutstanding => Routing::LeastOutstanding,
            _ => Routing::Files,
        }
    }

    /// Whether it puts weights in force.
    #[must_use]
    pub fn weighs(self) -> bool {
        matches!(self, Self::ClockworkWeights | Self::Weights)
    }

    /// Whether it runs the controller.
    #[must_use]
    pub fn plans(self) -> bool {
        matches!(
            self,
            Self::Reactive
                | Self::Paper
                | Self::Clockwork
                | Self::ClockworkNoGuard
                | Self::ClockworkReplicas
                | Self::ClockworkWeights
                | Self::Weights
                | Self::Oracle
        )
    }
}

/// The static assignment: near-optimal for the last week's shares at a total that a tenth of its periods exceeded, with the
/// stores' true response curves. No other policy knows those.
#[must_use]
pub fn static_place(plex: &SimPlex, demand: &Demand) -> Vec<u16> {
    let week: Vec<&Vec<f32>> = demand.history.iter().rev().flatten().take(STATIC_PERIODS).collect();
    let mut totals: Vec<f64> = week.iter().map(|heat| heat.iter().map(|n| f64::from(*n)).sum()).collect();
    let sum: f64 = totals.iter().sum();
    totals.sort_unstable_by(|a, b| b.total_cmp(a));
    let total = totals.get(STATIC_TOTAL_RANK - 1).or(totals.last()).copied().unwrap_or(0.0);
    let mut heat = vec![0.0_f64; plex.home.len()];
    for period in &week {
        heat.iter_mut().zip(period.iter()).for_each(|(heat, n)| *heat += f64::from(*n));
    }
    let scale = if sum > 0.0 { total / sum } else { 0.0 };
    let heat: Vec<f32> = heat.iter().map(|n| (n * scale) as f32).collect();
    best(plex, &heat, 0, &[]).place
}
