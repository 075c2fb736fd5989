//! The dead letters of outboxes: what their messages were, and sending them again.
//!
//! A dead letter repeats a short message. A longer one is in the log `_undelivered`, in the form that it had in its outbox, as long as its
//! dead letter is in the history of `dead/outbox` and was not sent again.

use super::{
    Links, OUTBOX_DEAD_LETTERS, log_name,
    message::{self, Message},
};
use millrace_journal::{HISTORY_ALL, Log, Transaction};
use millrace_namespace::{
    admission::Room,
    dead_letters::Notes,
    gate::{Shows, Site},
    outbox::{NewMessage, OUTBOX_BYTES_MAX, Outgoing, waiting},
};
use millrace_wire::{Address, Code, EventId, JsonBytesRead, Name, Peer, Result};
use serde::{Deserialize, Serialize};

/// Longer messages that peers refused.
const KEPT: &str = "_undelivered";

/// The fields of a dead letter that are needed to send its message again.
#[derive(Deserialize)]
struct Letter {
    to: String,
    message: String,
    function: Option<String>,
    /// The record of the log of longer messages that has this one.
    kept: Option<u64>,
    #[serde(flatten)]
    data: JsonBytesRead,
}

impl Letter {
    fn is_to(&self, peer: &Peer) -> bool {
        self.to.parse::<Address>().is_ok_and(|to| to.peer == *peer)
    }
}

/// The result of sending the dead letters of a peer again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resent {
    /// Messages that are in the outbox again.
    pub resent: u64,
    /// Dead letters that were sent again before.
    pub before: u64,
    /// Dead letters without their message.
    pub lost: u64,
    /// Dead letters, of all peers, that have left the history.
    pub gone: u64,
}

/// What became of one dead letter.
enum Turn {
    Resent,
    Before,
    Lost,
}

impl Links {
    /// Stages a copy of a message that is too long for its dead letter; returns the number of its record.
    pub(super) fn keep_message(&self, tx: &mut Transaction<'_>, id: EventId, message: &Message<'_>) -> Result<u64> {
        let Message { log, function, data, .. } = *message;
        let function = function.map(str::parse::<Name>).transpose()?;
        let name = log_name(KEPT);
        let (kept, there) = match tx.catalog().log(&name).cloned() {
            Some(kept) => {
                let there = waiting(&self.namespace, &kept)?;
                (kept, there)
            }
            None => (tx.create_log(&name, HISTORY_ALL)?, Default::default()),
        };
        let bytes = message::bytes(log, function.as_ref(), data);
        if there.bytes + bytes > OUTBOX_BYTES_MAX {
            return Err(Code::RefusedMessagesFull.error(format!(
                "{} long messages of {} bytes that peers refused are kept",
                there.records, there.bytes
            )));
        }
        let mut copy = Vec::new();
        message::encode(&mut copy, there.total + bytes, log, function.as_ref(), data);
        Ok(tx.append(&kept, &copy, id, 0)?.seqno)
    }

    /// Sends the messages of a peer's dead letters again, oldest first, each once. They come after the messages that wait.
    ///
    /// # Errors
    ///
    /// `OutboxFull` if there is no room for more; those before are in the outbox.
    pub fn resend_letters(&self, peer: &str) -> Result<Resent> {
        let to: Vec<Address> = match self.peer(peer) {
            Ok(peer) => peer.earlier.iter().filter_map(|earlier| earlier.parse().ok()).chain([peer.address]).collect(),
            Err(error) => vec![peer.parse().map_err(|_| error)?],
        };
        let mut done = Resent::default();
        let journal = self.namespace.journal();
        let Some(dead) = journal.catalog()?.log(OUTBOX_DEAD_LETTERS).cloned() else { return Ok(done) };
        let (mut notes, mut end) = (Notes::default(), journal.tail());
        let mut resend_all = || {
            for seqno in dead.earliest().max(1)..=dead.latest() {
                let Some((id, letter)) =
                    self.letter(&dead, seqno)?.filter(|(_, letter)| to.iter().any(|to| letter.is_to(&to.peer)))
                else {
                    continue;
                };
                let turn = journal.commit(|tx| self.resend(tx, &mut notes, &dead, (seqno, id), &letter))?;
                end = turn.end;
                match turn.value {
                    Turn::Resent => done.resent += 1,
                    Turn::Before => done.before += 1,
                    Turn::Lost => done.lost += 1,
                }
            }
            Ok(())
        };
        let all = resend_all();
        // Even if all was done before: the process that did it may have been killed before it was on disk.
        self.namespace.settle(Site::ResetOutbox, Shows::Report(end), None)?;
        all?;
        done.gone = dead.earliest().saturating_sub(1);
        self.drop_unneeded()?;
        Ok(done)
    }

    fn resend(
        &self,
        tx: &mut Transaction<'_>,
        notes: &mut Notes,
        dead: &Log,
        (seqno, id): (u64, EventId),
        letter: &Letter,
    ) -> Result<Turn> {
        let catalog = tx.catalog().clone();
        notes.catch_up(self.namespace.journal(), &catalog, dead)?;
        if notes.of(seqno).is_some() {
            return Ok(Turn::Before);
        }
        let Some(data) = self.data_of(letter)? else { return Ok(Turn::Lost) };
        let (to, function) = (letter.to.parse()?, letter.function.as_deref().map(str::parse::<Name>).transpose()?);
        let message = NewMessage { to: &to, function: function.as_ref(), data: &data, cause: id, ordinal: 0 };
        let sent = Outgoing::default().append(&self.namespace, tx, Room::Outside, message)?;
        Notes::note(tx, dead, seqno, sent.id)?;
        Ok(Turn::Resent)
    }

    /// The dead letter that a record is, and its id; none if a client appended it, or a repair took it away.
    fn letter(&self, dead: &Log, seqno: u64) -> Result<Option<(EventId, Letter)>> {
        let mut payload = Vec::new();
        let meta = match self.namespace.journal().get(dead, seqno, &mut payload) {
            Ok(meta) => meta,
            Err(error) if matches!(error.code(), Code::BelowHistory | Code::RecordVoid) => return Ok(None),
            Err(error) => return Err(error),
        };
        let letter = serde_json::from_slice::<Letter>(&payload).ok();
        let is_one = |letter: &Letter| {
            !meta.cause.is_none()
                && letter.message.parse() == Ok(meta.cause)
                && self.namespace.is_from_host(dead, seqno)
        };
        Ok(letter.filter(is_one).map(|letter| (meta.id, letter)))
    }

    /// The bytes of a letter's message; none if they are not kept.
    fn data_of(&self, letter: &Letter) -> Result<Option<Vec<u8>>> {
        let Some(seqno) = letter.kept else { return Ok(letter.data.bytes().ok().flatten()) };
        let journal = self.namespace.journal();
        let Some(kept) = journal.catalog()?.log(KEPT).cloned() else { return Ok(None) };
        let mut payload = Vec::new();
        match journal.get(&kept, seqno, &mut payload) {
            Ok(_) => Ok(Some(message::decode(&payload)?.data.to_vec())),
            Err(error) if matches!(error.code(), Code::BelowHistory | Code::AboveTail) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Drops the longer messages before the first that a dead letter still needs.
    pub(super) fn drop_unneeded(&self) -> Result<()> {
        let journal = self.namespace.journal();
        let catalog = journal.catalog()?;
        let logs = catalog.log(KEPT).cloned().zip(catalog.log(OUTBOX_DEAD_LETTERS).cloned());
        let Some((kept, dead)) = logs.filter(|(kept, _)| kept.earliest() <= kept.latest()) else { return Ok(()) };
        let (mut notes, mut first) = (Notes::default(), kept.latest() + 1);
        notes.catch_up(journal, &catalog, &dead)?;
        for seqno in dead.earliest().max(1)..=dead.latest() {
            let letter = self.letter(&dead, seqno)?;
            if let Some(needed) = letter.and_then(|(_, letter)| letter.kept).filter(|_| notes.of(seqno).is_none()) {
                first = needed.min(first);
                break;
            }
        }
        journal.commit(|tx| tx.trim(&kept, first)).map(drop)
    }
}
