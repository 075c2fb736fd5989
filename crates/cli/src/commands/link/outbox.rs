//! `millrace outbox …`

use super::{list, moved};
use crate::{
    args::{Global, OutboxCommand, ResetArgs, RetryPeerArgs, RmPeerArgs},
    out::Out,
    place::{Place, docs::LinkDoc},
    report::Outcome,
    show,
};
use millrace_node::links::{OUTBOX_DEAD_LETTERS, Resent};
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
        OutboxCommand::Retry(args) => retry(&place, args, out),
        OutboxCommand::Set(args) => {
            let set = place.set_outbox(&args.peer, &args.to)?;
            let name = set.name.clone();
            moved(set, || place.peer(&name), out)
        }
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
            Ok(out.line(format!(
                "{count} permanently refused; `millrace log tail {OUTBOX_DEAD_LETTERS}` shows why, and `millrace outbox retry PEER` \
                 sends them again"
            ))?)
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

fn retry(place: &Place, args: &RetryPeerArgs, out: &mut Out) -> Outcome {
    let peer = &args.peer;
    let Resent { resent, before, lost, gone } = place.retry_outbox(peer)?;
    if out.json() {
        let object = json!({ "peer": peer, "resent": resent, "before": before, "lost": lost, "gone": gone });
        return Ok(out.object(&object)?);
    }
    out.line(format!("sending {} to {peer} again", show::count(resent, "message")))?;
    let told = [
        (before, "sent again before"),
        (lost, "without a copy of the message, which was too long for versions before this one"),
        (gone, "of all peers no longer in the history of dead/outbox"),
    ];
    for (count, what) in told.into_iter().filter(|(count, _)| *count > 0) {
        out.line(format!("{} {what}", show::count(count, "dead letter")))?;
    }
    Ok(())
}

fn rm(place: &Place, args: &RmPeerArgs, out: &mut Out) -> Outcome {
    let dropped = place.remove_peer(&args.peer, args.force)?;
    if out.json() {
        return Ok(out.object(&json!({ "peer": args.peer, "dropped": dropped, "change": "removed" }))?);
    }
    Ok(out.line(format!("removed peer {}; {} dropped", args.peer, show::count(dropped, "message")))?)
}
