//! What a capability is issued for: rights on resources, as people write them; and which were issued.

use super::{Revoked, now_s, random_id, revoked};
use crate::audit::{AUDIT_HISTORY, Act, audited};
use millrace_documents::{CapabilitiesDoc, CapabilityDoc, rfc3339};
use millrace_namespace::Namespace;
use millrace_security::token::{Grant, Kind, Right, Rights, Rules, TokenId};
use millrace_wire::{Code, Error, LogName, Name, Result};
use serde::Deserialize;

/// The longest label.
const LABEL_MAX_BYTES: usize = 256;
/// Most ids that are revoked at once.
const IDS_MAX: usize = 256;

/// A request about capabilities.
#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum CapabilityAsk {
    /// To issue one.
    Issue {
        /// What it permits.
        allow: Vec<Allow>,
        /// After how many seconds it ends; never, without it.
        expires_s: Option<u32>,
        /// What people call it.
        #[serde(default)]
        label: String,
    },
    /// To revoke some.
    Revoke {
        /// Their ids.
        ids: Vec<String>,
    },
}

/// Rights on a resource.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Allow {
    rights: Vec<String>,
    on: String,
}

impl CapabilityAsk {
    /// The rules of the capability to be issued.
    pub fn rules(allow: &[Allow], expires_s: Option<u32>, label: &str) -> Result<Rules> {
        let one = |allow: &Allow| {
            let rights = allow.rights.iter().map(|right| right.parse::<Right>()).collect::<Result<Rights>>()?;
            grant(rights, &allow.on)
        };
        let grants = unite(allow.iter().map(one).collect::<Result<_>>()?);
        if grants.is_empty() {
            return Err(invalid("the capability would permit nothing".into()));
        }
        if label.len() > LABEL_MAX_BYTES {
            return Err(invalid(format!("the label has {} bytes; the limit is {LABEL_MAX_BYTES}", label.len())));
        }
        let end = expires_s.map(|seconds| match seconds {
            0 => Err(invalid("the capability would expire at once".into())),
            seconds => now_s().checked_add(seconds).ok_or_else(|| invalid("it would expire after 2106".into())),
        });
        let label = Some(label).filter(|label| !label.is_empty()).map(|label| label.as_bytes().into());
        Ok(Rules { grants, not_after: end.transpose()?, ids: vec![TokenId(random_id()?)], label, ..Rules::default() })
    }

    /// The ids to be revoked.
    pub fn ids(ids: &[String]) -> Result<Vec<TokenId>> {
        if ids.is_empty() || ids.len() > IDS_MAX {
            return Err(invalid(format!("{} ids; from 1 to {IDS_MAX} can be revoked at once", ids.len())));
        }
        ids.iter().map(|id| id.parse()).collect()
    }
}

/// The capabilities that the audit log has, the newest first.
pub fn issued(namespace: &Namespace) -> Result<CapabilitiesDoc> {
    let ended: Revoked = revoked(namespace)?;
    let is_revoked = |id: &String| id.parse::<TokenId>().is_ok_and(|id| ended.contains_key(&id));
    let lines = audited(namespace, AUDIT_HISTORY)?.into_iter().rev();
    let issued = lines.filter(|(.., line)| matches!(line.act, Act::Issue | Act::Squash | Act::Invite | Act::Redeem));
    let doc = |(_, at, line): (u64, _, crate::audit::Audited)| CapabilityDoc {
        revoked: line.ids.iter().any(is_revoked),
        act: line.act.as_str().into(),
        at: rfc3339(at),
        by: line.by,
        about: line.about,
        ids: line.ids,
    };
    Ok(CapabilitiesDoc { capabilities: issued.map(doc).collect() })
}

fn invalid(detail: String) -> Error {
    Code::CapabilityRuleInvalid.error(detail)
}

/// Rights on one resource, which is written `NAME`, `KIND:NAME` or `namespace`, with a trailing `/` for a subtree.
pub fn grant(rights: Rights, on: &str) -> Result<Grant> {
    if on == Kind::Namespace.name() {
        return Ok(Grant::namespace(rights));
    }
    let (kind, path) = match on.split_once(':') {
        None => (Kind::Log, on),
        Some((kind, path)) => {
            let known =
                Kind::ALL.into_iter().filter(|kind| *kind != Kind::Namespace).find(|known| known.name() == kind);
            let unknown = || invalid(format!("'{}' is not a kind of resource", kind.escape_debug()));
            (known.ok_or_else(unknown)?, path)
        }
    };
    let (name, subtree) = path.strip_suffix('/').map_or((path, false), |name| (name, true));
    if kind == Kind::Log && !name.is_empty() {
        if LogName::is_internal(name) {
            return Err(invalid(format!("log '{name}' belongs to the runtime; only a right on `namespace` covers it")));
        }
        name.parse::<LogName>()?;
    }
    if kind == Kind::Function && !name.is_empty() {
        name.parse::<Name>()?;
    }
    let grant = Grant { kind, name: name.as_bytes().into(), subtree, rights };
    grant.fault().map_or(Ok(()), |fault| Err(invalid(format!("'{}': {fault}", on.escape_debug()))))?;
    Ok(grant)
}

/// Merges grants on the same resource.
pub fn unite(grants: Vec<Grant>) -> Vec<Grant> {
    let mut united: Vec<Grant> = Vec::new();
    for grant in grants {
        let same =
            |known: &&mut Grant| (known.kind, &known.name, known.subtree) == (grant.kind, &grant.name, grant.subtree);
        match united.iter_mut().find(same) {
            Some(known) => known.rights = known.rights.or(grant.rights),
            None => united.push(grant),
        }
    }
    united
}
