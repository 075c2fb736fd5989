//! The keys and revocations for verifying capabilities: as of one moment, or the current ones.

use super::{
    authority::{Authority, random, random_id},
    cluster::ClusterSecret,
    revoked::{Revoked, revoked, version},
};
use millrace_namespace::Namespace;
use millrace_security::token::{AuthorityId, Grant, Key, Keys, Net, Right, Rights, Rules, Token, TokenId, Way, Ways};
use millrace_wire::Result;
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::{Arc, Mutex, PoisonError},
};

/// The generation of a host's own key.
const OWN: u16 = 1;

/// The keys and revocations that capabilities are verified with, as of now; `None` if the namespace never issued one.
pub fn capability_keys(namespace: &Namespace) -> Result<Option<NamespaceKeys>> {
    let Some(authority) = Authority::load(namespace.dir())? else { return Ok(None) };
    Ok(Some(NamespaceKeys {
        authority: Some(authority),
        revoked: revoked(namespace)?,
        epoch: 0,
        own: None,
        cluster: None,
    }))
}

/// The keys of a namespace, and what was revoked, as of one moment.
pub struct NamespaceKeys {
    authority: Option<Authority>,
    revoked: Revoked,
    epoch: u64,
    own: Option<Arc<Own>>,
    cluster: Option<Arc<ClusterSecret>>,
}

impl NamespaceKeys {
    /// The authority whose keys these are, if the namespace has one.
    pub fn authority(&self) -> Option<&Authority> {
        self.authority.as_ref()
    }

    /// Whether this is the authority of the hosts of the namespace's cluster.
    pub fn is_of_cluster(&self, authority: AuthorityId) -> bool {
        self.cluster.as_deref().is_some_and(|cluster| cluster.id() == authority)
    }
}

impl Keys for NamespaceKeys {
    fn key(&self, authority: AuthorityId, generation: u16) -> Option<&Key> {
        if let Some(own) = self.own.as_deref().filter(|own| own.id == authority) {
            return Some(&own.key).filter(|_| generation == OWN);
        }
        if let Some(cluster) = self.cluster.as_deref().filter(|cluster| cluster.id() == authority) {
            return cluster.key(generation);
        }
        self.authority.as_ref().filter(|own| own.id() == authority)?.key(generation)
    }

    fn is_revoked(&self, id: TokenId) -> bool {
        self.revoked.contains_key(&id)
    }

    fn epoch(&self) -> u64 {
        self.epoch
    }
}

/// An authority of a running host, which ends with it.
struct Own {
    id: AuthorityId,
    key: Key,
}

/// The keys of a namespace that a host serves, as they are now.
pub struct LiveKeys {
    namespace: Namespace,
    own: Arc<Own>,
    read: Mutex<Read>,
}

struct Read {
    /// The keys, once they were read.
    keys: Option<Arc<NamespaceKeys>>,
    version: u64,
    epoch: u64,
    cluster: Option<Arc<ClusterSecret>>,
}

impl LiveKeys {
    /// The keys of this namespace. Except for the cluster's, nothing is read before a client presents a capability.
    pub fn new(namespace: Namespace) -> Result<Self> {
        let own = Arc::new(Own { id: AuthorityId(random_id()?), key: Key::new(&*random()?) });
        let cluster = ClusterSecret::load(namespace.dir())?.map(Arc::new);
        Ok(Self { namespace, own, read: Mutex::new(Read { keys: None, version: 0, epoch: 0, cluster }) })
    }

    /// The keys as they are now: read again after a rotation or a revocation, and until the namespace has an authority.
    ///
    /// # Errors
    ///
    /// The keys cannot be read. The earlier keys must not be used instead.
    pub fn current(&self) -> Result<Arc<NamespaceKeys>> {
        let version = version(&self.namespace)?;
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let known = read.keys.clone().filter(|_| read.version == version);
        // The first capability that is issued creates the authority, and no record says so.
        let authority = match known {
            Some(keys) if keys.authority.is_some() => return Ok(keys),
            Some(keys) => match Authority::load(self.namespace.dir())? {
                None => return Ok(keys),
                new => new,
            },
            None => Authority::load(self.namespace.dir())?,
        };
        let keys = NamespaceKeys {
            authority,
            revoked: revoked(&self.namespace)?,
            epoch: read.epoch + 1,
            own: Some(self.own.clone()),
            cluster: read.cluster.clone(),
        };
        let keys = Arc::new(keys);
        (read.keys, read.version, read.epoch) = (Some(keys.clone()), version, keys.epoch);
        Ok(keys)
    }

    /// A token that makes its holder the owner, over connections from this machine, for as long as this host runs.
    pub fn of_machine(&self) -> Result<Token> {
        let local = [(IpAddr::from(Ipv4Addr::LOCALHOST), 8), (IpAddr::from(Ipv6Addr::LOCALHOST), 128)];
        let rules = Rules {
            grants: vec![Grant::namespace(Rights::ALL)],
            ways: Ways::from_bits(Way::Channel as u8 | Way::HttpBearer as u8),
            nets: local.into_iter().filter_map(|(address, bits)| Net::new(address, bits)).collect(),
            ids: vec![TokenId(random_id()?)],
            ..Rules::default()
        };
        Token::issue(&self.own.key, self.own.id, OWN, &rules)
    }

    /// A capability for a user of MQTT, for as long as this host runs. It is derived, since one that is not makes the owner.
    pub fn of_mqtt_user(&self, id: TokenId, name: &str) -> Result<Token> {
        let rights = [Right::Read, Right::Append, Right::Create].into_iter().collect();
        let rules = Rules { grants: vec![Grant::namespace(rights)], ids: vec![id], ..Rules::default() };
        let subject = Some(name.as_bytes().into());
        Token::issue(&self.own.key, self.own.id, OWN, &rules)?.attenuate(&Rules { subject, ..Rules::default() })
    }

    /// The secret of the cluster that the namespace belongs to.
    pub fn cluster(&self) -> Option<Arc<ClusterSecret>> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner).cluster.clone()
    }

    /// From now on the hosts of this cluster are known.
    pub fn set_cluster(&self, secret: Arc<ClusterSecret>) {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        (read.cluster, read.keys) = (Some(secret), None);
    }

    /// Keeps another secret of the cluster, and uses it from now on.
    pub fn change_cluster(&self, secret: Arc<ClusterSecret>) -> Result<()> {
        secret.keep(self.namespace.dir())?;
        self.set_cluster(secret);
        Ok(())
    }

    /// Whether this is the host's own authority, which issues nothing but the token of this machine.
    pub fn is_own(&self, authority: AuthorityId) -> bool {
        authority == self.own.id
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::{revoke, rotated};
    use millrace_journal::CreateOptions;
    use millrace_security::token::{Peer, Proof, admit};
    use millrace_wire::Code;

    #[test]
    fn a_running_host_sees_rotations_and_revocations_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let namespace = Namespace::create(&dir.path().join("ns"), &CreateOptions::default()).unwrap();
        let live = LiveKeys::new(namespace.clone()).unwrap();
        let peer = Peer { way: Way::Unix, address: None, key: None };
        let admit = |token: &Token| {
            let keys = live.current().unwrap();
            admit(&*keys, token.body(), Proof::Bearer(token.signature()), peer).map_err(|error| error.code())
        };
        let rules =
            Rules { grants: vec![Grant::namespace(Rights::ALL)], ids: vec![TokenId([1; 8])], ..Rules::default() };
        // The keys are needed before there is an authority.
        assert!(live.current().unwrap().authority().is_none());
        let token = Authority::ensure(namespace.dir()).unwrap().issue(&rules).unwrap();
        let mut caller = admit(&token).unwrap();
        let rotate = |before| {
            let rotated_to = Authority::rotate(namespace.dir(), before).unwrap().generation();
            rotated(&namespace, rotated_to).unwrap();
        };
        rotate(None);
        caller.refresh(&*live.current().unwrap()).unwrap();
        revoke(&namespace, &[TokenId([1; 8])], None).unwrap();
        assert_eq!(caller.refresh(&*live.current().unwrap()).unwrap_err().code(), Code::CapabilityRefused);
        assert_eq!(admit(&token).unwrap_err(), Code::CapabilityRefused);
        let other = Rules { ids: vec![TokenId([2; 8])], ..rules };
        let token = Authority::ensure(namespace.dir()).unwrap().issue(&other).unwrap();
        admit(&token).unwrap();
        rotate(Some(3));
        assert_eq!(admit(&token).unwrap_err(), Code::CapabilityRefused, "its generation was retired");
    }

    #[test]
    fn the_token_of_a_machine_ends_with_its_host() {
        let dir = tempfile::tempdir().unwrap();
        let namespace = Namespace::create(&dir.path().join("ns"), &CreateOptions::default()).unwrap();
        let live = LiveKeys::new(namespace.clone()).unwrap();
        let token = live.of_machine().unwrap();
        let peer = Peer { way: Way::Channel, address: Some([127, 0, 0, 1].into()), key: None };
        let admit = |live: &LiveKeys| {
            let keys = live.current().unwrap();
            admit(&*keys, token.body(), Proof::Bearer(token.signature()), peer).map_err(|error| error.code())
        };
        admit(&live).unwrap();
        assert_eq!(admit(&LiveKeys::new(namespace).unwrap()).unwrap_err(), Code::CapabilityRefused);
        assert!(!dir.path().join("ns/secrets").exists(), "it needs no authority");
    }
}
