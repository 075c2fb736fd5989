//! The guides, typed as they are there.

use millrace_tests::{PAGE, Place, Port, binary, end_within, patient};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the repository").to_owned()
}

/// What somebody types who reads a guide: its shell blocks, but for the first, which builds and goes to a new directory.
fn typed(guide: &str) -> String {
    let text = fs::read_to_string(root().join("docs/guide").join(guide)).expect("the guide is part of the repository");
    let inside = |block: &str| block.split_once("\n```").expect("every block ends").0.to_owned();
    text.split("```sh\n").skip(2).map(inside).collect::<Vec<_>>().join("\n")
}

/// The extras with which a guide's first block installs the Python package, if it does.
fn extras(guide: &str) -> Option<Vec<String>> {
    let text = fs::read_to_string(root().join("docs/guide").join(guide)).expect("the guide is part of the repository");
    let package = text.split_once("pip install ")?.1.split_whitespace().next()?.trim_matches('\'');
    let installed = package.strip_prefix("./sdk/python")?;
    let extras = installed.trim_matches(['[', ']']).split(',').filter(|extra| !extra.is_empty());
    Some(extras.map(str::to_owned).collect())
}

/// Where Python is found that has the package and what these extras need, and nothing else.
fn environment(dir: &Path, extras: &[String]) -> String {
    let mut made = Command::new(root().join(".venv/bin/python"));
    made.arg(root().join("tests/environment.py")).arg(dir).args(extras);
    end_within(PAGE, made, b"").ok().text().trim().to_owned()
}

/// Types a guide into a shell with job control; what it printed.
fn type_in(guide: &str) -> String {
    type_with(guide, |typed| typed)
}

/// The same, with this change to what is typed.
fn type_with(guide: &str, change: impl FnOnce(String) -> String) -> String {
    let place = Place::empty();
    // The ports of the page may be taken here.
    let ports = [7171, 7172, 7173].map(|reported| (reported, Port::reserve()));
    let mut typed = patient(&typed(guide));
    for (reported, port) in &ports {
        for address in ["127.0.0.1", "127.0.0.2", "0.0.0.0"] {
            typed = typed.replace(&format!("{address}:{reported}"), &format!("{address}:{port}"));
        }
    }
    // Hosts must not outlive the test; those that a guide kills are expected to die.
    let typed = change(typed);
    let script =
        format!("set -me\ntrap 'kill -9 -- $(jobs -p | sed s/^/-/) 2>/dev/null || true' EXIT\n{typed}\nwait || true\n");
    let mut shell = Command::new("bash");
    let bin = binary().parent().expect("the binary is in a directory").display().to_string();
    let path = std::env::var("PATH").expect("there is a PATH");
    // A guide has what it tells its reader to install.
    let python = extras(guide).map(|extras| environment(&place.path().join("environment"), &extras));
    let path = match python {
        Some(python) => format!("{bin}:{python}:{path}"),
        None => format!("{bin}:{path}"),
    };
    shell.args(["-c", &script]).current_dir(place.path()).env("PATH", path).env("MILLRACE_C", root().join("sdk/c"));
    shell.env("MEAN", root().join("device/examples/mean.c"));
    let built = |name: &str| root().join("device/build").join(name);
    shell.env("STATION", built("station")).env("BOARD", built("arm/board.elf"));
    shell.env("STATION_2", built("station-2")).env("BOOT", built("boot"));
    shell.env("BOARD_BOOT", built("arm/boot.elf")).env("BOARD_IMAGES", built("arm"));
    shell
        .env_remove("MILLRACE_NAMESPACE")
        .env("XDG_CONFIG_HOME", place.path().join("config"))
        .env("XDG_STATE_HOME", place.path().join("state"));
    let ended = end_within(PAGE, shell, b"");
    assert_eq!(ended.code, 0, "{}\n{}", ended.text(), ended.stderr);
    ended.text().to_owned()
}

#[track_caller]
fn says(printed: &str, expected: &[&str]) {
    for expected in expected {
        assert!(printed.contains(expected), "{expected} is not in\n{printed}");
    }
}

#[test]
fn sensors() {
    let printed = type_in("sensor.md");
    says(&printed, &["21.5", "21.7", "5000", "kitchen: 6001.0", "record 5005"]);
}

#[test]
fn devices() {
    let device = root().join("device");
    let mut made = Command::new("flock");
    made.arg(device.join("Makefile")).args(["make", "-s", "-C"]).arg(&device);
    end_within(PAGE, made, b"").ok();
    let printed = type_in("device.md");
    says(&printed, &["delivered 602: raw 100, mean 100", "kitchen/mean@7", "raw 200, mean 200", "raw 110, mean 110"]);
    says(
        &printed,
        &[
            "runs on device kitchen",
            "the firmware of kitchen and its twin station.mean did the same in 200 runs",
            "55 runs",
            "19.50",
            "confirmed DeviceUpdate(number=3, version='2.1'",
        ],
    );
    says(
        &printed,
        &["attic runs version 2", "attic went back to the firmware before", "MR6348: the device runs version 2 again"],
    );
    says(&printed, &["shed runs version 2", "shed went back to the firmware before", "boot: slot 1"]);
    says(
        &printed,
        &["cellar/applied@1", "_commands/cellar@1", "thermometer kitchen on mps2-an385", "measured everything"],
    );
}

#[test]
fn data() {
    let printed = type_in("data.md");
    says(
        &printed,
        &[
            "std",
            "spread",
            "{'hour': 24, 'spread': 4.5}",
            "kitchen",
            "_seqno,_time,_observed,at,celsius",
            "'untimed': 1",
        ],
    );
    let keyed = printed.lines().filter(|line| line.trim() == "26").count();
    assert_eq!(keyed, 2, "the same number twice:\n{printed}");
}

#[test]
fn sql() {
    let printed = type_in("sql.md");
    says(&printed, &["19.99158313725492", "16.48", "22500", "exit code 2", "49153", "50999,20", "11000", "19.499970"]);
}

#[test]
fn tables() {
    let printed = type_in("tables.md");
    let honours = r#"{"name":"bob","score":11}"#;
    let carol = r#"{"name":"carol","score":10}"#;
    says(
        &printed,
        &[
            "alice  {\"score\": 7}",
            "refused",
            "etag: \"3\"",
            "bob {'score': 11}",
            "carol {'score': 9}",
            honours,
            "a typing error",
            carol,
            "corrects 1 record of 'grades'",
        ],
    );
}

#[test]
fn serverless() {
    let printed = type_in("serverless.md");
    says(
        &printed,
        &[
            "\"sum\":17",
            "\"order\":5",
            "id: ",
            "MR3110",
            "failed for good",
            "millrace_function_pending",
            "MR2107",
            "MR2101",
        ],
    );
    let answers: Vec<&str> = printed.lines().filter(|line| line.starts_with("{\"seqno\":3,")).collect();
    assert_eq!(answers.len(), 2, "the same record twice:\n{printed}");
    assert_eq!(printed.matches("{\"price\": 3, \"count\": 4}").count(), 1, "one payment, of two attempts:\n{printed}");
}

#[test]
fn the_first_block_of_a_guide_builds_what_the_others_need() {
    let guides = fs::read_dir(root().join("docs/guide")).unwrap().map(|file| file.unwrap().file_name());
    let guides: Vec<String> = guides.map(|name| name.into_string().unwrap()).collect();
    assert!(guides.len() > 10, "{guides:?}");
    for guide in guides {
        let text = fs::read_to_string(root().join("docs/guide").join(&guide)).unwrap();
        let first = text.split("```sh\n").nth(1).unwrap().split("\n```").next().unwrap();
        let needs = |command: &str| typed(&guide).lines().any(|line| line.starts_with(&format!("{command} ")));
        for (command, builds) in [("millrace", "cargo build --release -p millrace-cli\n"), ("python", "pip install")] {
            assert!(!needs(command) || first.contains(builds), "{guide}: nothing in its first block makes {command}");
        }
        assert!(!typed(&guide).contains("$MILLRACE_C") || first.contains("MILLRACE_C="), "{guide}");
    }
}

#[test]
fn parallelism() {
    let printed = type_in("parallelism.md");
    says(&printed, &["20 (100 %)", "5 of 5", "wrote both.svg", "Q3", "fileb://function.zip", "20/4/S/s on log"]);
}

#[test]
fn tests_of_functions() {
    let printed = type_in("testing.md");
    says(&printed, &["totals 1  {\"order\":1,\"sum\":2}"]);
}

#[test]
fn repair() {
    let printed = type_in("repair.md");
    says(&printed, &["repair 1: ready", "replayed   4 runs", "replaces   5 records", "rolled-back", "undoes repair 1"]);
    says(
        &printed,
        &["replayed by repair", "1 of 2 amendments of log 'raw' wait", "2 of 2 amendments of log 'raw' wait"],
    );
    let with_it = printed.split_once("repair 1: applied").expect("it was applied").1;
    says(with_it.split_once("undoes repair 1").expect("it was taken back").0, &["20.5", "21.5"]);
    says(with_it.split_once("undoes repair 1").expect("it was taken back").1, &["57.5", "58.5"]);
}

#[test]
fn history() {
    let printed = type_in("history.md");
    let twice = printed.matches("4 records, 4 runs").count();
    assert_eq!(twice, 2, "a copy tells the same:\n{printed}");
    let expected = ["appended by run of mean", "alarms@1", "read corrected raw@2", "ran the code that is replaced"];
    says(&printed, &expected);
}

#[test]
fn operators() {
    let printed = type_in("operator.md");
    let expected = [
        "orders: 1000 records, 1 to 1000",
        "ORDER 1000",
        "3 runs of function 'bill' failed for good",
        "retrying 3 runs of function 'bill'",
        "3 were retried",
        "backup of namespace",
        "links to other namespaces are stopped",
        "sound ",
        "check ended with 1",
        "lost when it was salvaged",
        "millrace_function_pending",
    ];
    says(&printed, &expected);
}

/// Two machines as far as the network goes: a network namespace each, and a cable between them.
struct TwoMachines {
    hub: String,
    edge: String,
}

impl TwoMachines {
    const HUB: &str = "10.231.7.1";
    const EDGE: &str = "10.231.7.2";

    /// `None` if this user or this kernel cannot make them.
    fn new() -> Option<Self> {
        let name = |machine: &str| format!("millrace-{machine}-{}", std::process::id());
        let machines = Self { hub: name("hub"), edge: name("edge") };
        let ip = |line: String| {
            let mut command = Command::new("ip");
            command.args(line.split(' '));
            end_within(PAGE, command, b"").code == 0
        };
        let Self { hub, edge } = &machines;
        let made = ip(format!("netns add {hub}"))
            && ip(format!("netns add {edge}"))
            && ip(format!("-n {hub} link add cable type veth peer name cable netns {edge}"))
            && [(hub, Self::HUB), (edge, Self::EDGE)].into_iter().all(|(machine, address)| {
                ip(format!("-n {machine} addr add {address}/24 dev cable"))
                    && ip(format!("-n {machine} link set cable up"))
                    && ip(format!("-n {machine} link set lo up"))
            });
        made.then_some(machines)
    }

    /// What is typed, on the machine that it is for.
    fn type_on(&self, typed: &str) -> String {
        let Self { hub, edge } = self;
        let of = |machine: &str, line: &str| line.replace(" millrace ", &format!(" ip netns exec {machine} millrace "));
        let on = |line: &str| match line {
            line if line.starts_with("hub()") => of(hub, line),
            line if line.starts_with("edge()") => of(edge, line),
            // The hub waits for itself; what is read over HTTP is read from elsewhere.
            line if line.starts_with("curl") && line.contains("healthz") => format!("ip netns exec {hub} {line}"),
            line if line.starts_with("curl") => format!("ip netns exec {edge} {line}"),
            line => line.to_owned(),
        };
        typed.lines().map(on).collect::<Vec<_>>().join("\n").replace("127.0.0.2", Self::HUB)
    }
}

impl Drop for TwoMachines {
    fn drop(&mut self) {
        for machine in [&self.hub, &self.edge] {
            let _ = Command::new("ip").args(["netns", "del", machine]).stderr(std::process::Stdio::null()).status();
        }
    }
}

#[test]
fn clusters() {
    let printed = type_in("cluster.md");
    says(&printed, &["site campus", "wrote the secret", "created topic env_raw", "21.7", "3  22.1", "4  22.5"]);
    says(&printed, &["created topic moisture in group farm", "created topic clouds in group farm"]);
    says(&printed, &["subscription smooth to soil created", "0.35", "1 {'celsius': -0.5}"]);
    says(&printed, &["['clouds', 'env_raw', 'env_smooth', 'frost', 'ice',"]);
    says(&printed, &[r#"{"topic":"frost","index":2}"#, "retry: 1000", ": following"]);
}

#[test]
fn two_machines() {
    let machines = TwoMachines::new();
    if machines.is_none() {
        println!("on one machine: this one makes no network namespaces");
    }
    let printed = type_with("two-machines.md", |typed| match &machines {
        Some(machines) => machines.type_on(&typed),
        None => typed,
    });
    let hub = if machines.is_some() { TwoMachines::HUB } else { "127.0.0.2" };
    let joined = format!("joined mr://{hub}:");
    says(&printed, &["{\"status\":\"ok\",\"namespaces\":[]}", &joined, "added relay raw", "22.5"]);
    says(&printed, &["function double would be created", "function double created", "doubled 1  42", "doubling 21"]);
    says(
        &printed,
        &["2 runs of function 'double' started", "retrying 2 runs of function 'double'", "function double removed"],
    );
}

#[test]
fn objects() {
    let printed = type_in("objects.md");
    // Of so many random points, one estimate in fourteen rounds to 3.2.
    assert_eq!(printed.matches("pi is about 3.").count(), 2, "before and after:\n{printed}");
    let expected = [
        "[1, 4, 9, 16]",
        "counted [('bread', 2)]",
        "token int",
        "have it",
        "owns Lock 'till'",
        "got it True",
        "balances: 250 250",
        "refused: Bob has only 250 cents",
        "entered: 1 2",
        "refused: the gate is full with 2 inside",
        "visits: 1",
        "visits: 2",
    ];
    says(&printed, &expected);
}

#[test]
fn executors() {
    let printed = type_in("executor.md");
    let expected = [
        "332833500",
        "> import millrace.futures as futures",
        "as it was raised there: division by zero",
        "8 of 8",
        "49 10000",
        "awaited: [1, 2, 4, 8, 16]",
        "hits: 5",
        "1048576",
        "running: False",
        "went: True",
        "done: 10",
        "pool-",
    ];
    says(&printed, &expected);
}
