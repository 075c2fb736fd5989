//! Persistent processes that speak spec/protocol/worker.md, and the fate of all workers when their host dies.

mod common;

use common::{
    ends, failed, failure, hello, impatient, limits, no_env, printed, process, run, run_one, script, worker, worker_of,
};
use millrace_runtime::{Code, Outcome, ProcessExecutor, PythonExecutor, PythonSpec};
use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};
use tempfile::TempDir;

#[test]
fn any_program_that_speaks_the_protocol_is_a_function() {
    let (mut executor, _dir) =
        worker("frame(18, 0, b'out', payload)\nprint(payload, flush=True)\nframe(19, 0)", limits());
    for _ in 0..2 {
        for ((completion, appended), payload) in
            run(&mut executor, &[b"a", b"b", b"c"]).into_iter().zip([b"a", b"b", b"c"])
        {
            assert_eq!(completion.outcome, Outcome::Done);
            assert_eq!(appended, [("out".to_owned(), payload.to_vec())]);
        }
    }
    let completion = run_one(&mut executor, b"z");
    assert_eq!(printed(&completion), "b'z'\n");
}

#[test]
fn a_failure_has_the_code_that_the_worker_states_if_it_is_one_of_a_function() {
    for (stated, found) in [
        ("MR3109", Code::FunctionFailed),
        ("MR3108", Code::MemoryExceeded),
        ("MR2009", Code::FunctionFailed),
        ("MR3999", Code::FunctionFailed),
        ("nonsense", Code::FunctionFailed),
    ] {
        let (mut executor, _dir) = worker(&format!("frame(19, 0, b'{stated}', b'why')"), limits());
        assert_eq!(failure(&mut executor, b""), (found, "why".to_owned()), "{stated}");
    }
}

#[test]
fn what_is_not_allowed_on_the_channel_ends_the_worker() {
    for body in [
        "os.write(3, b'plain text is no frame')",
        "os.write(3, b'\\xff' * 16)",
        "frame(99, 0)",
        "frame(16, 1)",
        "frame(17, 3109)",
        "frame(19, 0, b'', b'', work + 1)",
        "frame(18, 0, b'\\xff\\xfe', b'')",
        "frame(20, 0, b'\\xff\\xfe', bytes(8))",
        "frame(20, 0, b'history', bytes(7))",
        "frame(23, 0, b'', bytes(3))",
        "frame(27)",
        "frame(28, 0, b'', bytes(8))",
        "frame(40, 0, b'', b'data')",
        "frame(22, 0, b'', b'', work + 1)",
    ] {
        let (mut executor, _dir) = worker(body, limits());
        let done = run(&mut executor, &[b"1", b"2"]);
        assert_eq!(failed(&done[0].0).0, Code::WorkerProtocol, "{body}");
        assert_eq!(done[1].0.outcome, Outcome::NotStarted, "{body}");
    }
}

#[test]
fn half_a_frame_and_silence_end_by_the_timeout_and_endless_frames_too() {
    for body in [
        "os.write(3, b'\\x10\\0\\0\\0')\ntime.sleep(600)",
        "while True: frame(24, 0, b'', b'spam')",
        "while True: frame(22, 0)",
    ] {
        let (mut executor, _dir) = worker(body, impatient());
        assert_eq!(failure(&mut executor, b"").0, Code::RunTimeout, "{body}");
    }
}

#[test]
fn too_many_random_bytes_are_refused() {
    let body = "frame(23, 0, b'', struct.pack('<I', 65537))\nframe(19, 0, b'MR3109', str(answer()[0]).encode())";
    assert_eq!(failure(&mut worker(body, limits()).0, b""), (Code::FunctionFailed, "3121".to_owned()));
}

#[test]
fn programs_that_do_not_speak_the_protocol_are_told_apart() {
    let dir = TempDir::new().unwrap();
    script(dir.path(), "ends", "#!/bin/sh\necho I am no worker\nexit 4\n");
    script(dir.path(), "talks", "#!/bin/sh\necho I think this is standard output >&3\nsleep 600\n");
    let (code, detail) = failure(&mut process(dir.path(), &["./ends"], limits()), b"");
    assert_eq!(
        (code, detail.as_str()),
        (Code::WorkerNotReady, "the process exited with status 4; it printed last:\nI am no worker")
    );
    assert_eq!(failure(&mut process(dir.path(), &["./talks"], limits()), b"").0, Code::WorkerProtocol);
    let (code, detail) = failure(&mut worker_of(&hello(7, 1), "pass", limits()).0, b"");
    assert!(code == Code::WorkerProtocol && detail.contains("version 7"), "{detail}");
    assert_eq!(failure(&mut process(dir.path(), &["./absent"], limits()), b"").0, Code::CommandUnusable);
}

#[test]
fn a_program_of_an_older_version_is_told_what_to_do() {
    for version in 1..=3 {
        // Its head has a number of 8 bytes and no work.
        let old = format!("os.write(3, struct.pack('<IBBHQI', 4, 16, 0, 0, {version}, 65536))");
        let (code, detail) = failure(&mut worker_of(&old, "pass", limits()).0, b"");
        assert!(code == Code::WorkerTooOld && detail.contains(&format!("version {version}")), "{detail}");
        assert!(code.remedy().contains("millrace.h"));
    }
}

#[test]
fn a_worker_that_ends_between_batches_is_replaced_without_a_failed_run() {
    let (mut executor, dir) = worker("frame(18, 0, b'out', str(os.getpid()).encode())\nframe(19, 0)", limits());
    let pid =
        |executor: &mut ProcessExecutor| String::from_utf8(run(executor, &[b""]).remove(0).1.remove(0).1).unwrap();
    let first = pid(&mut executor);
    assert_eq!(pid(&mut executor), first);
    assert!(Command::new("kill").args(["-9", &first]).status().unwrap().success());
    ends(&first);
    assert_ne!(pid(&mut executor), first);
    drop((executor, dir));
}

/// Not a test of its own: the host that `workers_die_with_their_host` kills.
fn host(dir: &Path) {
    let spec = PythonSpec {
        python: "python3".into(),
        dir: dir.to_owned(),
        module: "functions".into(),
        function: "f".into(),
        env: no_env(),
        scratch: None,
    };
    let mut python = PythonExecutor::new(spec, limits());
    let mut native = process(dir, &["python3", "process.py"], limits());
    thread::scope(|scope| {
        scope.spawn(|| run_one(&mut python, b""));
        scope.spawn(|| run_one(&mut native, b""));
    });
}

#[test]
fn workers_die_with_their_host() {
    if let Some(dir) = std::env::var_os("MILLRACE_TEST_HOST") {
        return host(Path::new(&dir));
    }
    let dir = TempDir::new().unwrap();
    let hang = "import os, time\ndef f(record, ctx):\n    open('python', 'w').write(f'{os.getpid()} {os.getppid()}')\n    while True: pass\n";
    fs::write(dir.path().join("functions.py"), hang).unwrap();
    fs::write(
        dir.path().join("process.py"),
        "import os\nopen('process', 'w').write(str(os.getpid()))\nwhile True: pass\n",
    )
    .unwrap();
    let mut host = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "workers_die_with_their_host"])
        .env("MILLRACE_TEST_HOST", dir.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut pids = Vec::new();
    for _ in 0..12_000 {
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap_or_default();
        pids = format!("{} {}", read("python"), read("process")).split_whitespace().map(str::to_owned).collect();
        if pids.len() == 3 {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(pids.len(), 3, "zygote, worker and process run");
    host.kill().unwrap();
    host.wait().unwrap();
    for pid in pids {
        ends(&pid);
    }
}
