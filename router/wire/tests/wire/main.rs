//! Tests of the wire package against an independent codec (nfs3_types), against bytes written down by hand, and
//! against bytes that no peer should send. Those for a case of the case list have names beginning with its id.
#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod answers;
mod calls;
mod hostile;
mod mount;
mod portmapper;
mod records;
mod replies;
mod samples;
