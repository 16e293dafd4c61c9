//! Record marking: how RPC messages are cut out of a TCP stream (RFC 5531 section 11).
//!
//! A record is a chain of fragments, each behind a word with its length and, in the top bit, whether it is the
//! last. Nearly all peers send one fragment a record; any other split is joined in place, so that what the reader
//! hands on always looks like one fragment.

use crate::xdr::u32_at;

/// The bit of a mark that says "this fragment ends the record".
pub const LAST_FRAGMENT: u32 = 0x8000_0000;

/// Bytes of a record mark.
const MARK_BYTES: usize = 4;

/// The mark of a record of `len` bytes in a single fragment. The format ends at 2 GiB - 1; what is longer gets
/// that length, so senders must hold to a `record_bytes_max` well below.
#[inline]
#[must_use]
pub fn mark(len: usize) -> [u8; 4] {
    let length = u32::try_from(len).unwrap_or(u32::MAX).min(!LAST_FRAGMENT);
    (LAST_FRAGMENT | length).to_be_bytes()
}

/// What a peer may make the router hold for one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordLimits {
    /// Bytes of a record, all fragments together, marks not counted. A record over it is an error as soon as the
    /// mark that says so is seen.
    pub record_bytes_max: u32,
    /// Fragments of a record, empty ones counted too. A record over it is an error.
    pub fragments_max: u32,
}

impl Default for RecordLimits {
    /// A transfer of 1 MiB with 64 KiB for all that stands around it, and 1024 fragments.
    fn default() -> Self {
        Self { record_bytes_max: (1 << 20) + (64 << 10), fragments_max: 1024 }
    }
}

/// Why a stream cannot be cut into records any more. Framing is lost: the connection has to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// A mark announces more than `record_bytes_max`; mostly the peer speaks another protocol.
    #[error(
        "record mark {mark:#010x} ({}) makes the record longer than record_bytes_max = {record_bytes_max}; \
         close the connection: the peer does not speak RPC here, or the limit is too low for it",
        printable(*.mark)
    )]
    TooLong {
        /// The mark as it came.
        mark: u32,
        /// The limit that it breaks, in bytes.
        record_bytes_max: u32,
    },
    /// The record goes on after `fragments_max` fragments.
    #[error(
        "a record of more than fragments_max = {fragments_max} fragments; close the connection: no known client \
         or server cuts records as small"
    )]
    TooManyFragments {
        /// The limit that it breaks, in fragments.
        fragments_max: u32,
    },
}

/// The bytes of a mark as a person would recognise them: `"GET "`, `"\x13Bit"`.
fn printable(mark: u32) -> String {
    format!("\"{}\"", mark.to_be_bytes().escape_ascii())
}

/// What [`RecordReader::next`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// `buf[0..4]` is the mark of a single fragment, `buf[4..end]` the whole message, and the record took
    /// `consumed >= end` bytes of `buf` on the wire: go on with `buf[consumed..]`.
    Record {
        /// Where the message ends in `buf`.
        end: usize,
        /// Where the next record begins in `buf`.
        consumed: usize,
    },
    /// The record is not complete. Keep the bytes as they are now and call again with more behind them.
    Partial {
        /// How long `buf` has to be, in bytes, before a call can get any further.
        wanted: usize,
    },
}

/// Cuts one connection's stream into records. It keeps its place within a record that is still arriving, so
/// that every byte is looked at (and moved) at most once however the record is split.
#[derive(Clone, Debug)]
pub struct RecordReader {
    limits: RecordLimits,
    /// Bytes of the record joined so far: `buf[4..4 + joined]`.
    joined: usize,
    /// Where in `buf` the next mark begins.
    next_mark: usize,
    /// Fragments of the record joined so far.
    fragments: u32,
}

impl RecordReader {
    /// A reader at the beginning of a stream.
    #[must_use]
    pub fn new(limits: RecordLimits) -> Self {
        Self { limits, joined: 0, next_mark: 0, fragments: 0 }
    }

    /// Looks for the record at the front of `buf`, all unconsumed bytes of the connection, which begins at the
    /// record's first mark.
    ///
    /// # Errors
    /// See [`RecordError`]; a call after an error gives the same error.
    #[inline]
    pub fn next(&mut self, buf: &mut [u8]) -> Result<Progress, RecordError> {
        // Nearly all come in one fragment, which leaves no trace here.
        if self.next_mark == 0 {
            let Some(mark) = u32_at(buf, 0) else { return Ok(Progress::Partial { wanted: MARK_BYTES }) };
            if mark & LAST_FRAGMENT != 0 {
                let end = MARK_BYTES + self.admit(mark)?;
                let partial = Progress::Partial { wanted: end };
                return Ok(if buf.len() < end { partial } else { Progress::Record { end, consumed: end } });
            }
        }
        self.next_fragments(buf)
    }

    fn next_fragments(&mut self, buf: &mut [u8]) -> Result<Progress, RecordError> {
        loop {
            let body = self.next_mark + MARK_BYTES;
            let Some(mark) = u32_at(buf, self.next_mark) else {
                return Ok(Progress::Partial { wanted: body });
            };
            let length = self.admit(mark)?;
            let end = body + length;
            if buf.len() < end {
                return Ok(Progress::Partial { wanted: end });
            }
            if self.next_mark != 0 {
                buf.copy_within(body..end, MARK_BYTES + self.joined);
            }
            self.joined += length;
            self.next_mark = end;
            self.fragments += 1;
            if mark & LAST_FRAGMENT != 0 {
                return Ok(self.finish(buf));
            }
        }
    }

    /// Checks a mark against the limits and gives its fragment's length.
    #[inline]
    fn admit(&self, mark: u32) -> Result<usize, RecordError> {
        let RecordLimits { record_bytes_max, fragments_max } = self.limits;
        let length = usize::try_from(mark & !LAST_FRAGMENT).unwrap_or(usize::MAX);
        let record_bytes = u32::try_from(self.joined.saturating_add(length)).unwrap_or(u32::MAX);
        if record_bytes > record_bytes_max {
            return Err(RecordError::TooLong { mark, record_bytes_max });
        }
        if self.fragments >= fragments_max {
            return Err(RecordError::TooManyFragments { fragments_max });
        }
        Ok(length)
    }

    /// Writes the joined record's mark and starts afresh behind the record.
    #[inline]
    fn finish(&mut self, buf: &mut [u8]) -> Progress {
        if let Some(first) = buf.first_chunk_mut::<MARK_BYTES>() {
            *first = mark(self.joined);
        }
        let progress = Progress::Record { end: MARK_BYTES + self.joined, consumed: self.next_mark };
        *self = Self::new(self.limits);
        progress
    }
}
