//! Encodes requests and decodes their answers, without I/O. The async and the blocking client share it.

use crate::{AppendOptions, Batch, Credentials, Host, Place, Record, secure};
use millrace_security::token::Binding;
use millrace_wire::{
    Code, Error, Hlc, Result,
    protocol::{
        Append, AppendMany, Challenge, Decode, Failure, Frame, HELLO_MAX_BYTES, Heading, Hello, Message, NewRecord,
        OfTable, Offer, PREFACE, Records, Table, VERSION, Welcome, encode, split,
    },
    table::TableAnswer,
};

/// The request number of the handshake.
pub const HANDSHAKE: u64 = 1;
/// The maximum number of bytes that a frame has besides the payload of its message.
pub const SURROUNDINGS_BYTES: usize = 1024;

/// The messages of the handshake and its results, the same for every kind of connection.
pub struct Greeting<'g> {
    place: &'g Place,
    client: &'g str,
    credentials: &'g Credentials,
    binding: Option<Binding>,
}

/// The host's answer to HELLO.
pub enum Answered {
    /// It is not all there.
    Incomplete,
    /// It needs more data: these bytes. Its question had this many.
    Asked(Vec<u8>, usize),
    /// WELCOME, the host's clock, and the length of the frame.
    Welcome(Box<Host>, Hlc, usize),
}

impl<'g> Greeting<'g> {
    /// A greeting of the namespace at this place. `binding` is what a proof can be bound to, if anything can so far.
    pub fn new(place: &'g Place, client: &'g str, credentials: &'g Credentials, binding: Option<Binding>) -> Self {
        Self { place, client, credentials, binding }
    }

    /// The first bytes of a connection; within a channel there is no preface.
    pub fn first(&self, preface: bool) -> Vec<u8> {
        let mut out = if preface { PREFACE.to_vec() } else { Vec::new() };
        self.hello(&mut out);
        out
    }

    fn hello(&self, out: &mut Vec<u8>) {
        let proof = secure::proof(self.credentials, self.binding.as_ref());
        let offer = self.credentials.capability.as_ref().zip(proof.as_ref());
        let capabilities = offer.map(|(token, proof)| Offer { capability: token.body(), proof }).into_iter().collect();
        let namespace = self.place.namespace();
        let hello = Hello { oldest: VERSION, newest: VERSION, namespace, client: self.client, capabilities };
        encode(out, Heading { request: HANDSHAKE, ..Heading::default() }, &hello);
    }

    /// The host's answer.
    pub fn answer(&mut self, bytes: &[u8]) -> Result<Answered> {
        let Some((frame, used)) = split(bytes, HELLO_MAX_BYTES)? else { return Ok(Answered::Incomplete) };
        if frame.kind == Challenge::TYPE && self.binding.is_none() {
            let challenge: Challenge<'_> = frame.message()?;
            let challenge = challenge.challenge.try_into();
            let challenge = challenge.map_err(|_| Code::FrameMalformed.error("a challenge has 16 bytes"))?;
            if self.credentials.capability.is_none() {
                return Err(
                    Code::HostUnknown.error(format!("{} requires a capability, and none is stored for it", self.place))
                );
            }
            self.binding = Some(Binding::Challenge(challenge));
            let mut out = Vec::new();
            self.hello(&mut out);
            return Ok(Answered::Asked(out, used));
        }
        let (host, hlc) = welcome(&frame)?;
        Ok(Answered::Welcome(Box::new(host), hlc, used))
    }
}

fn welcome(frame: &Frame<'_>) -> Result<(Host, Hlc)> {
    let welcome: Welcome<'_> = answer(frame)?;
    if welcome.version != VERSION {
        let reported = format!("the host uses protocol version {}, this client {VERSION}", welcome.version);
        return Err(Code::VersionUnsupported.error(reported));
    }
    if frame.heading.request != HANDSHAKE {
        return Err(unasked(frame));
    }
    let host = Host {
        host: welcome.host.into(),
        name: welcome.name.into(),
        namespace: welcome.namespace,
        epoch: welcome.epoch,
        frame_max_bytes: welcome.frame_max_bytes,
        record_max_bytes: welcome.record_max_bytes,
        requests_max: welcome.requests_max.max(1),
        durability: welcome.durability,
    };
    Ok((host, frame.heading.hlc))
}

/// The answer, if it is the one that belongs to what was asked; the host's error, if it failed.
pub fn answer<'b, M: Message + Decode<'b>>(frame: &Frame<'b>) -> Result<M> {
    if frame.kind == Failure::TYPE && M::TYPE != Failure::TYPE {
        return Err(failure(&frame.message::<Failure<'_>>()?));
    }
    frame.message()
}

/// The host's error as one of ours: with its own code, if this version knows it.
pub fn failure(failure: &Failure<'_>) -> Error {
    let error = match Code::from_id(failure.code) {
        Some(code) => code.error(failure.detail),
        None => {
            let code: String = failure.code.chars().take(16).flat_map(char::escape_debug).collect();
            Code::HostCodeUnknown.error(format!("{code}: {}", failure.detail))
        }
    };
    error.retry_after(failure.retry_after_ms.unwrap_or(0))
}

/// The host sent an answer that belongs to no request.
pub fn unasked(frame: &Frame<'_>) -> Error {
    let request = frame.heading.request;
    Code::AnswerUnasked.error(format!("message of type {} under request {request}", frame.kind))
}

/// A request that would not fit a frame of the host.
pub fn check_size(host: &Host, payload_bytes: usize) -> Result<()> {
    let max = host.frame_max_bytes as usize;
    if payload_bytes > max {
        return Err(
            Code::FrameTooLong.error(format!("{payload_bytes} bytes in one request; the limit of the host is {max}"))
        );
    }
    Ok(())
}

/// An append as a message.
pub fn append<'a>(log: &'a str, data: &'a [u8], options: &AppendOptions<'a>) -> Append<'a> {
    Append {
        log,
        data,
        durability: options.durability,
        function: options.function,
        key: options.key,
        fence: options.fence,
    }
}

/// The answer of a table.
pub fn table_answer(message: &OfTable<'_>) -> Result<TableAnswer> {
    Ok(TableAnswer { token: message.token, ..TableAnswer::decode(message.answer)? })
}

/// A TABLE message.
pub fn table<'a>(table: &'a str, request: &'a [u8], options: &AppendOptions<'a>) -> Table<'a> {
    let after = options.after;
    Table { table, request, durability: options.durability, fence: options.fence, after }
}

/// Appends as one message, and how many bytes they hold.
pub fn append_many<'a>(records: &[(&'a str, &'a [u8])], options: &AppendOptions<'a>) -> (AppendMany<'a>, usize) {
    let bytes = records.iter().map(|(log, data)| log.len() + data.len() + 32).sum();
    let records = records.iter().map(|&(log, data)| NewRecord { log, data }).collect();
    (AppendMany { records, durability: options.durability, key: options.key, fence: options.fence }, bytes)
}

/// The one record of an answer.
pub fn record(frame: &Frame<'_>) -> Result<Record> {
    answer::<millrace_wire::protocol::Record<'_>>(frame).map(|record| Record::from(&record))
}

/// The records of an answer.
pub fn batch(frame: &Frame<'_>) -> Result<Batch> {
    answer::<Records<'_>>(frame).map(Batch::from)
}
