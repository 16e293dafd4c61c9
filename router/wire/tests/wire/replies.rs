//! Headers and results of replies.

use clockwork_wire::nfs3::{
    Attributes, Procedure, Results, attributes, entries, entries_plus, failure, results, status,
};
use clockwork_wire::rpc::{Reply, ReplyBody, ReplyError, parse_reply};
use clockwork_wire::xdr::{XdrError, u32_at};
use nfs3_types::nfs3::*;
use proptest::prelude::*;

use crate::samples::{Sample, Values, unpack_all, values};

/// The reply to a WRITE without attributes, word for word from RFC 5531 and RFC 1813.
const WRITE: [u8; 52] = [
    0x12, 0x34, 0x56, 0x78, // XID
    0, 0, 0, 1, // REPLY
    0, 0, 0, 0, // MSG_ACCEPTED
    0, 0, 0, 0, 0, 0, 0, 0, // verifier
    0, 0, 0, 0, // SUCCESS
    0, 0, 0, 0, // NFS3_OK
    0, 0, 0, 0, 0, 0, 0, 0, // no attributes before, none after
    0, 0, 0x10, 0, // 4096 bytes
    0, 0, 0, 2, // FILE_SYNC
    8, 7, 6, 5, 4, 3, 2, 1, // verifier
];

#[test]
fn a_reply_written_down_by_hand_is_read() {
    let reply = parse_reply(&WRITE).unwrap();
    let body = ReplyBody::Accepted { stat: 0, results: 24 };
    assert_eq!(reply, Reply { xid: 0x1234_5678, body });
    let expected = Results::Write { count: 4096, count_at: 36, committed: 2, verifier_at: 44 };
    assert_eq!(results(Procedure::Write, &WRITE, 24), Ok(expected));
}

#[test]
fn what_is_no_reply_is_told_apart() {
    let mut message = WRITE;
    message[7] = 0;
    assert_eq!(parse_reply(&message), Err(ReplyError::NotAReply { xid: 0x1234_5678, message_type: 0 }));
    message[7] = 1;
    message[11] = 1;
    assert_eq!(parse_reply(&message).unwrap().body, ReplyBody::Denied);
    message[11] = 2;
    let cause = XdrError::Value { at: 8, value: 2, value_max: 1 };
    assert_eq!(parse_reply(&message), Err(ReplyError::Malformed(cause)));
    for cut in 0..24 {
        assert!(matches!(parse_reply(&WRITE[..cut]), Err(ReplyError::Malformed(_))), "cut at {cut}");
    }
}

fn expected_attributes(values: &Values) -> Attributes {
    let theirs = values.fattr();
    Attributes {
        file_type: 5,
        mode: theirs.mode,
        nlink: theirs.nlink,
        uid: theirs.uid,
        gid: theirs.gid,
        size: theirs.size,
        used: theirs.used,
        fsid: theirs.fsid,
        fileid: theirs.fileid,
        atime: (11, 12),
        mtime: (13, 14),
        ctime: (15, 16),
    }
}

fn check(values: &Values, sample: &Sample) {
    let Sample { procedure, message, at, .. } = sample;
    let reply = parse_reply(message).unwrap();
    assert_eq!(reply, Reply { xid: values.xid, body: ReplyBody::Accepted { stat: 0, results: *at } });
    let given = |at: Option<usize>| {
        let found = at.map(|at| attributes(message, at).unwrap());
        assert_eq!(found, values.given.then(|| expected_attributes(values)), "{procedure}");
    };
    match results(*procedure, message, *at).unwrap() {
        Results::Failed { status } => panic!("{procedure}: a success was read as {status}"),
        Results::Lookup { handle, attributes_at } => {
            assert_eq!(*procedure, Procedure::Lookup);
            assert_eq!(message[handle], values.handle);
            given(attributes_at);
        }
        Results::Made { handle, attributes_at } => {
            assert!(matches!(procedure.name(), "CREATE" | "MKDIR" | "SYMLINK" | "MKNOD"), "{procedure}");
            assert_eq!(handle.map(|span| &message[span]), values.given.then_some(&values.other_handle[..]));
            given(attributes_at);
        }
        Results::Read { count, eof } => {
            assert_eq!((*procedure, count, eof), (Procedure::Read, values.count, values.given));
        }
        Results::Write { count, count_at, committed, verifier_at } => {
            assert_eq!((*procedure, count, committed), (Procedure::Write, values.count, 2));
            assert_eq!(u32_at(message, count_at), Some(values.count));
            assert_eq!(message[verifier_at..], values.verifier);
        }
        Results::Commit { verifier_at } => {
            assert_eq!(*procedure, Procedure::Commit);
            assert_eq!(message[verifier_at..], values.verifier);
        }
        Results::Readdir { verifier_at, entries_at } => {
            assert_eq!(*procedure, Procedure::Readdir);
            assert_eq!(message[verifier_at..entries_at], values.verifier);
            check_entries(values, message, entries_at);
        }
        Results::Readdirplus { verifier_at, entries_at } => {
            assert_eq!(*procedure, Procedure::Readdirplus);
            assert_eq!(message[verifier_at..entries_at], values.verifier);
            check_entries_plus(values, message, entries_at);
        }
        Results::Fsinfo { sizes_at } => {
            assert_eq!(*procedure, Procedure::Fsinfo);
            let sizes: Vec<u32> = (0..7).map(|word| u32_at(message, sizes_at + 4 * word).unwrap()).collect();
            assert_eq!(sizes, [values.count, 2, 3, 4, 5, 6, values.xid]);
        }
        Results::Getattr { attributes_at } => {
            assert_eq!(*procedure, Procedure::Getattr);
            assert_eq!(attributes(message, attributes_at), Some(expected_attributes(values)));
        }
        Results::Readlink { target } => {
            assert_eq!(*procedure, Procedure::Readlink);
            assert_eq!(message[target], values.data);
        }
        Results::Other => assert!(
            matches!(
                procedure.name(),
                "NULL"
                    | "SETATTR"
                    | "ACCESS"
                    | "REMOVE"
                    | "RMDIR"
                    | "RENAME"
                    | "LINK"
                    | "FSSTAT"
                    | "PATHCONF"
            ),
            "{procedure}"
        ),
    }
}

fn check_entries(values: &Values, message: &[u8], at: usize) {
    let mut list = entries(message, at);
    for (index, name) in (0..).zip([&values.name, &values.other_name]) {
        assert_eq!(list.eof(), None);
        let entry = list.next().unwrap();
        assert_eq!((entry.fileid, entry.cookie), (values.number, values.number.wrapping_add(index)));
        assert_eq!(&message[entry.name], name);
    }
    assert_eq!(list.next(), None);
    assert_eq!(list.eof(), Some(values.given));
}

fn check_entries_plus(values: &Values, message: &[u8], at: usize) {
    let mut list = entries_plus(message, at);
    for (index, name) in (0..).zip([&values.name, &values.other_name]) {
        assert_eq!(list.eof(), None);
        let entry = list.next().unwrap();
        assert_eq!((entry.fileid, entry.cookie), (values.number, values.number.wrapping_add(index)));
        assert_eq!(&message[entry.name], name);
        assert_eq!(entry.handle.map(|span| &message[span]), values.given.then_some(&values.other_handle[..]));
        let found = entry.attributes_at.map(|at| attributes(message, at).unwrap());
        assert_eq!(found, values.given.then(|| expected_attributes(values)));
    }
    assert_eq!(list.next(), None);
    assert_eq!(list.eof(), Some(values.given));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_reply_of_another_codec_is_read_as_it_was_written(values in values()) {
        for sample in values.replies() {
            check(&values, &sample);
        }
    }

    /// Cut anywhere, results that a router reads are an error, or a shorter list of entries without an end.
    #[test]
    fn truncated_results_are_noticed(values in values()) {
        for Sample { procedure, message, at, .. } in values.replies() {
            let whole = results(procedure, &message, at).unwrap();
            for cut in at..message.len() {
                match results(procedure, &message[..cut], at) {
                    Err(error) => prop_assert!(matches!(error.cause, XdrError::Truncated { .. }), "{error}"),
                    Ok(Results::Other) => prop_assert_eq!(&whole, &Results::Other),
                    Ok(Results::Readdir { entries_at, .. }) => {
                        let mut list = entries(&message[..cut], entries_at);
                        prop_assert!(list.by_ref().count() <= 2);
                        prop_assert_eq!(list.eof(), None);
                    }
                    Ok(Results::Readdirplus { entries_at, .. }) => {
                        let mut list = entries_plus(&message[..cut], entries_at);
                        prop_assert!(list.by_ref().count() <= 2);
                        prop_assert_eq!(list.eof(), None);
                    }
                    Ok(other) => prop_assert!(false, "{procedure} cut at {cut} was read as {other:?}"),
                }
            }
        }
    }
}

#[test]
fn an_iterator_that_met_malformed_bytes_stays_at_its_end() {
    // an entry, then a "more" word of 2
    let mut message = vec![0, 0, 0, 1];
    message.extend([0; 8 + 4 + 8]);
    message.extend([0, 0, 0, 2]);
    let mut list = entries(&message, 0);
    assert!(list.next().is_some());
    assert_eq!((list.next(), list.next(), list.eof()), (None, None, None));

    // an entry without attributes and with an empty handle, whose length must not be taken for the list's end
    let mut message = vec![0, 0, 0, 1];
    message.extend([0; 8 + 4 + 8 + 4]);
    message.extend([0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
    let mut list = entries_plus(&message, 0);
    assert_eq!((list.next(), list.next(), list.eof()), (None, None, None));
}

/// Whether another codec reads the failure of `procedure` to its last byte, as that status.
fn failure_is_read(procedure: Procedure, body: &[u8]) {
    macro_rules! failed {
        ($results:ident) => {
            match unpack_all::<$results>(body) {
                $results::Err((status, _)) => assert_eq!(status, nfsstat3::NFS3ERR_JUKEBOX),
                $results::Ok(_) => panic!("{procedure} succeeded"),
            }
        };
    }
    match procedure {
        Procedure::Null => assert!(body.is_empty()),
        Procedure::Getattr => failed!(GETATTR3res),
        Procedure::Setattr => failed!(SETATTR3res),
        Procedure::Lookup => failed!(LOOKUP3res),
        Procedure::Access => failed!(ACCESS3res),
        Procedure::Readlink => failed!(READLINK3res),
        Procedure::Read => failed!(READ3res),
        Procedure::Write => failed!(WRITE3res),
        Procedure::Create => failed!(CREATE3res),
        Procedure::Mkdir => failed!(MKDIR3res),
        Procedure::Symlink => failed!(SYMLINK3res),
        Procedure::Mknod => failed!(MKNOD3res),
        Procedure::Remove => failed!(REMOVE3res),
        Procedure::Rmdir => failed!(RMDIR3res),
        Procedure::Rename => failed!(RENAME3res),
        Procedure::Link => failed!(LINK3res),
        Procedure::Readdir => failed!(READDIR3res),
        Procedure::Readdirplus => failed!(READDIRPLUS3res),
        Procedure::Fsstat => failed!(FSSTAT3res),
        Procedure::Fsinfo => failed!(FSINFO3res),
        Procedure::Pathconf => failed!(PATHCONF3res),
        Procedure::Commit => failed!(COMMIT3res),
    }
}

#[test]
fn failures_of_every_procedure_are_read_by_another_codec() {
    for procedure in Procedure::ALL {
        let mut out = vec![0xee; 3]; // what is already there stays
        failure(&mut out, 42, procedure, status::JUKEBOX);
        let message = &out[3..];
        let body = ReplyBody::Accepted { stat: 0, results: 24 };
        assert_eq!(parse_reply(message), Ok(Reply { xid: 42, body }));
        failure_is_read(procedure, &message[24..]);
        let expected = match procedure {
            Procedure::Null => Results::Other,
            _ => Results::Failed { status: status::JUKEBOX },
        };
        assert_eq!(results(procedure, message, 24), Ok(expected));
    }
}

#[test]
fn statuses_have_the_names_and_numbers_of_another_codec() {
    let mut known = 0;
    for number in (0..200).chain(9_990..10_020) {
        let mut bytes = &u32::to_be_bytes(number)[..];
        match <nfsstat3 as nfs3_types::xdr_codec::Unpack>::unpack(&mut bytes) {
            Ok((theirs, _)) => {
                let theirs = format!("{theirs:?}");
                let theirs = theirs.strip_prefix("NFS3ERR_").unwrap_or("OK");
                assert_eq!(status::name(number), theirs);
                known += 1;
            }
            Err(_) => assert_eq!(status::name(number), "UNKNOWN", "{number}"),
        }
    }
    assert_eq!(known, 29, "RFC 1813 section 2.6 has 29 statuses");
}
