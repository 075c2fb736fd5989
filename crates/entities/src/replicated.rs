//! A space that several hosts have: its calls are commands, which each of them applies in the same order.
//!
//! ```text
//!  a host: CALL ── Command ──> the group's order ──> Replicated::apply, on every host ──> the answer, on every host
//! ```
//!
//! Built-in types are pure, so the state behind a command follows from the state in front of it. Nothing here depends on a clock: tokens
//! grow with each command, and a lease ends by a command, too. That command names what its proposer knew of the session: if another one
//! came in between, it changes nothing.

use crate::{
    Call, Called, Flags, Moment, Session, Space, Type,
    space::durable::{Reader, damaged, list, session_of, uint},
    value,
};
use millrace_wire::{Code, Result};
use std::collections::BTreeMap;

// The kinds of commands.
const CALL: i64 = 1;
const RENEW: i64 = 2;
const END: i64 = 3;

// The flags of a call.
const MUST_EXIST: u64 = 1;
const MUST_CREATE: u64 = 2;
const GIVE_UP: u64 = 4;

/// The most bytes of all entities of the space: a snapshot of them is made and sent as a whole.
const SPACE_MAX_BYTES: usize = 64 << 20;

/// What a host has the others do.
#[derive(Clone, Debug)]
pub enum Command<'a> {
    /// A call. If a lease in milliseconds is given, a session that is not open is opened with it.
    Call {
        /// A number that other hosts have not given to anything that is over.
        token: u64,
        /// The lease.
        open: Option<u64>,
        /// The call.
        call: Call<'a>,
    },
    /// Sessions from which something was heard, and their leases.
    Renew(Vec<(Session, u64)>),
    /// Sessions that end, if nothing was heard of them behind the command of this number; 0 if they end in any case.
    End(Vec<(Session, u64)>),
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
            Command::Call { token, open, call } => {
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
                ])
            }
            Command::Renew(sessions) => list(&[value::int(RENEW), pairs(sessions)]),
            Command::End(sessions) => list(&[value::int(END), pairs(sessions)]),
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
                let call = Call { session, number, acked, kind, key, incarnation, method, args, new, flags };
                Command::Call { token, open, call }
            }
            RENEW => Command::Renew(read_pairs(reader.next()?)?),
            END => Command::End(read_pairs(reader.next()?)?),
            _ => return Err(damaged()),
        })
    }
}

fn optional<'a, T>(bytes: &'a [u8], read: impl FnOnce(&'a [u8]) -> Result<T>) -> Result<Option<T>> {
    if value::is_nil(bytes) { Ok(None) } else { read(bytes).map(Some) }
}

/// What a command came to.
#[derive(Debug, Default)]
pub struct Applied {
    /// The call that it was, and what became of it.
    pub called: Option<(Session, u64, Result<Called>)>,
    /// Calls that waited and have their answers now.
    pub ready: Vec<(Session, u64, Called)>,
    /// Sessions that it was of, and that are open.
    pub heard: Vec<Session>,
    /// Sessions that have ended.
    pub ended: Vec<Session>,
}

/// What the space knows of a session besides its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Heard {
    /// The number of the last command that it had.
    last: u64,
    lease_ms: u64,
}

/// A space, and how far its commands have come.
#[derive(Debug)]
pub struct Replicated {
    space: Space,
    /// The number of the last command, and the last token.
    token: u64,
    sessions: BTreeMap<Session, Heard>,
}

impl Default for Replicated {
    fn default() -> Self {
        Self { space: Space::replicated(SPACE_MAX_BYTES), token: 0, sessions: BTreeMap::new() }
    }
}

impl Replicated {
    /// The entities and sessions.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// The open sessions: the number of the last command of each, and its lease in milliseconds.
    pub fn sessions(&self) -> impl Iterator<Item = (&Session, u64, u64)> {
        self.sessions.iter().map(|(session, heard)| (session, heard.last, heard.lease_ms))
    }

    /// The lease of a session that is open.
    pub fn lease_of(&self, session: &Session) -> Option<u64> {
        self.sessions.get(session).map(|heard| heard.lease_ms)
    }

    fn moment(&self) -> Moment {
        Moment { now_ms: 0, token: self.token }
    }

    /// The answer of a call that reads, as of the commands that were applied; nothing if it has to be a command.
    pub fn peek(&mut self, call: &Call<'_>) -> Option<Called> {
        let moment = self.moment();
        self.space.peek(call, moment)
    }

    /// Applies a command. What cannot be read changes nothing.
    pub fn apply(&mut self, command: &[u8]) -> Applied {
        let mut applied = Applied::default();
        let Ok(command) = Command::decode(command) else { return applied };
        self.token += 1;
        match command {
            Command::Call { token, open, call } => {
                self.token = self.token.max(token);
                let called = self.call(&call, open);
                if self.space.is_open(&call.session) {
                    applied.heard.push(call.session);
                }
                applied.called = Some((call.session, call.number, called));
            }
            Command::Renew(sessions) => {
                for (session, lease_ms) in sessions {
                    if let Some(heard) = self.sessions.get_mut(&session) {
                        *heard = Heard { last: self.token, lease_ms };
                        let _ = self.space.renew(session, lease_ms, Moment { now_ms: 0, token: self.token });
                        applied.heard.push(session);
                    }
                }
            }
            Command::End(sessions) => {
                for (session, last) in sessions {
                    if self.sessions.get(&session).is_some_and(|heard| last == 0 || heard.last == last) {
                        self.sessions.remove(&session);
                        self.space.end(&session, self.moment());
                        applied.ended.push(session);
                    }
                }
            }
        }
        for (session, number) in self.space.take_ready() {
            let called = self.space.reply(&session, number);
            applied.ready.extend(called.map(|called| (session, number, called)));
        }
        applied
    }

    fn call(&mut self, call: &Call<'_>, open: Option<u64>) -> Result<Called> {
        if call.kind == Type::Shared {
            return Err(Code::ReplicationUnsupported.error("methods of user classes run in workers of one host"));
        }
        let moment = self.moment();
        if let Some(lease_ms) = open.filter(|_| !self.space.is_open(&call.session)) {
            self.space.open(call.session, "", lease_ms, moment)?;
            self.space.keep(&call.session);
        }
        if let Some(lease_ms) = self.space.lease_of(&call.session) {
            self.sessions.insert(call.session, Heard { last: self.token, lease_ms });
        }
        self.space.call(call, moment)
    }

    /// The answer of an applied call; nothing if it waits or is unknown.
    pub fn reply(&self, session: &Session, number: u64) -> Option<Called> {
        self.space.reply(session, number)
    }

    /// Its bytes; none if nothing was ever applied.
    pub fn encode(&mut self) -> Vec<u8> {
        if self.token == 0 {
            return Vec::new();
        }
        let heard = |(session, heard): (&Session, &Heard)| {
            list(&[value::bytes(session), uint(heard.last), uint(heard.lease_ms)])
        };
        let sessions: Vec<Vec<u8>> = self.sessions.iter().map(heard).collect();
        let mut cursor = Some(self.space.begin_snapshot());
        while let Some(next) = cursor.take() {
            cursor = self.space.go_on(next);
        }
        let records: Vec<Vec<u8>> = self.space.take_records().iter().map(|record| value::bytes(record)).collect();
        list(&[uint(self.token), list(&sessions), list(&records)])
    }

    /// What these bytes stand for.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut restored = Self::default();
        if bytes.is_empty() {
            return Ok(restored);
        }
        let mut reader = Reader(value::elements(bytes)?.into_iter());
        restored.token = reader.uint()?;
        for heard in value::elements(reader.next()?)? {
            let mut heard = Reader(value::elements(heard)?.into_iter());
            let (session, last, lease_ms) = (heard.read(session_of)?, heard.uint()?, heard.uint()?);
            restored.sessions.insert(session, Heard { last, lease_ms });
        }
        for record in value::elements(reader.next()?)? {
            restored.space.restore(value::as_bytes(record).ok_or_else(damaged)?, Moment::default())?;
        }
        restored.space.restored();
        Ok(restored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SESSION_BYTES;

    const SESSIONS: [Session; 3] = [[1; SESSION_BYTES], [2; SESSION_BYTES], [3; SESSION_BYTES]];

    fn call<'a>(
        session: Session,
        number: u64,
        kind: Type,
        method: &str,
        args: &'a [u8],
        new: Option<&'a [u8]>,
    ) -> Call<'a> {
        Call {
            session,
            number,
            acked: 0,
            kind,
            key: kind.name(),
            incarnation: 0,
            method: kind.method(method).unwrap(),
            args,
            new,
            flags: Flags { persistent: true, ..Flags::default() },
        }
    }

    fn command(call: Call<'_>) -> Vec<u8> {
        Command::Call { token: 7, open: Some(1000), call }.encode()
    }

    /// Commands of many kinds, as several hosts would propose them.
    fn commands(seed: u64) -> Vec<Vec<u8>> {
        let (mut chance, mut numbers, mut made) = (seed * 2 + 1, [0; 3], Vec::new());
        for _ in 0..200 {
            let mut below = |most: u64| {
                chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (chance >> 33) % most
            };
            let at = below(3) as usize;
            numbers[at] += 1;
            let (session, number) = (SESSIONS[at], numbers[at]);
            let one = list(&[value::int(below(9) as i64)]);
            let put = list(&[value::text(["a", "b"][below(2) as usize]), value::int(below(9) as i64)]);
            let (none, two) = (list(&[]), list(&[value::int(2)]));
            let made_now = match below(14) {
                0 | 1 => command(call(session, number, Type::AtomicInt, "add_and_get", &one, None)),
                2 => command(call(session, number, Type::Dict, "set", &put, None)),
                3 => command(call(session, number, Type::Queue, "put", &one, Some(&two))),
                4 => command(call(session, number, Type::Queue, "get", &none, Some(&two))),
                5 => command(call(session, number, Type::Lock, "acquire", &none, None)),
                6 => command(call(session, number, Type::Lock, "release", &none, None)),
                7 => command(call(session, number, Type::Barrier, "wait", &none, Some(&two))),
                8 => command(call(session, number, Type::List, "append", &one, None)),
                9 => command(call(session, number, Type::List, "pop", &none, None)),
                10 => command(call(session, number, Type::Queue, "delete", &none, None)),
                11 => Command::Renew(vec![(session, 500)]).encode(),
                12 => Command::End(vec![(session, below(2))]).encode(),
                // Once more.
                _ => made.last().cloned().unwrap_or_else(|| Command::Renew(Vec::new()).encode()),
            };
            made.push(made_now);
        }
        made
    }

    fn shown(of: &mut Replicated) -> String {
        let sessions: Vec<_> = of.sessions().map(|(id, last, lease_ms)| (*id, last, lease_ms)).collect();
        format!("{} {sessions:?} {:?}", of.token, of.space.show("", 100))
    }

    #[test]
    fn hosts_that_begin_with_a_snapshot_go_on_as_those_that_have_seen_all_commands() {
        for seed in 0..40 {
            let commands = commands(seed);
            let mut first = Replicated::default();
            let mut others: Vec<Replicated> = Vec::new();
            for (at, command) in commands.iter().enumerate() {
                if at % 40 == 0 {
                    others.push(Replicated::decode(&first.encode()).unwrap());
                }
                let applied = format!("{:?}", first.apply(command));
                for other in &mut others {
                    assert_eq!(format!("{:?}", other.apply(command)), applied, "seed {seed}, command {at}");
                    assert_eq!(shown(other), shown(&mut first), "seed {seed}, command {at}");
                }
            }
        }
    }

    #[test]
    fn a_call_that_is_repeated_counts_once_also_behind_a_snapshot() {
        let mut replica = Replicated::default();
        let args = list(&[value::int(5)]);
        let add = command(call(SESSIONS[0], 1, Type::AtomicInt, "add_and_get", &args, None));
        let first = format!("{:?}", replica.apply(&add).called);
        let mut replica = Replicated::decode(&replica.encode()).unwrap();
        assert_eq!(format!("{:?}", replica.apply(&add).called), first);
        let read = call(SESSIONS[0], 2, Type::AtomicInt, "get", &[0x90], None);
        let read = replica.peek(&read);
        assert!(matches!(read, Some(Called::Now(_, Ok(value))) if *value == *value::int(5)));
    }

    #[test]
    fn a_session_ends_only_if_nothing_was_heard_of_it_since() {
        let mut replica = Replicated::default();
        let acquire = command(call(SESSIONS[0], 1, Type::Lock, "acquire", &[0x90], None));
        replica.apply(&acquire);
        let last = replica.sessions().next().unwrap().1;
        replica.apply(&Command::Renew(vec![(SESSIONS[0], 1000)]).encode());
        replica.apply(&Command::End(vec![(SESSIONS[0], last)]).encode());
        assert!(replica.space().is_open(&SESSIONS[0]), "it was renewed");
        // Another session waits for the lock, and gets it when this session ends.
        let other = command(call(SESSIONS[1], 1, Type::Lock, "acquire", &[0x90], None));
        assert!(matches!(replica.apply(&other).called, Some((_, _, Ok(Called::Waiting(_))))));
        let last = replica.sessions().next().unwrap().1;
        let applied = replica.apply(&Command::End(vec![(SESSIONS[0], last)]).encode());
        assert_eq!((applied.ended, applied.ready.len()), (vec![SESSIONS[0]], 1));
        // What it still says is refused: it is not opened again by a call that asks for none.
        let args = [0x90];
        let late = call(SESSIONS[0], 2, Type::Lock, "release", &args, None);
        let late = Command::Call { token: 0, open: None, call: late }.encode();
        let refused = replica.apply(&late).called.unwrap().2.unwrap_err();
        assert_eq!(refused.code(), Code::SessionExpired);
    }

    #[test]
    fn tokens_only_grow_whatever_clocks_say() {
        let mut replica = Replicated::default();
        let args = [0x90];
        let mut last = 0;
        for (number, token) in [(1, 50), (2, 3), (3, 900), (4, 0)] {
            let call =
                call(SESSIONS[0], number, Type::Lock, if number % 2 == 1 { "acquire" } else { "release" }, &args, None);
            replica.apply(&Command::Call { token, open: Some(9), call }.encode());
            assert!(replica.token > last);
            last = replica.token;
        }
    }

    #[test]
    fn what_is_no_command_changes_nothing() {
        let mut replica = Replicated::default();
        let whole = command(call(SESSIONS[0], 1, Type::AtomicInt, "get", &[0x90], None));
        for bytes in [&b""[..], b"x", &whole[..whole.len() - 1]] {
            replica.apply(bytes);
        }
        assert_eq!((replica.token, replica.encode()), (0, Vec::new()));
        assert!(Replicated::decode(b"x").is_err());
    }
}
