//! A plex without stores behind it: it keeps what it is told.
use std::collections::BTreeMap;
use std::sync::Mutex;

use clockwork_router::report::Report;
use clockwork_router::web::types::{
    Assign, ControlState, ControlStatus, Counter, Decided, Decisions, Drained, Exception, ExceptionPage,
    FileName, HotFile, HotFiles, LimitFill, Moved, Period, Periods, ReadShare, Status, StorePeriod,
    StoreState, StoreStatus, Weight, Weights,
};
use clockwork_router::web::{ControlError, PlexControl, handle_bytes, handle_text};

/// Two stores; the file /export/a has the handle 0a0b and belongs to the first.
pub(crate) struct FakePlex {
    state: Mutex<State>,
}

struct State {
    table_version: u64,
    drained: [bool; 2],
    learnt: bool,
    exceptions: BTreeMap<Vec<u8>, Assigned>,
}

/// Store, shares of the reads, reason.
type Assigned = (usize, Vec<ReadShare>, String);

fn exception(handle: &[u8], (store, replicas, reason): &Assigned) -> Exception {
    Exception {
        handle: handle_text(handle),
        path: None,
        store: STORES[*store].to_owned(),
        replicas: replicas.clone(),
        default_store: Some(STORES[0].to_owned()),
        reason: reason.clone(),
        by: "operator".into(),
        since_unix_ms: 951_782_400_000,
    }
}

const STORES: [&str; 2] = ["fast", "slow"];
const EXCEPTIONS_MAX: usize = 3;

impl FakePlex {
    pub(crate) fn new() -> Self {
        let state =
            State { table_version: 1, drained: [false; 2], learnt: true, exceptions: BTreeMap::new() };
        Self { state: Mutex::new(state) }
    }

    fn store(name: &str) -> Result<usize, ControlError> {
        let known = STORES.map(str::to_owned).to_vec();
        let found = STORES.iter().position(|store| *store == name);
        found.ok_or(ControlError::UnknownStore { name: name.to_owned(), known })
    }

    fn handle(file: &FileName) -> Result<(Vec<u8>, Option<String>), ControlError> {
        match file {
            FileName::Path(path) if path == "/export/a" => Ok((vec![0x0a, 0x0b], Some(path.clone()))),
            FileName::Path(path) => {
                Err(ControlError::UnknownFile { file: path.clone(), why: "no such file".to_owned() })
            }
            FileName::Handle(handle) => Ok((handle_bytes(handle).unwrap(), None)),
        }
    }

    fn set_drained(&self, store: &str, drained: bool, force: bool) -> Result<Drained, ControlError> {
        let number = Self::store(store)?;
        let mut state = self.state.lock().unwrap();
        let others = state.drained.iter().enumerate().any(|(other, drained)| other != number && !drained);
        if drained && !force && !others {
            let others = vec![format!("{} is drained", STORES[1 - number])];
            return Err(ControlError::LastStore { name: store.to_owned(), others });
        }
        let word = |drained| if drained { StoreState::Drained } else { StoreState::Up };
        let before = word(state.drained[number]);
        state.drained[number] = drained;
        state.table_version += 1;
        let table_version = state.table_version;
        Ok(Drained {
            store: store.to_owned(),
            before,
            now: word(drained),
            in_flight: 4,
            table_version,
            not_kept: None,
        })
    }
}

impl PlexControl for FakePlex {
    async fn status(&self) -> Status {
        let state = self.state.lock().unwrap();
        let store = |number: usize| StoreStatus {
            name: STORES[number].to_owned(),
            address: format!("10.0.0.{number}:2049"),
            state: if state.drained[number] { StoreState::Drained } else { StoreState::Up },
            reason: state.drained[number].then(|| "taken out by the operator".to_owned()),
            weight: if state.learnt && number == 1 { 1.2 } else { 1.5 },
            configured_weight: 1.5,
            epoch: 3,
            connections: 2,
            in_flight: 17,
            calls_max: 240,
            waiting: 0,
            requests: 123_456,
            failed: 1,
            mean_response_ms: (number == 0).then_some(0.25),
        };
        let counter = |reason: &'static str, value| Counter {
            name: "records_refused".into(),
            help: "Client connections closed over a record.".into(),
            label: Some(("reason".into(), reason.into())),
            value,
        };
        Status {
            version: "0.1.0".into(),
            started_unix_seconds: 1_800_000_000,
            uptime_seconds: 90_061,
            listen: vec!["[::]:2049".to_owned()],
            table_version: state.table_version,
            stores: vec![store(0), store(1)],
            limits: vec![
                LimitFill { name: "pins_max".into(), used: 60_000, max: 65_536, reached: 0 },
                LimitFill { name: "connections_max".into(), used: 1, max: 4_096, reached: 0 },
            ],
            counters: vec![counter("too_long", 2), counter("too_many \"fragments\"", 5)],
            alarms: vec!["every store is unhealthy".to_owned()],
            replicated: state
                .exceptions
                .iter()
                .filter(|(_, (_, replicas, _))| replicas.len() > 1)
                .map(|(handle, assigned)| exception(handle, assigned))
                .collect(),
            control: ControlStatus {
                mode: "control".into(),
                objective_ms: 5.0,
                confidence: 0.66,
                objective_met: Some(false),
                objective_reachable: Some(true),
                periods_observed: 4,
                files_moved: 7,
                moved_last: 2,
                weights: "apply".into(),
                weights_learnt: state.learnt,
            },
        }
    }

    async fn exceptions(&self, after: Option<Vec<u8>>, limit: usize) -> Result<ExceptionPage, ControlError> {
        let state = self.state.lock().unwrap();
        let later =
            state.exceptions.iter().filter(|(handle, _)| after.as_ref().is_none_or(|after| *handle > after));
        let later = later.take(limit + 1);
        let mut exceptions: Vec<Exception> = later.map(|(handle, of)| exception(handle, of)).collect();
        let more = exceptions.len() > limit;
        exceptions.truncate(limit);
        let next = exceptions.last().filter(|_| more).map(|last| last.handle.clone());
        Ok(ExceptionPage { total: state.exceptions.len().try_into().unwrap(), exceptions, next })
    }

    async fn assign(&self, assign: Assign) -> Result<Moved, ControlError> {
        let store = Self::store(&assign.store)?;
        let named = std::iter::once(&assign.store).chain(&assign.also);
        let one = |name: &String| Self::store(name).map(|_| ReadShare { store: name.clone(), share: 500 });
        let mut replicas = named.map(one).collect::<Result<Vec<_>, _>>()?;
        if assign.also.is_empty() {
            replicas.clear();
        }
        let (handle, path) = Self::handle(&assign.file)?;
        let mut state = self.state.lock().unwrap();
        if state.exceptions.len() >= EXCEPTIONS_MAX && !state.exceptions.contains_key(&handle) {
            return Err(ControlError::ExceptionsFull { max: EXCEPTIONS_MAX });
        }
        let assigned = (store, replicas.clone(), assign.reason);
        let before = state.exceptions.insert(handle.clone(), assigned).map_or(0, |(store, ..)| store);
        state.table_version += 1;
        Ok(Moved {
            handle: handle_text(&handle),
            path,
            from: Some(STORES[before].to_owned()),
            to: Some(STORES[store].to_owned()),
            replicas,
            waiting: false,
            table_version: state.table_version,
            not_kept: None,
        })
    }

    async fn unassign(&self, file: FileName) -> Result<Moved, ControlError> {
        let (handle, path) = Self::handle(&file)?;
        let mut state = self.state.lock().unwrap();
        let Some((store, ..)) = state.exceptions.remove(&handle) else {
            return Err(ControlError::NotAssigned { file: path.unwrap_or_else(|| handle_text(&handle)) });
        };
        state.table_version += 1;
        Ok(Moved {
            handle: handle_text(&handle),
            path,
            from: Some(STORES[store].to_owned()),
            to: Some(STORES[0].to_owned()),
            replicas: Vec::new(),
            waiting: true,
            table_version: state.table_version,
            not_kept: None,
        })
    }

    async fn drain(&self, store: String, force: bool) -> Result<Drained, ControlError> {
        self.set_drained(&store, true, force)
    }

    async fn undrain(&self, store: String) -> Result<Drained, ControlError> {
        self.set_drained(&store, false, false)
    }

    async fn weights(&self) -> Weights {
        let state = self.state.lock().unwrap();
        let one = |number: usize| Weight {
            store: STORES[number].to_owned(),
            configured: 1.5,
            in_force: if state.learnt && number == 1 { 1.2 } else { 1.5 },
        };
        Weights {
            mode: "apply".to_owned(),
            learnt: state.learnt,
            changed_unix_ms: state.learnt.then_some(7),
            reason: if state.learnt { "they suit the stores".to_owned() } else { String::new() },
            stores: vec![one(0), one(1)],
            table_version: state.table_version,
            not_kept: None,
        }
    }

    async fn reset_weights(&self) -> Result<Weights, ControlError> {
        {
            let mut state = self.state.lock().unwrap();
            state.learnt = false;
            state.table_version += 1;
        }
        Ok(self.weights().await)
    }

    async fn periods(&self, last: usize) -> Result<Periods, ControlError> {
        let store = StorePeriod {
            name: STORES[0].to_owned(),
            requests: 10,
            reads: 7,
            writes: 1,
            metadata: 2,
            failed: 0,
            bytes_read: 4096,
            bytes_written: 1,
            mean_response_ms: Some(1.5),
            deviation_response_ms: None,
            median_response_ms: Some(1.25),
            p99_response_ms: Some(9.0),
        };
        let period = |number: u64| Period {
            start_unix_ms: number * 1_000,
            length_ms: 1_000,
            stores: vec![store.clone()],
        };
        Ok(Periods { periods: (0..last.try_into().unwrap()).map(period).collect() })
    }

    async fn control(&self) -> ControlState {
        ControlState { mode: "control".into(), decisions: 3, ..ControlState::default() }
    }

    async fn decisions(&self, last: usize) -> Decisions {
        let decided = |period| Decided { period, by: "plan".into(), ..Decided::default() };
        Decisions { decisions: (0..3).map(decided).take(last).collect() }
    }

    async fn report(&self, last: usize) -> Result<Report, ControlError> {
        if last > 100 {
            return Err(ControlError::History { why: "block 7 is damaged".to_owned() });
        }
        Ok(Report::of_plex(&[]))
    }

    async fn hot(&self, last: usize, limit: usize, store: Option<String>) -> Result<HotFiles, ControlError> {
        let store = store.unwrap_or_else(|| STORES[0].to_owned());
        Self::store(&store)?;
        if last > 100 {
            return Err(ControlError::History { why: "block 7 is damaged".to_owned() });
        }
        let file = HotFile {
            handle: "0a0b".to_owned(),
            path: Some("/export/a".to_owned()),
            store,
            requests: 10,
            reads: 7,
            writes: 1,
            metadata: 2,
            bytes_read: 4096,
            bytes_written: 1,
        };
        Ok(HotFiles {
            start_unix_ms: Some(1),
            length_ms: 1_000,
            requests: 20,
            files: vec![file; limit.min(2)],
        })
    }
}
