//! What can be wrong with a trace file.

use super::{VERSION, VERSION_FIRST};

/// Why bytes are not a whole trace file. Positions count bytes from the beginning of the file, from 0.
#[derive(Debug, thiserror::Error)]
pub enum TraceFileError {
    /// The first bytes are not those of a trace.
    #[error("this is not a trace file: it does not begin with the signature of one")]
    NotATrace,
    /// A version that this code does not read.
    #[error(
        "the trace is of version {found}; this program reads versions {VERSION_FIRST} to {VERSION}: use a newer program"
    )]
    Version {
        /// The version named by the file.
        found: u32,
    },
    /// The bytes end within a block.
    #[error("the trace is cut off at byte {at}, within the block that begins at byte {block}: copy it again")]
    Cut {
        /// Where the bytes end.
        at: u64,
        /// Where the block begins.
        block: u64,
    },
    /// The bytes end between two blocks, but not after an end block.
    #[error("the trace is cut off at byte {at}: there is no end block before it; copy or write it again")]
    NoEnd {
        /// Where the bytes end.
        at: u64,
    },
    /// The content of a block is not what was written.
    #[error(
        "the block at byte {block} is damaged: its checksum is {found:08x}, stated is {stated:08x}; copy the trace again"
    )]
    Checksum {
        /// Where the block begins.
        block: u64,
        /// CRC-32 of what is there.
        found: u32,
        /// CRC-32 at the block's end.
        stated: u32,
    },
    /// A block whose checksum is right, but which does not say what the format allows.
    #[error("the block at byte {block} is not as the format says: {what}")]
    Block {
        /// Where the block begins.
        block: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// A number beyond its limit.
    #[error("{what} is {found}, more than the limit of {limit}")]
    Limit {
        /// What is limited.
        what: &'static str,
        /// The number found.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// The bytes could not be read or written.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}
