//! Replies with an nfsstat3 that the router gives in a store's place.

use super::Procedure;
use crate::answer;
use crate::xdr::put_u32;

/// Words of "no attributes" behind the status in a procedure's failure arm: one for a post_op_attr, two for a
/// wcc_data (RFC 1813 section 3.3). `None` for NULL, which has no status.
fn absent_words(procedure: Procedure) -> Option<usize> {
    const POST_OP: usize = 1;
    const WCC: usize = 2;
    match procedure {
        Procedure::Null => None,
        Procedure::Getattr => Some(0),
        Procedure::Lookup
        | Procedure::Access
        | Procedure::Readlink
        | Procedure::Read
        | Procedure::Readdir
        | Procedure::Readdirplus
        | Procedure::Fsstat
        | Procedure::Fsinfo
        | Procedure::Pathconf => Some(POST_OP),
        Procedure::Setattr
        | Procedure::Write
        | Procedure::Create
        | Procedure::Mkdir
        | Procedure::Symlink
        | Procedure::Mknod
        | Procedure::Remove
        | Procedure::Rmdir
        | Procedure::Commit => Some(WCC),
        Procedure::Rename => Some(2 * WCC),
        Procedure::Link => Some(POST_OP + WCC),
    }
}

/// Appends a whole accepted reply in which `procedure` failed with `status` and no attributes are given. NULL cannot
/// fail: it gets its ordinary, empty reply.
pub fn failure(out: &mut Vec<u8>, xid: u32, procedure: Procedure, status: u32) {
    answer::success(out, xid);
    if let Some(words) = absent_words(procedure) {
        put_u32(out, status);
        for _ in 0..words {
            put_u32(out, 0);
        }
    }
}
