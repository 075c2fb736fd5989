//! The audit log `_audit`, bounded: issued and revoked capabilities, and refused requests.
//!
//! A line about capabilities is committed in the batch of its effect, where the effect is in the journal, and before it where it is a file.
//! Requests without a valid capability are only counted in metrics and written to the host's log: they must not fill a journal.

use millrace_journal::{Log, Transaction};
use millrace_namespace::{Namespace, Shows, Site, names};
use millrace_security::token::TokenId;
use millrace_wire::{Code, Durability, Hlc, Result};
use serde::{Deserialize, Serialize};

const LOG: &str = "_audit";
/// Lines that are kept.
pub const AUDIT_HISTORY: u64 = 10_000;
/// A process that works on the namespace's files.
pub const OWNER: &str = "owner";

/// The action that was executed or refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Act {
    /// A capability was issued.
    #[serde(rename = "cap.issue")]
    Issue,
    /// A chain was replaced by one block.
    #[serde(rename = "cap.squash")]
    Squash,
    /// An invitation was issued.
    #[serde(rename = "cap.invite")]
    Invite,
    /// An invitation was exchanged for a capability that lasts.
    #[serde(rename = "cap.redeem")]
    Redeem,
    /// Capabilities were revoked.
    #[serde(rename = "cap.revoke")]
    Revoke,
    /// There is a new key.
    #[serde(rename = "cap.rotate")]
    Rotate,
    /// A function's secret was set.
    #[serde(rename = "secret.set")]
    SecretSet,
    /// A function's secret was removed.
    #[serde(rename = "secret.rm")]
    SecretRemove,
    /// Functions were deployed from elsewhere, or removed by what was deployed.
    #[serde(rename = "function.deploy")]
    Deploy,
    /// Functions were removed from elsewhere.
    #[serde(rename = "function.rm")]
    FunctionRemove,
    /// A relay was added from elsewhere.
    #[serde(rename = "relay.add")]
    RelayAdd,
    /// A relay was removed from elsewhere.
    #[serde(rename = "relay.rm")]
    RelayRemove,
    /// The secret of the cluster was changed through this host.
    #[serde(rename = "cluster.secret")]
    ClusterSecret,
    /// A relay was given another address from elsewhere.
    #[serde(rename = "relay.set")]
    RelaySet,
    /// A peer was given another address from elsewhere.
    #[serde(rename = "outbox.set")]
    OutboxSet,
    /// A database was set from elsewhere.
    #[serde(rename = "database.set")]
    DatabaseSet,
    /// New firmware was sent to a device.
    #[serde(rename = "device.update")]
    DeviceUpdate,
    /// A caller with a capability was refused.
    #[serde(rename = "denied")]
    Denied,
}

impl Act {
    /// Its name, as it is in the log.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Issue => "cap.issue",
            Self::Squash => "cap.squash",
            Self::Invite => "cap.invite",
            Self::Redeem => "cap.redeem",
            Self::Revoke => "cap.revoke",
            Self::Rotate => "cap.rotate",
            Self::SecretSet => "secret.set",
            Self::SecretRemove => "secret.rm",
            Self::Deploy => "function.deploy",
            Self::FunctionRemove => "function.rm",
            Self::RelayAdd => "relay.add",
            Self::RelayRemove => "relay.rm",
            Self::ClusterSecret => "cluster.secret",
            Self::DeviceUpdate => "device.update",
            Self::RelaySet => "relay.set",
            Self::OutboxSet => "outbox.set",
            Self::DatabaseSet => "database.set",
            Self::Denied => "denied",
        }
    }
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audited {
    /// The event.
    pub act: Act,
    /// On whose behalf: `owner`, or the id of a capability with its subject.
    pub by: String,
    /// The ids of the capabilities that it is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<String>,
    /// Further details: a right and a resource, a generation of keys, the name of a secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// The code of a refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// How many times more the same happened since the line before about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again: Option<u64>,
}

impl Audited {
    /// An act of the owner's.
    pub fn by_owner(act: Act) -> Self {
        Self { act, by: OWNER.into(), ids: Vec::new(), about: None, code: None, again: None }
    }

    /// An action of a caller.
    pub fn by(act: Act, by: impl Into<String>) -> Self {
        Self { by: by.into(), ..Self::by_owner(act) }
    }

    /// The same about capabilities.
    #[must_use]
    pub fn of(self, ids: &[TokenId]) -> Self {
        Self { ids: ids.iter().map(TokenId::to_string).collect(), ..self }
    }

    /// The same about something else.
    #[must_use]
    pub fn about(self, about: impl Into<String>) -> Self {
        Self { about: Some(about.into()), ..self }
    }

    /// Writes the line in the batch of its effect.
    pub(crate) fn note(&self, tx: &mut Transaction<'_>) -> Result<()> {
        let line = serde_json::to_vec(self).expect("text and numbers always make JSON");
        names::note(tx, &names::internal(LOG), AUDIT_HISTORY, &line)
    }
}

/// Writes a line whose effect is not in the journal. It is on disk before the effect is.
pub fn audit(namespace: &Namespace, line: &Audited) -> Result<()> {
    let committed = namespace.journal().commit(|tx| line.note(tx))?;
    namespace.settle(Site::AppendBatch, Shows::Batch(committed.end), Some(Durability::Disk))
}

/// The newest lines, the oldest of them first, each with its number and time.
pub fn audited(namespace: &Namespace, newest: u64) -> Result<Vec<(u64, Hlc, Audited)>> {
    let catalog = namespace.journal().catalog()?;
    let Some(log) = catalog.log(LOG) else { return Ok(Vec::new()) };
    let latest = log.latest();
    let (mut lines, mut payload) = (Vec::new(), Vec::new());
    for seqno in log.earliest().max(1).max((latest + 1).saturating_sub(newest))..=latest {
        match line(namespace, log, seqno, &mut payload) {
            Ok(line) => lines.push(line),
            // It left the history meanwhile.
            Err(error) if error.code() == Code::BelowHistory => {}
            Err(error) => return Err(error),
        }
    }
    Ok(lines)
}

fn line(namespace: &Namespace, log: &Log, seqno: u64, payload: &mut Vec<u8>) -> Result<(u64, Hlc, Audited)> {
    let meta = namespace.journal().get(log, seqno, payload)?;
    let damaged = |error| Code::AuditDamaged.error(format!("record {seqno}: {error}"));
    Ok((seqno, meta.hlc, serde_json::from_slice(payload).map_err(damaged)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_journal::CreateOptions;

    #[test]
    fn the_log_keeps_what_was_done_and_no_more_than_its_bound() {
        let dir = tempfile::tempdir().unwrap();
        let options = CreateOptions { durability: Durability::Memory, ..CreateOptions::default() };
        let namespace = Namespace::create(&dir.path().join("ns"), &options).unwrap();
        assert!(audited(&namespace, 10).unwrap().is_empty());
        let line = Audited::by_owner(Act::SecretSet).about("api-key");
        audit(&namespace, &line).unwrap();
        let kept = audited(&namespace, 10).unwrap();
        assert_eq!(kept.iter().map(|(seqno, _, line)| (*seqno, line.clone())).collect::<Vec<_>>(), [(1, line.clone())]);
        let many = |tx: &mut Transaction<'_>| (0..250).try_for_each(|_| line.note(tx));
        for _ in 0..AUDIT_HISTORY / 250 {
            namespace.journal().commit(many).unwrap();
        }
        let kept = audited(&namespace, u64::MAX).unwrap();
        assert_eq!((kept.len() as u64, kept[0].0), (AUDIT_HISTORY, 2), "the first one left");
    }

    #[test]
    fn every_act_is_written_as_it_is_called() {
        let all = [
            Act::Issue,
            Act::Squash,
            Act::Invite,
            Act::Redeem,
            Act::Revoke,
            Act::Rotate,
            Act::SecretSet,
            Act::SecretRemove,
            Act::Deploy,
            Act::FunctionRemove,
            Act::RelayAdd,
            Act::RelayRemove,
            Act::ClusterSecret,
            Act::RelaySet,
            Act::OutboxSet,
            Act::DatabaseSet,
            Act::Denied,
        ];
        for act in all {
            assert_eq!(serde_json::to_string(&act).unwrap(), format!("\"{}\"", act.as_str()));
        }
    }
}
