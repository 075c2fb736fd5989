//! Which log a feed began with. A log that was deleted and created again has the name of the old one and other records: the topic knows how
//! far the old one was, and would pass over the first records of the new one.
//!
//! The log `_feeds` of the runtime has the numbers of the logs, as the namespace counts them; no number is used twice.

use super::Work;
use crate::Namespace;
use millrace_journal::Log;
use millrace_namespace::{names, outbox::topics::FEEDS as LOG};
use millrace_wire::{Code, Result};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Only the newest record is used.
const HISTORY: u64 = 4;

/// A feed, and its log.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Source {
    topic: String,
    log: String,
    /// Which topic of this name, and the entry that began the feed.
    born: u64,
    since: u64,
    /// The number of the log.
    id: u32,
}

/// The logs of the feeds of this host, by topic and log.
#[derive(Default)]
pub(super) struct Sources(Option<HashMap<(String, String), Source>>);

impl Sources {
    /// Refuses a log that is not the one with which the feed began. The first one is noted.
    pub fn check(&mut self, namespace: &Namespace, work: &Work, log: &Log) -> Result<()> {
        let known = match &mut self.0 {
            Some(known) => known,
            unread => unread.insert(read(namespace)?),
        };
        let key = (work.topic.clone(), work.log.clone());
        match known.get(&key) {
            // After a start the topics are not up to date yet.
            Some(found) if (found.born, found.since) > (work.born, work.since) => return Ok(()),
            Some(found) if (found.born, found.since) == (work.born, work.since) => {
                if found.id == log.id() {
                    return Ok(());
                }
                let detail = format!("log '{}' was deleted and recreated after it began to feed the topic", work.log);
                return Err(Code::FeedStopped.error(detail));
            }
            _ => {}
        }
        let (topic, log, id) = (work.topic.clone(), work.log.clone(), log.id());
        known.insert(key, Source { topic, log, born: work.born, since: work.since, id });
        let all: Vec<&Source> = known.values().collect();
        let payload = serde_json::to_vec(&all).map_err(|error| Code::HostInternal.error(error.to_string()))?;
        namespace.journal().commit(|tx| names::note(tx, &names::internal(LOG), HISTORY, &payload)).map(drop)
    }
}

fn read(namespace: &Namespace) -> Result<HashMap<(String, String), Source>> {
    let journal = namespace.journal();
    let catalog = journal.catalog()?;
    let Some(found) = catalog.log(LOG).filter(|log| log.latest() > 0) else { return Ok(HashMap::new()) };
    let mut payload = Vec::new();
    journal.get(found, found.latest(), &mut payload)?;
    let damaged = |error| Code::GroupLogDamaged.error(format!("log '{LOG}': {error}"));
    let all: Vec<Source> = serde_json::from_slice(&payload).map_err(damaged)?;
    Ok(all.into_iter().map(|source| ((source.topic.clone(), source.log.clone()), source)).collect())
}
