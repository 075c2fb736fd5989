//! `millrace topic …`

use super::{Names, host, patience::patiently};
use crate::{
    args::{
        CreateTopicArgs, Global, MirrorTopicArgs, PublishArgs, PublishDurability, RangeTopicArgs, TailTopicArgs,
        TopicCommand,
    },
    out::{Out, Table},
    place::remote::Remote,
    report::Outcome,
    show,
};
use millrace_client::{Record, blocking::Client};
use millrace_documents::TopicRecordDoc;
use millrace_node::{Address, Code, HISTORY_ALL, Hlc, Result};
use serde_json::{Value, json};
use std::{
    io::Read,
    time::{Duration, Instant},
};

/// Records of one request.
const BATCH: u32 = 1024;
/// A wait is repeated at least so often.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Records that a tail begins with.
const LAST: u64 = 10;
/// No record is longer.
const RECORD_MAX_BYTES: u64 = 16 << 20;

pub fn run(command: &TopicCommand, global: &Global, out: &mut Out) -> Outcome {
    let remote = host(global)?;
    let client = remote.client();
    match command {
        TopicCommand::Create(args) => create(client, args, out),
        TopicCommand::Rm(args) if args.waiting => {
            patiently(client, out, |client| client.discard_waiting(&args.topic))?;
            let line = format!("discarded the records that waited on this host for topic {}", args.topic);
            said(out, json!({ "topic": args.topic, "change": "discarded" }), line)
        }
        TopicCommand::Rm(args) => {
            patiently(client, out, |client| client.remove_topic(&args.topic))?;
            said(out, json!({ "topic": args.topic, "change": "removed" }), format!("removed topic {}", args.topic))
        }
        TopicCommand::Publish(args) => publish(client, args, out),
        TopicCommand::Get(args) => {
            let index = args.index.as_deref().map(index).transpose()?.unwrap_or(0);
            let record = patiently(client, out, |client| client.get_topic(&args.topic, index))?;
            if out.json() {
                out.object(&object(&args.topic, &record))?;
            } else if args.raw {
                out.bytes(&record.data)?;
            } else {
                let text = show::whole(&record.data);
                out.line(text.strip_suffix('\n').unwrap_or(&text))?;
            }
            Ok(())
        }
        TopicCommand::Range(args) => range(&remote, args, out),
        TopicCommand::Latest(args) => {
            let latest = patiently(client, out, |client| client.latest_topic(&args.topic, 0, 0))?;
            said(out, json!({ "topic": args.topic, "latest": latest }), latest.to_string())
        }
        TopicCommand::Tail(args) => tail(&remote, args, out),
        TopicCommand::Subscribe(args) => {
            patiently(client, out, |client| client.subscribe_topic(&args.topic, &args.function))?;
            let line = format!(
                "from now on, function {} runs on this host for every record of topic {}",
                args.function, args.topic
            );
            said(out, json!({ "topic": args.topic, "function": args.function, "change": "subscribed" }), line)
        }
        TopicCommand::Unsubscribe(args) => {
            patiently(client, out, |client| client.unsubscribe_topic(&args.topic, &args.function))?;
            let line = format!("function {} no longer runs on this host for topic {}", args.function, args.topic);
            said(out, json!({ "topic": args.topic, "function": args.function, "change": "unsubscribed" }), line)
        }
        TopicCommand::Feed(args) => {
            patiently(client, out, |client| client.feed_topic(&args.topic, &args.log))?;
            let line =
                format!("from now on, records appended to log {} are published to topic {}", args.log, args.topic);
            said(out, json!({ "topic": args.topic, "log": args.log, "change": "fed" }), line)
        }
        TopicCommand::Unfeed(args) => {
            patiently(client, out, |client| client.unfeed_topic(&args.topic, &args.log))?;
            let line = format!("log {} no longer feeds topic {}", args.log, args.topic);
            said(out, json!({ "topic": args.topic, "log": args.log, "change": "unfed" }), line)
        }
        TopicCommand::Mirror(args) => mirror(client, args, out),
        TopicCommand::Mirrors => mirrors(&remote, out),
        TopicCommand::Ls => ls(&remote, out),
    }
}

fn create(client: &Client, args: &CreateTopicArgs, out: &mut Out) -> Outcome {
    let topics: Vec<&str> = args.topics.iter().map(|topic| &**topic).collect();
    let groups = match args.place.placement() {
        Some(placement) => {
            let groups = patiently(client, out, |client| client.place_topics(&topics, placement))?;
            groups.into_iter().map(Some).collect()
        }
        None => vec![args.place.group.clone(); topics.len()],
    };
    for (topic, group) in topics.into_iter().zip(groups) {
        let (durability, engine) = (Some(args.durability.name()), args.engine.name());
        let existed = patiently(client, out, |client| {
            let existed = match client.latest_topic(topic, 0, 0) {
                // The cluster would not decide on the creation either, and the user would wait for the same timeout once more.
                Err(error) if error.code() == Code::GroupUnavailable => return Err(error),
                latest => latest.is_ok(),
            };
            client.create_topic_in(topic, args.history, durability, group.as_deref(), engine)?;
            Ok(existed)
        })?;
        let place = group.as_deref().map(|group| format!(" in group {group}")).unwrap_or_default();
        let (change, line) = if existed {
            ("unchanged", format!("topic {topic} already exists{place}"))
        } else {
            ("created", format!("created topic {topic}{place}"))
        };
        let group = group.as_deref().unwrap_or(millrace_node::cluster::MAIN_NAME);
        said(out, json!({ "topic": topic, "group": group, "change": change }), line)?;
    }
    Ok(())
}

fn mirror(client: &Client, args: &MirrorTopicArgs, out: &mut Out) -> Outcome {
    let MirrorTopicArgs { topic, to, history, stop } = args;
    if Address::claims(to) {
        let detail = format!(
            "'{to}' is an address, but a mirror is a log of the connected host; `millrace relay add` forwards the log to another namespace"
        );
        return Err(Code::ValueInvalid.error(detail).into());
    }
    let (change, line) = if *stop {
        patiently(client, out, |client| client.unmirror_topic(topic, to))?;
        ("ended", format!("log {to} no longer mirrors topic {topic}"))
    } else {
        patiently(client, out, |client| client.mirror_topic(topic, to, *history))?;
        ("begun", format!("log {to} mirrors topic {topic}"))
    };
    said(out, json!({ "topic": topic, "log": to, "change": change }), line)
}

fn mirrors(remote: &Remote, out: &mut Out) -> Outcome {
    let mirrors: Vec<Value> = remote.document("mirrors")?;
    let mut table = Table::new(&["log", "topic", "earliest>", "copied>", "behind>", "lost before>", ""]);
    for mirror in mirrors {
        if out.json() {
            out.object(&mirror)?;
            continue;
        }
        let number = |key: &str| mirror[key].as_u64().map_or("-".into(), show::grouped);
        let text = |key: &str| mirror[key].as_str().unwrap_or_default().to_owned();
        table.row(vec![
            text("log"),
            text("topic"),
            number("earliest"),
            number("copied"),
            number("lag"),
            number("missed"),
            text("trouble"),
        ]);
    }
    if out.json() {
        return Ok(());
    }
    if table.is_empty() {
        return Ok(out.line("no mirrors; `millrace topic mirror TOPIC --to LOG` creates one")?);
    }
    Ok(out.table(&table)?)
}

/// How many records of a topic wait on the host that was asked, since when, and why.
fn waiting(topic: &Value) -> String {
    let buffered = &topic["buffered"];
    let Some(records) = buffered["records"].as_u64() else { return String::new() };
    let since = Hlc::from_wall_us(buffered["since_ms"].as_u64().unwrap_or(0).saturating_mul(1000));
    let trouble = buffered["trouble"].as_str().map(|trouble| format!(" ({trouble})")).unwrap_or_default();
    format!("{} since {}{trouble}", show::grouped(records), show::rfc3339(since))
}

fn said(out: &mut Out, object: Value, line: String) -> Outcome {
    if out.json() { Ok(out.object(&object)?) } else { Ok(out.line(line)?) }
}

fn publish(client: &Client, args: &PublishArgs, out: &mut Out) -> Outcome {
    let mut data = args.data.clone().into_bytes();
    if args.data == "-" {
        data.clear();
        let read = std::io::stdin().lock().take(RECORD_MAX_BYTES + 1).read_to_end(&mut data);
        read.map_err(|error| Code::InputUnreadable.error(format!("cannot read standard input: {error}")))?;
        if data.is_empty() {
            return Err(Code::InputEmpty.error("standard input is empty").into());
        }
        // Only as much was read.
        if data.len() as u64 > RECORD_MAX_BYTES {
            let detail = format!("standard input has more than {RECORD_MAX_BYTES} bytes, the limit of a record");
            return Err(Code::RecordTooLong.error(detail).into());
        }
    }
    let durability = args.durability.map(PublishDurability::name);
    let publish = |client: &Client| client.publish(&args.topic, &data, args.key.as_deref(), durability);
    let index = patiently(client, out, publish)?;
    said(out, json!({ "topic": args.topic, "index": index }), index.to_string())
}

fn index(text: &str) -> Result<u64> {
    match text.parse() {
        Ok(index) if index > 0 && text.bytes().all(|byte| byte.is_ascii_digit()) => Ok(index),
        _ => {
            let shown: String = text.chars().take(40).flat_map(char::escape_debug).collect();
            Err(Code::SeqnoInvalid.error(format!("'{shown}' is not the index of a record")))
        }
    }
}

fn object(topic: &str, record: &Record) -> Value {
    json!(TopicRecordDoc::of(topic, record.seqno, record.hlc, &record.data))
}

fn print(topic: &str, record: &Record, out: &mut Out) -> Outcome {
    if out.json() {
        return Ok(out.object(&object(topic, record))?);
    }
    Ok(out.line(format!("{}  {}", record.seqno, show::one_line(&record.data)))?)
}

/// Prints the records from one to another; says where it came to.
fn print_up_to(remote: &Remote, topic: &str, (mut next, last): (u64, u64), out: &mut Out) -> Outcome<u64> {
    while next <= last {
        let count = u32::try_from(last - next + 1).unwrap_or(BATCH).min(BATCH);
        let batch = remote.client().range_topic(topic, next, count)?;
        if batch.records.is_empty() {
            break;
        }
        for record in &batch.records {
            print(topic, record, out)?;
            next = record.seqno + 1;
        }
    }
    Ok(next)
}

fn stat(remote: &Remote, topic: &str) -> Result<(u64, u64)> {
    // Asked first, so that the answer about the topic is at least as new as the question.
    let latest = remote.client().latest_topic(topic, 0, 0)?;
    let known = topics(remote)?.into_iter().find(|known| known["topic"] == topic);
    let earliest = known.and_then(|known| known["earliest"].as_u64()).unwrap_or(1);
    Ok((earliest.max(1), latest))
}

fn range(remote: &Remote, args: &RangeTopicArgs, out: &mut Out) -> Outcome {
    let (earliest, latest) = stat(remote, &args.topic)?;
    let from = args.from.as_deref().map(index).transpose()?;
    let to = args.to.as_deref().map(index).transpose()?.unwrap_or(latest);
    if from.unwrap_or(earliest) > to && (from.is_some() || args.to.is_some()) {
        let detail = format!(
            "the range is {} to {to}; topic '{}' has records {earliest} to {latest}",
            from.unwrap_or(earliest),
            args.topic
        );
        return Err(Code::ValueInvalid.error(detail).into());
    }
    print_up_to(remote, &args.topic, (from.unwrap_or(earliest), to.min(latest)), out).map(drop)
}

fn tail(remote: &Remote, args: &TailTopicArgs, out: &mut Out) -> Outcome {
    let (earliest, mut latest) = stat(remote, &args.topic)?;
    let from = args.from.as_deref().map(index).transpose()?;
    let mut next = from.unwrap_or((latest + 1).saturating_sub(LAST)).max(earliest);
    let mut news = Instant::now();
    loop {
        if latest >= next {
            next = print_up_to(remote, &args.topic, (next, latest), out)?;
            news = Instant::now();
        }
        out.flush()?;
        let left = match args.until_idle {
            _ if args.no_follow => return Ok(()),
            Some(idle) => match idle.checked_sub(news.elapsed()) {
                Some(left) if !left.is_zero() => left.min(WAIT_MAX),
                _ => return Ok(()),
            },
            None => WAIT_MAX,
        };
        let wait_ms = u32::try_from(left.as_millis()).unwrap_or(u32::MAX).max(1);
        let before = latest;
        latest = remote.client().latest_topic(&args.topic, next - 1, wait_ms)?;
        if latest < before {
            let detail = format!("topic '{}' was removed and recreated", args.topic);
            return Err(Code::TopicRecreated.error(detail).into());
        }
    }
}

/// All topics, as the host's documents have them.
pub fn topics(remote: &Remote) -> Result<Vec<Value>> {
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let path = format!("topics?after={}", crate::place::remote::segment(&after));
        let mut page: Value = remote.document(&path)?;
        if let Some(topics) = page["topics"].as_array_mut() {
            all.append(topics);
        }
        match page["next"].as_str() {
            Some(next) => after = next.to_owned(),
            None => return Ok(all),
        }
    }
}

/// What keeps the records of a topic, unless its group does, and why it cannot be used.
fn engine(topic: &Value) -> String {
    let trouble = topic["trouble"].as_str().map(|trouble| format!(" ({trouble})")).unwrap_or_default();
    topic["engine"].as_str().map(|engine| format!(", {engine}{trouble}")).unwrap_or_default()
}

fn ls(remote: &Remote, out: &mut Out) -> Outcome {
    let mut table = Table::new(&["topic", "group", "records>", "latest>", "history>", "runs", "fed by", "waits here"]);
    let names = if out.json() { Names::of(&Value::Null) } else { Names::of(&remote.document("cluster")?) };
    for topic in topics(remote)? {
        if out.json() {
            out.object(&topic)?;
            continue;
        }
        let number = |key: &str| topic[key].as_u64().unwrap_or(0);
        // A host that does not keep the group of a topic knows only its name.
        let known = |text: &dyn Fn() -> String| if topic["latest"].is_null() { "-".into() } else { text() };
        let runs = topic["subscriptions"].as_array().into_iter().flatten();
        let runs = runs.map(|known| {
            let text = |key: &str| known[key].as_str().unwrap_or("?").to_owned();
            let trouble = known["trouble"].as_str().map(|trouble| format!(" ({trouble})")).unwrap_or_default();
            format!("{} at {}{trouble}", text("function"), names.show(&known["host"]))
        });
        let feeds = topic["feeds"].as_array().into_iter().flatten().map(|known| {
            let text = |key: &str| known[key].as_str().unwrap_or("?").to_owned();
            let trouble = known["trouble"].as_str().map(|trouble| format!(" ({trouble})")).unwrap_or_default();
            format!("{} at {}{trouble}", text("log"), names.show(&known["host"]))
        });
        table.row(vec![
            topic["topic"].as_str().unwrap_or("?").to_owned(),
            topic["group"].as_str().unwrap_or("?").to_owned() + &engine(&topic),
            known(&|| show::grouped((number("latest") + 1).saturating_sub(number("earliest")))),
            known(&|| show::grouped(number("latest"))),
            known(&|| {
                topic["history"].as_u64().filter(|kept| *kept != HISTORY_ALL).map_or("all".into(), show::grouped)
            }),
            runs.collect::<Vec<_>>().join(", "),
            feeds.collect::<Vec<_>>().join(", "),
            waiting(&topic),
        ]);
    }
    if out.json() {
        return Ok(());
    }
    if table.is_empty() {
        return Ok(out.line("no topics; `millrace topic create NAME` creates one")?);
    }
    Ok(out.table(&table)?)
}
