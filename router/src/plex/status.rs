//! What the plex says of itself: stores, limits, counters, alarms.

use super::kept::unknown_stores;
use super::mounting::MOUNTS_WAITING_MAX;
use super::state::{By, Health, StoreMark, Wanted};
use super::{Plex, id};
use crate::config::Store;
use crate::heat::StoreTotals;
use crate::net::{NetCounters, PortCounters, ShardStatus, StoreInShard};
use crate::web::types::{self, ControlStatus, Counter, LimitFill, Status, StoreState, StoreStatus};
use clockwork_switch::Counters;
use std::sync::atomic::Ordering;

/// Replicated files in a status.
const REPLICATED_SHOWN_MAX: usize = 20;

/// Everything the shards say, added up.
#[derive(Debug, Default)]
pub(super) struct Sum {
    counters: Counters,
    ports: PortCounters,
    net: NetCounters,
    pending_calls: (usize, usize),
    held_bytes: (usize, usize),
    reply_bytes: (usize, usize),
    unfinished_bytes: (usize, usize),
    unfinished_bytes_full: u64,
    heat_files: (usize, u64),
    stores: Vec<StoreInShard>,
}

impl Sum {
    fn add(&mut self, shard: &ShardStatus) {
        self.counters.add(&shard.counters);
        let (ports, net) = (&shard.ports, &shard.net);
        self.ports.datagrams_too_large += ports.datagrams_too_large;
        self.ports.datagrams_dropped += ports.datagrams_dropped;
        self.ports.orphaned_replies += ports.orphaned_replies;
        self.ports.reply_bytes_full += ports.reply_bytes_full;
        self.net.accepted += net.accepted;
        self.net.turned_away += net.turned_away;
        self.net.framing_errors += net.framing_errors;
        self.net.unfinished_records += net.unfinished_records;
        self.net.links_lost += net.links_lost;
        self.net.link_failures += net.link_failures;
        self.pending_calls.0 += shard.pending_calls.0;
        self.pending_calls.1 += shard.pending_calls.1;
        self.held_bytes.0 += shard.held_bytes.0;
        self.held_bytes.1 += shard.held_bytes.1;
        self.reply_bytes.0 += shard.reply_bytes.0;
        self.reply_bytes.1 += shard.reply_bytes.1;
        self.unfinished_bytes.0 += shard.unfinished_bytes.0;
        self.unfinished_bytes.1 += shard.unfinished_bytes.1;
        self.unfinished_bytes_full += shard.unfinished_bytes_full;
        self.heat_files.0 += shard.heat_files.0;
        self.heat_files.1 += shard.heat_files.1;
        self.stores.resize_with(shard.stores.len().max(self.stores.len()), StoreInShard::default);
        for (sum, store) in self.stores.iter_mut().zip(&shard.stores) {
            sum.in_flight += store.in_flight;
            sum.held += store.held;
            sum.connections += store.connections;
            let StoreTotals { requests, failed, answered_in_period, sum_us_in_period } = store.totals;
            sum.totals.requests += requests;
            sum.totals.failed += failed;
            sum.totals.answered_in_period += answered_in_period;
            sum.totals.sum_us_in_period += sum_us_in_period;
        }
    }

    /// Calls in flight at a store.
    pub(super) fn in_flight(&self, store: usize) -> u64 {
        self.stores.get(store).map_or(0, |store| u64::from(store.in_flight))
    }
}

/// A store's state in one word, and why it is not up.
pub(super) fn store_state(mark: &StoreMark, store: &Store) -> (StoreState, Option<String>) {
    let trouble = match &mark.health {
        Health::Up => None,
        Health::Unknown => Some((
            StoreState::Down,
            match &mark.last_error {
                Some(error) => format!("it has not been let in yet: {error}"),
                None => "it has not answered yet".to_owned(),
            },
        )),
        Health::Down { reason } => {
            Some((StoreState::Down, mark.last_error.clone().unwrap_or_else(|| reason.clone())))
        }
        Health::Refused { reason } => Some((StoreState::Refused, reason.clone())),
    };
    let out = if mark.drained {
        "taken out by the operator"
    } else if store.weight == 0.0 {
        "its weight is 0"
    } else {
        return match trouble {
            Some((state, reason)) => (state, Some(reason)),
            None => (StoreState::Up, None),
        };
    };
    match trouble {
        // What is refused must be seen, whatever else it is.
        Some((StoreState::Refused, reason)) => (StoreState::Refused, Some(reason)),
        Some((_, reason)) => (StoreState::Drained, Some(format!("{out}; besides: {reason}"))),
        None => (StoreState::Drained, Some(out.to_owned())),
    }
}

impl Plex {
    /// What the shards say, added up.
    pub(super) async fn sum(&self) -> Sum {
        let mut sum = Sum::default();
        for shard in self.shards().await {
            sum.add(&shard);
        }
        sum
    }

    /// Everything.
    pub(super) async fn whole_status(&self) -> Status {
        let sum = self.sum().await;
        let (since, at) = self.started;
        let history = self.measured.history().cloned();
        // Waits while a period is being written.
        let fill = tokio::task::spawn_blocking(move || history.map(|h| (h.len(), h.live_bytes()))).await;
        let history = fill.unwrap_or_default();
        let wanted = self.state.wanted();
        Status {
            version: env!("CARGO_PKG_VERSION").into(),
            started_unix_seconds: super::periods::unix_ms(since) / 1000,
            uptime_seconds: at.elapsed().as_secs(),
            listen: self.addresses.iter().map(ToString::to_string).collect(),
            table_version: self.state.shared.table.load().version(),
            stores: self.store_statuses(&sum, &wanted),
            limits: self.limits(&sum, &wanted, history),
            counters: self.counters(&sum),
            alarms: self.alarms(&wanted),
            control: self.control_status(&wanted),
            replicated: self.replicated(&wanted),
        }
    }

    /// Files whose reads several stores share, some of them where there are many.
    fn replicated(&self, wanted: &Wanted) -> Vec<types::Exception> {
        let table = self.state.shared.table.load();
        let files = wanted.exceptions.iter().filter(|(_, exception)| exception.replicas.len() > 1);
        files.take(REPLICATED_SHOWN_MAX).map(|(handle, file)| self.shown(&table, handle, file)).collect()
    }

    fn control_status(&self, wanted: &Wanted) -> ControlStatus {
        let control = self.control.state();
        let own = wanted.exceptions.values().filter(|exception| exception.by == By::Controller);
        ControlStatus {
            mode: control.mode,
            objective_ms: control.objective_ms,
            confidence: control.confidence,
            objective_met: control.objective_met,
            objective_reachable: control.last.as_ref().and_then(|last| last.objective_reachable),
            periods_observed: control.periods_observed,
            files_moved: count(own.count()),
            weights: self.state.config.control.weights.word().into(),
            weights_learnt: wanted.weights.are_learnt(),
            moved_last: control
                .last
                .as_ref()
                .filter(|last| last.applied)
                .map_or(0, |last| count(last.moves.len())),
        }
    }

    fn store_statuses(&self, sum: &Sum, wanted: &Wanted) -> Vec<StoreStatus> {
        let config = &self.state.config;
        let shards = u64::try_from(config.shards().get()).unwrap_or(u64::MAX);
        let one = |(number, (store, mark)): (usize, (&Store, &StoreMark))| {
            let facts = &self.state.shared.stores[number];
            let seen = sum.stores.get(number).copied().unwrap_or_default();
            let (state, reason) = store_state(mark, store);
            let answered = seen.totals.answered_in_period;
            StoreStatus {
                name: store.name.clone(),
                address: store.address.to_string(),
                state,
                reason,
                weight: wanted.weights.of(store),
                configured_weight: store.weight,
                epoch: facts.epoch(),
                connections: count(seen.connections),
                in_flight: u64::from(seen.in_flight),
                calls_max: u64::from(facts.calls_max) * shards,
                waiting: count(seen.held),
                requests: seen.totals.requests,
                failed: seen.totals.failed,
                mean_response_ms: (answered > 0)
                    .then(|| seen.totals.sum_us_in_period as f64 / answered as f64 / 1000.0),
            }
        };
        config.stores.iter().zip(&wanted.stores).enumerate().map(one).collect()
    }

    fn limits(&self, sum: &Sum, wanted: &Wanted, history: Option<(usize, u64)>) -> Vec<LimitFill> {
        let config = &self.state.config;
        let (limits, shared) = (&config.limits, &self.state.shared);
        let service = self.state.mounts.load();
        let (names, evicted) = self.measured.names();
        let fill = |name: &'static str, used: usize, max: usize, reached: u64| LimitFill {
            name: name.into(),
            used: count(used),
            max: count(max),
            reached,
        };
        let connections = self.connections.load(Ordering::Relaxed);
        let (mounts_waiting, mounts_refused) = self.state.mounting.counts();
        let mut all = vec![
            fill(
                "pending_calls_max",
                sum.pending_calls.0,
                sum.pending_calls.1,
                sum.counters.turned_away_full,
            ),
            fill("held_bytes_max", sum.held_bytes.0, sum.held_bytes.1, sum.counters.turned_away_held),
            fill("reply_bytes_max", sum.reply_bytes.0, sum.reply_bytes.1, sum.ports.reply_bytes_full),
            fill(
                "unfinished_bytes_max",
                sum.unfinished_bytes.0,
                sum.unfinished_bytes.1,
                sum.unfinished_bytes_full,
            ),
            fill("connections_max", connections, limits.connections_max, sum.net.turned_away),
            fill("exception_files_max", wanted.exceptions.len(), limits.exception_files_max, wanted.refused),
            fill(
                "duplicate_bytes_max",
                shared.duplicates.bytes(),
                limits.duplicate_bytes_max,
                shared.duplicates.evicted_early(),
            ),
            fill("pins_max", shared.pins.len(), limits.pins_max, shared.pins.refused()),
            fill(
                "listing_verifiers_max",
                shared.listings.verifiers(),
                limits.listing_verifiers_max,
                shared.listings.expired(),
            ),
            fill("heat_files_max", sum.heat_files.0, limits.heat_files_max, sum.heat_files.1),
            fill("names_max", names, limits.names_max, evicted),
            fill("mounts_waiting_max", mounts_waiting, MOUNTS_WAITING_MAX, mounts_refused),
            fill("mounts_max", service.mounts().len(), limits.mounts_max, service.mounts().forgotten()),
        ];
        if let Some((periods, bytes)) = history {
            let dropped = self.measured.kept().dropped;
            all.push(fill("history.periods_max", periods, config.history.periods_max, dropped));
            let max = config.history.bytes_max;
            all.push(LimitFill { name: "history.bytes_max".into(), used: bytes, max, reached: dropped });
        }
        all
    }

    fn counters(&self, sum: &Sum) -> Vec<Counter> {
        let one = |name: &'static str, help: &'static str, value| Counter {
            name: name.into(),
            help: help.into(),
            label: None,
            value,
        };
        let mut all: Vec<Counter> =
            sum.counters.each().map(|(name, help, value)| one(name, help, value)).collect();
        let (net, ports, portmap) = (&sum.net, &sum.ports, &self.portmap);
        let load = |value: &std::sync::atomic::AtomicU64| value.load(Ordering::Relaxed);
        all.extend([
            one("connections_accepted", "Client connections accepted.", net.accepted),
            one(
                "connections_turned_away",
                "Client connections closed because of connections_max.",
                net.turned_away,
            ),
            one(
                "framing_errors",
                "Client connections closed because their bytes were no records.",
                net.framing_errors,
            ),
            one(
                "unfinished_records",
                "Client connections closed because the rest of a record did not come.",
                net.unfinished_records,
            ),
            one("links_lost", "Connections to stores that were lost.", net.links_lost),
            one("link_failures", "Attempts to connect to a store that failed.", net.link_failures),
            one(
                "datagrams_too_large",
                "Replies dropped because no datagram holds them.",
                ports.datagrams_too_large,
            ),
            one(
                "datagrams_dropped",
                "Replies that the UDP socket did not take; the client sends its call again.",
                ports.datagrams_dropped,
            ),
            one("orphaned_replies", "Replies for connections that have gone.", ports.orphaned_replies),
            one(
                "duplicate_waiters_refused",
                "Repeats absorbed whose connection gets no reply, because too many wait for it.",
                self.state.shared.duplicates.waiters_refused(),
            ),
            one(
                "history_failures",
                "Periods that could not be kept in the history.",
                self.measured.kept().failed,
            ),
        ]);
        if self.state.config.listen.portmapper.is_some() {
            all.extend([
                one("portmap_answered", "Calls that the portmapper answered.", load(&portmap.answered)),
                one("portmap_refused", "Calls that the portmapper does not serve.", load(&portmap.refused)),
                one(
                    "portmap_dropped",
                    "Messages to the portmapper that were not answered.",
                    load(&portmap.dropped),
                ),
                one(
                    "portmap_turned_away",
                    "Portmapper connections closed as too many.",
                    load(&portmap.turned_away),
                ),
            ]);
        }
        all
    }

    fn alarms(&self, wanted: &Wanted) -> Vec<String> {
        let config = &self.state.config;
        let mut alarms = Vec::new();
        let table = self.state.shared.table.load();
        if !wanted.stores.iter().any(|mark| mark.health == Health::Up) {
            alarms.push(
                "no store answers: calls wait until one does; see the reasons of the stores".to_owned(),
            );
        } else if !(0..config.stores.len()).any(|store| table.serves(id(store))) {
            alarms
                .push("no store is in service: clients are told to try again later; undrain one".to_owned());
        }
        for (mark, store) in wanted.stores.iter().zip(&config.stores) {
            let (state, reason) = store_state(mark, store);
            let name = &store.name;
            let reason = reason.unwrap_or_default();
            match state {
                StoreState::Up | StoreState::Drained => {}
                StoreState::Down => alarms.push(format!("store {name} is down: {reason}")),
                StoreState::Refused => alarms.push(format!("store {name} is refused: {reason}")),
            }
        }
        alarms.extend(unknown_stores(config, &wanted.exceptions));
        let (files, max) = (wanted.exceptions.len(), config.limits.exception_files_max);
        if files > max {
            alarms.push(format!(
                "{files} files are assigned, but limits.exception_files_max is {max}: the rest follow the default rule"
            ));
        }
        if let Some(error) = self.keeper.unsaved() {
            alarms.push(format!(
                "assignments, drained stores and weights would not outlive a restart: {error}"
            ));
        }
        if let Some(trouble) = self.control.state().trouble {
            alarms.push(format!("control: {trouble}"));
        }
        if let Some(error) = self.measured.kept().last_error {
            alarms.push(format!("the last period could not be kept in the history: {error}"));
        }
        alarms.extend(self.start_alarms.iter().cloned());
        alarms
    }
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_of_the_switch_has_a_sentence() {
        for (name, help, _) in Counters::default().each() {
            let text = help;
            assert!(text.ends_with('.') && text.len() > 15, "{name}: {help}");
        }
    }

    #[test]
    fn a_stores_state_says_the_worst_and_why() {
        let address = crate::config::StoreAddress::parse("127.0.0.1:1").unwrap();
        let mut store = Store::new("a", address);
        let mut mark = StoreMark::default();
        assert_eq!(store_state(&mark, &store).0, StoreState::Down);
        mark.health = Health::Up;
        assert_eq!(store_state(&mark, &store), (StoreState::Up, None));
        store.weight = 0.0;
        assert_eq!(store_state(&mark, &store), (StoreState::Drained, Some("its weight is 0".into())));
        mark.drained = true;
        mark.health = Health::Down { reason: "silent".into() };
        let (state, reason) = store_state(&mark, &store);
        assert_eq!(state, StoreState::Drained);
        assert!(reason.is_some_and(|reason| reason.contains("operator") && reason.contains("silent")));
        mark.health = Health::Refused { reason: "other handles".into() };
        assert_eq!(store_state(&mark, &store), (StoreState::Refused, Some("other handles".into())));
    }
}
