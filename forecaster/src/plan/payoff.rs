//! Whether moves pay. A plan is made at a quantile, so that it holds when more comes than is expected; where what comes can
//! hardly be known, that quantile is over the objective always, and each period's plan would be another. So every move
//! has to lower what is expected, by more than the cold cache that the file finds costs.
//!
//! What is expected of a store is by how much its response time exceeds the objective, on the log scale and in the mean over
//! the uncertainty of load and response. The heat is halfway between what is forecast and what is planned with. What moves
//! promise is believed as far as earlier ones have kept it ([`Ledger`]): what each period's moves, made or dropped,
//! promised for the periods after is held against what these then brought.

use std::collections::VecDeque;
use std::sync::Arc;

use super::curve::LoadCurve;
use super::heat::Heat;
use super::search::{NOWHERE, Search, add};
use crate::controller::{FileId, PlexView};

/// Normal quantiles that a mean is taken over, and their weights: Gauss and Hermite's, five points.
pub(crate) const NODES: [(f64, f64); 5] = [
    (-2.856_970_013_872_806, 0.011_257_411_327_720_69),
    (-1.355_626_179_974_266, 0.222_075_922_005_612_6),
    (0.0, 0.533_333_333_333_333_3),
    (1.355_626_179_974_266, 0.222_075_922_005_612_6),
    (2.856_970_013_872_806, 0.011_257_411_327_720_69),
];

/// Periods ahead in which a move has to pay.
const PAID_WITHIN: usize = 6;
/// Part of a moved file's heat that counts once more in its first period, for the cache that is cold.
const COLD: f64 = 0.2;
/// What a period's promises still weigh a period later.
const MEMORY: f64 = 0.95;
/// Sums beyond this are not believed.
const SUM_MAX: f64 = 1e12;
/// What counts as promised and kept beforehand: the sum of logarithms that an e-fold excess in one period would be.
const PRIOR: f64 = 1.0;

/// What is expected of the stores.
#[derive(Debug, Clone)]
pub struct Outlook<'a> {
    /// Mean heat, as forecast.
    pub(crate) heat: &'a Heat,
    /// By store of the view its curves at the normal quantiles of [`NODES`]; `None`: nothing is known of it.
    pub(crate) curves: Vec<Option<Vec<LoadCurve>>>,
    /// ln of the objective in milliseconds.
    pub(crate) log_objective: f64,
    /// Part of what moves promise that is believed, 0 to 1.
    pub(crate) trust: f64,
}

impl Outlook<'_> {
    /// Mean excess of a store over the objective at a load, on the log scale.
    fn excess(&self, store: usize, load: f64) -> f64 {
        let Some(Some(curves)) = self.curves.get(store) else { return 0.0 };
        let over = |curve: &LoadCurve| (curve.log_response(load, 1) - self.log_objective).max(0.0);
        NODES.iter().zip(curves).map(|((_, weight), curve)| weight * over(curve)).sum()
    }

    /// What `heat` more makes of it.
    fn more(&self, store: usize, load: f64, heat: f64) -> f64 {
        self.excess(store, load + heat) - self.excess(store, load)
    }
}

/// A move that was looked at.
#[derive(Debug, Clone, PartialEq)]
pub struct Proposal {
    /// The file.
    pub file: FileId,
    /// The stores that it was to leave and to go to, by index in the view.
    pub stores: (usize, usize),
    /// By how much it was to lower the mean excess over the objective of both, on the log scale, in the periods to come.
    pub gains: [f64; PAID_WITHIN],
}

/// A [`Proposal`] with its stores by name: a later view may number them otherwise.
#[derive(Debug)]
struct Promise {
    file: FileId,
    stores: (Arc<str>, Arc<str>),
    gains: [f64; PAID_WITHIN],
}

/// What moves have promised lately, and what of it came true.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Of the last periods, the newest first.
    open: VecDeque<Vec<Promise>>,
    promised: f64,
    kept: f64,
}

impl Ledger {
    /// With what was promised and kept before. What is no number is nothing.
    pub(crate) fn of(promised: f64, kept: f64) -> Self {
        if (0.0..=SUM_MAX).contains(&promised) && kept.abs() <= SUM_MAX {
            Self { promised, kept, ..Self::default() }
        } else {
            Self::default()
        }
    }

    /// What was promised, and what of it was kept.
    pub(crate) fn sums(&self) -> (f64, f64) {
        (self.promised, self.kept)
    }

    /// Part of what is promised that is believed, 0 to 1.
    pub(crate) fn trust(&self) -> f64 {
        ((self.kept + PRIOR) / (self.promised + PRIOR)).clamp(0.0, 1.0)
    }

    /// Whether anything of weight was promised.
    pub(crate) fn is_known(&self) -> bool {
        self.promised > PRIOR
    }

    /// Takes down what a plan has looked at.
    pub(crate) fn note(&mut self, proposals: &[Proposal], view: &PlexView<'_>) {
        let name = |store: usize| view.stores[store].name.clone();
        let promise = |p: &Proposal| Promise {
            file: p.file,
            stores: (name(p.stores.0), name(p.stores.1)),
            gains: p.gains,
        };
        self.open.push_front(proposals.iter().map(promise).collect());
        self.open.truncate(PAID_WITHIN);
    }

    /// Forgets what was promised and is not settled: the files lie otherwise now, and nobody can say what it would have brought.
    pub(crate) fn forget_open(&mut self) {
        self.open.clear();
    }

    /// Holds the promises against what came in the last period: `heat` by file, with files where the view has them.
    pub(crate) fn settle(&mut self, outlook: &Outlook<'_>, heat: &[f32], view: &PlexView<'_>) {
        if self.open.iter().all(Vec::is_empty) {
            self.promised *= MEMORY;
            self.kept *= MEMORY;
            return;
        }
        let mut loads = vec![0.0; view.stores.len()];
        for (index, heat) in heat.iter().enumerate().filter(|h| *h.1 > 0.0) {
            if let Some(store) = view.serving(FileId(index as u32)) {
                loads[store] += f64::from(*heat);
            }
        }
        let (mut promised, mut kept) = (0.0, 0.0);
        for (age, promises) in self.open.iter().enumerate() {
            for Promise { file, stores, gains } in promises {
                let index = |name: &Arc<str>| view.stores.iter().position(|store| store.name == *name);
                let (Some(from), Some(to)) = (index(&stores.0), index(&stores.1)) else { continue };
                let came = f64::from(heat.get(file.index()).copied().unwrap_or(0.0));
                let serving = view.serving(*file);
                let there = |store: usize| {
                    let own = if serving == Some(store) { came } else { 0.0 };
                    outlook.more(store, (loads[store] - own).max(0.0), came)
                };
                promised += gains[age];
                kept += there(from) - there(to);
            }
        }
        self.promised = MEMORY * self.promised + promised.max(0.0);
        self.kept = MEMORY * self.kept + kept;
    }
}

impl Search<'_> {
    /// Takes back the moves that do not pay, the coldest first.
    pub(super) fn take_back_unpaid(&mut self) {
        let Some(outlook) = self.p.outlook else { return };
        let mut moves: Vec<(FileId, usize)> =
            self.moved.iter().filter_map(|(file, from)| Some((*file, (*from)?))).collect();
        if moves.is_empty() {
            return;
        }
        let hottest = |file: FileId| self.p.heat.row(file).iter().copied().fold(0.0, f32::max);
        moves.sort_by(|a, b| hottest(a.0).total_cmp(&hottest(b.0)).then(a.0.cmp(&b.0)));
        let mut loads = self.expected_loads(outlook.heat);
        // Once more, since what was taken back has changed what the others are worth.
        for again in [false, true] {
            moves.retain(|&(file, from)| {
                let to = self.at[file.index()] as usize;
                let row = self.expected(outlook.heat, file);
                let gains: [f64; PAID_WITHIN] = std::array::from_fn(|h| {
                    outlook.more(from, loads[from][h], f64::from(row[h]))
                        - outlook.more(to, (loads[to][h] - f64::from(row[h])).max(0.0), f64::from(row[h]))
                });
                if !again {
                    self.proposals.push(Proposal { file, stores: (from, to), gains });
                }
                let price = outlook.more(to, loads[to][0], COLD * f64::from(row[0]));
                let pays = outlook.trust * gains.iter().sum::<f64>() > price;
                if !pays {
                    add(&mut loads[to], &row, -1.0);
                    add(&mut loads[from], &row, 1.0);
                    self.put(file, from);
                    self.exhausted = false;
                }
                pays
            });
        }
    }

    /// A file's heat in the periods in which moves have to pay.
    fn expected(&self, forecast: &Heat, file: FileId) -> [f32; PAID_WITHIN] {
        // Where files are replicated the problem's heat is what is left of them.
        let forecast = if self.p.fixed.is_empty() { forecast } else { self.p.heat };
        std::array::from_fn(|h| (0.5 * (forecast.at(file, h + 1) + self.p.heat.at(file, h + 1))) as f32)
    }

    /// The stores' loads in these periods.
    fn expected_loads(&self, forecast: &Heat) -> Vec<Vec<f64>> {
        let mut loads = vec![vec![0.0; PAID_WITHIN]; self.loads.len()];
        for (loads, fixed) in loads.iter_mut().zip(self.p.fixed) {
            loads.iter_mut().zip(fixed).for_each(|(load, fixed)| *load += fixed);
        }
        for (index, store) in self.at.iter().enumerate().filter(|at| *at.1 != NOWHERE) {
            add(&mut loads[*store as usize], &self.expected(forecast, FileId(index as u32)), 1.0);
        }
        let unlisted: [f32; PAID_WITHIN] = std::array::from_fn(|h| self.p.heat.unlisted(h + 1) as f32);
        for (store, share) in self.shares() {
            add(&mut loads[store], &unlisted, share);
        }
        loads
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::{Placement, StoreState, StoreView};

    struct At(Vec<usize>);

    impl Placement for At {
        fn home(&self, file: FileId) -> Option<usize> {
            self.0.get(file.index()).copied()
        }
        fn exception(&self, _: FileId) -> Option<usize> {
            None
        }
        fn pinned(&self, _: FileId) -> bool {
            false
        }
    }

    fn store(name: &str) -> StoreView {
        StoreView { name: name.into(), state: StoreState::Up, weight: 1.0, outstanding_max: 64.0 }
    }

    /// Response 1 ms up to a load of 100, from there on in proportion; the objective is 1 ms.
    fn outlook(heat: &Heat) -> Outlook<'_> {
        let curve = || LoadCurve::new(1000.0, 1, |load, _| (load / 100.0).max(1.0)).unwrap();
        let curves = vec![Some(NODES.map(|_| curve()).to_vec()); 2];
        Outlook { heat, curves, log_objective: 0.0, trust: 1.0 }
    }

    #[test]
    fn the_excess_is_a_mean() {
        assert!((NODES.iter().map(|n| n.1).sum::<f64>() - 1.0).abs() < 1e-12);
        assert!((NODES.iter().map(|n| n.1 * n.0 * n.0).sum::<f64>() - 1.0).abs() < 1e-9);
        let heat = Heat::new(1, 1);
        let outlook = outlook(&heat);
        assert_eq!(outlook.excess(0, 90.0), 0.0);
        assert!((outlook.more(1, 100.0, 100.0) - 2f64.ln()).abs() < 0.01);
        assert_eq!(outlook.excess(7, 1e9), 0.0, "nothing is known of it");
    }

    #[test]
    fn promises_are_believed_as_far_as_they_come_true() {
        let heat = Heat::new(2, 1);
        let stores = [store("a"), store("b")];
        let places = At(vec![0, 0]);
        let view = PlexView { stores: &stores, placement: &places };
        let proposal = Proposal { file: FileId(1), stores: (0, 1), gains: [2f64.ln(); PAID_WITHIN] };
        let told = |came: f32| {
            let mut ledger = Ledger::default();
            for _ in 0..20 {
                ledger.note(std::slice::from_ref(&proposal), &view);
                ledger.settle(&outlook(&heat), &[100.0, came], &view);
            }
            ledger
        };
        // The file stays where it is; what it would have done elsewhere is known all the same.
        let (kept, broken) = (told(100.0), told(0.0));
        assert!(kept.trust() > 0.97 && kept.is_known(), "{}", kept.trust());
        assert!(broken.trust() < 0.05, "{}", broken.trust());
        assert_eq!(Ledger::default().trust(), 1.0);
        // Whoever has nothing to promise is believed again in time.
        let mut silent = broken;
        for _ in 0..200 {
            silent.note(&[], &view);
            silent.settle(&outlook(&heat), &[100.0, 0.0], &view);
        }
        assert!(silent.trust() > 0.95);
        // Stores that are gone count nothing.
        let other = [store("c"), store("d")];
        let mut moved = Ledger::default();
        moved.note(&[proposal], &view);
        moved.settle(&outlook(&heat), &[100.0, 0.0], &PlexView { stores: &other, placement: &places });
        assert_eq!(moved.trust(), 1.0);
    }
}
