//! Charts as inline SVG: grouped columns and lines. Colours come from the page's style sheet, so that they follow light and
//! dark; every mark has a tooltip that says its figures in words.

use maud::{Markup, html};

use super::format::{thousands, three_digits};
use super::scale::{Scale, round_step};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 48.0;

/// Colours of the style sheet; further series take them again, with dashed lines.
pub const COLOURS: usize = 8;

/// Above this many columns lines are drawn instead: columns of less than two pixels cannot be told apart.
const COLUMNS_MAX: usize = 240;

/// Above this many points a line has no dots.
const DOTS_MAX: usize = 72;

/// Width of a character of a note, pixels: more than most have.
const CHARACTER: f64 = 7.0;

/// Pixels that a note keeps away from lines, where it can.
const CLEARANCE: f64 = 5.0;

/// Where the largest value is so many times the smallest a logarithmic axis is used.
const LOG_RATIO_MIN: f64 = 60.0;

/// Values at each place along the chart.
#[derive(Debug, Clone)]
pub struct Series<'a> {
    /// Its name in the legend and in tooltips.
    pub name: &'a str,
    /// A value that is missing makes a gap.
    pub values: Vec<Option<f64>>,
}

/// A level that all values are held against: a dashed line across the chart.
#[derive(Debug, Clone, Copy)]
pub struct Level<'a> {
    /// Where it is.
    pub value: f64,
    /// What is written beside it.
    pub name: &'a str,
}

/// The places along a chart.
#[derive(Debug, Clone)]
pub enum Along {
    /// Steps of equal width, such as hours, with their numbers. Step n has the coordinates from n to n + 1.
    Steps(Vec<u64>),
    /// Points in time or the like: their values are their coordinates. The axis begins at zero.
    Points(Vec<f64>),
}

impl Along {
    fn len(&self) -> usize {
        match self {
            Self::Steps(numbers) => numbers.len(),
            Self::Points(values) => values.len(),
        }
    }
}

/// A part of the chart that is shaded.
#[derive(Debug, Clone, Copy)]
pub struct Shaded<'a> {
    /// Its coordinates; see [`Along`].
    pub range: (f64, f64),
    /// What it is.
    pub name: &'a str,
}

impl<'a> Shaded<'a> {
    /// The step at a place.
    #[must_use]
    pub fn step(place: usize, name: &'a str) -> Self {
        Self { range: (place as f64, place as f64 + 1.0), name }
    }
}

/// What a chart shows.
#[derive(Debug, Clone)]
pub struct Chart<'a> {
    /// Read out by screen readers.
    pub label: String,
    /// What is measured, with its unit: `requests an hour`.
    pub axis: &'a str,
    /// Unit in tooltips: `requests`, `ms`.
    pub unit: &'a str,
    /// The places along it.
    pub along: Along,
    /// What they are: `hour`, `seconds since the start`.
    pub along_axis: &'a str,
    /// What is shaded.
    pub shaded: Option<Shaded<'a>>,
    /// The lines, or the columns of each group.
    pub series: Vec<Series<'a>>,
    /// A range at each place: what was thought likely.
    pub band: Vec<Option<(f64, f64)>>,
    /// What all is held against.
    pub level: Option<Level<'a>>,
}

impl Chart<'_> {
    /// Columns grouped by place, or lines where there are too many.
    #[must_use]
    pub fn columns(&self) -> Markup {
        let scale = self.linear();
        if self.along.len() * self.series.len() > COLUMNS_MAX {
            return self.draw(&scale, &self.line_marks(&scale));
        }
        let width = (self.step() * 0.8 / self.series.len().max(1) as f64).clamp(1.0, 40.0);
        let group = width * self.series.len() as f64;
        let marks = html! {
            @for at in 0..self.along.len() {
                @for (number, series) in self.series.iter().enumerate() {
                    @if let Some(value) = value(series, at) {
                        @let x = self.x(at) - group / 2.0 + width * number as f64;
                        rect class=(format!("f{}", number % COLOURS)) x=(px(x)) y=(px(scale.at(value)))
                            width=(px((width - 0.6).max(0.6))) height=(px(scale.at(0.0) - scale.at(value))) rx="1.5" {
                            title { (self.tip(at, series.name, value)) }
                        }
                    }
                }
            }
        };
        self.draw(&scale, &marks)
    }

    /// Lines; on a logarithmic axis where the values are very unlike.
    #[must_use]
    pub fn lines(&self) -> Markup {
        let low = self.values().fold(f64::INFINITY, f64::min);
        let high = self.values().fold(0.0, f64::max);
        let scale = if low > 0.0 && high > low * LOG_RATIO_MIN {
            Scale::log(low, high, HEIGHT - BOTTOM, TOP)
        } else {
            self.linear()
        };
        let marks = self.line_marks(&scale);
        self.draw(&scale, &marks)
    }

    fn line_marks(&self, scale: &Scale) -> Markup {
        let dots = self.along.len() <= DOTS_MAX;
        html! {
            (self.band_marks(scale)) (self.level_mark(scale))
            @for (number, series) in self.series.iter().enumerate() {
                path class=(format!("l{}", number % COLOURS)) d=(self.path(series, scale))
                    stroke-dasharray=[(number >= COLOURS).then_some("6 4")] {}
            }
            @for (number, series) in self.series.iter().enumerate() {
                @for at in 0..self.along.len() {
                    @if let Some(value) = value(series, at) {
                        g class=(format!("d{}", number % COLOURS)) {
                            title { (self.tip(at, series.name, value)) }
                            circle class="hit" cx=(px(self.x(at))) cy=(px(scale.at(value))) r="9" {}
                            @if dots {
                                circle class="dot" cx=(px(self.x(at))) cy=(px(scale.at(value))) r="3.4" {}
                            }
                        }
                    }
                }
            }
            (self.level_name(scale))
        }
    }

    /// The line of a series; where a value is missing the line has a gap.
    fn path(&self, series: &Series<'_>, scale: &Scale) -> String {
        let mut path = String::new();
        let mut pen_down = false;
        for at in 0..self.along.len() {
            let value = value(series, at);
            if let Some(value) = value {
                path.push(if pen_down { 'L' } else { 'M' });
                path.push_str(&format!("{} {}", px(self.x(at)), px(scale.at(value))));
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
            .chain(self.level.as_ref().map(|level| level.value))
            .filter(|value| value.is_finite())
    }

    /// The band as bars from low to high, one a place.
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
            }
        }
    }

    /// The name of the level, above or below it, where lines are furthest away; the first place that is far enough.
    fn level_name(&self, scale: &Scale) -> Markup {
        let Some(level) = &self.level else { return html! {} };
        let (y, width) = (scale.at(level.value), level.name.chars().count() as f64 * CHARACTER);
        let room = WIDTH - RIGHT - LEFT - width;
        let begin = |part: f64| LEFT + 6.0 + (room - 12.0).max(0.0) * part;
        let places = [1.0, 0.0, 0.5, 0.25, 0.75, 0.125, 0.375, 0.625, 0.875].map(begin);
        // Top and bottom of the text, and its base line.
        let sides = [(y - 18.0, y - 4.0, y - 6.0), (y + 5.0, y + 19.0, y + 16.0)];
        let mut best = (f64::NEG_INFINITY, places[0], sides[0].2);
        for (top, bottom, text) in sides {
            for x in places {
                let is_inside = top >= TOP - 12.0 && bottom <= HEIGHT - BOTTOM;
                let gap = if is_inside { self.gap(scale, (x, x + width), (top, bottom)) } else { -1.0 };
                if gap.min(CLEARANCE) > best.0 {
                    best = (gap.min(CLEARANCE), x, text);
                }
            }
        }
        html! { text class="note halo" x=(px(best.1)) y=(px(best.2)) { (level.name) } }
    }

    /// Pixels between a box and the nearest line above or below it; 0 where one crosses it.
    fn gap(&self, scale: &Scale, (left, right): (f64, f64), (top, bottom): (f64, f64)) -> f64 {
        let mut gap = f64::INFINITY;
        for series in &self.series {
            for at in 1..self.along.len() {
                let (Some(from), Some(to)) = (value(series, at - 1), value(series, at)) else { continue };
                let ((x0, y0), (x1, y1)) = ((self.x(at - 1), scale.at(from)), (self.x(at), scale.at(to)));
                let (begin, end) = (x0.max(left - CLEARANCE), x1.min(right + CLEARANCE));
                if begin > end {
                    continue;
                }
                let on_line = |x: f64| y0 + (y1 - y0) * (x - x0) / (x1 - x0).max(1e-9);
                let (high, low) = (on_line(begin).min(on_line(end)), on_line(begin).max(on_line(end)));
                gap = gap.min((top - low).max(high - bottom).max(0.0));
            }
        }
        gap
    }

    /// The coordinate that is at the right end of the axis.
    fn end(&self) -> f64 {
        match &self.along {
            Along::Steps(numbers) => numbers.len().max(1) as f64,
            Along::Points(values) => {
                let last = values.iter().copied().fold(0.0, f64::max);
                let end = self.shaded.map_or(last, |shaded| shaded.range.1.max(last));
                if end > 0.0 { end } else { 1.0 }
            }
        }
    }

    /// The place of a coordinate, pixels.
    fn place(&self, coordinate: f64) -> f64 {
        LEFT + coordinate / self.end() * (WIDTH - LEFT - RIGHT)
    }

    /// Width of one step, pixels.
    fn step(&self) -> f64 {
        (WIDTH - LEFT - RIGHT) / self.along.len().max(1) as f64
    }

    /// Where a place along the chart is: the middle of a step.
    fn x(&self, at: usize) -> f64 {
        match &self.along {
            Along::Steps(_) => self.place(at as f64 + 0.5),
            Along::Points(values) => self.place(values.get(at).copied().unwrap_or(0.0)),
        }
    }

    fn tip(&self, at: usize, name: &str, value: f64) -> String {
        let place = match &self.along {
            Along::Steps(numbers) => format!("hour {}", numbers.get(at).copied().unwrap_or(0)),
            Along::Points(values) => format!("{} s", three_digits(values.get(at).copied().unwrap_or(0.0))),
        };
        format!("{place} · {name}: {} {}", three_digits(value), self.unit)
    }

    /// Coordinates with a label, and the labels.
    fn labels(&self) -> Vec<(f64, String)> {
        match &self.along {
            Along::Steps(numbers) => {
                // Labels need about 34 pixels each.
                let every = [1, 2, 3, 4, 6, 12, 24, 48, 168].into_iter();
                let every = every.clone().find(|every| self.step() * *every as f64 >= 34.0).unwrap_or(672);
                let label = |(at, number): (usize, &u64)| (at as f64 + 0.5, number.to_string());
                numbers.iter().enumerate().step_by(every).map(label).collect()
            }
            Along::Points(_) => {
                let end = self.end();
                let step = round_step(end / 10.0);
                let count = (end / step + 1e-9).floor() as usize;
                (0..=count).map(|tick| tick as f64 * step).map(|at| (at, tick_text(at))).collect()
            }
        }
    }

    fn draw(&self, scale: &Scale, marks: &Markup) -> Markup {
        let right = WIDTH - RIGHT;
        let base = HEIGHT - BOTTOM;
        html! {
            svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-label=(self.label) {
                @if let Some(Shaded { range: (from, until), name }) = self.shaded {
                    rect class="peak" x=(px(self.place(from))) y=(px(TOP - 4.0))
                        width=(px((self.place(until) - self.place(from)).max(0.0))) height=(px(base - TOP + 4.0)) {}
                    text class="note" x=(px(self.place((from + until) / 2.0).clamp(LEFT + 34.0, right - 34.0)))
                        y=(px(TOP - 9.0)) text-anchor="middle" { (name) }
                }
                @for tick in &scale.ticks {
                    line class="grid" x1=(px(LEFT)) x2=(px(right)) y1=(px(scale.at(*tick))) y2=(px(scale.at(*tick))) {}
                    text x=(px(LEFT - 8.0)) y=(px(scale.at(*tick) + 4.0)) text-anchor="end" { (tick_text(*tick)) }
                }
                line class="axis" x1=(px(LEFT)) x2=(px(right)) y1=(px(base)) y2=(px(base)) {}
                @for (coordinate, label) in self.labels() {
                    text x=(px(self.place(coordinate))) y=(px(base + 18.0)) text-anchor="middle" { (label) }
                }
                text x=(px((LEFT + right) / 2.0)) y=(px(HEIGHT - 8.0)) text-anchor="middle" { (self.along_axis) }
                text transform=(format!("translate(16 {}) rotate(-90)", px((TOP + base) / 2.0))) text-anchor="middle" {
                    (self.axis) @if scale.is_log() { " (logarithmic)" }
                }
                (marks)
            }
        }
    }
}

/// The value of a series at a place.
fn value(series: &Series<'_>, at: usize) -> Option<f64> {
    series.values.get(at).copied().flatten().filter(|value| value.is_finite())
}

/// The names of the series with their colours.
#[must_use]
pub fn legend(names: &[&str]) -> Markup {
    html! {
        ul class="legend" {
            @for (number, name) in names.iter().enumerate() {
                li { span class=(format!("swatch b{}", number % COLOURS)) {} (name) }
            }
        }
    }
}

fn px(value: f64) -> String {
    let rounded = (value * 10.0).round() / 10.0;
    format!("{rounded}")
}

fn tick_text(tick: f64) -> String {
    if tick >= 1_000.0 { thousands(tick.round() as u64) } else { format!("{}", (tick * 1e6).round() / 1e6) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(values: Vec<Option<f64>>, level: f64) -> Chart<'static> {
        Chart {
            label: "Chart".into(),
            axis: "ms",
            unit: "ms",
            along: Along::Steps((0..values.len() as u64).collect()),
            along_axis: "hour",
            shaded: Some(Shaded::step(1, "peak hour")),
            series: vec![Series { name: "mean <b>", values }],
            band: Vec::new(),
            level: Some(Level { value: level, name: "objective 20 ms" }),
        }
    }

    /// Where the name of the level begins, and its base line.
    fn name_at(chart: &Chart<'_>) -> (f64, f64) {
        let html = chart.lines().into_string();
        let text = html.split("class=\"note halo\" ").nth(1).unwrap().split('>').next().unwrap().to_owned();
        let attribute = |name: &str| -> f64 {
            text.split(&format!("{name}=\"")).nth(1).unwrap().split('"').next().unwrap().parse().unwrap()
        };
        (attribute("x"), attribute("y"))
    }

    #[test]
    fn the_name_of_a_level_stands_where_no_line_is() {
        let at_level = HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * 20.0 / 50.0;
        // Lines far below: at the right end, above the level.
        let (x, y) = name_at(&chart(vec![Some(1.0); 24], 20.0));
        assert!(x > WIDTH / 2.0 && y < HEIGHT, "{x} {y}");
        // A line that crosses the right end there: elsewhere.
        let mut values = vec![Some(1.0); 24];
        for (at, value) in values.iter_mut().enumerate().skip(12) {
            *value = Some(20.0 + (at % 3) as f64 * 15.0);
        }
        let crossed = chart(values, 20.0);
        let (x, y) = name_at(&crossed);
        assert!(x + 15.0 * CHARACTER < crossed.x(12), "{x}");
        assert!((y - at_level).abs() < 20.0, "{y} beside {at_level}");
        // Lines everywhere above: below the level.
        let mut close = vec![Some(23.0); 24];
        close[20] = Some(50.0);
        let (_, y) = name_at(&chart(close, 20.0));
        assert!(y > at_level, "{y} below {at_level}");
    }

    #[test]
    fn a_gap_begins_the_line_anew_and_names_are_escaped() {
        let html = chart(vec![Some(1.0), None, Some(400.0)], 2.0).lines().into_string();
        let line = html.split("class=\"l0\" d=\"").nth(1).unwrap().split('"').next().unwrap();
        assert_eq!((line.matches('M').count(), line.matches('L').count()), (2, 0), "{line}");
        assert!(
            html.contains("(logarithmic)") && html.contains("mean &lt;b&gt;") && html.contains("peak hour")
        );
    }

    #[test]
    fn charts_without_any_value_can_be_drawn() {
        for along in [Along::Steps(vec![]), Along::Points(vec![]), Along::Points(vec![0.0])] {
            let chart = Chart { along, level: None, ..chart(vec![], 0.0) };
            for markup in [chart.lines(), chart.columns()] {
                let html = markup.into_string();
                assert!(html.contains("<svg") && !html.contains("NaN") && !html.contains("inf"), "{html}");
            }
        }
    }
}
