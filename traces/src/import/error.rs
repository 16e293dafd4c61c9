//! Why an import cannot be done.

use super::open::LogFormat;
use crate::trace_file::TraceFileError;
use std::io;

/// Why an import cannot be done. A bad line is no such reason: it is counted.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// An input cannot be read any further.
    #[error("{input}: cannot be read after line {line} (byte {byte} of the text): {cause}")]
    Read {
        /// Name of the input.
        input: String,
        /// Lines read before.
        line: u64,
        /// Bytes of text read before.
        byte: u64,
        /// What the system or the decompressor says.
        cause: io::Error,
    },
    /// Compressed data that ends before its end.
    #[error(
        "{input}: the compressed data is cut off after line {line} (byte {byte} of the text): copy it again, or decompress what \
         is there and import that"
    )]
    CutOff {
        /// Name of the input.
        input: String,
        /// Lines read before.
        line: u64,
        /// Bytes of text read before.
        byte: u64,
    },
    /// The form of a log cannot be told.
    #[error(
        "{input}: not a log of a known form; it begins with `{begins}`. Known are Common, Combined, W3C extended, JSON lines, two \
         CSV forms and packet captures; --format says which{hint}"
    )]
    Unknown {
        /// Name of the input.
        input: String,
        /// The beginning of it.
        begins: String,
        /// What may be wrong, if there is an idea.
        hint: &'static str,
    },
    /// A trace file, which is the result of an import.
    #[error("{input}: this is a trace already; `clockwork trace info` reads it, `--append` adds to it")]
    IsTrace {
        /// Name of the input.
        input: String,
    },
    /// Two logs of forms whose times cannot be compared are read into one trace, or a log has no requests that count.
    #[error("{input}: a {} needs --start, which says when its time 0 is, to be merged with other logs", format.name())]
    NeedsStart {
        /// Name of the input.
        input: String,
        /// Its form.
        format: LogFormat,
    },
    /// An option makes no sense.
    #[error("{0}")]
    Option(String),
    /// The trace cannot be written.
    #[error("the trace cannot be written: {0}")]
    Write(#[from] TraceFileError),
}

impl ImportError {
    pub(super) fn reading(input: &str, line: u64, byte: u64, cause: io::Error) -> Self {
        let input = input.to_owned();
        // What the decompressors say where a stream ends within a member or frame.
        let text = cause.to_string();
        if cause.kind() == io::ErrorKind::UnexpectedEof || text.contains("incomplete frame") {
            Self::CutOff { input, line, byte }
        } else {
            Self::Read { input, line, byte, cause }
        }
    }
}
