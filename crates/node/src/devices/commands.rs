//! Commands: records for logs of a device, which it gets over the connection that it has opened. Each is delivered once, and is in the device's
//! flash when the host notes it as delivered.
//!
//! ```text
//!  _commands/NAME   command N of the device is record N: the log's name, a space, and the data; delivered ones are trimmed
//!  _refusals/NAME   why the device takes no commands, if it refused all of them
//!  dead/commands    commands that the device refused, as JSON
//! ```
//!
//! The numbers are those of one stream: LINK asks the device for the last one that it has, DELIVER brings the next one.

use super::{AttachedDevice, updates};
use millrace_journal::{Appended, Catalog, Committed, Log, Transaction};
use millrace_namespace::{Namespace, admission::devices, names::note};
use millrace_wire::{Code, Error, EventId, Hlc, LogName, Result};
use serde::{Deserialize, Serialize};

/// The log with the commands that a device refused.
pub const DEAD_COMMANDS: &str = "dead/commands";
/// The longest command: a record that runs a function on a device has no more.
pub const COMMAND_MAX_BYTES: usize = 256;
/// Most commands that wait for one device.
pub const COMMANDS_MAX: u64 = 1000;

const PREFIX: &str = "_commands/";
const REFUSALS: &str = "_refusals/";
const REFUSALS_HISTORY: u64 = 4;
const DEAD_HISTORY: u64 = 10_000;
/// Bytes of the name of a device's log.
const NAME_MAX_BYTES: usize = 64;

/// A command that was accepted: it is sent when the device is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentCommand {
    /// Its number among the commands of the device.
    pub number: u64,
    /// Its id, which is the cause of the record in the device.
    pub id: EventId,
}

/// A command that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Its number.
    pub number: u64,
    /// Its id.
    pub id: EventId,
    /// When it was accepted.
    pub hlc: Hlc,
    /// The log of the device.
    pub log: String,
    /// The record.
    pub data: Vec<u8>,
}

/// Why a device takes no commands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The code, such as MR6132.
    pub code: String,
    /// The description of the error.
    pub detail: String,
}

/// What a command came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It waits until the device connects.
    Waits,
    /// It is in the device's flash.
    Delivered,
    /// The device refused it, or it was not sent.
    Refused(Refusal),
}

/// A command in [`DEAD_COMMANDS`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadCommand {
    /// The device.
    pub device: String,
    /// The number that the command had.
    pub number: u64,
    /// Its id.
    pub id: EventId,
    /// The log of the device.
    pub log: String,
    /// The record as text; without what is no text.
    pub data: String,
    /// Why.
    #[serde(flatten)]
    pub refusal: Refusal,
}

/// The log with the commands for a device.
pub fn log_of(device: &str) -> Result<LogName> {
    devices::state_of(device)?;
    format!("{PREFIX}{device}").parse()
}

/// The log that says why a device takes no commands.
fn refusals_of(device: &str) -> Result<LogName> {
    devices::state_of(device)?;
    format!("{REFUSALS}{device}").parse()
}

/// How many commands wait.
pub fn waiting(catalog: &Catalog, device: &str) -> u64 {
    log_of(device).ok().and_then(|name| catalog.log(&name).map(count)).unwrap_or(0)
}

fn count(log: &Log) -> u64 {
    (log.latest() + 1).saturating_sub(log.earliest().max(1))
}

/// Stages the log, so that a connection of the device can wait for commands.
pub(super) fn begin(tx: &mut Transaction<'_>, device: &str) -> Result<()> {
    let name = log_of(device)?;
    if tx.catalog().log(&name).is_none() {
        tx.create_log(&name, COMMANDS_MAX)?;
    }
    Ok(())
}

/// Stages that no command waits any more: what waits for a device is not for the next one of its name, and becomes a dead letter, unless it is
/// of an update. The log stays, so that no number is used twice.
pub(super) fn forget(namespace: &Namespace, tx: &mut Transaction<'_>, device: &str) -> Result<()> {
    let removed = Code::DeviceNotFound.error("the device was removed before it had the command");
    let mut behind = 0;
    // One that cannot be read does not keep the device.
    while let Ok(Some(command)) = next(namespace, device, behind) {
        if !updates::has(namespace, tx.catalog(), device, &command)? {
            note(tx, &DEAD_COMMANDS.parse()?, DEAD_HISTORY, &dead_letter(device, &command, &removed))?;
        }
        behind = command.number;
    }
    let refusals = refusals_of(device)?;
    if tx.catalog().log(&refusals).is_some() {
        note(tx, &refusals, REFUSALS_HISTORY, b"")?;
    }
    let Some(log) = tx.catalog().log(&log_of(device)?).cloned() else { return Ok(()) };
    // A connection of the device waits for the next number, and looks then whether the device is still known.
    let number = tx.append(&log, b"", EventId::NONE, 0)?.seqno;
    tx.trim(&log, number + 1)
}

/// Accepts a command.
///
/// # Errors
///
/// There is no such device (MR6303), the command is too long (MR1006), or too many wait (MR6342).
pub fn send(namespace: &Namespace, device: &str, log: &str, data: &[u8]) -> Result<Committed<SentCommand>> {
    log.parse::<LogName>()?;
    if log.len() > NAME_MAX_BYTES {
        let detail = format!("log '{log}' has {} bytes; the log of a device has at most {NAME_MAX_BYTES}", log.len());
        return Err(Code::LogNameInvalid.error(detail));
    }
    if data.len() > COMMAND_MAX_BYTES {
        let detail = format!("a command of {} bytes; the limit is {COMMAND_MAX_BYTES}", data.len());
        return Err(Code::ValueInvalid.error(detail));
    }
    namespace.journal().commit(|tx| {
        let known = devices::state_of(device).is_ok_and(|state| tx.catalog().log(&state).is_some());
        if !known {
            return Err(Code::DeviceNotFound.error(format!("no device '{device}' is known to this namespace")));
        }
        begin(tx, device)?;
        let waiting = waiting(tx.catalog(), device);
        if waiting >= COMMANDS_MAX {
            return Err(Code::DeviceCommandsFull.error(format!("{waiting} commands wait for device '{device}'")));
        }
        let appended = stage(tx, device, log, data)?;
        Ok(SentCommand { number: appended.seqno, id: appended.id })
    })
}

/// Stages a command. The caller has seen that few wait.
pub(super) fn stage(tx: &mut Transaction<'_>, device: &str, log: &str, data: &[u8]) -> Result<Appended> {
    let name = log_of(device)?;
    let commands = millrace_namespace::found(tx.catalog().log(&name), &name)?.clone();
    tx.append(&commands, &[log.as_bytes(), b" ", data].concat(), EventId::NONE, 0)
}

/// The first command that waits behind this number.
pub(crate) fn next(namespace: &Namespace, device: &str, behind: u64) -> Result<Option<Command>> {
    let (name, journal) = (log_of(device)?, namespace.journal());
    let catalog = journal.catalog()?;
    let Some(log) = catalog.log(&name) else { return Ok(None) };
    let number = (behind + 1).max(log.earliest());
    if number > log.latest() {
        return Ok(None);
    }
    let mut record = Vec::new();
    let meta = match journal.get(log, number, &mut record) {
        // It was delivered over another connection.
        Err(error) if error.code() == Code::BelowHistory => return Ok(None),
        meta => meta?,
    };
    let odd = || Code::EntryDamaged.error(format!("command {number} of device '{device}' is malformed"));
    // No name of a log has a space.
    let space = record.iter().position(|byte| *byte == b' ').ok_or_else(odd)?;
    let log = String::from_utf8(record[..space].to_vec()).map_err(|_| odd())?;
    Ok(Some(Command { number, id: meta.id, hlc: meta.hlc, log, data: record[space + 1..].to_vec() }))
}

/// Whether this namespace accepted the command itself. Otherwise it was restored, and the device may have got the command from the original.
pub(crate) fn is_own(namespace: &Namespace, command: &Command) -> bool {
    command.id.namespace() == Some(namespace.journal().namespace())
}

fn trim(tx: &mut Transaction<'_>, device: &str, upto: u64) -> Result<()> {
    let name = log_of(device)?;
    let Some(log) = tx.catalog().log(&name).cloned() else { return Ok(()) };
    let upto = upto.min(log.latest());
    if count(&log) > 0 && log.earliest() <= upto { tx.trim(&log, upto + 1) } else { Ok(()) }
}

/// Notes that the device has all commands up to this one.
pub(crate) fn delivered(namespace: &Namespace, attached: &AttachedDevice, upto: u64) -> Result<()> {
    let (catalog, device) = (namespace.journal().catalog()?, &*attached.name);
    let is_new = catalog.log(&log_of(device)?).is_some_and(|log| count(log) > 0 && log.earliest() <= upto);
    let is_refused = refusal(namespace, &catalog, device)?.is_some();
    if !is_new && !is_refused {
        return Ok(());
    }
    let committed = namespace.journal().commit(|tx| {
        attached.check(namespace, tx.catalog())?;
        trim(tx, device, upto)?;
        if is_refused { note(tx, &refusals_of(device)?, REFUSALS_HISTORY, b"") } else { Ok(()) }
    });
    committed.map(drop)
}

/// What [`DEAD_COMMANDS`] says of a command.
fn dead_letter(device: &str, command: &Command, error: &Error) -> Vec<u8> {
    let dead = DeadCommand {
        device: device.to_owned(),
        number: command.number,
        id: command.id,
        log: command.log.clone(),
        data: String::from_utf8_lossy(&command.data).into_owned(),
        refusal: Refusal { code: error.code().id().to_owned(), detail: error.detail().to_owned() },
    };
    serde_json::to_vec(&dead).expect("text and numbers always make JSON")
}

/// Makes a command a dead letter: it is not sent again. For one of an update, the update ends instead.
pub(crate) fn refused(
    namespace: &Namespace,
    attached: &AttachedDevice,
    command: &Command,
    error: &Error,
) -> Result<()> {
    let device = &*attached.name;
    let line = dead_letter(device, command, error);
    let committed = namespace.journal().commit(|tx| {
        attached.check(namespace, tx.catalog())?;
        if !updates::refused(namespace, tx, device, command, error)? {
            note(tx, &DEAD_COMMANDS.parse()?, DEAD_HISTORY, &line)?;
        }
        trim(tx, device, command.number)
    });
    committed.map(drop)
}

/// Notes why the device takes no commands at all.
pub(crate) fn all_refused(namespace: &Namespace, attached: &AttachedDevice, error: &Error) -> Result<()> {
    let device = &*attached.name;
    let known = refusal(namespace, &*namespace.journal().catalog()?, device)?;
    let new = Refusal { code: error.code().id().to_owned(), detail: error.detail().to_owned() };
    if known.as_ref() == Some(&new) {
        return Ok(());
    }
    let line = serde_json::to_vec(&new).expect("text always makes JSON");
    let committed = namespace.journal().commit(|tx| {
        attached.check(namespace, tx.catalog())?;
        note(tx, &refusals_of(device)?, REFUSALS_HISTORY, &line)
    });
    committed.map(drop)
}

/// Why the device takes no commands, if it refused all of them.
pub fn refusal(namespace: &Namespace, catalog: &Catalog, device: &str) -> Result<Option<Refusal>> {
    let name = refusals_of(device)?;
    let Some(log) = catalog.log(&name).filter(|log| log.latest() > 0) else { return Ok(None) };
    let mut line = Vec::new();
    namespace.journal().get(log, log.latest(), &mut line)?;
    Ok(serde_json::from_slice(&line).ok())
}
