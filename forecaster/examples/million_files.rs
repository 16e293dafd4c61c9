//! Forecasts for a million files, most of them sparse, ten thousand hot: time and peak memory of the batch call.
//!
//! `cargo run --release -p clockwork-forecaster --example million_files -- [FILES] [HOT]`

use std::time::Instant;

use clockwork_forecaster::Series;
use clockwork_forecaster::demand::{Batch, Demand};
use clockwork_forecaster::spectrum::Workspace;

const PERIODS: usize = 672;

/// The counts of a file: Poisson by the hour, mean falling with its rank and turning with the day. Made anew each time
/// from the file's number, as a caller would read them from a store.
fn counts(file: usize, out: &mut Vec<f64>) {
    let mut state = (file as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut uniform = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    let mean = (20_000.0 / (file as f64 + 50.0)).min(100.0);
    out.extend((0..PERIODS).map(|t| {
        let day = 1.0 + 0.6 * DAY[t % 24];
        let (limit, mut product, mut count) = ((-mean * day).exp(), uniform(), 0.0);
        while product > limit && count < 400.0 {
            product *= uniform();
            count += 1.0;
        }
        count
    }));
}

/// The sine of the hour.
const DAY: [f64; 24] = [
    -0.87, -0.97, -1.0, -0.97, -0.87, -0.71, -0.5, -0.26, 0.0, 0.26, 0.5, 0.71, 0.87, 0.97, 1.0, 0.97, 0.87,
    0.71, 0.5, 0.26, 0.0, -0.26, -0.5, -0.71,
];

fn peak_mebibytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? / 1024)
}

#[allow(clippy::disallowed_methods, reason = "an example is the caller that owns the clock")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let files: usize = arguments.next().map_or(Ok(1_000_000), |a| a.parse())?;
    let hot: usize = arguments.next().map_or(Ok(10_000), |a| a.parse())?;
    let mut total = vec![0.0; PERIODS];
    let mut buffer = Vec::new();
    let began = Instant::now();
    for file in 0..files {
        buffer.clear();
        counts(file, &mut buffer);
        total.iter_mut().zip(&buffer).for_each(|(sum, count)| *sum += count);
    }
    println!("counts of {files} files made once in {:.1} s (one core)", began.elapsed().as_secs_f64());
    let began = Instant::now();
    let (batch, fitted) =
        Batch::new(Demand::recommended(), &Series::hourly(total)?, files, 24, &mut Workspace::new())?;
    let next_hour = batch.forecast_all(
        files,
        |file, out| {
            counts(file, out);
            file < hot
        },
        |_, forecast| (forecast.median()[0] as f32, forecast.mean()[0] as f32),
    )?;
    let mean: f64 = next_hour.iter().map(|f| f64::from(f.1)).sum();
    println!(
        "{files} files, {hot} of them hot, {PERIODS} periods, 24 ahead: {:.1} s with making their counts again, peak {} MiB",
        began.elapsed().as_secs_f64(),
        peak_mebibytes().unwrap_or(0)
    );
    println!("next hour: sum over files {mean:.0}, total {:.0}", fitted.forecast(1)?.mean()[0]);
    Ok(())
}
