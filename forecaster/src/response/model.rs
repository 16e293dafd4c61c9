//! The response model of a store: family, envelope, limit of trust, residual forecast.

use super::hannan::Whitening;
use super::queue::{Queue, grid};
use super::scatter::Scatter;
use crate::error::ForecastError;
use crate::linear::{dot, mean};
use crate::series::SERIES_PERIODS_MAX;
use crate::spectral::{SpectralModel, SpectralOptions};
use crate::spectrum::Workspace;

/// Fewest periods that the family is fitted to.
pub const FAMILY_PERIODS_MIN: usize = 8;
/// Fewest periods from which the residual is forecast through its spectrum.
pub const SPECTRAL_RESIDUAL_PERIODS_MIN: usize = 100;
/// Whitened residuals, on the log scale, beyond which errors count no more.
const CLIP: f64 = 0.5;
/// A fit stays in the envelope while its sum of squares is within so many variances of the least.
const ENVELOPE_VARIANCES: f64 = 4.0;
/// Periods whose third largest load limits trust.
const TRUST_PERIODS: usize = 336;
/// Multiple of that load beyond which nothing seen says anything.
const TRUST_MULTIPLE: f64 = 2.0;
/// Multiple of the objective predicted there at least.
const TRUST_PENALTY: f64 = 1.2;
/// Largest autoregressive coefficient of a residual with a short history.
const RESIDUAL_AR_MAX: f64 = 0.95;

/// What was measured of a store in one period.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observation {
    /// Requests served.
    pub load: f64,
    /// Mean response time in any unit; NaN = nothing measured.
    pub response: f64,
    /// Whether the store held as many calls as it may for some of the period: its response time was at least this.
    pub saturated: bool,
}

/// What to fit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ResponseModel {
    /// Most calls outstanding at the store, K (at least 1).
    pub outstanding_max: f64,
    /// Times that the spectrum of the residual is estimated.
    pub passes: usize,
}

impl Default for ResponseModel {
    fn default() -> Self {
        Self { outstanding_max: 64.0, passes: 1 }
    }
}

/// Which model made a prediction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseSource {
    /// The best fit of the family: the load lies where loads were seen.
    BestFit,
    /// The highest of the fits that the data do not reject: the load lies above.
    Envelope,
    /// The limit of trust: the load lies far above anything seen.
    LimitOfTrust,
    /// The mean of the few periods there are, growing in proportion above the loads seen.
    FewPeriods,
}

/// A predicted response time, in the unit of the observations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prediction {
    /// Median.
    pub median: f64,
    /// Standard deviation on the log scale, the load's uncertainty included.
    pub log_deviation: f64,
    /// `d ln R / d ln n` at the load.
    pub elasticity: f64,
    /// Which model made it.
    pub source: ResponseSource,
}

impl Prediction {
    /// The response time that is not exceeded with the probability of the normal quantile `z` (.4125: 66 %).
    pub fn quantile(&self, z: f64) -> f64 {
        self.median * (z * self.log_deviation).exp()
    }
}

/// A load to predict the response time at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadForecast {
    /// Requests in the period.
    pub load: f64,
    /// Their standard deviation on the log scale.
    pub log_deviation: f64,
    /// Periods ahead of the last one observed, at least 1.
    pub ahead: usize,
}

/// A store's fitted response model.
#[derive(Debug, Clone, PartialEq)]
pub struct FittedResponse {
    /// The best fit first, then the others of the envelope, each with ln S; empty where there were few periods.
    fits: Vec<(Queue, f64)>,
    /// ln of the geometric mean response, for few periods.
    log_mean: f64,
    load_max: f64,
    trusted_load: f64,
    residual: Residual,
    /// Where loads make the residual scatter more or less.
    scatter: Scatter,
    /// Residuals of the periods with a response, oldest first, and their loads.
    residuals: Vec<f64>,
    loads: Vec<f64>,
    /// Periods since the last of them.
    since: usize,
}

#[derive(Debug, Clone, PartialEq)]
enum Residual {
    /// Forecasts and deviations from the spectrum, as far as they were made; beyond: the last deviation.
    Spectral { forecast: Vec<f64>, deviation: Vec<f64> },
    /// Last value and coefficient, deviation of the residual itself; periods since the last value.
    Autoregressive { last: f64, coefficient: f64, deviation: f64, since: usize },
}

/// Periods ahead for which the residual's spectral forecast is kept.
const RESIDUAL_HORIZON: usize = 48;

impl ResponseModel {
    /// Fits to the periods of a store, oldest first. Periods with no load or no response measured are left out, the
    /// rest taken as consecutive; saturated periods only say that a fit below them is wrong.
    ///
    /// # Errors
    /// [`ForecastError::Empty`] where no period has a response, [`ForecastError::NotFinite`] for an infinite load or
    /// response, [`ForecastError::TooLong`].
    pub fn fit(&self, history: &[Observation], ws: &mut Workspace) -> Result<FittedResponse, ForecastError> {
        if history.len() > SERIES_PERIODS_MAX {
            return Err(ForecastError::TooLong { have: history.len(), most: SERIES_PERIODS_MAX });
        }
        let infinite = |o: &Observation| o.load.is_infinite() || o.response.is_infinite();
        if let Some(index) = history.iter().position(infinite) {
            return Err(ForecastError::NotFinite { index });
        }
        let usable = |o: &&Observation| o.load > 0.0 && o.response > 0.0;
        let periods: Vec<Observation> = history.iter().filter(usable).copied().collect();
        let since = history.iter().rev().position(|o| usable(&o)).ok_or(ForecastError::Empty)?;
        let y: Vec<f64> = periods.iter().map(|o| o.response.ln()).collect();
        let loads: Vec<f64> = periods.iter().map(|o| o.load).collect();
        let load_max = third_largest(&loads);
        let trusted_load = third_largest(recent(&loads));
        let mut fitted = FittedResponse {
            fits: Vec::new(),
            log_mean: mean(&y),
            load_max,
            trusted_load,
            residual: Residual::Autoregressive { last: 0.0, coefficient: 0.0, deviation: 0.0, since },
            scatter: Scatter::default(),
            residuals: Vec::new(),
            loads,
            since,
        };
        let residuals = if periods.len() < FAMILY_PERIODS_MIN {
            y.iter().map(|y| y - fitted.log_mean).collect()
        } else {
            let search = Search {
                periods: &periods,
                y: &y,
                queues: grid(load_max, self.outstanding_max.max(1.0)).collect(),
            };
            let (fits, residuals) = search.fits(self.passes.max(1), ws);
            fitted.fits = fits;
            residuals
        };
        fitted.residual = Residual::of(&residuals, since, ws);
        fitted.scatter = Scatter::of(&residuals, &fitted.loads);
        fitted.residuals = residuals;
        Ok(fitted)
    }
}

/// The loads that limit trust.
fn recent(loads: &[f64]) -> &[f64] {
    &loads[loads.len().saturating_sub(TRUST_PERIODS)..]
}

/// Third largest load (the largest of fewer than three periods).
fn third_largest(loads: &[f64]) -> f64 {
    let mut loads = loads.to_vec();
    loads.sort_unstable_by(|a, b| b.total_cmp(a));
    loads.get(2).or(loads.first()).copied().unwrap_or(0.0)
}

/// The search over the family.
struct Search<'a> {
    periods: &'a [Observation],
    y: &'a [f64],
    queues: Vec<Queue>,
}

/// One queue fitted: ln S, residuals, and the sum of squared whitened residuals, clipped.
struct Scored {
    queue: Queue,
    log_unloaded: f64,
    residuals: Vec<f64>,
    squares: f64,
}

impl Search<'_> {
    /// The envelope, best fit first, and the best fit's residuals: ordinary least squares over the grid, then as many
    /// passes whitened by the spectrum of the best fit's residuals (one filter for all of the grid, so that their sums of
    /// squares can be compared).
    fn fits(&self, passes: usize, ws: &mut Workspace) -> (Vec<(Queue, f64)>, Vec<f64>) {
        let mut scored = self.score(None, ws);
        for _ in 0..passes {
            let Some(best) = best_of(&scored) else { break };
            let filter = Whitening::of(&best.residuals, None, ws);
            scored = self.score(Some(&filter), ws);
        }
        let Some(best) = best_of(&scored) else { return (Vec::new(), vec![0.0; self.y.len()]) };
        // One coefficient is estimated for each queue, and two more are chosen.
        let charged = self.y.len().saturating_sub(3).max(1);
        let limit = best.squares + ENVELOPE_VARIANCES * best.squares / charged as f64;
        let mut fits = vec![(best.queue, best.log_unloaded)];
        let others = scored.iter().filter(|s| s.squares <= limit && s.queue != best.queue);
        fits.extend(others.map(|s| (s.queue, s.log_unloaded)));
        (fits, best.residuals.clone())
    }

    fn score(&self, filter: Option<&Whitening>, ws: &mut Workspace) -> Vec<Scored> {
        let whiten = |z: &[f64], ws: &mut Workspace| filter.map_or_else(|| z.to_vec(), |f| f.apply(z, ws));
        let ones = whiten(&vec![1.0; self.y.len()], ws);
        let size = dot(&ones, &ones);
        let any_saturated = self.periods.iter().any(|o| o.saturated);
        let one = |queue: &Queue, ws: &mut Workspace| {
            let above: Vec<f64> =
                self.y.iter().zip(self.periods).map(|(y, o)| y - queue.log_slowdown(o.load)).collect();
            let mut white = whiten(&above, ws);
            let mut log_unloaded = dot(&ones, &white) / size;
            let mut residuals = self.censored(&above, log_unloaded);
            if any_saturated {
                // Censored residuals move the mean; once more with them in place of the observed ones.
                let moved: Vec<f64> = residuals.iter().map(|u| u + log_unloaded).collect();
                log_unloaded = dot(&ones, &whiten(&moved, ws)) / size;
                residuals = self.censored(&above, log_unloaded);
                white = whiten(&residuals.iter().map(|u| u + log_unloaded).collect::<Vec<_>>(), ws);
            }
            let errors = white.iter().zip(&ones).map(|(w, one)| w - log_unloaded * one);
            let squares = errors.map(|e| e.abs().min(CLIP).powi(2)).sum();
            Scored { queue: *queue, log_unloaded, residuals, squares }
        };
        self.queues.iter().map(|queue| one(queue, ws)).collect()
    }

    /// Residuals; where the period was saturated the truth may lie higher, so only a fit below it errs.
    fn censored(&self, above: &[f64], log_unloaded: f64) -> Vec<f64> {
        let residual = |(above, o): (&f64, &Observation)| {
            let u = above - log_unloaded;
            if o.saturated { u.max(0.0) } else { u }
        };
        above.iter().zip(self.periods).map(residual).collect()
    }
}

fn best_of(scored: &[Scored]) -> Option<&Scored> {
    scored.iter().min_by(|a, b| a.squares.total_cmp(&b.squares))
}

impl Residual {
    fn of(u: &[f64], since: usize, ws: &mut Workspace) -> Self {
        if u.len() >= SPECTRAL_RESIDUAL_PERIODS_MIN && since < RESIDUAL_HORIZON {
            let level = mean(u);
            let centred: Vec<f64> = u.iter().map(|u| u - level).collect();
            if let Ok(m) = SpectralModel::fit(&centred, &SpectralOptions::plain(), ws) {
                let e = m.innovations(&centred, ws);
                let horizon = RESIDUAL_HORIZON + since;
                let forecast = m.forecast(&e, horizon).iter().skip(since).map(|f| f + level).collect();
                let deviation = m.deviations(horizon, &[]).split_off(since);
                return Residual::Spectral { forecast, deviation };
            }
        }
        let squares = dot(u, u);
        let charged = u.len().saturating_sub(3).max(1) as f64;
        let lagged = if u.len() > 1 { dot(&u[1..], u) } else { 0.0 };
        let coefficient = if squares > 0.0 { (lagged / squares).clamp(0.0, RESIDUAL_AR_MAX) } else { 0.0 };
        let last = u.last().copied().unwrap_or(0.0);
        Residual::Autoregressive { last, coefficient, deviation: (squares / charged).sqrt(), since }
    }

    /// Forecast and deviation so many periods ahead.
    fn ahead(&self, ahead: usize) -> (f64, f64) {
        let ahead = ahead.max(1);
        match self {
            Residual::Spectral { forecast, deviation } => {
                let furthest = deviation.last().copied().unwrap_or(0.0);
                let forecast = forecast.get(ahead - 1).copied().unwrap_or(0.0);
                (forecast, deviation.get(ahead - 1).copied().unwrap_or(furthest))
            }
            Residual::Autoregressive { last, coefficient, deviation, since } => {
                let steps = i32::try_from(ahead + since).unwrap_or(i32::MAX);
                let kept = coefficient.powi(steps);
                (last * kept, deviation * (1.0 - kept * kept).sqrt())
            }
        }
    }
}

impl FittedResponse {
    /// Takes the next period: the residual's forecast, the loads seen and the limit of trust move on, the fits stay.
    /// An infinite load or response counts as no measurement.
    pub fn observe(&mut self, period: Observation, ws: &mut Workspace) {
        let finite = period.load.is_finite() && period.response.is_finite();
        if finite && period.load > 0.0 && period.response > 0.0 {
            // Against the best fit, also above the loads that it was fitted to: an envelope is no centre.
            let fit = match self.fits.first() {
                Some((queue, log_unloaded)) => log_unloaded + queue.log_slowdown(period.load),
                None => self.log_mean,
            };
            let u = period.response.ln() - fit;
            self.residuals.push(if period.saturated { u.max(0.0) } else { u });
            self.loads.push(period.load);
            self.load_max = third_largest(&self.loads);
            self.trusted_load = third_largest(recent(&self.loads));
            self.since = 0;
        } else {
            self.since = self.since.saturating_add(1);
        }
        self.residual = Residual::of(&self.residuals, self.since, ws);
        self.scatter = Scatter::of(&self.residuals, &self.loads);
    }

    /// Periods with a response, observed or fitted to.
    pub fn periods(&self) -> usize {
        self.residuals.len()
    }

    /// Third largest load that the fit saw, requests a period: above it the envelope predicts.
    pub fn load_max(&self) -> f64 {
        self.load_max
    }

    /// The best fit and its unloaded response time; `None` where there were few periods.
    pub fn best(&self) -> Option<(Queue, f64)> {
        self.fits.first().map(|(queue, log_unloaded)| (*queue, log_unloaded.exp()))
    }

    /// ln f at `load`, without the residual, and what made it.
    fn log_median(&self, load: f64, objective: Option<f64>) -> (f64, ResponseSource) {
        let (mut value, mut source) = match self.fits.first() {
            None => {
                let over = if load > self.load_max { (load / self.load_max).ln() } else { 0.0 };
                (self.log_mean + over, ResponseSource::FewPeriods)
            }
            Some((queue, log_unloaded)) if load <= self.load_max => {
                (log_unloaded + queue.log_slowdown(load), ResponseSource::BestFit)
            }
            Some(_) => {
                let all =
                    self.fits.iter().map(|(queue, log_unloaded)| log_unloaded + queue.log_slowdown(load));
                (all.fold(f64::NEG_INFINITY, f64::max), ResponseSource::Envelope)
            }
        };
        let trusted = TRUST_MULTIPLE * self.trusted_load;
        if let Some(objective) = objective.filter(|x| *x > 0.0)
            && load > trusted
        {
            let least = (TRUST_PENALTY * objective * load / trusted).ln();
            if least > value {
                (value, source) = (least, ResponseSource::LimitOfTrust);
            }
        }
        (value, source)
    }

    /// ln f at `load`, its elasticity, and what made it.
    fn without_residual(&self, load: f64, objective: Option<f64>) -> (f64, f64, ResponseSource) {
        let (value, source) = self.log_median(load, objective);
        // Over two per cent either way: the family has a corner at its cap.
        let (up, _) = self.log_median(load * 1.02, objective);
        let (down, _) = self.log_median(load / 1.02, objective);
        (value, (up - down) / (2.0 * 1.02f64.ln()), source)
    }

    /// [`FittedResponse::log_quantile`] at each of `loads`, for each period ahead with the log deviation of its load,
    /// `[ahead - 1][load]`.
    pub fn log_quantiles(
        &self,
        loads: &[f64],
        load_deviations: &[f64],
        z: f64,
        objective: Option<f64>,
    ) -> Vec<Vec<f64>> {
        let table = |(h, load_deviation): (usize, &f64)| {
            let at = |load: &f64| LoadForecast { load: *load, log_deviation: *load_deviation, ahead: h + 1 };
            loads.iter().map(|load| self.log_quantile(at(load), z, objective)).collect()
        };
        load_deviations.iter().enumerate().map(table).collect()
    }

    /// ln of the response time's quantile at the normal quantile `z` (.4125: 66 %): what it is at that quantile of the
    /// load, and the residual's deviation, taken as independent. Near saturation this is far from what the slope at the
    /// median load says: the curve is steep above, flat below, and ends at a cap.
    pub fn log_quantile(&self, at: LoadForecast, z: f64, objective: Option<f64>) -> f64 {
        let load = if at.load > 0.0 { at.load } else { 0.0 };
        let (residual, deviation) = self.residual.ahead(at.ahead);
        let deviation = deviation * self.scatter.at(load);
        let (value, _) = self.log_median(load, objective);
        let (moved, _) = self.log_median(load * (z * at.log_deviation).exp(), objective);
        value + residual + z.signum() * (z * deviation).hypot(moved - value)
    }

    /// Predicts the response time at a load; `objective` (response time, same unit) sets the limit of trust, without it
    /// there is none. Loads that are not above zero predict the unloaded store.
    pub fn predict(&self, at: LoadForecast, objective: Option<f64>) -> Prediction {
        let load = if at.load > 0.0 { at.load } else { 0.0 };
        let (value, elasticity, source) = self.without_residual(load, objective);
        let (residual, deviation) = self.residual.ahead(at.ahead);
        let through_load = elasticity * at.log_deviation;
        Prediction {
            median: (value + residual).exp(),
            log_deviation: (deviation * self.scatter.at(load)).hypot(through_load),
            elasticity,
            source,
        }
    }

    /// The largest load, requests in a period, whose predicted response time at the normal quantile `z` is at most
    /// `objective` one period ahead (uncertainty of the load: `log_deviation`); 0 where none is.
    pub fn load_at(&self, objective: f64, z: f64, log_deviation: f64) -> f64 {
        let within = |load: f64| {
            let at = LoadForecast { load, log_deviation, ahead: 1 };
            self.predict(at, Some(objective)).quantile(z) <= objective
        };
        let (mut low, mut high) = (0.0, 2.0 * TRUST_MULTIPLE * self.trusted_load.max(self.load_max));
        if within(high) {
            return high;
        }
        for _ in 0..60 {
            let middle = 0.5 * (low + high);
            if within(middle) { low = middle } else { high = middle }
        }
        low
    }
}
