//! `millrace log …`

mod append;
mod get;
mod tail;
mod transfer;

pub use append::{RECORD_MAX_BYTES, durability, whole_input};
pub use transfer::{fields, types};

use crate::{
    args::{CreateArgs, GetArgs, Global, LogCommand, LsArgs, SetArgs, TailArgs, TrimArgs},
    out::{Out, Table},
    place::{
        Place,
        docs::{LogDoc, last_append},
    },
    report::Outcome,
    show,
};
use millrace_node::{Code, Error, HISTORY_ALL, LogName, Record, Result, TimeField, documents::whole_record, history};
use serde_json::{Value, json};

pub fn run(command: &LogCommand, global: &Global, out: &mut Out) -> Outcome {
    let here = || Place::find(global);
    match command {
        LogCommand::Create(args) => create(&here()?, args, out),
        LogCommand::Append(args) => append::run(&here()?, args, out),
        LogCommand::Get(args) => {
            let (place, log) = Place::of_log(global, &args.log)?;
            get::run(&place, &GetArgs { log, ..args.clone() }, out)
        }
        LogCommand::Tail(args) => {
            let (place, log) = Place::of_log(global, &args.log).map_err(|error| count_for_namespace(error, global))?;
            tail::run(&place, &TailArgs { log, ..args.clone() }, out)
        }
        LogCommand::Export(args) => transfer::export::run(&here()?, args, out),
        LogCommand::Import(args) => transfer::import::run(&here()?, args, out),
        LogCommand::Ls(args) => ls(&here()?, args, out),
        LogCommand::Stat(args) => {
            let (place, log) = Place::of_log(global, &args.name)?;
            stat(&place, &log, out)
        }
        LogCommand::Set(args) => set(global, args, out),
        LogCommand::Trim(args) => trim(&here()?, args, out),
        LogCommand::Rm(args) => rm(&here()?, &args.name, out),
    }
}

/// The error of a `-n 5` that was meant as in `tail -n 5`.
fn count_for_namespace(error: Error, global: &Global) -> Error {
    let named = global.namespace.as_deref().and_then(|path| path.to_str()).unwrap_or("");
    if error.code() != Code::NotANamespace || named.is_empty() || !named.bytes().all(|byte| byte.is_ascii_digit()) {
        return error;
    }
    Code::NotANamespace
        .error(format!("{}; -n is the namespace: use -l {named} for the number of records", error.detail()))
}

fn create(place: &Place, args: &CreateArgs, out: &mut Out) -> Outcome {
    let (name, history, time): (LogName, u64, _) = (args.name.parse()?, args.history, args.observed.field()?);
    let existed = place.create_log(&name, history)?;
    let has_other = match &time {
        Some(time) => place.set_time_field(&name, Some(time))?,
        None => false,
    };
    let observed = time.as_ref().map_or(String::new(), |time| format!("; the time of the observation is in {time}"));
    if out.json() {
        let change = match (existed, has_other) {
            (false, _) => "created",
            (true, true) => "updated",
            (true, false) => "unchanged",
        };
        out.object(&changed(&name, Some(history), args.observed.time.is_some().then_some(&time), change))?;
    } else if existed {
        out.line(format!("log {name} already exists, with a history of {}{observed}", history::show(history)))?;
    } else {
        out.line(format!("created log {name} (keeps {}{observed})", kept(history)))?;
    }
    Ok(())
}

/// A change of a log for programs.
fn changed(name: &LogName, history: Option<u64>, time: Option<&Option<TimeField>>, change: &str) -> Value {
    let mut object = json!({ "log": name });
    if let Some(history) = history {
        object["history"] = json!(Some(history).filter(|kept| *kept != HISTORY_ALL));
    }
    if let Some(time) = time {
        object["time"] = json!(time);
    }
    object["change"] = json!(change);
    object
}

fn set(global: &Global, args: &SetArgs, out: &mut Out) -> Outcome {
    let (place, name) = Place::of_log(global, &args.name)?;
    let (name, time): (LogName, _) = (name.parse()?, args.observed.field()?);
    let before = place.log(&name)?.history;
    if let Some(history) = args.history {
        place.set_history(&name, history)?;
    }
    let names_time = time.is_some() || args.no_time;
    let has_other = names_time && place.set_time_field(&name, time.as_ref())?;
    if out.json() {
        let is_same = args.history.is_none_or(|history| history == before) && !has_other;
        let change = if is_same { "unchanged" } else { "updated" };
        out.object(&changed(&name, args.history, names_time.then_some(&time), change))?;
        return Ok(());
    }
    match args.history {
        Some(history) if before == history => out.line(format!("log {name} already keeps {}", kept(history)))?,
        Some(history) => {
            out.line(format!("log {name} now keeps {}; before, it kept {}", kept(history), kept(before)))?;
        }
        None => {}
    }
    match &time {
        Some(time) => out.line(format!("log {name}: the time of the observation is in {time}"))?,
        None if args.no_time => out.line(format!("log {name}: no field has the time of the observation"))?,
        None => {}
    }
    Ok(())
}

fn trim(place: &Place, args: &TrimArgs, out: &mut Out) -> Outcome {
    let name: LogName = args.name.parse()?;
    let (dropped, earliest) = place.trim_log(&name, args.before, args.force)?;
    if out.json() {
        out.object(&json!({ "log": name, "dropped": dropped, "earliest": earliest }))?;
    } else {
        out.line(format!("dropped {} of log {name}", show::count(dropped, "record")))?;
    }
    Ok(())
}

fn rm(place: &Place, name: &str, out: &mut Out) -> Outcome {
    let name: LogName = name.parse()?;
    place.remove_log(&name)?;
    if out.json() {
        out.object(&json!({ "log": name, "change": "removed" }))?;
    } else {
        out.line(format!("removed log {name}"))?;
    }
    Ok(())
}

/// Describes the records that a log with this history keeps.
fn kept(history: u64) -> String {
    if history == HISTORY_ALL { "all records until they are trimmed".into() } else { show::count(history, "record") }
}

fn ls(place: &Place, args: &LsArgs, out: &mut Out) -> Outcome {
    let prefix = args.prefix.as_deref().unwrap_or("");
    let internal = args.internal || LogName::is_internal(prefix);
    let listed = |log: &&LogDoc| log.name.starts_with(prefix) && (internal || !LogName::is_internal(&log.name));
    let now_us = show::now_us();
    let mut table = Table::new(&["log", "records>", "latest>", "history>", "last append", "runs"]);
    for log in place.logs()?.iter().filter(listed) {
        if out.json() {
            out.object(&json!(log))?;
            continue;
        }
        table.row(vec![
            log.name.clone(),
            show::grouped(log.records),
            show::grouped(log.latest),
            if log.history == HISTORY_ALL { "all".into() } else { show::grouped(log.history) },
            last_append(log).map_or("-".into(), |last| show::ago(last, now_us)),
            log.functions.join(", "),
        ]);
    }
    if out.json() {
        return Ok(());
    }
    if table.is_empty() {
        return Ok(out.line("no logs; `millrace log create NAME` creates one")?);
    }
    Ok(out.table(&table)?)
}

fn stat(place: &Place, name: &str, out: &mut Out) -> Outcome {
    let log = place.log(name)?;
    if out.json() {
        return Ok(out.object(&json!(log))?);
    }
    let LogDoc { name, history, records, earliest, latest, functions, .. } = &log;
    let bounds = match records {
        0 => "none".to_string(),
        n => format!("{} ({earliest} to {latest})", show::grouped(*n)),
    };
    let last = last_append(&log)
        .map_or("never".into(), |last| format!("{} ({})", show::ago(last, show::now_us()), show::rfc3339(last)));
    let bound = if functions.is_empty() { "nothing".into() } else { functions.join(", ") };
    out.line(format!("log          {name}"))?;
    out.line(format!("records      {bounds}"))?;
    out.line(format!("history      {}", kept(*history)))?;
    out.line(format!("last append  {last}"))?;
    if let Some(time) = &log.time {
        out.line(format!("observed     {time}"))?;
    }
    out.line(format!("runs         {bound}"))?;
    Ok(())
}

/// A sequence number as typed.
pub fn parse_seqno(text: &str) -> Result<u64> {
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
    json!(whole_record(log, record))
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
