//! Embedded stores: NFSv3 servers in this process, several over one shared directory with equal file handles.

mod attributes;
mod changes;
mod export;
mod files;
mod handle;
mod listing;
mod namespace;
mod scan;
mod table;

use std::path::PathBuf;

pub use namespace::{HandleMode, Namespace, NamespaceLimits};

/// Why a store cannot run.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The directory to export cannot be opened.
    #[error("cannot open the directory {path} for export; it must exist and be readable", path = path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}
