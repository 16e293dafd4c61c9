//! A past imported from a log meets the files of a running plex.

use super::site::{PATIENCE, client, config, embedded, store, wait_for};
use clockwork_router::config::{Config, Control, ControlMode};
use clockwork_router::plex::Plex;
use clockwork_router::store::{HandleMode, Namespace};
use clockwork_router::web::types::{Assign, ControlState, FileName};
use clockwork_router::web::{PlexControl as _, handle_text};
use fstress_replay::client::{Transport, nfs};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Periods of the log, of a second each: ten days of 24.
const PAST: u64 = 240;
/// Requests for the hot file and for the other one in each period of the log.
const REQUESTS: (u64, u64) = (60, 6);
/// Calls on the hot file in each period of the plex, at most.
const CALLS: u64 = 6;

/// Writes a log that ends now, and imports it into a history by periods of so many seconds.
fn import(folder: &Path, history: &Path, period: &str) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let mut log = String::new();
    for second in now - PAST..now {
        for (path, requests) in [("/site/hot?x=1", REQUESTS.0), ("/site/cool.html", REQUESTS.1)] {
            for _ in 0..requests {
                writeln!(log, r#"{{"ts":{second},"request_uri":"{path}","status":200}}"#).unwrap();
            }
        }
    }
    std::fs::write(folder.join("log"), log).unwrap();
    let mut import = Command::new(env!("CARGO_BIN_EXE_clockwork"));
    import.current_dir(folder).args(["trace", "import", "log", "--period", period, "--into-history"]);
    let done = import.arg(history).args(["--export", "/export", "--strip", "/site"]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// Requests forecast for a store and for the other one in the last decision.
fn forecast(state: &ControlState, store: &str) -> Option<(f64, f64)> {
    let last = state.last.as_ref()?;
    let (one, other): (Vec<_>, Vec<_>) = last.stores.iter().partition(|outlook| outlook.store == store);
    Some((one.first()?.requests_before, other.first()?.requests_before))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_a_client_looks_up_has_the_past_of_its_path_in_the_log() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("hot"), b"data").unwrap();
    let namespace = Namespace::open(folder.path(), HandleMode::Path { seed: 1 }).unwrap();
    let (a, b) = (store("a", &namespace).await, store("b", &namespace).await);
    let kept = tempfile::tempdir().unwrap();
    let history = kept.path().join("history");
    import(kept.path(), &history, "1");
    let make = || -> Config {
        let mut config = config(vec![embedded("a", a.address), embedded("b", b.address)]);
        config.history.path = Some(history.clone());
        config.heat.period = Duration::from_secs(1);
        config.control =
            Control { mode: ControlMode::Advise, day_periods: Some(24), guard: false, ..Control::default() };
        config
    };
    let plex = Plex::start(make(), true).await.unwrap();
    wait_for(&plex, "both up", |status| status.stores.iter().all(|s| s.state.word() == "up")).await;
    assert!(plex.control_state().imported_waiting <= 2);

    let tcp = client(plex.addresses()[0], Transport::Tcp).await;
    let root = nfs::mount(&tcp, "/export").await.unwrap();
    let (hot, _) = nfs::lookup(&tcp, &root, "hot").await.unwrap();
    let named = FileName::Handle(handle_text(&hot));
    let assign = Assign { file: named.clone(), store: "a".into(), also: Vec::new(), reason: String::new() };
    let home = plex.assign(assign).await.unwrap().from.unwrap();
    plex.unassign(named).await.unwrap();

    let begin = Instant::now();
    let state = loop {
        nfs::getattr(&tcp, &hot, "hot").await.unwrap();
        tokio::time::sleep(Duration::from_millis(1_000 / CALLS)).await;
        let state = plex.control_state();
        if state.imported_taken == 1
            && forecast(&state, &home)
                .is_some_and(|(hot, other)| hot > (3 * CALLS) as f64 && hot > 2.0 * other)
        {
            break state;
        }
        assert!(begin.elapsed() < PATIENCE, "{state:#?}");
    };
    // The other file of the log lies on both stores as long as nobody asks for it.
    assert_eq!(state.imported_waiting, 1);
    assert!(forecast(&state, &home).unwrap().1 > 0.0, "{state:#?}");
    drop(tcp);
    plex.finish().await;
    drop(plex);

    // Nothing is asked for after a restart, and the past is the file's all the same.
    let plex = Plex::start(make(), true).await.unwrap();
    let begin = Instant::now();
    loop {
        let state = plex.control_state();
        if (state.imported_taken, state.imported_waiting) == (1, 1) {
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "{state:#?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_past_of_longer_periods_is_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let history = folder.path().join("history");
    import(folder.path(), &history, "60");
    let namespace = Namespace::open(folder.path(), HandleMode::Path { seed: 1 }).unwrap();
    let a = store("a", &namespace).await;
    for (period_s, mode, told) in
        [(5, ControlMode::Observe, true), (5, ControlMode::Off, false), (60, ControlMode::Observe, false)]
    {
        let mut config = config(vec![embedded("a", a.address)]);
        config.history.path = Some(history.clone());
        config.heat.period = Duration::from_secs(period_s);
        config.control.mode = mode;
        let plex = Plex::start(config, false).await.unwrap();
        let alarms = plex.status().await.alarms;
        let found = alarms.iter().filter(|alarm| {
            alarm.contains("imported periods of 60 s are not used: this plex has periods of 5 s")
        });
        assert_eq!(found.count(), usize::from(told), "{alarms:?}");
        plex.stop();
    }
}
