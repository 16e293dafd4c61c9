//! What can be wrong with the input of a forecast, where, and what to do about it.

/// Why a series, a regression or a request for a forecast was refused.
///
/// Everything that a forecaster can get over by a stated fallback (short history, gaps, no cycle, a constant) is not
/// an error; these are the inputs for which no honest answer exists.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ForecastError {
    /// There is no value at all to forecast from.
    #[error("the series has no known value; wait for a period with a measurement")]
    Empty,
    /// A method needs more periods than there are.
    #[error("{what} needs {need} periods, the series has {have}; use a method for shorter histories")]
    TooShort {
        /// The method that refused.
        what: &'static str,
        /// Periods given.
        have: usize,
        /// Periods needed.
        need: usize,
    },
    /// More periods than the numerics are laid out for ([`crate::series::SERIES_PERIODS_MAX`]).
    #[error("the series has {have} periods, at most {most} are taken; drop the oldest")]
    TooLong {
        /// Periods given.
        have: usize,
        /// Periods taken at most.
        most: usize,
    },
    /// An infinite value (missing periods are NaN, which is fine in a [`crate::series::Series`]).
    #[error(
        "value {index} is not finite; mark missing periods as NaN in a series, and repair the source otherwise"
    )]
    NotFinite {
        /// Position of the value, 0 = oldest.
        index: usize,
    },
    /// A value beyond [`crate::series::VALUE_MAX`].
    #[error("value {index} is beyond {most:e}; choose a larger unit")]
    TooLarge {
        /// Position of the value, 0 = oldest.
        index: usize,
        /// The largest absolute value taken.
        most: f64,
    },
    /// Two inputs that must run in step do not.
    #[error("{what}: {left} values beside {right}; give both for the same periods")]
    LengthMismatch {
        /// The two inputs.
        what: &'static str,
        /// Length of the first.
        left: usize,
        /// Length of the second.
        right: usize,
    },
    /// A probability outside (0, 1).
    #[error("quantile level {level} is not between 0 and 1")]
    LevelOutOfRange {
        /// The level asked for.
        level: f64,
    },
    /// A cycle too short to carry the lags around it, or a period length of zero.
    #[error("a cycle of {periods} periods cannot be used; cycles have at least {least}")]
    BadCycle {
        /// Periods in the cycle.
        periods: usize,
        /// Periods needed.
        least: usize,
    },
    /// More steps ahead than [`crate::series::HORIZON_PERIODS_MAX`].
    #[error("a horizon of {have} periods is asked for, at most {most} are given")]
    HorizonTooLong {
        /// Periods asked for.
        have: usize,
        /// Periods given at most.
        most: usize,
    },
    /// Regressors that depend on each other, so that their coefficients have no unique value.
    #[error("the regressors are linearly dependent (column {column}); drop one of them")]
    Collinear {
        /// The first column that the ones before it explain.
        column: usize,
    },
    /// A line of a data file that does not follow its form.
    #[error("line {line}: {what}")]
    BadLine {
        /// Line number, 1 = first.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
}
