//! Python functions, with the machine's own python3.

mod common;

use common::{ends, failed, failure, impatient, limits, no_env, patiently, printed, run, run_one};
use millrace_runtime::{Code, Limits, Outcome, PythonExecutor, PythonFunction, PythonSpec};
use std::{fs, os::unix::process::CommandExt, process::Command, sync::Arc, thread};
use tempfile::TempDir;

struct Fixture {
    dir: TempDir,
}

/// A directory with `functions.py`.
fn functions(source: &str) -> Fixture {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("functions.py"), source).unwrap();
    Fixture { dir }
}

impl Fixture {
    fn spec(&self, function: &str) -> PythonSpec {
        PythonSpec {
            python: "python3".into(),
            dir: self.dir.path().to_owned(),
            module: "functions".into(),
            function: function.into(),
            env: no_env(),
            scratch: None,
        }
    }

    fn executor(&self, function: &str, limits: Limits) -> PythonExecutor {
        PythonExecutor::new(self.spec(function), limits)
    }
}

/// An executor of `def f(record, ctx)` with this body.
fn function(body: &str, limits: Limits) -> (PythonExecutor, Fixture) {
    let indented: String = body.lines().map(|line| format!("    {line}\n")).collect();
    let fixture = functions(&format!("import os, sys, time\ndef f(record, ctx):\n{indented}"));
    (fixture.executor("f", limits), fixture)
}

#[test]
fn a_function_sees_its_record_and_appends() {
    let (mut executor, _dir) = function(
        "ctx.append('out/bytes', record.data)\n\
         ctx.append('out/text', f'{record.log} {record.seqno} {ctx.run} {ctx.cause == ctx.run} {ctx.attempt}')\n\
         ctx.append('out/json', {'twice': record.json()['n'] * 2})",
        limits(),
    );
    let (completion, appended) = run(&mut executor, &[br#"{"n": 21}"#]).remove(0);
    assert_eq!(completion.outcome, Outcome::Done);
    let expected: [(&str, &[u8]); 3] = [
        ("out/bytes", br#"{"n": 21}"#),
        ("out/text", b"raw/kitchen 1 abcdef012345-7-2aa0 True 1"),
        ("out/json", br#"{"twice":42}"#),
    ];
    assert_eq!(appended, expected.map(|(log, payload)| (log.to_owned(), payload.to_vec())));
}

#[test]
fn calls_are_answered_while_later_runs_are_already_under_way() {
    let (mut executor, _dir) = function(
        "last = ctx.latest('history')\n\
         ctx.append('out', ctx.get('history', last).data + record.data)\n\
         assert len(ctx.get('big', 1).data) == 5 << 20\n\
         assert ctx.now() == 1700000000.1234568, ctx.now()\n\
         assert ctx.random(3) == bytes([0, 1, 2])",
        limits(),
    );
    let records: Vec<Vec<u8>> = (0..40u8).map(|i| vec![i; 20_000]).collect();
    let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
    for (i, (completion, appended)) in run(&mut executor, &records).into_iter().enumerate() {
        assert_eq!(completion.outcome, Outcome::Done, "{i}");
        assert_eq!(appended, [("out".to_owned(), [b"three", records[i]].concat())]);
    }
}

#[test]
fn both_directions_may_be_full_at_once() {
    let (mut executor, _dir) = function("for i in range(30): ctx.append('out', record.data)", limits());
    let records = vec![&[7u8; 100_000][..]; 20];
    for (completion, appended) in run(&mut executor, &records) {
        assert_eq!(completion.outcome, Outcome::Done);
        assert!(appended.len() == 30 && appended.iter().all(|(_, payload)| payload == records[0]));
    }
}

#[test]
fn threads_of_a_function_may_append_ask_and_print() {
    let (mut executor, _dir) = function(
        "import threading\n\
         def work(i):\n  for k in range(50):\n    ctx.append('out', ctx.get('history', 1).data)\n    print('x' * 99)\n\
         threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]\n\
         for t in threads: t.start()\n\
         for t in threads: t.join()",
        limits(),
    );
    for (completion, appended) in run(&mut executor, &[b"1", b"2", b"3"]) {
        assert_eq!(completion.outcome, Outcome::Done);
        assert_eq!(appended, vec![("out".to_owned(), b"one".to_vec()); 200]);
        assert_eq!(printed(&completion).len(), 200 * 100);
    }
}

#[test]
fn a_refused_get_is_an_exception_with_a_code_and_a_refused_append_fails_the_run() {
    let (mut executor, _dir) = function(
        "import millrace\n\
         try: ctx.get('history', 9)\n\
         except millrace.Error as error: ctx.append('out', error.code)\n\
         if record.data: ctx.append('refused/x', 'y')",
        limits(),
    );
    let done = run(&mut executor, &[b"", b"x", b""]);
    assert_eq!(done[0].0.outcome, Outcome::Done);
    assert_eq!(done[0].1, [("out".to_owned(), b"MR2105".to_vec())]);
    assert_eq!(failed(&done[1].0).0, Code::LogNotFound);
    assert_eq!(done[2].0.outcome, Outcome::Done);
}

#[test]
fn what_is_raised_is_the_error_and_the_worker_goes_on() {
    let source = "def f(record, ctx):\n    helper(record)\n\ndef helper(record):\n    raise ValueError('bad ' + record.text())\n";
    let fixture = functions(source);
    let done = run(&mut fixture.executor("f", limits()), &[b"milk", b"eggs"]);
    for ((completion, _), food) in done.iter().zip(["milk", "eggs"]) {
        let (code, detail) = failed(completion);
        assert_eq!(code, Code::PythonRaised);
        assert!(detail.starts_with(&format!("ValueError: bad {food}\n")), "{detail}");
        assert!(detail.contains("line 5, in helper") && !detail.contains("_worker.py"), "{detail}");
    }
    let huge = "class E(Exception):\n  def __str__(self): return 'x' * 10**7\nraise E()";
    assert!(failure(&mut function(huge, limits()).0, b"").1.len() < 9000);
    let hostile = "class E(Exception):\n  def __str__(self): sys.exit(1)\nraise E()";
    assert_eq!(failure(&mut function(hostile, limits()).0, b"").0, Code::PythonRaised);
    let (code, detail) = failure(&mut function("sys.exit(3)", limits()).0, b"");
    assert!(code == Code::PythonRaised && detail.starts_with("the function called sys.exit(3)"), "{detail}");
    assert_eq!(failure(&mut function("def r(): r()\nr()", limits()).0, b"").0, Code::PythonRaised);
}

/// The second of four runs ends the worker; the batch after finds a fresh one.
#[track_caller]
fn ends_the_worker(body: &str, limits: Limits, code: Code, says: &str) {
    try_to_end_the_worker(body, limits, code, says).unwrap();
}

/// The same, told instead of asserted when a machine that is too slow for the limits may be why.
fn try_to_end_the_worker(body: &str, limits: Limits, code: Code, says: &str) -> Result<(), String> {
    let (mut executor, _dir) =
        function(&format!("if record.data == b'x':\n{body}\nctx.append('out', record.data)"), limits);
    let done = run(&mut executor, &[b"1", b"x", b"3", b"4"]);
    if done[0].0.outcome != Outcome::Done {
        return Err(format!("the run before: {:?}", done[0].0.outcome));
    }
    let (found, detail) = failed(&done[1].0);
    assert_eq!(found, code, "{detail}");
    if !detail.contains(says) {
        return Err(detail);
    }
    for (completion, appended) in &done[2..] {
        assert_eq!((&completion.outcome, appended.len()), (&Outcome::NotStarted, 0));
    }
    let again = run(&mut executor, &[b"3", b"4"]);
    match again.iter().all(|(completion, appended)| completion.outcome == Outcome::Done && appended.len() == 1) {
        true => Ok(()),
        false => Err(format!("the runs after: {again:?}")),
    }
}

#[test]
fn a_worker_that_ends_in_the_middle_fails_that_run_only() {
    ends_the_worker(
        " print('last words')\n os._exit(7)",
        limits(),
        Code::WorkerDied,
        "exited with status 7; it printed last:\nlast words",
    );
    ends_the_worker(" os.kill(os.getpid(), 11)", limits(), Code::WorkerDied, "signal 11");
    ends_the_worker(" os.close(3)\n time.sleep(60)", limits(), Code::WorkerDied, "closed its frame channel");
}

#[test]
fn a_run_that_never_returns_is_killed_with_what_it_started() {
    patiently(|limits| {
        let says = format!("after {} ms; it printed last:\nthinking", limits.timeout.as_millis());
        try_to_end_the_worker(" print('thinking')\n while True: pass", limits, Code::RunTimeout, &says)
    });
    let dir = TempDir::new().unwrap();
    let pid = dir.path().join("pid");
    let body = format!(
        " import subprocess\n p = subprocess.Popen(['sleep', '600'])\n open({pid:?}, 'w').write(str(p.pid))\n \
         print('started')\n p.wait()"
    );
    patiently(|limits| try_to_end_the_worker(&body, limits, Code::RunTimeout, "started"));
    ends(&fs::read_to_string(&pid).unwrap());
}

#[test]
fn bytes_on_the_frame_channel_are_a_protocol_error() {
    ends_the_worker(" os.write(3, b'Hello, world, hello, world')", limits(), Code::WorkerProtocol, "Hello, world");
    // A well-formed DONE of another run.
    ends_the_worker(
        " import struct\n os.write(3, struct.pack('<IBBHII', 0, 19, 0, 0, 99, 0))",
        limits(),
        Code::WorkerProtocol,
        "Done of work 99",
    );
}

#[test]
fn printing_is_the_right_runs_and_bounded() {
    let (mut executor, _dir) =
        function("print('run', record.text())\nprint('no newline', file=sys.stderr, end='')", limits());
    for ((completion, _), name) in run(&mut executor, &[b"a", b"b", b"c"]).iter().zip(["a", "b", "c"]) {
        assert_eq!(printed(completion), format!("run {name}\nno newline"));
    }
    let bounded = Limits { output_max_bytes: 1000, ..impatient() };
    for body in ["while True: print('spam')", "while True: os.write(1, b'spam' * 1000)"] {
        patiently(|Limits { timeout, .. }| {
            let completion = run_one(&mut function(body, Limits { timeout, ..bounded }).0, b"");
            assert_eq!(failed(&completion).0, Code::RunTimeout, "{body}");
            assert!(completion.output.len() <= 1000, "{body}");
            if completion.output.starts_with(b"spam") { Ok(()) } else { Err("it printed nothing".into()) }
        });
    }
    let closed = function("sys.stdout.close()", limits());
    let mut executor = closed.0;
    assert_eq!(run_one(&mut executor, b"").outcome, Outcome::Done);
    assert_eq!(run_one(&mut executor, b"").outcome, Outcome::Done);
}

#[test]
fn a_forked_child_cannot_speak_for_the_run() {
    let (mut executor, _dir) = function(
        "pid = os.fork()\n\
         if pid == 0:\n  try: ctx.append('out', 'child')\n  except RuntimeError: os.write(1, b'child was refused')\n  return\n\
         os.waitpid(pid, 0)\n\
         ctx.append('out', 'parent')",
        limits(),
    );
    // Of runs in one batch it is not certain which of them wrote to the pipe itself.
    for record in [b"1", b"2"] {
        let (completion, appended) = run(&mut executor, &[record]).remove(0);
        assert_eq!(completion.outcome, Outcome::Done);
        assert_eq!(appended, [("out".to_owned(), b"parent".to_vec())]);
        assert!(printed(&completion).contains("child was refused"), "{}", printed(&completion));
    }
}

#[test]
fn memory_is_bounded() {
    let small = Limits { memory_max_bytes: 64 << 20, ..limits() };
    let (mut executor, _dir) = function("if record.data: x = bytearray(200 << 20)", small);
    let done = run(&mut executor, &[b"x", b""]);
    assert_eq!(failed(&done[0].0).0, Code::MemoryExceeded);
    assert_eq!(done[1].0.outcome, Outcome::Done);
}

#[test]
fn appending_without_end_fails_the_run() {
    let bounded = Limits { append_max_bytes: 100_000, ..limits() };
    let (mut executor, _dir) = function("for i in range(1000): ctx.append('out', bytes(1000))", bounded);
    let (completion, appended) = run(&mut executor, &[b""]).remove(0);
    assert_eq!((failed(&completion).0, appended.len()), (Code::AppendTooMuch, 100));
}

#[test]
fn a_context_kept_beyond_its_run_is_refused() {
    let fixture = functions("kept = []\ndef f(record, ctx):\n    kept.append(ctx)\n    kept[0].append('out', 'x')\n");
    let done = run(&mut fixture.executor("f", limits()), &[b"", b""]);
    assert_eq!(done[0].0.outcome, Outcome::Done);
    let (code, detail) = failed(&done[1].0);
    assert!(code == Code::PythonRaised && detail.contains("the run is over") && done[1].1.is_empty(), "{detail}");
}

#[test]
fn handlers_that_cannot_work_are_refused_at_deployment_and_at_the_first_run() {
    let fixture = functions("x = 3\ndef one(record): pass\nasync def later(record, ctx): pass\n");
    let missing = Fixture { dir: TempDir::new().unwrap() };
    let broken = functions("print('before')\nimport no_such_package\n");
    let exits = functions("import os\nos._exit(5)\n");
    for (fixture, function, code, says) in [
        (&fixture, "nothing", Code::PythonHandlerMissing, "has no 'nothing'"),
        (&fixture, "x", Code::PythonHandlerInvalid, "is a int"),
        (&fixture, "one", Code::PythonHandlerInvalid, "cannot take (record, ctx)"),
        (&fixture, "later", Code::PythonHandlerInvalid, "coroutine"),
        (&missing, "f", Code::PythonImport, "No module named 'functions'"),
        (&broken, "f", Code::PythonImport, "No module named 'no_such_package'"),
        (&exits, "f", Code::PythonImport, "exited with status 5"),
    ] {
        let error = fixture.spec(function).validate(limits(), &mut |_| ()).unwrap_err();
        assert!(error.code() == code && error.detail().contains(says), "{error}");
        let mut executor = fixture.executor(function, limits());
        let done = run(&mut executor, &[b"", b""]);
        assert_eq!(failed(&done[0].0).0, code);
        assert_eq!(done[1].0.outcome, Outcome::NotStarted);
    }
    let absent = PythonSpec { python: "/no/python3".into(), ..fixture.spec("one") };
    assert_eq!(absent.validate(limits(), &mut |_| ()).unwrap_err().code(), Code::PythonUnusable);
    let other = PythonSpec { python: "/bin/true".into(), ..fixture.spec("one") };
    assert!(matches!(
        other.validate(limits(), &mut |_| ()).unwrap_err().code(),
        Code::PythonUnusable | Code::PythonImport
    ));
}

#[test]
fn a_module_named_like_the_standard_librarys_does_not_break_the_worker() {
    let fixture = functions(
        "def f(record, ctx):\n    ctx.append('out', os_name())\ndef os_name():\n    import os\n    return os.name\n",
    );
    for name in ["socket.py", "json.py", "struct.py", "types.py"] {
        fs::write(fixture.dir.path().join(name), "raise Exception('shadow')\n").unwrap();
    }
    assert_eq!(run_one(&mut fixture.executor("f", limits()), b"").outcome, Outcome::Done);
    let written: Vec<_> = fs::read_dir(fixture.dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!written.iter().any(|name| name == "__pycache__"), "deployed code stays as it was");
}

#[test]
fn the_environment_is_scrubbed_and_the_functions_own() {
    let body = "ctx.append('out', sorted(k for k in os.environ if k.startswith(('CARGO', 'RUST', 'MY'))))";
    let fixture = functions(&format!("import os\ndef f(record, ctx):\n    {body}\n"));
    let spec = PythonSpec { env: [("MY_KEY".to_owned(), "v".to_owned())].into(), ..fixture.spec("f") };
    let (completion, appended) = run(&mut PythonExecutor::new(spec, limits()), &[b""]).remove(0);
    assert_eq!(completion.outcome, Outcome::Done);
    assert_eq!(appended[0].1, br#"["MY_KEY"]"#);
}

#[test]
fn executors_of_a_function_share_a_zygote_and_outlive_the_threads_that_started_them() {
    let fixture = functions(
        "import os\nimported_by = os.getpid()\ndef f(record, ctx):\n    ctx.append('out', [imported_by, os.getpid()])\n",
    );
    let function = PythonFunction::new(fixture.spec("f"), limits());
    let pids: Vec<(Vec<u8>, PythonExecutor)> = (0..2)
        .map(|_| {
            let function = Arc::clone(&function);
            let started = thread::spawn(move || {
                let mut executor = PythonExecutor::of(function);
                (run(&mut executor, &[b""]).remove(0).1.remove(0).1, executor)
            });
            started.join().unwrap()
        })
        .collect();
    let zygote = |pids: &[u8]| pids.split(|byte| *byte == b',').next().unwrap().to_vec();
    assert_eq!(zygote(&pids[0].0), zygote(&pids[1].0));
    assert_ne!(pids[0].0, pids[1].0);
    for (first, mut executor) in pids {
        assert_eq!(run(&mut executor, &[b""]).remove(0).1.remove(0).1, first, "the same worker goes on");
    }
}

#[test]
fn a_killed_zygote_is_replaced() {
    let fixture = functions(
        "import os\nzygote = os.getpid()\ndef f(record, ctx):\n    if record.data: os.kill(zygote, 9)\n    if record.data: os.kill(os.getpid(), 9)\n",
    );
    let mut executor = fixture.executor("f", limits());
    assert_eq!(run_one(&mut executor, b"").outcome, Outcome::Done);
    assert_eq!(failure(&mut executor, b"x").0, Code::WorkerDied);
    assert_eq!(run_one(&mut executor, b"").outcome, Outcome::Done);
}

#[test]
fn a_zygote_that_reports_false_process_ids_gets_no_process_killed() {
    let mut bystander = Command::new("sleep").arg("600").process_group(0).spawn().unwrap();
    let fixture = functions(&format!(
        "import os\nfork = os.fork\nos.fork = lambda: fork() and {}\ndef f(record, ctx):\n    ctx.append('out', [os.getpid()])\n",
        bystander.id()
    ));
    let mut executor = fixture.executor("f", limits());
    let (completion, appended) = run(&mut executor, &[b""]).remove(0);
    assert_eq!(completion.outcome, Outcome::Done);
    let worker = String::from_utf8_lossy(&appended[0].1).trim_matches(['[', ']']).to_owned();
    drop(executor);
    assert!(bystander.try_wait().unwrap().is_none(), "a function had somebody else's process killed");
    ends(&worker);
    bystander.kill().unwrap();
    bystander.wait().unwrap();
}
