//! A report as one page of HTML: complete in itself (no script, nothing fetched), readable on a telephone and in the dark.

use maud::{DOCTYPE, Markup, PreEscaped, html};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 48.0;
/// Where the largest value is so many times the smallest a logarithmic axis is used.
const LOG_RATIO_MIN: f64 = 60.0;
/// Above this many points a line has no dots.
const DOTS_MAX: usize = 60;

/// A line of a chart.
pub(crate) struct Series {
    pub(crate) name: String,
    /// Where, and what; a value that is missing makes a gap.
    pub(crate) points: Vec<(f64, Option<f64>)>,
}

/// Lines over time.
pub(crate) struct Chart {
    pub(crate) title: String,
    /// What is measured, with its unit.
    pub(crate) axis: String,
    /// Unit in tooltips.
    pub(crate) unit: &'static str,
    pub(crate) x_axis: String,
    pub(crate) x_unit: &'static str,
    /// A part of the time that is shaded, and what it is.
    pub(crate) shaded: Option<((f64, f64), String)>,
    pub(crate) series: Vec<Series>,
}

/// All that a page shows.
pub(crate) struct Page {
    pub(crate) title: String,
    pub(crate) subtitle: String,
    /// Why the run is invalid; empty if it is not.
    pub(crate) invalid: Vec<String>,
    /// Figures and what they are.
    pub(crate) figures: Vec<(String, String)>,
    pub(crate) charts: Vec<Chart>,
    /// A table of operations: the first column is a name, the others are numbers.
    pub(crate) header: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
    pub(crate) facts: Vec<String>,
}

impl Page {
    pub(crate) fn html(&self) -> String {
        let body = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { (self.title) }
                    style { (PreEscaped(include_str!("page.css"))) }
                }
                body { main {
                    h1 { (self.title) }
                    p class="lead" { (self.subtitle) }
                    @if !self.invalid.is_empty() {
                        section class="invalid" {
                            h2 { "This run is invalid" }
                            @for reason in &self.invalid { p { (reason) } }
                        }
                    }
                    div class="figures" {
                        @for (figure, what) in &self.figures { div class="figure" { b { (figure) } span { (what) } } }
                    }
                    @for chart in &self.charts { (chart.section()) }
                    section {
                        h2 { "Operations" }
                        p class="small" { "Response times in ms, from the moment a call was due to the moment its reply was read." }
                        div class="scroll" { table {
                            thead { tr {
                                @for (place, name) in self.header.iter().enumerate() { th class=[(place > 0).then_some("n")] { (name) } }
                            } }
                            tbody { @for row in &self.rows { tr {
                                @for (place, cell) in row.iter().enumerate() { td class=(if place > 0 { "n" } else { "store" }) { (cell) } }
                            } } }
                        } }
                    }
                    section { h2 { "Notes" } @for fact in &self.facts { p class="small" { (fact) } } }
                    footer { "Written by fstress-replay " (env!("CARGO_PKG_VERSION")) "." }
                } }
            }
        };
        body.into_string()
    }
}

/// An axis from values to places.
struct Scale {
    low: f64,
    high: f64,
    log: bool,
    from: f64,
    to: f64,
    ticks: Vec<f64>,
}

impl Scale {
    fn linear(high: f64, from: f64, to: f64) -> Self {
        let high = if high.is_finite() && high > 0.0 { high } else { 1.0 };
        let step = round_step(high / 5.0);
        let count = (high / step - 1e-9).ceil().max(1.0);
        let ticks = (0..=count as usize).map(|tick| tick as f64 * step).collect();
        Self { low: 0.0, high: count * step, log: false, from, to, ticks }
    }

    fn log(low: f64, high: f64, from: f64, to: f64) -> Self {
        let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
        let ticks: Vec<f64> = (first..=last.max(first + 1)).map(|decade| 10f64.powi(decade)).collect();
        let (low, high) = (10f64.powi(first), 10f64.powi(last.max(first + 1)));
        Self { low, high, log: true, from, to, ticks }
    }

    fn at(&self, value: f64) -> f64 {
        let part = if self.log {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + (self.to - self.from) * part
    }
}

/// The next of 1, 2, 2.5 and 5 times a power of ten.
fn round_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let digit = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|digit| digit * power >= step * 0.999_999);
    digit.unwrap_or(10.0) * power
}

impl Chart {
    fn section(&self) -> Markup {
        html! {
            section {
                h2 { (self.title) }
                ul class="legend" {
                    @for (number, series) in self.series.iter().enumerate() {
                        li { span class=(format!("swatch b{number}")) {} (series.name) }
                    }
                }
                div class="scroll" { (self.svg()) }
            }
        }
    }

    fn values(&self) -> impl Iterator<Item = f64> {
        let points = self.series.iter().flat_map(|series| &series.points);
        points.filter_map(|(_, value)| *value).filter(|value| value.is_finite())
    }

    fn vertical(&self) -> Scale {
        let low = self.values().filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
        let high = self.values().fold(0.0, f64::max);
        if low.is_finite() && high > low * LOG_RATIO_MIN && self.values().all(|value| value > 0.0) {
            Scale::log(low, high, HEIGHT - BOTTOM, TOP)
        } else {
            Scale::linear(high, HEIGHT - BOTTOM, TOP)
        }
    }

    fn horizontal(&self) -> Scale {
        let x = || self.series.iter().flat_map(|series| &series.points).map(|(x, _)| *x);
        let end = x().fold(self.shaded.as_ref().map_or(0.0, |((_, end), _)| *end), f64::max);
        let begin = x().fold(f64::INFINITY, f64::min);
        let (right, step) = (WIDTH - RIGHT, round_step(((end - begin) / 10.0).max(1e-3)));
        // Hours of a workload do not begin at zero; seconds of a run do.
        let low = if begin.is_finite() && begin > end / 4.0 { (begin / step).floor() * step } else { 0.0 };
        let high = if end > low { end } else { low + 1.0 };
        let count = ((high - low) / step + 1e-9).floor() as usize;
        let ticks = (0..=count).map(|tick| low + tick as f64 * step).collect();
        Scale { low, high, log: false, from: LEFT, to: right, ticks }
    }

    fn svg(&self) -> Markup {
        let (x, y) = (self.horizontal(), self.vertical());
        let (base, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        html! {
            svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-label=(self.title) {
                @if let Some(((from, to), what)) = &self.shaded {
                    rect class="peak" x=(px(x.at(*from))) y=(px(TOP - 4.0)) width=(px(x.at(*to) - x.at(*from)))
                        height=(px(base - TOP + 4.0)) {}
                    text class="note" x=(px(x.at(f64::midpoint(*from, *to)))) y=(px(TOP - 9.0)) text-anchor="middle" { (what) }
                }
                @for tick in &y.ticks {
                    line class="grid" x1=(px(LEFT)) x2=(px(right)) y1=(px(y.at(*tick))) y2=(px(y.at(*tick))) {}
                    text x=(px(LEFT - 8.0)) y=(px(y.at(*tick) + 4.0)) text-anchor="end" { (tick_text(*tick)) }
                }
                line class="axis" x1=(px(LEFT)) x2=(px(right)) y1=(px(base)) y2=(px(base)) {}
                @for tick in &x.ticks {
                    text x=(px(x.at(*tick))) y=(px(base + 18.0)) text-anchor="middle" { (tick_text(*tick)) }
                }
                text x=(px((LEFT + right) / 2.0)) y=(px(HEIGHT - 8.0)) text-anchor="middle" { (self.x_axis) }
                text transform=(format!("translate(16 {}) rotate(-90)", px((TOP + base) / 2.0))) text-anchor="middle" {
                    (self.axis) @if y.log { " (logarithmic)" }
                }
                @for (number, series) in self.series.iter().enumerate() {
                    path class=(format!("l{number}")) d=(path(series, &x, &y)) {}
                }
                @for (number, series) in self.series.iter().enumerate() {
                    g class=(format!("d{number}")) { (dots(series, &x, &y, self)) }
                }
            }
        }
    }
}

fn path(series: &Series, x: &Scale, y: &Scale) -> String {
    let mut path = String::new();
    let mut pen_down = false;
    for (at, value) in &series.points {
        if let Some(value) = value {
            path.push(if pen_down { 'L' } else { 'M' });
            path.push_str(&format!("{} {}", px(x.at(*at)), px(y.at(*value))));
        }
        pen_down = value.is_some();
    }
    path
}

fn dots(series: &Series, x: &Scale, y: &Scale, chart: &Chart) -> Markup {
    let shown = series.points.len() <= DOTS_MAX;
    html! {
        @for (at, value) in &series.points {
            @if let Some(value) = value {
                g {
                    title { (rounded(*at)) " " (chart.x_unit) " · " (series.name) ": " (rounded(*value)) " " (chart.unit) }
                    circle class="hit" cx=(px(x.at(*at))) cy=(px(y.at(*value))) r="6" {}
                    @if shown { circle class="dot" cx=(px(x.at(*at))) cy=(px(y.at(*value))) r="3" {} }
                }
            }
        }
    }
}

fn px(value: f64) -> String {
    let rounded = (value * 10.0).round() / 10.0;
    format!("{rounded}")
}

fn tick_text(tick: f64) -> String {
    format!("{}", (tick * 1e6).round() / 1e6)
}

/// A figure with three or four digits that matter.
pub(crate) fn rounded(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude >= 100.0 {
        format!("{value:.0}")
    } else if magnitude >= 10.0 {
        format!("{value:.1}")
    } else if magnitude >= 1.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.3}")
    }
}

/// A part of 1 as per cent.
pub(crate) fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(points: Vec<(f64, Option<f64>)>, invalid: Vec<String>) -> String {
        let series = vec![Series { name: "mean <b>".into(), points }];
        let chart = Chart {
            title: "Response".into(),
            axis: "ms".into(),
            unit: "ms",
            x_axis: "s".into(),
            x_unit: "s",
            shaded: Some(((1.0, 2.0), "measured".into())),
            series,
        };
        Page {
            title: "a & b".into(),
            subtitle: String::new(),
            invalid,
            figures: vec![("5".into(), "calls".into())],
            charts: vec![chart],
            header: vec!["operation".into(), "called".into()],
            rows: vec![vec!["READ".into(), "3".into()]],
            facts: vec!["fact".into()],
        }
        .html()
    }

    #[test]
    fn a_page_needs_nothing_else_and_escapes_what_it_shows() {
        let html = page(vec![(0.5, Some(1.0)), (1.5, None), (2.5, Some(400.0))], vec!["too late".into()]);
        assert!(html.contains("a &amp; b") && html.contains("mean &lt;b&gt;") && html.contains("too late"));
        for foreign in ["http://", "https://", "<script", "src="] {
            assert!(!html.contains(foreign), "{foreign}");
        }
        // The gap in the middle begins the line anew.
        assert_eq!(html.matches("class=\"l0\" d=\"M").count(), 1);
        let line = html.split("class=\"l0\" d=\"").nth(1).unwrap().split('"').next().unwrap();
        assert_eq!((line.matches('M').count(), line.matches('L').count()), (2, 0), "{line}");
        assert!(html.contains("(logarithmic)"));
    }

    #[test]
    fn a_page_without_any_value_can_be_drawn() {
        for points in [vec![], vec![(0.0, None)], vec![(3.0, Some(0.0))]] {
            let html = page(points, vec![]);
            assert!(html.contains("<svg") && !html.contains("NaN") && !html.contains("inf"), "{html}");
        }
    }
}
