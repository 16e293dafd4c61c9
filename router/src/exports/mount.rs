//! Answers to MOUNT calls, versions 1 and 3 (RFC 1813 appendix I, RFC 1094 appendix A).
use std::net::SocketAddr;
use std::sync::Arc;

use clockwork_wire::mount::{self, Procedure, status};
use clockwork_wire::nfs3::status as nfs_status;
use clockwork_wire::rpc::Call;
use clockwork_wire::{answer, xdr::Span};

use super::{Exports, MountList, Place};
use crate::config::canonical_ip;

/// Bytes of a reply that are not entries of its list: RPC header, status, end of list; generously.
const REPLY_OVERHEAD_BYTES: usize = 64;

/// What the stores answered for the top of an export; equal at all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// The root's handle, 1 to 64 bytes.
    pub handle: Vec<u8>,
    /// Flavours from [`common_flavors`](super::common_flavors).
    pub flavors: Vec<u32>,
}

/// Answers MOUNT calls. Immutable but for the list of mounts; a reload makes a new one with the same list.
#[derive(Debug)]
pub struct MountService {
    exports: Arc<Exports>,
    roots: Vec<Option<Root>>,
    mounts: Arc<MountList>,
}

/// What to do with a MOUNT call.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum MountOutcome {
    /// The reply has been appended: send it.
    Answered,
    /// The path lies below an export, or no store has answered for it yet: look it up at a store when one is in use,
    /// then ask [`MountService::walked`] of the service of then for the reply.
    Walk(Walk),
}

/// A path to look up, name by name, from the root of an export. The walk is the router's own (mountd's, in other
/// servers): it is made with AUTH_SYS as user 0, because clients send MNT with all kinds of credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Walk {
    /// XID of the call to be answered.
    pub xid: u32,
    /// Number of the export.
    pub export: usize,
    /// Names from there down, at most 512; none for the root itself.
    pub components: Vec<Vec<u8>>,
    peer: SocketAddr,
    path: Vec<u8>,
}

/// What a walk found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Walked {
    /// The handle of the last name.
    pub handle: Vec<u8>,
    /// Whether it is a directory. Symbolic links are not followed: a link could lead out of the export.
    pub directory: bool,
}

impl MountService {
    /// `roots[n]` belongs to export number `n`; `None`, or missing, while no store has answered for it yet.
    #[must_use]
    pub fn new(exports: Arc<Exports>, roots: Vec<Option<Root>>, mounts: Arc<MountList>) -> Self {
        Self { exports, roots, mounts }
    }

    /// The same service with other roots.
    #[must_use]
    pub fn with_roots(&self, roots: Vec<Option<Root>>) -> Self {
        Self { exports: Arc::clone(&self.exports), roots, mounts: Arc::clone(&self.mounts) }
    }

    /// The access rules.
    #[must_use]
    pub fn exports(&self) -> &Arc<Exports> {
        &self.exports
    }

    /// Who has mounted what.
    #[must_use]
    pub fn mounts(&self) -> &MountList {
        &self.mounts
    }

    /// Root of an export, if known.
    #[must_use]
    pub fn root(&self, export: usize) -> Option<&Root> {
        self.roots.get(export).and_then(Option::as_ref)
    }

    /// Answers a call whose program is MOUNT. `message` is what `call` was parsed from, `reply_bytes_max` what the
    /// transport carries: longer lists of DUMP and EXPORT are cut. Always appends one reply, or asks for a walk.
    pub fn answer(
        &self,
        message: &[u8],
        call: &Call,
        peer: SocketAddr,
        reply_bytes_max: usize,
        out: &mut Vec<u8>,
    ) -> MountOutcome {
        let xid = call.xid;
        if call.version != mount::VERSION && call.version != mount::VERSION_1 {
            answer::prog_mismatch(out, xid, mount::VERSION_1, mount::VERSION);
            return MountOutcome::Answered;
        }
        let Some(procedure) = Procedure::from_u32(call.procedure) else {
            answer::proc_unavail(out, xid);
            return MountOutcome::Answered;
        };
        if let Some(stat) = call.auth_refusal() {
            answer::auth_error(out, xid, stat);
            return MountOutcome::Answered;
        }
        match procedure {
            Procedure::Null => answer::success(out, xid),
            Procedure::Mnt => return self.mnt(message, call, peer, out),
            Procedure::Dump => self.dump(xid, peer, reply_bytes_max, out),
            Procedure::Umnt => match mount::path(message, call.arguments) {
                Ok(path) => {
                    let path = mount::normalise_path(bytes(message, path));
                    self.mounts.remove(canonical_ip(peer.ip()), &path);
                    answer::success(out, xid);
                }
                Err(_) => answer::garbage_args(out, xid),
            },
            Procedure::Umntall => {
                self.mounts.remove_all(canonical_ip(peer.ip()));
                answer::success(out, xid);
            }
            Procedure::Export => self.export(xid, peer, reply_bytes_max, out),
        }
        MountOutcome::Answered
    }

    /// Appends the reply to the call of a walk that ended, or failed with an `nfsstat3`.
    pub fn walked(&self, walk: &Walk, found: Result<Walked, u32>, out: &mut Vec<u8>) {
        match (found, self.root(walk.export)) {
            (Ok(Walked { handle, directory: true }), Some(root)) => {
                self.mounts.add(canonical_ip(walk.peer.ip()), &walk.path);
                mount::mnt_ok(out, walk.xid, &handle, &root.flavors);
            }
            (Ok(Walked { directory: true, .. }), None) => {
                mount::mnt_failed(out, walk.xid, status::SERVERFAULT)
            }
            (Ok(_), _) => mount::mnt_failed(out, walk.xid, status::NOTDIR),
            (Err(nfs), _) => mount::mnt_failed(out, walk.xid, mount_status(nfs)),
        }
    }

    fn mnt(&self, message: &[u8], call: &Call, peer: SocketAddr, out: &mut Vec<u8>) -> MountOutcome {
        let xid = call.xid;
        let Ok(path) = mount::path(message, call.arguments) else {
            answer::garbage_args(out, xid);
            return MountOutcome::Answered;
        };
        if call.version == mount::VERSION_1 {
            // Version 1 has room for handles of exactly 32 bytes only, which NFSv3 handles do not fit.
            mount::mnt_failed(out, xid, status::ACCES);
            return MountOutcome::Answered;
        }
        let path = mount::normalise_path(bytes(message, path));
        match self.exports.find(&path, peer) {
            Err(status) => mount::mnt_failed(out, xid, status),
            Ok(Place::Below { export, components }) => {
                return MountOutcome::Walk(Walk { xid, export, components, peer, path });
            }
            Ok(Place::Root { export }) => match self.root(export) {
                Some(root) => {
                    self.mounts.add(canonical_ip(peer.ip()), &path);
                    mount::mnt_ok(out, xid, &root.handle, &root.flavors);
                }
                None => {
                    return MountOutcome::Walk(Walk { xid, export, components: Vec::new(), peer, path });
                }
            },
        }
        MountOutcome::Answered
    }

    /// Strangers are shown empty lists: over UDP the sender's address may be forged, and a long reply to a short call
    /// would be sent to whom it names.
    fn dump(&self, xid: u32, peer: SocketAddr, reply_bytes_max: usize, out: &mut Vec<u8>) {
        let bytes_max = reply_bytes_max.saturating_sub(REPLY_OVERHEAD_BYTES);
        let mounts = if self.exports.knows(peer) { self.mounts.newest(bytes_max) } else { Vec::new() };
        mount::dump(out, xid, &mounts);
    }

    fn export(&self, xid: u32, peer: SocketAddr, reply_bytes_max: usize, out: &mut Vec<u8>) {
        let mut left = reply_bytes_max.saturating_sub(REPLY_OVERHEAD_BYTES);
        let mut listed: Vec<(&[u8], Vec<String>)> = Vec::new();
        for (path, clients) in self.exports.listed().filter(|_| self.exports.knows(peer)) {
            // Flags, lengths and padding of an entry and of its groups.
            let groups: usize = clients.iter().map(|client| 12 + client.len()).sum();
            match left.checked_sub(16 + path.len() + groups) {
                Some(rest) => left = rest,
                None => break,
            }
            listed.push((path, clients));
        }
        mount::export(out, xid, &listed);
    }
}

fn bytes(message: &[u8], span: Span) -> &[u8] {
    message.get(span).unwrap_or_default()
}

/// The mountstat3 that says the same as an nfsstat3 of LOOKUP; the numbers agree where both exist.
fn mount_status(nfs: u32) -> u32 {
    match nfs {
        nfs_status::PERM => status::PERM,
        nfs_status::NOENT => status::NOENT,
        nfs_status::IO => status::IO,
        nfs_status::ACCES => status::ACCES,
        nfs_status::NOTDIR => status::NOTDIR,
        nfs_status::NAMETOOLONG => status::NAMETOOLONG,
        _ => status::SERVERFAULT,
    }
}

#[cfg(test)]
mod tests {
    use clockwork_wire::mount::{MntResults, mnt_results};
    use clockwork_wire::rpc::{
        AUTH_NONE_CREDENTIAL, RPCSEC_GSS, ReplyBody, begin_call, parse_call, parse_reply,
    };
    use clockwork_wire::xdr::{put_opaque, put_u32};

    use super::*;
    use crate::config::{Export, ExportPath};

    const ME: &str = "[::ffff:10.0.0.7]:700";
    const HANDLE: [u8; 5] = [1, 2, 3, 4, 5];

    fn service() -> MountService {
        let export = |path: &str, clients: &str| Export {
            path: ExportPath::parse(path).unwrap(),
            clients: vec![clients.parse().unwrap()],
            secure: true,
        };
        let exports = Exports::new(&[
            export("/e", "10.0.0.0/8"),
            export("/theirs", "192.0.2.1/32"),
            export("/new", "10.0.0.0/8"),
        ]);
        let root = || Some(Root { handle: HANDLE.to_vec(), flavors: vec![1, 0] });
        MountService::new(Arc::new(exports), vec![root(), root()], Arc::new(MountList::new(8)))
    }

    fn message(version: u32, procedure: u32, path: Option<&[u8]>) -> Vec<u8> {
        let mut message = Vec::new();
        begin_call(&mut message, 77, mount::PROGRAM, version, procedure, &AUTH_NONE_CREDENTIAL);
        if let Some(path) = path {
            put_opaque(&mut message, path);
        }
        message
    }

    fn ask(service: &MountService, message: &[u8], peer: &str) -> (MountOutcome, Vec<u8>) {
        let call = parse_call(message).unwrap();
        let mut reply = Vec::new();
        let outcome = service.answer(message, &call, peer.parse().unwrap(), 60_000, &mut reply);
        (outcome, reply)
    }

    /// The accept_stat, and the words of the results.
    fn reply_of(service: &MountService, version: u32, procedure: u32, path: Option<&[u8]>) -> (u32, Vec<u8>) {
        let (outcome, reply) = ask(service, &message(version, procedure, path), ME);
        assert_eq!(outcome, MountOutcome::Answered);
        let parsed = parse_reply(&reply).unwrap();
        assert_eq!(parsed.xid, 77);
        let ReplyBody::Accepted { stat, results } = parsed.body else { panic!("denied") };
        (stat, reply[results..].to_vec())
    }

    fn mnt(service: &MountService, path: &[u8]) -> Result<Vec<u8>, u32> {
        let (stat, results) = reply_of(service, 3, 1, Some(path));
        assert_eq!(stat, answer::SUCCESS);
        match mnt_results(&results, 0).unwrap() {
            MntResults::Ok { handle, flavors } => {
                assert_eq!(flavors, [1, 0]);
                Ok(results[handle].to_vec())
            }
            MntResults::Failed { status } => Err(status),
        }
    }

    #[test]
    fn a05_all_procedures_of_both_versions_reply_for_every_path() {
        let service = service();
        for version in [1, 3] {
            for procedure in [0, 2, 4, 5] {
                assert_eq!(reply_of(&service, version, procedure, None).0, answer::SUCCESS);
            }
            for path in [&b"/e"[..], b"/e/", b"//e", b"/unknown", b"/theirs"] {
                assert_eq!(reply_of(&service, version, 3, Some(path)), (answer::SUCCESS, Vec::new()));
                assert_eq!(reply_of(&service, version, 1, Some(path)).0, answer::SUCCESS);
            }
        }
        for path in [&b"/e"[..], b"/e/", b"//e"] {
            assert_eq!(mnt(&service, path), Ok(HANDLE.to_vec()));
        }
        assert_eq!(mnt(&service, b"/unknown"), Err(status::NOENT));
        assert_eq!(mnt(&service, b"/theirs"), Err(status::ACCES));
    }

    #[test]
    fn a_root_that_no_store_has_answered_for_is_asked_for_later() {
        let service = service();
        let (outcome, reply) = ask(&service, &message(3, 1, Some(b"/new")), ME);
        let MountOutcome::Walk(walk) = outcome else { panic!("{outcome:?}") };
        assert!(reply.is_empty() && walk.components.is_empty());
        let end = |service: &MountService, found| {
            let mut reply = Vec::new();
            service.walked(&walk, found, &mut reply);
            let ReplyBody::Accepted { results, .. } = parse_reply(&reply).unwrap().body else { panic!() };
            mnt_results(&reply, results).unwrap()
        };
        let failed = MntResults::Failed { status: status::SERVERFAULT };
        assert_eq!(end(&service, Err(nfs_status::JUKEBOX)), failed, "none does");
        let found = Ok(Walked { handle: HANDLE.to_vec(), directory: true });
        let roots = vec![Some(Root { handle: HANDLE.to_vec(), flavors: vec![1] }); walk.export + 1];
        let answered = service.with_roots(roots);
        assert!(matches!(end(&answered, found), MntResults::Ok { .. }));
        assert_eq!(answered.mounts.len(), 1);
    }

    #[test]
    fn what_is_not_a_mount_call_is_refused_as_the_rfc_says() {
        let service = service();
        let mismatch = [1_u32, 3].iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
        assert_eq!(reply_of(&service, 2, 0, None), (answer::PROG_MISMATCH, mismatch));
        assert_eq!(reply_of(&service, 3, 6, None).0, answer::PROC_UNAVAIL);
        assert_eq!(reply_of(&service, 3, 1, None).0, answer::GARBAGE_ARGS);
        assert_eq!(reply_of(&service, 1, 3, None).0, answer::GARBAGE_ARGS);
        assert_eq!(reply_of(&service, 3, 1, Some(&[b'/'; 1025])).0, answer::GARBAGE_ARGS);
        assert_eq!(
            reply_of(&service, 1, 1, Some(b"/e")),
            (answer::SUCCESS, status::ACCES.to_be_bytes().to_vec())
        );
        let mut gss = Vec::new();
        let mut credential = Vec::new();
        put_u32(&mut credential, RPCSEC_GSS);
        put_opaque(&mut credential, &[0; 20]);
        begin_call(&mut gss, 77, mount::PROGRAM, 3, 1, &credential);
        let (_, reply) = ask(&service, &gss, ME);
        assert_eq!(parse_reply(&reply).unwrap().body, ReplyBody::Denied);
    }

    #[test]
    fn mounts_are_listed_until_they_are_given_up() {
        let service = service();
        let listed = || {
            let (_, results) = reply_of(&service, 3, 2, None);
            String::from_utf8_lossy(&results).matches("10.0.0.7").count()
        };
        assert_eq!(mnt(&service, b"//e/"), Ok(HANDLE.to_vec()));
        assert_eq!(mnt(&service, b"/e"), Ok(HANDLE.to_vec()));
        assert_eq!(listed(), 1);
        reply_of(&service, 1, 3, Some(b"/e/"));
        assert_eq!(listed(), 0);
        assert_eq!(mnt(&service, b"/e"), Ok(HANDLE.to_vec()));
        reply_of(&service, 3, 4, None);
        assert_eq!(listed(), 0);
    }

    #[test]
    fn lists_are_cut_to_the_transport_and_empty_for_strangers() {
        let service = service();
        assert!(mnt(&service, b"/e").is_ok());
        for procedure in [2, 5] {
            let message = message(3, procedure, None);
            let call = parse_call(&message).unwrap();
            let (_, full) = ask(&service, &message, ME);
            for bytes_max in [0, 64, 100, full.len() + 64] {
                let mut reply = Vec::new();
                let peer = ME.parse().unwrap();
                let outcome = service.answer(&message, &call, peer, bytes_max, &mut reply);
                assert_eq!(outcome, MountOutcome::Answered);
                assert!(reply.len() <= bytes_max.max(REPLY_OVERHEAD_BYTES), "{} > {bytes_max}", reply.len());
            }
            let (_, stranger) = ask(&service, &message, "203.0.113.1:700");
            assert_eq!(stranger.len(), 28, "header and the end of the list");
            assert!(full.len() > 40);
        }
    }

    #[test]
    fn a_path_below_an_export_is_walked_at_a_store() {
        let service = service();
        let (outcome, reply) = ask(&service, &message(3, 1, Some(b"/e/a//b/")), ME);
        let MountOutcome::Walk(walk) = outcome else { panic!("{outcome:?}") };
        assert!(reply.is_empty());
        assert_eq!((walk.xid, walk.export), (77, 0));
        assert_eq!(walk.components, [b"a".to_vec(), b"b".to_vec()]);
        let end = |found| {
            let mut reply = Vec::new();
            service.walked(&walk, found, &mut reply);
            let ReplyBody::Accepted { results, .. } = parse_reply(&reply).unwrap().body else { panic!() };
            mnt_results(&reply, results).unwrap()
        };
        let failed = |status| MntResults::Failed { status };
        assert_eq!(end(Err(nfs_status::NOENT)), failed(status::NOENT));
        assert_eq!(end(Err(nfs_status::STALE)), failed(status::SERVERFAULT));
        let found = |directory| Ok(Walked { handle: vec![9; 8], directory });
        assert_eq!(end(found(false)), failed(status::NOTDIR));
        assert!(service.mounts.is_empty());
        assert!(matches!(end(found(true)), MntResults::Ok { handle, .. } if handle.len() == 8));
        assert_eq!(service.mounts.len(), 1);
        let (outcome, _) = ask(&service, &message(3, 1, Some(b"/theirs/a")), ME);
        assert_eq!(outcome, MountOutcome::Answered, "no store is asked for a client that may not mount");
    }
}
