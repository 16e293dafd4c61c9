//! A map that remembers what was used of late, up to a limit: what a cache of bounded size holds.

// Its hash is faster than that of std, and nobody outside chooses the keys.
use hashbrown::HashMap;
use std::hash::Hash;

/// A map of at most a given weight that forgets what has not been used for longest, roughly: it has two generations, and
/// when the younger one is full the older one is dropped. So what was used within the last half of the weight is there.
#[derive(Debug)]
pub(super) struct Recent<K, V> {
    young: HashMap<K, (V, u64)>,
    old: HashMap<K, (V, u64)>,
    young_weight: u64,
    half: u64,
    /// What was dropped because the limit was reached.
    pub(super) evicted: u64,
}

impl<K: Eq + Hash + Copy, V> Recent<K, V> {
    pub(super) fn new(weight_max: u64) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), young_weight: 0, half: weight_max / 2, evicted: 0 }
    }

    /// The value of a key, which counts as used.
    pub(super) fn get(&mut self, key: K) -> Option<&mut V> {
        if !self.young.contains_key(&key) {
            let (value, weight) = self.old.remove(&key)?;
            self.insert(key, value, weight);
        }
        self.young.get_mut(&key).map(|(value, _)| value)
    }

    /// Keeps a value, unless it weighs more than half of the limit.
    pub(super) fn insert(&mut self, key: K, value: V, weight: u64) {
        self.remove(key);
        if weight > self.half {
            self.evicted += 1;
            return;
        }
        self.make_room(weight);
        self.young_weight += weight;
        self.young.insert(key, (value, weight));
    }

    /// The value of a key, which counts as used; if there is none, this one, whatever it weighs.
    pub(super) fn get_or_insert(&mut self, key: K, value: V, weight: u64) -> &mut V {
        if self.get(key).is_none() {
            self.make_room(weight);
            self.young_weight += weight;
        }
        &mut self.young.entry(key).or_insert((value, weight)).0
    }

    fn make_room(&mut self, weight: u64) {
        if self.young_weight + weight > self.half {
            self.evicted += self.old.len() as u64;
            self.old = std::mem::take(&mut self.young);
            self.young_weight = 0;
        }
    }

    pub(super) fn remove(&mut self, key: K) {
        if let Some((_, weight)) = self.young.remove(&key) {
            self.young_weight -= weight;
        }
        self.old.remove(&key);
    }

    #[cfg(test)]
    fn weight(&self) -> u64 {
        self.young.values().chain(self.old.values()).map(|(_, weight)| weight).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_was_used_last_stays() {
        let mut recent = Recent::new(4);
        for key in 0..10 {
            recent.insert(key, (), 1);
            assert!(recent.get(0).is_some(), "used all the time");
        }
        assert!(recent.get(9).is_some() && recent.get(1).is_none());
        assert!(recent.evicted >= 6, "{}", recent.evicted);
    }

    proptest! {
        #[test]
        fn the_weight_stays_within_its_limit(
            steps in prop::collection::vec((0u8..20, 0u64..12, any::<bool>()), 0..200),
            weight_max in 0u64..40,
        ) {
            let mut recent = Recent::new(weight_max);
            for (key, weight, insert) in steps {
                if insert {
                    recent.insert(key, weight, weight);
                    prop_assert_eq!(recent.get(key).copied(), (weight <= weight_max / 2).then_some(weight));
                } else {
                    recent.get(key);
                }
                prop_assert!(recent.weight() <= weight_max);
                let young: u64 = recent.young.values().map(|(_, weight)| weight).sum();
                prop_assert_eq!(young, recent.young_weight);
            }
        }
    }
}
