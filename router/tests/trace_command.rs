//! `clockwork trace` as a user meets it: what it says, its exit status, and what it leaves behind.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn clockwork(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_clockwork"))
        .arg("trace")
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Names in a folder, hidden ones too.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

const GOOD: &str = "h - - [10/Oct/2000:13:55:36 -0700] \"GET /a HTTP/1.0\" 200 5\n";

#[test]
fn a14_the_exit_status_is_3_only_above_max_bad_and_nothing_is_written_then() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("log"), format!("{GOOD}\"-\"\n{GOOD}")).unwrap();
    let refused = clockwork(folder.path(), &["import", "log", "-o", "t"]);
    assert_eq!(refused.status.code(), Some(3), "{}", text(&refused.stderr));
    assert!(
        text(&refused.stdout).contains("1 bad: not of the log's form (line 2)"),
        "{}",
        text(&refused.stdout)
    );
    assert_eq!(names(folder.path()), ["log"]);
    for allowed in ["1", "34%"] {
        let done = clockwork(folder.path(), &["import", "log", "-o", "t", "--max-bad", allowed]);
        assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    }
    assert_eq!(names(folder.path()), ["log", "t"]);
    let info = clockwork(folder.path(), &["info", "t"]);
    assert!(text(&info.stdout).contains("requests  2,"), "{}", text(&info.stdout));
}

#[test]
fn a14_inputs_that_are_no_logs_are_refused_and_an_old_trace_stays() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("log"), GOOD).unwrap();
    assert!(clockwork(folder.path(), &["import", "log", "-o", "t"]).status.success());
    let old = std::fs::read(at("t")).unwrap();
    std::fs::create_dir(at("folder")).unwrap();
    std::fs::write(at("empty"), "").unwrap();
    std::fs::write(at("garbage"), [0, 1, 2, 255, 10, 7]).unwrap();
    let mut other_version = old.clone();
    other_version[8] = 9;
    std::fs::write(at("version"), &other_version).unwrap();
    let mut damaged = old.clone();
    damaged[40] ^= 1;
    std::fs::write(at("damaged"), &damaged).unwrap();
    std::fs::write(at("cut"), &old[..old.len() - 5]).unwrap();
    for (input, says) in [
        ("folder", "is a directory"),
        ("empty", "no request"),
        ("garbage", "not a log of a known form"),
        ("t", "a trace already"),
        ("missing", "cannot read missing"),
    ] {
        let refused = clockwork(folder.path(), &["import", input, "-o", "t"]);
        assert_eq!(refused.status.code(), Some(1), "{input}");
        assert!(text(&refused.stderr).contains(says), "{input}: {}", text(&refused.stderr));
        assert_eq!(std::fs::read(at("t")).unwrap(), old, "{input}");
    }
    for (input, says) in [
        ("version", "version 9"),
        ("damaged", "at byte 12"),
        ("cut", "cut off at byte"),
        ("log", "not a trace"),
    ] {
        let refused = clockwork(folder.path(), &["info", input]);
        assert_eq!(refused.status.code(), Some(1), "{input}");
        assert!(text(&refused.stderr).contains(says), "{input}: {}", text(&refused.stderr));
    }
    let nowhere = clockwork(folder.path(), &["import", "log"]);
    assert_eq!(nowhere.status.code(), Some(2));
    assert!(
        text(&nowhere.stderr).contains("--output <FILE>|--into-history <FOLDER>"),
        "{}",
        text(&nowhere.stderr)
    );
    assert!(names(folder.path()).iter().all(|name| !name.starts_with('.')), "{:?}", names(folder.path()));
}

/// A gzip member of which the end is missing: the head, and a stored block that is longer than what is there.
fn cut_gzip() -> Vec<u8> {
    let lines = GOOD.repeat(20);
    let length = u16::try_from(2 * lines.len()).unwrap();
    let head = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 1];
    [&head[..], &length.to_le_bytes(), &(!length).to_le_bytes(), lines.as_bytes()].concat()
}

/// A capture of `whole` empty packets and one that is cut off in its middle.
fn cut_capture(whole: u32) -> Vec<u8> {
    let mut bytes = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0];
    for packet in 0..=whole {
        for word in [1_000 + packet, 0, 60, 60] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend([0; 60]);
    }
    bytes.truncate(bytes.len() - 31);
    bytes
}

#[test]
fn a14_what_is_cut_or_far_too_long_is_named_with_its_place_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("cut.gz"), cut_gzip()).unwrap();
    std::fs::write(at("cut.pcap"), cut_capture(2)).unwrap();
    std::fs::write(at("long"), format!("{GOOD}{}\n{GOOD}", "x".repeat(10 << 20))).unwrap();
    let files = names(folder.path());
    let import = |words: &[&str]| clockwork(folder.path(), &[&["import", "-o", "t"], words].concat());
    let refused = import(&["cut.gz"]);
    assert_eq!(refused.status.code(), Some(1));
    let said = text(&refused.stderr);
    assert!(
        said.contains("cut.gz") && said.contains("cut off after line 20 (byte 1180 of the text)"),
        "{said}"
    );
    for (input, says) in [
        (
            "cut.pcap",
            "1 bad: a packet that is cut off, or no packet; the capture is not read further (line 3)",
        ),
        ("long", "1 bad: longer than a line may be (line 2)"),
    ] {
        let refused = import(&[input]);
        assert_eq!(refused.status.code(), Some(3), "{input}: {}", text(&refused.stderr));
        assert!(text(&refused.stdout).contains(says), "{input}: {}", text(&refused.stdout));
        assert!(text(&refused.stderr).contains("nothing was written"), "{}", text(&refused.stderr));
        assert_eq!(names(folder.path()), files, "{input}");
    }
    assert!(import(&["long", "--max-bad", "1"]).status.success());
    let json = import(&["cut.pcap", "--max-bad", "1"]);
    assert_eq!(
        json.status.code(),
        Some(0),
        "a capture without calls, but with a bad packet: {}",
        text(&json.stderr)
    );
}

#[test]
fn an_export_comes_back_with_its_classes_and_a_post_is_what_it_is_told_to_be() {
    let folder = tempfile::tempdir().unwrap();
    let with = |verb: &str| GOOD.replace("GET", verb);
    std::fs::write(folder.path().join("log"), [with("GET"), with("POST"), with("HEAD")].concat()).unwrap();
    let run = |words: &[&str]| {
        let done = clockwork(folder.path(), words);
        assert!(done.status.success(), "{words:?}: {}", text(&done.stderr));
        text(&done.stdout)
    };
    assert!(run(&["import", "log", "-o", "t"]).contains("requests  3, 1 of them writes, 1 for metadata"));
    run(&["export", "t", "-o", "table"]);
    let again = run(&["import", "table", "--start", "2000-10-10T20:00Z", "-o", "again"]);
    assert!(again.contains("requests  3, 1 of them writes, 1 for metadata"), "{again}");
    let info: serde_json::Value = serde_json::from_str(&run(&["info", "again", "--json"])).unwrap();
    assert_eq!((info["version"].as_u64(), info["bytes_read"].as_u64()), (Some(2), Some(15)));
    let reads = run(&["import", "log", "--post-reads", "-o", "t"]);
    assert!(reads.contains("requests  3, 0 of them writes, 1 for metadata"), "{reads}");
}

#[test]
fn calgary_has_2400_periods_125602_requests_and_2999_files_and_comes_back_from_its_export() {
    let shared = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared");
    let log = shared.join("data/calgary/requests_A_1994-10-24_1995-01-31.csv.gz");
    if !log.is_file() {
        assert!(std::env::var_os("CI").is_none() || !shared.exists(), "{} is missing", log.display());
        eprintln!("skipped: no {}", log.display());
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let import = |log: &str, output: &str| {
        let span = ["--start", "1994-10-24T00:00-07:00", "--periods", "2400", "-o"];
        clockwork(folder.path(), &[&["import", log], &span[..], &[output]].concat())
    };
    let done = import(log.to_str().unwrap(), "c.trace");
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(clockwork(folder.path(), &["export", "c.trace", "-o", "c.csv"]).status.success());
    assert!(import("c.csv", "again.trace").status.success());
    for name in ["c.trace", "again.trace"] {
        let info = clockwork(folder.path(), &["info", name, "--json"]);
        let info: serde_json::Value = serde_json::from_slice(&info.stdout).unwrap();
        let of = |field: &str| info[field].as_u64().unwrap();
        assert_eq!((of("periods"), of("requests"), of("files")), (2_400, 125_602, 2_999), "{name}");
        assert_eq!(of("missing_periods"), 135, "{name}");
    }
}

#[test]
fn an_export_reads_standard_input_writes_all_or_nothing_and_knows_its_forms() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("log"), GOOD).unwrap();
    assert!(clockwork(folder.path(), &["import", "log", "-o", "t"]).status.success());
    let trace = std::fs::read(folder.path().join("t")).unwrap();
    let piped = |bytes: &[u8]| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_clockwork"))
            .args(["trace", "export", "-", "-o", "table"])
            .current_dir(folder.path())
            .stdin(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), bytes).unwrap();
        child.wait_with_output().unwrap()
    };
    let cut = piped(&trace[..trace.len() - 3]);
    assert_eq!(cut.status.code(), Some(1));
    assert!(text(&cut.stderr).contains("cut off at byte"), "{}", text(&cut.stderr));
    assert_eq!(names(folder.path()), ["log", "t"]);
    assert!(piped(&trace).status.success());
    let table = std::fs::read_to_string(folder.path().join("table")).unwrap();
    assert_eq!(table, "file,period,count,writes,metadata,bytes,bytes_written\n/a,0,1,0,0,5,0\n");
    let parquet = clockwork(folder.path(), &["export", "t", "--format", "parquet", "-o", "p"]);
    if cfg!(feature = "parquet") {
        assert!(parquet.status.success(), "{}", text(&parquet.stderr));
        let bytes = std::fs::read(folder.path().join("p")).unwrap();
        assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
    } else {
        assert_eq!(parquet.status.code(), Some(1));
        assert!(text(&parquet.stderr).contains("--features parquet"), "{}", text(&parquet.stderr));
    }
}
