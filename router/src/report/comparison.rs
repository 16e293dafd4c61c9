//! Three passes of one day side by side: the default rule, one static assignment, and Clockwork. What the paper measured.

use serde::Serialize;

use super::model::{PeriodReport, Report};
use crate::heat::PeriodRecord;

/// A period is harmed that is over the objective and this many times as slow as without control.
pub const HARM_RATIO: f64 = 1.05;
/// The objective is the base pass's so many-th highest hourly maximum.
pub const OBJECTIVE_RANK: usize = 12;
/// Names of the passes in tables and charts, in order.
pub const PASSES: [&str; 3] = ["default rule", "static", "Clockwork"];

/// The objective: for each store's mean response time in each period.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Objective {
    /// At most so many milliseconds.
    pub ms: f64,
    /// In this part of the periods.
    pub confidence: f64,
}

/// One period of a pass.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PassPeriod {
    /// What was measured.
    #[serde(flatten)]
    pub period: PeriodReport,
    /// Whether every store was within the objective.
    pub met: bool,
    /// Whether it was over the objective and [`HARM_RATIO`] times as slow as in the base pass.
    pub harmed: bool,
}

/// One pass.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PassReport {
    /// Its periods.
    pub periods: Vec<PassPeriod>,
    /// Periods that met the objective.
    pub met: usize,
    /// Periods that missed it.
    pub missed: usize,
    /// Periods that were harmed.
    pub harmed: usize,
    /// The worst period's maximum of the stores' mean response times, milliseconds.
    pub worst_ms: f64,
    /// The same over the base pass's.
    pub worst_over_base: f64,
}

/// What was forecast of a store in a period, and what came.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ForecastPeriod {
    /// The period's number.
    pub hour: u64,
    /// The store.
    pub store: String,
    /// Median of the forecast of its mean response time, milliseconds.
    pub forecast_ms: f64,
    /// Lower and upper end of its 66 % interval, milliseconds.
    pub low66_ms: f64,
    /// See `low66_ms`.
    pub high66_ms: f64,
    /// What was measured, milliseconds; absent if it answered nothing.
    pub actual_ms: Option<f64>,
    /// Requests that were forecast.
    pub forecast_requests: f64,
    /// Requests that came.
    pub requests: u64,
    /// Whether the store was saturated: then its response time says how long the queue was, not how fast it is.
    pub saturated: bool,
}

/// How good the forecasts were, over store-periods that were not saturated.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ForecastReport {
    /// Store-periods that were compared.
    pub compared: usize,
    /// Mean absolute error over the actual value.
    pub mape: Option<f64>,
    /// Median absolute error over the actual value.
    pub median_error: Option<f64>,
    /// Part of the actual values within the 66 % interval.
    pub coverage66: Option<f64>,
    /// Mean absolute error of the forecast of requests over the actual value.
    pub requests_mape: Option<f64>,
    /// All store-periods.
    pub periods: Vec<ForecastPeriod>,
}

/// A file that was moved.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MoveReport {
    /// The period for which it was moved.
    pub hour: u64,
    /// Its path, or its handle where the path is not known.
    pub file: String,
    /// The store before; absent where none served it.
    pub from: String,
    /// The store from then on.
    pub to: String,
    /// `plan`, `guard` or `return` (back to the default rule).
    pub by: &'static str,
    /// Why.
    pub reason: String,
}

/// Everything beside the base pass.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The objective, from the base pass.
    pub objective: Objective,
    /// The default rule.
    pub base: PassReport,
    /// One assignment by the stores' speeds, at the start.
    #[serde(rename = "static")]
    pub fixed: PassReport,
    /// Clockwork.
    pub adjusted: PassReport,
    /// Its forecasts of the stores' response times.
    pub forecast: ForecastReport,
    /// Its moves.
    pub moves: Vec<MoveReport>,
}

/// The whole measurement, as JSON: the base pass's report, and the comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measurement {
    /// The base pass; its periods are those of `base`.
    #[serde(flatten)]
    pub report: Report,
    /// All passes.
    #[serde(flatten)]
    pub comparison: Comparison,
}

impl Measurement {
    /// The measurement as indented JSON.
    ///
    /// # Errors
    /// None in practice: all numbers in it are finite.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self)
    }
}

/// The objective of a day: what the base pass misses in [`OBJECTIVE_RANK`] - 1 of its periods.
#[must_use]
pub fn objective_ms(records: &[PeriodRecord]) -> Option<f64> {
    let mut maxima: Vec<f64> = records.iter().filter_map(maximum_ms).collect();
    maxima.sort_by(|a, b| b.total_cmp(a));
    maxima.get(OBJECTIVE_RANK - 1).copied()
}

/// The longest of the stores' mean response times, milliseconds.
pub(super) fn maximum_ms(record: &PeriodRecord) -> Option<f64> {
    let means = record.stores.iter().filter_map(|store| store.counts.response.mean_us());
    means.fold(None, |max: Option<f64>, us| Some(max.map_or(us, |max| max.max(us)))).map(|us| us / 1e3)
}

impl PassReport {
    fn new(report: &Report, base: &Report, objective_ms: f64) -> Self {
        let maximum = |period: &PeriodReport| period.max_mean_response_ms.unwrap_or(0.0);
        let periods: Vec<PassPeriod> = (report.periods.iter().zip(&base.periods))
            .map(|(period, base)| {
                let met = maximum(period) <= objective_ms;
                let harmed = !met && maximum(period) > HARM_RATIO * maximum(base);
                PassPeriod { period: period.clone(), met, harmed }
            })
            .collect();
        let worst = |report: &Report| report.periods.iter().map(maximum).fold(0.0, f64::max);
        let count = |what: fn(&PassPeriod) -> bool| periods.iter().filter(|period| what(period)).count();
        let base_worst = worst(base);
        Self {
            met: count(|period| period.met),
            missed: count(|period| !period.met),
            harmed: count(|period| period.harmed),
            worst_ms: worst(report),
            worst_over_base: if base_worst > 0.0 { worst(report) / base_worst } else { 1.0 },
            periods,
        }
    }
}

impl ForecastReport {
    /// Compares forecasts with what came.
    #[must_use]
    pub fn new(periods: Vec<ForecastPeriod>) -> Self {
        let pairs: Vec<(&ForecastPeriod, f64)> = (periods.iter())
            .filter(|period| !period.saturated && period.forecast_ms.is_finite())
            .filter_map(|period| Some((period, period.actual_ms.filter(|ms| *ms > 0.0)?)))
            .collect();
        let mut errors: Vec<f64> =
            pairs.iter().map(|(period, actual)| (period.forecast_ms - actual).abs() / actual).collect();
        errors.sort_by(f64::total_cmp);
        let within = pairs.iter().filter(|(p, actual)| (p.low66_ms..=p.high66_ms).contains(actual)).count();
        let requests: Vec<f64> = (periods.iter().filter(|period| period.requests > 0))
            .map(|period| (period.forecast_requests / period.requests as f64 - 1.0).abs())
            .collect();
        let mean =
            |values: &[f64]| (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
        Self {
            compared: pairs.len(),
            mape: mean(&errors),
            median_error: median(&errors),
            coverage66: (!pairs.is_empty()).then(|| within as f64 / pairs.len() as f64),
            requests_mape: mean(&requests),
            periods,
        }
    }
}

/// The median of sorted values.
fn median(sorted: &[f64]) -> Option<f64> {
    let (low, high) = (sorted.get(sorted.len().checked_sub(1)? / 2)?, sorted.get(sorted.len() / 2)?);
    Some(f64::midpoint(*low, *high))
}

impl Comparison {
    /// Compares the three passes.
    #[must_use]
    pub fn new(
        objective: Objective,
        [base, fixed, adjusted]: [&Report; 3],
        forecast: ForecastReport,
        moves: Vec<MoveReport>,
    ) -> Self {
        let pass = |report| PassReport::new(report, base, objective.ms);
        Self { base: pass(base), fixed: pass(fixed), adjusted: pass(adjusted), objective, forecast, moves }
    }

    /// The passes in the order of [`PASSES`].
    #[must_use]
    pub fn passes(&self) -> [&PassReport; 3] {
        [&self.base, &self.fixed, &self.adjusted]
    }

    /// Periods for which files were moved by plan or guard, and how many files that were.
    #[must_use]
    pub fn moved(&self) -> (usize, usize) {
        let mut hours: Vec<u64> =
            self.moves.iter().filter(|file| file.by != "return").map(|file| file.hour).collect();
        let files = hours.len();
        hours.dedup();
        (hours.len(), files)
    }

    /// What the paper reports, and the same of this day: name, paper, here.
    #[must_use]
    pub fn beside_the_paper(&self) -> Vec<[String; 3]> {
        let row = |what: &str, paper: &str, here: String| [what.to_owned(), paper.to_owned(), here];
        let per_cent =
            |part: Option<f64>| part.map_or_else(|| "–".into(), |part| format!("{:.1} %", part * 100.0));
        let (hours, files) = self.moved();
        let hours_of_24 = self.base.periods.len();
        let from = self.moved_from();
        vec![
            row("periods", "24 of an hour, from hour 622", format!("{hours_of_24}, the same hours")),
            row(
                "objective missed with the default rule",
                "in 11 periods files were moved",
                format!("in {} periods (so chosen)", self.base.missed),
            ),
            row("periods with moves", "11 of 24", format!("{hours} of {hours_of_24}, {files} files")),
            row("moved from", "store 2 in 10 periods, store 3 in 3, both in 2", from),
            row(
                "objective reached",
                "in nearly all periods; missed by more than the error of their measurement in 2",
                format!(
                    "in {} of {hours_of_24}; with one static assignment in {}",
                    self.adjusted.met, self.fixed.met
                ),
            ),
            row(
                "worst period's maximum over that of the default rule",
                "nearly halved",
                format!("{:.2}; static {:.2}", self.adjusted.worst_over_base, self.fixed.worst_over_base),
            ),
            row(
                "made worse",
                "slightly, in 2 periods of false alarm",
                format!("{} periods harmed; static {}", self.adjusted.harmed, self.fixed.harmed),
            ),
            row(
                "forecast of response times",
                "acceptably close",
                format!(
                    "median error {}, mean {}; {} within the 66 % interval",
                    per_cent(self.forecast.median_error),
                    per_cent(self.forecast.mape),
                    per_cent(self.forecast.coverage66)
                ),
            ),
        ]
    }

    fn moved_from(&self) -> String {
        let mut stores: Vec<(&str, Vec<u64>)> = Vec::new();
        for file in self.moves.iter().filter(|file| file.by != "return") {
            match stores.iter_mut().find(|(name, _)| *name == file.from) {
                Some((_, hours)) if hours.last() == Some(&file.hour) => {}
                Some((_, hours)) => hours.push(file.hour),
                None => stores.push((&file.from, vec![file.hour])),
            }
        }
        let told: Vec<String> =
            stores.iter().map(|(name, hours)| format!("{name} in {} periods", hours.len())).collect();
        if told.is_empty() { "no store".into() } else { told.join(", ") }
    }
}
