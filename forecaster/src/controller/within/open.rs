//! What was seen of the period decided about.

use std::collections::HashMap;
use std::sync::Arc;

use super::super::HISTORY_FILES_MAX;
use super::super::decision::Decision;
use super::super::forecasts::{Forecasts, Z66};
use super::super::reports::{FileId, PartialPeriod, PeriodReport, PlexView, StoreReport};
use super::compare::Found;
use crate::guard::{Part, SIXTHS};

/// Part of the least heat worth moving from which on a file's count is kept from look to look.
const KEPT: f64 = 0.1;

/// The period decided about.
pub(in super::super) struct Open {
    pub(super) forecasts: Arc<Forecasts>,
    /// Files moved in it, and the stores they left.
    pub(super) moved: Vec<(FileId, Arc<str>)>,
    /// How many of them the guard has moved: it has a budget of its own, as large as the plan's.
    pub(super) moved_within: usize,
    pub(super) up: Vec<Arc<str>>,
    /// What is expected of the stores with the files where they are now.
    expected: Vec<Expected>,
    looks: Vec<Look>,
    /// What deviated at the last look.
    pub(super) found: Found,
    /// Files watched at the last look.
    pub(super) watched: Vec<FileId>,
    /// Scores of the stores' response times over the period so far.
    pub(super) response_scores: Vec<f64>,
    /// Heat of a period at the rate that is expected of the rest of it, by file, as of the last deviation.
    pub(super) rest: Option<Vec<f32>>,
}

/// Requests from which on a store's mean response time says something about the interval reported of it.
const TOLD_MIN: f64 = 30.0;

/// What is expected of a store.
#[derive(Debug, Clone)]
pub(super) struct Expected {
    pub(super) name: Arc<str>,
    /// Requests in a period.
    requests: f64,
    /// Squared relative deviation of them.
    pub(super) variance: f64,
    /// Interval reported of its response time, milliseconds.
    response66_ms: Option<(f64, f64)>,
}

/// The period up to the end of a sixth.
#[derive(Debug, Clone)]
struct Look {
    sixths: u8,
    total: f64,
    /// Requests of the files that have some heat; those of others are taken as none.
    files: HashMap<FileId, f64>,
    stores: Vec<StoreReport>,
    /// Requests of each store that were expected by now.
    expected: HashMap<Arc<str>, f64>,
}

/// Names of the stores that are up.
pub(super) fn up(view: &PlexView<'_>) -> Vec<Arc<str>> {
    (0..view.stores.len()).filter(|s| view.is_up(*s)).map(|s| view.stores[s].name.clone()).collect()
}

/// What a store did in a part of a period.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Answered {
    pub(super) sixths: f64,
    pub(super) requests: f64,
    /// Sum of their response times, milliseconds.
    sum_ms: f64,
    /// Deviation of single response times from their mean, relative.
    spread: f64,
}

/// Response times of a store follow each other: their mean is so many times less sure than if they did not.
const RESPONSE_CORRELATION: f64 = 3.0;
/// Deviation (log scale) of a sixth's mean response time from the period's.
const RESPONSE_SIXTH_DEVIATION: f64 = 0.15;

impl Answered {
    /// Mean response time, milliseconds.
    pub(super) fn response_ms(&self) -> f64 {
        self.sum_ms / self.requests
    }

    /// Requests a period at the rate of this part.
    pub(super) fn rate(&self) -> f64 {
        self.requests * SIXTHS / self.sixths.max(1.0)
    }

    /// Deviation (log scale) of what was measured of the response time from what it is.
    pub(super) fn deviation(&self) -> f64 {
        let sampled = RESPONSE_CORRELATION * self.spread / self.requests.max(1.0).sqrt();
        sampled.hypot(RESPONSE_SIXTH_DEVIATION / self.sixths.max(1.0).sqrt())
    }

    /// All of these together.
    pub(super) fn together(parts: &[Self]) -> Option<Self> {
        let mut sum = *parts.first()?;
        for part in &parts[1..] {
            sum.sixths += part.sixths;
            sum.requests += part.requests;
            sum.sum_ms += part.sum_ms;
        }
        Some(sum)
    }
}

impl Open {
    pub(in super::super) fn new(forecasts: Arc<Forecasts>, decision: &Decision, view: &PlexView<'_>) -> Self {
        let mut open = Self {
            forecasts,
            moved: Vec::new(),
            moved_within: 0,
            up: Vec::new(),
            expected: Vec::new(),
            looks: Vec::new(),
            found: Found::default(),
            watched: Vec::new(),
            response_scores: Vec::new(),
            rest: None,
        };
        open.take(decision, view);
        open
    }

    /// Takes up what a decision moves and expects.
    pub(super) fn take(&mut self, decision: &Decision, view: &PlexView<'_>) {
        let made = decision.moves.iter().chain(&decision.returns);
        self.moved.extend(made.map(|m| (m.file, view.stores[m.from].name.clone())));
        self.up = up(view);
        let expected = decision.stores.iter().map(|(_, store)| {
            let [_, middle, high] = store.requests_quantiles;
            let deviation = if middle > 0.0 { (high / middle).ln() / Z66 } else { 0.0 };
            Expected {
                name: store.name.clone(),
                requests: store.requests_after,
                variance: deviation * deviation,
                response66_ms: store.response_after.as_ref().map(|r| (r.low66_ms, r.high66_ms)),
            }
        });
        self.expected = expected.collect();
    }

    /// The last sixth looked at; 0: none yet.
    pub(super) fn looked(&self) -> u8 {
        self.looks.last().map_or(0, |look| look.sixths)
    }

    /// Keeps what is to be seen after a sixth. `heat_min` is the least share of all heat that is worth moving.
    pub(super) fn look(&mut self, open: &PartialPeriod, heat_min: f64) {
        let count = |n: f64| if n > 0.0 && n.is_finite() { n } else { 0.0 };
        let total = count(open.unlisted) + open.files.iter().map(|f| count(f.1)).sum::<f64>();
        let least = KEPT * heat_min * total;
        let mut files: HashMap<FileId, f64> = HashMap::new();
        for (file, requests) in open.files.iter().filter(|f| f.1 >= least && f.1 > 0.0 && f.1.is_finite()) {
            if file.index() < HISTORY_FILES_MAX {
                *files.entry(*file).or_default() += requests;
            }
        }
        let before = self.looks.last();
        let part = f64::from(open.sixths - before.map_or(0, |look| look.sixths)) / SIXTHS;
        let sum = |store: &Expected| {
            let before = before.and_then(|look| look.expected.get(&store.name)).copied().unwrap_or(0.0);
            (store.name.clone(), before + store.requests * part)
        };
        let expected = self.expected.iter().map(sum).collect();
        let stores = open.stores.clone();
        self.looks.push(Look { sixths: open.sixths, total, files, stores, expected });
    }

    pub(super) fn sixths(&self) -> f64 {
        f64::from(self.looked())
    }

    /// Requests of all so far.
    pub(super) fn total(&self) -> f64 {
        self.looks.last().map_or(0.0, |look| look.total)
    }

    /// Files with some heat, and their requests so far.
    pub(super) fn files(&self) -> impl Iterator<Item = (FileId, f64)> {
        self.looks.last().into_iter().flat_map(|look| look.files.iter().map(|(file, n)| (*file, *n)))
    }

    pub(super) fn expected(&self) -> &[Expected] {
        &self.expected
    }

    /// Whether response times of the period now closed were in the intervals reported of them: of stores that were not
    /// saturated. None where the guard has moved files: what was reported was of the rest of the period then.
    pub(in super::super) fn in_intervals(&self, report: &PeriodReport) -> impl Iterator<Item = bool> {
        let holds = self.forecasts.period == report.period && self.moved_within == 0;
        self.expected.iter().filter(move |_| holds).filter_map(|expected| {
            let (low, high) = expected.response66_ms?;
            let store = report.stores.iter().find(|store| *store.name == *expected.name)?;
            let told = store.requests >= TOLD_MIN && !store.saturated && store.response_ms > 0.0;
            told.then(|| (low..=high).contains(&store.response_ms))
        })
    }

    /// Parts that end now: the whole first, then those that begin at an earlier look.
    fn parts<'a>(&'a self, count: impl Fn(&Look) -> (f64, f64) + 'a) -> impl Iterator<Item = Part> + 'a {
        let now = self.looks.last().map(|look| (look.sixths, count(look)));
        let before = self.looks.len().saturating_sub(1);
        let begins = std::iter::once((0, (0.0, 0.0)))
            .chain(self.looks[..before].iter().map(move |look| (look.sixths, count(look))));
        begins.filter_map(move |(sixths, (seen, expected))| {
            let now = now?;
            Some(Part {
                sixths: f64::from(now.0 - sixths),
                seen: (now.1.0 - seen).max(0.0),
                expected: (now.1.1 - expected).max(0.0),
            })
        })
    }

    pub(super) fn parts_of_total(&self) -> impl Iterator<Item = Part> + '_ {
        let mean = self.forecasts.total.mean().first().copied().unwrap_or(0.0);
        self.parts(move |look| (look.total, mean * f64::from(look.sixths) / SIXTHS))
    }

    pub(super) fn parts_of_file(&self, file: FileId) -> impl Iterator<Item = Part> + '_ {
        let mean = self.forecasts.reported(file, 1);
        self.parts(move |look| {
            (look.files.get(&file).copied().unwrap_or(0.0), mean * f64::from(look.sixths) / SIXTHS)
        })
    }

    pub(super) fn parts_of_store<'a>(&'a self, name: &'a str) -> impl Iterator<Item = Part> + 'a {
        self.parts(move |look| {
            let seen =
                look.stores.iter().find(|store| *store.name == *name).map_or(0.0, |store| store.requests);
            let seen = if seen.is_finite() { seen } else { 0.0 };
            (seen, look.expected.get(name).copied().unwrap_or(0.0))
        })
    }

    /// What a store answered from look to look, the first first.
    pub(super) fn answered(&self, name: &str) -> Vec<Answered> {
        let mut before = (0, 0.0, 0.0);
        let mut answered = Vec::with_capacity(self.looks.len());
        for look in &self.looks {
            let Some(store) = look.stores.iter().find(|store| *store.name == *name) else { continue };
            let (requests, sum) = (store.requests, store.response_ms * store.requests);
            if !(requests > 0.0 && sum > 0.0 && sum.is_finite()) {
                continue;
            }
            let spread = store.response_variance_ms2.sqrt() / store.response_ms;
            let one = Answered {
                sixths: f64::from(look.sixths - before.0),
                requests: requests - before.1,
                sum_ms: sum - before.2,
                spread: if spread.is_finite() { spread } else { 0.0 },
            };
            before = (look.sixths, requests, sum);
            if one.requests > 0.0 && one.sum_ms > 0.0 {
                answered.push(one);
            }
        }
        answered
    }

    /// Squared coefficient of variation of a store's sixths beyond chance, of those looked at, against what was expected of
    /// it where its files were then; `None` unless all were.
    pub(super) fn sixth_variance_of_store(&self, name: &str) -> Option<f64> {
        let all = self.looks.iter().map(|look| look.sixths).eq(1..=5);
        let mut before = (0.0, 0.0);
        let ratio = |part: Part| {
            // Parts end now: the differences between them are the sixths.
            let step = (before.0 - part.seen, before.1 - part.expected);
            before = (part.seen, part.expected);
            step
        };
        let parts: Vec<Part> = self.parts_of_store(name).collect();
        let steps: Vec<(f64, f64)> = parts
            .into_iter()
            .chain([Part { sixths: 0.0, seen: 0.0, expected: 0.0 }])
            .map(ratio)
            .skip(1)
            .collect();
        let seen: f64 = steps.iter().map(|step| step.0).sum();
        let expected: f64 = steps.iter().map(|step| step.1).sum();
        if !all || steps.len() < 2 || !(seen > 0.0 && expected > 0.0) {
            return None;
        }
        let off = |step: &(f64, f64)| (step.0 * expected / (step.1.max(1e-9) * seen) - 1.0).powi(2);
        let variance = steps.iter().map(off).sum::<f64>() / (steps.len() - 1) as f64;
        let chance = steps.len() as f64 / seen;
        Some((variance - chance).clamp(0.0, 4.0))
    }

    /// Squared coefficient of variation of a file's sixths beyond Poisson's, of those looked at; `None` unless all were.
    pub(super) fn sixth_variance_of(&self, file: FileId) -> Option<f64> {
        let all = self.looks.iter().map(|look| look.sixths).eq(1..=5);
        let ends = self.looks.iter().map(|look| look.files.get(&file).copied().unwrap_or(0.0));
        all.then(|| variance_beyond_chance(ends))?
    }

    /// The same of the total, chance included; `total`: the whole period's.
    pub(super) fn sixth_variance(&self, period: i64, total: f64) -> Option<f64> {
        let all = self.looks.iter().map(|look| look.sixths).eq(1..=5);
        if period != self.forecasts.period || !all || total <= 0.0 {
            return None;
        }
        variance_beyond_chance(self.looks.iter().map(|look| look.total).chain([total]))
    }
}

/// Squared coefficient of variation, Poisson chance taken off, of the steps between these counts.
fn variance_beyond_chance(ends: impl Iterator<Item = f64>) -> Option<f64> {
    let mut before = 0.0;
    let steps: Vec<f64> = ends.map(|end| (end - std::mem::replace(&mut before, end)).max(0.0)).collect();
    let mean = steps.iter().sum::<f64>() / steps.len() as f64;
    if steps.len() < 2 || !(mean > 0.0 && mean.is_finite()) {
        return None;
    }
    let squares: f64 = steps.iter().map(|s| (s - mean).powi(2)).sum();
    let variance = squares / (steps.len() - 1) as f64;
    Some(((variance - mean).max(0.0) / (mean * mean)).min(4.0))
}
