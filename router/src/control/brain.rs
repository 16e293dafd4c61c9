//! The controller with what it needs to know of the plex's files and clock. Everything in here may take long: it runs on a
//! blocking thread.

use super::decided::{Decided, Learnt, MovedFile, ResponseOutlook, StoreOutlook, WeightsChanged};
use super::files::Files;
use super::past::{Clock, Closed, Rows, store_report};
use super::view::View;
use super::weights::reweighed;
use super::words::{reason, replicated};
use crate::config::{Config, ControlMode, ControlRule, ControlWeights};
use crate::heat::{PeriodRecord, ShardPeriod, StoreCounts};
use crate::history::{History, HistoryError};
use crate::plex::Change;
use clockwork_forecaster::controller::{
    Controller, Decision, Experience, FileId, HISTORY_FILES_MAX, History as _, MemoryHistory, Mode, Move,
    Note, ObserveError, PartialPeriod, PlexView, PredictedResponse, Settings, SettingsError, StoreReport,
    WeightsMode,
};
use clockwork_forecaster::demand::CycleChoice;
use clockwork_forecaster::objective::Objective;
use clockwork_forecaster::plan::{Past, PastMove, PlanSettings, Rule};
use clockwork_forecaster::response::ResponseSource;
use clockwork_forecaster::series::Cycles;
use std::collections::HashMap;

/// Periods read back at a start: what the controller looks back on, twice.
const PERIODS_LOADED: u64 = 1_344;
/// Periods that a history may reach into the future, as after an import; what lies beyond is left out, since the clock has
/// been put right.
const FUTURE_PERIODS_MAX: i64 = 64;
/// Days of a week, for a compressed calendar.
const WEEK_DAYS: usize = 7;

/// Why there is no controller.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BrainError {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    History(#[from] HistoryError),
}

/// What a closed period came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It was taken note of; whether every store was within the objective, if any answered.
    Observed { met: Option<bool> },
    /// It was known already: an imported past reaches further.
    Known,
    /// It was not measured long enough, as the first one after a start.
    Part,
    /// It was measured too long, or the clock went back.
    Refused,
}

pub(crate) struct Brain {
    controller: Controller<MemoryHistory>,
    files: Files,
    rows: Rows,
    clock: Clock,
    /// How many handles that took an imported past are kept in the history.
    taken_kept: usize,
    /// The newest period of the history at the start.
    loaded_until: i64,
}

fn settings(config: &Config) -> Settings {
    let control = &config.control;
    let plan = match control.rule {
        ControlRule::Margin => {
            PlanSettings { rule: Rule::Margin, replicas_max: control.replicas_max, ..PlanSettings::default() }
        }
        ControlRule::Paper => PlanSettings::paper(),
    };
    let default = Settings::default();
    let day = control.day_periods.and_then(|day| Cycles::new(day, Some(WEEK_DAYS * day)).ok());
    let seconds = u32::try_from(config.heat.period.as_secs()).unwrap_or(u32::MAX).max(1);
    Settings {
        objective: Objective { response_ms: control.objective_ms, confidence: control.confidence },
        mode: match control.mode {
            ControlMode::Off | ControlMode::Observe => Mode::Observe,
            ControlMode::Advise => Mode::Advise,
            ControlMode::Control => Mode::Control,
        },
        period_seconds: seconds,
        cycles: day.map_or(CycleChoice::Automatic, CycleChoice::Given),
        plan,
        guard: if control.guard { default.guard } else { None },
        weights: match control.weights {
            ControlWeights::Off => WeightsMode::Off,
            ControlWeights::Advise => WeightsMode::Advise,
            ControlWeights::Apply => WeightsMode::Apply,
        },
        ..default
    }
}

impl Brain {
    /// A controller that knows the periods of the history.
    pub(crate) fn load(
        config: &Config,
        now_unix_ms: u64,
        history: Option<&History>,
    ) -> Result<Self, BrainError> {
        let period_ms = u64::try_from(config.heat.period.as_millis()).unwrap_or(u64::MAX).max(1);
        let clock = Clock { period_ms };
        let files_max = config.limits.heat_files_max.min(HISTORY_FILES_MAX);
        let controller = Controller::new(settings(config), MemoryHistory::new(PERIODS_LOADED as usize))?;
        let taken = history.map(super::taken::kept).transpose()?.unwrap_or_default();
        let taken_before = taken.len();
        let mut brain = Self {
            controller,
            files: Files::new(files_max, taken),
            rows: Rows::new(clock),
            clock,
            taken_kept: taken_before,
            loaded_until: i64::MIN,
        };
        let Some(history) = history else { return Ok(brain) };
        let first = now_unix_ms.saturating_sub(PERIODS_LOADED.saturating_mul(period_ms));
        let last = clock.start_unix_ms(clock.period_at(now_unix_ms).saturating_add(FUTURE_PERIODS_MAX));
        for record in history.periods(first..last) {
            brain.take(&record?, config);
        }
        brain.files.loaded();
        brain.loaded_until = brain.controller.history().last_period().unwrap_or(i64::MIN);
        brain.remember(&super::kept::decisions(history, clock)?);
        brain.keep_taken(Some(history));
        Ok(brain)
    }

    /// Keeps which handles took an imported past, if there are more than before. What cannot be kept is found again by its
    /// path after a restart.
    pub(crate) fn keep_taken(&mut self, history: Option<&History>) {
        let taken = self.files.taken();
        let (Some(history), true) = (history, taken.len() != self.taken_kept) else { return };
        match super::taken::keep(history, taken) {
            Ok(()) => self.taken_kept = taken.len(),
            Err(error) => tracing::warn!(%error, "which handles took an imported past could not be kept"),
        }
    }

    /// Files of an imported past: those that no handle is known of yet, and those that one has taken.
    pub(crate) fn imported(&self) -> (usize, usize) {
        (self.files.waiting(), self.files.taken().len())
    }

    /// Takes up the moves made before a restart, and what the controller had learnt of itself.
    fn remember(&mut self, decisions: &[Decided]) {
        let mut past = Past::default();
        for decided in decisions.iter().filter(|decided| decided.applied) {
            for moved in decided.moves.iter().chain(&decided.returns) {
                let handle = crate::web::handle_bytes(&moved.handle);
                let handle = handle.and_then(|handle| crate::heat::Handle::new(&handle));
                let Some(file) = handle.and_then(|handle| self.files.known(&handle)) else { continue };
                past.record(PastMove { period: decided.period, file, from: moved.from.as_str().into() });
            }
            for file in &decided.replications {
                let handle = crate::web::handle_bytes(&file.handle);
                let handle = handle.and_then(|handle| crate::heat::Handle::new(&handle));
                let Some(number) = handle.and_then(|handle| self.files.known(&handle)) else { continue };
                past.record(PastMove {
                    period: decided.period,
                    file: number,
                    from: file.from.as_str().into(),
                });
            }
        }
        self.controller.restore_past(past);
        if let Some(learnt) = decisions.iter().rev().find_map(|decided| decided.learnt) {
            let Learnt { promised, kept, interval_width, .. } = learnt;
            self.controller.restore_experience(&Experience { promised, kept, interval_width });
        }
    }

    /// The period after the newest one known.
    pub(crate) fn next_period(&self) -> Option<i64> {
        self.controller.history().last_period().map(|last| last.saturating_add(1))
    }

    /// Periods known.
    pub(crate) fn periods(&self) -> usize {
        self.controller.history().periods()
    }

    /// Takes note of a closed period.
    pub(crate) fn take(&mut self, record: &PeriodRecord, config: &Config) -> Taken {
        let closed = self.rows.add(record, &mut self.files, config);
        let joins = self.files.take_joins();
        if !joins.is_empty() {
            self.controller.join_files(&joins);
        }
        let report = match closed {
            Closed::Period(report) => report,
            Closed::Part => return Taken::Part,
            Closed::TooLong => return Taken::Refused,
        };
        if report.period <= self.loaded_until {
            return Taken::Known;
        }
        let slowest = report.stores.iter().map(|store| store.response_ms).filter(|ms| ms.is_finite());
        let slowest = slowest.fold(None, |max: Option<f64>, ms| Some(max.map_or(ms, |max| max.max(ms))));
        let met = slowest.map(|ms| ms <= config.control.objective_ms);
        let observed = self.controller.observe(&report);
        self.files.recorded(self.controller.history().files());
        match observed {
            Ok(()) => Taken::Observed { met },
            // The rest of a period that a restart cut in two.
            Err(ObserveError::WentBack { period, last }) if period == last => Taken::Known,
            Err(error) => {
                tracing::warn!(%error, "a period is not used for forecasts");
                Taken::Refused
            }
        }
    }

    /// Decides about the period after the newest one known: weights, where it is time for them, then moves, with the files as they
    /// lie by these weights.
    pub(crate) fn plan(&mut self, view: &View) -> (Decision, Option<WeightsChanged>) {
        if let Some(changed) = view.weights_changed_unix_ms {
            self.controller.restore_weighed(self.clock.period_at(changed));
        }
        let forecasts = self.controller.forecast();
        let placement = view.placed(&self.files);
        let plex = PlexView { stores: &view.stores, placement: &placement };
        let change = self.controller.weigh(&forecasts, &plex);
        let reweighed = change.and_then(|change| reweighed(view, change));
        let Some((view, told)) = reweighed else { return (self.controller.decide(&forecasts, &plex), None) };
        let placement = view.placed(&self.files);
        let plex = PlexView { stores: &view.stores, placement: &placement };
        (self.controller.decide(&forecasts, &plex), Some(told))
    }

    /// Looks at the running period.
    pub(crate) fn within(
        &mut self,
        period: i64,
        sixths: u8,
        shards: &[ShardPeriod],
        view: &View,
        config: &Config,
    ) -> Option<Decision> {
        let (stores, files, unlisted) = self.counted(shards, config);
        let open = PartialPeriod { period, sixths, files, unlisted, stores };
        let placement = view.placed(&self.files);
        self.controller.within(&open, &PlexView { stores: &view.stores, placement: &placement })
    }

    fn counted(
        &mut self,
        shards: &[ShardPeriod],
        config: &Config,
    ) -> (Vec<StoreReport>, Vec<(FileId, f64)>, f64) {
        let mut stores = vec![StoreCounts::default(); config.stores.len()];
        let mut files: HashMap<FileId, f64> = HashMap::new();
        let mut unlisted = 0.0;
        for shard in shards {
            for (sum, counts) in stores.iter_mut().zip(shard.stores()) {
                sum.add(counts);
            }
            unlisted += shard.other().calls.total() as f64;
            for (handle, counts) in shard.files() {
                let calls = counts.calls.total() as f64;
                match self.files.number(handle) {
                    Some(number) => *files.entry(number).or_insert(0.0) += calls,
                    None => unlisted += calls,
                }
            }
        }
        let names = config.stores.iter().map(|store| store.name.as_str());
        let stores = names.zip(&stores).map(|(name, counts)| store_report(name, counts, 1.0, config));
        let mut files: Vec<_> = files.into_iter().collect();
        files.sort_unstable_by_key(|(file, _)| *file);
        (stores.collect(), files, unlisted)
    }

    /// A decision in words, and the changes of the exception set that it asks for.
    pub(crate) fn tell(
        &self,
        decision: &Decision,
        view: &View,
        path: &dyn Fn(&[u8]) -> Option<String>,
    ) -> (Decided, Vec<Change>) {
        let name =
            |store: usize| view.stores.get(store).map_or_else(String::new, |store| store.name.to_string());
        let moved = |moved: &Move| {
            let handle = self.files.handle(moved.file)?;
            let file = MovedFile {
                handle: crate::web::handle_text(handle.as_bytes()),
                path: path(handle.as_bytes()),
                from: name(moved.from),
                to: name(moved.to),
                reason: reason(moved, &name(moved.from), &name(moved.to)),
            };
            Some((file, handle.as_bytes()))
        };
        let mut changes = Vec::new();
        let mut files = |moves: &[Move], home: bool| -> Vec<MovedFile> {
            let told = moves.iter().filter_map(moved).map(|(file, handle)| {
                changes.push(Change {
                    handle: handle.into(),
                    store: (!home).then(|| file.to.clone()),
                    replicas: Vec::new(),
                    reason: file.reason.clone(),
                });
                file
            });
            told.collect()
        };
        let (moves, returns) = (files(&decision.moves, false), files(&decision.returns, true));
        let objective_ms = self.controller.settings().objective.response_ms;
        let replications = decision.replications.iter().filter_map(|change| {
            let handle = self.files.handle(change.file)?;
            let told = replicated(change, handle.as_bytes(), path(handle.as_bytes()), &name, objective_ms);
            changes.push(Change {
                handle: handle.as_bytes().into(),
                store: told.stores.first().map(|of| of.store.clone()),
                replicas: if told.stores.len() > 1 { told.stores.clone() } else { Vec::new() },
                reason: told.reason.clone(),
            });
            Some(told)
        });
        let replications = replications.collect();
        let decided = Decided {
            replications,
            period: decision.period,
            start_unix_ms: self.clock.start_unix_ms(decision.period),
            by: "plan".into(),
            objective_reachable: decision.objective_reachable,
            stores: decision.stores.iter().map(|(_, forecast)| outlook(forecast)).collect(),
            moves,
            returns,
            weights_advice: decision.weights_advice.as_ref().map(|weights| {
                weights.iter().enumerate().map(|(store, weight)| (name(store), *weight)).collect()
            }),
            learnt: Some(Learnt {
                trust: decision.experience.trust(),
                promised: decision.experience.promised,
                kept: decision.experience.kept,
                interval_width: decision.experience.interval_width,
            }),
            notes: decision.notes.iter().map(|note| self.note(note)).collect(),
            ..Decided::default()
        };
        (decided, changes)
    }

    fn note(&self, note: &Note) -> String {
        use clockwork_forecaster::guard::Watched;
        match note {
            Note::NoHistory => "nothing has been observed yet: no forecast, no moves".into(),
            Note::Gaps { missing, of } => format!("{missing} of the {of} periods looked back on are missing"),
            Note::AllStoresDead => "no store is up: nothing can be planned".into(),
            Note::StoreUnknown(store) => {
                format!("nothing has been measured of {store} yet: no files are moved to it")
            }
            Note::StoreUnfit(store) => {
                format!("the response times of {store} fit no model: no files are moved to it")
            }
            Note::TotalUnfit => {
                "the total of requests fits no model: the last known total stands in for its forecast".into()
            }
            Note::Homeless { files } if *files <= self.files.waiting() => format!(
                "no client has asked for {files} files of the imported past yet: their load lies on all stores, by weight"
            ),
            Note::Homeless { files } => {
                format!("{files} files are on no store that is up, beyond what may be moved in a period")
            }
            Note::PlansPayLittle { kept } => format!(
                "moves have lately brought {:.0} % of what was expected of them: what comes can hardly be known, so fewer are made",
                100.0 * kept
            ),
            Note::MovesExhausted => "the plan ended at the limit of moves".into(),
            Note::Guard(alarm) => {
                let what = match &alarm.watched {
                    Watched::Total => "all requests".to_owned(),
                    Watched::File(file) => {
                        let handle = self.files.handle(*file).map(crate::heat::Handle::to_hex);
                        format!("requests of the file {}", handle.unwrap_or_default())
                    }
                    Watched::Load(store) => format!("requests of the files at {store}"),
                    Watched::Response(store) => format!("response time (ms) of {store} at its load"),
                    Watched::Objective(store) => {
                        format!("response time (ms) of {store} against the objective")
                    }
                };
                format!(
                    "after {} sixths: {what} {:.1}, expected {:.1}; forecast times {:.2}",
                    alarm.sixths, alarm.seen, alarm.expected, alarm.scale
                )
            }
            #[allow(unreachable_patterns, reason = "the controller may learn to say more")]
            other => format!("{other:?}"),
        }
    }
}

fn outlook(forecast: &clockwork_forecaster::controller::StoreForecast) -> StoreOutlook {
    StoreOutlook {
        store: forecast.name.to_string(),
        requests_before: forecast.requests,
        requests: forecast.requests_after,
        before: forecast.response_before.as_ref().map(response),
        after: forecast.response_after.as_ref().map(response),
    }
}

fn response(predicted: &PredictedResponse) -> ResponseOutlook {
    ResponseOutlook {
        median_ms: predicted.median_ms,
        low66_ms: predicted.low66_ms,
        high66_ms: predicted.high66_ms,
        quantile_ms: predicted.quantile_ms,
        source: match predicted.source {
            ResponseSource::BestFit => "fit",
            ResponseSource::Envelope => "envelope",
            ResponseSource::LimitOfTrust => "limit of trust",
            ResponseSource::FewPeriods => "few periods",
        }
        .into(),
    }
}

#[cfg(test)]
mod tests;
