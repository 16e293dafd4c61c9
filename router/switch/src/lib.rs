//! The state of a virtual NAS between bytes in and bytes out: pending calls, duplicate requests, pins, listings, health.
//! No socket, no clock, no task: the same code runs under the router's shards and under simulated time in the tests.

pub mod duplicates;
pub mod listings;
pub mod pins;
pub mod send_log;
pub mod time;
