//! What the plex knows of its stores and what it wants: the states, the exception set, and the routing table made of
//! both.

use super::mounting::Mounting;
use super::survey::{Survey, cookies_alike};
use super::weights::LearntWeights;
use crate::config::Config;
use crate::exports::{MountService, Root, common_flavors};
use crate::net::ShardHandle;
use arc_swap::ArcSwap;
use clockwork_placement::{
    Assignment, REPLICAS_MAX, Replica, StoreEntry, StoreId, StoreState, Table, TableError,
};
use clockwork_switch::{DATAGRAM_TRANSFER_BYTES_MAX, Shared, TransferSizes};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Greatest share of a file's reads that a table is told: what kept shares of another kind are cut to.
const SHARE_MAX: u32 = 1_000_000;

/// What is known of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// It has not answered yet.
    #[default]
    Unknown,
    /// It answers.
    Up,
    /// It has stopped answering.
    Down {
        /// What the last probe said.
        reason: String,
    },
    /// It answers, but must not be used.
    Refused {
        /// Why.
        reason: String,
    },
}

/// One store, as the plex sees it.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoreMark {
    pub(crate) health: Health,
    pub(crate) drained: bool,
    pub(crate) survey: Option<Survey>,
    /// Probes that have failed in a row.
    pub(crate) failures: u32,
    /// What the last one said, while there is one that has failed.
    pub(crate) last_error: Option<String>,
}

/// A file that does not follow the default rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exception {
    /// The store's name: numbers change when the configuration does.
    pub store: String,
    /// The stores that share the file's reads, `store` the first of them; none where it is not replicated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<ReadShare>,
    /// Why.
    pub reason: String,
    /// When it was made, milliseconds since 1970 UTC.
    pub since_unix_ms: u64,
    /// Who made it.
    #[serde(default)]
    pub by: By,
}

/// A store's share of a replicated file's reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadShare {
    /// The store's name.
    pub store: String,
    /// Its share relative to the other stores' shares.
    pub share: u32,
}

impl ReadShare {
    /// Whole numbers that add up to about this.
    const ALL: f64 = 1000.0;

    /// Stores with the shares that weights give them; a share is never 0.
    pub(crate) fn by_weight<'a>(stores: impl Iterator<Item = (&'a str, f64)> + Clone) -> Vec<Self> {
        let sum: f64 = stores.clone().map(|(_, weight)| weight).sum();
        let one = |(store, weight): (&str, f64)| {
            let part = if sum > 0.0 { weight / sum * Self::ALL } else { 1.0 };
            Self { store: store.to_owned(), share: (part.round() as u32).max(1) }
        };
        stores.map(one).collect()
    }

    /// The shares in words: `a 45 %, b 55 %`.
    pub(crate) fn in_words(shares: &[Self]) -> String {
        let sum: f64 = shares.iter().map(|of| f64::from(of.share)).sum();
        let one = |of: &Self| format!("{} {:.0} %", of.store, 100.0 * f64::from(of.share) / sum.max(1.0));
        shares.iter().map(one).collect::<Vec<_>>().join(", ")
    }
}

impl Exception {
    /// What the table is told of it; `None` while none of its stores is configured. What was kept may be anything: a
    /// store named twice counts once, and more stores than a table takes are left out.
    fn assignment(&self, handle: &[u8], number: impl Fn(&str) -> Option<StoreId>) -> Option<Assignment> {
        let mut replicas: Vec<Replica> = Vec::new();
        for of in &self.replicas {
            let Some(store) = number(&of.store) else { continue };
            if replicas.len() < REPLICAS_MAX && !replicas.iter().any(|known| known.store == store) {
                replicas.push(Replica { store, share: f64::from(of.share.clamp(1, SHARE_MAX)) });
            }
        }
        if replicas.is_empty() {
            return Some(Assignment::to_one(handle, number(&self.store)?));
        }
        Some(Assignment { handle: handle.into(), replicas })
    }
}

/// Who has assigned a file. The controller moves and gives back only what is its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// An operator.
    #[default]
    Operator,
    /// The controller.
    Controller,
}

impl By {
    /// In one word, as in JSON.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Controller => "controller",
        }
    }
}

/// What the plex wants.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) stores: Vec<StoreMark>,
    pub(crate) exceptions: BTreeMap<Box<[u8]>, Exception>,
    /// Files that could not be moved yet because they are pinned.
    pub(crate) waiting: usize,
    /// The table made of it last; what is in force differs from it by the files that wait.
    pub(crate) table: Option<Table>,
    /// Assignments that were refused because there were too many.
    pub(crate) refused: u64,
    /// Weights of the default rule, where the controller has changed them.
    pub(crate) weights: LearntWeights,
}

/// A plex's state, shared by its tasks.
pub(crate) struct State {
    pub(crate) config: Config,
    /// By store: where it serves NFS.
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) mounts: ArcSwap<MountService>,
    /// MNT calls that wait.
    pub(crate) mounting: Arc<Mounting>,
    pub(crate) shards: OnceLock<Vec<ShardHandle>>,
    pub(crate) wanted: Mutex<Wanted>,
    /// Held while a store is compared with those in use, so that two that come at once are compared with each other.
    pub(crate) admission: tokio::sync::Mutex<()>,
}

/// The store's number; a configuration cannot have as many stores as would not fit.
pub(crate) fn id(store: usize) -> StoreId {
    StoreId(u16::try_from(store).unwrap_or(u16::MAX))
}

impl State {
    pub(crate) fn wanted(&self) -> MutexGuard<'_, Wanted> {
        // Every change under this lock is one assignment: a panic elsewhere leaves nothing half done.
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The table that follows from what is wanted.
    pub(crate) fn table(&self, wanted: &Wanted) -> Result<Table, TableError> {
        let entries = wanted.stores.iter().zip(&self.config.stores).map(|(mark, store)| StoreEntry {
            name: store.name.clone(),
            weight: wanted.weights.of(store),
            state: match mark.health {
                _ if mark.drained => StoreState::Drained,
                Health::Up => StoreState::Up,
                Health::Down { .. } => StoreState::Down,
                // Nothing may go there, even when all others are down.
                Health::Unknown | Health::Refused { .. } => StoreState::Drained,
            },
        });
        // From the table before, so that numbers of versions rise, and the default rule is made anew only where it changes.
        let files_max = self.config.limits.exception_files_max;
        let table = match &wanted.table {
            Some(table) => table.with_stores(entries.collect())?,
            None => Table::new(self.config.routing.seed, entries.collect())?
                .with_exception_files_max(files_max)?,
        };
        let number = |name: &str| self.config.stores.iter().position(|store| store.name == name).map(id);
        let files = wanted.exceptions.iter().filter_map(|(handle, e)| e.assignment(handle, number));
        // Those of an earlier run may be more than are allowed now; the status says so.
        table.with_assignments(files.take(files_max))
    }

    /// Puts what is wanted in force. Files that are pinned stay until they are not.
    pub(crate) fn apply(&self, wanted: &mut Wanted) -> Result<(), TableError> {
        let table = self.table(wanted)?;
        wanted.waiting = self.shared.place(&table)?;
        wanted.table = Some(table);
        Ok(())
    }

    /// Tries again to move files that were pinned.
    pub(crate) fn settle(&self) {
        let mut wanted = self.wanted();
        if wanted.waiting == 0 {
            return;
        }
        let Some(table) = &wanted.table else { return };
        match self.shared.place(table) {
            Ok(waiting) => wanted.waiting = waiting,
            Err(error) => tracing::error!(%error, "cannot move files whose pins have gone"),
        }
    }

    /// The stores that are there, for questions of the router's own.
    pub(crate) fn stores_up(&self) -> Vec<usize> {
        let wanted = self.wanted();
        let up = wanted.stores.iter().enumerate().filter(|(_, mark)| mark.health == Health::Up);
        up.map(|(store, _)| store).collect()
    }

    /// Tells every shard that a store's calls go elsewhere now.
    pub(crate) fn tell_store_lost(&self, store: usize) {
        for shard in self.shards.get().into_iter().flatten() {
            shard.store_lost(id(store));
        }
    }

    /// Sets what follows from the surveys of the stores that are in use: transfer sizes, whether listings can go on
    /// elsewhere, the roots.
    pub(crate) fn use_surveys(&self, wanted: &Wanted) {
        let surveys: Vec<&Survey> = wanted
            .stores
            .iter()
            .filter(|mark| matches!(mark.health, Health::Up | Health::Down { .. }))
            .filter_map(|mark| mark.survey.as_ref())
            .collect();
        let Some(first) = surveys.first() else { return };
        let limit = u32::try_from(self.config.limits.transfer_bytes_max).unwrap_or(u32::MAX);
        let limit = if self.config.listen.udp { limit.min(DATAGRAM_TRANSFER_BYTES_MAX) } else { limit };
        for (mark, facts) in wanted.stores.iter().zip(&self.shared.stores) {
            let Some(survey) = &mark.survey else { continue };
            let transport_max = match facts.transport {
                clockwork_switch::Transport::Stream => u32::MAX,
                clockwork_switch::Transport::Datagram => DATAGRAM_TRANSFER_BYTES_MAX,
            };
            facts.read_bytes_max.store(survey.read_bytes_max.min(transport_max), Ordering::Relaxed);
            facts.write_bytes_max.store(survey.write_bytes_max.min(transport_max), Ordering::Relaxed);
        }
        let least = |size: fn(&Survey) -> u32, cap: u32| {
            surveys.iter().map(|s| size(s)).min().unwrap_or(cap).min(cap)
        };
        let store_cap = |size: &dyn Fn(&clockwork_switch::StoreFacts) -> u32| {
            self.shared.stores.iter().map(size).min().unwrap_or(limit).min(limit)
        };
        self.shared.set_transfer_sizes(TransferSizes {
            read_max: least(|s| s.read_bytes_max, store_cap(&|f| f.read_bytes_max.load(Ordering::Relaxed))),
            write_max: least(
                |s| s.write_bytes_max,
                store_cap(&|f| f.write_bytes_max.load(Ordering::Relaxed)),
            ),
            readdir: least(|s| s.readdir_bytes, limit),
        });
        self.shared.set_cookies_alike(
            surveys.iter().all(|survey| std::ptr::eq(*survey, *first) || cookies_alike(first, survey)),
        );
        let roots = (0..self.config.exports.len()).map(|export| {
            let flavors: Vec<&Vec<u32>> =
                surveys.iter().map(|survey| &survey.roots[export].flavors).collect();
            Some(Root { handle: first.roots[export].handle.clone(), flavors: common_flavors(&flavors) })
        });
        self.mounts.rcu(|service| service.with_roots(roots.clone().collect()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exception(replicas: &[(&str, u32)]) -> Exception {
        let share = |(store, share): &(&str, u32)| ReadShare { store: (*store).to_owned(), share: *share };
        Exception {
            store: "a".into(),
            replicas: replicas.iter().map(share).collect(),
            reason: String::new(),
            since_unix_ms: 1,
            by: By::Operator,
        }
    }

    fn number(name: &str) -> Option<StoreId> {
        ["a", "b", "c"].iter().position(|known| *known == name).map(id)
    }

    #[test]
    fn whatever_was_kept_makes_a_table() {
        let table = Table::new(1, ["a", "b", "c"].map(|name| StoreEntry::up(name, 1.0)).to_vec()).unwrap();
        let many: Vec<(&str, u32)> = (0..40).map(|n| (["a", "b", "c", "gone"][n % 4], 7)).collect();
        for (replicas, stores) in [
            (&[][..], &[0][..]),
            (&[("b", 0), ("a", u32::MAX)], &[1, 0]),
            (&[("gone", 1), ("c", 1)], &[2]),
            (&[("c", 1), ("c", 2), ("b", 1)], &[2, 1]),
            (&many, &[0, 1, 2]),
        ] {
            let assignment = exception(replicas).assignment(b"x", number).unwrap();
            let table = table.with_assignments([assignment.clone()]).unwrap();
            let found: Vec<u16> = assignment.replicas.iter().map(|replica| replica.store.0).collect();
            assert_eq!(found, stores, "{replicas:?}");
            assert_eq!(table.exceptions().len(), 1);
        }
        let gone = Exception { store: "gone".into(), ..exception(&[]) };
        assert_eq!(gone.assignment(b"x", number), None);
    }

    #[test]
    fn shares_follow_weights_and_old_exceptions_have_none() {
        let shares = ReadShare::by_weight([("a", 1.0), ("b", 1.2), ("c", 0.0)].into_iter());
        assert_eq!(shares.iter().map(|of| of.share).collect::<Vec<_>>(), [455, 545, 1]);
        assert_eq!(ReadShare::in_words(&shares), "a 45 %, b 54 %, c 0 %");
        let kept = r#"{"store":"a","reason":"why","since_unix_ms":7,"by":"controller"}"#;
        let old: Exception = serde_json::from_str(kept).unwrap();
        assert!(old.replicas.is_empty());
        assert_eq!(serde_json::to_string(&old).unwrap(), kept, "and is kept as it was");
        let new = exception(&[("a", 1), ("b", 2)]);
        assert_eq!(serde_json::from_str::<Exception>(&serde_json::to_string(&new).unwrap()).unwrap(), new);
    }
}
