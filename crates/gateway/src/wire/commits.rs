//! Requests that commit: executed at once if no other client has to wait for them, and otherwise on the committing thread of the namespace.

use super::{
    connection::Connection,
    requests::{Answer, LINKS_MAX},
};
use crate::turns;
use millrace_node::{
    Access, AppendOptions, BATCH_RECORDS_MAX, Durability, Gated, SUBMISSION_PATIENCE, Submitted, links::Inbound,
};
use millrace_wire::{
    Code, Result,
    protocol::{Append, AppendMany, Deliver, FRAME_MAX_BYTES, Frame, Link, Table, split},
    table::TableRequest,
};
use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
};
use tokio::time::{Instant, Sleep, sleep_until};

/// A stream that a request opens, and the sender's epoch; empty until the opening is committed.
pub(super) type Stream = Arc<OnceLock<(Inbound, u32)>>;
/// The maximum number of submissions of one connection that are not committed yet; at that number, nothing more is read from it.
const SUBMITTED_MAX: usize = 256;

/// The commits that a connection has submitted, in order.
#[derive(Default)]
pub(super) struct Commits {
    submitted: VecDeque<Submission>,
    bytes: usize,
    /// The time at which the oldest one has waited too long.
    overdue: Option<Pin<Box<Sleep>>>,
}

struct Submission {
    request: u64,
    answer: Submitted<Answer>,
    bytes: usize,
    due: Instant,
}

impl Commits {
    pub fn len(&self) -> usize {
        self.submitted.len()
    }

    pub fn is_empty(&self) -> bool {
        self.submitted.is_empty()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn is_full(&self) -> bool {
        self.submitted.len() >= SUBMITTED_MAX
    }

    fn add(&mut self, request: u64, answer: Submitted<Answer>, bytes: usize) {
        let due = Instant::now() + SUBMISSION_PATIENCE;
        self.bytes += bytes;
        // A later request may be released earlier, so this one has to report as soon as it is done.
        if let Some(before) = self.submitted.back() {
            before.answer.be_followed();
        }
        self.submitted.push_back(Submission { request, answer, bytes, due });
    }

    /// The next committed one.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<(u64, Gated<Answer>)> {
        let Some(oldest) = self.submitted.front_mut() else { return Poll::Pending };
        let Poll::Ready(held) = Pin::new(&mut oldest.answer).poll(cx) else { return Poll::Pending };
        let (request, bytes) = (oldest.request, oldest.bytes);
        self.submitted.pop_front();
        self.bytes -= bytes;
        self.overdue = None;
        Poll::Ready((request, held))
    }

    /// A request that has waited too long and has not begun; it will not be executed.
    pub fn poll_overdue(&mut self, cx: &mut Context<'_>) -> Option<u64> {
        let due = self.submitted.front()?.due;
        let overdue = self.overdue.get_or_insert_with(|| Box::pin(sleep_until(due)));
        if overdue.as_mut().poll(cx).is_pending() {
            return None;
        }
        let now = Instant::now();
        // A request that has begun is reported by the thread that executes it.
        let at = self.submitted.iter_mut().position(|submission| submission.due <= now && submission.answer.cancel());
        let Some(given_up) = at.and_then(|at| self.submitted.remove(at)) else {
            if let Some(next) = self.submitted.iter().map(|submission| submission.due).find(|due| *due > now) {
                overdue.as_mut().reset(next);
                cx.waker().wake_by_ref();
            }
            return None;
        };
        self.bytes -= given_up.bytes;
        Some(given_up.request)
    }
}

/// A request that commits, executed here or by the committing thread.
type Act = fn(&Access, &Frame<'_>) -> Result<Gated<Answer>>;

impl Connection {
    /// Executes a request that commits: `raw` are the bytes of its frame.
    pub(super) fn commit(&mut self, access: &Access, frame: &Frame<'_>, raw: &[u8], act: Act) -> Result<()> {
        self.commit_with(access, frame, raw, act)
    }

    pub(super) fn commit_with(
        &mut self,
        access: &Access,
        frame: &Frame<'_>,
        raw: &[u8],
        act: impl Fn(&Access, &Frame<'_>) -> Result<Gated<Answer>> + Send + 'static,
    ) -> Result<()> {
        let (request, began) = (frame.heading.request, std::time::Instant::now());
        // Writes through a mapping wait for the disk only when every write does.
        let others = access.served().facts().durability() == Durability::Memory;
        if self.commits.is_empty()
            && let Some(_waiting) = turns::may_wait(others)
        {
            let mut malformed = None;
            let held = access.now(|access| {
                act(access, frame).unwrap_or_else(|error| {
                    malformed = Some(error.clone());
                    access.refuse(error, None)
                })
            });
            if let Some(error) = malformed {
                return Err(error);
            }
            if let Some(held) = held {
                self.answer(request, held.map(move |answer| answer.since(began)));
                return Ok(());
            }
        }
        self.submit(access, frame, raw, act);
        Ok(())
    }

    /// The same, never executed here: it may commit several batches.
    pub(super) fn submit(
        &mut self,
        access: &Access,
        frame: &Frame<'_>,
        raw: &[u8],
        act: impl Fn(&Access, &Frame<'_>) -> Result<Gated<Answer>> + Send + 'static,
    ) {
        let (request, began) = (frame.heading.request, std::time::Instant::now());
        let bytes = raw.to_vec();
        let submitted = access.submit(move |access| {
            let acted = split(&bytes, FRAME_MAX_BYTES).and_then(|frame| match frame {
                Some((frame, _)) => act(access, &frame),
                None => Err(Code::HostInternal.error("the frame is incomplete")),
            });
            acted.unwrap_or_else(|error| access.refuse(error, None)).map(move |answer| answer.since(began))
        });
        self.commits.add(request, submitted, raw.len());
    }

    pub(super) fn link(&mut self, access: &Access, frame: &Frame<'_>, raw: &[u8]) -> Result<()> {
        if self.inbound.len() >= LINKS_MAX && !self.inbound.contains_key(&frame.heading.request) {
            return Err(Code::LinksFull.error(format!("{LINKS_MAX} streams are open on this connection")));
        }
        // Deliveries of the stream may follow at once: they are committed after this, when the stream exists.
        let stream = Stream::default();
        self.inbound.insert(frame.heading.request, stream.clone());
        self.commit_with(access, frame, raw, move |access, frame| {
            let link: Link<'_> = frame.message()?;
            Ok(access.link(&link).map(|(inbound, linked)| {
                // It is opened only once, so an existing one is the same.
                let _ = stream.set((inbound, link.epoch));
                Answer::Linked(linked)
            }))
        })
    }

    pub(super) fn deliver(&mut self, access: &Access, frame: &Frame<'_>, raw: &[u8]) -> Result<()> {
        let link = frame.message::<Deliver<'_>>()?.link;
        let unopened = move || Code::MessageUnexpected.error(format!("request {link} opened no stream"));
        let stream = self.inbound.get(&link).cloned().ok_or_else(unopened)?;
        self.commit_with(access, frame, raw, move |access, frame| {
            let Some((inbound, epoch)) = stream.get() else { return Ok(access.refuse(unopened(), None)) };
            let deliver: Deliver<'_> = frame.message()?;
            Ok(access.deliver(inbound, *epoch, &deliver).map(Answer::Delivered))
        })
    }
}

pub(super) fn append(access: &Access, frame: &Frame<'_>) -> Result<Gated<Answer>> {
    let Append { log, data, durability, function, key, fence } = frame.message()?;
    let options = AppendOptions { durability, function, key, fence, ..options(frame) };
    Ok(access.append(log, data, options).map(|receipt| Answer::Appended(receipt, None)))
}

pub(super) fn table(access: &Access, frame: &Frame<'_>) -> Result<Gated<Answer>> {
    let Table { table, request, durability, fence, .. } = frame.message()?;
    let options = AppendOptions { durability, fence, ..options(frame) };
    let request = TableRequest::decode(request)?;
    Ok(access.ask_table(table, &request, options).map(|answer| Answer::OfTable(answer.encode(), answer.token)))
}

pub(super) fn append_many(access: &Access, frame: &Frame<'_>) -> Result<Gated<Answer>> {
    let AppendMany { records, durability, key, fence } = frame.message()?;
    if records.len() > BATCH_RECORDS_MAX {
        let count = records.len();
        return Err(Code::ValueInvalid.error(format!("{count} records in one batch; the limit is {BATCH_RECORDS_MAX}")));
    }
    let records: Vec<(&str, &[u8])> = records.iter().map(|record| (record.log, record.data)).collect();
    let options = AppendOptions { durability, key, fence, ..options(frame) };
    Ok(access.append_many(&records, options).map(|receipts| Answer::AppendedMany(receipts, None)))
}

pub(super) fn invoke(access: &Access, frame: &Frame<'_>) -> Result<Gated<Answer>> {
    Ok(access.invoke(&frame.message()?).map(Answer::Invoked))
}

pub(super) fn invoke_function(access: &Access, frame: &Frame<'_>) -> Result<Gated<Answer>> {
    let invoked = access.invoke_function(&frame.message()?, options(frame));
    Ok(invoked.map(|(log, receipt)| Answer::InvokedFunction(log, receipt)))
}

pub(super) fn revoke(access: &Access, frame: &Frame<'_>) -> Result<Gated<Answer>> {
    Ok(access.revoke(&frame.message()?).map(Answer::Revoked))
}

fn options(frame: &Frame<'_>) -> AppendOptions<'static> {
    AppendOptions { cause: frame.heading.cause, clock: frame.heading.hlc, ..AppendOptions::default() }
}
