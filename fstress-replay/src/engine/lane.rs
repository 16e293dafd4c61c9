//! A lane: one thread that paces its part of the calls, sends them over its links and takes the replies.
//!
//! Nothing is shared with other lanes but what their work needs (where the next append goes) and counts for progress.
//! All that is due is written with one system call a link, all that has come is read with one more, and then the thread
//! sleeps until the next call is due or a reply comes.

use super::Stop;
use super::link::Link;
use crate::client::{Options, Transport};
use clockwork_wire::nfs3;
use clockwork_wire::rpc::{self, ReplyBody};
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

/// What a lane calls, and what becomes of it. Times are from the start of the run.
pub(crate) trait Work: Send {
    /// A call on its way.
    type Call: Copy + PartialEq + Send;

    /// When the next call is due; `None`: none is to come.
    fn next_due(&mut self) -> Option<Duration>;

    /// The link that the next call must use; `None`: any.
    fn link(&self) -> Option<usize> {
        None
    }

    /// What is due: a call, if there is room for one.
    fn take(&mut self, due: Duration, has_room: bool) -> Taken<Self::Call>;

    /// The procedure of a call.
    fn procedure(&self, call: &Self::Call) -> u32;

    /// Appends the arguments of a call.
    fn write(&self, call: &Self::Call, out: &mut Vec<u8>);

    /// A call was handed to the socket for the first time.
    fn sent(&mut self, call: &Self::Call, due: Duration, now: Duration);

    /// A call was answered or given up; whether that was as it should be.
    fn answered(&mut self, call: &Self::Call, answer: &Answer<'_>) -> bool;

    /// A call had no answer at the end.
    fn unanswered(&mut self, call: &Self::Call, due: Duration);

    /// Comes every 20 ms.
    fn tick(&mut self) {}
}

/// What is done about something that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken<C> {
    /// It is called.
    Call(C),
    /// There is no room for it.
    Refused,
    /// It needs no call.
    Nothing,
}

/// What became of a call.
pub(crate) struct Answer<'a> {
    pub(crate) due: Duration,
    pub(crate) now: Duration,
    pub(crate) retransmissions: u32,
    pub(crate) reply: Reply<'a>,
}

/// A reply, or why there is none.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reply<'a> {
    /// The message, and where its results begin.
    Results(&'a [u8], usize),
    /// The server does not have the procedure.
    Unavailable,
    /// What went wrong.
    Fault(&'static str),
}

/// When calls come.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Source {
    /// Open loop: when the work says that they are due.
    Open,
    /// Closed loop: whenever fewer than so many are on their way, until some time after the start.
    Closed(usize, Duration),
}

/// Counts since the start, for progress.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) wanted: AtomicU64,
    pub(crate) not_sent: AtomicU64,
    pub(crate) answered: AtomicU64,
    pub(crate) errors: AtomicU64,
    pub(crate) response_us: AtomicU64,
}

/// What a lane needs to know.
#[derive(Debug, Clone)]
pub(crate) struct LaneSetting {
    pub(crate) options: Options,
    pub(crate) outstanding_max: usize,
    pub(crate) drain: Duration,
    pub(crate) tally: Arc<Tally>,
    pub(crate) stop: Stop,
}

/// A call in flight.
#[derive(Clone, Copy)]
struct Slot<C> {
    xid: u32,
    call: C,
    link: usize,
    due: Duration,
    is_sent: bool,
    retransmissions: u32,
    /// From the start: when to send it again (UDP), and when to give it up.
    again_at: Duration,
    interval: Duration,
    give_up_at: Duration,
}

/// One thread's part of a run.
pub(crate) struct Lane<W: Work> {
    work: W,
    setting: LaneSetting,
    credential: Vec<u8>,
    links: Vec<Link>,
    /// Calls in flight by XID modulo the length, a power of two. A place that is taken is skipped, so that XIDs return late.
    slots: Vec<Option<Slot<W::Call>>>,
    in_flight: usize,
    next_xid: u32,
    next_link: usize,
    start: Instant,
    sent: Vec<u32>,
}

impl<W: Work> Lane<W> {
    pub(crate) fn new(setting: LaneSetting, links: Vec<Link>, work: W) -> Self {
        let places = (setting.outstanding_max * 2).next_power_of_two();
        let mut credential = Vec::new();
        rpc::auth_sys(&mut credential, "fstress-replay", setting.options.uid, setting.options.gid);
        Self {
            work,
            setting,
            credential,
            links,
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
    pub(crate) fn run(mut self, start: Instant, source: Source) -> W {
        self.start = start;
        let mut drain_until = None;
        let mut tick = Duration::ZERO;
        loop {
            let now = self.elapsed();
            let is_stopped = self.setting.stop.is_stopped();
            // Replies may bring further calls, also after the last one that was planned.
            let next = if is_stopped { Next::Never } else { self.issue(source, now) };
            if matches!(next, Next::Never) && drain_until.is_none() {
                let drain = self.setting.drain;
                drain_until = Some(now + if is_stopped { drain.min(DRAIN_STOPPED_MAX) } else { drain });
            }
            self.flush();
            if now >= tick {
                tick = now + TICK;
                self.timers(now);
                self.work.tick();
            }
            if drain_until.is_some_and(|until| now >= until)
                || matches!(next, Next::Never) && self.in_flight == 0
            {
                break;
            }
            self.wait(&next, tick);
        }
        let work = &mut self.work;
        self.slots.iter().flatten().for_each(|slot| work.unanswered(&slot.call, slot.due));
        self.work
    }

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Makes the calls that are due, and says when the next one is.
    fn issue(&mut self, source: Source, now: Duration) -> Next {
        // Before the start, elapsed time reads zero.
        if Instant::now() < self.start {
            return Next::At(Duration::ZERO);
        }
        match source {
            Source::Open => {
                for _ in 0..BATCH {
                    match self.work.next_due() {
                        None => return Next::Never,
                        Some(due) if due > now => return Next::At(due),
                        Some(due) => self.make(due, now),
                    }
                }
                // There may be more that is due now: no sleep.
                self.work.next_due().map_or(Next::Never, Next::At)
            }
            Source::Closed(_, end) if now >= end => Next::Never,
            Source::Closed(most, _) => {
                while self.in_flight < most {
                    self.make(now, now);
                }
                Next::OnReply
            }
        }
    }

    fn make(&mut self, due: Duration, now: Duration) {
        let link = self.work.link().unwrap_or(self.next_link) % self.links.len();
        self.next_link = (self.next_link + 1) % self.links.len();
        let has_room = self.in_flight < self.setting.outstanding_max && self.links[link].has_room();
        let taken = self.work.take(due, has_room);
        let tally = &self.setting.tally;
        tally.wanted.fetch_add(u64::from(taken != Taken::Nothing), Ordering::Relaxed);
        tally.not_sent.fetch_add(u64::from(taken == Taken::Refused), Ordering::Relaxed);
        let Taken::Call(call) = taken else { return };
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

    fn push(&mut self, slot: &Slot<W::Call>) {
        let (work, credential) = (&self.work, &self.credential);
        self.links[slot.link].push(slot.xid, |out| {
            let procedure = work.procedure(&slot.call);
            rpc::begin_call(out, slot.xid, nfs3::PROGRAM, nfs3::VERSION, procedure, credential);
            work.write(&slot.call, out);
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
                        self.work.sent(&slot.call, slot.due, now);
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
                self.finish(&copy, Reply::Fault("no reply in time"), now);
            } else if now >= slot.again_at && slot.is_sent {
                slot.interval = (slot.interval * 2).min(self.setting.options.udp_timeout_max);
                slot.again_at = now + slot.interval;
                let copy = *slot;
                self.push(&copy);
            }
        }
        for link in 0..self.links.len() {
            if self.links[link].reconnected(self.start + now) {
                let mut waiting: Vec<Slot<W::Call>> =
                    self.slots.iter().flatten().filter(|slot| slot.link == link).copied().collect();
                waiting.sort_unstable_by_key(|slot| slot.due);
                waiting.iter().for_each(|slot| self.push(slot));
            }
        }
    }

    /// Sleeps until the next call is due, a timer has to be looked at, or there is something to read or room to write;
    /// then reads.
    fn wait(&mut self, next: &Next, tick: Duration) {
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
            let until = match next {
                Next::At(due) => tick.min(*due),
                Next::OnReply | Next::Never => tick,
            };
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
        // What one read has brought came at one time, but datagrams are read one by one: no reply may be taken to have come
        // before it did.
        let is_one_read = link.is_one_read();
        let mut now = None;
        link.receive(|message| {
            let at = *now.get_or_insert_with(|| self.start.elapsed());
            self.reply(message, at);
            if !is_one_read {
                now = None;
            }
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
        let reply = match rpc::parse_reply(message) {
            Err(_) => Reply::Fault("malformed reply"),
            Ok(reply) => match reply.body {
                ReplyBody::Denied => Reply::Fault("denied: the server does not take this credential"),
                ReplyBody::Accepted { stat: 0, results } => Reply::Results(message, results),
                // PROC_UNAVAIL: as good an answer as NOTSUPP.
                ReplyBody::Accepted { stat: 3, .. } => Reply::Unavailable,
                ReplyBody::Accepted { .. } => Reply::Fault("not accepted by the server's RPC"),
            },
        };
        self.finish(&slot, reply, now);
    }

    fn finish(&mut self, slot: &Slot<W::Call>, reply: Reply<'_>, now: Duration) {
        let place = self.place(slot.xid);
        self.slots[place] = None;
        self.in_flight -= 1;
        let answer = Answer { due: slot.due, now, retransmissions: slot.retransmissions, reply };
        let is_right = self.work.answered(&slot.call, &answer);
        let tally = &self.setting.tally;
        let response_us = u64::try_from(now.saturating_sub(slot.due).as_micros()).unwrap_or(u64::MAX);
        tally.response_us.fetch_add(response_us, Ordering::Relaxed);
        tally.errors.fetch_add(u64::from(!is_right), Ordering::Relaxed);
        tally.answered.fetch_add(1, Ordering::Relaxed);
    }
}

/// When the next call is due.
enum Next {
    At(Duration),
    /// As soon as a reply has come.
    OnReply,
    /// None is to come, unless a reply brings one.
    Never,
}
