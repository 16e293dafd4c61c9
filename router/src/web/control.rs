//! What the admin interface needs of a plex.
use std::future::Future;

use thiserror::Error;

use crate::report::Report;

use super::types::{
    Assign, ControlState, Decisions, Drained, ExceptionPage, FileName, HotFiles, Moved, Periods, Status,
    Weights,
};

/// A plex that can be looked at and changed.
pub trait PlexControl: Send + Sync + 'static {
    /// The plex now.
    fn status(&self) -> impl Future<Output = Status> + Send;

    /// At most `limit` exceptions with handles after `after`, in the order of the handles' bytes.
    fn exceptions(
        &self,
        after: Option<Vec<u8>>,
        limit: usize,
    ) -> impl Future<Output = Result<ExceptionPage, ControlError>> + Send;

    /// Gives a file to a store.
    ///
    /// # Errors
    /// An unknown store or file, or a full exception set.
    fn assign(&self, assign: Assign) -> impl Future<Output = Result<Moved, ControlError>> + Send;

    /// Gives a file back to the default rule.
    ///
    /// # Errors
    /// An unknown file, or one that was not assigned.
    fn unassign(&self, file: FileName) -> impl Future<Output = Result<Moved, ControlError>> + Send;

    /// Takes a store out of service; `force` also the last one. Draining a drained store changes nothing.
    ///
    /// # Errors
    /// An unknown store, or the last one without `force`.
    fn drain(&self, store: String, force: bool)
    -> impl Future<Output = Result<Drained, ControlError>> + Send;

    /// Takes a store back into service.
    ///
    /// # Errors
    /// An unknown store.
    fn undrain(&self, store: String) -> impl Future<Output = Result<Drained, ControlError>> + Send;

    /// Weights of the default rule.
    fn weights(&self) -> impl Future<Output = Weights> + Send;

    /// Puts the configuration's weights in force again. Where they are, nothing changes.
    ///
    /// # Errors
    /// No routing table can be made of it, as where the exception set is too large.
    fn reset_weights(&self) -> impl Future<Output = Result<Weights, ControlError>> + Send;

    /// The last closed periods, at most `last`, the oldest first.
    ///
    /// # Errors
    /// The history cannot be read.
    fn periods(&self, last: usize) -> impl Future<Output = Result<Periods, ControlError>> + Send;

    /// The at most `limit` hottest files of the last periods, at most `last`; of one store if it is named.
    ///
    /// # Errors
    /// An unknown store, or the history cannot be read.
    fn hot(
        &self,
        last: usize,
        limit: usize,
        store: Option<String>,
    ) -> impl Future<Output = Result<HotFiles, ControlError>> + Send;

    /// What the controller does and has decided last.
    fn control(&self) -> impl Future<Output = ControlState> + Send;

    /// The controller's last decisions, at most `last`, the oldest first.
    fn decisions(&self, last: usize) -> impl Future<Output = Decisions> + Send;

    /// A report on the last closed periods, at most `last`.
    ///
    /// # Errors
    /// The history cannot be read.
    fn report(&self, last: usize) -> impl Future<Output = Result<Report, ControlError>> + Send;
}

/// Why a plex did not do what an operator asked for.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ControlError {
    /// No store has this name.
    #[error("no store is named {name}; there are: {}", known.join(", "))]
    UnknownStore {
        /// The name that was given.
        name: String,
        /// The names that exist.
        known: Vec<String>,
    },
    /// No file has this path or handle.
    #[error("{file}: {why}; name a file by its path from the export down, or by its handle in hexadecimal")]
    UnknownFile {
        /// The file as it was named.
        file: String,
        /// What was found instead.
        why: String,
    },
    /// The file is served by the default rule.
    #[error(
        "{file} is not assigned to any store, so there is nothing to undo; `clockwork assign` lists what is"
    )]
    NotAssigned {
        /// The file as it was named.
        file: String,
    },
    /// The exception set is full.
    #[error(
        "{max} files are assigned already (limits.exception_files_max); unassign some, or raise the limit"
    )]
    ExceptionsFull {
        /// The limit.
        max: usize,
    },
    /// No store would be left.
    #[error(
        "{name} is the last store in service: without it every client waits; {}; \
         `--force` (force=true) drains it all the same",
        others_out(others)
    )]
    LastStore {
        /// The store.
        name: String,
        /// The other stores, each with why it is not in service and what to do: `b is drained: ...`.
        others: Vec<String>,
    },
    /// No store could be asked.
    #[error("no store answers, so {what}; try again when one is up")]
    NoStore {
        /// What could not be done.
        what: String,
    },
    /// The history cannot be read.
    #[error("the history cannot be read: {why}; the router's log says more")]
    History {
        /// What went wrong.
        why: String,
    },
    /// The router is about to end.
    #[error("the router is shutting down")]
    ShuttingDown,
}

/// Stores that are named in a message.
const OTHERS_NAMED_MAX: usize = 4;

fn others_out(others: &[String]) -> String {
    let named = others.iter().take(OTHERS_NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join("; ");
    match others.len().saturating_sub(OTHERS_NAMED_MAX) {
        _ if others.is_empty() => "there is no other one".to_owned(),
        0 => named,
        more => format!("{named}; and {more} more are out as well"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_stores_message_has_the_others() {
        let said = |others: usize| {
            let others = (0..others).map(|n| format!("s{n} is down")).collect();
            ControlError::LastStore { name: "a".into(), others }.to_string()
        };
        assert!(said(0).contains("every client waits; there is no other one; `--force`"), "{}", said(0));
        assert!(said(2).contains("every client waits; s0 is down; s1 is down; `--force`"), "{}", said(2));
        assert!(said(9).contains("s3 is down; and 5 more are out as well; `--force`"), "{}", said(9));
    }
}
