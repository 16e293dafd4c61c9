//! Attributes between the file system and NFS (RFC 1813 section 2.6), and the kernel's errors as NFS says them.

use nfs3_types::nfs3::{fattr3, ftype3, nfsstat3, nfstime3, set_atime, set_mtime, specdata3};
use rustix::fs::{FileType, Statx, StatxTimestamp, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use rustix::io::Errno;

use super::table::Identity;

/// What makes two sights of a file the same file.
pub(super) fn identity(stat: &Statx) -> Identity {
    let born = stat.stx_btime;
    Identity {
        device: device(stat),
        inode: stat.stx_ino,
        born_ns: i128::from(born.tv_sec) * 1_000_000_000 + i128::from(born.tv_nsec),
        directory: file_type(stat) == FileType::Directory,
    }
}

/// The device a file is on, as one number.
pub(super) fn device(stat: &Statx) -> u64 {
    (u64::from(stat.stx_dev_major) << 32) | u64::from(stat.stx_dev_minor)
}

pub(super) fn file_type(stat: &Statx) -> FileType {
    FileType::from_raw_mode(u32::from(stat.stx_mode))
}

/// The attributes of a file under the id that NFS knows it by.
pub(super) fn attributes(stat: &Statx, fsid: u64, fileid: u64) -> fattr3 {
    fattr3 {
        type_: match file_type(stat) {
            FileType::Directory => ftype3::NF3DIR,
            FileType::Symlink => ftype3::NF3LNK,
            FileType::BlockDevice => ftype3::NF3BLK,
            FileType::CharacterDevice => ftype3::NF3CHR,
            FileType::Fifo => ftype3::NF3FIFO,
            FileType::Socket => ftype3::NF3SOCK,
            _ => ftype3::NF3REG,
        },
        mode: u32::from(stat.stx_mode) & 0o7777,
        nlink: stat.stx_nlink,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        size: stat.stx_size,
        used: stat.stx_blocks.saturating_mul(512),
        rdev: specdata3 { specdata1: stat.stx_rdev_major, specdata2: stat.stx_rdev_minor },
        fsid,
        fileid,
        atime: time(stat.stx_atime),
        mtime: time(stat.stx_mtime),
        ctime: time(stat.stx_ctime),
    }
}

/// NFSv3 times are unsigned 32-bit seconds: what lies outside is shown as the nearest that fits.
fn time(time: StatxTimestamp) -> nfstime3 {
    let seconds = u32::try_from(time.tv_sec.max(0)).unwrap_or(u32::MAX);
    nfstime3 { seconds, nseconds: time.tv_nsec }
}

fn timespec(time: nfstime3) -> Timespec {
    Timespec { tv_sec: i64::from(time.seconds), tv_nsec: i64::from(time.nseconds) }
}

/// The times to set, or `None` where both stay as they are.
pub(super) fn times(atime: set_atime, mtime: set_mtime) -> Option<Timestamps> {
    let special = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    let last_access = match atime {
        set_atime::DONT_CHANGE => special(UTIME_OMIT),
        set_atime::SET_TO_SERVER_TIME => special(UTIME_NOW),
        set_atime::SET_TO_CLIENT_TIME(time) => timespec(time),
    };
    let last_modification = match mtime {
        set_mtime::DONT_CHANGE => special(UTIME_OMIT),
        set_mtime::SET_TO_SERVER_TIME => special(UTIME_NOW),
        set_mtime::SET_TO_CLIENT_TIME(time) => timespec(time),
    };
    let changed = !matches!((atime, mtime), (set_atime::DONT_CHANGE, set_mtime::DONT_CHANGE));
    changed.then_some(Timestamps { last_access, last_modification })
}

/// The kernel's error in the words of RFC 1813 section 2.6.
pub(super) fn status(error: Errno) -> nfsstat3 {
    match error {
        Errno::PERM => nfsstat3::NFS3ERR_PERM,
        Errno::NOENT => nfsstat3::NFS3ERR_NOENT,
        Errno::NXIO => nfsstat3::NFS3ERR_NXIO,
        Errno::ACCESS => nfsstat3::NFS3ERR_ACCES,
        Errno::EXIST => nfsstat3::NFS3ERR_EXIST,
        Errno::XDEV => nfsstat3::NFS3ERR_XDEV,
        Errno::NODEV => nfsstat3::NFS3ERR_NODEV,
        Errno::NOTDIR => nfsstat3::NFS3ERR_NOTDIR,
        Errno::ISDIR => nfsstat3::NFS3ERR_ISDIR,
        Errno::INVAL | Errno::LOOP => nfsstat3::NFS3ERR_INVAL,
        Errno::FBIG => nfsstat3::NFS3ERR_FBIG,
        Errno::NOSPC => nfsstat3::NFS3ERR_NOSPC,
        Errno::ROFS => nfsstat3::NFS3ERR_ROFS,
        Errno::MLINK => nfsstat3::NFS3ERR_MLINK,
        Errno::NAMETOOLONG => nfsstat3::NFS3ERR_NAMETOOLONG,
        Errno::NOTEMPTY => nfsstat3::NFS3ERR_NOTEMPTY,
        Errno::DQUOT => nfsstat3::NFS3ERR_DQUOT,
        Errno::STALE => nfsstat3::NFS3ERR_STALE,
        Errno::OPNOTSUPP => nfsstat3::NFS3ERR_NOTSUPP,
        // The process has no descriptor or memory left for the moment: the client is to come back.
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => nfsstat3::NFS3ERR_JUKEBOX,
        _ => nfsstat3::NFS3ERR_IO,
    }
}
