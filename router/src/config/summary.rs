//! What a configuration would do, in a few lines for the person who wrote it.
use std::fmt;

use super::{Config, ControlMode, ControlWeights, DuplicateCache, Export, Transport};

/// Shows what would be served where; made by [`Config::summary`].
#[derive(Debug, Clone, Copy)]
pub struct Summary<'c>(&'c Config);

impl Config {
    /// What would be served where, from which stores, to whom.
    #[must_use]
    pub fn summary(&self) -> Summary<'_> {
        Summary(self)
    }
}

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let config = self.0;
        listeners(config, f)?;
        for export in &config.exports {
            let clients: Vec<String> = export.clients.iter().map(ToString::to_string).collect();
            let port = if export.secure { "ports below 1024" } else { "any port" };
            writeln!(f, "export    {} for {} from {port}", export.path, clients.join(", "))?;
        }
        stores(config, f)?;
        let period = config.heat.period.as_secs_f64();
        match &config.history.path {
            Some(path) => writeln!(
                f,
                "history   {} ({} periods of {period} s, at most {} MiB)",
                path.display(),
                config.history.periods_max,
                config.history.bytes_max >> 20
            ),
            None => writeln!(f, "history   off (periods of {period} s, lost at a restart)"),
        }?;
        control(config, f)
    }
}

fn control(config: &Config, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let control = &config.control;
    if control.mode == ControlMode::Off {
        return writeln!(f, "control   off");
    }
    writeln!(
        f,
        "control   {}, at most {} ms in {} % of the periods, rule {}, guard {}{}{}",
        control.mode,
        control.objective_ms,
        (control.confidence * 1000.0).round() / 10.0,
        control.rule.word(),
        if control.guard { "on" } else { "off" },
        if control.replicas_max > 1 {
            format!(", reads of a file at up to {} stores", control.replicas_max)
        } else {
            String::new()
        },
        match control.weights {
            ControlWeights::Off => ", no advice on weights",
            ControlWeights::Advise => "",
            ControlWeights::Apply if control.mode == ControlMode::Control => ", weights learnt day by day",
            ControlWeights::Apply => ", weights do not change in this mode",
        }
    )
}

fn listeners(config: &Config, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let addresses: Vec<String> = config.listen.addresses.iter().map(ToString::to_string).collect();
    let transports = match (config.listen.tcp, config.listen.udp) {
        (true, true) => "TCP and UDP",
        (true, false) => "TCP",
        (false, true) => "UDP",
        (false, false) => "nothing",
    };
    writeln!(f, "serve     NFSv3 and MOUNT on {} over {transports}", addresses.join(", "))?;
    match config.listen.portmapper {
        Some(address) => writeln!(f, "          portmapper on {address}")?,
        None => writeln!(f, "          no portmapper: clients mount with port= and mountport=")?,
    }
    match config.admin.listen {
        Some(address) => writeln!(f, "          admin interface on http://{address}"),
        None => writeln!(f, "          no admin interface"),
    }
}

fn stores(config: &Config, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let total: f64 = config.stores.iter().map(|store| store.weight).sum();
    let wide = |text: &str, least: usize| text.chars().count().max(least);
    let name_width = config.stores.iter().map(|store| wide(&store.name, 0)).max().unwrap_or(0);
    let address_width = config.stores.iter().map(|s| wide(&s.address.to_string(), 0)).max().unwrap_or(0);
    for store in &config.stores {
        let transport = match store.transport {
            Transport::Tcp => "tcp",
            Transport::Udp => "udp",
        };
        let cache = match store.duplicate_cache {
            DuplicateCache::Address => "repeats keep XID and port",
            DuplicateCache::None => "repeats get new XIDs",
        };
        let share = if store.weight == 0.0 {
            "drained".to_owned()
        } else {
            format!("{:.1} % of files", 100.0 * store.weight / total)
        };
        let address = store.address.to_string();
        writeln!(
            f,
            "store     {:name_width$}  {address:address_width$}  {transport}, MOUNT on {}, {share}, {cache}",
            store.name, store.mount_port
        )?;
        let elsewhere = |export: &&Export| *config.store_path(store, export) != export.path;
        for export in config.exports.iter().filter(elsewhere) {
            writeln!(f, "            {} is {} there", export.path, config.store_path(store, export))?;
        }
    }
    Ok(())
}
