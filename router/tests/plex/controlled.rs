//! The control loop on a running plex: files are moved before load arrives, and what it knows and did outlives a restart.

use super::site::{config, embedded, named, store, wait_for};
use clockwork_placement::{StoreEntry, StoreState, Table};
use clockwork_router::config::{Config, Control, ControlMode, ControlWeights};
use clockwork_router::heat::{
    Class, ClassCounts, FileCounts, FilePeriod, Handle, PeriodRecord, PeriodSpan, StoreCounts, StorePeriod,
};
use clockwork_router::history::{History, HistoryLimits};
use clockwork_router::plex::Plex;
use clockwork_router::store::{HandleMode, Namespace, RunningStore};
use clockwork_router::web::types::ControlState;
use clockwork_router::web::{PlexControl as _, handle_text};
use std::path::Path;
use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const PERIOD_MS: u64 = 1_000;
/// Periods from now to the end of an imported past: so long a slow machine has for the first decision.
const ENDS_IN: i64 = 20;
const DAY: u64 = 24;
/// Periods of the past.
const PAST: u64 = 14 * DAY;
const FILES: u32 = 60;
/// What the stores can do in a period, and need for one call.
const STORES: [(&str, f64, f64); 2] = [("a", 1_200.0, 4.0), ("b", 3_000.0, 2.0)];

fn now_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

fn handle(file: u32) -> Handle {
    Handle::new(&[b"file".as_slice(), &file.to_be_bytes()].concat()).unwrap()
}

/// The store that the default rule gives a file.
fn home(file: u32) -> usize {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        let entry = |name: &str| StoreEntry { name: name.into(), weight: 1.0, state: StoreState::Up };
        Table::new(0, STORES.iter().map(|(name, _, _)| entry(name)).collect()).unwrap()
    });
    let table = &*TABLE;
    table.default_route(table.hash(handle(file).as_bytes())).unwrap().index()
}

/// One period of a past in which the days are alike: requests by file, and how stores respond to their load. At hour 6 the
/// load is the greatest: store a is at .8 of what it can do then, and the two together carry it with ease.
///
/// With a `hot` file: it is read, and even store b cannot carry it at hour 6, when store a, busy at hour 18, has time.
fn period(start_unix_ms: u64, hour: u64, hot: Option<u32>) -> PeriodRecord {
    let level = 264.0 + 200.0 * (2.0 * std::f64::consts::PI * hour as f64 / DAY as f64).sin();
    let noise = 1.0 + 0.02 * ((start_unix_ms / PERIOD_MS * 7919 % 13) as f64 / 6.0 - 1.0);
    let heat = |file: u32| match hot {
        Some(hot) if hot == file => level * noise * 5.5,
        Some(_) if home(file) == 0 => (528.0 - level) * noise * 3.0 / f64::from(FILES),
        Some(_) => level * noise * 0.2 / f64::from(FILES),
        None => level * noise * 3.0 / f64::from(FILES) / (0.4 + f64::from(file) / f64::from(FILES)),
    };
    let mut loads = [0.0; 2];
    let files = (0..FILES).map(|file| {
        loads[home(file)] += heat(file);
        let count = heat(file) as u64;
        let calls = if hot == Some(file) {
            ClassCounts { reads: count, ..ClassCounts::default() }
        } else {
            ClassCounts { metadata: count, ..ClassCounts::default() }
        };
        let counts = FileCounts { calls, ..FileCounts::default() };
        FilePeriod { handle: handle(file), store: u16::try_from(home(file)).unwrap(), path: None, counts }
    });
    let files = files.collect();
    let stores = STORES.iter().zip(loads).map(|((name, capacity, service_ms), load)| {
        let response_ms = service_ms / (1.0 - (load / capacity).min(0.95));
        let mut counts = StoreCounts::default();
        counts.requests.metadata = load as u64;
        (0..20).for_each(|_| counts.count_answer(Class::Metadata, (response_ms * 1e3) as u64));
        StorePeriod { name: (*name).into(), counts }
    });
    let stores = stores.collect();
    let span = PeriodSpan { start_unix_ms, length_ms: PERIOD_MS };
    PeriodRecord { span, stores, files, other: FileCounts::default() }
}

/// Writes a past that ends so many periods from now into a history. Its last period is hour 0 of a day, whatever the time is:
/// the day's greatest load is six periods ahead.
fn import(folder: &Path, ends_in: i64) {
    import_with(folder, ends_in, None);
}

fn import_with(folder: &Path, ends_in: i64, hot: Option<u32>) {
    let now = i64::try_from(now_ms() / PERIOD_MS).unwrap();
    let end = u64::try_from(now + ends_in).unwrap();
    let records: Vec<_> =
        (0..PAST).map(|index| period((end - PAST + index) * PERIOD_MS, (index + 1) % DAY, hot)).collect();
    History::open(folder, HistoryLimits::default()).unwrap().history.append_all(&records).unwrap();
}

struct Two {
    _folder: tempfile::TempDir,
    stores: Vec<RunningStore>,
    kept: tempfile::TempDir,
}

impl Two {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let namespace = Namespace::open(folder.path(), HandleMode::Path { seed: 1 }).unwrap();
        std::fs::write(folder.path().join("file"), b"data").unwrap();
        let stores = vec![store("a", &namespace).await, store("b", &namespace).await];
        Self { _folder: folder, stores, kept: tempfile::tempdir().unwrap() }
    }

    fn history(&self) -> std::path::PathBuf {
        self.kept.path().join("history")
    }

    fn config(&self, mode: ControlMode) -> Config {
        let named = self.stores.iter().zip(STORES).map(|(store, (name, _, _))| embedded(name, store.address));
        let mut config = config(named.collect());
        config.history.path = Some(self.history());
        config.heat.period = Duration::from_millis(PERIOD_MS);
        config.control = Control { mode, objective_ms: 12.0, day_periods: Some(24), ..Control::default() };
        config
    }

    async fn plex(&self, mode: ControlMode) -> Plex {
        let plex = Plex::start(self.config(mode), true).await.unwrap();
        wait_for(&plex, "both up", |status| status.stores.iter().all(|s| s.state.word() == "up")).await;
        plex
    }
}

async fn wait_for_control(plex: &Plex, what: &str, wanted: impl Fn(&ControlState) -> bool) -> ControlState {
    // The period decided about may lie as far ahead as a past was imported for.
    let patience = super::site::PATIENCE + Duration::from_millis(ENDS_IN.unsigned_abs() * PERIOD_MS);
    let begin = Instant::now();
    loop {
        let state = plex.control_state();
        if wanted(&state) {
            return state;
        }
        assert!(begin.elapsed() < patience, "waited for {what}: {state:#?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_moved_before_load_arrives_and_a_restart_forgets_nothing() {
    let two = Two::start().await;
    let hottest = (0..FILES).find(|file| home(*file) == 0).unwrap();
    import(&two.history(), ENDS_IN);
    let plex = two.plex(ControlMode::Control).await;
    let state = wait_for_control(&plex, "a decision in force", |state| state.moved > 0).await;
    assert_eq!(state.periods_known, PAST);
    let last = state.last.clone().unwrap();
    assert!(last.applied && !last.moves.is_empty(), "{last:#?}");
    assert!(last.moves.iter().all(|file| file.from == "a" && file.to == "b"), "{last:#?}");
    let store = |name: &str| last.stores.iter().find(|outlook| outlook.store == name).unwrap();
    let (before, after) = (store("a").before.clone().unwrap(), store("a").after.clone().unwrap());
    assert!(after.median_ms < before.median_ms, "{before:?} {after:?}");
    assert!(last.moves.iter().any(|file| file.handle == handle_text(handle(hottest).as_bytes())));
    let page = plex.exceptions(None, 1_000).await.unwrap();
    assert_eq!(page.total, last.moves.len() as u64);
    assert!(page.exceptions.iter().all(|exception| exception.by == "controller"), "{page:?}");
    let status = plex.status().await;
    assert_eq!((status.control.mode.as_str(), status.control.files_moved), ("control", page.total));
    assert_eq!(status.alarms, Vec::<String>::new());

    plex.finish().await;
    drop(plex);

    let plex = two.plex(ControlMode::Control).await;
    let state = wait_for_control(&plex, "the past again", |state| state.periods_known >= PAST).await;
    let again = state.last.unwrap();
    assert_eq!(
        (again.period, &again.moves, again.applied),
        (last.period, &last.moves, true),
        "decided about once"
    );
    assert_eq!(plex.decisions(10).len(), 1);
    assert_eq!(plex.exceptions(None, 1_000).await.unwrap(), page);
    plex.finish().await;
    drop(plex);

    // Off is off; what was moved stays where it is until somebody gives it back.
    let plex = two.plex(ControlMode::Off).await;
    assert_eq!((plex.control_state().decisions, plex.control_state().mode.as_str()), (0, "off"));
    assert_eq!(plex.exceptions(None, 1_000).await.unwrap().total, page.total);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_operators_assignment_is_not_touched() {
    let two = Two::start().await;
    let hottest = (0..FILES).find(|file| home(*file) == 0).unwrap();
    import(&two.history(), ENDS_IN);
    {
        // As an operator's assignment is kept.
        let history = History::open(two.history(), HistoryLimits::default()).unwrap().history;
        let kept = format!(
            r#"[{{"handle":"{}","store":"a","reason":"mine","since_unix_ms":1}}]"#,
            handle_text(handle(hottest).as_bytes())
        );
        history.put("exceptions", kept.as_bytes()).unwrap();
    }
    let plex = two.plex(ControlMode::Control).await;
    wait_for_control(&plex, "a decision in force", |state| state.moved > 0).await;
    let page = plex.exceptions(None, 1_000).await.unwrap();
    let own: Vec<_> = page.exceptions.iter().filter(|exception| exception.by == "operator").collect();
    assert_eq!(own.len(), 1);
    assert_eq!((own[0].store.as_str(), own[0].reason.as_str()), ("a", "mine"));
    assert_eq!(own[0].handle, handle_text(handle(hottest).as_bytes()));
    assert!(page.total > 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advice_moves_nothing() {
    let two = Two::start().await;
    import(&two.history(), ENDS_IN);
    let plex = two.plex(ControlMode::Advise).await;
    let state = wait_for_control(&plex, "a decision", |state| state.decisions > 0).await;
    let last = state.last.unwrap();
    assert!(!last.moves.is_empty() && !last.applied, "{last:#?}");
    assert_eq!(plex.exceptions(None, 10).await.unwrap().total, 0);
    assert_eq!((state.moved, plex.status().await.control.moved_last), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_pause_the_periods_between_are_missing_and_control_goes_on() {
    let two = Two::start().await;
    // Nothing was running for twenty periods.
    import(&two.history(), -20);
    let plex = two.plex(ControlMode::Control).await;
    let known = wait_for_control(&plex, "a period observed", |state| state.periods_observed >= 1).await;
    assert_eq!(known.periods_known, PAST + known.periods_observed);
    let state = wait_for_control(&plex, "a decision", |state| state.decisions >= 1).await;
    let last = state.last.unwrap();
    let now = i64::try_from(now_ms() / PERIOD_MS).unwrap();
    assert!((now - 2..=now + 1).contains(&last.period), "{} is not about {now}", last.period);
    assert!(last.notes.iter().any(|note| note.contains("missing")), "{:?}", last.notes);
    assert_eq!(named(&plex.status().await, "a").failed, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_no_store_carries_is_read_at_two_where_that_is_allowed() {
    let two = Two::start().await;
    let hot = (0..FILES).find(|file| home(*file) == 1).unwrap();
    import_with(&two.history(), ENDS_IN, Some(hot));
    let start = |replicas_max: usize| {
        let mut config = two.config(ControlMode::Control);
        config.control.replicas_max = replicas_max;
        Plex::start(config, true)
    };
    let plex = start(2).await.unwrap();
    let state = wait_for_control(&plex, "a decision in force", |state| state.replicated > 0).await;
    let last = state.last.clone().unwrap();
    assert!(last.applied && last.replications.len() == 1, "{last:#?}");
    let told = &last.replications[0];
    assert_eq!(
        (told.handle.as_str(), told.from.as_str()),
        (handle_text(handle(hot).as_bytes()).as_str(), "b")
    );
    let stores: Vec<&str> = told.stores.iter().map(|of| of.store.as_str()).collect();
    assert_eq!(stores, ["b", "a"]);
    assert!(told.reason.contains("100 % of them reads"), "{}", told.reason);
    let store = |name: &str| last.stores.iter().find(|outlook| outlook.store == name).unwrap();
    assert!(store("b").requests < 0.9 * store("b").requests_before, "{last:#?}");
    assert!(store("a").requests > store("a").requests_before, "{last:#?}");
    let page = plex.exceptions(None, 1_000).await.unwrap();
    let shown = page.exceptions.iter().find(|file| file.replicas.len() == 2).unwrap();
    assert_eq!((&shown.replicas, &*shown.by, &shown.reason), (&told.stores, "controller", &told.reason));
    assert_eq!(plex.status().await.replicated.len(), 1);
    plex.finish().await;
    drop(plex);

    let plex = start(2).await.unwrap();
    let again = wait_for_control(&plex, "the past again", |state| state.periods_known >= PAST).await;
    assert_eq!(again.last.unwrap().replications, last.replications);
    assert_eq!(plex.status().await.replicated.len(), 1);
    plex.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn learnt_weights_go_in_force_before_the_moves_outlive_a_restart_and_can_be_reset() {
    let two = Two::start().await;
    import(&two.history(), ENDS_IN);
    let start = async |weights: ControlWeights, of_b: f64| {
        let mut config = two.config(ControlMode::Control);
        config.control.weights = weights;
        config.stores[1].weight = of_b;
        let plex = Plex::start(config, true).await.unwrap();
        wait_for(&plex, "both up", |status| status.stores.iter().all(|s| s.state.word() == "up")).await;
        plex
    };
    let in_force = async |plex: &Plex| {
        let status = plex.status().await;
        (named(&status, "a").weight, named(&status, "b").weight)
    };
    let plex = start(ControlWeights::Apply, 1.0).await;
    let state = wait_for_control(&plex, "weights in force", |state| state.reweighed > 0).await;
    let last = plex.decisions(10).iter().find(|decided| decided.weights.is_some()).unwrap().clone();
    let weights = last.weights.clone().unwrap();
    assert!(last.applied && state.last.is_some(), "{last:#?}");
    let [a, b] = &weights.stores[..] else { panic!("{weights:?}") };
    assert_eq!((a.store.as_str(), a.before, b.before), ("a", 1.0, 1.0));
    assert!(a.after < 0.9 && a.after > 1.0 / 1.501 && b.after > 1.1 && b.after < 1.501, "{weights:?}");
    assert!((0.05..0.3).contains(&weights.files_part) && weights.reason.contains("a 1 ->"), "{weights:?}");
    let told = plex.weights().await;
    assert!(told.learnt && told.mode == "apply" && told.reason == weights.reason, "{told:?}");
    assert_eq!(in_force(&plex).await, (a.after, b.after));
    assert_eq!(named(&plex.status().await, "a").configured_weight, 1.0);
    // What was moved besides was planned for these weights: no exception says what the default rule says.
    let page = plex.exceptions(None, 1_000).await.unwrap();
    assert!(page.exceptions.iter().all(|file| file.default_store.as_ref() != Some(&file.store)), "{page:?}");
    plex.finish().await;
    drop(plex);

    let plex = start(ControlWeights::Apply, 1.0).await;
    assert_eq!(in_force(&plex).await, (a.after, b.after), "they outlive a restart");
    assert_eq!(plex.weights().await.changed_unix_ms, told.changed_unix_ms);
    let again = plex.reset_weights().await.unwrap();
    assert!(!again.learnt && again.changed_unix_ms > told.changed_unix_ms, "{again:?}");
    assert_eq!(in_force(&plex).await, (1.0, 1.0));
    assert_eq!(plex.reset_weights().await.unwrap(), plex.weights().await, "nothing to reset any more");
    let decisions = plex.control_state().decisions;
    let state = wait_for_control(&plex, "two decisions", |state| state.decisions >= decisions + 2).await;
    assert_eq!(state.reweighed, 0, "a day has to go after a reset");
    plex.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn learnt_weights_end_with_another_weight_in_the_configuration_or_another_setting() {
    let two = Two::start().await;
    std::fs::create_dir_all(two.kept.path()).unwrap();
    let keep = || {
        let history = History::open(two.history(), HistoryLimits::default()).unwrap().history;
        let kept = r#"[{"stores":{"a":{"configured":1.0,"in_force":0.8},"b":{"configured":1.0,"in_force":1.2}},"changed_unix_ms":7,"reason":"why"}]"#;
        history.put("weights", kept.as_bytes()).unwrap();
    };
    for (weights, of_b, expected) in [
        (ControlWeights::Apply, 1.0, (0.8, 1.2)),
        (ControlWeights::Apply, 2.0, (1.0, 2.0)),
        (ControlWeights::Advise, 1.0, (1.0, 1.0)),
    ] {
        keep();
        // Control pauses: what was learnt stays, and nothing more is learnt.
        let mut config = two.config(ControlMode::Off);
        config.control.weights = weights;
        config.stores[1].weight = of_b;
        let plex = Plex::start(config, false).await.unwrap();
        let status = plex.status().await;
        assert_eq!((named(&status, "a").weight, named(&status, "b").weight), expected, "{weights:?} {of_b}");
        assert_eq!(status.control.weights_learnt, expected == (0.8, 1.2));
        plex.finish().await;
    }
}
