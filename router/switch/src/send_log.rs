//! The records on their way to one store: bytes not yet written, and bytes written whose reply has not come.
//!
//! A record is one RPC call behind its record mark (RFC 5531, section 11), always as a single fragment. It is copied in
//! once, sent from here, and kept until its reply has come, so that it can be sent again when the link was lost. Records
//! lie one behind the other in chunks, so many small calls leave in one contiguous write.

use std::collections::VecDeque;
use std::io::IoSlice;

/// Size of a chunk, bytes. A longer record gets a chunk of its own.
pub const CHUNK_BYTES: usize = 256 * 1024;

/// Most slices that [`SendLog::unsent`] fills.
pub const SLICES_MAX: usize = 64;

/// Emptied chunks of the usual size kept for reuse.
const SPARE_CHUNKS_MAX: usize = 4;

/// Emptied chunks of long records kept for reuse, so that a stream of large writes does not allocate each time.
const SPARE_LONG_CHUNKS_MAX: usize = 2;

/// A long chunk above this size is given back at once.
const SPARE_LONG_CHUNK_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Bytes of a record mark.
const MARK_BYTES: usize = 4;

/// The bit of a record mark that says "last fragment".
const LAST_FRAGMENT: u32 = 1 << 31;

/// Where a call lies in its log. Valid until it is released, requeued or relocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPosition {
    chunk: u32,
    offset: u32,
    /// Length of the call without its mark.
    length: u32,
}

impl LogPosition {
    /// Length of the call without its mark, bytes.
    #[must_use]
    pub fn length(self) -> usize {
        index(self.length)
    }

    fn range(self) -> std::ops::Range<usize> {
        index(self.offset)..index(self.offset) + index(self.length)
    }
}

/// The log has no room for this record: stop reading from clients until replies have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no room for a record of {record_bytes} bytes towards this store: {held_bytes} of {bytes_max} bytes are held for calls without a reply"
)]
pub struct LogFull {
    /// The record that did not fit, mark included.
    pub record_bytes: usize,
    /// Bytes held.
    pub held_bytes: usize,
    /// The log's limit.
    pub bytes_max: usize,
}

#[derive(Debug, Default)]
struct Chunk {
    /// Its length is what has been filled; its capacity is never exceeded.
    data: Vec<u8>,
    /// Bytes at the front that have been sent (or given up).
    sent: usize,
    /// Records not released.
    live: u32,
}

impl Chunk {
    fn room(&self) -> usize {
        self.data.capacity() - self.data.len()
    }

    fn is_done(&self) -> bool {
        self.live == 0 && self.sent == self.data.len()
    }
}

/// Records towards one store, oldest first. See the [module](self).
///
/// Every record pushed is written to the link whole and in order, even if it is released before its bytes have left
/// (a reply cannot come before its call, but the call may have been given up): a stream is never cut inside a record.
#[derive(Debug)]
pub struct SendLog {
    bytes_max: usize,
    chunks: Vec<Chunk>,
    /// Entries of `chunks` that hold no buffer.
    vacant: Vec<u32>,
    /// Chunks with unsent bytes, oldest first.
    queue: VecDeque<u32>,
    /// The chunk that is being filled.
    tail: Option<u32>,
    spare: Vec<Vec<u8>>,
    spare_long: Vec<Vec<u8>>,
    held: usize,
    unsent: usize,
}

impl SendLog {
    /// An empty log that takes records while it holds at most `bytes_max` bytes (see [`SendLog::bytes`]).
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            chunks: Vec::new(),
            vacant: Vec::new(),
            queue: VecDeque::new(),
            tail: None,
            spare: Vec::new(),
            spare_long: Vec::new(),
            held: 0,
            unsent: 0,
        }
    }

    /// Appends a record: its mark, then the parts one behind the other.
    ///
    /// # Errors
    /// [`LogFull`] when the log would hold more than its limit, or the record is longer than a mark can say (2 GiB).
    #[inline]
    pub fn push(&mut self, parts: &[&[u8]]) -> Result<LogPosition, LogFull> {
        let length = parts.iter().map(|part| part.len()).sum();
        let (mut position, mark) = self.admit(length, self.bytes_max)?;
        let (number, chunk) = self.chunk_with_room(MARK_BYTES + length);
        position.place(number, chunk.data.len());
        chunk.data.extend_from_slice(&mark);
        for part in parts {
            chunk.data.extend_from_slice(part);
        }
        self.appended(number, MARK_BYTES + length);
        Ok(position)
    }

    /// Appends a record: its mark, and the call in one piece.
    ///
    /// # Errors
    /// As [`SendLog::push`].
    #[inline]
    pub fn push_call(&mut self, call: &[u8]) -> Result<LogPosition, LogFull> {
        let (mut position, mark) = self.admit(call.len(), self.bytes_max)?;
        let (number, chunk) = self.chunk_with_room(MARK_BYTES + call.len());
        position.place(number, chunk.data.len());
        chunk.data.extend_from_slice(&mark);
        chunk.data.extend_from_slice(call);
        self.appended(number, MARK_BYTES + call.len());
        Ok(position)
    }

    /// The call at `position`, without its mark. Empty if the position is not of this log.
    #[must_use]
    pub fn call(&self, position: LogPosition) -> &[u8] {
        self.chunk(position.chunk).and_then(|chunk| chunk.data.get(position.range())).unwrap_or_default()
    }

    /// The call at `position`, without its mark, to be changed in place (its XID, before it is sent again).
    pub fn call_mut(&mut self, position: LogPosition) -> &mut [u8] {
        self.chunk_mut(position.chunk)
            .and_then(|chunk| chunk.data.get_mut(position.range()))
            .unwrap_or_default()
    }

    /// The reply has come, or nobody waits for it any more: the record need not be kept. Once for every position.
    #[inline]
    pub fn release(&mut self, position: LogPosition) {
        let Some(chunk) = self.chunk_mut(position.chunk) else { return };
        debug_assert!(chunk.live > 0, "a record is released once");
        chunk.live = chunk.live.saturating_sub(1);
        if chunk.is_done() {
            self.recycle(position.chunk);
        }
    }

    /// Appends the same record again and releases its old place: it was sent on a link that is lost, or was discarded.
    ///
    /// Up to twice `bytes_max` may be held meanwhile, so that sending everything again does not fail half-way.
    ///
    /// # Errors
    /// [`LogFull`] when even that is held; the record then stays where it is.
    pub fn requeue(&mut self, position: LogPosition) -> Result<LogPosition, LogFull> {
        let bytes = MARK_BYTES + position.length();
        let (mut moved, mark) = self.admit(position.length(), self.bytes_max.saturating_mul(2))?;
        let (number, chunk) = self.chunk_with_room(bytes);
        moved.place(number, chunk.data.len());
        chunk.data.extend_from_slice(&mark);
        self.copy_call(position, number);
        self.appended(number, bytes);
        self.release(position);
        Ok(moved)
    }

    /// Moves a record that has been sent into a buffer of its own and releases its old place.
    ///
    /// A chunk is held as long as any record in it is: one call that a store does not answer would hold all its
    /// neighbours' bytes. Moving such calls away (say when they are a second old) keeps [`SendLog::bytes`] near what is
    /// really outstanding. A record that is still to be sent stays where it is.
    #[must_use]
    pub fn relocate(&mut self, position: LogPosition) -> LogPosition {
        let Some(chunk) = self.chunk(position.chunk) else { return position };
        let alone = chunk.data.len() == position.length();
        if alone || position.range().end > chunk.sent {
            return position;
        }
        let number = self.occupy(Vec::with_capacity(position.length()));
        self.copy_call(position, number);
        if let Some(chunk) = self.chunk_mut(number) {
            chunk.live = 1;
            chunk.sent = chunk.data.len();
        }
        self.held += position.length();
        self.release(position);
        LogPosition { chunk: number, offset: 0, length: position.length }
    }

    /// Adds the unsent bytes to `slices`, oldest first, until these are [`SLICES_MAX`]. Tell [`SendLog::sent`] how many
    /// bytes of them were written.
    pub fn unsent<'a>(&'a self, slices: &mut Vec<IoSlice<'a>>) {
        let room = SLICES_MAX.saturating_sub(slices.len());
        let unsent = self.queue.iter().filter_map(|&number| {
            let chunk = self.chunk(number)?;
            chunk.data.get(chunk.sent..)
        });
        slices.extend(unsent.take(room).map(IoSlice::new));
    }

    /// The first `bytes` of the unsent bytes have been written.
    pub fn sent(&mut self, mut bytes: usize) {
        debug_assert!(bytes <= self.unsent, "more was sent than there was");
        while bytes > 0 {
            let Some(&number) = self.queue.front() else { return };
            let Some(chunk) = self.chunk_mut(number) else { return };
            let taken = bytes.min(chunk.data.len() - chunk.sent);
            chunk.sent += taken;
            bytes -= taken;
            let (all_sent, done) = (chunk.sent == chunk.data.len(), chunk.is_done());
            self.unsent -= taken;
            if !all_sent {
                return;
            }
            self.queue.pop_front();
            if done {
                self.recycle(number);
            }
        }
    }

    /// Whether there is anything to send.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        self.unsent > 0
    }

    /// Bytes to send, marks included.
    #[must_use]
    pub fn unsent_bytes(&self) -> usize {
        self.unsent
    }

    /// The next unsent call without its mark, for a store that is reached by datagrams. Not to be mixed with
    /// [`SendLog::sent`] on the same log.
    #[must_use]
    pub fn next_datagram(&self) -> Option<&[u8]> {
        self.datagrams().next()
    }

    /// The unsent calls without their marks, oldest first: [`SendLog::next_datagram`] and those behind it.
    pub fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        let unsent = self.queue.iter().filter_map(|&number| {
            let chunk = self.chunk(number)?;
            chunk.data.get(chunk.sent..)
        });
        unsent.flat_map(|mut rest| {
            std::iter::from_fn(move || {
                let (mark, calls) = rest.split_first_chunk::<MARK_BYTES>()?;
                let (call, behind) =
                    calls.split_at_checked(index(u32::from_be_bytes(*mark) & !LAST_FRAGMENT))?;
                rest = behind;
                Some(call)
            })
        })
    }

    /// The datagram that [`SendLog::next_datagram`] gave has been sent.
    pub fn datagram_sent(&mut self) {
        if let Some(length) = self.next_datagram().map(<[u8]>::len) {
            self.sent(MARK_BYTES + length);
        }
    }

    /// The link is lost: forgets what is unsent, the rest of a half-sent record too. Positions stay valid until they are
    /// released or requeued.
    pub fn discard_unsent(&mut self) {
        self.sent(self.unsent);
        // What is requeued goes into another chunk, so that this one is free once all of it has been.
        if self.tail.and_then(|tail| self.chunk(tail)).is_some_and(|chunk| !chunk.data.is_empty()) {
            self.tail = None;
        }
    }

    /// Bytes held: everything in chunks that hold a record not released or a byte not sent, marks and the neighbours of
    /// such records included.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.held
    }

    fn chunk(&self, number: u32) -> Option<&Chunk> {
        self.chunks.get(index(number))
    }

    fn chunk_mut(&mut self, number: u32) -> Option<&mut Chunk> {
        self.chunks.get_mut(index(number))
    }

    /// Checks a record's size; gives a position that is still to be placed, and the record's mark.
    #[inline]
    fn admit(&self, length: usize, limit: usize) -> Result<(LogPosition, [u8; MARK_BYTES]), LogFull> {
        let full = || LogFull {
            record_bytes: length.saturating_add(MARK_BYTES),
            held_bytes: self.held,
            bytes_max: self.bytes_max,
        };
        let held = length.saturating_add(MARK_BYTES).saturating_add(self.held);
        match u32::try_from(length) {
            Ok(length) if length < LAST_FRAGMENT && held <= limit => {
                Ok((LogPosition { chunk: 0, offset: 0, length }, (LAST_FRAGMENT | length).to_be_bytes()))
            }
            _ => Err(full()),
        }
    }

    /// The tail, if it has room for so many bytes, else a new tail that has.
    #[inline]
    fn chunk_with_room(&mut self, bytes: usize) -> (u32, &mut Chunk) {
        let number = match self.tail {
            Some(tail) if self.chunk(tail).is_some_and(|chunk| chunk.room() >= bytes) => tail,
            _ => self.new_tail(bytes),
        };
        // `number` was taken from the list just above.
        (number, &mut self.chunks[index(number)])
    }

    #[cold]
    fn new_tail(&mut self, bytes: usize) -> u32 {
        let left = self.tail.take();
        let buffer = self.buffer(bytes);
        let number = self.occupy(buffer);
        self.tail = Some(number);
        // The old tail may have been kept only because it was the tail.
        if let Some(left) = left
            && self.chunk(left).is_some_and(Chunk::is_done)
        {
            self.recycle(left);
        }
        number
    }

    /// An empty buffer with room for so many bytes.
    fn buffer(&mut self, bytes: usize) -> Vec<u8> {
        if bytes <= CHUNK_BYTES {
            return self.spare.pop().unwrap_or_else(|| Vec::with_capacity(CHUNK_BYTES));
        }
        match self.spare_long.iter().position(|spare| spare.capacity() >= bytes) {
            Some(place) => self.spare_long.swap_remove(place),
            None => Vec::with_capacity(bytes),
        }
    }

    /// Puts a buffer into the list of chunks.
    fn occupy(&mut self, data: Vec<u8>) -> u32 {
        let chunk = Chunk { data, sent: 0, live: 0 };
        match self.vacant.pop() {
            Some(number) => {
                self.chunks[index(number)] = chunk;
                number
            }
            None => {
                self.chunks.push(chunk);
                // Each holds at least a mark of a bounded number of bytes: there are never 4 billion.
                u32::try_from(self.chunks.len() - 1).unwrap_or(u32::MAX)
            }
        }
    }

    /// Copies a call's bytes to the end of a chunk that has room for them.
    fn copy_call(&mut self, from: LogPosition, to: u32) {
        if from.chunk == to {
            if let Some(chunk) = self.chunk_mut(to) {
                chunk.data.extend_from_within(from.range());
            }
            return;
        }
        // The source is taken out for the length of the copy: two chunks cannot be borrowed at once.
        let Some(source) = self.chunk_mut(from.chunk).map(|chunk| std::mem::take(&mut chunk.data)) else {
            return;
        };
        if let (Some(chunk), Some(call)) = (self.chunk_mut(to), source.get(from.range())) {
            chunk.data.extend_from_slice(call);
        }
        if let Some(chunk) = self.chunk_mut(from.chunk) {
            chunk.data = source;
        }
    }

    /// Counts a record of so many bytes at the end of this chunk.
    #[inline]
    fn appended(&mut self, number: u32, bytes: usize) {
        let Some(chunk) = self.chunks.get_mut(index(number)) else { return };
        chunk.live += 1;
        let was_sent = chunk.sent + bytes == chunk.data.len();
        self.held += bytes;
        self.unsent += bytes;
        if was_sent {
            self.queue.push_back(number);
        }
    }

    /// Reuses a chunk that is done with: the tail in place, others through the spare buffers.
    fn recycle(&mut self, number: u32) {
        let is_tail = self.tail == Some(number);
        let Some(chunk) = self.chunks.get_mut(index(number)) else { return };
        self.held -= chunk.data.len();
        chunk.data.clear();
        chunk.sent = 0;
        if is_tail && chunk.data.capacity() <= CHUNK_BYTES {
            return;
        }
        let data = std::mem::take(&mut chunk.data);
        self.vacant.push(number);
        if is_tail {
            self.tail = None;
        }
        let capacity = data.capacity();
        if capacity == CHUNK_BYTES && self.spare.len() < SPARE_CHUNKS_MAX {
            self.spare.push(data);
        } else if capacity > CHUNK_BYTES
            && capacity <= SPARE_LONG_CHUNK_BYTES_MAX
            && self.spare_long.len() < SPARE_LONG_CHUNKS_MAX
        {
            self.spare_long.push(data);
        }
    }
}

impl LogPosition {
    /// Says where the record lies whose mark is about to be written at `mark_at`.
    #[inline]
    fn place(&mut self, chunk: u32, mark_at: usize) {
        self.chunk = chunk;
        // Chunks are at most 2 GiB and a mark long.
        self.offset = u32::try_from(mark_at + MARK_BYTES).unwrap_or(u32::MAX);
    }
}

fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
