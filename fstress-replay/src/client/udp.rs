//! One socket over UDP: a task that owns it and its calls, and sends them again while there is no reply.

use super::Submission;
use super::pending::{Pending, Setting};
use super::port::from_free_port;
use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;

/// Largest datagram there can be.
const DATAGRAM_BYTES_MAX: usize = 65_536;
/// Calls waiting for room in the socket's buffer beyond which no further call is taken.
const UNSENT_CALLS_MAX: usize = 1024;
/// Calls taken from the queue at once.
const BATCH: usize = 64;
/// Asked of the system for replies that come faster than they are read; it may give less.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

pub(super) async fn open(setting: &Setting) -> io::Result<UdpSocket> {
    let socket = from_free_port(setting.target, setting.options.reserved_port, UdpSocket::bind).await?;
    // A smaller buffer works, with more retransmissions.
    let _ = socket2::SockRef::from(&socket).set_recv_buffer_size(RECEIVE_BUFFER_BYTES);
    socket.connect(setting.target).await?;
    Ok(socket)
}

/// Serves calls until the client is dropped.
pub(super) async fn run(socket: UdpSocket, mut queue: mpsc::Receiver<Submission>, setting: Setting) {
    let mut pending = Pending::new(setting);
    let mut unsent: VecDeque<u32> = VecDeque::new();
    let mut batch = Vec::with_capacity(BATCH);
    let mut datagram = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        let interest =
            if unsent.is_empty() { Interest::READABLE } else { Interest::READABLE | Interest::WRITABLE };
        let room = !pending.is_full() && unsent.len() < UNSENT_CALLS_MAX;
        let timer = pending.next_timer().unwrap_or_else(|| Instant::now() + Duration::from_secs(60));
        tokio::select! {
            taken = queue.recv_many(&mut batch, BATCH), if room => {
                if taken == 0 {
                    return;
                }
                let now = Instant::now();
                for submission in batch.drain(..) {
                    unsent.push_back(pending.insert(submission, now));
                }
            }
            ready = socket.ready(interest) => {
                if ready.is_ok_and(|ready| ready.is_readable()) {
                    receive(&socket, &mut datagram, &mut pending);
                }
            }
            () = tokio::time::sleep_until(timer.into()) => {
                unsent.extend(pending.expire(Instant::now()));
            }
        }
        flush(&socket, &mut unsent, &mut pending);
    }
}

fn flush(socket: &UdpSocket, unsent: &mut VecDeque<u32>, pending: &mut Pending) {
    while let Some(xid) = unsent.front().copied() {
        if let Some(message) = pending.message(xid) {
            match socket.try_send(message) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // Anything else (no listener for a moment, no buffer) is a lost datagram: the timer sends it again.
                _ => pending.mark_sent(xid),
            }
        }
        unsent.pop_front();
    }
}

fn receive(socket: &UdpSocket, datagram: &mut [u8], pending: &mut Pending) {
    // Errors are those of earlier sends (nobody listens): the timers deal with them.
    while let Ok(length) = socket.try_recv(datagram) {
        pending.receive(&datagram[..length]);
    }
}
