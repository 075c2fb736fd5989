//! Names of a simulated disk: each change survives a power failure or does not.

use std::collections::BTreeMap;

/// A change of a folder that is not flushed yet.
#[derive(Clone)]
pub(super) enum NameChange {
    Link(String, u64),
    Rename(String, String),
    Unlink(String),
}

impl NameChange {
    pub fn folder(&self) -> &str {
        let (Self::Link(name, _) | Self::Rename(name, _) | Self::Unlink(name)) = self;
        name.rsplit_once('/').map_or("", |(folder, _)| folder)
    }

    pub fn apply(&self, names: &mut BTreeMap<String, u64>) {
        match self {
            Self::Link(name, inode) => drop(names.insert(name.clone(), *inode)),
            Self::Rename(from, to) => {
                if let Some(inode) = names.remove(from) {
                    names.insert(to.clone(), inode);
                }
            }
            Self::Unlink(name) => drop(names.remove(name)),
        }
    }
}
