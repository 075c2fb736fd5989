//! `millrace outbox …`

use super::list;
use crate::{
    args::{Global, OutboxCommand, ResetArgs, RmPeerArgs},
    out::Out,
    place::{Place, docs::LinkDoc},
    report::Outcome,
    show,
};
use millrace_node::links::OUTBOX_DEAD_LETTERS;
use serde_json::json;

pub fn run(command: &OutboxCommand, global: &Global, out: &mut Out) -> Outcome {
    let place = Place::find(global)?;
    match command {
        OutboxCommand::Ls => {
            let views: Vec<LinkDoc> = place.links()?.into_iter().filter(|link| link.kind == "outbox").collect();
            list("peer", "no peers: no message was ever sent to another namespace", &views, out)?;
            dead_letters(&place, out)
        }
        OutboxCommand::Reset(args) => reset(&place, args, out),
        OutboxCommand::Rm(args) => rm(&place, args, out),
    }
}

/// Messages that no peer will ever take are in a log of their own.
fn dead_letters(place: &Place, out: &mut Out) -> Outcome {
    let logs = place.logs()?;
    let refused = logs.iter().find(|log| log.name == OUTBOX_DEAD_LETTERS).filter(|log| log.latest > 0);
    match refused {
        Some(log) if !out.json() => {
            let count = show::count(log.latest + 1 - log.earliest, "message");
            Ok(out.line(format!("{count} permanently refused; `millrace log tail {OUTBOX_DEAD_LETTERS}` shows why"))?)
        }
        _ => Ok(()),
    }
}

fn reset(place: &Place, args: &ResetArgs, out: &mut Out) -> Outcome {
    let dropped = place.reset_outbox(&args.peer, args.skip)?;
    if out.json() {
        return Ok(out.object(&json!({ "peer": args.peer, "dropped": dropped }))?);
    }
    let what =
        if args.skip { format!("{} dropped", show::count(dropped, "message")) } else { "nothing dropped".into() };
    Ok(out.line(format!("restarted the stream to {}; {what}", args.peer))?)
}

fn rm(place: &Place, args: &RmPeerArgs, out: &mut Out) -> Outcome {
    let dropped = place.remove_peer(&args.peer, args.force)?;
    if out.json() {
        return Ok(out.object(&json!({ "peer": args.peer, "dropped": dropped, "change": "removed" }))?);
    }
    Ok(out.line(format!("removed peer {}; {} dropped", args.peer, show::count(dropped, "message")))?)
}
