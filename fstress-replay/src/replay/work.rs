//! What a lane of a replay calls: its part of the schedule, with replies judged and counted hour by hour.

use super::ReplaySpec;
use crate::client::message;
use crate::client::nfs::read_data;
use crate::content::Content;
use crate::engine::{Answer, Reply, Taken, Work};
use crate::fileset;
use crate::measure::HourMeasure;
use crate::plan::{Committed, Model, Node, Operation, Part, Phase, PlannedCall, Schedule, Tree};
use clockwork_wire::nfs3::{self, Class, Procedure, Results, status};
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
}

/// A lane's part of an hour that is over; `None` if it had none.
pub(super) type ClosedPart = (u32, Option<Box<HourMeasure>>);

/// An hour that is not over, or has calls without an answer.
#[derive(Debug, Default)]
struct OpenHour {
    measure: HourMeasure,
    /// Requests with calls that are still to come.
    requests: u64,
}

/// Handles of the workload's files and directories, by number.
#[derive(Debug, Clone)]
pub(super) struct Nodes {
    pub(super) files: Vec<Arc<[u8]>>,
    pub(super) directories: Vec<Arc<[u8]>>,
}

impl Nodes {
    fn get(&self, node: Node) -> &[u8] {
        let handle = match node {
            Node::File(file) => self.files.get(file as usize),
            Node::Directory(directory) => self.directories.get(directory as usize),
        };
        handle.map_or(&[], |handle| handle)
    }

    fn set(&mut self, node: Node, handle: &[u8]) {
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
    shared: Arc<Shared>,
    part: Part,
    schedule: Schedule,
    next: Option<(PlannedCall, bool)>,
    /// Handles as this lane knows them: those of replaced files change.
    nodes: Nodes,
    /// Hours with calls that are to come or outstanding; few, because the outstanding calls are bounded.
    open: BTreeMap<u32, OpenHour>,
    /// Warm-up and cooldown.
    pub(super) outside: HourMeasure,
    /// Requests have come up to this hour, or to a later phase.
    reached: u32,
    /// Hours before this one were looked at when they were over.
    passed: u32,
    closed: Sender<ClosedPart>,
    /// Names that have another handle than before.
    pub(super) replaced: u64,
}

/// What a reply is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Good,
    /// The handle is not valid any more.
    Stale,
    /// Data that was written may be lost; it is written again.
    WrittenAgain,
    Wrong(&'static str),
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

    fn measure(&mut self, call: &PlannedCall) -> &mut HourMeasure {
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

    /// Whether a reply is what it should be.
    fn judge(
        &mut self,
        call: &PlannedCall,
        operation: Operation,
        (message, results): (&[u8], usize),
        now: Duration,
    ) -> Verdict {
        let Ok(found) = nfs3::results(procedure(operation), message, results) else {
            return Verdict::Wrong("malformed results");
        };
        let wrong = match found {
            Results::Failed { status: status::STALE } => return Verdict::Stale,
            Results::Failed { status } => Some(status::name(status)),
            Results::Lookup { handle, .. } => self.looked_up(call.node, &message[handle]),
            Results::Getattr { attributes_at } => {
                let attributes = nfs3::attributes(message, attributes_at);
                let is_right = match call.node {
                    Node::File(file) => {
                        let files = self.shared.spec.workload.files();
                        let bytes = files.get(file as usize).map(|file| file.bytes);
                        attributes.map(|attributes| attributes.size) == bytes
                    }
                    Node::Directory(_) => attributes.is_some(),
                };
                (!is_right).then_some("another size than in the workload")
            }
            Results::Read { .. } => match read_data(message, results) {
                Err(_) => Some("malformed results"),
                Ok(data) if data.len() != call.count as usize => Some("less data than asked for"),
                Ok(data) => {
                    let content = self.shared.contents.get(call.file as usize);
                    let right = !self.shared.spec.run.verify
                        || content.is_some_and(|content| content.matches(&message[data], call.offset));
                    (!right).then_some("data that is not the file's")
                }
            },
            Results::Write { count, committed, verifier_at, .. } => {
                if count > 0 && committed == message::UNSTABLE {
                    self.schedule.written(call, verifier(message, verifier_at));
                }
                let is_weaker = call.is_stable && committed != message::FILE_SYNC;
                match is_weaker {
                    true => Some("less safe than asked for"),
                    false => (count != call.count).then_some("less data taken than offered"),
                }
            }
            Results::Commit { verifier_at } => {
                return self.committed(call, verifier(message, verifier_at), now);
            }
            _ => None,
        };
        wrong.map_or(Verdict::Good, Verdict::Wrong)
    }

    /// Data was made safe, or has to be written again.
    fn committed(&mut self, call: &PlannedCall, verifier: u64, now: Duration) -> Verdict {
        match self.schedule.committed(call, verifier, now) {
            Committed::Safe => Verdict::Good,
            Committed::Lost => Verdict::Wrong("data may be lost: the verifier changes again and again"),
            Committed::Again => {
                if call.phase == Phase::Run {
                    self.open.entry(call.hour).or_default().requests += 1;
                }
                self.measure(call).written_again += 1;
                Verdict::WrittenAgain
            }
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

    /// The handle of a name has come. Where clients look names up again because they were replaced, a new handle is taken.
    fn looked_up(&mut self, node: Node, handle: &[u8]) -> Option<&'static str> {
        if *handle == *self.nodes.get(node) {
            return None;
        }
        if !self.has_clients() {
            return Some("another handle than at the start");
        }
        self.nodes.set(node, handle);
        self.replaced += 1;
        None
    }

    /// Whether calls are those of model clients.
    fn has_clients(&self) -> bool {
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
    type Call = PlannedCall;

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

    fn take(&mut self, _due: Duration, has_room: bool) -> Taken<PlannedCall> {
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
        Taken::Call(call)
    }

    fn procedure(&self, call: &PlannedCall) -> u32 {
        call.operation.map_or(0, |operation| procedure(operation).number())
    }

    fn write(&self, call: &PlannedCall, out: &mut Vec<u8>) {
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
                        content.append(out, call.offset, call.count as usize);
                    }
                });
            }
            Some(Operation::Commit) => message::commit(out, self.nodes.get(call.node)),
        }
    }

    fn sent(&mut self, call: &PlannedCall, due: Duration, now: Duration) {
        self.measure(call).lag.record(now.saturating_sub(due));
    }

    fn answered(&mut self, call: &PlannedCall, answer: &Answer<'_>) -> bool {
        let Some(operation) = call.operation else { return true };
        self.give_back();
        let mut verdict = match answer.reply {
            Reply::Fault(what) => Verdict::Wrong(what),
            Reply::Unavailable => Verdict::Wrong("no such procedure"),
            Reply::Results(message, results) => self.judge(call, operation, (message, results), answer.now),
        };
        let may_begin_again = verdict == Verdict::Stale && self.has_clients();
        if verdict == Verdict::Stale && !(may_begin_again && self.begin_again(call, answer.now)) {
            verdict = Verdict::Wrong(status::name(status::STALE));
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
    fn unanswered(&mut self, _call: &PlannedCall, _due: Duration) {}

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

fn verifier(message: &[u8], at: usize) -> u64 {
    let bytes = message.get(at..).and_then(|rest| rest.first_chunk::<8>());
    bytes.map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

fn procedure(operation: Operation) -> Procedure {
    match operation {
        Operation::Lookup => Procedure::Lookup,
        Operation::Access => Procedure::Access,
        Operation::Getattr => Procedure::Getattr,
        Operation::Read => Procedure::Read,
        Operation::Write => Procedure::Write,
        Operation::Commit => Procedure::Commit,
    }
}
