//! Files that several stores serve reads of: who gets what, and when nobody but the home does.

use crate::sim::calls::{self, FILE_SYNC, UNSTABLE, status, verifier};
use crate::sim::{A, B, MS, Peer, SECOND, Sim, Spec};
use clockwork_placement::{StoreId, StoreState};
use clockwork_switch::pins::PinLimits;
use clockwork_switch::{READ_AT_HOME, Verdict};
use clockwork_wire::nfs3::Procedure;
use clockwork_wire::rpc;
use proptest::prelude::*;
use std::time::Duration;

const C: StoreId = StoreId(2);

/// Three stores, the file at home at A and replicated on B, left alone for long enough.
fn plex(spec: &Spec) -> (Sim, Vec<u8>, Peer) {
    let mut sim = Sim::new(vec![spec.clone(); 3]);
    let root = sim.cluster.root();
    let file = sim.cluster.file(&root, "file");
    sim.replicate(&file, &[A, B]);
    let peer = sim.stream(0, 1);
    // The first read is where the file begins to be watched.
    sim.ask(peer, &calls::read(1, &file, 0, 100));
    assert_eq!((sim.store(A).runs(Procedure::Read), sim.runs(Procedure::Read)), (1, 1), "no rest yet");
    sim.run_for(READ_AT_HOME);
    (sim, file, peer)
}

/// Reads of each store that so many calls come to.
fn reads(sim: &mut Sim, peer: Peer, file: &[u8], xids: std::ops::Range<u32>) -> [usize; 3] {
    let before = [A, B, C].map(|store| sim.store(store).runs(Procedure::Read));
    for xid in xids {
        assert_eq!(status(Procedure::Read, &sim.ask(peer, &calls::read(xid, file, 0, 100))), 0);
    }
    let after = [A, B, C].map(|store| sim.store(store).runs(Procedure::Read));
    [0, 1, 2].map(|store| after[store] - before[store])
}

/// About half each at A and B: what the golden ratio makes of twenty calls or more.
fn is_even([a, b, c]: [usize; 3]) -> bool {
    let (all, off) = (a + b, a.abs_diff(b));
    c == 0 && all >= 20 && off * 5 <= all
}

#[test]
fn reads_are_spread_and_all_else_goes_home() {
    for spec in [Spec::default(), Spec::datagram()] {
        let (mut sim, file, peer) = plex(&spec);
        let [a, b, c] = reads(&mut sim, peer, &file, 100..140);
        assert!(is_even([a, b, c]), "one client's reads: {a} {b} {c}");
        assert_eq!(replica_reads(&sim), b as u64);
        let rest = [
            (Procedure::Getattr, calls::getattr(200, &file)),
            (Procedure::Access, calls::access(201, &file)),
            (Procedure::Setattr, calls::setattr(202, &file)),
            (Procedure::Write, calls::write(203, &file, 0, FILE_SYNC, b"bytes")),
            (Procedure::Write, calls::write(204, &file, 0, UNSTABLE, b"bytes")),
            (Procedure::Commit, calls::commit(205, &file)),
        ];
        for (n, (procedure, call)) in (1..).zip(rest) {
            assert_eq!(status(procedure, &sim.ask(peer, &call)), 0, "{procedure}");
            assert_eq!(sim.store(A).ran.len(), 1 + a + n, "{procedure}");
        }
        sim.settle();
    }
}

#[test]
fn a06_a_repeat_of_a_read_meets_the_store_that_had_the_first() {
    let slow = Spec { delay: 500 * MS, ..Spec::default() };
    let (mut sim, file, _) = plex(&slow);
    let (stream, datagram) = (sim.stream(0, 1), sim.datagram(1, 2, 1000));
    for xid in 300..320 {
        let before = sim.store(A).runs(Procedure::Read);
        for peer in [stream, datagram] {
            assert_eq!(sim.send(peer, &calls::read(xid, &file, 0, 10)), Verdict::Forwarded);
        }
        sim.run_for(100 * MS);
        for peer in [stream, datagram] {
            assert_eq!(sim.send(peer, &calls::read(xid, &file, 0, 10)), Verdict::Absorbed);
        }
        sim.settle();
        let at_a = sim.store(A).runs(Procedure::Read) - before;
        // Its reply was lost, or it comes over a new connection: it runs again, where it ran before.
        let again = sim.stream(1, 1);
        for peer in [datagram, again] {
            sim.send(peer, &calls::read(xid, &file, 0, 10));
            sim.settle();
        }
        assert!(at_a == 0 || at_a == 2, "XID {xid}");
        assert_eq!(sim.store(A).runs(Procedure::Read) - before, 2 * at_a, "XID {xid}");
    }
}

#[test]
fn a09_a_file_is_read_where_it_is_written_until_it_has_been_left_alone() {
    let (mut sim, file, peer) = plex(&Spec::default());
    let other = sim.stream(1, 2);
    let wrote = sim.ask(peer, &calls::write(1_000, &file, 0, UNSTABLE, b"bytes"));
    sim.run_for(10 * SECOND);
    assert_eq!(reads(&mut sim, other, &file, 2_000..2_020), [20, 0, 0], "pinned, however long");
    let committed = sim.ask(peer, &calls::commit(1_001, &file));
    assert_eq!(verifier(Procedure::Write, &wrote), verifier(Procedure::Commit, &committed));
    assert_eq!(reads(&mut sim, other, &file, 2_020..2_040), [20, 0, 0], "just committed");
    sim.run_for(READ_AT_HOME);
    assert!(is_even(reads(&mut sim, other, &file, 2_040..2_060)));
    for (xid, call) in [
        (1_002, calls::write(1_002, &file, 0, FILE_SYNC, b"stable")),
        (1_003, calls::setattr(1_003, &file)),
        (1_004, calls::commit(1_004, &file)),
    ] {
        sim.ask(peer, &call);
        assert_eq!(reads(&mut sim, other, &file, xid * 10..xid * 10 + 10), [10, 0, 0], "XID {xid}");
        sim.run_for(READ_AT_HOME);
        assert!(is_even(reads(&mut sim, other, &file, xid * 10..xid * 10 + 20)), "XID {xid}");
    }
}

#[test]
fn a09_a_pin_that_the_router_commits_rests_as_well() {
    let (mut sim, file, peer) = plex(&Spec::default());
    sim.ask(peer, &calls::write(1_000, &file, 0, UNSTABLE, b"bytes"));
    sim.run_for(PinLimits::default().age_max + SECOND);
    assert_eq!((sim.store(A).runs(Procedure::Commit), sim.shared.pins.len()), (1, 0));
    assert_eq!(reads(&mut sim, peer, &file, 2_000..2_020), [20, 0, 0]);
    sim.run_for(READ_AT_HOME);
    assert!(is_even(reads(&mut sim, peer, &file, 2_020..2_040)));
}

#[test]
fn a09_a_file_pinned_elsewhere_is_replicated_only_when_its_writes_are_committed() {
    let mut sim = Sim::new(vec![Spec::default(); 3]);
    let root = sim.cluster.root();
    let file = sim.cluster.file(&root, "file");
    sim.assign(&file, C);
    let peer = sim.stream(0, 1);
    sim.ask(peer, &calls::write(1, &file, 0, UNSTABLE, b"bytes"));
    assert_eq!(sim.replicate(&file, &[A, B]), 1, "a pinned file stays");
    sim.run_for(10 * SECOND);
    assert_eq!(reads(&mut sim, peer, &file, 100..120), [0, 0, 20]);
    sim.ask(peer, &calls::commit(2, &file));
    assert_eq!(sim.place(), 0);
    assert_eq!(reads(&mut sim, peer, &file, 120..140), [20, 0, 0]);
    sim.run_for(READ_AT_HOME);
    assert!(is_even(reads(&mut sim, peer, &file, 140..160)));
}

#[test]
fn a10_a_replica_that_is_drained_or_lost_gets_no_more_reads_and_what_it_had_is_answered() {
    for lost in [false, true] {
        let slow = Spec { delay: 300 * MS, ..Spec::default() };
        let (mut sim, file, peer) = plex(&slow);
        for xid in 100..120 {
            sim.send(peer, &calls::read(xid, &file, 0, 10));
        }
        sim.run_for(10 * MS);
        let came = sim.store(B).xids.len();
        assert!((8..=12).contains(&came), "{came}");
        if lost {
            sim.crash(B);
            sim.eject(B);
        } else {
            sim.set_stores(|i, entry| {
                if i == B.index() {
                    entry.state = StoreState::Drained;
                }
            });
        }
        for xid in 120..140 {
            sim.send(peer, &calls::read(xid, &file, 0, 10));
        }
        sim.run_for(5 * SECOND);
        (100..140).for_each(|xid| assert_eq!(status(Procedure::Read, sim.reply(peer, xid)), 0, "{xid}"));
        assert_eq!(sim.store(B).xids.len(), came, "nothing new at once");
        assert_eq!(sim.store(A).runs(Procedure::Read), if lost { 41 } else { 41 - came });
        if lost {
            sim.revive(B);
        }
        sim.readmit(B);
        assert_eq!(
            reads(&mut sim, peer, &file, 200..220),
            [10, 10, 0],
            "and when it is back it has its share"
        );
        sim.settle();
    }
}

#[test]
fn a10_where_the_home_is_lost_the_next_replica_is_the_home_of_all_that_is_no_read() {
    let (mut sim, file, peer) = plex(&Spec::default());
    sim.crash(A);
    sim.eject(A);
    sim.ask(peer, &calls::write(10, &file, 0, UNSTABLE, b"bytes"));
    sim.ask(peer, &calls::commit(11, &file));
    sim.ask(peer, &calls::getattr(12, &file));
    assert_eq!(sim.store(B).ran.len(), 3);
    assert_eq!(reads(&mut sim, peer, &file, 100..110), [0, 10, 0]);
    sim.revive(A);
    sim.settle();
}

#[test]
fn a08_a_listing_of_a_replicated_directory_stays_where_it_began() {
    let mut sim = Sim::new(vec![Spec::default(); 3]);
    let root = sim.cluster.root();
    let dir = sim.cluster.directory(&root, "dir");
    (0..200).for_each(|n| drop(sim.cluster.file(&dir, &format!("file{n}"))));
    sim.replicate(&dir, &[B, A]);
    sim.run_for(READ_AT_HOME);
    let peer = sim.stream(0, 1);
    let (mut names, mut cookie, mut tag, mut last, mut xid) = (Vec::new(), 0, [0; 8], false, 0);
    while !last {
        xid += 1;
        if xid == 3 {
            sim.replicate(&dir, &[C, A]);
        }
        let reply = sim.ask(peer, &calls::readdir(xid, &dir, cookie, tag, 1024));
        let (page, verifier, end) = calls::page(Procedure::Readdir, &reply);
        cookie = page.last().unwrap().1;
        names.extend(page.into_iter().map(|(name, _)| name));
        (tag, last) = (verifier, end);
    }
    names.sort();
    names.dedup();
    assert!(names.len() >= 200 && xid > 3);
    assert_eq!(sim.store(B).runs(Procedure::Readdir), sim.runs(Procedure::Readdir));
}

#[derive(Clone, Debug)]
enum Step {
    Write(u32),
    Commit,
    Setattr,
    Getattr,
    Read,
    Wait(u64),
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, max_shrink_iters: 400, ..ProptestConfig::default() })]

    /// Whatever two clients of two shards do: all that is no read goes to one store, and no read elsewhere is nearer than
    /// the rest to a write, or has bytes outstanding. The router commits what its clients leave outstanding for too long,
    /// and that too is a write.
    #[test]
    fn a09_what_changes_a_replicated_file_meets_one_store_and_reads_elsewhere_keep_away(
        steps in prop::collection::vec(
            (0..2_usize, prop_oneof![
                2 => prop_oneof![Just(UNSTABLE), Just(FILE_SYNC)].prop_map(Step::Write),
                2 => Just(Step::Commit),
                1 => Just(Step::Setattr),
                1 => Just(Step::Getattr),
                8 => Just(Step::Read),
                6 => (1..7_000_u64).prop_map(Step::Wait),
                1 => (50_000..70_000_u64).prop_map(Step::Wait),
            ]), 1..80),
        slow in 0..3_u32,
    ) {
        let spec = Spec { delay: 50 * MS * slow + MS / 5, ..Spec::default() };
        let (mut sim, file, first) = plex(&spec);
        let peers = [first, sim.stream(1, 2)];
        let (mut changed, mut unstable, mut spread, mut commits) = (None, false, 0, 0);
        for (xid, (peer, step)) in (1_000..).zip(steps) {
            let elsewhere = |sim: &mut Sim| sim.store(B).ran.len() + sim.store(C).ran.len();
            let (sent, before) = (sim.now, elsewhere(&mut sim));
            let call = match &step {
                Step::Write(stable) => Some(calls::write(xid, &file, 0, *stable, b"bytes")),
                Step::Commit => Some(calls::commit(xid, &file)),
                Step::Setattr => Some(calls::setattr(xid, &file)),
                Step::Getattr => Some(calls::getattr(xid, &file)),
                Step::Read => Some(calls::read(xid, &file, 0, 100)),
                Step::Wait(ms) => {
                    sim.run_for(Duration::from_millis(*ms));
                    None
                }
            };
            if let Some(call) = call {
                sim.ask(peers[peer], &call);
            }
            let moved = elsewhere(&mut sim) > before;
            prop_assert!(!moved || matches!(step, Step::Read), "{step:?}");
            if moved {
                spread += 1;
                prop_assert!(!unstable && changed.is_none_or(|at| sent.since(at) >= READ_AT_HOME));
            }
            commits += usize::from(matches!(step, Step::Commit));
            let by_router = sim.store(A).runs(Procedure::Commit) - commits;
            commits += by_router;
            match step {
                // It may have been run after the router's commit.
                Step::Write(UNSTABLE) => unstable = true,
                _ => unstable &= by_router == 0 && !matches!(step, Step::Commit),
            }
            if by_router > 0 || matches!(step, Step::Write(_) | Step::Commit | Step::Setattr) {
                changed = Some(sent);
            }
        }
        prop_assert_eq!(u64::try_from(spread).unwrap(), replica_reads(&sim));
        sim.run_for(PinLimits::default().age_max + READ_AT_HOME + 2 * SECOND);
        prop_assert!(is_even(reads(&mut sim, first, &file, 5_000..5_020)), "all is quiet");
        // Every call carries the file's handle: nothing but reads ever ran elsewhere.
        let others = sim.store(B).ran.iter().all(|(procedure, message)| {
            *procedure == Procedure::Read && rpc::parse_call(message).is_ok()
        });
        prop_assert!(others);
    }
}

fn replica_reads(sim: &Sim) -> u64 {
    sim.shards.iter().map(|shard| shard.switch.counters().replica_reads).sum()
}
