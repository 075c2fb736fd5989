//! Memory for what is large: one bound for all connections of the process, whichever protocol they speak.
//!
//! What a connection needs for small requests and answers is its own and bounded for each; what goes beyond that is
//! counted here. Those who find no room are told to try again a little later, and small requests go on meanwhile.

use millrace_wire::{Code, Result};
use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};
use tokio::time::sleep;

/// What a connection may hold in each direction without being counted: its own buffers are about as large.
pub(crate) const SMALL_BYTES: usize = 64 << 10;
/// Everything larger together, coming and going.
const LARGE_MAX_BYTES: usize = 256 << 20;

/// How often memory is asked for, while others have it.
const RETRY: Duration = Duration::from_millis(100);
const TRIES: u32 = 300;

/// Bytes of all that is large in this process.
static LARGE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Whether no room is left: then nobody adds to what is his own already.
pub(crate) fn is_short() -> bool {
    LARGE_BYTES.load(Ordering::Relaxed) >= LARGE_MAX_BYTES
}

/// Whether there is no room for so many bytes more.
#[cfg(test)]
pub(crate) fn is_short_of<const BYTES: usize>() -> bool {
    LARGE_BYTES.load(Ordering::Relaxed) + BYTES > LARGE_MAX_BYTES
}

/// Waits until there is room for so many bytes, for as long as that makes sense; they are not taken yet.
pub(crate) async fn room_for(bytes: usize) -> Result<()> {
    for _ in 0..TRIES {
        if Reservation::of(bytes).is_ok() {
            return Ok(());
        }
        sleep(RETRY).await;
    }
    Reservation::of(bytes).map(drop)
}

/// A part of the memory for what is large; given back when dropped.
#[derive(Default)]
pub(crate) struct Reservation(usize);

impl Reservation {
    /// Room for so many bytes; nothing for small ones.
    pub fn of(bytes: usize) -> Result<Option<Reservation>> {
        if bytes <= SMALL_BYTES {
            return Ok(None);
        }
        let mut reservation = Reservation(0);
        reservation.grow(bytes)?;
        Ok(Some(reservation))
    }

    pub fn grow(&mut self, to: usize) -> Result<()> {
        let more = to.saturating_sub(self.0);
        let taken = LARGE_BYTES.fetch_add(more, Ordering::Relaxed);
        self.0 += more;
        // What is too much is given back by whoever drops this.
        if taken + more > LARGE_MAX_BYTES {
            return Err(Code::HttpMemoryShort.error(format!("{} MiB are in use", taken >> 20)));
        }
        Ok(())
    }

    /// Counts what is there in any case, of which the small part is the connection's own.
    pub fn count(&mut self, bytes: usize) {
        let large = bytes.saturating_sub(SMALL_BYTES);
        if large > self.0 {
            LARGE_BYTES.fetch_add(large - self.0, Ordering::Relaxed);
        } else if large < self.0 {
            LARGE_BYTES.fetch_sub(self.0 - large, Ordering::Relaxed);
        }
        self.0 = large;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        LARGE_BYTES.fetch_sub(self.0, Ordering::Relaxed);
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
}
