//! Workloads: what files there are, and how many requests come for each of them in each hour.
//!
//! - [`import`]: logs in, a trace out.
//! - [`trace_file`]: the trace file: counts a file and period in checked blocks.
//! - `parquet` (a feature): a trace as a Parquet file.
//! - [`format`](mod@format): hourly totals of a site as checked text, the form of the bundled traces.
//! - [`bundled`]: the traces that the project carries (`campus`, `space`, `sport`, `social`), and `batch`.
//! - [`batch`]: a nightly job, by rule.
//! - [`site`]: one site: its hourly totals, its files and how their popularity drifts.
//! - [`workload`]: sites combined into one file set with rates and arrivals.
//!
//! ```
//! use clockwork_traces::{bundled, workload::Workload};
//! use std::time::Duration;
//!
//! let workload = Workload::bundled()?;
//! assert!(workload.files().len() > 1_100);
//! let hour = 622;
//! let arrivals = workload.arrivals(hour, Duration::from_secs(5), 0.1)?;
//! let expected = workload.requests(hour)? * 0.1;
//! assert!((arrivals.count() as f64 - expected).abs() <= 0.5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod batch;
pub mod bundled;
pub mod format;
pub mod import;
#[cfg(feature = "parquet")]
pub mod parquet;
pub mod site;
pub mod trace_file;
pub mod workload;
