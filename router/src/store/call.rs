//! What the guard does to a call before `nfs3_server` sees it, and to the reply before the client does.
//!
//! `nfs3_server` allocates what a length field says before it looks whether the bytes are there (a credential
//! with 2^32 groups ends the process), so every call is decoded here first; what is malformed is answered here.
//! And it drops some of what a call says: that is put into the hints of the call's first handle.

use clockwork_wire::nfs3::{Arguments, How, Procedure, Results, arguments, failure, results, status};
use clockwork_wire::portmap::{self, Mapping, TCP};
use clockwork_wire::rpc::{AUTH_SYS, Call, ReplyBody, parse_call, parse_reply, set_xid};
use clockwork_wire::xdr::{Reader, set_u32_at, set_u64_at, u32_at};
use clockwork_wire::{answer, mount, nfs3};

use super::files::TRANSFER_BYTES_MAX;
use super::handle::{Hints, WIRE_HANDLE_BYTES};

/// What `nfs3_server` takes for the cookie verifier of a directory without attributes.
const COOKIE_VERIFIER: u64 = 0xFFCC_FFCC_FFCC_FFCC;
/// Groups of an AUTH_SYS credential at the most (RFC 5531 appendix A).
const GROUPS_MAX: u32 = 16;
/// Bytes of the machine's name in an AUTH_SYS credential at the most.
const MACHINE_BYTES_MAX: u32 = 255;

/// What is to become of a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It goes to `nfs3_server`.
    Pass(Passed),
    /// The reply has been written; `nfs3_server` is not asked.
    Answered,
    /// It is no call: who sends such things does not speak RPC, and the connection is to be closed.
    Nonsense,
}

/// A call that goes to `nfs3_server`, as its reply will need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Passed {
    /// The client's number for it.
    pub(super) xid: u32,
    /// `None` for MOUNT.
    pub(super) procedure: Option<Procedure>,
    /// Bytes of data in a WRITE.
    pub(super) written_bytes: u32,
    /// Bytes of memory that the reply may take.
    pub(super) reply_bytes_max: u32,
}

/// Looks at a message, answers it into `out` or makes it ready for `nfs3_server`. `port` is what the portmapper
/// says for NFS and MOUNT.
pub(super) fn judge(message: &mut [u8], port: u16, out: &mut Vec<u8>) -> Verdict {
    let call = match parse_call(message) {
        Ok(call) => call,
        Err(error) if error.answer(out) => return Verdict::Answered,
        Err(_) => return Verdict::Nonsense,
    };
    // `nfs3_server` closes the connection on flavours that it does not know.
    if let Some(stat) = call.auth_refusal() {
        answer::auth_error(out, call.xid, stat);
        return Verdict::Answered;
    }
    if call.flavor == AUTH_SYS && !sound_credential(&call, message) {
        answer::auth_error(out, call.xid, answer::AUTH_BADCRED);
        return Verdict::Answered;
    }
    match (call.program, call.version) {
        (portmap::PROGRAM, _) => {
            portmap::answer(message, &mappings(port), out);
            Verdict::Answered
        }
        (nfs3::PROGRAM, nfs3::VERSION) => judge_nfs(&call, message, out),
        (nfs3::PROGRAM, _) => {
            answer::prog_mismatch(out, call.xid, nfs3::VERSION, nfs3::VERSION);
            Verdict::Answered
        }
        (mount::PROGRAM, mount::VERSION) => judge_mount(&call, message, out),
        (mount::PROGRAM, _) => {
            answer::prog_mismatch(out, call.xid, mount::VERSION, mount::VERSION);
            Verdict::Answered
        }
        _ => {
            answer::prog_unavail(out, call.xid);
            Verdict::Answered
        }
    }
}

fn mappings(port: u16) -> [Mapping; 2] {
    [(nfs3::PROGRAM, nfs3::VERSION), (mount::PROGRAM, mount::VERSION)].map(|(program, version)| Mapping {
        program,
        version,
        protocol: TCP,
        port: port.into(),
    })
}

/// Whether an AUTH_SYS credential is what it should be (RFC 5531 appendix A).
fn sound_credential(call: &Call, message: &[u8]) -> bool {
    let read = |mut reader: Reader<'_>| {
        reader.u32()?;
        reader.opaque(0, MACHINE_BYTES_MAX)?;
        reader.u32()?;
        reader.u32()?;
        let groups = reader.choice(GROUPS_MAX)?;
        for _ in 0..groups {
            reader.u32()?;
        }
        Ok::<_, clockwork_wire::xdr::XdrError>(reader.at())
    };
    // Behind the flavour and the length.
    let body = call.credential.start + 8;
    read(Reader::new(message, body)).is_ok_and(|end| end <= call.credential.end)
}

fn judge_mount(call: &Call, message: &[u8], out: &mut Vec<u8>) -> Verdict {
    let Some(procedure) = mount::Procedure::from_u32(call.procedure) else {
        answer::proc_unavail(out, call.xid);
        return Verdict::Answered;
    };
    let with_path = matches!(procedure, mount::Procedure::Mnt | mount::Procedure::Umnt);
    if with_path && mount::path(message, call.arguments).is_err() {
        answer::garbage_args(out, call.xid);
        return Verdict::Answered;
    }
    if procedure == mount::Procedure::Dump {
        // Nobody keeps a list of who has mounted what; an empty one is what the RFC allows for that.
        mount::dump::<&[u8], &[u8]>(out, call.xid, &[]);
        return Verdict::Answered;
    }
    Verdict::Pass(Passed { xid: call.xid, procedure: None, written_bytes: 0, reply_bytes_max: 1024 })
}

fn judge_nfs(call: &Call, message: &mut [u8], out: &mut Vec<u8>) -> Verdict {
    let Some(procedure) = Procedure::from_u32(call.procedure) else {
        answer::proc_unavail(out, call.xid);
        return Verdict::Answered;
    };
    let Ok(arguments) = arguments(procedure, message, call.arguments) else {
        answer::garbage_args(out, call.xid);
        return Verdict::Answered;
    };
    if matches!(procedure, Procedure::Link | Procedure::Mknod) {
        failure(out, call.xid, procedure, status::NOTSUPP);
        return Verdict::Answered;
    }
    let mut passed =
        Passed { xid: call.xid, procedure: Some(procedure), written_bytes: 0, reply_bytes_max: 1024 };
    match arguments {
        Arguments::Read { count, .. } => passed.reply_bytes_max += count.min(TRANSFER_BYTES_MAX),
        Arguments::Write { ref data, .. } => {
            passed.written_bytes = u32::try_from(data.len()).unwrap_or(u32::MAX);
        }
        Arguments::Readdir { cookie, verifier_at, count, count_at, .. } => {
            let verifier = if cookie == 0 { 0 } else { COOKIE_VERIFIER };
            set_u64_at(message, verifier_at, verifier);
            set_u32_at(message, count_at, count.min(TRANSFER_BYTES_MAX));
            passed.reply_bytes_max += count.min(TRANSFER_BYTES_MAX);
        }
        Arguments::Readdirplus { maxcount, maxcount_at, .. } => {
            set_u32_at(message, maxcount_at, maxcount.min(TRANSFER_BYTES_MAX));
            passed.reply_bytes_max += maxcount.min(TRANSFER_BYTES_MAX);
        }
        _ => {}
    }
    if let Some(handle) = arguments.handle()
        && handle.len() == WIRE_HANDLE_BYTES
    {
        let hints = hints(procedure, &arguments, message).to_bytes();
        set_u32_at(message, handle.end - hints.len(), u32::from_be_bytes(hints));
    }
    Verdict::Pass(passed)
}

/// What `nfs3_server` would not pass on. A client's own hints are overwritten.
fn hints(procedure: Procedure, arguments: &Arguments, message: &[u8]) -> Hints {
    match arguments {
        Arguments::Readdir { .. } => Hints::LISTING,
        Arguments::Name { .. } if procedure == Procedure::Rmdir => Hints::RMDIR,
        Arguments::Make { how: How::Guarded, .. } => Hints::GUARDED,
        Arguments::Make { how: How::Directory, name, .. } => {
            // The attributes begin behind the padded name: whether there is a mode, and the mode.
            let at = name.end.next_multiple_of(4);
            match (u32_at(message, at), u32_at(message, at + 4)) {
                (Some(1), Some(mode)) => Hints::mode(mode),
                _ => Hints::default(),
            }
        }
        _ => Hints::default(),
    }
}

/// What a store adds to a reply of `nfs3_server`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Touch {
    /// Mixed into the verifier of WRITE and COMMIT: another at every start.
    pub(super) verifier: u64,
    /// What FSSTAT says: bytes in all, free, free to users; files in all, free, free to users.
    pub(super) space: Option<[u64; 6]>,
}

/// Makes a reply the client's: its XID, the store's verifier, the file system's true sizes. Gives the bytes of
/// file data that it carries.
pub(super) fn finish(reply: &mut [u8], passed: &Passed, touch: &Touch) -> u32 {
    set_xid(reply, passed.xid);
    let Some(procedure) = passed.procedure else { return 0 };
    let Ok(header) = parse_reply(reply) else { return 0 };
    let ReplyBody::Accepted { stat: answer::SUCCESS, results: at } = header.body else { return 0 };
    match results(procedure, reply, at) {
        Ok(Results::Read { count, .. }) => return count,
        Ok(Results::Write { verifier_at, .. } | Results::Commit { verifier_at }) => {
            set_u64_at(reply, verifier_at, touch.verifier);
        }
        Ok(Results::Other) if procedure == Procedure::Fsstat => finish_fsstat(reply, at, touch),
        // What RFC 1813 section 3.3.20 means by linkmax and name_max: hard links are not made, names as in Linux.
        Ok(Results::Other) if procedure == Procedure::Pathconf => {
            if let Some(last) = reply.len().checked_sub(24).filter(|last| *last >= at) {
                set_u32_at(reply, last, 1);
                set_u32_at(reply, last + 4, 255);
            }
        }
        _ => {}
    }
    0
}

/// The results of FSSTAT, which begin at `at`, end in six sizes and one more word. Shorter ones stay as they are.
fn finish_fsstat(reply: &mut [u8], at: usize, touch: &Touch) {
    let begin = reply.len().checked_sub(6 * 8 + 4).filter(|begin| *begin >= at);
    let (Some(space), Some(begin)) = (touch.space, begin) else { return };
    for (size, at) in space.into_iter().zip((begin..).step_by(8)) {
        set_u64_at(reply, at, size);
    }
    // How long these may be believed, in seconds: others write, too.
    set_u32_at(reply, begin + 6 * 8, 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use clockwork_wire::rpc::{AUTH_NONE_CREDENTIAL, auth_sys, begin_call};
    use clockwork_wire::xdr::{put_bool, put_opaque, put_u32, put_u64, u64_at};
    use proptest::prelude::*;

    const HANDLE: [u8; WIRE_HANDLE_BYTES] = [0xee; WIRE_HANDLE_BYTES];

    fn call(procedure: Procedure, arguments: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut credential = Vec::new();
        auth_sys(&mut credential, "client", 1, 1);
        let mut call = Vec::new();
        begin_call(&mut call, 9, nfs3::PROGRAM, nfs3::VERSION, procedure.number(), &credential);
        put_opaque(&mut call, &HANDLE);
        arguments(&mut call);
        call
    }

    /// What the handle's last four bytes become.
    fn hints_of(mut message: Vec<u8>) -> [u8; 4] {
        let mut out = Vec::new();
        assert!(matches!(judge(&mut message, 1, &mut out), Verdict::Pass(_)), "{out:?}");
        // Behind the length word.
        let handle = parse_call(&message).unwrap().arguments + 4;
        assert_eq!(message[handle..handle + 20], HANDLE[..20], "the rest of the handle is the client's");
        message[handle + 20..handle + 24].try_into().unwrap()
    }

    #[test]
    fn hints_say_what_the_call_says_and_a_clients_own_are_wiped() {
        let name = |call: &mut Vec<u8>| put_opaque(call, b"name");
        assert_eq!(hints_of(call(Procedure::Getattr, |_| ())), [0; 4]);
        assert_eq!(hints_of(call(Procedure::Remove, name)), [0; 4]);
        assert_eq!(hints_of(call(Procedure::Rmdir, name)), Hints::RMDIR.to_bytes());
        let mkdir = |mode: Option<u32>| {
            call(Procedure::Mkdir, |call| {
                put_opaque(call, b"names");
                put_bool(call, mode.is_some());
                mode.into_iter().for_each(|mode| put_u32(call, mode));
                // uid, gid, size, atime, mtime: as they are.
                (0..5).for_each(|_| put_u32(call, 0));
            })
        };
        assert_eq!(hints_of(mkdir(Some(0o1751))), Hints::mode(0o1751).to_bytes());
        assert_eq!(hints_of(mkdir(None)), [0; 4]);
        for (how, wanted) in [(0, Hints::default()), (1, Hints::GUARDED)] {
            let create = call(Procedure::Create, |call| {
                name(call);
                put_u32(call, how);
                (0..6).for_each(|_| put_u32(call, 0));
            });
            assert_eq!(hints_of(create), wanted.to_bytes());
        }
    }

    #[test]
    fn listings_get_the_verifier_that_nfs3_server_expects() {
        for (cookie, wanted) in [(0, 0), (5, COOKIE_VERIFIER)] {
            let mut message = call(Procedure::Readdir, |call| {
                put_u64(call, cookie);
                put_u64(call, 0xabad_1dea);
                put_u32(call, u32::MAX);
            });
            let verifier_at = message.len() - 12;
            let verdict = judge(&mut message, 1, &mut Vec::new());
            assert!(matches!(verdict, Verdict::Pass(passed) if passed.reply_bytes_max > TRANSFER_BYTES_MAX));
            assert_eq!(u64_at(&message, verifier_at), Some(wanted));
            assert_eq!(u32_at(&message, verifier_at + 8), Some(TRANSFER_BYTES_MAX), "the count is bounded");
        }
    }

    #[test]
    fn flavours_that_nfs3_server_does_not_know_are_refused() {
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
        let none = words(&[0, 0]);
        let unknown = words(&[77, 4, 1]);
        let gss = words(&[6, 4, 1]);
        for (credential, verifier) in [(&unknown, &none), (&gss, &none), (&none, &unknown), (&none, &gss)] {
            let mut message = words(&[9, 0, 2, nfs3::PROGRAM, 3, 0]);
            message.extend_from_slice(credential);
            message.extend_from_slice(verifier);
            let mut out = Vec::new();
            assert_eq!(judge(&mut message, 1, &mut out), Verdict::Answered);
            assert_eq!(parse_reply(&out).unwrap().body, ReplyBody::Denied);
        }
    }

    fn any_message() -> impl Strategy<Value = Vec<u8>> {
        let header =
            (0..3_u32, 2..4_u32, 0..24_u32, any::<bool>(), prop::collection::vec(any::<u8>(), 0..200));
        let rpc = header.prop_map(|(program, version, procedure, sys, rest)| {
            let mut message = Vec::new();
            let mut credential = Vec::new();
            auth_sys(&mut credential, "m", 0, 0);
            let credential = if sys { credential } else { AUTH_NONE_CREDENTIAL.to_vec() };
            let program = [nfs3::PROGRAM, mount::PROGRAM, portmap::PROGRAM][program as usize];
            begin_call(&mut message, 1, program, version, procedure, &credential);
            message.extend_from_slice(&rest);
            message
        });
        prop_oneof![prop::collection::vec(any::<u8>(), 0..300), rpc]
    }

    proptest! {
        #[test]
        fn any_bytes_are_judged(
            mut message in any_message(),
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        ) {
            for (index, byte) in flips {
                if !message.is_empty() {
                    let at = index.index(message.len());
                    message[at] = byte;
                }
            }
            let (before, mut out) = (message.len(), Vec::new());
            let verdict = judge(&mut message, 2049, &mut out);
            prop_assert_eq!(message.len(), before);
            match verdict {
                Verdict::Answered => prop_assert!(parse_reply(&out).is_ok()),
                Verdict::Pass(_) | Verdict::Nonsense => prop_assert!(out.is_empty()),
            }
        }

        #[test]
        fn any_reply_is_finished(
            mut reply in prop::collection::vec(any::<u8>(), 0..200),
            procedure in prop::sample::select(Procedure::ALL.to_vec()),
            accepted in any::<bool>(),
        ) {
            if accepted {
                let mut header = Vec::new();
                answer::success(&mut header, 0);
                put_u32(&mut header, 0);
                reply.splice(0..0, header);
            }
            let passed =
                Passed { xid: 7, procedure: Some(procedure), written_bytes: 0, reply_bytes_max: 0 };
            finish(&mut reply, &passed, &Touch { verifier: 1, space: Some([1; 6]) });
            if reply.len() >= 4 {
                prop_assert_eq!(u32_at(&reply, 0), Some(7));
            }
        }
    }
}
