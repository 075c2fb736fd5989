//! Requests of other machines for changes of a namespace's functions, relays and logs, as JSON: the same over the wire protocol and HTTP.
//! [`bundle`] and [`uploads`] send an application and its code to the host.

pub mod bundle;
pub mod uploads;
#[cfg(test)]
mod verbs;

use crate::{
    Backfilled, Code, EventId, LogName, Name, Result,
    changes::Step,
    cluster::RotatedSecret,
    databases::WhenRefused,
    devices::updates::UpdateDoc,
    links::{OnGap, Resent},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use bundle::Bundle;
use millrace_documents::LinkDoc;
use millrace_wire::{
    DatabaseName, TableMode, TimeField,
    table::{KeyType, TableCodec},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Maximum number of records of one backfill request; the client repeats the request for more.
pub const BACKFILL_PART: u64 = 10_000;
/// Runs that one answer names; more are only counted.
pub const RETRIED_LISTED_MAX: usize = 10_000;

/// The bytes of a record in JSON: text, or Base64.
pub fn record_of(data: Option<String>, base64: Option<String>) -> Result<Vec<u8>> {
    match (data, base64) {
        (Some(data), None) => Ok(data.into_bytes()),
        (None, Some(text)) => {
            let bad = |error| Code::ManageInvalid.error(format!("`base64` is not Base64: {error}"));
            BASE64_STANDARD.decode(text).map_err(bad)
        }
        _ => Err(Code::ManageInvalid.error("the record is missing: give `data` or `base64`, and not both")),
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A record for a log of a device.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecordForDevice {
    /// The device.
    pub device: String,
    /// The log of the device.
    pub log: String,
    /// The record, if it is text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// The record in Base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
}

impl RecordForDevice {
    /// A record for the log of this device.
    pub fn new(device: &str, log: &str, record: &[u8]) -> Self {
        let (data, base64) = match std::str::from_utf8(record) {
            Ok(text) => (Some(text.to_owned()), None),
            Err(_) => (None, Some(BASE64_STANDARD.encode(record))),
        };
        Self { device: device.to_owned(), log: log.to_owned(), data, base64 }
    }
}

/// The requested change.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Order {
    /// To run a dead letter's record again.
    Retry {
        /// The run that was given up.
        run: EventId,
    },
    /// To run the records of all dead letters of a function again.
    RetryFunction {
        /// The function.
        function: Name,
        /// The code of the error, if only dead letters with this one are meant.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<String>,
    },
    /// To run a function for records that exist, [`BACKFILL_PART`] of them at most.
    Backfill {
        /// The function.
        function: Name,
        /// The log; by default the only one that it is bound to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        log: Option<String>,
        /// The first record; by default the oldest.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<u64>,
        /// The last record; by default the newest.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<u64>,
        /// Without the records whose append started a run of the function; so, too, if neither `from` nor `to` is given.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        missed: bool,
    },
    /// To drop a log's oldest records.
    TrimLog {
        /// The log.
        log: LogName,
        /// The first record that stays; by default none does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        before: Option<u64>,
        /// Whether records that a relay has not forwarded yet are dropped, too.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        force: bool,
    },
    /// To remove a function.
    RemoveFunction {
        /// The function.
        function: Name,
        /// Whether its pending runs are given up.
        #[serde(default)]
        force: bool,
    },
    /// To forward a log to another.
    AddRelay {
        /// A log here, or the address of one elsewhere.
        from: String,
        /// Likewise.
        to: String,
        /// The relay's name; by default one is made from the source's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<Name>,
        /// The first record.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        start: Option<u64>,
        /// Its behaviour when records were lost.
        #[serde(default)]
        on_gap: OnGap,
    },
    /// To stop forwarding.
    RemoveRelay {
        /// The relay.
        name: String,
        /// Whether to skip the confirmation of the other side.
        #[serde(default)]
        force: bool,
    },
    /// Resumes a stopped relay.
    ResumeRelay {
        /// The relay.
        name: String,
        /// Whether the record that was refused is passed over.
        #[serde(default)]
        skip: bool,
        /// The record to continue with.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        start: Option<u64>,
    },
    /// To give the other side of a relay another address: one of `from` and `to`, as the relay has it.
    SetRelay {
        /// The relay.
        name: String,
        /// The new address, if the relay fetches.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<String>,
        /// The new address, if the relay sends.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<String>,
    },
    /// To give a peer another address.
    SetOutbox {
        /// The peer.
        peer: String,
        /// The new address.
        to: String,
    },
    /// To create a table.
    CreateTable {
        /// The table.
        table: LogName,
        /// How many of the newest records can be read as a log; 0: all until they are trimmed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        history: Option<u64>,
        /// What its keys are.
        #[serde(default)]
        keys: KeyType,
        /// What its values are.
        #[serde(default)]
        codec: TableCodec,
        /// After how many milliseconds values expire; 0: never.
        #[serde(default)]
        ttl_ms: u64,
        /// The database to which it is written.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        database: Option<DatabaseName>,
        /// Whether answers wait for the database.
        #[serde(default)]
        mode: TableMode,
    },
    /// To follow a table of another namespace.
    MirrorTable {
        /// The replica.
        table: LogName,
        /// The address of the table at its owner.
        from: String,
        /// How many of the newest records can be read as a log; 0: all until they are trimmed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        history: Option<u64>,
        /// Whether an existing replica is loaded again.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        reload: bool,
    },
    /// To end a replica.
    UnmirrorTable {
        /// The replica.
        table: LogName,
    },
    /// To set a database to which tables are written.
    SetDatabase {
        /// Its name.
        database: DatabaseName,
        /// Its address, without a password.
        url: String,
        /// The name of the secret with its password.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        secret: Option<Name>,
        /// Certificates of authorities to trust besides those of the system, in PEM.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        authorities: Option<String>,
        /// Most unanswered transactions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        in_flight: Option<u64>,
        /// The usual number of rows of a transaction.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rows: Option<u64>,
        /// How many bytes the journal may be ahead of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unwritten_max: Option<u64>,
        /// Whether it may acknowledge writes that are not durable.
        #[serde(default)]
        accept_volatile: bool,
        /// What happens to writes that it refuses.
        #[serde(default)]
        on_refused: WhenRefused,
        /// Whether it is to refuse changes of the tables by anybody else.
        #[serde(default)]
        refuse_outside: bool,
    },
    /// To try at once to write to databases that have stopped.
    ResumeDatabase {
        /// Its name; by default all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        database: Option<DatabaseName>,
    },
    /// To write all values of its tables to a database again.
    ResyncDatabase {
        /// Its name.
        database: DatabaseName,
        /// The namespace that has written the stream so far, if it is another one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        previous_owner: Option<String>,
    },
    /// To wait until everything is written to the databases.
    Externalize {
        /// The table; by default all that have a database.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        table: Option<LogName>,
    },
    /// To say which field of a log's records has the time of the observation.
    SetTime {
        /// The log.
        log: LogName,
        /// The field; none if none has it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        time: Option<TimeField>,
    },
    /// Restarts the stream to a peer.
    ResetOutbox {
        /// The peer.
        peer: String,
        /// Whether what waits is dropped.
        #[serde(default)]
        skip: bool,
    },
    /// To send the messages of a peer's dead letters again.
    RetryOutbox {
        /// The peer.
        peer: String,
    },
    /// To forget a peer.
    RemovePeer {
        /// The peer.
        peer: String,
        /// Whether what waits for it is dropped.
        #[serde(default)]
        force: bool,
    },
    /// To change the secret of the cluster.
    RotateClusterSecret,
    /// To send a command to a device: a record for one of its logs.
    SendCommand(RecordForDevice),
    /// To append a record to a log of a device that is connected now.
    AppendOnDevice(RecordForDevice),
    /// To begin an update of a device's firmware, whose image follows.
    BeginUpdate {
        /// The device.
        device: String,
        /// Bytes of the image.
        size: u64,
        /// Its SHA-256, in hexadecimal.
        sha256: String,
        /// The version of the firmware.
        version: String,
    },
    /// To add the next part of the image.
    AddFirmware {
        /// The device.
        device: String,
        /// The number of the update.
        update: u64,
        /// Where the part begins in the image.
        offset: u64,
        /// The part, in Base64.
        base64: String,
    },
    /// To make the namespace hold what an application file says.
    Up(Up),
    /// To take that away again.
    Down(Down),
}

/// An application as it is sent.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sending {
    /// The application file as its user named it, for messages and for relative paths.
    pub file: String,
    /// Its absolute path there, which identifies the application.
    pub origin: String,
    /// Its text.
    pub text: String,
    /// The code of its functions.
    pub functions: BTreeMap<Name, Bundle>,
}

/// See [`Order::Up`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Up {
    /// The application.
    #[serde(flatten)]
    pub sending: Sending,
    /// Whether pending runs of functions that the file no longer names are given up.
    #[serde(default)]
    pub force: bool,
    /// Whether functions that were deployed from another application may be changed.
    #[serde(default)]
    pub take_over: bool,
    /// Whether to return the changes without making them.
    #[serde(default)]
    pub dry_run: bool,
}

/// See [`Order::Down`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Down {
    /// The application; its code need not be there.
    #[serde(flatten)]
    pub sending: Sending,
    /// Whether the file's logs are removed, too.
    #[serde(default)]
    pub logs: bool,
    /// Whether pending runs are given up.
    #[serde(default)]
    pub force: bool,
    /// Whether functions that were deployed from another application may be removed.
    #[serde(default)]
    pub take_over: bool,
}

impl Order {
    /// The request in this JSON text.
    pub fn parse(text: &str) -> Result<Self> {
        serde_json::from_str(text).map_err(|error| Code::ManageInvalid.error(format!("the request: {error}")))
    }

    /// The JSON text that asks this.
    pub fn text(&self) -> String {
        serde_json::to_string(self).expect("text and numbers always make JSON")
    }
}

/// A refusal within an answer: what came before it was done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopped {
    /// The code.
    pub code: String,
    /// The description of the error.
    pub detail: String,
    /// When trying again may help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u32>,
}

/// A run that was given up, and the one that its record has now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetriedDoc {
    /// The run that was given up.
    pub dead: EventId,
    /// The new one.
    pub run: EventId,
    /// Their function.
    pub function: Name,
    /// The record's log.
    pub log: String,
    /// The record.
    pub seqno: u64,
    /// Whether it was retried before.
    pub before: bool,
}

/// The result of [`Order::RetryFunction`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetriedAllDoc {
    /// The first of them, at most [`RETRIED_LISTED_MAX`].
    pub runs: Vec<RetriedDoc>,
    /// Dead letters whose record runs again.
    pub retried: u64,
    /// Dead letters that were retried before.
    pub before: u64,
    /// Those without a record.
    pub lost: u64,
    /// Those about a record that the caller may not read, in a log that the function is not bound to.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub refused: u64,
    /// Those that have left the history of their log.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub gone: u64,
    /// Why not all were looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Stopped>,
}

/// The result of [`Order::Backfill`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackfilledDoc {
    /// The log.
    pub log: String,
    /// How many runs were started.
    pub runs: u64,
    /// The last record that was given a run; 0 if none was.
    pub upto: u64,
    /// Records that were no longer kept.
    pub missing: u64,
    /// Records that got no run because their append had started one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ran: u64,
    /// The last record that is to be given one.
    pub to: u64,
    /// The record to continue with; none if this was all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
    /// Why it stopped before the end of its part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Stopped>,
}

impl BackfilledDoc {
    /// Adds what a part did.
    pub fn add(&mut self, done: Backfilled) {
        self.runs += done.runs;
        self.missing += done.missing;
        self.ran += done.ran;
        self.upto = self.upto.max(done.upto);
    }
}

/// The answer.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Managed {
    /// One record runs again.
    Retried(RetriedDoc),
    /// Those of a function do.
    RetriedAll(RetriedAllDoc),
    /// Runs were started.
    Backfilled(BackfilledDoc),
    /// Records were dropped.
    Trimmed {
        /// The log.
        log: LogName,
        /// How many.
        dropped: u64,
        /// The oldest that is left.
        earliest: u64,
    },
    /// A function was removed.
    Removed {
        /// The function.
        function: Name,
        /// The change.
        change: &'static str,
        /// Its runs that were given up.
        given_up: u64,
    },
    /// A relay or a peer as it is now.
    Link(Box<LinkDoc>),
    /// A relay was removed, or is leaving.
    RelayLeft {
        /// The relay.
        relay: String,
        /// Which of the two.
        change: &'static str,
    },
    /// A relay resumes.
    Resumed {
        /// The relay.
        #[serde(flatten)]
        relay: Box<LinkDoc>,
        /// The records that it skips.
        passed_over: Option<PassedOver>,
    },
    /// A table was created, or was there with these attributes.
    Table {
        /// The table.
        table: LogName,
        /// Which of the two.
        change: &'static str,
    },
    /// A database was set.
    Database {
        /// Its name.
        database: DatabaseName,
        /// What changed.
        change: &'static str,
    },
    /// The host tries again to write to databases.
    DatabasesResumed {
        /// True.
        resumed: bool,
    },
    /// Everything is written.
    Externalized {
        /// True.
        externalized: bool,
    },
    /// Another field has the time of the observation, or the same as before.
    Time {
        /// The log.
        log: LogName,
        /// The field.
        time: Option<TimeField>,
        /// Which of the two.
        change: &'static str,
    },
    /// Messages were dropped.
    Dropped {
        /// The peer.
        peer: String,
        /// How many.
        dropped: u64,
    },
    /// Messages are sent again.
    Resent {
        /// The peer.
        peer: String,
        /// How many.
        #[serde(flatten)]
        resent: Resent,
    },
    /// A command was accepted.
    Command {
        /// The device.
        device: String,
        /// The log of the device.
        log: String,
        /// The number of the command.
        number: u64,
        /// Its id.
        id: EventId,
    },
    /// A record was appended to a log of a device.
    OnDevice {
        /// The device.
        device: String,
        /// The log of the device.
        log: String,
        /// The number of the record.
        seqno: u64,
        /// Its id.
        id: EventId,
    },
    /// How far an update of a device is.
    Update(Box<UpdateDoc>),
    /// The secret of the cluster was changed.
    SecretRotated(RotatedSecret),
    /// Steps of an application.
    Steps(StepsDoc),
    /// Files that the host needs before it does anything.
    Missing(MissingDoc),
}

/// Records that a relay passes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassedOver {
    /// How many.
    pub records: u64,
    /// The first.
    pub first: u64,
    /// The last.
    pub last: u64,
    /// Whether they are no longer in the history.
    pub lost: bool,
}

/// The changes that were made, or would be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepsDoc {
    /// The steps, in order.
    pub steps: Vec<Step>,
}

/// Files that have to be sent first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingDoc {
    /// Their SHA-256, each once.
    pub missing: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::{Order, verbs::VERBS};
    use serde_json::{Map, Value, json};

    fn value(of: &str, name: &str) -> Value {
        match of {
            "u64" => json!(7),
            "flag" => json!(true),
            "id" => json!("00a1b2c3d4e5-3f-1c"),
            "object" if name == "time" => json!({"field": "/t", "unit": "ms"}),
            "object" => json!({}),
            _ => json!(match name {
                "on_gap" => "skip",
                "keys" => "bytes",
                "codec" => "text",
                "mode" => "asynchronous",
                "on_refused" => "dead-letter",
                _ => "a",
            }),
        }
    }

    #[test]
    fn orders_have_the_members_that_the_specification_says() {
        for (verb, members) in VERBS {
            let object = |with: &dyn Fn(&str, bool) -> bool| {
                let mut object = Map::from_iter([("do".to_owned(), json!(verb))]);
                let members = members.iter().filter(|(name, _, optional)| with(name, *optional));
                object.extend(members.map(|(name, of, _)| ((*name).to_owned(), value(of, name))));
                object
            };
            let parse = |object: &Map<String, Value>| Order::parse(&Value::Object(object.clone()).to_string());
            parse(&object(&|_, optional| !optional)).unwrap_or_else(|error| panic!("{verb}: {error}"));
            let all = object(&|_, _| true);
            let order = parse(&all).unwrap_or_else(|error| panic!("{verb}: {error}"));
            // A member that the code does not know would be lost, and one that the specification does not know would be new.
            let again: Map<String, Value> = serde_json::from_str(&order.text()).expect("an object");
            let sorted = |object: &Map<String, Value>| {
                let mut names: Vec<String> = object.keys().cloned().collect();
                names.sort();
                names
            };
            assert_eq!(sorted(&again), sorted(&all), "{verb}");
            for (left, _, _) in members.iter().filter(|(_, _, optional)| !optional) {
                assert!(parse(&object(&|name, _| name != *left)).is_err(), "{verb} without {left}");
            }
        }
    }
}
