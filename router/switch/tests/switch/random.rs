//! Random schedules: calls, repeats, reconnections, losses, restarts and flips in any order. Whatever happens, every call
//! is answered, what must run once does, nothing acknowledged is lost, and nothing is left over.

use crate::sim::calls::{self, UNSTABLE, results, status, verifier};
use crate::sim::{MS, Peer, SECOND, Sim, Spec};
use clockwork_placement::{StoreId, StoreState};
use clockwork_wire::nfs3::{Procedure, Results, status::JUKEBOX};
use clockwork_wire::rpc;
use proptest::prelude::*;
use std::collections::HashMap;

const STORES: u16 = 3;
const CLIENTS: usize = 4;
const FILES: usize = 2;

/// What happens next.
#[derive(Clone, Debug)]
enum Step {
    /// A client makes a call, unless it still waits for four.
    Call {
        client: usize,
        kind: u8,
    },
    /// A client repeats what it waits for.
    Repeat {
        client: usize,
    },
    /// A client's connection is lost; it repeats over a new one, to another shard perhaps.
    Reconnect {
        client: usize,
        shard: usize,
    },
    /// A client writes a block to its file.
    Write {
        client: usize,
        block: u8,
    },
    /// A client commits, and writes again what a changed verifier tells is lost.
    Commit {
        client: usize,
    },
    /// A link to a store is lost.
    Break {
        shard: usize,
        store: u16,
    },
    /// A file or directory is assigned to a store.
    Flip {
        file: usize,
        store: u16,
    },
    /// A file or directory is assigned to a store, and reads to the next as well.
    Replicate {
        file: usize,
        store: u16,
    },
    Hang {
        store: u16,
    },
    Unhang {
        store: u16,
    },
    Restart {
        store: u16,
        lag_ms: u64,
    },
    Eject {
        store: u16,
    },
    Readmit {
        store: u16,
    },
    Wait {
        ms: u64,
    },
}

fn calm() -> impl Strategy<Value = Step> {
    let (client, store, shard) = (0..CLIENTS, 0..STORES, 0..2_usize);
    prop_oneof![
        8 => (client.clone(), 0..9_u8).prop_map(|(client, kind)| Step::Call { client, kind }),
        3 => client.clone().prop_map(|client| Step::Repeat { client }),
        2 => (client.clone(), shard.clone()).prop_map(|(client, shard)| Step::Reconnect { client, shard }),
        4 => (client.clone(), 0..8_u8).prop_map(|(client, block)| Step::Write { client, block }),
        2 => client.prop_map(|client| Step::Commit { client }),
        3 => (shard, store.clone()).prop_map(|(shard, store)| Step::Break { shard, store }),
        3 => (0..FILES + CLIENTS, store.clone()).prop_map(|(file, store)| Step::Flip { file, store }),
        2 => (0..FILES + CLIENTS, store).prop_map(|(file, store)| Step::Replicate { file, store }),
        6 => (1..80_u64).prop_map(|ms| Step::Wait { ms }),
    ]
}

fn wild() -> impl Strategy<Value = Step> {
    let store = 0..STORES;
    prop_oneof![
        20 => calm(),
        1 => store.clone().prop_map(|store| Step::Hang { store }),
        2 => store.clone().prop_map(|store| Step::Unhang { store }),
        2 => (store.clone(), 0..100_u64).prop_map(|(store, lag_ms)| Step::Restart { store, lag_ms }),
        1 => store.clone().prop_map(|store| Step::Eject { store }),
        1 => store.prop_map(|store| Step::Readmit { store }),
    ]
}

/// One call of a client, with the arguments that no other call has.
#[derive(Clone, Debug)]
struct Sent {
    xid: u32,
    procedure: Procedure,
    message: Vec<u8>,
    /// The connections it went over.
    peers: Vec<Peer>,
}

/// First byte, bytes.
type Block = (usize, Vec<u8>);

/// A client that writes carefully: it keeps what is not known to be on stable storage.
struct Writer {
    file: Vec<u8>,
    content: Vec<u8>,
    /// Written and not committed: first byte, bytes, verifier.
    unstable: Vec<(usize, Vec<u8>, [u8; 8])>,
    /// Its write or commit under way; one at a time.
    busy: Option<(Sent, Option<Block>)>,
    /// To be written again.
    again: Vec<Block>,
}

struct World {
    sim: Sim,
    dirs: Vec<Vec<u8>>,
    peers: Vec<Peer>,
    waiting: Vec<Vec<Sent>>,
    done: Vec<Sent>,
    writers: Vec<Writer>,
    names: u32,
    xid: u32,
}

const BLOCK: usize = 100;

impl World {
    fn new(specs: Vec<Spec>, datagrams: bool) -> Self {
        let mut sim = Sim::new(specs);
        let root = sim.cluster.root();
        let dirs = (0..FILES).map(|i| sim.cluster.directory(&root, &format!("dir{i}"))).collect();
        let peers = (0..CLIENTS).map(|i| {
            let host = u8::try_from(i).unwrap();
            // Clients with datagrams keep their ports.
            if datagrams && i % 2 == 1 {
                sim.datagram(i % 2, host, 1000 + u16::from(host))
            } else {
                sim.stream(i % 2, host)
            }
        });
        let peers = peers.collect();
        let writers = (0..CLIENTS).map(|i| Writer {
            file: sim.cluster.file(&root, &format!("file{i}")),
            content: Vec::new(),
            unstable: Vec::new(),
            busy: None,
            again: Vec::new(),
        });
        let writers = writers.collect();
        Self { sim, dirs, peers, waiting: vec![vec![]; CLIENTS], done: vec![], writers, names: 0, xid: 0 }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Call { client, kind } => self.call(client, kind),
            Step::Repeat { client } => self.repeat(client),
            Step::Reconnect { client, shard } => self.reconnect(client, shard),
            Step::Write { client, block } => {
                let at = usize::from(block) * BLOCK;
                self.xid += 1;
                let fill = u8::try_from(self.xid % 251).unwrap() + 1;
                self.write(client, at, vec![fill; BLOCK]);
            }
            Step::Commit { client } => self.commit(client),
            Step::Break { shard, store } => self.sim.break_link(shard, usize::from(store)),
            Step::Flip { file, store } => {
                let handle = self.handle(file);
                self.sim.assign(&handle, StoreId(store));
            }
            Step::Replicate { file, store } => {
                let handle = self.handle(file);
                self.sim.replicate(&handle, &[StoreId(store), StoreId((store + 1) % STORES)]);
            }
            Step::Hang { store } => self.sim.store(StoreId(store)).hung = true,
            Step::Unhang { store } => self.sim.unhang(StoreId(store)),
            Step::Restart { store, lag_ms } => {
                self.sim.store(StoreId(store)).hung = false;
                self.sim.restart_noticed_late(StoreId(store), MS * u32::try_from(lag_ms).unwrap());
            }
            // A store that is taken out while it has calls may run them when others have written meanwhile: no router can
            // call them back, so whoever takes one out must see to it (docs/operating.md).
            Step::Eject { store } => {
                self.sim.fence(StoreId(store));
                self.sim.eject(StoreId(store));
            }
            Step::Readmit { store } => self.sim.readmit(StoreId(store)),
            Step::Wait { ms } => self.sim.run_for(MS * u32::try_from(ms).unwrap()),
        }
        self.look();
    }

    fn handle(&self, file: usize) -> Vec<u8> {
        self.dirs.iter().chain(self.writers.iter().map(|w| &w.file)).nth(file).unwrap().clone()
    }

    /// A call whose success does not depend on any other: every name is used once.
    fn call(&mut self, client: usize, kind: u8) {
        if self.waiting[client].len() >= 4 {
            return;
        }
        self.names += 1;
        self.xid += 1;
        let (xid, dir, other) =
            (self.xid, self.dirs[client % FILES].clone(), self.dirs[(client + 1) % FILES].clone());
        let (name, old) = (format!("new{}", self.names), format!("old{}", self.names));
        let (procedure, message) = match kind {
            0 => (Procedure::Create, calls::create(xid, &dir, &name, false)),
            1 => (Procedure::Mkdir, calls::mkdir(xid, &dir, &name)),
            2 => (Procedure::Symlink, calls::symlink(xid, &dir, &name, &old)),
            3 => {
                self.sim.cluster.file(&dir, &old);
                (Procedure::Remove, calls::named(xid, Procedure::Remove, &dir, &old))
            }
            4 => {
                self.sim.cluster.file(&dir, &old);
                (Procedure::Rename, calls::rename(xid, (&dir, &old), (&other, &name)))
            }
            5 => {
                let file = self.sim.cluster.file(&dir, &old);
                (Procedure::Link, calls::link(xid, &file, &dir, &name))
            }
            6 => (Procedure::Getattr, calls::getattr(xid, &dir)),
            7 => (Procedure::Read, calls::read(xid, &self.writers[client].file, 0, 400)),
            _ => (Procedure::Readdir, calls::readdir(xid, &dir, 0, [0; 8], 4096)),
        };
        let sent = Sent { xid, procedure, message, peers: vec![self.peers[client]] };
        self.sim.send(self.peers[client], &sent.message);
        self.waiting[client].push(sent);
    }

    fn repeat(&mut self, client: usize) {
        let writes = self.writers[client].busy.iter().map(|(sent, _)| sent);
        for sent in self.waiting[client].iter().chain(writes) {
            self.sim.send(self.peers[client], &sent.message);
        }
    }

    fn reconnect(&mut self, client: usize, shard: usize) {
        if matches!(self.peers[client].client, clockwork_switch::Client::Datagram { .. }) {
            return self.repeat(client);
        }
        self.sim.close(self.peers[client]);
        self.peers[client] = self.sim.stream(shard, u8::try_from(client).unwrap());
        let peer = self.peers[client];
        self.waiting[client].iter_mut().for_each(|sent| sent.peers.push(peer));
        if let Some((sent, _)) = &mut self.writers[client].busy {
            sent.peers.push(peer);
        }
        self.repeat(client);
    }

    fn write(&mut self, client: usize, at: usize, data: Vec<u8>) {
        if self.writers[client].busy.is_some() {
            return;
        }
        self.xid += 1;
        let peer = self.peers[client];
        let writer = &mut self.writers[client];
        writer.content.resize(writer.content.len().max(at + data.len()), 0);
        writer.content[at..at + data.len()].copy_from_slice(&data);
        let message = calls::write(self.xid, &writer.file, at as u64, UNSTABLE, &data);
        let sent = Sent { xid: self.xid, procedure: Procedure::Write, message, peers: vec![peer] };
        self.sim.send(peer, &sent.message);
        writer.busy = Some((sent, Some((at, data))));
    }

    fn commit(&mut self, client: usize) {
        if self.writers[client].busy.is_some() {
            return;
        }
        self.xid += 1;
        let (peer, writer) = (self.peers[client], &mut self.writers[client]);
        let message = calls::commit(self.xid, &writer.file);
        let sent = Sent { xid: self.xid, procedure: Procedure::Commit, message, peers: vec![peer] };
        self.sim.send(peer, &sent.message);
        writer.busy = Some((sent, None));
    }

    /// The first reply over any connection of a call that is still the client's.
    fn answer(sim: &Sim, sent: &Sent) -> Option<Vec<u8>> {
        sent.peers.iter().find_map(|peer| sim.replies(*peer, sent.xid).first().map(|reply| reply.to_vec()))
    }

    /// Clients take notice of their replies.
    fn look(&mut self) {
        for client in 0..CLIENTS {
            let sim = &self.sim;
            let (done, waiting) =
                self.waiting[client].drain(..).partition(|sent| Self::answer(sim, sent).is_some());
            self.waiting[client] = waiting;
            let done: Vec<Sent> = done;
            self.done.extend(done);
            let Some((sent, _)) = &self.writers[client].busy else { continue };
            if let Some(reply) = Self::answer(&self.sim, sent) {
                self.written(client, &reply);
            }
        }
    }

    fn written(&mut self, client: usize, reply: &[u8]) {
        let writer = &mut self.writers[client];
        let (sent, data) = writer.busy.take().unwrap();
        if status(sent.procedure, reply) == JUKEBOX {
            writer.again.extend(data);
        } else if let Some((at, data)) = data {
            let Results::Write { count, committed, .. } = results(Procedure::Write, reply) else {
                panic!("a WRITE failed: {}", status(Procedure::Write, reply));
            };
            assert_eq!(count as usize, data.len());
            if committed == UNSTABLE {
                writer.unstable.push((at, data, verifier(Procedure::Write, reply)));
            }
        } else {
            assert_eq!(status(Procedure::Commit, reply), 0);
            let now = verifier(Procedure::Commit, reply);
            for (at, data, then) in writer.unstable.drain(..) {
                if then != now {
                    writer.again.push((at, data));
                }
            }
        }
        self.done.push(sent);
        if let Some((at, _)) = self.writers[client].again.pop() {
            // The newest bytes, as a page cache has them.
            let data = self.writers[client].content[at..at + BLOCK].to_vec();
            self.write(client, at, data);
        }
    }

    /// Everything is repaired; clients repeat what is not answered, and commit until all is stable.
    fn end(&mut self) {
        self.sim.loses = Box::new(|| false);
        for store in (0..STORES).map(StoreId) {
            self.sim.unhang(store);
        }
        self.sim.set_stores(|_, store| store.state = StoreState::Up);
        for _ in 0..60 {
            self.sim.run_for(SECOND);
            self.look();
            let idle = (0..CLIENTS).all(|i| self.waiting[i].is_empty() && self.writers[i].busy.is_none());
            if idle && self.writers.iter().all(|w| w.unstable.is_empty() && w.again.is_empty()) {
                return self.sim.settle();
            }
            for client in 0..CLIENTS {
                self.repeat(client);
                if !self.writers[client].unstable.is_empty() {
                    self.commit(client);
                }
            }
        }
        let writers: Vec<_> = self.writers.iter().map(|w| (&w.busy, &w.unstable, &w.again)).collect();
        panic!("not everything is answered a minute after the last fault: {:?}, {writers:?}", self.waiting);
    }

    /// All replies to a call are the same, one for each transmission at most.
    fn check_replies(&self) {
        for sent in &self.done {
            let mut all: Vec<&[u8]> =
                sent.peers.iter().flat_map(|peer| self.sim.replies(*peer, sent.xid)).collect();
            assert!(!all.is_empty());
            if !sent.procedure.is_idempotent() {
                // A call that was turned away may be repeated and then runs.
                all.retain(|reply| status(sent.procedure, reply) != JUKEBOX);
                assert!(all.windows(2).all(|pair| pair[0] == pair[1]), "{sent:?} has two answers");
            }
            for reply in all {
                assert_eq!(status(sent.procedure, reply), 0, "{sent:?}");
            }
        }
    }

    /// How often each call ran, by its arguments, which no other call has.
    fn check_runs(&self) {
        let mut runs: HashMap<(Procedure, &[u8]), u32> = HashMap::new();
        for (procedure, message) in self.sim.stores.iter().flat_map(|store| &store.ran) {
            if !procedure.is_idempotent() && *procedure != Procedure::Write {
                let arguments = &message[rpc::parse_call(message).unwrap().arguments..];
                *runs.entry((*procedure, arguments)).or_default() += 1;
            }
        }
        for ((procedure, _), runs) in runs {
            assert_eq!(runs, 1, "{procedure} ran {runs} times");
        }
    }

    fn check_content(&mut self) {
        for store in (0..STORES).map(StoreId) {
            self.sim.crash(store);
        }
        for writer in &self.writers {
            assert_eq!(self.sim.cluster.data(&writer.file), writer.content, "acknowledged bytes are lost");
        }
    }
}

fn spec(kind: u8) -> Spec {
    let spec = Spec { delay: MS * u32::from(kind % 4) * 10 + MS / 5, ..Spec::default() };
    match kind / 4 % 4 {
        0 => spec,
        1 => spec.forgetful(),
        2 => spec.dropping(),
        // Nobody notices that a datagram store restarts, so it has to tell.
        _ => Spec { tells_restarts: true, ..Spec { delay: spec.delay, ..Spec::datagram() } },
    }
}

/// Schedules a property is tried with: few enough for every build; PROPTEST_CASES says how many else.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(64)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn a06_calls_run_once_where_stores_know_repeats(
        steps in prop::collection::vec(calm(), 1..80),
        delays in prop::collection::vec(0..4_u8, 3),
    ) {
        let mut world = World::new(delays.into_iter().map(spec).collect(), true);
        steps.iter().for_each(|step| world.step(step));
        world.end();
        world.check_replies();
        world.check_runs();
        world.check_content();
    }

    #[test]
    fn a06_a09_whatever_happens_calls_are_answered_and_no_acknowledged_byte_is_lost(
        steps in prop::collection::vec(wild(), 1..80),
        kinds in prop::collection::vec(0..16_u8, 3),
        loss in prop::option::of(2..12_u32),
    ) {
        let mut world = World::new(kinds.into_iter().map(spec).collect(), true);
        let mut datagram = 0_u32;
        world.sim.loses = Box::new(move || {
            datagram = datagram.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            loss.is_some_and(|one_in| (datagram >> 16).is_multiple_of(one_in))
        });
        steps.iter().for_each(|step| world.step(step));
        world.end();
        world.check_replies();
        world.check_content();
    }
}
