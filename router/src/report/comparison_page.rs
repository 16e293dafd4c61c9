//! The comparison as one page of HTML, with the paper's figures 2 to 5.

use fstress_replay::page::chart::{Along, Chart, Level, Series, Shaded, legend};
use fstress_replay::page::{figures, frame};
use maud::{Markup, html};

use super::comparison::{Comparison, ForecastPeriod, MoveReport, PASSES, PassReport};
use super::format::{ms, percent, thousands, three_digits};
use super::model::Report;
use super::page::{facts, footer, hot_files, hours, mount, names, requests_chart, response_chart};

/// Moves on the page; the JSON has all.
const MOVES_SHOWN: usize = 60;

/// The page: complete in itself (no script, nothing fetched), readable on a telephone and in the dark.
#[must_use]
pub fn comparison_page(report: &Report, comparison: &Comparison) -> String {
    let body = html! {
        (key_figures(comparison))
        (passes(report, comparison))
        (without_control(report))
        (forecasts(report, comparison))
        (beside_the_paper(comparison))
        (moves(&comparison.moves))
        (hot_files(report))
        section { details { summary { "All hours as a table" } div class="scroll" { (hour_table(report, comparison)) } } }
        (mount(report))
        (facts(report))
    };
    frame(&report.title, &report.subtitle, &body, &footer(report))
}

fn key_figures(comparison: &Comparison) -> Markup {
    let [base, fixed, adjusted] = comparison.passes();
    let (hours, files) = comparison.moved();
    let of = base.periods.len();
    let shown = [
        (
            format!("{} of {of}", adjusted.met),
            format!(
                "hours within the objective with Clockwork; {} under the default rule, {} with one static assignment",
                base.met, fixed.met
            ),
        ),
        (
            three_digits(adjusted.worst_over_base),
            format!(
                "of the default rule's worst hour: {} ms instead of {} ms",
                ms(Some(adjusted.worst_ms)),
                ms(Some(base.worst_ms))
            ),
        ),
        (
            adjusted.harmed.to_string(),
            format!(
                "hours harmed: over the objective and slower than under the default rule (static: {})",
                fixed.harmed
            ),
        ),
        (files.to_string(), format!("files moved, before {hours} of {of} hours")),
    ];
    figures(&shown, false)
}

fn passes(report: &Report, comparison: &Comparison) -> Markup {
    let objective = comparison.objective;
    let line = format!("objective {} ms", three_digits(objective.ms));
    let series = PASSES.iter().zip(comparison.passes()).map(|(name, pass)| Series {
        name,
        values: pass.periods.iter().map(|period| period.period.max_mean_response_ms).collect(),
    });
    let chart = Chart {
        label: "Chart: the slowest store's mean response time in each hour, by pass".into(),
        axis: "slowest store's mean, ms",
        unit: "ms",
        along: Along::Steps(hours(report)),
        along_axis: "hour",
        shaded: shaded(report),
        series: series.collect(),
        band: Vec::new(),
        level: Some(Level { value: objective.ms, name: &line }),
    };
    html! {
        section {
            h2 { "Response time with and without control" }
            p class="small" {
                "The slowest store's mean response time in each hour: the same day three times on the same four stores (the paper's figure 5). "
                "The objective is that of the default rule's hours which eleven miss; it is the same for all."
            }
            (legend(&PASSES))
            div class="scroll" { (chart.lines()) }
            div class="scroll" { table {
                thead { tr {
                    th { "Pass" } th class="n" { "Met" } th class="n" { "Missed" } th class="n" { "Harmed" }
                    th class="n" { "Worst hour, ms" } th class="n" { "Over the default rule's" }
                } }
                tbody { @for (name, pass) in PASSES.iter().zip(comparison.passes()) { (pass_row(name, pass)) } }
            } }
        }
    }
}

fn pass_row(name: &str, pass: &PassReport) -> Markup {
    html! { tr {
        td { (name) } td class="n" { (pass.met) } td class="n" { (pass.missed) } td class="n" { (pass.harmed) }
        td class="n" { (ms(Some(pass.worst_ms))) } td class="n" { (three_digits(pass.worst_over_base)) }
    } }
}

fn without_control(report: &Report) -> Markup {
    html! {
        section {
            h2 { "Requests by store, without control" }
            p class="small" { "NFS calls that the default rule sent to each store (the paper's figure 2): spread evenly." }
            (names(report))
            div class="scroll" { (requests_chart(report, peak(report)).columns()) }
        }
        section {
            h2 { "Mean response time by store, without control" }
            p class="small" {
                "From the call's arrival at the router to the store's reply, milliseconds (the paper's figure 3): very unlike. "
                "A rule that spreads files evenly does not spread waiting evenly."
            }
            (names(report))
            div class="scroll" { (response_chart(report, peak(report)).lines()) }
        }
    }
}

fn peak(report: &Report) -> Option<usize> {
    let hour = report.findings.as_ref()?.peak_hour;
    report.periods.iter().position(|period| period.hour == hour)
}

fn shaded(report: &Report) -> Option<Shaded<'static>> {
    peak(report).map(|place| Shaded::step(place, "peak hour"))
}

fn forecasts(report: &Report, comparison: &Comparison) -> Markup {
    let forecast = &comparison.forecast;
    let part = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), percent);
    html! {
        section {
            h2 { "Forecast against actual response time" }
            p class="small" {
                "Forecast when the hour began, for the files as they were then assigned, and measured (the paper's figure 4). "
                "Bars: the 66 % interval of the forecast. Of " (forecast.compared) " store-hours that were not saturated the median error is "
                (part(forecast.median_error)) ", the mean error " (part(forecast.mape)) "; " (part(forecast.coverage66))
                " were within the interval (66 % should be). Requests were forecast with a mean error of " (part(forecast.requests_mape)) "."
            }
            (legend(&["actual", "forecast"]))
            @for store in &report.stores {
                @let periods: Vec<&ForecastPeriod> =
                    forecast.periods.iter().filter(|period| period.store == store.total.name).collect();
                @if !periods.is_empty() {
                    p class="small" { b { (store.total.name) } }
                    div class="scroll" { (forecast_chart(report, &store.total.name, &periods).lines()) }
                }
            }
        }
    }
}

fn forecast_chart<'a>(report: &Report, store: &str, periods: &[&ForecastPeriod]) -> Chart<'a> {
    let hours = hours(report);
    let of = |hour: &u64| periods.iter().find(|period| period.hour == *hour);
    let actual = hours.iter().map(|hour| of(hour).and_then(|period| period.actual_ms)).collect();
    let forecast = hours.iter().map(|hour| of(hour).map(|period| period.forecast_ms)).collect();
    let band = hours.iter().map(|hour| of(hour).map(|period| (period.low66_ms, period.high66_ms))).collect();
    Chart {
        label: format!("Chart: forecast and actual mean response time of {store}"),
        axis: "mean response time, ms",
        unit: "ms",
        along: Along::Steps(hours),
        along_axis: "hour",
        shaded: shaded(report),
        series: vec![
            Series { name: "actual", values: actual },
            Series { name: "forecast", values: forecast },
        ],
        band,
        level: None,
    }
}

fn beside_the_paper(comparison: &Comparison) -> Markup {
    html! {
        section {
            h2 { "Beside the paper" }
            p class="small" { "Russell, Morgan and Chron, IBM Systems Journal 42(1), 2003; four unlike stores, over 1,100 files, 24 hours." }
            div class="scroll" { table {
                thead { tr { th {} th { "The paper" } th { "Here" } } }
                tbody { @for [what, paper, here] in comparison.beside_the_paper() {
                    tr { td { (what) } td { (paper) } td { (here) } }
                } }
            } }
        }
    }
}

fn moves(moves: &[MoveReport]) -> Markup {
    html! {
        @if !moves.is_empty() {
            section { details {
                summary { "Files moved (" (moves.len()) ")" }
                div class="scroll" { table {
                    thead { tr { th class="n" { "Hour" } th { "File" } th { "From" } th { "To" } th { "By" } th { "Why" } } }
                    tbody { @for file in moves.iter().take(MOVES_SHOWN) { tr {
                        td class="n" { (file.hour) } td class="path" { (file.file) } td class="store" { (file.from) }
                        td class="store" { (file.to) } td { (file.by) } td { (file.reason) }
                    } } }
                } }
                @if moves.len() > MOVES_SHOWN { p class="small" { "The rest is in report.json." } }
            } }
        }
    }
}

fn hour_table(report: &Report, comparison: &Comparison) -> Markup {
    let stores = || report.stores.iter().map(|store| &store.total.name);
    html! {
        table {
            thead {
                tr {
                    th {} th {} th class="n" colspan=(report.stores.len()) { "Default rule: requests" }
                    th class="n" colspan=(report.stores.len()) { "Default rule: mean response, ms" }
                    th class="n" colspan="3" { "Slowest store, ms" }
                }
                tr {
                    th { "Hour" } th class="n" { "All" }
                    @for name in stores().chain(stores()) { th class="n" { (name) } }
                    @for name in PASSES { th class="n" { (name) } }
                }
            }
            tbody {
                @for (at, period) in report.periods.iter().enumerate() {
                    tr class=[(Some(at) == peak(report)).then_some("peakrow")] {
                        td { (period.hour) } td class="n" { (thousands(period.requests)) }
                        @for store in &period.stores { td class="n" { (thousands(store.requests)) } }
                        @for store in &period.stores { td class="n" { (ms(store.mean_response_ms)) } }
                        @for pass in comparison.passes() {
                            td class="n" { @if let Some(period) = pass.periods.get(at) {
                                (ms(period.period.max_mean_response_ms))
                                @if !period.met { "\u{a0}*" }
                            } }
                        }
                    }
                }
            }
        }
    }
}
