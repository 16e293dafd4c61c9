//! Single values of the file: addresses, paths, networks.
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use ipnet::{IpNet, Ipv4Net};

/// Longest path of an export, in bytes (MNTPATHLEN, RFC 1813 section 5.1.3).
const PATH_BYTES_MAX: usize = 1024;

/// Where a store is: a name or an IP address, and a port. Names are looked up when the router connects.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StoreAddress {
    host: String,
    port: u16,
}

impl StoreAddress {
    /// Reads `host:port`, `1.2.3.4:port` or `[v6]:port`. `None` if it is none of these or the port is 0.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return (address.port() != 0).then(|| Self::from(address));
        }
        let (host, port) = text.rsplit_once(':')?;
        let port = port.parse().ok().filter(|port| *port != 0)?;
        let digits_only = host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let label_ok = |label: &str| {
            let letters =
                label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
            (1..=63).contains(&label.len()) && letters
        };
        let host_ok =
            host.len() <= 253 && !digits_only && host.trim_end_matches('.').split('.').all(label_ok);
        host_ok.then(|| Self { host: host.to_ascii_lowercase(), port })
    }

    /// The name or address, without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The NFS port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl From<SocketAddr> for StoreAddress {
    fn from(address: SocketAddr) -> Self {
        Self { host: canonical_ip(address.ip()).to_string(), port: address.port() }
    }
}

impl fmt::Display for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// An absolute path without empty, `.` or `..` components: `/` or `/a/b`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExportPath(String);

impl ExportPath {
    /// Reads a path; `//a/` is read as `/a`. `None` if it is not absolute, goes up, or is too long for a MOUNT call.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if !text.starts_with('/') || text.len() > PATH_BYTES_MAX || text.contains('\0') {
            return None;
        }
        let components: Vec<&str> = text.split('/').filter(|component| !component.is_empty()).collect();
        let plain = components.iter().all(|component| *component != "." && *component != "..");
        plain.then(|| Self(format!("/{}", components.join("/"))))
    }

    /// The path `/`.
    #[must_use]
    pub fn root() -> Self {
        Self("/".to_owned())
    }

    /// The path as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its components; none for `/`.
    pub fn components(&self) -> impl Iterator<Item = &str> {
        self.0.split('/').filter(|component| !component.is_empty())
    }
}

impl fmt::Display for ExportPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An address as rules see it: `::ffff:1.2.3.4`, which is how an IPv6 socket names an IPv4 peer, is `1.2.3.4`.
#[must_use]
pub fn canonical_ip(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

/// Reads a network or a single address; networks of IPv4-mapped addresses are turned into IPv4.
/// `None` also where bits beyond the prefix are set: `10.0.0.1/8` is more likely a mistake than a network.
pub(super) fn client_net(text: &str) -> Option<IpNet> {
    let net = match text.parse::<IpNet>() {
        Ok(net) => net,
        Err(_) => IpNet::from(text.parse::<IpAddr>().ok()?),
    };
    if net != net.trunc() {
        return None;
    }
    Some(canonical_net(net))
}

fn canonical_net(net: IpNet) -> IpNet {
    let IpNet::V6(v6) = net else { return net };
    let mapped = Ipv6Addr::to_ipv4_mapped(&v6.network());
    match (mapped, v6.prefix_len().checked_sub(96)) {
        (Some(v4), Some(prefix)) => Ipv4Net::new(v4, prefix).map_or(net, IpNet::V4),
        _ => net,
    }
}

/// A name that fits into metrics, URLs and messages without quoting.
pub(super) fn store_name(text: &str) -> Option<String> {
    let letters = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let starts = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    (starts && text.len() <= 63 && text.bytes().all(letters)).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_addresses_are_read_and_shown_alike() {
        for text in ["10.0.0.1:2049", "[fe80::1]:2049", "nas-1.example.org:20490", "localhost:1"] {
            assert_eq!(StoreAddress::parse(text).map(|a| a.to_string()).as_deref(), Some(text));
        }
        assert_eq!(StoreAddress::parse("NAS:2049"), StoreAddress::parse("nas:2049"));
        assert_eq!(StoreAddress::parse("[::ffff:10.0.0.1]:2049"), StoreAddress::parse("10.0.0.1:2049"));
        for wrong in [
            "10.0.0.1",
            "nas",
            ":2049",
            "nas:0",
            "nas:65536",
            "10.0.0.256:2049",
            "a b:1",
            "fe80::1:x",
            "a..b:1",
        ] {
            assert_eq!(StoreAddress::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn export_paths_are_normal() {
        for text in ["/e", "/e/", "//e", "///e//"] {
            assert_eq!(ExportPath::parse(text).map(|p| p.to_string()).as_deref(), Some("/e"), "{text}");
        }
        assert_eq!(ExportPath::parse("/").map(|p| p.to_string()).as_deref(), Some("/"));
        for wrong in ["", "e", "/e/..", "/./e", "/e\0"] {
            assert_eq!(ExportPath::parse(wrong), None, "{wrong:?}");
        }
        assert_eq!(ExportPath::parse(&format!("/{}", "x".repeat(1024))), None);
    }

    #[test]
    fn a11_networks_of_mapped_addresses_are_ipv4_networks() {
        let net = |text: &str| client_net(text).map(|net| net.to_string());
        assert_eq!(net("::ffff:10.0.0.0/104").as_deref(), Some("10.0.0.0/8"));
        assert_eq!(net("::ffff:127.0.0.1").as_deref(), Some("127.0.0.1/32"));
        assert_eq!(net("::1").as_deref(), Some("::1/128"));
        assert_eq!(net("::/0").as_deref(), Some("::/0"));
        assert_eq!(net("10.0.0.1/8"), None);
        assert_eq!(net("all"), None);
    }
}
