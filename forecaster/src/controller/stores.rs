//! Response models of the stores.
/// The models.
#[derive(Debug, Default)]
pub(super) struct Models;
