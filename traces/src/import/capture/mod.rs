//! Packet captures of NFSv3: pcap and pcapng, calls over UDP and TCP.
//!
//! Every call on a file handle is a request for that file, as the router counts heat; calls on names count for their directory.
//! Handles are what a capture knows of files, so a file's name is `fh:` and its handle in hexadecimal. Repeated calls (the same
//! XID from the same socket) count once. Of a call only the header and the first arguments are needed, so captures whose packets
//! are cut to some length, and first fragments of datagrams, do.

mod packet;
mod stream;

use super::request::Request;
use clockwork_wire::nfs3::{Class, Procedure};
use clockwork_wire::rpc;
use packet::{Transport, segment};
use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{Block, LegacyPcapReader, Linktype, PcapBlockOwned, PcapError, PcapNGReader};
use std::cell::RefCell;
use std::io::{self, Read, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::rc::Rc;
use stream::Streams;

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

/// What a packet came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Packet {
    /// It held, or completed, so many calls.
    Calls(u32),
    /// Nothing of NFS.
    Other,
    /// A packet in which headers are missing or wrong.
    Bad,
}

/// Reads a capture. `call` is shown every call, `packet` what each packet came to, in turn.
pub(super) fn read(
    input: impl Read,
    is_pcapng: bool,
    mut call: impl FnMut(&Request<'_>),
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
                    let came_to = calls.packet(time, link, data, &mut call);
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

/// Finds calls in packets.
struct Calls {
    streams: Streams,
    /// Fingerprints of calls, by a part of themselves; 0 is none.
    seen: Vec<u64>,
    name: Vec<u8>,
    client: Vec<u8>,
}

impl Default for Calls {
    fn default() -> Self {
        let seen = vec![0; CALLS_REMEMBERED];
        Self { streams: Streams::default(), seen, name: Vec::new(), client: Vec::new() }
    }
}

impl Calls {
    fn packet(
        &mut self,
        time: i64,
        link: Linktype,
        data: &[u8],
        call: &mut impl FnMut(&Request<'_>),
    ) -> Packet {
        let segment = match segment(link, data) {
            Ok(Some(segment)) => segment,
            Ok(None) => return Packet::Other,
            Err(()) => return Packet::Bad,
        };
        let mut found = 0;
        let mut streams = std::mem::take(&mut self.streams);
        let mut one = |message: &[u8]| {
            found += u32::from(self.message(time, segment.client, segment.client_port, message, call));
        };
        match segment.transport {
            Transport::Udp => one(segment.payload),
            Transport::Tcp { sequence, begins } => streams.segment(&segment, sequence, begins, &mut one),
        }
        self.streams = streams;
        if found == 0 { Packet::Other } else { Packet::Calls(found) }
    }

    /// Shows the call that a message is; whether it is one that counts.
    fn message(
        &mut self,
        time: i64,
        client: &[u8],
        port: u16,
        message: &[u8],
        show: &mut impl FnMut(&Request<'_>),
    ) -> bool {
        let Ok(header) = rpc::parse_call(message) else { return false };
        if header.program != NFS_PROGRAM || header.version != 3 || self.is_repeat(client, port, header.xid) {
            return false;
        }
        let Some(procedure) = Procedure::from_u32(header.procedure) else { return false };
        let Some((handle, rest)) = message.get(header.arguments..).and_then(handle) else { return false };
        self.name.clear();
        self.name.extend_from_slice(b"fh:");
        for byte in handle {
            const DIGITS: &[u8; 16] = b"0123456789abcdef";
            self.name.extend([DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
        self.client.clear();
        address(client, &mut self.client);
        let moves_data = matches!(procedure, Procedure::Read | Procedure::Write);
        let (offset, count) = if moves_data { range(rest).unwrap_or((0, 0)) } else { (0, 0) };
        show(&Request {
            unix_s: time,
            target: &self.name,
            is_url: false,
            status: 0,
            bytes: u64::from(count),
            // A READ asks for more than there is, up to the end of the file; what is written is there.
            size: if procedure == Procedure::Write { offset.saturating_add(u64::from(count)) } else { 0 },
            writes: procedure.class() == Class::Write || changes(procedure),
            client: &self.client,
            count: 1,
        });
        true
    }

    fn is_repeat(&mut self, client: &[u8], port: u16, xid: u32) -> bool {
        use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one((client, port, xid)) | 1;
        let place = (hash >> 32) as usize % self.seen.len();
        self.seen.get_mut(place).is_some_and(|seen| std::mem::replace(seen, hash) == hash)
    }
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

/// Whether a procedure changes the directory or the attributes.
fn changes(procedure: Procedure) -> bool {
    matches!(
        procedure,
        Procedure::Setattr
            | Procedure::Create
            | Procedure::Mkdir
            | Procedure::Symlink
            | Procedure::Mknod
            | Procedure::Remove
            | Procedure::Rmdir
            | Procedure::Rename
            | Procedure::Link
    )
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
mod tests;
