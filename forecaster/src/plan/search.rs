//! The search for moves.

use std::collections::HashMap;

use super::curve::LoadCurve;
use super::payoff::Proposal;
use super::problem::{Plan, Problem};
use super::settings::Rule;
use crate::controller::{By, FileId, Move, Note, Reason};
use crate::series::signed;

/// Stores looked at as the target of a file: those with the most room.
const TARGETS_MAX: usize = 8;
/// Stores up to which `heat_min` holds as it stands.
const HEAT_MIN_STORES: f64 = 4.0;
/// Periods ahead that are planned for in turn, the nearer ones first; then all.
const STAGES: [usize; 3] = [1, 3, 6];
/// How far (log scale) a store must be over the objective for a plan to begin: by a hair is noise.
const EXCESS: f64 = 0.05;
/// Scores nearer to each other than this (log scale) are equal.
const EQUAL: f64 = 1e-3;
/// No store.
pub(super) const NOWHERE: u32 = u32::MAX;

/// Makes a plan.
pub fn plan(problem: &Problem<'_>) -> Plan {
    let mut search = Search::new(problem);
    let before = search.loads.clone();
    if search.up.is_empty() {
        let notes = vec![Note::AllStoresDead];
        return Plan { loads_after: before.clone(), loads_before: before, notes, ..Plan::default() };
    }
    search.place_homeless();
    match problem.settings.rule {
        Rule::Paper => search.paper(),
        Rule::Margin => {
            search.margin();
            search.take_back_unpaid();
            search.prepare();
            search.give_back();
        }
    }
    search.finish(before)
}

pub(super) struct Search<'a> {
    pub(super) p: &'a Problem<'a>,
    aheads: usize,
    /// Periods ahead that are looked at.
    looked: usize,
    /// How many of them were planned for before: they are to stay below the limit (ln ms), or as they are.
    near: usize,
    near_limit: f64,
    /// Stores that are up.
    pub(super) up: Vec<usize>,
    /// The store of each file.
    pub(super) at: Vec<u32>,
    pub(super) loads: Vec<Vec<f64>>,
    /// Files worth moving, hottest first, by the largest share of all heat.
    candidates: Vec<(FileId, f64)>,
    /// Files moved so far, and the store they were on.
    pub(super) moved: HashMap<FileId, Option<usize>>,
    /// Of these, files moved to prepare for a peak: their heat in it, and the load of the store that they left.
    pub(super) preparing: HashMap<FileId, (f64, f64)>,
    returned: Vec<FileId>,
    homeless: Vec<(FileId, f64)>,
    homeless_left: usize,
    pub(super) exhausted: bool,
    /// Moves held against the outlook.
    pub(super) proposals: Vec<Proposal>,
}

/// A move looked at.
struct Step {
    file: FileId,
    to: usize,
    score: f64,
    heat: f64,
}

impl<'a> Search<'a> {
    fn new(p: &'a Problem<'a>) -> Self {
        let stores = p.view.stores.len();
        let aheads = p.heat.aheads();
        let up: Vec<usize> = (0..stores).filter(|s| p.view.is_up(*s)).collect();
        let mut search = Self {
            p,
            aheads,
            looked: aheads,
            near: 0,
            near_limit: f64::INFINITY,
            at: vec![NOWHERE; p.heat.files()],
            loads: vec![vec![0.0; aheads]; stores],
            candidates: Vec::new(),
            moved: HashMap::new(),
            preparing: HashMap::new(),
            returned: Vec::new(),
            homeless: Vec::new(),
            homeless_left: 0,
            exhausted: false,
            proposals: Vec::new(),
            up,
        };
        for (loads, fixed) in search.loads.iter_mut().zip(p.fixed) {
            loads.iter_mut().zip(fixed).for_each(|(load, fixed)| *load += fixed);
        }
        search.survey();
        search
    }

    /// Where every file is, what that makes of the stores' loads, and which files are worth moving.
    fn survey(&mut self) {
        let inverse: Vec<f64> =
            self.p.heat.totals().iter().map(|t| if *t > 0.0 { 1.0 / t } else { 0.0 }).collect();
        let stores = (self.up.len().max(1)) as f64;
        let least = self.p.settings.heat_min * (HEAT_MIN_STORES / stores).min(1.0);
        for index in 0..self.at.len() {
            let Ok(number) = u32::try_from(index) else { break };
            let file = FileId(number);
            let row = self.p.heat.row(file);
            if row.iter().all(|heat| *heat <= 0.0) {
                continue;
            }
            let share = row.iter().zip(&inverse).map(|(heat, i)| f64::from(*heat) * i).fold(0.0, f64::max);
            match self.p.view.serving(file) {
                Some(store) => {
                    self.at[index] = store as u32;
                    add(&mut self.loads[store], row, 1.0);
                    if share >= least && share > 0.0 && !self.p.view.placement.pinned(file) {
                        self.candidates.push((file, share));
                    }
                }
                None => self.homeless.push((file, share)),
            }
        }
        let hottest_first = |a: &(FileId, f64), b: &(FileId, f64)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        self.candidates.sort_by(hottest_first);
        self.homeless.sort_by(hottest_first);
        let unlisted: Vec<f32> = (1..=self.aheads).map(|a| self.p.heat.unlisted(a) as f32).collect();
        self.spread(&unlisted);
    }

    /// What each store that is up has of the heat that lies by weights.
    pub(super) fn shares(&self) -> Vec<(usize, f64)> {
        let weight = |s: &usize| {
            let w = self.p.view.stores[*s].weight;
            if w > 0.0 && w.is_finite() { w } else { 0.0 }
        };
        let sum: f64 = self.up.iter().map(weight).sum();
        let share = |s: &usize| if sum > 0.0 { weight(s) / sum } else { 1.0 / self.up.len() as f64 };
        self.up.iter().map(|s| (*s, share(s))).collect()
    }

    /// Lays heat on the stores that are up, by their weights.
    fn spread(&mut self, row: &[f32]) {
        for (store, share) in self.shares() {
            add(&mut self.loads[store], row, share);
        }
    }

    pub(super) fn target(&self) -> f64 {
        let share = match self.p.settings.rule {
            Rule::Paper => 1.0,
            Rule::Margin => self.p.settings.margin,
        };
        let x = self.p.objective.response_ms.ln();
        let unloaded = self.up.iter().filter_map(|s| Some(self.curve(*s)?.log_response(0.0, 1)));
        let unloaded = unloaded.fold(f64::NEG_INFINITY, f64::max);
        (x + share.ln()).max((unloaded + 0.1).min(x - 0.05))
    }

    pub(super) fn budget_left(&self) -> bool {
        self.moved.len() + self.returned.len() < self.p.settings.moves_max
    }

    fn curve(&self, store: usize) -> Option<&'a LoadCurve> {
        self.p.curves.get(store)?.as_ref()
    }

    /// The worst of the periods ahead (ln ms), and which it is; `None` for stores of which nothing is known.
    fn worst(&self, store: usize) -> Option<(f64, usize)> {
        let curve = self.curve(store)?;
        let at = |ahead: usize| (curve.log_response(self.loads[store][ahead - 1], ahead), ahead);
        (1..=self.looked_at()).map(at).max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)))
    }

    /// The worst with a file's heat added (`sign` 1) or taken away (-1).
    pub(super) fn worst_with(&self, store: usize, row: &[f32], sign: f64) -> Option<f64> {
        let curve = self.curve(store)?;
        let loads = self.loads[store].iter().zip(row).take(self.looked_at()).enumerate();
        Some(
            loads
                .map(|(h, (load, heat))| curve.log_response(load + sign * f64::from(*heat), h + 1))
                .fold(f64::NEG_INFINITY, f64::max),
        )
    }

    /// Periods ahead that the rule looks at.
    fn looked_at(&self) -> usize {
        match self.p.settings.rule {
            Rule::Paper => 1,
            Rule::Margin => self.looked,
        }
    }

    pub(super) fn settled(&self, file: FileId, to: usize) -> bool {
        let since = self.p.period.saturating_sub(signed(self.p.settings.settle_periods) - 1);
        !self.p.past.left(file, &self.p.view.stores[to].name, since)
    }

    /// Puts a file to a store.
    pub(super) fn put(&mut self, file: FileId, to: usize) {
        let row = self.p.heat.row(file);
        let from = self.at.get(file.index()).copied().unwrap_or(NOWHERE);
        if from != NOWHERE {
            add(&mut self.loads[from as usize], row, -1.0);
        }
        add(&mut self.loads[to], row, 1.0);
        self.at[file.index()] = to as u32;
        self.moved.entry(file).or_insert((from != NOWHERE).then_some(from as usize));
        if self.moved[&file] == Some(to) {
            self.moved.remove(&file);
        }
    }

    /// Files on no store that is up: the hottest get the best store, as far as moves go; the rest lies on the stores by
    /// their weights until the caller's table has a place for it.
    fn place_homeless(&mut self) {
        for (file, _) in std::mem::take(&mut self.homeless) {
            let row: Vec<f32> = self.p.heat.row(file).to_vec();
            let room = |s: &usize| self.worst_with(*s, &row, 1.0);
            let known = self.up.iter().filter_map(|s| Some((*s, room(s)?)));
            let best = known.min_by(|a, b| a.1.total_cmp(&b.1)).map(|b| b.0);
            let to = best.or_else(|| self.least_loaded());
            match to {
                Some(to) if self.budget_left() && !self.p.view.placement.pinned(file) => self.put(file, to),
                _ => {
                    self.homeless_left += 1;
                    self.spread(&row);
                }
            }
        }
    }

    /// The store that is up with the least load for its weight.
    fn least_loaded(&self) -> Option<usize> {
        let load = |s: &usize| self.loads[*s][0] / self.p.view.stores[*s].weight.max(1e-9);
        self.up.iter().copied().min_by(|a, b| load(a).total_cmp(&load(b)))
    }

    /// Stores that a file may go to, the one with the most room first.
    fn targets(&self, except: usize) -> Vec<usize> {
        let known = self.up.iter().filter(|s| **s != except).filter_map(|s| Some((*s, self.worst(*s)?.0)));
        let mut known: Vec<(usize, f64)> = known.collect();
        known.sort_by(|a, b| a.1.total_cmp(&b.1));
        known.truncate(TARGETS_MAX);
        known.into_iter().map(|k| k.0).collect()
    }

    /// The highest store that may still be relieved.
    fn highest(&self, stuck: &[bool]) -> Option<(usize, f64)> {
        let open = self.up.iter().filter(|s| !stuck[**s]).filter_map(|s| Some((*s, self.worst(*s)?.0)));
        open.max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)))
    }

    /// Nearer periods first: what is far ahead may be more than the plex can carry, and must not keep the next period from
    /// being planned for, nor be bought with it.
    fn margin(&mut self) {
        if self.p.by != By::Plan {
            // The guard mends the period under way; what is ahead is for the next plan, but it is not made worse.
            self.margin_of(1);
            return;
        }
        let all = self.aheads;
        let mut before = 0;
        for stage in STAGES.into_iter().filter(|stage| *stage < all).chain([all]) {
            (self.looked, self.near) = (stage, before);
            self.near_limit = self.highest_of_all(before).unwrap_or(f64::INFINITY);
            self.margin_of(stage);
            before = stage;
        }
        (self.looked, self.near) = (all, 0);
    }

    /// Relieves the stores in the periods looked at, where one of the first `counted` does not hold the objective.
    fn margin_of(&mut self, counted: usize) {
        let limit = self.p.objective.response_ms.ln();
        let begin = if self.p.by == By::Plan { limit + EXCESS } else { limit };
        // What is planned at all is planned for all periods ahead, so that it holds for a while.
        let begun = !self.moved.is_empty();
        if self.highest_of_all(counted).is_none_or(|worst| worst <= begin && !begun) {
            return;
        }
        let (at, loads, moved) = (self.at.clone(), self.loads.clone(), self.moved.clone());
        let before = self.highest_of_all(self.looked);
        self.relieve(|search, from, worst| search.best_step(from, worst));
        let after = self.highest_of_all(self.looked);
        let (Some(before), Some(after)) = (before, after) else { return };
        // Neither met nor much better: not worth what moves cost, period after period.
        if after > limit && after > before + (1.0 - self.p.settings.plan_gain.min(0.999_999)).ln() {
            (self.at, self.loads, self.moved) = (at, loads, moved);
        }
    }

    /// The worst of all stores in the first periods ahead.
    fn highest_of_all(&self, aheads: usize) -> Option<f64> {
        let of = |store: &usize| {
            let curve = self.curve(*store)?;
            (1..=aheads.min(self.aheads))
                .map(|ahead| curve.log_response(self.loads[*store][ahead - 1], ahead))
                .max_by(f64::total_cmp)
        };
        self.up.iter().filter_map(of).max_by(f64::total_cmp)
    }

    fn paper(&mut self) {
        self.relieve(|search, from, worst| search.first_step(from, worst));
    }

    /// Takes files from the highest store until all are below the target, or none can be relieved.
    fn relieve(&mut self, step: impl Fn(&Self, usize, f64) -> Option<Step>) {
        let target = self.target();
        let mut stuck = vec![false; self.loads.len()];
        while let Some((from, worst)) = self.highest(&stuck) {
            if worst <= target {
                return;
            }
            if !self.budget_left() {
                self.exhausted = true;
                return;
            }
            match step(self, from, worst) {
                Some(step) => self.put(step.file, step.to),
                None => stuck[from] = true,
            }
        }
    }

    /// What the highest of both stores must fall below for a move to count: by the least gain, or for files of less than
    /// that share of the store's load, by as much less.
    fn must_fall_below(&self, worst: f64, heat: f64, load: f64) -> f64 {
        let gain = self.p.settings.least_gain;
        let part = if load > 0.0 && gain > 0.0 { (heat / (gain * load)).min(1.0) } else { 1.0 };
        worst + part * (1.0 - gain.min(0.999_999)).ln()
    }

    pub(super) fn on(&self, store: usize) -> impl Iterator<Item = FileId> {
        self.candidates.iter().map(|c| c.0).filter(move |file| self.at[file.index()] as usize == store)
    }

    /// The move that leaves the higher of both stores lowest, and of equals the coldest file's.
    fn best_step(&self, from: usize, worst: f64) -> Option<Step> {
        let target = self.target();
        let targets = self.targets(from);
        let ahead = self.worst(from)?.1;
        let load = self.loads[from][ahead - 1];
        let mut best: Option<Step> = None;
        for file in self.on(from) {
            let row = self.p.heat.row(file);
            let heat = f64::from(row[ahead - 1]);
            let limit = self.must_fall_below(worst, heat, load);
            let left = self.worst_with(from, row, -1.0)?;
            if left > limit || best.as_ref().is_some_and(|b| left > b.score + EQUAL) {
                continue;
            }
            for &to in &targets {
                let Some(there) = self.worst_with(to, row, 1.0) else { continue };
                let score = left.max(there).max(target);
                let better = best.as_ref().is_none_or(|b| {
                    score < b.score - EQUAL || (score < b.score + EQUAL && heat < b.heat && score <= b.score)
                });
                if score <= limit && better && self.settled(file, to) && self.near_allows(to, row, target) {
                    best = Some(Step { file, to, score, heat });
                }
            }
        }
        best
    }

    /// Whether the periods planned for before allow a file's move to a store.
    fn near_allows(&self, to: usize, row: &[f32], target: f64) -> bool {
        let Some(curve) = self.curve(to) else { return false };
        let limit = self.near_limit.max(target);
        let loads = self.loads[to].iter().zip(row).take(self.near).enumerate();
        loads.map(|(h, (load, heat))| curve.log_response(load + f64::from(*heat), h + 1)).all(|r| r <= limit)
    }

    /// The hottest file whose move to the best other store helps.
    fn first_step(&self, from: usize, worst: f64) -> Option<Step> {
        let targets = self.targets(from);
        self.on(from).find_map(|file| {
            let row = self.p.heat.row(file);
            let there = targets.iter().filter(|to| self.settled(file, **to));
            let best = there
                .filter_map(|to| Some((*to, self.worst_with(*to, row, 1.0)?)))
                .min_by(|a, b| a.1.total_cmp(&b.1))?;
            let left = self.worst_with(from, row, -1.0)?;
            let score = left.max(best.1);
            (score < worst).then_some(Step { file, to: best.0, score, heat: 0.0 })
        })
    }

    /// Gives files back to the default rule, coldest first, where their homes have room for them.
    fn give_back(&mut self) {
        let Some(share) = self.p.settings.give_back else { return };
        let limit = (share * self.p.objective.response_ms).ln();
        let kept_since = self.p.period.saturating_sub(signed(self.p.settings.keep_periods));
        let placement = self.p.view.placement;
        let mut away: Vec<(FileId, f32)> = Vec::new();
        for index in 0..self.at.len() {
            let file = FileId(index as u32);
            let may = placement.exception(file).is_some_and(|s| self.p.view.is_up(s))
                && !self.moved.contains_key(&file)
                && self.p.past.last(file).is_none_or(|moved| moved < kept_since)
                && !placement.pinned(file);
            if may {
                let heat = self.p.heat.row(file).iter().copied().fold(0.0, f32::max);
                away.push((file, heat));
            }
        }
        away.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
        for (file, _) in away {
            if !self.budget_left() {
                return;
            }
            let Some(home) = placement.home(file).filter(|s| self.p.view.is_up(*s)) else { continue };
            let stays = self.at[file.index()] as usize == home;
            let row = self.p.heat.row(file);
            let there = if stays { self.worst(home).map(|w| w.0) } else { self.worst_with(home, row, 1.0) };
            if stays || (there.is_some_and(|w| w <= limit) && self.settled(file, home)) {
                let from = self.at[file.index()];
                if from != NOWHERE && !stays {
                    add(&mut self.loads[from as usize], row, -1.0);
                    add(&mut self.loads[home], row, 1.0);
                }
                self.at[file.index()] = home as u32;
                self.returned.push(file);
            }
        }
    }

    fn finish(mut self, before: Vec<Vec<f64>>) -> Plan {
        let mut moved: Vec<(FileId, Option<usize>)> = std::mem::take(&mut self.moved).into_iter().collect();
        let heat = |file: FileId| self.p.heat.row(file).iter().copied().fold(0.0, f32::max);
        moved.sort_by(|a, b| heat(b.0).total_cmp(&heat(a.0)).then(a.0.cmp(&b.0)));
        let moves = moved.iter().map(|(file, from)| self.reasoned(*file, *from, &before)).collect();
        let returns = std::mem::take(&mut self.returned);
        let exception = |file: FileId| self.p.view.placement.exception(file);
        let returns = returns.iter().map(|file| self.reasoned(*file, exception(*file), &before)).collect();
        let mut notes = Vec::new();
        if self.exhausted {
            notes.push(Note::MovesExhausted);
        }
        if self.homeless_left > 0 {
            notes.push(Note::Homeless { files: self.homeless_left });
        }
        let proposals = std::mem::take(&mut self.proposals);
        let loads_after = self.loads;
        Plan { moves, returns, loads_before: before, loads_after, proposals, notes, ..Plan::default() }
    }

    /// The move with its reason.
    fn reasoned(&self, file: FileId, from: Option<usize>, before: &[Vec<f64>]) -> Move {
        let to = self.at[file.index()] as usize;
        let of = from.unwrap_or(to);
        let ms = |store: usize, loads: &[Vec<f64>], ahead: usize| {
            self.curve(store).map_or(f64::NAN, |c| c.log_response(loads[store][ahead - 1], ahead).exp())
        };
        let highest = |a: &usize, b: &usize| ms(of, before, *a).total_cmp(&ms(of, before, *b)).then(b.cmp(a));
        let ahead = (1..=self.looked_at()).max_by(highest).unwrap_or(1);
        let left = |value: f64| if from.is_some() { value } else { f64::NAN };
        let reason = Reason {
            by: self.p.by,
            ahead,
            heat: self.p.heat.at(file, ahead),
            from_load: if from.is_some() { before[of][ahead - 1] } else { 0.0 },
            from_response_ms: (left(ms(of, before, ahead)), left(ms(of, &self.loads, ahead))),
            to_response_ms: (ms(to, before, ahead), ms(to, &self.loads, ahead)),
            objective_ms: self.p.objective.response_ms,
        };
        let reason = match self.preparing.get(&file) {
            Some(&(heat, from_load)) => Reason { by: By::Prepare, heat, from_load, ..reason },
            None => reason,
        };
        Move { file, from: of, to, reason }
    }
}

/// Adds a file's heat to loads, never below zero.
pub(super) fn add(loads: &mut [f64], row: &[f32], factor: f64) {
    loads.iter_mut().zip(row).for_each(|(load, heat)| *load = (*load + factor * f64::from(*heat)).max(0.0));
}
