//! What a simulated day asks for: requests of every file in every sixth of a period, drawn by seed.
//!
//! Rates come from a [`Workload`]; counts are Poisson. Within a period a site's requests are not even: each sixth has a part
//! that varies by [`SIXTH_CV`]. What no forecast can know ([`Jump`]) is added to the rates of the day alone, never to the
//! history before it.

use clockwork_traces::workload::Workload;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution as _, Poisson, StandardNormal};
use rayon::prelude::*;
use xxhash_rust::xxh3::xxh3_64;

/// Parts that a period is watched in.
pub const SIXTHS: usize = 6;
/// Periods of a simulated day.
pub const DAY: usize = 24;
/// Periods of history before the day, where there are so many.
pub const HISTORY_PERIODS_MAX: u32 = 672;
/// Calls a period in the mean over the day: the workload's totals are scaled to it. Every one of them is simulated.
pub const CALLS_PER_PERIOD: f64 = 100_000.0;
/// Coefficient of variation of a site's requests in a sixth, apart from chance.
pub const SIXTH_CV: f64 = 0.1;

/// Something that the history does not foretell. Times are in sixths from the beginning of the day, the end excluded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Jump {
    /// First sixth.
    pub from: usize,
    /// The sixth after the last.
    pub until: usize,
    /// What happens.
    pub what: JumpKind,
}

/// What jumps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum JumpKind {
    /// A file gets so many requests more, as a share of all other requests.
    HotFile {
        /// The file.
        file: usize,
        /// Share of the others' sum.
        share: f64,
    },
    /// All files of a site get this multiple of their requests.
    Site {
        /// Index of the site.
        site: usize,
        /// Factor.
        factor: f64,
    },
    /// A store's service times grow by this factor.
    SlowStore {
        /// Index of the store.
        store: usize,
        /// Factor.
        factor: f64,
    },
}

impl Jump {
    /// Whether it is on in a sixth of the day.
    #[must_use]
    pub fn on(&self, sixth: usize) -> bool {
        (self.from..self.until).contains(&sixth)
    }
}

/// Requests of every file in one period.
#[derive(Debug, Clone, PartialEq)]
pub struct PeriodHeat {
    /// By sixth, then by file.
    pub sixths: Vec<Vec<f32>>,
    /// By file, the sum of the sixths.
    pub total: Vec<f32>,
}

/// History and day of one window.
#[derive(Debug, Clone)]
pub struct Demand {
    /// First period of the day, as an hour of the workload.
    pub start: u32,
    /// Requests by file in the periods before the day, oldest first, the last one just before it; `None` where the trace
    /// has a gap.
    pub history: Vec<Option<Vec<f32>>>,
    /// The last [`DAY`] periods of the history again, by sixth.
    pub learning: Vec<PeriodHeat>,
    /// The day.
    pub day: Vec<PeriodHeat>,
}

/// A count as a signed number: periods before the day are negative.
pub(super) fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A generator for one purpose of one seed.
pub(super) fn rng_for(seed: u64, purpose: &str, index: u64) -> SmallRng {
    let mut key = purpose.as_bytes().to_vec();
    key.extend(seed.to_le_bytes());
    key.extend(index.to_le_bytes());
    SmallRng::seed_from_u64(xxh3_64(&key))
}

fn poisson(rate: f64, rng: &mut SmallRng) -> f32 {
    match Poisson::new(rate) {
        Ok(poisson) => poisson.sample(rng) as f32,
        Err(_) => 0.0,
    }
}

impl Demand {
    /// The demand of the [`DAY`] periods from `start`, with the history before it; `None` where the workload lacks a period
    /// of the day or of the one before it.
    ///
    /// `hot` is the share of all requests that file 0 of the hottest site gets on top, always.
    #[must_use]
    pub fn draw(
        workload: &Workload,
        start: u32,
        seed: u64,
        hot: Option<(usize, f64)>,
        jumps: &[Jump],
    ) -> Option<Self> {
        Self::draw_scaled(workload, (start, CALLS_PER_PERIOD), seed, hot, jumps)
    }

    /// As [`draw`](Self::draw), with so many calls a period in the mean over the day.
    #[must_use]
    pub fn draw_scaled(
        workload: &Workload,
        (start, calls): (u32, f64),
        seed: u64,
        hot: Option<(usize, f64)>,
        jumps: &[Jump],
    ) -> Option<Self> {
        let rates = |hour: u32| {
            let mut rates = workload.rates(hour).ok()?;
            if let Some((file, share)) = hot {
                let others: f64 = rates.iter().sum::<f64>() - rates.get(file)?;
                *rates.get_mut(file)? = others * share / (1.0 - share);
            }
            Some(rates)
        };
        let day = start..start + DAY as u32;
        let before = start.checked_sub(DAY as u32)?..start;
        let mean =
            day.clone().map(|hour| Some(rates(hour)?.iter().sum::<f64>())).sum::<Option<f64>>()? / DAY as f64;
        let scale = calls / mean;
        let sites: Vec<usize> = workload.files().iter().map(|file| file.site).collect();
        let first = start.saturating_sub(HISTORY_PERIODS_MAX);
        let learning: Vec<PeriodHeat> = before
            .clone()
            .into_par_iter()
            .map(|hour| Some(period(&rates(hour)?, scale, &sites, seed, hour, None)))
            .collect::<Option<_>>()?;
        let mut history: Vec<Option<Vec<f32>>> = (first..before.start)
            .into_par_iter()
            .map(|hour| {
                let mut rng = rng_for(seed, "history", u64::from(hour));
                Some(rates(hour)?.iter().map(|rate| poisson(rate * scale, &mut rng)).collect())
            })
            .collect();
        history.extend(learning.iter().map(|heat| Some(heat.total.clone())));
        let day = day
            .into_par_iter()
            .map(|hour| {
                let index = (hour - start) as usize * SIXTHS;
                Some(period(&rates(hour)?, scale, &sites, seed, hour, Some((jumps, index))))
            })
            .collect::<Option<_>>()?;
        Some(Self { start, history, learning, day })
    }
}

/// One period's counts, sixth by sixth.
fn period(
    rates: &[f64],
    scale: f64,
    sites: &[usize],
    seed: u64,
    hour: u32,
    jumps: Option<(&[Jump], usize)>,
) -> PeriodHeat {
    let mut rng = rng_for(seed, "period", u64::from(hour));
    let count = sites.iter().max().map_or(0, |site| site + 1);
    let parts: Vec<[f64; SIXTHS]> = (0..count).map(|_| uneven(&mut rng)).collect();
    let mut one = |sixth: usize| {
        let mut part: Vec<f64> =
            rates.iter().zip(sites).map(|(rate, site)| rate * scale * parts[*site][sixth]).collect();
        if let Some((jumps, index)) = jumps {
            jumps.iter().filter(|jump| jump.on(index + sixth)).for_each(|jump| jump.apply(&mut part, sites));
        }
        part.iter().map(|rate| poisson(*rate, &mut rng)).collect::<Vec<f32>>()
    };
    let sixths: Vec<Vec<f32>> = (0..SIXTHS).map(&mut one).collect();
    let total = (0..rates.len()).map(|file| sixths.iter().map(|sixth| sixth[file]).sum()).collect();
    PeriodHeat { sixths, total }
}

impl Jump {
    fn apply(&self, rates: &mut [f64], sites: &[usize]) {
        match self.what {
            JumpKind::HotFile { file, share } => {
                let sum: f64 = rates.iter().sum();
                if let Some(rate) = rates.get_mut(file) {
                    *rate += share * sum;
                }
            }
            JumpKind::Site { site, factor } => {
                let of_site = rates.iter_mut().zip(sites).filter(|(_, s)| **s == site);
                of_site.for_each(|(rate, _)| *rate *= factor);
            }
            JumpKind::SlowStore { .. } => {}
        }
    }
}

/// Six parts of 1, each varying by [`SIXTH_CV`].
fn uneven(rng: &mut SmallRng) -> [f64; SIXTHS] {
    let mut parts = [0.0; SIXTHS];
    for part in &mut parts {
        let normal: f64 = rng.sample(StandardNormal);
        *part = (SIXTH_CV * normal).exp();
    }
    let sum: f64 = parts.iter().sum();
    parts.map(|part| part / sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload() -> Workload {
        Workload::of_bundled(&[("space", 1.0), ("social", 1.0)], 1).unwrap()
    }

    #[test]
    fn a_day_has_the_calls_it_is_scaled_to_and_follows_the_seed() {
        let workload = workload();
        let demand = Demand::draw(&workload, 300, 1, None, &[]).unwrap();
        let sum: f64 = demand.day.iter().flat_map(|heat| &heat.total).map(|n| f64::from(*n)).sum();
        assert!((sum / (DAY as f64 * CALLS_PER_PERIOD) - 1.0).abs() < 0.01, "{sum}");
        assert_eq!((demand.history.len(), demand.learning.len(), demand.day.len()), (300, DAY, DAY));
        assert_eq!(demand.history[299].as_ref(), Some(&demand.learning[DAY - 1].total));
        let again = Demand::draw(&workload, 300, 1, None, &[]).unwrap();
        assert_eq!(demand.day, again.day);
        let other = Demand::draw(&workload, 300, 2, None, &[]).unwrap();
        assert_ne!(demand.day, other.day);
        assert!(Demand::draw(&workload, 650, 1, None, &[]).is_none(), "space ends at hour 662");
    }

    #[test]
    fn jumps_are_in_the_day_alone_and_do_what_they_say() {
        let workload = workload();
        let jump = Jump { from: 15, until: 21, what: JumpKind::Site { site: 0, factor: 3.0 } };
        let quiet = Demand::draw(&workload, 400, 1, None, &[]).unwrap();
        let jumped = Demand::draw(&workload, 400, 1, None, &[jump]).unwrap();
        assert_eq!(quiet.history, jumped.history);
        let of_site = |heat: &[f32]| heat.iter().take(120).map(|n| f64::from(*n)).sum::<f64>();
        for sixth in 0..DAY * SIXTHS {
            let part = |demand: &Demand| of_site(&demand.day[sixth / SIXTHS].sixths[sixth % SIXTHS]);
            let (was, is) = (part(&quiet), part(&jumped));
            let factor = if jump.on(sixth) { 3.0 } else { 1.0 };
            assert!((is - factor * was).abs() < 6.0 * (factor * was).sqrt() * 2.0, "{sixth}: {was} {is}");
        }
        let hot = Demand::draw(&workload, 400, 1, Some((7, 0.25)), &[]).unwrap();
        for heat in &hot.day {
            let sum: f32 = heat.total.iter().sum();
            assert!((heat.total[7] / sum - 0.25).abs() < 0.02);
        }
    }
}
