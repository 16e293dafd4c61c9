//! Logs, tables, captures and traces with random damage: whatever comes in, an import ends with a message or with a trace
//! that adds up.

use super::*;
use crate::trace_file::{TraceData, TraceIndex};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::io::Write as _;

/// Damaged copies of each sample.
const COPIES: u64 = 300;

/// One input of each form, and of each packing.
fn samples() -> Vec<(&'static str, Vec<u8>)> {
    let lines = |line: &dyn Fn(u32) -> String| (0..40).map(line).collect::<String>().into_bytes();
    let common = lines(&|n| {
        format!(
            "10.0.0.{n} - - [27/Oct/2019:0{}:59:{n:02} +0200] \"GET /d{}/f?q={n} HTTP/1.1\" 200 {n}00 \"-\" \"x\"\n",
            n % 5,
            n % 7
        )
    });
    let w3c = [
        b"#Fields: date time c-ip cs-method cs-uri-stem sc-status sc-bytes cs-bytes\r\n".to_vec(),
        lines(&|n| format!("2019-10-27 00:{n:02}:00 ::1 PUT /a{} 201 5 {n}\r\n", n % 3)),
    ];
    let json = lines(&|n| {
        format!(
            "{{\"ts\":15721344{n:02}.5,\"request\":{{\"method\":\"POST\",\"uri\":\"/\\u00e9{}\\/b\",\"headers\":{{\"A\":[\"b\"]}}}},\
             \"size\":{n},\"bytes_read\":7,\"status\":200}}\n",
            n % 4
        )
    });
    let requests = [
        b"t_s,file_id,method,status,bytes,client\n".to_vec(),
        lines(&|n| format!("{},\"f \"\"{}\"\", x\",GET,200,{n},c{n}\n", n * 1_000, n % 5)),
    ];
    let counts = [
        b"path,period,count,writes,metadata,bytes,bytes_written\n".to_vec(),
        lines(&|n| format!("/f{},{},9,2,3,{n},{n}\n", n % 6, i64::from(n) - 20)),
    ];
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(&common).unwrap();
    let mut importer = Importer::new(Vec::new(), ImportOptions::default()).unwrap();
    importer.read("counts", &counts.concat()[..]).unwrap();
    vec![
        ("gzip", gz.finish().unwrap()),
        ("zstd", zstd::encode_all(&common[..], 1).unwrap()),
        ("common", common),
        ("w3c", w3c.concat()),
        ("json", json),
        ("requests", requests.concat()),
        ("counts", counts.concat()),
        ("pcap", capture::tests::sample(false)),
        ("pcapng", capture::tests::sample(true)),
        ("trace", importer.finish().unwrap().0),
    ]
}

/// Does some harm: bytes changed, cut out, put in, doubled or exchanged; numbers made extreme; the end lost.
fn damage(bytes: &mut Vec<u8>, rng: &mut ChaCha8Rng) {
    for _ in 0..rng.random_range(1..6) {
        let length = bytes.len().max(1);
        let at = rng.random_range(0..length);
        let until = (at + rng.random_range(1..64)).min(bytes.len());
        match rng.random_range(0..8) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at.min(until)..until)),
            2 => {
                let part = bytes.get(at..until).unwrap_or_default().to_vec();
                bytes.splice(at.min(bytes.len())..at.min(bytes.len()), part);
            }
            3 => {
                let noise: Vec<u8> = (0..rng.random_range(1..40)).map(|_| rng.random()).collect();
                bytes.splice(at.min(bytes.len())..at.min(bytes.len()), noise);
            }
            4 => {
                let extreme = [0, 0x7f, 0x80, 0xff][rng.random_range(0..4)];
                let until = (at + 4).min(bytes.len());
                bytes.get_mut(at..until).unwrap_or_default().fill(extreme);
            }
            5 => {
                let other = rng.random_range(0..length);
                if at < bytes.len() && other < bytes.len() {
                    bytes.swap(at, other);
                }
            }
            6 => {
                let digits = b"0123456789-,\"\n\r \\{}[]:";
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = digits[rng.random_range(0..digits.len())];
                }
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << rng.random_range(0..8);
                }
            }
        }
    }
}

/// Imports an input, told by its content or taken for a form; whether it became a trace.
fn becomes_a_trace(bytes: &[u8], format: Option<LogFormat>) -> bool {
    let options = ImportOptions {
        format,
        files_max: 20,
        clients_max: 20,
        open_counts_max: 30,
        line_bytes_max: 4_096,
        periods_max: 10_000,
        ..ImportOptions::default()
    };
    let mut importer = Importer::new(Vec::new(), options).unwrap();
    if importer.read("damaged", bytes).is_err() {
        return false;
    }
    let (trace, summary) = importer.finish().unwrap();
    let (data, index) = (TraceData::read(&trace[..]).unwrap(), TraceIndex::read(&trace[..]).unwrap());
    assert_eq!((index.requests(), index.totals()), (summary.requests, data.totals()));
    assert_eq!((index.sum().writes, index.sum().metadata), (summary.writes, summary.metadata));
    assert_eq!(data.totals().into_iter().flatten().sum::<u64>(), summary.requests);
    let bad: u64 = summary.uncounted.iter().filter(|u| u.reason.is_bad()).map(|u| u.lines).sum();
    assert_eq!(bad, summary.bad_lines);
    true
}

#[test]
fn a14_damaged_inputs_are_imported_or_refused() {
    let formats = [
        None,
        Some(LogFormat::Common),
        Some(LogFormat::W3c),
        Some(LogFormat::Json),
        Some(LogFormat::Requests),
        Some(LogFormat::Counts),
        Some(LogFormat::Capture),
    ];
    for (name, sample) in samples() {
        assert_eq!(becomes_a_trace(&sample, None), name != "trace", "{name}");
        let mut read = 0_u64;
        for copy in 0..COPIES {
            let mut rng = ChaCha8Rng::seed_from_u64(copy);
            let mut bytes = sample.clone();
            damage(&mut bytes, &mut rng);
            // Mostly as what it was; sometimes as something else.
            let format = if copy % 4 == 0 { formats[rng.random_range(0..formats.len())] } else { None };
            read += u64::from(becomes_a_trace(&bytes, format));
        }
        if !matches!(name, "trace" | "gzip" | "zstd") {
            assert!(read > COPIES / 2, "{name}: {read} of {COPIES} copies were read");
        }
    }
}

#[test]
fn a14_damaged_traces_are_read_or_refused_and_so_is_what_is_added_to_them() {
    let (_, sample) = samples().pop().unwrap();
    for copy in 0..COPIES * 3 {
        let mut rng = ChaCha8Rng::seed_from_u64(copy);
        let mut bytes = sample.clone();
        damage(&mut bytes, &mut rng);
        if bytes == sample {
            continue;
        }
        let whole = TraceData::read(&bytes[..]);
        assert_eq!(whole.is_ok(), TraceIndex::read(&bytes[..]).is_ok());
        let appended = Importer::append(&bytes[..], Vec::new(), ImportOptions::default());
        assert_eq!(appended.is_ok(), whole.is_ok());
    }
}
