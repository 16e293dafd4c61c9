//! A store as a process of its own.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;

use super::{DeviceSpec, Distribution, HandleMode, Namespace, StoreSpec, serve};

/// Serve a directory over NFSv3 (TCP), without privileges
#[derive(Debug, Clone, clap::Args)]
pub struct StoreArgs {
    /// The directory to export
    pub directory: PathBuf,

    /// Address and port for NFS, MOUNT and the portmapper; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS:PORT")]
    pub listen: SocketAddr,

    /// What the store is called in logs
    #[arg(long, default_value = "store")]
    pub name: String,

    /// The path that clients mount
    #[arg(long, default_value = "/export", value_name = "PATH")]
    pub export: String,

    /// Make file handles from this number and each file's path instead of its inode number
    ///
    /// Then the same files made in the same way have the same handles in every run. Without it, handles are equal
    /// at all stores over this directory, in whatever process, and stay through restarts and renames; use that for
    /// several stores.
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,

    /// The device in front of the store
    #[command(flatten)]
    pub device: DeviceArgs,
}

/// The device in front of a store; with no option none, and replies leave as soon as they are ready
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Device")]
pub struct DeviceArgs {
    /// Calls that the device works on at once
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub servers: u32,

    /// Mean time for a call that moves no file data, in microseconds
    #[arg(long, default_value_t = 0.0, value_name = "US")]
    pub metadata_us: f64,

    /// Mean time for a READ, in microseconds
    #[arg(long, default_value_t = 0.0, value_name = "US")]
    pub read_us: f64,

    /// Mean time for each KiB read, in microseconds
    #[arg(long, default_value_t = 0.0, value_name = "US")]
    pub read_us_per_kib: f64,

    /// Mean time for a WRITE or COMMIT, in microseconds
    #[arg(long, default_value_t = 0.0, value_name = "US")]
    pub write_us: f64,

    /// Mean time for each KiB written, in microseconds
    #[arg(long, default_value_t = 0.0, value_name = "US")]
    pub write_us_per_kib: f64,

    /// How the times spread: constant, exponential, or lognormal:CV such as lognormal:0.5
    #[arg(long, default_value_t, value_name = "SHAPE")]
    pub distribution: Distribution,

    /// Decides the times that are drawn: the same number, the same times
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    pub device_seed: u64,
}

impl DeviceArgs {
    fn spec(&self) -> DeviceSpec {
        DeviceSpec {
            servers: self.servers,
            metadata_us: self.metadata_us,
            read_us: self.read_us,
            read_us_per_kib: self.read_us_per_kib,
            write_us: self.write_us,
            write_us_per_kib: self.write_us_per_kib,
            distribution: self.distribution,
        }
    }
}

/// Serves a directory until the process is interrupted.
///
/// # Errors
/// Where the directory cannot be opened, the address is taken, or the device cannot be.
pub async fn run(args: StoreArgs) -> anyhow::Result<()> {
    let mode = args.seed.map_or(HandleMode::Inode, |seed| HandleMode::Path { seed });
    let namespace = Namespace::open(&args.directory, mode)?;
    let spec = StoreSpec {
        device: args.device.spec(),
        seed: args.device.device_seed,
        name: args.name,
        listen: args.listen,
        export: args.export.clone(),
    };
    let store = serve(spec, namespace).await?;
    let (host, port) = (store.address.ip(), store.address.port());
    let host = if host.is_ipv6() { format!("[{host}]") } else { host.to_string() };
    println!("serving {} as {host}:{port}:{}", args.directory.display(), args.export);
    println!(
        "mount with: mount -t nfs -o vers=3,proto=tcp,port={port},mountport={port},mountproto=tcp,nolock {host}:{} /mnt",
        args.export
    );
    tokio::signal::ctrl_c().await.context("cannot wait for an interrupt")?;
    let counts = store.counts();
    store.stop().await;
    println!("stopped after {} calls on {} connections", counts.calls, counts.connections);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        store: StoreArgs,
    }

    #[test]
    fn options_become_a_device() {
        let line =
            ["store", "/srv", "--servers", "4", "--read-us", "90.5", "--distribution", "lognormal:0.7"];
        let args = Command::try_parse_from(line).unwrap().store;
        let spec = args.device.spec();
        assert_eq!((spec.servers, spec.read_us, spec.write_us), (4, 90.5, 0.0));
        assert_eq!(spec.distribution, Distribution::Lognormal { cv: 0.7 });
        assert!(Command::try_parse_from(["store", "/srv"]).unwrap().store.device.spec().is_none());
        let error = Command::try_parse_from(["store", "/srv", "--distribution", "normal"]).unwrap_err();
        assert!(error.to_string().contains("lognormal:CV"), "{error}");
    }
}
