//! What a lane of a run by profile calls: drawn by weight, with courses of its own over the files.

use super::account::{Account, Outcome};
use super::arrivals::Arrivals;
use super::call::{Course, StressCall, Verdict, judge};
use super::distribution::Weighted;
use super::files::Target;
use crate::engine::{Answer, Reply, Taken, Work};
use clockwork_wire::nfs3::Procedure;
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;
use std::time::Duration;

pub(super) struct StressWork {
    targets: Arc<Vec<Target>>,
    profiles: Weighted,
    rng: ChaCha8Rng,
    verify: bool,
    /// `None` in a closed loop.
    arrivals: Option<Arrivals>,
    next: Option<Duration>,
    pub(super) courses: Vec<Course>,
    pub(super) account: Account,
}

impl StressWork {
    pub(super) fn new(
        targets: &Arc<Vec<Target>>,
        courses: Vec<Course>,
        account: Account,
        (rng, arrivals): (ChaCha8Rng, Option<Arrivals>),
        verify: bool,
    ) -> Self {
        Self {
            profiles: Weighted::new(targets.iter().map(|target| target.weight)),
            targets: Arc::clone(targets),
            rng,
            verify,
            arrivals,
            next: None,
            courses,
            account,
        }
    }
}

impl Work for StressWork {
    type Call = StressCall;

    fn next_due(&mut self) -> Option<Duration> {
        if self.next.is_none() {
            self.next = self.arrivals.as_mut().and_then(Iterator::next);
        }
        self.next
    }

    fn take(&mut self, due: Duration, has_room: bool) -> Taken<StressCall> {
        self.next = None;
        self.account.due(due, has_room);
        if !has_room {
            return Taken::Refused;
        }
        let profile = self.profiles.draw(&mut self.rng);
        let call = self.courses[profile].next(profile, &self.targets[profile], &mut self.rng);
        self.account.called(call.target, call.operation, due);
        Taken::Call(call)
    }

    fn procedure(&self, call: &StressCall) -> u32 {
        call.operation.procedure_number()
    }

    fn write(&self, call: &StressCall, out: &mut Vec<u8>) {
        self.courses[call.target].write(call, &self.targets[call.target], out);
    }

    fn sent(&mut self, _call: &StressCall, due: Duration, now: Duration) {
        self.account.sent(due, now);
    }

    fn answered(&mut self, call: &StressCall, answer: &Answer<'_>) -> bool {
        let verdict = match answer.reply {
            Reply::Fault(what) => Verdict::Wrong(what),
            Reply::Unavailable => Verdict::Unsupported,
            Reply::Results(message, results) => {
                let again = answer.retransmissions > 0;
                judge(call, &self.targets[call.target], (message, results), self.verify, again)
            }
        };
        self.courses[call.target].done(call, verdict == Verdict::Good);
        let count = u64::from(call.count);
        let is_read = call.operation.procedure() == Some(Procedure::Read);
        self.account.answered(&Outcome {
            target: call.target,
            operation: call.operation,
            due: answer.due,
            answered: answer.now,
            retransmissions: answer.retransmissions,
            verdict,
            bytes: if is_read { (count, 0) } else { (0, count) },
        });
        !matches!(verdict, Verdict::Wrong(_))
    }

    fn unanswered(&mut self, call: &StressCall, due: Duration) {
        self.account.unanswered(call.target, call.operation, due);
    }
}
