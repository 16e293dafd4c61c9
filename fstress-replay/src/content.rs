//! Content of the workload's files: a function of path and position, so that any READ can be verified without a copy.
//!
//! The file is a row of 8-byte little-endian words; word i is a mix of i and a hash of the path. No two files and no two
//! positions look alike, and any range can be made or checked by itself.
//!
//! Data that is written again may bear a version, so that it can be told from what lay there before: version v is mixed into
//! the first byte of each word, and v times `VERSION_CHECK` into the second one, so that no other byte can be changed
//! unnoticed, and these two hardly. Files are made with version 0.

use xxhash_rust::xxh3::xxh3_64;

const WORD_BYTES: u64 = 8;
/// What the version is multiplied by in the second byte of a word; odd, so that each version gives another one.
const VERSION_CHECK: u8 = 0x9d;

/// What a version changes of a word.
fn mark(version: u8) -> u16 {
    u16::from_le_bytes([version, version.wrapping_mul(VERSION_CHECK)])
}

/// A word of data, or a part of one.
struct Piece {
    index: u64,
    /// Whether the bytes that tell the version are there.
    has_version: bool,
    /// Bits in which it is not the word of version 0.
    differs: u64,
}

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

    /// Appends `length` bytes of the content from byte `offset` on, in version 0.
    pub fn append(&self, out: &mut Vec<u8>, offset: u64, length: usize) {
        self.append_version(out, 0, (offset, length));
    }

    /// Appends `length` bytes of the content from byte `offset` on.
    pub fn append_version(&self, out: &mut Vec<u8>, version: u8, (offset, length): (u64, usize)) {
        let skipped = usize::try_from(offset % WORD_BYTES).unwrap_or(0);
        let begin = out.len();
        let mut index = offset / WORD_BYTES;
        let mark = u64::from(mark(version));
        while out.len() - begin < skipped + length {
            out.extend_from_slice(&(self.word(index) ^ mark).to_le_bytes());
            index += 1;
        }
        out.drain(begin..begin + skipped);
        out.truncate(begin + length);
    }

    /// Whether `data` is the content from byte `offset` on, in version 0.
    #[must_use]
    pub fn matches(&self, data: &[u8], offset: u64) -> bool {
        self.pieces(data, offset).all(|piece| piece.differs == 0)
    }

    /// Whether `data` is the content from byte `offset` on, each word in any version.
    #[must_use]
    pub fn matches_any(&self, data: &[u8], offset: u64) -> bool {
        self.versions(data, offset, |_, _| true).is_some()
    }

    /// Shows the version of each word in data from byte `offset` on, with the position of the word; whether all are
    /// right; `None` if the data is not the content. Of words whose first two bytes are not both there the version is not known.
    #[must_use]
    pub fn versions(
        &self,
        data: &[u8],
        offset: u64,
        mut is_right: impl FnMut(u64, u8) -> bool,
    ) -> Option<bool> {
        let mut all = true;
        for Piece { index, has_version, differs } in self.pieces(data, offset) {
            if has_version {
                let version = differs as u8;
                all &= is_right(index * WORD_BYTES, version);
                (differs == u64::from(mark(version))).then_some(())?;
            } else {
                (differs & !u64::from(u16::MAX) == 0).then_some(())?;
            }
        }
        Some(all)
    }

    /// The words that `data` from byte `offset` on is made of, of the first and the last perhaps a part.
    fn pieces<'d>(&self, data: &'d [u8], offset: u64) -> impl Iterator<Item = Piece> + use<'d> {
        let content = *self;
        let skipped = usize::try_from(offset % WORD_BYTES).unwrap_or(0);
        let (first, rest) =
            data.split_at(data.len().min((WORD_BYTES as usize - skipped) % WORD_BYTES as usize));
        let begun = (!first.is_empty()).then_some((first, skipped));
        let whole = rest.chunks(WORD_BYTES as usize).map(|bytes| (bytes, 0));
        begun.into_iter().chain(whole).zip(offset / WORD_BYTES..).map(move |((bytes, from), index)| {
            let mut word = [0; WORD_BYTES as usize];
            word.iter_mut().skip(from).zip(bytes).for_each(|(place, byte)| *place = *byte);
            let here = u64::MAX >> (64 - 8 * bytes.len()) << (8 * from);
            Piece {
                index,
                has_version: from == 0 && bytes.len() > 1,
                differs: (u64::from_le_bytes(word) ^ content.word(index)) & here,
            }
        })
    }

    fn word(&self, index: u64) -> u64 {
        // The finaliser of splitmix64: cheap, and every bit of the position changes half of the word.
        let mut z = self.seed.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
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

        #[test]
        fn versions_are_told_apart_and_no_byte_can_be_another(
            version in any::<u8>(), words in 0usize..30, skipped in 0usize..8, wrong in any::<prop::sample::Index>(), bit in 0u8..8,
        ) {
            let content = Content::of("campus/d001/f0001");
            let mut data = Vec::new();
            content.append_version(&mut data, version, (160, words * 8 + 3));
            let seen = |data: &[u8], offset| {
                let mut versions = Vec::new();
                let right = content.versions(data, offset, |at, version| {
                    versions.push((at, version));
                    true
                });
                right.map(|_| versions)
            };
            let wanted: Vec<(u64, u8)> = (0..=words as u64).map(|word| (160 + 8 * word, version)).collect();
            prop_assert_eq!(seen(&data, 160), Some(wanted.clone()));
            prop_assert_eq!(content.matches(&data, 160), version == 0);
            prop_assert!(content.matches_any(&data, 160));
            // A piece that begins within a word.
            let from = skipped.min(data.len());
            let later = if skipped == 0 { wanted } else { wanted[1..].to_vec() };
            prop_assert_eq!(seen(&data[from..], 160 + from as u64), Some(later));
            data[wrong.index(words * 8 + 3)] ^= 1 << bit;
            prop_assert!(!content.matches_any(&data, 160));
        }
    }
}
