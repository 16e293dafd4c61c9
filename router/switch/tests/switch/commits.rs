//! Unstable writes: no acknowledged byte is lost, whatever moves or dies.

use crate::sim::calls::{self, FILE_SYNC, UNSTABLE, results, status, verifier};
use crate::sim::{A, B, Limits, MS, SECOND, Sim, Spec};
use clockwork_switch::pins::PinLimits;
use clockwork_wire::nfs3::{self, Arguments, Procedure, Results};
use clockwork_wire::rpc;

/// Two stores whose write verifiers are both zero, restart or not, and a file at store A.
fn plex() -> (Sim, Vec<u8>) {
    let mut sim = Sim::new(vec![Spec::default(), Spec::default()]);
    let file = file_at_a(&mut sim, "file");
    (sim, file)
}

fn file_at_a(sim: &mut Sim, name: &str) -> Vec<u8> {
    let root = sim.cluster.root();
    let file = sim.cluster.file(&root, name);
    sim.assign(&file, A);
    file
}

#[test]
fn a09_commit_reaches_the_store_that_took_the_writes() {
    let (mut sim, file) = plex();
    let peer = sim.stream(0, 1);
    let wrote = sim.ask(peer, &calls::write(1, &file, 0, UNSTABLE, b"bytes"));
    assert_eq!(sim.assign(&file, B), 1, "a pinned file stays");
    // Whatever is done with the file is done where its bytes are.
    sim.ask(peer, &calls::getattr(2, &file));
    sim.ask(peer, &calls::write(3, &file, 5, UNSTABLE, b"more"));
    sim.ask(peer, &calls::write(4, &file, 9, FILE_SYNC, b"still more"));
    assert_eq!(sim.place(), 1);
    let committed = sim.ask(peer, &calls::commit(5, &file));
    assert_eq!(status(Procedure::Commit, &committed), 0);
    assert_eq!(verifier(Procedure::Commit, &committed), verifier(Procedure::Write, &wrote));
    assert!(sim.store(B).ran.is_empty());
    // The pin is gone: now the move goes through.
    assert_eq!(sim.place(), 0);
    sim.ask(peer, &calls::getattr(6, &file));
    assert_eq!(sim.store(B).runs(Procedure::Getattr), 1);
    sim.settle();
}

#[test]
fn a09_other_assigned_files_stay_where_they_are_while_a_pinned_one_waits() {
    let (mut sim, file) = plex();
    let other = file_at_a(&mut sim, "other");
    let third = file_at_a(&mut sim, "third");
    sim.assign(&third, B);
    let peer = sim.stream(0, 1);
    sim.ask(peer, &calls::write(1, &file, 0, UNSTABLE, b"bytes"));
    assert_eq!(sim.assign(&file, B), 1);
    for handle in [&other, &third] {
        let (now, wanted) = (sim.shared.table.load(), &sim.wanted);
        let hash = wanted.hash(handle);
        assert_eq!(now.route(handle, hash), wanted.route(handle, hash));
        assert_eq!(now.exception(handle, hash), wanted.exception(handle, hash));
    }
}

#[test]
fn a09_two_stores_of_one_verifier_are_told_apart() {
    let (mut sim, file) = plex();
    let peer = sim.stream(0, 1);
    let at_a = sim.ask(peer, &calls::write(1, &file, 0, FILE_SYNC, b"bytes"));
    sim.assign(&file, B);
    let at_b = sim.ask(peer, &calls::commit(2, &file));
    assert_ne!(verifier(Procedure::Write, &at_a), verifier(Procedure::Commit, &at_b));
}

#[test]
fn a09_a_dead_store_changes_the_verifier() {
    for ejected in [false, true] {
        let (mut sim, file) = plex();
        let peer = sim.stream(0, 1);
        let wrote = sim.ask(peer, &calls::write(1, &file, 0, UNSTABLE, b"bytes"));
        if ejected {
            sim.crash(A);
            sim.eject(A);
        } else {
            sim.restart(A);
        }
        let committed = sim.ask(peer, &calls::commit(2, &file));
        assert_ne!(verifier(Procedure::Commit, &committed), verifier(Procedure::Write, &wrote));
        // So the client writes again, and now all is well.
        let wrote = sim.ask(peer, &calls::write(3, &file, 0, UNSTABLE, b"bytes"));
        let committed = sim.ask(peer, &calls::commit(4, &file));
        assert_eq!(verifier(Procedure::Commit, &committed), verifier(Procedure::Write, &wrote));
        sim.crash(A);
        sim.crash(B);
        assert_eq!(sim.cluster.data(&file), b"bytes");
    }
}

#[test]
fn a09_what_a_store_had_not_read_when_it_was_taken_out_does_not_run_late() {
    let (mut sim, file) = plex();
    let peer = sim.stream(0, 1);
    sim.store(A).hung = true;
    sim.send(peer, &calls::write(1, &file, 0, UNSTABLE, b"older"));
    sim.run_for(10 * MS);
    sim.eject(A);
    sim.run_for(10 * MS);
    sim.ask(peer, &calls::write(2, &file, 0, UNSTABLE, b"newer"));
    sim.unhang(A);
    sim.run_for(SECOND);
    sim.ask(peer, &calls::commit(3, &file));
    assert!(sim.store(A).ran.is_empty(), "its connections were reset");
    assert_eq!(sim.cluster.data(&file), b"newer");
    sim.settle();
}

#[test]
fn a09_a_commit_in_flight_when_its_store_dies_tells_of_it() {
    for ejected in [false, true] {
        let (mut sim, file) = plex();
        let peer = sim.stream(0, 1);
        let wrote = sim.ask(peer, &calls::write(1, &file, 0, UNSTABLE, b"bytes"));
        sim.store(A).hung = true;
        sim.send(peer, &calls::commit(2, &file));
        sim.run_for(10 * MS);
        sim.crash(A);
        if ejected {
            sim.eject(A);
        } else {
            sim.store(A).hung = false;
            sim.revive(A);
        }
        sim.settle();
        let committed = sim.reply(peer, 2);
        assert_ne!(verifier(Procedure::Commit, committed), verifier(Procedure::Write, &wrote));
    }
}

#[test]
fn a09_a_restart_that_the_shards_notice_one_by_one_is_never_hidden() {
    // The store acknowledges a write to shard 1 and restarts. Shard 0 notices it first; shard 1 still reads what had
    // come before the end of its connection. The verifiers must differ although the store's own never do.
    let (mut sim, file) = plex();
    let (one, other) = (sim.stream(1, 1), sim.stream(0, 1));
    sim.send(one, &calls::write(1, &file, 0, UNSTABLE, b"bytes"));
    sim.run_for(MS / 4); // It has run; the reply is under way.
    assert_eq!(sim.store(A).runs(Procedure::Write), 1);
    assert!(sim.replies(one, 1).is_empty());
    sim.restart_noticed_late(A, 500 * MS);
    sim.run_for(MS);
    let wrote = sim.reply(one, 1).to_vec();
    let committed = sim.ask(other, &calls::commit(2, &file));
    assert!(sim.now.0 < 1_400_000, "the second shard has not noticed yet");
    assert_ne!(verifier(Procedure::Commit, &committed), verifier(Procedure::Write, &wrote));
    assert_eq!(sim.cluster.data(&file), b"\0\0\0\0\0", "the bytes are gone indeed");
    sim.run_for(SECOND);
    sim.settle();
}

#[test]
fn a09_an_old_pin_is_committed_for_its_writer_and_the_file_moves() {
    let (mut sim, file) = plex();
    let peer = sim.stream(1, 1);
    let wrote = sim.ask(peer, &calls::write(1, &file, 0, UNSTABLE, b"bytes"));
    assert_eq!(sim.assign(&file, B), 1);
    sim.run_for(PinLimits::default().age_max - SECOND);
    assert_eq!(sim.place(), 1);
    assert_eq!(sim.store(A).runs(Procedure::Commit), 0);
    sim.run_for(2 * SECOND);
    let write = sim.store(A).calls(Procedure::Write)[0].to_vec();
    let commit = sim.store(A).calls(Procedure::Commit)[0].to_vec();
    let credential = |message: &[u8]| message[rpc::parse_call(message).unwrap().credential].to_vec();
    assert_eq!(credential(&commit), credential(&write), "with the writer's credential");
    assert_eq!(sim.store(A).runs(Procedure::Commit), 1);
    assert_eq!(sim.shards[0].switch.counters().commits_made, 1);
    assert_eq!(sim.place(), 0);
    // The writer commits in the end: another store answers, so it writes again. Nothing is lost either way.
    let committed = sim.ask(peer, &calls::commit(2, &file));
    assert_eq!(sim.store(B).runs(Procedure::Commit), 1);
    assert_ne!(verifier(Procedure::Commit, &committed), verifier(Procedure::Write, &wrote));
    sim.crash(A);
    assert_eq!(sim.cluster.data(&file), b"bytes");
    sim.settle();
}

#[test]
fn a09_a_router_commit_that_fails_keeps_the_pin() {
    let (mut sim, file) = plex();
    let peer = sim.stream(0, 1);
    sim.ask(peer, &calls::write(1, &file, 0, UNSTABLE, b"bytes"));
    sim.assign(&file, B);
    sim.store(A).hung = true;
    sim.run_for(70 * SECOND);
    assert_eq!(sim.place(), 1, "no COMMIT has succeeded yet");
    sim.unhang(A);
    sim.run_for(SECOND);
    assert_eq!(sim.place(), 0);
    sim.settle();
}

#[test]
fn a09_a_commit_beside_a_write_in_flight_does_not_free_the_file() {
    let (mut sim, file) = plex();
    let peer = sim.stream(0, 1);
    sim.ask(peer, &calls::write(1, &file, 0, UNSTABLE, b"bytes"));
    sim.store(A).spec.delay = 100 * MS;
    sim.send(peer, &calls::write(2, &file, 5, UNSTABLE, b"more"));
    sim.send(peer, &calls::commit(3, &file));
    sim.settle();
    assert_eq!(sim.assign(&file, B), 1, "the second write may have run after the COMMIT");
    sim.ask(peer, &calls::commit(4, &file));
    assert_eq!(sim.place(), 0);
}

#[test]
fn a09_a_write_in_flight_pins_its_file() {
    let (mut sim, file) = plex();
    sim.store(A).spec.delay = 100 * MS;
    let peer = sim.stream(0, 1);
    sim.send(peer, &calls::write(1, &file, 0, UNSTABLE, b"bytes"));
    assert_eq!(sim.assign(&file, B), 1);
    sim.ask(peer, &calls::write(2, &file, 5, UNSTABLE, b"more"));
    assert_eq!(sim.store(A).runs(Procedure::Write), 2);
    sim.settle();
}

#[test]
fn a09_beyond_the_limit_of_pins_writes_are_made_stable() {
    let limits = Limits { pins: PinLimits { pins_max: 1, ..PinLimits::default() }, ..Limits::default() };
    let mut sim = Sim::with(vec![Spec::default()], limits);
    let (one, two) = (file_at_a(&mut sim, "one"), file_at_a(&mut sim, "two"));
    let peer = sim.stream(0, 1);
    let first = sim.ask(peer, &calls::write(1, &one, 0, UNSTABLE, b"bytes"));
    let second = sim.ask(peer, &calls::write(2, &two, 0, UNSTABLE, b"bytes"));
    let committed = |reply: &[u8]| match results(Procedure::Write, reply) {
        Results::Write { committed, .. } => committed,
        other => panic!("{other:?}"),
    };
    assert_eq!((committed(&first), committed(&second)), (UNSTABLE, FILE_SYNC));
    let sent = sim.store(A).calls(Procedure::Write)[1].to_vec();
    let header = rpc::parse_call(&sent).unwrap();
    let arguments = nfs3::arguments(Procedure::Write, &sent, header.arguments).unwrap();
    assert!(matches!(arguments, Arguments::Write { stable: FILE_SYNC, .. }));
    assert_eq!((sim.shared.pins.len(), sim.shared.pins.refused()), (1, 1));
}
