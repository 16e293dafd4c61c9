//! The history on a real disk: what is appended comes back, limits hold, damage is moved aside, crashes lose
//! nothing that was acknowledged.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::heat::{
    Class, ClassCounts, FileCounts, FilePeriod, Handle, PeriodRecord, PeriodSpan, StoreCounts, StorePeriod,
};

const HOUR_MS: u64 = 3_600_000;

/// A plausible period: `files` of a changing set are read, a few are written, four stores answer.
fn record(period: u64, files: u64) -> PeriodRecord {
    let stores = (0..4u64).map(|store| {
        let mut counts = StoreCounts::default();
        for call in 0..200 + 40 * store {
            counts.requests.count(Class::Read);
            counts.count_answer(Class::Read, 900 + (call * 7919 + period * 31) % 9_000 * (store + 1));
        }
        StorePeriod { name: format!("store-{store}"), counts }
    });
    let files = (0..files).map(|file| {
        let number = file + period / 3;
        let handle: Vec<u8> = (0..3)
            .flat_map(|part| (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) + part).to_be_bytes())
            .collect();
        let reads = 1 + (number * number + period) % 40;
        FilePeriod {
            handle: Handle::new(&handle).unwrap(),
            store: (number % 4) as u16,
            path: Some(Arc::from(format!("/export/site/{}/{number}.html", number % 20))),
            counts: FileCounts {
                calls: ClassCounts { reads, writes: u64::from(number.is_multiple_of(50)), metadata: reads },
                bytes_read: reads * (4_096 + number * 131 % 60_000),
                bytes_written: 0,
            },
        }
    });
    let span = PeriodSpan { start_unix_ms: 1_700_000_000_000 + period * HOUR_MS, length_ms: HOUR_MS };
    let mut record =
        PeriodRecord { span, stores: stores.collect(), files: files.collect(), other: FileCounts::default() };
    record.sort_files();
    record
}

fn open(path: &Path) -> History {
    let opened = History::open(path, HistoryLimits::default()).unwrap();
    assert_eq!(opened.moved_aside, None);
    opened.history
}

fn all(history: &History) -> Vec<PeriodRecord> {
    history.periods(..).collect::<Result<_, _>>().unwrap()
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history");
    (folder, path)
}

fn moved_folders(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path.parent().unwrap()).unwrap();
    entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|p| p.to_string_lossy().contains("history.damaged-"))
        .collect()
}

#[test]
fn what_is_appended_comes_back_also_after_a_reopen() {
    let (_keep, path) = folder();
    let records: Vec<_> = (0..5).map(|period| record(period, 60)).collect();
    let history = open(&path);
    assert!(history.is_empty() && history.last().unwrap().is_none());
    for record in &records {
        history.append(record).unwrap();
    }
    assert_eq!(all(&history), records);
    let live = history.live_bytes();
    drop(history);
    let history = open(&path);
    assert_eq!(all(&history), records);
    assert_eq!(history.live_bytes(), live, "counted alike while running and when read");
    assert_eq!(history.last().unwrap().as_ref(), records.last());
    let middle = records[1].span.start_unix_ms..records[3].span.start_unix_ms;
    let got: Vec<_> = history.periods(middle).rev().map(Result::unwrap).collect();
    assert_eq!(got, [records[2].clone(), records[1].clone()]);
}

#[test]
fn periods_with_equal_starts_are_all_kept() {
    let (_keep, path) = folder();
    let history = open(&path);
    for files in [3, 4, 5] {
        history.append(&record(7, files)).unwrap();
    }
    assert_eq!(all(&history).iter().map(|record| record.files.len()).collect::<Vec<_>>(), [3, 4, 5]);
}

#[test]
fn the_oldest_periods_and_their_files_go() {
    let (_keep, path) = folder();
    let limits = HistoryLimits { periods_max: 4, ..HistoryLimits::default() };
    let history = History::open(&path, limits).unwrap().history;
    for period in 0..30 {
        history.append(&record(period, 20)).unwrap();
    }
    let expected: Vec<_> = (26..30).map(|period| record(period, 20)).collect();
    assert_eq!(all(&history), expected);
    let named: std::collections::BTreeSet<_> =
        expected.iter().flat_map(|record| record.files.iter().map(|file| file.handle)).collect();
    assert_eq!(history.files(), named.len(), "the dictionary holds no other files");
    let live = history.live_bytes();
    drop(history);
    assert_eq!(open(&path).live_bytes(), live);
}

#[test]
fn bytes_are_bounded_and_the_newest_period_always_stays() {
    let (_keep, path) = folder();
    let limits = HistoryLimits { bytes_max: 12_000, ..HistoryLimits::default() };
    let history = History::open(&path, limits).unwrap().history;
    for period in 0..20 {
        history.append(&record(period, 50)).unwrap();
        assert!(history.live_bytes() <= 12_000);
    }
    assert!((2..15).contains(&history.len()), "{} periods", history.len());
    history.append(&record(20, 2_000)).unwrap();
    assert_eq!(all(&history), [record(20, 2_000)]);
}

#[test]
fn a_period_of_1206_files_takes_few_bytes() {
    let (_keep, path) = folder();
    let history = open(&path);
    let first = history.append(&record(0, 1_206)).unwrap().block_bytes;
    assert!(first < 16_000, "{first} bytes");
    let quiet = history.append(&record(1, 300)).unwrap().block_bytes;
    assert!(quiet < 5_000, "{quiet} bytes");
    println!("a period of 1,206 files: {first} bytes, of 300 files: {quiet} bytes");
}

#[test]
fn a_large_period_comes_back_and_half_an_append_does_not_count() {
    let (_keep, path) = folder();
    let history = open(&path);
    let large = record(0, 30_000);
    let bytes = history.append(&large).unwrap().block_bytes;
    assert!(bytes > 3 << 16, "{bytes} bytes: several chunks");
    history.append(&record(1, 10)).unwrap();
    let live = history.live_bytes();
    drop(history);
    assert_eq!(all(&open(&path)), [large.clone(), record(1, 10)]);
    // As a crash leaves it: the last chunks of an append that never ended.
    tamper(&path, "periods", |tree| {
        tree.insert([&[0xff; 12][..], &2u32.to_be_bytes()].concat(), vec![1; 100]).unwrap();
    });
    let history = open(&path);
    assert_eq!((history.len(), history.live_bytes()), (2, live));
    drop(history);
    // A chunk lost from a period that was acknowledged is damage.
    tamper(&path, "periods", |tree| {
        let (key, _) = tree.iter().nth(1).unwrap().unwrap();
        tree.remove(key).unwrap();
    });
    expect_moved_aside(&path);
}

#[test]
fn named_values_are_put_replaced_listed_and_removed() {
    let (_keep, path) = folder();
    let history = open(&path);
    history.put("exceptions", b"one").unwrap();
    history.put("exceptions", b"two!").unwrap();
    history.put("decision/1", &[]).unwrap();
    history.put("decision/2", &[0xff; 100_000]).unwrap();
    let live = history.live_bytes();
    drop(history);
    let history = open(&path);
    assert_eq!(history.live_bytes(), live);
    assert_eq!(history.get("exceptions").unwrap().as_deref(), Some(&b"two!"[..]));
    assert_eq!(history.get("decision/1").unwrap().as_deref(), Some(&[][..]));
    assert_eq!(history.names("decision/").unwrap(), ["decision/1", "decision/2"]);
    assert!(history.remove("decision/2").unwrap());
    assert!(!history.remove("decision/2").unwrap());
    assert_eq!(history.get("decision/2").unwrap(), None);
    let long = vec![0; BLOB_BYTES_MAX + 1];
    assert!(matches!(history.put("long", &long), Err(HistoryError::BlobTooLong { .. })));
}

#[test]
fn compaction_keeps_everything_and_an_interrupted_one_is_undone() {
    let (_keep, path) = folder();
    let history = open(&path);
    let records: Vec<_> = (0..6).map(|period| record(period, 40)).collect();
    for record in &records {
        history.append(record).unwrap();
    }
    history.put("epoch", b"5").unwrap();
    let reading = history.periods(..);
    history.writing(|state| history.compact(state)).unwrap();
    assert_eq!(reading.map(Result::unwrap).collect::<Vec<_>>(), records, "a reader does not notice");
    history.append(&record(6, 40)).unwrap();
    drop(history);
    // As a crash between the two renames, and as one before the first, leaves it.
    fs::rename(&path, compact::sibling(&path, "replaced")).unwrap();
    fs::create_dir(compact::sibling(&path, "compacting")).unwrap();
    let history = open(&path);
    assert_eq!(history.len(), 7);
    assert_eq!(history.get("epoch").unwrap().as_deref(), Some(&b"5"[..]));
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing is left lying about");
}

#[test]
fn space_on_disk_stays_bounded_while_periods_come_and_go() {
    let (_keep, path) = folder();
    let limits = HistoryLimits { periods_max: 3, ..HistoryLimits::default() };
    let history = History::open(&path, limits).unwrap().history;
    for period in 0..150 {
        history.append(&record(period, 1_206)).unwrap();
        assert!(history.bytes_on_disk() <= 2 * history.live_bytes() + SLACK_BYTES);
    }
    println!("150 periods, 3 kept: {} live bytes, {} on disk", history.live_bytes(), history.bytes_on_disk());
    assert_eq!(history.len(), 3);
}

#[test]
fn a_database_in_use_and_a_folder_of_something_else_are_left_alone() {
    let (_keep, path) = folder();
    let _history = open(&path);
    assert!(matches!(History::open(&path, HistoryLimits::default()), Err(HistoryError::InUse { .. })));
    let other = path.with_file_name("home");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("thesis.txt"), "mine").unwrap();
    assert!(matches!(History::open(&other, HistoryLimits::default()), Err(HistoryError::NotAHistory { .. })));
    assert_eq!(fs::read_dir(&other).unwrap().count(), 1);
    assert!(moved_folders(&path).is_empty());
}

/// Opens what was damaged: it must be moved aside, and a working, empty history begun.
fn expect_moved_aside(path: &Path) -> MovedAside {
    let opened = History::open(path, HistoryLimits::default()).unwrap();
    let moved = opened.moved_aside.expect("the damage is noticed");
    assert_eq!(moved_folders(path), std::slice::from_ref(&moved.to));
    assert!(moved.to_string().contains("an empty one was begun"), "{moved}");
    let history = opened.history;
    assert!(history.is_empty());
    history.append(&record(0, 5)).unwrap();
    drop(history);
    assert_eq!(all(&open(path)), [record(0, 5)], "what was begun is sound");
    moved
}

#[test]
fn a_database_cut_short_is_moved_aside_not_taken_for_an_older_one() {
    let (_keep, path) = folder();
    let history = open(&path);
    for period in 0..200 {
        history.append(&record(period, 100)).unwrap();
    }
    drop(history);
    let db = fs::OpenOptions::new().write(true).open(path.join("db")).unwrap();
    db.set_len(db.metadata().unwrap().len() / 3).unwrap();
    drop(db);
    expect_moved_aside(&path);
}

#[test]
fn a_database_of_garbage_is_moved_aside() {
    for file in ["db", "conf"] {
        let (_keep, path) = folder();
        open(&path).append(&record(0, 30)).unwrap();
        fs::write(path.join(file), vec![0xa5; 700_000]).unwrap();
        let moved = expect_moved_aside(&path);
        assert!(fs::metadata(moved.to.join(file)).unwrap().len() > 0, "it is kept");
    }
}

fn tamper(path: &Path, tree: &str, change: impl FnOnce(&sled::Tree)) {
    // Threads of the database may hold its lock for a moment after it was dropped; this waits for them.
    let trees = super::open::open_trees(path).unwrap();
    change(&trees.db.open_tree(tree).unwrap());
    trees.db.flush().unwrap();
}

#[test]
fn one_wrong_byte_in_a_period_a_handle_or_a_value_is_noticed() {
    for tree in ["periods", "handles", "blobs"] {
        let (_keep, path) = folder();
        let history = open(&path);
        history.append(&record(0, 30)).unwrap();
        history.put("epoch", b"123").unwrap();
        drop(history);
        tamper(&path, tree, |tree| {
            let (key, value) = tree.first().unwrap().unwrap();
            let mut value = value.to_vec();
            value[2] ^= 1;
            tree.insert(key, value).unwrap();
        });
        let moved = expect_moved_aside(&path);
        assert!(moved.why.contains("checksum"), "{tree}: {}", moved.why);
    }
}

#[test]
fn a_missing_handle_and_a_strange_format_are_noticed() {
    let (_keep, path) = folder();
    open(&path).append(&record(0, 30)).unwrap();
    tamper(&path, "handles", |tree| drop(tree.pop_min().unwrap()));
    assert!(expect_moved_aside(&path).why.contains("does not know"));
    let (_keep, path) = folder();
    open(&path).append(&record(0, 30)).unwrap();
    tamper(&path, "meta", |tree| drop(tree.insert("format", &[9]).unwrap()));
    assert!(expect_moved_aside(&path).why.contains("format"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// Whatever bytes of the files are damaged: either the history is moved aside, or it is all there.
    #[test]
    fn random_damage_of_the_files_gives_no_panic_and_no_false_period(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
        cut in prop::option::weighted(0.3, any::<prop::sample::Index>()),
    ) {
        let (_keep, path) = folder();
        let history = open(&path);
        let records: Vec<_> = (0..4).map(|period| record(period, 30)).collect();
        for record in &records {
            history.append(record).unwrap();
        }
        drop(history);
        let mut bytes = fs::read(path.join("db")).unwrap();
        for (at, byte) in damage {
            let at = at.index(bytes.len().min(60_000));
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        fs::write(path.join("db"), bytes).unwrap();
        let opened = History::open(&path, HistoryLimits::default()).unwrap();
        prop_assert_eq!(opened.moved_aside.is_some(), !moved_folders(&path).is_empty());
        let expected = if opened.moved_aside.is_some() { &[][..] } else { &records };
        prop_assert_eq!(all(&opened.history), expected);
        opened.history.append(&record(9, 3)).unwrap();
    }
}

const CHILD_FOLDER: &str = "CLOCKWORK_TEST_HISTORY_FOLDER";

/// Not a test by itself: the process that the next one kills. It appends until it dies.
#[test]
fn child_that_appends_until_it_is_killed() {
    let Some(path) = std::env::var_os(CHILD_FOLDER) else { return };
    let history = open(Path::new(&path));
    for period in 0..1_000_000 {
        history.append(&record(period, 60)).unwrap();
        println!("\nappended {period}");
    }
}

#[test]
fn a_killed_process_loses_at_most_the_open_period() {
    for appended in [1u64, 7, 23] {
        let (_keep, path) = folder();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "history::tests::child_that_appends_until_it_is_killed", "--nocapture"])
            .env(CHILD_FOLDER, &path)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let last = format!("appended {appended}");
        let seen = BufReader::new(child.stdout.take().unwrap())
            .lines()
            .map_while(Result::ok)
            .any(|line| line == last);
        child.kill().unwrap(); // SIGKILL
        child.wait().unwrap();
        assert!(seen, "the child works");
        let got = all(&open(&path));
        assert!(got.len() as u64 > appended, "{} periods of {} acknowledged", got.len(), appended + 1);
        for (period, got) in got.iter().enumerate() {
            assert_eq!(*got, record(period as u64, 60));
        }
    }
}

#[test]
fn periods_are_forgotten_with_the_files_that_only_they_name() {
    let folder = tempfile::tempdir().unwrap();
    let history = open(folder.path());
    history.append_all(&[record(0, 9), record(3, 9), record(30, 9)]).unwrap();
    let (before, files) = (history.live_bytes(), history.files());
    let start = |period: u64| 1_700_000_000_000 + period * HOUR_MS;
    assert_eq!(history.forget(start(1)..start(30)).unwrap(), 1);
    assert_eq!(all(&history), [record(0, 9), record(30, 9)]);
    assert_eq!((history.files(), history.live_bytes() < before), (files - 1, true));
    assert_eq!(history.forget(start(1)..start(30)).unwrap(), 0);
    drop(history);
    assert_eq!(all(&open(folder.path())), [record(0, 9), record(30, 9)]);
}

#[test]
fn imported_periods_are_counted_by_their_length() {
    let folder = tempfile::tempdir().unwrap();
    let history = open(folder.path());
    let imported = |period: u64, length_ms: u64, files: u64| {
        let mut record = record(period, files);
        record.span.length_ms = length_ms;
        record.stores.truncate(1);
        record.stores[0].name = IMPORTED.to_owned();
        record
    };
    // The second one has more than a chunk.
    let past = [imported(0, HOUR_MS, 3), imported(1, HOUR_MS, 20_000), imported(2, 5_000, 0)];
    let none = PeriodRecord { stores: Vec::new(), ..record(4, 1) };
    history.append_all(&past).unwrap();
    history.append_all(&[record(3, 5), none]).unwrap();
    let lengths: Vec<(u64, usize)> = history.imported().unwrap().into_iter().collect();
    assert_eq!(lengths, [(5_000, 1), (HOUR_MS, 2)]);
}

/// Not a test by itself: a process whose files must not grow for a while, as on a full disk.
#[test]
fn child_whose_disk_is_full_for_a_while() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Some(path) = std::env::var_os(CHILD_FULL) else { return };
    let mut history = open(Path::new(&path));
    history.again = std::time::Duration::ZERO;
    history.append(&record(0, 60)).unwrap();
    history.put("drained", b"[]").unwrap();
    let before = getrlimit(Resource::Fsize);
    setrlimit(Resource::Fsize, Rlimit { current: Some(4_096), ..before }).unwrap();
    for _ in 0..3 {
        let error = history.append(&record(1, 2_000)).unwrap_err().to_string();
        assert!(!error.contains("Os {") && !error.contains("backtrace"), "{error}");
        println!("\n{error}");
        let error = history.put("drained", &[b'x'; 9_000]).unwrap_err().to_string();
        assert!(!error.contains("Os {") && !error.contains("backtrace"), "{error}");
        println!("\n{error}");
    }
    setrlimit(Resource::Fsize, before).unwrap();
    // The slower the attempts were, the longer the pause.
    let begun = std::time::Instant::now();
    while history.put("drained", &[b'x'; 9_000]).is_err() {
        assert!(begun.elapsed().as_secs() < 100, "it does not heal");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    history.append(&record(1, 2_000)).unwrap();
    assert_eq!(all(&history), [record(0, 60), record(1, 2_000)]);
    println!("\nhealed");
}

const CHILD_FULL: &str = "CLOCKWORK_TEST_FULL_FOLDER";

#[test]
fn a_full_disk_ends_the_history_only_until_there_is_room_again() {
    let (_keep, path) = folder();
    // A file beyond the limit is to be an error, not a signal.
    let child = Command::new("sh")
        .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "history::tests::child_whose_disk_is_full_for_a_while", "--nocapture"])
        .env(CHILD_FULL, &path)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(said.contains("\nhealed"), "{said}\n{}", String::from_utf8_lossy(&child.stderr));
    let history = open(&path);
    assert_eq!(all(&history), [record(0, 60), record(1, 2_000)]);
    assert_eq!(history.get("drained").unwrap().unwrap(), [b'x'; 9_000]);
}

#[test]
fn the_begin_of_a_snapshot_that_a_full_disk_has_left_is_no_damage() {
    let (_keep, path) = folder();
    open(&path).append(&record(0, 60)).unwrap();
    let left = path.join("snap.00000000FFFFFFFF.generating");
    fs::write(&left, [7; 99]).unwrap();
    assert_eq!(all(&open(&path)), [record(0, 60)]);
    assert!(!left.exists());
}
