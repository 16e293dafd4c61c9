//! Stores and their connections: broken, restarted, made again; what goes over them.

use super::store::{From, Store};
use super::{Event, LATENCY, Shard, Sim};
use clockwork_placement::StoreId;
use clockwork_switch::{LinkId, Transport};
use std::time::Duration;

impl Sim {
    pub(crate) fn store(&mut self, store: StoreId) -> &mut Store {
        &mut self.stores[store.index()]
    }

    /// Runs of a procedure at all stores.
    pub(crate) fn runs(&self, procedure: clockwork_wire::nfs3::Procedure) -> usize {
        self.stores.iter().map(|store| store.runs(procedure)).sum()
    }

    /// Every connection to a store is lost; it did not restart.
    pub(crate) fn break_links(&mut self, store: StoreId) {
        for shard in 0..self.shards.len() {
            for link in 0..self.shards[shard].links.len() {
                if self.shards[shard].links[link].store == store {
                    self.break_link(shard, link);
                }
            }
        }
    }

    pub(crate) fn break_link(&mut self, shard: usize, link: usize) {
        let end = &mut self.shards[shard].links[link];
        if !end.up {
            return;
        }
        end.up = false;
        end.connection += 1;
        end.inbox.clear();
        // A reset throws away what the store has not read.
        self.stores[end.store.index()].waiting.retain(|(from, _)| (from.shard, from.link) != (shard, link));
        if !self.keeps_ports {
            self.ports += 1;
            end.port = self.ports;
        }
        let Shard { switch, out, .. } = &mut self.shards[shard];
        switch.link_down(self.now, LinkId(u16::try_from(link).unwrap()), out);
        self.deliver(shard);
        self.after(self.reconnect, Event::Connect(shard, link));
    }

    /// The store loses its memory and is there again at once. Streams break; datagrams tell nobody.
    pub(crate) fn restart(&mut self, store: StoreId) {
        self.stores[store.index()].restart(&mut self.cluster);
        if self.stores[store.index()].spec.transport == Transport::Stream {
            self.break_links(store);
        }
    }

    /// The store loses its memory and is there again at once; the shards notice it one after the other.
    pub(crate) fn restart_noticed_late(&mut self, store: StoreId, lag: Duration) {
        self.stores[store.index()].restart(&mut self.cluster);
        let mut wait = Duration::ZERO;
        for shard in 0..self.shards.len() {
            for link in 0..self.shards[shard].links.len() {
                let end = &self.shards[shard].links[link];
                if end.store == store && end.up {
                    self.after(wait, Event::Break(shard, link, end.connection));
                    wait += lag;
                }
            }
        }
    }

    /// The store loses its memory and stays away.
    pub(crate) fn crash(&mut self, store: StoreId) {
        self.stores[store.index()].alive = false;
        self.stores[store.index()].restart(&mut self.cluster);
        self.break_links(store);
    }

    pub(crate) fn revive(&mut self, store: StoreId) {
        self.stores[store.index()].alive = true;
    }

    /// What the store has been sent and has not done will not be done. Its memory stays.
    pub(crate) fn fence(&mut self, store: StoreId) {
        self.stores[store.index()].forget_begun();
        self.events.retain(
            |_, event| !matches!(event, Event::Arrive(_, to, _) | Event::Run(_, to, ..) if *to == store),
        );
    }

    /// The store goes on with what it has been sent.
    pub(crate) fn unhang(&mut self, store: StoreId) {
        let entry = &mut self.stores[store.index()];
        entry.hung = false;
        let waiting: Vec<_> = entry.waiting.drain(..).collect();
        for (from, message) in waiting {
            self.after(Duration::ZERO, Event::Arrive(from, store, message));
        }
    }

    pub(super) fn connect(&mut self, shard: usize, link: usize) {
        let end = &mut self.shards[shard].links[link];
        if !self.stores[end.store.index()].alive {
            self.after(self.reconnect, Event::Connect(shard, link));
            return;
        }
        end.up = true;
        end.incarnation = self.stores[end.store.index()].incarnation;
        let Shard { switch, out, .. } = &mut self.shards[shard];
        switch.link_up(self.now, LinkId(u16::try_from(link).unwrap()), out);
        self.deliver(shard);
    }

    pub(super) fn flush(&mut self, shard: usize, link: usize) {
        let Shard { switch, links, .. } = &mut self.shards[shard];
        let end = &mut links[link];
        if !end.up || end.blocked {
            return;
        }
        let store = end.store;
        let from =
            From { shard, link, connection: end.connection, incarnation: end.incarnation, port: end.port };
        let log = switch.log(LinkId(u16::try_from(link).unwrap()));
        let mut messages = Vec::new();
        match self.stores[store.index()].spec.transport {
            Transport::Datagram => {
                while let Some(message) = log.next_datagram().map(<[u8]>::to_vec) {
                    log.datagram_sent();
                    if !(self.loses)() {
                        messages.push(message);
                    }
                }
            }
            Transport::Stream => {
                while log.has_unsent() {
                    let mut slices = Vec::new();
                    log.unsent(&mut slices);
                    let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
                    log.sent(bytes.len());
                    end.inbox.extend_from_slice(&bytes);
                }
                take_records(&mut end.inbox, &mut messages);
            }
        }
        for message in messages {
            self.after(LATENCY, Event::Arrive(from, store, message));
        }
    }
}

fn take_records(inbox: &mut Vec<u8>, messages: &mut Vec<Vec<u8>>) {
    while let Some(mark) = inbox.first_chunk::<4>() {
        let word = u32::from_be_bytes(*mark);
        assert!(word >> 31 == 1, "stores are sent one fragment a record");
        let length = (word & 0x7fff_ffff) as usize;
        if inbox.len() < 4 + length {
            return;
        }
        messages.push(inbox[4..4 + length].to_vec());
        inbox.drain(..4 + length);
    }
}
