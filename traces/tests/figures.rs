//! The bundled traces against the figures that they were made from, where those lie beside the repository.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use clockwork_traces::bundled;
use clockwork_traces::format::TraceFiles;
use std::path::PathBuf;

/// The directory of figures, or `None` (with a word about it) where there is none.
fn figures() -> Option<PathBuf> {
    let shared = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared");
    let figures = shared.join("figures");
    if figures.is_dir() {
        return Some(figures);
    }
    assert!(
        std::env::var_os("CI").is_none() || !shared.exists(),
        "{} exists, but has no figures: a skip is not allowed in CI",
        shared.display()
    );
    eprintln!("skipped: no figures at {}", figures.display());
    None
}

fn rows(path: &std::path::Path) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

#[test]
fn hourly_totals_are_those_of_the_figures() {
    let Some(figures) = figures() else { return };
    let rows = rows(&figures.join("hourly_totals.csv"));
    for (column, name) in rows[0].iter().enumerate().skip(1) {
        let mut totals: Vec<Option<u64>> = rows[1..].iter().map(|row| row[column].parse().ok()).collect();
        while totals.last() == Some(&None) {
            totals.pop();
        }
        assert_eq!(bundled::trace(name).unwrap().hours, totals, "{name}");
    }
}

#[test]
fn campus_files_are_those_of_the_figures() {
    let Some(figures) = figures() else { return };
    let rows = rows(&figures.join("campus_weekly_requests.csv"));
    let TraceFiles::Counted { weeks, files } = bundled::trace("campus").unwrap().files else {
        panic!("the files of campus are counted");
    };
    assert_eq!((weeks, files.len()), (rows[0].len() - 2, rows.len() - 1));
    for (file, row) in files.iter().zip(&rows[1..]) {
        let mut found = vec![u64::from(file.id), file.bytes];
        found.extend(&file.requests);
        let wanted: Vec<u64> = row.iter().map(|word| word.parse().unwrap()).collect();
        assert_eq!(found, wanted);
    }
}
