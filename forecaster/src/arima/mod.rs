//! The ARIMA stage: differencing, and autoregressions whose residual goes to the spectral stage.

pub mod arma;
pub mod profile;
pub mod seasonal;

pub use arma::Arma;
pub use profile::{Profile, smoothed_profile};
pub use seasonal::{RegressionOptions, SeasonalAr, SeasonalSpec};
