//! Names on a simulated disk: what changed and is not flushed.

use std::collections::BTreeMap;

/// A change of a folder that is not flushed yet.
#[derive(Clone)]
pub(super) enum NameChange {
    Link(String, u64),
    Rename(String, String),
    Unlink(String),
}

impl NameChange {
    /// The folder that it is of.
    pub fn folder(&self) -> &str {
        let (Self::Link(name, _) | Self::Rename(name, _) | Self::Unlink(name)) = self;
        name.rsplit_once('/').map_or("", |(folder, _)| folder)
    }

    /// Makes it in a table of names.
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
