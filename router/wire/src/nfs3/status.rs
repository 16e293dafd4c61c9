//! nfsstat3: what a store says about a call that it ran (RFC 1813 section 2.6).

macro_rules! statuses {
    ($($name:ident = $value:literal, $text:literal;)*) => {
        $(#[doc = concat!("NFS3ERR_", stringify!($name), ": ", $text, ".")] pub const $name: u32 = $value;)*

        /// The RFC's name of a status, without `NFS3ERR_`; `"UNKNOWN"` for a number that the RFC does not have.
        #[must_use]
        pub fn name(status: u32) -> &'static str {
            match status {
                OK => "OK",
                $($value => stringify!($name),)*
                _ => "UNKNOWN",
            }
        }
    };
}

/// NFS3_OK: the call did what it should.
pub const OK: u32 = 0;

statuses! {
    PERM = 1, "the caller is neither privileged nor the owner";
    NOENT = 2, "no such name";
    IO = 5, "the device failed";
    NXIO = 6, "no such device";
    ACCES = 13, "the caller lacks the permission";
    EXIST = 17, "the name exists already";
    XDEV = 18, "a link across file systems";
    NODEV = 19, "no such device";
    NOTDIR = 20, "not a directory";
    ISDIR = 21, "a directory";
    INVAL = 22, "an argument that is not supported";
    FBIG = 27, "the file would grow too large";
    NOSPC = 28, "no space left";
    ROFS = 30, "a read-only file system";
    MLINK = 31, "too many hard links";
    NAMETOOLONG = 63, "the name is too long";
    NOTEMPTY = 66, "the directory is not empty";
    DQUOT = 69, "over quota";
    STALE = 70, "the handle's file is gone";
    REMOTE = 71, "too many levels of remote in path";
    BADHANDLE = 10001, "the handle is malformed";
    NOT_SYNC = 10002, "the guard of a SETATTR did not match";
    BAD_COOKIE = 10003, "a directory cookie that is not valid any more";
    NOTSUPP = 10004, "the operation is not supported";
    TOOSMALL = 10005, "the buffer or request is too small";
    SERVERFAULT = 10006, "an error that has no other number";
    BADTYPE = 10007, "a type of object that the server cannot create";
    JUKEBOX = 10008, "not now: the client has to try again later";
}
