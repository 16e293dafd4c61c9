//! Stores taken out and in while clients work.

use super::raw::{Raw, getattr, words};
use super::site::{Site, counter, named};
use clockwork_router::web::types::StoreState;
use clockwork_router::web::{ControlError, PlexControl as _};
use fstress_replay::client::{Transport, nfs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const JUKEBOX: u32 = 10_008;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a13_stores_are_drained_and_undrained_under_traffic() {
    let site = Site::start(2).await;
    let tcp = Arc::new(site.client(Transport::Tcp).await);
    let root = nfs::mount(&tcp, "/export").await.unwrap();
    let mut files = Vec::new();
    for number in 0..16 {
        files.push(nfs::create(&tcp, &root, &format!("f{number}")).await.unwrap());
    }
    let stop = Arc::new(AtomicBool::new(false));
    let calls = Arc::new(AtomicU64::new(0));
    let traffic = {
        let (stop, calls, tcp, files) =
            (Arc::clone(&stop), Arc::clone(&calls), Arc::clone(&tcp), files.clone());
        tokio::spawn(async move {
            // JUKEBOX is tried again, as by every client; any other error fails.
            while !stop.load(Ordering::Relaxed) {
                for file in &files {
                    nfs::getattr(&tcp, file, "traffic").await.unwrap();
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            }
        })
    };
    let some_calls = async || {
        let from = calls.load(Ordering::Relaxed);
        while calls.load(Ordering::Relaxed) < from + 40 {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    };
    some_calls().await;
    let drained = site.plex.drain("a".into(), false).await.unwrap();
    assert_eq!((drained.before, drained.now), (StoreState::Up, StoreState::Drained));
    some_calls().await;
    let quiet = named(&site.wait("a idle", |s| named(s, "a").in_flight == 0).await, "a").requests;
    some_calls().await;
    assert_eq!(named(&site.plex.status().await, "a").requests, quiet, "a drained store gets calls");

    let last = site.plex.drain("b".into(), false).await.unwrap_err();
    let others = vec!["a is drained: `clockwork undrain a` first".into()];
    assert_eq!(last, ControlError::LastStore { name: "b".into(), others });
    site.plex.drain("b".into(), true).await.unwrap();
    // Nobody serves: each call is answered JUKEBOX at once, and the plex says so.
    let mut raw = Raw::connect(site.address()).await;
    assert_eq!(words(&raw.ask(&getattr(1, &files[0])).await)[6], JUKEBOX);
    let status = site.wait("turned away", |s| counter(s, "turned_away_no_store") > 0).await;
    assert!(
        status.alarms.iter().any(|alarm| alarm.contains("no store is in service")),
        "{:?}",
        status.alarms
    );

    site.plex.undrain("a".into()).await.unwrap();
    some_calls().await;
    assert!(named(&site.plex.status().await, "a").requests > quiet);
    let back = site.plex.undrain("b".into()).await.unwrap();
    assert_eq!((back.before, back.now), (StoreState::Drained, StoreState::Up));
    some_calls().await;
    stop.store(true, Ordering::Relaxed);
    traffic.await.unwrap();
}
