//! Redis, etcd and DynamoDB: what is put is read in the database, a host that is killed goes on, and each write is there once.

use crate::http::ask;
use millrace_tests::{
    Host, Place, Port, eventually,
    servers::{self, ServerProcess},
};
use std::{
    io::{Read, Write},
    net::{Ipv4Addr, TcpStream},
    time::Duration,
};

const WRITES: u64 = 20;

/// What a server answers to some bytes, until it closes the connection.
fn exchange(port: &Port, request: &str) -> Option<String> {
    let mut line = TcpStream::connect((Ipv4Addr::LOCALHOST, port.number)).ok()?;
    line.set_read_timeout(Some(Duration::from_secs(60))).ok()?;
    line.write_all(request.as_bytes()).ok()?;
    let mut answer = Vec::new();
    line.read_to_end(&mut answer).ok()?;
    Some(String::from_utf8_lossy(&answer).into_owned())
}

fn post(port: &Port, path: &str, headers: &str, body: &str) -> Option<String> {
    let length = body.len();
    exchange(
        port,
        &format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
        ),
    )
}

fn serve(place: &Place) -> Host {
    Host::start(place.command(["--json", "serve", "--name", "site", "--listen", "127.0.0.1:0"]))
}

/// Puts, looks into the database, kills the host while it writes, and compares in the end. `value` reads a key of the table `grades`.
fn is_written_once(place: &Place, value: &dyn Fn(&str) -> Option<String>) {
    place.run(["up"]).ok();
    let host = serve(place);
    assert_eq!(ask(host.port(), "PUT", "tables/grades/keys/alice", "{\"score\": 7}").status, 200);
    let read = |key: &str| value(key).map(|value| value.replace(' ', ""));
    assert_eq!(read("alice").as_deref(), Some("{\"score\":7}"));
    assert_eq!(ask(host.port(), "DELETE", "tables/grades/keys/alice", "").status, 200);
    assert_eq!(read("alice"), None);
    // The host is killed before it has answered, and another one goes on.
    let mut host = Some(host);
    for round in 0..3 {
        let port = host.as_ref().expect("it is alive").port();
        let puts = (0..WRITES).map(|n| {
            let (path, body) = (format!("tables/grades/keys/k{n}"), (round * WRITES + n).to_string());
            crate::http::Request::send(port, "PUT", &path, "", &body).expect("the host listens")
        });
        let counts: Vec<_> = puts.collect();
        assert_eq!(ask(port, "POST", "tables/grades/keys/count", "{\"increment\": 1}").status, 200);
        drop(host.take());
        drop(counts);
        host = Some(serve(place));
    }
    place.run(["table", "externalize"]).ok();
    assert_eq!(read("count").as_deref(), Some("3"));
    let checked = place.run(["--json", "table", "check", "grades"]).ok().object();
    assert_eq!(checked["equal"], true, "{checked}");
    let port = host.as_ref().expect("it is alive").port();
    let databases = ask(port, "GET", "databases", "").json();
    assert!(databases["databases"][0]["trouble"].is_null(), "{databases}");
}

fn application(url: &str, more: &str) -> Place {
    let place = Place::empty();
    place.write(
        "millrace.toml",
        &format!("[namespace]\nsegment_size = \"1MiB\"\n[databases.main]\nurl = \"{url}\"\n{more}[tables.grades]\ndatabase = \"main\"\n"),
    );
    place
}

#[test]
fn redis_has_each_write_once() {
    let (dir, port) = (tempfile::tempdir().expect("a directory"), Port::reserve());
    let mut command = servers::redis(&port, dir.path());
    command.args(["--appendonly", "yes", "--appendfsync", "always"]);
    let _server = ServerProcess::start(command);
    eventually("Redis listens", || {
        exchange(&port, "PING\r\nQUIT\r\n").is_some_and(|answer| answer.starts_with("+PONG"))
    });
    let place = application(&format!("redis://127.0.0.1:{port}"), "");
    is_written_once(&place, &|key| {
        let answer = exchange(&port, &format!("GET grades:{key}\r\nQUIT\r\n")).expect("Redis answers");
        let (length, rest) = answer.strip_prefix('$')?.split_once("\r\n")?;
        let length: usize = length.parse().ok()?;
        Some(rest[..length].to_owned())
    });
}

#[test]
fn etcd_has_each_write_once() {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let (dir, port, peer) = (tempfile::tempdir().expect("a directory"), Port::reserve(), Port::reserve());
    let _server = ServerProcess::start(servers::etcd(&port, &peer, dir.path()));
    let get = |key: &str| post(&port, "/v3/kv/range", "", &format!("{{\"key\": \"{}\"}}", STANDARD.encode(key)));
    eventually("etcd has a leader", || get("x").is_some_and(|answer| answer.contains("revision")));
    let place = application(&format!("etcd://127.0.0.1:{port}"), "");
    is_written_once(&place, &|key| {
        let answer = get(&format!("grades:{key}")).expect("etcd answers");
        let (_, rest) = answer.split_once("\"value\":\"")?;
        let value = STANDARD.decode(rest.split('"').next()?).expect("it is base64");
        Some(String::from_utf8(value).expect("it is text"))
    });
}

#[test]
fn dynamodb_has_each_write_once() {
    let port = Port::reserve();
    let _server = ServerProcess::start(servers::moto(&port));
    eventually("moto answers", || exchange(&port, "GET /moto-api/ HTTP/1.0\r\n\r\n").is_some());
    let place = application(&format!("dynamodb://127.0.0.1:{port}/eu-central-1"), "secret = \"main-password\"\n");
    place.run(["init", "--bare"]).ok();
    place.feed(["secret", "set", "main-password"], b"AKIDEXAMPLE:secret").ok();
    is_written_once(&place, &|key| {
        let headers = "X-Amz-Target: DynamoDB_20120810.GetItem\r\nContent-Type: application/x-amz-json-1.0\r\n\
             Authorization: AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20260101/eu-central-1/dynamodb/aws4_request, SignedHeaders=host, Signature=x\r\n";
        let body = format!("{{\"TableName\": \"grades\", \"Key\": {{\"key\": {{\"S\": \"{key}\"}}}}}}");
        let answer = post(&port, "/", headers, &body).expect("moto answers");
        let (_, body) = answer.split_once("\r\n\r\n")?;
        let item: serde_json::Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"));
        Some(item["Item"]["value"]["S"].as_str()?.to_owned())
    });
}
