//! What a client sends to be deployed, also one that does not keep to the rules: nothing of it is deployed, and nothing stays.

use super::start;
use millrace_client::{Options, blocking::Client};
use millrace_tests::{Place, eventually};
use millrace_wire::Code;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fs;

const CODE: &[u8] = b"#!/bin/sh\n";
const APPLICATION: &str = "[logs.in]\n[functions.f]\nruntime = \"oneshot\"\ncode = \"f.sh\"\ncommand = [\"./f.sh\"]\n";

fn hash(bytes: &[u8]) -> Vec<u8> {
    Sha256::digest(bytes).to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The hash of code that is a single executable file.
fn code_hash(name: &str, content: &[u8]) -> String {
    let mut digest = Sha256::new();
    digest.update((name.len() as u64).to_le_bytes());
    digest.update(name);
    digest.update([1]);
    digest.update((content.len() as u64).to_le_bytes());
    digest.update(content);
    hex(&digest.finalize())
}

fn item(path: &str) -> Value {
    json!({ "path": path, "executable": true, "bytes": CODE.len(), "sha256": hex(&hash(CODE)) })
}

fn order(code: &str, items: &Value) -> String {
    let function = json!({ "code": code, "source": "f.sh", "file": "f.sh", "items": items });
    json!({
        "do": "up", "file": "millrace.toml", "origin": "/elsewhere/millrace.toml", "text": APPLICATION,
        "functions": { "f": function },
    })
    .to_string()
}

fn up() -> String {
    order(&code_hash("f.sh", CODE), &json!([item("f.sh")]))
}

fn left(place: &Place) -> usize {
    let scratch = fs::read_dir(place.namespace().join("scratch"));
    scratch.map_or(0, |scratch| {
        scratch.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().contains("upload")).count()
    })
}

fn code<T: std::fmt::Debug>(result: millrace_wire::Result<T>) -> Code {
    result.unwrap_err().code()
}

#[test]
fn files_arrive_complete_and_as_announced_or_nothing_is_deployed() {
    let (place, _host, address) = start();
    let client = Client::connect(&address, &Options::default()).unwrap();
    assert_eq!(code(client.upload(&hash(CODE), 0, CODE)), Code::UploadUnexpected, "nothing was announced");
    let missing: Value = serde_json::from_str(&client.manage(&up()).unwrap()).unwrap();
    assert_eq!(missing, json!({ "missing": [hex(&hash(CODE))] }));
    assert_eq!(left(&place), 1);
    assert_eq!(code(client.upload(&hash(b"other"), 0, b"other")), Code::UploadUnexpected);
    assert_eq!(code(client.upload(&hash(CODE), 0, b"#!/bin/no\n")), Code::UploadMismatch);
    assert_eq!(code(client.upload(&hash(CODE), 5, &CODE[5..])), Code::UploadUnexpected, "its beginning is missing");
    client.upload(&hash(CODE), 0, &CODE[..5]).unwrap();
    // Cut short: it is asked for again.
    assert_eq!(serde_json::from_str::<Value>(&client.manage(&up()).unwrap()).unwrap(), missing);
    assert!(place.run(["--json", "function", "ls"]).ok().objects().is_empty());
    client.upload(&hash(CODE), 0, &CODE[..5]).unwrap();
    client.upload(&hash(CODE), 5, &CODE[5..]).unwrap();
    let done: Value = serde_json::from_str(&client.manage(&up()).unwrap()).unwrap();
    assert_eq!(done["steps"][2]["name"], "f", "{done}");
    assert_eq!(place.run(["--json", "function", "ls"]).ok().object()["code"], code_hash("f.sh", CODE));
    assert_eq!(left(&place), 0);
}

#[test]
fn code_that_is_not_what_it_hashes_to_is_not_deployed() {
    let (place, _host, address) = start();
    let client = Client::connect(&address, &Options::default()).unwrap();
    let wrong = order(&code_hash("g.sh", CODE), &json!([item("f.sh")]));
    client.manage(&wrong).unwrap();
    client.upload(&hash(CODE), 0, CODE).unwrap();
    assert_eq!(code(client.manage(&wrong)), Code::UploadMismatch);
    assert!(place.run(["--json", "function", "ls"]).ok().objects().is_empty());
    assert_eq!(place.run(["--json", "log", "ls"]).ok().objects().len(), 1, "no log was made either");
}

#[test]
fn paths_that_lead_out_of_the_code_are_refused() {
    let (place, _host, address) = start();
    let client = Client::connect(&address, &Options::default()).unwrap();
    let code_of = code_hash("f.sh", CODE);
    for path in ["../f.sh", "/tmp/f.sh", "a/../../f.sh", "", ".", "a//b", "f.sh/", "none/f.sh"] {
        let bundle = json!({ "code": &code_of, "source": "f.sh", "items": [item(path)] });
        let mut asked: Value = serde_json::from_str(&up()).unwrap();
        asked["functions"]["f"] = bundle;
        assert_eq!(code(client.manage(&asked.to_string())), Code::BundleInvalid, "{path}");
    }
    for items in [json!([]), json!([item("f.sh"), item("f.sh")]), json!([item("g.sh")])] {
        assert_eq!(code(client.manage(&order(&code_of, &items))), Code::BundleInvalid, "{items}");
    }
    let mut large = item("f.sh");
    large["bytes"] = json!(u64::MAX);
    assert_eq!(code(client.manage(&order(&code_of, &json!([large])))), Code::BundleInvalid);
    let mut other: Value = serde_json::from_str(&up()).unwrap();
    other["functions"] = json!({});
    assert_eq!(code(client.manage(&other.to_string())), Code::ApplicationInvalid, "its code was not announced");
    for text in ["", "{}", "{\"do\":\"dance\"}", "[]", "{\"do\":\"retry\",\"run\":7}"] {
        assert_eq!(code(client.manage(text)), Code::ManageInvalid, "{text}");
    }
    assert_eq!(left(&place), 0);
}

#[test]
fn uploaded_files_are_removed_with_their_connection() {
    let (place, _host, address) = start();
    let client = Client::connect(&address, &Options::default()).unwrap();
    client.manage(&up()).unwrap();
    client.upload(&hash(CODE), 0, &CODE[..5]).unwrap();
    assert_eq!(left(&place), 1);
    // Another connection has none of it.
    let other = Client::connect(&address, &Options::default()).unwrap();
    assert_eq!(code(other.upload(&hash(CODE), 5, &CODE[5..])), Code::UploadUnexpected);
    drop(client);
    eventually("the host removes it", || left(&place) == 0);
    assert!(place.run(["--json", "function", "ls"]).ok().objects().is_empty());
}

#[test]
fn no_more_deployments_are_on_their_way_than_a_host_takes() {
    let (place, _host, address) = start();
    let clients: Vec<Client> = (0..17).map(|_| Client::connect(&address, &Options::default()).unwrap()).collect();
    let (last, first) = clients.split_last().unwrap();
    first.iter().for_each(|client| drop(client.manage(&up()).unwrap()));
    assert_eq!(left(&place), 16);
    assert_eq!(code(last.manage(&up())), Code::UploadsBusy);
    drop(clients);
    eventually("there is room again", || left(&place) == 0);
    Client::connect(&address, &Options::default()).unwrap().manage(&up()).unwrap();
}
