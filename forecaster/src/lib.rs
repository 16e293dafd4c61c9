//! The Clockwork method: demand forecasts with their uncertainty, response-time estimates, plans. No I/O, no clock.
//!
//! Rooms: [`series`] (values with gaps, period, cycles), [`spectrum`] (taper, periodogram, window, width),
//! [`spectral`] (canonical factorisation and forecast), [`arima`] (differencing, seasonal AR, ARMA).
//!
//! The method is that of Russell, Morgan, Chron, "Clockwork: A new movement in autonomic systems", IBM Systems Journal
//! 42(1), 2003: a forecast by an ARIMA stage whose residuals are forecast through their spectrum. Indices follow the
//! statistics: values are oldest first, lag k is k periods back, spectra are in ordinates `j` at `2 pi j / N`.

pub mod arima;
pub mod backtest;
pub mod demand;
pub mod error;
mod linear;
pub mod response;
pub mod series;
pub mod spectral;
pub mod spectrum;

pub use error::ForecastError;
pub use series::{Cycles, Series};
