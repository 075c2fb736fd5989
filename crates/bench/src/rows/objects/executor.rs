//! executor.map: tasks that do nothing, from Python to workers of a host and back.

use crate::{Context, Outcome, rows::Measured};
use serde_json::Value;
use std::process::Command;

pub fn map(context: &Context) -> Outcome<Measured> {
    let built = Command::new(context.root.join("scripts/wheel.sh")).arg("dist").current_dir(&context.root).output()?;
    if !built.status.success() {
        return Err(format!("the wheel could not be built: {}", String::from_utf8_lossy(&built.stderr)).into());
    }
    let mut command = Command::new(context.root.join(".venv/bin/python"));
    command.args(["sdk/python/bench.py", "--executor"]).args(context.quick.then_some("--quick"));
    let output = command.current_dir(&context.root).output()?;
    if !output.status.success() {
        return Err(format!("bench.py: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let all: Value = serde_json::from_slice(&output.stdout)?;
    let figure = |name: &str| {
        all["executor.map"][name].as_f64().ok_or_else(|| format!("bench.py says nothing of {name}: {all}"))
    };
    let warm = figure("ms")?;
    Ok(Measured::new(warm, figure("samples")? as u64)
        .target("≤ 500 ms", warm <= 500.0)
        .also("the first map, with the start of the workers", figure("first_ms")?, "ms")
        .also("most of the rounds", figure("most_ms")?, "ms")
        .note(
            "`list(executor.map(f, range(1000)))` with two workers of a private host, median of the rounds, by `sdk/python/bench.py` with the \
             wheel as it is shipped.",
        ))
}
