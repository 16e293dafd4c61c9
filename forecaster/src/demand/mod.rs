//! Demand: the composed forecasters of counts per period, and what they fall back to.

pub mod plain;

pub use plain::{PlainDemand, Transform};
