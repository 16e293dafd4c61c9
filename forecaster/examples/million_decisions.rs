//! A whole decision for a million files, ten thousand hot, on stores unlike each other: time and peak memory.
//!
//! `cargo run --release -p clockwork-forecaster --example million_decisions -- [FILES] [HOT] [STORES]`

use std::time::Instant;

use clockwork_forecaster::controller::{
    Controller, FileId, MemoryHistory, Mode, PartialPeriod, PeriodReport, Placement, PlexView, Settings,
    StoreReport, StoreState, StoreView,
};

const PERIODS: i64 = 672;

/// Files where a hash puts them.
struct Hashed(usize);

impl Placement for Hashed {
    fn home(&self, file: FileId) -> Option<usize> {
        Some(mixed(u64::from(file.0)) as usize % self.0)
    }
    fn exception(&self, _: FileId) -> Option<usize> {
        None
    }
    fn pinned(&self, _: FileId) -> bool {
        false
    }
}

fn mixed(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Requests of a file in a period: Poisson, its mean falling with its rank and turning with the day.
fn count(file: u64, period: i64) -> f64 {
    let hour = period as f64 * 2.0 * std::f64::consts::PI / 24.0;
    let mean = (20_000.0 / (file as f64 + 50.0)).min(100.0) * (1.0 + 0.6 * hour.sin());
    let (mut state, limit) = (mixed(file << 20 ^ period as u64), (-mean).exp());
    let (mut product, mut count) = ((state >> 11) as f64 / (1u64 << 53) as f64, 0.0);
    while product > limit && count < 400.0 {
        state = mixed(state);
        product *= (state >> 11) as f64 / (1u64 << 53) as f64;
        count += 1.0;
    }
    count
}

fn report(period: i64, files: u64, stores: &[StoreView], placement: &Hashed) -> PeriodReport {
    let counts = (0..files).filter_map(|file| {
        let count = count(file, period);
        (count > 0.0).then_some((FileId(file as u32), count))
    });
    let files: Vec<(FileId, f64)> = counts.collect();
    let mut loads = vec![0.0; stores.len()];
    for (file, count) in &files {
        loads[placement.home(*file).unwrap_or(0)] += count;
    }
    let mean = loads.iter().sum::<f64>() / stores.len() as f64;
    let store = |(s, load): (usize, &f64)| {
        let capacity = mean.max(1.0) * (1.3 + 0.4 * (s % 4) as f64);
        let response_ms = 1.0 / (1.0 - (load / capacity).min(0.98));
        StoreReport {
            name: stores[s].name.clone(),
            requests: *load,
            response_ms,
            response_variance_ms2: response_ms * response_ms,
            saturated: false,
        }
    };
    let stores = loads.iter().enumerate().map(store).collect();
    PeriodReport { period, stores, files, ..PeriodReport::default() }
}

/// The first sixths of a period as they are told of: files with a ten thousandth of all requests, and a new file with a share
/// `jump` of them, at the first store.
fn part(closed: &PeriodReport, sixths: u8, jump: f64) -> PartialPeriod {
    let share = f64::from(sixths) / 6.0;
    let total = closed.total() * share;
    let counts = closed.files.iter().map(|file| (file.0, file.1 * share));
    let mut files: Vec<(FileId, f64)> = counts.filter(|file| file.1 >= (1e-4 * total).max(8.0)).collect();
    let unlisted = total - files.iter().map(|file| file.1).sum::<f64>();
    let mut stores = closed.stores.clone();
    stores.iter_mut().for_each(|store| store.requests *= share);
    if jump > 0.0 {
        files.push((FileId(closed.files.len() as u32), jump * total));
        stores[0].requests += jump * total;
        stores[0].response_ms *= 20.0;
    }
    PartialPeriod { period: closed.period, sixths, files, unlisted, stores }
}

fn peak_mebibytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? / 1024)
}

#[allow(clippy::disallowed_methods, reason = "an example is the caller that owns the clock")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let files: u64 = arguments.next().map_or(Ok(1_000_000), |a| a.parse())?;
    let hot: usize = arguments.next().map_or(Ok(10_000), |a| a.parse())?;
    let count: usize = arguments.next().map_or(Ok(4), |a| a.parse())?;
    let store = |s: usize| StoreView {
        name: format!("store{s}").into(),
        state: StoreState::Up,
        weight: 1.0,
        outstanding_max: 64.0,
    };
    let stores: Vec<StoreView> = (0..count).map(store).collect();
    let placement = Hashed(count);
    let mut settings = Settings { mode: Mode::Control, hot_files_max: hot, ..Settings::default() };
    settings.objective.response_ms = 3.0;
    let mut controller = Controller::new(settings, MemoryHistory::new(PERIODS as usize))?;
    let began = Instant::now();
    for period in 0..PERIODS {
        controller.observe(&report(period, files, &stores, &placement))?;
    }
    println!("{PERIODS} periods made and recorded in {:.1} s", began.elapsed().as_secs_f64());
    for period in PERIODS..PERIODS + 2 {
        let began = Instant::now();
        let forecasts = controller.forecast();
        let forecast = began.elapsed().as_secs_f64();
        let decision = controller.decide(&forecasts, &PlexView { stores: &stores, placement: &placement });
        println!(
            "{files} files, {hot} hot, {count} stores: forecasts {forecast:.1} s, with the decision {:.1} s, {} moves, peak {} MiB",
            began.elapsed().as_secs_f64(),
            decision.moves.len(),
            peak_mebibytes().unwrap_or(0)
        );
        let closed = report(period, files, &stores, &placement);
        let view = PlexView { stores: &stores, placement: &placement };
        for (jump, told) in [(0.0, "as forecast"), (0.3, "a file jumps")] {
            let open = part(&closed, if jump > 0.0 { 2 } else { 1 }, jump);
            let (listed, began) = (open.files.len(), Instant::now());
            let moves = controller.within(&open, &view).map_or(0, |decision| decision.moves.len());
            let took = 1e3 * began.elapsed().as_secs_f64();
            println!("the guard, {told}: {listed} files told of, {took:.0} ms, {moves} moves");
        }
        controller.observe(&closed)?;
    }
    Ok(())
}
