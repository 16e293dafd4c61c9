//! The engine of all load: lanes, each a thread with its own links, calls in flight and counts.
//!
//! What is called and what is counted is the lane's [`Work`]; the engine keeps the times: calls go out at their deadlines,
//! whatever the server does, in one write a link and batch, and are sent again, given up or bounded as [`RunSpec`] says.

mod lane;
mod link;

pub(crate) use lane::{Answer, Lane, LaneSetting, Reply, Source, Taken, Tally, Work};
pub(crate) use link::Link;

use crate::client::nfs::{self, Handle, NfsError, Sizes};
use crate::client::{CallError, Client, Options, Transport};
use crate::fileset::FilesetError;
use crate::stress::profile::ProfileError;
use clockwork_traces::workload::WorkloadError;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Most lanes.
const LANES_MAX: usize = 64;
/// Most connections.
const CONNECTIONS_MAX: usize = 1_024;
/// Most calls outstanding that may be asked for.
const OUTSTANDING_MAX: usize = 1 << 24;
/// Longest warm-up and cooldown.
const PHASE_MAX: Duration = Duration::from_secs(10_000_000);
/// Largest READ and WRITE over UDP, in bytes: one datagram holds it, and servers answer it.
const UDP_DATA_BYTES_MAX: u32 = 32 << 10;
/// How often the end of a run is looked for, and progress told.
const POLL: Duration = Duration::from_millis(20);

/// What all runs against a server have in common.
#[derive(Debug, Clone)]
pub struct RunSpec {
    /// The server's NFS port.
    pub target: SocketAddr,
    /// The server's MOUNT port; often the same.
    pub mount: SocketAddr,
    /// The export to mount.
    pub export: String,
    /// Transport, connections in all, time-outs, credential.
    pub client: Options,
    /// Threads; each has its part of the connections.
    pub lanes: usize,
    /// Load before what is measured.
    pub warmup: Duration,
    /// Load after it, so that its last calls meet the same load.
    pub cooldown: Duration,
    /// How long to wait for answers after the last call.
    pub drain: Duration,
    /// Most calls without an answer; what comes due beyond is not sent.
    pub outstanding_max: usize,
    /// Whether data that is read is checked.
    pub verify: bool,
    /// Send lag, quantile .99, beyond which the run is invalid.
    pub lag_max: Duration,
}

impl RunSpec {
    /// Over 4 TCP connections, NFS and MOUNT on one port, without warm-up and cooldown, data checked.
    #[must_use]
    pub fn new(target: SocketAddr, export: impl Into<String>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            target,
            mount: target,
            export: export.into(),
            client: Options::default(),
            lanes: cores.min(2),
            warmup: Duration::ZERO,
            cooldown: Duration::ZERO,
            drain: Duration::from_secs(10),
            outstanding_max: 8_192,
            verify: true,
            lag_max: Duration::from_millis(5),
        }
    }

    pub(crate) fn check(&self) -> Result<(), RunError> {
        if !(1..=LANES_MAX).contains(&self.lanes) {
            return RunError::setting("threads", &self.lanes, "from 1 to 64");
        }
        if !(1..=CONNECTIONS_MAX).contains(&self.client.connections) {
            return RunError::setting("connections", &self.client.connections, "from 1 to 1024");
        }
        if !(1..=OUTSTANDING_MAX).contains(&self.outstanding_max) {
            return RunError::setting("most calls outstanding", &self.outstanding_max, "from 1 to 16777216");
        }
        let longest = self.warmup.max(self.cooldown);
        if longest > PHASE_MAX {
            let seconds = longest.as_secs_f64();
            return RunError::setting("seconds of warm-up or cooldown", &seconds, "at most 10000000");
        }
        Ok(())
    }

    /// Lanes that there will be: no more than connections.
    pub(crate) fn lanes(&self) -> usize {
        self.lanes.min(self.client.connections).max(1)
    }

    /// The part that a lane has of something that all have.
    pub(crate) fn part(&self, all: usize, lane: usize) -> usize {
        (all + self.lanes() - 1 - lane) / self.lanes()
    }

    /// The server's largest READ and WRITE as far as this transport carries them.
    pub(crate) fn sizes(&self, sizes: Sizes) -> Sizes {
        let limit = match self.client.transport {
            Transport::Tcp => u32::MAX,
            Transport::Udp => UDP_DATA_BYTES_MAX,
        };
        Sizes {
            read_bytes_max: sizes.read_bytes_max.min(limit),
            write_bytes_max: sizes.write_bytes_max.min(limit),
        }
    }
}

/// Why there is no run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The server cannot be reached.
    #[error(transparent)]
    Client(#[from] CallError),
    /// MOUNT, FSINFO, or a call that prepares or tidies up.
    #[error("export {export:?}: {cause}")]
    Export {
        /// The export.
        export: String,
        /// What went wrong.
        cause: Box<NfsError>,
    },
    /// The files are not there or not right, and cannot be made.
    #[error(transparent)]
    Fileset(#[from] FilesetError),
    /// The workload lacks an hour, or the factor makes no sense.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// A profile that makes no sense.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A setting that makes no sense.
    #[error("{setting} is {value}: it must be {allowed}")]
    Setting {
        /// Which.
        setting: &'static str,
        /// Its value.
        value: String,
        /// What is allowed.
        allowed: &'static str,
    },
    /// A thread could not be started, or ended early.
    #[error("a thread that makes calls: {reason}")]
    Thread {
        /// What the system said.
        reason: String,
    },
}

impl RunError {
    pub(crate) fn setting<T>(
        setting: &'static str,
        value: &dyn std::fmt::Display,
        allowed: &'static str,
    ) -> Result<T, Self> {
        Err(Self::Setting { setting, value: value.to_string(), allowed })
    }
}

/// Stops a run; clones stop the same one.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Stops the run: no further call is sent, and what was measured is reported.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was stopped.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A client with the root of the export and the server's sizes.
pub(crate) async fn attach(spec: &RunSpec) -> Result<(Arc<Client>, Handle, Sizes), RunError> {
    let few = Options { connections: spec.client.connections.min(4), ..spec.client.clone() };
    let client = Client::connect(spec.target, few.clone()).await?;
    let failed = |cause| RunError::Export { export: spec.export.clone(), cause: Box::new(cause) };
    let root = if spec.mount == spec.target {
        nfs::mount(&client, &spec.export).await
    } else {
        let mounter = Client::connect(spec.mount, Options { connections: 1, ..few }).await?;
        nfs::mount(&mounter, &spec.export).await
    };
    let root = root.map_err(failed)?;
    let sizes = nfs::fsinfo(&client, &root).await.map_err(failed)?;
    Ok((Arc::new(client), root, sizes))
}

/// The links of all lanes.
pub(crate) async fn links(spec: &RunSpec) -> Result<Vec<Vec<Link>>, RunError> {
    let origin = link::Origin {
        target: spec.target,
        options: spec.client.clone(),
        runtime: tokio::runtime::Handle::current(),
    };
    let mut lanes = Vec::new();
    for lane in 0..spec.lanes() {
        let mut links = Vec::new();
        for _ in 0..spec.part(spec.client.connections, lane) {
            let link = Link::open(&origin).await;
            links.push(link.map_err(|error| crate::client::unreachable(spec.target, &error))?);
        }
        lanes.push(links);
    }
    Ok(lanes)
}

/// Starts lanes at `start` and waits for them, and at least until `end`; `on_poll` is called every 20 ms, and once after
/// the last lane has ended. Whoever drops this future stops the lanes.
pub(crate) async fn drive<W: Work + 'static>(
    lanes: Vec<(Lane<W>, Source)>,
    (start, end): (Instant, Instant),
    stop: &Stop,
    mut on_poll: impl FnMut(),
) -> Result<Vec<W>, RunError> {
    let ended = |reason: String| RunError::Thread { reason };
    let mut guard = StopOnDrop(Some(stop.clone()));
    let mut threads = Vec::new();
    for (number, (lane, source)) in lanes.into_iter().enumerate() {
        let thread = std::thread::Builder::new().name(format!("lane-{number}"));
        let thread =
            thread.spawn(move || lane.run(start, source)).map_err(|error| ended(error.to_string()))?;
        threads.push(thread);
    }
    let is_over = |now: Instant| now >= end || stop.is_stopped();
    while !(is_over(Instant::now()) && threads.iter().all(std::thread::JoinHandle::is_finished)) {
        tokio::time::sleep(POLL).await;
        on_poll();
    }
    guard.0 = None;
    let joined = threads.into_iter().map(|thread| thread.join().map_err(|_| ended("it panicked".into())));
    joined.collect()
}

struct StopOnDrop(Option<Stop>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        if let Some(stop) = &self.0 {
            stop.stop();
        }
    }
}
