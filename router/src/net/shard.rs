//! One shard: a thread, its runtime, its switch and its ports.

use super::front::{serve_datagrams, serve_streams};
use super::link::{LinkPort, LinkSpec, run_link};
use super::listen::Listeners;
use super::ports::{PortCounters, Ports};
use super::seldom::Seldom;
use super::signal::Signal;
use super::unfinished::{Room, UNFINISHED_BYTES_MAX};
use super::{Command, Desk};
use crate::heat::{Recorder, ShardPeriod, StoreTotals};
use clockwork_placement::StoreId;
use clockwork_switch::duplicates::ConnectionId;
use clockwork_switch::time::Time;
use clockwork_switch::{Counters, GivenUp, LinkId, Shared, Switch, SwitchLimits};
use clockwork_wire::record::RecordLimits;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{mpsc, oneshot};

/// How often a shard looks for what is due: datagrams to send again, pins to commit.
const TICK: Duration = Duration::from_millis(50);

/// After so long without a tick the shard has stood still itself.
const TICK_LATE: Duration = Duration::from_secs(1);

/// Everything a shard needs.
pub struct ShardSpec {
    /// State shared by the shards.
    pub shared: Arc<Shared>,
    /// Who may come in, and what is exported.
    pub desk: Arc<dyn Desk>,
    /// This shard's sockets.
    pub listeners: Listeners,
    /// Connections to stores.
    pub links: Vec<LinkSpec>,
    /// Limits of the switch.
    pub limits: SwitchLimits,
    /// Limits of records.
    pub records: RecordLimits,
    /// Most calls in flight of one client connection; beyond it the connection is not read.
    pub client_calls_max: u32,
    /// Most client connections of the whole router.
    pub connections_max: usize,
    /// Client connections now, of the whole router.
    pub connections: Arc<AtomicUsize>,
    /// For connection numbers that are unique in the whole router.
    pub connection_ids: Arc<AtomicU64>,
    /// Origin of the router's time.
    pub origin: Instant,
    /// First XID towards the stores.
    pub first_xid: u32,
    /// Whoever counts.
    pub recorder: Recorder,
}

/// What a shard's sockets have counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetCounters {
    /// Client connections accepted.
    pub accepted: u64,
    /// Client connections turned away because `connections_max` was reached.
    pub turned_away: u64,
    /// Client connections closed because their bytes were no records.
    pub framing_errors: u64,
    /// Links to stores that were lost.
    pub links_lost: u64,
    /// Client connections closed because the rest of a record did not come.
    pub unfinished_records: u64,
    /// Link attempts that failed.
    pub link_failures: u64,
}

/// A shard's state, for whoever looks.
#[derive(Clone, Debug, Default)]
pub struct ShardStatus {
    /// The switch's counters.
    pub counters: Counters,
    /// The ports' counters.
    pub ports: PortCounters,
    /// The sockets' counters.
    pub net: NetCounters,
    /// Calls that wait, and how many can.
    pub pending_calls: (usize, usize),
    /// Bytes of calls held for stores, and how many there can be.
    pub held_bytes: (usize, usize),
    /// Bytes of replies that wait for clients or may come for them, and how many there can be.
    pub reply_bytes: (usize, usize),
    /// Bytes of room taken for records that are not whole yet, and how many there are.
    pub unfinished_bytes: (usize, usize),
    /// How often a record had to wait for room.
    pub unfinished_bytes_full: u64,
    /// What this shard knows of each store.
    pub stores: Vec<StoreInShard>,
    /// Files with heat counters of their own, and calls counted together because there were too many files.
    pub heat_files: (usize, u64),
    /// Client connections of this shard.
    pub connections: usize,
}

/// A shard's dealings with one store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreInShard {
    /// Calls given to it that wait for their reply.
    pub in_flight: u32,
    /// Calls that wait for a connection or for room.
    pub held: usize,
    /// Connections that are up.
    pub connections: usize,
    /// What it has done since the start.
    pub totals: StoreTotals,
}

/// The shard's own side of things, shared by its tasks; single-threaded.
pub(crate) struct Shard {
    pub(crate) inner: RefCell<Inner>,
    pub(crate) desk: Arc<dyn Desk>,
    pub(crate) records: RecordLimits,
    /// For records that are not whole yet.
    pub(crate) room: Rc<Room>,
    pub(crate) client_calls_max: u32,
    pub(crate) connections_max: usize,
    pub(crate) connections: Arc<AtomicUsize>,
    connection_ids: Arc<AtomicU64>,
    origin: Instant,
    flush: Rc<Signal>,
}

pub(crate) struct Inner {
    pub(crate) switch: Switch<Recorder>,
    pub(crate) ports: Ports,
    pub(crate) links: Vec<LinkPort>,
    /// Read buffer of all connections; in use only within one poll.
    pub(crate) buffer: Vec<u8>,
    pub(crate) counters: NetCounters,
}

impl Shard {
    /// Now, in the router's time.
    pub(crate) fn now(&self) -> Time {
        Time(u64::try_from(self.origin.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    pub(crate) fn next_connection(&self) -> ConnectionId {
        ConnectionId(self.connection_ids.fetch_add(1, Ordering::Relaxed))
    }

    /// Writes what has been queued, after every round of events.
    async fn run_flusher(self: Rc<Self>) {
        let mut lookout = Lookout::default();
        let mut dirty = Vec::new();
        loop {
            self.flush.raised().await;
            // The tasks that were ready in this round have run by now.
            if lookout.pays() {
                self.inner.borrow_mut().ports.look();
                // Lets the driver look once more, and the tasks run that it wakes.
                tokio::task::yield_now().await;
                lookout.looked(self.inner.borrow().ports.gained());
            }
            let mut inner = self.inner.borrow_mut();
            let Inner { switch, ports, links, .. } = &mut *inner;
            ports.flush(&mut dirty);
            for link in dirty.drain(..) {
                if let Some(port) = links.get_mut(usize::from(link.0)) {
                    port.flush(switch.log(link));
                }
            }
        }
    }

    async fn run_ticker(self: Rc<Self>) {
        let mut interval = tokio::time::interval(TICK);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut losses = Seldom::default();
        let mut ticked = tokio::time::Instant::now();
        loop {
            interval.tick().await;
            let now = self.now();
            let mut inner = self.inner.borrow_mut();
            let Inner { switch, ports, counters, .. } = &mut *inner;
            switch.tick(now, ports);
            // After a pause of the whole process, what has come meanwhile is read first.
            let in_time = ticked.elapsed() < TICK_LATE;
            ticked = tokio::time::Instant::now();
            let overdue = if in_time { self.room.overdue(ticked) } else { Vec::new() };
            for (slot, connection) in overdue {
                counters.unfinished_records += 1;
                ports.give_up(slot, connection);
            }
            if let Some(given_up) = switch.take_given_up()
                && let Some(unsaid) = losses.turn(Instant::now())
            {
                warn_given_up(switch.shared(), &given_up, unsaid);
            }
        }
    }

    /// The link takes bytes again.
    pub(crate) fn unblock_link(&self, link: LinkId) {
        let mut inner = self.inner.borrow_mut();
        let Inner { switch, links, .. } = &mut *inner;
        if let Some(port) = links.get_mut(usize::from(link.0)) {
            port.unblock();
            port.flush(switch.log(link));
        }
    }

    fn command(&self, command: Command) -> bool {
        let now = self.now();
        let mut inner = self.inner.borrow_mut();
        let Inner { switch, ports, counters, links, .. } = &mut *inner;
        match command {
            Command::Mail(mail) => ports.deliver(&mail),
            Command::StoreLost(store) => {
                switch.store_lost(now, store, ports);
                for (link, port) in (0..).zip(links.iter_mut()) {
                    if switch.store_of(LinkId(link)) == store {
                        port.cut();
                    }
                }
            }
            // Whoever asked and is gone by now does not need the answer.
            Command::ClosePeriod(reply) => drop(reply.send(switch.meter().close())),
            Command::RunningPeriod(reply) => drop(reply.send(switch.meter().running())),
            Command::Status(reply) => {
                let stores = 0..switch.shared().stores.len();
                let status = ShardStatus {
                    counters: *switch.counters(),
                    ports: ports.counters,
                    net: *counters,
                    pending_calls: switch.pending_calls(),
                    held_bytes: switch.held_bytes(),
                    reply_bytes: ports.reply_bytes(),
                    unfinished_bytes: self.room.bytes(),
                    unfinished_bytes_full: self.room.full(),
                    stores: stores.map(|store| store_in_shard(switch, links, store)).collect(),
                    heat_files: switch.meter().files(),
                    connections: ports.streams.len(),
                };
                drop(reply.send(status));
            }
            Command::Stop => return false,
        }
        true
    }
}

/// Names a call that seems to make stores end connections, so that somebody can look what is with the file.
fn warn_given_up(shared: &Shared, call: &GivenUp, unsaid: u64) {
    let file: String = call.handle.iter().map(|byte| format!("{byte:02x}")).collect();
    let store = shared.stores.get(call.store.index()).map_or("", |store| &store.name);
    let client = call.client.map_or_else(|| "this router".to_owned(), |client| client.to_string());
    let (procedure, links, stores) = (call.procedure, call.links_lost, call.stores_lost);
    tracing::warn!(
        ?procedure,
        client,
        file,
        store,
        links,
        stores,
        unsaid,
        "gave a call up and answered SYSTEM_ERR: connections were lost under it time and again, or stores"
    );
}

fn store_in_shard(switch: &mut Switch<Recorder>, links: &[LinkPort], store: usize) -> StoreInShard {
    let store = StoreId(u16::try_from(store).unwrap_or(u16::MAX));
    let (in_flight, held) = switch.store_calls(store);
    let up = |(number, link): (usize, &LinkPort)| {
        link.is_up() && u16::try_from(number).is_ok_and(|number| switch.store_of(LinkId(number)) == store)
    };
    let connections = links.iter().enumerate().filter(|link| up(*link)).count();
    StoreInShard { in_flight, held, connections, totals: switch.meter().totals(store) }
}

/// Decides whether the sockets are looked at once more before a round's bytes are written. With several stores or
/// clients that finds bytes which can go out in the same writes; otherwise it is a system call for nothing, and the first
/// bytes wait for it. So it is done where it has gained something of late, and tried now and then.
#[derive(Debug, Default)]
struct Lookout {
    rounds: u32,
    /// How often it has gained something, of 65,536; a running mean.
    gained: u32,
}

impl Lookout {
    /// One in four looks has to gain something.
    const GAINED_MIN: u32 = 65_536 / 4;
    /// Rounds between two tries.
    const TRY_ROUNDS: u32 = 32;
    /// Looks that the mean remembers.
    const MEMORY: u32 = 16;

    fn pays(&mut self) -> bool {
        self.rounds = self.rounds.wrapping_add(1);
        self.gained >= Self::GAINED_MIN || self.rounds.is_multiple_of(Self::TRY_ROUNDS)
    }

    fn looked(&mut self, gained: bool) {
        let share = if gained { 65_536 / Self::MEMORY } else { 0 };
        self.gained = self.gained - self.gained / Self::MEMORY + share;
    }
}

/// A running shard.
pub struct ShardHandle {
    commands: mpsc::UnboundedSender<Command>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl ShardHandle {
    /// Closes the shard's period. `None` when the shard has ended.
    pub async fn close_period(&self) -> Option<ShardPeriod> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(Command::ClosePeriod(reply)).ok()?;
        answer.await.ok()
    }

    /// The shard's period so far. `None` when the shard has ended.
    pub async fn running_period(&self) -> Option<ShardPeriod> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(Command::RunningPeriod(reply)).ok()?;
        answer.await.ok()
    }

    /// The shard's state. `None` when the shard has ended.
    pub async fn status(&self) -> Option<ShardStatus> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(Command::Status(reply)).ok()?;
        answer.await.ok()
    }

    /// Tells the shard that the routing table sends a store's calls elsewhere.
    pub fn store_lost(&self, store: StoreId) {
        // A shard that has ended has no calls left.
        let _ = self.commands.send(Command::StoreLost(store));
    }

    /// Ends the shard and waits for its thread.
    pub fn stop(&self) {
        let _ = self.commands.send(Command::Stop);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("a shard's thread panicked");
        }
    }
}

/// Starts the shards, each on a thread of its own.
///
/// # Errors
/// When a thread or its runtime cannot be made.
pub fn spawn(specs: Vec<ShardSpec>) -> std::io::Result<Vec<ShardHandle>> {
    let (senders, receivers): (Vec<_>, Vec<_>) = specs.iter().map(|_| mpsc::unbounded_channel()).unzip();
    let mut handles = Vec::new();
    for (number, (spec, receiver)) in specs.into_iter().zip(receivers).enumerate() {
        let mailboxes = senders.clone();
        let number = u16::try_from(number).unwrap_or(u16::MAX);
        let (made, runtime_made) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new().name(format!("shard-{number}")).spawn(move || {
            // Its tasks never leave the thread, and it knows: a `LocalSet` on a runtime for tasks that may would be a second
            // queue, with every wake-up through both.
            let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
            match runtime {
                Ok(runtime) => {
                    let _ = made.send(Ok(()));
                    runtime.block_on(run(number, spec, receiver, mailboxes));
                }
                Err(error) => drop(made.send(Err(error))),
            }
        })?;
        runtime_made.recv().unwrap_or_else(|_| Err(std::io::ErrorKind::Other.into()))?;
        handles.push(ShardHandle {
            commands: senders[usize::from(number)].clone(),
            thread: Mutex::new(Some(thread)),
        });
    }
    Ok(handles)
}

async fn run(
    number: u16,
    spec: ShardSpec,
    mut commands: mpsc::UnboundedReceiver<Command>,
    mailboxes: Vec<mpsc::UnboundedSender<Command>>,
) {
    let flush = Rc::new(Signal::default());
    let mut switch = Switch::new(number, spec.shared, spec.limits, spec.first_xid, spec.recorder);
    let links: Vec<(LinkId, LinkSpec)> =
        spec.links.into_iter().map(|link| (switch.add_link(link.store), link)).collect();
    // Room for the longest record, its fragments' marks, and a good read behind it.
    let buffer_bytes =
        spec.records.record_bytes_max as usize + 4 * spec.records.fragments_max as usize + (256 << 10);
    let shard = Rc::new(Shard {
        inner: RefCell::new(Inner {
            switch,
            ports: Ports::new(number, Rc::clone(&flush), mailboxes.into()),
            links: links.iter().map(|_| LinkPort::default()).collect(),
            buffer: vec![0; buffer_bytes],
            counters: NetCounters::default(),
        }),
        desk: spec.desk,
        records: spec.records,
        room: Room::new(UNFINISHED_BYTES_MAX, buffer_bytes),
        client_calls_max: spec.client_calls_max,
        connections_max: spec.connections_max,
        connections: spec.connections,
        connection_ids: spec.connection_ids,
        origin: spec.origin,
        flush,
    });
    tokio::task::spawn_local(Rc::clone(&shard).run_flusher());
    tokio::task::spawn_local(Rc::clone(&shard).run_ticker());
    for (link, spec) in links {
        tokio::task::spawn_local(run_link(Rc::clone(&shard), link, spec));
    }
    for listener in spec.listeners.streams {
        tokio::task::spawn_local(serve_streams(Rc::clone(&shard), listener));
    }
    for socket in spec.listeners.datagrams {
        tokio::task::spawn_local(serve_datagrams(Rc::clone(&shard), socket));
    }
    while let Some(command) = commands.recv().await {
        if !shard.command(command) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lookout_looks_where_it_gains_and_tries_again_where_it_does_not() {
        let mut lookout = Lookout::default();
        let mut looks = |rounds: u32, gains: bool| {
            let mut looks = 0;
            for _ in 0..rounds {
                if lookout.pays() {
                    looks += 1;
                    lookout.looked(gains);
                }
            }
            looks
        };
        assert_eq!(looks(32 * 10, false), 10);
        // It takes a few tries to notice.
        assert!(looks(1000, true) > 800);
        assert!(looks(1000, false) < 100);
    }
}
