//! A ring that is left alone converges: every group knows the groups around it, and lookups find who is responsible.

use millrace_ring::{Id, Ring, SUCCESSORS};
use std::collections::BTreeMap;

/// The groups that are there, by their places.
#[derive(Default)]
pub struct Responsible {
    places: BTreeMap<Id, u64>,
}

impl Responsible {
    /// Of these groups.
    pub fn of(groups: impl Iterator<Item = (Id, u64)>) -> Self {
        Self { places: groups.collect() }
    }

    /// Who is responsible for a place.
    pub fn group(&self, id: Id) -> Option<u64> {
        let next = self.places.range(id..).next().or_else(|| self.places.first_key_value());
        next.map(|(_, group)| *group)
    }

    /// The groups behind a place, the nearest first.
    pub fn behind(&self, id: Id) -> impl Iterator<Item = u64> {
        let behind = self.places.range(id.after(0)..).chain(self.places.range(..id));
        behind.map(|(_, group)| *group)
    }

    /// Looks whether a group knows those around it.
    pub fn check(&self, ring: &Ring) -> Result<(), String> {
        let own = ring.own();
        let behind: Vec<u64> = self.behind(own.id).take(SUCCESSORS).collect();
        let known: Vec<u64> = ring.successors().iter().map(|entry| entry.group).collect();
        if known != behind {
            return Err(format!("group {} has {behind:?} behind it and knows {known:?}", own.group));
        }
        let front = self.places.range(..own.id).next_back().or_else(|| self.places.last_key_value());
        let front = front.map(|(_, group)| *group).filter(|group| *group != own.group);
        match ring.predecessor().map(|entry| entry.group) {
            known if known == front => Ok(()),
            known => Err(format!("group {} has {front:?} in front of it and knows {known:?}", own.group)),
        }
    }
}
