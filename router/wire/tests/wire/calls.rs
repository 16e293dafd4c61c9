//! Headers and arguments of calls.

use clockwork_wire::nfs3::{Arguments, Class, How, NAME_BYTES_MAX, Procedure, arguments};
use clockwork_wire::rpc::{
    self, AUTH_NONE_CREDENTIAL, AUTH_SYS, Call, CallError, auth_sys, begin_call, parse_call, set_xid,
};
use clockwork_wire::xdr::{XdrError, put_opaque, put_u32, u32_at};
use nfs3_types::rpc::{auth_unix, msg_body, rpc_msg};
use proptest::prelude::*;

use crate::samples::{Sample, Values, unpack_all, values};

/// GETATTR of the handle `01 02 03 04 05` with AUTH_NONE, word for word from RFC 5531 and RFC 1813.
const GETATTR: [u8; 52] = [
    0x12, 0x34, 0x56, 0x78, // XID
    0, 0, 0, 0, // CALL
    0, 0, 0, 2, // RPC version
    0, 1, 0x86, 0xa3, // NFS
    0, 0, 0, 3, // version
    0, 0, 0, 1, // GETATTR
    0, 0, 0, 0, 0, 0, 0, 0, // credential
    0, 0, 0, 0, 0, 0, 0, 0, // verifier
    0, 0, 0, 5, 1, 2, 3, 4, 5, 0, 0, 0, // handle
];

#[test]
fn a_call_written_down_by_hand_is_read() {
    let call = parse_call(&GETATTR).unwrap();
    let expected = Call {
        xid: 0x1234_5678,
        program: 100_003,
        version: 3,
        procedure: 1,
        flavor: 0,
        credential: 24..32,
        verifier_flavor: 0,
        arguments: 40,
    };
    assert_eq!(call, expected);
    let read = arguments(Procedure::Getattr, &GETATTR, call.arguments);
    assert_eq!(read, Ok(Arguments::Handle { handle: 44..49 }));
}

#[test]
fn a_call_that_we_write_is_the_one_written_down_by_hand() {
    let mut out = Vec::new();
    begin_call(&mut out, 0x1234_5678, 100_003, 3, 1, &AUTH_NONE_CREDENTIAL);
    put_opaque(&mut out, &[1, 2, 3, 4, 5]);
    assert_eq!(out, GETATTR);
    set_xid(&mut out, 0xdead_beef);
    assert_eq!(rpc::xid(&out), Some(0xdead_beef));
    assert_eq!(out[4..], GETATTR[4..]);
    set_xid(&mut out[..3], 0);
    assert_eq!(rpc::xid(&out), Some(0xdead_beef), "three bytes have no XID");
}

#[test]
fn our_auth_sys_is_read_by_another_codec() {
    for machine in ["", "clockwork", &"m".repeat(300)] {
        let mut out = Vec::new();
        auth_sys(&mut out, machine, 7, 8);
        assert_eq!(u32_at(&out, 0), Some(AUTH_SYS));
        let identity: auth_unix = unpack_all(&out[8..]);
        assert_eq!(identity.machinename.as_ref(), &machine.as_bytes()[..machine.len().min(255)]);
        assert_eq!((identity.uid, identity.gid, identity.gids), (7, 8, vec![]));
        let mut message = Vec::new();
        begin_call(&mut message, 1, 2, 3, 4, &out);
        let call = parse_call(&message).unwrap();
        assert_eq!(call.credential, 24..24 + out.len());
        assert_eq!(message[call.credential], out);
        let message: rpc_msg<'_, '_> = unpack_all(&message);
        let msg_body::CALL(body) = message.body else { panic!("not a call") };
        assert_eq!((message.xid, body.rpcvers, body.prog, body.vers, body.proc), (1, 2, 2, 3, 4));
    }
}

#[test]
fn a_header_cut_anywhere_is_an_error_of_the_right_kind() {
    for cut in 0..40 {
        let error = parse_call(&GETATTR[..cut]).unwrap_err();
        match cut {
            0..24 => assert_eq!(error, CallError::TooShort { message_bytes: cut }),
            24..32 => assert!(matches!(error, CallError::Auth { xid: 0x1234_5678, stat: 1, .. }), "{error}"),
            _ => assert!(matches!(error, CallError::Auth { xid: 0x1234_5678, stat: 3, .. }), "{error}"),
        }
        assert_eq!(error.answer(&mut Vec::new()), cut >= 24);
    }
}

#[test]
fn credentials_end_at_400_bytes() {
    for (length, fits) in [(400, true), (401, false)] {
        let mut credential = Vec::new();
        put_u32(&mut credential, AUTH_SYS);
        put_opaque(&mut credential, &vec![7; length]);
        let mut message = Vec::new();
        begin_call(&mut message, 9, 100_003, 3, 0, &credential);
        match parse_call(&message) {
            Ok(call) => assert!(fits && call.credential.len() == 8 + length),
            Err(error) => {
                assert!(!fits);
                assert!(matches!(error, CallError::Auth { xid: 9, stat: 1, .. }), "{error}");
            }
        }
    }
}

/// The bytes that `arguments` found, in the order of the values that made the call.
fn check(values: &Values, sample: &Sample) {
    let Sample { procedure, form, message, at } = sample;
    let call = parse_call(message).unwrap();
    assert_eq!((call.xid, call.program, call.version), (values.xid, 100_003, 3));
    assert_eq!((call.procedure, call.flavor, call.arguments), (procedure.number(), AUTH_SYS, *at));
    let word = |at| u32_at(message, at).unwrap();
    let (handle, name) = (&values.handle[..], &values.name[..]);
    let read = arguments(*procedure, message, *at).unwrap();
    assert_eq!(
        read.handle().map(|span| &message[span]),
        Some(handle).filter(|_| *procedure != Procedure::Null)
    );
    match read {
        Arguments::Null => assert_eq!(*procedure, Procedure::Null),
        Arguments::Handle { .. } => assert!(
            matches!(procedure.name(), "GETATTR" | "ACCESS" | "READLINK" | "FSSTAT" | "FSINFO" | "PATHCONF"),
            "{procedure}"
        ),
        Arguments::Setattr { guarded, .. } => {
            assert_eq!((*procedure, guarded), (Procedure::Setattr, values.given));
        }
        Arguments::Name { name: found, .. } => {
            assert!(matches!(procedure.name(), "LOOKUP" | "REMOVE" | "RMDIR"), "{procedure}");
            assert_eq!(&message[found], name);
        }
        Arguments::Make { name: found, how, .. } => {
            assert_eq!(&message[found], name);
            let expected = match (procedure.name(), *form) {
                ("CREATE", "unchecked") => How::Unchecked,
                ("CREATE", "guarded") => How::Guarded,
                ("CREATE", "exclusive") => How::Exclusive,
                ("MKDIR", _) => How::Directory,
                ("SYMLINK", _) => How::Symlink,
                ("MKNOD", _) => How::Node,
                _ => panic!("{procedure} makes nothing"),
            };
            assert_eq!(how, expected);
        }
        Arguments::Read { offset, count, count_at, .. } => {
            assert_eq!(*procedure, Procedure::Read);
            assert_eq!((offset, count, word(count_at)), (values.number, values.count, values.count));
        }
        Arguments::Write { offset, count, stable, count_at, stable_at, length_at, data, .. } => {
            assert_eq!(*procedure, Procedure::Write);
            assert_eq!((offset, count, word(count_at)), (values.number, values.count, values.count));
            assert_eq!((stable, word(stable_at)), (1, 1));
            assert_eq!(usize::try_from(word(length_at)).unwrap(), data.len());
            assert_eq!(message[data], values.data);
        }
        Arguments::Rename { from_name, to_dir, to_name, .. } => {
            assert_eq!(*procedure, Procedure::Rename);
            assert_eq!(&message[from_name], name);
            assert_eq!(message[to_dir], values.other_handle);
            assert_eq!(message[to_name], values.other_name);
        }
        Arguments::Link { handle, name: found, .. } => {
            assert_eq!(*procedure, Procedure::Link);
            assert_eq!(message[handle], values.other_handle);
            assert_eq!(&message[found], name);
        }
        Arguments::Readdir { cookie, verifier_at, count, count_at, .. } => {
            assert_eq!(*procedure, Procedure::Readdir);
            assert_eq!((cookie, count, word(count_at)), (values.number, values.count, values.count));
            assert_eq!(message[verifier_at..][..8], values.verifier);
        }
        Arguments::Readdirplus {
            cookie, verifier_at, dircount, dircount_at, maxcount, maxcount_at, ..
        } => {
            assert_eq!(*procedure, Procedure::Readdirplus);
            assert_eq!((cookie, maxcount, word(maxcount_at)), (values.number, values.count, values.count));
            assert_eq!((dircount, word(dircount_at)), (values.count ^ 1, values.count ^ 1));
            assert_eq!(message[verifier_at..][..8], values.verifier);
        }
        Arguments::Commit { offset, count, .. } => {
            assert_eq!(*procedure, Procedure::Commit);
            assert_eq!((offset, count), (values.number, values.count));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_call_of_another_codec_is_read_as_it_was_written(values in values()) {
        for sample in values.calls() {
            check(&values, &sample);
        }
    }

    /// Cut anywhere, arguments are an error that tells the cut; bytes behind them change nothing.
    #[test]
    fn a03_truncated_arguments_are_garbage(values in values()) {
        for mut sample in values.calls() {
            let whole = arguments(sample.procedure, &sample.message, sample.at).unwrap();
            for cut in sample.at..sample.message.len() {
                let error = arguments(sample.procedure, &sample.message[..cut], sample.at).unwrap_err();
                prop_assert!(matches!(error.cause, XdrError::Truncated { .. }), "{error}");
                prop_assert_eq!(error.procedure, sample.procedure);
            }
            sample.message.extend([0xff; 5]);
            prop_assert_eq!(arguments(sample.procedure, &sample.message, sample.at), Ok(whole));
        }
    }
}

#[test]
fn handles_of_1_to_64_bytes_are_taken_and_no_others() {
    for (length, fits) in [(0, false), (1, true), (64, true), (65, false)] {
        let mut message = Vec::new();
        put_opaque(&mut message, &vec![9; length]);
        let read = arguments(Procedure::Getattr, &message, 0);
        assert_eq!(read.is_ok(), fits, "{length}: {read:?}");
    }
}

#[test]
fn names_over_the_usual_255_bytes_are_the_stores_to_refuse() {
    let max = usize::try_from(NAME_BYTES_MAX).unwrap();
    for (length, fits) in [(0, true), (256, true), (max, true), (max + 1, false)] {
        let mut message = Vec::new();
        put_opaque(&mut message, &[9; 8]);
        put_opaque(&mut message, &vec![b'n'; length]);
        let read = arguments(Procedure::Lookup, &message, 0);
        assert_eq!(read.is_ok(), fits, "{length}: {read:?}");
    }
}

#[test]
fn values_that_no_enumeration_has_are_errors() {
    let with = |words: &[u32]| {
        let mut message = Vec::new();
        put_opaque(&mut message, &[9; 8]);
        words.iter().for_each(|&word| put_u32(&mut message, word));
        message
    };
    // handle, then: offset (2), count, stable = 3, empty data
    let write = with(&[0, 0, 0, 3, 0]);
    // handle, empty name, createmode3 = 3, room enough
    let create = with(&[0, 3, 0, 0, 0, 0, 0, 0]);
    // handle, empty name, ftype3 = 8
    let mknod = with(&[0, 8, 0, 0, 0, 0, 0, 0]);
    // handle, mode given = 2
    let setattr = with(&[2, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let cases = [
        (Procedure::Write, write, 24, 3, 2),
        (Procedure::Create, create, 16, 3, 2),
        (Procedure::Mknod, mknod, 16, 8, 7),
        (Procedure::Setattr, setattr, 12, 2, 1),
    ];
    for (procedure, message, at, value, value_max) in cases {
        let error = arguments(procedure, &message, 0).unwrap_err();
        assert_eq!(error.cause, XdrError::Value { at, value, value_max }, "{procedure}");
    }
}

#[test]
fn procedures_know_their_numbers_names_and_kinds() {
    for (number, procedure) in (0..).zip(Procedure::ALL) {
        assert_eq!(procedure.number(), number);
        assert_eq!(Procedure::from_u32(number), Some(procedure));
        let theirs = nfs3_types::nfs3::NFS_PROGRAM::try_from(number).unwrap();
        assert_eq!(theirs.to_string(), format!("NFSPROC3_{procedure}"));
    }
    assert_eq!(Procedure::from_u32(22), None);
    assert_eq!(Procedure::from_u32(u32::MAX), None);
    let names = |wanted: fn(Procedure) -> bool| {
        Procedure::ALL
            .into_iter()
            .filter(|&procedure| wanted(procedure))
            .map(Procedure::name)
            .collect::<Vec<_>>()
    };
    assert_eq!(names(|procedure| procedure.class() == Class::Read), ["READ"]);
    assert_eq!(names(|procedure| procedure.class() == Class::Write), ["WRITE", "COMMIT"]);
    let once =
        ["SETATTR", "WRITE", "CREATE", "MKDIR", "SYMLINK", "MKNOD", "REMOVE", "RMDIR", "RENAME", "LINK"];
    assert_eq!(names(|procedure| !procedure.is_idempotent()), once);
}
