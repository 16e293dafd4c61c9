//! A lane: one thread that paces its part of the calls, sends them over its links and takes the replies.
//!
//! Nothing is shared with other lanes but what a file set needs (where the next append goes) and counts for the progress
//! bar. All that is due is written with one system call a link, all that has come is read with one more, and then the
//! thread sleeps until the next call is due or a reply comes.

use super::account::{Account, Outcome, Phases};
use super::arrivals::Arrivals;
use super::call::{Course, StressCall, Verdict, judge};
use super::distribution::Weighted;
use super::files::Target;
use super::link::Link;
use crate::client::{Options, Transport};
use crate::replay::Stop;
use clockwork_wire::nfs3;
use clockwork_wire::rpc::{self, ReplyBody};
use rand_chacha::ChaCha8Rng;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Calls made before they are sent and replies are looked for.
const BATCH: usize = 256;
/// How often timers are looked at.
const TICK: Duration = Duration::from_millis(20);
/// Longest sleep, so that a stop is noticed soon.
const SLEEP_MAX: Duration = Duration::from_millis(50);
/// After a stop, calls get no longer than this to be answered.
const DRAIN_STOPPED_MAX: Duration = Duration::from_secs(1);

/// When calls come.
pub(super) enum Source {
    /// Open loop: at these times.
    Open(Box<Arrivals>),
    /// Closed loop: whenever fewer than so many are on their way.
    Closed(usize),
}

/// Counts since the start, for the progress bar.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) wanted: AtomicU64,
    pub(super) answered: AtomicU64,
    pub(super) errors: AtomicU64,
}

/// What a lane needs to know.
pub(super) struct Setting {
    pub(super) targets: Arc<Vec<Target>>,
    pub(super) options: Options,
    pub(super) credential: Vec<u8>,
    pub(super) outstanding_max: usize,
    pub(super) drain: Duration,
    pub(super) verify: bool,
    pub(super) phases: Phases,
    pub(super) tally: Arc<Tally>,
    pub(super) stop: Stop,
}

/// A call in flight.
#[derive(Clone, Copy)]
struct Slot {
    xid: u32,
    call: StressCall,
    link: usize,
    due: Duration,
    is_sent: bool,
    retransmissions: u32,
    /// From the start: when to send it again (UDP), and when to give it up.
    again_at: Duration,
    interval: Duration,
    give_up_at: Duration,
}

pub(super) struct Lane {
    setting: Setting,
    links: Vec<Link>,
    courses: Vec<Course>,
    profiles: Weighted,
    rng: ChaCha8Rng,
    /// Calls in flight by XID modulo the length, a power of two. A place that is taken is skipped, so that XIDs return late.
    slots: Vec<Option<Slot>>,
    in_flight: usize,
    next_xid: u32,
    next_link: usize,
    account: Account,
    start: Instant,
    sent: Vec<u32>,
}

impl Lane {
    pub(super) fn new(setting: Setting, links: Vec<Link>, courses: Vec<Course>, rng: ChaCha8Rng) -> Self {
        let places = (setting.outstanding_max * 2).next_power_of_two();
        Self {
            account: Account::new(setting.phases),
            profiles: Weighted::new(setting.targets.iter().map(|target| target.weight)),
            setting,
            links,
            courses,
            rng,
            slots: vec![None; places],
            in_flight: 0,
            // Servers remember XIDs for a while: two runs in a row must not use the same ones.
            next_xid: rand::random(),
            next_link: 0,
            start: Instant::now(),
            sent: Vec::new(),
        }
    }

    /// Runs from `start` on until the last call is answered or given up.
    pub(super) fn run(mut self, start: Instant, mut source: Source) -> (Account, Vec<Course>) {
        self.start = start;
        let whole = self.setting.phases.whole();
        let mut next = None;
        let mut drain_until = None;
        let mut tick = Duration::ZERO;
        loop {
            let now = self.elapsed();
            if drain_until.is_none() {
                let is_stopped = self.setting.stop.is_stopped();
                let over = self.issue(&mut source, &mut next, now, whole);
                if over || is_stopped {
                    let drain = self.setting.drain;
                    drain_until = Some(now + if is_stopped { drain.min(DRAIN_STOPPED_MAX) } else { drain });
                }
            }
            self.flush();
            if now >= tick {
                tick = now + TICK;
                self.timers(now);
            }
            if drain_until.is_some_and(|until| self.in_flight == 0 || now >= until) {
                break;
            }
            self.wait(next.filter(|_| drain_until.is_none()), tick);
        }
        for slot in self.slots.iter().flatten() {
            self.account.unanswered(slot.call.target, slot.call.operation, slot.due);
        }
        (self.account, self.courses)
    }

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Makes the calls that are due; whether all have been.
    fn issue(
        &mut self,
        source: &mut Source,
        next: &mut Option<Duration>,
        now: Duration,
        whole: Duration,
    ) -> bool {
        match source {
            Source::Open(arrivals) => {
                for _ in 0..BATCH {
                    if next.is_none() {
                        *next = arrivals.next();
                    }
                    match *next {
                        None => return true,
                        Some(due) if due > now => return false,
                        Some(due) => self.make(due, now),
                    }
                    *next = None;
                }
                // There may be more that is due now: no sleep.
                *next = next.or_else(|| arrivals.next());
                false
            }
            Source::Closed(most) => {
                if now >= whole {
                    return true;
                }
                // Before the start there is nothing to do but wait for it.
                if Instant::now() < self.start {
                    *next = Some(Duration::ZERO);
                    return false;
                }
                *next = None;
                while self.in_flight < *most {
                    self.make(now, now);
                }
                false
            }
        }
    }

    fn make(&mut self, due: Duration, now: Duration) {
        self.setting.tally.wanted.fetch_add(1, Ordering::Relaxed);
        let link = self.next_link;
        self.next_link = (link + 1) % self.links.len();
        if self.in_flight >= self.setting.outstanding_max || !self.links[link].has_room() {
            self.account.due(due, false);
            return;
        }
        self.account.due(due, true);
        let profile = self.profiles.draw(&mut self.rng);
        let call = self.courses[profile].next(profile, &self.setting.targets[profile], &mut self.rng);
        self.account.called(call.target, call.operation, due);
        let xid = self.free_xid();
        let options = &self.setting.options;
        let give_up_at = now + options.call_timeout;
        let interval = options.udp_timeout;
        let again_at = match options.transport {
            Transport::Udp => now + interval,
            Transport::Tcp => give_up_at,
        };
        let slot =
            Slot { xid, call, link, due, is_sent: false, retransmissions: 0, again_at, interval, give_up_at };
        let place = self.place(xid);
        self.slots[place] = Some(slot);
        self.in_flight += 1;
        self.push(&slot);
    }

    fn place(&self, xid: u32) -> usize {
        xid as usize & (self.slots.len() - 1)
    }

    /// The next XID whose place is free; there is one, because there are twice as many places as calls.
    fn free_xid(&mut self) -> u32 {
        loop {
            self.next_xid = self.next_xid.wrapping_add(1);
            if self.slots[self.place(self.next_xid)].is_none() {
                return self.next_xid;
            }
        }
    }

    fn push(&mut self, slot: &Slot) {
        let (course, target) = (&self.courses[slot.call.target], &self.setting.targets[slot.call.target]);
        let credential = &self.setting.credential;
        self.links[slot.link].push(slot.xid, |out| {
            let procedure = slot.call.operation.procedure_number();
            rpc::begin_call(out, slot.xid, nfs3::PROGRAM, nfs3::VERSION, procedure, credential);
            course.write(&slot.call, target, out);
        });
    }

    fn flush(&mut self) {
        let mut sent = std::mem::take(&mut self.sent);
        for link in &mut self.links {
            link.flush(&mut sent);
        }
        if !sent.is_empty() {
            // After the write: what the system call takes is the generator's time, too.
            let now = self.elapsed();
            for xid in sent.drain(..) {
                let place = self.place(xid);
                if let Some(slot) = self.slots[place].as_mut().filter(|slot| slot.xid == xid) {
                    if slot.is_sent {
                        slot.retransmissions += 1;
                    } else {
                        slot.is_sent = true;
                        self.account.sent(slot.due, now);
                    }
                }
            }
        }
        self.sent = sent;
    }

    /// Sends again what has waited too long, gives up what has waited much too long, and takes back lost connections.
    fn timers(&mut self, now: Duration) {
        for place in 0..self.slots.len() {
            let Some(slot) = self.slots[place].as_mut() else { continue };
            if now >= slot.give_up_at {
                let copy = *slot;
                self.finish(&copy, Verdict::Wrong("no reply in time"), now);
            } else if now >= slot.again_at && slot.is_sent {
                slot.interval = (slot.interval * 2).min(self.setting.options.udp_timeout_max);
                slot.again_at = now + slot.interval;
                let copy = *slot;
                self.push(&copy);
            }
        }
        for link in 0..self.links.len() {
            if self.links[link].reconnected(self.start + now) {
                let mut waiting: Vec<Slot> =
                    self.slots.iter().flatten().filter(|slot| slot.link == link).copied().collect();
                waiting.sort_unstable_by_key(|slot| slot.due);
                waiting.iter().for_each(|slot| self.push(slot));
            }
        }
    }

    /// Sleeps until the next call is due, a timer has to be looked at, or there is something to read or room to write;
    /// then reads.
    fn wait(&mut self, next: Option<Duration>, tick: Duration) {
        let mut ready = Vec::with_capacity(self.links.len());
        {
            let mut sockets = Vec::with_capacity(self.links.len());
            for (index, link) in self.links.iter().enumerate() {
                if let Some((socket, must_write)) = link.interest() {
                    let flags = if must_write { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
                    sockets.push(PollFd::from_borrowed_fd(socket, flags));
                    ready.push((index, false));
                }
            }
            let until = next.map_or(tick, |due| due.min(tick));
            // Before the start, elapsed time reads zero.
            let now = Instant::now();
            let left = (self.start + until).saturating_duration_since(now).min(SLEEP_MAX);
            let timeout = Timespec {
                tv_sec: left.as_secs().try_into().unwrap_or(0),
                tv_nsec: left.subsec_nanos().into(),
            };
            // An interrupted poll is as good as one that found nothing.
            let found = poll(&mut sockets, Some(&timeout)).unwrap_or(0);
            if found > 0 {
                for (socket, (_, is_ready)) in sockets.iter().zip(&mut ready) {
                    *is_ready = socket.revents().intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR);
                }
            }
        }
        for (index, _) in ready.into_iter().filter(|(_, is_ready)| *is_ready) {
            self.receive(index);
        }
    }

    fn receive(&mut self, index: usize) {
        // The link is taken out so that it can lend the message while the lane looks at it.
        let Some(mut link) = self.take_link(index) else { return };
        let mut now = None;
        link.receive(|message| {
            let now = *now.get_or_insert_with(|| self.start.elapsed());
            self.reply(message, now);
        });
        self.links[index] = link;
    }

    fn take_link(&mut self, index: usize) -> Option<Link> {
        let link = self.links.get_mut(index)?;
        Some(std::mem::replace(link, Link::Absent))
    }

    /// A second reply to a call, or one to a call given up, finds no call and is dropped.
    fn reply(&mut self, message: &[u8], now: Duration) {
        let Some(xid) = rpc::xid(message) else { return };
        let Some(slot) = self.slots[self.place(xid)].filter(|slot| slot.xid == xid) else { return };
        let verdict = match rpc::parse_reply(message) {
            Err(_) => Verdict::Wrong("malformed reply"),
            Ok(reply) => match reply.body {
                ReplyBody::Denied => Verdict::Wrong("denied: the server does not take this credential"),
                ReplyBody::Accepted { stat: 0, results } => {
                    let target = &self.setting.targets[slot.call.target];
                    let again = slot.retransmissions > 0;
                    judge(&slot.call, target, (message, results), self.setting.verify, again)
                }
                // PROC_UNAVAIL: as good an answer as NOTSUPP.
                ReplyBody::Accepted { stat: 3, .. } => Verdict::Unsupported,
                ReplyBody::Accepted { .. } => Verdict::Wrong("not accepted by the server's RPC"),
            },
        };
        self.finish(&slot, verdict, now);
    }

    fn finish(&mut self, slot: &Slot, verdict: Verdict, now: Duration) {
        let place = self.place(slot.xid);
        self.slots[place] = None;
        self.in_flight -= 1;
        let call = &slot.call;
        self.courses[call.target].done(call, verdict == Verdict::Good);
        self.setting.tally.answered.fetch_add(1, Ordering::Relaxed);
        if matches!(verdict, Verdict::Wrong(_)) {
            self.setting.tally.errors.fetch_add(1, Ordering::Relaxed);
        }
        let count = u64::from(call.count);
        let is_read = call.operation.procedure() == Some(nfs3::Procedure::Read);
        self.account.answered(&Outcome {
            target: call.target,
            operation: call.operation,
            due: slot.due,
            answered: now,
            retransmissions: slot.retransmissions,
            verdict,
            bytes: if is_read { (count, 0) } else { (0, count) },
        });
    }
}
