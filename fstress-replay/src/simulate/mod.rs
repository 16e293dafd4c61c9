//! A simulated plex, and policies side by side on it.
//!
//! Discrete events: every call of a day is simulated ([`queue`]), with stores as queues with several servers that hold a
//! bounded number of calls, and caches that are cold for a file that has just come ([`world`]). What a day asks for is drawn
//! by seed from the bundled workloads or from traces ([`demand`]); [`plexes`] are the plexes of the comparison, [`policies`]
//! what stands side by side, [`best`] the near-optimal assignment that none can beat by much, [`score`] the figures, and
//! [`study`] runs many days.
//!
//! Everything is deterministic by seed, and the same load at the same store in the same sixth of a period meets the same
//! chances under every policy, so that policies differ by what they do alone.

pub mod args;
pub mod best;
pub mod controlled;
pub mod day;
pub mod demand;
pub mod plexes;
pub mod policies;
pub mod queue;
pub mod scale;
pub mod score;
pub mod study;
pub mod world;

pub use args::{SimulateArgs, main_if_asked, run};
