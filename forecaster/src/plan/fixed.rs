//! What doing it once would give: a capacity-aware assignment, and weights of the default rule.

use super::curve::LoadCurve;
use super::heat::Heat;
use crate::controller::{FileId, PlexView};

/// Assigns every file with heat once, hottest first, each to the store whose worst response time in the periods of `heat`
/// is then the lowest: the rival that knows the stores' capacities and a typical load, and then does nothing more.
/// Files that are pinned stay; stores of which nothing is known, or that are not up, keep what they have and get nothing. Returned are
/// the files that are not where they were.
pub fn static_assignment(
    heat: &Heat,
    curves: &[Option<LoadCurve>],
    view: &PlexView<'_>,
) -> Vec<(FileId, usize)> {
    let curve = |store: usize| curves.get(store).and_then(Option::as_ref).filter(|_| view.is_up(store));
    let open: Vec<(usize, &LoadCurve)> =
        (0..view.stores.len()).filter_map(|s| Some((s, curve(s)?))).collect();
    let mut loads = vec![vec![0.0; heat.aheads()]; view.stores.len()];
    let mut files: Vec<(FileId, f32)> = Vec::new();
    let up: Vec<usize> = (0..view.stores.len()).filter(|s| view.is_up(*s)).collect();
    let weights: f64 = up.iter().map(|s| view.stores[*s].weight.max(0.0)).sum();
    for &store in up.iter().filter(|_| weights > 0.0) {
        let share = view.stores[store].weight.max(0.0) / weights;
        for (h, load) in loads[store].iter_mut().enumerate() {
            *load += share * heat.unlisted(h + 1);
        }
    }
    for index in 0..heat.files() {
        let file = FileId(index as u32);
        let row = heat.row(file);
        let most = row.iter().copied().fold(0.0, f32::max);
        let stays = view.serving(file).filter(|s| view.placement.pinned(file) || curve(*s).is_none());
        match stays {
            _ if most <= 0.0 => {}
            Some(store) => loads[store].iter_mut().zip(row).for_each(|(l, h)| *l += f64::from(*h)),
            None if view.placement.pinned(file) => {}
            None => files.push((file, most)),
        }
    }
    files.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let mut assigned = Vec::new();
    for (file, _) in files {
        let row = heat.row(file);
        let worst = |store: usize, curve: &LoadCurve| {
            let with = loads[store].iter().zip(row).enumerate();
            with.map(|(h, (load, heat))| curve.log_response(load + f64::from(*heat), h + 1))
                .fold(f64::NEG_INFINITY, f64::max)
        };
        let scored = open.iter().map(|(store, curve)| (*store, worst(*store, curve)));
        let Some((to, _)) = scored.min_by(|a, b| a.1.total_cmp(&b.1)) else { continue };
        loads[to].iter_mut().zip(row).for_each(|(l, h)| *l += f64::from(*h));
        if view.serving(file) != Some(to) {
            assigned.push((file, to));
        }
    }
    assigned
}

/// Weights under which all stores would have the same response time at the largest total of `totals` (one a period
/// ahead), if every file were as hot as every other; they sum to the number of stores known and up. `None` where
/// something is unknown of a store that is up.
pub fn balanced_weights(
    totals: &[f64],
    curves: &[Option<LoadCurve>],
    view: &PlexView<'_>,
) -> Option<Vec<f64>> {
    let up: Vec<usize> = (0..view.stores.len()).filter(|s| view.is_up(*s)).collect();
    let open: Vec<&LoadCurve> =
        up.iter().map(|s| curves.get(*s).and_then(Option::as_ref)).collect::<Option<_>>()?;
    let (h, total) = totals.iter().copied().enumerate().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let ahead = h + 1;
    if open.is_empty() || !(total > 0.0 && total.is_finite()) {
        return None;
    }
    let carried = |log_ms: f64| -> f64 { open.iter().map(|c| c.load_at(log_ms, ahead)).sum() };
    let unloaded = open.iter().map(|c| c.log_response(0.0, ahead)).fold(f64::INFINITY, f64::min);
    let alone = open.iter().map(|c| c.log_response(total, ahead)).fold(f64::NEG_INFINITY, f64::max);
    let (mut low, mut high) = (unloaded, alone);
    for _ in 0..50 {
        let middle = 0.5 * (low + high);
        if carried(middle) < total { low = middle } else { high = middle }
    }
    let loads: Vec<f64> = open.iter().map(|c| c.load_at(high, ahead)).collect();
    let sum: f64 = loads.iter().sum();
    if sum.is_nan() || sum <= 0.0 {
        return None;
    }
    let mut weights = vec![0.0; view.stores.len()];
    for (store, load) in up.iter().zip(&loads) {
        weights[*store] = load / sum * up.len() as f64;
    }
    Some(weights)
}
