//! Many files moved at once, by the same way as an operator's single ones: the exception set, then one new table.

use super::Plex;
use super::kept::Keeper;
use super::periods::unix_ms;
use super::state::{By, Exception, ReadShare, State, Wanted};
use super::weights::{reweigh, superfluous};
use crate::control::WeightsChanged;
use clockwork_placement::TableError;
use std::collections::BTreeMap;
use std::time::SystemTime;

/// What is to become of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The file's handle.
    pub handle: Box<[u8]>,
    /// Its store from now on; `None` gives it back to the default rule.
    pub store: Option<String>,
    /// The stores that share its reads from now on, that store the first of them; none: it is not replicated.
    pub replicas: Vec<ReadShare>,
    /// Why.
    pub reason: String,
}

/// What became of changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Files assigned or given back.
    pub changed: usize,
    /// Files left alone because an operator has assigned them.
    pub operators: usize,
    /// Files that were not assigned because `exception_files_max` was reached.
    pub refused: usize,
    /// Files given back that were not assigned any more.
    pub unknown: usize,
    /// Files taken out of the exception set because other weights give them to their stores anyway.
    pub dropped: usize,
    /// Nothing was done: it was decided for other weights than are in force, or a store has gone out of service since.
    pub outdated: bool,
    /// Files, of all that are assigned, that stay with their store until their writes are committed.
    pub waiting: usize,
    /// Number of the routing table in force.
    pub table_version: u64,
}

/// Moves files, and before that puts other weights in force, with one change of the routing table, and keeps what was
/// decided. What operators have assigned stays as it is; files with unstable writes move when these are committed. Where the
/// weights cannot be put in force any more, nothing is done: the moves were planned with them.
///
/// # Errors
/// No table can be made of it; then nothing has changed.
pub(crate) async fn move_files(
    state: &State,
    keeper: &Keeper,
    weights: Option<&WeightsChanged>,
    changes: Vec<Change>,
) -> Result<Applied, TableError> {
    let (applied, changed) = {
        let max = state.config.limits.exception_files_max;
        let mut wanted = state.wanted();
        let mut before = BTreeMap::new();
        let mut applied = Applied::default();
        let now = unix_ms(SystemTime::now());
        let weights_before = wanted.weights.clone();
        if let Some(change) = weights {
            if !reweigh(state, &mut wanted, change, now) {
                return Ok(Applied { outdated: true, ..Applied::default() });
            }
            let dropped =
                superfluous(state, &wanted).inspect_err(|_| wanted.weights = weights_before.clone())?;
            applied.dropped = dropped.len();
            for handle in dropped {
                let old = wanted.exceptions.remove(&handle);
                before.insert(handle, old);
            }
        }
        for change in changes {
            make(&mut wanted, change, max, now, &mut before, &mut applied);
        }
        let changed = applied.changed > 0 || weights.is_some();
        if changed && let Err(error) = state.apply(&mut wanted) {
            undo(&mut wanted, before);
            wanted.weights = weights_before;
            return Err(error);
        }
        applied.waiting = wanted.waiting;
        applied.table_version = state.shared.table.load().version();
        (applied, changed)
    };
    if changed {
        keeper.save(state).await;
    }
    Ok(applied)
}

impl Plex {
    /// Moves files in the controller's name; see the module.
    ///
    /// # Errors
    /// No table can be made of it; then nothing has changed.
    pub async fn move_files(&self, changes: Vec<Change>) -> Result<Applied, TableError> {
        move_files(&self.state, &self.keeper, None, changes).await
    }
}

/// What the exception set had for a file.
type Before = BTreeMap<Box<[u8]>, Option<Exception>>;

fn make(
    wanted: &mut Wanted,
    change: Change,
    max: usize,
    now: u64,
    before: &mut Before,
    applied: &mut Applied,
) {
    let old = wanted.exceptions.get(&change.handle).cloned();
    if old.as_ref().is_some_and(|old| old.by == By::Operator) {
        applied.operators += 1;
        return;
    }
    match change.store {
        Some(_) if old.is_none() && wanted.exceptions.len() >= max => {
            wanted.refused += 1;
            applied.refused += 1;
            return;
        }
        Some(store) => {
            let exception = Exception {
                store,
                replicas: change.replicas,
                reason: change.reason,
                since_unix_ms: now,
                by: By::Controller,
            };
            wanted.exceptions.insert(change.handle.clone(), exception);
        }
        None if old.is_none() => {
            applied.unknown += 1;
            return;
        }
        None => drop(wanted.exceptions.remove(&change.handle)),
    }
    applied.changed += 1;
    before.entry(change.handle).or_insert(old);
}

fn undo(wanted: &mut Wanted, before: Before) {
    for (handle, old) in before {
        match old {
            Some(old) => drop(wanted.exceptions.insert(handle, old)),
            None => drop(wanted.exceptions.remove(&handle)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(handle: u8, store: Option<&str>) -> Change {
        let (handle, store) = (vec![handle].into(), store.map(Into::into));
        Change { handle, store, replicas: Vec::new(), reason: "why".into() }
    }

    fn exception(by: By) -> Exception {
        let (store, reason) = ("a".into(), String::new());
        Exception { store, replicas: Vec::new(), reason, since_unix_ms: 1, by }
    }

    #[test]
    fn operators_assignments_stay_limits_hold_and_all_can_be_undone() {
        let mut wanted = Wanted::default();
        wanted.exceptions.insert(vec![1].into(), exception(By::Operator));
        wanted.exceptions.insert(vec![2].into(), exception(By::Controller));
        let as_it_was = wanted.exceptions.clone();
        let (mut before, mut applied) = (Before::new(), Applied::default());
        let changes = [
            change(1, Some("b")),
            change(1, None),
            change(2, Some("b")),
            change(3, Some("b")),
            change(4, Some("b")),
            change(5, None),
            change(3, None),
        ];
        for change in changes {
            make(&mut wanted, change, 3, 7, &mut before, &mut applied);
        }
        assert_eq!(
            (applied.changed, applied.operators, applied.refused, applied.unknown),
            (3, 2, 1, 1),
            "{applied:?}"
        );
        assert_eq!(wanted.exceptions[&[1_u8] as &[u8]], exception(By::Operator));
        assert_eq!(wanted.exceptions[&[2_u8] as &[u8]].store, "b");
        assert_eq!(wanted.exceptions.len(), 2);
        undo(&mut wanted, before);
        assert_eq!(wanted.exceptions, as_it_was);
    }
}
