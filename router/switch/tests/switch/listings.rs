//! Listings that take several calls, while the table changes under them.

use crate::sim::calls::{self, page, status};
use crate::sim::{A, B, Cookies, MS, Peer, Sim, Spec};
use clockwork_wire::nfs3::{Procedure, status::BAD_COOKIE};
use std::collections::BTreeSet;

const NAMES: usize = 2500;
/// Bytes a page: some 250 names of READDIR.
const PAGE_BYTES: u32 = 8192;

/// Cookie verifiers of every form that the router tags differently.
const VERIFIERS: [[u8; 8]; 4] =
    [[0; 8], [0, 0, 0, 0, 1, 2, 3, 4], [1, 2, 3, 4, 0, 0, 0, 0], [1, 2, 3, 4, 5, 6, 7, 8]];

/// A directory of many names at store A, whose cookies mean nothing at store B.
fn plex(verifier: [u8; 8], other: Cookies) -> (Sim, Vec<u8>) {
    let spec = Spec { cookie_verifier: verifier, ..Spec::default() };
    let mut sim = Sim::new(vec![spec.clone(), Spec { cookies: other, ..spec }]);
    let root = sim.cluster.root();
    let dir = sim.cluster.directory(&root, "dir");
    for i in 0..NAMES {
        sim.cluster.file(&dir, &format!("name{i:04}"));
    }
    sim.assign(&dir, A);
    (sim, dir)
}

fn page_call(procedure: Procedure, xid: u32, dir: &[u8], cookie: u64, verifier: [u8; 8]) -> Vec<u8> {
    match procedure {
        Procedure::Readdir => calls::readdir(xid, dir, cookie, verifier, PAGE_BYTES),
        _ => calls::readdirplus(xid, dir, cookie, verifier, 4 * PAGE_BYTES),
    }
}

/// Lists a directory page by page, as a client does; `before` is called before each with its number. The names, or the
/// status that ended it.
fn list(
    sim: &mut Sim,
    peer: Peer,
    procedure: Procedure,
    dir: &[u8],
    mut before: impl FnMut(&mut Sim, u32),
) -> Result<Vec<String>, u32> {
    let (mut all, mut cookie, mut verifier) = (Vec::new(), 0, [0; 8]);
    for number in 1.. {
        before(sim, number);
        let reply = sim.ask(peer, &page_call(procedure, 100 + number, dir, cookie, verifier));
        match status(procedure, &reply) {
            0 => {}
            status => return Err(status),
        }
        let (names, from, last) = page(procedure, &reply);
        assert!(last || !names.is_empty());
        cookie = names.last().map_or(cookie, |name| name.1);
        verifier = from;
        all.extend(names.into_iter().map(|name| name.0));
        if last {
            assert!(number > 4, "a listing that a flip at its third page can hit");
            return Ok(all);
        }
    }
    unreachable!("a listing has a last page")
}

fn assert_each_once(names: &[String]) {
    assert_eq!(names.len(), NAMES);
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), NAMES);
}

const BOTH: [Procedure; 2] = [Procedure::Readdir, Procedure::Readdirplus];

#[test]
fn a08_a_listing_goes_on_where_it_began_after_a_flip() {
    for procedure in BOTH {
        for verifier in VERIFIERS {
            let (mut sim, dir) = plex(verifier, Cookies::FromAbove);
            let peer = sim.stream(0, 1);
            let names = list(&mut sim, peer, procedure, &dir, |sim, number| {
                if number == 3 {
                    assert_eq!(sim.assign(&dir, B), 0);
                }
            });
            assert_each_once(&names.unwrap());
            assert_eq!(sim.store(B).runs(procedure), 0);
            // A listing that begins now begins at the new store.
            assert_each_once(&list(&mut sim, peer, procedure, &dir, |_, _| {}).unwrap());
            assert!(sim.store(B).runs(procedure) > 4);
        }
    }
}

#[test]
fn a08_listings_of_one_directory_at_two_stores_do_not_mix() {
    let (mut sim, dir) = plex([0; 8], Cookies::FromAbove);
    let (one, other) = (sim.stream(0, 1), sim.stream(1, 2));
    let mut second = None;
    let first = list(&mut sim, one, Procedure::Readdir, &dir, |sim, number| {
        if number == 3 {
            sim.assign(&dir, B);
            second = Some(list(sim, other, Procedure::Readdir, &dir, |sim, number| {
                sim.assign(&dir, if number % 2 == 0 { A } else { B });
            }));
        }
    });
    assert_each_once(&first.unwrap());
    assert_each_once(&second.unwrap().unwrap());
}

#[test]
fn a08_a_listing_whose_store_is_gone_ends_with_bad_cookie() {
    for procedure in BOTH {
        for verifier in VERIFIERS {
            let (mut sim, dir) = plex(verifier, Cookies::FromAbove);
            let peer = sim.stream(0, 1);
            let end = list(&mut sim, peer, procedure, &dir, |sim, number| {
                if number == 3 {
                    sim.crash(A);
                    sim.eject(A);
                }
            });
            assert_eq!(end, Err(BAD_COOKIE));
            assert_eq!(sim.shards[0].switch.counters().listings_lost, 1);
            assert_each_once(&list(&mut sim, peer, procedure, &dir, |_, _| {}).unwrap());
            sim.settle();
        }
    }
}

#[test]
fn a08_a_page_in_flight_when_its_store_goes_ends_with_bad_cookie() {
    let (mut sim, dir) = plex([0; 8], Cookies::FromAbove);
    let peer = sim.datagram(1, 1, 1000);
    let (names, verifier, _) =
        page(Procedure::Readdir, &sim.ask(peer, &page_call(Procedure::Readdir, 1, &dir, 0, [0; 8])));
    sim.store(A).hung = true;
    let next = page_call(Procedure::Readdir, 2, &dir, names.last().unwrap().1, verifier);
    sim.send(peer, &next);
    sim.run_for(100 * MS);
    assert!(sim.replies(peer, 2).is_empty());
    sim.eject(A);
    assert_eq!(status(Procedure::Readdir, sim.reply(peer, 2)), BAD_COOKIE);
    sim.settle();
}

#[test]
fn a08_a_listing_goes_on_elsewhere_where_cookies_are_alike() {
    for procedure in BOTH {
        let (mut sim, dir) = plex([0; 8], Cookies::FromBelow);
        sim.shared.set_cookies_alike(true);
        let peer = sim.stream(0, 1);
        let names = list(&mut sim, peer, procedure, &dir, |sim, number| {
            if number == 3 {
                sim.crash(A);
                sim.eject(A);
            }
        });
        assert_each_once(&names.unwrap());
        assert!(sim.store(B).runs(procedure) > 2);
    }
}

#[test]
fn a08_a_page_in_flight_goes_on_elsewhere_where_cookies_are_alike() {
    let (mut sim, dir) = plex([0; 8], Cookies::FromBelow);
    sim.shared.set_cookies_alike(true);
    let peer = sim.stream(0, 1);
    let (names, verifier, _) =
        page(Procedure::Readdir, &sim.ask(peer, &page_call(Procedure::Readdir, 1, &dir, 0, [0; 8])));
    sim.store(A).hung = true;
    let (last, cookie) = names.last().unwrap().clone();
    sim.send(peer, &page_call(Procedure::Readdir, 2, &dir, cookie, verifier));
    sim.run_for(100 * MS);
    sim.eject(A);
    sim.settle();
    let (next, _, _) = page(Procedure::Readdir, sim.reply(peer, 2));
    assert_eq!(next[0].1, cookie + 1, "{} comes right behind {last}", next[0].0);
}

#[test]
fn a08_a_drained_store_finishes_its_listings() {
    let (mut sim, dir) = plex([0; 8], Cookies::FromAbove);
    let peer = sim.stream(0, 1);
    let names = list(&mut sim, peer, Procedure::Readdir, &dir, |sim, number| {
        if number == 3 {
            sim.set_stores(|i, store| store.weight = if i == A.index() { 0.0 } else { 1.0 });
        }
    });
    assert_each_once(&names.unwrap());
}

#[test]
fn a08_a_listing_goes_on_while_the_health_checks_find_every_store_down() {
    // Then all count as up (a12), so the store that began it is there as well.
    let (mut sim, dir) = plex([0; 8], Cookies::FromAbove);
    let peer = sim.stream(0, 1);
    let names = list(&mut sim, peer, Procedure::Readdir, &dir, |sim, number| {
        if number == 3 {
            sim.set_stores(|_, store| store.state = clockwork_placement::StoreState::Down);
        }
    });
    assert_each_once(&names.unwrap());
}
