//! Lines of a stream, in one buffer that does not grow.

use std::io::{self, ErrorKind, Read};

/// Bytes read at a time.
const CHUNK: usize = 256 << 10;
/// What some editors begin UTF-8 with.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Splits a stream into lines of at most `line_bytes_max`; what is longer is passed over without being kept.
pub(super) struct Lines<R> {
    input: R,
    buffer: Vec<u8>,
    /// What is read and not yet given out lies from `start` to `end`.
    start: usize,
    end: usize,
    line_bytes_max: usize,
    /// The line is too long: what there is of it is dropped until it ends.
    dropping: bool,
    finished: bool,
    /// Why no more can be read, once what came before is given out.
    failed: Option<io::Error>,
    /// Bytes read.
    pub(super) bytes: u64,
}

/// A line, without its end.
pub(super) enum RawLine<'a> {
    Whole(&'a [u8]),
    TooLong,
}

impl<R: Read> Lines<R> {
    pub(super) fn new(input: R, line_bytes_max: usize) -> Self {
        let buffer = vec![0; CHUNK + line_bytes_max];
        Self {
            input,
            buffer,
            start: 0,
            end: 0,
            line_bytes_max,
            dropping: false,
            finished: false,
            failed: None,
            bytes: 0,
        }
    }

    /// Reads until `bytes` are there or the stream ends or fails, and shows what is there without taking it. A byte order mark
    /// at the beginning is passed over.
    pub(super) fn peek(&mut self, bytes: usize) -> io::Result<&[u8]> {
        while self.end - self.start < bytes.min(CHUNK) && !self.finished && self.failed.is_none() {
            if let Err(error) = self.fill() {
                // What came before is to be read first, so that it is known where the stream fails.
                if self.start == self.end {
                    return Err(error);
                }
                self.failed = Some(error);
            }
        }
        if self.start == 0 && self.buffer.get(..self.end).is_some_and(|all| all.starts_with(BYTE_ORDER_MARK))
        {
            self.start = BYTE_ORDER_MARK.len();
        }
        Ok(self.buffer.get(self.start..self.end).unwrap_or_default())
    }

    /// What is left of the stream, as bytes.
    pub(super) fn into_rest(mut self) -> impl Read {
        self.buffer.truncate(self.end);
        self.buffer.drain(..self.start);
        io::Cursor::new(self.buffer).chain(Failed(self.failed)).chain(self.input)
    }

    /// The next line; an end of `\n` or `\r\n` is taken off, a lone `\r` is a byte like others.
    pub(super) fn next(&mut self) -> io::Result<Option<RawLine<'_>>> {
        // Bytes of the line that have been searched already.
        let mut searched = 0;
        loop {
            let unsearched = self.buffer.get(self.start + searched..self.end).unwrap_or_default();
            if let Some(more) = memchr::memchr(b'\n', unsearched) {
                let (begin, end) = (self.start, self.start + searched + more);
                self.start = end + 1;
                return Ok(Some(self.given(begin, end)));
            }
            searched = self.end - self.start;
            if self.dropping || searched > self.line_bytes_max {
                self.dropping = true;
                self.start = self.end;
                searched = 0;
            }
            if self.finished {
                if searched == 0 && !self.dropping {
                    return Ok(None);
                }
                let (begin, end) = (self.start, self.end);
                self.start = end;
                return Ok(Some(self.given(begin, end)));
            }
            self.fill()?;
        }
    }

    fn given(&mut self, begin: usize, end: usize) -> RawLine<'_> {
        let line = self.buffer.get(begin..end).unwrap_or_default();
        if std::mem::take(&mut self.dropping) || line.len() > self.line_bytes_max {
            return RawLine::TooLong;
        }
        RawLine::Whole(line.strip_suffix(b"\r").unwrap_or(line))
    }

    /// Reads more behind what is there, moving that to the front if there is no room.
    fn fill(&mut self) -> io::Result<()> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.buffer.len() - self.end < CHUNK {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let until = (self.end + CHUNK).min(self.buffer.len());
        loop {
            match self.input.read(self.buffer.get_mut(self.end..until).unwrap_or_default()) {
                Ok(read) => {
                    self.finished = read == 0;
                    self.end += read;
                    self.bytes += read as u64;
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Fails once, if there is a reason, and has no bytes.
struct Failed(Option<io::Error>);

impl Read for Failed {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Gives out at most `step` bytes at a time.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let step = self.1.min(buffer.len());
            self.0.read(&mut buffer[..step])
        }
    }

    fn lines(bytes: &[u8], step: usize, max: usize) -> Vec<Option<Vec<u8>>> {
        let mut lines = Lines::new(Slow(bytes, step), max);
        let mut all = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            all.push(match line {
                RawLine::Whole(line) => Some(line.to_vec()),
                RawLine::TooLong => None,
            });
        }
        assert_eq!(lines.bytes, bytes.len() as u64);
        all
    }

    #[test]
    fn lines_end_in_lf_or_crlf_and_the_last_may_lack_it() {
        let some = |text: &str| Some(text.as_bytes().to_vec());
        assert_eq!(lines(b"a\r\n\nb\rc\nlast", 1, 10), [some("a"), some(""), some("b\rc"), some("last")]);
        assert_eq!(lines(b"", 1, 10), []);
        assert_eq!(
            lines(b"0123456789\n0123456789a\nb\n0123456789a", 3, 10),
            [some("0123456789"), None, some("b"), None]
        );
    }

    #[test]
    fn a14_a_line_of_10_mb_is_one_bad_line_and_takes_no_memory() {
        let mut bytes = vec![b'x'; 10 << 20];
        bytes.extend(b"\nnext\n");
        let mut lines = Lines::new(&bytes[..], 1 << 20);
        assert!(matches!(lines.next().unwrap(), Some(RawLine::TooLong)));
        assert!(matches!(lines.next().unwrap(), Some(RawLine::Whole(b"next"))));
        assert!(lines.buffer.len() <= (1 << 20) + CHUNK);
    }

    #[test]
    fn what_comes_before_a_failure_is_given_out_first() {
        let broken = || Slow(b"\xef\xbb\xbfa\nb", 1).chain(Failed(Some(io::Error::other("broken"))));
        let mut lines = Lines::new(broken(), 100);
        assert_eq!(lines.peek(100).unwrap(), b"a\nb");
        assert!(matches!(lines.next().unwrap(), Some(RawLine::Whole(b"a"))));
        assert_eq!(lines.next().err().unwrap().to_string(), "broken");
        let mut lines = Lines::new(broken(), 100);
        lines.peek(100).unwrap();
        let mut rest = Vec::new();
        assert!(lines.into_rest().read_to_end(&mut rest).is_err());
        assert_eq!(rest, b"a\nb");
        assert!(Lines::new(Failed(Some(io::Error::other("broken"))), 100).peek(1).is_err());
    }

    proptest! {
        #[test]
        fn however_the_bytes_come_the_lines_are_the_same(
            bytes in prop::collection::vec(prop::sample::select(b"\n\rab".to_vec()), 0..100), step in 1usize..20, max in 1usize..30,
        ) {
            let mut wanted: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
            if wanted.last() == Some(&&b""[..]) {
                wanted.pop();
            }
            let wanted: Vec<Option<Vec<u8>>> = wanted
                .into_iter()
                .map(|line| (line.len() <= max).then(|| line.strip_suffix(b"\r").unwrap_or(line).to_vec()))
                .collect();
            prop_assert_eq!(lines(&bytes, step, max), wanted);
        }
    }
}
