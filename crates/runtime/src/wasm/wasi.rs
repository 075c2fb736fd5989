//! The harmless part of WASI preview 1, so that modules built with wasi-libc work: output, clock, randomness, exit.
//!
//! There are no arguments, no environment, no files. Numbers are those of the WASI specification.

use super::{
    host::{State, memory, random, slice, slice_mut},
    trap::Exit,
};
use crate::Code;
use wasmtime::{Caller, Linker, Result};

const MODULE: &str = "wasi_snapshot_preview1";

/// The functions that `define` defines.
pub(super) const OFFERED: [(&str, &str); 11] = [
    (MODULE, "args_get"),
    (MODULE, "args_sizes_get"),
    (MODULE, "clock_time_get"),
    (MODULE, "environ_get"),
    (MODULE, "environ_sizes_get"),
    (MODULE, "fd_close"),
    (MODULE, "fd_fdstat_get"),
    (MODULE, "fd_seek"),
    (MODULE, "fd_write"),
    (MODULE, "proc_exit"),
    (MODULE, "random_get"),
];

const SUCCESS: i32 = 0;
const ERRNO_BADF: i32 = 8;
const ERRNO_INVAL: i32 = 28;
const ERRNO_SPIPE: i32 = 70;
const FILETYPE_CHARACTER_DEVICE: u8 = 2;
const CLOCKS: u32 = 4;
/// The maximum number of parts in one `writev`, as on Linux.
const IOVS_MAX: u32 = 1024;

pub(super) fn define(linker: &mut Linker<State>) -> Result<()> {
    define_descriptors(linker)?;
    for name in ["args_get", "environ_get"] {
        linker.func_wrap(MODULE, name, |_: u32, _: u32| SUCCESS)?;
    }
    for name in ["args_sizes_get", "environ_sizes_get"] {
        linker.func_wrap(MODULE, name, |mut caller: Caller<'_, State>, count: u32, bytes: u32| -> Result<i32> {
            let (memory, _) = memory(&mut caller)?;
            slice_mut(memory, count, 4)?.fill(0);
            slice_mut(memory, bytes, 4)?.fill(0);
            Ok(SUCCESS)
        })?;
    }
    linker.func_wrap(
        MODULE,
        "clock_time_get",
        |mut caller: Caller<'_, State>, clock: u32, _precision: u64, at: u32| -> Result<i32> {
            if clock >= CLOCKS {
                return Ok(ERRNO_INVAL);
            }
            let now_ns = caller.data_mut().logs().now_ns();
            slice_mut(memory(&mut caller)?.0, at, 8)?.copy_from_slice(&now_ns.to_le_bytes());
            Ok(SUCCESS)
        },
    )?;
    linker.func_wrap(MODULE, "random_get", |mut caller: Caller<'_, State>, at: u32, len: u32| -> Result<i32> {
        let (memory, state) = memory(&mut caller)?;
        random(memory, state, at, len)?;
        Ok(SUCCESS)
    })?;
    linker.func_wrap(MODULE, "proc_exit", |status: i32| -> Result<()> { Err(wasmtime::Error::new(Exit(status))) })?;
    Ok(())
}

/// Writes to descriptors 1 and 2 go to the run's output; descriptor 0 is open and empty.
fn define_descriptors(linker: &mut Linker<State>) -> Result<()> {
    linker.func_wrap(MODULE, "fd_close", |_: u32| ERRNO_BADF)?;
    linker.func_wrap(
        MODULE,
        "fd_seek",
        |fd: u32, _: i64, _: u32, _: u32| if fd <= 2 { ERRNO_SPIPE } else { ERRNO_BADF },
    )?;
    linker.func_wrap(MODULE, "fd_fdstat_get", |mut caller: Caller<'_, State>, fd: u32, at: u32| -> Result<i32> {
        if fd > 2 {
            return Ok(ERRNO_BADF);
        }
        // filetype u8, padding, flags u16, padding, two u64 of rights
        let stat = slice_mut(memory(&mut caller)?.0, at, 24)?;
        stat.fill(0);
        stat[0] = FILETYPE_CHARACTER_DEVICE;
        stat[8..16].fill(0xff);
        Ok(SUCCESS)
    })?;
    linker.func_wrap(
        MODULE,
        "fd_write",
        |mut caller: Caller<'_, State>, fd: u32, iovs: u32, count: u32, written_at: u32| -> Result<i32> {
            if !(1..=2).contains(&fd) {
                return Ok(ERRNO_BADF);
            }
            if count > IOVS_MAX {
                return Ok(ERRNO_INVAL);
            }
            let (memory, state) = memory(&mut caller)?;
            let mut written = 0u32;
            for iov in slice(memory, iovs, count * 8)?.chunks_exact(8) {
                let word = |at: usize| u32::from_le_bytes([iov[at], iov[at + 1], iov[at + 2], iov[at + 3]]);
                let bytes = slice(memory, word(0), word(4))?;
                written = written
                    .checked_add(word(4))
                    .ok_or_else(|| Code::HostCallInvalid.error("one write of more than 4 GiB"))?;
                state.print(bytes);
            }
            slice_mut(memory, written_at, 4)?.copy_from_slice(&written.to_le_bytes());
            Ok(SUCCESS)
        },
    )?;
    Ok(())
}
