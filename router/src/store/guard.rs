//! The guard in front of `nfs3_server`: one client connection, checked, numbered and bounded.
//!
//! `nfs3_server` must not meet a stranger: it allocates what a record mark says, drops a call whose XID it has
//! seen within 60 s without an answer, answers SYSTEM_ERR above 256 calls at once, and forgets the replies of a
//! client that has closed its sending side. So the client's connection ends here. Calls go on over a connection
//! of the guard's own ([`inner`](super::inner)) under XIDs that count up, no more than [`CALLS_RUNNING_MAX`] at
//! once; replies come back under the client's XIDs when the [device](super::device) is done with them. A repeated
//! XID is simply another call: whether it is a retransmission is for the router to know.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clockwork_wire::nfs3::{Class, Procedure};
use clockwork_wire::record::{self, Progress, RecordError, RecordLimits, RecordReader};
use clockwork_wire::rpc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Semaphore, mpsc};

use super::Shared;
use super::alarm::{Alarm, now_ns};
use super::call::{Passed, Verdict, finish, judge};
use super::device::Kind;
use super::holding::{Asked, Held, Holding};
use super::inner::Inner;

/// Calls of one connection that `nfs3_server` works on at once, at the most; further ones wait in the guard and
/// then in the client's socket.
const CALLS_RUNNING_MAX: usize = 192;
/// Calls of one connection that are not answered yet, replies that the device holds included, at the most. Then
/// the guard reads no further: the client's socket fills.
const CALLS_OUTSTANDING_MAX: usize = 2048;
/// KiB of calls and replies that one connection may make the store hold at once, at the most; likewise.
const HELD_KIB_MAX: u32 = 32 * 1024;
/// Bytes read from a socket at a time.
const READ_BYTES: usize = 256 * 1024;
/// Bytes of replies collected before they are written.
const WRITE_BYTES: usize = 256 * 1024;
/// Calls that one connection of `nfs3_server` gets in its life, so that no XID comes twice.
const CALLS_NUMBERED_MAX: u32 = u32::MAX - 1;

/// Why a connection ended before the client closed it.
#[derive(Debug, thiserror::Error)]
pub(super) enum GuardError {
    /// The client does not speak the protocol.
    #[error(transparent)]
    Framing(#[from] RecordError),
    /// The client sent a record that is no call.
    #[error("a record that is no RPC call")]
    NotACall,
    /// The connection broke, or `nfs3_server` ended it.
    #[error("{side}: {source}")]
    Broken {
        /// The client's side, or that of `nfs3_server`.
        side: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// `nfs3_server` sent what it never sends.
    #[error("a reply of nfs3_server that belongs to no call")]
    Reply,
}

fn client(source: std::io::Error) -> GuardError {
    GuardError::Broken { side: "client", source }
}

fn server(source: std::io::Error) -> GuardError {
    GuardError::Broken { side: "nfs3_server", source }
}

/// A call that `nfs3_server` has.
#[derive(Debug)]
struct Running {
    passed: Passed,
    arrived_ns: u64,
    kib: u32,
}

/// What both directions of a connection know.
#[derive(Debug)]
struct Calls {
    running: Mutex<HashMap<u32, Running>>,
    may_run: Semaphore,
    may_come: Semaphore,
    may_hold_kib: Semaphore,
}

impl Calls {
    fn running(&self) -> MutexGuard<'_, HashMap<u32, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answered(&self, calls: usize, kib: usize) {
        self.may_come.add_permits(calls);
        self.may_hold_kib.add_permits(kib);
    }
}

/// A reply of the guard's own.
struct Direct {
    reply: Vec<u8>,
    kib: u32,
}

/// Serves one client until it closes its side and has all replies.
pub(super) async fn guard(stream: TcpStream, shared: Arc<Shared>) -> Result<(), GuardError> {
    stream.set_nodelay(true).map_err(client)?;
    let inner = Inner::connect(&shared).await.map_err(server)?;
    let (from_client, to_client) = stream.into_split();
    let (from_server, to_server, _inner) = inner.into_split();
    let calls = Calls {
        running: Mutex::default(),
        may_run: Semaphore::new(CALLS_RUNNING_MAX),
        may_come: Semaphore::new(CALLS_OUTSTANDING_MAX),
        may_hold_kib: Semaphore::new(HELD_KIB_MAX as usize),
    };
    let (send_direct, direct) = mpsc::unbounded_channel();
    let inward =
        Inward { from_client, to_server, calls: &calls, shared: &shared, direct: send_direct, next_xid: 1 };
    let alarm = Alarm::new().map_err(server)?;
    let outward = Outward {
        from_server,
        to_client,
        calls: &calls,
        shared: &shared,
        alarm,
        held: Holding::default(),
        out: Vec::new(),
        out_calls: 0,
        out_kib: 0,
    };
    let outward = outward.run(direct);
    tokio::pin!(outward);
    tokio::select! {
        // The client has sent all it will: what is outstanding is still answered.
        ended = inward.run() => {
            // `nfs3_server` would drop them if it saw the end.
            let _to_server = ended?;
            outward.await
        }
        ended = &mut outward => ended,
    }
}

/// From the client to `nfs3_server`.
struct Inward<'a> {
    from_client: OwnedReadHalf,
    to_server: OwnedWriteHalf,
    calls: &'a Calls,
    shared: &'a Shared,
    direct: mpsc::UnboundedSender<Direct>,
    next_xid: u32,
}

impl Inward<'_> {
    /// Until the client closes its side; gives back the way to `nfs3_server`, still open.
    async fn run(mut self) -> Result<OwnedWriteHalf, GuardError> {
        let mut reader = RecordReader::new(RecordLimits::default());
        let mut buffer = Vec::with_capacity(READ_BYTES);
        let mut out = Vec::new();
        while self.next_xid < CALLS_NUMBERED_MAX {
            let arrived_ns = now_ns();
            let mut at = 0;
            let wanted = loop {
                match reader.next(&mut buffer[at..])? {
                    Progress::Record { end, consumed } => {
                        self.take(&mut buffer[at + 4..at + end], arrived_ns, &mut out).await?;
                        at += consumed;
                    }
                    Progress::Partial { wanted } => break wanted,
                }
            };
            buffer.drain(..at);
            self.flush(&mut out).await?;
            buffer.reserve(wanted.saturating_sub(buffer.len()).max(READ_BYTES / 4));
            if self.from_client.read_buf(&mut buffer).await.map_err(client)? == 0 {
                break;
            }
        }
        Ok(self.to_server)
    }

    /// One call: waits until there is room for it, then answers it or puts it into `out`.
    async fn take(
        &mut self,
        message: &mut [u8],
        arrived_ns: u64,
        out: &mut Vec<u8>,
    ) -> Result<(), GuardError> {
        let mut reply = Vec::new();
        let passed = match judge(message, self.shared.port, &mut reply) {
            Verdict::Nonsense => return Err(GuardError::NotACall),
            Verdict::Pass(passed) => Some(passed),
            Verdict::Answered => None,
        };
        let reply_bytes = passed.as_ref().map_or(0, |passed| passed.reply_bytes_max);
        let kib = (u32::try_from(message.len()).unwrap_or(u32::MAX) >> 10) + (reply_bytes >> 10) + 1;
        let kib = kib.min(HELD_KIB_MAX);
        self.acquire(&self.calls.may_come, 1, out).await?;
        self.acquire(&self.calls.may_hold_kib, kib, out).await?;
        self.shared.counters.calls.fetch_add(1, Relaxed);
        let Some(passed) = passed else {
            // If nobody listens any more, the connection is about to end.
            let _ = self.direct.send(Direct { reply, kib });
            return Ok(());
        };
        self.acquire(&self.calls.may_run, 1, out).await?;
        let xid = self.next_xid;
        self.next_xid += 1;
        self.calls.running().insert(xid, Running { passed, arrived_ns, kib });
        rpc::set_xid(message, xid);
        out.extend_from_slice(&record::mark(message.len()));
        out.extend_from_slice(message);
        if out.len() >= WRITE_BYTES {
            self.flush(out).await?;
        }
        Ok(())
    }

    /// Takes permits for good; they come back when a reply leaves. What waits to be sent is sent before waiting,
    /// or nothing might ever leave.
    async fn acquire(&self, permits: &Semaphore, count: u32, out: &mut Vec<u8>) -> Result<(), GuardError> {
        if let Ok(permit) = permits.try_acquire_many(count) {
            permit.forget();
            return Ok(());
        }
        self.shared.counters.waits.fetch_add(1, Relaxed);
        send(&self.to_server, out).await.map_err(server)?;
        if let Ok(permit) = permits.acquire_many(count).await {
            permit.forget();
        }
        Ok(())
    }

    async fn flush(&self, out: &mut Vec<u8>) -> Result<(), GuardError> {
        send(&self.to_server, out).await.map_err(server)
    }
}

/// Writes all and empties the buffer.
async fn send(to: &OwnedWriteHalf, out: &mut Vec<u8>) -> std::io::Result<()> {
    let mut sent = 0;
    while sent < out.len() {
        to.writable().await?;
        match to.try_write(&out[sent..]) {
            Ok(0) => return Err(std::io::ErrorKind::WriteZero.into()),
            Ok(written) => sent += written,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    out.clear();
    Ok(())
}

/// From `nfs3_server` to the client.
struct Outward<'a> {
    from_server: OwnedReadHalf,
    to_client: OwnedWriteHalf,
    calls: &'a Calls,
    shared: &'a Shared,
    alarm: Alarm,
    held: Holding,
    /// Replies to be written now, how many, and the KiB that they were counted with.
    out: Vec<u8>,
    out_calls: usize,
    out_kib: usize,
}

impl Outward<'_> {
    async fn run(mut self, mut direct: mpsc::UnboundedReceiver<Direct>) -> Result<(), GuardError> {
        let mut reader = RecordReader::new(RecordLimits { record_bytes_max: 1 << 22, fragments_max: 16 });
        let mut buffer = Vec::with_capacity(READ_BYTES);
        let mut client_sends = true;
        loop {
            if !client_sends && self.held.is_empty() && self.calls.running().is_empty() {
                return self.to_client.shutdown().await.map_err(client);
            }
            let alarm_ns = self.held.alarm_ns(now_ns(), &self.shared.way.lateness);
            let mut woken = false;
            tokio::select! {
                read = self.from_server.read_buf(&mut buffer) => {
                    if read.map_err(server)? == 0 {
                        return Err(server(std::io::ErrorKind::UnexpectedEof.into()));
                    }
                    let wanted = self.receive(&mut reader, &mut buffer)?;
                    buffer.reserve(wanted.saturating_sub(buffer.len()).max(READ_BYTES / 4));
                }
                reply = direct.recv(), if client_sends => match reply {
                    Some(Direct { reply, kib }) => self.put(&reply, kib),
                    None => client_sends = false,
                },
                rang = self.alarm.wait(alarm_ns) => {
                    rang.map_err(server)?;
                    woken = true;
                }
            }
            self.release(now_ns(), woken);
            if !self.out.is_empty() {
                send(&self.to_client, &mut self.out).await.map_err(client)?;
                self.calls.answered(std::mem::take(&mut self.out_calls), std::mem::take(&mut self.out_kib));
            }
        }
    }

    /// Takes the replies out of what `nfs3_server` sent; gives the bytes that the next one needs.
    fn receive(&mut self, reader: &mut RecordReader, buffer: &mut Vec<u8>) -> Result<usize, GuardError> {
        let mut at = 0;
        let wanted = loop {
            match reader.next(&mut buffer[at..])? {
                Progress::Record { end, consumed } => {
                    self.reply(&mut buffer[at + 4..at + end])?;
                    at += consumed;
                }
                Progress::Partial { wanted } => break wanted,
            }
        };
        buffer.drain(..at);
        Ok(wanted)
    }

    fn reply(&mut self, reply: &mut [u8]) -> Result<(), GuardError> {
        let xid = rpc::xid(reply).ok_or(GuardError::Reply)?;
        let Running { passed, arrived_ns, kib } =
            self.calls.running().remove(&xid).ok_or(GuardError::Reply)?;
        self.calls.may_run.add_permits(1);
        let read_bytes = finish(reply, &passed, &self.shared.touch(&passed));
        let asked = asks(&passed, read_bytes).and_then(|(kind, bytes)| {
            let done_ns = self.shared.device().serve(arrived_ns, kind, bytes)?;
            Some(Asked { kind, arrived_ns, done_ns, way_ns: self.shared.way.both_ns() })
        });
        let Some(asked) = asked else {
            self.put(reply, kib);
            return Ok(());
        };
        let now_ns = now_ns();
        if let Some(reply) = self.held.hold(now_ns, &asked, &self.shared.way.lateness, (reply, kib)) {
            self.leaves(now_ns, arrived_ns);
            self.put(reply, kib);
        }
        Ok(())
    }

    fn release(&mut self, now_ns: u64, woken: bool) {
        let lateness = &self.shared.way.lateness;
        let mut held = std::mem::take(&mut self.held);
        let mut put = |Held { arrived_ns, reply, kib, .. }| {
            self.leaves(now_ns, arrived_ns);
            self.put(&reply, kib);
        };
        if woken {
            held.woken(now_ns, lateness).for_each(&mut put);
        } else {
            held.passing(now_ns, lateness).for_each(&mut put);
        }
        self.held = held;
    }

    /// A reply of the device leaves now.
    fn leaves(&self, now_ns: u64, arrived_ns: u64) {
        self.shared.stay_ns.store(now_ns.saturating_sub(arrived_ns), Relaxed);
    }

    fn put(&mut self, reply: &[u8], kib: u32) {
        self.out.extend_from_slice(&record::mark(reply.len()));
        self.out.extend_from_slice(reply);
        self.out_calls += 1;
        self.out_kib += usize::try_from(kib).unwrap_or(0);
    }
}

/// What a call asks of the device. NULL and MOUNT are answered from memory by any store.
fn asks(passed: &Passed, read_bytes: u32) -> Option<(Kind, u32)> {
    let procedure = passed.procedure.filter(|procedure| *procedure != Procedure::Null)?;
    Some(match procedure.class() {
        Class::Read => (Kind::Read, read_bytes),
        Class::Write => (Kind::Write, passed.written_bytes),
        Class::Metadata => (Kind::Metadata, 0),
    })
}
