//! `millrace table mirror`, and what `millrace table ls` shows of replicas.

use crate::{args::MirrorTableArgs, out::Out, place::Place, report::Outcome};
use millrace_documents::ReplicaDoc;
use millrace_node::{Address, Code, HISTORY_DEFAULT};
use millrace_wire::units;
use serde_json::json;
use std::time::Duration;

pub fn mirror(place: &Place, args: &MirrorTableArgs, out: &mut Out) -> Outcome {
    let table = &args.table;
    let Some(from) = &args.from else {
        place.unmirror_table(table)?;
        return match out.json() {
            true => Ok(out.object(&json!({ "table": table, "change": "ended" }))?),
            false => Ok(out.line(format!("table {table} is no replica any more"))?),
        };
    };
    let from = Address { log: Some(from.log.clone().unwrap_or_else(|| table.clone())), ..from.clone() };
    let change = place.mirror_table(table, &from, args.history.unwrap_or(HISTORY_DEFAULT), args.reload)?;
    if out.json() {
        return Ok(out.object(&json!({ "table": table, "from": from.to_string(), "change": change }))?);
    }
    out.line(match &*change {
        "created" => format!("replica {table} of {from}: created"),
        "reloaded" => format!("replica {table} of {from}: is loaded again"),
        _ => format!("replica {table} of {from} already exists"),
    })?;
    if place.host()?.is_none() {
        out.line("no host of this namespace runs; `millrace serve` follows the owner")?;
    }
    Ok(())
}

/// The owner and the state of a replica.
pub fn columns(doc: &ReplicaDoc) -> [String; 2] {
    let age = doc.age_ms.map(|ms| units::show_duration(Duration::from_millis(ms)));
    let state = match (&doc.trouble, &*doc.stage) {
        (Some(trouble), _) => {
            let remedy = Code::from_id(&trouble.code).map_or("", Code::remedy);
            let since = age.map_or_else(String::new, |age| format!(" since {age}"));
            let stopped = if trouble.stopped { "stopped" } else { "behind" };
            format!("{stopped}{since}: {}: {}. {remedy}", trouble.code, trouble.error)
        }
        (None, "following") => match (doc.records, age) {
            (Some(0), _) if doc.connected => "current".into(),
            (Some(records), _) if records > 0 => format!("{records} records behind"),
            (_, Some(age)) => format!("not connected since {age}"),
            _ => "not connected".into(),
        },
        (None, stage) => stage.into(),
    };
    [doc.owner.clone(), state]
}
