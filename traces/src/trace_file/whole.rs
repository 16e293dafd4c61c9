//! A whole trace in memory.

use super::{Block, Client, FileCount, Head, PERIODS_MAX, Span, TraceFileError, TraceReader};
use std::collections::BTreeMap;
use std::io::Read;

/// A file of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracedFile {
    /// Its path, bytes as they were asked for.
    pub path: Vec<u8>,
    /// Largest size seen, in bytes; 0 where the log says nothing.
    pub bytes: u64,
}

/// A trace with all its counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceData {
    /// What it is about.
    pub head: Head,
    /// Its files by number.
    pub files: Vec<TracedFile>,
    /// Counts of the periods that have any, by period; each sorted by file.
    pub periods: BTreeMap<i64, Vec<FileCount>>,
    /// What was observed.
    pub spans: Vec<Span>,
    /// Who asked.
    pub clients: BTreeMap<u32, Client>,
}

impl TraceData {
    /// Reads a whole trace file.
    ///
    /// # Errors
    /// [`TraceFileError`] with the position of what is damaged; more than [`PERIODS_MAX`] periods.
    pub fn read(bytes: impl Read) -> Result<Self, TraceFileError> {
        let mut reader = TraceReader::new(bytes)?;
        let head = reader.head().clone();
        let mut data =
            Self { head, files: vec![], periods: BTreeMap::new(), spans: vec![], clients: BTreeMap::new() };
        while let Some(block) = reader.next_block()? {
            data.take(block);
        }
        let found = data.span().map_or(0, |(_, periods)| periods);
        if found > PERIODS_MAX {
            let what = "the number of periods between the first and the last one";
            return Err(TraceFileError::Limit { what, found, limit: PERIODS_MAX });
        }
        for counts in data.periods.values_mut() {
            merge(counts);
        }
        Ok(data)
    }

    fn take(&mut self, block: Block) {
        match block {
            Block::Files { paths, .. } => {
                self.files.extend(paths.into_iter().map(|path| TracedFile { path, bytes: 0 }));
            }
            Block::Counts(counts) => self.periods.entry(counts.period).or_default().extend(counts.counts),
            Block::Sizes(sizes) => {
                for (file, bytes) in sizes {
                    if let Some(file) = self.files.get_mut(file as usize) {
                        file.bytes = file.bytes.max(bytes);
                    }
                }
            }
            Block::Span(span) => self.spans.push(span),
            Block::Clients(clients) => {
                for client in clients {
                    let known = self.clients.entry(client.number).or_insert_with(|| Client {
                        number: client.number,
                        requests: 0,
                        address: Vec::new(),
                    });
                    known.requests = known.requests.saturating_add(client.requests);
                    known.address = client.address;
                }
            }
            Block::End { .. } => {}
        }
    }

    /// The first period and how many there are up to the last one; `None` if nothing was observed.
    #[must_use]
    pub fn span(&self) -> Option<(i64, u64)> {
        let counted = self.periods.first_key_value().zip(self.periods.last_key_value());
        reach(&self.spans, counted.map(|((first, _), (last, _))| (*first, *last)))
    }

    /// Requests in a period; `None` where it is missing.
    #[must_use]
    pub fn requests(&self, period: i64) -> Option<u64> {
        match self.periods.get(&period) {
            Some(counts) => Some(counts.iter().map(|count| count.requests).sum()),
            None => silent(&self.spans, period).then_some(0),
        }
    }

    /// Requests in every period from the first to the last; `None` where a period is missing.
    #[must_use]
    pub fn totals(&self) -> Vec<Option<u64>> {
        let Some((first, periods)) = self.span() else { return Vec::new() };
        (first..first + periods.cast_signed()).map(|period| self.requests(period)).collect()
    }
}

/// The first period and how many there are up to the last one. `counted`: first and last period with counts.
pub(super) fn reach(spans: &[Span], counted: Option<(i64, i64)>) -> Option<(i64, u64)> {
    let observed = spans.iter().filter(|span| span.periods > 0);
    let ends = observed.map(|span| (span.first, span.first + span.periods.cast_signed()));
    let all = ends.chain(counted.map(|(first, last)| (first, last + 1)));
    let (first, end) = all.reduce(|(a, b), (c, d)| (a.min(c), b.max(d)))?;
    Some((first, (end - first).unsigned_abs()))
}

/// Whether a period without counts had no requests, as far as was stated.
pub(super) fn silent(spans: &[Span], period: i64) -> bool {
    let covers = |span: &Span| (span.first..span.first + span.periods.cast_signed()).contains(&period);
    spans.iter().any(|span| span.silent_is_zero && covers(span))
}

/// Sorts counts by file and adds up those of one file.
pub(super) fn merge(counts: &mut Vec<FileCount>) {
    if counts.windows(2).all(|pair| pair[0].file < pair[1].file) {
        return;
    }
    counts.sort_by_key(|count| count.file);
    counts.dedup_by(|next, kept| {
        let same = next.file == kept.file;
        if same {
            kept.add(next);
        }
        same
    });
}
