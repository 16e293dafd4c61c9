//! Calls of a request that wait for the replies to those before them.

use super::Operation;
use super::schedule::Arrived;
use std::collections::VecDeque;

/// One call of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ask {
    pub(super) operation: Operation,
    pub(super) node: super::Node,
    pub(super) offset: u64,
    pub(super) count: u32,
    /// A WRITE whose data is to be safe before the reply.
    pub(super) is_stable: bool,
    /// How many calls of the request may be on their way with it, itself among them, where calls follow replies.
    pub(super) at_once: u32,
}

impl Ask {
    /// A call without data, that waits for all before it.
    pub(super) fn plain(operation: Operation, node: super::Node) -> Self {
        Self { operation, node, offset: 0, count: 0, is_stable: false, at_once: 1 }
    }
}

/// The calls of one request.
#[derive(Debug)]
pub(super) struct Chain {
    pub(super) arrived: Arrived,
    /// Those that are to come.
    asks: VecDeque<Ask>,
    on_way: u32,
    /// Its WRITEs, to be made again if the server loses what they wrote.
    writes: Vec<Ask>,
    /// The verifier of unstable data that was written; none if there is no such data.
    verifier: Option<u64>,
    /// WRITEs were answered with different verifiers.
    is_lost: bool,
    is_first: bool,
}

impl Chain {
    pub(super) fn new(arrived: &Arrived, asks: &[Ask]) -> Self {
        Self {
            arrived: *arrived,
            asks: asks.iter().copied().collect(),
            on_way: 0,
            writes: asks.iter().filter(|ask| ask.operation == Operation::Write).copied().collect(),
            verifier: None,
            is_lost: false,
            is_first: true,
        }
    }

    /// The next call that may be made now: the call, whether it is the first, and whether it is the last.
    pub(super) fn next(&mut self) -> Option<(Ask, bool, bool)> {
        self.asks.front().filter(|ask| self.on_way < ask.at_once.max(1))?;
        let ask = self.asks.pop_front()?;
        self.on_way += 1;
        Some((ask, std::mem::replace(&mut self.is_first, false), self.asks.is_empty()))
    }

    /// A call is not on its way any more. Whether the request has ended with it, although its last call was to come: a COMMIT of
    /// nothing, because all that was written is safe or nothing was.
    pub(super) fn answered(&mut self) -> bool {
        self.on_way = self.on_way.saturating_sub(1);
        let is_commit = self.asks.front().is_some_and(|ask| ask.operation == Operation::Commit);
        let is_needless = is_commit && self.on_way == 0 && self.verifier.is_none();
        if is_needless {
            self.asks.clear();
        }
        is_needless
    }

    /// Whether nothing is to come, neither calls nor replies.
    pub(super) fn is_over(&self) -> bool {
        self.asks.is_empty() && self.on_way == 0
    }

    pub(super) fn has_more(&self) -> bool {
        !self.asks.is_empty()
    }

    /// Unstable data was taken.
    pub(super) fn written(&mut self, verifier: u64) {
        self.is_lost |= self.verifier.replace(verifier).is_some_and(|known| known != verifier);
    }

    /// Whether a COMMIT that was answered with this verifier has made all data safe.
    pub(super) fn is_safe(&self, verifier: u64) -> bool {
        !self.is_lost && self.verifier.is_none_or(|known| known == verifier)
    }

    /// The calls that write everything again.
    pub(super) fn writes_again(&self, node: super::Node) -> Vec<Ask> {
        let mut asks = self.writes.clone();
        asks.push(Ask::plain(Operation::Commit, node));
        asks
    }
}
