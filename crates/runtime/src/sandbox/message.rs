//! Messages between a host and the supervisor of a sandbox: one packet each, with length-prefixed parts.
//!
//! ```text
//! host --> PLAN                               READY landlock | FAILED step errno
//!          DIRECTORY                          DONE number, path
//!          REMOVE number                      DONE
//!          START program … + 4 descriptors    DONE number + pidfd | FAILED step errno
//!          END number                         DONE status
//! ```

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

/// The longest packet. The kernel takes it at once, or refuses it.
pub(super) const PACKET_MAX_BYTES: usize = 128 << 10;
/// The most parts of a list.
const LIST_MAX: u32 = 4096;

/// A packet is not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// How a sandbox is to be made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Namespaces and a root directory of its own.
    pub(super) namespaces: bool,
    /// It may use the host's network.
    pub(super) network: bool,
    /// Of the defences, those that a test takes out.
    pub(super) without: u32,
    /// The function's code.
    pub(super) code: PathBuf,
    /// Where working directories stand, if it has no root directory of its own.
    pub(super) work: PathBuf,
    /// The visible files of the host, besides programs and libraries.
    pub(super) shown: Vec<PathBuf>,
    /// Symbolic links that lead to them, and where each leads.
    pub(super) links: Vec<(PathBuf, PathBuf)>,
}

/// A process that is to be started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Start {
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<OsString>,
    pub(super) environment: Vec<(OsString, OsString)>,
    pub(super) dir: PathBuf,
    pub(super) memory_max_bytes: u64,
}

/// Requests of a host once the sandbox runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Directory,
    Remove(u32),
    Start(Start),
    End(u32),
}

/// Answers of the supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The request was executed; the meaning of the number and the path depends on it.
    Done { number: u32, path: PathBuf },
    /// This step failed, with this errno.
    Failed { step: String, errno: i32 },
}

const PLAN: u8 = 1;
const DIRECTORY: u8 = 2;
const REMOVE: u8 = 3;
const START: u8 = 4;
const END: u8 = 5;
const DONE: u8 = 16;
const FAILED: u8 = 17;

impl Plan {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut to = Writer(vec![PLAN, self.namespaces.into(), self.network.into()]);
        to.number(self.without);
        to.text(&self.code);
        to.text(&self.work);
        to.list(&self.shown, |to, path| to.text(path));
        to.list(&self.links, |to, (link, target)| {
            to.text(link);
            to.text(target);
        });
        to.0
    }

    pub(super) fn decode(packet: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader(packet);
        if from.byte()? != PLAN {
            return Err(Malformed);
        }
        let plan = Self {
            namespaces: from.flag()?,
            network: from.flag()?,
            without: from.number()?,
            code: from.text()?.into(),
            work: from.text()?.into(),
            shown: from.list(|from| Ok(from.text()?.into()))?,
            links: from.list(|from| Ok((from.text()?.into(), from.text()?.into())))?,
        };
        from.end(plan)
    }
}

impl Request {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut to = Writer(Vec::new());
        match self {
            Self::Directory => to.0.push(DIRECTORY),
            Self::Remove(number) => to.tagged(REMOVE, *number),
            Self::End(number) => to.tagged(END, *number),
            Self::Start(start) => {
                to.0.push(START);
                to.text(&start.program);
                to.list(&start.arguments, |to, word| to.text(word));
                to.list(&start.environment, |to, (name, value)| {
                    to.text(name);
                    to.text(value);
                });
                to.text(&start.dir);
                to.0.extend_from_slice(&start.memory_max_bytes.to_le_bytes());
            }
        }
        to.0
    }

    pub(super) fn decode(packet: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader(packet);
        let request = match from.byte()? {
            DIRECTORY => Self::Directory,
            REMOVE => Self::Remove(from.number()?),
            END => Self::End(from.number()?),
            START => Self::Start(Start {
                program: from.text()?.into(),
                arguments: from.list(Reader::text)?,
                environment: from.list(|from| Ok((from.text()?, from.text()?)))?,
                dir: from.text()?.into(),
                memory_max_bytes: u64::from(from.number()?) | u64::from(from.number()?) << 32,
            }),
            _ => return Err(Malformed),
        };
        from.end(request)
    }
}

impl Answer {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut to = Writer(Vec::new());
        match self {
            Self::Done { number, path } => {
                to.tagged(DONE, *number);
                to.text(path);
            }
            Self::Failed { step, errno } => {
                to.tagged(FAILED, errno.cast_unsigned());
                to.text(Path::new(step));
            }
        }
        to.0
    }

    pub(super) fn decode(packet: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader(packet);
        let answer = match from.byte()? {
            DONE => Self::Done { number: from.number()?, path: from.text()?.into() },
            FAILED => Self::Failed {
                errno: from.number()?.cast_signed(),
                step: from.text()?.to_string_lossy().chars().filter(|c| !c.is_control()).take(200).collect(),
            },
            _ => return Err(Malformed),
        };
        from.end(answer)
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, number: u32) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn tagged(&mut self, tag: u8, number: u32) {
        self.0.push(tag);
        self.number(number);
    }

    fn text(&mut self, text: impl AsRef<OsStr>) {
        let bytes = text.as_ref().as_bytes();
        // One that is longer makes a packet that is not sent.
        self.number(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        self.0.extend_from_slice(bytes);
    }

    fn list<T>(&mut self, list: &[T], one: impl Fn(&mut Self, &T)) {
        self.number(u32::try_from(list.len()).unwrap_or(u32::MAX));
        list.iter().for_each(|item| one(self, item));
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn byte(&mut self) -> Result<u8, Malformed> {
        let (byte, rest) = self.0.split_first().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*byte)
    }

    fn flag(&mut self) -> Result<bool, Malformed> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }

    fn number(&mut self) -> Result<u32, Malformed> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(u32::from_le_bytes(*bytes))
    }

    fn text(&mut self) -> Result<OsString, Malformed> {
        let length = self.number()? as usize;
        let (bytes, rest) =
            self.0.split_at_checked(length).filter(|(bytes, _)| !bytes.contains(&0)).ok_or(Malformed)?;
        self.0 = rest;
        Ok(OsString::from_vec(bytes.to_vec()))
    }

    fn list<T>(&mut self, mut one: impl FnMut(&mut Self) -> Result<T, Malformed>) -> Result<Vec<T>, Malformed> {
        let count = Some(self.number()?).filter(|count| *count <= LIST_MAX).ok_or(Malformed)?;
        (0..count).map(|_| one(self)).collect()
    }

    fn end<T>(&self, whole: T) -> Result<T, Malformed> {
        if self.0.is_empty() { Ok(whole) } else { Err(Malformed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        let shown = vec!["/opt/python".into(), "/srv/π".into()];
        let links = vec![("/a".into(), "/opt/python".into())];
        Plan { namespaces: true, network: false, without: 6, code: "/c".into(), work: "/w".into(), shown, links }
    }

    fn start() -> Start {
        Start {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), "".into()],
            environment: vec![("A".into(), "b=c".into())],
            dir: "/work/1".into(),
            memory_max_bytes: 5 << 33,
        }
    }

    fn requests() -> [Request; 4] {
        [Request::Directory, Request::Remove(7), Request::Start(start()), Request::End(u32::MAX)]
    }

    fn answers() -> [Answer; 2] {
        [Answer::Done { number: 3, path: "/work/3".into() }, Answer::Failed { step: "mount /".into(), errno: -5 }]
    }

    #[test]
    fn what_is_said_is_understood() {
        assert_eq!(Plan::decode(&plan().encode()), Ok(plan()));
        requests().iter().for_each(|request| assert_eq!(Request::decode(&request.encode()).as_ref(), Ok(request)));
        answers().iter().for_each(|answer| assert_eq!(Answer::decode(&answer.encode()).as_ref(), Ok(answer)));
    }

    #[test]
    fn nothing_else_is_understood_and_nothing_makes_room_for_what_did_not_come() {
        let packets: Vec<Vec<u8>> = [plan().encode()]
            .into_iter()
            .chain(requests().iter().map(Request::encode))
            .chain(answers().iter().map(Answer::encode))
            .collect();
        let understood =
            |bytes: &[u8]| (Plan::decode(bytes).is_ok(), Request::decode(bytes).is_ok(), Answer::decode(bytes).is_ok());
        for packet in &packets {
            for cut in 0..packet.len() {
                assert_eq!(understood(&packet[..cut]), (false, false, false), "{packet:?} cut at {cut}");
            }
            assert_eq!(understood(&[packet, &[0][..]].concat()), (false, false, false), "{packet:?} and a byte more");
            // Any byte changed is understood as something else, or not at all; lengths and counts beyond the packet are not.
            for at in 0..packet.len() {
                for value in [0, 1, 0x7f, 0xff] {
                    let mut changed = packet.clone();
                    changed[at] = value;
                    understood(&changed);
                }
            }
        }
        let many = [&[START, 0, 0, 0, 0][..], &u32::MAX.to_le_bytes()].concat();
        assert_eq!(Request::decode(&many), Err(Malformed));
        assert_eq!(Request::decode(&[END, 1, 0, 0, 0, 0]), Err(Malformed));
        assert_eq!(Answer::decode(&[DONE, 0, 0, 0, 0, 2, 0, 0, 0, b'/', 0]), Err(Malformed), "a zero byte in a path");
    }
}
