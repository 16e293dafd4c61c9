//! The section `[control]`: whether files are moved before load arrives, and towards which objective.
use clockwork_forecaster::plan::REPLICAS_MAX;
use std::fmt;
use std::ops::Range;

use super::History;
use super::fault::{Collector, Problem};
use super::section::{Placed, Section};

const MODE: &str = "\"off\", \"observe\" (forecasts only), \"advise\" (says what it would move) or \"control\" (moves files)";
const WEIGHTS: &str = "\"off\", \"advise\" (says which weights would suit the stores) or \"apply\" (puts them in force, in mode \"control\")";
const RULE: &str = "\"margin\" (keeps a margin below the objective) or \"paper\" (plans to just meet it)";

/// What the controller may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlMode {
    /// It does not run.
    Off,
    /// It forecasts, and moves nothing.
    Observe,
    /// It says what it would move, and moves nothing.
    Advise,
    /// It moves files.
    Control,
}

impl ControlMode {
    /// The mode in one word, as in the file.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Observe => "observe",
            Self::Advise => "advise",
            Self::Control => "control",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Off, Self::Observe, Self::Advise, Self::Control].into_iter().find(|mode| mode.word() == text)
    }
}

impl fmt::Display for ControlMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// What becomes of weights for the default rule that would suit the stores better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlWeights {
    /// They are not looked for.
    Off,
    /// They are said, at most once a day.
    Advise,
    /// In mode `control` they are put in force, a step a day.
    Apply,
}

impl ControlWeights {
    /// In one word, as in the file.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Advise => "advise",
            Self::Apply => "apply",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Off, Self::Advise, Self::Apply].into_iter().find(|weights| weights.word() == text)
    }
}

/// When and how far the controller moves files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlRule {
    /// It acts when the objective is in danger, and then plans to a margin below it.
    Margin,
    /// The rule as Clockwork's paper has it: plans to just meet the objective.
    Paper,
}

impl ControlRule {
    /// The rule in one word, as in the file.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Margin => "margin",
            Self::Paper => "paper",
        }
    }
}

/// The control loop.
#[derive(Debug, Clone, PartialEq)]
pub struct Control {
    /// What it may do; without a history it is off unless the file says otherwise.
    pub mode: ControlMode,
    /// Mean response time of a store in a period that is to be kept, in ms.
    pub objective_ms: f64,
    /// Part of the periods in which it is to be kept, 0.5 to 0.99.
    pub confidence: f64,
    /// When and how far files are moved.
    pub rule: ControlRule,
    /// Whether the running period is watched as well, and planned again when it goes otherwise than forecast.
    pub guard: bool,
    /// Stores that may share the reads of a file that no single one carries, 1 to 8; 1: files are not replicated.
    pub replicas_max: usize,
    /// What becomes of weights for the default rule that would suit the stores better.
    pub weights: ControlWeights,
    /// Periods of a day where a day is compressed; otherwise days are the calendar's.
    pub day_periods: Option<usize>,
}

impl Default for Control {
    /// The objective of Clockwork's paper: 5 ms in 66 % of the periods.
    fn default() -> Self {
        Self {
            mode: ControlMode::Observe,
            objective_ms: 5.0,
            confidence: 0.66,
            rule: ControlRule::Margin,
            guard: true,
            replicas_max: 1,
            weights: ControlWeights::Advise,
            day_periods: None,
        }
    }
}

/// Reads the section.
pub(super) fn read(
    mut section: Section<'_>,
    faults: &mut Collector<'_>,
    history: &History,
) -> (Control, ControlPlaces) {
    let mut default = Control::default();
    if history.path.is_none() {
        default.mode = ControlMode::Off;
    }
    let mode = section
        .parsed(faults, "mode", MODE, ControlMode::parse)
        .unwrap_or(Placed { value: default.mode, at: section.at() });
    let allowed = "a number of milliseconds from 0.001 to 3600000";
    let objective = section
        .number(faults, "objective_ms", default.objective_ms, allowed, |ms| (0.001..=3.6e6).contains(&ms));
    let allowed = "a number from 0.5 to 0.99";
    let confidence =
        section.number(faults, "confidence", default.confidence, allowed, |p| (0.5..=0.99).contains(&p));
    let rule = section.parsed(faults, "rule", RULE, |text| match text {
        "margin" => Some(ControlRule::Margin),
        "paper" => Some(ControlRule::Paper),
        _ => None,
    });
    let guard = section.boolean(faults, "guard", default.guard);
    let replicas_max = section.amount(faults, "replicas_max", default.replicas_max, 1..=REPLICAS_MAX);
    let weights = section.parsed(faults, "weights", WEIGHTS, ControlWeights::parse);
    let compressed = section.has("day_periods");
    let day = section.amount(faults, "day_periods", 24, 6..=8_640).value;
    section.finish(faults);
    let control = Control {
        mode: mode.value,
        objective_ms: objective.value,
        confidence: confidence.value,
        rule: rule.map_or(default.rule, |placed| placed.value),
        guard: guard.value,
        replicas_max: replicas_max.value,
        weights: weights.map_or(default.weights, |placed| placed.value),
        day_periods: compressed.then_some(day),
    };
    (control, ControlPlaces { mode: mode.at, replicas_max: replicas_max.at })
}

/// Where fields are that are looked at together with others.
#[derive(Debug)]
pub(super) struct ControlPlaces {
    mode: Range<usize>,
    replicas_max: Range<usize>,
}

/// A controller without a history would forget at every restart whose moves are its own.
pub(super) fn cross(control: &Control, history: &History, at: &ControlPlaces, faults: &mut Collector<'_>) {
    if control.mode == ControlMode::Control && history.path.is_none() {
        let what =
            "mode \"control\" needs a history: forecasts live on it, and moves have to outlive a restart";
        let advice = "set history.path, or use \"observe\" or \"advise\"".to_owned();
        faults.add(at.mode.clone(), "control.mode", Problem::Conflict { what: what.to_owned(), advice });
    }
    if control.rule == ControlRule::Paper && control.replicas_max > 1 {
        let what = "rule \"paper\" does not replicate files".to_owned();
        let advice = "leave replicas_max out, or use the rule \"margin\"".to_owned();
        faults.add(at.replicas_max.clone(), "control.replicas_max", Problem::Conflict { what, advice });
    }
}
