//! Applies an application file to a namespace, and removes it again.
//!
//! Applying is idempotent. Settings, logs and the code of every function are checked before anything is changed, and all that is
//! wrong is reported at once. Functions are then defined in one commit, together with the removal of those that were deployed
//! from the same file and that it no longer names.

use crate::{
    DEAD_LETTER_HISTORY, Definition, FunctionStat, Isolation, Namespace,
    audit::{Audited, audit},
    functions::{self, Apart, StoreLock},
    mqtt, pools,
    repairs::{amend_policy, declare_amendable},
};
use millrace_application::{Application, FunctionDeclaration, mqtt::summary};
use millrace_journal::Transaction;
use millrace_wire::{Address, Code, Error, LogName, Name, Result, TimeField, history};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The prefix of the origin of an application that was sent from another machine; no path of this machine begins with it. It is followed by
/// the sender and the path of the file there.
pub(crate) const REMOTE: &str = "remote:";

/// An origin, for people.
fn shown(origin: &str) -> String {
    match origin.strip_prefix(REMOTE).and_then(|sent| sent.split_once(":/")) {
        Some((sender, path)) => format!("'/{}', which {sender} sent from another machine", path.escape_debug()),
        None => format!("'{}' on the host's machine", origin.escape_debug()),
    }
}

/// Functions of other applications that a refusal names.
const OTHERS_SHOWN_MAX: usize = 20;

/// The object of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// A log.
    Log,
    /// A function.
    Function,
    /// A setting of the namespace.
    Setting,
    /// A topic of the cluster. This and what follows is applied through a host, and not here.
    Topic,
    /// A function that runs for a topic: `FUNCTION to TOPIC`.
    Subscription,
    /// A log that feeds a topic: `LOG to TOPIC`.
    Feed,
}

/// The change of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// It was not there.
    Created,
    /// It was there, but different.
    Updated,
    /// It was there, the same in every respect.
    Unchanged,
    /// It was there and is no longer.
    Removed,
}

/// One step of applying or withdrawing an application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The kind of its object.
    pub what: What,
    /// Its name.
    pub name: String,
    /// The change.
    #[serde(rename = "change")]
    pub action: Action,
    /// Pending runs that were given up with it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub given_up: u64,
    /// Of a log that is updated: how many records it keeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<HistoryChange>,
    /// Of a log: whether sources may amend its records from now on, if that changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amendable: Option<bool>,
    /// Of a log: the field that has the time of the observation, if that changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<TimeChange>,
}

/// Another field that has the time of the observation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeChange {
    /// The present one.
    pub from: Option<TimeField>,
    /// The new one.
    pub to: Option<TimeField>,
}

/// Another history of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryChange {
    /// The current history.
    #[serde(with = "history")]
    pub from: u64,
    /// The new history.
    #[serde(with = "history")]
    pub to: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Step {
    /// A step of this kind, without anything else to say.
    pub fn new(what: What, name: &str, action: Action) -> Self {
        Self { what, name: name.into(), action, given_up: 0, history: None, amendable: None, time: None }
    }

    /// A function that was removed, and how many of its pending runs were given up with it.
    fn removed(name: &str, given_up: u64) -> Self {
        Self { given_up, ..Self::new(What::Function, name, Action::Removed) }
    }
}

impl From<functions::Change> for Action {
    fn from(change: functions::Change) -> Self {
        match change {
            functions::Change::Created => Action::Created,
            functions::Change::Updated => Action::Updated,
            functions::Change::Unchanged => Action::Unchanged,
        }
    }
}

/// Progress reports while an application is applied.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    /// A step is done.
    Step(&'a Step),
    /// The check of a function's code takes long.
    Slow {
        /// The function.
        function: &'a Name,
        /// The action that takes long.
        what: &'a str,
    },
}

/// The namespace of an application, see [`Changes::open`].
pub struct Opened {
    /// The namespace.
    pub namespace: Namespace,
    /// Whether it was made just now.
    pub created: bool,
    /// Checked before it was created.
    checked: Vec<Definition>,
}

impl Opened {
    /// One that is there already, and open.
    pub(crate) fn there(namespace: Namespace) -> Self {
        Self { namespace, created: false, checked: Vec::new() }
    }
}

/// A directory that is removed in the end, with all that is in it.
struct Scrap(PathBuf);

impl Drop for Scrap {
    fn drop(&mut self) {
        // A file that cannot be removed does no harm; the directory above it stays as long as it is in use.
        let _ = fs::remove_dir_all(&self.0);
        let _ = self.0.parent().map(fs::remove_dir);
    }
}

/// Information for a host about an application that a client sent.
pub(crate) struct Sent {
    /// The identity of the application in definitions.
    pub origin: String,
    /// The announced hash of the code of each function.
    pub codes: BTreeMap<Name, String>,
    /// How code is kept apart from the host when it is checked.
    pub isolation: Option<Arc<Isolation>>,
    /// Whether the sender does not administer the namespace.
    pub confined: bool,
    /// The lines for the audit log.
    pub line: Audited,
    /// The logs that the sender may have removed.
    pub logs: BTreeSet<LogName>,
}

/// The functions and logs that withdrawing an application removes.
pub(crate) struct Withdrawal {
    /// The functions that are there.
    pub functions: Vec<FunctionStat>,
    /// The logs, whether they are there or not.
    pub logs: Vec<LogName>,
}

/// Which functions of an application are meant.
type Wanted<'w> = &'w dyn Fn(&FunctionDeclaration) -> bool;

/// The changes that an application makes to a namespace.
#[derive(Clone, Copy)]
pub struct Changes<'a> {
    application: &'a Application,
    /// Set if it was sent from another machine.
    sent: Option<&'a Sent>,
    /// Whether it may change and remove functions that were deployed from another application.
    take_over: bool,
    /// How code is kept apart from this process when it is checked.
    apart: Option<Apart<'a>>,
}

impl<'a> Changes<'a> {
    /// Those of this application.
    pub fn of(application: &'a Application) -> Self {
        Self { application, sent: None, take_over: false, apart: None }
    }

    /// The same; the code is checked only where `apart` keeps it from this process.
    #[must_use]
    pub fn kept_apart(self, apart: Apart<'a>) -> Self {
        Self { apart: Some(apart), ..self }
    }

    /// The changes of an application that a client sent to the namespace's host.
    pub(crate) fn sent(application: &'a Application, sent: &'a Sent) -> Self {
        Self { application, sent: Some(sent), take_over: false, apart: None }
    }

    /// The same; if `take_over` is set, it may change and remove functions that were deployed from another application.
    #[must_use]
    pub fn taking_over(self, take_over: bool) -> Self {
        Self { take_over, ..self }
    }

    /// The namespace in `dir`, which is created if it does not exist and all code of the application can be started.
    pub fn open(&self, dir: &Path, progress: &mut dyn FnMut(Progress<'_>)) -> Result<Opened> {
        match Namespace::open(dir) {
            Ok(namespace) => Ok(Opened { namespace, created: false, checked: Vec::new() }),
            // A directory that is not there, or empty, becomes one; `create` refuses any other.
            Err(error) if error.code() == Code::NotANamespace => {
                let checked = self.check_beside(dir, &|_| true, progress)?;
                let namespace = Namespace::create(dir, &self.application.settings.options(dir))?;
                Ok(Opened { namespace, created: true, checked })
            }
            Err(error) => Err(error),
        }
    }

    /// Checks the code for a namespace that is not there yet, in a directory beside it: on the same file system, with the same
    /// rights.
    fn check_beside(
        &self,
        dir: &Path,
        wanted: Wanted<'_>,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Vec<Definition>> {
        let beside = dir.parent().unwrap_or(Path::new("")).join(functions::CHECKED);
        let scrap = Scrap(beside.join(std::process::id().to_string()));
        if fs::create_dir_all(&scrap.0).is_err() {
            return Ok(Vec::new()); // Then it is checked in the namespace, which may be made where nothing else may.
        }
        let (definitions, errors) = self.prepare(&scrap.0, (&[], wanted), progress);
        all_of(errors).map(|()| definitions)
    }

    /// Copies the code of the wanted functions to `dir` and checks it; what can be deployed, and what is wrong with the rest.
    fn prepare(
        &self,
        dir: &Path,
        (checked, wanted): (&[Definition], Wanted<'_>),
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> (Vec<Definition>, Vec<Error>) {
        let (mut definitions, mut errors) = (Vec::new(), Vec::new());
        for declared in self.application.functions.iter().filter(|declared| wanted(declared)) {
            let function = &declared.spec.name;
            let slow = &mut |what: &str| progress(Progress::Slow { function, what });
            let of_host = self.sent.and_then(|sent| sent.isolation.as_ref()).map(|of| move || Ok(of.clone()));
            let apart = of_host.as_ref().map(|apart| apart as Apart<'_>).or(self.apart);
            let prepared = functions::prepare(dir, &declared.spec, &declared.source, checked, apart, slow);
            match prepared.and_then(|definition| self.as_announced(definition)) {
                Ok(definition) => definitions.push(definition),
                Err(error) => errors.push(error),
            }
        }
        (definitions, errors)
    }

    /// The definition, unless its code is not what was announced.
    fn as_announced(&self, definition: Definition) -> Result<Definition> {
        let name = &definition.spec.name;
        let announced = self.sent.and_then(|sent| sent.codes.get(name));
        if announced.is_some_and(|announced| *announced != definition.code) {
            let detail =
                format!("function '{name}': the hash of the code is {}, not the announced one", definition.code);
            return Err(Code::UploadMismatch.error(detail));
        }
        Ok(definition)
    }

    /// The identification of this file in the definitions of a namespace. A file in the directory around the namespace stays the same file
    /// when that directory is moved.
    fn origin(&self, namespace: &Namespace) -> String {
        if let Some(sent) = self.sent {
            return sent.origin.clone();
        }
        let absolute = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let (file, dir) = (absolute(&self.application.path), absolute(namespace.dir()));
        let around = dir.parent().and_then(|around| file.strip_prefix(around).ok());
        around.unwrap_or(&file).to_string_lossy().into_owned()
    }

    /// Functions of `there` that were deployed from this file, and that it no longer names.
    fn leftovers<'f>(&self, namespace: &Namespace, there: &'f [FunctionStat]) -> Vec<&'f FunctionStat> {
        let origin = self.origin(namespace);
        let ours = |function: &&FunctionStat| match &function.definition {
            Ok(definition) => definition.application.as_ref() == Some(&origin) && !self.declares(&function.name),
            Err(_) => false,
        };
        there.iter().filter(ours).collect()
    }

    /// Refuses to change or remove functions of `there` that the file declares and that were deployed from another application.
    fn check_origins(&self, namespace: &Namespace, there: &[FunctionStat]) -> Result<()> {
        self.check_definitions(namespace, there.iter().filter_map(|function| function.definition.as_ref().ok()))
    }

    fn check_definitions<'d>(
        &self,
        namespace: &Namespace,
        there: impl Iterator<Item = &'d Arc<Definition>>,
    ) -> Result<()> {
        if self.take_over {
            return Ok(());
        }
        let own = self.origin(namespace);
        let of_others = there.filter(|definition| self.declares(&definition.spec.name)).filter_map(|definition| {
            let other = definition.application.as_ref().filter(|other| **other != own)?;
            Some(format!("function '{}' was deployed from {}", definition.spec.name, shown(other)))
        });
        let of_others: Vec<String> = of_others.take(OTHERS_SHOWN_MAX).collect();
        match of_others.is_empty() {
            true => Ok(()),
            false => Err(Code::FunctionOfOther.error(of_others.join("; "))),
        }
    }

    /// Refuses to remove every function for a file that declares nothing: an editor or a program may have emptied it to write it again.
    fn check_declares(&self, leftovers: &[&FunctionStat]) -> Result<()> {
        let Application { path, logs, topics, functions, mqtt, .. } = self.application;
        if leftovers.is_empty() || mqtt.is_some() || !(logs.is_empty() && topics.is_empty() && functions.is_empty()) {
            return Ok(());
        }
        let deployed = match leftovers.len() {
            1 => "1 function was".to_owned(),
            count => format!("{count} functions were"),
        };
        Err(Code::ApplicationEmpty.error(format!("{} declares nothing; {deployed} deployed from it", path.display())))
    }

    /// The functions that applying would remove.
    pub(crate) fn gone(&self, namespace: &Namespace) -> Result<Vec<Name>> {
        let there = namespace.functions()?;
        Ok(self.leftovers(namespace, &there).into_iter().map(|function| function.name.clone()).collect())
    }

    fn declares(&self, name: &Name) -> bool {
        self.application.functions.iter().any(|declared| declared.spec.name == *name)
    }

    /// The changes that applying would make to `namespace`, or to a new one. Nothing is changed.
    pub fn plan(&self, namespace: Option<&Namespace>) -> Result<Vec<Step>> {
        namespace.map_or(Ok(()), |namespace| self.check_settings(namespace))?;
        let mut steps = namespace.map(|namespace| self.plan_settings(namespace)).unwrap_or_default();
        steps.extend(self.plan_logs(namespace)?);
        let there = namespace.map_or(Ok(Vec::new()), Namespace::functions)?;
        namespace.map_or(Ok(()), |namespace| self.check_origins(namespace, &there))?;
        let leftovers = namespace.map(|namespace| self.leftovers(namespace, &there)).unwrap_or_default();
        self.check_declares(&leftovers)?;
        let deployed: BTreeMap<_, _> = there.iter().map(|function| (&*function.name, &function.definition)).collect();
        let origin = namespace.map(|namespace| self.origin(namespace));
        for declared in &self.application.functions {
            let action = match deployed.get(&*declared.spec.name) {
                None => Action::Created,
                Some(Ok(definition))
                    if definition.application == origin && self.same(definition, declared)? && !definition.removing =>
                {
                    Action::Unchanged
                }
                Some(_) => Action::Updated,
            };
            steps.push(Step::new(What::Function, &declared.spec.name, action));
        }
        steps.extend(leftovers.iter().map(|function| Step::removed(&function.name, function.pending())));
        Ok(steps)
    }

    /// Makes the checks of [`Changes::apply`] that need no change: whether the code can be started, and whether functions that would be
    /// removed have pending runs. The code is checked in a directory beside `dir`, unless it is in the namespace already.
    pub fn rehearse(
        &self,
        dir: &Path,
        namespace: Option<&Namespace>,
        force: bool,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<()> {
        let mut errors: Vec<Error> =
            namespace.map_or(Ok(()), |namespace| self.check_pending(namespace, force)).err().into_iter().collect();
        let there = namespace.map_or(Ok(Vec::new()), Namespace::functions)?;
        let is_new = |declared: &FunctionDeclaration| {
            let mut known = there.iter().filter_map(|function| function.definition.as_ref().ok());
            !known.any(|definition| self.same(definition, declared).unwrap_or(false))
        };
        errors.extend(self.check_beside(dir, &is_new, progress).err());
        all_of(errors)
    }

    /// Refuses to remove functions that have pending runs, unless they are to be given up.
    pub(crate) fn check_pending(&self, namespace: &Namespace, force: bool) -> Result<()> {
        if force {
            return Ok(());
        }
        let there = namespace.functions()?;
        busy(&self.leftovers(namespace, &there)).map_or(Ok(()), Err)
    }

    /// Refuses other settings than those that applying can change. Retention is for the owner of the files, who may need the journal.
    fn check_settings(&self, namespace: &Namespace) -> Result<()> {
        match self.sent {
            Some(_) => self.application.settings.check_all(namespace),
            None => self.application.settings.check(namespace),
        }
    }

    /// The settings that applying would change.
    fn plan_settings(&self, namespace: &Namespace) -> Vec<Step> {
        let changes = self.application.settings.changes(namespace);
        let mut steps: Vec<Step> =
            changes.iter().map(|change| Step::new(What::Setting, change, Action::Updated)).collect();
        steps.extend(self.plan_mqtt(namespace));
        for settings in &self.application.databases {
            let action = match namespace.has_database(settings) {
                Ok(Some(true)) => continue,
                Ok(Some(false)) => Action::Updated,
                _ => Action::Created,
            };
            steps.push(Step::new(What::Setting, &format!("database {}", settings.name), action));
        }
        steps
    }

    /// The change of the rules for topics of MQTT.
    fn plan_mqtt(&self, namespace: &Namespace) -> Option<Step> {
        let rules = self.application.mqtt.as_ref()?;
        let differ = mqtt::rules(namespace).map_or(true, |there| there != *rules);
        differ.then(|| Step::new(What::Setting, &summary(rules), Action::Updated))
    }

    fn confined(&self) -> bool {
        self.sent.is_some_and(|sent| sent.confined)
    }

    fn same(&self, definition: &Definition, declared: &FunctionDeclaration) -> Result<bool> {
        if definition.spec != declared.spec || definition.confined != self.confined() {
            return Ok(false);
        }
        match self.sent.and_then(|sent| sent.codes.get(&declared.spec.name)) {
            Some(code) => Ok(definition.code == *code),
            None => Ok(definition.code == functions::code_hash(&declared.source)?),
        }
    }

    /// The changes that applying would make to the logs.
    fn plan_logs(&self, namespace: Option<&Namespace>) -> Result<Vec<Step>> {
        let existing = namespace.map_or(Ok(Vec::new()), Namespace::logs)?;
        let existing: BTreeMap<_, _> = existing.iter().map(|log| (&*log.name, log.history)).collect();
        let mut steps = Vec::new();
        for log in &self.application.logs {
            let (name, wanted) = (&log.name, log.history);
            let replica = match namespace {
                Some(namespace) => replica_of(namespace, name)?,
                None => None,
            };
            if let (Some(from), true) = (&log.from, existing.contains_key(&**name))
                && replica.as_ref() != Some(from)
            {
                let is = replica.map_or_else(|| "no replica".to_owned(), |of| format!("a replica of {of}"));
                let detail = format!("'{name}' is {is}; the file declares a replica of {from}");
                return Err(Code::ReplicaExists.error(detail));
            }
            if let Some(namespace) = namespace.filter(|_| existing.contains_key(&**name) && log.from.is_none())
                && namespace.log(name)?.table().copied() != log.table
            {
                let (is, wanted) = match log.table {
                    Some(_) => ("no table, or one with other attributes", "a table"),
                    None => ("a table", "a log without keys"),
                };
                return Err(Code::LogExists.error(format!("log '{name}' is {is}; the file declares {wanted}")));
            }
            let policy = match namespace.filter(|_| existing.contains_key(&**name)) {
                Some(namespace) => amend_policy(namespace, name)?,
                None => None,
            };
            let amendable = (policy != log.amendable).then_some(log.amendable.is_some());
            // The file says nothing about the records of tables.
            let from = match namespace.filter(|_| existing.contains_key(&**name) && log.table.is_none()) {
                Some(namespace) => namespace.time_field(&namespace.log(name)?)?,
                None => None,
            };
            let time = (from != log.time).then(|| TimeChange { from, to: log.time.clone() });
            let action = match existing.get(&**name) {
                None => Action::Created,
                Some(there) if *there == wanted && amendable.is_none() && time.is_none() => Action::Unchanged,
                Some(_) => Action::Updated,
            };
            let was = existing.get(&**name).filter(|was| action == Action::Updated && **was != wanted);
            let history = was.map(|was| HistoryChange { from: *was, to: wanted });
            steps.push(Step { history, amendable, time, ..Step::new(What::Log, name, action) });
        }
        // Dead-letter logs are created with their functions; an existing one keeps its history.
        let missing = self.dead_letters().into_iter().filter(|name| !existing.contains_key(&***name));
        steps.extend(missing.map(|name| Step::new(What::Log, name, Action::Created)));
        Ok(steps)
    }

    /// Dead-letter logs of the functions that the file does not declare itself, each once.
    pub(crate) fn dead_letters(&self) -> Vec<&'a LogName> {
        let mut names: Vec<&LogName> =
            self.application.functions.iter().map(|declared| &declared.spec.dead_letter).collect();
        names.sort();
        names.dedup();
        names.retain(|name| self.application.logs.iter().all(|log| log.name != **name));
        names
    }

    /// Makes the logs, deploys the functions, and removes those that were deployed from this file and that it no longer names;
    /// `progress` is called for each step when it is done. Nothing is changed unless all of it can be done.
    ///
    /// Pending runs of functions that are removed are given up if `force` says so, and are an error otherwise.
    pub fn apply(&self, opened: &Opened, force: bool, progress: &mut dyn FnMut(Progress<'_>)) -> Result<()> {
        let namespace = &opened.namespace;
        let mut errors: Vec<Error> = self.check_settings(namespace).err().into_iter().collect();
        let planned = self.plan_logs(Some(namespace))?;
        let there = namespace.functions()?;
        let leftovers = self.leftovers(namespace, &there);
        errors.extend(self.check_origins(namespace, &there).err());
        errors.extend(self.check_declares(&leftovers).err());
        errors.extend(if force { None } else { busy(&leftovers) });
        // Until the function is defined, only this keeps the code from being removed.
        let _lock = StoreLock::shared(namespace.dir())?;
        let (mut definitions, refused) = self.prepare(namespace.dir(), (&opened.checked, &|_| true), progress);
        errors.extend(refused);
        all_of(errors)?;

        for step in self.plan_settings(namespace) {
            self.application.settings.apply(namespace)?;
            self.application.mqtt.as_ref().map_or(Ok(false), |rules| mqtt::set_rules(namespace, rules))?;
            self.application.databases.iter().try_for_each(|settings| namespace.set_database(settings).map(drop))?;
            progress(Progress::Step(&step));
        }
        let declared = self.application.logs.iter().map(|log| (&log.name, log.history));
        let dead_letters = self.dead_letters().into_iter().map(|name| (name, DEAD_LETTER_HISTORY));
        let histories: BTreeMap<&str, _> =
            declared.chain(dead_letters).map(|(name, history)| (&**name, (name, history))).collect();
        for step in planned {
            if let (Action::Created, Some((name, history))) = (step.action, histories.get(&*step.name)) {
                let declared = self.application.logs.iter().find(|log| log.name == **name);
                match declared.map(|log| (log.table, &log.from)) {
                    Some((_, Some(from))) => namespace.mirror_table(name, from, *history, false).map(drop)?,
                    Some((Some(table), None)) => namespace.create_table(name, *history, table).map(drop)?,
                    _ => namespace.create_log(name, *history).map(drop)?,
                }
            }
            if let Some(change) = step.history {
                namespace.set_history_gated(&step.name.parse()?, Some(change.from), change.to)?.wait()?;
            }
            let declared = self.application.logs.iter().find(|log| *log.name == *step.name);
            if let (Some(_), Some(log)) = (step.amendable, declared) {
                declare_amendable(namespace, &log.name, log.amendable)?;
            }
            if let Some(change) = &step.time {
                namespace.set_time_field(&step.name.parse()?, change.to.as_ref())?;
            }
            progress(Progress::Step(&step));
        }
        for pool in definitions.iter().filter_map(|definition| pools::of(&definition.spec)) {
            namespace.make_pool(&pool.parse()?)?;
        }
        let origin = self.origin(namespace);
        for definition in &mut definitions {
            (definition.application, definition.confined) = (Some(origin.clone()), self.confined());
        }
        let gone: Vec<&Name> = leftovers.iter().map(|function| &function.name).collect();
        // Another application may have been applied while the code was checked.
        let check = |tx: &mut Transaction<'_>| {
            let bindings = namespace.bindings_of(tx);
            let there = bindings.functions().filter_map(|(_, definition)| definition.as_ref().ok());
            self.check_definitions(namespace, there)
        };
        let note = |tx: &mut Transaction<'_>| self.sent.map_or(Ok(()), |sent| sent.line.note(tx));
        let (changes, left) = functions::redefine(namespace, &definitions, &gone, force, &check, &note)?;
        for (definition, change) in definitions.iter().zip(changes) {
            progress(Progress::Step(&Step::new(What::Function, &definition.spec.name, change.into())));
        }
        for name in gone {
            let given_up = if left.contains(&name) { functions::give_up(namespace, name)? } else { 0 };
            progress(Progress::Step(&Step::removed(name, given_up)));
        }
        Ok(())
    }

    /// The objects that withdrawing would remove: existing functions, and the logs of the file and of dead letters, including those of the
    /// deployed functions.
    pub(crate) fn withdrawal(&self, namespace: &Namespace) -> Result<Withdrawal> {
        let there = namespace.functions()?;
        let left: BTreeSet<Name> =
            self.leftovers(namespace, &there).into_iter().map(|function| function.name.clone()).collect();
        let (mut functions, others): (Vec<FunctionStat>, Vec<FunctionStat>) =
            there.into_iter().partition(|function| self.declares(&function.name));
        functions.extend(others.into_iter().filter(|function| left.contains(&function.name)));
        let letters_of = |function: &FunctionStat| Some(function.definition.as_ref().ok()?.spec.dead_letter.clone());
        let named =
            self.application.logs.iter().map(|log| log.name.clone()).chain(self.dead_letters().into_iter().cloned());
        let logs = named.chain(functions.iter().filter_map(letters_of)).collect();
        Ok(Withdrawal { functions, logs })
    }

    /// Removes the functions, also those that were deployed from this file and that it no longer names, and, if `logs` is set, the logs
    /// with their records. Missing ones are skipped.
    ///
    /// Pending runs are given up if `force` says so. Otherwise nothing is removed while there are any.
    pub fn withdraw(
        &self,
        namespace: &Namespace,
        logs: bool,
        force: bool,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<()> {
        let Withdrawal { functions: leaving, logs: names } = self.withdrawal(namespace)?;
        self.check_origins(namespace, &leaving)?;
        let leaving: Vec<&FunctionStat> = leaving.iter().collect();
        if let (false, Some(error)) = (force, busy(&leaving)) {
            return Err(error);
        }
        if let Some(sent) = self.sent.filter(|_| !leaving.is_empty()) {
            audit(namespace, &sent.line)?;
        }
        if self.application.mqtt.is_some() && mqtt::set_rules(namespace, &[])? {
            progress(Progress::Step(&Step::new(What::Setting, &summary(&[]), Action::Updated)));
        }
        for function in &leaving {
            remove(namespace, &function.name, force, progress)?;
        }
        let may_go = |name: &LogName| self.sent.is_none_or(|sent| sent.logs.contains(name));
        for name in names.into_iter().filter(|name| logs && may_go(name)) {
            if self.application.logs.iter().any(|log| log.name == name && log.from.is_some())
                && namespace.replica(&name)?.is_some()
            {
                namespace.unmirror_table(&name)?;
            }
            match namespace.remove_log(&name) {
                Ok(()) => progress(Progress::Step(&Step::new(What::Log, &name, Action::Removed))),
                Err(error) if error.code() == Code::LogNotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The table of which a table here is a replica.
fn replica_of(namespace: &Namespace, table: &LogName) -> Result<Option<Address>> {
    let Some(replica) = namespace.replica(table)? else { return Ok(None) };
    let peer = namespace.owner(replica.owner)?.peer()?;
    Ok(Some(Address { peer, log: Some(replica.table) }))
}

/// Removes a function, unless it is gone already.
fn remove(namespace: &Namespace, name: &Name, force: bool, progress: &mut dyn FnMut(Progress<'_>)) -> Result<()> {
    let removed =
        if force { functions::give_up(namespace, name) } else { functions::remove(namespace, name).map(|()| 0) };
    match removed {
        Ok(given_up) => progress(Progress::Step(&Step::removed(name, given_up))),
        Err(error) if error.code() == Code::FunctionNotFound => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// The refusal to remove those of the functions that have pending runs.
fn busy(functions: &[&FunctionStat]) -> Option<Error> {
    let busy = functions.iter().filter(|function| function.pending() > 0);
    let busy: Vec<(&Name, u64)> = busy.map(|function| (&function.name, function.pending())).collect();
    (!busy.is_empty()).then(|| functions::pending_runs(&busy))
}

/// All errors as one, which has the code of the first.
fn all_of(mut errors: Vec<Error>) -> Result<()> {
    if errors.len() < 2 {
        return errors.pop().map_or(Ok(()), Err);
    }
    let reported: Vec<String> =
        errors.iter().map(|error| format!("{}: {}", error.code().id(), error.detail())).collect();
    Err(errors[0].code().error(reported.join("\n")))
}
