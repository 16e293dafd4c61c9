//! A meter that keeps books: every call it is told of ends exactly once.

use clockwork_placement::{HandleHash, StoreId};
use clockwork_switch::meter::{Answered, Meter};
use clockwork_wire::nfs3::Class;

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// By token: the store, until the reply.
    open: Vec<Option<StoreId>>,
    pub(crate) answered: u64,
    pub(crate) given_up: u64,
    pub(crate) names: Vec<(Vec<u8>, Vec<u8>, Vec<u8>)>,
}

impl Ledger {
    pub(crate) fn open(&self) -> usize {
        self.open.iter().flatten().count()
    }
}

impl Meter for Ledger {
    type Token = usize;

    fn call(&mut self, store: StoreId, _: Class, handle: &[u8], _: HandleHash) -> usize {
        assert!(!handle.is_empty(), "a call is measured without its handle");
        self.open.push(Some(store));
        self.open.len() - 1
    }

    fn reply(&mut self, token: usize, answered: Answered) {
        assert_eq!(
            self.open[token].take(),
            Some(answered.store),
            "a call ends once, at the store it was counted for"
        );
        if answered.failed {
            self.given_up += 1;
        } else {
            self.answered += 1;
        }
    }

    fn name(&mut self, directory: &[u8], name: &[u8], handle: &[u8]) {
        self.names.push((directory.to_vec(), name.to_vec(), handle.to_vec()));
    }
}
