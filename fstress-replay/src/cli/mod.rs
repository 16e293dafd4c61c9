//! The arguments of the command.

pub(crate) mod stress;
pub(crate) mod trace;

use anyhow::Context as _;
use clap::Parser;
use clockwork_traces::bundled;
use clockwork_wire::mount;
use fstress_replay::client::nfs::NfsError;
use fstress_replay::client::{Options, Transport};
use fstress_replay::{RunError, RunSpec};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// NFSv3 load against a server, open loop: workloads by profile (--preset), or hours of web sites, real ones or your own.
///
/// Every call has a time at which it is due; it is sent then, whether the server has answered earlier ones or not, and its
/// response time is counted from then. So a server that is too slow shows it, instead of slowing the load down.
///
/// The report goes to standard output, progress to standard error. Exit status: 0 if every call was sent and answered
/// well, 2 if not, 3 if the run is invalid (this generator did not make the load that was asked for), 1 if there was no
/// run. Ctrl-C ends a run early and prints what was measured.
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The server's NFS port
    #[arg(long, value_name = "HOST:PORT", required_unless_present = "show_presets")]
    target: Option<String>,
    /// The server's MOUNT port, where it is not the NFS port
    #[arg(long, value_name = "PORT")]
    mount_port: Option<u16>,
    /// The export to mount
    #[arg(long, value_name = "PATH", default_value = "/export")]
    export: String,
    /// Use UDP instead of TCP
    #[arg(long)]
    udp: bool,
    /// NFS calls a second; of a trace in the mean over all hours [default: 1000 for presets, 500 for traces]
    #[arg(long, value_name = "CALLS")]
    rate: Option<f64>,
    /// Seconds of load before what is measured; of a trace its hours before
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    warmup: f64,
    /// Seconds of load after what is measured
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    cooldown: f64,
    /// Make the files on the server first; those that are there and right are left alone (a preset's files always are)
    #[arg(long)]
    pub(crate) create: bool,
    /// Print the report as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the report as a page of HTML with charts, too
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Do not check the data that is read
    #[arg(long)]
    no_verify: bool,
    /// Send lag (how late a call is handed to the socket), quantile .99, in ms, beyond which a run is invalid
    #[arg(long, value_name = "MS", default_value_t = 5.0)]
    lag_ms_max: f64,
    /// Connections (over UDP: sockets)
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1024))]
    connections: u16,
    /// Threads; no more than connections [default: as many as processors, at most 2]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Calls without an answer beyond which no further one is sent
    #[arg(long, value_name = "CALLS", default_value_t = 8_192)]
    outstanding_max: usize,
    /// Seconds after which a call without an answer is given up
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    timeout: f64,
    /// Seed of arrivals, popularity and sizes; the file set depends on it
    #[arg(long, value_name = "N", default_value_t = bundled::SEED)]
    seed: u64,
    /// Call from a port below 1024, for exports that want it (`secure`)
    #[arg(long)]
    reserved_port: bool,
    /// User number that the calls carry
    #[arg(long, value_name = "UID", default_value_t = 0)]
    uid: u32,
    /// Group number that the calls carry
    #[arg(long, value_name = "GID", default_value_t = 0)]
    gid: u32,
    // Last, because what follows would stand under their headings, too.
    #[command(flatten, next_help_heading = "Workloads by profile (with --preset)")]
    pub(crate) stress: stress::StressArguments,
    #[command(flatten, next_help_heading = "Traces (without --preset)")]
    pub(crate) trace: trace::TraceArguments,
}

const EXAMPLES: &str = "\
Examples:
  fstress-replay --preset webserver --target 127.0.0.1:2049 --rate 2000 --seconds 20 --html report.html
  fstress-replay --preset mail=2,database --set database:files.count=4 --target nas:2049 --udp --rate 500
  fstress-replay --preset getattr --target nas:2049 --closed 64
  fstress-replay --target 127.0.0.1:2049 --export /export --create
  fstress-replay --target nas:2049 --mount-port 20048 --udp --hours 600..646 --seconds-per-hour 10 --rate 2000
  fstress-replay --target nas:2049 --trace site.trace --create --model http --peak-rate 3000
  fstress-replay --target nas:2049 --workload space,sport=2 --factor 0.05 --json > report.json";

/// A length of time.
fn seconds(name: &str, seconds: f64) -> anyhow::Result<Duration> {
    Duration::try_from_secs_f64(seconds).with_context(|| format!("{name} {seconds}"))
}

impl Arguments {
    /// What may help against an error.
    pub(crate) fn hint(&self, error: &anyhow::Error) -> Option<&'static str> {
        let refused = matches!(
            error.downcast_ref(),
            Some(RunError::Export { cause, .. })
                if matches!(**cause, NfsError::Status { procedure: "MNT", status: mount::status::ACCES, .. })
        );
        (refused && !self.reserved_port).then_some(
            "The export is not for this address, or it takes only calls from ports below 1024, which many do (`secure`): \
             as root, with --reserved-port.",
        )
    }

    /// The NFS and MOUNT ports.
    async fn addresses(&self) -> anyhow::Result<(SocketAddr, SocketAddr)> {
        let target = self.target.as_deref().context("--target is missing")?;
        let resolved = tokio::net::lookup_host(target).await;
        let target = resolved
            .with_context(|| format!("--target {target:?} is not HOST:PORT of a known host"))?
            .next()
            .with_context(|| format!("--target {target:?}: the host has no address"))?;
        Ok((target, self.mount_port.map_or(target, |port| SocketAddr::new(target.ip(), port))))
    }

    fn client(&self) -> anyhow::Result<Options> {
        Ok(Options {
            transport: if self.udp { Transport::Udp } else { Transport::Tcp },
            connections: usize::from(self.connections),
            call_timeout: seconds("--timeout", self.timeout)?,
            calls_in_flight_max: self.outstanding_max.max(64),
            reserved_port: self.reserved_port,
            uid: self.uid,
            gid: self.gid,
            ..Options::default()
        })
    }

    /// What all runs have in common.
    async fn run_spec(&self) -> anyhow::Result<RunSpec> {
        let (target, mount) = self.addresses().await?;
        let mut run = RunSpec::new(target, self.export.clone());
        run.mount = mount;
        run.client = self.client()?;
        run.lanes = self.threads.unwrap_or(run.lanes);
        run.warmup = seconds("--warmup", self.warmup)?;
        run.cooldown = seconds("--cooldown", self.cooldown)?;
        run.outstanding_max = self.outstanding_max;
        run.verify = !self.no_verify;
        run.lag_max = seconds("--lag-ms-max", self.lag_ms_max / 1e3)?;
        Ok(run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn who_is_refused_is_told_of_reserved_ports() {
        let of =
            |words: &[&str]| Arguments::parse_from(["fstress-replay", "--target", "a:1"].iter().chain(words));
        let refused = |procedure, status, name| {
            let cause = Box::new(NfsError::Status { procedure, path: "/export".into(), status, name });
            anyhow::Error::from(RunError::Export { export: "/export".into(), cause })
        };
        assert!(of(&[]).hint(&refused("MNT", 13, "ACCES")).unwrap().contains("--reserved-port"));
        assert_eq!(of(&["--reserved-port"]).hint(&refused("MNT", 13, "ACCES")), None);
        assert_eq!(of(&[]).hint(&refused("MNT", 2, "NOENT")), None);
        assert_eq!(of(&[]).hint(&refused("FSINFO", 13, "ACCES")), None);
    }

    #[test]
    fn options_stand_under_their_headings() {
        let command = Arguments::command();
        let heading =
            |id: &str| command.get_arguments().find(|a| a.get_id() == id).unwrap().get_help_heading();
        assert_eq!(heading("even"), Some("Workloads by profile (with --preset)"));
        assert_eq!(heading("model"), Some("Traces (without --preset)"));
        for common in ["target", "udp", "rate", "warmup", "connections", "seed"] {
            assert_eq!(heading(common), None, "{common}");
        }
    }
}
