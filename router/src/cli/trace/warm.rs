//! A trace as the past of a plex: its periods, written into a history.
//!
//! The files of a log have no file handles, which the history knows files by. So an imported file gets a stand-in
//! ([`Handle::stand_in`]) and its path as the router would show it; the controller tells by the path which handle is meant
//! once a client has looked the file up. The stores of that time are unknown: all requests stand under one that is called
//! [`IMPORTED`], a name that no configuration can have.
use std::collections::HashMap;
use std::io::{Read, Seek};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use clockwork_traces::trace_file::{FileCount, TraceIndex};

use crate::heat::{
    ClassCounts, FileCounts, FilePeriod, Handle, PeriodRecord, PeriodSpan, StoreCounts, StorePeriod, show,
};
use crate::history::{History, HistoryLimits, IMPORTED};

/// Periods, and counts of files in them, that are written at once: each write waits for the disk.
const PERIODS_AT_ONCE: usize = 256;
const FILES_AT_ONCE: usize = 100_000;

/// How requests of a log become calls of a past.
#[derive(Debug, Clone)]
pub(super) struct Past<'a> {
    /// Path of the export that the files lie in, as clients mount it.
    pub(super) export: &'a str,
    /// What the paths of URLs begin with that lie in the export; it is taken off. Requests for others are counted together.
    pub(super) strip: &'a str,
    /// The file that a URL with a `/` at its end is for; empty: the directory itself.
    pub(super) index: &'a str,
    /// NFS calls that a request makes.
    pub(super) calls_per_request: f64,
}

/// What was written into a history.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Written {
    pub(super) periods: usize,
    /// Paths of the trace that lie in no file of the export.
    pub(super) paths_outside: usize,
}

/// Files as the plex will know them. Several paths of a trace may be one file.
struct Files {
    /// The file of each path; none for those outside of the export.
    of_path: Vec<Option<usize>>,
    /// Handles, or what stands in for them with the path.
    files: Vec<(Handle, Option<Arc<str>>)>,
}

impl Files {
    fn of<'p>(paths: impl Iterator<Item = &'p [u8]>, past: &Past<'_>) -> Self {
        let mut known: HashMap<Handle, usize> = HashMap::new();
        let mut files = Self { of_path: Vec::new(), files: Vec::new() };
        for path in paths {
            let file = handle_in(path).map(|handle| (handle, None)).or_else(|| {
                let path = past.path_of(path)?;
                Some((Handle::stand_in(&path), Some(path.into())))
            });
            files.of_path.push(file.map(|(handle, path)| {
                *known.entry(handle).or_insert_with(|| {
                    files.files.push((handle, path));
                    files.files.len() - 1
                })
            }));
        }
        files
    }
}

/// The handle that a file of a capture is called by where its path is not known: `fh:` and hexadecimal digits.
fn handle_in(name: &[u8]) -> Option<Handle> {
    let digits = name.strip_prefix(b"fh:")?;
    let digit = |byte: u8| (byte as char).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let byte = |pair: &[u8]| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?);
    Handle::new(&digits.chunks(2).map(byte).collect::<Option<Vec<u8>>>()?)
}

impl Past<'_> {
    /// The path of a URL as the router will show the file: empty components and `.` left out, as clients leave them out.
    fn path_of(&self, path: &[u8]) -> Option<String> {
        let strip = self.strip.trim_end_matches('/').as_bytes();
        let inside = path.strip_prefix(strip).filter(|rest| rest.first() == Some(&b'/'))?;
        let index = if inside.ends_with(b"/") { self.index.as_bytes() } else { b"" };
        let mut shown = self.export.trim_end_matches('/').to_owned();
        for component in inside.split(|byte| *byte == b'/').chain([index]) {
            if !matches!(component, b"" | b".") {
                shown.push('/');
                show(component, &mut shown);
            }
        }
        Some(if shown.is_empty() { "/".into() } else { shown })
    }
}

/// Writes all known periods of a trace into a history, the oldest first; how many. A history that has periods of this time
/// already is left as it is, unless `replace` says that imported ones are to make room; where it fails, what was written is taken
/// back.
pub(super) fn write<R: Read + Seek>(
    index: &TraceIndex,
    trace: R,
    folder: &Path,
    past: &Past<'_>,
    replace: bool,
) -> anyhow::Result<Written> {
    let Some((first, periods)) = index.span() else { return Ok(Written::default()) };
    let span = start_ms(index, first)?..start_ms(index, first + periods.cast_signed())?;
    // The plex has limits of its own; by those of this command nothing that was measured may go.
    let limits = HistoryLimits { periods_max: usize::MAX, bytes_max: u64::MAX };
    let opened = History::open(folder, limits)?;
    if let Some(moved) = &opened.moved_aside {
        eprintln!("clockwork: {moved}");
    }
    let history = opened.history;
    make_room(&history, span.clone(), replace)?;
    let written = write_periods(index, trace, &history, past);
    if written.is_err() {
        history.forget(span).context("what was written before the failure could not be taken back")?;
    }
    written
}

fn is_imported(record: &PeriodRecord) -> bool {
    record.stores.iter().all(|store| store.name == IMPORTED)
}

fn make_room(history: &History, span: Range<u64>, replace: bool) -> anyhow::Result<()> {
    let (mut imported, mut measured) = (0, 0);
    for record in history.periods(span.clone()) {
        *(if is_imported(&record?) { &mut imported } else { &mut measured }) += 1;
    }
    let folder = history.path().display();
    anyhow::ensure!(
        measured == 0,
        "the history in {folder} has {measured} measured periods of this time; nothing was added"
    );
    anyhow::ensure!(
        imported == 0 || replace,
        "the history in {folder} has {imported} imported periods of this time already; nothing was added \
         (--replace takes these in their place)"
    );
    if imported > 0 {
        history.forget(span.clone())?;
    }
    if replace && let Some(before) = history.periods(..span.start).next_back().transpose()? {
        // One of another length, as of an import with a wrong one, may reach into this time from before.
        let PeriodSpan { start_unix_ms, length_ms } = before.span;
        if is_imported(&before) && start_unix_ms.saturating_add(length_ms) > span.start {
            history.forget(start_unix_ms..=start_unix_ms)?;
        }
    }
    Ok(())
}

fn write_periods<R: Read + Seek>(
    index: &TraceIndex,
    trace: R,
    history: &History,
    past: &Past<'_>,
) -> anyhow::Result<Written> {
    let Some((first, periods)) = index.span() else { return Ok(Written::default()) };
    let paths = (0..).take(index.files()).map(|file| index.path(file));
    let files = Files::of(paths, past);
    let mut reader = index.counts(trace);
    let (mut waiting, mut files_waiting) = (Vec::new(), 0);
    let paths_outside = files.of_path.iter().filter(|file| file.is_none()).count();
    let mut written = Written { periods: 0, paths_outside };
    let mut next = reader.next_period()?.map(|(period, counts)| (period, counts.to_vec()));
    for period in first..first + periods.cast_signed() {
        // A missing period stays missing: it has no record.
        if index.requests_in(period).is_none() {
            continue;
        }
        let counts = match next.take() {
            Some((found, counts)) if found == period => {
                next = reader.next_period()?.map(|(period, counts)| (period, counts.to_vec()));
                counts
            }
            later => {
                next = later;
                Vec::new()
            }
        };
        files_waiting += counts.len();
        waiting.push(record(index, period, &counts, &files, past)?);
        written.periods += 1;
        if waiting.len() >= PERIODS_AT_ONCE || files_waiting >= FILES_AT_ONCE {
            history.append_all(&waiting)?;
            (files_waiting, _) = (0, waiting.clear());
        }
    }
    history.append_all(&waiting)?;
    Ok(written)
}

fn start_ms(index: &TraceIndex, period: i64) -> anyhow::Result<u64> {
    let seconds = u64::try_from(index.head().period_start_s(period)).ok();
    seconds.and_then(|s| s.checked_mul(1_000)).context("a history has no periods before 1970; give --start")
}

fn record(
    index: &TraceIndex,
    period: i64,
    counts: &[FileCount],
    files: &Files,
    past: &Past<'_>,
) -> anyhow::Result<PeriodRecord> {
    let scaled = |requests: u64| (requests as f64 * past.calls_per_request).round() as u64;
    let mut store = StoreCounts::default();
    let mut other = FileCounts::default();
    let mut of_files: HashMap<usize, FileCounts> = HashMap::with_capacity(counts.len());
    for count in counts {
        let calls = ClassCounts {
            reads: scaled(count.reads()),
            writes: scaled(count.writes),
            metadata: scaled(count.metadata),
        };
        let (bytes_read, bytes_written) = (count.bytes_read, count.bytes_written);
        store.requests.add(&calls);
        store.bytes_read = store.bytes_read.saturating_add(bytes_read);
        store.bytes_written = store.bytes_written.saturating_add(bytes_written);
        let counts = FileCounts { calls, bytes_read, bytes_written };
        let file = files.of_path.get(count.file as usize).copied().flatten();
        file.map_or(&mut other, |file| of_files.entry(file).or_default()).add(&counts);
    }
    let listed = of_files.into_iter().filter_map(|(file, counts)| {
        let (handle, path) = files.files.get(file)?;
        Some(FilePeriod { handle: *handle, store: 0, path: path.clone(), counts })
    });
    let of_files = listed.collect();
    let span = PeriodSpan {
        start_unix_ms: start_ms(index, period)?,
        length_ms: u64::from(index.head().period_s) * 1_000,
    };
    let stores = vec![StorePeriod { name: IMPORTED.into(), counts: store }];
    let mut record = PeriodRecord { span, stores, files: of_files, other };
    record.sort_files();
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    use clockwork_traces::import::{ImportOptions, Importer};

    const TABLE: &str = "path,hour,count\n/a,0,3\n/b\\x,0,5\n/a,2,1\n";

    fn written(table: &str, folder: &Path, past: &Past<'_>, replace: bool) -> anyhow::Result<Written> {
        let options = ImportOptions { start_s: Some(782_982_000), ..ImportOptions::default() };
        let mut importer = Importer::new(Vec::new(), options).unwrap();
        importer.read("table", table.as_bytes()).unwrap();
        let trace = importer.finish().unwrap().0;
        write(&TraceIndex::read(&trace[..]).unwrap(), Cursor::new(&trace), folder, past, replace)
    }

    #[test]
    fn known_periods_become_records_with_paths_and_missing_ones_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let past = Past { export: "/export/", strip: "/", index: "index.html", calls_per_request: 2.0 };
        assert_eq!(written(TABLE, folder.path(), &past, false).unwrap().periods, 2);
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
    fn requests_become_calls_of_their_class() {
        let folder = tempfile::tempdir().unwrap();
        let past = Past { export: "/", strip: "", index: "", calls_per_request: 3.0 };
        let table = "path,hour,count,writes,metadata,bytes,bytes_written\n/a,0,10,2,3,500,70\n";
        written(table, folder.path(), &past, false).unwrap();
        let history = History::open(folder.path(), HistoryLimits::default()).unwrap().history;
        let record = history.last().unwrap().unwrap();
        let counts = &record.files[0].counts;
        assert_eq!(counts.calls, ClassCounts { reads: 15, writes: 6, metadata: 9 });
        assert_eq!((counts.bytes_read, counts.bytes_written), (500, 70));
        assert_eq!(record.stores[0].counts.requests, counts.calls);
    }

    #[test]
    fn urls_become_the_paths_of_files_and_those_outside_are_counted_together() {
        let past = Past { export: "/export", strip: "/pub/", index: "index.html", calls_per_request: 1.0 };
        for (url, wanted) in [
            ("/pub/a", Some("/export/a")),
            ("/pub//./d/", Some("/export/d/index.html")),
            ("/pub/", Some("/export/index.html")),
            ("/pub", None),
            ("/public/a", None),
            ("(other files)", None),
        ] {
            assert_eq!(past.path_of(url.as_bytes()).as_deref(), wanted, "{url}");
        }
        assert_eq!(handle_in(b"fh:01fF"), Handle::new(&[1, 255]));
        assert!([&b"fh:"[..], b"fh:012", b"fh:01/a", b"/fh:01"].iter().all(|name| handle_in(name).is_none()));
        let directory = Past { export: "/", strip: "", index: "", calls_per_request: 1.0 };
        assert_eq!(directory.path_of(b"/d/").as_deref(), Some("/d"));
        assert_eq!(directory.path_of(b"/").as_deref(), Some("/"));
        let table = "path,hour,count\n/pub/,0,3\n/pub/index.html,0,5\n/x,0,1\nfh:0a,0,2\n";
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(written(table, folder.path(), &past, false).unwrap().paths_outside, 1);
        let history = History::open(folder.path(), HistoryLimits::default()).unwrap().history;
        let record = history.last().unwrap().unwrap();
        assert_eq!((record.files.len(), record.files[0].counts.calls.reads), (2, 8));
        assert_eq!((record.files[1].handle, &record.files[1].path), (Handle::new(&[10]).unwrap(), &None));
        assert_eq!((record.other.calls.reads, record.requests()), (1, 11));
    }

    #[test]
    fn a_past_is_not_written_twice() {
        let folder = tempfile::tempdir().unwrap();
        let past = Past { export: "/", strip: "", index: "", calls_per_request: 1.0 };
        assert_eq!(written(TABLE, folder.path(), &past, false).unwrap().periods, 2);
        let error = written(TABLE, folder.path(), &past, false).unwrap_err();
        assert!(error.to_string().contains("already"), "{error}");
        let history = History::open(folder.path(), HistoryLimits::default()).unwrap().history;
        assert_eq!(history.len(), 2);
    }

    #[test]
    fn periods_of_another_length_are_replaced_also_where_they_begin_earlier() {
        let folder = tempfile::tempdir().unwrap();
        let past = Past { export: "/", strip: "/", index: "", calls_per_request: 1.0 };
        let import = |start_s, period_s, replace| {
            let options = ImportOptions { start_s: Some(start_s), period_s, ..ImportOptions::default() };
            let mut importer = Importer::new(Vec::new(), options).unwrap();
            importer.read("table", TABLE.as_bytes()).unwrap();
            let trace = importer.finish().unwrap().0;
            let index = TraceIndex::read(&trace[..]).unwrap();
            write(&index, Cursor::new(&trace), folder.path(), &past, replace).unwrap();
        };
        let lengths = || {
            let history = History::open(folder.path(), HistoryLimits::default()).unwrap().history;
            history.imported().unwrap().into_iter().collect::<Vec<_>>()
        };
        // Hours 0 and 2.
        import(782_982_000, 3_600, false);
        assert_eq!(lengths(), [(3_600_000, 2)]);
        // From the middle of hour 0 to that of hour 2, by half an hour.
        import(782_983_800, 1_800, true);
        assert_eq!(lengths(), [(1_800_000, 2), (3_600_000, 1)]);
        // From the middle of hour 2 on, which goes; what is before stays.
        import(782_991_000, 60, true);
        assert_eq!(lengths(), [(60_000, 2), (1_800_000, 2)]);
    }

    #[test]
    fn an_imported_past_is_replaced_if_asked_and_a_measured_one_never() {
        let folder = tempfile::tempdir().unwrap();
        let past = Past { export: "/", strip: "/", index: "", calls_per_request: 1.0 };
        written(TABLE, folder.path(), &past, false).unwrap();
        assert_eq!(written("path,hour,count\n/c,0,7\n", folder.path(), &past, true).unwrap().periods, 1);
        let open = || History::open(folder.path(), HistoryLimits::default()).unwrap().history;
        let counts: Vec<u64> = open().periods(..).map(|record| record.unwrap().requests()).collect();
        assert_eq!(counts, [7, 1], "what is outside of the new one's time stays");
        let mut measured = open().last().unwrap().unwrap();
        measured.stores[0].name = "a".into();
        open().append(&measured).unwrap();
        let error = written(TABLE, folder.path(), &past, true).unwrap_err();
        assert!(error.to_string().contains("measured"), "{error}");
        assert_eq!(open().len(), 3);
    }

    #[test]
    fn what_was_written_before_a_failure_is_taken_back() {
        let mut importer = Importer::new(Vec::new(), ImportOptions::default()).unwrap();
        let rows: String = (0..PERIODS_AT_ONCE + 9).map(|hour| format!("/a,{},1\n", hour + 9_000)).collect();
        importer.read("table", format!("path,hour,count\n{rows}").as_bytes()).unwrap();
        let trace = importer.finish().unwrap().0;
        let index = TraceIndex::read(&trace[..]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let past = Past { export: "/", strip: "/", index: "", calls_per_request: 1.0 };
        // The counts of the last periods are gone when they are read.
        let cut = Cursor::new(&trace[..trace.len() - 100]);
        write(&index, cut, folder.path(), &past, false).unwrap_err();
        let history = History::open(folder.path(), HistoryLimits::default()).unwrap().history;
        assert_eq!((history.len(), history.files()), (0, 0));
    }
}
