//! Forecasts of demand: what depends neither on stores nor on where files are.

use super::decision::Note;
use super::reports::FileId;
use crate::demand::DemandForecast;
use crate::plan::Heat;

/// Normal quantile of a two-sided 66 % interval.
pub(crate) const Z66: f64 = 0.954_165;

/// Forecasts of the total and of every file. One may serve many controllers that see the same demand.
#[derive(Debug, Clone, PartialEq)]
pub struct Forecasts {
    pub(super) period: i64,
    pub(super) total: DemandForecast,
    pub(super) total_log_deviation: Vec<f64>,
    pub(super) reported: Heat,
    pub(super) planning: Heat,
    /// Heat in peaks that may come, one a column; `None` where only what is known is planned for.
    pub(super) stress: Option<Heat>,
    /// Variance of each file's next count, requests squared.
    pub(super) variance: Vec<f32>,
    /// Requests of each file in the last period; empty where that is not to be learnt from.
    pub(super) last: Box<[f32]>,
    pub(super) notes: Vec<Note>,
}

impl Forecasts {
    /// Of nothing, and why.
    pub(super) fn none(period: i64, horizon: usize, why: Note) -> Self {
        Self {
            period,
            total: DemandForecast::exact(0.0, horizon),
            total_log_deviation: vec![0.0; horizon],
            reported: Heat::new(0, horizon),
            planning: Heat::new(0, horizon),
            stress: None,
            variance: Vec::new(),
            last: Box::default(),
            notes: vec![why],
        }
    }

    /// Heat that is taken as known instead of forecast: for planners that look at the last period, or at the truth. All
    /// deviations are `log_deviation` (log scale).
    pub fn known(period: i64, heat: Heat, log_deviation: f64) -> Self {
        let totals: Vec<DemandForecast> =
            heat.totals().iter().map(|total| DemandForecast::exact(*total, 1)).collect();
        let variance = |file: usize| {
            let deviation = log_deviation * heat.at(FileId(file as u32), 1);
            (deviation * deviation).min(1e30) as f32
        };
        Self {
            period,
            total: DemandForecast::joined(&totals),
            total_log_deviation: vec![log_deviation; heat.aheads()],
            variance: (0..heat.files()).map(variance).collect(),
            planning: heat.clone(),
            stress: None,
            last: Box::default(),
            reported: heat,
            notes: Vec::new(),
        }
    }

    /// The first period ahead.
    pub fn period(&self) -> i64 {
        self.period
    }
    /// Periods ahead.
    pub fn horizon(&self) -> usize {
        self.total.horizon()
    }
    /// Files forecast, numbered from 0.
    pub fn files(&self) -> usize {
        self.reported.files()
    }
    /// All requests.
    pub fn total(&self) -> &DemandForecast {
        &self.total
    }
    /// Standard deviation of the total on the log scale, `ahead` periods ahead (from 1; beyond the last: the last).
    pub fn total_log_deviation(&self, ahead: usize) -> f64 {
        let last = self.total_log_deviation.len();
        self.total_log_deviation.get(ahead.clamp(1, last.max(1)) - 1).copied().unwrap_or(1.0)
    }
    /// Mean requests of a file, `ahead` periods ahead (1 = the next): unbiased, what reports show.
    pub fn reported(&self, file: FileId, ahead: usize) -> f64 {
        self.reported.at(file, ahead)
    }
    /// Heat of a file to plan with: on the safe side.
    pub fn planning_heat(&self, file: FileId, ahead: usize) -> f64 {
        self.planning.at(file, ahead)
    }
    /// Mean requests of all files.
    pub fn reported_heat(&self) -> &Heat {
        &self.reported
    }
    /// Heat of all files to plan with.
    pub fn planning(&self) -> &Heat {
        &self.planning
    }
    /// Standard deviation of a file's next count, requests.
    pub fn deviation(&self, file: FileId) -> f64 {
        self.variance.get(file.index()).map_or(0.0, |v| f64::from(*v).sqrt())
    }
    /// What is worth knowing about them.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }
}
