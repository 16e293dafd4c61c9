//! The guard over a plex in closed form, sixth by sixth: what it sees, what it moves, and when it is quiet.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking, as tests do")]

mod plex;

use clockwork_forecaster::controller::{
    By, Controller, Decision, FileId, MemoryHistory, Mode, Note, PartialPeriod, PeriodReport, Settings,
    StoreReport,
};
use clockwork_forecaster::guard::{GuardSettings, Watched};
use plex::{Plex, check, day, response, zipf};
use rand::{RngExt, SeedableRng};

const CAPACITIES: [f64; 4] = [18_000.0, 22_000.0, 27_000.0, 36_000.0];
const FILES: usize = 400;
const X: f64 = 3.0;

/// A plex, its controller, and what they have done in the open period.
struct Watch {
    plex: Plex,
    controller: Controller<MemoryHistory>,
    counts: Vec<f64>,
    requests: Vec<f64>,
    sums: Vec<f64>,
}

/// What became of a period.
#[derive(Debug, Clone, PartialEq)]
struct Passed {
    plan: Decision,
    /// By the sixth after which the guard acted.
    acts: Vec<(u8, Decision)>,
    /// Slowest store in each sixth, milliseconds.
    worst: Vec<f64>,
}

impl Watch {
    fn new(guard: Option<GuardSettings>, seed: u64) -> Self {
        let mut settings = Settings { mode: Mode::Control, guard, ..Settings::default() };
        settings.objective.response_ms = X;
        let plex = Plex::new(&CAPACITIES, FILES, seed);
        let controller = Controller::new(settings, MemoryHistory::default()).unwrap();
        Self { plex, controller, counts: Vec::new(), requests: Vec::new(), sums: Vec::new() }
    }

    /// A period without plan or guard.
    fn learn(&mut self, period: i64, means: &[f64]) {
        self.begin();
        for _ in 1..=6 {
            self.sixth(means);
        }
        self.close(period);
    }

    fn begin(&mut self) {
        self.counts = vec![0.0; FILES];
        (self.requests, self.sums) = (vec![0.0; CAPACITIES.len()], vec![0.0; CAPACITIES.len()]);
    }

    /// A sixth at `means` requests a period; the slowest store's response time in it.
    fn sixth(&mut self, means: &[f64]) -> f64 {
        let part: Vec<f64> = means.iter().map(|mean| mean / 6.0).collect();
        let counts = self.plex.counts(&part);
        let loads = self.plex.loads(&counts);
        self.counts.iter_mut().zip(&counts).for_each(|(sum, count)| *sum += count);
        let mut worst: f64 = 0.0;
        for (s, load) in loads.iter().enumerate() {
            let slower = self.plex.slower[s];
            let noise = 1.0 + 0.06 * (self.plex.rng.random::<f64>() - 0.5);
            let ms = slower * response(6.0 * load * slower, CAPACITIES[s], 1.0, 1.0) * noise;
            self.requests[s] += load;
            self.sums[s] += load * ms;
            worst = worst.max(ms);
        }
        worst
    }

    fn stores(&self) -> Vec<StoreReport> {
        let report = |s: usize| {
            let ms = self.sums[s] / self.requests[s];
            StoreReport {
                name: self.plex.stores[s].name.clone(),
                requests: self.requests[s],
                response_ms: ms,
                response_variance_ms2: ms * ms,
                saturated: false,
            }
        };
        (0..CAPACITIES.len()).map(report).collect()
    }

    fn files(&self) -> Vec<(FileId, f64)> {
        let files = self.counts.iter().enumerate().filter(|count| *count.1 > 0.0);
        files.map(|(file, count)| (FileId(file as u32), *count)).collect()
    }

    fn close(&mut self, period: i64) {
        let report =
            PeriodReport { period, stores: self.stores(), files: self.files(), ..PeriodReport::default() };
        self.controller.observe(&report).unwrap();
    }

    /// A period under the controller, `means` by sixth from 0.
    fn pass(
        &mut self,
        period: i64,
        means: &dyn Fn(usize) -> Vec<f64>,
        slower: &dyn Fn(usize) -> Vec<f64>,
    ) -> Passed {
        let forecasts = self.controller.forecast();
        let plan = self.controller.decide(&forecasts, &self.plex.view());
        check(&plan, &self.controller, &self.plex.view());
        self.plex.apply(&plan);
        self.begin();
        let mut passed = Passed { plan, acts: Vec::new(), worst: Vec::new() };
        for j in 0..6 {
            self.plex.slower = slower(j);
            let worst = self.sixth(&means(j));
            passed.worst.push(worst);
            let sixths = j as u8 + 1;
            let open =
                PartialPeriod { period, sixths, files: self.files(), unlisted: 0.0, stores: self.stores() };
            if let Some(decision) = self.controller.within(&open, &self.plex.view()) {
                assert!(sixths < 6, "the period is over");
                check(&decision, &self.controller, &self.plex.view());
                self.plex.apply(&decision);
                passed.acts.push((sixths, decision));
            }
        }
        self.close(period);
        passed
    }
}

fn steady(_: usize) -> Vec<f64> {
    vec![1.0; CAPACITIES.len()]
}

/// Requests of a quiet period.
fn usual(period: i64) -> Vec<f64> {
    zipf(FILES, 1.0).iter().map(|share| share * 40_000.0 * day(period)).collect()
}

/// A plex that has learnt `periods` quiet periods, and has had a day under the controller.
fn learnt(guard: Option<GuardSettings>, periods: i64) -> Watch {
    let mut watch = Watch::new(guard, 1);
    (0..periods).for_each(|p| watch.learn(p, &usual(p)));
    for p in periods..periods + 24 {
        watch.pass(p, &|_| usual(p), &steady);
    }
    watch
}

/// Mean of the slowest store's response times in some sixths.
fn mean(worst: &[f64]) -> f64 {
    worst.iter().sum::<f64>() / worst.len() as f64
}

/// The same period with the guard and without.
fn both(
    period: i64,
    means: &dyn Fn(usize) -> Vec<f64>,
    slower: &dyn Fn(usize) -> Vec<f64>,
) -> (Watch, Passed, Passed) {
    let mut with = learnt(Some(GuardSettings::default()), period - 24);
    let mut without = learnt(None, period - 24);
    assert_eq!(with.plex.places.exceptions, without.plex.places.exceptions, "nothing to do in the quiet day");
    let passed = with.pass(period, means, slower);
    let off = without.pass(period, means, slower);
    assert!(off.acts.is_empty(), "a guard that is off does nothing");
    (with, passed, off)
}

fn told(passed: &Passed, of: impl Fn(&Watched) -> bool) -> bool {
    let notes = passed.acts.iter().flat_map(|act| &act.1.notes);
    notes.into_iter().any(|note| matches!(note, Note::Guard(alarm) if of(&alarm.watched)))
}

#[test]
fn a_hot_file_is_met_a_sixth_after_it_begins_and_the_next_plan_knows_it() {
    let file = 31;
    let jump = |p: i64| {
        move |j: usize| {
            let mut means = usual(p);
            means[file] += if j >= 2 { 12_000.0 } else { 0.0 };
            means
        }
    };
    let (mut watch, with, without) = both(412, &jump(412), &steady);
    assert_eq!(with.acts.first().map(|act| act.0), Some(3), "{:?}", with.worst);
    assert!(told(&with, |w| *w == Watched::File(FileId(file as u32))));
    assert!(with.acts[0].1.moves.iter().all(|m| m.reason.by == By::Guard));
    assert!(
        mean(&without.worst[3..]) > 2.0 * X && mean(&with.worst[3..]) < X,
        "{:?} {:?}",
        with.worst,
        without.worst
    );
    // It goes on: the plan of the next period knows its rate, which the period as a whole had for four sixths alone.
    let next = watch.pass(413, &|_| jump(413)(6), &steady);
    assert!(next.acts.is_empty() && mean(&next.worst) < X, "{:?}", next.worst);
}

#[test]
fn a_site_is_met_by_its_files_and_stores() {
    // The files whose home is one store.
    let homes = Plex::new(&CAPACITIES, FILES, 1).places.homes;
    let jump = |j: usize| {
        let mut means = usual(412);
        let site = means.iter_mut().zip(&homes).filter(|file| *file.1 == 1);
        site.for_each(|(mean, _)| *mean *= if j >= 1 { 2.2 } else { 1.0 });
        means
    };
    let (_, with, without) = both(412, &jump, &steady);
    assert!(with.acts.first().is_some_and(|act| act.0 <= 3), "{:?}", with.worst);
    assert!(mean(&with.worst[4..]) < 0.7 * mean(&without.worst[4..]), "{:?} {:?}", with.worst, without.worst);
}

#[test]
fn a_slow_store_is_relieved_and_the_next_plan_knows_it() {
    let slow = |j: usize| {
        let mut slower = steady(j);
        slower[1] = if j >= 1 { 1.6 } else { 1.0 };
        slower
    };
    let (mut watch, with, without) = both(414, &|_| usual(414), &slow);
    assert!(with.acts.first().is_some_and(|act| act.0 <= 3), "{:?}", with.worst);
    assert!(told(&with, |w| *w == Watched::Response("store1".into())));
    assert!(with.acts.iter().flat_map(|act| &act.1.moves).all(|m| m.to != 1));
    assert!(mean(&with.worst[4..]) < 0.7 * mean(&without.worst[4..]), "{:?} {:?}", with.worst, without.worst);
    let next = watch.pass(415, &|_| usual(415), &|_| slow(6));
    // What is reported of it knows it, too: it takes 1.6 ms without load.
    let (_, store) = next.plan.stores.iter().find(|(s, _)| *s == 1).unwrap();
    let (expected, came) =
        (store.response_after.as_ref().unwrap().median_ms, watch.sums[1] / watch.requests[1]);
    assert!((expected / came).ln().abs() < 0.3, "{expected} expected, {came} came");
    assert!(next.acts.is_empty() && mean(&next.worst) < X, "{:?}", next.worst);
}

#[test]
fn what_is_quiet_stays_quiet_and_what_varies_is_learnt() {
    for variation in [0.0, 0.5] {
        let mut watch = Watch::new(Some(GuardSettings::default()), 3);
        // Every file's sixths vary for themselves, and the periods with them.
        let mut factors = rand_chacha::ChaCha8Rng::seed_from_u64(5);
        let mut vary = |p: i64| {
            let mut means = usual(p);
            means.iter_mut().for_each(|mean| {
                let normal: f64 = rand_distr::Distribution::sample(&rand_distr::StandardNormal, &mut factors);
                *mean *= (variation * normal - 0.5 * variation * variation).exp();
            });
            means
        };
        for p in 0..300 {
            watch.begin();
            for _ in 0..6 {
                let means = vary(p);
                watch.sixth(&means);
            }
            watch.close(p);
        }
        let mut acted = 0;
        for p in 300..396 {
            let sixths: Vec<Vec<f64>> = (0..6).map(|_| vary(p)).collect();
            let passed = watch.pass(p, &|j| sixths[j].clone(), &steady);
            acted += usize::from(!passed.acts.is_empty());
        }
        eprintln!("variation {variation}: the guard acted in {acted} of 96 periods");
        assert!(acted <= 2, "{acted}");
    }
}

#[test]
fn load_that_does_not_come_has_its_moves_undone_where_another_needs_the_room() {
    let homes = Plex::new(&CAPACITIES, FILES, 1).places.homes;
    let at = |store: usize| (20..FILES).filter(|file| homes[*file] == store).collect::<Vec<usize>>();
    // Each night two files of one store have a batch, for which the plan makes room there.
    let batch = |p: i64| {
        let mut means = usual(p);
        if p.rem_euclid(24) == 6 {
            at(1)[..2].iter().for_each(|file| means[*file] += 7_000.0);
        }
        means
    };
    let night = |guard: Option<GuardSettings>| {
        let mut watch = Watch::new(guard, 1);
        (0..390).for_each(|p| watch.learn(p, &batch(p)));
        // This night it does not come, but a file of another store gets hot, whose own files cannot move.
        watch.plex.places.pinned =
            (0..FILES).filter(|file| homes[*file] == 3).map(|f| FileId(f as u32)).collect();
        let instead = |_| {
            let mut means = usual(390);
            means[at(3)[0]] += 14_000.0;
            means
        };
        watch.pass(390, &instead, &steady)
    };
    let undone = |passed: &Passed| {
        let moves = passed.acts.iter().flat_map(|act| &act.1.moves);
        moves.filter(|made| made.reason.by == By::GuardCancel).count()
    };
    let with = night(Some(GuardSettings::default()));
    let kept = night(Some(GuardSettings { cancel: false, ..GuardSettings::default() }));
    let off = night(None);
    eprintln!(
        "undone {} of {} moves, {:?} {:?} {:?}",
        undone(&with),
        with.plan.moves.len(),
        with.worst,
        kept.worst,
        off.worst
    );
    assert!(with.plan.moves.iter().any(|made| made.from == 1), "{:?}", with.plan.moves);
    assert!(undone(&with) > 0 && undone(&kept) == 0);
    for made in with.acts.iter().flat_map(|act| &act.1.moves).filter(|m| m.reason.by == By::GuardCancel) {
        assert!(with.plan.moves.iter().any(|m| (m.file, m.from) == (made.file, made.to)), "{made:?}");
    }
    assert!(mean(&with.worst[2..]) < 0.7 * mean(&off.worst[2..]), "{:?} {:?}", with.worst, off.worst);
}

#[test]
fn the_guard_is_quiet_in_quiet_periods_and_meets_what_was_not_forecast() {
    let mut watch = Watch::new(Some(GuardSettings::default()), 1);
    (0..400).for_each(|p| watch.learn(p, &usual(p)));
    let (mut quiet, mut saved, mut jumps) = (0, 0, 0);
    for p in 400..496 {
        // Every twelfth period a file of some heat has forty times its requests, one store's worth of them.
        let jump = (p % 12 == 6).then_some(20 + (p as usize % 7));
        let mut means = usual(p);
        if let Some(file) = jump {
            means[file] = 14_000.0;
        }
        let passed = watch.pass(p, &|_| means.clone(), &steady);
        let acted = !passed.acts.is_empty();
        match jump {
            // After a jump, load that was planned for does not come: that is no quiet period either.
            None if p % 12 == 7 => {}
            None => quiet += usize::from(acted),
            Some(_) if passed.worst[0] > 1.5 * X => {
                jumps += 1;
                saved += usize::from(acted && passed.worst[5] < 0.8 * passed.worst[0]);
            }
            Some(_) => {}
        }
    }
    eprintln!("acted in {quiet} of 80 quiet periods; relieved {saved} of {jumps} overloads by jumps");
    assert!(quiet <= 1 && jumps >= 3 && saved * 4 >= jumps * 3, "{quiet} {saved} {jumps}");
}

#[test]
fn the_same_again_decides_the_same() {
    let run = || {
        let jump = |j: usize| {
            let mut means = usual(412);
            means[31] += if j >= 2 { 12_000.0 } else { 0.0 };
            means
        };
        learnt(Some(GuardSettings::default()), 388).pass(412, &jump, &steady)
    };
    assert_eq!(run(), run());
}
