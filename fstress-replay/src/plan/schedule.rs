//! The calls of a stretch of hours in the order in which they are due.

use super::chain::{Ask, Chain};
use super::http::{CLIENTS_MAX, Client};
use super::kinds::{Classes, Kinds};
use super::recent::Recent;
use super::{Model, Operation, Pace, Phase, PlannedCall, Tree};
use clockwork_traces::workload::{Arrivals, Workload, WorkloadError};
use clockwork_wire::nfs3::Class;
use hashbrown::HashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;
use xxhash_rust::xxh3::xxh3_64;

/// Requests of which it is remembered that they were begun again; one that is forgotten and whose further calls are answered
/// with STALE is begun again twice.
const BEGUN_AGAIN_MAX: u64 = 8_192;
/// When the reply to a call comes, where there is no server to ask: for the iterator.
const REPLY_ASSUMED: Duration = Duration::from_millis(1);

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

/// The calls of several hours in the order in which they are due. Requests are the same in every run; calls that follow the
/// replies to others ([`PlannedCall::follows`]) come when [`Schedule::answered`] says that there was one. As an iterator, it
/// takes replies to come after 1 ms.
#[derive(Debug)]
pub struct Schedule {
    pub(super) workload: Arc<Workload>,
    pub(super) pace: Pace,
    part: Part,
    /// Number of the next stretch: a whole hour, or what the warm-up or the cooldown has of one.
    stretch: u64,
    current: Option<(Stretch, Arrivals)>,
    /// Requests so far of each file, and how many of them read: decides which of them go to the directory, and which to the
    /// file. Starts at a phase of its own for each file, as the caches of a client that has been running for long.
    requests: Vec<[u32; 2]>,
    classes: Classes,
    /// For each file: the last request that wrote it, and its client.
    written: Vec<(u64, u32)>,
    /// Caches of the model clients, those of other parts unused.
    pub(super) clients: Vec<Client>,
    pub(super) tree: Arc<Tree>,
    /// Calls of requests that have arrived; a request has few, so this stays small.
    pub(super) upcoming: BinaryHeap<Reverse<Upcoming>>,
    /// Requests whose further calls wait for replies. Each has a call that is due or on its way, so there are no more than
    /// calls may be outstanding, and those that are due.
    pub(super) chains: HashMap<(u64, u8), Chain>,
    /// The next request, known but not yet turned into calls.
    next: Option<Arrived>,
    pub(super) begun_again: Recent<(u64, u8), ()>,
    /// Number of the last request.
    pub(super) number: u64,
    sequence: u64,
    pub(super) walk: Vec<u32>,
    pub(super) asks: Vec<Ask>,
}

/// A request that has arrived.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrived {
    pub(super) at: Duration,
    pub(super) hour: u32,
    pub(super) phase: Phase,
    pub(super) file: u32,
    pub(super) number: u64,
    pub(super) client: u32,
    pub(super) class: Class,
    pub(super) kinds: Kinds,
    /// How many requests for the file came before it, and how many that read.
    pub(super) before: [u32; 2],
    /// The last request of another client that wrote the file.
    pub(super) changed: u64,
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
pub(super) struct Upcoming {
    sequence: u64,
    pub(super) is_last: bool,
    pub(super) call: PlannedCall,
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
            Model::Calls | Model::Nfs => Vec::new(),
            Model::Http(setting) => {
                (0..setting.clients.clamp(1, CLIENTS_MAX)).map(|_| Client::new(setting)).collect()
            }
        };
        let mut schedule = Self {
            stretch: 0,
            current: None,
            requests: (0..workload.files().len()).map(|file| [phase(file); 2]).collect(),
            classes: Classes::new(workload.files().len(), workload.seed()),
            written: vec![(0, 0); workload.files().len()],
            clients,
            tree: Arc::clone(tree),
            upcoming: BinaryHeap::new(),
            chains: HashMap::new(),
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
            let arrived = self.arrived(&stretch, arrival.file, stretch.begin + since);
            let is_mine = match self.pace.model {
                Model::Calls | Model::Nfs => self.part.has_request(arrived.number),
                Model::Http(_) => self.part.has_client(arrived.client),
            };
            if is_mine {
                return Some(arrived);
            }
        }
    }

    /// The request with the number that the counter has now. What is counted is so in all parts, so that each sees the same.
    fn arrived(&mut self, stretch: &Stretch, file: u32, at: Duration) -> Arrived {
        let (number, index) = (self.number, file as usize);
        let client = match self.pace.model {
            Model::Calls | Model::Nfs => 0,
            Model::Http(_) => {
                let lot = xxh3_64(&(number ^ self.workload.seed().rotate_left(32)).to_le_bytes());
                u32::try_from(lot % self.clients.len().max(1) as u64).unwrap_or(0)
            }
        };
        let kinds =
            self.pace.kinds.as_ref().map_or_else(Kinds::default, |kinds| kinds.of(stretch.hour, file));
        let class = self.classes.deal(file, kinds);
        let mut before = [0; 2];
        if let Some([requests, reads]) = self.requests.get_mut(index) {
            before = [*requests, *reads];
            *requests = requests.wrapping_add(1);
            *reads = reads.wrapping_add(u32::from(class == Class::Read));
        }
        let mut changed = 0;
        if let Some((written, by)) = self.written.get_mut(index) {
            changed = if *by == client { 0 } else { *written };
            if class == Class::Write {
                (*written, *by) = (number, client);
            }
        }
        let (hour, phase) = (stretch.hour, stretch.phase);
        Arrived { at, hour, phase, file, number, client, class, kinds, before, changed }
    }

    pub(super) fn push(&mut self, call: PlannedCall, is_last: bool) {
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
        let (call, _) = self.next_call()?;
        if call.operation == Some(Operation::Write) && !call.is_stable {
            self.written(&call, 0);
        }
        self.answered(&call, call.due + REPLY_ASSUMED);
        Some(call)
    }
}
