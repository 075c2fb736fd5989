//! The C client runs the conformance script: over TCP in clear and through the channel, over the Unix socket, and on the files themselves.

use crate::support::{Driver, build_local, build_remote, hex, root};
use millrace_tests::{Host, Place};
use serde_json::{Map, Value, json};
use std::{collections::HashMap, path::PathBuf, thread, time::Duration};

/// How a client reaches the namespace.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Tcp,
    Channel,
    Socket,
    Files,
}

/// Every right.
const ALL: &str = "read,append,create,delete,bind,run,call,observe,repair,link,admin,grant";

/// One script, run.
struct Run<'r> {
    name: &'r str,
    program: PathBuf,
    address: String,
    way: Way,
    capability: Option<PathBuf>,
    kept: HashMap<String, Value>,
}

impl Run<'_> {
    fn driver(&self) -> Driver {
        Driver::with(self.capability.as_deref(), &self.program, &[&self.address])
    }

    /// A member of a step, its variables replaced.
    fn resolve(&self, value: &Value) -> Value {
        match value {
            Value::String(text) if text.starts_with('$') => {
                self.kept.get(&text[1..]).unwrap_or_else(|| panic!("{}: no {text}", self.name)).clone()
            }
            Value::Array(items) => items.iter().map(|item| self.resolve(item)).collect(),
            Value::Object(members) => members.iter().map(|(key, value)| (key.clone(), self.resolve(value))).collect(),
            other => other.clone(),
        }
    }

    /// The line that tells the driver to do this.
    fn line(&self, step: &Map<String, Value>) -> String {
        let get = |key: &str| step.get(key).map(|value| self.resolve(value));
        let text = |key: &str| get(key).map_or("-".into(), |value| hex(value.as_str().expect("a text").as_bytes()));
        let data = |record: &Value| hex(&bytes(&record["data"]));
        let number = |key: &str| get(key).map_or("0".into(), |value| value.to_string());
        let all = Value::Object(step.iter().map(|(key, value)| (key.clone(), self.resolve(value))).collect());
        let name = step["do"].as_str().expect("a name");
        let arguments = match name {
            "create_log" => format!("{} {}", text("log"), number("history")),
            "set_history" => format!("{} {}", text("log"), number("history")),
            "cancel_run" => text("run"),
            "remove_log" => text("log"),
            "append" => {
                let level = match get("durability").as_ref().and_then(Value::as_str) {
                    None => "0",
                    Some("memory") => "1",
                    Some(_) => "2",
                };
                format!("{} {} {level} {} {} {}", text("log"), data(&all), text("function"), text("key"), text("cause"))
            }
            "append_many" => {
                let record =
                    |record: &Value| format!(" {} {}", hex(record["log"].as_str().unwrap().as_bytes()), data(record));
                text("key") + &all["records"].as_array().expect("a list").iter().map(record).collect::<String>()
            }
            "get" => format!("{} {} {}", text("log"), number("seqno"), number("wait_ms")),
            "range" => format!("{} {} {}", text("log"), number("from"), number("count")),
            "latest" => format!("{} {} {}", text("log"), number("above"), number("wait_ms")),
            "tail" => {
                format!("{} {} {} {} 100000", text("log"), number("from"), number("incarnation"), number("take"))
            }
            "show" => text("path"),
            other => panic!("{}: what is '{other}'?", self.name),
        };
        format!("{name} {arguments}")
    }

    fn step(&mut self, driver: &mut Driver, step: &Value) {
        if step["where"] == "host" && self.way == Way::Files {
            return;
        }
        let line = self.line(step.as_object().expect("an object"));
        driver.tell(&line);
        if let Some(other) = step.get("meanwhile") {
            thread::sleep(Duration::from_millis(200));
            let answer = self.driver().ask(&self.line(other.as_object().expect("an object")));
            assert!(answer.get("fails").is_none(), "{}: {other}: {answer}", self.name);
        }
        let answer = driver.answer();
        match step.get("fails") {
            Some(code) => {
                assert_eq!(&answer["fails"], code, "{}: {step}: {answer}", self.name);
                assert_eq!(answer["known"], true, "{answer}");
            }
            None => assert!(answer.get("fails").is_none(), "{}: {step}: {answer}", self.name),
        }
        if let Some(expected) = step.get("gives") {
            self.compare(step, &self.resolve(expected), &answer);
        }
        for (variable, member) in step.get("keep").and_then(Value::as_object).into_iter().flatten() {
            self.kept.insert(variable.clone(), answer[member.as_str().expect("a member")].clone());
        }
    }

    /// What came back must have the members that are expected.
    fn compare(&self, step: &Value, expected: &Value, got: &Value) {
        match expected {
            Value::Object(members) if is_bytes(members) => {
                let want = hex(&bytes(expected));
                assert_eq!(got.as_str(), Some(&want[1..]), "{}: {step}", self.name);
            }
            Value::Object(members) => {
                members.iter().for_each(|(key, value)| self.compare(step, value, &got[key]));
            }
            Value::Array(items) => {
                let list = got.as_array().unwrap_or_else(|| panic!("{}: {step}: {got}", self.name));
                assert_eq!(items.len(), list.len(), "{}: {step}: {got}", self.name);
                items.iter().zip(list).for_each(|(item, got)| self.compare(step, item, got));
            }
            other => assert_eq!(other, got, "{}: {step}", self.name),
        }
    }
}

fn is_bytes(members: &Map<String, Value>) -> bool {
    ["text", "hex", "fill"].iter().any(|key| members.contains_key(*key))
}

/// The bytes that `{"text": …}`, `{"hex": …}` or `{"fill": byte, "count": n}` stands for.
fn bytes(value: &Value) -> Vec<u8> {
    if let Some(text) = value["text"].as_str() {
        return text.into();
    }
    if let Some(digits) = value["hex"].as_str() {
        let pair = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal");
        return (0..digits.len()).step_by(2).map(pair).collect();
    }
    let (fill, count) = (value["fill"].as_u64().expect("a byte"), value["count"].as_u64().expect("a count"));
    vec![fill as u8; count as usize]
}

fn run(way: Way) {
    let text = std::fs::read_to_string(root().join("spec/conformance.json")).expect("the script is there");
    let script: Value = serde_json::from_str(&text).expect("the script is JSON");
    let program = if way == Way::Files { build_local("driver") } else { build_remote("driver") };
    let scripts = script["scripts"].as_array().expect("a list");
    assert!(scripts.len() > 10, "the script has lost its parts");
    for script in scripts {
        let place = Place::new();
        let host: Option<Host> = (way != Way::Files).then(|| place.serve_tcp(["--name", "farm"]));
        let address = match way {
            Way::Tcp | Way::Channel => format!("mr://127.0.0.1:{}/farm", host.as_ref().expect("it runs").port()),
            Way::Socket => format!("unix:{}", place.namespace().join("socket").display()),
            Way::Files => place.path().display().to_string(),
        };
        let name = script["name"].as_str().expect("a name");
        let capability = (way == Way::Channel).then(|| {
            place.run(["cap", "issue", "--allow", &format!("{ALL}=namespace"), "--out", "all.cap"]).ok();
            place.path().join("all.cap")
        });
        let mut run = Run { name, program: program.clone(), address, way, capability, kept: HashMap::new() };
        let mut driver = run.driver();
        for step in script["steps"].as_array().expect("a list") {
            run.step(&mut driver, step);
        }
        assert_eq!(driver.end(), 0, "{name}");
    }
}

#[test]
fn over_tcp() {
    run(Way::Tcp);
}

#[test]
fn through_the_channel() {
    run(Way::Channel);
}

#[test]
fn over_the_unix_socket() {
    run(Way::Socket);
}

#[test]
fn on_the_files() {
    run(Way::Files);
}

#[test]
fn every_member_that_is_expected_is_compared() {
    let run = Run {
        name: "itself",
        program: PathBuf::new(),
        address: String::new(),
        way: Way::Files,
        capability: None,
        kept: HashMap::from([("id".into(), json!("a-1-2"))]),
    };
    let differs = |expected: Value, got: Value| {
        let compare = || run.compare(&json!({}), &run.resolve(&expected), &got);
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(compare)).is_err()
    };
    assert!(!differs(json!({"id": "$id", "data": {"text": "1"}}), json!({"id": "a-1-2", "data": "31", "seqno": 1})));
    assert!(differs(json!({"id": "$id"}), json!({"id": "a-1-3"})));
    assert!(differs(json!({"data": {"fill": 0, "count": 2}}), json!({"data": "00"})));
    assert!(differs(json!({"records": []}), json!({"records": [1]})));
    assert!(differs(json!({"next": 1}), json!({})));
}
