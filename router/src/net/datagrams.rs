//! Replies over a shard's UDP sockets.

use super::batch::DatagramRun;
use super::mmsg::{self, Outgoing, Sender};
use super::ports::{Look, Ports};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::AsFd;
use std::rc::Rc;
use tokio::net::UdpSocket;

/// A front socket for datagrams.
pub(crate) struct DatagramPort {
    pub(crate) socket: Rc<UdpSocket>,
    sender: Sender,
    bytes: Vec<u8>,
    queue: Vec<Datagram>,
    dirty: Option<Look>,
}

/// A reply for a datagram client.
#[derive(Clone, Debug)]
pub(super) struct Datagram {
    /// Where its bytes lie.
    pub(super) bytes: Range<usize>,
    pub(super) to: SocketAddr,
    pub(super) from: Option<IpAddr>,
}

impl Ports {
    pub(super) fn queue_datagram(
        &mut self,
        peer: SocketAddr,
        socket: u16,
        local: Option<IpAddr>,
        message: &[u8],
    ) {
        if message.len() > mmsg::DATAGRAM_BYTES_MAX {
            self.counters.datagrams_too_large += 1;
            return;
        }
        let Some(port) = self.sockets.get_mut(usize::from(socket)) else { return };
        let start = port.bytes.len();
        port.bytes.extend_from_slice(message);
        port.queue.push(Datagram { bytes: start..port.bytes.len(), to: peer, from: local });
        match port.dirty {
            Some(look) => self.gained |= look != self.look,
            None => port.dirty = Some(self.look),
        }
        if port.queue.len() >= mmsg::BATCH {
            self.flush_datagrams(usize::from(socket));
        } else {
            self.want_flush();
        }
    }

    /// Sends replies of one socket that lie in `buffer`.
    pub(super) fn send_runs(&mut self, buffer: &[u8], runs: &[DatagramRun]) {
        let Some(first) = runs.first() else { return };
        let Some(port) = self.sockets.get_mut(usize::from(first.socket)) else { return };
        let dropped = port.send(buffer, runs.iter().map(|run| &run.datagram));
        self.counters.datagrams_dropped += dropped;
    }

    pub(super) fn flush_datagrams(&mut self, socket: usize) {
        let Some(port) = self.sockets.get_mut(socket).filter(|port| !port.queue.is_empty()) else { return };
        let (mut bytes, mut queue) = (std::mem::take(&mut port.bytes), std::mem::take(&mut port.queue));
        self.counters.datagrams_dropped += port.send(&bytes, queue.iter());
        queue.clear();
        bytes.clear();
        bytes.shrink_to(1 << 20);
        (port.bytes, port.queue) = (bytes, queue);
        port.dirty = None;
    }
}

impl DatagramPort {
    pub(super) fn new(socket: Rc<UdpSocket>) -> Self {
        Self { socket, sender: Sender::default(), bytes: Vec::new(), queue: Vec::new(), dirty: None }
    }

    /// Sends replies that lie in `buffer`, without waiting. Returns how many the socket did not take: as on the wire,
    /// these are lost.
    fn send<'a>(&mut self, buffer: &[u8], replies: impl Iterator<Item = &'a Datagram>) -> u64 {
        let mut replies = replies.fuse();
        let mut dropped = 0;
        loop {
            let mut batch = [Outgoing::EMPTY; mmsg::BATCH];
            let mut count = 0;
            for (outgoing, reply) in batch.iter_mut().zip(&mut replies) {
                let bytes = buffer.get(reply.bytes.clone()).unwrap_or_default();
                *outgoing = Outgoing { bytes, to: Some(reply.to), from: reply.from };
                count += 1;
            }
            if count == 0 {
                return dropped;
            }
            let mut sent = 0;
            while sent < count {
                match self.sender.send(self.socket.as_fd(), &batch[sent..count]) {
                    Ok(taken) if taken > 0 => sent += taken,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    // A full socket or a peer that is gone.
                    _ => {
                        dropped += 1;
                        sent += 1;
                    }
                }
            }
        }
    }
}
