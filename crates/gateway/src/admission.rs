//! The caller of a connection and of a request: the owner, or the holder of a capability.

use crate::{
    Hosted,
    memory::{Account, Connected},
    unknown::Unknown,
};
use millrace_client::loopback::{Holder, Loopback};
use millrace_node::{
    Access, Caller, Resource, Right, Served, is_local, is_owner,
    secrets::now_s,
    token::{Action, Binding, Now, Peer, Proof, Rate, Rates, Token, Way, admit, check},
};
use millrace_wire::{Code, Defence, Error, Result};
use std::{
    net::{SocketAddr, TcpStream},
    sync::{Arc, OnceLock, atomic::Ordering},
};

/// The caller of a connection, as far as the connection itself determines it.
#[derive(Clone)]
pub(crate) struct Identity {
    /// How it came here.
    pub peer: Peer,
    /// The owner, where nothing else is asked for.
    pub owner: Option<Arc<Caller>>,
    /// Anyone who has the capability that the channel was opened with, and the namespace that it is of.
    pub holder: Option<(Served, Arc<Caller>)>,
    /// The binding of proofs on this connection.
    pub binding: Option<Binding>,
    /// What proofs of this host are bound to that it shows to the device at the other end of a channel.
    pub exporter: Option<[u8; 32]>,
    /// Why a caller at a loopback address is not the owner.
    pub not_owner: Option<NotOwner>,
    /// The place among the connections that are not authenticated yet.
    pub unknown: Option<Arc<Unknown>>,
    /// The place among the connections with the capability that was shown first.
    pub connected: Arc<OnceLock<Connected>>,
}

/// A caller at a loopback address that is not the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotOwner {
    /// Another user of this machine.
    User(u32),
    /// The kernel does not report the user of the connection.
    Unknown,
    /// Perhaps a function of this host.
    Imitable,
}

impl NotOwner {
    fn refused(self) -> Error {
        Code::LoopbackRefused.error(match self {
            Self::User(user) => format!("the connection belongs to user {user}, who does not run this host"),
            Self::Unknown => "the kernel does not report the user of this connection".to_owned(),
            Self::Imitable => {
                "a function of this host has `network = true`, and its connections look the same".to_owned()
            }
        })
    }
}

/// Tells who is at the other end of a connection from this machine.
pub(crate) struct LocalPeers {
    kernel: Option<Loopback>,
    own: u32,
}

impl LocalPeers {
    pub fn new() -> Self {
        let kernel = Loopback::new();
        if let Err(error) = &kernel {
            tracing::warn!(target: "connections", "the kernel does not report the users of connections, so every connection needs a capability: {error}");
        }
        Self { kernel: kernel.ok(), own: rustix::process::geteuid().as_raw() }
    }

    /// A caller that connected from `theirs`. At a loopback address the user who runs the host is the owner, as at the Unix socket.
    pub fn identity(&mut self, hosted: &Hosted, theirs: SocketAddr, stream: &TcpStream) -> Identity {
        let peer = Peer { way: Way::Channel, address: Some(theirs.ip()), key: None };
        let nobody = Identity::nobody(peer);
        if !is_local(theirs.ip()) {
            return nobody;
        }
        let ends =
            || Ok((if Defence::SameConnection.stands() { stream.peer_addr()? } else { theirs }, stream.local_addr()?));
        let holder = self.kernel.as_mut().map(|kernel| kernel.holder(ends));
        let not_owner = match holder {
            Some(Holder::User(user)) if !is_owner(user, self.own) && Defence::LoopbackUser.stands() => {
                NotOwner::User(user)
            }
            Some(Holder::User(_)) if hosted.is_imitable() && Defence::Function.stands() => NotOwner::Imitable,
            Some(Holder::User(_)) => return Identity { owner: Some(Arc::new(Caller::owner(peer))), ..nobody },
            _ => NotOwner::Unknown,
        };
        Identity { not_owner: Some(not_owner), ..nobody }
    }
}

struct Uncounted;

impl Rates for Uncounted {
    fn take(&self, _: &[u8; 32], _: Rate) -> bool {
        true
    }
}

/// The refusal of a caller without a valid capability. It is the same for every reason, and whether the namespace exists or not.
pub(crate) fn refused() -> Error {
    Code::CapabilityRefused.error("the capability is not valid here")
}

impl Identity {
    /// A user at the Unix socket of a host that runs as `own`.
    pub fn at_socket(user: u32, own: u32) -> Self {
        let peer = Peer { way: Way::Unix, address: None, key: None };
        let owner = is_owner(user, own).then(|| Arc::new(Caller::owner(peer)));
        Self { owner, ..Self::nobody(peer) }
    }

    /// Somebody who has shown nothing.
    fn nobody(peer: Peer) -> Self {
        let connected = Arc::default();
        Self {
            peer,
            owner: None,
            holder: None,
            binding: None,
            exporter: None,
            not_owner: None,
            unknown: None,
            connected,
        }
    }

    /// Whose memory the connection uses until a capability is shown.
    pub fn account(&self) -> Account {
        match (&self.holder, &self.owner) {
            (Some((_, caller)), _) => Account::of(caller.principal()),
            (None, Some(_)) => Account::Owner,
            (None, None) => Account::Unknown,
        }
    }

    /// The same over TLS, where every caller needs a capability.
    pub fn over_tls(self, binding: Binding, key: Option<[u8; 32]>) -> Self {
        let peer = Peer { way: Way::TlsProof, key, ..self.peer };
        Self { binding: Some(binding), unknown: self.unknown, ..Self::nobody(peer) }
    }

    /// The other end has shown a capability: it is counted among the unknown no longer, but among those with the capability.
    pub fn has_shown(&self, hosted: &Hosted, caller: &Caller) -> Result<()> {
        if self.connected.get().is_none() {
            let limit = hosted.connections_limit.load(Ordering::Relaxed);
            // Of two requests that are the first, one gives its place back.
            let _ = self.connected.set(Account::of(caller.principal()).connect(limit)?);
        }
        if let Some(unknown) = &self.unknown {
            unknown.leave();
        }
        Ok(())
    }

    /// Whether no third party can read the bytes: they are encrypted, or do not leave this machine.
    pub fn is_private(&self) -> bool {
        self.peer.way != Way::Channel || self.peer.address.is_none_or(is_local) || !Defence::Clear.stands()
    }
}

impl Hosted {
    /// The holder of a capability of the namespace of this name; any namespace's, if there is no name.
    pub(crate) fn admit(
        &self,
        namespace: &str,
        body: &[u8],
        proof: Proof<'_>,
        peer: Peer,
    ) -> Result<(Served, Arc<Caller>)> {
        let asked = |served: &&Served| namespace.is_empty() || **served.name() == *namespace;
        // The names of namespaces are not revealed before a capability of one was presented, either.
        if !Defence::Existence.stands() && !self.served().iter().any(|served| asked(&served)) {
            return Err(Code::NamespaceNotServed.error("this host does not serve a namespace of this name"));
        }
        for served in self.served().iter().filter(asked) {
            // If the keys cannot be read, no caller is admitted.
            let Ok(keys) = served.keys().current() else { continue };
            if let Ok(caller) = admit(&*keys, body, proof, peer) {
                return Ok((served.clone(), known(served, caller)?));
            }
        }
        Err(refused())
    }

    /// The namespace of this name for a caller without a capability in the request.
    pub(crate) fn access_of(&self, identity: &Identity, namespace: &str) -> Result<Access> {
        match (&identity.holder, &identity.owner) {
            // The token of this machine identifies the owner of all namespaces of this host.
            (Some((_, caller)), _) if caller.chain().is_none() => self.access(namespace, caller),
            (Some((served, caller)), _) if namespace.is_empty() || **served.name() == *namespace => {
                Ok(self.within_limits(served, caller))
            }
            (None, Some(owner)) => self.access(namespace, owner),
            _ => Err(identity.not_owner.map_or_else(refused, NotOwner::refused)),
        }
    }

    /// The namespace of this name as the bearer of a capability may use it.
    pub(crate) fn access_of_bearer(&self, identity: &Identity, namespace: &str, token: &Token) -> Result<Access> {
        if !identity.is_private() {
            return Err(refused());
        }
        let peer = Peer { way: Way::HttpBearer, ..identity.peer };
        let (served, caller) = self.admit(namespace, token.body(), Proof::Bearer(token.signature()), peer)?;
        identity.has_shown(self, &caller)?;
        Ok(self.within_limits(&served, &caller))
    }
}

/// The caller as it counts from now on: the token that a host leaves for its own user makes the owner.
pub(crate) fn known(served: &Served, caller: Caller) -> Result<Arc<Caller>> {
    let of_machine = caller.chain().is_some_and(|chain| {
        let [part] = &*chain.parts else { return false };
        // The narrower capability has what is left.
        served.keys().is_own(part.authority) && part.blocks.len() == 1 && chain.after.is_empty()
    });
    if !of_machine {
        return Ok(Arc::new(caller));
    }
    let anything = Action::new(Right::Admin, Resource::NAMESPACE);
    check(&caller, &anything, Now::at(now_s()), &Uncounted).map_err(|_| refused())?;
    Ok(Arc::new(Caller::owner(*caller.peer())))
}
