//! Lithops with its back ends for one machine: a map of tasks that do nothing.

use crate::{Context, Outcome, functions};
use serde_json::Value;
use std::{env, process::Command};

/// How to get it; for the note of a row that has to do without.
pub const INSTALL: &str = "Lithops is not installed (scripts/setup.sh bench) and was not measured.";

/// How many milliseconds a map of this number of tasks takes; nothing without Lithops.
pub fn map(context: &Context, tasks: usize) -> Outcome<Option<f64>> {
    // It has an environment of its own, and starts whatever `python` is first in the path.
    let programs = context.root.join("target/peers/lithops/bin");
    if !programs.join("python").exists() {
        return Ok(None);
    }
    let scratch = context.fresh()?;
    let path = env::join_paths([programs.clone()].into_iter().chain(env::split_paths(&env::var("PATH")?)))?;
    let output = Command::new(programs.join("python"))
        .arg(functions::source("lithops_map.py"))
        .arg(tasks.to_string())
        .env("PATH", path)
        .env("TMPDIR", scratch.path())
        .current_dir(scratch.path())
        .output()?;
    if !output.status.success() {
        return Err(format!("Lithops: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let said: Value = serde_json::from_slice(&output.stdout)?;
    Ok(Some(said["ms"].as_f64().ok_or_else(|| format!("Lithops printed {said}"))?))
}
