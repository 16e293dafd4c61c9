//! What the switch and its parts cost: `cargo run --release -p clockwork-switch --example switch_cost [WORD]`; with a
//! word, only those whose description contains it.

use clockwork_placement::{HandleHash, StoreEntry, StoreId, StoreState, Table};
use clockwork_switch::duplicates::{self, ConnectionId, DuplicateLimits, Duplicates, Origin, Peer, Seen};
use clockwork_switch::listings::Listings;
use clockwork_switch::meter::NoMeter;
use clockwork_switch::pins::{PinLimits, Pins, Wrote};
use clockwork_switch::send_log::{LogFull, SendLog};
use clockwork_switch::time::Time;
use clockwork_switch::{
    Client, DuplicateCache, LinkId, Outlet, Shared, SharedLimits, StoreFacts, Switch, SwitchLimits, Transport,
};
use clockwork_wire::{nfs3, record, rpc, xdr};
use std::collections::VecDeque;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

const ROUNDS: u32 = 1_000_000;

fn main() -> Result<(), LogFull> {
    send_log("send log, GETATTR (120 B), 16 outstanding, flushed each 16", 120, 16, 16)?;
    send_log("send log, GETATTR (120 B), 4,096 outstanding, flushed each 64", 120, 4096, 64)?;
    send_log("send log, WRITE 4 KiB, 64 outstanding, flushed each 16", 4240, 64, 16)?;
    call_cost();
    duplicates_cost();
    pins_cost();
    let listings = Listings::new(1, 1000);
    report("listing: tag and untag, verifier 0", || {
        for n in 0..ROUNDS {
            let store = StoreId(u16::try_from(n % 4).unwrap_or(0));
            black_box(listings.untag(black_box(listings.tag(store, [0; 8]))));
        }
    });
    Ok(())
}

/// One operation: push of head and body, a share of one flush, release of the oldest.
fn send_log(what: &str, bytes: usize, outstanding: usize, flush_each: usize) -> Result<(), LogFull> {
    let mut log = SendLog::new(64 << 20);
    let (head, body) = (vec![1; 40], vec![2; bytes - 40]);
    let mut waiting = VecDeque::new();
    let mut result = Ok(());
    report(what, || {
        for _ in 0..ROUNDS {
            match log.push(black_box(&[&head, &body])) {
                Ok(position) => waiting.push_back(position),
                Err(full) => result = Err(full),
            }
            if log.unsent_bytes() >= flush_each * bytes {
                let mut slices = Vec::with_capacity(4);
                log.unsent(&mut slices);
                let sent = slices.iter().map(|slice| slice.len()).sum();
                log.sent(sent);
            }
            if waiting.len() > outstanding + flush_each
                && let Some(oldest) = waiting.pop_front()
            {
                log.release(oldest);
            }
        }
    });
    result
}

/// Takes what a switch gives out and does nothing with it.
struct Sink;

impl Outlet for Sink {
    fn reply(&mut self, _: &Client, record: &[u8]) {
        black_box(record);
    }
    fn mail(&mut self, _: &Origin, _: &[u8]) {}
    fn wake(&mut self, _: LinkId) {}
}

/// One operation: a GETATTR of a client, its way to one of four stores, and the reply's way back; 16 outstanding.
fn call_cost() {
    let names = ["a", "b", "c", "d"];
    let entries = names.map(|name| StoreEntry { name: name.into(), weight: 1.0, state: StoreState::Up });
    let Ok(table) = Table::new(0, entries.to_vec()) else { return };
    let facts = names.map(|name| StoreFacts::new(name, Transport::Stream, DuplicateCache::Address, 240));
    let limits = SharedLimits {
        duplicates: DuplicateLimits::default(),
        pins: PinLimits::default(),
        listing_verifiers_max: 1024,
    };
    let shared = Arc::new(Shared::new(table, facts.into(), limits, 1));
    let mut switch = Switch::new(0, shared, SwitchLimits::default(), 1, NoMeter);
    let links: Vec<LinkId> = (0..4).map(|store| switch.add_link(StoreId(store))).collect();
    for link in &links {
        switch.link_up(Time(1), *link, &mut Sink);
    }
    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let client = Client::Stream { connection: ConnectionId(1), slot: 0, address, reply_bytes: 0 };
    let mut call = Vec::new();
    rpc::begin_call(&mut call, 0, nfs3::PROGRAM, nfs3::VERSION, 1, &rpc::AUTH_NONE_CREDENTIAL);
    xdr::put_opaque(&mut call, &[7; 28]);
    let handle = call.len() - 28;
    let mut reply = record::mark(112).to_vec();
    clockwork_wire::answer::success(&mut reply, 0);
    reply.resize(4 + 24 + 4 + 84, 0);
    let mut sent = Vec::new();
    let mut n = 0_u32;
    report("a GETATTR and its reply, four stores, 16 outstanding", || {
        for _ in 0..ROUNDS / 16 {
            for _ in 0..16 {
                n += 1;
                call[..4].copy_from_slice(&n.to_be_bytes());
                call[handle..handle + 4].copy_from_slice(&(n % 1000).to_be_bytes());
                black_box(switch.call(Time(u64::from(n)), &client, true, &mut call, &mut Sink));
            }
            for link in &links {
                let log = switch.log(*link);
                sent.extend(
                    log.datagrams().filter_map(|call| call.first_chunk::<4>()).map(|xid| (*link, *xid)),
                );
                log.sent(log.unsent_bytes());
            }
            for (link, xid) in sent.drain(..) {
                reply[4..8].copy_from_slice(&xid);
                switch.reply(Time(u64::from(n)), link, &mut reply, &mut Sink);
            }
        }
    });
    black_box(switch.counters());
}

fn duplicates_cost() {
    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let cache = Duplicates::new(DuplicateLimits { bytes_max: 4 << 20, ..DuplicateLimits::default() });
    let connection = ConnectionId(1);
    cache.opened(connection);
    let origin = Origin { shard: 0, client: 0, peer: Peer::Stream(connection), address };
    let mut xid = 0;
    report("duplicate: key, begin, finish (cache full, one evicted)", || {
        for _ in 0..ROUNDS {
            xid += 1;
            let key = duplicates::key(address, xid, 12, &[3; 40], &[4; 60]);
            if let Seen::New(ticket) = cache.begin(Time(u64::from(xid)), key, origin) {
                black_box(cache.finish(Time(u64::from(xid)), ticket, &[5; 140]));
            }
        }
    });
}

fn pins_cost() {
    let pins = Pins::new(PinLimits::default());
    let handle = [7; 28];
    report("pin: write and reply of a pinned file", || {
        for n in 0..u64::from(ROUNDS) {
            let hash = HandleHash((n % 512).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            if let Some(sent) = pins.write(Time(n), &handle, hash, &[3; 40], || Some(StoreId(1))) {
                pins.wrote(
                    &handle,
                    hash,
                    sent.token,
                    Wrote::Unstable { offset: 4096 * (n / 512), count: 4096 },
                );
            }
        }
    });
}

/// Best of five, since the machine is shared.
#[expect(clippy::disallowed_methods, reason = "a measurement needs the clock; the crate itself reads none")]
fn report(what: &str, mut work: impl FnMut()) {
    if std::env::args().nth(1).is_some_and(|word| !what.contains(&word)) {
        return;
    }
    let run = |_| {
        let start = Instant::now();
        work();
        start.elapsed()
    };
    let best: Duration = (0..5).map(run).min().unwrap_or_default();
    println!("{:>8.1} ns  {what}", best.as_secs_f64() * 1e9 / f64::from(ROUNDS));
}
