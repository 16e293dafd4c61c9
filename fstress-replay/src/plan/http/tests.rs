use super::*;
use clockwork_traces::workload::WorkloadFile;

const KIB: u64 = 1 << 10;

fn tree() -> Tree {
    let file = |path: &str| WorkloadFile { path: path.into(), bytes: 0, site: 0 };
    Tree::of(&[file("a/f"), file("a/g"), file("b/f")])
}

/// Files 0 and 1 are in directory 1 (`a`), file 2 in directory 2 (`b`).
struct Played {
    tree: Tree,
    client: Client,
    number: u64,
    /// The last request of another client that wrote the file that is asked for next.
    changed: u64,
}

impl Played {
    fn new(setting: HttpClients) -> Self {
        Self { tree: tree(), client: Client::new(setting), number: 0, changed: 0 }
    }

    /// The calls of a request for a file, as text: `LOOKUP a`, `READ f0 0+100`.
    fn ask(&mut self, at_ms: u64, file: u32, bytes: u64) -> String {
        self.number += 1;
        self.request(at_ms, file, bytes, Class::Read)
    }

    fn request(&mut self, at_ms: u64, file: u32, bytes: u64, class: Class) -> String {
        let (number, at) = (self.number, Duration::from_millis(at_ms));
        let changed = std::mem::take(&mut self.changed);
        let request = Request { number, file, class, bytes, at, changed };
        let mut asks = Vec::new();
        self.client.request(&self.tree, &request, &mut Vec::new(), &mut asks);
        let text = |ask: &Ask| {
            let node = match ask.node {
                Node::File(file) => format!("f{file}"),
                Node::Directory(Tree::ROOT) => "/".into(),
                Node::Directory(directory) => self.tree.name(directory).to_owned(),
            };
            match ask.operation {
                Operation::Read | Operation::Write => {
                    let stable = if ask.is_stable { " stable" } else { "" };
                    format!("{} {node} {}+{}{stable}", ask.operation.name(), ask.offset, ask.count)
                }
                other => format!("{} {node}", other.name()),
            }
        };
        asks.iter().map(text).collect::<Vec<_>>().join(", ")
    }
}

fn one(setting: HttpClients) -> HttpClients {
    HttpClients { clients: 1, call_gap_ms: Some(0), ..setting }
}

#[test]
fn a_list_of_requests_becomes_the_calls_worked_out_by_hand() {
    let mut played = Played::new(one(HttpClients { read_bytes: 4096, ..HttpClients::default() }));
    // Nothing is known but the root of the mount.
    assert_eq!(
        played.ask(0, 0, 10 * KIB),
        "ACCESS /, LOOKUP a, ACCESS a, LOOKUP f0, ACCESS f0, READ f0 0+4096, READ f0 4096+4096, READ f0 8192+2048"
    );
    // All names are valid: opening asks for the attributes, then the file is read again.
    assert_eq!(played.ask(100, 0, 5), "GETATTR f0, READ f0 0+5");
    // Another file of a known directory, and one of an unknown directory.
    assert_eq!(played.ask(200, 1, 4 * KIB), "LOOKUP f1, ACCESS f1, READ f1 0+4096");
    assert_eq!(played.ask(300, 2, 0), "LOOKUP b, ACCESS b, LOOKUP f2, ACCESS f2");
    assert_eq!(played.ask(400, 2, 0), "GETATTR f2");
}

#[test]
fn entries_expire_and_are_made_fresh_by_getattr() {
    let mut played = Played::new(one(HttpClients { nocto: true, ..HttpClients::default() }));
    played.ask(0, 0, 1);
    // Without close-to-open, all is fresh: only the data is read.
    assert_eq!(played.ask(2_000, 0, 1), "READ f0 0+1");
    // Each READ made the file's attributes fresh; 3 s (acregmin) after the last one they are not.
    assert_eq!(played.ask(4_900, 0, 0), "");
    assert_eq!(played.ask(5_000, 0, 0), "GETATTR f0");
    // Found unchanged after 3 s: now they are good for 6.
    assert_eq!(played.ask(10_900, 0, 0), "");
    assert_eq!(played.ask(11_000, 0, 0), "GETATTR f0");
    // Directories are good for 30 s (acdirmin) from their LOOKUP or ACCESS on, and keep the names in them valid.
    assert_eq!(played.ask(29_900, 0, 0), "GETATTR f0");
    assert_eq!(played.ask(30_000, 0, 0), "GETATTR /, GETATTR a");
    // Then for 60 s (acdirmax), and no longer.
    assert_eq!(played.ask(89_900, 1, 0), "LOOKUP f1, ACCESS f1");
    assert_eq!(played.ask(90_000, 1, 0), "GETATTR /");
    assert_eq!(played.ask(149_900, 1, 0), "GETATTR a, GETATTR f1");
}

#[test]
fn actimeo_sets_all_times() {
    let mut none =
        Played::new(one(HttpClients { attributes: AttributeTimes::all(0.0), ..HttpClients::default() }));
    none.ask(0, 0, 0);
    assert_eq!(none.ask(0, 0, 0), "GETATTR /, GETATTR a, GETATTR f0");
    let long = HttpClients { attributes: AttributeTimes::all(600.0), nocto: true, ..HttpClients::default() };
    let mut long = Played::new(one(long));
    long.ask(0, 0, 0);
    assert_eq!(long.ask(599_000, 0, 0), "");
    assert_eq!(long.ask(600_000, 0, 0), "GETATTR /, GETATTR a, GETATTR f0");
    assert!(!AttributeTimes::all(-1.0).is_sound() && !AttributeTimes::all(f64::NAN).is_sound());
    assert!(!AttributeTimes { file_min_s: 61.0, ..AttributeTimes::default() }.is_sound());
}

#[test]
fn a_replaced_file_is_looked_up_again_once() {
    let mut played = Played::new(one(HttpClients { data_bytes_max: 1 << 20, ..HttpClients::default() }));
    played.ask(0, 0, 3);
    assert_eq!(played.ask(10, 0, 3), "GETATTR f0", "the data is cached");
    // Request 2 found the handle stale.
    played.client.stale(Node::File(0), 2);
    assert_eq!(played.ask(20, 0, 3), "LOOKUP f0, ACCESS f0, READ f0 0+3");
    // So did another reply to it, late: request 3 has looked the name up since.
    played.client.stale(Node::File(0), 2);
    assert_eq!(played.ask(30, 0, 3), "GETATTR f0");
}

#[test]
fn data_is_kept_up_to_the_limit() {
    let mut played = Played::new(one(HttpClients { data_bytes_max: 200, ..HttpClients::default() }));
    played.ask(0, 0, 60);
    assert_eq!(played.ask(1, 0, 60), "GETATTR f0");
    assert_eq!(played.ask(2, 0, 70), "GETATTR f0, READ f0 0+70", "more than is there");
    for number in 0..4 {
        played.ask(10 + number, 1, 60 + number);
        played.ask(10 + number, 2, 60 + number);
    }
    assert_eq!(played.ask(20, 0, 60), "GETATTR f0, READ f0 0+60", "forgotten for others");
}

#[test]
fn writes_are_made_safe_as_told_and_others_read_anew() {
    let setting = HttpClients { write_bytes: 4096, data_bytes_max: 1 << 20, ..HttpClients::default() };
    let mut played = Played::new(one(setting));
    played.ask(0, 0, 3);
    assert_eq!(
        played.request(1, 0, 9_000, Class::Write),
        "GETATTR f0, WRITE f0 0+4096, WRITE f0 4096+4096, WRITE f0 8192+808, COMMIT f0"
    );
    assert_eq!(played.request(2, 0, 9, Class::Write), "GETATTR f0, WRITE f0 0+9 stable");
    assert_eq!(played.request(3, 0, 0, Class::Write), "GETATTR f0");
    assert_eq!(played.request(4, 0, 0, Class::Metadata), "GETATTR f0");
    assert_eq!(played.ask(5, 0, 3), "GETATTR f0", "its own writes leave its data as it is");
    played.changed = played.number;
    assert_eq!(played.ask(6, 0, 3), "GETATTR f0, READ f0 0+3", "another has written");
    for (write_sync, wanted) in
        [(WriteSync::Commit, "WRITE f0 0+9, COMMIT f0"), (WriteSync::Each, "WRITE f0 0+9 stable")]
    {
        let mut played = Played::new(one(HttpClients { write_sync, nocto: true, ..setting }));
        played.ask(0, 0, 3);
        assert_eq!(played.request(1, 0, 9, Class::Write), wanted);
    }
}

#[test]
fn a_client_that_may_remember_little_looks_names_up_again() {
    let mut played = Played::new(one(HttpClients { cache_entries_max: 2, ..HttpClients::default() }));
    played.ask(0, 0, 0);
    assert_eq!(played.ask(1, 2, 0), "LOOKUP b, ACCESS b, LOOKUP f2, ACCESS f2");
    assert!(played.client.evicted() > 0);
    assert!(played.ask(2, 0, 0).contains("LOOKUP f0"));
}
