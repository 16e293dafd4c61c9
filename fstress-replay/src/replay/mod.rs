//! Open-loop replay: calls go out at their deadlines, whatever the server does, and every one is accounted for.
//!
//! A thread of its own paces the calls: tokio's timers round to a millisecond, a sleeping thread does not. What is due is
//! handed to the client's connections without waiting. The number of calls outstanding is bounded by
//! [`ReplaySpec::outstanding_max`]; what comes due beyond it is counted as not sent and the report marked as saturated.

mod running;

use crate::client::nfs::{self, NfsError, Sizes};
use crate::client::{CallError, Client, Options};
use crate::fileset::{self, FilesetError, Handles};
use crate::plan::{Mapping, Model, Pace, Schedule};
use crate::report::ReplayReport;
use clockwork_traces::workload::{Workload, WorkloadError};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

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
    /// Send lag, quantile .99, beyond which the replay is invalid.
    pub lag_max: Duration,
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
            lag_max: Duration::from_millis(5),
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
    #[error("export {export:?}: {cause}")]
    Export {
        /// The export asked for.
        export: String,
        /// What went wrong.
        cause: Box<NfsError>,
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
        model: Model::Calls,
        warmup: Duration::ZERO,
        cooldown: Duration::ZERO,
        bytes: None,
    }
}

/// A client with the root of the export and the server's sizes.
async fn attach(spec: &ReplaySpec) -> Result<(Arc<Client>, nfs::Handle, Sizes), ReplayError> {
    let client = Client::connect(spec.target, spec.client.clone()).await?;
    let failed = |cause| ReplayError::Export { export: spec.export.clone(), cause: Box::new(cause) };
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
    /// The handles of the workload's files, as the server gave them.
    #[must_use]
    pub fn handles(&self) -> &Handles {
        &self.handles
    }

    /// What will be replayed; READs may have become smaller than asked for, if the server takes no more.
    #[must_use]
    pub fn spec(&self) -> &ReplaySpec {
        &self.spec
    }
}
