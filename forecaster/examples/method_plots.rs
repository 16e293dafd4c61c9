//! Draws the plots of the manual's page on the method.
//!
//! `cargo run --release -p clockwork-forecaster --example method_plots -- COUNTS.csv DIRECTORY`
//!
//! COUNTS.csv has the columns series, period, count; its first series is an hourly total of 800 hours and more. Writes
//! `forecast.svg` (two days ahead from the last whole week but two days), `one-step.svg` (a week, one hour ahead) and
//! `response.svg` (a store's response times, the best fit and the envelope) into DIRECTORY.

use std::error::Error;
use std::fs::File;
use std::path::Path;

use clockwork_forecaster::Series;
use clockwork_forecaster::backtest::read;
use clockwork_forecaster::demand::{Demand, DemandForecast};
use clockwork_forecaster::response::{LoadForecast, Observation, ResponseModel};
use clockwork_forecaster::spectrum::Workspace;
use plotters::prelude::*;

const HOURS_FITTED: usize = 670;
const HOURS_BEFORE: usize = 96;
const HOURS_AHEAD: usize = 48;
const WEEK: usize = 168;
const SIZE: (u32, u32) = (760, 300);

const ACTUAL: RGBColor = RGBColor(40, 40, 40);
const FORECAST: RGBColor = RGBColor(200, 60, 20);
const NARROW: RGBColor = RGBColor(244, 170, 130);
const WIDE: RGBColor = RGBColor(250, 220, 200);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [counts, directory] = &arguments[..] else {
        return Err("usage: method_plots COUNTS.csv DIRECTORY".into());
    };
    let (_, total) = read::hourly(File::open(counts)?)?.swap_remove(0);
    if total.len() < HOURS_FITTED + WEEK {
        return Err(format!("{counts}: {} hours, {} are needed", total.len(), HOURS_FITTED + WEEK).into());
    }
    let directory = Path::new(directory);
    std::fs::create_dir_all(directory)?;
    let mut ws = Workspace::new();
    let series = Series::hourly(total.clone())?;
    let fitted = Demand::recommended().fit(&series.head(HOURS_FITTED), &mut ws)?;

    let ahead = fitted.forecast(HOURS_AHEAD)?;
    let shown = &total[HOURS_FITTED - HOURS_BEFORE..HOURS_FITTED + HOURS_AHEAD];
    let caption = "Two days ahead: requests an hour, median, 66 % and 95 % limits";
    demand_plot(&directory.join("forecast.svg"), caption, shown, HOURS_BEFORE, &ahead)?;

    let steps = fitted.one_step(&series.head(HOURS_FITTED + WEEK), &mut ws)?;
    let shown = &total[HOURS_FITTED..HOURS_FITTED + WEEK];
    let caption =
        "One hour ahead for a week, parameters kept: requests an hour, median, 66 % and 95 % limits";
    demand_plot(&directory.join("one-step.svg"), caption, shown, 0, &steps)?;

    response_plot(&directory.join("response.svg"), &total[..HOURS_FITTED], &mut ws)
}

/// An axis label.
fn whole(value: &f64) -> String {
    format!("{value:.0}")
}

/// Actual values from 0 on, forecasts from `from` on.
fn demand_plot(
    path: &Path,
    caption: &str,
    actual: &[f64],
    from: usize,
    forecast: &DemandForecast,
) -> Result<(), Box<dyn Error>> {
    let (wide, narrow) = (forecast.interval(0.95)?, forecast.interval(0.66)?);
    let highest = wide.1.iter().chain(actual).copied().fold(1.0, f64::max);
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(caption, ("sans-serif", 14))
        .margin(8)
        .x_label_area_size(28)
        .y_label_area_size(44)
        .build_cartesian_2d(0.0..actual.len() as f64, 0.0..highest * 1.05)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_label_formatter(&whole)
        .y_label_formatter(&whole)
        .x_desc("hour")
        .draw()?;
    for ((low, high), colour) in [(&wide, WIDE), (&narrow, NARROW)] {
        let forth = high.iter().enumerate().map(|(h, v)| ((from + h) as f64, *v));
        let back = low.iter().enumerate().rev().map(|(h, v)| ((from + h) as f64, *v));
        chart.draw_series(std::iter::once(Polygon::new(forth.chain(back).collect::<Vec<_>>(), colour)))?;
    }
    let median = forecast.median().iter().enumerate().map(|(h, v)| ((from + h) as f64, *v));
    chart.draw_series(LineSeries::new(median, FORECAST.stroke_width(2)))?;
    let actual = actual.iter().enumerate().map(|(t, v)| (t as f64, *v));
    chart.draw_series(LineSeries::new(actual, ACTUAL.stroke_width(1)))?;
    root.present()?;
    Ok(())
}

/// A store of two servers (response times by the formula with a slow residual) under a scaled total that takes it to
/// 70 % of its capacity; objective: twice the unloaded response time.
fn response_plot(path: &Path, total: &[f64], ws: &mut Workspace) -> Result<(), Box<dyn Error>> {
    let most = total.iter().copied().fold(1.0, f64::max);
    let (capacity, unloaded, objective) = (most / 0.7, 2.5, 5.0);
    let truth = |load: f64| {
        let rho = load / capacity;
        unloaded * (1.0 + rho.powf(6.0f64.sqrt() - 1.0) / (2.0 * (1.0 - rho)))
    };
    let mut residual = 0.0;
    let mut state = 5u64;
    let history: Vec<Observation> = total
        .iter()
        .map(|load| {
            let mut sum = -6.0;
            for _ in 0..12 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                sum += (state >> 11) as f64 / (1u64 << 53) as f64;
            }
            residual = 0.7 * residual + 0.06 * sum;
            Observation { load: *load, response: truth(*load) * f64::exp(residual), saturated: false }
        })
        .collect();
    let fitted = ResponseModel::default().fit(&history, ws)?;
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let right = 1.3 * most;
    let mut chart = ChartBuilder::on(&root)
        .caption(
            "Response time against load: periods, truth (dark), prediction and its 80 % limit",
            ("sans-serif", 14),
        )
        .margin(8)
        .x_label_area_size(28)
        .y_label_area_size(44)
        .build_cartesian_2d(0.0..right, 0.0..5.0 * unloaded)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_label_formatter(&whole)
        .y_label_formatter(&whole)
        .x_desc("requests an hour")
        .y_desc("ms")
        .draw()?;
    chart.draw_series(
        history.iter().map(|o| Circle::new((o.load, o.response), 1, ACTUAL.mix(0.4).filled())),
    )?;
    let loads = || (1..=200).map(|k| right * f64::from(k) / 200.0);
    let below = |(_, y): &(f64, f64)| *y < 5.0 * unloaded;
    let true_line = loads().filter(|n| *n < 0.99 * capacity).map(|n| (n, truth(n))).filter(below);
    chart.draw_series(LineSeries::new(true_line, ACTUAL.stroke_width(1)))?;
    // Far enough ahead that the residual is forgotten: the curve itself.
    let at = |load| fitted.predict(LoadForecast { load, log_deviation: 0.0, ahead: 48 }, Some(objective));
    chart.draw_series(LineSeries::new(
        loads().map(|n| (n, at(n).median)).filter(below),
        FORECAST.stroke_width(2),
    ))?;
    chart.draw_series(LineSeries::new(
        loads().map(|n| (n, at(n).quantile(0.84))).filter(below),
        NARROW.stroke_width(2),
    ))?;
    root.present()?;
    Ok(())
}
