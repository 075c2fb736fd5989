//! What changes in a namespace, as server-sent events: one connection for a whole page.
//!
//! ```text
//!   rates    counters of logs, functions and flows that have changed since the last event
//!   record   new records of the logs that are asked for
//!   run      runs that are in the state that is asked for, and were not before
//!   state    which documents have changed
//! ```
//!
//! A frame is made when the client has received the one before, and has the newest counters: so a slow client gets fewer frames, and
//! occupies memory for one.

use super::{
    STEP_BYTES, Source, memory, respond,
    sampler::{Sampled, Samplers},
};
use crate::{
    documents::{Query, apart, invalid, shown},
    http::{
        api::{Rationed, bytes_of, rationed},
        response::Response,
        session::Session,
    },
    memory::Reservation,
};
use millrace_documents::{RecordDoc, RunDoc};
use millrace_node::{Access, EventId, Log, Namespace, RunFilter, RunState, documents};
use millrace_wire::{Code, Result};
use serde::Serialize;
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};
use tokio::time::{Instant, sleep_until};

/// How often counters are sent: the limits, and the default.
const PERIOD_MS: (u64, u64, u64) = (250, 60_000, 1000);
/// Most logs whose records are sent.
const LOGS_MAX: usize = 16;
/// Most records of a log in one frame; of more, the newest are sent.
const RECORDS_MAX: u64 = 50;
/// Most runs of one frame, and most that are remembered as sent.
const RUNS_MAX: usize = 20;
const RUNS_KNOWN_MAX: usize = 400;
/// Most counters of one kind in a frame; the others come with the next.
const COUNTERS_MAX: usize = 10_000;

/// What a client wants to hear.
#[derive(Clone)]
struct LiveAsk {
    period: Duration,
    /// The runs, and the state they are in; all that have ended, without one.
    runs: Option<Option<RunState>>,
}

/// What was sent.
#[derive(Default)]
struct Sent {
    logs: HashMap<String, (u32, u64)>,
    functions: HashMap<String, [u64; 3]>,
    edges: HashMap<String, u64>,
    runs: VecDeque<EventId>,
    /// The versions of documents.
    versions: Option<BTreeMap<&'static str, u64>>,
    /// The counters of the last frame, if it had all of them that had changed.
    sample: Option<Arc<Sampled>>,
}

struct Live {
    session: Session,
    namespace: String,
    wanted: LiveAsk,
    /// The logs whose records are sent, and the next record of each.
    followed: Vec<(String, Log, u64)>,
    /// Nothing before the first frame, and after one that was cut off: the next has all counters.
    sent: Option<Sent>,
    next: Instant,
}

#[derive(Default, Serialize)]
struct Rates {
    t: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    logs: BTreeMap<String, u64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    functions: BTreeMap<String, [u64; 3]>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    edges: BTreeMap<String, u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    more: bool,
}

#[derive(Serialize)]
struct Changed {
    changed: Vec<&'static str>,
}

/// Sends what changes, for as long as the client listens.
pub(in crate::http) async fn follow(session: &Session, namespace: &str, query: &str) -> Result<Response> {
    let mut query = Query::parse(query)?;
    let wanted = LiveAsk { period: period(&mut query)?, runs: runs(&mut query)? };
    let names = query.take("records").unwrap_or_default();
    query.finish()?;
    let names: Vec<&str> = names.split(',').filter(|name| !name.is_empty()).collect();
    if names.len() > LOGS_MAX {
        return Err(invalid(format!("parameter 'records' has more than {LOGS_MAX} logs")));
    }
    let access = session.access(namespace)?;
    if wanted.runs.is_some() || !access.sees_some() {
        // A caller who sees nothing is refused, and gets no empty frames.
        access.observes()?;
    }
    let mut followed = Vec::new();
    for name in names {
        let log = access.log(name, None).await?;
        let next = access.cursor(&log, 0, None).await?;
        followed.push((name.to_owned(), log, next));
    }
    let (session_, namespace) = (session.clone(), namespace.to_owned());
    Ok(respond(session, Live { session: session_, namespace, wanted, followed, sent: None, next: Instant::now() }))
}

fn period(query: &mut Query) -> Result<Duration> {
    let (least, most, usual) = PERIOD_MS;
    let Some(text) = query.take("rates") else { return Ok(Duration::from_millis(usual)) };
    let number = |digits: &str, scale: u64| digits.parse::<u64>().ok()?.checked_mul(scale);
    let ms = match text.strip_suffix("ms") {
        Some(digits) => number(digits, 1),
        None => text.strip_suffix('s').and_then(|digits| number(digits, 1000)),
    };
    ms.filter(|ms| (least..=most).contains(ms)).map(Duration::from_millis).ok_or_else(|| {
        invalid(format!("parameter 'rates' is '{}', not a duration from {least}ms to {}s", shown(&text), most / 1000))
    })
}

fn runs(query: &mut Query) -> Result<Option<Option<RunState>>> {
    Ok(match query.take("runs").as_deref() {
        None => None,
        Some("all") => Some(None),
        Some("dead") => Some(Some(RunState::Dead)),
        Some("started") => Some(Some(RunState::Started)),
        Some(other) => return Err(invalid(format!("'{}' is not all, dead or started", shown(other)))),
    })
}

/// Writes one event.
pub(super) fn event(text: &mut Vec<u8>, kind: &str, data: &impl Serialize) -> Result<()> {
    text.extend_from_slice(format!("event: {kind}\ndata: ").as_bytes());
    serde_json::to_writer(&mut *text, data)
        .map_err(|error| Code::HostInternal.error(format!("the event cannot be written as JSON: {error}")))?;
    text.extend_from_slice(b"\n\n");
    Ok(())
}

/// A record with how many before it were left out.
#[derive(Serialize)]
struct Record<'r> {
    #[serde(flatten)]
    record: RecordDoc<'r>,
    #[serde(skip_serializing_if = "is_zero")]
    skipped: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The counters and runs that are new; what was sent is brought up to date.
fn frame(
    samplers: &Samplers,
    namespace: &Namespace,
    access: &Access,
    wanted: &LiveAsk,
    sent: &mut Sent,
) -> Result<Vec<u8>> {
    let (t, sample) = samplers.sample(access.served().name(), namespace)?;
    let mut rates = Rates { t, ..Rates::default() };
    let mut versions = BTreeMap::from([("logs", sample.logs_version), ("repairs", 0), ("runs", 0), ("functions", 0)]);
    let sees_all = access.sees_all();
    let has_news = !sent.sample.as_ref().is_some_and(|last| Arc::ptr_eq(last, &sample));
    for (name, now) in sample.logs.iter().filter(|_| has_news) {
        if sent.logs.get(&**name) == Some(now) || !(sees_all || access.sees(name)) {
            continue;
        }
        if rates.logs.len() == COUNTERS_MAX {
            rates.more = true;
            continue;
        }
        sent.logs.insert(name.to_string(), *now);
        rates.logs.insert(name.to_string(), now.1);
    }
    if sees_all {
        let (functions, repairs, runs) = (sample.logs_version, sample.repairs_version, sample.runs_version);
        versions.extend([("functions", functions), ("repairs", repairs), ("runs", runs)]);
        for (name, now) in sample.functions.iter().filter(|_| has_news) {
            if sent.functions.get(&**name) != Some(now) && rates.functions.len() < COUNTERS_MAX {
                sent.functions.insert(name.to_string(), *now);
                rates.functions.insert(name.to_string(), *now);
            }
        }
        for (id, records) in sample.edges.iter().filter(|_| has_news) {
            if sent.edges.get(id) != Some(records) && rates.edges.len() < COUNTERS_MAX {
                sent.edges.insert(id.clone(), *records);
                rates.edges.insert(id.clone(), *records);
            }
        }
    }
    // What did not fit comes with the next frame, although no counter changes meanwhile.
    let is_all = !rates.more && rates.functions.len() < COUNTERS_MAX && rates.edges.len() < COUNTERS_MAX;
    sent.sample = is_all.then_some(sample);
    let mut text = Vec::new();
    event(&mut text, "rates", &rates)?;
    let is_first = sent.versions.is_none();
    let before = sent.versions.replace(versions.clone()).unwrap_or_default();
    let is_new = |name: &&&str| before.get(**name) != versions.get(**name);
    let changed: Vec<&'static str> = versions.keys().filter(is_new).copied().collect();
    if let Some(state) = wanted.runs.filter(|_| changed.contains(&"runs")) {
        let filter = RunFilter { state, limit: RUNS_MAX, ..RunFilter::default() };
        for run in namespace.runs_page(&filter)?.runs.iter().rev() {
            let is_ended = state.is_some() || run.ended.is_some();
            if !is_ended || sent.runs.contains(&run.id) {
                continue;
            }
            sent.runs.push_back(run.id);
            if sent.runs.len() > RUNS_KNOWN_MAX {
                sent.runs.pop_front();
            }
            if !is_first {
                let run: RunDoc = documents::run(run);
                event(&mut text, "run", &run)?;
            }
        }
    }
    if !is_first && !changed.is_empty() {
        event(&mut text, "state", &Changed { changed })?;
    }
    Ok(text)
}

impl Source for Live {
    fn cursor(&self) -> Option<String> {
        None
    }

    async fn grown(&mut self) -> Result<()> {
        sleep_until(self.next).await;
        Ok(())
    }

    async fn read(&mut self) -> Result<(Vec<u8>, Option<Reservation>)> {
        self.next = Instant::now() + self.wanted.period;
        // A capability may have expired, or was revoked, since the last frame.
        let access = self.session.access(&self.namespace)?;
        if !access.sees_some() {
            access.observes()?;
        }
        let (mut sent, wanted) = (self.sent.take().unwrap_or_default(), self.wanted.clone());
        let (of_thread, hosted) = (access.clone(), self.session.hosted.clone());
        let work = move || {
            of_thread.inspect_seen(|namespace| {
                let text = frame(&hosted.samplers, namespace, &of_thread, &wanted, &mut sent)?;
                Ok((sent, text))
            })
        };
        let held = apart(work).await?;
        let (sent, mut text) = held.await?;
        for (name, log, next) in &mut self.followed {
            let latest = log.latest();
            let from = (*next).max((latest + 1).saturating_sub(RECORDS_MAX)).max(log.earliest());
            let mut skipped = from - *next;
            if from > latest {
                log.check_exists()?;
                continue;
            }
            let held = access.range_of(log, from, RECORDS_MAX as u32, STEP_BYTES, None);
            let Rationed { value, reserved: _reserved, .. } = rationed(held, |records| bytes_of(records)).await;
            let records = match value {
                // They left the history meanwhile, or there is no room: what comes later tells how many are missing.
                Err(error) if matches!(error.code(), Code::BelowHistory | Code::HttpMemoryShort) => continue,
                records => records?,
            };
            for record in &records {
                event(&mut text, "record", &Record { record: documents::whole_record(name, record), skipped })?;
                skipped = 0;
                *next = record.seqno + 1;
            }
        }
        let bytes = text.len();
        let reserved = match Reservation::of(bytes) {
            Ok(reserved) => reserved,
            Err(_) => {
                // The next frame has all counters again.
                drop(text);
                memory::room_for(bytes).await?;
                return Ok((Vec::new(), None));
            }
        };
        self.sent = Some(sent);
        Ok((text, reserved))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_have_units_and_bounds() {
        let of = |text: &str| period(&mut Query::parse(&format!("rates={text}")).unwrap());
        assert_eq!(of("250ms").unwrap(), Duration::from_millis(250));
        assert_eq!(of("60s").unwrap(), Duration::from_secs(60));
        for text in ["", "1", "0s", "249ms", "61s", "-1s", "1m", "99999999999999999999s", "18446744073709551615s"] {
            assert!(of(text).is_err(), "{text}");
        }
    }
}
