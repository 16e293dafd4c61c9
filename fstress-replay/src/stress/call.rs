//! Single calls: which comes next, how it is written, whether its reply is right.

use super::distribution::{SizeSampler, Weighted};
use super::files::{APPENDED_BYTES_MAX, LINK_TARGET, Target};
use super::operation::StressOperation;
use crate::client::message;
use crate::client::nfs::{Handle, Sizes, read_data};
use clockwork_wire::nfs3::{self, Procedure, Results, status};
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use std::sync::atomic::Ordering;

/// Names that a lane has made and not removed, beyond which it removes one instead of making another.
pub(super) const SCRATCH_NAMES_MAX: usize = 10_000;
/// Random READs and WRITEs begin at multiples of this, where the file is long enough.
const PAGE_BYTES: u64 = 4096;
/// Bytes of names asked of READDIR, and of READDIRPLUS.
const NAMES_BYTES: u32 = 4096;
/// Bytes asked of READDIRPLUS in all.
const ENTRIES_BYTES: u32 = 8192;

/// A call on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StressCall {
    /// Index of the profile.
    pub(super) target: usize,
    pub(super) operation: StressOperation,
    /// Index of the file, or of the link for READLINK.
    pub(super) file: u32,
    pub(super) offset: u64,
    pub(super) count: u32,
    /// Number of a scratch name.
    pub(super) name: u64,
    /// Number of the new name of a RENAME.
    pub(super) new_name: u64,
}

/// What became of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Good,
    /// The server does not have the procedure.
    Unsupported,
    Wrong(&'static str),
}

/// A lane's view of a profile: where it reads and writes, and the names that it has made.
pub(super) struct Course {
    operations: Weighted,
    kinds: Vec<StressOperation>,
    read_bytes: SizeSampler,
    write_bytes: SizeSampler,
    reading: Option<(u32, u64)>,
    writing: Option<(u32, u64)>,
    written: Option<u32>,
    /// The lane's own directory: its name and handle.
    pub(super) scratch: Option<(String, Handle)>,
    /// Names that REMOVE takes, and those that RMDIR takes.
    pub(super) names: Vec<u64>,
    pub(super) directories: Vec<u64>,
    next_name: u64,
    limits: Sizes,
    /// Calls for which there was nothing (a REMOVE before any CREATE), made into others.
    pub(super) substituted: u64,
}

/// The name of that number in a lane's own directory.
pub(super) fn scratch_name(number: u64) -> String {
    format!("n{number:07}")
}

impl Course {
    pub(super) fn new(target: &Target, limits: Sizes, scratch: Option<(String, Handle)>) -> Self {
        let profile = &target.profile;
        Self {
            operations: Weighted::new(profile.operations.values().copied()),
            kinds: profile.operations.keys().copied().collect(),
            read_bytes: profile.read_bytes.sampler(),
            write_bytes: profile.write_bytes.sampler(),
            reading: None,
            writing: None,
            written: None,
            scratch,
            names: Vec::new(),
            directories: Vec::new(),
            next_name: 0,
            limits,
            substituted: 0,
        }
    }

    /// The next call.
    pub(super) fn next(&mut self, index: usize, target: &Target, rng: &mut ChaCha8Rng) -> StressCall {
        let drawn = self.kinds.get(self.operations.draw(rng)).copied().unwrap_or(StressOperation::Getattr);
        let operation = self.possible(drawn, target);
        self.substituted += u64::from(operation != drawn);
        let mut call =
            StressCall { target: index, operation, file: 0, offset: 0, count: 0, name: 0, new_name: 0 };
        match operation {
            StressOperation::ReadSequential => {
                let (file, offset) = self.reading.take().unwrap_or_else(|| (target.draw(rng), 0));
                let most = u64::from(target.profile.sequential_bytes.min(self.limits.read_bytes_max));
                (call.file, call.offset, call.count) = piece(target, file, offset, most);
                self.reading = after(target, &call);
            }
            StressOperation::WriteSequential => {
                let (file, offset) = self.writing.take().unwrap_or_else(|| (target.draw(rng), 0));
                let most = self.write_bytes.draw(rng).min(u64::from(self.limits.write_bytes_max));
                (call.file, call.offset, call.count) = piece(target, file, offset, most);
                self.writing = after(target, &call);
                self.written = Some(file);
            }
            StressOperation::ReadRandom => {
                let most = self.read_bytes.draw(rng).min(u64::from(self.limits.read_bytes_max));
                (call.file, call.offset, call.count) = anywhere(target, target.draw(rng), most, rng);
            }
            StressOperation::WriteRandom => {
                let most = self.write_bytes.draw(rng).min(u64::from(self.limits.write_bytes_max));
                (call.file, call.offset, call.count) = anywhere(target, target.draw(rng), most, rng);
                self.written = Some(call.file);
            }
            StressOperation::Append => self.append(&mut call, target, rng),
            // What was written last, if anything was.
            StressOperation::Commit => call.file = self.written.take().unwrap_or_else(|| target.draw(rng)),
            StressOperation::Readlink => call.file = target.draw_link(rng).unwrap_or(0),
            StressOperation::Create
            | StressOperation::Mkdir
            | StressOperation::Symlink
            | StressOperation::Mknod => {
                call.name = self.new_name();
            }
            StressOperation::Link => (call.file, call.name) = (target.draw(rng), self.new_name()),
            StressOperation::Remove => call.name = self.names.pop().unwrap_or(0),
            StressOperation::Rmdir => call.name = self.directories.pop().unwrap_or(0),
            StressOperation::Rename => {
                (call.name, call.new_name) = (self.names.pop().unwrap_or(0), self.new_name());
            }
            _ => call.file = target.draw(rng),
        }
        call
    }

    /// The operation itself, or another where there is nothing that it could be done to.
    fn possible(&self, operation: StressOperation, target: &Target) -> StressOperation {
        use StressOperation::{
            Create, Getattr, Link, Mkdir, Mknod, Readlink, Remove, Rename, Rmdir, Symlink,
        };
        match operation {
            Readlink if target.links.is_empty() => Getattr,
            Remove | Rename if self.names.is_empty() => Create,
            Rmdir if self.directories.is_empty() => Mkdir,
            Create | Symlink | Mknod | Link if self.names.len() >= SCRATCH_NAMES_MAX => Remove,
            Mkdir if self.directories.len() >= SCRATCH_NAMES_MAX => Rmdir,
            other => other,
        }
    }

    fn append(&mut self, call: &mut StressCall, target: &Target, rng: &mut ChaCha8Rng) {
        call.file = target.draw(rng);
        let count = self.write_bytes.draw(rng).min(u64::from(self.limits.write_bytes_max));
        call.count = u32::try_from(count).unwrap_or(u32::MAX);
        let Some(file) = target.files.get(call.file as usize) else { return };
        call.offset = file.end.fetch_add(count, Ordering::Relaxed);
        if call.offset > file.bytes + APPENDED_BYTES_MAX {
            file.end.store(file.bytes, Ordering::Relaxed);
        }
        self.written = Some(call.file);
    }

    fn new_name(&mut self) -> u64 {
        self.next_name += 1;
        self.next_name
    }

    /// Notes what a reply changes in the lane's own directory.
    pub(super) fn done(&mut self, call: &StressCall, good: bool) {
        use StressOperation::{Create, Link, Mkdir, Mknod, Rename, Symlink};
        match call.operation {
            Create | Symlink | Mknod | Link if good => self.names.push(call.name),
            Mkdir if good => self.directories.push(call.name),
            Rename => self.names.push(if good { call.new_name } else { call.name }),
            _ => {}
        }
    }

    /// Appends the arguments of a call.
    pub(super) fn write(&self, call: &StressCall, target: &Target, out: &mut Vec<u8>) {
        let Some(file) = target.files.get(call.file as usize) else { return };
        let scratch: &[u8] = self.scratch.as_ref().map_or(&[], |(_, handle)| handle);
        match call.operation {
            StressOperation::Null => {}
            StressOperation::Getattr => message::handle(out, &file.handle),
            StressOperation::Setattr => message::set_mode(out, &file.handle),
            StressOperation::Lookup => message::name(out, &file.directory, &file.name),
            StressOperation::Access => message::access(out, &file.handle),
            StressOperation::Readlink => {
                message::handle(out, target.links.get(call.file as usize).unwrap_or(&target.root));
            }
            StressOperation::ReadSequential | StressOperation::ReadRandom => {
                message::read(out, &file.handle, call.offset, call.count);
            }
            StressOperation::WriteSequential | StressOperation::WriteRandom | StressOperation::Append => {
                let range = (call.offset, call.count);
                message::write_with(out, &file.handle, range, message::UNSTABLE, |out| {
                    file.content.append(out, call.offset, call.count as usize);
                });
            }
            StressOperation::Create => message::create(out, scratch, &scratch_name(call.name)),
            StressOperation::Mkdir => message::mkdir(out, scratch, &scratch_name(call.name)),
            StressOperation::Symlink => message::symlink(out, scratch, &scratch_name(call.name), LINK_TARGET),
            StressOperation::Mknod => message::mkfifo(out, scratch, &scratch_name(call.name)),
            StressOperation::Remove | StressOperation::Rmdir => {
                message::name(out, scratch, &scratch_name(call.name));
            }
            StressOperation::Rename => {
                message::rename(out, scratch, &scratch_name(call.name), &scratch_name(call.new_name));
            }
            StressOperation::Link => message::link(out, &file.handle, scratch, &scratch_name(call.name)),
            StressOperation::Readdir => message::readdir(out, &file.directory, NAMES_BYTES),
            StressOperation::Readdirplus => {
                message::readdirplus(out, &file.directory, NAMES_BYTES, ENTRIES_BYTES);
            }
            StressOperation::Fsstat | StressOperation::Fsinfo | StressOperation::Pathconf => {
                message::handle(out, &target.root);
            }
            StressOperation::Commit => message::commit(out, &file.handle),
        }
    }
}

/// A piece of a file from `offset` on, of `most` bytes or to the end.
fn piece(target: &Target, file: u32, offset: u64, most: u64) -> (u32, u64, u32) {
    let bytes = target.files.get(file as usize).map_or(0, |file| file.bytes);
    (file, offset, u32::try_from(bytes.saturating_sub(offset).min(most)).unwrap_or(u32::MAX))
}

/// Where the next piece begins, if there is one.
fn after(target: &Target, call: &StressCall) -> Option<(u32, u64)> {
    let next = call.offset + u64::from(call.count);
    let bytes = target.files.get(call.file as usize).map_or(0, |file| file.bytes);
    (next < bytes && call.count > 0).then_some((call.file, next))
}

/// A piece anywhere in a file, of `most` bytes or the whole file.
fn anywhere(target: &Target, file: u32, most: u64, rng: &mut ChaCha8Rng) -> (u32, u64, u32) {
    let bytes = target.files.get(file as usize).map_or(0, |file| file.bytes);
    let count = bytes.min(most);
    let pages = (bytes - count) / PAGE_BYTES;
    let offset = rng.random_range(0..=pages) * PAGE_BYTES;
    (file, offset, u32::try_from(count).unwrap_or(u32::MAX))
}

/// Whether a reply is what it should be. `again`: the call was sent more than once, so a server that does not know a
/// retransmission by its XID may have run it twice.
pub(super) fn judge(
    call: &StressCall,
    target: &Target,
    (reply, results): (&[u8], usize),
    verify: bool,
    again: bool,
) -> Verdict {
    let Some(procedure) = call.operation.procedure() else { return Verdict::Good };
    let Some(file) = target.files.get(call.file as usize) else { return Verdict::Wrong("no such file") };
    let Ok(found) = nfs3::results(procedure, reply, results) else {
        return Verdict::Wrong("malformed results");
    };
    let wrong = match found {
        Results::Failed { status: status::NOTSUPP } => return Verdict::Unsupported,
        Results::Failed { status: status::EXIST } if again && makes_name(procedure) => return Verdict::Good,
        Results::Failed { status: status::NOENT } if again && takes_name(procedure) => return Verdict::Good,
        Results::Failed { status } => Some(status::name(status)),
        Results::Lookup { handle, .. } => {
            (reply[handle] != *file.handle).then_some("another handle than at the start")
        }
        Results::Getattr { attributes_at } => match nfs3::attributes(reply, attributes_at) {
            Some(attributes) if attributes.size >= file.bytes => None,
            _ => Some("a smaller size than in the file set"),
        },
        Results::Write { count, .. } => (count != call.count).then_some("less data taken than offered"),
        Results::Read { .. } => match read_data(reply, results) {
            Err(_) => Some("malformed results"),
            Ok(data) if data.len() != call.count as usize => Some("less data than asked for"),
            Ok(data) => {
                let right = !verify || file.content.matches(&reply[data], call.offset);
                (!right).then_some("data that is not the file's")
            }
        },
        Results::Readlink { target } => {
            (verify && reply[target] != *LINK_TARGET.as_bytes()).then_some("another target than was written")
        }
        _ => None,
    };
    wrong.map_or(Verdict::Good, Verdict::Wrong)
}

fn makes_name(procedure: Procedure) -> bool {
    matches!(procedure, Procedure::Mkdir | Procedure::Symlink | Procedure::Mknod | Procedure::Link)
}

fn takes_name(procedure: Procedure) -> bool {
    matches!(procedure, Procedure::Remove | Procedure::Rmdir | Procedure::Rename)
}
