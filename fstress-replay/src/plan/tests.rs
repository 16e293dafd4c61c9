use super::*;
use std::collections::BTreeMap;

fn workload() -> Arc<Workload> {
    Arc::new(Workload::bundled().unwrap())
}

fn pace(factor: f64) -> Pace {
    Pace {
        hours: 622..646,
        hour_length: Duration::from_secs(7),
        factor,
        mapping: Mapping::default(),
        model: Model::Calls,
        warmup: Duration::ZERO,
        cooldown: Duration::ZERO,
        kinds: None,
    }
}

fn http(factor: f64) -> Pace {
    Pace { model: Model::Http(HttpClients::default()), ..pace(factor) }
}

fn calls(workload: &Arc<Workload>, pace: Pace) -> Vec<PlannedCall> {
    Schedule::new(workload, pace).unwrap().collect()
}

fn requests(calls: &[PlannedCall]) -> BTreeMap<(Phase, u32), usize> {
    let mut counts = BTreeMap::new();
    for call in calls.iter().filter(|call| call.first) {
        *counts.entry((call.phase, call.hour)).or_default() += 1;
    }
    counts
}

#[test]
fn calls_are_in_order_and_complete() {
    let workload = workload();
    for pace in [pace(0.02), http(0.02)] {
        let calls = calls(&workload, pace);
        assert!(calls.windows(2).all(|pair| pair[0].due <= pair[1].due));
        // Every piece of every file lies within it.
        for call in calls.iter().filter(|call| call.operation == Some(Operation::Read)) {
            let bytes = workload.files()[call.file as usize].bytes;
            assert!(call.count > 0 && call.offset + u64::from(call.count) <= bytes);
        }
    }
}

#[test]
fn every_hour_of_the_bundled_day_has_its_requests_within_half_a_per_cent() {
    let workload = workload();
    for mut pace in [pace(0.05), http(0.05), Pace { model: Model::Nfs, ..pace(0.05) }] {
        (pace.warmup, pace.cooldown) = (Duration::from_secs(3), Duration::from_secs(1));
        let tree = Arc::new(Tree::of(workload.files()));
        // As two lanes issue them.
        let of_part = |number| {
            let part = Part { number, parts: 2, connections: 4 };
            Schedule::part(&workload, &tree, pace.clone(), part).unwrap().collect::<Vec<_>>()
        };
        let counted = requests(&[of_part(0), of_part(1)].concat());
        for hour in 622..646 {
            let (issued, wanted) =
                (counted[&(Phase::Run, hour)] as f64, workload.requests(hour).unwrap() * 0.05);
            assert!(wanted > 1_000.0, "an hour with so few requests cannot be within .5 %");
            assert!((issued / wanted - 1.0).abs() <= 0.005, "hour {hour}: {issued} of {wanted}");
        }
    }
}

#[test]
fn parts_are_together_the_whole() {
    let workload = workload();
    let tree = Arc::new(Tree::of(workload.files()));
    for pace in [pace(0.01), Pace { hours: 622..625, ..http(0.02) }] {
        let mut parts = Vec::new();
        for number in 0..3 {
            let part = Part { number, parts: 3, connections: 7 };
            let calls: Vec<PlannedCall> =
                Schedule::part(&workload, &tree, pace.clone(), part).unwrap().collect();
            assert!(!calls.is_empty());
            parts.extend(calls);
        }
        let mut whole = calls(&workload, pace);
        let order = |call: &PlannedCall| (call.due, call.request, call.offset, call.operation);
        parts.sort_by_key(order);
        whole.sort_by_key(order);
        assert_eq!(parts, whole);
    }
    let part = Part { number: 1, parts: 3, connections: 7 };
    // Connections 1 and 4 are of part 1; client 11 uses connection 4, which is the second of them.
    assert_eq!((part.connection(1), part.connection(4), part.connection(11)), (0, 1, 1));
}

#[test]
fn the_factor_gives_the_rate_that_was_asked_for() {
    let workload = workload();
    let mapping = Mapping::default();
    let factor = mapping.factor_for_mean(&workload, 622..646, 7.0, 500.0).unwrap();
    assert_eq!(Rate::Mean(500.0).factor(&workload, &pace(9.0)).unwrap(), factor);
    let rate = calls(&workload, pace(factor)).len() as f64 / (24.0 * 7.0);
    assert!((rate / 500.0 - 1.0).abs() < 0.02, "{rate}");
    let peak = |calls: &[PlannedCall]| {
        let mut hours = [0.0_f64; 24];
        for call in calls {
            hours[(call.hour - 622) as usize] += 1.0 / 7.0;
        }
        hours.iter().fold(0.0_f64, |a, b| a.max(*b))
    };
    let factor = mapping.factor_for_peak(&workload, 622..646, 7.0, 500.0).unwrap();
    let found = peak(&calls(&workload, pace(factor)));
    assert!((found / 500.0 - 1.0).abs() < 0.04, "{found}");
    // What the caches let through is counted, not known.
    let factor = Rate::Mean(500.0).factor(&workload, &http(1.0)).unwrap();
    let rate = calls(&workload, http(factor)).len() as f64 / (24.0 * 7.0);
    assert!((rate / 500.0 - 1.0).abs() < 0.05, "{rate}");
    let factor = Rate::Peak(500.0).factor(&workload, &http(1.0)).unwrap();
    let found = peak(&calls(&workload, http(factor)));
    assert!((found / 500.0 - 1.0).abs() < 0.1, "{found}");
}

#[test]
fn shares_of_operations_are_those_of_the_mapping() {
    let workload = workload();
    let calls = calls(&workload, pace(0.1));
    let count = |op| calls.iter().filter(|call| call.operation == Some(op)).count() as f64;
    let percent = |op| (count(op) * 100.0 / calls.len() as f64).round();
    // As the documentation of this module says.
    assert_eq!(Operation::ALL.map(percent), [13.0, 3.0, 51.0, 33.0, 0.0, 0.0]);
    let requests = count(Operation::Getattr);
    assert!((count(Operation::Lookup) / requests - 0.25).abs() < 0.01);
    assert!((count(Operation::Access) / requests - 0.0625).abs() < 0.01);
}

/// A day of 40 files: in every hour other numbers of requests, of which a quarter writes and an eighth concerns metadata.
fn mixed() -> clockwork_traces::trace_file::TraceData {
    use clockwork_traces::trace_file::{FileCount, Head, TraceData, TraceWriter};
    let head = Head { name: "mixed".into(), about: String::new(), period_s: 3_600, origin_s: 0 };
    let mut writer = TraceWriter::new(Vec::new(), &head).unwrap();
    let paths: Vec<Vec<u8>> = (0..40).map(|file| format!("/f{file}").into_bytes()).collect();
    writer.name_files(paths.iter().map(Vec::as_slice)).unwrap();
    for hour in 0_i64..24 {
        let count = |file: u32| {
            let requests = 8 * (1 + u64::from(file) * hour.unsigned_abs());
            let (writes, metadata) = (requests / 4, requests / 8);
            FileCount {
                file,
                requests,
                writes,
                metadata,
                bytes_read: requests * 9_000,
                bytes_written: writes * 50_000,
            }
        };
        writer.counts(hour, &(0..40).map(count).collect::<Vec<_>>()).unwrap();
    }
    TraceData::read(&writer.finish().unwrap()[..]).unwrap()
}

#[test]
fn every_hour_of_an_imported_day_has_its_requests_of_each_class_in_every_model() {
    let data = mixed();
    let workload = Arc::new(Workload::of_trace(&data, 1).unwrap());
    let kinds = Some(Arc::new(RequestKinds::of_trace(&data)));
    for model in [Model::Calls, Model::Http(HttpClients::default()), Model::Nfs] {
        let pace = Pace { hours: 0..24, model, kinds: kinds.clone(), ..pace(1.0) };
        let calls = calls(&workload, pace);
        for hour in 0..24 {
            let wanted = workload.requests(hour).unwrap();
            let of = |class| {
                calls.iter().filter(|call| call.hour == hour && call.first && call.class == class).count()
                    as f64
            };
            let [reads, writes, metadata] = [Class::Read, Class::Write, Class::Metadata].map(of);
            assert!(((reads + writes + metadata) - wanted).abs() <= 0.5, "{model:?}, hour {hour}");
            // By lot it is who asks, and each file is right to one.
            assert!(
                (writes - wanted / 4.0).abs() <= 40.0,
                "{model:?}, hour {hour}: {writes} of {}",
                wanted / 4.0
            );
            assert!((metadata - wanted / 8.0).abs() <= 40.0, "{model:?}, hour {hour}: {metadata}");
        }
        let of = |operation| calls.iter().filter(|call| call.operation == Some(operation)).count();
        let commits = of(Operation::Commit);
        let written: usize = calls.iter().filter(|call| call.first && call.class == Class::Write).count();
        assert!(of(Operation::Write) >= written - 80, "{model:?}: all but those of the smallest files write");
        assert!(commits <= written && (model != Model::Nfs || commits == 0), "{model:?}: {commits}");
        // Whatever is written lies within its file.
        for call in calls.iter().filter(|call| call.operation == Some(Operation::Write)) {
            let bytes = workload.files()[call.file as usize].bytes;
            assert!(call.count > 0 && call.offset + u64::from(call.count) <= bytes, "{call:?} of {bytes}");
            assert!(call.offset % 8 == 0, "{call:?}");
        }
    }
}

#[test]
fn an_hour_that_is_missing_is_refused_at_the_start() {
    let late = Pace { hours: 650..670, ..pace(1.0) };
    assert!(matches!(Schedule::new(&workload(), late), Err(WorkloadError::Hour { hour: 662, .. })));
}

#[test]
fn a_warmup_has_the_hours_before_and_a_cooldown_those_after() {
    let workload = workload();
    let (warmup, cooldown) = (Duration::from_secs(10), Duration::from_secs(5));
    let around = Pace { hours: 630..632, warmup, cooldown, ..pace(0.02) };
    assert_eq!((around.run(), around.whole()), (Duration::from_secs(14), Duration::from_secs(29)));
    let all = calls(&workload, around.clone());
    let counted = requests(&all);
    // 3 s of hour 628 and all of 629; two hours; 5 s of hour 632.
    let keys = [
        (Phase::Warmup, 628),
        (Phase::Warmup, 629),
        (Phase::Run, 630),
        (Phase::Run, 631),
        (Phase::Cooldown, 632),
    ];
    assert_eq!(counted.keys().copied().collect::<Vec<_>>(), keys);
    for ((_, hour), part) in keys.into_iter().zip([3.0 / 7.0, 1.0, 1.0, 1.0, 5.0 / 7.0]) {
        let wanted = workload.requests(hour).unwrap() * 0.02 * part;
        let found = counted.iter().find(|((_, of), _)| *of == hour).map_or(0, |(_, count)| *count) as f64;
        assert!((found / wanted - 1.0).abs() < 0.1, "hour {hour}: {found} of {wanted}");
    }
    // The run is the same as without; only later.
    let run: Vec<Duration> = all
        .iter()
        .filter(|call| call.phase == Phase::Run && call.first)
        .map(|call| call.due - warmup)
        .collect();
    let alone = Pace { warmup: Duration::ZERO, cooldown: Duration::ZERO, ..around };
    let first: Vec<PlannedCall> = calls(&workload, alone).into_iter().filter(|call| call.first).collect();
    assert_eq!(run, first.iter().map(|call| call.due).collect::<Vec<_>>());
    // Where there are no such hours, the nearest measured ones stand for them.
    let whole = Pace { hours: 0..662, warmup: Duration::from_secs(1), cooldown, ..pace(0.0001) };
    let ends = requests(&calls(&workload, whole));
    assert!(ends.keys().all(|(phase, hour)| match phase {
        Phase::Warmup => *hour == 0,
        Phase::Run => true,
        Phase::Cooldown => *hour == 661,
    }));
}

#[test]
fn clients_have_caches_of_their_own_and_lots_are_the_same_in_every_run() {
    let workload = workload();
    let pace = Pace { hours: 622..625, ..http(0.05) };
    let first = calls(&workload, pace.clone());
    assert_eq!(first, calls(&workload, pace.clone()));
    let mut requests = [0_usize; 4];
    for call in first.iter().filter(|call| call.first) {
        requests[call.client as usize] += 1;
    }
    let mean = requests.iter().sum::<usize>() as f64 / 4.0;
    assert!(requests.iter().all(|count| (*count as f64 / mean - 1.0).abs() < 0.1), "{requests:?}");
    // Each client asks for access to each directory and file that it uses once, unless it has forgotten it.
    let mut asked: Vec<(u32, Node)> = (first.iter().filter(|call| call.operation == Some(Operation::Access)))
        .map(|call| (call.client, call.node))
        .collect();
    let all = asked.len();
    asked.sort_by_key(|(client, node)| (*client, format!("{node:?}")));
    asked.dedup();
    assert_eq!(asked.len(), all);
    assert!(asked.iter().any(|(client, node)| *client == 3 && *node == Node::Directory(Tree::ROOT)));
    // With less to remember, more is asked for.
    let Model::Http(clients) = pace.model else { unreachable!() };
    let few = Model::Http(HttpClients { cache_entries_max: 400, ..clients });
    let mut schedule = Schedule::new(&workload, Pace { model: few, ..pace }).unwrap();
    assert!(schedule.by_ref().count() > first.len());
    assert!(schedule.evicted() > 0);
}

#[test]
fn requests_that_the_caches_answer_are_still_requests() {
    let clients = HttpClients {
        attributes: AttributeTimes::all(1e6),
        nocto: true,
        data_bytes_max: 1 << 40,
        ..HttpClients::default()
    };
    let pace = Pace { hours: 622..624, model: Model::Http(clients), ..pace(0.05) };
    let workload = workload();
    let calls = calls(&workload, pace);
    let hits = calls.iter().filter(|call| call.operation.is_none()).count();
    let requests = calls.iter().filter(|call| call.first).count();
    assert!(hits > requests / 2 && hits < requests, "{hits} of {requests}");
    let wanted: f64 = (622..624).map(|hour| workload.requests(hour).unwrap() * 0.05).sum();
    assert!((requests as f64 - wanted).abs() <= 1.0);
}

#[test]
fn a_request_whose_handle_is_stale_is_begun_again() {
    let workload = workload();
    let pace = Pace { hours: 622..623, ..http(0.05) };
    let mut schedule = Schedule::new(&workload, pace).unwrap();
    // The first request for a file that its client knows already, and that is read.
    let stale = schedule.find(|call| call.operation == Some(Operation::Getattr) && call.first).unwrap();
    let bytes = workload.files()[stale.file as usize].bytes;
    let now = stale.due + Duration::from_micros(300);
    assert_eq!(schedule.stale(&stale, now), Some(bytes == 0), "its READs were to come");
    let rest: Vec<PlannedCall> = schedule.by_ref().take(2_000).collect();
    assert!(!rest.iter().any(|call| call.request == stale.request && call.again == 0), "they come no more");
    let again: Vec<&PlannedCall> = rest.iter().filter(|call| call.again == 1).collect();
    assert_eq!(again[0].operation, Some(Operation::Lookup));
    assert_eq!((again[0].node, again[0].due, again[0].first), (Node::File(stale.file), now, false));
    assert_eq!(again[1].operation, Some(Operation::Access));
    let read: u64 = again.iter().map(|call| u64::from(call.count)).sum();
    assert_eq!(read, bytes);
    // A second call of the request was stale, too: it has begun again already.
    assert_eq!(schedule.stale(&stale, now), Some(false));
    // Stale again and again: there is an end to it.
    let mut call = *again[0];
    assert!(schedule.stale(&call, now).is_some());
    call.again = 3;
    assert_eq!(schedule.stale(&call, now), None);
}
