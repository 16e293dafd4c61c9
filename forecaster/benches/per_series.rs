//! Time per series of 720 values on one core: fit and 48 hours ahead, plans and buffers kept between series.

use std::hint::black_box;

use clockwork_forecaster::Series;
use clockwork_forecaster::demand::{Demand, Method};
use clockwork_forecaster::spectrum::Workspace;
use criterion::{Criterion, criterion_group, criterion_main};

/// Made counts: a day, a week, and noise from a linear congruential sequence.
fn counts(periods: usize) -> Vec<f64> {
    let mut state = 7u64;
    (0..periods)
        .map(|t| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let noise = (state >> 11) as f64 / (1u64 << 53) as f64;
            let turn = |cycle: f64| (2.0 * std::f64::consts::PI * t as f64 / cycle).sin();
            (60.0 * (1.0 + 0.6 * turn(24.0) + 0.2 * turn(168.0)) * (0.7 + 0.6 * noise)).round()
        })
        .collect()
}

fn per_series(c: &mut Criterion) {
    let mut ws = Workspace::new();
    for (name, method) in [("recommended", Method::Recommended), ("plain", Method::Plain(None))] {
        let demand = Demand { method, ..Demand::default() };
        for periods in [672, 720] {
            let series = Series::hourly(counts(periods)).expect("finite counts");
            c.bench_function(&format!("{name}, {periods} values, fit and 48 ahead"), |b| {
                b.iter(|| {
                    let fitted = demand.fit(black_box(&series), &mut ws).expect("known values");
                    black_box(fitted.forecast(48).expect("a short horizon"))
                });
            });
        }
    }
}

criterion_group! { name = benches; config = Criterion::default().sample_size(30); targets = per_series }
criterion_main!(benches);
