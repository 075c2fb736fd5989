//! Hosts: one at a time, stopped gently or not, killed; and what waits meanwhile says why.

use millrace_node::Namespace;
use millrace_tests::{Host, PATIENCE, Place, end, eventually, wait};
use serde_json::json;
use std::{
    cell::Cell,
    fs,
    io::{BufRead, BufReader, PipeReader, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

/// A namespace with logs `in` and `out`, and a shell function between them.
fn place_with(script: &str, options: &str) -> Place {
    let place = Place::empty();
    place.write("f.sh", script);
    let text = format!(
        "[namespace]\nsegment_size = \"1MiB\"\ndurability = \"memory\"\n[logs.in]\n[logs.out]\n[functions.f]\n\
         runtime = \"oneshot\"\ncode = \"f.sh\"\ncommand = [\"./f.sh\"]\non = [\"in\"]\n{options}\n"
    );
    place.write("millrace.toml", &text);
    place.run(["up"]).ok();
    place
}

const COPY: &str = "#!/bin/sh\nprintf 'out\\t%s\\n' \"$(cat)\" >&\"$MILLRACE_APPEND_FD\"\n";

/// A place whose function copies as well, but not before [`Gate::open`]: it stops itself, and is continued from outside, which needs
/// nothing that its sandbox does not show.
struct Gate {
    place: Place,
    name: String,
    shut: Arc<AtomicBool>,
    continues: Cell<Option<thread::JoinHandle<()>>>,
}

/// The processes that have this argument and have stopped.
fn stopped_with(argument: &str) -> Vec<String> {
    let pids = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let read = |pid: &str, file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    pids.filter(|pid| read(pid, "cmdline").split('\0').any(|part| part == argument))
        .filter(|pid| read(pid, "stat").contains(") T "))
        .collect()
}

impl Gate {
    fn new(options: &str) -> Self {
        let place =
            place_with("#!/bin/sh\nkill -STOP $$\nprintf 'out\\t%s\\n' \"$(cat)\" >&\"$MILLRACE_APPEND_FD\"\n", "");
        let name = format!("gate-{}", place.path().file_name().unwrap().to_string_lossy());
        let text = fs::read_to_string(place.path().join("millrace.toml")).unwrap();
        let text = text.replace("[\"./f.sh\"]", &format!("[\"./f.sh\", \"{name}\"]"));
        place.write("millrace.toml", &format!("{text}{options}\n"));
        place.run(["up"]).ok();
        Self { place, name, shut: Arc::default(), continues: Cell::default() }
    }

    /// From now on, whatever has stopped or stops goes on.
    fn open(&self) {
        let (name, shut) = (self.name.clone(), self.shut.clone());
        let continues = thread::spawn(move || {
            while !shut.load(Ordering::Relaxed) {
                for pid in stopped_with(&name) {
                    // It may have been killed meanwhile.
                    let _ = Command::new("kill").args(["-CONT", &pid]).stderr(Stdio::null()).status();
                }
                thread::sleep(Duration::from_millis(10));
            }
        });
        self.continues.set(Some(continues));
    }

    fn wait_until_started(&self) {
        eventually("the function runs", || !stopped_with(&self.name).is_empty());
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.shut.store(true, Ordering::Relaxed);
        if let Some(continues) = self.continues.take() {
            let _ = continues.join();
        }
    }
}

#[test]
fn only_one_host_runs_a_namespace_and_the_other_is_told_which() {
    let place = place_with(COPY, "");
    let host = place.serve();
    for command in ["serve", "dev"] {
        let said = place.run([command]).fails("MR2017", 1);
        assert!(said.stderr.contains(&host.pid().to_string()), "{}", said.stderr);
    }
    host.signal("TERM");
    assert_eq!(host.ended(), 0);
    let next = place.serve();
    next.signal("INT");
    assert_eq!(next.ended(), 0);
}

/// A host ends, says why and acknowledges nothing more once its directory is not where it was; the place, and another host
/// that was started meanwhile.
fn displaced(displace: impl FnOnce(&Place) -> Option<Host>) -> (Place, Option<Host>) {
    let (place, elsewhere) = (place_with(COPY, ""), tempfile::tempdir().unwrap());
    let stderr = elsewhere.path().join("stderr");
    let mut command = place.command(["--json", "serve", "--listen", "127.0.0.1:0", "--name", "n"]);
    command.stderr(fs::File::create(&stderr).unwrap());
    let host = Host::start(command);
    let at = format!("mr://127.0.0.1:{}/n", host.port());
    let append = || place.run(["-n", &at, "log", "append", "in", "x"]);
    append().ok();
    let next = displace(&place);
    assert_eq!(host.ended(), 74);
    assert_ne!(append().code, 0, "nobody acknowledges any more");
    let said = fs::read_to_string(&stderr).unwrap();
    assert!(said.contains("MR5007"), "{said}");
    (place, next)
}

#[test]
fn a_host_whose_directory_is_removed_ends() {
    displaced(|place| {
        fs::remove_dir_all(place.namespace()).unwrap();
        None
    });
}

#[test]
fn a_host_whose_directory_is_moved_ends_and_disturbs_no_other() {
    let (place, next) = displaced(|place| {
        fs::rename(place.namespace(), place.path().join("moved")).unwrap();
        place.run(["up"]).ok();
        Some(place.serve())
    });
    assert!(next.is_some_and(|next| {
        place.run(["log", "append", "in", "y"]).ok();
        place.idle();
        assert_eq!(place.records("out"), ["y"]);
        for file in ["socket", "host.json"] {
            assert!(place.namespace().join(file).exists(), "{file} belongs to the other host");
        }
        next.signal("TERM");
        next.ended() == 0
    }));
    let kept = place.run(["-n", "moved", "log", "get", "in", "1"]).ok();
    assert_eq!(kept.text().trim_end(), "x");
}

#[test]
fn a_host_whose_directory_was_replaced_leaves_the_files_of_the_new_host_alone() {
    let place = place_with(COPY, "");
    let host = place.serve();
    // Held still, it ends only after the other one has told everything.
    host.signal("STOP");
    fs::rename(place.namespace(), place.path().join("moved")).unwrap();
    place.run(["up"]).ok();
    let next = place.serve();
    let is_told = |file: &str| {
        let text = fs::read_to_string(place.namespace().join(file)).unwrap_or_default();
        let status: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        status["pid"] == next.pid()
    };
    let files = ["host.json", "links.json"];
    eventually("the other host tells what it does", || files.iter().all(|file| is_told(file)));
    host.signal("CONT");
    assert_eq!(host.ended(), 74);
    for file in files {
        assert!(is_told(file), "{file} belongs to the other host");
    }
}

#[test]
fn records_that_came_before_the_host_run_when_it_comes() {
    let place = place_with(COPY, "");
    let lines: String = (0..20).map(|n| format!("{n}\n")).collect();
    place.feed(["log", "append", "in", "--lines", "--quiet"], lines.as_bytes()).ok();
    let said = place.run(["run", "wait", "--idle", "--timeout", "50ms"]).fails("MR2106", 1);
    assert!(said.stderr.contains("no host is running"), "{}", said.stderr);
    let _host = place.serve();
    place.idle();
    assert_eq!(place.records("out"), lines.lines().collect::<Vec<_>>(), "in order, each once");
    let function = place.run(["--json", "function", "ls"]).ok().object();
    assert_eq!((&function["pending"], &function["done"]), (&json!(0), &json!(20)));
}

#[test]
fn a_first_signal_lets_running_functions_end() {
    let gate = Gate::new("");
    let host = gate.place.serve();
    gate.place.run(["log", "append", "in", "x"]).ok();
    gate.wait_until_started();
    host.signal("TERM");
    host.line_with(&["waiting up to"]);
    gate.open();
    assert_eq!(host.ended(), 0);
    assert_eq!(gate.place.records("out"), ["x"]);
}

#[test]
fn no_run_is_started_after_a_first_signal_however_long_clients_take() {
    let gate = Gate::new("");
    let host = gate.place.serve();
    for n in 1..=5 {
        gate.place.run(["log", "append", "in", &n.to_string()]).ok();
    }
    gate.wait_until_started();
    // A client that the host waits for: it has sent a part of what it appends.
    let mut slow = UnixStream::connect(gate.place.namespace().join("socket")).unwrap();
    slow.set_read_timeout(Some(PATIENCE)).unwrap();
    slow.write_all(
        b"POST /v1/namespaces/main/logs/out/records HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\
        Expect: 100-continue\r\n\r\n",
    )
    .unwrap();
    slow.read_exact(&mut [0; 25]).expect("100 Continue");
    slow.write_all(b"sl").unwrap();
    host.signal("TERM");
    host.line_with(&["waiting up to"]);
    gate.open();
    eventually("the run in progress ends", || gate.place.records("out") == ["1"]);
    // As long as the next one would need to begin.
    thread::sleep(Duration::from_millis(600));
    slow.write_all(b"ow").unwrap();
    let mut answer = String::new();
    slow.read_to_string(&mut answer).unwrap();
    assert!(answer.contains(" 201 "), "{answer}");
    assert_eq!(host.ended(), 0);
    assert_eq!(gate.place.records("out"), ["1", "slow"]);
    let _host = gate.place.serve();
    gate.place.idle();
    assert_eq!(gate.place.records("out"), ["1", "slow", "2", "3", "4", "5"]);
}

#[test]
fn a_second_signal_stops_at_once_and_the_run_is_done_later() {
    let gate = Gate::new("");
    let host = gate.place.serve();
    gate.place.run(["log", "append", "in", "x"]).ok();
    gate.wait_until_started();
    host.signal("TERM");
    host.line_with(&["waiting up to"]);
    host.signal("TERM");
    assert_eq!(host.ended(), 128 + 15);
    assert!(gate.place.records("out").is_empty());
    gate.open();
    let _host = gate.place.serve();
    gate.place.idle();
    assert_eq!(gate.place.records("out"), ["x"]);
}

#[test]
fn runs_of_a_killed_host_are_done_once_by_the_next() {
    let place = place_with(COPY, "");
    let lines: String = (0..200).map(|n| format!("{n}\n")).collect();
    place.feed(["log", "append", "in", "--lines", "--quiet"], lines.as_bytes()).ok();
    for round in 1..=5 {
        let host = place.serve();
        eventually("some runs are done", || {
            place.run(["--json", "function", "ls"]).ok().object()["done"].as_u64().unwrap() >= round * 20
        });
        host.signal("KILL");
        assert_eq!(host.ended(), 128 + 9);
    }
    let _host = place.serve();
    place.idle();
    assert_eq!(place.records("out"), lines.lines().collect::<Vec<_>>());
    let verdict = place.run(["--json", "namespace", "check"]).ok().object();
    assert_eq!(verdict["sound"], true);
}

#[test]
fn too_much_waiting_work_refuses_more_and_loses_nothing() {
    let place = place_with(COPY, "pending_max = 3");
    for n in 0..3 {
        place.run(["log", "append", "in", &n.to_string()]).ok();
    }
    let said = place.run(["log", "append", "in", "refused"]).fails("MR2019", 75);
    assert!(said.stderr.contains("retry after"), "{}", said.stderr);
    assert!(place.run(["why", "in"]).ok().text().contains("appends are refused"));
    // With a host, a stream of more than there is room for flows at the functions' speed.
    let _host = place.serve();
    let lines: String = (3..30).map(|n| format!("{n}\n")).collect();
    place.feed(["log", "append", "in", "--lines", "--quiet"], lines.as_bytes()).ok();
    place.idle();
    assert_eq!(place.records("out"), (0..30).map(|n| n.to_string()).collect::<Vec<_>>());
}

#[test]
fn a_function_may_be_named_by_an_append() {
    let place = place_with(COPY, "");
    place.run(["log", "create", "other"]).ok();
    let _host = place.serve();
    place.run(["log", "append", "other", "not for it"]).ok();
    place.run(["log", "append", "other", "for it", "--function", "f"]).ok();
    place.idle();
    assert_eq!(place.records("out"), ["for it"]);
    let said = place.run(["log", "append", "other", "x", "--function", "nobody"]);
    assert!(said.code == 1 && said.stderr.contains("no function 'nobody'"), "{said:#?}");
    assert_eq!(place.records("other").len(), 2);
}

#[test]
fn whatever_is_not_running_is_explained() {
    let gate = Gate::new("");
    let place = &gate.place;
    place.run(["log", "create", "lonely"]).ok();
    let why = |target: &str| place.run(["why", target]).ok().text().to_string();
    assert!(why("lonely").contains("no function is bound to log 'lonely'"), "{}", why("lonely"));
    for n in 0..3 {
        place.run(["log", "append", "in", &n.to_string()]).ok();
    }
    assert!(why("f").contains("no host is running"), "{}", why("f"));
    let _host = place.serve();
    gate.wait_until_started();
    let runs = place.run(["--json", "run", "ls"]).ok().objects();
    let (newest, oldest) = (runs[0]["id"].as_str().unwrap(), runs[2]["id"].as_str().unwrap());
    eventually("the first run is told to be running", || why(oldest).contains("is running"));
    assert!(why(newest).contains(oldest), "{}", why(newest));
    gate.open();
    place.idle();
    assert!(why(newest).contains("succeeded"), "{}", why(newest));
    assert!(why("f").contains("has no pending runs"), "{}", why("f"));
    let said = place.run(["why", "nobody"]);
    assert!(said.code == 1 && said.stderr.contains("'nobody'"), "{said:#?}");
    let object = place.run(["--json", "why", "f"]).ok().object();
    assert!(
        object["reasons"].as_array().is_some_and(|reasons| reasons.iter().all(|r| r["text"].is_string())),
        "{object}"
    );
}

#[test]
fn one_run_can_be_waited_for() {
    let gate = Gate::new("");
    let place = &gate.place;
    place.run(["log", "append", "in", "x"]).ok();
    let id = place.run(["--json", "run", "ls"]).ok().object()["id"].as_str().unwrap().to_string();
    place.run(["run", "wait", &id, "--timeout", "20ms"]).fails("MR2106", 1);
    let _host = place.serve();
    let waiting = {
        let command = place.command(["--json", "run", "wait", &id]);
        thread::spawn(move || end(command, b""))
    };
    gate.open();
    let run = waiting.join().unwrap().ok().object();
    assert_eq!((&run["state"], &run["log"], &run["seqno"]), (&json!("done"), &json!("in"), &json!(1)));
    assert_eq!(run["appends"], json!([{ "log": "out", "seqno": 1 }]));
    for id in ["nonsense", "1-2", "", "-"] {
        assert_eq!(place.run(["run", "show", "--", id]).code, 2, "{id}");
    }
    let said = place.run(["run", "show", "1-2-3"]);
    assert!(said.code == 1 && said.stderr.contains("no run 000000000001-2-3"), "{said:#?}");
}

#[test]
fn a_host_continues_when_its_output_is_not_read() {
    // The first attempt fails, which the host tries to tell.
    let place =
        place_with(&COPY.replace("printf", "[ $MILLRACE_ATTEMPT -gt 1 ] || exit 1\nprintf"), "backoff = \"1ms\"");
    let mut command = place.command(["serve"]);
    let mut host = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(host.stdout.take().unwrap());
    stdout.read_line(&mut String::new()).unwrap();
    drop(stdout);
    for n in 1..=3 {
        place.run(["log", "append", "in", &n.to_string()]).ok();
        place.idle();
        // As often as troubles are told.
        thread::sleep(Duration::from_millis(600));
    }
    assert_eq!(place.records("out"), ["1", "2", "3"]);
    assert!(Command::new("kill").arg(host.id().to_string()).status().unwrap().success());
    assert_eq!(wait(&mut host, "the host"), 0);
}

/// A host that has said something and is not listened to any more.
fn unheard(place: &Place, args: &[&str]) -> Child {
    let mut host = place.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    BufReader::new(host.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
    host
}

fn terminate(host: &Child) {
    assert!(Command::new("kill").arg(host.id().to_string()).status().unwrap().success());
}

#[test]
fn a_host_with_unread_output_lets_runs_end_after_a_signal() {
    let gate = Gate::new("");
    let mut host = unheard(&gate.place, &["serve", "--drain", "100s"]);
    gate.place.run(["log", "append", "in", "x"]).ok();
    gate.wait_until_started();
    terminate(&host);
    BufReader::new(host.stderr.take().unwrap()).read_line(&mut String::new()).unwrap();
    // As long as it would need to end without the run.
    thread::sleep(Duration::from_millis(600));
    gate.open();
    assert_eq!(wait(&mut host, "the host"), 0);
    assert_eq!(gate.place.records("out"), ["x"]);
}

/// The function fails, and says so much that few records fill a pipe.
fn loud_place() -> Place {
    place_with(LOUD, "retries = 0")
}

const LOUD: &str = "#!/bin/sh\nprintf '%030000d' 1\nexit 1\n";
const LOUD_BYTES: usize = 30_000;
const LOUD_RECORDS: usize = 60;

/// A host with a reader who holds on to the pipe of its outputs and does not read; the pipe is full, and there is more to say.
fn held(place: &Place, args: &[&str]) -> (Child, PipeReader) {
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = place.command(args);
    let host = command.stdout(writer.try_clone().unwrap()).stderr(writer).spawn().unwrap();
    drop(command);
    place.feed(["log", "append", "in", "--lines", "--quiet"], "x\n".repeat(LOUD_RECORDS).as_bytes()).ok();
    eventually("the pipe is full", || rustix::io::ioctl_fionread(&reader).unwrap() > 60 << 10);
    place.idle();
    (host, reader)
}

#[test]
fn a_host_whose_reader_holds_on_without_reading_ends_as_cleanly() {
    for args in [&["serve"][..], &["--json", "serve"], &["dev"], &["--json", "dev"]] {
        let place = loud_place();
        let (mut host, _reader) = held(&place, args);
        terminate(&host);
        assert_eq!(wait(&mut host, "the host"), 0, "{args:?}");
        assert!(!place.namespace().join("host.json").exists(), "{args:?}");
    }
}

#[test]
fn a_host_with_unread_output_ends_at_once_after_a_second_signal() {
    let stay = "[ \"$(cat)\" != stay ] || while :; do sleep 0.01; done";
    let place = place_with(&LOUD.replace("printf", &format!("{stay}\nprintf")), "retries = 0");
    let (mut host, _reader) = held(&place, &["serve", "--drain", "1000s"]);
    place.run(["log", "append", "in", "stay"]).ok();
    let run = place.run(["--json", "run", "ls"]).ok().objects()[0]["id"].as_str().unwrap().to_owned();
    eventually("the function runs", || place.run(["why", &run]).ok().text().contains("is running"));
    // Signals that come at the same time are one, so it comes until it has come twice.
    eventually("the host ends", || {
        terminate(&host);
        host.try_wait().unwrap().is_some()
    });
    assert_eq!(wait(&mut host, "the host"), 128 + 15);
}

#[test]
fn a_host_with_unread_output_notices_that_it_must_end() {
    for args in ["serve", "dev"] {
        let place = loud_place();
        let (mut host, _reader) = held(&place, &[args]);
        fs::rename(place.namespace(), place.path().join("moved")).unwrap();
        assert_eq!(wait(&mut host, "the host"), 74, "{args}");
    }
}

#[test]
fn a_reader_that_resumes_gets_the_number_of_dropped_lines() {
    // Several times as often as troubles are told; on a slow machine, longer.
    let mut pauses = [3, 15, 75].map(Duration::from_secs).into_iter();
    while left_out_within(pauses.next().expect("every line was kept for a reader who took none")) == 0 {}
}

/// How many lines are left out while nobody reads for so long.
fn left_out_within(pause: Duration) -> usize {
    let place = loud_place();
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = place.command(["--json", "serve"]);
    let mut host = command.stdout(writer).spawn().unwrap();
    drop(command);
    place.feed(["log", "append", "in", "--lines", "--quiet"], "x\n".repeat(LOUD_RECORDS).as_bytes()).ok();
    place.idle();
    thread::sleep(pause);
    let (sender, lines) = mpsc::channel();
    let reader = thread::spawn(move || {
        BufReader::new(reader).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
    });
    let (mut reported, mut left_out) = (0, 0);
    while reported + left_out < LOUD_RECORDS {
        let line = lines.recv_timeout(PATIENCE).unwrap();
        let event: serde_json::Value = serde_json::from_str(&line).unwrap();
        match event["event"].as_str().unwrap() {
            "serving" => {}
            "failed" => {
                assert_eq!(event["output"].as_str().unwrap().len(), LOUD_BYTES);
                reported += 1;
            }
            "left_out" => left_out += event["lines"].as_u64().unwrap() as usize,
            other => panic!("{other}"),
        }
    }
    assert_eq!(reported + left_out, LOUD_RECORDS);
    place.run(["log", "append", "in", "x"]).ok();
    assert!(lines.recv_timeout(PATIENCE).unwrap().contains("\"failed\""), "it goes on as before");
    terminate(&host);
    assert_eq!(wait(&mut host, "the host"), 0);
    assert!(lines.recv_timeout(PATIENCE).unwrap().contains("\"stopped\""));
    reader.join().unwrap().unwrap();
    left_out
}

#[test]
fn an_application_continues_when_the_output_of_dev_is_not_read() {
    for args in [&["dev"][..], &["--json", "dev"]] {
        let place = place_with(COPY, "");
        let mut host = unheard(&place, args);
        for record in ["1", "2", "3"] {
            place.run(["log", "append", "in", record]).ok();
            place.idle();
        }
        assert_eq!(place.records("out"), ["1", "2", "3"]);
        terminate(&host);
        assert_eq!(wait(&mut host, "the host"), 0, "{args:?}");
    }
}

#[test]
fn programs_can_follow_a_host() {
    let place = place_with(COPY, "");
    let host = Host::start(place.command(["--json", "dev"]));
    place.run(["log", "append", "in", "x"]).ok();
    let line = host.line_with(&["\"event\":\"run\""]);
    let run: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&run["function"], &run["state"], &run["record"]), (&json!("f"), &json!("done"), &json!("in 1")));
    host.signal("TERM");
    assert_eq!(host.ended(), 0);
}

/// Where this test, run again as a process of its own, finds the namespace whose lock it is to take.
const LOCKED_IN: &str = "MILLRACE_LOCKED_IN";

/// Takes the namespace's lock, and is stopped while it has it.
fn stops_with_the_lock(dir: &Path) {
    let namespace = Namespace::open(dir).unwrap();
    let taken = namespace.journal().commit(|_| {
        fs::write(dir.join("taken"), "").unwrap();
        Command::new("kill").args(["-STOP", &std::process::id().to_string()]).status().unwrap();
        // The signal may reach another thread first, and this one goes on for a moment.
        eventually("it is continued", || dir.join("continued").exists());
        Ok(())
    });
    taken.unwrap();
}

#[test]
fn a_host_that_cannot_stop_ends_and_says_what_it_waited_for() {
    if let Some(dir) = std::env::var_os(LOCKED_IN) {
        return stops_with_the_lock(Path::new(&dir));
    }
    let gate = Gate::new("");
    let dir = gate.place.namespace();
    let mut serve = gate.place.command(["serve", "--listen", "none", "--drain", "1s"]);
    let mut host = serve.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    gate.place.run(["log", "append", "in", "x"]).ok();
    gate.wait_until_started();
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", "a_host_that_cannot_stop_ends_and_says_what_it_waited_for"]).env(LOCKED_IN, &dir);
    let mut stopped = again.stdout(Stdio::null()).spawn().unwrap();
    let pid = stopped.id();
    eventually("another process has the lock", || dir.join("taken").exists());
    let stat = || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    eventually("it is stopped", || stat().contains(") T "));
    // The run ends, and cannot be published.
    gate.open();
    terminate(&host);
    let code = wait(&mut host, "the host");
    let mut said = String::new();
    host.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    fs::write(dir.join("continued"), "").unwrap();
    assert!(Command::new("kill").args(["-CONT", &pid.to_string()]).status().unwrap().success());
    assert!(stopped.wait().unwrap().success());
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("error[MR5008]:") && said.contains(&format!("process {pid} (")), "{said}");
    assert!(said.contains(&format!("`kill -CONT {pid}`")), "{said}");
    // Nothing is lost: the next host runs it again.
    let _next = gate.place.serve();
    gate.place.idle();
    assert_eq!(gate.place.records("out"), ["x"]);
}

/// How often threads of a process have gone to sleep, which is how often they were awake.
fn sleeps(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let statuses = tasks.map(|task| fs::read_to_string(task.path().join("status")).unwrap_or_default());
    let counts = statuses.map(|status| {
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:").map(str::trim));
        line.map_or(0, |count| count.parse::<u64>().unwrap())
    });
    counts.sum()
}

#[test]
fn a_host_with_nothing_to_do_sleeps() {
    const SECONDS: u64 = 5;
    let place = place_with(COPY, "");
    let host = place.serve();
    place.run(["log", "append", "in", "x"]).ok();
    place.idle();
    assert_eq!(place.records("out"), ["x"]);
    // A slow machine makes nobody wake up more often. What was begun settles first, and something may come from outside: so
    // one quiet while is enough.
    let mut counts = Vec::new();
    eventually(&format!("at most 5 wake-ups a second, over {SECONDS} s"), || {
        let before = sleeps(host.pid());
        thread::sleep(Duration::from_secs(SECONDS));
        counts.push(sleeps(host.pid()) - before);
        eprintln!("{counts:?} wake-ups");
        counts.last().is_some_and(|count| *count <= 5 * SECONDS)
    });
}
