//! The page of a run: figures, response time and rates over time, operations.

use super::chart::{Along, Chart, Series, Shaded, legend};
use crate::measure::TimeSummary;
use maud::html;

/// What was called and got, a second, and how long it took, at one place along the charts; `None`: nothing was measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Point {
    /// Mean, median and quantile .99 of the response time, ms.
    pub(crate) response_ms: Option<[f64; 3]>,
    /// Wanted, called and got, calls a second.
    pub(crate) rates: [f64; 3],
}

/// All that a page shows.
pub(crate) struct LoadPage {
    pub(crate) title: String,
    pub(crate) about: String,
    /// Why the run is invalid; empty if it is not.
    pub(crate) invalid: Vec<String>,
    /// Wanted, called and got in all, calls a second.
    pub(crate) rates: [f64; 3],
    pub(crate) response: TimeSummary,
    pub(crate) lag: TimeSummary,
    pub(crate) along: Along,
    pub(crate) along_axis: String,
    pub(crate) shaded: Option<Shaded<'static>>,
    pub(crate) points: Vec<Point>,
    /// A table of operations: the first column is a name, the others are numbers.
    pub(crate) header: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
    pub(crate) facts: Vec<String>,
}

impl LoadPage {
    pub(crate) fn html(&self) -> String {
        let rate = |place: usize| format!("{:.0}", self.rates[place]);
        let ms = |value: f64| format!("{} ms", rounded(value));
        let figures = [
            (rate(0), "calls a second wanted".into()),
            (rate(1), "called".into()),
            (rate(2), "got".into()),
            (ms(self.response.p50_ms), "median response time".into()),
            (ms(self.response.p99_ms), "its quantile .99".into()),
            (ms(self.lag.p99_ms), "send lag, quantile .99".into()),
        ];
        let response = |at: usize| move |point: &Point| point.response_ms.map(|ms| ms[at]);
        let rates = |at: usize| move |point: &Point| Some(point.rates[at]);
        let charts = [
            self.chart(
                ("Response time over time", "response time, ms", "ms"),
                vec![
                    self.series("mean", response(0)),
                    self.series("median", response(1)),
                    self.series("quantile .99", response(2)),
                ],
            ),
            self.chart(
                ("Rates over time", "calls a second", "calls/s"),
                vec![
                    self.series("wanted", rates(0)),
                    self.series("called", rates(1)),
                    self.series("got", rates(2)),
                ],
            ),
        ];
        let body = html! {
            @if !self.invalid.is_empty() {
                section class="invalid" {
                    h2 { "This run is invalid" }
                    @for reason in &self.invalid { p { (reason) } }
                }
            }
            (super::figures(&figures, true))
            @for (title, chart) in &charts {
                section {
                    h2 { (title) }
                    (legend(&chart.series.iter().map(|series| series.name).collect::<Vec<_>>()))
                    div class="scroll" { (chart.lines()) }
                }
            }
            section {
                h2 { "Operations" }
                p class="small" { "Response times in ms, from the moment a call was due to the moment its reply was read." }
                div class="scroll" { table class="dense" {
                    thead { tr {
                        @for (place, name) in self.header.iter().enumerate() { th class=[(place > 0).then_some("n")] { (name) } }
                    } }
                    tbody { @for row in &self.rows { tr {
                        @for (place, cell) in row.iter().enumerate() { td class=(if place > 0 { "n" } else { "store" }) { (cell) } }
                    } } }
                } }
            }
            section { h2 { "Notes" } @for fact in &self.facts { p class="small" { (fact) } } }
        };
        let footer = format!("Written by fstress-replay {}.", env!("CARGO_PKG_VERSION"));
        super::frame(&self.title, &self.about, &body, &footer)
    }

    fn series<'a>(&self, name: &'a str, value: impl Fn(&Point) -> Option<f64>) -> Series<'a> {
        Series { name, values: self.points.iter().map(value).collect() }
    }

    fn chart<'a>(
        &'a self,
        (title, axis, unit): (&'a str, &'a str, &'a str),
        series: Vec<Series<'a>>,
    ) -> (&'a str, Chart<'a>) {
        let chart = Chart {
            label: format!("Chart: {title}"),
            axis,
            unit,
            along: self.along.clone(),
            along_axis: &self.along_axis,
            shaded: self.shaded,
            series,
            band: Vec::new(),
            level: None,
        };
        (title, chart)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_needs_nothing_else_and_escapes_what_it_shows() {
        let point = |ms: Option<f64>| Point { response_ms: ms.map(|ms| [ms; 3]), rates: [1.0, 2.0, 3.0] };
        let page = LoadPage {
            title: "a & b".into(),
            about: String::new(),
            invalid: vec!["too <late>".into()],
            rates: [5.0, 5.0, 4.0],
            response: TimeSummary::default(),
            lag: TimeSummary::default(),
            along: Along::Points(vec![0.5, 1.5, 2.5]),
            along_axis: "s".into(),
            shaded: Some(Shaded { range: (1.0, 2.0), name: "measured" }),
            points: [Some(1.0), None, Some(400.0)].map(point).to_vec(),
            header: vec!["operation".into(), "called".into()],
            rows: vec![vec!["READ".into(), "3".into()]],
            facts: vec!["fact".into()],
        };
        let html = page.html();
        assert!(html.contains("a &amp; b") && html.contains("too &lt;late&gt;") && html.contains("measured"));
        for foreign in ["http://", "https://", "<script", "src=", "NaN"] {
            assert!(!html.contains(foreign), "{foreign}");
        }
        assert!(html.contains("(logarithmic)"));
    }
}
