//! Stores that differ, hang, die and come back.

use super::raw::{Raw, ask_udp, getattr, udp, words};
use super::relay::{Treat, relay};
use super::site::{
    INTERVAL, PATIENCE, Site, client, config, embedded, loopback, named, store, store_at, wait_for,
};
use clockwork_router::config::{Config, Store};
use clockwork_router::plex::Plex;
use clockwork_router::store::{HandleMode, Namespace};
use clockwork_router::web::PlexControl as _;
use clockwork_router::web::types::StoreState;
use fstress_replay::client::{Transport, nfs};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A plex whose probes fail when an answer takes longer than the time between two.
fn impatient(stores: Vec<Store>) -> Config {
    let mut config = config(stores);
    config.health.timeout = INTERVAL;
    config
}

const NFS: u32 = 100_003;
const GETATTR: u32 = 1;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a07_a_store_with_other_handles_is_refused_with_both_values() {
    let folder = tempfile::tempdir().unwrap();
    let one = Namespace::open(folder.path(), HandleMode::Path { seed: 1 }).unwrap();
    let two = Namespace::open(folder.path(), HandleMode::Path { seed: 2 }).unwrap();
    let (a, b) = (store("a", &one).await, store("b", &two).await);
    let plex =
        Plex::start(config(vec![embedded("a", a.address), embedded("b", b.address)]), false).await.unwrap();
    let status = wait_for(&plex, "a refusal", |status| {
        status.stores.iter().any(|store| store.state == StoreState::Refused)
    })
    .await;
    let refused = status.stores.iter().find(|store| store.state == StoreState::Refused).unwrap();
    let reason = refused.reason.clone().unwrap();
    let mut roots = Vec::new();
    for address in [a.address, b.address] {
        let root = nfs::mount(&client(address, Transport::Tcp).await, "/export").await.unwrap();
        roots.push(clockwork_router::web::handle_text(&root));
    }
    assert!(roots.iter().all(|root| reason.contains(root)), "{reason} names both of {roots:?}");
    assert!(status.alarms.iter().any(|alarm| alarm.contains(&refused.name)), "{:?}", status.alarms);
    // The other one serves everything.
    let through = client(plex.addresses()[0], Transport::Tcp).await;
    let root = nfs::mount(&through, "/export").await.unwrap();
    for number in 0..10 {
        nfs::create(&through, &root, &format!("f{number}")).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a07_equal_handles_of_another_file_system_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let namespace = Namespace::open(folder.path(), HandleMode::Path { seed: 1 }).unwrap();
    let (a, behind) = (store("a", &namespace).await, store("b", &namespace).await);
    // XID, 5 words of reply header, status, 5 words, 3 double words: then comes fsid (RFC 1813 section 2.6).
    let fsid_at = 4 * 7 + 4 * 5 + 8 * 3;
    let rule = move |_, program, procedure| {
        if (program, procedure) == (NFS, GETATTR) { Treat::Change(fsid_at) } else { Treat::Pass }
    };
    let b = relay(behind.address, Arc::new(rule)).await;
    let plex = Plex::start(config(vec![embedded("a", a.address), embedded("b", b)]), false).await.unwrap();
    let refused = |status: &clockwork_router::web::types::Status| {
        status.stores.iter().any(|store| {
            store.state == StoreState::Refused
                && store.reason.as_deref().is_some_and(|why| why.contains("fsid"))
        })
    };
    wait_for(&plex, "a refusal for fsid", refused).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a10_the_next_datagrams_of_a_dead_stores_clients_go_elsewhere() {
    let mut site = Site::start(2).await;
    let tcp = site.client(Transport::Tcp).await;
    let root = nfs::mount(&tcp, "/export").await.unwrap();
    let (_, file) = site.file_of(&tcp, &root, "a").await;
    let socket = udp(site.address()).await;
    assert_eq!(words(&ask_udp(&socket, &getattr(1, &file)).await)[6], 0);
    site.kill(0).await;
    let killed = Instant::now();
    // One socket, a call every 100 ms, each with its own XID.
    let mut buffer = [0; 1024];
    let mut xid = 1;
    let answered = loop {
        xid += 1;
        socket.send(&getattr(xid, &file)).await.unwrap();
        match tokio::time::timeout(INTERVAL, socket.recv(&mut buffer)).await {
            Ok(Ok(_)) if buffer[24..28] == [0; 4] => break killed.elapsed(),
            _ => assert!(killed.elapsed() < PATIENCE, "no answer from the other store"),
        }
    };
    // The first probe that is refused is enough; the rest is the machine's.
    assert!(answered < INTERVAL + Duration::from_secs(2), "{answered:?}");
    let status = site.wait("a down", |status| named(status, "a").state == StoreState::Down).await;
    assert!(status.alarms.iter().any(|alarm| alarm.contains("store a is down")), "{:?}", status.alarms);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a10_mounts_wait_until_a_store_is_in_use() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("below")).unwrap();
    let namespace = Namespace::open(folder.path(), HandleMode::Path { seed: 1 }).unwrap();
    // A port at which nothing answers for now.
    let gone = store("a", &namespace).await;
    let address = gone.address;
    gone.stop().await;
    let plex = Plex::start(config(vec![embedded("a", address)]), false).await.unwrap();
    let mut mounts = tokio::task::JoinSet::new();
    for (transport, path) in
        [(Transport::Tcp, "/export"), (Transport::Udp, "/export"), (Transport::Tcp, "/export/below")]
    {
        let through = client(plex.addresses()[0], transport).await;
        mounts.spawn(async move { nfs::mount(&through, path).await });
    }
    wait_for(&plex, "mounts that wait", |status| {
        status.limits.iter().any(|limit| limit.name == "mounts_waiting_max" && limit.used >= 3)
    })
    .await;
    let _a = store_at("a", &namespace, address).await;
    while let Some(mounted) = mounts.join_next().await {
        mounted.unwrap().unwrap();
    }
    wait_for(&plex, "no more that wait", |status| {
        status.limits.iter().any(|limit| limit.name == "mounts_waiting_max" && limit.used == 0)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a12_a_store_that_comes_back_is_let_in_and_no_call_is_lost() {
    let mut site = Site::start(2).await;
    let tcp = site.client(Transport::Tcp).await;
    let root = nfs::mount(&tcp, "/export").await.unwrap();
    let (name, file) = site.file_of(&tcp, &root, "b").await;
    let address = site.stores[1].as_ref().unwrap().address;
    let epoch = named(&site.plex.status().await, "b").epoch;
    site.kill(1).await;
    for _ in 0..10 {
        nfs::getattr(&tcp, &file, &name).await.unwrap();
    }
    site.wait("b down", |status| named(status, "b").state == StoreState::Down).await;
    site.stores[1] = Some(store_at("b", &site.namespace, address).await);
    let status = site.wait("b up", |status| named(status, "b").state == StoreState::Up).await;
    assert!(named(&status, "b").epoch > epoch, "a restart cannot be ruled out");
    let before = named(&status, "b").requests;
    nfs::getattr(&tcp, &file, &name).await.unwrap();
    let after = site.plex.status().await;
    assert!(named(&after, "b").requests > before, "its file is back: {after:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a12_slow_stores_are_no_error_for_clients() {
    let folder = tempfile::tempdir().unwrap();
    let namespace = Namespace::open(folder.path(), HandleMode::Path { seed: 1 }).unwrap();
    let slow = Arc::new(AtomicBool::new(false));
    let mut stores = Vec::new();
    let mut behind = Vec::new();
    for name in ["a", "b"] {
        let running = store(name, &namespace).await;
        let slow = Arc::clone(&slow);
        let rule = move |_, _, _| {
            if slow.load(Ordering::Relaxed) { Treat::Delay(3 * INTERVAL) } else { Treat::Pass }
        };
        stores.push(embedded(name, relay(running.address, Arc::new(rule)).await));
        behind.push(running);
    }
    let plex = Plex::start(impatient(stores), false).await.unwrap();
    wait_for(&plex, "both up", |status| status.stores.iter().all(|store| store.state == StoreState::Up))
        .await;
    let tcp = client(plex.addresses()[0], Transport::Tcp).await;
    let root = nfs::mount(&tcp, "/export").await.unwrap();
    slow.store(true, Ordering::Relaxed);
    let asked = wait_for(&plex, "nobody up", |status| {
        status.stores.iter().all(|store| store.state == StoreState::Down)
    });
    let calls = async {
        for number in 0..2 {
            nfs::getattr(&tcp, &root, &format!("call {number}")).await.unwrap();
        }
    };
    let (status, ()) = tokio::join!(asked, calls);
    assert!(status.alarms.iter().any(|alarm| alarm.contains("no store answers")), "{:?}", status.alarms);
    nfs::getattr(&tcp, &root, "while all are down").await.unwrap();
    slow.store(false, Ordering::Relaxed);
    wait_for(&plex, "both up", |status| status.stores.iter().all(|store| store.state == StoreState::Up))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a12_a_store_whose_null_answers_but_whose_getattr_hangs_is_taken_out() {
    let folder = tempfile::tempdir().unwrap();
    let namespace = Namespace::open(folder.path(), HandleMode::Path { seed: 1 }).unwrap();
    let (a, behind) = (store("a", &namespace).await, store("b", &namespace).await);
    let hangs = Arc::new(AtomicBool::new(false));
    let hanging = Arc::clone(&hangs);
    let rule = move |_, program, procedure| {
        let hit = (program, procedure) == (NFS, GETATTR) && hanging.load(Ordering::Relaxed);
        if hit { Treat::Swallow } else { Treat::Pass }
    };
    let b = relay(behind.address, Arc::new(rule)).await;
    let plex = Plex::start(impatient(vec![embedded("a", a.address), embedded("b", b)]), false).await.unwrap();
    wait_for(&plex, "both up", |status| status.stores.iter().all(|store| store.state == StoreState::Up))
        .await;
    hangs.store(true, Ordering::Relaxed);
    let status = wait_for(&plex, "b down", |status| named(status, "b").state == StoreState::Down).await;
    let reason = named(&status, "b").reason.clone().unwrap();
    assert!(reason.contains("GETATTR"), "{reason}");
    assert_eq!(named(&status, "a").state, StoreState::Up);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a11_a_rule_for_ipv4_holds_on_a_socket_for_both_families() {
    if std::net::TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).is_err() {
        eprintln!("skipped: this machine has no IPv6");
        return;
    }
    let site = Site::with(1, |config| {
        config.listen.addresses = vec![SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0))];
        config.exports[0].clients = vec!["127.0.0.1/32".parse().unwrap()];
    });
    let site = site.await;
    let port = site.address().port();
    let v4 = client(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), Transport::Tcp).await;
    let root = nfs::mount(&v4, "/export").await.unwrap();
    nfs::getattr(&v4, &root, "over TCP").await.unwrap();
    let socket = udp(loopback(port)).await;
    assert_eq!(words(&ask_udp(&socket, &getattr(1, &root)).await)[6], 0, "over UDP");
    // ::1 is in no rule: MSG_DENIED, AUTH_ERROR, AUTH_TOOWEAK.
    let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, port));
    let Ok(stream) = tokio::net::TcpStream::connect(v6).await else {
        return eprintln!("::1 is not tried: this machine has no such address");
    };
    let reply = Raw(stream).ask(&getattr(2, &root)).await;
    assert_eq!(words(&reply), [2, 1, 1, 1, 5]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a11_a_store_that_wants_reserved_ports_gets_them() {
    if std::net::TcpListener::bind(loopback(1023)).is_err()
        && std::net::TcpListener::bind(loopback(1022)).is_err()
    {
        eprintln!("skipped: this process may not use ports below 1024");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let namespace = Namespace::open(folder.path(), HandleMode::Path { seed: 1 }).unwrap();
    let behind = store("a", &namespace).await;
    let rule = |peer: SocketAddr, _, _| if peer.port() < 1024 { Treat::Pass } else { Treat::Refuse };
    let strict = relay(behind.address, Arc::new(rule)).await;
    let mut named_store = embedded("a", strict);
    let unprivileged = Plex::start(config(vec![named_store.clone()]), false).await.unwrap();
    assert_ne!(unprivileged.status().await.stores[0].state, StoreState::Up);
    named_store.privileged_port = true;
    let plex = Plex::start(config(vec![named_store]), false).await.unwrap();
    wait_for(&plex, "up", |status| status.stores[0].state == StoreState::Up).await;
    let tcp = client(plex.addresses()[0], Transport::Tcp).await;
    let root = nfs::mount(&tcp, "/export").await.unwrap();
    nfs::create(&tcp, &root, "file").await.unwrap();
}
