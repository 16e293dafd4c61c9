//! When a call had to be sent again and the store that had it first may have run it, a following EXIST or NOENT says
//! nothing by itself: perhaps the first transmission did it. Here it is settled, by looking where a look decides.
//!
//! | call | answer | how it is settled |
//! |---|---|---|
//! | REMOVE, RMDIR | NOENT | the name is gone, which is what was asked: answered OK, as BSD's clients do |
//! | RENAME | NOENT | LOOKUP of the new name: there, so OK; else the answer stands |
//! | LINK | EXIST | LOOKUP of the name: the same handle, so OK; else the answer stands |
//! | MKDIR | EXIST | LOOKUP of the name: a directory of the caller's, so OK; else the answer stands |
//! | SYMLINK | EXIST | LOOKUP and READLINK: the same target, so OK; else the answer stands |
//! | CREATE guarded, MKNOD | EXIST | the answer stands: nothing tells another client's file from ours |
//! | SETATTR guarded | NOT_SYNC | the answer stands |
//!
//! What remains: a REMOVE of a name that never was, a RENAME of one onto a name that is there, or a MKDIR that lost a race
//! against the same user on another client, is reported as done when its store's connection was lost in just that moment.
//! A MKDIR of a user whom the store maps to another (root, mostly) keeps its EXIST.

use crate::pending::Slot;
use clockwork_wire::nfs3::{self, Arguments, Procedure, Results, status};
use clockwork_wire::{Span, rpc, xdr};

/// `ftype3` (RFC 1813 section 2.5).
const DIRECTORY: u32 = 2;
const SYMLINK: u32 = 5;

/// A reply in doubt, kept until the look is done.
#[derive(Debug)]
pub(crate) struct Resolution<T> {
    /// The call in doubt.
    pub(crate) slot: Slot<T>,
    /// The call as it was sent to the store.
    pub(crate) call: Box<[u8]>,
    /// The store's answer: record mark and message.
    pub(crate) record: Box<[u8]>,
    /// For SYMLINK, once its LOOKUP has shown a link: handle and attributes.
    pub(crate) found: Option<Found>,
}

/// What a LOOKUP has shown.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    handle: Box<[u8]>,
    /// `fattr3` as it stands on the wire.
    attributes: Option<Box<[u8]>>,
}

/// What to do about an answer to a call that may have run before.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// None: the answer stands.
    None,
    /// It has run: answer with success.
    Done,
    /// Look: an NFS procedure and its arguments.
    Look(Procedure, Vec<u8>),
}

fn lookup(message: &[u8], directory: Span, name: Span) -> Doubt {
    let mut arguments = Vec::with_capacity(8 + directory.len() + name.len() + 6);
    xdr::put_opaque(&mut arguments, &message[directory]);
    xdr::put_opaque(&mut arguments, &message[name]);
    Doubt::Look(Procedure::Lookup, arguments)
}

/// Whether `answer`, an NFS status, to a re-sent `call` is in doubt.
pub(crate) fn doubt(procedure: Procedure, call: &[u8], answer: u32) -> Doubt {
    let Ok(header) = rpc::parse_call(call) else { return Doubt::None };
    let Ok(arguments) = nfs3::arguments(procedure, call, header.arguments) else { return Doubt::None };
    match (procedure, answer, arguments) {
        (Procedure::Remove | Procedure::Rmdir, status::NOENT, _) => Doubt::Done,
        (Procedure::Rename, status::NOENT, Arguments::Rename { to_dir, to_name, .. }) => {
            lookup(call, to_dir, to_name)
        }
        (Procedure::Link, status::EXIST, Arguments::Link { dir, name, .. }) => lookup(call, dir, name),
        (Procedure::Mkdir | Procedure::Symlink, status::EXIST, Arguments::Make { dir, name, .. }) => {
            lookup(call, dir, name)
        }
        _ => Doubt::None,
    }
}

/// What the look has shown.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The store's first answer stands.
    Stands,
    /// The call has run: the success to answer with, record mark and message, under the client's XID.
    Done(Vec<u8>),
    /// Look once more.
    Look(Procedure, Vec<u8>),
}

impl<T> Resolution<T> {
    /// Settles the doubt with `message`, the reply to a look.
    pub(crate) fn settle(&mut self, looked: Procedure, message: &[u8]) -> Outcome {
        let Ok(reply) = rpc::parse_reply(message) else { return Outcome::Stands };
        let rpc::ReplyBody::Accepted { stat: 0, results } = reply.body else { return Outcome::Stands };
        let Ok(results) = nfs3::results(looked, message, results) else { return Outcome::Stands };
        match (results, self.found.take()) {
            (Results::Lookup { handle, attributes_at }, None) => {
                self.settle_lookup(message, handle, attributes_at)
            }
            (Results::Readlink { target }, Some(found)) => {
                // SYMLINK's arguments end with the target.
                let mut tail = Vec::new();
                xdr::put_opaque(&mut tail, &message[target]);
                if self.call.ends_with(&tail) { self.done(Some(&found)) } else { Outcome::Stands }
            }
            _ => Outcome::Stands,
        }
    }

    fn settle_lookup(&mut self, message: &[u8], handle: Span, attributes_at: Option<usize>) -> Outcome {
        let attributes = attributes_at.and_then(|at| nfs3::attributes(message, at));
        let found = Found {
            handle: message[handle].into(),
            attributes: attributes_at
                .and_then(|at| message.get(at..at + nfs3::ATTRIBUTES_BYTES))
                .map(Into::into),
        };
        match self.slot.procedure {
            Procedure::Rename => self.done(None),
            Procedure::Link if self.linked_handle() == Some(&found.handle) => self.done(Some(&found)),
            Procedure::Mkdir => match attributes {
                Some(a) if a.file_type == DIRECTORY && Some(a.uid) == self.caller() => {
                    self.done(Some(&found))
                }
                _ => Outcome::Stands,
            },
            Procedure::Symlink if attributes.is_some_and(|a| a.file_type == SYMLINK) => {
                let mut arguments = Vec::new();
                xdr::put_opaque(&mut arguments, &found.handle);
                self.found = Some(found);
                Outcome::Look(Procedure::Readlink, arguments)
            }
            _ => Outcome::Stands,
        }
    }

    fn linked_handle(&self) -> Option<&[u8]> {
        let header = rpc::parse_call(&self.call).ok()?;
        match nfs3::arguments(Procedure::Link, &self.call, header.arguments).ok()? {
            Arguments::Link { handle, .. } => self.call.get(handle),
            _ => None,
        }
    }

    /// The user of an AUTH_SYS credential (RFC 5531 appendix A).
    fn caller(&self) -> Option<u32> {
        let header = rpc::parse_call(&self.call).ok()?;
        let mut reader = xdr::Reader::new(&self.call, header.credential.start);
        if reader.u32().ok()? != rpc::AUTH_SYS {
            return None;
        }
        let (_length, _stamp) = (reader.u32().ok()?, reader.u32().ok()?);
        let _machine = reader.opaque(0, 255).ok()?;
        reader.u32().ok()
    }

    fn done(&self, found: Option<&Found>) -> Outcome {
        Outcome::Done(success(self.slot.procedure, self.slot.client_xid, found))
    }
}

/// A success of `procedure`, as a record, without weak cache consistency data: the client looks for itself.
pub(crate) fn success(procedure: Procedure, xid: u32, found: Option<&Found>) -> Vec<u8> {
    let mut record = vec![0; 4];
    clockwork_wire::answer::success(&mut record, xid);
    xdr::put_u32(&mut record, status::OK);
    let attributes = |record: &mut Vec<u8>| match found.and_then(|f| f.attributes.as_ref()) {
        Some(bytes) => {
            xdr::put_u32(record, 1);
            record.extend_from_slice(bytes);
        }
        None => xdr::put_u32(record, 0),
    };
    let no_wcc = |record: &mut Vec<u8>| {
        xdr::put_u32(record, 0);
        xdr::put_u32(record, 0);
    };
    match procedure {
        Procedure::Rename => {
            no_wcc(&mut record);
            no_wcc(&mut record);
        }
        Procedure::Link => {
            attributes(&mut record);
            no_wcc(&mut record);
        }
        Procedure::Mkdir | Procedure::Symlink => {
            match found {
                Some(found) => {
                    xdr::put_u32(&mut record, 1);
                    xdr::put_opaque(&mut record, &found.handle);
                }
                None => xdr::put_u32(&mut record, 0),
            }
            attributes(&mut record);
            no_wcc(&mut record);
        }
        _ => no_wcc(&mut record),
    }
    let mark = clockwork_wire::record::mark(record.len() - 4);
    record[..4].copy_from_slice(&mark);
    record
}
