//! Opening: read everything once, so that what is damaged is found at the start and moved aside.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::block::FORMAT;
use super::chunks;
use super::codec::unseal;
use super::compact::{recover, sibling, sync_parent};
use super::database::{ACKNOWLEDGED, Fault, History, HistoryLimits, State, Trees, cost, guarded};
use super::dictionary::Dictionary;
use super::error::HistoryError;
use super::marker;
use super::reopen::{AGAIN, Slot};

/// How long a database that is still locked is waited for: the process before may be on its way out.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// Memory that sled may use as a cache, bytes.
const CACHE_BYTES: u64 = 64 << 20;

/// An opened history.
pub struct Opened {
    /// The history, ready for use.
    pub history: History,
    /// The database that was found and could not be read, if so. Tell the operator.
    pub moved_aside: Option<MovedAside>,
}

/// A database that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MovedAside {
    /// Where it is now.
    pub to: PathBuf,
    /// What was wrong with it.
    pub why: String,
}

impl std::fmt::Display for MovedAside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let to = self.to.display();
        write!(
            f,
            "the history could not be read ({}); it was moved to {to} and an empty one was begun. ",
            self.why
        )?;
        write!(
            f,
            "Forecasts start anew, assigned files follow the default rule, drained stores serve again and learnt weights are \
             forgotten; delete the folder when nobody wants to look at it any more"
        )
    }
}

pub(super) fn open(path: &Path, limits: HistoryLimits) -> Result<Opened, HistoryError> {
    recover(path)?;
    refuse_what_is_no_history(path)?;
    let (state, moved_aside) = match load(path) {
        Ok(state) => (state, None),
        Err(HistoryError::Damaged { what, .. }) => {
            let moved = move_aside(path, what)?;
            (load(path).inspect_err(|_| put_back(path, &moved.to))?, Some(moved))
        }
        Err(other) => return Err(other),
    };
    let history = History { path: path.to_owned(), limits, slot: Mutex::new(Slot::new(state)), again: AGAIN };
    Ok(Opened { history, moved_aside })
}

/// Opens the database's trees and writes or checks the version of the format.
pub(super) fn open_trees(path: &Path) -> Result<Trees, HistoryError> {
    let config = || {
        let config = sled::Config::new().path(path).cache_capacity(CACHE_BYTES);
        // Nothing is written but by `append` and `put`, and those flush.
        config.mode(sled::Mode::LowSpace).flush_every_ms(None)
    };
    remove_unfinished_snapshots(path)?;
    let mut waited = Duration::ZERO;
    let db = loop {
        match guarded(path, || Ok(config().open()?)) {
            Err(HistoryError::InUse { .. }) if waited < LOCK_WAIT => {
                sleep(Duration::from_millis(20));
                waited += Duration::from_millis(20);
            }
            other => break other?,
        }
    };
    guarded(path, || {
        let meta = db.open_tree("meta")?;
        match meta.get("format")? {
            Some(format) if *format == [FORMAT] => {}
            Some(format) => return Err(Fault::Damaged(format!("it has format {format:?}, not [{FORMAT}]"))),
            None if db.was_recovered() && db.tree_names().len() > 2 => {
                return Err(Fault::Damaged("the version of its format is missing".into()));
            }
            None => drop(meta.insert("format", &[FORMAT])?),
        }
        let trees = Trees {
            periods: db.open_tree("periods")?,
            handles: db.open_tree("handles")?,
            blobs: db.open_tree("blobs")?,
            db: db.clone(),
            meta,
        };
        trees.db.flush()?;
        Ok(trees)
    })
}

/// Opens and reads everything.
pub(super) fn load(path: &Path) -> Result<State, HistoryError> {
    let trees = open_trees(path)?;
    guarded(path, || {
        let mut state = State {
            trees,
            dictionary: Dictionary::default(),
            kept: BTreeMap::new(),
            live_bytes: 0,
            acknowledged: 0,
        };
        state.check_acknowledged(marker::read(path))?;
        state.load_handles()?;
        state.load_periods()?;
        state.load_blobs()?;
        state.drop_unused_handles()?;
        Ok(state)
    })
}

impl State {
    fn check_acknowledged(&mut self, noted: u64) -> Result<(), Fault> {
        let count = self.trees.meta.get(ACKNOWLEDGED)?;
        let count = count.and_then(|count| <[u8; 8]>::try_from(&*count).ok()).map_or(0, u64::from_be_bytes);
        if count < noted {
            return Err(Fault::Damaged(format!("it has {count} writes where {noted} were acknowledged")));
        }
        self.acknowledged = count;
        Ok(())
    }

    fn load_handles(&mut self) -> Result<(), Fault> {
        for entry in self.trees.handles.iter() {
            let (key, value) = entry?;
            let number =
                <[u8; 8]>::try_from(&*key).map_err(|_| Fault::of("a handle", "its key is no number"))?;
            self.dictionary
                .load(u64::from_be_bytes(number), &value)
                .map_err(|damage| Fault::of("a handle", damage))?;
            self.live_bytes += cost(&key, &value);
        }
        Ok(())
    }

    fn load_periods(&mut self) -> Result<(), Fault> {
        for (key, bytes) in chunks::periods(&self.trees.periods)? {
            let Some(block) = chunks::read(&self.trees.periods, &key)? else {
                // A crash in the midst of an append or a removal: it was not acknowledged, or is not wanted.
                chunks::remove(&self.trees.periods, &key)?;
                continue;
            };
            for file in &block.files {
                if !self.dictionary.keep(file.number) {
                    return Err(Fault::unknown_file(file.number));
                }
            }
            self.kept.insert(key, bytes);
            self.live_bytes += bytes;
        }
        Ok(())
    }

    fn load_blobs(&mut self) -> Result<(), Fault> {
        for entry in self.trees.blobs.iter() {
            let (key, value) = entry?;
            unseal(&value).map_err(|damage| Fault::of(&String::from_utf8_lossy(&key), damage))?;
            self.live_bytes += cost(&key, &value);
        }
        Ok(())
    }

    /// Handles that no period names: left by a crash between two steps of an append.
    fn drop_unused_handles(&mut self) -> Result<(), Fault> {
        for number in self.dictionary.forget_unused() {
            let key = number.to_be_bytes();
            if let Some(entry) = self.trees.handles.remove(key)? {
                self.live_bytes = self.live_bytes.saturating_sub(cost(&key, &entry));
            }
        }
        Ok(())
    }
}

/// sled leaves the begin of a snapshot where the disk became full, and takes it for a damaged one at the next opening. What it
/// was made of is in the log.
fn remove_unfinished_snapshots(path: &Path) -> Result<(), HistoryError> {
    let Ok(entries) = fs::read_dir(path) else { return Ok(()) };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("snap.") && name.ends_with(".generating") {
            fs::remove_file(entry.path()).map_err(access(&entry.path(), "remove an unfinished snapshot"))?;
        }
    }
    Ok(())
}

/// A folder with other things in it is a slip in the configuration: nothing in it may be touched or moved.
fn refuse_what_is_no_history(path: &Path) -> Result<(), HistoryError> {
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(access(path, "read the folder"))?,
    };
    let names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    if names.is_empty() || names.iter().any(|name| name == "db" || name == "conf" || name == marker::FILE) {
        return Ok(());
    }
    Err(HistoryError::NotAHistory { path: path.to_owned() })
}

fn move_aside(path: &Path, why: String) -> Result<MovedAside, HistoryError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let mut to = sibling(path, &format!("damaged-{now}"));
    let mut again = 2;
    while to.exists() {
        to = sibling(path, &format!("damaged-{now}-{again}"));
        again += 1;
    }
    fs::rename(path, &to).map_err(access(path, "move it aside"))?;
    sync_parent(&to)?;
    Ok(MovedAside { to, why })
}

/// No empty one can be begun: the next start is to find the damaged one, and to tell of it.
fn put_back(path: &Path, from: &Path) {
    let _ = fs::remove_dir_all(path);
    if let Err(error) = fs::rename(from, path) {
        tracing::error!(%error, from = %from.display(), "the damaged history could not be moved back");
    }
}

pub(super) fn access(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> HistoryError {
    move |source| HistoryError::Access { path: path.to_owned(), action, source }
}
