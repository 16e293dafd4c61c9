//! What the requests of a schedule become: calls at fixed distances, or calls that follow the replies to those before them.

use super::chain::{Ask, Chain};
use super::http::{Request, WriteSync};
use super::schedule::{Arrived, Schedule};
use super::{Model, Node, Operation, PlannedCall, Tree};
use clockwork_wire::nfs3::Class;
use std::cmp::Reverse;
use std::time::Duration;

/// How often a request is begun again because of stale handles, or of unstable data that the server lost: a name may be looked
/// up again by another request at the same client, whose answer has not come when this one uses the old handle once more.
const AGAIN_MAX: u8 = 3;

/// What has become of data that was to be made safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Committed {
    /// It is safe.
    Safe,
    /// The server may have lost some, and it is written again.
    Again,
    /// The server may have lost some again and again.
    Lost,
}

impl Schedule {
    pub(super) fn expand(&mut self, arrived: &Arrived) {
        match self.pace.model {
            Model::Calls => self.expand_calls(arrived),
            Model::Http(_) => self.expand_http(arrived, 0),
            Model::Nfs => self.expand_nfs(arrived),
        }
    }

    fn expand_calls(&mut self, arrived: &Arrived) {
        let Some(bytes) = self.file_bytes(arrived) else { return };
        let mapping = self.pace.mapping;
        let [requests, reads] = arrived.before;
        let due_now = |every: u32, number: u32| every != 0 && number.is_multiple_of(every);
        let node = Node::File(arrived.file);
        self.asks.clear();
        if due_now(mapping.lookup_every, requests) {
            self.asks.push(Ask::plain(Operation::Lookup, node));
        }
        if due_now(mapping.access_every, requests) {
            self.asks.push(Ask::plain(Operation::Access, node));
        }
        self.asks.push(Ask::plain(Operation::Getattr, node));
        match arrived.class {
            Class::Metadata => {}
            Class::Read if !due_now(mapping.read_every, reads) => {}
            Class::Read => {
                for piece in 0..mapping.reads(bytes) {
                    let offset = u64::from(piece) * u64::from(mapping.read_bytes);
                    let left = bytes - offset;
                    let count = u32::try_from(left).unwrap_or(u32::MAX).min(mapping.read_bytes);
                    self.asks.push(Ask { offset, count, ..Ask::plain(Operation::Read, node) });
                }
            }
            Class::Write => {
                let most = u64::from(mapping.write_bytes) * u64::from(mapping.writes_max);
                let bytes = whole_words(arrived.kinds.write_bytes.unwrap_or(bytes).min(most)).min(bytes);
                put_writes(&mut self.asks, node, bytes, (mapping.write_bytes, 1), mapping.write_sync);
                return self.follow(arrived, 0);
            }
        }
        self.at_distances(arrived, mapping.call_gap(), 0);
    }

    fn expand_http(&mut self, arrived: &Arrived, again: u8) {
        let Model::Http(setting) = self.pace.model else { return };
        let Some(bytes) = self.file_bytes(arrived) else { return };
        let known = match arrived.class {
            Class::Read => arrived.kinds.read_bytes,
            Class::Write => arrived.kinds.write_bytes.map(whole_words),
            Class::Metadata => Some(0),
        };
        let request = Request {
            // What is looked up again is newer than what the requests up to now have known.
            number: if again > 0 { self.number } else { arrived.number },
            file: arrived.file,
            class: arrived.class,
            bytes: known.map_or(bytes, |known| known.min(bytes)),
            at: arrived.at,
            changed: arrived.changed,
        };
        let Some(client) = self.clients.get_mut(arrived.client as usize) else { return };
        self.asks.clear();
        client.request(&self.tree, &request, &mut self.walk, &mut self.asks);
        match setting.call_gap_ms {
            Some(ms) if arrived.class != Class::Write => {
                self.at_distances(arrived, Duration::from_millis(u64::from(ms)), again);
            }
            _ => self.follow(arrived, again),
        }
    }

    /// One call of the class of the request: READs and WRITEs of their mean size go through the file one behind the other.
    fn expand_nfs(&mut self, arrived: &Arrived) {
        let Some(bytes) = self.file_bytes(arrived) else { return };
        let mapping = self.pace.mapping;
        let node = Node::File(arrived.file);
        let piece = |known: Option<u64>, most: u32| {
            let count = whole_words(known.unwrap_or(bytes)).min(u64::from(most & !7)).min(bytes).max(1);
            let pieces = (bytes / count).max(1);
            (u64::from(arrived.before[0]) % pieces * count, u32::try_from(count).unwrap_or(most))
        };
        self.asks.clear();
        match arrived.class {
            Class::Read if bytes > 0 => {
                let (offset, count) = piece(arrived.kinds.read_bytes, mapping.read_bytes);
                self.asks.push(Ask { offset, count, ..Ask::plain(Operation::Read, node) });
            }
            Class::Write if bytes > 0 => {
                let (offset, count) = piece(arrived.kinds.write_bytes, mapping.write_bytes);
                put_writes(
                    &mut self.asks,
                    node,
                    u64::from(count),
                    (mapping.write_bytes, 1),
                    mapping.write_sync,
                );
                self.asks.iter_mut().for_each(|ask| ask.offset += offset);
            }
            _ => self.asks.push(Ask::plain(Operation::Getattr, node)),
        }
        self.follow(arrived, 0);
    }

    fn file_bytes(&self, arrived: &Arrived) -> Option<u64> {
        self.workload.files().get(arrived.file as usize).map(|file| file.bytes)
    }

    /// Puts the calls of a request among those to come, or a place without a call where there are none.
    fn at_distances(&mut self, arrived: &Arrived, gap: Duration, again: u8) {
        let asks = std::mem::take(&mut self.asks);
        let mut due = arrived.at;
        for (index, ask) in asks.iter().enumerate() {
            let call = place(arrived, Some(ask), (due, again, index == 0));
            self.push(call, index + 1 == asks.len());
            due += gap;
        }
        if asks.is_empty() {
            self.push(place(arrived, None, (due, again, true)), true);
        }
        self.asks = asks;
    }

    /// Puts the first calls of a request among those to come; the others follow the replies to them.
    fn follow(&mut self, arrived: &Arrived, again: u8) {
        if self.asks.len() < 2 {
            return self.at_distances(arrived, Duration::ZERO, again);
        }
        let chain = Chain::new(arrived, &self.asks);
        self.chains.insert((arrived.number, again), chain);
        self.go_on((arrived.number, again), arrived.at);
    }

    /// Makes the calls of a request due that may be made now.
    fn go_on(&mut self, key: (u64, u8), at: Duration) {
        while let Some(chain) = self.chains.get_mut(&key) {
            let arrived = chain.arrived;
            let Some((ask, is_first, is_last)) = chain.next() else {
                if chain.is_over() {
                    self.chains.remove(&key);
                }
                return;
            };
            let call = place(&arrived, Some(&ask), (at, key.1, is_first));
            self.push(PlannedCall { follows: true, ..call }, is_last);
        }
    }

    /// A call was answered at a time, or will not be: calls of its request that wait for that become due then. Whether the
    /// request has ended so, although its last call was to come: a COMMIT where all data is safe already, or none was taken.
    pub fn answered(&mut self, call: &PlannedCall, at: Duration) -> bool {
        let key = (call.request, call.again);
        let Some(chain) = self.chains.get_mut(&key).filter(|_| call.follows) else { return false };
        let has_ended = chain.answered();
        self.go_on(key, at);
        has_ended
    }

    /// A WRITE was answered: the server has the data, which a COMMIT with this verifier makes safe.
    pub fn written(&mut self, call: &PlannedCall, verifier: u64) {
        if let Some(chain) = self.chains.get_mut(&(call.request, call.again)) {
            chain.written(verifier);
        }
    }

    /// A COMMIT was answered with this verifier. Where data may be lost, its request writes it again from `now` on.
    pub fn committed(&mut self, call: &PlannedCall, verifier: u64, now: Duration) -> Committed {
        let key = (call.request, call.again);
        let Some(chain) = self.chains.get(&key).filter(|chain| !chain.is_safe(verifier)) else {
            return Committed::Safe;
        };
        if call.again >= AGAIN_MAX {
            return Committed::Lost;
        }
        let chain = Chain::new(&chain.arrived, &chain.writes_again(call.node));
        self.chains.remove(&key);
        self.chains.insert((key.0, key.1 + 1), chain);
        self.go_on((key.0, key.1 + 1), now);
        Committed::Again
    }

    /// The handle that a call of [`Model::Http`] used was stale: what the client knew of the file (or directory) is
    /// forgotten, the calls of the request that are still to come are dropped, and it is begun again at `now`, unless another
    /// of its calls has told already. Whether the request is open again that had no call to come; `None` if it was begun
    /// again three times, or if nothing can help because it is the handle of the root.
    pub fn stale(&mut self, call: &PlannedCall, now: Duration) -> Option<bool> {
        if call.again >= AGAIN_MAX {
            return None;
        }
        // A LOOKUP uses the handle of the directory, other calls that of what they are about.
        let holder = match call.node {
            Node::File(file) if call.operation == Some(Operation::Lookup) => {
                Node::Directory(self.tree.of_file(file))
            }
            Node::Directory(directory) if call.operation == Some(Operation::Lookup) => {
                Node::Directory(self.tree.parent(directory))
            }
            node => node,
        };
        if holder == Node::Directory(Tree::ROOT) {
            return None;
        }
        let client = self.clients.get_mut(call.client as usize)?;
        client.stale(holder, call.request);
        client.stale(Node::File(call.file), call.request);
        if self.begun_again.get((call.request, call.again)).is_some() {
            return Some(false);
        }
        self.begun_again.insert((call.request, call.again), (), 1);
        let mut had_last =
            self.chains.remove(&(call.request, call.again)).is_some_and(|chain| chain.has_more());
        self.upcoming.retain(|Reverse(upcoming)| {
            let is_dropped = upcoming.call.request == call.request && upcoming.call.again == call.again;
            had_last |= is_dropped && upcoming.is_last;
            !is_dropped
        });
        let (hour, phase, file) = (call.hour, call.phase, call.file);
        let kinds = self.pace.kinds.as_ref().map(|kinds| kinds.of(hour, file)).unwrap_or_default();
        let (number, client, class) = (call.request, call.client, call.class);
        let arrived =
            Arrived { at: now, hour, phase, file, number, client, class, kinds, before: [0; 2], changed: 0 };
        self.expand_http(&arrived, call.again + 1);
        Some(!had_last)
    }
}

/// Up to a multiple of the words that contents are made of: half a word would show two versions.
fn whole_words(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(8).unwrap_or(bytes)
}

/// WRITEs of `bytes` from the beginning of a file on, by pieces with so many on their way, and what makes them safe.
pub(super) fn put_writes(
    asks: &mut Vec<Ask>,
    node: Node,
    bytes: u64,
    (piece, at_once): (u32, u32),
    sync: WriteSync,
) {
    let piece = (piece & !7).max(8);
    let is_stable = match sync {
        WriteSync::Linux => bytes <= u64::from(piece),
        WriteSync::Commit => false,
        WriteSync::Each => true,
    };
    let mut offset = 0;
    while offset < bytes {
        let count = u32::try_from(bytes - offset).unwrap_or(u32::MAX).min(piece);
        let at_once = if offset == 0 { 1 } else { at_once };
        let plain = Ask::plain(Operation::Write, node);
        asks.push(Ask { offset, count, is_stable, at_once, ..plain });
        offset += u64::from(count);
    }
    if bytes > 0 && !is_stable {
        asks.push(Ask::plain(Operation::Commit, node));
    }
}

fn place(arrived: &Arrived, ask: Option<&Ask>, (due, again, first): (Duration, u8, bool)) -> PlannedCall {
    PlannedCall {
        due,
        hour: arrived.hour,
        phase: arrived.phase,
        operation: ask.map(|ask| ask.operation),
        file: arrived.file,
        node: ask.map_or(Node::File(arrived.file), |ask| ask.node),
        first: first && again == 0,
        offset: ask.map_or(0, |ask| ask.offset),
        count: ask.map_or(0, |ask| ask.count),
        is_stable: ask.is_some_and(|ask| ask.is_stable),
        follows: false,
        client: arrived.client,
        class: arrived.class,
        request: arrived.number,
        again,
    }
}
