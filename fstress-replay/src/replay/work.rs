//! What a lane of a replay calls: its part of the schedule, with replies judged and counted hour by hour.

use super::ReplaySpec;
use super::judge::Verdict;
use super::versions::{Versions, Written};
use crate::client::message;
use crate::content::Content;
use crate::engine::{Answer, Reply, Taken, Work};
use crate::fileset;
use crate::measure::HourMeasure;
use crate::plan::{Model, Node, Operation, Part, Phase, PlannedCall, Schedule, Tree};
use clockwork_wire::nfs3::{Class, Procedure, status};
use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

/// What all lanes of a replay read.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) spec: ReplaySpec,
    pub(super) tree: Arc<Tree>,
    /// What is in each file.
    pub(super) contents: Vec<Content>,
    /// Which version of it may show.
    pub(super) versions: Versions,
}

/// A lane's part of an hour that is over; `None` if it had none.
pub(super) type ClosedPart = (u32, Option<Box<HourMeasure>>);

/// An hour that is not over, or has calls without an answer.
#[derive(Debug, Default)]
pub(super) struct OpenHour {
    measure: HourMeasure,
    /// Requests with calls that are still to come.
    pub(super) requests: u64,
}

/// Handles of the workload's files and directories, by number.
#[derive(Debug, Clone)]
pub(super) struct Nodes {
    pub(super) files: Vec<Arc<[u8]>>,
    pub(super) directories: Vec<Arc<[u8]>>,
}

impl Nodes {
    pub(super) fn get(&self, node: Node) -> &[u8] {
        let handle = match node {
            Node::File(file) => self.files.get(file as usize),
            Node::Directory(directory) => self.directories.get(directory as usize),
        };
        handle.map_or(&[], |handle| handle)
    }

    pub(super) fn set(&mut self, node: Node, handle: &[u8]) {
        let known = match node {
            Node::File(file) => self.files.get_mut(file as usize),
            Node::Directory(directory) => self.directories.get_mut(directory as usize),
        };
        if let Some(known) = known {
            *known = handle.into();
        }
    }
}

/// A lane's part of a replay.
pub(super) struct TraceWork {
    pub(super) shared: Arc<Shared>,
    part: Part,
    pub(super) schedule: Schedule,
    next: Option<(PlannedCall, bool)>,
    /// Handles as this lane knows them: those of replaced files change.
    pub(super) nodes: Nodes,
    /// Hours with calls that are to come or outstanding; few, because the outstanding calls are bounded.
    pub(super) open: BTreeMap<u32, OpenHour>,
    /// Warm-up and cooldown.
    pub(super) outside: HourMeasure,
    /// Requests have come up to this hour, or to a later phase.
    reached: u32,
    /// Hours before this one were looked at when they were over.
    passed: u32,
    closed: Sender<ClosedPart>,
    /// Names that have another handle than before.
    pub(super) replaced: u64,
    /// WRITEs that are answered and not safe yet, by request.
    pub(super) unsafe_writes: HashMap<(u64, u8), Vec<Written>>,
}

/// A call that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Made {
    pub(super) planned: PlannedCall,
    /// The version of the data of a WRITE.
    version: u8,
}

impl TraceWork {
    pub(super) fn new(
        shared: &Arc<Shared>,
        (schedule, part): (Schedule, Part),
        nodes: Nodes,
        closed: Sender<ClosedPart>,
    ) -> Self {
        let first = shared.spec.hours.start;
        Self {
            shared: Arc::clone(shared),
            part,
            schedule,
            next: None,
            nodes,
            open: BTreeMap::new(),
            outside: HourMeasure::default(),
            reached: first,
            passed: first,
            closed,
            replaced: 0,
            unsafe_writes: HashMap::new(),
        }
    }

    /// What is left of hours that could not be closed.
    pub(super) fn left(&mut self) -> impl Iterator<Item = (u32, HourMeasure)> + use<> {
        std::mem::take(&mut self.open).into_iter().map(|(hour, open)| (hour, open.measure))
    }

    /// Cache entries that the model clients had to forget.
    pub(super) fn evicted(&self) -> u64 {
        self.schedule.evicted()
    }

    pub(super) fn measure(&mut self, call: &PlannedCall) -> &mut HourMeasure {
        match call.phase {
            Phase::Run => &mut self.open.entry(call.hour).or_default().measure,
            Phase::Warmup | Phase::Cooldown => &mut self.outside,
        }
    }

    /// Notes which requests have calls to come, so that hours can be closed.
    fn follow(&mut self, call: &PlannedCall, is_last: bool) {
        match call.phase {
            Phase::Warmup => {}
            Phase::Run => {
                self.reached = self.reached.max(call.hour);
                let open = self.open.entry(call.hour).or_default();
                open.requests += u64::from(call.first);
                open.requests = open.requests.saturating_sub(u64::from(is_last));
            }
            Phase::Cooldown => self.reached = self.shared.spec.hours.end,
        }
    }

    /// The directory that has a name, and the name.
    fn name(&self, node: Node) -> (&[u8], &str) {
        let tree = &self.shared.tree;
        match node {
            Node::File(file) => {
                let path = self.shared.spec.workload.files().get(file as usize).map_or("", |file| &file.path);
                (self.nodes.get(Node::Directory(tree.of_file(file))), fileset::file_name(path))
            }
            Node::Directory(directory) => {
                (self.nodes.get(Node::Directory(tree.parent(directory))), tree.name(directory))
            }
        }
    }

    /// The version that the data of a call has, if it is a WRITE.
    fn version(&self, call: &PlannedCall) -> u8 {
        let spec = &self.shared.spec;
        match spec.workload.files().get(call.file as usize) {
            Some(file) if call.operation == Some(Operation::Write) && spec.run.verify => {
                self.shared.versions.make(Written::by(call), file.bytes)
            }
            _ => 0,
        }
    }

    /// Lets the calls that wait for this one come.
    fn go_on(&mut self, call: &PlannedCall, now: Duration) {
        if self.schedule.answered(call, now) && call.phase == Phase::Run {
            let open = self.open.entry(call.hour).or_default();
            open.requests = open.requests.saturating_sub(1);
        }
    }

    /// The call that was to come next may come after others: what a reply brings is due at once.
    fn give_back(&mut self) {
        if let Some((call, is_last)) = self.next.take() {
            self.schedule.give_back(call, is_last);
        }
    }

    /// Whether calls are those of model clients.
    pub(super) fn has_clients(&self) -> bool {
        matches!(self.shared.spec.model, Model::Http(_))
    }

    /// Begins a request again whose handle was stale; whether it was.
    fn begin_again(&mut self, call: &PlannedCall, now: Duration) -> bool {
        let Some(was_over) = self.schedule.stale(call, now) else { return false };
        if call.phase == Phase::Run {
            self.open.entry(call.hour).or_default().requests += u64::from(was_over);
        }
        true
    }
}

impl Work for TraceWork {
    type Call = Made;

    fn next_due(&mut self) -> Option<Duration> {
        if self.next.is_none() {
            self.next = self.schedule.next_call();
            if self.next.is_none() {
                self.reached = self.shared.spec.hours.end;
            }
        }
        self.next.map(|(call, _)| call.due)
    }

    fn link(&self) -> Option<usize> {
        let (call, _) = self.next.filter(|_| self.has_clients())?;
        Some(self.part.connection(call.client))
    }

    fn take(&mut self, _due: Duration, has_room: bool) -> Taken<Made> {
        let Some((call, is_last)) = self.next.take() else { return Taken::Nothing };
        self.follow(&call, is_last);
        let first = u64::from(call.first);
        let measure = self.measure(&call);
        measure.requests_due += first;
        measure.writes_due += first * u64::from(call.class == Class::Write);
        measure.metadata_due += first * u64::from(call.class == Class::Metadata);
        let Some(operation) = call.operation else {
            measure.requests += first;
            measure.cached += first;
            return Taken::Nothing;
        };
        measure.wanted += 1;
        if !has_room {
            measure.not_sent += 1;
            // What waits for it is due, too, so that it is counted.
            self.go_on(&call, call.due);
            return Taken::Refused;
        }
        measure.requests += first;
        measure.outstanding += 1;
        measure.operation(operation).called += 1;
        Taken::Call(Made { planned: call, version: self.version(&call) })
    }

    fn procedure(&self, made: &Made) -> u32 {
        made.planned.operation.map_or(0, |operation| procedure(operation).number())
    }

    fn write(&self, made: &Made, out: &mut Vec<u8>) {
        let call = &made.planned;
        match call.operation {
            None => {}
            Some(Operation::Lookup) => {
                let (directory, name) = self.name(call.node);
                message::name(out, directory, name);
            }
            Some(Operation::Access) => message::access(out, self.nodes.get(call.node)),
            Some(Operation::Getattr) => message::handle(out, self.nodes.get(call.node)),
            Some(Operation::Read) => message::read(out, self.nodes.get(call.node), call.offset, call.count),
            Some(Operation::Write) => {
                let stable = if call.is_stable { message::FILE_SYNC } else { message::UNSTABLE };
                let range = (call.offset, call.count);
                message::write_with(out, self.nodes.get(call.node), range, stable, |out| {
                    if let Some(content) = self.shared.contents.get(call.file as usize) {
                        content.append_version(out, made.version, (call.offset, call.count as usize));
                    }
                });
            }
            Some(Operation::Commit) => message::commit(out, self.nodes.get(call.node)),
        }
    }

    fn sent(&mut self, made: &Made, due: Duration, now: Duration) {
        self.measure(&made.planned).lag.record(now.saturating_sub(due));
    }

    fn answered(&mut self, made: &Made, answer: &Answer<'_>) -> bool {
        let call = &made.planned;
        let Some(operation) = call.operation else { return true };
        if call.follows || self.has_clients() {
            self.give_back();
        }
        let mut verdict = match answer.reply {
            Reply::Fault(what) => Verdict::Wrong(what),
            Reply::Unavailable => Verdict::Wrong("no such procedure"),
            Reply::Results(message, results) => self.judge(call, operation, (message, results), answer),
        };
        let may_begin_again = verdict == Verdict::Stale && self.has_clients();
        if verdict == Verdict::Stale && !(may_begin_again && self.begin_again(call, answer.now)) {
            verdict = Verdict::Wrong(status::name(status::STALE));
        }
        if operation == Operation::Write && (verdict != Verdict::Good || answer.retransmissions > 0) {
            // It may have been executed twice, or not at all.
            self.shared.versions.give_up(call.file);
        }
        if operation == Operation::Commit && verdict != Verdict::Good {
            self.forget_writes(call);
        }
        self.go_on(call, answer.now);
        let measure = self.measure(call);
        measure.outstanding = measure.outstanding.saturating_sub(1);
        let counts = measure.operation(operation);
        counts.retransmissions += u64::from(answer.retransmissions);
        counts.times.record(answer.now.saturating_sub(answer.due));
        match verdict {
            Verdict::Good | Verdict::WrittenAgain => counts.good += 1,
            Verdict::Stale => measure.stale += 1,
            Verdict::Wrong(what) => {
                counts.errors += 1;
                measure.error(&format!("{} {what}", operation.name()));
            }
        }
        !matches!(verdict, Verdict::Wrong(_))
    }

    /// It stays among the outstanding ones of its hour.
    fn unanswered(&mut self, _made: &Made, _due: Duration) {}

    /// Hands over the hours that are over and have no call to come or outstanding.
    fn tick(&mut self) {
        let reached = self.reached;
        let over = |(hour, open): (&u32, &OpenHour)| {
            (*hour < reached && open.requests == 0 && open.measure.outstanding == 0).then_some(*hour)
        };
        let over: Vec<u32> = self.open.iter().filter_map(over).collect();
        let silent = (self.passed..reached).filter(|hour| !self.open.contains_key(hour));
        let mut closed: Vec<ClosedPart> = silent.map(|hour| (hour, None)).collect();
        self.passed = reached;
        for hour in over {
            closed.extend(self.open.remove(&hour).map(|open| (hour, Some(Box::new(open.measure)))));
        }
        for part in closed {
            // If the replay was dropped, nobody wants it.
            let _ = self.closed.send(part);
        }
    }
}

pub(super) fn procedure(operation: Operation) -> Procedure {
    match operation {
        Operation::Lookup => Procedure::Lookup,
        Operation::Access => Procedure::Access,
        Operation::Getattr => Procedure::Getattr,
        Operation::Read => Procedure::Read,
        Operation::Write => Procedure::Write,
        Operation::Commit => Procedure::Commit,
    }
}
