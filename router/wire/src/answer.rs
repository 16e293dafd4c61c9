//! Replies that the router gives itself (RFC 5531 section 9): whole messages, appended without a record mark.

use crate::rpc::{MSG_ACCEPTED, MSG_DENIED, REPLY, RPC_VERSION};
use crate::xdr::put_u32;

/// accept_stat: the call ran.
pub const SUCCESS: u32 = 0;
/// accept_stat: this server does not have the program.
pub const PROG_UNAVAIL: u32 = 1;
/// accept_stat: it has the program, in other versions.
pub const PROG_MISMATCH: u32 = 2;
/// accept_stat: the program has no such procedure.
pub const PROC_UNAVAIL: u32 = 3;
/// accept_stat: the arguments cannot be decoded.
pub const GARBAGE_ARGS: u32 = 4;
/// accept_stat: the server is out of something.
pub const SYSTEM_ERR: u32 = 5;

/// auth_stat: the credential is malformed.
pub const AUTH_BADCRED: u32 = 1;
/// auth_stat: the client has to begin a new session.
pub const AUTH_REJECTEDCRED: u32 = 2;
/// auth_stat: the verifier is malformed.
pub const AUTH_BADVERF: u32 = 3;
/// auth_stat: the verifier has expired or was used before.
pub const AUTH_REJECTEDVERF: u32 = 4;
/// auth_stat: this flavour (or this port) is not good enough here.
pub const AUTH_TOOWEAK: u32 = 5;

const RPC_MISMATCH: u32 = 0;
const AUTH_ERROR: u32 = 1;

fn put(out: &mut Vec<u8>, words: &[u32]) {
    words.iter().for_each(|&word| put_u32(out, word));
}

fn accepted(out: &mut Vec<u8>, xid: u32, stat: u32) {
    put(out, &[xid, REPLY, MSG_ACCEPTED, 0, 0, stat]);
}

/// The header of a reply to a call that ran, with an empty verifier; the caller appends the results.
pub fn success(out: &mut Vec<u8>, xid: u32) {
    accepted(out, xid, SUCCESS);
}

/// The program is served in versions `low` to `high` only.
pub fn prog_mismatch(out: &mut Vec<u8>, xid: u32, low: u32, high: u32) {
    accepted(out, xid, PROG_MISMATCH);
    put(out, &[low, high]);
}

/// The program is not served.
pub fn prog_unavail(out: &mut Vec<u8>, xid: u32) {
    accepted(out, xid, PROG_UNAVAIL);
}

/// The program has no such procedure.
pub fn proc_unavail(out: &mut Vec<u8>, xid: u32) {
    accepted(out, xid, PROC_UNAVAIL);
}

/// The arguments cannot be decoded.
pub fn garbage_args(out: &mut Vec<u8>, xid: u32) {
    accepted(out, xid, GARBAGE_ARGS);
}

/// The router cannot serve the call now.
pub fn system_err(out: &mut Vec<u8>, xid: u32) {
    accepted(out, xid, SYSTEM_ERR);
}

/// The call came in a version of RPC other than 2.
pub fn rpc_mismatch(out: &mut Vec<u8>, xid: u32) {
    put(out, &[xid, REPLY, MSG_DENIED, RPC_MISMATCH, RPC_VERSION, RPC_VERSION]);
}

/// The call's identity is refused for the reason `stat`, such as [`AUTH_TOOWEAK`].
pub fn auth_error(out: &mut Vec<u8>, xid: u32, stat: u32) {
    put(out, &[xid, REPLY, MSG_DENIED, AUTH_ERROR, stat]);
}
