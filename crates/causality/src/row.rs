//! An event in a table, and what a run read.

use millrace_journal::{Kind, Outcome, What};
use millrace_wire::Hlc;

pub(crate) const CLAIMED: u8 = 1;
pub(crate) const CARRIED: u8 = 2;
pub(crate) const VOID: u8 = 4;
/// Of a FIRED: its run read nothing then, and its replay did.
pub(crate) const NEW_READS: u8 = 8;
/// In a kind: the entry is a shadow.
pub(crate) const SHADOW: u8 = 0x40;

/// An event in a table.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Row {
    pub(crate) hlc: u64,
    /// Its number within the subject.
    pub seqno: u64,
    /// The log or function it is about.
    pub subject: u32,
    pub(crate) cause: u32,
    pub(crate) detail: u32,
    /// See [`Event::ordinal`].
    pub ordinal: u16,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
}

const _: () = assert!(size_of::<Row>() == 32);

impl Row {
    /// When it happened.
    pub fn hlc(&self) -> Hlc {
        Hlc::from_bits(self.hlc)
    }

    /// Whether it is of this kind.
    pub fn is(&self, kind: Kind) -> bool {
        self.kind == kind as u8
    }

    /// Whether its cause is only claimed, by a client and by no link.
    pub fn claimed(&self) -> bool {
        self.flags & CLAIMED != 0
    }

    /// Whether it is a copy whose neighbours are gone.
    pub fn carried(&self) -> bool {
        self.flags & CARRIED != 0
    }

    /// Of an APPEND, the length of the record.
    pub fn record_bytes(&self) -> u64 {
        if self.kind & !SHADOW == Kind::Append as u8 { self.detail.into() } else { 0 }
    }

    pub(crate) fn is_shadow(&self, kind: Kind) -> bool {
        self.kind == kind as u8 | SHADOW
    }

    /// Of a DONE, how the run ended, and the number of the error's code, 0 if there is none.
    pub fn outcome(&self) -> Option<(Outcome, u16)> {
        let outcome = match self.detail & 3 {
            0 => Outcome::Done,
            1 => Outcome::Dead,
            _ => Outcome::Cancelled,
        };
        let is_done = self.is(Kind::Done) || self.is_shadow(Kind::Done);
        is_done.then_some((outcome, (self.detail >> 2) as u16))
    }

    /// Of a FIRED, the revision of its function, and whether the attempt is over and the run waits.
    pub fn attempt(&self) -> Option<(u32, bool)> {
        self.is(Kind::Fired).then_some((self.detail >> 2, self.detail & 1 != 0))
    }

    /// Of a FIRED, whether each append of the run is published at once.
    pub(crate) fn is_streamed(&self) -> bool {
        self.is(Kind::Fired) && self.detail & 2 != 0
    }
}

/// Something that a run read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// The log.
    pub log: u32,
    /// The first seqno.
    pub from: u64,
    /// How many.
    pub count: u64,
    /// The result.
    pub what: What,
}

/// Something that a run read of a table, besides values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyedRead<'t> {
    /// That a key has no value: the hash of the key.
    Absent {
        /// The table.
        log: u32,
        /// The hash.
        hash: u64,
    },
    /// The first keys of a range.
    Range {
        /// The table.
        log: u32,
        /// The first key that belongs to the range.
        from: &'t [u8],
        /// The first that does not; empty if all do.
        to: &'t [u8],
        /// How many were asked for.
        limit: u32,
    },
}
