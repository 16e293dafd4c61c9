//! A plex under simulated time: shards of the router, connections, model stores. Everything is deterministic.

pub(crate) mod calls;
mod files;
mod ledger;
mod links;
mod people;
mod store;

pub(crate) use files::{Cluster, Cookies};
pub(crate) use ledger::Ledger;
pub(crate) use store::{Ends, Repeats, Spec, Store};

use clockwork_placement::{StoreEntry, StoreId, Table};
use clockwork_switch::duplicates::{DuplicateLimits, Origin, Peer as OriginPeer};
use clockwork_switch::pins::PinLimits;
use clockwork_switch::time::Time;
use clockwork_switch::{
    Client, LinkId, Outlet, Shared, SharedLimits, StoreFacts, Switch, SwitchLimits, Transport,
};
use clockwork_wire::record;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use store::{Accepted, From};

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
/// One way between router and store.
const LATENCY: Duration = Duration::from_micros(50);
const TICK: Duration = Duration::from_millis(50);
const SEED: u64 = 0x00c1_0c40;

pub(crate) const A: StoreId = StoreId(0);
pub(crate) const B: StoreId = StoreId(1);

/// A client's connection or port, and the shard it is connected to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) shard: usize,
    pub(crate) client: Client,
}

#[derive(Debug)]
enum Event {
    Arrive(From, StoreId, Vec<u8>),
    Run(From, StoreId, u32, Vec<u8>),
    Reply(From, Vec<u8>),
    Connect(usize, usize),
    /// The router's side notices that the connection is lost.
    Break(usize, usize, u32),
    Tick(usize),
}

#[derive(Debug)]
pub(crate) struct LinkEnd {
    pub(crate) store: StoreId,
    pub(crate) up: bool,
    /// It is not written to: the store's side does not read.
    pub(crate) blocked: bool,
    connection: u32,
    /// The store's, when the connection was made.
    incarnation: u32,
    port: u16,
    /// The store's side of a stream: bytes that are no whole record yet.
    inbox: Vec<u8>,
}

/// What a switch hands out.
#[derive(Debug, Default)]
struct Out {
    replies: Vec<(Client, Vec<u8>)>,
    mails: Vec<(Origin, Vec<u8>)>,
}

impl Outlet for Out {
    fn reply(&mut self, client: &Client, record: &[u8]) {
        self.replies.push((*client, record.to_vec()));
    }
    fn mail(&mut self, waiter: &Origin, record: &[u8]) {
        self.mails.push((*waiter, record.to_vec()));
    }
    fn wake(&mut self, _: LinkId) {
        // Every link is looked at after every step.
    }
}

pub(crate) struct Shard {
    pub(crate) switch: Switch<Ledger>,
    pub(crate) links: Vec<LinkEnd>,
    out: Out,
}

/// Limits of a simulated router.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) shards: usize,
    pub(crate) switch: SwitchLimits,
    pub(crate) pins: PinLimits,
    pub(crate) duplicates: DuplicateLimits,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            shards: 2,
            switch: SwitchLimits::default(),
            pins: PinLimits::default(),
            duplicates: DuplicateLimits::default(),
        }
    }
}

/// When a client had a reply, and what it says.
type Replied = (Time, Vec<u8>);

pub(crate) struct Sim {
    pub(crate) now: Time,
    pub(crate) shared: Arc<Shared>,
    pub(crate) shards: Vec<Shard>,
    pub(crate) stores: Vec<Store>,
    pub(crate) cluster: Cluster,
    /// What the operator wants; pinned files may be elsewhere for a while.
    pub(crate) wanted: Table,
    /// Decides which datagrams are lost: true loses it.
    pub(crate) loses: Box<dyn FnMut() -> bool>,
    pub(crate) reconnect: Duration,
    /// Whether a link that is made again has its old port.
    pub(crate) keeps_ports: bool,
    events: BTreeMap<(Time, u64), Event>,
    serial: u64,
    replies: HashMap<(u64, u32), Vec<Replied>>,
    open: HashMap<u64, usize>,
    connections: u64,
    ports: u16,
}

/// Names a client in the books of replies.
fn book(client: &Client) -> u64 {
    match client {
        Client::Stream { connection, .. } => connection.0,
        Client::Datagram { peer, .. } => 1 << 48 | u64::from(peer.port()),
    }
}

impl Sim {
    pub(crate) fn new(specs: Vec<Spec>) -> Self {
        Self::with(specs, Limits::default())
    }

    pub(crate) fn with(specs: Vec<Spec>, limits: Limits) -> Self {
        let name = |i: usize| format!("store-{i}");
        let entries = (0..specs.len()).map(|i| StoreEntry::up(name(i), 1.0)).collect();
        let table = Table::new(SEED, entries).unwrap();
        let facts = specs.iter().enumerate();
        let facts = facts.map(|(i, s)| StoreFacts::new(&name(i), s.transport, s.told, s.calls_max)).collect();
        let shared_limits =
            SharedLimits { duplicates: limits.duplicates, pins: limits.pins, listing_verifiers_max: 1024 };
        let shared = Arc::new(Shared::new(table.clone(), facts, shared_limits, 0x5ec2e7));
        let mut sim = Self {
            now: Time(1_000_000),
            shards: Vec::new(),
            stores: specs.into_iter().enumerate().map(|(i, spec)| Store::new(i, spec)).collect(),
            cluster: Cluster::new(),
            wanted: table,
            loses: Box::new(|| false),
            reconnect: 50 * MS,
            keeps_ports: true,
            shared,
            events: BTreeMap::new(),
            serial: 0,
            replies: HashMap::new(),
            open: HashMap::new(),
            connections: 0,
            ports: 700,
        };
        for number in 0..limits.shards {
            sim.add_shard(number, limits.switch);
        }
        sim
    }

    fn add_shard(&mut self, number: usize, limits: SwitchLimits) {
        // Every shard's numbers begin just below the wrap-around.
        let first_xid = u32::MAX - 40 - u32::try_from(number).unwrap();
        let shard = u16::try_from(number).unwrap();
        let mut switch = Switch::new(shard, Arc::clone(&self.shared), limits, first_xid, Ledger::default());
        let mut links = Vec::new();
        for store in &self.stores {
            for _ in 0..store.spec.links {
                let id = StoreId(u16::try_from(store.index).unwrap());
                assert_eq!(usize::from(switch.add_link(id).0), links.len());
                self.ports += 1;
                links.push(LinkEnd {
                    store: id,
                    up: false,
                    blocked: false,
                    connection: 0,
                    incarnation: 0,
                    port: self.ports,
                    inbox: vec![],
                });
            }
        }
        let count = links.len();
        self.shards.push(Shard { switch, links, out: Out::default() });
        for link in 0..count {
            self.connect(number, link);
        }
        self.after(TICK, Event::Tick(number));
    }

    fn after(&mut self, wait: Duration, event: Event) {
        self.serial += 1;
        self.events.insert((self.now + wait, self.serial), event);
    }

    pub(crate) fn run_for(&mut self, duration: Duration) {
        let end = self.now + duration;
        while let Some((&(at, _), _)) = self.events.first_key_value()
            && at <= end
        {
            let ((at, _), event) = self.events.pop_first().unwrap();
            self.now = at;
            self.happen(event);
        }
        self.now = end;
    }

    /// Runs until no call waits any more, two minutes at most.
    pub(crate) fn settle(&mut self) {
        for _ in 0..1200 {
            if self.shards.iter().all(|shard| shard.switch.pending_calls().0 == 0) {
                self.run_for(SECOND);
                return self.assert_clean();
            }
            self.run_for(100 * MS);
        }
        let waiting: Vec<_> = self.shards.iter().map(|shard| shard.switch.pending_calls()).collect();
        panic!("calls wait for two minutes: {waiting:?}");
    }

    /// Nothing is left of calls that are answered.
    pub(crate) fn assert_clean(&mut self) {
        for shard in &mut self.shards {
            assert_eq!(shard.switch.pending_calls().0, 0, "calls wait");
            assert_eq!(shard.switch.held_bytes().0, 0, "bytes are held for no call");
            assert_eq!(shard.switch.calls_watched(), 0, "calls are watched for repeats that are answered");
            assert_eq!(shard.switch.meter().open(), 0, "calls were measured whose end was not");
            for link in 0..shard.links.len() {
                let log = shard.switch.log(LinkId(u16::try_from(link).unwrap()));
                if !shard.links[link].blocked {
                    assert_eq!((log.bytes(), log.unsent_bytes()), (0, 0), "bytes are kept for no call");
                }
            }
            for store in 0..self.stores.len() {
                let store = StoreId(u16::try_from(store).unwrap());
                assert_eq!(shard.switch.store_calls(store), (0, 0), "calls are counted that do not wait");
            }
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive(from, store, message) => self.arrive(from, store, message),
            Event::Run(from, store, incarnation, message) => {
                let entry = &mut self.stores[store.index()];
                if entry.incarnation == incarnation {
                    let reply = entry.run(from, &message, &mut self.cluster);
                    self.answer(from, store, &reply);
                }
            }
            Event::Reply(from, mut record) => {
                let end = &self.shards[from.shard].links[from.link];
                if end.up && end.connection == from.connection {
                    self.inject(from.shard, from.link, &mut record);
                }
            }
            Event::Connect(shard, link) => self.connect(shard, link),
            Event::Break(shard, link, connection) => {
                if self.shards[shard].links[link].connection == connection {
                    self.break_link(shard, link);
                }
            }
            Event::Tick(shard) => {
                let Shard { switch, out, .. } = &mut self.shards[shard];
                switch.tick(self.now, out);
                self.deliver(shard);
                self.after(TICK, Event::Tick(shard));
            }
        }
    }

    /// A message from a store's side of a link: record mark and message.
    pub(crate) fn inject(&mut self, shard: usize, link: usize, record: &mut [u8]) {
        let Shard { switch, out, .. } = &mut self.shards[shard];
        switch.reply(self.now, LinkId(u16::try_from(link).unwrap()), record, out);
        self.deliver(shard);
    }

    fn arrive(&mut self, from: From, store: StoreId, message: Vec<u8>) {
        let entry = &mut self.stores[store.index()];
        let stale = entry.spec.transport == Transport::Stream && from.incarnation != entry.incarnation;
        if !entry.alive || stale {
            return;
        }
        if entry.hung {
            entry.waiting.push_back((from, message));
            return;
        }
        match entry.accept(from, &message) {
            Accepted::Run => {
                let (delay, incarnation) = (entry.spec.delay, entry.incarnation);
                self.after(delay, Event::Run(from, store, incarnation, message));
            }
            Accepted::Answer(reply) => self.answer(from, store, &reply),
            Accepted::Drop => {}
            Accepted::Poison(Ends::Connection) => {
                self.after(LATENCY, Event::Break(from.shard, from.link, from.connection));
            }
            Accepted::Poison(Ends::Store) => self.crash(store),
        }
    }

    fn answer(&mut self, from: From, store: StoreId, reply: &[u8]) {
        let store = &self.stores[store.index()];
        if store.mute || store.spec.transport == Transport::Datagram && (self.loses)() {
            return;
        }
        let mut bytes = record::mark(reply.len()).to_vec();
        bytes.extend_from_slice(reply);
        self.after(LATENCY, Event::Reply(from, bytes));
    }

    /// Everything that a switch has handed out goes its way.
    fn deliver(&mut self, shard: usize) {
        let Out { replies, mails } = std::mem::take(&mut self.shards[shard].out);
        for (client, bytes) in replies {
            let gone =
                matches!(client, Client::Stream { connection, .. } if !self.open.contains_key(&connection.0));
            if !gone {
                self.book_reply(book(&client), &bytes);
            }
        }
        for (waiter, bytes) in mails {
            match waiter.peer {
                OriginPeer::Stream(connection) if self.open.contains_key(&connection.0) => {
                    assert_eq!(self.open[&connection.0], usize::from(waiter.shard));
                    self.book_reply(connection.0, &bytes);
                }
                _ => {}
            }
        }
        for link in 0..self.shards[shard].links.len() {
            self.flush(shard, link);
        }
    }

    fn book_reply(&mut self, who: u64, bytes: &[u8]) {
        let message = bytes[4..].to_vec();
        assert_eq!(bytes[..4], record::mark(message.len()), "a reply has its mark");
        let xid = clockwork_wire::rpc::xid(&message).unwrap();
        self.replies.entry((who, xid)).or_default().push((self.now, message));
    }
}
