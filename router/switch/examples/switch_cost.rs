//! What the switch's parts cost: `cargo run --release -p clockwork-switch --example switch_cost`.

use clockwork_placement::{HandleHash, StoreId};
use clockwork_switch::duplicates::{self, ConnectionId, DuplicateLimits, Duplicates, Origin, Peer, Seen};
use clockwork_switch::listings::Listings;
use clockwork_switch::pins::{PinLimits, Pins, Wrote};
use clockwork_switch::send_log::{LogFull, SendLog};
use clockwork_switch::time::Time;
use std::collections::VecDeque;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

const ROUNDS: u32 = 1_000_000;

fn main() -> Result<(), LogFull> {
    send_log("send log, GETATTR (120 B), 16 outstanding, flushed each 16", 120, 16, 16)?;
    send_log("send log, GETATTR (120 B), 4,096 outstanding, flushed each 64", 120, 4096, 64)?;
    send_log("send log, WRITE 4 KiB, 64 outstanding, flushed each 16", 4240, 64, 16)?;
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
    let run = |_| {
        let start = Instant::now();
        work();
        start.elapsed()
    };
    let best: Duration = (0..5).map(run).min().unwrap_or_default();
    println!("{:>8.1} ns  {what}", best.as_secs_f64() * 1e9 / f64::from(ROUNDS));
}
