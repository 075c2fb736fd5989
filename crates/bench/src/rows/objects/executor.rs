//! executor.map: tasks that do nothing, from Python to workers of a host and back; beside Lithops on this machine.

use crate::{
    Context, Outcome,
    peers::lithops,
    rows::{Measured, python},
};

/// Tasks of Lithops: it takes too long for a thousand.
const TASKS: usize = 100;

pub fn map(context: &Context) -> Outcome<Measured> {
    let all = python::bench(context, &["--executor"])?;
    let figure = |name: &str| {
        all["executor.map"][name].as_f64().ok_or_else(|| format!("bench.py says nothing of {name}: {all}"))
    };
    let warm = figure("ms")?;
    let mut measured = Measured::new(warm, figure("samples")? as u64)
        .target("≤ 500 ms", warm <= 500.0)
        .also("the first map, with the start of the workers", figure("first_ms")?, "ms")
        .also("largest of the rounds", figure("most_ms")?, "ms");
    let tasks = if context.quick { TASKS / 10 } else { TASKS };
    let missing = match lithops::map(context, tasks)? {
        Some(theirs) => {
            measured = measured.peer(&format!("Lithops on localhost, {tasks} tasks"), theirs);
            "Lithops 3.8 with its back end `localhost` for computing and storage."
        }
        None => lithops::INSTALL,
    };
    Ok(measured.note(format!(
        "`list(executor.map(f, range(1000)))` with two workers of a private host, measured by `sdk/python/bench.py` \
         with the wheel as it is shipped; median of the rounds. {missing}"
    )))
}
