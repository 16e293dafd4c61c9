//! One period as a block of bytes.
//!
//! ```text
//! format (1 byte), start (ms since 1970), length (ms)
//! stores: count, then each: name, calls by class, failed, bytes read and written, most outstanding,
//!         answered and sum of times by class, sum, sum of squares and maximum of response times,
//!         histogram: buckets in use, then each: gap to the one before, count
//! other files: calls by class, bytes read and written
//! files, by number: count, then each: gap to the number before, flags (1 byte), the counters that are not zero
//! CRC-32 (4 bytes, little endian)
//! ```
//! All integers have variable length (seven bits a byte). The flags say which of the five counters follow (bits
//! 0 to 4: reads, writes, metadata, bytes read, bytes written) and which store it was (bits 5 to 7; 7: the store
//! follows). A file that was read a few times takes about six bytes.

use super::codec::{Damage, Reader, put, put_bytes, seal, unseal};
use crate::heat::{
    BUCKETS, ClassCounts, FileCounts, PeriodRecord, PeriodSpan, ResponseTimes, StoreCounts, StorePeriod,
};

/// Version of the format, the first byte of every block.
pub(super) const FORMAT: u8 = 1;

const STORE_FOLLOWS: u8 = 7;

/// A file of a block: what a [`FilePeriod`](crate::heat::FilePeriod) is, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockFile {
    pub(super) number: u64,
    pub(super) store: u16,
    pub(super) counts: FileCounts,
}

/// A period as its block holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) span: PeriodSpan,
    pub(super) stores: Vec<StorePeriod>,
    pub(super) other: FileCounts,
    /// Ascending by number.
    pub(super) files: Vec<BlockFile>,
}

impl Block {
    /// The block of a record; `numbers` are those of its files, in the record's order.
    pub(super) fn new(record: &PeriodRecord, numbers: &[u64]) -> Self {
        let files = record.files.iter().zip(numbers);
        let mut files: Vec<_> = files
            .map(|(file, &number)| BlockFile { number, store: file.store, counts: file.counts })
            .collect();
        files.sort_unstable_by_key(|file| file.number);
        Self { span: record.span, stores: record.stores.clone(), other: record.other, files }
    }

    /// Bytes of the block.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![FORMAT];
        put(&mut bytes, self.span.start_unix_ms);
        put(&mut bytes, self.span.length_ms);
        put(&mut bytes, self.stores.len() as u64);
        for store in &self.stores {
            put_bytes(&mut bytes, store.name.as_bytes());
            put_store(&mut bytes, &store.counts);
        }
        put_file(&mut bytes, 0, &self.other);
        put(&mut bytes, self.files.len() as u64);
        let mut before = 0;
        for file in &self.files {
            put(&mut bytes, file.number.wrapping_sub(before));
            put_file(&mut bytes, file.store, &file.counts);
            before = file.number;
        }
        seal(bytes)
    }

    /// Span and first store of the block that begins with these bytes, the latter none if it has no stores. The rest is not
    /// looked at, nor is the checksum.
    pub(super) fn head(begin: &[u8]) -> Result<(PeriodSpan, Option<&str>), Damage> {
        let mut reader = Reader::new(begin);
        match reader.byte()? {
            FORMAT => {}
            other => return Err(Damage::Format(other)),
        }
        let span = PeriodSpan { start_unix_ms: reader.u64()?, length_ms: reader.u64()? };
        let store = if reader.count()? > 0 { Some(reader.text()?) } else { None };
        Ok((span, store))
    }

    /// The block of these bytes. Any damage is an error.
    pub(super) fn decode(sealed: &[u8]) -> Result<Self, Damage> {
        let mut reader = Reader::new(unseal(sealed)?);
        match reader.byte()? {
            FORMAT => {}
            other => return Err(Damage::Format(other)),
        }
        let span = PeriodSpan { start_unix_ms: reader.u64()?, length_ms: reader.u64()? };
        let count = reader.count()?;
        let mut stores = Vec::new();
        for _ in 0..count {
            let name = reader.text()?.to_owned();
            stores.push(StorePeriod { name, counts: get_store(&mut reader)? });
        }
        let (_, other) = get_file(&mut reader)?;
        let count = reader.count()?;
        let mut files = Vec::with_capacity(count);
        let mut before = 0u64;
        for index in 0..count {
            let gap = reader.u64()?;
            if index > 0 && gap == 0 {
                return Err(Damage::Range("a file's number"));
            }
            let number = before.checked_add(gap).ok_or(Damage::Range("a file's number"))?;
            let (store, counts) = get_file(&mut reader)?;
            files.push(BlockFile { number, store, counts });
            before = number;
        }
        reader.end()?;
        Ok(Self { span, stores, other, files })
    }
}

fn put_calls(bytes: &mut Vec<u8>, calls: &ClassCounts) {
    put(bytes, calls.reads);
    put(bytes, calls.writes);
    put(bytes, calls.metadata);
}

fn get_calls(reader: &mut Reader<'_>) -> Result<ClassCounts, Damage> {
    Ok(ClassCounts { reads: reader.u64()?, writes: reader.u64()?, metadata: reader.u64()? })
}

fn put_store(bytes: &mut Vec<u8>, counts: &StoreCounts) {
    put_calls(bytes, &counts.requests);
    put(bytes, counts.failed);
    put(bytes, counts.bytes_read);
    put(bytes, counts.bytes_written);
    put(bytes, counts.outstanding_max);
    for times in &counts.by_class {
        put(bytes, times.answered);
        put(bytes, times.sum_us);
    }
    let response = &counts.response;
    put(bytes, response.sum_us);
    put(bytes, response.sum_us2);
    put(bytes, response.max_us);
    put(bytes, response.buckets.iter().filter(|count| **count > 0).count() as u64);
    let mut before = 0;
    for (index, &count) in response.buckets.iter().enumerate().filter(|(_, count)| **count > 0) {
        put(bytes, (index - before) as u64);
        put(bytes, count);
        before = index;
    }
}

fn get_store(reader: &mut Reader<'_>) -> Result<StoreCounts, Damage> {
    let mut counts = StoreCounts {
        requests: get_calls(reader)?,
        failed: reader.u64()?,
        bytes_read: reader.u64()?,
        bytes_written: reader.u64()?,
        outstanding_max: reader.u64()?,
        ..StoreCounts::default()
    };
    for times in &mut counts.by_class {
        times.answered = reader.u64()?;
        times.sum_us = reader.u64()?;
    }
    counts.response = get_response(reader)?;
    Ok(counts)
}

fn get_response(reader: &mut Reader<'_>) -> Result<ResponseTimes, Damage> {
    let mut response =
        ResponseTimes { sum_us: reader.u64()?, sum_us2: reader.u128()?, ..ResponseTimes::default() };
    response.max_us = u32::try_from(reader.u64()?).map_err(|_| Damage::Range("a response time"))?;
    let buckets = reader.count()?;
    let mut index = 0usize;
    for position in 0..buckets {
        let gap = usize::try_from(reader.u64()?).map_err(|_| Damage::Range("a bucket"))?;
        if position > 0 && gap == 0 {
            return Err(Damage::Range("a bucket"));
        }
        index = index.checked_add(gap).filter(|index| *index < BUCKETS).ok_or(Damage::Range("a bucket"))?;
        let count = reader.u64()?;
        response.count = response.count.checked_add(count).ok_or(Damage::Range("a count"))?;
        *response.buckets.get_mut(index).ok_or(Damage::Range("a bucket"))? = count;
    }
    Ok(response)
}

fn put_file(bytes: &mut Vec<u8>, store: u16, counts: &FileCounts) {
    let calls = &counts.calls;
    let values = [calls.reads, calls.writes, calls.metadata, counts.bytes_read, counts.bytes_written];
    let short = u8::try_from(store).ok().filter(|store| *store < STORE_FOLLOWS).unwrap_or(STORE_FOLLOWS);
    let used = values.iter().enumerate().map(|(bit, value)| u8::from(*value > 0) << bit).sum::<u8>();
    bytes.push(used | short << 5);
    if short == STORE_FOLLOWS {
        put(bytes, store);
    }
    for value in values.into_iter().filter(|value| *value > 0) {
        put(bytes, value);
    }
}

fn get_file(reader: &mut Reader<'_>) -> Result<(u16, FileCounts), Damage> {
    let flags = reader.byte()?;
    let store = match flags >> 5 {
        STORE_FOLLOWS => u16::try_from(reader.u64()?).map_err(|_| Damage::Range("a store"))?,
        short => u16::from(short),
    };
    let mut values = [0u64; 5];
    for (bit, value) in values.iter_mut().enumerate() {
        if flags & (1 << bit) != 0 {
            *value = reader.u64()?;
        }
    }
    let [reads, writes, metadata, bytes_read, bytes_written] = values;
    Ok((store, FileCounts { calls: ClassCounts { reads, writes, metadata }, bytes_read, bytes_written }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heat::Class;
    use proptest::prelude::*;

    fn counts() -> impl Strategy<Value = FileCounts> {
        let value = || prop_oneof![Just(0u64), 0u64..300, any::<u64>()];
        (value(), value(), value(), value(), value()).prop_map(|(reads, writes, metadata, read, written)| {
            FileCounts {
                calls: ClassCounts { reads, writes, metadata },
                bytes_read: read,
                bytes_written: written,
            }
        })
    }

    fn store() -> impl Strategy<Value = StorePeriod> {
        ("[a-zé]{0,12}", counts(), any::<u64>(), prop::collection::vec(any::<u32>(), 0..30)).prop_map(
            |(name, totals, failed, times)| {
                let mut counts = StoreCounts { requests: totals.calls, failed, ..StoreCounts::default() };
                (counts.bytes_read, counts.bytes_written) = (totals.bytes_read, totals.bytes_written);
                counts.outstanding_max = failed / 2;
                times.iter().for_each(|us| counts.count_answer(Class::Write, u64::from(*us)));
                StorePeriod { name, counts }
            },
        )
    }

    fn block() -> impl Strategy<Value = Block> {
        let files = prop::collection::btree_map(
            prop_oneof![0u64..5_000, any::<u64>()],
            (prop_oneof![0u16..9, any::<u16>()], counts()),
            0..60,
        );
        (any::<u64>(), any::<u64>(), prop::collection::vec(store(), 0..6), counts(), files).prop_map(
            |(start_unix_ms, length_ms, stores, other, files)| Block {
                span: PeriodSpan { start_unix_ms, length_ms },
                stores,
                other,
                files: (files.into_iter())
                    .map(|(number, (store, counts))| BlockFile { number, store, counts })
                    .collect(),
            },
        )
    }

    proptest! {
        #[test]
        fn a_block_comes_back_as_it_was(block in block()) {
            prop_assert_eq!(Block::decode(&block.encode()), Ok(block));
        }

        #[test]
        fn a_changed_byte_is_an_error(block in block(), at in any::<prop::sample::Index>(), change in 1u8..) {
            let mut bytes = block.encode();
            let at = at.index(bytes.len());
            bytes[at] ^= change;
            prop_assert_eq!(Block::decode(&bytes), Err(Damage::Checksum));
        }

        #[test]
        fn a_block_cut_short_is_an_error(block in block(), at in any::<prop::sample::Index>()) {
            let bytes = block.encode();
            prop_assert!(Block::decode(&bytes[..at.index(bytes.len())]).is_err());
        }

        /// Damage that the checksum does not show (it was written damaged): an error or another block, no panic.
        #[test]
        fn damage_under_a_right_checksum_never_panics(
            block in block(),
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
            cut in prop::option::of(any::<prop::sample::Index>()),
        ) {
            let mut bytes = unseal(&block.encode()).unwrap().to_vec();
            for (at, byte) in damage {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len()));
            }
            if let Ok(other) = Block::decode(&seal(bytes)) {
                prop_assert_eq!(Block::decode(&other.encode()), Ok(other));
            }
        }
    }

    #[test]
    fn a_newer_format_is_named() {
        assert_eq!(Block::decode(&seal(vec![9])), Err(Damage::Format(9)));
    }
}
