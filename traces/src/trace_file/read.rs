//! Reading a trace file as a stream.

use super::block::{self, Block, Head};
use super::{BLOCK_BYTES_MAX, SIGNATURE, TraceFileError, VERSION, VERSION_FIRST};
use std::io::{ErrorKind, Read};

/// Reads a trace file block by block; it holds one block at a time and needs no seeking.
pub struct TraceReader<R> {
    bytes: R,
    version: u32,
    head: Head,
    payload: Vec<u8>,
    /// Bytes read so far.
    at: u64,
    files: usize,
    requests: u64,
    blocks: u64,
    ended: bool,
    last: (u64, u32),
}

impl<R: Read> TraceReader<R> {
    /// Begins to read: signature, version and head.
    ///
    /// # Errors
    /// [`TraceFileError`]: not a trace, another version, or damage.
    pub fn new(mut bytes: R) -> Result<Self, TraceFileError> {
        let mut start = [0; 12];
        let got = fill(&mut bytes, &mut start)?;
        if got < 12 || start[..8] != SIGNATURE {
            let cut = got > 0 && SIGNATURE.starts_with(&start[..got.min(8)]);
            return Err(if cut {
                TraceFileError::Cut { at: got as u64, block: 0 }
            } else {
                TraceFileError::NotATrace
            });
        }
        let found = u32::from_le_bytes([start[8], start[9], start[10], start[11]]);
        if !(VERSION_FIRST..=VERSION).contains(&found) {
            return Err(TraceFileError::Version { found });
        }
        let head = Head { name: String::new(), about: String::new(), period_s: 1, origin_s: 0 };
        let mut reader = Self {
            bytes,
            version: found,
            head,
            payload: Vec::new(),
            at: 12,
            files: 0,
            requests: 0,
            blocks: 0,
            ended: false,
            last: (12, 0),
        };
        match reader.raw()? {
            Some(b'H') => {
                reader.head =
                    block::head(&reader.payload).map_err(|what| TraceFileError::Block { block: 12, what })?;
                Ok(reader)
            }
            Some(_) => Err(TraceFileError::Block { block: 12, what: "the first one is not a head" }),
            None => Err(TraceFileError::NoEnd { at: 12 }),
        }
    }

    /// What the trace is about.
    #[must_use]
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The version of the file: [`VERSION_FIRST`] to [`VERSION`].
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Bytes read so far.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.at
    }

    /// The next block; `None` at the end of a whole file.
    ///
    /// # Errors
    /// [`TraceFileError`] with the position of what is damaged.
    pub fn next_block(&mut self) -> Result<Option<Block>, TraceFileError> {
        loop {
            let begin = self.at;
            let before = self.blocks;
            let Some(kind) = self.raw()? else {
                return if self.ended { Ok(None) } else { Err(TraceFileError::NoEnd { at: begin }) };
            };
            let wrong = |what| TraceFileError::Block { block: begin, what };
            self.ended = false;
            let Some(block) = Block::read(self.version, kind, &self.payload, self.files).map_err(wrong)?
            else {
                continue;
            };
            match &block {
                Block::Files { paths, .. } => self.files += paths.len(),
                Block::Counts(counts) => {
                    let sum = counts
                        .counts
                        .iter()
                        .try_fold(self.requests, |sum, count| sum.checked_add(count.requests));
                    self.requests = sum.ok_or_else(|| wrong("the number of requests overflows"))?;
                }
                Block::End { requests, files, blocks } => {
                    let found = (self.requests, self.files as u64, before);
                    if found != (*requests, u64::from(*files), *blocks) {
                        return Err(wrong("what it states is not what the blocks before it add up to"));
                    }
                    self.ended = true;
                }
                _ => {}
            }
            return Ok(Some(block));
        }
    }

    /// Reads one block into `payload` and checks its sum; its kind, or `None` at the end of the bytes.
    fn raw(&mut self) -> Result<Option<u8>, TraceFileError> {
        let Some(raw) = read_raw(&mut self.bytes, self.at, &mut self.payload)? else { return Ok(None) };
        self.last = (self.at, raw.length);
        self.at += 9 + u64::from(raw.length);
        self.blocks += 1;
        Ok(Some(raw.kind))
    }

    /// Where the last block begins, and how long its payload is.
    pub(super) fn last_block(&self) -> (u64, u32) {
        self.last
    }
}

/// A block as it lies there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Raw {
    pub(super) kind: u8,
    /// Bytes of the payload.
    pub(super) length: u32,
}

/// Reads the block that begins at a position into `payload` and checks its sum; `None` at the end of the bytes.
pub(super) fn read_raw(
    bytes: &mut impl Read,
    block: u64,
    payload: &mut Vec<u8>,
) -> Result<Option<Raw>, TraceFileError> {
    let mut start = [0; 5];
    match fill(bytes, &mut start)? {
        0 => return Ok(None),
        5 => {}
        got => return Err(TraceFileError::Cut { at: block + got as u64, block }),
    }
    let stated = u32::from_le_bytes([start[1], start[2], start[3], start[4]]);
    let length = stated as usize;
    if length > BLOCK_BYTES_MAX {
        return Err(TraceFileError::Block { block, what: "it is longer than a block may be" });
    }
    payload.resize(length, 0);
    let mut sum = [0; 4];
    let got = fill(bytes, payload)?;
    let got = got + if got == length { fill(bytes, &mut sum)? } else { 0 };
    if got < length + 4 {
        return Err(TraceFileError::Cut { at: block + 5 + got as u64, block });
    }
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&start);
    hasher.update(payload);
    let (found, stated_sum) = (hasher.finalize(), u32::from_le_bytes(sum));
    if found != stated_sum {
        return Err(TraceFileError::Checksum { block, found, stated: stated_sum });
    }
    Ok(Some(Raw { kind: start[0], length: stated }))
}

/// Fills a buffer as far as there are bytes; how many there were.
fn fill(bytes: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut got = 0;
    while let Some(rest) = buffer.get_mut(got..).filter(|rest| !rest.is_empty()) {
        match bytes.read(rest) {
            Ok(0) => break,
            Ok(read) => got += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}
