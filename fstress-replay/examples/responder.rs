//! A server that answers MOUNT, FSINFO, LOOKUP and GETATTR from memory, as fast as it can: what is measured against it is the
//! load generator. `responder [ADDRESS:PORT]`
#![allow(missing_docs, reason = "a program")]

use clockwork_wire::nfs3::{self, Arguments, Procedure, status};
use clockwork_wire::record::{Progress, RecordLimits, RecordReader, mark};
use clockwork_wire::xdr::{put_bool, put_opaque, put_u32, put_u64};
use clockwork_wire::{answer, mount, rpc};
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};

const READ_BYTES: usize = 256 << 10;

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:20490".into());
    let (listener, socket) = (TcpListener::bind(&address)?, UdpSocket::bind(&address)?);
    std::thread::spawn(move || datagrams(&socket));
    for stream in listener.incoming() {
        let stream = stream?;
        // A connection that ends, however it ends, is no concern of the others.
        std::thread::spawn(move || drop(connection(stream)));
    }
    Ok(())
}

fn datagrams(socket: &UdpSocket) {
    let (mut call, mut reply) = (vec![0; 65_536], Vec::new());
    loop {
        let Ok((length, from)) = socket.recv_from(&mut call) else { continue };
        reply.clear();
        respond(&call[..length], &mut reply);
        // A reply that cannot be sent is a lost datagram.
        let _ = socket.send_to(&reply, from);
    }
}

fn connection(mut stream: TcpStream) -> io::Result<()> {
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
            respond(&received[begin + 4..begin + end], &mut replies);
            let marked = mark(replies.len() - at - 4);
            replies[at..at + 4].copy_from_slice(&marked);
            begin += consumed;
        }
        received.drain(..begin);
        stream.write_all(&replies)?;
        replies.clear();
    }
}

/// Every name is there: its handle is a hash of it. Every file is a directory for whoever looks something up in it.
fn respond(message: &[u8], out: &mut Vec<u8>) {
    let Ok(call) = rpc::parse_call(message) else { return };
    if call.program == mount::PROGRAM {
        return mount::mnt_ok(out, call.xid, &1_u64.to_be_bytes(), &[rpc::AUTH_SYS]);
    }
    let Some(procedure) = Procedure::from_u32(call.procedure) else { return answer::success(out, call.xid) };
    let Ok(arguments) = nfs3::arguments(procedure, message, call.arguments) else { return };
    match (procedure, arguments) {
        (Procedure::Getattr, _) => {
            answer::success(out, call.xid);
            put_u32(out, status::OK);
            attributes(out);
        }
        (Procedure::Lookup, Arguments::Name { name, .. }) => {
            let hash = message[name]
                .iter()
                .fold(2_u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(*byte)));
            answer::success(out, call.xid);
            put_u32(out, status::OK);
            put_opaque(out, &hash.to_be_bytes());
            put_bool(out, true);
            attributes(out);
            put_bool(out, false);
        }
        (Procedure::Fsinfo, _) => {
            answer::success(out, call.xid);
            put_u32(out, status::OK);
            put_bool(out, false);
            for size in [65_536, 65_536, 512, 65_536, 65_536, 512, 8_192] {
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

fn attributes(out: &mut Vec<u8>) {
    for word in [1, 0o644, 1, 0, 0] {
        put_u32(out, word);
    }
    for word in [1 << 40, 1 << 20, 0, 1, 1, 0, 0, 0] {
        put_u64(out, word);
    }
}
