//! Response time of a store with several servers: the M/M/c family in closed form.
//!
//! `R = S g(n/C, c)`, `g = 1 + rho^(sqrt(2(c+1)) - 1) / (c (1 - rho))`, is Sakasegawa's approximation of the mean time in an
//! M/M/c system. Every store has a bound on the calls it holds; with K of them outstanding at most, R cannot exceed
//! S K / c, whatever the load: that is the cap, and what loads at and above the capacity give.

/// Servers tried.
pub(crate) const SERVERS: [f64; 4] = [1.0, 2.0, 4.0, 8.0];
/// Capacities tried, as multiples of the largest load seen: from, to, and how many in a geometric grid.
const CAPACITY: (f64, f64, usize) = (0.55, 30.0, 48);

/// A member of the family, up to its unloaded response time S.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Queue {
    /// Requests a period that saturate it, C.
    pub capacity: f64,
    /// Servers, c.
    pub servers: f64,
    /// Most calls outstanding, K.
    pub outstanding_max: f64,
}

impl Queue {
    /// ln g at `load` requests a period: 0 unloaded, ln(K/c) at most, never falling with the load.
    pub fn log_slowdown(&self, load: f64) -> f64 {
        let cap = (self.outstanding_max / self.servers).max(1.0);
        let rho = (load / self.capacity).max(0.0);
        if rho.is_nan() || rho >= 1.0 {
            return cap.ln();
        }
        let exponent = (2.0 * (self.servers + 1.0)).sqrt() - 1.0;
        let g = 1.0 + rho.powf(exponent) / (self.servers * (1.0 - rho));
        g.min(cap).ln()
    }
}

/// The family's grid for a store whose largest load seen is `load_max`.
pub(crate) fn grid(load_max: f64, outstanding_max: f64) -> impl Iterator<Item = Queue> {
    let (from, to, steps) = CAPACITY;
    SERVERS.into_iter().flat_map(move |servers| {
        (0..steps).map(move |k| {
            let multiple = from * (to / from).powf(k as f64 / (steps - 1) as f64);
            Queue { capacity: multiple * load_max, servers, outstanding_max }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_server_is_exact_and_the_cap_holds() {
        let q = Queue { capacity: 100.0, servers: 1.0, outstanding_max: 64.0 };
        // M/M/1: R = S / (1 - rho).
        assert!((q.log_slowdown(50.0).exp() - 2.0).abs() < 1e-12);
        assert_eq!(q.log_slowdown(0.0), 0.0);
        assert_eq!(q.log_slowdown(1e9), 64.0f64.ln());
        assert!(grid(10.0, 64.0).all(|q| (0..200).is_sorted_by_key(|n| q.log_slowdown(f64::from(n)))));
        assert_eq!(grid(10.0, 64.0).count(), 192);
    }
}
