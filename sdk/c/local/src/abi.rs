//! The structs of `millrace_client.h` with C's layout, and conversions from and to ours.

use millrace_node::{AppendOptions, Code, Durability, Error, EventId, Receipt, Record, Result};
use std::{
    ffi::{CStr, c_char, c_int, c_void},
    ptr,
};

/// `mrc_id`: an event's id, little-endian.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CId {
    bytes: [u8; 16],
}

impl From<CId> for EventId {
    fn from(id: CId) -> Self {
        EventId::from_bits(u128::from_le_bytes(id.bytes))
    }
}

impl From<EventId> for CId {
    fn from(id: EventId) -> Self {
        CId { bytes: id.get().to_le_bytes() }
    }
}

/// `mrc_error`.
#[repr(C)]
pub struct CError {
    number: c_int,
    code: [u8; 8],
    may_retry: bool,
    retry_after_ms: u32,
    detail: [u8; 240],
}

impl CError {
    /// Notes an error, and returns the number that the call answers with.
    pub fn note(&mut self, error: &Error) -> c_int {
        let id = error.code().id().as_bytes(); // MR and four digits
        self.number = -error.code().id()[2..].parse::<c_int>().unwrap_or(0);
        self.code = [0; 8];
        self.code[..id.len()].copy_from_slice(id);
        self.may_retry = error.retry_after_ms().is_some();
        self.retry_after_ms = error.retry_after_ms().unwrap_or(0);
        let text: String = error.detail().chars().map(|c| if c.is_control() { '.' } else { c }).collect();
        let mut size = text.len().min(self.detail.len() - 1);
        while !text.is_char_boundary(size) {
            size -= 1;
        }
        self.detail = [0; 240];
        self.detail[..size].copy_from_slice(&text.as_bytes()[..size]);
        self.number
    }
}

/// `mrc_info`.
#[repr(C)]
pub struct CInfo {
    pub name: [u8; 65],
    pub namespace_id: u64,
    pub epoch: u32,
    pub record_max_bytes: usize,
    pub durability: c_int,
    pub local: bool,
}

/// `mrc_record`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CRecord {
    seqno: u64,
    id: CId,
    hlc: u64,
    cause: CId,
    data: *const c_void,
    size: usize,
}

impl CRecord {
    /// The record as C sees it, for as long as this one stays where it is.
    pub fn of(record: &Record) -> Self {
        let (data, size) = (record.payload.as_ptr().cast(), record.payload.len());
        let (id, cause) = (record.id.into(), record.cause.into());
        CRecord { seqno: record.seqno, id, hlc: record.hlc.get(), cause, data, size }
    }
}

/// `mrc_records`.
#[repr(C)]
pub struct CRecords {
    pub incarnation: u32,
    pub next: u64,
    pub count: u32,
    pub list: *const CRecord,
    packed: *const c_void,
    packed_size: usize,
}

/// `mrc_receipt`.
#[repr(C)]
pub struct CReceipt {
    seqno: u64,
    id: CId,
}

impl From<Receipt> for CReceipt {
    fn from(receipt: Receipt) -> Self {
        CReceipt { seqno: receipt.seqno, id: receipt.id.into() }
    }
}

/// `mrc_new_record`.
#[repr(C)]
pub struct CNewRecord {
    pub log: *const c_char,
    pub data: *const c_void,
    pub size: usize,
}

/// `mrc_append_options`.
#[repr(C)]
pub struct CAppendOptions {
    durability: c_int,
    function: *const c_char,
    key: *const c_char,
    cause: CId,
}

/// `mrc_reading`.
#[repr(C)]
pub struct CReading {
    pub wait_ms: u32,
    durability: c_int,
}

/// `mrc_cursor`.
#[repr(C)]
pub struct CCursor {
    pub incarnation: u32,
    pub from: u64,
}

/// `mrc_log_stat`.
#[repr(C)]
pub struct CLogStat {
    pub history: u64,
    pub earliest: u64,
    pub latest: u64,
}

/// `mrc_appended`: the callback that gets the outcome of an append.
pub type OnAppended = Option<unsafe extern "C" fn(*mut c_void, i64, c_int, *const CReceipt)>;

/// The durability that a number of C asks for.
pub fn durability(number: c_int) -> Option<Durability> {
    match number {
        1 => Some(Durability::Memory),
        2 => Some(Durability::Disk),
        _ => None,
    }
}

impl CReading {
    pub fn durability(&self) -> Option<Durability> {
        durability(self.durability)
    }
}

impl CAppendOptions {
    /// The same as the node wants it.
    ///
    /// # Safety
    ///
    /// The texts end in zero, or are NULL, and live for `'a`.
    pub unsafe fn options<'a>(&self) -> Result<AppendOptions<'a>> {
        // SAFETY: as the caller promises.
        let (function, key) = unsafe { (optional(self.function)?, optional(self.key)?) };
        let (durability, cause) = (durability(self.durability), self.cause.into());
        Ok(AppendOptions { durability, function, key, cause, ..AppendOptions::default() })
    }
}

unsafe fn optional<'a>(at: *const c_char) -> Result<Option<&'a str>> {
    // SAFETY: the caller promises a text that ends in zero wherever there is one.
    if at.is_null() { Ok(None) } else { unsafe { text(at) }.map(Some) }
}

/// A text of C.
///
/// # Safety
///
/// It ends in zero and lives for `'a`.
pub unsafe fn text<'a>(at: *const c_char) -> Result<&'a str> {
    // SAFETY: as the caller promises.
    let text = unsafe { CStr::from_ptr(at) };
    text.to_str().map_err(|_| Code::CCallInvalid.error("a text is not UTF-8"))
}

/// Bytes of C.
///
/// # Safety
///
/// There are `size` of them, and they live for `'a`.
pub unsafe fn bytes<'a>(at: *const c_void, size: usize) -> &'a [u8] {
    if size == 0 {
        return &[]; // Then the pointer may be NULL.
    }
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(at.cast(), size) }
}

impl CRecords {
    /// Records in a list that stays.
    pub fn new(incarnation: u32, next: u64, list: &[CRecord]) -> Self {
        let count = list.len() as u32; // as many as were asked for, in 32 bits
        CRecords { incarnation, next, count, list: list.as_ptr(), packed: ptr::null(), packed_size: 0 }
    }
}
