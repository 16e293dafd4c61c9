//! How late a store's timers wake, and by how much its replies have left late so far.
//!
//! The first is a mean, known beforehand with the next wake-up in mind. The second is a debt: whatever a reply was late
//! when it really left, because a timer was later than usual, because the file system took longer than the device, or
//! because the machine was busy, later replies make up for, each by a small part of its response time. So the mean is
//! kept at the store's door whatever timers do, and not only as well as they can be predicted.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64};

use super::device::Kind;

/// A wake-up that was later than this, in nanoseconds, counts as this late: it met a busy machine, not a slow timer.
const LATE_NS_MAX: u64 = 500_000;
/// Wake-ups over which the mean is taken, about.
const WAKE_UPS: u32 = 32;
/// Owed by the replies of one kind at the most, either way, in nanoseconds. What is beyond it is forgotten: a machine
/// that stood still, or a device that is faster than the file system under it, is not made up for at a later time.
const OWED_NS_MAX: i64 = 5_000_000;
/// One reply makes up for this part of its response time at the most,
const REPAID_PART: u64 = 8;
/// and for so many nanoseconds.
const REPAID_NS_MAX: u64 = 100_000;

/// What the connections of a store have learnt about being late.
#[derive(Debug, Default)]
pub(super) struct Lateness {
    /// How late timers wake, in nanoseconds, in the mean.
    mean_ns: AtomicU64,
    /// No more than [`WAKE_UPS`].
    seen: AtomicU32,
    /// By kind, so that calls whose times cannot be kept do not make others faster. Negative where replies left early.
    owed_ns: [AtomicI64; 3],
}

impl Lateness {
    /// Of timers as it has been found elsewhere, and nothing owed.
    pub(super) fn of(mean_ns: u64) -> Self {
        Self { mean_ns: AtomicU64::new(mean_ns), seen: AtomicU32::new(WAKE_UPS), ..Self::default() }
    }

    /// How late timers wake, in nanoseconds, in the mean.
    pub(super) fn mean_ns(&self) -> u64 {
        self.mean_ns.load(Relaxed)
    }

    /// A timer woke so late. Two connections that say so at once may lose one of the two, which does no harm.
    pub(super) fn woke(&self, late_ns: u64) {
        let (mean_ns, seen) = (self.mean_ns(), self.seen.load(Relaxed).saturating_add(1).min(WAKE_UPS));
        let sum_ns = mean_ns * u64::from(seen - 1) + late_ns.min(LATE_NS_MAX);
        self.mean_ns.store(sum_ns / u64::from(seen), Relaxed);
        self.seen.store(seen, Relaxed);
    }

    /// A reply of this kind left so late, or early where that is negative.
    pub(super) fn owe(&self, kind: Kind, late_ns: i64) {
        let sum = |owed_ns: i64| Some(owed_ns.saturating_add(late_ns).clamp(-OWED_NS_MAX, OWED_NS_MAX));
        // There is a sum always.
        let _before = self.owed(kind).fetch_update(Relaxed, Relaxed, sum);
    }

    /// By how much a reply of this response time is to leave earlier, or later where that is negative. It is paid
    /// therewith.
    pub(super) fn repay(&self, kind: Kind, response_ns: u64) -> i64 {
        let most_ns = (response_ns / REPAID_PART).min(REPAID_NS_MAX).cast_signed();
        let owed = self.owed(kind);
        let paid_ns = owed.load(Relaxed).clamp(-most_ns, most_ns);
        owed.fetch_sub(paid_ns, Relaxed);
        paid_ns
    }

    fn owed(&self, kind: Kind) -> &AtomicI64 {
        &self.owed_ns[match kind {
            Kind::Metadata => 0,
            Kind::Read => 1,
            Kind::Write => 2,
        }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: i64 = 1_000;

    #[test]
    fn what_is_owed_is_paid_in_small_parts() {
        let lateness = Lateness::default();
        lateness.owe(Kind::Read, 150 * US);
        assert_eq!(lateness.repay(Kind::Metadata, 1_000_000), 0, "another kind");
        assert_eq!(lateness.repay(Kind::Read, 400_000), 50 * US, "an eighth of its time");
        assert_eq!(lateness.repay(Kind::Read, 8_000_000), 100 * US, "no more, however long it takes");
        assert_eq!(lateness.repay(Kind::Read, 8_000_000), 0);
        lateness.owe(Kind::Read, -60 * US);
        assert_eq!(lateness.repay(Kind::Read, 400_000), -50 * US);
        assert_eq!(lateness.repay(Kind::Read, 400_000), -10 * US);
    }

    #[test]
    fn no_more_is_owed_than_the_bound() {
        let lateness = Lateness::default();
        for (late_ns, bound_ns) in [(i64::MAX, OWED_NS_MAX), (i64::MIN, -OWED_NS_MAX)] {
            lateness.owe(Kind::Write, late_ns);
            lateness.owe(Kind::Write, late_ns);
            let paid_ns: i64 = (0..1_000).map(|_| lateness.repay(Kind::Write, 800_000)).sum();
            assert_eq!(paid_ns, bound_ns);
        }
    }
}
