//! Who uses a simulated plex, clients, and who runs it, the operator.

use super::{MS, Peer, Shard, Sim, book};
use clockwork_placement::{Assignment, Replica, StoreEntry, StoreId, StoreState};
use clockwork_switch::duplicates::ConnectionId;
use clockwork_switch::time::Time;
use clockwork_switch::{Client, Transport, Verdict};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

impl Sim {
    /// Opens a TCP connection to a shard.
    pub(crate) fn stream(&mut self, shard: usize, host: u8) -> Peer {
        self.connections += 1;
        let connection = ConnectionId(self.connections);
        self.open.insert(self.connections, shard);
        self.shards[shard].switch.client_opened(connection);
        let address = IpAddr::V4(Ipv4Addr::new(192, 0, 2, host));
        let slot = u32::try_from(self.connections).unwrap();
        Peer { shard, client: Client::Stream { connection, slot, address, reply_bytes: 0 } }
    }

    pub(crate) fn close(&mut self, peer: Peer) {
        let Client::Stream { connection, .. } = peer.client else { panic!("a port is not closed") };
        self.open.remove(&connection.0);
        self.shards[peer.shard].switch.client_closed(connection);
    }

    /// A UDP port of a client.
    #[expect(clippy::unused_self, reason = "as for connections")]
    pub(crate) fn datagram(&mut self, shard: usize, host: u8, port: u16) -> Peer {
        let peer = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, host)), port);
        Peer { shard, client: Client::Datagram { peer, socket: 0, local: None } }
    }

    pub(crate) fn send(&mut self, peer: Peer, message: &[u8]) -> Verdict {
        self.send_from(peer, true, message)
    }

    /// The access rules may have let the client in or not.
    pub(crate) fn send_from(&mut self, peer: Peer, admitted: bool, message: &[u8]) -> Verdict {
        let mut message = message.to_vec();
        let Shard { switch, out, .. } = &mut self.shards[peer.shard];
        let verdict = switch.call(self.now, &peer.client, admitted, &mut message, out);
        self.deliver(peer.shard);
        verdict
    }

    /// The replies that a client has had to an XID.
    pub(crate) fn replies(&self, peer: Peer, xid: u32) -> Vec<&[u8]> {
        let all = self.replies.get(&(book(&peer.client), xid));
        all.map(|all| all.iter().map(|(_, message)| &message[..]).collect()).unwrap_or_default()
    }

    /// The one reply that a client has had to an XID.
    pub(crate) fn reply(&self, peer: Peer, xid: u32) -> &[u8] {
        match self.replies(peer, xid)[..] {
            [reply] => reply,
            ref replies => panic!("{} replies to XID {xid} instead of one", replies.len()),
        }
    }

    /// When that reply came.
    pub(crate) fn replied_at(&self, peer: Peer, xid: u32) -> Time {
        self.reply(peer, xid);
        self.replies[&(book(&peer.client), xid)][0].0
    }

    /// Sends a call, waits for its reply.
    pub(crate) fn ask(&mut self, peer: Peer, message: &[u8]) -> Vec<u8> {
        let xid = clockwork_wire::rpc::xid(message).unwrap();
        let before = self.replies(peer, xid).len();
        self.send(peer, message);
        for _ in 0..1200 {
            if let Some(reply) = self.replies(peer, xid).get(before) {
                return reply.to_vec();
            }
            self.run_for(50 * MS);
        }
        panic!("no reply to XID {xid} within a minute");
    }

    pub(crate) fn place(&mut self) -> usize {
        self.shared.place(&self.wanted).unwrap()
    }

    /// Assigns a file to a store; how many pinned files have stayed.
    pub(crate) fn assign(&mut self, handle: &[u8], store: StoreId) -> usize {
        self.wanted = self.wanted.with_exception(handle, store).unwrap();
        self.place()
    }

    /// Replicates a file on these stores, the home first, in equal shares; how many pinned files have stayed.
    pub(crate) fn replicate(&mut self, handle: &[u8], stores: &[StoreId]) -> usize {
        let replicas = stores.iter().map(|store| Replica { store: *store, share: 1.0 }).collect();
        let file = Assignment { handle: handle.into(), replicas };
        let all = self.wanted.assignments().chain([file]);
        self.wanted = self.wanted.with_assignments(all).unwrap();
        self.place()
    }

    pub(crate) fn set_stores(&mut self, change: impl Fn(usize, &mut StoreEntry)) -> usize {
        let mut stores = self.wanted.stores().to_vec();
        stores.iter_mut().enumerate().for_each(|(i, entry)| change(i, entry));
        self.wanted = self.wanted.with_stores(stores).unwrap();
        self.place()
    }

    /// The health checks have found a store dead: it gets no calls, and its connections are reset.
    pub(crate) fn eject(&mut self, store: StoreId) {
        self.set_stores(|i, entry| {
            if i == store.index() {
                entry.state = StoreState::Down;
            }
        });
        for shard in 0..self.shards.len() {
            let Shard { switch, out, .. } = &mut self.shards[shard];
            switch.store_lost(self.now, store, out);
            self.deliver(shard);
        }
        if self.stores[store.index()].spec.transport == Transport::Stream {
            self.break_links(store);
        }
    }

    pub(crate) fn readmit(&mut self, store: StoreId) {
        self.set_stores(|i, entry| {
            if i == store.index() {
                entry.state = StoreState::Up;
            }
        });
    }
}
