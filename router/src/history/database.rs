//! The history itself: append, read, retain.

use std::collections::BTreeMap;
use std::io;
use std::ops::RangeBounds;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use super::block::{Block, BlockFile};
use super::chunks::{self, Batches};
use super::codec::{seal, unseal};
use super::dictionary::{Dictionary, Write};
use super::error::HistoryError;
use super::marker;
use super::open::Opened;
use super::reopen::Slot;
use crate::heat::{FilePeriod, PeriodRecord};

/// Longest named value, bytes. An exception set of 100,000 files takes about 8 MB.
pub const BLOB_BYTES_MAX: usize = 32 << 20;

/// How much the history keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryLimits {
    /// Periods kept; the oldest go. At least 1.
    pub periods_max: usize,
    /// Bytes of live data kept (periods, dictionary, named values); the oldest periods go, the newest always
    /// stays. The files on disk take at most twice as much and [`SLACK_BYTES`](super::SLACK_BYTES).
    pub bytes_max: u64,
}

impl Default for HistoryLimits {
    /// A year of hours, and 1 GiB.
    fn default() -> Self {
        Self { periods_max: 8_784, bytes_max: 1 << 30 }
    }
}

/// What an append did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Bytes of the period's block.
    pub block_bytes: usize,
    /// Old periods that went.
    pub periods_dropped: usize,
    /// Whether the database was written anew to give space back.
    pub compacted: bool,
}

/// Key of a period: start, and a number that tells periods with equal starts apart (a clock set back).
pub(super) type PeriodKey = [u8; 12];

/// Key, in the tree `meta`, of the count of writes acknowledged.
pub(super) const ACKNOWLEDGED: &str = "acknowledged";

/// The trees in use, and the database that they belong to.
pub(super) struct Trees {
    pub(super) db: sled::Db,
    pub(super) meta: sled::Tree,
    pub(super) periods: sled::Tree,
    pub(super) handles: sled::Tree,
    pub(super) blobs: sled::Tree,
}

pub(super) struct State {
    pub(super) trees: Trees,
    pub(super) dictionary: Dictionary,
    /// Keys of the periods kept, with the bytes of their blocks.
    pub(super) kept: BTreeMap<PeriodKey, u64>,
    pub(super) live_bytes: u64,
    /// Writes that are on disk for sure, since the history began.
    pub(super) acknowledged: u64,
}

/// The history of a plex. All methods may be called from any thread; [`append`](Self::append) waits for the disk
/// (milliseconds), the others read. After a write that failed the database is opened again before the next one, but not within
/// 5 seconds, or ten times as long as that took: until then writes fail at once.
pub struct History {
    pub(super) path: PathBuf,
    pub(super) limits: HistoryLimits,
    pub(super) slot: Mutex<Slot>,
    /// Least time from a failed write to the next attempt.
    pub(super) again: Duration,
}

impl History {
    /// Opens the history in the folder `path`, or begins one. One that cannot be read is moved aside to
    /// `<path>.damaged-<unix time>` and an empty one is begun: [`Opened::moved_aside`] says so.
    pub fn open(path: impl AsRef<Path>, limits: HistoryLimits) -> Result<Opened, HistoryError> {
        super::open::open(path.as_ref(), limits)
    }

    /// Stores a period and returns when it is on disk; then drops what the limits do not allow for.
    pub fn append(&self, record: &PeriodRecord) -> Result<Appended, HistoryError> {
        self.append_all(std::slice::from_ref(record))
    }

    /// Stores periods, as a past that is imported, and returns when all are on disk; then drops what the limits do not
    /// allow for. The bytes in the answer are those of all blocks. After an error some of them may be stored.
    pub fn append_all(&self, records: &[PeriodRecord]) -> Result<Appended, HistoryError> {
        self.writing(|state| {
            let mut block_bytes = 0;
            for record in records {
                block_bytes += self.guarded(|| state.append(record))?;
            }
            let periods_dropped = self.guarded(|| state.retain(&self.limits))?;
            self.commit(state)?;
            let compacted = self.compact_if_large(state)?;
            Ok(Appended { block_bytes, periods_dropped, compacted })
        })
    }

    /// Forgets the periods that start within `starts` (milliseconds since 1970 UTC), as where an import has to be taken back;
    /// how many. After an error some of them may be gone.
    pub fn forget(&self, starts: impl RangeBounds<u64>) -> Result<usize, HistoryError> {
        self.writing(|state| {
            let within = state.kept.iter().filter(|(key, _)| starts.contains(&start_of(key)));
            let within: Vec<(PeriodKey, u64)> = within.map(|(key, bytes)| (*key, *bytes)).collect();
            for (key, bytes) in &within {
                self.guarded(|| state.forget(key, *bytes))?;
            }
            self.commit(state)?;
            Ok(within.len())
        })
    }

    /// The periods that start within `starts` (milliseconds since 1970 UTC), in order of their start; the other
    /// end first with `.rev()`. Periods dropped meanwhile are left out.
    pub fn periods(&self, starts: impl RangeBounds<u64>) -> Periods<'_> {
        let within = |state: &State| {
            let keys = state.kept.keys().copied().filter(|key| starts.contains(&start_of(key)));
            Ok(keys.collect::<Vec<_>>())
        };
        let (keys, closed) = match self.reading(within) {
            Ok(keys) => (keys, None),
            Err(closed) => (Vec::new(), Some(closed)),
        };
        Periods { history: self, keys: keys.into_iter(), closed }
    }

    /// How many imported periods there are of each length, milliseconds. Damaged ones are left out: whoever reads them is told.
    pub fn imported(&self) -> Result<BTreeMap<u64, usize>, HistoryError> {
        self.look(|state| {
            let mut lengths = BTreeMap::new();
            for period in state.kept.keys() {
                let Some(begin) = chunks::begin(&state.trees.periods, period)? else { continue };
                if let Ok((span, Some(super::IMPORTED))) = Block::head(&begin) {
                    *lengths.entry(span.length_ms).or_default() += 1;
                }
            }
            Ok(lengths)
        })
    }

    /// The latest period.
    pub fn last(&self) -> Result<Option<PeriodRecord>, HistoryError> {
        self.periods(..).next_back().transpose()
    }

    /// How many periods are kept.
    pub fn len(&self) -> usize {
        self.figure(|state| state.kept.len())
    }

    /// Whether no period is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Files that the kept periods name.
    pub fn files(&self) -> usize {
        self.figure(|state| state.dictionary.len())
    }

    /// Bytes of live data, for comparison with [`HistoryLimits::bytes_max`].
    pub fn live_bytes(&self) -> u64 {
        self.figure(|state| state.live_bytes)
    }

    /// Bytes that the database's files take.
    pub fn bytes_on_disk(&self) -> u64 {
        super::compact::folder_bytes(&self.path)
    }

    /// The folder of the database.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Stores a value under a name, in place of an earlier one, and returns when it is on disk. One that is on disk already is not
    /// written again.
    pub fn put(&self, name: &str, value: &[u8]) -> Result<(), HistoryError> {
        if value.len() > BLOB_BYTES_MAX {
            let (name, bytes) = (name.to_owned(), value.len());
            return Err(HistoryError::BlobTooLong { name, bytes, bytes_max: BLOB_BYTES_MAX });
        }
        self.writing(|state| {
            let sealed = seal(value.to_vec());
            // The same, mostly: then nothing is written.
            if self.guarded(|| Ok(state.trees.blobs.get(name)?.is_some_and(|old| *old == *sealed)))? {
                return Ok(());
            }
            self.guarded(|| {
                let added = cost(name.as_bytes(), &sealed);
                let old = state.trees.blobs.insert(name, sealed)?;
                let freed = old.map_or(0, |old| cost(name.as_bytes(), &old));
                state.live_bytes = (state.live_bytes + added).saturating_sub(freed);
                Ok(())
            })?;
            self.commit(state)
        })
    }

    /// The value of a name.
    pub fn get(&self, name: &str) -> Result<Option<Vec<u8>>, HistoryError> {
        self.look(|state| match state.trees.blobs.get(name)? {
            Some(sealed) => Ok(Some(unseal(&sealed).map_err(|damage| Fault::of(name, damage))?.to_vec())),
            None => Ok(None),
        })
    }

    /// Removes a value; says whether there was one.
    pub fn remove(&self, name: &str) -> Result<bool, HistoryError> {
        self.writing(|state| {
            let removed = self.guarded(|| {
                let old = state.trees.blobs.remove(name)?;
                let freed = old.as_ref().map_or(0, |old| cost(name.as_bytes(), old));
                state.live_bytes = state.live_bytes.saturating_sub(freed);
                Ok(old.is_some())
            })?;
            self.commit(state)?;
            Ok(removed)
        })
    }

    /// The names that begin with `prefix`, in order.
    pub fn names(&self, prefix: &str) -> Result<Vec<String>, HistoryError> {
        self.look(|state| {
            let keys = state.trees.blobs.scan_prefix(prefix).keys();
            keys.map(|key| Ok(String::from_utf8_lossy(&key?).into_owned())).collect()
        })
    }

    fn read(&self, key: &PeriodKey) -> Result<Option<PeriodRecord>, HistoryError> {
        self.look(|state| {
            let Some(block) = chunks::read(&state.trees.periods, key)? else { return Ok(None) };
            Ok(Some(state.resolve(block)?))
        })
    }

    /// Waits until all that was written is on disk, and notes that it is.
    fn commit(&self, state: &mut State) -> Result<(), HistoryError> {
        self.guarded(|| {
            let acknowledged = state.acknowledged + 1;
            state.trees.meta.insert(ACKNOWLEDGED, &acknowledged.to_be_bytes())?;
            state.trees.db.flush()?;
            state.acknowledged = acknowledged;
            Ok(())
        })?;
        marker::write(&self.path, state.acknowledged)
    }

    fn look<T>(&self, work: impl FnOnce(&State) -> Result<T, Fault>) -> Result<T, HistoryError> {
        self.reading(|state| self.guarded(|| work(state)))
    }

    fn guarded<T>(&self, work: impl FnOnce() -> Result<T, Fault>) -> Result<T, HistoryError> {
        guarded(&self.path, work)
    }
}

impl State {
    fn append(&mut self, record: &PeriodRecord) -> Result<usize, Fault> {
        let appended = self.write(record);
        if appended.is_err() {
            // Numbers that were given out for this period are not on disk for sure: no later one may use them.
            self.dictionary.forget_unused();
        }
        appended
    }

    fn write(&mut self, record: &PeriodRecord) -> Result<usize, Fault> {
        let mut entries = Batches::new(&self.trees.handles);
        let mut numbers = Vec::with_capacity(record.files.len());
        let (mut added, mut freed) = (0, 0);
        for file in &record.files {
            let (number, write) = self.dictionary.number(&file.handle, file.path.as_ref());
            numbers.push(number);
            match write {
                Write::Nothing => continue,
                Write::New => {}
                Write::Instead { old_bytes } => freed += old_bytes,
            }
            if let Some(entry) = self.dictionary.encode(number) {
                added += cost(&number.to_be_bytes(), &entry);
                entries.insert(&number.to_be_bytes(), entry)?;
            }
        }
        // The dictionary goes first: a block on disk never names what the dictionary on disk does not know.
        entries.finish()?;
        let bytes = Block::new(record, &numbers).encode();
        let block_bytes = bytes.len();
        let key = self.free_key(record.span.start_unix_ms);
        let cost = chunks::write(&self.trees.periods, &key, &bytes)?;
        for number in numbers {
            self.dictionary.keep(number);
        }
        self.kept.insert(key, cost);
        self.live_bytes = (self.live_bytes + added + cost).saturating_sub(freed);
        Ok(block_bytes)
    }

    fn free_key(&self, start_unix_ms: u64) -> PeriodKey {
        let last = self.kept.range(key_of(start_unix_ms, 0)..=key_of(start_unix_ms, u32::MAX)).next_back();
        let count = last.map_or(0, |(key, _)| {
            let [_, _, _, _, _, _, _, _, count @ ..] = *key;
            u32::from_be_bytes(count).saturating_add(1)
        });
        key_of(start_unix_ms, count)
    }

    fn retain(&mut self, limits: &HistoryLimits) -> Result<usize, Fault> {
        let mut dropped = 0;
        while self.kept.len() > 1
            && (self.kept.len() > limits.periods_max || self.live_bytes > limits.bytes_max)
        {
            let Some((key, bytes)) = self.kept.first_key_value().map(|(key, bytes)| (*key, *bytes)) else {
                break;
            };
            dropped += usize::from(self.forget(&key, bytes)?);
        }
        Ok(dropped)
    }

    /// Removes a period; says whether its block was there.
    fn forget(&mut self, key: &PeriodKey, bytes: u64) -> Result<bool, Fault> {
        self.kept.remove(key);
        let Some(block) = chunks::read(&self.trees.periods, key)? else { return Ok(false) };
        chunks::remove(&self.trees.periods, key)?;
        self.live_bytes = self.live_bytes.saturating_sub(bytes);
        self.release(&block.files)?;
        Ok(true)
    }

    fn release(&mut self, files: &[BlockFile]) -> Result<(), Fault> {
        let mut entries = Batches::new(&self.trees.handles);
        for file in files {
            let Some(known) = self.dictionary.get(file.number) else { continue };
            let bytes = known.bytes();
            if self.dictionary.release(file.number) {
                self.live_bytes = self.live_bytes.saturating_sub(bytes);
                entries.remove(&file.number.to_be_bytes())?;
            }
        }
        entries.finish()
    }

    fn resolve(&self, block: Block) -> Result<PeriodRecord, Fault> {
        let files = block.files.iter().map(|file| {
            let known = self.dictionary.get(file.number).ok_or_else(|| Fault::unknown_file(file.number))?;
            let (handle, path) = (known.handle, known.path.clone());
            Ok::<_, Fault>(FilePeriod { handle, store: file.store, path, counts: file.counts })
        });
        let files = files.collect::<Result<Vec<_>, _>>()?;
        let mut record = PeriodRecord { span: block.span, stores: block.stores, files, other: block.other };
        record.sort_files();
        Ok(record)
    }
}

/// The periods of a range, read one by one.
pub struct Periods<'a> {
    history: &'a History,
    keys: std::vec::IntoIter<PeriodKey>,
    /// Said once, in place of periods, where the history is closed.
    closed: Option<HistoryError>,
}

impl Iterator for Periods<'_> {
    type Item = Result<PeriodRecord, HistoryError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(closed) = self.closed.take() {
            return Some(Err(closed));
        }
        self.keys.by_ref().find_map(|key| self.history.read(&key).transpose())
    }
}

impl DoubleEndedIterator for Periods<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        if let Some(closed) = self.closed.take() {
            return Some(Err(closed));
        }
        self.keys.by_ref().rev().find_map(|key| self.history.read(&key).transpose())
    }
}

/// What went wrong inside, before it is known where.
pub(super) enum Fault {
    Database(sled::Error),
    Damaged(String),
}

impl Fault {
    pub(super) fn of(what: &str, damage: impl std::fmt::Display) -> Self {
        Self::Damaged(format!("{what}: {damage}"))
    }

    pub(super) fn unknown_file(number: u64) -> Self {
        Self::Damaged(format!("a period names file {number}, which the dictionary does not know"))
    }
}

impl From<sled::Error> for Fault {
    fn from(error: sled::Error) -> Self {
        Self::Database(error)
    }
}

/// Runs what touches sled. sled 0.34 panics on some damaged files where it could return an error; here that
/// becomes an error.
pub(super) fn guarded<T>(path: &Path, work: impl FnOnce() -> Result<T, Fault>) -> Result<T, HistoryError> {
    let damaged = |what: String| HistoryError::Damaged { path: path.to_owned(), what };
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(Fault::Damaged(what))) => Err(damaged(what)),
        Ok(Err(Fault::Database(error))) => Err(classify(path, error)),
        Err(panic) => {
            let what = (panic.downcast_ref::<String>().map(String::as_str))
                .or_else(|| panic.downcast_ref::<&str>().copied());
            Err(damaged(format!("the database gave up: {}", what.unwrap_or("no reason given"))))
        }
    }
}

fn classify(path: &Path, error: sled::Error) -> HistoryError {
    use std::io::ErrorKind as Kind;
    let path = path.to_owned();
    match error {
        sled::Error::Io(source) if source.to_string().contains("could not acquire lock") => {
            HistoryError::InUse { path }
        }
        // These say that the files are not what they should be; all others that the system did not let us.
        sled::Error::Io(source)
            if matches!(source.kind(), Kind::UnexpectedEof | Kind::InvalidData | Kind::InvalidInput) =>
        {
            HistoryError::Damaged { path, what: plain(source).to_string() }
        }
        sled::Error::Io(source) => {
            HistoryError::Access { path, action: "use the database", source: plain(source) }
        }
        sled::Error::Corruption { .. } => {
            HistoryError::Damaged { path, what: "a checksum in its files is wrong".into() }
        }
        other => HistoryError::Damaged { path, what: other.to_string() },
    }
}

/// sled repeats an error as the text for programmers of the first one; its kind says the same in words.
fn plain(error: io::Error) -> io::Error {
    if error.raw_os_error().is_none() && error.kind() != io::ErrorKind::Other {
        return error.kind().into();
    }
    error
}

pub(super) fn key_of(start_unix_ms: u64, count: u32) -> PeriodKey {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&start_unix_ms.to_be_bytes());
    key[8..].copy_from_slice(&count.to_be_bytes());
    key
}

fn start_of(key: &PeriodKey) -> u64 {
    let [start @ .., _, _, _, _] = *key;
    u64::from_be_bytes(start)
}

/// What a key and its value count for, bytes.
pub(super) fn cost(key: &[u8], value: &[u8]) -> u64 {
    (key.len() + value.len()) as u64
}
