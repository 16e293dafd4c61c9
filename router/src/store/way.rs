//! What a client sees of a service time beyond it: the way of a call and its reply between two processes of this machine.
//!
//! Two messages and two wake-ups are as long as a tenth of half a millisecond, and differ from minute to minute. They are
//! measured when the first store with a device starts, and then for as long as a store has calls, by a client of its own on
//! a connection of its own, whose calls take as long as those of others (whoever has slept for longer wakes more slowly).
//! What such a call took beyond the time that it was with the store is the way. Devices let replies go earlier by its mean.
//! Clients on other machines see their network on top of the stated times.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use clockwork_wire::{mount, nfs3, record, rpc, xdr};
use tokio::net::TcpListener;
use tokio::sync::OnceCell;

use super::device::Device;
use super::inner::private_address;
use super::lateness::Lateness;
use super::{DeviceSpec, Namespace, Shared, guard};

/// Service time of the calls that are timed at the start, in nanoseconds: at the lower end of what can be kept.
const SERVICE_NS: u64 = 700_000;
/// Calls before those that are timed, over which the lateness of timers becomes known.
const CALLS_FIRST: usize = 24;
/// Calls that are timed.
const CALLS: usize = 64;
/// Of these the slowest met something else; so many are not counted.
const CALLS_SLOW: usize = 8;
/// Before each call, longer from one to the next, so that the store is asleep. All calls together take 130 ms.
const PAUSE_FIRST: Duration = Duration::from_micros(200);
const PAUSE_STEP: Duration = Duration::from_micros(10);
/// A way that is longer was measured on a machine that is busy with something else.
const BOTH_NS_MAX: u64 = 250_000;
/// A call that takes longer ends the measurement.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// The path to mount.
const EXPORT: &str = "/export";

/// Between two pairs of calls of our own while a store serves: far apart, so that a pair finds the machine as others' calls
/// have left it.
const LOOK_AGAIN: Duration = Duration::from_millis(70);
/// Between the call that wakes us and the one that is timed.
const LOOK_PAUSE: Duration = Duration::from_millis(1);
/// So many calls of others have come in between, so that ours cost little beside them.
const CALLS_BETWEEN: u64 = 20;
/// Service times of these calls, in nanoseconds, whatever others' are.
const LOOK_SERVICE_NS: std::ops::RangeInclusive<u64> = 200_000..=5_000_000;
/// A way that was longer, in nanoseconds, counts as this long.
const LOOK_NS_MAX: u64 = 500_000;
/// Calls over which the mean is taken, about, and how many of them the measurement at the start counts for.
const LOOKS: u64 = 48;
const LOOKS_FIRST: u64 = 12;

/// The way to a store and back.
#[derive(Debug, Default)]
pub(super) struct Way {
    both_ns: AtomicU64,
    /// No more than [`LOOKS`].
    looks: AtomicU64,
    /// How late the store's timers wake, and its replies leave.
    pub(super) lateness: Lateness,
}

impl Way {
    /// Of this length, with timers that wake so late in the mean.
    pub(super) fn of(both_ns: u64, late_ns: u64) -> Self {
        Self {
            both_ns: AtomicU64::new(both_ns),
            looks: AtomicU64::new(LOOKS_FIRST),
            lateness: Lateness::of(late_ns),
        }
    }

    /// As it was found when this was first asked; of no length where it cannot be measured.
    pub(super) async fn measured(namespace: &Arc<Namespace>) -> Self {
        static FOUND: OnceCell<(u64, u64)> = OnceCell::const_new();
        let found = FOUND.get_or_init(|| async {
            match measure(namespace).await {
                Ok(found) => {
                    tracing::debug!(way_us = found.0 / 1000, late_us = found.1 / 1000, "the way to a store");
                    found
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot measure the way to a store: its device will seem slower by that");
                    (0, 0)
                }
            }
        });
        let (both_ns, late_ns) = *found.await;
        Self::of(both_ns, late_ns)
    }

    /// Both directions together, in nanoseconds.
    pub(super) fn both_ns(&self) -> u64 {
        self.both_ns.load(Relaxed)
    }

    /// A call was so long under way, there and back. For one thread at a time.
    pub(super) fn seen(&self, way_ns: u64) {
        let looks = (self.looks.load(Relaxed) + 1).min(LOOKS);
        let sum_ns = self.both_ns() * (looks - 1) + way_ns.min(LOOK_NS_MAX);
        self.both_ns.store((sum_ns / looks).min(BOTH_NS_MAX), Relaxed);
        self.looks.store(looks, Relaxed);
    }
}

/// The way, and how late a timer wakes, of a guard like any store's.
async fn measure(namespace: &Arc<Namespace>) -> io::Result<(u64, u64)> {
    let (listener, probed) = probed(namespace).await?;
    let address = listener.local_addr()?;
    let client = tokio::task::spawn_blocking({
        let probed = Arc::clone(&probed);
        move || time_calls(address, &probed)
    });
    let (stream, _) = listener.accept().await?;
    let serving = tokio::spawn(guard(stream, Arc::clone(&probed)));
    let ways = client.await.map_err(io::Error::other)?;
    serving.abort();
    Ok((both_ns(ways?), probed.way.lateness.mean_ns()))
}

/// A store for calls of our own, and where it listens.
async fn probed(namespace: &Arc<Namespace>) -> io::Result<(TcpListener, Arc<Shared>)> {
    let listener = TcpListener::bind(private_address()).await?;
    let (port, export) = (listener.local_addr()?.port(), EXPORT.to_owned());
    let shared = Shared::new(port, export, Arc::clone(namespace), DeviceSpec::none());
    Ok((listener, Arc::new(shared)))
}

/// What calls took beyond the time that they were with the store, in the mean.
fn both_ns(mut ways_ns: Vec<u64>) -> u64 {
    ways_ns.sort_unstable();
    ways_ns.truncate(ways_ns.len().saturating_sub(CALLS_SLOW));
    let count = u64::try_from(ways_ns.len()).unwrap_or(u64::MAX).max(1);
    (ways_ns.iter().sum::<u64>() / count).min(BOTH_NS_MAX)
}

fn time_calls(address: SocketAddr, probed: &Shared) -> io::Result<Vec<u64>> {
    let mut client = Client::connect(address)?;
    let mut ways_ns = Vec::new();
    let mut pause = PAUSE_FIRST;
    for _ in 0..CALLS_FIRST + CALLS {
        std::thread::sleep(pause);
        pause += PAUSE_STEP;
        ways_ns.push(client.way_ns(probed, SERVICE_NS)?);
    }
    Ok(ways_ns.split_off(CALLS_FIRST))
}

/// Keeps the way to a store up to date while it serves, until this is dropped.
pub(super) async fn watch(store: Arc<Shared>) {
    if let Err(error) = watch_store(&store).await {
        tracing::warn!(store = store.name, %error, "the way to the store is not measured any more");
    }
}

async fn watch_store(store: &Arc<Shared>) -> io::Result<()> {
    let (listener, probed) = probed(&store.namespace).await?;
    let address = listener.local_addr()?;
    let client = {
        let (store, probed) = (Arc::downgrade(store), Arc::clone(&probed));
        move || look_until_gone(address, &store, &probed)
    };
    std::thread::Builder::new().name("store-way".to_owned()).spawn(client)?;
    loop {
        let (stream, _) = listener.accept().await?;
        if let Err(error) = guard(stream, Arc::clone(&probed)).await {
            tracing::debug!(%error, "the connection over which the way is measured ended");
        }
    }
}

/// As a client does: a thread that sleeps until its reply is there.
fn look_until_gone(address: SocketAddr, store: &Weak<Shared>, probed: &Shared) {
    let (mut client, mut calls_seen) = (None, 0);
    loop {
        std::thread::sleep(LOOK_AGAIN);
        let Some(store) = store.upgrade() else { return };
        let calls = store.counters.calls.load(Relaxed);
        if calls - calls_seen < CALLS_BETWEEN {
            continue;
        }
        calls_seen = calls;
        match look(&mut client, address, &store, probed) {
            Ok(way_ns) => store.way.seen(way_ns),
            Err(error) => {
                tracing::debug!(store = store.name, %error, "the way could not be measured this time");
                client = None;
            }
        }
    }
}

/// A call as long with the store as the one of another client that was answered last: how long it was under way.
fn look(
    client: &mut Option<Client>,
    address: SocketAddr,
    store: &Shared,
    probed: &Shared,
) -> io::Result<u64> {
    let client = match client {
        Some(client) => client,
        None => client.insert(Client::connect(address)?),
    };
    let stay_ns = store.stay_ns.load(Relaxed).clamp(*LOOK_SERVICE_NS.start(), *LOOK_SERVICE_NS.end());
    // One call that is not counted: whoever calls all the time is not as slow to wake as we are after so long a sleep.
    client.way_ns(probed, stay_ns)?;
    std::thread::sleep(LOOK_PAUSE);
    client.way_ns(probed, stay_ns)
}

/// A client of our own.
struct Client {
    stream: TcpStream,
    /// A GETATTR of the root, with its record mark.
    getattr: Vec<u8>,
}

impl Client {
    fn connect(address: SocketAddr) -> io::Result<Self> {
        let mut stream = TcpStream::connect_timeout(&address, ANSWER_MAX)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        let mnt = message(mount::PROGRAM, mount::VERSION, mount::Procedure::Mnt.number(), EXPORT.as_bytes());
        let root = ask(&mut stream, &mnt)?;
        let root = root_of(&root).ok_or(io::ErrorKind::InvalidData)?;
        let getattr = message(nfs3::PROGRAM, nfs3::VERSION, nfs3::Procedure::Getattr.number(), root);
        Ok(Self { stream, getattr })
    }

    /// How long a call of this service time was under way, there and back.
    fn way_ns(&mut self, probed: &Shared, service_ns: u64) -> io::Result<u64> {
        #[expect(clippy::cast_precision_loss, reason = "some milliseconds")]
        let metadata_us = service_ns as f64 / 1e3;
        *probed.device() = Device::new(DeviceSpec { metadata_us, ..DeviceSpec::none() }, 0);
        let sent = Instant::now();
        ask(&mut self.stream, &self.getattr)?;
        let took_ns = u64::try_from(sent.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Ok(took_ns.saturating_sub(probed.stay_ns.load(Relaxed)))
    }
}

/// A call with its record mark, whose only argument is an opaque one.
fn message(program: u32, version: u32, procedure: u32, argument: &[u8]) -> Vec<u8> {
    let mut call = vec![0; 4];
    rpc::begin_call(&mut call, 1, program, version, procedure, &rpc::AUTH_NONE_CREDENTIAL);
    xdr::put_opaque(&mut call, argument);
    let mark = record::mark(call.len() - 4);
    call[..4].copy_from_slice(&mark);
    call
}

fn ask(stream: &mut TcpStream, call: &[u8]) -> io::Result<Vec<u8>> {
    stream.write_all(call)?;
    let mut mark = [0; 4];
    stream.read_exact(&mut mark)?;
    let bytes = u32::from_be_bytes(mark) & !record::LAST_FRAGMENT;
    let mut reply = Vec::new();
    stream.take(bytes.into()).read_to_end(&mut reply)?;
    Ok(reply)
}

fn root_of(reply: &[u8]) -> Option<&[u8]> {
    let rpc::ReplyBody::Accepted { stat: 0, results } = rpc::parse_reply(reply).ok()?.body else {
        return None;
    };
    match mount::mnt_results(reply, results).ok()? {
        mount::MntResults::Ok { handle, .. } => reply.get(handle),
        mount::MntResults::Failed { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::HandleMode;

    #[test]
    fn the_slowest_do_not_count_and_there_is_a_bound() {
        let mut ways: Vec<u64> = vec![40_000; 56];
        ways.extend([9_000_000; 8]);
        assert_eq!(both_ns(ways), 40_000);
        assert_eq!(both_ns(vec![9_000_000; 64]), BOTH_NS_MAX);
        assert_eq!(both_ns(vec![]), 0);
    }

    #[test]
    fn what_is_seen_later_counts_slowly_and_within_the_bound() {
        let way = Way::of(80_000, 0);
        way.seen(93_000);
        assert_eq!(way.both_ns(), 81_000, "a thirteenth");
        (0..300).for_each(|_| way.seen(100_000));
        assert!((99_900..=100_000).contains(&way.both_ns()), "{}", way.both_ns());
        let before_ns = way.both_ns();
        way.seen(u64::MAX);
        assert_eq!(way.both_ns(), (before_ns * (LOOKS - 1) + LOOK_NS_MAX) / LOOKS);
        (0..300).for_each(|_| way.seen(u64::MAX));
        assert_eq!(way.both_ns(), BOTH_NS_MAX);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_way_and_waking_take_a_while() {
        let directory = tempfile::tempdir().unwrap();
        let namespace = Namespace::open(directory.path(), HandleMode::Path { seed: 1 }).unwrap();
        let (both_ns, late_ns) = measure(&namespace).await.unwrap();
        assert!((1..=BOTH_NS_MAX).contains(&both_ns), "{both_ns} ns there and back");
        assert!((1..=500_000).contains(&late_ns), "{late_ns} ns late");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_way_is_looked_at_while_a_store_serves() {
        let directory = tempfile::tempdir().unwrap();
        let namespace = Namespace::open(directory.path(), HandleMode::Path { seed: 1 }).unwrap();
        let store = Arc::new(Shared::new(0, EXPORT.to_owned(), namespace, DeviceSpec::none()));
        let watching = tokio::spawn(watch(Arc::clone(&store)));
        tokio::time::sleep(LOOK_AGAIN * 3).await;
        assert_eq!(store.way.both_ns(), 0, "no calls, no look");
        let mut tries = 0;
        while store.way.both_ns() == 0 {
            store.counters.calls.fetch_add(CALLS_BETWEEN, Relaxed);
            tokio::time::sleep(LOOK_AGAIN).await;
            tries += 1;
            assert!(tries < 400, "not looked at in 30 s");
        }
        assert!(store.way.both_ns() <= BOTH_NS_MAX);
        watching.abort();
    }
}
