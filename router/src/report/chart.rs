//! Charts as inline SVG: grouped columns, lines, and bars of shares. Colours come from the page's style sheet, so
//! that they follow light and dark; every mark has a tooltip that says its figures in words.

use maud::{Markup, html};

use super::format::{percent, thousands, three_digits};
use super::scale::Scale;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 48.0;

/// Colours of the style sheet; further series take them again, with dashed lines.
pub(super) const COLOURS: usize = 8;

/// Above this many columns lines are drawn instead: columns of less than two pixels cannot be told apart.
const COLUMNS_MAX: usize = 240;

/// Above this many points a line has no dots.
const DOTS_MAX: usize = 72;

/// Where the largest value is so many times the smallest a logarithmic axis is used.
const LOG_RATIO_MIN: f64 = 60.0;

/// One store's values, one a period.
pub(super) struct Series<'a> {
    pub(super) name: &'a str,
    pub(super) values: Vec<Option<f64>>,
}

/// A level that all values are held against: a dashed line across the chart.
pub(super) struct Level<'a> {
    pub(super) value: f64,
    pub(super) name: &'a str,
}

/// What a chart shows.
pub(super) struct Chart<'a> {
    /// Read out by screen readers.
    pub(super) label: String,
    /// What is measured, with its unit: `requests an hour`.
    pub(super) axis: &'a str,
    /// Unit in tooltips: `requests`, `ms`.
    pub(super) unit: &'a str,
    pub(super) hours: Vec<u64>,
    /// The place of the peak among the hours: shaded.
    pub(super) peak: Option<usize>,
    pub(super) series: Vec<Series<'a>>,
    /// A range at each hour: what was thought likely.
    pub(super) band: Vec<Option<(f64, f64)>>,
    pub(super) level: Option<Level<'a>>,
}

impl Chart<'_> {
    /// Columns grouped by hour, or lines where there are too many.
    pub(super) fn columns(&self) -> Markup {
        if self.hours.len() * self.series.len() > COLUMNS_MAX {
            return self.draw(&self.linear(), &self.line_marks(&self.linear()));
        }
        let scale = self.linear();
        let width = (self.step() * 0.8 / self.series.len().max(1) as f64).clamp(1.0, 40.0);
        let group = width * self.series.len() as f64;
        let marks = html! {
            @for (at, hour) in self.hours.iter().enumerate() {
                @for (number, series) in self.series.iter().enumerate() {
                    @if let Some(value) = series.values.get(at).copied().flatten() {
                        @let x = self.x(at) - group / 2.0 + width * number as f64;
                        rect class=(format!("f{}", number % COLOURS)) x=(px(x)) y=(px(scale.at(value)))
                            width=(px((width - 0.6).max(0.6))) height=(px(scale.at(0.0) - scale.at(value))) rx="1.5" {
                            title { (self.tip(*hour, series.name, value)) }
                        }
                    }
                }
            }
        };
        self.draw(&scale, &marks)
    }

    /// Lines over the hours.
    pub(super) fn lines(&self) -> Markup {
        let values = || self.values();
        let low = values().filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
        let high = values().fold(0.0, f64::max);
        let scale = if high > low * LOG_RATIO_MIN {
            Scale::log(low, high, HEIGHT - BOTTOM, TOP)
        } else {
            self.linear()
        };
        let marks = self.line_marks(&scale);
        self.draw(&scale, &marks)
    }

    fn line_marks(&self, scale: &Scale) -> Markup {
        let dots = self.hours.len() <= DOTS_MAX;
        html! {
            (self.band_marks(scale)) (self.level_mark(scale))
            @for (number, series) in self.series.iter().enumerate() {
                path class=(format!("l{}", number % COLOURS)) d=(self.path(series, scale))
                    stroke-dasharray=[(number >= COLOURS).then_some("6 4")] {}
            }
            @for (number, series) in self.series.iter().enumerate() {
                @for (at, value) in series.values.iter().enumerate() {
                    @if let (Some(value), Some(hour)) = (value, self.hours.get(at)) {
                        g class=(format!("d{}", number % COLOURS)) {
                            title { (self.tip(*hour, series.name, *value)) }
                            circle class="hit" cx=(px(self.x(at))) cy=(px(scale.at(*value))) r="9" {}
                            @if dots {
                                circle class="dot" cx=(px(self.x(at))) cy=(px(scale.at(*value))) r="3.4" {}
                            }
                        }
                    }
                }
            }
        }
    }

    /// The line of a series; where a value is missing the line has a gap.
    fn path(&self, series: &Series<'_>, scale: &Scale) -> String {
        let mut path = String::new();
        let mut pen_down = false;
        for (at, value) in series.values.iter().enumerate() {
            if let Some(value) = value {
                path.push(if pen_down { 'L' } else { 'M' });
                path.push_str(&format!("{} {}", px(self.x(at)), px(scale.at(*value))));
            }
            pen_down = value.is_some();
        }
        path
    }

    fn linear(&self) -> Scale {
        Scale::linear(self.values().fold(0.0, f64::max), HEIGHT - BOTTOM, TOP)
    }

    /// Everything that has to have a place.
    fn values(&self) -> impl Iterator<Item = f64> {
        let lines = self.series.iter().flat_map(|series| series.values.iter().flatten().copied());
        lines
            .chain(self.band.iter().flatten().map(|(_, high)| *high))
            .chain(self.level.as_ref().map(|l| l.value))
    }

    /// The band as bars from low to high, one an hour.
    fn band_marks(&self, scale: &Scale) -> Markup {
        let width = (self.step() * 0.5).clamp(1.0, 14.0);
        html! {
            @for (at, range) in self.band.iter().enumerate() {
                @if let Some((low, high)) = range {
                    rect class="band" x=(px(self.x(at) - width / 2.0)) y=(px(scale.at(*high))) width=(px(width))
                        height=(px((scale.at(*low) - scale.at(*high)).max(1.0))) rx="2" {}
                }
            }
        }
    }

    fn level_mark(&self, scale: &Scale) -> Markup {
        html! {
            @if let Some(level) = &self.level {
                line class="level" x1=(px(LEFT)) x2=(px(WIDTH - RIGHT)) y1=(px(scale.at(level.value)))
                    y2=(px(scale.at(level.value))) {}
                text class="note" x=(px(WIDTH - RIGHT)) y=(px(scale.at(level.value) - 6.0)) text-anchor="end" {
                    (level.name)
                }
            }
        }
    }

    /// Width of one hour, pixels.
    fn step(&self) -> f64 {
        (WIDTH - LEFT - RIGHT) / self.hours.len().max(1) as f64
    }

    /// The middle of an hour.
    fn x(&self, at: usize) -> f64 {
        LEFT + (at as f64 + 0.5) * self.step()
    }

    fn tip(&self, hour: u64, name: &str, value: f64) -> String {
        format!("hour {hour} · {name}: {} {}", three_digits(value), self.unit)
    }

    fn draw(&self, scale: &Scale, marks: &Markup) -> Markup {
        let right = WIDTH - RIGHT;
        let base = HEIGHT - BOTTOM;
        // Labels need about 34 pixels each.
        let every =
            [1, 2, 3, 4, 6, 12, 24, 48, 168].into_iter().find(|every| self.step() * *every as f64 >= 34.0);
        let every = every.unwrap_or(672);
        html! {
            svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-label=(self.label) {
                @if let Some(peak) = self.peak {
                    rect class="peak" x=(px(self.x(peak) - self.step() / 2.0)) y=(px(TOP - 4.0))
                        width=(px(self.step())) height=(px(base - TOP + 4.0)) {}
                    text class="note" x=(px(self.x(peak).clamp(LEFT + 34.0, right - 34.0))) y=(px(TOP - 9.0))
                        text-anchor="middle" { "peak hour" }
                }
                @for tick in &scale.ticks {
                    line class="grid" x1=(px(LEFT)) x2=(px(right)) y1=(px(scale.at(*tick))) y2=(px(scale.at(*tick))) {}
                    text x=(px(LEFT - 8.0)) y=(px(scale.at(*tick) + 4.0)) text-anchor="end" { (tick_text(*tick)) }
                }
                line class="axis" x1=(px(LEFT)) x2=(px(right)) y1=(px(base)) y2=(px(base)) {}
                @for (at, hour) in self.hours.iter().enumerate().step_by(every) {
                    text x=(px(self.x(at))) y=(px(base + 18.0)) text-anchor="middle" { (hour) }
                }
                text x=(px((LEFT + right) / 2.0)) y=(px(HEIGHT - 8.0)) text-anchor="middle" { "hour" }
                text transform=(format!("translate(16 {}) rotate(-90)", px((TOP + base) / 2.0))) text-anchor="middle" {
                    (self.axis) @if scale.is_log() { " (logarithmic)" }
                }
                (marks)
            }
        }
    }
}

/// The names of the series with their colours.
pub(super) fn legend(names: &[&str]) -> Markup {
    html! {
        ul class="legend" {
            @for (number, name) in names.iter().enumerate() {
                li { span class=(format!("swatch b{}", number % COLOURS)) {} (name) }
            }
        }
    }
}

/// A bar a store: its share of all requests, with a mark where an even split would be.
pub(super) fn shares(stores: &[(&str, f64, u64)]) -> Markup {
    let even = 1.0 / stores.len().max(1) as f64;
    let most = stores.iter().fold(even, |most, store| most.max(store.1)).max(1e-9);
    let full = |share: f64| format!("{:.2}%", share / most * 100.0);
    html! {
        div class="shares" {
            @for (number, (name, share, requests)) in stores.iter().enumerate() {
                span class="name" { (name) }
                span class="track" title=(format!("{name}: {} requests, {}", thousands(*requests), percent(*share))) {
                    span class=(format!("bar b{}", number % COLOURS)) style=(format!("width:{}", full(*share))) {}
                    span class="even" style=(format!("left:{}", full(even))) {}
                }
                span class="number" { (percent(*share)) }
            }
        }
        p class="small" { "The dashed mark is an even split, " (percent(even)) " each." }
    }
}

fn px(value: f64) -> String {
    let rounded = (value * 10.0).round() / 10.0;
    format!("{rounded}")
}

fn tick_text(tick: f64) -> String {
    if tick >= 1_000.0 { thousands(tick.round() as u64) } else { format!("{}", (tick * 1e6).round() / 1e6) }
}
