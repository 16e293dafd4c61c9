//! Embedded stores through real TCP clients.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod client;
mod device;
mod files;
mod guard;
mod search;
