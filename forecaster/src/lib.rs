//! The Clockwork method: demand forecasts with their uncertainty, response-time estimates, plans. No I/O, no clock.
//!
//! | room | job |
//! |---|---|
//! | [`series`] | values with gaps, period length, start; the cycles that periods make up |
//! | [`spectrum`] | taper, periodogram, smoothing window and its width; plans and buffers |
//! | [`spectral`] | canonical factorisation of a spectrum, and the forecast from it |
//! | [`arima`] | differencing, sparse seasonal autoregression, smoothed profiles; general ARMA |
//! | [`demand`] | the composed forecasters, short histories, shares of a total, many files at once |
//! | [`response`] | response time against load: Hannan's estimator, queues, envelope, limit of trust |
//! | [`objective`] | what is to be held, and how sure to be of it |
//! | [`plan`] | which files to move: margin, budget, hysteresis; doing it once; weights of the default rule |
//! | [`guard`] | watches an open period against its forecast |
//! | [`controller`] | the state machine of them all: periods in, decisions out |
//! | [`backtest`] | accuracy against what happened, and against simple methods |
//!
//! ```
//! use clockwork_forecaster::Series;
//! use clockwork_forecaster::demand::Demand;
//! use clockwork_forecaster::spectrum::Workspace;
//!
//! # fn main() -> Result<(), clockwork_forecaster::ForecastError> {
//! let hours = (0..720).map(|t| if t % 24 < 8 { 20.0 } else { 90.0 + f64::from(t % 7) }).collect();
//! let mut workspace = Workspace::new(); // plans and buffers: one a thread, kept between series
//! let fitted = Demand::recommended().fit(&Series::hourly(hours)?, &mut workspace)?;
//! let forecast = fitted.forecast(24)?;
//! let (low, high) = forecast.interval(0.66)?;
//! assert!(low[0] <= forecast.median()[0] && forecast.median()[0] <= high[0]);
//! # Ok(())
//! # }
//! ```
//!
//! The method is that of Russell, Morgan, Chron, "Clockwork: A new movement in autonomic systems", IBM Systems Journal
//! 42(1), 2003: a forecast by an ARIMA stage whose residuals are forecast through their spectrum. Indices follow the
//! statistics: values are oldest first, lag k is k periods back, spectra are in ordinates `j` at `2 pi j / N`.

pub mod arima;
pub mod backtest;
pub mod controller;
pub mod demand;
pub mod error;
pub mod guard;
mod linear;
pub mod objective;
pub mod plan;
pub mod response;
pub mod series;
pub mod spectral;
pub mod spectrum;

pub use error::ForecastError;
pub use series::{Cycles, Series};
