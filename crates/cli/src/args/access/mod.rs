//! Commands about capabilities, invitations and secrets.

mod capabilities;
mod secrets;

pub use capabilities::{
    AuditArgs, CapCommand, InviteArgs, IssueArgs, JoinArgs, MergeArgs, RevokeArgs, RotateArgs, RuleArgs,
};
pub use secrets::{SecretCommand, SetSecretArgs};
