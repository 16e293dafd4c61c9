//! What a stream holds: compressed or not, and which form of log.

use super::{common, csv, json};
use crate::trace_file;
use flate2::bufread::GzDecoder;
use std::io::{self, BufRead, BufReader, Cursor, Read};

/// A form of log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LogFormat {
    /// Common Log Format, also with what the Combined one adds or with a virtual host in front.
    Common,
    /// W3C extended log, with `#Fields`.
    W3c,
    /// One JSON object a line, with the field names of nginx, Caddy or Traefik.
    Json,
    /// CSV with a row a request.
    Requests,
    /// CSV with a row a file and period.
    Counts,
    /// A packet capture of NFSv3: pcap or pcapng.
    Capture,
}

impl LogFormat {
    /// In words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Common => "Common or Combined Log Format",
            Self::W3c => "W3C extended log",
            Self::Json => "JSON lines",
            Self::Requests => "request CSV",
            Self::Counts => "count table",
            Self::Capture => "packet capture",
        }
    }
}

/// Bytes of decompressed text by which the form is told.
pub(super) const PREFIX_BYTES: usize = 64 << 10;
/// Memory that a zstd stream may ask for, as a power of two: 64 MiB.
const ZSTD_WINDOW_LOG_MAX: u32 = 26;

/// First byte of a gzip member.
const GZIP_BEGINS: u8 = 0x1f;

/// A stream of text, whatever it is packed in. Members or frames that follow each other are one text.
pub(super) fn unpacked<'a>(mut input: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut magic = [0; 4];
    let mut got = 0;
    while got < 4 {
        match input.read(&mut magic[got..]) {
            Ok(0) => break,
            Ok(read) => got += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let begin = Cursor::new(magic.get(..got).unwrap_or_default().to_vec());
    let whole = begin.chain(input);
    Ok(match magic {
        [0x1f, 0x8b, ..] => {
            Box::new(Members(Some(GzDecoder::new(BufReader::with_capacity(128 << 10, whole)))))
        }
        [0x28, 0xb5, 0x2f, 0xfd] => {
            let mut decoder = zstd::stream::read::Decoder::new(whole)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
            Box::new(decoder)
        }
        _ => Box::new(whole),
    })
}

/// Gzip members that follow each other, as one text. Zeros behind a member are padding, as of tapes.
struct Members<R>(Option<GzDecoder<R>>);

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.0 {
            let read = member.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            let Some(mut rest) = self.0.take().map(GzDecoder::into_inner) else { break };
            let next = loop {
                let bytes = rest.fill_buf()?;
                let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
                match bytes.get(zeros) {
                    Some(byte) => break Some(*byte),
                    None if bytes.is_empty() => break None,
                    None => rest.consume(zeros),
                }
            };
            match next {
                None => {}
                Some(GZIP_BEGINS) => {
                    let zeros = rest.fill_buf()?.iter().take_while(|byte| **byte == 0).count();
                    rest.consume(zeros);
                    self.0 = Some(GzDecoder::new(rest));
                }
                Some(_) => {
                    let what = "something that is not gzip follows the compressed data";
                    return Err(io::Error::new(io::ErrorKind::InvalidData, what));
                }
            }
        }
        Ok(0)
    }
}

/// What the first bytes of a text show it to be.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Detected {
    Empty,
    Log(LogFormat),
    /// A trace file, which is not imported but read.
    Trace,
    /// Nothing known.
    Unknown,
}

/// Tells the form of a log by its beginning.
pub(super) fn detect(prefix: &[u8]) -> Detected {
    if prefix.is_empty() {
        return Detected::Empty;
    }
    if prefix.starts_with(&trace_file::SIGNATURE) || prefix.starts_with(b"clockwork-trace ") {
        return Detected::Trace;
    }
    if is_capture(prefix) {
        return Detected::Log(LogFormat::Capture);
    }
    let lines = prefix.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    for (index, line) in lines.take(1_000).enumerate() {
        if [&b"#Fields:"[..], b"#Version:", b"#Software:", b"#Date:"].iter().any(|tag| line.starts_with(tag))
        {
            return Detected::Log(LogFormat::W3c);
        }
        if index == 0
            && let Some(format) = csv::header_format(line)
        {
            return Detected::Log(format);
        }
        if json::looks_right(line) {
            return Detected::Log(LogFormat::Json);
        }
        if common::looks_right(line) {
            return Detected::Log(LogFormat::Common);
        }
    }
    Detected::Unknown
}

fn is_capture(prefix: &[u8]) -> bool {
    const MAGICS: [[u8; 4]; 5] = [
        [0xa1, 0xb2, 0xc3, 0xd4],
        [0xd4, 0xc3, 0xb2, 0xa1],
        [0xa1, 0xb2, 0x3c, 0x4d],
        [0x4d, 0x3c, 0xb2, 0xa1],
        [0x0a, 0x0d, 0x0d, 0x0a],
    ];
    MAGICS.iter().any(|magic| prefix.starts_with(magic))
}
