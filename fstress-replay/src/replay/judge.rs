//! Whether replies are what they should be.

use super::versions::Written;
use super::work::{TraceWork, procedure};
use crate::client::message;
use crate::client::nfs::read_data;
use crate::engine::Answer;
use crate::plan::{Committed, Node, Operation, Phase, PlannedCall};
use clockwork_wire::nfs3::{self, Results, status};
use std::time::Duration;

/// What a reply is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Good,
    /// The handle is not valid any more.
    Stale,
    /// Data that was written may be lost; it is written again.
    WrittenAgain,
    Wrong(&'static str),
}

impl TraceWork {
    /// Whether a reply is what it should be.
    pub(super) fn judge(
        &mut self,
        call: &PlannedCall,
        operation: Operation,
        (message, results): (&[u8], usize),
        answer: &Answer<'_>,
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
                Ok(data) => self.wrong_data(call, &message[data], answer.due),
            },
            Results::Write { count, committed, verifier_at, .. } => {
                if count > 0 && committed == message::UNSTABLE {
                    self.schedule.written(call, verifier(message, verifier_at));
                    if self.shared.spec.run.verify {
                        let of_request = self.unsafe_writes.entry((call.request, call.again));
                        of_request.or_default().push(Written::by(call));
                    }
                } else {
                    self.shared.versions.safe(Written::by(call), answer.now);
                }
                let is_weaker = call.is_stable && committed != message::FILE_SYNC;
                match is_weaker {
                    true => Some("less safe than asked for"),
                    false => (count != call.count).then_some("less data taken than offered"),
                }
            }
            Results::Commit { verifier_at } => {
                return self.committed(call, verifier(message, verifier_at), answer.now);
            }
            _ => None,
        };
        wrong.map_or(Verdict::Good, Verdict::Wrong)
    }

    /// Data was made safe, or has to be written again.
    fn committed(&mut self, call: &PlannedCall, verifier: u64, now: Duration) -> Verdict {
        match self.schedule.committed(call, verifier, now) {
            Committed::Safe => {
                for written in self.unsafe_writes.remove(&(call.request, call.again)).unwrap_or_default() {
                    self.shared.versions.safe(written, now);
                }
                Verdict::Good
            }
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

    /// What is wrong with the data of a READ.
    fn wrong_data(&self, call: &PlannedCall, data: &[u8], made_at: Duration) -> Option<&'static str> {
        let shared = &self.shared;
        if !shared.spec.run.verify {
            return None;
        }
        let content = shared.contents.get(call.file as usize);
        let is_right = shared.versions.judge(call.file, made_at);
        match content.and_then(|content| content.versions(data, call.offset, is_right)) {
            None => Some("data that is not the file's"),
            Some(false) => Some("data that is older than what was written and safe"),
            Some(true) => None,
        }
    }

    /// What a request has written is not known to be safe, and will not be.
    pub(super) fn forget_writes(&mut self, call: &PlannedCall) {
        self.unsafe_writes.remove(&(call.request, call.again));
        self.shared.versions.give_up(call.file);
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
}

impl Written {
    pub(super) fn by(call: &PlannedCall) -> Self {
        Self { file: call.file, offset: call.offset, count: call.count }
    }
}

fn verifier(message: &[u8], at: usize) -> u64 {
    let bytes = message.get(at..).and_then(|rest| rest.first_chunk::<8>());
    bytes.map_or(0, |bytes| u64::from_be_bytes(*bytes))
}
