//! What the guard knows at the end of a period that the next plan could not know from the period as a whole: what has
//! changed within it.
//!
//! A store's model only sees what its period was in the mean. Where a store was overloaded for some sixths, its mean response
//! time is far above what belongs to its mean load, and the model would take it for slow; where it became slow within the
//! period, or was saturated, the model does not know. What it answered in the last sixth tells both apart.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::super::Controller;
use super::super::forecasts::Forecasts;
use super::super::history::History;
use super::super::reports::FileId;
use super::open::Answered;
use crate::plan::Heat;

/// Factors (log scale) on what a store takes for a request that are not worth carrying over.
const SLOW_LEAST: f64 = 0.05;
/// So many deviations of what was measured must it be off its model to be carried over.
const DEVIATIONS: f64 = 2.5;
/// The last sixth that is looked at.
const LAST_LOOK: u8 = 5;

/// What is carried over from one period to the next.
#[derive(Debug, Clone)]
pub(in super::super) struct Carry {
    period: i64,
    /// Heat of a period at the rate that its end had, by file, where something deviated.
    rest: Option<Vec<f32>>,
    /// What stores answered at the end.
    answered: BTreeMap<Arc<str>, Vec<Answered>>,
}

impl<H: History> Controller<H> {
    /// Takes what the period just closed leaves to the next.
    pub(in super::super) fn carry_over(&mut self, period: i64) {
        self.carry = None;
        let Some(open) = self.open.as_ref().filter(|open| open.forecasts.period == period) else { return };
        if open.looked() != LAST_LOOK {
            return;
        }
        let last = |name: &Arc<str>| {
            let looks = open.found.slow.get(name).filter(|slow| slow.deviates).map_or(1, |slow| slow.looks);
            let answered = open.answered(name);
            (name.clone(), answered[answered.len().saturating_sub(looks)..].to_vec())
        };
        let answered = open.up.iter().map(last).collect();
        let rest = open.rest.clone().filter(|_| open.found.deviates());
        self.carry = Some(Carry { period, rest, answered });
    }

    /// Finds out how slow stores are by what was carried over and their models as they are now.
    pub(in super::super) fn carried_slow(&mut self, period: i64) {
        let mut slow = HashMap::new();
        if let Some(carry) = self.carry.as_ref().filter(|carry| carry.period.saturating_add(1) == period) {
            for (name, answered) in &carry.answered {
                let Some(seen) = self.slowness(name, answered) else { continue };
                if seen.log.abs() > SLOW_LEAST.max(DEVIATIONS * seen.measured) {
                    slow.insert(name.clone(), seen.log);
                }
            }
        }
        self.slow = slow;
    }

    /// Heat to plan with, in the light of what was carried over.
    pub(in super::super) fn carried_heat(&self, forecasts: &Forecasts) -> Option<Heat> {
        let carry = self.carry.as_ref().filter(|c| c.period.saturating_add(1) == forecasts.period)?;
        let rest = carry.rest.as_ref()?;
        let heat = forecasts.planning.grown_to(rest.len());
        let unlisted = heat.unlisted(1);
        let rest_of = |file: FileId| rest.get(file.index()).map_or(0.0, |rest| f64::from(*rest));
        Some(heat.with_next(|file, planned| planned.max(rest_of(file)), unlisted))
    }
}
