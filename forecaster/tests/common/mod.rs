//! What the integration tests share: fixtures, the comparison rule, and data that is not part of the project.
#![allow(dead_code, reason = "every test binary uses its own part of this module")]

use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// A fixture beside the tests.
pub(crate) fn fixture(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap()
}

/// Numbers of a JSON array.
pub(crate) fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect()
}

/// Asserts that `ours` begins like `reference`: largest difference over the reference's largest value.
pub(crate) fn assert_close(what: &str, ours: &[f64], reference: &[f64], tolerance: f64) {
    assert!(ours.len() >= reference.len(), "{what}: {} values, {} wanted", ours.len(), reference.len());
    let largest = reference.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    let (mut worst, mut at) = (0.0f64, 0);
    for (i, (a, b)) in ours.iter().zip(reference).enumerate() {
        let off = (a - b).abs();
        assert!(off.is_finite(), "{what}: value {i} is {a}, reference {b}");
        if off > worst {
            (worst, at) = (off, i);
        }
    }
    let relative = if largest > 0.0 { worst / largest } else { worst };
    assert!(
        relative <= tolerance,
        "{what}: value {at} is {} for {}, {relative:e} of the largest",
        ours[at],
        reference[at]
    );
}

/// The data beside the workspace (or where env `CLOCKWORK_SHARED` points), if it is there. Absent: says so and skips. In CI (env `CI`) a directory beside the
/// workspace whose data cannot be used is a failure, not a skip.
pub(crate) fn shared(file: &str) -> Option<PathBuf> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let beside = || workspace.parent().unwrap().join("shared");
    let shared = std::env::var_os("CLOCKWORK_SHARED").map_or_else(beside, PathBuf::from);
    let path = shared.join("data").join(file);
    if path.is_file() {
        return Some(path);
    }
    assert!(std::env::var_os("CI").is_none() || !shared.exists(), "{} is not there", path.display());
    eprintln!("skipped: no {} beside the workspace", Path::new("shared/data").join(file).display());
    None
}

/// Text of a plain or gz file.
pub(crate) fn text(path: &Path) -> String {
    let bytes = std::fs::read(path).unwrap();
    let mut out = String::new();
    if path.extension().is_some_and(|e| e == "gz") {
        flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut out).unwrap();
    } else {
        (&bytes[..]).read_to_string(&mut out).unwrap();
    }
    out
}

/// Fields of the lines after the header, quotes removed.
pub(crate) fn rows(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines().skip(1).map(|line| line.split(',').map(|f| f.trim_matches('"')).collect())
}

/// An M4 series (empty cells left out).
pub(crate) fn m4(id: &str) -> Option<Vec<f64>> {
    let text = text(&shared("m4/Hourly-train-odd.csv.gz")?);
    let row = rows(&text).find(|r| r[0] == id).unwrap();
    Some(row[1..].iter().filter(|v| !v.is_empty()).map(|v| v.parse().unwrap()).collect())
}

/// Requests an hour of the campus trace, all files.
pub(crate) fn campus() -> Option<Vec<f64>> {
    let text = text(&shared("calgary/hourly_A_1994-10-24_1995-01-31.csv.gz")?);
    let mut total = vec![0.0; 2400];
    for row in rows(&text) {
        total[row[1].parse::<usize>().unwrap()] += row[2].parse::<f64>().unwrap();
    }
    Some(total)
}

/// The series that a reference row names, if its data is there.
pub(crate) fn named_series(name: &str) -> Option<Vec<f64>> {
    if let Some(id) = name.strip_prefix("m4/") {
        return m4(id);
    }
    let hours = name.strip_prefix("calgary_A total, first ").unwrap().strip_suffix(" h").unwrap();
    let mut total = campus()?;
    total.truncate(hours.parse().unwrap());
    Some(total)
}
