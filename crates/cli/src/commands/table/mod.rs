//! `millrace table …`

mod database;
mod replica;

use super::log::{durability, whole_input};
use crate::{
    args::{
        CreateTableArgs, DeleteKeyArgs, GetKeyArgs, Global, IncrementArgs, PutArgs, ScanArgs, TableCommand,
        VersionsArgs,
    },
    out::{self, Out},
    place::Place,
    report::Outcome,
    show,
};
use millrace_documents::{TableEntryDoc, TableKeyDoc};
use millrace_node::{AppendOptions, Code, HISTORY_ALL, LogName, Result, history};
use millrace_wire::{
    EventId, Hlc,
    table::{
        Condition, KeyRange, SCAN_MAX, TableAnswer, TableEntry, TableOptions, TableRequest, after_prefix, show_key,
    },
    units,
};
use serde_json::{Value, json};
use std::{os::unix::ffi::OsStrExt, time::Duration};

pub fn run(command: &TableCommand, global: &Global, out: &mut Out) -> Outcome {
    let place = Place::find(global)?;
    match command {
        TableCommand::Create(args) => create(&place, args, out),
        TableCommand::Put(args) => put(&place, args, out),
        TableCommand::Get(args) => {
            let (entry, token) = get(&place, args)?;
            if out.json() {
                out.object(&tokened(json!(TableEntryDoc::of(&entry, false)), token))?;
            } else if args.raw {
                out.bytes(entry.value.as_deref().unwrap_or_default())?;
            } else {
                let text = show::whole(entry.value.as_deref().unwrap_or_default());
                out.line(text.strip_suffix('\n').unwrap_or(&text))?;
            }
            Ok(())
        }
        TableCommand::Delete(args) => delete(&place, args, out),
        TableCommand::Increment(args) => increment(&place, args, out),
        TableCommand::Scan(args) => scan(&place, args, out),
        TableCommand::Versions(args) => versions(&place, args, out),
        TableCommand::Mirror(args) => replica::mirror(&place, args, out),
        TableCommand::Ls => ls(&place, out),
        TableCommand::Database(args) => database::set(&place, args, out),
        TableCommand::Externalize(args) => database::externalize(&place, args, out),
        TableCommand::Lag => database::lag(&place, out),
        TableCommand::Resume(args) => database::resume(&place, args, out),
        TableCommand::Resync(args) => database::resync(&place, args, out),
        TableCommand::Check(args) => database::check(&place, args, out),
        TableCommand::Load(args) => database::load(&place, args, out),
    }
}

fn create(place: &Place, args: &CreateTableArgs, out: &mut Out) -> Outcome {
    let name: LogName = args.name.parse()?;
    let ttl_ms = millis(args.ttl);
    let (database, mode) = (args.database, args.mode.into());
    let options = TableOptions { keys: args.keys.into(), codec: args.codec.into(), ttl_ms, database, mode };
    let existed = place.create_table(&name, args.history, options)?;
    if out.json() {
        let change = if existed { "unchanged" } else { "created" };
        let history = Some(args.history).filter(|kept| *kept != HISTORY_ALL);
        out.object(&json!({ "table": name, "keys": options.keys, "codec": options.codec, "ttl_ms": ttl_ms, "history": history, "change": change }))?;
    } else if existed {
        out.line(format!("table {name} already exists with these attributes"))?;
    } else {
        out.line(format!("created table {name}"))?;
    }
    Ok(())
}

fn millis(ttl: Option<Duration>) -> u64 {
    ttl.map_or(0, |ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).max(1))
}

fn put(place: &Place, args: &PutArgs, out: &mut Out) -> Outcome {
    let value = match &args.value {
        Some(value) => value.as_bytes().to_vec(),
        None => whole_input()?,
    };
    let condition = match (args.if_version, args.if_absent) {
        (Some(version), _) => Condition::Version(version),
        (None, true) => Condition::Absent,
        (None, false) => Condition::Always,
    };
    let key = args.at.key.as_bytes();
    let request = TableRequest::Put { key, value: &value, condition, ttl_ms: millis(args.ttl) };
    let options = AppendOptions { durability: args.durability.map(durability), ..AppendOptions::default() };
    let answer = place.ask_table(&args.at.table, &request, options)?;
    let version = answer.entries.first().map_or(0, |entry| entry.version);
    if out.json() {
        let document = json!({ "table": args.at.table, "key": TableKeyDoc::of(key), "version": version });
        out.object(&tokened(document, answer.token))?;
    } else {
        out.line(version.to_string())?;
    }
    Ok(())
}

fn ask(place: &Place, table: &str, request: &TableRequest<'_>) -> Result<TableAnswer> {
    place.ask_table(table, request, AppendOptions::default())
}

fn absent(table: &str, key: &[u8]) -> millrace_node::Error {
    Code::TableKeyAbsent.error(format!("table '{table}' has no key '{}'", show_key(key)))
}

/// The options of a read.
fn after(token: Option<EventId>) -> AppendOptions<'static> {
    AppendOptions { after: token.unwrap_or_default(), ..AppendOptions::default() }
}

/// The document with the token of the answer.
fn tokened(mut document: Value, token: EventId) -> Value {
    if !token.is_none() {
        document["token"] = json!(token.to_string());
    }
    document
}

fn get(place: &Place, args: &GetKeyArgs) -> Result<(TableEntry, EventId)> {
    let (table, key) = (&args.at.table, args.at.key.as_bytes());
    let answer = place.ask_table(table, &TableRequest::Get { key }, after(args.after))?;
    let entry = answer.entries.into_iter().next().ok_or_else(|| absent(table, key))?;
    Ok((entry, answer.token))
}

fn delete(place: &Place, args: &DeleteKeyArgs, out: &mut Out) -> Outcome {
    let (table, key) = (&args.at.table, args.at.key.as_bytes());
    let condition = args.if_version.map_or(Condition::Always, Condition::Version);
    let answer = ask(place, table, &TableRequest::Delete { key, condition })?;
    let entry = answer.entries.first().ok_or_else(|| absent(table, key))?;
    if out.json() {
        let document =
            json!({ "table": table, "key": TableKeyDoc::of(key), "version": entry.version, "change": "deleted" });
        out.object(&tokened(document, answer.token))?;
    } else {
        out.line(format!("deleted {}", show_key(key)))?;
    }
    Ok(())
}

fn increment(place: &Place, args: &IncrementArgs, out: &mut Out) -> Outcome {
    let (table, key) = (&args.at.table, args.at.key.as_bytes());
    let answer = ask(place, table, &TableRequest::Increment { key, amount: args.by })?;
    let entry = answer.entries.first().ok_or_else(|| absent(table, key))?;
    if out.json() {
        out.object(&tokened(json!(TableEntryDoc::of(entry, false)), answer.token))?;
    } else {
        out.line(show::whole(entry.value.as_deref().unwrap_or_default()))?;
    }
    Ok(())
}

fn scan(place: &Place, args: &ScanArgs, out: &mut Out) -> Outcome {
    let prefix = args.prefix.as_bytes();
    let mut from = args.from.as_deref().map_or(prefix, OsStrExt::as_bytes).max(prefix).to_vec();
    let end = after_prefix(prefix);
    let to = match args.to.as_deref().map(OsStrExt::as_bytes) {
        Some(to) if end.is_empty() || *to < *end => to.to_vec(),
        _ => end,
    };
    let (mut left, keys_only) = (args.limit.unwrap_or(u64::MAX), args.keys);
    loop {
        let limit = left.min(SCAN_MAX.into()) as u32; // at most SCAN_MAX
        let range = KeyRange { from: &from, to: &to };
        let request = TableRequest::Scan { range, limit, keys_only };
        let answer = place.ask_table(&args.table, &request, after(args.after))?;
        let width = answer.entries.iter().map(|entry| show_key(&entry.key).chars().count()).max().unwrap_or(0).min(40);
        for entry in &answer.entries {
            if out.json() {
                out.object(&json!(TableEntryDoc::of(entry, keys_only)))?;
            } else if keys_only {
                out.line(show_key(&entry.key))?;
            } else {
                let value = show::one_line(entry.value.as_deref().unwrap_or_default());
                out.line(format!("{:<width$}  {value}", show_key(&entry.key)))?;
            }
        }
        left -= (answer.entries.len() as u64).min(left);
        match answer.entries.last().filter(|_| answer.more && left > 0) {
            Some(last) => from = [&*last.key, &[0]].concat(),
            None => return Ok(()),
        }
    }
}

fn versions(place: &Place, args: &VersionsArgs, out: &mut Out) -> Outcome {
    let (table, key) = (&args.at.table, args.at.key.as_bytes());
    let request = TableRequest::Versions { key, below: 0, limit: args.limit };
    let answer = place.ask_table(table, &request, after(args.after))?;
    if answer.entries.is_empty() {
        return Err(absent(table, key).into());
    }
    let now_us = show::now_us();
    let width = answer.entries.first().map_or(0, |entry| entry.version.to_string().len());
    for entry in &answer.entries {
        if out.json() {
            out.object(&json!(TableEntryDoc::of(entry, false)))?;
            continue;
        }
        let value = entry.value.as_deref().map_or_else(|| "(deleted)".into(), show::one_line);
        let when = out.styled(out::Style::Dim, &format!("{:>8}", show::ago(Hlc::from_wall_us(entry.time_us), now_us)));
        out.line(format!("{:>width$}  {when}  {value}", entry.version))?;
    }
    Ok(())
}

fn ls(place: &Place, out: &mut Out) -> Outcome {
    let docs = place.tables()?;
    // Only those who have replicas see the columns about them.
    let has_replicas = docs.iter().any(|doc| doc.replica.is_some());
    let mut columns = vec!["table", "values", "keys", "expires after", "changes>", "history>"];
    columns.extend(has_replicas.then_some(["owner", "state"]).into_iter().flatten());
    let mut table = out::Table::new(&columns);
    for doc in docs {
        if out.json() {
            out.object(&json!(doc))?;
            continue;
        }
        let word = |value: Value| value.as_str().unwrap_or_default().to_owned();
        let mut row = vec![
            doc.table.to_string(),
            word(json!(doc.codec)),
            word(json!(doc.keys)),
            if doc.ttl_ms == 0 { "-".into() } else { units::show_duration(Duration::from_millis(doc.ttl_ms)) },
            show::grouped(doc.latest),
            history::show(doc.history),
        ];
        if has_replicas {
            row.extend(doc.replica.as_ref().map_or_else(|| ["-".into(), "-".into()], replica::columns));
        }
        table.row(row);
    }
    if out.json() {
        return Ok(());
    }
    if table.is_empty() {
        return Ok(out.line("no tables; `millrace table create NAME` creates one")?);
    }
    Ok(out.table(&table)?)
}
