//! Files that are written without a pause move all the same, and no acknowledged byte is lost on the way.

use crate::sim::calls::{self, FILE_SYNC, UNSTABLE, results, status, verifier};
use crate::sim::{A, B, MS, Peer, SECOND, Sim, Spec};
use clockwork_switch::pins::PinLimits;
use clockwork_switch::time::Time;
use clockwork_wire::nfs3::{Procedure, Results};
use std::time::Duration;

/// From a call's arrival at a store until it runs.
const DELAY: Duration = Duration::from_millis(30);
/// Between two attempts of the router to move files that were pinned.
const SETTLE: Duration = Duration::from_millis(200);
/// Bytes of a write.
const BYTES: u64 = 8;

/// A client that writes one range after the other.
struct Writer {
    peer: Peer,
    file: Vec<u8>,
    xid: u32,
    /// Writes without an answer: XID, and which write.
    waiting: Vec<(u32, u64)>,
    written: u64,
    /// Which write, `committed` and verifier of the answer.
    acknowledged: Vec<(u64, u32, [u8; 8])>,
}

impl Writer {
    fn new(peer: Peer, file: Vec<u8>) -> Self {
        Self { peer, file, xid: 1, waiting: vec![], written: 0, acknowledged: vec![] }
    }

    fn write(&mut self, sim: &mut Sim) {
        let data = self.written.to_be_bytes();
        sim.send(self.peer, &calls::write(self.xid, &self.file, self.written * BYTES, UNSTABLE, &data));
        self.waiting.push((self.xid, self.written));
        self.xid += 1;
        self.written += 1;
    }

    /// Takes the answers that have come.
    fn take(&mut self, sim: &Sim) {
        let peer = self.peer;
        for (xid, write) in self.waiting.extract_if(.., |(xid, _)| !sim.replies(peer, *xid).is_empty()) {
            let reply = sim.reply(peer, xid);
            let Results::Write { committed, .. } = results(Procedure::Write, reply) else {
                panic!("write {write} failed");
            };
            self.acknowledged.push((write, committed, verifier(Procedure::Write, reply)));
        }
    }

    /// Goes on for so long with at least one write in flight all the time; gives when the file could move.
    fn never_pauses(&mut self, sim: &mut Sim, duration: Duration) -> Option<Time> {
        let (begin, mut moved) = (sim.now, None);
        let mut settled = begin;
        while sim.now.since(begin) < duration {
            self.take(sim);
            // The next one is sent before the last has an answer.
            if self.waiting.len() < 2 {
                self.write(sim);
            }
            assert!(!self.waiting.is_empty());
            sim.run_for(10 * MS);
            if sim.now.since(settled) >= SETTLE {
                settled = sim.now;
                moved = moved.or((sim.place() == 0).then_some(sim.now));
            }
        }
        moved
    }

    fn assert_nothing_lost(&self, sim: &Sim) {
        let data = sim.cluster.data(&self.file);
        for (write, ..) in &self.acknowledged {
            let at = usize::try_from(write * BYTES).unwrap();
            assert_eq!(data[at..at + 8], write.to_be_bytes(), "write {write}");
        }
    }
}

fn plex(spec: &Spec) -> (Sim, Writer) {
    let spec = Spec { delay: DELAY, ..spec.clone() };
    let mut sim = Sim::new(vec![spec.clone(), spec]);
    let root = sim.cluster.root();
    let file = sim.cluster.file(&root, "file");
    sim.assign(&file, A);
    let peer = sim.stream(1, 1);
    (sim, Writer::new(peer, file))
}

#[test]
fn a09_a_file_that_is_always_being_written_moves_in_time_and_keeps_every_byte() {
    let age_max = PinLimits::default().age_max;
    // One write, a look at the clock, a COMMIT and a look at the pins.
    let bound = 2 * DELAY + 50 * MS + SETTLE + 10 * MS;
    for spec in [Spec::default(), Spec::datagram()] {
        for assigned_after in [SECOND, age_max + 30 * SECOND] {
            let (mut sim, mut writer) = plex(&spec);
            let first = sim.now;
            assert!(writer.never_pauses(&mut sim, assigned_after).is_some(), "it is where it is to be");
            assert_eq!(sim.shards[1].switch.counters().writes_made_stable, 0);
            assert_eq!(sim.assign(&writer.file, B), 1, "pinned");
            let due = (first + age_max).max(sim.now);
            let before = writer.acknowledged.len();
            let left = due.since(sim.now) + bound;
            let moved = writer.never_pauses(&mut sim, left).expect("moved in time");
            assert!(moved >= due, "{assigned_after:?}");
            assert!(writer.acknowledged.len() > before);
            // Few writes had to wait for the disk.
            let stable = sim.shards[1].switch.counters().writes_made_stable;
            assert!((1..=30).contains(&stable), "{stable} writes made stable");
            assert_eq!(
                writer.acknowledged.iter().filter(|(_, how, _)| *how == FILE_SYNC).count() as u64,
                stable
            );
            // Now it is written at B, as before.
            let at_a = sim.store(A).runs(Procedure::Write);
            writer.never_pauses(&mut sim, SECOND);
            assert_eq!(sim.store(A).runs(Procedure::Write), at_a);
            assert_eq!(sim.shards[1].switch.counters().writes_made_stable, stable);
            sim.settle();
            writer.take(&sim);
            // What A took is safe there. The client has to write again all the same what A called unstable.
            let committed = sim.ask(writer.peer, &calls::commit(1 << 20, &writer.file));
            assert_eq!(status(Procedure::Commit, &committed), 0);
            let committed = verifier(Procedure::Commit, &committed);
            let again =
                writer.acknowledged.iter().filter(|(_, how, of)| *how != FILE_SYNC && *of != committed);
            let by_a = at_a as u64 - stable;
            assert_eq!(again.count() as u64, by_a);
            sim.crash(A);
            sim.crash(B);
            writer.assert_nothing_lost(&sim);
        }
    }
}

#[test]
fn a09_a_file_that_is_written_again_right_after_each_commit_moves_at_the_first() {
    let (mut sim, mut writer) = plex(&Spec::default());
    let mut steps = 0..;
    // A write and its commit, which the next write follows at once.
    let mut round = |sim: &mut Sim, writer: &mut Writer| {
        writer.write(sim);
        while !writer.waiting.is_empty() {
            sim.run_for(MS);
            writer.take(sim);
        }
        let (xid, peer) = ((1 << 20) + steps.next().unwrap(), writer.peer);
        sim.send(peer, &calls::commit(xid, &writer.file));
        while sim.replies(peer, xid).is_empty() {
            sim.run_for(MS);
        }
        let committed = verifier(Procedure::Commit, sim.reply(peer, xid));
        assert_eq!(writer.acknowledged.last().unwrap().2, committed, "nothing has to be written again");
    };
    writer.write(&mut sim);
    assert_eq!(sim.assign(&writer.file, B), 1);
    round(&mut sim, &mut writer);
    writer.write(&mut sim);
    assert_eq!(sim.place(), 0, "a write of the next round is in flight, and it is free");
    round(&mut sim, &mut writer);
    assert_eq!((sim.store(A).runs(Procedure::Write), sim.store(B).runs(Procedure::Write)), (3, 1));
    assert_eq!(sim.shards[1].switch.counters().writes_made_stable, 1);
    sim.settle();
    sim.crash(A);
    writer.assert_nothing_lost(&sim);
}

#[test]
fn a09_a_write_that_hangs_holds_the_move_up_and_the_others_go_on() {
    let (mut sim, mut writer) = plex(&Spec::default());
    writer.write(&mut sim);
    sim.run_for(SECOND);
    sim.store(A).hung = true;
    writer.write(&mut sim);
    sim.run_for(MS);
    // It alone stays away.
    let hung = std::mem::take(&mut sim.store(A).waiting);
    sim.store(A).hung = false;
    assert_eq!(sim.assign(&writer.file, B), 1);
    assert_eq!(writer.never_pauses(&mut sim, PinLimits::default().age_max + 5 * SECOND), None);
    assert!(writer.acknowledged.len() > 1000);
    // Writes beside it leave nothing outstanding: its answer, and a COMMIT, are all that is missing.
    sim.store(A).waiting = hung;
    sim.unhang(A);
    assert!(writer.never_pauses(&mut sim, SECOND).is_some());
    sim.settle();
    sim.crash(A);
    writer.take(&sim);
    writer.assert_nothing_lost(&sim);
}
