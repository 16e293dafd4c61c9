//! Hannan's estimator: the reference's numbers, and its efficiency against exact generalised least squares.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking, as tests do")]

mod common;

use clockwork_forecaster::response::{HannanFit, HannanOptions, hannan};
use clockwork_forecaster::spectral::{SpectralModel, SpectralOptions, Width};
use clockwork_forecaster::spectrum::{Taper, WindowShape, Workspace};
use common::{assert_close, fixture, numbers};
use ndarray::{Array1, Array2, array};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

#[test]
fn reference_numbers_with_ar1_errors() {
    let v = &fixture("pieces.json")["hannan_ar9"];
    let (load, rt) = (numbers(&v["load"]), Array1::from(numbers(&v["rt"])));
    let x = Array2::from_shape_fn((load.len(), 2), |(t, j)| if j == 0 { 1.0 } else { load[t] });
    let fit = hannan(rt.view(), x.view(), HannanOptions::default(), &mut Workspace::new()).unwrap();
    assert_close("least squares", &fit.least_squares.to_vec(), &numbers(&v["ols"]), 1e-6);
    assert_close("coefficients", &fit.coefficients.to_vec(), &numbers(&v["beta"]), 1e-6);
    let covariance: Vec<f64> = v["cov"].as_array().unwrap().iter().flat_map(numbers).collect();
    assert_close("covariance", &fit.covariance.iter().copied().collect::<Vec<_>>(), &covariance, 1e-6);
    assert_close("variance", &[fit.variance], &[v["s2"].as_f64().unwrap()], 1e-6);
}

/// `u_t = a u_{t-1} + b u_{t-2} + e_t + m e_{t-1}`, e of variance 1.
#[derive(Clone, Copy)]
struct Errors {
    a: f64,
    b: f64,
    m: f64,
}

impl Errors {
    fn draw(self, n: usize, rng: &mut ChaCha8Rng) -> Vec<f64> {
        let e: Vec<f64> = (0..n + 501).map(|_| StandardNormal.sample(rng)).collect();
        let mut u = vec![0.0; n + 501];
        for t in 2..u.len() {
            u[t] = self.a * u[t - 1] + self.b * u[t - 2] + e[t] + self.m * e[t - 1];
        }
        u.split_off(501)
    }

    /// Exact whitening: innovations of the Kalman filter over their deviations, for each column alike.
    fn whiten(self, columns: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let (a, b, m) = (self.a, self.b, self.m);
        let mut p = self.stationary_covariance();
        let mut states = vec![[0.0f64; 2]; columns.len()];
        let mut out = vec![Vec::new(); columns.len()];
        for t in 0..columns[0].len() {
            let f = p[0][0];
            let k = [(a * p[0][0] + p[0][1]) / f, b * p[0][0] / f];
            for ((column, state), out) in columns.iter().zip(&mut states).zip(&mut out) {
                let v = column[t] - state[0];
                out.push(v / f.sqrt());
                *state = [a * state[0] + state[1] + k[0] * v, b * state[0] + k[1] * v];
            }
            // P <- T P T' + R R' - K F K', T = [a 1; b 0], R = [1 m]'.
            let t00 = a * a * p[0][0] + 2.0 * a * p[0][1] + p[1][1] + 1.0 - k[0] * k[0] * f;
            let t01 = b * (a * p[0][0] + p[0][1]) + m - k[0] * k[1] * f;
            let t11 = b * b * p[0][0] + m * m - k[1] * k[1] * f;
            p = [[t00, t01], [t01, t11]];
        }
        out
    }

    /// Fixed point of P = T P T' + R R'.
    fn stationary_covariance(self) -> [[f64; 2]; 2] {
        let (a, b, m) = (self.a, self.b, self.m);
        let mut p = [[1.0, m], [m, m * m]];
        for _ in 0..20_000 {
            p = [
                [a * a * p[0][0] + 2.0 * a * p[0][1] + p[1][1] + 1.0, b * (a * p[0][0] + p[0][1]) + m],
                [b * (a * p[0][0] + p[0][1]) + m, b * b * p[0][0] + m * m],
            ];
        }
        p
    }
}

/// Slope of the least squares line on a constant and one regressor.
fn slope(ones: &[f64], x: &[f64], y: &[f64]) -> f64 {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let (s11, s1x, sxx) = (dot(ones, ones), dot(ones, x), dot(x, x));
    (s11 * dot(x, y) - s1x * dot(ones, y)) / (s11 * sxx - s1x * s1x)
}

fn rms(x: &[f64]) -> f64 {
    (x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64).sqrt()
}

fn spread(x: &[f64]) -> f64 {
    let mean = x.iter().sum::<f64>() / x.len() as f64;
    rms(&x.iter().map(|v| v - mean).collect::<Vec<_>>())
}

/// What paired draws of one error process gave.
struct Outcome {
    variance_ratio: f64,
    coverage95: f64,
    next_hour: f64,
}

fn measure(errors: Errors, passes: usize, draws: usize) -> Outcome {
    let periods = 672;
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let mut ws = Workspace::new();
    let (mut ours, mut exact, mut covered, mut next) = (Vec::new(), Vec::new(), 0.0, Vec::new());
    let noise = Errors { a: 0.6, b: 0.0, m: 0.0 };
    for _ in 0..draws {
        let load: Vec<f64> = noise
            .draw(periods + 1, &mut rng)
            .iter()
            .enumerate()
            .map(|(t, e)| 1.0 + 0.4 * (2.0 * std::f64::consts::PI * (t as f64 - 8.0) / 24.0).sin() + 0.12 * e)
            .collect();
        let u = errors.draw(periods + 1, &mut rng);
        let y: Vec<f64> = load.iter().zip(&u).map(|(x, u)| 2.0 + 3.0 * x + u).collect();
        let x = Array2::from_shape_fn((periods, 2), |(t, j)| if j == 0 { 1.0 } else { load[t] });
        let target = Array1::from(y[..periods].to_vec());
        let options = HannanOptions { passes, ..HannanOptions::default() };
        let fit = hannan(target.view(), x.view(), options, &mut ws).unwrap();
        let white = errors.whiten(&[vec![1.0; periods], load[..periods].to_vec(), y[..periods].to_vec()]);
        exact.push(slope(&white[0], &white[1], &white[2]) - 3.0);
        ours.push(fit.coefficients[1] - 3.0);
        covered +=
            f64::from(u8::from((fit.coefficients[1] - 3.0).abs() < 1.96 * fit.covariance[[1, 1]].sqrt()));
        next.push(next_hour_error(&fit, &array![1.0, load[periods]], y[periods], &mut ws));
    }
    Outcome {
        variance_ratio: (spread(&ours) / spread(&exact)).powi(2),
        coverage95: covered / draws as f64,
        next_hour: rms(&next),
    }
}

/// Error of the next period's prediction with the residual forecast through its spectrum.
fn next_hour_error(fit: &HannanFit, x: &Array1<f64>, y: f64, ws: &mut Workspace) -> f64 {
    let level = fit.residuals.iter().sum::<f64>() / fit.residuals.len() as f64;
    let u: Vec<f64> = fit.residuals.iter().map(|u| u - level).collect();
    let options = SpectralOptions {
        taper: Taper::Cosine { percent: 10 },
        shape: WindowShape::Tent,
        width: Width::ChosenFrom(vec![5, 9, 15, 21, 31, 45, 61]),
    };
    let m = SpectralModel::fit(&u, &options, ws).unwrap();
    let e = m.innovations(&u, ws);
    y - fit.coefficients.dot(x) - level - m.forecast(&e, 1)[0]
}

fn check(name: &str, errors: Errors, passes: usize, reference: (f64, f64)) {
    let got = measure(errors, passes, 600);
    eprintln!(
        "{name}: variance over exact GLS {:.3}, coverage {:.3}, next hour {:.3}",
        got.variance_ratio, got.coverage95, got.next_hour
    );
    assert!(
        (got.variance_ratio - reference.0).abs() <= 0.04,
        "{name}: variance ratio {}",
        got.variance_ratio
    );
    assert!(got.coverage95 >= 0.91, "{name}: coverage {}", got.coverage95);
    // Half a unit of the reference's last digit, and twice the sampling deviation of a root mean square of 600.
    assert!(got.next_hour <= reference.1 + 0.005 + 2.0 * 0.029, "{name}: next hour {}", got.next_hour);
}

#[test]
fn efficiency_with_ar_half() {
    check("AR .5", Errors { a: 0.5, b: 0.0, m: 0.0 }, 1, (1.04, 1.03));
}

#[test]
fn efficiency_with_ar_nine_tenths() {
    check("AR .9", Errors { a: 0.9, b: 0.0, m: 0.0 }, 1, (1.07, 1.06));
}

#[test]
fn efficiency_with_cyclic_errors_and_two_passes() {
    check("cyclic", Errors { a: 1.3, b: -0.6, m: 0.4 }, 2, (1.20, 1.04));
}
