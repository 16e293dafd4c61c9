//! What an import came to.

use std::fmt;

/// Why a line was not counted. The first group are faults of the line, the second are sound lines that are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// Longer than `line_bytes_max`.
    TooLong,
    /// Nothing in it.
    Blank,
    /// Not of the form of the log: fields are missing or not where they should be.
    Form,
    /// The time is missing or none.
    Time,
    /// The time is so far from the others that it must be wrong (`periods_max`).
    FarTime,
    /// No request between the quotes, or `-`.
    NoRequest,
    /// The request is not a method and a URL.
    Request,
    /// The URL has no path, or one longer than a path may be.
    Path,
    /// The status is no number from 100 to 999.
    Status,
    /// A number is none.
    Number,
    /// A row with another number of columns than the header.
    Columns,
    /// A line that is not one JSON object.
    Json,
    /// The log's fields lack what is needed (W3C: `#Fields`).
    Fields,
    /// A packet in which headers are missing or wrong.
    Packet,
    /// A packet that is cut off, or something else where one should be: the capture is not read further.
    CutPacket,

    /// Left out: the status says that no file was sent.
    Refused,
    /// Left out: a method that asks for no file.
    Method,
    /// Left out: before `--start`, or behind `--periods`.
    Outside,
    /// Left out: a record that is no request, as in a log of several things.
    OtherRecord,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 19] = [
        Self::TooLong,
        Self::Blank,
        Self::Form,
        Self::Time,
        Self::FarTime,
        Self::NoRequest,
        Self::Request,
        Self::Path,
        Self::Status,
        Self::Number,
        Self::Columns,
        Self::Json,
        Self::Fields,
        Self::Packet,
        Self::CutPacket,
        Self::Refused,
        Self::Method,
        Self::Outside,
        Self::OtherRecord,
    ];

    /// Whether the line is bad; otherwise it is good, but left out.
    #[must_use]
    pub fn is_bad(self) -> bool {
        !matches!(self, Self::Refused | Self::Method | Self::Outside | Self::OtherRecord)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLong => "longer than a line may be",
            Self::Blank => "blank",
            Self::Form => "not of the log's form",
            Self::Time => "no time, or not one",
            Self::FarTime => "a time too far from the others",
            Self::NoRequest => "no request",
            Self::Request => "a request that is not a method and a URL",
            Self::Path => "a URL without a path, or with one that is too long",
            Self::Status => "no status",
            Self::Number => "not a number",
            Self::Columns => "another number of columns than the header",
            Self::Json => "not one JSON object",
            Self::Fields => "a field is missing that is needed",
            Self::Packet => "a packet without sound headers",
            Self::CutPacket => "a packet that is cut off, or no packet; the capture is not read further",
            Self::Refused => "answered with a status of 400 or more",
            Self::Method => "a method that asks for no file",
            Self::Outside => "outside of the span asked for",
            Self::OtherRecord => "not a request",
        })
    }
}

/// Lines that were not counted for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uncounted {
    /// Why.
    pub reason: Reason,
    /// How many.
    pub lines: u64,
    /// The first few: index of the input and number of the line there, from 1.
    pub first: Vec<(usize, u64)>,
}

/// How many line numbers are kept for a reason.
pub const FIRST_LINES_MAX: usize = 5;

/// What an import came to. `good_lines + bad_lines` is the number of all lines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Inputs in the order in which they were read: name and form.
    pub inputs: Vec<(String, &'static str)>,
    /// Inputs that had nothing in them.
    pub empty_inputs: Vec<String>,
    /// Bytes of text, after decompression.
    pub bytes: u64,
    /// Lines that are as they should be, counted or not, headers among them.
    pub good_lines: u64,
    /// Lines that are not.
    pub bad_lines: u64,
    /// Requests counted.
    pub requests: u64,
    /// How many of them wrote data.
    pub writes: u64,
    /// How many of them concerned metadata alone.
    pub metadata: u64,
    /// What was not counted, by reason.
    pub uncounted: Vec<Uncounted>,
    /// Files with a number of their own, in all.
    pub files: u64,
    /// Requests for files beyond `files_max`, which share one number.
    pub overflow_requests: u64,
    /// Clients told apart.
    pub clients: u64,
    /// Requests of clients beyond `clients_max`.
    pub overflow_client_requests: u64,
    /// Lines whose period lies before that of the line before: out of order.
    pub late_lines: u64,
    /// First period and how many there are.
    pub span: Option<(i64, u64)>,
    /// When the first period begins and the last one ends, in seconds since 1970 UTC.
    pub span_s: Option<(i64, i64)>,
    /// Periods in which there was no line at all.
    pub silent_periods: u64,
    /// Requests in each period of the span; `None` where it is missing.
    pub totals: Vec<Option<u64>>,
}

impl Summary {
    pub(super) fn left(&mut self, reason: Reason, input: usize, line: u64) {
        if reason.is_bad() {
            self.bad_lines += 1;
        } else {
            self.good_lines += 1;
        }
        let known = self.uncounted.iter().position(|uncounted| uncounted.reason == reason);
        let at = known.unwrap_or_else(|| {
            self.uncounted.push(Uncounted { reason, lines: 0, first: Vec::new() });
            self.uncounted.len() - 1
        });
        if let Some(uncounted) = self.uncounted.get_mut(at) {
            uncounted.lines += 1;
            if uncounted.first.len() < FIRST_LINES_MAX {
                uncounted.first.push((input, line));
            }
        }
    }

    /// All lines.
    #[must_use]
    pub fn lines(&self) -> u64 {
        self.good_lines + self.bad_lines
    }
}
