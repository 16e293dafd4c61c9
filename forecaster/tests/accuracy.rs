//! Accuracy on data that is not part of the project: skipped where it is absent.

mod common;

use std::time::Instant;

use clockwork_forecaster::backtest::{Backtest, Case, Report, Walk, read, run};
use clockwork_forecaster::demand::Demand;
use common::{shared, text};

fn hourly(demand: Demand, walk: Walk, peers: bool) -> Backtest {
    Backtest { demand, walk, season: 24, period_seconds: 3600, peers }
}

#[allow(clippy::disallowed_methods, reason = "the test is the caller that owns the clock")]
fn measured(backtest: &Backtest, cases: &[Case]) -> Report {
    let began = Instant::now();
    let report = run(backtest, cases, &mut || began.elapsed().as_secs_f64()).unwrap();
    eprintln!("{:?}", report.ours);
    report.peers.iter().for_each(|peer| eprintln!("{peer:?}"));
    report
}

fn m4_odd() -> Option<Vec<Case>> {
    let (train, test) = (shared("m4/Hourly-train-odd.csv.gz")?, shared("m4/Hourly-test-odd.csv.gz")?);
    Some(read::m4_cases(text(&train).as_bytes(), text(&test).as_bytes()).unwrap())
}

#[test]
fn m4_hourly_48_ahead() {
    let Some(cases) = m4_odd() else { return };
    let report = measured(&hourly(Demand::recommended(), Walk::FixedOrigin { horizon: 48 }, true), &cases);
    let naive2 = &report.peers[2];
    assert!((naive2.smape - 18.224).abs() < 0.001 && (naive2.mase - 2.432).abs() < 0.001, "{naive2:?}");
    let ours = &report.ours;
    assert_eq!(ours.series, 207);
    assert!(ours.owa <= 0.3805, "OWA {}", ours.owa);
    assert!((0.62..=0.69).contains(&ours.coverage66), "coverage {}", ours.coverage66);
    assert!((0.93..=0.97).contains(&ours.coverage95), "coverage {}", ours.coverage95);
    for peer in report.peers {
        assert!(ours.owa < peer.owa, "{peer:?}");
    }
}

#[test]
fn m4_hourly_one_step() {
    let Some(cases) = m4_odd() else { return };
    let report = measured(&hourly(Demand::recommended(), Walk::OneStep { refit_periods: 48 }, false), &cases);
    assert!(report.ours.mase <= 0.363, "MASE {}", report.ours.mase);
}

#[test]
fn campus_total_one_step_refitted_daily() {
    let Some(path) = shared("totals/campus_a_hourly.csv") else { return };
    let series = read::hourly(text(&path).as_bytes()).unwrap();
    let cases: Vec<Case> = series.into_iter().map(|(name, values)| Case::split(name, values, 622)).collect();
    let report = measured(&hourly(Demand::recommended(), Walk::OneStep { refit_periods: 24 }, true), &cases);
    assert!(report.ours.mae <= 25.8, "MAE {}", report.ours.mae);
    for peer in report.peers {
        assert!(report.ours.mae < peer.mae, "{peer:?}");
    }
}
