//! Looking for a file whose handle is known and whose place is not: after a restart, or when another process has
//! moved it.
//!
//! The tree is walked from its root. A directory whose modification time has not changed since it was listed is
//! not listed again, so that a second search costs one `statx` a directory. In path mode nothing but the first
//! search can find anything (later changes go through the table), so there is only one.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nfs3_types::nfs3::nfsstat3;
use rustix::fs::{Dir, FileType, OFlags, Statx};

use super::attributes::file_type;
use super::handle::FileId;
use super::namespace::{Fault, HandleMode, Namespace, stat_fd, stat_in};

/// A listing is trusted only if the directory was left alone this long before it: file systems keep time in
/// ticks of up to 10 ms, and a change in the tick of the listing would not show.
const SETTLED: Duration = Duration::from_millis(50);

/// Files that were removed here or lately looked for in vain, at the most; the oldest is forgotten for a new one,
/// and asking for it costs another search.
const MISSING_MAX: usize = 65_536;
/// How long a search in vain is believed: a file that another process moved during it may have been missed.
const BELIEVED: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Scans(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Directory key -> its modification time when it was listed.
    listed: HashMap<u64, i128>,
    done: bool,
    missing: Missing,
    /// No search begins before this, so that searches take half of one core at the most.
    rest_until: Option<Instant>,
}

/// Files that need not be looked for.
#[derive(Debug, Default)]
struct Missing {
    /// Until when it is believed; `None` for ever: the file was removed here.
    until: HashMap<FileId, Option<Instant>>,
    order: VecDeque<FileId>,
}

impl Missing {
    fn add(&mut self, id: FileId, until: Option<Instant>) {
        if self.until.insert(id, until).is_none() {
            self.order.push_back(id);
        }
        if self.order.len() > MISSING_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.until.remove(&oldest);
        }
    }

    fn has(&self, id: FileId, now: Instant) -> bool {
        self.until.get(&id).is_some_and(|until| until.is_none_or(|until| now < until))
    }
}

impl Namespace {
    /// Notes that a file has been removed for good, so that its stale handle sets off no search.
    pub(super) fn bury(&self, id: FileId) {
        let mut state = self.scans.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.missing.add(id, None);
    }

    /// Looks for a file. `Ok` says only that looking again is worth while.
    pub(super) fn find(&self, id: FileId) -> Result<(), nfsstat3> {
        let mut state = self.scans.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Another call may have found it while this one waited.
        match self.located(&self.read_table(), id) {
            Ok(_) => return Ok(()),
            Err(Fault::Status(status)) => return Err(status),
            Err(Fault::Lost(_)) => {}
        }
        if matches!(self.mode, HandleMode::Path { .. }) {
            self.forget_if_gone(id);
            if state.done {
                return Err(nfsstat3::NFS3ERR_STALE);
            }
        }
        let begin = Instant::now();
        if state.missing.has(id, begin) {
            return Err(nfsstat3::NFS3ERR_STALE);
        }
        if state.rest_until.is_some_and(|rest| begin < rest) {
            return Err(nfsstat3::NFS3ERR_JUKEBOX);
        }
        self.walk(&mut state);
        state.done = true;
        state.rest_until = Some(Instant::now() + begin.elapsed());
        if self.located(&self.read_table(), id).is_ok() {
            return Ok(());
        }
        state.missing.add(id, Some(Instant::now() + BELIEVED));
        Err(nfsstat3::NFS3ERR_STALE)
    }

    /// In path mode a file that was replaced or removed behind the table's back is gone for good.
    fn forget_if_gone(&self, id: FileId) {
        let mut table = self.write_table();
        if table.entry(id).is_some() && matches!(self.located(&table, id), Err(Fault::Lost(_))) {
            table.forget(id.key);
        }
    }

    fn walk(&self, state: &mut State) {
        let mut waiting = vec![self.root()];
        let mut seen = HashMap::new();
        while let Some(directory) = waiting.pop() {
            let modified = match self.visit(directory, state.listed.get(&directory.key), &mut waiting) {
                Ok(modified) => modified,
                Err(fault) => {
                    tracing::debug!(?directory, ?fault, "a directory could not be searched");
                    None
                }
            };
            if let Some(modified) = modified {
                seen.insert(directory.key, modified);
            }
        }
        state.listed = seen;
    }

    /// Makes all entries of a directory known, and puts its directories on the list of those to visit. Gives the
    /// modification time if the listing can be trusted until that changes.
    fn visit(
        &self,
        directory: FileId,
        listed: Option<&i128>,
        waiting: &mut Vec<FileId>,
    ) -> Result<Option<i128>, Fault> {
        let fd = self.open_verified(&self.read_table(), directory, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let modified = modified_ns(&stat_fd(&fd)?);
        if listed == Some(&modified) {
            waiting.extend(self.read_table().directories_in(directory.key));
            return Ok(Some(modified));
        }
        for entry in Dir::read_from(&fd)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            // One entry at a time under the lock: a large tree must not hold up the calls of others.
            let mut table = self.write_table();
            let Ok(stat) = stat_in(&fd, name) else { continue };
            let sighted = self.sight(&mut table, directory, name, &stat);
            if let (Ok(id), FileType::Directory) = (sighted, file_type(&stat)) {
                waiting.push(id);
            }
        }
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let age = i128::try_from(now.as_nanos()).unwrap_or(i128::MAX) - modified;
        let settled = i128::try_from(SETTLED.as_nanos()).is_ok_and(|settled| age > settled);
        Ok(settled.then_some(modified))
    }
}

fn modified_ns(stat: &Statx) -> i128 {
    i128::from(stat.stx_mtime.tv_sec) * 1_000_000_000 + i128::from(stat.stx_mtime.tv_nsec)
}
