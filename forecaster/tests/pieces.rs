//! Every step of the numerics against the reference implementation's numbers.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking, as tests do")]

mod common;

use std::f64::consts::PI;

use clockwork_forecaster::spectral::{Factor, SpectralModel, SpectralOptions};
use clockwork_forecaster::spectrum::{Taper, Window, WindowShape, Workspace, log_bias};
use common::{assert_close, fixture, numbers};

#[test]
fn tapers_windows_and_log_bias() {
    let v = fixture("pieces.json");
    let cosine = Taper::Cosine { percent: 10 }.weights(100);
    assert_close("cosine taper", &cosine, &numbers(&v["taper_cos_100_p10"]), 1e-12);
    let trapezoid = Taper::Trapezoid { percent: 25 }.weights(100);
    assert_close("trapezoid taper", &trapezoid, &numbers(&v["taper_trap_100_p25"]), 1e-12);
    let tent = Window::new(WindowShape::Tent, 9).weights();
    assert_close("tent window", &tent, &numbers(&v["window_tent_9"]), 1e-12);
    for (x, psi) in v["digamma"].as_object().unwrap() {
        let nu = 2.0 * x.parse::<f64>().unwrap();
        assert_close("digamma", &[log_bias(nu) + (nu / 2.0).ln()], &[psi.as_f64().unwrap()], 1e-10);
    }
}

#[test]
fn padded_periodogram_of_a_tapered_series() {
    let v = fixture("pieces.json");
    let y = numbers(&v["ar1_series"]);
    let mut ws = Workspace::new();
    let taper = ws.taper(Taper::Cosine { percent: 10 }, y.len());
    let half = ws.periodogram(&y, 1024, &taper);
    let circle: Vec<f64> = (0..1024).map(|j: usize| half[j.min(1024 - j)]).collect();
    assert_close("periodogram", &circle, &numbers(&v["ar1_periodogram_1024_cos10"]), 1e-10);
}

#[test]
fn exact_factors_of_an_arma_spectrum() {
    let v = &fixture("pieces.json")["factor_arma21_s2_2.25"];
    let n = 2048;
    let density: Vec<f64> = (0..=n / 2)
        .map(|j| {
            let w = 2.0 * PI * j as f64 / n as f64;
            let square = |a: f64, b: f64| {
                let (re, im) = (1.0 + a * w.cos() + b * (2.0 * w).cos(), a * w.sin() + b * (2.0 * w).sin());
                re * re + im * im
            };
            square(0.4, 0.0) / square(-1.2, 0.5) * 2.25 / (2.0 * PI)
        })
        .collect();
    let factor = Factor::of(&density, n, &mut Workspace::new()).unwrap();
    assert_close("MA weights", &factor.ma, &numbers(&v["c"]), 1e-8);
    assert_close("AR weights", &factor.ar, &numbers(&v["a"]), 1e-8);
    assert_close("variance", &[factor.innovation_variance], &[v["s2"].as_f64().unwrap()], 1e-8);
}

#[test]
fn spectral_fits_and_forecasts() {
    let v = fixture("pieces.json");
    let y = numbers(&v["ar1_series"]);
    let mut ws = Workspace::new();
    let fits =
        [("ar1_fit_rats_default", SpectralOptions::rats()), ("ar1_fit_tent_loo", SpectralOptions::plain())];
    for (name, options) in fits {
        let m = SpectralModel::fit(&y, &options, &mut ws).unwrap();
        let r = &v[name];
        let e = m.innovations(&y, &mut ws);
        assert_eq!(
            (m.padded as u64, m.window_ordinates as u64),
            (r["N"].as_u64().unwrap(), r["width"].as_u64().unwrap())
        );
        assert_close("degrees of freedom", &[m.degrees_of_freedom], &[r["nu"].as_f64().unwrap()], 1e-8);
        assert_close("variance", &[m.innovation_variance], &[r["s2"].as_f64().unwrap()], 1e-8);
        assert_close("MA weights", &m.ma, &numbers(&r["c"]), 1e-8);
        assert_close("AR weights", &m.ar, &numbers(&r["a"]), 1e-8);
        assert_close("innovations", &e, &numbers(&r["innovations"]), 1e-8);
        assert_close("forecast", &m.forecast(&e, 48), &numbers(&r["forecast"]), 1e-8);
        assert_close("deviations", &m.deviations(48, &[]), &numbers(&r["sd"]), 1e-8);
    }
}
