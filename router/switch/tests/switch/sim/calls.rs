//! Calls as clients write them, and what tests read in replies.

use clockwork_wire::nfs3::{self, Procedure, Results};
use clockwork_wire::{rpc, xdr};

/// UNSTABLE and FILE_SYNC of a WRITE.
pub(crate) const UNSTABLE: u32 = 0;
pub(crate) const FILE_SYNC: u32 = 2;

/// A call of user 1000.
pub(crate) fn call(xid: u32, procedure: Procedure, arguments: &[u8]) -> Vec<u8> {
    call_as(1000, xid, procedure, arguments)
}

/// A call of any user.
pub(crate) fn call_as(uid: u32, xid: u32, procedure: Procedure, arguments: &[u8]) -> Vec<u8> {
    let mut credential = Vec::new();
    rpc::auth_sys(&mut credential, "client", uid, uid);
    let mut message = Vec::new();
    rpc::begin_call(&mut message, xid, nfs3::PROGRAM, nfs3::VERSION, procedure.number(), &credential);
    message.extend_from_slice(arguments);
    message
}

fn opaque(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    xdr::put_opaque(&mut out, bytes);
    out
}

pub(crate) fn getattr(xid: u32, handle: &[u8]) -> Vec<u8> {
    call(xid, Procedure::Getattr, &opaque(handle))
}

pub(crate) fn access(xid: u32, handle: &[u8]) -> Vec<u8> {
    call(xid, Procedure::Access, &[&opaque(handle)[..], &63_u32.to_be_bytes()].concat())
}

/// Sets nothing, without a guard.
pub(crate) fn setattr(xid: u32, handle: &[u8]) -> Vec<u8> {
    call(xid, Procedure::Setattr, &[&opaque(handle)[..], &SATTR_NONE, &[0; 4]].concat())
}

pub(crate) fn fsinfo(xid: u32, handle: &[u8]) -> Vec<u8> {
    call(xid, Procedure::Fsinfo, &opaque(handle))
}

/// LOOKUP, REMOVE and RMDIR.
pub(crate) fn named(xid: u32, procedure: Procedure, dir: &[u8], name: &str) -> Vec<u8> {
    call(xid, procedure, &[opaque(dir), opaque(name.as_bytes())].concat())
}

/// No attributes set.
const SATTR_NONE: [u8; 24] = [0; 24];

pub(crate) fn create(xid: u32, dir: &[u8], name: &str, guarded: bool) -> Vec<u8> {
    let how = u32::from(guarded).to_be_bytes();
    call(xid, Procedure::Create, &[&opaque(dir)[..], &opaque(name.as_bytes()), &how, &SATTR_NONE].concat())
}

pub(crate) fn mkdir(xid: u32, dir: &[u8], name: &str) -> Vec<u8> {
    call(xid, Procedure::Mkdir, &[&opaque(dir)[..], &opaque(name.as_bytes()), &SATTR_NONE].concat())
}

pub(crate) fn symlink(xid: u32, dir: &[u8], name: &str, target: &str) -> Vec<u8> {
    let name = opaque(name.as_bytes());
    call(
        xid,
        Procedure::Symlink,
        &[&opaque(dir)[..], &name, &SATTR_NONE, &opaque(target.as_bytes())].concat(),
    )
}

pub(crate) fn rename(xid: u32, from: (&[u8], &str), to: (&[u8], &str)) -> Vec<u8> {
    let parts = [opaque(from.0), opaque(from.1.as_bytes()), opaque(to.0), opaque(to.1.as_bytes())];
    call(xid, Procedure::Rename, &parts.concat())
}

pub(crate) fn link(xid: u32, file: &[u8], dir: &[u8], name: &str) -> Vec<u8> {
    call(xid, Procedure::Link, &[opaque(file), opaque(dir), opaque(name.as_bytes())].concat())
}

pub(crate) fn read(xid: u32, file: &[u8], offset: u64, count: u32) -> Vec<u8> {
    let parts = [&opaque(file)[..], &offset.to_be_bytes(), &count.to_be_bytes()];
    call(xid, Procedure::Read, &parts.concat())
}

pub(crate) fn write(xid: u32, file: &[u8], offset: u64, stable: u32, data: &[u8]) -> Vec<u8> {
    let count = u32::try_from(data.len()).unwrap();
    let words = [&offset.to_be_bytes()[..], &count.to_be_bytes(), &stable.to_be_bytes()].concat();
    call(xid, Procedure::Write, &[opaque(file), words, opaque(data)].concat())
}

pub(crate) fn commit(xid: u32, file: &[u8]) -> Vec<u8> {
    call(xid, Procedure::Commit, &[&opaque(file)[..], &[0; 12]].concat())
}

pub(crate) fn readdir(xid: u32, dir: &[u8], cookie: u64, verifier: [u8; 8], count: u32) -> Vec<u8> {
    let parts = [&opaque(dir)[..], &cookie.to_be_bytes(), &verifier, &count.to_be_bytes()];
    call(xid, Procedure::Readdir, &parts.concat())
}

pub(crate) fn readdirplus(xid: u32, dir: &[u8], cookie: u64, verifier: [u8; 8], count: u32) -> Vec<u8> {
    let parts =
        [&opaque(dir)[..], &cookie.to_be_bytes(), &verifier, &count.to_be_bytes(), &count.to_be_bytes()];
    call(xid, Procedure::Readdirplus, &parts.concat())
}

/// The results of a reply that was accepted and successful at the RPC layer.
pub(crate) fn results(procedure: Procedure, reply: &[u8]) -> Results {
    match rpc::parse_reply(reply).unwrap().body {
        rpc::ReplyBody::Accepted { stat: 0, results } => nfs3::results(procedure, reply, results).unwrap(),
        body => panic!("{procedure}: {body:?}"),
    }
}

/// The nfsstat3 of a reply.
pub(crate) fn status(procedure: Procedure, reply: &[u8]) -> u32 {
    match results(procedure, reply) {
        Results::Failed { status } => status,
        _ => 0,
    }
}

/// The write verifier of a WRITE or COMMIT.
pub(crate) fn verifier(procedure: Procedure, reply: &[u8]) -> [u8; 8] {
    match results(procedure, reply) {
        Results::Write { verifier_at, .. } | Results::Commit { verifier_at } => {
            reply[verifier_at..verifier_at + 8].try_into().unwrap()
        }
        other => panic!("{procedure} has no verifier: {other:?}"),
    }
}

/// One page of a READDIR or READDIRPLUS: names with their cookies, cookie verifier, whether it is the last.
pub(crate) fn page(procedure: Procedure, reply: &[u8]) -> (Vec<(String, u64)>, [u8; 8], bool) {
    let text = |span: std::ops::Range<usize>| String::from_utf8(reply[span].to_vec()).unwrap();
    match results(procedure, reply) {
        Results::Readdir { verifier_at, entries_at } => {
            let mut list = nfs3::entries(reply, entries_at);
            let names = list.by_ref().map(|e| (text(e.name), e.cookie)).collect();
            (names, reply[verifier_at..verifier_at + 8].try_into().unwrap(), list.eof().unwrap())
        }
        Results::Readdirplus { verifier_at, entries_at } => {
            let mut list = nfs3::entries_plus(reply, entries_at);
            let names = list.by_ref().map(|e| (text(e.name), e.cookie)).collect();
            (names, reply[verifier_at..verifier_at + 8].try_into().unwrap(), list.eof().unwrap())
        }
        other => panic!("{procedure}: {other:?}"),
    }
}
