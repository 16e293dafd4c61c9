//! Paths of file handles, as far as the traffic has shown them.
//!
//! A shard writes what it learns into a [`Learnt`] buffer (packed bytes, no allocation a name); at the end of a
//! period the buffers are read into the one table, [`Names`]. A file renamed is learnt again when the client
//! looks it up under its new name; a removed file keeps its last path, because history still shows it.

use std::collections::HashMap;
use std::fmt::Write as _;

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::handle::Handle;

/// Most directories that a path is followed upwards, so that a loop in what was learnt cannot hang anybody.
pub const PATH_DEPTH_MAX: usize = 128;

/// Longest name that is kept, bytes. No file system that is exported in practice has longer ones.
const NAME_BYTES_MAX: usize = 255;

/// Most fingerprints of names already learnt that a shard keeps (8 bytes each).
const SEEN_MAX: usize = 1 << 18;

/// Bytes of learnt names that a shard buffers, for each name that it may buffer.
const LEARNT_BYTES_PER_NAME: usize = 160;

/// Names learnt by one shard in one period: records of directory, handle and name, packed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Learnt {
    bytes: Vec<u8>,
    names: usize,
    /// Names that did not fit into the limits of the period.
    pub dropped: u64,
}

impl Learnt {
    /// How many names were learnt.
    pub fn len(&self) -> usize {
        self.names
    }

    /// Whether none was learnt.
    pub fn is_empty(&self) -> bool {
        self.names == 0
    }

    /// The names in the order in which they were learnt: directory, name, handle.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8], &[u8])> {
        let mut rest = self.bytes.as_slice();
        std::iter::from_fn(move || {
            let (lengths, tail) = rest.split_first_chunk::<3>()?;
            let (directory, tail) = tail.split_at_checked(usize::from(lengths[0]))?;
            let (handle, tail) = tail.split_at_checked(usize::from(lengths[1]))?;
            let (name, tail) = tail.split_at_checked(usize::from(lengths[2]))?;
            rest = tail;
            Some((directory, name, handle))
        })
    }

    fn push(&mut self, directory: &[u8], name: &[u8], handle: &[u8]) {
        let lengths = [directory.len(), handle.len(), name.len()].map(|len| u8::try_from(len).unwrap_or(0));
        self.bytes.extend_from_slice(&lengths);
        self.bytes.extend_from_slice(directory);
        self.bytes.extend_from_slice(handle);
        self.bytes.extend_from_slice(name);
        self.names += 1;
    }
}

/// The shard's side: buffers names, and forgets those that it saw already in this period.
pub(super) struct Learner {
    learnt: Learnt,
    /// One fingerprint of the last (directory, name) per handle, direct mapped; 0 is none.
    seen: Box<[u64]>,
    names_max: usize,
}

impl Learner {
    pub(super) fn new(names_max: usize) -> Self {
        let seen = names_max.clamp(1, SEEN_MAX).next_power_of_two();
        Self { learnt: Learnt::default(), seen: vec![0; seen].into_boxed_slice(), names_max }
    }

    pub(super) fn learn(&mut self, directory: &[u8], name: &[u8], handle: &[u8]) {
        if !is_a_name(name) || directory == handle || !is_a_handle(directory) || !is_a_handle(handle) {
            return;
        }
        let at = xxh3_64(handle);
        let mut whole = Xxh3::with_seed(at);
        whole.update(name);
        whole.update(&[0]); // No name holds a zero byte, so the parts cannot be confused.
        whole.update(directory);
        let fingerprint = whole.digest() | 1;
        let mask = self.seen.len() - 1;
        let Some(seen) = self.seen.get_mut(at as usize & mask) else { return };
        if *seen == fingerprint {
            return;
        }
        let bytes = 3 + directory.len() + handle.len() + name.len();
        let bytes_max = self.names_max.saturating_mul(LEARNT_BYTES_PER_NAME);
        if self.learnt.names >= self.names_max || self.learnt.bytes.len() + bytes > bytes_max {
            self.learnt.dropped += 1;
            return;
        }
        *seen = fingerprint;
        self.learnt.push(directory, name, handle);
    }

    pub(super) fn close(&mut self) -> Learnt {
        // Names in use are learnt again in the next period: that is how the table knows them to be in use.
        self.seen.fill(0);
        std::mem::take(&mut self.learnt)
    }
}

fn is_a_handle(bytes: &[u8]) -> bool {
    (1..=super::handle::HANDLE_BYTES_MAX).contains(&bytes.len())
}

fn is_a_name(name: &[u8]) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name != b"."
        && name != b".."
        && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

struct Entry {
    parent: Handle,
    name: Box<[u8]>,
    /// When it was last learnt or found to be a directory of something learnt; the least go first.
    stamp: u64,
}

/// The table of names of the plex: for a handle its directory and its name there.
///
/// Bounded by `names_max`; when it is full the eighth that was learnt longest ago goes, and
/// [`evicted`](Names::evicted) counts it.
pub struct Names {
    entries: HashMap<Handle, Entry>,
    roots: HashMap<Handle, String>,
    names_max: usize,
    stamp: u64,
    evicted: u64,
}

impl Names {
    /// An empty table for at most `names_max` names (at least 8).
    pub fn new(names_max: usize) -> Self {
        Self {
            entries: HashMap::new(),
            roots: HashMap::new(),
            names_max: names_max.max(8),
            stamp: 0,
            evicted: 0,
        }
    }

    /// States that `handle` is the root of an export with this path (as in `/home`). Paths end there. A handle
    /// that is none is ignored.
    pub fn root(&mut self, handle: &[u8], path: &str) {
        if let Some(handle) = Handle::new(handle) {
            self.roots.insert(handle, path.trim_end_matches('/').to_owned());
        }
    }

    /// Takes one name. The last one learnt for a handle stands.
    pub fn learn(&mut self, directory: &[u8], name: &[u8], handle: &[u8]) {
        let (Some(parent), Some(handle)) = (Handle::new(directory), Handle::new(handle)) else { return };
        if !is_a_name(name) || parent == handle || self.roots.contains_key(&handle) {
            return;
        }
        self.stamp += 1;
        let stamp = self.stamp;
        if let Some(directory) = self.entries.get_mut(&parent) {
            directory.stamp = stamp;
        }
        if let Some(entry) = self.entries.get_mut(&handle) {
            entry.stamp = stamp;
            entry.parent = parent;
            if *entry.name != *name {
                entry.name = name.into();
            }
            return;
        }
        if self.entries.len() >= self.names_max {
            self.evict();
        }
        self.entries.insert(handle, Entry { parent, name: name.into(), stamp });
    }

    /// Takes all that a shard has learnt.
    pub fn learn_all(&mut self, learnt: &Learnt) {
        for (directory, name, handle) in learnt.iter() {
            self.learn(directory, name, handle);
        }
    }

    /// How many names are known.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no name is known.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many names went because the table was full.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// The path of a handle: from the export's path if the way up to a root is known, else beginning with `…`
    /// where knowledge ends. `None` if nothing is known. Bytes that are not UTF-8, control characters and
    /// backslashes are shown escaped (`\xff`), so that a path is one line of text.
    pub fn path(&self, handle: &[u8]) -> Option<String> {
        let mut at = Handle::new(handle)?;
        let mut parts: Vec<&[u8]> = Vec::new();
        let top = loop {
            if let Some(root) = self.roots.get(&at) {
                break root.as_str();
            }
            match self.entries.get(&at) {
                Some(entry) if parts.len() < PATH_DEPTH_MAX => {
                    parts.push(&entry.name);
                    at = entry.parent;
                }
                _ if parts.is_empty() => return None,
                _ => break "…",
            }
        };
        if parts.is_empty() {
            return Some(if top.is_empty() { "/".to_owned() } else { top.to_owned() });
        }
        let mut path = top.to_owned();
        for part in parts.iter().rev() {
            path.push('/');
            show(part, &mut path);
        }
        Some(path)
    }

    fn evict(&mut self) {
        let mut stamps: Vec<u64> = self.entries.values().map(|entry| entry.stamp).collect();
        let eighth = (stamps.len() / 8).min(stamps.len().saturating_sub(1));
        let (_, &mut limit, _) = stamps.select_nth_unstable(eighth);
        let before = self.entries.len();
        self.entries.retain(|_, entry| entry.stamp > limit);
        self.evicted += (before - self.entries.len()) as u64;
    }
}

/// Appends a name or path as it is shown: bytes that are not UTF-8, control characters and backslashes escaped.
pub(crate) fn show(name: &[u8], shown: &mut String) {
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character == '\\' || character.is_control() {
                shown.extend(character.escape_default());
            } else {
                shown.push(character);
            }
        }
        for byte in chunk.invalid() {
            // Writing to a string cannot fail.
            let _ = write!(shown, "\\x{byte:02x}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names() -> Names {
        let mut names = Names::new(100);
        names.root(b"R", "/export/");
        names.learn(b"R", b"a", b"1");
        names.learn(b"1", b"b", b"2");
        names
    }

    #[test]
    fn paths_lead_to_the_root_or_say_where_knowledge_ends() {
        let mut names = names();
        assert_eq!(names.path(b"2").as_deref(), Some("/export/a/b"));
        assert_eq!(names.path(b"R").as_deref(), Some("/export"));
        assert_eq!(names.path(b"9"), None);
        names.learn(b"unknown", b"x", b"3");
        assert_eq!(names.path(b"3").as_deref(), Some("…/x"));
        names.root(b"whole", "/");
        names.learn(b"whole", b"x", b"4");
        assert_eq!(names.path(b"4").as_deref(), Some("/x"));
        assert_eq!(names.path(b"whole").as_deref(), Some("/"));
    }

    #[test]
    fn a_rename_is_learnt_by_the_next_lookup_and_moves_the_tree_below() {
        let mut names = names();
        names.learn(b"R", b"z", b"1");
        assert_eq!(names.path(b"2").as_deref(), Some("/export/z/b"));
    }

    #[test]
    fn loops_end() {
        let mut names = names();
        names.learn(b"2", b"loop", b"1");
        assert!(names.path(b"1").is_some_and(|path| path.starts_with("…/")));
    }

    #[test]
    fn bytes_that_are_no_text_are_escaped() {
        let mut names = names();
        names.learn(b"R", b"caf\xc3\xa9 \xff\n\\", b"5");
        assert_eq!(names.path(b"5").as_deref(), Some("/export/café \\xff\\n\\\\"));
    }

    #[test]
    fn what_is_no_name_is_not_learnt() {
        let mut learner = Learner::new(10);
        for name in [&b"."[..], b"..", b"", b"a/b", b"a\0", &[b'n'; 256]] {
            learner.learn(b"R", name, b"1");
        }
        learner.learn(b"R", b"itself", b"R");
        learner.learn(&[1; 65], b"a", b"1");
        assert!(learner.close().is_empty());
    }

    #[test]
    fn a_name_is_buffered_once_a_period_until_it_changes() {
        let mut learner = Learner::new(10);
        for name in [b"a", b"a", b"b", b"a"] {
            learner.learn(b"R", name, b"1");
        }
        let learnt = learner.close();
        let got: Vec<_> = learnt.iter().map(|(_, name, _)| name.to_vec()).collect();
        assert_eq!(got, [b"a", b"b", b"a"]);
        learner.learn(b"R", b"a", b"1");
        assert_eq!(learner.close().len(), 1, "and again in the next period");
    }

    #[test]
    fn a_full_buffer_drops_and_counts() {
        let mut learner = Learner::new(4);
        for handle in 0..10u8 {
            learner.learn(b"R", &[b'a' + handle], &[handle, 1]);
        }
        let learnt = learner.close();
        assert_eq!((learnt.len(), learnt.dropped), (4, 6));
    }

    #[test]
    fn a_full_table_lets_the_oldest_go_and_keeps_directories_in_use() {
        let mut names = Names::new(64);
        names.root(b"R", "/e");
        names.learn(b"R", b"dir", b"D");
        for n in 0..10_000u32 {
            names.learn(b"D", format!("f{n}").as_bytes(), &n.to_be_bytes());
        }
        assert!(names.len() <= 64);
        assert!(names.evicted() >= 9_900);
        assert_eq!(names.path(&9_999u32.to_be_bytes()).as_deref(), Some("/e/dir/f9999"));
        assert_eq!(names.path(&0u32.to_be_bytes()), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_learnt_within_limits_and_shown_as_one_line(
            known in prop::collection::vec(
                (prop::collection::vec(0u8..4, 0..3), prop::collection::vec(any::<u8>(), 0..6), prop::collection::vec(0u8..4, 0..3)),
                0..60,
            ),
        ) {
            let mut learner = Learner::new(40);
            for (directory, name, handle) in &known {
                learner.learn(directory, name, handle);
            }
            let learnt = learner.close();
            prop_assert_eq!(learnt.iter().count(), learnt.len());
            let mut names = Names::new(16);
            names.learn_all(&learnt);
            prop_assert!(names.len() <= 16);
            for (_, _, handle) in &known {
                if let Some(path) = names.path(handle) {
                    prop_assert!(!path.chars().any(char::is_control));
                }
            }
        }
    }
}
