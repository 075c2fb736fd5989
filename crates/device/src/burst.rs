//! Bursts and their entries.

use crate::bytes::{Reader, crc32c, later, malformed, put_sized, put_varint};
use millrace_wire::{Error, EventId};
use std::fmt;

const APPEND: u8 = 1;
const DONE: u8 = 2;
const FIRED: u8 = 3;
const DEFINE: u8 = 4;
const OPEN: u8 = 5;
const CLOCK: u8 = 6;
const NOTE: u8 = 7;

const DEFINE_LOG: u8 = 0;
const DEFINE_FUNCTION: u8 = 1;
pub(crate) const CARRIED: u8 = 2;
pub(crate) const DEAD: u8 = 1;
const CANCELLED: u8 = 2;

/// Bytes before the body: length and checksum.
pub(crate) const HEAD: usize = 6;

/// What caused a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Nothing that is recorded.
    Outside,
    /// The run that the next DONE of the burst ends.
    Run,
    /// An event of another namespace.
    Event(EventId),
}

/// Records that a run has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "spec/formats/device.md describes the fields")]
pub struct Row {
    pub log: u8,
    pub behind: u64,
    pub count: u64,
}

/// An entry, as it is in flash.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "spec/formats/device.md describes the fields")]
pub enum Entry {
    Append {
        log: u8,
        back: u64,
        cause: Cause,
        payload: Vec<u8>,
    },
    Done {
        function: u8,
        outcome: u8,
        attempt: u8,
        appends: u8,
        log: u8,
        behind: u64,
        ms: u64,
        rows: Vec<Row>,
        code: Option<u64>,
    },
    Fired {
        function: u8,
        attempt: u8,
    },
    Log {
        id: u8,
        flags: u8,
        history: u64,
        seqno: u64,
        back: u64,
        name: String,
        carried: Option<(u64, Vec<u8>)>,
    },
    Function {
        id: u8,
        logs: u64,
        attempt: u8,
        ended: u64,
        pending: u64,
        behind: u64,
        older: u64,
        back: u64,
        skip: u64,
        name: String,
    },
    Open {
        reason: u8,
        epoch: u32,
        lost: u64,
    },
    /// Time that passed since the entry before.
    Later {
        ms: u64,
    },
    /// A correction of the clock.
    Jump {
        ms: u64,
    },
    Note {
        what: u8,
        body: Vec<u8>,
    },
}

/// What one flush writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Burst {
    /// Milliseconds since the last entry of the burst before.
    pub ms: u64,
    /// Its entries, in order.
    pub entries: Vec<Entry>,
}

impl Burst {
    /// The burst at the start of these bytes, and its length without padding; `None` if its checksum is wrong. `before` is the checksum
    /// of the burst before it.
    pub fn read(bytes: &[u8], before: u32) -> Option<(Result<Burst, Error>, usize)> {
        let (head, rest) = bytes.split_at_checked(HEAD)?;
        let length = usize::from(u16::from_le_bytes([head[0], head[1]]));
        let body = rest.get(..length).filter(|body| !body.is_empty())?;
        (checksum(before, &head[..2], body).to_le_bytes() == head[2..]).then(|| (Self::decode(body), HEAD + length))
    }

    fn decode(body: &[u8]) -> Result<Burst, Error> {
        let mut from = Reader(body);
        let ms = from.varint()?;
        let mut entries = Vec::new();
        while !from.0.is_empty() {
            entries.push(Entry::read(&mut from)?);
        }
        Ok(Burst { ms, entries })
    }

    /// Its bytes, without padding, and its checksum.
    pub fn write(&self, before: u32) -> (Vec<u8>, u32) {
        let mut body = Vec::new();
        put_varint(&mut body, self.ms);
        self.entries.iter().for_each(|entry| entry.write(&mut body));
        let length = u16::try_from(body.len()).expect("a burst is shorter than a sector").to_le_bytes();
        let crc = checksum(before, &length, &body);
        ([&length[..], &crc.to_le_bytes(), &body].concat(), crc)
    }
}

fn checksum(before: u32, length: &[u8], body: &[u8]) -> u32 {
    crc32c(crc32c(crc32c(0, &before.to_le_bytes()), length), body)
}

impl Entry {
    fn read(from: &mut Reader<'_>) -> Result<Entry, Error> {
        let first = from.byte()?;
        let id = first & 31;
        match first >> 5 {
            APPEND => read_append(id, from),
            DONE => read_done(id, from),
            FIRED => Ok(Entry::Fired { function: id, attempt: from.byte()? }),
            DEFINE => read_define(id, from),
            OPEN => Ok(Entry::Open { reason: id, epoch: from.number(3)? as u32, lost: from.varint()? }),
            CLOCK => match id {
                0 => Ok(Entry::Later { ms: from.varint()? }),
                1 => Ok(Entry::Jump { ms: from.varint()? }),
                _ => Err(later("a CLOCK of an unknown kind")),
            },
            NOTE => Ok(Entry::Note { what: id, body: from.sized()?.to_vec() }),
            _ => Err(later("an entry of an unknown kind")),
        }
    }

    fn write(&self, to: &mut Vec<u8>) {
        match self {
            Entry::Append { log, back, cause, payload } => {
                to.push(APPEND << 5 | log);
                put_varint(to, payload.len() as u64);
                put_varint(to, *back);
                match cause {
                    Cause::Outside => to.push(0),
                    Cause::Run => to.push(1),
                    Cause::Event(id) => {
                        to.push(2);
                        to.extend(id.get().to_le_bytes());
                    }
                }
                to.extend(payload);
            }
            Entry::Done { function, outcome, attempt, appends, log, behind, ms, rows, code } => {
                to.extend([DONE << 5 | function, outcome | attempt << 2, *appends, *log]);
                put_varint(to, *behind);
                put_varint(to, *ms);
                put_varint(to, rows.len() as u64);
                for row in rows {
                    to.push(row.log);
                    put_varint(to, row.behind);
                    put_varint(to, row.count);
                }
                code.iter().for_each(|code| put_varint(to, *code));
            }
            Entry::Fired { function, attempt } => to.extend([FIRED << 5 | function, *attempt]),
            Entry::Log { id, flags, history, seqno, back, name, carried } => {
                let mut body = vec![*flags];
                [history, seqno, back].into_iter().for_each(|value| put_varint(&mut body, *value));
                body.push(name.len() as u8);
                body.extend(name.as_bytes());
                if let Some((ago, payload)) = carried {
                    put_varint(&mut body, *ago);
                    body.extend(payload);
                }
                to.extend([DEFINE << 5 | id, DEFINE_LOG]);
                put_sized(to, &body);
            }
            Entry::Function { id, logs, attempt, ended, pending, behind, older, back, skip, name } => {
                let mut body = Vec::new();
                put_varint(&mut body, *logs);
                body.push(*attempt);
                [ended, pending, behind, older, back, skip].into_iter().for_each(|value| put_varint(&mut body, *value));
                body.push(name.len() as u8);
                body.extend(name.as_bytes());
                to.extend([DEFINE << 5 | id, DEFINE_FUNCTION]);
                put_sized(to, &body);
            }
            Entry::Open { reason, epoch, lost } => {
                to.push(OPEN << 5 | reason);
                to.extend(&epoch.to_le_bytes()[..3]);
                put_varint(to, *lost);
            }
            Entry::Later { ms } => {
                to.push(CLOCK << 5);
                put_varint(to, *ms);
            }
            Entry::Jump { ms } => {
                to.push(CLOCK << 5 | 1);
                put_varint(to, *ms);
            }
            Entry::Note { what, body } => {
                to.push(NOTE << 5 | what);
                put_sized(to, body);
            }
        }
    }
}

fn read_append(log: u8, from: &mut Reader<'_>) -> Result<Entry, Error> {
    let (size, back) = (from.varint()?, from.varint()?);
    let cause = match from.byte()? {
        0 => Cause::Outside,
        1 => Cause::Run,
        2 => {
            let bytes = from.take(16)?.try_into().expect("16 bytes were taken");
            Cause::Event(EventId::from_bits(u128::from_le_bytes(bytes)))
        }
        _ => return Err(later("a cause of an unknown kind")),
    };
    let size = usize::try_from(size).map_err(|_| malformed("a length"))?;
    Ok(Entry::Append { log, back, cause, payload: from.take(size)?.to_vec() })
}

fn read_done(function: u8, from: &mut Reader<'_>) -> Result<Entry, Error> {
    let (first, appends, log) = (from.byte()?, from.byte()?, from.byte()?);
    let (outcome, attempt) = (first & 3, first >> 2 & 15);
    if outcome > CANCELLED {
        return Err(later("an unknown outcome of a run"));
    }
    let (behind, ms, count) = (from.varint()?, from.varint()?, from.varint()?);
    let mut rows = Vec::new();
    for _ in 0..count {
        rows.push(Row { log: from.byte()?, behind: from.varint()?, count: from.varint()? });
    }
    let code = if outcome == DEAD { Some(from.varint()?) } else { None };
    Ok(Entry::Done { function, outcome, attempt, appends, log, behind, ms, rows, code })
}

fn read_define(id: u8, from: &mut Reader<'_>) -> Result<Entry, Error> {
    let what = from.byte()?;
    let mut body = Reader(from.sized()?);
    match what {
        DEFINE_LOG => {
            let flags = body.byte()?;
            let (history, seqno, back) = (body.varint()?, body.varint()?, body.varint()?);
            let name = read_name(&mut body)?;
            let carried = if flags & CARRIED != 0 { Some((body.varint()?, body.0.to_vec())) } else { None };
            Ok(Entry::Log { id, flags, history, seqno, back, name, carried })
        }
        DEFINE_FUNCTION => {
            let (logs, attempt, ended) = (body.varint()?, body.byte()?, body.varint()?);
            let (pending, behind, older) = (body.varint()?, body.varint()?, body.varint()?);
            let (back, skip) = (body.varint()?, body.varint()?);
            let name = read_name(&mut body)?;
            Ok(Entry::Function { id, logs, attempt, ended, pending, behind, older, back, skip, name })
        }
        _ => Err(later("a DEFINE of an unknown kind")),
    }
}

fn read_name(from: &mut Reader<'_>) -> Result<String, Error> {
    let size = from.byte()?;
    let name = from.take(usize::from(size))?;
    String::from_utf8(name.to_vec()).map_err(|_| malformed("a name is not text"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Entry::Append { log, back, cause, payload } => {
                write!(f, "APPEND log {log} back {back} ")?;
                match cause {
                    Cause::Outside => write!(f, "from outside")?,
                    Cause::Run => write!(f, "by the run")?,
                    Cause::Event(id) => write!(f, "by {id}")?,
                }
                write!(f, " x{}", hex(payload))
            }
            Entry::Done { function, outcome, attempt, appends, log, behind, ms, rows, code } => {
                write!(f, "DONE function {function} outcome {outcome} attempt {attempt} appends {appends} ")?;
                write!(f, "log {log} behind {behind} ms {ms}")?;
                rows.iter()
                    .try_for_each(|row| write!(f, " read log {} behind {} count {}", row.log, row.behind, row.count))?;
                code.iter().try_for_each(|code| write!(f, " code {code}"))
            }
            Entry::Fired { function, attempt } => write!(f, "FIRED function {function} attempt {attempt}"),
            Entry::Log { id, flags, history, seqno, back, name, carried } => {
                write!(f, "DEFINE log {id} '{name}' flags {flags} history {history} seqno {seqno} back {back}")?;
                carried.iter().try_for_each(|(ago, payload)| write!(f, " ago {ago} x{}", hex(payload)))
            }
            Entry::Function { id, logs, attempt, ended, pending, behind, older, back, skip, name } => {
                write!(f, "DEFINE function {id} '{name}' logs {logs} attempt {attempt} ended {ended} ")?;
                write!(f, "pending {pending} behind {behind} older {older} back {back} skip {skip}")
            }
            Entry::Open { reason, epoch, lost } => write!(f, "OPEN reason {reason} epoch {epoch} lost {lost}"),
            Entry::Later { ms } => write!(f, "CLOCK later {ms}"),
            Entry::Jump { ms } => write!(f, "CLOCK jump {ms}"),
            Entry::Note { what, body } => write!(f, "NOTE {what} x{}", hex(body)),
        }
    }
}
