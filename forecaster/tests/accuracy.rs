//! Accuracy on data that is not part of the project: skipped where it is absent.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking, as tests do")]

mod common;

use std::time::Instant;

use clockwork_forecaster::backtest::{Backtest, Case, PINBALL_LEVELS, Report, Walk, measures, read, run};
use clockwork_forecaster::demand::{Batch, Demand, Share, Total};
use clockwork_forecaster::spectrum::Workspace;
use clockwork_forecaster::{Cycles, Series};
use common::{rows, shared, text};

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
    for peer in &report.peers {
        assert!(ours.owa < peer.owa, "{peer:?}");
    }
    let plain = measured(&hourly(Demand::plain(None), Walk::FixedOrigin { horizon: 48 }, false), &cases).ours;
    assert!(ours.mase < plain.mase && ours.smape < plain.smape);
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

/// Files of the campus trace with a mean of one request in 30 hours and more in the hours before 622.
fn campus_files() -> Option<(Vec<f64>, Vec<Vec<f64>>)> {
    let text = text(&shared("calgary/hourly_A_1994-10-24_1995-01-31.csv.gz")?);
    let mut files = vec![vec![0.0; 2400]; 2999];
    let mut total = vec![0.0; 2400];
    for row in rows(&text) {
        let (file, hour, count) = (
            row[0].parse::<usize>().unwrap(),
            row[1].parse::<usize>().unwrap(),
            row[2].parse::<f64>().unwrap(),
        );
        files[file][hour] = count;
        total[hour] += count;
    }
    files.retain(|f| f[..622].iter().sum::<f64>() >= 622.0 / 30.0);
    Some((total, files))
}

#[test]
fn campus_files_one_step_by_their_share_of_the_total() {
    let Some((total, files)) = campus_files() else { return };
    let mut ws = Workspace::new();
    let series = Series::hourly(total.clone()).unwrap();
    let mut expected = vec![f64::NAN; 622];
    for at in (622..2400).step_by(24) {
        let fitted = Demand::recommended().fit(&series.head(at), &mut ws).unwrap();
        if at == 622 {
            expected = fitted.fitted_means();
        }
        expected.extend_from_slice(fitted.one_step(&series.head(at + 24), &mut ws).unwrap().mean());
    }
    let (mut squares, mut pinball, mut n) = (0.0, 0.0, 0.0);
    let mut growing = Total::new(&total[..622], &expected[..622], Cycles::HOURLY, files.len()).unwrap();
    let mut shares: Vec<Share> = files.iter().map(|f| Share::fit(&f[..622], &growing).unwrap()).collect();
    for t in 622..2400 {
        for (share, file) in shares.iter().zip(&files) {
            let f = share.forecast(&growing, &expected[t..=t]);
            squares += (file[t] - f.mean()[0]).powi(2);
            for level in PINBALL_LEVELS {
                pinball += measures::pinball(&file[t..=t], &f.quantile(level).unwrap(), level) / 4.0;
            }
            n += 1.0;
        }
        growing.push(total[t], expected[t]);
        for (share, file) in shares.iter_mut().zip(&files) {
            share.observe(file[t], &growing).unwrap();
        }
    }
    let (rmse, pinball) = ((squares / n).sqrt(), pinball / n);
    eprintln!("{} files: RMSE {rmse:.4}, pinball {pinball:.5}", files.len());
    assert_eq!(files.len(), 299);
    assert!(rmse <= 0.713 * 1.02 && pinball <= 0.0467 * 1.02, "RMSE {rmse}, pinball {pinball}");
}

#[test]
fn hot_campus_files_gain_from_averaging_their_own_forecast_with_their_share() {
    let Some((total, mut files)) = campus_files() else { return };
    let requests = |f: &Vec<f64>| f[..622].iter().sum::<f64>();
    files.sort_by(|a, b| requests(b).total_cmp(&requests(a)));
    files.truncate(20);
    let mut ws = Workspace::new();
    let series = Series::hourly(total).unwrap();
    let [mut own, mut share, mut both] = [(0.0, 0.0); 3];
    for at in (622..2400).step_by(24) {
        let (batch, _) = Batch::new(Demand::recommended(), &series.head(at), 2999, 24, &mut ws).unwrap();
        for file in &files {
            let alone =
                Demand::recommended().fit(&Series::hourly(file[..at].to_vec()).unwrap(), &mut ws).unwrap();
            let actual = &file[at..(at + 24).min(2400)];
            for (sums, f) in [
                (&mut own, alone.forecast(24).unwrap()),
                (&mut share, batch.forecast(&file[..at], false, &mut ws).unwrap()),
                (&mut both, batch.forecast(&file[..at], true, &mut ws).unwrap()),
            ] {
                sums.0 += measures::rmse(actual, f.mean()).powi(2);
                for level in PINBALL_LEVELS {
                    sums.1 += measures::pinball(actual, &f.quantile(level).unwrap(), level) / 4.0;
                }
            }
        }
    }
    let blocks = 20.0 * 75.0;
    for (name, sums) in [("own", own), ("share", share), ("both", both)] {
        eprintln!(
            "20 hottest files, up to a day ahead, {name}: RMSE {:.3}, pinball {:.4}",
            (sums.0 / blocks).sqrt(),
            sums.1 / blocks
        );
    }
    assert!(both.0 < own.0 && both.1 < own.1);
}
