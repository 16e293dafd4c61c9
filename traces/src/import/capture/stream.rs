//! TCP streams of a capture, as far as it takes to find the calls in them.
//!
//! Of every record only the first [`HEAD_BYTES`] are kept. A stream is followed from its SYN, or from a segment that begins
//! with a record mark and an NFS call. A segment that comes early waits; where one is missing, the stream is left until it can be
//! entered again in the same way.

use super::packet::Segment;
use hashbrown::HashMap;

/// Bytes kept of a record: header with the longest credential, and the first arguments.
const HEAD_BYTES: usize = 1_024;
/// Streams followed at once; beyond that all are forgotten and entered anew.
const STREAMS_MAX: usize = 8_192;
/// Segments of a stream that wait for one before them, and their bytes.
const WAITING_MAX: usize = 32;
const WAITING_BYTES_MAX: usize = 256 << 10;

/// Addresses and ports of a stream.
type Key = ([u8; 36], u8);

/// Streams by addresses and ports.
#[derive(Default)]
pub(super) struct Streams {
    streams: HashMap<Key, Stream>,
}

#[derive(Default)]
struct Stream {
    /// Sequence number of the next byte; none until the stream is entered.
    next: Option<u32>,
    /// Segments that came early.
    waiting: Vec<(u32, Vec<u8>)>,
    records: Records,
}

impl Streams {
    /// Takes a segment and shows the head of every record that has come far enough.
    pub(super) fn segment(
        &mut self,
        segment: &Segment<'_>,
        sequence: u32,
        begins: bool,
        show: &mut impl FnMut(&[u8]),
    ) {
        if self.streams.len() >= STREAMS_MAX {
            self.streams.clear();
        }
        let stream = self.streams.entry(key(segment)).or_default();
        if begins {
            *stream = Stream { next: Some(sequence.wrapping_add(1)), ..Stream::default() };
            return;
        }
        if segment.payload.is_empty() {
            return;
        }
        if stream.next.is_none() && begins_a_call(segment.payload) {
            *stream = Stream { next: Some(sequence), ..Stream::default() };
        }
        let Some(next) = stream.next else { return };
        if sequence.wrapping_sub(next).cast_signed() > 0 {
            stream.wait(sequence, segment.payload, show);
        } else {
            stream.take(sequence, segment.payload, show);
            stream.take_waiting(show);
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

/// A record mark, then a call (0) by RPC version 2 to program 100003.
fn begins_a_call(payload: &[u8]) -> bool {
    let word = |at: usize| {
        payload.get(at..).and_then(|rest| rest.first_chunk::<4>()).map(|b| u32::from_be_bytes(*b))
    };
    let plausible = |mark: u32| (40..8 << 20).contains(&(mark & 0x7fff_ffff));
    word(0).is_some_and(plausible) && word(8) == Some(0) && word(12) == Some(2) && word(16) == Some(100_003)
}

impl Stream {
    /// Takes bytes that begin at or before the next one.
    fn take(&mut self, sequence: u32, payload: &[u8], show: &mut impl FnMut(&[u8])) {
        let Some(next) = self.next else { return };
        let known = usize::try_from(next.wrapping_sub(sequence)).unwrap_or(usize::MAX);
        if let Some(new) = payload.get(known..).filter(|new| !new.is_empty()) {
            self.next = Some(next.wrapping_add(u32::try_from(new.len()).unwrap_or(0)));
            self.records.take(new, show);
        }
    }

    fn take_waiting(&mut self, show: &mut impl FnMut(&[u8])) {
        while let Some(next) = self.next {
            let due = |(sequence, _): &(u32, Vec<u8>)| sequence.wrapping_sub(next).cast_signed() <= 0;
            let Some(at) = self.waiting.iter().position(due) else { return };
            let (sequence, payload) = self.waiting.swap_remove(at);
            self.take(sequence, &payload, show);
        }
    }

    /// Keeps bytes that came early. Where too many wait, what they wait for is lost: the stream is entered anew.
    fn wait(&mut self, sequence: u32, payload: &[u8], show: &mut impl FnMut(&[u8])) {
        let bytes: usize = self.waiting.iter().map(|(_, payload)| payload.len()).sum();
        if self.waiting.len() < WAITING_MAX && bytes + payload.len() <= WAITING_BYTES_MAX {
            self.waiting.push((sequence, payload.to_vec()));
            return;
        }
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.push((sequence, payload.to_vec()));
        waiting.sort_by_key(|(sequence, _)| sequence.wrapping_sub(self.next.unwrap_or(0)));
        *self = Self::default();
        for (sequence, payload) in waiting {
            if self.next.is_none() && begins_a_call(&payload) {
                self.next = Some(sequence);
            }
            if self.next.is_some_and(|next| sequence.wrapping_sub(next).cast_signed() <= 0) {
                self.take(sequence, &payload, show);
            } else if self.next.is_some() && self.waiting.len() < WAITING_MAX {
                self.waiting.push((sequence, payload));
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
}

impl Records {
    fn take(&mut self, mut bytes: &[u8], show: &mut impl FnMut(&[u8])) {
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
                    self.end_of_fragment(show);
                }
                continue;
            }
            let (part, rest) = bytes.split_at(self.left.min(bytes.len()));
            let room = HEAD_BYTES.saturating_sub(self.head.len());
            self.head.extend_from_slice(&part[..part.len().min(room)]);
            self.left -= part.len();
            bytes = rest;
            self.end_of_fragment(show);
        }
    }

    fn end_of_fragment(&mut self, show: &mut impl FnMut(&[u8])) {
        if self.left == 0 && self.last {
            if !self.head.is_empty() {
                show(&self.head);
            }
            self.head.clear();
        }
    }
}
