//! Many datagrams with one system call: `recvmmsg` and `sendmmsg`, with the address that a datagram was sent to
//! (`IP_PKTINFO`), from which its reply must come.
//!
//! The only unsafe code of the router. Every pointer handed to the kernel points into a buffer owned by the batch, lives
//! as long as the call, and is written anew before each call; lengths that the kernel returns are clipped to the buffers.
#![allow(
    unsafe_code,
    reason = "the standard library and tokio have no call for several datagrams or for packet info"
)]

use std::io;
use std::mem::{self, MaybeUninit};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// Datagrams a call.
pub(crate) const BATCH: usize = 32;
/// Room for a record mark in front of every datagram.
pub(crate) const HEADROOM: usize = 4;
/// Most bytes of a UDP datagram over IPv4: 65,535 less the headers.
pub(crate) const DATAGRAM_BYTES_MAX: usize = 65_507;
/// Most bytes of a datagram's part of the buffer that the kernel writes.
const ROOM: usize = 65_536;
/// Lead of each part, so that its datagram starts at a cache line: the kernel copies fastest to there.
const LEAD: usize = 64;
const STRIDE: usize = LEAD + ROOM;
/// What one call is to bring at most, as far as the last one tells: so much is still in the processor's cache when it is
/// sent on.
const BATCH_BYTES: usize = 256 << 10;

/// Room for one packet-info control message of either family (40 bytes at most) and a segment length (24), aligned as
/// `cmsghdr` wants.
type Control = [u64; 8];

/// Buffers for one `recvmmsg`.
pub(crate) struct ReceiveBatch {
    bytes: Vec<u8>,
    /// Where in `bytes` the first datagram begins.
    first: usize,
    /// Datagrams that the next call asks for.
    wanted: usize,
    /// The last call brought all that it asked for.
    full: bool,
    addresses: Vec<libc::sockaddr_storage>,
    controls: Vec<Control>,
    lengths: [usize; BATCH],
    received: usize,
    /// Where each datagram came from and was sent to.
    origins: Vec<Option<(SocketAddr, Option<IpAddr>)>>,
}

impl ReceiveBatch {
    pub(crate) fn new() -> Self {
        // SAFETY: all-zero bytes are a valid sockaddr_storage (plain integers).
        let storage: libc::sockaddr_storage = unsafe { mem::zeroed() };
        let bytes = vec![0; BATCH * STRIDE + LEAD];
        // Behind the lead, and then at a line. (`align_offset` may decline; then it is a place like any other.)
        let first = LEAD + bytes.as_ptr().align_offset(LEAD).min(LEAD);
        Self {
            bytes,
            first,
            wanted: BATCH,
            full: false,
            addresses: vec![storage; BATCH],
            controls: vec![[0; 8]; BATCH],
            lengths: [0; BATCH],
            received: 0,
            origins: vec![None; BATCH],
        }
    }

    /// Receives what is there, without waiting. The number of datagrams; unless the batch [is full](Self::is_full), the
    /// socket is empty now.
    pub(crate) fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        self.received = 0;
        self.full = false;
        let mut iovecs: [MaybeUninit<libc::iovec>; BATCH] = [const { MaybeUninit::uninit() }; BATCH];
        // SAFETY: all-zero bytes are a valid mmsghdr: null pointers and zero lengths.
        let mut headers: [libc::mmsghdr; BATCH] = unsafe { mem::zeroed() };
        for (i, header) in headers.iter_mut().enumerate().take(self.wanted) {
            let start = self.start(i);
            let buffer = &mut self.bytes[start..start + ROOM];
            let iovec =
                iovecs[i].write(libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() });
            header.msg_hdr.msg_iov = iovec;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_name = ptr::from_mut(&mut self.addresses[i]).cast();
            header.msg_hdr.msg_namelen = size_u32::<libc::sockaddr_storage>();
            header.msg_hdr.msg_control = self.controls[i].as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = mem::size_of::<Control>();
        }
        // SAFETY: every header points to a buffer, an address and a control area owned by self or by this frame, with
        // their true lengths; the time-out is null.
        let count = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                self.wanted as libc::c_uint,
                libc::MSG_DONTWAIT,
                ptr::null_mut(),
            )
        };
        let Ok(count) = usize::try_from(count) else { return Err(io::Error::last_os_error()) };
        let count = count.min(self.wanted);
        let mut bytes = 0;
        for (i, header) in headers.iter().enumerate().take(count) {
            self.lengths[i] = (header.msg_len as usize).min(ROOM);
            bytes += self.lengths[i];
            self.origins[i] = address(&self.addresses[i]).map(|from| (from, local(&header.msg_hdr)));
        }
        self.received = count;
        self.full = count == self.wanted;
        self.wanted = (BATCH_BYTES * count / bytes.max(1)).clamp(1, BATCH);
        Ok(count)
    }

    /// Whether the last call brought all that it asked for, so that there may be more.
    pub(crate) fn is_full(&self) -> bool {
        self.full
    }

    /// Where datagram `i` begins.
    fn start(&self, i: usize) -> usize {
        self.first + i * STRIDE
    }

    /// Datagram `i` of the last batch, with [`HEADROOM`] bytes in front of it, its sender, and the address that it was
    /// sent to.
    pub(crate) fn datagram(&mut self, i: usize) -> Option<(&mut [u8], SocketAddr, Option<IpAddr>)> {
        if i >= self.received {
            return None;
        }
        let (from, to) = self.origins[i]?;
        let start = self.start(i);
        Some((&mut self.bytes[start - HEADROOM..start + self.lengths[i]], from, to))
    }

    /// The buffer in which all datagrams lie.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Datagram `i` of a connected socket, whose sender is known.
    pub(crate) fn connected_datagram(&mut self, i: usize) -> Option<&mut [u8]> {
        if i >= self.received {
            return None;
        }
        let start = self.start(i);
        Some(&mut self.bytes[start - HEADROOM..start + self.lengths[i]])
    }
}

/// A datagram to send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing<'a> {
    pub(crate) bytes: &'a [u8],
    /// None on a connected socket.
    pub(crate) to: Option<SocketAddr>,
    /// The address that it must come from.
    pub(crate) from: Option<IpAddr>,
}

impl Outgoing<'_> {
    pub(crate) const EMPTY: Self = Self { bytes: &[], to: None, from: None };
}

/// Most bytes of a datagram that fits an Ethernet frame behind IPv4 and UDP headers.
const SEGMENT_BYTES_MAX: usize = 1472;
/// Most datagrams that the kernel cuts one message into (`UDP_MAX_SEGMENTS`).
const SEGMENTS_MAX: usize = 64;

/// Sends the datagrams of one socket. Equal datagrams to one peer, one behind the other, go to the kernel as one message
/// that it cuts apart again (`UDP_SEGMENT`): they pass through it once. It refuses that for datagrams that would need IP
/// fragments, or where the network card sums no checksums; then they are sent one by one as before.
#[derive(Debug)]
pub(crate) struct Sender {
    /// Longest datagram that is sent together with others.
    segment_bytes_max: usize,
}

impl Default for Sender {
    fn default() -> Self {
        Self { segment_bytes_max: SEGMENT_BYTES_MAX }
    }
}

impl Sender {
    /// Sends up to [`BATCH`] datagrams without waiting; returns how many the kernel took.
    pub(crate) fn send(&mut self, socket: BorrowedFd<'_>, datagrams: &[Outgoing<'_>]) -> io::Result<usize> {
        loop {
            match send(socket, datagrams, self.segment_bytes_max) {
                Err(error) if self.refused(&error, datagrams) => {}
                result => return result,
            }
        }
    }

    /// Whether the kernel did not want the first datagrams together; from now on none as long are.
    fn refused(&mut self, error: &io::Error, datagrams: &[Outgoing<'_>]) -> bool {
        if run_length(datagrams, self.segment_bytes_max) < 2 {
            return false;
        }
        match error.raw_os_error() {
            Some(libc::EINVAL | libc::EMSGSIZE) => {
                self.segment_bytes_max = datagrams.first().map_or(0, |first| first.bytes.len() - 1);
                true
            }
            Some(libc::EIO | libc::EOPNOTSUPP | libc::ENOPROTOOPT) => {
                self.segment_bytes_max = 0;
                true
            }
            _ => false,
        }
    }
}

/// How many datagrams from the first can go as one message: equal ones to the same peer, and perhaps a last shorter one.
fn run_length(datagrams: &[Outgoing<'_>], segment_bytes_max: usize) -> usize {
    let Some((first, rest)) = datagrams.split_first() else { return 0 };
    let length = first.bytes.len();
    if length == 0 || length > segment_bytes_max {
        return 1;
    }
    let most = (DATAGRAM_BYTES_MAX / length).min(SEGMENTS_MAX);
    let mut run = 1;
    for next in rest.iter().take(most - 1) {
        if next.bytes.is_empty()
            || next.bytes.len() > length
            || next.to != first.to
            || next.from != first.from
        {
            break;
        }
        run += 1;
        if next.bytes.len() < length {
            break;
        }
    }
    run
}

fn send(socket: BorrowedFd<'_>, datagrams: &[Outgoing<'_>], segment_bytes_max: usize) -> io::Result<usize> {
    let datagrams = &datagrams[..datagrams.len().min(BATCH)];
    // SAFETY: all-zero bytes are valid for these plain C structures: null pointers, zero lengths, family 0.
    let mut headers: [libc::mmsghdr; BATCH] = unsafe { mem::zeroed() };
    // SAFETY: as above.
    let mut iovecs: [libc::iovec; BATCH] = unsafe { mem::zeroed() };
    let mut addresses: [Option<socket2::SockAddr>; BATCH] = [const { None }; BATCH];
    let mut controls: [Control; BATCH] = [[0; 8]; BATCH];
    let mut runs = [0; BATCH];
    let mut messages = 0;
    let mut first = 0;
    while first < datagrams.len() {
        let run = run_length(&datagrams[first..], segment_bytes_max);
        for (iovec, datagram) in iovecs[first..first + run].iter_mut().zip(&datagrams[first..]) {
            iovec.iov_base = datagram.bytes.as_ptr().cast_mut().cast();
            iovec.iov_len = datagram.bytes.len();
        }
        let datagram = &datagrams[first];
        let header = &mut headers[messages].msg_hdr;
        header.msg_iov = &raw mut iovecs[first];
        header.msg_iovlen = run;
        if let Some(to) = datagram.to {
            let address = addresses[messages].insert(to.into());
            header.msg_name = address.as_ptr().cast_mut().cast();
            header.msg_namelen = address.len();
        }
        let segment = if run > 1 { u16::try_from(datagram.bytes.len()).ok() } else { None };
        header.msg_controllen = write_controls(&mut controls[messages], datagram.from, datagram.to, segment);
        if header.msg_controllen > 0 {
            header.msg_control = controls[messages].as_mut_ptr().cast();
        }
        runs[messages] = run;
        messages += 1;
        first += run;
    }
    // SAFETY: the headers point to buffers borrowed for the call and to arrays of this frame, with their true lengths;
    // the kernel only reads what they point to.
    let sent = unsafe {
        libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), messages as libc::c_uint, libc::MSG_DONTWAIT)
    };
    let sent = usize::try_from(sent).map_err(|_| io::Error::last_os_error())?;
    Ok(runs.iter().take(sent).sum())
}

/// Asks the kernel to say with every datagram which address it was sent to.
pub(crate) fn want_packet_info(socket: BorrowedFd<'_>, ipv6: bool) -> io::Result<()> {
    let (level, option) = if ipv6 {
        (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO)
    } else {
        (libc::IPPROTO_IP, libc::IP_PKTINFO)
    };
    let on: libc::c_int = 1;
    // SAFETY: the option is an int that lives over the call.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            ptr::from_ref(&on).cast(),
            size_u32::<libc::c_int>(),
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Asks the kernel to report a stream as readable only when so many bytes are there (or it has ended, or can hold no more).
pub(crate) fn set_low_water(socket: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    // SAFETY: the option is an int that lives over the call.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            ptr::from_ref(&bytes).cast(),
            size_u32::<libc::c_int>(),
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn size_u32<T>() -> u32 {
    // The structures of this module have some hundred bytes at most.
    mem::size_of::<T>() as u32
}

fn address(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match i32::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that this is a sockaddr_in, which is smaller than the storage and less aligned.
            let v4 = unsafe { &*ptr::from_ref(storage).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above, for sockaddr_in6.
            let v6 = unsafe { &*ptr::from_ref(storage).cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            Some(SocketAddrV6::new(ip, u16::from_be(v6.sin6_port), 0, v6.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// The address that a datagram was sent to.
fn local(header: &libc::msghdr) -> Option<IpAddr> {
    // SAFETY: the header was filled by recvmmsg, and its control area is still there; the CMSG functions walk it
    // within msg_controllen, and the data of the two kinds read here is copied out unaligned.
    unsafe {
        let mut control = libc::CMSG_FIRSTHDR(header);
        while !control.is_null() {
            let data = libc::CMSG_DATA(control);
            match ((*control).cmsg_level, (*control).cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let info = ptr::read_unaligned(data.cast::<libc::in_pktinfo>());
                    return Some(Ipv4Addr::from(u32::from_be(info.ipi_addr.s_addr)).into());
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let info = ptr::read_unaligned(data.cast::<libc::in6_pktinfo>());
                    return Some(Ipv6Addr::from(info.ipi6_addr.s6_addr).into());
                }
                _ => control = libc::CMSG_NXTHDR(header, control),
            }
        }
    }
    None
}

/// Writes the control messages that make a datagram come from `from` and that cut it into segments; returns their length.
fn write_controls(
    control: &mut Control,
    from: Option<IpAddr>,
    to: Option<SocketAddr>,
    segment: Option<u16>,
) -> usize {
    let mut used = 0;
    match from {
        Some(IpAddr::V4(v4)) => {
            let info = libc::in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: libc::in_addr { s_addr: u32::from(v4).to_be() },
                ipi_addr: libc::in_addr { s_addr: 0 },
            };
            put_control(control, &mut used, (libc::IPPROTO_IP, libc::IP_PKTINFO), info);
        }
        Some(IpAddr::V6(v6)) => {
            let scope = match to {
                Some(SocketAddr::V6(peer)) => peer.scope_id(),
                _ => 0,
            };
            let info =
                libc::in6_pktinfo { ipi6_addr: libc::in6_addr { s6_addr: v6.octets() }, ipi6_ifindex: scope };
            put_control(control, &mut used, (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO), info);
        }
        None => {}
    }
    if let Some(segment) = segment {
        put_control(control, &mut used, (libc::SOL_UDP, libc::UDP_SEGMENT), segment);
    }
    used
}

/// Appends one control message.
fn put_control<T: Copy>(control: &mut Control, used: &mut usize, kind: (libc::c_int, libc::c_int), value: T) {
    // SAFETY: CMSG_SPACE and CMSG_LEN only calculate.
    let (space, length) =
        unsafe { (libc::CMSG_SPACE(size_u32::<T>()) as usize, libc::CMSG_LEN(size_u32::<T>()) as usize) };
    if *used + space > mem::size_of_val(control) {
        return;
    }
    // SAFETY: `space` bytes behind `used` lie in the area, as was just checked; `used` is a sum of CMSG_SPACEs, which
    // keep the alignment of `cmsghdr`; the value is written unaligned within them.
    unsafe {
        let head = control.as_mut_ptr().cast::<u8>().add(*used).cast::<libc::cmsghdr>();
        (*head).cmsg_level = kind.0;
        (*head).cmsg_type = kind.1;
        (*head).cmsg_len = length;
        ptr::write_unaligned(libc::CMSG_DATA(head).cast(), value);
    }
    *used += space;
}

#[cfg(test)]
mod tests;
