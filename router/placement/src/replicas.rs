//! Files whose reads several stores serve: which of them gets one.

use crate::StoreId;

/// Most stores that one file may name.
pub const REPLICAS_MAX: usize = 16;

/// One of the stores that serve a file's reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Replica {
    /// The store.
    pub store: StoreId,
    /// Its share of the file's reads relative to the other replicas' shares: above 0, at most
    /// [`WEIGHT_MAX`](crate::WEIGHT_MAX).
    pub share: f64,
}

/// An entry of the exception set: a file and who serves it.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    /// The file's handle.
    pub handle: Box<[u8]>,
    /// The stores that serve its reads. The first is its home, which serves all else too; where it is the only one, the
    /// file is not replicated.
    pub replicas: Vec<Replica>,
}

impl Assignment {
    /// A file that one store serves.
    #[must_use]
    pub fn to_one(handle: impl Into<Box<[u8]>>, store: StoreId) -> Self {
        Self { handle: handle.into(), replicas: vec![Replica { store, share: 1.0 }] }
    }
}

/// The stores of a replicated file: two or more, the home first.
#[derive(Clone, Debug, PartialEq)]
pub struct Replicas(Box<[Replica]>);

impl Replicas {
    /// `None` for a file that is not replicated.
    pub(crate) fn of(replicas: &[Replica]) -> Option<Self> {
        (replicas.len() > 1).then(|| Self(replicas.into()))
    }

    /// The stores and their shares, the home first.
    #[must_use]
    pub fn as_slice(&self) -> &[Replica] {
        &self.0
    }

    /// The replica that serves the read at `point`, among those that `serves` lets: each gets its share of the points
    /// from 0 to 2^64. The same point gives the same store as long as the same stores serve.
    pub(crate) fn at(&self, point: u64, serves: impl Fn(StoreId) -> bool) -> Option<StoreId> {
        let serving = || self.0.iter().filter(|replica| serves(replica.store));
        let sum: f64 = serving().map(|replica| replica.share).sum();
        // 2^-64: exact, so that all routers of a plex agree.
        let mut left = point as f64 * (sum * 5.421_010_862_427_522e-20);
        for replica in serving() {
            left -= replica.share;
            if left < 0.0 {
                return Some(replica.store);
            }
        }
        // What rounding leaves over.
        serving().last().map(|replica| replica.store)
    }

    /// The first store that serves: the home, or who stands in for it.
    pub(crate) fn first(&self, serves: impl Fn(StoreId) -> bool) -> Option<StoreId> {
        self.0.iter().map(|replica| replica.store).find(|store| serves(*store))
    }
}

/// The point of the read with this XID on a file of this hash, for [`Table::reader`](crate::Table::reader).
///
/// A repeat has the same XID and so the same store. XIDs that a client counts up give points that lie evenly (steps of
/// the golden ratio), whether all of them are reads of the file or every second or third one.
#[inline]
#[must_use]
pub fn read_point(hash: crate::HandleHash, xid: u32) -> u64 {
    u64::from(xid).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(hash.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HandleHash;
    use proptest::prelude::*;

    fn replicas(shares: &[f64]) -> Replicas {
        let replica = |(store, share): (u16, &f64)| Replica { store: StoreId(store), share: *share };
        Replicas::of(&(0..).zip(shares).map(replica).collect::<Vec<_>>()).unwrap()
    }

    /// Reads of each of four stores, in `reads` reads whose XIDs are `step` apart.
    fn counts(of: &Replicas, first: u32, step: u32, reads: u32) -> [u32; 4] {
        let mut counts = [0; 4];
        for read in 0..reads {
            let xid = first.wrapping_add(read.wrapping_mul(step));
            let store = of.at(read_point(HandleHash(0x1234_5678_9abc_def0), xid), |_| true).unwrap();
            counts[store.index()] += 1;
        }
        counts
    }

    #[test]
    fn one_clients_reads_are_spread_by_share_however_it_counts_its_calls() {
        // Every call a read of the file, every second or third one; XIDs with their bytes the other way round.
        for step in [1, 2, 3, 4, 5, 7, 8, 1 << 8, 1 << 16, 1 << 24] {
            for (shares, reads) in [(&[1.0, 1.0][..], 200), (&[1.0, 1.2, 1.5, 2.0], 2_000)] {
                let sum: f64 = shares.iter().sum();
                let counts = counts(&replicas(shares), 0xffff_ff00, step, reads);
                for (count, share) in counts.iter().zip(shares) {
                    let expected = f64::from(reads) * share / sum;
                    let off = (f64::from(*count) - expected).abs();
                    assert!(off < 0.04 * f64::from(reads), "step {step}: {counts:?} of {shares:?}");
                }
            }
        }
        // Of reads in a row, more than three never go to the same of two stores.
        let two = replicas(&[1.0, 1.0]);
        for xid in 0..10_000 {
            let at = |xid| two.at(read_point(HandleHash(0), xid), |_| true);
            assert!((1..4).any(|after| at(xid + after) != at(xid)), "four in a row at {xid}");
        }
    }

    proptest! {
        #[test]
        fn only_who_serves_gets_reads_and_somebody_does_if_one_may(
            shares in proptest::collection::vec(prop_oneof![1e-9..1e6_f64, Just(1e6), Just(1e-300)], 2..=REPLICAS_MAX),
            serving: u16,
            point: u64,
        ) {
            let of = replicas(&shares);
            let serves = |store: StoreId| serving >> store.0 & 1 == 1;
            let any = (0..).take(shares.len()).any(|store| serves(StoreId(store)));
            for chosen in [of.at(point, serves), of.first(serves)] {
                prop_assert_eq!(chosen.is_some(), any);
                prop_assert!(chosen.is_none_or(|store| serves(store) && store.index() < shares.len()));
            }
            prop_assert_eq!(of.at(point, serves), of.at(point, serves));
        }
    }
}
