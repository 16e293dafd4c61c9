//! How many bytes of calls a datagram store may have at once.
//!
//! What does not fit a store's receive buffer (some 200 KiB by default, of which a datagram takes about twice its
//! length) is lost without a word, and every loss costs its call a retransmission. So the bytes outstanding keep within a
//! window that grows with replies, is halved when calls have to be sent again, and from then on comes back to where
//! it was only slowly: additive increase, multiplicative decrease, with a memory.

use crate::time::Time;
use std::time::Duration;

/// The window at first: two calls of the largest size.
const BYTES_FIRST: u64 = 72 << 10;
/// One call of the largest size always fits.
const BYTES_MIN: u64 = 36 << 10;
const BYTES_MAX: u64 = 8 << 20;
/// Losses within this time are one event.
const LOSS_EVENT: Duration = Duration::from_millis(500);
/// Growth near the last loss: this many bytes in this time.
const PROBE_BYTES: u64 = 4 << 10;
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// The window of one store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    bytes: u64,
    /// The window at the last loss.
    ceiling: u64,
    lost_at: Option<Time>,
    grown_at: Time,
    outstanding: u64,
}

impl Default for Window {
    fn default() -> Self {
        Self { bytes: BYTES_FIRST, ceiling: BYTES_MAX, lost_at: None, grown_at: Time(0), outstanding: 0 }
    }
}

impl Window {
    /// Whether a call of so many bytes may be sent. One always may.
    pub(crate) fn admits(&self, bytes: usize) -> bool {
        self.outstanding == 0 || self.outstanding + bytes as u64 <= self.bytes
    }

    /// A call was sent for the first time, or anew after it was taken back.
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.outstanding += bytes as u64;
    }

    /// A call is not outstanding any more, without a reply.
    pub(crate) fn taken_back(&mut self, bytes: usize) {
        self.outstanding = self.outstanding.saturating_sub(bytes as u64);
    }

    /// A reply has come.
    pub(crate) fn answered(&mut self, now: Time, bytes: usize) {
        // Nothing is learnt from replies while the window was not used.
        let used = self.outstanding * 2 > self.bytes;
        self.taken_back(bytes);
        if !used {
            return;
        }
        if self.bytes < self.ceiling / 4 * 3 {
            self.bytes += (bytes as u64) / 4;
        } else if now.since(self.grown_at) >= PROBE_EVERY {
            self.grown_at = now;
            self.bytes += PROBE_BYTES;
        }
        self.bytes = self.bytes.min(BYTES_MAX);
    }

    /// A call has to be sent again.
    pub(crate) fn lost(&mut self, now: Time) {
        if self.lost_at.is_some_and(|at| now.since(at) < LOSS_EVENT) {
            return;
        }
        self.lost_at = Some(now);
        self.grown_at = now;
        self.ceiling = self.bytes;
        self.bytes = (self.bytes / 2).max(BYTES_MIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store whose buffer holds `room` bytes, asked for `calls` calls of `size` bytes, a millisecond each; how many
    /// were lost.
    fn losses(room: u64, size: usize, calls: u32) -> u32 {
        let mut window = Window::default();
        let (mut now, mut lost) = (Time(0), 0);
        for _ in 0..calls {
            let mut sent = 0;
            while window.admits(size) {
                window.sent(size);
                sent += 1;
            }
            now = now + Duration::from_millis(1);
            let fit = u32::try_from(room / size as u64).unwrap().min(sent);
            (0..fit).for_each(|_| window.answered(now, size));
            for _ in fit..sent {
                lost += 1;
                window.lost(now + Duration::from_millis(500));
                window.taken_back(size);
            }
            if fit < sent {
                now = now + Duration::from_millis(500);
            }
        }
        assert_eq!(window.outstanding, 0);
        lost
    }

    #[test]
    fn a_small_buffer_overflows_seldom_and_a_large_one_is_used() {
        // 10 s of calls of 32 KiB: at first the window finds the limit, then it probes once in a while.
        assert!(losses(100 << 10, 32 << 10, 10_000) < 30);
        assert_eq!(losses(BYTES_MAX, 32 << 10, 1000), 0);
        let mut window = Window::default();
        for i in 0..1000 {
            while window.admits(32 << 10) {
                window.sent(32 << 10);
            }
            window.answered(Time(i * 1000), 32 << 10);
        }
        assert!(window.bytes > 1 << 20, "{}", window.bytes);
    }

    #[test]
    fn one_call_always_fits() {
        let mut window = Window::default();
        (0..50).for_each(|i| window.lost(Time(i * 1_000_000)));
        assert!(window.admits(1 << 20));
        window.sent(1 << 20);
        assert!(!window.admits(100));
        window.taken_back(1 << 20);
        assert!(window.admits(100));
    }
}
