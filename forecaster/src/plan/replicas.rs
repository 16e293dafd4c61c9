//! Read replication: a read-mostly file that no single store can carry is read at several.
//!
//! [`planned`] wraps [`plan()`]: what replicated files put on the stores is fixed for the search. A store may still be
//! over the objective after the plan because one file alone is more than any store carries. Then its reads are given to the
//! fewest stores that carry it, in proportion to what each carries, and the rest is planned anew around it.
//!
//! What a store carries is the load at which, with nothing else on it, its response time is at the margin of the objective
//! that plans aim at.
//!
//! | | when |
//! |---|---|
//! | begins | a store is over the objective after the plan; at least [`READS_TO_BEGIN`] of the requests of a file on it are READs; the file is more than the best store carries; the highest response time of all falls below the objective, or by [`GAIN_LEAST`] |
//! | is changed | the same, for a file that is replicated |
//! | ends | in all periods ahead the file is below [`COOLED`] of what the best store carries, and [`PlanSettings::settle_periods`] have gone since its replicas were chosen; or fewer than [`READS_TO_STAY`] of its requests are READs; or [`PlanSettings::replicas_max`] is 1 |

use std::collections::{BTreeMap, HashMap};

use super::problem::{Plan, Problem};
use super::search::plan;
use super::settings::{PlanSettings, Rule};
use crate::controller::{By, FileId, PeriodReport, Placement, PlexView};
use crate::series::signed;

/// Part of a file's requests that have to be READs for its replication to begin.
pub const READS_TO_BEGIN: f64 = 0.9;
/// Part of a file's requests that have to be READs for its replication to go on.
pub const READS_TO_STAY: f64 = 0.8;
/// Replication ends where the file is below this share of what the best store carries.
pub const COOLED: f64 = 0.6;
/// By what share the highest response time has to fall where the objective is not met.
pub const GAIN_LEAST: f64 = 0.1;
/// Files whose replication begins or changes in one decision.
const STARTS_MAX: usize = 4;
/// Files of which the part of READs is known; beyond it only those of the newest period.
const READS_KNOWN_MAX: usize = 4096;
/// What the newest period weighs in that part.
const READS_WEIGHT: f64 = 0.3;

/// A store's part of a replicated file's reads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReadShare {
    /// The store, by index in the view.
    pub store: usize,
    /// Its part relative to the other stores' parts, above 0.
    pub part: f64,
}

/// Stores, by index in the view, and the part of a file's requests that each has.
pub type Parts = Vec<(usize, f64)>;

/// A file whose reads several stores are to share, or one store no more than the rest.
#[derive(Debug, Clone, PartialEq)]
pub struct Replication {
    /// The file.
    pub file: FileId,
    /// Its home now: where all goes that is no read.
    pub from: usize,
    /// The stores that are to share its reads, its home the first of them. One store: replication ends.
    pub stores: Vec<ReadShare>,
    /// Parts of all its requests that stores have now, and will have.
    pub parts: (Parts, Parts),
    /// Why.
    pub reason: ReplicationReason,
}

/// Why replication begins, changes or ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReplicationReason {
    /// Which period ahead made the case: 1 = the next one.
    pub ahead: usize,
    /// Planned heat of the file in that period, requests.
    pub heat: f64,
    /// Part of its requests that are READs.
    pub reads: f64,
    /// What the store that carries most carries, requests.
    pub carries: f64,
    /// Highest response time of all stores in the periods ahead, milliseconds: as planned without the change, and with it;
    /// the same twice where replication ends.
    pub highest_ms: (f64, f64),
}

/// What is known of the reads of files.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reads {
    /// Part of the requests, and the period it was last told of.
    known: HashMap<FileId, (f64, i64)>,
}

impl Reads {
    /// Takes note of a period. Parts that are no number are left out.
    pub fn take(&mut self, report: &PeriodReport) {
        for (file, part) in report.reads.iter().filter(|r| (0.0..=1.0).contains(&r.1)) {
            let known = self.known.entry(*file).or_insert((*part, report.period));
            *known = (known.0 + READS_WEIGHT * (part - known.0), report.period);
        }
        if self.known.len() > READS_KNOWN_MAX {
            self.known.retain(|_, known| known.1 == report.period);
        }
        if self.known.len() > READS_KNOWN_MAX {
            let mut files: Vec<FileId> = self.known.keys().copied().collect();
            files.sort_unstable();
            for file in files.iter().skip(READS_KNOWN_MAX) {
                self.known.remove(file);
            }
        }
    }

    /// Part of a file's requests that are READs; 0 where nothing is known.
    pub fn of(&self, file: FileId) -> f64 {
        self.known.get(&file).map_or(0.0, |known| known.0)
    }
}

/// Parts of all requests of a file that stores have: its reads by share, the rest at the first that is up. Empty where
/// none is up.
fn parts(shares: &[ReadShare], reads: f64, view: &PlexView<'_>) -> Parts {
    let up: Vec<&ReadShare> = shares.iter().filter(|s| view.is_up(s.store) && s.part > 0.0).collect();
    let sum: f64 = up.iter().map(|s| s.part).sum();
    let rest = |place: usize| if place == 0 { 1.0 - reads } else { 0.0 };
    up.iter().enumerate().map(|(place, s)| (s.store, reads * s.part / sum + rest(place))).collect()
}

/// What stores have of the requests of the replicated files.
pub(crate) fn in_force(view: &PlexView<'_>, reads: &Reads) -> BTreeMap<FileId, Parts> {
    let of = |file: FileId| {
        let shares = view.placement.shares(file);
        // A file that is replicated was read-mostly when it was, until more is known.
        let known = if reads.known.contains_key(&file) { reads.of(file) } else { 1.0 };
        let parts = parts(&shares, known, view);
        (!parts.is_empty()).then_some((file, parts))
    };
    view.placement.replicated().into_iter().filter_map(of).collect()
}

/// Moves a load of `heat` requests from where it lay to where it will lie.
pub(crate) fn shift(loads: &mut [f64], heat: f64, change: &Replication) {
    for (parts, sign) in [(&change.parts.0, -1.0), (&change.parts.1, 1.0)] {
        for (store, part) in parts {
            if let Some(load) = loads.get_mut(*store) {
                *load = (*load + sign * heat * part).max(0.0);
            }
        }
    }
}

/// A plex whose replicated files are not to be moved one by one.
struct Held<'a> {
    placement: &'a dyn Placement,
    files: &'a BTreeMap<FileId, Parts>,
}

impl Placement for Held<'_> {
    fn home(&self, file: FileId) -> Option<usize> {
        self.placement.home(file)
    }
    fn exception(&self, file: FileId) -> Option<usize> {
        self.placement.exception(file)
    }
    fn pinned(&self, file: FileId) -> bool {
        self.files.contains_key(&file) || self.placement.pinned(file)
    }
}

/// A plan with these files on these parts of stores, all others to be moved as it sees fit.
fn around(problem: &Problem<'_>, files: &BTreeMap<FileId, Parts>) -> Plan {
    if files.is_empty() {
        return plan(problem);
    }
    let mut heat = problem.heat.clone();
    let mut fixed = vec![vec![0.0; heat.aheads()]; problem.view.stores.len()];
    for (file, parts) in files {
        for ahead in 1..=heat.aheads() {
            for (store, part) in parts {
                if let Some(load) = fixed.get_mut(*store).and_then(|loads| loads.get_mut(ahead - 1)) {
                    *load += part * problem.heat.at(*file, ahead);
                }
            }
            heat.set(*file, ahead, 0.0);
        }
    }
    let placement = Held { placement: problem.view.placement, files };
    let view = PlexView { stores: problem.view.stores, placement: &placement };
    plan(&Problem { heat: &heat, fixed: &fixed, view, ..*problem })
}

/// The highest response time of a plan (ln ms), the store and the period ahead.
fn highest(problem: &Problem<'_>, plan: &Plan) -> Option<(f64, usize, usize)> {
    let mut highest: Option<(f64, usize, usize)> = None;
    for (store, loads) in plan.loads_after.iter().enumerate().filter(|(s, _)| problem.view.is_up(*s)) {
        let Some(Some(curve)) = problem.curves.get(store) else { continue };
        for (ahead, load) in (1..).zip(loads) {
            let log = curve.log_response(*load, ahead);
            if highest.is_none_or(|known| log > known.0) {
                highest = Some((log, store, ahead));
            }
        }
    }
    highest
}

/// A plan, with replication where the settings allow it.
pub fn planned(problem: &Problem<'_>, reads: &Reads) -> Plan {
    let mut files = in_force(&problem.view, reads);
    let settings = problem.settings;
    // The guard leaves replicas as they are; the paper's rule has none.
    if problem.by != By::Plan || settings.rule == Rule::Paper {
        return around(problem, &files);
    }
    let mut changes = ends(problem, reads, &mut files);
    let mut made = around(problem, &files);
    for change in &mut changes {
        let log = highest(problem, &made).map_or(f64::NAN, |highest| highest.0.exp());
        change.reason.highest_ms = (log, log);
    }
    while settings.replicas_max > 1 && changes.len() < STARTS_MAX {
        let Some((change, around)) = begin(problem, reads, &files, &made, &changes) else { break };
        files.insert(change.file, change.parts.1.clone());
        made = around;
        changes.push(change);
    }
    made.replications = changes;
    made
}

/// Ends replication where there is no reason for it any more; `files` has each such file at its home alone then.
fn ends(problem: &Problem<'_>, reads: &Reads, files: &mut BTreeMap<FileId, Parts>) -> Vec<Replication> {
    let (view, settings) = (&problem.view, problem.settings);
    let aheads = problem.heat.aheads();
    let carries: Vec<Vec<f64>> = (1..=aheads).map(|ahead| carried(problem, ahead)).collect();
    let best = |ahead: usize| carries[ahead - 1].iter().copied().fold(0.0, f64::max);
    let chosen_since = problem.period.saturating_sub(signed(settings.settle_periods));
    let mut ended = Vec::new();
    for (file, now) in files.iter_mut().filter(|(file, _)| !view.placement.pinned(**file)) {
        let settled = problem.past.last(*file).is_none_or(|changed| changed <= chosen_since);
        let cool = (1..=aheads).all(|ahead| problem.heat.at(*file, ahead) < COOLED * best(ahead));
        let known = reads.known.contains_key(file);
        let written = known && reads.of(*file) < READS_TO_STAY;
        if !(settings.replicas_max <= 1 || written || (settled && cool)) {
            continue;
        }
        let Some(home) = now.first().map(|part| part.0) else { continue };
        let after = vec![(home, 1.0)];
        let hottest = (1..=aheads)
            .max_by(|a, b| problem.heat.at(*file, *a).total_cmp(&problem.heat.at(*file, *b)).then(b.cmp(a)));
        let ahead = hottest.unwrap_or(1);
        ended.push(Replication {
            file: *file,
            from: home,
            stores: vec![ReadShare { store: home, part: 1.0 }],
            parts: (std::mem::replace(now, after.clone()), after),
            reason: ReplicationReason {
                ahead,
                heat: problem.heat.at(*file, ahead),
                reads: reads.of(*file),
                carries: best(ahead),
                highest_ms: (f64::NAN, f64::NAN),
            },
        });
    }
    ended
}

/// What each store carries in a period ahead, requests; 0 for stores that are not up or not known.
fn carried(problem: &Problem<'_>, ahead: usize) -> Vec<f64> {
    let x = problem.objective.response_ms.ln();
    let at = |log_ms: f64| -> Vec<f64> {
        let of = |store: usize| {
            let curve = problem.curves.get(store)?.as_ref().filter(|_| problem.view.is_up(store))?;
            Some(curve.load_at(log_ms, ahead))
        };
        (0..problem.view.stores.len()).map(|store| of(store).unwrap_or(0.0)).collect()
    };
    let margin = at(x + problem.settings.margin.ln());
    // Where even an empty store is slower than the margin, the objective itself is what counts.
    if margin.iter().any(|load| *load > 0.0) { margin } else { at(x) }
}

/// Replicates the file that alone is too much for the store that is highest after a plan, if there is one and it helps.
fn begin(
    problem: &Problem<'_>,
    reads: &Reads,
    files: &BTreeMap<FileId, Parts>,
    made: &Plan,
    changes: &[Replication],
) -> Option<(Replication, Plan)> {
    let x = problem.objective.response_ms.ln();
    let (worst, store, ahead) = highest(problem, made).filter(|highest| highest.0 > x)?;
    let carries = carried(problem, ahead);
    let best = carries.iter().copied().fold(0.0, f64::max);
    let file = hottest_on(problem, files, made, store, ahead)?;
    let heat = problem.heat.at(file, ahead);
    let may = heat > best
        && best > 0.0
        && reads.of(file) >= READS_TO_BEGIN
        && !problem.view.placement.pinned(file)
        && !changes.iter().any(|change| change.file == file);
    if !may {
        return None;
    }
    let serving = || problem.view.serving(file).map(|store| (store, 1.0));
    let now = files.get(&file).cloned().unwrap_or_else(|| serving().into_iter().collect());
    let from = now.first().map(|part| part.0);
    let mut found: Option<(f64, Vec<ReadShare>, Plan)> = None;
    for shares in candidates(&carries, from, problem.settings) {
        let mut with = files.clone();
        with.insert(file, parts(&shares, reads.of(file), &problem.view));
        let around = around(problem, &with);
        let after = self::highest(problem, &around).map_or(f64::INFINITY, |highest| highest.0);
        if found.as_ref().is_none_or(|known| after < known.0) {
            found = Some((after, shares, around));
        }
        // The fewest stores that carry it.
        if after <= x {
            break;
        }
    }
    let (after, stores, around) = found?;
    let new = parts(&stores, reads.of(file), &problem.view);
    if (after > x && after > worst + (1.0 - GAIN_LEAST).ln()) || new == now {
        return None;
    }
    let reason = ReplicationReason {
        ahead,
        heat,
        reads: reads.of(file),
        carries: best,
        highest_ms: (worst.exp(), after.exp()),
    };
    let from = from.unwrap_or(stores.first()?.store);
    Some((Replication { file, from, stores, parts: (now, new), reason }, around))
}

/// The stores that carry most, two and more, each with its share; the file's own store first where it is among them.
fn candidates<'a>(
    carries: &'a [f64],
    from: Option<usize>,
    settings: &PlanSettings,
) -> impl Iterator<Item = Vec<ReadShare>> + use<'a> {
    let mut stores: Vec<usize> = (0..carries.len()).filter(|store| carries[*store] > 0.0).collect();
    stores.sort_by(|a, b| carries[*b].total_cmp(&carries[*a]).then(a.cmp(b)));
    (2..=stores.len().min(settings.replicas_max)).map(move |count| {
        let mut chosen: Vec<usize> = stores.iter().copied().take(count).collect();
        if let Some(own) = chosen.iter().position(|store| Some(*store) == from) {
            chosen[..=own].rotate_right(1);
        }
        chosen.iter().map(|store| ReadShare { store: *store, part: carries[*store] }).collect()
    })
}

/// The file that puts most on a store after a plan, in a period ahead.
fn hottest_on(
    problem: &Problem<'_>,
    files: &BTreeMap<FileId, Parts>,
    made: &Plan,
    store: usize,
    ahead: usize,
) -> Option<FileId> {
    let moved: HashMap<FileId, usize> =
        made.moves.iter().chain(&made.returns).map(|moved| (moved.file, moved.to)).collect();
    let part_on = |file: FileId| match files.get(&file) {
        Some(parts) => parts.iter().find(|part| part.0 == store).map_or(0.0, |part| part.1),
        None => {
            let at = moved.get(&file).copied().or_else(|| problem.view.serving(file));
            if at == Some(store) { 1.0 } else { 0.0 }
        }
    };
    let mut hottest: Option<(f64, FileId)> = None;
    for number in 0..u32::try_from(problem.heat.files()).unwrap_or(u32::MAX) {
        let file = FileId(number);
        let heat = problem.heat.at(file, ahead);
        // Placement is asked of few: only of files hotter than the hottest so far.
        if heat > hottest.map_or(0.0, |known| known.0) {
            let own = heat * part_on(file);
            if own > hottest.map_or(0.0, |known| known.0) {
                hottest = Some((own, file));
            }
        }
    }
    hottest.map(|known| known.1)
}
