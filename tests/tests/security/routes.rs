//! Operations over HTTP, and every right that each takes: without any one of them, and without a capability that is valid, they are
//! refused. An operation of `spec/openapi.json` that is not in the table fails the tests.

use super::{
    Hub,
    rights::{everything, expired, hub_and_shop, is_denied, issued, prepared},
};
use millrace_security::token::Token;
use millrace_tests::{Ended, end};
use millrace_wire::EventId;
use serde_json::Value;
use std::{collections::BTreeSet, process::Command};

const OPENAPI: &str = include_str!("../../../spec/openapi.json");
/// What says nothing of a namespace, and whether all is well.
const ANONYMOUS: [&str; 4] = ["/", "/openapi.json", "/healthz", "/readyz"];
/// Lists show what the caller sees, and nothing to one who sees nothing.
const LISTS: [&str; 3] = ["/v1/namespaces", "/v1/namespaces/{namespace}/logs", "/v1/namespaces/{namespace}/tables"];

/// What only the user who runs the host may do, whatever rights a capability has: these give out capabilities.
const OWNERS: [(&str, &str); 2] =
    [("capabilities", r#"{"do":"issue","allow":[{"rights":["read"],"on":"raw"}],"expires_s":60}"#), ("login", "{}")];

/// An operation: its method, its path in `spec/openapi.json`, what follows there, and the rights that it takes.
struct Operation {
    method: &'static str,
    path: &'static str,
    asked: String,
    body: Option<&'static str>,
    header: Option<&'static str>,
    takes: Vec<&'static str>,
}

fn of(method: &'static str, path: &'static str, asked: impl Into<String>, takes: &[&'static str]) -> Operation {
    Operation { method, path, asked: asked.into(), body: None, header: None, takes: takes.to_vec() }
}

impl Operation {
    fn with(self, body: &'static str) -> Self {
        Self { body: Some(body), header: Some("Content-Type: application/json"), ..self }
    }
}

/// Below `/v1/namespaces/{namespace}`; those that remove something come last.
fn operations(run: EventId) -> Vec<Operation> {
    let (observe, read) = (&["observe=namespace"], &["read=namespace"]);
    let (raw, records) = ("logs/raw", "/v1/namespaces/{namespace}/logs/{log}/records");
    let (log, one) = ("/v1/namespaces/{namespace}/logs/{log}", "/v1/namespaces/{namespace}/runs/{run}");
    let (output, failures) = ("/v1/namespaces/{namespace}/runs/{run}/output", "/v1/namespaces/{namespace}/failures");
    let record = "/v1/namespaces/{namespace}/logs/{log}/records/{seqno}";
    let newest = "/v1/namespaces/{namespace}/logs/{log}/records/latest";
    let tail = "/v1/namespaces/{namespace}/logs/{log}/tail";
    let batch = r#"[{"log":"raw","data":"x"},{"log":"other","data":"x"}]"#;
    let repairs = "/v1/namespaces/{namespace}/repairs";
    let (topics, topic) = ("/v1/namespaces/{namespace}/topics", "/v1/namespaces/{namespace}/topics/{topic}");
    let table = "/v1/namespaces/{namespace}/tables/{table}";
    let key = "/v1/namespaces/{namespace}/tables/{table}/keys/{key}";
    let published = "/v1/namespaces/{namespace}/topics/{topic}/records";
    let index = "/v1/namespaces/{namespace}/topics/{topic}/records/{index}";
    let tail_of_topic = "/v1/namespaces/{namespace}/topics/{topic}/tail";
    let newest_published = "/v1/namespaces/{namespace}/topics/{topic}/records/latest";
    vec![
        of("GET", "/v1/namespaces/{namespace}", "", observe),
        of("GET", "/v1/namespaces/{namespace}/status", "status", observe),
        of("GET", log, raw, &["append=raw"]),
        of("PUT", log, "logs/new", &["create=new"]),
        of("PATCH", log, "logs/other", &["create=other"]).with(r#"{"history":20000}"#),
        of("PATCH", log, "logs/other", &["create=other", "delete=other"]).with(r#"{"history":10}"#),
        of("GET", records, "logs/raw/records", &["read=raw"]),
        of("GET", records, "logs/raw/records?from=9999&wait_ms=1", &["read=raw"]),
        Operation { body: Some("x"), ..of("POST", records, "logs/raw/records", &["append=raw"]) },
        Operation {
            body: Some("x"),
            header: Some("Millrace-Function: shout"),
            ..of("POST", records, "logs/raw/records", &["append=raw", "run=function:shout"])
        },
        of("GET", record, "logs/raw/records/1", &["read=raw"]),
        of("GET", newest, "logs/raw/records/latest?above=9999&wait_ms=1", &["read=raw"]),
        // A place that is not there is refused where it could be followed.
        of("GET", tail, "logs/raw/tail?from=9999", &["read=raw"]),
        of(
            "GET",
            "/v1/namespaces/{namespace}/live",
            "live?runs=dead&records=none",
            &["observe=namespace", "read=none"],
        ),
        of("GET", "/v1/namespaces/{namespace}/logs/{log}/rate", "logs/raw/rate?buckets=2", &["read=raw"]),
        of("GET", "/v1/namespaces/{namespace}/logs/{log}/series", "logs/raw/series?field=/x", &["read=raw"]),
        of("GET", "/v1/namespaces/{namespace}/flows", "flows", observe),
        of("GET", "/v1/namespaces/{namespace}/databases", "databases", observe),
        of("GET", "/v1/namespaces/{namespace}/devices", "devices", observe),
        of("GET", "/v1/namespaces/{namespace}/devices/{device}", "devices/kitchen", observe),
        of("GET", "/v1/namespaces/{namespace}/devices/{device}/firmware", "devices/kitchen/firmware", observe),
        of(
            "GET",
            "/v1/namespaces/{namespace}/devices/{device}/live/{log}",
            "devices/kitchen/live/raw",
            &["read=kitchen/raw"],
        ),
        Operation {
            body: Some("an image"),
            ..of(
                "PUT",
                "/v1/namespaces/{namespace}/devices/{device}/firmware",
                "devices/kitchen/firmware?version=2",
                &["append=kitchen/firmware"],
            )
        },
        of("GET", "/v1/namespaces/{namespace}/mqtt", "mqtt", observe),
        of("GET", "/v1/namespaces/{namespace}/plans", "plans", observe),
        of("GET", "/v1/namespaces/{namespace}/plans/{plan}", "plans/99", observe),
        of("GET", "/v1/namespaces/{namespace}/capabilities", "capabilities", &["grant=namespace"]),
        of("POST", "/v1/namespaces/{namespace}/batch", "batch", &["append=raw", "append=other"]).with(batch),
        of("GET", "/v1/namespaces/{namespace}/functions", "functions", observe),
        of("GET", "/v1/namespaces/{namespace}/functions/{function}", "functions/shout", &["observe=function:shout"]),
        Operation {
            body: Some("x"),
            header: Some("Millrace-Wait: 0"),
            ..of(
                "POST",
                "/v1/namespaces/{namespace}/functions/{function}",
                "functions/shout?log=raw",
                &["run=function:shout", "append=raw"],
            )
        },
        of("GET", "/v1/namespaces/{namespace}/runs", "runs", observe),
        of("GET", "/v1/namespaces/{namespace}/runs", "runs?function=shout", &["observe=function:shout"]),
        of("GET", one, format!("runs/{run}"), &["observe=function:shout"]),
        of("GET", one, "runs/latest", read),
        of("GET", output, format!("runs/{run}/output"), &["observe=function:shout"]),
        of("GET", output, format!("runs/{run}/output?follow=true"), &["observe=function:shout"]),
        of("GET", failures, "failures", observe),
        of("GET", failures, "failures?function=shout", &["observe=function:shout"]),
        of("GET", "/v1/namespaces/{namespace}/tasks", "tasks", observe),
        of(
            "POST",
            "/v1/namespaces/{namespace}/runs/{run}/cancel",
            format!("runs/{run}/cancel"),
            &["run=function:shout"],
        ),
        of("GET", "/v1/namespaces/{namespace}/why", "why", observe),
        of("GET", "/v1/namespaces/{namespace}/why/{target}", "why/shout", observe),
        of("GET", "/v1/namespaces/{namespace}/links", "links", observe),
        of("GET", repairs, "repairs", observe),
        of("GET", "/v1/namespaces/{namespace}/repairs/{repair}", "repairs/1", observe),
        of("GET", "/v1/namespaces/{namespace}/repairs/{repair}/diff", "repairs/1/diff", read),
        of("GET", "/v1/namespaces/{namespace}/repairs/{repair}/sent", "repairs/1/sent", &["repair=namespace"]),
        of("POST", repairs, "repairs", &["repair=fixed"]).with(r#"{"do":"abandon","repair":1}"#),
        of("GET", "/v1/namespaces/{namespace}/journal", "journal", read),
        of("GET", "/v1/namespaces/{namespace}/trace/{event}", "trace/raw@1", read),
        of("GET", "/v1/namespaces/{namespace}/objects", "objects", observe),
        of("GET", "/v1/namespaces/{namespace}/objects/{key}", "objects/x", observe),
        of("GET", "/v1/namespaces/{namespace}/cluster", "cluster", observe),
        of("GET", "/v1/namespaces/{namespace}/cluster/groups", "cluster/groups", observe),
        of("GET", "/v1/namespaces/{namespace}/mirrors", "mirrors", observe),
        of("PUT", table, "tables/fresh", &["create=fresh"]),
        of("GET", table, "tables/raw", &["read=raw"]),
        of("GET", key, "tables/raw/keys/a", &["read=raw"]),
        Operation { body: Some("1"), ..of("PUT", key, "tables/raw/keys/a", &["append=raw"]) },
        of("POST", key, "tables/raw/keys/a", &["append=raw", "read=raw"]).with(r#"{"increment":1}"#),
        of("DELETE", key, "tables/raw/keys/a", &["append=raw", "read=raw"]),
        of("GET", topics, "topics", observe),
        of("GET", topic, "topics/news", observe),
        of("PUT", topic, "topics/news", &["create=topics/news"]),
        of("GET", published, "topics/news/records?from=1", &["read=topics/news"]),
        Operation { body: Some("x"), ..of("POST", published, "topics/news/records", &["append=topics/news"]) },
        of("GET", index, "topics/news/records/1", &["read=topics/news"]),
        of("GET", newest_published, "topics/news/records/latest", &["read=topics/news"]),
        of("GET", tail_of_topic, "topics/news/tail?from=9999", &["read=topics/news"]),
        of("DELETE", topic, "topics/news", &["delete=topics/news"]),
        of("POST", "/v1/namespaces/{namespace}/manage", "manage", &["delete=raw"])
            .with(r#"{"do":"trim-log","log":"raw","before":1}"#),
        of("DELETE", log, "logs/gone", &["delete=gone"]),
    ]
}

/// What the host answers to the bearer of this capability.
fn answer(hub: &Hub, bearer: Option<&str>, operation: &Operation) -> Ended {
    let slash = if operation.asked.is_empty() { "" } else { "/" };
    let path = match operation.path {
        path if ANONYMOUS.contains(&path) || path == "/metrics" || path == LISTS[0] => path.to_owned(),
        _ => format!("/v1/namespaces/hub{slash}{}", operation.asked),
    };
    let mut command = Command::new("curl");
    command.args(["-sk", "--max-time", "100", "-X", operation.method]);
    if let Some(token) = bearer {
        command.args(["-H", &format!("Authorization: Bearer {token}")]);
    }
    if let Some(header) = operation.header {
        command.args(["-H", header]);
    }
    if let Some(body) = operation.body {
        command.args(["-d", body]);
    }
    command.arg(format!("https://127.0.0.1:{}{path}", hub.port));
    end(command, b"").ok()
}

/// The code of the refusal, if it is one.
fn refusal(answer: &Ended) -> Option<String> {
    let document: Value = serde_json::from_str(answer.text()).ok()?;
    document["error"]["code"].as_str().map(str::to_owned)
}

#[test]
fn an_operation_is_refused_without_any_one_of_the_rights_that_it_takes() {
    let hub = Hub::new();
    let run = prepared(&hub);
    let metrics = of("GET", "/metrics", "", &["observe=namespace"]);
    for operation in operations(run).into_iter().chain([metrics]) {
        let name = format!("{} {} {}", operation.method, operation.path, operation.asked);
        let answered = |may: &[&str]| {
            let token = issued(&hub.place, &[may, &["append=elsewhere"][..]].concat());
            answer(&hub, Some(&token.to_text()), &operation)
        };
        for lacks in &operation.takes {
            let rest: Vec<&str> = operation.takes.iter().copied().filter(|grant| grant != lacks).collect();
            let reported = answered(&rest);
            assert!(is_denied(refusal(&reported).as_deref()), "{name}, without {lacks}: {}", reported.text());
        }
        let reported = answered(&operation.takes);
        assert!(!is_denied(refusal(&reported).as_deref()), "{name}, with all of its rights: {}", reported.text());
    }
}

#[test]
fn no_operation_is_answered_without_a_capability_that_is_valid_for_the_namespace_now() {
    let (hub, shop) = hub_and_shop();
    let run = prepared(&hub);
    let every = everything(&hub.place);
    let text = |token: &Token| token.to_text().to_string();
    let file =
        hub.issue("revoked.cap", &["--allow", "read,append,create,delete,bind,run,call,observe,admin=namespace"]);
    let revoked: Token = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
    hub.place.run(["cap", "revoke", "--file", &file]).ok();
    let shown = [None, Some(text(&expired(&every))), Some(text(&revoked)), Some(text(&everything(&shop)))];
    for (at, bearer) in shown.iter().enumerate() {
        for operation in operations(run).into_iter().chain([of("GET", "/metrics", "", &[])]) {
            let reported = answer(&hub, bearer.as_deref(), &operation);
            let (method, asked) = (operation.method, &operation.asked);
            assert!(is_denied(refusal(&reported).as_deref()), "{method} {asked}, {at}: {}", reported.text());
        }
        for path in LISTS {
            let list = path.rsplit('/').next().unwrap_or_default();
            let reported = answer(&hub, bearer.as_deref(), &of("GET", path, list, &[]));
            let tells = ["hub", "raw", "fixed"].iter().any(|name| reported.text().contains(name));
            assert!(!tells, "{path}, {at}: {}", reported.text());
        }
        for path in ANONYMOUS {
            let reported = answer(&hub, bearer.as_deref(), &of("GET", path, "", &[]));
            assert!(!reported.text().contains("\"hub\""), "{path}, {at}: {}", reported.text());
        }
    }
}

#[test]
fn every_operation_of_the_specification_is_in_the_table_of_rights() {
    let specification: Value = serde_json::from_str(OPENAPI).unwrap();
    let methods = ["get", "put", "post", "patch", "delete"];
    let specified: BTreeSet<(String, String)> = specification["paths"]
        .as_object()
        .unwrap()
        .iter()
        .flat_map(|(path, operations)| operations.as_object().unwrap().keys().map(move |method| (method, path)))
        .filter(|(method, _)| methods.contains(&method.as_str()))
        .map(|(method, path)| (method.to_uppercase(), path.clone()))
        .collect();
    let of_get = ANONYMOUS.into_iter().chain(LISTS).chain(["/metrics"]).map(|path| ("GET".to_owned(), path.to_owned()));
    let listed =
        operations(EventId::NONE).into_iter().map(|operation| (operation.method.to_owned(), operation.path.to_owned()));
    let of_owner =
        OWNERS.into_iter().map(|(path, _)| ("POST".to_owned(), format!("/v1/namespaces/{{namespace}}/{path}")));
    assert_eq!(specified, listed.chain(of_get).chain(of_owner).collect::<BTreeSet<_>>());
}

#[test]
fn no_capability_gets_another_one_from_the_host() {
    let hub = Hub::new();
    let every = everything(&hub.place).to_text().to_string();
    for (path, body) in OWNERS {
        for bearer in [None, Some(&*every)] {
            let reported = answer(&hub, bearer, &of("POST", "", path, &[]).with(body));
            assert!(is_denied(refusal(&reported).as_deref()), "{path}: {}", reported.text());
        }
    }
    let guessed = of("POST", "", "login", &[]).with(r#"{"code":"00000000000000000000000000000000"}"#);
    assert_eq!(refusal(&answer(&hub, None, &guessed)).as_deref(), Some("MR6084"));
}
