//! Heat: what the data plane counts, and what becomes of the counts when a period closes.
//!
//! Every shard of the data plane owns one [`Recorder`]. It is told of each call and of each reply, and keeps
//! counters per file and per store; nothing in it is shared, locked or (in the steady state) allocated. When a
//! period ends each shard hands its counters over as a [`ShardPeriod`], and [`merge`] makes one
//! [`PeriodRecord`] of them, which the history stores, the controller reads and the reports show.
//!
//! Names are learnt on the way ([`Recorder::name`]) and kept in one bounded table, [`Names`], so that a hot file
//! is shown by path and not by the bytes of its handle.

mod counts;
mod files;
mod handle;
mod names;
mod period;
mod recorder;
mod response;
mod stand_in;
mod warm;

pub use clockwork_placement::StoreId;
pub use clockwork_wire::nfs3::Class;
pub use counts::{CLASSES, ClassCounts, ClassTimes, FileCounts, StoreCounts};
pub use files::FileToken;
pub use handle::{HANDLE_BYTES_MAX, Handle};
pub(crate) use names::show;
pub use names::{Learnt, Names, PATH_DEPTH_MAX};
pub use period::{FilePeriod, PeriodRecord, PeriodSpan, ShardPeriod, StorePeriod, merge};
pub use recorder::{HeatLimits, RUNNING_PART_MIN, Recorder, StoreTotals};
pub use response::{BUCKETS, ResponseTimes};
