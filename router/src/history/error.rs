//! What can go wrong with the history, and what to do about it.

use std::io;
use std::path::PathBuf;

/// Why the history could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// Another process has the database open.
    #[error("history {path}: another process has it open; stop that one or configure another path", path = path.display())]
    InUse {
        /// The database's folder.
        path: PathBuf,
    },
    /// The folder holds something else.
    #[error("history {path}: the folder is not empty and holds no history; configure another path", path = path.display())]
    NotAHistory {
        /// The folder.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("history {path}: cannot {action}: {source}; check the folder's owner, mode and free space", path = path.display())]
    Access {
        /// The file or folder.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the operating system said.
        source: io::Error,
    },
    /// What was read is not what was written. At a start the database is moved aside; at run time the next
    /// start does that.
    #[error("history {path}: damaged ({what}); restart to begin an empty one, the damaged one is kept", path = path.display())]
    Damaged {
        /// The database's folder.
        path: PathBuf,
        /// What does not fit.
        what: String,
    },
    /// An earlier write has failed, and it is not time yet to try again.
    #[error("{why}")]
    Failed {
        /// What went wrong then, in full.
        why: String,
    },
    /// A named value is too long.
    #[error("history: value {name:?} has {bytes} bytes, at most {bytes_max} are kept")]
    BlobTooLong {
        /// Its name.
        name: String,
        /// Its length, bytes.
        bytes: usize,
        /// The limit, bytes.
        bytes_max: usize,
    },
}
