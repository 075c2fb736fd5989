//! The files of a namespace for programs in C: the functions of `local.h`, over the same `Access` as that of a host's clients.
//!
//! Only the sources of the C client call these functions; they have checked the arguments.

// Every function here takes pointers of C; each says what it relies on.
#![allow(unsafe_code)]

mod abi;
mod files;

use abi::{
    CAppendOptions, CCursor, CError, CId, CInfo, CLogStat, CNewRecord, CReading, CReceipt, CRecord, CRecords,
    OnAppended, bytes, durability, text,
};
use files::{Callbacks, Files};
use millrace_node::{Code, Durability, Result};
use std::{
    ffi::{c_char, c_int, c_void},
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    ptr,
};

/// Does it, and turns a failure, or a panic, which must not reach C, into its number.
fn answer(error: *mut CError, work: impl FnOnce() -> Result<i64>) -> i64 {
    let outcome = catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(Code::HostInternal.error("the library panicked; its message is on standard error")));
    // SAFETY: the client passes the place of its own error.
    outcome.unwrap_or_else(|failed| i64::from(unsafe { &mut *error }.note(&failed)))
}

/// A call that returns 0 or a refusal.
///
/// # Safety
///
/// `local` came from [`mrl_open`], and nobody else uses it now; `error` is the client's.
unsafe fn call(local: *mut c_void, error: *mut CError, work: impl FnOnce(&mut Files) -> Result<()>) -> c_int {
    // SAFETY: as the caller promises.
    let files = unsafe { &mut *local.cast::<Files>() };
    answer(error, || work(files).map(|()| 0)) as c_int // 0 or the number of a code
}

/// Opens the namespace in a directory; NULL if that fails.
///
/// # Safety
///
/// `dir` ends in zero; `info` and `error` are the client's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mrl_open(dir: *const c_char, info: *mut CInfo, error: *mut CError) -> *mut c_void {
    let mut opened = ptr::null_mut();
    answer(error, || {
        // SAFETY: as the caller promises.
        let (dir, info) = unsafe { (text(dir)?, &mut *info) };
        let files = Files::open(Path::new(dir))?;
        let (name, journal) = (files.access().served().name().clone(), files.namespace().journal());
        info.name = [0; 65];
        info.name[..name.len()].copy_from_slice(name.as_bytes()); // a name has at most 64 bytes
        info.namespace_id = journal.namespace().get();
        info.epoch = journal.epoch();
        info.record_max_bytes = journal.record_max_bytes();
        info.durability = if journal.durability() == Durability::Memory { 1 } else { 2 };
        info.local = true;
        opened = Box::into_raw(Box::new(files)).cast();
        Ok(0)
    });
    opened
}

/// Closes it.
///
/// # Safety
///
/// `local` came from [`mrl_open`] and is used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mrl_close(local: *mut c_void) {
    // SAFETY: as the caller promises. A panic while closing would have nobody to tell.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(unsafe { Box::from_raw(local.cast::<Files>()) })));
}

/// # Safety
///
/// As `local.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mrl_append(
    local: *mut c_void,
    log: *const c_char,
    data: *const c_void,
    size: usize,
    how: *const CAppendOptions,
    receipt: *mut CReceipt,
    error: *mut CError,
) -> c_int {
    let work = |files: &mut Files| {
        // SAFETY: as the caller promises.
        let (log, data, options) = unsafe { (text(log)?, bytes(data, size), (*how).options()?) };
        let appended = files.access().append(log, data, options).wait()?;
        if !receipt.is_null() {
            // SAFETY: it is not NULL, so there is one.
            unsafe { *receipt = appended.into() };
        }
        Ok(())
    };
    // SAFETY: as the caller promises.
    unsafe { call(local, error, work) }
}

/// # Safety
///
/// As `local.h` says; `receipts` is NULL or has room for `count`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mrl_append_many(
    local: *mut c_void,
    records: *const CNewRecord,
    count: usize,
    how: *const CAppendOptions,
    receipts: *mut CReceipt,
    error: *mut CError,
) -> c_int {
    let work = |files: &mut Files| {
        // SAFETY: as the caller promises, `count` records, each with a text and as many bytes as it says.
        let new = unsafe { std::slice::from_raw_parts(records, count) };
        let mut list = Vec::with_capacity(count);
        for record in new {
            // SAFETY: likewise.
            list.push(unsafe { (text(record.log)?, bytes(record.data, record.size)) });
        }
        // SAFETY: likewise.
        let appended = files.access().append_many(&list, unsafe { (*how).options()? }).wait()?;
        if !receipts.is_null() {
            for (at, receipt) in appended.into_iter().enumerate() {
                // SAFETY: there are as many receipts as records, and room for that many.
                unsafe { *receipts.add(at) = receipt.into() };
            }
        }
        Ok(())
    };
    // SAFETY: as the caller promises.
    unsafe { call(local, error, work) }
}

/// # Safety
///
/// As `local.h` says; `reported` may be called with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mrl_append_nowait(
    local: *mut c_void,
    log: *const c_char,
    data: *const c_void,
    size: usize,
    how: *const CAppendOptions,
    window: u32,
    reported: OnAppended,
    context: *mut c_void,
    error: *mut CError,
) -> i64 {
    answer(error, || {
        // SAFETY: as the caller promises. The error is used by one of us at a time.
        let (files, log, data, options, error) =
            unsafe { (&mut *local.cast::<Files>(), text(log)?, bytes(data, size), (*how).options()?, &mut *error) };
        Ok(files.append_nowait(log, data, options, window, &mut Callbacks::new(reported, context, error)))
    })
}

/// # Safety
///
/// As `local.h` says; `reported` may be called with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mrl_drain(
    local: *mut c_void,
    reported: OnAppended,
    context: *mut c_void,
    error: *mut CError,
) -> c_int {
    let work = |files: &mut Files| {
        // SAFETY: as the caller promises. The error is used by one of us at a time.
        let error = unsafe { &mut *error };
        files.drain(&mut Callbacks::new(reported, context, error))
    };
    // SAFETY: as the caller promises.
    unsafe { call(local, error, work) }
}

/// # Safety
///
/// As `local.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mrl_get(
    local: *mut c_void,
    log: *const c_char,
    seqno: u64,
    how: *const CReading,
    record: *mut CRecord,
    error: *mut CError,
) -> c_int {
    let work = |files: &mut Files| {
        // SAFETY: as the caller promises.
        unsafe { *record = files.get(text(log)?, seqno, (*how).wait_ms, (*how).durability())? };
        Ok(())
    };
    // SAFETY: as the caller promises.
    unsafe { call(local, error, work) }
}

/// # Safety
///
/// As `local.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mrl_range(
    local: *mut c_void,
    log: *const c_char,
    from: u64,
    count: u32,
    how: *const CReading,
    records: *mut CRecords,
    error: *mut CError,
) -> c_int {
    let work = |files: &mut Files| {
        // SAFETY: as the caller promises.
        let (log, how) = unsafe { (text(log)?, &*how) };
        let (found, list) = files.range(log, from, count, how.durability())?;
        let next = from.saturating_add(list.len() as u64);
        // SAFETY: as the caller promises. The list stays until the next call.
        unsafe { *records = CRecords::new(found.id(), next, list) };
        Ok(())
    };
    // SAFETY: as the caller promises.
    unsafe { call(local, error, work) }
}

/// # Safety
///
/// As `local.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mrl_latest(
    local: *mut c_void,
    log: *const c_char,
    above: u64,
    how: *const CReading,
    seqno: *mut u64,
    error: *mut CError,
) -> c_int {
    let work = |files: &mut Files| {
        // SAFETY: as the caller promises.
        unsafe { *seqno = files.latest(text(log)?, above, (*how).wait_ms, (*how).durability())? };
        Ok(())
    };
    // SAFETY: as the caller promises.
    unsafe { call(local, error, work) }
}

/// # Safety
///
/// As `local.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mrl_create_log(
    local: *mut c_void,
    log: *const c_char,
    history: u64,
    error: *mut CError,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { call(local, error, |files| files.access().create_log(text(log)?, history).wait()) }
}

/// # Safety
///
/// As `local.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mrl_set_history(
    local: *mut c_void,
    log: *const c_char,
    history: u64,
    error: *mut CError,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { call(local, error, |files| files.access().set_history(text(log)?, history).map(drop).wait()) }
}

/// # Safety
///
/// As `local.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mrl_cancel_run(local: *mut c_void, run: *const CId, error: *mut CError) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { call(local, error, |files| files.access().cancel_run((*run).into()).wait()) }
}

/// # Safety
///
/// As `local.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mrl_remove_log(local: *mut c_void, log: *const c_char, error: *mut CError) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { call(local, error, |files| files.access().remove_log(text(log)?).wait()) }
}

/// # Safety
///
/// As `local.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mrl_stat_log(
    local: *mut c_void,
    log: *const c_char,
    stat: *mut CLogStat,
    error: *mut CError,
) -> c_int {
    let work = |files: &mut Files| {
        // SAFETY: as the caller promises.
        let (log, stat) = unsafe { (text(log)?, &mut *stat) };
        let name = files.access().log(log, None).wait()?.name().clone();
        let seen = files.access().inspect(|namespace| {
            let log = namespace.log(&name)?;
            Ok(CLogStat { history: log.history(), earliest: log.earliest(), latest: log.latest() })
        });
        *stat = seen.wait()?;
        Ok(())
    };
    // SAFETY: as the caller promises.
    unsafe { call(local, error, work) }
}

/// # Safety
///
/// As `local.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mrl_tail(
    local: *mut c_void,
    log: *const c_char,
    cursor: *mut CCursor,
    error: *mut CError,
) -> c_int {
    let work = |files: &mut Files| {
        // SAFETY: as the caller promises.
        let (log, cursor) = unsafe { (text(log)?, &mut *cursor) };
        (cursor.incarnation, cursor.from) = files.tail(log, cursor.incarnation, cursor.from)?;
        Ok(())
    };
    // SAFETY: as the caller promises.
    unsafe { call(local, error, work) }
}

/// # Safety
///
/// As `local.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mrl_tail_next(
    local: *mut c_void,
    log: *const c_char,
    cursor: *mut CCursor,
    level: c_int,
    wait_ms: u32,
    record: *mut CRecord,
    error: *mut CError,
) -> c_int {
    answer(error, || {
        // SAFETY: as the caller promises.
        let (files, log, cursor) = unsafe { (&mut *local.cast::<Files>(), text(log)?, &mut *cursor) };
        let place = (cursor.incarnation, cursor.from);
        let Some(next) = files.tail_next(log, place, wait_ms, durability(level))? else { return Ok(0) };
        cursor.from += 1;
        // SAFETY: as the caller promises.
        unsafe { *record = next };
        Ok(1)
    }) as c_int // 0, 1 or the number of a code
}
