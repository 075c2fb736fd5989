//! Slots of logs that a repair replaced: reads of them, and the state after a process died in between.

use millrace_journal::{CreateOptions, Durability, Journal, Log, OpenOptions, Position, Replaced};
use millrace_wire::{Code, EventId, Hlc, Result};
use std::path::Path;

fn options() -> CreateOptions {
    CreateOptions {
        segment_bytes: 1 << 20,
        retain_bytes: 2 << 20,
        durability: Durability::Memory,
        ..Default::default()
    }
}

fn open(dir: &Path) -> Journal {
    Journal::open(dir, &OpenOptions { background: false }).unwrap()
}

fn append(journal: &Journal, log: &Log, payload: &[u8]) -> EventId {
    journal.commit(|tx| tx.append(log, payload, EventId::NONE, 0)).unwrap().value.id
}

fn get(journal: &Journal, log: &Log, seqno: u64) -> Result<Vec<u8>> {
    let mut payload = Vec::new();
    journal.get(log, seqno, &mut payload)?;
    Ok(payload)
}

/// A row of a GENERATION: log, seqno, and the position of the new entry.
type Row = (u32, u64, Position);

/// A log of ten records, and a repair that changes the second one to "two" and makes the tenth one void.
fn prepared(dir: &Path) -> (Journal, Log, [EventId; 10], Vec<Row>) {
    let journal = Journal::create(dir, &options()).unwrap();
    let log = journal.commit(|tx| tx.create_log(&"raw".parse().unwrap(), 100)).unwrap().value;
    let ids = std::array::from_fn(|n| append(&journal, &log, format!("record {}", n + 1).as_bytes()));
    let clock = Hlc::from_bits(77 << 12);
    let position = |origin: EventId| journal.entry_of_sequence(origin.sequence()).unwrap().unwrap().position;
    let of = |origin, void| Replaced { repair: 1, origin, clock, void, position: position(origin) };
    let of = [of(ids[1], false), of(ids[9], true)];
    let staged = journal.commit(|tx| {
        let two = tx.shadow_append((log.id(), 2), b"two", (EventId::NONE, 0), &of[0])?;
        let ten = tx.shadow_append((log.id(), 10), b"", (EventId::NONE, 0), &of[1])?;
        Ok([(2, two), (10, ten)])
    });
    let rows = staged.unwrap().value.map(|(seqno, id)| (log.id(), seqno, position(id))).to_vec();
    (journal, log, ids, rows)
}

fn is_as_before(journal: &Journal, log: &Log) {
    assert_eq!(get(journal, log, 2).unwrap(), b"record 2");
    assert_eq!(get(journal, log, 10).unwrap(), b"record 10");
}

fn is_replaced(journal: &Journal, log: &Log, ids: &[EventId; 10]) {
    assert_eq!(get(journal, log, 1).unwrap(), b"record 1");
    let mut payload = Vec::new();
    let meta = journal.get(log, 2, &mut payload).unwrap();
    assert_eq!((&*payload, meta.hlc), (&b"two"[..], Hlc::from_bits(77 << 12)));
    assert_eq!(meta.replaced.unwrap().origin, ids[1]);
    assert_eq!(get(journal, log, 10).unwrap_err().code(), Code::RecordVoid);
    assert_eq!((log.latest(), journal.newest_upto(log, log.latest()).unwrap()), (10, 9));
    assert_eq!(journal.latest_before(log, journal.tail()).unwrap(), 10);
    // A view as of an earlier position has as many records as there were then.
    let ninth = journal.position(log, 9);
    if ninth < journal.replaced(log, 10).unwrap().unwrap().position {
        assert_eq!(journal.latest_before(log, journal.replaced(log, 10).unwrap().unwrap().position).unwrap(), 9);
        assert_eq!(journal.latest_before(log, ninth).unwrap(), 8);
        let just_after = journal.replaced(log, 10).unwrap().unwrap().position.just_after();
        assert_eq!(journal.latest_before(log, just_after).unwrap(), 10);
    }
    assert!(journal.check(&mut |_, _| {}).unwrap().faults.is_empty());
}

#[test]
fn slots_lead_elsewhere_from_a_generation_on_and_back_from_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, log, ids, rows) = prepared(dir.path());
    is_as_before(&journal, &log);
    let original: Vec<_> = [2, 10].map(|seqno| (log.id(), seqno, journal.position(&log, seqno))).to_vec();
    journal.commit(|tx| tx.generation(1, &rows)).unwrap();
    is_replaced(&journal, &log, &ids);
    assert!(journal.find(ids[1]).unwrap().is_some_and(|entry| entry.payload == b"record 2"), "what was is still there");
    journal.commit(|tx| tx.generation(2, &original)).unwrap();
    is_as_before(&journal, &log);
    append(&journal, &log, b"eleven");
    assert_eq!(get(&journal, &log, 11).unwrap(), b"eleven");
}

#[test]
fn a_clean_end_and_a_lost_index_leave_the_same_generation() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, log, ids, rows) = prepared(dir.path());
    journal.commit(|tx| tx.generation(1, &rows)).unwrap();
    drop((journal, log));
    let journal = open(dir.path());
    is_replaced(&journal, &journal.log(&"raw".parse().unwrap()).unwrap(), &ids);
    drop(journal);
    std::fs::remove_file(dir.path().join("control")).unwrap();
    std::fs::remove_file(dir.path().join("index/arena")).unwrap();
    let journal = open(dir.path());
    assert!(journal.recovery().scanned);
    is_replaced(&journal, &journal.log(&"raw".parse().unwrap()).unwrap(), &ids);
}

#[test]
fn what_stands_for_a_record_is_carried_forward_and_what_it_replaced_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, log, ids, rows) = prepared(dir.path());
    journal.commit(|tx| tx.generation(1, &rows)).unwrap();
    let other = journal.commit(|tx| tx.create_log(&"other".parse().unwrap(), 10)).unwrap().value;
    let block = vec![7; 64 << 10];
    let dropped = (0..120).map(|_| {
        append(&journal, &other, &block);
        journal.maintain(&|_, _| false).unwrap().dropped
    });
    assert!(dropped.sum::<u64>() > 0);
    assert!(journal.position(&log, 2) > rows[0].2);
    is_replaced(&journal, &log, &ids);
    drop((journal, log, other));
    std::fs::remove_file(dir.path().join("control")).unwrap();
    std::fs::remove_file(dir.path().join("index/arena")).unwrap();
    let journal = open(dir.path());
    is_replaced(&journal, &journal.log(&"raw".parse().unwrap()).unwrap(), &ids);
}

/// The GENERATION points a slot to another entry, and the segment of the slot's first version was dropped: only the GENERATION leads to the
/// record.
#[test]
fn what_stands_for_a_record_outlives_the_segment_of_its_first_version() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::create(dir.path(), &options()).unwrap();
    let log = |name: &str| journal.commit(|tx| tx.create_log(&name.parse().unwrap(), 10)).unwrap().value;
    let (raw, other) = (log("raw"), log("other"));
    let origin = append(&journal, &raw, b"one");
    let fill = |upto: u64| {
        while journal.tail().get() < upto {
            append(&journal, &other, &[7; 64 << 10]);
        }
    };
    fill(2 << 20);
    let (clock, position) = (Hlc::from_bits(77 << 12), journal.position(&raw, 1));
    let replaced = Replaced { repair: 1, origin, clock, void: false, position };
    let shadow = journal.commit(|tx| tx.shadow_append((raw.id(), 1), b"two", (EventId::NONE, 0), &replaced)).unwrap();
    let at = journal.entry_of_sequence(shadow.value.sequence()).unwrap().unwrap().position;
    journal.commit(|tx| tx.generation(1, &[(raw.id(), 1, at)])).unwrap();
    fill(7 << 19);
    journal.maintain(&|_, _| false).unwrap();
    assert!(journal.first() > position && journal.first() < at && journal.position(&raw, 1) == at);
    assert_eq!(get(&journal, &raw, 1).unwrap(), b"two");
    drop((journal, raw, other));
    std::fs::remove_file(dir.path().join("control")).unwrap();
    std::fs::remove_file(dir.path().join("index/arena")).unwrap();
    let journal = open(dir.path());
    assert!(journal.recovery().scanned);
    assert_eq!(get(&journal, &journal.log(&"raw".parse().unwrap()).unwrap(), 1).unwrap(), b"two");
}

#[test]
fn a_salvaged_namespace_has_what_stood_for_records() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    let (journal, log, ids, rows) = prepared(&from);
    journal.commit(|tx| tx.generation(1, &rows)).unwrap();
    append(&journal, &log, b"eleven");
    drop((journal, log));
    let view = Journal::view(&from).unwrap();
    view.salvage(&to, &mut |_, _| {}, &mut |_, _, _| Ok(())).unwrap();
    let journal = open(&to);
    let log = journal.log(&"raw".parse().unwrap()).unwrap();
    let mut payload = Vec::new();
    let meta = journal.get(&log, 2, &mut payload).unwrap();
    assert_eq!((&*payload, meta.replaced.unwrap().origin), (&b"two"[..], ids[1]));
    assert_eq!(get(&journal, &log, 10).unwrap_err().code(), Code::RecordVoid);
    assert_eq!(get(&journal, &log, 11).unwrap(), b"eleven");
    assert!(journal.check(&mut |_, _| {}).unwrap().faults.is_empty());
}
