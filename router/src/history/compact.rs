//! Space: sled's log keeps what was overwritten for a while, so its files are watched and written anew.

use std::fs;
use std::path::{Path, PathBuf};

use super::database::{Fault, History, State, guarded};
use super::error::HistoryError;
use super::marker;
use super::open::{access, open_trees};

/// What the database's files may take beyond twice the live bytes before they are written anew.
pub const SLACK_BYTES: u64 = 32 << 20;

/// A sibling of the database's folder: `history` -> `history.<suffix>`.
pub(super) fn sibling(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(suffix);
    path.with_file_name(name)
}

const FRESH: &str = "compacting";
const REPLACED: &str = "replaced";

impl History {
    /// Writes the database anew if its files are too large; says whether it did.
    pub(super) fn compact_if_large(&self, state: &mut State) -> Result<bool, HistoryError> {
        if folder_bytes(&self.path) <= 2 * state.live_bytes + SLACK_BYTES {
            return Ok(false);
        }
        self.compact(state).map(|()| true)
    }

    pub(super) fn compact(&self, state: &mut State) -> Result<(), HistoryError> {
        let fresh = sibling(&self.path, FRESH);
        remove(&fresh)?;
        let copy = open_trees(&fresh)?;
        guarded(&self.path, || {
            let pairs = [
                (&state.trees.meta, &copy.meta),
                (&state.trees.periods, &copy.periods),
                (&state.trees.handles, &copy.handles),
                (&state.trees.blobs, &copy.blobs),
            ];
            for (from, to) in pairs {
                for entry in from.iter() {
                    let (key, value) = entry?;
                    to.insert(key, value)?;
                }
            }
            copy.db.flush()?;
            Ok::<_, Fault>(())
        })?;
        drop(copy);
        marker::write(&fresh, state.acknowledged)?;
        // The old database stays open (and locked) until the new one is in its place.
        let replaced = sibling(&self.path, REPLACED);
        remove(&replaced)?;
        rename(&self.path, &replaced)?;
        rename(&fresh, &self.path)?;
        state.trees = open_trees(&self.path)?;
        remove(&replaced)
    }
}

/// Finishes or undoes a compaction that a crash has interrupted.
pub(super) fn recover(path: &Path) -> Result<(), HistoryError> {
    let (fresh, replaced) = (sibling(path, FRESH), sibling(path, REPLACED));
    if !path.exists() && replaced.exists() {
        rename(&replaced, path)?;
    }
    remove(&fresh)?;
    remove(&replaced)
}

fn rename(from: &Path, to: &Path) -> Result<(), HistoryError> {
    fs::rename(from, to).map_err(access(from, "rename"))?;
    sync_parent(to)
}

/// Makes a rename last over a power failure.
pub(super) fn sync_parent(path: &Path) -> Result<(), HistoryError> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::File::open(parent).and_then(|folder| folder.sync_all()).map_err(access(parent, "sync"))
}

fn remove(folder: &Path) -> Result<(), HistoryError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(access(folder, "remove")(error)),
        _ => Ok(()),
    }
}

/// Bytes that the files of a folder take. What cannot be looked at counts as nothing.
pub(super) fn folder_bytes(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => folder_bytes(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    sizes.sum()
}
