//! `GET /metrics`: the status in Prometheus' text format (version 0.0.4), from the same numbers.
use std::fmt::Write as _;

use super::types::{ControlStatus, LimitFill, Status, StoreState, StoreStatus};

/// Content type of the format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A status as metrics: `clockwork_store_...{store="NAME"}`, `clockwork_limit_...{limit="NAME"}`, and a
/// `clockwork_NAME_total` for each counter. Times are in seconds, sizes in bytes.
#[must_use]
pub fn encode(status: &Status) -> String {
    let mut out = Encoder { text: String::new() };
    out.family("info", "gauge", "Version of the router, as a label.");
    out.sample("info", &[("version", &status.version)], 1.0);
    out.family("uptime_seconds", "gauge", "Time since the start.");
    out.sample("uptime_seconds", &[], count(status.uptime_seconds));
    out.family("table_version", "gauge", "Number of the routing table in force.");
    out.sample("table_version", &[], count(status.table_version));
    out.family("alarms", "gauge", "Things that an operator should look at.");
    out.sample("alarms", &[], count(u64::try_from(status.alarms.len()).unwrap_or(u64::MAX)));
    control(&mut out, &status.control);
    stores(&mut out, &status.stores);
    limits(&mut out, status);
    counters(&mut out, status);
    out.text
}

fn control(out: &mut Encoder, control: &ControlStatus) {
    out.family("control_mode", "gauge", "What the controller may do, as a label.");
    out.sample("control_mode", &[("mode", &control.mode)], 1.0);
    out.family("control_objective_seconds", "gauge", "Mean response time of every store that is to be kept.");
    out.sample("control_objective_seconds", &[], control.objective_ms / 1_000.0);
    let families = [
        ("control_objective_met", "Whether it was kept in the last closed period.", control.objective_met),
        (
            "control_objective_reachable",
            "Whether it is predicted to be kept in the period decided about last.",
            control.objective_reachable,
        ),
    ];
    for (name, help, value) in families {
        out.family(name, "gauge", help);
        if let Some(value) = value {
            out.sample(name, &[], f64::from(value));
        }
    }
    out.family("control_files_moved", "gauge", "Files that are where the controller has moved them.");
    out.sample("control_files_moved", &[], count(control.files_moved));
}

/// Name, kind, help, and how to get the value of one thing.
type Family<T, V> = (&'static str, &'static str, &'static str, fn(&T) -> V);

fn stores(out: &mut Encoder, stores: &[StoreStatus]) {
    let families: [Family<StoreStatus, Option<f64>>; 11] = [
        ("store_up", "gauge", "Whether the store is given calls.", |s| {
            Some(f64::from(s.state == StoreState::Up))
        }),
        ("store_drained", "gauge", "Whether the operator has taken the store out.", |s| {
            Some(f64::from(s.state == StoreState::Drained))
        }),
        ("store_weight", "gauge", "Weight under the default rule, as it is in force.", |s| Some(s.weight)),
        ("store_weight_configured", "gauge", "Weight in the configuration.", |s| Some(s.configured_weight)),
        ("store_epoch", "gauge", "Raised whenever a restart of the store cannot be ruled out.", |s| {
            Some(count(s.epoch))
        }),
        ("store_connections", "gauge", "Open connections to the store.", |s| Some(count(s.connections))),
        ("store_calls_in_flight", "gauge", "Calls in flight at the store.", |s| Some(count(s.in_flight))),
        ("store_calls_waiting", "gauge", "Calls that wait in the router for the store.", |s| {
            Some(count(s.waiting))
        }),
        ("store_requests_total", "counter", "Calls sent to the store.", |s| Some(count(s.requests))),
        ("store_failed_total", "counter", "Calls to the store that ended without a reply.", |s| {
            Some(count(s.failed))
        }),
        ("store_mean_response_seconds", "gauge", "Mean response time in the open period.", |s| {
            s.mean_response_ms.map(|ms| ms / 1_000.0)
        }),
    ];
    for (name, kind, help, value) in families {
        out.family(name, kind, help);
        for store in stores {
            if let Some(value) = value(store) {
                out.sample(name, &[("store", &store.name)], value);
            }
        }
    }
}

fn limits(out: &mut Encoder, status: &Status) {
    let families: [Family<LimitFill, u64>; 3] = [
        ("limit_used", "gauge", "How much there is, in the limit's unit.", |limit| limit.used),
        ("limit_max", "gauge", "How much there may be.", |limit| limit.max),
        ("limit_reached_total", "counter", "How many times the limit was reached.", |limit| limit.reached),
    ];
    for (name, kind, help, value) in families {
        out.family(name, kind, help);
        for limit in &status.limits {
            out.sample(name, &[("limit", &limit.name)], count(value(limit)));
        }
    }
}

fn counters(out: &mut Encoder, status: &Status) {
    // All samples of a family have to follow one another.
    let mut counters: Vec<_> = status.counters.iter().collect();
    counters.sort_by(|a, b| a.name.cmp(&b.name));
    let mut before = None;
    for counter in counters {
        let name = format!("{}_total", counter.name);
        if before != Some(&counter.name) {
            out.family(&name, "counter", &counter.help);
        }
        before = Some(&counter.name);
        match &counter.label {
            Some((label, value)) => out.sample(&name, &[(label, value)], count(counter.value)),
            None => out.sample(&name, &[], count(counter.value)),
        }
    }
}

/// A count as the format has it; exact up to 2^53, which is some thousand years of calls.
#[expect(clippy::cast_precision_loss, reason = "the format's numbers are 64-bit floats")]
fn count(number: u64) -> f64 {
    number as f64
}

struct Encoder {
    text: String,
}

impl Encoder {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "# HELP clockwork_{name} {help}\n# TYPE clockwork_{name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let _ = write!(self.text, "clockwork_{name}");
        if !labels.is_empty() {
            let escape = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let labels: Vec<String> =
                labels.iter().map(|(label, value)| format!("{label}=\"{}\"", escape(value))).collect();
            let _ = write!(self.text, "{{{}}}", labels.join(","));
        }
        let _ = writeln!(self.text, " {value}");
    }
}
