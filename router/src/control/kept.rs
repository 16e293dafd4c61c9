//! Decisions in the history, one value each, so that a restart knows what was moved and why.

use super::decided::Decided;
use crate::history::{History, HistoryError};

/// Names of decisions: this, the period and the sixths that were over, so that they are in order.
const PREFIX: &str = "decision.";
/// Decisions kept; the oldest go.
pub(crate) const DECISIONS_KEPT_MAX: usize = 512;

fn name(decided: &Decided) -> String {
    format!("{PREFIX}{:020}.{}", decided.period.max(0), decided.sixths)
}

/// Keeps a decision, in place of one about the same moment.
pub(crate) fn keep(history: &History, decided: &Decided) -> Result<(), String> {
    let json = serde_json::to_vec(decided).map_err(|error| error.to_string())?;
    history.put(&name(decided), &json).map_err(|error| error.to_string())?;
    let names = history.names(PREFIX).map_err(|error| error.to_string())?;
    for old in names.iter().take(names.len().saturating_sub(DECISIONS_KEPT_MAX)) {
        history.remove(old).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// The decisions kept, the oldest first. One that cannot be understood is left out, and told in the log.
pub(crate) fn decisions(history: &History) -> Result<Vec<Decided>, HistoryError> {
    let mut decisions = Vec::new();
    for name in history.names(PREFIX)? {
        let Some(json) = history.get(&name)? else { continue };
        match serde_json::from_slice(&json) {
            Ok(decided) => decisions.push(decided),
            Err(error) => tracing::warn!(name, %error, "a decision in the history cannot be read"),
        }
    }
    Ok(decisions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::HistoryLimits;

    #[test]
    fn decisions_are_kept_in_order_and_only_so_many() {
        let folder = tempfile::tempdir().unwrap();
        let history = History::open(folder.path().join("h"), HistoryLimits::default()).unwrap().history;
        let decided = |period, sixths| Decided { period, sixths, by: "plan".into(), ..Decided::default() };
        for (period, sixths) in [(9, 0), (10, 0), (9, 3)] {
            keep(&history, &decided(period, sixths)).unwrap();
        }
        history.put("decision.00000000000000000011.0", b"{not json").unwrap();
        let kept: Vec<_> = decisions(&history).unwrap().iter().map(|d| (d.period, d.sixths)).collect();
        assert_eq!(kept, [(9, 0), (9, 3), (10, 0)]);
    }
}
