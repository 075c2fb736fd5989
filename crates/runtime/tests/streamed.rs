//! Streamed runs in every runtime: each append is answered, calls come in order, and a worker that does not keep to it
//! is found out.

mod common;

use common::{c_to_native, c_to_wasm, failed, impatient, limits, no_env, process, script, worker};
use millrace_runtime::{
    Code, Completion, EventId, Executor, Invocation, Limits, LogCalls, OneshotExecutor, Outcome, ProcessSpec,
    PythonExecutor, PythonSpec, Result, Run, WasmEngine, WasmExecutor,
};
use std::{
    fs,
    sync::{Arc, LazyLock},
};
use tempfile::TempDir;

static ENGINE: LazyLock<Arc<WasmEngine>> = LazyLock::new(|| WasmEngine::new().unwrap());

/// The seqno of the first append; each further one counts on.
const FIRST: u64 = 5_000_000_001;

/// Answers calls and writes them down. A log `refused` refuses; an append to `touch` makes the file that it names.
#[derive(Default)]
struct Script {
    calls: Vec<String>,
    appends: u64,
}

impl LogCalls for Script {
    fn append(&mut self, log: &str, payload: &[u8]) -> Result<Option<u64>> {
        let text = String::from_utf8_lossy(payload);
        self.calls.push(format!("append {log} {text}"));
        match log {
            "refused" => Err(Code::LogNotFound.error("no log 'refused'")),
            _ => {
                if log == "touch" {
                    fs::write(&*text, "").unwrap();
                }
                self.appends += 1;
                Ok(Some(FIRST - 1 + self.appends))
            }
        }
    }

    fn get(&mut self, log: &str, seqno: u64) -> Result<Vec<u8>> {
        self.calls.push(format!("get {log} {seqno}"));
        match log {
            "big" => Ok(vec![b'b'; 5 << 20]),
            _ => Ok(b"got".to_vec()),
        }
    }

    fn latest(&mut self, log: &str) -> Result<u64> {
        self.calls.push(format!("latest {log}"));
        Ok(7)
    }

    fn now_ns(&mut self) -> u64 {
        self.calls.push("now".into());
        1_000_000_000 * self.calls.len() as u64
    }

    fn random(&mut self, bytes: &mut [u8]) {
        self.calls.push(format!("random {}", bytes.len()));
        bytes.fill(b'a' + self.calls.len() as u8);
    }
}

/// Runs one record; how it ended, and the calls it made.
fn attempt(executor: &mut dyn Executor, streamed: bool, attempt: u32, record: &[u8]) -> (Completion, Vec<String>) {
    let mut host = Script::default();
    let run = EventId::from_bits(common::RUN);
    let invocation = Invocation { log: "in", seqno: 3, payload: record, run, attempt, streamed };
    let mut ends = Vec::new();
    executor.run(&mut [Run { invocation, logs: &mut host, objects: None }], &mut |_: usize, completion: Completion| {
        ends.push(completion)
    });
    assert_eq!(ends.len(), 1);
    (ends.remove(0), host.calls)
}

fn streamed(executor: &mut dyn Executor, record: &[u8]) -> (Completion, Vec<String>) {
    attempt(executor, true, 1, record)
}

/// What a C source, a Python body and a shell script make.
struct Runtimes {
    dir: TempDir,
}

impl Runtimes {
    fn new() -> Self {
        Self { dir: TempDir::new().unwrap() }
    }

    fn wasm(&self, body: &str, limits: Limits) -> WasmExecutor {
        let module = c_to_wasm(self.dir.path(), "wasm", &handle(body));
        WasmExecutor::new(ENGINE.load(&module, &self.dir.path().join("cache"), "handle").unwrap(), limits)
    }

    fn native(&self, body: &str, limits: Limits) -> impl Executor + use<> {
        c_to_native(self.dir.path(), "native", &handle(body));
        process(self.dir.path(), &["./native"], limits)
    }

    fn python(&self, body: &str, limits: Limits) -> PythonExecutor {
        let indented: String = body.lines().map(|line| format!("    {line}\n")).collect();
        let source = format!("import json, os, threading, time, millrace\ndef f(record, ctx):\n{indented}");
        fs::write(self.dir.path().join("functions.py"), source).unwrap();
        let (module, function) = ("functions".into(), "f".into());
        let spec = PythonSpec {
            python: "python3".into(),
            dir: self.dir.path().to_owned(),
            module,
            function,
            env: no_env(),
            scratch: None,
        };
        PythonExecutor::new(spec, limits)
    }

    fn shell(&self, text: &str, limits: Limits) -> OneshotExecutor {
        script(self.dir.path(), "f.sh", &format!("#!/bin/sh\n{text}\n"));
        let spec = ProcessSpec {
            command: vec!["./f.sh".into()],
            dir: self.dir.path().to_owned(),
            env: no_env(),
            scratch: None,
        };
        OneshotExecutor::new(spec, limits)
    }
}

/// A C handler with `say(log, number)`, which appends a number in decimal.
fn handle(body: &str) -> String {
    format!(
        r#"
        #include "millrace.h"
        static int64_t say(const char *log, int64_t number) {{
            char text[24];
            size_t at = sizeof text;
            uint64_t left = number < 0 ? 0u - (uint64_t)number : (uint64_t)number;
            do text[--at] = (char)('0' + left % 10); while ((left /= 10) != 0);
            if (number < 0) text[--at] = '-';
            return mr_publish(log, text + at, sizeof text - at);
        }}
        int handle(const mr_record *record) {{ (void)say; (void)record; {body} }}"#
    )
}

#[test]
fn every_runtime_makes_the_calls_in_order_and_learns_its_seqnos() {
    let c = r#"
        unsigned char bytes[8];
        int64_t seqno;
        mr_random(bytes, 3);
        seqno = mr_publish("out", bytes, 3);
        say("seqno", seqno);
        say("now", mr_now_ns());
        if (mr_append("out", record->data, record->size) != 0) return 1;
        say("get", mr_get("history", 2, bytes, sizeof bytes));
        mr_print("printed");
        say("latest", mr_latest("history"));
        return say("seqno", mr_publish("out", "", 0)) == 5000000008 ? 0 : 2;"#;
    let python = "\
        seqno = ctx.append('out', ctx.random(3))\n\
        ctx.append('seqno', str(seqno))\n\
        ctx.append('now', str(round(ctx.now() * 1e9)))\n\
        ctx.append('out', record.data)\n\
        ctx.append('get', str(len(ctx.get('history', 2).data)))\n\
        print('printed', end='', flush=True)\n\
        ctx.append('latest', str(ctx.latest('history')))\n\
        assert ctx.append('seqno', str(ctx.append('out', b''))) == 5000000008";
    let expected = [
        "random 3",
        "append out bbb",
        "append seqno 5000000001",
        "now",
        "append now 4000000000",
        "append out a record",
        "get history 2",
        "append get 3",
        "latest history",
        "append latest 7",
        "append out ",
        "append seqno 5000000007",
    ];
    let runtimes = Runtimes::new();
    let mut executors: [Box<dyn Executor>; 3] = [
        Box::new(runtimes.wasm(c, limits())),
        Box::new(runtimes.native(c, limits())),
        Box::new(runtimes.python(python, limits())),
    ];
    for (i, executor) in executors.iter_mut().enumerate() {
        // Twice: the second run finds nothing left of the first on the channel.
        for _ in 0..2 {
            let (completion, calls) = streamed(executor.as_mut(), b"a record");
            assert_eq!(completion.outcome, Outcome::Done, "runtime {i}: {calls:?}");
            assert_eq!(calls, expected, "runtime {i}");
            assert_eq!(completion.output, b"printed", "runtime {i}");
        }
    }
}

/// The double makes a file when an append reaches it; the function waits for that file. Were the append kept back, the
/// run would never end.
#[test]
fn an_append_arrives_while_its_function_goes_on() {
    let runtimes = Runtimes::new();
    let path = |name: &str| runtimes.dir.path().join(name).to_str().unwrap().to_owned();
    let mut python = runtimes.python(
        "path = record.text()\nctx.append('touch', path)\nwhile not os.path.exists(path): time.sleep(0.01)",
        limits(),
    );
    let mut shell = runtimes.shell(
        "path=$(cat)\nprintf 'touch\\t%s\\n' \"$path\" >&3\nwhile [ ! -e \"$path\" ]; do sleep 0.01; done\n\
         printf 'out\\tlast' >&3",
        limits(),
    );
    let mut native = runtimes.native(
        r#"mr_append("touch", record->data, record->size);
           memcpy(mr_log_, record->data, record->size);
           mr_log_[record->size] = 0;
           while (access(mr_log_, F_OK) != 0) {}
           return 0;"#,
        limits(),
    );
    for (name, executor) in [("p", &mut python as &mut dyn Executor), ("s", &mut shell), ("n", &mut native)] {
        let path = path(name);
        let (completion, calls) = streamed(executor, path.as_bytes());
        assert_eq!(completion.outcome, Outcome::Done, "{name}");
        assert_eq!(calls[0], format!("append touch {path}"), "{name}");
        assert_eq!(calls[1..], if name == "s" { vec!["append out last".to_owned()] } else { vec![] }, "{name}");
    }
}

#[test]
fn a_refused_append_is_told_at_once_and_ends_the_appends_of_its_run() {
    let c = r#"
        if (mr_publish("out", "1", 1) != 5000000001) return 1;
        if (mr_publish("refused", "2", 1) != -2101) return 2;
        if (mr_append("out", "3", 1) != -2101 || mr_publish("out", "4", 1) != -2101) return 3;
        return mr_latest("out") == 7 ? 0 : 4;"#;
    let python = "\
        assert ctx.append('out', '1') == 5000000001\n\
        for log in ('refused', 'out', 'out'):\n  \
            try:\n    \
                ctx.append(log, '2')\n    \
                os._exit(1)\n  \
            except millrace.NotFound as error:\n    \
                assert error.code == 'MR2101', error\n\
        assert ctx.latest('out') == 7";
    let expected = ["append out 1", "append refused 2", "latest out"];
    let runtimes = Runtimes::new();
    let mut executors: [Box<dyn Executor>; 4] = [
        Box::new(runtimes.wasm(c, limits())),
        Box::new(runtimes.native(c, limits())),
        Box::new(runtimes.python(python, limits())),
        Box::new(
            runtimes
                .shell("printf 'out\\t1\\n' >&3; printf 'refused\\t2\\nout\\t3\\n' >&3; echo 'out\t4' >&3", limits()),
        ),
    ];
    for (i, executor) in executors.iter_mut().enumerate() {
        let (completion, calls) = streamed(executor.as_mut(), b"");
        assert_eq!(failed(&completion), (Code::LogNotFound, "no log 'refused'".to_owned()), "runtime {i}");
        assert_eq!(calls, expected[..if i == 3 { 2 } else { 3 }], "runtime {i}");
        // The worker is as good as before.
        if i < 3 {
            assert_eq!(streamed(executor.as_mut(), b"").1.len(), 3, "runtime {i}");
        }
    }
}

#[test]
fn too_many_bytes_are_refused_at_once_too() {
    let few = Limits { append_max_bytes: 10, ..limits() };
    let runtimes = Runtimes::new();
    let c = r#"return mr_publish("out", "12345678", 8) > 0 && mr_publish("out", "901", 3) == -3119 ? 0 : 1;"#;
    let number = Code::AppendTooMuch.id()[2..].to_owned();
    let c = c.replace("3119", &number);
    let executors: [Box<dyn Executor>; 2] = [Box::new(runtimes.wasm(&c, few)), Box::new(runtimes.native(&c, few))];
    for mut executor in executors {
        let (completion, calls) = streamed(executor.as_mut(), b"");
        assert_eq!(failed(&completion).0, Code::AppendTooMuch);
        assert_eq!(calls, ["append out 12345678"]);
    }
}

#[test]
fn an_atomic_run_of_the_same_program_is_answered_nothing() {
    let runtimes = Runtimes::new();
    let c = r#"return mr_publish("out", "1", 1) == 0 && mr_append("out", "2", 1) == 0 ? 0 : 1;"#;
    let executors: [(&str, Box<dyn Executor>); 2] = [
        ("native", Box::new(runtimes.native(c, limits()))),
        (
            "python",
            Box::new(
                runtimes.python("assert ctx.append('out', '1') is None and ctx.append('out', '2') is None", limits()),
            ),
        ),
    ];
    for (name, mut executor) in executors {
        for _ in 0..2 {
            // In the same process, a streamed run before it is told a seqno, and ends there.
            assert_eq!(streamed(executor.as_mut(), b"").1, ["append out 1"], "{name}");
            let (completion, calls) = attempt(executor.as_mut(), false, 1, b"");
            assert_eq!(completion.outcome, Outcome::Done, "{name}");
            assert_eq!(calls, ["append out 1", "append out 2"], "{name}");
        }
    }
    // The host decides what is staged, so WebAssembly needs one that answers nothing.
    let mut hosts = common::run(&mut runtimes.wasm(c, limits()), &[b""]);
    assert_eq!(hosts.remove(0).0.outcome, Outcome::Done);
}

#[test]
fn every_runtime_passes_the_attempt_and_a_constant_key() {
    let c = r#"
        char key[MR_RUN_ID_MAX + 1];
        mr_idempotency_key(key);
        mr_append("key", key, mr_length_(key));
        return say("attempt", record->attempt) < 0;"#;
    let runtimes = Runtimes::new();
    let executors: [Box<dyn Executor>; 4] = [
        Box::new(runtimes.wasm(c, limits())),
        Box::new(runtimes.native(c, limits())),
        Box::new(
            runtimes.python("ctx.append('key', ctx.idempotency_key)\nctx.append('attempt', ctx.attempt)", limits()),
        ),
        Box::new(runtimes.shell(
            "printf 'key\\t%s\\nattempt\\t%s\\n' \"$MILLRACE_IDEMPOTENCY_KEY\" \"$MILLRACE_ATTEMPT\" >&3",
            limits(),
        )),
    ];
    for (i, mut executor) in executors.into_iter().enumerate() {
        for (is_streamed, number) in [(false, 1), (false, 4), (true, 2)] {
            let (completion, calls) = attempt(executor.as_mut(), is_streamed, number, b"");
            assert_eq!(completion.outcome, Outcome::Done, "runtime {i}");
            let expected = ["append key abcdef012345-7-2a9f".to_owned(), format!("append attempt {number}")];
            assert_eq!(calls, expected, "runtime {i}");
        }
    }
}

#[test]
fn a_worker_written_from_the_specification_streams() {
    let body = "\
        assert flags == 1\n\
        frame(18, 0, b'out', payload)\n\
        number, seqno = answer()\n\
        frame(18, 0, b'out', b'%d %d' % (number, int.from_bytes(seqno, 'little')))\n\
        answer()\n\
        frame(18, 0, b'refused', b'')\n\
        os.write(3, packed(24, 0, b'', repr(answer()).encode()) + packed(19))";
    let (mut executor, _dir) = worker(body, limits());
    for _ in 0..2 {
        let (completion, calls) = streamed(&mut executor, b"x");
        assert_eq!(failed(&completion).0, Code::LogNotFound);
        assert_eq!(calls, ["append out x", "append out 0 5000000001", "append refused "]);
        assert_eq!(completion.output, br#"(2101, b"no log 'refused'")"#);
    }
}

#[test]
fn a_worker_that_does_not_wait_for_its_answer_is_stopped() {
    // One write each, so that both frames are there before the first is answered.
    for frames in [
        "packed(18, 0, b'out', b'1') + packed(18, 0, b'out', b'2')",
        "packed(18, 0, b'out', b'1') + packed(19)",
        "packed(18, 0, b'out', b'1') + packed(22, 0)",
        "packed(22, 0) + packed(18, 0, b'out', b'1')",
        "get(b'history', 1) + packed(21, 0, b'history')",
        "packed(18, 0, b'refused', b'1') + packed(19)",
    ] {
        let (mut executor, _dir) = worker(&format!("os.write(3, {frames})\ntime.sleep(600)"), limits());
        let (completion, calls) = streamed(&mut executor, b"");
        let (code, detail) = failed(&completion);
        assert!(code == Code::WorkerProtocol && detail.contains("before the answer"), "{frames}: {detail}");
        assert_eq!(calls.len(), 1, "{frames}");
    }
    // What it prints meanwhile is no call, and in an atomic run nobody waits.
    let body = "os.write(3, packed(18, 0, b'out', b'1') + packed(24, 0, b'', b'said'))\nanswer()\nframe(19)";
    let (completion, calls) = streamed(&mut worker(body, limits()).0, b"");
    assert_eq!((completion.outcome, &completion.output[..], calls.len()), (Outcome::Done, &b"said"[..], 1));
    let body = "os.write(3, packed(18, 0, b'out', b'1') + packed(18, 0, b'out', b'2') + packed(19))";
    let (completion, calls) = attempt(&mut worker(body, limits()).0, false, 1, b"");
    assert_eq!((completion.outcome, calls.len()), (Outcome::Done, 2));
}

#[test]
fn a_worker_that_waits_for_what_never_comes_is_stopped_by_its_timeout() {
    let body = "frame(18, 0, b'out', b'1')\nanswer()";
    let (completion, calls) = attempt(&mut worker(body, impatient()).0, false, 1, b"");
    assert_eq!(failed(&completion).0, Code::RunTimeout);
    assert!(calls.len() <= 1, "{calls:?}");
}

#[test]
fn a_worker_that_takes_no_answers_is_not_heard_on() {
    // Each answer has 5 MiB, so the first fills what may wait.
    let asks = "os.write(3, b''.join(get(b'big', i) for i in range(20)))\n";
    let (completion, calls) = attempt(&mut worker(&format!("{asks}time.sleep(600)"), impatient()).0, false, 1, b"");
    assert_eq!(failed(&completion).0, Code::RunTimeout);
    assert!(calls.len() <= 1, "{calls:?}");
    // It hangs up instead: that ends the run at once, whatever its timeout.
    let (completion, calls) = attempt(&mut worker(&format!("{asks}os._exit(3)"), limits()).0, false, 1, b"");
    let (code, detail) = failed(&completion);
    assert!(code == Code::WorkerDied && detail.contains("status 3"), "{detail}");
    assert!(calls.len() <= 1, "{calls:?}");
    // It takes them after all.
    let body = format!("{asks}for i in range(20): assert len(answer()[1]) == 5 << 20\nframe(19)");
    let (completion, calls) = attempt(&mut worker(&body, limits()).0, false, 1, b"");
    assert_eq!((completion.outcome, calls.len()), (Outcome::Done, 20));
}

#[test]
fn threads_of_a_python_function_learn_their_own_seqnos_and_end_with_their_run() {
    let body = "\
        told = {}\n\
        def work(i):\n  \
            for k in range(50):\n    \
                told[f'{i}.{k}'] = ctx.append('out', f'{i}.{k}')\n    \
                print(i)\n\
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]\n\
        for t in threads: t.start()\n\
        for t in threads: t.join()\n\
        ctx.append('told', told)\n\
        def late():\n  \
            while True: ctx.append('late', record.data)\n\
        for i in range(3): threading.Thread(target=late, daemon=True).start()";
    let runtimes = Runtimes::new();
    let mut executor = runtimes.python(body, limits());
    for record in [b"1", b"2", b"3"] {
        for is_streamed in [true, false] {
            let (completion, calls) = attempt(&mut executor, is_streamed, 1, record);
            assert_eq!(completion.outcome, Outcome::Done);
            let of_run = format!("append late {}", String::from_utf8_lossy(record));
            assert!(calls[201..].iter().all(|call| *call == of_run), "a thread spoke in a run that is not its own");
            let reported = calls[200].strip_prefix("append told ").unwrap();
            if is_streamed {
                for (call, seqno) in calls[..200].iter().zip(FIRST..) {
                    let name = call.strip_prefix("append out ").unwrap();
                    assert!(reported.contains(&format!("\"{name}\":{seqno}")), "{name} is {seqno}: {reported}");
                }
            } else {
                assert_eq!(reported.matches("null").count(), 200);
            }
        }
    }
}
