//! The open period: what the guard sees, and what it moves.

mod carry;
mod compare;
mod learnt;
mod open;
mod rest;

use super::Controller;
use super::decision::Decision;
use super::history::History;
use super::reports::{PartialPeriod, PlexView};
use super::settings::Mode;

pub(super) use carry::Carry;
pub(super) use learnt::Learnt;
pub(super) use open::Open;

impl<H: History> Controller<H> {
    /// Looks at an open period, after each of its sixths: a decision where files are to be moved in it. `None` where there is
    /// nothing to do: all goes as forecast, or no move helps, or the period is not the one decided about, or was
    /// looked at later before, or the guard is off.
    pub fn within(&mut self, open: &PartialPeriod, view: &PlexView<'_>) -> Option<Decision> {
        let guard = self.settings.guard?;
        let state = self.open.as_mut()?;
        if state.forecasts.period != open.period
            || !(1..=5).contains(&open.sixths)
            || open.sixths <= state.looked()
        {
            return None;
        }
        state.look(open, self.settings.plan.heat_min);
        let stores_changed = state.up != open::up(view);
        let found = self.compare(&guard, view);
        // Who only observes learns how far things stray from their forecasts all the same.
        if self.settings.mode == Mode::Observe || (!found.any() && !stores_changed) {
            return None;
        }
        self.meet(&guard, open, found, stores_changed, view)
    }
}
