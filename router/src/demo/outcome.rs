//! What the controller forecast and moved, beside what came.

use super::day::Day;
use crate::control::{Decided, MovedFile};
use crate::report::{ForecastPeriod, ForecastReport, MoveReport};
use std::sync::Arc;

/// Calls outstanding at a store from which on its response time says how long its queue was: as many as it is given at once.
const OUTSTANDING_SATURATED: u64 = 240;

/// Forecasts made when each hour began, with what was measured in it, and all files moved for the day.
pub(crate) fn compare(
    day: &Day,
    decisions: &[Arc<Decided>],
    first_hour: u32,
) -> (ForecastReport, Vec<MoveReport>) {
    let mut forecasts = Vec::new();
    let mut moves = Vec::new();
    for (index, record) in (0..).zip(&day.records) {
        let (period, hour) = (day.first_period + index, u64::from(first_hour) + index.unsigned_abs());
        let of_hour = || decisions.iter().filter(|decided| decided.period == period);
        for decided in of_hour().filter(|decided| decided.applied) {
            let by = if decided.sixths == 0 { "plan" } else { "guard" };
            moves.extend(decided.moves.iter().map(|file| told(file, hour, by)));
            moves.extend(decided.returns.iter().map(|file| told(file, hour, "return")));
        }
        let Some(plan) = of_hour().find(|decided| decided.sixths == 0) else { continue };
        for outlook in &plan.stores {
            let Some(response) = &outlook.after else { continue };
            let Some(store) = record.stores.iter().find(|store| store.name == outlook.store) else {
                continue;
            };
            forecasts.push(ForecastPeriod {
                hour,
                store: outlook.store.clone(),
                forecast_ms: response.median_ms,
                low66_ms: response.low66_ms,
                high66_ms: response.high66_ms,
                actual_ms: store.counts.response.mean_us().map(|us| us / 1e3),
                forecast_requests: outlook.requests,
                requests: store.counts.requests.total(),
                saturated: store.counts.outstanding_max >= OUTSTANDING_SATURATED,
            });
        }
    }
    (ForecastReport::new(forecasts), moves)
}

fn told(file: &MovedFile, hour: u64, by: &'static str) -> MoveReport {
    MoveReport {
        hour,
        file: file.path.clone().unwrap_or_else(|| format!("handle {}", file.handle)),
        from: file.from.clone(),
        to: file.to.clone(),
        by,
        reason: file.reason.clone(),
    }
}
