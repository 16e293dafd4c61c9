//! ONC RPC (RFC 5531), NFSv3 and MOUNT v3 (RFC 1813) and the portmapper (RFC 1833) on the wire, without I/O:
//! record marks, headers as offsets into bytes that stay where they are, and the few fields that a router rewrites.
//!
//! Nothing in here copies a message, opens a socket or reads a clock. A parser takes the bytes of one whole
//! message (without its record mark) and answers with numbers and [`Span`]s, offsets from the message's first
//! byte; a writer appends to a `Vec<u8>` that the caller reuses. All input may be hostile: every parser returns
//! a typed error, none panics, and none allocates in proportion to a length that a peer only claims.
//!
//! | Module | Speaks |
//! |---|---|
//! | [`record`] | record marking of RPC over TCP |
//! | [`rpc`] | headers of calls and replies |
//! | [`answer`] | whole replies that the router gives itself |
//! | [`nfs3`] | arguments and results of the 22 NFSv3 procedures |
//! | [`mount`] | MOUNT v1 and v3 |
//! | [`portmap`] | a complete portmapper, version 2 |
//! | [`xdr`] | the words and byte strings that all of them are made of (RFC 4506) |

pub mod answer;
pub mod mount;
pub mod nfs3;
pub mod portmap;
pub mod record;
pub mod rpc;
pub mod xdr;

pub use xdr::Span;
