//! What no field shows alone: fields that contradict each other, or leave nothing to serve.
use std::collections::HashMap;
use std::hash::Hash;
use std::net::SocketAddr;
use std::ops::Range;

use clockwork_placement::STORES_MAX;

use super::fault::{Collector, Problem};
use super::read::Places;
use super::{Config, canonical_ip};

/// Bytes of a record beside the data of a READ reply or WRITE call: headers, credential, attributes. Fewer than this
/// (RFC 5531 allows 400 bytes each of credential and verifier; a handle has 64, attributes 84).
const RECORD_OVERHEAD_BYTES: usize = 4_096;

/// Notes every contradiction.
pub(super) fn cross(config: &Config, places: &Places, faults: &mut Collector<'_>) {
    listeners(config, places, faults);
    stores(config, places, faults);
    exports(config, places, faults);
    super::control::cross(&config.control, &config.history, &places.control, faults);
    if config.limits.record_bytes_max < config.limits.transfer_bytes_max + RECORD_OVERHEAD_BYTES {
        let what = format!(
            "a record of {} bytes cannot carry a transfer of {} bytes",
            config.limits.record_bytes_max, config.limits.transfer_bytes_max
        );
        let least = config.limits.transfer_bytes_max + RECORD_OVERHEAD_BYTES;
        let advice = format!("raise it to {least}, or lower limits.transfer_bytes_max");
        faults.add(
            places.record_bytes_max.clone(),
            "limits.record_bytes_max",
            Problem::Conflict { what, advice },
        );
    }
    if config.health.timeout > config.health.interval {
        let what = format!(
            "a probe may take {} s, but the next one starts after {} s",
            config.health.timeout.as_secs_f64(),
            config.health.interval.as_secs_f64()
        );
        let advice = "lower it, or raise health.interval_seconds".to_owned();
        faults.add(
            places.health_timeout.clone(),
            "health.timeout_seconds",
            Problem::Conflict { what, advice },
        );
    }
}

fn listeners(config: &Config, places: &Places, faults: &mut Collector<'_>) {
    if !config.listen.tcp && !config.listen.udp {
        let what = "tcp and udp are both off, so no client could reach the plex".to_owned();
        let advice = "switch one of them on".to_owned();
        faults.add(places.udp.clone(), "listen.udp", Problem::Conflict { what, advice });
    }
    let nfs = config.listen.addresses.iter().zip(&places.addresses).map(|(a, at)| ("listen.address", *a, at));
    let portmapper = config.listen.portmapper.map(|a| ("listen.portmapper", a, &places.portmapper));
    let admin = config.admin.listen.map(|a| ("admin.listen", a, &places.admin));
    let mut taken: Vec<(SocketAddr, &str, usize)> = Vec::new();
    for (field, address, at) in nfs.chain(portmapper).chain(admin) {
        let clash = taken.iter().find(|(other, _, _)| same_socket(*other, address));
        if let Some((other, other_field, line)) = clash {
            let what = format!("{address} is taken by {other} of {other_field} in line {line}");
            let advice = "choose another port or address".to_owned();
            faults.add(at.clone(), field, Problem::Conflict { what, advice });
        }
        taken.push((address, field, faults.line_of(at)));
    }
    let remote = config.admin.listen.filter(|address| !canonical_ip(address.ip()).is_loopback());
    if let Some(address) = remote.filter(|_| !config.admin.allow_remote) {
        let what =
            format!("{address} can be reached from other machines, and the admin interface has no passwords");
        let advice =
            "use 127.0.0.1 or ::1, or set admin.allow_remote = true if something else guards it".to_owned();
        faults.add(places.admin.clone(), "admin.listen", Problem::Conflict { what, advice });
    }
}

/// Whether two sockets cannot be bound at once: `[::]` takes IPv4 as well.
fn same_socket(one: SocketAddr, other: SocketAddr) -> bool {
    let (a, b) = (canonical_ip(one.ip()), canonical_ip(other.ip()));
    let everything = |ip: std::net::IpAddr| ip.is_ipv6() && ip.is_unspecified();
    let family_wide = a.is_ipv4() == b.is_ipv4() && (a.is_unspecified() || b.is_unspecified());
    one.port() != 0 && one.port() == other.port() && (a == b || family_wide || everything(a) || everything(b))
}

fn stores(config: &Config, places: &Places, faults: &mut Collector<'_>) {
    if config.stores.is_empty() {
        let allowed = "at least one [[store]] with name and address".to_owned();
        faults.add(0..0, "store", Problem::Missing { allowed });
        return;
    }
    if let Some(first) = places.stores.get(STORES_MAX) {
        let what = format!("{} stores are too many", config.stores.len());
        let advice = format!("at most {STORES_MAX} are possible");
        faults.add(first.name.clone(), format!("{}.name", first.path), Problem::Conflict { what, advice });
    }
    let names = config.stores.iter().zip(&places.stores).filter(|(store, _)| !store.name.is_empty());
    let names = names.map(|(store, at)| (&store.name, &at.name, format!("{}.name", at.path)));
    twice(names, "every store needs its own name", faults);
    let addresses = config.stores.iter().zip(&places.stores).filter(|(store, _)| store.address.port() != 0);
    let addresses =
        addresses.map(|(store, at)| (&store.address, &at.address, format!("{}.address", at.path)));
    twice(addresses, "one server is one store; give it a higher weight instead", faults);
    if config.stores.iter().all(|store| store.weight == 0.0) {
        let what = "every store has weight 0, so no file would have a store".to_owned();
        let advice = "give at least one store a weight above 0".to_owned();
        let first = places.stores.first();
        let at = first.map_or(0..0, |store| store.weight.clone());
        let field = first.map_or_else(String::new, |store| format!("{}.weight", store.path));
        faults.add(at, field, Problem::Conflict { what, advice });
    }
    if config.exports.len() > 1 {
        for (store, at) in
            config.stores.iter().zip(&places.stores).filter(|(store, _)| store.export.is_some())
        {
            let own = store.export.as_ref().map_or("", |path| path.as_str());
            let what = format!("{own} cannot stand for all {} exports", config.exports.len());
            let advice =
                "leave it out; each export is then mounted at the store under its own path".to_owned();
            faults.add(at.export.clone(), format!("{}.export", at.path), Problem::Conflict { what, advice });
        }
    }
}

fn exports(config: &Config, places: &Places, faults: &mut Collector<'_>) {
    if config.exports.is_empty() {
        let allowed = "at least one [[export]] with path and clients".to_owned();
        faults.add(0..0, "export", Problem::Missing { allowed });
    }
    let paths = config.exports.iter().zip(&places.exports);
    let paths = paths.map(|(export, at)| (&export.path, &at.path, format!("{}.path", at.table)));
    twice(paths, "list all clients in one [[export]]", faults);
}

/// Notes every value that is there a second time.
fn twice<'v, T: Eq + Hash + std::fmt::Display + 'v>(
    values: impl Iterator<Item = (&'v T, &'v Range<usize>, String)>,
    advice: &str,
    faults: &mut Collector<'_>,
) {
    let mut seen: HashMap<&T, usize> = HashMap::new();
    for (value, at, field) in values {
        if let Some(line) = seen.get(value) {
            let what = format!("{value} is already in line {line}");
            faults.add(at.clone(), field, Problem::Conflict { what, advice: advice.to_owned() });
        } else {
            seen.insert(value, faults.line_of(at));
        }
    }
}
