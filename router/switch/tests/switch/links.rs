//! Links that are lost, stores that do not answer or answer nonsense, limits.

use crate::sim::calls::{self, UNSTABLE, status};
use crate::sim::{A, B, Limits, MS, Repeats, SECOND, Sim, Spec};
use clockwork_switch::{LinkId, SwitchLimits, Verdict};
use clockwork_wire::nfs3::{Procedure, status::JUKEBOX};
use clockwork_wire::{answer, record, rpc};
use std::time::Duration;

fn files(sim: &mut Sim, count: usize) -> Vec<Vec<u8>> {
    let root = sim.cluster.root();
    (0..count).map(|i| sim.cluster.file(&root, &format!("file{i}"))).collect()
}

fn with_limits(specs: Vec<Spec>, switch: SwitchLimits) -> Sim {
    Sim::with(specs, Limits { shards: 1, switch, ..Limits::default() })
}

/// Handles in the order in which a store has been sent calls on them.
fn handles(sim: &mut Sim) -> Vec<Vec<u8>> {
    let waiting = sim.store(A).waiting.iter();
    waiting.map(|(_, message)| message[rpc::parse_call(message).unwrap().arguments + 4..].to_vec()).collect()
}

#[test]
fn calls_are_sent_again_in_order_however_often_the_link_is_lost() {
    for spec in [Spec::default(), Spec::default().forgetful(), Spec::datagram(), Spec::datagram().forgetful()]
    {
        let mut sim = with_limits(vec![spec], SwitchLimits::default());
        let files = files(&mut sim, 60);
        let peer = sim.stream(0, 1);
        sim.store(A).hung = true;
        for (xid, file) in (1..).zip(&files) {
            sim.send(peer, &calls::getattr(xid, file));
            sim.run_for(MS);
        }
        for _ in 0..3 {
            assert_eq!(handles(&mut sim), files);
            sim.break_link(0, 0);
            sim.run_for(60 * MS);
        }
        assert_eq!(handles(&mut sim), files);
        assert_eq!(sim.shards[0].switch.counters().sent_again, 180);
        sim.unhang(A);
        sim.settle();
        (1..=60).for_each(|xid| assert_eq!(status(Procedure::Getattr, sim.reply(peer, xid)), 0));
    }
}

#[test]
fn a_store_that_drops_repeats_gets_new_numbers() {
    let mut sim = Sim::new(vec![Spec { delay: 100 * MS, ..Spec::default().dropping() }]);
    let file = files(&mut sim, 1).remove(0);
    let peer = sim.stream(0, 1);
    sim.send(peer, &calls::getattr(1, &file));
    for _ in 0..4 {
        sim.run_for(70 * MS);
        sim.break_links(A);
        assert_eq!(sim.send(peer, &calls::getattr(1, &file)), Verdict::Absorbed);
    }
    sim.settle();
    sim.reply(peer, 1);
    let mut xids = sim.store(A).xids.clone();
    xids.sort_unstable();
    xids.dedup();
    assert_eq!(xids.len(), sim.store(A).xids.len());
}

#[test]
fn new_numbers_are_found_even_where_every_place_is_taken() {
    let limits = SwitchLimits { pending_calls_max: 64, ..SwitchLimits::default() };
    let mut sim = with_limits(vec![Spec::default().dropping()], limits);
    let file = files(&mut sim, 1).remove(0);
    let peer = sim.stream(0, 1);
    sim.store(A).mute = true;
    for xid in 1..=64 {
        assert_eq!(sim.send(peer, &calls::getattr(xid, &file)), Verdict::Forwarded);
    }
    assert_eq!(status(Procedure::Getattr, &sim.ask(peer, &calls::getattr(65, &file))), JUKEBOX);
    sim.run_for(MS);
    sim.store(A).mute = false;
    // The store has seen the old numbers: one that came again would never be answered.
    sim.break_links(A);
    sim.settle();
    (1..=64).for_each(|xid| assert_eq!(status(Procedure::Getattr, sim.reply(peer, xid)), 0));
}

#[test]
fn repeats_are_told_the_truth_even_where_every_place_is_taken() {
    let limits = SwitchLimits { pending_calls_max: 16, ..SwitchLimits::default() };
    let mut sim = with_limits(vec![Spec::default()], limits);
    let root = sim.cluster.root();
    files(&mut sim, 2);
    let peer = sim.stream(0, 1);
    let done = calls::named(1, Procedure::Remove, &root, "file0");
    let first = sim.ask(peer, &done);
    sim.store(A).hung = true;
    let running = calls::named(2, Procedure::Remove, &root, "file1");
    sim.send(peer, &running);
    for xid in 3..=17 {
        assert_eq!(sim.send(peer, &calls::getattr(xid, &root)), Verdict::Forwarded);
    }
    assert_eq!(sim.send(peer, &calls::getattr(18, &root)), Verdict::Answered);
    assert_eq!(sim.ask(peer, &done), first, "a finished call's repeat is answered from the cache");
    assert_eq!(sim.send(peer, &running), Verdict::Absorbed, "a running call has not failed");
    sim.unhang(A);
    sim.settle();
    assert_eq!(status(Procedure::Remove, sim.reply(peer, 2)), 0);
}

#[test]
fn a_store_that_never_answers_delays_nobody_else() {
    for spec in [Spec::default(), Spec::datagram()] {
        let limits = SwitchLimits { pending_calls_max: 1024, ..SwitchLimits::default() };
        let mut sim = with_limits(vec![Spec { calls_max: 64, ..spec.clone() }, spec.clone(), spec], limits);
        let files = files(&mut sim, 3);
        for (store, file) in (0..).zip(&files) {
            sim.assign(file, clockwork_placement::StoreId(store));
        }
        let (eager, other) = (sim.stream(0, 1), sim.stream(0, 2));
        sim.store(A).hung = true;
        sim.store(B).hung = true;
        for xid in 1..=5000 {
            sim.send(eager, &calls::getattr(xid, &files[xid as usize % 2]));
            if xid.is_multiple_of(100) {
                sim.send(other, &calls::getattr(xid, &files[2]));
                let sent = sim.now;
                sim.run_for(MS);
                assert!(sim.replied_at(other, xid).since(sent) < MS);
                assert_eq!(status(Procedure::Getattr, sim.reply(other, xid)), 0, "call {xid}");
            }
        }
        let counters = sim.shards[0].switch.counters();
        assert!(counters.turned_away_held > 3000, "those that wait for the two stores are bounded");
        sim.unhang(A);
        sim.unhang(B);
        sim.settle();
        (1..=5000).for_each(|xid| assert!(!sim.reply(eager, xid).is_empty()));
    }
}

#[test]
fn held_bytes_are_bounded_and_shared_fairly() {
    let limits = SwitchLimits { held_bytes_max: 1 << 20, link_bytes_max: 1 << 20, ..SwitchLimits::default() };
    let mut sim = with_limits(vec![Spec::default(), Spec { calls_max: 1, ..Spec::default() }], limits);
    let files = files(&mut sim, 2);
    sim.assign(&files[0], A);
    sim.assign(&files[1], B);
    let (eager, other) = (sim.stream(0, 1), sim.stream(0, 2));
    sim.store(A).hung = true;
    let data = vec![7; 32 << 10];
    let mut turned_away = 0;
    for xid in 1..=200 {
        sim.send(eager, &calls::write(xid, &files[0], 0, UNSTABLE, &data));
        if let [reply] = sim.replies(eager, xid)[..] {
            assert_eq!(status(Procedure::Write, reply), JUKEBOX);
            turned_away += 1;
        }
        let switch = &mut sim.shards[0].switch;
        let (held, held_max) = switch.held_bytes();
        assert!(held <= held_max);
        assert!(switch.log(LinkId(0)).bytes() <= limits.link_bytes_max);
    }
    assert!(turned_away > 120, "32 or so fit the log, 16 may wait for it");
    // Store B takes one call at a time: the rest has to be held, and there is room for it.
    for xid in 1..=7 {
        assert_eq!(sim.send(other, &calls::write(xid, &files[1], 0, UNSTABLE, &data)), Verdict::Forwarded);
    }
    sim.run_for(SECOND);
    (1..=7).for_each(|xid| assert_eq!(status(Procedure::Write, sim.reply(other, xid)), 0));
    // A lost link gives back more than may be held, but never more than its log held.
    sim.break_link(0, 0);
    assert!(sim.shards[0].switch.held_bytes().0 <= limits.held_bytes_max + limits.link_bytes_max);
    sim.run_for(SECOND);
    sim.unhang(A);
    sim.settle();
    (1..=200).for_each(|xid| assert!(!sim.reply(eager, xid).is_empty()));
    // Calls turned away have left no pin behind; those of A went with its link.
    assert_eq!(sim.shared.pins.len(), 1);
}

#[test]
fn calls_that_a_store_never_answers_do_not_fill_its_send_log() {
    // Every hundredth call goes to a file that hangs; the rest is answered. Each that hangs lies in a chunk of its own
    // among those that do not.
    let limits = SwitchLimits { link_bytes_max: 4 << 20, ..SwitchLimits::default() };
    let mut sim = with_limits(vec![Spec { repeats: Repeats::Runs, ..Spec::default() }], limits);
    let files = files(&mut sim, 2);
    let peer = sim.stream(0, 1);
    let data = vec![7; 8 << 10];
    sim.store(A).hangs = Some(files[0].clone());
    for xid in 1..=4000 {
        if xid % 100 == 0 {
            sim.send(peer, &calls::getattr(xid, &files[0]));
        }
        let reply = sim.ask(peer, &calls::write(10_000 + xid, &files[1], 0, UNSTABLE, &data));
        assert_eq!(status(Procedure::Write, &reply), 0);
    }
    assert_eq!(sim.shards[0].switch.pending_calls().0, 40);
    assert!(sim.shards[0].switch.log(LinkId(0)).bytes() <= 4 << 20);
    sim.store(A).hangs = None;
    sim.break_link(0, 0);
    sim.settle();
}

#[test]
fn a_store_taken_back_serves_at_once() {
    // It hung with more calls than it takes at a time; they went elsewhere, and its link never broke.
    let mut sim = with_limits(vec![Spec { calls_max: 4, ..Spec::default() }; 2], SwitchLimits::default());
    let file = files(&mut sim, 1).remove(0);
    sim.assign(&file, A);
    let peer = sim.stream(0, 1);
    sim.store(A).hung = true;
    for xid in 1..=20 {
        sim.send(peer, &calls::getattr(xid, &file));
    }
    sim.run_for(SECOND);
    sim.eject(A);
    sim.run_for(SECOND);
    (1..=20).for_each(|xid| assert_eq!(status(Procedure::Getattr, sim.reply(peer, xid)), 0));
    sim.unhang(A);
    sim.run_for(SECOND);
    sim.readmit(A);
    for xid in 21..=40 {
        sim.send(peer, &calls::getattr(xid, &file));
    }
    sim.run_for(SECOND);
    (21..=40).for_each(|xid| assert_eq!(status(Procedure::Getattr, sim.reply(peer, xid)), 0));
    sim.settle();
}

#[test]
fn late_replies_and_replies_over_the_wrong_link_answer_nobody() {
    let mut sim = with_limits(vec![Spec { delay: 100 * MS, ..Spec::default() }; 2], SwitchLimits::default());
    let file = files(&mut sim, 1).remove(0);
    sim.assign(&file, A);
    let peer = sim.stream(0, 1);
    sim.send(peer, &calls::getattr(1, &file));
    sim.run_for(MS);
    let xid = *sim.store(A).xids.last().unwrap();
    let mut forged = vec![0; 4];
    answer::system_err(&mut forged, xid);
    let mark = record::mark(forged.len() - 4);
    forged[..4].copy_from_slice(&mark);
    sim.inject(0, 1, &mut forged.clone());
    assert!(sim.replies(peer, 1).is_empty(), "store B cannot answer for store A");
    sim.settle();
    assert_eq!(status(Procedure::Getattr, sim.reply(peer, 1)), 0);
    sim.inject(0, 0, &mut forged);
    sim.reply(peer, 1);
    assert_eq!(sim.shards[0].switch.counters().late_replies, 2);
}

#[test]
fn malformed_replies_are_counted_and_leave_nothing_behind() {
    let mut sim = with_limits(vec![Spec::default()], SwitchLimits::default());
    let root = sim.cluster.root();
    let file = files(&mut sim, 1).remove(0);
    let peer = sim.stream(0, 1);
    sim.store(A).hung = true;
    let calls = [
        (Procedure::Write, calls::write(0, &file, 0, UNSTABLE, b"bytes")),
        (Procedure::Lookup, calls::named(0, Procedure::Lookup, &root, "file0")),
        (Procedure::Readdirplus, calls::readdirplus(0, &root, 0, [0; 8], 4096)),
        (Procedure::Mkdir, calls::mkdir(0, &root, "new")),
    ];
    // Whole replies, to be cut short anywhere.
    let mut xid = 0;
    for (procedure, mut call) in calls {
        let accent = sim.store(A).accent();
        let mut cluster = crate::sim::Cluster::new();
        let (root, file) = (cluster.root(), cluster.root());
        drop((root, cluster.file(&file, "file0")));
        let whole = cluster.run(&accent, &call);
        assert_eq!(status(procedure, &whole), 0);
        for end in 0..whole.len() {
            xid += 1;
            rpc::set_xid(&mut call, xid);
            sim.send(peer, &call);
            sim.run_for(MS);
            let (_, sent) = sim.store(A).waiting.pop_front().unwrap();
            let mut reply = whole[..end].to_vec();
            rpc::set_xid(&mut reply, rpc::xid(&sent).unwrap());
            let mut bytes = record::mark(reply.len()).to_vec();
            bytes.extend_from_slice(&reply);
            sim.inject(0, 0, &mut bytes);
            match end {
                // Not even the XID and that it is a reply can be read: that is nobody's.
                0..4 => assert!(sim.replies(peer, xid).is_empty()),
                _ => assert_eq!(sim.replies(peer, xid).len(), 1),
            }
        }
        // Something that is no reply at all, with the right XID.
        let mut bytes = [&record::mark(8)[..], &xid.to_be_bytes(), &[0, 0, 0, 0]].concat();
        sim.inject(0, 0, &mut bytes);
    }
    assert!(sim.shards[0].switch.counters().malformed_replies > 100);
    sim.inject(0, 0, &mut [0; 3]);
    // The sixteen of which nothing could be read are sent again when the link is.
    assert_eq!(sim.shards[0].switch.pending_calls().0, 16);
    assert_eq!(sim.shared.pins.len(), 1, "writes that failed pin nothing, those in flight do");
    sim.store(A).hung = false;
    sim.break_links(A);
    sim.settle();
}

#[test]
fn datagrams_are_sent_again_until_they_are_answered() {
    let mut sim = with_limits(vec![Spec::datagram()], SwitchLimits::default());
    let file = files(&mut sim, 1).remove(0);
    let peer = sim.stream(0, 1);
    let mut left = 5;
    sim.loses = Box::new(move || {
        left -= 1;
        left >= 0
    });
    let began = sim.now;
    sim.send(peer, &calls::getattr(1, &file));
    sim.settle();
    // After 0.5, 1, 2, 4 and 8 seconds.
    let took = sim.replied_at(peer, 1).since(began);
    assert!((Duration::from_secs(15)..Duration::from_secs(17)).contains(&took), "{took:?}");
    assert_eq!(sim.shards[0].switch.counters().sent_again, 5);
}

#[test]
fn datagrams_are_sent_again_though_their_log_is_full() {
    let limits = SwitchLimits { link_bytes_max: 128 << 10, ..SwitchLimits::default() };
    let mut sim = with_limits(vec![Spec::datagram()], limits);
    let files = files(&mut sim, 1);
    let peer = sim.stream(0, 1);
    let mut left = 20;
    sim.loses = Box::new(move || {
        left -= 1;
        left >= 0
    });
    for xid in 1..=4 {
        sim.send(peer, &calls::write(xid, &files[0], 0, UNSTABLE, &[7; 30 << 10]));
    }
    for _ in 0..600 {
        sim.run_for(100 * MS);
        assert!(sim.shards[0].switch.log(LinkId(0)).bytes() <= 2 * limits.link_bytes_max);
    }
    (1..=4).for_each(|xid| assert_eq!(status(Procedure::Write, sim.reply(peer, xid)), 0));
    sim.settle();
}

#[test]
fn calls_moved_to_a_store_of_another_transport_are_lowered_for_it() {
    let mut sim = with_limits(vec![Spec::default(), Spec::datagram()], SwitchLimits::default());
    let file = files(&mut sim, 1).remove(0);
    sim.assign(&file, A);
    let peer = sim.stream(0, 1);
    sim.store(A).hung = true;
    sim.send(peer, &calls::read(1, &file, 0, 1 << 20));
    sim.send(peer, &calls::write(2, &file, 0, calls::FILE_SYNC, &vec![1; 100_000]));
    sim.run_for(MS);
    sim.crash(A);
    sim.eject(A);
    sim.revive(A);
    sim.settle();
    let read = &sim.store(B).calls(Procedure::Read)[0];
    assert_eq!(read[read.len() - 4..], (32_u32 << 10).to_be_bytes());
    assert!(sim.store(B).calls(Procedure::Write)[0].len() < 33 << 10);
    assert_eq!(sim.cluster.data(&file).len(), 32 << 10);
}

#[test]
fn with_several_links_a_call_that_may_have_run_goes_over_its_own_again() {
    // The store's cache knows a call by its port: over another link it would run again.
    let mut sim =
        with_limits(vec![Spec { links: 2, delay: 10 * MS, ..Spec::default() }], SwitchLimits::default());
    let root = sim.cluster.root();
    let peer = sim.stream(0, 1);
    sim.store(A).mute = true;
    for xid in 1..=20 {
        sim.send(peer, &calls::create(xid, &root, &format!("new{xid}"), true));
        sim.send(peer, &calls::getattr(100 + xid, &root));
        if xid.is_multiple_of(2) {
            // The links take turns: both get calls of both kinds.
            sim.send(peer, &calls::getattr(200 + xid, &root));
        }
    }
    sim.run_for(100 * MS);
    sim.store(A).mute = false;
    sim.break_link(0, 0);
    sim.run_for(20 * MS);
    // What may run twice has gone over the other link at once.
    let answered = |sim: &Sim, xids: std::ops::RangeInclusive<u32>| {
        xids.filter(|xid| !sim.replies(peer, *xid).is_empty()).count()
    };
    assert!((10..30).contains(&answered(&sim, 101..=220)));
    assert_eq!(answered(&sim, 1..=20), 0);
    sim.run_for(SECOND);
    sim.break_link(0, 1);
    sim.settle();
    for xid in 1..=20 {
        assert_eq!(status(Procedure::Create, sim.reply(peer, xid)), 0);
    }
    assert_eq!(sim.runs(Procedure::Create), 20);
}
