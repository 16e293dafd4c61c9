//! Runs by profile against a server in memory that counts what arrives, and when.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "each test file uses a part of it")]
mod fake;

use clockwork_wire::nfs3::Procedure;
use fake::{Fake, Habits};
use fstress_replay::client::Transport;
use fstress_replay::stress::operation::StressOperation;
use fstress_replay::stress::profile::preset;
use fstress_replay::stress::report::StressReport;
use fstress_replay::stress::{self, Load, Loop, OnStressEvent, Spread, StressSpec};
use fstress_replay::{RunError, Stop};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn quiet() -> OnStressEvent {
    Arc::new(|_| {})
}

fn load(name: &str, settings: &[&str]) -> Load {
    let profile = settings.iter().fold(preset(name).unwrap(), |profile, set| profile.set(name, set).unwrap());
    Load { name: name.into(), weight: 1.0, profile }
}

/// A second of load between two fifths, generous about a busy machine.
fn spec(fake: &Fake, transport: Transport, per_s: f64, loads: Vec<Load>) -> StressSpec {
    let mut spec = StressSpec::new(fake.address, "/export", loads);
    spec.run.client.transport = transport;
    spec.run.client.udp_timeout = Duration::from_millis(60);
    spec.run.client.connections = 3;
    spec.source = Loop::Open { per_s, spread: Spread::Poisson };
    spec.run.warmup = Duration::from_millis(200);
    spec.length = Duration::from_secs(1);
    spec.run.cooldown = Duration::from_millis(200);
    spec.run.drain = Duration::from_secs(60);
    spec.run.lag_max = Duration::from_secs(1);
    spec
}

async fn run(spec: &StressSpec) -> StressReport {
    stress::run(spec, &Stop::default(), &quiet()).await.unwrap()
}

fn called(report: &StressReport, operation: StressOperation) -> u64 {
    report.operations.iter().find(|op| op.operation == operation).map_or(0, |op| op.called)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_runs_at_its_rate_with_its_shares_and_its_data_is_checked() {
    for transport in [Transport::Tcp, Transport::Udp] {
        let fake = Fake::start(Habits::default()).await;
        let loads = || vec![load("mail", &["files.count=60", "operations.setattr=0", "operations.fsstat=0"])];
        let report = run(&spec(&fake, transport, 1500.0, loads())).await;
        assert!(report.run.valid && report.is_clean(), "{:#?}", report.error_kinds);
        assert_eq!(
            (report.wanted, report.called, report.good),
            (report.wanted, report.wanted, report.wanted)
        );
        assert!((report.wanted as f64 - 1500.0).abs() <= 150.0, "{}", report.wanted);
        assert_eq!(report.workloads[0].files_written, 60);
        for op in &report.operations {
            let deviation = (op.share_wanted * report.called as f64).sqrt() / report.called as f64;
            assert!((op.share - op.share_wanted).abs() < 5.0 * deviation + 1e-9, "{op:?}");
        }
        assert!(report.read_bytes_per_s > 0.0 && report.written_bytes_per_s > 0.0);
        assert_eq!(report.response.count, report.called);
        // Warm-up and cooldown came too: the server saw more than what is measured.
        let seen = fake.arrived(Procedure::Getattr).len() as u64;
        assert!(seen > called(&report, StressOperation::Getattr));
        let again = run(&spec(&fake, transport, 100.0, loads())).await;
        assert_eq!(again.workloads[0].files_written, 0, "files are made once, also those that grew");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_lacks_is_reported_and_no_error() {
    let fake = Fake::start(Habits::default()).await;
    let report =
        run(&spec(&fake, Transport::Tcp, 1000.0, vec![load("every-call", &["files.count=20"])])).await;
    // The server of these tests has neither LINK nor MKNOD, and no way to read a link.
    for operation in [StressOperation::Link, StressOperation::Mknod, StressOperation::Pathconf] {
        let op = report.operations.iter().find(|op| op.operation == operation).unwrap();
        assert!(op.called > 0 && op.unsupported == op.called && op.good + op.errors == 0, "{op:?}");
    }
    assert!(report.unsupported > 0 && report.got_per_s < report.called_per_s);
    let text = report.text();
    assert!(text.contains("absent: MKNOD") && text.contains("not supported"), "{text}");
    assert!(report.page().contains("absent: MKNOD"));
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_data_is_found() {
    let fake = Fake::start(Habits::default()).await;
    let mut spec = spec(&fake, Transport::Tcp, 800.0, vec![load("webserver", &["files.count=1"])]);
    assert!(run(&spec).await.is_clean());
    fake.habits(|habits| habits.spoil = Some("fstress/webserver/d000/d000/d000/f000000".into()));
    spec.create = false;
    let report = run(&spec).await;
    let wrong = report.error_kinds["READ seq data that is not the file's"];
    assert_eq!(wrong, called(&report, StressOperation::ReadSequential));
    assert!(wrong > 0 && !report.is_clean() && report.run.valid);
    spec.run.verify = false;
    assert!(run(&spec).await.is_clean());
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_come_at_their_times_however_slow_the_server_is() {
    let fake = Fake::start(Habits::default()).await;
    let mut spec = spec(&fake, Transport::Tcp, 500.0, vec![load("getattr", &["files.count=5"])]);
    run(&spec).await;
    fake.forget();
    fake.habits(|habits| habits.delay = Duration::from_millis(400));
    spec.create = false;
    let report = run(&spec).await;
    assert!(report.run.valid && report.is_clean(), "{:?}", report.run.invalid_reasons);
    assert!(report.response.p50_ms >= 400.0, "{:?}", report.response);
    let arrived: Vec<Instant> = fake.arrived(Procedure::Getattr).iter().map(|call| call.at).collect();
    let (first, last) = (arrived.iter().min().unwrap(), arrived.iter().max().unwrap());
    // A closed loop of 3 calls would take far longer than 1.4 s for 700 calls that take .4 s each.
    assert!((640..=760).contains(&arrived.len()), "{}", arrived.len());
    assert!((*last - *first).as_secs_f64() < 2.0, "{:?}", *last - *first);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stall_is_charged_to_every_call_that_was_due_in_it() {
    let fake = Fake::start(Habits::default()).await;
    let mut spec = spec(&fake, Transport::Tcp, 500.0, vec![load("getattr", &["files.count=5"])]);
    run(&spec).await;
    (spec.create, spec.run.warmup) = (false, Duration::ZERO);
    fake.habits(|habits| habits.stall_until = Some(Instant::now() + Duration::from_millis(700)));
    let report = run(&spec).await;
    assert!(report.is_clean());
    // About .6 s of the second lie in the stall; the files are looked up in it, too.
    let first = report.timeline.iter().find_map(|moment| moment.p99_ms).unwrap();
    let last = report.timeline.iter().rev().find_map(|moment| moment.p50_ms).unwrap();
    assert!(first > 0.0 && last < 200.0, "{first} {last}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generator_that_cannot_keep_up_says_so_in_all_reports() {
    let fake = Fake::start(Habits::default()).await;
    let mut spec = spec(&fake, Transport::Tcp, 900.0, vec![load("getattr", &["files.count=5"])]);
    run(&spec).await;
    spec.create = false;
    // No machine hands a call to a socket within a nanosecond.
    spec.run.lag_max = Duration::from_nanos(1);
    let late = run(&spec).await;
    assert!(
        !late.run.valid && late.run.invalid_reasons[0].contains("send lag"),
        "{:?}",
        late.run.invalid_reasons
    );
    assert!(late.text().contains("INVALID") && late.page().contains("This run is invalid"));
    assert!(serde_json::to_string(&late).unwrap().contains("\"valid\":false"));
    spec.run.lag_max = Duration::from_secs(1);
    spec.run.outstanding_max = 10;
    fake.habits(|habits| habits.delay = Duration::from_millis(300));
    let full = run(&spec).await;
    assert!(!full.run.valid && full.run.saturated && full.not_sent > 0 && full.called < full.wanted);
    assert_eq!(full.wanted, full.called + full.not_sent);
    assert!(full.text().contains("saturated"));
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_datagrams_are_sent_again_with_their_xids() {
    let fake = Fake::start(Habits::default()).await;
    let mut spec = spec(&fake, Transport::Udp, 400.0, vec![load("getattr", &["files.count=5"])]);
    run(&spec).await;
    spec.create = false;
    (spec.run.warmup, spec.run.cooldown) = (Duration::ZERO, Duration::ZERO);
    fake.forget();
    fake.habits(|habits| habits.lose_every = 5);
    let report = run(&spec).await;
    assert!(report.is_clean() && report.retransmissions >= 60, "{}", report.retransmissions);
    let mut xids: Vec<u32> = fake.arrived(Procedure::Getattr).iter().map(|call| call.xid).collect();
    let arrived = xids.len() as u64;
    xids.sort_unstable();
    xids.dedup();
    assert_eq!(xids.len() as u64, report.called, "no call has a new XID");
    assert_eq!(arrived - report.called, report.retransmissions);
    assert!(report.response.p95_ms >= 60.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_connection_is_made_again_and_its_calls_are_sent_again() {
    let fake = Fake::start(Habits::default()).await;
    let mut spec = spec(&fake, Transport::Tcp, 600.0, vec![load("getattr", &["files.count=5"])]);
    run(&spec).await;
    spec.create = false;
    fake.forget();
    fake.habits(|habits| {
        habits.delay = Duration::from_millis(30);
        habits.close_after = Some(100);
    });
    let report = run(&spec).await;
    assert!(report.is_clean() && report.retransmissions > 0, "{:?}", report.error_kinds);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_loop_keeps_as_many_calls_on_their_way_as_asked() {
    let fake = Fake::start(Habits::default()).await;
    let mut spec = spec(&fake, Transport::Tcp, 1.0, vec![load("getattr", &["files.count=5"])]);
    fake.habits(|habits| habits.delay = Duration::from_millis(20));
    spec.source = Loop::Closed { outstanding: 8 };
    let report = run(&spec).await;
    // 8 calls of at least 20 ms each: at most 400 a second, and not many fewer.
    assert!(report.got_per_s <= 420.0 && report.got_per_s > 200.0, "{}", report.got_per_s);
    assert!(report.run.valid && report.closed_outstanding == Some(8));
}

#[tokio::test(flavor = "multi_thread")]
async fn several_workloads_share_the_calls_by_weight() {
    let fake = Fake::start(Habits::default()).await;
    let mut loads = vec![
        load("getattr", &["files.count=5"]),
        load("database", &["files.count=2", "files.bytes.fixed=65536"]),
    ];
    loads[0].weight = 3.0;
    let report = run(&spec(&fake, Transport::Tcp, 1600.0, loads)).await;
    assert!(report.is_clean());
    let part = report.workloads[0].called as f64 / report.called as f64;
    assert!((part - 0.75).abs() < 0.06, "{part}");
    assert_eq!(report.workloads.iter().map(|load| load.called).sum::<u64>(), report.called);
    let back: StressReport = serde_json::from_str(&serde_json::to_string(&report).unwrap()).unwrap();
    assert_eq!(back.workloads.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_run_is_said_clearly() {
    let fake = Fake::start(Habits::default()).await;
    let good = spec(&fake, Transport::Tcp, 100.0, vec![load("mail", &["files.count=3"])]);
    let said = |result: Result<StressReport, RunError>| result.unwrap_err().to_string();
    let stop = Stop::default();
    let missing = StressSpec { create: false, ..good.clone() };
    assert!(said(stress::run(&missing, &stop, &quiet()).await).contains("fstress"));
    let twice = StressSpec { loads: vec![load("mail", &[]), load("mail", &[])], ..good.clone() };
    assert!(said(stress::run(&twice, &stop, &quiet()).await).contains("mail"));
    let rate = StressSpec { source: Loop::Open { per_s: f64::NAN, spread: Spread::Even }, ..good.clone() };
    assert!(said(stress::run(&rate, &stop, &quiet()).await).contains("rate is NaN"));
    let outside =
        StressSpec { loads: vec![Load { name: "../x".into(), ..load("mail", &[]) }], ..good.clone() };
    assert!(said(stress::run(&outside, &stop, &quiet()).await).contains("../x"));
    let mut export = good;
    export.run.export = "/other".into();
    assert!(said(stress::run(&export, &stop, &quiet()).await).contains("/other"));
}
