//! Applications that clients send: what they may change in the namespace, and what is done with their code.
//!
//! ```text
//! up --> every right that a function gets is the deployer's --> files that are missing --(sent, checked)--> code --> Changes
//! ```

use super::{Access, limits::Demand, topics::source_of};
use crate::{
    Code, Definition, Free, FunctionSpec, FunctionStat, Gated, Level, Name, Result, Runtime,
    audit::{Act, Audited},
    changes::{Changes, Opened, Progress, REMOTE, Sent, Withdrawal},
    functions,
    manage::{
        Down, Managed, MissingDoc, Sending, StepsDoc, Up,
        bundle::{Bundle, check_all},
        uploads::{Slot, Uploads},
    },
    pools, repairs,
};
use millrace_application::{Application, FILE_MAX_BYTES, FunctionDeclaration};
use millrace_security::token::Kind;
use millrace_security::token::{Action, Principal, Resource, Right};
use millrace_wire::{Defence, protocol::Upload};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Component, Path, PathBuf},
};

/// Where the code of the functions of a namespace is, in its directory.
const FUNCTIONS: &str = "functions";
/// Rights that a refusal names.
const LACKING_SHOWN_MAX: usize = 20;
/// Pending runs of a function whose logs are looked up; for code of a function with more of them, its deployer has to be able to read
/// every log.
const PENDING_LOOKED_MAX: usize = 20_000;
/// The longest application file of a deployer without `admin`: it takes a while to read one.
const CONFINED_FILE_MAX_BYTES: u64 = 256 << 10;
/// Characters of the functions that a line of the audit log names.
const ABOUT_MAX_CHARS: usize = 300;

/// A right that a deployment takes, and why.
struct Needed<'n> {
    right: Right,
    kind: Kind,
    name: String,
    below: bool,
    /// The part of the file that needs the right.
    why: &'n str,
}

impl Needed<'_> {
    fn action(&self) -> Action<'_> {
        Action { below: self.below, ..Action::new(self.right, Resource { kind: self.kind, name: &self.name }) }
    }
}

/// The rights that a function has to be given by its deployer.
fn needed_for<'n>(spec: &FunctionSpec, why: &'n str) -> Vec<Needed<'n>> {
    let mut needed = Vec::new();
    let mut need = |right, kind, name: &str, below| {
        needed.push(Needed { right, kind, name: name.to_owned(), below, why });
    };
    need(Right::Bind, Kind::Function, &spec.name, false);
    if pools::of(spec).is_some() {
        // Its tasks may call every shared object.
        need(Right::Admin, Kind::Namespace, "", false);
    } else {
        for log in &spec.on {
            need(Right::Bind, Kind::Log, log, false);
            need(Right::Read, Kind::Log, log, false);
        }
    }
    need(Right::Append, Kind::Log, &spec.dead_letter, false);
    for (right, scopes) in [(Right::Read, &spec.rights.reads), (Right::Append, &spec.rights.appends)] {
        match scopes {
            // It may do so with every log.
            None => need(right, Kind::Log, "", true),
            Some(scopes) => scopes.iter().for_each(|scope| {
                let (name, below) = scope.parts();
                need(right, Kind::Log, name, below);
            }),
        }
    }
    for scope in &spec.rights.sends {
        let (name, below) = scope.parts();
        need(Right::Append, Kind::Peer, &name, below);
    }
    // Neither is a resource of its own.
    if spec.network || !spec.rights.secrets.is_empty() {
        need(Right::Admin, Kind::Namespace, "", false);
    }
    needed
}

impl Sending {
    /// The application; `exists` returns whether a path that was not uploaded exists.
    fn application(&self, exists: &dyn Fn(&Path) -> bool) -> Result<Application> {
        if self.text.len() as u64 > FILE_MAX_BYTES {
            let reported = format!("an application file of {} bytes; the limit is {FILE_MAX_BYTES}", self.text.len());
            return Err(Code::ManageInvalid.error(reported));
        }
        let sources: BTreeSet<&Path> = self.functions.values().map(|bundle| Path::new(&bundle.source)).collect();
        let there = |path: &Path| sources.contains(path) || exists(path);
        Ok(Application::parse_with(&self.text, Path::new(&self.file), &there)?)
    }

    /// The code of a function that the file declares.
    fn bundle(&self, name: &Name, source: &Path) -> Result<&Bundle> {
        let bundle = self.functions.get(name).filter(|bundle| Path::new(&bundle.source) == source);
        bundle.ok_or_else(|| Code::BundleInvalid.error(format!("the code of function '{name}' was not announced")))
    }
}

impl Access {
    /// The rights of these that the caller does not have.
    fn lacking<'n>(&self, needed: &'n [Needed<'n>]) -> impl Iterator<Item = &'n Needed<'n>> {
        needed.iter().filter(|needed| !self.may_do(&needed.action()))
    }

    /// Refuses a deployment that needs a right which its deployer does not have, and names that right.
    fn check_deployer(&self, needed: &[Needed<'_>]) -> Result<()> {
        let mut lacking = self.lacking(needed).peekable();
        let Some(first) = lacking.peek() else {
            // Rates count it, once.
            return needed.first().map_or(Ok(()), |first| self.check_action(&first.action()));
        };
        // The refusal is audited like any other.
        let refused = self.check_action(&first.action());
        let mut reported: Vec<String> = Vec::new();
        let mut more = "";
        for needed in lacking {
            let Action { right, on, below, .. } = needed.action();
            let on = match (on.kind, on.name, below) {
                (Kind::Log, "", true) => "every log".to_owned(),
                (_, _, true) => format!("{on} and everything below it"),
                _ => on.to_string(),
            };
            let takes = format!("{} needs {right} on {on}", needed.why);
            if reported.contains(&takes) {
                continue;
            }
            // The rest is not looked for: a file may take any number of rights.
            if reported.len() == LACKING_SHOWN_MAX {
                more = "; and more";
                break;
            }
            reported.push(takes);
        }
        let detail = format!("the capability lacks rights: {}{more}", reported.join("; "));
        match refused {
            Err(error) if error.code() == Code::CapabilityDenied => Err(Code::DeployerRights.error(detail)),
            Err(error) => Err(error),
            Ok(()) => Err(Code::DeployerRights.error(detail)),
        }
    }

    /// The rights that applying an application needs.
    fn check_application(&self, application: &Application, gone: &[Name]) -> Result<()> {
        let whys: Vec<String> =
            application.functions.iter().map(|declared| format!("function '{}'", declared.spec.name)).collect();
        let monitors: Vec<String> = application.functions.iter().map(of_monitor).collect();
        let functions = application.functions.iter().zip(&whys);
        let mut needed: Vec<Needed<'_>> =
            functions.clone().flat_map(|(declared, why)| needed_for(&declared.spec, why)).collect();
        for (declared, why) in functions.clone() {
            needed.extend(self.needed_for_pending(&declared.spec.name, why)?);
        }
        for (declared, why) in application.functions.iter().zip(&monitors) {
            needed.extend(self.needed_for_monitor(&declared.spec, why)?);
        }
        let of_admin = self.needs_admin(application, gone)?;
        let admin = |why| Needed { right: Right::Admin, kind: Kind::Namespace, name: String::new(), below: false, why };
        needed.extend(of_admin.iter().map(|why| admin(why)));
        let dead_letters = functions.map(|(declared, why)| (&declared.spec.dead_letter, &**why));
        let why = "changing the history of a log";
        for log in &application.logs {
            // A caller that may not see a log is not told of its history; below, creating the log is what it lacks.
            if let Ok(there) = self.namespace().log(&log.name)
                && there.history() != log.history
                && (self.sees(&log.name) || !Defence::Existence.stands())
            {
                let mut need = |right| {
                    needed.push(Needed { right, kind: Kind::Log, name: log.name.to_string(), below: false, why });
                };
                need(Right::Create);
                // Those beyond a shorter one are dropped.
                if log.history < there.history() {
                    need(Right::Delete);
                }
            }
        }
        let logs = application.logs.iter().map(|log| (&log.name, "creating a log of the file"));
        for (name, why) in logs.chain(dead_letters) {
            // A caller that may not see a log gets the same answer as if the log did not exist.
            if self.namespace().log(name).is_err() || !self.sees(name) {
                let name = name.to_string();
                needed.push(Needed { right: Right::Create, kind: Kind::Log, name, below: false, why });
            }
        }
        needed.extend(removal_of(gone));
        self.check_deployer(&needed)?;
        self.check_level(application)
    }

    /// What the application has that only those may deploy who administer the namespace: programs of the host by their paths, which may be
    /// anybody's files, and more memory or runs at once than the host leaves to one deployer.
    fn needs_admin(&self, application: &Application, gone: &[Name]) -> Result<Vec<String>> {
        if self.administers() {
            return Ok(Vec::new());
        }
        let rules = application.mqtt.as_ref().map(|_| "changing the rules for topics of MQTT".to_owned());
        let databases = application.databases.iter().map(|settings| format!("setting database '{}'", settings.name));
        // The host connects there on its own behalf.
        let replicas = application.logs.iter().filter(|log| log.from.is_some());
        let replicas = replicas.map(|log| format!("following the owner of replica '{}'", log.name));
        let rules: Vec<String> = rules.into_iter().chain(databases).chain(replicas).collect();
        if application.functions.is_empty() {
            return Ok(rules);
        }
        let foreign = |declared: &FunctionDeclaration| {
            let program = foreign_program(&declared.spec)?;
            let shown: String = program.chars().take(200).flat_map(char::escape_debug).collect();
            Some(format!("function '{}' with the program '{shown}', which is not in its code", declared.spec.name))
        };
        let named = application.functions.iter().filter(|_| Defence::Programs.stands());
        let mut needs: Vec<String> = named.filter_map(foreign).chain(rules).collect();
        let declares = |name: &Name| application.functions.iter().any(|declared| declared.spec.name == *name);
        let stays = |stat: &&FunctionStat| !declares(&stat.name) && !gone.contains(&stat.name);
        let there = self.namespace().functions()?;
        let others = there.iter().filter(stays).filter_map(|stat| stat.definition.as_ref().ok());
        let own = others.filter(|definition| self.deployed_by_caller(definition)).map(|definition| &definition.spec);
        let all = application.functions.iter().map(|declared| &declared.spec).chain(own);
        needs.extend(Demand::of(all).beyond());
        Ok(needs)
    }

    /// Whether the caller, or another holder of its capability, deployed this.
    fn deployed_by_caller(&self, definition: &Definition) -> bool {
        let principal = match self.caller.principal() {
            Principal::Owner => "owner".to_owned(),
            // Subjects are chosen by those that pass a capability on.
            Principal::Holder { id, .. } => id.to_string(),
        };
        let of = definition.application.as_deref().and_then(|origin| origin.strip_prefix(REMOTE));
        let rest = of.and_then(|of| of.strip_prefix(&*principal));
        rest.is_some_and(|rest| rest.starts_with([':', '/']))
    }

    /// The rights that other code of a function takes: its pending runs, and dead letters that are tried again, have records of the logs
    /// that it is bound to until now, and runs to come have records of the topics that it is subscribed to. Subscriptions have the name of
    /// a function, so they are there also while no function has that name. Callers without the right to the function are not told of these.
    fn needed_for_pending<'n>(&self, function: &Name, why: &'n str) -> Result<Vec<Needed<'n>>> {
        let reads =
            |name: &str, below| Needed { right: Right::Read, kind: Kind::Log, name: name.to_owned(), below, why };
        if !self.may(Right::Bind, Resource::function(function)) {
            return Ok(Vec::new());
        }
        // A caller that may read every log need not be compared with each run.
        if self.may_do(&reads("", true).action()) {
            return Ok(Vec::new());
        }
        let mut logs: BTreeSet<String> = self.topics_of(function).collect();
        let is_there = match self.definition_of(function) {
            Ok(definition) => {
                logs.extend(definition.spec.on.iter().map(|log| log.to_string()));
                true
            }
            Err(error) if error.code() == Code::FunctionNotFound => false,
            // Its bindings cannot be read.
            Err(_) => return Ok(vec![reads("", true)]),
        };
        if is_there {
            // Runs may wait that another definition of it was bound to, or that an append named it for.
            match self.namespace().logs_of_pending(function, PENDING_LOOKED_MAX)? {
                Some(waiting) => logs.extend(waiting.iter().map(|log| source_of(log).into_owned())),
                None => return Ok(vec![reads("", true)]),
            }
        }
        Ok(logs.iter().map(|log| reads(log, false)).collect())
    }

    /// A run of one function delays every other function with the same monitor. So its deployer needs the right to the other functions
    /// with this monitor, or to administer the namespace. The error does not reveal the names of functions.
    fn needed_for_monitor<'n>(&self, spec: &FunctionSpec, why: &'n str) -> Result<Option<Needed<'n>>> {
        let Some(monitor) = &spec.monitor else { return Ok(None) };
        let functions = self.namespace().functions()?;
        let others = functions.iter().filter(|function| function.name != spec.name);
        let mut of_others = others.filter(|function| match &function.definition {
            Ok(definition) => definition.spec.monitor.as_ref() == Some(monitor),
            Err(_) => false,
        });
        let is_lacking = of_others.any(|function| !self.may(Right::Bind, Resource::function(&function.name)));
        let admin = || Needed { right: Right::Admin, kind: Kind::Namespace, name: String::new(), below: false, why };
        Ok(is_lacking.then(admin))
    }

    /// Code of a deployer without `admin` runs in a full sandbox, or is refused. WebAssembly is compiled and run by the host itself, so it
    /// is not enough that a module can only call what the host offers: a flaw of the compiler would be the host's.
    fn check_level(&self, application: &Application) -> Result<()> {
        if application.functions.is_empty() || self.administers() {
            return Ok(());
        }
        let in_host = application.functions.iter().find(|declared| declared.spec.runtime == Runtime::Wasm);
        if let Some(function) = in_host {
            let name = &function.spec.name;
            return Err(
                Code::SandboxWeak.error(format!("function '{name}' is WebAssembly, which runs in the host's process"))
            );
        }
        let level = self.served.inner.isolation.get().map_or(Level::None, |isolation| isolation.level());
        if level == Level::Full {
            return Ok(());
        }
        let name = &application.functions[0].spec.name;
        Err(Code::SandboxWeak.error(format!("function '{name}' would run in a sandbox of level {level}")))
    }

    fn sent(&self, sending: &Sending, act: Act, names: impl Iterator<Item = String>) -> Sent {
        let codes = sending.functions.iter().map(|(name, bundle)| (name.clone(), bundle.code.clone())).collect();
        Sent {
            origin: format!("{REMOTE}{}:{}", self.caller.principal(), sending.origin),
            codes,
            isolation: self.served.inner.isolation.get().cloned(),
            confined: !self.administers(),
            line: self.line(act, names),
            logs: BTreeSet::new(),
        }
    }

    /// The line in the audit log about a change of these.
    fn line(&self, act: Act, names: impl Iterator<Item = String>) -> Audited {
        let about: String = names.collect::<Vec<_>>().join(", ").chars().take(ABOUT_MAX_CHARS).collect();
        self.by(act).about(about)
    }

    /// Applies an application that a client sends, or returns which files the client has to send first.
    pub(super) fn up(&self, up: &Up, uploads: Option<&Uploads>) -> Result<Managed> {
        let sending = &up.sending;
        self.check_length(sending)?;
        check_all(sending.functions.values())?;
        // Only callers that may deploy learn whether an interpreter exists here.
        let application = sending.application(&|_| true)?;
        let declared = || application.functions.iter().map(|declared| declared.spec.name.to_string());
        let sent = self.sent(sending, Act::Deploy, declared());
        let gone = Changes::sent(&application, &sent).gone(self.namespace())?;
        self.check_application(&application, &gone)?;
        let line = self.line(Act::Deploy, declared().chain(gone.iter().map(|name| format!("-{name}"))));
        let sent = Sent { line, ..sent };

        // Relative paths start at a directory of the sender, of which only the uploaded files exist here. Only those who administer the
        // namespace have named any other.
        let mut application = sending.application(&|path| path.is_absolute() && path.exists())?;
        let dead_letters = Changes::sent(&application, &sent).dead_letters();
        self.check_logs(application.logs.iter().map(|log| (&log.name, log.history)), dead_letters.into_iter())?;
        // The host repairs an amendable log by itself, so declaring one needs the right to repair it. So does ending that, because waiting
        // amendments become dead letters.
        for log in &application.logs {
            if repairs::amend_policy(self.namespace(), &log.name)? != log.amendable {
                self.check(Right::Repair, Resource::log(&log.name))?;
            }
            if let Ok(there) = self.namespace().log(&log.name)
                && log.table.is_none()
                && self.namespace().time_field(&there)? != log.time
            {
                self.check(Right::Create, Resource::log(&log.name))?;
            }
        }
        if up.dry_run {
            let changes = Changes::sent(&application, &sent).taking_over(up.take_over);
            let steps = changes.plan(Some(self.namespace()))?;
            changes.check_pending(self.namespace(), up.force)?;
            return Ok(Managed::Steps(StepsDoc { steps }));
        }
        let mut to_send: BTreeMap<Name, &Bundle> = BTreeMap::new();
        for declared in &mut application.functions {
            let (name, bundle) = (&declared.spec.name, sending.bundle(&declared.spec.name, &declared.source)?);
            match self.deployed(name, bundle) {
                Some(source) => declared.source = source,
                None => drop(to_send.insert(name.clone(), bundle)),
            }
        }
        let mut staging = uploads.map(Uploads::lock);
        if !to_send.is_empty() {
            let (Some(uploads), Some(slot)) = (uploads, staging.as_deref_mut()) else {
                return Err(Code::UploadUnexpected.error("code cannot be sent over this interface"));
            };
            let missing = self.missing(uploads, slot, &to_send)?;
            if !missing.is_empty() {
                return Ok(Managed::Missing(MissingDoc { missing }));
            }
            for declared in &mut application.functions {
                let (name, here) = (&declared.spec.name, slot.staging.as_ref());
                if let (Some(bundle), Some(here)) = (to_send.get(name), here) {
                    declared.source = here.assemble(name, bundle)?;
                }
            }
        }
        let mut steps = Vec::new();
        let opened = Opened::there(self.namespace().clone());
        let changes = Changes::sent(&application, &sent).taking_over(up.take_over);
        let applied = changes.apply(&opened, up.force, &mut |reported| {
            if let Progress::Step(step) = reported {
                steps.push(step.clone());
            }
        });
        // Applied or refused, it is over.
        if let Some(slot) = staging.as_deref_mut() {
            slot.staging = None;
        }
        applied?;
        Ok(Managed::Steps(StepsDoc { steps }))
    }

    /// Refuses a file that is too long to be read for this caller. What is in it, which decides about the rights, is known only afterwards.
    fn check_length(&self, sending: &Sending) -> Result<()> {
        let bytes = sending.text.len() as u64;
        if bytes <= CONFINED_FILE_MAX_BYTES || self.administers() {
            return Ok(());
        }
        Err(Code::ManageInvalid.error(format!(
            "an application file of {bytes} bytes; the limit without admin on the namespace is {CONFINED_FILE_MAX_BYTES}"
        )))
    }

    /// The code of a function that is deployed already with just this code: it need not be sent.
    fn deployed(&self, name: &Name, bundle: &Bundle) -> Option<PathBuf> {
        let definition = self.definition_of(name).ok().filter(|definition| definition.code == bundle.code)?;
        let dir = self.namespace().dir();
        functions::check_code(dir, &definition.code).ok()?;
        let stored = dir.join(FUNCTIONS).join(&definition.code);
        Some(bundle.file.as_ref().map_or_else(|| stored.clone(), |file| stored.join(file)))
    }

    /// The files of these functions that are still to come.
    fn missing(&self, uploads: &Uploads, slot: &mut Slot, to_send: &BTreeMap<Name, &Bundle>) -> Result<Vec<String>> {
        let principal = self.caller.principal();
        slot.staging.take_if(|staging| staging.principal != *principal);
        if slot.staging.is_none() {
            uploads.announce(slot, self.namespace().dir(), principal.clone())?;
        }
        let staging = slot.staging.as_mut().expect("it was announced");
        staging.functions = to_send.keys().cloned().collect();
        staging.expect(to_send.values().flat_map(|bundle| bundle.files()));
        Ok(staging.missing())
    }

    /// Takes a part of a file that [`Access::manage`] said to be missing.
    pub fn upload(&self, uploads: &Uploads, upload: &Upload<'_>) -> Gated<()> {
        self.free(self.take_upload(uploads, upload), Free::Upload)
    }

    fn take_upload(&self, uploads: &Uploads, upload: &Upload<'_>) -> Result<()> {
        let mut slot = uploads.lock();
        let abandoned = slot.abandoned;
        let announced = slot.staging.as_mut().filter(|staging| staging.principal == *self.caller.principal());
        let Some(staging) = announced else {
            if abandoned {
                return Err(
                    Code::UploadAbandoned.error("the deployment was idle and was removed to make room for others")
                );
            }
            return Err(Code::UploadUnexpected.error("no deployment was announced over this connection"));
        };
        for function in &staging.functions {
            self.check(Right::Bind, Resource::function(function))?;
        }
        staging.take(upload.sha256, upload.offset, upload.data)
    }

    /// Removes what an application made.
    pub(super) fn down(&self, down: &Down) -> Result<Managed> {
        self.check_length(&down.sending)?;
        let application = down.sending.application(&|_| true)?;
        let declared = application.functions.iter().map(|declared| declared.spec.name.clone());
        let mut sent = self.sent(&down.sending, Act::FunctionRemove, std::iter::empty());
        let Withdrawal { functions, logs } = Changes::sent(&application, &sent).withdrawal(self.namespace())?;
        let leaving: BTreeSet<Name> = functions.into_iter().map(|function| function.name).chain(declared).collect();
        let mut needed = removal_of(&leaving);
        // Callers without a right to a function do not learn where its dead letters are.
        if down.logs && self.lacking(&needed).next().is_none() {
            needed.extend(logs.iter().map(|log| Needed {
                right: Right::Delete,
                kind: Kind::Log,
                name: log.to_string(),
                below: false,
                why: "removing the logs",
            }));
            sent.logs.extend(logs);
        }
        self.check_deployer(&needed)?;
        let logs = sent.logs.iter().map(|log| format!("log '{log}'"));
        let names = leaving.iter().map(Name::to_string).chain(logs);
        let sent = Sent { line: self.line(Act::FunctionRemove, names), ..sent };
        let mut steps = Vec::new();
        let changes = Changes::sent(&application, &sent).taking_over(down.take_over);
        changes.withdraw(self.namespace(), down.logs, down.force, &mut |reported| {
            if let Progress::Step(step) = reported {
                steps.push(step.clone());
            }
        })?;
        Ok(Managed::Steps(StepsDoc { steps }))
    }
}

/// The program of a function that is neither in its code nor looked up by its name, if it is such a one.
fn foreign_program(spec: &FunctionSpec) -> Option<&str> {
    let named = match spec.runtime {
        Runtime::Wasm => return None,
        // Where it is was determined when the file was read.
        Runtime::Python => return Some(&*spec.python).filter(|python| python.contains('/')),
        Runtime::Process | Runtime::Oneshot => spec.command.first()?,
    };
    let leads_out = |part: Component<'_>| !matches!(part, Component::Normal(_) | Component::CurDir);
    Path::new(named).components().any(leads_out).then_some(named.as_str())
}

/// Why a function takes a right on other functions of its monitor.
fn of_monitor(declared: &FunctionDeclaration) -> String {
    let monitor = declared.spec.monitor.as_deref().unwrap_or_default();
    format!("function '{}' with monitor '{monitor}' of other functions", declared.spec.name)
}

fn removal_of<'f, 'n>(functions: impl IntoIterator<Item = &'f Name>) -> Vec<Needed<'n>> {
    let removal = |name: &Name| Needed {
        right: Right::Bind,
        kind: Kind::Function,
        name: name.to_string(),
        below: false,
        why: "removing a function",
    };
    functions.into_iter().map(removal).collect()
}
