//! `clockwork serve` says what it serves, serves it, and ends cleanly when told to.
#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking, in their helpers too")]
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

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
    assert!(said.contains(&format!("cannot listen on {address} over TCP")), "{said}");
}
