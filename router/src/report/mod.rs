//! Reports: what the plex did over a stretch of periods, as JSON, as a page and as a table.
//!
//! [`Report::new`] works all figures out once, from [`PeriodRecord`](crate::heat::PeriodRecord)s; the JSON file,
//! the page ([`page`]) and the table ([`table`]) only show them. The page is one file without anything external:
//! it can be mailed, and read on a telephone, in the light or in the dark.

mod chart;
mod comparison;
mod comparison_page;
mod comparison_table;
mod format;
mod model;
mod page;
mod table;

pub use comparison::{
    Comparison, ForecastPeriod, ForecastReport, HARM_RATIO, Measurement, MoveReport, OBJECTIVE_RANK,
    Objective, PASSES, PassPeriod, PassReport, objective_ms,
};
pub use comparison_page::comparison_page;
pub use comparison_table::comparison_table;
pub use model::{
    Fact, Facts, Findings, HOT_FILES_MAX, HotFile, Moment, PeriodReport, Report, StorePeriodReport,
    StoreReport,
};
pub use page::page;
pub use table::table;

#[cfg(test)]
mod tests;
