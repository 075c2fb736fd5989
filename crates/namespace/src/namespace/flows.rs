//! What this process knows of the runs that it executes, beside what is in the journal.

use super::Namespace;
use crate::runs::{flows::Flows, printed::Printed};

impl Namespace {
    /// How many records flow between logs and functions in this process.
    pub fn flows(&self) -> &Flows {
        &self.inner.flows
    }

    /// What runs that this process executes have printed.
    pub fn printed(&self) -> &Printed {
        &self.inner.printed
    }
}
