use super::super::device::{Device, DeviceSpec, Distribution};
use super::super::way::Way;
use super::*;
use rand::{RngExt as _, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution as _, Exp1};

const US: u64 = 1_000;

/// How long something takes, at least, and in the mean beyond that; and of a thousand, how many take 2 ms more.
#[derive(Debug, Clone, Copy)]
struct Takes {
    least_us: f64,
    beyond_us: f64,
    stuck: u32,
}

const fn takes(least_us: f64, beyond_us: f64, stuck: u32) -> Takes {
    Takes { least_us, beyond_us, stuck }
}

impl Takes {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times of some microseconds")]
    fn draw(self, rng: &mut ChaCha8Rng) -> u64 {
        let beyond: f64 = Exp1.sample(rng);
        let stuck = if rng.random_range(0..1000) < self.stuck { 2_000.0 } else { 0.0 };
        (1e3 * (self.least_us + self.beyond_us * beyond + stuck)) as u64
    }

    /// Part of the way from here to there.
    fn towards(self, there: Self, part: f64) -> Self {
        let between = |a: f64, b: f64| a + (b - a) * part;
        Self {
            least_us: between(self.least_us, there.least_us),
            beyond_us: between(self.beyond_us, there.beyond_us),
            stuck: there.stuck,
        }
    }
}

/// What a machine does beside the device.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// A message's, wake-up included.
    one_way: Takes,
    /// Of the file system.
    work: Takes,
    /// A timer's.
    late: Takes,
}

const USUAL: Pace =
    Pace { one_way: takes(12.0, 15.0, 0), work: takes(60.0, 30.0, 0), late: takes(45.0, 25.0, 0) };
/// As it is after hours: everything wakes far later, and now and then not for milliseconds.
const TIRED: Pace =
    Pace { one_way: takes(40.0, 35.0, 0), work: takes(90.0, 60.0, 4), late: takes(90.0, 80.0, 4) };

impl Pace {
    fn towards(self, there: Self, part: f64) -> Self {
        Self {
            one_way: self.one_way.towards(there.one_way, part),
            work: self.work.towards(there.work, part),
            late: self.late.towards(there.late, part),
        }
    }
}

/// A part of a run: calls, and their response times as the client sees them and as the ideal device gives them.
#[derive(Debug, Clone, Copy, Default)]
struct Period {
    seen_ns: u64,
    ideal_ns: u64,
    calls: u64,
}

impl Period {
    fn off(&self) -> f64 {
        self.seen_ns as f64 / self.ideal_ns as f64 - 1.0
    }
}

const PERIODS: usize = 4;
/// Between two looks at the way.
const LOOK_AGAIN_NS: u64 = 70_000 * US;

/// A store and its client as they are, in simulated time: messages are on their way, timers wake late, and the file
/// system takes its time; all this changes from the beginning of a run to its end.
struct Machine {
    rng: ChaCha8Rng,
    device: Device,
    /// The same, with all else taking no time.
    ideal: Device,
    holding: Holding,
    way: Way,
    begins: Pace,
    ends: Pace,
    looks: bool,
    /// The last call is sent at.
    end_ns: u64,
    periods: [Period; PERIODS],
    /// The shortest response time.
    earliest_ns: u64,
}

impl Machine {
    fn new(spec: DeviceSpec, begins: Pace, ends: Pace) -> Self {
        let device = || Device::new(spec, 4);
        let mut machine = Self {
            rng: ChaCha8Rng::seed_from_u64(3),
            device: device(),
            ideal: device(),
            holding: Holding::default(),
            way: Way::default(),
            begins,
            ends,
            looks: true,
            end_ns: 1,
            periods: [Period::default(); PERIODS],
            earliest_ns: u64::MAX,
        };
        let ways_ns: u64 = (0..64).map(|_| machine.both_ways(0)).sum();
        machine.way = Way::of(ways_ns / 64, 0);
        machine
    }

    fn pace(&self, now: u64) -> Pace {
        self.begins.towards(self.ends, (now as f64 / self.end_ns as f64).min(1.0))
    }

    fn one_way(&mut self, now: u64) -> u64 {
        self.pace(now).one_way.draw(&mut self.rng)
    }

    fn both_ways(&mut self, now: u64) -> u64 {
        self.one_way(now) + self.one_way(now)
    }

    /// Runs calls that are sent at these moments, in order.
    fn run(&mut self, sent: &[u64]) {
        self.end_ns = sent[sent.len() - 1].max(1);
        // What comes, when, and which call.
        let mut replies = BinaryHeap::new();
        let mut ideal = Vec::new();
        for (call, &at) in sent.iter().enumerate() {
            ideal.push(self.ideal.admit(at, Kind::Metadata, 0));
            let arrived = at + self.one_way(at);
            let work = self.pace(at).work.draw(&mut self.rng);
            replies.push(Reverse((arrived + work, arrived, call)));
        }
        // Whoever waits asks for the alarm again after each wake-up; it rings once.
        let (mut now, mut rings, mut look) = (0, None, LOOK_AGAIN_NS);
        loop {
            let set = self.holding.alarm_ns(now, &self.way.lateness);
            if set != rings.map(|(set, _)| set) {
                let late = self.pace(now).late;
                rings = set.map(|set| (set, set.max(now) + late.draw(&mut self.rng)));
            }
            let comes = replies.peek().map(|Reverse((ready, ..))| *ready);
            let ring = rings.map(|(_, ring)| ring);
            let gone: Vec<Held> = match (comes, ring) {
                (None, None) => return,
                (Some(ready), ring) if ring.is_none_or(|ring| ready <= ring) => {
                    let Some(Reverse((_, arrived_ns, call))) = replies.pop() else { return };
                    now = now.max(ready);
                    self.comes(now, arrived_ns, call, sent, &ideal);
                    self.holding.passing(now, &self.way.lateness).collect()
                }
                (_, Some(ring)) => {
                    now = now.max(ring);
                    rings = None;
                    self.holding.woken(now, &self.way.lateness).collect()
                }
                (Some(_), None) => unreachable!("it came"),
            };
            gone.iter().for_each(|held| self.seen(now, &held.reply, sent, &ideal));
            if self.looks && now > look {
                look = now + LOOK_AGAIN_NS;
                let way_ns = self.both_ways(now);
                self.way.seen(way_ns);
            }
        }
    }

    /// The file system has answered.
    fn comes(&mut self, now: u64, arrived_ns: u64, call: usize, sent: &[u64], ideal: &[u64]) {
        let (kind, way_ns) = (Kind::Metadata, self.way.both_ns());
        let asked = Asked { kind, arrived_ns, done_ns: self.device.admit(arrived_ns, kind, 0), way_ns };
        let reply = u64::try_from(call).unwrap().to_be_bytes();
        if self.holding.hold(now, &asked, &self.way.lateness, (&reply, 1)).is_some() {
            self.seen(now, &reply, sent, ideal);
        }
    }

    fn seen(&mut self, now: u64, reply: &[u8], sent: &[u64], ideal: &[u64]) {
        let call = usize::try_from(u64::from_be_bytes(reply.try_into().unwrap())).unwrap();
        let seen_ns = now + self.one_way(now) - sent[call];
        let period = &mut self.periods[call * PERIODS / sent.len()];
        period.seen_ns += seen_ns;
        period.ideal_ns += ideal[call] - sent[call];
        period.calls += 1;
        self.earliest_ns = self.earliest_ns.min(seen_ns);
    }

    fn calls(&self) -> u64 {
        self.periods.iter().map(|period| period.calls).sum()
    }

    /// The period that is off most.
    fn off(&self) -> f64 {
        let off = self.periods.iter().map(Period::off);
        off.max_by(|a, b| a.abs().total_cmp(&b.abs())).unwrap()
    }
}

fn spec(metadata_us: f64, distribution: Distribution) -> DeviceSpec {
    DeviceSpec { metadata_us, distribution, ..DeviceSpec::none() }
}

/// 20,000 moments, so many nanoseconds apart in the mean.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times of some milliseconds")]
fn moments(mean_ns: f64) -> Vec<u64> {
    let mut rng = ChaCha8Rng::seed_from_u64(8);
    let gaps = (0..20_000).map(|_| {
        let gap: f64 = Exp1.sample(&mut rng);
        (gap * mean_ns) as u64
    });
    gaps.scan(0, |now, gap| {
        *now += gap;
        Some(*now)
    })
    .collect()
}

#[test]
fn the_mean_of_single_calls_is_kept_from_half_a_millisecond_on() {
    for service_us in [500_u32, 1000, 5000] {
        let mut machine = Machine::new(spec(f64::from(service_us), Distribution::Constant), USUAL, USUAL);
        let apart = u64::from(service_us) * US * 2 + 1_000 * US;
        machine.run(&(1..2_000).map(|n| n * apart).collect::<Vec<_>>());
        assert_eq!(machine.calls(), 1_999);
        assert!(machine.off().abs() < 0.02, "{service_us} us: {:+.3}", machine.off());
    }
}

#[test]
fn means_are_kept_under_load() {
    for (service_us, distribution) in [
        (250.0, Distribution::Constant),
        (500.0, Distribution::Constant),
        (500.0, Distribution::Exponential),
        (2000.0, Distribution::Lognormal { cv: 0.5 }),
    ] {
        for load in [0.1, 0.5, 0.9] {
            let mut machine = Machine::new(spec(service_us, distribution), USUAL, USUAL);
            machine.run(&moments(service_us * 1e3 / load));
            assert_eq!(machine.calls(), 20_000);
            let off = machine.off();
            assert!(off.abs() < 0.05, "{service_us} us {distribution} at {load}: {off:+.3}");
        }
    }
}

#[test]
fn means_are_kept_while_ways_and_timers_drift() {
    for (begins, ends) in [(USUAL, TIRED), (TIRED, USUAL), (TIRED, TIRED)] {
        for service_us in [500.0, 1000.0, 5000.0] {
            for load in [0.1, 0.5] {
                let mut machine = Machine::new(spec(service_us, Distribution::Constant), begins, ends);
                machine.run(&moments(service_us * 1e3 / load));
                let off = machine.periods.map(|period| format!("{:+.3}", period.off()));
                let earliest = machine.earliest_ns as f64 / 1e3 / service_us;
                assert_eq!(machine.calls(), 20_000);
                assert!(machine.off().abs() < 0.05, "{service_us} us at {load}: {off:?}");
                assert!(earliest > 0.5, "a reply after {earliest} of its service time");
            }
        }
    }
    // And not because nothing drifts.
    let mut machine = Machine::new(spec(500.0, Distribution::Constant), USUAL, TIRED);
    machine.looks = false;
    machine.run(&moments(1000.0 * 1e3));
    assert!(machine.off() > 0.08, "{:+.3}", machine.off());
}

#[test]
fn what_the_file_system_takes_beyond_the_device_now_and_then_is_made_up_for() {
    // One call in seven is not ready when the device is done with it: 6 % more in the mean, if that were left so.
    let slow = Pace { work: takes(60.0, 200.0, 0), ..USUAL };
    let mut machine = Machine::new(spec(500.0, Distribution::Constant), slow, slow);
    machine.run(&(1..4_000).map(|n| n * 2_500 * US).collect::<Vec<_>>());
    assert!(machine.off().abs() < 0.02, "{:+.3}", machine.off());
}

#[test]
fn a_device_that_is_never_idle_finishes_what_its_service_times_say() {
    let mut machine = Machine::new(spec(250.0, Distribution::Constant), USUAL, TIRED);
    machine.run(&(0..20_000).map(|n| n * 200 * US).collect::<Vec<_>>());
    // The last of 20,000 is done 5 s after the first came, however late every timer was.
    let last = machine.device.admit(0, Kind::Metadata, 0) - 250 * US;
    assert!((5_000_000 * US..5_000_300 * US).contains(&last), "{last}");
    assert!(machine.off().abs() < 0.01);
}

/// A call that came 800 us before it is done, with no time under way: makes up for 100 us at the most.
fn done(done_ns: u64) -> Asked {
    Asked { kind: Kind::Metadata, arrived_ns: done_ns.saturating_sub(800 * US), done_ns, way_ns: 0 }
}

#[test]
fn replies_leave_in_the_order_in_which_they_are_due() {
    let (mut holding, lateness) = (Holding::default(), Lateness::default());
    for (due, reply) in [(30, 3), (10, 1), (20, 2), (10, 4)] {
        assert_eq!(holding.hold(0, &done(due), &lateness, (&[reply], 1)), None);
    }
    assert_eq!(holding.hold(10, &done(10), &lateness, (&[9], 1)), Some(&[9][..]), "due now");
    assert_eq!(holding.alarm_ns(0, &lateness), Some(10));
    let left = |held: Held| held.reply[0];
    assert_eq!(holding.woken(10, &lateness).map(left).collect::<Vec<_>>(), [1, 4]);
    assert_eq!(holding.passing(25, &lateness).map(left).collect::<Vec<_>>(), [2]);
    assert!(!holding.is_empty());
    assert_eq!(holding.passing(30, &lateness).map(left).collect::<Vec<_>>(), [3]);
    assert_eq!((holding.is_empty(), holding.alarm_ns(30, &lateness)), (true, None));
}

#[test]
fn a_late_reply_makes_the_next_ones_earlier() {
    let (mut holding, lateness) = (Holding::default(), Lateness::default());
    // The file system was done 150 us after the device.
    assert!(holding.hold(1_150 * US, &done(1_000 * US), &lateness, (&[], 1)).is_some());
    let mut alarms = Vec::new();
    for n in 2..=4 {
        assert!(
            holding.hold(n * 1_000 * US - 900 * US, &done(n * 1_000 * US), &lateness, (&[], 1)).is_none()
        );
        let alarm = holding.alarm_ns(n * 1_000 * US - 900 * US, &lateness).unwrap();
        alarms.push(alarm / US);
        assert_eq!(holding.woken(alarm, &lateness).count(), 1);
    }
    assert_eq!(alarms, [1_900, 2_950, 4_000]);
}

#[test]
fn one_very_late_wake_up_counts_no_more_than_a_late_one() {
    let (mut holding, lateness) = (Holding::default(), Lateness::default());
    let hold = |holding: &mut Holding, due| {
        // With a response time of nothing: nothing is made up for.
        let asked = Asked { arrived_ns: due, ..done(due) };
        assert!(holding.hold(0, &asked, &lateness, (&[], 1)).is_none());
    };
    for n in 1..=200 {
        hold(&mut holding, n * 1000 * US);
        let alarm = holding.alarm_ns((n - 1) * 1000 * US + 1, &lateness).unwrap();
        assert_eq!(holding.woken(alarm + 60 * US, &lateness).count(), 1);
    }
    assert!((58 * US..=60 * US).contains(&lateness.mean_ns()));
    hold(&mut holding, 300_000 * US);
    let alarm = holding.alarm_ns(250_000 * US, &lateness).unwrap();
    assert_eq!(alarm, 300_000 * US - lateness.mean_ns());
    let _ = holding.woken(900_000 * US, &lateness).count();
    assert!(lateness.mean_ns() < 80 * US);
    // Set for a moment that is over, it says nothing.
    hold(&mut holding, 900_000 * US + 1);
    holding.alarm_ns(900_000 * US, &lateness).unwrap();
    let before = lateness.mean_ns();
    assert_eq!(holding.woken(950_000 * US, &lateness).count(), 1);
    assert_eq!(lateness.mean_ns(), before);
}
