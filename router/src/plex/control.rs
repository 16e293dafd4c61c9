//! What an operator can see and change while the plex runs.

use super::desk::{ask_any, walk_down};
use super::periods::unix_ms;
use super::state::{By, Exception, Health, ReadShare, StoreMark, Wanted};
use super::status::store_state;
use super::survey::SurveyError;
use super::{Plex, survey::Asker};
use crate::config::Config;
use crate::heat::PeriodRecord;
use crate::report::Report;
use crate::web::types::{
    self, Assign, ControlState, Decisions, Drained, ExceptionPage, FileName, HotFiles, Moved, Period,
    Periods, Status, Weight, Weights,
};
use crate::web::{ControlError, PlexControl, handle_bytes, handle_text};
use clockwork_placement::{StoreId, Table, TableError};
use clockwork_wire::nfs3::{Procedure, status};
use std::ops::Bound;
use std::time::{Duration, SystemTime};

/// Longest wait for one answer of a store when a file is looked up.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Longest wait for all of them.
const LOOK_UP_MAX: Duration = Duration::from_secs(20);

impl PlexControl for Plex {
    async fn status(&self) -> Status {
        self.whole_status().await
    }

    async fn exceptions(&self, after: Option<Vec<u8>>, limit: usize) -> Result<ExceptionPage, ControlError> {
        self.measured.name_roots(&self.state);
        let wanted = self.state.wanted();
        let table = self.state.shared.table.load();
        let from = match &after {
            Some(after) => Bound::Excluded(after.as_slice()),
            None => Bound::Unbounded,
        };
        let mut rest = wanted.exceptions.range::<[u8], _>((from, Bound::Unbounded));
        let exceptions: Vec<types::Exception> = rest
            .by_ref()
            .take(limit)
            .map(|(handle, exception)| self.shown(&table, handle, exception))
            .collect();
        let more = rest.next().is_some();
        let next = exceptions.last().filter(|_| more).map(|last| last.handle.clone());
        Ok(ExceptionPage { total: wanted.exceptions.len() as u64, exceptions, next })
    }

    async fn assign(&self, assign: Assign) -> Result<Moved, ControlError> {
        let replicas = self.shares(&assign)?;
        let handle = self.find(&assign.file).await?;
        let exception = Exception {
            store: assign.store,
            replicas,
            reason: assign.reason,
            since_unix_ms: unix_ms(SystemTime::now()),
            by: By::Operator,
        };
        let moved = self.change(&handle, |wanted, max| {
            if wanted.exceptions.len() >= max && !wanted.exceptions.contains_key(&*handle) {
                wanted.refused += 1;
                return Err(ControlError::ExceptionsFull { max });
            }
            Ok(wanted.exceptions.insert(handle.as_slice().into(), exception))
        })?;
        self.keeper.save(&self.state).await;
        Ok(Moved { not_kept: self.keeper.not_kept(), ..moved })
    }

    async fn unassign(&self, file: FileName) -> Result<Moved, ControlError> {
        let handle = match (&file, self.assigned(&file)) {
            (_, Some(handle)) => handle,
            // It need not exist any more.
            (FileName::Handle(_), None) => return Err(ControlError::NotAssigned { file: text(&file) }),
            (FileName::Path(_), None) => self.find(&file).await?,
        };
        let moved = self.change(&handle, |wanted, _| match wanted.exceptions.remove(&*handle) {
            Some(removed) => Ok(Some(removed)),
            None => Err(ControlError::NotAssigned { file: text(&file) }),
        })?;
        self.keeper.save(&self.state).await;
        Ok(Moved { not_kept: self.keeper.not_kept(), ..moved })
    }

    async fn drain(&self, store: String, force: bool) -> Result<Drained, ControlError> {
        let number = self.store(&store)?;
        self.set_drained(number, true, force).await
    }

    async fn undrain(&self, store: String) -> Result<Drained, ControlError> {
        let number = self.store(&store)?;
        self.set_drained(number, false, true).await
    }

    async fn weights(&self) -> Weights {
        let wanted = self.state.wanted();
        let (config, learnt) = (&self.state.config, &wanted.weights);
        let one = |store: &crate::config::Store| Weight {
            store: store.name.clone(),
            configured: store.weight,
            in_force: learnt.of(store),
        };
        Weights {
            mode: config.control.weights.word().into(),
            learnt: learnt.are_learnt(),
            changed_unix_ms: learnt.changed_unix_ms(),
            reason: learnt.reason().to_owned(),
            stores: config.stores.iter().map(one).collect(),
            table_version: self.state.shared.table.load().version(),
            not_kept: None,
        }
    }

    async fn reset_weights(&self) -> Result<Weights, ControlError> {
        let max = self.state.config.limits.exception_files_max;
        super::weights::reset(&self.state, &self.keeper).await.map_err(|error| not_applied(&error, max))?;
        Ok(Weights { not_kept: self.keeper.not_kept(), ..self.weights().await })
    }

    async fn periods(&self, last: usize) -> Result<Periods, ControlError> {
        let records = self.measured.last(last).await.map_err(|why| ControlError::History { why })?;
        Ok(Periods { periods: records.iter().map(|record| Period::from(&**record)).collect() })
    }

    async fn hot(&self, last: usize, limit: usize, store: Option<String>) -> Result<HotFiles, ControlError> {
        let records = self.measured.last(last).await.map_err(|why| ControlError::History { why })?;
        if let Some(name) = &store
            && !records.iter().any(|record| record.stores.iter().any(|known| known.name == *name))
        {
            // A store of an earlier configuration may be asked for as well.
            self.store(name)?;
        }
        let sum = move || HotFiles::hottest(&records, limit, store.as_deref());
        tokio::task::spawn_blocking(sum).await.map_err(|_| ControlError::ShuttingDown)
    }

    async fn control(&self) -> ControlState {
        self.control_state()
    }

    async fn decisions(&self, last: usize) -> Decisions {
        let decisions = self.control.decisions(last);
        Decisions { decisions: decisions.iter().map(|decided| decided.as_ref().clone()).collect() }
    }

    async fn report(&self, last: usize) -> Result<Report, ControlError> {
        let records = self.measured.last(last).await.map_err(|why| ControlError::History { why })?;
        let work = move || {
            let records: Vec<PeriodRecord> =
                records.iter().map(|record| PeriodRecord::clone(record)).collect();
            Report::of_plex(&records)
        };
        tokio::task::spawn_blocking(work).await.map_err(|_| ControlError::ShuttingDown)
    }
}

fn text(file: &FileName) -> String {
    match file {
        FileName::Path(path) => path.clone(),
        FileName::Handle(handle) => handle.clone(),
    }
}

fn unknown(file: &FileName, why: impl Into<String>) -> ControlError {
    ControlError::UnknownFile { file: text(file), why: why.into() }
}

fn names(path: &str) -> Vec<Vec<u8>> {
    let split = path.split('/').filter(|name| !name.is_empty() && *name != ".");
    split.map(|name| name.as_bytes().to_vec()).collect()
}

/// The export that a path lies in, the one nearest above it, and the names from there down.
fn export_of(config: &Config, path: &str) -> Option<(usize, Vec<Vec<u8>>)> {
    let wanted = names(path);
    let exports = config.exports.iter().map(|export| names(export.path.as_str())).enumerate();
    let above = exports.filter(|(_, own)| wanted.starts_with(own)).max_by_key(|(_, own)| own.len());
    above.map(|(export, own)| (export, wanted[own.len()..].to_vec()))
}

impl Plex {
    /// The number of a store.
    fn store(&self, name: &str) -> Result<usize, ControlError> {
        let stores = &self.state.config.stores;
        stores.iter().position(|store| store.name == name).ok_or_else(|| ControlError::UnknownStore {
            name: name.to_owned(),
            known: stores.iter().map(|store| store.name.clone()).collect(),
        })
    }

    /// The stores that an assignment names, with the shares of the reads that their weights give them; none for one store.
    fn shares(&self, assign: &Assign) -> Result<Vec<ReadShare>, ControlError> {
        let named = std::iter::once(&assign.store).chain(&assign.also);
        let stores: Vec<usize> = named.map(|name| self.store(name)).collect::<Result<_, _>>()?;
        if assign.also.is_empty() {
            return Ok(Vec::new());
        }
        let (configured, wanted) = (&self.state.config.stores, self.state.wanted());
        let in_force = |store: &usize| wanted.weights.of(&configured[*store]);
        let weights = stores.iter().map(|store| (configured[*store].name.as_str(), in_force(store)));
        Ok(ReadShare::by_weight(weights))
    }

    /// An assigned file as it is shown.
    pub(super) fn shown(&self, table: &Table, handle: &[u8], exception: &Exception) -> types::Exception {
        let home = table.default_route(table.hash(handle));
        types::Exception {
            handle: handle_text(handle),
            path: self.measured.path(handle),
            store: exception.store.clone(),
            replicas: exception.replicas.clone(),
            default_store: home.and_then(|store| self.store_name(store)),
            reason: exception.reason.clone(),
            by: exception.by.word().into(),
            since_unix_ms: exception.since_unix_ms,
        }
    }

    fn store_name(&self, store: StoreId) -> Option<String> {
        self.state.config.stores.get(store.index()).map(|store| store.name.clone())
    }

    /// The handle of an assigned file, by what is known without asking: a file that was removed can be named too.
    fn assigned(&self, file: &FileName) -> Option<Vec<u8>> {
        self.measured.name_roots(&self.state);
        let wanted = self.state.wanted();
        let found = match file {
            FileName::Handle(text) => {
                wanted.exceptions.get_key_value(&*handle_bytes(text)?).map(|(handle, _)| handle)
            }
            FileName::Path(path) => {
                wanted.exceptions.keys().find(|handle| self.measured.path(handle).as_deref() == Some(path))
            }
        };
        found.map(|handle| handle.to_vec())
    }

    /// The handle of a file. A store is asked, since what the traffic has taught may be out of date.
    async fn find(&self, file: &FileName) -> Result<Vec<u8>, ControlError> {
        let nobody = || ControlError::NoStore { what: format!("{} cannot be looked up", text(file)) };
        let looking = async {
            let asker = ask_any(&self.state, ANSWER_MAX).await.ok_or_else(nobody)?;
            match file {
                FileName::Path(path) => self.find_path(&asker, file, path).await,
                FileName::Handle(handle) => find_handle(&asker, file, handle).await,
            }
        };
        tokio::time::timeout(LOOK_UP_MAX, looking).await.unwrap_or_else(|_| Err(nobody()))
    }

    async fn find_path(&self, asker: &Asker, file: &FileName, path: &str) -> Result<Vec<u8>, ControlError> {
        let Some((export, components)) = export_of(&self.state.config, path) else {
            let exports: Vec<&str> =
                self.state.config.exports.iter().map(|export| export.path.as_str()).collect();
            return Err(unknown(file, format!("it lies in no export; there are: {}", exports.join(", "))));
        };
        if components.iter().any(|name| name == b"..") {
            return Err(unknown(file, "a path with `..` may lead out of the export"));
        }
        let root = self.state.mounts.load().root(export).map(|root| root.handle.clone());
        let Some(root) = root else {
            return Err(ControlError::NoStore { what: format!("{path} cannot be looked up") });
        };
        let mut at = root;
        for name in components {
            let found = walk_down(asker, &at, std::slice::from_ref(&name)).await.map_err(|code| {
                let name = String::from_utf8_lossy(&name).into_owned();
                match code {
                    status::NOENT => unknown(file, format!("there is no {name}")),
                    code => unknown(file, format!("looking up {name} gave {}", status::name(code))),
                }
            })?;
            self.measured.learn(&at, &name, &found.handle);
            at = found.handle;
        }
        Ok(at)
    }

    /// Changes the exception set and says what becomes of one file by it.
    fn change(
        &self,
        handle: &[u8],
        change: impl FnOnce(&mut Wanted, usize) -> Result<Option<Exception>, ControlError>,
    ) -> Result<Moved, ControlError> {
        let max = self.state.config.limits.exception_files_max;
        self.measured.name_roots(&self.state);
        let mut wanted = self.state.wanted();
        let shared = &self.state.shared;
        let route = || {
            let table = shared.table.load();
            let pinned = shared.pins.store_of(handle, table.hash(handle));
            (table.route(handle, table.hash(handle)), pinned)
        };
        let (from, pinned) = route();
        let old = change(&mut wanted, max)?;
        if let Err(error) = self.state.apply(&mut wanted) {
            // As it was.
            match old {
                Some(old) => drop(wanted.exceptions.insert(handle.into(), old)),
                None => drop(wanted.exceptions.remove(handle)),
            }
            return Err(not_applied(&error, max));
        }
        let hash = shared.table.load().hash(handle);
        let to = wanted.table.as_ref().and_then(|table| table.route(handle, hash));
        let replicas = wanted.exceptions.get(handle).map(|now| now.replicas.clone()).unwrap_or_default();
        let (_, still) = route();
        Ok(Moved {
            handle: handle_text(handle),
            path: self.measured.path(handle),
            from: pinned.or(from).and_then(|store| self.store_name(store)),
            to: to.and_then(|store| self.store_name(store)),
            replicas,
            waiting: still.is_some() && still != to,
            table_version: shared.table.load().version(),
            not_kept: None,
        })
    }

    async fn set_drained(&self, store: usize, drained: bool, force: bool) -> Result<Drained, ControlError> {
        let config = &self.state.config;
        let name = config.stores[store].name.clone();
        let (before, now, table_version) = {
            let mut wanted = self.state.wanted();
            if drained && !force && is_last(config, &wanted, store) {
                return Err(ControlError::LastStore { name, others: others_out(config, &wanted, store) });
            }
            let before = store_state(&wanted.stores[store], &config.stores[store]).0;
            let old = std::mem::replace(&mut wanted.stores[store].drained, drained);
            if old != drained
                && let Err(error) = self.state.apply(&mut wanted)
            {
                wanted.stores[store].drained = old;
                return Err(not_applied(&error, config.limits.exception_files_max));
            }
            let now = store_state(&wanted.stores[store], &config.stores[store]).0;
            (before, now, self.state.shared.table.load().version())
        };
        tracing::info!(store = name, drained, "by the operator's word");
        self.keeper.save(&self.state).await;
        let in_flight = self.sum().await.in_flight(store);
        Ok(Drained { store: name, before, now, in_flight, table_version, not_kept: self.keeper.not_kept() })
    }
}

/// A table that cannot be made: the change was not.
fn not_applied(error: &TableError, max: usize) -> ControlError {
    tracing::error!(%error, "a change by the operator makes no routing table");
    ControlError::ExceptionsFull { max }
}

/// Whether nobody would serve without this store.
fn is_last(config: &Config, wanted: &Wanted, store: usize) -> bool {
    let serves = |health: fn(&Health) -> bool| {
        let stores = wanted.stores.iter().zip(&config.stores).enumerate();
        let mut others = stores.filter(|(number, _)| *number != store);
        others.any(|(_, (mark, store))| !mark.drained && store.weight > 0.0 && health(&mark.health))
    };
    let up = |health: &Health| matches!(health, Health::Up);
    // Those that are down serve only when nobody is up.
    let down = |health: &Health| matches!(health, Health::Down { .. });
    !wanted.stores[store].drained && !serves(up) && (up(&wanted.stores[store].health) || !serves(down))
}

/// Why each other store is not in service, and what to do.
fn others_out(config: &Config, wanted: &Wanted, store: usize) -> Vec<String> {
    let others = wanted.stores.iter().zip(&config.stores).enumerate().filter(|(number, _)| *number != store);
    let one = |(_, (mark, other)): (usize, (&StoreMark, &crate::config::Store))| {
        let name = &other.name;
        match (&mark.health, mark.drained) {
            _ if other.weight == 0.0 => format!("{name} has weight 0"),
            (Health::Up, true) => format!("{name} is drained: `clockwork undrain {name}` first"),
            (Health::Down { .. } | Health::Unknown, true) => {
                format!("{name} is drained, and does not answer either")
            }
            (Health::Refused { .. }, true) => format!("{name} is drained, and refused as well"),
            (Health::Refused { .. }, false) => format!("{name} is refused: `clockwork status` says why"),
            (Health::Unknown, false) => format!("{name} has not been let in yet"),
            // One that is up would be in service.
            (Health::Down { .. } | Health::Up, false) => {
                format!("{name} is down: it has to answer again first")
            }
        }
    };
    others.map(one).collect()
}

async fn find_handle(asker: &Asker, file: &FileName, text: &str) -> Result<Vec<u8>, ControlError> {
    let Some(handle) = handle_bytes(text) else { return Err(unknown(file, "it is not a handle")) };
    match asker.ask(Procedure::Getattr, "a handle", &handle, |_| {}).await {
        Ok(_) => Ok(handle),
        Err(SurveyError::Nfs { status: code, .. }) => {
            Err(unknown(file, format!("a store answers {} to it", status::name(code))))
        }
        Err(error) => {
            tracing::warn!(%error, "a file cannot be looked up");
            Err(ControlError::NoStore { what: format!("{text} cannot be looked up") })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn config(stores: usize) -> Config {
        let stores: String = (0..stores)
            .map(|n| format!("[[store]]\nname = \"s{n}\"\naddress = \"127.0.0.1:{}\"\n", n + 1))
            .collect();
        let exports = "[[export]]\npath = \"/e\"\nclients = [\"127.0.0.1\"]\n[[export]]\npath = \"/e/in\"\nclients = \
                       [\"127.0.0.1\"]\n";
        Config::parse(&format!("{stores}{exports}"), Path::new("test.toml")).unwrap()
    }

    #[test]
    fn a_path_belongs_to_the_nearest_export_above_it() {
        let config = config(1);
        let below = |names: &[&str]| names.iter().map(|name| name.as_bytes().to_vec()).collect::<Vec<_>>();
        assert_eq!(export_of(&config, "/e/a//b/"), Some((0, below(&["a", "b"]))));
        assert_eq!(export_of(&config, "/e/in/a"), Some((1, below(&["a"]))));
        assert_eq!(export_of(&config, "/e"), Some((0, Vec::new())));
        assert_eq!(export_of(&config, "/f/a"), None);
    }

    #[test]
    fn the_last_store_is_the_one_without_which_nobody_serves() {
        let config = config(3);
        let down = || Health::Down { reason: String::new() };
        let last = |healths: [Health; 3], drained: [bool; 3]| {
            let mut wanted = Wanted { stores: vec![Default::default(); 3], ..Wanted::default() };
            for (mark, (health, drained)) in wanted.stores.iter_mut().zip(healths.into_iter().zip(drained)) {
                (mark.health, mark.drained) = (health, drained);
            }
            is_last(&config, &wanted, 0)
        };
        let none = [false; 3];
        assert!(!last([Health::Up, Health::Up, down()], none));
        assert!(last([Health::Up, down(), Health::Unknown], none));
        assert!(last([Health::Up, Health::Up, Health::Up], [false, true, true]));
        assert!(!last([Health::Up, down(), down()], [true, false, false]), "it is drained already");
        assert!(!last([down(), down(), down()], none));
        assert!(last([down(), Health::Unknown, down()], [false, false, true]));
    }

    #[test]
    fn the_others_are_out_each_for_its_own_reason() {
        let mut config = config(7);
        config.stores[6].weight = 0.0;
        let (down, refused) =
            (|| Health::Down { reason: String::new() }, || Health::Refused { reason: String::new() });
        let healths = [Health::Up, Health::Up, down(), down(), refused(), Health::Unknown, Health::Up];
        let mut wanted = Wanted { stores: vec![Default::default(); 7], ..Wanted::default() };
        for (mark, health) in wanted.stores.iter_mut().zip(healths) {
            mark.health = health;
        }
        (wanted.stores[1].drained, wanted.stores[3].drained) = (true, true);
        let expected = [
            "s1 is drained: `clockwork undrain s1` first",
            "s2 is down: it has to answer again first",
            "s3 is drained, and does not answer either",
            "s4 is refused: `clockwork status` says why",
            "s5 has not been let in yet",
            "s6 has weight 0",
        ];
        assert!(is_last(&config, &wanted, 0));
        assert_eq!(others_out(&config, &wanted, 0), expected);
    }
}
