//! Pins: they protect a part of the journal from retention for a time, because a backup or a repair needs it.
//!
//! A pin is a definition, so it is in the journal, in the manifest and in each CATALOG, and every process knows it. It ends when it is
//! removed, at its time, or when the journal after it has grown by too much: so a dead process, or a reader that is too slow, cannot fill
//! the disk.

use crate::{
    catalog::Pin,
    entry::Position,
    journal::{Inner, Journal},
};
use millrace_wire::Result;
use std::{sync::atomic::Ordering, time::Duration};

/// The longest name of an owner that is kept.
const OWNER_MAX_CHARS: usize = 200;

impl Journal {
    /// Keeps everything from the oldest entry on from retention for as long as `lasts`, or until the journal has grown by
    /// `bytes_max` behind it. `owner` says to a person who wants that, and what for.
    pub fn pin(&self, owner: &str, bytes_max: u64, lasts: Duration) -> Result<Pin> {
        let owner: String = owner.chars().take(OWNER_MAX_CHARS).collect();
        let inner = self.inner();
        let mut pin = self
            .commit(|transaction| {
                let from = inner.control.upkeep.first.load(Ordering::Acquire);
                let kept_bytes = transaction.tail().0 - from;
                let id = transaction.catalog().next_id();
                transaction.define_pin(&Pin {
                    id,
                    from,
                    bytes_max: kept_bytes.saturating_add(bytes_max),
                    until_us: inner.until(lasts),
                    owner,
                })
            })?
            .value;
        // A process that is dropping a segment now may not have seen the pin; a later one has.
        let lock = inner.retain_lock();
        lock.acquire();
        pin.from = inner.control.upkeep.first.load(Ordering::Acquire);
        lock.release();
        Ok(pin)
    }

    /// Lets a pin last for this long from now; false if it has ended meanwhile.
    pub fn renew_pin(&self, pin: &Pin, lasts: Duration) -> Result<bool> {
        let inner = self.inner();
        let committed = self.commit(|transaction| match transaction.catalog().pin(pin.id).cloned() {
            Some(known) => {
                transaction.define_pin(&Pin { until_us: inner.until(lasts), ..known })?;
                Ok(true)
            }
            None => Ok(false),
        })?;
        Ok(committed.value)
    }

    /// Ends a pin, if it has not ended.
    pub fn unpin(&self, id: u32) -> Result<()> {
        self.inner().unpin(&[id])
    }

    /// The pins that hold what retention would drop, or may come to do so.
    pub fn pins(&self) -> Result<Vec<Pin>> {
        let inner = self.inner();
        let catalog = inner.fresh_catalog()?;
        Ok(catalog.pins().filter(|pin| !inner.is_over(pin)).cloned().collect())
    }
}

impl Inner {
    fn until(&self, lasts: Duration) -> u64 {
        self.medium.wall_us().saturating_add(u64::try_from(lasts.as_micros()).unwrap_or(u64::MAX))
    }

    fn is_over(&self, pin: &Pin) -> bool {
        pin.until_us <= self.medium.wall_us() || self.tail().saturating_sub(pin.from) > pin.bytes_max
    }

    fn unpin(&self, ids: &[u32]) -> Result<()> {
        self.commit(|transaction| {
            for id in ids {
                if transaction.catalog().pin(*id).is_some() {
                    transaction.remove_pin(*id)?;
                }
            }
            Ok(())
        })
        .map(drop)
    }

    /// Removes the pins that are over.
    pub(crate) fn remove_old_pins(&self) -> Result<()> {
        let over: Vec<u32> = self.fresh_catalog()?.pins().filter(|pin| self.is_over(pin)).map(|pin| pin.id).collect();
        if over.is_empty() { Ok(()) } else { self.unpin(&over) }
    }

    /// The oldest segment that a pin holds.
    pub(crate) fn first_pinned(&self) -> Result<Option<u64>> {
        let catalog = self.fresh_catalog()?;
        let held = catalog.pins().filter(|pin| !self.is_over(pin)).map(|pin| self.segments.number(pin.from));
        Ok(held.min())
    }
}

impl Pin {
    /// Everything from here on is kept.
    pub fn from(&self) -> Position {
        Position(self.from)
    }
}
