//! `millrace secret …`: values that only the functions that name them can read.

use crate::{
    args::{Global, SecretCommand, SetSecretArgs},
    out::Out,
    place,
    report::Outcome,
};
use millrace_node::{Act, Audited, Code, Name, Result, audit, secrets::FunctionSecrets};
use serde_json::json;
use std::{
    fs::File,
    io::{self, Read},
};

/// More is not read: no secret is longer.
const VALUE_MAX_BYTES: u64 = 64 << 10;

pub fn run(command: &SecretCommand, global: &Global, out: &mut Out) -> Outcome {
    let namespace = place::open(global)?;
    let secrets = FunctionSecrets::of(namespace.dir());
    match command {
        SecretCommand::Set(args) => {
            let name: Name = args.name.parse()?;
            let value = value(args)?;
            audit(&namespace, &Audited::by_owner(Act::SecretSet).about(&*name))?;
            secrets.set(&name, &value)?;
            done(&name, "set", out)
        }
        SecretCommand::Rm(args) => {
            let name: Name = args.name.parse()?;
            audit(&namespace, &Audited::by_owner(Act::SecretRemove).about(&*name))?;
            secrets.remove(&name)?;
            done(&name, "removed", out)
        }
        SecretCommand::Ls => ls(&secrets, out),
    }
}

fn value(args: &SetSecretArgs) -> Result<Vec<u8>> {
    let mut value = Vec::new();
    let read = match &args.file {
        Some(file) => File::open(file).and_then(|file| file.take(VALUE_MAX_BYTES).read_to_end(&mut value)),
        None => io::stdin().take(VALUE_MAX_BYTES).read_to_end(&mut value),
    };
    read.map_err(|error| {
        let from = args.file.as_ref().map_or("standard input".into(), |file| format!("'{}'", file.display()));
        Code::ValueInvalid.error(format!("cannot read {from}: {error}"))
    })?;
    if args.file.is_none() {
        let line = value.strip_suffix(b"\n").map_or(value.len(), <[u8]>::len);
        if value.is_empty() {
            return Err(Code::InputEmpty.error("standard input is empty"));
        }
        value.truncate(line);
    }
    Ok(value)
}

fn done(name: &Name, change: &str, out: &mut Out) -> Outcome {
    match out.json() {
        true => Ok(out.object(&json!({ "secret": name, "change": change }))?),
        false => Ok(out.line(format!("{change} secret {name}"))?),
    }
}

fn ls(secrets: &FunctionSecrets, out: &mut Out) -> Outcome {
    let names = secrets.names()?;
    for name in &names {
        if out.json() {
            out.object(&json!({ "secret": name }))?;
        } else {
            out.line(&**name)?;
        }
    }
    if names.is_empty() && !out.json() {
        out.line("no secrets; `millrace secret set NAME` sets one")?;
    }
    Ok(())
}
