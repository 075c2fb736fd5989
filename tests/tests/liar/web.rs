//! Clients that speak HTTP, byte by byte, and one that follows server-sent events.

use crate::{
    clients::{Asked, is_lasting, is_ours, of_document},
    mqtt,
    reported::Fact,
    world::Pen,
};
use millrace_node::{Code, Result};
use serde_json::Value;
use std::net::SocketAddr;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let line = self.head.lines().find(|line| line.to_ascii_lowercase().starts_with(&format!("{name}:")))?;
        Some(line.split_once(':')?.1.trim())
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("answers are JSON")
    }
}

fn broken(error: std::io::Error) -> millrace_node::Error {
    Code::ConnectionLost.error(error.to_string())
}

async fn open(host: SocketAddr, method: &str, path: &str, headers: &str, body: &[u8]) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(host).await.map_err(broken)?;
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n"
    );
    stream.write_all(&[head.as_bytes(), body].concat()).await.map_err(broken)?;
    Ok(stream)
}

async fn request(host: SocketAddr, method: &str, path: String, headers: String, body: Vec<u8>) -> Result<Answer> {
    let mut stream = open(host, method, &path, &headers, &body).await?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.map_err(broken)?;
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Err(Code::ConnectionLost.error("it ended before its answer"));
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status line");
    let answer = Answer { status, head, body: bytes.split_off(end + 4) };
    let whole = answer.header("content-length").is_none_or(|length| length == answer.body.len().to_string());
    if whole { Ok(answer) } else { Err(Code::ConnectionLost.error("it ended within its answer")) }
}

pub async fn http(pen: Pen, host: SocketAddr) {
    let (base, text) = (format!("/v1/namespaces/{}", pen.name), pen.name_of("http"));
    let mut asked = Asked::new(&pen);
    appends(&mut asked, host, &base, &text);
    let raw = pen.namespace.log("raw").map_or(1, |log| log.latest()).max(1);
    reads(&mut asked, host, &base, raw, if pen.phase.pressed { raw + 1 } else { raw });
    if pen.phase.pressed {
        // Somebody else removes it meanwhile.
        let of_pen = format!("going-{}", pen.name_of("tcp"));
        pen.inside(|namespace| namespace.log(&of_pen).is_err()).await;
        for path in [format!("logs/{of_pen}/records"), format!("logs/{of_pen}/tail"), format!("logs/{of_pen}")] {
            let (path, log) = (format!("{base}/{path}"), of_pen.clone());
            asked.ask(request(host, "GET", path, String::new(), Vec::new()), move |answer| match answer {
                Ok(Answer { status: 404, .. }) => vec![Fact::Gone { log }],
                _ => Vec::new(),
            });
        }
    }
    events(&mut asked, host, &base, "raw", None);
    events(&mut asked, host, &base, "raw", Some(raw));
    mqtt::ask(&mut asked, &pen, host);
    // What streamed runs publish meanwhile.
    let parts = pen.namespace.log("parts").map_or(0, |log| log.latest());
    events(&mut asked, host, &base, "parts", (parts > 0).then_some(parts));
    asked.answered().await;
}

fn appends(asked: &mut Asked, host: SocketAddr, base: &str, text: &str) {
    for key in ["", "key-"] {
        let data = format!("{key}{text}");
        let headers = if key.is_empty() { String::new() } else { format!("idempotency-key: {data}\r\n") };
        let is_keyed = !key.is_empty();
        let path = format!("{base}/logs/raw/records");
        let append = request(host, "POST", path, headers, data.clone().into_bytes());
        asked.ask(append, move |answer| {
            let Ok(answer) = answer else { return Vec::new() };
            if answer.status != 201 {
                return Vec::new();
            }
            let reported = answer.json();
            let (seqno, id) = (reported["seqno"].as_u64().unwrap_or(0), reported["id"].as_str().map(str::to_owned));
            let record = Fact::Record { log: "raw".into(), seqno, data: data.clone().into_bytes(), id };
            let key = is_keyed.then_some(Fact::Key { key: data, seqno });
            [Some(record), key].into_iter().flatten().collect()
        });
    }
}

fn record(reported: &Value) -> Fact {
    let text = |name: &str| reported[name].as_str().map(str::to_owned);
    let data = text("data").unwrap_or_default().into_bytes();
    let (log, id) = (text("log").unwrap_or_default(), text("id"));
    Fact::Record { log, seqno: reported["seqno"].as_u64().unwrap_or(0), data, id }
}

fn reads(asked: &mut Asked, host: SocketAddr, base: &str, raw: u64, next: u64) {
    for path in [format!("records/{raw}"), "records/latest".into(), format!("records/{next}?wait_ms=100000")] {
        let get = request(host, "GET", format!("{base}/logs/raw/{path}"), String::new(), Vec::new());
        asked.ask(get, |answer| {
            let Ok(answer @ Answer { status: 200, .. }) = answer else { return Vec::new() };
            let seqno = answer.header("millrace-seqno").and_then(|seqno| seqno.parse().ok()).unwrap_or(0);
            let id = answer.header("millrace-id").map(str::to_owned);
            vec![Fact::Record { log: "raw".into(), seqno, data: answer.body, id }]
        });
    }
    for range in [format!("raw/records?from={raw}"), "parts/records".into()] {
        let range = format!("{base}/logs/{range}");
        asked.ask(request(host, "GET", range, String::new(), Vec::new()), |answer| {
            let Ok(answer @ Answer { status: 200, .. }) = answer else { return Vec::new() };
            answer.json()["records"].as_array().into_iter().flatten().map(record).collect()
        });
    }
    for path in ["status", "logs/raw", "runs?limit=3", "journal?last=20"] {
        let show = request(host, "GET", format!("{base}/{path}"), String::new(), Vec::new());
        asked.ask(show, move |answer| {
            let Ok(answer @ Answer { status: 200, .. }) = answer else { return Vec::new() };
            of_document(path, &String::from_utf8_lossy(&answer.body))
        });
    }
    asked.ask(request(host, "GET", "/metrics".into(), String::new(), Vec::new()), |answer| {
        let Ok(answer @ Answer { status: 200, .. }) = answer else { return Vec::new() };
        String::from_utf8_lossy(&answer.body).lines().filter_map(metric).collect()
    });
}

/// What one line of the metrics tells.
fn metric(line: &str) -> Option<Fact> {
    let (name, rest) = line.split_once('{')?;
    let (labels, value) = rest.split_once("} ")?;
    let count = value.parse().ok()?;
    let label = |name: &str| {
        let value = labels.split(',').find_map(|label| label.strip_prefix(&format!("{name}=\"")))?;
        Some(value.trim_end_matches('"').to_owned())
    };
    match name {
        "millrace_log_records_total" => {
            Some(Fact::Reaches { log: label("log").filter(|log| is_lasting(log))?, latest: count })
        }
        "millrace_function_triggered_total" => {
            Some(Fact::Triggered { function: label("function").filter(|name| is_ours(name))?, count })
        }
        "millrace_function_ended_total" => {
            Some(Fact::Ended { function: label("function").filter(|name| is_ours(name))?, count })
        }
        "millrace_journal_written_bytes_total" => Some(Fact::Tail { position: count }),
        _ => None,
    }
}

/// Follows events: the first one, which tells where the tail stands, and the first record `from` somewhere if there will be one.
fn events(asked: &mut Asked, host: SocketAddr, base: &str, log: &'static str, from: Option<u64>) {
    let has_record = from.is_some();
    let path = format!("{base}/logs/{log}/tail{}", from.map(|from| format!("?from={from}")).unwrap_or_default());
    let follow = async move {
        let stream = open(host, "GET", &path, "accept: text/event-stream\r\n", b"").await?;
        let (mut lines, mut facts) = (BufReader::new(stream).lines(), Vec::new());
        while let Some(line) = lines.next_line().await.map_err(broken)? {
            if let Some(cursor) = line.strip_prefix("id: ") {
                let (incarnation, next) = cursor.split_once(':').expect("a cursor");
                let (incarnation, next): (u32, u64) = (incarnation.parse().unwrap(), next.parse().unwrap());
                let log = || log.to_owned();
                facts.push(Fact::Incarnation { log: log(), incarnation });
                facts.push(Fact::Reaches { log: log(), latest: next - 1 });
                if !has_record {
                    break;
                }
            } else if let Some(data) = line.strip_prefix("data: ") {
                let reported: Value = serde_json::from_str(data).expect("events are JSON");
                facts.extend(reported["seqno"].is_u64().then(|| record(&reported)));
                break;
            }
        }
        Ok(facts)
    };
    asked.ask(follow, |facts| facts.unwrap_or_default());
}
