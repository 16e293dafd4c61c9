//! Draws the plots of the manual's page on the results.
//!
//! `cargo run --release -p fstress-replay --example results_plots -- RESULTS.json DIRECTORY`
//!
//! RESULTS.json is what `clockwork simulate --json` prints. Writes `ratio.svg` (response times over the best), `met.svg`
//! (periods of a day that met the objective) and `worst.svg` (the worst period over the plain hash's) into DIRECTORY, each
//! with a group of columns for every plex.

use maud::{Markup, html};
use serde::Deserialize;
use std::error::Error;
use std::path::Path;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 280.0;
/// Left, top, right and bottom of what is inside the axes.
const INSIDE: (f64, f64, f64, f64) = (44.0, 52.0, 752.0, 252.0);
/// Part of a group's width that its columns take.
const FILLED: f64 = 0.84;
/// Policies drawn, in this order, and their colours.
const POLICIES: [(&str, &str); 7] = [
    ("default", "#aaaaaa"),
    ("static", "#6e96c8"),
    ("reactive", "#82b478"),
    ("paper", "#e6b450"),
    ("clockwork", "#c83c14"),
    ("oracle", "#966eaa"),
    ("best", "#3c3c3c"),
];

#[derive(Deserialize)]
struct Results {
    policies: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    policy: String,
    plex: String,
    ratio_to_best: f64,
    periods_met: f64,
    worst_over_base: f64,
}

struct Plot {
    name: &'static str,
    caption: &'static str,
    value: fn(&Row) -> f64,
    /// Marks of the axis: columns begin at the first, and are cut at the last.
    marks: &'static [f64],
}

const PLOTS: [Plot; 3] = [
    Plot {
        name: "ratio",
        caption: "Response times over those of the best assignment, mean over the periods; cut at 1.5",
        value: |row| row.ratio_to_best,
        marks: &[1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
    },
    Plot {
        name: "met",
        caption: "Periods of 24 in which every store met the objective; the axis begins at 12",
        value: |row| row.periods_met,
        marks: &[12.0, 15.0, 18.0, 21.0, 24.0],
    },
    Plot {
        name: "worst",
        caption: "The worst period's response time over the default rule's",
        value: |row| row.worst_over_base,
        marks: &[0.0, 0.25, 0.5, 0.75, 1.0],
    },
];

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, directory] = &arguments[..] else {
        return Err("usage: results_plots RESULTS.json DIRECTORY".into());
    };
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let results: Results = serde_json::from_str(&text).map_err(|error| format!("{path}: {error}"))?;
    let directory = Path::new(directory);
    std::fs::create_dir_all(directory)?;
    for plot in &PLOTS {
        let svg = plot.draw(&results.policies).into_string();
        std::fs::write(directory.join(plot.name).with_extension("svg"), svg + "\n")?;
    }
    Ok(())
}

impl Plot {
    fn draw(&self, rows: &[Row]) -> Markup {
        let mut plexes: Vec<&str> = Vec::new();
        for row in rows {
            if !plexes.contains(&row.plex.as_str()) {
                plexes.push(&row.plex);
            }
        }
        let (left, top, right, bottom) = INSIDE;
        let (low, high) = (self.marks[0], self.marks[self.marks.len() - 1]);
        let y = |value: f64| bottom - (value.clamp(low, high) - low) / (high - low) * (bottom - top);
        let group = (right - left) / plexes.len().max(1) as f64;
        let column = group * FILLED / POLICIES.len() as f64;
        html! {
            svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) width=(WIDTH) height=(HEIGHT)
                font-family="sans-serif" font-size="12" fill="#222" {
                rect width=(WIDTH) height=(HEIGHT) fill="#fff" {}
                text x="8" y="18" font-size="14" { (self.caption) }
                @for (index, (policy, colour)) in POLICIES.iter().enumerate() {
                    @let x = left + 100.0 * index as f64;
                    rect x=(x) y="28" width="10" height="10" fill=(colour) {}
                    text x=(x + 14.0) y="37" { (policy) }
                }
                @for mark in self.marks {
                    line x1=(left) x2=(right) y1=(y(*mark)) y2=(y(*mark)) stroke="#ddd" {}
                    text x=(left - 6.0) y=(y(*mark) + 4.0) text-anchor="end" { (mark) }
                }
                @for (index, plex) in plexes.iter().enumerate() {
                    @let start = left + group * index as f64;
                    text x=(start + group / 2.0) y=(bottom + 16.0) text-anchor="middle" { (plex) }
                    @for (place, (policy, colour)) in POLICIES.iter().enumerate() {
                        @for row in rows.iter().filter(|row| row.plex == *plex && row.policy == *policy) {
                            @let top = y((self.value)(row));
                            rect x=(fixed(start + group * (1.0 - FILLED) / 2.0 + column * place as f64))
                                y=(fixed(top)) width=(fixed(0.9 * column)) height=(fixed(bottom - top)) fill=(colour) {
                                title { (plex) ", " (policy) ": " (format!("{:.3}", (self.value)(row))) }
                            }
                        }
                    }
                }
                line x1=(left) x2=(right) y1=(bottom) y2=(bottom) stroke="#222" {}
            }
        }
    }
}

/// Points to a hundredth.
fn fixed(points: f64) -> String {
    format!("{points:.2}")
}
