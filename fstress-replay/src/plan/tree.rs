//! The directories of a workload's files.

use clockwork_traces::workload::WorkloadFile;
use std::collections::HashMap;

/// The directories of a file set by number; 0 is the root of the export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    directories: Vec<Directory>,
    /// For each file: its directory.
    of_files: Vec<u32>,
}

/// A directory of a file set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    /// Its path below the export; empty for the root.
    pub path: String,
    /// Its parent's number; the root is its own.
    pub parent: u32,
}

impl Tree {
    /// The root of the export.
    pub const ROOT: u32 = 0;

    /// The tree of files.
    #[must_use]
    pub fn of(files: &[WorkloadFile]) -> Self {
        let mut directories = vec![Directory { path: String::new(), parent: Self::ROOT }];
        let mut numbers = HashMap::from([("", Self::ROOT)]);
        let mut of_files = Vec::with_capacity(files.len());
        for file in files {
            let parent = file.path.rsplit_once('/').map_or("", |(parent, _)| parent);
            if !numbers.contains_key(parent) {
                let ends = parent.match_indices('/').map(|(at, _)| at).chain([parent.len()]);
                let mut above = Self::ROOT;
                for end in ends {
                    let path = &parent[..end];
                    above = *numbers.entry(path).or_insert_with(|| {
                        directories.push(Directory { path: path.into(), parent: above });
                        u32::try_from(directories.len() - 1).unwrap_or(u32::MAX)
                    });
                }
            }
            of_files.push(numbers.get(parent).copied().unwrap_or(Self::ROOT));
        }
        Self { directories, of_files }
    }

    /// All directories by number.
    #[must_use]
    pub fn directories(&self) -> &[Directory] {
        &self.directories
    }

    /// The directory of a file.
    #[must_use]
    pub fn of_file(&self, file: u32) -> u32 {
        self.of_files.get(file as usize).copied().unwrap_or(Self::ROOT)
    }

    /// The parent of a directory.
    #[must_use]
    pub fn parent(&self, directory: u32) -> u32 {
        self.directories.get(directory as usize).map_or(Self::ROOT, |directory| directory.parent)
    }

    /// The last part of a directory's path.
    #[must_use]
    pub fn name(&self, directory: u32) -> &str {
        let path = self.directories.get(directory as usize).map_or("", |directory| directory.path.as_str());
        path.rsplit('/').next().unwrap_or(path)
    }

    /// The directories from below the root down to that of a file.
    pub(super) fn walk(&self, file: u32, walk: &mut Vec<u32>) {
        walk.clear();
        let mut directory = self.of_file(file);
        while directory != Self::ROOT {
            walk.push(directory);
            directory = self.parent(directory);
        }
        walk.reverse();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_directory_is_there_once_below_its_parent() {
        let file = |path: &str| WorkloadFile { path: path.into(), bytes: 0, site: 0 };
        let tree = Tree::of(&[file("a/b/x"), file("a/b/y"), file("a/z"), file("c/b/x"), file("top")]);
        let paths: Vec<&str> = tree.directories().iter().map(|directory| directory.path.as_str()).collect();
        assert_eq!(paths, ["", "a", "a/b", "c", "c/b"]);
        assert_eq!([0, 1, 2, 3, 4].map(|file| tree.of_file(file)), [2, 2, 1, 4, 0]);
        let mut walk = vec![9];
        tree.walk(3, &mut walk);
        assert_eq!(walk, [3, 4]);
        assert_eq!((tree.name(4), tree.parent(4), tree.parent(0)), ("b", 3, 0));
        tree.walk(4, &mut walk);
        assert!(walk.is_empty());
    }
}
