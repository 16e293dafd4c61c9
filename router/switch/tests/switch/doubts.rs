//! Answers to calls that were sent again and may have run before: each row of the table, whether the store had run the
//! first transmission or not.

use crate::sim::calls::{self, results, status};
use crate::sim::{A, B, MS, Peer, Sim, Spec};
use clockwork_wire::nfs3::status::{EXIST, NOENT};
use clockwork_wire::nfs3::{Procedure, Results};
use clockwork_wire::{rpc, xdr};

/// How a call comes to be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Again {
    /// It ran, the reply was lost with the link.
    Ran,
    /// The link was lost before the store read it.
    Unread,
    /// It ran, and the store died: another gets it.
    RanElsewhere,
    /// A datagram's reply was lost.
    RanDatagram,
}

const ALL: [Again; 4] = [Again::Ran, Again::Unread, Again::RanElsewhere, Again::RanDatagram];

struct Plex {
    sim: Sim,
    dir: Vec<u8>,
    peer: Peer,
}

impl Plex {
    /// Two stores without a duplicate cache, and a directory with a file "old" at the first.
    fn new(again: Again) -> Self {
        let spec = if again == Again::RanDatagram { Spec::datagram() } else { Spec::default() }.forgetful();
        let mut sim = Sim::new(vec![spec.clone(), spec]);
        let root = sim.cluster.root();
        let dir = sim.cluster.directory(&root, "dir");
        sim.cluster.file(&dir, "old");
        sim.assign(&dir, A);
        let peer = sim.stream(0, 1);
        Self { sim, dir, peer }
    }

    /// Sends a call, has it sent again; the reply.
    fn again(&mut self, again: Again, call: &[u8]) -> Vec<u8> {
        let xid = rpc::xid(call).unwrap();
        match again {
            Again::Unread => self.sim.store(A).hung = true,
            _ => self.sim.store(A).mute = true,
        }
        self.sim.send(self.peer, call);
        self.sim.run_for(10 * MS);
        assert!(self.sim.replies(self.peer, xid).is_empty());
        match again {
            Again::Ran | Again::Unread => self.sim.break_links(A),
            Again::RanElsewhere => {
                self.sim.crash(A);
                self.sim.eject(A);
                self.sim.revive(A);
            }
            Again::RanDatagram => {}
        }
        self.sim.store(A).mute = false;
        self.sim.store(A).hung = false;
        self.sim.settle();
        assert_eq!(self.sim.shards[0].switch.counters().sent_again, 1);
        self.sim.reply(self.peer, xid).to_vec()
    }

    fn old(&self) -> Vec<u8> {
        self.sim.cluster.find(&self.dir, "old").unwrap()
    }
}

/// What the call answers when it is sent again; `prepare` runs before.
fn answer(
    again: Again,
    procedure: Procedure,
    prepare: impl FnOnce(&mut Plex),
    call: impl FnOnce(&Plex) -> Vec<u8>,
) -> (u32, Vec<u8>, Plex) {
    let mut plex = Plex::new(again);
    prepare(&mut plex);
    let call = call(&plex);
    let reply = plex.again(again, &call);
    (status(procedure, &reply), reply, plex)
}

#[test]
fn remove_sent_again_succeeds() {
    for again in ALL {
        let call = |plex: &Plex| calls::named(7, Procedure::Remove, &plex.dir, "old");
        let (status, _, plex) = answer(again, Procedure::Remove, |_| {}, call);
        assert_eq!(status, 0, "{again:?}");
        assert_eq!(plex.sim.cluster.find(&plex.dir, "old"), None);
        // The price, as documented: of a name that never was it is said too.
        let call = |plex: &Plex| calls::named(7, Procedure::Remove, &plex.dir, "never");
        assert_eq!(answer(again, Procedure::Remove, |_| {}, call).0, 0, "{again:?}");
    }
}

#[test]
fn rmdir_sent_again_succeeds() {
    for again in ALL {
        let prepare = |plex: &mut Plex| drop(plex.sim.cluster.directory(&plex.dir, "sub"));
        let call = |plex: &Plex| calls::named(7, Procedure::Rmdir, &plex.dir, "sub");
        assert_eq!(answer(again, Procedure::Rmdir, prepare, call).0, 0, "{again:?}");
    }
}

#[test]
fn rename_sent_again_succeeds_and_tells_a_missing_name() {
    for again in ALL {
        let call =
            |from: &'static str| move |plex: &Plex| calls::rename(7, (&plex.dir, from), (&plex.dir, "new"));
        let (status, _, plex) = answer(again, Procedure::Rename, |_| {}, call("old"));
        assert_eq!(status, 0, "{again:?}");
        assert!(plex.sim.cluster.find(&plex.dir, "new").is_some());
        assert_eq!(answer(again, Procedure::Rename, |_| {}, call("never")).0, NOENT, "{again:?}");
        // The price, as documented: what is there already looks like what was asked for.
        let taken = |plex: &mut Plex| drop(plex.sim.cluster.file(&plex.dir, "new"));
        assert_eq!(answer(again, Procedure::Rename, taken, call("never")).0, 0, "{again:?}");
    }
}

#[test]
fn link_sent_again_succeeds_and_tells_another_file() {
    for again in ALL {
        let call = |plex: &Plex| calls::link(7, &plex.old(), &plex.dir, "new");
        let (status, _, plex) = answer(again, Procedure::Link, |_| {}, call);
        assert_eq!(status, 0, "{again:?}");
        assert_eq!(plex.sim.cluster.find(&plex.dir, "new"), plex.sim.cluster.find(&plex.dir, "old"));
        let taken = |plex: &mut Plex| drop(plex.sim.cluster.file(&plex.dir, "new"));
        assert_eq!(answer(again, Procedure::Link, taken, call).0, EXIST, "{again:?}");
    }
}

#[test]
fn mkdir_sent_again_succeeds_with_the_directory_and_tells_other_names() {
    for again in ALL {
        let call = |plex: &Plex| calls::mkdir(7, &plex.dir, "new");
        let (status, reply, plex) = answer(again, Procedure::Mkdir, |_| {}, call);
        assert_eq!(status, 0, "{again:?}");
        let Results::Made { handle: Some(handle), attributes_at: Some(_) } =
            results(Procedure::Mkdir, &reply)
        else {
            panic!("{again:?}: MKDIR gives handle and attributes");
        };
        assert_eq!(Some(reply[handle].to_vec()), plex.sim.cluster.find(&plex.dir, "new"));
        let file = |plex: &mut Plex| drop(plex.sim.cluster.file(&plex.dir, "new"));
        assert_eq!(answer(again, Procedure::Mkdir, file, call).0, EXIST, "{again:?}");
        // A directory of user 1000 is not one that user 1001 has made.
        let others = |plex: &mut Plex| drop(plex.sim.cluster.directory(&plex.dir, "new"));
        let call = |plex: &Plex| {
            let mine = calls::mkdir(7, &plex.dir, "new");
            let arguments = mine[rpc::parse_call(&mine).unwrap().arguments..].to_vec();
            calls::call_as(1001, 7, Procedure::Mkdir, &arguments)
        };
        assert_eq!(answer(again, Procedure::Mkdir, others, call).0, EXIST, "{again:?}");
    }
}

#[test]
fn symlink_sent_again_succeeds_and_tells_another_target() {
    for again in ALL {
        let call = |plex: &Plex| calls::symlink(7, &plex.dir, "new", "target");
        let (status, reply, plex) = answer(again, Procedure::Symlink, |_| {}, call);
        assert_eq!(status, 0, "{again:?}");
        let Results::Made { handle: Some(handle), .. } = results(Procedure::Symlink, &reply) else {
            panic!("{again:?}: SYMLINK gives a handle");
        };
        assert_eq!(Some(reply[handle].to_vec()), plex.sim.cluster.find(&plex.dir, "new"));
        for other in ["elsewhere", "get", "a target"] {
            let taken = |plex: &mut Plex| {
                let call = calls::symlink(6, &plex.dir, "new", other);
                plex.sim.ask(plex.peer, &call);
            };
            assert_eq!(answer(again, Procedure::Symlink, taken, call).0, EXIST, "{again:?}");
        }
    }
}

#[test]
fn create_sent_again() {
    for again in ALL {
        let guarded = |plex: &Plex| calls::create(7, &plex.dir, "new", true);
        let expected = if again == Again::Unread { 0 } else { EXIST };
        assert_eq!(answer(again, Procedure::Create, |_| {}, guarded).0, expected, "{again:?}");
        let unchecked = |plex: &Plex| calls::create(7, &plex.dir, "new", false);
        assert_eq!(answer(again, Procedure::Create, |_| {}, unchecked).0, 0, "{again:?}");
        let exclusive = |plex: &Plex| {
            let mut arguments = Vec::new();
            xdr::put_opaque(&mut arguments, &plex.dir);
            xdr::put_opaque(&mut arguments, b"new");
            arguments.extend_from_slice(&[0, 0, 0, 2, 1, 2, 3, 4, 5, 6, 7, 8]);
            calls::call(7, Procedure::Create, &arguments)
        };
        assert_eq!(answer(again, Procedure::Create, |_| {}, exclusive).0, 0, "{again:?}");
    }
}

#[test]
fn without_a_second_transmission_there_is_no_doubt() {
    let mut plex = Plex::new(Again::Ran);
    let reply = plex.sim.ask(plex.peer, &calls::named(7, Procedure::Remove, &plex.dir, "never"));
    assert_eq!(status(Procedure::Remove, &reply), NOENT);
    let old = plex.dir.clone();
    let reply = plex.sim.ask(plex.peer, &calls::mkdir(8, &old, "old"));
    assert_eq!(status(Procedure::Mkdir, &reply), EXIST);
    assert_eq!(plex.sim.shards[0].switch.counters().doubts, 0);
    plex.sim.settle();
}

#[test]
fn a_look_survives_the_loss_of_its_link_and_of_its_store() {
    for ejected in [false, true] {
        let mut plex = Plex::new(Again::Ran);
        let call = calls::symlink(7, &plex.dir, "new", "target");
        plex.sim.store(A).mute = true;
        plex.sim.send(plex.peer, &call);
        plex.sim.run_for(10 * MS);
        plex.sim.store(A).mute = false;
        plex.sim.break_links(A);
        // The second transmission is answered after this; the look finds nobody who answers it.
        while plex.sim.store(A).runs(Procedure::Symlink) < 2 {
            plex.sim.run_for(MS / 10);
        }
        plex.sim.store(A).hung = true;
        plex.sim.run_for(10 * MS);
        assert_eq!(plex.sim.store(A).waiting.len(), 1, "the look is under way");
        // A repeat meanwhile is absorbed.
        assert_eq!(plex.sim.send(plex.peer, &call), clockwork_switch::Verdict::Absorbed);
        if ejected {
            plex.sim.crash(A);
            plex.sim.eject(A);
        } else {
            plex.sim.break_links(A);
            plex.sim.store(A).hung = false;
        }
        plex.sim.run_for(100 * MS);
        assert_eq!(status(Procedure::Symlink, plex.sim.reply(plex.peer, 7)), 0);
        assert_eq!(plex.sim.store(B).runs(Procedure::Lookup) > 0, ejected);
        plex.sim.settle();
    }
}
