//! `millrace entity …`: shared objects, which live in the memory of a host.

use crate::{
    args::{EntityCommand, Global},
    out::{Out, Table},
    place::{Place, Remote, docs::ObjectDoc},
    report::Outcome,
};
use millrace_node::EventId;
use serde_json::json;

pub fn run(command: &EntityCommand, global: &Global, out: &mut Out) -> Outcome {
    let host = Place::find(global)?.connect()?; // The files have no objects.
    match command {
        EntityCommand::Ls => ls(&host.objects()?, out),
        EntityCommand::Why(args) => why(&host, &host.object(&args.key)?, out),
    }
}

fn ls(objects: &[ObjectDoc], out: &mut Out) -> Outcome {
    if out.json() {
        for object in objects {
            out.object(&json!(object))?;
        }
        return Ok(());
    }
    let mut table = Table::new(&["type", "key", "bytes>", "waiting>", "persistent", "rf>", "leader", "application"]);
    for ObjectDoc { kind, class, key, bytes, waiting, persistent, rf, leader, application, .. } in objects {
        let (kind, persistent) = (class.as_ref().unwrap_or(kind), if *persistent { "yes" } else { "no" });
        let (bytes, waiting, rf) = (bytes.to_string(), waiting.to_string(), rf.to_string());
        let (leader, application) = (leader.clone().unwrap_or_default(), application.clone());
        table.row(vec![kind.clone(), key.clone(), bytes, waiting, persistent.into(), rf, leader, application]);
    }
    if table.is_empty() { Ok(out.line("no shared objects")?) } else { Ok(out.table(&table)?) }
}

/// A session, and the run whose it is.
fn session(host: &Remote, id: &str) -> String {
    // The session of a run has the bytes of the run's id, the last one first.
    let run = u128::from_str_radix(id, 16).ok().and_then(|bits| host.run(EventId::from_bits(bits.swap_bytes())).ok());
    match run {
        Some(run) => format!("session {id} (run {} of function '{}')", run.id, run.function.unwrap_or_default()),
        None => format!("session {id}"),
    }
}

fn why(host: &Remote, object: &ObjectDoc, out: &mut Out) -> Outcome {
    if out.json() {
        return Ok(out.object(&json!(object))?);
    }
    let ObjectDoc { kind, key, waiting, waiters, owner, .. } = object;
    if let Some(owner) = owner {
        out.line(format!("{} owns {kind} '{key}'", session(host, owner)))?;
    }
    let wait = if *waiting == 1 { "call waits" } else { "calls wait" };
    out.line(format!("{waiting} {wait} for {kind} '{key}'"))?;
    for waiter in waiters {
        out.line(format!("  call {} of {}", waiter.call, session(host, &waiter.session)))?;
    }
    Ok(())
}
