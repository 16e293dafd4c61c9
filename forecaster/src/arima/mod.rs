//! The ARIMA stage: differencing, and autoregressions whose residual goes to the spectral stage.

pub mod profile;
pub mod seasonal;

pub use profile::{Profile, smoothed_profile};
pub use seasonal::{RegressionOptions, SeasonalAr, SeasonalSpec};
