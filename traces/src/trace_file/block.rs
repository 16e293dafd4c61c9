//! Blocks as values, and their payloads.

use super::varint::{Fields, put, put_bytes, put_signed};
use super::{FILES_MAX, PATH_BYTES_MAX, PERIOD_NUMBER_MAX, PERIOD_SECONDS_MAX, PERIODS_MAX};

/// What a trace is about, and how its periods lie in time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Name of the site; a replay makes its files below a directory of this name.
    pub name: String,
    /// Where it came from, in words.
    pub about: String,
    /// Length of a period, in seconds: 1 to [`PERIOD_SECONDS_MAX`].
    pub period_s: u32,
    /// When period 0 begins, in seconds since 1970 UTC.
    pub origin_s: i64,
}

impl Head {
    /// When a period begins, in seconds since 1970 UTC.
    #[must_use]
    pub fn period_start_s(&self, period: i64) -> i64 {
        self.origin_s.saturating_add(period.saturating_mul(i64::from(self.period_s)))
    }

    /// The period that a moment lies in.
    #[must_use]
    pub fn period_of(&self, unix_s: i64) -> i64 {
        unix_s.saturating_sub(self.origin_s).div_euclid(i64::from(self.period_s.max(1)))
    }
}

/// One file in one period. Requests are of three classes: reads, writes, and what concerns metadata alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileCount {
    /// Number of the file.
    pub file: u32,
    /// Requests for it, of all classes.
    pub requests: u64,
    /// How many of them wrote data.
    pub writes: u64,
    /// How many of them neither read nor wrote data.
    pub metadata: u64,
    /// Bytes sent, where the log says so.
    pub bytes_read: u64,
    /// Bytes taken, where the log says so; 0 if there was no write.
    pub bytes_written: u64,
}

impl FileCount {
    /// Requests that read data.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.requests.saturating_sub(self.writes).saturating_sub(self.metadata)
    }

    /// Adds other counts of the same file.
    pub fn add(&mut self, other: &Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.writes = self.writes.saturating_add(other.writes);
        self.metadata = self.metadata.saturating_add(other.metadata);
        self.bytes_read = self.bytes_read.saturating_add(other.bytes_read);
        self.bytes_written = self.bytes_written.saturating_add(other.bytes_written);
    }
}

/// Counts of one period, or a part of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeriodCounts {
    /// Number of the period.
    pub period: i64,
    /// Files that were asked for, by ascending number.
    pub counts: Vec<FileCount>,
}

/// A range of periods that was observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Number of the first period.
    pub first: i64,
    /// How many periods.
    pub periods: u64,
    /// Whether a period without counts had no requests; otherwise it is missing: nothing is known of it.
    pub silent_is_zero: bool,
}

/// One client, or all that were not told apart (number 0).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// Its number in the order of first appearance, from 1.
    pub number: u32,
    /// Requests that came from it.
    pub requests: u64,
    /// Its address as the log has it; empty unless addresses were to be kept.
    pub address: Vec<u8>,
}

/// One block after the head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Block {
    /// Names of files, numbered from `first` on.
    Files {
        /// Number of the first.
        first: u32,
        /// Their paths, bytes as they were asked for.
        paths: Vec<Vec<u8>>,
    },
    /// Counts of a period.
    Counts(PeriodCounts),
    /// Largest sizes seen: number of the file, bytes.
    Sizes(Vec<(u32, u64)>),
    /// What was observed.
    Span(Span),
    /// Who asked.
    Clients(Vec<Client>),
    /// What all blocks so far add up to.
    End {
        /// Requests.
        requests: u64,
        /// Files.
        files: u32,
        /// Blocks before this one.
        blocks: u64,
    },
}

/// Most requests of one count: two bits of their number are taken.
pub(super) const REQUESTS_MAX: u64 = u64::MAX >> 2;

pub(super) fn put_head(out: &mut Vec<u8>, head: &Head) {
    put(out, u64::from(head.period_s));
    put_signed(out, head.origin_s);
    put_bytes(out, head.name.as_bytes());
    put_bytes(out, head.about.as_bytes());
}

pub(super) fn head(payload: &[u8]) -> Result<Head, &'static str> {
    let mut fields = Fields(payload);
    let period_s = fields.number().and_then(|s| u32::try_from(s).ok());
    let period_s = period_s.filter(|s| (1..=PERIOD_SECONDS_MAX).contains(s)).ok_or("the period's length")?;
    let origin_s = fields.signed().filter(|s| s.unsigned_abs() < 1 << 48).ok_or("the origin")?;
    let mut text = || fields.bytes().and_then(|bytes| String::from_utf8(bytes.to_vec()).ok());
    let (name, about) = (text().ok_or("the name")?, text().ok_or("the description")?);
    if fields.0.is_empty() { Ok(Head { name, about, period_s, origin_s }) } else { Err(TRAILING) }
}

const TRAILING: &str = "there is more in it than its kind has";
const SHORT: &str = "it ends too early";

/// Numbers that ascend, each stored as the distance from the one before.
#[derive(Default)]
struct Ascending {
    next: u64,
}

impl Ascending {
    fn put(&mut self, out: &mut Vec<u8>, number: u32) {
        put(out, u64::from(number).saturating_sub(self.next));
        self.next = u64::from(number) + 1;
    }

    fn read(&mut self, fields: &mut Fields<'_>, below: usize) -> Result<u32, &'static str> {
        let number = fields.number().ok_or(SHORT)?.checked_add(self.next).ok_or("a number overflows")?;
        if number >= below as u64 {
            return Err("a number of a file or client that there is none of");
        }
        self.next = number + 1;
        u32::try_from(number).map_err(|_| "a number overflows")
    }
}

impl Block {
    pub(super) fn kind(&self) -> u8 {
        match self {
            Self::Files { .. } => b'F',
            Self::Counts(_) => b'C',
            Self::Sizes(_) => b'S',
            Self::Span(_) => b'P',
            Self::Clients(_) => b'a',
            Self::End { .. } => b'E',
        }
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        let mut numbers = Ascending::default();
        match self {
            Self::Files { first, paths } => {
                put(out, u64::from(*first));
                put(out, paths.len() as u64);
                paths.iter().for_each(|path| put_bytes(out, path));
            }
            Self::Counts(PeriodCounts { period, counts }) => put_counts(out, *period, counts),
            Self::Sizes(sizes) => {
                put(out, sizes.len() as u64);
                for (file, bytes) in sizes {
                    numbers.put(out, *file);
                    put(out, *bytes);
                }
            }
            Self::Span(span) => {
                put_signed(out, span.first);
                put(out, span.periods);
                put(out, u64::from(span.silent_is_zero));
            }
            Self::Clients(clients) => {
                put(out, clients.len() as u64);
                for client in clients {
                    numbers.put(out, client.number);
                    put(out, client.requests);
                    put_bytes(out, &client.address);
                }
            }
            Self::End { requests, files, blocks } => {
                put(out, *requests);
                put(out, u64::from(*files));
                put(out, *blocks);
            }
        }
    }

    /// The block of a kind in a file of some version; `None` for a kind that may be skipped. `files` were named by earlier
    /// blocks.
    pub(super) fn read(
        version: u32,
        kind: u8,
        payload: &[u8],
        files: usize,
    ) -> Result<Option<Self>, &'static str> {
        let mut fields = Fields(payload);
        let block = match kind {
            b'F' => read_files(&mut fields, files)?,
            b'C' => Self::Counts(read_counts(version, &mut fields, files)?),
            b'S' => {
                let (how_many, mut numbers) = (how_many(&mut fields)?, Ascending::default());
                let mut one = |_| -> Result<(u32, u64), &'static str> {
                    Ok((numbers.read(&mut fields, files)?, fields.number().ok_or(SHORT)?))
                };
                Self::Sizes((0..how_many).map(&mut one).collect::<Result<_, _>>()?)
            }
            b'P' => {
                let first = fields.signed().ok_or(SHORT)?;
                let periods = fields.number().filter(|n| *n <= PERIODS_MAX).ok_or("too many periods")?;
                in_range(first)?;
                in_range(first + periods.cast_signed())?;
                let silent_is_zero = match fields.number() {
                    Some(0) => false,
                    Some(1) => true,
                    _ => return Err("what silence means is neither 0 nor 1"),
                };
                Self::Span(Span { first, periods, silent_is_zero })
            }
            b'a' => {
                let (how_many, mut numbers) = (how_many(&mut fields)?, Ascending::default());
                let mut one = |_| -> Result<Client, &'static str> {
                    let number = numbers.read(&mut fields, FILES_MAX)?;
                    let requests = fields.number().ok_or(SHORT)?;
                    Ok(Client { number, requests, address: fields.bytes().ok_or(SHORT)?.to_vec() })
                };
                Self::Clients((0..how_many).map(&mut one).collect::<Result<_, _>>()?)
            }
            b'E' => {
                let requests = fields.number().ok_or(SHORT)?;
                let files = fields.number().and_then(|n| u32::try_from(n).ok()).ok_or(SHORT)?;
                Self::End { requests, files, blocks: fields.number().ok_or(SHORT)? }
            }
            b'H' => return Err("a second head"),
            b'b'..=b'z' => return Ok(None),
            _ => return Err("its kind is unknown to this version"),
        };
        if fields.0.is_empty() { Ok(Some(block)) } else { Err(TRAILING) }
    }
}

/// The counts of a period, as a payload.
pub(super) fn put_counts(out: &mut Vec<u8>, period: i64, counts: &[FileCount]) {
    let mut numbers = Ascending::default();
    put_signed(out, period);
    put(out, counts.len() as u64);
    for count in counts {
        numbers.put(out, count.file);
        let (wrote, asked) = (count.writes > 0, count.metadata > 0);
        put(out, (count.requests << 2) | u64::from(asked) << 1 | u64::from(wrote));
        if wrote {
            put(out, count.writes);
            put(out, count.bytes_written);
        }
        if asked {
            put(out, count.metadata);
        }
        put(out, count.bytes_read);
    }
}

/// A stated number of things, each of at least one byte: never more than there are bytes.
fn how_many(fields: &mut Fields<'_>) -> Result<usize, &'static str> {
    let stated = fields.number().and_then(|n| usize::try_from(n).ok()).ok_or(SHORT)?;
    if stated <= fields.0.len() { Ok(stated) } else { Err("it states more than it has") }
}

fn in_range(period: i64) -> Result<(), &'static str> {
    if period.abs() <= PERIOD_NUMBER_MAX { Ok(()) } else { Err("a period too far from the origin") }
}

fn read_files(fields: &mut Fields<'_>, files: usize) -> Result<Block, &'static str> {
    let first = fields.number().ok_or(SHORT)?;
    if first != files as u64 {
        return Err("its files do not follow those before it");
    }
    let first = u32::try_from(first).map_err(|_| "too many files")?;
    let how_many = how_many(fields)?;
    if files + how_many > FILES_MAX {
        return Err("too many files");
    }
    let one = |_| match fields.bytes() {
        Some(path) if path.len() <= PATH_BYTES_MAX => Ok(path.to_vec()),
        Some(_) => Err("a path is too long"),
        None => Err(SHORT),
    };
    Ok(Block::Files { first, paths: (0..how_many).map(one).collect::<Result<_, _>>()? })
}

fn read_counts(version: u32, fields: &mut Fields<'_>, files: usize) -> Result<PeriodCounts, &'static str> {
    let period = fields.signed().ok_or(SHORT)?;
    in_range(period)?;
    let (how_many, mut numbers) = (how_many(fields)?, Ascending::default());
    let one = |_| {
        let file = numbers.read(fields, files)?;
        let count = if version == 1 { count_of_version_1(file, fields) } else { count(file, fields) };
        let count = count.ok_or(SHORT)?;
        let apart = count.writes.checked_add(count.metadata);
        apart.filter(|apart| *apart <= count.requests).map(|_| count).ok_or(TOO_MANY_APART)
    };
    Ok(PeriodCounts { period, counts: (0..how_many).map(one).collect::<Result<_, _>>()? })
}

const TOO_MANY_APART: &str = "more writes and requests for metadata than requests";

fn count(file: u32, fields: &mut Fields<'_>) -> Option<FileCount> {
    let word = fields.number()?;
    let (writes, bytes_written) = if word & 1 == 1 { (fields.number()?, fields.number()?) } else { (0, 0) };
    let metadata = if word & 2 == 2 { fields.number()? } else { 0 };
    Some(FileCount {
        file,
        requests: word >> 2,
        writes,
        metadata,
        bytes_read: fields.number()?,
        bytes_written,
    })
}

/// Version 1 knew what changed a file and what did not, and one number of bytes for both.
fn count_of_version_1(file: u32, fields: &mut Fields<'_>) -> Option<FileCount> {
    let word = fields.number()?;
    let requests = word >> 1;
    let writes = if word & 1 == 1 { fields.number()? } else { 0 };
    let bytes = fields.number()?;
    let (bytes_read, bytes_written) = if writes > 0 && writes == requests { (0, bytes) } else { (bytes, 0) };
    Some(FileCount { file, requests, writes, metadata: 0, bytes_read, bytes_written })
}
