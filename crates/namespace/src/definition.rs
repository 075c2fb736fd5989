//! The definition of a function: its code, its runtime, the records that it runs for, and its limits.
//!
//! A [`FunctionSpec`] is what a user declares. A [`Definition`] is the same together with the deployed code; it is the JSON in the
//! function's DEFINE entry, and the only source of a host about functions.

mod amend;
mod rights;

pub use amend::{AMEND_AGE_MAX, AMEND_COUNT_MAX, AmendPolicy};
pub use rights::{Checked, LogScope, Readable, Rights, SCOPES_MAX, SECRETS_MAX, SendScope, Writable};

use millrace_journal::json::{self, Unread};
use millrace_wire::{Code, Error, LogName, Name, Result, TableMode};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt, str::FromStr, time::Duration};

/// Most runs of one function at once: each needs a thread, and most runtimes a process.
pub const CONCURRENCY_MAX: u32 = 64;
/// Most attempts after the first.
pub const RETRIES_MAX: u32 = 100;
/// Longest time between two attempts; the backoff doubles up to here.
pub const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// Longest a run may take.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Most logs one function can be bound to.
pub const BOUND_LOGS_MAX: usize = 1024;
/// Most runs that may wait for one function.
pub const PENDING_MAX: u64 = 10_000_000;
/// Most output kept of one run.
pub const OUTPUT_MAX_BYTES: u64 = 1 << 20;
/// Longest run, unless a function says otherwise.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);
/// Most memory of a run in bytes, unless its function says otherwise.
pub const MEMORY_DEFAULT_BYTES: u64 = 256 << 20;
/// Most output kept of a run, unless its function says otherwise.
pub const OUTPUT_DEFAULT_BYTES: u64 = 64 << 10;
/// History of a dead-letter log that deployment creates.
pub const DEAD_LETTER_HISTORY: u64 = 1000;

/// The runtime of a function's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Runtime {
    /// A WebAssembly module; a fresh instance per run.
    Wasm,
    /// A Python function in a warm worker.
    Python,
    /// A persistent process that speaks the worker protocol.
    Process,
    /// A process per run: the record on standard input, the exit code as the outcome.
    Oneshot,
}

impl Runtime {
    /// Every runtime, in the order that messages list them.
    pub const ALL: [Runtime; 4] = [Runtime::Wasm, Runtime::Python, Runtime::Process, Runtime::Oneshot];

    /// The word for it in millrace.toml.
    pub fn as_str(self) -> &'static str {
        match self {
            Runtime::Wasm => "wasm",
            Runtime::Python => "python",
            Runtime::Process => "process",
            Runtime::Oneshot => "oneshot",
        }
    }
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Runtime {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|runtime| runtime.as_str() == text)
            .ok_or_else(|| Code::ValueInvalid.error(format!("'{}' is not a runtime", text.escape_debug())))
    }
}

/// What others may change while a run is in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunIsolation {
    /// A run sees everything as it was when the run began. If it changes a key of a table that it has read, nobody else has changed this key by
    /// the end of the run.
    #[default]
    Snapshot,
    /// In addition, if the run changes anything, nobody else has changed what it has read: keys, ranges, and the numbers of the newest records of
    /// logs. So it has the effects that it would have if it ran alone.
    Serializable,
}

impl RunIsolation {
    /// The word for it in millrace.toml.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Snapshot => "snapshot",
            Self::Serializable => "serializable",
        }
    }

    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl FromStr for RunIsolation {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let known = [Self::Snapshot, Self::Serializable].into_iter().find(|isolation| isolation.as_str() == text);
        known.ok_or_else(|| {
            let text = text.escape_debug();
            Code::ValueInvalid.error(format!("'{text}' is no isolation of runs: it is 'snapshot' or 'serializable'"))
        })
    }
}

/// A function as its user declares it. The code itself is a path given to the deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FunctionSpec {
    /// The function's name, unique in its namespace.
    pub name: Name,
    /// Its runtime.
    pub runtime: Runtime,
    /// Python: `module:function`. Wasm: the export. Others: not used.
    pub handler: String,
    /// Process and one-shot: program and arguments; a program with a `/` is relative to the code.
    pub command: Vec<String>,
    /// Python: the interpreter, an absolute path or a name searched for in PATH.
    pub python: String,
    /// Every record of these logs runs the function.
    pub on: Vec<LogName>,
    /// Most runs at once. More than one needs `ordered = false`.
    pub concurrency: u32,
    /// Whether runs are executed one at a time in the order of their triggers; a failing run then delays those after it.
    pub ordered: bool,
    /// At most one run at a time, in trigger order, among the functions that share this name.
    pub monitor: Option<Name>,
    /// Longest run.
    pub timeout: Duration,
    /// Most memory, in bytes.
    pub memory_max_bytes: u64,
    /// Most output kept of a run, in bytes.
    pub output_max_bytes: u64,
    /// Attempts after the first.
    pub retries: u32,
    /// Time before the second attempt; it doubles with every further one, up to [`BACKOFF_MAX`].
    pub backoff: Duration,
    /// Where a record goes whose last attempt failed.
    pub dead_letter: LogName,
    /// Most pending runs before appends from outside are refused.
    pub pending_max: u64,
    /// Variables the function's process gets.
    pub env: BTreeMap<String, String>,
    /// Whether each append is published at once, and a later attempt gets the answers of the earlier ones; otherwise a run's effects are
    /// all or nothing.
    #[serde(default)]
    pub streamed: bool,
    /// Whether it may use the host's network, with its loopback. Without a sandbox, every function may.
    #[serde(default)]
    pub network: bool,
    /// What its runs may see of others.
    #[serde(default, skip_serializing_if = "RunIsolation::is_default")]
    pub isolation: RunIsolation,
    /// How what depends on the changes that its runs make to tables waits for their databases, instead of the tables' own modes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table_mode: Option<TableMode>,
    /// Its rights.
    #[serde(default, skip_serializing_if = "Rights::is_default")]
    pub rights: Rights,
    /// The model of the devices on which it runs, if it does: the firmware has it under [`FunctionSpec::of_firmware`], hosts import its runs,
    /// and its code here, the twin, is for repairs only. The logs in `on` are those of the devices, `DEVICE/LOG`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Name>,
}

impl FunctionSpec {
    /// A function with this name and runtime, not bound to any log, and every limit at its default.
    pub fn new(name: Name, runtime: Runtime) -> Self {
        // A name is at most 64 bytes of allowed characters, so the result is a log name.
        let dead_letter = format!("dead/{name}").parse().expect("a name makes a log's segment");
        Self {
            name,
            runtime,
            handler: if runtime == Runtime::Wasm { "handle".into() } else { String::new() },
            command: Vec::new(),
            python: "python3".into(),
            on: Vec::new(),
            concurrency: 1,
            ordered: true,
            monitor: None,
            timeout: TIMEOUT_DEFAULT,
            memory_max_bytes: MEMORY_DEFAULT_BYTES,
            output_max_bytes: OUTPUT_DEFAULT_BYTES,
            retries: 3,
            backoff: Duration::from_millis(100),
            dead_letter,
            pending_max: 100_000,
            env: BTreeMap::new(),
            streamed: false,
            network: false,
            isolation: RunIsolation::default(),
            table_mode: None,
            rights: Rights::default(),
            at: None,
        }
    }

    /// The name that the function has in the firmware of the devices on which it runs, if it runs on devices: its own is `MODEL.NAME`.
    pub fn of_firmware(&self) -> Option<&str> {
        self.name.strip_prefix(&**self.at.as_ref()?)?.strip_prefix('.').filter(|name| !name.is_empty())
    }

    /// Checks what can be checked without looking at the code.
    pub fn validate(&self) -> Result<()> {
        let within = |what: &str, value: u64, least: u64, most: u64| {
            (least..=most)
                .contains(&value)
                .then_some(())
                .ok_or_else(|| self.fault(format!("{what} is {value}, and must be from {least} to {most}")))
        };
        within("concurrency", self.concurrency.into(), 1, CONCURRENCY_MAX.into())?;
        within("retries", self.retries.into(), 0, RETRIES_MAX.into())?;
        within("the number of bound logs", self.on.len() as u64, 0, BOUND_LOGS_MAX as u64)?;
        within("pending_max", self.pending_max, 1, PENDING_MAX)?;
        within("output in bytes", self.output_max_bytes, 0, OUTPUT_MAX_BYTES)?;
        within("memory in bytes", self.memory_max_bytes, 64 << 10, 1 << 40)?;
        within("timeout in milliseconds", millis(self.timeout), 1, millis(TIMEOUT_MAX))?;
        within("backoff in milliseconds", millis(self.backoff), 0, millis(BACKOFF_MAX))?;
        let rights = &self.rights;
        let listed = |scopes: &Option<Vec<LogScope>>| scopes.as_ref().map_or(0, Vec::len) as u64;
        within("the number of logs in reads", listed(&rights.reads), 0, SCOPES_MAX as u64)?;
        within("the number of logs in appends", listed(&rights.appends), 0, SCOPES_MAX as u64)?;
        within("the number of addresses in sends", rights.sends.len() as u64, 0, SCOPES_MAX as u64)?;
        within("the number of secrets", rights.secrets.len() as u64, 0, SECRETS_MAX as u64)?;
        self.validate_at()?;
        if self.ordered && self.concurrency > 1 {
            return Err(self.fault("an ordered function runs one record at a time; set ordered = false to run several"));
        }
        if self.streamed && self.isolation == RunIsolation::Serializable {
            let fault = "a streamed function publishes each append at once, so it cannot be serializable; remove one of the two";
            return Err(self.fault(fault));
        }
        match self.runtime {
            Runtime::Wasm if self.handler.is_empty() => Err(self.fault("a wasm function needs a handler")),
            Runtime::Python if self.python_handler().is_none() => {
                Err(self.fault(format!("handler '{}' is not MODULE:FUNCTION", self.handler.escape_debug())))
            }
            Runtime::Process | Runtime::Oneshot if self.command.first().is_none_or(String::is_empty) => {
                Err(self.fault(format!(
                    "a {} function needs a command: `command` in millrace.toml, or `-- ./NAME` at the end of the command line",
                    self.runtime
                )))
            }
            _ => self.validate_text(),
        }
    }

    /// What must be so of a function that runs on devices.
    fn validate_at(&self) -> Result<()> {
        let Some(model) = &self.at else { return Ok(()) };
        if self.of_firmware().is_none() {
            return Err(self.fault(format!(
                "a function of the model '{model}' is called '{model}.NAME', with its name in the firmware"
            )));
        }
        if self.runtime != Runtime::Wasm || self.network || self.streamed {
            let needed = "a function that runs on devices has a twin in wasm, without network and not streamed";
            return Err(self.fault(needed));
        }
        match self.on.iter().find(|log| log.split_once('/').is_none()) {
            Some(log) => Err(self.fault(format!("'{log}' is no log of a device, which is called DEVICE/LOG"))),
            None => Ok(()),
        }
    }

    /// Texts that reach the operating system, which ends them at a NUL.
    fn validate_text(&self) -> Result<()> {
        let variables = self.env.iter().flat_map(|(key, value)| [key, value]);
        if self.command.iter().chain([&self.python, &self.handler]).chain(variables).any(|text| text.contains('\0')) {
            return Err(self.fault("a command, handler, interpreter or variable contains a NUL character"));
        }
        match self.env.keys().find(|key| key.is_empty() || key.contains('=')) {
            Some(key) => Err(self.fault(format!("'{}' is not a valid name of a variable", key.escape_debug()))),
            None => Ok(()),
        }
    }

    fn fault(&self, fault: impl fmt::Display) -> Error {
        Code::FunctionInvalid.error(format!("function '{}': {fault}", self.name))
    }

    /// The module and function that a Python handler names.
    pub fn python_handler(&self) -> Option<(&str, &str)> {
        let (module, function) = self.handler.split_once(':')?;
        let identifier = |text: &str| {
            !text.is_empty()
                && !text.starts_with(|c: char| c.is_ascii_digit())
                && text.chars().all(|c| c.is_alphanumeric() || c == '_')
        };
        (module.split('.').all(identifier) && identifier(function)).then_some((module, function))
    }

    /// Whether at most one run is in progress, in trigger order.
    pub fn serial(&self) -> bool {
        self.ordered || self.monitor.is_some()
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The key of [`Definition::application`]: a reader that does not know it may ignore it.
const APPLICATION: &str = "application?";
/// The key of [`Definition::confined`]: earlier versions did not check it.
const CONFINED: &str = "confined?";

/// A function as it is deployed in a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// The declaration of its user.
    pub spec: FunctionSpec,
    /// SHA-256 of the code, in hexadecimal: the name of its directory under `functions/`.
    pub code: String,
    /// The file in that directory, if a single file was deployed rather than a directory.
    pub file: Option<String>,
    /// The application file that it was deployed from, if it was, relative to the directory around the namespace.
    /// A host runs the function without knowing it.
    #[serde(rename = "application?", default, skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
    /// Whether somebody deployed it who does not administer the namespace: it runs only where a sandbox keeps it from everything else.
    #[serde(rename = "confined?", default, skip_serializing_if = "std::ops::Not::not")]
    pub confined: bool,
    /// The function is being removed: its pending runs are being dropped and it takes no new ones.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removing: bool,
}

impl Definition {
    /// The definition that a DEFINE entry carries.
    pub fn from_attributes(name: &str, attributes: &str) -> Result<Self> {
        let definition: Self =
            json::decode_with(attributes.as_bytes(), &[APPLICATION, CONFINED]).map_err(|error| match error {
                // A later version defined it; to run it without what that says could do harm.
                Unread::TooNew(what) => {
                    Code::FormatVersion.error(format!("the definition of function '{name}': {what}"))
                }
                Unread::Malformed(what) => Code::DefinitionDamaged.error(format!("function '{name}': {what}")),
            })?;
        let hexadecimal = definition.code.len() == 64 && definition.code.bytes().all(|b| b.is_ascii_hexdigit());
        let hexadecimal = hexadecimal || definition.is_without_code();
        let inside = definition.file.as_deref().is_none_or(|file| !file.contains('/') && file != "..");
        if !hexadecimal || !inside || &*definition.spec.name != name {
            return Err(Code::DefinitionDamaged
                .error(format!("function '{name}': its code or name does not match its definition")));
        }
        definition.spec.validate()?;
        Ok(definition)
    }

    /// Of a function that runs on devices, and whose twin nobody has deployed: its name, and the logs whose records run it.
    pub fn without_code(spec: FunctionSpec) -> Self {
        Self { spec, code: String::new(), file: None, application: None, confined: false, removing: false }
    }

    /// Whether there is no code to run here.
    pub fn is_without_code(&self) -> bool {
        self.code.is_empty() && self.spec.at.is_some()
    }

    /// What its DEFINE entry carries.
    pub fn to_attributes(&self) -> String {
        serde_json::to_string(self).expect("names, numbers and text always make JSON")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(runtime: Runtime) -> FunctionSpec {
        FunctionSpec::new("f".parse().unwrap(), runtime)
    }

    fn definition(spec: FunctionSpec) -> Definition {
        let code = "ab".repeat(32);
        Definition { spec, code, file: None, application: None, confined: false, removing: false }
    }

    #[test]
    fn a_definition_comes_back_from_its_attributes() {
        let mut spec = spec(Runtime::Python);
        spec.handler = "pkg.mod:run".into();
        spec.on = vec!["raw/a".parse().unwrap()];
        spec.env.insert("K".into(), "v".into());
        spec.rights = Rights {
            reads: Some(vec!["raw/".parse().unwrap()]),
            appends: Some(Vec::new()),
            sends: vec!["mr://cloud/farm/raw".parse().unwrap()],
            secrets: vec!["api-key".parse().unwrap()],
        };
        spec.isolation = RunIsolation::Serializable;
        spec.table_mode = Some(TableMode::Asynchronous);
        let definition = Definition { confined: true, ..definition(spec) };
        assert_eq!(Definition::from_attributes("f", &definition.to_attributes()).unwrap(), definition);
        assert_eq!(
            Definition::from_attributes("g", &definition.to_attributes()).unwrap_err().code(),
            Code::DefinitionDamaged
        );
    }

    #[test]
    fn what_publishes_each_append_at_once_cannot_be_serializable() {
        let mut spec = spec(Runtime::Wasm);
        spec.isolation = "serializable".parse().unwrap();
        spec.validate().unwrap();
        spec.streamed = true;
        assert_eq!(spec.validate().unwrap_err().code(), Code::FunctionInvalid);
        assert_eq!("repeatable".parse::<RunIsolation>().unwrap_err().code(), Code::ValueInvalid);
    }

    #[test]
    fn what_a_later_version_says_of_a_function_is_ignored_only_if_it_may_be() {
        let application = Some("millrace.toml".to_owned());
        let definition = Definition { application, ..definition(spec(Runtime::Wasm)) };
        assert!(definition.to_attributes().contains("\"application?\":\"millrace.toml\""));
        let with = |key: &str| definition.to_attributes().replacen("\"name\"", &format!("\"{key}\":1,\"name\""), 1);
        assert_eq!(Definition::from_attributes("f", &with("fuel?")).unwrap(), definition);
        let error = Definition::from_attributes("f", &with("fuel")).unwrap_err();
        assert!(error.code() == Code::FormatVersion && error.detail().contains("`fuel`"), "{error}");
    }

    #[test]
    fn code_outside_its_directory_is_refused() {
        for (code, file) in [("../../etc", None), (&*"ab".repeat(32), Some("../x")), (&"ab".repeat(32), Some(".."))] {
            let definition =
                Definition { code: code.into(), file: file.map(String::from), ..definition(spec(Runtime::Wasm)) };
            let error = Definition::from_attributes("f", &definition.to_attributes()).unwrap_err();
            assert_eq!(error.code(), Code::DefinitionDamaged, "{code} {file:?}");
        }
    }

    #[test]
    fn what_cannot_work_is_refused_before_it_is_deployed() {
        assert!(spec(Runtime::Wasm).validate().is_ok());
        type Breakage = fn(&mut FunctionSpec);
        let broken: [(&str, Breakage); 11] = [
            ("concurrency", |s| s.concurrency = 0),
            ("ordered", |s| s.concurrency = 2),
            ("timeout", |s| s.timeout = Duration::ZERO),
            ("retries", |s| s.retries = 1000),
            ("pending_max", |s| s.pending_max = 0),
            ("memory", |s| s.memory_max_bytes = 0),
            ("handler", |s| s.handler.clear()),
            ("secrets", |s| s.rights.secrets = vec!["key".parse().unwrap(); SECRETS_MAX + 1]),
            ("reads", |s| s.rights.reads = Some(vec!["/".parse().unwrap(); SCOPES_MAX + 1])),
            ("NUL", |s| s.python = "a\0b".into()),
            ("variable", |s| drop(s.env.insert("A=B".into(), String::new()))),
        ];
        for (what, breakage) in broken {
            let mut spec = spec(Runtime::Wasm);
            breakage(&mut spec);
            let error = spec.validate().unwrap_err();
            assert!(error.code() == Code::FunctionInvalid && error.detail().contains(what), "{what}: {error}");
        }
        assert!(spec(Runtime::Oneshot).validate().unwrap_err().detail().contains("command"));
        for handler in ["", "m", "m:", ":f", "m:f:g", "m f:g", "../m:f", "1m:f", "m..n:f"] {
            let mut spec = spec(Runtime::Python);
            spec.handler = handler.into();
            assert!(spec.validate().is_err(), "{handler}");
        }
    }
}
