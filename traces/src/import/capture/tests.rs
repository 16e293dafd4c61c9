use super::*;
use proptest::prelude::*;

mod names;

const CLIENT: [u8; 4] = [10, 0, 0, 1];
const SERVER: [u8; 4] = [10, 0, 0, 2];

/// A call on a handle; READ and WRITE with offset 4,096 and count 512.
fn call(xid: u32, procedure: Procedure, handle: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    for word in [xid, 0, 2, NFS_PROGRAM, 3, procedure.number(), 0, 0, 0, 0] {
        message.extend(word.to_be_bytes());
    }
    message.extend(u32::try_from(handle.len()).unwrap().to_be_bytes());
    message.extend(handle);
    message.resize(message.len().next_multiple_of(4), 0);
    message.extend(4_096_u64.to_be_bytes());
    message.extend(512_u32.to_be_bytes());
    message
}

fn record(message: &[u8]) -> Vec<u8> {
    let mark = 1 << 31 | u32::try_from(message.len()).unwrap();
    [&mark.to_be_bytes()[..], message].concat()
}

/// An IPv4 packet between two addresses.
fn ipv4_between(from: [u8; 4], to: [u8; 4], protocol: u8, transport: &[u8]) -> Vec<u8> {
    let length = u16::try_from(20 + transport.len()).unwrap().to_be_bytes();
    let mut packet = vec![0x45, 0, length[0], length[1], 0, 0, 0, 0, 64, protocol, 0, 0];
    packet.extend(from);
    packet.extend(to);
    packet.extend(transport);
    packet
}

fn ethernet(packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([0x08, 0x00]);
    frame.extend(packet);
    frame
}

fn ip(protocol: u8, transport: &[u8]) -> Vec<u8> {
    ethernet(&ipv4_between(CLIENT, SERVER, protocol, transport))
}

/// A datagram of the server, and a segment.
fn udp_back(payload: &[u8]) -> Vec<u8> {
    let datagram = [&[8, 1, 3, 0, 0, 0, 0, 0], payload].concat();
    ethernet(&ipv4_between(SERVER, CLIENT, 17, &datagram))
}

fn tcp_back(sequence: u32, payload: &[u8]) -> Vec<u8> {
    let mut segment = vec![8, 1, 3, 1];
    segment.extend(sequence.to_be_bytes());
    segment.extend([0, 0, 0, 0, 0x50, 16, 0, 0, 0, 0, 0, 0]);
    segment.extend(payload);
    ethernet(&ipv4_between(SERVER, CLIENT, 6, &segment))
}

fn opaque(bytes: &[u8]) -> Vec<u8> {
    let mut out = u32::try_from(bytes.len()).unwrap().to_be_bytes().to_vec();
    out.extend(bytes);
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

/// A call with these arguments.
fn call_with(xid: u32, program: u32, procedure: u32, arguments: &[Vec<u8>]) -> Vec<u8> {
    let mut message: Vec<u8> =
        [xid, 0, 2, program, 3, procedure, 0, 0, 0, 0].iter().flat_map(|word| word.to_be_bytes()).collect();
    message.extend(arguments.concat());
    message
}

fn named(xid: u32, procedure: Procedure, directory: &[u8], name: &str) -> Vec<u8> {
    call_with(xid, NFS_PROGRAM, procedure.number(), &[opaque(directory), opaque(name.as_bytes())])
}

/// An accepted reply with these results, which begin with the status.
fn reply(xid: u32, results: &[Vec<u8>]) -> Vec<u8> {
    let mut message: Vec<u8> = [xid, 1, 0, 0, 0, 0].iter().flat_map(|word| word.to_be_bytes()).collect();
    message.extend(results.concat());
    message
}

fn word(value: u32) -> Vec<u8> {
    value.to_be_bytes().to_vec()
}

fn udp(payload: &[u8]) -> Vec<u8> {
    let mut datagram = vec![3, 0, 8, 1, 0, 0, 0, 0];
    datagram.extend(payload);
    ip(17, &datagram)
}

fn tcp(sequence: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut segment = vec![3, 1, 8, 1];
    segment.extend(sequence.to_be_bytes());
    segment.extend([0, 0, 0, 0, 0x50, flags, 0, 0, 0, 0, 0, 0]);
    segment.extend(payload);
    ip(6, &segment)
}

fn pcap(packets: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0];
    for (index, packet) in packets.iter().enumerate() {
        let length = u32::try_from(packet.len()).unwrap();
        for word in [1_000 + u32::try_from(index).unwrap(), 0, length, length] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(packet);
    }
    bytes
}

fn pcapng(packets: &[Vec<u8>]) -> Vec<u8> {
    let block = |kind: u32, body: &[u8]| {
        let mut body = body.to_vec();
        body.resize(body.len().next_multiple_of(4), 0);
        let length = u32::try_from(body.len() + 12).unwrap().to_le_bytes();
        [&kind.to_le_bytes()[..], &length, &body, &length].concat()
    };
    let mut section = 0x1a2b_3c4d_u32.to_le_bytes().to_vec();
    section.extend([1, 0, 0, 0]);
    section.extend([0xff; 8]);
    let mut bytes = block(0x0a0d_0d0a, &section);
    bytes.extend(block(1, &[1, 0, 0, 0, 0, 0, 4, 0]));
    for (index, packet) in packets.iter().enumerate() {
        let time = (1_000 + index as u64) * 1_000_000;
        let length = u32::try_from(packet.len()).unwrap();
        let mut body = Vec::new();
        for word in [0, (time >> 32) as u32, time as u32, length, length] {
            body.extend(word.to_le_bytes());
        }
        body.extend(packet);
        bytes.extend(block(6, &body));
    }
    bytes
}

/// A capture with calls and replies of many kinds, over UDP and TCP.
pub(in super::super) fn sample(is_pcapng: bool) -> Vec<u8> {
    let mount = call_with(1, mount::PROGRAM, 1, &[opaque(b"/e")]);
    let list = call_with(9, NFS_PROGRAM, Procedure::Readdirplus.number(), &[opaque(b"root"), vec![0; 24]]);
    let stream = [record(&call(10, Procedure::Write, b"w")), record(&list)].concat();
    let rename = [opaque(b"root"), opaque(b"a"), opaque(b"root"), opaque(b"b")];
    let mut packets = vec![
        udp(&mount),
        udp_back(&reply(1, &[word(0), opaque(b"root"), word(1), word(1)])),
        udp(&named(2, Procedure::Lookup, b"root", "a")),
        udp_back(&reply(2, &[word(0), opaque(b"A"), word(1), vec![0; 84], word(0)])),
        udp(&call(3, Procedure::Read, b"A")),
        udp(&call_with(4, NFS_PROGRAM, Procedure::Rename.number(), &rename)),
        udp_back(&reply(4, &[word(0), word(0), word(0)])),
        udp(&named(5, Procedure::Remove, b"root", "b")),
        udp_back(&reply(5, &[word(0), word(0)])),
        tcp(99, 2, b""),
        tcp(100, 16, &stream[..70]),
        tcp(170, 16, &stream[70..]),
        tcp_back(500, &record(&reply(9, &names::listing(&[("x".into(), b"X".to_vec())])))),
    ];
    packets.extend((20..60).map(|xid| udp(&call(xid, Procedure::Getattr, &[b'h', xid as u8 % 9]))));
    if is_pcapng { pcapng(&packets) } else { pcap(&packets) }
}

/// Time, name, bytes, and whether it writes data.
type Shown = Vec<(i64, String, u64, bool)>;

fn seen(bytes: &[u8], is_pcapng: bool) -> (Shown, Vec<Packet>, bool) {
    let (mut calls, mut packets) = (Vec::new(), Vec::new());
    let end = read(
        bytes,
        is_pcapng,
        |seen| {
            if let Seen::Call(r) = seen {
                let name = String::from_utf8_lossy(r.target).into_owned();
                calls.push((r.unix_s, name, r.sent + r.taken, r.writes == 1));
            }
        },
        |packet| {
            packets.push(packet);
            true
        },
    );
    (calls, packets, matches!(end.unwrap(), End::Whole))
}

#[test]
fn calls_over_udp_and_tcp_are_found_in_both_forms_of_capture() {
    let read = record(&call(2, Procedure::Read, b"\x02\x03"));
    let write = record(&call(3, Procedure::Write, b"w"));
    let both = [read.clone(), write].concat();
    let packets = [
        udp(&call(1, Procedure::Getattr, b"\xab")),
        tcp(99, 2, b""),
        tcp(100, 16, &both[..50]),
        tcp(100, 16, &both[..50]),
        tcp(100 + 90, 16, &both[90..]),
        tcp(100 + 50, 16, &both[50..90]),
        udp(&call(1, Procedure::Getattr, b"\xab")),
        ip(1, b"an echo"),
    ];
    let wanted = vec![
        (1_000, "fh:ab".to_owned(), 0, false),
        (1_005, "fh:0203".to_owned(), 512, false),
        (1_005, "fh:77".to_owned(), 512, true),
    ];
    for is_pcapng in [false, true] {
        let bytes = if is_pcapng { pcapng(&packets) } else { pcap(&packets) };
        let (calls, results, whole) = seen(&bytes, is_pcapng);
        assert_eq!((&calls, results.len(), whole), (&wanted, 8, true));
        assert_eq!((results[0], results[5], results[7]), (Packet::Calls(1), Packet::Calls(2), Packet::Other));
    }
}

#[test]
fn a_stream_without_its_beginning_is_entered_at_a_call_and_again_after_a_loss() {
    let one = record(&call(1, Procedure::Getattr, b"1"));
    let two = record(&call(2, Procedure::Getattr, b"2"));
    let mut packets = vec![tcp(5, 16, b"the end of a record"), tcp(1_000, 16, &one)];
    // What follows is lost; calls go on behind the gap, one a segment.
    packets.extend((0..40_u32).map(|n| {
        tcp(
            5_000 + n * u32::try_from(two.len()).unwrap(),
            16,
            &record(&call(10 + n, Procedure::Getattr, b"2")),
        )
    }));
    let (calls, _, _) = seen(&pcap(&packets), false);
    assert_eq!(calls.len(), 41);
}

#[test]
fn a14_a_capture_that_is_cut_mid_packet_gives_what_came_before() {
    let packets = [udp(&call(1, Procedure::Getattr, b"a")), udp(&call(2, Procedure::Getattr, b"b"))];
    for (bytes, is_pcapng) in [(pcap(&packets), false), (pcapng(&packets), true)] {
        let (calls, _, whole) = seen(&bytes[..bytes.len() - 9], is_pcapng);
        assert_eq!((calls.len(), whole), (1, false), "{is_pcapng}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(
        noise in prop::collection::vec(any::<u8>(), 0..120), at in any::<prop::sample::Index>(), is_pcapng in any::<bool>(),
    ) {
        let packets = [
            udp(&call(1, Procedure::Write, b"a")),
            tcp(9, 2, b""),
            tcp(10, 16, &noise),
            tcp(10 + 50, 16, &record(&call(2, Procedure::Read, b"b"))),
            ip(17, &noise),
            udp(&named(7, Procedure::Lookup, b"d", "n")),
            udp_back(&reply(7, &[word(0), noise.clone()])),
            udp(&call_with(8, NFS_PROGRAM, Procedure::Readdirplus.number(), &[opaque(b"d"), vec![0; 24]])),
            udp_back(&reply(8, &[word(0), word(0), vec![0; 8], noise.clone()])),
            udp(&call_with(9, mount::PROGRAM, 1, std::slice::from_ref(&noise))),
            udp_back(&reply(9, &[word(0), noise.clone()])),
        ];
        let mut bytes = if is_pcapng { pcapng(&packets) } else { pcap(&packets) };
        seen(&bytes, is_pcapng);
        let at = at.index(bytes.len());
        for (to, from) in bytes[at..].iter_mut().zip(&noise) {
            *to = *from;
        }
        seen(&bytes, is_pcapng);
        let _ = segment(Linktype::RAW, &noise);
        let _ = segment(Linktype::ETHERNET, &noise);
    }
}

#[test]
fn packets_that_are_cut_to_a_length_show_the_calls_at_their_beginnings() {
    // As `tcpdump -s 160` keeps them: of a WRITE of 4,000 bytes in three segments, and of what follows it.
    let mut write = call(1, Procedure::Write, b"w");
    write.resize(4_000, 7);
    let read = |xid| record(&call(xid, Procedure::Read, b"r"));
    let stream = [record(&write), read(2), read(3), read(4)].concat();
    let cut = |frame: Vec<u8>| frame[..frame.len().min(160)].to_vec();
    let segments = |sizes: &[usize]| {
        let mut at = 0;
        let one = |size: &usize| {
            let segment = tcp(100 + u32::try_from(at).unwrap(), 16, &stream[at..at + size]);
            at += size;
            cut(segment)
        };
        sizes.iter().map(one).collect::<Vec<_>>()
    };
    let names = |packets: &[Vec<u8>]| {
        let calls = seen(&pcap(packets), false).0;
        calls.into_iter().map(|(_, name, ..)| name).collect::<Vec<_>>()
    };
    let one = read(2).len();
    // Each READ begins a segment, or follows another in one that is not cut.
    assert_eq!(
        names(&segments(&[1_448, 1_448, 4_004 - 2 * 1_448, one, one, one])),
        ["fh:77", "fh:72", "fh:72", "fh:72"]
    );
    // The first READ stands behind the hole of a segment: it is lost, and the stream is entered again with the next.
    assert_eq!(
        names(&segments(&[1_448, 1_448, 4_004 - 2 * 1_448 + one, one, one])),
        ["fh:77", "fh:72", "fh:72"]
    );
    // Segments that come in another order.
    let mut swapped = segments(&[1_448, 1_448, 4_004 - 2 * 1_448, one, one, one]);
    swapped.swap(1, 2);
    assert_eq!(names(&swapped), ["fh:77", "fh:72", "fh:72", "fh:72"]);
    // Over UDP a call is cut behind what is needed of it.
    let datagram = cut(udp(&write));
    assert_eq!(names(&[datagram]), ["fh:77"]);
}

#[test]
fn a_datagram_in_fragments_counts_once_by_its_first_one() {
    let mut write = call(1, Procedure::Write, b"w");
    write.resize(2_500, 7);
    let datagram = [&[3, 0, 8, 1, 0, 0, 0, 0][..], &write].concat();
    let fragment = |from: usize, until: usize| {
        let mut packet = ipv4_between(CLIENT, SERVER, 17, &datagram[from..until.min(datagram.len())]);
        let more = if until < datagram.len() { 0x2000 } else { 0 };
        packet[6..8].copy_from_slice(&(more | u16::try_from(from / 8).unwrap()).to_be_bytes());
        ethernet(&packet)
    };
    let mut packets = vec![fragment(0, 1_480), fragment(1_480, 2_960)];
    let (calls, results, _) = seen(&pcap(&packets), false);
    assert_eq!(calls, [(1_000, "fh:77".to_owned(), 512, true)]);
    assert_eq!(results, [Packet::Calls(1), Packet::Other]);
    packets.swap(0, 1);
    assert_eq!(seen(&pcap(&packets), false).0.len(), 1);
}

#[test]
fn every_link_layer_and_ipv6_is_read() {
    let datagram = [&[3, 0, 8, 1, 0, 0, 0, 0][..], &call(1, Procedure::Getattr, b"f")].concat();
    let v4 = ipv4_between(CLIENT, SERVER, 17, &datagram);
    let length = u16::try_from(8 + 8 + datagram.len()).unwrap().to_be_bytes();
    // Destination options of 8 bytes before the datagram.
    let mut v6 = vec![0x60, 0, 0, 0, length[0], length[1], 60, 64];
    v6.extend([0xfe; 32]);
    v6.extend([44, 0, 1, 4, 0, 0, 0, 0]);
    v6.extend([17, 0, 0, 1, 0, 0, 0, 7]);
    v6.extend(&datagram);
    let with = |head: &[u8], packet: &[u8]| [head, packet].concat();
    let vlan = |kinds: &[u8]| [&[0; 12][..], kinds].concat();
    for (name, link, frame) in [
        ("ethernet", Linktype::ETHERNET, ethernet(&v4)),
        ("vlan", Linktype::ETHERNET, with(&vlan(&[0x81, 0, 0, 7, 8, 0]), &v4)),
        ("two vlans", Linktype::ETHERNET, with(&vlan(&[0x88, 0xa8, 0, 7, 0x81, 0, 0, 8, 0x86, 0xdd]), &v6)),
        ("cooked", Linktype::LINUX_SLL, with(&[&[0; 14][..], &[8, 0]].concat(), &v4)),
        (
            "cooked vlan",
            Linktype::LINUX_SLL,
            with(&[&[0; 14][..], &[0x81, 0, 0, 7, 0x86, 0xdd]].concat(), &v6),
        ),
        ("cooked 2", Linktype(276), with(&[&[0x86, 0xdd][..], &[0; 18]].concat(), &v6)),
        ("loopback", Linktype::NULL, with(&[2, 0, 0, 0], &v4)),
        ("raw", Linktype::RAW, v6.clone()),
        ("old raw", Linktype(12), v4.clone()),
    ] {
        let segment = segment(link, &frame).unwrap_or_else(|()| panic!("{name}")).unwrap();
        assert_eq!((segment.transport, segment.client_port), (Transport::Udp, 0x300), "{name}");
        assert_eq!(segment.payload, &datagram[8..], "{name}");
    }
    // A later fragment has no ports; a packet that is cut within its headers is bad.
    let mut fragment = v6.clone();
    fragment[40 + 8 + 3] = 8;
    assert_eq!(segment(Linktype::RAW, &fragment), Ok(None));
    assert_eq!(segment(Linktype::RAW, &v6[..44]), Err(()));
    assert_eq!(segment(Linktype(147), &v4), Ok(None), "a link layer that is not known");
}
