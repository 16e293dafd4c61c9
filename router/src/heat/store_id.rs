//! The number of a store, until the placement package brings its own.

/// The number of a store in the plex, as the placement table counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StoreId(pub u16);
