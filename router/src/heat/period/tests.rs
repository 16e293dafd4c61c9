//! The recorder against a model of it that is too simple to be wrong.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::heat::{CLASSES, Class, FileToken, HeatLimits, Recorder};

const SPAN: PeriodSpan = PeriodSpan { start_unix_ms: 1_000, length_ms: 500 };

fn limits(files_max: usize) -> HeatLimits {
    HeatLimits { files_max, names_max: 100, idle_periods_max: 1 }
}

fn close(recorder: &mut Recorder) -> PeriodRecord {
    merge(vec![recorder.close()], SPAN, &[], &mut Names::new(100))
}

fn class_of(number: u8) -> Class {
    CLASSES[usize::from(number) % 3]
}

/// A poor hash on purpose: every run of 8 handles collides, and the table must not care.
fn hash_of(file: u8) -> u64 {
    u64::from(file / 8) << 32 | u64::from(file / 16)
}

#[derive(Debug, Clone)]
enum Step {
    Call { shard: usize, store: u16, class: u8, file: u8 },
    Reply { which: usize, failed: bool, us: u64, read: u32, written: u32 },
    Close,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0usize..2, 0u16..3, 0u8..3, 0u8..24)
            .prop_map(|(shard, store, class, file)| Step::Call { shard, store, class, file }),
        5 => (any::<usize>(), prop::bool::weighted(0.1), 0u64..200_000, 0u32..10, 0u32..10)
            .prop_map(|(which, failed, us, read, written)| Step::Reply { which, failed, us, read, written }),
        1 => Just(Step::Close),
    ];
    prop::collection::vec(step, 0..300)
}

struct InFlight {
    shard: usize,
    token: FileToken,
    store: u16,
    class: Class,
}

#[derive(Default)]
struct Model {
    calls: HashMap<u8, [u64; 3]>,
    stores: [[u64; 3]; 3],
    failed: [u64; 3],
    times: [Vec<u64>; 3],
    bytes: (u64, u64),
}

impl Model {
    fn check(&self, record: &PeriodRecord) -> Result<(), TestCaseError> {
        let mut seen = 0;
        for file in &record.files {
            let calls = &file.counts.calls;
            let number = file.handle.as_bytes()[0];
            let expected = self.calls.get(&number).copied().unwrap_or_default();
            prop_assert_eq!([calls.reads, calls.writes, calls.metadata], expected, "file {}", number);
            seen += usize::from(calls.total() > 0);
        }
        prop_assert_eq!(seen, self.calls.len());
        prop_assert!(record.files.is_sorted_by_key(|file| std::cmp::Reverse(file.counts.calls.total())));
        for (number, store) in record.stores.iter().enumerate() {
            let counts = &store.counts;
            let requests = &counts.requests;
            prop_assert_eq!([requests.reads, requests.writes, requests.metadata], self.stores[number]);
            prop_assert_eq!(counts.failed, self.failed[number]);
            prop_assert_eq!(counts.response.count(), self.times[number].len() as u64);
            prop_assert_eq!(counts.response.sum_us(), self.times[number].iter().sum::<u64>());
            prop_assert_eq!(
                counts.by_class.iter().map(|times| times.sum_us).sum::<u64>(),
                counts.response.sum_us()
            );
        }
        let of_files = record.files.iter().map(|file| &file.counts).chain([&record.other]);
        let bytes = of_files.fold((0, 0), |sum, c| (sum.0 + c.bytes_read, sum.1 + c.bytes_written));
        let of_stores = record
            .stores
            .iter()
            .fold((0, 0), |sum, store| (sum.0 + store.counts.bytes_read, sum.1 + store.counts.bytes_written));
        prop_assert_eq!(bytes, self.bytes);
        prop_assert_eq!(of_stores, self.bytes);
        Ok(())
    }
}

proptest! {
    #[test]
    fn the_recorder_counts_as_the_model_does(steps in steps()) {
        let mut shards = [Recorder::new(limits(1_000), 3), Recorder::new(limits(1_000), 0)];
        let mut names = Names::new(100);
        let mut flying: Vec<InFlight> = Vec::new();
        let mut model = Model::default();
        for step in steps.into_iter().chain([Step::Close]) {
            match step {
                Step::Call { shard, store, class, file } => {
                    let class = class_of(class);
                    let token = shards[shard].call(StoreId(store), class, &[file], hash_of(file));
                    model.calls.entry(file).or_default()[CLASSES.iter().position(|one| *one == class).unwrap()] += 1;
                    model.stores[usize::from(store)][CLASSES.iter().position(|one| *one == class).unwrap()] += 1;
                    flying.push(InFlight { shard, token, store, class });
                }
                Step::Reply { which, failed, us, read, written } if !flying.is_empty() => {
                    let InFlight { shard, token, store, class } = flying.swap_remove(which % flying.len());
                    shards[shard].reply(token, StoreId(store), class, us, failed, read, written);
                    if failed {
                        model.failed[usize::from(store)] += 1;
                    } else {
                        model.times[usize::from(store)].push(us);
                        model.bytes = (model.bytes.0 + u64::from(read), model.bytes.1 + u64::from(written));
                    }
                }
                Step::Reply { .. } => {}
                Step::Close => {
                    let closed = shards.iter_mut().map(Recorder::close).collect();
                    model.check(&merge(closed, SPAN, &[], &mut names))?;
                    model = Model::default();
                }
            }
        }
    }
}

#[test]
fn files_beyond_the_limit_are_counted_together() {
    let mut recorder = Recorder::new(limits(4), 1);
    for round in 0..3u32 {
        for file in 0..10u8 {
            let token = recorder.call(StoreId(0), Class::Read, &[file], u64::from(file));
            recorder.reply(token, StoreId(0), Class::Read, 5, false, 100 + round, 0);
        }
    }
    let record = close(&mut recorder);
    assert_eq!(record.files.len(), 4);
    assert!(record.files.iter().all(|file| file.counts.calls.reads == 3 && file.counts.bytes_read == 303));
    assert_eq!(record.other.calls.reads, 18);
    assert_eq!(record.other.bytes_read, 6 * 303);
    assert_eq!(record.requests(), 30);
}

#[test]
fn idle_files_make_room_and_their_tokens_stay_safe() {
    let mut recorder = Recorder::new(limits(1), 1);
    let old = recorder.call(StoreId(0), Class::Read, b"old", 1);
    close(&mut recorder);
    close(&mut recorder); // idle for one period: still there
    assert_eq!(recorder.call(StoreId(0), Class::Read, b"new", 2), FileToken::OTHER);
    close(&mut recorder); // idle for two: gone
    let new = recorder.call(StoreId(0), Class::Write, b"new", 2);
    assert_ne!(new, FileToken::OTHER);
    recorder.reply(old, StoreId(0), Class::Read, 9, false, 77, 0);
    recorder.reply(new, StoreId(0), Class::Write, 9, false, 0, 5);
    let record = close(&mut recorder);
    assert_eq!(record.files[0].counts.bytes_read, 0, "the late reply is not the new file's");
    assert_eq!(record.files[0].counts.bytes_written, 5);
    assert_eq!(record.other.bytes_read, 77);
}

#[test]
fn the_most_calls_outstanding_are_known_also_across_a_close() {
    let mut recorder = Recorder::new(limits(10), 2);
    let tokens: Vec<_> =
        (0..5u8).map(|file| recorder.call(StoreId(1), Class::Read, &[file], u64::from(file))).collect();
    assert_eq!(close(&mut recorder).stores[1].counts.outstanding_max, 5);
    for token in tokens {
        recorder.reply(token, StoreId(1), Class::Read, 1, false, 0, 0);
    }
    assert_eq!(close(&mut recorder).stores[1].counts.outstanding_max, 5, "they were open when it began");
    assert_eq!(close(&mut recorder).stores[1].counts.outstanding_max, 0);
}

#[test]
fn handles_that_are_none_are_counted_with_the_other_files() {
    let mut recorder = Recorder::new(limits(10), 1);
    assert_eq!(recorder.call(StoreId(0), Class::Metadata, &[], 0), FileToken::OTHER);
    assert_eq!(recorder.call(StoreId(0), Class::Metadata, &[0; 65], 0), FileToken::OTHER);
    assert_eq!(close(&mut recorder).other.calls.metadata, 2);
}

#[test]
fn files_carry_their_path_and_the_store_of_most_calls() {
    let (mut one, mut two) = (Recorder::new(limits(10), 3), Recorder::new(limits(10), 3));
    one.name(b"root", b"index.html", b"f");
    for _ in 0..3 {
        one.call(StoreId(2), Class::Read, b"f", 7);
    }
    two.call(StoreId(1), Class::Read, b"f", 7);
    let mut names = Names::new(10);
    names.root(b"root", "/www");
    let stores = ["quick".to_owned(), "slow".to_owned()];
    let record = merge(vec![two.close(), one.close()], SPAN, &stores, &mut names);
    assert_eq!(record.files[0].path.as_deref(), Some("/www/index.html"));
    assert_eq!(record.files[0].store, 2);
    assert_eq!(record.files[0].counts.calls.reads, 4);
    let shown: Vec<_> = record.stores.iter().map(|store| store.name.as_str()).collect();
    assert_eq!(shown, ["quick", "slow", "store-2"]);
}

#[test]
fn many_files_keep_the_table_right_while_it_grows() {
    let mut recorder = Recorder::new(limits(50_000), 1);
    for round in 0..2 {
        for file in 0..30_000u32 {
            let handle = file.to_be_bytes();
            let hash = xxhash_rust::xxh3::xxh3_64(&handle);
            recorder.call(StoreId(0), Class::Read, &handle, hash);
        }
        assert_eq!(recorder.close().files_known(), 30_000, "round {round}");
    }
}

#[test]
fn a_running_period_tells_of_the_files_that_matter_and_counts_all_calls() {
    let mut recorder = Recorder::new(limits(200_000), 2);
    let call = |recorder: &mut Recorder, store: u16, file: u32| {
        let hash = u64::from(file).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        recorder.call(StoreId(store), Class::Read, &file.to_be_bytes(), hash);
    };
    for round in 0..3 {
        (0..100_000).for_each(|file| call(&mut recorder, 0, file));
        (0..50 * (round + 1)).for_each(|_| call(&mut recorder, 1, 7));
    }
    (0..20).for_each(|_| call(&mut recorder, 1, 9));
    let running = recorder.running();
    let listed: Vec<(Vec<u8>, u64)> =
        running.files().map(|(handle, counts)| (handle.as_bytes().to_vec(), counts.calls.total())).collect();
    // 7 has a thousandth; 9, at 23 of 300,320, less than a ten thousandth.
    assert_eq!(listed, [(7u32.to_be_bytes().to_vec(), 303)]);
    assert_eq!(running.other().calls.total(), 300_320 - 303);
    let stores: Vec<u64> = running.stores().iter().map(|store| store.requests.total()).collect();
    assert_eq!(stores, [300_000, 320]);
    // It goes on, and the next one begins anew.
    assert_eq!(recorder.close().files().count(), 100_000);
    assert_eq!(recorder.running().files().count(), 0);
    (0..8).for_each(|_| call(&mut recorder, 0, 5));
    assert_eq!(recorder.running().files().count(), 1);
    assert_eq!(recorder.running().other().calls.total(), 0);
}
