//! Sessions: the callers, their answered calls, and the leases of their locks.

use crate::{Raised, Reply};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

/// The length of a session's id.
pub const SESSION_BYTES: usize = 16;
/// A client's own random id, or the event id of a run.
pub type Session = [u8; SESSION_BYTES];
/// The application of a session: its entities end with the last of its sessions. Empty for entities that stay until they are deleted.
pub type Application = Box<str>;

/// Calls of one session whose answers were handed out and that it has not acknowledged, and the size of all answers that it has not
/// acknowledged: beyond either, the older half of those that were handed out is forgotten.
pub(crate) const CALLS_MAX: usize = 20_000;
/// Calls of one session that wait, or whose answers nobody has asked for since they came.
pub(crate) const OPEN_MAX: usize = 200_000;
pub(crate) const ANSWERS_MAX_BYTES: usize = 64 << 20;
/// A shorter answer is not worth forgetting alone: that it is forgotten takes memory, too.
const FORGOTTEN_MIN_BYTES: usize = 256;

/// The answers of all sessions together. An answer for which many calls wait is stored once.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// Their size in bytes.
    pub bytes: usize,
    /// The same if each call has an answer of its own: it does not depend on which of them were stored together.
    pub separate: usize,
    /// By the address of its value: how many calls have the answer.
    holders: HashMap<usize, usize>,
}

impl Kept {
    fn keep(&mut self, value: &Arc<[u8]>) {
        let holders = self.holders.entry(value.as_ptr().addr()).or_default();
        *holders += 1;
        self.separate += value.len();
        if *holders == 1 {
            self.bytes += value.len();
        }
    }

    /// A call that is forgotten no longer has its answer.
    pub fn forget(&mut self, asked: &Asked) {
        let Some((Ok(value), _)) = &asked.reply else { return };
        let Some(holders) = self.holders.get_mut(&value.as_ptr().addr()) else { return };
        *holders -= 1;
        self.separate -= value.len();
        if *holders == 0 {
            self.holders.remove(&value.as_ptr().addr());
            self.bytes -= value.len();
        }
    }
}

/// A call of a session.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// A hash of the entity and the method, to detect that another call uses the number.
    pub what: u64,
    /// The incarnation of the entity: an entity that is created again under the same key has another one.
    pub incarnation: u64,
    /// Its answer and when it was given; none while it waits.
    pub reply: Option<(Reply, u64)>,
    /// Whether the answer was handed to a request. Only then it may be forgotten: a client that has to ask again does so at once.
    pub handed: bool,
}

impl Asked {
    /// A call that has no answer yet.
    pub fn new(what: u64, incarnation: u64) -> Self {
        Self { what, incarnation, reply: None, handed: false }
    }

    /// How many bytes its answer takes.
    fn bytes(&self) -> usize {
        match &self.reply {
            Some((Ok(value), _)) => value.len(),
            _ => 0,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub application: Application,
    pub lease_ms: u64,
    pub expires_ms: u64,
    /// How many users keep it open: waiting connections and runs in progress.
    pub pinned: usize,
    pub calls: BTreeMap<u64, Asked>,
    /// How many of these have answers that were handed out, and the size of these answers.
    pub handed: usize,
    pub handed_bytes: usize,
    /// How many of these had no answer that was handed out, at most, since calls were last forgotten. All of them may be asked for again
    /// together, because their connection was lost with their answers. In a group it is 0: a snapshot does not contain it.
    pub most_open: usize,
    /// Whether each answer counts as handed out when it exists: all copies of a group have to forget the same answers, and only the host that
    /// a client asks knows which ones it has handed out.
    pub replicated: bool,
    /// Calls below are acknowledged.
    pub acked: u64,
    /// Bytes of answers that it has not acknowledged.
    pub bytes: usize,
    /// Entities in which it may have locks, permits or waiting calls.
    pub touched: BTreeSet<Box<str>>,
    /// Whether records name it: then it exists after a restart of its host.
    pub kept: bool,
}

impl Client {
    pub fn new(application: Application, lease_ms: u64, now_ms: u64) -> Self {
        let (calls, touched) = (BTreeMap::new(), BTreeSet::new());
        Self {
            application,
            lease_ms,
            expires_ms: now_ms + lease_ms,
            pinned: 0,
            calls,
            handed: 0,
            handed_bytes: 0,
            most_open: 0,
            replicated: false,
            acked: 0,
            bytes: 0,
            touched,
            kept: false,
        }
    }

    /// Stores the answer of a call.
    pub fn answer(&mut self, number: u64, reply: Reply, now_ms: u64, kept: &mut Kept) -> bool {
        let Some(asked) = self.calls.get_mut(&number) else { return false };
        kept.forget(asked);
        let before = asked.bytes();
        if let Ok(value) = &reply {
            kept.keep(value);
        }
        asked.reply = Some((reply, now_ms));
        self.bytes = self.bytes + asked.bytes() - before;
        if asked.handed {
            self.handed_bytes = self.handed_bytes + asked.bytes() - before;
        }
        if self.replicated {
            self.hand(number);
        }
        true
    }

    /// Stores an answer of a record. It counts as handed out: a session that acknowledges nothing may have any number of records.
    pub fn restore_answer(&mut self, number: u64, reply: Reply, now_ms: u64, kept: &mut Kept) {
        self.answer(number, reply, now_ms, kept);
        self.hand(number);
    }

    /// The answer of this call, if it has one, is handed to a request.
    pub fn hand(&mut self, number: u64) {
        if let Some(asked) = self.calls.get_mut(&number).filter(|asked| asked.reply.is_some() && !asked.handed) {
            asked.handed = true;
            self.handed += 1;
            self.handed_bytes += asked.bytes();
        }
    }

    /// Whether the answer of this call was acknowledged or forgotten: the call is not carried out again. A waiting call has no answer.
    pub fn is_over(&self, number: u64) -> bool {
        number < self.acked && !self.calls.contains_key(&number)
    }

    /// Makes room for another call: a session in which one call waits for hours, or a task, acknowledges nothing and calls on. A repeat of a
    /// forgotten call is refused, so the answers of the newest calls are those that a client may still ask for.
    pub fn make_room(&mut self, kept: &mut Kept) {
        if self.handed_bytes > ANSWERS_MAX_BYTES {
            self.forget_answers(ANSWERS_MAX_BYTES / 2, kept);
        }
        if !self.replicated {
            self.most_open = self.most_open.max(self.open());
        }
        if self.handed >= CALLS_MAX + self.most_open {
            let handed = self.calls.iter().rev().filter(|(_, asked)| asked.handed);
            let newest = handed.map(|(number, _)| *number).nth(CALLS_MAX / 2 - 1);
            newest.into_iter().for_each(|first| self.drop_below(first, |asked| asked.handed, kept));
            self.most_open = if self.replicated { 0 } else { self.open() };
        }
    }

    /// How many calls wait, or have answers that nobody has asked for.
    fn open(&self) -> usize {
        self.calls.len() - self.handed
    }

    /// Whether these are too many for another one.
    pub fn is_full(&self) -> bool {
        self.open() >= OPEN_MAX
    }

    /// The host has started again: any of the calls may be asked for again.
    pub fn restored(&mut self) {
        if !self.replicated {
            self.most_open = self.calls.len();
        }
    }

    /// Forgets answers that were handed out, except those of the newest calls with so many bytes, and at least one. The calls stay known:
    /// those of several threads do not come in the order of their numbers.
    pub fn forget_answers(&mut self, most: usize, kept: &mut Kept) {
        let mut newest = 0;
        for (number, asked) in self.calls.iter_mut().rev() {
            let bytes = if asked.handed { asked.bytes() } else { 0 };
            let is_first = newest == 0;
            newest += bytes;
            if is_first || newest <= most || bytes < FORGOTTEN_MIN_BYTES {
                continue;
            }
            kept.forget(asked);
            self.bytes -= bytes;
            self.handed_bytes -= bytes;
            if let Some((reply, _)) = &mut asked.reply {
                *reply =
                    Err(Raised::new("millrace.AnswerForgotten", format!("the answer of call {number} is not kept")));
            }
        }
    }

    /// Drops the answers that the client has acknowledged. A waiting call has no answer that could be acknowledged.
    pub fn acknowledge(&mut self, acked: u64, kept: &mut Kept) {
        self.drop_below(acked, |asked| asked.reply.is_some(), kept);
    }

    fn drop_below(&mut self, acked: u64, is_over: impl Fn(&Asked) -> bool, kept: &mut Kept) {
        if acked > self.acked {
            self.acked = acked;
            // Usually this is one call, the previous one.
            let mut from = 0;
            while let Some((&number, asked)) = self.calls.range(from..acked).next() {
                from = number + 1;
                if !is_over(asked) {
                    continue;
                }
                self.bytes -= asked.bytes();
                if asked.handed {
                    self.handed -= 1;
                    self.handed_bytes -= asked.bytes();
                }
                kept.forget(asked);
                self.calls.remove(&number);
            }
        }
    }
}
