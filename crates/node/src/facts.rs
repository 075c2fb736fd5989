//! What the network interfaces may know of a namespace without its gate.

use crate::{HostStatus, Namespace, Runtime, Served, Space};
use millrace_journal::{Durability, LowSpace, Pin, Position};
use millrace_wire::{Error, NamespaceId, Result};
use std::time::Duration;

impl Served {
    /// What may leave at once: see [`ServedFacts`].
    pub fn facts(&self) -> ServedFacts<'_> {
        ServedFacts { namespace: self.namespace() }
    }
}

/// Settings of a namespace, and the health of its journal. They reveal nothing of its records, so they need not wait at the gate, and are
/// there even when nothing can be flushed.
pub struct ServedFacts<'a> {
    namespace: &'a Namespace,
}

impl ServedFacts<'_> {
    /// Its id.
    pub fn id(&self) -> NamespaceId {
        self.namespace.journal().namespace()
    }

    /// Its epoch.
    pub fn epoch(&self) -> u32 {
        self.namespace.journal().epoch()
    }

    /// How durable an append is by default.
    pub fn durability(&self) -> Durability {
        self.namespace.journal().durability()
    }

    /// The largest record that fits.
    pub fn record_max_bytes(&self) -> usize {
        self.namespace.journal().record_max_bytes()
    }

    /// The oldest position that is kept, the end of the journal, and up to where it is durable.
    pub fn positions(&self) -> [Position; 3] {
        let journal = self.namespace.journal();
        [journal.first(), journal.tail(), journal.durable()]
    }

    /// The pins that retention respects; none if they cannot be read.
    pub fn pins(&self) -> Vec<Pin> {
        self.namespace.journal().pins().unwrap_or_default()
    }

    /// An error if the journal no longer accepts anything.
    pub fn check_health(&self) -> Result<()> {
        self.namespace.journal().check_health()
    }

    /// An error if the journal accepts nothing, or its directory is no longer the one that was opened.
    pub fn check_place(&self) -> Result<()> {
        self.namespace.journal().check_health()?;
        self.namespace.journal().check_place()
    }

    /// Why appends fail at present, if they do.
    pub fn refusal(&self) -> Option<Error> {
        self.namespace.journal().refusal()
    }

    /// An error if the machine's clock is or was wrong.
    pub fn check_clock(&self) -> Result<()> {
        self.namespace.journal().check_clock()
    }

    /// How little of the disk is free, if it is too little.
    pub fn low_space(&self) -> Option<LowSpace> {
        self.namespace.journal().low_space()
    }

    /// Free space of the disk, in bytes.
    pub fn available_bytes(&self) -> Option<u64> {
        Space::of(self.namespace.journal().dir()).map(|space| space.available_bytes)
    }

    /// The activity of its host, as the host last wrote it.
    pub fn host(&self) -> Option<HostStatus> {
        HostStatus::of(self.namespace).ok()?
    }

    /// Whether a native function of it has a network; true if that cannot be read.
    pub fn has_networked_function(&self) -> bool {
        let Ok(bindings) = self.namespace.bindings() else { return true };
        bindings.functions().any(|(_, definition)| {
            definition
                .as_ref()
                .is_ok_and(|definition| definition.spec.network && definition.spec.runtime != Runtime::Wasm)
        })
    }

    /// Notes how long an append took.
    pub fn append_took(&self, time: Duration) {
        self.namespace.measures().append.add(time);
    }
}
