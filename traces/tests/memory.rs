//! Memory that reading a trace takes, measured by an allocator that counts.
#![allow(unsafe_code, reason = "a global allocator is an unsafe trait; this one only counts")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use clockwork_traces::trace_file::{FileCount, Head, Span, TraceData, TraceIndex, TraceWriter};
use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Cursor;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: all is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        PEAK.fetch_max(NOW.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What some work allocates at most, beyond what there was before.
fn peak<T>(work: impl FnOnce() -> T) -> (usize, T) {
    let before = NOW.load(Relaxed);
    PEAK.store(before, Relaxed);
    let result = work();
    (PEAK.load(Relaxed) - before, result)
}

const FILES: u32 = 5_000;

/// A trace in which every file is asked for in every period. The blocks of all periods come in turns, as from two logs.
fn trace(periods: i64) -> Vec<u8> {
    let head = Head { name: "site".into(), about: String::new(), period_s: 3_600, origin_s: 0 };
    let mut writer = TraceWriter::new(Vec::new(), &head).unwrap();
    let names: Vec<String> = (0..FILES).map(|file| format!("/{file}")).collect();
    writer.name_files(names.iter().map(String::as_bytes)).unwrap();
    let counts: Vec<FileCount> = (0..FILES)
        .map(|file| FileCount { file, requests: 3, bytes_read: 9, ..FileCount::default() })
        .collect();
    for half in counts.chunks(FILES as usize / 2) {
        (0..periods).for_each(|period| writer.counts(period, half).unwrap());
    }
    writer.span(Span { first: 0, periods: periods.unsigned_abs(), silent_is_zero: false }).unwrap();
    writer.finish().unwrap()
}

fn streamed(bytes: &[u8]) -> u64 {
    let index = TraceIndex::read(bytes).unwrap();
    let mut reader = index.counts(Cursor::new(bytes));
    let mut requests = 0;
    while let Some((_, counts)) = reader.next_period().unwrap() {
        assert_eq!(counts.len(), FILES as usize);
        requests += counts.iter().map(|count| count.requests).sum::<u64>();
    }
    requests
}

#[test]
fn an_index_and_one_period_take_the_same_memory_however_long_a_trace_is() {
    let (short, long) = (trace(20), trace(400));
    let (of_short, requests) = peak(|| streamed(&short));
    assert_eq!(requests, 20 * u64::from(FILES) * 3);
    let (of_long, requests) = peak(|| streamed(&long));
    assert_eq!(requests, 400 * u64::from(FILES) * 3);
    assert!(of_long < of_short + 100_000, "{of_long} bytes for 20 times the counts of {of_short}");
    assert!(of_long < 2_000_000, "{of_long}");
    let (whole, data) = peak(|| TraceData::read(&long[..]).unwrap());
    assert!(data.periods.len() == 400 && whole > 20 * of_long, "a measure that shows growth: {whole}");
}
