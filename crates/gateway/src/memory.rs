//! Memory of all connections of the process, whichever protocol they speak, in two bounds.
//!
//! Memory for small requests and answers is counted separately from memory for large ones, so that neither takes the room of the other: a
//! large request without room is refused, and the client retries later, while small requests are served. Only the first few KiB of each
//! connection are not counted. These are two counters and no semaphore, because bytes that have already arrived are counted even beyond the
//! limit, which a semaphore cannot do.

use millrace_wire::{Code, Result};
use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};
use tokio::time::sleep;

/// Up to this size, the memory of a connection counts as small.
pub(crate) const SMALL_BYTES: usize = 64 << 10;
/// Memory that every connection may have, and that is not counted.
const FREE_BYTES: usize = 4 << 10;
/// Everything small together.
const SMALL_MAX_BYTES: usize = 512 << 20;
/// The memory of an HTTP connection while it answers requests: the parser's buffers in both directions, and its state.
const HTTP_BYTES: usize = 24 << 10;
/// Everything larger together, coming and going.
const LARGE_MAX_BYTES: usize = 256 << 20;

/// How often memory is asked for, while others have it.
const RETRY: Duration = Duration::from_millis(100);
const TRIES: u32 = 300;

/// Bytes of all that is large in this process.
static LARGE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Bytes of all that is small.
static SMALL_USED_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Whether no memory is left for large requests: then none is accepted.
pub(crate) fn is_short() -> bool {
    LARGE_BYTES.load(Ordering::Relaxed) >= LARGE_MAX_BYTES
}

/// How much memory a connection may use now before it has to wait.
pub(crate) fn allowance() -> usize {
    match (SMALL_USED_BYTES.load(Ordering::Relaxed) >= SMALL_MAX_BYTES, is_short()) {
        (true, _) => FREE_BYTES,
        (false, true) => SMALL_BYTES,
        (false, false) => usize::MAX,
    }
}

/// Room for a connection that is about to answer requests over HTTP, once there is.
pub(crate) async fn for_http() -> Result<Reservation> {
    for _ in 0..TRIES {
        if allowance() > FREE_BYTES {
            let mut reservation = Reservation::default();
            reservation.count(FREE_BYTES + HTTP_BYTES);
            return Ok(reservation);
        }
        sleep(RETRY).await;
    }
    Err(Code::HttpMemoryShort.error(format!("connections take {} MiB", SMALL_MAX_BYTES >> 20)))
}

/// Whether there is no room for this number of bytes.
#[cfg(test)]
pub(crate) fn is_short_of<const BYTES: usize>() -> bool {
    LARGE_BYTES.load(Ordering::Relaxed) + BYTES > LARGE_MAX_BYTES
}

/// Waits until there is room for this number of bytes, within a limit; it does not take them.
pub(crate) async fn room_for(bytes: usize) -> Result<()> {
    for _ in 0..TRIES {
        if Reservation::of(bytes).is_ok() {
            return Ok(());
        }
        sleep(RETRY).await;
    }
    Reservation::of(bytes).map(drop)
}

/// A part of the memory; given back when dropped.
#[derive(Default)]
pub(crate) struct Reservation {
    large: usize,
    small: usize,
}

impl Reservation {
    /// Room for this number of bytes; none is counted for small numbers.
    pub fn of(bytes: usize) -> Result<Option<Reservation>> {
        if bytes <= SMALL_BYTES {
            return Ok(None);
        }
        let mut reservation = Reservation::default();
        reservation.grow(bytes)?;
        Ok(Some(reservation))
    }

    pub fn grow(&mut self, to: usize) -> Result<()> {
        let more = to.saturating_sub(self.large);
        let taken = LARGE_BYTES.fetch_add(more, Ordering::Relaxed);
        self.large += more;
        // Dropping this returns the excess.
        if taken + more > LARGE_MAX_BYTES {
            return Err(Code::HttpMemoryShort.error(format!("{} MiB are in use", taken >> 20)));
        }
        Ok(())
    }

    /// Counts what a connection holds.
    pub fn count(&mut self, bytes: usize) {
        let (large, small) = (bytes.saturating_sub(SMALL_BYTES), bytes.clamp(FREE_BYTES, SMALL_BYTES) - FREE_BYTES);
        change(&LARGE_BYTES, &mut self.large, large);
        change(&SMALL_USED_BYTES, &mut self.small, small);
    }
}

/// Counts `now` in place of what is counted.
fn change(all: &AtomicUsize, counted: &mut usize, now: usize) {
    if now > *counted {
        all.fetch_add(now - *counted, Ordering::Relaxed);
    } else if now < *counted {
        all.fetch_sub(*counted - now, Ordering::Relaxed);
    }
    *counted = now;
}

impl Drop for Reservation {
    fn drop(&mut self) {
        change(&LARGE_BYTES, &mut self.large, 0);
        change(&SMALL_USED_BYTES, &mut self.small, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_for_what_is_large_is_bounded_and_comes_back() {
        assert!(Reservation::of(SMALL_BYTES).unwrap().is_none());
        let most = Reservation::of(LARGE_MAX_BYTES - (1 << 20)).unwrap();
        assert_eq!(Reservation::of(2 << 20).map(drop).unwrap_err().code(), Code::HttpMemoryShort);
        assert!(!is_short());
        let mut held = Reservation::default();
        held.count((1 << 20) + SMALL_BYTES);
        assert!(is_short());
        held.count(SMALL_BYTES);
        assert!(!is_short());
        drop(most);
        assert!(Reservation::of(2 << 20).unwrap().is_some());
    }

    #[test]
    fn what_many_connections_hold_is_bounded_however_little_each_has() {
        let mut held: Vec<Reservation> = Vec::new();
        let mut connections = 0;
        while allowance() > FREE_BYTES {
            let mut one = Reservation::default();
            one.count(SMALL_BYTES);
            held.push(one);
            connections += 1;
            assert!(connections <= SMALL_MAX_BYTES / (SMALL_BYTES - FREE_BYTES) + 1, "more than there is");
        }
        assert!(connections * SMALL_BYTES > SMALL_MAX_BYTES / 2, "{connections} connections have all of it");
        // The first few KiB are everybody's own.
        held.push(Reservation::default());
        held.last_mut().unwrap().count(FREE_BYTES);
        held[0].count(0);
        assert_ne!(allowance(), FREE_BYTES);
        assert!(futures_util::FutureExt::now_or_never(for_http()).is_some_and(|room| room.is_ok()));
        held.clear();
    }
}
