//! The defences against unauthorised access, by name, so that a test can remove one and see an attack succeed.
//!
//! Those of a sandbox have names of their own, in the runtime.

use std::{
    str::FromStr,
    sync::atomic::{AtomicU32, Ordering},
};

/// One defence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Defence {
    /// A client proves, on this connection, that it has the signature of its capability.
    Proof = 1,
    /// A capability permits what it grants.
    Grants = 1 << 1,
    /// A capability is valid for its time.
    Time = 1 << 2,
    /// A capability that is bound to a key is of no use without the key.
    PeerKey = 1 << 3,
    /// An invitation permits nothing but to be redeemed.
    Once = 1 << 4,
    /// A revoked capability permits nothing.
    Revocation = 1 << 5,
    /// A client knows a host by the hash of its public key.
    Pin = 1 << 6,
    /// A host has the key that its certificate shows.
    Handshake = 1 << 7,
    /// A client connects without encryption only to programs of its own user.
    HostUser = 1 << 8,
    /// A host knows its own user only, at a loopback address.
    LoopbackUser = 1 << 9,
    /// A connection at a loopback address that may come from a function has no owner's rights.
    Function = 1 << 10,
    /// Nothing leaves this machine unencrypted.
    Clear = 1 << 11,
    /// A request over unencrypted HTTP names this machine.
    HostName = 1 << 12,
    /// A request over HTTP comes from no page of another origin.
    Origin = 1 << 13,
    /// Idempotency keys belong to the principal.
    OwnKeys = 1 << 14,
    /// Files with secrets are refused if another user could have read or changed them.
    SecretFiles = 1 << 15,
    /// Streams from other namespaces belong to the principal that opened them.
    OwnStreams = 1 << 16,
    /// A refusal does not reveal whether a hidden object exists.
    Existence = 1 << 17,
    /// Unauthenticated connections make room for others.
    Unknown = 1 << 18,
    /// The kernel's answer about the user of a connection counts only while that connection is open.
    SameConnection = 1 << 19,
    /// A file or directory that a command found, and nobody named, is under the control of its user.
    OwnFiles = 1 << 20,
    /// Who does not administer a namespace names no programs of its host by their paths.
    Programs = 1 << 24,
    /// Once a cluster has changed its secret, the one before permits nothing.
    ClusterSecret = 1 << 25,
    /// The pages that this machine serves for a host elsewhere forward only requests with the key of their link.
    PageKey = 1 << 26,
    /// A caller of the network names no file that the host opens.
    HostFiles = 1 << 27,
    /// A user of MQTT publishes and receives only what its topic filters permit.
    MqttTopics = 1 << 28,
    /// Where MQTT is not encrypted, only the password of a user of MQTT counts.
    PlainMqtt = 1 << 29,
}

static OUT: AtomicU32 = AtomicU32::new(0);

impl Defence {
    /// All of them.
    pub const ALL: [Defence; 27] = [
        Defence::Proof,
        Defence::Grants,
        Defence::Time,
        Defence::PeerKey,
        Defence::Once,
        Defence::Revocation,
        Defence::Pin,
        Defence::Handshake,
        Defence::HostUser,
        Defence::LoopbackUser,
        Defence::Function,
        Defence::Clear,
        Defence::HostName,
        Defence::Origin,
        Defence::OwnKeys,
        Defence::SecretFiles,
        Defence::OwnStreams,
        Defence::Existence,
        Defence::Unknown,
        Defence::SameConnection,
        Defence::OwnFiles,
        Defence::Programs,
        Defence::ClusterSecret,
        Defence::PageKey,
        Defence::HostFiles,
        Defence::MqttTopics,
        Defence::PlainMqtt,
    ];

    /// Whether it is active. In other builds than test builds it always is.
    #[inline]
    pub fn stands(self) -> bool {
        !cfg!(debug_assertions) || OUT.load(Ordering::Relaxed) & self as u32 == 0
    }

    /// Takes it out of this process. In other builds than those of tests this does nothing.
    pub fn take_out(self) {
        OUT.fetch_or(self as u32, Ordering::Relaxed);
    }
}

impl FromStr for Defence {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = Self::ALL.into_iter().find(|defence| format!("{defence:?}") == text);
        named.ok_or_else(|| format!("there is no defence '{}'", text.escape_debug()))
    }
}
