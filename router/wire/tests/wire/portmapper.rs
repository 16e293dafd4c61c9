//! The portmapper as its clients see it.

use clockwork_wire::portmap::{Handled, Mapping, TCP, UDP, answer};
use clockwork_wire::rpc::{AUTH_NONE_CREDENTIAL, begin_call};
use nfs3_types::portmap::pmaplist;

use crate::samples::unpack_all;

/// NFS over both transports, MOUNT over TCP only.
const SERVED: [Mapping; 4] = [
    Mapping { program: 100_000, version: 2, protocol: TCP, port: 111 },
    Mapping { program: 100_003, version: 3, protocol: TCP, port: 2049 },
    Mapping { program: 100_003, version: 3, protocol: UDP, port: 2050 },
    Mapping { program: 100_005, version: 3, protocol: TCP, port: 20048 },
];

fn call(program: u32, version: u32, procedure: u32, arguments: &[u32]) -> (Handled, Vec<u32>) {
    let mut message = Vec::new();
    begin_call(&mut message, 99, program, version, procedure, &AUTH_NONE_CREDENTIAL);
    message.extend(arguments.iter().flat_map(|word| word.to_be_bytes()));
    let mut out = Vec::new();
    let handled = answer(&message, &SERVED, &mut out);
    let words = out.chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect();
    (handled, words)
}

#[test]
fn a04_getport_gives_what_is_served_and_0_for_all_else() {
    let cases = [
        (100_003, 3, UDP, 2050),
        (100_003, 3, TCP, 2049),
        (100_005, 3, TCP, 20048),
        (100_005, 3, UDP, 0), // a transport that is off
        (100_005, 1, TCP, 0),
        (100_003, 2, TCP, 0),
        (100_003, 4, TCP, 0),
        (100_021, 4, TCP, 0),
        (100_021, 4, UDP, 0),
        (100_003, 3, 0, 0),
    ];
    for (program, version, protocol, port) in cases {
        // The port in the question is to be ignored (RFC 1833 section 3.2).
        let (handled, words) = call(100_000, 2, 3, &[program, version, protocol, 4711]);
        assert_eq!(handled, Handled::Answered);
        assert_eq!(words, [99, 1, 0, 0, 0, 0, port], "{program} v{version} over {protocol}");
    }
}

#[test]
fn a04_dump_lists_exactly_what_is_served() {
    let (handled, words) = call(100_000, 2, 4, &[]);
    assert_eq!(handled, Handled::Answered);
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    let theirs: pmaplist = unpack_all(&bytes[24..]);
    let theirs: Vec<_> = theirs
        .0
        .iter()
        .map(|entry| Mapping {
            program: entry.prog,
            version: entry.vers,
            protocol: entry.prot,
            port: entry.port,
        })
        .collect();
    assert_eq!(theirs, SERVED);
}

#[test]
fn a04_all_other_calls_are_answered_at_once() {
    /// Program, version, procedure, arguments; what becomes of it, and the reply from its accept_stat on.
    type Case<'a> = (u32, u32, u32, &'a [u32], Handled, &'a [u32]);
    let cases: [Case<'_>; 12] = [
        (100_000, 2, 0, &[], Handled::Answered, &[0]),
        (100_000, 2, 1, &[100_003, 3, 6, 1], Handled::Answered, &[0, 0]),
        (100_000, 2, 2, &[100_003, 3, 6, 1], Handled::Answered, &[0, 0]),
        (100_000, 2, 5, &[100_003, 3, 0, 0], Handled::Refused, &[3]),
        (100_000, 2, 6, &[], Handled::Refused, &[3]),
        (100_000, 3, 3, &[], Handled::Refused, &[2, 2, 2]),
        (100_000, 4, 0, &[], Handled::Refused, &[2, 2, 2]),
        (100_000, 1, 0, &[], Handled::Refused, &[2, 2, 2]),
        (100_003, 3, 0, &[], Handled::Refused, &[1]),
        (100_000, 2, 3, &[100_003, 3, 6], Handled::Refused, &[4]),
        (100_000, 2, 1, &[], Handled::Refused, &[4]),
        (100_000, 2, 2, &[100_003], Handled::Refused, &[4]),
    ];
    for (program, version, procedure, arguments, handled, expected) in cases {
        let found = call(program, version, procedure, arguments);
        let words = [&[99, 1, 0, 0, 0], expected].concat();
        assert_eq!(found, (handled, words), "{program} v{version} procedure {procedure}");
    }
}

#[test]
fn a04_what_is_no_call_gets_no_answer_and_rpc_3_gets_a_denial() {
    let mut out = Vec::new();
    assert_eq!(answer(&[0; 10], &SERVED, &mut out), Handled::Dropped);
    let reply = [0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(answer(&reply, &SERVED, &mut out), Handled::Dropped);
    assert!(out.is_empty());
    let version_3 = [0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 3, 0, 1, 0x86, 0xa0];
    assert_eq!(answer(&version_3, &SERVED, &mut out), Handled::Refused);
    assert_eq!(out, [0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 2]);
}
