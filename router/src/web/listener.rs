//! A listener with a limit: so many connections at once. None keeps its place by being silent or slow: a request's head
//! has to be whole in time, and where all places are taken, who has waited longest without one makes room.
use std::future::Future as _;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep_until, timeout};

/// The head of a connection's first request is whole by then, or the connection is closed.
pub(super) const HEAD_MAX: Duration = Duration::from_secs(10);

/// The same for a next request, from the last byte of the answer before it; and for an answer of which no byte is taken.
const NEXT_MAX: Duration = Duration::from_secs(30);

/// Who has waited less makes no room: its request may be there already.
const WAITED_MIN: Duration = Duration::from_millis(250);

/// Between two looks for somebody who makes room.
const LOOK_PAUSE: Duration = Duration::from_millis(100);

/// Accepts while fewer than a number of connections are open.
pub(super) struct Bounded {
    listener: TcpListener,
    places: Arc<Semaphore>,
    head_max: Duration,
    open: Vec<Weak<Mutex<Head>>>,
}

impl Bounded {
    pub(super) fn new(listener: TcpListener, connections_max: usize, head_max: Duration) -> Self {
        Self { listener, places: Arc::new(Semaphore::new(connections_max)), head_max, open: Vec::new() }
    }

    /// A place for one that has come.
    async fn place(&mut self) -> Option<OwnedSemaphorePermit> {
        loop {
            if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
                return Some(place);
            }
            self.make_room();
            // The semaphore is never closed; without a place the connection would merely not be counted.
            if let Ok(place) = timeout(LOOK_PAUSE, Arc::clone(&self.places).acquire_owned()).await {
                return place.ok();
            }
        }
    }

    /// Closes the connection that has waited longest for the head of a request.
    fn make_room(&self) {
        let open = self.open.iter().filter_map(Weak::upgrade);
        let waiting = open.filter_map(|head| {
            let since = lock(&head).waiting_since?;
            Some((since, head))
        });
        if let Some((since, head)) = waiting.min_by_key(|(since, _)| *since)
            && since.elapsed() >= WAITED_MIN
        {
            let mut head = lock(&head);
            head.closed = true;
            if let Some(task) = head.task.take() {
                task.wake();
            }
        }
    }
}

impl Listener for Bounded {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        let (stream, peer) = <TcpListener as Listener>::accept(&mut self.listener).await;
        let place = self.place().await;
        let head = Arc::new(Mutex::new(Head { waiting_since: Some(Instant::now()), ..Head::default() }));
        self.open.retain(|head| head.strong_count() > 0);
        self.open.push(Arc::downgrade(&head));
        let deadline = Box::pin(sleep_until(Instant::now() + self.head_max));
        (Connection { stream, head, deadline, _place: place }, peer)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// What is known of the request that a connection waits for.
#[derive(Debug, Default)]
struct Head {
    /// `None` while a request is there that has no answer yet.
    waiting_since: Option<Instant>,
    end: HeadEnd,
    /// Another needs the place.
    closed: bool,
    task: Option<Waker>,
}

fn lock(head: &Mutex<Head>) -> MutexGuard<'_, Head> {
    head.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Finds the end of a request's head: an empty line, but for those before its first line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum HeadEnd {
    /// Nothing but ends of lines so far.
    #[default]
    Before,
    InLine,
    AfterLine,
    Found,
}

impl HeadEnd {
    fn after(self, bytes: &[u8]) -> Self {
        bytes.iter().fold(self, |state, byte| match (state, byte) {
            (Self::Found, _) | (Self::AfterLine, b'\n') => Self::Found,
            (Self::Before, b'\r' | b'\n') => Self::Before,
            (Self::AfterLine, b'\r') | (Self::InLine, b'\n') => Self::AfterLine,
            _ => Self::InLine,
        })
    }
}

/// A connection and its place among the open ones.
pub(super) struct Connection {
    stream: TcpStream,
    head: Arc<Mutex<Head>>,
    /// For what is waited for.
    deadline: Pin<Box<Sleep>>,
    _place: Option<OwnedSemaphorePermit>,
}

impl Connection {
    /// Nothing can be done now: an error where the connection has waited for too long, or another needs its place.
    fn poll_end<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        {
            let mut head = lock(&self.head);
            if head.closed {
                return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
            }
            head.task = Some(cx.waker().clone());
            if head.waiting_since.is_none() {
                return Poll::Pending;
            }
        }
        self.deadline.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Bytes of an answer have been taken, or are to be: the next request is waited for from now on.
    fn answers(&mut self) {
        let now = Instant::now();
        let mut head = lock(&self.head);
        if head.waiting_since.is_none() {
            head.end = HeadEnd::Before;
        }
        head.waiting_since = Some(now);
        drop(head);
        self.deadline.as_mut().reset(now + NEXT_MAX);
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let Poll::Ready(read) = Pin::new(&mut self.stream).poll_read(cx, buf) else {
            return self.poll_end(cx);
        };
        let mut head = lock(&self.head);
        if head.waiting_since.is_some() {
            head.end = head.end.after(buf.filled().get(before..).unwrap_or_default());
            if head.end == HeadEnd::Found {
                head.waiting_since = None;
            }
        }
        drop(head);
        // Also of one that sends without a pause.
        match self.poll_end(cx) {
            Poll::Ready(ended) => Poll::Ready(ended),
            Poll::Pending => Poll::Ready(read),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.stream).poll_write(cx, buf) {
            Poll::Ready(written) => {
                self.answers();
                Poll::Ready(written)
            }
            Poll::Pending => {
                if lock(&self.head).waiting_since.is_none() {
                    self.answers();
                }
                self.poll_end(cx)
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[test]
    fn a_head_ends_at_an_empty_line_however_it_is_cut() {
        let head = b"\r\n\r\nGET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
        for cut in 0..head.len() {
            let (first, rest) = head.split_at(cut);
            let begun = HeadEnd::default().after(first);
            assert_ne!(begun, HeadEnd::Found, "{cut}");
            assert_eq!(begun.after(rest), HeadEnd::Found, "{cut}");
        }
        assert_eq!(HeadEnd::default().after(b"GET /\nHost: x\n\nbody"), HeadEnd::Found);
        for part in [&b"\r\n\r\n\n"[..], b"GET /\r\n \r\n", b"GET /\r\nA: b\r"] {
            assert_ne!(HeadEnd::default().after(part), HeadEnd::Found, "{}", part.escape_ascii());
        }
    }

    async fn bounded(head_max: Duration) -> Bounded {
        Bounded::new(TcpListener::bind("127.0.0.1:0").await.unwrap(), 2, head_max)
    }

    async fn end(connection: &mut Connection) -> io::Error {
        loop {
            match connection.read(&mut [0; 64]).await {
                Ok(0) => panic!("it was closed by the other side"),
                Ok(_) => {}
                Err(error) => return error,
            }
        }
    }

    #[tokio::test]
    async fn a_head_that_comes_byte_by_byte_has_an_end() {
        let mut bounded = bounded(Duration::from_millis(100)).await;
        let mut slow = TcpStream::connect(bounded.local_addr().unwrap()).await.unwrap();
        let (mut connection, _) = bounded.accept().await;
        let dribble = tokio::spawn(async move {
            slow.write_all(b"GET / HTTP/1.1\r\n\n"[..15].as_ref()).await.unwrap();
            while slow.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        assert_eq!(end(&mut connection).await.kind(), io::ErrorKind::TimedOut);
        drop(connection);
        dribble.await.unwrap();
    }

    #[tokio::test]
    async fn who_has_waited_longest_without_a_head_makes_room_and_nobody_with_one() {
        let mut bounded = bounded(Duration::from_secs(600)).await;
        let address = bounded.local_addr().unwrap();
        let mut busy = TcpStream::connect(address).await.unwrap();
        let (mut served, _) = bounded.accept().await;
        busy.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        served.read_exact(&mut [0; 18]).await.unwrap();
        let _silent = TcpStream::connect(address).await.unwrap();
        let (mut waits, _) = bounded.accept().await;
        let closing = tokio::spawn(async move { end(&mut waits).await.kind() });
        let _next = TcpStream::connect(address).await.unwrap();
        let (_connection, _) = bounded.accept().await;
        assert_eq!(closing.await.unwrap(), io::ErrorKind::ConnectionAborted);
        busy.write_all(b"x").await.unwrap();
        served.read_exact(&mut [0; 1]).await.unwrap();
    }
}
