//! Bytes of a TCP connection on their way in: read into a buffer that all connections of a shard share, cut into
//! records there, and only a record's beginning without its end is kept with the connection: a short one in its tail, a
//! long one in a buffer for which there has to be room ([`Room`]).

use super::mmsg::set_low_water;
use super::unfinished::{FREE_BYTES, Held, Owner, Room};
use clockwork_wire::record::{Progress, RecordError, RecordLimits, RecordReader};
use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// Less is not waited for.
const LOW_WATER_BYTES_MIN: usize = 4 << 10;

/// What a reader of records says about going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    Continue,
    /// No more records now; those that are there already wait.
    Stop,
}

/// How a read ended.
#[derive(Debug)]
pub(crate) enum Received {
    /// All that was there has been taken.
    Drained,
    /// There may be more.
    More,
    /// The reader said stop; records are left.
    Stopped,
    /// The other end has closed its side.
    Closed,
    /// Nothing more is read of the record that has begun before [`Inbound::take_room`] has room for it.
    NoRoom,
}

/// Takes the records that a read has brought.
pub(crate) trait RecordSink {
    /// A complete record, mark and message: its place in the bytes read.
    fn record(&mut self, buffer: &mut [u8], record: Range<usize>) -> Flow;
    /// No more records in these bytes, which are about to be reused.
    fn end(&mut self, _buffer: &[u8]) {}
}

/// Why a connection cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InboundError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("a record has begun, and no more of it has come for {} s", .0.as_secs_f32())]
    Unfinished(Duration),
}

/// The inbound side of one connection.
#[derive(Debug)]
pub(crate) struct Inbound {
    reader: RecordReader,
    /// Of a short beginning; [`FREE_BYTES`] at the most.
    tail: Vec<u8>,
    /// Of a longer one, which is completed where it lies, instead of being moved to the shared buffer and back with
    /// every read.
    own: Option<Held>,
    /// Bytes in the one or the other.
    filled: usize,
    /// Bytes of the record begun that are needed to go on.
    wanted: usize,
    /// Whole records may be in the tail.
    stopped: bool,
    /// Bytes that the kernel has been told to wait for.
    low_water: u32,
    room: Rc<Room>,
    /// Whose room it is; `None` for a store, whose records always have some.
    owner: Option<Owner>,
}

impl Inbound {
    pub(crate) fn new(limits: RecordLimits, room: Rc<Room>, owner: Option<Owner>) -> Self {
        Self {
            reader: RecordReader::new(limits),
            tail: Vec::new(),
            own: None,
            filled: 0,
            wanted: 0,
            stopped: false,
            low_water: 1,
            room,
            owner,
        }
    }

    /// Waits until `stream` has bytes; where a long record has begun, until it is whole. A store's replies come in many
    /// packets, and to be woken for each of them would cost more than to read them.
    pub(crate) async fn readable_whole(&mut self, stream: &TcpStream) -> io::Result<()> {
        let missing = if self.filled == 0 { 0 } else { self.wanted.saturating_sub(self.filled) };
        let bytes =
            if missing < LOW_WATER_BYTES_MIN { 1 } else { u32::try_from(missing).unwrap_or(u32::MAX) };
        if bytes != self.low_water {
            set_low_water(stream.as_fd(), bytes)?;
            self.low_water = bytes;
        }
        readable(stream).await
    }

    /// Waits until `stream` has bytes; where a record has begun, for so long at the most.
    pub(crate) async fn readable(
        &self,
        stream: &TcpStream,
        unfinished_max: Duration,
    ) -> Result<(), InboundError> {
        if self.filled == 0 {
            return Ok(readable(stream).await?);
        }
        match tokio::time::timeout(unfinished_max, readable(stream)).await {
            Ok(result) => Ok(result?),
            Err(_) => Err(InboundError::Unfinished(unfinished_max)),
        }
    }

    /// Reads once from `stream`, without waiting, and hands what has come to `sink`.
    pub(crate) fn read(
        &mut self,
        stream: &TcpStream,
        shared: &mut [u8],
        sink: &mut impl RecordSink,
    ) -> Result<Received, InboundError> {
        let may_grow = self.owner.is_none() || self.room.is_free();
        if self.own.is_none() && !may_grow && !self.stopped && self.wanted > FREE_BYTES {
            return Ok(Received::NoRoom);
        }
        let Self { reader, tail, own, filled, wanted, stopped, .. } = self;
        let (buffer, bytes_max) = match own {
            // What comes behind the record is short.
            Some(own) => (own.bytes(), *wanted + FREE_BYTES),
            None => {
                shared[..*filled].copy_from_slice(&tail[..*filled]);
                (&mut *shared, if may_grow { usize::MAX } else { FREE_BYTES })
            }
        };
        let mut total = *filled;
        let mut drained = false;
        if !std::mem::take(stopped) {
            let end = bytes_max.min(buffer.len());
            match receive(stream, &mut buffer[total..end], &mut drained) {
                Ok(0) => return Ok(Received::Closed),
                Ok(count) => total += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Received::Drained),
                Err(error) => return Err(error.into()),
            }
        }
        let mut start = 0;
        let outcome = loop {
            let progress = match reader.next(&mut buffer[start..total]) {
                Ok(progress) => progress,
                Err(error) => {
                    sink.end(buffer);
                    return Err(error.into());
                }
            };
            match progress {
                Progress::Record { end, consumed } => {
                    let flow = sink.record(buffer, start..start + end);
                    start += consumed;
                    if flow == Flow::Stop {
                        *stopped = true;
                        break Received::Stopped;
                    }
                }
                Progress::Partial { wanted: bytes } => {
                    *wanted = bytes;
                    break if drained { Received::Drained } else { Received::More };
                }
            }
        };
        sink.end(buffer);
        let shared = if self.own.is_some() { None } else { Some(&shared[start..total]) };
        self.keep(shared, start..total)?;
        Ok(outcome)
    }

    /// Keeps what is left after a read: `shared`, or where there is none, that part of the own buffer.
    fn keep(&mut self, shared: Option<&[u8]>, rest: Range<usize>) -> io::Result<()> {
        self.filled = rest.len();
        let Some(kept) = shared else {
            let Some(own) = &mut self.own else { return Ok(()) };
            if rest.len() > FREE_BYTES {
                let buffer = own.bytes();
                buffer.copy_within(rest.clone(), 0);
                let needed = self.room.needed(&buffer[..rest.len()]);
                own.moved(needed, self.stopped);
            } else if let Some(mut own) = self.own.take() {
                // A long record has passed: its room goes back.
                copy_to(&mut self.tail, &own.bytes()[rest]);
            }
            return Ok(());
        };
        if kept.len() <= FREE_BYTES {
            copy_to(&mut self.tail, kept);
            return Ok(());
        }
        let needed = self.room.needed(kept);
        let mut own = match self.owner {
            Some(owner) => self.room.take(owner, needed)?,
            None => self.room.take_uncounted(needed)?,
        };
        own.bytes()[..kept.len()].copy_from_slice(kept);
        own.moved(needed, self.stopped);
        self.own = Some(own);
        Ok(())
    }

    /// It is, or is no more, the router that does not read on.
    pub(crate) fn pause(&mut self, pause: bool) {
        if let Some(own) = &self.own {
            own.pause(pause);
        }
    }

    /// Waits until there is room for the record that has begun.
    pub(crate) async fn take_room(&mut self) -> io::Result<()> {
        let Some(owner) = self.owner.filter(|_| self.own.is_none()) else { return Ok(()) };
        let kept = &self.tail[..self.filled];
        let mut own = self.room.wait(owner, self.room.needed(kept)).await?;
        own.bytes()[..kept.len()].copy_from_slice(kept);
        self.own = Some(own);
        Ok(())
    }
}

fn copy_to(tail: &mut Vec<u8>, kept: &[u8]) {
    if tail.len() < kept.len() {
        tail.resize(kept.len(), 0);
    }
    tail[..kept.len()].copy_from_slice(kept);
}

/// Waits until `stream` has bytes. Only its one reader may wait this way, which `TcpStream::readable`, a place in a list of
/// waiting tasks, does not need to know.
async fn readable(stream: &TcpStream) -> io::Result<()> {
    std::future::poll_fn(|context| stream.poll_read_ready(context)).await
}

/// One `recv`. When it brings less than there was room for, the socket is empty, and tokio is told so: that saves the
/// call that would only say so. (Its own `poll_read` reasons the same way; a close stays visible, since tokio never
/// clears that.)
fn receive(stream: &TcpStream, buffer: &mut [u8], drained: &mut bool) -> io::Result<usize> {
    let mut count = None;
    let result = stream.try_io(Interest::READABLE, || {
        let socket = socket2::SockRef::from(stream);
        let received = (&*socket).read(buffer)?;
        count = Some(received);
        if received > 0 && received < buffer.len() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(())
    });
    match (count, result) {
        (Some(count), result) => {
            *drained = result.is_err();
            Ok(count)
        }
        (None, Err(error)) => Err(error),
        (None, Ok(())) => Err(io::ErrorKind::WouldBlock.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::unfinished::UNFINISHED_BYTES_MAX;
    use clockwork_wire::record;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    struct Count(usize);

    impl RecordSink for Count {
        fn record(&mut self, _: &mut [u8], _: Range<usize>) -> Flow {
            self.0 += 1;
            Flow::Continue
        }
    }

    fn inbound() -> Inbound {
        Inbound::new(RecordLimits::default(), Room::new(UNFINISHED_BYTES_MAX, 2 << 20), None)
    }

    #[tokio::test]
    async fn a_record_that_has_begun_waits_for_its_rest_so_long_and_an_idle_connection_for_ever() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let limit = Duration::from_millis(100);
        let mut inbound = inbound();
        let (mut shared, mut count) = (vec![0; 4096], Count(0));
        // A new socket may be said to be readable once without having anything.
        let mut idle = async || {
            loop {
                inbound.readable(&stream, limit).await.unwrap();
                let _ = inbound.read(&stream, &mut shared, &mut count).unwrap();
            }
        };
        assert!(tokio::time::timeout(limit * 3, idle()).await.is_err(), "between records nothing is due");
        let record = [&record::mark(8)[..], &[7; 8]].concat();
        // In two parts, the second in time; then half of one.
        for (part, records) in [(&record[..3], 0), (&record[3..], 1), (&record[..9], 1)] {
            client.write_all(part).await.unwrap();
            tokio::time::sleep(limit / 4).await;
            inbound.readable(&stream, limit).await.unwrap();
            let received = inbound.read(&stream, &mut shared, &mut count).unwrap();
            assert!(matches!(received, Received::Drained), "{received:?}");
            assert_eq!(count.0, records);
        }
        let ended = loop {
            match inbound.readable(&stream, limit).await {
                Ok(()) => drop(inbound.read(&stream, &mut shared, &mut count).unwrap()),
                Err(error) => break error,
            }
        };
        assert!(matches!(ended, InboundError::Unfinished(after) if after == limit), "{ended}");
    }

    #[tokio::test]
    async fn the_rest_of_a_long_record_is_waited_for_whole_but_not_what_comes_behind_it_nor_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut store = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let mut inbound = inbound();
        let (mut shared, mut count) = (vec![0; 64 << 10], Count(0));
        let long = [&record::mark(20_000)[..], &[7; 20_000]].concat();
        let short = [&record::mark(8)[..], &[7; 8]].concat();
        let in_time = Duration::from_secs(20);
        // What is sent, and how many records and bytes of the next one have come then.
        for (bytes, records, filled) in
            [(&long[..1000], 0, 1000), (&long[10_000..], 1, 0), (&short, 2, 0), (&long[..5000], 2, 5000)]
        {
            if records == 1 {
                store.write_all(&long[1000..10_000]).await.unwrap();
                let woken =
                    tokio::time::timeout(Duration::from_millis(100), inbound.readable_whole(&stream)).await;
                assert!(woken.is_err(), "half of the rest is no reason to wake up");
            }
            store.write_all(bytes).await.unwrap();
            while (count.0, inbound.filled) != (records, filled) {
                tokio::time::timeout(in_time, inbound.readable_whole(&stream)).await.unwrap().unwrap();
                let _ = inbound.read(&stream, &mut shared, &mut count).unwrap();
            }
        }
        drop(store);
        loop {
            tokio::time::timeout(in_time, inbound.readable_whole(&stream)).await.unwrap().unwrap();
            if matches!(inbound.read(&stream, &mut shared, &mut count), Ok(Received::Closed)) {
                break;
            }
        }
    }
}
