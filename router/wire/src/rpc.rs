//! Headers of RPC calls and replies (RFC 5531 section 9).

use crate::answer::{self, AUTH_BADCRED, AUTH_BADVERF};
use crate::xdr::{Reader, Span, XdrError, put_opaque, put_u32, set_u32_at, u32_at};

/// The one version of RPC there is.
pub const RPC_VERSION: u32 = 2;
/// Largest credential or verifier body, in bytes (RFC 5531 section 8.2).
pub const AUTH_BYTES_MAX: u32 = 400;
/// Flavour of a call without identity.
pub const AUTH_NONE: u32 = 0;
/// Flavour of a call with Unix user and group numbers (RFC 5531 appendix A).
pub const AUTH_SYS: u32 = 1;
/// Flavour of GSS (RFC 2203); its checksum covers the XID, so it cannot be routed.
pub const RPCSEC_GSS: u32 = 6;

pub(crate) const CALL: u32 = 0;
pub(crate) const REPLY: u32 = 1;
pub(crate) const MSG_ACCEPTED: u32 = 0;
pub(crate) const MSG_DENIED: u32 = 1;

/// The header of a call. Offsets count from the first byte of the message (its XID).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The transaction's number, chosen by the caller.
    pub xid: u32,
    /// The program called, such as 100003 for NFS.
    pub program: u32,
    /// The version of the program.
    pub version: u32,
    /// The procedure within the program.
    pub procedure: u32,
    /// The credential's flavour, such as [`AUTH_SYS`].
    pub flavor: u32,
    /// The credential as it stands in the message: flavour word, length word, body with padding.
    pub credential: Span,
    /// The verifier's flavour; [`AUTH_NONE`] with every credential that is taken here.
    pub verifier_flavor: u32,
    /// Where the procedure's arguments begin.
    pub arguments: usize,
}

/// Why a message cannot be taken as a call, and whether it can be answered at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The header ends early. There is nothing certain to answer: drop the message.
    #[error("a message of {message_bytes} bytes is too short for a call's header; drop it")]
    TooShort {
        /// Bytes of the message.
        message_bytes: usize,
    },
    /// A reply, or something unknown, where a call should be. An answer could start a loop: drop the message.
    #[error("message type {message_type} (XID {xid:#010x}) is not a call; drop it")]
    NotACall {
        /// The transaction's number.
        xid: u32,
        /// The message type found; 0 would be a call.
        message_type: u32,
    },
    /// Another version of RPC. Answer with RPC_MISMATCH.
    #[error("RPC version {version} (XID {xid:#010x}) is not served; answer that 2 is")]
    RpcVersion {
        /// The transaction's number.
        xid: u32,
        /// The version asked for.
        version: u32,
    },
    /// The credential or verifier is malformed. Answer with the auth_stat.
    #[error("malformed authentication (XID {xid:#010x}): {cause}; answer with auth_stat {stat}")]
    Auth {
        /// The transaction's number.
        xid: u32,
        /// The auth_stat to answer with: [`AUTH_BADCRED`] or [`AUTH_BADVERF`].
        stat: u32,
        /// What is wrong with it.
        cause: XdrError,
    },
}

impl CallError {
    /// Appends the reply that RFC 5531 wants for this error; `false` (nothing appended) if it must not be answered.
    pub fn answer(&self, out: &mut Vec<u8>) -> bool {
        match *self {
            Self::TooShort { .. } | Self::NotACall { .. } => return false,
            Self::RpcVersion { xid, .. } => answer::rpc_mismatch(out, xid),
            Self::Auth { xid, stat, .. } => answer::auth_error(out, xid, stat),
        }
        true
    }
}

/// Reads the header of a call (RFC 5531 section 9, `call_body`). The arguments are not looked at.
///
/// # Errors
/// See [`CallError`].
#[inline]
pub fn parse_call(message: &[u8]) -> Result<Call, CallError> {
    // Nearly all calls are whole and well formed. Their length is checked once for all words that lie side by side; what
    // is wrong with the others, and where, is found out word by word.
    match well_formed_call(message) {
        Some(call) => Ok(call),
        None => parse_call_by_word(message),
    }
}

/// Words of a call's header up to the length of its credential.
const CALL_HEAD_BYTES: usize = 8 * 4;

#[inline]
fn well_formed_call(message: &[u8]) -> Option<Call> {
    let head = words::<8>(message.first_chunk::<CALL_HEAD_BYTES>()?);
    let [xid, CALL, RPC_VERSION, program, version, procedure, flavor, length] = head else { return None };
    let verifier = CALL_HEAD_BYTES + body_bytes(length)?;
    let [verifier_flavor, length] = words::<2>(message.get(verifier..)?.first_chunk::<8>()?);
    let arguments = verifier + 8 + body_bytes(length)?;
    let credential = CALL_HEAD_BYTES - 8..verifier;
    let call = Call { xid, program, version, procedure, flavor, credential, verifier_flavor, arguments };
    (arguments <= message.len()).then_some(call)
}

/// Bytes of a credential's or verifier's body with its padding, if it may be so long.
#[inline]
fn body_bytes(length: u32) -> Option<usize> {
    (length <= AUTH_BYTES_MAX).then_some((length as usize + 3) & !3)
}

#[inline]
fn words<const N: usize>(bytes: &[u8]) -> [u32; N] {
    let mut words = [0; N];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<4>().0) {
        *word = u32::from_be_bytes(*bytes);
    }
    words
}

#[cold]
fn parse_call_by_word(message: &[u8]) -> Result<Call, CallError> {
    let mut reader = Reader::new(message, 0);
    let short = |_| CallError::TooShort { message_bytes: message.len() };
    let xid = reader.u32().map_err(short)?;
    let message_type = reader.u32().map_err(short)?;
    if message_type != CALL {
        return Err(CallError::NotACall { xid, message_type });
    }
    let version = reader.u32().map_err(short)?;
    if version != RPC_VERSION {
        return Err(CallError::RpcVersion { xid, version });
    }
    let program = reader.u32().map_err(short)?;
    let version = reader.u32().map_err(short)?;
    let procedure = reader.u32().map_err(short)?;
    let begin = reader.at();
    let bad = |stat| move |cause| CallError::Auth { xid, stat, cause };
    let flavor = reader.u32().map_err(bad(AUTH_BADCRED))?;
    reader.opaque(0, AUTH_BYTES_MAX).map_err(bad(AUTH_BADCRED))?;
    let credential = begin..reader.at();
    let verifier_flavor = reader.u32().map_err(bad(AUTH_BADVERF))?;
    reader.opaque(0, AUTH_BYTES_MAX).map_err(bad(AUTH_BADVERF))?;
    Ok(Call { xid, program, version, procedure, flavor, credential, verifier_flavor, arguments: reader.at() })
}

impl Call {
    /// The auth_stat to refuse the call with, unless its identity is [`AUTH_NONE`] or [`AUTH_SYS`]: servers differ in
    /// what they do with other flavours, and some close the connection, which a call sent again would do again.
    ///
    /// GSS signs the XID (RFC 2203 section 5.3.1), which a router must change: [`AUTH_TOOWEAK`](answer::AUTH_TOOWEAK).
    #[must_use]
    #[inline]
    pub fn auth_refusal(&self) -> Option<u32> {
        match (self.flavor, self.verifier_flavor) {
            (AUTH_NONE | AUTH_SYS, AUTH_NONE | AUTH_SYS) => None,
            (AUTH_NONE | AUTH_SYS, _) => Some(AUTH_BADVERF),
            (RPCSEC_GSS, _) => Some(answer::AUTH_TOOWEAK),
            _ => Some(AUTH_BADCRED),
        }
    }
}

/// The header of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The number of the call that it answers.
    pub xid: u32,
    /// What became of the call.
    pub body: ReplyBody,
}

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyBody {
    /// The server took the call.
    Accepted {
        /// The accept_stat: 0 is success, the others are named in [`answer`].
        stat: u32,
        /// Where the results begin, in bytes from the message's start. Only success has results.
        results: usize,
    },
    /// The server refused the call: a version of RPC or an identity that it does not take.
    Denied,
}

/// Why a message cannot be taken as a reply. The sender is a store: count it against that store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// The header is malformed or ends early.
    #[error("malformed reply: {0}")]
    Malformed(#[from] XdrError),
    /// A call, or something unknown, where a reply should be.
    #[error("message type {message_type} (XID {xid:#010x}) is not a reply")]
    NotAReply {
        /// The transaction's number.
        xid: u32,
        /// The message type found; 1 would be a reply.
        message_type: u32,
    },
}

/// Reads the header of a reply (RFC 5531 section 9, `reply_body`). The results are not looked at.
///
/// # Errors
/// See [`ReplyError`].
#[inline]
pub fn parse_reply(message: &[u8]) -> Result<Reply, ReplyError> {
    // As stores answer: accepted, and without a verifier.
    let head = message.first_chunk::<REPLY_HEAD_BYTES>();
    match head.map(|head| words::<6>(head)) {
        Some([xid, REPLY, MSG_ACCEPTED, _, 0, stat]) => {
            Ok(Reply { xid, body: ReplyBody::Accepted { stat, results: REPLY_HEAD_BYTES } })
        }
        _ => parse_reply_by_word(message),
    }
}

/// Words of an accepted reply's header with an empty verifier.
const REPLY_HEAD_BYTES: usize = 6 * 4;

fn parse_reply_by_word(message: &[u8]) -> Result<Reply, ReplyError> {
    let mut reader = Reader::new(message, 0);
    let xid = reader.u32()?;
    let message_type = reader.u32()?;
    if message_type != REPLY {
        return Err(ReplyError::NotAReply { xid, message_type });
    }
    if reader.choice(MSG_DENIED)? == MSG_DENIED {
        return Ok(Reply { xid, body: ReplyBody::Denied });
    }
    reader.u32()?;
    reader.opaque(0, AUTH_BYTES_MAX)?;
    let stat = reader.u32()?;
    Ok(Reply { xid, body: ReplyBody::Accepted { stat, results: reader.at() } })
}

/// The XID of any RPC message, or `None` if it has less than four bytes.
#[inline]
#[must_use]
pub fn xid(message: &[u8]) -> Option<u32> {
    u32_at(message, 0)
}

/// Replaces the XID of an RPC message; a message of less than four bytes stays as it is.
#[inline]
pub fn set_xid(message: &mut [u8], xid: u32) {
    set_u32_at(message, 0, xid);
}

/// A credential without identity, as it stands in a message.
pub const AUTH_NONE_CREDENTIAL: [u8; 8] = [0; 8];

/// Appends the header of a call with an empty verifier; the caller appends the arguments. `credential` is flavour
/// word, length word and body, as in [`Call::credential`] or from [`auth_sys`].
pub fn begin_call(
    out: &mut Vec<u8>,
    xid: u32,
    program: u32,
    version: u32,
    procedure: u32,
    credential: &[u8],
) {
    for word in [xid, CALL, RPC_VERSION, program, version, procedure] {
        put_u32(out, word);
    }
    out.extend_from_slice(credential);
    out.extend_from_slice(&AUTH_NONE_CREDENTIAL);
}

/// Appends an AUTH_SYS credential (RFC 5531 appendix A) without supplementary groups. The machine's name is cut
/// to the 255 bytes that the format allows.
pub fn auth_sys(out: &mut Vec<u8>, machine: &str, uid: u32, gid: u32) {
    const MACHINE_BYTES_MAX: usize = 255;
    let machine = &machine.as_bytes()[..machine.len().min(MACHINE_BYTES_MAX)];
    let mut body = Vec::with_capacity(5 * 4 + MACHINE_BYTES_MAX + 1);
    put_u32(&mut body, 0); // stamp: any number
    put_opaque(&mut body, machine);
    put_u32(&mut body, uid);
    put_u32(&mut body, gid);
    put_u32(&mut body, 0); // supplementary groups
    put_u32(out, AUTH_SYS);
    put_opaque(out, &body);
}
