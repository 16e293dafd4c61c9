//! What a plan is made from, and what it is.

use super::curve::LoadCurve;
use super::heat::Heat;
use super::past::Past;
use super::payoff::{Outlook, Proposal};
use super::prepare::Stress;
use super::replicas::Replication;
use super::settings::PlanSettings;
use crate::controller::{By, Move, Note, PlexView};
use crate::objective::Objective;

/// Everything that a plan is made from.
#[derive(Clone, Copy)]
pub struct Problem<'a> {
    /// Heat of every file in the periods ahead.
    pub heat: &'a Heat,
    /// Response against load at the quantile planned with ([`PlanSettings::z`]), one a store of the view; `None`: nothing
    /// is known of the store. It keeps what it has and gets nothing.
    pub curves: &'a [Option<LoadCurve>],
    /// The plex as it is.
    pub view: PlexView<'a>,
    /// What to hold.
    pub objective: Objective,
    /// How files are moved.
    pub settings: &'a PlanSettings,
    /// Load of each store that stays where it is, `[store][ahead - 1]`, beside `heat`; empty: none.
    pub fixed: &'a [Vec<f64>],
    /// What was moved before.
    pub past: &'a Past,
    /// The period planned for.
    pub period: i64,
    /// In whose name.
    pub by: By,
    /// Peaks that the layout is to stand, forecast or not; `None`: only what is forecast is planned for.
    pub stress: Option<&'a Stress<'a>>,
    /// What is expected of the stores, which moves are to make better ([`Rule::Margin`](super::Rule)); `None`: moves need not pay.
    pub outlook: Option<&'a Outlook<'a>>,
}

/// What is to be moved.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Plan {
    /// Files to move.
    pub moves: Vec<Move>,
    /// Files to give back to the default rule.
    pub returns: Vec<Move>,
    /// Planned load of every store of the view in every period ahead, if nothing is moved, `[store][ahead - 1]`.
    pub loads_before: Vec<Vec<f64>>,
    /// The same after the moves.
    pub loads_after: Vec<Vec<f64>>,
    /// Files whose reads several stores are to share, or one alone again.
    pub replications: Vec<Replication>,
    /// Moves that were held against the outlook, made or not.
    pub proposals: Vec<Proposal>,
    /// What is worth knowing.
    pub notes: Vec<Note>,
}
