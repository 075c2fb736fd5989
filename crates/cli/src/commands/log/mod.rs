//! `millrace log …`

mod append;
mod get;
mod tail;

use crate::{
    args::{Global, LogCommand},
    out::{Out, Table},
    place,
    report::Outcome,
    show,
};
use millrace_node::{Code, Error, LogName, LogStat, Namespace, Record, Result};
use serde_json::{Value, json};

pub fn run(command: &LogCommand, global: &Global, out: &mut Out) -> Outcome {
    let namespace = place::open(global)?;
    match command {
        LogCommand::Create(args) => create(&namespace, &args.name, args.history, out),
        LogCommand::Append(args) => append::run(&namespace, args, out),
        LogCommand::Get(args) => get::run(&namespace, args, out),
        LogCommand::Tail(args) => tail::run(&namespace, args, out),
        LogCommand::Ls(args) => ls(&namespace, args.prefix.as_deref().unwrap_or(""), out),
        LogCommand::Stat(args) => stat(&namespace, &args.name, out),
        LogCommand::Rm(args) => rm(&namespace, &args.name, out),
    }
}

fn create(namespace: &Namespace, name: &str, history: u64, out: &mut Out) -> Outcome {
    let name: LogName = name.parse()?;
    let existed = namespace.log(&name).is_ok();
    let log = namespace.create_log(&name, history)?;
    if out.json() {
        let change = if existed { "unchanged" } else { "created" };
        out.object(&json!({ "log": log.name(), "history": log.history(), "change": change }))?;
    } else if existed {
        out.line(format!("log {name} is there already, with a history of {history}"))?;
    } else {
        out.line(format!("created log {name} (keeps {})", show::count(history, "record")))?;
    }
    Ok(())
}

fn rm(namespace: &Namespace, name: &str, out: &mut Out) -> Outcome {
    let name: LogName = name.parse()?;
    namespace.remove_log(&name)?;
    if out.json() {
        out.object(&json!({ "log": name, "change": "removed" }))?;
    } else {
        out.line(format!("removed log {name}"))?;
    }
    Ok(())
}

/// How many records a log has that can be read.
fn records(log: &LogStat) -> u64 {
    if log.earliest == 0 { 0 } else { log.latest - log.earliest + 1 }
}

/// The newest record, if there is one and it is not overtaken while we look.
fn newest(namespace: &Namespace, log: &LogStat) -> Option<Record> {
    (log.latest > 0).then(|| namespace.get(&log.name, log.latest).ok()).flatten()
}

fn stat_object(log: &LogStat, newest: Option<&Record>) -> Value {
    json!({
        "name": log.name, "history": log.history, "records": records(log),
        "earliest": log.earliest, "latest": log.latest, "functions": log.functions,
        "last_append": newest.map(|record| show::rfc3339(record.hlc)),
    })
}

fn names(log: &LogStat) -> String {
    log.functions.iter().map(|name| &**name).collect::<Vec<_>>().join(", ")
}

fn ls(namespace: &Namespace, prefix: &str, out: &mut Out) -> Outcome {
    let now_us = show::now_us();
    let mut table = Table::new(&["log", "records>", "latest>", "history>", "last append", "runs"]);
    for log in namespace.logs()?.iter().filter(|log| log.name.starts_with(prefix)) {
        let newest = newest(namespace, log);
        if out.json() {
            out.object(&stat_object(log, newest.as_ref()))?;
            continue;
        }
        table.row(vec![
            log.name.to_string(),
            show::grouped(records(log)),
            show::grouped(log.latest),
            show::grouped(log.history),
            newest.map_or("-".into(), |record| show::ago(record.hlc, now_us)),
            names(log),
        ]);
    }
    if out.json() {
        return Ok(());
    }
    if table.is_empty() {
        return Ok(out.line("no logs; `millrace log create NAME` makes one")?);
    }
    Ok(out.table(&table)?)
}

fn stat(namespace: &Namespace, name: &str, out: &mut Out) -> Outcome {
    // Looked up by name first, so that a name that cannot be one says so.
    let name = namespace.log(name)?.name().clone();
    let log = namespace.logs()?.into_iter().find(|log| log.name == name).ok_or_else(|| no_log(&name))?;
    let newest = newest(namespace, &log);
    if out.json() {
        return Ok(out.object(&stat_object(&log, newest.as_ref()))?);
    }
    let bounds = match records(&log) {
        0 => "none".to_string(),
        n => format!("{} ({} to {})", show::grouped(n), log.earliest, log.latest),
    };
    let last = newest.map_or("never".into(), |record| {
        format!("{} ({})", show::ago(record.hlc, show::now_us()), show::rfc3339(record.hlc))
    });
    let bound = if log.functions.is_empty() { "nothing".into() } else { names(&log) };
    out.line(format!("log          {}", log.name))?;
    out.line(format!("records      {bounds}"))?;
    out.line(format!("history      {}", show::count(log.history, "record")))?;
    out.line(format!("last append  {last}"))?;
    out.line(format!("runs         {bound}"))?;
    Ok(())
}

fn no_log(name: &str) -> Error {
    Code::LogNotFound.error(format!("no log '{name}'"))
}

/// A sequence number as typed.
fn parse_seqno(text: &str) -> Result<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match text.parse() {
        Ok(seqno) if digits && seqno > 0 => Ok(seqno),
        _ => {
            let shown: String = text.chars().take(40).flat_map(char::escape_debug).collect();
            Err(Code::SeqnoInvalid.error(format!("'{shown}' is not a sequence number")))
        }
    }
}

/// A record for programs.
fn record_object(log: &str, record: &Record) -> Value {
    let mut object = json!({
        "log": log, "seqno": record.seqno, "id": show::id(record.id), "time": show::rfc3339(record.hlc),
        "cause": show::id(record.cause),
    });
    show::put_data(&mut object, &record.payload);
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_positive_whole_numbers_are_sequence_numbers() {
        assert_eq!(parse_seqno("18446744073709551615").unwrap(), u64::MAX);
        for text in ["", "0", "-1", "+1", "1.5", "x", "18446744073709551616", "1 ", "１"] {
            assert_eq!(parse_seqno(text).unwrap_err().code(), Code::SeqnoInvalid, "{text}");
        }
    }
}
