//! All entries in order, from a position on.

use crate::{
    entry::{ALIGN_BYTES, Entry, HEADER_BYTES, Header, Kind, Position},
    journal::{Inner, Session},
    read::get::damaged,
};
use millrace_wire::Result;
use std::sync::{Arc, atomic::Ordering};

/// Reads committed entries one after the other; at the tail it can be asked again later.
pub struct Scan {
    session: Arc<Session>,
    position: u64,
    entry: Entry,
    /// Of the entry that was read last.
    header: Header,
    gap: bool,
    shadows: bool,
}

impl Scan {
    pub(crate) fn new(session: Arc<Session>, from: Position) -> Self {
        let header = Header::default();
        let entry = Entry::of(from, &header, Kind::Open);
        Self { session, position: from.0, entry, header, gap: false, shadows: false }
    }

    /// Gives out shadow entries as well.
    pub(crate) fn with_shadows(self) -> Self {
        Self { shadows: true, ..self }
    }

    /// Where the next entry will be looked for.
    pub fn position(&self) -> Position {
        Position(self.position)
    }

    /// Whether entries were passed over since this was last asked: retention overtook the scan, or they are damaged.
    pub fn gap(&mut self) -> bool {
        std::mem::take(&mut self.gap)
    }

    /// The next committed entry, or `None` at the tail. Entries of kinds that this version may ignore are passed over. An error
    /// if the scan began at no multiple of 16. A damaged entry is an error once; the scan continues behind it.
    #[expect(clippy::should_implement_trait, reason = "it lends its entry, which Iterator cannot")]
    pub fn next(&mut self) -> Result<Option<&Entry>> {
        if !self.position.is_multiple_of(ALIGN_BYTES) {
            Position::named(self.position)?;
        }
        loop {
            let tail = self.session.control.published.tail.load(Ordering::Acquire);
            self.skip_to_kept();
            let before = self.position;
            let found = self.session.read_from(&mut self.position, tail, &mut self.header);
            if self.session.check_kept(before).is_err() {
                self.position = before; // Retention overtook the scan: what stood from here on was passed over.
                continue;
            }
            let (Some(position), header) = (found?, &self.header) else { return Ok(None) };
            let kind = Kind::from_u8(header.kind).filter(|_| self.shadows || !header.is_shadow());
            let mut filled = Ok(());
            if let Some(kind) = kind {
                self.entry.set(Position(position), header, kind);
                filled = self.session.fill(&mut self.entry, header);
            }
            if self.session.check_kept(position).is_ok() {
                filled?;
                self.position = position + header.span();
                if kind.is_some() {
                    return Ok(Some(&self.entry));
                }
            }
        }
    }

    fn skip_to_kept(&mut self) {
        let first = self.session.control.upkeep.first.load(Ordering::Acquire);
        if self.position < first {
            self.gap |= self.position != 0;
            self.position = first;
        }
    }
}

impl Inner {
    /// The next valid entry at or behind `position` and before `tail`. `position` follows; behind damage, it is where the
    /// next valid entry stands. `None` as well where retention has passed the position meanwhile, as the reader will notice.
    pub(crate) fn entry_from(&self, position: &mut u64, tail: u64) -> Result<Option<(u64, Header)>> {
        let mut header = Header::default();
        Ok(self.read_from(position, tail, &mut header)?.map(|at| (at, header)))
    }

    /// The same; the header is put into `header`.
    pub(crate) fn read_from(&self, position: &mut u64, tail: u64, header: &mut Header) -> Result<Option<u64>> {
        let from = *position;
        let found = self.entry_behind(position, tail, header);
        Ok(self.unless_passed(from, found)?.flatten())
    }

    fn entry_behind(&self, position: &mut u64, tail: u64, header: &mut Header) -> Result<Option<u64>> {
        let segments = &self.segments;
        loop {
            if *position >= tail {
                return Ok(None);
            }
            if segments.offset(*position) < HEADER_BYTES {
                *position = segments.first_entry(segments.number(*position));
                continue;
            }
            if segments.room(*position) >= HEADER_BYTES {
                super::note_visit();
                if segments.read_entry(*position, header)? {
                    return Ok(Some(*position));
                }
                if segments.header(*position)?.length != 0 {
                    let bad = *position;
                    if bad < self.control.upkeep.first.load(Ordering::Acquire) {
                        return Ok(None); // Recycled under the reader, who will notice.
                    }
                    *position = segments.resync(bad, tail)?;
                    return Err(damaged(bad, format!("{} bytes", *position - bad)));
                }
                if let Some(next) = self.behind_a_hole(*position, tail)? {
                    let bad = std::mem::replace(position, next);
                    return Err(damaged(bad, format!("{} bytes", next - bad)));
                }
            }
            // The rest of the segment was skipped by its writer.
            *position = segments.start(segments.number(*position) + 1);
        }
    }

    /// Zeros end a segment, unless entries follow them: then they are damage.
    fn behind_a_hole(&self, position: u64, tail: u64) -> Result<Option<u64>> {
        let segments = &self.segments;
        let boundary = segments.start(segments.number(position) + 1);
        let next = segments.resync(position, tail.min(boundary))?;
        Ok((next < tail.min(boundary)).then_some(next))
    }
}
