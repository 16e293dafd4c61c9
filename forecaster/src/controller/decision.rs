//! What the controller decides, and why.

use std::sync::Arc;

use super::experience::Experience;
use super::reports::FileId;
use super::settings::Mode;
use crate::plan::Replication;
use crate::response::ResponseSource;

/// A predicted response time of a store.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PredictedResponse {
    /// Median, milliseconds.
    pub median_ms: f64,
    /// Lower limit of the 66 % interval, milliseconds.
    pub low66_ms: f64,
    /// Upper limit of the 66 % interval, milliseconds.
    pub high66_ms: f64,
    /// What is not exceeded at the objective's confidence, milliseconds.
    pub quantile_ms: f64,
    /// Which model made it.
    pub source: ResponseSource,
}

/// A store's next period.
#[derive(Debug, Clone, PartialEq)]
pub struct StoreForecast {
    /// Its name.
    pub name: Arc<str>,
    /// Requests, mean, if nothing is moved.
    pub requests: f64,
    /// Requests, quantiles 17, 50 and 83 %, if nothing is moved.
    pub requests_quantiles: [f64; 3],
    /// Requests, mean, after the moves.
    pub requests_after: f64,
    /// Response time if nothing is moved; `None` where nothing has been measured of the store.
    pub response_before: Option<PredictedResponse>,
    /// Response time after the moves.
    pub response_after: Option<PredictedResponse>,
}

/// Who moves a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum By {
    /// The plan of the period.
    Plan,
    /// The plan of the period, for a peak like those of the last week that is not forecast: heat and load of the reason
    /// are the peak's, its response times those of the period forecast.
    Prepare,
    /// The guard, in the period: load that was not forecast, or a store that got slow.
    Guard,
    /// The guard, undoing a move of this period whose load does not come.
    GuardCancel,
}

/// Why a file is moved. Loads and response times are those that were planned with (on the safe side), not those
/// reported.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reason {
    /// Who moves it.
    pub by: By,
    /// Which period ahead made the case: 1 = the next one.
    pub ahead: usize,
    /// Planned heat of the file in that period, requests.
    pub heat: f64,
    /// Load of the store that it leaves in that period if nothing is moved, requests; 0 where it is on none.
    pub from_load: f64,
    /// Response time of the store it leaves before and after, milliseconds, at the quantile planned with; NaN where it is
    /// on none, or nothing is known of the store.
    pub from_response_ms: (f64, f64),
    /// Response time of the store it goes to before and after, milliseconds, at the quantile planned with.
    pub to_response_ms: (f64, f64),
    /// The objective, milliseconds.
    pub objective_ms: f64,
}

/// A file moved. Stores are indices into the stores of the view.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Move {
    /// The file.
    pub file: FileId,
    /// Where it is served now; the same as `to` where it is on no store that is up.
    pub from: usize,
    /// Where it is to be served.
    pub to: usize,
    /// Why.
    pub reason: Reason,
}

/// What is worth knowing about how a decision came about.
#[derive(Debug, Clone, PartialEq)]
pub enum Note {
    /// Nothing has been observed yet: no forecast, no moves.
    NoHistory,
    /// So many of the periods looked back on are missing.
    Gaps {
        /// Missing periods.
        missing: usize,
        /// Periods looked back on.
        of: usize,
    },
    /// No store is up: nothing can be planned.
    AllStoresDead,
    /// Nothing has been measured of this store: it gets no files moved to it until there is.
    StoreUnknown(Arc<str>),
    /// The response times of this store fit no model: it is planned with as if unknown.
    StoreUnfit(Arc<str>),
    /// The total fits no model; the last known total stands in for its forecast.
    TotalUnfit,
    /// Files that are on no store that is up, and could not be placed within the moves allowed.
    Homeless {
        /// How many.
        files: usize,
    },
    /// The plan ended at the limit of moves.
    MovesExhausted,
    /// Moves have lately brought only this part (0 to 1) of what was expected of them: what comes can hardly be known, and
    /// the plan moves the less for it.
    PlansPayLittle {
        /// The part.
        kept: f64,
    },
    /// The guard saw this.
    Guard(crate::guard::Alarm),
}

/// What is to happen in a period.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The period decided about.
    pub period: i64,
    /// Apply the moves only in [`Mode::Control`].
    pub mode: Mode,
    /// Every store that is up, by index in the view.
    pub stores: Vec<(usize, StoreForecast)>,
    /// Files to move.
    pub moves: Vec<Move>,
    /// Files to give back to the default rule; `to` is their home.
    pub returns: Vec<Move>,
    /// Files whose reads several stores are to share, or one alone again.
    pub replications: Vec<Replication>,
    /// Whether, with the moves, every store is predicted to meet the objective at its confidence in the next period; none where
    /// no response time is predicted, since no store is up or nothing has been measured of those that are.
    pub objective_reachable: Option<bool>,
    /// Weights for the default rule that would suit the stores better, one a store of the view, with the same sum as those in
    /// force: at most once a day, and only where [`Controller::weigh`](super::Controller::weigh) would begin to change them.
    pub weights_advice: Option<Vec<f64>>,
    /// What the controller has learnt of itself by then.
    pub experience: Experience,
    /// What else is worth knowing.
    pub notes: Vec<Note>,
}
