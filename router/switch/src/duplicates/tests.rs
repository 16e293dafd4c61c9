use super::*;
use proptest::prelude::*;

const REMOVE: u8 = 12;
const SECOND: Duration = Duration::from_secs(1);

fn client() -> IpAddr {
    "192.0.2.7".parse().unwrap()
}

fn tcp(connection: u64) -> Origin {
    Origin { shard: 0, client: connection, peer: Peer::Stream(ConnectionId(connection)), address: client() }
}

fn udp(port: u16) -> Origin {
    Origin { shard: 1, client: 0, peer: Peer::Datagram(SocketAddr::new(client(), port)), address: client() }
}

fn cache() -> Duplicates {
    Duplicates::new(DuplicateLimits::default())
}

fn remove_key(xid: u32) -> u128 {
    key(client(), xid, REMOVE, b"credential", b"directory and name")
}

fn new(seen: Seen) -> Ticket {
    match seen {
        Seen::New(ticket) => ticket,
        other => panic!("not new: {other:?}"),
    }
}

fn done(seen: Seen) -> Vec<u8> {
    match seen {
        Seen::Done(reply) => reply.to_vec(),
        other => panic!("not done: {other:?}"),
    }
}

#[test]
fn a06_a_repeat_in_flight_is_absorbed_and_one_after_a_lost_reply_is_replayed() {
    let (cache, key) = (cache(), remove_key(5));
    for origin in [tcp(1), udp(700)] {
        cache.opened(ConnectionId(1));
        let ticket = new(cache.begin(Time(0), key, origin));
        assert_eq!(cache.begin(Time(1), key, origin), Seen::InProgress);
        assert_eq!(cache.begin(Time(2), key, origin), Seen::InProgress);
        assert_eq!(
            cache.finish(Time(3), ticket, b"the reply"),
            [],
            "its own connection gets the reply anyway"
        );
        for _ in 0..3 {
            assert_eq!(done(cache.begin(Time(4), key, origin)), b"the reply");
        }
    }
    assert_eq!(cache.entries(), 2);
}

#[test]
fn a06_after_a_reconnect_from_a_new_port_the_first_reply_comes_there() {
    let (cache, key) = (cache(), remove_key(5));
    cache.opened(ConnectionId(1));
    let ticket = new(cache.begin(Time(0), key, tcp(1)));
    cache.closed(ConnectionId(1));
    cache.opened(ConnectionId(2));
    assert_eq!(cache.begin(Time(1), key, tcp(2)), Seen::InProgress);
    assert_eq!(cache.begin(Time(2), key, tcp(2)), Seen::InProgress, "and again");
    assert_eq!(cache.finish(Time(3), ticket, b"first"), [tcp(2)], "waits once");
    assert_eq!(done(cache.begin(Time(4), key, tcp(2))), b"first");
    // And once more, now that it has finished.
    cache.closed(ConnectionId(2));
    cache.opened(ConnectionId(3));
    assert_eq!(done(cache.begin(Time(5), key, tcp(3))), b"first");
    assert_eq!(cache.entries(), 1);
}

#[test]
fn a06_equal_calls_of_two_processes_of_one_client_each_run() {
    let (cache, key) = (cache(), remove_key(5));
    cache.opened(ConnectionId(1));
    cache.opened(ConnectionId(2));
    let first = new(cache.begin(Time(0), key, tcp(1)));
    let second = new(cache.begin(Time(0), key, tcp(2)));
    let third = new(cache.begin(Time(0), key, udp(700)));
    let fourth = new(cache.begin(Time(0), key, udp(701)));
    for (ticket, reply) in [(second, b"2"), (first, b"1"), (fourth, b"4"), (third, b"3")] {
        assert_eq!(cache.finish(Time(1), ticket, reply), []);
    }
    for (origin, reply) in [(tcp(1), b"1"), (tcp(2), b"2"), (udp(700), b"3"), (udp(701), b"4")] {
        assert_eq!(done(cache.begin(Time(2), key, origin)), reply);
    }
    // The second process reconnects: it gets its own reply, not that of the first, which lives.
    cache.closed(ConnectionId(2));
    cache.opened(ConnectionId(3));
    assert_eq!(done(cache.begin(Time(3), key, tcp(3))), b"2");
    assert_eq!(cache.entries(), 4);
}

#[test]
fn an_abandoned_call_runs_again_and_tells_who_waited() {
    let (cache, key) = (cache(), remove_key(5));
    let ticket = new(cache.begin(Time(0), key, tcp(1)));
    cache.opened(ConnectionId(2));
    assert_eq!(
        cache.begin(Time(1), key, tcp(2)),
        Seen::InProgress,
        "the first connection was never announced: gone"
    );
    assert_eq!(cache.abandon(ticket), [tcp(2)]);
    assert_eq!((cache.entries(), cache.bytes()), (0, 0));
    let _again = new(cache.begin(Time(2), key, tcp(2)));
}

#[test]
fn replies_are_kept_120_seconds_from_the_reply() {
    let (cache, key) = (cache(), remove_key(5));
    cache.opened(ConnectionId(1));
    let ticket = new(cache.begin(Time(0), key, tcp(1)));
    cache.expire(Time(0) + 500 * SECOND);
    assert_eq!(
        cache.begin(Time(0) + 500 * SECOND, key, tcp(1)),
        Seen::InProgress,
        "in progress does not expire"
    );
    let finished = Time(0) + 600 * SECOND;
    assert_eq!(cache.finish(finished, ticket, b"late"), []);
    assert_eq!(done(cache.begin(finished + 119 * SECOND, key, tcp(1))), b"late");
    let _again = new(cache.begin(finished + 120 * SECOND, key, tcp(1)));
    cache.expire(finished + 1000 * SECOND);
    assert_eq!((cache.entries(), cache.evicted_early()), (1, 0));
}

#[test]
fn the_oldest_finished_go_when_the_bytes_are_used_up_but_never_those_in_progress() {
    let bytes_max = SHARDS * 10 * (ENTRY_BYTES + 100);
    let cache = Duplicates::new(DuplicateLimits { bytes_max, ..DuplicateLimits::default() });
    cache.opened(ConnectionId(1));
    let running: Vec<Ticket> =
        (0..50).map(|xid| new(cache.begin(Time(0), remove_key(xid), tcp(1)))).collect();
    for xid in 1000..3000 {
        let ticket = new(cache.begin(Time(0), remove_key(xid), tcp(1)));
        cache.finish(Time(u64::from(xid)), ticket, &[0; 100]);
        assert!(cache.bytes() <= bytes_max, "{}", cache.bytes());
    }
    assert!(cache.evicted_early() > 1800, "{}", cache.evicted_early());
    assert_eq!(u64::try_from(cache.entries()).unwrap() + cache.evicted_early(), 2050);
    assert_eq!(done(cache.begin(Time(3000), remove_key(2999), tcp(1))), [0; 100], "the newest is there");
    for (xid, ticket) in (0..50).zip(running) {
        assert_eq!(cache.begin(Time(3000), remove_key(xid), tcp(1)), Seen::InProgress);
        cache.finish(Time(3000), ticket, b"");
    }
}

#[test]
fn waiters_are_bounded_and_only_living_ones_are_kept() {
    let limits = DuplicateLimits { waiters_max: 1, ..DuplicateLimits::default() };
    let (cache, key) = (Duplicates::new(limits), remove_key(5));
    let ticket = new(cache.begin(Time(0), key, tcp(1)));
    for connection in 2..10 {
        cache.opened(ConnectionId(connection));
        assert_eq!(cache.begin(Time(1), key, tcp(connection)), Seen::InProgress);
        cache.closed(ConnectionId(connection));
    }
    cache.opened(ConnectionId(10));
    assert_eq!(cache.begin(Time(1), key, tcp(10)), Seen::InProgress);
    assert_eq!((cache.waiters_refused(), cache.open_connections()), (0, 1));
    assert_eq!(cache.finish(Time(2), ticket, b""), [tcp(10)]);

    let (none, key) = (Duplicates::new(DuplicateLimits { waiters_max: 0, ..limits }), remove_key(5));
    let ticket = new(none.begin(Time(0), key, tcp(1)));
    assert_eq!(none.begin(Time(0), key, udp(700)), Seen::InProgress);
    assert_eq!((none.waiters_refused(), none.finish(Time(0), ticket, b"")), (1, vec![]));
}

#[test]
fn the_key_tells_calls_apart_and_knows_a_mapped_address() {
    let base = key(client(), 1, 12, b"cred", b"args");
    let mapped = "::ffff:192.0.2.7".parse().unwrap();
    assert_eq!(key(mapped, 1, 12, b"cred", b"args"), base);
    let long = [5; 1000];
    let mut changed = long;
    changed[KEYED_ARGUMENT_BYTES - 1] = 6;
    let others = [
        key("192.0.2.8".parse().unwrap(), 1, 12, b"cred", b"args"),
        key(client(), 2, 12, b"cred", b"args"),
        key(client(), 1, 13, b"cred", b"args"),
        key(client(), 1, 12, b"creda", b"rgs"),
        key(client(), 1, 12, b"cred", b"argS"),
        key(client(), 1, 12, b"cred", b"args\0"),
        key(client(), 1, 12, b"cred", &long),
        key(client(), 1, 12, b"cred", &long[..999]),
        key(client(), 1, 12, b"cred", &changed),
    ];
    let all: HashSet<u128> = others.into_iter().chain([base]).collect();
    assert_eq!(all.len(), 10);
    changed[KEYED_ARGUMENT_BYTES - 1] = 5;
    changed[KEYED_ARGUMENT_BYTES] = 6;
    assert_eq!(key(client(), 1, 12, b"cred", &changed), key(client(), 1, 12, b"cred", &long));
}

#[test]
fn one_repeat_out_of_many_threads_runs() {
    let cache = cache();
    cache.opened(ConnectionId(1));
    let runs = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for xid in 0..500 {
                    if let Seen::New(ticket) = cache.begin(Time(0), remove_key(xid), tcp(1)) {
                        runs.fetch_add(1, Ordering::Relaxed);
                        cache.finish(Time(0), ticket, b"once");
                    }
                }
            });
        }
    });
    assert_eq!((runs.into_inner(), cache.entries()), (500, 500));
}

#[derive(Clone, Debug)]
enum Step {
    Begin {
        key: u128,
        peer: u16,
    },
    Finish(prop::sample::Index),
    Abandon(prop::sample::Index),
    /// The process of this number loses its connection and makes a new one.
    Reconnect(u16),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..3u128, 0..5u16).prop_map(|(key, peer)| Step::Begin { key, peer }),
        3 => any::<prop::sample::Index>().prop_map(Step::Finish),
        1 => any::<prop::sample::Index>().prop_map(Step::Abandon),
        2 => (0..3u16).prop_map(Step::Reconnect),
        1 => (0..90u64).prop_map(Step::Pass),
    ]
}

/// One execution of a call, and who owns it.
struct Run {
    key: u128,
    ticket: Option<Ticket>,
    reply: Vec<u8>,
    finished: Time,
    owner: Peer,
    first: Peer,
    gone: bool,
}

/// Clients 0 to 2 use TCP and reconnect now and then; 3 and 4 are UDP ports.
struct Model {
    cache: Duplicates,
    now: Time,
    connection: [u64; 3],
    connections: u64,
    runs: Vec<Run>,
}

impl Model {
    fn origin(&self, peer: u16) -> Origin {
        self.connection.get(usize::from(peer)).map_or_else(|| udp(700 + peer), |&connection| tcp(connection))
    }

    fn lives(&self, peer: Peer) -> bool {
        match peer {
            Peer::Stream(ConnectionId(connection)) => self.connection.contains(&connection),
            Peer::Datagram(_) => true,
        }
    }

    /// The run that a transmission repeats: the sender's own, else the latest whose owner is gone.
    fn known(&self, key: u128, peer: Peer) -> Option<usize> {
        let old = |run: &Run| run.ticket.is_none() && run.finished + 120 * SECOND <= self.now;
        let of_key = |run: &Run| run.key == key && !run.gone && !old(run);
        let own = self.runs.iter().position(|run| of_key(run) && run.owner == peer);
        own.or_else(|| self.runs.iter().rposition(|run| of_key(run) && !self.lives(run.owner)))
    }

    fn pick(&self, index: prop::sample::Index) -> Option<usize> {
        let running: Vec<usize> = (0..self.runs.len()).filter(|&n| self.runs[n].ticket.is_some()).collect();
        (!running.is_empty()).then(|| running[index.index(running.len())])
    }

    fn begin(&mut self, key: u128, peer: u16) {
        let origin = self.origin(peer);
        let known = self.known(key, origin.peer);
        match (self.cache.begin(self.now, key, origin), known) {
            (Seen::New(ticket), None) => {
                let reply = format!("reply {}", self.runs.len()).into_bytes();
                let (owner, first, finished) = (origin.peer, origin.peer, self.now);
                self.runs.push(Run { key, ticket: Some(ticket), reply, finished, owner, first, gone: false });
            }
            (Seen::InProgress, Some(run)) if self.runs[run].ticket.is_some() => {
                self.runs[run].owner = origin.peer
            }
            (Seen::Done(reply), Some(run)) if self.runs[run].ticket.is_none() => {
                assert_eq!(*reply, *self.runs[run].reply, "the reply of its own run");
                self.runs[run].owner = origin.peer;
            }
            (seen, known) => panic!("{seen:?} where run {known:?} is known"),
        }
    }

    /// Who is to be answered besides the first sender: the owner, if it is another and lives.
    fn check_waiters(&self, run: usize, waiters: &[Origin]) {
        let run = &self.runs[run];
        let living: Vec<Peer> = waiters.iter().map(|w| w.peer).filter(|&peer| self.lives(peer)).collect();
        let expected = (run.owner != run.first && self.lives(run.owner)).then_some(run.owner);
        assert_eq!(living, expected.into_iter().collect::<Vec<_>>());
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Begin { key, peer } => self.begin(key, peer),
            Step::Finish(index) => {
                if let Some(run) = self.pick(index) {
                    let ticket = self.runs[run].ticket.take().unwrap();
                    self.runs[run].finished = self.now;
                    let waiters = self.cache.finish(self.now, ticket, &self.runs[run].reply);
                    self.check_waiters(run, &waiters);
                }
            }
            Step::Abandon(index) => {
                if let Some(run) = self.pick(index) {
                    let waiters = self.cache.abandon(self.runs[run].ticket.take().unwrap());
                    self.runs[run].gone = true;
                    self.check_waiters(run, &waiters);
                }
            }
            Step::Reconnect(client) => {
                let place = usize::from(client);
                self.cache.closed(ConnectionId(self.connection[place]));
                self.connections += 1;
                self.connection[place] = self.connections;
                self.cache.opened(ConnectionId(self.connections));
            }
            Step::Pass(seconds) => {
                self.now = self.now + Duration::from_secs(seconds);
                self.cache.expire(self.now);
            }
        }
    }
}

proptest! {
    #[test]
    fn the_cache_answers_as_a_plain_list_of_runs_does(steps in proptest::collection::vec(step(), 1..80)) {
        let mut model =
            Model { cache: cache(), now: Time(0), connection: [0, 1, 2], connections: 2, runs: Vec::new() };
        (0..3).for_each(|connection| model.cache.opened(ConnectionId(connection)));
        for step in steps {
            model.step(step);
        }
        for run in &mut model.runs {
            if let Some(ticket) = run.ticket.take() {
                model.cache.finish(model.now, ticket, b"");
            }
        }
        model.cache.expire(model.now + 120 * SECOND);
        prop_assert_eq!((model.cache.entries(), model.cache.bytes(), model.cache.evicted_early()), (0, 0, 0));
    }
}
