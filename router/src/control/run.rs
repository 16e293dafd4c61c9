//! The loop: closed periods in, moves out, the guard in between.

use super::brain::{Brain, Taken};
use super::decided::{ControlState, Decided};
use super::kept;
use super::past::Clock;
use super::view::View;
use crate::config::ControlMode;
use crate::heat::PeriodRecord;
use crate::plex::{Change, Keeper, Measured, State, move_files, unix_ms};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

/// A decision has to be there when this part of its period is gone.
const DEADLINE_PART: f64 = 0.5;
/// Sixths of a period after which the guard looks.
const GUARD_SIXTHS: u8 = 5;
/// A period is watched if it was measured from its begin on, give or take this part of it.
const WATCHED_FROM: f64 = 0.05;
/// How long a controller that could not be made waits until it is tried again.
const AGAIN: Duration = Duration::from_secs(60);

/// What the control loop works with, and where it leaves what it says.
pub(crate) struct Desk {
    state: Arc<State>,
    measured: Arc<Measured>,
    keeper: Arc<Keeper>,
    said: Mutex<Said>,
}

#[derive(Default)]
struct Said {
    state: ControlState,
    decisions: VecDeque<Arc<Decided>>,
}

impl Desk {
    pub(crate) fn new(state: Arc<State>, measured: Arc<Measured>, keeper: Arc<Keeper>) -> Self {
        let control = &state.config.control;
        let said = ControlState {
            mode: control.mode.word().into(),
            rule: control.rule.word().into(),
            objective_ms: control.objective_ms,
            confidence: control.confidence,
            guard: control.guard,
            ..ControlState::default()
        };
        let said = Mutex::new(Said { state: said, decisions: VecDeque::new() });
        Self { state, measured, keeper, said }
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the controller does and has decided last.
    pub(crate) fn state(&self) -> ControlState {
        self.said().state.clone()
    }

    /// The last decisions, at most so many, the oldest first.
    pub(crate) fn decisions(&self, count: usize) -> Vec<Arc<Decided>> {
        let said = self.said();
        said.decisions.iter().skip(said.decisions.len().saturating_sub(count)).cloned().collect()
    }

    fn say(&self, change: impl FnOnce(&mut ControlState)) {
        change(&mut self.said().state);
    }

    fn trouble(&self, trouble: String) {
        tracing::error!(trouble, "control");
        self.say(|state| state.trouble = Some(trouble));
    }

    fn view(&self) -> View {
        let wanted = self.state.wanted();
        let config = &self.state.config;
        let stores = wanted.stores.iter().zip(&config.stores);
        let states =
            stores.map(|(mark, store)| (mark.health.clone(), mark.drained, wanted.weights.of(store)));
        let (table, exceptions) = (self.state.shared.table.load_full(), wanted.exceptions.clone());
        View::new(config, states, table, exceptions, wanted.weights.changed_unix_ms())
    }

    fn clock(&self) -> Clock {
        let period_ms = u64::try_from(self.state.config.heat.period.as_millis()).unwrap_or(u64::MAX).max(1);
        Clock { period_ms }
    }
}

fn now() -> u64 {
    unix_ms(SystemTime::now())
}

/// Runs for ever, or until no period is closed any more.
pub(crate) async fn run(desk: Arc<Desk>, mut closed: broadcast::Receiver<Arc<PeriodRecord>>) {
    loop {
        let Some(brain) = load(&desk).await else {
            tokio::time::sleep(AGAIN).await;
            continue;
        };
        // Ends when the controller is lost; what it knew is in the history.
        if work(&desk, brain, &mut closed).await.is_none() {
            return;
        }
    }
}

async fn load(desk: &Arc<Desk>) -> Option<Brain> {
    let work = Arc::clone(desk);
    let loaded = tokio::task::spawn_blocking(move || {
        let history = work.measured.history();
        let brain = Brain::load(&work.state.config, now(), history.map(|history| &**history));
        let decisions = history.map(|history| kept::decisions(history, work.clock())).transpose();
        (brain, decisions)
    });
    match loaded.await {
        Ok((Ok(brain), decisions)) => {
            let decisions = decisions.ok().flatten().unwrap_or_default();
            let mut said = desk.said();
            said.state.periods_known = brain.periods() as u64;
            let (waiting, taken) = brain.imported();
            (said.state.imported_waiting, said.state.imported_taken) = (waiting as u64, taken as u64);
            said.state.last = decisions.iter().rev().find(|decided| decided.sixths == 0).cloned();
            said.decisions = decisions.into_iter().map(Arc::new).collect();
            Some(brain)
        }
        Ok((Err(error), _)) => {
            desk.trouble(format!("the controller cannot start: {error}"));
            None
        }
        Err(error) => {
            desk.trouble(format!("the controller cannot start: {error}"));
            None
        }
    }
}

/// The answer says whether there is a reason to go on with a new controller.
async fn work(
    desk: &Arc<Desk>,
    mut brain: Brain,
    closed: &mut broadcast::Receiver<Arc<PeriodRecord>>,
) -> Option<()> {
    // What the history knows may do for the period that runs, or for one to come where a past was imported; unless that was
    // decided about before a restart.
    let decided = desk.said().decisions.back().map_or(i64::MIN, |decided| decided.period);
    if brain.next_period().is_some_and(|next| next >= desk.clock().period_at(now()) && next > decided) {
        match period(desk, brain, Vec::new()).await {
            Some(back) => brain = back,
            None => return Some(()),
        }
    }
    let mut looked = (0, 0);
    loop {
        let (next, wait) = next_look(desk, looked);
        let guard = desk.state.config.control.guard && desk.state.config.control.mode != ControlMode::Observe;
        tokio::select! {
            biased;
            record = closed.recv() => {
                let mut records = match record {
                    Ok(record) => vec![record],
                    Err(RecvError::Lagged(lost)) => {
                        desk.say(|state| state.periods_refused += lost);
                        continue;
                    }
                    Err(RecvError::Closed) => return None,
                };
                // What has queued up during a long plan is caught up with; only the last is decided about.
                while let Ok(more) = closed.try_recv() {
                    records.push(more);
                }
                match period(desk, brain, records).await {
                    Some(back) => brain = back,
                    None => return Some(()),
                }
            }
            () = tokio::time::sleep(wait), if guard => {
                looked = next;
                match sixth(desk, brain, next).await {
                    Some(back) => brain = back,
                    None => return Some(()),
                }
            }
        }
    }
}

/// The period and sixth that the guard looks at next, and how long that is away.
fn next_look(desk: &Desk, looked: (i64, u8)) -> ((i64, u8), Duration) {
    let clock = desk.clock();
    let now = now();
    let period = clock.period_at(now);
    let start = clock.start_unix_ms(period);
    let gone = now.saturating_sub(start).saturating_mul(6) / clock.period_ms;
    let mut next = (period, u8::try_from(gone).unwrap_or(u8::MAX).saturating_add(1));
    if next <= looked {
        next = (looked.0, looked.1 + 1);
    }
    if next.1 > GUARD_SIXTHS {
        next = (next.0 + 1, 1);
    }
    let at = clock.start_unix_ms(next.0) + clock.period_ms * u64::from(next.1) / 6;
    (next, Duration::from_millis(at.saturating_sub(now)))
}

/// What a blocking step gives back.
struct Step {
    brain: Brain,
    taken: Vec<Taken>,
    decided: Option<(Decided, Vec<Change>)>,
}

/// Takes note of periods and decides about the next one. `None`: the controller was lost.
async fn period(desk: &Arc<Desk>, mut brain: Brain, records: Vec<Arc<PeriodRecord>>) -> Option<Brain> {
    let work = Arc::clone(desk);
    let began = std::time::Instant::now();
    let mut step = tokio::task::spawn_blocking(move || {
        let config = &work.state.config;
        let taken: Vec<Taken> = records.iter().map(|record| brain.take(record, config)).collect();
        brain.keep_taken(work.measured.history().map(|history| &**history));
        // Nothing new: what was decided stands.
        let wanted = records.is_empty() || taken.iter().any(|taken| matches!(taken, Taken::Observed { .. }));
        let decided = wanted.then(|| {
            let view = work.view();
            let (decision, weights) = brain.plan(&view);
            let (decided, changes) = brain.tell(&decision, &view, &|handle| work.measured.path(handle));
            (Decided { weights, ..decided }, changes)
        });
        Step { brain, taken, decided }
    });
    let deadline = desk.state.config.heat.period.mul_f64(DEADLINE_PART);
    let mut late = false;
    let step = match tokio::time::timeout(deadline, &mut step).await {
        Ok(step) => step,
        Err(_) => {
            late = true;
            desk.say(|state| state.late += 1);
            desk.trouble(format!(
                "a decision is late: it is not there {:.1} s after the period before has closed; files stay where they are",
                deadline.as_secs_f64()
            ));
            step.await
        }
    };
    let Step { brain, taken, decided } = match step {
        Ok(step) => step,
        Err(error) => {
            desk.trouble(format!("the controller has failed and is made anew from the history: {error}"));
            return None;
        }
    };
    count(desk, &brain, &taken);
    if let Some((mut decided, changes)) = decided {
        decided.took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        decided.late = late;
        put_in_force(desk, decided, changes).await;
    }
    Some(brain)
}

fn count(desk: &Desk, brain: &Brain, taken: &[Taken]) {
    let (waiting, imported) = brain.imported();
    desk.say(|state| {
        state.periods_known = brain.periods() as u64;
        (state.imported_waiting, state.imported_taken) = (waiting as u64, imported as u64);
        for taken in taken {
            match taken {
                Taken::Observed { met } => {
                    state.periods_observed += 1;
                    state.periods_met += u64::from(*met == Some(true));
                    state.objective_met = *met;
                }
                Taken::Known | Taken::Part => {}
                Taken::Refused => state.periods_refused += 1,
            }
        }
    });
}

/// Lets the guard look at the running period. `None`: the controller was lost.
async fn sixth(desk: &Arc<Desk>, mut brain: Brain, (period, sixths): (i64, u8)) -> Option<Brain> {
    let clock = desk.clock();
    let begun = desk.measured.began_unix_ms();
    let watched_from = clock.start_unix_ms(period) + (clock.period_ms as f64 * WATCHED_FROM) as u64;
    if clock.period_at(begun + clock.period_ms / 20) != period || begun > watched_from {
        return Some(brain);
    }
    let shards = desk.measured.running(&desk.state).await;
    let work = Arc::clone(desk);
    let began = std::time::Instant::now();
    let step = tokio::task::spawn_blocking(move || {
        let view = work.view();
        let decision = brain.within(period, sixths, &shards, &view, &work.state.config);
        let decided =
            decision.map(|decision| brain.tell(&decision, &view, &|handle| work.measured.path(handle)));
        Step { brain, taken: Vec::new(), decided }
    });
    let Step { brain, decided, .. } = match step.await {
        Ok(step) => step,
        Err(error) => {
            desk.trouble(format!("the controller has failed and is made anew from the history: {error}"));
            return None;
        }
    };
    if let Some((mut decided, changes)) = decided {
        decided.by = "guard".into();
        decided.sixths = sixths;
        decided.took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        put_in_force(desk, decided, changes).await;
    }
    Some(brain)
}

/// Applies a decision if it is the controller's to apply and not too late, keeps it, and says it.
async fn put_in_force(desk: &Arc<Desk>, mut decided: Decided, changes: Vec<Change>) {
    decided.decided_unix_ms = now();
    let over = desk.clock().period_at(decided.decided_unix_ms) > decided.period;
    let mut trouble = None;
    if desk.state.config.control.mode == ControlMode::Control && !over {
        match move_files(&desk.state, &desk.keeper, decided.weights.as_ref(), changes).await {
            Ok(applied) if applied.outdated => {
                decided
                    .notes
                    .push("it was not put in force: weights or stores have changed meanwhile".into());
            }
            Ok(applied) => {
                decided.applied = true;
                if let Some(weights) = &mut decided.weights {
                    weights.dropped = applied.dropped as u64;
                    tracing::info!(reason = weights.reason, "weights of the default rule were changed");
                }
                if applied.refused > 0 {
                    trouble = Some(format!(
                        "{} files were not moved: limits.exception_files_max is reached",
                        applied.refused
                    ));
                }
            }
            Err(error) => trouble = Some(format!("a decision makes no routing table: {error}")),
        }
    }
    if over {
        tracing::warn!(
            period = decided.period,
            took_ms = decided.took_ms,
            "a decision came when its period was over"
        );
    }
    if let Some(history) = desk.measured.history().cloned() {
        let keep = decided.clone();
        let kept = tokio::task::spawn_blocking(move || kept::keep(&history, &keep)).await;
        if let Err(error) = kept.map_err(|error| error.to_string()).and_then(|kept| kept) {
            trouble = Some(format!("a decision could not be kept in the history: {error}"));
        }
    }
    tracing::info!(
        period = decided.period,
        by = decided.by,
        moves = decided.moves.len(),
        returns = decided.returns.len(),
        replications = decided.replications.len(),
        applied = decided.applied,
        took_ms = decided.took_ms,
        "decided"
    );
    let mut said = desk.said();
    let state = &mut said.state;
    state.decisions += 1;
    state.dropped += u64::from(over);
    if decided.applied {
        state.moved += decided.moves.len() as u64;
        state.returned += decided.returns.len() as u64;
        state.replicated += decided.replications.len() as u64;
        state.reweighed += u64::from(decided.weights.is_some());
    }
    if !decided.late {
        state.trouble = trouble;
    }
    if decided.sixths == 0 {
        state.last = Some(decided.clone());
        state.guard_last.clear();
    } else {
        state.guard_last.push(decided.clone());
    }
    said.decisions.push_back(Arc::new(decided));
    while said.decisions.len() > kept::DECISIONS_KEPT_MAX {
        said.decisions.pop_front();
    }
}
