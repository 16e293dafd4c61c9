//! A whole plex on loopback: clients, router and stores speak through sockets.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod changes;
mod control;
mod controlled;
mod files;
mod imported;
mod poison;
mod protocol;
mod raw;
mod relay;
mod replicas;
mod site;
mod stores;
mod unfinished;
