//! Turns messages into calls of `Access`, and their results into messages.

use super::{REQUESTS_MAX, SOFTWARE, commits, connection::Connection, devices::DeviceRequest, failure, tables, waits};
use crate::{
    admission::refused,
    documents,
    invoked::{Invocation, Invoked},
    memory::{self, Reservation, SMALL_BYTES},
};
use millrace_node::{
    Access, Answered, Gated, Receipt, Record, RunResult,
    replicas::{Batches, Loaded},
    secrets::random_id,
    token::{Binding, Proof, Token, Way},
};
use millrace_wire::{
    Code, Error, EventId, Result,
    protocol::{
        self, Append, AppendMany, Appended, AppendedMany, Cancel, CancelRun, Challenge, CreateLog, Credit, Deliver,
        Delivered, Document, Done, Ended, FRAME_MAX_BYTES, FRAME_OVERHEAD_BYTES, Frame, Get, Heading, Hello,
        InvokeFunction, InvokedFunction, Latest, Link, Linked, Manage, Message, Offer, Ping, Pong, Present, Range,
        Records, Redeem, Redeemed, RemoveLog, Repair, SLOTS, Seqno, SetLog, Show, Tail, Upload, VERSION, Welcome,
        encode,
    },
    table::TableRequest,
};
use std::time::{Duration, Instant};

/// Records of one answer, in bytes, unless the first alone is longer.
pub(super) const RECORDS_MAX_BYTES: usize = 1 << 20;
/// And how many: however short they are, an answer fits a frame, and no loop reads for long.
pub(super) const RECORDS_MAX: u32 = 10_000;
/// Streams from other namespaces over one connection.
pub(super) const LINKS_MAX: usize = 256;
/// The longest record that fits a frame.
const RECORD_MAX_BYTES: usize = FRAME_MAX_BYTES - FRAME_OVERHEAD_BYTES;

/// The answer to a request.
pub(crate) enum Answer {
    /// And when it was asked for.
    Appended(Receipt, Option<Instant>),
    /// The log that was appended to, too.
    InvokedFunction(String, Receipt),
    /// The same with its run.
    InvokedRun(Box<Invoked>),
    AppendedMany(Vec<Receipt>, Option<Instant>),
    Record(Record),
    Records {
        incarnation: u32,
        records: Vec<Record>,
        next: u64,
    },
    Seqno(u64),
    /// And its token.
    OfTable(Vec<u8>, EventId),
    TableBatches(Batches),
    LoadedTable(Loaded),
    Document(String),
    Capability(Token),
    Linked(Linked),
    Delivered(Delivered),
    Attached(protocol::Attached),
    Entered(protocol::Entered),
    /// A request to the device, in place of an answer.
    ToDevice(DeviceRequest),
    Opened(protocol::Opened),
    Returned(millrace_node::Answer),
    Invoked(u64),
    Revoked(bool),
    Pong,
    Done,
    Ended,
    /// There was no memory for it, and how many bytes it would have had.
    Refused(Error, usize),
}

impl Answer {
    /// The same, of an append that was asked for then.
    pub(super) fn since(self, began: Instant) -> Self {
        match self {
            Answer::Appended(receipt, _) => Answer::Appended(receipt, Some(began)),
            Answer::AppendedMany(receipts, _) => Answer::AppendedMany(receipts, Some(began)),
            other => other,
        }
    }

    /// How long ago the append was asked for that this answers.
    pub(super) fn took(&self) -> Option<Duration> {
        match self {
            Answer::Appended(_, began) | Answer::AppendedMany(_, began) => began.map(|began| began.elapsed()),
            _ => None,
        }
    }

    /// About how much memory it takes.
    fn bytes(&self) -> usize {
        match self {
            Answer::Record(record) => record.payload.len(),
            Answer::Records { records, .. } => records.iter().map(|record| record.payload.len() + 64).sum(),
            Answer::Document(json) => json.len(),
            Answer::OfTable(bytes, _) => bytes.len(),
            Answer::TableBatches(batches) => tables::bytes(&batches.records),
            Answer::LoadedTable(loaded) => tables::bytes(&loaded.records),
            Answer::InvokedRun(invoked) => invoked.run.result.as_ref().map_or(0, |result| result.bytes.len()),
            Answer::AppendedMany(receipts, _) => receipts.len() * 32,
            Answer::Returned(millrace_node::Answer { reply: Some(Ok(value)), .. }) => value.len(),
            _ => 0,
        }
    }
}

/// An answer at the gate and its memory meanwhile; if there is none left, a refusal instead.
pub(super) struct Rationed {
    pub held: Gated<Answer>,
    pub bytes: usize,
    pub reserved: Option<Reservation>,
}

impl Rationed {
    pub fn of(held: Gated<Answer>) -> Self {
        let (mut bytes, mut reserved) = (0, None);
        let held = held.map(|answer| match Reservation::of(answer.bytes()) {
            Ok(room) => {
                (bytes, reserved) = (answer.bytes(), room);
                answer
            }
            Err(error) => Answer::Refused(error, answer.bytes()),
        });
        Self { held, bytes, reserved }
    }
}

/// Writes an answer or the failure in its place.
pub(super) fn answer(out: &mut Vec<u8>, heading: Heading, outcome: Result<Answer>) {
    match outcome {
        Ok(Answer::Appended(Receipt { seqno, id, .. }, _)) => encode(out, heading, &Appended { seqno, id }),
        Ok(Answer::InvokedFunction(log, Receipt { seqno, id, .. })) => {
            encode(out, heading, &InvokedFunction { log: &log, seqno, id, ..InvokedFunction::default() });
        }
        Ok(Answer::InvokedRun(invoked)) => invoked_run(out, heading, &invoked),
        Ok(Answer::AppendedMany(receipts, _)) => {
            let records = receipts.iter().map(|receipt| Appended { seqno: receipt.seqno, id: receipt.id }).collect();
            encode(out, heading, &AppendedMany { records });
        }
        Ok(Answer::Record(record)) => encode(out, heading, &borrowed(&record)),
        Ok(Answer::Records { incarnation, records, next }) => {
            encode(out, heading, &Records { incarnation, records: records.iter().map(borrowed).collect(), next });
        }
        Ok(Answer::Seqno(seqno)) => encode(out, heading, &Seqno { seqno }),
        Ok(Answer::OfTable(bytes, token)) => encode(out, heading, &protocol::OfTable { answer: &bytes, token }),
        Ok(Answer::TableBatches(batches)) => tables::batches(out, heading, &batches),
        Ok(Answer::LoadedTable(loaded)) => tables::loaded(out, heading, &loaded),
        Ok(Answer::Document(json)) => encode(out, heading, &Document { json: &json }),
        Ok(Answer::Capability(token)) => encode(out, heading, &Redeemed { capability: &token.to_bytes() }),
        Ok(Answer::Linked(linked)) => encode(out, heading, &linked),
        Ok(Answer::Delivered(delivered)) => encode(out, heading, &delivered),
        Ok(Answer::Attached(attached)) => encode(out, heading, &attached),
        Ok(Answer::Entered(entered)) => encode(out, heading, &entered),
        Ok(Answer::ToDevice(asked)) => asked.write(out, heading),
        Ok(Answer::Opened(opened)) => encode(out, heading, &opened),
        Ok(Answer::Returned(answer)) => returned(out, heading, &answer),
        Ok(Answer::Invoked(first)) => encode(out, heading, &protocol::Invoked { first }),
        Ok(Answer::Revoked(cancelled)) => encode(out, heading, &protocol::Revoked { cancelled }),
        Ok(Answer::Pong) => encode(out, heading, &Pong {}),
        Ok(Answer::Done) => encode(out, heading, &Done {}),
        Ok(Answer::Ended) => encode(out, heading, &Ended {}),
        Ok(Answer::Refused(error, _)) | Err(error) => encode(out, heading, &failure(&error)),
    }
}

fn borrowed(record: &Record) -> protocol::Record<'_> {
    let Record { seqno, id, hlc, cause, payload, headers } = record;
    protocol::Record { seqno: *seqno, id: *id, hlc: *hlc, cause: *cause, data: payload, headers: headers.bytes() }
}

/// Writes a run that was invoked.
fn invoked_run(out: &mut Vec<u8>, heading: Heading, Invoked { log, receipt, run }: &Invoked) {
    let (seqno, id) = (receipt.seqno, receipt.id);
    let (result, error) = match millrace_node::invoke::answer(run) {
        Ok(result) => (result.map(RunResult::to_bytes).unwrap_or_default(), None),
        Err(error) => (Vec::new(), Some(error)),
    };
    let (code, error) = error.as_ref().map_or(("", ""), |error| (error.code().id(), error.detail()));
    let state = millrace_node::documents::state_word(run.state);
    encode(out, heading, &InvokedFunction { log, seqno, id, run: run.id, state, result: &result, code, error });
}

/// Writes what a call of an object came to.
fn returned(out: &mut Vec<u8>, heading: Heading, answer: &millrace_node::Answer) {
    let incarnation = answer.incarnation;
    match &answer.reply {
        Some(Ok(value)) if value.len() > RECORD_MAX_BYTES => {
            let reported = format!("the answer has {} bytes; the limit is {RECORD_MAX_BYTES}", value.len());
            encode(out, heading, &failure(&Code::ObjectTooLarge.error(reported)));
        }
        Some(Ok(value)) => encode(out, heading, &protocol::Returned { incarnation, waiting: false, value }),
        Some(Err(raised)) => {
            encode(out, heading, &protocol::Raised { incarnation, class: raised.class, text: &raised.text });
        }
        None => encode(out, heading, &protocol::Returned { incarnation, waiting: true, value: &[] }),
    }
}

fn challenge() -> Result<[u8; 16]> {
    let mut challenge = [0; 16];
    let (first, second) = challenge.split_at_mut(8);
    first.copy_from_slice(&random_id()?);
    second.copy_from_slice(&random_id()?);
    Ok(challenge)
}

impl Connection {
    /// Handles one frame; `raw` has its bytes.
    pub fn request(&mut self, frame: &Frame<'_>, raw: &[u8]) {
        let request = frame.heading.request;
        if self.access.is_none() {
            return self.hello(frame);
        }
        let Some(access) = self.access_of(frame.heading.slot) else {
            return self.reply(request, Err(refused()));
        };
        if request == 0 && !matches!(frame.kind, Ping::TYPE | Pong::TYPE) {
            return self.close(&Code::MessageUnexpected.error("the number of a request must not be 0"));
        }
        let outcome = match frame.kind {
            Append::TYPE => self.commit(&access, frame, raw, commits::append),
            AppendMany::TYPE => self.commit(&access, frame, raw, commits::append_many),
            Get::TYPE => self.get(&access, frame),
            Range::TYPE => self.range(&access, frame),
            Latest::TYPE => self.latest(&access, frame),
            protocol::Table::TYPE => self.table(&access, frame, raw),
            Tail::TYPE => self.tail(&access, frame),
            Credit::TYPE => return self.credit(frame),
            Cancel::TYPE => self.cancel(frame),
            CreateLog::TYPE => self.create_log(&access, frame),
            RemoveLog::TYPE => self.remove_log(&access, frame),
            SetLog::TYPE => self.set_log(&access, frame),
            CancelRun::TYPE => self.cancel_run(&access, frame),
            Show::TYPE => self.show(&access, frame),
            Link::TYPE => self.link(&access, frame, raw),
            Deliver::TYPE => self.deliver(&access, frame, raw),
            protocol::Attach::TYPE => self.attach(&access, frame, raw),
            protocol::Entries::TYPE => self.enter(&access, frame, raw),
            protocol::Call::TYPE => self.call(&access, frame),
            protocol::Session::TYPE => self.session(&access, frame),
            protocol::Invoke::TYPE => self.commit(&access, frame, raw, commits::invoke),
            protocol::Revoke::TYPE => self.commit(&access, frame, raw, commits::revoke),
            Present::TYPE => self.present(frame),
            Redeem::TYPE => self.redeem(&access, frame),
            Repair::TYPE => self.repair(&access, frame),
            Manage::TYPE => self.manage(&access, frame),
            InvokeFunction::TYPE => self.invoke_function(&access, frame, raw),
            Upload::TYPE => self.upload(&access, frame),
            protocol::FollowTables::TYPE => self.follow_tables(&access, frame),
            protocol::LoadTable::TYPE => self.load_table(&access, frame),
            _ if self.is_told(frame) => self.told(&access, frame),
            Ping::TYPE => frame.message::<Ping>().map(|_| self.reply(request, Ok(Answer::Pong))),
            Pong::TYPE => return,
            kind => match self.topic_request(&access, frame, raw) {
                Ok(true) => return,
                Ok(false) => Err(Code::MessageUnknown.error(format!("message of type {kind}"))),
                Err(error) => Err(error),
            },
        };
        if let Err(error) = outcome {
            self.reply(request, Err(error));
        }
    }

    fn hello(&mut self, frame: &Frame<'_>) {
        match self.greet(frame) {
            Err(error) => self.close(&error),
            Ok(None) => {}
            Ok(Some(access)) => {
                self.welcome(&access, frame.heading.request);
                self.access = Some(access);
            }
        }
    }

    /// Takes a greeting; `None` if the client has to say it again with its proofs.
    fn greet(&mut self, frame: &Frame<'_>) -> Result<Option<Access>> {
        let hello: Hello<'_> = frame.message()?;
        if !(hello.oldest..=hello.newest).contains(&VERSION) {
            return Err(Code::VersionUnsupported.error(format!(
                "the client speaks versions {} to {}, this host version {VERSION}",
                hello.oldest, hello.newest
            )));
        }
        let is_socket = self.identity.peer.way == Way::Unix;
        let needs_proofs = self.identity.owner.is_none() || !hello.capabilities.is_empty();
        if is_socket && needs_proofs && self.identity.binding.is_none() {
            let challenge = challenge()?;
            self.identity.binding = Some(Binding::Challenge(challenge));
            let heading = Heading { request: frame.heading.request, ..Heading::default() };
            encode(&mut self.out, heading, &Challenge { challenge: &challenge });
            return Ok(None);
        }
        let [first, more @ ..] = &*hello.capabilities else {
            return self.hosted.access_of(&self.identity, hello.namespace).map(Some);
        };
        if more.len() >= SLOTS {
            return Err(Code::ValueInvalid.error(format!("a connection has {SLOTS} slots for capabilities")));
        }
        let access = self.admit(hello.namespace, first)?;
        let served = access.served().name().clone();
        self.slots = more.iter().map(|offer| self.admit(&served, offer).map(Some)).collect::<Result<_>>()?;
        Ok(Some(access))
    }

    /// The namespace for the holder of this capability.
    fn admit(&self, namespace: &str, offer: &Offer<'_>) -> Result<Access> {
        let (Some(binding), Ok(proof)) = (&self.identity.binding, <&[u8; 32]>::try_from(offer.proof)) else {
            return Err(refused());
        };
        let proof = Proof::Bound(binding, proof);
        let (served, caller) = self.hosted.admit(namespace, offer.capability, proof, self.identity.peer)?;
        self.identity.has_shown(&self.hosted, &caller)?;
        Ok(self.hosted.within_limits(&served, &caller))
    }

    /// The namespace as the capability in a slot may use it.
    fn access_of(&self, slot: u8) -> Option<Access> {
        match usize::from(slot).checked_sub(1) {
            None => self.access.clone(),
            Some(at) => self.slots.get(at)?.clone(),
        }
    }

    fn present(&mut self, frame: &Frame<'_>) -> Result<()> {
        let Present { slot, capability, proof } = frame.message()?;
        let served = self.access.as_ref().map(|access| access.served().name().clone()).ok_or_else(refused)?;
        let access = self.admit(&served, &Offer { capability, proof })?;
        match usize::from(slot).checked_sub(1) {
            _ if usize::from(slot) >= SLOTS => {
                return Err(Code::ValueInvalid.error(format!("a connection has {SLOTS} slots for capabilities")));
            }
            None => self.access = Some(access),
            Some(at) => {
                self.slots.resize(self.slots.len().max(at + 1), None);
                self.slots[at] = Some(access);
            }
        }
        self.reply(frame.heading.request, Ok(Answer::Done));
        Ok(())
    }

    fn invoke_function(&mut self, access: &Access, frame: &Frame<'_>, raw: &[u8]) -> Result<()> {
        let InvokeFunction { function, data, log, durability, key, wait_ms } = frame.message()?;
        if wait_ms == 0 {
            return self.commit(access, frame, raw, commits::invoke_function);
        }
        let invocation = Invocation {
            function: function.to_owned(),
            log: log.map(str::to_owned),
            data: data.to_owned(),
            durability,
            key: key.map(str::to_owned),
            cause: frame.heading.cause,
            clock: frame.heading.hlc,
        };
        let reserved = Reservation::of(data.len())?;
        let invoke = waits::invoke(access.clone(), invocation, wait_ms, reserved);
        self.waits.add(frame.heading.request, invoke)
    }

    fn repair(&mut self, access: &Access, frame: &Frame<'_>) -> Result<()> {
        let Repair { json } = frame.message()?;
        let reserved = Reservation::of(json.len())?;
        let (hosted, permits, access) = (self.hosted.clone(), self.waits.permits(), access.clone());
        let repair = waits::repair((hosted, permits), access, json.to_owned(), reserved);
        self.waits.add(frame.heading.request, repair)
    }

    fn manage(&mut self, access: &Access, frame: &Frame<'_>) -> Result<()> {
        let Manage { json } = frame.message()?;
        let reserved = Reservation::of(json.len())?;
        let (hosted, permits, access, uploads) =
            (self.hosted.clone(), self.waits.permits(), access.clone(), self.uploads.clone());
        let manage = waits::manage((hosted, permits), (access, uploads), json.to_owned(), reserved);
        self.waits.add(frame.heading.request, manage)
    }

    fn upload(&mut self, access: &Access, frame: &Frame<'_>) -> Result<()> {
        let Upload { sha256, offset, data } = frame.message()?;
        let reserved = Reservation::of(data.len())?;
        let (uploads, sha256, data) = (self.uploads.clone(), sha256.to_owned(), data.to_owned());
        let (hosted, permits, access) = (self.hosted.clone(), self.waits.permits(), access.clone());
        let upload = async move {
            let upload = move |access: &Access| {
                let _reserved = reserved;
                access.upload(&uploads, &Upload { sha256: &sha256, offset, data: &data })
            };
            hosted.deploy(access, upload).await
        };
        self.waits.add(frame.heading.request, waits::changed(permits, upload))
    }

    /// Exchanges an invitation for a capability that lasts, which is bound to the client's key.
    fn redeem(&mut self, access: &Access, frame: &Frame<'_>) -> Result<()> {
        let Redeem {} = frame.message()?;
        if self.identity.peer.way != Way::TlsProof {
            return Err(Code::CapabilityDenied.error("an invitation can be used only over TLS"));
        }
        let (hosted, permits) = (self.hosted.clone(), self.waits.permits());
        let redeem = waits::redeem(hosted, permits, access.clone());
        self.waits.add(frame.heading.request, redeem)
    }

    fn welcome(&mut self, access: &Access, request: u64) {
        let served = access.served();
        let facts = served.facts();
        let welcome = Welcome {
            version: VERSION,
            host: SOFTWARE,
            name: served.name(),
            namespace: facts.id().get(),
            epoch: facts.epoch(),
            frame_max_bytes: FRAME_MAX_BYTES as u32,
            record_max_bytes: RECORD_MAX_BYTES.min(facts.record_max_bytes()) as u32, // at most 16 MiB
            requests_max: REQUESTS_MAX as u32,
            durability: facts.durability(),
        };
        encode(&mut self.out, Heading { request, hlc: access.clock(), ..Heading::default() }, &welcome);
    }

    fn get(&mut self, access: &Access, frame: &Frame<'_>) -> Result<()> {
        let Get { log, seqno, wait_ms, durability } = frame.message()?;
        if wait_ms > 0 && access.must_wait(log, seqno.max(1) - 1) {
            let wait = waits::get(self.waits.permits(), access.clone(), log.into(), seqno, wait_ms, durability);
            return self.waits.add(frame.heading.request, wait);
        }
        self.answer(frame.heading.request, access.get(log, seqno, durability).map(Answer::Record));
        Ok(())
    }

    fn range(&mut self, access: &Access, frame: &Frame<'_>) -> Result<()> {
        let Range { log, from, count, durability } = frame.message()?;
        let bytes_max = if memory::is_short() { SMALL_BYTES / 2 } else { RECORDS_MAX_BYTES };
        let held = access.range(log, from, count.min(RECORDS_MAX), bytes_max, durability);
        let answer = move |(incarnation, records): (u32, Vec<Record>)| {
            let next = records.last().map_or(from, |last| last.seqno + 1);
            Answer::Records { incarnation, records, next }
        };
        self.answer(frame.heading.request, held.map(answer));
        Ok(())
    }

    fn latest(&mut self, access: &Access, frame: &Frame<'_>) -> Result<()> {
        let Latest { log, above, wait_ms, durability } = frame.message()?;
        if wait_ms > 0 && access.must_wait(log, above) {
            let wait = waits::latest(access.clone(), log.into(), above, wait_ms, durability);
            return self.waits.add(frame.heading.request, wait);
        }
        self.answer(frame.heading.request, access.latest(log, durability).map(Answer::Seqno));
        Ok(())
    }

    fn table(&mut self, access: &Access, frame: &Frame<'_>, raw: &[u8]) -> Result<()> {
        let asked: protocol::Table<'_> = frame.message()?;
        let changes = TableRequest::decode(asked.request)?.changes();
        if !changes && !asked.after.is_none() {
            return self.read_after(access, frame, &asked);
        }
        if !changes && access.is_table_at_hand(asked.table) {
            let held = commits::table(access, frame)?;
            self.answer(frame.heading.request, held);
            return Ok(());
        }
        self.commit(access, frame, raw, commits::table)
    }

    fn tail(&mut self, access: &Access, frame: &Frame<'_>) -> Result<()> {
        let tail: Tail<'_> = frame.message()?;
        self.waits.follow(frame.heading.request, access, &tail)
    }

    fn credit(&mut self, frame: &Frame<'_>) {
        match frame.message::<Credit>() {
            // For a tail that ended just now: nothing to say.
            Ok(Credit { records }) => self.waits.credit(frame.heading.request, records),
            Err(error) => self.close(&error),
        }
    }

    fn cancel(&mut self, frame: &Frame<'_>) -> Result<()> {
        let Cancel {} = frame.message()?;
        if self.waits.cancel(frame.heading.request) {
            self.reply(frame.heading.request, Ok(Answer::Ended));
        }
        Ok(())
    }

    fn session(&mut self, access: &Access, frame: &Frame<'_>) -> Result<()> {
        let opened = access.open_session(&frame.message()?);
        let answer = |(resumed, lease_ms)| Answer::Opened(protocol::Opened { resumed, lease_ms });
        self.answer(frame.heading.request, opened.map(answer));
        Ok(())
    }

    /// Calls an object at once on this loop, which delays no other client; a waiting call occupies no thread.
    fn call(&mut self, access: &Access, frame: &Frame<'_>) -> Result<()> {
        let call: protocol::Call<'_> = frame.message()?;
        match access.call(&call)? {
            Answered::Now(called, upto) => {
                let answer: millrace_node::Answer = called.into();
                self.answer(frame.heading.request, access.reported(answer, upto).map(Answer::Returned));
                Ok(())
            }
            Answered::Later(waiting) => {
                let wait = waits::called(access.clone(), waiting, access.call_right(&call)?, call.wait_ms);
                self.waits.add(frame.heading.request, wait)
            }
        }
    }

    /// Changes something of the namespace on another thread; the answer is DONE.
    fn define(
        &mut self,
        access: &Access,
        frame: &Frame<'_>,
        act: impl FnOnce(&Access) -> Gated<()> + Send + 'static,
    ) -> Result<()> {
        let (hosted, permits, access) = (self.hosted.clone(), self.waits.permits(), access.clone());
        let change = async move { hosted.define(access, act).await };
        self.waits.add(frame.heading.request, waits::changed(permits, change))
    }

    fn create_log(&mut self, access: &Access, frame: &Frame<'_>) -> Result<()> {
        let CreateLog { log, history } = frame.message()?;
        let log = log.to_owned();
        self.define(access, frame, move |access| access.create_log(&log, history))
    }

    fn remove_log(&mut self, access: &Access, frame: &Frame<'_>) -> Result<()> {
        let RemoveLog { log } = frame.message()?;
        let log = log.to_owned();
        self.define(access, frame, move |access| access.remove_log(&log))
    }

    fn cancel_run(&mut self, access: &Access, frame: &Frame<'_>) -> Result<()> {
        let CancelRun { run } = frame.message()?;
        self.define(access, frame, move |access| access.cancel_run(run))
    }

    fn set_log(&mut self, access: &Access, frame: &Frame<'_>) -> Result<()> {
        let SetLog { log, history } = frame.message()?;
        let log = log.to_owned();
        self.define(access, frame, move |access| access.set_history(&log, history).map(drop))
    }

    fn show(&mut self, access: &Access, frame: &Frame<'_>) -> Result<()> {
        let Show { path } = frame.message()?;
        let (hosted, access, path) = (self.hosted.clone(), access.clone(), path.to_owned());
        let permits = self.waits.permits();
        let show = async move {
            // The state of the host can always be requested.
            let _permit = if path == "status" { None } else { Some(permits.acquire_owned().await) };
            documents::show(&hosted, &access, &path).await.map(Answer::Document)
        };
        self.waits.add(frame.heading.request, show)
    }
}
