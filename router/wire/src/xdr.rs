//! External data representation (RFC 4506): a bounds-checked cursor over bytes, and writers that append.

use std::ops::Range;

/// Where a field lies: a range of bytes counted from the first byte of the message.
pub type Span = Range<usize>;

/// Why bytes are not what the protocol says they should be. All positions are offsets from the message's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum XdrError {
    /// The message ends inside of a field.
    #[error("the message ends too early: {wanted} bytes wanted at byte {at}, {left} left")]
    Truncated {
        /// Where the field begins.
        at: usize,
        /// Bytes that the field needs.
        wanted: usize,
        /// Bytes that the message still has.
        left: usize,
    },
    /// A byte string, name or handle is shorter or longer than the protocol allows.
    #[error("a length of {length} at byte {at} is outside of the allowed {length_min} to {length_max}")]
    Length {
        /// Where the length word lies.
        at: usize,
        /// The length that it claims, in bytes.
        length: u32,
        /// Smallest length allowed, in bytes.
        length_min: u32,
        /// Largest length allowed, in bytes.
        length_max: u32,
    },
    /// A discriminant (a boolean or an enumeration) has a value that does not exist.
    #[error("the value {value} at byte {at} is none of the protocol's (0 to {value_max})")]
    Value {
        /// Where the word lies.
        at: usize,
        /// What it says.
        value: u32,
        /// The largest value that exists.
        value_max: u32,
    },
}

/// The big-endian word at byte `at`, or `None` when the message ends before.
#[inline]
#[must_use]
pub fn u32_at(message: &[u8], at: usize) -> Option<u32> {
    message.get(at..)?.first_chunk::<4>().map(|word| u32::from_be_bytes(*word))
}

/// The big-endian double word at byte `at`, or `None` when the message ends before.
#[inline]
#[must_use]
pub fn u64_at(message: &[u8], at: usize) -> Option<u64> {
    message.get(at..)?.first_chunk::<8>().map(|word| u64::from_be_bytes(*word))
}

/// Overwrites the word at byte `at`; `false` (and nothing written) when the message ends before.
#[inline]
pub fn set_u32_at(message: &mut [u8], at: usize, value: u32) -> bool {
    match message.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<4>()) {
        Some(word) => {
            *word = value.to_be_bytes();
            true
        }
        None => false,
    }
}

/// Overwrites the double word (an offset, a cookie, a verifier) at byte `at`; `false` when the message ends before.
#[inline]
pub fn set_u64_at(message: &mut [u8], at: usize, value: u64) -> bool {
    match message.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<8>()) {
        Some(word) => {
            *word = value.to_be_bytes();
            true
        }
        None => false,
    }
}

/// A cursor over the bytes of one message. A failed read leaves the position where it was.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    message: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// A cursor at byte `at` of `message`; a position past the end reads nothing and is no panic.
    #[inline]
    #[must_use]
    pub fn new(message: &'a [u8], at: usize) -> Self {
        Self { message, at }
    }

    /// The offset of the next unread byte.
    #[inline]
    #[must_use]
    pub fn at(&self) -> usize {
        self.at
    }

    /// Bytes left to read.
    #[inline]
    #[must_use]
    pub fn left(&self) -> usize {
        self.message.len().saturating_sub(self.at)
    }

    /// The bytes of a span that this reader (or one of the same message) has returned; empty if out of bounds.
    #[inline]
    #[must_use]
    pub fn bytes(&self, span: Span) -> &'a [u8] {
        self.message.get(span).unwrap_or_default()
    }

    #[cold]
    fn truncated(&self, wanted: usize) -> XdrError {
        XdrError::Truncated { at: self.at, wanted, left: self.left() }
    }

    /// Steps over `count` bytes of fixed size (no padding is added).
    #[inline]
    pub fn skip(&mut self, count: usize) -> Result<Span, XdrError> {
        if self.left() < count {
            return Err(self.truncated(count));
        }
        let begin = self.at;
        self.at += count;
        Ok(begin..self.at)
    }

    /// One unsigned word.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, XdrError> {
        let value = u32_at(self.message, self.at).ok_or_else(|| self.truncated(4))?;
        self.at += 4;
        Ok(value)
    }

    /// One unsigned double word ("hyper").
    #[inline]
    pub fn u64(&mut self) -> Result<u64, XdrError> {
        let value = u64_at(self.message, self.at).ok_or_else(|| self.truncated(8))?;
        self.at += 8;
        Ok(value)
    }

    /// An enumeration with the values 0 to `value_max`.
    #[inline]
    pub fn choice(&mut self, value_max: u32) -> Result<u32, XdrError> {
        let at = self.at;
        let value = self.u32()?;
        if value > value_max {
            self.at = at;
            return Err(XdrError::Value { at, value, value_max });
        }
        Ok(value)
    }

    /// A boolean: 0 or 1 and nothing else (RFC 4506 section 4.4).
    #[inline]
    pub fn bool(&mut self) -> Result<bool, XdrError> {
        Ok(self.choice(1)? == 1)
    }

    /// A byte string of `length_min` to `length_max` bytes: its length word and its padding are stepped over, the
    /// span covers the bytes alone. Padding must be there, its value is not looked at.
    #[inline]
    pub fn opaque(&mut self, length_min: u32, length_max: u32) -> Result<Span, XdrError> {
        let at = self.at;
        let length = self.u32()?;
        if length < length_min || length > length_max {
            self.at = at;
            return Err(XdrError::Length { at, length, length_min, length_max });
        }
        // A `u32` fits any `usize` this crate is built for; if it did not, the message could not be that long.
        let length = usize::try_from(length).unwrap_or(usize::MAX - 3);
        let padded = padded(length);
        if self.left() < padded {
            let error = self.truncated(padded);
            self.at = at;
            return Err(error);
        }
        let begin = self.at;
        self.at += padded;
        Ok(begin..begin + length)
    }
}

/// `length` rounded up to whole words.
#[inline]
const fn padded(length: usize) -> usize {
    length.saturating_add(3) & !3
}

/// Appends one word.
#[inline]
pub fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// Appends one double word.
#[inline]
pub fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// Appends a boolean.
#[inline]
pub fn put_bool(out: &mut Vec<u8>, value: bool) {
    put_u32(out, u32::from(value));
}

/// Appends a byte string: length word, bytes, zero padding. XDR has no way to say more than `u32::MAX` bytes:
/// what is longer is cut there.
#[inline]
pub fn put_opaque(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let bytes = &bytes[..bytes.len().min(usize::try_from(length).unwrap_or(usize::MAX))];
    put_u32(out, length);
    out.extend_from_slice(bytes);
    out.extend_from_slice(&[0; 3][..padded(bytes.len()) - bytes.len()]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opaque_of_every_length_is_padded_to_words_and_read_back() {
        for length in 0..=9 {
            let bytes: Vec<u8> = (1..=length).collect();
            let mut out = Vec::new();
            put_opaque(&mut out, &bytes);
            put_u32(&mut out, 77);
            assert_eq!(out.len() % 4, 0);
            let mut reader = Reader::new(&out, 0);
            let span = reader.opaque(0, 9).unwrap();
            assert_eq!(reader.bytes(span), bytes);
            assert_eq!(reader.u32(), Ok(77));
            assert_eq!(reader.left(), 0);
        }
    }

    #[test]
    fn a_failed_read_says_where_and_moves_nothing() {
        let message = [0, 0, 0, 5, b'a', b'b', b'c', b'd', b'e', 0, 0];
        let mut reader = Reader::new(&message, 0);
        assert_eq!(reader.opaque(0, 64), Err(XdrError::Truncated { at: 4, wanted: 8, left: 7 }));
        assert_eq!(
            reader.opaque(0, 4),
            Err(XdrError::Length { at: 0, length: 5, length_min: 0, length_max: 4 })
        );
        assert_eq!(reader.bool(), Err(XdrError::Value { at: 0, value: 5, value_max: 1 }));
        assert_eq!(reader.skip(12), Err(XdrError::Truncated { at: 0, wanted: 12, left: 11 }));
        assert_eq!(reader.at(), 0);
        assert_eq!(reader.u32(), Ok(5));
        assert_eq!(reader.u64(), Err(XdrError::Truncated { at: 4, wanted: 8, left: 7 }));
    }

    #[test]
    fn positions_past_the_end_read_nothing() {
        let mut message = [0; 8];
        for at in [5, 8, 9, usize::MAX - 2, usize::MAX] {
            assert_eq!(u32_at(&message, at), None);
            assert_eq!(u64_at(&message, at), None);
            assert!(!set_u32_at(&mut message, at, 1));
            assert!(!set_u64_at(&mut message, at, 1));
            assert!(Reader::new(&message, at).u32().is_err());
            assert!(Reader::new(&message, at).opaque(0, u32::MAX).is_err());
            assert!(Reader::new(&message, at).skip(usize::MAX).is_err());
        }
        assert!(set_u64_at(&mut message, 0, 0x0102_0304_0506_0708));
        assert!(set_u32_at(&mut message, 4, 9));
        assert_eq!(message, [1, 2, 3, 4, 0, 0, 0, 9]);
    }
}
