//! A call upon which its store closes the connection, every time.

use super::raw::{NFS, Raw, call, getattr, marked, opaque, words};
use super::relay::{Treat, relay};
use super::site::{client, config, counter, embedded, named, store, wait_for};
use clockwork_router::plex::Plex;
use clockwork_router::store::{HandleMode, Namespace};
use clockwork_router::web::PlexControl as _;
use clockwork_router::web::types::StoreState;
use fstress_replay::client::{Transport, nfs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt as _;

const REMOVE: u32 = 12;
/// SYSTEM_ERR of `accept_stat` (RFC 5531 section 9).
const SYSTEM_ERR: u32 = 5;
/// From when on such a call is given up, and until when it has to be.
const GIVEN_UP_S: std::ops::Range<u64> = 30..60;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_on_which_its_store_hangs_up_is_given_up_and_the_store_serves_on() {
    let folder = tempfile::tempdir().unwrap();
    let namespace = Namespace::open(folder.path(), HandleMode::Path { seed: 1 }).unwrap();
    let hang_ups = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    // The survey that lets stores in removes files, too.
    let surveyed = Arc::new(AtomicBool::new(false));
    let (mut behind, mut stores) = (Vec::new(), Vec::new());
    for (name, hang_ups) in ["a", "b"].into_iter().zip(&hang_ups) {
        let running = store(name, &namespace).await;
        let (hang_ups, surveyed) = (Arc::clone(hang_ups), Arc::clone(&surveyed));
        let rule = move |_, program, procedure| {
            if (program, procedure) != (NFS, REMOVE) || !surveyed.load(Ordering::Relaxed) {
                return Treat::Pass;
            }
            hang_ups.fetch_add(1, Ordering::Relaxed);
            Treat::HangUp
        };
        stores.push(embedded(name, relay(running.address, Arc::new(rule)).await));
        behind.push(running);
    }
    let plex = Plex::start(config(stores), false).await.unwrap();
    let up = |status: &clockwork_router::web::types::Status| {
        ["a", "b"].iter().all(|name| named(status, name).state == StoreState::Up)
    };
    wait_for(&plex, "both up", up).await;
    surveyed.store(true, Ordering::Relaxed);
    let address = plex.addresses()[0];
    let root = nfs::mount(&client(address, Transport::Tcp).await, "/export").await.unwrap();

    let mut victim = Raw::connect(address).await;
    let sent = Instant::now();
    let poison = call(7, (NFS, 3, REMOVE), &[opaque(&root), opaque(b"x")].concat());
    victim.send(&marked(&poison)).await;
    // Mark, XID, REPLY, accepted, empty verifier (2 words), accept_stat.
    let mut answer = [0; 28];
    let answered = victim.0.read_exact(&mut answer);
    tokio::pin!(answered);
    // Somebody else, whose calls go the same way, to the same store.
    let mut other = Raw::connect(address).await;
    let (mut calls, mut slowest) = (0, Duration::ZERO);
    loop {
        let began = Instant::now();
        assert_eq!(words(&other.ask(&getattr(calls, &root)).await)[6], 0, "call {calls}");
        slowest = slowest.max(began.elapsed());
        calls += 1;
        assert!(up(&plex.status().await), "after {:?}", sent.elapsed());
        assert!(sent.elapsed().as_secs() < GIVEN_UP_S.end, "it has no answer");
        tokio::select! {
            read = &mut answered => {
                read.unwrap();
                break;
            }
            () = tokio::time::sleep(Duration::from_millis(50)) => {}
        }
    }
    let took = sent.elapsed();
    assert!(GIVEN_UP_S.contains(&took.as_secs()), "{took:?}");
    assert_eq!(words(&answer)[1..], [7, 1, 0, 0, 0, SYSTEM_ERR]);
    assert_eq!(counter(&plex.status().await, "given_up"), 1);
    // The others have had their answers while the store was called again: after it, and not by waiting for its end.
    println!("given up after {took:?}; {calls} calls beside it, the slowest in {slowest:?}");
    assert!(calls > 100, "{calls} calls");
    assert!(slowest < Duration::from_secs(8), "{slowest:?}");
    // One store has seen it, eight times at least; the other never.
    let [least, most] = {
        let mut seen = hang_ups.each_ref().map(|count| count.load(Ordering::Relaxed));
        seen.sort_unstable();
        seen
    };
    assert!(least == 0 && (8..=20).contains(&most), "{least} and {most}");
    assert_eq!(words(&other.ask(&getattr(1 << 20, &root)).await)[6], 0);
}
