//! Tracks demand: the fitted total, hot files and shares.
use super::forecasts::Forecasts;
use super::history::History;
/// Tracks demand.
#[derive(Debug)]
pub(super) struct Tracker;
