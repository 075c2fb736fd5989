//! The calls of a module to the host: the imports of module `millrace`.
//!
//! Pointers and lengths are offsets into the module's memory and are checked here. Invalid ones end the run. A call that the namespace
//! refuses returns the error's code as a negative number: -2105 for MR2105.

use super::lend::Lent;
use crate::{
    Code, Error, Invocation, Limits, LogCalls, Outcome, Rest, appends::Appends, output::Output, step::StepAnswers,
};
use std::{fmt::Write, ops::Range};
use wasmtime::{Caller, Extern, Linker, Memory, ResourceLimiter, Result};

/// What `define` defines.
pub(super) const OFFERED: [(&str, &str); 17] = [
    ("millrace", "append"),
    ("millrace", "attempt"),
    ("millrace", "cause"),
    ("millrace", "class_body"),
    ("millrace", "fields"),
    ("millrace", "get"),
    ("millrace", "latest"),
    ("millrace", "log_name"),
    ("millrace", "now"),
    ("millrace", "print"),
    ("millrace", "publish"),
    ("millrace", "random"),
    ("millrace", "record"),
    ("millrace", "result"),
    ("millrace", "secret"),
    ("millrace", "seqno"),
    ("millrace", "table"),
];

/// The most random bytes of one call.
const RANDOM_MAX_BYTES: usize = 64 << 10;
/// The most elements of a module's table.
const TABLE_MAX_ELEMENTS: usize = 1 << 20;

/// One run, as its store sees it.
pub(super) struct State {
    lent: Lent,
    pub(super) output: Output,
    pub(super) memory: MemoryLimit,
    /// Whether and how the next runs continue.
    pub(super) rest: Rest,
    appends: Appends,
}

impl State {
    pub(super) fn new(lent: Lent, limits: Limits) -> Self {
        let max_bytes = usize::try_from(limits.memory_max_bytes).unwrap_or(usize::MAX);
        Self {
            lent,
            output: Output::new(limits.output_max_bytes),
            memory: MemoryLimit { max_bytes, denied: false },
            rest: Rest::Run,
            appends: Appends::new(&limits),
        }
    }

    /// The outcome of the run, given how its handler ended.
    pub(super) fn conclude(&mut self, outcome: Outcome, limits: &Limits) -> Outcome {
        let by_itself = match &outcome {
            Outcome::Failed(error) => error.code() == Code::FunctionFailed,
            _ => true,
        };
        match (outcome, self.appends.take_refused()) {
            // A handler that noticed the refusal returns a status of its own; the refusal says more.
            (_, Some(refused)) if by_itself => Outcome::Failed(refused),
            (Outcome::Failed(error), _) if by_itself && self.memory.denied => {
                Outcome::Failed(super::trap::memory(limits, error.detail()))
            }
            (outcome, _) => outcome,
        }
    }

    /// Called regularly during a run. An error if the run should end at once.
    pub(super) fn tick(&mut self) -> crate::Result<()> {
        match crate::wake_if_due(self.lent.watch()) {
            Rest::Run => Ok(()),
            Rest::Leave => {
                self.rest = Rest::Leave;
                Ok(())
            }
            Rest::Stop => Err(crate::cancelled()),
        }
    }

    pub(super) fn invocation(&self) -> Invocation<'_> {
        self.lent.invocation()
    }

    pub(super) fn logs(&mut self) -> &mut dyn LogCalls {
        self.lent.logs()
    }

    pub(super) fn print(&mut self, bytes: &[u8]) {
        self.output.push(bytes);
        self.logs().printed(bytes);
    }

    fn append(&mut self, log: &str, payload: &[u8]) -> crate::Result<Option<u64>> {
        self.appends.append(self.lent.logs(), log, payload)
    }
}

/// Limits the memory of a module. The module may continue after a refusal, as C programs do when `malloc` returns null.
pub(super) struct MemoryLimit {
    max_bytes: usize,
    pub(super) denied: bool,
}

impl ResourceLimiter for MemoryLimit {
    fn memory_growing(&mut self, _current: usize, desired: usize, _maximum: Option<usize>) -> Result<bool> {
        self.denied |= desired > self.max_bytes;
        Ok(desired <= self.max_bytes)
    }

    fn table_growing(&mut self, _current: usize, desired: usize, _maximum: Option<usize>) -> Result<bool> {
        Ok(desired <= TABLE_MAX_ELEMENTS)
    }
}

/// The module's memory beside the state of its run.
pub(super) fn memory<'a>(caller: &'a mut Caller<'_, State>) -> Result<(&'a mut [u8], &'a mut State)> {
    let memory: Memory = caller
        .get_export("memory")
        .and_then(Extern::into_memory)
        .ok_or_else(|| Code::HostCallInvalid.error("the module exports no memory named 'memory'"))?;
    Ok(memory.data_and_store_mut(caller))
}

/// The part of a module's memory that a pointer and a length name.
pub(super) fn slice(memory: &[u8], at: u32, len: u32) -> crate::Result<&[u8]> {
    range(memory, at, len).map(|range| &memory[range])
}

/// The same, to be written to.
pub(super) fn slice_mut(memory: &mut [u8], at: u32, len: u32) -> crate::Result<&mut [u8]> {
    range(memory, at, len).map(|range| &mut memory[range])
}

fn range(memory: &[u8], at: u32, len: u32) -> crate::Result<Range<usize>> {
    let (bytes, range) = (memory.len(), at as usize..at as usize + len as usize);
    (range.end <= bytes).then_some(range).ok_or_else(|| {
        Code::HostCallInvalid.error(format!("{len} bytes at {at} are outside its memory of {bytes} bytes"))
    })
}

fn text(bytes: &[u8]) -> crate::Result<&str> {
    std::str::from_utf8(bytes).map_err(|_| Code::HostCallInvalid.error("a log name is not UTF-8"))
}

/// Copies what fits and returns the whole length.
fn copy_out(memory: &mut [u8], at: u32, cap: u32, bytes: &[u8]) -> crate::Result<i32> {
    let to = slice_mut(memory, at, cap)?;
    let fits = to.len().min(bytes.len());
    to[..fits].copy_from_slice(&bytes[..fits]);
    // Records are at most 16 MiB.
    Ok(i32::try_from(bytes.len()).unwrap_or(i32::MAX))
}

/// An error as a module sees it: the number of its code, negative.
fn number(error: &Error) -> i64 {
    -error.code().id()[2..].parse::<i64>().expect("a code is MR and four digits")
}

pub(super) fn define(linker: &mut Linker<State>) -> Result<()> {
    define_record(linker)?;
    define_calls(linker)?;
    define_secret(linker)?;
    define_step(linker)?;
    linker.func_wrap("millrace", "print", |mut caller: Caller<'_, State>, at: u32, len: u32| -> Result<()> {
        let (memory, state) = memory(&mut caller)?;
        state.print(slice(memory, at, len)?);
        Ok(())
    })?;
    Ok(())
}

/// The imports by which a module reads the record of its run.
fn define_record(linker: &mut Linker<State>) -> Result<()> {
    fn of_invocation(
        caller: &mut Caller<'_, State>,
        at: u32,
        cap: u32,
        part: for<'a> fn(Invocation<'a>) -> &'a [u8],
    ) -> Result<i32> {
        let (memory, state) = memory(caller)?;
        Ok(copy_out(memory, at, cap, part(state.invocation()))?)
    }
    linker.func_wrap("millrace", "record", |mut caller: Caller<'_, State>, at: u32, cap: u32| {
        of_invocation(&mut caller, at, cap, |invocation| invocation.payload)
    })?;
    linker.func_wrap("millrace", "log_name", |mut caller: Caller<'_, State>, at: u32, cap: u32| {
        of_invocation(&mut caller, at, cap, |invocation| invocation.log.as_bytes())
    })?;
    linker.func_wrap("millrace", "cause", |mut caller: Caller<'_, State>, at: u32, cap: u32| -> Result<i32> {
        let (memory, state) = memory(&mut caller)?;
        let mut run = String::with_capacity(40);
        write!(run, "{}", state.invocation().run).expect("a String can always be written to");
        Ok(copy_out(memory, at, cap, run.as_bytes())?)
    })?;
    linker
        .func_wrap("millrace", "seqno", |caller: Caller<'_, State>| caller.data().invocation().seqno.cast_signed())?;
    linker.func_wrap("millrace", "attempt", |caller: Caller<'_, State>| {
        caller.data().invocation().attempt.cast_signed()
    })?;
    Ok(())
}

/// The imports that [`LogCalls`](crate::LogCalls) answers.
fn define_calls(linker: &mut Linker<State>) -> Result<()> {
    linker.func_wrap(
        "millrace",
        "append",
        |mut caller: Caller<'_, State>, log: u32, log_len: u32, at: u32, len: u32| -> Result<i32> {
            let (memory, state) = memory(&mut caller)?;
            let log = text(slice(memory, log, log_len)?)?;
            let appended = state.append(log, slice(memory, at, len)?);
            Ok(appended.map_or_else(|error| number(&error) as i32, |_| 0))
        },
    )?;
    linker.func_wrap(
        "millrace",
        "publish",
        |mut caller: Caller<'_, State>, log: u32, log_len: u32, at: u32, len: u32| -> Result<i64> {
            let (memory, state) = memory(&mut caller)?;
            let log = text(slice(memory, log, log_len)?)?;
            let appended = state.append(log, slice(memory, at, len)?);
            Ok(appended.map_or_else(|error| number(&error), |seqno| seqno.map_or(0, u64::cast_signed)))
        },
    )?;
    linker.func_wrap(
        "millrace",
        "get",
        |mut caller: Caller<'_, State>, log: u32, log_len: u32, seqno: i64, at: u32, cap: u32| -> Result<i64> {
            let (memory, state) = memory(&mut caller)?;
            let log = text(slice(memory, log, log_len)?)?;
            match state.logs().get(log, seqno.cast_unsigned()) {
                Ok(payload) => Ok(i64::from(copy_out(memory, at, cap, &payload)?)),
                Err(error) => Ok(number(&error)),
            }
        },
    )?;
    linker.func_wrap("millrace", "latest", |mut caller: Caller<'_, State>, log: u32, log_len: u32| -> Result<i64> {
        let (memory, state) = memory(&mut caller)?;
        let log = text(slice(memory, log, log_len)?)?;
        Ok(state.logs().latest(log).map_or_else(|error| number(&error), u64::cast_signed))
    })?;
    linker.func_wrap(
        "millrace",
        "table",
        |mut caller: Caller<'_, State>,
         name: u32,
         name_len: u32,
         of: u32,
         len: u32,
         at: u32,
         cap: u32|
         -> Result<i64> {
            let (memory, state) = memory(&mut caller)?;
            let name = text(slice(memory, name, name_len)?)?;
            match state.logs().table(name, slice(memory, of, len)?) {
                Ok(answer) => Ok(i64::from(copy_out(memory, at, cap, &answer)?)),
                Err(error) => Ok(number(&error)),
            }
        },
    )?;
    linker.func_wrap(
        "millrace",
        "result",
        |mut caller: Caller<'_, State>, kind: u32, at: u32, len: u32| -> Result<i32> {
            let (memory, state) = memory(&mut caller)?;
            let kind = u8::try_from(kind).unwrap_or(u8::MAX); // the host refuses kinds that it does not know
            let result = slice(memory, at, len)?;
            match state.lent.step() {
                Some(step) => step.returned(result), // of no kind
                None => state.logs().result(&[&[kind], result].concat()),
            }
            Ok(0)
        },
    )?;
    linker.func_wrap("millrace", "now", |mut caller: Caller<'_, State>| {
        caller.data_mut().logs().now_ns().cast_signed()
    })?;
    linker.func_wrap("millrace", "random", |mut caller: Caller<'_, State>, at: u32, len: u32| -> Result<i32> {
        let (memory, state) = memory(&mut caller)?;
        random(memory, state, at, len)?;
        Ok(0)
    })?;
    Ok(())
}

/// The import that shows a secret.
fn define_secret(linker: &mut Linker<State>) -> Result<()> {
    linker.func_wrap(
        "millrace",
        "secret",
        |mut caller: Caller<'_, State>, name: u32, name_len: u32, at: u32, cap: u32| -> Result<i64> {
            let (memory, state) = memory(&mut caller)?;
            let name = text(slice(memory, name, name_len)?)?;
            match state.logs().secret(name) {
                Ok(value) => Ok(i64::from(copy_out(memory, at, cap, &value)?)),
                Err(error) => Ok(number(&error)),
            }
        },
    )?;
    Ok(())
}

/// The imports of a method of a shared object.
fn define_step(linker: &mut Linker<State>) -> Result<()> {
    fn asked(
        caller: &mut Caller<'_, State>,
        (at, cap): (u32, u32),
        ask: impl FnOnce(&mut dyn StepAnswers) -> crate::Result<Vec<u8>>,
    ) -> Result<i64> {
        let (memory, state) = memory(caller)?;
        let step = state.lent.step().ok_or_else(no_step);
        match step.and_then(ask) {
            Ok(found) => Ok(i64::from(copy_out(memory, at, cap, &found)?)),
            Err(error) => Ok(number(&error)),
        }
    }
    linker.func_wrap("millrace", "fields", |mut caller: Caller<'_, State>, at: u32, cap: u32| {
        asked(&mut caller, (at, cap), |step| step.fields())
    })?;
    linker.func_wrap("millrace", "class_body", |mut caller: Caller<'_, State>, body: i64, at: u32, cap: u32| {
        asked(&mut caller, (at, cap), |step| step.class(body.cast_unsigned()))
    })?;
    Ok(())
}

fn no_step() -> Error {
    Code::HostCallInvalid.error("the module runs for a record, and not as a method of a shared object")
}

/// Fills a part of the module's memory with random bytes.
pub(super) fn random(memory: &mut [u8], state: &mut State, at: u32, len: u32) -> crate::Result<()> {
    let bytes = slice_mut(memory, at, len)?;
    if bytes.len() > RANDOM_MAX_BYTES {
        return Err(Code::HostCallInvalid.error(format!("{len} random bytes at once; the limit is {RANDOM_MAX_BYTES}")));
    }
    state.logs().random(bytes);
    Ok(())
}
