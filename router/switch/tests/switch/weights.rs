//! Stores drained, lost and taken back while calls come.

use crate::sim::calls::{self, status};
use crate::sim::{A, B, MS, SECOND, Sim, Spec};
use clockwork_placement::StoreState;
use clockwork_wire::nfs3::{Procedure, status::JUKEBOX};

fn files(sim: &mut Sim, count: usize) -> Vec<Vec<u8>> {
    let root = sim.cluster.root();
    (0..count).map(|i| sim.cluster.file(&root, &format!("file{i}"))).collect()
}

#[test]
fn a13_weights_change_under_traffic() {
    let mut sim = Sim::new(vec![Spec { delay: 20 * MS, ..Spec::default() }; 2]);
    let files = files(&mut sim, 100);
    let (stream, datagram) = (sim.stream(0, 1), sim.datagram(1, 2, 1000));
    let mut xid = 0;
    let mut ran = [0, 0];
    for (weights, served) in [([1.0, 1.0], true), ([0.0, 1.0], true), ([0.0, 0.0], false), ([1.0, 0.0], true)]
    {
        sim.set_stores(|i, store| store.weight = weights[i]);
        let first = xid;
        for file in &files {
            xid += 1;
            for peer in [stream, datagram] {
                sim.send(peer, &calls::getattr(xid, file));
            }
            sim.run_for(MS);
        }
        // The last calls are still at their stores when the weights change.
        for xid in first + 1..=xid {
            for peer in [stream, datagram] {
                if sim.replies(peer, xid).is_empty() {
                    assert!(served, "what nobody serves is answered at once");
                    continue;
                }
                let expected = if served { 0 } else { JUKEBOX };
                assert_eq!(status(Procedure::Getattr, sim.reply(peer, xid)), expected, "{weights:?}");
            }
        }
        for (store, weight) in weights.into_iter().enumerate() {
            let now = sim.stores[store].runs(Procedure::Getattr);
            // Calls given to it before it was drained still run.
            let late = 50;
            assert_eq!(now > ran[store] + late, weight > 0.0, "{weights:?}: store {store} ran {now}");
            ran[store] = now;
        }
    }
    sim.settle();
    for xid in 1..=xid {
        sim.reply(stream, xid);
        sim.reply(datagram, xid);
    }
    let turned_away: u64 = sim.shards.iter().map(|shard| shard.switch.counters().turned_away_no_store).sum();
    assert_eq!(turned_away, 200);
}

#[test]
fn a09_a_file_whose_default_store_changes_stays_until_its_writes_are_committed() {
    let mut sim = Sim::new(vec![Spec::default(); 2]);
    let files = files(&mut sim, 60);
    let at = |sim: &Sim, file: &[u8]| {
        let table = sim.shared.table.load();
        table.route(file, table.hash(file)).unwrap()
    };
    let of_a: Vec<&Vec<u8>> = files.iter().filter(|file| at(&sim, file) == A).collect();
    let peer = sim.stream(0, 1);
    // All of store A's files are written to, and so pinned; then a third of its weight goes.
    for (xid, file) in (1..).zip(&of_a) {
        sim.ask(peer, &calls::write(xid, file, 0, calls::UNSTABLE, b"bytes"));
    }
    sim.set_stores(|i, store| store.weight = [0.6, 1.4][i]);
    let leave: Vec<&Vec<u8>> = of_a
        .iter()
        .copied()
        .filter(|file| sim.wanted.route(file, sim.wanted.hash(file)) != Some(A))
        .collect();
    assert!(!leave.is_empty() && leave.len() < of_a.len(), "{} of {}", leave.len(), of_a.len());
    assert_eq!(sim.place(), leave.len(), "those that leave wait");
    assert!(of_a.iter().all(|file| at(&sim, file) == A));
    for (xid, file) in (100..).zip(&leave) {
        let committed = sim.ask(peer, &calls::commit(xid, file));
        assert_eq!(status(Procedure::Commit, &committed), 0);
        sim.place();
        assert_eq!(at(&sim, file), B, "it follows as soon as it may");
    }
    assert_eq!(sim.store(B).runs(Procedure::Commit), 0, "each was committed where it was written");
    assert_eq!(sim.place(), 0);
    sim.settle();
}

#[test]
fn a13_nobody_serves_whatever_the_procedure() {
    let mut sim = Sim::new(vec![Spec::default(); 2]);
    let root = sim.cluster.root();
    let file = files(&mut sim, 1).remove(0);
    sim.set_stores(|_, store| store.state = StoreState::Drained);
    let peer = sim.stream(0, 1);
    let all = [
        (Procedure::Remove, calls::named(1, Procedure::Remove, &root, "file0")),
        (Procedure::Create, calls::create(1, &root, "new", false)),
        (Procedure::Write, calls::write(1, &file, 0, calls::UNSTABLE, b"bytes")),
        (Procedure::Commit, calls::commit(1, &file)),
        (Procedure::Readdir, calls::readdir(1, &root, 0, [0; 8], 4096)),
        (Procedure::Rename, calls::rename(1, (&root, "file0"), (&root, "new"))),
    ];
    for (i, (procedure, mut call)) in all.clone().into_iter().enumerate() {
        let xid = 10 + u32::try_from(i).unwrap();
        clockwork_wire::rpc::set_xid(&mut call, xid);
        assert_eq!(status(procedure, &sim.ask(peer, &call)), JUKEBOX, "{procedure}");
    }
    assert!(sim.shared.pins.is_empty());
    // Once there is a store again, the same transmissions run: they had not been answered for good.
    sim.set_stores(|_, store| store.state = StoreState::Up);
    for (i, (procedure, mut call)) in all.into_iter().enumerate() {
        let xid = 10 + u32::try_from(i).unwrap();
        clockwork_wire::rpc::set_xid(&mut call, xid);
        assert_ne!(status(procedure, &sim.ask(peer, &call)), JUKEBOX, "{procedure}");
    }
    sim.settle();
}

#[test]
fn a10_after_a_store_is_lost_the_next_datagram_goes_elsewhere() {
    for spec in [Spec::default(), Spec::datagram()] {
        let mut sim = Sim::new(vec![spec; 2]);
        let file = files(&mut sim, 1).remove(0);
        sim.assign(&file, A);
        // One port, ten calls a second; the store is killed in the third second and found out a second later.
        let peer = sim.datagram(0, 1, 1000);
        for xid in 1..=60_u32 {
            match xid {
                30 => sim.crash(A),
                40 => sim.eject(A),
                _ => {}
            }
            sim.send(peer, &calls::getattr(xid, &file));
            sim.run_for(100 * MS);
            assert_eq!(sim.replies(peer, xid).len(), usize::from(!(30..40).contains(&xid)), "call {xid}");
            if xid == 40 {
                // Those that had waited went elsewhere too.
                (30..40).for_each(|xid| assert_eq!(status(Procedure::Getattr, sim.reply(peer, xid)), 0));
            }
        }
        assert_eq!(sim.store(B).runs(Procedure::Getattr), 31);
        sim.revive(A);
        sim.settle();
    }
}

#[test]
fn a10_a_hung_store_is_left_as_well() {
    let mut sim = Sim::new(vec![Spec::datagram(), Spec::default()]);
    let file = files(&mut sim, 1).remove(0);
    sim.assign(&file, A);
    let peer = sim.datagram(0, 1, 1000);
    sim.store(A).hung = true;
    sim.send(peer, &calls::getattr(1, &file));
    sim.run_for(10 * SECOND);
    assert!(sim.replies(peer, 1).is_empty());
    sim.eject(A);
    sim.run_for(MS);
    assert_eq!(status(Procedure::Getattr, sim.reply(peer, 1)), 0);
    // It wakes up and answers what it was asked long ago: nobody waits for it.
    sim.unhang(A);
    sim.run_for(SECOND);
    sim.reply(peer, 1);
    assert!(sim.shards[0].switch.counters().late_replies > 0);
    sim.settle();
}

#[test]
fn a13_calls_that_waited_for_a_dead_store_go_to_the_next_that_serves() {
    // Store A dies while B is drained: A's calls have nowhere to go. Then B serves again.
    let mut sim = Sim::new(vec![Spec::default(); 2]);
    let file = files(&mut sim, 1).remove(0);
    sim.assign(&file, A);
    let peer = sim.stream(0, 1);
    sim.set_stores(|i, store| {
        if i == 1 {
            store.state = StoreState::Drained;
        }
    });
    sim.crash(A);
    sim.send(peer, &calls::getattr(1, &file));
    sim.eject(A);
    sim.run_for(SECOND);
    assert!(sim.replies(peer, 1).is_empty());
    sim.set_stores(|i, store| {
        if i == 1 {
            store.state = StoreState::Up;
        }
    });
    sim.run_for(SECOND);
    assert_eq!(status(Procedure::Getattr, sim.reply(peer, 1)), 0);
    assert_eq!(sim.store(B).runs(Procedure::Getattr), 1);
    sim.settle();
}
