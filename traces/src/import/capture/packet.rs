//! From a packet of a capture to the payload of UDP or TCP.

use pcap_parser::Linktype;

/// What a packet carries.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Segment<'a> {
    /// Address of the sender: 4 or 16 bytes.
    pub(super) client: &'a [u8],
    pub(super) client_port: u16,
    /// Address and port of the receiver.
    pub(super) server: &'a [u8],
    pub(super) server_port: u16,
    pub(super) transport: Transport,
    pub(super) payload: &'a [u8],
    /// Bytes of the payload behind these that the capture does not have, because it keeps packets up to some length.
    pub(super) missing: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transport {
    Udp,
    Tcp {
        sequence: u32,
        /// SYN: the stream begins with the next byte.
        begins: bool,
    },
}

/// The segment in a packet; none if it is of another protocol or a later fragment; an error if it is no packet.
pub(super) fn segment(link: Linktype, data: &[u8]) -> Result<Option<Segment<'_>>, ()> {
    match network(link, data) {
        Ok(Some(packet)) => match packet.first().map(|byte| byte >> 4) {
            Some(4) => ipv4(packet),
            Some(6) => ipv6(packet),
            _ => Err(()),
        },
        Ok(None) => Ok(None),
        Err(()) => Err(()),
    }
}

/// The IP packet in a frame; none if it carries something else.
fn network(link: Linktype, data: &[u8]) -> Result<Option<&[u8]>, ()> {
    const RAW_OLD: i32 = 12;
    const SLL2: i32 = 276;
    let (mut kind, mut at) = match link {
        Linktype::ETHERNET => (word(data, 12)?, 14),
        Linktype::LINUX_SLL => (word(data, 14)?, 16),
        Linktype(SLL2) => (word(data, 0)?, 20),
        Linktype::NULL | Linktype::LOOP => return data.get(4..).map(Some).ok_or(()),
        Linktype::RAW | Linktype(RAW_OLD) | Linktype::IPV4 | Linktype::IPV6 => return Ok(Some(data)),
        _ => return Ok(None),
    };
    // VLAN tags, also doubled.
    while matches!(kind, 0x8100 | 0x88a8 | 0x9100) {
        kind = word(data, at + 2)?;
        at += 4;
    }
    if matches!(kind, 0x0800 | 0x86dd) { data.get(at..).map(Some).ok_or(()) } else { Ok(None) }
}

fn word(data: &[u8], at: usize) -> Result<u16, ()> {
    let bytes = data.get(at..).and_then(|rest| rest.first_chunk::<2>()).ok_or(())?;
    Ok(u16::from_be_bytes(*bytes))
}

fn ipv4(packet: &[u8]) -> Result<Option<Segment<'_>>, ()> {
    let header = usize::from(packet.first().ok_or(())? & 15) * 4;
    let length = usize::from(word(packet, 2)?);
    let fragment_offset = word(packet, 6)? & 0x1fff;
    let protocol = *packet.get(9).ok_or(())?;
    let (from, to) = (packet.get(12..16).ok_or(())?, packet.get(16..20).ok_or(())?);
    if header < 20 || fragment_offset != 0 {
        return if header < 20 { Err(()) } else { Ok(None) };
    }
    // Ethernet pads short packets; a length of 0 is that of segments that the network card was to cut.
    let end = if length == 0 { packet.len() } else { length.min(packet.len()) };
    transport(protocol, (from, to), packet.get(header..end).ok_or(())?, length.saturating_sub(packet.len()))
}

fn ipv6(packet: &[u8]) -> Result<Option<Segment<'_>>, ()> {
    let length = usize::from(word(packet, 4)?);
    let (from, to) = (packet.get(8..24).ok_or(())?, packet.get(24..40).ok_or(())?);
    let end = if length == 0 { packet.len() } else { (40 + length).min(packet.len()) };
    let missing = if length == 0 { 0 } else { (40 + length).saturating_sub(packet.len()) };
    let (mut protocol, mut rest) = (*packet.get(6).ok_or(())?, packet.get(40..end).ok_or(())?);
    loop {
        let (next, skip) = match protocol {
            // Hop by hop, routing, destination options.
            0 | 43 | 60 => (*rest.first().ok_or(())?, (usize::from(*rest.get(1).ok_or(())?) + 1) * 8),
            44 if word(rest, 2)? & 0xfff8 != 0 => return Ok(None),
            44 => (*rest.first().ok_or(())?, 8),
            _ => return transport(protocol, (from, to), rest, missing),
        };
        (protocol, rest) = (next, rest.get(skip..).ok_or(())?);
    }
}

fn transport<'a>(
    protocol: u8,
    (from, to): (&'a [u8], &'a [u8]),
    data: &'a [u8],
    missing: usize,
) -> Result<Option<Segment<'a>>, ()> {
    let (kind, header) = match protocol {
        17 => (Transport::Udp, 8),
        6 => {
            let bytes = data.get(4..).and_then(|rest| rest.first_chunk::<4>()).ok_or(())?;
            let header = usize::from(*data.get(12).ok_or(())? >> 4) * 4;
            let begins = data.get(13).ok_or(())? & 2 != 0;
            (Transport::Tcp { sequence: u32::from_be_bytes(*bytes), begins }, header)
        }
        _ => return Ok(None),
    };
    Ok(Some(Segment {
        client: from,
        client_port: word(data, 0)?,
        server: to,
        server_port: word(data, 2)?,
        transport: kind,
        payload: data.get(header..).ok_or(())?,
        missing,
    }))
}
