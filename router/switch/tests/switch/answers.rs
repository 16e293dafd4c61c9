//! What the switch answers by itself, and what it changes in what it passes on.

use crate::sim::calls::{self, FILE_SYNC, UNSTABLE, page, results, status};
use crate::sim::{A, B, Peer, Sim, Spec};
use clockwork_switch::{TransferSizes, Verdict};
use clockwork_wire::nfs3::{self, Arguments, Procedure, Results};
use clockwork_wire::{mount, rpc, xdr};
use std::sync::atomic::Ordering;

fn peers(sim: &mut Sim) -> [Peer; 2] {
    [sim.stream(0, 1), sim.datagram(1, 2, 1000)]
}

/// A call of anything, with any credential.
fn raw(xid: u32, words: [u32; 4], credential: &[u8], arguments: &[u8]) -> Vec<u8> {
    let [rpc_version, program, version, procedure] = words;
    let mut message = Vec::new();
    for word in [xid, 0, rpc_version, program, version, procedure] {
        xdr::put_u32(&mut message, word);
    }
    message.extend_from_slice(credential);
    message.extend_from_slice(&[0; 8]);
    message.extend_from_slice(arguments);
    message
}

/// The words of a reply behind its XID and message type.
fn words(reply: &[u8]) -> Vec<u32> {
    reply.chunks(4).skip(2).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect()
}

const ACCEPTED: [u32; 3] = [0, 0, 0];

#[test]
fn a03_wrong_programs_versions_and_procedures_get_their_accept_stat() {
    const NFS: u32 = nfs3::PROGRAM;
    let none = [0; 8];
    let table: [([u32; 4], &[u32]); 9] = [
        ([2, NFS, 4, 0], &[2, 3, 3]), // PROG_MISMATCH 3 to 3
        ([2, NFS, 2, 0], &[2, 3, 3]), // the same for what is too old
        ([2, mount::PROGRAM, 4, 0], &[2, 1, 3]),
        ([2, 100_021, 4, 0], &[1]), // PROG_UNAVAIL
        ([2, 100_227, 3, 0], &[1]),
        ([2, NFS, 3, 22], &[3]), // PROC_UNAVAIL
        ([2, NFS, 3, u32::MAX], &[3]),
        ([2, NFS, 3, 1], &[4]), // GARBAGE_ARGS: GETATTR without a handle
        ([2, NFS, 3, 0], &[0]), // NULL
    ];
    let mut sim = Sim::new(vec![Spec::default()]);
    for peer in peers(&mut sim) {
        for (i, (call, expected)) in table.into_iter().enumerate() {
            let xid = u32::try_from(i).unwrap();
            assert_eq!(sim.send(peer, &raw(xid, call, &none, &[])), Verdict::Answered);
            assert_eq!(words(sim.reply(peer, xid)), [&ACCEPTED[1..], &[0], expected].concat(), "{call:?}");
        }
        // RPC version 3: MSG_DENIED, RPC_MISMATCH 2 to 2.
        sim.send(peer, &raw(50, [3, NFS, 3, 0], &none, &[]));
        assert_eq!(words(sim.reply(peer, 50)), [1, 0, 2, 2]);
        // A credential that is longer than it may be: MSG_DENIED, AUTH_ERROR, AUTH_BADCRED.
        sim.send(peer, &raw(51, [2, NFS, 3, 0], &[0, 0, 0, 1, 0, 0, 2, 0], &[0; 512]));
        assert_eq!(words(sim.reply(peer, 51)), [1, 1, 1]);
        // No call at all: nothing certain can be answered.
        assert_eq!(sim.send(peer, &[0, 0, 0, 52]), Verdict::Dropped);
        let reply = sim.reply(peer, 0).to_vec();
        assert_eq!(sim.send(peer, &reply), Verdict::Dropped);
        assert_eq!(sim.replies(peer, 0).len(), 1, "a reply is not answered");
        // MOUNT is for whoever holds the switch.
        assert!(matches!(sim.send(peer, &raw(53, [2, mount::PROGRAM, 3, 1], &none, &[])), Verdict::Mount(_)));
    }
    assert!(sim.store(A).ran.is_empty(), "no store hears of any of it");
    sim.settle();
}

#[test]
fn a03_arguments_cut_short_anywhere_are_garbage() {
    let mut sim = Sim::new(vec![Spec::default()]);
    let dir = sim.cluster.root();
    let peer = sim.stream(0, 1);
    let whole = [
        calls::getattr(1, &dir),
        calls::rename(1, (&dir, "a"), (&dir, "b")),
        calls::write(1, &dir, 0, UNSTABLE, b"data"),
        calls::readdirplus(1, &dir, 0, [0; 8], 512),
        calls::symlink(1, &dir, "a", "b"),
    ];
    let mut xid = 100;
    for call in whole {
        let begin = rpc::parse_call(&call).unwrap().arguments;
        for end in begin..call.len() {
            xid += 1;
            let mut cut = call[..end].to_vec();
            rpc::set_xid(&mut cut, xid);
            assert_eq!(sim.send(peer, &cut), Verdict::Answered);
            assert_eq!(words(sim.reply(peer, xid)), [0, 0, 0, 4]);
        }
    }
    assert!(sim.store(A).ran.is_empty());
}

#[test]
fn gss_and_strangers_are_refused() {
    let mut sim = Sim::new(vec![Spec::default()]);
    let root = sim.cluster.root();
    let gss = [0, 0, 0, 6, 0, 0, 0, 4, 0, 0, 0, 1];
    for peer in peers(&mut sim) {
        let mut handle = Vec::new();
        xdr::put_opaque(&mut handle, &root);
        sim.send(peer, &raw(1, [2, nfs3::PROGRAM, 3, 1], &gss, &handle));
        assert_eq!(words(sim.reply(peer, 1)), [1, 1, 5], "AUTH_TOOWEAK");
        sim.send_from(peer, false, &calls::getattr(2, &root));
        assert_eq!(words(sim.reply(peer, 2)), [1, 1, 5], "AUTH_TOOWEAK");
        assert_eq!(sim.send(peer, &calls::getattr(3, &root)), Verdict::Forwarded);
    }
    sim.settle();
    assert_eq!(sim.store(A).ran.len(), 2);
}

/// A store may close the connection on a flavour that it does not know; sent again, the call would do so for ever.
#[test]
fn unknown_flavours_reach_no_store() {
    let mut sim = Sim::new(vec![Spec::default()]);
    let root = sim.cluster.root();
    let none = [0; 8];
    let unknown = [0, 0, 0, 77, 0, 0, 0, 4, 0, 0, 0, 1];
    let gss = [0, 0, 0, 6, 0, 0, 0, 4, 0, 0, 0, 1];
    let mut handle = Vec::new();
    xdr::put_opaque(&mut handle, &root);
    for peer in peers(&mut sim) {
        let mut xid = 0;
        for (credential, verifier, stat) in
            [(&unknown[..], &none[..], 1), (&none, &unknown, 3), (&none, &gss, 3), (&gss, &unknown, 5)]
        {
            xid += 1;
            let mut call = Vec::new();
            [xid, 0, 2, nfs3::PROGRAM, 3, 1].iter().for_each(|&word| xdr::put_u32(&mut call, word));
            [credential, verifier, &handle].iter().for_each(|part| call.extend_from_slice(part));
            assert_eq!(sim.send(peer, &call), Verdict::Answered);
            assert_eq!(words(sim.reply(peer, xid)), [1, 1, stat]);
        }
    }
    assert!(sim.store(A).ran.is_empty());
}

#[test]
fn fsinfo_is_equal_whoever_answers() {
    let sizes = |n: u32| [n << 20, n << 19, 512, n << 18, n << 17, 1, n << 16];
    let mut sim = Sim::new(vec![
        Spec { sizes: sizes(1), ..Spec::default() },
        Spec { sizes: sizes(64), ..Spec::default() },
    ]);
    let wanted = TransferSizes { read_max: 64 << 10, write_max: 48 << 10, readdir: 16 << 10 };
    sim.shared.set_transfer_sizes(wanted);
    let root = sim.cluster.root();
    let mut answers = Vec::new();
    for (xid, store) in [(1, A), (2, B)] {
        sim.assign(&root, store);
        for peer in peers(&mut sim) {
            let reply = sim.ask(peer, &calls::fsinfo(xid, &root));
            answers.push(reply[4..].to_vec());
        }
    }
    assert_eq!((sim.store(A).ran.len(), sim.store(B).ran.len()), (2, 2));
    assert!(answers.iter().all(|answer| *answer == answers[0]));
    let reply = [&[0; 4], &answers[0][..]].concat();
    let Results::Fsinfo { sizes_at } = results(Procedure::Fsinfo, &reply) else { panic!("not FSINFO") };
    let seven = [64 << 10, 64 << 10, 4096, 48 << 10, 48 << 10, 4096, 16 << 10];
    assert_eq!(words(&reply[sizes_at - 8..sizes_at + 28]), seven);
}

fn count_sent(message: &[u8]) -> u32 {
    let header = rpc::parse_call(message).unwrap();
    let procedure = Procedure::from_u32(header.procedure).unwrap();
    match nfs3::arguments(procedure, message, header.arguments).unwrap() {
        Arguments::Read { count, .. } | Arguments::Readdir { count, .. } => count,
        Arguments::Readdirplus { dircount, maxcount, .. } => {
            assert_eq!(dircount, maxcount);
            maxcount
        }
        Arguments::Write { count, data, .. } => {
            assert_eq!(count as usize, data.len());
            assert_eq!(data.end.next_multiple_of(4), message.len(), "nothing is left behind the data");
            count
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn calls_are_lowered_to_what_the_stores_and_clients_transports_carry() {
    const MOST: u32 = 32 << 10;
    for (spec, client, lowered) in
        [(Spec::datagram(), 0, true), (Spec::default(), 1, true), (Spec::default(), 0, false)]
    {
        let mut sim = Sim::new(vec![spec]);
        let root = sim.cluster.root();
        let file = sim.cluster.file(&root, "file");
        let peer = peers(&mut sim)[client];
        let large = 100_000;
        let expected = if lowered { MOST } else { large };
        for (xid, procedure, call) in [
            (1, Procedure::Read, calls::read(1, &file, 0, large)),
            (2, Procedure::Readdir, calls::readdir(2, &root, 0, [0; 8], large)),
            (3, Procedure::Readdirplus, calls::readdirplus(3, &root, 0, [0; 8], large)),
        ] {
            sim.ask(peer, &call);
            assert_eq!(count_sent(sim.store(A).calls(procedure)[0]), expected, "{procedure}");
            assert_eq!(status(procedure, sim.reply(peer, xid)), 0);
        }
        assert_eq!(page(Procedure::Readdir, sim.reply(peer, 2)).0.len(), 1);
        assert_eq!(sim.shards[client].switch.counters().lowered, if lowered { 3 } else { 0 });
    }
}

#[test]
fn a_write_of_too_much_is_shortened_and_the_client_sends_the_rest() {
    for most in [32 << 10, 10_001] {
        let mut sim = Sim::new(vec![Spec::datagram()]);
        sim.shared.stores[0].write_bytes_max.store(most, Ordering::Relaxed);
        let root = sim.cluster.root();
        let file = sim.cluster.file(&root, "file");
        let peer = sim.stream(0, 1);
        let data: Vec<u8> = (0..100_003_u32).map(|i| u8::try_from(i % 251).unwrap()).collect();
        let (mut done, mut xid) = (0, 0);
        while done < data.len() {
            xid += 1;
            let reply = sim.ask(peer, &calls::write(xid, &file, done as u64, FILE_SYNC, &data[done..]));
            let Results::Write { count, .. } = results(Procedure::Write, &reply) else { panic!("no WRITE") };
            assert!(count > 0 && count <= most);
            assert_eq!(count_sent(sim.store(A).calls(Procedure::Write)[xid as usize - 1]), count);
            done += count as usize;
        }
        assert_eq!(sim.cluster.data(&file), data);
        sim.settle();
    }
}
