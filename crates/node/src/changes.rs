//! Makes a namespace hold what its application file says, and takes it away again.
//!
//! Applying is idempotent. What would be refused because of a setting or a log is found before anything is touched; a function whose
//! code cannot be deployed stops the rest, and what was deployed before it stays.

use crate::{DEAD_LETTER_HISTORY, Definition, Namespace, functions};
use millrace_application::{Application, FunctionDeclaration};
use millrace_wire::{Code, Error, LogName, Name, Result};
use serde::Serialize;
use std::collections::BTreeMap;

/// What a step is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// A log.
    Log,
    /// A function.
    Function,
}

/// What a step does to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// What it is about.
    pub what: What,
    /// Its name.
    pub name: String,
    /// What happens to it.
    #[serde(rename = "change")]
    pub action: Action,
    /// Pending runs that were given up with it.
    #[serde(skip_serializing_if = "is_zero")]
    pub given_up: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Step {
    fn new(what: What, name: &str, action: Action) -> Self {
        Self { what, name: name.into(), action, given_up: 0 }
    }

    /// A function that was removed, and how many of its pending runs were given up with it.
    pub fn removed(name: &str, given_up: u64) -> Self {
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

/// What an application makes of a namespace.
#[derive(Clone, Copy)]
pub struct Changes<'a> {
    application: &'a Application,
}

impl<'a> Changes<'a> {
    /// Those of this application.
    pub fn of(application: &'a Application) -> Self {
        Self { application }
    }

    /// What applying would do to `namespace`, or to a new one. Nothing is touched.
    pub fn plan(&self, namespace: Option<&Namespace>) -> Result<Vec<Step>> {
        namespace.map_or(Ok(()), |namespace| self.application.settings.check(namespace))?;
        let mut steps = self.plan_logs(namespace)?;
        let deployed = match namespace {
            Some(namespace) => namespace.functions()?,
            None => Vec::new(),
        };
        let deployed: BTreeMap<_, _> =
            deployed.iter().map(|function| (&*function.name, &function.definition)).collect();
        for declared in &self.application.functions {
            let action = match deployed.get(&*declared.spec.name) {
                None => Action::Created,
                Some(Ok(definition)) if self.same(definition, declared)? => Action::Unchanged,
                Some(_) => Action::Updated,
            };
            steps.push(Step::new(What::Function, &declared.spec.name, action));
        }
        Ok(steps)
    }

    fn same(&self, definition: &Definition, declared: &FunctionDeclaration) -> Result<bool> {
        Ok(definition.spec == declared.spec && definition.code == functions::code_hash(&declared.source)?)
    }

    /// What applying would do to the logs; an error if one of them is there with another history.
    fn plan_logs(&self, namespace: Option<&Namespace>) -> Result<Vec<Step>> {
        let existing = match namespace {
            Some(namespace) => namespace.logs()?,
            None => Vec::new(),
        };
        let existing: BTreeMap<_, _> = existing.iter().map(|log| (&*log.name, log.history)).collect();
        let step = |name: &LogName, history: u64| match existing.get(&**name) {
            None => Ok(Step::new(What::Log, name, Action::Created)),
            Some(there) if *there == history => Ok(Step::new(What::Log, name, Action::Unchanged)),
            Some(there) => Err(Code::LogExists.error(format!(
                "log '{name}' has a history of {there}, and {} says {history}; nothing was changed",
                self.application.path.display()
            ))),
        };
        let mut steps: Vec<Step> =
            self.application.logs.iter().map(|log| step(&log.name, log.history)).collect::<Result<Vec<_>>>()?;
        // Dead-letter logs come with their functions, whatever history they may have if they are there.
        for name in self.dead_letters() {
            if !existing.contains_key(&**name) {
                steps.push(step(name, DEAD_LETTER_HISTORY)?);
            }
        }
        Ok(steps)
    }

    /// Dead-letter logs of the functions that the file does not declare itself, each once.
    fn dead_letters(&self) -> Vec<&LogName> {
        let mut names: Vec<&LogName> =
            self.application.functions.iter().map(|declared| &declared.spec.dead_letter).collect();
        names.sort();
        names.dedup();
        names.retain(|name| self.application.logs.iter().all(|log| log.name != **name));
        names
    }

    /// Makes the logs and deploys the functions; `progress` hears of each step when it is done.
    pub fn apply(&self, namespace: &Namespace, mut progress: impl FnMut(&Step)) -> Result<()> {
        self.application.settings.check(namespace)?;
        let planned = self.plan_logs(Some(namespace))?;
        let declared = self.application.logs.iter().map(|log| (&log.name, log.history));
        let dead_letters = self.dead_letters().into_iter().map(|name| (name, DEAD_LETTER_HISTORY));
        let histories: BTreeMap<&str, _> =
            declared.chain(dead_letters).map(|(name, history)| (&**name, (name, history))).collect();
        for step in planned {
            if let (Action::Created, Some((name, history))) = (step.action, histories.get(&*step.name)) {
                namespace.create_log(name, *history)?;
            }
            progress(&step);
        }
        for (at, declared) in self.application.functions.iter().enumerate() {
            let deployed = functions::deploy(namespace, &declared.spec, &declared.source).map_err(|error| {
                if self.application.functions.len() > 1 { self.stopped_at(at, &error) } else { error }
            })?;
            progress(&Step::new(What::Function, &deployed.name, deployed.change.into()));
        }
        Ok(())
    }

    /// The error of a function that could not be deployed, with what stands as the file says and what does not.
    fn stopped_at(&self, at: usize, error: &Error) -> Error {
        let names = |functions: &[FunctionDeclaration]| match functions {
            [] => "none".into(),
            some => some.iter().map(|declared| &*declared.spec.name).collect::<Vec<_>>().join(", "),
        };
        let (deployed, not) = self.application.functions.split_at(at);
        let detail = error.detail();
        error.code().error(format!("{detail}; deployed: {}; not deployed: {}", names(deployed), names(not)))
    }

    /// Removes the functions, and the logs with their records if `logs` says so; what is not there is passed over.
    ///
    /// Pending runs are given up if `force` says so. Otherwise nothing is removed while there are any.
    pub fn withdraw(
        &self,
        namespace: &Namespace,
        logs: bool,
        force: bool,
        mut progress: impl FnMut(&Step),
    ) -> Result<()> {
        if !force {
            let there = namespace.functions()?;
            let declared = |name: &Name| self.application.functions.iter().any(|declared| declared.spec.name == *name);
            let busy = there.iter().filter(|function| function.pending() > 0 && declared(&function.name));
            let busy: Vec<(&Name, u64)> = busy.map(|function| (&function.name, function.pending())).collect();
            if !busy.is_empty() {
                return Err(functions::pending_runs(&busy));
            }
        }
        for declared in &self.application.functions {
            let name = &declared.spec.name;
            let removed = if force {
                functions::give_up(namespace, name)
            } else {
                functions::remove(namespace, name).map(|()| 0)
            };
            match removed {
                Ok(given_up) => progress(&Step::removed(name, given_up)),
                Err(error) if error.code() == Code::FunctionNotFound => {}
                Err(error) => return Err(error),
            }
        }
        let names = self.application.logs.iter().map(|log| &log.name).chain(self.dead_letters());
        for name in names.filter(|_| logs) {
            match namespace.remove_log(name) {
                Ok(()) => progress(&Step::new(What::Log, name, Action::Removed)),
                Err(error) if error.code() == Code::LogNotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
