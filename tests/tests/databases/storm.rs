//! Writes while host and database are killed in turn. In the end the database has what the table has, and what was acknowledged is there.

use crate::{
    http::{Request, ask},
    postgres::{Postgres, place},
};
use millrace_tests::{Host, Port, eventually};
use std::collections::BTreeMap;

const KILLS: u64 = 8;
const KEYS: u64 = 12;
const WRITES: u64 = 30;

#[test]
fn after_kills_the_database_equals_the_table() {
    let mut postgres = Postgres::start();
    let place = place(&postgres, "");
    let port = Port::reserve();
    let number: u16 = port.to_string().parse().unwrap();
    let serve = || {
        let listen = format!("127.0.0.1:{port}");
        Host::start(place.command(["--json", "serve", "--name", "site", "--listen", &listen]))
    };
    let mut host = Some(serve());
    let (mut count, mut acknowledged) = (0u64, BTreeMap::new());
    for kill in 0..KILLS {
        let mut sent = Vec::new();
        for _ in 0..WRITES {
            count += 1;
            let key = format!("k{}", count * 7 % KEYS);
            let method = if count % 5 == 0 { "DELETE" } else { "PUT" };
            let path = format!("tables/grades/keys/{key}");
            let Ok(request) = Request::send(number, method, &path, "", &count.to_string()) else { continue };
            sent.push((key, method, count, request));
        }
        // One of them ends while the writes are under way; some are answered before.
        if let Some((key, method, value, request)) = sent.pop()
            && kill % 3 == 2
        {
            let answer = request.wait().expect("both are alive");
            assert!(answer.status == 200 || method == "DELETE" && answer.status == 404, "{answer:?}");
            if method == "PUT" && sent.iter().all(|(other, ..)| *other != key) {
                acknowledged.insert(key, value);
            }
        }
        match kill % 2 {
            0 => {
                drop(host.take());
                host = Some(serve());
            }
            _ => {
                postgres.die();
                postgres.live();
            }
        }
        for (key, method, value, request) in sent {
            let Some(answer) = request.wait() else { continue };
            assert!(answer.status == 200 || method == "DELETE" && answer.status == 404, "{answer:?}");
            // A database that has it may have a later one as well.
            if method == "PUT" {
                let there = postgres.query(&format!("SELECT version FROM grades WHERE key = '{key}'"));
                let version: u64 = there.first().map_or(0, |version| version.parse().unwrap());
                let own = answer.json()["version"].as_u64().unwrap();
                let deleted_later = there.is_empty();
                assert!(version >= own || deleted_later, "{key} has version {version}, and {own} was acknowledged");
            }
            acknowledged.insert(key, value);
        }
    }
    place.run(["table", "externalize"]).ok();
    let entries = ask(number, "GET", "tables/grades?limit=1000", "").json();
    let view: BTreeMap<String, (String, u64)> = entries["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| {
            let key = entry["key"].as_str().unwrap().to_owned();
            (key, (entry["data"].as_str().unwrap().to_owned(), entry["version"].as_u64().unwrap()))
        })
        .collect();
    let rows = postgres.query("SELECT key || ' ' || value::text || ' ' || version FROM grades");
    let database: BTreeMap<String, (String, u64)> = rows
        .iter()
        .map(|row| {
            let parts: Vec<&str> = row.split(' ').collect();
            (parts[0].to_owned(), (parts[1].to_owned(), parts[2].parse().unwrap()))
        })
        .collect();
    assert_eq!(database, view);
    assert!(!acknowledged.is_empty());
    eventually("nothing waits", || {
        let databases = ask(number, "GET", "databases", "").json();
        databases["databases"][0]["unwritten"] == 0 && databases["databases"][0]["trouble"].is_null()
    });
}
