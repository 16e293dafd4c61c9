//! Logs in, a trace out.
//!
//! An [`Importer`] reads logs one after the other, as bytes, and writes a [trace file](crate::trace_file): requests for each
//! file in each period. Counts add up, so the order of logs and of lines does not matter, and what is kept in memory does not
//! depend on how much is read:
//!
//! | limit | default | at the limit |
//! |---|---|---|
//! | `files_max` | 1,000,000 files | requests for further ones are counted together, under [`OTHER_FILES`] |
//! | `path_bytes_max` | 64 MiB of paths | the same |
//! | `clients_max` | 100,000 clients | further ones are counted together, as client 0 |
//! | `open_counts_max` | 400,000 counts (a file in a period) | they are written out, and go on in further blocks |
//! | `line_bytes_max` | 1 MiB | a longer line is bad; it is passed over, not kept |
//! | `periods_max` | 1,000,000 periods | a line that would make the trace longer is bad |
//!
//! [`Summary`] says what became of every line.

mod capture;
mod common;
mod counts;
mod csv;
mod error;
mod json;
mod lines;
mod names;
mod open;
mod request;
mod summary;
mod tally;
pub mod time;
mod w3c;
mod write;
mod zone;

pub use error::ImportError;
pub use open::LogFormat;
pub use summary::{FIRST_LINES_MAX, Reason, Summary, Uncounted};
pub use tally::OTHER_FILES;
pub use write::Importer;
pub use zone::Zone;

/// How logs become a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportOptions {
    /// Name of the site, below which a replay makes its files.
    pub name: String,
    /// Length of a period, in seconds.
    pub period_s: u32,
    /// When period 0 begins, in seconds since 1970 UTC; requests before it are left out. Without it, periods begin at
    /// multiples of their length since 1970 UTC.
    pub start_s: Option<i64>,
    /// How many periods there are from the start on; requests behind them are left out. Without it, the trace goes from the
    /// first period with a line to the last.
    pub periods: Option<u64>,
    /// The form of the logs; without it each is told by its content.
    pub format: Option<LogFormat>,
    /// The zone of times that have none.
    pub zone: Zone,
    /// Count requests of access logs also where the status says that no file was sent (400 and above).
    pub all_statuses: bool,
    /// A POST reads the file that it is for, as a script is read; otherwise it writes it.
    pub post_reads: bool,
    /// A period without any line had no requests; otherwise it is missing.
    pub silent_is_zero: bool,
    /// Keep the addresses of clients; otherwise they are numbers.
    pub keep_addresses: bool,
    /// Most files with a number of their own.
    pub files_max: usize,
    /// Most bytes of their paths together.
    pub path_bytes_max: usize,
    /// Most clients that are told apart.
    pub clients_max: usize,
    /// Most counts (a file in a period) that wait for being written.
    pub open_counts_max: usize,
    /// Longest line, in bytes.
    pub line_bytes_max: usize,
    /// Most periods from the first to the last one.
    pub periods_max: u64,
}

impl Default for ImportOptions {
    fn default() -> Self {
        Self {
            name: "site".into(),
            period_s: 3_600,
            start_s: None,
            periods: None,
            format: None,
            zone: Zone::default(),
            all_statuses: false,
            post_reads: false,
            silent_is_zero: false,
            keep_addresses: false,
            files_max: 1_000_000,
            path_bytes_max: 64 << 20,
            clients_max: 100_000,
            open_counts_max: 400_000,
            line_bytes_max: 1 << 20,
            periods_max: 1_000_000,
        }
    }
}

#[cfg(test)]
mod mutations;
#[cfg(test)]
mod tests;
