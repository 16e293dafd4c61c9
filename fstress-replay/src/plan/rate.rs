//! How many requests give a rate of calls.

use super::{Model, Pace, Phase, Schedule};
use clockwork_traces::workload::{Workload, WorkloadError};
use std::sync::Arc;

/// Calls of a schedule that are counted to learn how many a request makes.
const SAMPLE_CALLS_MAX: u64 = 400_000;
/// How often: what the caches let through depends on the rate, but not much.
const SAMPLES: usize = 3;
/// Calls of a request before any were counted.
const FIRST_GUESS: f64 = 3.0;

/// A rate of NFS calls.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rate {
    /// So many a second in the mean over all measured hours.
    Mean(f64),
    /// So many a second in the busiest of them.
    Peak(f64),
}

impl Rate {
    /// The factor with which a workload has this rate at a pace, whatever the pace's own factor is. For other models than
    /// [`Model::Calls`], and where requests write, it is found by counting calls of schedules from their beginning on, and so
    /// is near the rate, not equal to it.
    ///
    /// # Errors
    /// The workload lacks an hour, or has no sensible number of requests at such a rate.
    pub fn factor(self, workload: &Arc<Workload>, pace: &Pace) -> Result<f64, WorkloadError> {
        let (hours, seconds) = (pace.hours.clone(), pace.hour_length.as_secs_f64());
        let reads_only = pace.kinds.as_ref().is_none_or(|kinds| kinds.reads_only());
        match (pace.model, self) {
            (Model::Calls, Self::Mean(rate)) if reads_only => {
                pace.mapping.factor_for_mean(workload, hours, seconds, rate)
            }
            (Model::Calls, Self::Peak(rate)) if reads_only => {
                pace.mapping.factor_for_peak(workload, hours, seconds, rate)
            }
            _ => {
                let requests: Vec<f64> =
                    hours.map(|hour| workload.requests(hour)).collect::<Result<_, _>>()?;
                let (Self::Mean(rate) | Self::Peak(rate)) = self;
                // Calls of a request in each hour.
                let mut calls = vec![FIRST_GUESS; requests.len()];
                let factor = |calls: &[f64]| {
                    let hours = requests.iter().zip(calls).map(|(requests, calls)| requests * calls);
                    let of_hour = match self {
                        Self::Mean(_) => hours.sum::<f64>() / requests.len().max(1) as f64,
                        Self::Peak(_) => hours.fold(0.0, f64::max),
                    };
                    super::ratio(rate * seconds, of_hour)
                };
                for _ in 0..SAMPLES {
                    calls =
                        calls_per_request(workload, Pace { factor: factor(&calls), ..pace.clone() }, &calls)?;
                }
                Ok(factor(&calls))
            }
        }
    }
}

/// Calls that a request makes in the mean in each measured hour: counted from the first one on, as far as the sample goes;
/// those of the last hour counted for the rest, and as `known` where none was.
fn calls_per_request(workload: &Arc<Workload>, pace: Pace, known: &[f64]) -> Result<Vec<f64>, WorkloadError> {
    let first = pace.hours.start;
    let mut counts = vec![(0_u64, 0_u64); known.len()];
    let mut left = SAMPLE_CALLS_MAX;
    for call in Schedule::new(workload, pace)?.filter(|call| call.phase == Phase::Run) {
        let Some((calls, requests)) = counts.get_mut(call.hour.saturating_sub(first) as usize) else {
            continue;
        };
        *calls += u64::from(call.operation.is_some());
        *requests += u64::from(call.first);
        left -= 1;
        if left == 0 {
            break;
        }
    }
    let mut last = None;
    let of_hour = |((calls, requests), known): (&(u64, u64), &f64)| {
        if *requests > 0 {
            last = Some(*calls as f64 / *requests as f64);
        }
        last.unwrap_or(*known)
    };
    Ok(counts.iter().zip(known).map(of_hour).collect())
}
