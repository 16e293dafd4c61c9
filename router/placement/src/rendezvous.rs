//! The default rule: weighted rendezvous hashing, worked out once for every bucket: the top 16 bits of a hash.
//!
//! Every store draws a uniform number `u` for every bucket from a hash of the seed, its name and the bucket; the bucket
//! belongs to the store with the largest `weight / -ln(u)`. That is an exponential race: a store wins with probability
//! weight / (sum of weights), and a store that comes or goes changes no order among the others. (Thaler and Ravishankar
//! 1998 for rendezvous; Schindelhauer and Schomaker 2005 for the weights.)

use crate::StoreId;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Marks a bucket that no store serves.
const NOBODY: u16 = u16::MAX;

/// A store in the race.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Runner {
    pub(crate) name: String,
    pub(crate) weight: f64,
    pub(crate) store: StoreId,
}

/// The owner of every bucket.
#[derive(Debug)]
pub(crate) struct Buckets {
    runners: Vec<Runner>,
    owners: Box<[u16]>,
}

impl Buckets {
    /// Runs the race in every bucket. `runners` have weights above 0; none at all leaves every bucket to nobody.
    ///
    /// Costs about 20 ns a bucket and store: milliseconds, so never on the data path.
    pub(crate) fn new(seed: u64, mut runners: Vec<Runner>) -> Self {
        // By name, so that an exact tie is decided alike whatever the order of the stores.
        runners.sort_by(|a, b| a.name.cmp(&b.name));
        let keys: Vec<u64> = runners.iter().map(|r| xxh3_64_with_seed(r.name.as_bytes(), seed)).collect();
        let owners = (0..=u16::MAX).map(|bucket| owner(&runners, &keys, bucket)).collect();
        Self { runners, owners }
    }

    /// The stores in the race, by name.
    pub(crate) fn runners(&self) -> &[Runner] {
        &self.runners
    }

    /// Part of the buckets, and so of all handles, that another race has won by a store of another name, 0 to 1. `name` names a
    /// store of this race, `their_name` one of the other.
    pub(crate) fn differ<'n>(
        &self,
        name: impl Fn(StoreId) -> Option<&'n str>,
        theirs: &Self,
        their_name: impl Fn(StoreId) -> Option<&'n str>,
    ) -> f64 {
        let owner = |store: &u16| (*store != NOBODY).then_some(StoreId(*store));
        let pairs = self.owners.iter().zip(&theirs.owners);
        let other = pairs.filter(|(a, b)| owner(a).and_then(&name) != owner(b).and_then(&their_name));
        other.count() as f64 / self.owners.len().max(1) as f64
    }

    /// The owner of the bucket that a hash falls into.
    pub(crate) fn owner(&self, hash: u64) -> Option<StoreId> {
        let bucket = usize::try_from(hash >> 48).unwrap_or(0);
        match self.owners.get(bucket) {
            Some(&store) if store != NOBODY => Some(StoreId(store)),
            _ => None,
        }
    }
}

fn owner(runners: &[Runner], keys: &[u64], bucket: u16) -> u16 {
    let mut best = (NOBODY, f64::NEG_INFINITY);
    for (runner, &key) in runners.iter().zip(keys) {
        let score = runner.weight / negative_ln(xxh3_64_with_seed(&bucket.to_le_bytes(), key));
        if score > best.1 {
            best = (runner.store.0, score);
        }
    }
    best.0
}

/// `-ln(u)` for the `u` in (0, 1) that the top 52 bits of `draw` name.
///
/// Written with additions, multiplications and divisions alone, which IEEE 754 rounds alike everywhere; the platform's
/// own `ln` may differ in the last bit, and two routers of one plex must never disagree about a bucket.
fn negative_ln(draw: u64) -> f64 {
    const MANTISSA: u64 = (1 << 52) - 1;
    const ONE: u64 = 1023 << 52;
    // Odd multiples of 2^-53: exact in an f64, never 0, never 1.
    let twice = 2 * (draw >> 12) + 1;
    let zeros = twice.leading_zeros();
    // `twice` = mantissa x 2^(63 - zeros), with the mantissa in [1, 2), written straight into the bits of an f64.
    let mut mantissa = f64::from_bits(ONE | ((twice << zeros << 1) >> 12) & MANTISSA);
    let mut exponent = 63.0 - f64::from(zeros) - 53.0;
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa *= 0.5;
        exponent += 1.0;
    }
    // ln(m) = 2 artanh(s), s = (m - 1) / (m + 1), |s| < 0.172: terms up to s^21 leave less than 2^-53.
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let square = s * s;
    let mut sum = 0.0;
    for divisor in [21.0, 19.0, 17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0] {
        sum = sum * square + 1.0 / divisor;
    }
    -(exponent * std::f64::consts::LN_2 + 2.0 * s * sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_logarithm_agrees_with_the_platforms(draw: u64) {
            let u = ((draw >> 12) as f64 + 0.5) / (1u64 << 52) as f64;
            let ours = negative_ln(draw);
            prop_assert!(ours > 0.0 && ours.is_finite());
            prop_assert!((ours + u.ln()).abs() <= 1e-15 + 1e-14 * ours, "u {} ours {} theirs {}", u, ours, -u.ln());
        }
    }

    #[test]
    fn the_logarithm_is_finite_and_positive_at_the_ends() {
        let (least, most) = (negative_ln(u64::MAX), negative_ln(0));
        assert!(least > 0.0 && least < 2e-16, "{least}");
        assert!((most - 53.0 * std::f64::consts::LN_2).abs() < 1e-12, "{most}");
    }
}
