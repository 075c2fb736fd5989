//! What must stay secret: the authority that issues capabilities. It stands in `NAMESPACE/secrets/`, apart from the journal, and no
//! backup has it. Revocations are no secret; they stand in the journal.
//!
//! A host verifies with [`NamespaceKeys`]; `millrace_wire::token` says what a capability permits.

mod authority;
mod files;
mod functions;
mod revoked;

pub use authority::{Authority, GENERATIONS_MAX, random_id};
pub use functions::FunctionSecrets;
pub use revoked::{NamespaceKeys, REVOCATIONS_MAX, Revoked, capability_keys, now_s, revoke, revoked};
