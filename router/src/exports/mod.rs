//! Who may mount what, and the answers to MOUNT calls. No I/O: addresses and bytes in, answers out.
//!
//! File handles do not say through which export they were obtained, and all exports of a plex lie on one file system.
//! So an NFS call is allowed if any export allows its sender ([`Exports::allows`]); the paths decide only what is
//! answered to MNT.
mod mount;
mod mounted;

use std::net::SocketAddr;

use clockwork_wire::mount::{normalise_path, status};
use clockwork_wire::rpc::{AUTH_SYS, RPCSEC_GSS};
use ipnet::IpNet;

use crate::config::{Export, canonical_ip};

pub use mount::{MountOutcome, MountService, Root, Walk, Walked};
pub use mounted::MountList;

/// Ports that only privileged processes of a client can use (exports(5), `secure`).
const PRIVILEGED_PORTS: std::ops::Range<u16> = 1..1024;

/// Flavours that stand for kinds of GSS in MOUNT replies: krb5, krb5i, krb5p, LIPKEY and SPKM-3 (RFC 2623 section 2.5,
/// RFC 2847).
const GSS_PSEUDO_FLAVORS: std::ops::RangeInclusive<u32> = 390_000..=390_999;

/// The access rules of a plex. Immutable; a reload makes a new one.
#[derive(Debug, Clone)]
pub struct Exports {
    rules: Vec<Rule>,
    /// Clients of exports without `secure`, joined into as few networks as possible.
    any_port: Vec<IpNet>,
    /// Clients of exports with `secure`.
    privileged_port: Vec<IpNet>,
}

#[derive(Debug, Clone)]
struct Rule {
    path: Vec<u8>,
    clients: Vec<IpNet>,
    secure: bool,
}

/// What a path means to a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// The top of an export.
    Root {
        /// Its number in the configuration, from 0.
        export: usize,
    },
    /// Below one; whether it exists, only a store knows.
    Below {
        /// The export's number in the configuration, from 0: the one nearest above the path.
        export: usize,
        /// The names from there down, none of them empty, `.` or `..`.
        components: Vec<Vec<u8>>,
    },
}

impl Exports {
    /// The rules of these exports, numbered in their order.
    #[must_use]
    pub fn new(exports: &[Export]) -> Self {
        let rule = |export: &Export| Rule {
            path: export.path.as_str().as_bytes().to_vec(),
            clients: export.clients.clone(),
            secure: export.secure,
        };
        let rules: Vec<Rule> = exports.iter().map(rule).collect();
        let clients = |secure| {
            let nets =
                rules.iter().filter(|rule| rule.secure == secure).flat_map(|rule| rule.clients.clone());
            IpNet::aggregate(&nets.collect())
        };
        let (any_port, privileged_port) = (clients(false), clients(true));
        Self { rules, any_port, privileged_port }
    }

    /// How many exports there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there are none, so that nobody may do anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether NFS calls from this address and port are served. Allocates nothing; the cost is that of a comparison
    /// for each network of the rules. Calls that are not are answered with AUTH_TOOWEAK.
    #[must_use]
    pub fn allows(&self, peer: SocketAddr) -> bool {
        let ip = canonical_ip(peer.ip());
        let listed = |nets: &[IpNet]| nets.iter().any(|net| net.contains(&ip));
        listed(&self.any_port) || (PRIVILEGED_PORTS.contains(&peer.port()) && listed(&self.privileged_port))
    }

    /// Whether any export names this address, whatever the port. Others are told nothing about mounts and exports.
    #[must_use]
    pub fn knows(&self, peer: SocketAddr) -> bool {
        let ip = canonical_ip(peer.ip());
        self.any_port.iter().chain(&self.privileged_port).any(|net| net.contains(&ip))
    }

    /// What a path of a MNT call means to a client; `/e`, `/e/` and `//e` are the same path.
    ///
    /// # Errors
    /// A mountstat3: NOENT for a path that is neither an export nor below one, ACCES for one that this client may not
    /// mount, INVAL for one that goes up or is no path.
    pub fn find(&self, path: &[u8], peer: SocketAddr) -> Result<Place, u32> {
        let path = normalise_path(path);
        if !path.starts_with(b"/") {
            return Err(status::NOENT);
        }
        let names = |path: &[u8]| -> Vec<Vec<u8>> {
            let split = path.split(|byte| *byte == b'/');
            split.filter(|name| !name.is_empty() && *name != b".").map(<[u8]>::to_vec).collect()
        };
        let wanted = names(&path);
        if wanted.iter().any(|name| name == b".." || name.contains(&0)) {
            return Err(status::INVAL);
        }
        let above = self.rules.iter().map(|rule| names(&rule.path)).enumerate();
        let above = above.filter(|(_, own)| wanted.starts_with(own)).max_by_key(|(_, own)| own.len());
        let Some((export, own)) = above else { return Err(status::NOENT) };
        if !self.rules.get(export).is_some_and(|rule| rule.allows(peer)) {
            return Err(status::ACCES);
        }
        let components: Vec<Vec<u8>> = wanted.into_iter().skip(own.len()).collect();
        Ok(if components.is_empty() { Place::Root { export } } else { Place::Below { export, components } })
    }

    /// Paths and clients as EXPORT lists them.
    fn listed(&self) -> impl Iterator<Item = (&[u8], Vec<String>)> {
        self.rules.iter().map(|rule| {
            let clients = rule.clients.iter().map(|net| {
                let single = net.prefix_len() == net.max_prefix_len();
                if single { net.addr().to_string() } else { net.to_string() }
            });
            (rule.path.as_slice(), clients.collect())
        })
    }
}

impl Rule {
    fn allows(&self, peer: SocketAddr) -> bool {
        let ip = canonical_ip(peer.ip());
        let port_ok = !self.secure || PRIVILEGED_PORTS.contains(&peer.port());
        port_ok && self.clients.iter().any(|net| net.contains(&ip))
    }
}

/// The flavours that the plex offers for the root of an export: those that all stores take, in the first store's
/// order, without GSS, whose checksums cover the XID that a router has to change; at least AUTH_SYS.
#[must_use]
pub fn common_flavors<F: AsRef<[u32]>>(stores: &[F]) -> Vec<u32> {
    let gss = |flavor: u32| flavor == RPCSEC_GSS || GSS_PSEUDO_FLAVORS.contains(&flavor);
    let everywhere = |flavor: &u32| stores.iter().all(|store| store.as_ref().contains(flavor));
    let first = stores.first().map_or(&[][..], AsRef::as_ref);
    let mut common: Vec<u32> = Vec::new();
    for flavor in first.iter().copied().filter(|flavor| !gss(*flavor)).filter(everywhere) {
        if !common.contains(&flavor) {
            common.push(flavor);
        }
    }
    if !common.contains(&AUTH_SYS) {
        common.push(AUTH_SYS);
    }
    common
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ExportPath;

    fn export(path: &str, clients: &[&str], secure: bool) -> Export {
        let clients = clients.iter().map(|net| net.parse().unwrap()).collect();
        Export { path: ExportPath::parse(path).unwrap(), clients, secure }
    }

    fn peer(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a11_rules_see_the_ipv4_address_of_a_mapped_peer() {
        let exports = Exports::new(&[export("/e", &["127.0.0.1/32"], false)]);
        assert!(exports.allows(peer("127.0.0.1:40000")));
        assert!(exports.allows(peer("[::ffff:127.0.0.1]:40000")));
        assert!(!exports.allows(peer("[::1]:40000")));
        assert!(!exports.allows(peer("127.0.0.2:40000")));
        assert_eq!(exports.find(b"/e", peer("[::ffff:127.0.0.1]:1")), Ok(Place::Root { export: 0 }));
        let everybody = Exports::new(&[export("/e", &["::/0"], false)]);
        assert!(!everybody.allows(peer("[::ffff:10.0.0.1]:1")), "an IPv4 client needs an IPv4 rule");
    }

    #[test]
    fn a11_secure_is_per_export() {
        let exports = Exports::new(&[
            export("/secure", &["10.0.0.0/8"], true),
            export("/open", &["10.1.0.0/16"], false),
        ]);
        let root = |export| Ok(Place::Root { export });
        assert_eq!(exports.find(b"/secure", peer("10.2.0.1:1023")), root(0));
        assert_eq!(exports.find(b"/secure", peer("10.2.0.1:1024")), Err(status::ACCES));
        assert_eq!(exports.find(b"/secure", peer("10.2.0.1:0")), Err(status::ACCES));
        assert_eq!(exports.find(b"/secure", peer("10.1.0.1:1024")), Err(status::ACCES));
        assert_eq!(exports.find(b"/open", peer("10.1.0.1:1024")), root(1));
        assert!(exports.allows(peer("10.2.0.1:1023")) && !exports.allows(peer("10.2.0.1:1024")));
        assert!(exports.allows(peer("10.1.0.1:1024")));
        assert!(exports.knows(peer("10.2.0.1:1024")) && !exports.knows(peer("11.0.0.1:1")));
    }

    #[test]
    fn a05_paths_are_equal_when_they_name_the_same_directory() {
        let exports =
            Exports::new(&[export("/e", &["::1/128"], false), export("/e/inner", &["::2/128"], false)]);
        let one = peer("[::1]:999");
        for path in ["/e", "/e/", "//e", "//e//", "/./e/."] {
            assert_eq!(exports.find(path.as_bytes(), one), Ok(Place::Root { export: 0 }), "{path}");
        }
        let below = |names: &[&str]| {
            let components = names.iter().map(|name| name.as_bytes().to_vec()).collect();
            Ok(Place::Below { export: 0, components })
        };
        assert_eq!(exports.find(b"/e//a/./b/", one), below(&["a", "b"]));
        assert!(exports.find(b"/e/\xff", one).is_ok());
        for path in ["/", "", "e", "/f", "/ee", "/E"] {
            assert_eq!(exports.find(path.as_bytes(), one), Err(status::NOENT), "{path:?}");
        }
        assert_eq!(exports.find(b"/e/inner", one), Err(status::ACCES));
        assert_eq!(exports.find(b"/e/inner/a", one), Err(status::ACCES));
        assert_eq!(exports.find(b"/e", peer("[::2]:999")), Err(status::ACCES));
        for path in [&b"/e/.."[..], b"/../e", b"/e\0", b"/e/a\0b"] {
            assert_eq!(exports.find(path, one), Err(status::INVAL), "{path:?}");
        }
    }

    #[test]
    fn a_root_export_covers_everything() {
        let exports = Exports::new(&[export("/", &["0.0.0.0/0"], false)]);
        assert_eq!(exports.find(b"//", peer("1.2.3.4:5")), Ok(Place::Root { export: 0 }));
        let components = vec![b"a".to_vec()];
        assert_eq!(exports.find(b"/a", peer("1.2.3.4:5")), Ok(Place::Below { export: 0, components }));
    }

    #[test]
    fn flavors_are_common_and_never_gss() {
        assert_eq!(common_flavors(&[vec![390_003, 1, 0, 6], vec![0, 1, 390_004]]), [1, 0]);
        assert_eq!(common_flavors(&[vec![390_003, 390_005]]), [AUTH_SYS]);
        assert_eq!(common_flavors(&[vec![0], vec![1]]), [AUTH_SYS]);
        assert_eq!(common_flavors::<Vec<u32>>(&[]), [AUTH_SYS]);
        assert_eq!(common_flavors(&[vec![0, 0, 1, 1]]), [0, 1]);
    }

    proptest::proptest! {
        /// Whatever a path is, what comes out has no name that could lead out of the export.
        #[test]
        fn no_path_leads_out(path in proptest::collection::vec(proptest::sample::select(b"/.ae\0\xff".to_vec()), 0..40)) {
            let exports = Exports::new(&[export("/e", &["::1/128"], false), export("/a/e", &["::1/128"], false)]);
            if let Ok(Place::Below { export, components }) = exports.find(&path, peer("[::1]:1")) {
                assert!(export < 2 && !components.is_empty());
                for name in components {
                    assert!(!name.is_empty() && name != b"." && name != b".." && !name.contains(&b'/') && !name.contains(&0));
                }
            }
        }
    }
}
