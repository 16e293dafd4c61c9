//! Calls whose replies name files, or take names away: what was asked for, until the reply comes.

use super::Seen;
use clockwork_wire::nfs3::{Procedure, entries_plus, status};
use clockwork_wire::rpc::{self, ReplyBody};
use clockwork_wire::xdr::Reader;
use clockwork_wire::{mount, nfs3};
use hashbrown::HashMap;
use std::collections::VecDeque;

/// Most calls that wait for their reply (about 300 bytes each); beyond that the oldest are forgotten.
const PENDING_MAX: usize = 16_384;
/// Bytes of a message that are kept: header with the longest credential, and the first arguments or results.
pub(super) const HEAD_BYTES: usize = 1_024;
/// Bytes of a listing that are kept. What it names behind them is learnt when it is looked up.
const LISTING_BYTES: usize = 64 << 10;

/// What a reply is waited for.
enum Asked {
    /// LOOKUP: the reply begins with the handle.
    Name,
    /// CREATE, MKDIR, SYMLINK, MKNOD: the handle may be missing.
    Make,
    Readdirplus,
    /// LINK: another name for a handle.
    Link(Box<[u8]>),
    /// RENAME, to a name in a directory.
    Rename(Box<[u8]>, Box<[u8]>),
    /// REMOVE and RMDIR.
    Remove,
    /// MNT; the name is the path.
    Mount,
}

struct Waiting {
    asked: Asked,
    directory: Box<[u8]>,
    name: Box<[u8]>,
}

/// Calls by a hash of their sockets and XID.
#[derive(Default)]
pub(super) struct Pending {
    calls: HashMap<u64, Waiting>,
    order: VecDeque<u64>,
}

impl Pending {
    /// Takes note of a call, if its reply will name files.
    pub(super) fn call(&mut self, key: u64, header: &rpc::Call, message: &[u8]) {
        let Some(waiting) = waiting(header, message) else { return };
        if self.order.len() >= PENDING_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.calls.remove(&oldest);
        }
        self.order.push_back(key);
        self.calls.insert(key, waiting);
    }

    /// How much of the reply to a call matters, in bytes; `None` if nobody waits for it.
    pub(super) fn wanted(&self, key: u64) -> Option<usize> {
        let waiting = self.calls.get(&key)?;
        Some(if matches!(waiting.asked, Asked::Readdirplus) { LISTING_BYTES } else { HEAD_BYTES })
    }

    /// Shows what a reply names.
    pub(super) fn reply(&mut self, key: u64, message: &[u8], show: &mut impl FnMut(&Seen<'_>)) {
        let Some(waiting) = self.calls.remove(&key) else { return };
        if let Ok(rpc::Reply { body: ReplyBody::Accepted { stat: 0, results }, .. }) =
            rpc::parse_reply(message)
        {
            // Results that are cut off name as many as are there.
            let _ = waiting.named(message, results, show);
        }
    }
}

fn waiting(header: &rpc::Call, message: &[u8]) -> Option<Waiting> {
    let mut reader = Reader::new(message, header.arguments);
    if (header.program, header.version) == (mount::PROGRAM, mount::VERSION) {
        let is_mount = mount::Procedure::from_u32(header.procedure)? == mount::Procedure::Mnt;
        let path = mount::path(message, header.arguments).ok().filter(|_| is_mount)?;
        let path = message.get(path)?.into();
        return Some(Waiting { asked: Asked::Mount, directory: Box::default(), name: path });
    }
    let procedure = Procedure::from_u32(header.procedure)?;
    let mut bytes = |length_max| -> Option<Box<[u8]>> {
        let bytes = reader.opaque(1, length_max).ok()?;
        Some(message.get(bytes)?.into())
    };
    let mut name = || Some((bytes(nfs3::HANDLE_BYTES_MAX)?, bytes(nfs3::NAME_BYTES_MAX)?));
    let (asked, (directory, name)) = match procedure {
        Procedure::Lookup => (Asked::Name, name()?),
        Procedure::Create | Procedure::Mkdir | Procedure::Symlink | Procedure::Mknod => {
            (Asked::Make, name()?)
        }
        Procedure::Remove | Procedure::Rmdir => (Asked::Remove, name()?),
        Procedure::Rename => {
            let from = name()?;
            let (directory, name) = name()?;
            (Asked::Rename(directory, name), from)
        }
        Procedure::Link => {
            let handle = bytes(nfs3::HANDLE_BYTES_MAX)?;
            let name = (bytes(nfs3::HANDLE_BYTES_MAX)?, bytes(nfs3::NAME_BYTES_MAX)?);
            (Asked::Link(handle), name)
        }
        Procedure::Readdirplus => (Asked::Readdirplus, (bytes(nfs3::HANDLE_BYTES_MAX)?, Box::default())),
        _ => return None,
    };
    Some(Waiting { asked, directory, name })
}

/// The size of a regular file, as its attributes say.
fn file_bytes(message: &[u8], attributes_at: Option<usize>) -> u64 {
    const REGULAR: u32 = 1;
    let attributes = attributes_at.and_then(|at| nfs3::attributes(message, at));
    attributes.filter(|attributes| attributes.file_type == REGULAR).map_or(0, |attributes| attributes.size)
}

/// Where attributes lie that may be missing.
fn optional_attributes(reader: &mut Reader<'_>) -> Option<usize> {
    if reader.bool().ok()? { Some(reader.skip(nfs3::ATTRIBUTES_BYTES).ok()?.start) } else { None }
}

impl Waiting {
    /// Shows what results name; `None` where they are cut off or an error.
    fn named(&self, message: &[u8], results: usize, show: &mut impl FnMut(&Seen<'_>)) -> Option<()> {
        let mut reader = Reader::new(message, results);
        if reader.u32().ok()? != status::OK {
            return None;
        }
        let (directory, name) = (&*self.directory, &*self.name);
        match &self.asked {
            Asked::Make if !reader.bool().ok()? => {}
            Asked::Name | Asked::Make => {
                let handle = message.get(reader.opaque(1, nfs3::HANDLE_BYTES_MAX).ok()?)?;
                let bytes = file_bytes(message, optional_attributes(&mut reader));
                show(&Seen::Name { directory, name, handle, bytes });
            }
            Asked::Link(handle) => show(&Seen::Name { directory, name, handle, bytes: 0 }),
            Asked::Rename(to_directory, to_name) => {
                show(&Seen::Renamed { from: (directory, name), to: (to_directory, to_name) });
            }
            Asked::Remove => show(&Seen::Removed { directory, name }),
            Asked::Mount => {
                let handle = message.get(reader.opaque(1, nfs3::HANDLE_BYTES_MAX).ok()?)?;
                show(&Seen::Root { path: name, handle });
            }
            Asked::Readdirplus => {
                let results = nfs3::results(Procedure::Readdirplus, message, results).ok()?;
                let nfs3::Results::Readdirplus { entries_at, .. } = results else { return None };
                for entry in entries_plus(message, entries_at) {
                    let bytes = file_bytes(message, entry.attributes_at);
                    if let (Some(name), Some(handle)) =
                        (message.get(entry.name), entry.handle.and_then(|handle| message.get(handle)))
                    {
                        show(&Seen::Name { directory, name, handle, bytes });
                    }
                }
            }
        }
        Some(())
    }
}
