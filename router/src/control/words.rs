//! Decisions in words: why files are moved, shared and given back.

use super::decided::ReplicatedFile;
use crate::plex::ReadShare;
use clockwork_forecaster::controller::{By, Move};
use clockwork_forecaster::plan::Replication;

/// Why a file is moved from one store to another.
pub(super) fn reason(moved: &Move, from: &str, to: &str) -> String {
    let why = &moved.reason;
    let by = match why.by {
        By::Plan => String::new(),
        By::Prepare => "for a peak like those of the last week: ".into(),
        By::Guard => "guard: ".into(),
        By::GuardCancel => "guard, the load does not come: ".into(),
    };
    let objective_ms = why.objective_ms;
    let change = |(before, after): (f64, f64)| match (before.is_finite(), after.is_finite()) {
        (true, true) => format!("{} -> {} ms", in_words(before, objective_ms), in_words(after, objective_ms)),
        _ => "unknown".into(),
    };
    format!(
        "{by}{from} would have {:.0} requests {} ahead, {:.0} of them this file's; {from} {}, {to} {}; objective {:.2} ms",
        why.from_load,
        if why.ahead == 1 { "in the period".into() } else { format!("{} periods", why.ahead) },
        why.heat,
        change(why.from_response_ms),
        change(why.to_response_ms),
        objective_ms
    )
}

/// Multiple of the objective beyond which a predicted response time only says that the store would be overloaded.
const OVERLOADED: f64 = 100.0;

/// A predicted response time in milliseconds.
pub(super) fn in_words(ms: f64, objective_ms: f64) -> String {
    let most = OVERLOADED * objective_ms;
    if ms > most { format!("over {most:.0}") } else { format!("{ms:.2}") }
}

/// A change of replication in words.
pub(super) fn replicated(
    change: &Replication,
    handle: &[u8],
    path: Option<String>,
    name: &impl Fn(usize) -> String,
    objective_ms: f64,
) -> ReplicatedFile {
    let ms = |ms: f64| in_words(ms, objective_ms);
    let named: Vec<(String, f64)> = change.stores.iter().map(|of| (name(of.store), of.part)).collect();
    let why = &change.reason;
    let ahead =
        if why.ahead == 1 { "in the period".to_owned() } else { format!("{} periods ahead", why.ahead) };
    let (reads, carries) = (100.0 * why.reads, why.carries);
    let begin = format!(
        "{:.0} requests {ahead}, {reads:.0} % of them reads; no store carries more than {carries:.0}; highest response",
        why.heat
    );
    let reason = if named.len() > 1 {
        format!("{begin} {} -> {} ms", ms(why.highest_ms.0), ms(why.highest_ms.1))
    } else {
        format!(
            "replicated no more: {:.0} requests at most ({ahead}), {reads:.0} % of them reads; a store carries \
                 {carries:.0}; highest response {} ms",
            why.heat,
            ms(why.highest_ms.1)
        )
    };
    ReplicatedFile {
        handle: crate::web::handle_text(handle),
        path,
        from: name(change.from),
        stores: ReadShare::by_weight(named.iter().map(|(store, part)| (store.as_str(), *part))),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_far_beyond_the_objective_is_not_told_apart() {
        assert_eq!(in_words(7.254, 3.0), "7.25");
        assert_eq!(in_words(300.0, 3.0), "300.00");
        assert_eq!(in_words(1.9e15, 3.0), "over 300");
    }
}
