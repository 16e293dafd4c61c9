//! Looking for a file whose handle is known and whose place is not: after a restart, or when another process has
//! made or moved it.
//!
//! First the directories that changed lately are looked into: where one process makes files and another is asked
//! for them, it is in these. Then the tree is walked from its root. A directory whose modification time has not
//! changed since it was listed is not listed again, so that a second walk costs one `statx` a directory; of one that
//! has changed only the entries that are new are asked for. In path mode nothing but the first walk can find
//! anything (later changes go through the table), so there is only one.
//!
//! Calls that look at the same time share a search: one that began after a call came answers it. A call waits for
//! its turn, since a client must not hear of a file that it has just made that it should ask later; only where the
//! tree is so large that the next walk is far off it does.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nfs3_types::nfs3::nfsstat3;
use rustix::fs::{Dir, DirEntry, FileType, OFlags, Statx};

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

/// Directories that changed lately and are looked into before the whole tree is, at the most; the one that changed
/// longest ago is left to the walk.
const RECENT_MAX: usize = 64;
/// Directories that one look into the recent ones visits at the most, those that it finds in them included.
const LOOK_DIRECTORIES_MAX: usize = 256;
/// Searches take half of one core at the most: each is followed by a rest as long as it took. So long a call waits
/// for the end of a rest; where more is left of it the call is answered NFS3ERR_JUKEBOX.
const WAIT_MAX: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct Scans {
    searches: Mutex<Searches>,
    missing: Mutex<Missing>,
}

#[derive(Debug, Default)]
struct Searches {
    /// Directory key -> its modification time when it was listed.
    listed: HashMap<u64, i128>,
    /// Directories that were found changed, the latest first.
    recent: VecDeque<FileId>,
    looks: Pace,
    walks: Pace,
}

impl Searches {
    fn note_change(&mut self, directory: FileId) {
        self.recent.retain(|known| *known != directory);
        self.recent.push_front(directory);
        self.recent.truncate(RECENT_MAX);
    }
}

/// When a kind of search was last begun, and when it may be next.
#[derive(Debug, Default)]
struct Pace {
    began: Option<Instant>,
    rest_until: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// The call is to search.
    Search,
    /// A search that began after the call came is over.
    Searched,
    /// The rest is too long to wait for its end.
    Later,
}

impl Pace {
    /// What a call that came at `asked` is to do; waits for the end of a rest.
    fn turn(&self, asked: Instant) -> Turn {
        if self.began.is_some_and(|began| asked <= began) {
            return Turn::Searched;
        }
        let rest =
            self.rest_until.map_or(Duration::ZERO, |end| end.saturating_duration_since(Instant::now()));
        if rest > WAIT_MAX {
            return Turn::Later;
        }
        std::thread::sleep(rest);
        Turn::Search
    }

    fn ended(&mut self, began: Instant) {
        self.began = Some(began);
        self.rest_until = Some(Instant::now() + began.elapsed());
    }
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
        self.missing().add(id, None);
    }

    fn missing(&self) -> MutexGuard<'_, Missing> {
        self.scans.missing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks for a file. `Ok` says only that looking again is worth while.
    pub(super) fn find(&self, id: FileId) -> Result<(), nfsstat3> {
        let asked = Instant::now();
        let mut searches = self.scans.searches.lock().unwrap_or_else(PoisonError::into_inner);
        // Another call may have found it while this one waited.
        match self.located(&self.read_table(), id) {
            Ok(_) => return Ok(()),
            Err(Fault::Status(status)) => return Err(status),
            Err(Fault::Lost(_)) => {}
        }
        let by_path = matches!(self.mode, HandleMode::Path { .. });
        if by_path {
            self.forget_if_gone(id);
            if searches.walks.began.is_some() {
                return Err(nfsstat3::NFS3ERR_STALE);
            }
        }
        if self.missing().has(id, asked) {
            return Err(nfsstat3::NFS3ERR_STALE);
        }
        if !by_path && searches.looks.turn(asked) == Turn::Search {
            let began = Instant::now();
            self.look_into_recent(&mut searches, id);
            searches.looks.ended(began);
            if self.located(&self.read_table(), id).is_ok() {
                return Ok(());
            }
        }
        match searches.walks.turn(asked) {
            Turn::Later => return Err(nfsstat3::NFS3ERR_JUKEBOX),
            Turn::Searched => {}
            Turn::Search => {
                let began = Instant::now();
                self.walk(&mut searches, id);
                searches.walks.ended(began);
                if self.located(&self.read_table(), id).is_ok() {
                    return Ok(());
                }
            }
        }
        self.missing().add(id, Some(Instant::now() + BELIEVED));
        Err(nfsstat3::NFS3ERR_STALE)
    }

    /// In path mode a file that was replaced or removed behind the table's back is gone for good.
    fn forget_if_gone(&self, id: FileId) {
        let mut table = self.write_table();
        if table.entry(id).is_some() && matches!(self.located(&table, id), Err(Fault::Lost(_))) {
            table.forget(id.key);
        }
    }

    /// Visits the directories that changed lately, and those that are new in them.
    fn look_into_recent(&self, searches: &mut Searches, wanted: FileId) {
        // From the end: the latest first.
        let mut waiting: Vec<FileId> = searches.recent.iter().rev().copied().collect();
        let mut found = Vec::new();
        for _ in 0..LOOK_DIRECTORIES_MAX {
            let Some(directory) = waiting.pop() else { return };
            let Some(visit) = self.visit_logged(directory, searches, wanted, &mut found) else {
                searches.listed.remove(&directory.key);
                searches.recent.retain(|known| *known != directory);
                continue;
            };
            visit.keep(directory, &mut searches.listed);
            if visit.changed {
                searches.note_change(directory);
            }
            waiting.extend(found.drain(..).filter(|new: &FileId| {
                !searches.listed.contains_key(&new.key) && !searches.recent.contains(new)
            }));
        }
    }

    fn walk(&self, searches: &mut Searches, wanted: FileId) {
        let first = searches.walks.began.is_none();
        let mut waiting = vec![self.root()];
        let mut seen = HashMap::new();
        while let Some(directory) = waiting.pop() {
            let Some(visit) = self.visit_logged(directory, searches, wanted, &mut waiting) else { continue };
            visit.keep(directory, &mut seen);
            // In the first walk all of them are new; those that it cannot trust have just been changed.
            if visit.changed && (!first || visit.trusted.is_none()) {
                searches.note_change(directory);
            }
        }
        searches.listed = seen;
    }

    fn visit_logged(
        &self,
        directory: FileId,
        searches: &Searches,
        wanted: FileId,
        waiting: &mut Vec<FileId>,
    ) -> Option<Visit> {
        self.visit(directory, searches.listed.get(&directory.key), wanted, waiting)
            .inspect_err(|fault| tracing::debug!(?directory, ?fault, "a directory could not be searched"))
            .ok()
    }

    /// Makes all entries of a directory known, and puts its directories on the list of those to visit.
    fn visit(
        &self,
        directory: FileId,
        listed: Option<&i128>,
        wanted: FileId,
        waiting: &mut Vec<FileId>,
    ) -> Result<Visit, Fault> {
        let fd = self.open_verified(&self.read_table(), directory, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let modified = modified_ns(&stat_fd(&fd)?);
        if listed == Some(&modified) {
            waiting.extend(self.read_table().directories_in(directory.key));
            return Ok(Visit { changed: false, trusted: Some(modified) });
        }
        for entry in Dir::read_from(&fd)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." || self.is_known_file(directory, &entry, wanted) {
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
        Ok(Visit { changed: true, trusted: settled.then_some(modified) })
    }

    /// Whether an entry is a file that the table has under this name, so that the file system need not be asked. Never
    /// what has the inode number of the wanted file, which may have been used again; nor a directory, which must be
    /// what its handle means before it is visited.
    fn is_known_file(&self, directory: FileId, entry: &DirEntry, wanted: FileId) -> bool {
        if self.mode != HandleMode::Inode
            || entry.ino() == wanted.key
            || matches!(entry.file_type(), FileType::Directory | FileType::Unknown)
        {
            return false;
        }
        let table = self.read_table();
        let known = table.child(directory.key, entry.file_name().to_bytes());
        known.is_some_and(|(_, known)| !known.identity.directory && known.identity.inode == entry.ino())
    }
}

/// What a visit to a directory found.
struct Visit {
    /// It was listed, since it may have changed.
    changed: bool,
    /// Its modification time, if the listing can be trusted until that changes.
    trusted: Option<i128>,
}

impl Visit {
    fn keep(&self, directory: FileId, listed: &mut HashMap<u64, i128>) {
        match self.trusted {
            Some(modified) => listed.insert(directory.key, modified),
            None => listed.remove(&directory.key),
        };
    }
}

fn modified_ns(stat: &Statx) -> i128 {
    i128::from(stat.stx_mtime.tv_sec) * 1_000_000_000 + i128::from(stat.stx_mtime.tv_nsec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Two processes over one directory, and a file that the first has made in `folder`.
    fn two(folder: &str) -> (tempfile::TempDir, std::sync::Arc<Namespace>, FileId) {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join(folder)).unwrap();
        fs::write(directory.path().join(folder).join("first"), b"").unwrap();
        let open = || Namespace::open(directory.path(), HandleMode::Inode).unwrap();
        let (one, two) = (open(), open());
        let mut at = one.root();
        for name in folder.split('/').chain(["first"]) {
            at = one.lookup(at, name.as_bytes()).unwrap();
        }
        (directory, two, at)
    }

    fn file_id(path: &std::path::Path) -> FileId {
        super::super::namespace::inode_id(
            &stat_in(rustix::fs::CWD, path.as_os_str().as_encoded_bytes()).unwrap(),
        )
    }

    /// As after a walk that took long.
    fn rest(namespace: &Namespace, searches: Duration) {
        let mut state = namespace.scans.searches.lock().unwrap();
        state.walks.rest_until = Some(Instant::now() + searches);
    }

    #[test]
    fn a_short_rest_is_waited_for_and_a_long_one_is_not() {
        let (directory, namespace, first) = two("a/b");
        // The walk can trust what it lists: no directory has changed lately.
        std::thread::sleep(SETTLED * 2);
        rest(&namespace, Duration::from_millis(30));
        let begin = Instant::now();
        assert_eq!(namespace.find(first), Ok(()));
        assert!(begin.elapsed() >= Duration::from_millis(30));
        // Where the directory is not among the recent ones, only a walk can find the new file.
        fs::create_dir(directory.path().join("a/c")).unwrap();
        fs::write(directory.path().join("a/c/second"), b"").unwrap();
        let second = file_id(&directory.path().join("a/c/second"));
        rest(&namespace, WAIT_MAX * 20);
        let begin = Instant::now();
        assert_eq!(namespace.find(second), Err(nfsstat3::NFS3ERR_JUKEBOX));
        assert!(begin.elapsed() < WAIT_MAX * 2, "a large tree holds up nobody for longer than its bound");
        rest(&namespace, Duration::ZERO);
        assert_eq!(namespace.find(second), Ok(()));
    }

    #[test]
    fn directories_that_changed_lately_are_looked_into_while_the_walk_rests() {
        let (directory, namespace, first) = two("a/b");
        namespace.find(first).unwrap();
        let path = |name: &str| directory.path().join("a/b").join(name);
        fs::write(path("second"), b"").unwrap();
        // This walk finds that `a/b` changes.
        namespace.find(file_id(&path("second"))).unwrap();
        rest(&namespace, WAIT_MAX * 20);
        fs::write(path("third"), b"").unwrap();
        assert_eq!(namespace.find(file_id(&path("third"))), Ok(()));
        // Also in a directory that is new in it.
        fs::create_dir_all(path("new/newer")).unwrap();
        fs::write(path("new/newer/fourth"), b"").unwrap();
        assert_eq!(namespace.find(file_id(&path("new/newer/fourth"))), Ok(()));
    }

    #[test]
    fn a_file_that_took_anothers_name_and_number_is_found() {
        let (directory, namespace, first) = two("a");
        namespace.find(first).unwrap();
        let path = directory.path().join("a/first");
        // File systems differ in how soon they use a number again; whether they do or not, the file must be found.
        for _ in 0..20 {
            fs::remove_file(&path).unwrap();
            fs::write(&path, b"").unwrap();
            let new = file_id(&path);
            assert_eq!(namespace.find(new), Ok(()));
            assert!(namespace.located(&namespace.read_table(), new).is_ok());
        }
        assert_eq!(namespace.find(first), Err(nfsstat3::NFS3ERR_STALE));
    }

    #[test]
    fn a_call_is_answered_by_a_search_that_began_after_it_came() {
        let asked = Instant::now();
        let mut pace = Pace::default();
        assert_eq!(pace.turn(asked), Turn::Search);
        pace.ended(Instant::now());
        assert_eq!(pace.turn(asked), Turn::Searched);
        assert_eq!(pace.turn(Instant::now()), Turn::Search);
    }

    #[test]
    fn recent_directories_are_so_many_at_the_most() {
        let mut searches = Searches::default();
        for key in 0..200 {
            searches.note_change(FileId { key: key % 100, check: 0 });
        }
        assert_eq!(searches.recent.len(), RECENT_MAX);
        assert_eq!(searches.recent.front(), Some(&FileId { key: 99, check: 0 }));
    }
}
