//! What `nfs3_server` must never see, and what clients may do all the same.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use clockwork_router::store::DeviceSpec;
use clockwork_wire::record;
use clockwork_wire::rpc::{ReplyBody, parse_reply};
use nfs3_types::nfs3::*;
use nfs3_types::xdr_codec::{Opaque, Void};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::client::{Client, Raw, by_path, store};

const NONE: DeviceSpec = DeviceSpec::none();
const GETATTR: u32 = 1;

fn memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn a02_hostile_marks_close_their_own_connection_and_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let running = store("a", &by_path(directory.path()), NONE).await;
    let mut client = Client::mount(&running).await;
    let root = client.root.clone();
    let before_kib = memory_kib();
    // Another protocol, a mark of 512 MiB, a reply in the place of a call, and a call's header that ends early.
    let reply = [&record::mark(24)[..], &[0, 0, 0, 9, 0, 0, 0, 1], &[0; 16]].concat();
    let short = [&record::mark(8)[..], &[0, 0, 0, 9, 0, 0, 0, 0]].concat();
    let hostile: [&[u8]; 6] = [
        b"\xff\xff\xff\xff",
        b"\x13BitTorrent protocol",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xa0\0\0\0",
        &reply,
        &short,
    ];
    for (n, bytes) in hostile.iter().enumerate() {
        let mut raw = Raw::connect(&running).await;
        raw.send(bytes).await;
        let begin = Instant::now();
        let mut end = Vec::new();
        let read = tokio::time::timeout(Duration::from_secs(1), raw.0.read_to_end(&mut end)).await;
        assert!(read.is_ok(), "{bytes:?}: still open after {:?}", begin.elapsed());
        assert_eq!(end, b"", "{bytes:?}");
        assert_eq!(running.counts().connections_hostile, n as u64 + 1);
        client.getattr(&root).await.unwrap();
    }
    let grown_kib = memory_kib().saturating_sub(before_kib);
    assert!(grown_kib < 64 * 1024, "grown by {grown_kib} KiB");
}

#[tokio::test]
async fn repeated_xids_are_all_answered() {
    let directory = tempfile::tempdir().unwrap();
    let running = store("a", &by_path(directory.path()), NONE).await;
    let root = Client::mount(&running).await.root;
    let mut raw = Raw::connect(&running).await;
    let call = Raw::call(77, GETATTR, &GETATTR3args { object: root });
    // At once, and again later.
    for times in [3, 1, 1] {
        raw.send(&call.repeat(times)).await;
        for _ in 0..times {
            let reply = raw.reply().await.unwrap();
            let header = parse_reply(&reply).unwrap();
            assert_eq!(header.xid, 77);
            let ReplyBody::Accepted { stat: 0, results } = header.body else { panic!("{header:?}") };
            assert_eq!(reply[results..results + 4], [0; 4]);
        }
    }
}

#[tokio::test]
async fn four_hundred_calls_at_once_and_a_closed_sending_side_lose_no_reply() {
    let directory = tempfile::tempdir().unwrap();
    let device = DeviceSpec { metadata_us: 200.0, ..NONE };
    let running = store("a", &by_path(directory.path()), device).await;
    let root = Client::mount(&running).await.root;
    let mut raw = Raw::connect(&running).await;
    let calls: Vec<u8> =
        (0..400).flat_map(|xid| Raw::call(xid, GETATTR, &GETATTR3args { object: root.clone() })).collect();
    raw.send(&calls).await;
    raw.0.shutdown().await.unwrap();
    let mut answered = HashSet::new();
    while let Some(reply) = raw.reply().await {
        let header = parse_reply(&reply).unwrap();
        assert!(matches!(header.body, ReplyBody::Accepted { stat: 0, .. }), "{header:?}");
        assert!(answered.insert(header.xid));
    }
    assert_eq!(answered.len(), 400);
}

#[tokio::test]
async fn every_split_of_a_call_is_the_same_call() {
    let directory = tempfile::tempdir().unwrap();
    let running = store("a", &by_path(directory.path()), NONE).await;
    let root = Client::mount(&running).await.root;
    let mut raw = Raw::connect(&running).await;
    let whole = Raw::call(5, GETATTR, &GETATTR3args { object: root });
    let message = &whole[4..];
    let mut fragments = vec![0, 0, 0, 0];
    for (n, piece) in message.chunks(4).enumerate() {
        let last = (n + 1) * 4 >= message.len();
        let mark = u32::try_from(piece.len()).unwrap() | if last { record::LAST_FRAGMENT } else { 0 };
        fragments.extend_from_slice(&mark.to_be_bytes());
        fragments.extend_from_slice(piece);
    }
    raw.send(&whole).await;
    let wanted = raw.reply().await.unwrap();
    raw.send(&fragments).await;
    assert_eq!(raw.reply().await.unwrap(), wanted);
    for byte in &whole {
        raw.send(std::slice::from_ref(byte)).await;
    }
    assert_eq!(raw.reply().await.unwrap(), wanted);
}

#[tokio::test]
async fn malformed_calls_are_answered_as_the_rfc_says_and_cost_no_memory() {
    let directory = tempfile::tempdir().unwrap();
    let running = store("a", &by_path(directory.path()), NONE).await;
    let mut client = Client::mount(&running).await;
    let root = client.root.clone();
    let header = |program: u32, version: u32, procedure: u32, credential: &[u8]| {
        let mut call = vec![0; 4];
        clockwork_wire::rpc::begin_call(&mut call, 1, program, version, procedure, credential);
        call
    };
    let none = clockwork_wire::rpc::AUTH_NONE_CREDENTIAL;
    // AUTH_SYS: stamp, empty name, uid, gid, 2^32 - 1 groups.
    let groups = [&[0, 0, 0, 1, 0, 0, 0, 20][..], &[0; 16], &[0xff; 4]].concat();
    let long_handle = [header(100_003, 3, GETATTR, &none), vec![0xff; 8]].concat();
    let bad_credential = 1;
    let cases: [(&str, Vec<u8>, Option<u32>); 6] = [
        ("too many groups", header(100_003, 3, 0, &groups), None),
        ("a handle of 4 GiB", long_handle, Some(4)),
        ("no arguments", header(100_003, 3, GETATTR, &none), Some(4)),
        ("another version", header(100_003, 4, 0, &none), Some(2)),
        ("procedure 22", header(100_003, 3, 22, &none), Some(3)),
        ("another program", header(400_000, 1, 0, &none), Some(1)),
    ];
    let mut raw = Raw::connect(&running).await;
    for (what, mut call, stat) in cases {
        let mark = record::mark(call.len() - 4);
        call[..4].copy_from_slice(&mark);
        raw.send(&call).await;
        let reply = raw.reply().await.expect(what);
        match (parse_reply(&reply).unwrap().body, stat) {
            (ReplyBody::Accepted { stat: found, .. }, Some(wanted)) => assert_eq!(found, wanted, "{what}"),
            // MSG_DENIED, AUTH_ERROR, AUTH_BADCRED.
            (ReplyBody::Denied, None) => {
                assert_eq!(reply[8..], [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, bad_credential])
            }
            other => panic!("{what}: {other:?}"),
        }
    }
    client.getattr(&root).await.unwrap();
}

#[tokio::test]
async fn the_portmapper_gives_the_guards_port() {
    use nfs3_types::portmap::mapping;
    use nfs3_types::xdr_codec::Pack;
    let directory = tempfile::tempdir().unwrap();
    let running = store("a", &by_path(directory.path()), NONE).await;
    let mut raw = Raw::connect(&running).await;
    for (prog, vers, prot, port) in [
        (100_003, 3, 6, u32::from(running.address.port())),
        (100_005, 3, 6, u32::from(running.address.port())),
        (100_003, 3, 17, 0),
        (100_003, 2, 6, 0),
    ] {
        let mut call = vec![0; 4];
        let none = clockwork_wire::rpc::AUTH_NONE_CREDENTIAL;
        clockwork_wire::rpc::begin_call(&mut call, 3, 100_000, 2, 3, &none);
        mapping { prog, vers, prot, port: 0 }.pack(&mut call).unwrap();
        let mark = record::mark(call.len() - 4);
        call[..4].copy_from_slice(&mark);
        raw.send(&call).await;
        let reply = raw.reply().await.unwrap();
        assert_eq!(reply[24..], port.to_be_bytes(), "program {prog} version {vers} over {prot}");
    }
    raw.send(&Raw::call(9, 0, &Void)).await;
    assert!(raw.reply().await.is_some(), "NFS answers on the same connection");
}

#[tokio::test]
async fn large_transfers_back_to_back_keep_their_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let running = store("a", &by_path(directory.path()), NONE).await;
    let mut client = Client::mount(&running).await;
    let root = client.root.clone();
    let file = client.make(&root, "f").await;
    let mut raw = Raw::connect(&running).await;
    let block = |n: u64| vec![u8::try_from(n).unwrap() ^ 0x5a; 1 << 20];
    // More bytes than the store holds for one connection at once.
    for n in 0..48 {
        let data = block(n);
        let args = WRITE3args {
            file: file.clone(),
            offset: n << 20,
            count: 1 << 20,
            stable: stable_how::UNSTABLE,
            data: Opaque::borrowed(&data),
        };
        raw.send(&Raw::call(u32::try_from(n).unwrap(), 7, &args)).await;
    }
    for _ in 0..48 {
        raw.reply().await.unwrap();
    }
    for n in 0..48 {
        let args = READ3args { file: file.clone(), offset: n << 20, count: u32::MAX };
        raw.send(&Raw::call(u32::try_from(n).unwrap(), 6, &args)).await;
    }
    for _ in 0..48 {
        let reply = raw.reply().await.unwrap();
        let n = u64::from(parse_reply(&reply).unwrap().xid);
        assert!(reply.ends_with(&block(n)), "block {n}");
    }
}
