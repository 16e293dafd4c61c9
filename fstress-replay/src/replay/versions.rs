//! Which version of its data a file may show, so that a READ tells of WRITEs that a server took and forgot, or of another
//! store's old data.
//!
//! The n-th WRITE of a file bears version n (from a base that is drawn for each run, and modulo 256). A WRITE is *in doubt*
//! from the time that it is made until its data is safe: FILE_SYNC, or after its COMMIT. Until then what lay there before may
//! show, too, and after a crash of the server again. When of a block no WRITE is in doubt any more, it shows one of those
//! that were in doubt together since the last such time, or a later one; READs made from then on that show something older
//! are wrong. Where nothing has been written yet, data of any version is right; of what may have been executed twice, or
//! failed, nothing is known, and nothing is judged.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Pieces of a file that are judged by themselves.
const BLOCK_BYTES: u64 = 4_096;
/// Most blocks of a file that are judged: 16 MiB. What lies behind them may have any version.
const FILE_BLOCKS_MAX: u64 = 4_096;
/// Most blocks of all files together (56 bytes each). Files that are written first when there are as many may have any version.
const BLOCKS_MAX: usize = 1 << 20;
/// Versions that are told apart.
const VERSIONS: u32 = 256;

/// A WRITE that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) file: u32,
    pub(super) offset: u64,
    pub(super) count: u32,
}

/// The versions of all files of a run, known to all lanes.
#[derive(Debug)]
pub(super) struct Versions {
    files: Vec<Mutex<FileVersions>>,
    base: u8,
    blocks: AtomicUsize,
}

#[derive(Debug, Default)]
struct FileVersions {
    /// How many WRITEs were made.
    made: u32,
    /// Something went wrong that leaves open what the file shows.
    is_open: bool,
    blocks: Vec<Block>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Block {
    in_doubt: u32,
    /// Of the WRITEs in doubt together: the first, and whether one of them covers the whole block.
    first: u32,
    is_covered: bool,
    /// The oldest WRITE that may show, and from when on; the newer one first. 0: any.
    oldest: [(u32, Duration); 2],
}

impl Block {
    /// The oldest WRITE that a READ may show that was made at some time; 0: any.
    fn oldest(&self, made_at: Duration) -> u32 {
        self.oldest.iter().find(|(_, since)| *since < made_at).map_or(0, |(oldest, _)| *oldest)
    }
}

impl Versions {
    /// For so many files.
    pub(super) fn new(files: usize, base: u8) -> Self {
        let files = (0..files).map(|_| Mutex::default()).collect();
        Self { files, base, blocks: AtomicUsize::new(0) }
    }

    fn file(&self, file: u32) -> Option<MutexGuard<'_, FileVersions>> {
        // A lane that panicked has left counts as they were.
        self.files.get(file as usize).map(|file| file.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A WRITE is made, to a file of some size; the version that its data has.
    pub(super) fn make(&self, written: Written, file_bytes: u64) -> u8 {
        let Some(mut file) = self.file(written.file) else { return 0 };
        if file.blocks.is_empty() {
            let blocks = usize::try_from(file_bytes.div_ceil(BLOCK_BYTES).min(FILE_BLOCKS_MAX)).unwrap_or(0);
            let all = self.blocks.fetch_add(blocks, Ordering::Relaxed) + blocks;
            if all <= BLOCKS_MAX {
                file.blocks = vec![Block::default(); blocks];
            }
        }
        file.made = file.made.wrapping_add(1);
        let (number, end) = (file.made, written.offset + u64::from(written.count));
        for (begin, block) in touched(&mut file.blocks, written) {
            if block.in_doubt == 0 {
                (block.first, block.is_covered) = (number, false);
            }
            block.in_doubt += 1;
            let block_end = (begin + BLOCK_BYTES).min(file_bytes);
            block.is_covered |= written.offset <= begin && end >= block_end;
        }
        self.version(number)
    }

    /// The data of a WRITE is safe now.
    pub(super) fn safe(&self, written: Written, now: Duration) {
        let Some(mut file) = self.file(written.file) else { return };
        for (_, block) in touched(&mut file.blocks, written) {
            block.in_doubt = block.in_doubt.saturating_sub(1);
            if block.in_doubt == 0 && block.is_covered {
                block.oldest = [(block.first, now), block.oldest[0]];
            }
        }
    }

    /// What a WRITE has done to its file is not known, and will not be.
    pub(super) fn give_up(&self, file: u32) {
        if let Some(mut file) = self.file(file) {
            file.is_open = true;
        }
    }

    /// A judge of what a READ shows that was made at some time.
    pub(super) fn judge(&self, file: u32, made_at: Duration) -> impl FnMut(u64, u8) -> bool + '_ {
        let file = self.file(file).filter(|file| !file.is_open && !file.blocks.is_empty());
        move |position, version| {
            let Some(file) = &file else { return true };
            let block = usize::try_from(position / BLOCK_BYTES).ok().and_then(|block| file.blocks.get(block));
            match block.map_or(0, |block| block.oldest(made_at)) {
                0 => true,
                oldest => {
                    let span = file.made.wrapping_sub(oldest);
                    let age = version.wrapping_sub(self.version(oldest));
                    span >= VERSIONS - 1 || u32::from(age) <= span
                }
            }
        }
    }

    fn version(&self, number: u32) -> u8 {
        self.base.wrapping_add((number % VERSIONS) as u8)
    }
}

/// The blocks that a WRITE touches, and where they begin.
fn touched(blocks: &mut [Block], written: Written) -> impl Iterator<Item = (u64, &mut Block)> {
    let end = (written.offset + u64::from(written.count)).div_ceil(BLOCK_BYTES);
    let first = written.offset / BLOCK_BYTES;
    let range = usize::try_from(first).unwrap_or(usize::MAX)..usize::try_from(end).unwrap_or(usize::MAX);
    let known = range.start.min(blocks.len())..range.end.min(blocks.len());
    let part = blocks.get_mut(known).unwrap_or_default();
    (first..).map(|block| block * BLOCK_BYTES).zip(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: u64 = 10_000;

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn write(offset: u64, count: u32) -> Written {
        Written { file: 0, offset, count }
    }

    fn may_show(
        versions: &Versions,
        made_ms: u64,
        position: u64,
        shown: impl IntoIterator<Item = u8>,
    ) -> Vec<bool> {
        let mut judge = versions.judge(0, at(made_ms));
        shown.into_iter().map(|version| judge(position, version)).collect()
    }

    #[test]
    fn older_data_than_what_is_safe_is_wrong() {
        let versions = Versions::new(1, 250);
        assert_eq!(may_show(&versions, 1, 0, [0, 77]), [true, true], "nothing is known yet");
        let one = write(0, 10_000);
        assert_eq!(versions.make(one, FILE), 251);
        assert_eq!(may_show(&versions, 2, 0, [0, 251]), [true, true], "in doubt");
        versions.safe(one, at(10));
        assert_eq!(may_show(&versions, 10, 0, [0]), [true], "made before it was safe");
        assert_eq!(may_show(&versions, 11, 9_999, [0, 250, 251, 252]), [false, false, true, false]);
        // Two at a time: either may show, and the first one of before as long as they are in doubt.
        assert_eq!((versions.make(one, FILE), versions.make(one, FILE)), (252, 253));
        assert_eq!(may_show(&versions, 20, 0, [250, 251, 252, 253, 254]), [false, true, true, true, false]);
        versions.safe(one, at(30));
        assert_eq!(may_show(&versions, 31, 0, [251]), [true]);
        versions.safe(one, at(40));
        assert_eq!(may_show(&versions, 41, 0, [251, 252, 253]), [false, true, true]);
        assert_eq!(may_show(&versions, 35, 0, [250, 251]), [false, true], "made in between");
        assert_eq!(may_show(&versions, 9, 0, [250]), [true], "made long before");
    }

    #[test]
    fn what_is_written_in_part_may_be_old_in_part() {
        let versions = Versions::new(1, 0);
        let (all, part) = (write(0, 10_000), write(0, 5_000));
        versions.make(all, FILE);
        versions.safe(all, at(1));
        versions.make(part, FILE);
        versions.safe(part, at(2));
        let shown = |position| may_show(&versions, 3, position, [0, 1, 2, 3]);
        assert_eq!(shown(0), [false, false, true, false]);
        assert_eq!(shown(5_000), [false, true, true, false], "in the block where it ends");
        assert_eq!(shown(9_000), [false, true, true, false]);
    }

    #[test]
    fn what_is_not_known_is_not_judged() {
        let versions = Versions::new(1, 0);
        let one = write(0, 10_000);
        versions.make(one, FILE);
        versions.safe(one, at(1));
        for _ in 0..255 {
            versions.make(one, FILE);
        }
        assert_eq!(may_show(&versions, 2, 0, [9]), [true], "too many to tell them apart");
        let versions = Versions::new(1, 0);
        versions.make(one, FILE);
        versions.safe(one, at(1));
        assert_eq!(may_show(&versions, 2, 0, [9]), [false]);
        versions.give_up(0);
        assert_eq!(may_show(&versions, 2, 0, [9]), [true]);
        // Behind what is remembered of a large file.
        let large = 64 << 20;
        let versions = Versions::new(1, 0);
        versions.make(write(large - 4_096, 4_096), large);
        versions.safe(write(large - 4_096, 4_096), at(1));
        assert_eq!(may_show(&versions, 2, large - 1, [9]), [true]);
    }
}
