//! The trace file: how often each file was asked for in each period, as blocks that can be written and read as a stream.
//!
//! # Bytes
//! ```text
//! 89 43 57 54 0D 0A 1A 0A          a signature that text-mode copies destroy
//! version                          u32, little endian; this code reads versions 1 and 2, and writes version 2
//! block ...                        any number
//! ```
//! A block is
//! ```text
//! kind                             one ASCII letter; a reader skips an unknown small letter and refuses an unknown capital
//! length                           u32, little endian: bytes of the payload, at most 1 MiB
//! payload
//! checksum                         u32, little endian: CRC-32 (IEEE) of kind, length and payload
//! ```
//! Numbers in payloads are LEB128 (`v`), signed ones zigzag before that (`z`), byte strings a length `v` and the bytes.
//!
//! | kind | payload | meaning |
//! |---|---|---|
//! | `H` | period length in s `v`, origin in s since 1970 UTC `z`, name, about (UTF-8) | head; the first block. Period p is the time from origin + p length on |
//! | `F` | first number `v`, how many `v`, then a path each | files, numbered from 0 without gaps; before the first count that names them |
//! | `C` | period `z`, how many `v`, then for each file: number less the one before less 1 `v` (the first: number), requests times 4, plus 1 if some wrote, plus 2 if some concerned metadata alone `v`, [writes `v`, bytes written `v`], [requests for metadata `v`], bytes read `v` | counts of one period; several blocks for one period add up |
//! | `S` | how many `v`, then number less the one before less 1 `v` (the first: number), size `v` | largest size seen of files, in bytes |
//! | `P` | first period `z`, how many `v`, silent `v` | what was observed: a period of this range without counts is missing if silent is 0, and had no requests if it is 1 |
//! | `a` | how many `v`, then for each: number less the one before less 1 `v` (the first: number), requests `v`, address | clients, by number; the address is empty unless it was asked for |
//! | `E` | requests `v`, files `v`, blocks before this one `v` | end: what all blocks so far add up to. A whole file ends after an `E` block |
//!
//! In version 1 a `C` block has for each file: number as above, requests times 2 plus 1 if some changed it `v`, [how many `v`],
//! bytes sent or taken `v`. All else is the same. Requests that did not change the file read it, as far as version 1 knows;
//! the bytes are taken for written ones where all requests changed it, for read ones otherwise.
//!
//! # Why so
//! Counts add up, so logs may be read in any order, lines may come late, and a file is appended to by writing more blocks and
//! another end. A reader needs no seeking and holds one block at a time. A cut or damaged file is noticed: at a checksum, or
//! because the last block is not an end.

mod block;
mod error;
mod index;
mod read;
mod varint;
mod whole;
mod write;

pub use block::{Block, Client, FileCount, Head, PeriodCounts, Span};
pub use error::TraceFileError;
pub use index::{INDEX_BLOCKS_MAX, INDEX_PATH_BYTES_MAX, INDEX_SPANS_MAX, PeriodCountsReader, TraceIndex};
pub use read::TraceReader;
pub use whole::{TraceData, TracedFile};
pub use write::TraceWriter;

/// The version of the format that this code writes.
pub const VERSION: u32 = 2;
/// The first version, which is the oldest that this code reads.
pub const VERSION_FIRST: u32 = 1;
/// First bytes of a trace file.
pub const SIGNATURE: [u8; 8] = *b"\x89CWT\r\n\x1a\n";
/// Most bytes in the payload of a block.
pub const BLOCK_BYTES_MAX: usize = 1 << 20;
/// Longest path of a file, in bytes.
pub const PATH_BYTES_MAX: usize = 4_096;
/// Most files in one trace file.
pub const FILES_MAX: usize = 16_000_000;
/// Longest period, in seconds (31 days).
pub const PERIOD_SECONDS_MAX: u32 = 31 * 86_400;
/// Periods lie within this many of the origin, before and after.
pub const PERIOD_NUMBER_MAX: i64 = 1 << 40;
/// Most periods between the first and the last one of a trace, so that per-period figures fit into memory.
pub const PERIODS_MAX: u64 = 20_000_000;

#[cfg(test)]
mod tests;
