//! The cluster file system that all stores export, in memory: what NFSv3's procedures do, over bytes.

use clockwork_wire::nfs3::{self, Arguments, How, Procedure, status};
use clockwork_wire::{answer, rpc, xdr};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

const REGULAR: u32 = 1;
const DIRECTORY: u32 = 2;
const SYMLINK: u32 = 5;

/// How a store numbers the entries of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cookies {
    /// The entry made first comes first, numbered from 1.
    FromBelow,
    /// The entry made last comes first, with numbers that mean nothing to the other kind.
    FromAbove,
}

impl Cookies {
    fn of(self, entry: u64) -> u64 {
        match self {
            Self::FromBelow => entry,
            Self::FromAbove => (1 << 40) - entry,
        }
    }
}

/// What a store puts into its replies besides the file system's content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accent {
    pub(crate) store: usize,
    pub(crate) cookies: Cookies,
    pub(crate) write_verifier: [u8; 8],
    /// Checked in continuations, unless it is zero.
    pub(crate) cookie_verifier: [u8; 8],
    /// The seven sizes of FSINFO.
    pub(crate) sizes: [u32; 7],
}

#[derive(Debug)]
enum Body {
    Regular {
        data: Vec<u8>,
        stable: Vec<u8>,
        /// Written at this store and not committed.
        unstable: Vec<(usize, Range<usize>)>,
        exclusive: Option<[u8; 8]>,
    },
    Directory(BTreeMap<u64, (Vec<u8>, u64)>),
    Symlink(Vec<u8>),
}

#[derive(Debug)]
struct File {
    uid: u32,
    changed: u32,
    body: Body,
}

/// The file system.
#[derive(Debug)]
pub(crate) struct Cluster {
    files: HashMap<u64, File>,
    made: u64,
    changes: u32,
}

type Status<T> = Result<T, u32>;

fn id_of(handle: &[u8]) -> Status<u64> {
    let id = handle.get(4..).and_then(|rest| <[u8; 8]>::try_from(rest).ok());
    id.map(u64::from_be_bytes).ok_or(status::BADHANDLE)
}

fn handle_of(id: u64) -> Vec<u8> {
    [&[0xc1, 0x0c, 0xc0, 0xde][..], &id.to_be_bytes()].concat()
}

impl Cluster {
    /// Only a root directory.
    pub(crate) fn new() -> Self {
        let root = File { uid: 0, changed: 0, body: Body::Directory(BTreeMap::new()) };
        Self { files: HashMap::from([(1, root)]), made: 1, changes: 0 }
    }

    pub(crate) fn root(&self) -> Vec<u8> {
        handle_of(1)
    }

    /// Makes a file behind the stores' backs; gives its handle.
    pub(crate) fn file(&mut self, dir: &[u8], name: &str) -> Vec<u8> {
        let body = Body::Regular { data: vec![], stable: vec![], unstable: vec![], exclusive: None };
        handle_of(self.make(id_of(dir).unwrap(), name.as_bytes(), 1000, body).unwrap())
    }

    pub(crate) fn directory(&mut self, dir: &[u8], name: &str) -> Vec<u8> {
        let body = Body::Directory(BTreeMap::new());
        handle_of(self.make(id_of(dir).unwrap(), name.as_bytes(), 1000, body).unwrap())
    }

    /// The handle of a name.
    pub(crate) fn find(&self, dir: &[u8], name: &str) -> Option<Vec<u8>> {
        self.entry(id_of(dir).unwrap(), name.as_bytes()).ok().map(|(_, id)| handle_of(id))
    }

    /// What a file holds, committed or not.
    pub(crate) fn data(&self, handle: &[u8]) -> &[u8] {
        match &self.files[&id_of(handle).unwrap()].body {
            Body::Regular { data, .. } => data,
            _ => panic!("not a file"),
        }
    }

    /// A store has lost its memory.
    pub(crate) fn lose_unstable(&mut self, store: usize) {
        for file in self.files.values_mut() {
            let Body::Regular { data, stable, unstable, .. } = &mut file.body else { continue };
            let lost: Vec<Range<usize>> =
                unstable.extract_if(.., |(at, _)| *at == store).map(|(_, range)| range).collect();
            for i in lost.into_iter().flatten() {
                // What another store still holds there stays.
                if !unstable.iter().any(|(_, range)| range.contains(&i)) {
                    data[i] = stable.get(i).copied().unwrap_or(0);
                }
            }
        }
    }

    fn entries(&self, dir: u64) -> Status<&BTreeMap<u64, (Vec<u8>, u64)>> {
        match &self.files.get(&dir).ok_or(status::STALE)?.body {
            Body::Directory(entries) => Ok(entries),
            _ => Err(status::NOTDIR),
        }
    }

    fn entries_mut(&mut self, dir: u64) -> Status<&mut BTreeMap<u64, (Vec<u8>, u64)>> {
        match &mut self.files.get_mut(&dir).ok_or(status::STALE)?.body {
            Body::Directory(entries) => Ok(entries),
            _ => Err(status::NOTDIR),
        }
    }

    fn entry(&self, dir: u64, name: &[u8]) -> Status<(u64, u64)> {
        let entries = self.entries(dir)?;
        let found = entries.iter().find(|(_, (entry, _))| entry == name);
        found.map(|(number, (_, id))| (*number, *id)).ok_or(status::NOENT)
    }

    fn link(&mut self, dir: u64, name: &[u8], id: u64) -> Status<()> {
        if self.entry(dir, name).is_ok() {
            return Err(status::EXIST);
        }
        self.made += 1;
        let number = self.made;
        self.entries_mut(dir)?.insert(number, (name.to_vec(), id));
        Ok(())
    }

    fn make(&mut self, dir: u64, name: &[u8], uid: u32, body: Body) -> Status<u64> {
        let id = self.made + 1;
        self.link(dir, name, id)?;
        self.changes += 1;
        self.files.insert(id, File { uid, changed: self.changes, body });
        Ok(id)
    }

    fn remove(&mut self, dir: u64, name: &[u8], directory: bool) -> Status<()> {
        let (number, id) = self.entry(dir, name)?;
        match (&self.files[&id].body, directory) {
            (Body::Directory(entries), true) if !entries.is_empty() => return Err(status::NOTEMPTY),
            (Body::Directory(_), false) => return Err(status::ISDIR),
            (Body::Regular { .. } | Body::Symlink(_), true) => return Err(status::NOTDIR),
            _ => {}
        }
        self.entries_mut(dir)?.remove(&number);
        Ok(())
    }

    fn rename(&mut self, from: (u64, &[u8]), to: (u64, &[u8])) -> Status<()> {
        let (number, id) = self.entry(from.0, from.1)?;
        if let Ok((taken, _)) = self.entry(to.0, to.1) {
            self.entries_mut(to.0)?.remove(&taken);
        }
        self.entries_mut(from.0)?.remove(&number);
        self.link(to.0, to.1, id)
    }

    fn put_attributes(&self, out: &mut Vec<u8>, id: u64) {
        let file = &self.files[&id];
        let (file_type, size) = match &file.body {
            Body::Regular { data, .. } => (REGULAR, data.len()),
            Body::Directory(entries) => (DIRECTORY, entries.len()),
            Body::Symlink(target) => (SYMLINK, target.len()),
        };
        for word in [file_type, 0o644, 1, file.uid, 100] {
            xdr::put_u32(out, word);
        }
        // size, used, device, fsid, fileid, three times
        for double in [size as u64, size as u64, 0, 77, id, 0, 0, u64::from(file.changed)] {
            xdr::put_u64(out, double);
        }
    }

    fn put_optional_attributes(&self, out: &mut Vec<u8>, id: u64) {
        xdr::put_u32(out, 1);
        self.put_attributes(out, id);
    }

    /// Runs a call; the whole reply.
    pub(crate) fn run(&mut self, accent: &Accent, message: &[u8]) -> Vec<u8> {
        let call = rpc::parse_call(message).expect("the router sends calls");
        let mut reply = Vec::new();
        let procedure = Procedure::from_u32(call.procedure).expect("the router sends known procedures");
        let Ok(arguments) = nfs3::arguments(procedure, message, call.arguments) else {
            answer::garbage_args(&mut reply, call.xid);
            return reply;
        };
        answer::success(&mut reply, call.xid);
        let mut results = status::OK.to_be_bytes().to_vec();
        match self.procedure(accent, procedure, &call, &arguments, message, &mut results) {
            Ok(()) => reply.extend_from_slice(&results),
            Err(status) => {
                reply.clear();
                nfs3::failure(&mut reply, call.xid, procedure, status);
            }
        }
        reply
    }

    fn procedure(
        &mut self,
        accent: &Accent,
        procedure: Procedure,
        call: &rpc::Call,
        arguments: &Arguments,
        message: &[u8],
        out: &mut Vec<u8>,
    ) -> Status<()> {
        const NO_WCC: [u8; 8] = [0; 8];
        let id = |span: &Range<usize>| id_of(&message[span.clone()]);
        let name = |span: &Range<usize>| &message[span.clone()];
        let object = id(&arguments.handle().ok_or(status::SERVERFAULT)?)?;
        if !self.files.contains_key(&object) {
            return Err(status::STALE);
        }
        match arguments {
            Arguments::Null => {}
            Arguments::Handle { .. } => return self.of_handle(accent, procedure, object, out),
            Arguments::Setattr { .. } => {
                self.changes += 1;
                let changes = self.changes;
                self.files.get_mut(&object).ok_or(status::STALE)?.changed = changes;
                out.extend_from_slice(&NO_WCC);
            }
            Arguments::Name { name: entry, .. } if procedure == Procedure::Lookup => {
                let (_, found) = self.entry(object, name(entry))?;
                xdr::put_opaque(out, &handle_of(found));
                self.put_optional_attributes(out, found);
                xdr::put_u32(out, 0);
            }
            Arguments::Name { name: entry, .. } => {
                self.remove(object, name(entry), procedure == Procedure::Rmdir)?;
                out.extend_from_slice(&NO_WCC);
            }
            Arguments::Make { name: entry, how, .. } => {
                let made = self.made(object, name(entry), *how, call, entry.end, message)?;
                xdr::put_u32(out, 1);
                xdr::put_opaque(out, &handle_of(made));
                self.put_optional_attributes(out, made);
                out.extend_from_slice(&NO_WCC);
            }
            Arguments::Rename { from_name, to_dir, to_name, .. } => {
                self.rename((object, name(from_name)), (id(to_dir)?, name(to_name)))?;
                out.extend_from_slice(&NO_WCC);
                out.extend_from_slice(&NO_WCC);
            }
            Arguments::Link { handle, name: entry, .. } => {
                let linked = id(handle)?;
                self.link(object, name(entry), linked)?;
                self.put_optional_attributes(out, linked);
                out.extend_from_slice(&NO_WCC);
            }
            Arguments::Read { offset, count, .. } => self.read(object, *offset, *count, out)?,
            Arguments::Write { offset, stable, data, .. } => {
                self.write(accent, object, *offset, *stable, &message[data.clone()], out)?;
            }
            Arguments::Commit { .. } => {
                self.commit(accent.store, object)?;
                out.extend_from_slice(&NO_WCC);
                out.extend_from_slice(&accent.write_verifier);
            }
            Arguments::Readdir { cookie, verifier_at, count, .. } => {
                let verifier = &message[*verifier_at..*verifier_at + 8];
                self.list(accent, object, (*cookie, verifier), *count, false, out)?;
            }
            Arguments::Readdirplus { cookie, verifier_at, maxcount, .. } => {
                let verifier = &message[*verifier_at..*verifier_at + 8];
                self.list(accent, object, (*cookie, verifier), *maxcount, true, out)?;
            }
        }
        Ok(())
    }

    fn of_handle(&self, accent: &Accent, procedure: Procedure, object: u64, out: &mut Vec<u8>) -> Status<()> {
        match procedure {
            Procedure::Getattr => self.put_attributes(out, object),
            Procedure::Access => {
                xdr::put_u32(out, 0);
                xdr::put_u32(out, 0x3f);
            }
            Procedure::Readlink => {
                let Body::Symlink(target) = &self.files[&object].body else { return Err(status::INVAL) };
                xdr::put_u32(out, 0);
                xdr::put_opaque(out, target);
            }
            Procedure::Fsinfo => {
                xdr::put_u32(out, 0);
                accent.sizes.iter().for_each(|size| xdr::put_u32(out, *size));
                xdr::put_u64(out, 1 << 40);
                xdr::put_u64(out, 1);
                xdr::put_u32(out, 0x1b);
            }
            _ => return Err(status::NOTSUPP),
        }
        Ok(())
    }

    fn made(
        &mut self,
        dir: u64,
        name: &[u8],
        how: How,
        call: &rpc::Call,
        name_end: usize,
        message: &[u8],
    ) -> Status<u64> {
        let mut reader = xdr::Reader::new(message, call.credential.start + 12);
        reader.opaque(0, 255).unwrap();
        let uid = reader.u32().unwrap();
        // Behind the name and its padding.
        let rest = (name_end - call.arguments).next_multiple_of(4) + call.arguments;
        let empty = |exclusive| Body::Regular { data: vec![], stable: vec![], unstable: vec![], exclusive };
        match how {
            How::Guarded => self.make(dir, name, uid, empty(None)),
            How::Unchecked => match self.entry(dir, name) {
                Ok((_, id)) => Ok(id),
                Err(_) => self.make(dir, name, uid, empty(None)),
            },
            How::Exclusive => {
                let verifier: [u8; 8] = message[rest + 4..rest + 12].try_into().unwrap();
                match self.entry(dir, name).map(|(_, id)| (id, &self.files[&id].body)) {
                    Ok((id, Body::Regular { exclusive: Some(v), .. })) if *v == verifier => Ok(id),
                    Ok(_) => Err(status::EXIST),
                    Err(_) => self.make(dir, name, uid, empty(Some(verifier))),
                }
            }
            How::Directory => self.make(dir, name, uid, Body::Directory(BTreeMap::new())),
            How::Symlink => {
                let mut reader = xdr::Reader::new(message, rest + 24);
                let target = reader.opaque(0, 1024).map_err(|_| status::INVAL)?;
                self.make(dir, name, uid, Body::Symlink(message[target].to_vec()))
            }
            How::Node => Err(status::NOTSUPP),
        }
    }

    fn read(&self, file: u64, offset: u64, count: u32, out: &mut Vec<u8>) -> Status<()> {
        let Body::Regular { data, .. } = &self.files[&file].body else { return Err(status::ISDIR) };
        let start = usize::try_from(offset).unwrap().min(data.len());
        let end = (start + count as usize).min(data.len());
        xdr::put_u32(out, 0);
        xdr::put_u32(out, u32::try_from(end - start).unwrap());
        xdr::put_bool(out, end == data.len());
        xdr::put_opaque(out, &data[start..end]);
        Ok(())
    }

    fn write(
        &mut self,
        accent: &Accent,
        file: u64,
        offset: u64,
        stably: u32,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Status<()> {
        let Body::Regular { data, stable, unstable, .. } =
            &mut self.files.get_mut(&file).ok_or(status::STALE)?.body
        else {
            return Err(status::INVAL);
        };
        let start = usize::try_from(offset).unwrap();
        let end = start + bytes.len();
        data.resize(data.len().max(end), 0);
        data[start..end].copy_from_slice(bytes);
        // A stable write makes nothing else stable.
        let written = (accent.store, start..end);
        match stably {
            0 => unstable.push(written),
            _ => commit_ranges(data, stable, &mut vec![written], accent.store),
        }
        out.extend_from_slice(&[0; 8]);
        xdr::put_u32(out, u32::try_from(bytes.len()).unwrap());
        xdr::put_u32(out, stably);
        out.extend_from_slice(&accent.write_verifier);
        Ok(())
    }

    fn commit(&mut self, store: usize, file: u64) -> Status<()> {
        let Body::Regular { data, stable, unstable, .. } =
            &mut self.files.get_mut(&file).ok_or(status::STALE)?.body
        else {
            return Err(status::INVAL);
        };
        commit_ranges(data, stable, unstable, store);
        Ok(())
    }

    fn list(
        &self,
        accent: &Accent,
        dir: u64,
        (cookie, verifier): (u64, &[u8]),
        count: u32,
        plus: bool,
        out: &mut Vec<u8>,
    ) -> Status<()> {
        if cookie != 0 && accent.cookie_verifier != [0; 8] && verifier != accent.cookie_verifier {
            return Err(status::BAD_COOKIE);
        }
        let mut entries: Vec<(u64, &[u8], u64)> = self
            .entries(dir)?
            .iter()
            .map(|(number, (name, id))| (accent.cookies.of(*number), &name[..], *id))
            .filter(|entry| entry.0 > cookie)
            .collect();
        entries.sort_unstable();
        xdr::put_u32(out, 0);
        out.extend_from_slice(&accent.cookie_verifier);
        let mut all = true;
        for (cookie, name, id) in entries {
            let mut entry = Vec::new();
            xdr::put_u32(&mut entry, 1);
            xdr::put_u64(&mut entry, id);
            xdr::put_opaque(&mut entry, name);
            xdr::put_u64(&mut entry, cookie);
            if plus {
                self.put_optional_attributes(&mut entry, id);
                xdr::put_u32(&mut entry, 1);
                xdr::put_opaque(&mut entry, &handle_of(id));
            }
            if out.len() + entry.len() + 8 > count as usize {
                all = false;
                break;
            }
            out.extend_from_slice(&entry);
        }
        xdr::put_u32(out, 0);
        xdr::put_bool(out, all);
        Ok(())
    }
}

fn commit_ranges(data: &[u8], stable: &mut Vec<u8>, unstable: &mut Vec<(usize, Range<usize>)>, store: usize) {
    stable.resize(data.len(), 0);
    for (_, range) in unstable.extract_if(.., |(at, _)| *at == store) {
        stable[range.clone()].copy_from_slice(&data[range]);
    }
}
