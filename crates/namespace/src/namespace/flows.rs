//! What flows between logs and functions.

use super::Namespace;
use crate::runs::flows::Flows;

impl Namespace {
    /// How many records flow between logs and functions in this process.
    pub fn flows(&self) -> &Flows {
        &self.inner.flows
    }
}
