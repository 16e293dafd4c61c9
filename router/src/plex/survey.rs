//! What the stores say of themselves, asked before a store is let in: whether all export the same files under the same
//! handles, what they can transfer, and how they number the entries of a directory.

use crate::config::{Config, Store, Transport};
use clockwork_wire::mount::{self, MntResults};
use clockwork_wire::nfs3::{self, Arguments, Procedure, Results};
use clockwork_wire::xdr::{put_opaque, put_u32, put_u64, u32_at};
use fstress_replay::client::{CallError, Client, Options};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::Duration;

/// Bytes of a listing that is asked for to compare cookies.
const LISTING_BYTES: u32 = 4096;

/// One export at one store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SurveyedRoot {
    /// The path at the store.
    pub(crate) path: String,
    pub(crate) handle: Vec<u8>,
    pub(crate) flavors: Vec<u32>,
    pub(crate) fsid: u64,
    pub(crate) fileid: u64,
    /// Names, cookies, and the cookie verifier, of the first entries.
    pub(crate) listing: Listing,
}

/// Names and cookies of entries, and the cookie verifier.
type Listing = (Vec<(Vec<u8>, u64)>, Vec<u8>);

/// What a store has answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Survey {
    /// By number of export.
    pub(crate) roots: Vec<SurveyedRoot>,
    pub(crate) read_bytes_max: u32,
    pub(crate) write_bytes_max: u32,
    pub(crate) readdir_bytes: u32,
}

/// Why a store is not let in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SurveyError {
    /// No answer, or one that cannot be read.
    #[error("{what}: {source}")]
    Call {
        /// What was asked.
        what: String,
        /// What went wrong.
        source: CallError,
    },
    /// The store does not export the path, or not to the router.
    #[error(
        "it answers MNT of {path} with {said}: does it export that path to this machine, and does `export` name it as the store does?",
        said = mount_status(*status)
    )]
    Mount {
        /// The path at the store.
        path: String,
        /// mountstat3.
        status: u32,
    },
    /// An NFS call failed.
    #[error("it answers {procedure} on the root of {path} with {name} ({status})", name = nfs3::status::name(*status))]
    Nfs {
        /// The procedure.
        procedure: Procedure,
        /// The path at the store.
        path: String,
        /// nfsstat3.
        status: u32,
    },
    /// It is another file system, or another server's view of it.
    #[error(
        "the stores disagree on {what} of {path}: {other} says {theirs}, this one says {ours}. All stores of a plex must export the same file system with the same handles (same file system number, same server software)"
    )]
    Disagrees {
        /// What they disagree on.
        what: &'static str,
        /// The export.
        path: String,
        /// The store that was surveyed first.
        other: String,
        /// Its value.
        theirs: String,
        /// This store's value.
        ours: String,
    },
    /// It does not show at once what is changed at another store.
    #[error(
        "a {change} made at {other} is not seen through it at once: it caches attributes or names on its own. Switch that off (NFS-Ganesha: Attr_Expiration_Time = 0 and Dir_Chunk = 0)"
    )]
    Incoherent {
        /// The store where the change was made.
        other: String,
        /// What was changed.
        change: &'static str,
    },
}

/// A mountstat3 by its name in RFC 1813, section 5.1.5, without `MNT3ERR_`, and what it means.
fn mount_status(status: u32) -> String {
    use mount::status as is;
    let (name, meaning) = match status {
        is::PERM => ("PERM", "the router is not privileged enough"),
        is::NOENT => ("NOENT", "no such path"),
        is::IO => ("IO", "its device failed"),
        is::ACCES => ("ACCES", "the path is not exported to the router"),
        is::NOTDIR => ("NOTDIR", "the path is no directory"),
        is::INVAL => ("INVAL", "an argument that makes no sense to it"),
        is::NAMETOOLONG => ("NAMETOOLONG", "the path is too long"),
        is::NOTSUPP => ("NOTSUPP", "it does not support that"),
        is::SERVERFAULT => ("SERVERFAULT", "an error that has no other number"),
        _ => return format!("mountstat3 {status} (a number that RFC 1813 does not have)"),
    };
    format!("{name} ({meaning})")
}

impl SurveyError {
    /// Nobody listens at the store's address: there is nothing to wait for.
    pub(crate) fn is_refused(&self) -> bool {
        let refused = std::io::ErrorKind::ConnectionRefused;
        matches!(self, Self::Call { source: CallError::Unreachable { kind, .. }, .. } if *kind == refused)
    }
}

/// How the router asks a store things for itself.
pub(crate) struct Asker {
    nfs: Client,
    /// Where the store serves MOUNT, and how it is asked; there is rarely a question.
    mount: (SocketAddr, Options),
}

/// Whether this process may use ports below 1024, which does not change while it runs.
fn may_bind_reserved_port() -> bool {
    static MAY: OnceLock<bool> = OnceLock::new();
    *MAY.get_or_init(crate::net::may_bind_reserved_port)
}

fn options(store: &Store, timeout: Duration) -> Options {
    let transport = match store.transport {
        Transport::Tcp => fstress_replay::client::Transport::Tcp,
        Transport::Udp => fstress_replay::client::Transport::Udp,
    };
    Options {
        transport,
        connections: 1,
        call_timeout: timeout,
        reconnect_max: Duration::ZERO,
        calls_in_flight_max: 16,
        reserved_port: store.privileged_port && may_bind_reserved_port(),
        ..Options::default()
    }
}

async fn connect(to: SocketAddr, options: Options, what: &str) -> Result<Client, SurveyError> {
    let timeout = options.call_timeout;
    let failed = |source| SurveyError::Call { what: what.into(), source };
    match tokio::time::timeout(timeout, Client::connect(to, options)).await {
        Ok(connected) => connected.map_err(failed),
        Err(_) => {
            let reason = format!("no answer in {timeout:?}");
            Err(failed(CallError::Unreachable { target: to, kind: std::io::ErrorKind::TimedOut, reason }))
        }
    }
}

impl Asker {
    pub(crate) async fn connect(
        store: &Store,
        address: SocketAddr,
        timeout: Duration,
    ) -> Result<Self, SurveyError> {
        let options = options(store, timeout);
        let mount = SocketAddr::new(address.ip(), store.mount_port);
        Ok(Self { nfs: connect(address, options.clone(), "NFS").await?, mount: (mount, options) })
    }

    pub(crate) fn nfs(&self) -> &Client {
        &self.nfs
    }

    /// The root of an export, and the flavours it may be used with.
    async fn mnt(&self, path: &str) -> Result<(Vec<u8>, Vec<u32>), SurveyError> {
        let (address, options) = &self.mount;
        let client = connect(*address, options.clone(), "MOUNT").await?;
        let mut call = client.begin(mount::PROGRAM, mount::VERSION, mount::Procedure::Mnt.number());
        put_opaque(&mut call, path.as_bytes());
        let failed = |source| SurveyError::Call { what: format!("MNT {path}"), source };
        let (message, at) = client.call(call).await.map_err(failed)?;
        match mount::mnt_results(&message, at) {
            Ok(MntResults::Ok { handle, flavors }) => Ok((message[handle].to_vec(), flavors)),
            Ok(MntResults::Failed { status }) => Err(SurveyError::Mount { path: path.into(), status }),
            Err(error) => Err(failed(CallError::Malformed { reason: error.to_string() })),
        }
    }

    /// One NFS call on the handle `on`; further arguments are appended by `more`.
    pub(crate) async fn ask(
        &self,
        procedure: Procedure,
        path: &str,
        on: &[u8],
        more: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(Vec<u8>, Results), SurveyError> {
        let mut call = self.nfs.begin(nfs3::PROGRAM, nfs3::VERSION, procedure.number());
        put_opaque(&mut call, on);
        more(&mut call);
        debug_assert!(matches!(
            clockwork_wire::rpc::parse_call(&call).map(|c| nfs3::arguments(procedure, &call, c.arguments)),
            Ok(Ok(a)) if !matches!(a, Arguments::Null)
        ));
        let failed = |source| SurveyError::Call { what: format!("{procedure} on {path}"), source };
        let (message, at) = self.nfs.call(call).await.map_err(failed)?;
        match nfs3::results(procedure, &message, at) {
            Ok(Results::Failed { status }) => Err(SurveyError::Nfs { procedure, path: path.into(), status }),
            Ok(results) => Ok((message, results)),
            Err(error) => Err(failed(CallError::Malformed { reason: error.to_string() })),
        }
    }

    async fn root(&self, path: &str) -> Result<SurveyedRoot, SurveyError> {
        let (handle, flavors) = self.mnt(path).await?;
        let malformed = |what: &str| SurveyError::Call {
            what: format!("{what} on {path}"),
            source: CallError::Malformed { reason: "results of another kind".into() },
        };
        let (message, results) = self.ask(Procedure::Getattr, path, &handle, |_| {}).await?;
        let attributes = match results {
            Results::Getattr { attributes_at } => nfs3::attributes(&message, attributes_at),
            _ => None,
        }
        .ok_or_else(|| malformed("GETATTR"))?;
        let listing = match self.listing(path, &handle).await {
            Ok(listing) => listing,
            // Whoever cannot list is not known to number entries like others.
            Err(SurveyError::Nfs { .. }) => Default::default(),
            Err(error) => return Err(error),
        };
        Ok(SurveyedRoot {
            path: path.into(),
            handle,
            flavors,
            fsid: attributes.fsid,
            fileid: attributes.fileid,
            listing,
        })
    }

    /// The first entries of a directory.
    async fn listing(&self, path: &str, handle: &[u8]) -> Result<Listing, SurveyError> {
        let (message, results) = self
            .ask(Procedure::Readdir, path, handle, |call| {
                put_u64(call, 0);
                put_u64(call, 0);
                put_u32(call, LISTING_BYTES);
            })
            .await?;
        let Results::Readdir { verifier_at, entries_at } = results else { return Ok(Default::default()) };
        let entries = nfs3::entries(&message, entries_at)
            .map(|e| (message[e.name.clone()].to_vec(), e.cookie))
            .collect();
        Ok((entries, message[verifier_at..verifier_at + nfs3::VERIFIER_BYTES].to_vec()))
    }
}

/// Asks a store everything.
pub(crate) async fn survey(config: &Config, store: &Store, asker: &Asker) -> Result<Survey, SurveyError> {
    let mut roots = Vec::new();
    for export in &config.exports {
        roots.push(asker.root(config.store_path(store, export).as_str()).await?);
    }
    let mut survey =
        Survey { roots, read_bytes_max: u32::MAX, write_bytes_max: u32::MAX, readdir_bytes: u32::MAX };
    for root in &survey.roots {
        let (message, results) = asker.ask(Procedure::Fsinfo, &root.path, &root.handle, |_| {}).await?;
        let Results::Fsinfo { sizes_at } = results else { continue };
        // A store that says 0 has not thought about it; 8 KiB is what every NFSv3 server can do.
        let size =
            |word: usize| u32_at(&message, sizes_at + 4 * word).filter(|size| *size > 0).unwrap_or(8192);
        survey.read_bytes_max = survey.read_bytes_max.min(size(0));
        survey.write_bytes_max = survey.write_bytes_max.min(size(3));
        survey.readdir_bytes = survey.readdir_bytes.min(size(6));
    }
    Ok(survey)
}

/// Whether `ours`, just surveyed, shows the same file system as `theirs`, the survey of the store named `other`.
pub(crate) fn compare(other: &str, theirs: &Survey, ours: &Survey) -> Result<(), SurveyError> {
    for (theirs, ours) in theirs.roots.iter().zip(&ours.roots) {
        let differ = |what, theirs: String, mine: String| {
            Err(SurveyError::Disagrees {
                what,
                path: ours.path.clone(),
                other: other.into(),
                theirs,
                ours: mine,
            })
        };
        if theirs.handle != ours.handle {
            return differ("the root handle", hex(&theirs.handle), hex(&ours.handle));
        }
        if theirs.fsid != ours.fsid {
            return differ("the file system number (fsid)", theirs.fsid.to_string(), ours.fsid.to_string());
        }
        if theirs.fileid != ours.fileid {
            return differ(
                "the root's file number (fileid)",
                theirs.fileid.to_string(),
                ours.fileid.to_string(),
            );
        }
    }
    Ok(())
}

/// Whether two stores number the entries of every root alike. The surveys may be hours apart, and entries have come and
/// gone: an entry says something where the same one follows it in both, since a cookie says where to go on (ext4: the
/// place of the next entry). Where cookies count entries, what was added or removed moves those behind it.
pub(crate) fn cookies_alike(a: &Survey, b: &Survey) -> bool {
    a.roots.iter().zip(&b.roots).all(|(a, b)| listed_alike(&a.listing, &b.listing))
}

fn listed_alike((a, a_verifier): &Listing, (b, b_verifier): &Listing) -> bool {
    let theirs: HashMap<_, _> = steps(b).collect();
    let mut common = steps(a).filter_map(|(step, ours)| Some((ours, *theirs.get(&step)?))).peekable();
    a_verifier == b_verifier && common.peek().is_some() && common.all(|(ours, theirs)| ours == theirs)
}

/// The cookies between two entries, by the names of both.
fn steps(entries: &[(Vec<u8>, u64)]) -> impl Iterator<Item = ((&[u8], &[u8]), u64)> {
    entries.windows(2).filter_map(|pair| match pair {
        [(name, cookie), (next, _)] => Some(((&name[..], &next[..]), *cookie)),
        _ => None,
    })
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_to_mnt_are_named() {
        use mount::status as is;
        let said = |status| SurveyError::Mount { path: "/nix".into(), status }.to_string();
        assert!(
            said(is::NOENT).starts_with("it answers MNT of /nix with NOENT (no such path): does it export")
        );
        let known = [1, 2, 5, 13, 20, 22, 63, 10_004, 10_006];
        assert!(known.iter().all(|status| !said(*status).contains(&status.to_string())));
        assert!(said(77).contains("with mountstat3 77 (a number"));
    }

    #[test]
    fn a08_stores_surveyed_at_different_times_still_number_alike() {
        let listing = |entries: &[(&str, u64)], verifier: u64| -> Listing {
            let entries = entries.iter().map(|(name, cookie)| (name.as_bytes().to_vec(), *cookie)).collect();
            (entries, verifier.to_be_bytes().to_vec())
        };
        let before = listing(&[("a", 20), ("b", 30), ("c", 40), ("d", 50)], 0);
        for (after, alike) in [
            (listing(&[("a", 20), ("b", 30), ("c", 40), ("d", 50)], 0), true),
            // A new entry is where b went on; c goes on where it did.
            (listing(&[("a", 20), ("b", 25), ("new", 30), ("c", 40), ("d", 60)], 0), true),
            // Entries are counted, and c is another one by now.
            (listing(&[("a", 20), ("b", 30), ("new", 40), ("c", 50), ("d", 60)], 0), false),
            (listing(&[("a", 20), ("b", 30), ("c", 40), ("d", 50)], 9), false),
            // Nothing to compare by.
            (listing(&[("a", 20), ("c", 40)], 0), false),
            (Listing::default(), false),
        ] {
            assert_eq!(listed_alike(&before, &after), alike, "{after:?}");
            assert_eq!(listed_alike(&after, &before), alike, "{after:?}");
        }
    }
}
