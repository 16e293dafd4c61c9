//! The admin interface over a real socket: its answers, its guards, and the commands that use it.
#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking, in their helpers too")]
mod fake;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use clockwork_router::cli::{AdminClient, ClientError};
use clockwork_router::web::types::{Assign, FileName, StoreState};
use clockwork_router::web::{ADMIN_CONNECTIONS_MAX, serve};
use fake::FakePlex;
use tokio::sync::oneshot;

/// A fake plex that answers on loopback until it is dropped.
struct Plex {
    admin: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
}

impl Plex {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let admin = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let stopped = async { stopped.await.unwrap_or(()) };
                serve(listener, Arc::new(FakePlex::new()), stopped).await.unwrap();
            });
        });
        Self { admin, stop: Some(stop) }
    }

    fn client(&self) -> AdminClient {
        AdminClient::new(self.admin)
    }

    /// Status and whole answer to a request that is written as it stands, with the Host header `host`.
    fn raw(&self, request: &str, host: &str, headers: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.admin).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let length = body.len();
        let text = format!(
            "{request} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
        );
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer)
    }

    fn clockwork(&self, arguments: &[&str]) -> Output {
        let admin = self.admin.to_string();
        Command::new(env!("CARGO_BIN_EXE_clockwork"))
            .args(arguments)
            .args(["--admin", &admin])
            .output()
            .unwrap()
    }
}

impl Drop for Plex {
    fn drop(&mut self) {
        self.stop.take();
    }
}

fn stdout(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn assign(file: FileName, store: &str) -> Assign {
    Assign { file, store: store.to_owned(), also: Vec::new(), reason: "because".to_owned() }
}

fn refused<T: std::fmt::Debug>(result: Result<T, ClientError>) -> (u16, String) {
    match result {
        Err(ClientError::Refused { status, error, .. }) => (status, error),
        other => panic!("{other:?}"),
    }
}

#[test]
fn files_are_assigned_listed_in_pages_and_unassigned() {
    let plex = Plex::start();
    let client = plex.client();
    let path = FileName::Path("/export/a".to_owned());
    let moved = client.assign(&assign(path.clone(), "slow")).unwrap();
    assert_eq!((moved.handle.as_str(), moved.path.as_deref()), ("0a0b", Some("/export/a")));
    assert_eq!(
        (moved.from.as_deref(), moved.to.as_deref(), moved.table_version),
        (Some("fast"), Some("slow"), 2)
    );
    for handle in ["ff", "0102"] {
        client.assign(&assign(FileName::Handle(handle.to_owned()), "fast")).unwrap();
    }
    let full = client.assign(&assign(FileName::Handle("03".to_owned()), "fast"));
    assert_eq!(refused(full), (409, "exceptions_full".to_owned()));

    let first = client.exceptions(None, 2).unwrap();
    let handles = |page: &clockwork_router::web::types::ExceptionPage| {
        page.exceptions.iter().map(|exception| exception.handle.clone()).collect::<Vec<_>>()
    };
    assert_eq!((first.total, handles(&first)), (3, vec!["0102".to_owned(), "0a0b".to_owned()]));
    assert_eq!(first.exceptions[1].reason, "because");
    let second = client.exceptions(first.next.as_deref(), 2).unwrap();
    assert_eq!((handles(&second), second.next), (vec!["ff".to_owned()], None));

    assert!(client.unassign(&path).unwrap().waiting);
    assert_eq!(refused(client.unassign(&path)), (404, "not_assigned".to_owned()));
    assert_eq!(client.exceptions(None, 10).unwrap().total, 2);
}

#[test]
fn errors_say_what_kind_they_are() {
    let plex = Plex::start();
    let client = plex.client();
    let path = |path: &str| FileName::Path(path.to_owned());
    assert_eq!(refused(client.assign(&assign(path("/export/a"), "none"))), (404, "unknown_store".to_owned()));
    assert_eq!(refused(client.assign(&assign(path("/export/b"), "fast"))), (404, "unknown_file".to_owned()));
    assert_eq!(refused(client.assign(&assign(path("export/a"), "fast"))), (400, "bad_request".to_owned()));
    assert_eq!(refused(client.assign(&assign(path(&format!("/{}", "x".repeat(4_096))), "fast"))).0, 400);
    assert_eq!(refused(client.assign(&assign(FileName::Handle("abc".to_owned()), "fast"))).0, 400);
    for also in [vec!["fast".to_owned()], vec!["slow".to_owned(); 2]] {
        let twice = Assign { also, ..assign(path("/export/a"), "fast") };
        assert_eq!(refused(client.assign(&twice)), (400, "bad_request".to_owned()));
    }
    let many = Assign {
        also: (0..16).map(|store| format!("s{store}")).collect(),
        ..assign(path("/export/a"), "fast")
    };
    assert_eq!(refused(client.assign(&many)), (400, "bad_request".to_owned()));
    let unknown = Assign { also: vec!["none".to_owned()], ..assign(path("/export/a"), "fast") };
    assert_eq!(refused(client.assign(&unknown)), (404, "unknown_store".to_owned()));
    let long = Assign { reason: "x".repeat(257), ..assign(path("/export/a"), "fast") };
    assert_eq!(refused(client.assign(&long)).0, 400);
    assert_eq!(refused(client.drain("../../status", false)), (404, "unknown_store".to_owned()));
    assert_eq!(refused(client.hot(101, 1)), (500, "history".to_owned()));
}

#[test]
fn stores_are_drained_but_the_last_one_only_by_force() {
    let plex = Plex::start();
    let client = plex.client();
    let drained = client.drain("slow", false).unwrap();
    assert_eq!((drained.before, drained.now), (StoreState::Up, StoreState::Drained));
    assert_eq!(refused(client.drain("fast", false)), (409, "last_store".to_owned()));
    let why = stderr(&plex.clockwork(&["drain", "fast"]));
    assert!(why.contains("every client waits; slow is drained; `--force` "), "{why}");
    assert_eq!(client.drain("fast", true).unwrap().now, StoreState::Drained);
    assert_eq!(client.undrain("fast").unwrap().now, StoreState::Up);
    let states: Vec<_> = client.status().unwrap().stores.into_iter().map(|store| store.state).collect();
    assert_eq!(states, [StoreState::Up, StoreState::Drained]);
}

#[test]
fn measurements_are_read_back() {
    let plex = Plex::start();
    let periods = plex.client().periods(3).unwrap().periods;
    assert_eq!(periods.len(), 3);
    assert_eq!(periods[2].stores[0].median_response_ms, Some(1.25));
    assert_eq!(plex.client().periods(0).unwrap().periods.len(), 1, "at least one");
    assert_eq!(
        plex.client().periods(usize::MAX).unwrap().periods.len(),
        1_500,
        "at most two months of hours"
    );
    assert_eq!(plex.client().hot(1, 2).unwrap().files.len(), 2);
}

#[test]
fn pages_in_a_browser_are_kept_out() {
    let plex = Plex::start();
    let own = plex.admin.to_string();
    let get = |host: &str| plex.raw("GET /v1/status", host, "", "").0;
    assert_eq!(get(&own), 200);
    assert_eq!(get("localhost"), 200);
    assert_eq!(get("plex.evil.example"), 403, "a name that was rebound to this address");
    let drain = |headers: &str| plex.raw("POST /v1/stores/slow/drain", &own, headers, "").0;
    assert_eq!(drain("Content-Type: text/plain\r\n"), 403, "a form of another site");
    assert_eq!(
        drain("Origin: http://evil.example\r\nClockwork-Admin: 1\r\n"),
        200,
        "a browser asks before it sends this"
    );
    let preflight = plex.raw("OPTIONS /v1/stores/slow/drain", &own, "Origin: http://evil.example\r\n", "");
    assert_eq!(preflight.0, 403);
    assert!(!preflight.1.to_lowercase().contains("access-control-allow"));
}

#[test]
fn what_is_no_request_is_answered_with_what_is_wrong() {
    let plex = Plex::start();
    let own = plex.admin.to_string();
    let json = "Content-Type: application/json\r\nClockwork-Admin: 1\r\n";
    let put = |headers: &str, body: &str| plex.raw("PUT /v1/exceptions", &own, headers, body);
    let right = r#"{"file": {"path": "/export/a"}, "store": "slow"}"#;
    assert_eq!(put(json, right).0, 200);
    for wrong in [
        "",
        "{",
        "[]",
        r#"{"file": "/export/a", "store": "slow"}"#,
        r#"{"file": {"path": "/export/a"}, "store": "slow", "why": ""}"#,
    ] {
        let (status, answer) = put(json, wrong);
        assert_eq!(status, 400, "{wrong}");
        assert!(answer.contains("bad_request"), "{answer}");
    }
    assert_eq!(put("Clockwork-Admin: 1\r\n", right).0, 400, "not declared as JSON");
    let long = format!("{{\"file\": {{\"path\": \"/{}\"}}, \"store\": \"slow\"}}", "x".repeat(20_000));
    assert_eq!(put(json, &long).0, 400);
    let status = |request: &str| plex.raw(request, &own, json, "").0;
    assert_eq!(status("GET /v1/exceptions?limit=x"), 400);
    assert_eq!(status("GET /v1/exceptions?lmit=1"), 400);
    assert_eq!(status("GET /v1/exceptions?after=0"), 400);
    assert_eq!(status("DELETE /v1/exceptions"), 400);
    assert_eq!(status("DELETE /v1/exceptions?path=/export/a&handle=00"), 400);
    assert_eq!(status("GET /v1/unknown"), 404);
    assert_eq!(status("POST /v1/status"), 405);
}

#[test]
fn connections_are_bounded_and_places_come_back() {
    let plex = Plex::start();
    let open = |_| {
        let mut stream = TcpStream::connect(plex.admin).unwrap();
        // A whole head, and a body that does not come.
        let head = format!("PUT /v1/exceptions HTTP/1.1\r\nHost: {}\r\n", plex.admin);
        write!(stream, "{head}Clockwork-Admin: 1\r\nContent-Length: 9\r\n\r\n").unwrap();
        stream
    };
    let mut busy: Vec<TcpStream> = (0..ADMIN_CONNECTIONS_MAX).map(open).collect();
    std::thread::sleep(Duration::from_millis(50));
    let mut waiting = TcpStream::connect(plex.admin).unwrap();
    write!(waiting, "GET /v1/status HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", plex.admin).unwrap();
    waiting.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert!(waiting.read(&mut [0; 1]).is_err(), "served beyond the limit");
    let mut late = busy.pop().unwrap();
    drop(busy);
    waiting.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut answer = String::new();
    waiting.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    late.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    answer.clear();
    late.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408"), "its body has not come in time: {answer}");
}

#[test]
fn who_sends_no_whole_request_keeps_nobody_out() {
    let plex = Plex::start();
    let mut held = Vec::new();
    for number in 0..2 * ADMIN_CONNECTIONS_MAX {
        let mut stream = TcpStream::connect(plex.admin).unwrap();
        if number % 2 == 0 {
            stream.write_all(b"GET /v1/status HTTP/1.1\r\nX").unwrap();
        }
        held.push(stream);
    }
    let mut asking = TcpStream::connect(plex.admin).unwrap();
    write!(asking, "GET /v1/status HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", plex.admin).unwrap();
    asking.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut answer = String::new();
    asking.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn metrics_are_the_numbers_of_the_status_in_the_text_format() {
    let plex = Plex::start();
    let (status, answer) = plex.raw("GET /metrics", &plex.admin.to_string(), "", "");
    assert_eq!(status, 200);
    assert!(answer.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{answer}");
    let (_, text) = answer.split_once("\r\n\r\n").unwrap();
    for line in [
        "clockwork_info{version=\"0.1.0\"} 1",
        "clockwork_store_up{store=\"fast\"} 1",
        "clockwork_store_requests_total{store=\"slow\"} 123456",
        "clockwork_store_mean_response_seconds{store=\"fast\"} 0.00025",
        "clockwork_limit_used{limit=\"pins_max\"} 60000",
        "clockwork_records_refused_total{reason=\"too_long\"} 2",
        "clockwork_records_refused_total{reason=\"too_many \\\"fragments\\\"\"} 5",
        "# TYPE clockwork_records_refused_total counter",
    ] {
        assert!(text.lines().any(|own| own == line), "{line} is missing from\n{text}");
    }
    assert!(!text.contains("mean_response_seconds{store=\"slow\"}"), "no replies, no mean");
    well_formed(text);
}

/// Every sample belongs to the family declared last before it, and no family is declared twice.
fn well_formed(text: &str) {
    let mut seen: Vec<&str> = Vec::new();
    for line in text.lines() {
        if let Some(family) = line.strip_prefix("# TYPE ") {
            let name = family.split(' ').next().unwrap();
            assert!(!seen.contains(&name), "{name} twice");
            seen.push(name);
        } else if !line.starts_with('#') {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert_eq!(name.split('{').next(), seen.last().copied());
            assert!(value.parse::<f64>().unwrap().is_finite());
        }
    }
}

#[test]
fn the_page_shows_the_status_and_runs_nothing() {
    let plex = Plex::start();
    let (status, answer) = plex.raw("GET /", &plex.admin.to_string(), "", "");
    assert_eq!(status, 200);
    assert!(answer.contains("content-security-policy: default-src 'none'; "), "{answer}");
    assert!(
        answer.contains("<td>10.0.0.1:2049</td>") && answer.contains("every store is unhealthy"),
        "{answer}"
    );
    assert!(answer.contains("too_many &quot;fragments&quot;"), "names are escaped");
}

#[test]
fn status_is_an_aligned_table_or_json() {
    let plex = Plex::start();
    plex.client().drain("slow", false).unwrap();
    let expected = "\
clockwork 0.1.0 on [::]:2049, up 1 d 01:01:01, table 2
ALARM: every store is unhealthy
control control: at most 5 ms in 66 % of the periods; last period missed, next predicted to meet it; 7 files moved, 2 in the last decision; weights as learnt (`clockwork weights`)

STORE  ADDRESS        STATE          WEIGHT  EPOCH  IN FLIGHT  WAITING  REQUESTS  FAILED  MEAN ms
fast   10.0.0.0:2049  up                1.5      3     17/240        0    123456       1     0.25
slow   10.0.0.1:2049  drained  1.2 (of 1.5)      3     17/240        0    123456       1        -
slow is drained: taken out by the operator

LIMIT      USED    MAX  TIMES REACHED
pins_max  60000  65536              0
";
    assert_eq!(stdout(&plex.clockwork(&["status"])), expected);
    let all = stdout(&plex.clockwork(&["status", "--all"]));
    assert!(all.contains("connections_max") && all.contains("records_refused (too_long)"), "{all}");
    let json: serde_json::Value =
        serde_json::from_str(&stdout(&plex.clockwork(&["status", "--json"]))).unwrap();
    assert_eq!(json["stores"][1]["state"], "drained");
}

#[test]
fn commands_say_what_they_changed() {
    let plex = Plex::start();
    let said = |arguments: &[&str]| stdout(&plex.clockwork(arguments));
    assert_eq!(said(&["assign", "/export/a", "slow"]), "/export/a: from fast to slow (table 2)\n");
    assert_eq!(said(&["assign", "0a0b", "slow", "--reason", "again"]), "0a0b: stays with slow (table 3)\n");
    let expected = "/export/a: from slow to fast as soon as its unstable writes are committed (table 4)\n";
    assert_eq!(said(&["unassign", "/export/a"]), expected);
    assert_eq!(said(&["drain", "slow"]), "slow: drained, was up; 4 calls in flight (table 5)\n");
    assert_eq!(said(&["drain", "slow"]), "slow: drained already\n");
    assert_eq!(said(&["undrain", "slow"]), "slow: up, was drained; 4 calls in flight (table 7)\n");
    let shared = said(&["assign", "0a0b", "slow", "fast", "--reason", "hot"]);
    assert_eq!(shared, "0a0b: from fast to slow; reads are shared: slow 50 %, fast 50 % (table 8)\n");
    let status = said(&["status"]);
    let line = "\n0a0b is read at slow 50 %, fast 50 %; all else goes to slow (operator: hot)\n";
    assert!(status.contains(line), "{status}");
}

#[test]
fn assigned_files_are_listed() {
    let plex = Plex::start();
    let said = |arguments: &[&str]| stdout(&plex.clockwork(arguments));
    assert_eq!(said(&["assign"]), "no file is assigned: all are where the default rule puts them\n");
    said(&["assign", "0a0b", "slow", "--reason", "front page\ntoday"]);
    said(&["assign", "ff", "slow", "fast"]);
    said(&["assign", "0102", "fast"]);
    let expected = "\
FILE  STORE                 BY        SINCE                 REASON
0102  fast                  operator  2000-02-29T00:00:00Z
0a0b  slow                  operator  2000-02-29T00:00:00Z  front page today
ff    slow 50 %, fast 50 %  operator  2000-02-29T00:00:00Z
";
    assert_eq!(said(&["assign"]), expected);
    let some = said(&["assign", "--limit", "2"]);
    assert!(!some.contains("\nff") && some.ends_with("\n1 more; `--limit 3` shows all\n"), "{some}");
    let json: serde_json::Value = serde_json::from_str(&said(&["assign", "--json", "--limit", "2"])).unwrap();
    assert_eq!((json["total"].as_u64(), json["next"].as_str()), (Some(3), Some("0a0b")));
    assert_eq!(json["exceptions"][1]["since_unix_ms"], 951_782_400_000_u64);

    for wrong in
        [&["assign", "/export/a"][..], &["assign", "--reason", "why"], &["assign", "0a0b", "slow", "--json"]]
    {
        assert_eq!(plex.clockwork(wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn the_plex_may_be_named() {
    let plex = Plex::start();
    let admin = format!("localhost:{}", plex.admin.port());
    let named = |admin: &str| {
        Command::new(env!("CARGO_BIN_EXE_clockwork")).args(["status", "--admin", admin]).output().unwrap()
    };
    assert!(stdout(&named(&admin)).starts_with("clockwork 0.1.0 on "));
    let wrong = named("8049");
    let why = String::from_utf8(wrong.stderr).unwrap();
    assert_eq!(wrong.status.code(), Some(2), "{why}");
    assert!(why.contains("give an IP address or a host name, and a port, such as 127.0.0.1:8049"), "{why}");
}

#[test]
fn weights_are_shown_and_reset() {
    let plex = Plex::start();
    let expected = "\
STORE  CONFIGURED  IN FORCE   SHARE
fast          1.5       1.5  55.6 %
slow          1.5       1.2  44.4 %
learnt by the controller (control.weights = \"apply\", table 1)
last change: they suit the stores
";
    assert_eq!(stdout(&plex.clockwork(&["weights"])), expected);
    let own = plex.admin.to_string();
    assert_eq!(plex.raw("DELETE /v1/weights", &own, "", "").0, 403, "a change needs the header");
    let reset = stdout(&plex.clockwork(&["weights", "--reset"]));
    assert!(reset.contains("those of the configuration (control.weights = \"apply\", table 2)"), "{reset}");
    let weights = plex.client().weights().unwrap();
    assert!(!weights.learnt && weights.stores.iter().all(|store| store.in_force == store.configured));
    let status = stdout(&plex.clockwork(&["status"]));
    assert!(!status.contains("as learnt") && !status.contains("(of "), "{status}");
}

#[test]
fn failing_commands_say_what_to_do() {
    let plex = Plex::start();
    let unknown = stderr(&plex.clockwork(&["drain", "slwo"]));
    assert_eq!(unknown, "clockwork: no store is named slwo; there are: fast, slow\n");
    let admin = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let gone = Plex { admin, stop: None };
    let unreachable = stderr(&gone.clockwork(&["status"]));
    assert!(
        unreachable.starts_with(&format!("clockwork: cannot reach a plex at {admin}: ")),
        "{unreachable}"
    );
    assert!(unreachable.contains("Is it running?") && unreachable.contains("--admin ADDRESS:PORT"));
}

#[test]
fn something_else_that_answers_is_not_taken_for_a_plex() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let admin = listener.local_addr().unwrap();
    let other = std::thread::spawn(move || {
        for body in ["{\"hello\": 1}", "<html>"] {
            let (mut stream, _) = listener.accept().unwrap();
            let _request = stream.read(&mut [0; 4096]).unwrap();
            let length = body.len();
            write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}")
                .unwrap();
        }
    });
    for _ in 0..2 {
        assert!(matches!(AdminClient::new(admin).status(), Err(ClientError::NotAPlex { .. })));
    }
    other.join().unwrap();
}
