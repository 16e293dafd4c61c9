//! The response model against queues whose truth is known, and over broken measurements.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking, as tests do")]

use clockwork_forecaster::ForecastError;
use clockwork_forecaster::response::{
    FittedResponse, LoadForecast, Observation, ResponseModel, ResponseSource,
};
use clockwork_forecaster::spectrum::Workspace;
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

/// Mean response time of an M/M/c system with service time 1, exactly (Erlang C); `None` at and above saturation.
fn erlang(load: f64, capacity: f64, servers: u32) -> Option<f64> {
    let rho = load / capacity;
    if rho >= 1.0 {
        return None;
    }
    let offered = rho * f64::from(servers);
    let (mut term, mut sum) = (1.0, 0.0);
    for k in 0..servers {
        sum += term;
        term *= offered / f64::from(k + 1);
    }
    let waits = term / (1.0 - rho) / (sum + term / (1.0 - rho));
    Some(1.0 + waits / (f64::from(servers) * (1.0 - rho)))
}

struct Store {
    capacity: f64,
    servers: u32,
}

impl Store {
    fn response(&self, load: f64) -> f64 {
        erlang(load, self.capacity, self.servers)
            .unwrap_or(64.0 / f64::from(self.servers))
            .min(64.0 / f64::from(self.servers))
    }

    /// Largest load with a response time of at most `objective`.
    fn load_at(&self, objective: f64) -> f64 {
        let (mut low, mut high) = (0.0, self.capacity);
        for _ in 0..60 {
            let middle = 0.5 * (low + high);
            if self.response(middle) <= objective { low = middle } else { high = middle }
        }
        low
    }

    /// Periods under a daily load whose peak is about `peak` of the capacity, residuals an AR(1) of deviation .1.
    fn history(&self, periods: usize, peak: f64, rng: &mut ChaCha8Rng) -> Vec<Observation> {
        let mut u = 0.0;
        (0..periods)
            .map(|t| {
                let mut normal = || -> f64 { StandardNormal.sample(rng) };
                let day = 0.6 - 0.4 * (2.0 * std::f64::consts::PI * t as f64 / 24.0).cos();
                let load = self.capacity * (peak * day * (0.1 * normal()).exp()).min(0.97);
                u = 0.6 * u + 0.08 * normal();
                Observation { load, response: self.response(load) * f64::exp(u), saturated: false }
            })
            .collect()
    }
}

fn quantiles(mut x: Vec<f64>) -> (f64, f64, f64) {
    x.sort_by(f64::total_cmp);
    let at = |p: f64| x[((x.len() - 1) as f64 * p).round() as usize];
    (at(0.1), at(0.5), at(0.9))
}

/// Predicted over true load at an objective of 2.5 unloaded response times (for single servers; where the knee is
/// later, for several), over stores of unlike size and history.
fn ratios(periods: usize, servers: &[u32], draws: usize) -> (f64, f64, f64) {
    let mut rng = ChaCha8Rng::seed_from_u64(periods as u64);
    let mut ws = Workspace::new();
    let mut ratios = Vec::new();
    for draw in 0..draws {
        let store =
            Store { capacity: 1000.0 * rng.random_range(0.5..5.0), servers: servers[draw % servers.len()] };
        let objective = if store.servers == 1 { 2.5 } else { 1.6 };
        let peak = rng.random_range(0.4..0.9);
        let history = store.history(periods, peak, &mut rng);
        let fitted = ResponseModel::default().fit(&history, &mut ws).unwrap();
        ratios.push(fitted.load_at(objective, 0.0, 0.0) / store.load_at(objective));
    }
    quantiles(ratios)
}

#[test]
fn predicted_load_at_the_objective_is_not_far_over_the_truth() {
    for periods in [24, 168, 672] {
        let single = ratios(periods, &[1], 60);
        let several = ratios(periods, &[2, 4, 8], 60);
        eprintln!("{periods} periods, predicted over true load at the objective (10/50/90 %):");
        eprintln!("  one server {single:.2?}, two to eight {several:.2?}");
        for (low, middle, high) in [single, several] {
            assert!(low > 0.65 && middle > 0.85, "{periods} periods: {low} {middle}");
            assert!(middle < 1.1 && high < 1.2, "{periods} periods: {middle} {high}");
        }
    }
}

#[test]
fn every_prediction_says_what_made_it() {
    let store = Store { capacity: 1000.0, servers: 1 };
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut ws = Workspace::new();
    let history = store.history(400, 0.6, &mut rng);
    let fitted = ResponseModel::default().fit(&history, &mut ws).unwrap();
    let source = |load: f64, fitted: &FittedResponse| {
        fitted.predict(LoadForecast { load, log_deviation: 0.1, ahead: 1 }, Some(3.0)).source
    };
    let seen = fitted.load_max();
    assert_eq!(source(0.5 * seen, &fitted), ResponseSource::BestFit);
    assert_eq!(source(1.1 * seen, &fitted), ResponseSource::Envelope);
    let far = fitted.predict(LoadForecast { load: 2.01 * seen, log_deviation: 0.0, ahead: 1 }, Some(100.0));
    assert_eq!(far.source, ResponseSource::LimitOfTrust);
    let few = ResponseModel::default().fit(&history[..5], &mut ws).unwrap();
    assert_eq!(source(10.0, &few), ResponseSource::FewPeriods);
    let none = Observation { load: 3.0, response: f64::NAN, saturated: false };
    assert_eq!(ResponseModel::default().fit(&[none], &mut ws), Err(ForecastError::Empty));
}

#[test]
fn the_residual_forecast_narrows_the_next_hour() {
    let store = Store { capacity: 1000.0, servers: 1 };
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let mut ws = Workspace::new();
    let (mut with, mut without, mut inside, mut n) = (0.0, 0.0, 0.0, 0.0);
    let history = store.history(1000, 0.6, &mut rng);
    for t in (300..1000).step_by(7) {
        let fitted = ResponseModel::default().fit(&history[..t], &mut ws).unwrap();
        let at = |ahead| LoadForecast { load: history[t].load, log_deviation: 0.0, ahead };
        let (near, far) = (fitted.predict(at(1), None), fitted.predict(at(48), None));
        let error = |median: f64| (history[t].response / median).ln().powi(2);
        with += error(near.median);
        without += error(far.median);
        inside += f64::from(u8::from(history[t].response <= near.quantile(0.4125)));
        n += 1.0;
    }
    eprintln!(
        "log error with residual forecast {:.4}, without {:.4}; below the 66 % limit {:.2}",
        f64::sqrt(with / n),
        f64::sqrt(without / n),
        inside / n
    );
    // The innovation's deviation is .08, the residual's .1.
    assert!((with / n).sqrt() < 0.09 && with < without);
    assert!((0.55..0.8).contains(&(inside / n)), "{}", inside / n);
}

#[test]
fn periods_observed_move_the_residual_and_what_is_trusted() {
    let store = Store { capacity: 1000.0, servers: 1 };
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    let mut ws = Workspace::new();
    let history = store.history(420, 0.6, &mut rng);
    let mut grown = ResponseModel::default().fit(&history[..400], &mut ws).unwrap();
    history[400..].iter().for_each(|o| grown.observe(*o, &mut ws));
    let whole = ResponseModel::default().fit(&history, &mut ws).unwrap();
    let at = |f: &FittedResponse, ahead| {
        f.predict(LoadForecast { load: 500.0, log_deviation: 0.0, ahead }, None).median
    };
    for ahead in [1, 12] {
        assert!((at(&grown, ahead) / at(&whole, ahead) - 1.0).abs() < 0.02, "{ahead}");
    }
    assert_eq!((grown.load_max(), grown.periods()), (whole.load_max(), 420));
    // A slow period at a load often seen raises the next prediction.
    let before = at(&grown, 1);
    grown.observe(Observation { load: 500.0, response: 3.0 * before, saturated: false }, &mut ws);
    assert!(at(&grown, 1) > 1.05 * before, "{} {before}", at(&grown, 1));
    // Three periods at a load never seen: what counts as seen moves.
    let slow = Observation { load: 2.0 * grown.load_max(), response: 40.0, saturated: false };
    (0..3).for_each(|_| grown.observe(slow, &mut ws));
    assert_eq!(grown.load_max(), slow.load);
    grown.observe(Observation { load: f64::INFINITY, ..slow }, &mut ws);
    assert_eq!(grown.periods(), 424);
    let loads = [100.0, 500.0];
    let table = grown.log_quantiles(&loads, &[0.1, 0.1], 0.84, Some(5.0));
    for (ahead, row) in table.iter().enumerate() {
        for (load, log) in loads.iter().zip(row) {
            let at = LoadForecast { load: *load, log_deviation: 0.1, ahead: ahead + 1 };
            assert_eq!(grown.log_quantile(at, 0.84, Some(5.0)), *log);
            // It is the quantile of the load, and the residual on top of it.
            let known = LoadForecast { log_deviation: 0.0, ..at };
            let moved = LoadForecast { load: load * 0.084f64.exp(), ..known };
            let (median, below) =
                (grown.predict(known, Some(5.0)).median, grown.predict(moved, Some(5.0)).median);
            assert!(log.exp() >= below && below >= median, "{log} {below} {median}");
            assert!(grown.log_quantile(at, -0.84, Some(5.0)) <= median.ln());
            let residual = grown.predict(known, Some(5.0)).quantile(0.84).ln();
            assert!((grown.log_quantile(known, 0.84, Some(5.0)) - residual).abs() < 1e-9);
        }
    }
}

fn observation() -> impl Strategy<Value = Observation> {
    let number = |largest: f64| prop_oneof![5 => 0.0..largest, 1 => Just(0.0), 1 => Just(f64::NAN), 1 => Just(1e15), 1 => Just(-1.0), 1 => Just(1e-9)];
    (number(1e4), number(50.0), any::<bool>()).prop_map(|(load, response, saturated)| Observation {
        load,
        response,
        saturated,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, max_shrink_iters: 50, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn predictions_are_finite_and_never_fall_with_the_load(
        history in prop::collection::vec(observation(), 0..300),
        ahead in 0usize..100,
    ) {
        let mut ws = Workspace::new();
        let Ok(fitted) = ResponseModel::default().fit(&history, &mut ws) else {
            prop_assert!(!history.iter().any(|o| o.load > 0.0 && o.response > 0.0));
            return Ok(());
        };
        let mut before = 0.0;
        for step in 0..60 {
            let load = fitted.load_max() * f64::from(step) / 20.0;
            let p = fitted.predict(LoadForecast { load, log_deviation: 0.2, ahead }, Some(5.0));
            prop_assert!(p.median.is_finite() && p.median > 0.0 && p.log_deviation.is_finite() && p.elasticity.is_finite());
            prop_assert!(p.median >= before * (1.0 - 1e-12), "{} after {before}", p.median);
            before = p.median;
        }
        prop_assert!(fitted.load_at(5.0, 0.84, 0.2).is_finite());
    }
}
