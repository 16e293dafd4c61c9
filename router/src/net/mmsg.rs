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
const STRIDE: usize = 65_536 + HEADROOM;

/// Room for one packet-info control message of either family, aligned as `cmsghdr` wants.
type Control = [u64; 8];

/// Buffers for one `recvmmsg`.
pub(crate) struct ReceiveBatch {
    bytes: Vec<u8>,
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
        Self {
            bytes: vec![0; BATCH * STRIDE],
            addresses: vec![storage; BATCH],
            controls: vec![[0; 8]; BATCH],
            lengths: [0; BATCH],
            received: 0,
            origins: vec![None; BATCH],
        }
    }

    /// Receives what is there, without waiting. The number of datagrams; fewer than [`BATCH`] means the socket is empty.
    pub(crate) fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        self.received = 0;
        let mut iovecs: [MaybeUninit<libc::iovec>; BATCH] = [const { MaybeUninit::uninit() }; BATCH];
        // SAFETY: all-zero bytes are a valid mmsghdr: null pointers and zero lengths.
        let mut headers: [libc::mmsghdr; BATCH] = unsafe { mem::zeroed() };
        for (i, header) in headers.iter_mut().enumerate() {
            let buffer = &mut self.bytes[i * STRIDE + HEADROOM..(i + 1) * STRIDE];
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
                BATCH as libc::c_uint,
                libc::MSG_DONTWAIT,
                ptr::null_mut(),
            )
        };
        let Ok(count) = usize::try_from(count) else { return Err(io::Error::last_os_error()) };
        for (i, header) in headers.iter().enumerate().take(count.min(BATCH)) {
            self.lengths[i] = (header.msg_len as usize).min(STRIDE - HEADROOM);
            self.origins[i] = address(&self.addresses[i]).map(|from| (from, local(&header.msg_hdr)));
        }
        self.received = count.min(BATCH);
        Ok(self.received)
    }

    /// Datagram `i` of the last batch, with [`HEADROOM`] bytes in front of it, its sender, and the address that it was
    /// sent to.
    pub(crate) fn datagram(&mut self, i: usize) -> Option<(&mut [u8], SocketAddr, Option<IpAddr>)> {
        if i >= self.received {
            return None;
        }
        let (from, to) = self.origins[i]?;
        let start = i * STRIDE;
        Some((&mut self.bytes[start..start + HEADROOM + self.lengths[i]], from, to))
    }

    /// Datagram `i` of a connected socket, whose sender is known.
    pub(crate) fn connected_datagram(&mut self, i: usize) -> Option<&mut [u8]> {
        if i >= self.received {
            return None;
        }
        let start = i * STRIDE;
        Some(&mut self.bytes[start..start + HEADROOM + self.lengths[i]])
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

/// Sends up to [`BATCH`] datagrams without waiting; returns how many the kernel took.
pub(crate) fn send(socket: BorrowedFd<'_>, datagrams: &[Outgoing<'_>]) -> io::Result<usize> {
    let count = datagrams.len().min(BATCH);
    // SAFETY: all-zero bytes are valid for these plain C structures: null pointers, zero lengths, family 0.
    let mut headers: [libc::mmsghdr; BATCH] = unsafe { mem::zeroed() };
    // SAFETY: as above.
    let mut iovecs: [libc::iovec; BATCH] = unsafe { mem::zeroed() };
    let mut addresses: [Option<socket2::SockAddr>; BATCH] = [const { None }; BATCH];
    let mut controls: [Control; BATCH] = [[0; 8]; BATCH];
    for (i, datagram) in datagrams.iter().take(count).enumerate() {
        iovecs[i] = libc::iovec {
            iov_base: datagram.bytes.as_ptr().cast_mut().cast(),
            iov_len: datagram.bytes.len(),
        };
        let header = &mut headers[i].msg_hdr;
        header.msg_iov = &raw mut iovecs[i];
        header.msg_iovlen = 1;
        if let Some(to) = datagram.to {
            let address = addresses[i].insert(to.into());
            header.msg_name = address.as_ptr().cast_mut().cast();
            header.msg_namelen = address.len();
        }
        if let Some(from) = datagram.from {
            header.msg_controllen = write_packet_info(&mut controls[i], from, datagram.to);
            header.msg_control = controls[i].as_mut_ptr().cast();
        }
    }
    // SAFETY: the headers point to buffers borrowed for the call and to arrays of this frame, with their true lengths;
    // the kernel only reads what they point to.
    let sent = unsafe {
        libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), count as libc::c_uint, libc::MSG_DONTWAIT)
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
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

/// Writes the control message that makes a datagram come from `from`; returns its length.
fn write_packet_info(control: &mut Control, from: IpAddr, to: Option<SocketAddr>) -> usize {
    // SAFETY: the area holds 64 aligned bytes; the larger message takes CMSG_SPACE(20) = 40 of them.
    unsafe {
        let head = control.as_mut_ptr().cast::<libc::cmsghdr>();
        let data = libc::CMSG_DATA(head);
        match from {
            IpAddr::V4(v4) => {
                let address = libc::in_addr { s_addr: u32::from(v4).to_be() };
                let info = libc::in_pktinfo {
                    ipi_ifindex: 0,
                    ipi_spec_dst: address,
                    ipi_addr: libc::in_addr { s_addr: 0 },
                };
                (*head).cmsg_level = libc::IPPROTO_IP;
                (*head).cmsg_type = libc::IP_PKTINFO;
                (*head).cmsg_len = libc::CMSG_LEN(size_u32::<libc::in_pktinfo>()) as usize;
                ptr::write_unaligned(data.cast(), info);
                libc::CMSG_SPACE(size_u32::<libc::in_pktinfo>()) as usize
            }
            IpAddr::V6(v6) => {
                let scope = match to {
                    Some(SocketAddr::V6(peer)) => peer.scope_id(),
                    _ => 0,
                };
                let info = libc::in6_pktinfo {
                    ipi6_addr: libc::in6_addr { s6_addr: v6.octets() },
                    ipi6_ifindex: scope,
                };
                (*head).cmsg_level = libc::IPPROTO_IPV6;
                (*head).cmsg_type = libc::IPV6_PKTINFO;
                (*head).cmsg_len = libc::CMSG_LEN(size_u32::<libc::in6_pktinfo>()) as usize;
                ptr::write_unaligned(data.cast(), info);
                libc::CMSG_SPACE(size_u32::<libc::in6_pktinfo>()) as usize
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    #[test]
    fn datagrams_come_and_go_with_the_addresses_of_both_ends() {
        let server = UdpSocket::bind("0.0.0.0:0").unwrap();
        want_packet_info(server.as_fd(), false).unwrap();
        let port = server.local_addr().unwrap().port();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        for size in [1_usize, 500, DATAGRAM_BYTES_MAX] {
            client.send_to(&vec![7; size], ("127.0.0.5", port)).unwrap();
        }
        let mut batch = ReceiveBatch::new();
        let received = batch.receive(server.as_fd()).unwrap();
        assert_eq!(received, 3);
        let mut sizes = Vec::new();
        for i in 0..received {
            let (bytes, from, to) = batch.datagram(i).unwrap();
            assert_eq!(from, client.local_addr().unwrap());
            assert_eq!(to, Some("127.0.0.5".parse().unwrap()));
            sizes.push(bytes.len() - HEADROOM);
            let reply = Outgoing { bytes: &bytes[HEADROOM..], to: Some(from), from: to };
            assert_eq!(send(server.as_fd(), &[reply]).unwrap(), 1);
        }
        assert_eq!(sizes, [1, 500, DATAGRAM_BYTES_MAX]);
        let mut buffer = vec![0; 70_000];
        for size in sizes {
            let (length, from) = client.recv_from(&mut buffer).unwrap();
            assert_eq!((length, from.ip()), (size, "127.0.0.5".parse().unwrap()));
        }
        assert_eq!(batch.receive(server.as_fd()).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
