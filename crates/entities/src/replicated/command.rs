//! The commands that hosts with a common space send each other, and their encoding.

use crate::{
    Call, Finished, Flags, Session, Ticket, Type,
    space::durable::{Reader, damaged, list, session_of, uint},
    types::raised_class,
    value,
};
use millrace_wire::{Result, protocol::Fence};

// The kinds of commands.
const CALL: i64 = 1;
const RENEW: i64 = 2;
const END: i64 = 3;
const STEP: i64 = 4;
const LEAVE: i64 = 5;

// The flags of a call.
const MUST_EXIST: u64 = 1;
const MUST_CREATE: u64 = 2;
const GIVE_UP: u64 = 4;

// The results of a step.
const RAN: i64 = 0;
const NOT_BEGUN: i64 = 1;
const FAILED: i64 = 2;
const REFUSED: i64 = 3;
const BLOCKED: i64 = 4;

/// A command.
#[derive(Clone, Debug)]
pub enum Command<'a> {
    /// A call. If a lease in milliseconds is given, a session that is not open is opened with it.
    Call {
        /// The clock of the host that proposes the call: the command gets at least this number.
        token: u64,
        /// The lease.
        open: Option<u64>,
        /// The call.
        call: Call<'a>,
        /// The step that makes it, if one does.
        within: Option<Within<'a>>,
    },
    /// The result of a step of an object, from the host that ran it.
    Step {
        /// The step.
        of: Within<'a>,
        /// The version of the fields that the step began with: the step that had changed them last.
        changed: Vec<u8>,
        /// The number that identifies this step in the fields, if it has changed any; no other step has it.
        number: u64,
        /// The session in which it called other objects, which ends with it.
        session: Session,
        /// The result.
        finished: Finished,
    },
    /// Sessions from which their hosts received requests, and their leases.
    Renew(Vec<(Session, u64)>),
    /// Sessions whose owners have ended well.
    Leave(Vec<Session>),
    /// Sessions that end if the command with this number is their last one; with 0, they end in any case.
    End(Vec<(Session, u64)>),
}

/// A step: the waiting call of an object whose method it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Within<'a> {
    /// The object.
    pub key: &'a str,
    /// Its incarnation.
    pub incarnation: u64,
    /// The ticket of the waiting call.
    pub ticket: Ticket,
}

impl<'a> Within<'a> {
    fn encode(self) -> Vec<u8> {
        list(&[value::text(self.key), uint(self.incarnation), uint(self.ticket)])
    }

    fn decode(bytes: &'a [u8]) -> Result<Self> {
        let mut reader = Reader(value::elements(bytes)?.into_iter());
        Ok(Self { key: reader.text()?, incarnation: reader.uint()?, ticket: reader.uint()? })
    }
}

fn finished_bytes(finished: &Finished) -> Vec<u8> {
    let pair = |(name, value): &(Vec<u8>, Option<Vec<u8>>)| {
        list(&[value::bytes(name), value.as_ref().map_or_else(value::nil, |value| value::bytes(value))])
    };
    let pairs = |changed: &[(Vec<u8>, Option<Vec<u8>>)]| list(&changed.iter().map(pair).collect::<Vec<_>>());
    match finished {
        Finished::Ran(answer, changed) => list(&[value::int(RAN), value::bytes(answer), pairs(changed)]),
        Finished::Blocked(changed) => list(&[value::int(BLOCKED), pairs(changed)]),
        Finished::NotBegun(answer) => list(&[value::int(NOT_BEGUN), value::bytes(answer)]),
        Finished::Failed(reported) => list(&[value::int(FAILED), value::text(reported)]),
        Finished::Refused(class, reported) => list(&[value::int(REFUSED), value::text(class), value::text(reported)]),
    }
}

fn read_finished(bytes: &[u8]) -> Result<Finished> {
    let mut reader = Reader(value::elements(bytes)?.into_iter());
    let pair = |pair: &[u8]| {
        let mut pair = Reader(value::elements(pair)?.into_iter());
        let name = pair.read(value::as_bytes)?.to_vec();
        let value = optional(pair.next()?, |value| value::as_bytes(value).ok_or_else(damaged))?;
        Ok((name, value.map(<[u8]>::to_vec)))
    };
    let pairs = |changed: &[u8]| value::elements(changed)?.into_iter().map(pair).collect::<Result<_>>();
    Ok(match reader.read(value::as_int)? {
        RAN => Finished::Ran(reader.read(value::as_bytes)?.to_vec(), pairs(reader.next()?)?),
        BLOCKED => Finished::Blocked(pairs(reader.next()?)?),
        NOT_BEGUN => Finished::NotBegun(reader.read(value::as_bytes)?.to_vec()),
        FAILED => Finished::Failed(reader.text()?.to_owned()),
        REFUSED => Finished::Refused(raised_class(reader.text()?), reader.text()?.to_owned()),
        _ => return Err(damaged()),
    })
}

fn pairs(of: &[(Session, u64)]) -> Vec<u8> {
    let pair = |(session, number): &(Session, u64)| list(&[value::bytes(session), uint(*number)]);
    list(&of.iter().map(pair).collect::<Vec<_>>())
}

fn read_pairs(bytes: &[u8]) -> Result<Vec<(Session, u64)>> {
    let pair = |pair: &[u8]| {
        let mut pair = Reader(value::elements(pair)?.into_iter());
        Ok((pair.read(session_of)?, pair.uint()?))
    };
    value::elements(bytes)?.into_iter().map(pair).collect()
}

impl<'a> Command<'a> {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Command::Call { token, open, call, within } => {
                let Flags { must_exist, must_create, give_up, .. } = call.flags;
                let flag = |is_set: bool, flag: u64| if is_set { flag } else { 0 };
                let flags = flag(must_exist, MUST_EXIST) | flag(must_create, MUST_CREATE) | flag(give_up, GIVE_UP);
                list(&[
                    value::int(CALL),
                    uint(*token),
                    open.map_or_else(value::nil, uint),
                    value::bytes(&call.session),
                    uint(call.number),
                    uint(call.acked),
                    value::text(call.kind.name()),
                    value::text(call.key),
                    uint(call.incarnation),
                    value::text(call.method.name),
                    value::bytes(call.args),
                    call.new.map_or_else(value::nil, value::bytes),
                    uint(flags),
                    within.map_or_else(value::nil, Within::encode),
                    call.fence.map_or_else(value::nil, |fence| list(&[value::text(fence.name), uint(fence.token)])),
                ])
            }
            Command::Step { of, changed, number, session, finished } => list(&[
                value::int(STEP),
                of.encode(),
                value::bytes(changed),
                uint(*number),
                value::bytes(session),
                finished_bytes(finished),
            ]),
            Command::Renew(sessions) => list(&[value::int(RENEW), pairs(sessions)]),
            Command::End(sessions) => list(&[value::int(END), pairs(sessions)]),
            Command::Leave(sessions) => {
                let sessions: Vec<Vec<u8>> = sessions.iter().map(|session| value::bytes(session)).collect();
                list(&[value::int(LEAVE), list(&sessions)])
            }
        }
    }

    /// The command of these bytes.
    pub fn decode(bytes: &'a [u8]) -> Result<Self> {
        let mut reader = Reader(value::elements(bytes)?.into_iter());
        Ok(match reader.read(value::as_int)? {
            CALL => {
                let token = reader.uint()?;
                let open = optional(reader.next()?, |open| Reader(vec![open].into_iter()).uint())?;
                let (session, number, acked) = (reader.read(session_of)?, reader.uint()?, reader.uint()?);
                let kind: Type = reader.text()?.parse()?;
                let (key, incarnation, method) = (reader.text()?, reader.uint()?, kind.method(reader.text()?)?);
                let args = reader.read(value::as_bytes)?;
                let new = optional(reader.next()?, |new| value::as_bytes(new).ok_or_else(damaged))?;
                let flags = reader.uint()?;
                let is_set = |flag: u64| flags & flag != 0;
                let flags = Flags {
                    must_exist: is_set(MUST_EXIST),
                    must_create: is_set(MUST_CREATE),
                    give_up: is_set(GIVE_UP),
                    persistent: true,
                    copies: 0,
                };
                // Commands of an earlier version end here, or behind the next one.
                let within = reader.0.next().map_or(Ok(None), |within| optional(within, Within::decode))?;
                let fence = reader.0.next().map_or(Ok(None), |fence| optional(fence, fence_of))?;
                let call = Call { session, number, acked, kind, key, incarnation, method, args, new, flags, fence };
                Command::Call { token, open, call, within }
            }
            STEP => Command::Step {
                of: Within::decode(reader.next()?)?,
                changed: reader.read(value::as_bytes)?.to_vec(),
                number: reader.uint()?,
                session: reader.read(session_of)?,
                finished: read_finished(reader.next()?)?,
            },
            RENEW => Command::Renew(read_pairs(reader.next()?)?),
            END => Command::End(read_pairs(reader.next()?)?),
            LEAVE => {
                let sessions = value::elements(reader.next()?)?.into_iter();
                Command::Leave(sessions.map(|session| session_of(session).ok_or_else(damaged)).collect::<Result<_>>()?)
            }
            _ => return Err(damaged()),
        })
    }
}

fn fence_of(bytes: &[u8]) -> Result<Fence<'_>> {
    let mut reader = Reader(value::elements(bytes)?.into_iter());
    Ok(Fence { name: reader.text()?, token: reader.uint()? })
}

fn optional<'a, T>(bytes: &'a [u8], read: impl FnOnce(&'a [u8]) -> Result<T>) -> Result<Option<T>> {
    if value::is_nil(bytes) { Ok(None) } else { read(bytes).map(Some) }
}
