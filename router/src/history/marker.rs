//! The mark of what was acknowledged, in a small file beside the database.
//!
//! sled takes a log that ends in damage for one that a crash has cut short, and goes on with what came before.
//! After a crash that is right; where acknowledged periods are gone it is damage, and only something outside the
//! log can tell the two apart: a count of the writes acknowledged, kept both in the database and here. The file
//! is written after the database is on disk, so the database never has less.

use std::fs;
use std::path::Path;

use super::codec::{seal, unseal};
use super::error::HistoryError;
use super::open::access;

/// Name of the file in the database's folder.
pub(super) const FILE: &str = "acknowledged";

/// Notes that so many writes are on disk.
pub(super) fn write(folder: &Path, acknowledged: u64) -> Result<(), HistoryError> {
    let (file, fresh) = (folder.join(FILE), folder.join("acknowledged.new"));
    fs::write(&fresh, seal(acknowledged.to_be_bytes().to_vec())).map_err(access(&fresh, "write"))?;
    fs::rename(&fresh, &file).map_err(access(&file, "rename"))
}

/// How many writes were noted; 0 if there is no file, or none that can be read (a power failure may take it).
pub(super) fn read(folder: &Path) -> u64 {
    let sealed = fs::read(folder.join(FILE)).unwrap_or_default();
    let count = unseal(&sealed).ok().and_then(|count| <[u8; 8]>::try_from(count).ok());
    count.map_or(0, u64::from_be_bytes)
}
