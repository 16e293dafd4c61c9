//! The counters themselves: what is counted of a file and of a store.

use clockwork_wire::nfs3::Class;

use super::response::ResponseTimes;

/// All classes, in the order in which they are stored and shown.
pub const CLASSES: [Class; 3] = [Class::Read, Class::Write, Class::Metadata];

/// Place of a class in [`CLASSES`].
const fn place(class: Class) -> usize {
    match class {
        Class::Read => 0,
        Class::Write => 1,
        Class::Metadata => 2,
    }
}

/// Calls by class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClassCounts {
    /// READ calls.
    pub reads: u64,
    /// WRITE and COMMIT calls.
    pub writes: u64,
    /// All other calls.
    pub metadata: u64,
}

impl ClassCounts {
    /// Counts one call.
    #[inline]
    pub fn count(&mut self, class: Class) {
        match class {
            Class::Read => self.reads += 1,
            Class::Write => self.writes += 1,
            Class::Metadata => self.metadata += 1,
        }
    }

    /// Calls of all classes.
    pub fn total(&self) -> u64 {
        self.reads.saturating_add(self.writes).saturating_add(self.metadata)
    }

    /// Adds the counts of another shard or period.
    pub fn add(&mut self, other: &Self) {
        self.reads = self.reads.saturating_add(other.reads);
        self.writes = self.writes.saturating_add(other.writes);
        self.metadata = self.metadata.saturating_add(other.metadata);
    }
}

/// What one file was asked for in a period. Calls are counted when they come in, bytes when they are answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileCounts {
    /// Calls on the file, by class.
    pub calls: ClassCounts,
    /// Bytes of file data sent to clients.
    pub bytes_read: u64,
    /// Bytes of file data taken from clients.
    pub bytes_written: u64,
}

impl FileCounts {
    /// Whether nothing at all was counted.
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    /// Adds the bytes of one reply.
    #[inline]
    pub fn count_bytes(&mut self, read: u32, written: u32) {
        self.bytes_read = self.bytes_read.saturating_add(u64::from(read));
        self.bytes_written = self.bytes_written.saturating_add(u64::from(written));
    }

    /// Adds the counts of another shard or period.
    pub fn add(&mut self, other: &Self) {
        self.calls.add(&other.calls);
        self.bytes_read = self.bytes_read.saturating_add(other.bytes_read);
        self.bytes_written = self.bytes_written.saturating_add(other.bytes_written);
    }
}

/// Answered calls of one class and the time that they took together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClassTimes {
    /// Calls answered.
    pub answered: u64,
    /// Sum of their response times, microseconds.
    pub sum_us: u64,
}

/// What one store did in a period.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreCounts {
    /// Calls sent to the store, by class.
    pub requests: ClassCounts,
    /// Calls that got no usable answer; their times are not in `response`.
    pub failed: u64,
    /// Bytes of file data that the store sent.
    pub bytes_read: u64,
    /// Bytes of file data that the store took.
    pub bytes_written: u64,
    /// Most calls that were outstanding at the store at once. Merged over shards by sum, hence an upper bound.
    pub outstanding_max: u64,
    /// Answered calls and their times, in the order of [`CLASSES`].
    pub by_class: [ClassTimes; 3],
    /// Response times of all answered calls.
    pub response: ResponseTimes,
}

impl StoreCounts {
    /// Adds one answered call.
    #[inline]
    pub fn count_answer(&mut self, class: Class, response_us: u64) {
        if let Some(times) = self.by_class.get_mut(place(class)) {
            times.answered += 1;
            times.sum_us = times.sum_us.saturating_add(response_us);
        }
        self.response.record(response_us);
    }

    /// Adds the counts of another shard.
    pub fn add(&mut self, other: &Self) {
        self.requests.add(&other.requests);
        self.failed = self.failed.saturating_add(other.failed);
        self.bytes_read = self.bytes_read.saturating_add(other.bytes_read);
        self.bytes_written = self.bytes_written.saturating_add(other.bytes_written);
        self.outstanding_max = self.outstanding_max.saturating_add(other.outstanding_max);
        for (mine, theirs) in self.by_class.iter_mut().zip(&other.by_class) {
            mine.answered = mine.answered.saturating_add(theirs.answered);
            mine.sum_us = mine.sum_us.saturating_add(theirs.sum_us);
        }
        self.response.add(&other.response);
    }
}
