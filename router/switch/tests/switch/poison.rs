//! Calls that make their store close the connection, or end.

use crate::sim::calls::{self, status};
use crate::sim::{A, Ends, Limits, MS, Peer, SECOND, Sim, Spec};
use clockwork_placement::StoreId;
use clockwork_wire::nfs3::Procedure;
use clockwork_wire::rpc::{ReplyBody, parse_reply};
use std::time::Duration;

/// Accepted, and SYSTEM_ERR (RFC 5531 section 9).
fn is_system_err(reply: &[u8]) -> bool {
    matches!(parse_reply(reply).unwrap().body, ReplyBody::Accepted { stat: 5, .. })
}

/// A plex of one shard, a file that is poison for every store, and one that is not, both of the first store.
fn with_poison(specs: Vec<Spec>, ends: Ends) -> (Sim, Vec<u8>, Vec<u8>) {
    let mut sim = Sim::with(specs, Limits { shards: 1, ..Limits::default() });
    let root = sim.cluster.root();
    let (poison, good) = (sim.cluster.file(&root, "poison"), sim.cluster.file(&root, "good"));
    sim.assign(&poison, A);
    sim.assign(&good, A);
    for store in &mut sim.stores {
        store.poison = Some((poison.clone(), ends));
    }
    (sim, poison, good)
}

fn all_answered(sim: &Sim, peer: Peer, xids: std::ops::RangeInclusive<u32>) {
    for xid in xids {
        assert_eq!(status(Procedure::Getattr, sim.reply(peer, xid)), 0, "call {xid}");
    }
}

#[test]
fn a_call_on_which_its_store_closes_the_connection_is_given_up_and_the_others_are_answered() {
    for spec in [
        Spec::default(),
        Spec::default().forgetful(),
        Spec::default().dropping(),
        Spec { links: 2, ..Spec::default() },
    ] {
        // Slow enough that other calls are lost with every link.
        let spec = Spec { delay: 3 * MS, ..spec };
        let (mut sim, poison, good) = with_poison(vec![spec; 3], Ends::Connection);
        let (victim, peer) = (sim.stream(0, 1), sim.stream(0, 2));
        let began = sim.now;
        sim.send(victim, &calls::named(1, Procedure::Remove, &poison, "x"));
        let mut xid = 0;
        for _ in 0..40 {
            for _ in 0..100 {
                xid += 1;
                sim.send(peer, &calls::getattr(xid, &good));
                sim.run_for(10 * MS);
            }
            // Not one of them waits longer than the few losses that can hit it by chance.
            all_answered(&sim, peer, 1..=xid - 100);
        }
        sim.settle();
        all_answered(&sim, peer, 1..=xid);
        assert!(is_system_err(sim.reply(victim, 1)));
        let took = sim.replied_at(victim, 1).since(began);
        assert!((30 * SECOND..45 * SECOND).contains(&took), "{took:?}");
        let counters = *sim.shards[0].switch.counters();
        assert_eq!(counters.given_up, 1);
        let given_up = sim.shards[0].switch.take_given_up().unwrap();
        assert_eq!((given_up.store, given_up.procedure), (A, Procedure::Remove));
        assert_eq!(given_up.client, Some(victim.client.address()));
        assert_eq!(&*given_up.handle, &poison[..]);
        assert!((8..=20).contains(&given_up.links_lost), "{}", given_up.links_lost);
        assert_eq!(sim.shards[0].switch.take_given_up(), None);
        assert!(sim.stores[1..].iter().all(|store| store.xids.is_empty()), "other stores have never seen it");
        // A repeat of it has its answer.
        sim.send(victim, &calls::named(1, Procedure::Remove, &poison, "x"));
        assert!(sim.replies(victim, 1).iter().all(|reply| is_system_err(reply)));
        assert_eq!(sim.replies(victim, 1).len(), 2);
    }
}

#[test]
fn hundreds_of_calls_lost_with_a_poison_one_are_answered_one_after_the_other() {
    let (mut sim, poison, good) =
        with_poison(vec![Spec { delay: 60 * MS, ..Spec::default().forgetful() }], Ends::Connection);
    let (victim, peer) = (sim.stream(0, 1), sim.stream(0, 2));
    // The store answers no call before the poison one ends the connection: all are suspects in the end.
    for xid in 1..=150 {
        sim.send(peer, &calls::getattr(xid, &good));
    }
    sim.send(victim, &calls::getattr(1, &poison));
    let began = sim.now;
    sim.settle();
    all_answered(&sim, peer, 1..=150);
    assert!(is_system_err(sim.reply(victim, 1)));
    for xid in 1..=150 {
        let took = sim.replied_at(peer, xid).since(began);
        assert!(took < 30 * SECOND, "call {xid} took {took:?}");
    }
}

#[test]
fn a_call_that_ends_its_store_does_not_end_all_of_them() {
    let (mut sim, poison, good) = with_poison(vec![Spec::default(); 5], Ends::Store);
    let (victim, peer) = (sim.stream(0, 1), sim.stream(0, 2));
    sim.send(victim, &calls::getattr(1, &poison));
    let mut ejected = [false; 5];
    let mut xid = 0;
    for _ in 0..600 {
        xid += 1;
        sim.send(peer, &calls::getattr(xid, &good));
        sim.run_for(100 * MS);
        for store in (0..).map(StoreId).take(5) {
            let dead = !sim.stores[store.index()].alive;
            if dead && !std::mem::replace(&mut ejected[store.index()], true) {
                // As long as health checks take to be sure.
                sim.run_for(SECOND);
                sim.eject(store);
            }
        }
    }
    sim.settle();
    all_answered(&sim, peer, 1..=xid);
    assert!(is_system_err(sim.reply(victim, 1)));
    assert_eq!(sim.shards[0].switch.take_given_up().unwrap().stores_lost, 3);
    assert_eq!(ejected.iter().filter(|ejected| **ejected).count(), 3);
}

#[test]
fn a_call_lost_with_two_stores_is_answered_by_the_second_when_that_is_back() {
    let (mut sim, poison, _) = with_poison(vec![Spec::default(); 3], Ends::Store);
    let peer = sim.stream(0, 1);
    sim.send(peer, &calls::getattr(1, &poison));
    sim.run_for(SECOND);
    sim.eject(A);
    sim.run_for(SECOND);
    let second = sim.stores.iter().position(|store| store.index != 0 && !store.alive).unwrap();
    let second = StoreId(u16::try_from(second).unwrap());
    sim.eject(second);
    sim.run_for(2 * SECOND);
    assert_eq!(sim.stores.iter().filter(|store| store.alive).count(), 1, "the third is spared");
    sim.store(second).poison = None;
    sim.revive(second);
    sim.settle();
    assert_eq!(status(Procedure::Getattr, sim.reply(peer, 1)), 0);
    assert!(sim.now.since(sim.replied_at(peer, 1)) < Duration::from_secs(30));
}
