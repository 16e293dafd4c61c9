//! A closed period: what each shard hands over, and the one record that becomes of it.

use std::collections::HashMap;
use std::sync::Arc;

use clockwork_placement::StoreId;

use super::counts::{FileCounts, StoreCounts};
use super::files::FileClosed;
use super::handle::Handle;
use super::names::{Learnt, Names};

/// What one shard counted in one period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardPeriod {
    pub(super) stores: Vec<StoreCounts>,
    pub(super) files: Vec<FileClosed>,
    pub(super) other: FileCounts,
    pub(super) files_known: usize,
    pub(super) learnt: Learnt,
}

impl ShardPeriod {
    /// Files with counters of their own, for comparison with `files_max`.
    pub fn files_known(&self) -> usize {
        self.files_known
    }

    /// What each store did, by number.
    pub fn stores(&self) -> &[StoreCounts] {
        &self.stores
    }

    /// What was asked for of each file that has counters of its own.
    pub fn files(&self) -> impl Iterator<Item = (&Handle, &FileCounts)> {
        self.files.iter().map(|file| (&file.handle, &file.counts))
    }

    /// All other files together.
    pub fn other(&self) -> &FileCounts {
        &self.other
    }

    /// The names learnt in the period.
    pub fn learnt(&self) -> &Learnt {
        &self.learnt
    }
}

/// When a period was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeriodSpan {
    /// Begin, milliseconds since 1970 UTC.
    pub start_unix_ms: u64,
    /// Length, milliseconds.
    pub length_ms: u64,
}

/// One store in one period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorePeriod {
    /// Name of the store, as configured.
    pub name: String,
    /// What it did.
    pub counts: StoreCounts,
}

/// One file in one period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePeriod {
    /// The file's handle.
    pub handle: Handle,
    /// Its store: the place in [`PeriodRecord::stores`]. If several served it, the last one of the shard that
    /// had most calls.
    pub store: u16,
    /// Its path, where one was learnt.
    pub path: Option<Arc<str>>,
    /// What it was asked for.
    pub counts: FileCounts,
}

/// Everything measured in one period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeriodRecord {
    /// When it was.
    pub span: PeriodSpan,
    /// The stores, by number.
    pub stores: Vec<StorePeriod>,
    /// The files that were used, hottest first (by calls, then by handle).
    pub files: Vec<FilePeriod>,
    /// All files together that had no counters of their own, and replies that came after their file's entry
    /// had gone.
    pub other: FileCounts,
}

impl PeriodRecord {
    /// Calls sent to all stores.
    pub fn requests(&self) -> u64 {
        self.stores.iter().map(|store| store.counts.requests.total()).sum()
    }

    /// Puts the files into their order: hottest first, ties by handle.
    pub(crate) fn sort_files(&mut self) {
        self.files.sort_unstable_by(|a, b| {
            (b.counts.calls.total().cmp(&a.counts.calls.total())).then_with(|| a.handle.cmp(&b.handle))
        });
    }
}

/// Makes one record of what all shards counted. `store_names` are in the order of the stores' numbers; a store
/// without a name is called by its number. What the shards learnt goes into `names` first, so that the files
/// carry their paths.
pub fn merge(
    shards: Vec<ShardPeriod>,
    span: PeriodSpan,
    store_names: &[String],
    names: &mut Names,
) -> PeriodRecord {
    let mut stores: Vec<StorePeriod> = store_names
        .iter()
        .map(|name| StorePeriod { name: name.clone(), counts: StoreCounts::default() })
        .collect();
    let mut other = FileCounts::default();
    let mut files: HashMap<Handle, Merged> =
        HashMap::with_capacity(shards.iter().map(|shard| shard.files.len()).max().unwrap_or(0));
    for shard in shards {
        names.learn_all(&shard.learnt);
        other.add(&shard.other);
        for (number, counts) in shard.stores.iter().enumerate() {
            if number == stores.len() {
                stores.push(StorePeriod { name: format!("store-{number}"), counts: StoreCounts::default() });
            }
            stores[number].counts.add(counts);
        }
        for file in shard.files {
            files.entry(file.handle).or_default().add(&file);
        }
    }
    let files = files.into_iter().map(|(handle, file)| FilePeriod {
        handle,
        store: file.store.0,
        path: names.path(handle.as_bytes()).map(Arc::from),
        counts: file.counts,
    });
    let mut record = PeriodRecord { span, stores, files: files.collect(), other };
    record.sort_files();
    record
}

struct Merged {
    counts: FileCounts,
    store: StoreId,
    calls_max: Option<u64>,
}

impl Default for Merged {
    fn default() -> Self {
        Self { counts: FileCounts::default(), store: StoreId(0), calls_max: None }
    }
}

impl Merged {
    fn add(&mut self, file: &FileClosed) {
        let calls = file.counts.calls.total();
        if self.calls_max.is_none_or(|max| (calls, self.store) > (max, file.store)) {
            self.calls_max = Some(calls);
            self.store = file.store;
        }
        self.counts.add(&file.counts);
    }
}

#[cfg(test)]
mod tests;
