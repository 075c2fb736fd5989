//! `millrace entity …`: shared objects, which live in the memory of a host.

use crate::{
    args::{EntityCommand, Global},
    out::{Out, Table},
    place::{
        Place,
        docs::ObjectDoc,
        remote::{Remote, options},
    },
    report::Outcome,
};
use millrace_gateway::SOCKET;
use millrace_node::Result;
use serde_json::json;

pub fn run(command: &EntityCommand, global: &Global, out: &mut Out) -> Outcome {
    let host = reach(global)?;
    match command {
        EntityCommand::Ls => ls(&host.objects()?, out),
        EntityCommand::Why(args) => why(&host.object(&args.key)?, out),
    }
}

/// The host; that of a directory by its socket, for the files know no objects.
fn reach(global: &Global) -> Result<Remote> {
    match Place::find(global)? {
        Place::Remote(remote, _) => Ok(remote),
        Place::Local(namespace) => {
            Remote::connect(&millrace_client::Place::Unix(namespace.dir().join(SOCKET)), &options())
        }
    }
}

fn ls(objects: &[ObjectDoc], out: &mut Out) -> Outcome {
    if out.json() {
        for object in objects {
            out.object(&json!(object))?;
        }
        return Ok(());
    }
    let mut table = Table::new(&["type", "key", "bytes>", "waiting>", "application"]);
    for ObjectDoc { kind, key, bytes, waiting, application, .. } in objects {
        table.row(vec![kind.clone(), key.clone(), bytes.to_string(), waiting.to_string(), application.clone()]);
    }
    if table.is_empty() { Ok(out.line("no shared objects")?) } else { Ok(out.table(&table)?) }
}

fn why(object: &ObjectDoc, out: &mut Out) -> Outcome {
    if out.json() {
        return Ok(out.object(&json!(object))?);
    }
    let ObjectDoc { kind, key, waiting, waiters, owner, .. } = object;
    if let Some(owner) = owner {
        out.line(format!("{kind} '{key}' is held by session {owner}"))?;
    }
    out.line(format!("{waiting} {} of {kind} '{key}' wait", if *waiting == 1 { "call" } else { "calls" }))?;
    for waiter in waiters {
        out.line(format!("  call {} of session {}", waiter.call, waiter.session))?;
    }
    Ok(())
}
