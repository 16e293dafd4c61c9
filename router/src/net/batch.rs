//! Replies on the shortest way: from the read buffer in which they lie to their client.

use super::datagrams::Datagram;
use super::mmsg;
use super::ports::{DIRECT_BYTES_MIN, Ports};
use clockwork_switch::duplicates::{ConnectionId, Origin};
use clockwork_switch::{Client, LinkId, Outlet};
use std::ops::Range;

/// Replies that lie side by side in a read buffer and go to the same client.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) slot: u32,
    pub(super) connection: ConnectionId,
    pub(super) bytes: Range<usize>,
}

/// A datagram client's reply in a read buffer.
#[derive(Debug)]
pub(super) struct DatagramRun {
    pub(super) socket: u16,
    pub(super) datagram: Datagram,
}

/// Where the replies of one read lie.
#[derive(Debug, Default)]
pub(super) struct Lists {
    runs: Vec<Run>,
    datagrams: Vec<DatagramRun>,
}

/// The outlet while a store's bytes are read: remembers where in the read buffer replies lie, so that those for one
/// client are written together and without a copy.
pub(crate) struct Batch<'a> {
    ports: &'a mut Ports,
    /// Address of the read buffer's first byte, and of the one behind its last: replies in it are known by their place.
    buffer: Range<usize>,
    lists: Lists,
    /// Bytes of `lists.datagrams`.
    datagram_bytes: usize,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(ports: &'a mut Ports) -> Self {
        let lists = std::mem::take(&mut ports.spare);
        Self { ports, buffer: 0..0, lists, datagram_bytes: 0 }
    }

    /// Says where the read buffer is. To be called before replies that may lie in it.
    pub(crate) fn lies_in(&mut self, buffer: &[u8]) {
        let start = buffer.as_ptr().addr();
        self.buffer = start..start + buffer.len();
    }

    /// Writes or queues the replies remembered. `buffer` is the read buffer.
    pub(crate) fn finish(&mut self, buffer: &[u8]) {
        let Self { ports, lists: Lists { runs, datagrams }, datagram_bytes, .. } = self;
        // By client, and each client's as they came: they lie in that order.
        runs.sort_unstable_by_key(|run| (run.connection.0, run.bytes.start));
        for runs in runs.chunk_by(|a, b| a.connection == b.connection) {
            ports.queue_runs(buffer, runs);
        }
        runs.clear();
        if *datagram_bytes >= DIRECT_BYTES_MIN {
            datagrams.sort_unstable_by_key(|run| (run.socket, run.datagram.to, run.datagram.bytes.start));
            for runs in datagrams.chunk_by(|a, b| a.socket == b.socket) {
                ports.send_runs(buffer, runs);
            }
        } else {
            for DatagramRun { socket, datagram } in datagrams.iter() {
                let bytes = buffer.get(datagram.bytes.clone()).unwrap_or_default();
                ports.queue_datagram(datagram.to, *socket, datagram.from, bytes);
            }
        }
        datagrams.clear();
        *datagram_bytes = 0;
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        // Their room serves the next read.
        self.lists.runs.clear();
        self.lists.datagrams.clear();
        self.ports.spare = std::mem::take(&mut self.lists);
    }
}

impl Outlet for Batch<'_> {
    fn reply(&mut self, client: &Client, record: &[u8]) {
        let at = record.as_ptr().addr();
        if !self.buffer.contains(&at) {
            // Made by the router, out of turn: no client asks for an order among replies.
            return self.ports.reply(client, record);
        }
        let start = at - self.buffer.start;
        let end = start + record.len();
        match *client {
            Client::Stream { connection, slot, reply_bytes, .. } => {
                self.ports.replied_stream(slot, connection, reply_bytes);
                match self.lists.runs.last_mut() {
                    Some(run) if run.connection == connection && run.bytes.end == start => {
                        run.bytes.end = end;
                    }
                    _ => self.lists.runs.push(Run { slot, connection, bytes: start..end }),
                }
            }
            Client::Datagram { peer, socket, local } => {
                let bytes = start + mmsg::HEADROOM..end;
                if bytes.len() > mmsg::DATAGRAM_BYTES_MAX {
                    self.ports.counters.datagrams_too_large += 1;
                    return;
                }
                self.datagram_bytes += bytes.len();
                let datagram = Datagram { bytes, to: peer, from: local };
                self.lists.datagrams.push(DatagramRun { socket, datagram });
            }
        }
    }

    fn mail(&mut self, waiter: &Origin, record: &[u8]) {
        self.ports.mail(waiter, record);
    }

    fn wake(&mut self, link: LinkId) {
        self.ports.wake(link);
    }
}
