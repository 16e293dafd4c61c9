//! The comparison as a table for the terminal.

use std::fmt::Write as _;

use super::comparison::{Comparison, PASSES, PassReport};
use super::format::{ms, thousands};
use super::model::Report;

/// One row an hour: requests, every store's mean response time under the default rule, the maximum over stores in each
/// pass (`*` where the objective is missed, `!` where it is harmed as well), files moved; below, what it comes to, and the
/// paper's results beside. Lines end in `\n`.
#[must_use]
pub fn comparison_table(report: &Report, comparison: &Comparison) -> String {
    let mut text = String::new();
    let names: Vec<String> =
        report.stores.iter().map(|store| store.total.name.chars().take(9).collect()).collect();
    // Writing to a String cannot fail.
    let _ = write!(text, "                 default rule: mean response, ms");
    let _ = writeln!(
        text,
        "{:>width$} | greatest of the stores, ms",
        "",
        width = (10 * names.len()).saturating_sub(35)
    );
    let _ = write!(text, "hour  requests |");
    for name in &names {
        let _ = write!(text, " {name:>9}");
    }
    let _ = writeln!(text, " |   default    static Clockwork | moves");
    for (at, period) in report.periods.iter().enumerate() {
        let _ = write!(text, "{:>4} {:>9} |", period.hour, thousands(period.requests));
        for store in &period.stores {
            let _ = write!(text, " {:>9}", ms(store.mean_response_ms));
        }
        text.push_str(" |");
        for pass in comparison.passes() {
            let _ = write!(text, "{:>10}", maximum(pass, at));
        }
        let moves = comparison.moves.iter().filter(|file| file.hour == period.hour);
        let (returned, moved): (Vec<_>, Vec<_>) = moves.partition(|file| file.by == "return");
        let _ = match (moved.len(), returned.len()) {
            (0, 0) => writeln!(text, " |"),
            (moved, 0) => writeln!(text, " | {moved:>5}"),
            (moved, returned) => writeln!(text, " | {moved:>5}, {returned} back"),
        };
    }
    summary(&mut text, comparison);
    text
}

fn maximum(pass: &PassReport, at: usize) -> String {
    let Some(period) = pass.periods.get(at) else { return "–".to_owned() };
    let mark = match (period.met, period.harmed) {
        (true, _) => ' ',
        (false, false) => '*',
        (false, true) => '!',
    };
    format!("{}{mark}", ms(period.period.max_mean_response_ms))
}

fn summary(text: &mut String, comparison: &Comparison) {
    let objective = &comparison.objective;
    let _ = writeln!(
        text,
        "\nobjective: every store at most {:.2} ms ({:.0} % of the periods); * missed, ! missed and slower than the default rule",
        objective.ms,
        objective.confidence * 100.0
    );
    for (name, pass) in PASSES.iter().zip(comparison.passes()) {
        let _ = writeln!(
            text,
            "{name:>12}: met {:>2} of {}, harmed {}, worst period {:>7} ms ({:.2} of the default rule's)",
            pass.met,
            pass.periods.len(),
            pass.harmed,
            ms(Some(pass.worst_ms)),
            pass.worst_over_base
        );
    }
    text.push('\n');
    let rows = comparison.beside_the_paper();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0).min(60);
    let _ = writeln!(text, "{:w$} | the paper | here", "", w = width(0));
    for [what, paper, here] in &rows {
        let _ = writeln!(text, "{what:w$} | {paper} | {here}", w = width(0));
    }
}
