//! A model store: what it remembers of the calls it has seen, and how often it ran each.

use super::files::{Accent, Cluster, Cookies};
use clockwork_switch::{DuplicateCache, Transport};
use clockwork_wire::nfs3::Procedure;
use clockwork_wire::rpc;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// What a store really does with a call whose XID it has had from the same port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeats {
    /// Answers from its cache, as knfsd and Ganesha do.
    Answers,
    /// Runs it again, as unfs3 does.
    Runs,
    /// Never answers it, as nfs3_server does.
    Drops,
}

/// How a store is, and what the router is told of it.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub(crate) transport: Transport,
    pub(crate) told: DuplicateCache,
    pub(crate) repeats: Repeats,
    pub(crate) calls_max: u32,
    /// Connections of each shard.
    pub(crate) links: usize,
    /// From a call's arrival until it runs; the reply leaves at once then.
    pub(crate) delay: Duration,
    pub(crate) cookies: Cookies,
    pub(crate) write_verifier: [u8; 8],
    /// Whether a restart changes the write verifier.
    pub(crate) tells_restarts: bool,
    pub(crate) cookie_verifier: [u8; 8],
    pub(crate) sizes: [u32; 7],
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            transport: Transport::Stream,
            told: DuplicateCache::Address,
            repeats: Repeats::Answers,
            calls_max: 256,
            links: 1,
            delay: Duration::from_micros(200),
            cookies: Cookies::FromBelow,
            write_verifier: [0; 8],
            tells_restarts: false,
            cookie_verifier: [0; 8],
            sizes: [1 << 20; 7],
        }
    }
}

impl Spec {
    pub(crate) fn datagram() -> Self {
        Self { transport: Transport::Datagram, ..Self::default() }
    }

    /// Without a cache, and the router knows.
    pub(crate) fn forgetful(self) -> Self {
        Self { told: DuplicateCache::None, repeats: Repeats::Runs, ..self }
    }

    /// Drops repeats, and the router knows.
    pub(crate) fn dropping(self) -> Self {
        Self { told: DuplicateCache::None, repeats: Repeats::Drops, ..self }
    }
}

/// A connection end: which reply goes where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct From {
    pub(crate) shard: usize,
    pub(crate) link: usize,
    pub(crate) connection: u32,
    /// The store's, when the connection was made.
    pub(crate) incarnation: u32,
    pub(crate) port: u16,
}

#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) spec: Spec,
    pub(crate) index: usize,
    /// It takes calls and does nothing with them until it is told to go on.
    pub(crate) hung: bool,
    /// It never answers calls on this file.
    pub(crate) hangs: Option<Vec<u8>>,
    /// What a call on this file makes of it.
    pub(crate) poison: Option<(Vec<u8>, Ends)>,
    /// It runs calls and its replies are lost.
    pub(crate) mute: bool,
    /// False: nobody can connect.
    pub(crate) alive: bool,
    pub(crate) incarnation: u32,
    pub(crate) waiting: VecDeque<(From, Vec<u8>)>,
    seen: HashMap<(u16, u32), Option<Vec<u8>>>,
    /// Every call that came, ever: a number that comes again must bring the same call.
    arrived: HashMap<(u16, u32), Vec<u8>>,
    /// Every call that ran, in order.
    pub(crate) ran: Vec<(Procedure, Vec<u8>)>,
    /// Every transmission that came, in order: XIDs.
    pub(crate) xids: Vec<u32>,
}

impl Store {
    pub(crate) fn new(index: usize, spec: Spec) -> Self {
        Self {
            spec,
            index,
            hung: false,
            hangs: None,
            poison: None,
            mute: false,
            alive: true,
            incarnation: 0,
            waiting: VecDeque::new(),
            seen: HashMap::new(),
            arrived: HashMap::new(),
            ran: Vec::new(),
            xids: Vec::new(),
        }
    }

    /// Whether a call that has come is to be run.
    pub(crate) fn accept(&mut self, from: From, message: &[u8]) -> Accepted {
        let call = rpc::parse_call(message).unwrap();
        let xid = call.xid;
        self.xids.push(xid);
        if let Some((file, ends)) = &self.poison
            && message[call.arguments + 4..].starts_with(file)
        {
            return Accepted::Poison(*ends);
        }
        if self.hangs.as_ref().is_some_and(|file| message[call.arguments + 4..].starts_with(file)) {
            return Accepted::Drop;
        }
        let before = self.arrived.entry((from.port, xid)).or_insert_with(|| message.to_vec());
        assert_eq!(*before, message, "XID {xid:#x} names two different calls");
        match (self.spec.repeats, self.seen.get(&(from.port, xid))) {
            (Repeats::Answers, Some(Some(reply))) => Accepted::Answer(reply.clone()),
            (Repeats::Answers | Repeats::Drops, Some(_)) => Accepted::Drop,
            _ => {
                self.seen.insert((from.port, xid), None);
                Accepted::Run
            }
        }
    }

    pub(crate) fn accent(&self) -> Accent {
        Accent {
            store: self.index,
            cookies: self.spec.cookies,
            write_verifier: self.spec.write_verifier,
            cookie_verifier: self.spec.cookie_verifier,
            sizes: self.spec.sizes,
        }
    }

    pub(crate) fn run(&mut self, from: From, message: &[u8], cluster: &mut Cluster) -> Vec<u8> {
        let call = rpc::parse_call(message).unwrap();
        let procedure = Procedure::from_u32(call.procedure).unwrap();
        self.ran.push((procedure, message.to_vec()));
        let reply = cluster.run(&self.accent(), message);
        self.seen.insert((from.port, call.xid), Some(reply.clone()));
        reply
    }

    /// Forgets everything that is in memory.
    pub(crate) fn restart(&mut self, cluster: &mut Cluster) {
        self.incarnation += 1;
        self.waiting.clear();
        self.seen.clear();
        cluster.lose_unstable(self.index);
        if self.spec.tells_restarts {
            self.spec.write_verifier[7] += 1;
        }
    }

    /// Calls that have come and have not run yet are no more.
    pub(crate) fn forget_begun(&mut self) {
        self.waiting.clear();
        self.seen.retain(|_, reply| reply.is_some());
    }

    /// The calls of a procedure that ran here, whole.
    pub(crate) fn calls(&self, procedure: Procedure) -> Vec<&[u8]> {
        self.ran.iter().filter(|(ran, _)| *ran == procedure).map(|(_, message)| &message[..]).collect()
    }

    pub(crate) fn runs(&self, procedure: Procedure) -> usize {
        self.ran.iter().filter(|(ran, _)| *ran == procedure).count()
    }
}

/// What a poison call ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    /// The connection that it came over.
    Connection,
    /// The store, which stays away.
    Store,
}

#[derive(Debug)]
pub(crate) enum Accepted {
    Run,
    Answer(Vec<u8>),
    Drop,
    Poison(Ends),
}
