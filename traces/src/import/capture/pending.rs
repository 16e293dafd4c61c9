//! Calls whose replies name files: what was asked for, until the reply comes.

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
    let asked = match Procedure::from_u32(header.procedure)? {
        Procedure::Lookup => Asked::Name,
        Procedure::Create | Procedure::Mkdir | Procedure::Symlink | Procedure::Mknod => Asked::Make,
        Procedure::Readdirplus => Asked::Readdirplus,
        _ => return None,
    };
    let directory = reader.opaque(1, nfs3::HANDLE_BYTES_MAX).ok()?;
    let name = match asked {
        Asked::Readdirplus => 0..0,
        _ => reader.opaque(1, nfs3::NAME_BYTES_MAX).ok()?,
    };
    Some(Waiting { asked, directory: message.get(directory)?.into(), name: message.get(name)?.into() })
}

impl Waiting {
    /// Shows what results name; `None` where they are cut off or an error.
    fn named(&self, message: &[u8], results: usize, show: &mut impl FnMut(&Seen<'_>)) -> Option<()> {
        let mut reader = Reader::new(message, results);
        if reader.u32().ok()? != status::OK {
            return None;
        }
        let directory = &*self.directory;
        match self.asked {
            Asked::Make if !reader.bool().ok()? => {}
            Asked::Name | Asked::Make => {
                let handle = message.get(reader.opaque(1, nfs3::HANDLE_BYTES_MAX).ok()?)?;
                show(&Seen::Name { directory, name: &self.name, handle });
            }
            Asked::Mount => {
                let handle = message.get(reader.opaque(1, nfs3::HANDLE_BYTES_MAX).ok()?)?;
                show(&Seen::Root { path: &self.name, handle });
            }
            Asked::Readdirplus => {
                let results = nfs3::results(Procedure::Readdirplus, message, results).ok()?;
                let nfs3::Results::Readdirplus { entries_at, .. } = results else { return None };
                for entry in entries_plus(message, entries_at) {
                    if let (Some(name), Some(handle)) =
                        (message.get(entry.name), entry.handle.and_then(|handle| message.get(handle)))
                    {
                        show(&Seen::Name { directory, name, handle });
                    }
                }
            }
        }
        Some(())
    }
}
