//! `clockwork status`: a running plex at a glance.
use std::fmt::Write as _;

use clap::Args;

use super::client::{AdminArgs, AdminClient, ClientError};
use super::table::{Side, aligned};
use crate::web::types::{ControlStatus, Exception, LimitFill, ReadShare, Status, StoreStatus};

/// Arguments of `status`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  clockwork status\n  clockwork status --all\n  \
    clockwork status --json | jq '.stores[] | select(.state != \"up\")'")]
pub(super) struct StatusArgs {
    /// Print everything the plex says, as JSON
    #[arg(long)]
    json: bool,
    /// Also show limits that are far from full, and all counters
    #[arg(long, conflicts_with = "json")]
    all: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

pub(super) fn run(args: &StatusArgs) -> Result<String, ClientError> {
    let status = AdminClient::new(args.admin.admin).status()?;
    if !args.json {
        return Ok(shown(&status, args.all));
    }
    let json = serde_json::to_string_pretty(&status);
    // Only maps with keys that are no texts cannot be written, and there are none.
    Ok(json.map_or_else(|_| String::new(), |json| json + "\n"))
}

/// The status for people.
fn shown(status: &Status, all: bool) -> String {
    let mut text = String::new();
    let (days, rest) = (status.uptime_seconds / 86_400, status.uptime_seconds % 86_400);
    let days = if days > 0 { format!("{days} d ") } else { String::new() };
    let (hours, minutes, seconds) = (rest / 3_600, rest / 60 % 60, rest % 60);
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "clockwork {} on {}, up {days}{hours:02}:{minutes:02}:{seconds:02}, table {}",
        status.version,
        status.listen.join(", "),
        status.table_version
    );
    for alarm in &status.alarms {
        let _ = writeln!(text, "ALARM: {alarm}");
    }
    let _ = writeln!(text, "{}", control(&status.control));
    text.push('\n');
    text.push_str(&stores(&status.stores));
    for store in &status.stores {
        if let Some(reason) = &store.reason {
            let _ = writeln!(text, "{} is {}: {reason}", store.name, store.state.word());
        }
    }
    for file in &status.replicated {
        let _ = writeln!(text, "{}", replicated(file));
    }
    let limits = limits(&status.limits, all);
    if !limits.is_empty() {
        let _ = write!(text, "\n{limits}");
    }
    let counters = counters(status, all);
    if !counters.is_empty() {
        let _ = write!(text, "\n{counters}");
    }
    text
}

/// A file whose reads several stores share, in one line.
fn replicated(file: &Exception) -> String {
    let name = file.path.as_ref().unwrap_or(&file.handle);
    let why = if file.reason.is_empty() {
        String::new()
    } else {
        format!(": {}", file.reason.replace(char::is_control, " "))
    };
    let shares = ReadShare::in_words(&file.replicas);
    format!("{name} is read at {shares}; all else goes to {} ({}{why})", file.store, file.by)
}

/// The controller in one line.
fn control(control: &ControlStatus) -> String {
    if control.mode.is_empty() || control.mode == "off" {
        return "control off".to_owned();
    }
    let last = match control.objective_met {
        Some(true) => "last period met",
        Some(false) => "last period missed",
        None if control.periods_observed > 0 => "no calls in the last period",
        None => "no period closed yet",
    };
    let next = match control.objective_reachable {
        Some(true) => "next predicted to meet it",
        Some(false) => "next predicted to miss it",
        None => "no forecast yet",
    };
    format!(
        "control {}: at most {} ms in {:.0} % of the periods; {last}, {next}; {} files moved, {} in the last decision{}",
        control.mode,
        control.objective_ms,
        control.confidence * 100.0,
        control.files_moved,
        control.moved_last,
        if control.weights_learnt { "; weights as learnt (`clockwork weights`)" } else { "" }
    )
}

/// A store's weight in force, and the configuration's where that is another.
fn weight(store: &StoreStatus) -> String {
    let StoreStatus { weight, configured_weight, .. } = store;
    if weight == configured_weight {
        weight.to_string()
    } else {
        format!("{weight} (of {configured_weight})")
    }
}

fn stores(stores: &[StoreStatus]) -> String {
    use Side::{Left, Right};
    let header = [
        ("STORE", Left),
        ("ADDRESS", Left),
        ("STATE", Left),
        ("WEIGHT", Right),
        ("EPOCH", Right),
        ("IN FLIGHT", Right),
        ("WAITING", Right),
        ("REQUESTS", Right),
        ("FAILED", Right),
        ("MEAN ms", Right),
    ];
    let row = |store: &StoreStatus| {
        vec![
            store.name.clone(),
            store.address.clone(),
            store.state.word().to_owned(),
            weight(store),
            store.epoch.to_string(),
            format!("{}/{}", store.in_flight, store.calls_max),
            store.waiting.to_string(),
            store.requests.to_string(),
            store.failed.to_string(),
            store.mean_response_ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.2}")),
        ]
    };
    aligned(&header, &stores.iter().map(row).collect::<Vec<_>>())
}

/// Limits that have been reached or are at least three quarters full; all of them on demand.
fn limits(limits: &[LimitFill], all: bool) -> String {
    let near = |limit: &&LimitFill| {
        let full = limit.used > 0 && u128::from(limit.used) * 4 >= u128::from(limit.max) * 3;
        all || limit.reached > 0 || full
    };
    let header =
        [("LIMIT", Side::Left), ("USED", Side::Right), ("MAX", Side::Right), ("TIMES REACHED", Side::Right)];
    let row = |limit: &LimitFill| {
        vec![limit.name.to_string(), limit.used.to_string(), limit.max.to_string(), limit.reached.to_string()]
    };
    aligned(&header, &limits.iter().filter(near).map(row).collect::<Vec<_>>())
}

fn counters(status: &Status, all: bool) -> String {
    let header = [("COUNTER", Side::Left), ("SINCE START", Side::Right), ("MEANING", Side::Left)];
    let rows = status.counters.iter().filter(|_| all).map(|counter| {
        let label = counter.label.as_ref().map_or_else(String::new, |(_, value)| format!(" ({value})"));
        vec![format!("{}{label}", counter.name), counter.value.to_string(), counter.help.to_string()]
    });
    aligned(&header, &rows.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_or_forecast_is_neither_met_nor_missed() {
        let said = |periods_observed, objective_met, objective_reachable| {
            let (mode, objective_ms, confidence) = ("advise".to_owned(), 5.0, 0.66);
            let status = ControlStatus { mode, objective_ms, confidence, ..ControlStatus::default() };
            control(&ControlStatus { periods_observed, objective_met, objective_reachable, ..status })
        };
        let begin = "control advise: at most 5 ms in 66 % of the periods; ";
        for (line, expected) in [
            (said(0, None, None), "no period closed yet, no forecast yet"),
            (said(7, None, None), "no calls in the last period, no forecast yet"),
            (said(8, Some(true), None), "last period met, no forecast yet"),
            (said(9, None, Some(false)), "no calls in the last period, next predicted to miss it"),
            (said(9, Some(false), Some(true)), "last period missed, next predicted to meet it"),
        ] {
            assert_eq!(line, format!("{begin}{expected}; 0 files moved, 0 in the last decision"));
        }
    }
}
