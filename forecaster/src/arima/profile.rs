//! Smoothed profiles of a cycle: what the days or weeks so far were like, the latest weighing most.

/// A smoothed profile as a regressor of a seasonal autoregression.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Profile {
    /// Periods in the cycle.
    pub cycle: usize,
    /// Weight of the latest cycle, in (0, 1].
    pub weight: f64,
    /// The profile enters as `S_{t - shift}`; negative shifts look ahead in the cycle, which is known.
    pub shift: isize,
}

impl Profile {
    /// The same profile up to its shift.
    pub(crate) fn same_curve(&self, other: &Profile) -> bool {
        self.cycle == other.cycle && self.weight == other.weight
    }
}

/// `S_t = a r_{t-p} + (1-a) S_{t-p}` for `0 <= t < r.len() + p` (`p` = cycle, `a` = weight): started with the first
/// cycle's values, 0 for t < p.
pub fn smoothed_profile(r: &[f64], cycle: usize, weight: f64) -> Vec<f64> {
    let mut s = vec![0.0; r.len() + cycle];
    let first = cycle.min(r.len());
    s[cycle..cycle + first].copy_from_slice(&r[..first]);
    for t in 2 * cycle..s.len() {
        s[t] = weight * r[t - cycle] + (1.0 - weight) * s[t - cycle];
    }
    s
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_with_the_first_cycle_and_forgets_it() {
        let s = smoothed_profile(&[1.0, 2.0, 5.0, 6.0], 2, 0.5);
        assert_eq!(s, [0.0, 0.0, 1.0, 2.0, 3.0, 4.0]);
        assert_eq!(smoothed_profile(&[7.0], 3, 0.5), [0.0, 0.0, 0.0, 7.0]);
    }
}
