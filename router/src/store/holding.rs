//! Replies that a device holds, and when to let them go so that they are with the client in time.
//!
//! A timer wakes late, by some tens of microseconds, and a message takes as long again from one process into the other.
//! Beside a service time of half a millisecond that is a tenth. Both are known beforehand: how late this store's timer
//! wakes is learnt with every wake-up, and the [way](super::way) was measured at the start. So the timer is set earlier by
//! what it will be late in the mean, and replies go earlier by the way. What is kept is the mean; single replies are off by as
//! much as single wake-ups differ. No clock in here: times are handed in.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// A wake-up that was later than this, in nanoseconds, counts as this late: it met a busy machine, not a slow timer.
const LATE_NS_MAX: u64 = 500_000;
/// Wake-ups over which the mean is taken, about.
const WAKE_UPS: u32 = 32;

/// How late timers wake, in nanoseconds, in the mean. Shared by the connections of a store.
#[derive(Debug, Default)]
pub(super) struct Lateness {
    mean_ns: AtomicU64,
    /// No more than [`WAKE_UPS`].
    seen: AtomicU32,
}

impl Lateness {
    /// As it has been found elsewhere.
    pub(super) fn of(mean_ns: u64) -> Self {
        Self { mean_ns: AtomicU64::new(mean_ns), seen: AtomicU32::new(WAKE_UPS) }
    }

    pub(super) fn mean_ns(&self) -> u64 {
        self.mean_ns.load(Relaxed)
    }

    /// Two connections that say so at once may lose one of the two, which does no harm.
    fn woke(&self, late_ns: u64) {
        let (mean_ns, seen) = (self.mean_ns(), self.seen.load(Relaxed).saturating_add(1).min(WAKE_UPS));
        let sum_ns = mean_ns * u64::from(seen - 1) + late_ns.min(LATE_NS_MAX);
        self.mean_ns.store(sum_ns / u64::from(seen), Relaxed);
        self.seen.store(seen, Relaxed);
    }
}

/// A reply that the device holds.
#[derive(Debug)]
pub(super) struct Held {
    due_ns: u64,
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

    /// Holds a reply that is to leave at `due_ns`.
    pub(super) fn hold(&mut self, due_ns: u64, reply: Vec<u8>, kib: u32) {
        self.sequence += 1;
        self.held.push(Reverse(Held { due_ns, sequence: self.sequence, reply, kib }));
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
        self.until(now_ns.saturating_add(mean_ns))
    }

    /// Woken by something else: what is due may go, also what would be later if it waited for the alarm.
    pub(super) fn passing(&mut self, now_ns: u64, lateness: &Lateness) -> impl Iterator<Item = Held> {
        self.until(now_ns.saturating_add(lateness.mean_ns() / 2))
    }

    fn until(&mut self, until_ns: u64) -> impl Iterator<Item = Held> {
        std::iter::from_fn(move || {
            let due = self.held.peek().is_some_and(|Reverse(held)| held.due_ns <= until_ns);
            if due { self.held.pop().map(|Reverse(held)| held) } else { None }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::device::{Device, DeviceSpec, Distribution, Kind};
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;
    use rand_distr::{Distribution as _, Exp};

    const US: u64 = 1_000;

    /// A store and its client as they are, in simulated time: messages are on their way, timers wake late, and the file
    /// system takes its time.
    struct Machine {
        rng: ChaCha8Rng,
        device: Device,
        /// The same, with all else taking no time.
        ideal: Device,
        holding: Holding,
        lateness: Lateness,
        way_ns: u64,
        /// Sum of response times as the client sees them, and as the ideal device gives them.
        seen_ns: u64,
        ideal_ns: u64,
        calls: u64,
    }

    /// One way, wake-up included; work of the file system; lateness of a timer. At least, and in the mean beyond that.
    const ONE_WAY: (u64, f64) = (12 * US, 15e3);
    const WORK: (u64, f64) = (60 * US, 30e3);
    const LATE: (u64, f64) = (45 * US, 25e3);

    impl Machine {
        fn new(spec: DeviceSpec) -> Self {
            let device = || Device::new(spec, 4);
            let mut machine = Self {
                rng: ChaCha8Rng::seed_from_u64(3),
                device: device(),
                ideal: device(),
                holding: Holding::default(),
                lateness: Lateness::default(),
                way_ns: 0,
                seen_ns: 0,
                ideal_ns: 0,
                calls: 0,
            };
            machine.way_ns =
                (0..64).map(|_| machine.takes(ONE_WAY) + machine.takes(ONE_WAY)).sum::<u64>() / 64;
            machine
        }

        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "times of some microseconds"
        )]
        fn takes(&mut self, (least, beyond): (u64, f64)) -> u64 {
            least + Exp::new(1.0 / beyond).unwrap().sample(&mut self.rng) as u64
        }

        /// Runs calls that are sent at these moments, in order.
        fn run(&mut self, sent: &[u64]) {
            // What comes, when, and which call.
            let mut replies = BinaryHeap::new();
            for (call, &at) in sent.iter().enumerate() {
                self.ideal_ns += self.ideal.admit(at, Kind::Metadata, 0) - at;
                let arrived = at + self.takes(ONE_WAY);
                replies.push(Reverse((arrived + self.takes(WORK), arrived, call)));
            }
            // Whoever waits asks for the alarm again after each wake-up; it rings once.
            let (mut now, mut rings) = (0, None);
            loop {
                let set = self.holding.alarm_ns(now, &self.lateness);
                if set != rings.map(|(set, _)| set) {
                    rings = set.map(|set| (set, set.max(now) + self.takes(LATE)));
                }
                let comes = replies.peek().map(|Reverse((ready, ..))| *ready);
                let ring = rings.map(|(_, ring)| ring);
                match (comes, ring) {
                    (None, None) => return,
                    (Some(ready), ring) if ring.is_none_or(|ring| ready <= ring) => {
                        let Some(Reverse((_, arrived, call))) = replies.pop() else { return };
                        now = now.max(ready);
                        let due = self.device.admit(arrived, Kind::Metadata, 0) - self.way_ns;
                        let reply = u64::try_from(call).unwrap().to_be_bytes().to_vec();
                        if due <= now {
                            self.seen(now, &reply, sent)
                        } else {
                            self.holding.hold(due, reply, 1)
                        }
                        let gone: Vec<Held> = self.holding.passing(now, &self.lateness).collect();
                        gone.iter().for_each(|held| self.seen(now, &held.reply, sent));
                    }
                    (_, Some(ring)) => {
                        now = now.max(ring);
                        rings = None;
                        let gone: Vec<Held> = self.holding.woken(now, &self.lateness).collect();
                        gone.iter().for_each(|held| self.seen(now, &held.reply, sent));
                    }
                    (Some(_), None) => unreachable!("it came"),
                }
            }
        }

        fn seen(&mut self, now: u64, reply: &[u8], sent: &[u64]) {
            let call = usize::try_from(u64::from_be_bytes(reply.try_into().unwrap())).unwrap();
            self.seen_ns += now + self.takes(ONE_WAY) - sent[call];
            self.calls += 1;
        }

        fn off(&self) -> f64 {
            self.seen_ns as f64 / self.ideal_ns as f64 - 1.0
        }
    }

    fn spec(metadata_us: f64, distribution: Distribution) -> DeviceSpec {
        DeviceSpec { metadata_us, distribution, ..DeviceSpec::none() }
    }

    /// 20,000 moments, so many nanoseconds apart in the mean.
    fn moments(mean_ns: f64) -> Vec<u64> {
        let mut rng = ChaCha8Rng::seed_from_u64(8);
        let gap = Exp::new(1.0 / mean_ns).unwrap();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "times of some milliseconds"
        )]
        let gaps = (0..20_000).map(|_| gap.sample(&mut rng) as u64);
        gaps.scan(0, |now, gap| {
            *now += gap;
            Some(*now)
        })
        .collect()
    }

    #[test]
    fn the_mean_of_single_calls_is_kept_from_half_a_millisecond_on() {
        for service_us in [500_u32, 1000, 5000] {
            let mut machine = Machine::new(spec(f64::from(service_us), Distribution::Constant));
            let apart = u64::from(service_us) * US * 2 + 1_000 * US;
            machine.run(&(1..2_000).map(|n| n * apart).collect::<Vec<_>>());
            assert_eq!(machine.calls, 1_999);
            assert!(machine.off().abs() < 0.02, "{service_us} us: {:+.3}", machine.off());
        }
    }

    #[test]
    fn means_are_kept_under_load() {
        for (service_us, distribution) in [
            (500.0, Distribution::Constant),
            (500.0, Distribution::Exponential),
            (2000.0, Distribution::Lognormal { cv: 0.5 }),
        ] {
            for load in [0.1, 0.5, 0.9] {
                let mut machine = Machine::new(spec(service_us, distribution));
                machine.run(&moments(service_us * 1e3 / load));
                assert_eq!(machine.calls, 20_000);
                let off = machine.off();
                assert!(off.abs() < 0.05, "{service_us} us {distribution} at {load}: {off:+.3}");
            }
        }
    }

    #[test]
    fn a_device_that_is_never_idle_finishes_what_its_service_times_say() {
        let mut machine = Machine::new(spec(250.0, Distribution::Constant));
        machine.run(&(0..20_000).map(|n| n * 200 * US).collect::<Vec<_>>());
        // The last of 20,000 is done 5 s after the first came, however late every timer was.
        let last = machine.device.admit(0, Kind::Metadata, 0) - 250 * US;
        assert!((5_000_000 * US..5_000_300 * US).contains(&last), "{last}");
        assert!(machine.off().abs() < 0.01);
    }

    #[test]
    fn replies_leave_in_the_order_in_which_they_are_due() {
        let (mut holding, lateness) = (Holding::default(), Lateness::default());
        for (due, reply) in [(30, 3), (10, 1), (20, 2), (10, 4)] {
            holding.hold(due, vec![reply], 1);
        }
        assert_eq!(holding.alarm_ns(0, &lateness), Some(10));
        let left = |held: Held| held.reply[0];
        assert_eq!(holding.woken(10, &lateness).map(left).collect::<Vec<_>>(), [1, 4]);
        assert_eq!(holding.passing(25, &lateness).map(left).collect::<Vec<_>>(), [2]);
        assert!(!holding.is_empty());
        assert_eq!(holding.passing(30, &lateness).map(left).collect::<Vec<_>>(), [3]);
        assert_eq!((holding.is_empty(), holding.alarm_ns(30, &lateness)), (true, None));
    }

    #[test]
    fn one_very_late_wake_up_counts_no_more_than_a_late_one() {
        let (mut holding, lateness) = (Holding::default(), Lateness::default());
        for n in 1..=200 {
            holding.hold(n * 1000 * US, vec![], 1);
            let alarm = holding.alarm_ns((n - 1) * 1000 * US + 1, &lateness).unwrap();
            assert_eq!(holding.woken(alarm + 60 * US, &lateness).count(), 1);
        }
        assert!((58 * US..=60 * US).contains(&lateness.mean_ns()));
        holding.hold(300_000 * US, vec![], 1);
        let alarm = holding.alarm_ns(250_000 * US, &lateness).unwrap();
        assert_eq!(alarm, 300_000 * US - lateness.mean_ns());
        let _ = holding.woken(900_000 * US, &lateness).count();
        assert!(lateness.mean_ns() < 80 * US);
        // Set for a moment that is over, it says nothing.
        holding.hold(900_000 * US + 1, vec![], 1);
        holding.alarm_ns(900_000 * US, &lateness).unwrap();
        let before = lateness.mean_ns();
        assert_eq!(holding.woken(950_000 * US, &lateness).count(), 1);
        assert_eq!(lateness.mean_ns(), before);
    }
}
