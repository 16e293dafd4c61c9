//! Response times of a store: exact mean and variance, and a histogram that merges without loss.
//!
//! Sums are kept as integers, so that merging shards in any order gives the same figures to the last bit. The
//! histogram is log-linear: 16 buckets an octave, each at most 1/16 of its value wide, from 1 microsecond to
//! 2^32 microseconds (71 minutes; what took longer is counted as that long).

const SUB_BITS: u32 = 4;
const SUB: usize = 1 << SUB_BITS;

/// Buckets of the histogram: 16 of one microsecond, then 16 in each of 28 octaves.
pub const BUCKETS: usize = SUB * 29;

/// Count, sum, sum of squares, greatest value and histogram of response times in microseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseTimes {
    pub(crate) count: u64,
    pub(crate) sum_us: u64,
    pub(crate) sum_us2: u128,
    pub(crate) max_us: u32,
    pub(crate) buckets: Box<[u64]>,
}

impl Default for ResponseTimes {
    fn default() -> Self {
        Self { count: 0, sum_us: 0, sum_us2: 0, max_us: 0, buckets: vec![0; BUCKETS].into_boxed_slice() }
    }
}

impl ResponseTimes {
    /// Adds one response time, microseconds.
    #[inline]
    pub fn record(&mut self, response_us: u64) {
        let us = u32::try_from(response_us).unwrap_or(u32::MAX);
        self.count = self.count.saturating_add(1);
        self.sum_us = self.sum_us.saturating_add(u64::from(us));
        self.sum_us2 = self.sum_us2.saturating_add(u128::from(u64::from(us) * u64::from(us)));
        self.max_us = self.max_us.max(us);
        if let Some(bucket) = self.buckets.get_mut(bucket_of(us)) {
            *bucket = bucket.saturating_add(1);
        }
    }

    /// Adds the response times of another shard or period.
    pub fn add(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.sum_us = self.sum_us.saturating_add(other.sum_us);
        self.sum_us2 = self.sum_us2.saturating_add(other.sum_us2);
        self.max_us = self.max_us.max(other.max_us);
        for (mine, theirs) in self.buckets.iter_mut().zip(other.buckets.iter()) {
            *mine = mine.saturating_add(*theirs);
        }
    }

    /// How many were recorded.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Sum, microseconds.
    pub fn sum_us(&self) -> u64 {
        self.sum_us
    }

    /// Greatest, microseconds; 0 if none was recorded.
    pub fn max_us(&self) -> u64 {
        u64::from(self.max_us)
    }

    /// Mean, microseconds; `None` if none was recorded.
    pub fn mean_us(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_us as f64 / self.count as f64)
    }

    /// Sample variance (divisor n - 1), microseconds squared; `None` below two values.
    pub fn variance_us2(&self) -> Option<f64> {
        if self.count < 2 {
            return None;
        }
        let (n, sum) = (u128::from(self.count), u128::from(self.sum_us));
        // n * sum2 - sum^2 in integers: in floating point the difference would lose what a small variance is.
        let spread = match n.checked_mul(self.sum_us2) {
            Some(scaled) => scaled.saturating_sub(sum * sum) as f64 / n as f64,
            None => (self.sum_us2 as f64 - (sum as f64).powi(2) / n as f64).max(0.0),
        };
        Some(spread / (n - 1) as f64)
    }

    /// The value below which a fraction `q` (0 to 1) of the response times lies, microseconds: linear within a
    /// bucket, so within 1/16 of the exact one, and never above the greatest. `None` if none was recorded or `q`
    /// is no fraction.
    pub fn quantile_us(&self, q: f64) -> Option<f64> {
        if self.count == 0 || !(0.0..=1.0).contains(&q) {
            return None;
        }
        let rank = q * self.count as f64;
        let mut below = 0.0;
        for (index, &count) in self.buckets.iter().enumerate().filter(|(_, count)| **count > 0) {
            let upto = below + count as f64;
            if upto >= rank {
                let (low, width) = bucket_range(index);
                let within = ((rank - below) / count as f64).clamp(0.0, 1.0);
                return Some((low + within * width).min(f64::from(self.max_us)));
            }
            below = upto;
        }
        Some(f64::from(self.max_us))
    }

    /// Counts of the buckets that have any: (lower bound in microseconds, width in microseconds, count).
    pub fn histogram(&self) -> impl Iterator<Item = (f64, f64, u64)> + '_ {
        self.buckets.iter().enumerate().filter(|(_, count)| **count > 0).map(|(index, &count)| {
            let (low, width) = bucket_range(index);
            (low, width, count)
        })
    }
}

/// The bucket of a value: the octave above the first 16, then the four bits below the leading one.
#[inline]
fn bucket_of(us: u32) -> usize {
    let shift = (us | (SUB as u32 - 1)).ilog2() + 1 - SUB_BITS;
    // Below 16 the shift is 0 and the value is its own bucket; above, the leading bit adds one group of 16.
    let group = (shift as usize) << SUB_BITS;
    if us < SUB as u32 { us as usize } else { group + ((us >> (shift - 1)) as usize & (SUB - 1)) }
}

/// Lower bound and width of a bucket, microseconds.
fn bucket_range(index: usize) -> (f64, f64) {
    if index < SUB {
        return (index as f64, 1.0);
    }
    let octave = (index >> SUB_BITS) - 1;
    let width = 2f64.powi(i32::try_from(octave).unwrap_or(0));
    ((SUB + (index & (SUB - 1))) as f64 * width, width)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn naive(values: &[u32]) -> (f64, f64) {
        let n = values.len() as f64;
        let mean = values.iter().map(|v| f64::from(*v)).sum::<f64>() / n;
        (mean, values.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum::<f64>() / (n - 1.0))
    }

    #[test]
    fn buckets_tile_the_range_in_order() {
        let mut end = 0.0;
        for index in 0..BUCKETS {
            let (low, width) = bucket_range(index);
            assert_eq!(low, end, "bucket {index} begins where the one before ends");
            end = low + width;
        }
        assert_eq!(end, 2f64.powi(32));
        assert_eq!(bucket_of(u32::MAX), BUCKETS - 1);
    }

    #[test]
    fn empty_and_single_values_have_no_invented_figures() {
        let mut times = ResponseTimes::default();
        assert_eq!((times.mean_us(), times.variance_us2(), times.quantile_us(0.5)), (None, None, None));
        times.record(u64::MAX);
        assert_eq!(times.max_us(), u64::from(u32::MAX));
        assert_eq!(times.variance_us2(), None);
    }

    #[test]
    fn a_constant_has_no_variance_and_its_own_quantiles() {
        let mut times = ResponseTimes::default();
        (0..100_000).for_each(|_| times.record(4_000_000_000));
        assert_eq!(times.variance_us2(), Some(0.0));
        assert!(times.quantile_us(0.95).is_some_and(|q| (q / 4e9 - 1.0).abs() < 1.0 / 16.0));
    }

    proptest! {
        #[test]
        fn figures_agree_with_plain_arithmetic(
            values in prop::collection::vec(prop_oneof![0u32..40, 0u32..100_000, any::<u32>()], 2..200),
            split in 0usize..200,
            q in 0.0f64..=1.0,
        ) {
            let split = split.min(values.len());
            let (mut left, mut right, mut whole) =
                (ResponseTimes::default(), ResponseTimes::default(), ResponseTimes::default());
            for (index, value) in values.iter().enumerate() {
                if index < split { left.record(u64::from(*value)) } else { right.record(u64::from(*value)) }
                whole.record(u64::from(*value));
                let (low, width) = bucket_range(bucket_of(*value));
                prop_assert!(low <= f64::from(*value) && f64::from(*value) < low + width);
            }
            right.add(&left);
            prop_assert_eq!(&right, &whole);
            let (mean, variance) = naive(&values);
            prop_assert!((whole.mean_us().unwrap() - mean).abs() <= 1e-9 * mean.max(1.0));
            prop_assert!((whole.variance_us2().unwrap() - variance).abs() <= 1e-6 * variance.max(1.0));
            let mut sorted = values.clone();
            sorted.sort_unstable();
            let rank = ((q * values.len() as f64).ceil() as usize).clamp(1, values.len());
            let exact = f64::from(sorted[rank - 1]);
            let shown = whole.quantile_us(q).unwrap();
            prop_assert!((shown - exact).abs() <= exact / 16.0 + 1.0, "{} against {}", shown, exact);
        }
    }
}
