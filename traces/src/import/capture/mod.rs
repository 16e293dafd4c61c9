//! Packet captures of NFSv3: pcap and pcapng, calls over UDP and TCP.
//!
//! Every call on a file handle is a request for that file, as the router counts heat; calls on names count for their directory.
//! Handles are what a capture knows of files. Replies to LOOKUP, CREATE and its kin, LINK, READDIRPLUS and MNT show their
//! paths, and those to RENAME, REMOVE and RMDIR what becomes of them; a file of which no reply tells is called `fh:` and its
//! handle in hexadecimal. Repeated calls (the same XID between the same sockets) count once. Of a call only the header and
//! the first arguments are needed, so captures whose packets are cut to some length, and first fragments of datagrams, do.

mod packet;
mod paths;
mod pending;
mod stream;

use super::request::Request;
use clockwork_wire::nfs3::{Class, Procedure};
use clockwork_wire::{mount, rpc};
use packet::{Segment, Transport, segment};
pub(super) use paths::Paths;
use paths::put_handle;
use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{Block, LegacyPcapReader, Linktype, PcapBlockOwned, PcapError, PcapNGReader};
use pending::{HEAD_BYTES, Pending};
use std::cell::RefCell;
use std::io::{self, Read, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::rc::Rc;
use stream::{Sink, Streams};

/// Longest packet that is read, in bytes; a capture with longer ones is refused.
const PACKET_BYTES_MAX: usize = 1 << 20;
/// Most interfaces of a capture.
const INTERFACES_MAX: usize = 1_024;
/// Calls that are remembered, so that a repeated one is known.
const CALLS_REMEMBERED: usize = 1 << 16;
const NFS_PROGRAM: u32 = 100_003;

/// How a capture ended.
#[derive(Debug)]
pub(super) enum End {
    /// At the end of its last packet.
    Whole,
    /// Within a packet, or at something that is none; the packets before are good.
    Cut,
}

/// What a capture shows of files.
#[derive(Debug)]
pub(super) enum Seen<'a> {
    /// A call on a file.
    Call(Request<'a>),
    /// A file's name in its directory.
    Name {
        /// Handle of the directory.
        directory: &'a [u8],
        name: &'a [u8],
        /// Handle of the file.
        handle: &'a [u8],
        /// Its size; 0 where nothing is said.
        bytes: u64,
    },
    /// A name, by directory and name, has become another.
    Renamed { from: (&'a [u8], &'a [u8]), to: (&'a [u8], &'a [u8]) },
    /// A name is gone.
    Removed { directory: &'a [u8], name: &'a [u8] },
    /// Where an export begins.
    Root { path: &'a [u8], handle: &'a [u8] },
}

/// What a packet came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Packet {
    /// It held, or completed, so many calls and replies that tell of files.
    Calls(u32),
    /// Nothing of NFS.
    Other,
    /// A packet in which headers are missing or wrong.
    Bad,
}

/// Reads a capture. `show` is shown what there is of files, `packet` what each packet came to, in turn.
pub(super) fn read(
    input: impl Read,
    is_pcapng: bool,
    mut show: impl FnMut(&Seen<'_>),
    mut packet: impl FnMut(Packet) -> bool,
) -> io::Result<End> {
    let failure = Rc::new(RefCell::new(None));
    let input = Watched { input, failure: Rc::clone(&failure) };
    let mut reader: Box<dyn PcapReaderIterator + '_> = if is_pcapng {
        match PcapNGReader::new(PACKET_BYTES_MAX, input) {
            Ok(reader) => Box::new(reader),
            Err(_) => return failure.take().map_or(Ok(End::Cut), Err),
        }
    } else {
        match LegacyPcapReader::new(PACKET_BYTES_MAX, input) {
            Ok(reader) => Box::new(reader),
            Err(_) => return failure.take().map_or(Ok(End::Cut), Err),
        }
    };
    let (mut capture, mut calls) = (Capture::default(), Calls::default());
    loop {
        match reader.next() {
            Ok((length, block)) => {
                if let Some((time, link, data)) = capture.packet(&block) {
                    let came_to = calls.packet(time, link, data, &mut show);
                    if !packet(came_to) {
                        return Ok(End::Whole);
                    }
                }
                reader.consume(length);
            }
            Err(PcapError::Eof) => return Ok(End::Whole),
            Err(PcapError::Incomplete(_)) => {
                let before = reader.data().len();
                let refilled = reader.refill().is_ok();
                if let Some(error) = failure.take() {
                    return Err(error);
                }
                if !refilled || reader.data().len() == before && !reader.reader_exhausted() {
                    return Ok(End::Cut);
                }
            }
            Err(_) => return failure.take().map_or(Ok(End::Cut), Err),
        }
    }
}

/// Keeps the reason why reading failed, which the capture reader does not tell.
struct Watched<R> {
    input: R,
    failure: Rc<RefCell<Option<io::Error>>>,
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.input.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let kind = error.kind();
                    self.failure.replace(Some(error));
                    return Err(kind.into());
                }
                read => return read,
            }
        }
    }
}

/// What the blocks before a packet said of it.
#[derive(Default)]
struct Capture {
    /// Of pcapng: link layer, ticks of a second, and seconds to add.
    interfaces: Vec<(Linktype, u64, i64)>,
    /// Of pcap.
    link: Option<Linktype>,
}

impl Capture {
    /// Time in seconds, link layer and bytes of a packet; `None` for a block that is none.
    fn packet<'a>(&mut self, block: &'a PcapBlockOwned<'_>) -> Option<(i64, Linktype, &'a [u8])> {
        match block {
            PcapBlockOwned::LegacyHeader(header) => {
                self.link = Some(header.network);
                None
            }
            PcapBlockOwned::Legacy(packet) => Some((i64::from(packet.ts_sec), self.link?, packet.data)),
            PcapBlockOwned::NG(Block::SectionHeader(_)) => {
                self.interfaces.clear();
                None
            }
            PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
                if self.interfaces.len() < INTERFACES_MAX {
                    let ticks = interface.ts_resolution().unwrap_or(1_000_000).max(1);
                    self.interfaces.push((interface.linktype, ticks, interface.ts_offset()));
                }
                None
            }
            PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                let (link, ticks, offset) = *self.interfaces.get(usize::try_from(packet.if_id).ok()?)?;
                let time = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
                let seconds = i64::try_from(time / ticks).ok()?.checked_add(offset)?;
                let length = usize::try_from(packet.caplen).ok()?.min(packet.data.len());
                Some((seconds, link, packet.data.get(..length)?))
            }
            PcapBlockOwned::NG(_) => None,
        }
    }
}

/// Finds calls in packets, and what their replies name.
struct Calls {
    streams: Streams,
    found: Found,
}

/// What is known of calls.
struct Found {
    pending: Pending,
    /// Fingerprints of calls, by a part of themselves; 0 is none.
    seen: Vec<u64>,
    name: Vec<u8>,
    client: Vec<u8>,
}

impl Default for Calls {
    fn default() -> Self {
        let seen = vec![0; CALLS_REMEMBERED];
        let found = Found { pending: Pending::default(), seen, name: Vec::new(), client: Vec::new() };
        Self { streams: Streams::default(), found }
    }
}

/// The messages of one packet.
struct Messages<'a, F> {
    found: &'a mut Found,
    time: i64,
    segment: &'a Segment<'a>,
    show: &'a mut F,
    /// Calls and replies that were of use.
    used: u32,
}

impl<F: FnMut(&Seen<'_>)> Messages<'_, F> {
    /// The call with this XID that the sender of the packet makes, or that it answers.
    fn key(&self, xid: u32, is_reply: bool) -> u64 {
        let segment = self.segment;
        let (sender, receiver) =
            ((segment.client, segment.client_port), (segment.server, segment.server_port));
        if is_reply { hash((receiver, sender, xid)) } else { hash((sender, receiver, xid)) }
    }
}

impl<F: FnMut(&Seen<'_>)> Sink for Messages<'_, F> {
    fn wanted(&self, begin: &[u8]) -> Option<usize> {
        let word = |at| clockwork_wire::xdr::u32_at(begin, at);
        match word(4)? {
            0 => (word(8) == Some(2) && matches!(word(12), Some(NFS_PROGRAM | mount::PROGRAM)))
                .then_some(HEAD_BYTES),
            1 => self.found.pending.wanted(self.key(word(0)?, true)),
            _ => None,
        }
    }

    fn message(&mut self, message: &[u8]) {
        let Ok(header) = rpc::parse_call(message) else {
            if let Ok(reply) = rpc::parse_reply(message) {
                let key = self.key(reply.xid, true);
                self.used += u32::from(self.found.pending.wanted(key).is_some());
                self.found.pending.reply(key, message, self.show);
            }
            return;
        };
        let is_nfs = (header.program, header.version) == (NFS_PROGRAM, 3);
        if !is_nfs && header.program != mount::PROGRAM {
            return;
        }
        let key = self.key(header.xid, false);
        if self.found.is_repeat(key) {
            return;
        }
        self.found.pending.call(key, &header, message);
        self.used +=
            u32::from(is_nfs && self.found.call(self.time, self.segment, &header, message, self.show));
    }
}

impl Calls {
    fn packet(&mut self, time: i64, link: Linktype, data: &[u8], show: &mut impl FnMut(&Seen<'_>)) -> Packet {
        let segment = match segment(link, data) {
            Ok(Some(segment)) => segment,
            Ok(None) => return Packet::Other,
            Err(()) => return Packet::Bad,
        };
        let mut messages = Messages { found: &mut self.found, time, segment: &segment, show, used: 0 };
        match segment.transport {
            Transport::Udp => messages.message(segment.payload),
            Transport::Tcp { sequence, begins } => {
                self.streams.segment(&segment, sequence, begins, &mut messages);
            }
        }
        if messages.used == 0 { Packet::Other } else { Packet::Calls(messages.used) }
    }
}

impl Found {
    /// Shows the request that a call is; whether it is one that counts.
    fn call(
        &mut self,
        time: i64,
        segment: &Segment<'_>,
        header: &rpc::Call,
        message: &[u8],
        show: &mut impl FnMut(&Seen<'_>),
    ) -> bool {
        let Some(procedure) = Procedure::from_u32(header.procedure) else { return false };
        let Some((handle, rest)) = message.get(header.arguments..).and_then(handle) else { return false };
        self.name.clear();
        put_handle(handle, &mut self.name);
        self.client.clear();
        address(segment.client, &mut self.client);
        let moves_data = matches!(procedure, Procedure::Read | Procedure::Write);
        let (offset, count) = if moves_data { range(rest).unwrap_or((0, 0)) } else { (0, 0) };
        let mut request =
            Request { unix_s: time, target: &self.name, handle, client: &self.client, ..Request::NONE };
        let bytes = u64::from(count);
        match procedure.class() {
            Class::Read => request.be(Class::Read, bytes, 0),
            class => request.be(class, 0, bytes),
        }
        // A READ asks for more than there is, up to the end of the file; what is written is there.
        request.size = if procedure == Procedure::Write { offset.saturating_add(bytes) } else { 0 };
        show(&Seen::Call(request));
        true
    }

    fn is_repeat(&mut self, key: u64) -> bool {
        let place = (key >> 32) as usize % self.seen.len();
        self.seen.get_mut(place).is_some_and(|seen| std::mem::replace(seen, key) == key)
    }
}

/// A hash that is never 0.
fn hash(key: impl std::hash::Hash) -> u64 {
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
    BuildHasherDefault::<DefaultHasher>::default().hash_one(key) | 1
}

/// An address as text.
fn address(bytes: &[u8], out: &mut Vec<u8>) {
    // Writing to a vector cannot fail.
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        let _ = write!(out, "{}", Ipv4Addr::from(v4));
    } else if let Ok(v6) = <[u8; 16]>::try_from(bytes) {
        let _ = write!(out, "{}", Ipv6Addr::from(v6));
    }
}

/// The handle that the arguments of every procedure but NULL begin with (RFC 1813), and what follows.
fn handle(arguments: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = arguments.split_first_chunk::<4>()?;
    let length =
        usize::try_from(u32::from_be_bytes(*length)).ok().filter(|length| (1..=64).contains(length))?;
    let handle = rest.get(..length)?;
    Some((handle, rest.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

/// Offset and count, which READ and WRITE have behind the handle.
fn range(arguments: &[u8]) -> Option<(u64, u32)> {
    let (offset, rest) = arguments.split_first_chunk::<8>()?;
    let (count, _) = rest.split_first_chunk::<4>()?;
    Some((u64::from_be_bytes(*offset), u32::from_be_bytes(*count)))
}

#[cfg(test)]
pub(super) mod tests;
