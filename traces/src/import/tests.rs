use super::*;
use crate::trace_file::{FileCount, TraceData};
use std::io::Write as _;

fn imported(logs: &[&[u8]], options: ImportOptions) -> Result<(TraceData, Summary), ImportError> {
    let mut importer = Importer::new(Vec::new(), options)?;
    for (index, log) in logs.iter().enumerate() {
        importer.read(&format!("log {index}"), *log)?;
    }
    let (bytes, summary) = importer.finish()?;
    let data = TraceData::read(&bytes[..])?;
    assert_eq!(data.totals(), summary.totals);
    assert_eq!(data.span(), summary.span);
    Ok((data, summary))
}

/// A line of Common Log Format at so many seconds after 2000-10-10 00:00 UTC, below a day.
fn line(second: u32, path: &str) -> String {
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("h - - [10/Oct/2000:{hour:02}:{minute:02}:{second:02} +0000] \"GET {path} HTTP/1.0\" 200 10\n")
}

#[test]
fn a14_every_bad_line_is_counted_with_its_number_and_the_others_are_read() {
    let mut log = Vec::new();
    let bad: [&[u8]; 6] = [
        b"\"-\"",
        b"\x16\x03\x01",
        b"\xff\xfe\x00",
        b"a\rb",
        b"",
        b"h - - [10/Oct/2000:00:00:00 +0000] \"\" 400 0",
    ];
    for (index, bad) in bad.iter().enumerate() {
        log.extend(line(u32::try_from(index).unwrap(), "/a").bytes());
        log.extend(*bad);
        log.push(b'\n');
    }
    log.extend(line(3_600, "/b").trim_end().bytes());
    let (data, summary) = imported(&[&log], ImportOptions::default()).unwrap();
    assert_eq!((summary.good_lines, summary.bad_lines, summary.lines()), (7, 6, 13));
    assert_eq!(summary.requests, 7);
    assert_eq!(data.totals(), [Some(6), Some(1)]);
    let mut lines: Vec<(usize, u64)> = summary.uncounted.iter().flat_map(|u| u.first.clone()).collect();
    lines.sort_unstable();
    assert_eq!(lines, [2, 4, 6, 8, 10, 12].map(|line| (0, line)));
}

#[test]
fn logs_are_merged_whatever_their_order_and_packing() {
    let (early, late) = (line(10, "/a") + &line(20, "/b"), line(7_300, "/a") + &line(15, "/a"));
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(early.as_bytes()).unwrap();
    let mut two_members = gz.finish().unwrap();
    let mut gz = flate2::write::GzEncoder::new(two_members.clone(), flate2::Compression::fast());
    gz.write_all(late.as_bytes()).unwrap();
    two_members = gz.finish().unwrap();
    let mut zstd = zstd::encode_all(late.as_bytes(), 1).unwrap();
    zstd.extend(zstd::encode_all(early.as_bytes(), 1).unwrap());
    let wanted = imported(&[early.as_bytes(), late.as_bytes()], ImportOptions::default()).unwrap();
    assert_eq!(wanted.0.totals(), [Some(3), None, Some(1)]);
    assert_eq!((wanted.1.late_lines, wanted.1.silent_periods), (1, 1));
    for logs in [&[&two_members[..]][..], &[&zstd[..]], &[late.as_bytes(), early.as_bytes()]] {
        let (data, summary) = imported(logs, ImportOptions::default()).unwrap();
        assert_eq!(data.totals(), wanted.0.totals());
        assert_eq!((summary.requests, summary.files, summary.clients), (4, 2, 1));
    }
}

#[test]
fn a14_inputs_that_are_no_logs_are_named() {
    let error = |log: &[u8]| imported(&[log], ImportOptions::default()).unwrap_err();
    assert!(matches!(error(b"\x00\x01\x02binary\n garbage"), ImportError::Unknown { .. }));
    let trace = Importer::new(Vec::new(), ImportOptions::default()).unwrap().finish().unwrap().0;
    assert!(matches!(error(&trace), ImportError::IsTrace { .. }));
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let log: String = (0..20_000).map(|n| line(n, &format!("/{}", n * 7_919 % 10_007))).collect();
    gz.write_all(log.as_bytes()).unwrap();
    let gz = gz.finish().unwrap();
    let cut = error(&gz[..gz.len() / 2]);
    assert!(matches!(cut, ImportError::CutOff { line: 1_000.., .. }), "{cut}");
    let zstd = zstd::encode_all(log.as_bytes(), 1).unwrap();
    let cut = error(&zstd[..zstd.len() / 2]);
    assert!(matches!(cut, ImportError::CutOff { .. }), "{cut}");
    let (_, summary) = imported(&[b""], ImportOptions::default()).unwrap();
    assert_eq!(summary.empty_inputs, ["log 0"]);
}

#[test]
fn a14_gzip_with_padding_is_whole_and_what_else_follows_is_named_with_its_place() {
    let packed = |lines: std::ops::Range<u32>| {
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        lines.for_each(|n| gz.write_all(line(n, "/a").as_bytes()).unwrap());
        gz.finish().unwrap()
    };
    let padded = [packed(0..3), vec![0; 700], packed(3..5), vec![0; 1]].concat();
    assert_eq!(imported(&[&padded], ImportOptions::default()).unwrap().1.requests, 5);
    let error = |log: &[u8]| imported(&[log], ImportOptions::default()).unwrap_err();
    let junk = error(&[packed(0..3), b"junk".to_vec()].concat());
    assert!(matches!(junk, ImportError::Read { line: 3, .. }), "{junk}");
    assert!(junk.to_string().contains("not gzip"), "{junk}");
    let cut = error(&[packed(0..3), packed(0..3)[..20].to_vec()].concat());
    assert!(matches!(cut, ImportError::CutOff { line: 3, .. }), "also in a short log: {cut}");
    let utf16: Vec<u8> = [0xff, 0xfe].into_iter().chain(line(0, "/a").bytes().flat_map(|b| [b, 0])).collect();
    assert!(error(&utf16).to_string().contains("iconv"), "{}", error(&utf16));
    let marked = format!("\u{feff}{}", line(0, "/a") + &line(1, "/a"));
    let summary = imported(&[marked.as_bytes()], ImportOptions::default()).unwrap().1;
    assert_eq!((summary.good_lines, summary.clients), (2, 1));
}

#[test]
fn logs_that_overlap_and_lines_far_out_of_order_add_up_whatever_their_order() {
    let hours = |hours: &[i64]| {
        let row = |hour: &i64| format!("{},/a\n", hour * 3_600);
        format!("unix_s,path\n{}", hours.iter().map(row).collect::<String>())
    };
    let (one, two) = (hours(&[0, 1, 2, 3, 4]), hours(&[3, 4, 5, 8_000, 3]));
    let jumping = hours(&[8_000, 0, 5, 3, 3, 1, 4, 2, 4, 3]);
    let options = || ImportOptions { open_counts_max: 2, ..ImportOptions::default() };
    let (wanted, summary) = imported(&[one.as_bytes(), two.as_bytes()], options()).unwrap();
    assert_eq!(
        (summary.span.map(|span| span.1), summary.silent_periods, summary.requests),
        (Some(8_001), 7_994, 10)
    );
    assert_eq!(wanted.totals()[..6], [1, 1, 1, 3, 2, 1].map(Some));
    for logs in [&[two.as_bytes(), one.as_bytes()][..], &[jumping.as_bytes()]] {
        assert_eq!(imported(logs, options()).unwrap().0.totals(), wanted.totals());
    }
}

#[test]
fn what_lies_outside_of_the_span_is_left_out_and_what_is_silent_is_missing_or_zero() {
    let log = line(0, "/a") + &line(3_600, "/a") + &line(10_800, "/a") + &line(50_000, "/a");
    let start = time::iso(b"2000-10-10T01:00Z").unwrap().unix_s();
    let options = ImportOptions { start_s: Some(start), periods: Some(4), ..ImportOptions::default() };
    let (data, summary) = imported(&[log.as_bytes()], options.clone()).unwrap();
    assert_eq!(data.totals(), [Some(1), None, Some(1), None]);
    assert_eq!((summary.good_lines, summary.bad_lines, summary.requests), (4, 0, 2));
    assert_eq!(summary.uncounted[0].reason, Reason::Outside);
    let options = ImportOptions { silent_is_zero: true, ..options };
    let (data, _) = imported(&[log.as_bytes()], options).unwrap();
    assert_eq!(data.totals(), [Some(1), Some(0), Some(1), Some(0)]);
}

#[test]
fn a_period_of_refusals_only_had_no_requests() {
    let log = line(0, "/a") + &line(3_600, "/x").replace(" 200 ", " 404 ") + &line(7_200, "/a");
    let (data, summary) = imported(&[log.as_bytes()], ImportOptions::default()).unwrap();
    assert_eq!(data.totals(), [Some(1), Some(0), Some(1)]);
    assert_eq!((summary.files, summary.good_lines), (1, 3));
    let all = ImportOptions { all_statuses: true, ..ImportOptions::default() };
    assert_eq!(imported(&[log.as_bytes()], all).unwrap().0.totals(), [Some(1); 3]);
}

#[test]
fn files_and_clients_beyond_their_limits_are_counted_together() {
    let log: String =
        (0..100).map(|n| line(n, &format!("/{n}")).replacen('h', &format!("c{n}"), 1)).collect();
    let options =
        ImportOptions { files_max: 10, clients_max: 5, open_counts_max: 3, ..ImportOptions::default() };
    let (data, summary) = imported(&[log.as_bytes()], options).unwrap();
    assert_eq!((summary.requests, summary.overflow_requests, summary.files), (100, 90, 11));
    assert_eq!(data.files[10].path, OTHER_FILES);
    assert_eq!(data.periods.values().next().unwrap()[10].requests, 90);
    assert_eq!((summary.clients, summary.overflow_client_requests), (5, 95));
    assert!(data.clients.values().all(|client| client.address.is_empty()));
}

#[test]
fn addresses_are_kept_when_asked_for() {
    let options = ImportOptions { keep_addresses: true, ..ImportOptions::default() };
    let (data, _) = imported(&[line(0, "/a").as_bytes()], options).unwrap();
    assert_eq!(data.clients[&1].address, b"h");
}

#[test]
fn a_time_far_from_the_others_is_bad() {
    let log = line(0, "/a") + &line(0, "/a").replace("2000", "9999") + &line(5, "/a");
    let (_, summary) = imported(&[log.as_bytes()], ImportOptions::default()).unwrap();
    assert_eq!((summary.good_lines, summary.uncounted[0].reason), (2, Reason::FarTime));
}

#[test]
fn what_is_appended_adds_up() {
    let mut importer = Importer::new(Vec::new(), ImportOptions::default()).unwrap();
    importer.read("one", line(0, "/a").as_bytes()).unwrap();
    let (old, _) = importer.finish().unwrap();
    let mut importer = Importer::append(&old[..], Vec::new(), ImportOptions::default()).unwrap();
    importer.read("two", (line(10, "/a") + &line(3_601, "/b")).as_bytes()).unwrap();
    let (bytes, summary) = importer.finish().unwrap();
    assert_eq!(summary.requests, 2);
    let data = TraceData::read(&bytes[..]).unwrap();
    assert_eq!(data.totals(), [Some(2), Some(1)]);
    assert_eq!((data.files.len(), data.clients.len()), (2, 2));
}

#[test]
fn requests_keep_their_class_and_what_they_brought_and_took() {
    let common = |verb: &str| line(0, "/a").replace("GET", verb);
    let logs = [
        [common("GET"), common("HEAD"), common("PUT"), common("POST"), common("DELETE")].concat(),
        "#Fields: date time cs-method cs-uri-stem sc-bytes cs-bytes\n2000-10-10 00:00:00 PUT /a 7 900\n\
         2000-10-10 00:00:00 GET /a 10 300\n"
            .into(),
        r#"{"ts":971136000,"request":{"method":"PUT","uri":"/a"},"size":3,"bytes_read":50,"status":201}"#.into(),
        r#"{"StartUTC":"2000-10-10T00:00:00Z","RequestMethod":"POST","RequestPath":"/a","RequestContentSize":60}"#
            .into(),
        "unix_s,path,method,bytes,bytes_written\n971136000,/a,PUT,1,70\n971136000,/a,STAT,5,9\n".into(),
        "path,period,count,writes,metadata,bytes,bytes_written\n/a,269760,10,2,3,80,90\n".into(),
    ];
    let logs: Vec<&[u8]> = logs.iter().map(String::as_bytes).collect();
    let (data, summary) = imported(&logs, ImportOptions::default()).unwrap();
    let of = |requests, writes, metadata, bytes_read, bytes_written| FileCount {
        file: 0,
        requests,
        writes,
        metadata,
        bytes_read,
        bytes_written,
    };
    let wanted = of(21, 8, 5, 50 + 17 + 3 + 6 + 80, 900 + 50 + 60 + 70 + 90);
    assert_eq!(data.periods.values().collect::<Vec<_>>(), [&vec![wanted]]);
    assert_eq!((summary.requests, summary.writes, summary.metadata), (21, 8, 5));
    assert_eq!(data.files[0].bytes, 900, "what was written, not what a write was answered with");
    let options = ImportOptions { post_reads: true, ..ImportOptions::default() };
    assert_eq!(imported(&logs, options).unwrap().1.writes, 6);
    // More of a class than there are.
    let wrong = "path,period,count,writes,metadata\n/a,0,10,8,3\n";
    let (_, summary) = imported(&[wrong.as_bytes()], ImportOptions::default()).unwrap();
    assert_eq!((summary.bad_lines, summary.uncounted[0].reason), (1, Reason::Number));
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let wrong = |options| matches!(Importer::new(Vec::new(), options), Err(ImportError::Option(_)));
    assert!(wrong(ImportOptions { period_s: 0, ..ImportOptions::default() }));
    assert!(wrong(ImportOptions { periods: Some(5), ..ImportOptions::default() }));
    assert!(wrong(ImportOptions { name: "A b".into(), ..ImportOptions::default() }));
    assert!(wrong(ImportOptions { files_max: 0, ..ImportOptions::default() }));
}

proptest::proptest! {
    #[test]
    fn good_and_bad_lines_are_all_lines(
        lines in proptest::collection::vec(proptest::collection::vec(proptest::prelude::any::<u8>(), 0..30), 0..20),
    ) {
        let mut log = line(0, "/a").into_bytes();
        for line in &lines {
            log.extend(line);
            log.push(b'\n');
        }
        let total = log.iter().filter(|byte| **byte == b'\n').count() as u64;
        let (_, summary) = imported(&[&log], ImportOptions::default()).unwrap();
        proptest::prop_assert_eq!(summary.lines(), total);
        let uncounted: u64 = summary.uncounted.iter().map(|uncounted| uncounted.lines).sum();
        proptest::prop_assert_eq!(summary.requests + uncounted, total);
    }
}
