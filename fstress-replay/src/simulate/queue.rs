//! A store as a queue with several servers and a bound on the calls it holds: M/M/c/K, as events and in closed form.
//!
//! Calls come as a Poisson process and take exponential times, so what a store does is a chain of arrivals and
//! departures whose next step depends on the number of calls it holds alone. The simulation draws every event of that chain;
//! the time between events enters with its mean in that state, which leaves the mean response unbiased and takes noise
//! away. The mean response follows by Little's law from the calls held over time. A call that finds the store full is given up
//! by its client, as a closed client would send less: so the response time never exceeds K/c service times.

use rand::Rng;

/// Most calls that a store may be said to hold.
pub const OUTSTANDING_MAX: usize = 4096;

/// A store's servers and bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Station {
    /// Calls that it works on at once, c, at least 1.
    pub servers: usize,
    /// Calls that it holds at most, K, at least c and at most [`OUTSTANDING_MAX`].
    pub outstanding_max: usize,
}

/// What a stretch of time did. Times are in units of the stretch that `arrivals` and `service` were given in.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Served {
    /// Calls that came.
    pub arrived: f64,
    /// Calls among them that found the store full.
    pub refused: f64,
    /// Integral of the calls held over time.
    pub held: f64,
    /// Time during which the store was full.
    pub full: f64,
    /// Time that passed.
    pub elapsed: f64,
}

impl Served {
    /// Mean response time of the calls taken in; NaN where there were none.
    #[must_use]
    pub fn response(&self) -> f64 {
        let taken = self.arrived - self.refused;
        if taken > 0.0 { self.held / taken } else { f64::NAN }
    }

    /// Both stretches together.
    pub fn add(&mut self, other: &Self) {
        self.arrived += other.arrived;
        self.refused += other.refused;
        self.held += other.held;
        self.full += other.full;
        self.elapsed += other.elapsed;
    }
}

/// The step out of a state: mean time in it, and the chance that an arrival ends it, of 2^32.
#[derive(Clone, Copy)]
struct Step {
    stay: f64,
    arrival: u64,
}

impl Station {
    fn step(&self, held: usize, arrivals: f64, service: f64) -> Step {
        let departures = held.min(self.servers) as f64 / service;
        let rate = arrivals + departures;
        let chance = if rate > 0.0 { arrivals / rate } else { 1.0 };
        let stay = if rate > 0.0 { 1.0 / rate } else { f64::INFINITY };
        let arrival = if held == 0 { 1 << 32 } else { (chance * 4_294_967_296.0) as u64 };
        Step { stay, arrival }
    }

    /// Every event of a stretch of length 1 with `arrivals` calls expected in it and service times of mean `service`,
    /// `held` calls there at the beginning and, on return, at the end.
    pub fn simulate(&self, held: &mut usize, arrivals: f64, service: f64, rng: &mut impl Rng) -> Served {
        let steps: Vec<Step> =
            (0..=self.outstanding_max).map(|held| self.step(held, arrivals, service)).collect();
        let full = self.outstanding_max;
        let mut now = (*held).min(full);
        let (mut time, mut area, mut arrived, mut refused, mut full_time) = (0.0, 0.0, 0_u64, 0_u64, 0.0);
        // Without branches on chance: a processor guesses half of them wrong, which would cost more than all the rest.
        loop {
            let step = steps[now];
            let (at_full, left) = (now == full, 1.0 - time);
            // The last step is cut at the end of the stretch; the next stretch begins in the same state.
            let stay = step.stay.min(left);
            time += stay;
            area += now as f64 * stay;
            full_time += if at_full { stay } else { 0.0 };
            if step.stay >= left {
                break;
            }
            let arrival = u64::from(rng.next_u32()) < step.arrival;
            let refusal = arrival & at_full;
            arrived += u64::from(arrival);
            refused += u64::from(refusal);
            now = now + usize::from(arrival) - usize::from(refusal) - usize::from(!arrival);
        }
        *held = now;
        Served { arrived: arrived as f64, refused: refused as f64, held: area, full: full_time, elapsed: 1.0 }
    }

    /// Mean response time over mean service time at utilisation `rho` = arrivals * service / c, in equilibrium.
    #[must_use]
    pub fn slowdown(&self, rho: f64) -> f64 {
        let offered = rho.max(1e-12) * self.servers as f64;
        // Weights of the states relative to the largest so far: none overflows.
        let (mut weight, mut sum, mut held) = (1.0_f64, 1.0_f64, 0.0_f64);
        for n in 1..=self.outstanding_max {
            weight *= offered / n.min(self.servers) as f64;
            sum += weight;
            held += n as f64 * weight;
            if sum > 1e200 {
                (weight, sum, held) = (weight / sum, 1.0, held / sum);
            }
        }
        let taken = offered * (1.0 - weight / sum);
        held / sum / taken
    }
}

/// [`Station::slowdown`] as a table with linear interpolation, for searches that ask often.
#[derive(Debug, Clone)]
pub struct Curve {
    values: Vec<f64>,
    last: f64,
}

impl Curve {
    const STEPS_PER_UNIT: f64 = 256.0;
    /// Utilisation above which the curve is flat.
    const RHO_MAX: f64 = 4.0;

    /// Of a store.
    #[must_use]
    pub fn of(station: Station) -> Self {
        let steps = (Self::RHO_MAX * Self::STEPS_PER_UNIT) as usize;
        let values: Vec<f64> =
            (0..=steps).map(|i| station.slowdown(i as f64 / Self::STEPS_PER_UNIT)).collect();
        Self { last: values.last().copied().unwrap_or(1.0), values }
    }

    /// Response over service time at this utilisation.
    #[must_use]
    pub fn at(&self, rho: f64) -> f64 {
        let position = rho.max(0.0) * Self::STEPS_PER_UNIT;
        let index = position as usize;
        match (self.values.get(index), self.values.get(index + 1)) {
            (Some(a), Some(b)) => a + (b - a) * (position - index as f64),
            _ => self.last,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{SeedableRng, rngs::SmallRng};

    #[test]
    fn the_closed_form_agrees_with_what_is_known() {
        let wide = |servers| Station { servers, outstanding_max: OUTSTANDING_MAX };
        for rho in [0.1, 0.5, 0.9] {
            // M/M/1: 1 / (1 - rho); M/M/2: 1 / (1 - rho^2).
            assert!((wide(1).slowdown(rho) * (1.0 - rho) - 1.0).abs() < 1e-9);
            assert!((wide(2).slowdown(rho) * (1.0 - rho * rho) - 1.0).abs() < 1e-9);
        }
        let narrow = Station { servers: 2, outstanding_max: 64 };
        assert!((narrow.slowdown(50.0) - 32.0).abs() < 0.1, "full all the time: K/c");
        assert!(
            (1..400)
                .all(|i| narrow.slowdown(f64::from(i) / 100.0) >= narrow.slowdown(f64::from(i - 1) / 100.0))
        );
    }

    #[test]
    fn events_agree_with_the_closed_form() {
        for (servers, rho) in [(1, 0.3), (1, 0.8), (2, 0.7), (2, 0.9), (4, 0.8), (8, 0.9), (2, 1.3)] {
            let station = Station { servers, outstanding_max: 64 };
            let mut rng = SmallRng::seed_from_u64(7);
            let calls = 100_000.0;
            let service = rho * servers as f64 / calls;
            let (mut held, mut all) = (0, Served::default());
            for _ in 0..40 {
                all.add(&station.simulate(&mut held, calls, service, &mut rng));
            }
            let ratio = all.response() / service / station.slowdown(rho);
            // Variance of the mean of n responses, M/M/1: about 2 (1 + rho) / ((1 - rho)^2 n).
            let deviation = (2.0 * (1.0 + rho) / ((1.0 - rho).powi(2) * 40.0 * calls)).sqrt();
            assert!((ratio - 1.0).abs() < 4.0 * deviation + 0.003, "c {servers} rho {rho}: {ratio}");
            assert!((all.arrived / (40.0 * calls) - 1.0).abs() < 0.003, "arrivals");
            let taken = (all.arrived - all.refused) / (40.0 * calls);
            let carried = taken * rho;
            assert!(carried < 1.0 + 0.003, "no more than the servers can do: {carried}");
        }
    }

    #[test]
    fn curves_follow_the_closed_form_and_end_flat() {
        let station = Station { servers: 4, outstanding_max: 64 };
        let curve = Curve::of(station);
        for i in 0..300 {
            let rho = f64::from(i) * 0.0071;
            assert!((curve.at(rho) / station.slowdown(rho) - 1.0).abs() < 1e-3, "{rho}");
        }
        assert_eq!(curve.at(5.0), curve.at(500.0));
        assert_eq!(curve.at(f64::NAN), curve.at(0.0));
    }

    #[test]
    fn nothing_coming_gives_no_response_and_drains() {
        let station = Station { servers: 2, outstanding_max: 8 };
        let mut held = 5;
        let served = station.simulate(&mut held, 0.0, 0.001, &mut SmallRng::seed_from_u64(1));
        assert_eq!((held, served.arrived), (0, 0.0));
        assert!(served.response().is_nan() && served.held > 0.0);
    }
}
