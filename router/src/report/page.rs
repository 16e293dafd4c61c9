//! The report as one page of HTML.

use fstress_replay::page;
use fstress_replay::page::chart::{Along, COLOURS, Chart, Series, Shaded, legend};
use maud::{Markup, html};

use super::chart::shares;
use super::format::{bytes, duration, ms, percent, thousands, three_digits, utc};
use super::model::{Findings, Report};

/// Hottest files on the page; the JSON has more.
const HOT_FILES_SHOWN: usize = 25;

/// The page: complete in itself (no script, nothing fetched), readable on a telephone and in the dark.
pub fn page(report: &Report) -> String {
    let body = html! {
        @match &report.findings {
            Some(findings) => (measured(report, findings)),
            None => section { p { "No call was answered in the time of this report, so there is nothing to show." } },
        }
        (mount(report))
        (facts(report))
    };
    page::frame(&report.title, &report.subtitle, &body, &footer(report))
}

/// Who wrote the page, and when.
pub(super) fn footer(report: &Report) -> String {
    let written = utc(report.created_unix_ms);
    format!("Written by Clockwork on {written}. The same figures, and more, are in report.json.")
}

fn measured(report: &Report, findings: &Findings) -> Markup {
    let peak = report.periods.iter().position(|period| period.hour == findings.peak_hour);
    html! {
        (key_figures(report, findings))
        (explanation(report, findings))
        section {
            h2 { "Requests by store and hour" }
            p class="small" { "NFS calls that the router sent to each store." }
            (names(report))
            div class="scroll" { (requests_chart(report, peak).columns()) }
        }
        section {
            h2 { "Mean response time by store and hour" }
            p class="small" { "From the call's arrival at the router to the store's reply, milliseconds. Lower is better." }
            (names(report))
            div class="scroll" { (response_chart(report, peak).lines()) }
        }
        section {
            h2 { "Share of all requests by store" }
            (share_bars(report))
            div class="scroll" { (store_table(report)) }
        }
        (hot_files(report))
        section { details {
            summary { "All hours as a table" }
            div class="scroll" { (hour_table(report, findings)) }
        } }
    }
}

pub(super) fn names(report: &Report) -> Markup {
    legend(&report.stores.iter().map(|store| store.total.name.as_str()).collect::<Vec<_>>())
}

fn key_figures(report: &Report, findings: &Findings) -> Markup {
    let length = report.periods.iter().map(|period| period.length_ms).sum();
    let even = 1.0 / report.stores.len().max(1) as f64;
    let ms = |value: f64| format!("{} ms", three_digits(value));
    let (periods, over) = (report.periods.len(), duration(length));
    let figures = [
        (thousands(report.requests), format!("requests in {periods} periods, measured over {over}")),
        (
            percent(findings.busiest_share),
            format!(
                "went to the busiest store, {}; an even split is {}",
                findings.busiest_store,
                percent(even)
            ),
        ),
        (
            ms(findings.slowest_peak_ms),
            format!("mean response of the slowest store, {}, in the peak hour", findings.slowest_store),
        ),
        (
            ms(findings.fastest_peak_ms),
            format!("mean response of the fastest store, {}, in the same hour", findings.fastest_store),
        ),
    ];
    page::figures(&figures, false)
}

fn explanation(report: &Report, findings: &Findings) -> Markup {
    let failed: u64 = report.stores.iter().map(|store| store.total.failed).sum();
    let times =
        |part: f64, whole: f64| if whole > 0.0 { three_digits(part / whole) } else { "–".to_owned() };
    html! {
        section {
            h2 { "What this says" }
            p {
                "The busiest hour was " (findings.peak_hour) ", with " (thousands(findings.peak_requests)) " requests. In it "
                b { (findings.slowest_store) } " took " b { (three_digits(findings.slowest_peak_ms)) " ms" } " on average, "
                (times(findings.slowest_peak_ms, findings.fastest_peak_ms)) " times as long as " b { (findings.fastest_store) }
                " (" (three_digits(findings.fastest_peak_ms)) " ms). In its own quietest hour " (findings.slowest_store) " took "
                (three_digits(findings.slowest_quiet_ms)) " ms: under load it took "
                (times(findings.slowest_peak_ms, findings.slowest_quiet_ms)) " times as long. The same ratio of "
                (findings.fastest_store) " is " (times(findings.fastest_peak_ms, findings.fastest_quiet_ms)) "."
            }
            p {
                "A rule that spreads files evenly does not spread waiting evenly: where requests look alike and response times "
                "do not, the slower stores are near their limit while the faster ones have room. Moving a few of the hottest "
                "files to a store with room, before the busy hour, is what evens this out."
            }
            @if failed > 0 {
                p { b { (thousands(failed)) " calls failed" } " (no usable answer from the store). See the table of stores below." }
            }
        }
    }
}

pub(super) fn hours(report: &Report) -> Vec<u64> {
    report.periods.iter().map(|period| period.hour).collect()
}

pub(super) fn requests_chart(report: &Report, peak: Option<usize>) -> Chart<'_> {
    chart(report, peak, "requests by store and hour", "requests in the hour", "requests", |store| {
        Some(store.requests as f64)
    })
}

pub(super) fn response_chart(report: &Report, peak: Option<usize>) -> Chart<'_> {
    chart(report, peak, "mean response time by store and hour", "mean response time, ms", "ms", |store| {
        store.mean_response_ms
    })
}

fn chart<'a>(
    report: &'a Report,
    peak: Option<usize>,
    label: &str,
    axis: &'a str,
    unit: &'a str,
    value: impl Fn(&super::StorePeriodReport) -> Option<f64>,
) -> Chart<'a> {
    let series = report.stores.iter().enumerate().map(|(index, store)| Series {
        name: &store.total.name,
        values: report.periods.iter().map(|period| period.stores.get(index).and_then(&value)).collect(),
    });
    Chart {
        label: format!("Chart: {label}"),
        axis,
        unit,
        along: Along::Steps(hours(report)),
        along_axis: "hour",
        shaded: peak.map(|place| Shaded::step(place, "peak hour")),
        series: series.collect(),
        band: Vec::new(),
        level: None,
    }
}

fn share_bars(report: &Report) -> Markup {
    let stores: Vec<_> = report
        .stores
        .iter()
        .map(|store| (store.total.name.as_str(), store.total.share, store.total.requests))
        .collect();
    shares(&stores)
}

fn store_table(report: &Report) -> Markup {
    html! {
        table {
            thead { tr {
                th { "Store" } th class="n" { "Requests" } th class="n" { "Failed" } th class="n" { "Mean, ms" }
                th class="n" { "Median, ms" } th class="n" { "95 %, ms" } th class="n" { "Longest, ms" }
                th class="n" { "Read" } th class="n" { "Written" }
            } }
            tbody {
                @for (number, store) in report.stores.iter().map(|store| &store.total).enumerate() {
                    tr {
                        td class="store" { span class=(format!("swatch b{}", number % COLOURS)) {} (store.name) }
                        td class="n" { (thousands(store.requests)) } td class="n" { (thousands(store.failed)) }
                        td class="n" { (ms(store.mean_response_ms)) } td class="n" { (ms(store.median_ms)) }
                        td class="n" { (ms(store.p95_ms)) } td class="n" { (ms(store.max_ms)) }
                        td class="n" { (bytes(store.bytes_read)) } td class="n" { (bytes(store.bytes_written)) }
                    }
                }
            }
        }
    }
}

pub(super) fn hot_files(report: &Report) -> Markup {
    let shown = report.hot_files.iter().take(HOT_FILES_SHOWN);
    let together: f64 = shown.clone().map(|file| file.share).sum();
    html! {
        @if !report.hot_files.is_empty() {
            section {
                h2 { "Hottest files" }
                p class="small" {
                    "These " (shown.len()) " files had " (percent(together)) " of all requests. A file that the router has seen no name "
                    "of is shown by its handle."
                }
                div class="scroll" { table {
                    thead { tr {
                        th { "File" } th { "Store" } th class="n" { "Requests" } th class="n" { "Share" }
                        th class="n" { "Reads" } th class="n" { "Writes" } th class="n" { "Other" } th class="n" { "Read" }
                    } }
                    tbody {
                        @for file in shown {
                            tr {
                                td class="path" { (file.path) } td class="store" { (file.store) }
                                td class="n" { (thousands(file.requests)) } td class="n" { (percent(file.share)) }
                                td class="n" { (thousands(file.reads)) } td class="n" { (thousands(file.writes)) }
                                td class="n" { (thousands(file.metadata)) } td class="n" { (bytes(file.bytes_read)) }
                            }
                        }
                    }
                } }
            }
        }
    }
}

fn hour_table(report: &Report, findings: &Findings) -> Markup {
    let stores = || report.stores.iter().map(|store| &store.total.name);
    html! {
        table {
            thead {
                tr {
                    th {} th {} th class="n" colspan=(report.stores.len()) { "Requests" }
                    th class="n" colspan=(report.stores.len()) { "Mean response, ms" }
                }
                tr {
                    th { "Hour" } th class="n" { "All" }
                    @for name in stores().chain(stores()) { th class="n" { (name) } }
                }
            }
            tbody {
                @for period in &report.periods {
                    tr class=[(period.hour == findings.peak_hour).then_some("peakrow")] {
                        td { (period.hour) } td class="n" { (thousands(period.requests)) }
                        @for store in &period.stores { td class="n" { (thousands(store.requests)) } }
                        @for store in &period.stores { td class="n" { (ms(store.mean_response_ms)) } }
                    }
                }
            }
        }
    }
}

pub(super) fn mount(report: &Report) -> Markup {
    html! {
        @if !report.mount.is_empty() {
            section {
                h2 { "Mount it" }
                p class="small" { "While the plex runs, any NFSv3 client can use it as one server:" }
                pre { (report.mount.join("\n")) }
            }
        }
    }
}

pub(super) fn facts(report: &Report) -> Markup {
    html! {
        @if !report.facts.is_empty() {
            section {
                h2 { "What was run" }
                dl { @for fact in &report.facts { dt { (fact.name) } dd { (fact.value) } } }
            }
        }
    }
}
