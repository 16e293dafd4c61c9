//! Tests of the switch as a whole: several shards between clients and model stores, under simulated time.
//!
//! Those for a case of the case list have names beginning with its id.
#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod sim;

mod answers;
mod commits;
mod doubts;
mod drains;
mod links;
mod listings;
mod poison;
mod random;
mod repeats;
mod replicas;
mod weights;
