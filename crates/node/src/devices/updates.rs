//! Updates of the firmware of devices. The image is stored here, and goes to the device as commands for its log `firmware`; what the device
//! says of it is in its log `update`.
//!
//! ```text
//!  _updates/NAME    the last update of the device: its image, how much of it was sent, why it failed
//!  _firmware/NAME   the image, in records of 32 KiB; trimmed when the update has ended
//!  NAME/update      what the device says: "receiving", "trial", "confirmed"
//! ```
//!
//! Whenever no command waits for a device that is connected, the next sixteen records are given to its stream of commands, in one transaction
//! with the note of how far that is. So an update goes on after a crash of the host and of the device, without anybody who waits for it, and
//! a device that is slow or asleep does not fill the journal.

mod stage;

pub use stage::Stage;

use super::{
    commands::{self, Command, Refusal},
    read,
};
use millrace_journal::{Catalog, Committed, Log, Transaction};
use millrace_namespace::{
    Namespace,
    admission::devices,
    names::{newest_note, note},
};
use millrace_wire::{Code, Error, EventId, LogName, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use stage::{Batch, Update, UpdateReport, hex, unhex};

/// The logs of the device.
pub const FIRMWARE_LOG: &str = "firmware";
const STATE_LOG: &str = "update";
/// The longest image.
pub const IMAGE_MAX_BYTES: u64 = 16 << 20;
/// Bytes of each part of an image that is stored, except for the last one.
pub const PART_BYTES: usize = 32 << 10;
/// The longest version, as in the firmware.
const VERSION_MAX_BYTES: usize = 24;

const NOTES: &str = "_updates/";
const NOTES_HISTORY: u64 = 4;
const IMAGES: &str = "_firmware/";
const PARTS_MAX: u64 = IMAGE_MAX_BYTES / PART_BYTES as u64;

/// An image to update a device with.
#[derive(Clone, Copy, Debug)]
pub struct NewImage<'a> {
    /// Its length.
    pub size: u64,
    /// Its SHA-256, in hexadecimal.
    pub sha256: &'a str,
    /// The version of the firmware.
    pub version: &'a str,
}

/// The firmware of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Firmware {
    /// The version that runs, as the device said last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<String>,
    /// The longest image that the device has room for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot_bytes: Option<u32>,
    /// The last update.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update: Option<UpdateDoc>,
}

/// An update of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdateDoc {
    /// Its number.
    pub number: u64,
    /// The version of the image.
    pub version: String,
    /// The length of the image.
    pub size: u32,
    /// Its SHA-256, in hexadecimal.
    pub sha256: String,
    /// How far it is.
    pub state: Stage,
    /// How many bytes of the image the host has.
    pub stored: u32,
    /// How many bytes were sent to the device.
    pub sent: u32,
    /// The code of the error with which it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// What that means here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// The SHA-256 of an image, in hexadecimal.
pub fn hash_of(image: &[u8]) -> String {
    hex(&Sha256::digest(image))
}

/// The log with the updates of a device.
fn notes_of(device: &str) -> Result<LogName> {
    devices::state_of(device)?;
    format!("{NOTES}{device}").parse()
}

fn image_of(device: &str) -> Result<LogName> {
    devices::state_of(device)?;
    format!("{IMAGES}{device}").parse()
}

/// The log, here, in which the device says how far an update is.
pub fn reports_of(device: &str) -> Result<LogName> {
    devices::state_of(device)?;
    format!("{device}/{STATE_LOG}").parse()
}

/// The firmware of a device, by the newest records of [`notes_of`] and [`reports_of`].
fn firmware(noted: Option<&[u8]>, reported: Option<&[u8]>) -> Option<Firmware> {
    let update: Option<Update> = noted.and_then(|bytes| serde_json::from_slice(bytes).ok());
    let reported: Option<UpdateReport> = reported.and_then(|bytes| serde_json::from_slice(bytes).ok());
    if update.is_none() && reported.is_none() {
        return None;
    }
    let update = update.map(|update| describe(&update, reported.as_ref()));
    let (running, slot_bytes) = reported.map(|reported| (reported.running, reported.slot)).unzip();
    Some(Firmware { running, slot_bytes, update })
}

fn describe(update: &Update, reported: Option<&UpdateReport>) -> UpdateDoc {
    let Refusal { code, detail } = match update.refusal(reported) {
        Some(refusal) => refusal,
        None => Refusal { code: String::new(), detail: String::new() },
    };
    let given = |text: String| Some(text).filter(|text| !text.is_empty());
    UpdateDoc {
        number: update.number,
        version: update.version.clone(),
        size: update.size,
        sha256: update.sha256.clone(),
        state: update.stage(reported),
        stored: update.stored,
        sent: update.next.unwrap_or(0),
        code: given(code),
        detail: given(detail),
    }
}

/// The firmware of a device, if it can be updated or was to be.
pub(super) fn of(namespace: &Namespace, device: &str) -> Result<Option<Firmware>> {
    let noted = newest_note(namespace, &notes_of(device)?)?;
    // A record that was damaged in the device cannot be read.
    let reported = newest_note(namespace, &reports_of(device)?).unwrap_or_default();
    Ok(firmware(noted.as_deref(), reported.as_deref()))
}

/// The newest record of a log, with its number.
fn newest<T: for<'a> Deserialize<'a>>(namespace: &Namespace, catalog: &Catalog, log: &LogName) -> Option<(u64, T)> {
    let log = catalog.log(log).filter(|log| log.latest() > 0)?;
    let (seqno, mut bytes) = (log.latest(), Vec::new());
    namespace.journal().get(log, seqno, &mut bytes).ok()?;
    Some((seqno, serde_json::from_slice(&bytes).ok()?))
}

fn noted(namespace: &Namespace, catalog: &Catalog, device: &str) -> Result<Option<Update>> {
    Ok(newest(namespace, catalog, &notes_of(device)?).map(|(_, update)| update))
}

fn reported(namespace: &Namespace, catalog: &Catalog, device: &str) -> Result<Option<(u64, UpdateReport)>> {
    Ok(newest(namespace, catalog, &reports_of(device)?))
}

fn keep(tx: &mut Transaction<'_>, device: &str, update: &Update) -> Result<()> {
    let line = serde_json::to_vec(update).expect("text and numbers always make JSON");
    note(tx, &notes_of(device)?, NOTES_HISTORY, &line)
}

/// Stages that an image is needed no longer.
fn drop_image(tx: &mut Transaction<'_>, device: &str) -> Result<()> {
    match tx.catalog().log(&image_of(device)?).cloned() {
        Some(log) if log.latest() >= log.earliest() && log.latest() > 0 => tx.trim(&log, log.latest() + 1),
        _ => Ok(()),
    }
}

/// Stages that no update is under way: what was for a device is not for the next one of its name.
pub(super) fn forget(tx: &mut Transaction<'_>, device: &str) -> Result<()> {
    if tx.catalog().log(&notes_of(device)?).is_some() {
        note(tx, &notes_of(device)?, NOTES_HISTORY, b"")?;
    }
    drop_image(tx, device)
}

fn check(image: &NewImage<'_>) -> Result<()> {
    let bad = |detail: String| Err(Code::ValueInvalid.error(detail));
    if image.size == 0 {
        return bad("the image is empty".into());
    }
    if image.size > IMAGE_MAX_BYTES {
        return Err(Code::UpdateTooLarge.error(format!("{} bytes; the limit is {IMAGE_MAX_BYTES}", image.size)));
    }
    if unhex(image.sha256).is_none() {
        return bad(format!("'{}' is not a SHA-256 in hexadecimal", image.sha256.escape_debug()));
    }
    let plain = |byte: u8| (byte.is_ascii_graphic() || byte == b' ') && !matches!(byte, b'"' | b'\\');
    if image.version.is_empty() || image.version.len() > VERSION_MAX_BYTES || !image.version.bytes().all(plain) {
        return bad(format!(
            "version '{}': it has 1 to {VERSION_MAX_BYTES} printable ASCII characters, without quotes and backslashes",
            image.version.escape_debug()
        ));
    }
    Ok(())
}

/// Begins an update, whose image follows with [`add`]. If an update with the same image is under way, that goes on; if it was the last one,
/// and the device runs it, nothing happens. An update with another image ends.
///
/// # Errors
///
/// There is no such device (MR6303), its firmware has no updates (MR6350), or the image is too large for it (MR6346).
pub fn begin(namespace: &Namespace, device: &str, image: &NewImage<'_>) -> Result<Committed<UpdateDoc>> {
    check(image)?;
    namespace.journal().commit(|tx| {
        let catalog = tx.catalog().clone();
        let missing = || Code::DeviceNotFound.error(format!("no device '{device}' is known to this namespace"));
        let state = read(namespace, &catalog, device)?.ok_or_else(missing)?;
        let heard = reported(namespace, &catalog, device)?;
        let size = image.size as u32; // at most IMAGE_MAX_BYTES
        match &heard {
            Some((_, reported)) if size > reported.slot => {
                let detail = format!("{size} bytes; device '{device}' has room for {}", reported.slot);
                return Err(Code::UpdateTooLarge.error(detail));
            }
            None if state.records > 0 => {
                let detail = format!("the firmware of device '{device}' does not report to '{device}/{STATE_LOG}'");
                return Err(Code::UpdateUnsupported.error(detail));
            }
            _ => {}
        }
        let said = heard.as_ref().map(|(_, reported)| reported);
        let before = noted(namespace, &catalog, device)?;
        let number = before.as_ref().map_or(0, |update| update.number) + 1;
        if let Some(update) = before {
            let same = (&*update.sha256, &*update.version, update.size) == (image.sha256, image.version, size);
            let stage = update.stage(said);
            if same && (stage == Stage::Confirmed || !stage.is_end()) {
                return Ok(describe(&update, said));
            }
        }
        drop_image(tx, device)?;
        let (version, sha256) = (image.version.to_owned(), image.sha256.to_owned());
        let seen = heard.as_ref().map_or(0, |(seqno, _)| *seqno);
        let update = Update { number, version, size, sha256, seen, ..Update::default() };
        keep(tx, device, &update)?;
        Ok(describe(&update, said))
    })
}

/// Stores a part of the image of an update, in order, each of [`PART_BYTES`] except for the last one. A part that is there already changes
/// nothing. With the last one, the update begins.
///
/// # Errors
///
/// The update is not the last one, or the part is not the next one (MR6352). The image is not the one that was announced (MR6347).
pub fn add(namespace: &Namespace, device: &str, number: u64, offset: u64, part: &[u8]) -> Result<Committed<UpdateDoc>> {
    let committed = namespace.journal().commit(|tx| {
        let catalog = tx.catalog().clone();
        let odd = |detail: String| Code::UpdatePartUnexpected.error(detail);
        let known = noted(namespace, &catalog, device)?.filter(|update| update.number == number && !update.ended);
        let Some(mut update) = known else {
            return Err(odd(format!("update {number} of device '{device}' is not under way")));
        };
        let heard = reported(namespace, &catalog, device)?.map(|(_, reported)| reported);
        let (stored, size) = (u64::from(update.stored), u64::from(update.size));
        let end = offset.saturating_add(part.len() as u64);
        if end <= stored {
            return Ok((describe(&update, heard.as_ref()), None));
        }
        if offset != stored || end > size || (part.len() != PART_BYTES && end != size) {
            let detail =
                format!("{} bytes from {offset} on; the next part has {PART_BYTES} from {stored} on", part.len());
            return Err(odd(detail));
        }
        let name = image_of(device)?;
        let log = match catalog.log(&name) {
            Some(log) => log.clone(),
            None => tx.create_log(&name, PARTS_MAX)?,
        };
        // Before the last part is stored, so that nothing of a damaged image stays.
        if end == size && hash(namespace, &log, &update, part)? != update.sha256 {
            update.fail(Code::UpdateDamaged, "the host has received other bytes than those that were announced");
            drop_image(tx, device)?;
            keep(tx, device, &update)?;
            return Ok((describe(&update, heard.as_ref()), update.failed));
        }
        let appended = tx.append(&log, part, EventId::NONE, 0)?;
        if offset == 0 {
            update.first = appended.seqno;
        }
        update.stored = end as u32; // at most the image
        keep(tx, device, &update)?;
        Ok((describe(&update, heard.as_ref()), None))
    })?;
    let (doc, damaged) = committed.value;
    if let Some(Refusal { detail, .. }) = damaged {
        return Err(Code::UpdateDamaged.error(detail));
    }
    // So that a device that is connected gets it at once.
    feed(namespace, device)?;
    Ok(Committed { value: doc, end: namespace.journal().tail() })
}

/// The hash of what is stored, and of the last part.
fn hash(namespace: &Namespace, log: &Log, update: &Update, last: &[u8]) -> Result<String> {
    let (mut hash, mut part) = (Sha256::new(), Vec::new());
    for record in 0..u64::from(update.stored).div_ceil(PART_BYTES as u64) {
        namespace.journal().get(log, update.first + record, &mut part)?;
        hash.update(&part);
    }
    Ok(hex(&hash.chain_update(last).finalize()))
}

/// Bytes of the image.
fn image(namespace: &Namespace, log: &Log, first: u64, (offset, bytes): (u32, u32)) -> Result<Vec<u8>> {
    let (mut at, end, mut found, mut part) = (offset as usize, (offset + bytes) as usize, Vec::new(), Vec::new());
    while at < end {
        namespace.journal().get(log, first + (at / PART_BYTES) as u64, &mut part)?;
        let from = at % PART_BYTES;
        let to = part.len().min(from + end - at);
        let here = part.get(from..to).filter(|here| !here.is_empty());
        found.extend_from_slice(here.ok_or_else(|| Code::EntryDamaged.error("a part of an image is too short"))?);
        at = at - from + to;
    }
    Ok(found)
}

/// Takes what the device says into account, and gives the next records of the image to the stream of commands, if none waits.
pub(crate) fn feed(namespace: &Namespace, device: &str) -> Result<()> {
    let is_needed = |catalog: &Catalog| -> Result<Option<(Update, u64, UpdateReport)>> {
        let Some(update) = noted(namespace, catalog, device)?.filter(|update| update.is_complete() && !update.ended)
        else {
            return Ok(None);
        };
        let Some((seqno, reported)) = reported(namespace, catalog, device)? else { return Ok(None) };
        // What the device has not said yet may be that it has this update: from the namespace from which this one was restored.
        let has_said = || read(namespace, catalog, device).map(|state| state.is_none_or(|state| state.is_caught_up()));
        let is_due = update.is_due(&reported) && commands::waiting(catalog, device) == 0 && has_said()?;
        let is_needed = seqno > update.seen || is_due;
        Ok(is_needed.then_some((update, seqno, reported)))
    };
    if is_needed(&*namespace.journal().catalog()?)?.is_none() {
        return Ok(());
    }
    let committed = namespace.journal().commit(|tx| {
        let catalog = tx.catalog().clone();
        let Some((mut update, seqno, reported)) = is_needed(&catalog)? else { return Ok(()) };
        update.hear(seqno, &reported);
        if update.ended {
            drop_image(tx, device)?;
        } else if commands::waiting(&catalog, device) == 0
            && read(namespace, &catalog, device)?.is_none_or(|state| state.is_caught_up())
        {
            let batch = update.advance(&reported);
            give(namespace, tx, device, &update, &batch)?;
        }
        keep(tx, device, &update)
    });
    committed.map(drop)
}

fn give(namespace: &Namespace, tx: &mut Transaction<'_>, device: &str, update: &Update, batch: &Batch) -> Result<()> {
    if batch.begins {
        let hash = unhex(&update.sha256).ok_or_else(|| Code::EntryDamaged.error("the hash of an update"))?;
        commands::stage(tx, device, FIRMWARE_LOG, &update.begin_record(&hash))?;
    }
    let name = image_of(device)?;
    let log = millrace_namespace::found(tx.catalog().log(&name), &name)?.clone();
    for piece in &batch.pieces {
        let bytes = image(namespace, &log, update.first, *piece)?;
        commands::stage(tx, device, FIRMWARE_LOG, &update.piece_record(piece.0, &bytes))?;
    }
    Ok(())
}

/// Whether a command is a record of an update.
pub(super) fn has(namespace: &Namespace, catalog: &Catalog, device: &str, command: &Command) -> Result<bool> {
    Ok(noted(namespace, catalog, device)?.is_some_and(|update| update.is_in(command)))
}

/// Stages what becomes of the update when the device refuses one of its records, or when that was lost. Whether this was one of an update.
pub(super) fn refused(
    namespace: &Namespace,
    tx: &mut Transaction<'_>,
    device: &str,
    command: &Command,
    error: &Error,
) -> Result<bool> {
    let catalog = tx.catalog().clone();
    let update = noted(namespace, &catalog, device)?;
    let Some(mut update) = update.filter(|update| update.is_in(command)) else { return Ok(false) };
    if update.ended {
        return Ok(true);
    }
    if error.code() == Code::DeviceCommandUnknown {
        // The namespace was restored: the device gets the image from its beginning.
        update.next = None;
    } else {
        update.fail(error.code(), error.detail());
        drop_image(tx, device)?;
    }
    keep(tx, device, &update)?;
    Ok(true)
}
