//! The rights of a caller, and its idempotency keys, streams and rates.

use super::Access;
use crate::{
    Free, Gated, Namespace, Shows, Site,
    application::suggestion,
    audit::{Act, Audited, audit},
    secrets::{Authority, issued, now_s, random_id, revoke_as},
};
use millrace_documents::CapabilitiesDoc;
use millrace_journal::Log;
use millrace_namespace::keys::KEY_MAX_BYTES;
use millrace_security::token::{AuthorityId, Grant, Key, Keys, Rate, Rights, Rules, Token, TokenId};
use millrace_security::{
    check::{check, target},
    token::{Action, Kind, Now, Principal, Purpose, Rates, Resource, Right},
};
use millrace_wire::{Code, Defence, Error, Hex, NamespaceId, Result, protocol::Fence};
use sha2::{Digest, Sha256};
use std::{
    borrow::Cow,
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The maximum number of rates that are counted at once.
const BUCKETS_MAX: usize = 4096;
/// Hexadecimal digits of a principal's scope; bytes of the one of a key, which its owner may choose among many.
const SCOPE_BYTES: usize = 16;
/// The rights by which a log is seen in lists.
const SHOWS: [Right; 6] = [Right::Observe, Right::Read, Right::Append, Right::Create, Right::Delete, Right::Bind];

/// For the owner, which needs no key.
struct NoKeys;

impl Keys for NoKeys {
    fn key(&self, _: AuthorityId, _: u16) -> Option<&Key> {
        None
    }

    fn is_revoked(&self, _: TokenId) -> bool {
        false
    }

    fn epoch(&self) -> u64 {
        0
    }
}

/// Requests that may still be made, for each rate that a capability sets.
#[derive(Default)]
pub(super) struct Buckets {
    buckets: Mutex<HashMap<[u8; 32], (f64, Instant)>>,
}

impl Rates for Buckets {
    fn take(&self, bucket: &[u8; 32], rate: Rate) -> bool {
        let (now, burst) = (Instant::now(), f64::from(rate.burst));
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= BUCKETS_MAX && !buckets.contains_key(bucket) {
            // The least recently used bucket is full, or nearly.
            let oldest = buckets.iter().min_by_key(|(_, (_, at))| *at).map(|(name, _)| *name);
            oldest.and_then(|oldest| buckets.remove(&oldest));
        }
        let (left, at) = buckets.entry(*bucket).or_insert((burst, now));
        *left = (*left + now.saturating_duration_since(*at).as_secs_f64() * f64::from(rate.per_second)).min(burst);
        *at = now;
        if *left < 1.0 {
            return false;
        }
        *left -= 1.0;
        true
    }
}

/// Names that are compared with one that was not found, at most.
const NAMES_MAX: usize = 1000;
/// Topics whose names are compared with one that was not found, at most. Finding a topic takes longer than finding a log.
const TOPICS_MAX: usize = 200;
/// The longest name that is compared with others.
const NAME_MAX_BYTES: usize = 64;

/// The same error; if it says that there is no log or function of a name, with the name that was probably meant, among those that `sees`
/// permits to tell.
pub fn hinted(error: Error, namespace: &Namespace, sees: impl Fn(Kind, &str) -> bool) -> Error {
    let (kind, begins) = match error.code() {
        Code::LogNotFound => (Kind::Log, "no log '"),
        Code::FunctionNotFound => (Kind::Function, "no function '"),
        _ => return error,
    };
    let given = error.detail().strip_prefix(begins).and_then(|rest| rest.strip_suffix('\''));
    let (Some(given), Ok(catalog)) = (given, namespace.journal().catalog()) else { return error };
    // Longer names take long to compare.
    if given.len() > NAME_MAX_BYTES {
        return error;
    }
    let names: Vec<&str> = match kind {
        Kind::Log => {
            catalog.logs().map(|log| &**log.name()).filter(|name| !name.starts_with('_')).take(NAMES_MAX).collect()
        }
        _ => catalog.functions().map(|function| &**function.name()).take(NAMES_MAX).collect(),
    };
    let near = |name: &&str| name.len().abs_diff(given.len()) <= given.len() / 3 + 1 && sees(kind, name);
    let hint = suggestion(given, names.into_iter().filter(near));
    if hint.is_empty() { error } else { error.code().error(format!("{}{hint}", error.detail())) }
}

impl Access {
    /// The same error, with a hint that tells the caller no name that lists do not show it.
    pub(super) fn hinted(&self, error: Error) -> Error {
        hinted(error, self.namespace(), |kind, name| match kind {
            Kind::Log => self.sees(name),
            _ => self.caller.chain().is_none() || self.may(Right::Observe, Resource::function(name)),
        })
    }

    /// The same for a topic that is not found.
    #[must_use]
    pub fn hinted_topic(&self, error: Error) -> Error {
        let given = error.detail().strip_prefix("no topic '").and_then(|rest| rest.strip_suffix('\''));
        let (Code::TopicNotFound, Some(given), Some(cluster)) = (error.code(), given, self.served.cluster()) else {
            return error;
        };
        // Only those who may list topics are told of one.
        if given.len() > NAME_MAX_BYTES || !self.sees_all() {
            return error;
        }
        let topics = cluster.topics("", TOPICS_MAX);
        let hint = suggestion(given, topics.iter().map(|topic| &*topic.topic));
        if hint.is_empty() { error } else { error.code().error(format!("{}{hint}", error.detail())) }
    }

    /// Whether lists show the caller the namespace as a whole.
    pub fn sees_all(&self) -> bool {
        self.may(Right::Observe, Resource::NAMESPACE)
    }

    /// Whether the caller may see the namespace as a whole.
    pub fn observes(&self) -> Result<()> {
        self.check(Right::Observe, Resource::NAMESPACE)
    }

    /// Exchanges an invitation, which permits only this and only once, for a lasting capability with the same grants. If the client
    /// presented a key over TLS, the capability is bound to that key.
    pub fn redeem(&self) -> Gated<Token> {
        let redeem = || {
            self.check_action(&Action { purpose: Purpose::Redeem, ..Action::new(Right::Grant, Resource::NAMESPACE) })?;
            let refused = || Code::CapabilityRefused.error("the invitation is not valid here, or was used before");
            let chain = self.caller.chain().ok_or_else(refused)?;
            // Only the invitation itself can be redeemed, not a capability derived from it.
            let ([part], []) = (&*chain.parts, &*chain.after) else { return Err(refused()) };
            let ([link], Some(authority)) = (&*part.blocks, Authority::load(self.namespace().dir())?) else {
                return Err(refused());
            };
            let (Some(used), true) = (link.rules.ids.last(), authority.id() == part.authority) else {
                return Err(refused());
            };
            let lasting = link.rules.ids.iter().copied().filter(|id| id != used);
            let ids: Vec<TokenId> = lasting.chain([TokenId(random_id()?)]).collect();
            let line = Audited { by: self.caller.principal().to_string(), ..Audited::by_owner(Act::Redeem).of(&ids) };
            // If two clients redeem it at once, one of them finds it revoked.
            if revoke_as(self.namespace(), &[*used], link.rules.not_after, line)? == 0 {
                return Err(refused());
            }
            let keys = self.caller.peer().key.into_iter().collect();
            authority.issue(&Rules { once: false, not_after: None, not_before: None, keys, ids, ..link.rules.clone() })
        };
        self.free(redeem(), Free::Capability)
    }

    /// An error unless the caller is the user who runs the host, who needs no capability.
    pub fn is_owner(&self) -> Result<()> {
        match self.caller.chain() {
            None => Ok(()),
            Some(_) => {
                let detail = "only the user who runs the host issues capabilities; others derive them from their own";
                Err(Code::CapabilityDenied.error(detail))
            }
        }
    }

    /// The capabilities that were issued.
    pub fn capabilities(&self) -> Gated<CapabilitiesDoc> {
        self.inspect_with(Right::Grant, Resource::NAMESPACE, issued)
    }

    /// Issues a capability: only for the owner, because one that a holder issued would outlive the holder's own.
    pub fn issue(&self, rules: &Rules) -> Gated<Token> {
        let issue = || {
            self.is_owner()?;
            let token = Authority::ensure(self.namespace().dir())?.issue(rules)?;
            let label = rules.label.as_deref().map(String::from_utf8_lossy);
            let line = Audited::by_owner(Act::Issue).of(&rules.ids);
            audit(self.namespace(), &label.map_or(line.clone(), |label| line.about(label)))?;
            Ok(token)
        };
        self.free(issue(), Free::Capability)
    }

    /// Revokes capabilities by their ids; returns how many were not revoked before.
    pub fn revoke_capabilities(&self, ids: &[TokenId]) -> Gated<usize> {
        let revoke = || {
            self.check(Right::Grant, Resource::NAMESPACE)?;
            let line = Audited::by(Act::Revoke, self.caller.principal().to_string()).of(ids);
            let new = revoke_as(self.namespace(), ids, None, line)?;
            let shown = Shows::Report(self.namespace().journal().tail());
            Ok(self.served.gate().hold(Site::Inspect, new, shown, None))
        };
        self.out(revoke(), None)
    }

    /// Issues a capability with all rights that ends after this time, to a page of the owner's.
    pub fn issue_session(&self, time: Duration) -> Gated<Token> {
        let end = u32::try_from(time.as_secs()).ok().and_then(|seconds| now_s().checked_add(seconds));
        let rules = || {
            Ok(Rules {
                grants: vec![Grant::namespace(Rights::ALL)],
                not_after: Some(end.unwrap_or(u32::MAX)),
                ids: vec![TokenId(random_id()?)],
                label: Some(b"dashboard"[..].into()),
                ..Rules::default()
            })
        };
        match rules() {
            Ok(rules) => self.issue(&rules),
            Err(error) => self.refuse(error, None),
        }
    }

    /// Whether the caller has this right.
    pub(super) fn check(&self, right: Right, on: Resource<'_>) -> Result<()> {
        self.check_action(&Action::new(right, on))
    }

    pub(super) fn check_action(&self, action: &Action<'_>) -> Result<()> {
        // The right is checked before the log is looked up: a caller without it gets the same answer for any name.
        if !Defence::Existence.stands() && action.on.kind == Kind::Log {
            self.namespace().log(action.on.name)?;
        }
        self.noted(action, self.permits(action, &self.served.inner.rates, false))
    }

    /// Whether the caller is a host of the cluster, and may do what only such hosts may.
    pub(super) fn check_peer(&self) -> Result<()> {
        let action = Action::new(Right::Link, Resource::NAMESPACE);
        self.noted(&action, self.permits(&action, &self.served.inner.rates, true))
    }

    /// The one check. A holder of the cluster's secret can issue any capability, so such capabilities permit only the operations of hosts
    /// of the cluster.
    fn permits(&self, action: &Action<'_>, rates: &dyn Rates, as_peer: bool) -> Result<()> {
        let Some(chain) = self.caller.chain() else {
            return check(&self.caller, &NoKeys, action, Now::unknown(), rates);
        };
        let keys = self.served.inner.keys.current()?;
        if chain.parts.iter().any(|part| keys.is_of_cluster(part.authority)) != as_peer {
            return Err(Code::CapabilityDenied.error("the secret of a cluster permits only messages between its hosts"));
        }
        check(&self.caller, &*keys, action, Now::at(now_s()), rates)
    }

    fn noted(&self, action: &Action<'_>, checked: Result<()>) -> Result<()> {
        checked.inspect_err(|error| {
            if self.caller.chain().is_some() && matches!(error.code(), Code::CapabilityDenied | Code::CapabilityRefused)
            {
                self.served.inner.denials.note(self.caller.principal(), action, error.code());
            }
        })
    }

    /// Whether the caller may append a record of this size and run this function on it.
    pub(crate) fn check_append(&self, log: &str, bytes: usize, function: Option<&str>) -> Result<()> {
        self.check_action(&Action { bytes, ..Action::new(Right::Append, target(log)) })?;
        function.map_or(Ok(()), |function| self.check(Right::Run, Resource::function(function)))
    }

    /// Whether the caller may deliver a record of this size from this namespace.
    pub(super) fn check_delivery(&self, log: &str, bytes: usize, source: Option<NamespaceId>) -> Result<()> {
        let purpose = source.map_or(Purpose::Request, Purpose::Delivery);
        // A log of the runtime is refused when the stream is opened or the record is accepted, so that the sender gets the same error as for other logs.
        if self.caller.chain().is_none() {
            return Ok(());
        }
        self.check_action(&Action { bytes, purpose, ..Action::new(Right::Append, Resource::log(log)) })
    }

    /// Whether lists show the caller this log: with a right on the namespace, or any on the log.
    pub fn sees(&self, log: &str) -> bool {
        self.caller.chain().is_none()
            || self.may(Right::Observe, Resource::NAMESPACE)
            || SHOWS.into_iter().any(|right| self.may(right, Resource::log(log)))
    }

    /// Whether the caller may read a log of this name, whether there is one or not.
    pub fn may_read(&self, log: &str) -> bool {
        self.may(Right::Read, Resource::log(log))
    }

    /// The logs that the caller may read and that `wanted` chooses by their names; the caller reads them through the gate.
    pub fn logs_that(&self, wanted: impl Fn(&str) -> bool) -> Vec<Log> {
        let Ok(catalog) = self.namespace().journal().catalog() else { return Vec::new() };
        let found = catalog.logs().filter(|log| wanted(log.name()) && self.may_read(log.name()));
        found.cloned().collect()
    }

    /// Whether lists show the caller anything: the namespace, or one of its logs.
    pub fn sees_some(&self) -> bool {
        let of_logs = || self.namespace().logs().is_ok_and(|logs| logs.iter().any(|log| self.sees(&log.name)));
        self.sees_all() || of_logs()
    }

    /// Whether the caller may do everything in the namespace.
    pub fn administers(&self) -> bool {
        self.may(Right::Admin, Resource::NAMESPACE)
    }

    /// Whose deployments wait for each other: those of one capability do, unless it permits to administer the namespace.
    pub fn deployer(&self) -> Option<TokenId> {
        match self.caller.principal() {
            Principal::Holder { id, .. } if !self.administers() => Some(*id),
            _ => None,
        }
    }

    /// Whether the caller has this right now. No rate counts it.
    pub(crate) fn may(&self, right: Right, on: Resource<'_>) -> bool {
        self.may_do(&Action::new(right, on))
    }

    /// Whether the caller may do this now. No rate counts it.
    pub(super) fn may_do(&self, action: &Action<'_>) -> bool {
        struct Uncounted;
        impl Rates for Uncounted {
            fn take(&self, _: &[u8; 32], _: Rate) -> bool {
                true
            }
        }
        self.permits(action, &Uncounted, false).is_ok()
    }

    /// The prefix of the caller's own names; empty for the owner.
    pub(super) fn own_prefix(&self) -> Option<String> {
        match self.caller.principal() {
            Principal::Owner => None,
            principal @ Principal::Holder { .. } => {
                let digest = Sha256::digest(principal.to_string());
                Some(format!("cap-{}", Hex(&digest[..SCOPE_BYTES / 2])))
            }
        }
    }

    /// The prefix of the caller's own streams, so that no caller reaches the streams of another; and the prefix that they may have had
    /// before. A caller that has shown a key over TLS is known by this key: its capability may be replaced by one with another name.
    pub(super) fn own_streams(&self) -> (Option<String>, Option<String>) {
        if !Defence::OwnStreams.stands() {
            return (None, None);
        }
        let of_principal = self.own_prefix();
        match (of_principal, self.caller.peer().key) {
            (Some(of_principal), Some(key)) => {
                let digest = Sha256::digest(key);
                (Some(format!("key-{}", Hex(&digest[..SCOPE_BYTES]))), Some(of_principal))
            }
            (of_principal, _) => (of_principal, None),
        }
    }

    /// Checks that the caller may use the name of a fence: of a holder, that it may acquire the lock of this name. Otherwise any holder that
    /// may append could have the owners of all locks refused.
    pub(super) fn check_fence(&self, fence: Option<Fence<'_>>) -> Result<()> {
        let Some(fence) = fence.filter(|_| self.caller.chain().is_some()) else { return Ok(()) };
        fence.check()?;
        self.check(Right::Call, Resource::object(&format!("Lock/{}", fence.name)))
    }

    /// The idempotency key as it is stored, so that no caller reaches the keys of another principal.
    pub(super) fn own_key<'k>(&self, key: Option<&'k str>) -> Result<Option<Cow<'k, str>>> {
        let Some(key) = key else { return Ok(None) };
        let Principal::Holder { id, subject } = self.caller.principal() else { return Ok(Some(Cow::Borrowed(key))) };
        if !Defence::OwnKeys.stands() {
            return Ok(Some(Cow::Borrowed(key)));
        }
        if key.is_empty() || key.len() > KEY_MAX_BYTES {
            return Err(Code::KeyInvalid.error(format!("an idempotency key of {} bytes", key.len())));
        }
        let mut digest = Sha256::new();
        digest.update(id.0);
        let subject = subject.as_deref().unwrap_or_default();
        digest.update([subject.len() as u8]); // at most 16
        digest.update(subject);
        digest.update(key);
        Ok(Some(Cow::Owned(format!("cap:{}", Hex(&digest.finalize())))))
    }
}
