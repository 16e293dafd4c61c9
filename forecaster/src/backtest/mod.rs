//! Backtests: how good the forecasts would have been, measured the way the field measures.
//!
//! A [`Case`] is a history and the future that followed it. [`run`] forecasts the future of every case, either all of
//! it from the end of the history ([`Walk::FixedOrigin`]) or one period ahead all along it with the model fitted anew
//! every so often ([`Walk::OneStep`]), and compares with the peers of [`Peer`].

pub mod measures;
mod peers;
pub mod read;

pub use peers::{Peer, PeerForecast};

use crate::demand::{Demand, DemandForecast};
use crate::error::ForecastError;
use crate::series::{Cycles, Series, fill_counts};
use crate::spectrum::Workspace;

/// Quantile levels of the pinball loss: the ones that plans are made at.
pub const PINBALL_LEVELS: [f64; 4] = [0.5, 0.66, 0.83, 0.95];

/// One series of a backtest.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// Its name.
    pub name: String,
    /// Values to learn from, oldest first, NaN = missing.
    pub history: Vec<f64>,
    /// Values that followed, NaN = missing (not measured against).
    pub future: Vec<f64>,
}

impl Case {
    /// A case out of one series, whose future begins at period `from`.
    pub fn split(name: String, mut values: Vec<f64>, from: usize) -> Self {
        let future = values.split_off(from.min(values.len()));
        Self { name, history: values, future }
    }
}

/// How a backtest walks through the future of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Walk {
    /// All periods of it, at most `horizon`, are forecast from the end of the history.
    FixedOrigin {
        /// Periods ahead.
        horizon: usize,
    },
    /// Every period is forecast from all before it; the model is fitted anew every `refit_periods`.
    OneStep {
        /// Periods between fits; between them parameters are kept.
        refit_periods: usize,
    },
}

/// What to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backtest {
    /// The forecaster.
    pub demand: Demand,
    /// How to walk.
    pub walk: Walk,
    /// Periods in a season: scales errors, and is the season of the peers.
    pub season: usize,
    /// Length of a period in seconds.
    pub period_seconds: u32,
    /// Whether the peers are run too (OWA needs Naive2).
    pub peers: bool,
}

/// Accuracy over all cases: each measure is taken per case and averaged over those where it exists (MASE does not
/// where the history never changes).
#[derive(Debug, Clone, PartialEq)]
pub struct Accuracy {
    /// Who forecast.
    pub name: &'static str,
    /// Number of cases.
    pub series: usize,
    /// sMAPE of the median, per cent.
    pub smape: f64,
    /// MASE of the median.
    pub mase: f64,
    /// OWA against Naive2; NaN where the peers were not run.
    pub owa: f64,
    /// Share of outcomes within the two-sided 66 % limits.
    pub coverage66: f64,
    /// Share within the two-sided 95 % limits.
    pub coverage95: f64,
    /// Mean scaled interval score of the 95 % limits.
    pub msis95: f64,
    /// Mean absolute error of the median.
    pub mae: f64,
    /// Root mean squared error of the mean.
    pub rmse: f64,
    /// Mean of (mean forecast minus outcome).
    pub bias: f64,
    /// Pinball loss, averaged over [`PINBALL_LEVELS`].
    pub pinball: f64,
    /// Time to fit and forecast a case, milliseconds; NaN for peers.
    pub ms_per_series: f64,
}

/// What a backtest found.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The forecaster's accuracy.
    pub ours: Accuracy,
    /// The peers', where they were run.
    pub peers: Vec<Accuracy>,
}

/// The forecasts of one case that measures are taken of.
struct Forecasts {
    median: Vec<f64>,
    mean: Vec<f64>,
    limits66: (Vec<f64>, Vec<f64>),
    limits95: (Vec<f64>, Vec<f64>),
    quantiles: [Vec<f64>; 4],
}

/// Runs `backtest` over `cases`. `clock` gives seconds from any fixed point; time is taken of the forecaster's fits and
/// forecasts only.
///
/// # Errors
/// [`ForecastError::Empty`] for a case without a known value in its history, or no case;
/// [`ForecastError::HorizonTooLong`]; what [`Series::new`] refuses.
pub fn run(
    backtest: &Backtest,
    cases: &[Case],
    clock: &mut dyn FnMut() -> f64,
) -> Result<Report, ForecastError> {
    if cases.is_empty() {
        return Err(ForecastError::Empty);
    }
    let mut ws = Workspace::new();
    let mut ours = Sums::new("clockwork");
    let mut peers: Vec<(Peer, Sums)> = Vec::new();
    if backtest.peers {
        peers.extend(Peer::ALL.map(|peer| (peer, Sums::new(peer.name()))));
    }
    for case in cases {
        let filled = fill_counts(&case.history, Cycles::NONE)?;
        let scale = measures::scale(&filled, backtest.season);
        let actual = backtest.actual(case);
        let began = clock();
        let forecasts = backtest.forecast(case, &mut ws)?;
        ours.seconds += clock() - began;
        ours.add(actual, &forecasts, scale);
        for (peer, sums) in &mut peers {
            sums.add(actual, &backtest.forecast_by_peer(*peer, case)?, scale);
        }
    }
    let yardstick = peers.iter().find(|(peer, _)| *peer == Peer::Naive2);
    let yardstick = yardstick.map(|(_, sums)| (sums.mean(Measure::Smape), sums.mean(Measure::Mase)));
    Ok(Report {
        ours: ours.accuracy(yardstick),
        peers: peers.iter().map(|(_, sums)| sums.accuracy(yardstick)).collect(),
    })
}

impl Backtest {
    /// The part of a case's future that is forecast.
    fn actual<'a>(&self, case: &'a Case) -> &'a [f64] {
        match self.walk {
            Walk::FixedOrigin { horizon } => &case.future[..horizon.min(case.future.len())],
            Walk::OneStep { .. } => &case.future,
        }
    }

    fn forecast(&self, case: &Case, ws: &mut Workspace) -> Result<Forecasts, ForecastError> {
        let wanted = self.actual(case).len();
        match self.walk {
            Walk::FixedOrigin { .. } => {
                let series = Series::new(case.history.clone(), self.period_seconds, 0)?;
                Forecasts::of(&self.demand.fit(&series, ws)?.forecast(wanted)?)
            }
            Walk::OneStep { refit_periods } => {
                let all: Vec<f64> = case.history.iter().chain(&case.future).copied().collect();
                let series = Series::new(all, self.period_seconds, 0)?;
                let mut forecasts: Option<Forecasts> = None;
                let mut at = case.history.len();
                while at < series.len() {
                    let end = (at + refit_periods.max(1)).min(series.len());
                    let fitted = self.demand.fit(&series.head(at), ws)?;
                    let block = Forecasts::of(&fitted.one_step(&series.head(end), ws)?)?;
                    match &mut forecasts {
                        Some(forecasts) => forecasts.append(block),
                        None => forecasts = Some(block),
                    }
                    at = end;
                }
                forecasts.ok_or(ForecastError::Empty)
            }
        }
    }

    fn forecast_by_peer(&self, peer: Peer, case: &Case) -> Result<Forecasts, ForecastError> {
        let history = fill_counts(&case.history, Cycles::NONE)?;
        let forecast = match self.walk {
            Walk::FixedOrigin { .. } => peer.forecast(&history, self.season, self.actual(case).len()),
            Walk::OneStep { refit_periods } => {
                let all: Vec<f64> = case.history.iter().chain(&case.future).copied().collect();
                let all = fill_counts(&all, Cycles::NONE)?;
                peers::one_step(peer, &all, history.len(), self.season, refit_periods)
            }
        };
        let limits = |coverage: f64| {
            (forecast.quantile(0.5 - 0.5 * coverage), forecast.quantile(0.5 + 0.5 * coverage))
        };
        Ok(Forecasts {
            limits66: limits(0.66),
            limits95: limits(0.95),
            quantiles: PINBALL_LEVELS.map(|level| forecast.quantile(level)),
            mean: forecast.point.clone(),
            median: forecast.point,
        })
    }
}

impl Forecasts {
    fn of(forecast: &DemandForecast) -> Result<Self, ForecastError> {
        let [a, b, c, d] = PINBALL_LEVELS;
        Ok(Self {
            median: forecast.median().to_vec(),
            mean: forecast.mean().to_vec(),
            limits66: forecast.interval(0.66)?,
            limits95: forecast.interval(0.95)?,
            quantiles: [
                forecast.quantile(a)?,
                forecast.quantile(b)?,
                forecast.quantile(c)?,
                forecast.quantile(d)?,
            ],
        })
    }

    fn append(&mut self, mut next: Forecasts) {
        self.median.append(&mut next.median);
        self.mean.append(&mut next.mean);
        for (limits, next) in
            [(&mut self.limits66, &mut next.limits66), (&mut self.limits95, &mut next.limits95)]
        {
            limits.0.append(&mut next.0);
            limits.1.append(&mut next.1);
        }
        for (quantiles, next) in self.quantiles.iter_mut().zip(&mut next.quantiles) {
            quantiles.append(next);
        }
    }
}

/// Measures that are averaged over cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Measure {
    Smape,
    Mase,
    Coverage66,
    Coverage95,
    Msis95,
    Mae,
    Rmse,
    Bias,
    Pinball,
}

const MEASURES: usize = 9;

/// Sums of measures over cases, each with the number of cases where it exists.
struct Sums {
    name: &'static str,
    series: usize,
    seconds: f64,
    sums: [(f64, f64); MEASURES],
}

impl Sums {
    fn new(name: &'static str) -> Self {
        Self { name, series: 0, seconds: 0.0, sums: [(0.0, 0.0); MEASURES] }
    }

    fn add(&mut self, y: &[f64], f: &Forecasts, scale: f64) {
        self.series += 1;
        let pinball = f.quantiles.iter().zip(PINBALL_LEVELS).map(|(q, level)| measures::pinball(y, q, level));
        let pinball = pinball.sum::<f64>() / PINBALL_LEVELS.len() as f64;
        for (measure, value) in [
            (Measure::Smape, measures::smape(y, &f.median)),
            (Measure::Mase, measures::mase(y, &f.median, scale)),
            (Measure::Coverage66, measures::coverage(y, &f.limits66.0, &f.limits66.1)),
            (Measure::Coverage95, measures::coverage(y, &f.limits95.0, &f.limits95.1)),
            (Measure::Msis95, measures::msis(y, &f.limits95.0, &f.limits95.1, 0.95, scale)),
            (Measure::Mae, measures::mae(y, &f.median)),
            (Measure::Rmse, measures::rmse(y, &f.mean)),
            (Measure::Bias, measures::bias(y, &f.mean)),
            (Measure::Pinball, pinball),
        ] {
            if value.is_finite() {
                let (sum, n) = &mut self.sums[measure as usize];
                *sum += value;
                *n += 1.0;
            }
        }
    }

    fn mean(&self, measure: Measure) -> f64 {
        let (sum, n) = self.sums[measure as usize];
        sum / n
    }

    fn accuracy(&self, naive2: Option<(f64, f64)>) -> Accuracy {
        let (smape, mase) = (self.mean(Measure::Smape), self.mean(Measure::Mase));
        let ms = 1e3 * self.seconds / self.series.max(1) as f64;
        Accuracy {
            name: self.name,
            series: self.series,
            smape,
            mase,
            owa: naive2.map_or(f64::NAN, |(s, m)| measures::owa(smape, mase, s, m)),
            coverage66: self.mean(Measure::Coverage66),
            coverage95: self.mean(Measure::Coverage95),
            msis95: self.mean(Measure::Msis95),
            mae: self.mean(Measure::Mae),
            rmse: self.mean(Measure::Rmse),
            bias: self.mean(Measure::Bias),
            pinball: self.mean(Measure::Pinball),
            ms_per_series: if self.seconds > 0.0 { ms } else { f64::NAN },
        }
    }
}
