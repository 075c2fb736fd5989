//! One process per record, with real shell scripts.

mod common;

use common::{ends, failed, failure, impatient, limits, patiently, printed, run, run_one, script};
use millrace_runtime::{Code, Limits, OneshotExecutor, Outcome, ProcessSpec};
use std::fs;
use tempfile::TempDir;

fn spec(command: &[&str], dir: &TempDir) -> ProcessSpec {
    ProcessSpec {
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        dir: dir.path().to_owned(),
        env: [("MY_KEY".to_owned(), "mine".to_owned())].into(),
        scratch: None,
    }
}

/// An executor of a shell script with this text.
fn shell(text: &str, limits: Limits) -> (OneshotExecutor, TempDir) {
    let dir = TempDir::new().unwrap();
    script(dir.path(), "f.sh", &format!("#!/bin/sh\n{text}\n"));
    (OneshotExecutor::new(spec(&["./f.sh", "an argument"], &dir), limits), dir)
}

#[test]
fn a_script_reads_its_record_and_appends_lines() {
    let (mut executor, dir) = shell(
        "read line\n\
         printf 'out\\t%s\\ttabs\\tstay\\n' \"$line\" >&3\n\
         printf 'env\\t%s' \"$MILLRACE_LOG $MILLRACE_SEQNO $MILLRACE_RUN $MILLRACE_ATTEMPT $MILLRACE_APPEND_FD $MY_KEY $1 $PWD\" >&3\n\
         echo printed; echo complained >&2",
        limits(),
    );
    let (completion, appended) = run(&mut executor, &[b"hello\n"]).remove(0);
    assert_eq!(completion.outcome, Outcome::Done);
    assert_eq!(printed(&completion), "printed\ncomplained\n");
    let here = dir.path().display();
    let env = format!("raw/kitchen 1 abcdef012345-7-2aa0 1 3 mine an argument {here}");
    let expected = [("out".to_owned(), b"hello\ttabs\tstay".to_vec()), ("env".to_owned(), env.into_bytes())];
    assert_eq!(appended, expected);
}

#[test]
fn a_status_other_than_zero_fails_the_run_with_its_last_words() {
    let (mut executor, _dir) = shell("printf 'out\\tx\\n' >&3; echo sorry >&2; exit 3", limits());
    let (code, detail) = failure(&mut executor, b"");
    assert_eq!(
        (code, detail.as_str()),
        (Code::FunctionFailed, "the process exited with status 3; it printed last:\nsorry")
    );
    let (code, detail) = failure(&mut shell("kill -9 $$", limits()).0, b"");
    assert!(code == Code::WorkerDied && detail.contains("signal 9 (SIGKILL)"), "{detail}");
}

#[test]
fn a_large_record_arrives_whole_even_if_nobody_reads_it() {
    let record = vec![b'r'; 3 << 20];
    let (mut executor, _dir) = shell("printf 'out\\t%s\\n' $(wc -c) >&3", limits());
    assert_eq!(run(&mut executor, &[&record]).remove(0).1, [("out".to_owned(), b"3145728".to_vec())]);
    assert_eq!(run_one(&mut shell("true", limits()).0, &record).outcome, Outcome::Done);
    let (mut executor, _dir) = shell("{ printf 'out\\t'; cat; } >&3", limits());
    assert_eq!(run(&mut executor, &[&record]).remove(0).1, [("out".to_owned(), record.clone())]);
}

#[test]
fn a_script_that_never_ends_is_killed_with_what_it_started() {
    patiently(|limits| {
        let (mut executor, dir) = shell("echo thinking; sleep 600 & echo $! > pid; echo noted; wait", limits);
        let (code, detail) = failure(&mut executor, b"");
        assert_eq!(code, Code::RunTimeout, "{detail}");
        if !detail.contains("thinking\nnoted") {
            return Err(detail);
        }
        ends(&fs::read_to_string(dir.path().join("pid")).unwrap());
        Ok(())
    });
}

#[test]
fn what_a_script_leaves_behind_is_killed_and_not_waited_for() {
    let (mut executor, dir) = shell("sleep 600 & echo $! > pid; yes > /dev/null & yes &", limits());
    assert_eq!(run_one(&mut executor, b"").outcome, Outcome::Done);
    ends(&fs::read_to_string(dir.path().join("pid")).unwrap());
}

#[test]
fn output_and_appends_without_end_are_bounded() {
    let bounded = Limits { output_max_bytes: 1000, append_max_bytes: 1000, ..impatient() };
    patiently(|Limits { timeout, .. }| {
        let completion = run_one(&mut shell("yes", Limits { timeout, ..bounded }).0, b"");
        assert_eq!(failed(&completion).0, Code::RunTimeout);
        assert!(completion.output.len() <= 1000);
        if completion.output.starts_with(b"y\ny\n") { Ok(()) } else { Err("it printed nothing".into()) }
    });
    let (completion, appended) = run(&mut shell("yes 'out\tx' | head -1000000 >&3", bounded).0, &[b""]).remove(0);
    assert!(matches!(failed(&completion).0, Code::AppendTooMuch | Code::RunTimeout));
    assert!(appended.len() * "out\tx\n".len() <= 1000);
}

#[test]
fn lines_that_mean_nothing_and_refused_appends_fail_the_run() {
    let (code, detail) = failure(&mut shell("echo 'no tab' >&3", limits()).0, b"");
    assert!(code == Code::WorkerProtocol && detail.contains("\"no tab\""), "{detail}");
    assert_eq!(failure(&mut shell("printf 'refused/x\\ty\\n' >&3", limits()).0, b"").0, Code::LogNotFound);
}

#[test]
fn memory_is_bounded() {
    let small = Limits { memory_max_bytes: 32 << 20, ..limits() };
    let dir = TempDir::new().unwrap();
    let program = "import sys\ntry: x = bytearray(200 << 20)\nexcept MemoryError: sys.exit(9)";
    let mut executor = OneshotExecutor::new(spec(&["python3", "-c", program], &dir), small);
    let (code, detail) = failure(&mut executor, b"");
    assert!(code == Code::FunctionFailed && detail.contains("status 9"), "{detail}");
}

#[test]
fn commands_that_cannot_run_are_refused() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("plain"), "#!/bin/sh\n").unwrap();
    script(dir.path(), "lost.sh", "#!/no/such/shell\n");
    script(dir.path(), "none.sh", "echo no interpreter line\n");
    for command in [&["./absent"][..], &["./plain"], &["no-such-program-anywhere"], &[""], &[], &["."]] {
        let error = spec(command, &dir).validate().unwrap_err();
        assert_eq!(error.code(), Code::CommandUnusable, "{command:?}");
        assert_eq!(failure(&mut OneshotExecutor::new(spec(command, &dir), limits()), b"").0, error.code());
    }
    for command in ["./lost.sh", "./none.sh"] {
        let found = failure(&mut OneshotExecutor::new(spec(&[command], &dir), limits()), b"");
        assert_eq!(found.0, Code::CommandUnusable, "{found:?}");
    }
    let gone = ProcessSpec { dir: dir.path().join("gone"), ..spec(&["true"], &dir) };
    assert_eq!(failure(&mut OneshotExecutor::new(gone, limits()), b"").0, Code::CodeUnreadable);
    assert_eq!(spec(&["true"], &dir).validate(), Ok(()));
}

#[test]
fn a_child_has_only_the_descriptors_it_is_given_and_default_signals() {
    let (mut executor, _dir) = shell("ls /proc/self/fd; exec grep -hE 'Sig(Blk|Ign)' /proc/self/status", limits());
    let printed = printed(&run_one(&mut executor, b""));
    // 4 is the directory that `ls` reads.
    let (descriptors, signals) = printed.split_at("0\n1\n2\n3\n4\n".len());
    assert_eq!(descriptors, "0\n1\n2\n3\n4\n");
    let masks: Vec<u64> =
        signals.lines().map(|line| u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap()).collect();
    // Beyond 31 are the real-time signals, of which the C library keeps two to itself.
    assert_eq!(masks.iter().map(|mask| mask & 0x7fff_ffff).collect::<Vec<_>>(), [0, 0]);
}
