//! The plain method (METHOD 2a) against the reference implementation's numbers.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking, as tests do")]

mod common;

use clockwork_forecaster::Cycles;
use clockwork_forecaster::demand::{PlainDemand, Transform};
use clockwork_forecaster::spectrum::Workspace;
use common::{assert_close, fixture, named_series, numbers};
use serde_json::Value;

fn check(row: &Value, x: &[f64], ws: &mut Workspace) {
    let transform = match row["transform"].as_str().unwrap() {
        "log" => Transform::Log,
        "log1p" => Transform::LogOnePlus,
        _ => Transform::Sqrt,
    };
    let m = PlainDemand::fit(x, transform, Cycles::HOURLY, ws).unwrap();
    let (f, sd) = m.forecast_transformed(48).unwrap();
    let name = row["series"].as_str().unwrap_or("synthetic");
    assert_eq!(m.spectrum.width, row["width"].as_u64().map(|w| w as usize), "{name}");
    assert_close(&format!("{name} phi"), &m.ar.coefficients, &numbers(&row["phi"]), 1e-6);
    assert_close(
        &format!("{name} s2"),
        &[m.spectrum.innovation_variance],
        &[row["s2"].as_f64().unwrap()],
        1e-6,
    );
    assert_close(&format!("{name} forecast"), &f, &numbers(&row["forecast"]), 1e-6);
    assert_close(&format!("{name} sd"), &sd, &numbers(&row["sd"]), 1e-6);
}

#[test]
fn synthetic_counts() {
    let row = &fixture("synthetic.json")["plain_synthetic"];
    check(row, &numbers(&row["input"]), &mut Workspace::new());
}

#[test]
fn real_series() {
    let mut ws = Workspace::new();
    for row in fixture("series.json")["demand"].as_array().unwrap() {
        let Some(x) = named_series(row["series"].as_str().unwrap()) else { return };
        check(row, &x, &mut ws);
    }
}
