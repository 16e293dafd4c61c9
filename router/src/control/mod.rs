//! Control: runs the forecaster's [`Controller`](clockwork_forecaster::controller::Controller) on the plex's clock.
//!
//! When a period has closed, its record becomes a report (`past`), in which files are numbers (`files`); the controller
//! takes note of it, forecasts, and decides, on a blocking thread, never on the data path (`brain`). In mode `control` the
//! moves go the way of an operator's assignments, with one change of the routing table, and never touch what an operator
//! has assigned; they are marked as the controller's. After each sixth of a period the guard sees the counts so far.
//! An imported past knows files by path: it becomes that of a handle as soon as one shows up under the path (`files`,
//! `taken`). What was decided is kept in the history (`kept`), and shown by status, admin interface and reports ([`Decided`]).
//!
//! Where `control.weights` is `apply`, the weights of the default rule are changed before that, at most once a day
//! (`weights`); the moves are planned with the files as they lie then, and both go in force together.
//!
//! A decision has a deadline, half a period after the one before has closed; what is later is told, and what comes when its
//! period is over is dropped. Whatever goes wrong here, files stay where they are.

mod brain;
mod decided;
mod files;
mod kept;
mod past;
mod run;
mod taken;
mod view;
mod weights;
mod words;

pub use decided::{
    ControlState, Decided, MovedFile, ReplicatedFile, ResponseOutlook, StoreOutlook, StoreWeight,
    WeightsChanged,
};
pub(crate) use past::unused_imports;
pub(crate) use run::{Desk, run};
