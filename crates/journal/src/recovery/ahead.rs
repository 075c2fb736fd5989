//! Two threads that read and verify segments ahead of the one whose chain recovery is following.
//!
//! Recovery follows one chain from entry to entry; reading the files and verifying checksums needs no order. A free thread takes the next
//! segment: it makes the kernel read it into the mapping, piece by piece, which shows the pages that the disk cannot read, and verifies its
//! entries. The result is a hint: an entry that is not known to be intact is verified again when the chain reaches it.

use crate::{
    entry::{ALIGN_BYTES, HEADER_BYTES},
    store::segments::Segments,
};
use millrace_wire::{Code, Error, Result};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    ops::Range,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread,
};

/// Segments that may be verified and not yet passed: each takes a bit for every place that an entry may have.
const AHEAD_MAX: u64 = 8;
/// With fewer segments than this a second thread costs more than it spares.
const SHARED_MIN: u64 = 3;

/// Which places of a segment have a whole entry.
pub(super) struct Whole(Vec<u64>);

impl Whole {
    fn new(segment_bytes: u64) -> Self {
        Self(vec![0; (segment_bytes / ALIGN_BYTES).div_ceil(64) as usize])
    }

    fn add(&mut self, offset: u64) {
        let place = offset / ALIGN_BYTES;
        self.0[(place / 64) as usize] |= 1 << (place % 64);
    }

    fn has(&self, offset: u64) -> bool {
        let place = offset / ALIGN_BYTES;
        offset.is_multiple_of(ALIGN_BYTES) && self.0[(place / 64) as usize] >> (place % 64) & 1 == 1
    }
}

#[derive(Default)]
struct State {
    /// The next segment that no thread has taken.
    next: u64,
    /// The oldest that the chain has not passed.
    passing: u64,
    verified: BTreeMap<u64, Whole>,
    failed: Option<Error>,
    is_over: bool,
}

struct Shared<'s> {
    segments: &'s Segments,
    end: u64,
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared<'_> {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the next segment, unless that is too far ahead.
    fn take(&self, state: &mut State) -> Option<u64> {
        let number = state.next;
        let is_free = number < self.end && number < state.passing + AHEAD_MAX && state.failed.is_none();
        is_free.then(|| {
            state.next += 1;
            number
        })
    }

    fn verify(&self, number: u64) {
        let verified = verify(self.segments, number);
        let mut state = self.state();
        match verified {
            Ok(whole) => drop(state.verified.insert(number, whole)),
            Err(error) => state.failed = Some(error),
        }
        self.changed.notify_all();
    }

    /// The work of the second thread.
    fn help(&self) {
        let _tells = Tells(self);
        loop {
            let mut state = self.state();
            let number = loop {
                if state.is_over || state.failed.is_some() || state.next >= self.end {
                    return;
                }
                match self.take(&mut state) {
                    Some(number) => break number,
                    None => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(state);
            self.verify(number);
        }
    }
}

/// A waiter for the second thread learns that it has ended.
struct Tells<'s, 'i>(&'i Shared<'s>);

impl Drop for Tells<'_, '_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.state().failed = Some(Code::Io.error("the thread that reads segments ahead panicked"));
            self.0.changed.notify_all();
        }
    }
}

/// Reads a segment and verifies its entries from the first one on, for as long as one follows another.
fn verify(segments: &Segments, number: u64) -> Result<Whole> {
    let mut whole = Whole::new(segments.bytes());
    let (start, mut next) = (segments.start(number), Some(segments.first_entry(number)));
    segments.probe_telling(number, &mut |to| {
        while let Some(position) = next {
            if segments.offset(position) == 0 || start + to < position + HEADER_BYTES {
                break; // The segment is full, or the header is still to be read.
            }
            let length = segments.header(position).map_or(0, |header| u64::from(header.length));
            if start + to < position + length && length <= segments.room(position) {
                break;
            }
            // Errors are reported when the chain reaches the segment.
            next = segments.valid_entry(position).ok().flatten().map(|header| {
                whole.add(segments.offset(position));
                position + header.span()
            });
        }
    })?;
    Ok(whole)
}

/// The results for the segments of the chain.
pub(super) struct Ahead<'s> {
    shared: &'s Shared<'s>,
    /// The segment that the chain is in, and the next.
    near: RefCell<BTreeMap<u64, Whole>>,
    /// Whether all segments were read.
    is_finished: Cell<bool>,
}

impl Ahead<'_> {
    /// Reads a segment and the next one before the chain is checked there.
    pub fn pass(&self, number: u64) -> Result<()> {
        let last = (number + 1).min(self.shared.end.saturating_sub(1));
        if self.near.borrow().contains_key(&last) || self.is_finished.get() || number >= self.shared.end {
            return Ok(());
        }
        let mut state = self.shared.state();
        state.passing = number;
        self.shared.changed.notify_all();
        loop {
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            let mut near = self.near.borrow_mut();
            near.retain(|known, _| *known >= number);
            let mut later = state.verified.split_off(&(last + 1));
            near.append(&mut state.verified);
            state.verified.append(&mut later);
            if (number..=last).all(|needed| near.contains_key(&needed)) {
                return Ok(());
            }
            drop(near);
            state = match self.shared.take(&mut state) {
                Some(next) => {
                    drop(state);
                    self.shared.verify(next);
                    self.shared.state()
                }
                None => self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Has all segments read.
    pub fn finish(&self) -> Result<()> {
        let (from, end) = (self.shared.state().passing, self.shared.end);
        (from..end).try_for_each(|number| self.pass(number))?;
        self.is_finished.set(true);
        Ok(())
    }

    /// Whether an intact entry is known to be there.
    pub fn knows(&self, segments: &Segments, position: u64) -> bool {
        let near = self.near.borrow();
        near.get(&segments.number(position)).is_some_and(|whole| whole.has(segments.offset(position)))
    }
}

/// Runs `walk` while segments are read ahead of it.
pub(super) fn reading_ahead<R>(
    segments: &Segments,
    numbers: Range<u64>,
    walk: impl FnOnce(&Ahead<'_>) -> Result<R>,
) -> Result<R> {
    struct Over<'s>(&'s Shared<'s>);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.state().is_over = true;
            self.0.changed.notify_all();
        }
    }
    let state = State { next: numbers.start, passing: numbers.start, ..State::default() };
    let shared = Shared { segments, end: numbers.end, state: Mutex::new(state), changed: Condvar::new() };
    thread::scope(|scope| {
        let _over = Over(&shared);
        if numbers.end - numbers.start >= SHARED_MIN {
            // Without a second thread it takes longer.
            let _ = thread::Builder::new().name("millrace-verify".into()).spawn_scoped(scope, || shared.help());
        }
        walk(&Ahead { shared: &shared, near: RefCell::default(), is_finished: Cell::new(false) })
    })
}
