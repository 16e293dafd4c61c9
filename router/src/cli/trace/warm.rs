//! A trace as the past of a plex: its periods, written into a history.
//!
//! The files of a log have no file handles, which the history knows files by. So an imported file gets a stand-in
//! ([`stand_in`]) and its path as the router would show it; whoever reads the history tells by the path which handle is meant
//! once a client has looked the file up. The stores of that time are unknown: all requests stand under one that is called
//! [`STORE`], a name that no configuration can have.
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use clockwork_traces::trace_file::{FileCount, TraceData};
use xxhash_rust::xxh3::xxh3_128;

use crate::heat::{
    ClassCounts, FileCounts, FilePeriod, Handle, PeriodRecord, PeriodSpan, StoreCounts, StorePeriod,
};
use crate::history::{History, HistoryLimits};

/// The store that imported requests stand under.
const STORE: &str = "(imported)";
/// What the stand-ins for handles begin with; a hash of the path follows.
const STAND_IN: &[u8; 9] = b"imported:";

/// How requests of a log become calls of a past.
#[derive(Debug, Clone)]
pub(super) struct Past<'a> {
    /// Path of the export that the files lie in, as clients mount it.
    pub(super) export: &'a str,
    /// NFS calls that a request makes.
    pub(super) calls_per_request: f64,
}

/// Writes all known periods of a trace into a history, the oldest first; how many. A history that has periods of this time
/// already is left as it is.
pub(super) fn write(data: &TraceData, folder: &Path, past: &Past<'_>) -> anyhow::Result<usize> {
    let Some((first, periods)) = data.span() else { return Ok(0) };
    let (begin, end) = (start_ms(data, first)?, start_ms(data, first + periods.cast_signed())?);
    let opened = History::open(folder, HistoryLimits::default())?;
    if let Some(moved) = &opened.moved_aside {
        eprintln!("clockwork: {moved}");
    }
    let there = opened.history.periods(begin..end).count();
    anyhow::ensure!(
        there == 0,
        "the history in {} has {there} periods of this time already; nothing was added",
        folder.display()
    );
    let files: Vec<(Handle, Arc<str>)> =
        data.files.iter().map(|file| named(&file.path, past.export)).collect::<anyhow::Result<_>>()?;
    let mut written = 0;
    for period in first..first + periods.cast_signed() {
        // A missing period stays missing: it has no record.
        if data.requests(period).is_some() {
            let counts = data.periods.get(&period).map_or(&[][..], Vec::as_slice);
            opened.history.append(&record(data, period, counts, &files, past)?)?;
            written += 1;
        }
    }
    Ok(written)
}

fn start_ms(data: &TraceData, period: i64) -> anyhow::Result<u64> {
    let seconds = u64::try_from(data.head.period_start_s(period)).ok();
    seconds.and_then(|s| s.checked_mul(1_000)).context("a history has no periods before 1970; give --start")
}

fn named(path: &[u8], export: &str) -> anyhow::Result<(Handle, Arc<str>)> {
    let mut bytes = STAND_IN.to_vec();
    bytes.extend(xxh3_128(path).to_be_bytes());
    let handle = Handle::new(&bytes).context("a stand-in is as long as a handle may be")?;
    let shown =
        format!("{}/{}", export.trim_end_matches('/'), shown(path.strip_prefix(b"/").unwrap_or(path)));
    Ok((handle, shown.into()))
}

/// A path as the router shows it: control characters, backslashes and what is no UTF-8 escaped.
fn shown(path: &[u8]) -> String {
    let mut shown = String::new();
    for chunk in path.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character == '\\' || character.is_control() {
                shown.extend(character.escape_default());
            } else {
                shown.push(character);
            }
        }
        shown.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    shown
}

fn record(
    data: &TraceData,
    period: i64,
    counts: &[FileCount],
    files: &[(Handle, Arc<str>)],
    past: &Past<'_>,
) -> anyhow::Result<PeriodRecord> {
    let scaled = |requests: u64| (requests as f64 * past.calls_per_request).round() as u64;
    let mut store = StoreCounts::default();
    let mut of_files = Vec::with_capacity(counts.len());
    for count in counts {
        let Some((handle, path)) = files.get(count.file as usize) else { continue };
        let reads = scaled(count.requests.saturating_sub(count.writes));
        let calls = ClassCounts { reads, writes: scaled(count.writes), metadata: 0 };
        let all_writes = count.writes == count.requests;
        let (bytes_read, bytes_written) = if all_writes { (0, count.bytes) } else { (count.bytes, 0) };
        store.requests.add(&calls);
        store.bytes_read = store.bytes_read.saturating_add(bytes_read);
        store.bytes_written = store.bytes_written.saturating_add(bytes_written);
        let counts = FileCounts { calls, bytes_read, bytes_written };
        of_files.push(FilePeriod { handle: *handle, store: 0, path: Some(path.clone()), counts });
    }
    let span = PeriodSpan {
        start_unix_ms: start_ms(data, period)?,
        length_ms: u64::from(data.head.period_s) * 1_000,
    };
    let stores = vec![StorePeriod { name: STORE.into(), counts: store }];
    let mut record = PeriodRecord { span, stores, files: of_files, other: FileCounts::default() };
    record.sort_files();
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clockwork_traces::import::{ImportOptions, Importer};

    fn trace() -> TraceData {
        let table = "path,hour,count\n/a,0,3\n/b\\x,0,5\n/a,2,1\n";
        let options = ImportOptions { start_s: Some(782_982_000), ..ImportOptions::default() };
        let mut importer = Importer::new(Vec::new(), options).unwrap();
        importer.read("table", table.as_bytes()).unwrap();
        TraceData::read(&importer.finish().unwrap().0[..]).unwrap()
    }

    #[test]
    fn known_periods_become_records_with_paths_and_missing_ones_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let past = Past { export: "/export/", calls_per_request: 2.0 };
        assert_eq!(write(&trace(), folder.path(), &past).unwrap(), 2);
        let history = History::open(folder.path(), HistoryLimits::default()).unwrap().history;
        let records: Vec<PeriodRecord> = history.periods(..).map(Result::unwrap).collect();
        assert_eq!(records.len(), 2);
        assert_eq!(records[1].span, PeriodSpan { start_unix_ms: 782_989_200_000, length_ms: 3_600_000 });
        assert_eq!((records[0].requests(), records[1].requests()), (16, 2));
        let paths: Vec<&str> = records[0].files.iter().filter_map(|file| file.path.as_deref()).collect();
        assert_eq!(paths, ["/export/b\\\\x", "/export/a"]);
        assert_eq!(records[0].files[1].handle, records[1].files[0].handle);
    }

    #[test]
    fn a_past_is_not_written_twice() {
        let folder = tempfile::tempdir().unwrap();
        let past = Past { export: "/", calls_per_request: 1.0 };
        assert_eq!(write(&trace(), folder.path(), &past).unwrap(), 2);
        let error = write(&trace(), folder.path(), &past).unwrap_err();
        assert!(error.to_string().contains("already"), "{error}");
        let history = History::open(folder.path(), HistoryLimits::default()).unwrap().history;
        assert_eq!(history.len(), 2);
    }
}
