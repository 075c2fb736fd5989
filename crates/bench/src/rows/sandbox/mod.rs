//! sandbox.*: the cost of isolating a function, which arises only at its start.

use super::{Measured, dispatch, function};
use crate::{Context, Outcome, functions, measure::Samples};
use millrace_node::Runtime;
use std::{
    io::ErrorKind,
    process::{Command, Stdio},
    time::Instant,
};

/// How to get the peer; for the note of a row that has to do without.
const INSTALL: &str = "bubblewrap is not installed (apt-get install bubblewrap) and was not measured.";

pub fn start(context: &Context) -> Outcome<Measured> {
    let mut spec = function("f", Runtime::Python, "in")?;
    spec.handler = "stamp:stamp".into();
    spec.python = functions::python()?;
    let code = functions::source("stamp.py");
    let (mut cold, mut cold_free) = (Samples::new(), Samples::new());
    let repetitions = context.repetitions(16);
    for _ in 0..repetitions {
        cold.add(&dispatch::cold(context, &spec, &code, "host-apart")?);
        cold_free.add(&dispatch::cold(context, &spec, &code, "host")?);
    }
    // In turn, so that what the machine does besides meets both.
    let (mut warm, mut warm_free) = (Samples::new(), Samples::new());
    for _ in 0..context.repetitions(4) {
        warm.add(&dispatch::warm(context, &spec, &code, "host-apart")?);
        warm_free.add(&dispatch::warm(context, &spec, &code, "host")?);
    }
    let ms = |samples: &Samples| samples.p50_us() / 1e3;
    let ratio = warm.p50_us() / warm_free.p50_us();
    let measured = Measured::new(ms(&cold), cold.count())
        .percentiles(ms(&cold), cold.p99_us() / 1e3)
        .target("p50 ≤ 40 ms", ms(&cold) <= 40.0)
        .target("warm ≤ 1.05 × without", ratio <= 1.05)
        .also("without a sandbox, p50", ms(&cold_free), "ms")
        .also("warm, append to first instruction, p50", warm.p50_us(), "µs")
        .also("warm without a sandbox, p50", warm_free.p50_us(), "µs")
        .note(
            "The time from an append to the first instruction of the Python function that it triggers, in a host that \
             has not run a function yet. It includes the start of the sandbox, the interpreter, the imports and the \
             worker. Warm: each append follows 500 µs after the result of the previous one; hosts with and without \
             sandboxes alternate.",
        );
    Ok(match bubblewrap(repetitions)? {
        Some(alone) => measured.peer("bubblewrap and python3 -c pass, p50", ms(&alone)).note(
            "bubblewrap: an interpreter that does nothing, with --unshare-all over a read-only root, until its \
                end.",
        ),
        None => measured.note(INSTALL),
    })
}

/// An interpreter in a sandbox of bubblewrap's, from its start to its end.
fn bubblewrap(repetitions: usize) -> Outcome<Option<Samples>> {
    let mut samples = Samples::new();
    for _ in 0..repetitions {
        let began = Instant::now();
        let arguments = "--unshare-all --die-with-parent --ro-bind / / --tmpfs /tmp --proc /proc --dev /dev";
        let program = functions::python()?;
        let ended = Command::new("bwrap")
            .args(arguments.split(' '))
            .args([&*program, "-B", "-c", "pass"])
            .stdin(Stdio::null())
            .status();
        match ended {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
            Ok(status) if !status.success() => return Err("bwrap failed".into()),
            Ok(_) => samples.record(began.elapsed()),
        }
    }
    Ok(Some(samples))
}
