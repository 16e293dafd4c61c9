//! `clockwork serve` says what it serves, serves it, and ends cleanly when told to.
#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking, in their helpers too")]
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

fn clockwork() -> Command {
    Command::new(env!("CARGO_BIN_EXE_clockwork"))
}

/// Ends with the test, however that ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Lines of a child's standard output, up to one that begins with `last`.
fn lines(child: &mut Child, last: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        lines.push(line.unwrap());
        if lines.last().is_some_and(|line| line.starts_with(last)) {
            break;
        }
    }
    lines
}

fn store(folder: &Path, name: &str) -> (Running, String) {
    let mut command = clockwork();
    command.arg("store").arg(folder).args(["--name", name, "--seed", "7"]);
    let mut child = Running(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let said = lines(&mut child.0, "mount with");
    let address =
        said[0].split(" as ").nth(1).and_then(|rest| rest.strip_suffix(":/export")).unwrap().to_owned();
    (child, address)
}

/// A number after `what` in a line.
fn after<'l>(lines: &'l [String], what: &str) -> &'l str {
    let line =
        lines.iter().find(|line| line.contains(what)).unwrap_or_else(|| panic!("no {what} in {lines:?}"));
    line.split(what).nth(1).unwrap().split_whitespace().next().unwrap()
}

#[test]
fn it_serves_until_it_is_told_to_end_and_keeps_what_was_decided() {
    let (folder, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(data.path().join("file"), b"data").unwrap();
    let stores = [store(data.path(), "a"), store(data.path(), "b")];
    let config = folder.path().join("plex.toml");
    let text = format!(
        "[listen]\naddress = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[history]\npath = \"history\"\n\
         [[store]]\nname = \"a\"\naddress = \"{}\"\nduplicate_cache = \"none\"\nprivileged_port = false\n\
         [[store]]\nname = \"b\"\naddress = \"{}\"\nduplicate_cache = \"none\"\nprivileged_port = false\n\
         [[export]]\npath = \"/export\"\nclients = [\"127.0.0.0/8\"]\nsecure = false\n",
        stores[0].1, stores[1].1
    );
    std::fs::write(&config, text).unwrap();
    for run in 0..2 {
        let mut command = clockwork();
        command.arg("serve").arg("--config").arg(&config);
        let mut serve = Running(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
        let said = lines(&mut serve.0, "mount ");
        let mount = said.last().unwrap();
        assert!(
            mount.contains("mount -t nfs -o vers=3,proto=tcp,port=")
                && mount.ends_with("127.0.0.1:/export /mnt")
        );
        let admin = after(&said, "admin interface on http://").to_owned();
        let ask = |arguments: &[&str]| {
            let output = clockwork().args(arguments).args(["--admin", &admin]).output().unwrap();
            assert!(output.status.success(), "{arguments:?}: {output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        if run == 0 {
            assert!(
                said.iter().filter(|line| line.starts_with("store ") && line.ends_with(" up")).count() == 2
            );
            ask(&["assign", "/export/file", "b"]);
            ask(&["drain", "a"]);
        } else {
            assert!(
                said.iter().any(|line| line.starts_with("store ") && line.contains("drained")),
                "{said:?}"
            );
            ask(&["unassign", "/export/file"]);
        }
        let end = Command::new("kill").arg(serve.0.id().to_string()).status().unwrap();
        assert!(end.success());
        let mut log = String::new();
        serve.0.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        let status = serve.0.wait().unwrap();
        assert_eq!(status.code(), Some(0), "{log}");
        assert!(log.contains("SIGTERM") && !log.contains("ERROR") && !log.contains("panicked"), "{log}");
    }
}

/// What a process has in memory, KiB.
fn resident_kib(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a02_hostile_marks_cost_less_than_a_mebibyte_and_few_lines_in_the_log() {
    let (folder, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (_store, store) = store(data.path(), "a");
    let config = folder.path().join("plex.toml");
    let text = format!(
        "[listen]\naddress = \"127.0.0.1:0\"\n[admin]\nlisten = \"off\"\n[history]\npath = \"off\"\n\
         [[store]]\nname = \"a\"\naddress = \"{store}\"\nduplicate_cache = \"none\"\nprivileged_port = false\n\
         [[export]]\npath = \"/export\"\nclients = [\"127.0.0.0/8\"]\nsecure = false\n",
    );
    std::fs::write(&config, text).unwrap();
    let mut command = clockwork();
    command.arg("serve").arg("--config").arg(&config);
    let mut serve = Running(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let mount = lines(&mut serve.0, "mount ").pop().unwrap();
    let port: u16 = mount.split("port=").nth(1).unwrap().split(',').next().unwrap().parse().unwrap();
    let connect = || {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        stream
    };
    let mut good = connect();
    // NFS NULL with an empty credential: mark, XID, CALL, RPC version 2, program, version, procedure, four words.
    let null = [0x8000_0028_u32, 7, 0, 2, 100_003, 3, 0, 0, 0, 0, 0].map(u32::to_be_bytes).concat();
    let mut others_go_on = || {
        good.write_all(&null).unwrap();
        let mut reply = [0; 28];
        good.read_exact(&mut reply).unwrap();
        assert_eq!(reply[4..8], [0, 0, 0, 7]);
    };
    let attack = |rounds: usize| {
        for _ in 0..rounds {
            for bytes in [&b"\xff\xff\xff\xff"[..], b"\x13BitTorrent protocol", b"GET / HTTP/1.1\r\n\r\n"] {
                let mut bad = connect();
                bad.write_all(bytes).unwrap();
                let mut rest = Vec::new();
                // Closed or reset within the second of the read timeout, without a reply.
                let end = bad.read_to_end(&mut rest);
                assert!(end.is_ok_and(|read| read == 0) || bad.peek(&mut [0]).is_ok_and(|n| n == 0));
            }
        }
    };
    // What the first connections need once is no growth.
    attack(10);
    others_go_on();
    let before_kib = resident_kib(serve.0.id());
    attack(100);
    // As long as a record may be, and nothing of it comes.
    let mut waiting: Vec<TcpStream> = (0..100).map(|_| connect()).collect();
    for stream in &mut waiting {
        stream.write_all(&(0x8000_0000_u32 | 1 << 20).to_be_bytes()).unwrap();
    }
    others_go_on();
    std::thread::sleep(Duration::from_millis(100));
    let grown_kib = resident_kib(serve.0.id()).saturating_sub(before_kib);
    assert!(grown_kib < 1024, "grown by {grown_kib} KiB");
    others_go_on();
    drop(waiting);
    assert!(Command::new("kill").arg(serve.0.id().to_string()).status().unwrap().success());
    let mut log = String::new();
    serve.0.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    let warned = log.lines().filter(|line| line.contains("sends no RPC records")).count();
    assert!((1..=40).contains(&warned), "{warned} lines for 330 connections:\n{log}");
}

#[test]
fn a_wrong_configuration_is_named_and_is_status_2() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("plex.toml");
    std::fs::write(&config, "[listen]\nadress = \"[::]:2049\"\n").unwrap();
    let output = clockwork().arg("serve").arg("--config").arg(&config).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("plex.toml:2") && said.contains("adress"), "{said}");
}

#[test]
fn an_address_that_is_taken_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("plex.toml");
    let text = format!(
        "[listen]\naddress = \"{address}\"\n[admin]\nlisten = \"off\"\n[history]\npath = \"off\"\n[[store]]\nname = \
         \"a\"\naddress = \"127.0.0.1:9\"\n[[export]]\npath = \"/export\"\nclients = [\"127.0.0.1\"]\n"
    );
    std::fs::write(&config, text).unwrap();
    let output = clockwork().arg("serve").arg("--config").arg(&config).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let expected = format!(
        "clockwork: cannot listen on {address} over TCP: Address already in use (os error 98); another server has the \
         port: choose another one, or stop that server\n"
    );
    assert_eq!(said, expected, "each part once");
}

#[test]
fn a_second_router_on_the_port_is_refused_and_a_killed_one_starts_again_at_once() {
    let (folder, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (_store, store) = store(data.path(), "a");
    let config = |name: &str, address: &str| {
        let file = folder.path().join(name);
        let text = format!(
            "[listen]\naddress = \"{address}\"\n[admin]\nlisten = \"off\"\n[history]\npath = \"{name}.history\"\n\
             [[store]]\nname = \"a\"\naddress = \"{store}\"\nduplicate_cache = \"none\"\nprivileged_port = false\n\
             [[export]]\npath = \"/export\"\nclients = [\"127.0.0.0/8\"]\nsecure = false\n",
        );
        std::fs::write(&file, text).unwrap();
        file
    };
    let serve = |config: &Path| {
        let mut command = clockwork();
        command.arg("serve").arg("--config").arg(config).stdout(Stdio::piped()).stderr(Stdio::null());
        Running(command.spawn().unwrap())
    };
    // An address of this test alone, so that nobody else gets the port while nobody has it.
    let mut first = serve(&config("first", "127.91.1.1:0"));
    let said = lines(&mut first.0, "mount ");
    let address = after(&said, "MOUNT on ").to_owned();
    let client = TcpStream::connect(&address).unwrap();

    let second = config("second", &address);
    let refused = clockwork().arg("serve").arg("--config").arg(&second).output().unwrap();
    let why = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{why}");
    assert!(why.contains(&format!("cannot listen on {address} over TCP: Address already in use")), "{why}");

    // SIGKILL, with a client connected.
    drop(first);
    let mut again = serve(&second);
    assert_eq!(after(&lines(&mut again.0, "mount "), "MOUNT on "), address);
    drop(client);
}

/// A configuration with a history and one store.
fn with_history(folder: &Path, history: &str, store: &str, more: &str) -> std::path::PathBuf {
    let config = folder.join("plex.toml");
    let text = format!(
        "[listen]\naddress = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[history]\npath = \"{history}\"\n\
         [[store]]\nname = \"a\"\naddress = \"{store}\"\nduplicate_cache = \"none\"\nprivileged_port = false\n\
         [[export]]\npath = \"/export\"\nclients = [\"127.0.0.0/8\"]\nsecure = false\n{more}"
    );
    std::fs::write(&config, text).unwrap();
    config
}

/// What `clockwork` says to a running plex.
fn asked(admin: &str, arguments: &[&str]) -> String {
    let output = clockwork().args(arguments).args(["--admin", admin]).output().unwrap();
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn a_history_that_cannot_be_used_is_an_alarm_and_one_in_use_ends_the_start() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), b"no folder").unwrap();
    let control = "[control]\nmode = \"control\"\n";
    let config = with_history(folder.path(), "file/history", "127.0.0.1:9", control);
    let mut command = clockwork();
    command.arg("serve").arg("--config").arg(&config).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut serve = Running(command.spawn().unwrap());
    let said = lines(&mut serve.0, "mount ");
    let admin = after(&said, "admin interface on http://");
    let status = asked(admin, &["status"]);
    for part in ["file/history", "without a history", "outlives a restart", "moves nothing"] {
        assert!(status.contains(part), "no {part:?} in {status}");
    }
    let said = asked(admin, &["drain", "a", "--force"]);
    assert!(said.contains("in force, but not kept: history") && !said.contains("without"), "{said}");

    let config = with_history(folder.path(), "kept", "127.0.0.1:9", "");
    let _other = clockwork_router::history::History::open(
        folder.path().join("kept"),
        clockwork_router::history::HistoryLimits::default(),
    )
    .unwrap();
    let refused = clockwork().arg("serve").arg("--config").arg(&config).output().unwrap();
    let why = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{why}");
    assert!(why.contains("another process has it open"), "{why}");
}

/// Asks for the state until it is as wanted.
fn wait_for_status(admin: &str, wanted: impl Fn(&str) -> bool) {
    let begun = std::time::Instant::now();
    loop {
        let status = asked(admin, &["status"]);
        if wanted(&status) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{status}");
        std::thread::sleep(Duration::from_millis(300));
    }
}

#[test]
fn what_was_drained_while_the_disk_was_full_is_kept_when_there_is_room_again() {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    const ALARM: &str = "would not outlive a restart";
    let folder = tempfile::tempdir().unwrap();
    let config = with_history(folder.path(), "kept", "127.0.0.1:9", "");
    let serve = || {
        // A file beyond the limit is to be an error, not a signal.
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "trap '' XFSZ; exec \"$0\" serve --config \"$1\"",
            env!("CARGO_BIN_EXE_clockwork"),
        ]);
        command.arg(&config).stdout(Stdio::piped()).stderr(Stdio::null());
        Running(command.spawn().unwrap())
    };
    let mut full = serve();
    let admin = after(&lines(&mut full.0, "mount "), "admin interface on http://").to_owned();
    let process = Pid::from_raw(full.0.id().try_into().unwrap());
    let none = Rlimit { current: Some(0), maximum: None };
    let before = prlimit(process, Resource::Fsize, none).unwrap();
    let said = asked(&admin, &["drain", "a", "--force"]);
    assert!(said.contains("in force, but not kept: history"), "{said}");
    wait_for_status(&admin, |status| status.contains(ALARM) && status.contains("ile too large"));
    prlimit(process, Resource::Fsize, before).unwrap();
    wait_for_status(&admin, |status| !status.contains(ALARM));
    // SIGKILL.
    drop(full);
    let mut again = serve();
    let said = lines(&mut again.0, "mount ");
    assert!(said.iter().any(|line| line.starts_with("store ") && line.contains("drained")), "{said:?}");
}
