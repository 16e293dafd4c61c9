//! Response time of a store against the load it served.
//!
//! Per store, on the log scale: `ln R = ln S + ln g(n/C, c) + u` ([`Queue`]), u stationary with unknown spectrum, fitted by
//! Hannan's estimator ([`hannan()`]) over a grid of C and c. Once files move, stores see loads that they never saw, so what
//! matters is how the fit continues: the best fit up to the third largest load seen, above it the highest of all fits
//! that the data do not reject, and beyond twice that load a limit of trust. Then the residual, which has a memory, is
//! forecast and added; it scatters more at some loads than at others. [`ResponseModel`] says what to fit, [`FittedResponse`] predicts.

mod hannan;
mod model;
mod queue;
mod scatter;

pub use hannan::{HannanFit, HannanOptions, hannan};
pub use model::{
    FAMILY_PERIODS_MIN, FittedResponse, LoadForecast, Observation, Prediction, ResponseModel, ResponseSource,
    SPECTRAL_RESIDUAL_PERIODS_MIN,
};
pub use queue::Queue;
