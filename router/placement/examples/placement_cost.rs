//! What routing costs: `cargo run --release -p clockwork-placement --example placement_cost`.

use clockwork_placement::{Assignment, Replica, StoreEntry, StoreId, Table, TableError, read_point};
use std::hint::black_box;
use std::time::{Duration, Instant};

fn main() -> Result<(), TableError> {
    let table = Table::new(7, stores(4))?;
    let handles: Vec<[u8; 28]> = (0..1024u32).map(handle).collect();
    lookups("hash and default route", &table, &handles);
    let files = (0..1000u32).map(|n| (Box::from(handle(n * 2).as_slice()), StoreId(1)));
    lookups("hash and route, 1,000 exceptions (half hit)", &table.with_exceptions(files)?, &handles);
    let files = (0..1000u32).map(|n| Assignment { handle: Box::from(handle(n)), replicas: two() });
    reads("hash and reader, all files on two stores", &table.with_assignments(files)?, &handles);

    for count in [4, 16, 64] {
        let stores = stores(count);
        let took = best(5, || Table::new(7, stores.clone()));
        println!("{:>10.2} ms  table of {count} stores", took.as_secs_f64() * 1e3);
    }
    let files = (0..10_000u32).map(|n| (Box::from(handle(n).as_slice()), StoreId(1)));
    let full = table.with_exceptions(files)?;
    let took = best(20, || full.with_exception(b"one more", StoreId(2)));
    println!("{:>10.2} ms  one exception more on 10,000", took.as_secs_f64() * 1e3);
    Ok(())
}

fn stores(count: u32) -> Vec<StoreEntry> {
    (0..count).map(|n| StoreEntry::up(format!("store-{n}"), 1.0 + f64::from(n % 3))).collect()
}

fn handle(n: u32) -> [u8; 28] {
    let mut handle = [1; 28];
    handle[8..12].copy_from_slice(&n.to_be_bytes());
    handle
}

fn lookups(what: &str, table: &Table, handles: &[[u8; 28]]) {
    let rounds = 1000;
    let took = best(5, || {
        for _ in 0..rounds {
            for handle in handles {
                let handle = black_box(handle);
                black_box(table.route(handle, table.hash(handle)));
            }
        }
    });
    let calls = f64::from(rounds) * 1024.0;
    println!("{:>10.1} ns  {what}", took.as_secs_f64() * 1e9 / calls);
}

fn two() -> Vec<Replica> {
    [(1, 1.0), (2, 2.0)].map(|(store, share)| Replica { store: StoreId(store), share }).to_vec()
}

fn reads(what: &str, table: &Table, handles: &[[u8; 28]]) {
    let rounds = 1000;
    let took = best(5, || {
        for xid in 0..rounds {
            for handle in handles {
                let handle = black_box(handle);
                let hash = table.hash(handle);
                let routed = table.lookup(handle, hash);
                let reader =
                    routed.replicas.and_then(|replicas| table.reader(replicas, read_point(hash, xid)));
                black_box(reader.or(routed.store));
            }
        }
    });
    let calls = f64::from(rounds) * 1024.0;
    println!("{:>10.1} ns  {what}", took.as_secs_f64() * 1e9 / calls);
}

#[expect(clippy::disallowed_methods, reason = "a measurement needs the clock; the crate itself reads none")]
fn best<T>(times: u32, mut work: impl FnMut() -> T) -> Duration {
    let run = |_| {
        let start = Instant::now();
        black_box(work());
        start.elapsed()
    };
    (0..times).map(run).min().unwrap_or_default()
}
