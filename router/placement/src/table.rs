//! The routing table: default rule, store states and exception set in one immutable value.

use crate::exceptions::{Exception, Exceptions};
use crate::rendezvous::{Buckets, Runner};
use crate::replicas::{Assignment, REPLICAS_MAX, Replica, Replicas};
use crate::{HandleHash, StoreEntry, StoreId, StoreState};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Most stores of a plex.
pub const STORES_MAX: usize = 1024;

/// Greatest weight of a store. Only the ratio of weights counts.
pub const WEIGHT_MAX: f64 = 1e6;

/// Most files in the exception set unless [`Table::with_exception_files_max`] says otherwise.
pub const EXCEPTION_FILES_MAX: usize = 65_536;

/// Longest file handle, bytes (RFC 1813, section 2.4: `NFS3_FHSIZE`).
pub const HANDLE_BYTES_MAX: usize = 64;

/// Why a table cannot be made. Each message names what is wrong and what is allowed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TableError {
    /// The list of stores is empty.
    #[error("no store is listed; a plex needs at least one")]
    NoStore,
    /// The list of stores is too long.
    #[error("{stores} stores are listed; at most {STORES_MAX} are allowed")]
    TooManyStores {
        /// Stores listed.
        stores: usize,
    },
    /// A store has no name; its name is what its share of the files hangs on.
    #[error("store number {} has an empty name; give it one", .store.0)]
    NamelessStore {
        /// The store's index.
        store: StoreId,
    },
    /// Two stores have one name.
    #[error("two stores are named \"{name}\"; each store needs a name of its own")]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// A weight that is no number, negative, infinite or too large.
    #[error("store \"{name}\" has weight {weight}; a weight is a number from 0 (drained) to {WEIGHT_MAX}")]
    BadWeight {
        /// The store's name.
        name: String,
        /// Its weight.
        weight: f64,
    },
    /// An exception names a store that is not in the table.
    #[error("a file is assigned to store number {}, but there are only {stores} stores", .store.0)]
    UnknownStore {
        /// The store's index.
        store: StoreId,
        /// Stores in the table.
        stores: usize,
    },
    /// More files are assigned than the exception set may hold.
    #[error(
        "{files} files would be assigned to stores, exception_files_max is {exception_files_max}; unassign some, or raise it"
    )]
    TooManyExceptions {
        /// Files that would be in the set.
        files: usize,
        /// The limit.
        exception_files_max: usize,
    },
    /// A file names no store, too many, or one of them twice.
    #[error("a file names {stores} stores; it needs 1 to {REPLICAS_MAX}, each once")]
    BadReplicas {
        /// Stores named.
        stores: usize,
    },
    /// A replica's share of the reads is no number, not above 0, or too large.
    #[error("a file's store number {} has the share {share}; a share is a number above 0, at most {WEIGHT_MAX}", .store.0)]
    BadShare {
        /// The store's index.
        store: StoreId,
        /// Its share.
        share: f64,
    },
    /// An exception's handle is longer than NFSv3 allows.
    #[error(
        "a file handle of {bytes} bytes is assigned to a store; NFSv3 handles have at most {HANDLE_BYTES_MAX}"
    )]
    HandleTooLong {
        /// The handle's length.
        bytes: usize,
    },
}

/// Where a file's calls go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Routed<'a> {
    /// The store for all calls but reads, and for reads too where there are no replicas. `None` when no store may serve.
    pub store: Option<StoreId>,
    /// The stores that share the file's reads, for [`Table::reader`].
    pub replicas: Option<&'a Replicas>,
}

/// Which store serves which file. Immutable: a change makes a new table with the next [version](Table::version).
///
/// Making one costs milliseconds (a new store or state) or microseconds (an exception more or less, plus some 10 ns a
/// file in the set): it is done beside the data path and swapped in.
#[derive(Clone, Debug)]
pub struct Table {
    seed: u64,
    version: u64,
    stores: Arc<[StoreEntry]>,
    /// By store: may it be given calls now?
    serving: Box<[bool]>,
    buckets: Arc<Buckets>,
    exceptions: Exceptions,
    exception_files_max: usize,
}

impl Table {
    /// A table, version 1, of these stores, without exceptions. The `seed` keys the hash of handles and the default rule;
    /// two routers of one plex need the same.
    ///
    /// Weights of 0 throughout are legal here (a run-time state: such a table routes to nobody).
    ///
    /// # Errors
    /// [`TableError`] for an empty or overlong list, an empty or repeated name, and a weight that is no number,
    /// negative, infinite or above [`WEIGHT_MAX`].
    pub fn new(seed: u64, stores: Vec<StoreEntry>) -> Result<Self, TableError> {
        check(&stores)?;
        let serving = serving(&stores);
        let buckets = Arc::new(Buckets::new(seed, runners(&stores, &serving)));
        let exceptions = Exceptions::default();
        Ok(Self {
            seed,
            version: 1,
            stores: stores.into(),
            serving,
            buckets,
            exceptions,
            exception_files_max: EXCEPTION_FILES_MAX,
        })
    }

    /// The same table with another limit on the exception set, which its successors keep.
    ///
    /// # Errors
    /// [`TableError::TooManyExceptions`] if it holds more already.
    pub fn with_exception_files_max(&self, exception_files_max: usize) -> Result<Self, TableError> {
        // Entry numbers of the set are 32 bits wide.
        let exception_files_max = exception_files_max.min(1 << 30);
        let table = Self { exception_files_max, version: self.version + 1, ..self.clone() };
        table.check_exceptions()?;
        Ok(table)
    }

    /// The next table, with these stores, states and weights. Exceptions follow their stores' *names*; those of a store
    /// that is no longer listed are dropped, so their files go by the default rule. A file loses the replicas that are no
    /// longer listed.
    ///
    /// # Errors
    /// As [`Table::new`].
    pub fn with_stores(&self, stores: Vec<StoreEntry>) -> Result<Self, TableError> {
        check(&stores)?;
        let serving = serving(&stores);
        let runners = runners(&stores, &serving);
        let mut by_name = runners.clone();
        by_name.sort_by(|a, b| a.name.cmp(&b.name));
        let buckets = if self.buckets.runners() == by_name {
            Arc::clone(&self.buckets)
        } else {
            Arc::new(Buckets::new(self.seed, runners))
        };
        let ids: HashMap<&str, StoreId> = ids(&stores).map(|(id, store)| (store.name.as_str(), id)).collect();
        let moved = |store: StoreId| ids.get(self.stores.get(store.index())?.name.as_str()).copied();
        let kept = self.exceptions.iter().filter_map(|e| match &e.replicas {
            None => Some(Exception { store: moved(e.store)?, ..e }),
            Some(replicas) => {
                let kept = replicas.as_slice().iter();
                let kept: Vec<Replica> =
                    kept.filter_map(|r| Some(Replica { store: moved(r.store)?, ..*r })).collect();
                let replicas = Replicas::of(&kept).map(Arc::new);
                Some(Exception { store: kept.first()?.store, replicas, ..e })
            }
        });
        let exceptions = Exceptions::new(kept);
        let version = self.version + 1;
        Ok(Self { version, stores: stores.into(), serving, buckets, exceptions, ..*self })
    }

    /// The next table, whose exception set is exactly this one. Where a handle occurs twice, the last one counts.
    ///
    /// # Errors
    /// [`TableError::UnknownStore`], [`TableError::HandleTooLong`], [`TableError::TooManyExceptions`].
    pub fn with_exceptions(
        &self,
        files: impl IntoIterator<Item = (Box<[u8]>, StoreId)>,
    ) -> Result<Self, TableError> {
        let files = files.into_iter();
        self.next(files.map(|(handle, store)| Exception {
            hash: self.hash(&handle),
            handle: handle.into(),
            store,
            replicas: None,
        }))
    }

    /// The same with files that may be replicated.
    ///
    /// # Errors
    /// As [`Table::with_exceptions`]; also [`TableError::BadReplicas`] and [`TableError::BadShare`].
    pub fn with_assignments(&self, files: impl IntoIterator<Item = Assignment>) -> Result<Self, TableError> {
        let files: Vec<Exception> = files
            .into_iter()
            .map(|file| {
                let store = checked(&file.replicas)?;
                let replicas = Replicas::of(&file.replicas).map(Arc::new);
                Ok(Exception { hash: self.hash(&file.handle), handle: file.handle.into(), store, replicas })
            })
            .collect::<Result<_, TableError>>()?;
        self.next(files.into_iter())
    }

    /// The next table, with one file more in the exception set, or with another store for it.
    ///
    /// # Errors
    /// As [`Table::with_exceptions`].
    pub fn with_exception(&self, handle: &[u8], store: StoreId) -> Result<Self, TableError> {
        let file = Exception { hash: self.hash(handle), handle: handle.into(), store, replicas: None };
        self.next(self.exceptions.iter().chain(std::iter::once(file)))
    }

    /// The next table, with this file back under the default rule.
    #[must_use]
    pub fn without_exception(&self, handle: &[u8]) -> Self {
        self.successor(Exceptions::new(self.exceptions.iter().filter(|e| *e.handle != *handle)))
    }

    fn next(&self, files: impl Iterator<Item = Exception>) -> Result<Self, TableError> {
        let table = self.successor(Exceptions::new(files));
        table.check_exceptions()?;
        Ok(table)
    }

    fn successor(&self, exceptions: Exceptions) -> Self {
        let Self { seed, version, exception_files_max, .. } = *self;
        let (stores, serving, buckets) =
            (Arc::clone(&self.stores), self.serving.clone(), Arc::clone(&self.buckets));
        Self { seed, version: version + 1, stores, serving, buckets, exceptions, exception_files_max }
    }

    fn check_exceptions(&self) -> Result<(), TableError> {
        let (files, exception_files_max) = (self.exceptions.len(), self.exception_files_max);
        if files > exception_files_max {
            return Err(TableError::TooManyExceptions { files, exception_files_max });
        }
        for exception in self.exceptions.entries() {
            let replicas = self.exceptions.replicas_of(exception).map(|replicas| replicas.as_slice());
            let named = replicas.into_iter().flatten().map(|replica| replica.store);
            if let Some(store) =
                std::iter::once(exception.store).chain(named).find(|s| s.index() >= self.stores.len())
            {
                return Err(TableError::UnknownStore { store, stores: self.stores.len() });
            }
            if exception.handle.len() > HANDLE_BYTES_MAX {
                return Err(TableError::HandleTooLong { bytes: exception.handle.len() });
            }
        }
        Ok(())
    }

    /// The keyed hash of a file handle's exact bytes. Equal for all tables of one seed.
    #[inline]
    #[must_use]
    pub fn hash(&self, handle: &[u8]) -> HandleHash {
        HandleHash(xxh3_64_with_seed(handle, self.seed))
    }

    /// The store for calls on this file, whose hash must come from [`Table::hash`].
    ///
    /// An exception counts while its store serves: an exception to a store that is down, drained or of weight 0 is
    /// remembered but its file goes by the default rule (a replicated file to the next of its stores). When every store
    /// that is not drained is down, they all count as up again: a health check that finds nobody must not be what stops
    /// the service.
    ///
    /// `None` when no store may serve: every one is drained or has weight 0.
    #[inline]
    #[must_use]
    pub fn route(&self, handle: &[u8], hash: HandleHash) -> Option<StoreId> {
        self.lookup(handle, hash).store
    }

    /// The same, and who else serves reads of the file.
    #[inline]
    #[must_use]
    pub fn lookup(&self, handle: &[u8], hash: HandleHash) -> Routed<'_> {
        let Some(file) = self.exceptions.get(handle, hash) else {
            return Routed { store: self.buckets.owner(hash.0), replicas: None };
        };
        let replicas = self.exceptions.replicas_of(file).map(|replicas| &**replicas);
        let store = if self.serves(file.store) {
            Some(file.store)
        } else {
            let stands_in = replicas.and_then(|replicas| replicas.first(|store| self.serves(store)));
            stands_in.or_else(|| self.buckets.owner(hash.0))
        };
        Routed { store, replicas }
    }

    /// The store for one read of a replicated file: one that serves, each as often as its share says. `point` comes from
    /// [`read_point`](crate::read_point). `None` when none of them serves.
    #[must_use]
    pub fn reader(&self, replicas: &Replicas, point: u64) -> Option<StoreId> {
        replicas.at(point, |store| self.serves(store))
    }

    /// The store that the default rule gives, exceptions aside.
    #[inline]
    #[must_use]
    pub fn default_route(&self, hash: HandleHash) -> Option<StoreId> {
        self.buckets.owner(hash.0)
    }

    /// Part of all handles, 0 to 1, to which the default rules of two tables of one seed give stores of different names: what a
    /// change of weights or states moves, exceptions aside.
    #[must_use]
    pub fn default_rule_differs(&self, other: &Self) -> f64 {
        if Arc::ptr_eq(&self.buckets, &other.buckets) {
            return 0.0;
        }
        let ours = |store: StoreId| self.name(store);
        self.buckets.differ(ours, &other.buckets, |store| other.name(store))
    }

    fn name(&self, store: StoreId) -> Option<&str> {
        self.stores.get(store.index()).map(|entry| entry.name.as_str())
    }

    /// The store this file is assigned to by the exception set, whether or not that store serves now.
    #[must_use]
    pub fn exception(&self, handle: &[u8], hash: HandleHash) -> Option<StoreId> {
        self.exceptions.get(handle, hash).map(|file| file.store)
    }

    /// The exception set: handle and store (the home where there are several), in the order of assignment.
    pub fn exceptions(&self) -> impl ExactSizeIterator<Item = (&[u8], StoreId)> {
        self.exceptions.entries().map(|e| (&*e.handle, e.store))
    }

    /// The exception set with all its stores, in the order of assignment.
    pub fn assignments(&self) -> impl Iterator<Item = Assignment> {
        self.exceptions.iter().map(|file| match file.replicas {
            None => Assignment::to_one(&*file.handle, file.store),
            Some(replicas) => {
                Assignment { handle: (*file.handle).into(), replicas: replicas.as_slice().to_vec() }
            }
        })
    }

    /// The hashes of the replicated files.
    pub fn replicated(&self) -> impl Iterator<Item = HandleHash> {
        let files = if self.exceptions.is_plain() { None } else { Some(self.exceptions.iter()) };
        files.into_iter().flatten().filter(|file| file.replicas.is_some()).map(|file| file.hash)
    }

    /// Most files the exception set may hold.
    #[must_use]
    pub fn exception_files_max(&self) -> usize {
        self.exception_files_max
    }

    /// The stores, indexed by [`StoreId`].
    #[must_use]
    pub fn stores(&self) -> &[StoreEntry] {
        &self.stores
    }

    /// The store of this name.
    #[must_use]
    pub fn store_named(&self, name: &str) -> Option<StoreId> {
        ids(&self.stores).find(|(_, store)| store.name == name).map(|(id, _)| id)
    }

    /// Whether this store may be given calls now: it is up (or down like all the others) and has a weight.
    #[must_use]
    pub fn serves(&self, store: StoreId) -> bool {
        self.serving.get(store.index()).copied().unwrap_or(false)
    }

    /// 1 for a table from [`Table::new`], and one more with every change since.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }
}

fn check(stores: &[StoreEntry]) -> Result<(), TableError> {
    if stores.is_empty() {
        return Err(TableError::NoStore);
    }
    if stores.len() > STORES_MAX {
        return Err(TableError::TooManyStores { stores: stores.len() });
    }
    let mut names = HashSet::new();
    for (store, entry) in ids(stores) {
        let (name, weight) = (&entry.name, entry.weight);
        if name.is_empty() {
            return Err(TableError::NamelessStore { store });
        }
        if !names.insert(name) {
            return Err(TableError::DuplicateName { name: name.clone() });
        }
        // Written so that NaN, which compares as false, is refused.
        if !(0.0..=WEIGHT_MAX).contains(&weight) {
            return Err(TableError::BadWeight { name: name.clone(), weight });
        }
    }
    Ok(())
}

/// The home of a file that names these stores.
fn checked(replicas: &[Replica]) -> Result<StoreId, TableError> {
    let stores = replicas.len();
    let twice =
        |(i, replica): (usize, &Replica)| replicas.iter().skip(i + 1).any(|r| r.store == replica.store);
    if stores > REPLICAS_MAX || replicas.iter().enumerate().any(twice) {
        return Err(TableError::BadReplicas { stores });
    }
    let wrong = |r: &&Replica| !(r.share > 0.0 && r.share <= WEIGHT_MAX);
    if let Some(Replica { store, share }) = replicas.iter().find(wrong) {
        return Err(TableError::BadShare { store: *store, share: *share });
    }
    replicas.first().map(|home| home.store).ok_or(TableError::BadReplicas { stores })
}

fn ids(stores: &[StoreEntry]) -> impl Iterator<Item = (StoreId, &StoreEntry)> {
    (0..u16::MAX).map(StoreId).zip(stores)
}

/// By store: may it be given calls? Those that are down may when nobody is up.
fn serving(stores: &[StoreEntry]) -> Box<[bool]> {
    let in_state = |state: StoreState| move |s: &StoreEntry| s.state == state && s.weight > 0.0;
    let state = if stores.iter().any(in_state(StoreState::Up)) { StoreState::Up } else { StoreState::Down };
    stores.iter().map(in_state(state)).collect()
}

fn runners(stores: &[StoreEntry], serving: &[bool]) -> Vec<Runner> {
    let racing = ids(stores).zip(serving).filter(|&(_, &serves)| serves);
    racing.map(|((store, e), _)| Runner { name: e.name.clone(), weight: e.weight, store }).collect()
}

#[cfg(test)]
mod tests;
