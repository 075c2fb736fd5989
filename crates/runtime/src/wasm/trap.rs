//! The end of a module: how traps and exits become coded errors.

use crate::{Code, Error, Limits, Outcome, output::head};
use std::fmt;
use wasmtime::{Trap, WasmBacktrace};

/// The most of a trap's message, with its backtrace, that an error carries.
const MESSAGE_MAX_BYTES: usize = 2000;

/// The status that `millrace.h` returns instead of calling its handler.
const STATUS_RECORD_TOO_LONG: i32 = 3124;

/// `proc_exit` was called with this status.
#[derive(Debug)]
pub(super) struct Exit(pub(super) i32);

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exit with status {}", self.0)
    }
}

impl std::error::Error for Exit {}

/// The outcome of a handler that returned, or exited, with this status.
pub(super) fn status(status: i32) -> Outcome {
    match status {
        0 => Outcome::Done,
        STATUS_RECORD_TOO_LONG => Outcome::Failed(
            Code::RecordTooLongForFunction.error("the record is longer than MR_RECORD_MAX: the handler was not called"),
        ),
        _ => Outcome::Failed(Code::FunctionFailed.error(format!("the handler returned {status}"))),
    }
}

/// The outcome of a handler that did not return. `memory_denied` means that it requested too much memory.
pub(super) fn outcome(error: &wasmtime::Error, limits: &Limits, memory_denied: bool) -> Outcome {
    if let Some(Exit(code)) = error.downcast_ref() {
        return status(*code);
    }
    let calls = error.downcast_ref::<WasmBacktrace>().map(|trace| format!("\n{trace}")).unwrap_or_default();
    let failed = if let Some(error) = error.downcast_ref::<Error>() {
        error.code().error(format!("{}{calls}", error.detail()))
    } else {
        match error.downcast_ref::<Trap>() {
            Some(Trap::Interrupt) => {
                Code::RunTimeout.error(format!("stopped after {} ms{calls}", limits.timeout.as_millis()))
            }
            Some(Trap::StackOverflow) => Code::StackExhausted.error(format!("call stack exhausted{calls}")),
            _ if memory_denied => memory(limits, &format!("{}{calls}", error.root_cause())),
            Some(trap) => Code::WasmTrap.error(format!("{trap}{calls}")),
            None => Code::WasmTrap.error(format!("{:#}", error)),
        }
    };
    Outcome::Failed(failed.code().error(head(failed.detail(), MESSAGE_MAX_BYTES)))
}

/// The error of a function that was denied memory and failed then.
pub(super) fn memory(limits: &Limits, then: &str) -> Error {
    let max = limits.memory_max_bytes;
    Code::MemoryExceeded.error(format!("asked for more than {max} bytes of memory and was refused, then: {then}"))
}
