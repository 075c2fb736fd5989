//! Publishes the records of a log to a topic outside.
//!
//! One record is published at a time, after the one before it was acknowledged. So each is there once and in order, also after crashes.
//! The group of the topic learns how far the log is. What it does not know yet, the topic itself says: the last record of the log that it has.

use super::{Fed, FedRecord, Source, Streams};
use crate::cluster::{Shared, locked};
use millrace_wire::{Code, Error, Result};
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex},
};

/// The feeds of this host to topics outside: of a topic, the log and the entry that began the feed.
pub(in crate::cluster) type Feeds = Mutex<HashMap<(String, String, u64), Arc<Mutex<Progress>>>>;

/// The position of a feed.
#[derive(Default)]
pub(in crate::cluster) struct Progress {
    /// The last record that the topic has.
    fed: Fed,
    /// Whether the topic was asked, since something failed.
    is_known: bool,
    /// Whether an answer is awaited.
    is_busy: bool,
    waiting: VecDeque<FedRecord>,
    error: Option<Error>,
}

/// The next action for a feed.
pub(in crate::cluster) enum Turn {
    /// Nothing: an answer will wake the thread.
    Busy,
    /// Records behind this one are next; the topic has it.
    Behind(u64),
}

/// A feed, and what its answers need.
#[derive(Clone)]
pub(in crate::cluster) struct Feeding {
    shared: Arc<Shared>,
    streams: Arc<dyn Streams>,
    topic: String,
    source: Source,
    progress: Arc<Mutex<Progress>>,
}

impl Progress {
    pub fn is_busy(&self) -> bool {
        self.is_busy
    }
}

impl Feeding {
    pub fn of(shared: &Arc<Shared>, topic: &str, log: &str, since: u64) -> Result<Self> {
        let source = Source { host: shared.facts.host, since, log: log.to_owned() };
        let key = (topic.to_owned(), log.to_owned(), since);
        let progress = locked(&shared.fed_outside).entry(key).or_default().clone();
        let streams = shared.streams()?.clone();
        Ok(Self { shared: shared.clone(), streams, topic: topic.to_owned(), source, progress })
    }

    /// The next action, if the topic has the records up to `last` according to the group.
    pub fn turn(&self, last: u64) -> Result<Turn> {
        let mut progress = locked(&self.progress);
        if progress.is_busy {
            return Ok(Turn::Busy);
        }
        if let Some(error) = progress.error.take() {
            // Another record of the log came last: the next turn asks which.
            if error.code() != Code::FeedOutOfOrder {
                return Err(error);
            }
        }
        progress.fed.seqno = progress.fed.seqno.max(last);
        if progress.is_known {
            return Ok(Turn::Behind(progress.fed.seqno));
        }
        if let Some(trouble) = self.streams.trouble() {
            return Err(Code::NatsUnreachable.error(trouble));
        }
        progress.is_busy = true;
        drop(progress);
        let feeding = self.clone();
        self.streams.fed(&self.topic, &self.source, Box::new(move |fed| feeding.asked(fed)));
        Ok(Turn::Busy)
    }

    /// Publishes records behind those that the topic has.
    pub fn publish(&self, records: Vec<FedRecord>) {
        {
            let mut progress = locked(&self.progress);
            progress.waiting = records.into();
            progress.is_busy = true;
        }
        self.next();
    }

    fn asked(&self, fed: Result<Fed>) {
        {
            let mut progress = locked(&self.progress);
            progress.is_busy = false;
            match fed {
                Ok(Fed { seqno, index }) => {
                    progress.is_known = true;
                    // The record that the group knows may have left the history of the topic.
                    progress.fed = Fed { seqno: seqno.max(progress.fed.seqno), index };
                }
                Err(error) => progress.error = Some(error),
            }
        }
        self.shared.namespace.journal().wake();
    }

    fn next(&self) {
        let next = {
            let mut progress = locked(&self.progress);
            let next = progress.waiting.pop_front().map(|record| (record, progress.fed.index));
            progress.is_busy = next.is_some();
            next
        };
        let Some((record, behind)) = next else { return self.shared.namespace.journal().wake() };
        let (feeding, seqno) = (self.clone(), record.seqno);
        let published = move |outcome: Result<u64>| {
            {
                let mut progress = locked(&feeding.progress);
                match outcome {
                    Ok(index) => progress.fed = Fed { seqno, index },
                    Err(error) => {
                        *progress = Progress { fed: progress.fed, error: Some(error), ..Progress::default() };
                    }
                }
            }
            feeding.next();
        };
        self.streams.feed(&self.topic, &self.source, behind, record, Box::new(published));
    }
}
