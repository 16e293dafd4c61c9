//! What is outstanding of a pinned file, by age.

/// Separate ranges remembered for a file; beyond that the two nearest are taken as one, which can only make a pin last
/// longer.
const RANGES_MAX: usize = 16;

/// Disjoint byte ranges, sorted: first, one past the last, and the serial at which they became outstanding, which is
/// that of the latest write where several are in one range.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Ranges(Vec<Range>);

type Range = (u64, u64, u64);

impl Ranges {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds what has become outstanding at `serial`.
    pub(super) fn add(&mut self, mut start: u64, mut end: u64, serial: u64) {
        if start >= end {
            return;
        }
        self.cut(start, end, u64::MAX);
        // Those that touch and are of the same age become one with the new one.
        let mut at = self.0.partition_point(|range| range.1 <= start);
        if let Some(&(_, high, age)) = self.0.get(at)
            && (self.0[at].0, age) == (end, serial)
        {
            end = high;
            self.0.remove(at);
        }
        if let Some(before) = at.checked_sub(1)
            && (self.0[before].1, self.0[before].2) == (start, serial)
        {
            start = self.0[before].0;
            self.0.remove(before);
            at = before;
        }
        self.0.insert(at, (start, end, serial));
        self.bound();
    }

    fn bound(&mut self) {
        while self.0.len() > RANGES_MAX {
            self.join_nearest();
        }
    }

    fn join_nearest(&mut self) {
        let gaps = self.0.windows(2).enumerate().filter_map(|(place, pair)| match pair {
            [left, right] => Some((right.0 - left.1, place, *right)),
            _ => None,
        });
        if let Some((_, place, (_, end, serial))) = gaps.min() {
            self.0.remove(place + 1);
            if let Some(joined) = self.0.get_mut(place) {
                *joined = (joined.0, end, joined.2.max(serial));
            }
        }
    }

    /// Takes off what became outstanding before `serial`.
    pub(super) fn remove(&mut self, start: u64, end: u64, serial: u64) {
        self.cut(start, end, serial);
        // Taking a piece out of the middle leaves one range more.
        self.bound();
    }

    fn cut(&mut self, start: u64, end: u64, before: u64) {
        if start >= end {
            return;
        }
        let parts = self.0.iter().flat_map(|&(low, high, serial)| {
            let kept = if serial < before { (high.min(start), low.max(end)) } else { (high, high) };
            [(low, kept.0, serial), (kept.1, high, serial)]
        });
        self.0 = parts.filter(|(low, high, _)| low < high).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Ranges against a map from byte to serial, step by step; only above the limit may they hold more or longer than they
        /// should.
        #[test]
        fn ranges_hold_what_was_added_and_not_removed(
            steps in proptest::collection::vec((any::<bool>(), 0..200u64, 0..12u64, 0..9u64), 0..80),
        ) {
            let mut ranges = Ranges::default();
            let mut expected = BTreeMap::new();
            for (serial, (add, start, length, back)) in (0..).zip(steps) {
                if add {
                    ranges.add(start, start + length, serial);
                    expected.extend((start..start + length).map(|byte| (byte, serial)));
                } else {
                    let before = serial - back.min(serial);
                    ranges.remove(start, start + length, before);
                    expected.retain(|byte, added| !(start..start + length).contains(byte) || *added >= before);
                }
                prop_assert!(ranges.0.len() <= RANGES_MAX);
                prop_assert!(ranges.0.iter().all(|range| range.0 < range.1));
                prop_assert!(ranges.0.windows(2).all(|pair| {
                    pair[0].1 < pair[1].0 || pair[0].1 == pair[1].0 && pair[0].2 != pair[1].2
                }), "{ranges:?}");
                let held: BTreeMap<u64, u64> =
                    ranges.0.iter().flat_map(|&(low, high, serial)| (low..high).map(move |byte| (byte, serial))).collect();
                let begins = |(byte, serial): &(&u64, &u64)| **byte == 0 || expected.get(&(*byte - 1)) != Some(*serial);
                let separate = expected.iter().filter(begins).count();
                prop_assert!(expected.iter().all(|(byte, serial)| held.get(byte) >= Some(serial)));
                prop_assert!(held == expected || separate > RANGES_MAX);
                expected = held;
            }
        }
    }
}
