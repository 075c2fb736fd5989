//! The sessions of MQTT clients, in the table `_mqtt/sessions`: the gateway says what its keys and values are.

use crate::{Access, AppendOptions, Gated, Log, Receipt, Served};
use millrace_namespace::Note;
use millrace_security::token::{Caller, Keys, Peer, Resource, Right, TokenId, Way};
use millrace_wire::{
    Result,
    table::{Condition, TableRequest},
};
use std::sync::Arc;

const TABLE: &str = "_mqtt/sessions";

/// A key of the table and its new value; none if the key goes.
pub type MqttRow = (Vec<u8>, Option<Vec<u8>>);

impl Served {
    /// Whether sessions were ever saved.
    pub fn has_mqtt_sessions(&self) -> Result<bool> {
        Ok(self.namespace().journal().catalog()?.log(TABLE).is_some_and(|log| log.latest() > 0))
    }

    /// Those of these logs that are there, by their ids.
    pub fn logs_by_id(&self, ids: impl Iterator<Item = u32>) -> Result<Vec<Log>> {
        let catalog = self.namespace().journal().catalog()?;
        Ok(ids.filter_map(|id| catalog.log_by_id(id).cloned()).collect())
    }

    /// The access of the host itself, which keeps sessions for clients that are gone.
    pub fn own_access(&self) -> Access {
        self.access(&Arc::new(Caller::owner(Peer { way: Way::Unix, address: None, key: None })))
    }

    /// Whether a principal, as it is shown, may still act: the owner may, and a holder whose capability is not revoked.
    pub fn stands(&self, principal: &str) -> bool {
        let id = principal.split('/').next().unwrap_or_default();
        id == crate::audit::OWNER
            || id.parse::<TokenId>().is_ok_and(|id| self.keys().current().is_ok_and(|keys| !keys.is_revoked(id)))
    }
}

impl Access {
    /// What was saved.
    pub fn mqtt_sessions(&self) -> Gated<Vec<(Vec<u8>, Vec<u8>)>> {
        self.inspect(|namespace| namespace.internal_table(TABLE))
    }

    /// Saves rows; without any, it waits for those that were saved before.
    pub fn save_mqtt_sessions(&self, rows: &[MqttRow]) -> Gated<()> {
        fn change<'r>((key, value): &'r MqttRow) -> TableRequest<'r> {
            match value {
                Some(value) => TableRequest::Put { key, value, condition: Condition::Always, ttl_ms: 0 },
                None => TableRequest::Delete { key, condition: Condition::Always },
            }
        }
        let changes: Vec<TableRequest<'_>> = rows.iter().map(change).collect();
        self.out(self.namespace().change_internal_table_gated(TABLE, &changes, None), None)
    }

    /// [`Access::append`], once for each key: it is noted in the batch of the record. None if it was noted before.
    pub fn append_once(
        &self,
        log: &str,
        data: &[u8],
        key: &[u8],
        options: AppendOptions<'_>,
    ) -> Gated<Option<Receipt>> {
        self.append_noted(log, data, Note::Once(key), options)
    }

    /// [`Access::append`] in place of a row, which goes in the batch of the record. None if there is no such row.
    pub fn append_taking(
        &self,
        log: &str,
        data: &[u8],
        key: &[u8],
        options: AppendOptions<'_>,
    ) -> Gated<Option<Receipt>> {
        self.append_noted(log, data, Note::Takes(key), options)
    }

    fn append_noted(
        &self,
        log: &str,
        data: &[u8],
        note: Note<'_>,
        options: AppendOptions<'_>,
    ) -> Gated<Option<Receipt>> {
        let append = || {
            self.check_append(log, data.len(), None)?;
            self.namespace().append_noted_gated(log, data, options, (TABLE, note))
        };
        self.out(append(), options.durability)
    }

    /// Whether the caller may append to a log of this name, whether there is one or not.
    pub fn may_append(&self, log: &str) -> bool {
        self.may(Right::Append, Resource::log(log))
    }
}
