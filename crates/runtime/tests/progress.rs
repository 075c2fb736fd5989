//! Whoever follows a batch is woken while a run is in progress, and may take back what has not begun.

mod common;

use common::{Host, RUN, limits, no_env, worker};
use millrace_runtime::{
    Completion, EventId, Executor, Invocation, Limits, Outcome, ProcessExecutor, Progress, PythonExecutor, PythonSpec,
    Rest, Run, WasmEngine, WasmExecutor,
};
use std::{
    cell::Cell,
    fs,
    path::{Path, PathBuf},
    rc::Rc,
    time::Instant,
};
use tempfile::TempDir;

/// Wants to be woken once the first run has ended and the second is in progress, then makes `flag` and sets `woken`.
struct Follower {
    ends: Vec<Outcome>,
    woken: Rc<Cell<bool>>,
    flag: PathBuf,
    rest: Rest,
    /// How many runs had ended when the executor said that all had.
    over: Vec<usize>,
}

impl Progress for Follower {
    fn ended(&mut self, run: usize, completion: Completion) {
        assert_eq!(run, self.ends.len(), "reported out of order");
        self.ends.push(completion.outcome);
    }

    fn wake_at(&self) -> Option<Instant> {
        (self.ends.len() == 1 && !self.woken.get()).then(Instant::now)
    }

    fn wake(&mut self) -> Rest {
        self.woken.set(true);
        fs::write(&self.flag, "").unwrap();
        self.rest
    }

    fn over(&mut self) {
        self.over.push(self.ends.len());
    }
}

/// Runs three records, of which the second takes until the follower was woken. Says how they ended.
fn follow(executor: &mut dyn Executor, flag: &Path, rest: Rest) -> Vec<Outcome> {
    followed(executor, flag, rest).ends
}

fn followed(executor: &mut dyn Executor, flag: &Path, rest: Rest) -> Follower {
    let woken = Rc::new(Cell::new(false));
    let mut hosts = [(); 3].map(|()| Waiting(woken.clone()));
    let mut batch: Vec<Run<'_>> = hosts
        .iter_mut()
        .zip([&b"a"[..], b"slow", b"c"])
        .map(|(host, payload)| {
            let run = EventId::from_bits(RUN);
            Run {
                invocation: Invocation { log: "in", seqno: 1, payload, run, attempt: 1, streamed: false },
                logs: host,
                objects: None,
            }
        })
        .collect();
    let mut follower = Follower { ends: Vec::new(), woken, flag: flag.to_owned(), rest, over: Vec::new() };
    executor.run(&mut batch, &mut follower);
    assert!(follower.woken.get());
    follower
}

/// A namespace whose log `woken` has a record once the follower was woken.
struct Waiting(Rc<Cell<bool>>);

impl millrace_runtime::LogCalls for Waiting {
    fn append(&mut self, _: &str, _: &[u8]) -> millrace_runtime::Result<Option<u64>> {
        Ok(None)
    }
    fn get(&mut self, _: &str, _: u64) -> millrace_runtime::Result<Vec<u8>> {
        Ok(Vec::new())
    }
    fn latest(&mut self, _: &str) -> millrace_runtime::Result<u64> {
        Ok(self.0.get().into())
    }
    fn now_ns(&mut self) -> u64 {
        0
    }
    fn random(&mut self, _: &mut [u8]) {}
}

const DONE: Outcome = Outcome::Done;
const LEFT: Outcome = Outcome::NotStarted;

#[test]
fn a_worker_is_left_what_it_has_not_begun() {
    let body = |dir: &Path| {
        let (flag, pids) = (dir.join("flag"), dir.join("pids"));
        format!(
            "open('{}', 'a').write(f'{{os.getpid()}} {{payload}} ')\n\
             while payload == b'slow' and not os.path.exists('{}'): time.sleep(0.001)\n\
             frame(19)",
            pids.display(),
            flag.display()
        )
    };
    let notes = TempDir::new().unwrap();
    let flag = notes.path().join("flag");
    let (mut executor, _dir): (ProcessExecutor, _) = worker(&body(notes.path()), limits());
    assert_eq!(follow(&mut executor, &flag, Rest::Run), [DONE, DONE, DONE]);
    fs::remove_file(&flag).unwrap();
    assert_eq!(follow(&mut executor, &flag, Rest::Leave), [DONE, DONE, LEFT]);
    fs::remove_file(&flag).unwrap();
    // It had the third record already, so it is not the worker that goes on.
    fs::remove_file(notes.path().join("pids")).unwrap();
    assert_eq!(follow(&mut executor, &flag, Rest::Run), [DONE, DONE, DONE]);
    let noted = fs::read_to_string(notes.path().join("pids")).unwrap();
    let words: Vec<&str> = noted.split_whitespace().collect();
    let (pids, payloads): (Vec<&str>, Vec<&str>) = words.chunks(2).map(|pair| (pair[0], pair[1])).unzip();
    assert_eq!(payloads, ["b'a'", "b'slow'", "b'c'"], "a record that was taken back was run nevertheless");
    assert!(pids.iter().all(|pid| *pid == pids[0]), "{pids:?}");
}

#[test]
fn a_module_that_loops_lets_its_follower_wake() {
    let text = r#"(module
        (import "millrace" "record" (func $record (param i32 i32) (result i32)))
        (import "millrace" "latest" (func $latest (param i32 i32) (result i64)))
        (memory (export "memory") 1)
        (data (i32.const 0) "woken")
        (func (export "handle") (result i32)
            (if (i32.eq (call $record (i32.const 8) (i32.const 8)) (i32.const 4))
                (then (loop $l (br_if $l (i64.eqz (call $latest (i32.const 0) (i32.const 5)))))))
            (i32.const 0)))"#;
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("f.wasm");
    fs::write(&path, wat::parse_str(text).unwrap()).unwrap();
    let function = WasmEngine::new().unwrap().load(&path, &dir.path().join("cache"), "handle").unwrap();
    let mut executor = WasmExecutor::new(function, limits());
    let flag = dir.path().join("flag");
    for (rest, ends) in [(Rest::Run, [DONE, DONE, DONE]), (Rest::Leave, [DONE, DONE, LEFT])] {
        let follower = followed(&mut executor, &flag, rest);
        assert_eq!(follower.ends, ends);
        assert_eq!(follower.over, [3], "what ended waits for the memory of its instance to be cleared");
    }
}

#[test]
fn a_worker_cannot_say_of_a_run_that_it_could_not_start() {
    for code in [3003, 3113, 3114, 3115, 3116, 3117, 3118, 3119, 3120, 3125] {
        let (mut executor, _dir) = worker(&format!("frame(19, 0, b'MR{code}', b'why')"), limits());
        let mut outcomes = Vec::new();
        let invocation =
            Invocation { log: "in", seqno: 1, payload: b"", run: EventId::from_bits(RUN), attempt: 1, streamed: false };
        executor.run(
            &mut [Run { invocation, logs: &mut Host::default(), objects: None }],
            &mut |_: usize, completion: Completion| outcomes.push(completion.outcome),
        );
        assert!(matches!(outcomes[..], [Outcome::Failed(_)]), "{outcomes:?}");
    }
}

#[test]
fn a_worker_writes_into_a_directory_of_its_own_that_vanishes_with_it() {
    let (dir, scratch) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let source = "import os\ndata = open('data').read()\ndef f(record, ctx):\n    \
                  open('made', 'a').write('x')\n    \
                  ctx.append('out', os.getcwd() + ' ' + open('data').read() + data + open('made').read())\n";
    fs::write(dir.path().join("functions.py"), source).unwrap();
    fs::write(dir.path().join("data"), "7").unwrap();
    let spec = PythonSpec {
        python: "python3".into(),
        dir: dir.path().to_owned(),
        module: "functions".into(),
        function: "f".into(),
        env: no_env(),
        scratch: Some(scratch.path().to_owned()),
    };
    let run = |executor: &mut PythonExecutor| {
        let (completion, appended) = common::run(executor, &[b""]).remove(0);
        assert_eq!(completion.outcome, Outcome::Done);
        String::from_utf8(appended[0].1.clone()).unwrap()
    };
    let mut executor = PythonExecutor::new(spec, limits());
    let first = run(&mut executor);
    let (place, seen) = first.split_once(' ').unwrap();
    assert_eq!(seen, "77x");
    assert_eq!(run(&mut executor), format!("{place} 77xx"), "a worker keeps its directory");
    assert!(Path::new(place).starts_with(scratch.path().canonicalize().unwrap()));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "something was written beside the code");
    drop(executor);
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0, "a directory outlived its worker");
}

#[test]
fn a_process_per_record_has_a_directory_of_its_own_each_time() {
    let (dir, scratch) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    common::script(
        dir.path(),
        "f.sh",
        "#!/bin/sh\necho x >> made\nprintf 'out\\t%s' \"$(cat made data | tr -d '\\n')\" >&3\n",
    );
    fs::write(dir.path().join("data"), "7").unwrap();
    let (command, base) = (vec!["sh".into(), "f.sh".into()], Some(scratch.path().to_owned()));
    let spec = millrace_runtime::ProcessSpec { command, dir: dir.path().to_owned(), env: no_env(), scratch: base };
    let mut executor = millrace_runtime::OneshotExecutor::new(spec, Limits::default());
    for (completion, appended) in common::run(&mut executor, &[b"1", b"2"]) {
        assert_eq!((completion.outcome, &*appended[0].1), (Outcome::Done, &b"x7"[..]));
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
}
