//! What was moved lately.

use std::collections::HashMap;
use std::sync::Arc;

use crate::controller::FileId;

/// Files known to have been moved; beyond it the oldest are forgotten.
const PAST_MOVES_MAX: usize = 1 << 20;

/// A move made: what a plan must know of earlier ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastMove {
    /// The period that it was decided for.
    pub period: i64,
    /// The file.
    pub file: FileId,
    /// The store that it left.
    pub from: Arc<str>,
}

/// Moves made, as far back as plans look. It is what a controller knows beyond history and placement: write it down
/// with [`Past::moves`], take it up again with [`Past::record`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Past {
    moved: HashMap<FileId, Vec<(i64, Arc<str>)>>,
}

impl Past {
    /// Records a move.
    pub fn record(&mut self, made: PastMove) {
        if self.moved.len() >= PAST_MOVES_MAX {
            let oldest = self.moved.values().filter_map(|m| m.last()).map(|m| m.0).min().unwrap_or(i64::MIN);
            self.forget_before(oldest.saturating_add(1));
        }
        self.moved.entry(made.file).or_default().push((made.period, made.from));
    }

    /// Forgets moves before a period.
    pub fn forget_before(&mut self, period: i64) {
        self.moved.retain(|_, moves| {
            moves.retain(|m| m.0 >= period);
            !moves.is_empty()
        });
    }

    /// The moves known, in no order.
    pub fn moves(&self) -> impl Iterator<Item = PastMove> {
        self.moved.iter().flat_map(|(file, moves)| {
            moves.iter().map(|(period, from)| PastMove { period: *period, file: *file, from: from.clone() })
        })
    }

    /// The period of a file's last move.
    pub fn last(&self, file: FileId) -> Option<i64> {
        self.moved.get(&file)?.iter().map(|m| m.0).max()
    }

    /// Whether the file left that store in `since` or later.
    pub(super) fn left(&self, file: FileId, store: &str, since: i64) -> bool {
        self.moved
            .get(&file)
            .is_some_and(|m| m.iter().any(|(period, from)| *period >= since && **from == *store))
    }
}
