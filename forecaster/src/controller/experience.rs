//! What a controller has learnt of itself, and a restart is not to forget.

use super::Controller;
use super::calibration::Calibration;
use super::history::History;
use crate::plan::Ledger;

/// What a controller has learnt of itself: how far its moves keep what they promise, and how wide its intervals have to be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Experience {
    /// What moves have promised lately: by how much they were to lower the stores' excess over the objective, log scale, summed
    /// over periods, with what is long ago fading.
    pub promised: f64,
    /// What of it came.
    pub kept: f64,
    /// What the widths of intervals are multiplied by.
    pub interval_width: f64,
}

impl Default for Experience {
    /// That of a controller that has just begun.
    fn default() -> Self {
        Self { promised: 0.0, kept: 0.0, interval_width: 1.0 }
    }
}

impl Experience {
    /// Part of what moves promise that is believed, 0 to 1: what of it came lately, 1 at the beginning.
    #[must_use]
    pub fn trust(&self) -> f64 {
        Ledger::of(self.promised, self.kept).trust()
    }
}

impl<H: History> Controller<H> {
    /// What has been learnt so far.
    pub fn experience(&self) -> Experience {
        let (promised, kept) = self.ledger.sums();
        Experience { promised, kept, interval_width: self.calibration.width() }
    }

    /// Takes up what was learnt before a restart. What is no number counts as not learnt.
    pub fn restore_experience(&mut self, experience: &Experience) {
        self.ledger = Ledger::of(experience.promised, experience.kept);
        self.calibration = Calibration::of(experience.interval_width);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{MemoryHistory, Settings};
    use super::*;

    #[test]
    fn what_was_learnt_outlives_a_restart_and_nonsense_does_not() {
        let controller = || Controller::new(Settings::default(), MemoryHistory::default()).unwrap();
        assert_eq!(controller().experience(), Experience::default());
        assert_eq!(Experience::default().trust(), 1.0);
        let learnt = Experience { promised: 9.0, kept: 1.0, interval_width: 0.8 };
        let mut again = controller();
        again.restore_experience(&learnt);
        let restored = again.experience();
        assert_eq!((restored.promised, restored.kept), (9.0, 1.0));
        assert!((restored.interval_width - 0.8).abs() < 1e-12 && (restored.trust() - 0.2).abs() < 1e-12);
        for wild in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 1e300] {
            again.restore_experience(&Experience { promised: wild, kept: wild, interval_width: wild });
            let Experience { promised, kept, interval_width } = again.experience();
            assert!(promised.is_finite() && kept.is_finite() && promised >= 0.0, "{wild}");
            assert!((0.4..2.1).contains(&interval_width), "{wild}: {interval_width}");
            assert!((0.0..=1.0).contains(&again.experience().trust()));
        }
    }
}
