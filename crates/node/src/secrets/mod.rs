//! The secrets of a namespace: among them the authority that issues capabilities. They are in `NAMESPACE/secrets/`, outside the journal,
//! and in no backup. Revocations are not secret; they are in the journal.
//!
//! A host verifies with [`LiveKeys`], which follow rotations and revocations; `millrace_security::token` says what a capability permits.

mod authority;
mod cluster;
mod devices;
mod files;
mod functions;
mod handover;
mod host;
mod issue;
mod keys;
mod revoked;

pub use authority::{Authority, GENERATIONS_MAX, random_id};
pub use cluster::{ClusterSecret, SecretDigest};
pub use devices::DeviceSecrets;
pub use files::Folder;
pub use functions::FunctionSecrets;
pub(crate) use handover::{PUBLIC_BYTES, Receiver, SEALED_BYTES, seal};
pub use host::{HostKey, key_hash};
pub use issue::{Allow, CapabilityAsk, grant, issued, unite};
pub use keys::{LiveKeys, NamespaceKeys, capability_keys};
pub(crate) use revoked::revoke_as;
pub use revoked::{REVOCATIONS_MAX, Revoked, now_s, revoke, revoked, rotated};
