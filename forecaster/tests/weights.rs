//! The slow loop: weights of the default rule, a step a day, over days of a plex whose stores are unlike.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

mod plex;

use clockwork_forecaster::controller::{
    Controller, MemoryHistory, Mode, Settings, StoreState, WEIGHT_FACTOR_MAX, WeightsChange, WeightsMode,
};
use plex::{Plex, day, zipf};

const CAPACITIES: [f64; 4] = [9_000.0, 13_500.0, 20_000.0, 36_000.0];
const FILES: usize = 600;
const DAY: i64 = 24;

fn controller(mode: Mode, weights: WeightsMode, objective_ms: f64) -> Controller<MemoryHistory> {
    let mut settings = Settings { mode, weights, ..Settings::default() };
    settings.objective.response_ms = objective_ms;
    // What weights do alone.
    settings.plan.moves_max = 0;
    settings.plan.prepare_moves_max = 0;
    Controller::new(settings, MemoryHistory::default()).unwrap()
}

/// Weighted rendezvous: the store with the largest weight / -ln u.
fn rehome(plex: &mut Plex) {
    let draw = |file: usize, store: usize| {
        let mut x = (file as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ (store as u64 + 1).wrapping_mul(0xd1b5_4a32_d192_ed03);
        x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        ((x >> 12) as f64 + 0.5) / (1u64 << 52) as f64
    };
    for file in 0..FILES {
        let score = |store: &usize| plex.stores[*store].weight / -draw(file, *store).ln();
        let home = (0..plex.stores.len()).max_by(|a, b| score(a).total_cmp(&score(b))).unwrap();
        plex.places.homes[file] = home;
    }
}

struct Run {
    changes: Vec<WeightsChange>,
    /// Highest response time of the stores, by period.
    worst: Vec<f64>,
    advised: usize,
}

/// Lets periods pass; weights are put in force as they are asked for.
fn run(
    plex: &mut Plex,
    controller: &mut Controller<MemoryHistory>,
    periods: std::ops::Range<i64>,
    mut before: impl FnMut(&mut Plex, i64),
) -> Run {
    let shares = zipf(FILES, 0.4);
    let (mut changes, mut worst, mut advised) = (Vec::new(), Vec::new(), 0);
    for period in periods {
        before(plex, period);
        let forecasts = controller.forecast();
        if let Some(change) = controller.weigh(&forecasts, &plex.view()) {
            assert_eq!(change.period, forecasts.period());
            for (store, weight) in plex.stores.iter_mut().zip(&change.after) {
                assert!(*weight > 0.0 || store.weight == 0.0);
                store.weight = *weight;
            }
            rehome(plex);
            changes.push(change);
        }
        let decision = controller.decide(&forecasts, &plex.view());
        plex::check(&decision, controller, &plex.view());
        advised += usize::from(decision.weights_advice.is_some());
        let means: Vec<f64> = shares.iter().map(|share| share * 36_000.0 * day(period)).collect();
        let counts = plex.counts(&means);
        worst.push(plex.worst_ms(&plex.loads(&counts)));
        let report = plex.report(period, &counts);
        controller.observe(&report).unwrap();
    }
    Run { changes, worst, advised }
}

fn equal() -> Plex {
    let mut plex = Plex::new(&CAPACITIES, FILES, 3);
    rehome(&mut plex);
    plex
}

#[test]
fn weights_come_to_what_the_stores_carry_a_step_a_day_and_rest_there() {
    let mut plex = equal();
    let mut controller = controller(Mode::Control, WeightsMode::Apply, 2.5);
    let ran = run(&mut plex, &mut controller, 0..12 * DAY, |_, _| {});
    let changes = &ran.changes;
    assert!((2..=6).contains(&changes.len()), "{changes:#?}");
    assert_eq!(ran.advised, 0, "what is put in force is not advised as well");
    assert!(changes[0].period >= DAY, "a model of less than a day is not trusted");
    for pair in changes.windows(2) {
        assert!(pair[1].period >= pair[0].period + DAY);
    }
    for change in changes {
        assert!((change.after.iter().sum::<f64>() - 4.0).abs() < 1e-9, "{change:?}");
        for (before, after) in change.before.iter().zip(&change.after) {
            let factor = after / before;
            assert!(
                factor < 1.000_001 * WEIGHT_FACTOR_MAX && factor > 0.999_999 / WEIGHT_FACTOR_MAX,
                "{change:?}"
            );
        }
        assert!(change.highest_ms.1 < 0.95 * change.highest_ms.0 && change.objective_ms == 2.5, "{change:?}");
    }
    let last: Vec<f64> = plex.stores.iter().map(|store| store.weight / 4.0).collect();
    let sum: f64 = CAPACITIES.iter().sum();
    for (share, capacity) in last.iter().zip(CAPACITIES) {
        assert!((share / (capacity / sum)).ln().abs() < 0.35, "{last:.3?}");
    }
    let highest = |days: std::ops::Range<i64>| {
        ran.worst[(days.start * DAY) as usize..(days.end * DAY) as usize].iter().copied().fold(0.0, f64::max)
    };
    assert!(highest(8..12) < 0.3 * highest(0..1), "{} {}", highest(8..12), highest(0..1));
    let late = changes.iter().filter(|change| change.period >= 8 * DAY).count();
    assert!(late <= 1, "it does not rest: {changes:#?}");
}

#[test]
fn nothing_changes_while_a_store_is_out_unknown_or_weightless() {
    let mut plex = equal();
    let mut controller = controller(Mode::Control, WeightsMode::Apply, 2.5);
    // A store that is drained or down from the second day to the fourth.
    let ran = run(&mut plex, &mut controller, 0..4 * DAY, |plex, period| {
        if period == DAY {
            plex.set_state(1, StoreState::Drained);
        } else if period == 2 * DAY {
            plex.set_state(1, StoreState::Down);
        }
    });
    assert_eq!(ran.changes, [], "{:?}", ran.changes);
    // It is back, and known; but a new one is not.
    plex.set_state(1, StoreState::Up);
    let mut wider = Plex::new(&[CAPACITIES[0], CAPACITIES[1], CAPACITIES[2], CAPACITIES[3], 1e4], FILES, 4);
    rehome(&mut wider);
    let forecasts = controller.forecast();
    assert_eq!(controller.weigh(&forecasts, &wider.view()), None);
    // One of weight 0 takes no part, whatever is known of it.
    wider.stores[4].weight = 0.0;
    wider.set_state(4, StoreState::Drained);
    let change = controller.weigh(&forecasts, &wider.view()).unwrap();
    assert_eq!((change.before[4], change.after[4], change.wanted[4]), (0.0, 0.0, 0.0));
    assert!(change.after[..4].iter().all(|weight| *weight > 0.0));
    assert_eq!(controller.weigh(&forecasts, &plex.view()), None, "once a day");
}

#[test]
fn a_plex_that_carries_its_load_keeps_its_weights() {
    let mut plex = Plex::new(&CAPACITIES.map(|capacity| 4.0 * capacity), FILES, 3);
    rehome(&mut plex);
    let mut controller = controller(Mode::Control, WeightsMode::Apply, 20.0);
    let ran = run(&mut plex, &mut controller, 0..3 * DAY, |_, _| {});
    assert_eq!(ran.changes, [], "{:?}", ran.changes);
}

#[test]
fn advice_is_said_once_a_day_and_off_says_nothing() {
    for (mode, weights, days) in [
        (Mode::Control, WeightsMode::Advise, 3),
        (Mode::Observe, WeightsMode::Apply, 3),
        (Mode::Control, WeightsMode::Off, 0),
    ] {
        let mut plex = equal();
        let mut controller = controller(mode, weights, 2.5);
        let ran = run(&mut plex, &mut controller, 0..3 * DAY, |_, _| {});
        assert_eq!(ran.changes, [], "{mode:?} {weights:?}");
        assert!(
            ran.advised <= days && (ran.advised > 0) == (days > 0),
            "{mode:?} {weights:?}: {}",
            ran.advised
        );
    }
}

#[test]
fn advice_is_what_the_steps_come_to() {
    let mut plex = equal();
    plex.stores.iter_mut().for_each(|store| store.weight = 3.0);
    let mut learning = controller(Mode::Observe, WeightsMode::Off, 2.5);
    run(&mut plex, &mut learning, 0..2 * DAY, |_, _| {});
    let of = |weights: WeightsMode| {
        let mut settings = learning.settings().clone();
        (settings.mode, settings.weights) = (Mode::Control, weights);
        Controller::new(settings, learning.history().clone()).unwrap()
    };
    let (mut advises, mut applies) = (of(WeightsMode::Advise), of(WeightsMode::Apply));
    let forecasts = advises.forecast();
    let advice = advises.decide(&forecasts, &plex.view()).weights_advice.unwrap();
    assert_eq!(applies.weigh(&forecasts, &plex.view()).unwrap().wanted, advice);
    assert!((advice.iter().sum::<f64>() - 12.0).abs() < 1e-9, "{advice:?}");
    assert!(advice.is_sorted(), "{advice:?}");
}

#[test]
fn a_change_before_a_restart_counts_for_the_day() {
    let mut plex = equal();
    let mut controller = controller(Mode::Control, WeightsMode::Advise, 2.5);
    run(&mut plex, &mut controller, 0..2 * DAY, |_, _| {});
    let mut settings = controller.settings().clone();
    settings.weights = WeightsMode::Apply;
    let history = controller.history().clone();
    let weighed_at = |changed: Option<i64>| {
        let mut restarted = Controller::new(settings.clone(), history.clone()).unwrap();
        changed.into_iter().for_each(|period| restarted.restore_weighed(period));
        let forecasts = restarted.forecast();
        restarted.weigh(&forecasts, &plex.view()).is_some()
    };
    assert!(weighed_at(None) && weighed_at(Some(DAY)));
    assert!(!weighed_at(Some(DAY + 1)) && !weighed_at(Some(2 * DAY)));
    assert!(weighed_at(Some(9 * DAY)), "a clock that was put back");
}
