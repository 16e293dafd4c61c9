//! Many files in one call, in parallel: hot ones by their own history and their share, the tail by its share.

use rayon::prelude::*;

use super::share::{Share, Total};
use super::{Demand, DemandForecast, FittedDemand};
use crate::error::ForecastError;
use crate::series::{HORIZON_PERIODS_MAX, Series};
use crate::spectrum::Workspace;

/// Most files in one call.
pub const BATCH_FILES_MAX: usize = 1 << 26;

/// A fitted total and everything that its files' forecasts have in common.
#[derive(Debug, Clone)]
pub struct Batch {
    demand: Demand,
    total: Total,
    total_means: Vec<f64>,
    period_seconds: u32,
    start_seconds: i64,
}

impl Batch {
    /// Fits `demand` to the total over `files` files and forecasts it `horizon` periods ahead.
    ///
    /// # Errors
    /// As [`Demand::fit`] and [`FittedDemand::forecast`]; [`ForecastError::TooLong`] beyond [`BATCH_FILES_MAX`].
    pub fn new(
        demand: Demand,
        total: &Series,
        files: usize,
        horizon: usize,
        ws: &mut Workspace,
    ) -> Result<(Self, FittedDemand), ForecastError> {
        if files > BATCH_FILES_MAX {
            return Err(ForecastError::TooLong { have: files, most: BATCH_FILES_MAX });
        }
        if horizon > HORIZON_PERIODS_MAX {
            return Err(ForecastError::HorizonTooLong { have: horizon, most: HORIZON_PERIODS_MAX });
        }
        let fitted = demand.fit(total, ws)?;
        let batch = Self {
            demand,
            total: Total::of(&fitted, files)?,
            total_means: fitted.forecast(horizon)?.mean().to_vec(),
            period_seconds: total.period_seconds(),
            start_seconds: total.start_seconds(),
        };
        Ok((batch, fitted))
    }

    /// Forecasts one file from its `counts` (in step with the total, NaN = missing). A file that never changed gives
    /// itself; a hot one the average of its own forecast and its share's; any other its share's.
    ///
    /// # Errors
    /// [`ForecastError::LengthMismatch`] where `counts` and the total have unlike numbers of periods,
    /// [`ForecastError::Empty`] where no count is known, what [`Series::new`] refuses.
    pub fn forecast(
        &self,
        counts: &[f64],
        hot: bool,
        ws: &mut Workspace,
    ) -> Result<DemandForecast, ForecastError> {
        let horizon = self.total_means.len();
        let mut known = counts.iter().filter(|v| !v.is_nan());
        let first = *known.next().ok_or(ForecastError::Empty)?;
        if counts.len() == self.total.periods() && known.all(|v| *v == first) {
            return Ok(DemandForecast::exact(first.max(0.0), horizon));
        }
        let share = Share::fit(counts, &self.total)?.forecast(&self.total, &self.total_means);
        if !hot {
            return Ok(share);
        }
        let series = Series::new(counts.to_vec(), self.period_seconds, self.start_seconds)?;
        let own = self.demand.fit(&series, ws)?.forecast(horizon)?;
        Ok(DemandForecast::average(own, share))
    }

    /// Forecasts `files` files on the threads of the current rayon pool. `counts` writes the history of a file (in step
    /// with the total) into a buffer and says whether the file is hot; `each` makes of a forecast what is kept of it, so
    /// that neither histories nor forecasts of all files need be in memory at once. Results are in the order of files.
    ///
    /// # Errors
    /// The first file's that could not be forecast, as [`Batch::forecast`].
    pub fn forecast_all<R: Send>(
        &self,
        files: usize,
        counts: impl Fn(usize, &mut Vec<f64>) -> bool + Sync,
        each: impl Fn(usize, DemandForecast) -> R + Sync,
    ) -> Result<Vec<R>, ForecastError> {
        (0..files)
            .into_par_iter()
            .with_min_len(64)
            .map_init(
                || (Workspace::new(), Vec::new()),
                |(ws, buffer), file| {
                    buffer.clear();
                    let hot = counts(file, buffer);
                    Ok(each(file, self.forecast(buffer, hot, ws)?))
                },
            )
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_come_back_in_order_and_add_up_to_about_the_total() {
        let n: Vec<f64> = (0..400).map(|t| 200.0 + 100.0 * (t as f64 * 0.2618).sin()).collect();
        let shares = [0.5, 0.3, 0.15, 0.05];
        let mut ws = Workspace::new();
        let (batch, fitted) =
            Batch::new(Demand::recommended(), &Series::hourly(n.clone()).unwrap(), 5, 12, &mut ws).unwrap();
        let counts = |file: usize, out: &mut Vec<f64>| {
            let share = shares.get(file).copied().unwrap_or(0.0);
            out.extend(n.iter().map(|n| share * n));
            file == 0
        };
        let means = batch.forecast_all(5, counts, |_, f| f.mean()[11]).unwrap();
        let total = fitted.forecast(12).unwrap().mean()[11];
        assert!((means.iter().sum::<f64>() / total - 1.0).abs() < 0.02, "{means:?} of {total}");
        assert!(means.is_sorted_by(|a, b| a > b) && means[4] == 0.0);
        let short = |_: usize, out: &mut Vec<f64>| {
            out.extend([1.0, 2.0]);
            false
        };
        assert!(matches!(batch.forecast_all(2, short, |_, _| ()), Err(ForecastError::LengthMismatch { .. })));
    }
}
