//! A server that answers MOUNT, FSINFO, LOOKUP, GETATTR, ACCESS and READ (with zeros) from memory, as fast as it can: what is
//! measured against it is the load generator. It has every name; the files of the bundled workload have their sizes.
//! `responder [ADDRESS:PORT]`
#![allow(missing_docs, reason = "a program")]

use clockwork_traces::workload::Workload;
use clockwork_wire::nfs3::{self, Arguments, Procedure, status};
use clockwork_wire::record::{Progress, RecordLimits, RecordReader, mark};
use clockwork_wire::xdr::{put_bool, put_opaque, put_u32, put_u64};
use clockwork_wire::{answer, mount, rpc};
use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;

const READ_BYTES: usize = 256 << 10;
/// Largest READ.
const DATA_BYTES: u32 = 65_536;
/// The handle of the root.
const ROOT: u64 = 1;

/// Sizes of files by handle; others have a terabyte.
type Sizes = Arc<HashMap<u64, u64>>;

fn sizes() -> Sizes {
    let workload = Workload::bundled().map_err(|error| eprintln!("responder: no sizes: {error}")).ok();
    let files = workload.iter().flat_map(Workload::files);
    Arc::new(files.map(|file| (file.path.split('/').fold(ROOT, below), file.bytes)).collect())
}

/// The handle of a name in a directory.
fn below(directory: u64, name: impl AsRef<[u8]>) -> u64 {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    name.as_ref().iter().fold(directory.wrapping_mul(31) + 7, mix)
}

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:20490".into());
    let (listener, socket) = (TcpListener::bind(&address)?, UdpSocket::bind(&address)?);
    let sizes = sizes();
    let of_datagrams = Arc::clone(&sizes);
    std::thread::spawn(move || datagrams(&socket, &of_datagrams));
    for stream in listener.incoming() {
        let (stream, sizes) = (stream?, Arc::clone(&sizes));
        // A connection that ends, however it ends, is no concern of the others.
        std::thread::spawn(move || drop(connection(stream, &sizes)));
    }
    Ok(())
}

fn datagrams(socket: &UdpSocket, sizes: &Sizes) {
    let (mut call, mut reply) = (vec![0; 65_536], Vec::new());
    loop {
        let Ok((length, from)) = socket.recv_from(&mut call) else { continue };
        reply.clear();
        respond(&call[..length], sizes, &mut reply);
        // A reply that cannot be sent is a lost datagram.
        let _ = socket.send_to(&reply, from);
    }
}

fn connection(mut stream: TcpStream, sizes: &Sizes) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut records = RecordReader::new(RecordLimits::default());
    let (mut received, mut replies) = (Vec::new(), Vec::new());
    loop {
        let length = received.len();
        received.resize(length + READ_BYTES, 0);
        let bytes = stream.read(&mut received[length..])?;
        if bytes == 0 {
            return Ok(());
        }
        received.truncate(length + bytes);
        let mut begin = 0;
        while let Progress::Record { end, consumed } =
            records.next(&mut received[begin..]).map_err(io::Error::other)?
        {
            let at = replies.len();
            replies.extend([0; 4]);
            respond(&received[begin + 4..begin + end], sizes, &mut replies);
            let marked = mark(replies.len() - at - 4);
            replies[at..at + 4].copy_from_slice(&marked);
            begin += consumed;
        }
        received.drain(..begin);
        stream.write_all(&replies)?;
        replies.clear();
    }
}

/// Every name is there: its handle is a hash of its path. Every file is a directory for whoever looks something up in it.
fn respond(message: &[u8], sizes: &Sizes, out: &mut Vec<u8>) {
    let Ok(call) = rpc::parse_call(message) else { return };
    if call.program == mount::PROGRAM {
        return mount::mnt_ok(out, call.xid, &ROOT.to_be_bytes(), &[rpc::AUTH_SYS]);
    }
    let Some(procedure) = Procedure::from_u32(call.procedure) else { return answer::success(out, call.xid) };
    let Ok(arguments) = nfs3::arguments(procedure, message, call.arguments) else { return };
    let handle = arguments.handle().and_then(|handle| message.get(handle)?.try_into().ok());
    let handle = handle.map_or(0, u64::from_be_bytes);
    let bytes = |handle: u64| sizes.get(&handle).copied().unwrap_or(1 << 40);
    match (procedure, arguments) {
        (Procedure::Getattr, _) => {
            answer::success(out, call.xid);
            put_u32(out, status::OK);
            attributes(out, bytes(handle));
        }
        (Procedure::Lookup, Arguments::Name { name, .. }) => {
            let found = below(handle, &message[name]);
            answer::success(out, call.xid);
            put_u32(out, status::OK);
            put_opaque(out, &found.to_be_bytes());
            put_bool(out, true);
            attributes(out, bytes(found));
            put_bool(out, false);
        }
        (Procedure::Access, _) => {
            answer::success(out, call.xid);
            for word in [status::OK, 0, 0x3f] {
                put_u32(out, word);
            }
        }
        (Procedure::Read, Arguments::Read { offset, count, .. }) => {
            let left = bytes(handle).saturating_sub(offset);
            let count = count.min(DATA_BYTES).min(u32::try_from(left).unwrap_or(u32::MAX));
            answer::success(out, call.xid);
            for word in [status::OK, 0, count, u32::from(u64::from(count) == left), count] {
                put_u32(out, word);
            }
            out.resize(out.len() + (count as usize).next_multiple_of(4), 0);
        }
        (Procedure::Fsinfo, _) => {
            answer::success(out, call.xid);
            put_u32(out, status::OK);
            put_bool(out, false);
            for size in [DATA_BYTES, DATA_BYTES, 512, DATA_BYTES, DATA_BYTES, 512, 8_192] {
                put_u32(out, size);
            }
            put_u64(out, 1 << 40);
            for word in [0, 1, 0x1b] {
                put_u32(out, word);
            }
        }
        _ => nfs3::failure(out, call.xid, procedure, status::NOTSUPP),
    }
}

fn attributes(out: &mut Vec<u8>, bytes: u64) {
    for word in [1, 0o644, 1, 0, 0] {
        put_u32(out, word);
    }
    for word in [bytes, bytes, 0, 1, 1, 0, 0, 0] {
        put_u64(out, word);
    }
}
