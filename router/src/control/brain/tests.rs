//! A controller over a history in which a past was imported, with a clock that the test moves.
use super::*;
use crate::heat::{ClassCounts, FileCounts, FilePeriod, Handle, PeriodSpan, StorePeriod};
use crate::history::HistoryLimits;
use std::path::Path;
use std::sync::Arc;

const HOUR_MS: u64 = 3_600_000;
/// A Monday.
const BEGIN: u64 = 782_956_800_000 / HOUR_MS;
const PAST: u64 = 14 * 24;
const HOT: &str = "/e/hot";
const COOL: &str = "/e/cool";

fn config() -> Config {
    let text = "[[store]]\nname = \"a\"\naddress = \"127.0.0.1:1\"\n[[export]]\npath = \"/e\"\nclients = \
                [\"127.0.0.1\"]\n";
    let mut config = Config::parse(text, Path::new("test.toml")).unwrap();
    config.control.mode = ControlMode::Advise;
    config
}

fn of_day(hour: u64) -> u64 {
    500 + 40 * (12 - (hour % 24).abs_diff(12))
}

fn handle(byte: u8) -> Handle {
    Handle::new(&[byte; 20]).unwrap()
}

fn record(hour: u64, store: &str, files: &[(Handle, Option<&str>, u64)]) -> PeriodRecord {
    let mut sum = StoreCounts::default();
    let files = files.iter().map(|(handle, path, reads)| {
        let calls = ClassCounts { reads: *reads, ..ClassCounts::default() };
        sum.requests.add(&calls);
        let counts = FileCounts { calls, ..FileCounts::default() };
        FilePeriod { handle: *handle, store: 0, path: path.map(Arc::from), counts }
    });
    let files = files.collect();
    let span = PeriodSpan { start_unix_ms: hour * HOUR_MS, length_ms: HOUR_MS };
    let stores = vec![StorePeriod { name: store.into(), counts: sum }];
    PeriodRecord { span, stores, files, other: FileCounts::default() }
}

/// A history with two weeks of an imported past of two files, which ends at the hour returned.
fn imported(folder: &Path) -> (History, u64) {
    let history = History::open(folder, HistoryLimits::default()).unwrap().history;
    let past = (BEGIN..BEGIN + PAST).map(|hour| {
        let of = |path, reads| (Handle::stand_in(path), Some(path), reads);
        record(hour, "(imported)", &[of(HOT, of_day(hour)), of(COOL, 20)])
    });
    history.append_all(&past.collect::<Vec<_>>()).unwrap();
    (history, BEGIN + PAST)
}

fn load(history: &History, hour: u64) -> Brain {
    Brain::load(&config(), hour * HOUR_MS, Some(history)).unwrap()
}

/// Keeps a period and shows it to the controller, as when it closes.
fn close(history: &History, brain: &mut Brain, record: &PeriodRecord) {
    history.append(record).unwrap();
    assert!(matches!(brain.take(record, &config()), Taken::Observed { .. }));
    brain.keep_taken(Some(history));
}

/// What is forecast of a file in the next period.
fn forecast(brain: &mut Brain, handle: &Handle) -> f64 {
    let forecasts = brain.controller.forecast();
    brain.files.known(handle).map_or(0.0, |file| forecasts.reported(file, 1))
}

fn is_the_past(forecast: f64, hour: u64) {
    let wanted = of_day(hour) as f64;
    assert!((forecast / wanted - 1.0).abs() < 0.2, "{forecast} at hour {hour} is not about {wanted}");
}

#[test]
fn a_file_looked_up_by_the_path_of_an_imported_one_has_its_past_after_the_first_period() {
    let folder = tempfile::tempdir().unwrap();
    let (history, now) = imported(folder.path());
    let mut brain = load(&history, now);
    assert_eq!(brain.imported(), (2, 0));
    // A fifth of what is usual: one period would not make a forecast of hundreds.
    close(&history, &mut brain, &record(now, "a", &[(handle(1), Some(HOT), of_day(now) / 5)]));
    assert_eq!(brain.imported(), (1, 1));
    let first = forecast(&mut brain, &handle(1));
    assert!(first > 0.4 * of_day(now + 1) as f64, "{first}");
    // Without the name it is a new file, and what it had in its first hour is all that is known.
    let mut nameless = load(&history, now);
    nameless.take(&record(now, "a", &[(handle(9), None, of_day(now) / 5)]), &config());
    assert!(forecast(&mut nameless, &handle(9)) < 0.5 * first);
}

#[test]
fn a_name_that_comes_late_joins_the_two_pasts_once_and_a_restart_knows_it() {
    let folder = tempfile::tempdir().unwrap();
    let (history, now) = imported(folder.path());
    let mut brain = load(&history, now);
    for hour in now..now + 6 {
        close(&history, &mut brain, &record(hour, "a", &[(handle(1), None, of_day(hour))]));
        brain.controller.forecast();
    }
    assert_eq!(brain.imported(), (2, 0));
    close(&history, &mut brain, &record(now + 6, "a", &[(handle(1), Some(HOT), of_day(now + 6))]));
    assert_eq!(brain.imported(), (1, 1));
    is_the_past(forecast(&mut brain, &handle(1)), now + 7);
    let whole = |brain: &Brain, handle: &Handle| {
        let mut counts = vec![0.0; PAST as usize + 7];
        let file = brain.files.known(handle).unwrap();
        brain.controller.history().file(file, BEGIN.cast_signed(), &mut counts);
        counts
    };
    let counts = whole(&brain, &handle(1));
    let wanted: Vec<f64> = (BEGIN..now + 7).map(|hour| of_day(hour) as f64).collect();
    assert_eq!(counts, wanted);

    let mut again = load(&history, now + 7);
    assert_eq!((again.imported(), whole(&again, &handle(1))), ((1, 1), wanted));
    is_the_past(forecast(&mut again, &handle(1)), now + 7);
}

#[test]
fn a_rename_changes_nothing_and_a_new_file_under_an_old_path_begins_with_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (history, now) = imported(folder.path());
    let mut brain = load(&history, now);
    close(&history, &mut brain, &record(now, "a", &[(handle(1), Some(HOT), of_day(now))]));
    // It is renamed over the other imported one, and something new is made in its place.
    let after = [(handle(1), Some(COOL), of_day(now + 1)), (handle(2), Some(HOT), 1)];
    close(&history, &mut brain, &record(now + 1, "a", &after));
    let check = |brain: &mut Brain| {
        is_the_past(forecast(brain, &handle(1)), now + 2);
        let new = forecast(brain, &handle(2));
        assert!(new < 20.0, "{new}");
        assert_eq!(brain.imported(), (1, 1));
    };
    check(&mut brain);
    // The history knows the file by its new name only.
    check(&mut load(&history, now + 2));
}

/// A plex of the one store of the configuration.
fn one_store() -> View {
    let entries = vec![clockwork_placement::StoreEntry::up("a", 1.0)];
    let table = Arc::new(clockwork_placement::Table::new(0, entries).unwrap());
    let states = std::iter::once((crate::plex::Health::Up, false, 1.0));
    View::new(&config(), states, table, std::collections::BTreeMap::new(), None)
}

#[test]
fn of_an_idle_plex_nothing_is_forecast() {
    let folder = tempfile::tempdir().unwrap();
    let history = History::open(folder.path(), HistoryLimits::default()).unwrap().history;
    let mut brain = load(&history, BEGIN);
    let view = one_store();
    for hour in BEGIN..BEGIN + 30 {
        let taken = brain.take(&record(hour, "a", &[]), &config());
        assert_eq!(taken, Taken::Observed { met: None });
        let (decision, _) = brain.plan(&view);
        assert_eq!(brain.tell(&decision, &view, &|_| None).0.objective_reachable, None);
    }
}

#[test]
fn what_no_handle_is_known_of_is_not_moved_and_lies_on_all_stores() {
    let folder = tempfile::tempdir().unwrap();
    let (history, now) = imported(folder.path());
    let mut brain = load(&history, now);
    let view = one_store();
    let (decision, _) = brain.plan(&view);
    let (decided, changes) = brain.tell(&decision, &view, &|_| None);
    assert_eq!((changes.len(), decided.moves.len()), (0, 0));
    assert_eq!(decided.objective_reachable, None, "an imported past has no response times");
    assert!((decided.stores[0].requests_before / (of_day(now) + 20) as f64 - 1.0).abs() < 0.2, "{decided:?}");
    assert!(decided.notes.iter().any(|note| note.contains("imported past")), "{:?}", decided.notes);
}

/// Stores a and b with 20 files each by equal weights, of which b does twice what a does: a day has a peak at noon.
fn measured_hour(hour: u64) -> PeriodRecord {
    let each = of_day(hour) / 10;
    let mut record = record(hour, "a", &[]);
    record.files = (0..40_u8)
        .map(|n| FilePeriod {
            handle: handle(n + 1),
            store: u16::from(n % 2),
            path: None,
            counts: FileCounts {
                calls: ClassCounts { reads: each, ..ClassCounts::default() },
                ..FileCounts::default()
            },
        })
        .collect();
    let store = |name: &str, capacity: f64| {
        let (load, noise) = (20 * each, 1.0 + 0.01 * (hour * 7 % 5) as f64);
        let ms = noise * 3.0 / (1.0 - (load as f64 / capacity).min(0.98));
        let mut counts = StoreCounts::default();
        counts.requests.reads = load;
        (0..20).for_each(|_| counts.count_answer(crate::heat::Class::Read, (ms * 1e3) as u64));
        StorePeriod { name: name.into(), counts }
    };
    record.stores = vec![store("a", 2_200.0), store("b", 4_400.0)];
    record
}

#[test]
fn weights_are_planned_before_moves_and_a_restart_knows_when() {
    let text = "[[store]]\nname = \"a\"\naddress = \"127.0.0.1:1\"\n[[store]]\nname = \"b\"\naddress = \
                \"127.0.0.1:2\"\n[[export]]\npath = \"/e\"\nclients = [\"127.0.0.1\"]\n";
    let mut config = Config::parse(text, Path::new("test.toml")).unwrap();
    (config.control.mode, config.control.objective_ms) = (ControlMode::Control, 10.0);
    config.control.weights = ControlWeights::Apply;
    let folder = tempfile::tempdir().unwrap();
    let history = History::open(folder.path(), HistoryLimits::default()).unwrap().history;
    let now = BEGIN + PAST;
    history.append_all(&(BEGIN..now).map(measured_hour).collect::<Vec<_>>()).unwrap();
    let entries = ["a", "b"].map(|name| clockwork_placement::StoreEntry::up(name, 1.0));
    let table = Arc::new(clockwork_placement::Table::new(0, entries.to_vec()).unwrap());
    // One file that the controller had moved to b, whatever the default rule says.
    let mut moved = std::collections::BTreeMap::new();
    let on = |byte: u8, table: &clockwork_placement::Table| {
        table.default_route(table.hash(handle(byte).as_bytes())).unwrap().index()
    };
    for byte in (1..=40).filter(|byte| on(*byte, &table) == 0) {
        moved.insert(
            handle(byte).as_bytes().into(),
            crate::plex::Exception {
                store: "b".into(),
                replicas: Vec::new(),
                reason: String::new(),
                since_unix_ms: 1,
                by: crate::plex::By::Controller,
            },
        );
    }
    let view = |health: crate::plex::Health, changed: Option<u64>| {
        let states = [(crate::plex::Health::Up, false, 1.0), (health, false, 1.0)].into_iter();
        View::new(&config, states, Arc::clone(&table), moved.clone(), changed)
    };
    let load = || Brain::load(&config, now * HOUR_MS, Some(&history)).unwrap();
    let down = crate::plex::Health::Down { reason: String::new() };
    let mut brain = load();
    assert_eq!(brain.plan(&view(down, None)).1, None, "a store is down");
    let seen = view(crate::plex::Health::Up, None);
    let (decision, weights) = brain.plan(&seen);
    let weights = weights.unwrap();
    let after: Vec<f64> = weights.stores.iter().map(|store| store.after).collect();
    assert!(decision.objective_reachable.is_some());
    assert!(after[0] < 0.95 && after[1] > 1.05 && weights.reason.contains("a 1 -> "), "{weights:?}");
    // The decision is about the files as they lie by these weights.
    let then = seen.reweighed(&after).unwrap();
    let by_then: f64 = (1..=40)
        .filter(|byte| on(*byte, &then.table) == 0 && !moved.contains_key(handle(*byte).as_bytes()))
        .count() as f64;
    let of_a = decision.stores.iter().find(|(store, _)| *store == 0).unwrap();
    assert!(by_then == 0.0 && of_a.1.requests < 1.0, "all that was at a had been moved to b: {of_a:?}");
    assert!(
        view(crate::plex::Health::Up, None).placed(&brain.files).assigned()
            > then.placed(&brain.files).assigned()
    );
    assert_eq!(brain.plan(&seen).1, None, "once a day");
    // A restart knows it by when they were changed.
    let of = |changed: u64| load().plan(&view(crate::plex::Health::Up, Some(changed * HOUR_MS))).1.is_some();
    assert!(!of(now - 1) && !of(now - 23) && of(now - 24));
}

#[test]
fn what_was_learnt_of_itself_outlives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (history, hour) = imported(folder.path());
    let fresh = load(&history, hour).controller.experience();
    assert_eq!((fresh.trust(), fresh.interval_width), (1.0, 1.0));
    let learnt = |promised| Learnt { trust: 0.0, promised, kept: 1.0, interval_width: 0.75 };
    let period = i64::try_from(hour).unwrap();
    for (period, learnt) in
        [(period - 2, Some(learnt(99.0))), (period - 1, Some(learnt(9.0))), (period, None)]
    {
        let start_unix_ms = period as u64 * HOUR_MS;
        let decided = Decided { period, start_unix_ms, by: "plan".into(), learnt, ..Decided::default() };
        super::super::kept::keep(&history, &decided).unwrap();
    }
    let mut again = load(&history, hour);
    let experience = again.controller.experience();
    assert!((experience.trust() - 0.2).abs() < 1e-9, "the newest that says so: {experience:?}");
    assert!((experience.interval_width - 0.75).abs() < 1e-9);
    // What is decided now says it, and so the next restart knows it as well.
    let table = clockwork_placement::Table::new(0, vec![clockwork_placement::StoreEntry::up("a", 1.0)]);
    let states = [(crate::plex::Health::Up, false, 1.0)].into_iter();
    let view =
        View::new(&config(), states, Arc::new(table.unwrap()), std::collections::BTreeMap::default(), None);
    let (decision, _) = again.plan(&view);
    let (told, _) = again.tell(&decision, &view, &|_| None);
    let told = told.learnt.unwrap();
    assert!((told.trust - 0.2).abs() < 0.02 && told.interval_width == experience.interval_width, "{told:?}");
}
