//! The plex as the controller sees it when it decides.

use super::files::Files;
use crate::config::Config;
use crate::plex::{By, Exception, Health};
use clockwork_forecaster::controller::{FileId, Placement, StoreState, StoreView};
use clockwork_forecaster::plan::ReadShare;
use clockwork_placement::{StoreEntry, Table, TableError};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Stores and placement at one moment.
pub(crate) struct View {
    pub(crate) stores: Vec<StoreView>,
    pub(super) table: Arc<Table>,
    exceptions: BTreeMap<Box<[u8]>, Exception>,
    /// When weights were last changed or reset, milliseconds since 1970.
    pub(super) weights_changed_unix_ms: Option<u64>,
}

impl View {
    /// The stores in the order of the configuration, with health, whether drained, and weight in force of each; the routing table; who has assigned what.
    pub(crate) fn new(
        config: &Config,
        states: impl Iterator<Item = (Health, bool, f64)>,
        table: Arc<Table>,
        exceptions: BTreeMap<Box<[u8]>, Exception>,
        weights_changed_unix_ms: Option<u64>,
    ) -> Self {
        let stores = config.stores.iter().zip(states).map(|(store, (health, drained, weight))| StoreView {
            name: Arc::from(store.name.as_str()),
            state: match health {
                _ if drained || store.weight == 0.0 => StoreState::Drained,
                Health::Up => StoreState::Up,
                Health::Unknown | Health::Down { .. } | Health::Refused { .. } => StoreState::Down,
            },
            weight,
            outstanding_max: store.calls_max as f64,
        });
        Self { stores: stores.collect(), table, exceptions, weights_changed_unix_ms }
    }

    /// The same plex with other weights: files without an exception where the default rule gives them then, and those that the
    /// controller had moved there no exceptions any more.
    ///
    /// # Errors
    /// What is no weight.
    pub(super) fn reweighed(&self, weights: &[f64]) -> Result<Self, TableError> {
        let entries = self.table.stores().iter().zip(weights);
        let entries = entries.map(|(entry, weight)| StoreEntry { weight: *weight, ..entry.clone() });
        let table = self.table.with_stores(entries.collect())?;
        let mut stores = self.stores.clone();
        stores.iter_mut().zip(weights).for_each(|(store, weight)| store.weight = *weight);
        let mut exceptions = self.exceptions.clone();
        exceptions.retain(|handle, of| {
            let home = table.default_route(table.hash(handle)).and_then(|store| stores.get(store.index()));
            let same = home.is_some_and(|home| *home.name == *of.store);
            !same || of.by == By::Operator || !of.replicas.is_empty()
        });
        Ok(Self { stores, table: Arc::new(table), exceptions, ..*self })
    }

    /// The same with files as numbers.
    pub(crate) fn placed<'v>(&'v self, files: &'v Files) -> Placed<'v> {
        let mut assigned = vec![None; files.handles().len()];
        let mut replicated = BTreeMap::new();
        for (handle, exception) in &self.exceptions {
            let number = crate::heat::Handle::new(handle).and_then(|handle| files.known(&handle));
            let store = self.stores.iter().position(|store| *store.name == *exception.store);
            if let Some(place) = number.and_then(|number| assigned.get_mut(number.index())) {
                *place = store.map(|store| (store, exception.by)).or(Some((usize::MAX, exception.by)));
            }
            if let Some(number) = number.filter(|_| exception.replicas.len() > 1) {
                replicated.insert(number, self.shares(exception));
            }
        }
        Placed { view: self, files, assigned, replicated }
    }

    fn shares(&self, exception: &Exception) -> Vec<ReadShare> {
        let share = |of: &crate::plex::ReadShare| {
            let store = self.stores.iter().position(|store| *store.name == *of.store)?;
            Some(ReadShare { store, part: f64::from(of.share.max(1)) })
        };
        exception.replicas.iter().filter_map(share).collect()
    }
}

/// A [`View`] with files as numbers.
pub(crate) struct Placed<'v> {
    view: &'v View,
    files: &'v Files,
    /// By file: store and who assigned it; a store that is not configured is `usize::MAX`.
    assigned: Vec<Option<(usize, By)>>,
    /// The stores that share the reads of replicated files.
    replicated: BTreeMap<FileId, Vec<ReadShare>>,
}

#[cfg(test)]
impl Placed<'_> {
    /// Files with an exception.
    pub(super) fn assigned(&self) -> usize {
        self.assigned.iter().flatten().count()
    }
}

impl Placement for Placed<'_> {
    fn home(&self, file: FileId) -> Option<usize> {
        // Where a file is whose handle is not known, nobody knows: its load lies on all stores.
        let handle = self.files.handle(file).filter(|handle| !handle.is_stand_in())?;
        let table = &self.view.table;
        table.default_route(table.hash(handle.as_bytes())).map(clockwork_placement::StoreId::index)
    }

    fn exception(&self, file: FileId) -> Option<usize> {
        let (store, _) = (*self.assigned.get(file.index())?)?;
        (store < self.view.stores.len()).then_some(store)
    }

    /// What an operator has assigned stays, and so does what no handle is known of. A file with unstable writes may be planned
    /// for: it moves when they are committed.
    fn pinned(&self, file: FileId) -> bool {
        matches!(self.assigned.get(file.index()), Some(Some((_, By::Operator))))
            || self.files.handle(file).is_some_and(crate::heat::Handle::is_stand_in)
    }

    fn replicated(&self) -> Vec<FileId> {
        self.replicated.keys().copied().collect()
    }

    fn shares(&self, file: FileId) -> Vec<ReadShare> {
        self.replicated.get(&file).cloned().unwrap_or_default()
    }
}
