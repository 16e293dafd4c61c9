//! Whole replays against a server in memory that counts what arrives, and when.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "each test file uses a part of it")]
mod fake;

use clockwork_traces::workload::Workload;
use clockwork_wire::nfs3::Procedure;
use fake::{Fake, Habits};
use fstress_replay::client::Transport;
use fstress_replay::plan::{HttpClients, Model, Operation, Phase, Schedule};
use fstress_replay::replay::{self, Event, OnEvent, ReplaySpec};
use fstress_replay::report::ReplayReport;
use fstress_replay::{RunError, RunSpec, Stop};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn quiet() -> OnEvent {
    Arc::new(|_| {})
}

/// One site (few files), hours of a third of a second.
fn spec(fake: &Fake, transport: Transport, calls_per_s: f64) -> ReplaySpec {
    let workload = Arc::new(Workload::of_bundled(&[("space", 1.0)], 1).unwrap());
    let mut spec = ReplaySpec::new(fake.address, "/export", workload);
    spec.run.client.transport = transport;
    spec.run.client.udp_timeout = Duration::from_millis(60);
    spec.run.client.connections = 2;
    spec.hours = 630..633;
    spec.seconds_per_hour = 0.35;
    let mapping = spec.mapping;
    spec.rate_factor = mapping
        .factor_for_mean(&spec.workload, spec.hours.clone(), spec.seconds_per_hour, calls_per_s)
        .unwrap();
    // Over as soon as all is answered: on a busy machine that takes its time.
    spec.run.drain = Duration::from_secs(60);
    spec
}

/// A spec with something else about the run.
fn with(spec: &ReplaySpec, change: impl FnOnce(&mut RunSpec)) -> ReplaySpec {
    let mut spec = spec.clone();
    change(&mut spec.run);
    spec
}

async fn with_files(habits: Habits, transport: Transport, calls_per_s: f64) -> (Fake, ReplaySpec) {
    let fake = Fake::start(habits).await;
    let spec = spec(&fake, transport, calls_per_s);
    let files = spec.workload.files().len();
    assert_eq!(replay::create_files(&spec, &quiet()).await.unwrap(), files);
    (fake, spec)
}

async fn run(spec: ReplaySpec) -> ReplayReport {
    replay::run(spec, &Stop::default(), &quiet()).await.unwrap()
}

fn assert_all_good(report: &ReplayReport) {
    let total = &report.total;
    assert_eq!(total.error_kinds.len(), 0, "{:?}", total.error_kinds);
    assert_eq!((total.errors, total.unanswered, total.not_sent), (0, 0, 0));
    assert_eq!((total.good, total.called), (total.wanted, total.wanted));
    assert!(total.wanted > 0 && !report.run.saturated && !report.run.interrupted);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_request_of_the_workload_is_issued_and_answered() {
    for transport in [Transport::Tcp, Transport::Udp] {
        let (fake, spec) = with_files(Habits::default(), transport, 900.0).await;
        assert_eq!(replay::create_files(&spec, &quiet()).await.unwrap(), 0, "files are made once");
        let prepared = replay::prepare(spec, &quiet()).await.unwrap();
        fake.forget();
        let report = prepared.run(Instant::now(), &Stop::default(), &quiet()).await.unwrap();
        assert_all_good(&report);
        assert_eq!(report.hours.iter().map(|hour| hour.hour).collect::<Vec<_>>(), [630, 631, 632]);
        for hour in &report.hours {
            let summary = &hour.summary;
            assert!((summary.requests as f64 - summary.requests_expected).abs() <= 0.5, "{summary:?}");
            assert!(hour.complete);
        }
        // What the report says is what the server saw.
        for (operation, procedure) in [
            (Operation::Lookup, Procedure::Lookup),
            (Operation::Access, Procedure::Access),
            (Operation::Getattr, Procedure::Getattr),
            (Operation::Read, Procedure::Read),
        ] {
            let counted = &report.total.operations[operation as usize];
            assert_eq!(counted.operation, operation);
            let mut xids: Vec<u32> = fake.arrived(procedure).iter().map(|call| call.xid).collect();
            xids.sort_unstable();
            xids.dedup();
            assert_eq!(counted.good, xids.len() as u64, "{operation:?}");
        }
        let sum: u64 = report.hours.iter().map(|hour| hour.summary.good).sum();
        assert_eq!(sum, report.total.good);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_come_at_their_times_however_slow_the_server_is() {
    let (fake, spec) = with_files(Habits::default(), Transport::Tcp, 600.0).await;
    let workload = Arc::clone(&spec.workload);
    let prepared = replay::prepare(spec, &quiet()).await.unwrap();
    let planned: Vec<Duration> = {
        let spec = prepared.spec();
        let pace = spec.pace();
        Schedule::new(&workload, pace).unwrap().map(|call| call.due).collect()
    };
    fake.forget();
    fake.habits(|habits| habits.delay = Duration::from_millis(250));
    let start = Instant::now() + Duration::from_millis(20);
    let report = prepared.run(start, &Stop::default(), &quiet()).await.unwrap();
    assert_all_good(&report);
    assert!(report.total.response.p50_ms >= 250.0, "{:?}", report.total.response);
    let mut arrived: Vec<Instant> = fake.all_arrived().iter().map(|call| call.at).collect();
    arrived.sort_unstable();
    assert_eq!(arrived.len(), planned.len());
    let mut late: Vec<f64> = arrived
        .iter()
        .zip(&planned)
        .map(|(at, due)| at.duration_since(start).as_secs_f64() - due.as_secs_f64())
        .collect();
    late.sort_by(f64::total_cmp);
    // A closed loop would be 250 ms late after the first call of each connection, and more with every further one.
    assert!(late[0] > -0.001, "nothing comes before its time: {}", late[0]);
    assert!(late[late.len() / 2] < 0.1, "median lateness {} s", late[late.len() / 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stall_is_charged_to_every_call_that_was_due_in_it() {
    let (fake, spec) = with_files(Habits::default(), Transport::Tcp, 600.0).await;
    let prepared = replay::prepare(spec, &quiet()).await.unwrap();
    let start = Instant::now();
    fake.habits(|habits| habits.stall_until = Some(start + Duration::from_millis(500)));
    let report = prepared.run(start, &Stop::default(), &quiet()).await.unwrap();
    assert_all_good(&report);
    // The first hour (350 ms) lies within the stall: its calls wait from 500 down to 150 ms, 325 in the mean.
    let first = &report.hours[0].summary;
    assert!(first.response.mean_ms > 250.0, "{:?}", first.response);
    assert!(first.response.p50_ms > 200.0, "{:?}", first.response);
}

#[tokio::test(flavor = "multi_thread")]
async fn outstanding_calls_are_bounded_and_the_rest_is_counted() {
    let (fake, mut spec) = with_files(Habits::default(), Transport::Tcp, 900.0).await;
    spec.run.outstanding_max = 40;
    spec.run.drain = Duration::from_millis(50);
    fake.forget();
    fake.habits(|habits| habits.mute_reads = true);
    let report = run(spec).await;
    let total = &report.total;
    assert!(report.run.saturated && total.not_sent > 0);
    assert_eq!(total.unanswered, 40);
    assert_eq!(total.wanted, total.called + total.not_sent);
    assert_eq!(total.called, total.good + total.errors + total.unanswered);
    assert_eq!(fake.arrived(Procedure::Read).len(), 40);
    assert!(report.text().contains("saturated"));
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_datagrams_are_sent_again_with_their_xids() {
    let (fake, spec) = with_files(Habits::default(), Transport::Udp, 500.0).await;
    let prepared = replay::prepare(spec, &quiet()).await.unwrap();
    fake.forget();
    fake.habits(|habits| habits.lose_every = 5);
    let report = prepared.run(Instant::now(), &Stop::default(), &quiet()).await.unwrap();
    assert_all_good(&report);
    let lost = fake.lost();
    assert!(lost > 20, "{lost}");
    let mut transmissions: HashMap<u32, u64> = HashMap::new();
    for call in fake.all_arrived() {
        *transmissions.entry(call.xid).or_default() += 1;
    }
    let again: u64 = transmissions.values().map(|count| count - 1).sum();
    assert_eq!(transmissions.len() as u64, report.total.called, "no call has a new XID");
    // What is sent while the reply to an earlier transmission is on its way may arrive after the report.
    assert!(again.abs_diff(report.total.retransmissions) <= again / 10, "{again} seen");
    assert!(again >= lost as u64);
    // A fifth of the calls waited for the retransmission.
    assert!(report.total.response.p95_ms >= 60.0, "{:?}", report.total.response);
}

#[tokio::test(flavor = "multi_thread")]
async fn retransmissions_back_off() {
    let (fake, mut spec) = with_files(Habits::default(), Transport::Udp, 30.0).await;
    spec.run.client.call_timeout = Duration::from_millis(1000);
    fake.habits(|habits| habits.mute_reads = true);
    fake.forget();
    let report = run(spec).await;
    let mut times: HashMap<u32, Vec<Instant>> = HashMap::new();
    for call in fake.arrived(Procedure::Read) {
        times.entry(call.xid).or_default().push(call.at);
    }
    assert!(!times.is_empty());
    // After 60, 180, 420 and 900 ms; after 1000 ms the call is given up.
    let mut gaps: [Vec<f64>; 4] = Default::default();
    for times in times.values() {
        assert!(times.len() <= 5, "{} transmissions", times.len());
        let each = times.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64());
        each.zip(&mut gaps).for_each(|(gap, gaps)| gaps.push(gap));
    }
    // A busy machine puts off some of them.
    let median = |gaps: &mut Vec<f64>| {
        gaps.sort_unstable_by(f64::total_cmp);
        gaps.get(gaps.len() / 2).copied()
    };
    let medians: Vec<f64> = gaps.iter_mut().map_while(median).collect();
    assert!(medians.len() > 1 && medians[0] > 0.03, "{medians:?}");
    assert!(medians.windows(2).all(|pair| pair[1] > pair[0]), "{medians:?}");
    let reads = &report.total.operations[Operation::Read as usize];
    assert_eq!((reads.good, reads.errors), (0, reads.called));
    assert_eq!(report.total.error_kinds["READ no reply in time"], reads.called);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_connection_is_made_again_and_its_calls_are_sent_again() {
    let habits = Habits { delay: Duration::from_millis(30), ..Habits::default() };
    let (fake, spec) = with_files(Habits::default(), Transport::Tcp, 600.0).await;
    let prepared = replay::prepare(spec, &quiet()).await.unwrap();
    fake.forget();
    fake.habits(|now| *now = Habits { close_after: Some(150), ..habits });
    let report = prepared.run(Instant::now(), &Stop::default(), &quiet()).await.unwrap();
    assert_all_good(&report);
    assert!(report.total.retransmissions > 0);
    let mut xids: Vec<u32> = fake.all_arrived().iter().map(|call| call.xid).collect();
    xids.sort_unstable();
    xids.dedup();
    assert_eq!(xids.len() as u64, report.total.called, "calls sent again keep their XIDs");
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_in_any_fragments_are_read() {
    let habits = Habits { fragment_bytes: Some(64), ..Habits::default() };
    let (_fake, mut spec) = with_files(habits, Transport::Tcp, 300.0).await;
    // The reader takes up to 1,024 fragments a record.
    spec.mapping.read_bytes = 16 << 10;
    assert_all_good(&run(spec).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_answers_are_errors_by_kind() {
    let (fake, spec) = with_files(Habits::default(), Transport::Tcp, 900.0).await;
    let hot = spec.workload.files()[0].path.clone();
    let prepared = replay::prepare(spec, &quiet()).await.unwrap();
    fake.habits(|habits| (habits.spoil, habits.stale) = (Some(hot.clone()), Some(hot)));
    let report = prepared.run(Instant::now(), &Stop::default(), &quiet()).await.unwrap();
    let kinds = &report.total.error_kinds;
    assert!(kinds["READ data that is not the file's"] > 0, "{kinds:?}");
    assert!(kinds["GETATTR STALE"] > 0, "{kinds:?}");
    assert_eq!(kinds.len(), 2);
    assert_eq!(report.total.errors, kinds.values().sum::<u64>());
    assert_eq!(report.total.good + report.total.errors, report.total.called);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_replay_reports_what_it_has() {
    let (_fake, spec) = with_files(Habits::default(), Transport::Tcp, 600.0).await;
    let stop = Stop::default();
    let (stopper, seen) = (stop.clone(), Arc::new(Mutex::new(Vec::new())));
    let events = Arc::clone(&seen);
    let on_event: OnEvent = Arc::new(move |event| {
        if let Event::Hour { hour, .. } = event {
            events.lock().unwrap().push(hour);
            if hour == 631 {
                stopper.stop();
            }
        }
    });
    let report = replay::run(spec, &stop, &on_event).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [630, 631]);
    assert!(report.run.interrupted && report.hours[0].complete && report.hours[0].summary.good > 0);
    assert!(report.hours.iter().skip(1).all(|hour| !hour.complete));
    assert!(report.text().contains("interrupted"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_replayed_is_said_clearly() {
    let fake = Fake::start(Habits::default()).await;
    let spec = spec(&fake, Transport::Tcp, 100.0);
    let said = |result: Result<ReplayReport, RunError>| result.unwrap_err().to_string();
    let stop = Stop::default();
    let missing = said(replay::run(spec.clone(), &stop, &quiet()).await);
    assert!(missing.contains("space") && missing.contains("--create"), "{missing}");
    let export = with(&spec, |run| run.export = "/other".into());
    let refused = said(replay::run(export, &stop, &quiet()).await);
    assert!(refused.contains("/other") && refused.contains("NOENT"), "{refused}");
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nobody = said(replay::run(with(&spec, |run| run.target = free), &stop, &quiet()).await);
    assert!(nobody.contains(&free.to_string()), "{nobody}");
    // A server that closes every connection: no flood of new ones.
    let closing = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = closing.local_addr().unwrap();
    let accepted = Arc::new(Mutex::new(0));
    let counter = Arc::clone(&accepted);
    tokio::spawn(async move {
        while closing.accept().await.is_ok() {
            *counter.lock().unwrap() += 1;
        }
    });
    let mut closed = with(&spec, |run| (run.target, run.mount) = (target, target));
    closed.run.client.call_timeout = Duration::from_millis(400);
    let silent = said(replay::run(closed, &stop, &quiet()).await);
    assert!(silent.contains("no reply from") && silent.matches("MNT").count() == 1, "{silent}");
    let connections = *accepted.lock().unwrap();
    assert!((3..=20).contains(&connections), "{connections} connections in .4 s");
    let late = ReplaySpec { hours: 660..664, ..spec.clone() };
    assert!(said(replay::run(late, &stop, &quiet()).await).contains("hour 662"));
    let factor = ReplaySpec { rate_factor: f64::NAN, ..spec };
    assert!(said(replay::run(factor, &stop, &quiet()).await).contains("rate factor"));
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_written_again_when_the_server_forgot_them() {
    let (fake, spec) =
        with_files(Habits { forget_commits: 3, ..Habits::default() }, Transport::Tcp, 50.0).await;
    let creates = fake.arrived(Procedure::Create).len();
    assert!(creates > spec.workload.files().len(), "{creates} files were created");
    assert_all_good(&run(spec).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_survives_json() {
    let (_fake, spec) = with_files(Habits::default(), Transport::Tcp, 300.0).await;
    let report = run(spec).await;
    let json = serde_json::to_string(&report).unwrap();
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["hours"][0]["hour"], 630);
    assert_eq!(value["total"]["good"], report.total.good);
    assert_eq!(value["total"]["operations"][3]["operation"], "read");
    let back: ReplayReport = serde_json::from_str(&json).unwrap();
    assert_eq!(back.total.wanted, report.total.wanted);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_hour_of_the_bundled_day_has_its_number_of_requests() {
    let http = HttpClients { clients: 3, read_bytes: 1 << 20, ..HttpClients::default() };
    for model in [Model::Calls, Model::Http(http)] {
        let fake = Fake::start(Habits::default()).await;
        let mut spec = spec(&fake, Transport::Tcp, 1.0);
        (spec.hours, spec.seconds_per_hour, spec.model) = (622..646, 0.25, model);
        // What is counted are requests: none may be refused because the machine has other things to do.
        spec.run.outstanding_max = 1 << 14;
        // One call a request, so that what the server counts are requests.
        (spec.mapping.lookup_every, spec.mapping.access_every, spec.mapping.read_every) = (0, 0, 0);
        let (hours, seconds) = (spec.hours.clone(), spec.seconds_per_hour);
        spec.rate_factor = spec.mapping.factor_for_mean(&spec.workload, hours, seconds, 1500.0).unwrap();
        replay::create_files(&spec, &quiet()).await.unwrap();
        let workload = Arc::clone(&spec.workload);
        let factor = spec.rate_factor;
        let prepared = replay::prepare(spec, &quiet()).await.unwrap();
        fake.forget();
        let report = prepared.run(Instant::now(), &Stop::default(), &quiet()).await.unwrap();
        assert_all_good(&report);
        assert_eq!(report.hours.len(), 24);
        for hour in &report.hours {
            let wanted = workload.requests(hour.hour).unwrap() * factor;
            let issued = hour.summary.requests as f64;
            assert!(wanted > 100.0);
            // To a whole request, which is .5 % of 100.
            assert!((issued - wanted).abs() <= 0.5, "hour {}: {issued} of {wanted}", hour.hour);
            assert_eq!(hour.summary.requests, hour.summary.requests_due);
        }
        let seen = |procedure| fake.arrived(procedure).len() as u64;
        match model {
            Model::Calls => assert_eq!(seen(Procedure::Getattr), report.total.requests),
            // Opening a file takes a GETATTR, or a LOOKUP the first time; the first walks look up directories, too, and
            // ask again for the attributes of those that are not fresh any more.
            _ => {
                let opened = seen(Procedure::Getattr) + seen(Procedure::Lookup);
                let directories = 3 * workload.files().len() as u64;
                assert!(
                    (report.total.requests..report.total.requests + directories).contains(&opened),
                    "{opened}"
                );
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn web_servers_with_caches_call_what_was_planned() {
    for transport in [Transport::Tcp, Transport::Udp] {
        let (fake, mut spec) = with_files(Habits::default(), transport, 900.0).await;
        spec.model = Model::Http(HttpClients { clients: 5, read_bytes: 16 << 10, ..HttpClients::default() });
        let prepared = replay::prepare(spec, &quiet()).await.unwrap();
        let spec = prepared.spec();
        let planned: Vec<_> = Schedule::new(&spec.workload, spec.pace()).unwrap().collect();
        fake.forget();
        let report = prepared.run(Instant::now(), &Stop::default(), &quiet()).await.unwrap();
        assert_all_good(&report);
        for (operation, procedure) in [
            (Operation::Lookup, Procedure::Lookup),
            (Operation::Access, Procedure::Access),
            (Operation::Getattr, Procedure::Getattr),
            (Operation::Read, Procedure::Read),
        ] {
            let wanted = planned.iter().filter(|call| call.operation == Some(operation)).count();
            let mut xids: Vec<u32> = fake.arrived(procedure).iter().map(|call| call.xid).collect();
            xids.sort_unstable();
            xids.dedup();
            assert_eq!(xids.len(), wanted, "{operation:?}");
            assert_eq!(report.total.operations[operation as usize].good, wanted as u64);
        }
        assert!(report.text().contains("5 model clients"), "{}", report.text());
        assert_eq!((report.total.stale, report.handles_replaced), (0, 0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_and_directories_that_were_replaced_are_looked_up_again() {
    let (fake, mut spec) = with_files(Habits::default(), Transport::Tcp, 900.0).await;
    spec.model = Model::Http(HttpClients::default());
    // The file that is asked for most.
    let rates = spec.workload.rates(631).unwrap();
    let hot = (0..rates.len()).max_by(|a, b| rates[*a].total_cmp(&rates[*b])).unwrap();
    let path = spec.workload.files()[hot].path.clone();
    let directory = path.rsplit_once('/').unwrap().0.to_owned();
    let prepared = replay::prepare(spec, &quiet()).await.unwrap();
    let (replacing, told) = (fake.clone(), Mutex::new(0));
    let on_event: OnEvent = Arc::new(move |event| {
        if let Event::Hour { hour, .. } = event {
            match hour {
                631 => replacing.replace(&path),
                632 => replacing.replace(&directory),
                _ => {}
            }
            *told.lock().unwrap() += 1;
        }
    });
    let report = prepared.run(Instant::now(), &Stop::default(), &on_event).await.unwrap();
    let total = &report.total;
    assert_eq!((total.errors, total.unanswered), (0, 0), "{:?}", total.error_kinds);
    assert!(total.stale > 0 && total.stale < 200, "{}", total.stale);
    assert_eq!(total.good + total.stale, total.called);
    // Each of two lanes has learnt of both.
    assert!((2..=4).contains(&report.handles_replaced), "{}", report.handles_replaced);
    for hour in &report.hours {
        assert!((hour.summary.requests as f64 - hour.summary.requests_expected).abs() <= 0.5);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn warmup_and_cooldown_are_called_but_not_measured() {
    let (fake, mut spec) = with_files(Habits::default(), Transport::Tcp, 900.0).await;
    (spec.run.warmup, spec.run.cooldown) = (Duration::from_millis(500), Duration::from_millis(100));
    let prepared = replay::prepare(spec, &quiet()).await.unwrap();
    let spec = prepared.spec();
    let planned: Vec<_> = Schedule::new(&spec.workload, spec.pace()).unwrap().collect();
    fake.forget();
    let start = Instant::now();
    let report = prepared.run(start, &Stop::default(), &quiet()).await.unwrap();
    assert!(start.elapsed() >= Duration::from_millis(500 + 3 * 350 + 100));
    assert_all_good(&report);
    let measured = planned.iter().filter(|call| call.phase == Phase::Run).count() as u64;
    assert_eq!(report.total.called, measured);
    assert_eq!((report.warmup.called, report.warmup.errors), (planned.len() as u64 - measured, 0));
    assert!(report.warmup.called > 200, "{:?}", report.warmup);
    assert_eq!(fake.all_arrived().len(), planned.len());
    assert_eq!(report.hours.iter().map(|hour| hour.hour).collect::<Vec<_>>(), [630, 631, 632]);
    assert!(report.text().contains("0.5 s of warm-up and 0.1 s of cooldown"), "{}", report.text());
}
