use super::*;
use clockwork_wire::record;
use proptest::prelude::*;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};

const ONE: usize = 1 << 20;

fn owner(number: usize, address: u8) -> Owner {
    let connection = ConnectionId(number as u64);
    Owner { slot: number, connection, address: IpAddr::from([10, 0, 0, address]) }
}

type Waiting = Pin<Box<dyn Future<Output = io::Result<Held>>>>;

fn wait(room: &Rc<Room>, owner: Owner, bytes: usize) -> Waiting {
    let room = Rc::clone(room);
    let mut waiting: Waiting = Box::pin(async move { room.wait(owner, bytes).await });
    assert!(poll(&mut waiting).is_none(), "it got room at once");
    waiting
}

fn poll(waiting: &mut Waiting) -> Option<Held> {
    match waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        std::task::Poll::Ready(held) => Some(held.unwrap()),
        std::task::Poll::Pending => None,
    }
}

#[test]
fn what_is_needed_is_known_from_the_marks() {
    let room = Room::new(4 * ONE, ONE);
    let begun = |length: usize, there: usize| [&record::mark(length)[..], &vec![0; there]].concat();
    assert_eq!(room.needed(&begun(300_000, 20_000)), 4 + 300_000 + FREE_BYTES);
    assert_eq!(room.needed(&begun(20_000, 20_000)), 20_004, "whole records need what they are");
    let both = [begun(20_000, 20_000), begun(300_000, 500)].concat();
    assert_eq!(room.needed(&both), 4 + 300_000 + FREE_BYTES);
    let both = [begun(400_000, 400_000), begun(300_000, 500)].concat();
    assert_eq!(room.needed(&both), both.len());
    assert_eq!(room.needed(&[&[0, 0, 0x80, 0], &[0; 20_000][..]].concat()), ONE, "more fragments will come");
    assert_eq!(room.needed(&[&[0xff; 4], &[0; 20_000][..]].concat()), ONE, "of a mark that is none");
    assert_eq!(room.needed(&[0x80, 0]), 2);
}

#[test]
fn whoever_has_least_is_next_and_nobody_is_passed_over_for_being_large() {
    let room = Room::new(2 * ONE, ONE);
    let mut first = Some(room.take(owner(0, 1), ONE).unwrap());
    let second = room.take(owner(1, 1), ONE).unwrap();
    assert!(!room.is_free());
    let mut greedy = wait(&room, owner(2, 1), ONE / 2);
    let mut other = wait(&room, owner(3, 2), ONE);
    drop(first.take());
    let granted = poll(&mut other).expect("who has none is served first");
    assert!(poll(&mut greedy).is_none());
    drop(granted);
    assert!(poll(&mut greedy).is_some(), "then who has some");
    drop(second);
    drop(greedy);
    assert_eq!((room.bytes().0, room.full()), (0, 2));
    assert!(room.is_free());
}

#[test]
fn records_lose_their_room_oldest_first_only_while_others_wait_and_no_more_than_those_need() {
    let room = Room::new(4 * ONE, ONE);
    let mut held: Vec<Held> = (0..4).map(|n| room.take(owner(n, 1), ONE).unwrap()).collect();
    let late = Instant::now() + SILENCE_MAX + Duration::from_secs(1);
    assert!(room.overdue(late).is_empty(), "nobody waits");
    let mut waiting = wait(&room, owner(9, 1), ONE);
    assert!(room.overdue(Instant::now()).is_empty(), "they are not late");
    assert_eq!(room.overdue(late), [(0, ConnectionId(0))]);
    assert!(room.overdue(late).is_empty(), "one is enough, and is told once");
    drop(held.remove(0));
    let granted = poll(&mut waiting).unwrap();
    // One that the router does not read on has longer.
    for held in &mut held {
        held.moved(ONE, true);
    }
    let another = wait(&room, owner(8, 1), ONE);
    drop(granted);
    drop(another);
    let _another = room.take(owner(8, 2), ONE);
    let _waits = wait(&room, owner(7, 1), ONE);
    assert_eq!(room.overdue(late), [(8, ConnectionId(8))]);
    assert_eq!(room.overdue(late + STOPPED_MAX).len(), 0, "one is closing, which is enough");
}

#[test]
fn while_the_router_does_not_read_on_a_record_is_not_late() {
    let room = Room::new(ONE, ONE);
    let held = room.take(owner(0, 1), ONE).unwrap();
    let _waits = wait(&room, owner(1, 1), ONE);
    held.pause(true);
    let late = Instant::now() + UNWHOLE_MAX + Duration::from_secs(1);
    assert!(room.overdue(late).is_empty());
    held.pause(false);
    assert_eq!(room.overdue(late), [(0, ConnectionId(0))]);
}

#[test]
fn who_has_gone_while_waiting_stands_in_nobodys_way() {
    let room = Room::new(ONE, ONE);
    let held = room.take(owner(0, 1), ONE).unwrap();
    let gone = wait(&room, owner(1, 1), ONE);
    let mut stays = wait(&room, owner(2, 1), ONE);
    drop(gone);
    drop(held);
    assert!(poll(&mut stays).is_some());
}

proptest! {
    #[test]
    fn what_is_held_is_the_sum_of_all_and_never_more_than_there_is(
        steps in prop::collection::vec((0_u8..5, 0_usize..40, 1_usize..=ONE, 1_u8..4), 1..120)
    ) {
        let room = Room::new(4 * ONE, ONE);
        let mut held: Vec<Held> = Vec::new();
        let mut waiting: Vec<Waiting> = Vec::new();
        let mut late = Instant::now();
        for (number, (step, which, bytes, address)) in steps.into_iter().enumerate() {
            match step {
                0 if room.is_free() => held.push(room.take(owner(number, address), bytes).unwrap()),
                0 | 1 => {
                    let (room, owner) = (Rc::clone(&room), owner(number, address));
                    waiting.push(Box::pin(async move { room.wait(owner, bytes).await }));
                }
                2 if which < held.len() => drop(held.swap_remove(which)),
                3 if which < waiting.len() => drop(waiting.swap_remove(which)),
                4 if which < held.len() => held[which].moved(bytes, bytes % 2 == 0),
                _ => {
                    late += SILENCE_MAX;
                    let closed = room.overdue(late);
                    held.retain(|held| !closed.iter().any(|(slot, _)| {
                        room.holder(held.key.unwrap()).unwrap().owner.slot == *slot
                    }));
                }
            }
            // Twice: one that begins to wait may be what others are granted room by.
            for _ in 0..2 {
                waiting.retain_mut(|waiting| poll(waiting).map(|granted| held.push(granted)).is_none());
            }
            let sum: usize = held.iter().map(|held| room.holder(held.key.unwrap()).unwrap().bytes).sum();
            let (bytes, bytes_max) = room.bytes();
            prop_assert_eq!(bytes, sum);
            prop_assert!(bytes <= bytes_max);
            for held in &mut held {
                let bytes = room.holder(held.key.unwrap()).unwrap().bytes;
                prop_assert!(held.bytes().len() >= bytes);
            }
            prop_assert!(!held.is_empty() || waiting.is_empty(), "some wait while nobody has any");
        }
        drop(held);
        waiting.retain_mut(|waiting| poll(waiting).is_none());
        while !waiting.is_empty() {
            waiting.retain_mut(|waiting| poll(waiting).is_none());
        }
        prop_assert_eq!(room.bytes().0, 0);
        prop_assert!(room.inner.borrow().holders.is_empty() && room.inner.borrow().waiters.is_empty());
    }
}
