//! The plan: which files to move so that every store meets the objective, given heat and response curves.
//!
//! [`plan()`] is a pure function of heat in the periods ahead ([`Heat`]), response against load ([`LoadCurve`]), the plex
//! as it is ([`PlexView`](crate::controller::PlexView)) and what was moved lately ([`Past`]). [`static_assignment`] is what doing it once would give,
//! [`carrying_weights`] what the default rule would do best with. [`planned`] is the plan with read replication.
//!
//! | [`Rule`] | begins when | ends when |
//! |---|---|---|
//! | `Margin` | a store's quantile at `trigger_z` exceeds the objective X in any period ahead | all are below `margin` X, or no move lowers the higher of the two stores by `least_gain` |
//! | `Paper` | a store's quantile at the objective's confidence exceeds X in the next period | all are below X, or no move helps |
//!
//! A store's figure is the worst of the periods ahead, so that a scheduled batch is met before it starts and one place
//! serves all of them. `Margin` takes the move that leaves the higher of the two stores lowest, and of equals the
//! coldest file; `Paper` takes files in descending heat. The next period is planned for first, then three, six, and all that
//! are forecast, each without undoing what the nearer ones got. Moves that
//! do not pay in what is expected are taken back ([`Outlook`]). With what moves are left, `Margin` then prepares for
//! peaks ([`Stress`]) that are not forecast.

mod curve;
mod fixed;
mod heat;
mod past;
mod payoff;
mod prepare;
mod problem;
mod replicas;
mod search;
mod settings;
mod weights;

pub use curve::LoadCurve;
pub use fixed::static_assignment;
pub use heat::{Heat, PLAN_FILES_MAX};
pub use past::{Past, PastMove};
pub(crate) use payoff::{Ledger, NODES};
pub use payoff::{Outlook, Proposal};
pub use prepare::Stress;
pub use problem::{Plan, Problem};
pub use replicas::{
    COOLED, GAIN_LEAST, Parts, READS_TO_BEGIN, READS_TO_STAY, ReadShare, Reads, Replication,
    ReplicationReason, planned,
};
pub(crate) use replicas::{in_force, shift};
pub use search::plan;
pub use settings::{PlanSettings, PlanSettingsError, REPLICAS_MAX, Rule};
pub use weights::carrying_weights;
pub(crate) use weights::step_towards;
