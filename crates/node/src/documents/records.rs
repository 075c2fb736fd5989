//! Records, entries of the journal, and links.

use crate::{Record, links::LinkView};
use millrace_documents::{EntryDoc, KeyText, LinkDoc, PayloadDoc, RecordDoc, WholeEntryDoc, id_text, rfc3339};
use millrace_journal::{Catalog, Entry, Kind, Position};
use millrace_wire::{Error, JsonBytes};

/// A record with its bytes.
pub fn whole_record<'r>(log: &'r str, record: &'r Record) -> RecordDoc<'r> {
    RecordDoc {
        log,
        seqno: record.seqno,
        id: id_text(record.id),
        time: rfc3339(record.hlc),
        cause: id_text(record.cause),
        headers: &record.headers,
        data: JsonBytes(&record.payload),
    }
}

/// An entry. `show` decides what is shown of its payload, from the name of its log or function.
pub fn entry(entry: &Entry, catalog: &Catalog, show: impl FnOnce(&[u8], Option<&str>) -> PayloadDoc) -> EntryDoc {
    let subject = match entry.kind {
        Kind::Append | Kind::Trim => catalog.log_by_id(entry.subject).map(|log| log.name().to_string()),
        Kind::Trigger | Kind::Fired | Kind::Read | Kind::Done | Kind::Call => {
            catalog.function_by_id(entry.subject).map(|function| function.name().to_string())
        }
        _ => None,
    };
    let bytes = entry.payload.len();
    let payload = show(&entry.payload, subject.as_deref());
    let (shown, row) = match &payload {
        PayloadDoc::Shown(shown) => (shown.len(), entry.row()),
        PayloadDoc::Secret => (0, None),
    };
    EntryDoc::Whole(Box::new(WholeEntryDoc {
        position: entry.position.get(),
        kind: entry.kind.name(),
        id: id_text(entry.id),
        time: rfc3339(entry.hlc),
        hlc: entry.hlc.get().to_string(),
        cause: id_text(entry.cause),
        subject,
        subject_id: entry.subject,
        seqno: entry.seqno,
        ordinal: entry.ordinal,
        last_of_batch: entry.last,
        carried: entry.carried,
        claimed: entry.claimed,
        repair: if entry.shadow { entry.repair() } else { None },
        key: row.map(|row| KeyText(row.key.into())),
        operation: row.map(|row| row.operation.name()),
        restates: row.and_then(|row| Some(row.restates?.seqno)),
        void: entry.shadow && entry.replaced().is_some_and(|replaced| replaced.void),
        bytes,
        cut: shown < bytes,
        payload,
    }))
}

/// The place of an entry that is damaged.
pub fn damaged(at: Position, error: &Error) -> EntryDoc {
    EntryDoc::Damaged { position: at.get(), error: error.into() }
}

/// A link and its state.
pub fn link(view: &LinkView) -> LinkDoc {
    LinkDoc {
        kind: view.kind.into(),
        name: view.name.clone(),
        from: view.from.clone(),
        to: view.to.clone(),
        state: view.state.name().into(),
        acked: view.acked,
        start: view.start,
        sent: view.sent,
        dead: view.dead,
        dropped: view.dropped,
        newest: view.newest,
        lag_records: view.lag_records,
        lag_bytes: view.lag_bytes,
        lost: view.lost,
        peer: view.peer.clone(),
        connected: view.connected,
        last_contact: view.last_contact.map(rfc3339),
        moving: view.moving,
        next_try: view.next_try.map(rfc3339),
        code: view.code.clone(),
        error: view.error.clone(),
        remedy: view.remedy.map(Into::into),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_wire::{EventId, Headers, Hlc};

    #[test]
    fn records_are_text_or_base64() {
        let record = |payload: &[u8]| Record {
            seqno: 3,
            id: EventId::from_bits(1 << 80 | 7),
            hlc: Hlc::from_wall_us(1_700_000_000_123_456),
            cause: EventId::NONE,
            payload: payload.into(),
            headers: Headers::default(),
        };
        let json = |payload: &[u8]| serde_json::to_string(&whole_record("raw", &record(payload))).unwrap();
        let head =
            r#"{"log":"raw","seqno":3,"id":"000000000001-0-7","time":"2023-11-14T22:13:20.123456Z","cause":null,"#;
        assert_eq!(json("é\n".as_bytes()), format!("{head}\"data\":\"é\\n\"}}"));
        assert_eq!(json(b"\xff\x00"), format!("{head}\"base64\":\"/wA=\"}}"));
    }
}
