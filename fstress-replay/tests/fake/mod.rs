//! A small NFS and MOUNT server in memory, over TCP and UDP on one port, that misbehaves as told and remembers what arrived.

use clockwork_wire::nfs3::{self, Arguments, Procedure, status};
use clockwork_wire::record::{LAST_FRAGMENT, Progress, RecordLimits, RecordReader, mark};
use clockwork_wire::xdr::{put_bool, put_opaque, put_u32, put_u64};
use clockwork_wire::{answer, mount, rpc};
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::mpsc;

/// What the server does besides answering.
#[derive(Debug, Clone, Default)]
pub(crate) struct Habits {
    /// Every answer comes this much after its call.
    pub(crate) delay: Duration,
    /// No answer is given to READ.
    pub(crate) mute_reads: bool,
    /// Over UDP, the first transmission of every n-th call is lost.
    pub(crate) lose_every: u32,
    /// Over TCP, a connection is closed after it has brought this many calls (once, the first one that reaches it).
    pub(crate) close_after: Option<u64>,
    /// Replies over TCP come in fragments of this many bytes, with an empty one before each.
    pub(crate) fragment_bytes: Option<usize>,
    /// READ gives wrong data for this path.
    pub(crate) spoil: Option<String>,
    /// What is written to this path is taken and forgotten.
    pub(crate) forget: Option<String>,
    /// GETATTR of this path is answered with STALE.
    pub(crate) stale: Option<String>,
    /// The verifier changes before the first so many COMMITs.
    pub(crate) forget_commits: u32,
    /// Every WRITE is safe before its reply, whatever was asked for.
    pub(crate) always_safe: bool,
    /// While this is in the future, nothing is answered.
    pub(crate) stall_until: Option<Instant>,
}

/// A call as it arrived.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrived {
    pub(crate) at: Instant,
    pub(crate) xid: u32,
    pub(crate) program: u32,
    pub(crate) procedure: u32,
    /// The file or directory that a call of NFS is about.
    pub(crate) handle: u64,
    /// When it was answered, or will be.
    pub(crate) answered_at: Instant,
}

#[derive(Debug, Default)]
struct Node {
    path: String,
    children: BTreeMap<String, u64>,
    data: Option<Vec<u8>>,
}

/// The server.
#[derive(Clone)]
pub(crate) struct Fake {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
}

struct State {
    habits: Habits,
    nodes: HashMap<u64, Node>,
    next: u64,
    verifier: u64,
    arrived: Vec<Arrived>,
    lost: HashMap<u32, u32>,
}

impl Fake {
    /// Starts a server on a free port of 127.0.0.1, which exports an empty directory as `/export`.
    pub(crate) async fn start(habits: Habits) -> Self {
        let (listener, socket) = loop {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            if let Ok(socket) = UdpSocket::bind(address).await {
                break (listener, socket);
            }
        };
        let mut nodes = HashMap::new();
        nodes.insert(1, Node::default());
        let (arrived, lost) = (Vec::new(), HashMap::new());
        let state = State { habits, nodes, next: 2, verifier: 7, arrived, lost };
        let fake = Self { address: listener.local_addr().unwrap(), state: Arc::new(Mutex::new(state)) };
        tokio::spawn(fake.clone().accept(listener));
        tokio::spawn(fake.clone().datagrams(Arc::new(socket)));
        fake
    }

    /// Changes what the server does.
    pub(crate) fn habits(&self, change: impl FnOnce(&mut Habits)) {
        change(&mut self.lock().habits);
    }

    /// A file or directory gets a new handle, as if another had been renamed to its name: the old one is stale.
    pub(crate) fn replace(&self, path: &str) {
        let mut state = self.lock();
        let old = *state.nodes.iter().find(|(_, node)| node.path == path).unwrap().0;
        let new = state.next;
        state.next += 1;
        let node = state.nodes.remove(&old).unwrap();
        state.nodes.insert(new, node);
        let children = state.nodes.values_mut().flat_map(|node| node.children.values_mut());
        children.filter(|child| **child == old).for_each(|child| *child = new);
    }

    /// The NFS calls of a procedure that arrived, retransmissions included; forgets nothing.
    pub(crate) fn arrived(&self, procedure: Procedure) -> Vec<Arrived> {
        let all = self.lock().arrived.clone();
        all.into_iter().filter(|a| a.program == nfs3::PROGRAM && a.procedure == procedure.number()).collect()
    }

    /// All calls that arrived.
    pub(crate) fn all_arrived(&self) -> Vec<Arrived> {
        self.lock().arrived.clone()
    }

    /// Forgets the calls that arrived so far.
    pub(crate) fn forget(&self) {
        self.lock().arrived.clear();
    }

    /// First transmissions that were lost.
    pub(crate) fn lost(&self) -> usize {
        self.lock().lost.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    async fn accept(self, listener: TcpListener) {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(self.clone().connection(stream));
        }
    }

    async fn connection(self, stream: TcpStream) {
        let (mut reader, mut writer) = stream.into_split();
        let (sender, mut replies) = mpsc::unbounded_channel::<Vec<u8>>();
        let fragment_bytes = self.lock().habits.fragment_bytes;
        tokio::spawn(async move {
            while let Some(reply) = replies.recv().await {
                if writer.write_all(&framed(&reply, fragment_bytes)).await.is_err() {
                    return;
                }
            }
        });
        let mut records = RecordReader::new(RecordLimits::default());
        let (mut buffer, mut calls) = (Vec::new(), 0);
        loop {
            while let Ok(Progress::Record { end, consumed }) = records.next(&mut buffer) {
                let call = buffer[4..end].to_vec();
                buffer.drain(..consumed);
                calls += 1;
                if self.lock().habits.close_after.take_if(|limit| calls >= *limit).is_some() {
                    return;
                }
                let sender = sender.clone();
                self.answer_later(call, false, move |reply| drop(sender.send(reply)));
            }
            match reader.read_buf(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }

    async fn datagrams(self, socket: Arc<UdpSocket>) {
        let mut buffer = vec![0; 65_536];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            let socket = Arc::clone(&socket);
            self.answer_later(buffer[..length].to_vec(), true, move |reply| {
                tokio::spawn(async move { socket.send_to(&reply, from).await });
            });
        }
    }

    fn answer_later(&self, message: Vec<u8>, datagram: bool, reply: impl FnOnce(Vec<u8>) + Send + 'static) {
        let at = Instant::now();
        let call = rpc::parse_call(&message).unwrap();
        let wait_until = {
            let mut state = self.lock();
            let (xid, program, procedure) = (call.xid, call.program, call.procedure);
            let answered_at = (at + state.habits.delay).max(state.habits.stall_until.unwrap_or(at));
            let handle = message.get(call.arguments + 4..).map_or(0, |rest| id(&rest[..rest.len().min(8)]));
            state.arrived.push(Arrived { at, xid, program, procedure, handle, answered_at });
            if datagram && state.loses(xid) {
                return;
            }
            if state.habits.mute_reads && procedure == Procedure::Read.number() {
                return;
            }
            answered_at
        };
        let fake = self.clone();
        tokio::spawn(async move {
            if wait_until > at {
                tokio::time::sleep_until(wait_until.into()).await;
            }
            let mut out = Vec::new();
            fake.lock().answer(&message, &call, &mut out);
            reply(out);
        });
    }
}

fn framed(reply: &[u8], fragment_bytes: Option<usize>) -> Vec<u8> {
    let Some(size) = fragment_bytes else { return [&mark(reply.len())[..], reply].concat() };
    let mut out = Vec::new();
    let count = reply.len().div_ceil(size);
    for (index, piece) in reply.chunks(size).enumerate() {
        let last = if index + 1 == count { LAST_FRAGMENT } else { 0 };
        out.extend([0; 4]);
        out.extend((u32::try_from(piece.len()).unwrap() | last).to_be_bytes());
        out.extend(piece);
    }
    out
}

fn words(out: &mut Vec<u8>, words: &[u32]) {
    words.iter().for_each(|word| put_u32(out, *word));
}

fn id(handle: &[u8]) -> u64 {
    handle.try_into().map(u64::from_be_bytes).unwrap_or(0)
}

impl State {
    fn loses(&mut self, xid: u32) -> bool {
        let every = self.habits.lose_every;
        if every == 0 || self.lost.contains_key(&xid) || !xid.is_multiple_of(every) {
            return false;
        }
        self.lost.insert(xid, 1);
        true
    }

    fn answer(&mut self, message: &[u8], call: &rpc::Call, out: &mut Vec<u8>) {
        match (call.program, call.procedure) {
            (mount::PROGRAM, 1) => {
                let path = mount::path(message, call.arguments).unwrap();
                match &message[path] {
                    b"/export" => mount::mnt_ok(out, call.xid, &1_u64.to_be_bytes(), &[rpc::AUTH_SYS]),
                    _ => mount::mnt_failed(out, call.xid, mount::status::NOENT),
                }
            }
            (nfs3::PROGRAM, 0) => answer::success(out, call.xid),
            (nfs3::PROGRAM, number) => {
                let procedure = Procedure::from_u32(number).unwrap();
                let arguments = nfs3::arguments(procedure, message, call.arguments).unwrap();
                let begin = out.len();
                answer::success(out, call.xid);
                if let Err(status) = self.nfs(procedure, message, &arguments, out) {
                    out.truncate(begin);
                    nfs3::failure(out, call.xid, procedure, status);
                }
            }
            _ => answer::prog_unavail(out, call.xid),
        }
    }

    fn nfs(
        &mut self,
        procedure: Procedure,
        message: &[u8],
        arguments: &Arguments,
        out: &mut Vec<u8>,
    ) -> Result<(), u32> {
        let handle = id(&message[arguments.handle().unwrap()]);
        let node = self.nodes.get_mut(&handle).ok_or(status::STALE)?;
        if procedure == Procedure::Getattr && self.habits.stale.as_ref() == Some(&node.path) {
            return Err(status::STALE);
        }
        put_u32(out, status::OK);
        match (procedure, arguments) {
            (Procedure::Getattr, _) => self.attributes(handle, out),
            (Procedure::Access, _) => {
                put_bool(out, false);
                put_u32(out, 1);
            }
            (Procedure::Fsinfo, _) => {
                put_bool(out, false);
                for size in [65_536, 65_536, 512, 65_536, 8_192, 512, 8_192] {
                    put_u32(out, size);
                }
                put_u64(out, 1 << 40);
                words(out, &[1, 0, 0x1b]);
            }
            (Procedure::Lookup, Arguments::Name { name, .. }) => {
                let name = std::str::from_utf8(&message[name.clone()]).unwrap();
                let found = *node.children.get(name).ok_or(status::NOENT)?;
                put_opaque(out, &found.to_be_bytes());
                put_bool(out, true);
                self.attributes(found, out);
                put_bool(out, false);
            }
            (_, Arguments::Make { name, .. }) if procedure != Procedure::Mknod => {
                let name = std::str::from_utf8(&message[name.clone()]).unwrap();
                let data = (procedure == Procedure::Create).then(Vec::new);
                if data.is_none() && node.children.contains_key(name) {
                    return Err(status::EXIST);
                }
                let path = format!("{}/{name}", node.path).trim_start_matches('/').to_owned();
                let new = *node.children.entry(name.to_owned()).or_insert(self.next);
                self.next += 1;
                let node = self.nodes.entry(new).or_insert(Node { path, ..Node::default() });
                node.data = data;
                put_bool(out, true);
                put_opaque(out, &new.to_be_bytes());
                words(out, &[0, 0, 0]);
            }
            (_, Arguments::Read { offset, count, .. }) => {
                let data = node.data.as_ref().ok_or(status::ISDIR)?;
                let begin = usize::try_from(*offset).unwrap().min(data.len());
                let end = (begin + *count as usize).min(data.len());
                let mut piece = data[begin..end].to_vec();
                if self.habits.spoil.as_ref() == Some(&node.path) {
                    piece.iter_mut().take(1).for_each(|byte| *byte ^= 1);
                }
                put_bool(out, false);
                put_u32(out, u32::try_from(piece.len()).unwrap());
                put_bool(out, end == data.len());
                put_opaque(out, &piece);
            }
            (_, Arguments::Write { offset, data, stable, .. }) => {
                let bytes = &message[data.clone()];
                let file = node.data.as_mut().ok_or(status::ISDIR)?;
                let begin = usize::try_from(*offset).unwrap();
                if self.habits.forget.as_ref() != Some(&node.path) {
                    file.resize(file.len().max(begin + bytes.len()), 0);
                    file[begin..begin + bytes.len()].copy_from_slice(bytes);
                }
                let committed = if self.habits.always_safe { 2 } else { *stable };
                words(out, &[0, 0, u32::try_from(bytes.len()).unwrap(), committed]);
                put_u64(out, self.verifier);
            }
            (Procedure::Commit, _) => {
                if self.habits.forget_commits > 0 {
                    self.habits.forget_commits -= 1;
                    self.verifier += 1;
                }
                words(out, &[0, 0]);
                put_u64(out, self.verifier);
            }
            _ => return Err(status::NOTSUPP),
        }
        Ok(())
    }

    fn attributes(&self, id: u64, out: &mut Vec<u8>) {
        let data = self.nodes[&id].data.as_ref();
        let size = data.map_or(4096, |data| data.len() as u64);
        words(out, &[if data.is_some() { 1 } else { 2 }, 0o755, 1, 0, 0]);
        for word in [size, size, 0, 1, id, 0, 0, 0] {
            put_u64(out, word);
        }
    }
}
