//! Demand: the composed forecasters of counts per period, and what they fall back to.
//!
//! [`Demand`] says what to fit, [`FittedDemand`] is the result: only that can forecast. [`Method::Recommended`]
//! ([`recommended`]) is the default; [`Method::Plain`] ([`mod@plain`]) is the paper's composition.
//!
//! | history | what forecasts | [`Rung`] |
//! |---|---|---|
//! | no known value | nothing: [`ForecastError::Empty`] | - |
//! | all known values equal | that value, zero spread | `Constant` |
//! | below a day | the mean, spread of the history | `Mean` |
//! | a day to three | the day before, spread of day differences | `DayBefore` |
//! | three days to five | day differences on lags 1, 2, 3 | `DayDifference` |
//! | five days to 1.3 weeks, or no week | both members, daily profile | `Day` |
//! | 1.3 to 1.8 weeks | both members, weekly profile as it stands | `ShortWeek` |
//! | above | both members, weekly profile at five shifts | `FullWeek` |
//! | no cycle, 30 periods and more | ARMA(p, q), differenced as the data wants | `Arma` |
//!
//! Should a regression turn out singular, the next rung down takes over; the mean always exists.

pub mod batch;
mod forecast;
mod ladder;
mod member;
pub mod plain;
pub mod recommended;
pub mod share;

pub use batch::Batch;
pub use forecast::{COUNT_FORECAST_MAX, DemandForecast};
pub use ladder::{ARMA_PERIODS_MIN, Rung};
pub use member::Member;
pub use plain::{PlainDemand, Transform};
pub use share::{Share, Total};

use crate::arima::Arma;
use crate::error::ForecastError;
use crate::series::{Cycles, HORIZON_PERIODS_MAX, SERIES_PERIODS_MAX, Series, VALUE_MAX, fill_counts};
use crate::spectrum::Workspace;
pub(crate) use forecast::normal_quantile;
use forecast::{Shape, fourth_root};
use recommended::Recommended;

/// Which composition forecasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Method {
    /// Two seasonal members on the fourth-root scale, spectral stage halved, combined by precision.
    #[default]
    Recommended,
    /// The paper's plain method; `None` takes the logarithm where all counts are above zero, else ln(1 + x).
    Plain(Option<Transform>),
}

/// Where the cycles of a series come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CycleChoice {
    /// The calendar's day and week for the period length of the series; where a period does not fit into a day, the
    /// cycles that the data show.
    #[default]
    Automatic,
    /// The cycles that the data show, whatever the calendar says.
    Found,
    /// These.
    Given(Cycles),
}

/// A demand forecaster, not yet fitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Demand {
    /// Which composition.
    pub method: Method,
    /// Which cycles.
    pub cycles: CycleChoice,
}

/// A demand forecaster fitted to a series.
#[derive(Debug, Clone, PartialEq)]
pub struct FittedDemand {
    model: Model,
    cycles: Cycles,
    /// The counts so far, gaps filled.
    x: Vec<f64>,
}

#[derive(Debug, Clone, PartialEq)]
enum Model {
    Constant(f64),
    Recommended(Rung, Box<Recommended>),
    Arma(Box<Arma>),
    Plain(Box<PlainDemand>),
}

impl Demand {
    /// The recommended forecaster.
    pub fn recommended() -> Self {
        Self::default()
    }
    /// The paper's plain method.
    pub fn plain(transform: Option<Transform>) -> Self {
        Self { method: Method::Plain(transform), ..Self::default() }
    }
    /// The same with these cycles instead of the calendar's.
    pub fn with_cycles(self, cycles: Cycles) -> Self {
        Self { cycles: CycleChoice::Given(cycles), ..self }
    }

    /// Fits to `series`; negative counts are taken as zero.
    ///
    /// # Errors
    /// [`ForecastError::Empty`] where no period is known. Nothing else: histories that carry no more fall down the
    /// ladder (see the module).
    pub fn fit(&self, series: &Series, ws: &mut Workspace) -> Result<FittedDemand, ForecastError> {
        let cycles = match self.cycles {
            CycleChoice::Automatic => match Cycles::calendar(series.period_seconds()) {
                Cycles::NONE => self.cycles_found(series, ws)?,
                calendar => calendar,
            },
            CycleChoice::Found => self.cycles_found(series, ws)?,
            CycleChoice::Given(cycles) => cycles,
        };
        let x = fill_counts(series.values(), cycles)?;
        if x.iter().all(|v| *v == x[0]) {
            return Ok(FittedDemand { model: Model::Constant(x[0]), cycles, x });
        }
        let model = match self.method {
            Method::Plain(transform) => plain_model(&x, transform, cycles, ws),
            Method::Recommended => None,
        };
        let model = match model {
            Some(model) => model,
            None => recommended_model(&x, cycles, ws)?,
        };
        Ok(FittedDemand { model, cycles, x })
    }
}

impl Demand {
    fn cycles_found(&self, series: &Series, ws: &mut Workspace) -> Result<Cycles, ForecastError> {
        Ok(Cycles::found_in(&fill_counts(series.values(), Cycles::NONE)?, ws))
    }
}

fn plain_model(x: &[f64], transform: Option<Transform>, cycles: Cycles, ws: &mut Workspace) -> Option<Model> {
    let transform = transform.unwrap_or_else(|| Transform::for_values(x));
    PlainDemand::fit(x, transform, cycles, ws).ok().map(|m| Model::Plain(Box::new(m)))
}

/// The highest rung that the history carries and whose regressions have a solution.
fn recommended_model(x: &[f64], cycles: Cycles, ws: &mut Workspace) -> Result<Model, ForecastError> {
    let mut rung = Rung::of(x.len(), cycles);
    loop {
        let fitted = match rung {
            Rung::Arma => {
                let w: Vec<f64> = x.iter().map(|x| fourth_root(*x)).collect();
                Arma::fit(&w).map(|m| Model::Arma(Box::new(m)))
            }
            _ => Recommended::fit(x, rung, cycles, ws).map(|m| Model::Recommended(rung, Box::new(m))),
        };
        rung = match (fitted, rung.below()) {
            (Ok(model), _) => return Ok(model),
            (Err(_), Some(below)) => below,
            (Err(error), None) => return Err(error),
        };
    }
}

impl FittedDemand {
    /// What makes the forecasts.
    pub fn rung(&self) -> Rung {
        match &self.model {
            Model::Constant(_) => Rung::Constant,
            Model::Recommended(rung, _) => *rung,
            Model::Arma(_) => Rung::Arma,
            Model::Plain(_) => Rung::Plain,
        }
    }

    /// The members of the recommended forecaster with their weights, which sum to 1; none on other rungs.
    pub fn members(&self) -> impl Iterator<Item = (&Member, f64)> {
        let fitted = match &self.model {
            Model::Recommended(_, fitted) => Some(fitted),
            _ => None,
        };
        fitted.into_iter().flat_map(|m| m.members.iter().zip(m.weights.iter().copied()))
    }

    /// Cycles that the model follows.
    pub fn cycles(&self) -> Cycles {
        self.cycles
    }

    /// Periods of history.
    pub fn periods(&self) -> usize {
        self.x.len()
    }

    /// Forecasts 1..=`horizon` periods after the last.
    ///
    /// # Errors
    /// [`ForecastError::HorizonTooLong`].
    pub fn forecast(&self, horizon: usize) -> Result<DemandForecast, ForecastError> {
        if horizon > HORIZON_PERIODS_MAX {
            return Err(ForecastError::HorizonTooLong { have: horizon, most: HORIZON_PERIODS_MAX });
        }
        match &self.model {
            Model::Constant(value) => Ok(DemandForecast::exact(*value, horizon)),
            Model::Recommended(_, fitted) => Ok(fitted.forecast(horizon)),
            Model::Plain(fitted) => fitted.forecast(horizon),
            Model::Arma(fitted) => {
                let (centre, deviation) = fitted.forecast(horizon)?;
                Ok(DemandForecast::new(centre, deviation, Shape::FourthRoot { t_weight: 0.0 }))
            }
        }
    }

    /// Means that the model, with the parameters it has now, would have forecast for each period so far, one ahead; NaN
    /// where it could not have (the first weeks), or has no regression to say.
    pub fn fitted_means(&self) -> Vec<f64> {
        match &self.model {
            Model::Recommended(_, fitted) => fitted.fitted_means(),
            Model::Constant(value) => vec![*value; self.x.len()],
            Model::Arma(_) | Model::Plain(_) => vec![f64::NAN; self.x.len()],
        }
    }

    /// Takes the count of the next period (NaN = missing: filled as gaps in a series are); parameters stay as they
    /// were fitted. A constant that meets another value becomes the mean, until it is fitted again.
    ///
    /// # Errors
    /// [`ForecastError::NotFinite`], [`ForecastError::TooLarge`], [`ForecastError::TooLong`] (fit again, to a shorter
    /// history); the model is unchanged then.
    pub fn observe(&mut self, count: f64) -> Result<(), ForecastError> {
        let index = self.x.len();
        if count.is_infinite() {
            return Err(ForecastError::NotFinite { index });
        }
        if count.abs() > VALUE_MAX {
            return Err(ForecastError::TooLarge { index, most: VALUE_MAX });
        }
        if index >= SERIES_PERIODS_MAX {
            return Err(ForecastError::TooLong { have: index + 1, most: SERIES_PERIODS_MAX });
        }
        let value = if count.is_nan() { self.filled_next() } else { count.max(0.0) };
        self.x.push(value);
        match &mut self.model {
            Model::Constant(constant) if *constant == value => {}
            Model::Constant(_) => {
                let mean = Recommended::fit(&self.x, Rung::Mean, self.cycles, &mut Workspace::new())?;
                self.model = Model::Recommended(Rung::Mean, Box::new(mean));
            }
            Model::Recommended(_, fitted) => fitted.observe(value),
            Model::Arma(fitted) => fitted.observe(fourth_root(value)),
            Model::Plain(fitted) => fitted.observe(value),
        }
        Ok(())
    }

    /// What a missing next period is taken to have been: the value a week, else a day, else a period before.
    fn filled_next(&self) -> f64 {
        let n = self.x.len();
        let back = [self.cycles.week, self.cycles.day].into_iter().flatten().find(|p| *p <= n).unwrap_or(1);
        self.x[n - back]
    }

    /// One-step forecasts of the periods of `series` after the ones fitted to, each from all before it, parameters
    /// kept: what [`FittedDemand::observe`] and a forecast one ahead would give, in one go.
    ///
    /// # Errors
    /// [`ForecastError::TooShort`] where `series` is shorter than what was fitted to.
    pub fn one_step(&self, series: &Series, ws: &mut Workspace) -> Result<DemandForecast, ForecastError> {
        let from = self.x.len();
        if series.len() < from {
            let what = "a series continuing the one fitted to";
            return Err(ForecastError::TooShort { what, have: series.len(), need: from });
        }
        match &self.model {
            Model::Recommended(_, fitted) if !fitted.members.is_empty() => {
                let x = fill_counts(series.values(), self.cycles)?;
                Ok(fitted.one_step(&x, from, ws))
            }
            _ => {
                let mut stepped = self.clone();
                let mut steps = Vec::with_capacity(series.len() - from);
                for value in &series.values()[from..] {
                    steps.push(stepped.forecast(1)?);
                    stepped.observe(*value)?;
                }
                Ok(DemandForecast::joined(&steps))
            }
        }
    }
}
