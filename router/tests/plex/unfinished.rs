//! Records that begin and do not end, up to all the room there is for them.

use super::raw::{NFS, Raw, call, getattr, marked, opaque, words};
use super::site::{Site, counter};
use clockwork_router::web::types::{LimitFill, Status};
use clockwork_wire::record;
use fstress_replay::client::{Transport, nfs};
use std::num::NonZeroUsize;

/// More than there is room for.
const CONNECTIONS: usize = 80;
const BYTES: usize = 1 << 20;

fn write(xid: u32, handle: &[u8]) -> Vec<u8> {
    let mut arguments = opaque(handle);
    arguments.extend_from_slice(&[0; 8]);
    for word in [u32::try_from(BYTES).unwrap(), 2] {
        arguments.extend_from_slice(&word.to_be_bytes());
    }
    arguments.extend_from_slice(&opaque(&vec![7; BYTES]));
    call(xid, (NFS, 3, 7), &arguments)
}

fn fill(status: &Status) -> &LimitFill {
    status.limits.iter().find(|limit| limit.name == "unfinished_bytes_max").unwrap()
}

async fn site() -> (Site, nfs::Handle, nfs::Handle) {
    let site = Site::with(1, |config| config.listen.shards = NonZeroUsize::new(1)).await;
    let client = site.client(Transport::Tcp).await;
    let root = nfs::mount(&client, "/export").await.unwrap();
    let file = nfs::create(&client, &root, "file").await.unwrap();
    (site, root, file)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a02_records_that_do_not_end_keep_no_honest_client_out_and_their_room_comes_back() {
    let (site, root, file) = site().await;
    let record = [&record::mark(1_114_100)[..], &vec![0; 1_100_024]].concat();
    let mut halves = tokio::task::JoinSet::new();
    for _ in 0..CONNECTIONS {
        let (address, record) = (site.address(), record.clone());
        halves.spawn(async move {
            let mut raw = Raw::connect(address).await;
            // Some are closed under it.
            let _ = tokio::io::AsyncWriteExt::write_all(&mut raw.0, &record).await;
            std::future::pending::<()>().await;
        });
    }
    let full = site.wait("no room", |status| fill(status).reached > 0).await;
    assert!(fill(&full).used <= fill(&full).max, "{:?}", fill(&full));
    let mut honest = Raw::connect(site.address()).await;
    let reply = honest.ask(&getattr(7, &root)).await;
    assert_eq!(words(&reply)[..7], [7, 1, 0, 0, 0, 0, 0], "a short call needs no room");
    let reply = honest.ask(&write(8, &file)).await;
    assert_eq!(words(&reply)[..7], [8, 1, 0, 0, 0, 0, 0], "a long one gets some");
    let status = site.wait("status", |_| true).await;
    assert!(counter(&status, "unfinished_records") > 0, "of those that did not end");
    halves.shutdown().await;
    site.wait("the room comes back", |status| fill(status).used == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_large_writes_at_once_than_there_is_room_for_all_pass() {
    let (site, _, file) = site().await;
    let message = marked(&write(9, &file));
    let mut connections = Vec::new();
    // All begin, so that they have their room or wait for it; then all go on.
    for _ in 0..CONNECTIONS {
        let mut raw = Raw::connect(site.address()).await;
        raw.send(&message[..20_000]).await;
        connections.push(raw);
    }
    let mut writers = tokio::task::JoinSet::new();
    for mut raw in connections {
        let message = message.clone();
        writers.spawn(async move {
            raw.send(&message[20_000..]).await;
            raw.reply().await.expect("closed")
        });
    }
    while let Some(reply) = writers.join_next().await {
        assert_eq!(words(&reply.unwrap())[..7], [9, 1, 0, 0, 0, 0, 0]);
    }
    site.wait("the room comes back", |status| fill(status).used == 0).await;
}
