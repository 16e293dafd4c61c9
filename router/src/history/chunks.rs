//! Large things in small pieces. sled keeps neighbouring entries in one node and writes nodes as a whole, so that
//! values of megabytes and batches of a million entries would cost it minutes.
//!
//! A block is kept as chunks under its period's key and a running number. The first chunk is written last and
//! removed first: chunks without it are what a crash has left of an append or of a removal, and do not count.

use super::block::Block;
use super::database::{Fault, PeriodKey, cost};

/// Bytes of a chunk.
const CHUNK_BYTES: usize = 64 << 10;

/// Entries written at once.
const BATCH_ENTRIES: usize = 2_048;

const KEY_BYTES: usize = size_of::<PeriodKey>();

fn chunk_key(period: &PeriodKey, number: usize) -> Result<[u8; KEY_BYTES + 4], Fault> {
    let number = u32::try_from(number).map_err(|_| Fault::of("a period", "too many chunks"))?;
    let mut key = [0; KEY_BYTES + 4];
    key[..KEY_BYTES].copy_from_slice(period);
    key[KEY_BYTES..].copy_from_slice(&number.to_be_bytes());
    Ok(key)
}

/// Writes a block; returns what it counts for, bytes.
pub(super) fn write(tree: &sled::Tree, period: &PeriodKey, block: &[u8]) -> Result<u64, Fault> {
    let mut bytes = 0;
    for (number, chunk) in block.chunks(CHUNK_BYTES).enumerate().rev() {
        let key = chunk_key(period, number)?;
        bytes += cost(&key, chunk);
        tree.insert(key, chunk)?;
    }
    Ok(bytes)
}

/// Reads a block; `None` if there is none.
pub(super) fn read(tree: &sled::Tree, period: &PeriodKey) -> Result<Option<Block>, Fault> {
    let mut whole = Vec::new();
    for entry in tree.scan_prefix(period) {
        let (key, chunk) = entry?;
        if whole.is_empty() && *key != chunk_key(period, 0)? {
            return Ok(None);
        }
        whole.extend_from_slice(&chunk);
    }
    if whole.is_empty() {
        return Ok(None);
    }
    Block::decode(&whole).map(Some).map_err(|damage| Fault::of("a period", damage))
}

/// The begin of a block, as much of it as a chunk holds; `None` if there is none.
pub(super) fn begin(tree: &sled::Tree, period: &PeriodKey) -> Result<Option<sled::IVec>, Fault> {
    Ok(tree.get(chunk_key(period, 0)?)?)
}

/// Removes a block, or what a crash has left of it.
pub(super) fn remove(tree: &sled::Tree, period: &PeriodKey) -> Result<(), Fault> {
    for key in tree.scan_prefix(period).keys() {
        tree.remove(key?)?;
    }
    Ok(())
}

/// The periods that the tree names, whole or not, with the bytes that they count for.
pub(super) fn periods(tree: &sled::Tree) -> Result<Vec<(PeriodKey, u64)>, Fault> {
    let mut periods: Vec<(PeriodKey, u64)> = Vec::new();
    for entry in tree.iter() {
        let (key, chunk) = entry?;
        let period =
            key.first_chunk::<KEY_BYTES>().ok_or_else(|| Fault::of("a period", "its key is no start"))?;
        let bytes = cost(&key, &chunk);
        match periods.last_mut() {
            Some((last, sum)) if last == period => *sum += bytes,
            _ => periods.push((*period, bytes)),
        }
    }
    Ok(periods)
}

/// Writes many entries, some at a time.
pub(super) struct Batches<'a> {
    tree: &'a sled::Tree,
    batch: sled::Batch,
    entries: usize,
}

impl<'a> Batches<'a> {
    pub(super) fn new(tree: &'a sled::Tree) -> Self {
        Self { tree, batch: sled::Batch::default(), entries: 0 }
    }

    pub(super) fn insert(&mut self, key: &[u8], value: Vec<u8>) -> Result<(), Fault> {
        self.batch.insert(key, value);
        self.count()
    }

    pub(super) fn remove(&mut self, key: &[u8]) -> Result<(), Fault> {
        self.batch.remove(key);
        self.count()
    }

    fn count(&mut self) -> Result<(), Fault> {
        self.entries += 1;
        if self.entries >= BATCH_ENTRIES {
            self.entries = 0;
            self.tree.apply_batch(std::mem::take(&mut self.batch))?;
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Result<(), Fault> {
        Ok(self.tree.apply_batch(self.batch)?)
    }
}
