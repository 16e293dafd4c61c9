//! Which store serves a file handle: a stable keyed hash with weights (the default rule), and the exception set on top.
//!
//! A [`Table`] is immutable. The router swaps a new one in when a store comes, goes or is drained and when files are
//! moved; the simulator holds the same tables, so that there is one default rule. Nothing in here does I/O.
//!
//! The default rule is weighted rendezvous hashing over 65,536 buckets of the handle's hash, keyed by the table's seed
//! and by the stores' *names*: a lookup costs the same whatever the number of stores, the order in which the stores are
//! listed does not matter, and adding or losing a store moves only that store's share.
//!
//! An exception may name several stores: reads of its file are spread over them ([`read_point`], [`Table::reader`]), and
//! all else goes to the first of them that serves.

mod exceptions;
mod rendezvous;
mod replicas;
mod table;

pub use replicas::{Assignment, REPLICAS_MAX, Replica, Replicas, read_point};
pub use table::{EXCEPTION_FILES_MAX, HANDLE_BYTES_MAX, Routed, STORES_MAX, Table, TableError, WEIGHT_MAX};

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A store of the plex: its index in the list the table was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreId(pub u16);

impl StoreId {
    /// The index as a `usize`, for per-store arrays.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The keyed 64-bit hash (xxh3) of a file handle's exact bytes; made by [`Table::hash`].
///
/// Its top 16 bits choose the bucket of the default rule; maps and shards keyed by it should use lower bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HandleHash(pub u64);

/// Whether a store takes part in routing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoreState {
    /// In service.
    Up,
    /// Taken out by the administrator: it gets nothing, not even its exceptions, whatever happens to the others.
    Drained,
    /// Ejected by the health checks: it gets nothing while another store is up.
    Down,
}

/// A store as the table sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreEntry {
    /// Its name: the key of the default rule, so a renamed store gets another share of the files.
    pub name: String,
    /// Its share of the files relative to the other stores' weights, 0 to [`WEIGHT_MAX`]; 0 is the same as drained.
    pub weight: f64,
    /// Whether it takes part.
    pub state: StoreState,
}

impl StoreEntry {
    /// A store of this name and weight that is up.
    #[must_use]
    pub fn up(name: impl Into<String>, weight: f64) -> Self {
        Self { name: name.into(), weight, state: StoreState::Up }
    }
}

/// A [`Hasher`] for keys that are hashes already: it passes the last word it is given through.
#[derive(Clone, Copy, Debug, Default)]
pub struct Prehashed(u64);

impl Hasher for Prehashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        // Only reached by keys that are not integers; folded so that it is still a (poor) hash.
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }

    fn write_u128(&mut self, word: u128) {
        let [a, b, c, d, e, f, g, h, ..] = word.to_le_bytes();
        self.0 = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    }
}

/// A map keyed by something that is a hash already ([`HandleHash`], or the `u64` or `u128` of a good hash).
pub type PrehashedMap<K, V> = HashMap<K, V, BuildHasherDefault<Prehashed>>;
