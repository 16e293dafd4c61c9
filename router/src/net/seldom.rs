//! Messages about what may happen many times a second.

use std::time::{Duration, Instant};

/// One message of a kind is let out in this time; the next one says how many were kept back.
const SILENCE: Duration = Duration::from_secs(30);

/// Decides which of the messages of one kind go out.
#[derive(Debug, Default)]
pub(crate) struct Seldom {
    last: Option<Instant>,
    kept_back: u64,
}

impl Seldom {
    /// Whether a message goes out now; if so, how many were kept back before it.
    pub(crate) fn turn(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now < last + SILENCE) {
            self.kept_back += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.kept_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_message_goes_out_at_once_and_the_next_counts_those_in_between() {
        let mut seldom = Seldom::default();
        let begin = Instant::now();
        assert_eq!(seldom.turn(begin), Some(0));
        for tenth in 1..300 {
            assert_eq!(seldom.turn(begin + tenth * SILENCE / 300), None);
        }
        assert_eq!(seldom.turn(begin + SILENCE), Some(299));
        assert_eq!(seldom.turn(begin + SILENCE * 2), Some(0));
    }
}
