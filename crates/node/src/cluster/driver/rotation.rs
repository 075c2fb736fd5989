//! Changes the secret of the cluster.
//!
//! ```text
//!  this host     draws a key, and accepts it from then on
//!  to each host  OFFER ─> READY ─> GIVE ─> TOOK     the host accepts the new secret, too, on its disk
//!  group main    SECRET (digest)                    applied by a host: it uses the new secret, and accepts nothing else
//! ```
//!
//! No entry of a log has the key. A host that does not have the new secret when the command is applied elsewhere is refused by the others
//! from then on; it gets the secret from a file (`millrace cluster secret use`).

use super::{Driver, MAIN, Said, locked};
use crate::{
    cluster::{Member, Reply, Shared, shown},
    secrets::{ClusterSecret, Receiver, SecretDigest, seal},
};
use millrace_group::{Action, Durability, Stamp};
use millrace_wire::{Code, Error, Result};
use serde::Serialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};
use zeroize::Zeroizing;

/// How long a change waits for hosts that do not answer.
const ROTATION: Duration = Duration::from_secs(4);

/// The hosts of a cluster whose secret was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RotatedSecret {
    /// The cluster.
    pub cluster: String,
    /// The hosts that have the new secret.
    pub took: Vec<RotatedHost>,
    /// Those that have not, because they did not answer.
    pub away: Vec<RotatedHost>,
}

/// A host, as it is named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RotatedHost {
    /// Its id.
    pub host: String,
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: String,
}

impl From<Member> for RotatedHost {
    fn from(Member { id, name, address, .. }: Member) -> Self {
        Self { host: shown(id), name, address }
    }
}

/// A change that hosts are being told of.
struct Rotation {
    key: Zeroizing<[u8; 32]>,
    digest: SecretDigest,
    /// What the group had agreed on at the beginning: of two changes at once, one fails, because the other ends what hosts accept for it.
    before: String,
    others: Vec<u64>,
    took: BTreeSet<u64>,
    until: Instant,
    reply: Reply<RotatedSecret>,
}

/// The change that this host makes, and those for which it has drawn numbers.
#[derive(Default)]
pub(super) struct Rotations {
    own: Option<Rotation>,
    /// By the host that makes it.
    offered: BTreeMap<u64, (SecretDigest, Receiver)>,
}

fn hex(digest: &SecretDigest) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn of_hex(text: &str) -> Option<SecretDigest> {
    let byte = |at: usize| u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok();
    let bytes: Vec<u8> = (0..text.len() / 2).map(byte).collect::<Option<_>>()?;
    bytes.try_into().ok()
}

impl Shared {
    /// Uses the secret that the group has agreed on, once this host knows that.
    pub(super) fn follow_secret(&self) {
        let Some(digest) = of_hex(locked(&self.main.replica).topics().secret()) else { return };
        let Some(changed) = self.post.secret().and_then(|secret| secret.changed_to(&digest)) else { return };
        match self.post.change_secret(changed) {
            Ok(()) => tracing::info!(target: "topics", "the secret of the cluster was changed"),
            // It is tried again.
            Err(error) => {
                tracing::warn!(target: "topics", code = error.code().id(), "the new secret of the cluster cannot be kept: {}", error.detail());
            }
        }
    }

    fn secret(&self) -> Result<Arc<ClusterSecret>> {
        self.post.secret().ok_or_else(|| Code::ClusterSecretMissing.error("this host has no secret of its cluster"))
    }
}

impl Driver {
    /// Begins a change of the secret.
    pub(super) fn rotate(&mut self, reply: Reply<RotatedSecret>) {
        if self.rotations.own.is_some() {
            return reply(Err(Code::GroupBusy.error("the secret of the cluster is being changed")));
        }
        let begin = || {
            let secret = self.shared.secret()?;
            let (key, digest) = secret.draw()?;
            self.post.change_secret(secret.accepting(&key))?;
            Ok((key, digest))
        };
        match begin() {
            Ok((key, digest)) => {
                let before = locked(&self.shared.main.replica).topics().secret().to_owned();
                let (others, took, until) = (self.shared.others(), BTreeSet::new(), Instant::now() + ROTATION);
                self.rotations.own = Some(Rotation { key, digest, before, others, took, until, reply });
                self.offer();
            }
            Err(error) => reply(Err(error)),
        }
    }

    /// Offers the new secret to the hosts that have not taken it, or concludes.
    pub(super) fn offer(&mut self) {
        let own = self.shared.facts.host;
        let Some(rotation) = &self.rotations.own else { return };
        let missing: Vec<u64> = rotation.others.iter().copied().filter(|host| !rotation.took.contains(host)).collect();
        if !missing.is_empty() && Instant::now() < rotation.until {
            let offer = Said::Offer(rotation.digest).bytes(own);
            missing.into_iter().for_each(|host| self.post.send(host, super::HOST, offer.clone()));
            return;
        }
        if let Some(rotation) = self.rotations.own.take() {
            self.conclude(rotation);
        }
    }

    /// Has the group decide, if a majority can follow.
    fn conclude(&mut self, rotation: Rotation) {
        let Rotation { digest, before, others, mut took, reply, .. } = rotation;
        took.insert(self.shared.facts.host);
        let voters = locked(&self.shared.main.replica).replicas().0;
        let ready = voters.iter().filter(|voter| took.contains(voter)).count();
        if 2 * ready <= voters.len() {
            let detail = format!(
                "{ready} of {} voters of group main have taken the new secret, and a majority is needed; the cluster keeps its secret",
                voters.len()
            );
            return reply(Err(Code::GroupUnavailable.error(detail)));
        }
        let named = |host: &u64| self.shared.known(*host).map(RotatedHost::from);
        let own = RotatedHost::from(self.shared.member.clone());
        let (took, away): (Vec<u64>, Vec<u64>) = others.into_iter().partition(|host| took.contains(host));
        let rotated = RotatedSecret {
            cluster: self.shared.facts.cluster.clone(),
            took: [own].into_iter().chain(took.iter().filter_map(named)).collect(),
            away: away.iter().filter_map(named).collect(),
        };
        let action = Action::Secret { digest: hex(&digest), before };
        let shared = self.shared.clone();
        let decided = move |outcome: Result<u64>| {
            // Once this is answered, the old secret opens nothing here.
            shared.follow_secret();
            reply(outcome.map(|_| rotated));
        };
        if let Some(main) = self.running(MAIN) {
            main.submit(action, (&[], &Stamp::default()), Durability::Quorum, Box::new(decided));
        }
    }

    /// A message about a change of the secret.
    pub(super) fn hear_of_secret(&mut self, host: u64, said: Said) {
        let own = self.shared.facts.host;
        if !self.shared.others().contains(&host) {
            return;
        }
        let answer = match said {
            Said::Offer(digest) => self.offered(host, digest),
            Said::Ready(digest, public) => {
                let rotation = self.rotations.own.as_ref().filter(|rotation| rotation.digest == digest);
                let sealed = rotation.map(|rotation| seal(&public, &rotation.key));
                sealed
                    .transpose()
                    .map(|sealed| sealed.and_then(|sealed| Some(Said::Give(digest, sealed.try_into().ok()?))))
            }
            Said::Give(digest, sealed) => self.given(host, digest, &sealed),
            Said::Took(digest) => {
                if let Some(rotation) = self.rotations.own.as_mut().filter(|rotation| rotation.digest == digest) {
                    rotation.took.insert(host);
                }
                self.offer();
                Ok(None)
            }
            _ => Ok(None),
        };
        match answer {
            Ok(answer) => answer.into_iter().for_each(|said| self.post.send(host, super::HOST, said.bytes(own))),
            Err(error) => note(&error),
        }
    }

    fn offered(&mut self, host: u64, digest: SecretDigest) -> Result<Option<Said>> {
        if self.shared.secret()?.knows(&digest) {
            return Ok(Some(Said::Took(digest)));
        }
        // The offer is repeated.
        if self.rotations.offered.get(&host).is_none_or(|(known, _)| *known != digest) {
            self.rotations.offered.insert(host, (digest, Receiver::new()?));
        }
        Ok(self.rotations.offered.get(&host).map(|(_, receiver)| Said::Ready(digest, *receiver.public())))
    }

    fn given(&mut self, host: u64, digest: SecretDigest, sealed: &[u8]) -> Result<Option<Said>> {
        let secret = self.shared.secret()?;
        if !secret.knows(&digest) {
            let Some((_, receiver)) = self.rotations.offered.remove(&host).filter(|(known, _)| *known == digest) else {
                return Ok(None);
            };
            let key = receiver.open(sealed)?;
            if secret.digest_with(&key) != digest {
                return Ok(None);
            }
            self.post.change_secret(secret.accepting(&key))?;
        }
        Ok(Some(Said::Took(digest)))
    }
}

fn note(error: &Error) {
    tracing::warn!(target: "topics", code = error.code().id(), "a new secret of the cluster was not taken: {}", error.detail());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read_as_it_was_written() {
        let digest: SecretDigest = std::array::from_fn(|at| at as u8 * 7);
        assert_eq!(of_hex(&hex(&digest)), Some(digest));
        assert_eq!((of_hex(""), of_hex("0"), of_hex("zz")), (None, None, None));
    }
}
