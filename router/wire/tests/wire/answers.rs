//! Replies that the router gives itself, byte for byte and as another codec reads them.

use clockwork_wire::answer;
use clockwork_wire::rpc::{AUTH_NONE_CREDENTIAL, begin_call, parse_call, parse_reply};
use nfs3_types::rpc::{accept_stat_data, auth_stat, msg_body, rejected_reply, reply_body, rpc_msg};

use crate::samples::unpack_all;

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

type Answer = fn(&mut Vec<u8>);

#[test]
fn a03_answers_have_the_bytes_of_rfc_5531() {
    let cases: [(Answer, &[u32]); 8] = [
        (|out| answer::success(out, 7), &[7, 1, 0, 0, 0, 0]),
        (|out| answer::prog_unavail(out, 7), &[7, 1, 0, 0, 0, 1]),
        (|out| answer::prog_mismatch(out, 7, 3, 3), &[7, 1, 0, 0, 0, 2, 3, 3]),
        (|out| answer::proc_unavail(out, 7), &[7, 1, 0, 0, 0, 3]),
        (|out| answer::garbage_args(out, 7), &[7, 1, 0, 0, 0, 4]),
        (|out| answer::system_err(out, 7), &[7, 1, 0, 0, 0, 5]),
        (|out| answer::rpc_mismatch(out, 7), &[7, 1, 1, 0, 2, 2]),
        (|out| answer::auth_error(out, 7, answer::AUTH_TOOWEAK), &[7, 1, 1, 1, 5]),
    ];
    for (answer, expected) in cases {
        let mut out = vec![0xee; 2]; // what is already there stays
        answer(&mut out);
        assert_eq!(out[..2], [0xee; 2]);
        assert_eq!(out[2..], words(expected));
        assert_eq!(parse_reply(&out[2..]).unwrap().xid, 7);
    }
}

#[test]
fn a03_answers_are_read_by_another_codec() {
    let mut out = Vec::new();
    answer::prog_mismatch(&mut out, 7, 3, 3);
    let message: rpc_msg<'_, '_> = unpack_all(&out);
    let msg_body::REPLY(reply_body::MSG_ACCEPTED(reply)) = message.body else { panic!("{message:?}") };
    assert!(matches!(reply.reply_data, accept_stat_data::PROG_MISMATCH { low: 3, high: 3 }), "{reply:?}");

    out.clear();
    answer::rpc_mismatch(&mut out, 7);
    let message: rpc_msg<'_, '_> = unpack_all(&out);
    let msg_body::REPLY(reply_body::MSG_DENIED(reply)) = message.body else { panic!("{message:?}") };
    assert!(matches!(reply, rejected_reply::RPC_MISMATCH { low: 2, high: 2 }), "{reply:?}");

    out.clear();
    answer::auth_error(&mut out, 7, answer::AUTH_TOOWEAK);
    let message: rpc_msg<'_, '_> = unpack_all(&out);
    let msg_body::REPLY(reply_body::MSG_DENIED(reply)) = message.body else { panic!("{message:?}") };
    assert!(matches!(reply, rejected_reply::AUTH_ERROR(auth_stat::AUTH_TOOWEAK)), "{reply:?}");
}

#[test]
fn a03_calls_that_cannot_be_parsed_are_answered_as_the_rfc_says() {
    let mut call = Vec::new();
    begin_call(&mut call, 7, 100_003, 3, 0, &AUTH_NONE_CREDENTIAL);
    let answered = |change: fn(&mut Vec<u8>)| {
        let mut call = call.clone();
        change(&mut call);
        let mut out = Vec::new();
        parse_call(&call).unwrap_err().answer(&mut out).then_some(out)
    };
    assert_eq!(answered(|call| call[11] = 3), Some(words(&[7, 1, 1, 0, 2, 2])), "RPC version 3");
    assert_eq!(answered(|call| call[30] = 2), Some(words(&[7, 1, 1, 1, 1])), "credential over 400 bytes");
    assert_eq!(answered(|call| call[38] = 2), Some(words(&[7, 1, 1, 1, 3])), "verifier over 400 bytes");
    assert_eq!(answered(|call| call[7] = 1), None, "a reply must not be answered");
    assert_eq!(answered(|call| call.truncate(20)), None, "half a header must not be answered");
}
