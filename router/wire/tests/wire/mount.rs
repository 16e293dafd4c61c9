//! MOUNT, against another codec.

use clockwork_wire::mount::{
    self, MntResults, Procedure, dump, export, mnt_failed, mnt_ok, mnt_results, normalise_path, path, status,
};
use clockwork_wire::xdr::{XdrError, put_opaque, put_u32};
use nfs3_types::mount::{exports, mountlist, mountres3};

use crate::samples::unpack_all;

/// Bytes of the header of an accepted reply.
const RESULTS: usize = 24;

#[test]
fn a05_spellings_of_a_path_are_equal() {
    let cases: [(&[u8], &[u8]); 10] = [
        (b"/e", b"/e"),
        (b"/e/", b"/e"),
        (b"//e", b"/e"),
        (b"///e//f///", b"/e/f"),
        (b"/", b"/"),
        (b"///", b"/"),
        (b"", b""),
        (b"e/", b"e"),
        (b"/e/..", b"/e/.."),
        (b"/\xff\x00/", b"/\xff\x00"),
    ];
    for (path, expected) in cases {
        assert_eq!(normalise_path(path), expected, "{}", path.escape_ascii());
        assert_eq!(normalise_path(expected), expected, "normal paths stay as they are");
    }
}

#[test]
fn a05_mnt_replies_are_read_by_another_codec_and_by_us() {
    let handle: Vec<u8> = (0..29).collect();
    let mut out = Vec::new();
    mnt_ok(&mut out, 5, &handle, &[1, 0]);
    let mountres3::Ok(theirs) = unpack_all(&out[RESULTS..]) else { panic!("not mounted") };
    assert_eq!(theirs.fhandle.0.as_ref(), handle);
    assert_eq!(theirs.auth_flavors, [1, 0]);
    let Ok(MntResults::Ok { handle: span, flavors }) = mnt_results(&out, RESULTS) else {
        panic!("not mounted")
    };
    assert_eq!((&out[span], &flavors[..]), (&handle[..], &[1, 0][..]));
    for cut in RESULTS..out.len() {
        assert!(matches!(mnt_results(&out[..cut], RESULTS), Err(XdrError::Truncated { .. })), "{cut}");
    }
}

#[test]
fn a05_mnt_failures_have_a_status_and_nothing_else() {
    let all = [
        status::PERM,
        status::NOENT,
        status::IO,
        status::ACCES,
        status::NOTDIR,
        status::INVAL,
        status::NAMETOOLONG,
        status::NOTSUPP,
        status::SERVERFAULT,
    ];
    for number in all {
        let mut out = Vec::new();
        mnt_failed(&mut out, 5, number);
        let mountres3::Err(theirs) = unpack_all(&out[RESULTS..]) else { panic!("mounted") };
        assert_eq!(theirs as u32, number);
        assert_eq!(mnt_results(&out, RESULTS), Ok(MntResults::Failed { status: number }));
    }
}

#[test]
fn flavours_that_are_claimed_but_not_there_cost_no_memory() {
    let mut message = Vec::new();
    put_u32(&mut message, status::OK);
    put_opaque(&mut message, &[1]);
    put_u32(&mut message, u32::MAX);
    put_u32(&mut message, 1);
    assert_eq!(mnt_results(&message, 0), Err(XdrError::Truncated { at: 20, wanted: 4, left: 0 }));
}

#[test]
fn dump_and_export_are_read_by_another_codec() {
    let mut out = Vec::new();
    dump(&mut out, 5, &[("192.0.2.7", "/e"), ("host", "/f")]);
    let theirs: mountlist<'_, '_> = unpack_all(&out[RESULTS..]);
    let theirs: Vec<_> =
        theirs.0.iter().map(|entry| (entry.ml_hostname.0.to_vec(), entry.ml_directory.0.to_vec())).collect();
    let ours = [("192.0.2.7", "/e"), ("host", "/f")].map(|(host, dir)| (host.into(), dir.into()));
    assert_eq!(theirs, ours);

    out.clear();
    export(&mut out, 5, &[("/e", vec!["192.0.2.0/24", "@all"]), ("/f", vec![])]);
    let theirs: exports<'_, '_> = unpack_all(&out[RESULTS..]);
    let theirs: Vec<_> = theirs
        .0
        .iter()
        .map(|entry| {
            let groups: Vec<_> = entry.ex_groups.0.iter().map(|group| group.0.to_vec()).collect();
            (entry.ex_dir.0.to_vec(), groups)
        })
        .collect();
    let ours: [(Vec<u8>, Vec<Vec<u8>>); 2] =
        [(b"/e".into(), vec![b"192.0.2.0/24".into(), b"@all".into()]), (b"/f".into(), vec![])];
    assert_eq!(theirs, ours);

    out.clear();
    dump(&mut out, 5, &[] as &[(&str, &str)]);
    assert_eq!(out[RESULTS..], [0; 4]);
}

#[test]
fn paths_end_at_1024_bytes() {
    for (length, fits) in [(0, true), (1024, true), (1025, false)] {
        let mut message = vec![0; 4];
        put_opaque(&mut message, &vec![b'/'; length]);
        assert_eq!(path(&message, 4).ok(), fits.then_some(8..8 + length));
    }
}

#[test]
fn a05_procedures_know_their_numbers_and_names() {
    for (number, procedure) in (0..).zip(Procedure::ALL) {
        assert_eq!(procedure.number(), number);
        assert_eq!(Procedure::from_u32(number), Some(procedure));
        let theirs = nfs3_types::mount::MOUNT_PROGRAM::try_from(number).unwrap();
        assert_eq!(theirs.to_string(), format!("MOUNTPROC3_{}", procedure.name()));
    }
    assert_eq!(Procedure::from_u32(6), None);
    assert_eq!((mount::PROGRAM, mount::VERSION), (nfs3_types::mount::PROGRAM, nfs3_types::mount::VERSION));
}
