//! A file whose reads two stores share, through the whole router.

use super::site::{PATIENCE, Site, client, config, embedded, named, store, wait_for};
use clockwork_router::config::Config;
use clockwork_router::plex::Plex;
use clockwork_router::store::{HandleMode, Namespace};
use clockwork_router::web::PlexControl as _;
use clockwork_router::web::types::{Assign, ExceptionPage, FileName};
use fstress_replay::client::{Client, Transport, nfs};
use std::time::{Duration, Instant};

const FILE_BYTES: usize = 300_000;
const READ_BYTES: u32 = 32 << 10;

fn shared_by(path: &str, store: &str, also: &[&str]) -> Assign {
    Assign {
        file: FileName::Path(path.into()),
        store: store.into(),
        also: also.iter().map(|name| (*name).to_owned()).collect(),
        reason: "hot".into(),
    }
}

fn data(salt: usize) -> Vec<u8> {
    (0..FILE_BYTES).map(|at| ((at / 7 + salt) % 251) as u8).collect()
}

async fn write(client: &Client, file: &[u8], data: &[u8]) {
    for (number, part) in data.chunks(READ_BYTES as usize).enumerate() {
        nfs::write(client, file, "hot", (number * READ_BYTES as usize) as u64, part).await.unwrap();
    }
    nfs::commit(client, file, "hot").await.unwrap();
}

async fn read(client: &Client, file: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < FILE_BYTES {
        let part = nfs::read(client, file, "hot", all.len() as u64, READ_BYTES).await.unwrap();
        assert!(!part.is_empty(), "the file ends at {}", all.len());
        all.extend_from_slice(&part);
    }
    all
}

/// Reads until another store than the home has served some.
async fn read_until_spread(plex: &Plex, client: &Client, file: &[u8], expected: &[u8]) {
    let begin = Instant::now();
    loop {
        assert_eq!(read(client, file).await, expected);
        let status = plex.status().await;
        let spread = status.counters.iter().find(|counter| counter.name == "replica_reads").unwrap().value;
        if spread > 0 {
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "reads stay at the home");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_stores_serve_the_reads_of_one_file_and_one_its_writes() {
    let site = Site::start(3).await;
    let (one, two) = (site.client(Transport::Tcp).await, site.client(Transport::Tcp).await);
    let root = nfs::mount(&one, "/export").await.unwrap();
    let file = nfs::create(&one, &root, "hot").await.unwrap();
    write(&one, &file, &data(1)).await;
    let moved = site.plex.assign(shared_by("/export/hot", "b", &["c"])).await.unwrap();
    assert_eq!(moved.to.as_deref(), Some("b"));
    let shares: Vec<(&str, u32)> = moved.replicas.iter().map(|of| (of.store.as_str(), of.share)).collect();
    assert_eq!(shares, [("b", 500), ("c", 500)]);
    let shown = site.plex.status().await.replicated;
    assert_eq!(
        (shown.len(), shown[0].path.as_deref(), &shown[0].replicas),
        (1, Some("/export/hot"), &moved.replicas)
    );
    read_until_spread(&site.plex, &one, &file, &data(1)).await;

    site.plex.close_period().await;
    for _ in 0..10 {
        let (first, second) = tokio::join!(read(&one, &file), read(&two, &file));
        assert!(first == data(1) && second == data(1));
    }
    for _ in 0..5 {
        nfs::getattr(&two, &file, "hot").await.unwrap();
    }
    site.plex.close_period().await;
    let period = site.plex.periods(1).await.unwrap().periods.remove(0);
    let of = |name: &str| period.stores.iter().find(|store| store.name == name).unwrap();
    let (a, b, c) = (of("a"), of("b"), of("c"));
    assert_eq!((a.reads, b.reads + c.reads), (0, 200));
    assert!(b.reads.abs_diff(c.reads) <= 40, "{} and {} reads", b.reads, c.reads);
    assert!(b.metadata >= 5 && c.metadata < 5, "{} and {} others", b.metadata, c.metadata);

    // Another client writes it: every write goes to the home, and so do all reads after it, for a while.
    write(&two, &file, &data(2)).await;
    assert_eq!(read(&one, &file).await, data(2));
    site.plex.close_period().await;
    let period = site.plex.periods(1).await.unwrap().periods.remove(0);
    let of = |name: &str| period.stores.iter().find(|store| store.name == name).unwrap().clone();
    assert_eq!((of("b").writes, of("c").writes, of("b").reads, of("c").reads), (11, 0, 10, 0));
    read_until_spread(&site.plex, &one, &file, &data(2)).await;

    // Drained: it gets no more at once.
    site.plex.drain("c".into(), false).await.unwrap();
    let before = named(&site.plex.status().await, "c").requests;
    assert_eq!(read(&two, &file).await, data(2));
    assert_eq!(named(&site.plex.status().await, "c").requests, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shares_of_reads_outlive_a_restart_and_end_with_the_assignment() {
    let kept = tempfile::tempdir().unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("hot"), data(3)).unwrap();
    let namespace = Namespace::open(folder.path(), HandleMode::Path { seed: 1 }).unwrap();
    let (a, b) = (store("a", &namespace).await, store("b", &namespace).await);
    let make = || -> Config {
        let mut config = config(vec![embedded("a", a.address), embedded("b", b.address)]);
        config.stores[1].weight = 3.0;
        config.history.path = Some(kept.path().join("history"));
        config
    };
    let start = || async {
        let plex = Plex::start(make(), false).await.unwrap();
        wait_for(&plex, "both let in", |status| status.stores.iter().all(|s| s.state.word() == "up")).await;
        plex
    };
    let plex = start().await;
    plex.assign(shared_by("/export/hot", "a", &["b"])).await.unwrap();
    let page = plex.exceptions(None, 10).await.unwrap();
    assert_eq!(page.exceptions[0].replicas.iter().map(|of| of.share).collect::<Vec<_>>(), [250, 750]);
    plex.finish().await;
    drop(plex);

    let plex = start().await;
    let again = plex.exceptions(None, 10).await.unwrap();
    let kept = |page: &ExceptionPage| (page.total, page.exceptions[0].replicas.clone());
    assert_eq!(kept(&again), kept(&page));
    let tcp = client(plex.addresses()[0], Transport::Tcp).await;
    let root = nfs::mount(&tcp, "/export").await.unwrap();
    let (file, _) = nfs::lookup(&tcp, &root, "hot").await.unwrap();
    read_until_spread(&plex, &tcp, &file, &data(3)).await;
    let plain = plex.assign(shared_by("/export/hot", "a", &[])).await.unwrap();
    assert!(plain.replicas.is_empty() && plex.status().await.replicated.is_empty());
    let before = named(&plex.status().await, "b").requests;
    assert_eq!(read(&tcp, &file).await, data(3));
    assert_eq!(named(&plex.status().await, "b").requests, before);
    plex.unassign(FileName::Path("/export/hot".into())).await.unwrap();
}
