//! `clockwork store` starts, says where it serves, and says why when it cannot.
#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking, in their helpers too")]
use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::process::{Command, Stdio};

#[test]
fn it_says_where_it_serves_and_how_to_mount_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_clockwork"));
    let mut store = command.arg("store").arg(folder.path()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(store.stdout.take().unwrap()).lines();
    let serving = lines.next().unwrap().unwrap();
    let mount = lines.next().unwrap().unwrap();
    let address =
        serving.split(" as ").nth(1).and_then(|rest| rest.strip_suffix(":/export")).map(str::to_owned);
    let connected = address.as_deref().map(TcpStream::connect);
    store.kill().unwrap();
    store.wait().unwrap();
    assert!(matches!(connected, Some(Ok(_))), "{serving}");
    assert!(mount.starts_with("mount with: mount -t nfs -o vers=3,"), "{mount}");
}

#[test]
fn a_directory_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("none");
    let output = Command::new(env!("CARGO_BIN_EXE_clockwork")).arg("store").arg(&missing).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("clockwork: ") && said.contains(&missing.display().to_string()), "{said}");
}

#[test]
fn what_cannot_be_is_said_once() {
    let folder = tempfile::tempdir().unwrap();
    for (option, value, means) in
        [("--servers", "0", "a device has 1 to"), ("--export", "relative", "clients mount an absolute path")]
    {
        let mut command = Command::new(env!("CARGO_BIN_EXE_clockwork"));
        let output = command.arg("store").arg(folder.path()).args([option, value]).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said.matches(means).count(), 1, "{said}");
        assert!(said.contains(value), "{said}");
    }
}
