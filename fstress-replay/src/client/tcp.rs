//! One connection over TCP: a task that owns the stream and its calls.

use super::Submission;
use super::pending::{Pending, Setting};
use super::port::from_free_port;
use clockwork_wire::record::{self, Progress, RecordLimits, RecordReader};
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::mpsc;

/// Bytes waiting to be sent beyond which no further call is taken.
const UNSENT_BYTES_MAX: usize = 4 << 20;
/// Bytes asked of the stream at once.
const READ_BYTES: usize = 256 << 10;
/// Calls taken from the queue at once.
const BATCH: usize = 64;
/// First and longest pause between attempts to connect.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// Time allowed for one attempt to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) async fn connect(setting: &Setting) -> io::Result<TcpStream> {
    let target = setting.target;
    let open = |local: SocketAddr| async move {
        let socket = if target.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // Reserved ports are few: one on which an earlier connection lingers will do for another server, and for the
        // same one the kernel says so.
        socket.set_reuseaddr(setting.options.reserved_port)?;
        socket.bind(local)?;
        let attempt = tokio::time::timeout(CONNECT_TIMEOUT, socket.connect(target));
        attempt.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    };
    let stream = from_free_port(target, setting.options.reserved_port, open).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Serves calls until the client is dropped.
pub(super) async fn run(stream: TcpStream, mut queue: mpsc::Receiver<Submission>, setting: Setting) {
    let mut pending = Pending::new(setting.clone());
    let mut connection = Connection::new(stream);
    let mut pause = BACKOFF.0;
    loop {
        if connection.serve(&mut queue, &mut pending).await.is_ok() {
            return;
        }
        // A peer that takes connections only to close them is no better than one that takes none.
        pause = if connection.has_answered { BACKOFF.0 } else { (pause * 2).min(BACKOFF.1) };
        let stream = match reconnect(&mut pending, &setting, pause).await {
            Ok(stream) => stream,
            Err(error) => {
                pending.fail_all(&error);
                // Calls that come now find no server; each is told so, until one can be reached again.
                match refuse(&mut queue, &mut pending, &setting).await {
                    Some(stream) => stream,
                    None => return,
                }
            }
        };
        connection = Connection::new(stream);
    }
}

/// Connects again after `pause`, and again after twice that, while there is time.
async fn reconnect(pending: &mut Pending, setting: &Setting, mut pause: Duration) -> io::Result<TcpStream> {
    let until = Instant::now() + setting.options.reconnect_max;
    loop {
        tokio::time::sleep(pause).await;
        pending.expire(Instant::now());
        pause = (pause * 2).min(BACKOFF.1);
        match connect(setting).await {
            Ok(stream) => return Ok(stream),
            Err(error) if Instant::now() + pause > until => return Err(error),
            Err(_) => {}
        }
    }
}

/// Waits for a call, tries once to connect for it, and fails it if that does not succeed.
async fn refuse(
    queue: &mut mpsc::Receiver<Submission>,
    pending: &mut Pending,
    setting: &Setting,
) -> Option<TcpStream> {
    loop {
        let submission = queue.recv().await?;
        pending.insert(submission, Instant::now());
        match connect(setting).await {
            Ok(stream) => return Some(stream),
            Err(error) => pending.fail_all(&error),
        }
    }
}

struct Connection {
    stream: TcpStream,
    records: RecordReader,
    received: Vec<u8>,
    unsent: Vec<u8>,
    /// Bytes of `unsent` that are gone.
    sent: usize,
    /// Whether a record has come from the peer.
    has_answered: bool,
}

impl Connection {
    fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            records: RecordReader::new(RecordLimits::default()),
            received: Vec::new(),
            unsent: Vec::new(),
            sent: 0,
            has_answered: false,
        }
    }

    /// `Ok` when the client is gone, an error when the connection is lost.
    async fn serve(
        &mut self,
        queue: &mut mpsc::Receiver<Submission>,
        pending: &mut Pending,
    ) -> io::Result<()> {
        let mut batch = Vec::with_capacity(BATCH);
        for xid in pending.xids() {
            self.append(xid, pending);
        }
        loop {
            let interest = if self.unsent.is_empty() {
                Interest::READABLE
            } else {
                Interest::READABLE | Interest::WRITABLE
            };
            let room = !pending.is_full() && self.unsent.len() - self.sent < UNSENT_BYTES_MAX;
            let timer = pending.next_timer().unwrap_or_else(|| Instant::now() + Duration::from_secs(60));
            tokio::select! {
                taken = queue.recv_many(&mut batch, BATCH), if room => {
                    if taken == 0 {
                        return Ok(());
                    }
                    let now = Instant::now();
                    for submission in batch.drain(..) {
                        let xid = pending.insert(submission, now);
                        self.append(xid, pending);
                    }
                    self.flush()?;
                }
                ready = self.stream.ready(interest) => {
                    let ready = ready?;
                    if ready.is_readable() {
                        self.receive(pending)?;
                    }
                    if ready.is_writable() {
                        self.flush()?;
                    }
                }
                () = tokio::time::sleep_until(timer.into()) => {
                    pending.expire(Instant::now());
                }
            }
        }
    }

    fn append(&mut self, xid: u32, pending: &mut Pending) {
        if let Some(message) = pending.message(xid) {
            self.unsent.extend_from_slice(&record::mark(message.len()));
            self.unsent.extend_from_slice(message);
            pending.mark_sent(xid);
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.sent < self.unsent.len() {
            match self.stream.try_write(&self.unsent[self.sent..]) {
                Ok(bytes) => self.sent += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.unsent.clear();
        self.sent = 0;
        Ok(())
    }

    fn receive(&mut self, pending: &mut Pending) -> io::Result<()> {
        self.received.reserve(READ_BYTES);
        match self.stream.try_read_buf(&mut self.received) {
            Ok(0) => return Err(io::ErrorKind::ConnectionReset.into()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
        let mut begin = 0;
        let wrong = io::Error::other;
        while let Progress::Record { end, consumed } =
            self.records.next(&mut self.received[begin..]).map_err(wrong)?
        {
            pending.receive(&self.received[begin + 4..begin + end]);
            begin += consumed;
            self.has_answered = true;
        }
        self.received.drain(..begin);
        Ok(())
    }
}
