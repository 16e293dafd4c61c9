//! Files that have had many calls in the running period, so that they are found without a walk over all.
//!
//! A file's index is noted when its calls reach 8, 32, 128 and so on. There are at most `calls / 8` indices in the first
//! list, a quarter of that in the next: a look for files with at least so many calls takes the list below that number, which has
//! no more than four times as many as could have them.

/// Calls at which a file enters the first list, as a power of two.
const FIRST: u32 = 3;
/// Each further list is for so many times as many calls, as a power of two.
const STEP: u32 = 2;
/// Lists.
const LISTS: usize = 12;

/// Indices of files by the calls that they have had.
#[derive(Default)]
pub(super) struct Warm {
    lists: [Vec<u32>; LISTS],
}

impl Warm {
    /// Takes note that a file has had so many calls, after each of them.
    #[inline]
    pub(super) fn count(&mut self, calls: u64, index: u32) {
        if calls.is_power_of_two() && calls >= 1 << FIRST {
            self.note(calls, index);
        }
    }

    #[cold]
    fn note(&mut self, calls: u64, index: u32) {
        let steps = calls.trailing_zeros() - FIRST;
        if steps.is_multiple_of(STEP)
            && let Some(list) = self.lists.get_mut((steps / STEP) as usize)
        {
            list.push(index);
        }
    }

    /// All files with at least so many calls (fewer than 8 count as 8), and some with fewer.
    pub(super) fn at_least(&self, calls: u64) -> &[u32] {
        let power = calls.max(1 << FIRST).ilog2();
        let list = ((power - FIRST) / STEP) as usize;
        self.lists.get(list.min(LISTS - 1)).map_or(&[], Vec::as_slice)
    }

    /// Begins a new period.
    pub(super) fn clear(&mut self) {
        self.lists.iter_mut().for_each(Vec::clear);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_by_their_calls_and_few_others() {
        let mut warm = Warm::default();
        // File n has had 2^n calls, less one for odd n.
        for file in 0..20u32 {
            (1..=(1u64 << file) - u64::from(file % 2)).for_each(|calls| warm.count(calls, file));
        }
        for least in [0, 1, 8, 9, 31, 32, 1000, 100_000, 1 << 30] {
            let found = warm.at_least(least);
            let has = |file: u32| (1u64 << file) - u64::from(file % 2);
            for file in 0..20 {
                assert!(has(file) < least.max(8) || found.contains(&file), "{file} for {least}");
                assert!(found.contains(&file) || 4 * has(file) < 4 * least.max(8));
            }
            assert!(found.iter().all(|file| 4 * has(*file) > least), "{least}: {found:?}");
        }
        warm.clear();
        assert!(warm.at_least(0).is_empty());
    }
}
