//! The entries of one segment for a reader that needs few of them: the others are skipped by their headers.
//!
//! The header of a skipped entry is trusted if the next entry contains its checksum and has the next number: then its length is right.
//! Otherwise the entry is read, and the walk continues after it as a scan does.

use crate::{
    entry::{HEADER_BYTES, Header, Kind},
    journal::Inner,
};
use millrace_wire::Result;

pub(crate) struct Walk<'i> {
    inner: &'i Inner,
    position: u64,
    limit: u64,
    /// Checksum and sequence of the entry that ends at `position`.
    before: Option<(u32, u64)>,
    /// Its position, if it was skipped.
    unread: Option<u64>,
}

impl<'i> Walk<'i> {
    pub fn new(inner: &'i Inner, segment: u64) -> Self {
        let (position, limit) = (inner.segments.start(segment), inner.segments.start(segment + 1));
        Self { inner, position, limit, before: None, unread: None }
    }

    /// The next entry and where it stands. A record that is not `wanted` may come unread, and may come again if it has to be read. A
    /// damaged entry is an error once.
    pub fn next(&mut self, wanted: impl Fn(u64, &Header) -> bool) -> Result<Option<(u64, Header)>> {
        let (before, unread) = (self.before.take(), self.unread.take());
        let linked = before.map(|before| self.linked(before)).transpose()?.flatten();
        if let (None, Some(unread)) = (&linked, unread) {
            self.position = unread;
        }
        let plain =
            |header: &Header| header.folded() == Some(Kind::Append) && !header.is_compact() && !header.is_extended();
        let passed = linked.filter(|header| plain(header) && !wanted(self.position, header));
        let found = match passed {
            Some(header) => {
                self.unread = Some(self.position);
                Some((self.position, header))
            }
            None => self.inner.entry_from(&mut self.position, self.limit)?,
        };
        if let Some((at, header)) = &found {
            self.position = at + header.span();
            self.before = Some((header.crc, header.sequence));
        }
        Ok(found)
    }

    /// The entry at this position, if it follows the entry before.
    fn linked(&self, (crc, sequence): (u32, u64)) -> Result<Option<Header>> {
        let segments = &self.inner.segments;
        let is_place = self.position < self.limit && segments.room(self.position) >= HEADER_BYTES;
        if !is_place || segments.offset(self.position) < HEADER_BYTES {
            return Ok(None);
        }
        super::note_visit();
        let read = segments.header(self.position);
        let Some(header) = self.inner.unless_passed(self.position, read)? else { return Ok(None) };
        let follows = header.is_plausible(segments.room(self.position))
            && header.prev == crc
            && header.sequence == sequence.wrapping_add(1);
        Ok(follows.then_some(header))
    }
}
