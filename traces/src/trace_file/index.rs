//! A trace whose counts stay in its file: totals and names in memory, periods read one by one in their order.

use super::read::{Raw, read_raw};
use super::whole::{merge, reach, silent};
use super::{Block, FileCount, Head, PERIODS_MAX, Span, TraceFileError, TraceReader};
use std::collections::BTreeMap;
use std::io::{BufReader, Read, Seek, SeekFrom};

/// Most blocks of counts in a trace that is indexed (24 bytes each). The importer fills blocks of a period as far as it can.
pub const INDEX_BLOCKS_MAX: usize = 8_000_000;
/// Most bytes of all paths together in a trace that is indexed.
pub const INDEX_PATH_BYTES_MAX: usize = 512 << 20;
/// Most statements of what was observed in a trace that is indexed; there is one for each import.
pub const INDEX_SPANS_MAX: usize = 65_536;
/// Counts of one period that wait for being added up, beyond two for each file.
const UNMERGED_MAX: usize = 65_536;

/// What a trace holds, without the counts of its periods, which stay in the file.
///
/// Memory depends on the numbers of files, periods and blocks, all of which are limited, and not on the number of counts: a
/// trace of 10 GB takes as much as a small one with as many files.
#[derive(Debug, Clone)]
pub struct TraceIndex {
    head: Head,
    names: Names,
    /// By file: largest size seen, and requests.
    files: Vec<(u64, u64)>,
    /// Requests of the periods that have counts.
    periods: BTreeMap<i64, u64>,
    spans: Vec<Span>,
    /// Blocks of counts: period, position, length of the payload. Sorted.
    blocks: Vec<(i64, u64, u32)>,
    /// All counts together; the file means nothing.
    sum: FileCount,
    version: u32,
    clients: Clients,
}

/// Paths, one behind the other.
#[derive(Debug, Clone, Default)]
struct Names {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

/// Which clients there are.
#[derive(Debug, Clone, Default)]
struct Clients {
    seen: Vec<u64>,
    count: u64,
}

impl Clients {
    fn see(&mut self, number: u32) {
        let (word, bit) = (number as usize / 64, 1 << (number % 64));
        if word >= self.seen.len() {
            self.seen.resize(word + 1, 0);
        }
        if let Some(word) = self.seen.get_mut(word).filter(|word| **word & bit == 0) {
            *word |= bit;
            self.count += u64::from(number > 0);
        }
    }
}

impl TraceIndex {
    /// Reads a whole trace file, checking all of it.
    ///
    /// # Errors
    /// [`TraceFileError`] with the position of what is damaged; what is beyond [`PERIODS_MAX`], [`INDEX_BLOCKS_MAX`],
    /// [`INDEX_PATH_BYTES_MAX`] or [`INDEX_SPANS_MAX`].
    pub fn read(bytes: impl Read) -> Result<Self, TraceFileError> {
        let mut reader = TraceReader::new(bytes)?;
        let mut index = Self {
            head: reader.head().clone(),
            names: Names::default(),
            files: Vec::new(),
            periods: BTreeMap::new(),
            spans: Vec::new(),
            blocks: Vec::new(),
            sum: FileCount::default(),
            version: reader.version(),
            clients: Clients::default(),
        };
        while let Some(block) = reader.next_block()? {
            index.take(block, reader.last_block())?;
        }
        let found = index.span().map_or(0, |(_, periods)| periods);
        limit("the number of periods between the first and the last one", found, PERIODS_MAX)?;
        index.blocks.sort_unstable();
        Ok(index)
    }

    fn take(&mut self, block: Block, (at, length): (u64, u32)) -> Result<(), TraceFileError> {
        match block {
            Block::Files { paths, .. } => {
                for path in paths {
                    let bytes = self.names.bytes.len() + path.len();
                    limit("the length of all paths together", bytes as u64, INDEX_PATH_BYTES_MAX as u64)?;
                    self.names.bytes.extend_from_slice(&path);
                    self.names.ends.push(bytes);
                    self.files.push((0, 0));
                }
            }
            Block::Counts(counts) => {
                limit("the number of blocks", self.blocks.len() as u64 + 1, INDEX_BLOCKS_MAX as u64)?;
                self.blocks.push((counts.period, at, length));
                let total = self.periods.entry(counts.period).or_default();
                for count in &counts.counts {
                    *total = total.saturating_add(count.requests);
                    self.sum.add(count);
                    if let Some((_, requests)) = self.files.get_mut(count.file as usize) {
                        *requests = requests.saturating_add(count.requests);
                    }
                }
                limit("the number of periods", self.periods.len() as u64, PERIODS_MAX)?;
            }
            Block::Sizes(sizes) => {
                for (file, bytes) in sizes {
                    if let Some((size, _)) = self.files.get_mut(file as usize) {
                        *size = bytes.max(*size);
                    }
                }
            }
            Block::Span(span) => {
                limit("the number of spans", self.spans.len() as u64 + 1, INDEX_SPANS_MAX as u64)?;
                if self.spans.last() != Some(&span) {
                    self.spans.push(span);
                }
            }
            Block::Clients(clients) => clients.iter().for_each(|client| self.clients.see(client.number)),
            Block::End { .. } => {}
        }
        Ok(())
    }

    /// What the trace is about.
    #[must_use]
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// How many files there are.
    #[must_use]
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// Path of a file, bytes as they were asked for; empty if there is no such file.
    #[must_use]
    pub fn path(&self, file: u32) -> &[u8] {
        let ends = &self.names.ends;
        let begin = (file as usize).checked_sub(1).and_then(|before| ends.get(before)).copied().unwrap_or(0);
        let end = ends.get(file as usize).copied().unwrap_or(begin);
        self.names.bytes.get(begin..end).unwrap_or_default()
    }

    /// Largest size seen of a file, in bytes; 0 where the log says nothing.
    #[must_use]
    pub fn size(&self, file: u32) -> u64 {
        self.files.get(file as usize).map_or(0, |(size, _)| *size)
    }

    /// Requests for each file, by number.
    pub fn requests_by_file(&self) -> impl Iterator<Item = u64> {
        self.files.iter().map(|(_, requests)| *requests)
    }

    /// All requests.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.periods.values().fold(0, |sum, requests| sum.saturating_add(*requests))
    }

    /// All counts together; the number of the file means nothing.
    #[must_use]
    pub fn sum(&self) -> FileCount {
        self.sum
    }

    /// The version of the file.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Clients that were told apart.
    #[must_use]
    pub fn clients(&self) -> u64 {
        self.clients.count
    }

    /// The first period and how many there are up to the last one; `None` if nothing was observed.
    #[must_use]
    pub fn span(&self) -> Option<(i64, u64)> {
        let counted = self.periods.first_key_value().zip(self.periods.last_key_value());
        reach(&self.spans, counted.map(|((first, _), (last, _))| (*first, *last)))
    }

    /// Requests in a period; `None` where it is missing.
    #[must_use]
    pub fn requests_in(&self, period: i64) -> Option<u64> {
        self.periods.get(&period).copied().or_else(|| silent(&self.spans, period).then_some(0))
    }

    /// Requests in every period from the first to the last; `None` where a period is missing.
    #[must_use]
    pub fn totals(&self) -> Vec<Option<u64>> {
        let Some((first, periods)) = self.span() else { return Vec::new() };
        (first..first + periods.cast_signed()).map(|period| self.requests_in(period)).collect()
    }

    /// The counts of the periods, read from the same trace file.
    pub fn counts<R: Read + Seek>(&self, trace: R) -> PeriodCountsReader<'_, R> {
        PeriodCountsReader {
            index: self,
            trace: BufReader::with_capacity(1 << 17, trace),
            at: None,
            next: 0,
            payload: Vec::new(),
            counts: Vec::new(),
        }
    }
}

fn limit(what: &'static str, found: u64, limit: u64) -> Result<(), TraceFileError> {
    if found <= limit { Ok(()) } else { Err(TraceFileError::Limit { what, found, limit }) }
}

/// Reads the counts of a trace, period by period; it holds those of one.
pub struct PeriodCountsReader<'i, R> {
    index: &'i TraceIndex,
    trace: BufReader<R>,
    /// Where the reader stands, once it is known.
    at: Option<u64>,
    /// The next block.
    next: usize,
    payload: Vec<u8>,
    counts: Vec<FileCount>,
}

impl<R: Read + Seek> PeriodCountsReader<'_, R> {
    /// The next period that has counts, in the order of time, and its counts by ascending number of the file; `None` behind
    /// the last one.
    ///
    /// # Errors
    /// [`TraceFileError`]: the file cannot be read, or was changed since it was indexed.
    pub fn next_period(&mut self) -> Result<Option<(i64, &[FileCount])>, TraceFileError> {
        let Some(&(period, ..)) = self.index.blocks.get(self.next) else { return Ok(None) };
        self.counts.clear();
        let unmerged_max = 2 * self.index.files.len() + UNMERGED_MAX;
        while let Some(&(_, at, length)) = self.index.blocks.get(self.next).filter(|block| block.0 == period)
        {
            self.next += 1;
            self.read_block(period, at, length)?;
            if self.counts.len() > unmerged_max {
                merge(&mut self.counts);
            }
        }
        merge(&mut self.counts);
        Ok(Some((period, &self.counts)))
    }

    fn read_block(&mut self, period: i64, at: u64, length: u32) -> Result<(), TraceFileError> {
        let changed = |what| TraceFileError::Block { block: at, what };
        match self.at.and_then(|now| i64::try_from(i128::from(at) - i128::from(now)).ok()) {
            Some(distance) => self.trace.seek_relative(distance)?,
            None => drop(self.trace.seek(SeekFrom::Start(at))?),
        }
        self.at = None;
        let raw = read_raw(&mut self.trace, at, &mut self.payload)?;
        let kind = raw.filter(|raw| raw.length == length).map(|Raw { kind, .. }| kind);
        let kind = kind.ok_or_else(|| changed("the file was changed while it was read"))?;
        self.at = Some(at + 9 + u64::from(length));
        match Block::read(self.index.version, kind, &self.payload, self.index.files.len()).map_err(changed)? {
            Some(Block::Counts(counts)) if counts.period == period => {
                self.counts.extend(counts.counts);
                Ok(())
            }
            _ => Err(changed("the file was changed while it was read")),
        }
    }
}
