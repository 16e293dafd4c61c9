//! Read replication: when it begins, over which stores, and when it ends.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking, as tests do")]

mod plex;

use clockwork_forecaster::controller::{By, FileId, Mode, PeriodReport, StoreState};
use clockwork_forecaster::objective::Objective;
use clockwork_forecaster::plan::{
    Heat, LoadCurve, Past, PastMove, Plan, PlanSettings, Problem, READS_TO_STAY, ReadShare, Reads, planned,
};
use plex::{Plex, check, controller_with, day, response, zipf};

/// Milliseconds; an empty store takes 1.
const X: f64 = 5.0;
const CAPACITIES: [f64; 4] = [1_000.0, 1_200.0, 1_500.0, 2_000.0];
const HOT: FileId = FileId(0);
const PERIOD: i64 = 100;

/// Four stores, one hot file at home at the largest, forty others that have `others` requests together.
struct Case {
    plex: Plex,
    heat: Heat,
    reads: Reads,
    past: Past,
    settings: PlanSettings,
    by: By,
}

impl Case {
    fn new(hot: f64, others: f64, reads: f64) -> Self {
        let mut plex = Plex::new(&CAPACITIES, 41, 1);
        plex.places.homes[0] = 3;
        let mut heat = Heat::new(41, 2);
        for file in 0..41 {
            for ahead in 1..=2 {
                heat.set(FileId(file), ahead, if file == 0 { hot } else { others / 40.0 });
            }
        }
        let mut known = Reads::default();
        known.take(&PeriodReport {
            period: PERIOD - 1,
            reads: vec![(HOT, reads)],
            ..PeriodReport::default()
        });
        let settings = PlanSettings { replicas_max: 4, ..PlanSettings::default() };
        Self { plex, heat, reads: known, past: Past::default(), settings, by: By::Plan }
    }

    fn curves(&self) -> Vec<Option<LoadCurve>> {
        let curve =
            |capacity: &f64| LoadCurve::new(4.0 * capacity, 2, |load, _| response(load, *capacity, 2.0, 1.0));
        CAPACITIES.iter().map(curve).collect()
    }

    fn plan(&self) -> Plan {
        planned(
            &Problem {
                heat: &self.heat,
                curves: &self.curves(),
                view: self.plex.view(),
                objective: Objective { response_ms: X, confidence: 0.66 },
                settings: &self.settings,
                fixed: &[],
                past: &self.past,
                period: PERIOD,
                by: self.by,
                stress: None,
                outlook: None,
            },
            &self.reads,
        )
    }

    /// The highest response time of the stores that are up after a plan.
    fn worst(&self, plan: &Plan) -> f64 {
        let view = self.plex.view();
        let up = (0..CAPACITIES.len()).filter(|store| view.is_up(*store));
        up.flat_map(|s| plan.loads_after[s].iter().map(move |load| response(*load, CAPACITIES[s], 2.0, 1.0)))
            .fold(0.0, f64::max)
    }

    fn replicate(&mut self, stores: &[(usize, f64)]) {
        let shares = stores.iter().map(|(store, part)| ReadShare { store: *store, part: *part }).collect();
        self.plex.places.shares.insert(HOT, shares);
        self.plex.places.exceptions.insert(HOT, stores[0].0);
    }

    /// Nothing is lost or made up by laying files on stores in parts.
    fn check_sums(&self, plan: &Plan) {
        for (ahead, total) in self.heat.totals().into_iter().enumerate() {
            let sum: f64 = plan.loads_after.iter().map(|loads| loads[ahead]).sum();
            assert!((sum / total - 1.0).abs() < 1e-6, "{sum} of {total}");
        }
    }
}

fn stores(plan: &Plan) -> Vec<usize> {
    plan.replications[0].stores.iter().map(|share| share.store).collect()
}

#[test]
fn a_file_that_no_store_carries_is_read_at_the_fewest_that_do() {
    let mut case = Case::new(2_200.0, 1_000.0, 1.0);
    let with = case.plan();
    assert_eq!(stores(&with), [3, 2], "the two that carry most, its home first");
    assert!(case.worst(&with) <= X, "{}", case.worst(&with));
    case.check_sums(&with);
    let change = &with.replications[0];
    assert!(change.reason.heat > change.reason.carries && change.reason.highest_ms.0 > X);
    assert!(change.reason.highest_ms.1 <= X && (change.reason.ahead, change.reason.reads) == (1, 1.0));
    let (before, after) = &change.parts;
    assert_eq!(*before, [(3, 1.0)]);
    assert!((after[0].1 / after[1].1 - 2_000.0 / 1_500.0).abs() < 0.05, "{after:?}");
    assert!(with.moves.iter().all(|moved| moved.file != HOT));
    // Two do not carry it: three. Two allowed: two, if that is much better.
    let mut more = Case::new(3_500.0, 200.0, 1.0);
    assert_eq!(stores(&more.plan()).len(), 3);
    assert!(more.worst(&more.plan()) <= X);
    more.settings.replicas_max = 2;
    assert_eq!(stores(&more.plan()).len(), 2);
    // Off is off.
    case.settings.replicas_max = 1;
    let without = case.plan();
    assert!(without.replications.is_empty() && case.worst(&without) > X);
}

#[test]
fn a_file_that_is_written_or_assigned_or_that_a_store_carries_is_not_replicated() {
    let hot = || Case::new(2_200.0, 1_000.0, 1.0);
    let none = |case: &Case| case.plan().replications.is_empty();
    assert!(!none(&hot()));
    assert!(none(&Case::new(2_200.0, 1_000.0, 0.89)), "written");
    assert!(none(&Case { reads: Reads::default(), ..hot() }), "nobody knows");
    assert!(none(&Case::new(1_300.0, 1_000.0, 1.0)), "a store carries it: the rest is moved");
    let mut assigned = hot();
    assigned.plex.places.pinned.insert(HOT);
    assert!(none(&assigned), "an operator has assigned it");
    assert!(none(&Case { by: By::Guard, ..hot() }), "the guard");
    assert!(none(&Case { settings: PlanSettings { replicas_max: 4, ..PlanSettings::paper() }, ..hot() }));
}

#[test]
fn what_is_no_read_stays_at_the_home() {
    let case = Case::new(2_200.0, 1_000.0, 0.9);
    let plan = case.plan();
    let after = &plan.replications[0].parts.1;
    assert!((after.iter().map(|part| part.1).sum::<f64>() - 1.0).abs() < 1e-12);
    let shares = &plan.replications[0].stores;
    let read = shares[0].part / shares.iter().map(|share| share.part).sum::<f64>();
    assert!((after[0].1 - (0.9 * read + 0.1)).abs() < 1e-12, "{after:?}");
    case.check_sums(&plan);
}

#[test]
fn replication_ends_when_the_file_has_cooled_and_not_before() {
    let settle = i64::try_from(PlanSettings::default().settle_periods).unwrap();
    let replicated = |hot: f64, reads: f64, since: i64| {
        let mut case = Case::new(hot, 1_000.0, reads);
        case.replicate(&[(3, 2.0), (2, 1.5)]);
        case.past.record(PastMove { period: PERIOD - since, file: HOT, from: "store3".into() });
        case
    };
    let ended = |case: &Case| {
        let plan = case.plan();
        case.check_sums(&plan);
        assert!(plan.moves.iter().chain(&plan.returns).all(|moved| moved.file != HOT));
        plan.replications.first().map(|change| change.stores.iter().map(|s| s.store).collect::<Vec<_>>())
    };
    // A store of 2,000 carries about 1,700.
    assert_eq!(ended(&replicated(2_200.0, 1.0, 50)), None, "hot");
    assert_eq!(ended(&replicated(1_300.0, 1.0, 50)), None, "cooler, but not by enough");
    assert_eq!(ended(&replicated(800.0, 1.0, 50)), Some(vec![3]), "cool");
    assert_eq!(ended(&replicated(800.0, 1.0, settle - 1)), None, "too soon");
    assert_eq!(ended(&replicated(800.0, 1.0, settle)), Some(vec![3]));
    assert_eq!(ended(&replicated(2_200.0, READS_TO_STAY - 0.01, 1)), Some(vec![3]), "written, at once");
    let mut off = replicated(2_200.0, 1.0, 1);
    off.settings.replicas_max = 1;
    assert_eq!(ended(&off), Some(vec![3]), "not allowed any more");
    let mut operators = replicated(800.0, 0.5, 50);
    operators.plex.places.pinned.insert(HOT);
    assert_eq!(ended(&operators), None, "an operator's is left alone");
    // Cool now, but not in the next period.
    let mut scheduled = replicated(800.0, 1.0, 50);
    scheduled.heat.set(HOT, 2, 2_000.0);
    assert_eq!(ended(&scheduled), None);
    assert_eq!(ended(&Case { by: By::Guard, ..replicated(800.0, 1.0, 50) }), None);
}

#[test]
fn a_replica_that_is_lost_or_a_file_that_grows_gets_other_stores() {
    let mut case = Case::new(2_200.0, 600.0, 1.0);
    case.replicate(&[(3, 2.0), (2, 1.5)]);
    assert!(case.plan().replications.is_empty());
    case.plex.set_state(2, StoreState::Down);
    let plan = case.plan();
    assert_eq!(plan.replications[0].parts.0, [(3, 1.0)], "the other has all of it");
    assert!(stores(&plan).starts_with(&[3, 1]), "{:?}", stores(&plan));
    case.check_sums(&plan);
    let mut grown = Case::new(3_600.0, 200.0, 1.0);
    grown.replicate(&[(3, 2.0), (2, 1.5)]);
    assert_eq!(stores(&grown.plan()).len(), 3);
}

/// Replication over two days: the file is hot by day; every period is decided about, and what is decided is done.
#[test]
fn the_controller_replicates_by_forecast_and_holds_the_objective() {
    let others = zipf(200, 1.0);
    let means = |p: i64| {
        let total = 40_000.0 * day(p);
        std::iter::once(0.55 * total).chain(others.iter().map(|s| 0.45 * s * total)).collect::<Vec<f64>>()
    };
    let run = |replicas_max: usize| {
        let mut plex = Plex::new(&[9_000.0, 11_000.0, 14_000.0, 18_000.0], 201, 1);
        plex.places.homes[0] = 3;
        let mut c = controller_with(Mode::Control, 3.0, replicas_max);
        let told = |report: PeriodReport| PeriodReport { reads: vec![(HOT, 0.98)], ..report };
        for p in 0..400 {
            let counts = plex.counts(&means(p));
            c.observe(&told(plex.report(p, &counts))).unwrap();
        }
        let (mut met, mut begun, mut changed) = (0, 0, 0);
        for p in 400..448 {
            let forecasts = c.forecast();
            let decision = c.decide(&forecasts, &plex.view());
            check(&decision, &c, &plex.view());
            plex.apply(&decision);
            for change in &decision.replications {
                changed += 1;
                begun += usize::from(change.stores.len() > 1);
            }
            let counts = plex.counts(&means(p));
            let loads = plex.loads(&counts);
            met += usize::from(plex.worst_ms(&loads) <= 3.0);
            c.observe(&told(plex.report_loads(p, &counts, &loads))).unwrap();
        }
        (met, begun, changed)
    };
    let ((without, none, _), (with, begun, changed)) = (run(1), run(4));
    eprintln!("met {without} without, {with} with; begun {begun}, changed {changed}");
    assert_eq!(none, 0);
    assert!(begun >= 1 && changed <= 6, "begun {begun}, changed {changed}");
    assert!(with >= without + 5, "{with} met with, {without} without");
}
