//! `clockwork backtest`: how good forecasts of given series would have been.
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context as _;
use clap::{ArgGroup, Args, ValueEnum};
use clockwork_forecaster::backtest::{self, Accuracy, Backtest, Case, Report, Walk, read};
use clockwork_forecaster::demand::{CycleChoice, Demand, Method};
use flate2::read::MultiGzDecoder;
use serde_json::json;

use super::table::{Side, aligned};

/// The forecaster to try.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum MethodName {
    /// The paper's plain composition
    Plain,
    /// Two seasonal members, averaged by how well each has done; the default of the library
    Recommended,
}

/// Arguments of `backtest`.
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("series").args(["train", "hourly"]).required(true),
    after_help = "Examples:\n  clockwork backtest --train Hourly-train.csv.gz --test Hourly-test.csv.gz\n  \
    clockwork backtest --hourly requests.csv --from 622 --json\n\n\
    Files may be compressed (.gz). M4's form is a header, then a line a series: its id and its values. The form of \
    --hourly is a header, then lines of series, period and count; periods without a line are missing, not zero."
)]
pub(super) struct BacktestArgs {
    /// Series to learn from, in M4's form: all of --test is forecast from their end
    #[arg(long, value_name = "FILE", requires = "test")]
    train: Option<PathBuf>,
    /// What followed them, in the same form
    #[arg(long, value_name = "FILE", requires = "train")]
    test: Option<PathBuf>,
    /// Counts a period, forecast one period ahead, with a fit a day
    #[arg(long, value_name = "FILE", conflicts_with_all = ["train", "test"])]
    hourly: Option<PathBuf>,
    /// The first period of --hourly that is forecast; what comes before is learnt from
    #[arg(long, value_name = "PERIOD", default_value_t = 622, requires = "hourly")]
    from: usize,
    /// Periods ahead
    #[arg(long, value_name = "N", default_value_t = 48, value_parser = positive)]
    horizon: usize,
    /// Periods in a season, by which errors are scaled
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = positive)]
    season: usize,
    /// The forecaster
    #[arg(long, value_enum, default_value_t = MethodName::Recommended)]
    method: MethodName,
    /// Print the forecaster's figures as one JSON object, instead of a table with simple rivals
    #[arg(long)]
    json: bool,
}

fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("give a whole number from 1 on".into()),
        Ok(number) => Ok(number),
    }
}

/// Seconds in a period: both forms are hourly.
const PERIOD_SECONDS: u32 = 3600;

pub(super) fn run(args: &BacktestArgs) -> anyhow::Result<String> {
    let (cases, walk) = cases(args)?;
    let demand = Demand {
        method: match args.method {
            MethodName::Plain => Method::Plain(None),
            MethodName::Recommended => Method::Recommended,
        },
        cycles: CycleChoice::default(),
    };
    // The figures of M4 are relative to Naive2, so the rivals run for JSON as well.
    let spec = Backtest { demand, walk, season: args.season, period_seconds: PERIOD_SECONDS, peers: true };
    let began = Instant::now();
    let report = backtest::run(&spec, &cases, &mut || began.elapsed().as_secs_f64())?;
    if args.json { Ok(object(&report.ours).to_string() + "\n") } else { Ok(shown(&report, walk)) }
}

fn cases(args: &BacktestArgs) -> anyhow::Result<(Vec<Case>, Walk)> {
    match (&args.train, &args.test, &args.hourly) {
        (Some(train), Some(test), _) => {
            let named = || format!("{} and {}", train.display(), test.display());
            let cases = read::m4_cases(open(train)?, open(test)?).with_context(named)?;
            Ok((cases, Walk::FixedOrigin { horizon: args.horizon }))
        }
        (_, _, Some(file)) => {
            let series = read::hourly(open(file)?).with_context(|| file.display().to_string())?;
            let split = |(name, values): (String, Vec<f64>)| {
                let (length, from) = (values.len(), args.from);
                anyhow::ensure!(
                    length > from,
                    "{}: series {name} has {length} periods, so none from --from {from} on",
                    file.display()
                );
                Ok(Case::split(name, values, from))
            };
            let cases = series.into_iter().map(split).collect::<Result<_, _>>()?;
            Ok((cases, Walk::OneStep { refit_periods: args.season }))
        }
        _ => anyhow::bail!("give --train and --test, or --hourly"),
    }
}

fn open(path: &Path) -> anyhow::Result<Box<dyn Read>> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let file = BufReader::new(file);
    let compressed = path.extension().is_some_and(|extension| extension == "gz");
    Ok(if compressed { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) })
}

/// One forecaster's figures. What does not exist (a scaled error where nothing ever changes) is null.
fn object(a: &Accuracy) -> serde_json::Value {
    json!({
        "series": a.series, "smape": a.smape, "mase": a.mase, "owa": a.owa,
        "coverage66": a.coverage66, "coverage95": a.coverage95, "msis95": a.msis95,
        "mae": a.mae, "rmse": a.rmse, "bias": a.bias, "pinball": a.pinball, "ms_per_series": a.ms_per_series,
    })
}

fn shown(report: &Report, walk: Walk) -> String {
    let number = |value: f64, digits: usize| {
        if value.is_finite() { format!("{value:.digits$}") } else { "-".to_owned() }
    };
    let head =
        ["", "sMAPE", "MASE", "OWA", "66 %", "95 %", "MSIS 95", "MAE", "RMSE", "bias", "pinball", "ms"];
    let row = |a: &Accuracy| {
        vec![
            a.name.to_owned(),
            number(a.smape, 3),
            number(a.mase, 4),
            number(a.owa, 4),
            number(a.coverage66, 3),
            number(a.coverage95, 3),
            number(a.msis95, 2),
            number(a.mae, 2),
            number(a.rmse, 2),
            number(a.bias, 2),
            number(a.pinball, 4),
            number(a.ms_per_series, 2),
        ]
    };
    let rows: Vec<Vec<String>> = std::iter::once(&report.ours).chain(&report.peers).map(row).collect();
    let side = |i| if i == 0 { Side::Left } else { Side::Right };
    let header: Vec<(&str, Side)> = head.into_iter().enumerate().map(|(i, name)| (name, side(i))).collect();
    let what = match walk {
        Walk::FixedOrigin { horizon } => {
            format!("{} series, up to {horizon} periods ahead", report.ours.series)
        }
        Walk::OneStep { .. } => {
            format!("{} series, one period ahead, fitted anew once a season", report.ours.series)
        }
    };
    format!("{what}\n{}", aligned(&header, &rows))
}
