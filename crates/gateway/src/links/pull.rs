//! Fetches: a relay from another host's log, whose cursor is stored here.

use super::{
    End, Link,
    line::{self, Answer, Line},
    pace::Pace,
};
use millrace_node::links::{self, Puller};
use millrace_wire::{
    Code, Result,
    protocol::{Credit, Document, Frame, Get, Latest, Life, Message, Record, Records, Seqno, Show, Tail},
};
use std::time::{Duration, Instant};

/// Records that may be on their way.
const CREDIT: u32 = 8192;
const PATIENCE: Duration = Duration::from_secs(30);
/// How often the other side is asked for the newest record of the source log and whether the log's own sources have changed.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How often it is looked whether the relay is still wanted.
const WANTED_EVERY: Duration = Duration::from_millis(200);

/// One connection, from the request for the state of the other side to its end.
pub(super) fn run(link: &Link, mut puller: Puller, pace: &mut Pace) -> Result<End> {
    let peer = puller.address().peer.clone();
    let clock = || link.namespace.journal().clock();
    let mut line = Line::connect(&peer, link.shared.ca.as_deref(), link.is_stopping(), |hang_up| link.opened(hang_up))?;
    let other = (line.other.namespace, line.other.epoch);
    let source = source(&mut line, puller.log()).map_err(|error| puller.missing(other.0, error))?;
    let newest = newest(&mut line, puller.log())?;
    let upstream = newest_of(&mut line, Puller::upstream_log())?;
    let (life, forked) = life(&mut line, puller.life()?)?;
    let mut from = puller.begin(links::Source {
        namespace: other.0,
        epoch: other.1,
        upstream: upstream.as_ref().map(|(_, note)| &**note),
        latest: newest,
        incarnation: source.incarnation,
        life,
        forked,
    })?;
    link.contact();
    link.live().newest = newest;
    pace.succeeded();
    if let Some(earliest) = source.earliest {
        from = puller.passed_by(earliest)?;
    }
    let incarnation = source.incarnation.unwrap_or(0);
    let tail = Tail { log: puller.log(), from, incarnation, credit: CREDIT, durability: None };
    let tail = line.send(clock(), &tail)?;
    line.flush()?;
    follow(link, &mut puller, &mut line, tail, upstream.map_or(0, |(number, _)| number))
}

/// A message of a connection that follows a log.
enum News {
    Taken { records: u64, bytes: u64, last: u64 },
    Refused(Duration, millrace_wire::Error),
    Newest(u64),
    Upstream(u64),
}

fn follow(link: &Link, puller: &mut Puller, line: &mut Line, tail: u64, upstream: u64) -> Result<End> {
    let epoch = line.other.epoch;
    let (mut looked, mut asked) = (Instant::now(), (0, 0));
    let mut wanted = Instant::now();
    while !link.shared.is_stopping() {
        if wanted.elapsed() >= WANTED_EVERY {
            wanted = Instant::now();
            if !puller.is_wanted()? {
                return Ok(End::Again);
            }
        }
        let clock = link.namespace.journal().clock();
        // Both were answered, however long the disk of the other side took.
        if looked.elapsed() >= LOOK_EVERY && asked == (0, 0) {
            looked = Instant::now();
            asked.0 = line.send(clock, &Latest { log: puller.log(), above: 0, wait_ms: 0, durability: None })?;
            let log = Puller::upstream_log();
            asked.1 = line.send(clock, &Latest { log, above: 0, wait_ms: 0, durability: None })?;
            line.flush()?;
        }
        let news = match line.answer(WANTED_EVERY, |frame| read(puller, epoch, asked, frame))? {
            Some(Answer::Taken(news)) => Some(news),
            // Over there nothing ever came from elsewhere. Of the log that is followed, the same means that it is gone.
            Some(Answer::Failed(request, error))
                if request == asked.1 && error.code() == Code::LogNotFound && upstream == 0 =>
            {
                asked.1 = 0;
                continue;
            }
            Some(Answer::Failed(_, error)) => return Err(error),
            None => None,
        };
        match news {
            None => {}
            Some(News::Taken { records, bytes, last }) => {
                link.well(records, bytes);
                if records == 0 {
                    continue; // It says where the tail stands.
                }
                let mut live = link.live();
                live.newest = live.newest.max(last);
                drop(live);
                line.send_as(tail, clock, &Credit { records: records as u32 }); // at most CREDIT
                line.flush()?;
            }
            Some(News::Refused(after, error)) => {
                link.pause(&error, after);
                return Ok(End::Again);
            }
            Some(News::Newest(newest)) => {
                asked.0 = 0;
                link.settled();
                link.contact();
                link.live().newest = newest;
            }
            Some(News::Upstream(number)) if number == upstream => asked.1 = 0,
            Some(News::Upstream(_)) => return Ok(End::Again),
        }
    }
    Ok(End::Gone)
}

fn read(puller: &mut Puller, epoch: u32, asked: (u64, u64), frame: &Frame<'_>) -> Result<News> {
    match frame.kind {
        Seqno::TYPE => {
            let seqno = frame.message::<Seqno>()?.seqno;
            Ok(if frame.heading.request == asked.0 { News::Newest(seqno) } else { News::Upstream(seqno) })
        }
        Records::TYPE => {
            let records: Records<'_> = frame.message()?;
            let bytes = records.records.iter().map(|record| record.data.len() as u64).sum();
            let (count, last) = (records.records.len() as u64, records.next.saturating_sub(1));
            let accepted = puller.take(epoch, &records)?;
            Ok(match accepted.value.refused {
                Some(refused) => {
                    let code = Code::from_id(&refused.code).unwrap_or(Code::LinkStopped);
                    let after = Duration::from_millis(refused.retry_after_ms.unwrap_or(0).into());
                    News::Refused(after, code.error(refused.detail))
                }
                None => News::Taken { records: count, bytes, last },
            })
        }
        kind => Err(Code::MessageUnexpected.error(format!("message of type {kind} while following a log"))),
    }
}

/// The newest record of the other side.
fn newest(line: &mut Line, log: &str) -> Result<u64> {
    line.send(millrace_wire::Hlc::default(), &Latest { log, above: 0, wait_ms: 0, durability: None })?;
    line.flush()?;
    line.receive(Instant::now() + PATIENCE, |frame| Ok(line::expect::<Seqno>(frame)?.seqno))
}

/// The newest record of a log of the runtime over there: its number and its bytes, if there is one.
fn newest_of(line: &mut Line, log: &str) -> Result<Option<(u64, Vec<u8>)>> {
    record(line, log, 0)
}

/// The life of the source, and whether `known` is none of its lives. A life that it no longer has may have been one.
fn life(line: &mut Line, known: Option<Life>) -> Result<(Option<Life>, bool)> {
    let log = Puller::lives_log();
    let found = |found: Option<(u64, Vec<u8>)>| found.and_then(|(number, id)| Puller::life_of(number, &id));
    let newest = found(newest_of(line, log)?);
    let forked = match (known, newest) {
        (Some(known), Some(newest)) if known.number > newest.number => true,
        (Some(known), Some(_)) => match record(line, log, known.number) {
            Ok(there) => found(there) != Some(known),
            Err(error) if error.code() == Code::BelowHistory => false,
            Err(error) => return Err(error),
        },
        _ => false,
    };
    Ok((newest, forked))
}

fn record(line: &mut Line, log: &str, seqno: u64) -> Result<Option<(u64, Vec<u8>)>> {
    let get = Get { log, seqno, wait_ms: 0, durability: None };
    line.send(millrace_wire::Hlc::default(), &get)?;
    line.flush()?;
    let note = line.receive(Instant::now() + PATIENCE, |frame| {
        let record: Record<'_> = line::expect(frame)?;
        Ok((record.seqno, record.data.to_vec()))
    });
    match note {
        Ok(note) => Ok(Some(note)),
        Err(error) if matches!(error.code(), Code::LogNotFound | Code::AboveTail) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The state of the source log.
struct Source {
    /// The oldest record.
    earliest: Option<u64>,
    /// Which log of its name it is.
    incarnation: Option<u32>,
}

fn source(line: &mut Line, log: &str) -> Result<Source> {
    let path = format!("logs/{log}");
    line.send(millrace_wire::Hlc::default(), &Show { path: &path })?;
    line.flush()?;
    line.receive(Instant::now() + PATIENCE, |frame| {
        let document: Document<'_> = line::expect(frame)?;
        let log: serde_json::Value = serde_json::from_str(document.json)
            .map_err(|error| Code::FrameMalformed.error(format!("the document of a log: {error}")))?;
        let incarnation = log["incarnation"].as_u64().and_then(|number| number.try_into().ok());
        Ok(Source { earliest: log["earliest"].as_u64(), incarnation })
    })
}
