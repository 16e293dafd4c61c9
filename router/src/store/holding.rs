//! Replies that a device holds, and when to let them go so that they are with the client in time.
//!
//! A timer wakes late, by some tens of microseconds, and a message takes as long again from one process into the other.
//! Beside a service time of half a millisecond that is a tenth. Both are known beforehand: how late this store's timer
//! wakes is learnt with every wake-up, and the [way](super::way) is measured all the time. So the timer is set earlier by
//! what it will be late in the mean, and replies go earlier by the way. What they leave late or early all the same, later
//! replies [make up for](super::lateness). What is kept is the mean; single replies are off by as much as single wake-ups
//! differ, and by what they make up for. No clock in here: times are handed in.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use super::device::Kind;
use super::lateness::Lateness;

/// A reply that the device holds.
#[derive(Debug)]
pub(super) struct Held {
    due_ns: u64,
    kind: Kind,
    /// When its call came.
    pub(super) arrived_ns: u64,
    /// Keeps the order of replies that are due at one moment.
    sequence: u64,
    /// The reply, without record mark.
    pub(super) reply: Vec<u8>,
    /// What it was counted with.
    pub(super) kib: u32,
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Held {}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Held {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.due_ns, self.sequence).cmp(&(other.due_ns, other.sequence))
    }
}

/// A call that the device is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    pub(super) kind: Kind,
    pub(super) arrived_ns: u64,
    /// When the device is done with it.
    pub(super) done_ns: u64,
    /// What its client sees beyond the time that the call is here.
    pub(super) way_ns: u64,
}

/// The replies of one connection that are held. As many as the connection may have calls outstanding.
#[derive(Debug, Default)]
pub(super) struct Holding {
    held: BinaryHeap<Reverse<Held>>,
    sequence: u64,
    /// For what the alarm was set last, if that lay ahead.
    ahead_ns: Option<u64>,
}

impl Holding {
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Holds a reply, which is there now, until it is to leave; or gives it back if that is at once.
    pub(super) fn hold<'a>(
        &mut self,
        now_ns: u64,
        asked: &Asked,
        lateness: &Lateness,
        (reply, kib): (&'a [u8], u32),
    ) -> Option<&'a [u8]> {
        let &Asked { kind, arrived_ns, done_ns, way_ns } = asked;
        let due_ns = done_ns.saturating_sub(way_ns);
        if due_ns <= now_ns {
            // The real file system took longer than the device.
            lateness.owe(kind, late_ns(now_ns, due_ns));
            return Some(reply);
        }
        let due_ns = due_ns.saturating_add_signed(-lateness.repay(kind, done_ns.saturating_sub(arrived_ns)));
        self.sequence += 1;
        let (sequence, reply) = (self.sequence, reply.to_vec());
        self.held.push(Reverse(Held { due_ns, kind, arrived_ns, sequence, reply, kib }));
        None
    }

    /// When to be woken, asked now.
    pub(super) fn alarm_ns(&mut self, now_ns: u64, lateness: &Lateness) -> Option<u64> {
        let Reverse(first) = self.held.peek()?;
        let alarm_ns = first.due_ns.saturating_sub(lateness.mean_ns());
        // One that is set for a moment that is over says nothing about how late it wakes.
        self.ahead_ns = (alarm_ns > now_ns).then_some(alarm_ns);
        Some(alarm_ns)
    }

    /// Woken by the alarm: what it was set for may go, and the alarm's lateness is known.
    pub(super) fn woken(&mut self, now_ns: u64, lateness: &Lateness) -> impl Iterator<Item = Held> {
        let mean_ns = lateness.mean_ns();
        if let Some(alarm_ns) = self.ahead_ns.take() {
            lateness.woke(now_ns.saturating_sub(alarm_ns));
        }
        self.until(now_ns, mean_ns, lateness)
    }

    /// Woken by something else: what is due may go, also what would be later if it waited for the alarm.
    pub(super) fn passing(&mut self, now_ns: u64, lateness: &Lateness) -> impl Iterator<Item = Held> {
        self.until(now_ns, lateness.mean_ns() / 2, lateness)
    }

    fn until(&mut self, now_ns: u64, early_ns: u64, lateness: &Lateness) -> impl Iterator<Item = Held> {
        let until_ns = now_ns.saturating_add(early_ns);
        std::iter::from_fn(move || {
            let first = self.held.peek_mut().filter(|first| first.0.due_ns <= until_ns)?;
            let Reverse(held) = PeekMut::pop(first);
            lateness.owe(held.kind, late_ns(now_ns, held.due_ns));
            Some(held)
        })
    }
}

/// By how much a reply that leaves now is late; negative where it is early.
fn late_ns(now_ns: u64, due_ns: u64) -> i64 {
    now_ns.cast_signed().saturating_sub(due_ns.cast_signed())
}

#[cfg(test)]
mod tests;
