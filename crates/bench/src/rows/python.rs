//! python.*: the Python package over a namespace's own files, measured by its own `bench.py`.

use super::{Measured, host::program};
use crate::{Context, Outcome};
use serde_json::Value;
use std::process::Command;

/// Builds and installs the wheel as it is shipped, for `bench.py` with these arguments. A quick look takes the wheel of the tests.
pub fn command(context: &Context, arguments: &[&str]) -> Outcome<Command> {
    let profile = if context.quick { "dev" } else { "dist" };
    let built = Command::new(context.root.join("scripts/wheel.sh")).arg(profile).current_dir(&context.root).output()?;
    if !built.status.success() {
        return Err(format!("the wheel could not be built: {}", String::from_utf8_lossy(&built.stderr)).into());
    }
    let mut command = Command::new(context.root.join(".venv/bin/python"));
    command.arg("sdk/python/bench.py").args(context.quick.then_some("--quick")).args(arguments);
    // Which host a connection without a place starts.
    command.env("MILLRACE_BIN", program(context)?).env_remove("MILLRACE_NAMESPACE").current_dir(&context.root);
    Ok(command)
}

/// What `bench.py` prints with these arguments.
pub fn bench(context: &Context, arguments: &[&str]) -> Outcome<Value> {
    let output = command(context, arguments)?.output()?;
    if !output.status.success() {
        return Err(format!("bench.py: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn row(context: &Context, id: &str) -> Outcome<Measured> {
    let all = bench(context, &[])?;
    let figure = |id: &str, name: &str| {
        all[id][name].as_f64().ok_or_else(|| format!("bench.py says nothing of {id}.{name}: {all}"))
    };
    let value = figure(id, "ns")?;
    Ok(Measured::new(value, figure(id, "samples")? as u64)
        .target("≤ 350 ns", value <= 350.0)
        .peer("an empty call into the native module", figure("python.empty_call", "ns")?)
        .also("smallest of the rounds", figure(id, "least_ns")?, "ns")
        .also("largest of the rounds", figure(id, "most_ns")?, "ns")
        .note(
            "The median of the means of rounds, measured by `sdk/python/bench.py` with the wheel as it is shipped. \
             Durability memory; appends are made in bursts, with pauses in which the namespace's own thread prepares \
             space. Gets read the same record again and again.",
        ))
}

pub fn append(context: &Context) -> Outcome<Measured> {
    row(context, "python.append")
}

pub fn get(context: &Context) -> Outcome<Measured> {
    row(context, "python.get")
}
