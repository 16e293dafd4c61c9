//! The plex: data plane, heat, history, embedded stores, reports. The binary is `clockwork`.

pub mod heat;
pub mod history;
pub mod net;
pub mod config;
pub mod exports;
pub mod store;
