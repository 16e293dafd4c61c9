//! MOUNT version 3 (RFC 1813 appendix I) and what version 1 (RFC 1094 appendix A) has in common with it.
//!
//! Both versions know the same six procedures with the same arguments and, but for a successful MNT, the same
//! results. Version 1 has room for handles of exactly 32 bytes only, which NFSv3 handles do not fit: there, MNT is
//! answered with [`mnt_failed`] and [`status::ACCES`]. Version 2 is not spoken.

use crate::answer;
use crate::nfs3::HANDLE_BYTES_MAX;
use crate::xdr::{Reader, Span, XdrError, put_bool, put_opaque, put_u32};

/// The RPC program number of MOUNT.
pub const PROGRAM: u32 = 100_005;
/// The version that goes with NFSv3.
pub const VERSION: u32 = 3;
/// The old version that `showmount` and some automounters still ask.
pub const VERSION_1: u32 = 1;
/// Longest path of an export, in bytes (MNTPATHLEN).
pub const PATH_BYTES_MAX: u32 = 1024;

/// mountstat3: why a MNT failed (RFC 1813 appendix I, section 5.1.5).
pub mod status {
    /// The path is mounted.
    pub const OK: u32 = 0;
    /// The caller is not privileged.
    pub const PERM: u32 = 1;
    /// No such path.
    pub const NOENT: u32 = 2;
    /// The device failed.
    pub const IO: u32 = 5;
    /// The path is not exported, or not to this client.
    pub const ACCES: u32 = 13;
    /// Not a directory.
    pub const NOTDIR: u32 = 20;
    /// An argument that makes no sense.
    pub const INVAL: u32 = 22;
    /// The path is too long.
    pub const NAMETOOLONG: u32 = 63;
    /// The operation is not supported.
    pub const NOTSUPP: u32 = 10004;
    /// An error that has no other number.
    pub const SERVERFAULT: u32 = 10006;
}

/// A procedure of MOUNT, the same in versions 1 and 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Procedure {
    /// Does nothing.
    Null = 0,
    /// The handle of an exported path.
    Mnt,
    /// Who has mounted what.
    Dump,
    /// The client has given up a path.
    Umnt,
    /// The client has given up all its paths.
    Umntall,
    /// What is exported.
    Export,
}

impl Procedure {
    /// All procedures in the order of their numbers.
    pub const ALL: [Self; 6] = [Self::Null, Self::Mnt, Self::Dump, Self::Umnt, Self::Umntall, Self::Export];

    /// The procedure with that number on the wire; `None` from 6 on.
    #[must_use]
    pub fn from_u32(number: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// The number on the wire.
    #[must_use]
    pub fn number(self) -> u32 {
        u32::from(self as u8)
    }

    /// The name as RFC 1813 writes it, without the prefix.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Null => "NULL",
            Self::Mnt => "MNT",
            Self::Dump => "DUMP",
            Self::Umnt => "UMNT",
            Self::Umntall => "UMNTALL",
            Self::Export => "EXPORT",
        }
    }
}

/// The path that MNT and UMNT have as their argument at byte `at` of a call. It may be empty or not UTF-8.
///
/// # Errors
/// Truncated, or over [`PATH_BYTES_MAX`]: answer with GARBAGE_ARGS.
pub fn path(message: &[u8], at: usize) -> Result<Span, XdrError> {
    Reader::new(message, at).opaque(0, PATH_BYTES_MAX)
}

/// A path with single slashes and none at its end, so that `/e`, `/e/` and `//e` are equal; the root stays `/`.
/// Dots are left alone: an export is found by its name, not by walking.
#[must_use]
pub fn normalise_path(path: &[u8]) -> Vec<u8> {
    let mut normal = Vec::with_capacity(path.len());
    for &byte in path {
        if byte != b'/' || normal.last() != Some(&b'/') {
            normal.push(byte);
        }
    }
    if normal.len() > 1 && normal.last() == Some(&b'/') {
        normal.pop();
    }
    normal
}

/// Appends a version 3 reply to MNT: the root's handle and the flavours of authentication that the client may use,
/// the preferred one first.
pub fn mnt_ok(out: &mut Vec<u8>, xid: u32, handle: &[u8], flavors: &[u32]) {
    answer::success(out, xid);
    put_u32(out, status::OK);
    put_opaque(out, handle);
    put_u32(out, u32::try_from(flavors.len()).unwrap_or(u32::MAX));
    flavors.iter().for_each(|&flavor| put_u32(out, flavor));
}

/// Appends a reply to a MNT that failed, in version 1 or 3.
pub fn mnt_failed(out: &mut Vec<u8>, xid: u32, status: u32) {
    answer::success(out, xid);
    put_u32(out, status);
}

/// Appends a reply to DUMP: (client host, path) of each mount.
pub fn dump<H: AsRef<[u8]>, D: AsRef<[u8]>>(out: &mut Vec<u8>, xid: u32, mounts: &[(H, D)]) {
    answer::success(out, xid);
    for (host, dir) in mounts {
        put_bool(out, true);
        put_opaque(out, host.as_ref());
        put_opaque(out, dir.as_ref());
    }
    put_bool(out, false);
}

/// Appends a reply to EXPORT: each exported path with the groups or addresses that may mount it, none for all.
pub fn export<D, L, G>(out: &mut Vec<u8>, xid: u32, exports: &[(D, L)])
where
    D: AsRef<[u8]>,
    L: AsRef<[G]>,
    G: AsRef<[u8]>,
{
    answer::success(out, xid);
    for (dir, groups) in exports {
        put_bool(out, true);
        put_opaque(out, dir.as_ref());
        for group in groups.as_ref() {
            put_bool(out, true);
            put_opaque(out, group.as_ref());
        }
        put_bool(out, false);
    }
    put_bool(out, false);
}

/// What a store answered to a version 3 MNT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MntResults {
    /// The path is mounted.
    Ok {
        /// The root's handle.
        handle: Span,
        /// Flavours of authentication that the store takes, the preferred one first.
        flavors: Vec<u32>,
    },
    /// It is not, see [`status`].
    Failed {
        /// The mountstat3.
        status: u32,
    },
}

/// Reads the results of a version 3 MNT at byte `at` of an accepted, successful reply.
///
/// # Errors
/// Truncated, or a handle that is empty or over 64 bytes: the store is to blame.
pub fn mnt_results(message: &[u8], at: usize) -> Result<MntResults, XdrError> {
    let mut reader = Reader::new(message, at);
    let status = reader.u32()?;
    if status != status::OK {
        return Ok(MntResults::Failed { status });
    }
    let handle = reader.opaque(1, HANDLE_BYTES_MAX)?;
    // The vector grows with words that are there, not with the number that the store claims.
    let flavors = (0..reader.u32()?).map(|_| reader.u32()).collect::<Result<_, _>>()?;
    Ok(MntResults::Ok { handle, flavors })
}
