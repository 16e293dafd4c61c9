//! `clockwork serve`: a plex as its configuration says, until it is told to end.
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::config::Config;
use crate::plex::Plex;
use crate::web::{self, PlexControl as _};

/// How long requests of the admin interface may take to end when the router ends.
const ADMIN_END_MAX: Duration = Duration::from_secs(2);

/// Arguments of `serve`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Example:\n  clockwork serve --config /etc/clockwork/clockwork.toml\n\n\
    `clockwork check` says beforehand what would be served, or what is wrong with the configuration. An interrupt \
    (Ctrl-C) or SIGTERM ends it; the open measuring period is kept. A changed configuration takes effect at the next \
    start. Exit status: 0 ended when told to, 1 cannot serve, 2 wrong configuration.")]
pub struct ServeArgs {
    /// The configuration
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
}

/// Serves until the process is told to end.
pub(super) fn run(args: &ServeArgs) -> ExitCode {
    match super::check::load(&args.config) {
        Ok(config) => {
            let filter = config.log.filter.clone();
            super::run_until_done(&filter, serve(config))
        }
        Err(code) => code,
    }
}

async fn serve(config: Config) -> anyhow::Result<()> {
    // First of all, so that a signal during the start is not lost.
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for an interrupt")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let admin = match config.admin.listen {
        Some(address) => Some(listen_admin(address).await?),
        None => None,
    };
    let starting = Plex::start(config, true);
    let plex = tokio::select! {
        started = starting => Arc::new(started?),
        _ = interrupt.recv() => return Ok(()),
        _ = terminate.recv() => return Ok(()),
    };
    let at = admin.as_ref().and_then(|listener| listener.local_addr().ok());
    super::print(&summary(&plex, at).await);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let mut serving = admin.map(|listener| {
        let stopped = async { drop(stopped.await) };
        tokio::spawn(web::serve(listener, Arc::clone(&plex), stopped))
    });
    let ended = async {
        match &mut serving {
            Some(serving) => serving.await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = interrupt.recv() => tracing::info!("ending: interrupted"),
        _ = terminate.recv() => tracing::info!("ending: SIGTERM"),
        // Clients are served without it.
        broken = ended => {
            tracing::error!(?broken, "the admin interface has ended");
            serving = None;
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        }
    }
    drop(stop);
    if let Some(serving) = serving {
        let _ = tokio::time::timeout(ADMIN_END_MAX, serving).await;
    }
    plex.finish().await;
    Ok(())
}

async fn listen_admin(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address} for the admin interface; choose another `admin.listen`, or `off`")
    })
}

/// What is served, from which stores, and how to mount it.
async fn summary(plex: &Plex, admin: Option<SocketAddr>) -> String {
    let config = plex.config();
    let addresses: Vec<String> = plex.addresses().iter().map(ToString::to_string).collect();
    let transports = match (config.listen.tcp, config.listen.udp) {
        (true, true) => "TCP and UDP",
        (true, false) => "TCP",
        _ => "UDP",
    };
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(text, "serving   NFSv3 and MOUNT on {} over {transports}", addresses.join(", "));
    if let Some(address) = config.listen.portmapper {
        let _ = writeln!(text, "          portmapper on {address}");
    }
    if let Some(address) = admin {
        let _ = writeln!(text, "          admin interface on http://{address}");
    }
    for store in plex.status().await.stores {
        let reason = store.reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        let (name, address, weight) = (store.name, store.address, store.weight);
        let _ =
            writeln!(text, "store     {name} ({address}, weight {weight}) {}{reason}", store.state.word());
    }
    for export in &config.exports {
        let clients: Vec<String> = export.clients.iter().map(ToString::to_string).collect();
        let _ = writeln!(text, "export    {} for {}", export.path, clients.join(", "));
    }
    if let (Some(address), Some(export)) = (plex.addresses().first(), config.exports.first()) {
        let _ =
            writeln!(text, "mount     {}", mount_command(*address, config.listen.tcp, export.path.as_str()));
    }
    text
}

/// The command with which a Linux client mounts an export. An address that stands for all is shown as `HOST`.
fn mount_command(address: SocketAddr, tcp: bool, export: &str) -> String {
    let (port, transport) = (address.port(), if tcp { "tcp" } else { "udp" });
    let host = match address.ip() {
        ip if ip.is_unspecified() => "HOST".to_owned(),
        std::net::IpAddr::V6(ip) => format!("[{ip}]"),
        std::net::IpAddr::V4(ip) => ip.to_string(),
    };
    format!(
        "mount -t nfs -o vers=3,proto={transport},port={port},mountport={port},mountproto={transport},nolock {host}:{export} /mnt"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_command_names_what_a_client_needs() {
        let command = mount_command("0.0.0.0:2049".parse().unwrap(), true, "/e");
        assert_eq!(
            command,
            "mount -t nfs -o vers=3,proto=tcp,port=2049,mountport=2049,mountproto=tcp,nolock HOST:/e /mnt"
        );
        let command = mount_command("[::1]:12049".parse().unwrap(), false, "/e");
        assert!(command.contains("proto=udp,port=12049") && command.ends_with("[::1]:/e /mnt"), "{command}");
    }
}
