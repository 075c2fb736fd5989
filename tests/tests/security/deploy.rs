//! What somebody with a capability may change from elsewhere: each change takes its own right, and a function that is deployed gets no
//! right that its deployer does not have.

use super::{Hub, defences::hub};
use millrace_tests::{Ended, Place, end, eventually};
use millrace_wire::Defence;

const SHOUT: &str = "#!/bin/sh\nread -r record\nprintf 'loud\\t%s!\\n' \"$record\" >&3\n";
const APPLICATION: &str = "[logs.raw]\n[logs.loud]\n[functions.shout]\nruntime = \"oneshot\"\ncode = \"shout.sh\"\n\
    command = [\"./shout.sh\"]\non = [\"raw\"]\nreads = [\"raw\"]\nappends = [\"loud\", \"raw/\"]\n";
/// All that deploying it takes, but for administering the namespace, which the sandbox of the machine may make necessary.
const ENOUGH: [&str; 4] =
    ["bind,read,append=raw/", "bind,run,observe=function:shout", "append,create,read=loud", "append,create=dead/shout"];

/// Who has a capability for the hub, in a directory of its own with an application.
struct Deployer<'h> {
    hub: &'h Hub,
    place: Place,
    capability: String,
}

impl<'h> Deployer<'h> {
    fn new(hub: &'h Hub, file: &str, may: &[&str]) -> Self {
        let place = Place::empty();
        place.write("shout.sh", SHOUT);
        place.write("millrace.toml", APPLICATION);
        let allowed: Vec<&str> = may.iter().flat_map(|grant| ["--allow", grant]).collect();
        let capability = hub.issue(file, &allowed);
        // It knows the host's key.
        place.run(["join", &hub.invite(file, &["--append", "other"])]).ok();
        Self { hub, place, capability }
    }

    fn run(&self, args: &[&str]) -> Ended {
        self.run_with(&self.capability, args)
    }

    /// Runs a command on this machine with another capability.
    fn run_with(&self, capability: &str, args: &[&str]) -> Ended {
        let namespace = format!("mr://{}/hub", self.hub.authority());
        let args: Vec<&str> = ["-n", &namespace].into_iter().chain(args.iter().copied()).collect();
        let mut command = self.place.command(args);
        command.env("MILLRACE_CAPABILITY", capability);
        end(command, b"")
    }

    /// Deploys, and says why that was refused; nothing if it was not. Somebody who may do all of it and does not administer the
    /// namespace is refused where the machine gives no full sandbox, and only there.
    fn refused(&self) -> Option<String> {
        let said = self.run(&["up"]);
        let sandbox = self.hub.place.run(["--json", "function", "ls"]);
        assert_eq!(sandbox.code, 0);
        match said.code {
            0 => None,
            _ => Some(said.stderr),
        }
    }
}

/// Whether this machine gives functions a full sandbox.
fn is_full(hub: &Hub) -> bool {
    let status = std::fs::read_to_string(hub.place.namespace().join("host.json")).unwrap();
    serde_json::from_str::<serde_json::Value>(&status).unwrap()["sandbox"]["level"] == "full"
}

#[test]
fn a_function_gets_no_right_that_its_deployer_does_not_have() {
    let hub = Hub::new();
    for (at, lacks) in ENOUGH.iter().enumerate() {
        let rest: Vec<&str> = ENOUGH.iter().copied().filter(|grant| grant != lacks).collect();
        let deployer = Deployer::new(&hub, &format!("lacks-{at}.cap"), &rest);
        let reported = deployer.refused().unwrap_or_default();
        assert!(reported.starts_with("error[MR6170]"), "{lacks}: {reported}");
    }
    // What is missing is named, all of it.
    let deployer =
        Deployer::new(&hub, "little.cap", &["bind,read=raw", "bind=function:shout", "create,append=dead/shout"]);
    let reported = deployer.refused().unwrap_or_default();
    assert!(reported.contains("function 'shout' needs append on log 'raw' and everything below it"), "{reported}");
    assert!(reported.contains("function 'shout' needs append on log 'loud'"), "{reported}");
    assert!(reported.contains("creating a log of the file needs create on log 'loud'"), "{reported}");
    deployer.run(&["up", "--dry-run"]).fails("MR6170", 1);
    // Neither secrets nor the network are anybody's but who administers the namespace.
    for line in ["secrets = [\"key\"]\n", "network = true\n", "sends = [\"mr://127.0.0.1:1/other\"]\n"] {
        let deployer = Deployer::new(&hub, &format!("{}.cap", &line[..5]), &ENOUGH);
        deployer.place.write("millrace.toml", &format!("{APPLICATION}{line}"));
        let reported = deployer.refused().unwrap_or_default();
        assert!(reported.starts_with("error[MR6170]"), "{line}: {reported}");
    }
    assert!(hub.place.run(["--json", "function", "ls"]).ok().objects().is_empty());
    let mut logs = hub.place.run(["--json", "log", "ls"]).ok().objects();
    logs.retain(|log| !log["name"].as_str().is_some_and(|name| name.starts_with('_')));
    assert_eq!(logs.len(), 2, "no log was made: {logs:?}");
    let audited = hub.place.run(["cap", "audit"]).ok();
    assert!(audited.text().contains("denied"), "{audited:?}");

    let deployer = Deployer::new(&hub, "enough.cap", &ENOUGH);
    match deployer.refused() {
        None => assert!(is_full(&hub), "code of a stranger runs in a full sandbox only"),
        Some(reported) => {
            assert!(reported.starts_with("error[MR6176]") && !is_full(&hub), "{reported}");
            let more: Vec<&str> = ENOUGH.iter().copied().chain(["admin=namespace"]).collect();
            assert_eq!(Deployer::new(&hub, "admin.cap", &more).refused(), None);
        }
    }
    assert_eq!(
        deployer.run(&["function", "invoke", "shout", "--data", "hello", "--wait"]).ok().text(),
        "loud 1  hello!\n"
    );
    deployer.run(&["function", "logs", "shout"]).ok();
}

#[test]
fn a_caller_gets_the_result_of_its_own_run_and_no_more() {
    let hub = Hub::new();
    let script = "#!/bin/sh\nread -r word\n[ \"$word\" != bad ] || { echo a secret >&2; exit 3; }\nprintf '\\tgot %s\\n' \"$word\" >&3\n";
    hub.place.write("tell.sh", script);
    hub.place.run("function deploy tell --runtime oneshot --code tell.sh --retries 0 -- ./tell.sh".split(' ')).ok();
    hub.place.run(["function", "invoke", "tell", "first"]).ok();
    let caller = Deployer::new(&hub, "caller.cap", &["run=function:tell", "append=invoke/tell"]);
    assert_eq!(caller.run(&["function", "invoke", "tell", "this"]).ok().text(), "got this\n");
    let failed = caller.run(&["function", "invoke", "tell", "bad"]).fails("MR3109", 1);
    assert!(failed.stderr.contains("status 3") && !failed.stderr.contains("a secret"), "{}", failed.stderr);
    // It may not look at runs: neither at those of others, nor at its own.
    for run in hub.place.run(["--json", "run", "ls", "--function", "tell"]).ok().objects() {
        caller.run(&["run", "show", run["id"].as_str().unwrap()]).fails("MR6132", 1);
    }
    let other = Deployer::new(&hub, "other.cap", &["run=function:shout", "append=invoke/tell"]);
    other.run(&["function", "invoke", "tell", "x"]).fails("MR6132", 1);
}

#[test]
fn a_name_that_was_probably_meant_is_told_only_to_those_who_may_see_it() {
    let hub = Hub::new();
    hub.place.run(["log", "create", "salaries"]).ok();
    let tells = |file: &str, may: &[&str]| {
        Deployer::new(&hub, file, may).run(&["log", "get", "salarie"]).fails("MR2101", 1).stderr
    };
    assert!(tells("both.cap", &["read=salarie", "read=salaries"]).contains("did you mean 'salaries'?"));
    assert!(tells("all.cap", &["read=salarie", "observe=namespace"]).contains("did you mean 'salaries'?"));
    let reported = tells("one.cap", &["read=salarie"]);
    assert!(reported.contains("no log 'salarie'") && !reported.contains("salaries"), "{reported}");
    let reported = Deployer::new(&hub, "none.cap", &["read=other"]).run(&["log", "get", "salarie"]).fails("MR6132", 1);
    assert!(!reported.stderr.contains("salaries"), "{}", reported.stderr);
}

#[test]
fn each_change_takes_its_right() {
    let hub = Hub::new();
    hub.place.write("shout.sh", SHOUT);
    let deploy = "function deploy shout --runtime oneshot --code shout.sh --on raw --retries 0 -- ./shout.sh";
    hub.place.run(deploy.split(' ')).ok();
    hub.place.run(["log", "append", "raw", "x"]).ok();
    hub.place.run(["relay", "add", "raw", "other"]).ok();
    hub.place.idle();
    // The new log 'loud' is not there: the one run is a dead letter.
    let dead = hub.place.run(["--json", "run", "ls", "--state", "dead"]).ok().object();
    let dead = dead["id"].as_str().unwrap().to_owned();
    let changes: [(&[&str], &[&str]); 9] = [
        (&["function", "invoke", "shout", "x", "--no-wait"], &["run=function:shout", "append=raw"]),
        (&["run", "retry", &dead], &["run=function:shout"]),
        (&["run", "retry", "--function", "shout"], &["run=function:shout"]),
        (&["function", "backfill", "shout"], &["run=function:shout"]),
        (&["log", "trim", "raw", "--before", "1"], &["delete=raw"]),
        (&["relay", "add", "raw", "mr://127.0.0.1:1/x/raw"], &["read=raw", "append=peer:127.0.0.1:1/x/raw"]),
        (&["relay", "add", "raw", "raw/copy"], &["read=raw", "append=raw/copy", "bind=raw/copy"]),
        (&["relay", "rm", "raw"], &["admin=namespace"]),
        (&["function", "rm", "shout", "--force"], &["bind=function:shout"]),
    ];
    hub.place.run(["log", "create", "raw/copy"]).ok();
    for (at, (change, takes)) in changes.iter().enumerate() {
        for lacks in *takes {
            let mut rest: Vec<&str> = takes.iter().copied().filter(|grant| grant != lacks).collect();
            // Some right there is in any case.
            rest.push("append=other");
            let named = format!("{at}-{}.cap", lacks.replace(['=', ':', '/'], "-"));
            Deployer::new(&hub, &named, &rest).run(change).fails("MR6132", 1);
        }
        let may = Deployer::new(&hub, &format!("{at}.cap"), takes);
        may.run(change).ok();
    }
    // Nobody is told whether there is what they may not change.
    let stranger = Deployer::new(&hub, "stranger.cap", &["append=other"]);
    let reported = |args: &[&str], name: &str| stranger.run(args).fails("MR6132", 1).stderr.replace(name, "NAME");
    assert_eq!(reported(&["run", "retry", &dead], &dead), reported(&["run", "retry", "1-0-1"], "1-0-1"));
    assert_eq!(reported(&["run", "cancel", &dead], &dead), reported(&["run", "cancel", "1-0-1"], "1-0-1"));
    assert_eq!(reported(&["relay", "rm", "raw-2"], "raw-2"), reported(&["relay", "rm", "none"], "none"));
    assert_eq!(reported(&["function", "rm", "shout"], "shout"), reported(&["function", "rm", "none"], "none"));
    for args in [&["outbox", "rm", "x"][..], &["outbox", "reset", "x", "--skip"], &["relay", "resume", "raw"]] {
        stranger.run(args).fails("MR6132", 1);
    }
    stranger.run(&["down"]).fails("MR6170", 1);
    stranger.run(&["up"]).fails("MR6170", 1);
}

#[test]
fn removing_logs_takes_the_right_to_the_dead_letters_of_deployed_functions() {
    let hub = Hub::new();
    hub.place.write("shout.sh", SHOUT);
    hub.place.run(["log", "create", "orders/failed"]).ok();
    let deploy =
        "function deploy shout --runtime oneshot --code shout.sh --on raw --dead-letter orders/failed -- ./shout.sh";
    hub.place.run(deploy.split(' ')).ok();
    hub.place.run(["log", "append", "orders/failed", "x"]).ok();
    // The file that is sent names another log of dead letters.
    let down = |file: &str, may: &[&str]| {
        let deployer = Deployer::new(&hub, file, may);
        let functions = APPLICATION.split_once("[functions.").unwrap().1.replace("on = [\"raw\"]\n", "on = []\n");
        deployer.place.write("millrace.toml", &format!("[functions.{functions}"));
        deployer.run(&["down", "--logs", "--force"])
    };
    let some = ["bind=function:shout", "delete=dead/shout"];
    let reported = down("some.cap", &some).fails("MR6170", 1).stderr;
    assert!(reported.contains("removing the logs needs delete on log 'orders/failed'"), "{reported}");
    assert_eq!(hub.place.records("orders/failed"), ["x"]);
    // Callers without the right to the function are not told of it.
    let reported = down("none.cap", &["delete=dead/shout"]).fails("MR6170", 1).stderr;
    assert!(!reported.contains("orders"), "{reported}");
    down("all.cap", &["bind=function:shout", "delete=dead/shout", "delete=orders/failed"]).ok();
    let logs = hub.place.run(["--json", "log", "ls"]).ok().objects();
    assert!(logs.iter().all(|log| log["name"] != "orders/failed"), "{logs:?}");
    assert!(hub.place.run(["cap", "audit"]).ok().text().contains("orders/failed"));
}

#[test]
fn of_many_rights_that_a_deployer_lacks_some_are_named() {
    let hub = Hub::new();
    let stranger = Deployer::new(&hub, "stranger.cap", &["append=other"]);
    // As many logs as a file may have, none of which the sender may make.
    let logs: String = (0..10_000).map(|at| format!("[logs.a{at}]\n")).collect();
    stranger.place.write("millrace.toml", &logs);
    let reported = stranger.run(&["up"]).fails("MR6170", 1).stderr;
    assert!(reported.contains("on log 'a19'; and more") && !reported.contains("'a20'"), "{reported}");
}

#[test]
fn other_code_of_a_function_takes_the_right_to_the_logs_that_it_is_bound_to() {
    let hub = Hub::new();
    hub.place.write("shout.sh", SHOUT);
    let deploy = "function deploy shout --runtime oneshot --code shout.sh --on other -- ./shout.sh";
    hub.place.run(deploy.split(' ')).ok();
    // Bound to nothing, it would still get the records of pending runs.
    let enough = ["bind,run=function:shout", "append,create=dead/shout", "append=raw"];
    let up = |file: &str, may: &[&str]| {
        let deployer = Deployer::new(&hub, file, may);
        let file = "[functions.shout]\nruntime = \"oneshot\"\ncode = \"shout.sh\"\ncommand = [\"./shout.sh\"]\n\
            on = []\nreads = []\nappends = [\"raw\"]\n";
        deployer.place.write("millrace.toml", file);
        deployer.run(&["up", "--dry-run"])
    };
    let reported = up("enough.cap", &enough).fails("MR6170", 1).stderr;
    assert!(reported.contains("function 'shout' needs read on log 'other'"), "{reported}");
    let stranger = up("stranger.cap", &["append=raw"]).fails("MR6170", 1).stderr;
    assert!(!stranger.contains("log 'other'"), "{stranger}");
    let more: Vec<&str> = enough.iter().copied().chain(["read=other", "admin=namespace"]).collect();
    up("more.cap", &more).ok();
}

/// Deploys a function for records of this log, whose runs fail while there is no log 'loud'.
fn deploy_failing(hub: &Hub, on: &str) {
    hub.place.write("shout.sh", SHOUT);
    let deploy = format!("function deploy shout --runtime oneshot --code shout.sh --on {on} --retries 0 -- ./shout.sh");
    hub.place.run(deploy.split(' ')).ok();
}

#[test]
fn a_retry_takes_the_right_to_read_the_record_unless_the_function_is_bound_to_its_log() {
    let hub = Hub::new();
    deploy_failing(&hub, "other");
    hub.place.run(["log", "append", "other", "x"]).ok();
    hub.place.idle();
    let dead = hub.place.run(["--json", "run", "ls", "--state", "dead"]).ok().object();
    let dead = dead["id"].as_str().unwrap().to_owned();
    // Whoever deployed this one need not have had the right to read 'other'.
    deploy_failing(&hub, "raw");
    let runs = Deployer::new(&hub, "runs.cap", &["run=function:shout"]);
    let reported = runs.run(&["run", "retry", &dead]).fails("MR6132", 1).stderr;
    assert!(reported.contains("read on log 'other'"), "{reported}");
    let reported = runs.run(&["run", "retry", "--function", "shout"]).fails("MR6132", 1).stderr;
    assert!(reported.contains("1 dead letter of function 'shout'"), "{reported}");
    assert_eq!(hub.place.run(["--json", "run", "ls"]).ok().objects().len(), 1, "nothing was retried");
    let reads = Deployer::new(&hub, "reads.cap", &["run=function:shout", "read=other"]);
    reads.run(&["run", "retry", &dead]).ok();
    reads.run(&["run", "retry", "--function", "shout"]).ok();
}

#[test]
fn other_code_of_a_function_takes_the_right_to_the_logs_of_its_pending_runs() {
    let hub = Hub::new();
    // A run that waits until the host ends.
    let deploy = |on: &str| {
        hub.place.write("wait.sh", "#!/bin/sh\nexec sleep 100000\n");
        let deploy =
            format!("function deploy shout --runtime oneshot --code wait.sh --on {on} --timeout 1h -- ./wait.sh");
        hub.place.run(deploy.split(' ')).ok();
    };
    deploy("other");
    hub.place.run(["log", "append", "other", "x"]).ok();
    deploy("raw");
    let dry_run = |file: &str, more: &[&str]| {
        let may: Vec<&str> = ENOUGH.iter().chain(&["admin=namespace"]).chain(more).copied().collect();
        Deployer::new(&hub, file, &may).run(&["up", "--dry-run"])
    };
    let reported = dry_run("enough.cap", &[]).fails("MR6170", 1).stderr;
    assert!(reported.contains("function 'shout' needs read on log 'other'"), "{reported}");
    dry_run("more.cap", &["read=other"]).ok();
}

#[test]
fn functions_of_another_application_are_changed_only_if_they_are_taken_over() {
    let hub = Hub::new();
    let one = Deployer::new(&hub, "one.cap", &[&ENOUGH[..], &["admin=namespace"]].concat());
    one.run(&["up"]).ok();
    // Another user, whose file is at the same path of another machine.
    let also = ["admin=namespace", "bind=function:whisper", "append,create=dead/whisper"];
    let allowed: Vec<&str> = ENOUGH.iter().chain(&also).flat_map(|grant| ["--allow", grant]).collect();
    let two = hub.issue("two.cap", &allowed);
    let functions = || {
        let mut functions = hub.place.run(["--json", "function", "ls"]).ok().objects();
        functions.drain(..).map(|function| function["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    one.place.write("millrace.toml", &APPLICATION.replace("[functions.shout]", "[functions.whisper]"));
    one.run_with(&two, &["up"]).ok();
    assert_eq!(functions(), ["shout", "whisper"], "nothing of the other application is removed");
    one.place.write("millrace.toml", APPLICATION);
    for command in [&["up", "--dry-run"][..], &["up"], &["down"]] {
        let reported = one.run_with(&two, command).fails("MR6177", 1).stderr;
        assert!(
            reported.contains("function 'shout' was deployed from '/")
                && reported.contains(" sent from another machine"),
            "{reported}"
        );
    }
    assert_eq!(functions(), ["shout", "whisper"]);
    // Then it is no longer the application of the first, and the function that its file no longer names goes.
    one.run_with(&two, &["up", "--take-over"]).ok();
    assert_eq!(functions(), ["shout"]);
    one.run(&["up"]).fails("MR6177", 1);
    one.run(&["down", "--take-over"]).ok();
    assert!(functions().is_empty());
}

#[test]
fn a_change_of_what_is_amendable_takes_the_right_to_repair() {
    let hub = Hub::new();
    hub.place.write("millrace.toml", "[logs.raw]\namendable = true\n");
    hub.place.run(["up"]).ok();
    let upped = |file: &str, may: &str| {
        let deployer = Deployer::new(&hub, file, &[may]);
        deployer.place.write("millrace.toml", "[logs.raw]\n");
        deployer.run(&["up"])
    };
    upped("reads.cap", "read=raw").fails("MR6132", 1);
    upped("repairs.cap", "read,repair=raw").ok();
}

/// The command shows the repair that it opens: who may not see it is refused before there is one.
#[test]
fn a_repair_is_not_opened_by_a_command_that_may_not_show_it() {
    let hub = Hub::new();
    hub.place.run(["log", "append", "raw", "1"]).ok();
    let run = |file: &str, may: &str| {
        let deployer = Deployer::new(&hub, file, &[may, "observe=log:raw"]);
        deployer.run(&["repair", "run", "raw", "--at", "1", "--void"])
    };
    let refused = run("repairs.cap", "read,repair=raw").fails("MR6132", 1);
    assert!(refused.stderr.contains("observe"), "{}", refused.stderr);
    assert!(hub.place.run(["repair", "ls"]).ok().text().contains("no repairs"));
}

#[test]
fn a_change_of_the_field_that_has_the_time_takes_the_right_to_create() {
    let hub = Hub::new();
    hub.place.write("millrace.toml", "[logs.raw]\n");
    hub.place.run(["up"]).ok();
    let upped = |file: &str, may: &str, time: &str| {
        let deployer = Deployer::new(&hub, file, &[may]);
        deployer.place.write("millrace.toml", &format!("[logs.raw]\n{time}\n"));
        deployer.run(&["up"])
    };
    upped("reads.cap", "read=raw", "time = \"/t\"").fails("MR6132", 1);
    upped("again.cap", "read=raw", "").ok();
    upped("creates.cap", "read,create=raw", "time = \"/t\"").ok();
    upped("clears.cap", "read=raw", "").fails("MR6132", 1);
}

#[test]
fn web_assembly_is_deployed_by_those_who_administer_the_namespace() {
    let hub = Hub::new();
    let file = "[logs.raw]\n[functions.count]\nruntime = \"wasm\"\ncode = \"count.wasm\"\non = [\"raw\"]\nreads = []\n\
        appends = []\n";
    let up = |name: &str, more: &[&str]| {
        let enough = ["bind,read=raw", "bind=function:count", "append,create=dead/count"];
        let deployer = Deployer::new(&hub, name, &[&enough[..], more].concat());
        deployer.place.write("millrace.toml", file);
        deployer.place.write("count.wasm", "\0asm\u{1}\0\0\0");
        deployer.run(&["up", "--dry-run"])
    };
    let reported = up("some.cap", &[]).fails("MR6176", 1).stderr;
    assert!(reported.contains("runs in the host's process"), "{reported}");
    up("admin.cap", &["admin=namespace"]).ok();
}

#[test]
fn a_function_gets_the_monitor_of_another_with_the_right_to_deploy_that_one() {
    let hub = Hub::new();
    hub.place.write("shout.sh", SHOUT);
    let owned = APPLICATION.replace("[functions.shout]", "[functions.model]");
    hub.place.write("millrace.toml", &format!("{owned}monitor = \"gpu\"\n"));
    hub.place.run(["up"]).ok();
    // Its runs would keep back those of the other function for as long as they take.
    let up = |name: &str, more: &[&str]| {
        let deployer = Deployer::new(&hub, name, &[&ENOUGH[..], more].concat());
        deployer.place.write("millrace.toml", &format!("{APPLICATION}monitor = \"gpu\"\n"));
        deployer.run(&["up", "--dry-run"])
    };
    let reported = up("enough.cap", &[]).fails("MR6170", 1).stderr;
    assert!(reported.contains("monitor 'gpu' of other functions needs admin"), "{reported}");
    assert!(!reported.contains("model"), "{reported}");
    let more = up("more.cap", &["bind=function:model"]);
    assert!(more.code == 0 || more.stderr.starts_with("error[MR6176]"), "{more:?}");
}

/// Deploys the application with this in place of the command, by somebody who does not administer the namespace.
fn with_command(hub: &Hub, file: &str, command: &str) -> Option<String> {
    let deployer = Deployer::new(hub, file, &ENOUGH);
    deployer.place.write("millrace.toml", &APPLICATION.replace("command = [\"./shout.sh\"]", command));
    deployer.refused()
}

/// Whether somebody who does not administer the namespace deploys a function whose program is a file of the host. It takes a machine that
/// gives such functions a sandbox.
pub fn foreign_program(without: Option<Defence>) -> Option<bool> {
    let hub = hub(without);
    if !is_full(&hub) {
        return None;
    }
    Some(with_command(&hub, "program.cap", "command = [\"/bin/sh\", \"./shout.sh\"]").is_none())
}

#[test]
fn a_program_of_the_host_is_named_by_its_path_only_by_those_who_administer_the_namespace() {
    let hub = Hub::new();
    let shell = hub.place.path().join("bin/sh");
    hub.place.write("bin/sh", "#!/bin/sh\n");
    for (at, program) in ["/bin/sh", "../shout.sh", "./../../shout.sh", &shell.display().to_string()].iter().enumerate()
    {
        let command = format!("command = [\"{program}\", \"./shout.sh\"]");
        let reported = with_command(&hub, &format!("command-{at}.cap"), &command).unwrap_or_default();
        assert!(reported.starts_with("error[MR6170]") && reported.contains("with the program '"), "{reported}");
    }
    let python = APPLICATION
        .replace("runtime = \"oneshot\"", "runtime = \"python\"")
        .replace("command = [\"./shout.sh\"]", "handler = \"shout:shout\"\npython = \"/usr/bin/python3\"");
    let deployer = Deployer::new(&hub, "python.cap", &ENOUGH);
    deployer.place.write("millrace.toml", &python);
    let reported = deployer.refused().unwrap_or_default();
    assert!(reported.starts_with("error[MR6170]") && reported.contains("'/usr/bin/python3'"), "{reported}");
    // A name is looked up by the host, and a path in the code is the deployer's.
    for (at, command) in ["command = [\"sh\", \"./shout.sh\"]", "command = [\"shout.sh\"]"].iter().enumerate() {
        let reported = with_command(&hub, &format!("plain-{at}.cap"), command).unwrap_or_default();
        assert!(!reported.contains("MR6170"), "{reported}");
    }
}

/// Whether somebody who administers the namespace from elsewhere learns which files its host has: the certificates of a database's authorities
/// are to be read from one that exists, and from one that does not.
pub fn file_of_the_host(without: Option<Defence>) -> Option<bool> {
    let hub = hub(without);
    hub.place.write("key.pem", "a private key");
    let file = |name: &str| hub.place.path().join(name).display().to_string();
    let capability = hub.issue(
        "admin.cap",
        &["--allow", "admin,observe=namespace", "--allow", "create=there", "--allow", "create=gone"],
    );
    let secret = std::fs::read_to_string(capability).unwrap();
    let ask = |path: &str, body: Option<&str>| {
        let header = format!("Authorization: Bearer {}", secret.trim());
        let url = format!("https://127.0.0.1:{}/v1/namespaces/hub/{path}", hub.port);
        let mut command = std::process::Command::new("curl");
        command.args(["-sk", "--max-time", "100", "-H", &header, &url]);
        command.args(body.into_iter().flat_map(|body| ["-H", "Content-Type: application/json", "-d", body]));
        let answer = end(command, b"").text().to_owned();
        serde_json::from_str::<serde_json::Value>(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"))
    };
    for (name, authorities) in [("there", file("key.pem")), ("gone", file("no.pem"))] {
        // No database listens there.
        let set = serde_json::json!({ "do": "set-database", "database": name, "url": "postgresql://192.0.2.1:1/x", "authorities": authorities });
        let answer = ask("manage", Some(&set.to_string()));
        if answer["error"]["code"] == "MR7312" {
            return Some(false);
        }
        assert_eq!(answer["change"], "created", "{answer}");
        let create = serde_json::json!({ "do": "create-table", "table": name, "database": name });
        assert_eq!(ask("manage", Some(&create.to_string()))["change"], "created");
    }
    let mut reported = Vec::new();
    eventually("the host reports both", || {
        let answer = ask("databases", None);
        let all = answer["databases"].as_array().expect("a list");
        reported = all.iter().filter_map(|one| one["trouble"]["error"].as_str().map(str::to_owned)).collect();
        reported.len() == 2
    });
    Some(reported[0] != reported[1])
}

#[test]
fn the_functions_of_a_deployer_have_a_share_of_the_machine() {
    let hub = Hub::new();
    for (at, (line, what)) in
        [("memory = \"1TiB\"", "bytes of memory"), ("ordered = false\nconcurrency = 64", "64 runs at once")]
            .iter()
            .enumerate()
    {
        let deployer = Deployer::new(&hub, &format!("{at}.cap"), &ENOUGH);
        deployer.place.write("millrace.toml", &format!("{APPLICATION}{line}\n"));
        let reported = deployer.refused().unwrap_or_default();
        assert!(reported.starts_with("error[MR6170]") && reported.contains(what), "{reported}");
        let more: Vec<&str> = ENOUGH.iter().copied().chain(["admin=namespace"]).collect();
        let admin = Deployer::new(&hub, &format!("admin-{at}.cap"), &more);
        admin.place.write("millrace.toml", &format!("{APPLICATION}{line}\n"));
        admin.run(&["up", "--take-over"]).ok();
    }
}

#[test]
fn a_deployment_that_is_refused_does_not_tell_of_logs() {
    let hub = Hub::new();
    let reported = |file: &str, log: &str, history: &str| {
        let deployer = Deployer::new(&hub, file, &["append=raw"]);
        deployer.place.write("millrace.toml", &format!("[logs.{log}]\nhistory = {history}\n"));
        let dry = deployer.run(&["up", "--dry-run"]).fails("MR6170", 1).stderr;
        assert_eq!(deployer.run(&["up"]).fails("MR6170", 1).stderr, dry);
        dry.replace(&format!("'{log}'"), "LOG")
    };
    let none = reported("none.cap", "none", "7");
    assert_eq!(reported("shorter.cap", "other", "7"), none);
    assert_eq!(reported("longer.cap", "other", "10000000"), none);
}

/// A file of this machine that somebody with `admin` names as an interpreter, as code that was deployed before.
#[test]
fn an_interpreter_that_a_deployment_names_is_not_executed_by_the_host() {
    let hub = Hub::new();
    if !is_full(&hub) {
        // Then functions are not kept from the host either.
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let mark = dir.path().join("mark");
    let more: Vec<&str> = ENOUGH.iter().copied().chain(["admin=namespace"]).collect();
    let deployer = Deployer::new(&hub, "admin.cap", &more);
    deployer.place.write("shout.sh", &format!("#!/bin/sh\necho x > {}\necho /bin/sh\necho /\n", mark.display()));
    deployer.run(&["up"]).ok();
    let code = hub.place.run(["--json", "function", "ls"]).ok().object()["code"].as_str().unwrap().to_owned();
    let program = hub.place.namespace().join("functions").join(code).join("shout.sh");
    assert!(program.is_file());
    let python = APPLICATION.replace("runtime = \"oneshot\"", "runtime = \"python\"").replace(
        "command = [\"./shout.sh\"]",
        &format!("handler = \"shout:shout\"\npython = \"{}\"", program.display()),
    );
    deployer.place.write("millrace.toml", &python);
    assert_eq!(deployer.run(&["up"]).code, 1);
    assert!(!mark.exists(), "the host executed a file that a deployment named");
}
