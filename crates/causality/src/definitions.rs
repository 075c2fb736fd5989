//! The settings of functions, revision by revision: a run is replayed with those of the revision that it ran.

use serde_json::Value;
use std::collections::HashMap;

/// The settings of a revision of a function on which a replay depends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether it may use the network.
    pub network: bool,
    /// The digest of its code.
    pub code: String,
    /// The secrets that it is given.
    pub secrets: Vec<String>,
}

/// By function and revision.
#[derive(Debug, Default)]
pub(crate) struct Definitions(HashMap<(u32, u32), Settings>);

impl Definitions {
    /// Adds the definition of a function, as a DEFINE has it. One that cannot be read is as unknown as one that retention has dropped.
    pub fn define(&mut self, function: u32, definition: &Value) {
        let revision = definition["revision"].as_u64().and_then(|revision| u32::try_from(revision).ok());
        let attributes = definition["attributes"].as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
        let Some((revision, attributes)) = revision.zip(attributes) else { return };
        let Some(code) = attributes["code"].as_str() else { return };
        let network = attributes["spec"]["network"].as_bool().unwrap_or(false);
        let secrets = attributes["spec"]["rights"]["secrets"].as_array().into_iter().flatten();
        let secrets = secrets.filter_map(|name| name.as_str().map(str::to_owned)).collect();
        self.0.insert((function, revision), Settings { network, code: code.to_owned(), secrets });
    }

    pub fn settings(&self, function: u32, revision: u32) -> Option<&Settings> {
        self.0.get(&(function, revision))
    }
}
