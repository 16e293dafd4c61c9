//! NFS version 3 (RFC 1813): what a router must know of each of the 22 procedures, as offsets into the message.

mod attributes;
mod call;
mod entries;
mod failure;
mod procedure;
mod reply;
pub mod status;

pub use attributes::{ATTRIBUTES_BYTES, Attributes, attributes};
pub use call::{Arguments, ArgumentsError, How, arguments};
pub use entries::{Entries, EntriesPlus, Entry, EntryPlus, entries, entries_plus};
pub use failure::failure;
pub use procedure::{Class, Procedure};
pub use reply::{Results, ResultsError, results};

/// The RPC program number of NFS.
pub const PROGRAM: u32 = 100_003;
/// The version of NFS that this crate speaks.
pub const VERSION: u32 = 3;
/// Longest file handle, in bytes (NFS3_FHSIZE). An empty handle names nothing and is refused.
pub const HANDLE_BYTES_MAX: u32 = 64;
/// Longest file name passed on to a store, in bytes. The protocol has no limit: a store answers NAMETOOLONG to
/// what is longer than its own (mostly 255); past this one the arguments count as malformed.
pub const NAME_BYTES_MAX: u32 = 4096;
/// Bytes of a write, create or cookie verifier.
pub const VERIFIER_BYTES: usize = 8;
