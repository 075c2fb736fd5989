//! Clients of the wire protocol, and a host that sends: they ask for everything, and write down what they are told.

use crate::{
    reported::Fact,
    streams,
    world::{Kind, Pen},
};
use millrace_client::{AppendOptions, Batch, Client, Options, Receipt, Record, Wait};
use millrace_node::{Code, Durability, EventId, Result};
use millrace_wire::{
    Hlc,
    protocol::{Deliver, Delivered, Item, Link, Linked, PathStep, Records, Tail},
    table::{Condition, TableAnswer, TableEntry, TableRequest},
};
use std::future::Future;
use tokio::task::JoinSet;

/// An answer that is waited for this long is not missed by anybody.
pub const WAIT_MS: u32 = 100_000;
/// The identity of a namespace that only sends.
const SENDER: u64 = 0x77;

pub const MEMORY: AppendOptions<'_> = AppendOptions {
    durability: Some(Durability::Memory),
    function: None,
    key: None,
    fence: None,
    cause: EventId::NONE,
    after: EventId::NONE,
};

async fn connect(place: &str) -> Result<Client> {
    Client::connect(&place.parse()?, &Options::default()).await
}

pub fn record(log: &str, record: &Record) -> Fact {
    let (data, id) = (record.data.clone(), Some(record.id.to_string()));
    Fact::Record { log: log.into(), seqno: record.seqno, data, id }
}

fn receipt(log: &str, data: &[u8], receipt: &Receipt) -> Fact {
    Fact::Record { log: log.into(), seqno: receipt.seqno, data: data.into(), id: Some(receipt.id.to_string()) }
}

/// What is asked at the same time; what is never answered ends with its connection.
pub struct Asked {
    pen: Pen,
    tasks: JoinSet<()>,
}

impl Asked {
    pub fn new(pen: &Pen) -> Self {
        Self { pen: pen.clone(), tasks: JoinSet::new() }
    }

    /// Asks, and notes what the answer says; an error says nothing unless `facts` is told of it.
    pub fn ask<T: Send + 'static>(
        &mut self,
        asked: impl Future<Output = Result<T>> + Send + 'static,
        facts: impl FnOnce(Result<T>) -> Vec<Fact> + Send + 'static,
    ) {
        let pen = self.pen.clone();
        self.tasks.spawn(async move { facts(asked.await).into_iter().for_each(|fact| pen.note(fact)) });
    }

    pub async fn answered(mut self) {
        while let Some(done) = self.tasks.join_next().await {
            if let Err(error) = done {
                std::panic::resume_unwind(error.into_panic());
            }
        }
    }
}

/// What a good answer says.
pub fn good<T>(facts: impl FnOnce(T) -> Vec<Fact>) -> impl FnOnce(Result<T>) -> Vec<Fact> {
    |answer| answer.map(facts).unwrap_or_default()
}

/// One connection.
pub async fn wire(pen: Pen, place: String, tag: &'static str) {
    // The host may die before it answers.
    let _ = wire_or_end(pen, place, tag).await;
}

async fn wire_or_end(pen: Pen, place: String, tag: &'static str) -> Result<()> {
    let client = connect(&place).await?;
    let mut asked = Asked::new(&pen);
    let text = pen.name_of(tag);

    // Something that is there, and that nobody may be told as safe yet.
    let seen = client.append("raw", text.as_bytes(), MEMORY).await?.seqno;
    if pen.phase.sends() {
        client.append("in", text.as_bytes(), MEMORY).await?;
    }
    if pen.phase.kind == Kind::Flow {
        for log in ["push", "pull"] {
            client.append(log, text.as_bytes(), MEMORY).await?;
        }
    }
    appends(&client, &mut asked, &text).await?;
    reads(&client, &mut asked, seen);
    documents(&client, &mut asked);
    streams::ask(&client, &mut asked, &pen, &text).await?;
    logs(&client, &mut asked, &pen, &text).await;
    asked.answered().await;
    Ok(())
}

async fn appends(client: &Client, asked: &mut Asked, text: &str) -> Result<()> {
    let data = format!("{text}-one");
    let pending = client.send_append("raw", data.as_bytes(), AppendOptions::default()).await?;
    asked.ask(pending.receipt(), good(move |reported| vec![receipt("raw", data.as_bytes(), &reported)]));

    let (of_task, two) = (client.clone(), [format!("{text}-two"), format!("{text}-three")]);
    let of_answer = two.clone();
    let many = async move {
        let records = [("raw", two[0].as_bytes()), ("raw", two[1].as_bytes())];
        of_task.append_many(&records, AppendOptions::default()).await
    };
    let reported = move |reported: Vec<Receipt>| {
        reported.iter().zip(of_answer).map(|(reported, data)| receipt("raw", data.as_bytes(), reported)).collect()
    };
    asked.ask(many, good(reported));

    // The same append twice, and another one with its key; in this order, since they come over one connection.
    let key = format!("key-{text}");
    for _ in 0..2 {
        let options = AppendOptions { key: Some(&key), ..AppendOptions::default() };
        let pending = client.send_append("raw", key.as_bytes(), options).await?;
        let key = key.clone();
        let reported = move |reported: Receipt| {
            let seqno = reported.seqno;
            vec![receipt("raw", key.as_bytes(), &reported), Fact::Key { key, seqno }]
        };
        asked.ask(pending.receipt(), good(reported));
    }
    let options = AppendOptions { key: Some(&key), ..AppendOptions::default() };
    let pending = client.send_append("raw", b"something else", options).await?;
    asked.ask(pending.receipt(), move |answer| match answer {
        Err(error) if error.code() == Code::KeyConflict => vec![Fact::Conflict { key }],
        _ => Vec::new(),
    });
    Ok(())
}

fn reads(client: &Client, asked: &mut Asked, seen: u64) {
    for seqno in [seen, 0] {
        let client = client.clone();
        let get = async move { client.get("raw", seqno, Wait::default()).await };
        asked.ask(get, good(|reported| vec![record("raw", &reported)]));
    }
    let waits = client.clone();
    let waits = async move { waits.get("raw", seen + 1, Wait::ms(WAIT_MS)).await };
    asked.ask(waits, good(|reported| vec![record("raw", &reported)]));
    let range = client.clone();
    let range = async move { range.range("raw", seen, 10, None).await };
    asked.ask(range, good(|reported: Batch| reported.records.iter().map(|one| record("raw", one)).collect()));
    for (above, wait) in [(0, Wait::default()), (seen - 1, Wait::ms(WAIT_MS))] {
        let client = client.clone();
        let latest = async move { client.latest("raw", above, wait).await };
        asked.ask(latest, good(|latest| vec![Fact::Reaches { log: "raw".into(), latest }]));
    }
    let put = TableRequest::Put { key: b"key", value: b"2", condition: Condition::Always, ttl_ms: 0 };
    for request in [put, TableRequest::Get { key: b"key" }] {
        let client = client.clone();
        let told = async move { client.table("table", &request, AppendOptions::default()).await };
        let version = |entry: &TableEntry| Fact::Version { key: "key".into(), version: entry.version };
        asked.ask(told, good(move |answer: TableAnswer| answer.entries.iter().map(version).collect()));
    }
    // A tail's first answer says where it stands.
    let of_tail = client.clone();
    let begins = async move {
        let tail = Tail { log: "raw", from: 0, incarnation: 0, credit: 0, durability: None };
        let reply = of_tail.send(&tail, 0, WAIT_MS).await?.await?;
        let reported: Records<'_> = reply.message()?;
        Ok((reported.incarnation, reported.next))
    };
    let reported = |(incarnation, next): (u32, u64)| {
        let log = || "raw".to_owned();
        vec![Fact::Incarnation { log: log(), incarnation }, Fact::Reaches { log: log(), latest: next - 1 }]
    };
    asked.ask(begins, good(reported));
    let follower = client.clone();
    let follows = async move { follower.tail("raw", seen, Default::default()).await?.next_batch().await };
    asked.ask(follows, good(|reported: Batch| reported.records.iter().map(|one| record("raw", one)).collect()));
}

fn documents(client: &Client, asked: &mut Asked) {
    for path in
        ["status", "logs", "logs/raw", "functions", "functions/copy", "runs?limit=3", "journal?last=30", "links"]
    {
        let client = client.clone();
        let show = async move { client.show(path).await };
        asked.ask(show, good(move |text: String| of_document(path, &text)));
    }
    // Why the newest run has not ended is told of a run that may yet be lost.
    let client = client.clone();
    let why = async move {
        let runs = of_document("runs", &client.show("runs?limit=1").await?);
        let Some(Fact::Run { id, .. }) = runs.into_iter().next() else { return Ok(Vec::new()) };
        client.show(&format!("why/{id}")).await?;
        Ok(vec![Fact::Run { id, ended: false }])
    };
    asked.ask(why, good(|facts| facts));
}

/// What a document tells.
pub fn of_document(path: &str, text: &str) -> Vec<Fact> {
    let document: serde_json::Value = serde_json::from_str(text).expect("documents are JSON");
    let (number, word) = (
        |value: &serde_json::Value| value.as_u64().unwrap_or(0),
        |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned(),
    );
    let log = |log: &serde_json::Value| {
        let name = word(&log["name"]);
        vec![
            Fact::Reaches { log: name.clone(), latest: number(&log["latest"]) },
            Fact::Incarnation { log: name, incarnation: number(&log["incarnation"]) as u32 },
        ]
    };
    let function = |one: &serde_json::Value| {
        let function = || word(&one["name"]);
        vec![
            Fact::Triggered { function: function(), count: number(&one["triggered"]) },
            Fact::Ended { function: function(), count: number(&one["done"]) },
        ]
    };
    let records = |list: &serde_json::Value| {
        let records = list.as_array().cloned().unwrap_or_default();
        records.iter().map(|record| (word(&record["log"]), number(&record["seqno"]))).collect()
    };
    let list = |name: &str| document[name].as_array().cloned().unwrap_or_default();
    match path.split(['?', '/']).next().unwrap_or_default() {
        "status" => vec![Fact::Tail { position: number(&document["tail"]) }],
        // The runtime's own logs of links come and go; a log that is removed on purpose is looked up by its remover.
        "logs" if path == "logs" => {
            list("logs").iter().filter(|one| is_lasting(&word(&one["name"]))).flat_map(log).collect()
        }
        "logs" => log(&document),
        "functions" if path == "functions" => {
            list("functions").iter().filter(|one| is_ours(&word(&one["name"]))).flat_map(function).collect()
        }
        "functions" => function(&document),
        "runs" if path.starts_with("runs/") => vec![Fact::Calls {
            id: word(&document["id"]),
            reads: records(&document["reads"]),
            appends: records(&document["appends"]),
        }],
        "runs" => {
            list("runs").iter().map(|run| Fact::Run { id: word(&run["id"]), ended: run["ended"].is_string() }).collect()
        }
        "journal" => list("entries")
            .iter()
            .filter(|entry| entry["id"].is_string())
            .map(|entry| Fact::Entry { position: number(&entry["position"]), id: word(&entry["id"]) })
            .collect(),
        _ => Vec::new(),
    }
}

pub fn is_lasting(log: &str) -> bool {
    ["raw", "in", "out", "push", "pull", "from_push", "from_pull", "from_box", "small", "idle"].contains(&log)
        || ["asks", "parts", "from_parts"].contains(&log)
}

/// A function that is there in every life.
pub fn is_ours(function: &str) -> bool {
    ["copy", "streams"].contains(&function)
}

/// Logs that are made and removed, and what is said of them before that is safe.
async fn logs(client: &Client, asked: &mut Asked, pen: &Pen, text: &str) {
    let (made, going) = (format!("made-{text}"), format!("going-{text}"));
    let (of_task, log) = (client.clone(), made.clone());
    let create = async move { of_task.create_log(&log, 10).await.map(|()| log) };
    asked.ask(create, good(|log| vec![Fact::Is { log }]));
    let of_pen = made.clone();
    pen.inside(|namespace| namespace.log(&of_pen).is_ok()).await;
    let is = |log: String| move || vec![Fact::Is { log }];

    let (of_task, log, reported) = (client.clone(), made.clone(), is(made.clone()));
    asked.ask(async move { of_task.latest(&log, 0, Wait::default()).await }, good(move |_| reported()));
    let (of_task, log, reported) = (client.clone(), made.clone(), is(made.clone()));
    asked.ask(async move { of_task.range(&log, 1, 10, None).await }, good(move |_| reported()));
    let (of_task, log, reported) = (client.clone(), made.clone(), is(made.clone()));
    let refused = async move { of_task.create_log(&log, 11).await };
    asked.ask(refused, move |answer| match answer {
        Err(error) if error.code() == Code::LogExists => reported(),
        _ => Vec::new(),
    });

    // In the calm before, `local` has made the one that goes now.
    if !pen.phase.pressed {
        return;
    }
    if pen.namespace.log(&going).is_err() {
        return; // Its making was not told before an earlier end.
    }
    let (of_task, log) = (client.clone(), going.clone());
    let remove = async move { of_task.remove_log(&log).await.map(|()| log) };
    asked.ask(remove, good(|log| vec![Fact::Gone { log }]));
    let of_pen = going.clone();
    pen.inside(|namespace| namespace.log(&of_pen).is_err()).await;
    for wait in [Wait::default(), Wait::ms(WAIT_MS)] {
        let (of_task, log) = (client.clone(), going.clone());
        let get = async move { of_task.get(&log, 1, wait).await };
        let log = going.clone();
        asked.ask(get, move |answer| match answer {
            Err(error) if error.code() == Code::LogNotFound => vec![Fact::Gone { log }],
            _ => Vec::new(),
        });
    }
    let (of_task, log) = (client.clone(), going.clone());
    let tail = async move { of_task.tail(&log, 1, Default::default()).await?.next_batch().await };
    asked.ask(tail, move |answer| match answer {
        Err(error) if error.code() == Code::LogNotFound => vec![Fact::Gone { log: going }],
        _ => Vec::new(),
    });
}

/// A host whose own power never fails, and which believes every acknowledgement.
pub async fn sending_host(pen: Pen, place: String) {
    let _ = sends(pen, place).await;
}

fn link<'a>(stream: &'a str, target: Option<&'a str>, path: Vec<PathStep>) -> Link<'a> {
    Link { stream, namespace: SENDER, epoch: 1, target, path, ..Link::default() }
}

async fn sends(pen: Pen, place: String) -> Result<()> {
    let (client, again) = (connect(&place).await?, connect(&place).await?);
    let mut asked = Asked::new(&pen);
    let number = |log: String| move |number: u64| vec![Fact::Stream { log, number }];
    let text = pen.name_of("sent");
    let stream = format!("raw/{text}");
    let log = format!("_inbox/{}/{stream}", millrace_wire::NamespaceId::new(SENDER).expect("an identity"));
    let opened = client.send(&link(&stream, None, Vec::new()), 0, 0).await?;
    let request = opened.request();
    let opened = async move { Ok(opened.await?.message::<Linked>()?.number) };
    asked.ask(opened, good(number(log.clone())));
    for first in 1..=3u64 {
        let id = EventId::from_bits(u128::from(SENDER) << 80 | 1 << 56 | u128::from(first));
        let item = Item { log: "raw", data: text.as_bytes(), id, hlc: Hlc::default(), function: None, void: false };
        let deliver = Deliver { link: request, first, gap: false, items: vec![item] };
        let pending = client.send(&deliver, text.len(), 0).await?;
        let delivered = async move { Ok(pending.await?.message::<Delivered>()?.number) };
        asked.ask(delivered, good(number(log.clone())));
    }
    // It connects again, before it has heard anything.
    let of_pen = log.clone();
    pen.inside(|namespace| crate::reported::number_of(namespace, &of_pen) == 3).await;
    let opened = again.send(&link(&stream, None, Vec::new()), 0, 0).await?;
    asked.ask(async move { Ok(opened.await?.message::<Linked>()?.number) }, good(number(log)));
    if pen.phase.kind == Kind::Path && pen.phase.pressed {
        let path = vec![PathStep { namespace: SENDER, log: pen.name_of(&format!("elsewhere-{}", pen.name)) }];
        let stream = format!("path/{text}");
        let opened = client.send(&link(&stream, Some("push"), path), 0, 0).await?;
        asked.ask(async move { Ok(opened.await?.message::<Linked>()?.number) }, good(|_| Vec::new()));
    }
    asked.answered().await;
    Ok(())
}
