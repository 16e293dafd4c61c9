//! What the controller is told: closed periods, the part of an open one, and the plex as it is.

use std::sync::Arc;

use crate::plan::ReadShare;

/// A file's number: dense, chosen by the caller, not used for another file while the history knows the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

impl FileId {
    /// The number as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What one store did in a period.
#[derive(Debug, Clone, PartialEq)]
pub struct StoreReport {
    /// The store's name, which is what its past is found by.
    pub name: Arc<str>,
    /// Requests that it answered.
    pub requests: f64,
    /// Mean response time, milliseconds; NaN = none measured.
    pub response_ms: f64,
    /// Variance of single response times, square milliseconds; NaN = not measured.
    pub response_variance_ms2: f64,
    /// Whether it held as many calls as it may for some of the period: its response time was at least this.
    pub saturated: bool,
}

/// A closed period.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PeriodReport {
    /// Its number: start in seconds since 1970-01-01 UTC, divided by the length of a period. Numbers left out are periods
    /// without a measurement, which is not the same as periods without a request.
    pub period: i64,
    /// The stores that were measured.
    pub stores: Vec<StoreReport>,
    /// Requests of the files listed; others had none, or are in `unlisted`.
    pub files: Vec<(FileId, f64)>,
    /// Requests of files that are not listed one by one.
    pub unlisted: f64,
    /// Part of their requests that were READs, 0 to 1, of the hottest files: what replication goes by.
    pub reads: Vec<(FileId, f64)>,
}

impl PeriodReport {
    /// All requests of the period.
    pub fn total(&self) -> f64 {
        self.files.iter().map(|(_, requests)| requests).sum::<f64>() + self.unlisted
    }
}

/// An open period, so far.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PartialPeriod {
    /// Its number, as in [`PeriodReport::period`].
    pub period: i64,
    /// Sixths of it that are over, 1 to 5.
    pub sixths: u8,
    /// Requests so far of the files listed.
    pub files: Vec<(FileId, f64)>,
    /// Requests so far of files that are not listed.
    pub unlisted: f64,
    /// The stores so far.
    pub stores: Vec<StoreReport>,
}

/// Whether a store takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum StoreState {
    /// In service.
    #[default]
    Up,
    /// Taken out by the operator: nothing is planned for it.
    Drained,
    /// Does not answer: nothing is planned for it.
    Down,
}

/// A store as the plan sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct StoreView {
    /// Its name.
    pub name: Arc<str>,
    /// Whether it takes part.
    pub state: StoreState,
    /// Its weight in the default rule; 0 is the same as drained for the default rule, but files may be moved to it.
    pub weight: f64,
    /// Most calls outstanding at it.
    pub outstanding_max: f64,
}

/// Where files are now. Stores are indices into [`PlexView::stores`].
pub trait Placement {
    /// The store that the default rule gives the file among the stores that are up; `None` where that is none.
    fn home(&self, file: FileId) -> Option<usize>;
    /// The store that the file has been moved to, whatever that store's state; `None` where the default rule holds.
    fn exception(&self, file: FileId) -> Option<usize>;
    /// Whether the file must not be moved: an operator has assigned it, or writes of it are not committed.
    fn pinned(&self, file: FileId) -> bool;
    /// The files whose reads several stores share, whoever has decided so.
    fn replicated(&self) -> Vec<FileId> {
        Vec::new()
    }
    /// The stores that share a replicated file's reads, whatever their states, its home the first of them; empty for all
    /// other files. [`exception`](Self::exception) is the home.
    fn shares(&self, _file: FileId) -> Vec<ReadShare> {
        Vec::new()
    }
}

/// The plex as it is.
#[derive(Clone, Copy)]
pub struct PlexView<'a> {
    /// Its stores; no more than [`STORES_MAX`], the rest is not looked at.
    pub stores: &'a [StoreView],
    /// Where files are.
    pub placement: &'a dyn Placement,
}

/// Most stores of a plex.
pub const STORES_MAX: usize = 4096;

impl PlexView<'_> {
    /// The store that serves the file now: its exception if that store is up, else its home if that is up.
    pub fn serving(&self, file: FileId) -> Option<usize> {
        let up = |store: &usize| self.is_up(*store);
        self.placement.exception(file).filter(up).or_else(|| self.placement.home(file).filter(up))
    }

    /// Whether the store is there and takes part.
    pub fn is_up(&self, store: usize) -> bool {
        store < STORES_MAX && self.stores.get(store).is_some_and(|s| s.state == StoreState::Up)
    }
}
