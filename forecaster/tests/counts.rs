//! Case a15 and what else must hold whatever the counts were: random, sparse, bursty, broken, of any length.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking, as tests do")]

mod common;

use clockwork_forecaster::demand::{Batch, Demand, DemandForecast, Method, Share, Total};
use clockwork_forecaster::spectrum::Workspace;
use clockwork_forecaster::{Cycles, ForecastError, Series};
use proptest::prelude::*;

const LEVELS: [f64; 7] = [0.001, 0.05, 0.17, 0.5, 0.83, 0.975, 0.999];

/// Point and bounds finite and at least zero, bounds ordered around the median.
fn assert_sound(f: &DemandForecast) {
    let sound = |v: &f64| v.is_finite() && *v >= 0.0;
    assert!(f.median().iter().all(sound), "median {:?}", f.median());
    assert!(f.mean().iter().all(sound), "mean {:?}", f.mean());
    assert_eq!(f.quantile(0.5).unwrap(), f.median());
    let quantiles: Vec<Vec<f64>> = LEVELS.iter().map(|p| f.quantile(*p).unwrap()).collect();
    for pair in quantiles.windows(2) {
        assert!(pair[1].iter().all(sound));
        assert!(
            pair[0].iter().zip(&pair[1]).all(|(low, high)| low <= high),
            "{:?} above {:?}",
            pair[0],
            pair[1]
        );
    }
}

fn counts(length: std::ops::RangeInclusive<usize>) -> impl Strategy<Value = Vec<f64>> {
    let value = prop_oneof![
        4 => (0u32..200).prop_map(f64::from),
        2 => Just(0.0),
        1 => (0u32..3).prop_map(f64::from),
    ];
    let broken = prop_oneof![
        6 => (0u32..50).prop_map(f64::from),
        2 => Just(f64::NAN),
        1 => Just(0.0),
        1 => Just(1e15),
        1 => Just(-5.0),
        1 => 0.0..1e6f64,
    ];
    let sparse = prop_oneof![40 => Just(0.0), 1 => (1u32..20).prop_map(f64::from)];
    let bursty =
        prop_oneof![20 => (0u32..4).prop_map(f64::from), 1 => (1000u32..100_000).prop_map(f64::from)];
    let missing = prop_oneof![30 => Just(f64::NAN), 1 => (0u32..90).prop_map(f64::from)];
    let step =
        (0u32..1000, 0u32..1000, 0..=*length.end()).prop_map(|(a, b, at)| (f64::from(a), f64::from(b), at));
    prop_oneof![
        prop::collection::vec(value, length.clone()),
        prop::collection::vec(broken, length.clone()),
        prop::collection::vec(sparse, length.clone()),
        prop::collection::vec(bursty, length.clone()),
        prop::collection::vec(missing, length.clone()),
        (step, length).prop_map(|((a, b, at), n)| (0..n).map(|t| if t < at { a } else { b }).collect()),
    ]
}

fn methods() -> [Demand; 2] {
    [Demand::recommended(), Demand { method: Method::Plain(None), ..Demand::default() }]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a15_forecasts_of_any_counts_are_sound(x in counts(0..=700), horizon in 0usize..60) {
        let mut ws = Workspace::new();
        let series = Series::hourly(x).unwrap();
        for demand in methods() {
            match demand.fit(&series, &mut ws) {
                Ok(fitted) => assert_sound(&fitted.forecast(horizon).unwrap()),
                Err(error) => {
                    prop_assert_eq!(error, ForecastError::Empty);
                    prop_assert_eq!(series.known(), 0);
                }
            }
        }
    }

    #[test]
    fn a15_a_constant_gives_itself_and_zeros_give_zero(c in 0u32..1_000_000, n in 1usize..700, gaps in any::<bool>()) {
        let mut x = vec![f64::from(c); n];
        if gaps && n > 3 {
            x[n / 2] = f64::NAN;
        }
        let mut ws = Workspace::new();
        for demand in methods() {
            for value in [f64::from(c), 0.0, 1e15] {
                let scaled: Vec<f64> = x.iter().map(|v| if v.is_nan() { *v } else { value }).collect();
                let fitted = demand.fit(&Series::hourly(scaled).unwrap(), &mut ws).unwrap();
                let f = fitted.forecast(30).unwrap();
                for level in LEVELS {
                    prop_assert_eq!(f.quantile(level).unwrap(), vec![value; 30]);
                }
                prop_assert_eq!(f.mean(), &[value; 30]);
            }
        }
    }

    #[test]
    fn a15_a_file_absent_for_a_day_does_not_go_negative(mut x in counts(48..=700)) {
        let n = x.len();
        x[n - 24..].fill(0.0);
        let mut ws = Workspace::new();
        let fitted = Demand::recommended().fit(&Series::hourly(x).unwrap(), &mut ws).unwrap();
        assert_sound(&fitted.forecast(24).unwrap());
    }

    #[test]
    fn shares_of_any_counts_are_sound(x in counts(0..=500), other in counts(0..=500)) {
        let n = x.len().min(other.len());
        let total: Vec<f64> = x.iter().zip(&other).map(|(a, b)| a.max(0.0) + b.max(0.0)).collect();
        let Ok(prepared) = Total::new(&total, &[], Cycles::HOURLY, 2) else { return Ok(()) };
        let share = Share::fit(&x[..n], &prepared).unwrap();
        assert_sound(&share.forecast(&prepared, &[0.0, 1.0, 50.0, 1e9]));
        let mut ws = Workspace::new();
        let series = Series::hourly(total).unwrap();
        let (batch, _) = Batch::new(Demand::recommended(), &series, 2, 5, &mut ws).unwrap();
        if let Ok(f) = batch.forecast(&x[..n], true, &mut ws) {
            assert_sound(&f);
        }
    }

    #[test]
    fn steps_of_any_counts_are_sound(x in counts(1..=400), more in counts(0..=30)) {
        let mut ws = Workspace::new();
        let Ok(mut fitted) = Demand::recommended().fit(&Series::hourly(x).unwrap(), &mut ws) else { return Ok(()) };
        for value in more {
            fitted.observe(value).unwrap();
            assert_sound(&fitted.forecast(3).unwrap());
        }
    }

    #[test]
    fn other_period_lengths_follow_their_cycles(x in counts(0..=1500), minutes in prop::sample::select(vec![10u32, 15, 30, 60, 240, 1440, 77])) {
        let mut ws = Workspace::new();
        let series = Series::new(x, minutes * 60, 0).unwrap();
        if let Ok(fitted) = Demand::recommended().fit(&series, &mut ws) {
            assert_sound(&fitted.forecast(40).unwrap());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 50, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn long_histories_are_sound(x in counts(700..=2400)) {
        let mut ws = Workspace::new();
        for demand in methods() {
            if let Ok(fitted) = demand.fit(&Series::hourly(x.clone()).unwrap(), &mut ws) {
                assert_sound(&fitted.forecast(48).unwrap());
            }
        }
    }
}

#[test]
fn ugly_histories_one_by_one() {
    let mut ws = Workspace::new();
    let mut spike = vec![0.0; 700];
    spike[350] = 1e15;
    let mut late = vec![0.0; 700];
    late[699] = 5.0;
    let alternating: Vec<f64> = (0..700).map(|t| if t % 2 == 0 { 1e15 } else { 0.0 }).collect();
    let growing: Vec<f64> = (0..700).map(|t| (f64::from(t) * 0.04).exp()).collect();
    let mut mostly_missing = vec![f64::NAN; 700];
    mostly_missing[3] = 1.0;
    mostly_missing[600] = 2.0;
    for x in [vec![3.0], vec![3.0, 4.0], spike, late, alternating, growing, mostly_missing] {
        for demand in methods() {
            let fitted = demand.fit(&Series::hourly(x.clone()).unwrap(), &mut ws).unwrap();
            assert_sound(&fitted.forecast(200).unwrap());
        }
    }
    assert_eq!(
        Demand::recommended().fit(&Series::hourly(vec![]).unwrap(), &mut ws),
        Err(ForecastError::Empty)
    );
}

#[test]
fn a_used_workspace_gives_the_numbers_of_a_fresh_one() {
    let x: Vec<f64> = (0..500).map(|t: u32| f64::from((t * 7919) % 97 + (t % 24) * 5)).collect();
    let mut used = Workspace::new();
    for n in [80, 130, 260, 500] {
        let series = Series::hourly(x[..n].to_vec()).unwrap();
        let fresh = Demand::recommended().fit(&series, &mut Workspace::new()).unwrap();
        assert_eq!(Demand::recommended().fit(&series, &mut used).unwrap(), fresh);
    }
}
