//! HTTP requests as the NFS calls of web servers whose files are on an NFS mount: a client with caches, as Linux has them.
//!
//! To answer a request the server opens the file by its path and reads it. What the client's caches hold needs no call:
//!
//! - *Names*: a name that was looked up is valid while its directory is unchanged. A directory is known to be unchanged
//!   while its attributes are fresh; then one GETATTR makes them, and all names in it, fresh again.
//! - *Attributes* are fresh for a time that begins at the least and doubles, up to the greatest, whenever they are found
//!   unchanged after it has passed (Linux: `acregmin` 3 s to `acregmax` 60 s for files, `acdirmin` 30 s to `acdirmax` 60 s
//!   for directories; `actimeo` sets all four). Every reply that carries attributes makes them fresh.
//! - *Close to open*: opening a file asks for its attributes, fresh or not, unless a LOOKUP has just brought them. With
//!   `nocto` fresh attributes are believed.
//! - *Access* is asked for once for each file and directory (the clients have one credential), and again when the entry
//!   was forgotten.
//! - *Data*: the file is read in order, `read_bytes` a READ, to its end or to the bytes that the log says were sent. With
//!   `data_bytes_max` above 0 the client keeps what it has read, and does not read it again until another client has written
//!   the file.
//! - *Writes*: a request that writes opens the file in the same way, then writes it from its beginning to the bytes that the log
//!   says were taken, and to its end at most, `write_bytes` a WRITE; at last it makes sure that the data is safe
//!   ([`WriteSync`]). The size stays what it is, so that whoever reads can check it.
//!
//! The calls of a request are made as a client makes them: each when the one before it is answered, but the READs of a file
//! with as many on their way as `read_ahead_bytes` hold, and so the WRITEs. Requests come at their times whatever becomes of
//! others. With `call_gap_ms` calls of requests that read are made at fixed distances instead.
//!
//! So the calls of a request, where nothing is known, are for a file `a/f`: ACCESS of the root, LOOKUP and ACCESS of `a`,
//! LOOKUP and ACCESS of `a/f`, and its READs.
//!
//! The caches live in the time of the replay, as those of real clients would that get these requests: where an hour of the
//! trace becomes five seconds, an entry that is fresh for a minute is so for twelve hours of the trace.

use super::Operation;
use super::chain::Ask;
use super::expand::put_writes;
use super::recent::Recent;
use super::tree::Tree;
use clockwork_wire::nfs3::Class;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Most model clients.
pub const CLIENTS_MAX: u32 = 4_096;

/// How long attributes are believed, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AttributeTimes {
    /// Files: at first.
    pub file_min_s: f64,
    /// Files: at most.
    pub file_max_s: f64,
    /// Directories: at first.
    pub directory_min_s: f64,
    /// Directories: at most.
    pub directory_max_s: f64,
}

impl Default for AttributeTimes {
    fn default() -> Self {
        Self { file_min_s: 3.0, file_max_s: 60.0, directory_min_s: 30.0, directory_max_s: 60.0 }
    }
}

impl AttributeTimes {
    /// The same time for all, as the mount option `actimeo`.
    #[must_use]
    pub fn all(seconds: f64) -> Self {
        Self { file_min_s: seconds, file_max_s: seconds, directory_min_s: seconds, directory_max_s: seconds }
    }

    /// Whether all are times, and none at first longer than at most.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let sound = |min: f64, max: f64| (0.0..=max).contains(&min) && max <= 1e9;
        sound(self.file_min_s, self.file_max_s) && sound(self.directory_min_s, self.directory_max_s)
    }
}

/// What makes written data safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WriteSync {
    /// As Linux at the close of a file: one WRITE alone is FILE_SYNC; several are UNSTABLE, with a COMMIT behind them.
    #[default]
    Linux,
    /// UNSTABLE and COMMIT, also of one WRITE.
    Commit,
    /// FILE_SYNC, each.
    Each,
}

/// Web servers on NFS clients.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct HttpClients {
    /// How many, at most [`CLIENTS_MAX`]. Each has caches of its own; requests go to them by lot. Client n uses connection
    /// n modulo their number.
    pub clients: u32,
    /// Bytes of a READ (`rsize`); less if the server takes less.
    pub read_bytes: u32,
    /// Bytes of a WRITE (`wsize`); less if the server takes less.
    pub write_bytes: u32,
    /// What makes written data safe.
    pub write_sync: WriteSync,
    /// Bytes of a file that READs, or WRITEs, on their way may be for together; one is always made.
    pub read_ahead_bytes: u32,
    /// How long attributes are believed.
    pub attributes: AttributeTimes,
    /// Fresh attributes are believed when a file is opened, too.
    pub nocto: bool,
    /// Names with their attributes that all clients together remember; each has an equal part, and forgets what it has not
    /// used for longest.
    pub cache_entries_max: u64,
    /// Bytes of data that all clients together keep; likewise. 0: every request reads its file.
    pub data_bytes_max: u64,
    /// Time between the calls of one request that reads, in ms; none: each follows the reply to the one before it.
    pub call_gap_ms: Option<u32>,
}

impl Default for HttpClients {
    fn default() -> Self {
        Self {
            clients: 4,
            read_bytes: 32 << 10,
            write_bytes: 32 << 10,
            write_sync: WriteSync::Linux,
            read_ahead_bytes: 128 << 10,
            attributes: AttributeTimes::default(),
            nocto: false,
            cache_entries_max: 1_000_000,
            data_bytes_max: 0,
            call_gap_ms: None,
        }
    }
}

/// What a call is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Node {
    /// A file by its index in the workload.
    File(u32),
    /// A directory by its number in the [`Tree`].
    Directory(u32),
}

/// A request for one file at one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    /// Its number, higher than those of all before it.
    pub(super) number: u64,
    pub(super) file: u32,
    pub(super) class: Class,
    /// Bytes to be sent, or taken.
    pub(super) bytes: u64,
    pub(super) at: Duration,
    /// The last request of another client that wrote the file; 0 if there was none.
    pub(super) changed: u64,
}

/// Time between two calls of a request, as far as the caches are concerned, where it is not fixed.
const CALL_GAP_ASSUMED_MS: u32 = 1;

/// A name that a client knows.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// The request that looked it up.
    since: u64,
    may_access: bool,
    fresh_from: Duration,
    fresh_for: Duration,
    /// When `fresh_for` was set.
    set_at: Duration,
}

/// The caches of one client.
#[derive(Debug)]
pub(super) struct Client {
    setting: HttpClients,
    /// The root of the mount is never forgotten.
    root: Option<Entry>,
    names: Recent<Node, Entry>,
    /// Bytes of each file, from its beginning on, and the request that read them.
    data: Recent<u32, (u64, u64)>,
}

impl Client {
    pub(super) fn new(setting: HttpClients) -> Self {
        let part = |all: u64| all / u64::from(setting.clients.max(1));
        Self {
            setting,
            root: None,
            names: Recent::new(part(setting.cache_entries_max).max(2)),
            data: Recent::new(part(setting.data_bytes_max)),
        }
    }

    /// The calls of a request, in order, appended to `asks`.
    pub(super) fn request(
        &mut self,
        tree: &Tree,
        request: &Request,
        walk: &mut Vec<u32>,
        asks: &mut Vec<Ask>,
    ) {
        tree.walk(request.file, walk);
        let root = Node::Directory(Tree::ROOT);
        self.entry(root, request);
        self.access(root, request, asks);
        let mut parent = root;
        for directory in walk.iter() {
            let node = Node::Directory(*directory);
            self.find(parent, node, request, asks);
            self.access(node, request, asks);
            parent = node;
        }
        let file = Node::File(request.file);
        let looked_up = self.find(parent, file, request, asks);
        let now = self.now(request, asks);
        let must_ask = !self.setting.nocto || !self.entry(file, request).is_fresh(now);
        if !looked_up && must_ask {
            self.ask(Operation::Getattr, file, request, asks);
        }
        self.access(file, request, asks);
        match request.class {
            Class::Read => self.read(request, asks),
            Class::Write => self.write(request, asks),
            Class::Metadata => {}
        }
    }

    /// A handle is stale: what is known of it since the request `number` or before is forgotten.
    pub(super) fn stale(&mut self, node: Node, number: u64) {
        if self.names.get(node).is_some_and(|entry| entry.since <= number) {
            self.names.remove(node);
            if let Node::File(file) = node {
                self.data.remove(file);
            }
        }
    }

    /// Entries forgotten because a limit was reached.
    pub(super) fn evicted(&self) -> u64 {
        self.names.evicted
    }

    fn now(&self, request: &Request, asks: &[Ask]) -> Duration {
        let gap_ms = self.setting.call_gap_ms.unwrap_or(CALL_GAP_ASSUMED_MS);
        let gap = Duration::from_millis(u64::from(gap_ms));
        request.at + gap * u32::try_from(asks.len()).unwrap_or(u32::MAX)
    }

    /// What is known of a node; if nothing is, it is as if it had just been looked up.
    fn entry(&mut self, node: Node, request: &Request) -> &mut Entry {
        let times = self.setting.attributes;
        let least = match node {
            Node::File(_) => times.file_min_s,
            Node::Directory(_) => times.directory_min_s,
        };
        let new = Entry {
            since: request.number,
            may_access: false,
            fresh_from: request.at,
            fresh_for: Duration::from_secs_f64(least),
            set_at: request.at,
        };
        if node == Node::Directory(Tree::ROOT) {
            return self.root.get_or_insert(new);
        }
        self.names.get_or_insert(node, new, 1)
    }

    /// Makes sure that a name is valid; whether it had to be looked up.
    fn find(&mut self, parent: Node, node: Node, request: &Request, asks: &mut Vec<Ask>) -> bool {
        if self.names.get(node).is_none() {
            let now = self.now(request, asks);
            self.push(Operation::Lookup, node, asks);
            let entry = self.entry(node, request);
            (entry.fresh_from, entry.set_at) = (now, now);
            // The reply has the directory's attributes, too.
            self.renew(parent, now, request);
            return true;
        }
        let now = self.now(request, asks);
        if !self.entry(parent, request).is_fresh(now) {
            self.ask(Operation::Getattr, parent, request, asks);
        }
        false
    }

    fn access(&mut self, node: Node, request: &Request, asks: &mut Vec<Ask>) {
        if !std::mem::replace(&mut self.entry(node, request).may_access, true) {
            self.ask(Operation::Access, node, request, asks);
        }
    }

    fn read(&mut self, request: &Request, asks: &mut Vec<Ask>) {
        let is_there = |(bytes, since): &mut (u64, u64)| *bytes >= request.bytes && *since >= request.changed;
        if self.data.get(request.file).is_some_and(is_there) {
            return;
        }
        let piece = self.setting.read_bytes.max(1);
        let plain = Ask::plain(Operation::Read, Node::File(request.file));
        let mut offset = 0;
        while offset < request.bytes {
            let count = u32::try_from(request.bytes - offset).unwrap_or(u32::MAX).min(piece);
            let now = self.now(request, asks);
            // The first READ waits for what stands before it.
            let at_once = if offset == 0 { 1 } else { self.at_once(piece) };
            asks.push(Ask { offset, count, at_once, ..plain });
            offset += u64::from(count);
            self.renew(Node::File(request.file), now, request);
        }
        if self.setting.data_bytes_max > 0 && request.bytes > 0 {
            self.data.insert(request.file, (request.bytes, request.number), request.bytes);
        }
    }

    fn write(&mut self, request: &Request, asks: &mut Vec<Ask>) {
        let (node, piece) = (Node::File(request.file), self.setting.write_bytes.max(1));
        put_writes(asks, node, request.bytes, (piece, self.at_once(piece)), self.setting.write_sync);
        let now = self.now(request, asks);
        self.renew(node, now, request);
    }

    /// Pieces that may be on their way together.
    fn at_once(&self, piece: u32) -> u32 {
        (self.setting.read_ahead_bytes / piece).max(1)
    }

    fn push(&self, operation: Operation, node: Node, asks: &mut Vec<Ask>) {
        asks.push(Ask::plain(operation, node));
    }

    /// A call whose reply brings the node's attributes.
    fn ask(&mut self, operation: Operation, node: Node, request: &Request, asks: &mut Vec<Ask>) {
        let now = self.now(request, asks);
        self.push(operation, node, asks);
        self.renew(node, now, request);
    }

    fn renew(&mut self, node: Node, now: Duration, request: &Request) {
        let times = self.setting.attributes;
        let most = match node {
            Node::File(_) => times.file_max_s,
            Node::Directory(_) => times.directory_max_s,
        };
        self.entry(node, request).renew(now, Duration::from_secs_f64(most));
    }
}

impl Entry {
    fn is_fresh(&self, now: Duration) -> bool {
        now < self.fresh_from + self.fresh_for
    }

    /// Attributes came, unchanged.
    fn renew(&mut self, now: Duration, most: Duration) {
        self.fresh_from = now;
        if now >= self.set_at + self.fresh_for {
            (self.fresh_for, self.set_at) = ((self.fresh_for * 2).min(most), now);
        }
    }
}

#[cfg(test)]
mod tests;
