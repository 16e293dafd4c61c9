//! What doing it once would give: a capacity-aware assignment of every file.

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
