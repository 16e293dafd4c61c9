//! The plex: data plane, heat, history, embedded stores, reports. The binary is `clockwork`.

pub mod cli;
pub mod config;
pub mod control;
pub mod demo;
pub mod exports;
pub mod heat;
pub mod history;
pub mod net;
pub mod plex;
pub mod report;
pub mod store;
pub mod web;
