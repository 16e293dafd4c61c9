//! What is answered to calls and to bytes that are none.

use super::raw::{
    MOUNT, NFS, NFSACL, NLM, Raw, ask_both, ask_udp, call, getattr, marked, opaque, udp, words,
};
use super::site::{PATIENCE, Site, counter, loopback};
use clockwork_wire::portmap::{self, Mapping};
use fstress_replay::client::{Transport, nfs};
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;

async fn root(site: &Site) -> nfs::Handle {
    nfs::mount(&site.client(Transport::Tcp).await, "/export").await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a01_any_split_of_a_record_gives_the_same_reply() {
    let site = Site::start(2).await;
    let root = root(&site).await;
    let message = getattr(7, &root);
    let whole = Raw::connect(site.address()).await.ask(&message).await;
    assert_eq!(words(&whole)[..7], [7, 1, 0, 0, 0, 0, 0], "GETATTR succeeds");

    let mut raw = Raw::connect(site.address()).await;
    for byte in marked(&message) {
        raw.send(&[byte]).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(raw.reply().await.unwrap(), whole, "a byte a segment");

    let mut fragments = Vec::new();
    let pieces = message.len().div_ceil(4);
    for (number, piece) in message.chunks(4).enumerate() {
        let last = if number + 1 == pieces { 0x8000_0000 } else { 0 };
        fragments.extend_from_slice(&(last | u32::try_from(piece.len()).unwrap()).to_be_bytes());
        fragments.extend_from_slice(piece);
    }
    raw.send(&fragments).await;
    assert_eq!(raw.reply().await.unwrap(), whole, "fragments of 4 bytes");

    raw.send(&[&[0; 4][..], &marked(&message)].concat()).await;
    assert_eq!(raw.reply().await.unwrap(), whole, "an empty fragment first");

    let other = getattr(8, &root);
    raw.send(&[marked(&message), marked(&other)].concat()).await;
    let mut both = [raw.reply().await.unwrap(), raw.reply().await.unwrap()];
    both.sort();
    assert_eq!(both[0], whole);
    assert_eq!((words(&both[1])[0], &both[1][4..]), (8, &whole[4..]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a02_hostile_marks_close_their_connection_and_no_other() {
    let site = Site::start(2).await;
    let root = root(&site).await;
    let mut good = Raw::connect(site.address()).await;
    let before = counter(&site.wait("status", |_| true).await, "framing_errors");
    let tricks: [&[u8]; 3] = [&[0xff; 4], b"\x13BitTorrent protocol", b"GET / HTTP/1.1\r\n\r\n"];
    for (number, bytes) in tricks.into_iter().enumerate() {
        let mut bad = Raw::connect(site.address()).await;
        let sent = Instant::now();
        bad.send(bytes).await;
        let mut rest = Vec::new();
        // Closed or reset, but with no reply.
        let _ = tokio::time::timeout(PATIENCE, bad.0.read_to_end(&mut rest)).await.expect("it stays open");
        assert!(sent.elapsed() < Duration::from_secs(1), "{:?}", sent.elapsed());
        assert!(rest.is_empty());
        let xid = u32::try_from(number).unwrap();
        assert_eq!(words(&good.ask(&getattr(xid, &root)).await)[6], 0, "others go on");
    }
    let after = counter(&site.wait("status", |_| true).await, "framing_errors");
    assert_eq!(after - before, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a03_what_is_not_served_is_refused_as_the_rfc_says() {
    let site = Site::start(2).await;
    let accepted = |xid, stat: &[u32]| [&[xid, 1, 0, 0, 0][..], stat].concat();
    let table = [
        ("NFS NULL", (NFS, 3, 0), vec![], &[0][..]),
        ("MOUNT NULL", (MOUNT, 3, 0), vec![], &[0][..]),
        ("MOUNT 1 NULL", (MOUNT, 1, 0), vec![], &[0][..]),
        ("NFS 4", (NFS, 4, 0), vec![], &[2, 3, 3][..]),
        ("NFS 2", (NFS, 2, 1), vec![], &[2, 3, 3][..]),
        ("MOUNT 2", (MOUNT, 2, 0), vec![], &[2, 1, 3][..]),
        ("NLM", (NLM, 4, 1), vec![], &[1][..]),
        ("NFSACL", (NFSACL, 3, 1), opaque(&[1; 8]), &[1][..]),
        ("unknown program", (0x2000_0000, 1, 0), vec![], &[1][..]),
        ("NFS procedure 22", (NFS, 3, 22), vec![], &[3][..]),
        ("MOUNT procedure 6", (MOUNT, 3, 6), vec![], &[3][..]),
        ("GETATTR without a handle", (NFS, 3, 1), vec![], &[4][..]),
        ("LOOKUP cut short", (NFS, 3, 3), [opaque(&[1; 8]), vec![0, 0, 0, 9, 65]].concat(), &[4][..]),
    ];
    for (number, (what, target, arguments, stat)) in table.into_iter().enumerate() {
        let xid = 100 + u32::try_from(number).unwrap();
        let reply = ask_both(site.address(), &call(xid, target, &arguments)).await;
        assert_eq!(words(&reply), accepted(xid, stat), "{what}");
    }
    let mut other_rpc = call(9, (NFS, 3, 0), &[]);
    other_rpc[8..12].copy_from_slice(&3_u32.to_be_bytes());
    let reply = ask_both(site.address(), &other_rpc).await;
    assert_eq!(words(&reply), [9, 1, 1, 0, 2, 2], "RPC_MISMATCH");
}

fn getport(xid: u32, program: u32, version: u32, protocol: u32) -> Vec<u8> {
    let mut arguments = Vec::new();
    Mapping { program, version, protocol, port: 0 }.put(&mut arguments);
    call(xid, (portmap::PROGRAM, 2, 3), &arguments)
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    std::net::TcpListener::bind(loopback(0)).unwrap().local_addr().unwrap().port()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a04_the_portmapper_says_exactly_what_is_served() {
    let portmapper = loopback(free_port());
    let site = Site::with(1, |config| {
        config.listen.portmapper = Some(portmapper);
        config.listen.tcp = false;
    });
    let site = site.await;
    let nfs_port = u32::from(site.address().port());
    for (program, version, protocol, port) in [
        (NFS, 3, portmap::UDP, nfs_port),
        (MOUNT, 3, portmap::UDP, nfs_port),
        (MOUNT, 1, portmap::UDP, nfs_port),
        (NFS, 3, portmap::TCP, 0),
        (MOUNT, 3, portmap::TCP, 0),
        (NFS, 2, portmap::UDP, 0),
        (NLM, 4, portmap::UDP, 0),
        (NLM, 4, portmap::TCP, 0),
    ] {
        let reply = ask_both(portmapper, &getport(5, program, version, protocol)).await;
        assert_eq!(words(&reply), [5, 1, 0, 0, 0, 0, port], "{program} {version} {protocol}");
    }
    let dump = words(&ask_both(portmapper, &call(6, (portmap::PROGRAM, 2, 4), &[])).await);
    let listed: Vec<&[u32]> = dump[6..].chunks_exact(5).map(|entry| &entry[1..4]).collect();
    let served = [
        [portmap::PROGRAM, 2, portmap::TCP],
        [portmap::PROGRAM, 2, portmap::UDP],
        [NFS, 3, portmap::UDP],
        [MOUNT, 1, portmap::UDP],
        [MOUNT, 3, portmap::UDP],
    ];
    assert_eq!(listed, served);
    // rpcbind's versions: clients fall back.
    let reply = ask_both(portmapper, &call(7, (portmap::PROGRAM, 4, 3), &[])).await;
    assert_eq!(words(&reply), [7, 1, 0, 0, 0, 2, 2, 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a04_hostile_bytes_do_not_stop_the_portmapper() {
    let portmapper = loopback(free_port());
    let site = Site::with(1, |config| config.listen.portmapper = Some(portmapper)).await;
    let socket = udp(portmapper).await;
    for bytes in [&b""[..], b"x", &[0xff; 2000], &[0; 64]] {
        socket.send(bytes).await.unwrap();
        let mut bad = Raw::connect(portmapper).await;
        bad.send(&[&[0xff; 4][..], bytes].concat()).await;
        let mut rest = Vec::new();
        let _ = tokio::time::timeout(PATIENCE, bad.0.read_to_end(&mut rest)).await.expect("it stays open");
    }
    let reply = ask_udp(&socket, &getport(1, NFS, 3, portmap::TCP)).await;
    assert_eq!(words(&reply)[6], u32::from(site.address().port()));
    let status = site.wait("drops", |status| counter(status, "portmap_dropped") >= 7).await;
    assert!(counter(&status, "portmap_answered") >= 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a05_mount_is_complete_over_both_transports() {
    let site = Site::with(2, |config| {
        let mut closed = config.exports[0].clone();
        closed.path = clockwork_router::config::ExportPath::parse("/closed").unwrap();
        closed.clients = vec!["10.0.0.0/8".parse().unwrap()];
        config.exports.push(closed);
        for store in &mut config.stores {
            store.export = clockwork_router::config::ExportPath::parse("/export");
        }
    });
    let site = site.await;
    let root = root(&site).await;
    let (ok, noent, acces) = (0, 2, 13);
    let paths =
        [("/export", ok), ("/export/", ok), ("//export", ok), ("/nothing", noent), ("/closed", acces)];
    for (path, status) in paths {
        for procedure in 0..6 {
            let arguments = if matches!(procedure, 1 | 3) { opaque(path.as_bytes()) } else { Vec::new() };
            let reply = ask_both(site.address(), &call(3, (MOUNT, 3, procedure), &arguments)).await;
            let words = words(&reply);
            assert_eq!(words[..6], [3, 1, 0, 0, 0, 0], "procedure {procedure} of {path}");
            match procedure {
                1 => {
                    assert_eq!(words[6], status, "MNT {path}");
                    if status == ok {
                        assert_eq!(reply[28..28 + 4 + root.len()], opaque(&root)[..4 + root.len()], "{path}");
                    }
                }
                0 | 3 | 4 => assert_eq!(words.len(), 6, "procedure {procedure} has no results"),
                5 => {
                    let text = String::from_utf8_lossy(&reply);
                    assert!(text.contains("/export") && text.contains("/closed"), "{text}");
                }
                _ => {}
            }
        }
    }
}

/// 200 replies of 1 MiB would be kept for a client that takes none of them; it is read no further long before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_reads_no_replies_is_read_no_further() {
    const READS: u32 = 200;
    const READ_BYTES: u32 = 1 << 20;
    let site = Site::start(1).await;
    let root = root(&site).await;
    let client = site.client(Transport::Tcp).await;
    let file = std::fs::File::create(site.folder.path().join("large")).unwrap();
    file.set_len(u64::from(READ_BYTES)).unwrap();
    let (large, _) = nfs::lookup(&client, &root, "large").await.unwrap();

    let before = counter(&site.wait("status", |_| true).await, "forwarded");
    let mut greedy = Raw::connect(site.address()).await;
    for xid in 0..READS {
        let arguments = [&opaque(&large)[..], &[0; 8], &READ_BYTES.to_be_bytes()].concat();
        greedy.send(&marked(&call(xid, (NFS, 3, 6), &arguments))).await;
    }
    let taken = || async { counter(&site.wait("status", |_| true).await, "forwarded") - before };
    let mut seen = 0;
    // Until no more are taken.
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = taken().await;
        if now == seen {
            break;
        }
        seen = now;
    }
    assert!((1..=40).contains(&seen), "{seen} calls taken");

    // Others go on, and so does this one as soon as it reads.
    let mut good = Raw::connect(site.address()).await;
    assert_eq!(words(&good.ask(&getattr(1, &root)).await)[6], 0);
    for _ in 0..READS {
        let reply = greedy.reply().await.expect("the connection was closed");
        assert!(reply.len() > READ_BYTES as usize);
    }
}
