//! Connects a repair to the hosts of other namespaces that take part in it, as their client.

use crate::wire::SOFTWARE;
use millrace_client::{Options, Place, blocking::Client};
use millrace_node::repairs::{Peers, Reach};
use millrace_wire::{NamespaceId, Result};
use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// The timeout for connecting to a host and for its first answer.
const CONNECT_MS: u32 = 5_000;
/// The timeout of an answer: the other host may have to read its journal.
const ANSWER_MS: u32 = 120_000;

/// Connections to hosts, by address.
struct Hosts {
    ca: Option<PathBuf>,
    stop: Arc<AtomicBool>,
    clients: HashMap<String, Client>,
}

/// A connector to hosts with the credentials of this user. `ca` names the authorities that identify hosts whose key is not known.
pub fn reach(ca: Option<PathBuf>) -> Reach {
    Arc::new(move |stop: &Arc<AtomicBool>| -> Box<dyn Peers> {
        Box::new(Hosts { ca: ca.clone(), stop: stop.clone(), clients: HashMap::new() })
    })
}

impl Hosts {
    fn with<T>(&mut self, address: &str, ask: impl FnOnce(&Client) -> Result<T>) -> Result<T> {
        let client = match self.clients.get(address) {
            Some(client) => client.clone(),
            None => {
                let stop = self.stop.clone();
                let options = Options {
                    connect_timeout_ms: CONNECT_MS,
                    request_timeout_ms: ANSWER_MS,
                    name: SOFTWARE.into(),
                    interrupted: Some(Arc::new(move || stop.load(Ordering::Acquire))),
                    ca: self.ca.clone(),
                    ..Options::default()
                };
                let client = Client::connect(&address.parse::<Place>()?, &options)?;
                self.clients.insert(address.to_owned(), client.clone());
                client
            }
        };
        let asked = ask(&client);
        if asked.is_err() {
            // The next connection may reach another host there.
            self.clients.remove(address);
        }
        asked
    }
}

impl Peers for Hosts {
    fn meet(&mut self, address: &str) -> Result<String> {
        self.clients.remove(address);
        self.with(address, |client| {
            let id = client.host().namespace;
            Ok(NamespaceId::new(id).map_or_else(|| id.to_string(), |id| id.to_string()))
        })
    }

    fn ask(&mut self, address: &str, json: &str) -> Result<String> {
        self.with(address, |client| client.repair(json))
    }

    fn show(&mut self, address: &str, path: &str) -> Result<String> {
        self.with(address, |client| client.show(path))
    }
}
