//! What an import came to, in words and as JSON.
use std::fmt::Write as _;

use clockwork_forecaster::series::{Cycles, fill_counts};
use clockwork_forecaster::spectrum::Workspace;
use clockwork_traces::import::Summary;
use serde_json::json;

/// A moment in UTC, to the second.
pub(in crate::cli) fn utc(unix_s: i64) -> String {
    let days = unix_s.div_euclid(86_400);
    let second = unix_s.rem_euclid(86_400);
    // Years begin in March here, as in the converse in `clockwork_traces::import::time`.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march + 2) / 5 + 1;
    let month = if march < 10 { march + 3 } else { march - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

pub(super) fn text(summary: &Summary) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    for (name, format) in &summary.inputs {
        let _ = writeln!(out, "{name}: {format}");
    }
    for name in &summary.empty_inputs {
        let _ = writeln!(out, "{name}: empty");
    }
    let _ = writeln!(out, "lines     {} good, {} bad", summary.good_lines, summary.bad_lines);
    for uncounted in &summary.uncounted {
        let place = |(input, line): &(usize, u64)| match summary.inputs.get(*input) {
            Some((name, _)) if summary.inputs.len() > 1 => format!("{name}:{line}"),
            _ => line.to_string(),
        };
        let first: Vec<String> = uncounted.first.iter().map(place).collect();
        let more = if uncounted.lines > first.len() as u64 { ", ..." } else { "" };
        let kind = if uncounted.reason.is_bad() { "bad" } else { "left out" };
        let (lines, reason, first) = (uncounted.lines, uncounted.reason, first.join(", "));
        let _ = writeln!(out, "          {lines} {kind}: {reason} (line {first}{more})");
    }
    if summary.late_lines > 0 {
        let _ = writeln!(out, "          {} out of order, counted all the same", summary.late_lines);
    }
    if let (Some((_, periods)), Some((from, to))) = (summary.span, summary.span_s) {
        let _ = writeln!(out, "span      {periods} periods from {} to {}", utc(from), utc(to));
        let silent = summary.silent_periods;
        let _ = writeln!(out, "          {silent} of them without any line");
    }
    let _ = writeln!(
        out,
        "requests  {}, {} of them writes, {} for metadata",
        summary.requests, summary.writes, summary.metadata
    );
    let _ = writeln!(out, "files     {}", summary.files);
    if summary.overflow_requests > 0 {
        let _ =
            writeln!(out, "          {} requests for files beyond --files-max", summary.overflow_requests);
    }
    if summary.clients > 0 {
        let _ = writeln!(out, "clients   {}", summary.clients);
    }
    if let Some(cycles) = found_cycles(&summary.totals) {
        let _ = writeln!(out, "cycles    {}", said(&cycles));
    }
    out
}

pub(super) fn json(summary: &Summary) -> String {
    let uncounted = |u: &clockwork_traces::import::Uncounted| {
        let first: Vec<_> =
            u.first.iter().map(|(input, line)| json!({"input": input, "line": line})).collect();
        json!({"reason": u.reason.to_string(), "bad": u.reason.is_bad(), "lines": u.lines, "first": first})
    };
    let inputs: Vec<_> =
        summary.inputs.iter().map(|(name, format)| json!({"name": name, "format": format})).collect();
    let object = json!({
        "inputs": inputs,
        "empty_inputs": summary.empty_inputs,
        "bytes": summary.bytes,
        "good_lines": summary.good_lines,
        "bad_lines": summary.bad_lines,
        "uncounted": summary.uncounted.iter().map(uncounted).collect::<Vec<_>>(),
        "late_lines": summary.late_lines,
        "requests": summary.requests,
        "writes": summary.writes,
        "metadata": summary.metadata,
        "files": summary.files,
        "overflow_requests": summary.overflow_requests,
        "clients": summary.clients,
        "periods": summary.span.map(|(_, periods)| periods),
        "silent_periods": summary.silent_periods,
        "from": summary.span_s.map(|(from, _)| utc(from)),
        "to": summary.span_s.map(|(_, to)| utc(to)),
        "cycles": found_cycles(&summary.totals),
    });
    format!("{object:#}\n")
}

pub(super) fn said(cycles: &[usize]) -> String {
    if cycles.is_empty() {
        return "none".into();
    }
    let words: Vec<String> = cycles.iter().map(|cycle| format!("{cycle} periods")).collect();
    words.join(", ")
}

/// Most periods in which cycles are looked for: the last ones.
const CYCLE_PERIODS_MAX: usize = 20_000;

/// The cycles that the totals show, in periods; `None` if no period has any.
pub(super) fn found_cycles(totals: &[Option<u64>]) -> Option<Vec<usize>> {
    let from = totals.len().saturating_sub(CYCLE_PERIODS_MAX);
    let values: Vec<f64> =
        totals.iter().skip(from).map(|total| total.map_or(f64::NAN, |sum| sum as f64)).collect();
    let filled = fill_counts(&values, Cycles::NONE).ok()?;
    let found = Cycles::found_in(&filled, &mut Workspace::default());
    Some(found.day.into_iter().chain(found.week).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_they_are_read() {
        assert_eq!(utc(782_982_000), "1994-10-24T07:00:00Z");
        assert_eq!(utc(951_782_399), "2000-02-28T23:59:59Z");
        for unix_s in (-3_000_000_000..6_000_000_000_i64).step_by(86_400 * 31 + 4_567) {
            let back =
                clockwork_traces::import::time::iso(utc(unix_s).as_bytes()).map(|moment| moment.unix_s());
            assert_eq!(back, Some(unix_s), "{}", utc(unix_s));
        }
    }

    #[test]
    fn a_day_is_found_in_hours_with_gaps() {
        let total = |hour: u64| {
            (!hour.is_multiple_of(17)).then(|| 100 + 90 * u64::from(hour % 24 > 8) + hour * 7 % 13)
        };
        let totals: Vec<Option<u64>> = (0..24 * 20).map(total).collect();
        assert_eq!(found_cycles(&totals).and_then(|cycles| cycles.first().copied()), Some(24));
        assert_eq!(found_cycles(&[None; 5]), None);
        assert_eq!(found_cycles(&[Some(1); 5]), Some(vec![]));
    }
}
