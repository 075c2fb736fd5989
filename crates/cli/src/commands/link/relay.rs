//! `millrace relay …`

use super::{contact, list, troubles};
use crate::{
    args::{AddRelayArgs, Global, RelayCommand, ResumeArgs, RmRelayArgs},
    out::Out,
    place::Place,
    report::Outcome,
    show,
};
use millrace_node::{
    Code, Namespace, Result,
    links::{LinkView, Links, RelayOptions},
};
use serde_json::{Value, json};

pub fn run(command: &RelayCommand, global: &Global, out: &mut Out) -> Outcome {
    let place = Place::find(global)?;
    let namespace = place.files()?;
    match command {
        RelayCommand::Add(args) => add(namespace, args, out),
        RelayCommand::Ls => list("relay", "no relays; `millrace relay add FROM TO` makes one", &views(namespace)?, out),
        RelayCommand::Show(args) => show_one(namespace, &args.name, out),
        RelayCommand::Rm(args) => rm(namespace, args, out),
        RelayCommand::Resume(args) => resume(namespace, args, out),
    }
}

fn views(namespace: &Namespace) -> Result<Vec<LinkView>> {
    Ok(namespace
        .inspect(|namespace| Links::of(namespace).view())?
        .into_iter()
        .filter(|view| view.kind == "relay")
        .collect())
}

fn view(namespace: &Namespace, name: &str) -> Result<LinkView> {
    let found = views(namespace)?.into_iter().find(|view| view.name == name);
    found.ok_or_else(|| Code::RelayNotFound.error(format!("no relay '{}'", name.escape_debug())))
}

fn add(namespace: &Namespace, args: &AddRelayArgs, out: &mut Out) -> Outcome {
    let name = args.name.as_deref().map(str::parse).transpose()?;
    let options = RelayOptions { name, start: args.start, on_gap: args.on_gap.into() };
    let relay = Links::of(namespace).add_relay(&args.from, &args.to, &options)?;
    if out.json() {
        return Ok(out.object(&json!(view(namespace, &relay.name)?))?);
    }
    out.line(format!("added relay {}: {} to {}", relay.name, relay.from, relay.to))?;
    if namespace.host()?.is_none() {
        out.line("no host is running; `millrace serve` starts one, which runs the relay")?;
    }
    Ok(())
}

fn show_one(namespace: &Namespace, name: &str, out: &mut Out) -> Outcome {
    let view = view(namespace, name)?;
    if out.json() {
        return Ok(out.object(&json!(view))?);
    }
    let relay = Links::of(namespace).relay(name)?;
    out.line(format!("relay         {name}"))?;
    out.line(format!("from          {}", view.from))?;
    out.line(format!("to            {}", view.to))?;
    out.line(format!("state         {}", view.state.name()))?;
    out.line(format!("done          {} of {}", show::grouped(view.acked), show::grouped(view.newest)))?;
    let (behind, bytes) = (show::count(view.lag_records, "record"), show::count(view.lag_bytes, "byte"));
    out.line(format!("behind        {behind}, {bytes}"))?;
    out.line(format!("first record  {}", relay.start))?;
    out.line(format!("lost          {}", show::count(view.lost, "record")))?;
    out.line(format!("other side    {}", view.peer.as_deref().unwrap_or("not met yet")))?;
    out.line(format!("last contact  {}", contact(&view)))?;
    troubles([&view], out)
}

fn rm(namespace: &Namespace, args: &RmRelayArgs, out: &mut Out) -> Outcome {
    let gone = Links::of(namespace).remove_relay(&args.name, args.force)?;
    let change = if gone { "removed" } else { "leaving" };
    if out.json() {
        return Ok(out.object(&json!({ "relay": args.name, "change": change }))?);
    }
    let name = &args.name;
    Ok(out.line(if gone {
        format!("removed relay {name}")
    } else {
        format!("relay {name} forwards no new records; it is removed once the records in flight have arrived and the other side has confirmed")
    })?)
}

fn resume(namespace: &Namespace, args: &ResumeArgs, out: &mut Out) -> Outcome {
    let resumed = Links::of(namespace).resume_relay(&args.name, args.skip, args.start)?;
    let passed = resumed.passed_over.map(|(first, last)| (resumed.records(), first, last));
    if out.json() {
        let mut object = json!(view(namespace, &args.name)?);
        object["passed_over"] = passed.map_or(
            Value::Null,
            |(records, first, last)| json!({ "records": records, "first": first, "last": last, "lost": resumed.lost }),
        );
        return Ok(out.object(&object)?);
    }
    let over = passed.map_or_else(String::new, |(records, first, last)| {
        let which = if records == 1 { first.to_string() } else { format!("{first} to {last}") };
        let why = if resumed.lost { ": no longer in the history" } else { "" };
        format!("; {} skipped ({which}){why}", show::count(records, "record"))
    });
    Ok(out.line(format!("relay {} continues{over}", args.name))?)
}
