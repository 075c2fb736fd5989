//! Publication: records here and messages elsewhere, staged in one batch of the journal.

use super::{Room, Stage, append};
use crate::{
    Namespace,
    bindings::Bindings,
    definition::DEAD_LETTER_HISTORY,
    outbox::{NewMessage, Outgoing, topics::NewPublish},
};
use millrace_journal::{Appended, Log, Transaction};
use millrace_wire::{LogName, Result};
use std::sync::Arc;

/// Stages the records and messages of one batch, for a caller, a run or a delivery. It keeps track of the messages that the batch has added
/// to outboxes, which are not readable yet. Everything becomes visible with the batch, or nothing does.
pub struct Publish<'a> {
    namespace: &'a Namespace,
    bindings: Arc<Bindings>,
    outgoing: Outgoing,
}

impl<'a> Publish<'a> {
    /// Begins with the definitions that the batch meets.
    pub fn new(namespace: &'a Namespace, tx: &mut Transaction<'_>) -> Self {
        Self { namespace, bindings: namespace.bindings_of(tx), outgoing: Outgoing::default() }
    }

    /// The definitions that the batch meets.
    pub fn bindings(&self) -> &Bindings {
        &self.bindings
    }

    /// Stages a record and the runs that it triggers; nothing if it is refused.
    pub fn append(&self, tx: &mut Transaction<'_>, log: &Log, payload: &[u8], stage: Stage) -> Result<Appended> {
        append(tx, &self.bindings, log, payload, stage)
    }

    /// Stages a message to another namespace; nothing if there is no room for it.
    pub fn send(&mut self, tx: &mut Transaction<'_>, room: Room, letter: NewMessage<'_>) -> Result<Appended> {
        self.outgoing.append(self.namespace, tx, room, letter)
    }

    /// Stages a record that the host is to publish to a topic; nothing if there is no room for it.
    pub fn publish(&mut self, tx: &mut Transaction<'_>, room: Room, record: NewPublish<'_>) -> Result<Appended> {
        self.outgoing.publish(self.namespace, tx, room, record)
    }

    /// Stages a dead letter; its log is created if there is none.
    pub fn dead_letter(
        &self,
        tx: &mut Transaction<'_>,
        log: &LogName,
        letter: &[u8],
        stage: Stage,
    ) -> Result<(Log, Appended)> {
        let log = match tx.catalog().log(log).cloned() {
            Some(log) => log,
            None => tx.create_log(log, DEAD_LETTER_HISTORY)?,
        };
        let appended = append(tx, &self.bindings, &log, letter, stage)?;
        Ok((log, appended))
    }
}
