//! Open-loop replay: calls go out at their deadlines, whatever the server does, and every one is accounted for.
//!
//! A thread of its own paces the calls: tokio's timers round to a millisecond, a sleeping thread does not. What is due is
//! handed to the client's connections without waiting. The number of calls outstanding is bounded by
//! [`ReplaySpec::outstanding_max`]; what comes due beyond it is counted as not sent and the report marked as saturated.

use crate::client::nfs::{self, NfsError, Sizes, read_data};
use crate::client::{Answer, CallError, Client, Options, Reply, message};
use crate::content::Content;
use crate::fileset::{self, FilesetError, Handles};
use crate::measure::HourMeasure;
use crate::plan::{Mapping, Operation, Pace, PlannedCall, Schedule};
use crate::report::{HourReport, ReplayReport, Summary};
use clockwork_traces::workload::{Workload, WorkloadError};
use clockwork_wire::nfs3::{self, Procedure, Results, status};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
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

/// What is replayed against which server.
#[derive(Debug, Clone)]
pub struct ReplaySpec {
    /// The server's NFS port.
    pub target: SocketAddr,
    /// The server's MOUNT port; often the same.
    pub mount: SocketAddr,
    /// The export to mount.
    pub export: String,
    /// Transport, connections, time-outs, credential.
    pub client: Options,
    /// The workload.
    pub workload: Arc<Workload>,
    /// Its hours to replay.
    pub hours: Range<u32>,
    /// What an hour becomes, in seconds.
    pub seconds_per_hour: f64,
    /// Requests are this times the workload's; [`Mapping::factor_for_mean`] and [`Mapping::factor_for_peak`] give the factor
    /// for a rate of NFS calls.
    pub rate_factor: f64,
    /// How a request becomes calls.
    pub mapping: Mapping,
    /// Most calls without an answer at any time; what comes due beyond it is not sent.
    pub outstanding_max: usize,
    /// How long to wait for answers after the last call was sent.
    pub drain: Duration,
    /// Whether the data of every READ is compared with what the file set has.
    pub verify: bool,
}

impl ReplaySpec {
    /// The day from hour 622 of a workload, five seconds an hour, at about 500 NFS calls a second in the mean, over TCP,
    /// NFS and MOUNT on one port. All of it can be changed.
    #[must_use]
    pub fn new(target: SocketAddr, export: impl Into<String>, workload: Arc<Workload>) -> Self {
        let (hours, seconds_per_hour, mapping) = (622..646, 5.0, Mapping::default());
        let factor = mapping.factor_for_mean(&workload, hours.clone(), seconds_per_hour, 500.0);
        Self {
            target,
            mount: target,
            export: export.into(),
            client: Options::default(),
            workload,
            hours,
            seconds_per_hour,
            // A workload without these hours is refused when the replay begins, whatever the factor.
            rate_factor: factor.unwrap_or(0.05),
            mapping,
            outstanding_max: 8_192,
            drain: Duration::from_secs(10),
            verify: true,
        }
    }
}

/// Why there is no replay.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The server cannot be reached.
    #[error(transparent)]
    Client(#[from] CallError),
    /// MOUNT or FSINFO failed.
    #[error("export {export:?}: {source}")]
    Export {
        /// The export asked for.
        export: String,
        /// What went wrong.
        source: Box<NfsError>,
    },
    /// The files are not there, or not right.
    #[error(transparent)]
    Fileset(#[from] FilesetError),
    /// The workload lacks an hour, or the factor makes no sense.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// A setting that makes no sense.
    #[error("{setting} is {value}: {allowed}")]
    Setting {
        /// Which.
        setting: &'static str,
        /// Its value.
        value: String,
        /// What is allowed.
        allowed: &'static str,
    },
    /// The pacing thread could not be started or ended early.
    #[error("the pacing thread: {reason}")]
    Pacing {
        /// What the system said.
        reason: String,
    },
}

/// Stops a replay; clones stop the same one.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Stops the replay: no further call is sent, and what was measured is reported.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was stopped.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a replay tells while it runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Event {
    /// Files being looked up or made.
    Files(fileset::Progress),
    /// An hour begins.
    Hour {
        /// The hour of the workload.
        hour: u32,
        /// How many came before it.
        index: u32,
        /// How many there are.
        hours: u32,
    },
    /// Counts since the start, every 200 ms.
    Calls(Counts),
}

/// Counts since the start of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Counts {
    /// Part of the replay's time that is gone, 0 to 1.
    pub part: f64,
    /// Calls that came due.
    pub wanted: u64,
    /// Calls answered.
    pub answered: u64,
    /// Calls answered otherwise than they should be, or given up.
    pub errors: u64,
    /// Calls not sent.
    pub not_sent: u64,
    /// Calls without an answer at this moment.
    pub outstanding: usize,
    /// Mean response time so far in ms.
    pub mean_ms: f64,
}

/// What is told about progress; called from several threads.
pub type OnEvent = Arc<dyn Fn(Event) + Send + Sync>;

/// A replay with its server mounted and its files found, ready to start at a moment of the caller's choice.
#[derive(Debug)]
pub struct Prepared {
    spec: ReplaySpec,
    client: Arc<Client>,
    handles: Handles,
}

/// Mounts the export and makes the file set on it; how many files had to be written is returned.
///
/// # Errors
/// See [`ReplayError`].
pub async fn create_files(spec: &ReplaySpec, on_event: &OnEvent) -> Result<usize, ReplayError> {
    let (client, root, sizes) = attach(spec).await?;
    let progress = |progress| on_event(Event::Files(progress));
    Ok(fileset::create(&client, &root, sizes, &spec.workload, &progress).await?)
}

/// Mounts the export and finds the files.
///
/// # Errors
/// See [`ReplayError`].
pub async fn prepare(mut spec: ReplaySpec, on_event: &OnEvent) -> Result<Prepared, ReplayError> {
    check(&spec)?;
    let (client, root, sizes) = attach(&spec).await?;
    spec.mapping.read_bytes = spec.mapping.read_bytes.min(sizes.read_bytes_max);
    let progress = |progress| on_event(Event::Files(progress));
    let handles = fileset::remote(&client, &root, &spec.workload, &progress).await?;
    Ok(Prepared { spec, client, handles })
}

/// Prepares a replay and runs it at once.
///
/// # Errors
/// See [`ReplayError`].
pub async fn run(spec: ReplaySpec, stop: &Stop, on_event: &OnEvent) -> Result<ReplayReport, ReplayError> {
    let prepared = prepare(spec, on_event).await?;
    prepared.run(Instant::now(), stop, on_event).await
}

fn check(spec: &ReplaySpec) -> Result<(), ReplayError> {
    let wrong = |setting, value: &dyn std::fmt::Display, allowed| {
        Err(ReplayError::Setting { setting, value: value.to_string(), allowed })
    };
    if !(0.001..=1e6).contains(&spec.seconds_per_hour) {
        return wrong("seconds per hour", &spec.seconds_per_hour, "from 0.001 to 1000000");
    }
    if !(spec.rate_factor > 0.0 && spec.rate_factor.is_finite()) {
        return wrong("rate factor", &spec.rate_factor, "a number greater than 0");
    }
    if spec.hours.is_empty() {
        return wrong("number of hours", &0, "at least one hour");
    }
    if spec.mapping.read_bytes < 512 {
        return wrong("bytes of a READ", &spec.mapping.read_bytes, "at least 512");
    }
    if spec.outstanding_max == 0 {
        return wrong("most calls outstanding", &0, "at least 1");
    }
    Schedule::new(&spec.workload, pace(spec))?;
    Ok(())
}

fn pace(spec: &ReplaySpec) -> Pace {
    Pace {
        hours: spec.hours.clone(),
        hour_length: Duration::from_secs_f64(spec.seconds_per_hour),
        factor: spec.rate_factor,
        mapping: spec.mapping,
    }
}

/// A client with the root of the export and the server's sizes.
async fn attach(spec: &ReplaySpec) -> Result<(Arc<Client>, nfs::Handle, Sizes), ReplayError> {
    let client = Client::connect(spec.target, spec.client.clone()).await?;
    let failed = |source| ReplayError::Export { export: spec.export.clone(), source: Box::new(source) };
    let root = if spec.mount == spec.target {
        nfs::mount(&client, &spec.export).await
    } else {
        let mounter = Client::connect(spec.mount, Options { connections: 1, ..spec.client.clone() }).await?;
        nfs::mount(&mounter, &spec.export).await
    };
    let root = root.map_err(failed)?;
    let sizes = nfs::fsinfo(&client, &root).await.map_err(failed)?;
    Ok((Arc::new(client), root, sizes))
}

impl Prepared {
    /// What will be replayed; READs may have become smaller than asked for, if the server takes no more.
    #[must_use]
    pub fn spec(&self) -> &ReplaySpec {
        &self.spec
    }

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
            hour.operation(call.operation).called += 1;
        }
        self.outstanding.fetch_add(1, Ordering::AcqRel);
        let (run, planned) = (Arc::clone(self), *call);
        let on_answer = Box::new(move |answer: Answer<'_>| {
            run.answered(&planned, due, &answer);
            run.outstanding.fetch_sub(1, Ordering::AcqRel);
        });
        if self.shared.client.submit(self.message(call), on_answer).is_err() {
            self.outstanding.fetch_sub(1, Ordering::AcqRel);
            let mut record = self.record();
            let hour = record.open.entry(call.hour).or_default();
            hour.not_sent += 1;
            hour.requests -= u64::from(call.first);
            hour.outstanding -= 1;
            hour.operation(call.operation).called -= 1;
        }
    }

    fn message(&self, call: &PlannedCall) -> Vec<u8> {
        let index = call.file as usize;
        let (file, directory) = (&self.shared.handles.files[index], &self.shared.handles.directories[index]);
        let mut out =
            self.shared.client.begin(nfs3::PROGRAM, nfs3::VERSION, procedure(call.operation).number());
        match call.operation {
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

    fn answered(&self, call: &PlannedCall, due: Instant, answer: &Answer<'_>) {
        let verdict = match &answer.reply {
            Ok(reply) => self.judge(call, reply),
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
        let operation = hour.operation(call.operation);
        operation.retransmissions += u64::from(answer.retransmissions);
        operation.times.record(response);
        match verdict {
            Ok(()) => operation.good += 1,
            Err(what) => {
                operation.errors += 1;
                hour.error(&format!("{} {what}", call.operation.name()));
            }
        }
    }

    /// Whether a reply is what it should be; the error says what it is instead.
    fn judge(&self, call: &PlannedCall, reply: &Reply<'_>) -> Result<(), &'static str> {
        let index = call.file as usize;
        let results = nfs3::results(procedure(call.operation), reply.message, reply.results)
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
        ReplayReport {
            target: spec.target.to_string(),
            transport: spec.client.transport,
            sites: spec.workload.sites().iter().map(|site| site.name.clone()).collect(),
            files: spec.workload.files().len(),
            seconds_per_hour: spec.seconds_per_hour,
            rate_factor: spec.rate_factor,
            mapping: spec.mapping,
            saturated: total.not_sent > 0,
            interrupted: stopped_after.is_some(),
            total,
            hours,
        }
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
