//! From the text of a file to a [`Config`], section by section.
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use toml::de::DeTable;

use super::fault::{Collector, Fault, Problem};
use super::section::{Placed, Section};
use super::values::{self, ExportPath, StoreAddress};
use super::{
    Admin, Config, DuplicateCache, Export, Health, Heat, History, Limits, Listen, Log, Routing, Store,
    Transport, check, control,
};

const ADDRESS: &str = "\"ADDRESS:PORT\" with a numeric address, such as \"0.0.0.0:2049\" or \"[::]:2049\"";
const HOST: &str = "\"HOST:PORT\", such as \"10.0.0.11:2049\" or \"nas1.example.org:2049\"";
const PATH: &str = "an absolute path without . and .., at most 1024 bytes, such as \"/export\"";
const CLIENTS: &str =
    "networks without bits beyond the prefix, or addresses, such as \"10.0.0.0/8\" or \"::1\"";
const NAME: &str = "at most 63 letters, digits, dots, dashes and underscores, first a letter or digit";
const FILTER: &str = "a level (error, warn, info, debug, trace, off), or levels by module such as \"info,clockwork_router=debug\"";

/// Where the fields of a store stand that cross checks name.
pub(super) struct StorePlaces {
    pub(super) name: Range<usize>,
    pub(super) address: Range<usize>,
    pub(super) weight: Range<usize>,
    pub(super) export: Range<usize>,
    /// Path of the table, for instance `store[fast]`.
    pub(super) path: String,
}

/// Where the fields of an export stand that cross checks name.
pub(super) struct ExportPlaces {
    pub(super) path: Range<usize>,
    /// Path of the table, for instance `export[/export]`.
    pub(super) table: String,
}

/// Where everything stands that cross checks name.
pub(super) struct Places {
    pub(super) stores: Vec<StorePlaces>,
    pub(super) exports: Vec<ExportPlaces>,
    pub(super) addresses: Vec<Range<usize>>,
    pub(super) portmapper: Range<usize>,
    pub(super) udp: Range<usize>,
    pub(super) admin: Range<usize>,
    pub(super) record_bytes_max: Range<usize>,
    pub(super) health_timeout: Range<usize>,
    pub(super) control: control::ControlPlaces,
}

/// Reads and checks a whole file.
pub(super) fn config(text: &str, file: &Path) -> Result<Config, Vec<Fault>> {
    let mut faults = Collector::new(text);
    let (document, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        // What the parser recovered would only give faults that follow from these.
        for error in errors {
            let at = error.span().unwrap_or(0..0);
            faults.add(at, "", Problem::Syntax { what: error.message().to_owned() });
        }
        return Err(faults.into_faults());
    }
    let mut root = Section::root(document.get_ref());
    let (config, places) = sections(&mut root, &mut faults, file);
    root.finish(&mut faults);
    check::cross(&config, &places, &mut faults);
    let faults = faults.into_faults();
    if faults.is_empty() { Ok(config) } else { Err(faults) }
}

fn sections(root: &mut Section<'_>, faults: &mut Collector<'_>, file: &Path) -> (Config, Places) {
    let (listen, addresses, portmapper, udp) = listen(root.section(faults, "listen"), faults);
    let (admin, admin_at) = admin(root.section(faults, "admin"), faults);
    let read = root.sections(faults, "store", "name").into_iter().map(|section| store(section, faults));
    let (stores, store_places) = read.unzip();
    let read = root.sections(faults, "export", "path").into_iter().map(|section| export(section, faults));
    let (exports, export_places) = read.unzip();
    let routing = routing(root.section(faults, "routing"), faults);
    let (limits, record_bytes_max) = limits(root.section(faults, "limits"), faults);
    let (health, health_timeout) = health(root.section(faults, "health"), faults);
    let heat = heat(root.section(faults, "heat"), faults);
    let history = history(root.section(faults, "history"), faults, file);
    let (control, control_places) = control::read(root.section(faults, "control"), faults, &history);
    let log = log(root.section(faults, "log"), faults);
    let config =
        Config { listen, admin, stores, exports, routing, limits, health, heat, history, control, log };
    let places = Places {
        stores: store_places,
        exports: export_places,
        addresses,
        portmapper,
        udp,
        admin: admin_at,
        record_bytes_max,
        health_timeout,
        control: control_places,
    };
    (config, places)
}

type ListenPlaces = (Listen, Vec<Range<usize>>, Range<usize>, Range<usize>);

fn listen(mut section: Section<'_>, faults: &mut Collector<'_>) -> ListenPlaces {
    let default = Listen::default();
    let read = section.list(faults, "address", ADDRESS, |text| text.parse::<SocketAddr>().ok());
    let (addresses, places) = match read {
        Some(list) => list.value.into_iter().map(|placed| (placed.value, placed.at)).unzip(),
        None => (default.addresses, vec![section.at()]),
    };
    let tcp = section.boolean(faults, "tcp", default.tcp);
    let udp = section.boolean(faults, "udp", default.udp);
    let allowed = format!("\"off\", or {ADDRESS}");
    let portmapper = section.parsed(faults, "portmapper", &allowed, address_or_off);
    let portmapper = portmapper.unwrap_or(Placed { value: default.portmapper, at: section.at() });
    let fixed = section.has("shards");
    let shards = section.amount(faults, "shards", 1, 1..=1_024).value;
    let shards = NonZeroUsize::new(shards).filter(|_| fixed);
    section.finish(faults);
    let listen = Listen { addresses, tcp: tcp.value, udp: udp.value, portmapper: portmapper.value, shards };
    (listen, places, portmapper.at, udp.at)
}

fn admin(mut section: Section<'_>, faults: &mut Collector<'_>) -> (Admin, Range<usize>) {
    let default = Admin::default();
    let allowed = format!("\"off\", or {ADDRESS}");
    let listen = section.parsed(faults, "listen", &allowed, address_or_off);
    let listen = listen.unwrap_or(Placed { value: default.listen, at: section.at() });
    let allow_remote = section.boolean(faults, "allow_remote", default.allow_remote).value;
    section.finish(faults);
    (Admin { listen: listen.value, allow_remote }, listen.at)
}

fn store(mut section: Section<'_>, faults: &mut Collector<'_>) -> (Store, StorePlaces) {
    let name = section.required(faults, "name", NAME, values::store_name);
    let address = section.required(faults, "address", HOST, StoreAddress::parse);
    let (path, table) = (section.field(""), section.at());
    let place = |placed: Option<Range<usize>>| placed.unwrap_or_else(|| table.clone());
    let (name_at, address_at) =
        (place(name.as_ref().map(|p| p.at.clone())), place(address.as_ref().map(|p| p.at.clone())));
    // A store without an address is never used: the fault is noted already.
    let unread = || StoreAddress::from(SocketAddr::from(([0, 0, 0, 0], 0)));
    let default = Store::new(
        name.map_or_else(String::new, |placed| placed.value),
        address.map_or_else(unread, |placed| placed.value),
    );

    let mount_port = section.integer(faults, "mount_port", u64::from(default.mount_port), 1..=65_535);
    let transport = section.parsed(faults, "transport", "\"tcp\" or \"udp\"", |text| match text {
        "tcp" => Some(Transport::Tcp),
        "udp" => Some(Transport::Udp),
        _ => None,
    });
    let allowed = "0 (drained: no files), or a number from 0.001 to 1000000";
    let accept = |weight: f64| weight == 0.0 || (0.001..=1e6).contains(&weight);
    let weight = section.number(faults, "weight", default.weight, allowed, accept);
    let export = section.parsed(faults, "export", PATH, ExportPath::parse);
    let connections = section.amount(faults, "connections_per_core", default.connections_per_core, 1..=16);
    let calls_max = section.amount(faults, "calls_max", default.calls_max, 1..=65_536);
    let cache = section.parsed(faults, "duplicate_cache", "\"address\" or \"none\"", |text| match text {
        "address" => Some(DuplicateCache::Address),
        "none" => Some(DuplicateCache::None),
        _ => None,
    });
    let privileged_port = section.boolean(faults, "privileged_port", default.privileged_port).value;
    let places = StorePlaces {
        name: name_at,
        address: address_at,
        weight: weight.at,
        export: place(export.as_ref().map(|placed| placed.at.clone())),
        path: path.trim_end_matches('.').to_owned(),
    };
    section.finish(faults);
    let store = Store {
        mount_port: u16::try_from(mount_port.value).unwrap_or(default.mount_port),
        transport: transport.map_or(default.transport, |placed| placed.value),
        weight: weight.value,
        export: export.map(|placed| placed.value),
        connections_per_core: connections.value,
        calls_max: calls_max.value,
        duplicate_cache: cache.map_or(default.duplicate_cache, |placed| placed.value),
        privileged_port,
        ..default
    };
    (store, places)
}

fn export(mut section: Section<'_>, faults: &mut Collector<'_>) -> (Export, ExportPlaces) {
    let table = section.field("").trim_end_matches('.').to_owned();
    let path = section.required(faults, "path", PATH, ExportPath::parse);
    let clients = section.list(faults, "clients", CLIENTS, values::client_net);
    if clients.is_none() {
        section.missing(faults, "clients", CLIENTS);
    }
    let path_at = path.as_ref().map_or_else(|| section.at(), |placed| placed.at.clone());
    let places = ExportPlaces { path: path_at, table };
    let secure = section.boolean(faults, "secure", true).value;
    section.finish(faults);
    // An export without a path is never used: the fault is noted already.
    let clients = clients.into_iter().flat_map(|list| list.value);
    let clients: Vec<IpNet> = clients.map(|placed| placed.value).collect();
    let path = path.map_or_else(ExportPath::root, |placed| placed.value);
    (Export { path, clients, secure }, places)
}

fn routing(mut section: Section<'_>, faults: &mut Collector<'_>) -> Routing {
    let seed = section.integer(faults, "seed", Routing::default().seed, 0..=i64::MAX.unsigned_abs()).value;
    section.finish(faults);
    Routing { seed }
}

fn limits(mut section: Section<'_>, faults: &mut Collector<'_>) -> (Limits, Range<usize>) {
    let default = Limits::default();
    let record_bytes =
        section.amount(faults, "record_bytes_max", default.record_bytes_max, 16_384..=16 << 20);
    let mut most = |name, default, range| section.amount(faults, name, default, range).value;
    let mut limits = Limits {
        record_bytes_max: record_bytes.value,
        fragments_max: most("fragments_max", default.fragments_max, 16..=65_536),
        pending_calls_max: most("pending_calls_max", default.pending_calls_max, 64..=1 << 24),
        client_calls_max: most("client_calls_max", default.client_calls_max, 1..=65_536),
        connections_max: most("connections_max", default.connections_max, 1..=1 << 20),
        exception_files_max: most("exception_files_max", default.exception_files_max, 0..=10_000_000),
        duplicate_bytes_max: most("duplicate_bytes_max", default.duplicate_bytes_max, 1 << 20..=1 << 36),
        pins_max: most("pins_max", default.pins_max, 64..=1 << 24),
        listing_verifiers_max: most("listing_verifiers_max", default.listing_verifiers_max, 64..=1 << 24),
        heat_files_max: most("heat_files_max", default.heat_files_max, 1_000..=100_000_000),
        names_max: most("names_max", default.names_max, 0..=100_000_000),
        transfer_bytes_max: most("transfer_bytes_max", default.transfer_bytes_max, 4_096..=8 << 20),
        mounts_max: most("mounts_max", default.mounts_max, 0..=65_536),
        ..default
    };
    // Clients resend for minutes: a reply forgotten sooner would let a late retransmission run again.
    let age = section.seconds(faults, "duplicate_age_seconds", limits.duplicate_age, 120.0..=3_600.0);
    limits.duplicate_age = age.value;
    limits.pin_age = section.seconds(faults, "pin_age_seconds", limits.pin_age, 1.0..=3_600.0).value;
    section.finish(faults);
    (limits, record_bytes.at)
}

fn health(mut section: Section<'_>, faults: &mut Collector<'_>) -> (Health, Range<usize>) {
    let default = Health::default();
    let interval = section.seconds(faults, "interval_seconds", default.interval, 0.1..=3_600.0).value;
    let timeout = section.seconds(faults, "timeout_seconds", default.timeout, 0.1..=3_600.0);
    let failures = section.integer(faults, "failures", u64::from(default.failures), 1..=1_000).value;
    let successes = section.integer(faults, "successes", u64::from(default.successes), 1..=1_000).value;
    section.finish(faults);
    let health = Health {
        interval,
        timeout: timeout.value,
        failures: u32::try_from(failures).unwrap_or(default.failures),
        successes: u32::try_from(successes).unwrap_or(default.successes),
    };
    (health, timeout.at)
}

fn heat(mut section: Section<'_>, faults: &mut Collector<'_>) -> Heat {
    let period = section.seconds(faults, "period_seconds", Heat::default().period, 1.0..=86_400.0).value;
    section.finish(faults);
    Heat { period }
}

fn history(mut section: Section<'_>, faults: &mut Collector<'_>, file: &Path) -> History {
    let default = History::default();
    let folder = file.parent().unwrap_or(Path::new(""));
    let allowed = "\"off\", or the path of a folder";
    let path = section.parsed(faults, "path", allowed, |text| match text {
        "" => None,
        "off" => Some(None),
        path => Some(Some(folder.join(PathBuf::from(path)))),
    });
    let periods = section.amount(faults, "periods_max", default.periods_max, 24..=1_000_000).value;
    let bytes_max = section.integer(faults, "bytes_max", default.bytes_max, 16 << 20..=1 << 44).value;
    section.finish(faults);
    History { path: path.map_or(default.path, |placed| placed.value), periods_max: periods, bytes_max }
}

fn log(mut section: Section<'_>, faults: &mut Collector<'_>) -> Log {
    let filter = section.parsed(faults, "filter", FILTER, |text| {
        let readable = tracing_subscriber::EnvFilter::try_new(text).is_ok();
        let meant = text.split(',').all(|directive| is_meant(directive.trim()));
        (readable && meant && !text.trim().is_empty()).then(|| text.to_owned())
    });
    section.finish(faults);
    Log { filter: filter.map_or_else(|| Log::default().filter, |placed| placed.value) }
}

/// Whether a part of a filter says something of this program. A word that is no level is taken for the name of a module, and
/// where it is a level mistyped, nothing would be logged at all.
fn is_meant(directive: &str) -> bool {
    let own = ["clockwork", "fstress_replay", "nfs3_server"].iter().any(|name| directive.starts_with(name));
    let level = directive.parse::<tracing_subscriber::filter::LevelFilter>().is_ok();
    directive.is_empty()
        || level
        || own
        || directive.contains("::")
        || directive.contains(['=', '[', ']', '{', '}'])
}

fn address_or_off(text: &str) -> Option<Option<SocketAddr>> {
    if text == "off" { Some(None) } else { text.parse().ok().map(Some) }
}
