//! The calls in flight on one connection.

use super::{CallError, Options, Reply, Submission, Transport, unreachable};
use clockwork_wire::rpc::{self, ReplyBody};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// What a connection must know.
#[derive(Debug, Clone)]
pub(super) struct Setting {
    pub(super) target: SocketAddr,
    pub(super) options: Options,
}

struct Call {
    submission: Submission,
    is_sent: bool,
    give_up_at: Instant,
    /// UDP: time to the next retransmission.
    interval: Duration,
    retransmissions: u32,
}

/// The calls in flight on one connection, with their timers.
pub(super) struct Pending {
    setting: Setting,
    calls: HashMap<u32, Call>,
    /// (when, XID); timers of calls that are gone are dropped when they come up, so there is one at most per call and
    /// transmission.
    timers: BinaryHeap<Reverse<(Instant, u32)>>,
}

impl Pending {
    pub(super) fn new(setting: Setting) -> Self {
        Self { setting, calls: HashMap::new(), timers: BinaryHeap::new() }
    }

    /// Whether the connection has all the calls that it takes.
    pub(super) fn is_full(&self) -> bool {
        self.calls.len() >= self.setting.options.calls_in_flight_max
    }

    /// Takes a call in; it is not sent yet.
    pub(super) fn insert(&mut self, submission: Submission, now: Instant) -> u32 {
        let options = &self.setting.options;
        let (xid, give_up_at) = (submission.xid, now + options.call_timeout);
        let first = match options.transport {
            Transport::Tcp => give_up_at,
            Transport::Udp => give_up_at.min(now + options.udp_timeout),
        };
        self.timers.push(Reverse((first, xid)));
        let interval = options.udp_timeout;
        self.calls.insert(xid, Call { submission, is_sent: false, give_up_at, interval, retransmissions: 0 });
        xid
    }

    /// The message of a call, without record mark; `None` if it is answered already.
    pub(super) fn message(&self, xid: u32) -> Option<&[u8]> {
        self.calls.get(&xid).map(|call| call.submission.message.as_slice())
    }

    /// Notes that a call was handed to the socket. A call that was so before counts as sent again.
    pub(super) fn mark_sent(&mut self, xid: u32) {
        let Some(call) = self.calls.get_mut(&xid) else { return };
        call.retransmissions += u32::from(call.is_sent);
        call.is_sent = true;
    }

    /// XIDs of all calls in flight, the oldest first.
    pub(super) fn xids(&self) -> Vec<u32> {
        let mut xids: Vec<(Instant, u32)> =
            self.calls.iter().map(|(xid, call)| (call.give_up_at, *xid)).collect();
        xids.sort_unstable();
        xids.into_iter().map(|(_, xid)| xid).collect()
    }

    /// When [`Pending::expire`] has to be called next.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.timers.peek().map(|Reverse((at, _))| *at)
    }

    /// Gives up the calls whose time is over; XIDs that have to be sent again are returned.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<u32> {
        let mut again = Vec::new();
        while let Some(Reverse((at, xid))) = self.timers.peek().copied() {
            if at > now {
                break;
            }
            self.timers.pop();
            let Some(call) = self.calls.get_mut(&xid) else { continue };
            if call.give_up_at <= now {
                let error = CallError::TimedOut {
                    target: self.setting.target,
                    after: self.setting.options.call_timeout,
                    retransmissions: call.retransmissions,
                };
                self.finish(xid, Err(error));
                continue;
            }
            again.push(xid);
            call.interval = (call.interval * 2).min(self.setting.options.udp_timeout_max);
            let next = call.give_up_at.min(now + call.interval);
            self.timers.push(Reverse((next, xid)));
        }
        again
    }

    /// Takes a message from the server: answers its call, if there is one. A second reply to a call, or one to a call given up,
    /// finds none, as does anything that is no reply: those are dropped.
    pub(super) fn receive(&mut self, message: &[u8]) {
        let Some(xid) = rpc::xid(message).filter(|xid| self.calls.contains_key(xid)) else { return };
        let reply = match rpc::parse_reply(message) {
            Err(error) => Err(CallError::Malformed { reason: error.to_string() }),
            Ok(rpc::Reply { body: ReplyBody::Denied, .. }) => Err(CallError::Denied),
            Ok(rpc::Reply { body: ReplyBody::Accepted { stat: 0, results }, .. }) => {
                Ok((message.to_vec(), results))
            }
            Ok(rpc::Reply { body: ReplyBody::Accepted { stat, .. }, .. }) => {
                Err(CallError::NotAccepted { stat })
            }
        };
        self.finish(xid, reply);
    }

    /// Gives up all calls.
    pub(super) fn fail_all(&mut self, error: &std::io::Error) {
        for xid in self.xids() {
            self.finish(xid, Err(unreachable(self.setting.target, error)));
        }
        self.timers.clear();
    }

    fn finish(&mut self, xid: u32, reply: Result<Reply, CallError>) {
        if let Some(call) = self.calls.remove(&xid) {
            // The caller may have stopped waiting; then nobody wants the reply.
            let _ = call.submission.answer.send(reply);
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        for xid in self.xids() {
            self.finish(xid, Err(CallError::Closed));
        }
    }
}
