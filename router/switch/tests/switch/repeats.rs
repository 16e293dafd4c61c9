//! Repeats of calls that must run once.

use crate::sim::calls::{self, status};
use crate::sim::{A, B, MS, Peer, SECOND, Sim, Spec};
use clockwork_placement::StoreId;
use clockwork_switch::Verdict;
use clockwork_wire::nfs3::Procedure;

/// A plex of two, slow enough for a repeat to come in between, with a directory at store A.
struct Plex {
    sim: Sim,
    dir: Vec<u8>,
}

/// The calls that the case names: what runs, and the call of this XID.
const KINDS: [Procedure; 4] = [Procedure::Remove, Procedure::Create, Procedure::Rename, Procedure::Mkdir];

impl Plex {
    fn new(spec: &Spec) -> Self {
        let slow = Spec { delay: 500 * MS, ..spec.clone() };
        let mut sim = Sim::new(vec![slow.clone(), slow]);
        let root = sim.cluster.root();
        let dir = sim.cluster.directory(&root, "dir");
        sim.cluster.file(&dir, "old");
        sim.assign(&dir, A);
        Self { sim, dir }
    }

    fn call(&self, procedure: Procedure, xid: u32) -> Vec<u8> {
        match procedure {
            Procedure::Remove => calls::named(xid, procedure, &self.dir, "old"),
            Procedure::Create => calls::create(xid, &self.dir, "new", true),
            Procedure::Rename => calls::rename(xid, (&self.dir, "old"), (&self.dir, "new")),
            _ => calls::mkdir(xid, &self.dir, "new"),
        }
    }

    /// Every transmission was answered alike, with success, and the call ran once.
    fn check(&mut self, procedure: Procedure, xid: u32, peers: &[Peer]) {
        self.sim.settle();
        let first = self.sim.replies(peers[0], xid)[0].to_vec();
        assert_eq!(status(procedure, &first), 0, "{procedure}");
        for peer in peers {
            for reply in self.sim.replies(*peer, xid) {
                assert_eq!(reply, first, "{procedure}: all answers are the first one's");
            }
        }
        assert_eq!(self.sim.runs(procedure), 1, "{procedure} runs once");
    }
}

/// Both transports of clients.
fn peers(sim: &mut Sim) -> [Peer; 2] {
    [sim.stream(0, 1), sim.datagram(1, 2, 1000)]
}

#[test]
fn a06_retransmission_in_flight_runs_once() {
    for procedure in KINDS {
        for transport in 0..2 {
            let mut plex = Plex::new(&Spec::default());
            let peer = peers(&mut plex.sim)[transport];
            let call = plex.call(procedure, 7);
            assert_eq!(plex.sim.send(peer, &call), Verdict::Forwarded);
            for _ in 0..3 {
                plex.sim.run_for(100 * MS);
                assert_eq!(plex.sim.send(peer, &call), Verdict::Absorbed);
            }
            plex.check(procedure, 7, &[peer]);
            assert_eq!(plex.sim.replies(peer, 7).len(), 1);
        }
    }
}

#[test]
fn a06_retransmission_after_a_lost_reply_runs_once() {
    for procedure in KINDS {
        for transport in 0..2 {
            let mut plex = Plex::new(&Spec::default());
            let peer = peers(&mut plex.sim)[transport];
            let call = plex.call(procedure, 7);
            plex.sim.send(peer, &call);
            plex.sim.run_for(SECOND);
            assert_eq!(plex.sim.send(peer, &call), Verdict::Answered);
            plex.check(procedure, 7, &[peer]);
            assert_eq!(plex.sim.replies(peer, 7).len(), 2);
        }
    }
}

#[test]
fn a06_retransmission_from_a_new_port_runs_once() {
    for procedure in KINDS {
        // Back to the same shard or to another; while the call runs or after its reply was lost.
        for shard in 0..2 {
            for pause in [100 * MS, SECOND] {
                let mut plex = Plex::new(&Spec::default());
                let old = plex.sim.stream(0, 1);
                let call = plex.call(procedure, 7);
                plex.sim.send(old, &call);
                plex.sim.run_for(pause / 2);
                plex.sim.close(old);
                plex.sim.run_for(pause / 2);
                let new = plex.sim.stream(shard, 1);
                plex.sim.send(new, &call);
                plex.check(procedure, 7, &[new]);
                assert_eq!(plex.sim.replies(new, 7).len(), 1);
            }
        }
    }
}

#[test]
fn a06_retransmission_after_a_flip_runs_once() {
    for procedure in KINDS {
        for reconnects in [false, true] {
            for pause in [100 * MS, SECOND] {
                let mut plex = Plex::new(&Spec::default());
                let mut peer = plex.sim.stream(0, 1);
                let call = plex.call(procedure, 7);
                plex.sim.send(peer, &call);
                plex.sim.run_for(pause);
                let dir = plex.dir.clone();
                assert_eq!(plex.sim.assign(&dir, B), 0);
                if reconnects {
                    plex.sim.close(peer);
                    peer = plex.sim.stream(1, 1);
                }
                plex.sim.send(peer, &call);
                plex.check(procedure, 7, &[peer]);
                assert!(
                    plex.sim.store(B).ran.is_empty(),
                    "{procedure}: the new store has seen nothing of it"
                );
            }
        }
    }
}

#[test]
fn a06_equal_calls_of_two_processes_both_run() {
    // Two connections of one host that both live: equal XIDs are chance.
    let mut plex = Plex::new(&Spec::default());
    let (one, other) = (plex.sim.stream(0, 1), plex.sim.stream(1, 1));
    let call = plex.call(Procedure::Remove, 7);
    plex.sim.send(one, &call);
    plex.sim.send(other, &call);
    plex.sim.settle();
    assert_eq!(plex.sim.runs(Procedure::Remove), 2);
    assert_eq!(status(Procedure::Remove, plex.sim.reply(one, 7)), 0);
    assert_eq!(status(Procedure::Remove, plex.sim.reply(other, 7)), clockwork_wire::nfs3::status::NOENT);
}

#[test]
fn a06_a_call_sent_again_to_its_store_runs_once() {
    // The link is lost while the store works on it: the store's own cache answers, by XID and port.
    for procedure in KINDS {
        let mut plex = Plex::new(&Spec::default());
        let peer = plex.sim.stream(0, 1);
        let call = plex.call(procedure, 7);
        plex.sim.send(peer, &call);
        for _ in 0..2 {
            plex.sim.run_for(200 * MS);
            plex.sim.break_links(A);
            // The client grows impatient as well.
            assert_eq!(plex.sim.send(peer, &call), Verdict::Absorbed);
        }
        // The store drops repeats of what it is working on, and its reply is lost with the first link.
        plex.check(procedure, 7, &[peer]);
        assert_eq!(plex.sim.replies(peer, 7).len(), 1);
    }
}

#[test]
fn a06_idempotent_repeats_in_flight_are_absorbed_too() {
    let mut plex = Plex::new(&Spec::default());
    let dir = plex.dir.clone();
    for (transport, peer) in peers(&mut plex.sim).into_iter().enumerate() {
        let call = calls::getattr(9, &dir);
        assert_eq!(plex.sim.send(peer, &call), Verdict::Forwarded);
        assert_eq!(plex.sim.send(peer, &call), Verdict::Absorbed);
        plex.sim.assign(&dir, StoreId(u16::from(transport == 0)));
        assert_eq!(plex.sim.send(peer, &call), Verdict::Absorbed);
        plex.sim.settle();
        plex.sim.reply(peer, 9);
        // After its reply it may run again: the client gets what is true by now.
        assert_eq!(plex.sim.send(peer, &call), Verdict::Forwarded);
        plex.sim.settle();
    }
}
