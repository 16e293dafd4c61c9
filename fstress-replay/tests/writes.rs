//! Replays of traces with reads, writes and requests for metadata, and calls that follow the replies to others, against a
//! server in memory.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "each test file uses a part of it")]
mod fake;

use clockwork_traces::trace_file::{FileCount, Head, TraceData, TraceWriter};
use clockwork_traces::workload::Workload;
use clockwork_wire::nfs3::Procedure;
use fake::{Arrived, Fake, Habits};
use fstress_replay::client::Transport;
use fstress_replay::plan::{HttpClients, Model, Operation, RequestKinds, WriteSync};
use fstress_replay::replay::{self, OnEvent, ReplaySpec};
use fstress_replay::report::ReplayReport;
use fstress_replay::{RunSpec, Stop};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

const KIB: u64 = 1 << 10;

fn quiet() -> OnEvent {
    Arc::new(|_| {})
}

/// Three periods of 8 files: of each file's 40 requests 12 write 40 KiB and 8 concern metadata; the others read 20 KiB.
fn trace() -> TraceData {
    let head = Head { name: "mixed".into(), about: String::new(), period_s: 60, origin_s: 0 };
    let mut writer = TraceWriter::new(Vec::new(), &head).unwrap();
    let paths: Vec<Vec<u8>> = (0..8).map(|file| format!("/f{file}").into_bytes()).collect();
    writer.name_files(paths.iter().map(Vec::as_slice)).unwrap();
    let count = |file| FileCount {
        file,
        requests: 40,
        writes: 12,
        metadata: 8,
        bytes_read: 20 * 20 * KIB,
        bytes_written: 12 * 40 * KIB,
    };
    (0..3).for_each(|period| writer.counts(period, &(0..8).map(count).collect::<Vec<_>>()).unwrap());
    writer.sizes(&(0..8).map(|file| (file, 64 * KIB)).collect::<Vec<_>>()).unwrap();
    TraceData::read(&writer.finish().unwrap()[..]).unwrap()
}

fn spec(fake: &Fake, model: Model, transport: Transport) -> ReplaySpec {
    let data = trace();
    let mut run = RunSpec::new(fake.address, "/export");
    run.client.transport = transport;
    run.client.connections = 2;
    run.drain = Duration::from_secs(60);
    let workload = Arc::new(Workload::of_trace(&data, 1).unwrap());
    let mut spec = ReplaySpec::new(fake.address, "/export", workload);
    (spec.run, spec.hours, spec.seconds_per_hour, spec.rate_factor) = (run, 0..3, 0.3, 1.0);
    (spec.model, spec.kinds) = (model, Some(Arc::new(RequestKinds::of_trace(&data))));
    spec
}

async fn run(fake: &Fake, spec: ReplaySpec) -> ReplayReport {
    replay::create_files(&spec, &quiet()).await.unwrap();
    let prepared = replay::prepare(spec, &quiet()).await.unwrap();
    fake.forget();
    prepared.run(Instant::now(), &Stop::default(), &quiet()).await.unwrap()
}

fn assert_all_good(report: &ReplayReport) {
    let total = &report.total;
    assert_eq!(total.error_kinds.len(), 0, "{:?}", total.error_kinds);
    assert_eq!((total.errors, total.unanswered, total.not_sent), (0, 0, 0));
    assert_eq!(total.good, total.called);
    assert!(report.hours.iter().all(|hour| hour.complete) && report.hours.len() == 3);
}

/// Calls of each operation that were answered well.
fn counts(report: &ReplayReport) -> HashMap<Operation, u64> {
    report.total.operations.iter().map(|operation| (operation.operation, operation.good)).collect()
}

fn seen(fake: &Fake, procedure: Procedure) -> u64 {
    let mut xids: Vec<u32> = fake.arrived(procedure).iter().map(|call| call.xid).collect();
    xids.sort_unstable();
    xids.dedup();
    xids.len() as u64
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_write_write_in_every_model_and_what_is_read_is_right() {
    for (model, transport) in [
        (Model::Calls, Transport::Tcp),
        (Model::Calls, Transport::Udp),
        (Model::Http(HttpClients::default()), Transport::Tcp),
        (Model::Nfs, Transport::Tcp),
    ] {
        let fake = Fake::start(Habits::default()).await;
        let report = run(&fake, spec(&fake, model, transport)).await;
        assert_all_good(&report);
        let total = &report.total;
        assert_eq!(total.requests, 960);
        // 288 of 960 requests write, give or take one for each file.
        assert!(total.writes_due.abs_diff(288) <= 8, "{model:?}: {}", total.writes_due);
        assert!(total.metadata_due.abs_diff(192) <= 8, "{model:?}: {}", total.metadata_due);
        let counts = counts(&report);
        for (operation, procedure) in [
            (Operation::Getattr, Procedure::Getattr),
            (Operation::Read, Procedure::Read),
            (Operation::Write, Procedure::Write),
            (Operation::Commit, Procedure::Commit),
        ] {
            assert_eq!(counts[&operation], seen(&fake, procedure), "{model:?} {operation:?}");
        }
        let of = |operation| counts[&operation];
        // 40 KiB are two WRITEs of 32 KiB at most and a COMMIT; with one call a request, one WRITE of 32 KiB.
        let (writes, commits) = match model {
            Model::Nfs => (total.writes_due, 0),
            _ => (2 * total.writes_due, total.writes_due),
        };
        assert_eq!((of(Operation::Write), of(Operation::Commit)), (writes, commits), "{model:?}");
        if model == Model::Nfs {
            let read = total.requests - total.writes_due - total.metadata_due;
            assert_eq!((of(Operation::Read), of(Operation::Getattr)), (read, total.metadata_due));
        }
        assert!(report.text().contains("write"), "{}", report.text());
        // What was written is what was there: another run finds its files right.
        let spec = spec(&fake, model, transport);
        assert_eq!(replay::create_files(&spec, &quiet()).await.unwrap(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn data_that_a_server_lost_before_its_commit_is_written_again() {
    let fake = Fake::start(Habits::default()).await;
    let spec = spec(&fake, Model::Calls, Transport::Tcp);
    replay::create_files(&spec, &quiet()).await.unwrap();
    let prepared = replay::prepare(spec, &quiet()).await.unwrap();
    fake.habits(|habits| habits.forget_commits = 3);
    let report = prepared.run(Instant::now(), &Stop::default(), &quiet()).await.unwrap();
    assert_all_good(&report);
    let total = &report.total;
    // Others had data on its way when the verifier changed: the more, the slower the machine is.
    assert!((3..total.writes_due).contains(&total.written_again), "{}", total.written_again);
    let counts = counts(&report);
    assert_eq!(counts[&Operation::Write], 2 * (total.writes_due + total.written_again));
    assert_eq!(counts[&Operation::Commit], total.writes_due + total.written_again);
    assert!(report.text().contains("written again"), "{}", report.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_verifier_that_never_holds_is_an_error() {
    let fake = Fake::start(Habits::default()).await;
    let mut spec = spec(&fake, Model::Calls, Transport::Tcp);
    spec.rate_factor = 0.1;
    replay::create_files(&spec, &quiet()).await.unwrap();
    let prepared = replay::prepare(spec, &quiet()).await.unwrap();
    fake.habits(|habits| habits.forget_commits = u32::MAX);
    let report = prepared.run(Instant::now(), &Stop::default(), &quiet()).await.unwrap();
    let kinds = &report.total.error_kinds;
    assert_eq!(
        kinds["COMMIT data may be lost: the verifier changes again and again"],
        report.total.writes_due
    );
    assert_eq!(report.total.written_again, 3 * report.total.writes_due);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_forgets_what_was_written_to_a_file_is_found_out() {
    let older = "READ data that is older than what was written and safe";
    for (model, verify) in [(Model::Calls, true), (Model::Nfs, true), (Model::Calls, false)] {
        let fake = Fake::start(Habits::default()).await;
        let mut spec = spec(&fake, model, Transport::Tcp);
        spec.run.verify = verify;
        let path = spec.workload.files()[3].path.clone();
        replay::create_files(&spec, &quiet()).await.unwrap();
        // What an earlier run has written is as good as what was made.
        assert_all_good(&replay::run(spec.clone(), &Stop::default(), &quiet()).await.unwrap());
        fake.habits(|habits| habits.forget = Some(path));
        // While a WRITE is on its way, either version is right: a slow machine is given the time to answer between two calls.
        let mut kinds = BTreeMap::new();
        for seconds_per_hour in [0.3, 1.2, 4.8] {
            spec.seconds_per_hour = seconds_per_hour;
            let prepared = replay::prepare(spec.clone(), &quiet()).await.unwrap();
            let report = prepared.run(Instant::now(), &Stop::default(), &quiet()).await.unwrap();
            kinds = report.total.error_kinds;
            if !verify || kinds.get(older).is_some_and(|count| *count > 5) {
                break;
            }
        }
        if verify {
            assert_eq!(kinds.keys().collect::<Vec<_>>(), [older], "{model:?}");
            assert!(kinds[older] > 5, "{kinds:?}");
        } else {
            assert!(kinds.is_empty(), "{kinds:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_makes_data_safe_is_asked_for_as_told() {
    for (write_sync, always_safe, commits) in [
        (WriteSync::Linux, false, 1),
        (WriteSync::Each, false, 0),
        // Nothing is left for a COMMIT.
        (WriteSync::Commit, true, 0),
    ] {
        let fake = Fake::start(Habits { always_safe, ..Habits::default() }).await;
        let mut spec = spec(&fake, Model::Calls, Transport::Tcp);
        spec.mapping.write_sync = write_sync;
        let report = run(&fake, spec).await;
        assert_all_good(&report);
        let counts = counts(&report);
        assert_eq!(counts[&Operation::Write], 2 * report.total.writes_due);
        assert_eq!(counts[&Operation::Commit], commits * report.total.writes_due, "{write_sync:?}");
    }
}

/// The most calls that were on their way at once, and whether one came before all of a kind that it needs were answered.
fn at_once(calls: &[Arrived]) -> usize {
    let under_way = |at: Instant| calls.iter().filter(|call| call.at <= at && call.answered_at > at).count();
    calls.iter().map(|call| under_way(call.at)).max().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_model_clients_follow_the_replies_while_requests_keep_their_times() {
    let fake = Fake::start(Habits::default()).await;
    let clients = HttpClients {
        clients: 1,
        read_bytes: 4 << 10,
        read_ahead_bytes: 12 << 10,
        write_bytes: 8 << 10,
        ..HttpClients::default()
    };
    let mut spec = spec(&fake, Model::Http(clients), Transport::Tcp);
    // About a request for each file, far apart.
    (spec.rate_factor, spec.seconds_per_hour) = (0.025, 1.0);
    let factor = spec.rate_factor;
    let workload = Arc::clone(&spec.workload);
    let due: Vec<Duration> = (0..3)
        .flat_map(|hour| {
            let begin = Duration::from_secs(u64::from(hour));
            let arrivals = workload.arrivals(hour, Duration::from_secs(1), factor).unwrap();
            arrivals.map(move |arrival| begin + arrival.offset).collect::<Vec<_>>()
        })
        .collect();
    replay::create_files(&spec, &quiet()).await.unwrap();
    let prepared = replay::prepare(spec, &quiet()).await.unwrap();
    fake.forget();
    fake.habits(|habits| habits.delay = Duration::from_millis(40));
    let start = Instant::now();
    let report = prepared.run(start, &Stop::default(), &quiet()).await.unwrap();
    assert_all_good(&report);
    assert_eq!(report.total.requests as usize, due.len());
    // However long the calls of a request take, it begins at its time.
    let all = fake.all_arrived();
    let lateness = |first: &Duration| {
        let times = all.iter().map(|call| call.at.saturating_duration_since(start));
        let after = times.filter(|at| *at + Duration::from_millis(1) >= *first);
        after.min().map_or(f64::INFINITY, |at| at.saturating_sub(*first).as_secs_f64())
    };
    let mut late: Vec<f64> = due.iter().map(lateness).collect();
    late.sort_by(f64::total_cmp);
    assert!(late[late.len() / 2] < 0.03, "median lateness {} s", late[late.len() / 2]);
    let mut by_file: HashMap<u64, Vec<Arrived>> = HashMap::new();
    for call in &all {
        by_file.entry(call.handle).or_default().push(*call);
    }
    let data = |procedure: Procedure| {
        let calls = by_file.values().map(|calls| {
            calls.iter().filter(|call| call.procedure == procedure.number()).copied().collect::<Vec<_>>()
        });
        calls.filter(|calls| !calls.is_empty()).collect::<Vec<_>>()
    };
    // READs of a file: the first one alone, then three at once; more where requests for the file overlap.
    let reads = data(Procedure::Read);
    assert!(
        reads.iter().any(|calls| at_once(calls) == 3),
        "{:?}",
        reads.iter().map(|r| at_once(r)).collect::<Vec<_>>()
    );
    // The COMMIT of a request comes when its five WRITEs are answered.
    let commits = data(Procedure::Commit);
    assert!(!commits.is_empty());
    for commit in commits.concat() {
        let of_file = |procedure: Procedure| {
            by_file[&commit.handle].iter().filter(move |call| call.procedure == procedure.number())
        };
        let commits = of_file(Procedure::Commit).filter(|other| other.at <= commit.at).count();
        let answered = of_file(Procedure::Write).filter(|write| write.answered_at <= commit.at).count();
        assert!(answered >= 5 * commits, "{answered} WRITEs before {commits} COMMITs");
    }
    assert!(report.total.operations.iter().all(|op| op.response.count == 0 || op.response.p50_ms < 400.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_find_no_room_are_all_counted() {
    let fake = Fake::start(Habits::default()).await;
    let mut spec = spec(&fake, Model::Http(HttpClients::default()), Transport::Tcp);
    spec.run.outstanding_max = 4;
    spec.run.drain = Duration::from_secs(2);
    replay::create_files(&spec, &quiet()).await.unwrap();
    let prepared = replay::prepare(spec, &quiet()).await.unwrap();
    fake.forget();
    fake.habits(|habits| habits.delay = Duration::from_millis(60));
    let report = prepared.run(Instant::now(), &Stop::default(), &quiet()).await.unwrap();
    let total = &report.total;
    assert!(report.run.saturated && !report.run.valid && total.not_sent > 0);
    assert_eq!(total.wanted, total.called + total.not_sent);
    assert_eq!(total.called, total.good + total.errors + total.unanswered);
    assert_eq!(total.requests_due, 960);
}
