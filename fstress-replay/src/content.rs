//! Content of the workload's files: a function of path and position, so that any READ can be verified without a copy.
//!
//! The file is a row of 8-byte little-endian words; word i is a mix of i and a hash of the path. No two files and no two
//! positions look alike, and any range can be made or checked by itself.

use xxhash_rust::xxh3::xxh3_64;

const WORD_BYTES: u64 = 8;

/// The content of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content {
    seed: u64,
}

impl Content {
    /// The content of the file at `path` (below the export, without a leading slash).
    #[must_use]
    pub fn of(path: &str) -> Self {
        Self { seed: xxh3_64(path.as_bytes()) }
    }

    /// Appends `length` bytes of the content from byte `offset` on.
    pub fn append(&self, out: &mut Vec<u8>, offset: u64, length: usize) {
        let skipped = usize::try_from(offset % WORD_BYTES).unwrap_or(0);
        let begin = out.len();
        let mut index = offset / WORD_BYTES;
        while out.len() - begin < skipped + length {
            out.extend_from_slice(&self.word(index));
            index += 1;
        }
        out.drain(begin..begin + skipped);
        out.truncate(begin + length);
    }

    /// Whether `data` is the content from byte `offset` on.
    #[must_use]
    pub fn matches(&self, data: &[u8], offset: u64) -> bool {
        let skipped = usize::try_from(offset % WORD_BYTES).unwrap_or(0);
        let first = if skipped == 0 { 0 } else { data.len().min(8 - skipped) };
        let (head, rest) = data.split_at(first);
        let mut index = offset / WORD_BYTES;
        if first > 0 {
            if self.word(index)[skipped..skipped + first] != *head {
                return false;
            }
            index += 1;
        }
        rest.chunks(8).zip(index..).all(|(chunk, index)| self.word(index)[..chunk.len()] == *chunk)
    }

    fn word(&self, index: u64) -> [u8; 8] {
        // The finaliser of splitmix64: cheap, and every bit of the position changes half of the word.
        let mut z = self.seed.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)).to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn files_differ() {
        let bytes = |path| {
            let mut out = Vec::new();
            Content::of(path).append(&mut out, 0, 64);
            out
        };
        assert_ne!(bytes("a/b"), bytes("a/c"));
        assert_eq!(bytes("a/b"), bytes("a/b"));
    }

    proptest! {
        #[test]
        fn any_range_is_a_part_of_the_whole(offset in 0u64..300, length in 0usize..300, wrong in 0usize..300) {
            let content = Content::of("campus/d001/f0001");
            let mut whole = Vec::new();
            content.append(&mut whole, 0, 600);
            let mut part = vec![7];
            content.append(&mut part, offset, length);
            let start = usize::try_from(offset).unwrap();
            prop_assert_eq!(&part[1..], &whole[start..start + length]);
            prop_assert!(content.matches(&part[1..], offset));
            if wrong < length {
                part[1 + wrong] ^= 0x40;
                prop_assert!(!content.matches(&part[1..], offset));
            }
        }
    }
}
