//! How fast access logs are imported, beside a plain count of the lines in the same bytes.
//!
//! ```text
//! cargo run --release -p clockwork-traces --example import_speed -- [MEGABYTES] [FILE]
//! ```
//! Makes a log in the Combined Log Format (10,000 files by Zipf's law, 5,000 clients, query strings, a few errors), keeps it in
//! FILE or in a temporary one, and reads it from there several times: counting line ends, and importing. One operation is one
//! pass over the file, read from the page cache; shown are the best and the median of the passes, for both.
#![allow(clippy::unwrap_used, reason = "an example has nobody to hand an error to")]

use clockwork_traces::import::{ImportOptions, Importer};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

const PASSES: usize = 5;

fn main() {
    let mut words = std::env::args().skip(1);
    let megabytes: u64 = words.next().map_or(200, |word| word.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let path = words.next().map_or_else(|| folder.path().join("access.log"), Into::into);
    if !path.exists() {
        make(&path, megabytes * 1_000_000);
    }
    let bytes = std::fs::metadata(&path).unwrap().len();
    let lines = count(&path).0;
    println!("{bytes} bytes, {lines} lines, {} bytes a line", bytes / lines.max(1));
    let mut counting: Vec<Duration> = (0..PASSES).map(|_| count(&path).1).collect();
    let mut importing: Vec<Duration> = (0..PASSES).map(|_| import(&path, lines)).collect();
    let said = |name: &str, times: &mut Vec<Duration>| {
        times.sort();
        let speed = |time: Duration| bytes as f64 / 1e6 / time.as_secs_f64();
        let (best, median) = (speed(times[0]), speed(times[PASSES / 2]));
        println!("{name:<14} best {best:>7.0} MB/s, median {median:>7.0} MB/s");
        median
    };
    let counted = said("counting lines", &mut counting);
    let imported = said("importing", &mut importing);
    println!("importing takes {:.1} times as long as counting lines", counted / imported);
}

/// Counts the lines with as little as it takes: reads and a search for line ends.
fn count(path: &Path) -> (u64, Duration) {
    let began = Instant::now();
    let mut file = File::open(path).unwrap();
    let (mut buffer, mut lines) = (vec![0; 256 << 10], 0);
    loop {
        let read = file.read(&mut buffer).unwrap();
        if read == 0 {
            return (lines, began.elapsed());
        }
        lines += memchr::memchr_iter(b'\n', &buffer[..read]).count() as u64;
    }
}

fn import(path: &Path, lines: u64) -> Duration {
    let began = Instant::now();
    let mut importer = Importer::new(std::io::sink(), ImportOptions::default()).unwrap();
    importer.read("log", File::open(path).unwrap()).unwrap();
    let (_, summary) = importer.finish().unwrap();
    assert_eq!(summary.lines(), lines);
    assert_eq!(summary.bad_lines, 0);
    began.elapsed()
}

fn make(path: &Path, bytes: u64) {
    let mut out = BufWriter::new(File::create(path).unwrap());
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut written = 0;
    let mut second = 0_u64;
    while written < bytes {
        second += u64::from(rng.random::<f64>() < 0.1);
        // The rank follows a Zipf law with exponent near 1.
        let rank = (10_000_f64.powf(rng.random::<f64>())) as u64;
        let client: u64 = rng.random_range(0..5_000);
        let (day, hour, minute) = (1 + second / 86_400 % 28, second / 3_600 % 24, second / 60 % 60);
        let query = if rank.is_multiple_of(7) { "?session=8f3a91" } else { "" };
        let status = if rank.is_multiple_of(31) { 404 } else { 200 };
        let line = format!(
            "10.{}.{}.7 - - [{day:02}/Oct/2025:{hour:02}:{minute:02}:{:02} +0200] \"GET /site/section-{}/page-{rank}.html{query} HTTP/1.1\" \
             {status} {} \"https://www.example.org/site/index.html\" \"Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 \
             Firefox/128.0\"\n",
            client / 250,
            client % 250,
            second % 60,
            rank % 40,
            300 + rank * 37 % 90_000
        );
        written += line.len() as u64;
        out.write_all(line.as_bytes()).unwrap();
    }
    out.flush().unwrap();
}
