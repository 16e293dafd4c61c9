//! History: the heat of past periods on disk, and small named values beside it.
//!
//! # What is on disk
//! One sled 0.34 database with four trees: `periods` (a block per period, by start, in chunks of 64 KiB),
//! `handles` (a dictionary: number -> handle and path, so that a block names a file in one or two bytes), `blobs`
//! (small values by name: the exception set, the epoch, decisions) and `meta` (the format's version, the count of
//! writes). Blocks, handles and values end in a CRC-32 of themselves. All of it can be rebuilt by measuring again,
//! which decides what happens when it cannot be read: it is moved aside, never repaired and never in the way of a
//! start.
//!
//! # Limits
//! [`HistoryLimits`] bounds periods and bytes; the oldest periods go first, and handles that no period names any
//! more go with them. sled gives space back late; where its files grow beyond twice the live bytes and
//! [`SLACK_BYTES`], the database is written anew and swapped in.
//!
//! # After a crash
//! [`History::append`] returns when the period is on disk, so a killed process loses the open period only. A
//! count of the writes acknowledged, beside the database, tells a log that a crash has cut short from one that has
//! lost what was acknowledged.
//!
//! # After a failed write
//! sled fails for good after its first failed write. The database is closed and opened again before the next one, at most
//! every few seconds, so that the history heals when a full disk has room again.

mod block;
mod chunks;
mod codec;
mod compact;
mod database;
mod dictionary;
mod error;
mod marker;
mod open;
mod reopen;

pub use compact::SLACK_BYTES;
pub use database::{Appended, BLOB_BYTES_MAX, History, HistoryLimits, Periods};
pub use error::HistoryError;
pub use open::{MovedAside, Opened};

/// The store that all requests of an imported period stand under: a name that no configuration can have.
pub const IMPORTED: &str = "(imported)";

#[cfg(test)]
mod tests;
