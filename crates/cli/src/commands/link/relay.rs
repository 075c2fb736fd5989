//! `millrace relay …`

use super::{contact, list, moved, troubles};
use crate::{
    args::{AddRelayArgs, Global, RelayCommand, ResumeArgs, RmRelayArgs},
    out::Out,
    place::Place,
    report::Outcome,
    show,
};
use millrace_node::links::RelayOptions;
use serde_json::{Value, json};

pub fn run(command: &RelayCommand, global: &Global, out: &mut Out) -> Outcome {
    let place = Place::find(global)?;
    match command {
        RelayCommand::Add(args) => add(&place, args, out),
        RelayCommand::Ls => list("relay", "no relays; `millrace relay add FROM TO` adds one", &place.relays()?, out),
        RelayCommand::Show(args) => show_one(&place, &args.name, out),
        RelayCommand::Rm(args) => rm(&place, args, out),
        RelayCommand::Resume(args) => resume(&place, args, out),
        RelayCommand::Set(args) => {
            let set = place.set_relay(&args.name, args.from.as_deref(), args.to.as_deref())?;
            moved(set, || place.relay(&args.name), out)
        }
    }
}

fn add(place: &Place, args: &AddRelayArgs, out: &mut Out) -> Outcome {
    let name = args.name.as_deref().map(str::parse).transpose()?;
    let options = RelayOptions { name, start: args.start, on_gap: args.on_gap.into() };
    let relay = place.add_relay(&args.from, &args.to, options)?;
    if out.json() {
        return Ok(out.object(&json!(relay))?);
    }
    out.line(format!("added relay {}: {} to {}", relay.name, relay.from, relay.to))?;
    if let Place::Local(namespace) = place
        && namespace.host()?.is_none()
    {
        out.line("no host is running; start one with `millrace serve` to run the relay")?;
    }
    Ok(())
}

fn show_one(place: &Place, name: &str, out: &mut Out) -> Outcome {
    let view = place.relay(name)?;
    if out.json() {
        return Ok(out.object(&json!(view))?);
    }
    out.line(format!("relay         {name}"))?;
    out.line(format!("from          {}", view.from))?;
    out.line(format!("to            {}", view.to))?;
    out.line(format!("state         {}", view.state))?;
    out.line(format!("done          {} of {}", show::grouped(view.acked), show::grouped(view.newest)))?;
    let (behind, bytes) = (show::count(view.lag_records, "record"), show::count(view.lag_bytes, "byte"));
    out.line(format!("behind        {behind}, {bytes}"))?;
    out.line(format!("first record  {}", view.start))?;
    out.line(format!("lost          {}", show::count(view.lost, "record")))?;
    out.line(format!("other side    {}", view.peer.as_deref().unwrap_or("not reached yet")))?;
    out.line(format!("last contact  {}", contact(&view)))?;
    troubles([&view], out)
}

fn rm(place: &Place, args: &RmRelayArgs, out: &mut Out) -> Outcome {
    let gone = place.remove_relay(&args.name, args.force)?;
    let change = if gone { "removed" } else { "leaving" };
    if out.json() {
        return Ok(out.object(&json!({ "relay": args.name, "change": change }))?);
    }
    let name = &args.name;
    Ok(out.line(if gone {
        format!("removed relay {name}")
    } else {
        format!("relay {name} forwards no more records; it is removed once the other side has confirmed the records in transit and the removal")
    })?)
}

fn resume(place: &Place, args: &ResumeArgs, out: &mut Out) -> Outcome {
    let (relay, passed) = place.resume_relay(&args.name, args.skip, args.start)?;
    if out.json() {
        let mut object = json!(relay);
        object["passed_over"] = passed.map_or(Value::Null, |passed| json!(passed));
        return Ok(out.object(&object)?);
    }
    let over = passed.map_or_else(String::new, |passed| {
        let (first, last) = (passed.first, passed.last);
        let which = if passed.records == 1 { first.to_string() } else { format!("{first} to {last}") };
        let why = if passed.lost { ": no longer in the history" } else { "" };
        format!("; {} skipped ({which}){why}", show::count(passed.records, "record"))
    });
    Ok(out.line(format!("relay {} continues{over}", args.name))?)
}
