//! What a plex is to hold: a response time, and how sure to be of it.

use crate::demand::normal_quantile;

/// Longest response time that can be an objective, milliseconds (an hour).
pub const OBJECTIVE_MS_MAX: f64 = 3_600_000.0;

/// A performance objective and a confidence level: the mean response time of every store is to be at most
/// `response_ms` in a share `confidence` of the periods. The paper's: 5 ms in 66 %.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Objective {
    /// Mean response time of a period, milliseconds. 0 is taken, and can never be met: plans then go for balance.
    pub response_ms: f64,
    /// Share of the periods, above 0 and below 1.
    pub confidence: f64,
}

impl Default for Objective {
    fn default() -> Self {
        Self { response_ms: 5.0, confidence: 0.66 }
    }
}

/// Why an objective was refused.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum ObjectiveError {
    /// Not a number, negative, or above [`OBJECTIVE_MS_MAX`].
    #[error("an objective of {response_ms} ms cannot be held; give 0 to {OBJECTIVE_MS_MAX}")]
    Response {
        /// What was asked for.
        response_ms: f64,
    },
    /// Not between 0 and 1.
    #[error("a confidence of {confidence} is none; give a share of the periods above 0 and below 1, as .66")]
    Confidence {
        /// What was asked for.
        confidence: f64,
    },
}

impl Objective {
    /// Checks it.
    ///
    /// # Errors
    /// [`ObjectiveError`].
    pub fn checked(self) -> Result<Self, ObjectiveError> {
        let Self { response_ms, confidence } = self;
        if !(0.0..=OBJECTIVE_MS_MAX).contains(&response_ms) {
            return Err(ObjectiveError::Response { response_ms });
        }
        if !(confidence > 0.0 && confidence < 1.0) {
            return Err(ObjectiveError::Confidence { confidence });
        }
        Ok(self)
    }

    /// Normal quantile of the confidence, one-sided: .4125 for 66 %.
    pub fn z(&self) -> f64 {
        normal_quantile(self.confidence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused_and_the_impossible_is_not() {
        let with = |response_ms, confidence| Objective { response_ms, confidence }.checked();
        assert!(
            with(f64::NAN, 0.66).is_err() && with(-1.0, 0.66).is_err() && with(f64::INFINITY, 0.66).is_err()
        );
        assert!(with(5.0, f64::NAN).is_err() && with(5.0, 1.0).is_err() && with(5.0, 0.0).is_err());
        assert!(with(0.0, 0.66).is_ok());
        assert!((Objective::default().z() - 0.4125).abs() < 1e-4);
    }
}
