//! Files as the controller knows them: dense numbers for handles.
//!
//! An imported past knows files by their paths, under [stand-ins](Handle::stand_in). When a handle shows up under the path of
//! one that waits, it takes over its number, and with it its past; where the handle has a recorded past of its own, the two
//! are to be [joined](Files::take_joins). A past goes to one handle only, the first, and a handle takes one past only: a
//! rename later changes nothing, and a new file under an old path begins with nothing.

use crate::heat::Handle;
use clockwork_forecaster::controller::FileId;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// Part of the files that stand-ins may be, so that an imported past with very many files leaves room for those in use.
const STAND_INS_PART: usize = 2;

/// Handles by number and numbers by handle. A number stays with its file as long as the process runs: after a start they are
/// given out anew, from the history.
#[derive(Debug, Default)]
pub(crate) struct Files {
    numbers: HashMap<Handle, FileId>,
    handles: Vec<Handle>,
    files_max: usize,
    /// Files below this number may have counts recorded.
    recorded: usize,
    /// Imported files whose handle is not known yet, by path.
    waiting: HashMap<Arc<str>, FileId>,
    /// Handles that took an imported past, by the hash of the stand-in.
    taken: BTreeMap<u128, Handle>,
    /// The same before the last start, as far as the stand-in has not been met again.
    taken_before: HashMap<u128, Handle>,
    /// The handles in `taken` and `taken_before`.
    takers: HashSet<Handle>,
    /// Pasts to be joined: which, and to which.
    joins: Vec<(FileId, FileId)>,
}

impl Files {
    /// No files yet, and room for so many; further ones have no number. `taken`: handles that took an imported past
    /// before, by the hash of the stand-in.
    pub(crate) fn new(files_max: usize, taken: impl IntoIterator<Item = (u128, Handle)>) -> Self {
        let taken_before: HashMap<u128, Handle> = taken.into_iter().collect();
        let takers = taken_before.values().copied().collect();
        Self { files_max, taken_before, takers, ..Self::default() }
    }

    /// The number of a file, a new one if it has none; `None` if there are too many.
    pub(crate) fn number(&mut self, handle: &Handle) -> Option<FileId> {
        if let Some(number) = self.numbers.get(handle) {
            return Some(*number);
        }
        if self.handles.len() >= self.files_max {
            return None;
        }
        let number = FileId(u32::try_from(self.handles.len()).ok()?);
        self.handles.push(*handle);
        self.numbers.insert(*handle, number);
        Some(number)
    }

    /// The same for a file of a closed period, whose path may be known. `is_open` tells numbers that the period has counts of
    /// already.
    pub(crate) fn number_at(
        &mut self,
        handle: &Handle,
        path: Option<&Arc<str>>,
        is_open: impl Fn(FileId) -> bool,
    ) -> Option<FileId> {
        if let Some(hash) = handle.stand_in_hash() {
            return self.number_of_stand_in(handle, hash, path);
        }
        match path.and_then(|path| self.waiting.get(path)) {
            Some(past) if !self.takers.contains(handle) => {
                let past = *past;
                if let Some(path) = path {
                    self.waiting.remove(path);
                }
                self.take_past(past, handle, is_open)
            }
            _ => self.number(handle),
        }
    }

    fn number_of_stand_in(
        &mut self,
        stand_in: &Handle,
        hash: u128,
        path: Option<&Arc<str>>,
    ) -> Option<FileId> {
        if let Some(handle) = self.taken.get(&hash).copied() {
            return self.number(&handle);
        }
        if let Some(handle) = self.taken_before.remove(&hash) {
            self.taken.insert(hash, handle);
            return self.number(&handle);
        }
        if let Some(number) = self.numbers.get(stand_in) {
            return Some(*number);
        }
        if self.waiting.len() >= self.files_max / STAND_INS_PART {
            return None;
        }
        let number = self.number(stand_in)?;
        if let Some(path) = path {
            self.waiting.insert(Arc::clone(path), number);
        }
        Some(number)
    }

    fn take_past(
        &mut self,
        past: FileId,
        handle: &Handle,
        is_open: impl Fn(FileId) -> bool,
    ) -> Option<FileId> {
        let place = self.handles.get_mut(past.index())?;
        let stand_in = *place;
        self.taken.insert(stand_in.stand_in_hash()?, *handle);
        self.takers.insert(*handle);
        let own = self.numbers.get(handle).copied();
        if let Some(own) = own.filter(|own| own.index() < self.recorded || is_open(*own)) {
            // The stand-in keeps a number that nothing is counted under any more.
            self.joins.push((past, own));
            return Some(own);
        }
        *place = *handle;
        self.numbers.remove(&stand_in);
        self.numbers.insert(*handle, past);
        Some(past)
    }

    /// Takes note that counts of files below this number may be recorded by now.
    pub(crate) fn recorded(&mut self, files: usize) {
        self.recorded = files;
    }

    /// Forgets what was taken from stand-ins that the history does not have any more.
    pub(crate) fn loaded(&mut self) {
        for handle in self.taken_before.drain().map(|(_, handle)| handle) {
            self.takers.remove(&handle);
        }
    }

    /// Pasts to be joined since the last time: which, and to which.
    pub(crate) fn take_joins(&mut self) -> Vec<(FileId, FileId)> {
        std::mem::take(&mut self.joins)
    }

    /// Handles that took an imported past, by the hash of the stand-in.
    pub(crate) fn taken(&self) -> &BTreeMap<u128, Handle> {
        &self.taken
    }

    /// How many imported files wait for a handle.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The number of a file, if it has one.
    pub(crate) fn known(&self, handle: &Handle) -> Option<FileId> {
        self.numbers.get(handle).copied()
    }

    /// The handle of a number.
    pub(crate) fn handle(&self, file: FileId) -> Option<&Handle> {
        self.handles.get(file.index())
    }

    /// All handles, by number.
    pub(crate) fn handles(&self) -> &[Handle] {
        &self.handles
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(byte: u8) -> Handle {
        Handle::new(&[byte]).unwrap()
    }

    fn at(files: &mut Files, handle: &Handle, path: &str) -> Option<FileId> {
        files.number_at(handle, Some(&Arc::from(path)), |_| false)
    }

    #[test]
    fn numbers_are_dense_stay_and_have_a_limit() {
        let mut files = Files::new(2, []);
        assert_eq!(files.number(&handle(7)), Some(FileId(0)));
        assert_eq!(files.number(&handle(9)), Some(FileId(1)));
        assert_eq!(files.number(&handle(7)), Some(FileId(0)));
        assert_eq!((files.number(&handle(1)), files.known(&handle(1))), (None, None));
        assert_eq!(files.handle(FileId(1)), Some(&handle(9)));
        assert_eq!(files.handle(FileId(2)), None);
    }

    #[test]
    fn the_first_handle_under_a_path_takes_its_past_and_a_handle_takes_one_only() {
        let mut files = Files::new(10, []);
        let (a, b) = (Handle::stand_in("/e/a"), Handle::stand_in("/e/b"));
        assert_eq!(
            (at(&mut files, &a, "/e/a"), at(&mut files, &b, "/e/b")),
            (Some(FileId(0)), Some(FileId(1)))
        );
        assert_eq!(at(&mut files, &handle(1), "/e/a"), Some(FileId(0)));
        assert_eq!((files.handle(FileId(0)), files.known(&a), files.waiting()), (Some(&handle(1)), None, 1));
        assert_eq!(at(&mut files, &handle(1), "/e/b"), Some(FileId(0)), "renamed: it has a past already");
        assert_eq!(
            at(&mut files, &handle(2), "/e/a"),
            Some(FileId(2)),
            "made anew under a path that is taken"
        );
        assert_eq!(
            at(&mut files, &handle(2), "/e/b"),
            Some(FileId(1)),
            "a number without counts is given up"
        );
        assert_eq!((files.take_joins(), files.waiting()), (vec![], 0));
    }

    #[test]
    fn a_handle_with_counts_of_its_own_keeps_its_number() {
        let mut files = Files::new(10, []);
        let a = Handle::stand_in("/e/a");
        at(&mut files, &a, "/e/a");
        files.number(&handle(1));
        files.recorded(2);
        assert_eq!(at(&mut files, &handle(1), "/e/a"), Some(FileId(1)));
        assert_eq!(files.take_joins(), [(FileId(0), FileId(1))]);
        assert_eq!(at(&mut files, &a, "/e/a"), Some(FileId(1)), "the rest of the past");
        assert_eq!((files.take_joins(), files.waiting()), (vec![], 0));
    }

    #[test]
    fn what_was_taken_before_a_start_is_taken_again_whatever_the_paths_are_now() {
        let a = Handle::stand_in("/e/a");
        let before = (a.stand_in_hash().unwrap(), handle(1));
        let gone = (Handle::stand_in("/e/gone").stand_in_hash().unwrap(), handle(3));
        let mut files = Files::new(10, [before, gone]);
        assert_eq!(at(&mut files, &a, "/e/a"), Some(FileId(0)));
        assert_eq!(files.handle(FileId(0)), Some(&handle(1)));
        assert_eq!(at(&mut files, &handle(1), "/e/renamed"), Some(FileId(0)));
        assert_eq!(at(&mut files, &handle(2), "/e/a"), Some(FileId(1)));
        files.loaded();
        assert_eq!(files.taken().iter().map(|(hash, handle)| (*hash, *handle)).collect::<Vec<_>>(), [before]);
    }

    #[test]
    fn stand_ins_leave_room_for_files_in_use() {
        let mut files = Files::new(4, []);
        let numbers: Vec<_> =
            ["a", "b", "c"].iter().map(|path| at(&mut files, &Handle::stand_in(path), path)).collect();
        assert_eq!(numbers, [Some(FileId(0)), Some(FileId(1)), None]);
        assert_eq!(files.number(&handle(1)), Some(FileId(2)));
    }
}
