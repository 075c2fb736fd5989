//! The runs of a device are runs of the namespace, and repairs replay them with the twin of their function.

use super::{Bench, measured};
use millrace_tests::{end, eventually};
use serde_json::{Value, json};
use std::{fs, path::Path, process::Command};

/// How many records the mean is of.
const NEWEST: usize = 8;

/// What `mean.c` makes of record `seqno`, if the records are these.
pub(super) fn mean(raw: &[String], seqno: usize) -> String {
    let of = &raw[seqno.saturating_sub(NEWEST)..seqno];
    let hundredths: Vec<i64> = of.iter().map(|text| (text.parse::<f64>().unwrap() * 100.0).round() as i64).collect();
    let mean = hundredths.iter().sum::<i64>() / hundredths.len() as i64;
    format!("{}.{:02}", mean / 100, mean % 100)
}

impl Bench {
    /// Compiles the source of the device's function to WebAssembly, with changes.
    fn twin(&self, name: &str, changes: &[(&str, &str)]) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut source = fs::read_to_string(root.join("device/examples/mean.c")).unwrap();
        for (from, to) in changes {
            assert!(source.contains(from), "{from}");
            source = source.replace(from, to);
        }
        self.place.write("twin.c", &source);
        let mut clang = Command::new("clang");
        clang.args([
            "--target=wasm32",
            "-O2",
            "-ffp-contract=off",
            "-nostdlib",
            "-Wl,--no-entry",
            "twin.c",
            "-o",
            name,
        ]);
        clang.arg("-I").arg(root.join("sdk/c")).current_dir(self.place.path());
        assert!(clang.status().expect("clang starts").success());
    }

    /// Corrects records of the device's log, and applies the repair; what it says of itself.
    fn correct(&self, log: &str, values: &[(u64, &str)]) -> Value {
        let lines = values.iter().map(|(seqno, value)| json!({ "seqno": seqno, "value": value }).to_string() + "\n");
        self.place.write("values.json", &lines.collect::<String>());
        self.repair(&[log, "--values", "values.json"])
    }

    fn repair(&self, of: &[&str]) -> Value {
        let run = self.place.run(["--json", "repair", "run"].iter().chain(of)).ok().object();
        let number = run["repair"].clone();
        self.place.run(["repair", "apply", &number.to_string()]).ok();
        let all = self.place.run(["--json", "repair", "ls"]).ok().objects();
        all.into_iter().find(|repair| repair["repair"] == number).expect("it is listed")
    }
}

fn all(upto: u64) -> Vec<String> {
    (1..=upto).map(measured).collect()
}

fn means(raw: &[String]) -> Vec<String> {
    (1..=raw.len()).map(|seqno| mean(raw, seqno)).collect()
}

#[test]
fn the_runs_of_a_device_are_runs_of_the_namespace() {
    let mut bench = Bench::new();
    bench.run("kitchen.flash", "--records 12").ok();
    bench.kill();
    bench.serve();
    bench.run("kitchen.flash", "--records 20").ok();
    let place = &bench.place;
    let runs = place.run(["--json", "run", "ls", "--function", "kitchen.mean", "-l", "50"]).ok().objects();
    assert_eq!(runs.len(), 20);
    assert!(runs.iter().all(|run| run["state"] == "done"), "{runs:?}");
    let run = runs.iter().find(|run| run["seqno"] == 20).unwrap();
    let shown = place.run(["--json", "run", "show", run["id"].as_str().unwrap()]).ok().object();
    assert_eq!(shown["appends"], json!([{ "log": "kitchen/mean", "seqno": 20 }]));
    let read: Vec<u64> = shown["reads"].as_array().unwrap().iter().map(|row| row["seqno"].as_u64().unwrap()).collect();
    assert_eq!(read, (13..=20).collect::<Vec<_>>());
    // The attempt was made before its run was imported.
    assert!(shown["attempts"][0]["time"].as_str() <= shown["triggered"].as_str(), "{shown}");
    let traced = place.run(["--json", "trace", "kitchen/mean@20", "--up"]).ok();
    assert!(traced.text().contains("kitchen.mean") && traced.text().contains("kitchen/raw"), "{}", traced.text());
    let graph = place.run(["--json", "graph"]).ok();
    assert!(graph.text().contains("kitchen.mean"), "{}", graph.text());
    for target in ["kitchen.mean", "kitchen/raw"] {
        let why = place.run(["why", target]).ok();
        assert!(why.text().contains("runs on device kitchen; it has no twin here"), "{}", why.text());
    }
    place.run(["namespace", "check"]).ok();
    // Nothing runs it here: no host has its code.
    place.run(["function", "backfill", "kitchen.mean", "--log", "kitchen/raw"]).fails("MR6345", 1);
    place.run(["log", "create", "other"]).ok();
    place.run(["log", "append", "other", "x", "--function", "kitchen.mean"]).fails("MR6345", 1);
    place.write("f.sh", "cat >&2\n");
    let deploy = "function deploy kitchen.mean --runtime oneshot --code f.sh --on other -- sh ./f.sh";
    place.run(deploy.split(' ')).fails("MR6345", 1);
    place
        .run("function deploy other --runtime oneshot --code f.sh --on kitchen/raw --at other -- sh ./f.sh".split(' '))
        .fails("MR3002", 1);
    // A function of this host that is bound to what the runs append runs for each of its records.
    place.run("function deploy shout --runtime oneshot --code f.sh --on kitchen/mean -- sh ./f.sh".split(' ')).ok();
    bench.run("kitchen.flash", "--records 23").ok();
    place.idle();
    let shouted = place.run(["--json", "run", "ls", "--function", "shout"]).ok().objects();
    assert_eq!(shouted.len(), 3);
    let [log, caused] = [&shouted[0]["log"], &shouted[0]["caused_by"]];
    assert_eq!(log, "kitchen/mean");
    let of = place.run(["--json", "run", "show", caused.as_str().unwrap_or_default()]).ok().object();
    assert_eq!(of["function"], "kitchen.mean", "{of}");
    bench.has("kitchen", 23);
    // Over HTTP, a device is the document of the command.
    let get = |path: &str| {
        let mut curl = Command::new("curl");
        curl.arg("-sS").arg(format!("http://127.0.0.1:{}/v1/namespaces{path}", bench.port));
        end(curl, b"").ok().object()
    };
    let name = get("")["namespaces"][0]["name"].as_str().expect("it has a name").to_owned();
    let get = |path: &str| get(&format!("/{name}/{path}"));
    let shown = bench.shown("kitchen");
    assert_eq!(get("devices"), json!({ "devices": [shown.clone()], "next": null, "refused": [] }));
    assert_eq!(get("devices/kitchen"), shown);
    assert_eq!(get("devices/cellar")["error"]["code"], "MR6303");
    // A copy of the namespace has the runs, and is complete without code.
    let backup = place.path().join("backup");
    place.run(["namespace", "backup", backup.to_str().unwrap()]).ok();
    place.run(["namespace", "check", backup.to_str().unwrap()]).ok();
}

#[test]
fn a_repair_replays_the_runs_of_a_device_with_its_twin_and_keeps_those_without() {
    let bench = Bench::new();
    let place = &bench.place;
    bench.run("kitchen.flash", "--records 20").ok();
    // What depends on the device's records here.
    place.run(["log", "create", "copy"]).ok();
    place.write("copy.sh", "read text\nprintf 'copy\\tcopy of %s\\n' \"$text\" >&3\n");
    place
        .run("function deploy copy --runtime oneshot --code copy.sh --on kitchen/mean -- sh ./copy.sh".split(' '))
        .ok();
    bench.run("kitchen.flash", "--records 40").ok();
    place.idle();
    eventually("all are copied", || place.records("copy").len() == 20);
    let mut raw = all(40);
    assert_eq!(place.records("kitchen/mean"), means(&raw));

    // Without a twin, what the runs left stays, and the plan says so.
    place.write("one.json", "{\"seqno\":30,\"value\":\"40.00\"}\n");
    let plan = place.run(["--json", "repair", "plan", "kitchen/raw", "--values", "one.json"]).ok().object();
    assert_eq!((&plan["not_run"][0]["reason"], &plan["not_run"][0]["runs"]), (&"no-twin".into(), &8.into()), "{plan}");
    let repair = bench.correct("kitchen/raw", &[(30, "40.00")]);
    assert_eq!(repair["not_run"], json!([{ "function": "kitchen.mean", "runs": 8, "device": true }]), "{repair}");
    assert_eq!(place.records("kitchen/mean"), means(&raw));
    raw[29] = "40.00".into();
    assert_eq!(place.records("kitchen/raw"), raw);
    place.run(["device", "verify", "kitchen"]).fails("MR3001", 1);

    // With one, they are replayed, also those from before it was there; and so is what depends on their records.
    bench.twin("mean.wasm", &[]);
    place.write(
        "millrace.toml",
        "[devices.thermo]\nunits = [\"kitchen\", \"cellar\"]\nlogs = [\"raw\", \"mean\"]\n\
         functions.mean = { on = \"raw\", twin = \"mean.wasm\" }\n",
    );
    place.run(["up"]).ok();
    // What a repair has replaced is not what the firmware had: runs that read it say nothing of the firmware.
    let verify = |last: &str| place.run(["--json", "device", "verify", "kitchen", "--last", last]);
    let verified = verify("100").ok().object();
    assert_eq!((&verified["function"], &verified["runs"]), (&"thermo.mean".into(), &32.into()), "{verified}");
    assert_eq!((&verified["same"], &verified["differs"]), (&32.into(), &Value::Null), "{verified}");
    let plan =
        place.run(["--json", "repair", "plan", "kitchen/raw", "--values", "one.json", "--verify", "5"]).ok().object();
    // The device still has record 30, and what it computed from that.
    let on_device = |log: &str, records: u64, range: (u64, u64), history: u64| {
        let (first, last) = range;
        json!({ "device": "kitchen", "log": log, "records": records, "range": [first, last], "history": history, "keep": false, "commands": false })
    };
    let kept = json!({ "logs": [on_device("kitchen/mean", 8, (30, 37), 500), on_device("kitchen/raw", 1, (30, 30), 2000)], "more": 0 });
    place.write("other.json", "{\"seqno\":30,\"value\":\"42.00\"}\n");
    let other =
        |more: &[&str]| place.run(more.iter().chain(&["repair", "plan", "kitchen/raw", "--values", "other.json"])).ok();
    assert_eq!(other(&["--json"]).object()["on_devices"], kept);
    let text = other(&[]);
    let said = "kitchen/raw      1 record  @30..30 stays as it was in the flash of kitchen; its functions read them until it has 2000 newer ones";
    assert!(text.text().contains(said), "{}", text.text());
    // The host says the same.
    let values = json!({ "do": "plan", "log": "kitchen/raw", "corrections": [{ "seqno": 30, "data": "42.00" }] });
    let found = planned(&bench, &values);
    assert_eq!((&found["on_devices"], &found["on_devices_more"]), (&kept["logs"], &0.into()), "{found}");
    let of_device = plan["verified"].as_array().unwrap().iter().find(|of| of["device"] == "kitchen");
    assert_eq!(of_device.map(|of| &of["same"]), Some(&5.into()), "{plan}");
    assert_eq!(plan["not_run"], json!([]), "{plan}");
    let repair = bench.correct("kitchen/raw", &[(25, "10.00"), (30, "41.00")]);
    assert_eq!(repair["not_run"], json!([]), "{repair}");
    (raw[24], raw[29]) = ("10.00".into(), "41.00".into());
    let expected = means(&raw);
    assert_eq!(place.records("kitchen/mean"), expected);
    let copies: Vec<String> = expected[20..].iter().map(|mean| format!("copy of {mean}")).collect();
    assert_eq!(place.records("copy"), copies);
    place.run(["namespace", "check"]).ok();

    // The device goes on with what it has, under its numbers.
    bench.run("kitchen.flash", "--records 50").ok();
    assert_eq!(place.records("kitchen/mean").len(), 50);
    let newest = place.run(["log", "get", "kitchen/mean", "50", "--raw"]).ok();
    assert_eq!(newest.text().trim(), mean(&all(50), 50));
    let repair = bench.repair(&["kitchen/raw", "--at", "45", "--void"]);
    assert!(repair["counts"]["cancelled"].as_u64() > Some(0), "{repair}");
    place.run(["log", "get", "kitchen/mean", "45"]).fails("MR7006", 1);
    let newest = place.run(["log", "get", "kitchen/mean", "50", "--raw"]).ok();
    assert_eq!(newest.text().trim(), mean(&all(50)[45..], 5), "the mean of those behind the one that was removed");
}

/// A plan that the host makes.
fn planned(bench: &Bench, request: &Value) -> Value {
    let ask = |path: &str, body: Option<String>| {
        let mut curl = Command::new("curl");
        curl.arg("-sS").arg(format!("http://127.0.0.1:{}/v1/namespaces/main/{path}", bench.port));
        let body = body.iter().flat_map(|body| ["-H", "Content-Type: application/json", "-d", body]);
        curl.args(body);
        end(curl, b"").ok().object()
    };
    let plan = ask("repairs", Some(request.to_string()))["plan"].clone();
    let mut found = Value::Null;
    eventually("the plan is made", || {
        found = ask(&format!("plans/{plan}"), None);
        found["state"] != "running"
    });
    found["found"].clone()
}

#[test]
fn a_plan_names_what_a_device_goes_on_to_read_and_a_command_corrects_its_settings() {
    let bench = Bench::new();
    let place = &bench.place;
    bench.run("kitchen.flash", "--records 5").ok();
    let send = |value: &str| {
        place.run(["device", "send", "kitchen", "config", value]).ok();
        eventually("the device has the command", || {
            bench.run("kitchen.flash", "--records 5 --linger 1500").ok();
            bench.shown("kitchen")["commands_waiting"] == 0
        });
    };
    send("every=60");
    send("every=6");
    let logs = bench.shown("kitchen")["kept"].clone();
    let config = json!({ "log": "config", "history": 1, "keep": true, "commands": true });
    assert!(logs.as_array().unwrap().contains(&config), "{logs}");
    // The log keeps one record: the one before is read by nobody any more.
    let plan = |seqno: u64| {
        place.write("config.json", &(json!({ "seqno": seqno, "value": "every=600" }).to_string() + "\n"));
        place.run(["--json", "repair", "plan", "kitchen/config", "--values", "config.json"]).ok().object()
    };
    let of_config =
        |plan: &Value| plan["on_devices"]["logs"].as_array().unwrap().iter().any(|it| it["log"] == "kitchen/config");
    assert!(!of_config(&plan(1)));
    let settings = plan(2);
    let kept =
        settings["on_devices"]["logs"].as_array().unwrap().iter().find(|it| it["log"] == "kitchen/config").unwrap();
    assert_eq!(
        (&kept["commands"], &kept["history"], &kept["records"]),
        (&true.into(), &1.into(), &1.into()),
        "{settings}"
    );
    let text = place.run(["repair", "plan", "kitchen/config", "--values", "config.json"]).ok();
    let said = "after the repair, send the right one: millrace device send kitchen config VALUE";
    assert!(text.text().contains(said), "{}", text.text());
    bench.correct("kitchen/config", &[(2, "every=600")]);
    assert_eq!(place.records("kitchen/config"), ["every=60", "every=600"]);
    // What the plan says to do.
    send("every=600");
    assert_eq!(place.records("kitchen/config"), ["every=60", "every=600", "every=600"]);
    eventually("the device has applied it", || {
        bench.run("kitchen.flash", "--records 5").ok();
        place.records("kitchen/applied").last().map(String::as_str) == Some("every=600")
    });
    assert!(!of_config(&plan(2)), "the device has a newer one");
}

#[test]
fn a_twin_that_does_something_else_is_named_and_changes_no_numbers_of_a_device() {
    let bench = Bench::new();
    let place = &bench.place;
    let deploy = |code: &str| {
        let words = format!("function deploy thermo.mean --at thermo --runtime wasm --code {code} --on kitchen/raw");
        place.run(words.split(' ')).ok();
    };
    bench.twin("other.wasm", &[("NEWEST = 8", "NEWEST = 7")]);
    bench.twin("fails.wasm", &[("return mr_append(\"mean\"", "return 1 + mr_append(\"mean\"")]);
    let twice = "mr_append(\"mean\", text, 1);\n    return mr_append(\"mean\"";
    bench.twin("twice.wasm", &[("return mr_append(\"mean\"", twice)]);
    place.run(["log", "create", "kitchen/raw"]).ok();
    for (round, code) in ["other.wasm", "fails.wasm", "twice.wasm"].into_iter().enumerate() {
        deploy(code);
        let records = 20 * (round as u64 + 1);
        bench.run("kitchen.flash", &format!("--records {records}")).ok();
        let verified = place.run(["--json", "device", "verify", "kitchen", "--last", "5"]);
        assert_eq!(verified.code, 1, "{code}: {}", verified.stderr);
        let verified = verified.object();
        assert_eq!(
            (&verified["function"], &verified["same"]),
            (&"thermo.mean".into(), &0.into()),
            "{code}: {verified}"
        );
        assert!(verified["differs"].as_str().is_some_and(|run| !run.is_empty()), "{code}: {verified}");
    }
    let said = place.run(["device", "verify", "kitchen", "--last", "5"]);
    assert!(
        said.text().contains("the firmware of kitchen differs from its twin thermo.mean: 5 of 5 runs"),
        "{}",
        said.text()
    );
    place.write("one.json", "{\"seqno\":50,\"value\":\"40.00\"}\n");
    let plan = place.run(["repair", "plan", "kitchen/raw", "--values", "one.json", "--verify", "3"]).ok();
    assert!(plan.text().contains("the firmware computes something else than its twin"), "{}", plan.text());
    // What the twin cannot put into the places of the device's records stays.
    for (seqno, runs) in [(30, 8), (50, 8)] {
        let before = place.records("kitchen/mean");
        let repair = bench.correct("kitchen/raw", &[(seqno, "40.00")]);
        assert_eq!(repair["not_run"], json!([{ "function": "thermo.mean", "runs": runs, "device": true }]), "{repair}");
        assert_eq!(place.records("kitchen/mean"), before);
    }
    // Another twin is still one: each run is replayed with the one of its time.
    let repair = bench.correct("kitchen/raw", &[(5, "40.00")]);
    assert_eq!(repair["not_run"], json!([]), "{repair}");
    bench.run("kitchen.flash", "--records 65").ok();
    assert_eq!(place.records("kitchen/mean").len(), 65);
}
