//! The device in front of a store: a queue with a number of servers, in virtual time.
//!
//! Calls are served in the order in which they come. One that comes at `t` begins at `max(t, the moment at which
//! the first server is free)` and ends its service time later; its reply is held until then. The moments follow
//! from each other, never from when a timer woke up, so that late wake-ups do not add up: a saturated device
//! finishes exactly as many calls a second as its service times say. How a reply gets to its client by that moment
//! although timers and messages take a while is the business of [`holding`](super::holding) and [`way`](super::way).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::str::FromStr;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution as _, Exp1, StandardNormal};
use serde::{Deserialize, Serialize};

/// How service times spread around their mean.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Distribution {
    /// All alike: `"constant"`.
    #[default]
    Constant,
    /// Exponential, coefficient of variation 1: `"exponential"`.
    Exponential,
    /// Log-normal with this coefficient of variation, as in `"lognormal:0.5"`.
    Lognormal {
        /// Standard deviation over mean.
        cv: f64,
    },
}

impl Distribution {
    /// A factor of mean 1 for one service time.
    fn factor(self, rng: &mut ChaCha8Rng) -> f64 {
        match self {
            Self::Constant => 1.0,
            Self::Exponential => Exp1.sample(rng),
            Self::Lognormal { cv } => {
                let variance = (cv * cv).ln_1p();
                let normal: f64 = StandardNormal.sample(rng);
                variance.sqrt().mul_add(normal, -variance / 2.0).exp()
            }
        }
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant => f.write_str("constant"),
            Self::Exponential => f.write_str("exponential"),
            Self::Lognormal { cv } => write!(f, "lognormal:{cv}"),
        }
    }
}

impl From<Distribution> for String {
    fn from(distribution: Distribution) -> Self {
        distribution.to_string()
    }
}

impl TryFrom<String> for Distribution {
    type Error = DeviceError;

    fn try_from(text: String) -> Result<Self, DeviceError> {
        text.parse()
    }
}

impl FromStr for Distribution {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<Self, DeviceError> {
        match text.split_once(':') {
            None if text == "constant" => Ok(Self::Constant),
            None if text == "exponential" => Ok(Self::Exponential),
            Some(("lognormal", cv)) => match cv.parse() {
                Ok(cv) if (0.0..=100.0).contains(&cv) => Ok(Self::Lognormal { cv }),
                _ => Err(DeviceError::Variation(cv.to_owned())),
            },
            _ => Err(DeviceError::Distribution(text.to_owned())),
        }
    }
}

/// Why a device cannot be as it is asked for.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum DeviceError {
    /// No such distribution.
    #[error("unknown distribution {0:?}: constant, exponential, or lognormal:CV such as lognormal:0.5")]
    Distribution(String),
    /// A coefficient of variation that is none.
    #[error("{0:?} is no coefficient of variation: a number from 0 to 100, as in lognormal:0.5")]
    Variation(String),
    /// A service time that is none.
    #[error("{field} = {value} is no service time: microseconds from 0 to {SERVICE_US_MAX}")]
    ServiceTime {
        /// The field that holds it.
        field: &'static str,
        /// What it holds.
        value: f64,
    },
    /// A number of servers that is none.
    #[error("servers = {0}: a device has 1 to {SERVERS_MAX} servers")]
    Servers(u32),
}

/// The longest service time, in microseconds: one minute.
const SERVICE_US_MAX: f64 = 60e6;
/// Servers of a device at the most.
const SERVERS_MAX: u32 = 4096;

/// A device: how many calls it works on at once, and how long it works on one.
///
/// Service times are means in microseconds; the time of a READ or WRITE is its base plus its bytes times the
/// part for each KiB. All of zero is a store without a device.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeviceSpec {
    /// Calls in service at once.
    pub servers: u32,
    /// For a call that moves no file data, in microseconds.
    pub metadata_us: f64,
    /// For a READ, in microseconds.
    pub read_us: f64,
    /// For each KiB that a READ gives, in microseconds.
    pub read_us_per_kib: f64,
    /// For a WRITE or COMMIT, in microseconds.
    pub write_us: f64,
    /// For each KiB of a WRITE, in microseconds.
    pub write_us_per_kib: f64,
    /// How the times spread.
    pub distribution: Distribution,
}

impl Default for DeviceSpec {
    fn default() -> Self {
        Self::none()
    }
}

impl DeviceSpec {
    /// No device: replies leave as soon as they are ready.
    pub const fn none() -> Self {
        Self {
            servers: 1,
            metadata_us: 0.0,
            read_us: 0.0,
            read_us_per_kib: 0.0,
            write_us: 0.0,
            write_us_per_kib: 0.0,
            distribution: Distribution::Constant,
        }
    }

    /// Whether no call is ever held.
    pub fn is_none(&self) -> bool {
        self.times().iter().all(|(_, time_us)| *time_us == 0.0)
    }

    fn times(&self) -> [(&'static str, f64); 5] {
        [
            ("metadata_us", self.metadata_us),
            ("read_us", self.read_us),
            ("read_us_per_kib", self.read_us_per_kib),
            ("write_us", self.write_us),
            ("write_us_per_kib", self.write_us_per_kib),
        ]
    }

    /// Checks what the types do not say.
    ///
    /// # Errors
    /// [`DeviceError`] names the field that cannot be.
    pub fn check(&self) -> Result<(), DeviceError> {
        if !(1..=SERVERS_MAX).contains(&self.servers) {
            return Err(DeviceError::Servers(self.servers));
        }
        match self.times().into_iter().find(|(_, time_us)| !(0.0..=SERVICE_US_MAX).contains(time_us)) {
            Some((field, value)) => Err(DeviceError::ServiceTime { field, value }),
            None => Ok(()),
        }
    }

    /// The mean service time of a call, in nanoseconds.
    pub fn mean_ns(&self, kind: Kind, bytes: u32) -> f64 {
        let kib = f64::from(bytes) / 1024.0;
        1e3 * match kind {
            Kind::Metadata => self.metadata_us,
            Kind::Read => self.read_us_per_kib.mul_add(kib, self.read_us),
            Kind::Write => self.write_us_per_kib.mul_add(kib, self.write_us),
        }
    }
}

/// What a call asks of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Names and attributes.
    Metadata,
    /// File data from the store.
    Read,
    /// File data to the store, or to be made safe there.
    Write,
}

/// The queue of one device. No clock and no timer in here: times are handed in.
#[derive(Debug)]
pub struct Device {
    spec: DeviceSpec,
    /// When each server is free, in nanoseconds of the caller's clock.
    free_ns: BinaryHeap<Reverse<u64>>,
    rng: ChaCha8Rng,
}

impl Device {
    /// An idle device; the seed decides every service time to come.
    pub fn new(spec: DeviceSpec, seed: u64) -> Self {
        let servers = spec.servers.clamp(1, SERVERS_MAX);
        Self {
            spec,
            free_ns: (0..servers).map(|_| Reverse(0)).collect(),
            rng: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    /// Takes a call that comes now and says when it is done. Times are nanoseconds of one clock that does not go
    /// back, and calls are taken in the order of the queue.
    pub fn admit(&mut self, now_ns: u64, kind: Kind, bytes: u32) -> u64 {
        self.serve(now_ns, kind, bytes).unwrap_or(now_ns)
    }

    /// The same; `None` where such a call takes the device no time.
    pub(super) fn serve(&mut self, now_ns: u64, kind: Kind, bytes: u32) -> Option<u64> {
        let mean_ns = self.spec.mean_ns(kind, bytes);
        if mean_ns <= 0.0 {
            return None;
        }
        let service_ns = nanoseconds(mean_ns * self.spec.distribution.factor(&mut self.rng));
        let mut first = self.free_ns.peek_mut()?;
        let done_ns = now_ns.max(first.0).saturating_add(service_ns);
        *first = Reverse(done_ns);
        Some(done_ns)
    }
}

/// A time of at most some hours, rounded. (A `u64` holds 2^53 ns = 104 days of them exactly.)
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to what fits")]
fn nanoseconds(time_ns: f64) -> u64 {
    time_ns.clamp(0.0, 9e15).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::RngExt as _;

    const CALLS: u32 = 400_000;

    fn spec(servers: u32, metadata_us: f64, distribution: Distribution) -> DeviceSpec {
        DeviceSpec { servers, metadata_us, distribution, ..DeviceSpec::none() }
    }

    /// Mean wait before service, in units of the mean service time, under Poisson arrivals.
    fn mean_wait(spec: DeviceSpec, load: f64, seed: u64) -> f64 {
        let mut device = Device::new(spec, seed);
        let mut rng = ChaCha8Rng::seed_from_u64(seed + 1);
        let service_ns = spec.mean_ns(Kind::Metadata, 0);
        let gap_ns = service_ns / (load * f64::from(spec.servers));
        let (mut now, mut total_ns) = (0.0, 0.0);
        for _ in 0..CALLS {
            let gap: f64 = Exp1.sample(&mut rng);
            now += gap * gap_ns;
            let now_ns = nanoseconds(now);
            total_ns += device.admit(now_ns, Kind::Metadata, 0) as f64 - now_ns as f64;
        }
        total_ns / f64::from(CALLS) / service_ns - 1.0
    }

    fn assert_close(found: f64, wanted: f64, tolerance: f64) {
        assert!((found / wanted - 1.0).abs() < tolerance, "found {found}, wanted {wanted}");
    }

    #[test]
    fn one_exponential_server_waits_as_m_m_1_says() {
        for load in [0.3, 0.5, 0.7] {
            let wait = mean_wait(spec(1, 1000.0, Distribution::Exponential), load, 5);
            assert_close(wait, load / (1.0 - load), 0.05);
        }
    }

    #[test]
    fn four_exponential_servers_wait_as_erlang_c_says() {
        let (servers, load) = (4_u32, 0.8);
        let offered = load * f64::from(servers);
        let mut term = 1.0;
        let mut below = 0.0;
        for n in 1..=servers {
            below += term;
            term *= offered / f64::from(n);
        }
        let queued = term / (1.0 - load);
        let waits = queued / (below + queued);
        let wait = mean_wait(spec(servers, 1000.0, Distribution::Exponential), load, 6);
        assert_close(wait, waits / (f64::from(servers) * (1.0 - load)), 0.05);
    }

    #[test]
    fn other_distributions_wait_as_pollaczek_and_khinchine_say() {
        let load = 0.6;
        for (distribution, cv) in [(Distribution::Constant, 0.0), (Distribution::Lognormal { cv: 0.5 }, 0.5)]
        {
            let wait = mean_wait(spec(1, 200.0, distribution), load, 7);
            assert_close(wait, load / (1.0 - load) * f64::midpoint(1.0, cv * cv), 0.05);
        }
    }

    #[test]
    fn means_are_kept_for_times_well_below_a_millisecond() {
        for distribution in
            [Distribution::Constant, Distribution::Exponential, Distribution::Lognormal { cv: 1.5 }]
        {
            let mut device = Device::new(spec(1, 50.0, distribution), 3);
            let mut done_ns = 0;
            for _ in 0..CALLS {
                done_ns = device.admit(0, Kind::Metadata, 0);
            }
            assert_close(done_ns as f64 / f64::from(CALLS), 50_000.0, 0.02);
        }
    }

    #[test]
    fn size_and_kind_count() {
        let spec = DeviceSpec {
            read_us: 100.0,
            read_us_per_kib: 2.0,
            write_us: 300.0,
            write_us_per_kib: 4.0,
            ..DeviceSpec::none()
        };
        let mut device = Device::new(spec, 1);
        assert_eq!(device.admit(0, Kind::Metadata, 0), 0, "costs nothing here");
        assert_eq!(device.admit(0, Kind::Read, 32 * 1024), 164_000);
        assert_eq!(device.admit(0, Kind::Write, 1024), 164_000 + 304_000, "behind the first");
    }

    #[test]
    fn the_seed_decides_the_times() {
        let run = |seed| {
            let mut device = Device::new(spec(2, 100.0, Distribution::Exponential), seed);
            (0..100).map(|n| device.admit(n * 10_000, Kind::Metadata, 0)).collect::<Vec<_>>()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }

    #[test]
    fn admits_anything_without_panic() {
        let mut rng = ChaCha8Rng::seed_from_u64(9);
        let mut device =
            Device::new(DeviceSpec { servers: 0, ..spec(0, 60e6, Distribution::Exponential) }, 1);
        for _ in 0..10_000 {
            device.admit(rng.random(), Kind::Metadata, rng.random());
        }
    }

    #[test]
    fn specs_are_read_and_checked() {
        let text = "servers = 2\nread_us = 150.5\ndistribution = \"lognormal:0.5\"";
        let spec: DeviceSpec = toml::from_str(text).unwrap();
        assert_eq!(spec.distribution, Distribution::Lognormal { cv: 0.5 });
        assert_eq!((spec.servers, spec.read_us, spec.metadata_us), (2, 150.5, 0.0));
        spec.check().unwrap();
        for (wrong, word) in [
            ("speed = 3", "unknown field"),
            ("distribution = \"normal\"", "lognormal:CV"),
            ("distribution = \"lognormal:NaN\"", "coefficient"),
        ] {
            let message = toml::from_str::<DeviceSpec>(wrong).unwrap_err().to_string();
            assert!(message.contains(word), "{message}");
        }
        for wrong in [
            DeviceSpec { servers: 0, ..spec },
            DeviceSpec { read_us: f64::NAN, ..spec },
            DeviceSpec { write_us: -1.0, ..spec },
            DeviceSpec { write_us_per_kib: 1e308, ..spec },
        ] {
            wrong.check().unwrap_err();
        }
        assert!(DeviceSpec::none().is_none() && !spec.is_none());
    }
}
