//! A portmapper, version 2 (RFC 1833 section 3), without I/O: one call in, one reply out, over either transport.

use crate::answer;
use crate::rpc::{Call, parse_call};
use crate::xdr::{Reader, XdrError, put_bool, put_u32};

/// The RPC program number of the portmapper.
pub const PROGRAM: u32 = 100_000;
/// The version that is spoken; 3 and 4 (rpcbind) are answered with PROG_MISMATCH, and clients fall back.
pub const VERSION: u32 = 2;
/// The well-known port.
pub const PORT: u16 = 111;
/// [`Mapping::protocol`] of TCP.
pub const TCP: u32 = 6;
/// [`Mapping::protocol`] of UDP.
pub const UDP: u32 = 17;

const NULL: u32 = 0;
const SET: u32 = 1;
const UNSET: u32 = 2;
const GETPORT: u32 = 3;
const DUMP: u32 = 4;

/// Where a program is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mapping {
    /// RPC program number.
    pub program: u32,
    /// Version of the program.
    pub version: u32,
    /// [`TCP`] or [`UDP`].
    pub protocol: u32,
    /// The port.
    pub port: u32,
}

impl Mapping {
    /// Appends the four words of a mapping: the arguments of GETPORT (where `port` is ignored), an entry of DUMP.
    pub fn put(&self, out: &mut Vec<u8>) {
        for word in [self.program, self.version, self.protocol, self.port] {
            put_u32(out, word);
        }
    }

    fn read(message: &[u8], at: usize) -> Result<Self, XdrError> {
        let mut reader = Reader::new(message, at);
        Ok(Self {
            program: reader.u32()?,
            version: reader.u32()?,
            protocol: reader.u32()?,
            port: reader.u32()?,
        })
    }
}

/// What became of a message to the portmapper, for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Handled {
    /// A call that ran; its reply was appended.
    Answered,
    /// A call that this portmapper does not take, or a malformed one; the reply that says so was appended.
    Refused,
    /// Not a call; nothing was appended and nothing must be sent.
    Dropped,
}

/// Answers one message (without record mark) from the table of what is served; the reply is appended to `out`,
/// without record mark.
///
/// The table is the caller's: a transport that is off is simply not in it. SET and UNSET answer `false`, since
/// nobody may register here; CALLIT, which is how portmappers amplify attacks, is PROC_UNAVAIL.
pub fn answer(message: &[u8], mappings: &[Mapping], out: &mut Vec<u8>) -> Handled {
    let call = match parse_call(message) {
        Ok(call) => call,
        Err(error) if error.answer(out) => return Handled::Refused,
        Err(_) => return Handled::Dropped,
    };
    if call.program != PROGRAM {
        answer::prog_unavail(out, call.xid);
        return Handled::Refused;
    }
    if call.version != VERSION {
        answer::prog_mismatch(out, call.xid, VERSION, VERSION);
        return Handled::Refused;
    }
    run(&call, message, mappings, out)
}

fn run(call: &Call, message: &[u8], mappings: &[Mapping], out: &mut Vec<u8>) -> Handled {
    let xid = call.xid;
    let asked = match call.procedure {
        SET | UNSET | GETPORT => match Mapping::read(message, call.arguments) {
            Ok(mapping) => Some(mapping),
            Err(_) => {
                answer::garbage_args(out, xid);
                return Handled::Refused;
            }
        },
        _ => None,
    };
    match (call.procedure, asked) {
        (NULL, _) => answer::success(out, xid),
        (GETPORT, Some(asked)) => {
            let same = |known: &&Mapping| {
                (known.program, known.version, known.protocol)
                    == (asked.program, asked.version, asked.protocol)
            };
            answer::success(out, xid);
            put_u32(out, mappings.iter().find(same).map_or(0, |known| known.port));
        }
        (SET | UNSET, Some(_)) => {
            answer::success(out, xid);
            put_bool(out, false);
        }
        (DUMP, _) => {
            answer::success(out, xid);
            for mapping in mappings {
                put_bool(out, true);
                mapping.put(out);
            }
            put_bool(out, false);
        }
        _ => {
            answer::proc_unavail(out, xid);
            return Handled::Refused;
        }
    }
    Handled::Answered
}
