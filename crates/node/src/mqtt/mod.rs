//! What a namespace keeps for clients of MQTT. The rules for topics are here, in the log `_mqtt/rules`: each of its records has all of
//! them, and the newest counts.

mod sessions;
mod users;

pub use millrace_mqtt::Allowed;
pub use sessions::MqttRow;
pub use users::{add_mqtt_user, mqtt_users, remove_mqtt_user};

use crate::{Namespace, Served};
use millrace_mqtt::{Rule, Rules};
use millrace_namespace::{Shows, Site, names};
use millrace_wire::{Code, Result};
use serde::{Deserialize, Serialize};

const LOG: &str = "_mqtt/rules";
/// Versions that are kept.
const HISTORY: u64 = 16;

#[derive(Serialize, Deserialize)]
struct RuleRecord {
    filter: String,
    log: String,
    #[serde(default)]
    retain: bool,
}

/// The number of their newest version, 0 if there never were any.
fn version(namespace: &Namespace) -> Result<u64> {
    Ok(namespace.journal().catalog()?.log(LOG).map_or(0, |log| log.latest()))
}

/// The rules of a namespace.
pub fn rules(namespace: &Namespace) -> Result<Vec<Rule>> {
    let catalog = namespace.journal().catalog()?;
    let Some(log) = catalog.log(LOG).filter(|log| log.latest() > 0) else { return Ok(Vec::new()) };
    let mut payload = Vec::new();
    namespace.journal().get(log, log.latest(), &mut payload)?;
    let read = |error: serde_json::Error| Code::MqttRuleInvalid.error(format!("the log {LOG}: {error}"));
    let records: Vec<RuleRecord> = serde_json::from_slice(&payload).map_err(read)?;
    Ok(records.into_iter().map(|RuleRecord { filter, log, retain }| Rule { filter, log, retain }).collect())
}

/// Replaces the rules; whether they were different.
pub(crate) fn set_rules(namespace: &Namespace, new: &[Rule]) -> Result<bool> {
    Rules::new(new)?;
    if rules(namespace)? == new {
        return Ok(false);
    }
    let record =
        |Rule { filter, log, retain }: &Rule| RuleRecord { filter: filter.clone(), log: log.clone(), retain: *retain };
    let line = serde_json::to_vec(&new.iter().map(record).collect::<Vec<_>>()).expect("text always makes JSON");
    let committed = namespace.journal().commit(|tx| names::note(tx, &names::internal(LOG), HISTORY, &line))?;
    namespace.settle(Site::AppendBatch, Shows::Batch(committed.end), None)?;
    Ok(true)
}

impl Served {
    /// The rules for topics of MQTT and their version, if it is not `seen`.
    pub fn mqtt_rules(&self, seen: u64) -> Result<Option<(u64, Rules)>> {
        let namespace = self.namespace();
        let version = version(namespace)?;
        if version == seen {
            return Ok(None);
        }
        Ok(Some((version, Rules::new(&rules(namespace)?)?)))
    }
}
