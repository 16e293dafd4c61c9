//! What a client sees of a service time beyond it: the way of a call and its reply between two processes of this machine.
//!
//! Two messages and two wake-ups are as long as a tenth of half a millisecond. They are measured once, when the first store
//! with a device starts, with calls to a device of a known service time, since whoever has slept for longer wakes more
//! slowly. Devices let replies go earlier by as much. Clients on other machines see their network on top of the stated
//! times.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clockwork_wire::{mount, nfs3, record, rpc, xdr};
use tokio::net::TcpListener;
use tokio::sync::OnceCell;

use super::holding::Lateness;
use super::inner::private_address;
use super::{DeviceSpec, Namespace, Shared, guard};

/// Service time of the calls that are timed, in microseconds: at the lower end of what can be kept.
const SERVICE_US: u32 = 700;
/// Calls before those that are timed, over which the lateness of timers becomes known.
const CALLS_FIRST: u64 = 24;
/// Calls that are timed.
const CALLS: u64 = 64;
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

/// The way to a store and back.
#[derive(Debug, Default)]
pub(super) struct Way {
    /// Both directions together, in nanoseconds.
    pub(super) both_ns: u64,
    /// How late the store's timers wake.
    pub(super) lateness: Lateness,
}

impl Way {
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
        Self { both_ns, lateness: Lateness::of(late_ns) }
    }
}

/// The way, and how late a timer wakes, of a guard like any store's.
async fn measure(namespace: &Arc<Namespace>) -> io::Result<(u64, u64)> {
    let listener = TcpListener::bind(private_address()).await?;
    let address = listener.local_addr()?;
    let client = tokio::task::spawn_blocking(move || time_calls(address));
    let (stream, _) = listener.accept().await?;
    let device = DeviceSpec { metadata_us: f64::from(SERVICE_US), ..DeviceSpec::none() };
    let shared = Arc::new(Shared::new(address.port(), EXPORT.to_owned(), Arc::clone(namespace), device));
    let serving = tokio::spawn(guard(stream, Arc::clone(&shared)));
    let times = client.await.map_err(io::Error::other)?;
    serving.abort();
    Ok((both_ns(times?), shared.way.lateness.mean_ns()))
}

/// What calls took beyond their service time, in the mean.
fn both_ns(mut times_ns: Vec<u64>) -> u64 {
    times_ns.sort_unstable();
    times_ns.truncate(times_ns.len().saturating_sub(CALLS_SLOW));
    let count = u64::try_from(times_ns.len()).unwrap_or(u64::MAX).max(1);
    (times_ns.iter().sum::<u64>() / count).saturating_sub(u64::from(SERVICE_US) * 1000).min(BOTH_NS_MAX)
}

/// As a client does: a thread that sleeps until its reply is there.
fn time_calls(address: SocketAddr) -> io::Result<Vec<u64>> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_MAX)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    let mnt = message(mount::PROGRAM, mount::VERSION, mount::Procedure::Mnt.number(), EXPORT.as_bytes());
    let root = ask(&mut stream, &mnt)?;
    let root = root_of(&root).ok_or(io::ErrorKind::InvalidData)?;
    let getattr = message(nfs3::PROGRAM, nfs3::VERSION, nfs3::Procedure::Getattr.number(), root);
    let mut times_ns = Vec::new();
    let mut pause = PAUSE_FIRST;
    for call in 0..CALLS_FIRST + CALLS {
        std::thread::sleep(pause);
        pause += PAUSE_STEP;
        let sent = Instant::now();
        ask(&mut stream, &getattr)?;
        if call >= CALLS_FIRST {
            times_ns.push(u64::try_from(sent.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
    }
    Ok(times_ns)
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
        let mut times: Vec<u64> = vec![740_000; 56];
        times.extend([9_000_000; 8]);
        assert_eq!(both_ns(times), 40_000);
        assert_eq!(both_ns(vec![9_000_000; 64]), BOTH_NS_MAX);
        assert_eq!(both_ns(vec![3; 64]), 0);
        assert_eq!(both_ns(vec![]), 0);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_way_and_waking_take_a_while() {
        let directory = tempfile::tempdir().unwrap();
        let namespace = Namespace::open(directory.path(), HandleMode::Path { seed: 1 }).unwrap();
        let (both_ns, late_ns) = measure(&namespace).await.unwrap();
        assert!(both_ns <= BOTH_NS_MAX, "{both_ns} ns there and back");
        assert!((1..=500_000).contains(&late_ns), "{late_ns} ns late");
    }
}
