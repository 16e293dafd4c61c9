//! The table of an export: which file id stands where in the tree.
//!
//! Each entry knows its parent and its name, not its path, so that the rename of a directory moves everything
//! below it at once. No I/O here: the [namespace](super::namespace) asks the file system and tells the table.

use std::collections::HashMap;
use std::sync::Arc;

use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128_with_seed};

use super::handle::FileId;

/// What the file system itself says a file is: device, inode number, birth and kind. Equal means the same file.
///
/// Where a file system keeps no birth time it is 0, and an inode number that is used again looks like the file
/// that had it before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) device: u64,
    pub(super) inode: u64,
    /// Birth, in nanoseconds since 1970.
    pub(super) born_ns: i128,
    pub(super) directory: bool,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) parent: u64,
    pub(super) name: Arc<[u8]>,
    pub(super) check: u32,
    pub(super) identity: Identity,
    /// Hash of the path under which the id was given out (0 in inode mode).
    sighting: u64,
    /// How many files had been given an id under that path before.
    round: u32,
}

/// The table has as many files as its limit allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TableFull;

#[derive(Debug)]
pub(super) struct Table {
    root: FileId,
    entries: HashMap<u64, Entry>,
    children: HashMap<u64, HashMap<Arc<[u8]>, u64>>,
    /// Path hash -> the first round that was never used, for paths whose file is gone.
    rounds: HashMap<u64, u32>,
    files_max: usize,
    /// Set when `rounds` was full: from then on new ids come from here, unique but no longer the same every run.
    serial: Option<u32>,
}

impl Table {
    pub(super) fn new(root: FileId, identity: Identity, files_max: usize) -> Self {
        let entry = Entry {
            parent: root.key,
            name: Arc::from(&b""[..]),
            check: root.check,
            identity,
            sighting: 0,
            round: 0,
        };
        Self {
            root,
            entries: HashMap::from([(root.key, entry)]),
            children: HashMap::new(),
            rounds: HashMap::new(),
            files_max,
            serial: None,
        }
    }

    /// The id that the path has for the `round`-th file seen under it.
    pub(super) fn path_id(seed: u64, path: &[u8], round: u32) -> FileId {
        let mut bytes = Vec::with_capacity(path.len() + 5);
        bytes.extend_from_slice(path);
        // No name holds a NUL, so no path with a round is another path without.
        bytes.push(0);
        bytes.extend_from_slice(&round.to_le_bytes());
        let hash = xxh3_128_with_seed(&bytes, seed).to_le_bytes();
        let (mut key, mut check) = ([0; 8], [0; 4]);
        key.copy_from_slice(&hash[..8]);
        check.copy_from_slice(&hash[8..12]);
        // 0 is reserved as a file id by `nfs3_server`.
        FileId { key: u64::from_le_bytes(key).max(1), check: u32::from_le_bytes(check) }
    }

    pub(super) fn root(&self) -> FileId {
        self.root
    }

    pub(super) fn files(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn entry(&self, id: FileId) -> Option<&Entry> {
        self.entries.get(&id.key).filter(|entry| entry.check == id.check)
    }

    pub(super) fn child(&self, directory: u64, name: &[u8]) -> Option<(FileId, &Entry)> {
        let key = *self.children.get(&directory)?.get(name)?;
        let entry = self.entries.get(&key)?;
        Some((FileId { key, check: entry.check }, entry))
    }

    /// The entry of the parent; the root is its own.
    pub(super) fn parent(&self, id: FileId) -> Option<FileId> {
        let key = self.entry(id)?.parent;
        Some(FileId { key, check: self.entries.get(&key)?.check })
    }

    /// The directories that are known in a directory.
    pub(super) fn directories_in(&self, directory: u64) -> Vec<FileId> {
        let keys = self.children.get(&directory).into_iter().flat_map(HashMap::values);
        keys.filter_map(|key| {
            let entry = self.entries.get(key).filter(|entry| entry.identity.directory)?;
            Some(FileId { key: *key, check: entry.check })
        })
        .collect()
    }

    /// The path from the root, without a leading slash; the root's is empty.
    pub(super) fn path(&self, id: FileId) -> Option<Vec<u8>> {
        let mut names = Vec::new();
        let mut entry = self.entry(id)?;
        let mut key = id.key;
        while key != self.root.key {
            names.push(&*entry.name);
            key = entry.parent;
            entry = self.entries.get(&key)?;
            if names.len() > self.entries.len() {
                return None;
            }
        }
        names.reverse();
        Some(names.join(&b'/'))
    }

    /// Whether `inner` is `outer` or lies below it.
    pub(super) fn is_below(&self, inner: u64, outer: u64) -> bool {
        let mut key = inner;
        for _ in 0..=self.entries.len() {
            if key == outer {
                return true;
            }
            match self.entries.get(&key) {
                Some(entry) if key != self.root.key => key = entry.parent,
                _ => return false,
            }
        }
        false
    }

    /// Gives the file an id by its path, and puts it in its place. What stood there before is forgotten.
    pub(super) fn sight_path(
        &mut self,
        seed: u64,
        directory: FileId,
        name: &[u8],
        identity: Identity,
    ) -> Result<FileId, TableFull> {
        self.forget_child(directory.key, name);
        if self.entries.len() >= self.files_max {
            return Err(TableFull);
        }
        let mut path = self.path(directory).unwrap_or_default();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        let sighting = xxh3_64_with_seed(&path, seed);
        let mut round = self.rounds.get(&sighting).copied().unwrap_or(0);
        if let Some(serial) = &mut self.serial {
            *serial = serial.wrapping_add(1);
            round = round.max(*serial);
        }
        let id = loop {
            let id = Self::path_id(seed, &path, round);
            if !self.entries.contains_key(&id.key) {
                break id;
            }
            round = round.wrapping_add(1);
        };
        let name = Arc::from(name);
        self.place(id, Entry { parent: directory.key, name, check: id.check, identity, sighting, round });
        Ok(id)
    }

    /// Puts a file that has its id from the file system in its place, or moves it there.
    pub(super) fn sight_inode(
        &mut self,
        id: FileId,
        directory: FileId,
        name: &[u8],
        identity: Identity,
    ) -> Result<FileId, TableFull> {
        match self.entries.get(&id.key) {
            Some(entry) if entry.check == id.check => {
                self.move_to(id.key, directory.key, name);
                return Ok(id);
            }
            // A file with the root's inode number that is not the root cannot be told from it.
            Some(_) if id.key == self.root.key => return Err(TableFull),
            Some(_) => self.forget(id.key),
            None => {}
        }
        self.forget_child(directory.key, name);
        if self.entries.len() >= self.files_max {
            return Err(TableFull);
        }
        let name = Arc::from(name);
        self.place(
            id,
            Entry { parent: directory.key, name, check: id.check, identity, sighting: 0, round: 0 },
        );
        Ok(id)
    }

    fn place(&mut self, id: FileId, entry: Entry) {
        self.children.entry(entry.parent).or_default().insert(Arc::clone(&entry.name), id.key);
        self.entries.insert(id.key, entry);
    }

    /// Moves an entry, with all below it. What stood at the new place is forgotten.
    pub(super) fn move_to(&mut self, key: u64, directory: u64, name: &[u8]) {
        if key == self.root.key || self.is_below(directory, key) {
            return;
        }
        match self.entries.get(&key) {
            Some(entry) if entry.parent == directory && &*entry.name == name => return,
            None => return,
            Some(_) => {}
        }
        self.forget_child(directory, name);
        self.unlink(key);
        let name: Arc<[u8]> = Arc::from(name);
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.parent = directory;
            entry.name = Arc::clone(&name);
        }
        self.children.entry(directory).or_default().insert(name, key);
    }

    fn unlink(&mut self, key: u64) {
        let Some(entry) = self.entries.get(&key) else { return };
        let parent = entry.parent;
        if let Some(siblings) = self.children.get_mut(&parent) {
            siblings.remove(&entry.name);
            if siblings.is_empty() {
                self.children.remove(&parent);
            }
        }
    }

    pub(super) fn forget_child(&mut self, directory: u64, name: &[u8]) {
        if let Some(key) = self.children.get(&directory).and_then(|names| names.get(name)).copied() {
            self.forget(key);
        }
    }

    /// Forgets a file and all below it: their handles are stale from now on.
    pub(super) fn forget(&mut self, key: u64) {
        if key == self.root.key {
            return;
        }
        self.unlink(key);
        let mut doomed = vec![key];
        while let Some(key) = doomed.pop() {
            if let Some(names) = self.children.remove(&key) {
                doomed.extend(names.into_values());
            }
            if let Some(entry) = self.entries.remove(&key) {
                self.use_up(&entry);
            }
        }
    }

    /// Remembers that the entry's id must never be given to a later file of the same path.
    fn use_up(&mut self, entry: &Entry) {
        if entry.sighting == 0 {
            return;
        }
        let next = entry.round.wrapping_add(1);
        if let Some(round) = self.rounds.get_mut(&entry.sighting) {
            *round = (*round).max(next);
        } else if self.rounds.len() < self.files_max {
            self.rounds.insert(entry.sighting, next);
        } else if self.serial.is_none() {
            self.serial = Some(1 << 31);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: u64 = 7;

    fn identity(inode: u64) -> Identity {
        Identity { device: 1, inode, born_ns: 5, directory: false }
    }

    fn table(files_max: usize) -> Table {
        Table::new(Table::path_id(SEED, b"", 0), identity(2), files_max)
    }

    #[test]
    fn a_directory_takes_its_children_along() {
        let mut table = table(100);
        let root = table.root();
        let a = table.sight_path(SEED, root, b"a", identity(3)).unwrap();
        let file = table.sight_path(SEED, a, b"f", identity(4)).unwrap();
        let b = table.sight_path(SEED, root, b"b", identity(5)).unwrap();
        table.move_to(a.key, b.key, b"c");
        assert_eq!(table.path(file).unwrap(), b"b/c/f");
        assert!(table.is_below(file.key, b.key));
        table.forget(b.key);
        assert_eq!(table.path(file), None);
        assert_eq!(table.files(), 1, "the root alone is left");
    }

    #[test]
    fn a_path_has_the_same_id_in_every_run_and_another_seed_another() {
        let (mut one, mut two) = (table(100), table(100));
        let root = one.root();
        let first = one.sight_path(SEED, root, b"a", identity(3)).unwrap();
        two.sight_path(SEED, root, b"z", identity(9)).unwrap();
        assert_eq!(two.sight_path(SEED, root, b"a", identity(33)).unwrap(), first);
        assert_ne!(Table::path_id(SEED + 1, b"a", 0), first);
    }

    #[test]
    fn a_recreated_path_never_gets_an_id_back() {
        let mut table = table(100);
        let root = table.root();
        let mut seen = Vec::new();
        for inode in 0..20 {
            let id = table.sight_path(SEED, root, b"a", identity(inode)).unwrap();
            assert!(!seen.contains(&id));
            seen.push(id);
            if inode % 2 == 0 {
                table.forget(id.key);
            } else {
                table.move_to(id.key, root.key, b"elsewhere");
            }
        }
    }

    #[test]
    fn the_limit_refuses_and_used_up_paths_fall_back_to_a_serial() {
        let mut table = table(4);
        let root = table.root();
        for name in [b"a", b"b", b"c"] {
            table.sight_path(SEED, root, name, identity(3)).unwrap();
        }
        assert_eq!(table.sight_path(SEED, root, b"d", identity(4)), Err(TableFull));
        let mut seen = std::collections::HashSet::new();
        for turn in 0..200u32 {
            table.forget_child(root.key, b"a");
            let name = format!("n{}", turn % 7);
            table.forget_child(root.key, format!("n{}", (turn + 6) % 7).as_bytes());
            let id = table.sight_path(SEED, root, name.as_bytes(), identity(u64::from(turn))).unwrap();
            assert!(seen.insert(id), "turn {turn}: an id came back");
        }
    }

    #[test]
    fn a_directory_cannot_be_moved_below_itself() {
        let mut table = table(100);
        let root = table.root();
        let a = table.sight_path(SEED, root, b"a", identity(3)).unwrap();
        let b = table.sight_path(SEED, a, b"b", identity(4)).unwrap();
        table.move_to(a.key, b.key, b"loop");
        assert_eq!(table.path(b).unwrap(), b"a/b");
    }
}
