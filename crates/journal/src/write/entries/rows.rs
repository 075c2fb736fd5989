//! The records of tables, and those with headers.

use crate::write::commit::{Appended, Transaction};
use crate::{
    catalog::Log,
    entry::{FLAG_CLAIMED, FLAG_EXTENDED, Header, Kind, payload::headers_extension, row::Row},
};
use millrace_wire::{Code, EventId, Headers, Result};

impl Transaction<'_> {
    /// Stages a record of a table. Its cause is `claimed` if it comes from a client. Whether key and value are what the table permits, and which
    /// version was the key's newest, is for the caller to know.
    pub fn append_row(
        &mut self,
        log: &Log,
        row: &Row<'_>,
        payload: &[u8],
        (cause, ordinal): (EventId, u16),
        claimed: bool,
    ) -> Result<Appended> {
        log.check_exists()?;
        if !log.is_of(&self.inner.control) {
            let own = self.own_log(log)?;
            return self.append_row(&own, row, payload, (cause, ordinal), claimed);
        }
        if log.table().is_none() {
            return Err(Code::NotATable.error(format!("log '{}' is no table", log.name())));
        }
        let seqno = self.next_of(log, payload.len())?;
        let flags = FLAG_EXTENDED | if claimed { FLAG_CLAIMED } else { 0 };
        let header = Header { kind: Kind::Append as u8, flags, subject: log.id(), seqno, ordinal, ..Header::default() };
        let id = self.stage(header, cause, &[&row.extension(), payload])?;
        Ok(Appended { seqno, id })
    }

    /// Stages a copy of a record of another namespace, under its number there. Numbers that are passed over have no records.
    pub fn append_row_at(
        &mut self,
        log: &Log,
        seqno: u64,
        (row, payload): (&Row<'_>, &[u8]),
        cause: EventId,
    ) -> Result<Appended> {
        log.check_exists()?;
        if !log.is_of(&self.inner.control) {
            let own = self.own_log(log)?;
            return self.append_row_at(&own, seqno, (row, payload), cause);
        }
        log.go_on_with(self.number, seqno)?;
        self.append_row(log, row, payload, (cause, 0), true)
    }

    /// Stages that the next record of a log has this number, and that no record before it can be read. The batch must have no records of the
    /// log: readers may see the new number before they see the batch.
    pub fn pass_to(&mut self, log: &Log, seqno: u64) -> Result<()> {
        log.check_exists()?;
        if !log.is_of(&self.inner.control) {
            let own = self.own_log(log)?;
            return self.pass_to(&own, seqno);
        }
        if seqno > log.latest() + 1 {
            log.go_on_with(self.number, seqno)?;
        }
        self.trim(log, seqno)
    }

    /// Stages a record of a client, which gives it headers. Its cause is only what the client claims.
    pub fn append_headed(
        &mut self,
        log: &Log,
        payload: &[u8],
        headers: &Headers,
        (cause, ordinal): (EventId, u16),
    ) -> Result<Appended> {
        if headers.is_empty() || log.table().is_some() {
            return self.append_claimed(log, payload, cause, ordinal); // It refuses a table.
        }
        log.check_exists()?;
        if !log.is_of(&self.inner.control) {
            let own = self.own_log(log)?;
            return self.append_headed(&own, payload, headers, (cause, ordinal));
        }
        let seqno = self.next_of(log, payload.len())?;
        let flags = FLAG_EXTENDED | FLAG_CLAIMED;
        let header = Header { kind: Kind::Append as u8, flags, subject: log.id(), seqno, ordinal, ..Header::default() };
        let id = self.stage(header, cause, &[&headers_extension(headers), payload])?;
        Ok(Appended { seqno, id })
    }
}
