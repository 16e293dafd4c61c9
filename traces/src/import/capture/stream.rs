//! TCP streams of a capture, as far as it takes to find the calls in them.
//!
//! Of every record only what is wanted is kept. A stream is followed from its SYN, or from a segment that begins with a record
//! mark and an NFS call or the reply to one. A segment that comes early waits; where one is missing, the stream is left until
//! it can be entered again in the same way. Of segments that the capture has cut to some length, what is there is taken; the
//! stream goes on behind the hole if that lies within a record, and is left otherwise.

use super::packet::Segment;
use super::pending::HEAD_BYTES;
use hashbrown::HashMap;

/// Bytes of a message by which a sink tells what it wants of it.
const BEGIN_BYTES: usize = 16;
/// Streams followed at once; beyond that all are forgotten and entered anew.
const STREAMS_MAX: usize = 8_192;
/// Bytes of all streams that wait, for what comes before or behind them; beyond that all are forgotten.
const HELD_BYTES_MAX: usize = 64 << 20;
/// Segments of a stream that wait for one before them, and their bytes.
const WAITING_MAX: usize = 32;
const WAITING_BYTES_MAX: usize = 256 << 10;

/// Who takes the messages of streams.
pub(super) trait Sink {
    /// How many bytes of the message that begins so are wanted; `None` if it is none that is looked for.
    fn wanted(&self, begin: &[u8]) -> Option<usize>;
    /// Takes the wanted bytes of a message.
    fn message(&mut self, message: &[u8]);
}

/// Addresses and ports of a stream.
type Key = ([u8; 36], u8);

/// Streams by addresses and ports.
#[derive(Default)]
pub(super) struct Streams {
    streams: HashMap<Key, Stream>,
    /// Bytes that they hold together.
    held: usize,
}

#[derive(Default)]
struct Stream {
    /// Sequence number of the next byte; none until the stream is entered.
    next: Option<u32>,
    /// Segments that came early: sequence number, bytes, and how many are missing behind them.
    waiting: Vec<(u32, Vec<u8>, usize)>,
    records: Records,
}

impl Streams {
    /// Takes a segment and shows the head of every record that has come far enough.
    pub(super) fn segment(
        &mut self,
        segment: &Segment<'_>,
        sequence: u32,
        begins: bool,
        sink: &mut impl Sink,
    ) {
        if self.streams.len() >= STREAMS_MAX || self.held > HELD_BYTES_MAX {
            self.streams.clear();
            self.held = 0;
        }
        let stream = self.streams.entry(key(segment)).or_default();
        let before = stream.held();
        stream.segment(segment, sequence, begins, sink);
        self.held = self.held.saturating_sub(before) + stream.held();
    }
}

impl Stream {
    fn held(&self) -> usize {
        self.waiting.iter().map(|(_, payload, _)| payload.len()).sum::<usize>() + self.records.head.len()
    }

    fn segment(&mut self, segment: &Segment<'_>, sequence: u32, begins: bool, sink: &mut impl Sink) {
        let stream = self;
        if begins {
            *stream = Self { next: Some(sequence.wrapping_add(1)), ..Self::default() };
            return;
        }
        if segment.payload.is_empty() && segment.missing == 0 {
            return;
        }
        if stream.next.is_none() && begins_a_message(segment.payload, sink) {
            *stream = Self { next: Some(sequence), ..Self::default() };
        }
        let Some(next) = stream.next else { return };
        if sequence.wrapping_sub(next).cast_signed() > 0 {
            stream.wait(sequence, (segment.payload, segment.missing), sink);
        } else {
            stream.take(sequence, (segment.payload, segment.missing), sink);
            stream.take_waiting(sink);
        }
    }
}

fn key(segment: &Segment<'_>) -> Key {
    let mut key = [0; 36];
    let parts: [&[u8]; 4] = [
        &segment.client_port.to_be_bytes(),
        &segment.server_port.to_be_bytes(),
        segment.client,
        segment.server,
    ];
    let whole = parts.into_iter().flatten();
    key.iter_mut().zip(whole).for_each(|(to, from)| *to = *from);
    (key, u8::try_from(segment.client.len()).unwrap_or(0))
}

/// A record mark, then a message that is wanted.
fn begins_a_message(payload: &[u8], sink: &impl Sink) -> bool {
    let Some((mark, message)) = payload.split_first_chunk::<4>() else { return false };
    let is_plausible = (24..8 << 20).contains(&(u32::from_be_bytes(*mark) & 0x7fff_ffff));
    is_plausible && sink.wanted(message).is_some()
}

impl Stream {
    /// Takes bytes that begin at or before the next one.
    fn take(&mut self, sequence: u32, (payload, missing): (&[u8], usize), sink: &mut impl Sink) {
        let Some(next) = self.next else { return };
        let known = usize::try_from(next.wrapping_sub(sequence)).unwrap_or(usize::MAX);
        let new = payload.get(known..).unwrap_or_default();
        if !new.is_empty() {
            self.records.take(new, sink);
        }
        // Of what is missing, too, some may be known: from a copy that was captured as a whole.
        let hole = missing.saturating_sub(known.saturating_sub(payload.len()));
        let end = next.wrapping_add(u32::try_from(new.len() + hole).unwrap_or(0));
        self.next = (hole == 0 || self.records.hole(hole, sink)).then_some(end);
        if self.next.is_none() {
            self.records = Records::default();
        }
    }

    fn take_waiting(&mut self, sink: &mut impl Sink) {
        while let Some(next) = self.next {
            let due = |(sequence, ..): &(u32, Vec<u8>, usize)| sequence.wrapping_sub(next).cast_signed() <= 0;
            let Some(at) = self.waiting.iter().position(due) else { return };
            let (sequence, payload, missing) = self.waiting.swap_remove(at);
            self.take(sequence, (&payload, missing), sink);
        }
    }

    /// Keeps bytes that came early. Where too many wait, what they wait for is lost: the stream is entered anew.
    fn wait(&mut self, sequence: u32, (payload, missing): (&[u8], usize), sink: &mut impl Sink) {
        let bytes: usize = self.waiting.iter().map(|(_, payload, _)| payload.len()).sum();
        if self.waiting.len() < WAITING_MAX && bytes + payload.len() <= WAITING_BYTES_MAX {
            self.waiting.push((sequence, payload.to_vec(), missing));
            return;
        }
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.push((sequence, payload.to_vec(), missing));
        waiting.sort_by_key(|(sequence, ..)| sequence.wrapping_sub(self.next.unwrap_or(0)));
        *self = Self::default();
        for (sequence, payload, missing) in waiting {
            if self.next.is_none() && begins_a_message(&payload, sink) {
                self.next = Some(sequence);
            }
            if self.next.is_some_and(|next| sequence.wrapping_sub(next).cast_signed() <= 0) {
                self.take(sequence, (&payload, missing), sink);
            } else if self.next.is_some() && self.waiting.len() < WAITING_MAX {
                self.waiting.push((sequence, payload, missing));
            }
        }
    }
}

/// Records of a stream (RFC 5531 section 11).
#[derive(Default)]
struct Records {
    /// The mark of a fragment, as far as it has come.
    mark: Vec<u8>,
    /// Bytes that are left of the fragment.
    left: usize,
    /// Whether the fragment is the last of its record.
    last: bool,
    /// The beginning of the record.
    head: Vec<u8>,
    /// How much of it is wanted, once that is known.
    wanted: Option<usize>,
}

impl Records {
    fn take(&mut self, mut bytes: &[u8], sink: &mut impl Sink) {
        while !bytes.is_empty() {
            if self.left == 0 {
                let (part, rest) = bytes.split_at((4 - self.mark.len()).min(bytes.len()));
                self.mark.extend_from_slice(part);
                bytes = rest;
                if let [a, b, c, d] = self.mark[..] {
                    let mark = u32::from_be_bytes([a, b, c, d]);
                    self.mark.clear();
                    self.last = mark >> 31 == 1;
                    self.left = usize::try_from(mark & 0x7fff_ffff).unwrap_or(0);
                    self.end_of_fragment(sink);
                }
                continue;
            }
            // What is wanted is asked when there is enough to tell it by.
            let at_once = if self.wanted.is_some() { usize::MAX } else { BEGIN_BYTES - self.head.len() };
            let (part, rest) = bytes.split_at(self.left.min(bytes.len()).min(at_once));
            let room = self.wanted.unwrap_or(BEGIN_BYTES).saturating_sub(self.head.len());
            self.head.extend_from_slice(&part[..part.len().min(room)]);
            self.left -= part.len();
            bytes = rest;
            if self.wanted.is_none() && self.head.len() >= BEGIN_BYTES {
                self.wanted = Some(sink.wanted(&self.head).unwrap_or(HEAD_BYTES).max(BEGIN_BYTES));
            }
            self.end_of_fragment(sink);
        }
    }

    /// Passes over bytes that are missing; whether it is known where the next record begins. What is missing of the head of a
    /// record is not made up for by what comes later of it.
    fn hole(&mut self, bytes: usize, sink: &mut impl Sink) -> bool {
        let reaches = self.mark.is_empty() && bytes <= self.left;
        self.left = self.left.saturating_sub(bytes);
        self.wanted = Some(self.head.len());
        self.end_of_fragment(sink);
        reaches
    }

    fn end_of_fragment(&mut self, sink: &mut impl Sink) {
        if self.left == 0 && self.last {
            if !self.head.is_empty() {
                sink.message(&self.head);
            }
            self.head.clear();
            self.wanted = None;
        }
    }
}
