//! `clockwork check`, as a person runs it.
#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking, in their helpers too")]
use std::path::Path;
use std::process::{Command, Output};

fn check(file: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_clockwork")).arg("check").arg("--config").arg(file).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_right_configuration_is_ok_with_a_summary() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/clockwork.example.toml");
    let output = check(&example);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(said.starts_with("ok\nserve     NFSv3 and MOUNT on [::]:2049 over TCP and UDP\n"), "{said}");
    assert!(output.stderr.is_empty());
}

#[test]
fn all_faults_are_shown_and_the_exit_status_is_2() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plex.toml");
    std::fs::write(&file, "[lisen]\n[[store]]\nname = \"a\"\naddress = \"nas\"\n").unwrap();
    let output = check(&file);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    let said = text(&output.stderr).replace(&file.display().to_string(), "plex.toml");
    let expected = "\
plex.toml:1:1: export: missing; allowed: at least one [[export]] with path and clients
1 | [lisen]
  | ^
plex.toml:1:2: lisen: no such field; did you mean `listen`?
1 | [lisen]
  |  ^^^^^
plex.toml:4:11: store[a].address: \"nas\" is not allowed; allowed: \"HOST:PORT\", such as \"10.0.0.11:2049\" or \"nas1.example.org:2049\"
4 | address = \"nas\"
  |           ^^^^^

3 faults to correct
";
    assert_eq!(said, expected);
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let missing = check(&folder.path().join("none.toml"));
    assert_eq!(missing.status.code(), Some(2));
    assert!(
        text(&missing.stderr).contains("none.toml: cannot read the configuration: "),
        "{}",
        text(&missing.stderr)
    );
    let binary = folder.path().join("binary");
    std::fs::write(&binary, [0xff, 0xfe, 0x00]).unwrap();
    assert_eq!(check(&binary).status.code(), Some(2));
    let long = folder.path().join("long");
    std::fs::File::create(&long).unwrap().set_len(1 << 30).unwrap();
    let long = check(&long);
    assert_eq!(long.status.code(), Some(2));
    assert!(text(&long.stderr).contains("too many for a configuration"), "{}", text(&long.stderr));
    assert_eq!(check(folder.path()).status.code(), Some(2));
}
