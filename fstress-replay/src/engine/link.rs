//! One connection or socket of a lane: calls go out in one write a batch, replies come in as many as there are.

use crate::client::{Options, Transport, tcp_stream, udp_socket};
use clockwork_wire::record::{self, Progress, RecordLimits, RecordReader};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

/// Bytes waiting to be sent beyond which no further call is taken.
const UNSENT_BYTES_MAX: usize = 16 << 20;
/// Bytes asked of a stream at once.
const READ_BYTES: usize = 256 << 10;
/// Largest datagram there can be.
const DATAGRAM_BYTES_MAX: usize = 65_536;
/// Datagrams read before calls are looked at again.
const DATAGRAMS_AT_ONCE_MAX: usize = 256;
/// First and longest pause between attempts to connect.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// Where links come from.
#[derive(Debug, Clone)]
pub(super) struct Origin {
    pub(super) target: SocketAddr,
    pub(super) options: Options,
    pub(super) runtime: tokio::runtime::Handle,
}

/// A connection over TCP, or a socket over UDP.
pub(crate) enum Link {
    Tcp(Box<TcpLink>),
    Udp(Box<UdpLink>),
    /// Lent to whoever reads from it.
    Absent,
}

impl Link {
    pub(super) async fn open(origin: &Origin) -> io::Result<Self> {
        Ok(match origin.options.transport {
            Transport::Tcp => {
                let stream = tcp_stream(origin.target, &origin.options).await?;
                Self::Tcp(Box::new(TcpLink::new(stream, origin.clone())))
            }
            Transport::Udp => {
                Self::Udp(Box::new(UdpLink::new(udp_socket(origin.target, &origin.options).await?)))
            }
        })
    }

    /// Whether it takes another call.
    pub(super) fn has_room(&self) -> bool {
        let unsent = match self {
            Self::Tcp(link) => link.unsent.len() - link.sent,
            Self::Udp(link) => link.unsent.len(),
            Self::Absent => UNSENT_BYTES_MAX,
        };
        unsent < UNSENT_BYTES_MAX
    }

    /// Takes a message; it is sent with the next flush, or dropped if the connection is lost (whoever asks for
    /// [`Link::reconnected`] sends it again).
    pub(super) fn push(&mut self, xid: u32, write: impl FnOnce(&mut Vec<u8>)) {
        match self {
            Self::Tcp(link) => link.push(xid, write),
            Self::Udp(link) => {
                let begin = link.unsent.len();
                write(&mut link.unsent);
                link.queued.push_back((link.unsent.len() - begin, xid));
            }
            Self::Absent => {}
        }
    }

    /// Sends what it can; `sent` gets the XIDs whose messages are wholly handed to the socket.
    pub(super) fn flush(&mut self, sent: &mut Vec<u32>) {
        match self {
            Self::Tcp(link) => link.flush(sent),
            Self::Udp(link) => link.flush(sent),
            Self::Absent => {}
        }
    }

    /// Reads what is there and gives every message to `take`.
    pub(super) fn receive(&mut self, take: impl FnMut(&[u8])) {
        match self {
            Self::Tcp(link) => link.receive(take),
            Self::Udp(link) => link.receive(take),
            Self::Absent => {}
        }
    }

    /// Whether [`Link::receive`] reads once, whatever comes.
    pub(super) fn is_one_read(&self) -> bool {
        matches!(self, Self::Tcp(_))
    }

    /// Whether a lost connection is back: all calls in flight on it must be pushed again.
    pub(super) fn reconnected(&mut self, now: Instant) -> bool {
        match self {
            Self::Tcp(link) => link.reconnected(now),
            Self::Udp(_) | Self::Absent => false,
        }
    }

    /// What to wait for: the socket, and whether it must become writable.
    pub(super) fn interest(&self) -> Option<(BorrowedFd<'_>, bool)> {
        match self {
            Self::Tcp(link) => {
                link.stream.as_ref().map(|stream| (stream.as_fd(), link.sent < link.unsent.len()))
            }
            Self::Udp(link) => Some((link.socket.as_fd(), !link.queued.is_empty())),
            Self::Absent => None,
        }
    }
}

pub(crate) struct TcpLink {
    origin: Origin,
    /// `None` while the connection is lost.
    stream: Option<TcpStream>,
    attempt: Option<Receiver<io::Result<TcpStream>>>,
    retry_at: Instant,
    pause: Duration,
    records: RecordReader,
    received: Vec<u8>,
    unsent: Vec<u8>,
    /// Bytes of `unsent` that are gone.
    sent: usize,
    /// Where in `unsent` the message of each XID ends.
    queued: VecDeque<(usize, u32)>,
}

impl TcpLink {
    fn new(stream: TcpStream, origin: Origin) -> Self {
        Self {
            origin,
            stream: Some(stream),
            attempt: None,
            retry_at: Instant::now(),
            pause: BACKOFF.0,
            records: RecordReader::new(RecordLimits::default()),
            received: Vec::new(),
            unsent: Vec::new(),
            sent: 0,
            queued: VecDeque::new(),
        }
    }

    fn push(&mut self, xid: u32, write: impl FnOnce(&mut Vec<u8>)) {
        if self.stream.is_none() {
            return;
        }
        let begin = self.unsent.len();
        self.unsent.extend_from_slice(&[0; 4]);
        write(&mut self.unsent);
        let mark = record::mark(self.unsent.len() - begin - 4);
        self.unsent[begin..begin + 4].copy_from_slice(&mark);
        self.queued.push_back((self.unsent.len(), xid));
    }

    fn flush(&mut self, sent: &mut Vec<u32>) {
        while self.sent < self.unsent.len() {
            let Some(stream) = &mut self.stream else { return };
            match stream.write(&self.unsent[self.sent..]) {
                Ok(bytes) => self.sent += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return self.lose(),
            }
        }
        while self.queued.front().is_some_and(|(end, _)| *end <= self.sent) {
            sent.extend(self.queued.pop_front().map(|(_, xid)| xid));
        }
        if self.sent == self.unsent.len() {
            self.unsent.clear();
            self.sent = 0;
        } else if self.sent > UNSENT_BYTES_MAX {
            // A socket that is never empty must not make the buffer grow.
            self.unsent.drain(..self.sent);
            self.queued.iter_mut().for_each(|(end, _)| *end -= self.sent);
            self.sent = 0;
        }
    }

    fn receive(&mut self, mut take: impl FnMut(&[u8])) {
        let Some(stream) = &mut self.stream else { return };
        let length = self.received.len();
        self.received.resize(length + READ_BYTES, 0);
        let bytes = match stream.read(&mut self.received[length..]) {
            Ok(0) => return self.lose(),
            Ok(bytes) => bytes,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => 0,
            Err(_) => return self.lose(),
        };
        self.received.truncate(length + bytes);
        let mut begin = 0;
        loop {
            match self.records.next(&mut self.received[begin..]) {
                Ok(Progress::Record { end, consumed }) => {
                    take(&self.received[begin + 4..begin + end]);
                    begin += consumed;
                    self.pause = BACKOFF.0;
                }
                Ok(Progress::Partial { .. }) => break,
                Err(_) => return self.lose(),
            }
        }
        self.received.drain(..begin);
    }

    fn lose(&mut self) {
        self.stream = None;
        self.unsent.clear();
        self.queued.clear();
        self.received.clear();
        self.sent = 0;
        self.records = RecordReader::new(RecordLimits::default());
        self.retry_at = Instant::now() + self.pause;
        // A peer that takes connections only to close them is no better than one that takes none.
        self.pause = (self.pause * 2).min(BACKOFF.1);
    }

    fn reconnected(&mut self, now: Instant) -> bool {
        if self.stream.is_some() {
            return false;
        }
        match self.attempt.as_ref().map(Receiver::try_recv) {
            None if now >= self.retry_at => {
                let (sender, receiver) = sync_channel(1);
                let origin = self.origin.clone();
                self.attempt = Some(receiver);
                self.origin.runtime.spawn(async move {
                    // If the lane is gone, nobody wants the connection.
                    let _ = sender.send(tcp_stream(origin.target, &origin.options).await);
                });
            }
            None | Some(Err(TryRecvError::Empty)) => {}
            Some(Ok(Ok(stream))) => {
                (self.stream, self.attempt) = (Some(stream), None);
                return true;
            }
            Some(Ok(Err(_)) | Err(TryRecvError::Disconnected)) => {
                self.attempt = None;
                self.retry_at = now + self.pause;
                self.pause = (self.pause * 2).min(BACKOFF.1);
            }
        }
        false
    }
}

pub(crate) struct UdpLink {
    socket: UdpSocket,
    /// Messages in a row, and the length and XID of each.
    unsent: Vec<u8>,
    queued: VecDeque<(usize, u32)>,
    datagram: Vec<u8>,
}

impl UdpLink {
    fn new(socket: UdpSocket) -> Self {
        Self { socket, unsent: Vec::new(), queued: VecDeque::new(), datagram: vec![0; DATAGRAM_BYTES_MAX] }
    }

    fn flush(&mut self, sent: &mut Vec<u32>) {
        let mut begin = 0;
        while let Some((length, xid)) = self.queued.front().copied() {
            match self.socket.send(&self.unsent[begin..begin + length]) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // Anything else (no listener for a moment, no buffer) is a lost datagram: the timer sends it again.
                _ => sent.push(xid),
            }
            begin += length;
            self.queued.pop_front();
        }
        self.unsent.drain(..begin);
    }

    fn receive(&mut self, mut take: impl FnMut(&[u8])) {
        for _ in 0..DATAGRAMS_AT_ONCE_MAX {
            match self.socket.recv(&mut self.datagram) {
                Ok(length) => take(&self.datagram[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // An earlier send found nobody: its timer deals with that.
                Err(_) => {}
            }
        }
    }
}
