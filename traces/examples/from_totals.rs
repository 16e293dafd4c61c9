//! Hourly totals as tables of counts for `clockwork trace import`, with files made by rule: how a plex would fare under
//! totals that it was not made with.
//!
//! ```text
//! cargo run --release -p clockwork-traces --example from_totals -- FILE FOLDER [MIXES] [SEED]
//! for t in FOLDER/mix-0-*.csv; do clockwork trace import $t --start 2024-01-01T00:00Z -o ${t%.csv}.trace; done
//! clockwork simulate --trace FOLDER/mix-0-*.trace
//! ```
//! FILE has the form of the M4 competition: a header, then a line a series, its id and its values (plain or .gz). A mix is four
//! series drawn by SEED; each is scaled to 25,000 requests an hour in the mean and spread over 300 files by Zipf's law with
//! exponent .8 and weekly drift, as the bundled synthetic sites are. In every second mix each file's share also goes up and
//! down from hour to hour: a stationary AR(1) series on the log scale, coefficient .8, standard deviation .5. Counts are drawn
//! from Poisson distributions.
#![allow(clippy::unwrap_used, reason = "an example has nobody to hand an error to")]

use clockwork_traces::format::{Trace, TraceFiles};
use clockwork_traces::site::Site;
use flate2::read::MultiGzDecoder;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Poisson, StandardNormal};
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;

const SERIES: usize = 4;
const REQUESTS: f64 = 25_000.0;
const FILES: usize = 300;
const EXPONENT: f64 = 0.8;
const DRIFT: f64 = 0.3;
/// Coefficient and standard deviation of the hourly change.
const HOURLY: (f64, f64) = (0.8, 0.5);

fn main() {
    let mut words = std::env::args().skip(1);
    let usage = "give FILE FOLDER [MIXES] [SEED]";
    let (file, folder) = (words.next().expect(usage), words.next().expect(usage));
    let mixes: usize = words.next().map_or(6, |word| word.parse().unwrap());
    let seed: u64 = words.next().map_or(1, |word| word.parse().unwrap());
    let all = series(Path::new(&file));
    std::fs::create_dir_all(&folder).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    for mix in 0..mixes {
        let chosen: Vec<&(String, Vec<f64>)> = all.sample(&mut rng, SERIES).collect();
        println!("mix {mix}: {}", chosen.iter().map(|s| s.0.as_str()).collect::<Vec<_>>().join(", "));
        for (number, (_, values)) in chosen.into_iter().enumerate() {
            let path = Path::new(&folder).join(format!("mix-{mix}-{number}.csv"));
            write(&path, &site(values, rng.random()), mix % 2 == 1, &mut rng);
        }
    }
}

/// Id and values of every series.
fn series(path: &Path) -> Vec<(String, Vec<f64>)> {
    let file = File::open(path).unwrap();
    let compressed = path.extension().is_some_and(|extension| extension == "gz");
    let input: Box<dyn Read> = if compressed { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
    let one = |line: String| {
        let mut fields = line.split(',').map(|field| field.trim_matches('"').to_owned());
        let id = fields.next().unwrap();
        (id, fields.filter(|field| !field.is_empty()).map(|field| field.parse().unwrap()).collect())
    };
    BufReader::new(input).lines().skip(1).map(|line| one(line.unwrap())).collect()
}

/// Totals of this shape, over files made by rule.
fn site(values: &[f64], seed: u64) -> Site {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let hours = values.iter().map(|value| Some((value.max(0.0) / mean * REQUESTS).round() as u64)).collect();
    let files = TraceFiles::Synthetic { files: FILES, exponent: EXPONENT, drift: DRIFT };
    let trace =
        Trace { name: "totals".into(), about: "totals".into(), starts: "hour 0".into(), hours, files };
    Site::from_trace(&trace, seed)
}

fn write(path: &Path, site: &Site, changes: bool, rng: &mut ChaCha8Rng) {
    let mut out = BufWriter::new(File::create(path).unwrap());
    writeln!(out, "file,period,count").unwrap();
    let mut levels: Vec<f64> = (0..FILES).map(|_| rng.sample(StandardNormal)).collect();
    for (hour, total) in (0..).zip(&site.hours) {
        let mut shares = site.shares(hour);
        if changes {
            for (share, level) in shares.iter_mut().zip(&mut levels) {
                *share *= (HOURLY.1 * *level).exp();
                let new: f64 = rng.sample(StandardNormal);
                *level = HOURLY.0 * *level + (1.0 - HOURLY.0 * HOURLY.0).sqrt() * new;
            }
        }
        let sum: f64 = shares.iter().sum();
        for (file, share) in shares.iter().enumerate() {
            let mean = total.unwrap() as f64 * share / sum;
            let count = if mean > 0.0 { Poisson::new(mean).unwrap().sample(rng) } else { 0.0 };
            if count > 0.0 {
                writeln!(out, "f{file},{hour},{count}").unwrap();
            }
        }
    }
}
