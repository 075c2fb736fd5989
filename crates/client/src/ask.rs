//! What is asked and how answers are read: no I/O. The async and the blocking client share it.

use crate::{AppendOptions, Batch, Host, Place, Record};
use millrace_wire::{
    Code, Error, EventId, Hlc, Result,
    protocol::{
        Append, AppendMany, Failure, Frame, HELLO_MAX_BYTES, Heading, Hello, Message, NewRecord, PREFACE, Records,
        VERSION, Welcome, encode, split,
    },
};
use serde::Deserialize;

/// The request number of the handshake.
pub const HANDSHAKE: u64 = 1;
/// What a frame has besides the payload of its message, at most.
pub const SURROUNDINGS_BYTES: usize = 1024;

/// The first bytes of a connection.
pub fn hello(place: &Place, client: &str) -> Vec<u8> {
    let mut out = PREFACE.to_vec();
    let hello =
        Hello { oldest: VERSION, newest: VERSION, namespace: place.namespace(), client, capability: &[], key: &[] };
    encode(&mut out, Heading { request: HANDSHAKE, hlc: Hlc::default(), cause: EventId::NONE }, &hello);
    out
}

/// The host's answer to [`hello`] and how many bytes it took, or `None` while it is not all there.
pub fn welcome(bytes: &[u8]) -> Result<Option<(Host, Hlc, usize)>> {
    let Some((frame, used)) = split(bytes, HELLO_MAX_BYTES)? else { return Ok(None) };
    let welcome: Welcome<'_> = answer(&frame)?;
    if welcome.version != VERSION {
        let told = format!("the host speaks version {}, this client {VERSION}", welcome.version);
        return Err(Code::VersionUnsupported.error(told));
    }
    if frame.heading.request != HANDSHAKE {
        return Err(unasked(&frame));
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
    Ok(Some((host, frame.heading.hlc, used)))
}

/// The answer, if it is the one that belongs to what was asked; the host's error, if it failed.
pub fn answer<'b, M: Message + Deserialize<'b>>(frame: &Frame<'b>) -> Result<M> {
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

/// The host answered what nobody asked.
pub fn unasked(frame: &Frame<'_>) -> Error {
    let request = frame.heading.request;
    Code::AnswerUnasked.error(format!("message of type {} under request {request}", frame.kind))
}

/// A request that would not fit a frame of the host.
pub fn check_size(host: &Host, payload_bytes: usize) -> Result<()> {
    let max = host.frame_max_bytes as usize;
    if payload_bytes > max {
        return Err(Code::FrameTooLong.error(format!("{payload_bytes} bytes in one request; the host takes {max}")));
    }
    Ok(())
}

/// An append as a message.
pub fn append<'a>(log: &'a str, data: &'a [u8], options: &AppendOptions<'a>) -> Append<'a> {
    Append { log, data, durability: options.durability, function: options.function, key: options.key }
}

/// Appends as one message, and how many bytes they hold.
pub fn append_many<'a>(records: &[(&'a str, &'a [u8])], options: &AppendOptions<'a>) -> (AppendMany<'a>, usize) {
    let bytes = records.iter().map(|(log, data)| log.len() + data.len() + 32).sum();
    let records = records.iter().map(|&(log, data)| NewRecord { log, data }).collect();
    (AppendMany { records, durability: options.durability, key: options.key }, bytes)
}

/// The one record of an answer.
pub fn record(frame: &Frame<'_>) -> Result<Record> {
    answer::<millrace_wire::protocol::Record<'_>>(frame).map(|record| Record::from(&record))
}

/// The records of an answer.
pub fn batch(frame: &Frame<'_>) -> Result<Batch> {
    answer::<Records<'_>>(frame).map(Batch::from)
}
