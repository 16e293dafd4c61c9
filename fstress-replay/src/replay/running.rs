//! A replay while it runs: the thread that paces it, the answers, the hours.

use super::{Counts, Event, OnEvent, Prepared, ReplayError, Stop, pace};
use crate::client::nfs::read_data;
use crate::client::{Answer, CallError, Reply, message};
use crate::content::Content;
use crate::fileset;
use crate::measure::HourMeasure;
use crate::plan::{Operation, PlannedCall, Schedule};
use crate::report::{HourReport, ReplayReport, Summary};
use clockwork_wire::nfs3::{self, Procedure, Results, status};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Longest sleep of the pacing thread, so that a stop is noticed soon.
const SLEEP_MAX: Duration = Duration::from_millis(50);
/// Time between two events with counts.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);
/// How often the end of a replay looks whether all calls are answered.
const DRAIN_POLL: Duration = Duration::from_millis(5);
/// After a stop, calls get no longer than this to be answered.
const DRAIN_STOPPED_MAX: Duration = Duration::from_secs(1);

impl Prepared {
    /// Replays from `start` on: the first hour begins then, so that the caller's periods can begin with it.
    ///
    /// # Errors
    /// The pacing thread cannot be started. Errors of single calls are in the report.
    pub async fn run(
        self,
        start: Instant,
        stop: &Stop,
        on_event: &OnEvent,
    ) -> Result<ReplayReport, ReplayError> {
        let run = Arc::new(Run::new(self));
        let (ended, end) = oneshot::channel();
        let (pacing, stop_pacing, on_event) = (Arc::clone(&run), stop.clone(), Arc::clone(on_event));
        std::thread::Builder::new()
            .name("replay-pacing".into())
            .spawn(move || {
                let result = pacing.pace(start, &stop_pacing, &on_event);
                // If nobody waits for the end any more, there is nothing to tell.
                let _ = ended.send(result);
            })
            .map_err(|error| ReplayError::Pacing { reason: error.to_string() })?;
        // Whoever drops this future stops the replay.
        let mut guard = StopOnDrop(Some(stop.clone()));
        let ended = end.await;
        guard.0 = None;
        ended.map_err(|_| ReplayError::Pacing { reason: "it ended early".into() })??;
        let stopped_after = stop.is_stopped().then(|| start.elapsed());
        let drain = run.shared.spec.drain;
        let until =
            Instant::now() + if stopped_after.is_some() { drain.min(DRAIN_STOPPED_MAX) } else { drain };
        while run.outstanding.load(Ordering::Acquire) > 0 && Instant::now() < until {
            tokio::time::sleep(DRAIN_POLL).await;
        }
        Ok(run.finish(stopped_after))
    }
}

struct StopOnDrop(Option<Stop>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        if let Some(stop) = &self.0 {
            stop.stop();
        }
    }
}

/// A replay that is running: shared by the pacing thread and the answers.
struct Run {
    shared: Prepared,
    contents: Vec<Content>,
    outstanding: AtomicUsize,
    record: Mutex<Record>,
}

/// What has been measured so far.
#[derive(Default)]
struct Record {
    /// Hours with calls that are to come or outstanding; few, because the outstanding calls are bounded.
    open: BTreeMap<u32, HourMeasure>,
    closed: BTreeMap<u32, HourReport>,
    total: HourMeasure,
    answered: u64,
    errors: u64,
    sum_ms: f64,
    /// Answers that come after the end belong nowhere.
    finished: bool,
}

impl Run {
    fn new(shared: Prepared) -> Self {
        let contents = shared.spec.workload.files().iter().map(|file| Content::of(&file.path)).collect();
        Self { shared, contents, outstanding: AtomicUsize::new(0), record: Mutex::default() }
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        // A panic elsewhere does not make counts wrong.
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pacing thread: sends every call at its time.
    fn pace(self: &Arc<Self>, start: Instant, stop: &Stop, on_event: &OnEvent) -> Result<(), ReplayError> {
        let spec = &self.shared.spec;
        let pace = pace(spec);
        let length = pace.hour_length;
        // The longest that calls of a request come after its hour.
        let tail = pace.mapping.call_gap() * pace.mapping.reads_max.saturating_add(3);
        let mut progress =
            Pulse { start, whole: length * u32::try_from(spec.hours.len()).unwrap_or(1), last: start };
        let mut next_hour = spec.hours.start;
        let mut begin_hour = |upto: u32, progress: &mut Pulse| {
            while next_hour <= upto && !stop.is_stopped() {
                let index = next_hour - spec.hours.start;
                self.wait(start + length * index, stop, on_event, progress);
                if !stop.is_stopped() {
                    self.record().open.entry(next_hour).or_default();
                    let hours = u32::try_from(spec.hours.len()).unwrap_or(u32::MAX);
                    on_event(Event::Hour { hour: next_hour, index, hours });
                }
                next_hour += 1;
            }
        };
        for call in Schedule::new(&spec.workload, pace)? {
            begin_hour(call.hour, &mut progress);
            self.wait(start + call.due, stop, on_event, &mut progress);
            if stop.is_stopped() {
                return Ok(());
            }
            self.send(&call, start + call.due);
            if call.first {
                self.close(|hour| length * (hour + 1 - spec.hours.start) + tail < call.due);
            }
        }
        // Hours without requests, and the rest of the last one, last as long as any.
        begin_hour(spec.hours.end - 1, &mut progress);
        self.wait(start + progress.whole, stop, on_event, &mut progress);
        Ok(())
    }

    /// Sleeps until `due`, telling of progress now and then.
    fn wait(&self, due: Instant, stop: &Stop, on_event: &OnEvent, pulse: &mut Pulse) {
        loop {
            let now = Instant::now();
            if now.duration_since(pulse.last) >= PROGRESS_EVERY {
                pulse.last = now;
                on_event(Event::Calls(self.counts(pulse, now)));
            }
            let left = due.saturating_duration_since(now);
            if left.is_zero() || stop.is_stopped() {
                return;
            }
            std::thread::sleep(left.min(SLEEP_MAX));
        }
    }

    fn counts(&self, pulse: &Pulse, now: Instant) -> Counts {
        let record = self.record();
        let open = record.open.values();
        let (wanted, not_sent) = open.fold((record.total.wanted, record.total.not_sent), |sum, hour| {
            (sum.0 + hour.wanted, sum.1 + hour.not_sent)
        });
        let whole = pulse.whole.as_secs_f64().max(1e-9);
        Counts {
            part: (now.saturating_duration_since(pulse.start).as_secs_f64() / whole).min(1.0),
            wanted,
            answered: record.answered,
            errors: record.errors,
            not_sent,
            outstanding: self.outstanding.load(Ordering::Relaxed),
            mean_ms: if record.answered > 0 { record.sum_ms / record.answered as f64 } else { 0.0 },
        }
    }

    /// Hands one call to the client, or counts why not.
    fn send(self: &Arc<Self>, call: &PlannedCall, due: Instant) {
        let Some(operation) = call.operation else { return };
        {
            let mut record = self.record();
            let hour = record.open.entry(call.hour).or_default();
            hour.wanted += 1;
            hour.requests_due += u64::from(call.first);
            if self.outstanding.load(Ordering::Acquire) >= self.shared.spec.outstanding_max {
                hour.not_sent += 1;
                return;
            }
            // Counted before it is sent: the answer may come before this thread goes on.
            hour.requests += u64::from(call.first);
            hour.outstanding += 1;
            hour.operation(operation).called += 1;
        }
        self.outstanding.fetch_add(1, Ordering::AcqRel);
        let (run, planned) = (Arc::clone(self), *call);
        let on_answer = Box::new(move |answer: Answer<'_>| {
            run.answered(&planned, operation, due, &answer);
            run.outstanding.fetch_sub(1, Ordering::AcqRel);
        });
        if self.shared.client.submit(self.message(call, operation), on_answer).is_err() {
            self.outstanding.fetch_sub(1, Ordering::AcqRel);
            let mut record = self.record();
            let hour = record.open.entry(call.hour).or_default();
            hour.not_sent += 1;
            hour.requests -= u64::from(call.first);
            hour.outstanding -= 1;
            hour.operation(operation).called -= 1;
        }
    }

    fn message(&self, call: &PlannedCall, operation: Operation) -> Vec<u8> {
        let index = call.file as usize;
        let (file, directory) = (&self.shared.handles.files[index], &self.shared.handles.directories[index]);
        let mut out = self.shared.client.begin(nfs3::PROGRAM, nfs3::VERSION, procedure(operation).number());
        match operation {
            Operation::Lookup => {
                let path = &self.shared.spec.workload.files()[index].path;
                message::name(&mut out, directory, fileset::file_name(path));
            }
            Operation::Access => message::access(&mut out, file),
            Operation::Getattr => message::handle(&mut out, file),
            Operation::Read => message::read(&mut out, file, call.offset, call.count),
        }
        out
    }

    fn answered(&self, call: &PlannedCall, operation: Operation, due: Instant, answer: &Answer<'_>) {
        let verdict = match &answer.reply {
            Ok(reply) => self.judge(call, operation, reply),
            Err(error) => Err(kind(error)),
        };
        let response = answer.answered_at.saturating_duration_since(due);
        let mut record = self.record();
        if record.finished {
            return;
        }
        record.answered += 1;
        record.errors += u64::from(verdict.is_err());
        record.sum_ms += response.as_secs_f64() * 1e3;
        let hour = record.open.entry(call.hour).or_default();
        hour.outstanding = hour.outstanding.saturating_sub(1);
        if let Some(sent_at) = answer.sent_at {
            hour.lag.record(sent_at.saturating_duration_since(due));
        }
        let counts = hour.operation(operation);
        counts.retransmissions += u64::from(answer.retransmissions);
        counts.times.record(response);
        match verdict {
            Ok(()) => counts.good += 1,
            Err(what) => {
                counts.errors += 1;
                hour.error(&format!("{} {what}", operation.name()));
            }
        }
    }

    /// Whether a reply is what it should be; the error says what it is instead.
    fn judge(&self, call: &PlannedCall, operation: Operation, reply: &Reply<'_>) -> Result<(), &'static str> {
        let index = call.file as usize;
        let results = nfs3::results(procedure(operation), reply.message, reply.results)
            .map_err(|_| "malformed results")?;
        match results {
            Results::Failed { status } => Err(status::name(status)),
            Results::Lookup { handle, .. }
                if reply.message[handle.clone()] != *self.shared.handles.files[index] =>
            {
                Err("another handle than at the start")
            }
            Results::Getattr { attributes_at } => {
                let bytes = self.shared.spec.workload.files()[index].bytes;
                match nfs3::attributes(reply.message, attributes_at) {
                    Some(attributes) if attributes.size == bytes => Ok(()),
                    _ => Err("another size than in the workload"),
                }
            }
            Results::Read { .. } => {
                let data = read_data(reply.message, reply.results).map_err(|_| "malformed results")?;
                if data.len() != call.count as usize {
                    return Err("less data than asked for");
                }
                let right = !self.shared.spec.verify
                    || self.contents[index].matches(&reply.message[data], call.offset);
                if right { Ok(()) } else { Err("data that is not the file's") }
            }
            _ => Ok(()),
        }
    }

    /// Closes the hours that are over and have no call outstanding: their histograms are summed up and dropped.
    fn close(&self, is_over: impl Fn(u32) -> bool) {
        let mut record = self.record();
        let over = |(hour, measure): (&u32, &HourMeasure)| {
            (is_over(*hour) && measure.outstanding == 0).then_some(*hour)
        };
        let hours: Vec<u32> = record.open.iter().filter_map(over).collect();
        for hour in hours {
            self.close_hour(&mut record, hour, 1.0);
        }
    }

    /// Closes an hour of which a `part` was replayed, 1 for all of it.
    fn close_hour(&self, record: &mut Record, hour: u32, part: f64) {
        let Some(measure) = record.open.remove(&hour) else { return };
        record.total.add(&measure);
        let spec = &self.shared.spec;
        let expected = spec.workload.requests(hour).unwrap_or(0.0) * spec.rate_factor;
        let summary = Summary::of(&measure, spec.seconds_per_hour * part, expected * part);
        record.closed.insert(hour, HourReport { hour, complete: part >= 1.0, summary });
    }

    fn finish(&self, stopped_after: Option<Duration>) -> ReplayReport {
        let spec = &self.shared.spec;
        let mut record = self.record();
        record.finished = true;
        let open: Vec<u32> = record.open.keys().copied().collect();
        for hour in open {
            let begin = f64::from(hour - spec.hours.start) * spec.seconds_per_hour;
            let part =
                stopped_after.map_or(1.0, |after| (after.as_secs_f64() - begin) / spec.seconds_per_hour);
            self.close_hour(&mut record, hour, part.clamp(0.0, 1.0));
        }
        let hours: Vec<HourReport> = std::mem::take(&mut record.closed).into_values().collect();
        let sum = |field: fn(&Summary) -> f64| hours.iter().map(|hour| field(&hour.summary)).sum();
        let total = Summary::of(&record.total, sum(|s| s.seconds), sum(|s| s.requests_expected));
        let mut report = ReplayReport {
            target: spec.target.to_string(),
            transport: spec.client.transport,
            sites: spec.workload.sites().iter().map(|site| site.name.clone()).collect(),
            files: spec.workload.files().len(),
            seconds_per_hour: spec.seconds_per_hour,
            rate_factor: spec.rate_factor,
            mapping: spec.mapping,
            saturated: total.not_sent > 0,
            interrupted: stopped_after.is_some(),
            valid: true,
            invalid_reasons: Vec::new(),
            lag_ms_max: spec.lag_max.as_secs_f64() * 1e3,
            total,
            hours,
        };
        report.judge();
        report
    }
}

/// When progress was told last, and of what.
struct Pulse {
    start: Instant,
    whole: Duration,
    last: Instant,
}

fn procedure(operation: Operation) -> Procedure {
    match operation {
        Operation::Lookup => Procedure::Lookup,
        Operation::Access => Procedure::Access,
        Operation::Getattr => Procedure::Getattr,
        Operation::Read => Procedure::Read,
    }
}

fn kind(error: &CallError) -> &'static str {
    match error {
        CallError::Unreachable { .. } => "no connection",
        CallError::TimedOut { .. } => "no reply in time",
        CallError::Full { .. } => "too many calls in flight",
        CallError::Denied => "denied",
        CallError::NotAccepted { .. } => "not accepted by the server's RPC",
        CallError::Malformed { .. } => "malformed reply",
        CallError::Closed => "client closed",
    }
}
