//! Decisions in the history, one value each, so that a restart knows what was moved and why.

use super::decided::Decided;
use super::past::Clock;
use crate::history::{History, HistoryError};

/// Names of decisions: this, a running number so that they are in the order in which they were kept, whatever the clock and the
/// length of a period were, and the sixths of the period that were over. (Numbers were those of periods once; the running ones
/// go on from the greatest.)
const PREFIX: &str = "decision.";
/// Decisions kept; the oldest go.
pub(crate) const DECISIONS_KEPT_MAX: usize = 512;
/// How far back one about the same moment is looked for: a plan and what the guard does in its period.
const SAME_PERIOD_MAX: usize = 8;

/// What a decision is about.
#[derive(PartialEq, serde::Deserialize)]
struct Moment {
    period: i64,
    start_unix_ms: u64,
    sixths: u8,
}

impl Moment {
    fn of(decided: &Decided) -> Self {
        Self { period: decided.period, start_unix_ms: decided.start_unix_ms, sixths: decided.sixths }
    }
}

fn number(name: &str) -> u64 {
    let number = name.strip_prefix(PREFIX).and_then(|rest| rest.split('.').next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The name to keep a decision under: that of one about the same moment, else the next.
fn name(history: &History, names: &[String], decided: &Decided) -> Result<String, HistoryError> {
    for name in names.iter().rev().take(SAME_PERIOD_MAX) {
        let json = history.get(name)?.unwrap_or_default();
        if serde_json::from_slice::<Moment>(&json).is_ok_and(|known| known == Moment::of(decided)) {
            return Ok(name.clone());
        }
    }
    let next = names.last().map_or(0, |last| number(last).saturating_add(1));
    Ok(format!("{PREFIX}{next:020}.{}", decided.sixths))
}

/// Keeps a decision, in place of one about the same moment.
pub(crate) fn keep(history: &History, decided: &Decided) -> Result<(), String> {
    let json = serde_json::to_vec(decided).map_err(|error| error.to_string())?;
    let names = history.names(PREFIX).map_err(|error| error.to_string())?;
    let name = name(history, &names, decided).map_err(|error| error.to_string())?;
    history.put(&name, &json).map_err(|error| error.to_string())?;
    let kept = names.len() + usize::from(!names.contains(&name));
    for old in names.iter().take(kept.saturating_sub(DECISIONS_KEPT_MAX)) {
        history.remove(old).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// The decisions kept, the oldest first, with their periods numbered by this clock: those made with another length of a period
/// as well. One that cannot be understood is left out, and told in the log.
pub(crate) fn decisions(history: &History, clock: Clock) -> Result<Vec<Decided>, HistoryError> {
    let mut decisions = Vec::new();
    for name in history.names(PREFIX)? {
        let Some(json) = history.get(&name)? else { continue };
        match serde_json::from_slice::<Decided>(&json) {
            Ok(decided) => {
                let period = clock.period_at(decided.start_unix_ms);
                decisions.push(Decided { period, ..decided });
            }
            Err(error) => tracing::warn!(name, %error, "a decision in the history cannot be read"),
        }
    }
    Ok(decisions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::HistoryLimits;

    const HOUR: Clock = Clock { period_ms: 3_600_000 };
    const MINUTE: Clock = Clock { period_ms: 60_000 };

    fn decided(clock: Clock, period: i64, sixths: u8) -> Decided {
        let start_unix_ms = clock.start_unix_ms(period);
        Decided { period, start_unix_ms, sixths, by: "plan".into(), ..Decided::default() }
    }

    fn kept(history: &History, clock: Clock) -> Vec<(i64, u8)> {
        decisions(history, clock).unwrap().iter().map(|d| (d.period, d.sixths)).collect()
    }

    #[test]
    fn decisions_are_kept_in_order_one_of_a_moment() {
        let folder = tempfile::tempdir().unwrap();
        let history = History::open(folder.path().join("h"), HistoryLimits::default()).unwrap().history;
        for (period, sixths) in [(9, 0), (9, 3), (10, 0)] {
            keep(&history, &decided(HOUR, period, sixths)).unwrap();
        }
        history.put("decision.00000000000000000011.0", b"{not json").unwrap();
        keep(&history, &Decided { late: true, ..decided(HOUR, 10, 0) }).unwrap();
        keep(&history, &decided(HOUR, 4, 0)).unwrap();
        assert_eq!(kept(&history, HOUR), [(9, 0), (9, 3), (10, 0), (4, 0)], "the clock was set back");
        assert!(decisions(&history, HOUR).unwrap()[2].late, "it took the other's place");
    }

    #[test]
    fn the_newest_stay_after_a_change_of_the_periods_length_in_either_direction() {
        let count = i64::try_from(DECISIONS_KEPT_MAX).unwrap();
        for (before, after) in [(MINUTE, HOUR), (HOUR, MINUTE)] {
            let folder = tempfile::tempdir().unwrap();
            let history = History::open(folder.path().join("h"), HistoryLimits::default()).unwrap().history;
            // As they were named once.
            let begin = before.period_at(1_700_000_000_000);
            let old = decided(before, begin, 0);
            history.put(&format!("decision.{begin:020}.0"), &serde_json::to_vec(&old).unwrap()).unwrap();
            for period in 1..count {
                keep(&history, &decided(before, begin + period, 0)).unwrap();
            }
            let end_unix_ms = before.start_unix_ms(begin + count);
            let changed = after.period_at(end_unix_ms);
            for period in 1..4 {
                keep(&history, &decided(after, changed + period, 0)).unwrap();
            }
            let kept = kept(&history, after);
            assert_eq!(kept.len(), DECISIONS_KEPT_MAX);
            let new = [(changed + 1, 0), (changed + 2, 0), (changed + 3, 0)];
            assert_eq!(kept[DECISIONS_KEPT_MAX - 3..], new);
            let first = after.period_at(before.start_unix_ms(begin + 3));
            assert_eq!(kept[0], (first, 0), "the oldest went, and the rest is numbered by the clock of now");
        }
    }
}
