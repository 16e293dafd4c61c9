//! The local port that a connection comes from.

use std::io;
use std::net::SocketAddr;

/// Ports that are tried for a server that wants a reserved one, from above. Those below 665 belong to well-known services.
const RESERVED: std::ops::RangeInclusive<u16> = 665..=1023;

/// Binds and connects from a free port: any, or a reserved one.
///
/// # Errors
/// What `open` says; for reserved ports, that none is free or that the process may not use them.
pub(super) async fn from_free_port<T, F>(
    target: SocketAddr,
    reserved: bool,
    open: impl Fn(SocketAddr) -> F,
) -> io::Result<T>
where
    F: Future<Output = io::Result<T>>,
{
    let local = |port| match target {
        SocketAddr::V4(_) => SocketAddr::from((std::net::Ipv4Addr::UNSPECIFIED, port)),
        SocketAddr::V6(_) => SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, port)),
    };
    if !reserved {
        return open(local(0)).await;
    }
    for port in RESERVED.rev() {
        match open(local(port)).await {
            Err(error)
                if matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable) => {}
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let text = "no right to a port below 1024: give the process CAP_NET_BIND_SERVICE";
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
            }
            other => return other,
        }
    }
    Err(io::Error::new(io::ErrorKind::AddrInUse, "no free port from 665 to 1023"))
}
