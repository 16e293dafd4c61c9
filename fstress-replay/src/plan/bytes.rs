//! How many bytes the requests of a trace were for.

use clockwork_traces::trace_file::TraceData;

/// The mean bytes of a request for each file in each period of a trace, where the trace says so.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestBytes {
    /// By period from the first one on, by file: sorted.
    periods: Vec<Vec<(u32, u64)>>,
}

impl RequestBytes {
    /// Those of a trace: hours and files are numbered as in `Workload::of_trace`.
    #[must_use]
    pub fn of_trace(data: &TraceData) -> Self {
        let (first, periods) = data.span().unwrap_or((0, 0));
        let of_period = |period: i64| {
            let counts = data.periods.get(&period).map_or(&[][..], Vec::as_slice);
            let known = counts.iter().filter(|count| count.requests > 0 && count.bytes_read > 0);
            known.map(|count| (count.file, count.bytes_read.div_ceil(count.requests))).collect()
        };
        Self { periods: (first..first.saturating_add_unsigned(periods)).map(of_period).collect() }
    }

    /// The mean bytes of a request for a file in an hour; `None` where the trace says nothing.
    #[must_use]
    pub fn of(&self, hour: u32, file: u32) -> Option<u64> {
        let period = self.periods.get(hour as usize)?;
        let place = period.binary_search_by_key(&file, |(file, _)| *file).ok()?;
        period.get(place).map(|(_, bytes)| *bytes)
    }
}
