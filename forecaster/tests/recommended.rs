//! The recommended forecaster (METHOD 2b) against the reference implementation's numbers.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking, as tests do")]

mod common;

use clockwork_forecaster::Series;
use clockwork_forecaster::demand::{Demand, Rung};
use clockwork_forecaster::spectrum::Workspace;
use common::{assert_close, fixture, named_series, numbers};
use serde_json::Value;

fn check(row: &Value, x: Vec<f64>, ws: &mut Workspace) {
    let name = row["series"].as_str().unwrap();
    let fitted = Demand::recommended().fit(&Series::hourly(x).unwrap(), ws).unwrap();
    let forecast = fitted.forecast(48).unwrap();
    let close = |what: &str, ours: &[f64], key: &Value| {
        assert_close(&format!("{name} {what}"), ours, &numbers(key), 1e-6);
    };
    close("median", forecast.median(), &row["median"]);
    if row["members"].is_null() {
        assert_eq!(fitted.rung(), Rung::DayBefore);
        return;
    }
    let members = row["members"].as_array().unwrap();
    assert_eq!(fitted.members().count(), members.len(), "{name}");
    for ((member, _), reference) in fitted.members().zip(members) {
        close("phi", &member.ar.coefficients, &reference["phi"]);
        close("c", &member.spectrum.ma, &reference["c"]);
        assert_close(
            "s2",
            &[member.spectrum.innovation_variance],
            &[reference["s2"].as_f64().unwrap()],
            1e-6,
        );
    }
    let weights: Vec<f64> = fitted.members().map(|(_, k)| k).collect();
    close("weights", &weights, &row["weights"]);
    assert!((forecast.t_weight() - row["b"].as_f64().unwrap()).abs() < 1e-6, "{name} b");
    close("f", forecast.centre(), &row["f"]);
    close("sd", forecast.deviation(), &row["sd"]);
    close("mean", forecast.mean(), &row["mean"]);
    for (key, level) in [("q17", 0.17), ("q83", 0.83), ("q975", 0.975)] {
        close(key, &forecast.quantile(level).unwrap(), &row[key]);
    }
}

#[test]
fn synthetic_counts_at_every_length_of_the_ladder() {
    let mut ws = Workspace::new();
    for row in fixture("synthetic.json")["recommended_synthetic"].as_array().unwrap() {
        check(row, numbers(&row["input"]), &mut ws);
    }
}

#[test]
fn real_series() {
    let mut ws = Workspace::new();
    for row in fixture("series.json")["recommended"].as_array().unwrap() {
        let Some(x) = named_series(row["series"].as_str().unwrap()) else { return };
        check(row, x, &mut ws);
    }
}

#[test]
fn observing_one_by_one_is_the_same_as_one_step_forecasts_in_one_go() {
    let row = &fixture("synthetic.json")["recommended_synthetic"][5];
    let x = numbers(&row["input"]);
    let mut ws = Workspace::new();
    for (fitted_to, plain) in
        [(40, false), (90, false), (180, false), (270, false), (600, false), (600, true)]
    {
        let demand = if plain { Demand::plain(None) } else { Demand::recommended() };
        let mut series = Series::hourly(x[..fitted_to + 60].to_vec()).unwrap();
        let mut fitted = demand.fit(&series.head(fitted_to), &mut ws).unwrap();
        series.push(f64::NAN).unwrap();
        let at_once = fitted.one_step(&series, &mut ws).unwrap();
        let mut stepped = Vec::new();
        for value in &series.values()[fitted_to..] {
            stepped.push(fitted.forecast(1).unwrap().median()[0]);
            fitted.observe(*value).unwrap();
        }
        // The MA weights that forecast and the AR weights that whiten are each other's inverse up to what both lose
        // beyond the end of the padded circle, which is the more the shorter the history.
        assert_close(&format!("{fitted_to} hours"), at_once.median(), &stepped, 1e-6);
    }
}
