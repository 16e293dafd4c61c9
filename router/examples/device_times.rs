//! Stated against measured times of an embedded store's device, seen from a client of the store.
//!
//! One store with a device of one server and constant service times; one client over TCP, which sends GETATTR. *Idle*: one
//! call at a time, with pauses. *Half load*: calls at random moments, half as many as the device can serve; then the stated
//! mean is that of the queue at the moments at which the calls were really sent, wait and service. One operation is one
//! call and its whole reply; its time is from before the call is written until the reply has been read.
//!
//! ```sh
//! cargo run --release -p clockwork-router --example device_times [SECONDS]
//! ```
//!
//! SECONDS, 4 where nothing is said, is for each row. To be run on an idle machine.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clockwork_router::store::{Device, DeviceSpec, HandleMode, Kind, Namespace, StoreSpec, serve};
use clockwork_wire::{mount, nfs3, record, rpc, xdr};
use rand::RngExt as _;
use rustix::time::{ClockId, clock_gettime};

/// Stated service times, in microseconds.
const SERVICE_US: [f64; 6] = [100.0, 250.0, 500.0, 1_000.0, 2_000.0, 5_000.0];
/// Before a row is measured.
const WARM_UP: Duration = Duration::from_millis(300);

fn main() -> anyhow::Result<()> {
    let seconds: f64 = match std::env::args().nth(1) {
        Some(text) => text.parse().context("the only argument is a number of seconds")?,
        None => 4.0,
    };
    let period = Duration::try_from_secs_f64(seconds).context("so long is no row")?;
    let directory = tempfile::tempdir()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let namespace = Namespace::open(directory.path(), HandleMode::Path { seed: 1 })?;
    println!(
        "| stated, us | load | calls | expected mean, us | measured mean, us | off, % | median off, us | 95 % off, us | CPU, us a call |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for service_us in SERVICE_US {
        let device = DeviceSpec { metadata_us: service_us, ..DeviceSpec::none() };
        let spec = StoreSpec {
            name: "measured".to_owned(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            export: "/export".to_owned(),
            device,
            seed: 1,
        };
        let store = runtime.block_on(serve(spec, std::sync::Arc::clone(&namespace)))?;
        for half_load in [false, true] {
            let mut client = Client::mount(store.address)?;
            let run = |client: &mut Client, period| {
                if half_load { client.half_load(service_us, period) } else { client.idle(period) }
            };
            run(&mut client, WARM_UP)?;
            let (began, own) = (cpu(ClockId::ProcessCPUTime), cpu(ClockId::ThreadCPUTime));
            let mut measured = run(&mut client, period)?;
            let spent = cpu(ClockId::ProcessCPUTime) - began;
            let own = cpu(ClockId::ThreadCPUTime) - own + measured.helper_cpu;
            Row::of(device, &mut measured, spent.saturating_sub(own)).print(service_us, half_load);
        }
        runtime.block_on(store.stop());
    }
    Ok(())
}

/// What a clock of the system says.
fn cpu(clock: ClockId) -> Duration {
    let now = clock_gettime(clock);
    let (seconds, nanoseconds) = (u64::try_from(now.tv_sec), u32::try_from(now.tv_nsec));
    Duration::new(seconds.unwrap_or(0), nanoseconds.unwrap_or(0))
}

/// When calls were sent and answered, from the first moment on.
struct Measured {
    calls: Vec<(Duration, Duration)>,
    /// What the client's other thread has used.
    helper_cpu: Duration,
}

struct Client {
    stream: TcpStream,
    /// A whole GETATTR of the root, with its record mark.
    call: Vec<u8>,
}

impl Client {
    fn mount(address: SocketAddr) -> anyhow::Result<Self> {
        let mut client = Self { stream: TcpStream::connect(address)?, call: Vec::new() };
        client.stream.set_nodelay(true)?;
        client.stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        client.call = message(mount::PROGRAM, mount::VERSION, mount::Procedure::Mnt.number(), b"/export");
        client.send()?;
        let reply = client.receive()?;
        let rpc::ReplyBody::Accepted { stat: 0, results } = rpc::parse_reply(&reply)?.body else {
            bail!("MNT was refused")
        };
        let mount::MntResults::Ok { handle, .. } = mount::mnt_results(&reply, results)? else {
            bail!("MNT failed")
        };
        client.call =
            message(nfs3::PROGRAM, nfs3::VERSION, nfs3::Procedure::Getattr.number(), &reply[handle]);
        Ok(client)
    }

    fn send(&mut self) -> anyhow::Result<()> {
        Ok(self.stream.write_all(&self.call)?)
    }

    fn receive(&mut self) -> anyhow::Result<Vec<u8>> {
        receive(&mut self.stream)
    }

    /// One call after the other, with pauses.
    fn idle(&mut self, period: Duration) -> anyhow::Result<Measured> {
        let (begin, mut rng) = (Instant::now(), rand::rng());
        let mut calls = Vec::new();
        while begin.elapsed() < period {
            std::thread::sleep(Duration::from_micros(rng.random_range(200..1_500)));
            let sent = begin.elapsed();
            self.send()?;
            self.receive()?;
            calls.push((sent, begin.elapsed()));
        }
        Ok(Measured { calls, helper_cpu: Duration::ZERO })
    }

    /// Calls at the moments of a Poisson process, half as many as the device can serve.
    fn half_load(&mut self, service_us: f64, period: Duration) -> anyhow::Result<Measured> {
        let (begin, mut rng) = (Instant::now(), rand::rng());
        let mut reader = self.stream.try_clone()?;
        let (tell, told) = mpsc::channel();
        let answered = std::thread::spawn(move || {
            let mut calls = Vec::new();
            for sent in told {
                receive(&mut reader)?;
                calls.push((sent, begin.elapsed()));
            }
            Ok::<_, anyhow::Error>(Measured { calls, helper_cpu: cpu(ClockId::ThreadCPUTime) })
        });
        let mut next = Duration::ZERO;
        while next < period {
            let uniform: f64 = rng.random_range(f64::EPSILON..1.0);
            next += Duration::from_secs_f64(-uniform.ln() * 2.0 * service_us / 1e6);
            std::thread::sleep(next.saturating_sub(begin.elapsed()));
            // The moment that counts is the real one.
            let sent = begin.elapsed();
            self.send()?;
            tell.send(sent).context("the reader has ended")?;
        }
        drop(tell);
        answered.join().ok().context("the reader has panicked")?
    }
}

fn receive(stream: &mut TcpStream) -> anyhow::Result<Vec<u8>> {
    let mut mark = [0; 4];
    stream.read_exact(&mut mark)?;
    let mut reply = vec![0; (u32::from_be_bytes(mark) & !record::LAST_FRAGMENT) as usize];
    stream.read_exact(&mut reply)?;
    Ok(reply)
}

fn message(program: u32, version: u32, procedure: u32, opaque: &[u8]) -> Vec<u8> {
    let (mut credential, mut call) = (Vec::new(), Vec::new());
    rpc::auth_sys(&mut credential, "device-times", 0, 0);
    rpc::begin_call(&mut call, 1, program, version, procedure, &credential);
    xdr::put_opaque(&mut call, opaque);
    let mut whole = record::mark(call.len()).to_vec();
    whole.append(&mut call);
    whole
}

/// One line of the table.
struct Row {
    calls: usize,
    expected_us: f64,
    measured_us: f64,
    /// Of what each call took beyond what it should have.
    off_us: [f64; 2],
    cpu_us: f64,
}

impl Row {
    #[expect(clippy::cast_precision_loss, reason = "counts and times of some seconds")]
    fn of(device: DeviceSpec, measured: &mut Measured, cpu: Duration) -> Self {
        let mut queue = Device::new(device, 1);
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let (mut expected, mut took, mut off) = (0.0, 0.0, Vec::new());
        for &(sent, answered) in &measured.calls {
            let sent_ns = nanoseconds(sent);
            let should_ns = (queue.admit(sent_ns, Kind::Metadata, 0) - sent_ns) as f64;
            let did_ns = nanoseconds(answered - sent) as f64;
            expected += should_ns;
            took += did_ns;
            off.push((did_ns - should_ns) / 1e3);
        }
        off.sort_by(f64::total_cmp);
        let calls = measured.calls.len();
        let per_call = 1.0 / calls.max(1) as f64;
        let at = |part: usize| off.get(calls * part / 100).copied().unwrap_or(f64::NAN);
        Self {
            calls,
            expected_us: expected * per_call / 1e3,
            measured_us: took * per_call / 1e3,
            off_us: [at(50), at(95)],
            cpu_us: cpu.as_secs_f64() * 1e6 * per_call,
        }
    }

    fn print(&self, service_us: f64, half_load: bool) {
        let Self { calls, expected_us, measured_us, off_us: [median, most], cpu_us } = self;
        let load = if half_load { "half" } else { "idle" };
        let off = 100.0 * (measured_us / expected_us - 1.0);
        println!(
            "| {service_us} | {load} | {calls} | {expected_us:.1} | {measured_us:.1} | {off:+.1} | {median:+.1} | {most:+.1} | {cpu_us:.1} |"
        );
    }
}
