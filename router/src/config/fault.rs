//! What was wrong in a configuration file, where, and what is allowed instead.
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::PathBuf;

use thiserror::Error;

/// Most characters of a line that are shown with a fault.
const EXCERPT_CHARS_MAX: usize = 160;

/// Why a configuration could not be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("{}: cannot read the configuration: {cause}", file.display())]
    Unreadable {
        /// The file as it was named.
        file: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// The file is longer than a configuration can sensibly be, so it is probably another file.
    #[error("{}: {found_bytes} bytes are too many for a configuration; at most {allowed_bytes} are read", file.display())]
    TooLong {
        /// The file as it was named.
        file: PathBuf,
        /// Its length.
        found_bytes: u64,
        /// `CONFIG_BYTES_MAX`.
        allowed_bytes: u64,
    },
    /// The file was read and is wrong in at least one place.
    #[error(transparent)]
    Faults(#[from] Faults),
}

/// All that is wrong in one file, in the order of its lines. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults {
    /// The file as it was named.
    pub file: PathBuf,
    /// What is wrong, first line first.
    pub faults: Vec<Fault>,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Line, counted from 1.
    pub line: usize,
    /// Column in characters, counted from 1.
    pub column: usize,
    /// Path of the field, for instance `store[fast].weight`; empty for faults of syntax.
    pub field: String,
    /// What is wrong with it.
    pub problem: Problem,
    /// The text of that line, or the part of a very long one around the column.
    pub source: String,
    /// Characters of `source` before the column.
    pub indent: usize,
    /// How many characters from there to underline, at least 1.
    pub width: usize,
}

/// What can be wrong with a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// The text is not TOML.
    Syntax {
        /// The parser's words.
        what: String,
    },
    /// No field of this name exists here.
    Unknown {
        /// The field that was probably meant.
        meant: Option<&'static str>,
        /// Every field that exists here.
        known: Vec<&'static str>,
    },
    /// The value has another type than the field.
    WrongType {
        /// The type that was found.
        found: &'static str,
        /// What is allowed.
        allowed: String,
    },
    /// The value has the right type but cannot be used.
    NotAllowed {
        /// The value that was found.
        found: String,
        /// What is allowed.
        allowed: String,
    },
    /// A field that has no default is not there.
    Missing {
        /// What is allowed.
        allowed: String,
    },
    /// The value is fine alone, but not beside another one.
    Conflict {
        /// What contradicts what.
        what: String,
        /// What to do about it.
        advice: String,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax { what } => write!(f, "not TOML: {what}"),
            Self::Unknown { meant: Some(meant), .. } => write!(f, "no such field; did you mean `{meant}`?"),
            Self::Unknown { meant: None, known } => {
                write!(f, "no such field; allowed: {}", known.join(", "))
            }
            Self::WrongType { found, allowed } => write!(f, "{found} is not allowed; allowed: {allowed}"),
            Self::NotAllowed { found, allowed } => write!(f, "{found} is not allowed; allowed: {allowed}"),
            Self::Missing { allowed } => write!(f, "missing; allowed: {allowed}"),
            Self::Conflict { what, advice } => write!(f, "{what}; {advice}"),
        }
    }
}

impl fmt::Display for Faults {
    /// `FILE:LINE:COLUMN: FIELD: PROBLEM`, then the line with the place underlined, for each fault.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.faults.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{}:{}:{}: ", self.file.display(), fault.line, fault.column)?;
            if !fault.field.is_empty() {
                write!(f, "{}: ", fault.field)?;
            }
            writeln!(f, "{}", fault.problem)?;
            let number = fault.line.to_string();
            let margin = " ".repeat(number.len());
            let indent = " ".repeat(fault.indent);
            writeln!(f, "{number} | {}", fault.source.replace('\t', " "))?;
            write!(f, "{margin} | {indent}{}", "^".repeat(fault.width))?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

/// Collects faults while a text is read, so that one run shows them all.
pub(super) struct Collector<'t> {
    text: &'t str,
    found: Vec<(usize, Fault)>,
}

impl<'t> Collector<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, found: Vec::new() }
    }

    /// Notes a fault at a range of bytes of the text.
    pub(super) fn add(&mut self, at: Range<usize>, field: impl Into<String>, problem: Problem) {
        let start = floor_char(self.text, at.start);
        let before = self.text.get(..start).unwrap_or("");
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let rest = self.text.get(line_start..).unwrap_or("");
        let whole = rest.lines().next().unwrap_or("");
        let column = self.text.get(line_start..start).unwrap_or("").chars().count() + 1;
        let end = floor_char(self.text, at.end.max(start).min(line_start + whole.len()));
        let skipped = column.saturating_sub(EXCERPT_CHARS_MAX / 2);
        let source = whole.chars().skip(skipped).take(EXCERPT_CHARS_MAX).collect();
        let indent = column - 1 - skipped;
        let marked = self.text.get(start..end).unwrap_or("").chars().count();
        let width = marked.clamp(1, EXCERPT_CHARS_MAX - indent);
        let line = before.matches('\n').count() + 1;
        let fault = Fault { line, column, field: field.into(), problem, source, indent, width };
        self.found.push((start, fault));
    }

    /// The line, counted from 1, on which a byte of the text lies.
    pub(super) fn line_of(&self, at: &Range<usize>) -> usize {
        let start = floor_char(self.text, at.start);
        self.text.get(..start).unwrap_or("").matches('\n').count() + 1
    }

    /// All faults in the order of the text.
    pub(super) fn into_faults(mut self) -> Vec<Fault> {
        self.found.sort_by_key(|(start, _)| *start);
        self.found.into_iter().map(|(_, fault)| fault).collect()
    }
}

/// The last character boundary at or before `at`.
fn floor_char(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}
