//! `spec/conformance.json`, run by the Rust clients: blocking and async, over TCP and the Unix socket, and over files. And by a device, as far
//! as it can.

mod device;
mod target;

use millrace_tests::{Host, Place as Folder};
use serde_json::{Map, Value};
use std::{fs, path::Path, thread, time::Duration};
use target::{Target, Way, bytes};

const SCRIPT: &str = include_str!("../../../spec/conformance.json");
/// The delay of the step `meanwhile`.
const MEANWHILE: Duration = Duration::from_millis(200);

/// Replaces variables by their values.
fn filled(value: &Value, variables: &Map<String, Value>) -> Value {
    match value {
        Value::String(text) => match text.strip_prefix('$') {
            Some(name) => variables.get(name).unwrap_or_else(|| panic!("no variable {text}")).clone(),
            None => value.clone(),
        },
        Value::Array(list) => list.iter().map(|value| filled(value, variables)).collect(),
        Value::Object(object) => {
            object.iter().map(|(name, value)| (name.clone(), filled(value, variables))).collect::<Map<_, _>>().into()
        }
        _ => value.clone(),
    }
}

/// Whether a result has the expected members.
fn matches(wanted: &Value, found: &Value) -> bool {
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => wanted.iter().all(|(name, wanted)| match name.as_str() {
            "data" => bytes(wanted) == bytes(&found["data"]),
            _ => found.get(name).is_some_and(|found| matches(wanted, found)),
        }),
        (Value::Array(wanted), Value::Array(found)) => {
            wanted.len() == found.len() && wanted.iter().zip(found).all(|(wanted, found)| matches(wanted, found))
        }
        _ => wanted == found,
    }
}

fn step(way: &Way, target: &Target, step: &Value, variables: &mut Map<String, Value>) -> Result<(), String> {
    let step = filled(step, variables);
    let outcome = thread::scope(|scope| {
        let meanwhile = step.get("meanwhile").map(|other| {
            scope.spawn(move || {
                thread::sleep(MEANWHILE);
                way.connect()?.call(other)
            })
        });
        let outcome = target.call(&step);
        let other = meanwhile.map(|other| other.join().expect("the other client does not panic"));
        match other {
            Some(Err(error)) => Err(error.within("meanwhile")),
            _ => outcome,
        }
    });
    check(&step, outcome, variables)
}

/// Compares the result of a step with what it gives, and keeps what it keeps.
fn check(
    step: &Value,
    outcome: millrace_wire::Result<Value>,
    variables: &mut Map<String, Value>,
) -> Result<(), String> {
    match (step["fails"].as_str(), outcome) {
        (Some(code), Err(error)) if error.code().id() == code => Ok(()),
        (None, Ok(found)) => {
            if step.get("gives").is_some_and(|wanted| !matches(wanted, &found)) {
                return Err(format!("gave {found}"));
            }
            for (name, member) in step["keep"].as_object().into_iter().flatten() {
                variables.insert(name.clone(), found[member.as_str().expect("a member's name")].clone());
            }
            Ok(())
        }
        (_, Ok(found)) => Err(format!("gave {found}")),
        (_, Err(error)) => Err(format!("failed with {error}")),
    }
}

/// Runs every script, each in a namespace of its own.
fn run(way: impl Fn(&Path, Option<&Host>) -> Way, hosted: bool) {
    let script: Value = serde_json::from_str(SCRIPT).expect("JSON");
    let mut faults = Vec::new();
    for script in script["scripts"].as_array().expect("scripts") {
        let folder = Folder::new();
        let host = hosted.then(|| folder.serve_tcp(["--name", "farm"]));
        let way = way(&folder.namespace(), host.as_ref());
        let target = way.connect().expect("the client connects");
        let mut variables = Map::new();
        for one in script["steps"].as_array().expect("steps") {
            if one["where"] == "host" && !way.is_host() {
                continue;
            }
            if let Err(fault) = step(&way, &target, one, &mut variables) {
                faults.push(format!("{}: {one}\n    {fault}", script["name"]));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

fn tcp(host: Option<&Host>) -> millrace_client::Place {
    let port = host.expect("a host runs").port();
    format!("mr://127.0.0.1:{port}/farm").parse().expect("an address")
}

#[test]
fn the_blocking_client_over_tcp() {
    run(|_, host| Way::Blocking(tcp(host)), true);
}

#[test]
fn the_blocking_client_over_the_unix_socket() {
    run(|namespace, _| Way::Blocking((&*namespace.join("socket")).into()), true);
}

#[test]
fn the_async_client_over_tcp() {
    run(|_, host| Way::Async(tcp(host)), true);
}

#[test]
fn the_files_themselves() {
    run(|namespace, _| Way::Local(fs::canonicalize(namespace).expect("it is there")), false);
}

/// Runs what needs nothing on a device, each script on a new one; returns how many scripts those are.
fn run_on_device() -> usize {
    let script: Value = serde_json::from_str(SCRIPT).expect("JSON");
    let (mut faults, mut ran) = (Vec::new(), 0);
    for script in script["scripts"].as_array().expect("scripts").iter().filter(|script| script["needs"].is_null()) {
        let folder = Folder::new();
        let steps: Vec<&Value> =
            script["steps"].as_array().expect("steps").iter().filter(|step| step["needs"].is_null()).collect();
        let (made, steps): (Vec<&Value>, Vec<&Value>) = steps.iter().partition(|step| step["do"] == "create_log");
        let log = |step: &&Value| {
            (step["log"].as_str().expect("a log").to_owned(), step["history"].as_u64().expect("a history"))
        };
        let mut device = device::Device::start(&folder.path().join("flash"), &made.iter().map(log).collect::<Vec<_>>());
        let mut variables = Map::new();
        for one in &steps {
            let step = filled(one, &variables);
            let outcome = device.call(&step);
            if let Err(fault) = check(&step, outcome, &mut variables) {
                faults.push(format!("{}: {one}\n    {fault}", script["name"]));
            }
        }
        ran += usize::from(!steps.is_empty());
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    ran
}

#[test]
fn a_device_as_far_as_it_can() {
    assert_eq!(run_on_device(), 10);
}
