//! Functions, relays and logs, changed by a namespace's files or by its host.

use super::{
    Place, Receipt,
    docs::{FunctionDoc, LinkDoc, RunDoc},
    local,
    remote::{Remote, segment},
};
use millrace_client::{AppendOptions as Asked, blocking::InvokedRun};
use millrace_documents::{ErrorDoc, RecordName, id_text};
use millrace_node::{
    AppendOptions, Backfilled, Code, EventId, Letters, LogName, Name, Namespace, RETRY_AFTER_MS, Result, Retried,
    RetriedAll, RunResult, Stretch, TimeField, documents, functions,
    links::{Links, RelayOptions, Resent},
    manage::{BackfilledDoc, Order, PassedOver, RetriedAllDoc, RetriedDoc, Stopped},
};
use serde::{Deserialize, de::DeserializeOwned};
use std::{
    collections::HashSet,
    thread,
    time::{Duration, Instant},
};

#[derive(Deserialize)]
struct Trimmed {
    dropped: u64,
    earliest: u64,
}

#[derive(Deserialize)]
struct Removed {
    given_up: u64,
}

#[derive(Deserialize)]
struct RelayLeft {
    change: String,
}

#[derive(Deserialize)]
struct ResumedDoc {
    #[serde(flatten)]
    relay: LinkDoc,
    passed_over: Option<PassedOver>,
}

#[derive(Deserialize)]
struct Dropped {
    dropped: u64,
}

fn reported(doc: &RetriedDoc) -> Retried {
    let RetriedDoc { dead, run, function, log, seqno, before } = doc.clone();
    Retried { dead, run, function, log, seqno, before }
}

/// Waits until a refused request may be retried; returns its error once the patience is over.
fn pause(stopped: &Stopped, began: Instant, patience: Duration) -> Result<()> {
    if began.elapsed() >= patience {
        let code = Code::from_id(&stopped.code).unwrap_or(Code::Busy);
        return Err(code.error(stopped.detail.clone()));
    }
    let after_ms = stopped.retry_after_ms.unwrap_or(RETRY_AFTER_MS);
    thread::sleep(Duration::from_millis(after_ms.into()).min(patience));
    Ok(())
}

impl Remote {
    /// Asks its host for a change.
    pub fn manage<T: DeserializeOwned>(&self, order: &Order) -> Result<T> {
        let text = self.client().manage(&order.text())?;
        let document = serde_json::from_str(&text);
        document.map_err(|error| Code::DocumentUnknown.error(format!("the result of the change: {error}")))
    }
}

impl Place {
    /// One function.
    pub fn function(&self, name: &str) -> Result<FunctionDoc> {
        match self {
            Place::Local(namespace) => {
                let found = local::functions(namespace)?.into_iter().find(|function| function.name == name);
                found.ok_or_else(|| Code::FunctionNotFound.error(format!("no function '{}'", name.escape_debug())))
            }
            Place::Remote(remote, _) => remote.document(&format!("functions/{}", segment(name))),
        }
    }

    /// Appends a record that runs a function, and says to which log. A host is asked for the end of the run, too, for `wait`; `None` if
    /// it has not ended then.
    pub fn invoke(
        &self,
        function: &Name,
        log: Option<&str>,
        payload: &[u8],
        wait: Duration,
    ) -> Result<(String, Receipt, Option<RunDoc>)> {
        match self {
            Place::Local(namespace) => {
                let (log, receipt) =
                    millrace_node::invoke::invoke(namespace, function, log, payload, AppendOptions::default())?;
                Ok((log, Receipt { seqno: receipt.seqno, id: receipt.id }, None))
            }
            Place::Remote(remote, _) if wait.is_zero() => {
                let (log, receipt) = remote.client().invoke_function(function, log, payload, Asked::default())?;
                Ok((log, Receipt { seqno: receipt.seqno, id: receipt.id }, None))
            }
            Place::Remote(remote, _) => {
                let wait_ms = u32::try_from(wait.as_millis()).unwrap_or(u32::MAX);
                let invoked = remote.client().call_function(function, log, payload, Asked::default(), wait_ms)?;
                let receipt = Receipt { seqno: invoked.receipt.seqno, id: invoked.receipt.id };
                let ended = invoked.run.filter(|_| invoked.has_ended()).map(|run| {
                    // Not every caller that may run a function may look at its runs.
                    self.run(run).unwrap_or_else(|_| of_answer(function, run, &invoked))
                });
                Ok((invoked.log, receipt, ended))
            }
        }
    }

    /// Has a dead letter's record run again.
    pub fn retry(&self, run: EventId, patience: Duration) -> Result<Retried> {
        match self {
            Place::Local(namespace) => namespace.retry_run(run, patience),
            Place::Remote(remote, _) => {
                let doc: RetriedDoc = remote.patiently(patience, || remote.manage(&Order::Retry { run }))?;
                Ok(reported(&doc))
            }
        }
    }

    /// The same for dead letters of a function; `progress` is called for each.
    pub fn retry_letters(
        &self,
        letters: Letters<'_>,
        patience: Duration,
        progress: &mut dyn FnMut(&Retried),
    ) -> Result<RetriedAll> {
        let remote = match self {
            Place::Local(namespace) => return namespace.retry_letters(letters, patience, &|_| Ok(()), progress),
            Place::Remote(remote, _) => remote,
        };
        let (began, mut first_before, mut heard) = (Instant::now(), None, HashSet::new());
        let (function, code) = (letters.function.clone(), letters.code.map(str::to_owned));
        let order = Order::RetryFunction { function, code };
        loop {
            let doc: RetriedAllDoc = remote.manage(&order)?;
            for run in doc.runs.iter().map(reported) {
                if heard.insert(run.dead) {
                    progress(&run);
                }
            }
            // Dead letters that an earlier part of this command retried do not count as retried before.
            let before = *first_before.get_or_insert(doc.before);
            match &doc.stopped {
                None => {
                    let (retried, lost, refused, gone) = (doc.retried, doc.lost, doc.refused, doc.gone);
                    return Ok(RetriedAll { retried, before, lost, refused, gone });
                }
                Some(stopped) => pause(stopped, began, patience)?,
            }
        }
    }

    /// Runs a function for existing records, and returns their log; `progress` gets the progress.
    pub fn backfill(
        &self,
        function: &Name,
        log: Option<&str>,
        stretch: Stretch,
        patience: Duration,
        progress: &mut dyn FnMut(Backfilled),
    ) -> Result<(String, Backfilled)> {
        let remote = match self {
            Place::Local(namespace) => {
                let log = match log {
                    Some(log) => log.to_owned(),
                    None => log_to_fill(namespace, function)?,
                };
                let done = namespace.backfill(function, &log, stretch, patience, progress)?;
                return Ok((log, done));
            }
            Place::Remote(remote, _) => remote,
        };
        let (mut began, mut done) = (Instant::now(), Backfilled::default());
        let Stretch { mut from, mut to, missed } = stretch;
        loop {
            let (function, log) = (function.clone(), log.map(str::to_owned));
            let part: BackfilledDoc = remote.manage(&Order::Backfill { function, log, from, to, missed })?;
            done.runs += part.runs;
            done.missing += part.missing;
            done.ran += part.ran;
            done.upto = done.upto.max(part.upto);
            progress(done);
            // Records that are appended meanwhile are not meant.
            to = Some(part.to);
            let Some(next) = part.next else { return Ok((part.log, done)) };
            if part.runs > 0 {
                began = Instant::now();
            }
            if let Some(stopped) = &part.stopped {
                pause(stopped, began, patience)?;
            }
            from = Some(next);
        }
    }

    /// Drops a log's records before one; how many, and the oldest that is left.
    pub fn trim_log(&self, name: &LogName, before: Option<u64>, force: bool) -> Result<(u64, u64)> {
        match self {
            Place::Local(namespace) => {
                let log = namespace.log(name)?;
                let earliest = log.earliest().max(1);
                let before = before.unwrap_or(log.latest() + 1);
                namespace.trim_log(name, before, force)?;
                Ok((before.saturating_sub(earliest), log.earliest()))
            }
            Place::Remote(remote, _) => {
                let Trimmed { dropped, earliest } =
                    remote.manage(&Order::TrimLog { log: name.clone(), before, force })?;
                Ok((dropped, earliest))
            }
        }
    }

    /// Says which field of a log's records has the time of the observation; returns whether this is a change.
    pub fn set_time_field(&self, name: &LogName, time: Option<&TimeField>) -> Result<bool> {
        #[derive(Deserialize)]
        struct Retimed {
            change: String,
        }
        match self {
            Place::Local(namespace) => namespace.set_time_field(name, time),
            Place::Remote(remote, _) => {
                let Retimed { change } = remote.manage(&Order::SetTime { log: name.clone(), time: time.cloned() })?;
                Ok(change == "updated")
            }
        }
    }

    /// Removes a function; how many pending runs were given up with it.
    pub fn remove_function(&self, name: &Name, force: bool) -> Result<u64> {
        match self {
            Place::Local(namespace) if force => functions::give_up(namespace, name),
            Place::Local(namespace) => functions::remove(namespace, name).map(|()| 0),
            Place::Remote(remote, _) => {
                let removed: Removed = remote.manage(&Order::RemoveFunction { function: name.clone(), force })?;
                Ok(removed.given_up)
            }
        }
    }

    /// The relays.
    pub fn relays(&self) -> Result<Vec<LinkDoc>> {
        Ok(self.links()?.into_iter().filter(|link| link.kind == "relay").collect())
    }

    /// The relay of this name.
    pub fn relay(&self, name: &str) -> Result<LinkDoc> {
        let found = self.relays()?.into_iter().find(|relay| relay.name == name);
        found.ok_or_else(|| Code::RelayNotFound.error(format!("no relay '{}'", name.escape_debug())))
    }

    /// Begins to forward one log to another.
    pub fn add_relay(&self, from: &str, to: &str, options: RelayOptions) -> Result<LinkDoc> {
        match self {
            Place::Local(namespace) => {
                let name = Links::of(namespace).add_relay(from, to, &options)?.name;
                self.relay(&name)
            }
            Place::Remote(remote, _) => {
                let RelayOptions { name, start, on_gap } = options;
                remote.manage(&Order::AddRelay { from: from.into(), to: to.into(), name, start, on_gap })
            }
        }
    }

    /// Stops forwarding; whether the relay is gone, or `leaving`.
    pub fn remove_relay(&self, name: &str, force: bool) -> Result<bool> {
        match self {
            Place::Local(namespace) => Links::of(namespace).remove_relay(name, force),
            Place::Remote(remote, _) => {
                let left: RelayLeft = remote.manage(&Order::RemoveRelay { name: name.into(), force })?;
                Ok(left.change == "removed")
            }
        }
    }

    /// Resumes a stopped relay; returns the records that it skips.
    pub fn resume_relay(&self, name: &str, skip: bool, start: Option<u64>) -> Result<(LinkDoc, Option<PassedOver>)> {
        match self {
            Place::Local(namespace) => {
                let resumed = Links::of(namespace).resume_relay(name, skip, start)?;
                let (records, lost) = (resumed.records(), resumed.lost);
                let passed = resumed.passed_over.map(|(first, last)| PassedOver { records, first, last, lost });
                Ok((self.relay(name)?, passed))
            }
            Place::Remote(remote, _) => {
                let resumed: ResumedDoc = remote.manage(&Order::ResumeRelay { name: name.into(), skip, start })?;
                Ok((resumed.relay, resumed.passed_over))
            }
        }
    }

    /// Gives the other side of a relay another address.
    pub fn set_relay(&self, name: &str, from: Option<&str>, to: Option<&str>) -> Result<LinkDoc> {
        match self {
            Place::Local(namespace) => {
                let links = Links::of(namespace);
                links.set_relay(&links.relay_at(name, from, to)?)?;
                self.relay(name)
            }
            Place::Remote(remote, _) => {
                let (name, from, to) = (name.to_owned(), from.map(str::to_owned), to.map(str::to_owned));
                remote.manage(&Order::SetRelay { name, from, to })
            }
        }
    }

    /// Gives a peer another address.
    pub fn set_outbox(&self, peer: &str, to: &str) -> Result<LinkDoc> {
        match self {
            Place::Local(namespace) => {
                let links = Links::of(namespace);
                let name = links.peer(peer)?.name;
                links.set_peer(&name, to)?;
                self.peer(&name)
            }
            Place::Remote(remote, _) => remote.manage(&Order::SetOutbox { peer: peer.into(), to: to.into() }),
        }
    }

    /// The peer of this name.
    pub fn peer(&self, name: &str) -> Result<LinkDoc> {
        let found = self.links()?.into_iter().find(|link| link.kind == "outbox" && link.name == name);
        found.ok_or_else(|| Code::PeerNotFound.error(format!("no peer '{}'", name.escape_debug())))
    }

    /// Restarts the stream to a peer. Returns how many messages were dropped.
    pub fn reset_outbox(&self, peer: &str, skip: bool) -> Result<u64> {
        match self {
            Place::Local(namespace) => Links::of(namespace).reset_outbox(peer, skip),
            Place::Remote(remote, _) => {
                let dropped: Dropped = remote.manage(&Order::ResetOutbox { peer: peer.into(), skip })?;
                Ok(dropped.dropped)
            }
        }
    }

    /// Sends the messages of a peer's dead letters again.
    pub fn retry_outbox(&self, peer: &str) -> Result<Resent> {
        match self {
            Place::Local(namespace) => Links::of(namespace).resend_letters(peer),
            Place::Remote(remote, _) => remote.manage(&Order::RetryOutbox { peer: peer.into() }),
        }
    }

    /// Forgets a peer; how many messages were dropped.
    pub fn remove_peer(&self, peer: &str, force: bool) -> Result<u64> {
        match self {
            Place::Local(namespace) => Links::of(namespace).remove_peer(peer, force),
            Place::Remote(remote, _) => {
                let dropped: Dropped = remote.manage(&Order::RemovePeer { peer: peer.into(), force })?;
                Ok(dropped.dropped)
            }
        }
    }
}

/// Links from a namespace's files, in the form of the host's documents.
pub fn local_links(namespace: &Namespace) -> Result<Vec<LinkDoc>> {
    Ok(namespace.inspect(|namespace| Links::of(namespace).view())?.iter().map(documents::link).collect())
}

/// The links of a namespace, from its files alone.
pub fn viewed_links(namespace: &Namespace) -> Result<Vec<LinkDoc>> {
    Ok(Links::of(namespace).view()?.iter().map(documents::link).collect())
}

/// What the answer to a caller says of its run.
fn of_answer(function: &Name, run: EventId, invoked: &InvokedRun) -> RunDoc {
    let (log, seqno) = (Some(invoked.log.clone()), invoked.receipt.seqno);
    let error = invoked.error.as_ref().map(|error| ErrorDoc {
        code: error.code().id().into(),
        detail: error.detail().into(),
        ..ErrorDoc::default()
    });
    RunDoc {
        id: run.to_string(),
        function: Some(function.to_string()),
        state: invoked.state.clone(),
        record: RecordName { log, seqno },
        cause: id_text(invoked.receipt.id),
        result: RunResult::of(&invoked.result).as_ref().map(documents::result),
        error,
        ..RunDoc::default()
    }
}

/// The one log that a function is bound to.
fn log_to_fill(namespace: &Namespace, function: &Name) -> Result<String> {
    let stat = namespace.functions()?.into_iter().find(|stat| stat.name == *function);
    let stat = stat.ok_or_else(|| Code::FunctionNotFound.error(format!("no function '{function}'")))?;
    match stat.definition?.spec.on.as_slice() {
        [log] => Ok(log.to_string()),
        [] => Err(Code::UsageInvalid.error(format!("function '{function}' is bound to no log; name one with --log"))),
        logs => {
            let logs = logs.iter().map(|log| &**log).collect::<Vec<_>>().join(", ");
            Err(Code::UsageInvalid.error(format!("function '{function}' is bound to {logs}; choose one with --log")))
        }
    }
}
