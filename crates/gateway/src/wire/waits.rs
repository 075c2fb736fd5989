//! The waiting requests of a connection: tails, blocking reads, and long calls.

use super::requests::{Answer, RECORDS_MAX_BYTES, Rationed};
use crate::{
    Hosted,
    invoked::{self, Invocation},
    memory::{self, Reservation, SMALL_BYTES},
};
use futures_util::{
    FutureExt, StreamExt,
    future::{AbortHandle, Abortable, BoxFuture},
    stream::FuturesUnordered,
};
use millrace_node::{
    Access, Answer as Returned, CallRight, Durability, Gated, Log, Record, Waiting, manage::uploads::Uploads,
};
use millrace_wire::{Code, Result, protocol::Tail};
use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout, timeout_at},
};

/// Records of one message of a tail.
const TAIL_RECORDS: u32 = 1024;
/// Of all that a connection waits for, so much is read and held at the gate at once.
const PERMITS: usize = 16;
/// How often the capability of a call that waits is looked at.
const RIGHT_LOOK: Duration = Duration::from_secs(2);

type Step = BoxFuture<'static, Result<Answer>>;
/// A step, and the request that it is for.
type Running = Abortable<BoxFuture<'static, (u64, Result<Answer>)>>;

/// The waits, by request.
#[derive(Default)]
pub(crate) struct Waits {
    running: FuturesUnordered<Running>,
    aborts: HashMap<u64, AbortHandle>,
    tails: HashMap<u64, Follow>,
    permits: Option<Permits>,
}

/// A waiting request has no memory; before it reads, it takes a turn.
pub(super) type Permits = Arc<Semaphore>;

/// A tail.
struct Follow {
    access: Access,
    /// The log, once it is known where the tail begins.
    log: Arc<OnceLock<Log>>,
    next: u64,
    credit: u32,
    durability: Option<Durability>,
    /// A step of it is running.
    running: bool,
}

impl Waits {
    pub fn len(&self) -> usize {
        self.aborts.len() + self.tails.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The turns of this connection's waiting requests.
    pub fn permits(&mut self) -> Permits {
        self.permits.get_or_insert_with(|| Arc::new(Semaphore::new(PERMITS))).clone()
    }

    /// Waits for something under this request.
    pub fn add(&mut self, request: u64, step: impl Future<Output = Result<Answer>> + Send + 'static) -> Result<()> {
        if request == 0 || self.aborts.contains_key(&request) || self.tails.contains_key(&request) {
            return Err(Code::MessageUnexpected.error(format!("request {request} is in use")));
        }
        self.run(request, step.boxed());
        Ok(())
    }

    fn run(&mut self, request: u64, step: Step) {
        let (abort, registration) = AbortHandle::new_pair();
        let step = step.map(move |outcome| (request, outcome)).boxed();
        self.running.push(Abortable::new(step, registration));
        self.aborts.insert(request, abort);
    }

    /// Follows a log.
    pub fn follow(&mut self, request: u64, access: &Access, tail: &Tail<'_>) -> Result<()> {
        if request == 0 || self.aborts.contains_key(&request) || self.tails.contains_key(&request) {
            return Err(Code::MessageUnexpected.error(format!("request {request} is in use")));
        }
        let (log, credit, durability) = (Arc::default(), tail.credit, tail.durability);
        let begin =
            begin(access.clone(), tail.log.to_owned(), tail.incarnation, tail.from, durability, Arc::clone(&log));
        self.run(request, begin.boxed());
        let (access, next) = (access.clone(), tail.from);
        self.tails.insert(request, Follow { access, log, next, credit, durability, running: true });
        Ok(())
    }

    /// Lets a tail send this number of additional records.
    pub fn credit(&mut self, request: u64, records: u32) {
        if let Some(tail) = self.tails.get_mut(&request) {
            tail.credit = tail.credit.saturating_add(records);
            self.go_on(request);
        }
    }

    /// Ends what runs under this request; whether anything did.
    pub fn cancel(&mut self, request: u64) -> bool {
        let abort = self.aborts.remove(&request);
        if let Some(abort) = &abort {
            abort.abort();
        }
        self.tails.remove(&request).is_some() || abort.is_some()
    }

    /// Ends all tails and everything that waits for something to happen.
    pub fn end(&mut self) {
        self.aborts.drain().for_each(|(_, abort)| abort.abort());
        self.tails.clear();
    }

    /// Starts the next step of a tail that has credit.
    fn go_on(&mut self, request: u64) {
        let Some(tail) = self.tails.get_mut(&request) else { return };
        if tail.running || tail.credit == 0 {
            return;
        }
        let Some(log) = tail.log.get().cloned() else { return };
        tail.running = true;
        let (access, next, durability) = (tail.access.clone(), tail.next, tail.durability);
        let count = tail.credit.min(TAIL_RECORDS);
        let permits = self.permits();
        self.run(request, follow(permits, access, log, next, count, durability).boxed());
    }

    /// The next answer that is there.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<(u64, Result<Answer>)>> {
        loop {
            match self.running.poll_next_unpin(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(Err(_aborted))) => {}
                Poll::Ready(Some(Ok((request, outcome)))) => {
                    self.aborts.remove(&request);
                    self.stepped(request, &outcome);
                    return Poll::Ready(Some((request, outcome)));
                }
            }
        }
    }

    fn stepped(&mut self, request: u64, outcome: &Result<Answer>) {
        let Some(tail) = self.tails.get_mut(&request) else { return };
        match outcome {
            Ok(Answer::Records { records, next, .. }) => {
                tail.next = *next;
                tail.credit -= (records.len() as u32).min(tail.credit);
                tail.running = false;
                self.go_on(request);
            }
            _ => drop(self.tails.remove(&request)),
        }
    }
}

/// The beginning of a tail: no records, but its position, so that a client can always resume there.
async fn begin(
    access: Access,
    name: String,
    incarnation: u32,
    from: u64,
    durability: Option<Durability>,
    found: Arc<OnceLock<Log>>,
) -> Result<Answer> {
    let log = access.log(&name, durability).await?;
    if incarnation != 0 && incarnation != log.id() {
        let anew = Code::CursorIncarnation.error(format!("log '{name}' was deleted and recreated"));
        return access.refuse(anew, durability).await;
    }
    let next = access.cursor(&log, from, durability).await?;
    let log = found.get_or_init(|| log);
    Ok(Answer::Records { incarnation: log.id(), records: Vec::new(), next })
}

/// One step of a tail: waits until there is something, and reads it through the gate.
async fn follow(
    permits: Permits,
    access: Access,
    log: Log,
    next: u64,
    count: u32,
    durability: Option<Durability>,
) -> Result<Answer> {
    let next = access.beyond_voids(&log, next)?;
    if log.latest() < next {
        access.growth(&log, next - 1).await;
    }
    let mut bytes_max = RECORDS_MAX_BYTES;
    loop {
        let answer = |records: Vec<Record>| {
            let next = records.last().map_or(next, |last| last.seqno + 1);
            Answer::Records { incarnation: log.id(), records, next }
        };
        match with_permit(&permits, || access.range_of(&log, next, count, bytes_max, durability).map(answer)).await? {
            // It was released again. Small records need no memory; large ones are read once there may be some.
            Answer::Refused(..) if bytes_max > SMALL_BYTES => bytes_max = SMALL_BYTES / 2,
            Answer::Refused(_, bytes) => memory::room_for(bytes).await?,
            answer => return Ok(answer),
        }
    }
}

/// Reads something through the gate, while not too many others do for the same connection.
async fn with_permit(permits: &Permits, read: impl FnOnce() -> Gated<Answer>) -> Result<Answer> {
    let _permit = permits.acquire().await;
    let Rationed { held, reserved, .. } = Rationed::of(read());
    let answer = held.await;
    drop(reserved);
    answer
}

/// Reads a record once it exists; after `wait_ms` the answer is what it is.
pub(super) async fn get(
    permits: Permits,
    access: Access,
    log: String,
    seqno: u64,
    wait_ms: u32,
    durability: Option<Durability>,
) -> Result<Answer> {
    let found = access.log(&log, durability).await?;
    // In time or not, what there is to say is read.
    let _ = timeout(Duration::from_millis(wait_ms.into()), access.growth(&found, seqno.max(1) - 1)).await;
    with_permit(&permits, || access.get(&log, seqno, durability).map(Answer::Record)).await
}

/// Tells what a call came to that waits; after `wait_ms`, that it still does. Meanwhile its session does not end, so the capability that
/// it was asked with is looked at again and again.
pub(super) async fn called(
    access: Access,
    mut waiting: Waiting,
    right: Option<CallRight>,
    wait_ms: u32,
) -> Result<Answer> {
    let until = Instant::now() + Duration::from_millis(wait_ms.into());
    loop {
        let step = match right {
            Some(_) => until.min(Instant::now() + RIGHT_LOOK),
            None => until,
        };
        let called = timeout_at(step, &mut waiting).await;
        right.as_ref().map_or(Ok(()), |right| access.still_may(right))?;
        match called {
            Ok(called) => {
                let (called, upto) = called?;
                let answer: Returned = called.into();
                return access.reported(answer, upto).await.map(Answer::Returned);
            }
            Err(_) if step == until => return Ok(Answer::Returned(Returned { incarnation: 0, reply: None })),
            Err(_) => {}
        }
    }
}

/// Runs a function, and answers with what its run came to; after `wait_ms`, that it has not ended.
pub(super) async fn invoke(
    access: Access,
    invocation: Invocation<Vec<u8>>,
    wait_ms: u32,
    reserved: Option<Reservation>,
) -> Result<Answer> {
    let wait = Duration::from_millis(wait_ms.into());
    let invoked = invoked::invoke(&access, invocation, wait, std::future::pending::<()>()).await;
    drop(reserved);
    invoked.map(|invoked| Answer::InvokedRun(Box::new(invoked)))
}

/// Answers with the newest seqno once it is above another one, or after `wait_ms`.
pub(super) async fn latest(
    access: Access,
    log: String,
    above: u64,
    wait_ms: u32,
    durability: Option<Durability>,
) -> Result<Answer> {
    let found = access.log(&log, durability).await?;
    let _ = timeout(Duration::from_millis(wait_ms.into()), access.growth(&found, above)).await;
    access.latest(&log, durability).await.map(Answer::Seqno)
}

/// Asks something of repairs, on a thread that may wait.
pub(super) async fn repair(
    (hosted, permits): (Arc<Hosted>, Permits),
    access: Access,
    json: String,
    reserved: Option<Reservation>,
) -> Result<Answer> {
    let _permit = permits.acquire().await;
    let document = crate::documents::ask_repair(&hosted, access, json).await;
    drop(reserved);
    document.map(Answer::Document)
}

/// Does what is asked of functions, relays and logs, on a thread that may wait.
pub(super) async fn manage(
    (hosted, permits): (Arc<Hosted>, Permits),
    (access, uploads): (Access, Arc<Uploads>),
    json: String,
    reserved: Option<Reservation>,
) -> Result<Answer> {
    let _permit = permits.acquire().await;
    let document = crate::documents::manage(&hosted, access, json, Some(uploads)).await;
    drop(reserved);
    document.map(Answer::Document)
}

/// Redeems the invitation of this connection, on a thread that may wait.
pub(super) async fn redeem(hosted: Arc<Hosted>, permits: Permits, access: Access) -> Result<Answer> {
    let _permit = permits.acquire().await;
    hosted.define(access, Access::redeem).await.map(Answer::Capability)
}

/// Waits for a change that another thread makes.
pub(super) async fn changed(permits: Permits, change: impl Future<Output = Result<()>>) -> Result<Answer> {
    let _permit = permits.acquire().await;
    change.await.map(|()| Answer::Done)
}
