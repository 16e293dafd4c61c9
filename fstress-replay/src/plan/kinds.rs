//! What the requests of a trace do: how many of them write, how many concern metadata alone, and how many bytes they are for.

use clockwork_traces::trace_file::{FileCount, TraceData};
use clockwork_wire::nfs3::Class;
use xxhash_rust::xxh3::xxh3_64;

/// What the requests for a file do in a period.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Kinds {
    /// Part of them that write, 0 to 1.
    pub writes: f32,
    /// Part of them that concern metadata alone, 0 to 1; the rest read.
    pub metadata: f32,
    /// Mean bytes of those that read, where the trace says so.
    pub read_bytes: Option<u64>,
    /// Mean bytes of those that write, where the trace says so.
    pub write_bytes: Option<u64>,
}

impl Kinds {
    fn of(count: &FileCount) -> Self {
        let part = |some: u64| (some as f64 / count.requests.max(1) as f64) as f32;
        let mean = |bytes: u64, of: u64| (bytes > 0 && of > 0).then(|| bytes.div_ceil(of.max(1)));
        Self {
            writes: part(count.writes),
            metadata: part(count.metadata),
            read_bytes: mean(count.bytes_read, count.reads()),
            write_bytes: mean(count.bytes_written, count.writes),
        }
    }
}

/// The kinds of requests for each file in each period of a trace.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RequestKinds {
    /// By period from the first one on, by file: sorted.
    periods: Vec<Vec<(u32, Kinds)>>,
    reads_only: bool,
}

impl RequestKinds {
    /// Those of a trace: hours and files are numbered as in `Workload::of_trace`.
    #[must_use]
    pub fn of_trace(data: &TraceData) -> Self {
        let (first, periods) = data.span().unwrap_or((0, 0));
        let of_period = |period: i64| {
            let counts = data.periods.get(&period).map_or(&[][..], Vec::as_slice);
            counts.iter().map(|count| (count.file, Kinds::of(count))).collect()
        };
        let reads_only = data.periods.values().flatten().all(|count| count.reads() == count.requests);
        Self { periods: (first..first.saturating_add_unsigned(periods)).map(of_period).collect(), reads_only }
    }

    /// What the requests for a file do in an hour; they read where the trace says nothing.
    #[must_use]
    pub fn of(&self, hour: u32, file: u32) -> Kinds {
        let known = |period: &Vec<(u32, Kinds)>| {
            let place = period.binary_search_by_key(&file, |(file, _)| *file).ok()?;
            period.get(place).map(|(_, kinds)| *kinds)
        };
        self.periods.get(hour as usize).and_then(known).unwrap_or_default()
    }

    /// Whether all requests read.
    #[must_use]
    pub fn reads_only(&self) -> bool {
        self.reads_only
    }
}

/// Deals classes out to the requests of each file: of any number of them in a row as many write as the trace says, give or take
/// one. Where in the row it begins is a file's own, so that many files with few requests come out right together.
#[derive(Debug)]
pub(super) struct Classes {
    /// By file: what is due of writes and of requests for metadata; at 1 there is one.
    due: Vec<[f32; 2]>,
}

impl Classes {
    pub(super) fn new(files: usize, seed: u64) -> Self {
        let part = |file: u64, what: u64| {
            let lot = xxh3_64(&[file, what, seed].map(u64::to_le_bytes).concat());
            // 24 bits: what f32 holds exactly.
            (lot >> 40) as f32 / (1_u32 << 24) as f32
        };
        Self { due: (0..files as u64).map(|file| [part(file, 1), part(file, 2)]).collect() }
    }

    pub(super) fn deal(&mut self, file: u32, kinds: Kinds) -> Class {
        let Some([writes, metadata]) = self.due.get_mut(file as usize) else { return Class::Read };
        *writes += kinds.writes;
        *metadata += kinds.metadata;
        for (due, class) in [(writes, Class::Write), (metadata, Class::Metadata)] {
            if *due >= 1.0 {
                *due -= 1.0;
                return class;
            }
        }
        Class::Read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_requests_write_as_the_trace_says() {
        let kinds = |writes, metadata| Kinds { writes, metadata, ..Kinds::default() };
        let mut classes = Classes::new(1_000, 7);
        let mut deal = |file, kinds, times: u32| {
            let mut counts = [0_u32; 3];
            (0..times).for_each(|_| counts[classes.deal(file, kinds) as usize] += 1);
            counts
        };
        for (file, (writes, metadata)) in
            [(0.0, 0.0), (1.0, 0.0), (0.3, 0.0), (0.25, 0.6), (0.0, 1.0)].into_iter().enumerate()
        {
            let found = deal(u32::try_from(file).unwrap(), kinds(writes, metadata), 1_000);
            let wanted = [1.0 - writes - metadata, writes, metadata];
            for (found, wanted) in found.into_iter().zip(wanted) {
                assert!(
                    (f64::from(found) - f64::from(wanted) * 1_000.0).abs() <= 2.0,
                    "{file}: {found}, {wanted}"
                );
            }
        }
        // A request each for many files.
        let writes: u32 =
            (100..1_000).map(|file| deal(file, kinds(0.1, 0.0), 1)[Class::Write as usize]).sum();
        assert!((60..120).contains(&writes), "{writes} of 900");
    }

    #[test]
    fn means_are_those_of_the_requests_of_a_class() {
        let count =
            FileCount { file: 0, requests: 10, writes: 2, metadata: 3, bytes_read: 51, bytes_written: 9 };
        let kinds = Kinds::of(&count);
        assert_eq!((kinds.read_bytes, kinds.write_bytes), (Some(11), Some(5)));
        assert!((kinds.writes - 0.2).abs() < 1e-6 && (kinds.metadata - 0.3).abs() < 1e-6);
        let silent = Kinds::of(&FileCount { requests: 4, writes: 4, bytes_read: 9, ..FileCount::default() });
        assert_eq!((silent.read_bytes, silent.write_bytes), (None, None));
    }
}
