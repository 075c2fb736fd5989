//! Whether the journal accepts appends: refusals of the disk, the directory's place, and the clock.

use crate::{
    journal::{Inner, Journal},
    medium::{Holder, Slot},
};
use millrace_wire::{Code, Error, Hlc, Result};
use std::{sync::atomic::Ordering, time::Duration};

/// How far another clock, or the newest event, may be ahead of this machine's clock to be followed.
pub const CLOCK_AHEAD_MAX: Duration = Duration::from_secs(60);

/// Whether a timestamp is so far ahead of the wall clock that one of the two clocks was wrong.
pub(super) fn is_ahead(clock: Hlc, wall_us: u64) -> bool {
    clock.wall_us().saturating_sub(wall_us) > CLOCK_AHEAD_MAX.as_micros() as u64
}

/// The timestamp that the next event follows: the newest one; or, if that is far ahead of the wall clock, the one of the last entry. If even
/// that is ahead, the wall clock: a wrong clock dates the events of its own time only.
pub(super) fn followed(newest: Hlc, last: Hlc, wall_us: u64) -> Hlc {
    match [newest, last].into_iter().find(|clock| !is_ahead(*clock, wall_us)) {
        Some(clock) => clock,
        None => Hlc::from_wall_us(wall_us),
    }
}

/// The holder of the journal's lock at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// A thread of this process.
    Own,
    /// Another process, which has this slot.
    Other(Slot),
}

impl Journal {
    /// The current holder of the journal's lock, if there is one: one load.
    pub fn writer(&self) -> Option<Writer> {
        let slot = self.inner().write_lock().owner()?;
        Some(if slot == self.inner().slot { Writer::Own } else { Writer::Other(slot) })
    }

    /// The process that has a slot, to be shown to a person, as far as the system tells.
    pub fn holder(&self, slot: Slot) -> Option<Holder> {
        self.inner().medium.holder(slot)
    }

    /// An error if the journal is closed to writes.
    pub fn check_health(&self) -> Result<()> {
        self.inner().control.check_health()
    }

    /// An error if the directory's path no longer leads to the files that are open here: the next process that opens the namespace would
    /// not find records that are appended now.
    pub fn check_place(&self) -> Result<()> {
        if self.inner().medium.is_in_place() {
            return Ok(());
        }
        let dir = std::path::absolute(self.dir()).unwrap_or_else(|_| self.dir().to_owned());
        Err(Code::NamespaceMoved.error(format!("'{}' is not the directory that was opened", dir.display())))
    }

    /// Why the disk refuses appends now, if it refused the last one: it is full, or cannot be written. The background thread, if there is
    /// one, tries again.
    pub fn refusal(&self) -> Option<Error> {
        let refuses = self.inner().refuses.load(Ordering::Acquire);
        if refuses { self.inner().refusal().as_ref().map(|(_, error)| error.clone()) } else { None }
    }

    /// [`Journal::refusal`] of whichever process has the namespace open, this one before others.
    pub fn refusal_anywhere(&self) -> Option<Error> {
        let elsewhere = || {
            let (slot, code) = self.inner().control.refusing()?;
            (slot != self.inner().slot && self.inner().medium.is_alive(slot)).then(|| {
                code.error("appends of another process that has the namespace open fail; most likely, it is the host")
            })
        };
        self.refusal().or_else(elsewhere)
    }

    /// The hybrid logical clock: not before the wall clock, nor before any event, except events of a clock that was far ahead of it.
    pub fn clock(&self) -> Hlc {
        let (newest, wall_us) = (self.inner().newest_clock(), self.inner().medium.wall_us());
        let wall = Hlc::from_wall_us(wall_us);
        if is_ahead(newest, wall_us) { wall } else { newest.max(wall) }
    }

    /// A clock that never goes back, for numbers that must grow: not before any event, nor before the wall clock.
    pub fn growing_clock(&self) -> Hlc {
        self.inner().newest_clock().max(Hlc::from_wall_us(self.inner().medium.wall_us()))
    }

    /// An error if an event lies so far ahead of the wall clock that one of the clocks was wrong. Later events have the time of the wall
    /// clock nevertheless.
    pub fn check_clock(&self) -> Result<()> {
        self.inner().check_clock()
    }

    /// How far the newest event lies ahead of the wall clock: more than a moment means that the clock was set back.
    pub fn clock_lead(&self) -> Duration {
        let newest = self.inner().newest_clock();
        Duration::from_micros(newest.wall_us().saturating_sub(self.inner().medium.wall_us()))
    }
}

impl Inner {
    /// The latest timestamp of all events.
    pub(crate) fn newest_clock(&self) -> Hlc {
        Hlc::from_bits(self.control.writer.hlc.load(Ordering::Relaxed))
    }

    pub(crate) fn check_clock(&self) -> Result<()> {
        let (newest, wall_us) = (self.newest_clock(), self.medium.wall_us());
        if is_ahead(newest, wall_us) {
            let ahead_s = (newest.wall_us() - wall_us) / 1_000_000;
            return Err(Code::ClockDrift.error(format!("an event is dated {ahead_s} s ahead of this machine's clock")));
        }
        Ok(())
    }
}
