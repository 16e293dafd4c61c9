use super::*;
use proptest::prelude::*;

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

fn ip(protocol: u8, transport: &[u8]) -> Vec<u8> {
    let length = u16::try_from(20 + transport.len()).unwrap().to_be_bytes();
    let mut packet = vec![0x45, 0, length[0], length[1], 0, 0, 0, 0, 64, protocol, 0, 0];
    packet.extend(CLIENT);
    packet.extend(SERVER);
    packet.extend(transport);
    let mut frame = vec![0; 12];
    frame.extend([0x08, 0x00]);
    frame.extend(packet);
    frame
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

type Seen = Vec<(i64, String, u64, bool)>;

fn seen(bytes: &[u8], is_pcapng: bool) -> (Seen, Vec<Packet>, bool) {
    let (mut calls, mut packets) = (Vec::new(), Vec::new());
    let end = read(
        bytes,
        is_pcapng,
        |r| calls.push((r.unix_s, String::from_utf8_lossy(r.target).into_owned(), r.bytes, r.writes)),
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
