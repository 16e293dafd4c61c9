//! The arguments of the command.

pub(crate) mod stress;

use anyhow::Context as _;
use clap::Parser;
use clockwork_traces::bundled;
use clockwork_traces::workload::{DEFAULT_WEIGHTS, Workload};
use fstress_replay::client::{Options, Transport};
use fstress_replay::plan::Mapping;
use fstress_replay::replay::ReplaySpec;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// NFSv3 load against a server, open loop: workloads by profile (--preset), or hours of real web sites.
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
    #[command(flatten)]
    pub(crate) stress: stress::StressArguments,
    /// Use UDP instead of TCP
    #[arg(long)]
    udp: bool,
    /// Sites to mix, each perhaps with a weight: campus=0.3,space
    #[arg(long, value_name = "SITE[=WEIGHT],...", default_value = "campus,space,sport,social", help_heading = TRACE)]
    workload: String,
    /// Hours of the workload to replay, the last one not included
    #[arg(long, value_name = "FIRST..END", default_value = "622..646", value_parser = hours, help_heading = TRACE)]
    hours: Range<u32>,
    /// What an hour becomes, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, help_heading = TRACE)]
    seconds_per_hour: f64,
    /// NFS calls a second; of a trace in the mean over all hours [default: 1000 for presets, 500 for traces]
    #[arg(long, value_name = "CALLS", conflicts_with_all = ["factor", "peak_rate"])]
    rate: Option<f64>,
    /// NFS calls a second in the busiest hour
    #[arg(long, value_name = "CALLS", conflicts_with = "factor", help_heading = TRACE)]
    peak_rate: Option<f64>,
    /// Requests as a multiple of the workload's
    #[arg(long, value_name = "FACTOR", help_heading = TRACE)]
    factor: Option<f64>,
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
    /// Bytes of a READ at most; less if the server takes less
    #[arg(long, value_name = "BYTES", default_value_t = Mapping::default().read_bytes, help_heading = TRACE)]
    read_bytes: u32,
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
}

const TRACE: &str = "Traces (without --preset)";

const EXAMPLES: &str = "\
Examples:
  fstress-replay --preset webserver --target 127.0.0.1:2049 --rate 2000 --seconds 20 --html report.html
  fstress-replay --preset mail=2,database --set database:files.count=4 --target nas:2049 --udp --rate 500
  fstress-replay --preset getattr --target nas:2049 --closed 64
  fstress-replay --target 127.0.0.1:2049 --export /export --create
  fstress-replay --target nas:2049 --mount-port 20048 --udp --hours 600..646 --seconds-per-hour 10 --rate 2000
  fstress-replay --target nas:2049 --workload space,sport=2 --factor 0.05 --json > report.json";

fn hours(text: &str) -> Result<Range<u32>, String> {
    let wrong = || format!("{text:?} is not FIRST..END with FIRST below END, such as 622..646");
    let (first, end) = text.split_once("..").ok_or_else(wrong)?;
    match (first.parse(), end.parse()) {
        (Ok(first), Ok(end)) if first < end => Ok(first..end),
        _ => Err(wrong()),
    }
}

impl Arguments {
    /// The workload that was asked for.
    pub(crate) fn workload(&self) -> anyhow::Result<Workload> {
        let mut weights = Vec::new();
        for word in self.workload.split(',') {
            let (name, weight) = match word.split_once('=') {
                Some((name, weight)) => {
                    let weight = weight.parse();
                    (name, weight.with_context(|| format!("--workload: weight of {word:?}"))?)
                }
                None => {
                    let known = DEFAULT_WEIGHTS.iter().find(|(name, _)| *name == word);
                    (word, known.map_or(1.0, |(_, weight)| *weight))
                }
            };
            weights.push((name, weight));
        }
        Workload::of_bundled(&weights, self.seed).context("--workload")
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
            call_timeout: Duration::try_from_secs_f64(self.timeout).context("--timeout")?,
            calls_in_flight_max: self.outstanding_max.max(64),
            reserved_port: self.reserved_port,
            uid: self.uid,
            gid: self.gid,
            ..Options::default()
        })
    }

    /// The replay that was asked for.
    pub(crate) async fn spec(&self, workload: Arc<Workload>) -> anyhow::Result<ReplaySpec> {
        let (target, mount) = self.addresses().await?;
        let mut spec = ReplaySpec::new(target, self.export.clone(), workload);
        spec.mount = mount;
        spec.hours = self.hours.clone();
        spec.seconds_per_hour = self.seconds_per_hour;
        spec.mapping.read_bytes = self.read_bytes;
        spec.outstanding_max = self.outstanding_max;
        spec.client = self.client()?;
        spec.verify = !self.no_verify;
        spec.lag_max = Duration::try_from_secs_f64(self.lag_ms_max / 1e3).context("--lag-ms-max")?;
        spec.rate_factor = self.rate_factor(&spec)?;
        Ok(spec)
    }

    fn rate_factor(&self, spec: &ReplaySpec) -> anyhow::Result<f64> {
        let (workload, hours, seconds) = (&spec.workload, spec.hours.clone(), spec.seconds_per_hour);
        let factor = match (self.factor, self.peak_rate) {
            (Some(factor), _) => Ok(factor),
            (None, Some(rate)) => spec.mapping.factor_for_peak(workload, hours, seconds, rate),
            (None, None) => {
                spec.mapping.factor_for_mean(workload, hours, seconds, self.rate.unwrap_or(500.0))
            }
        };
        factor.context("--hours")
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
    fn hours_are_a_range() {
        assert_eq!(hours("622..646"), Ok(622..646));
        for wrong in ["", "622", "646..622", "5..5", "a..b", "-1..5"] {
            assert!(hours(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn weights_are_read_and_wrong_ones_refused() {
        let parse = |workload: &str| {
            Arguments::parse_from(["fstress-replay", "--target", "h:1", "--workload", workload]).workload()
        };
        assert_eq!(parse("space,campus=2").unwrap().sites().len(), 2);
        for wrong in ["moon", "space=x", "space=-1", "space,space", ""] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
