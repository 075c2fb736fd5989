//! Histories of what programs asked of a cluster and were answered, and the check that one order explains them.

use crate::{Ended, end};
use serde_json::{Value, json};
use std::{
    collections::hash_map::DefaultHasher,
    fs,
    hash::{Hash, Hasher},
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, OnceLock, PoisonError},
    time::Instant,
};

/// The operations of programs, in any order. See `tests/porcupine` for its format.
pub struct History {
    began: Instant,
    lines: Mutex<Vec<Value>>,
}

impl Default for History {
    fn default() -> Self {
        Self::new()
    }
}

impl History {
    /// Nothing yet.
    pub fn new() -> Self {
        Self { began: Instant::now(), lines: Mutex::default() }
    }

    /// Now, as histories say it.
    pub fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).expect("a test ends within 500 years")
    }

    /// Adds an operation that was called at `call` and answered now; without an output it was given up and may take place at any later time.
    pub fn note(
        &self,
        client: u64,
        (kind, key): (&str, &str),
        (op, input): (&str, Value),
        call: u64,
        output: Option<Value>,
    ) {
        let answered = output.is_some().then(|| self.now());
        let line = json!({
            "client": client, "kind": kind, "key": key, "op": op, "input": input, "output": output, "call": call, "return": answered,
        });
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    /// The operations so far.
    pub fn lines(&self) -> Vec<Value> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has these histories checked; of a failure, the histories stay where the message says.
    #[track_caller]
    pub fn is_linearizable(&self) {
        if let Err(refused) = check(&self.lines()) {
            let kept = tempfile::Builder::new().prefix("history-").tempdir().expect("a temporary directory").keep();
            let text: String = self.lines().iter().map(|line| format!("{line}\n")).collect();
            fs::write(kept.join("history.jsonl"), text).expect("the history is written");
            panic!("{refused}; the history is {}", kept.join("history.jsonl").display());
        }
    }
}

/// Whether one order explains these operations; otherwise what the checker says. An invalid history fails the test.
#[track_caller]
pub fn check(lines: &[Value]) -> Result<(), String> {
    let place = tempfile::tempdir().expect("a temporary directory");
    let file = place.path().join("history.jsonl");
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::write(&file, text).expect("the history is written");
    let mut command = Command::new(checker());
    command.arg(&file);
    match end(command, b"") {
        Ended { code: 0, .. } => Ok(()),
        Ended { code: 1, stdout, .. } => Err(String::from_utf8_lossy(&stdout).trim().to_owned()),
        ended => panic!("the history is not checked: {ended:?}"),
    }
}

/// The checker, which Go makes of `tests/porcupine`: compiled by the first test that asks for it and kept in `target/go`.
#[track_caller]
fn checker() -> &'static Path {
    static CHECKER: OnceLock<PathBuf> = OnceLock::new();
    CHECKER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("porcupine");
        let mut hasher = DefaultHasher::new();
        for name in ["go.mod", "go.sum", "main.go", "models.go"] {
            fs::read(folder.join(name)).expect("the source can be read").hash(&mut hasher);
        }
        let test = std::env::current_exe().expect("the test has a path");
        let target = test.ancestors().nth(3).expect("target/<profile>/deps/<test>").join("go");
        let program = target.join(format!("porcupine-{:016x}", hasher.finish()));
        if !program.exists() {
            // Several processes may compile the same: the last to end gives the name.
            fs::create_dir_all(&target).expect("target can be written");
            let work = tempfile::tempdir_in(&target).expect("target can be written");
            let made = work.path().join("porcupine");
            let mut command = Command::new("go");
            command.args(["build", "-mod=readonly", "-buildvcs=false", "-o"]).arg(&made).arg(".").current_dir(folder);
            let Ended { code, stderr, .. } = end(command, b"");
            assert_eq!(
                code, 0,
                "the checker is not compiled; `scripts/setup.sh test` installs what it needs: {stderr}"
            );
            fs::rename(&made, &program).expect("it is kept");
        }
        program
    })
}
