//! The configuration as the parts of the router want it.
use clockwork_placement::{StoreEntry, StoreState};
use clockwork_switch::duplicates::DuplicateLimits;
use clockwork_switch::pins::PinLimits;
use clockwork_wire::record::RecordLimits;

use super::{Config, Limits};

impl Config {
    /// The stores for a routing table, in order, all up but those of weight 0.
    #[must_use]
    pub fn store_entries(&self) -> Vec<StoreEntry> {
        let entry = |store: &super::Store| {
            let state = if store.weight > 0.0 { StoreState::Up } else { StoreState::Drained };
            StoreEntry { name: store.name.clone(), weight: store.weight, state }
        };
        self.stores.iter().map(entry).collect()
    }

    /// What a change from this configuration to `next` needs a restart for, as sections of the file; stores, exports,
    /// health and log can change while clients go on working.
    #[must_use]
    pub fn sections_for_restart(&self, next: &Self) -> Vec<&'static str> {
        let changed = [
            ("listen", self.listen != next.listen),
            ("admin", self.admin != next.admin),
            ("routing", self.routing != next.routing),
            ("limits", self.limits != next.limits),
            ("heat", self.heat != next.heat),
            ("history", self.history != next.history),
            ("control", self.control != next.control),
        ];
        changed.into_iter().filter_map(|(section, changed)| changed.then_some(section)).collect()
    }
}

impl Limits {
    /// Limits of one RPC record.
    #[must_use]
    pub fn record(&self) -> RecordLimits {
        RecordLimits {
            record_bytes_max: word(self.record_bytes_max),
            fragments_max: word(self.fragments_max),
        }
    }

    /// Limits of the replies kept for retransmissions.
    #[must_use]
    pub fn duplicates(&self) -> DuplicateLimits {
        DuplicateLimits {
            bytes_max: self.duplicate_bytes_max,
            age_min: self.duplicate_age,
            ..DuplicateLimits::default()
        }
    }

    /// Limits of the files with unstable writes outstanding.
    #[must_use]
    pub fn pins(&self) -> PinLimits {
        PinLimits { pins_max: self.pins_max, age_max: self.pin_age }
    }
}

/// A number that the ranges of the file keep within 32 bits.
fn word(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clockwork_placement::Table;

    use super::*;

    fn with(weights: &[&str], rest: &str) -> Config {
        let store = |(n, w): (usize, &&str)| {
            format!("[[store]]\nname = \"s{n}\"\naddress = \"10.0.0.{n}:1\"\nweight = {w}\n")
        };
        let stores: String = weights.iter().enumerate().map(store).collect();
        let text = format!("{stores}[[export]]\npath = \"/e\"\nclients = \"::1\"\n{rest}");
        Config::parse(&text, Path::new("plex.toml")).unwrap()
    }

    #[test]
    fn a13_every_weight_that_is_accepted_makes_a_table_and_weight_0_is_drained() {
        let config = with(&["0", "0.001", "1e6"], "");
        let entries = config.store_entries();
        assert_eq!(entries[0].state, StoreState::Drained);
        let table = Table::new(config.routing.seed, entries).unwrap();
        let routed: Vec<_> = (0..1_000_u32)
            .filter_map(|n| table.route(&n.to_be_bytes(), table.hash(&n.to_be_bytes())))
            .collect();
        assert_eq!(routed.len(), 1_000);
        assert!(routed.iter().all(|store| store.0 != 0), "a drained store was given files");
    }

    #[test]
    fn the_parts_get_what_the_file_says() {
        let config = with(
            &["1"],
            "[limits]\nrecord_bytes_max = 2_000_000\nfragments_max = 99\nduplicate_bytes_max = 2_000_000\n\
             duplicate_age_seconds = 300\npins_max = 77\npin_age_seconds = 5\n",
        );
        let record = config.limits.record();
        assert_eq!((record.record_bytes_max, record.fragments_max), (2_000_000, 99));
        let duplicates = config.limits.duplicates();
        assert_eq!((duplicates.bytes_max, duplicates.age_min.as_secs()), (2_000_000, 300));
        let pins = config.limits.pins();
        assert_eq!((pins.pins_max, pins.age_max.as_secs()), (77, 5));
        assert_eq!(with(&["1"], "").limits.record(), RecordLimits::default());
    }

    #[test]
    fn a_reload_names_the_sections_that_need_a_restart() {
        let before = with(&["1", "1"], "");
        assert!(before.sections_for_restart(&with(&["0", "1"], "[log]\nfilter = \"debug\"\n")).is_empty());
        let after = with(&["1"], "[routing]\nseed = 1\n[listen]\nudp = false\n");
        assert_eq!(before.sections_for_restart(&after), ["listen", "routing"]);
    }
}
