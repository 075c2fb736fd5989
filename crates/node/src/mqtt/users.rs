//! Users of MQTT, for clients that cannot show a capability: the table `_mqtt/users` has a hash of the password of each.

use crate::{
    Access, Act, Audited, Gated, Namespace, Served, audit,
    secrets::{random_id, revoke},
};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use millrace_mqtt::Allowed;
use millrace_namespace::{now_us, tables::When};
use millrace_security::token::{Token, TokenId};
use millrace_wire::{
    Code, Name, Result,
    table::{Condition, TableRequest},
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

const TABLE: &str = "_mqtt/users";
/// Users of one namespace.
const USERS_MAX: usize = 10_000;

#[derive(Serialize, Deserialize)]
struct UserRow {
    /// By which it is revoked.
    id: String,
    salt: String,
    hash: String,
    #[serde(flatten)]
    allowed: Allowed,
}

fn read(value: &[u8]) -> Result<UserRow> {
    serde_json::from_slice(value).map_err(|error| Code::MqttRuleInvalid.error(format!("the table {TABLE}: {error}")))
}

fn hash(salt: &str, password: &[u8]) -> String {
    let digest = Sha256::new().chain_update(salt).chain_update([0]).chain_update(password).finalize();
    BASE64_URL_SAFE_NO_PAD.encode(digest)
}

fn row_of(namespace: &Namespace, name: &str) -> Result<Option<UserRow>> {
    let catalog = namespace.journal().catalog()?;
    let Some(log) = catalog.log(TABLE).filter(|_| !name.is_empty() && name.len() <= 255) else { return Ok(None) };
    let get = TableRequest::Get { key: name.as_bytes() };
    let (answer, _) = namespace.read_table(log, &get, When { upto: None, now_us: now_us() })?;
    answer.entries.first().and_then(|entry| entry.value.as_deref()).map(read).transpose()
}

/// Adds a user: its password, of 128 random bits.
pub fn add_mqtt_user(namespace: &Namespace, name: &Name, allowed: Allowed) -> Result<String> {
    allowed.check()?;
    if row_of(namespace, name)?.is_some() {
        let detail = format!("there is an MQTT user '{name}'");
        return Err(Code::MqttUserExists.error(detail));
    }
    if mqtt_users(namespace)?.len() >= USERS_MAX {
        return Err(Code::MqttLimit.error(format!("{USERS_MAX} users; this is the limit")));
    }
    let password = BASE64_URL_SAFE_NO_PAD.encode([random_id()?, random_id()?].concat());
    let (id, salt) = (TokenId(random_id()?), BASE64_URL_SAFE_NO_PAD.encode(random_id()?));
    let row = UserRow { id: id.to_string(), hash: hash(&salt, password.as_bytes()), salt, allowed };
    let value = serde_json::to_vec(&row).expect("text always makes JSON");
    audit(namespace, &Audited::by_owner(Act::Issue).of(&[id]).about(format!("MQTT user {name}")))?;
    let put = TableRequest::Put { key: name.as_bytes(), value: &value, condition: Condition::Absent, ttl_ms: 0 };
    namespace.change_internal_table_gated(TABLE, &[put], None)?.wait()?;
    Ok(password)
}

/// The users and what they may do, by name.
pub fn mqtt_users(namespace: &Namespace) -> Result<Vec<(String, Allowed)>> {
    let rows = namespace.internal_table(TABLE)?.into_iter();
    rows.map(|(key, value)| Ok((String::from_utf8_lossy(&key).into_owned(), read(&value)?.allowed))).collect()
}

/// Removes a user, whose connections may do nothing from now on; false if there is none.
pub fn remove_mqtt_user(namespace: &Namespace, name: &Name) -> Result<bool> {
    let Some(row) = row_of(namespace, name)? else { return Ok(false) };
    revoke(namespace, &[row.id.parse()?], None)?;
    let delete = TableRequest::Delete { key: name.as_bytes(), condition: Condition::Always };
    namespace.change_internal_table_gated(TABLE, &[delete], None)?.wait()?;
    Ok(true)
}

impl Served {
    /// What the user of this name and password may do, and a capability for it that ends with this host. None if there is no such user.
    pub fn mqtt_user(&self, name: &str, password: &[u8]) -> Result<Option<(Allowed, Token)>> {
        let Some(row) = row_of(self.namespace(), name)?.filter(|row| row.hash == hash(&row.salt, password)) else {
            return Ok(None);
        };
        Ok(Some((row.allowed, self.keys().of_mqtt_user(row.id.parse()?, name)?)))
    }

    /// Whether there are users.
    pub fn has_mqtt_users(&self) -> Result<bool> {
        Ok(!mqtt_users(self.namespace())?.is_empty())
    }

    /// Whether users can be found without reading a long part of the journal first.
    pub fn has_mqtt_users_at_hand(&self) -> bool {
        let namespace = self.namespace();
        let catalog = namespace.journal().catalog();
        catalog.is_ok_and(|catalog| catalog.log(TABLE).is_none_or(|log| namespace.tables().is_at_hand(log)))
    }
}

impl Access {
    /// Reads the users, so that they are at hand.
    pub fn read_mqtt_users(&self) -> Gated<()> {
        self.inspect(|namespace| row_of(namespace, "-").map(drop))
    }
}
