//! Valid messages of every procedure, made by an independent codec from arbitrary values.

use clockwork_wire::nfs3::Procedure;
use nfs3_types::nfs3::*;
use nfs3_types::rpc::{
    accept_stat_data, accepted_reply, auth_unix, call_body, msg_body, opaque_auth, reply_body, rpc_msg,
};
use nfs3_types::xdr_codec::{List, Opaque, Pack, Unpack, Void};
use proptest::collection::vec;
use proptest::prelude::*;

/// What messages are made of; each value turns up in every message that has a place for it.
#[derive(Clone, Debug)]
pub(crate) struct Values {
    pub(crate) xid: u32,
    pub(crate) machine: String,
    pub(crate) handle: Vec<u8>,
    pub(crate) other_handle: Vec<u8>,
    pub(crate) name: Vec<u8>,
    pub(crate) other_name: Vec<u8>,
    pub(crate) data: Vec<u8>,
    pub(crate) number: u64,
    pub(crate) count: u32,
    pub(crate) verifier: [u8; 8],
    /// Whether what is optional is there.
    pub(crate) given: bool,
}

pub(crate) fn values() -> impl Strategy<Value = Values> {
    let handle = || vec(any::<u8>(), 1..=64);
    let name = || vec(any::<u8>(), 0..=300);
    (
        (any::<u32>(), "[a-z]{0,255}", handle(), handle(), name(), name()),
        (vec(any::<u8>(), 0..2000), any::<u64>(), any::<u32>(), any::<[u8; 8]>(), any::<bool>()),
    )
        .prop_map(|((xid, machine, handle, other_handle, name, other_name), rest)| {
            let (data, number, count, verifier, given) = rest;
            Values {
                xid,
                machine,
                handle,
                other_handle,
                name,
                other_name,
                data,
                number,
                count,
                verifier,
                given,
            }
        })
}

pub(crate) fn pack(value: &impl Pack) -> Vec<u8> {
    let mut out = Vec::new();
    value.pack(&mut out).unwrap();
    out
}

/// Decodes all of `bytes`; bytes left over fail the test.
pub(crate) fn unpack_all<T: Unpack>(bytes: &[u8]) -> T {
    let mut rest = bytes;
    let (value, _) = T::unpack(&mut rest).unwrap();
    assert!(rest.is_empty(), "{} bytes left over", rest.len());
    value
}

/// A message of any kind and what must be read from it.
pub(crate) struct Sample {
    pub(crate) procedure: Procedure,
    /// Which of the procedure's forms.
    pub(crate) form: &'static str,
    pub(crate) message: Vec<u8>,
    /// Where the arguments or results begin.
    pub(crate) at: usize,
}

impl Values {
    fn fh(&self) -> nfs_fh3 {
        nfs_fh3 { data: Opaque::owned(self.handle.clone()) }
    }

    fn other_fh(&self) -> nfs_fh3 {
        nfs_fh3 { data: Opaque::owned(self.other_handle.clone()) }
    }

    fn place(&self) -> diropargs3<'static> {
        diropargs3 { dir: self.fh(), name: self.name.clone().into() }
    }

    fn other_place(&self) -> diropargs3<'static> {
        diropargs3 { dir: self.other_fh(), name: self.other_name.clone().into() }
    }

    fn time(&self) -> nfstime3 {
        nfstime3 { seconds: self.count, nseconds: self.xid }
    }

    fn option<T: Pack + Unpack>(&self, value: T) -> Nfs3Option<T> {
        if self.given { Nfs3Option::Some(value) } else { Nfs3Option::None }
    }

    fn sattr(&self) -> sattr3 {
        sattr3 {
            mode: self.option(0o644),
            uid: self.option(self.count),
            gid: self.option(self.xid),
            size: self.option(self.number),
            atime: if self.given {
                set_atime::SET_TO_CLIENT_TIME(self.time())
            } else {
                set_atime::DONT_CHANGE
            },
            mtime: if self.given { set_mtime::SET_TO_SERVER_TIME } else { set_mtime::DONT_CHANGE },
        }
    }

    pub(crate) fn fattr(&self) -> fattr3 {
        fattr3 {
            type_: ftype3::NF3LNK,
            mode: 0o751,
            nlink: 3,
            uid: self.count,
            gid: self.xid,
            size: self.number,
            used: self.number ^ 1,
            rdev: specdata3 { specdata1: 7, specdata2: 8 },
            fsid: self.number ^ 2,
            fileid: self.number ^ 3,
            atime: nfstime3 { seconds: 11, nseconds: 12 },
            mtime: nfstime3 { seconds: 13, nseconds: 14 },
            ctime: nfstime3 { seconds: 15, nseconds: 16 },
        }
    }

    fn wcc(&self) -> wcc_data {
        wcc_data {
            before: self.option(wcc_attr { size: self.number, mtime: self.time(), ctime: self.time() }),
            after: self.option(self.fattr()),
        }
    }

    fn call(&self, procedure: Procedure, form: &'static str, arguments: &impl Pack) -> Sample {
        let identity = auth_unix {
            stamp: self.count,
            machinename: Opaque::owned(self.machine.clone().into_bytes()),
            uid: 1,
            gid: 2,
            gids: vec![3; 16],
        };
        let body = call_body {
            rpcvers: 2,
            prog: PROGRAM,
            vers: VERSION,
            proc: procedure as u32,
            cred: opaque_auth::auth_unix(&identity),
            verf: opaque_auth::default(),
        };
        let mut message = pack(&rpc_msg { xid: self.xid, body: msg_body::CALL(body) });
        let at = message.len();
        message.extend(pack(arguments));
        Sample { procedure, form, message, at }
    }

    fn reply(&self, procedure: Procedure, form: &'static str, results: &impl Pack) -> Sample {
        let body = accepted_reply { verf: opaque_auth::default(), reply_data: accept_stat_data::SUCCESS };
        let body = msg_body::REPLY(reply_body::MSG_ACCEPTED(body));
        let mut message = pack(&rpc_msg { xid: self.xid, body });
        let at = message.len();
        message.extend(pack(results));
        Sample { procedure, form, message, at }
    }

    /// A call of every procedure, in each of its forms.
    pub(crate) fn calls(&self) -> Vec<Sample> {
        let mut calls = self.calls_that_read();
        calls.extend(self.calls_that_change());
        calls.extend(self.calls_that_make());
        calls
    }

    fn calls_that_read(&self) -> Vec<Sample> {
        let cookieverf = cookieverf3(self.verifier);
        let (cookie, count) = (self.number, self.count);
        vec![
            self.call(Procedure::Null, "", &Void),
            self.call(Procedure::Getattr, "", &GETATTR3args { object: self.fh() }),
            self.call(Procedure::Lookup, "", &LOOKUP3args { what: self.place() }),
            self.call(Procedure::Access, "", &ACCESS3args { object: self.fh(), access: 0x3f }),
            self.call(Procedure::Readlink, "", &READLINK3args { symlink: self.fh() }),
            self.call(Procedure::Read, "", &READ3args { file: self.fh(), offset: cookie, count }),
            self.call(Procedure::Readdir, "", &READDIR3args { dir: self.fh(), cookie, cookieverf, count }),
            self.call(
                Procedure::Readdirplus,
                "",
                &READDIRPLUS3args {
                    dir: self.fh(),
                    cookie,
                    cookieverf,
                    dircount: count ^ 1,
                    maxcount: count,
                },
            ),
            self.call(Procedure::Fsstat, "", &FSSTAT3args { fsroot: self.fh() }),
            self.call(Procedure::Fsinfo, "", &FSINFO3args { fsroot: self.fh() }),
            self.call(Procedure::Pathconf, "", &PATHCONF3args { object: self.fh() }),
            self.call(Procedure::Commit, "", &COMMIT3args { file: self.fh(), offset: cookie, count }),
        ]
    }

    fn calls_that_change(&self) -> Vec<Sample> {
        let setattr =
            SETATTR3args { object: self.fh(), new_attributes: self.sattr(), guard: self.option(self.time()) };
        let write = WRITE3args {
            file: self.fh(),
            offset: self.number,
            count: self.count,
            stable: stable_how::DATA_SYNC,
            data: Opaque::borrowed(&self.data),
        };
        let (from, to) = (self.place(), self.other_place());
        vec![
            self.call(Procedure::Setattr, "", &setattr),
            self.call(Procedure::Write, "", &write),
            self.call(Procedure::Remove, "", &REMOVE3args { object: self.place() }),
            self.call(Procedure::Rmdir, "", &RMDIR3args { object: self.place() }),
            self.call(Procedure::Rename, "", &RENAME3args { from, to }),
            self.call(Procedure::Link, "", &LINK3args { file: self.other_fh(), link: self.place() }),
        ]
    }

    fn calls_that_make(&self) -> Vec<Sample> {
        let create =
            |form, how| self.call(Procedure::Create, form, &CREATE3args { where_: self.place(), how });
        let node = |form, what| self.call(Procedure::Mknod, form, &MKNOD3args { where_: self.place(), what });
        let device = || devicedata3 { dev_attributes: self.sattr(), spec: specdata3::default() };
        let symlink = symlinkdata3 {
            symlink_attributes: self.sattr(),
            symlink_data: nfspath3(Opaque::borrowed(&self.data)),
        };
        vec![
            create("unchecked", createhow3::UNCHECKED(self.sattr())),
            create("guarded", createhow3::GUARDED(self.sattr())),
            create("exclusive", createhow3::EXCLUSIVE(createverf3(self.verifier))),
            self.call(Procedure::Mkdir, "", &MKDIR3args { where_: self.place(), attributes: self.sattr() }),
            self.call(Procedure::Symlink, "", &SYMLINK3args { where_: self.place(), symlink }),
            node("block", mknoddata3::NF3BLK(device())),
            node("character", mknoddata3::NF3CHR(device())),
            node("socket", mknoddata3::NF3SOCK(self.sattr())),
            node("fifo", mknoddata3::NF3FIFO(self.sattr())),
        ]
    }

    /// A successful reply of every procedure.
    pub(crate) fn replies(&self) -> Vec<Sample> {
        let mut replies = self.replies_that_read();
        replies.extend(self.replies_of_lists());
        replies.extend(self.replies_that_change());
        replies
    }

    fn replies_that_read(&self) -> Vec<Sample> {
        let attributes = || self.option(self.fattr());
        let lookup =
            LOOKUP3resok { object: self.fh(), obj_attributes: attributes(), dir_attributes: attributes() };
        let read = READ3resok {
            file_attributes: attributes(),
            count: self.count,
            eof: self.given,
            data: Opaque::borrowed(&self.data),
        };
        let readlink =
            READLINK3resok { symlink_attributes: attributes(), data: nfspath3(Opaque::borrowed(&self.data)) };
        let fsstat = FSSTAT3resok {
            obj_attributes: attributes(),
            tbytes: 1,
            fbytes: 2,
            abytes: 3,
            tfiles: 4,
            ffiles: 5,
            afiles: 6,
            invarsec: 7,
        };
        let pathconf = PATHCONF3resok {
            obj_attributes: attributes(),
            linkmax: 1,
            name_max: 255,
            no_trunc: true,
            chown_restricted: true,
            case_insensitive: false,
            case_preserving: true,
        };
        let getattr = GETATTR3resok { obj_attributes: self.fattr() };
        let access = ACCESS3resok { obj_attributes: attributes(), access: 1 };
        vec![
            self.reply(Procedure::Null, "", &Void),
            self.reply(Procedure::Getattr, "", &GETATTR3res::Ok(getattr)),
            self.reply(Procedure::Lookup, "", &LOOKUP3res::Ok(lookup)),
            self.reply(Procedure::Access, "", &ACCESS3res::Ok(access)),
            self.reply(Procedure::Readlink, "", &READLINK3res::Ok(readlink)),
            self.reply(Procedure::Read, "", &READ3res::Ok(read)),
            self.reply(Procedure::Fsstat, "", &FSSTAT3res::Ok(fsstat)),
            self.reply(Procedure::Fsinfo, "", &FSINFO3res::Ok(self.fsinfo())),
            self.reply(Procedure::Pathconf, "", &PATHCONF3res::Ok(pathconf)),
        ]
    }

    fn fsinfo(&self) -> FSINFO3resok {
        FSINFO3resok {
            obj_attributes: self.option(self.fattr()),
            rtmax: self.count,
            rtpref: 2,
            rtmult: 3,
            wtmax: 4,
            wtpref: 5,
            wtmult: 6,
            dtpref: self.xid,
            maxfilesize: self.number,
            time_delta: self.time(),
            properties: 0x1b,
        }
    }

    fn replies_of_lists(&self) -> Vec<Sample> {
        let names = [&self.name, &self.other_name];
        let cookie = |index: usize| self.number.wrapping_add(index as u64);
        let entry = |(index, name): (usize, &&Vec<u8>)| entry3 {
            fileid: self.number,
            name: name.to_vec().into(),
            cookie: cookie(index),
        };
        let entry_plus = |(index, name): (usize, &&Vec<u8>)| entryplus3 {
            fileid: self.number,
            name: name.to_vec().into(),
            cookie: cookie(index),
            name_attributes: self.option(self.fattr()),
            name_handle: self.option(self.other_fh()),
        };
        let list = READDIR3resok {
            dir_attributes: self.option(self.fattr()),
            cookieverf: cookieverf3(self.verifier),
            reply: dirlist3 { entries: List(names.iter().enumerate().map(entry).collect()), eof: self.given },
        };
        let list_plus = READDIRPLUS3resok {
            dir_attributes: self.option(self.fattr()),
            cookieverf: cookieverf3(self.verifier),
            reply: dirlistplus3 {
                entries: List(names.iter().enumerate().map(entry_plus).collect()),
                eof: self.given,
            },
        };
        vec![
            self.reply(Procedure::Readdir, "", &READDIR3res::Ok(list)),
            self.reply(Procedure::Readdirplus, "", &READDIRPLUS3res::Ok(list_plus)),
        ]
    }

    fn replies_that_change(&self) -> Vec<Sample> {
        let write = WRITE3resok {
            file_wcc: self.wcc(),
            count: self.count,
            committed: stable_how::FILE_SYNC,
            verf: writeverf3(self.verifier),
        };
        let commit = COMMIT3resok { file_wcc: self.wcc(), verf: writeverf3(self.verifier) };
        let rename = RENAME3resok { fromdir_wcc: self.wcc(), todir_wcc: self.wcc() };
        let link = LINK3resok { file_attributes: self.option(self.fattr()), linkdir_wcc: self.wcc() };
        macro_rules! made {
            ($procedure:ident, $results:ident, $ok:ident) => {{
                let obj = self.option(self.other_fh());
                let obj_attributes = self.option(self.fattr());
                let ok = $ok { obj, obj_attributes, dir_wcc: self.wcc() };
                self.reply(Procedure::$procedure, "", &$results::Ok(ok))
            }};
        }
        vec![
            self.reply(Procedure::Setattr, "", &SETATTR3res::Ok(SETATTR3resok { obj_wcc: self.wcc() })),
            self.reply(Procedure::Write, "", &WRITE3res::Ok(write)),
            made!(Create, CREATE3res, CREATE3resok),
            made!(Mkdir, MKDIR3res, MKDIR3resok),
            made!(Symlink, SYMLINK3res, SYMLINK3resok),
            made!(Mknod, MKNOD3res, MKNOD3resok),
            self.reply(Procedure::Remove, "", &REMOVE3res::Ok(REMOVE3resok { dir_wcc: self.wcc() })),
            self.reply(Procedure::Rmdir, "", &RMDIR3res::Ok(RMDIR3resok { dir_wcc: self.wcc() })),
            self.reply(Procedure::Rename, "", &RENAME3res::Ok(rename)),
            self.reply(Procedure::Link, "", &LINK3res::Ok(link)),
            self.reply(Procedure::Commit, "", &COMMIT3res::Ok(commit)),
        ]
    }
}
