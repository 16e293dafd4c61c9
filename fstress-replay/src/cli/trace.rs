//! The arguments that make a replay of a trace.

use super::Arguments;
use anyhow::Context as _;
use clap::{Args, ValueEnum};
use clockwork_traces::site::Site;
use clockwork_traces::trace_file::TraceData;
use clockwork_traces::workload::{DEFAULT_WEIGHTS, Workload};
use fstress_replay::plan::{AttributeTimes, HttpClients, Mapping, Model, Rate, RequestKinds, WriteSync};
use fstress_replay::replay::ReplaySpec;
use std::io::BufReader;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Calls a second, where nothing else is said.
const RATE_DEFAULT: f64 = 500.0;
/// Hours of the bundled workload, where nothing else is said: the day that the paper measured.
const HOURS_DEFAULT: Range<u32> = 622..646;

#[derive(Debug, Args)]
pub(crate) struct TraceArguments {
    /// Sites to mix, each perhaps with a weight: campus=0.3,space
    #[arg(long, value_name = "SITE[=WEIGHT],...", default_value = "campus,space,sport,social")]
    workload: String,
    /// Replay a trace that `clockwork trace import` made; its periods stand for hours, missing ones are silent
    #[arg(long, value_name = "FILE", conflicts_with = "workload")]
    trace: Option<PathBuf>,
    /// Hours to replay, the last one not included [default: 622..646, or all of --trace]
    #[arg(long, value_name = "FIRST..END", value_parser = hours)]
    hours: Option<Range<u32>>,
    /// What an hour becomes, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    seconds_per_hour: f64,
    /// NFS calls a second in the busiest hour
    #[arg(long, value_name = "CALLS", conflicts_with_all = ["factor", "rate"])]
    peak_rate: Option<f64>,
    /// Requests as a multiple of the workload's
    #[arg(long, value_name = "FACTOR", conflicts_with = "rate")]
    factor: Option<f64>,
    /// What a request becomes: a fixed number of calls; what web servers on NFS clients with caches would call; or, for traces of
    /// packet captures, one call of its class
    #[arg(long, value_enum, value_name = "MODEL", default_value_t = ModelName::Calls)]
    model: ModelName,
    /// Bytes of a READ at most; less if the server takes less
    #[arg(long, visible_alias = "rsize", value_name = "BYTES", default_value_t = Mapping::default().read_bytes)]
    read_bytes: u32,
    /// Bytes of a WRITE at most; less if the server takes less
    #[arg(long, visible_alias = "wsize", value_name = "BYTES", default_value_t = Mapping::default().write_bytes)]
    write_bytes: u32,
    /// What makes written data safe: as Linux (one WRITE alone FILE_SYNC, several UNSTABLE with a COMMIT behind them), always a
    /// COMMIT, or each WRITE by itself (FILE_SYNC)
    #[arg(long, value_enum, value_name = "HOW", default_value_t = SyncName::Linux)]
    write_sync: SyncName,
    /// Model http: bytes that READs of a request on their way may be for together; one is always made
    #[arg(long, value_name = "BYTES", default_value_t = HttpClients::default().read_ahead_bytes)]
    read_ahead: u32,
    /// Model http: make the calls of a request that reads at this distance, whatever the server does; if not given, each
    /// follows the reply to the one before it
    #[arg(long, value_name = "MS")]
    call_gap_ms: Option<u32>,
    /// Model http: clients, each with caches of its own; client n uses connection n modulo their number [default: as many
    /// as connections]
    #[arg(long, value_name = "N")]
    clients: Option<u32>,
    /// Model http: seconds for which attributes are believed, for files and directories, at first and at most
    #[arg(long, value_name = "SECONDS", conflicts_with_all = ["acregmin", "acregmax", "acdirmin", "acdirmax"])]
    actimeo: Option<f64>,
    /// Model http: seconds for which a file's attributes are believed at first
    #[arg(long, value_name = "SECONDS", default_value_t = AttributeTimes::default().file_min_s)]
    acregmin: f64,
    /// Model http: seconds for which a file's attributes are believed at most
    #[arg(long, value_name = "SECONDS", default_value_t = AttributeTimes::default().file_max_s)]
    acregmax: f64,
    /// Model http: seconds for which a directory's attributes are believed at first
    #[arg(long, value_name = "SECONDS", default_value_t = AttributeTimes::default().directory_min_s)]
    acdirmin: f64,
    /// Model http: seconds for which a directory's attributes are believed at most
    #[arg(long, value_name = "SECONDS", default_value_t = AttributeTimes::default().directory_max_s)]
    acdirmax: f64,
    /// Model http: believe fresh attributes when a file is opened, too (no close-to-open consistency)
    #[arg(long)]
    nocto: bool,
    /// Model http: names that all clients together remember
    #[arg(long, value_name = "NAMES", default_value_t = HttpClients::default().cache_entries_max)]
    cache_entries_max: u64,
    /// Model http: bytes of files that all clients together keep, and do not read again
    #[arg(long, value_name = "BYTES", default_value_t = HttpClients::default().data_bytes_max)]
    cache_bytes_max: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ModelName {
    Calls,
    Http,
    Nfs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SyncName {
    Linux,
    Commit,
    Each,
}

impl From<SyncName> for WriteSync {
    fn from(name: SyncName) -> Self {
        match name {
            SyncName::Linux => Self::Linux,
            SyncName::Commit => Self::Commit,
            SyncName::Each => Self::Each,
        }
    }
}

fn hours(text: &str) -> Result<Range<u32>, String> {
    let wrong = || format!("{text:?} is not FIRST..END with FIRST below END, such as 622..646");
    let (first, end) = text.split_once("..").ok_or_else(wrong)?;
    match (first.parse(), end.parse()) {
        (Ok(first), Ok(end)) if first < end => Ok(first..end),
        _ => Err(wrong()),
    }
}

/// What is replayed.
pub(crate) struct Source {
    workload: Arc<Workload>,
    hours: Range<u32>,
    kinds: Option<Arc<RequestKinds>>,
}

impl TraceArguments {
    /// The workload that was asked for.
    pub(crate) fn source(&self, seed: u64) -> anyhow::Result<Source> {
        if let Some(file) = &self.trace {
            return self.imported(file, seed).with_context(|| format!("--trace {}", file.display()));
        }
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
        let workload = Arc::new(Workload::of_bundled(&weights, seed).context("--workload")?);
        Ok(Source { workload, hours: self.hours.clone().unwrap_or(HOURS_DEFAULT), kinds: None })
    }

    fn imported(&self, file: &Path, seed: u64) -> anyhow::Result<Source> {
        let data = TraceData::read(BufReader::new(std::fs::File::open(file)?))?;
        let site = Site::from_counts(&data, seed);
        let missing = site.hours.iter().filter(|hour| hour.is_none()).count();
        if missing > 0 {
            eprintln!("{missing} of {} periods of the trace are missing: they are silent", site.hours.len());
        }
        let workload = Arc::new(Workload::of_site(site.with_missing_as_zero(), seed)?);
        let hours = self.hours.clone().unwrap_or_else(|| workload.hours());
        Ok(Source { workload, hours, kinds: Some(Arc::new(RequestKinds::of_trace(&data))) })
    }

    fn model(&self, connections: u16) -> Model {
        match self.model {
            ModelName::Calls => Model::Calls,
            ModelName::Nfs => Model::Nfs,
            ModelName::Http => Model::Http(HttpClients {
                clients: self.clients.unwrap_or(u32::from(connections)),
                read_bytes: self.read_bytes,
                write_bytes: self.write_bytes,
                write_sync: self.write_sync.into(),
                read_ahead_bytes: self.read_ahead,
                call_gap_ms: self.call_gap_ms,
                attributes: self.actimeo.map_or(
                    AttributeTimes {
                        file_min_s: self.acregmin,
                        file_max_s: self.acregmax,
                        directory_min_s: self.acdirmin,
                        directory_max_s: self.acdirmax,
                    },
                    AttributeTimes::all,
                ),
                nocto: self.nocto,
                cache_entries_max: self.cache_entries_max,
                data_bytes_max: self.cache_bytes_max,
            }),
        }
    }
}

impl Arguments {
    /// The replay that was asked for.
    pub(crate) async fn replay_spec(&self) -> anyhow::Result<ReplaySpec> {
        let asked = &self.trace;
        let source = asked.source(self.seed)?;
        let run = self.run_spec().await?;
        let mut spec = ReplaySpec::new(run.target, run.export.clone(), source.workload);
        spec.run = run;
        spec.hours = source.hours;
        spec.kinds = source.kinds;
        spec.seconds_per_hour = asked.seconds_per_hour;
        spec.mapping.read_bytes = asked.read_bytes;
        spec.mapping.write_bytes = asked.write_bytes;
        spec.mapping.write_sync = asked.write_sync.into();
        spec.model = asked.model(self.connections);
        spec.rate_factor = match (asked.factor, asked.peak_rate) {
            (Some(factor), _) => factor,
            (None, peak) => {
                let mean = Rate::Mean(self.rate.unwrap_or(RATE_DEFAULT));
                let rate = peak.map_or(mean, Rate::Peak);
                rate.factor(&spec.workload, &spec.pace()).context("--hours")?
            }
        };
        Ok(spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    fn arguments(more: &[&str]) -> Arguments {
        Arguments::parse_from(["fstress-replay", "--target", "h:1"].iter().chain(more))
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
        let parse = |workload: &str| arguments(&["--workload", workload]).trace.source(1);
        assert_eq!(parse("space,campus=2").unwrap().workload.sites().len(), 2);
        for wrong in ["moon", "space=x", "space=-1", "space,space", ""] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn clients_are_as_told() {
        assert_eq!(arguments(&[]).trace.model(4), Model::Calls);
        let model = |more: &[&str]| match arguments(more).trace.model(3) {
            Model::Http(clients) => clients,
            other => panic!("http was asked for, not {other:?}"),
        };
        let clients = model(&["--model", "http", "--rsize", "8192"]);
        assert_eq!((clients.clients, clients.read_bytes), (3, 8192));
        assert_eq!(clients.attributes, AttributeTimes::default());
        let clients = model(&["--model", "http", "--actimeo", "7", "--nocto", "--clients", "9"]);
        assert_eq!((clients.clients, clients.nocto), (9, true));
        assert_eq!(clients.attributes, AttributeTimes::all(7.0));
        let clients = model(&["--model", "http", "--acdirmax", "90"]);
        assert!((clients.attributes.directory_max_s - 90.0).abs() < 1e-9);
    }

    #[test]
    fn an_imported_trace_is_replayed_as_it_is() {
        use clockwork_traces::trace_file::{FileCount, Head, TraceWriter};
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.trace");
        let asked = arguments(&["--trace", file.to_str().unwrap()]);
        let Err(missing) = asked.trace.source(1) else { panic!("there is no such file") };
        assert!(format!("{missing:#}").contains("a.trace"));
        let head = Head { name: "site".into(), about: String::new(), period_s: 60, origin_s: 0 };
        let mut writer = TraceWriter::new(Vec::new(), &head).unwrap();
        writer.name_files([&b"/a"[..], b"/b"]).unwrap();
        for (period, file, requests, bytes) in [(5, 0, 10, 4_000), (7, 1, 3, 0)] {
            writer
                .counts(period, &[FileCount { file, requests, bytes_read: bytes, ..FileCount::default() }])
                .unwrap();
        }
        std::fs::write(&file, writer.finish().unwrap()).unwrap();
        let source = asked.trace.source(1).unwrap();
        assert_eq!(source.hours, 0..3);
        let requests = |hour| source.workload.requests(hour).unwrap();
        assert_eq!([0, 1, 2].map(|hour| requests(hour).round()), [10.0, 0.0, 3.0]);
        let kinds = source.kinds.unwrap();
        let bytes = |hour, file| kinds.of(hour, file).read_bytes;
        assert_eq!((bytes(0, 0), bytes(2, 1), bytes(9, 0)), (Some(400), None, None));
    }
}
