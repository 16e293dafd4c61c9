//! What the demo tells: progress while it runs, what it was, and what came out.

use super::plex::{DemoPlex, SERVERS, SERVICE_CV, SERVICE_US, STORES};
use crate::report::{Fact, Facts};
use clockwork_traces::workload::Workload;
use fstress_replay::replay::{Event, OnEvent};
use fstress_replay::report::ReplayReport;
use indicatif::{ProgressBar, ProgressStyle};
use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Says on standard error what is done now.
pub(crate) fn step(what: &str) {
    eprintln!("demo: {what}");
}

/// A bar over the day.
pub(crate) struct Progress(ProgressBar);

const BAR_STEPS: u64 = 1000;

/// Sending this late in one of 100 calls is told, milliseconds.
const LAG_MS_MAX: f64 = 20.0;

impl Progress {
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::new(BAR_STEPS);
        // The template is a constant; if it were wrong the default bar would do.
        if let Ok(style) = ProgressStyle::with_template("demo: {prefix} [{bar:30}] {msg}") {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_prefix("looking the files up");
        Self(bar)
    }

    pub(crate) fn events(&self) -> OnEvent {
        let bar = self.0.clone();
        Arc::new(move |event| match event {
            Event::Files(files) => {
                bar.set_position(BAR_STEPS * files.files as u64 / files.files_total.max(1) as u64);
            }
            Event::Hour { hour, index, hours } => {
                bar.set_prefix(format!("hour {hour} ({} of {hours})", index + 1));
                // Without a terminal there is no bar, but whoever reads the log wants to see that it goes on.
                if bar.is_hidden() && index.is_multiple_of(6) {
                    step(&format!("hour {hour} ({} of {hours})", index + 1));
                }
            }
            Event::Calls(counts) => {
                bar.set_position((BAR_STEPS as f64 * counts.part) as u64);
                bar.set_message(format!(
                    "{} calls, {} under way, mean {:.1} ms, {} errors",
                    counts.answered, counts.outstanding, counts.mean_ms, counts.errors
                ));
            }
        })
    }

    pub(crate) fn finish(&self) {
        self.0.finish_and_clear();
    }
}

/// What is said of a quick run.
const QUICK: &str = "A quick run: its hours are too short, and its figures too noisy, to judge by.";

/// What the report says beside its figures.
pub(crate) fn facts(
    workload: &Workload,
    replayed: &ReplayReport,
    quick: bool,
    hours: Range<u32>,
    objective_ms: f64,
) -> Facts {
    let fact = |name: &str, value: String| Fact { name: name.into(), value };
    let sites: Vec<&str> = workload.sites().iter().map(|site| site.name.as_str()).collect();
    let stores: Vec<String> = STORES.iter().map(|(name, speed)| format!("{name} {speed}")).collect();
    let total = &replayed.total;
    let facts = vec![
        fact(
            "workload",
            format!(
                "{} files of {} (hours {} to {})",
                workload.files().len(),
                sites.join(", "),
                hours.start,
                hours.end - 1
            ),
        ),
        fact("an hour", format!("{} s{}", replayed.seconds_per_hour, if quick { " (quick)" } else { "" })),
        fact(
            "stores",
            format!(
                "relative speeds {}; each works on {SERVERS} calls at once, {:.1} ms a call at speed 1, log-normal with \
                 coefficient of variation {SERVICE_CV}",
                stores.join(", "),
                SERVICE_US / 1e3
            ),
        ),
        fact("default rule", "a hash of the file handle, equal weights".into()),
        fact("static", "every file assigned once, by the stores' speeds and what was asked for in the past".into()),
        fact(
            "Clockwork",
            "rule margin, with guard; demand of 622 hours known, of which the last 24 were replayed, in turn with more for \
             one of the stores, to learn how they respond"
                .into(),
        ),
        fact("objective", format!("{objective_ms:.3} ms: the default rule misses it in 11 hours")),
        fact(
            "calls of the base pass",
            format!(
                "{} wanted, {} sent, {} good, {} errors",
                total.wanted, total.called, total.good, total.errors
            ),
        ),
        fact(
            "as the clients saw it",
            format!(
                "mean {:.1} ms from the intended send time, send lag p99 {:.2} ms",
                total.response.mean_ms, total.lag.p99_ms
            ),
        ),
    ];
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Facts {
        title: "A day on four unlike stores, without and with Clockwork".into(),
        subtitle: format!(
            "Requests spread evenly, response times very unlike; then files are moved before load arrives.{}",
            if quick { format!(" {QUICK}") } else { String::new() }
        ),
        created_unix_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
        first_hour: u64::from(hours.start),
        facts,
        mount: Vec::new(),
    }
}

/// The last words.
pub(crate) fn summary(passes: &[&ReplayReport], quick: bool, output: &Path, took: Duration) {
    if quick {
        println!("{QUICK}");
    }
    if passes.iter().any(|pass| pass.run.saturated) {
        println!(
            "Some calls were not sent because too many were waiting: this machine is too slow for the demo's load."
        );
    }
    let lag = passes.iter().map(|pass| pass.total.lag.p99_ms).fold(0.0, f64::max);
    if lag > LAG_MS_MAX {
        println!(
            "Calls were sent up to {lag:.1} ms late (p99): this machine is busy with other things, which shows in the response times."
        );
    }
    println!(
        "\nReports: {} and {} ({:.0} s)",
        output.join("report.html").display(),
        output.join("report.json").display(),
        took.as_secs_f64()
    );
}

/// How to use what is left running.
pub(crate) fn keep_running(demo: &DemoPlex, admin: Option<SocketAddr>) {
    println!("The plex stays up until Ctrl-C. As root, on this machine:\n  {}", demo.mount_command());
    match admin {
        Some(admin) => {
            println!("Its state: clockwork status --admin {admin}, or http://{admin}/ in a browser.")
        }
        None => println!("Its admin interface is off: the port is taken."),
    }
}
