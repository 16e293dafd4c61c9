//! How files are moved.

use crate::objective::Objective;

/// How the plan decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Rule {
    /// The paper's, as printed: files of an overloaded store in descending heat to the best other store, one period
    /// ahead, until the objective is just met at its confidence.
    Paper,
    /// Begins at a quantile, looks several periods ahead, and goes on to a margin or to balance.
    #[default]
    Margin,
}

/// Most stores that may share the reads of a file.
pub const REPLICAS_MAX: usize = 8;

/// How files are moved.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlanSettings {
    /// Which rule.
    pub rule: Rule,
    /// Normal quantile of the response time that begins a plan ([`Rule::Margin`]).
    pub trigger_z: f64,
    /// Share of the objective that is planned to ([`Rule::Margin`]).
    pub margin: f64,
    /// By what share the higher of two stores' response times must fall for a move to count.
    pub least_gain: f64,
    /// By what share the highest response time of all must fall for a plan to count that does not meet the objective
    /// ([`Rule::Margin`]).
    pub plan_gain: f64,
    /// Most files moved and given back in a period.
    pub moves_max: usize,
    /// Most of these moves that prepare for peaks that were seen in the last week and are not forecast
    /// ([`Rule::Margin`]); 0: none.
    pub prepare_moves_max: usize,
    /// Least heat worth moving, as a share of all heat; with more than four stores it shrinks in proportion.
    pub heat_min: f64,
    /// A file is given back where its home stays below this share of the objective; `None`: never.
    pub give_back: Option<f64>,
    /// Periods that a file is kept where it was moved to, before it may be given back.
    pub keep_periods: usize,
    /// Periods in which a file does not go back to a store that it left.
    pub settle_periods: usize,
    /// Stores that may share the reads of a file that no single one carries; 1: files are not replicated.
    pub replicas_max: usize,
}

impl Default for PlanSettings {
    fn default() -> Self {
        Self {
            rule: Rule::Margin,
            trigger_z: 0.84,
            margin: 0.7,
            least_gain: 0.01,
            plan_gain: 0.05,
            moves_max: 40,
            prepare_moves_max: 5,
            heat_min: 0.001,
            give_back: Some(0.6),
            keep_periods: 24,
            settle_periods: 6,
            replicas_max: 1,
        }
    }
}

/// A setting of the plan out of its range.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("plan.{field} = {value} is out of range; allowed are {least} to {most}")]
pub struct PlanSettingsError {
    /// The field.
    pub field: &'static str,
    /// What was asked for.
    pub value: f64,
    /// Least allowed.
    pub least: f64,
    /// Most allowed.
    pub most: f64,
}

impl PlanSettings {
    /// The paper's rule with the other settings as they are by default.
    pub fn paper() -> Self {
        Self { rule: Rule::Paper, give_back: None, ..Self::default() }
    }

    /// Checks them.
    ///
    /// # Errors
    /// [`PlanSettingsError`], the first that is wrong.
    pub fn check(&self) -> Result<(), PlanSettingsError> {
        let ranges = [
            ("trigger_z", self.trigger_z, -4.0, 4.0),
            ("margin", self.margin, 0.01, 1.0),
            ("least_gain", self.least_gain, 0.0, 1.0),
            ("plan_gain", self.plan_gain, 0.0, 1.0),
            ("moves_max", self.moves_max as f64, 0.0, 1e6),
            ("prepare_moves_max", self.prepare_moves_max as f64, 0.0, 1e6),
            ("heat_min", self.heat_min, 0.0, 1.0),
            ("give_back", self.give_back.unwrap_or(0.0), 0.0, 1.0),
            ("keep_periods", self.keep_periods as f64, 0.0, 1e6),
            ("settle_periods", self.settle_periods as f64, 0.0, 1e4),
            ("replicas_max", self.replicas_max as f64, 1.0, REPLICAS_MAX as f64),
        ];
        for (field, value, least, most) in ranges {
            if !(least..=most).contains(&value) {
                return Err(PlanSettingsError { field, value, least, most });
            }
        }
        Ok(())
    }

    /// Normal quantile that response times are planned at.
    pub fn z(&self, objective: &Objective) -> f64 {
        match self.rule {
            Rule::Paper => objective.z(),
            Rule::Margin => self.trigger_z,
        }
    }
}
