//! The arguments of `simulate`, and what it prints.

use super::plexes::PlexKind;
use super::policies::PolicyKind;
use super::scale::{self, Scale};
use super::score::Summary;
use super::study::{Study, Windows, spread};
use anyhow::Context as _;
use clap::{Args, Parser};
use clockwork_traces::site::Site;
use clockwork_traces::trace_file::TraceData;
use indicatif::{ProgressBar, ProgressStyle};
use std::ffi::OsString;
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `simulate`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  clockwork simulate --days 2 --seeds 4 --plex tight-batch\n  \
    clockwork simulate --days 8 --seeds 20 --json > results.json\n  \
    clockwork simulate --trace mine.trace --plex tight\n\n\
    A day is 24 periods of an hour; every seed runs every day. The objective of a day is what the plain hash reaches \
    in all but 11 of its periods. What the columns mean stands below the tables.")]
pub struct SimulateArgs {
    /// Days, spread over the hours of the workload; with --trace over every 50th hour from its middle, or from hour 300, on
    /// [default: 8; 1 with --stores or --files]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    days: Option<usize>,
    /// Seeds: popularity of files, default rule, arrivals, disturbances [default: 4; 1 with --stores or --files]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    seeds: Option<usize>,
    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    first_seed: u64,
    /// Which days of the bundled sites
    #[arg(long, value_enum, default_value_t = Windows::Kept)]
    windows: Windows,
    /// Only these plexes
    #[arg(long, value_enum, value_delimiter = ',')]
    plex: Vec<PlexKind>,
    /// Only these policies (those that they are held against run in any case)
    #[arg(long, value_enum, value_delimiter = ',')]
    policy: Vec<PolicyKind>,
    /// Traces of hours (`clockwork trace import`) to use instead of the bundled sites, all with the same weight
    #[arg(long, value_name = "FILE", num_args = 1..)]
    trace: Vec<PathBuf>,
    /// Stores, with the plex's capacities repeated, and as many calls for each [default: 4]
    #[arg(long, value_name = "N", value_parser = stores)]
    stores: Option<usize>,
    /// Files at least: the bundled sites are copied [default: 1206]. A million with 1,000 stores take minutes and 9 GB
    #[arg(long, value_name = "N", value_parser = files, conflicts_with = "trace")]
    files: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs policies side by side on a simulated plex.
#[derive(Debug, Parser)]
#[command(name = "fstress-replay simulate")]
struct Command {
    #[command(flatten)]
    args: SimulateArgs,
}

/// Runs `fstress-replay simulate ...` where that is what the program was called with.
pub fn main_if_asked(words: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let mut words = words.skip(1).peekable();
    if words.peek()?.to_str() != Some("simulate") {
        return None;
    }
    Some(match run(&Command::parse_from(words).args) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("fstress-replay: {error:#}");
            ExitCode::FAILURE
        }
    })
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("give a whole number from 1 on".into()),
        Ok(number) => Ok(number),
    }
}

fn up_to(text: &str, most: usize) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if (1..=most).contains(&number) => Ok(number),
        _ => Err(format!("give a whole number from 1 to {most}")),
    }
}

fn stores(text: &str) -> Result<usize, String> {
    up_to(text, 10_000)
}

fn files(text: &str) -> Result<usize, String> {
    up_to(text, 100_000_000)
}

fn or_all<T: Copy>(chosen: &[T], all: &[T]) -> Vec<T> {
    if chosen.is_empty() { all.to_vec() } else { chosen.to_vec() }
}

/// Simulates and returns what is to be printed.
///
/// # Errors
/// Traces that cannot be read or are too short.
pub fn run(args: &SimulateArgs) -> anyhow::Result<String> {
    let study = study(args)?;
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("simulating [{bar:30}] {percent:>3}% {eta}") {
        bar.set_style(style.progress_chars("=> "));
    }
    let summaries = study.run(&|count| {
        bar.set_length(count as u64);
        bar.inc(1);
    })?;
    bar.finish_and_clear();
    if args.json {
        Ok(serde_json::json!({ "days": study.starts, "seeds": study.seeds.len(), "policies": summaries })
            .to_string()
            + "\n")
    } else {
        Ok(text(&study, &summaries))
    }
}

fn study(args: &SimulateArgs) -> anyhow::Result<Study> {
    let sites = args.trace.iter().enumerate().map(site).collect::<anyhow::Result<Vec<_>>>()?;
    let mut starts = args.windows.starts();
    let mut plexes = or_all(&args.plex, &PlexKind::ALL);
    if !sites.is_empty() {
        // The batch and the weight of `campus` belong to the bundled sites.
        plexes.retain(|plex| !matches!(plex, PlexKind::TightBatch | PlexKind::FullCampus));
        anyhow::ensure!(
            !plexes.is_empty(),
            "--trace: plexes tight-batch and full-campus are of the bundled sites alone"
        );
        starts = days_of(&sites)?;
    }
    let scale = (args.stores.is_some() || args.files.is_some())
        .then(|| Scale { stores: args.stores.unwrap_or(4), files: args.files.unwrap_or(1) });
    let mut policies = or_all(&args.policy, &PolicyKind::ALL);
    if scale.is_some() {
        if args.plex.is_empty() {
            plexes.retain(|plex| *plex == PlexKind::Tight);
        }
        if args.policy.is_empty() {
            policies = scale::POLICIES.to_vec();
        }
    }
    let (days, seeds) = if scale.is_some() { (1, 1) } else { (8, 4) };
    Ok(Study {
        starts: spread(&starts, args.days.unwrap_or(days)),
        seeds: (0..args.seeds.unwrap_or(seeds) as u64).map(|index| args.first_seed + index).collect(),
        plexes,
        policies,
        sites: (!sites.is_empty()).then_some(sites),
        scale,
    })
}

/// Length of a simulated period.
const PERIOD_S: u32 = 3_600;

/// The site of an imported trace, with the number of the trace in its name: traces of the same name are different sites.
fn site((index, path): (usize, &PathBuf)) -> anyhow::Result<(Site, f64)> {
    let named = || format!("--trace {}", path.display());
    let file = File::open(path).with_context(named)?;
    let mut data = TraceData::read(BufReader::new(file)).with_context(named)?;
    anyhow::ensure!(
        data.head.period_s == PERIOD_S,
        "--trace {}: its periods have {} s; a simulated day has hours: import it with --period {PERIOD_S}",
        path.display(),
        data.head.period_s
    );
    data.head.name = format!("{}-{}", data.head.name, index + 1);
    Ok((Site::from_counts(&data, clockwork_traces::bundled::SEED), 1.0))
}

/// Days of imported sites: every 50 hours from the second half on, such that all sites have all hours of the day and of
/// the one before.
fn days_of(sites: &[(Site, f64)]) -> anyhow::Result<Vec<u32>> {
    let shortest = sites.iter().map(|(site, _)| site.hours.len()).min().unwrap_or(0);
    let whole = |start: &u32| {
        let hours = start - 24..start + 24;
        sites.iter().all(|(site, _)| hours.clone().all(|hour| site.total(hour).is_some()))
    };
    let end = u32::try_from(shortest).unwrap_or(u32::MAX);
    let first = (end / 2).clamp(48, 300);
    let starts: Vec<u32> = (first..end.saturating_sub(23)).step_by(50).filter(whole).collect();
    anyhow::ensure!(
        !starts.is_empty(),
        "--trace: of {end} hours no day can be taken: it needs two whole days without a gap, and a day of any kind before them \
         (days begin at hour {first} and every 50 hours from there)"
    );
    Ok(starts)
}

/// A table for each plex.
fn text(study: &Study, summaries: &[Summary]) -> String {
    let mut text = format!(
        "{} days (from hours {}), {} seeds each; means a day\n",
        study.starts.len(),
        study.starts.iter().map(u32::to_string).collect::<Vec<_>>().join(", "),
        study.seeds.len()
    );
    for plex in &study.plexes {
        text += &format!(
            "\n{:<19} {:>7} {:>5} {:>5} {:>6} {:>6} {:>8} {:>6} {:>6} {:>5} {:>6} {:>7} {:>7}\n",
            plex.name(),
            "to best",
            "met",
            "least",
            "harmed",
            "/base",
            "/reactive",
            "MAPE",
            "median",
            "66 %",
            "moves",
            "returns",
            "alarms"
        );
        for s in summaries.iter().filter(|s| s.plex == plex.name()) {
            let part = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.3}"));
            text += &format!(
                "{:<19} {:>7.3} {:>5.2} {:>5.0} {:>6.2} {:>6.2} {:>8} {:>6} {:>6} {:>5} {:>6.1} {:>7.2} {:>7.2}\n",
                s.policy,
                s.ratio_to_best,
                s.periods_met,
                s.periods_met_min,
                s.harmed,
                s.worst_over_base,
                part(s.worst_over_reactive),
                part(s.response_mape),
                part(s.response_median_error),
                part(s.coverage66),
                s.moves,
                s.returns_within_6,
                s.false_alarms_in_48
            );
        }
    }
    text + COLUMNS
}

/// What the columns of the tables are.
const COLUMNS: &str = "
R: the highest mean response time of all stores in a period; X: the objective.
to best    mean of max(R, X) / max(best's R, X) over the periods
met        periods of 24 with R at most X; least: in the worst day
harmed     periods with R above X and above 1.05 of the plain hash's
/base      the worst period's R over the plain hash's worst; /reactive: over reactive's
MAPE       mean error of the expected response time of unsaturated stores, median beside it
66 %       actual ones within the 66 % interval
moves      files moved; returns: back within 6 periods to where they came from
alarms     periods in which the guard moved something, of 48 in which nothing was disturbed
";

#[cfg(test)]
mod tests {
    use super::*;
    use clockwork_traces::trace_file::{FileCount, Head, TraceWriter};

    fn command(words: &[&str]) -> SimulateArgs {
        Command::parse_from([&["simulate"], words].concat()).args
    }

    /// Days of hours in which 200 files are asked for, less in the night.
    fn trace(period_s: u32, days: i64) -> Vec<u8> {
        let head = Head { name: "site".into(), about: String::new(), period_s, origin_s: 0 };
        let mut writer = TraceWriter::new(Vec::new(), &head).unwrap();
        let paths: Vec<Vec<u8>> = (0..200).map(|file| format!("/f{file}").into_bytes()).collect();
        writer.name_files(paths.iter().map(Vec::as_slice)).unwrap();
        for hour in 0..24 * days {
            let busy = if (6..22).contains(&(hour % 24)) { 3 } else { 1 };
            let count = |file| FileCount {
                file,
                requests: busy * (1_000 / (u64::from(file) + 5)),
                ..FileCount::default()
            };
            writer.counts(hour, &(0..200).map(count).collect::<Vec<_>>()).unwrap();
        }
        writer.finish().unwrap()
    }

    #[test]
    fn imported_traces_take_the_place_of_the_bundled_sites() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.trace");
        std::fs::write(&file, trace(3_600, 8)).unwrap();
        let path = file.to_str().unwrap();
        let words =
            ["--plex", "tight", "--policy", "static,clockwork", "--days", "1", "--seeds", "1", "--json"];
        let json = run(&command(&[&words[..], &["--trace", path, path]].concat())).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let policies = json["policies"].as_array().unwrap();
        assert_eq!(policies.len(), 2);
        assert!(policies.iter().all(|p| p["ratio_to_best"].as_f64().unwrap() > 0.95), "{json}");
    }

    #[test]
    fn traces_that_cannot_be_simulated_are_refused_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.trace");
        let path = file.to_str().unwrap();
        let refused = || format!("{:#}", run(&command(&["--trace", path])).unwrap_err());
        assert!(refused().contains("a.trace"));
        std::fs::write(&file, trace(60, 8)).unwrap();
        assert!(refused().contains("60 s"), "{}", refused());
        std::fs::write(&file, trace(3_600, 2)).unwrap();
        assert!(refused().contains("of 48 hours no day can be taken"), "{}", refused());
        std::fs::write(&file, "clockwork").unwrap();
        assert!(refused().contains("a.trace"), "{}", refused());
    }
}
