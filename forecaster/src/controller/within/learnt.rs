//! How far things are from their forecasts, as learnt from the periods that were watched.

use std::collections::HashMap;
use std::sync::Arc;

use super::super::forecasts::Forecasts;
use super::super::reports::FileId;
use super::open::{Expected, Open};
use crate::guard::{Spread, Sureness, score};

/// What the newest period weighs in the variation of sixths.
const NEWEST: f64 = 0.1;
/// The same for one file or store.
const NEWEST_OF_FILE: f64 = 0.25;
/// Files whose variation is kept; beyond it, all are learnt anew.
const FILES_MAX: usize = 1 << 14;
/// Largest squared relative deviation of a file's forecast.
const FILE_VARIANCE_MAX: f64 = 2.25;
/// Largest squared relative deviation of what is watched beside files.
const VARIANCE_MAX: f64 = 1.0;

/// How far things are from their forecasts.
#[derive(Debug, Clone)]
pub(in super::super) struct Learnt {
    /// Squared coefficient of variation of a sixth's total within a period.
    pub(super) sixth_variance: f64,
    files: HashMap<FileId, f32>,
    stores: HashMap<Arc<str>, f64>,
    pub(super) of_total: Spread,
    pub(super) of_files: Spread,
    pub(super) of_loads: Spread,
    pub(super) of_responses: Spread,
}

impl Learnt {
    pub(in super::super) fn new(sixth_variation: f64) -> Self {
        Self {
            sixth_variance: sixth_variation * sixth_variation,
            files: HashMap::new(),
            stores: HashMap::new(),
            of_total: Spread::default(),
            of_files: Spread::default(),
            of_loads: Spread::default(),
            of_responses: Spread::default(),
        }
    }

    pub(super) fn total(&self, forecasts: &Forecasts) -> Sureness {
        let deviation = forecasts.total_log_deviation(1);
        let forecast = (deviation * deviation * self.of_total.factor()).min(VARIANCE_MAX);
        Sureness { forecast, sixth: self.sixth_variance }
    }

    pub(super) fn load(&self, store: &Expected) -> Sureness {
        let forecast = (store.variance * self.of_loads.factor()).min(VARIANCE_MAX);
        let sixth = self.stores.get(&store.name).copied().unwrap_or(0.0).max(self.sixth_variance);
        Sureness { forecast, sixth }
    }

    pub(super) fn file(&self, forecasts: &Forecasts, file: FileId) -> Sureness {
        let mean = forecasts.reported(file, 1);
        let deviation = forecasts.deviation(file);
        let own = if mean > 0.0 { (deviation * deviation - mean).max(0.0) / (mean * mean) } else { 1.0 };
        let sixth = self.files.get(&file).map_or(0.0, |v| f64::from(*v)).max(self.sixth_variance);
        Sureness { forecast: (own * self.of_files.factor()).min(FILE_VARIANCE_MAX), sixth }
    }

    /// Learns from a period that is over.
    pub(in super::super) fn take(&mut self, open: &Open, period: i64, total: f64) {
        let Some(variance) = open.sixth_variance(period, total) else { return };
        let forecasts = &open.forecasts;
        let whole = |parts: &mut dyn Iterator<Item = crate::guard::Part>, sure: Sureness| {
            parts.next().map(|part| score(&part, &sure))
        };
        let bare = Self::new(self.sixth_variance.sqrt());
        self.of_total.take(whole(&mut open.parts_of_total(), bare.total(forecasts)).into_iter());
        let loads: Vec<f64> = open
            .expected()
            .iter()
            .filter_map(|store| whole(&mut open.parts_of_store(&store.name), bare.load(store)))
            .collect();
        self.of_loads.take(loads.into_iter());
        let scores: Vec<f64> = open
            .watched
            .iter()
            .filter_map(|file| whole(&mut open.parts_of_file(*file), bare.file(forecasts, *file)))
            .collect();
        self.of_files.take(scores.into_iter());
        self.of_responses.take(open.response_scores.iter().copied());
        self.sixth_variance += NEWEST * (variance - self.sixth_variance);
        if self.files.len() > FILES_MAX {
            self.files.clear();
        }
        self.stores.retain(|name, _| open.expected().iter().any(|store| store.name == *name));
        for store in open.expected() {
            if let Some(variance) = open.sixth_variance_of_store(&store.name) {
                let before = self.stores.entry(store.name.clone()).or_insert(self.sixth_variance);
                *before += NEWEST_OF_FILE * (variance - *before);
            }
        }
        for file in &open.watched {
            if let Some(variance) = open.sixth_variance_of(*file) {
                let before = self.files.entry(*file).or_insert(self.sixth_variance as f32);
                *before += (NEWEST_OF_FILE * (variance - f64::from(*before))) as f32;
            }
        }
    }
}
