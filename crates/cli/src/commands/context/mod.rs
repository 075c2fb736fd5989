//! `millrace context …`: short names for namespaces elsewhere.

use crate::{
    args::{AddContextArgs, ContextCommand, Global, ShowContextArgs, UseContextArgs},
    out::{Out, Table},
    place::{
        Origin, Target,
        contexts::{self, Context, Contexts},
    },
    report::Outcome,
};
use millrace_client::credentials::{SYSTEM, check_authorities};
use millrace_node::{Code, Name, Result};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

pub fn run(command: &ContextCommand, global: &Global, out: &mut Out) -> Outcome {
    match command {
        ContextCommand::Add(args) => add(args, global, out),
        ContextCommand::Ls => ls(out),
        ContextCommand::Use(args) => use_context(args, global, out),
        ContextCommand::Rm(args) => rm(&args.name, out),
        ContextCommand::Show(args) => show(args, global, out),
    }
}

/// The address as it is kept: it means the same from every directory.
fn settled(address: &Path) -> Result<String> {
    let invalid = |why: String| Code::ContextInvalid.error(why);
    let absolute = |path: &Path| {
        let path = std::path::absolute(path).map_err(|error| invalid(format!("'{}': {error}", path.display())))?;
        path.to_str().map(str::to_string).ok_or_else(|| invalid(format!("'{}' is not UTF-8", path.display())))
    };
    match Target::parse(address).map_err(|error| invalid(error.detail().to_string()))? {
        Target::Directory(dir) if dir.is_dir() => absolute(&dir),
        Target::Directory(dir) => Err(invalid(format!(
            "'{}' is not a directory; the address of a host has the form mr://HOST:PORT/NAMESPACE",
            dir.display()
        ))),
        Target::Socket(path) => Ok(format!("unix:{}", absolute(&path)?)),
        Target::Peer(peer, _) => Ok(peer.to_string()),
    }
}

/// The authorities as they are kept: a file means the same from every directory.
fn settled_ca(ca: &Path, address: &str) -> Result<PathBuf> {
    if !millrace_wire::Address::claims(address) {
        let detail = format!("--ca applies only to an address mr://host:port/namespace; this one is {address}");
        return Err(Code::ContextInvalid.error(detail));
    }
    check_authorities(ca)?;
    if ca == Path::new(SYSTEM) {
        return Ok(ca.to_owned());
    }
    std::path::absolute(ca).map_err(|error| Code::ContextInvalid.error(format!("'{}': {error}", ca.display())))
}

fn add(args: &AddContextArgs, global: &Global, out: &mut Out) -> Outcome {
    let address = settled(&args.address)?;
    let ca = global.ca.as_deref().map(|ca| settled_ca(ca, &address)).transpose()?;
    let context = Context { address: address.clone(), ca };
    let shown = described(&context);
    let doc = context.clone();
    let mut contexts = Contexts::load()?;
    let change = match contexts.contexts.insert(args.name.clone(), context) {
        None => "created",
        Some(before) if before == doc => "unchanged",
        Some(_) => "updated",
    };
    if args.use_it {
        contexts.current = Some(args.name.clone());
    }
    contexts.store()?;
    let name = &args.name;
    if out.json() {
        let in_use = contexts.current.as_ref() == Some(name);
        let (change, in_use) = (json!(change), json!(in_use));
        return Ok(out.object(&object(name, &doc, &[("change", change), ("in_use", in_use)]))?);
    }
    let using = if args.use_it { "; it is now selected" } else { "" };
    out.line(match change {
        "updated" => format!("context {name} is now {shown}{using}"),
        "unchanged" => format!("context {name} is already {shown}{using}"),
        _ => format!("added context {name} ({shown}){using}"),
    })?;
    Ok(())
}

/// A context in one line.
fn described(context: &Context) -> String {
    match &context.ca {
        Some(ca) => format!("{}, ca {}", context.address, ca.display()),
        None => context.address.clone(),
    }
}

/// A context for programs.
fn object(name: &str, context: &Context, more: &[(&str, Value)]) -> Value {
    let mut object = json!({ "name": name, "address": context.address });
    if let Some(ca) = &context.ca {
        object["ca"] = json!(ca);
    }
    for (key, value) in more {
        object[*key] = value.clone();
    }
    object
}

fn ls(out: &mut Out) -> Outcome {
    let contexts = Contexts::load()?;
    let mut table = Table::new(&["context", "in use", "address"]);
    for (name, context) in &contexts.contexts {
        let in_use = contexts.current.as_ref() == Some(name);
        if out.json() {
            out.object(&object(name, context, &[("in_use", json!(in_use))]))?;
        }
        table.row(vec![name.to_string(), if in_use { "yes".into() } else { String::new() }, context.address.clone()]);
    }
    match (out.json(), table.is_empty()) {
        (true, _) => Ok(()),
        (false, true) => Ok(out.line("no contexts; `millrace context add NAME ADDRESS` adds one")?),
        (false, false) => Ok(out.table(&table)?),
    }
}

fn use_context(args: &UseContextArgs, global: &Global, out: &mut Out) -> Outcome {
    let mut contexts = Contexts::load()?;
    contexts.current = match &args.name {
        Some(name) => {
            contexts.find(name)?;
            Some(name.parse::<Name>()?)
        }
        None => None,
    };
    contexts.store()?;
    if out.json() {
        return Ok(out.object(&json!({ "in_use": contexts.current }))?);
    }
    let Some((name, context)) = contexts.in_use() else {
        return Ok(out.line("no context is selected")?);
    };
    out.line(format!("selected context {name} ({})", context.address))?;
    // Otherwise it would seem to have no effect.
    if let Ok((target, origin)) = Target::find(global)
        && !matches!(origin, Origin::Context(_))
    {
        out.line(format!("it has no effect in this directory: here, commands use {target}, because {origin}"))?;
    }
    Ok(())
}

fn rm(name: &str, out: &mut Out) -> Outcome {
    let mut contexts = Contexts::load()?;
    contexts.find(name)?;
    contexts.contexts.remove(name);
    if contexts.current.as_deref() == Some(name) {
        contexts.current = None;
    }
    contexts.store()?;
    if out.json() {
        out.object(&json!({ "name": name, "change": "removed" }))?;
    } else {
        out.line(format!("removed context {name}"))?;
    }
    Ok(())
}

fn show(args: &ShowContextArgs, global: &Global, out: &mut Out) -> Outcome {
    if let Some(name) = &args.name {
        let contexts = Contexts::load()?;
        let context = contexts.find(name)?;
        let address = &context.address;
        let in_use = contexts.current.as_deref() == Some(name.as_str());
        if out.json() {
            out.object(&object(name, context, &[("in_use", json!(in_use))]))?;
        } else {
            out.line(format!("context    {name}"))?;
            out.line(format!("address    {address}"))?;
            if let Some(ca) = &context.ca {
                out.line(format!("ca         {}", ca.display()))?;
            }
            out.line(format!("in use     {}", if in_use { "yes" } else { "no" }))?;
        }
        return Ok(());
    }
    let (target, origin) = Target::find(global)?;
    let file = contexts::path();
    if out.json() {
        let context = match &origin {
            Origin::Context(name) => Some(name),
            _ => None,
        };
        let object = json!({
            "namespace": target.to_string(), "because": origin.to_string(), "context": context, "file": file,
        });
        return Ok(out.object(&object)?);
    }
    out.line(format!("namespace  {target}"))?;
    out.line(format!("because    {origin}"))?;
    if let Some(file) = file {
        out.line(format!("contexts   {}", file.display()))?;
    }
    Ok(())
}
