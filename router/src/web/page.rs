//! `GET /`: the status as a page for people, which loads itself anew.
use axum::http::header;
use axum::response::{IntoResponse, Response};
use maud::{DOCTYPE, Markup, html};

use super::types::{LimitFill, ReadShare, Status, StoreState, StoreStatus};

/// Seconds after which the page is loaded again.
const RELOAD_SECONDS: u32 = 2;

/// Nothing on the page is loaded from anywhere, and no script runs, whatever a file or store may be called.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";

const STYLE: &str = "body{font:15px system-ui,sans-serif;margin:2em;max-width:70em;color:#222}\
    h1{font-size:1.3em}h2{font-size:1.05em;margin-top:2em}table{border-collapse:collapse}\
    th,td{padding:.25em .9em .25em 0;text-align:left;border-bottom:1px solid #ddd}\
    .n{text-align:right;font-variant-numeric:tabular-nums}\
    .alarm{background:#fdd;padding:.5em .8em;border-left:4px solid #c00}.up{color:#070}.out{color:#b00}\
    @media(prefers-color-scheme:dark){body{background:#181818;color:#ddd}th,td{border-color:#444}\
    .alarm{background:#511}.up{color:#7c7}.out{color:#f88}}";

/// The page for a status.
pub(super) fn respond(status: &Status) -> Response {
    let html = page(status).into_string();
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, html).into_response()
}

fn page(status: &Status) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="refresh" content=(RELOAD_SECONDS);
                title { "Clockwork" }
                style { (STYLE) }
            }
            body {
                h1 { "Clockwork " (status.version) " on " (status.listen.join(", ")) }
                p { "Up for " (status.uptime_seconds) " s; routing table " (status.table_version) "." }
                @for alarm in &status.alarms { p.alarm { (alarm) } }
                h2 { "Stores" }
                (stores(&status.stores))
                @for file in &status.replicated {
                    p {
                        (file.path.as_ref().unwrap_or(&file.handle)) " is read at "
                        (ReadShare::in_words(&file.replicas)) "; all else goes to " (file.store) "."
                    }
                }
                h2 { "Limits" }
                (limits(&status.limits))
                h2 { "Counted since the start" }
                (counters(status))
            }
        }
    }
}

fn stores(stores: &[StoreStatus]) -> Markup {
    html! {
        table {
            tr {
                th { "Store" } th { "Address" } th { "State" } th.n { "Weight" } th.n { "In flight" }
                th.n { "Waiting" } th.n { "Requests" } th.n { "Failed" } th.n { "Mean response" }
            }
            @for store in stores {
                tr {
                    td { (store.name) }
                    td { (store.address) }
                    td class=(if store.state == StoreState::Up { "up" } else { "out" }) {
                        (store.state.word())
                        @if let Some(reason) = &store.reason { ": " (reason) }
                    }
                    td.n {
                        (store.weight)
                        @if store.weight != store.configured_weight { " (of " (store.configured_weight) ")" }
                    }
                    td.n { (store.in_flight) " of " (store.calls_max) }
                    td.n { (store.waiting) }
                    td.n { (store.requests) }
                    td.n { (store.failed) }
                    td.n { @match store.mean_response_ms { Some(ms) => { (format!("{ms:.2} ms")) }, None => "–" } }
                }
            }
        }
    }
}

fn limits(limits: &[LimitFill]) -> Markup {
    html! {
        table {
            tr { th { "Limit" } th.n { "Used" } th.n { "Of" } th.n { "Times reached" } }
            @for limit in limits {
                tr { td { (limit.name) } td.n { (limit.used) } td.n { (limit.max) } td.n { (limit.reached) } }
            }
        }
    }
}

fn counters(status: &Status) -> Markup {
    html! {
        table {
            @for counter in &status.counters {
                tr {
                    td { (counter.help) @if let Some((_, value)) = &counter.label { " (" (value) ")" } }
                    td.n { (counter.value) }
                }
            }
        }
    }
}
