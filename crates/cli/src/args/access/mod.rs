//! Commands about capabilities, invitations, secrets and users of MQTT.

mod capabilities;
mod secrets;
mod users;

pub use capabilities::{
    AuditArgs, CapCommand, InviteArgs, IssueArgs, JoinArgs, MergeArgs, RevokeArgs, RotateArgs, RuleArgs,
};
pub use secrets::{SecretCommand, SetSecretArgs};
pub use users::{MQTT_EXAMPLES, MqttBridgeArgs, MqttCommand, MqttUserCommand};
