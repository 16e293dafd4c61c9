//! The recorder: one a shard, told of every call and every reply.

use clockwork_placement::StoreId;
use clockwork_wire::nfs3::Class;

use super::counts::{ClassCounts, FileCounts, StoreCounts};
use super::files::{FileToken, Files};
use super::names::{Learner, Learnt};
use super::period::ShardPeriod;

/// Part of all calls from which on a file is told of while the period runs: a tenth of what makes a file worth moving.
pub const RUNNING_PART_MIN: f64 = 1e-4;

/// What a recorder may keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeatLimits {
    /// Files with counters of their own, per shard (about 150 bytes each). Calls on further files are counted
    /// together, as the other files.
    pub files_max: usize,
    /// Names learnt in a period, per shard (at most 160 bytes each on average). Further ones are dropped and
    /// counted; they are learnt in a later period if they are used then.
    pub names_max: usize,
    /// Periods in a row that a file may be idle before its entry is given back.
    pub idle_periods_max: u16,
}

impl Default for HeatLimits {
    fn default() -> Self {
        Self { files_max: 1_000_000, names_max: 200_000, idle_periods_max: 24 }
    }
}

/// What a store has done since the recorder began; closing a period takes nothing off it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreTotals {
    /// Calls given to the store.
    pub requests: u64,
    /// Calls that ended without a usable answer.
    pub failed: u64,
    /// Answers in the open period.
    pub answered_in_period: u64,
    /// Sum of their response times, microseconds.
    pub sum_us_in_period: u64,
}

#[derive(Default)]
struct Store {
    counts: StoreCounts,
    outstanding: u64,
    /// Requests and failures of closed periods.
    before: (u64, u64),
}

/// Counts what one shard of the data plane routes. It is owned by the shard; nothing in it is shared.
pub struct Recorder {
    files: Files,
    stores: Vec<Store>,
    learner: Learner,
    limits: HeatLimits,
}

impl Recorder {
    /// A recorder for so many stores. A store that is added later makes room for itself.
    pub fn new(limits: HeatLimits, stores: usize) -> Self {
        let mut recorder = Self {
            files: Files::new(limits.files_max),
            stores: Vec::new(),
            learner: Learner::new(limits.names_max),
            limits,
        };
        recorder.stores.resize_with(stores, Store::default);
        recorder
    }

    /// Counts a call that goes to a store. `hash` is the one that routed it: equal handles have equal hashes.
    ///
    /// Every call is followed by exactly one [`reply`](Self::reply) with the token returned and the same store,
    /// also if it was given up or went to another store (then as a failed one); otherwise the number of calls
    /// outstanding would be wrong for good. Retransmissions that are not sent to a store are not counted.
    #[inline]
    pub fn call(&mut self, store: StoreId, class: Class, handle: &[u8], hash: u64) -> FileToken {
        let entry = self.store(store);
        entry.counts.requests.count(class);
        entry.outstanding += 1;
        entry.counts.outstanding_max = entry.counts.outstanding_max.max(entry.outstanding);
        self.files.call(store, class, handle, hash)
    }

    /// Counts the end of a call: an answer after `response_us` microseconds with so many bytes of file data, or
    /// a failure (no usable answer), whose time is not counted.
    #[inline]
    #[expect(
        clippy::too_many_arguments,
        reason = "one flat call on the hot path, each argument a measured value"
    )]
    pub fn reply(
        &mut self,
        token: FileToken,
        store: StoreId,
        class: Class,
        response_us: u64,
        failed: bool,
        bytes_read: u32,
        bytes_written: u32,
    ) {
        let entry = self.store(store);
        entry.outstanding = entry.outstanding.saturating_sub(1);
        if failed {
            entry.counts.failed += 1;
            return;
        }
        entry.counts.count_answer(class, response_us);
        entry.counts.bytes_read += u64::from(bytes_read);
        entry.counts.bytes_written += u64::from(bytes_written);
        self.files.reply(token, bytes_read, bytes_written);
    }

    /// Takes note that `handle` is called `name` in `directory`, as a reply has shown (LOOKUP, CREATE, MKDIR,
    /// READDIRPLUS and the like). Names that are none (`.`, `..`, empty, too long) are ignored.
    #[inline]
    pub fn name(&mut self, directory: &[u8], name: &[u8], handle: &[u8]) {
        self.learner.learn(directory, name, handle);
    }

    /// Ends the period: hands the counters over, sets them to zero, and lets files go that were idle for too
    /// long. Tokens of calls in flight stay safe; such a call is counted in the period in which it came, its
    /// reply in the one in which it was answered.
    pub fn close(&mut self) -> ShardPeriod {
        let files_known = self.files.len();
        let (files, other) = self.files.close(self.limits.idle_periods_max);
        let stores = self.stores.iter_mut().map(|store| {
            let counts = std::mem::take(&mut store.counts);
            store.before.0 += counts.requests.total();
            store.before.1 += counts.failed;
            store.counts.outstanding_max = store.outstanding;
            counts
        });
        ShardPeriod { stores: stores.collect(), files, other, files_known, learnt: self.learner.close() }
    }

    /// The period so far, without ending it: the stores, and the files that have had at least [`RUNNING_PART_MIN`] of all
    /// calls, and 8. The calls of all others are with the other files; bytes are told of no other file. It costs a look at
    /// some 40,000 files at most, however many there are.
    pub fn running(&self) -> ShardPeriod {
        let mut left = ClassCounts::default();
        self.stores.iter().for_each(|store| left.add(&store.counts.requests));
        let files = self.files.running((RUNNING_PART_MIN * left.total() as f64) as u64);
        for file in &files {
            left.reads = left.reads.saturating_sub(file.counts.calls.reads);
            left.writes = left.writes.saturating_sub(file.counts.calls.writes);
            left.metadata = left.metadata.saturating_sub(file.counts.calls.metadata);
        }
        let other = FileCounts { calls: left, ..FileCounts::default() };
        let stores = self.stores.iter().map(|store| store.counts.clone()).collect();
        ShardPeriod { stores, files, other, files_known: self.files.len(), learnt: Learnt::default() }
    }

    /// What a store has done since the recorder began.
    pub fn totals(&self, store: StoreId) -> StoreTotals {
        let Some(store) = self.stores.get(usize::from(store.0)) else { return StoreTotals::default() };
        StoreTotals {
            requests: store.before.0 + store.counts.requests.total(),
            failed: store.before.1 + store.counts.failed,
            answered_in_period: store.counts.response.count,
            sum_us_in_period: store.counts.response.sum_us,
        }
    }

    /// Files with counters of their own, and calls that were counted with the other files because `files_max` was
    /// reached.
    pub fn files(&self) -> (usize, u64) {
        (self.files.len(), self.files.turned_away())
    }

    #[inline]
    fn store(&mut self, store: StoreId) -> &mut Store {
        let index = usize::from(store.0);
        if index >= self.stores.len() {
            self.stores.resize_with(index + 1, Store::default);
        }
        &mut self.stores[index]
    }
}
