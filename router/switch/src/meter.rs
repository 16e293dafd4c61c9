//! What the data plane tells whoever measures it.

use clockwork_placement::{HandleHash, StoreId};
use clockwork_wire::nfs3::Class;

/// One call that was answered, for the measurement.
#[derive(Clone, Copy, Debug)]
pub struct Answered {
    /// The store that answered.
    pub store: StoreId,
    /// Read, write or metadata.
    pub class: Class,
    /// From the call's arrival at the router until the reply's, microseconds.
    pub response_us: u64,
    /// There was no usable answer: the RPC layer refused the call, or it was given up or moved to another store.
    pub failed: bool,
    /// Bytes of file data read.
    pub bytes_read: u32,
    /// Bytes of file data written.
    pub bytes_written: u32,
}

/// Counts what passes. Called on the hot path, once per call and once per reply: no locks, no allocation in the steady
/// state.
pub trait Meter {
    /// What a call leaves for its reply.
    type Token: Copy + std::fmt::Debug;
    /// A call for `handle` goes to `store`.
    fn call(&mut self, store: StoreId, class: Class, handle: &[u8], hash: HandleHash) -> Self::Token;
    /// Its reply has come.
    fn reply(&mut self, token: Self::Token, answered: Answered);
    /// `handle` is the entry `name` of `directory`.
    fn name(&mut self, directory: &[u8], name: &[u8], handle: &[u8]);
}

/// Measures nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoMeter;

impl Meter for NoMeter {
    type Token = ();
    fn call(&mut self, _: StoreId, _: Class, _: &[u8], _: HandleHash) {}
    fn reply(&mut self, (): (), _: Answered) {}
    fn name(&mut self, _: &[u8], _: &[u8], _: &[u8]) {}
}
