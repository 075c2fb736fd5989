//! The reasons why functions and runs wait.

use crate::counted;
use millrace_wire::{Name, units};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{fmt, time::Duration};

/// The answer about a function, a log, a run, or the whole namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WhyDoc {
    /// The subject of the question, such as `function 'smooth'`.
    pub target: String,
    /// Every reason that applies, the most fundamental first.
    pub reasons: Vec<ReasonDoc>,
}

/// A reason with its text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReasonDoc {
    /// The reason for programs.
    #[serde(flatten)]
    pub reason: Reason,
    /// The reason for people.
    pub text: String,
}

impl From<Reason> for ReasonDoc {
    fn from(reason: Reason) -> Self {
        Self { text: reason.to_string(), reason }
    }
}

/// One reason, or one thing worth knowing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
#[allow(missing_docs)] // the variants' texts, below, say what each field is
pub enum Reason {
    NoHost,
    HostFailed {
        failure: String,
    },
    Refusing {
        refusal: String,
    },
    DiskLow {
        available_bytes: u64,
        needed_bytes: u64,
    },
    Notice {
        notice: String,
    },
    NothingBound {
        log: String,
    },
    Removing {
        function: Name,
    },
    Removed,
    DefinitionDamaged {
        function: Name,
        error: String,
    },
    BoundLogMissing {
        function: Name,
        log: String,
    },
    NeverBound {
        function: Name,
    },
    Stopped {
        function: Name,
        error: String,
        retry_in_ms: u64,
    },
    Idle {
        function: Name,
        done: u64,
    },
    DeadLetters {
        function: Name,
        log: String,
        records: u64,
        given_up: u64,
        gone: u64,
        retried: u64,
        waiting: u64,
    },
    Running {
        function: Name,
        run: String,
        attempt: u32,
        for_ms: u64,
    },
    BackingOff {
        function: Name,
        run: String,
        attempt: u32,
        error: String,
        retry_in_ms: u64,
    },
    MonitorHeld {
        monitor: Name,
        function: Name,
        run: String,
        for_ms: u64,
    },
    Ordered {
        behind: String,
    },
    ConcurrencyFull {
        concurrency: u32,
    },
    Queued {
        function: Name,
        ahead: u64,
    },
    Pending {
        function: Name,
        pending: u64,
    },
    Busy {
        function: Name,
        pending: u64,
        pending_max: u64,
    },
    Starting {
        function: Name,
        pending: u64,
    },
    Uncounted {
        function: Name,
        counted: u64,
        found: u64,
    },
    Sandbox {
        summary: String,
        remedies: Vec<String>,
    },
    Done {
        run: String,
        at: String,
    },
    Cancelled {
        run: String,
        at: String,
    },
    Dead {
        run: String,
        at: String,
        code: String,
        error: String,
    },
    Link(LinkReason),
    LinkIdle {
        link: String,
    },
    OutboxDead {
        log: String,
        records: u64,
    },
    RepairOpen {
        repair: u64,
        phase: String,
        error: Option<String>,
        topics: Vec<String>,
    },
    AmendmentsWait {
        log: String,
        waiting: u64,
        count: u64,
        due_in_ms: u64,
        error: Option<String>,
    },
    AmendmentsDead {
        log: String,
        records: u64,
    },
    Cluster {
        problem: String,
    },
    OnDevice {
        function: Name,
        device: String,
        log: String,
        from: u64,
        records: u64,
    },
    /// A reason of another version.
    #[serde(untagged)]
    Other(Map<String, Value>),
}

/// A link that has something to carry, or something wrong with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // as above
pub struct LinkReason {
    pub kind: String,
    pub link: String,
    pub to: String,
    pub state: String,
    pub lag_records: u64,
    pub error: Option<String>,
    pub remedy: Option<String>,
}

/// `1 run of function 'f' is`, `2 runs of function 'f' are`.
fn runs_are(n: u64, function: &Name) -> String {
    format!("{} of function '{function}' {}", counted(n, "run"), if n == 1 { "is" } else { "are" })
}

/// Milliseconds for people.
fn shown(ms: u64) -> String {
    units::show_duration(Duration::from_millis(ms))
}

/// That a disk is nearly full, for people.
pub fn low_space(available_bytes: u64, needed_bytes: u64) -> String {
    let (available, needed) = (units::show_size(available_bytes), units::show_size(needed_bytes));
    format!(
        "the disk is nearly full: {available} are free, and the journal needs {needed}; free space, or keep less (`millrace log trim`, \
         `millrace log set --history`, `millrace log rm`, `millrace namespace set --retain-bytes`)"
    )
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoHost => write!(f, "no host is running; start one with `millrace serve` or `millrace dev`"),
            Self::HostFailed { failure } => write!(f, "the host stopped running functions: {failure}"),
            Self::Refusing { refusal } => {
                write!(f, "appends fail, so no run can start or end: {refusal}")
            }
            Self::DiskLow { available_bytes, needed_bytes } => f.write_str(&low_space(*available_bytes, *needed_bytes)),
            Self::Notice { notice } => f.write_str(notice),
            Self::NothingBound { log } => write!(f, "no function is bound to log '{log}'"),
            Self::Removing { function } => write!(f, "function '{function}' is being removed"),
            Self::Removed => write!(f, "the run's function was removed"),
            Self::DefinitionDamaged { function, error } => {
                write!(f, "the definition of function '{function}' cannot be read: {error}")
            }
            Self::BoundLogMissing { function, log } => {
                write!(f, "function '{function}' is bound to log '{log}', which does not exist")
            }
            Self::NeverBound { function } => {
                write!(f, "function '{function}' is bound to no log; it runs only for records that name it")
            }
            Self::Stopped { function, error, retry_in_ms } => {
                write!(
                    f,
                    "function '{function}' cannot be started; the next attempt is in {}: {error}",
                    shown(*retry_in_ms)
                )
            }
            Self::Idle { function, done } => {
                write!(f, "function '{function}' has no pending runs; {} ended", counted(*done, "run"))
            }
            Self::DeadLetters { function, log, records, given_up, gone, retried, waiting } => {
                write!(
                    f,
                    "{} of function '{function}' failed for good; log '{log}' has {}",
                    counted(*given_up, "run"),
                    counted(*records, "dead letter"),
                )?;
                if *gone > 0 {
                    write!(f, ", and {gone} have left its history")?;
                }
                if *retried > 0 {
                    write!(f, ", {retried} {} retried", if *retried == 1 { "was" } else { "were" })?;
                }
                match waiting {
                    0 => write!(f, "; no dead letter in the log is left to retry"),
                    _ => write!(f, "; see `millrace log tail {log}` and `millrace run retry --function {function}`"),
                }
            }
            Self::Running { function, run, attempt, for_ms } => {
                let time = shown(*for_ms);
                write!(f, "function '{function}' is running: run {run}, attempt {attempt}, for {time}")
            }
            Self::BackingOff { function, run, attempt, error, retry_in_ms } => write!(
                f,
                "run {run} of function '{function}' is retried in {}; attempt {attempt} failed: {error}",
                shown(*retry_in_ms)
            ),
            Self::MonitorHeld { monitor, function, run, for_ms } => {
                write!(f, "monitor '{monitor}' is held by run {run} of function '{function}', for {}", shown(*for_ms))
            }
            Self::Ordered { behind } => write!(f, "runs are executed in order, and run {behind} comes first"),
            Self::ConcurrencyFull { concurrency } => write!(f, "the maximum number of runs ({concurrency}) is running"),
            Self::Queued { function, ahead } => write!(f, "{} pending before it", runs_are(*ahead, function)),
            Self::Pending { function, pending } => write!(f, "{} pending", runs_are(*pending, function)),
            Self::Busy { function, pending, pending_max } => write!(
                f,
                "appends are refused: {pending} runs of function '{function}' are pending, and its pending_max is {pending_max}"
            ),
            Self::Starting { function, pending } => {
                write!(f, "function '{function}' is not blocked; ")?;
                match pending {
                    1 => write!(f, "its pending run will start as soon as a worker is ready"),
                    _ => write!(f, "its {pending} pending runs will start one after the other"),
                }
            }
            Self::Uncounted { function, counted, found } => write!(
                f,
                "{counted} runs of function '{function}' are counted as pending, but the journal has {found}: the others are damaged. \
                 When a host starts, they become dead letters; `millrace namespace check` lists the damage"
            ),
            Self::Sandbox { summary, remedies } => {
                write!(f, "functions are not fully isolated: sandbox {summary}")?;
                remedies.iter().try_for_each(|remedy| write!(f, "; {remedy}"))
            }
            Self::Done { run, .. } => write!(f, "run {run} succeeded"),
            Self::Cancelled { run, .. } => write!(f, "run {run} was cancelled"),
            Self::Dead { run, code, error, .. } => write!(f, "run {run} failed for good: {code}: {error}"),
            Self::Link(LinkReason { kind, link, to, state, lag_records, error, remedy }) => {
                write!(f, "{kind} '{link}' to {to} is {state}; waiting records: {lag_records}")?;
                error.as_ref().map_or(Ok(()), |error| write!(f, "; {error}"))?;
                remedy.as_ref().map_or(Ok(()), |remedy| write!(f, ". {remedy}"))
            }
            Self::LinkIdle { link } => write!(f, "link '{link}' has nothing to forward"),
            Self::OutboxDead { log, records } => write!(
                f,
                "peers permanently refused messages: log '{log}' has {records}; `millrace log tail {log}` shows why, and \
                 `millrace outbox retry PEER` sends them again"
            ),
            Self::RepairOpen { repair, phase, error, topics } => {
                write!(f, "repair {repair} is {phase}")?;
                error.as_ref().map_or(Ok(()), |error| write!(f, ": {error}"))?;
                if !topics.is_empty() {
                    write!(f, "; these topics keep their old records: {}", topics.join(", "))?;
                }
                write!(f, "; see `millrace repair show {repair}`")
            }
            Self::AmendmentsWait { log, waiting, count, due_in_ms, error } => {
                write!(f, "{waiting} of {count} amendments of log '{log}' wait")?;
                match (error, due_in_ms) {
                    (Some(error), _) => {
                        write!(f, "; the last repair of them stopped, and the host tries again: {error}")
                    }
                    (None, 0) => write!(f, " for a host, or for the end of the open repair"),
                    (None, due_in_ms) => write!(f, "; they become a repair within {}", shown(*due_in_ms)),
                }
            }
            Self::AmendmentsDead { log, records } => write!(
                f,
                "amendments could not be applied: log '{log}' has {records}; `millrace log tail {log}` shows why"
            ),
            Self::Cluster { problem } => f.write_str(problem),
            Self::OnDevice { function, device, log, from, records } => write!(
                f,
                "function '{function}' has not run for {} of log '{log}', from {from} on: it runs on device {device}, which sends its runs when \
                 they have ended",
                counted(*records, "record"),
            ),
            Self::Other(fields) => write!(f, "{}", Value::from(fields.clone())),
        }
    }
}
