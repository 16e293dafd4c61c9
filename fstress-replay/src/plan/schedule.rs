//! The calls of a stretch of hours in the order in which they are due.

use super::http::{Ask, CLIENTS_MAX, Client, Request};
use super::recent::Recent;
use super::{Model, Node, Operation, Pace, Phase, PlannedCall, Tree};
use clockwork_traces::workload::{Arrivals, Workload, WorkloadError};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;
use xxhash_rust::xxh3::xxh3_64;

/// How often a request is begun again because of stale handles: a name may be looked up again by another request at the
/// same client, whose answer has not come when this one uses the old handle once more.
const AGAIN_MAX: u8 = 3;
/// Requests of which it is remembered that they were begun again; one that is forgotten and whose further calls are answered
/// with STALE is begun again twice.
const BEGUN_AGAIN_MAX: u64 = 8_192;

/// One of several parts of a schedule, that together are all of it: requests go to parts by turn, model clients stay
/// with the part that has their connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Which, from 0.
    pub number: usize,
    /// How many there are.
    pub parts: usize,
    /// Connections in all; connection c belongs to part c modulo the number of parts.
    pub connections: usize,
}

impl Part {
    /// All of it.
    pub const WHOLE: Self = Self { number: 0, parts: 1, connections: 1 };

    /// The connection of a client, among those of its part.
    #[must_use]
    pub fn connection(&self, client: u32) -> usize {
        client as usize % self.connections.max(1) / self.parts.max(1)
    }

    fn has_request(&self, number: u64) -> bool {
        number % self.parts.max(1) as u64 == self.number as u64
    }

    fn has_client(&self, client: u32) -> bool {
        client as usize % self.connections.max(1) % self.parts.max(1) == self.number
    }
}

/// The calls of several hours in the order in which they are due, the same in every run.
#[derive(Debug)]
pub struct Schedule {
    workload: Arc<Workload>,
    pace: Pace,
    part: Part,
    /// Number of the next stretch: a whole hour, or what the warm-up or the cooldown has of one.
    stretch: u64,
    current: Option<(Stretch, Arrivals)>,
    /// Requests so far of each file: decides which of them go to the directory. Starts at a phase of its own for each file, as
    /// the caches of a client that has been running for long.
    requests: Vec<u32>,
    /// Caches of the model clients, those of other parts unused.
    clients: Vec<Client>,
    tree: Arc<Tree>,
    /// Calls of requests that have arrived; a request has few, so this stays small.
    upcoming: BinaryHeap<Reverse<Upcoming>>,
    /// The next request, known but not yet turned into calls.
    next: Option<Arrived>,
    begun_again: Recent<(u64, u8), ()>,
    /// Number of the last request.
    number: u64,
    sequence: u64,
    walk: Vec<u32>,
    asks: Vec<Ask>,
}

/// A request that has arrived.
#[derive(Debug, Clone, Copy)]
struct Arrived {
    at: Duration,
    hour: u32,
    phase: Phase,
    file: u32,
    number: u64,
    client: u32,
}

/// An hour as it is played, or a part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stretch {
    hour: u32,
    phase: Phase,
    /// When it begins, from the start of the replay.
    begin: Duration,
    /// What is played of the hour's length.
    from: Duration,
    until: Duration,
}

#[derive(Debug)]
struct Upcoming {
    sequence: u64,
    is_last: bool,
    call: PlannedCall,
}

impl PartialEq for Upcoming {
    fn eq(&self, other: &Self) -> bool {
        self.sequence == other.sequence
    }
}

impl Eq for Upcoming {}

impl PartialOrd for Upcoming {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Upcoming {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.call.due, self.sequence).cmp(&(other.call.due, other.sequence))
    }
}

impl Schedule {
    /// The schedule of a workload. All hours are looked at first, so that nothing can go wrong later.
    ///
    /// # Errors
    /// An hour that the workload lacks, or a factor or length that makes no sense.
    pub fn new(workload: &Arc<Workload>, pace: Pace) -> Result<Self, WorkloadError> {
        let tree = Arc::new(Tree::of(workload.files()));
        Self::part(workload, &tree, pace, Part::WHOLE)
    }

    /// A part of the schedule of a workload with this tree of files.
    ///
    /// # Errors
    /// As [`Schedule::new`].
    pub fn part(
        workload: &Arc<Workload>,
        tree: &Arc<Tree>,
        pace: Pace,
        part: Part,
    ) -> Result<Self, WorkloadError> {
        for hour in pace.hours.clone() {
            workload.arrivals(hour, pace.hour_length, pace.factor)?;
        }
        let phase = |file: usize| {
            let bytes = (file as u64 ^ workload.seed()).to_le_bytes();
            u32::try_from(xxh3_64(&bytes) >> 40).unwrap_or(0)
        };
        let clients = match pace.model {
            Model::Calls => Vec::new(),
            Model::Http(setting) => {
                (0..setting.clients.clamp(1, CLIENTS_MAX)).map(|_| Client::new(setting)).collect()
            }
        };
        let mut schedule = Self {
            stretch: 0,
            current: None,
            requests: (0..workload.files().len()).map(phase).collect(),
            clients,
            tree: Arc::clone(tree),
            upcoming: BinaryHeap::new(),
            next: None,
            begun_again: Recent::new(BEGUN_AGAIN_MAX),
            number: 0,
            sequence: 0,
            walk: Vec::new(),
            asks: Vec::new(),
            workload: Arc::clone(workload),
            pace,
            part,
        };
        schedule.next = schedule.next_request();
        Ok(schedule)
    }

    /// Cache entries that the model clients have forgotten because they may remember no more.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.clients.iter().map(Client::evicted).sum()
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
        let mut had_last = false;
        self.upcoming.retain(|Reverse(upcoming)| {
            let is_dropped = upcoming.call.request == call.request && upcoming.call.again == call.again;
            had_last |= is_dropped && upcoming.is_last;
            !is_dropped
        });
        let arrived = Arrived {
            at: now,
            hour: call.hour,
            phase: call.phase,
            file: call.file,
            number: call.request,
            client: call.client,
        };
        self.expand_http(&arrived, call.again + 1);
        Some(!had_last)
    }

    /// The stretch of that number.
    fn stretch(&self, number: u64) -> Option<Stretch> {
        let (length, hours) = (self.pace.hour_length, self.pace.hours.clone());
        let long = length.as_nanos().max(1);
        let before = u64::try_from(self.pace.warmup.as_nanos().div_ceil(long)).ok()?;
        let times = |count: u64| length.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
        let known = |hour: Option<u32>| hour.filter(|hour| self.workload.requests(*hour).is_ok());
        if number < before {
            let back = before - number;
            let hour = known(u32::try_from(back).ok().and_then(|back| hours.start.checked_sub(back)));
            return Some(Stretch {
                hour: hour.unwrap_or(hours.start),
                phase: Phase::Warmup,
                begin: self.pace.warmup.saturating_sub(times(back)),
                from: times(back).saturating_sub(self.pace.warmup),
                until: length,
            });
        }
        let number = number - before;
        let begin = self.pace.warmup + times(number);
        if let Some(hour) = u32::try_from(number).ok().and_then(|place| hours.start.checked_add(place))
            && hours.contains(&hour)
        {
            return Some(Stretch { hour, phase: Phase::Run, begin, from: Duration::ZERO, until: length });
        }
        let left = self.pace.whole().saturating_sub(begin);
        let hour = known(u32::try_from(number).ok().and_then(|place| hours.start.checked_add(place)));
        (!left.is_zero()).then(|| Stretch {
            hour: hour.unwrap_or(hours.end.saturating_sub(1)),
            phase: Phase::Cooldown,
            begin,
            from: Duration::ZERO,
            until: length.min(left),
        })
    }

    /// The next request of this part.
    fn next_request(&mut self) -> Option<Arrived> {
        loop {
            let Some((stretch, arrivals)) = &mut self.current else {
                let stretch = self.stretch(self.stretch)?;
                self.stretch += 1;
                // `new` has tried every hour that is measured, and others are known to be there.
                let arrivals =
                    self.workload.arrivals(stretch.hour, self.pace.hour_length, self.pace.factor).ok()?;
                self.current = Some((stretch, arrivals));
                continue;
            };
            let stretch = *stretch;
            let Some(arrival) = arrivals.next().filter(|arrival| arrival.offset < stretch.until) else {
                self.current = None;
                continue;
            };
            let Some(since) = arrival.offset.checked_sub(stretch.from) else { continue };
            self.number += 1;
            let Some(client) = self.client_of(self.number, arrival.file) else { continue };
            return Some(Arrived {
                at: stretch.begin + since,
                hour: stretch.hour,
                phase: stretch.phase,
                file: arrival.file,
                number: self.number,
                client,
            });
        }
    }

    /// The client of a request, if that is of this part.
    fn client_of(&mut self, number: u64, file: u32) -> Option<u32> {
        match self.pace.model {
            Model::Calls => {
                let is_mine = self.part.has_request(number);
                if !is_mine && let Some(requests) = self.requests.get_mut(file as usize) {
                    // Counted in all parts, so that each sees the same caches.
                    *requests = requests.wrapping_add(1);
                }
                is_mine.then_some(0)
            }
            Model::Http(_) => {
                let clients = self.clients.len().max(1) as u64;
                let lot = xxh3_64(&(number ^ self.workload.seed().rotate_left(32)).to_le_bytes());
                let client = u32::try_from(lot % clients).unwrap_or(0);
                self.part.has_client(client).then_some(client)
            }
        }
    }

    fn expand(&mut self, arrived: &Arrived) {
        match self.pace.model {
            Model::Calls => self.expand_calls(arrived),
            Model::Http(_) => self.expand_http(arrived, 0),
        }
    }

    fn expand_calls(&mut self, arrived: &Arrived) {
        let index = arrived.file as usize;
        let (Some(spec), Some(number)) = (self.workload.files().get(index), self.requests.get_mut(index))
        else {
            return;
        };
        let mapping = self.pace.mapping;
        let due_now = |every: u32| every != 0 && number.is_multiple_of(every);
        let node = Node::File(arrived.file);
        let ask = |operation, offset, count| Ask { operation, node, offset, count };
        self.asks.clear();
        if due_now(mapping.lookup_every) {
            self.asks.push(ask(Operation::Lookup, 0, 0));
        }
        if due_now(mapping.access_every) {
            self.asks.push(ask(Operation::Access, 0, 0));
        }
        self.asks.push(ask(Operation::Getattr, 0, 0));
        let reads = if due_now(mapping.read_every) { mapping.reads(spec.bytes) } else { 0 };
        for piece in 0..reads {
            let offset = u64::from(piece) * u64::from(mapping.read_bytes);
            let left = spec.bytes - offset;
            let count = u32::try_from(left).unwrap_or(u32::MAX).min(mapping.read_bytes);
            self.asks.push(ask(Operation::Read, offset, count));
        }
        *number = number.wrapping_add(1);
        self.schedule(arrived, mapping.call_gap(), 0);
    }

    fn expand_http(&mut self, arrived: &Arrived, again: u8) {
        let Model::Http(setting) = self.pace.model else { return };
        let Some(spec) = self.workload.files().get(arrived.file as usize) else { return };
        let known = self.pace.bytes.as_ref().and_then(|bytes| bytes.of(arrived.hour, arrived.file));
        let request = Request {
            // What is looked up again is newer than what the requests up to now have known.
            number: if again > 0 { self.number } else { arrived.number },
            file: arrived.file,
            bytes: known.map_or(spec.bytes, |bytes| bytes.min(spec.bytes)),
            at: arrived.at,
        };
        let Some(client) = self.clients.get_mut(arrived.client as usize) else { return };
        self.asks.clear();
        client.request(&self.tree, &request, &mut self.walk, &mut self.asks);
        self.schedule(arrived, Duration::from_millis(u64::from(setting.call_gap_ms)), again);
    }

    /// Puts the calls of a request among those to come, or a place without a call where there are none.
    fn schedule(&mut self, arrived: &Arrived, gap: Duration, again: u8) {
        let asks = std::mem::take(&mut self.asks);
        let place = |ask: Option<&Ask>, due: Duration, first: bool| PlannedCall {
            due,
            hour: arrived.hour,
            phase: arrived.phase,
            operation: ask.map(|ask| ask.operation),
            file: arrived.file,
            node: ask.map_or(Node::File(arrived.file), |ask| ask.node),
            first: first && again == 0,
            offset: ask.map_or(0, |ask| ask.offset),
            count: ask.map_or(0, |ask| ask.count),
            client: arrived.client,
            request: arrived.number,
            again,
        };
        let mut due = arrived.at;
        for (index, ask) in asks.iter().enumerate() {
            self.push(place(Some(ask), due, index == 0), index + 1 == asks.len());
            due += gap;
        }
        if asks.is_empty() {
            self.push(place(None, due, true), true);
        }
        self.asks = asks;
    }

    fn push(&mut self, call: PlannedCall, is_last: bool) {
        self.upcoming.push(Reverse(Upcoming { sequence: self.sequence, is_last, call }));
        self.sequence += 1;
    }

    /// Takes back a call that [`Schedule::next_call`] gave out and that is not due yet.
    pub fn give_back(&mut self, call: PlannedCall, is_last: bool) {
        self.push(call, is_last);
    }

    /// The next call, and whether it is the last of its request as far as is known.
    pub fn next_call(&mut self) -> Option<(PlannedCall, bool)> {
        // A call may be given out only when no request that is still to be expanded can come before it.
        while let Some(request) = self.next {
            if self.upcoming.peek().is_some_and(|Reverse(first)| first.call.due <= request.at) {
                break;
            }
            self.expand(&request);
            self.next = self.next_request();
        }
        self.upcoming.pop().map(|Reverse(upcoming)| (upcoming.call, upcoming.is_last))
    }
}

impl Iterator for Schedule {
    type Item = PlannedCall;

    fn next(&mut self) -> Option<PlannedCall> {
        self.next_call().map(|(call, _)| call)
    }
}
