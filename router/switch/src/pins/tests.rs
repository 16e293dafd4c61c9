use super::*;
use proptest::prelude::*;
use std::sync::atomic::AtomicU16;

const A: StoreId = StoreId(0);
const B: StoreId = StoreId(1);
const FILE: &[u8] = b"a file";
const HASH: HandleHash = HandleHash(0x1234_5678_9abc_def0);

fn pins() -> Pins {
    Pins::new(PinLimits::default())
}

fn write(pins: &Pins, route: StoreId) -> PinnedWrite {
    pins.write(Time(0), FILE, HASH, b"writer", || Some(route)).unwrap()
}

fn commit(pins: &Pins, route: StoreId) -> PinnedCommit {
    pins.commit(FILE, HASH, || Some(route)).unwrap()
}

fn unstable(pins: &Pins, token: PinToken, offset: u64, count: u32) {
    pins.wrote(FILE, HASH, token, Wrote::Unstable { offset, count });
}

#[test]
fn a09_commit_reaches_the_store_that_took_the_write_though_the_route_has_changed() {
    let pins = pins();
    let first = write(&pins, A);
    assert_eq!((first.store, first.pinned), (A, true));
    assert_eq!(write(&pins, B).store, A, "a write in flight pins already");
    unstable(&pins, first.token, 0, 100);
    let sent = commit(&pins, B);
    assert_eq!((sent.store, sent.pinned), (A, true));
    assert!(!pins.committed(FILE, HASH, sent.token, 0, 0, true), "the other write was in flight");
    assert_eq!(pins.store_of(FILE, HASH), Some(A));
}

#[test]
fn a09_a_commit_after_all_writes_frees_the_file() {
    let pins = pins();
    for offset in [0, 100] {
        let sent = write(&pins, A);
        unstable(&pins, sent.token, offset, 100);
    }
    let failed = commit(&pins, B);
    assert!(!pins.committed(FILE, HASH, failed.token, 0, 0, false));
    let sent = commit(&pins, B);
    assert!(pins.committed(FILE, HASH, sent.token, 0, 0, true));
    assert_eq!((pins.store_of(FILE, HASH), pins.len()), (None, 0));
    let next = write(&pins, B);
    assert_eq!(next.store, B);
    let elsewhere = pins.commit(b"another file", HandleHash(9), || Some(B)).unwrap();
    assert_eq!((elsewhere.store, elsewhere.pinned), (B, false));
    assert!(pins.committed(b"another file", HandleHash(9), elsewhere.token, 0, 0, true), "it has no pin");
}

#[test]
fn a09_a_write_sent_after_the_commit_keeps_the_pin() {
    let pins = pins();
    let before = write(&pins, A);
    unstable(&pins, before.token, 0, 100);
    let sent = commit(&pins, A);
    let after = write(&pins, A);
    unstable(&pins, after.token, 0, 100);
    assert!(!pins.committed(FILE, HASH, sent.token, 0, 0, true));
    let sent = commit(&pins, A);
    assert!(pins.committed(FILE, HASH, sent.token, 0, 0, true));
}

#[test]
fn a09_commits_of_parts_free_the_file_once_they_cover_everything() {
    let pins = pins();
    for (offset, count) in [(0, 100), (200, 50), (100, 20)] {
        let sent = write(&pins, A);
        unstable(&pins, sent.token, offset, count);
    }
    for (offset, count, free) in [(0, 120, false), (190, 20, false), (230, 100, false), (205, 30, true)] {
        let sent = commit(&pins, A);
        assert_eq!(pins.committed(FILE, HASH, sent.token, offset, count, true), free, "{offset}+{count}");
    }
    // Count 0: to the end, from the offset on.
    let sent = write(&pins, A);
    unstable(&pins, sent.token, 1000, 100);
    for (offset, free) in [(1050, false), (1000, true)] {
        let sent = commit(&pins, A);
        assert_eq!(pins.committed(FILE, HASH, sent.token, offset, 0, true), free);
    }
}

#[test]
fn stable_and_failed_writes_leave_no_pin() {
    let pins = pins();
    for outcome in [Wrote::Stable, Wrote::Failed, Wrote::Unstable { offset: 5, count: 0 }] {
        let sent = write(&pins, A);
        assert_eq!(pins.len(), 1);
        pins.wrote(FILE, HASH, sent.token, outcome);
        assert_eq!((pins.len(), pins.store_of(FILE, HASH)), (0, None), "{outcome:?}");
    }
    assert!(pins.write(Time(0), FILE, HASH, b"", || None).is_none());
    assert!(pins.commit(FILE, HASH, || None).is_none());
    assert!(pins.is_empty());
}

#[test]
fn a09_a_restarted_stores_pins_go_and_late_replies_do_not_disturb_new_ones() {
    let pins = pins();
    let lost = write(&pins, A);
    let late = write(&pins, A);
    unstable(&pins, lost.token, 0, 100);
    let old_commit = commit(&pins, A);
    pins.store_restarted(B);
    assert_eq!(pins.len(), 1);
    pins.store_restarted(A);
    assert_eq!(pins.len(), 0);
    let new = write(&pins, B);
    assert_eq!(new.store, B);
    pins.wrote(FILE, HASH, late.token, Wrote::Failed);
    assert!(!pins.committed(FILE, HASH, old_commit.token, 0, 0, true));
    assert_eq!(pins.store_of(FILE, HASH), Some(B));
    pins.wrote(FILE, HASH, new.token, Wrote::Stable);
    assert_eq!(pins.len(), 0);
}

#[test]
fn beyond_the_limit_writes_are_not_pinned_and_say_so() {
    let pins = Pins::new(PinLimits { pins_max: 1, ..PinLimits::default() });
    let first = write(&pins, A);
    let (other, hash) = (b"other".as_slice(), HandleHash(77));
    let refused = pins.write(Time(0), other, hash, b"", || Some(B)).unwrap();
    assert_eq!((refused.store, refused.pinned, pins.refused(), pins.len()), (B, false, 1, 1));
    pins.wrote(other, hash, refused.token, Wrote::Unstable { offset: 0, count: 9 });
    assert_eq!(pins.store_of(other, hash), None);
    assert!(write(&pins, B).pinned, "a file that is pinned stays so");
    pins.wrote(FILE, HASH, first.token, Wrote::Stable);
    assert_eq!(pins.len(), 1, "its second write is still in flight");
}

#[test]
fn a_file_of_equal_hash_is_not_taken_for_the_pinned_one() {
    let pins = pins();
    let first = write(&pins, A);
    let other = pins.write(Time(0), b"twin", HASH, b"", || Some(B)).unwrap();
    assert_eq!((other.store, other.pinned), (B, false));
    pins.wrote(b"twin", HASH, other.token, Wrote::Stable);
    assert_eq!((pins.store_of(b"twin", HASH), pins.store_of(FILE, HASH)), (None, Some(A)));
    pins.wrote(FILE, HASH, first.token, Wrote::Stable);
    assert!(pins.is_empty());
}

#[test]
fn overdue_pins_are_reported_once_an_age_with_the_latest_credential() {
    let age_max = Duration::from_secs(60);
    let pins = Pins::new(PinLimits { pins_max: 10, age_max });
    let first = write(&pins, A);
    unstable(&pins, first.token, 0, 10);
    let second = pins.write(Time(5), FILE, HASH, b"second writer", || None).unwrap();
    unstable(&pins, second.token, 0, 10);
    assert_eq!(pins.overdue(Time(59_999_999)), []);
    let expected =
        Overdue { handle: FILE.into(), hash: HASH, credential: (*b"second writer").into(), store: A };
    assert_eq!(pins.overdue(Time(60_000_000)), std::slice::from_ref(&expected));
    assert_eq!(pins.overdue(Time(119_999_999)), []);
    assert_eq!(pins.overdue(Time(120_000_000)), [expected]);
    let sent = commit(&pins, B);
    assert!(pins.committed(FILE, HASH, sent.token, 0, 0, true));
    assert_eq!(pins.overdue(Time(u64::MAX)), []);
}

/// Ends the test's loops when a writer ends, so that a writer that fails does not leave the others waiting.
struct Ends<'a>(&'a AtomicUsize);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(200, Ordering::Relaxed);
    }
}

/// Two writers, each with a file of its own, pin where the route says while another thread moves what is not pinned: no
/// route ever contradicts a pin.
#[test]
fn a_table_swapped_while_the_pins_stand_still_never_contradicts_one() {
    let pins = pins();
    let routes = [AtomicU16::new(0), AtomicU16::new(0)];
    let moves = AtomicUsize::new(0);
    let file = |n: u64| (n.to_be_bytes(), HandleHash(n << 20));
    let write_and_commit = |n: u64| {
        let (handle, hash) = file(n);
        let route = || Some(StoreId(routes[usize::from(n == 1)].load(Ordering::Relaxed)));
        let slow_route = || {
            let store = route();
            // An invitation to move the file between the look and the pin.
            std::thread::yield_now();
            store
        };
        let sent = pins.write(Time(0), &handle, hash, b"", slow_route).unwrap();
        assert_eq!(route(), Some(sent.store), "no move while the write is in flight");
        pins.wrote(&handle, hash, sent.token, Wrote::Unstable { offset: 0, count: 1 });
        let sent = pins.commit(&handle, hash, route).unwrap();
        assert_eq!(route(), Some(sent.store), "no move while bytes are outstanding");
        assert!(pins.committed(&handle, hash, sent.token, 0, 0, true));
    };
    std::thread::scope(|scope| {
        for n in 0..2 {
            let (write_and_commit, moves) = (&write_and_commit, &moves);
            scope.spawn(move || {
                let _ends = Ends(moves);
                while moves.load(Ordering::Relaxed) < 200 {
                    (0..20).for_each(|_| write_and_commit(n));
                    std::thread::yield_now();
                }
            });
        }
        while moves.load(Ordering::Relaxed) < 200 {
            pins.frozen(|frozen| {
                for (n, route) in (0..).zip(&routes) {
                    let (handle, hash) = file(n);
                    if frozen.store_of(&handle, hash).is_none() {
                        route.fetch_xor(1, Ordering::Relaxed);
                        moves.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
            std::thread::yield_now();
        }
    });
    assert!(pins.is_empty());
}

#[test]
fn frozen_pins_are_all_listed() {
    let pins = pins();
    let mut expected = Vec::new();
    for n in 0..200u64 {
        let (handle, hash) = (n.to_be_bytes(), HandleHash(n << 20 | n << 50));
        assert!(pins.write(Time(0), &handle, hash, b"", || Some(StoreId(3))).unwrap().pinned);
        expected.push((handle.to_vec(), hash, StoreId(3)));
    }
    pins.frozen(|frozen| {
        let mut listed: Vec<_> =
            frozen.iter().map(|(handle, hash, store)| (handle.to_vec(), hash, store)).collect();
        listed.sort();
        assert_eq!(listed, expected);
        assert_eq!(frozen.store_of(&[0; 8], HandleHash(0)), Some(StoreId(3)));
        assert_eq!(frozen.store_of(b"none", HandleHash(0)), None);
    });
}

#[derive(Clone, Debug)]
enum Step {
    Write {
        offset: u64,
        count: u32,
    },
    Wrote(prop::sample::Index, u8),
    Commit {
        offset: u64,
        count: u32,
    },
    Committed(prop::sample::Index, bool),
    Restart,
    /// The wanted table gives the file to B, or to A.
    Place {
        leaves: bool,
    },
    /// Time passes, and whoever has to looks at the clock.
    Tick {
        seconds: u64,
        room: bool,
    },
}

/// No more than [`RANGES_MAX`] bytes: what is outstanding is known exactly.
fn step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        5 => (0..9u64, 1..8u32).prop_map(|(offset, count)| Step::Write { offset, count }),
        6 => (index(), 0..6u8).prop_map(|(index, outcome)| Step::Wrote(index, outcome)),
        4 => (0..5u64, 0..16u32).prop_map(|(offset, count)| Step::Commit { offset, count }),
        4 => (index(), prop::bool::weighted(0.9)).prop_map(|(index, ok)| Step::Committed(index, ok)),
        1 => Just(Step::Restart),
        2 => any::<bool>().prop_map(|leaves| Step::Place { leaves }),
        3 => (0..40u64, prop::bool::weighted(0.8)).prop_map(|(seconds, room)| Step::Tick { seconds, room }),
    ]
}

/// A write or commit on its way to a store, of which this is the so many-th generation.
struct Sent {
    token: PinToken,
    generation: u32,
    offset: u64,
    count: u32,
    /// A commit of the router's.
    own: bool,
}

/// The file as its store sees it: what is not on stable storage.
struct File {
    now: Time,
    /// Where the table sends it.
    route: StoreId,
    writing: Vec<Sent>,
    /// With what was unstable when it was sent: only that is sure to be committed by it.
    committing: Vec<(Sent, Vec<(u32, u64)>)>,
    /// Which write, which byte.
    unstable: Vec<(u32, u64)>,
    generation: u32,
    writes: u32,
}

impl File {
    fn new() -> Self {
        Self {
            now: Time(0),
            route: A,
            writing: vec![],
            committing: vec![],
            unstable: vec![],
            generation: 0,
            writes: 0,
        }
    }

    fn step(&mut self, pins: &Pins, step: Step) {
        match step {
            Step::Write { offset, count } => {
                let route = self.route;
                let sent = pins.write(self.now, FILE, HASH, b"", || Some(route)).unwrap();
                assert!(sent.store == A || !self.is_pinned(), "a write goes where the data is");
                if sent.pinned && sent.store == A {
                    let (token, generation) = (sent.token, self.generation);
                    self.writing.push(Sent { token, generation, offset, count, own: false });
                } else if sent.pinned {
                    // What happens at the other store is told by the same steps with the stores' names changed.
                    pins.wrote(FILE, HASH, sent.token, Wrote::Stable);
                }
            }
            Step::Wrote(index, outcome) if !self.writing.is_empty() => {
                let place = index.index(self.writing.len());
                let Sent { token, generation, offset, count, .. } = self.writing.swap_remove(place);
                let outcome = match outcome {
                    0 => Wrote::Failed,
                    1 => Wrote::Stable,
                    _ => Wrote::Unstable { offset, count },
                };
                pins.wrote(FILE, HASH, token, outcome);
                if generation == self.generation && matches!(outcome, Wrote::Unstable { .. }) {
                    self.writes += 1;
                    let bytes = offset..offset + u64::from(count);
                    self.unstable.extend(bytes.map(|byte| (self.writes, byte)));
                }
            }
            Step::Commit { offset, count } => self.commit(pins, offset, count, false),
            Step::Committed(index, ok) if !self.committing.is_empty() => {
                let place = index.index(self.committing.len());
                let (sent, before) = self.committing.swap_remove(place);
                self.committed(pins, &sent, &before, ok);
            }
            Step::Restart => {
                pins.store_restarted(A);
                self.generation += 1;
                self.unstable.clear();
            }
            Step::Place { leaves } => pins.frozen(|frozen| {
                let stays = frozen.leave(|_, _, store| leaves != (store == B));
                let pinned = frozen.store_of(FILE, HASH);
                self.route = pinned.unwrap_or(if leaves { B } else { A });
                assert_eq!(stays.len(), usize::from(pinned == Some(A) && leaves));
                frozen.forget_released();
            }),
            Step::Tick { seconds, room } => {
                self.now = self.now + Duration::from_secs(seconds);
                for overdue in pins.overdue(self.now) {
                    assert!(self.is_pinned() && overdue.store == A, "nothing to commit");
                    if room {
                        self.commit(pins, 0, 0, true);
                    } else {
                        pins.commit_failed(self.now, FILE, HASH, false);
                    }
                }
            }
            Step::Wrote(..) | Step::Committed(..) => {}
        }
    }

    fn commit(&mut self, pins: &Pins, offset: u64, count: u32, own: bool) {
        let route = self.route;
        let sent = pins.commit(FILE, HASH, || Some(route)).unwrap();
        assert!(sent.store == A || !self.is_pinned(), "COMMIT goes where the data is");
        assert_eq!(sent.pinned, self.is_pinned());
        if sent.store == A {
            let (token, generation) = (sent.token, self.generation);
            self.committing.push((Sent { token, generation, offset, count, own }, self.unstable.clone()));
        }
    }

    fn committed(&mut self, pins: &Pins, sent: &Sent, before: &[(u32, u64)], ok: bool) {
        let &Sent { token, generation, offset, count, own } = sent;
        if ok && generation == self.generation {
            let end = if count == 0 { u64::MAX } else { offset + u64::from(count) };
            let committed = |write: &(u32, u64)| before.contains(write) && (offset..end).contains(&write.1);
            self.unstable.retain(|write| !committed(write));
        }
        let free = pins.committed(FILE, HASH, token, offset, count, ok);
        assert_eq!(free, !self.is_pinned());
        if own && !ok {
            pins.commit_failed(self.now, FILE, HASH, true);
        }
    }

    fn is_pinned(&self) -> bool {
        !self.unstable.is_empty() || self.writing.iter().any(|write| write.generation == self.generation)
    }
}

proptest! {
    /// Whatever comes in whatever order, the file is pinned as long as a write that may be unstable is in flight or
    /// acknowledged and not committed at its store, and no longer; drained or not, about to leave or not.
    #[test]
    fn a09_a_file_is_pinned_exactly_while_bytes_are_outstanding(
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        let pins = pins();
        let mut file = File::new();
        for step in steps {
            file.step(&pins, step);
            prop_assert_eq!(pins.store_of(FILE, HASH), file.is_pinned().then_some(A));
            prop_assert!(!file.is_pinned() || file.route == A);
        }
        for write in file.writing.drain(..) {
            pins.wrote(FILE, HASH, write.token, Wrote::Failed);
        }
        let last = commit(&pins, A);
        prop_assert!(pins.committed(FILE, HASH, last.token, 0, 0, true));
        file.step(&pins, Step::Place { leaves: false });
        prop_assert!(pins.is_empty());
    }
}

/// A file that never has no write in flight, as its writer, its store and the clock see it.
struct Busy {
    pins: Pins,
    now: Time,
    /// Unstable writes: when each is answered.
    writing: Vec<(Time, PinToken)>,
    stable_writes: u32,
    committing: Vec<(Time, PinToken)>,
}

/// Between two looks at the clock.
const LOOK: Duration = Duration::from_millis(50);

impl Busy {
    fn new(age_max: Duration) -> Self {
        let pins = Pins::new(PinLimits { pins_max: 10, age_max });
        Self { pins, now: Time(0), writing: vec![], stable_writes: 0, committing: vec![] }
    }

    /// One write is sent, answered after `write_time`; what is due happens.
    fn go_on(&mut self, write_time: Duration, commit_time: Duration) {
        let sent = self.pins.write(self.now, FILE, HASH, b"writer", || Some(A)).unwrap();
        assert_eq!(sent.store, A);
        if sent.pinned {
            self.writing.push((self.now + write_time, sent.token));
        } else {
            self.stable_writes += 1;
        }
        self.now = self.now + LOOK;
        let now = self.now;
        for (_, token) in self.writing.extract_if(.., |(end, _)| *end <= now) {
            unstable(&self.pins, token, 0, 10);
        }
        for (_, token) in self.committing.extract_if(.., |(end, _)| *end <= now) {
            self.pins.committed(FILE, HASH, token, 0, 0, true);
        }
        for _ in self.pins.overdue(now) {
            self.committing.push((now + commit_time, commit(&self.pins, A).token));
        }
    }

    fn wants_to_leave(&self) {
        self.pins.frozen(|frozen| frozen.leave(|_, _, _| true));
    }

    fn is_pinned(&self) -> bool {
        self.pins.store_of(FILE, HASH).is_some()
    }
}

proptest! {
    /// The pin ends when it is `age_max` old, or when the file is to leave if that is later, plus the time of the slowest
    /// write, of a COMMIT, and of two looks at the clock. Before that, no write is made slower.
    #[test]
    fn a09_a_file_that_is_written_without_a_pause_loses_its_pin_in_time(
        age_ms in 1_000..60_000u64,
        leaves_ms in 100..120_000u64,
        commit_ms in 1..5_000u64,
        slowest_ms in 100..4_000u64,
        write_ms in proptest::collection::vec(60..4_000u64, 50),
    ) {
        let ms = Duration::from_millis;
        let mut busy = Busy::new(ms(age_ms));
        let mut times = write_ms.iter().cycle().map(|time| ms((*time).min(slowest_ms)));
        // The first is the slowest, so that there is always one in flight.
        let mut go_on = |busy: &mut Busy| busy.go_on(times.next().unwrap(), ms(commit_ms));
        while busy.now < Time(0) + ms(leaves_ms) {
            go_on(&mut busy);
            prop_assert!(busy.is_pinned());
        }
        prop_assert_eq!(busy.stable_writes, 0);
        busy.wants_to_leave();
        let from = (Time(0) + ms(age_ms)).max(busy.now);
        while busy.is_pinned() {
            prop_assert!(busy.stable_writes == 0 || busy.now >= from);
            prop_assert!(busy.now < from + ms(slowest_ms + commit_ms) + 3 * LOOK, "{:?}", busy.now);
            go_on(&mut busy);
        }
        // It stays free until the table has been swapped, and is pinned as any other from then on.
        go_on(&mut busy);
        prop_assert!(!busy.is_pinned());
        busy.pins.frozen(|frozen| frozen.forget_released());
        prop_assert!(write(&busy.pins, B).pinned);
        prop_assert_eq!(busy.pins.store_of(FILE, HASH), Some(B));
    }
}

#[test]
fn a09_a_file_that_need_not_leave_is_committed_and_not_drained() {
    let mut busy = Busy::new(Duration::from_secs(10));
    let mut commits = 0;
    while busy.now < Time(35_000_000) {
        busy.go_on(Duration::from_millis(400), LOOK);
        commits += busy.committing.len();
    }
    assert_eq!((busy.stable_writes, commits, busy.is_pinned()), (0, 3, true));
    // It does not have to wait for another turn when it is to leave.
    busy.wants_to_leave();
    for _ in 0..12 {
        busy.go_on(Duration::from_millis(400), LOOK);
    }
    assert!(!busy.is_pinned());
}

#[test]
fn a09_a_drain_whose_commit_fails_lets_unstable_writes_through_again() {
    let age_max = Duration::from_secs(10);
    let pins = Pins::new(PinLimits { pins_max: 10, age_max });
    let sent = write(&pins, A);
    unstable(&pins, sent.token, 0, 10);
    pins.frozen(|frozen| frozen.leave(|_, _, _| true));
    assert_eq!(pins.overdue(Time(10_000_000)).len(), 1);
    assert_eq!((write(&pins, B).store, write(&pins, B).pinned), (A, false));
    // No room for the COMMIT: soon again, and drained meanwhile.
    pins.commit_failed(Time(10_000_000), FILE, HASH, false);
    assert_eq!(pins.overdue(Time(10_900_000)), []);
    assert_eq!(pins.overdue(Time(11_000_000)).len(), 1);
    assert!(!write(&pins, B).pinned);
    // The store says no: later again, and writes are as they were.
    let sent = commit(&pins, B);
    assert!(!pins.committed(FILE, HASH, sent.token, 0, 0, false));
    pins.commit_failed(Time(11_100_000), FILE, HASH, true);
    assert_eq!(pins.overdue(Time(20_900_000)), []);
    let again = write(&pins, B);
    assert_eq!((again.store, again.pinned), (A, true));
    unstable(&pins, again.token, 0, 10);
    assert_eq!(pins.overdue(Time(21_000_000)).len(), 1);
    let sent = commit(&pins, B);
    assert!(pins.committed(FILE, HASH, sent.token, 0, 0, true));
}

#[test]
fn a_file_that_is_to_leave_is_not_pinned_again_between_two_commits_of_its_client() {
    let pins = pins();
    let sent = write(&pins, A);
    unstable(&pins, sent.token, 0, 10);
    assert_eq!(pins.frozen(|frozen| frozen.leave(|_, _, _| true)), [(FILE.into(), A)]);
    let sent = commit(&pins, A);
    assert!(pins.committed(FILE, HASH, sent.token, 0, 0, true));
    // Released: not pinned, not in the way, and goes where the table says.
    assert_eq!((pins.store_of(FILE, HASH), pins.len()), (None, 1));
    let next = write(&pins, A);
    assert_eq!((next.store, next.pinned), (A, false));
    assert!(pins.frozen(|frozen| frozen.leave(|_, _, _| true)).is_empty());
    assert_eq!(pins.frozen(|frozen| (frozen.iter().count(), frozen.store_of(FILE, HASH))), (0, None));
    assert!(!commit(&pins, B).pinned);
    // If no table comes, it is forgotten after a while.
    assert_eq!(pins.overdue(Time(7)), []);
    assert_eq!(pins.overdue(Time(4_999_999)), []);
    assert!(!write(&pins, A).pinned);
    assert_eq!(pins.overdue(Time(5_000_007)), []);
    assert!(pins.is_empty());
    let sent = write(&pins, A);
    unstable(&pins, sent.token, 0, 10);
    // A store that is lost takes the released along.
    let sent = commit(&pins, A);
    pins.frozen(|frozen| frozen.leave(|_, _, _| true));
    pins.committed(FILE, HASH, sent.token, 0, 0, true);
    assert_eq!((pins.store_of(FILE, HASH), pins.len()), (None, 1));
    pins.store_restarted(A);
    assert!(pins.is_empty());
}
